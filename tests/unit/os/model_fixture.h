/* model_fixture: what the tests of the model disk share: one model `m`, in use, made anew for each
 * test. */
#ifndef TESTS_UNIT_OS_MODEL_FIXTURE_H
#define TESTS_UNIT_OS_MODEL_FIXTURE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/modeldisk.h"

static struct model *m;

static inline void use(const struct model_options *options)
{
    model_free(m);
    m = model_new(options);
    model_use(m);
}

static inline int setup(void **state)
{
    (void)state;
    use(NULL);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    model_free(m);
    m = NULL;
    assert_ptr_equal(os_current(), &os_real);
    return 0;
}

/* Opens the file, made if need be, and writes the content at its start. */
static inline int make(const char *path, const char *content)
{
    int fd = os_open(path, O_RDWR | O_CREAT, 0600);

    assert_true(fd >= 0);
    if (content[0] != '\0') {
        assert_int_equal(os_pwrite_all(fd, content, strlen(content), 0, NULL), 0);
    }
    return fd;
}

static inline void make_durable(const char *path, const char *content)
{
    int fd = make(path, content);

    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
}

/* Goes on after a power cut that lost, or landed, everything unsynced. */
static inline void cut(bool all)
{
    struct model_choice choice = {.how = all ? MODEL_CUT_ALL : MODEL_CUT_NONE};
    struct model *after = model_crash(m, &choice);

    model_free(m);
    m = after;
    model_use(m);
    assert_int_equal(model_pending(m), 0);
}

static inline void has(const char *path, const char *content)
{
    char bytes[9000] = {0};

    assert_int_equal(model_get(m, path, bytes, sizeof bytes), (int64_t)strlen(content));
    assert_memory_equal(bytes, content, strlen(content));
}

static inline void has_not(const char *path)
{
    char byte;

    assert_int_equal(model_get(m, path, &byte, 1), -ENOENT);
}

static inline int see_nothing(void *ctx, const char *name)
{
    (void)ctx, (void)name;
    return 0;
}

/* Makes each file call once, on fd, which is the file "file" below root, or below root; how many,
 * and the results in order. Only what a call returns is the test's. */
static inline unsigned each_call(const char *root, int fd, int *results)
{
    char path[4][128];
    struct os_stat st;
    uint64_t space;
    char byte = 'x';
    unsigned n = 0;
    static const char *const last[] = {"file", "file2", "new", "dir"};

    for (unsigned k = 0; k < 4; k++) {
        (void)snprintf(path[k], sizeof path[k], "%s/%s", root, last[k]);
    }
    results[n++] = os_open(path[2], O_RDWR | O_CREAT, 0600);
    results[n++] = (int)os_pread(fd, &byte, 1, 0);
    results[n++] = (int)os_pwrite(fd, &byte, 1, 0);
    results[n++] = os_fdatasync(fd);
    results[n++] = os_fsync(fd);
    results[n++] = os_ftruncate(fd, 9);
    results[n++] = os_fstat(fd, &st);
    results[n++] = os_stat(path[0], &st);
    results[n++] = os_rename(path[0], path[1]);
    results[n++] = os_mkdir(path[3], 0700);
    results[n++] = os_list(root, see_nothing, NULL);
    results[n++] = os_flock(fd, LOCK_EX);
    results[n++] = os_drop_cache(fd);
    results[n++] = os_free_space(root, &space);
    results[n++] = os_unlink(path[1]);
    results[n++] = os_close(fd);
    return n;
}

#endif
