/* Opening what is not as a journal leaves it: missing and strange files, a damaged or missing
 * index, the journal of another program, ids at their end; and a close that fails. */
#include "tests/unit/journal/journal_fixture.h"

#include "base/timefmt.h"
#include "journal/event_id.h"
#include "tests/unit/journal/vectors.h"

static void many_generations(struct fx *f, uint32_t generations)
{
    fx_open(f);
    for (uint32_t n = 1; fx_status(f).generations < generations; n++) {
        fx_put(f, n, 2, 9000);
    }
    fx_put(f, 90, 1, 10);
}

static void test_missing_tail(void **state)
{
    struct fx f;
    fx_start(&f, false);
    many_generations(&f, 3);
    fx_close(&f);
    assert_int_equal(os_unlink(f.layout.tail), 0);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    f.j = NULL;
    /* With a spare it was a rotation that was cut: what the tail held is the rotated file's. */
    kit_find(&f.ledger, 90)->state = KIT_ABSENT;
    char *zeros = calloc(1, FX_GENERATION);
    assert_non_null(zeros);
    fx_spill(f.layout.spare, zeros, FX_GENERATION);
    free(zeros);
    fx_open(&f);
    assert_false(fx_exists(f.layout.spare) && fx_size(f.layout.tail) != FX_GENERATION);
    assert_false(fx_status(&f).poisoned);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

static void test_manifest(void **state)
{
    struct fx f;
    size_t n;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 10);
    fx_close(&f);
    char *good = fx_slurp(f.layout.manifest, &n);
    assert_string_equal(good,
                        "{\"format_id\":\"groundhog/log\",\"min_reader\":1,\"min_writer\":1,"
                        "\"schema_version\":1,\"stability\":\"stable\",\"type\":\"format\"}\n");
    /* Gone, or never committed, though there are events. */
    assert_int_equal(os_unlink(f.layout.manifest), 0);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    fx_spill(f.layout.manifest, good, n - 1);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    /* Other first records. */
    static const struct {
        const char *text;
        int code;
    } others[] = {
        {"{\"format_id\":\"groundhog/log\",\"min_reader\":2,\"min_writer\":2,\"schema_version\":2,"
         "\"stability\":\"stable\",\"type\":\"format\"}\n",
         ERR_UNSUPPORTED},
        {"{\"format_id\":\"other/log\"}\n", ERR_CORRUPT},
        {"\n", ERR_CORRUPT},
        {"garbage\n", ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        fx_spill(f.layout.manifest, others[i].text, strlen(others[i].text));
        assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), others[i].code);
    }
    /* Committed records that are not known, and one that is none. */
    char *more = malloc(n + 80);
    assert_non_null(more);
    memcpy(more, good, n);
    static const char *const later[] = {"{\"type\":\"compaction\"}\n",
                                        "{\"schema_version\":1,\"type\":\"segment\"}\n",
                                        "{\"min_reader\":3,\"type\":\"segment\"}\n"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        memcpy(more + n, later[i], strlen(later[i]));
        fx_spill(f.layout.manifest, more, n + strlen(later[i]));
        assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_UNSUPPORTED);
    }
    memcpy(more + n, "{\"type\":\"segment\"}\n", 19);
    fx_spill(f.layout.manifest, more, n + 19);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    /* The same without LF was never committed: it is cut off. */
    fx_spill(f.layout.manifest, more, n + 18);
    f.j = NULL;
    fx_verify(&f, false);
    fx_open(&f);
    assert_int_equal(fx_size(f.layout.manifest), n);
    fx_check_opened(&f);
    free(more);
    free(good);
    fx_end(&f);
    (void)state;
}

/* A first record without LF in a directory without events: the journal is made again. */
static void test_manifest_cut_when_made(void **state)
{
    struct fx f;
    size_t n;
    fx_start(&f, false);
    fx_open(&f);
    fx_close(&f);
    char *good = fx_slurp(f.layout.manifest, &n);
    for (size_t k = 0; k < n; k += 5) {
        fx_spill(f.layout.manifest, good, k);
        fx_open(&f);
        fx_close(&f);
        assert_int_equal(fx_size(f.layout.manifest), n);
    }
    free(good);
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
    if (ns->count < 4) {
        (void)snprintf(ns->name[ns->count++], 128, "%s", name);
    }
    return 0;
}

