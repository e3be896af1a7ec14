/* package_build: what a merged package is made of, what keeps a member out of it, and what never
 * does. On the model disk; the power cuts are tests/crash/crash_artifact.c's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "os/os.h"
#include "store/artifact/package_build.h"
#include "store/artifact/package_load.h"
#include "tests/lib/artifact_kit_internal.h"
#include "tests/lib/modeldisk.h"

#define DATA    "/m"
#define NOW     INT64_C(1795996800)
#define MEMBERS 4
#define ROOM    2000

static struct delivery_artifact item[MEMBERS];
static struct delivery_members members = {.count = MEMBERS, .item = item};
static unsigned char content[MEMBERS][ROOM];
static struct delivery_plan plan;
static struct package_job job;
static atomic_bool stop;
static unsigned places; /* how often the project was asked */
static unsigned char piece[256];

static int place(void *ctx, struct artifact_sink *out, struct err *e)
{
    (void)ctx;
    (void)e;
    *out = (struct artifact_sink){.sink = "directory"};
    (void)snprintf(out->directory, sizeof out->directory, "/mnt/%u", places++);
    return 0;
}

static void progress(void *ctx, uint64_t bytes)
{
    (void)ctx;
    (void)bytes;
}

static void upload_name(unsigned i, char out[100])
{
    (void)snprintf(out, 100, DATA "/uploads/%.32s", item[i].object_id);
}

static void declare(unsigned i)
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];

    blake3_start(&h);
    blake3_add(&h, content[i], (size_t)item[i].size_bytes);
    blake3_end(&h, digest);
    hex_encode(item[i].checksum, digest, BLAKE3_LEN);
}

/* A disk with the uploads as they are declared now. */
static struct model *new_disk(void)
{
    struct model *m = model_new(NULL);
    char path[100];

    model_use(m);
    assert_int_equal(os_mkdir(DATA "/" DELIVERY_PACKAGES, 0750), 0);
    assert_int_equal(os_sync_dir(DATA), 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        upload_name(i, path);
        model_put(m, path, content[i], (size_t)item[i].size_bytes);
    }
    return m;
}

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR + 1);
    stop = false;
    places = 0;
    memset(item, 0, sizeof item);
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct akit_life l = {.content = 1000 * i};
        (void)snprintf(item[i].object_id, sizeof item[i].object_id, "%032x", i + 1);
        (void)snprintf(item[i].project, sizeof item[i].project, "demo");
        item[i].accepted_at = NOW + i;
        item[i].size_bytes = akit_warc(&l, content[i], ROOM);
        declare(i);
    }
    job = (struct package_job){.data = DATA,
                               .artifact = item,
                               .members = &members,
                               .piece = piece,
                               .piece_bytes = sizeof piece,
                               .place = place,
                               .progress = progress,
                               .stop = &stop};
    return 0;
}

static int build(struct err *e)
{
    package_job_free(&job);
    return package_build(&job, &plan, e);
}

static int count_name(void *ctx, const char *name)
{
    (void)name;
    *(unsigned *)ctx += 1;
    return 0;
}

static unsigned files(void)
{
    unsigned n = 0;

    assert_int_equal(os_list(DATA "/" DELIVERY_PACKAGES, count_name, &n), 0);
    return n;
}

static void payload_name(char out[200])
{
    (void)snprintf(out, 200, DATA "/%s", plan.file[0].source);
}

/* What is on the disk is all of it, in order. */
static void assert_built(void)
{
    static struct delivery_plan read_back;
    struct delivery_members m;
    struct err e = {0};
    unsigned char text[MEMBERS * ROOM];
    char path[200];
    size_t at = 0;

    assert_int_equal(files(), 3);
    assert_int_equal(package_load(DATA, plan.package_id, &read_back, &m, &e), 0);
    assert_int_equal(m.count, MEMBERS);
    payload_name(path);
    int64_t n = model_get(model_in_use(), path, text, sizeof text);
    assert_int_equal(n, delivery_members_bytes(&m));
    assert_int_equal(n, plan.file[0].size);
    for (unsigned i = 0; i < MEMBERS; i++) {
        assert_string_equal(m.item[i].object_id, item[i].object_id);
        assert_memory_equal(text + at, content[i], (size_t)item[i].size_bytes);
        at += (size_t)item[i].size_bytes;
    }
    delivery_members_free(&m);
}

