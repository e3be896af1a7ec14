/* Readers: cursors, snapshots, filters, the last n, streams at a frontier, across generations,
 * beside appends and rotations; on the model disk, and threads on the kernel. */
#include "tests/unit/journal/journal_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "journal/internal.h"

#define BATCHES 60

/* Sixty batches over several generations, groups of one to three batches. */
static void fill(struct fx *f)
{
    fx_open(f);
    for (uint32_t n = 1; n <= BATCHES; n++) {
        fx_stage(f, n, n % 4 + 1, n % 7 == 0 ? 9000 : 100 + n * 17);
        if (n % 3 != 1) {
            fx_commit(f);
        }
    }
    fx_commit(f);
    assert_true(fx_status(f).generations >= 4);
}

/* All ids in order. */
static struct uuid *all_ids(struct fx *f, uint64_t *count)
{
    struct journal_frontier front;
    struct journal_reader *r;
    struct line l;
    journal_get_frontier(f->j, &front);
    struct uuid *ids = calloc(front.events, sizeof *ids);
    assert_non_null(ids);
    *count = 0;
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, NULL, NULL, &r, &f->e), 0);
    while (journal_reader_next(r, &l, 0, &f->e) == 1) {
        assert_true(*count < front.events);
        ids[(*count)++] = l.id;
    }
    journal_reader_close(r);
    assert_int_equal(*count, front.events);
    return ids;
}

static void expect_range(struct fx *f, const struct uuid *after, const struct uuid *through,
                         const struct uuid *want, uint64_t count)
{
    struct journal_reader *r;
    struct journal_frontier snapshot;
    struct line l;
    assert_int_equal(journal_reader_open(f->j, after, through, NULL, &snapshot, &r, &f->e), 0);
    if (through != NULL) {
        assert_int_equal(uuid_cmp(&snapshot.last_id, through), 0);
    }
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(journal_reader_next(r, &l, 0, &f->e), 1);
        assert_int_equal(uuid_cmp(&l.id, &want[i]), 0);
    }
    assert_int_equal(journal_reader_next(r, &l, 0, &f->e), 0);
    assert_int_equal(journal_reader_next(r, &l, 0, &f->e), 0);
    journal_reader_close(r);
}

/* From every event, and from ids between them. */
static void test_after_and_through(void **state)
{
    struct fx f;
    uint64_t n;
    fx_start(&f, false);
    fill(&f);
    struct uuid *ids = all_ids(&f, &n);
    for (uint64_t i = 0; i < n; i++) {
        struct uuid between = ids[i];
        expect_range(&f, &ids[i], NULL, ids + i + 1, n - i - 1);
        between.byte[13] ^= 1; /* the tag: no such event, on one side of it or the other */
        bool above = uuid_cmp(&between, &ids[i]) > 0;
        uint64_t from = above ? i + 1 : i;
        while (!above && from > 0 && uuid_cmp(&ids[from - 1], &between) > 0) {
            from--;
        }
        while (above && from < n && uuid_cmp(&ids[from], &between) <= 0) {
            from++;
        }
        expect_range(&f, &between, NULL, ids + from, n - from);
        expect_range(&f, NULL, &ids[i], ids, i + 1);
        if (i >= 5) {
            expect_range(&f, &ids[i - 5], &ids[i], ids + i - 4, 5);
        }
        expect_range(&f, &ids[i], &ids[i], NULL, 0);
    }
    struct uuid zero = {{0}};
    struct uuid top;
    memset(&top, 0xff, sizeof top);
    expect_range(&f, &zero, NULL, ids, n);
    expect_range(&f, &top, NULL, NULL, 0); /* a cursor past the end is legal (L29) */
    assert_int_equal(journal_has_event(f.j, &zero, &f.e), 0);
    assert_int_equal(journal_has_event(f.j, &top, &f.e), 0);
    for (uint64_t i = 0; i < n; i += 7) {
        struct uuid near = ids[i];
        assert_int_equal(journal_has_event(f.j, &ids[i], &f.e), 1);
        near.byte[13] ^= 1;
        assert_int_equal(journal_has_event(f.j, &near, &f.e), 0);
    }
    free(ids);
    fx_end(&f);
    (void)state;
}