static void test_strange_pending(void **state)
{
    struct fx f;
    struct names ns = {0};
    char path[LAYOUT_PATH_MAX + 200];
    size_t n;
    fx_start(&f, false);
    many_generations(&f, 3);
    fx_close(&f);
    assert_int_equal(os_list(f.layout.pending, take_name, &ns), 0);
    assert_int_equal(ns.count, 2);
    /* What ends in .tmp is nobody's. */
    (void)snprintf(path, sizeof path, "%s/x.tmp", f.layout.pending);
    fx_spill(path, "x", 1);
    fx_open(&f);
    fx_check_opened(&f);
    fx_close(&f);
    assert_int_equal(os_unlink(path), 0);
    /* A name that is none. */
    (void)snprintf(path, sizeof path, "%s/stranger.ndjson", f.layout.pending);
    fx_spill(path, "x", 1);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    assert_int_equal(os_unlink(path), 0);
    /* Two that overlap: from the first's first to the second's last. */
    bool turned = strcmp(ns.name[0], ns.name[1]) > 0;
    (void)snprintf(path, sizeof path, "%s/%.36s_%.36s.ndjson", f.layout.pending, ns.name[turned],
                   ns.name[!turned] + 37);
    char one[LAYOUT_PATH_MAX + 200];
    (void)snprintf(one, sizeof one, "%s/%s", f.layout.pending, ns.name[turned]);
    char *bytes = fx_slurp(one, &n);
    fx_spill(path, bytes, n);
    free(bytes);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    assert_int_equal(os_unlink(path), 0);
    f.j = NULL;
    fx_open(&f);
    fx_check_opened(&f);
    fx_end(&f);
    (void)state;
}

/* ---- the index ---- */

static int remove_name(void *ctx, const char *name)
{
    char path[LAYOUT_PATH_MAX + 200];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    return os_unlink(path) == 0 ? 0 : 1;
}

static int spoil_name(void *ctx, const char *name)
{
    char path[LAYOUT_PATH_MAX + 200];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    uint64_t size = fx_size(path);
    fx_patch(path, size / 2, "rot", 3);
    return 0;
}

/* Deleted, damaged or cut, the index is made again and answers the same (L05, L10, L46). */
static void test_index_rebuilt(void **state)
{
    struct fx f;
    fx_start(&f, false);
    many_generations(&f, 5);
    fx_close(&f);
    for (int how = 0; how < 3; how++) {
        struct names ns = {0};
        if (how == 0) {
            assert_int_equal(os_list(f.layout.index, remove_name, f.layout.index), 0);
        } else if (how == 1) {
            assert_int_equal(os_list(f.layout.index, spoil_name, f.layout.index), 0);
        } else {
            char path[LAYOUT_PATH_MAX + 200];
            assert_int_equal(os_list(f.layout.index, take_name, &ns), 0);
            (void)snprintf(path, sizeof path, "%s/%s", f.layout.index, ns.name[0]);
            fx_spill(path, "", 0);
        }
        fx_open(&f);
        fx_check_opened(&f);
        fx_close(&f);
        fx_verify(&f, true);
    }
    fx_end(&f);
    (void)state;
}

struct reads {
    uint64_t count;
    char path[LAYOUT_PATH_MAX]; /* of the first */
    bool others;
};

static void note_reads(void *ctx, struct model *m, const struct model_call *call)
{
    struct reads *r = ctx;
    (void)m;
    if (call->call != OS_CALL_pread || strstr(call->path, "_") == NULL) {
        return; /* only closed generations have two ids in their names */
    }
    if (r->count++ == 0) {
        (void)snprintf(r->path, sizeof r->path, "%s", call->path);
    }
    r->others = r->others || strcmp(r->path, call->path) != 0;
}

static struct reads open_and_note(struct fx *f)
{
    struct reads r = {0};
    model_set_hook(f->m, note_reads, &r);
    fx_open(f);
    model_set_hook(f->m, NULL, NULL);
    return r;
}

/* What an open reads of closed generations: nothing with a whole index; one whose summary is lost
 * costs that one (L46). */
static void test_start_is_bounded(void **state)
{
    struct fx f;
    char path[LAYOUT_PATH_MAX + 200];
    fx_start(&f, false);
    many_generations(&f, 6);
    fx_close(&f);
    assert_int_equal(open_and_note(&f).count, 0);
    fx_close(&f);
    (void)snprintf(path, sizeof path, "%s/gen-00000002.sum", f.layout.index);
    assert_int_equal(os_unlink(path), 0);
    struct reads r = open_and_note(&f);
    assert_true(r.count > 0);
    assert_false(r.others);
    fx_check_opened(&f);
    fx_close(&f);
    assert_int_equal(open_and_note(&f).count, 0); /* it was made again */
    fx_end(&f);
    (void)state;
}

/* Without its index a damaged closed generation is found at the open, and what precedes it is
 * served. */
static void test_damaged_generation(void **state)
{
    struct fx f;
    struct names ns = {0};
    char path[LAYOUT_PATH_MAX + 200];
    fx_start(&f, false);
    many_generations(&f, 4);
    fx_close(&f);
    assert_int_equal(os_list(f.layout.pending, take_name, &ns), 0);
    assert_int_equal(ns.count, 3);
    unsigned middle = 0;
    for (unsigned i = 0; i < 3; i++) {
        unsigned below = 0;
        for (unsigned k = 0; k < 3; k++) {
            below += strcmp(ns.name[k], ns.name[i]) < 0;
        }
        middle = below == 1 ? i : middle;
    }
    (void)snprintf(path, sizeof path, "%s/%s", f.layout.pending, ns.name[middle]);
    assert_int_equal(model_rot(f.m, path, fx_size(path) / 2, 0x01), 0);
    assert_int_equal(os_list(f.layout.index, remove_name, f.layout.index), 0);
    fx_open(&f);
    struct journal_status st = fx_status(&f);
    assert_true(st.poisoned);
    assert_non_null(strstr(st.cause, "generation 1"));
    assert_true(st.frontier.events > 6);
    fx_expect_read_only(&f, st.frontier.events);
    fx_close(&f);
    fx_end(&f);
    (void)state;
}

