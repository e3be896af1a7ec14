/* test_told_artifact: every call that the upload store, the requests and the settings of projects
 * make fails once (tests/lib/told.h), on the model disk: whoever asked is told, and what was told
 * before is still there, after a power cut too. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/request.h"
#include "store/artifact/settings.h"
#include "store/artifact/upload.h"
#include "tests/lib/modeldisk.h"
#include "tests/lib/told.h"

#define SIZE   3000u
#define FIRST  1000u /* synced before */
#define BROKEN "0123456789abcdef0123456789abcdef"
#define LOST   "00000000000000000000000000000001"
#define QUIET  "close" /* of what was synced, or only read */

struct world {
    struct model *m;
    struct uploads *us;
    struct upload_info info;
    unsigned cleaned;
};

static struct world world;
static unsigned char bytes[SIZE];

/* ---- before and after ---- */

static void open_store(struct world *w)
{
    struct uploads_options options = {.data = "/m", .issuer = "http://here"};
    struct err e;
    assert_int_equal(uploads_open(&options, &w->us, &e), 0);
}

static void begin_store(void *ctx)
{
    struct world *w = ctx;
    w->m = model_new(NULL);
    model_use(w->m);
    model_put(w->m, "/m/uploads/" BROKEN ".info", "{", 1);
    open_store(w);
}

static void declare(struct upload_info *info, bool right)
{
    uint8_t digest[BLAKE3_LEN];
    struct blake3 h;
    memset(info, 0, sizeof *info);
    info->size = SIZE;
    (void)snprintf(info->project, sizeof info->project, "demo");
    (void)snprintf(info->filename, sizeof info->filename, "page");
    blake3_start(&h);
    blake3_add(&h, bytes, right ? SIZE : 1);
    blake3_end(&h, digest);
    hex_encode(info->checksum, digest, sizeof digest);
}

/* Up to so many bytes, synced; all of them: accepted, or refused. */
static int send_to(struct world *w, const struct upload_info *info, uint64_t upto, struct err *e)
{
    struct upload *u;
    struct receipt receipt;
    int r = upload_open(w->us, slice_cstr(info->id), &u, e);
    if (r != 0) {
        return r;
    }
    uint64_t from = atomic_load(&u->synced);
    r = upload_write(u, bytes + from, (size_t)(upto - from), NULL, e);
    if (r == 0) {
        r = upto == SIZE ? upload_accept(u, &receipt, NULL, e) : upload_sync(u, e);
    }
    upload_close(u);
    return r;
}

static void make(struct world *w, bool right, uint64_t upto, int code)
{
    struct err e;
    declare(&w->info, right);
    assert_int_equal(upload_create(w->us, &w->info, true, &e), 0);
    if (upto > 0) {
        assert_int_equal(send_to(w, &w->info, upto, &e), code);
    }
}

static void begin_empty(void *ctx)
{
    begin_store(ctx);
    make(ctx, true, 0, 0);
}

static void begin_part(void *ctx)
{
    begin_store(ctx);
    make(ctx, true, FIRST, 0);
}

/* The state cannot be read: the bytes are, again. */
static void begin_lost_state(void *ctx)
{
    struct world *w = ctx;
    char path[100];
    begin_part(w);
    (void)snprintf(path, sizeof path, "/m/uploads/%s.state", w->info.id);
    assert_int_equal(model_rot(w->m, path, 100, 1), 0);
    assert_int_equal(model_rot(w->m, path, 4096 + 100, 1), 0);
}

static void begin_all_kinds(void *ctx)
{
    struct world *w = ctx;
    begin_store(w);
    make(w, true, SIZE, 0);
    make(w, false, SIZE, ERR_CHECKSUM_MISMATCH);
    make(w, true, FIRST, 0);
}

static void begin_refused(void *ctx)
{
    begin_store(ctx);
    make(ctx, false, SIZE, ERR_CHECKSUM_MISMATCH);
}

