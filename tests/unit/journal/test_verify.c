/* verify_journal: each kind of violation by its name and place, remnants and orphans, and a walk
 * beside a running server. */
#include "tests/unit/journal/journal_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "journal/chain.h"
#include "journal/index_format.h"
#include "journal/manifest.h"
#include "journal/scan.h"
#include "journal/segment_format.h"
#include "journal/segment_write.h"

static struct verify_report run(struct fx *f, int code)
{
    struct verify_report r;
    assert_int_equal(verify_journal(f->dir, NULL, NULL, &r, &f->e), code);
    return r;
}

static void expect(struct fx *f, enum verify_fault fault, const char *file)
{
    struct verify_report r = run(f, 0);
    assert_string_equal(verify_fault_name(r.fault), verify_fault_name(fault));
    assert_int_equal(r.ok, fault == VERIFY_NONE);
    if (file != NULL) {
        assert_non_null(strstr(r.fault_file, file));
    }
    verify_report_free(&r);
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *last = ctx;
    assert_true(done > *last);
    assert_true(done <= total);
    *last = done;
}

static void fill(struct fx *f, uint32_t generations)
{
    fx_open(f);
    for (uint32_t n = 1; fx_status(f).generations < generations; n++) {
        fx_put(f, n, 2, 9000);
    }
    fx_put(f, 90, 1, 10);
    fx_put(f, 91, 2, 10);
}

static void test_ok(void **state)
{
    struct fx f;
    uint64_t done = 0;
    struct verify_report r;
    struct journal_frontier front;
    fx_start(&f, false);
    assert_int_equal(verify_journal(f.dir, NULL, NULL, &r, &f.e), ERR_NOT_FOUND);
    fx_open(&f);
    fx_close(&f);
    r = run(&f, 0);
    assert_true(r.ok);
    assert_true(r.empty);
    assert_memory_equal(r.head, chain_genesis, SHA256_LEN);
    verify_report_free(&r);
    fill(&f, 3);
    journal_get_frontier(f.j, &front);
    for (int closed = 0; closed < 2; closed++) {
        done = 0;
        assert_int_equal(verify_journal(f.dir, on_progress, &done, &r, &f.e), 0);
        assert_true(r.ok);
        assert_int_equal(r.live, closed == 0);
        assert_int_equal(r.pending_checked, 2);
        assert_int_equal(r.events_checked, front.events);
        assert_int_equal(r.batches_checked, f.ledger.count);
        assert_int_equal(uuid_cmp(&r.last_id, &front.last_id), 0);
        assert_memory_equal(r.head, front.head, SHA256_LEN);
        assert_int_equal(r.remnants.len, 0);
        assert_int_equal(r.orphans.len, 0);
        verify_report_free(&r);
        if (closed == 0) {
            fx_close(&f);
        }
    }
    fx_end(&f);
    (void)state;
}

static void patch_text(const char *path, const char *find, const char *with)
{
    size_t n;
    assert_int_equal(strlen(find), strlen(with));
    char *bytes = fx_slurp(path, &n);
    const char *at = memmem(bytes, n, find, strlen(find));
    assert_non_null(at);
    fx_patch(path, (uint64_t)(at - bytes), with, strlen(with));
    free(bytes);
}

/* Every code that a damaged tail can give. */
static void test_faults_of_the_tail(void **state)
{
    static const struct {
        const char *find, *with;
        enum verify_fault fault;
    } cases[] = {
        {"\"payload\":{\"n\":90,", "\"payload\":{\"n\":80,", VERIFY_CONTENT},
        {"\"record_key\":\"key-90-0\"", "\"record_key\":\"key-80-0\"", VERIFY_EVENT},
        {"{\"batch_digest\":", "{\"batch_Digest\":", VERIFY_TAIL},
        {"\"batch_len\":2,", "\"batch_len\":3,", VERIFY_TAIL},
    };
    struct fx f;
    fx_start(&f, false);
    fill(&f, 1);
    fx_close(&f);
    struct model *good = f.m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f.m = model_snapshot(good);
        model_use(f.m);
        patch_text(f.layout.tail, cases[i].find, cases[i].with);
        expect(&f, cases[i].fault, "journal/tail.ndjson");
        model_free(f.m);
    }
    /* A digest that is not the batch's: the first digit of the first line's. */
    f.m = model_snapshot(good);
    model_use(f.m);
    char digit;
    size_t n;
    char *bytes = fx_slurp(f.layout.tail, &n);
    digit = bytes[17] == '0' ? '1' : '0';
    fx_patch(f.layout.tail, 17, &digit, 1);
    expect(&f, VERIFY_BATCH, "journal/tail.ndjson");
    /* The first batch twice. */
    size_t line = (size_t)((char *)memchr(bytes, '\n', n) - bytes) + 1;
    fx_patch(f.layout.tail, 0, bytes, n);
    fx_patch(f.layout.tail, n, bytes, line);
    expect(&f, VERIFY_ORDER, "journal/tail.ndjson");
    free(bytes);
    model_free(f.m);
    f.m = good;
    model_use(f.m);
    expect(&f, VERIFY_NONE, NULL);
    fx_end(&f);
    (void)state;
}

