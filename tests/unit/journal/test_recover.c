/* Recovery of a directory that a crash, a full disk or damage has left: what is torn is set aside,
 * what is damaged is refused and served read-only up to it, and the same again changes nothing. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/event_id.h"

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

/* Opens, expects damage with so many proven events, closes, and finds the disk unchanged. */
static void expect_damage(struct fx *f, uint64_t events)
{
    size_t before_len;
    size_t after_len;
    char *before = fx_slurp(f->layout.tail, &before_len);
    fx_open(f);
    fx_expect_read_only(f, events);
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
    /* and are there for good: the tail is cut behind them */
    char kept[32];
    struct model *after = model_crash(f.m, &(struct model_choice){.how = MODEL_CUT_NONE});
    assert_int_equal(model_get(after, name, kept, sizeof kept), 14);
    assert_memory_equal(kept, "\0\0\0half a line", 14);
    model_free(after);
    assert_int_equal(fx_size(f.layout.tail), FX_GENERATION);
    fx_check_opened(&f);
    fx_end(&f);
    (void)state;
}

/* Lands all but the first sectors of the tail. */
static enum model_fate all_but_the_first(void *ctx, size_t index, const struct model_item *item)
{
    (void)ctx;
    (void)index;
    bool first = item->kind == MODEL_ITEM_DATA && item->offset < 4096 &&
                 strstr(item->path, "tail.ndjson") != NULL;
    return first ? MODEL_LOST : MODEL_LANDED;
}

/* A torn batch that was larger than a generation: nothing of it stays behind the padding. */
static void test_large_torn_batch(void **state)
{
    struct fx f;
    size_t n;
    struct model_choice choice = {.how = MODEL_CUT_ASK, .ask = all_but_the_first};
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    fx_stage(&f, 1, 2, FX_GENERATION);
    model_die_at(f.m, model_calls(f.m) + 2);
    assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_WRITER_POISONED);
    fx_crash(&f, &choice);
    assert_true(fx_size(f.layout.tail) > 2 * FX_GENERATION);
    fx_open(&f);
    assert_true(fx_exists(f.layout.remnants));
    assert_int_equal(fx_size(f.layout.tail), FX_GENERATION);
    char *bytes = fx_slurp(f.layout.tail, &n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(bytes[i], 0);
    }
    free(bytes);
    fx_check_opened(&f);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torn_group_every_subset),
        cmocka_unit_test(test_recovery_is_idempotent),
        cmocka_unit_test(test_remnant_bytes),
        cmocka_unit_test(test_large_torn_batch),
        cmocka_unit_test(test_flip_in_closed_tail),
        cmocka_unit_test(test_flip_in_unclean_tail),
        cmocka_unit_test(test_flip_in_last_group),
        cmocka_unit_test(test_missing_group),
        cmocka_unit_test(test_leftover_of_older_group),
        cmocka_unit_test(test_leftover_of_another_journal),
        cmocka_unit_test(test_length_bombs),
        cmocka_unit_test(test_sole_segment_cut_to_nothing),
    };
    return cmocka_run_group_tests_name("recover", tests, NULL, NULL);
}
