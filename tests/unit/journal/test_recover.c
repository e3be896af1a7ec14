/* Recovery of a directory that a crash, a full disk or damage has left: what is torn is set aside,
 * what is damaged is refused and served read-only up to it, and the same again changes nothing. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/event_id.h"
#include "tests/unit/journal/vectors.h"

/* Offsets at which the batches of a journal begin, in the order they were put; the last entry is
 * the end of the data. */
struct places {
    uint64_t at[16];
    uint32_t count;
};

static void find_places(const struct kit_spec *specs, uint32_t count, struct places *p)
{
    *p = (struct places){.count = count};
    for (uint32_t i = 0; i < count; i++) {
        struct kit_batch kb;
        kit_batch_make(&kb, specs[i]);
        p->at[i + 1] = p->at[i] + kit_batch_bytes(&kb);
        kit_batch_free(&kb);
    }
}

static void expect_read_only(struct fx *f, uint64_t events)
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

/* Opens, expects damage with so many proven events, closes, and finds the disk unchanged. */
static void expect_damage(struct fx *f, uint64_t events)
{
    size_t before_len;
    size_t after_len;
    char *before = fx_slurp(f->layout.tail, &before_len);
    fx_open(f);
    expect_read_only(f, events);
    fx_close(f);
    char *after = fx_slurp(f->layout.tail, &after_len);
    assert_int_equal(after_len, before_len);
    assert_memory_equal(after, before, after_len);
    assert_false(fx_exists(f->layout.remnants));
    free(before);
    free(after);
}

static const struct kit_spec four[] = {{1, 1, 20}, {2, 2, 30}, {3, 1, 10}, {4, 2, 40}};
static const uint64_t events_before[] = {0, 1, 3, 4, 6};

/* ---- a torn last group ---- */

/* Every subset of the sectors of a group of several batches: leading whole batches stay, the rest
 * goes to remnants/, and everything can be sent again. */
static void test_torn_group_every_subset(void **state)
{
    uint64_t kept_batches[6] = {0};
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 100);
    for (uint32_t n = 2; n <= 5; n++) {
        fx_stage(&f, n, 1, 300);
    }
    fx_stage(&f, 6, 2, 100);
    model_die_at(f.m, model_calls(f.m) + 2);
    assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_WRITER_POISONED);
    size_t items = model_pending(f.m);
    size_t first = 0; /* before the group: names of lesser files */
    while (model_pending_item(f.m, first).kind != MODEL_ITEM_DATA) {
        first++;
    }
    assert_in_range(items - first, 8, 12);
    for (uint64_t mask = 0; mask < UINT64_C(1) << (items - first); mask++) {
        struct fx g = f;
        struct model_choice choice = {.how = MODEL_CUT_MASK, .mask = mask << first};
        uint32_t kept = 0;
        g.m = model_crash(f.m, &choice);
        g.j = NULL;
        model_use(g.m);
        kit_forget_group(&g.ledger);
        fx_verify(&g, false);
        fx_open(&g);
        assert_false(fx_status(&g).poisoned);
        char why[KIT_WHY];
        if (!kit_check(g.j, &g.ledger, true, why)) {
            fail_msg("subset %llx: %s", (unsigned long long)mask, why);
        }
        for (uint32_t n = 2; n <= 6; n++) {
            bool there = kit_find(&g.ledger, n)->state == KIT_ACKED;
            assert_true(!there || kept == n - 2); /* only leading ones */
            kept += there;
        }
        kept_batches[kept]++;
        assert_int_equal(fx_exists(g.layout.remnants), mask != 0 && kept < 5);
        fx_check_opened(&g);
        fx_close(&g);
        fx_verify(&g, true);
        model_free(g.m);
    }
    model_use(f.m);
    for (uint32_t i = 0; i <= 5; i++) {
        assert_true(kept_batches[i] > 0);
    }
    assert_int_equal(kept_batches[5], 1);
    fx_end(&f);
    (void)state;
}

static int count_one(void *ctx, const char *name)
{
    (void)name;
    *(unsigned *)ctx += 1;
    return 0;
}

