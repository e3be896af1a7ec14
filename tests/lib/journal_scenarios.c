/* The lives; see the header. Sizes are chosen by the seed so that lines begin and end anywhere in
 * their sectors. */
#include "tests/lib/journal_scenarios.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "journal/seal.h"
#include "os/os.h"

const struct journal_options scenario_options = {.generation_bytes = SCENARIO_GENERATION,
                                                 .group_bytes = 1u << 20};

static uint32_t between(struct scenario_run *run, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(kit_chance(&run->chance) % (high - low + 1));
}

static void begin(struct scenario_run *run)
{
    struct err e = {0};
    struct journal_status st;
    char why[KIT_WHY];
    if (run->ended) {
        return;
    }
    if (journal_open(SCENARIO_DIR, &scenario_options, &run->j, &e) != 0) {
        run->j = NULL;
        run->ended = true;
        return;
    }
    journal_get_status(run->j, &st);
    /* Twice: a read that fails once is no wrong answer. */
    if (run->check && !st.poisoned && !kit_check(run->j, &run->ledger, true, why) &&
        !kit_check(run->j, &run->ledger, true, why) && run->ledger.lie[0] == '\0') {
        memcpy(run->ledger.lie, why, sizeof why);
    }
}

static void end(struct scenario_run *run)
{
    struct err e;
    if (run->j != NULL) {
        (void)journal_close(run->j, &e);
        run->j = NULL;
        kit_forget_group(&run->ledger);
    }
}

static void react(struct scenario_run *run, int r)
{
    if (r == ERR_WRITER_POISONED) {
        end(run);
        begin(run);
    } else if (r == ERR_NO_SPACE) {
        model_clock_advance(model_in_use(), UINT64_C(2000000000));
        journal_tick(run->j);
    }
}

static void stage(struct scenario_run *run, uint32_t number, uint32_t count, uint32_t payload)
{
    struct err e;
    if (run->j != NULL) {
        react(run, kit_append(run->j, &run->ledger, (struct kit_spec){number, count, payload}, &e));
    }
}

static void commit(struct scenario_run *run)
{
    struct err e;
    if (run->j != NULL) {
        react(run, kit_commit(run->j, &run->ledger, &e));
    }
}

static void retire(struct scenario_run *run, uint32_t n)
{
    struct err e;
    if (run->j != NULL) {
        react(run, kit_retire(run->j, &run->ledger, n, &e));
    }
}

static void put(struct scenario_run *run, uint32_t number, uint32_t count, uint32_t payload)
{
    stage(run, number, count, payload);
    commit(run);
}

/* A batch that was sent before, as it was. */
static void again(struct scenario_run *run, uint32_t number)
{
    const struct kit_entry *en = kit_find(&run->ledger, number);
    if (en != NULL) {
        stage(run, number, en->spec.count, en->spec.payload_bytes);
    }
}

/* ---- the lives ---- */

static void run_singles(struct scenario_run *run)
{
    begin(run);
    for (uint32_t n = 1; n <= 6; n++) {
        put(run, n, 1, between(run, 1, 900));
    }
    end(run);
}

static void run_groups(struct scenario_run *run)
{
    begin(run);
    for (uint32_t g = 0; g < 4; g++) {
        uint32_t batches = between(run, 2, 7);
        for (uint32_t i = 0; i < batches; i++) {
            stage(run, g * 10 + i, between(run, 1, 3), between(run, 1, 400));
        }
        commit(run);
    }
    end(run);
}

static void run_rotation(struct scenario_run *run)
{
    begin(run);
    for (uint32_t n = 1; n <= 9; n++) {
        stage(run, n, between(run, 1, 3), between(run, 5000, 6000));
        if (n % 2 == 0) {
            stage(run, n + 50, 1, between(run, 1, 300));
        }
        commit(run);
    }
    end(run);
}

static void run_big(struct scenario_run *run)
{
    begin(run);
    put(run, 1, 1, between(run, 1, 500));
    put(run, 2, 20, between(run, 3000, 4500));
    put(run, 3, 1, between(run, 1, 500));
    end(run);
    begin(run);
    put(run, 4, 20, between(run, 3000, 4500));
    put(run, 5, 1, between(run, 1, 500));
    end(run);
}

static void run_reopen(struct scenario_run *run)
{
    for (uint32_t n = 1; n <= 3; n++) {
        begin(run);
        put(run, n * 10, between(run, 1, 2), between(run, 1, 700));
        stage(run, n * 10 + 1, 1, between(run, 1, 300));
        stage(run, n * 10 + 2, 2, between(run, 1, 300));
        commit(run);
        end(run);
    }
}

