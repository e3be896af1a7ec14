/* Sealing a journal: nothing changes for readers, keys, streams, restarts and verify; a fault at
 * any call leaves the plain file in force; what a cut seal leaves is cleared; damage is never
 * sealed in.
 */
#include "journal_fixture.h"

#include "base/metrics.h"
#include "journal/inventory.h"
#include "journal/seal.h"
#include "journal/segment.h"
#include "tests/lib/faults.h"

/* Three closed generations and a tail. */
static void fill(struct fx *f)
{
    fx_open(f);
    for (uint32_t n = 1; n <= 9; n++) {
        fx_put(f, n, 1 + n % 3, 6000 + n * 321);
    }
    assert_true(fx_status(f).generations >= 3);
}

static uint32_t closed(struct fx *f)
{
    return fx_status(f).generations - 1;
}

static struct inventory inventory(struct fx *f)
{
    struct inventory inv;
    if (inventory_take(&f->layout, &inv, &f->e) != 0) {
        fail_msg("%s", f->e.text);
    }
    return inv;
}

static int count_name(void *ctx, const char *name)
{
    (void)name;
    (*(int *)ctx)++;
    return 0;
}

static int names_in(const char *dir)
{
    int n = 0;
    assert_int_equal(os_list(dir, count_name, &n), 0);
    return n;
}

static void in_dir(char out[2 * LAYOUT_PATH_MAX], const char *dir, const char *name)
{
    int n = snprintf(out, 2 * LAYOUT_PATH_MAX, "%s/%s", dir, name);
    assert_true(n > 0 && n < 2 * LAYOUT_PATH_MAX);
}

static int put_name(void *ctx, const char *name)
{
    buf_put(ctx, name, strlen(name) + 1);
    return 0;
}

static void clear_dir(const char *dir)
{
    struct buf names = {0};
    char path[2 * LAYOUT_PATH_MAX];
    assert_int_equal(os_list(dir, put_name, &names), 0);
    for (size_t at = 0; at < names.len; at += strlen(names.ptr + at) + 1) {
        in_dir(path, dir, names.ptr + at);
        assert_int_equal(os_unlink(path), 0);
    }
    buf_free(&names);
}

static void count_sealed(void *ctx, const struct journal_sealed *s)
{
    uint64_t *n = ctx;
    (*n)++;
    assert_int_equal(s->number, *n);
    assert_true(s->events > 0);
    assert_true(s->stored_bytes < s->bytes);
}

/* The record of the last n matching events, as text. */
static char *last_events(struct fx *f, uint64_t n, const struct journal_filter *filter)
{
    struct journal_reader *r;
    struct line l;
    struct buf out = {0};
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, filter, NULL, &r, &f->e), 0);
    assert_int_equal(journal_reader_last(r, n, &f->e), 0);
    while (journal_reader_next(r, &l, 0, &f->e) == 1) {
        line_put_event(&out, &l);
    }
    journal_reader_close(r);
    buf_put_char(&out, '\0');
    assert_false(out.failed);
    return out.ptr;
}

/* Everything behind each event in turn begins with the next one. */
static void check_cursors(struct fx *f)
{
    struct journal_reader *all;
    struct line l;
    struct uuid ids[64];
    uint32_t n = 0;
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, NULL, NULL, &all, &f->e), 0);
    while (n < 64 && journal_reader_next(all, &l, 0, &f->e) == 1) {
        ids[n++] = l.id;
    }
    journal_reader_close(all);
    assert_int_equal(n, fx_status(f).frontier.events);
    for (uint32_t i = 0; i < n; i++) {
        struct journal_reader *r;
        assert_int_equal(journal_reader_open(f->j, &ids[i], NULL, NULL, NULL, &r, &f->e), 0);
        assert_int_equal(journal_reader_next(r, &l, 0, &f->e), i + 1 < n);
        if (i + 1 < n) {
            assert_memory_equal(l.id.byte, ids[i + 1].byte, 16);
        }
        journal_reader_close(r);
        assert_int_equal(journal_has_event(f->j, &ids[i], &f->e), 1);
    }
}

static int count_row(void *ctx, const struct index_stream *row)
{
    uint64_t *events = ctx;
    *events += row->events;
    return 0;
}

/* All that can be asked of a journal. */
static void check_all(struct fx *f)
{
    struct journal_frontier frontier;
    uint64_t events = 0;
    fx_check_opened(f);
    check_cursors(f);
    journal_get_frontier(f->j, &frontier);
    assert_int_equal(
        journal_read_streams(f->j, &frontier.last_id, slice_of("", 0), count_row, &events, &f->e),
        0);
    assert_int_equal(events, frontier.events);
}