static void test_built_once(void **state)
{
    struct fault unsynced = {.kind = FAULT_ERROR,
                             .error = EIO,
                             .at = 1,
                             .call = OS_CALL_fsync,
                             .path = DELIVERY_PACKAGES};
    struct model *m = new_disk();
    struct err e = {0};
    unsigned char byte;
    char path[200];

    (void)state;
    assert_int_equal(build(&e), 0);
    assert_built();
    assert_string_equal(plan.to.directory, "/mnt/0");
    /* It is found again, and is nothing before its names are synced: an earlier try may have failed
     * at that. */
    model_fault_arm(m, &unsynced);
    assert_int_equal(build(&e), ERR_IO);
    model_fault_arm(m, NULL);
    uint64_t before = model_hash(m);
    assert_int_equal(build(&e), 0);
    assert_int_equal(model_hash(m), before);
    /* A payload that rotted, or went, is made again, for the same place. */
    payload_name(path);
    int fd = os_open(path, O_RDWR, 0);
    assert_int_equal(os_pread_full(fd, &byte, 1, 100), 1);
    byte ^= 1;
    assert_int_equal(os_pwrite_all(fd, &byte, 1, 100, NULL), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(build(&e), 0);
    assert_built();
    assert_int_equal(os_unlink(path), 0);
    assert_int_equal(build(&e), 0);
    assert_built();
    assert_int_equal(places, 1);
    assert_int_equal(model_hash(m), before);
    model_free(m);
}

static void test_hole_7_9_members_that_cannot_be_in_it(void **state)
{
    struct err e = {0};
    char path[100];

    (void)state;
    /* The first is as it was accepted and no WARC, the second has rotted, the fourth is gone. */
    content[0][0] ^= 1;
    declare(0);
    content[1][(size_t)item[1].size_bytes / 2] ^= 1;
    struct model *m = new_disk();
    upload_name(3, path);
    assert_int_equal(os_unlink(path), 0);
    assert_int_equal(build(&e), ERR_CORRUPT);
    assert_int_equal(job.bad_count, 3);
    assert_int_equal(job.bad[0].member, 0);
    assert_non_null(strstr(job.bad[0].way_out, "park identity"));
    assert_int_equal(job.bad[1].member, 1);
    assert_non_null(strstr(job.bad[1].text, "BLAKE3 is another one"));
    assert_non_null(strstr(job.bad[1].way_out, "original bytes"));
    assert_int_equal(job.bad[2].member, 3);
    assert_non_null(strstr(job.bad[2].text, "missing"));
    assert_null(job.way_out);
    assert_int_equal(files(), 0);
    model_free(m);
    /* Another length; what is behind the end of a record. */
    item[2].size_bytes += 1;
    m = new_disk();
    upload_name(2, path);
    int fd = os_open(path, O_RDWR, 0);
    assert_int_equal(os_ftruncate(fd, item[2].size_bytes - 1), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(build(&e), ERR_CORRUPT);
    assert_int_equal(job.bad_count, 3);
    assert_int_equal(job.bad[2].member, 2);
    assert_non_null(strstr(job.bad[2].text, "another size"));
    model_free(m);
    declare(2);
    m = new_disk();
    assert_int_equal(build(&e), ERR_CORRUPT);
    assert_int_equal(job.bad_count, 3);
    assert_non_null(strstr(job.bad[2].way_out, "park identity"));
    package_job_free(&job);
    model_free(m);
}

static void test_a_planned_package_is_not_taken_apart(void **state)
{
    struct model *m = new_disk();
    struct err e = {0};
    char path[200];
    unsigned char byte = content[1][40];

    (void)state;
    assert_int_equal(build(&e), 0);
    payload_name(path);
    assert_int_equal(os_unlink(path), 0);
    upload_name(1, path);
    for (unsigned i = 0; i < 2; i++) {
        byte ^= 1;
        int fd = os_open(path, O_RDWR, 0);
        assert_int_equal(os_pwrite_all(fd, &byte, 1, 40, NULL), 0);
        assert_int_equal(os_close(fd), 0);
        assert_int_equal(build(&e), i == 0 ? ERR_CORRUPT : 0);
        assert_int_equal(job.bad_count, 0);
        assert_int_equal(job.way_out != NULL, i == 0);
    }
    assert_built();
    model_free(m);
}

static void test_hole_8_a_failing_call_makes_no_member_bad(void **state)
{
    static const int errors[] = {EIO, EMFILE, ENOSPC, ESTALE};
    struct err e = {0};

    (void)state;
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
        unsigned failures = 0;
        for (uint64_t at = 1;; at++) {
            struct fault fault = {.kind = FAULT_ERROR, .error = errors[k], .at = at};
            struct model *m = new_disk();
            model_fault_arm(m, &fault);
            int r = build(&e);
            bool fired = model_fault_fired(m) > 0;
            model_fault_arm(m, NULL);
            assert_int_equal(job.bad_count, 0);
            assert_true(r == 0 || r == ERR_IO || r == ERR_NO_SPACE);
            failures += r != 0;
            assert_int_equal(build(&e), 0);
            assert_built();
            model_free(m);
            if (!fired) {
                break;
            }
        }
        assert_true(failures > 20);
    }
}

static struct os_disk disk;

static int small_disk(const char *path, struct os_disk *out)
{
    assert_string_equal(path, DATA "/" DELIVERY_PACKAGES);
    *out = disk;
    return 0;
}

static void test_hole_22_room_in_packages(void **state)
{
    struct model *m = new_disk();
    const struct os_table *before = os_current();
    struct os_table table = *before;
    uint64_t bytes = delivery_members_bytes(&members);
    struct err e = {0};

    (void)state;
    table.disk = small_disk;
    os_install(&table);
    disk = (struct os_disk){.bytes = 20000, .free_bytes = 1000 + bytes - 1};
    assert_int_equal(build(&e), ERR_NO_SPACE);
    assert_int_equal(job.bad_count, 0);
    assert_int_equal(files(), 0);
    disk.free_bytes = 999;
    assert_int_equal(build(&e), ERR_NO_SPACE);
    disk.bytes = UINT64_C(1) << 50; /* no more than 10 GiB stay */
    disk.free_bytes = (UINT64_C(10) << 30) + bytes - 1;
    assert_int_equal(build(&e), ERR_NO_SPACE);
    disk.free_bytes++;
    assert_int_equal(build(&e), 0);
    assert_built();
    os_install(before);
    model_free(m);
}

static void test_stopped(void **state)
{
    struct model *m = new_disk();
    struct err e = {0};

    (void)state;
    stop = true;
    assert_int_equal(build(&e), PACKAGE_STOPPED);
    assert_int_equal(files(), 0);
    stop = false;
    assert_int_equal(build(&e), 0);
    assert_built();
    /* Its payload is read again before it is taken, which ends as well. */
    stop = true;
    assert_int_equal(build(&e), PACKAGE_STOPPED);
    stop = false;
    assert_int_equal(build(&e), 0);
    assert_built();
    model_free(m);
}

static void test_what_a_start_removes(void **state)
{
    struct model *m = new_disk();
    struct err e = {0};
    char path[200];

    (void)state;
    assert_int_equal(build(&e), 0);
    model_put(m, DATA "/packages/.part-0123.warc.zst", "half", 4);
    model_put(m, DATA "/packages/.purge-0123.warc.zst", "half", 4);
    model_put(m, DATA "/packages/somebody.warc.zst", "else", 4);
    assert_int_equal(package_build_clean(DATA, &stop, &e), 0);
    assert_int_equal(files(), 4);
    /* Without its plan it is none; the members may go elsewhere. */
    (void)snprintf(path, sizeof path, DATA "/packages/%s" DELIVERY_PLAN_TAIL, plan.package_id);
    assert_int_equal(os_unlink(path), 0);
    assert_int_equal(package_build_clean(DATA, &stop, &e), 0);
    assert_int_equal(files(), 1);
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_built_once, setup),
        cmocka_unit_test_setup(test_hole_7_9_members_that_cannot_be_in_it, setup),
        cmocka_unit_test_setup(test_a_planned_package_is_not_taken_apart, setup),
        cmocka_unit_test_setup(test_hole_8_a_failing_call_makes_no_member_bad, setup),
        cmocka_unit_test_setup(test_hole_22_room_in_packages, setup),
        cmocka_unit_test_setup(test_stopped, setup),
        cmocka_unit_test_setup(test_what_a_start_removes, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