/* A crash that tore a group, before the life begins. */
static struct model *prepare_leftover(struct scenario_run *run, enum model_order order)
{
    struct model_options o = {.order = order, .seed = kit_chance(&run->chance)};
    struct model *m = model_new(&o);
    model_use(m);
    begin(run);
    put(run, 1, 1, between(run, 1, 900));
    put(run, 2, 2, between(run, 1, 900));
    for (uint32_t n = 3; n <= 7; n++) {
        stage(run, n, between(run, 1, 2), between(run, 1, 600));
    }
    /* The next two calls are the group's write and its sync. */
    model_die_at(m, model_calls(m) + 2);
    struct err e;
    int r = kit_commit(run->j, &run->ledger, &e);
    ensure(r == ERR_WRITER_POISONED);
    struct model_choice choice = {.how = MODEL_CUT_RANDOM, .seed = kit_chance(&run->chance)};
    struct model *after = model_crash(m, &choice);
    (void)journal_close(run->j, &e);
    run->j = NULL;
    model_free(m);
    model_use(after);
    return after;
}

static void run_leftover(struct scenario_run *run)
{
    begin(run);
    for (uint32_t n = 20; n <= 24; n++) {
        stage(run, n, between(run, 1, 2), between(run, 1, 600));
    }
    commit(run);
    put(run, 30, 1, between(run, 1, 900));
    end(run);
}

static enum model_fate lose_first(void *ctx, size_t index, const struct model_item *item)
{
    bool *lost = ctx;
    (void)index;
    if (*lost || item->kind != MODEL_ITEM_DATA || strstr(item->path, "tail.ndjson") == NULL) {
        return MODEL_LANDED;
    }
    *lost = true;
    return MODEL_LOST;
}

/* A torn group of which all but the first batch is whole, and what follows has lines of the same
 * length and ids of the same millisecond: were the leftover not removed, its second batch would
 * stand behind the next group as if it belonged to it. */
static struct model *prepare_lookalike(struct scenario_run *run, enum model_order order)
{
    struct model_options o = {.order = order, .seed = kit_chance(&run->chance)};
    struct model *m = model_new(&o);
    bool lost = false;
    struct err e;
    model_use(m);
    begin(run);
    put(run, 10, 1, between(run, 1, 900));
    for (uint32_t n = 11; n <= 15; n++) {
        stage(run, n, 1, 700);
    }
    model_die_at(m, model_calls(m) + 2);
    int r = kit_commit(run->j, &run->ledger, &e);
    ensure(r == ERR_WRITER_POISONED);
    struct model_choice choice = {.how = MODEL_CUT_ASK, .ask = lose_first, .ctx = &lost};
    struct model *after = model_crash(m, &choice);
    (void)journal_close(run->j, &e);
    run->j = NULL;
    model_free(m);
    model_use(after);
    return after;
}

static void run_lookalike(struct scenario_run *run)
{
    begin(run);
    for (uint32_t n = 21; n <= 23; n += 2) { /* odd, as 11: alike in every length */
        put(run, n, 1, 700);
    }
    end(run);
}

/* The disk is full: a ballast beside the data leaves room for little. */
static struct model *prepare_full(struct scenario_run *run, enum model_order order)
{
    struct model_options o = {
        .order = order, .seed = kit_chance(&run->chance), .capacity_bytes = 768u << 10};
    struct model *m = model_new(&o);
    model_put(m, SCENARIO_BALLAST, "", 1);
    model_use(m);
    return m;
}

static void ballast(uint64_t bytes)
{
    static const char block[MODEL_BLOCK];
    int fd = os_open(SCENARIO_BALLAST, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return;
    }
    (void)os_ftruncate(fd, 0);
    for (uint64_t at = 0; at < bytes; at += sizeof block) {
        if (os_pwrite(fd, block, sizeof block, at) != (int64_t)sizeof block) {
            break;
        }
    }
    (void)os_close(fd);
}

static void run_full(struct scenario_run *run)
{
    begin(run);
    put(run, 1, 2, 9000);
    put(run, 2, 2, 9000);
    put(run, 3, 2, 9000);
    ballast(768u << 10); /* the rest of the disk */
    for (uint32_t n = 4; n <= 9; n++) {
        put(run, n, 2, 8000 + n * 99); /* a rotation is possible, a new spare is not */
    }
    end(run);
    begin(run); /* with a full disk */
    put(run, 20, 1, 10);
    ballast(0);
    if (run->j != NULL) {
        model_clock_advance(model_in_use(), UINT64_C(2000000000));
        journal_tick(run->j);
    }
    for (uint32_t n = 4; n <= 12; n++) {
        put(run, n, 2, 8000 + n * 99);
    }
    end(run);
}

/* A write that is cut short and then fails for want of space, and is undone. */
static void undo_on_call(struct scenario_run *run, struct model *m, const struct model_call *call)
{
    static const struct fault cut = {.kind = FAULT_SHORT, .call = OS_CALL_pwrite, .at = 1};
    static const struct fault full = {
        .kind = FAULT_ERROR, .error = ENOSPC, .call = OS_CALL_pwrite, .at = 1};
    if (run->script > 0 && call->call == OS_CALL_pwrite) {
        model_fault_arm(m, run->script == 2 ? &cut : &full);
        run->script--;
    }
}