static void test_nothing_changes(void **state)
{
    static const struct journal_filter odd = {.source = {"\"src-1\"", 7},
                                              .stream = {"\"st-1\"", 6}};
    struct fx f;
    uint64_t sealed = 0;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    uint32_t n = closed(&f);
    char *some = last_events(&f, 7, NULL);
    char *filtered = last_events(&f, 3, &odd);
    uint64_t plain = fx_status(&f).bytes;
    assert_int_equal(journal_seal(f.j, 0, count_sealed, &sealed, &f.e), 0);
    assert_int_equal(sealed, n);
    assert_int_equal(names_in(f.layout.pending), 0);
    assert_int_equal(names_in(f.layout.segments), n);
    struct journal_status st = fx_status(&f);
    assert_int_equal(st.segments, n);
    assert_int_equal(st.bytes, plain);
    assert_true(st.stored_bytes < st.sealed_bytes);
    for (unsigned round = 0; round < 3; round++) {
        char *now = last_events(&f, 7, NULL);
        assert_string_equal(now, some);
        free(now);
        now = last_events(&f, 3, &odd);
        assert_string_equal(now, filtered);
        free(now);
        check_all(&f);
        fx_close(&f);
        fx_verify(&f, true);
        if (round == 1) { /* without an index everything is read from the segments */
            clear_dir(f.layout.index);
        }
        fx_open(&f);
        assert_int_equal(fx_status(&f).segments, n);
    }
    /* And it goes on: more events, closing the tail, sealing that too. */
    fx_put(&f, 50, 2, 500);
    assert_int_equal(journal_close_tail(f.j, &f.e), 0);
    assert_int_equal(journal_close_tail(f.j, &f.e), 0); /* empty now */
    assert_int_equal(journal_seal(f.j, 1, NULL, NULL, &f.e), 0);
    assert_int_equal(fx_status(&f).segments, closed(&f) - 1);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    assert_int_equal(fx_status(&f).segments, closed(&f));
    struct journal_sealed results[SEAL_RECENT];
    assert_int_equal(journal_seal_results(f.j, 0, results, SEAL_RECENT), 1);
    assert_int_equal(results[0].number, 1);
    assert_int_equal(journal_seal_results(f.j, 1, results, SEAL_RECENT), 0);
    fx_put(&f, 51, 1, 10);
    check_all(&f);
    free(some);
    free(filtered);
    fx_end(&f);
}

/* Readers that are on their way through a generation while it is sealed. */
static void test_beside_readers(void **state)
{
    struct fx f;
    struct line l;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    uint64_t events = fx_status(&f).frontier.events;
    for (uint64_t before = 0; before < 8; before++) {
        struct journal_reader *r;
        uint64_t got = 0;
        assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &r, &f.e), 0);
        while (got < before * 2) {
            assert_int_equal(journal_reader_next(r, &l, 0, &f.e), 1);
            got++;
        }
        uint32_t keep = (uint32_t)(before + 1) / 2;
        if (before % 2 == 1 && keep <= closed(&f)) {
            assert_int_equal(journal_seal(f.j, closed(&f) - keep, NULL, NULL, &f.e), 0);
        }
        while (journal_reader_next(r, &l, 0, &f.e) == 1) {
            got++;
        }
        assert_int_equal(got, events);
        journal_reader_close(r);
    }
    check_all(&f);
    fx_end(&f);
}

/* STEP: only every so-manieth call fails, for builds that are slow. */
static uint64_t step_of(void)
{
    const char *text = getenv("STEP");
    uint64_t step = text != NULL ? strtoull(text, NULL, 10) : 0;
    return step > 0 ? step : 1;
}

/* A fault at every call of sealing, each kind of it. */
static void test_every_fault(void **state)
{
    static const struct {
        enum fault_kind kind;
        int error;
    } ways[] = {
        {FAULT_ERROR, EIO}, {FAULT_ERROR, ENOSPC}, {FAULT_ERROR_AFTER, EIO}, {FAULT_SHORT, 0}};
    struct fx f;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    fx_close(&f);
    struct model *base = f.m;
    struct kit_ledger ledger = f.ledger;
    unsigned failed = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        for (uint64_t k = 1;; k += step_of()) {
            f.m = model_snapshot(base);
            f.ledger = ledger;
            model_use(f.m);
            fx_open(&f);
            faults_install(NULL);
            faults_arm(k, ways[w].error, false, ways[w].kind);
            int r = journal_seal(f.j, 0, NULL, NULL, &f.e);
            bool fired = faults_fired() > 0;
            faults_uninstall();
            assert_true(r == 0 || fired);
            failed += r != 0;
            struct journal_seal_status st;
            journal_get_seal_status(f.j, &st);
            assert_true(st.code == r);
            /* The journal takes and gives as before, now and after a restart, a clean one or not.
             */
            check_all(&f);
            if (r != 0 && !st.stopped) {
                assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
            } else if (r != 0) {
                assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), ERR_IO);
            }
            fx_put(&f, 60, 1, 10);
            if (k % 2 == 0) {
                struct model_choice choice = {.how = MODEL_CUT_RANDOM, .seed = k};
                fx_crash(&f, &choice);
            } else {
                fx_close(&f);
            }
            fx_open(&f);
            check_all(&f);
            assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
            assert_int_equal(fx_status(&f).segments, closed(&f));
            check_all(&f);
            fx_close(&f);
            fx_verify(&f, true);
            model_free(f.m);
            if (!fired) {
                break;
            }
        }
    }
    assert_true(failed > 100 / step_of());
    f.m = base;
    model_use(base);
    fx_end(&f);
}