static void begin_leavings(void *ctx)
{
    static const char *const names[] = {
        "uploads/" LOST,        "uploads/" LOST ".state", "uploads/" LOST ".gone",
        "uploads/.gone-" LOST,  "uploads/.state-" LOST,   "receipts/.receipt-" LOST,
        "uploads/another.file", "receipts/another.file",
    };
    struct world *w = ctx;
    char path[100];
    w->m = model_new(NULL);
    model_use(w->m);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "/m/%s", names[i]);
        model_put(w->m, path, bytes, 10);
    }
    open_store(w);
}

static void cut_power(struct world *w)
{
    uploads_close(w->us);
    struct model *after = model_crash(w->m, &(struct model_choice){.how = MODEL_CUT_NONE});
    model_free(w->m);
    model_use(after);
    w->m = after;
    open_store(w);
}

static void end_store(void *ctx, int r)
{
    struct world *w = ctx;
    (void)r;
    uploads_close(w->us);
    model_free(w->m);
}

/* It is there if that was told, and can be finished; else nothing of it. */
static void end_created(void *ctx, int r)
{
    struct world *w = ctx;
    struct upload_info info;
    struct err e;
    cut_power(w);
    if (r == 0) {
        assert_int_equal(send_to(w, &w->info, SIZE, &e), 0);
    } else {
        int loaded = upload_load(w->us, slice_cstr(w->info.id), &info, &e);
        assert_true(loaded == ERR_NOT_FOUND || loaded == ERR_CORRUPT || loaded == 0);
    }
    end_store(w, r);
}

/* No less than was told, and it can be finished. */
static void end_sent(void *ctx, int r)
{
    struct world *w = ctx;
    uint64_t offset = 0;
    struct err e;
    cut_power(w);
    if (r == 0) {
        assert_int_equal(upload_synced_offset(w->us, slice_cstr(w->info.id), &offset, &e), 0);
        assert_int_equal(offset, 2 * FIRST);
    }
    if (r != ERR_GONE && send_to(w, &w->info, SIZE, &e) != 0) {
        fail_msg("%d, %s", r, e.text);
    }
    end_store(w, r);
}

/* What was removed is not there; what was not can be. */
static void end_removed(void *ctx, int r)
{
    struct world *w = ctx;
    struct upload_info info;
    struct err e;
    cut_power(w);
    if (r != 0) {
        assert_int_equal(upload_remove(w->us, slice_cstr(w->info.id), &e), 0);
    }
    assert_int_equal(upload_load(w->us, slice_cstr(w->info.id), &info, &e), ERR_NOT_FOUND);
    end_store(w, r);
}

/* ---- the operations ---- */

static int run_open(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct uploads_options options = {.data = "/m", .issuer = "http://here"};
    return uploads_open(&options, &w->us, e);
}

static void begin_disk(void *ctx)
{
    struct world *w = ctx;
    w->us = NULL;
    w->m = model_new(NULL);
    model_use(w->m);
}

static int run_create(void *ctx, struct err *e)
{
    struct world *w = ctx;
    declare(&w->info, true);
    return upload_create(w->us, &w->info, true, e);
}

/* With the whole file. */
static int run_create_whole(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct upload *u;
    struct receipt receipt;
    declare(&w->info, true);
    int r = upload_create(w->us, &w->info, false, e);
    r = r == 0 ? upload_open_new(w->us, &w->info, &u, e) : r;
    if (r == 0) {
        r = upload_write(u, bytes, SIZE, NULL, e);
        r = r == 0 ? upload_accept(u, &receipt, NULL, e) : r;
        upload_close(u);
    }
    return r;
}

static void end_accepted(void *ctx, int r)
{
    struct world *w = ctx;
    struct receipt receipt;
    struct err e;
    cut_power(w);
    if (r == 0) {
        assert_int_equal(receipt_load(w->us, slice_cstr(w->info.id), &receipt, &e), 0);
    }
    end_store(w, r);
}

static int run_load(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct upload_info info;
    int r = upload_load(w->us, slice_cstr(w->info.id), &info, e);
    assert_true(r != 0 || strcmp(info.checksum, w->info.checksum) == 0);
    return r;
}

