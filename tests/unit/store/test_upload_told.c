/* test_upload_told: every file call and every allocation of the upload store fails once
 * (tests/lib/told.h), on a disk in memory. Whoever asked is told; no name of ours is left over; and
 * both after a power cut that loses all that was not synced and after the process alone has ended,
 * what had been told is true and the upload can be finished (tests/lib/artifact_kit.h). */
#include "tests/unit/store/upload_told_kit.h"

#include "tests/lib/told.h"

/* ---- the operations ---- */

static int run_start(void *ctx, struct err *e)
{
    return open_store(ctx, e);
}

static int run_create(void *ctx, struct err *e)
{
    return create(ctx, true, e);
}

/* Creation with the whole file. */
static int run_whole(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = create(w, false, e);
    if (r == 0) {
        r = upload_open_new(w->k.us, &life(w)->info, &w->u, e);
    }
    return r == 0 ? give(w, SIZE, e) : r;
}

/* Creation with a part of it. */
static int run_part(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = create(w, false, e);
    if (r == 0) {
        r = upload_open_new(w->k.us, &life(w)->info, &w->u, e);
    }
    return r == 0 ? give(w, FIRST, e) : r;
}

static int run_on(void *ctx, struct err *e)
{
    return request(ctx, SECOND, e);
}

static int run_finish(void *ctx, struct err *e)
{
    return request(ctx, SIZE, e);
}

static int run_open(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = upload_open(w->k.us, id_of(w), &w->u, e);
    life(w)->told_refused = r == ERR_GONE;
    if (r == 0) {
        akit_tell_offset(&w->k, life(w), atomic_load(&w->u->synced));
    }
    return r;
}

/* A request with a checksum of its own that does not fit. */
static int run_discard(void *ctx, struct err *e)
{
    struct world *w = ctx;
    static const char other[700];
    int r = upload_open(w->k.us, id_of(w), &w->u, e);
    if (r == 0) {
        upload_hold(w->u);
        r = upload_write(w->u, other, sizeof other, NULL, e);
    }
    if (r == 0) {
        r = upload_discard(w->u, e);
    }
    assert_true(r != 0 || atomic_load(&w->u->synced) == FIRST);
    life(w)->told_refused = r == ERR_GONE;
    return r != 0 ? r : give(w, SECOND, e);
}

static int run_ask(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct upload_info info;
    uint64_t offset;
    int r = upload_load(w->k.us, id_of(w), &info, e);
    if (r == 0) {
        r = upload_synced_offset(w->k.us, id_of(w), &offset, e);
    }
    assert_true(r != 0 || offset == SECOND);
    return r;
}

static int run_receipt(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct receipt receipt;
    int r = receipt_load(w->k.us, id_of(w), &receipt, e);
    assert_int_not_equal(r, ERR_NOT_FOUND);
    if (r == 0) {
        akit_tell_receipt(&w->k, life(w), &receipt);
    }
    return r;
}

static int run_remove(void *ctx, struct err *e)
{
    struct world *w = ctx;
    life(w)->told_id = false; /* from here on it may be there or not */
    life(w)->told_offset = 0;
    int r = upload_remove(w->k.us, id_of(w), e);
    life(w)->told_removed = r == 0;
    return r;
}

static int run_terminate(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool left = false;
    life(w)->told_id = false;
    life(w)->told_offset = 0;
    int r = upload_terminate(w->k.us, id_of(w), &left, e);
    life(w)->told_removed = r == 0;
    return r;
}

static int run_free_gone(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = upload_free_gone(w->k.us, id_of(w), e);
    assert_true(r != 0 || model_get(w->m, path_of(w, "uploads", "", ""), NULL, 0) < 0);
    return r;
}

static int count_one(void *ctx, const struct upload_seen *seen)
{
    (void)seen;
    ++*(unsigned *)ctx;
    return 0;
}

static int run_scan(void *ctx, struct err *e)
{
    struct world *w = ctx;
    w->seen = 0;
    int r = uploads_scan(w->k.us, count_one, &w->seen, e);
    assert_true(r != 0 || w->seen == 1);
    return r;
}