/* A sync of the manifest, or of the directory, that fails: nobody knows what is there, so nothing
 * is sealed any more, and appends go on. A temporary file that cannot be synced is no more than a
 * failure. */
static void test_uncertain(void **state)
{
    static const struct {
        const char *path;
        uint64_t at;
        bool stops;
    } syncs[] = {{"manifest", 1, true},
                 {"manifest", 2, true},
                 {"segments", 1, false},
                 {"segments", 2, true}};
    (void)state;
    for (size_t i = 0; i < sizeof syncs / sizeof *syncs; i++) {
        struct fx f;
        struct journal_seal_status st;
        fx_start(&f, false);
        fill(&f);
        faults_install(NULL);
        faults_count_only(OS_CALL_fsync, syncs[i].path);
        faults_arm(syncs[i].at, EIO, false, FAULT_ERROR);
        assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), ERR_IO);
        assert_int_equal(faults_fired(), 1);
        faults_uninstall();
        journal_get_seal_status(f.j, &st);
        assert_int_equal(st.stopped, syncs[i].stops);
        assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), syncs[i].stops ? ERR_IO : 0);
        fx_put(&f, 70, 1, 10);
        check_all(&f);
        fx_close(&f);
        fx_open(&f);
        assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
        assert_int_equal(fx_status(&f).segments, closed(&f));
        check_all(&f);
        fx_end(&f);
    }
}

/* A record of which a part was written when the disk was full is taken back: the next one is
 * written where it began. */
static void test_a_record_without_space(void **state)
{
    struct fx f;
    struct journal_seal_status st;
    struct fault half = {
        .kind = FAULT_SHORT, .call = OS_CALL_pwrite, .path = "manifest.jsonl", .at = 1};
    (void)state;
    fx_start(&f, false);
    fill(&f);
    uint64_t size = fx_size(f.layout.manifest);
    model_fault_arm(f.m, &half);
    faults_install(NULL);
    faults_count_only(OS_CALL_pwrite, "manifest.jsonl");
    faults_arm(2, ENOSPC, false, FAULT_ERROR);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), ERR_NO_SPACE);
    assert_int_equal(faults_fired(), 1);
    assert_int_equal(model_fault_fired(f.m), 1);
    faults_uninstall();
    model_fault_arm(f.m, NULL);
    assert_int_equal(fx_size(f.layout.manifest), size);
    assert_int_equal(names_in(f.layout.segments), 0); /* its segment went, too */
    journal_get_seal_status(f.j, &st);
    assert_false(st.stopped);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    check_all(&f);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
}

static void misdirect(void *ctx, struct model *m, const struct model_call *call)
{
    uint32_t *countdown = ctx;
    if (call->call == OS_CALL_pwrite && strstr(call->path, "segments") != NULL && *countdown > 0 &&
        --*countdown == 0) {
        model_misdirect_next(m, 1);
    }
}

/* A write that lands elsewhere on the device, while the cache shows it where it should be. */
static void test_a_bad_write_is_not_believed(void **state)
{
    const struct model_choice power = {.how = MODEL_CUT_ALL};
    unsigned noticed = 0;
    (void)state;
    for (uint32_t k = 1; k <= 6; k++) {
        struct fx f;
        uint32_t countdown = k;
        fx_start(&f, false);
        fill(&f);
        model_set_hook(f.m, misdirect, &countdown);
        int r = journal_seal(f.j, closed(&f) - 1, NULL, NULL, &f.e);
        model_set_hook(f.m, NULL, NULL);
        assert_int_equal(countdown, 0);
        assert_true(r == 0 || r == ERR_IO); /* the write behind it may have mended it */
        noticed += r == ERR_IO;
        if (r != 0) {
            assert_int_equal(fx_status(&f).segments, 0);
            assert_int_equal(names_in(f.layout.segments), 0);
        }
        check_all(&f);
        fx_crash(&f, &power); /* what the device has, not what the cache shows */
        fx_verify(&f, false);
        fx_open(&f);
        check_all(&f);
        assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
        check_all(&f);
        fx_end(&f);
    }
    assert_true(noticed > 0);
}

