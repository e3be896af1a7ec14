/* proof and purge: a package's last words, and its bytes going. On the model disk, with the power
 * cut, and each call failing, at every call. */
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
#include "store/artifact/purge.h"
#include "tests/lib/modeldisk.h"

#define DATA  "/m"
#define HEX32 "0123456789abcdef0123456789abcdef"
#define HEX64 HEX32 "fedcba9876543210fedcba9876543210"
#define NOW   INT64_C(1795996800)
#define SIZE  (20u << 20) /* three steps of freeing */

static struct proof proof;
static atomic_bool stop_now;

static int setup(void **state)
{
    static const struct delivery_artifact a = {.object_id = HEX32,
                                               .project = "demo",
                                               .filename = "a \"b\" \xc3\xbc.mov",
                                               .checksum = HEX64,
                                               .size_bytes = SIZE,
                                               .accepted_at = NOW};
    static struct artifact_sink to = {.sink = "directory", .directory = "/mnt/a"};
    struct err e = {0};

    (void)state;
    log_set_level(LOG_ERROR + 1);
    to.retention_ms = 1000;
    proof.artifact = a;
    proof.sent_at = NOW + 10;
    proof.verified_at = NOW + 20;
    if (delivery_plan_begin(&proof.plan, &a, &to, &e) != 0) {
        return -1;
    }
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        struct delivery_plan_file *f = &proof.plan.file[i];
        f->size = i == 0 ? SIZE : 700;
        memcpy(f->digests.blake3, HEX64, sizeof HEX64);
        memcpy(f->digests.md5, HEX32, sizeof HEX32);
        memcpy(f->digests.sha1, HEX32 "01234567", sizeof HEX32 "01234567");
    }
    return 0;
}

/* ---- text ---- */

static void test_there_and_back(void **state)
{
    static struct proof back;
    struct buf text = {0};
    struct err e = {0};

    (void)state;
    proof_put(&text, &proof);
    assert_false(text.failed);
    assert_int_equal(proof_parse(buf_slice(&text), &back, &e), 0);
    assert_string_equal(back.artifact.object_id, HEX32);
    assert_string_equal(back.artifact.project, "demo");
    assert_string_equal(back.artifact.filename, proof.artifact.filename);
    assert_string_equal(back.plan.file[0].digests.md5, HEX32);
    assert_int_equal(back.verified_at, NOW + 20);
    for (size_t i = 0; i < text.len; i++) {
        char was = text.ptr[i];
        text.ptr[i] = (char)(was ^ 1);
        int r = proof_parse(buf_slice(&text), &back, &e);
        /* A digit of a time, of the far side's digests or of a place is a fact of its own. */
        if (r == 0) {
            struct buf again = {0};
            proof_put(&again, &back);
            assert_true(slice_eq(buf_slice(&again), buf_slice(&text)));
            buf_free(&again);
        } else {
            assert_int_equal(r, ERR_CORRUPT);
        }
        text.ptr[i] = was;
    }
    for (size_t n = 0; n < text.len; n++) {
        assert_int_equal(proof_parse(slice_of(text.ptr, n), &back, &e), ERR_CORRUPT);
    }
    /* The plan of another artifact. */
    buf_clear(&text);
    static struct proof wrong;
    wrong = proof;
    wrong.artifact.object_id[0] = 'f';
    proof_put(&text, &wrong);
    assert_int_equal(proof_parse(buf_slice(&text), &back, &e), ERR_CORRUPT);
    buf_free(&text);
}

/* ---- a data directory ---- */

#define BYTES    DATA "/uploads/" HEX32
#define MOVED    DATA "/" PURGE_FOLDER "/" HEX32
#define RECEIPT  DATA "/receipts/" HEX32 ".json"
#define PACKAGES DATA "/" DELIVERY_PACKAGES

static char package_path[2][200], proof_path[200];

static void write_whole(const char *path, const char *text, size_t size)
{
    int fd = os_open(path, O_RDWR | O_CREAT, 0640);

    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, text, strlen(text), 0, NULL), 0);
    assert_int_equal(os_ftruncate(fd, size), 0);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_close(fd), 0);
}

static bool there(const char *path)
{
    struct os_stat st;
    return os_stat(path, &st) == 0;
}

static uint64_t size_of(const char *path)
{
    struct os_stat st;
    return os_stat(path, &st) == 0 ? st.size : 0;
}

static struct model *new_disk(void)
{
    static const char *const folders[] = {"/uploads", "/receipts", "/packages"};
    struct model *m = model_new(NULL);
    struct err e = {0};

