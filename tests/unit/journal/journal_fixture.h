/* journal_fixture: a journal in a directory of the model disk, or of the kernel, for one test.
 *
 * The ledger of tests/lib/journal_kit.h goes along, so that every test can end with the oracle. */
#ifndef JOURNAL_FIXTURE_H
#define JOURNAL_FIXTURE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "journal/journal.h"
#include "journal/layout.h"
#include "journal/read.h"
#include "os/os.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/modeldisk.h"

#define FX_GENERATION (64u << 10)

struct fx {
    struct model *m; /* NULL: on the kernel */
    char dir[128];
    struct layout layout;
    struct journal_options options;
    struct journal *j;
    struct kit_ledger ledger;
    struct err e;
};

static inline void fx_start(struct fx *f, bool kernel)
{
    memset(f, 0, sizeof *f);
    log_set_level(LOG_ERROR + 1);
    f->options.generation_bytes = FX_GENERATION;
    if (kernel) {
        char base[] = "/tmp/journal-test-XXXXXX";
        assert_non_null(mkdtemp(base));
        (void)snprintf(f->dir, sizeof f->dir, "%s/data", base);
    } else {
        f->m = model_new(NULL);
        model_use(f->m);
        (void)snprintf(f->dir, sizeof f->dir, "/m/data");
    }
    assert_int_equal(layout_make(&f->layout, f->dir, &f->e), 0);
}

static inline void fx_open(struct fx *f)
{
    int r = journal_open(f->dir, &f->options, &f->j, &f->e);
    if (r != 0) {
        fail_msg("open: %s: %s", err_name(r), f->e.text);
    }
}

static inline void fx_close(struct fx *f)
{
    int r = journal_close(f->j, &f->e);
    f->j = NULL;
    if (r != 0) {
        fail_msg("close: %s: %s", err_name(r), f->e.text);
    }
}

static inline void fx_put(struct fx *f, uint32_t number, uint32_t count, uint32_t payload)
{
    int r = kit_put(f->j, &f->ledger, (struct kit_spec){number, count, payload}, &f->e);
    if (r != 0) {
        fail_msg("batch %u: %s: %s", number, err_name(r), f->e.text);
    }
}

static inline void fx_stage(struct fx *f, uint32_t number, uint32_t count, uint32_t payload)
{
    int r = kit_append(f->j, &f->ledger, (struct kit_spec){number, count, payload}, &f->e);
    if (r != 0) {
        fail_msg("batch %u: %s: %s", number, err_name(r), f->e.text);
    }
}

static inline void fx_commit(struct fx *f)
{
    int r = kit_commit(f->j, &f->ledger, &f->e);
    if (r != 0) {
        fail_msg("commit: %s: %s", err_name(r), f->e.text);
    }
}

static inline void fx_check(struct fx *f)
{
    char why[KIT_WHY];
    if (!kit_check(f->j, &f->ledger, false, why)) {
        fail_msg("%s", why);
    }
}

/* After a new open: doubts are settled; everything can be sent again and is told apart. */
static inline void fx_check_opened(struct fx *f)
{
    char why[KIT_WHY];
    if (!kit_check(f->j, &f->ledger, true, why) ||
        !kit_check_retries(f->j, &f->ledger, KIT_BATCHES_MAX, why) ||
        !kit_check(f->j, &f->ledger, false, why)) {
        fail_msg("%s", why);
    }
}

static inline void fx_verify(struct fx *f, bool closed)
{
    char why[KIT_WHY];
    if (!kit_check_verify(f->dir, NULL, closed, why)) {
        fail_msg("%s", why);
    }
}

static inline struct journal_status fx_status(struct fx *f)
{
    struct journal_status st;
    journal_get_status(f->j, &st);
    return st;
}

/* A wall clock that stands where it is put, until the next model_use. The disk's own cannot go past
 * the year 2554. */
static uint64_t fx_clock_ms;