static void test_empty(void **state)
{
    struct fx f;
    struct uuid id = {{1}};
    struct journal_reader *r;
    struct line l;
    struct journal_frontier snapshot;
    fx_start(&f, false);
    fx_open(&f);
    expect_range(&f, NULL, NULL, NULL, 0);
    expect_range(&f, &id, NULL, NULL, 0);
    assert_int_equal(journal_has_event(f.j, &id, &f.e), 0);
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, &snapshot, &r, &f.e), 0);
    assert_true(snapshot.empty);
    assert_int_equal(journal_reader_last(r, 5, &f.e), 0);
    assert_int_equal(journal_reader_next(r, &l, 0, &f.e), 0);
    journal_reader_close(r);
    fx_end(&f);
    (void)state;
}

static uint64_t count_plain(struct fx *f, const struct journal_filter *flt)
{
    struct journal_reader *r;
    struct line l;
    uint64_t n = 0;
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, NULL, NULL, &r, &f->e), 0);
    while (journal_reader_next(r, &l, 0, &f->e) == 1) {
        n += (flt->source.ptr == NULL || slice_eq(flt->source, l.source)) &&
             (flt->stream.ptr == NULL || slice_eq(flt->stream, l.stream)) &&
             (flt->kind.ptr == NULL || slice_eq(flt->kind, l.kind)) &&
             (flt->record_key.ptr == NULL || slice_eq(flt->record_key, l.record_key));
    }
    journal_reader_close(r);
    return n;
}

static void test_filters(void **state)
{
    static const struct journal_filter filters[] = {
        {.source = SLICE("\"src-0\"")},
        {.stream = SLICE("\"st-1\"")},
        {.kind = SLICE("\"deleted\"")},
        {.record_key = SLICE("\"key-31-2\"")},
        {.source = SLICE("\"src-1\""), .stream = SLICE("\"st-2\""), .kind = SLICE("\"upserted\"")},
        {.source = SLICE("\"src-\"")},
        {.source = SLICE("\"src-00\"")},
    };
    struct fx f;
    fx_start(&f, false);
    fill(&f);
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        struct journal_reader *r;
        struct line l;
        uint64_t want = count_plain(&f, &filters[i]);
        uint64_t got = 0;
        uint64_t pauses = 0;
        int code;
        assert_int_equal(i >= 5 || i == 2, want == 0 || (i == 2 && want > 0));
        assert_int_equal(journal_reader_open(f.j, NULL, NULL, &filters[i], NULL, &r, &f.e), 0);
        while ((code = journal_reader_next(r, &l, 500, &f.e)) != 0) {
            assert_true(code == 1 || code == ERR_NOT_READY);
            got += code == 1;
            pauses += code == ERR_NOT_READY;
        }
        journal_reader_close(r);
        assert_int_equal(got, want);
        assert_true(pauses > 0);
    }
    fx_end(&f);
    (void)state;
}

static void expect_last(struct fx *f, const struct journal_filter *flt, uint64_t n)
{
    struct journal_reader *all;
    struct journal_reader *last;
    struct line a;
    struct line b;
    uint64_t total = 0;
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, flt, NULL, &all, &f->e), 0);
    while (journal_reader_next(all, &a, 0, &f->e) == 1) {
        total++;
    }
    journal_reader_close(all);
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, flt, NULL, &all, &f->e), 0);
    for (uint64_t i = n; i < total; i++) {
        assert_int_equal(journal_reader_next(all, &a, 0, &f->e), 1);
    }
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, flt, NULL, &last, &f->e), 0);
    assert_int_equal(journal_reader_last(last, n, &f->e), 0);
    int code;
    uint64_t got = 0;
    while ((code = journal_reader_next(last, &b, 0, &f->e)) == 1) {
        assert_int_equal(journal_reader_next(all, &a, 0, &f->e), 1);
        assert_int_equal(uuid_cmp(&a.id, &b.id), 0);
        got++;
    }
    assert_int_equal(code, 0);
    assert_int_equal(got, n < total ? n : total);
    journal_reader_close(all);
    journal_reader_close(last);
}