    model_use(m);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[100];
        snprintf(path, sizeof path, DATA "%s", folders[i]);
        assert_int_equal(os_mkdir_exist_ok(path, 0750), 0);
    }
    assert_int_equal(proof_folder(DATA, &e), 0);
    assert_int_equal(purge_folder(DATA, &e), 0);
    snprintf(package_path[0], sizeof package_path[0], PACKAGES "/%s" DELIVERY_PLAN_TAIL,
             proof.plan.package_id);
    snprintf(package_path[1], sizeof package_path[1], PACKAGES "/%s" DELIVERY_MANIFEST_TAIL,
             proof.plan.package_id);
    snprintf(proof_path, sizeof proof_path, DATA "/" PROOF_FOLDER "/%s" PROOF_TAIL,
             proof.plan.package_id);
    write_whole(BYTES, "bytes", SIZE);
    write_whole(BYTES ".info", "info", 4);
    write_whole(BYTES ".state", "state", 5);
    write_whole(RECEIPT, "receipt", 7);
    write_whole(package_path[0], "plan", 4);
    write_whole(package_path[1], "manifest", 8);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[100];
        snprintf(path, sizeof path, DATA "%s", folders[i]);
        assert_int_equal(os_sync_dir(path), 0);
    }
    assert_int_equal(os_sync_dir(DATA), 0);
    return m;
}

static void assert_untouched(void)
{
    assert_int_equal(size_of(BYTES), SIZE);
    assert_true(there(BYTES ".info"));
    assert_true(there(BYTES ".state"));
    assert_true(there(package_path[0]));
    assert_true(there(package_path[1]));
}

static void assert_purged(void)
{
    assert_false(there(BYTES));
    assert_false(there(MOVED));
    assert_false(there(BYTES ".info"));
    assert_false(there(BYTES ".state"));
    assert_false(there(package_path[0]));
    assert_false(there(package_path[1]));
    assert_true(there(RECEIPT));
    assert_true(there(proof_path));
}

/* What holds on any disk: whatever is gone, a proof speaks for it. */
static void assert_accounted_for(void)
{
    static struct proof back;
    struct err e = {0};

    assert_true(there(RECEIPT));
    assert_true(!there(BYTES) || size_of(BYTES) >= SIZE); /* never cut under its own name */
    int r = proof_read(DATA, proof.plan.package_id, &back, &e);
    if (r == 0) {
        assert_string_equal(back.artifact.object_id, HEX32);
    } else {
        assert_int_equal(r, ERR_NOT_FOUND);
        assert_untouched();
    }
}

static int all_of_it(struct err *e)
{
    int r = proof_write(DATA, &proof, e);
    return r == 0 ? purge_package(DATA, &proof.plan, &stop_now, NULL, e) : r;
}

static void test_no_proof_no_purge(void **state)
{
    struct model *m = new_disk();
    struct err e = {0};
    uint64_t freed = 0;

    (void)state;
    assert_int_equal(purge_package(DATA, &proof.plan, &stop_now, &freed, &e), ERR_REFUSED);
    assert_untouched();
    write_whole(proof_path, "{}", 2);
    assert_int_equal(purge_package(DATA, &proof.plan, &stop_now, &freed, &e), ERR_CORRUPT);
    assert_int_equal(proof_write(DATA, &proof, &e), ERR_CORRUPT);
    assert_untouched();
    assert_int_equal(os_unlink(proof_path), 0);
    assert_int_equal(proof_write(DATA, &proof, &e), 0);
    assert_int_equal(os_unlink(RECEIPT), 0);
    assert_int_equal(purge_package(DATA, &proof.plan, &stop_now, &freed, &e), ERR_REFUSED);
    assert_untouched();
    model_free(m);
}

static void test_purge(void **state)
{
    static struct proof back, other;
    struct model *m = new_disk();
    struct err e = {0};
    uint64_t freed = 0;

    (void)state;
    assert_int_equal(proof_write(DATA, &proof, &e), 0);
    /* Again, and at another time: the first one stays. */
    other = proof;
    other.verified_at += 100;
    assert_int_equal(proof_write(DATA, &other, &e), 0);
    assert_int_equal(proof_read(DATA, proof.plan.package_id, &back, &e), 0);
    assert_int_equal(back.verified_at, proof.verified_at);
    /* At another place: somebody else's. */
    other = proof;
    memcpy(other.plan.to.directory, "/mnt/b", sizeof "/mnt/b");
    assert_int_equal(proof_write(DATA, &other, &e), ERR_CORRUPT);
    assert_int_equal(purge_package(DATA, &proof.plan, &stop_now, &freed, &e), 0);
    assert_int_equal(freed, SIZE);
    assert_purged();
    assert_int_equal(purge_package(DATA, &proof.plan, &stop_now, &freed, &e), 0);
    assert_int_equal(freed, 0);
    assert_purged();
    model_free(m);
}