static int run_offset(void *ctx, struct err *e)
{
    struct world *w = ctx;
    uint64_t offset = 0;
    int r = upload_synced_offset(w->us, slice_cstr(w->info.id), &offset, e);
    assert_true(r != 0 || offset == FIRST);
    return r;
}

static int run_send(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return send_to(w, &w->info, 2 * FIRST, e);
}

struct kinds {
    unsigned of[UPLOAD_BROKEN + 1];
};

static int see(void *ctx, const struct upload_seen *seen)
{
    struct kinds *kinds = ctx;
    kinds->of[seen->kind]++;
    return 0;
}

static int run_scan(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct kinds k = {{0}};
    int r = uploads_scan(w->us, see, &k, e);
    assert_true(r != 0 || (k.of[UPLOAD_PARTIAL] == 1 && k.of[UPLOAD_ACCEPTED] == 1 &&
                           k.of[UPLOAD_GONE] == 1 && k.of[UPLOAD_BROKEN] == 1));
    return r;
}

static int run_remove(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return upload_remove(w->us, slice_cstr(w->info.id), e);
}

static int run_terminate(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool left = true;
    int r = upload_terminate(w->us, slice_cstr(w->info.id), &left, e);
    assert_true(r != 0 || !left);
    return r;
}

static int run_free(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return upload_free_gone(w->us, slice_cstr(w->info.id), e);
}

static int run_clean(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = uploads_clean(w->us, &w->cleaned, e);
    assert_true(r != 0 || w->cleaned == 6);
    return r;
}

struct left {
    unsigned temporary, parts;
};

static int count_left(void *ctx, const char *name)
{
    struct left *left = ctx;
    bool lost = strstr(name, LOST) != NULL;
    left->temporary += lost && name[0] == '.';
    left->parts += lost && name[0] != '.';
    return 0;
}

static void end_clean(void *ctx, int r)
{
    const struct world *w = ctx;
    struct left left = {0};
    assert_int_equal(os_list("/m/uploads", count_left, &left), 0);
    assert_int_equal(os_list("/m/receipts", count_left, &left), 0);
    assert_true(r != 0 || left.temporary + left.parts == 0);
    /* What stays is not counted. */
    assert_true(left.temporary == 0 || w->cleaned + left.temporary <= 6);
    end_store(ctx, r);
}

static int run_request(void *ctx, struct err *e)
{
    const struct request asked = {.object_id = BROKEN, .kind = REQUEST_RETRY};
    (void)ctx;
    return request_put("/m", &asked, e);
}

#define SETTINGS                                                                              \
    "{\"credentials_file\":\"/key\",\"identifier\":\"x-{{PACKAGE_ID_SHORT}}\",\"metadata\":{" \
    "\"subject\":[\"a\",\"{{DATE}}\"],\"title\":[\"of {{PROJECT}}\"]},\"remote_name\":\"y-"   \
    "{{FILENAME}}\",\"require_checksum\":false,\"retention\":\"1d\"}"

static int run_settings(void *ctx, struct err *e)
{
    struct artifact_sink to;
    (void)ctx;
    int r = settings_read(SLICE("internet_archive"), SLICE(""), SLICE(SETTINGS), &to, e);
    return r == 0 ? settings_check(&to, SLICE("demo"), e) : r;
}

static int run_apply(void *ctx, struct err *e)
{
    struct artifact_sink to = {.sink = "internet_archive"};
    (void)ctx;
    return settings_apply(&to, SLICE(SETTINGS), e);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void end_nothing(void *ctx, int r)
{
    (void)ctx;
    (void)r;
}

/* ---- the sweeps ---- */

#define SWEEP(ops) sweep(ops, sizeof(ops) / sizeof *(ops))
static void sweep(const struct told_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        told_sweep(&ops[i], &world);
    }
}

/* Write-back is asked for early; the sync behind it tells. */
#define EARLY "write_back"
/* The name is what counts: it is looked for in another way. */
#define NAME ".gone"
/* A removal that is cut goes on without it; its folder is synced twice more. */
#define NOTE ".gone-"