static void test_last(void **state)
{
    static const struct journal_filter none;
    static const struct journal_filter rare = {.record_key = SLICE("\"key-3-0\"")};
    static const struct journal_filter some = {.stream = SLICE("\"st-1\"")};
    static const struct journal_filter never = {.stream = SLICE("\"nowhere\"")};
    static const uint64_t counts[] = {0, 1, 2, 10, 50, 100, 149, 150, 151, 100000};
    struct fx f;
    fx_start(&f, false);
    fill(&f);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        expect_last(&f, &none, counts[i]);
        expect_last(&f, &rare, counts[i]);
        expect_last(&f, &some, counts[i]);
        expect_last(&f, &never, counts[i]);
    }
    fx_end(&f);
    (void)state;
}

/* A reader's snapshot does not move while the journal is appended to and rotated. */
static void test_snapshot(void **state)
{
    struct fx f;
    struct journal_reader *r;
    struct journal_frontier snapshot;
    struct line l;
    uint64_t got = 0;
    fx_start(&f, false);
    fill(&f);
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, &snapshot, &r, &f.e), 0);
    for (uint32_t n = 100; n < 130; n++) {
        for (int k = 0; k < 6; k++) {
            int code = journal_reader_next(r, &l, 0, &f.e);
            assert_true(code >= 0);
            got += (uint64_t)code;
        }
        fx_put(&f, n, 1, 9000);
    }
    while (journal_reader_next(r, &l, 0, &f.e) == 1) {
        got++;
    }
    assert_int_equal(got, snapshot.events);
    journal_reader_close(r);
    fx_check(&f);
    fx_end(&f);
    (void)state;
}

/* ---- streams ---- */

struct rows {
    uint64_t events, rows;
    struct uuid last;
    char previous[64];
    unsigned stop_after;
};

static int on_row(void *ctx, const struct index_stream *row)
{
    struct rows *rs = ctx;
    char key[64];
    (void)snprintf(key, sizeof key, "%.*s/%.*s", (int)row->source.len, row->source.ptr,
                   (int)row->stream.len, row->stream.ptr);
    assert_true(strcmp(rs->previous, key) < 0);
    memcpy(rs->previous, key, sizeof key);
    rs->events += row->events;
    rs->rows++;
    if (uuid_cmp(&row->last_id, &rs->last) > 0) {
        rs->last = row->last_id;
    }
    return rs->stop_after != 0 && rs->rows == rs->stop_after ? 42 : 0;
}

static void test_streams(void **state)
{
    struct fx f;
    uint64_t n;
    fx_start(&f, false);
    fill(&f);
    struct uuid *ids = all_ids(&f, &n);
    for (int reopened = 0; reopened < 2; reopened++) {
        for (uint64_t i = 0; i < n; i++) {
            struct rows rs = {0};
            assert_int_equal(
                journal_read_streams(f.j, &ids[i], (struct slice){0}, on_row, &rs, &f.e), 0);
            assert_int_equal(rs.events, i + 1);
            assert_int_equal(uuid_cmp(&rs.last, &ids[i]), 0);
            struct rows one = {0};
            struct rows two = {0};
            assert_int_equal(journal_read_streams(f.j, &ids[i], SLICE("src-0"), on_row, &one, &f.e),
                             0);
            assert_int_equal(journal_read_streams(f.j, &ids[i], SLICE("src-1"), on_row, &two, &f.e),
                             0);
            assert_int_equal(one.events + two.events, i + 1);
            assert_true(one.rows <= 3);
        }
        struct rows stop = {.stop_after = 2};
        assert_int_equal(
            journal_read_streams(f.j, &ids[n - 1], (struct slice){0}, on_row, &stop, &f.e), 42);
        assert_int_equal(stop.rows, 2);
        fx_close(&f);
        fx_open(&f);
    }
    free(ids);
    fx_end(&f);
    (void)state;
}