/* Opening twice: the second time nothing is written but what a clean journal writes. */
static void test_recovery_is_idempotent(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 100);
    for (uint32_t n = 2; n <= 5; n++) {
        fx_stage(&f, n, 2, 700);
    }
    model_die_at(f.m, model_calls(f.m) + 2);
    assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_WRITER_POISONED);
    struct model_choice choice = {.how = MODEL_CUT_RANDOM, .seed = 5};
    fx_crash(&f, &choice);
    uint64_t hashes[3];
    unsigned remnants[3] = {0};
    for (int i = 0; i < 3; i++) {
        fx_open(&f);
        char why[KIT_WHY];
        if (!kit_check(f.j, &f.ledger, true, why)) {
            fail_msg("%s", why);
        }
        fx_kill(&f);
        /* The spare of the killed process is the only thing that differs from a closed one. */
        hashes[i] = model_hash(f.m);
        assert_int_equal(os_list(f.layout.remnants, count_one, &remnants[i]), 0);
    }
    assert_int_equal(remnants[0], 1);
    assert_int_equal(remnants[2], 1);
    assert_int_equal(hashes[0], hashes[1]);
    assert_int_equal(hashes[1], hashes[2]);
    fx_open(&f);
    fx_check_opened(&f);
    fx_end(&f);
    (void)state;
}

/* The bytes of a torn group are kept as they were. */
static void test_remnant_bytes(void **state)
{
    struct fx f;
    size_t n;
    char name[LAYOUT_PATH_MAX + 80] = {0};
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 100);
    uint64_t end = fx_status(&f).bytes;
    fx_kill(&f);
    fx_patch(f.layout.tail, end + 3, "half a line", 11);
    fx_open(&f);
    assert_false(fx_status(&f).poisoned);
    (void)snprintf(name, sizeof name, "%s/tail-at-%llu-", f.layout.remnants,
                   (unsigned long long)end);
    uint8_t hash[SHA256_LEN];
    sha256_once(slice_of("\0\0\0half a line", 14), hash);
    hex_encode(name + strlen(name), hash, 8);
    memcpy(name + strlen(name), ".bin", 5);
    char *bytes = fx_slurp(name, &n);
    assert_int_equal(n, 14);
    assert_memory_equal(bytes, "\0\0\0half a line", 14);
    free(bytes);
    assert_int_equal(fx_size(f.layout.tail), FX_GENERATION);
    fx_check_opened(&f);
    fx_end(&f);
    (void)state;
}

/* ---- damage ---- */

/* After a clean close any changed byte is damage. */
static void test_flip_in_closed_tail(void **state)
{
    struct fx f;
    struct places p;
    fx_start(&f, false);
    fx_open(&f);
    find_places(four, 4, &p);
    for (uint32_t i = 0; i < 4; i++) {
        fx_put(&f, four[i].number, four[i].count, four[i].payload_bytes);
    }
    fx_close(&f);
    assert_int_equal(fx_size(f.layout.tail), p.at[4]);
    struct model *good = f.m;
    for (uint64_t at = 0; at < p.at[4]; at++) {
        uint32_t batch = 0;
        while (at >= p.at[batch + 1]) {
            batch++;
        }
        f.m = model_snapshot(good);
        model_use(f.m);
        /* The last byte turned into zero looks like padding: told apart from damage only by the
         * batch before it, which has lost its end. */
        unsigned char with = at + 1 == p.at[4] ? 0x01 : 0x20;
        assert_int_equal(model_rot(f.m, f.layout.tail, at, with), 0);
        expect_damage(&f, events_before[batch]);
        model_free(f.m);
    }
    f.m = good;
    model_use(f.m);
    fx_end(&f);
    (void)state;
}

/* In an unclean tail of groups of one batch: damage is seen in all but the last group, where it
 * cannot be told from a torn one (docs/CRASH.md). */
static void test_flip_in_unclean_tail(void **state)
{
    struct fx f;
    struct places p;
    fx_start(&f, false);
    fx_open(&f);
    find_places(four, 4, &p);
    for (uint32_t i = 0; i < 4; i++) {
        fx_put(&f, four[i].number, four[i].count, four[i].payload_bytes);
    }
    fx_kill(&f);
    struct model *good = f.m;
    for (uint64_t at = 0; at < p.at[4]; at++) {
        uint32_t batch = 0;
        while (at >= p.at[batch + 1]) {
            batch++;
        }
        f.m = model_snapshot(good);
        model_use(f.m);
        assert_int_equal(model_rot(f.m, f.layout.tail, at, 0x20), 0);
        if (batch < 3) {
            expect_damage(&f, events_before[batch]);
        } else {
            fx_open(&f);
            assert_false(fx_status(&f).poisoned);
            assert_int_equal(fx_status(&f).frontier.events, events_before[3]);
            assert_true(fx_exists(f.layout.remnants));
            fx_close(&f);
            fx_verify(&f, true);
        }
        model_free(f.m);
    }
    f.m = good;
    model_use(f.m);
    fx_end(&f);
    (void)state;
}