struct names {
    char name[4][128];
    unsigned count;
};

static int take_name(void *ctx, const char *name)
{
    struct names *ns = ctx;
    assert_true(ns->count < 4);
    (void)snprintf(ns->name[ns->count++], 128, "%s", name);
    return 0;
}

static void test_faults_of_pending(void **state)
{
    struct fx f;
    struct names ns = {0};
    char path[LAYOUT_PATH_MAX + 200];
    char other[LAYOUT_PATH_MAX + 200];
    fx_start(&f, false);
    fill(&f, 2);
    fx_close(&f);
    assert_int_equal(os_list(f.layout.pending, take_name, &ns), 0);
    (void)snprintf(path, sizeof path, "%s/%s", f.layout.pending, ns.name[0]);
    struct model *good = f.m;
    for (int i = 0; i < 5; i++) {
        f.m = model_snapshot(good);
        model_use(f.m);
        uint64_t size = fx_size(path);
        if (i == 0) {
            patch_text(path, "\"payload\":{\"n\":2,", "\"payload\":{\"n\":3,");
            expect(&f, VERIFY_CONTENT, "journal/pending/");
        } else if (i == 1) {
            fx_patch(path, size, "\0", 1);
            expect(&f, VERIFY_PENDING, "journal/pending/");
        } else if (i == 2) {
            int fd = os_open(path, O_RDWR, 0);
            assert_int_equal(os_ftruncate(fd, size - 10), 0);
            assert_int_equal(os_fsync(fd), 0);
            assert_int_equal(os_close(fd), 0);
            expect(&f, VERIFY_PENDING, "journal/pending/");
        } else if (i == 3) {
            /* A name that does not say its last event. */
            memcpy(other, path, sizeof other);
            char *last = strrchr(other, '.') - 1;
            *last = *last == '0' ? '1' : '0';
            assert_int_equal(os_rename(path, other), 0);
            expect(&f, VERIFY_PENDING, "journal/pending/");
        } else {
            (void)snprintf(other, sizeof other, "%s/what.ndjson", f.layout.pending);
            fx_spill(other, "x", 1);
            expect(&f, VERIFY_PENDING, "journal/pending");
        }
        model_free(f.m);
    }
    f.m = good;
    model_use(f.m);
    fx_end(&f);
    (void)state;
}

static void test_faults_of_the_manifest(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fill(&f, 1);
    fx_close(&f);
    assert_int_equal(os_unlink(f.layout.tail), 0);
    expect(&f, VERIFY_TAIL, "journal/tail.ndjson");
    fx_spill(f.layout.manifest, "nonsense\n", 9);
    expect(&f, VERIFY_MANIFEST, "journal/manifest.jsonl");
    fx_end(&f);
    (void)state;
}

/* A manifest whose LF has rotted looks like one that is being made; but then there are no events.
 */
static void test_manifest_without_its_end(void **state)
{
    struct fx f;
    size_t n;
    for (uint32_t generations = 1; generations <= 2; generations++) {
        fx_start(&f, false);
        fill(&f, generations);
        fx_close(&f);
        expect(&f, VERIFY_NONE, NULL);
        char *manifest = fx_slurp(f.layout.manifest, &n);
        assert_int_equal(manifest[n - 1], '\n');
        assert_int_equal(model_rot(f.m, f.layout.manifest, n - 1, 2), 0);
        expect(&f, VERIFY_MANIFEST, "journal/manifest.jsonl");
        free(manifest);
        fx_end(&f);
    }
    fx_start(&f, false);
    fx_open(&f);
    fx_close(&f);
    char *manifest = fx_slurp(f.layout.manifest, &n);
    assert_int_equal(model_rot(f.m, f.layout.manifest, n - 1, 2), 0);
    expect(&f, VERIFY_NONE, NULL);
    free(manifest);
    fx_end(&f);
    (void)state;
}

/* The same key in two generations, made by hand: a line taken from another journal whose ids come
 * later. */