/* A line that is no line ends the reading, with its place. */
static void test_damaged_line(void **state)
{
    struct fx f;
    struct journal_reader *r;
    struct line l;
    int code;
    uint32_t got = 0;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 10);
    uint64_t second = fx_status(&f).bytes;
    fx_put(&f, 2, 1, 10);
    fx_patch(f.layout.tail, second, "#", 1);
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &r, &f.e), 0);
    while ((code = journal_reader_next(r, &l, 0, &f.e)) == 1) {
        got++;
    }
    assert_int_equal(code, ERR_CORRUPT);
    assert_int_equal(got, 1);
    assert_int_equal(f.e.offset, second);
    journal_reader_close(r);
    fx_end(&f);
    (void)state;
}

/* Each read of a walk fails once: that is said as what it is, nothing is passed over, and a further
 * call goes on where it was. */
static void walk_with_one_failure(struct fx *f, const struct uuid *ids, uint64_t n)
{
    struct journal_reader *r;
    struct line l;
    bool fired = true;
    uint64_t failures = 0;
    for (uint64_t k = 1; fired; k++) {
        struct fault eio = {.kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_pread, .at = k};
        uint64_t got = 0;
        int code;
        assert_int_equal(journal_reader_open(f->j, NULL, NULL, NULL, NULL, &r, &f->e), 0);
        model_fault_arm(f->m, &eio);
        while ((code = journal_reader_next(r, &l, 0, &f->e)) != 0) {
            if (code == 1) {
                assert_true(got < n);
                assert_true(uuid_cmp(&l.id, &ids[got]) == 0);
                got++;
            } else {
                assert_int_equal(code, ERR_IO);
                failures++;
            }
        }
        assert_int_equal(got, n);
        journal_reader_close(r);
        fired = model_fault_fired(f->m) > 0;
        model_fault_arm(f->m, NULL);
    }
    assert_true(failures > 1);
}

static void test_failing_reads(void **state)
{
    struct fx f;
    struct journal_reader *r;
    struct line l;
    struct fault eio = {.kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_pread, .at = 1};
    struct fault emfile = {
        .kind = FAULT_ERROR, .error = EMFILE, .call = OS_CALL_open, .at = 1, .sticky = true};
    uint64_t n;
    fx_start(&f, false);
    fill(&f);
    struct uuid *ids = all_ids(&f, &n);
    model_fault_arm(f.m, &emfile);
    assert_int_equal(journal_reader_open(f.j, &ids[1], NULL, NULL, NULL, &r, &f.e), ERR_IO);
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &r, &f.e), 0);
    assert_int_equal(journal_reader_next(r, &l, 0, &f.e), ERR_IO);
    model_fault_arm(f.m, NULL);
    assert_int_equal(journal_reader_next(r, &l, 0, &f.e), 1); /* and can go on */
    journal_reader_close(r);
    model_fault_arm(f.m, &eio);
    assert_int_equal(journal_reader_open(f.j, &ids[1], NULL, NULL, NULL, &r, &f.e), ERR_IO);
    model_fault_arm(f.m, &eio);
    assert_int_equal(journal_has_event(f.j, &ids[5], &f.e), ERR_IO);
    model_fault_arm(f.m, &eio);
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &r, &f.e), 0);
    assert_int_equal(journal_reader_last(r, 3, &f.e), ERR_IO);
    journal_reader_close(r);
    model_fault_arm(f.m, NULL);
    walk_with_one_failure(&f, ids, n);
    free(ids);
    fx_check(&f);
    fx_end(&f);
    (void)state;
}

/* How often readers hold a file; the tail's own one does not count. */
static unsigned held(const struct fx *f)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < f->j->generation_count; i++) {
        const struct generation *g = f->j->generations[i];
        n += g->file != NULL ? g->file->users - (g->tail ? 1 : 0) : 0;
    }
    return n;
}