/* Each byte of a closed generation, changed before it is sealed: refused, and the file stays. */
static void test_rot_is_not_sealed_in(void **state)
{
    struct fx f;
    size_t n;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    struct inventory inv = inventory(&f);
    char path[LAYOUT_PATH_MAX];
    layout_generation_path(&f.layout, &inv.closed[0], path);
    char *good = fx_slurp(path, &n);
    for (size_t at = 0; at < n; at += 97) {
        char bad = good[at] ^ 0x10;
        fx_patch(path, at, &bad, 1);
        assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), ERR_CORRUPT);
        assert_non_null(strstr(f.e.text, "generation 0 is damaged"));
        assert_int_equal(fx_size(path), n);
        assert_int_equal(fx_status(&f).segments, 0);
        assert_int_equal(names_in(f.layout.segments), 0);
        fx_patch(path, at, &good[at], 1);
    }
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    check_all(&f);
    free(good);
    inventory_free(&inv);
    fx_end(&f);
}

/* What a kill leaves at each step of a seal. */
static void test_remnants(void **state)
{
    struct fx f;
    size_t n;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    struct inventory before = inventory(&f);
    char plain[LAYOUT_PATH_MAX];
    char segment[LAYOUT_PATH_MAX];
    char other[2 * LAYOUT_PATH_MAX];
    char foreign[2 * LAYOUT_PATH_MAX];
    char name[128];
    layout_generation_path(&f.layout, &before.closed[0], plain);
    char *lines = fx_slurp(plain, &n);
    uint64_t committed = fx_size(f.layout.manifest);
    assert_int_equal(journal_seal(f.j, closed(&f) - 1, NULL, NULL, &f.e), 0);
    fx_close(&f);
    struct inventory after = inventory(&f);
    assert_int_equal(after.sealed, 1);
    layout_generation_path(&f.layout, &after.closed[0], segment);
    /* The plain file is still there. */
    fx_spill(plain, lines, n);
    fx_verify(&f, false);
    fx_open(&f);
    assert_false(fx_exists(plain));
    check_all(&f);
    fx_close(&f);
    /* Temporary files, and names that are nobody's. */
    (void)snprintf(name, sizeof name, "%.73s.tmp", strrchr(segment, '/') + 1);
    in_dir(other, f.layout.segments, name);
    fx_spill(other, lines, n);
    in_dir(foreign, f.layout.segments, "README");
    fx_spill(foreign, "x", 1);
    fx_verify(&f, false);
    fx_open(&f);
    assert_false(fx_exists(other));
    assert_true(fx_exists(foreign));
    assert_int_equal(os_unlink(foreign), 0);
    check_all(&f);
    fx_close(&f);
    /* The record without its line feed, and without half of itself: the plain file is in force, and
     * the segment goes. */
    size_t manifest_bytes;
    char *manifest = fx_slurp(f.layout.manifest, &manifest_bytes);
    size_t segment_bytes;
    char *sealed = fx_slurp(segment, &segment_bytes);
    for (size_t cut = 1; cut < manifest_bytes - 116; cut += 99) {
        fx_spill(f.layout.manifest, manifest, manifest_bytes - cut);
        fx_spill(plain, lines, n);
        fx_spill(segment, sealed, segment_bytes);
        fx_verify(&f, false);
        fx_open(&f);
        assert_int_equal(fx_status(&f).segments, 0);
        assert_false(fx_exists(segment));
        assert_int_equal(fx_size(f.layout.manifest), committed);
        check_all(&f);
        assert_int_equal(journal_seal(f.j, closed(&f) - 1, NULL, NULL, &f.e), 0);
        fx_close(&f);
        assert_true(fx_exists(segment)); /* the same bytes, so the same name */
        fx_verify(&f, true);
    }
    free(lines);
    free(manifest);
    free(sealed);
    inventory_free(&before);
    inventory_free(&after);
    fx_end(&f);
}

static void expect_fault(struct fx *f, enum verify_fault fault)
{
    struct verify_report rep;
    assert_int_equal(verify_journal(f->dir, NULL, NULL, &rep, &f->e), 0);
    assert_false(rep.ok);
    if (rep.fault != fault) {
        fail_msg("%s: %s", verify_fault_name(rep.fault), rep.fault_text);
    }
    verify_report_free(&rep);
}