static void test_key_twice(void **state)
{
    struct fx a;
    struct fx b;
    size_t n;
    size_t m;
    fx_start(&a, false);
    fx_open(&a);
    fx_put(&a, 1, 1, 10);
    fx_close(&a);
    char *first = fx_slurp(a.layout.tail, &n);
    fx_end(&a);
    fx_start(&b, false);
    uint8_t spoil[16];
    assert_int_equal(os_random(spoil, sizeof spoil), 0); /* another tag */
    model_clock_jump_real(b.m, 1000);
    fx_open(&b);
    fx_put(&b, 1, 1, 10);
    fx_close(&b);
    char *second = fx_slurp(b.layout.tail, &m);
    char *both = malloc(n + m);
    assert_non_null(both);
    memcpy(both, first, n);
    memcpy(both + n, second, m);
    fx_spill(b.layout.tail, both, n + m);
    expect(&b, VERIFY_IDEMPOTENCY, "journal");
    free(both);
    free(first);
    free(second);
    fx_end(&b);
    (void)state;
}

/* What a killed server leaves is a remnant, what nobody knows an orphan; both are no violation. */
static void test_remnants_and_orphans(void **state)
{
    struct fx f;
    char path[LAYOUT_PATH_MAX + 200];
    fx_start(&f, false);
    fill(&f, 1);
    uint64_t end = fx_status(&f).bytes;
    fx_kill(&f);
    fx_patch(f.layout.tail, end, "{\"batch_di", 10);
    struct verify_report r = run(&f, 0);
    assert_true(r.ok);
    assert_non_null(memmem(r.remnants.ptr, r.remnants.len, "journal/tail.ndjson@", 20));
    verify_report_free(&r);
    (void)snprintf(path, sizeof path, "%s/what is \"this\"", f.layout.journal);
    fx_spill(path, "x", 1);
    (void)snprintf(path, sizeof path, "%s/notes", f.layout.journal);
    fx_spill(path, "x", 1);
    r = run(&f, 0);
    assert_true(r.ok);
    assert_non_null(memmem(r.orphans.ptr, r.orphans.len, "notes", 5));
    assert_null(memmem(r.orphans.ptr, r.orphans.len, "this", 4));
    verify_report_free(&r);
    fx_end(&f);
    (void)state;
}

/* Reading fails: no verdict. */
static void test_failing_reads(void **state)
{
    static const enum os_call calls[] = {OS_CALL_pread, OS_CALL_open, OS_CALL_list, OS_CALL_fstat};
    struct fx f;
    fx_start(&f, false);
    fill(&f, 2);
    fx_close(&f);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (uint64_t at = 1; at < 30; at++) {
            struct fault eio = {.kind = FAULT_ERROR, .error = EIO, .call = calls[i], .at = at};
            struct verify_report r;
            model_fault_arm(f.m, &eio);
            int code = verify_journal(f.dir, NULL, NULL, &r, &f.e);
            if (code == 0) {
                assert_true(r.ok);
                verify_report_free(&r);
                assert_int_equal(model_fault_fired(f.m), 0);
                break;
            }
            assert_int_equal(code, ERR_IO);
        }
    }
    model_fault_arm(f.m, NULL);
    expect(&f, VERIFY_NONE, NULL);
    fx_end(&f);
    (void)state;
}

/* ---- beside a server ---- */

struct beside {
    struct fx *f;
    atomic_bool stop;
    unsigned runs;
    char why[400];
};

static void *verify_again_and_again(void *arg)
{
    struct beside *b = arg;
    while (!atomic_load(&b->stop) && b->why[0] == '\0') {
        struct verify_report r;
        struct err e = {0};
        if (verify_journal(b->f->dir, NULL, NULL, &r, &e) != 0) {
            (void)snprintf(b->why, sizeof b->why, "%s", e.text);
            break;
        }
        if (!r.ok || !r.live || r.remnants.len > 0) {
            (void)snprintf(b->why, sizeof b->why, "%.120s: %.240s", r.fault_file, r.fault_text);
            if (b->why[0] == ':') {
                (void)snprintf(b->why, sizeof b->why, "live %d, remnants %zu", r.live,
                               r.remnants.len);
            }
        }
        verify_report_free(&r);
        b->runs++;
    }
    return NULL;
}