/* A reader that rests between its lines holds no descriptor meanwhile, and misses nothing. */
static void test_rest(void **state)
{
    struct fx f;
    struct journal_reader *r;
    struct line l;
    uint64_t n;
    fx_start(&f, false);
    fill(&f);
    struct uuid *ids = all_ids(&f, &n);
    for (uint64_t start = 0; start < n; start += 7) {
        uint64_t at = start;
        assert_int_equal(journal_reader_open(f.j, start == 0 ? NULL : &ids[start - 1], NULL, NULL,
                                             NULL, &r, &f.e),
                         0);
        journal_reader_rest(r);
        while (journal_reader_next(r, &l, 0, &f.e) == 1) {
            assert_int_equal(uuid_cmp(&l.id, &ids[at]), 0);
            if (at % 2 == 0) { /* once more, with or without a rest before */
                if (at % 4 == 0) {
                    journal_reader_rest(r);
                }
                journal_reader_again(r);
                assert_int_equal(journal_reader_next(r, &l, 0, &f.e), 1);
                assert_int_equal(uuid_cmp(&l.id, &ids[at]), 0);
            }
            at++;
            if (at % 3 != 0) {
                journal_reader_rest(r);
                assert_int_equal(held(&f), 0);
            }
        }
        assert_int_equal(at, n);
        journal_reader_rest(r); /* at its end, too */
        assert_int_equal(journal_reader_next(r, &l, 0, &f.e), 0);
        journal_reader_close(r);
    }
    free(ids);
    fx_end(&f);
    (void)state;
}

/* A search that looks up says how far it is, and goes on from there also after a rest. */
static void test_looked_at(void **state)
{
    struct fx f;
    struct journal_reader *r;
    struct line l;
    struct journal_filter none = {.kind = SLICE("\"no such kind\"")}; /* none can be skipped */
    uint64_t n;
    fx_start(&f, false);
    fill(&f);
    struct uuid *ids = all_ids(&f, &n);
    uint64_t at = 0;
    int code;
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, &none, NULL, &r, &f.e), 0);
    while ((code = journal_reader_next(r, &l, 1, &f.e)) == ERR_NOT_READY) {
        assert_int_equal(uuid_cmp(&l.id, &ids[at]), 0); /* a line at a time */
        at++;
        journal_reader_rest(r);
    }
    assert_int_equal(code, 0);
    assert_int_equal(at, n);
    journal_reader_close(r);
    free(ids);
    fx_end(&f);
    (void)state;
}

/* ---- beside a writer, on the kernel ---- */

struct beside {
    struct fx *f;
    atomic_bool stop;
    uint64_t walks;
    int failed;
};

static void *walk_again_and_again(void *arg)
{
    struct beside *b = arg;
    struct err e;
    while (!atomic_load(&b->stop) && b->failed == 0) {
        struct journal_reader *r;
        struct journal_frontier snapshot;
        struct line l;
        uint64_t n = 0;
        int code = journal_reader_open(b->f->j, NULL, NULL, NULL, &snapshot, &r, &e);
        if (code != 0) {
            b->failed = code;
            break;
        }
        while ((code = journal_reader_next(r, &l, 0, &e)) == 1) {
            n++;
        }
        journal_reader_close(r);
        if (code != 0 || n != snapshot.events) {
            b->failed = code != 0 ? code : 1;
        }
        struct rows rs = {0};
        if (n > 0 && b->failed == 0) {
            code = journal_read_streams(b->f->j, &snapshot.last_id, (struct slice){0}, on_row, &rs,
                                        &e);
            b->failed = code != 0 || rs.events != n ? 2 : 0;
        }
        b->walks++;
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct fx f;
    struct beside b[2];
    pthread_t threads[2];
    fx_start(&f, true);
    f.options.threads = true;
    fx_open(&f);
    for (int i = 0; i < 2; i++) {
        b[i] = (struct beside){.f = &f};
        assert_int_equal(pthread_create(&threads[i], NULL, walk_again_and_again, &b[i]), 0);
    }
    for (uint32_t n = 1; n <= 120; n++) {
        fx_put(&f, n, 3, 2000);
        journal_tick(f.j);
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&b[i].stop, true);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(b[i].failed, 0);
        assert_true(b[i].walks > 0);
    }
    assert_true(fx_status(&f).generations > 8);
    fx_check(&f);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_after_and_through),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_last),
        cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_damaged_line),
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_looked_at),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("read", tests, NULL, NULL);
}