static void test_making(void **state)
{
    const struct told_op ops[] = {
        {"open", begin_disk, run_open, end_store, {QUIET}, false, 0, 0},
        {"create", begin_store, run_create, end_created, {QUIET, EARLY}, false, 0, 0},
        {"create whole", begin_store, run_create_whole, end_accepted, {QUIET, EARLY}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

static void test_asking(void **state)
{
    const struct told_op ops[] = {
        {"load", begin_part, run_load, end_store, {QUIET}, false, 0, 0},
        {"offset", begin_part, run_offset, end_store, {QUIET}, false, 0, 0},
        {"scan", begin_all_kinds, run_scan, end_store, {QUIET}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

static void test_sending(void **state)
{
    const struct told_op ops[] = {
        {"first", begin_empty, run_send, end_sent, {QUIET, EARLY, NAME}, false, 0, 0},
        {"second", begin_part, run_send, end_sent, {QUIET, EARLY, NAME}, false, 0, 0},
        {"after a loss", begin_lost_state, run_send, end_sent, {QUIET, EARLY, NAME}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

static void test_removing(void **state)
{
    const struct told_op ops[] = {
        {"remove", begin_part, run_remove, end_removed, {QUIET, NOTE}, false, 2, 0},
        {"terminate", begin_part, run_terminate, end_removed, {QUIET, NOTE}, false, 2, 0},
        {"free", begin_refused, run_free, end_store, {QUIET}, false, 0, 0},
        {"clean", begin_leavings, run_clean, end_clean, {QUIET}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

static void test_requests_and_settings(void **state)
{
    const struct told_op ops[] = {
        {"request", begin_disk, run_request, end_store, {QUIET, "stat"}, false, 0, 0},
        {"settings", nothing, run_settings, end_nothing, {NULL}, false, 0, 0},
        {"apply", nothing, run_apply, end_nothing, {NULL}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

/* ---- other ways to fail ---- */

static int no_random(void *p, size_t n)
{
    memset(p, 0, n);
    return -EIO;
}

/* An id that anybody could guess is none. */
static void test_no_random(void **state)
{
    struct os_table table;
    struct err e = {0};
    (void)state;
    begin_store(&world);
    const struct os_table *before = os_current();
    table = *before;
    table.random = no_random;
    os_install(&table);
    assert_int_equal(run_create(&world, &e), ERR_IO);
    os_install(before);
    assert_non_null(strstr(e.text, "random"));
    end_store(&world, 0);
}

/* An acceptance that failed, of a file that came whole with its creation: what is sent then is as
 * durable as if it had come in parts. */
static void test_going_on_after_an_acceptance(void **state)
{
    struct world *w = &world;
    struct receipt receipt;
    struct upload *u;
    struct err e;
    uint64_t offset = 0;
    (void)state;
    begin_store(w);
    declare(&w->info, true);
    assert_int_equal(upload_create(w->us, &w->info, false, &e), 0);
    assert_int_equal(upload_open_new(w->us, &w->info, &u, &e), 0);
    assert_int_equal(upload_write(u, bytes, SIZE, NULL, &e), 0);
    model_fault_arm(w->m, &(struct fault){.error = EIO, .at = 1, .call = OS_CALL_rename});
    assert_int_equal(upload_accept(u, &receipt, NULL, &e), ERR_IO);
    model_fault_arm(w->m, NULL);
    assert_int_equal(upload_write(u, bytes, FIRST, NULL, &e), 0);
    assert_int_equal(upload_sync(u, &e), 0);
    upload_close(u);
    cut_power(w);
    assert_int_equal(upload_synced_offset(w->us, slice_cstr(w->info.id), &offset, &e), 0);
    assert_int_equal(offset, FIRST);
    assert_int_equal(send_to(w, &w->info, SIZE, &e), 0);
    end_store(w, 0);
}

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR + 1);
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_making),
        cmocka_unit_test(test_asking),
        cmocka_unit_test(test_sending),
        cmocka_unit_test(test_removing),
        cmocka_unit_test(test_requests_and_settings),
        cmocka_unit_test(test_no_random),
        cmocka_unit_test(test_going_on_after_an_acceptance),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