static void test_beside_a_server(void **state)
{
    struct fx f;
    struct beside b = {.f = &f};
    pthread_t thread;
    fx_start(&f, true);
    f.options.threads = true;
    fx_open(&f);
    assert_int_equal(pthread_create(&thread, NULL, verify_again_and_again, &b), 0);
    for (uint32_t n = 1; n <= 150; n++) {
        fx_put(&f, n, 2, 2500);
    }
    atomic_store(&b.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(b.why, "");
    assert_true(b.runs > 1);
    fx_end(&f);
    (void)state;
}

/* ---- a batch table that goes on ---- */

/* One more row behind those of the generation's batches, as segment.c itself would read it. */
static void add_row(struct segment_writer *w, const struct scan *s)
{
    uint8_t row[SEGMENT_ROW_FIXED] = {0};
    struct uuid next = s->last_id;
    next.byte[15]++;
    index_put_u32(row + SEGMENT_ROW_OFFSET_AT, (uint32_t)s->offset);
    index_put_u32(row + SEGMENT_ROW_BYTES_AT, 10);
    index_put_u32(row + SEGMENT_ROW_EVENTS_AT, 1);
    index_put_u16(row + SEGMENT_ROW_SOURCE_AT, 3);
    index_put_u16(row + SEGMENT_ROW_BATCH_ID_AT, 3);
    memcpy(row + SEGMENT_ROW_FIRST_ID_AT, next.byte, 16);
    memcpy(row + SEGMENT_ROW_LAST_ID_AT, next.byte, 16);
    buf_put(&w->rows, row, sizeof row);
    buf_put_slice(&w->rows, SLICE("\"s\""));
    buf_put_slice(&w->rows, SLICE("\"b\""));
}

/* The generation's segment as the sealer would write it, with that row. */
static void forge(struct fx *f, const char *plain, const char *path, struct layout_generation *g)
{
    struct segment_writer w;
    struct scan s;
    struct scan_batch b;
    int in = os_open(plain, O_RDONLY, 0);
    int out = os_open(path, O_RDWR | O_CREAT, 0600);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(segment_writer_start(&w, out, &f->e), 0);
    scan_start(&s, in, g->bytes, NULL, chain_genesis);
    while (scan_next(&s, &b, NULL, NULL, &f->e) == 1) {
        struct segment_batch row = {.offset = b.offset,
                                    .bytes = b.bytes,
                                    .events = b.events,
                                    .source = b.source,
                                    .batch_id = b.batch_id,
                                    .first_id = b.first_id,
                                    .last_id = b.last_id};
        memcpy(row.digest, b.digest, SHA256_LEN);
        assert_int_equal(segment_writer_add(&w, &row, scan_batch_lines(&s, &b), &f->e), 0);
    }
    assert_int_equal(s.offset, g->bytes);
    add_row(&w, &s);
    g->sealed = true;
    g->events = s.events;
    memcpy(g->head, s.head, SHA256_LEN);
    assert_int_equal(segment_writer_finish(&w, s.head, g->sha256, &f->e), 0);
    scan_stop(&s);
    segment_writer_stop(&w);
    assert_int_equal(os_close(in), 0);
    assert_int_equal(os_close(out), 0);
}

static void test_table_goes_on(void **state)
{
    struct fx f;
    struct layout_generation *rows;
    struct manifest m;
    struct verify_report report;
    char plain[LAYOUT_PATH_MAX];
    char path[LAYOUT_PATH_MAX];
    char forged[LAYOUT_PATH_MAX + 16];
    uint32_t count;
    bool uncertain;
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    for (uint32_t n = 1; n <= 4; n++) {
        fx_put(&f, n, 1, 20000);
    }
    fx_close(&f);
    assert_int_equal(layout_list_pending(&f.layout, &rows, &count, &f.e), 0);
    assert_int_equal(count, 1);
    layout_generation_path(&f.layout, &rows[0], plain);
    (void)snprintf(forged, sizeof forged, "%s/forged", f.layout.segments);
    forge(&f, plain, forged, &rows[0]);
    layout_generation_path(&f.layout, &rows[0], path);
    assert_int_equal(os_rename(forged, path), 0);
    assert_int_equal(manifest_read(&f.layout, &m, &f.e), 0);
    int r = manifest_add_segment(&f.layout, &rows[0], "2026-01-01T00:00:00.000Z", &m.good_bytes,
                                 &uncertain, &f.e);
    assert_int_equal(r, 0);
    manifest_free(&m);
    assert_int_equal(os_unlink(plain), 0);
    free(rows);
    assert_int_equal(verify_journal(f.dir, NULL, NULL, &report, &f.e), 0);
    assert_false(report.ok);
    assert_int_equal(report.fault, VERIFY_SEGMENT);
    assert_non_null(strstr(report.fault_text, "does not end with its last batch"));
    verify_report_free(&report);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ok),
        cmocka_unit_test(test_faults_of_the_tail),
        cmocka_unit_test(test_faults_of_pending),
        cmocka_unit_test(test_faults_of_the_manifest),
        cmocka_unit_test(test_manifest_without_its_end),
        cmocka_unit_test(test_key_twice),
        cmocka_unit_test(test_remnants_and_orphans),
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_beside_a_server),
        cmocka_unit_test(test_table_goes_on),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