/* ---- the journal of another program ---- */

/* The lines that tests/vectors/make_vectors.py made: a tail that another program closed. */
static void spill_vectors(struct fx *f, size_t from, size_t to)
{
    struct buf text = {0};
    fx_open(f);
    fx_close(f);
    for (size_t i = from; i < to; i++) {
        buf_put_cstr(&text, vectors[i].stored);
        buf_put_char(&text, '\n');
    }
    assert_false(text.failed);
    fx_spill(f->layout.tail, text.ptr, text.len);
    buf_free(&text);
}

/* It opens, has the heads of the vectors, knows its batches, and goes on behind their ids. */
static void test_tail_of_another_program(void **state)
{
    struct fx f;
    struct journal_frontier front;
    char hex[SHA256_HEX_LEN + 1] = {0};
    struct journal_result r;
    struct kit_batch kb;
    size_t last = sizeof vectors / sizeof *vectors - 1;
    fx_start(&f, false);
    spill_vectors(&f, 0, last);
    fx_verify(&f, true);
    fx_open(&f);
    journal_get_frontier(f.j, &front);
    assert_int_equal(front.events, last);
    hex_encode(hex, front.head, SHA256_LEN);
    assert_string_equal(hex, vectors[last - 1].head);
    kit_batch_make(&kb, (struct kit_spec){1, 1, 1});
    kb.batch.source = slice_cstr(vectors[0].source);
    kb.batch.batch_id = slice_cstr(vectors[0].batch_id);
    bool ok = hex_decode(kb.batch.digest, slice_cstr(vectors[0].batch_digest), SHA256_LEN);
    assert_true(ok);
    assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), 0);
    assert_int_equal(r.outcome, JOURNAL_DUPLICATE);
    kit_batch_free(&kb);
    fx_put(&f, 5, 2, 10);
    const struct kit_entry *en = kit_find(&f.ledger, 5);
    assert_true(uuid_cmp(&en->first_id, &front.last_id) > 0);
    assert_int_equal(event_id_split(&en->first_id).group, vectors[last - 1].group + 1);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

/* The highest ids leave no room for ours: nothing is opened, nothing is changed. */
static void test_no_room_behind(void **state)
{
    struct fx f;
    size_t last = sizeof vectors / sizeof *vectors - 1;
    fx_start(&f, false);
    spill_vectors(&f, last, last + 1);
    uint64_t size = fx_size(f.layout.tail);
    assert_int_equal(vectors[last].group, EVENT_ID_GROUP_MAX);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_UNSUPPORTED);
    f.j = NULL;
    assert_int_equal(fx_size(f.layout.tail), size);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

/* At the last millisecond that observed_at can say, groups go on by their numbers. */
static void test_last_millisecond(void **state)
{
    struct fx f;
    size_t n;
    fx_start(&f, false);
    fx_clock_set(TIMEFMT_MS_END - 1);
    fx_open(&f);
    fx_put(&f, 1, 1, 10);
    fx_close(&f);
    fx_open(&f);
    fx_check_opened(&f);
    fx_put(&f, 2, 1, 10); /* the same millisecond, the next group */
    fx_close(&f);
    fx_verify(&f, true);
    char *bytes = fx_slurp(f.layout.tail, &n);
    assert_non_null(memmem(bytes, n, "9999-12-31T23:59:59.999Z", 24));
    free(bytes);
    fx_end(&f);
    (void)state;
}

/* Closing fails: told, and the next open recovers. */
static void test_close_fails(void **state)
{
    static const enum os_call calls[] = {OS_CALL_ftruncate, OS_CALL_fsync};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct fx f;
        fx_start(&f, false);
        fx_open(&f);
        fx_put(&f, 1, 1, 50);
        struct fault eio = {
            .kind = FAULT_ERROR, .error = EIO, .call = calls[i], .path = "tail.ndjson", .at = 1};
        model_fault_arm(f.m, &eio);
        assert_int_equal(journal_close(f.j, &f.e), ERR_IO);
        f.j = NULL;
        model_fault_arm(f.m, NULL);
        fx_open(&f);
        fx_check_opened(&f);
        fx_end(&f);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_tail),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_manifest_cut_when_made),
        cmocka_unit_test(test_strange_pending),
        cmocka_unit_test(test_index_rebuilt),
        cmocka_unit_test(test_start_is_bounded),
        cmocka_unit_test(test_damaged_generation),
        cmocka_unit_test(test_tail_of_another_program),
        cmocka_unit_test(test_no_room_behind),
        cmocka_unit_test(test_last_millisecond),
        cmocka_unit_test(test_close_fails),
    };
    return cmocka_run_group_tests_name("open", tests, NULL, NULL);
}