static void run_undo(struct scenario_run *run)
{
    begin(run);
    put(run, 1, 1, between(run, 1, 900));
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t n = 10; n <= 13; n++) {
            stage(run, n + round * 10, between(run, 1, 2), between(run, 1, 600));
        }
        run->script = 2;
        commit(run);
        run->script = 0;
        again(run, 10 + round * 10);
        put(run, 40 + round, 1, between(run, 1, 900));
    }
    end(run);
}

/* Rotations after which the next spare cannot be made at once, so that nothing else of it syncs the
 * directory before the new tail is acknowledged from. */
static void nospare_on_call(struct scenario_run *run, struct model *m,
                            const struct model_call *call)
{
    static const struct fault full = {
        .kind = FAULT_ERROR, .error = ENOSPC, .call = OS_CALL_open, .path = "tail.next", .at = 1};
    if (call->call == OS_CALL_open && strstr(call->path, "tail.next") != NULL) {
        /* The first is the open's, then each rotation takes one and fails to make one. */
        model_fault_arm(m, run->script % 2 == 1 ? &full : NULL);
        run->script++;
    }
}

static void run_nospare(struct scenario_run *run)
{
    begin(run);
    for (uint32_t n = 1; n <= 6; n++) {
        put(run, n, 1, between(run, 30000, 40000));
        put(run, n + 20, 1, between(run, 1, 500));
    }
    end(run);
}

/* Enough generations for the index to merge its runs. */
static void run_merge(struct scenario_run *run)
{
    begin(run);
    for (uint32_t n = 1; n <= 11; n++) {
        put(run, n, 1, between(run, 33000, 36000));
        if (n == 5) {
            end(run);
            begin(run);
        }
    }
    end(run);
}

/* Seals what is closed; a failure is an answer. */
static void seal(struct scenario_run *run, uint32_t keep)
{
    struct err e;
    if (run->j != NULL) {
        (void)!journal_seal(run->j, keep, NULL, NULL, &e);
    }
}

/* Generations are sealed between appends, one by one and together, and the tail is closed for it.
 */
static void run_seal(struct scenario_run *run)
{
    struct err e;
    begin(run);
    for (uint32_t n = 1; n <= 5; n++) {
        put(run, n, 1, between(run, 20000, 30000));
        if (n == 4) {
            seal(run, 0);
        }
    }
    end(run);
    begin(run);
    put(run, 6, 2, between(run, 1, 500));
    if (run->j != NULL) {
        react(run, journal_close_tail(run->j, &e));
    }
    put(run, 7, 1, between(run, 1, 500));
    seal(run, 1);
    seal(run, 0);
    again(run, 1);
    again(run, 6);
    put(run, 8, 1, between(run, 1, 900));
    end(run);
}

/* Sources are retired: alone, in a group with what comes before and behind, with a repeat in the
 * same group; and what the next process knows of it, from the tail and from a closed generation. */
static void run_retire(struct scenario_run *run)
{
    begin(run);
    put(run, 1, 1, between(run, 1, 900));
    put(run, 2, 1, between(run, 1, 900));
    stage(run, 4, between(run, 1, 2), between(run, 1, 400));
    retire(run, 0);
    stage(run, 6, 1, 100); /* too late */
    retire(run, 0);
    stage(run, 3, 1, between(run, 1, 400));
    commit(run);
    again(run, 4);
    put(run, 8, 1, 100);
    end(run);
    begin(run);
    put(run, 10, 1, 100);
    put(run, 5, 2, between(run, 30000, 33000)); /* and the generation is full */
    put(run, 7, 1, between(run, 1, 900));
    end(run);
    begin(run);
    put(run, 12, 1, 100);
    retire(run, 1);
    commit(run);
    retire(run, 0);
    put(run, 9, 1, 100);
    end(run);
}

const struct scenario scenarios[] = {
    {"singles", run_singles, NULL, NULL, 8, 64},
    {"groups", run_groups, NULL, NULL, 10, 512},
    {"rotation", run_rotation, NULL, NULL, 8, 64},
    {"big", run_big, NULL, NULL, 8, 64},
    {"reopen", run_reopen, NULL, NULL, 8, 128},
    {"leftover", run_leftover, prepare_leftover, NULL, 10, 512},
    {"lookalike", run_lookalike, prepare_lookalike, NULL, 10, 64},
    {"full", run_full, prepare_full, NULL, 8, 24},
    {"undo", run_undo, NULL, undo_on_call, 10, 256},
    {"nospare", run_nospare, NULL, nospare_on_call, 8, 64},
    {"merge", run_merge, NULL, NULL, 6, 12},
    {"seal", run_seal, NULL, NULL, 8, 24},
    {"retire", run_retire, NULL, NULL, 8, 64},
};
const unsigned scenario_count = sizeof scenarios / sizeof *scenarios;

struct model *scenario_start(const struct scenario *s, struct scenario_run *run, uint64_t seed,
                             enum model_order order)
{
    *run = (struct scenario_run){.chance = kit_mix(seed)};
    if (s->prepare != NULL) {
        return s->prepare(run, order);
    }
    struct model_options o = {.order = order, .seed = kit_chance(&run->chance)};
    struct model *m = model_new(&o);
    model_use(m);
    return m;
}