/* In the last group of several batches a broken one goes with all behind it, also when those are
 * whole: a torn group looks the same. */
static void test_flip_in_last_group(void **state)
{
    struct fx f;
    struct places p;
    fx_start(&f, false);
    fx_open(&f);
    find_places(four, 4, &p);
    fx_put(&f, 1, 1, 20);
    for (uint32_t i = 1; i < 4; i++) {
        fx_stage(&f, four[i].number, four[i].count, four[i].payload_bytes);
    }
    fx_commit(&f);
    fx_kill(&f);
    struct model *good = f.m;
    for (uint32_t batch = 0; batch < 4; batch++) {
        f.m = model_snapshot(good);
        model_use(f.m);
        assert_int_equal(model_rot(f.m, f.layout.tail, p.at[batch] + 40, 0x01), 0);
        if (batch == 0) {
            expect_damage(&f, 0); /* a whole group of index 0 behind it */
        } else {
            fx_open(&f);
            assert_false(fx_status(&f).poisoned);
            assert_int_equal(fx_status(&f).frontier.events, events_before[batch]);
            fx_close(&f);
        }
        model_free(f.m);
    }
    f.m = good;
    model_use(f.m);
    fx_end(&f);
    (void)state;
}

/* A whole group turned to zeros, or cut out, between others. */
static void test_missing_group(void **state)
{
    static const char zeros[4096];
    struct fx f;
    struct places p;
    fx_start(&f, false);
    fx_open(&f);
    find_places(four, 4, &p);
    for (uint32_t i = 0; i < 4; i++) {
        fx_put(&f, four[i].number, four[i].count, four[i].payload_bytes);
    }
    fx_kill(&f);
    struct model *good = f.m;
    for (uint32_t gap = 0; gap < 3; gap++) {
        /* With the first group cut out nothing tells that the second was not the first. */
        for (int cut = 0; cut < (gap == 0 ? 1 : 2); cut++) {
            f.m = model_snapshot(good);
            model_use(f.m);
            uint64_t n = p.at[gap + 1] - p.at[gap];
            if (cut == 0) {
                fx_patch(f.layout.tail, p.at[gap], zeros, n);
            } else {
                size_t size;
                char *bytes = fx_slurp(f.layout.tail, &size);
                memmove(bytes + p.at[gap], bytes + p.at[gap + 1], size - p.at[gap + 1]);
                memset(bytes + size - n, 0, n);
                fx_spill(f.layout.tail, bytes, size);
                free(bytes);
            }
            expect_damage(&f, events_before[gap]);
            model_free(f.m);
        }
    }
    f.m = good;
    model_use(f.m);
    fx_end(&f);
    (void)state;
}

/* A whole batch of an earlier group behind the data was never there: damage, not a torn group. */
static void test_leftover_of_older_group(void **state)
{
    struct fx f;
    struct places p;
    size_t n;
    fx_start(&f, false);
    fx_open(&f);
    find_places(four, 4, &p);
    for (uint32_t i = 0; i < 4; i++) {
        fx_put(&f, four[i].number, four[i].count, four[i].payload_bytes);
    }
    fx_kill(&f);
    char *bytes = fx_slurp(f.layout.tail, &n);
    fx_patch(f.layout.tail, p.at[4] + 7, bytes, p.at[1]);
    free(bytes);
    expect_damage(&f, 6);
    fx_end(&f);
    (void)state;
}