/* Damage of a sealed generation: found where it is read, never served, and by verify. */
static void test_damage(void **state)
{
    struct fx f;
    size_t n;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    uint64_t events = fx_status(&f).frontier.events;
    fx_close(&f);
    struct inventory inv = inventory(&f);
    char path[LAYOUT_PATH_MAX];
    layout_generation_path(&f.layout, &inv.closed[1], path);
    char *good = fx_slurp(path, &n);
    /* In a block: the start does not see it, readers do. */
    char bad = good[n / 3] ^ 1;
    fx_patch(path, n / 3, &bad, 1);
    expect_fault(&f, VERIFY_FILE_HASH);
    fx_open(&f);
    assert_false(fx_status(&f).poisoned);
    uint64_t before = metric_get(METRIC_JOURNAL_CORRUPT_READS);
    struct journal_reader *r;
    struct line l;
    uint64_t got = 0;
    int code;
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &r, &f.e), 0);
    while ((code = journal_reader_next(r, &l, 0, &f.e)) == 1) {
        got++;
    }
    assert_int_equal(code, ERR_CORRUPT);
    assert_non_null(strstr(f.e.text, "generation 1"));
    assert_int_equal(got, inv.closed[0].events);
    assert_true(metric_get(METRIC_JOURNAL_CORRUPT_READS) > before);
    journal_reader_close(r);
    fx_close(&f);
    /* Its end, or all of it: the start sees it, and serves what stands before. */
    for (unsigned k = 0; k < 3; k++) {
        fx_spill(path, good, k == 0 ? n - 1 : k == 1 ? 100 : n);
        if (k == 2) {
            assert_int_equal(os_unlink(path), 0);
        }
        expect_fault(&f, k == 2 ? VERIFY_SEGMENT : VERIFY_FILE_HASH);
        fx_open(&f);
        assert_true(fx_status(&f).damaged);
        fx_expect_read_only(&f, inv.closed[0].events);
        assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), ERR_WRITER_POISONED);
        (void)journal_close(f.j, &f.e);
        f.j = NULL;
    }
    fx_spill(path, good, n);
    fx_open(&f);
    assert_int_equal(fx_status(&f).frontier.events, events);
    check_all(&f);
    free(good);
    inventory_free(&inv);
    fx_end(&f);
}

/* The index is gone and a block in the middle of a segment is damaged: what the blocks before it
 * hold is served, also once the file was let go of, and no figure falls below zero. */