static inline uint64_t fx_clock_now(void)
{
    return fx_clock_ms;
}

static inline void fx_clock_set(uint64_t ms)
{
    static struct os_table table;
    table = *os_current();
    table.clock_real_ms = fx_clock_now;
    fx_clock_ms = ms;
    os_install(&table);
}

/* The power goes: what was not synced is gone (or not), the process too. */
static inline void fx_crash(struct fx *f, const struct model_choice *choice)
{
    struct model *after = model_crash(f->m, choice);
    struct err ignored;
    if (f->j != NULL) {
        (void)journal_close(f->j, &ignored);
        f->j = NULL;
    }
    model_free(f->m);
    f->m = after;
    model_use(f->m);
    kit_forget_group(&f->ledger);
}

/* kill -9: the disk as the process saw it, another process. */
static inline void fx_kill(struct fx *f)
{
    struct model *after = model_snapshot(f->m);
    struct err ignored;
    (void)journal_close(f->j, &ignored);
    f->j = NULL;
    model_free(f->m);
    f->m = after;
    model_use(f->m);
    kit_forget_group(&f->ledger);
}

static inline void fx_end(struct fx *f)
{
    if (f->j != NULL) {
        struct err ignored;
        (void)journal_close(f->j, &ignored);
        f->j = NULL;
    }
    if (f->m != NULL) {
        model_free(f->m);
    } else {
        char command[256];
        *strrchr(f->dir, '/') = '\0';
        (void)snprintf(command, sizeof command, "rm -rf '%s'", f->dir);
        assert_int_equal(system(command), 0);
    }
    log_set_level(LOG_INFO);
}

/* Damage was found: so many events are proven and served, and nothing is taken. */
static inline void fx_expect_read_only(struct fx *f, uint64_t events)
{
    struct journal_result r;
    struct kit_batch kb;
    struct journal_reader *reader;
    struct line l;
    uint64_t n = 0;
    struct journal_status st = fx_status(f);
    assert_true(st.poisoned);
    assert_true(strlen(st.cause) > 0);
    assert_int_equal(st.frontier.events, events);
    kit_batch_make(&kb, (struct kit_spec){999, 1, 1});
    assert_int_equal(journal_append(f->j, &kb.batch, &r, &f->e), ERR_WRITER_POISONED);
    kit_batch_free(&kb);
    assert_int_equal(journal_commit(f->j, &f->e), ERR_WRITER_POISONED);
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, NULL, NULL, &reader, &f->e), 0);
    while (journal_reader_next(reader, &l, 0, &f->e) == 1) {
        n++;
    }
    journal_reader_close(reader);
    assert_int_equal(n, events);
}

/* ---- files of the journal ---- */

/* The whole file in memory (free it). */
static inline char *fx_slurp(const char *path, size_t *n)
{
    struct os_stat st;
    int fd = os_open(path, O_RDONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    char *p = malloc(st.size + 1);
    assert_non_null(p);
    assert_int_equal(os_pread_full(fd, p, st.size, 0), st.size);
    assert_int_equal(os_close(fd), 0);
    p[st.size] = '\0';
    *n = st.size;
    return p;
}

/* Replaces the file's bytes, durably. */
static inline void fx_spill(const char *path, const void *p, size_t n)
{
    int fd = os_open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_ftruncate(fd, 0), 0);
    assert_int_equal(os_pwrite_all(fd, p, n, 0, NULL), 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_close(fd), 0);
}

static inline void fx_patch(const char *path, uint64_t at, const void *p, size_t n)
{
    int fd = os_open(path, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, p, n, at, NULL), 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_close(fd), 0);
}

static inline uint64_t fx_size(const char *path)
{
    struct os_stat st;
    assert_int_equal(os_stat(path, &st), 0);
    return st.size;
}

static inline bool fx_exists(const char *path)
{
    struct os_stat st;
    int r = os_stat(path, &st);
    assert_true(r == 0 || r == -ENOENT);
    return r == 0;
}

#endif