/* Lines of another journal (another tag) behind the data prove damage too. */
static void test_leftover_of_another_journal(void **state)
{
    struct fx f;
    struct fx other;
    size_t n;
    fx_start(&other, false);
    fx_open(&other);
    uint8_t spoil[16];
    assert_int_equal(os_random(spoil, sizeof spoil), 0); /* another tag than below */
    fx_put(&other, 1, 1, 50);
    uint64_t length = fx_status(&other).bytes;
    char *bytes = fx_slurp(other.layout.tail, &n);
    struct event_id_parts theirs = event_id_split(&kit_find(&other.ledger, 1)->first_id);
    fx_end(&other);
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 7, 1, 50);
    assert_int_not_equal(event_id_split(&kit_find(&f.ledger, 7)->first_id).tag, theirs.tag);
    uint64_t end = fx_status(&f).bytes;
    fx_kill(&f);
    fx_patch(f.layout.tail, end + 1, bytes, length);
    expect_damage(&f, 1);
    free(bytes);
    fx_end(&f);
    (void)state;
}

/* Rubbish of every length where a batch should be; none is taken for a length (L13). */
static void test_length_bombs(void **state)
{
    static const char *const bombs[] = {
        "\x7f\xff\xff\xff",
        "\xff\xff\xff\xff",
        "{",
        "{\"batch_digest\":\"",
        ("{\"batch_digest\":\"0000000000000000000000000000000000000000000000000000000000000000\","
         "\"batch_id\":\"x\",\"batch_len\":4294967295,\"content_hash\":\""),
        "\n\n\n\n",
        "{}\n",
    };
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 50);
    uint64_t end = fx_status(&f).bytes;
    fx_kill(&f);
    struct model *good = f.m;
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        f.m = model_snapshot(good);
        model_use(f.m);
        fx_patch(f.layout.tail, end, bombs[i], strlen(bombs[i]));
        fx_open(&f);
        assert_false(fx_status(&f).poisoned);
        assert_int_equal(fx_status(&f).frontier.events, 1);
        fx_check_opened(&f);
        fx_close(&f);
        model_free(f.m);
    }
    f.m = good;
    model_use(f.m);
    fx_end(&f);
    (void)state;
}

/* A proven batch whose line claims more events than there are bytes left. */
static void test_sole_segment_cut_to_nothing(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 50);
    fx_close(&f);
    fx_spill(f.layout.tail, "", 0);
    kit_find(&f.ledger, 1)->state = KIT_ABSENT;
    f.ledger.frontier_count = 0;
    fx_open(&f); /* an empty tail is a journal without events; it must take appends (L11) */
    fx_check_opened(&f);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

/* ---- missing and strange files ---- */

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
    /* A committed record that is not known. */
    char *more = malloc(n + 40);
    assert_non_null(more);
    memcpy(more, good, n);
    memcpy(more + n, "{\"type\":\"segment\"}\n", 19);
    fx_spill(f.layout.manifest, more, n + 19);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_UNSUPPORTED);
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
    expect_read_only(&f, st.frontier.events);
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

/* At the end of the year 9999 ids stay there. */
static void test_ids_at_the_end(void **state)
{
    struct fx f;
    fx_start(&f, false);
    model_clock_jump_real(f.m, INT64_C(253402300799000) - INT64_C(1800000000000));
    fx_open(&f);
    fx_put(&f, 1, 1, 10); /* at the end of the year 9999 */
    model_clock_jump_real(f.m, 86400000);
    fx_put(&f, 2, 1, 10); /* 10000: no clock */
    fx_close(&f);
    fx_open(&f);
    fx_check_opened(&f);
    fx_close(&f);
    fx_end(&f);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torn_group_every_subset),
        cmocka_unit_test(test_recovery_is_idempotent),
        cmocka_unit_test(test_remnant_bytes),
        cmocka_unit_test(test_flip_in_closed_tail),
        cmocka_unit_test(test_flip_in_unclean_tail),
        cmocka_unit_test(test_flip_in_last_group),
        cmocka_unit_test(test_missing_group),
        cmocka_unit_test(test_leftover_of_older_group),
        cmocka_unit_test(test_leftover_of_another_journal),
        cmocka_unit_test(test_length_bombs),
        cmocka_unit_test(test_sole_segment_cut_to_nothing),
        cmocka_unit_test(test_missing_tail),
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_manifest_cut_when_made),
        cmocka_unit_test(test_strange_pending),
        cmocka_unit_test(test_index_rebuilt),
        cmocka_unit_test(test_start_is_bounded),
        cmocka_unit_test(test_damaged_generation),
        cmocka_unit_test(test_tail_of_another_program),
        cmocka_unit_test(test_no_room_behind),
        cmocka_unit_test(test_ids_at_the_end),
    };
    return cmocka_run_group_tests_name("recover", tests, NULL, NULL);
}