static int run_clean(void *ctx, struct err *e)
{
    struct world *w = ctx;
    unsigned count;
    int r = uploads_clean(w->k.us, &count, e);
    assert_true(r != 0 || count == 4);
    return r;
}

/* What it cannot read the acceptance reads. */
static int run_trail(void *ctx, struct err *e)
{
    struct world *w = ctx;
    (void)e;
    uploads_trail(w->k.us);
    return 0;
}

/* ---- */

/* Nothing was written through what cannot be closed; hints. */
#define QUIET "close ", "drop_range ", "reserve "
/* Whether the upload is refused is asked twice, so that one failure says nothing of it. */
#define OPENING QUIET, ".gone"
/* spare: so many calls on uploads/ itself, or on freed bytes, may fail. */
#define OP(name, begin, run, end, spare, ...)                 \
    {                                                         \
        name, begin, run, end, {__VA_ARGS__}, false, spare, 0 \
    }

static const struct told_op making[] = {
    OP("start", begin_disk, run_start, end, 0, QUIET),
    OP("create", begin_store, run_create, end_created, 0, QUIET),
    OP("create with all", begin_store, run_whole, end, 0, QUIET),
    OP("create with a part", begin_store, run_part, end, 0, QUIET),
    OP("the next second", begin_slow_clock, run_whole, end, 0, QUIET),
};

static const struct told_op going_on[] = {
    OP("begin", begin_created, run_on, end, 0, OPENING),
    OP("go on", begin_first, run_on, end, 0, OPENING),
    OP("finish", begin_second, run_finish, end, 0, OPENING),
    OP("finish undeclared", begin_undeclared, run_finish, end, 0, OPENING),
    OP("discard", begin_first, run_discard, end, 0, OPENING),
    OP("read behind", begin_second, run_trail, end, 0, ""),
};

static const struct told_op settling[] = {
    OP("tail", begin_tail, run_open, end, 0, OPENING),
    OP("complete", begin_complete, run_finish, end, 0, OPENING),
    OP("lost state", begin_stateless, run_finish, end, 0, OPENING),
    OP("lost state, complete", begin_stateless_complete, run_finish, end, 0, OPENING),
    OP("lost state, longer", begin_stateless_longer, run_finish, end, 0, OPENING),
    /* The receipt's file is looked at twice. */
    OP("doubtful", begin_doubtful, run_finish, end, 0, OPENING, ".json"),
    OP("accepted before", begin_accepted, run_finish, end, 0, OPENING),
};

static const struct told_op refusing[] = {
    /* The client hears of the mismatch, whatever becomes of the files. */
    OP("refuse", begin_wrong, run_finish, end, 4, OPENING, "unlink "),
    OP("free", begin_refused, run_free_gone, end, 0, QUIET),
    /* A full disk keeps nothing from being removed: the note is not needed. */
    OP("remove", begin_first, run_remove, end, 2, QUIET, ".gone-"),
    OP("terminate", begin_first, run_terminate, end, 2, QUIET, ".gone-"),
};

static const struct told_op asking[] = {
    OP("ask", begin_second, run_ask, end, 0, QUIET),
    OP("ask for the receipt", begin_accepted, run_receipt, end, 0, QUIET),
    OP("look around", begin_first, run_scan, end, 0, QUIET),
    OP("clean", begin_leavings, run_clean, end, 0, QUIET),
};

#define TEST(name)                                                   \
    static void test_##name(void **state)                            \
    {                                                                \
        (void)state;                                                 \
        for (size_t i = 0; i < sizeof(name) / sizeof *(name); i++) { \
            told_sweep(&(name)[i], &world);                          \
        }                                                            \
    }
TEST(making)
TEST(going_on)
TEST(settling)
TEST(refusing)
TEST(asking)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_making),   cmocka_unit_test(test_going_on),
        cmocka_unit_test(test_settling), cmocka_unit_test(test_refusing),
        cmocka_unit_test(test_asking),
    };
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests_name("upload_told", tests, NULL, NULL);
}