static void test_damage_without_index(void **state)
{
    struct fx f;
    struct segment *s;
    char path[LAYOUT_PATH_MAX];
    (void)state;
    fx_start(&f, false);
    f.options.generation_bytes = 600 << 10;
    fx_open(&f);
    for (uint32_t n = 1; n <= 60; n++) {
        fx_put(&f, n, 4, 9000);
    }
    assert_true(closed(&f) >= 3);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    fx_close(&f);
    struct inventory inv = inventory(&f);
    layout_generation_path(&f.layout, &inv.closed[1], path);
    int fd = os_open(path, O_RDONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(segment_open(fd, &s, &f.e), 0);
    assert_int_equal(os_close(fd), 0);
    fx_patch(path, s->data[1].at + 20, "\xff\xff\xff\xff", 4);
    segment_free(s);
    clear_dir(f.layout.index);
    fx_open(&f);
    struct journal_status st = fx_status(&f);
    assert_true(st.damaged);
    assert_int_equal(st.generations, 2);
    assert_true(st.frontier.events > inv.closed[0].events);
    assert_true(st.frontier.events < inv.closed[0].events + inv.closed[1].events);
    fx_expect_read_only(&f, st.frontier.events);
    struct journal_seal_status seal;
    journal_get_seal_status(f.j, &seal);
    assert_int_equal(seal.possible, 0);
    (void)journal_close(f.j, &f.e);
    f.j = NULL;
    inventory_free(&inv);
    fx_end(&f);
}

/* The record of the newest segment without its line feed looks like one that was never committed.
 * But then the plain file would be there: the segment is the only copy, and nothing is changed. */
static void test_record_without_its_end(void **state)
{
    struct fx f;
    size_t n;
    size_t m;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    fx_close(&f);
    char *good = fx_slurp(f.layout.manifest, &n);
    for (unsigned cut = 0; cut < 2; cut++) {
        /* rotten, or gone as a whole */
        fx_spill(f.layout.manifest, good, cut == 0 ? n : n - 1);
        if (cut == 0) {
            fx_patch(f.layout.manifest, n - 1, "\x1a", 1);
        }
        expect_fault(&f, VERIFY_MANIFEST);
        assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
        assert_non_null(strstr(f.e.text, "only copy"));
        char *after = fx_slurp(f.layout.manifest, &m);
        assert_int_equal(m, cut == 0 ? n : n - 1);
        free(after);
    }
    fx_spill(f.layout.manifest, good, n);
    free(good);
    fx_open(&f);
    check_all(&f);
    fx_end(&f);
}

/* Everything is sealed, the tail is empty, and there is no manifest: no new journal is begun over
 * the only copies. */
static void test_without_manifest(void **state)
{
    struct fx f;
    struct journal *j;
    size_t n;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    assert_int_equal(journal_close_tail(f.j, &f.e), 0);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    fx_close(&f);
    char *good = fx_slurp(f.layout.manifest, &n);
    assert_int_equal(fx_size(f.layout.tail), 0);
    assert_int_equal(os_unlink(f.layout.manifest), 0);
    assert_int_equal(journal_open(f.dir, &f.options, &j, &f.e), ERR_CORRUPT);
    assert_non_null(strstr(f.e.text, "the only copy"));
    assert_false(fx_exists(f.layout.manifest));
    fx_spill(f.layout.manifest, good, n);
    free(good);
    fx_open(&f);
    check_all(&f);
    fx_end(&f);
}

/* A record that says something else of its segment than the segment itself: damage, read-only. */
static void test_record_of_another_segment(void **state)
{
    struct fx f;
    size_t n;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    fx_close(&f);
    char *good = fx_slurp(f.layout.manifest, &n);
    for (char *at = good; (at = strstr(at, "\"head\":\"")) != NULL; at++) {
        char digit = at[8] == '0' ? '1' : '0';
        fx_patch(f.layout.manifest, (uint64_t)(at + 8 - good), &digit, 1);
        expect_fault(&f, VERIFY_SEGMENT);
        fx_open(&f);
        assert_true(fx_status(&f).damaged);
        (void)journal_close(f.j, &f.e);
        f.j = NULL;
        fx_spill(f.layout.manifest, good, n);
    }
    free(good);
    fx_open(&f);
    check_all(&f);
    fx_end(&f);
}

/* What a crash behind the commit of a seal leaves: the first generation twice. */
struct twice {
    char plain[LAYOUT_PATH_MAX], segment[LAYOUT_PATH_MAX];
    char *lines, *sealed;
    size_t n, segment_bytes;
    uint64_t events;
};

/* All is sealed; the journal is closed. */
static void twice_start(struct fx *f, struct twice *t)
{
    fx_start(f, false);
    fill(f);
    struct inventory inv = inventory(f);
    layout_generation_path(&f->layout, &inv.closed[0], t->plain);
    inventory_free(&inv);
    t->lines = fx_slurp(t->plain, &t->n);
    t->events = fx_status(f).frontier.events;
    assert_int_equal(journal_seal(f->j, 0, NULL, NULL, &f->e), 0);
    fx_close(f);
    inv = inventory(f);
    layout_generation_path(&f->layout, &inv.closed[0], t->segment);
    inventory_free(&inv);
    t->sealed = fx_slurp(t->segment, &t->segment_bytes);
    fx_spill(t->plain, t->lines, t->n);
}

static void twice_end(struct fx *f, struct twice *t)
{
    free(t->lines);
    free(t->sealed);
    fx_end(f);
}

/* A block, the end, or a half of the segment, or all of it. */
#define HURTS 4

static void hurt_segment(const struct twice *t, unsigned how)
{
    size_t at = how == 0 ? 10 : t->segment_bytes - 1;
    char bad = t->sealed[at] ^ 4;
    if (how < 2) {
        fx_patch(t->segment, at, &bad, 1);
    } else if (how == 2) {
        fx_spill(t->segment, t->sealed, t->segment_bytes / 2);
    } else {
        assert_int_equal(os_unlink(t->segment), 0);
    }
}

static void expect_mended(struct fx *f, const struct twice *t)
{
    size_t n;
    char *now = fx_slurp(t->segment, &n);
    assert_int_equal(n, t->segment_bytes);
    assert_memory_equal(now, t->sealed, n);
    free(now);
    assert_false(fx_exists(t->plain));
    assert_false(fx_status(f).poisoned);
    assert_int_equal(fx_status(f).frontier.events, t->events);
    check_all(f);
}

/* A damaged segment of which the plain file is left is made again, the same to the byte. */
static void test_a_damaged_segment_is_made_again(void **state)
{
    struct fx f;
    struct twice t;
    (void)state;
    twice_start(&f, &t);
    for (unsigned how = 0; how < 2 * HURTS; how++) {
        fx_spill(t.plain, t.lines, t.n);
        hurt_segment(&t, how % HURTS);
        if (how >= HURTS) {
            clear_dir(f.layout.index);
        }
        expect_fault(&f, how % HURTS == HURTS - 1 ? VERIFY_SEGMENT : VERIFY_FILE_HASH);
        fx_open(&f);
        expect_mended(&f, &t);
        fx_close(&f);
        fx_verify(&f, true);
    }
    twice_end(&f, &t);
}

static void sync_path(const char *path)
{
    int fd = os_open(path, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_close(fd), 0);
}

/* Few calls, and each another one. */
static uint64_t small_step(void)
{
    return step_of() < 4 ? step_of() : 4;
}

/* Whatever call fails, and wherever the power goes: nothing is lost, and the next start mends. */
static void test_every_fault_of_making_again(void **state)
{
    struct fx f;
    struct twice t;
    (void)state;
    twice_start(&f, &t);
    hurt_segment(&t, 0);
    sync_path(t.segment);
    sync_path(t.plain);
    assert_int_equal(os_sync_dir(f.layout.pending), 0);
    struct model *base = f.m;
    struct kit_ledger ledger = f.ledger;
    unsigned from_plain = 0;
    for (uint64_t k = 1;; k += small_step()) {
        f.m = model_snapshot(base);
        f.ledger = ledger;
        model_use(f.m);
        faults_install(NULL);
        faults_arm(k, k % 2 == 0 ? EIO : ENOSPC, false, FAULT_ERROR);
        int r = journal_open(f.dir, &f.options, &f.j, &f.e);
        bool fired = faults_fired() > 0;
        faults_uninstall();
        if (r == 0 && fx_status(&f).damaged) {
            fx_expect_read_only(&f, t.events);
            assert_true(fx_exists(t.plain));
            from_plain++;
        } else if (r != 0) {
            assert_true(fired);
            f.j = NULL;
        }
        if (k % 3 == 0) {
            const struct model_choice power = {.how = MODEL_CUT_RANDOM, .seed = k};
            fx_crash(&f, &power);
        } else if (f.j != NULL) {
            fx_kill(&f);
        }
        fx_open(&f);
        expect_mended(&f, &t);
        fx_close(&f);
        fx_verify(&f, true);
        model_free(f.m);
        if (!fired) {
            break;
        }
    }
    assert_true(from_plain > 5 / small_step());
    f.m = base;
    model_use(base);
    twice_end(&f, &t);
}

struct power {
    struct fx *f;
    const struct twice *t;
    uint64_t last; /* hash of the disk that was tried last */
    unsigned tried;
};

static void cut_and_mend(void *ctx, struct model *m, const struct model_call *call)
{
    struct power *p = ctx;
    struct model_crashes it;
    struct model *after;
    if (call->number % small_step() != 0) {
        return;
    }
    model_crashes_begin(&it, m, 2, 2, call->number);
    while ((after = model_crashes_next(&it)) != NULL) {
        struct fx g = *p->f;
        uint64_t hash = model_hash(after);
        if (hash != p->last) {
            g.m = after;
            g.j = NULL;
            model_use(after);
            fx_open(&g);
            expect_mended(&g, p->t);
            fx_close(&g);
            p->tried++;
        }
        p->last = hash;
        model_free(after);
    }
    model_use(m);
}

/* The power goes before any call of it: whatever of the two files lands, the next start has one. */
static void test_power_while_making_again(void **state)
{
    struct fx f;
    struct twice t;
    struct power p = {&f, &t, 0, 0};
    (void)state;
    twice_start(&f, &t);
    hurt_segment(&t, 0);
    sync_path(t.segment);
    sync_path(t.plain);
    assert_int_equal(os_sync_dir(f.layout.pending), 0);
    model_set_hook(f.m, cut_and_mend, &p);
    fx_open(&f);
    model_set_hook(f.m, NULL, NULL);
    expect_mended(&f, &t);
    assert_true(p.tried > 50 / small_step());
    twice_end(&f, &t);
}

/* Neither is removed when both are damaged: a byte of the plain file, its end, a line more. */
static void test_the_last_good_copy_stays(void **state)
{
    struct fx f;
    struct twice t;
    (void)state;
    twice_start(&f, &t);
    hurt_segment(&t, 0);
    for (unsigned how = 0; how < 3; how++) {
        char *lines = malloc(2 * t.n);
        assert_non_null(lines);
        memcpy(lines, t.lines, t.n);
        memcpy(lines + t.n, t.lines, t.n);
        lines[how == 0 ? t.n / 2 : 0] ^= how == 0 ? 1 : 0;
        fx_spill(t.plain, lines, how == 1 ? t.n - 1 : how == 2 ? 2 * t.n : t.n);
        free(lines);
        fx_open(&f);
        assert_true(fx_status(&f).poisoned && fx_status(&f).damaged);
        (void)journal_close(f.j, &f.e);
        f.j = NULL;
        assert_true(fx_exists(t.plain));
        assert_int_equal(fx_size(t.segment), t.segment_bytes);
    }
    fx_patch(t.segment, 10, &t.sealed[10], 1);
    fx_open(&f);
    expect_mended(&f, &t);
    twice_end(&f, &t);
}

/* What comes out is not the file of the record, as of another zstd: all is read from the plain
 * file, and the damage is told. */
static void test_read_from_the_plain_file(void **state)
{
    struct fx f;
    struct twice t;
    size_t n;
    char other[LAYOUT_PATH_MAX];
    char *hex;
    (void)state;
    twice_start(&f, &t);
    char *manifest = fx_slurp(f.layout.manifest, &n);
    (void)snprintf(other, sizeof other, "%s", t.segment);
    hex = strrchr(other, '_') + 1;
    for (size_t at = 0; at + SHA256_HEX_LEN <= n; at++) {
        if (memcmp(manifest + at, hex, SHA256_HEX_LEN) == 0) {
            manifest[at] = manifest[at] == '0' ? '1' : '0';
        }
    }
    hex[0] = hex[0] == '0' ? '1' : '0';
    assert_int_equal(os_rename(t.segment, other), 0);
    fx_spill(f.layout.manifest, manifest, n);
    free(manifest);
    for (unsigned i = 0; i < 2; i++) {
        fx_open(&f);
        struct journal_status st = fx_status(&f);
        assert_true(st.damaged);
        assert_non_null(strstr(st.cause, "generation 0"));
        assert_int_equal(st.segments, closed(&f));
        fx_expect_read_only(&f, t.events);
        check_cursors(&f);
        (void)journal_close(f.j, &f.e);
        f.j = NULL;
        assert_true(fx_exists(t.plain) && fx_exists(other));
        expect_fault(&f, VERIFY_FILE_HASH);
        clear_dir(f.layout.index);
    }
    twice_end(&f, &t);
}

/* With the thread: asked, done, told; and by the setting. */
static void test_in_the_background(void **state)
{
    struct fx f;
    struct journal_seal_status st;
    (void)state;
    fx_start(&f, true);
    f.options.threads = true;
    fill(&f);
    assert_int_equal(journal_seal_request(f.j, 0, true, &f.e), 0);
    for (uint32_t n = 20; n < 30; n++) { /* appends go on meanwhile */
        fx_put(&f, n, 1, 7000);
        journal_tick(f.j);
    }
    for (unsigned i = 0; i < 2000; i++) {
        journal_tick(f.j);
        journal_get_seal_status(f.j, &st);
        if (!st.active && st.possible == 0) {
            break;
        }
        if (!st.active) {
            assert_int_equal(journal_seal_request(f.j, 0, false, &f.e), 0);
        }
        (void)os_poll(NULL, 0, 5);
    }
    assert_int_equal(st.possible, 0);
    assert_int_equal(fx_status(&f).segments, closed(&f));
    check_all(&f);
    fx_close(&f);
    f.options.seal_after_generations = 2;
    fx_open(&f);
    for (uint32_t n = 30; n < 60; n++) {
        fx_put(&f, n, 1, 7000);
    }
    for (unsigned i = 0; i < 2000 && closed(&f) - fx_status(&f).segments > 2; i++) {
        journal_tick(f.j);
        (void)os_poll(NULL, 0, 5);
    }
    assert_int_equal(closed(&f) - fx_status(&f).segments, 2);
    assert_int_equal(journal_seal_request(f.j, 0, false, &f.e), 0);
    fx_close(&f); /* in the middle of it */
    fx_open(&f);
    check_all(&f);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_changes),
        cmocka_unit_test(test_beside_readers),
        cmocka_unit_test(test_every_fault),
        cmocka_unit_test(test_uncertain),
        cmocka_unit_test(test_a_record_without_space),
        cmocka_unit_test(test_a_bad_write_is_not_believed),
        cmocka_unit_test(test_rot_is_not_sealed_in),
        cmocka_unit_test(test_remnants),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_damage_without_index),
        cmocka_unit_test(test_record_without_its_end),
        cmocka_unit_test(test_without_manifest),
        cmocka_unit_test(test_record_of_another_segment),
        cmocka_unit_test(test_a_damaged_segment_is_made_again),
        cmocka_unit_test(test_every_fault_of_making_again),
        cmocka_unit_test(test_power_while_making_again),
        cmocka_unit_test(test_the_last_good_copy_stays),
        cmocka_unit_test(test_read_from_the_plain_file),
        cmocka_unit_test(test_in_the_background),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