static void test_temporary_names_go(void **state)
{
    struct model *m = new_disk();
    struct err e = {0};
    char temp[200];

    (void)state;
    snprintf(temp, sizeof temp, DATA "/" PROOF_FOLDER "/" PROOF_TEMP "%s" PROOF_TAIL,
             proof.plan.package_id);
    write_whole(temp, "half", 4);
    write_whole(DATA "/" PROOF_FOLDER "/" PROOF_TEMP "of another", "x", 1);
    assert_int_equal(proof_folder(DATA, &e), 0);
    assert_false(there(temp));
    assert_true(there(DATA "/" PROOF_FOLDER "/" PROOF_TEMP "of another"));
    model_free(m);
}

/* ---- power cuts and faults ---- */

static unsigned cuts;

static void look_and_finish(void)
{
    struct err e = {0};

    assert_accounted_for();
    assert_int_equal(proof_folder(DATA, &e), 0);
    assert_int_equal(purge_folder(DATA, &e), 0);
    /* Whoever finds the plan's row, or the proof, goes on. */
    assert_int_equal(all_of_it(&e), 0);
    assert_purged();
}

static void cut(void *ctx, struct model *m, const struct model_call *call)
{
    struct model_crashes it;
    struct model *after;

    (void)ctx;
    model_set_hook(m, NULL, NULL);
    model_crashes_begin(&it, m, 6, 24, call->number);
    while ((after = model_crashes_next(&it)) != NULL) {
        model_use(after);
        look_and_finish();
        model_free(after);
        cuts++;
    }
    after = model_snapshot(m); /* killed */
    model_use(after);
    look_and_finish();
    model_free(after);
    model_use(m);
    model_set_hook(m, cut, NULL);
}

static void test_power_cuts(void **state)
{
    struct model *m = new_disk();
    struct err e = {0};

    (void)state;
    cuts = 0;
    model_set_hook(m, cut, NULL);
    assert_int_equal(all_of_it(&e), 0);
    model_set_hook(m, NULL, NULL);
    assert_purged();
    assert_true(cuts > 40);
    model_free(m);
}

static void test_faults(void **state)
{
    static const struct fault kinds[] = {
        {.kind = FAULT_ERROR, .error = EIO},
        {.kind = FAULT_ERROR_AFTER, .error = EIO},
        {.kind = FAULT_ERROR, .error = ENOSPC},
        {.kind = FAULT_ERROR, .error = EIO, .sticky = true},
    };

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool fired = true;
        for (uint64_t at = 1; fired; at++) {
            struct model *m = new_disk();
            struct fault fault = kinds[k];
            struct err e = {0};
            fault.at = at;
            model_fault_arm(m, &fault);
            int r = all_of_it(&e);
            fired = model_fault_fired(m) > 0;
            model_fault_arm(m, NULL);
            if (r == 0) {
                assert_purged();
            } else {
                assert_true(fired);
                assert_true(e.text[0] != '\0');
            }
            /* With the cache lost, as a power cut leaves it, and without. */
            struct model_choice none = {.how = MODEL_CUT_NONE};
            struct model *after = model_crash(m, &none);
            model_use(after);
            look_and_finish();
            model_free(after);
            model_use(m);
            look_and_finish();
            model_free(m);
        }
    }
}

static void test_stopping(void **state)
{
    struct model *m = new_disk();
    struct err e = {0};

    (void)state;
    assert_int_equal(os_unlink(BYTES), 0);
    write_whole(BYTES, "bytes", (size_t)200 << 20);
    assert_int_equal(proof_write(DATA, &proof, &e), 0);
    atomic_store(&stop_now, true); /* it is to stop */
    assert_int_equal(purge_package(DATA, &proof.plan, &stop_now, NULL, &e), ERR_NOT_READY);
    atomic_store(&stop_now, false);
    assert_accounted_for();
    assert_int_equal(purge_package(DATA, &proof.plan, &stop_now, NULL, &e), 0);
    assert_purged();
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_no_proof_no_purge),
        cmocka_unit_test(test_purge),          cmocka_unit_test(test_temporary_names_go),
        cmocka_unit_test(test_power_cuts),     cmocka_unit_test(test_faults),
        cmocka_unit_test(test_stopping),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
