/* Crash states of tallyman.sqlite, exhaustively (docs/CRASH.md): lives of a store on the model
 * disk, with SQLite above it (tests/lib/os_vfs.h), the power cut at every call to the disk, with
 * every subset of what was pending, or seeded ones where there are too many, and the process killed
 * there. Each disk that is left is verified, opened, held against what had been told, sent
 * everything again, written to, and opened again. While it is opened the power is cut again, up to
 * three times in all.
 *
 *   crash_store [--states N] [--seed S] [--minutes M] [--scenario NAME] [--repro LINE] [-v]
 *
 * Rounds with seeds S, S + 1, ... go through all scenarios and both orders of directory entries,
 * until N distinct disks have been seen, the first round to its end, or M minutes are over (then it
 * fails); in every second round sectors may also be torn inside. A violation prints a line that
 * --repro takes back. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/os_vfs.h"
#include "tests/lib/seen_set.h"
#include "tests/lib/store_scenarios.h"

#define DEPTH_MAX      3
#define VIOLATIONS_MAX 5
#define EXTRA_EVENT    110           /* its numbers are no scenario's */
#define KILLED         MODEL_CUT_ASK /* no power cut: the process alone is gone, the cache is not */

/* One cut: before which call of its level, and what landed. */
struct cut {
    uint64_t call;
    struct model_choice choice;
};

struct test {
    /* arguments */
    uint64_t states_wanted, seed, minutes;
    const char *only;
    bool verbose;
    /* a single path to follow */
    bool repro;
    struct cut want[DEPTH_MAX];
    unsigned want_count;
    /* where we are */
    const struct store_scenario *scenario;
    uint64_t scenario_seed;
    enum model_order order;
    enum model_torn torn; /* what becomes of lost sectors, beside staying old */
    struct cut path[DEPTH_MAX];
    /* results */
    struct seen_set images; /* scenario and disk */
    struct seen_set seen;   /* the same and the ledger: need not be looked at twice */
    uint64_t recoveries, deep[DEPTH_MAX + 1];
    unsigned violations;
};

/* A disk that runs, at some depth: 0 is the scenario, 1 the recovery after the first cut, ... */
struct level {
    struct test *t;
    unsigned depth;
    struct skit_ledger *ledger; /* as of now */
    uint64_t chance;
    bool changed; /* since the last cut here */
};

/* ---- telling ---- */

static void violation(struct test *t, unsigned depth, const char *what, const char *why)
{
    t->violations++;
    printf("VIOLATION %s: %s\n  --repro %s,%s,%" PRIu64, what, why, t->scenario->name,
           t->order == MODEL_ORDERED ? "ordered" : "reordered", t->scenario_seed);
    for (unsigned i = 0; i < depth; i++) {
        const struct model_choice *c = &t->path[i].choice;
        printf(",%" PRIu64 ":%d:%" PRIx64 ":%" PRIx64 ":%d", t->path[i].call, (int)c->how, c->mask,
               c->seed, (int)c->torn);
    }
    printf("\n");
    if (t->verbose && t->repro && model_in_use() != NULL) {
        model_trace_print(model_in_use(), stdout);
    }
    (void)fflush(stdout);
}

/* ---- one state ---- */

static void cut_hook(void *ctx, struct model *m, const struct model_call *call);

struct steps {
    struct test *t;
    struct skit_ledger ledger;
    unsigned depth;
    char why[SKIT_WHY];
};

static bool say(struct steps *s, const char *what)
{
    violation(s->t, s->depth, what, s->why);
    return false;
}

static bool open_and_check(struct steps *s, struct model *m, struct level *level,
                           struct store **out)
{
    struct err e = {0};
    if (level != NULL) {
        model_set_hook(m, cut_hook, level);
    }
    int r = store_open(STORE_SCENARIO_DIR, &store_scenario_options, out, &e);
    model_set_hook(m, NULL, NULL);
    s->t->recoveries++;
    if (r != 0) {
        (void)snprintf(s->why, sizeof s->why, "%s: %s", err_name(r), e.text);
        *out = NULL;
        return say(s, "open");
    }
    return skit_check(*out, &s->ledger, true, s->why) ? true : say(s, "after open");
}

static bool write_and_check(struct steps *s, struct store *store)
{
    /* A scenario may have left the disk full. */
    (void)os_unlink(STORE_SCENARIO_BALLAST);
    model_clock_advance(model_in_use(), UINT64_C(2000000000));
    store_tick(store);
    for (uint32_t i = 0; i < SKIT_PROJECTS; i++) {
        if (s->ledger.project[i].state == SKIT_NONE) {
            (void)skit_one(store, &s->ledger, (struct skit_job){.kind = SKIT_PROJECT, .from = i});
        }
    }
    if (!skit_check_repeats(store, &s->ledger, s->why)) {
        return say(s, "sent again");
    }
    int code =
        skit_one(store, &s->ledger,
                 (struct skit_job){.kind = SKIT_PUT, .from = EXTRA_EVENT + s->depth, .count = 1});
    if (code != 0) {
        (void)snprintf(s->why, sizeof s->why, "%s", err_name(code));
        return say(s, "a job after recovery");
    }
    return skit_check(store, &s->ledger, false, s->why) ? true : say(s, "after a job");
}

/* The process is gone: what it had open goes with it, and the disk stands still. */
static void forget(struct model *m, struct store *store)
{
    struct err e;
    model_die_at(m, 1);
    int r = store_close(store, &e);
    (void)r; /* every call fails now */
    (void)os_vfs_process_new();
}

/* The second end: a clean close, or another loss of power with everything unsynced lost. */
static bool end_again(struct steps *s, struct store *store, struct model **m, bool clean)
{
    struct err e = {0};
    if (clean) {
        if (store_close(store, &e) != 0) {
            (void)snprintf(s->why, sizeof s->why, "%s", e.text);
            return say(s, "close");
        }
        (void)os_vfs_process_new();
        return skit_check_verify(STORE_SCENARIO_DIR, s->why) ? true : say(s, "after a clean close");
    }
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *after = model_crash(*m, &none);
    forget(*m, store);
    model_free(*m);
    *m = after;
    model_use(after);
    return true;
}

/* Opened, then the power goes before anything else was written: what was found must be there again,
 * or an answer that was given meanwhile would have been wrong. */
static bool open_twice(struct steps *s, struct model **m, struct level *level, struct store **out)
{
    if (!open_and_check(s, *m, level, out)) {
        return false;
    }
    struct store *first = *out;
    *out = NULL;
    return end_again(s, first, m, false) && open_and_check(s, *m, NULL, out);
}

static void check_state(struct test *t, struct model *m, const struct skit_ledger *ledger,
                        unsigned depth, uint64_t hash, bool killed)
{
    struct steps s = {.t = t, .ledger = *ledger, .depth = depth};
    struct level level = {.t = t, .depth = depth, .ledger = &s.ledger, .chance = hash};
    struct store *store = NULL;
    unsigned files = os_vfs_open_files();
    unsigned process = os_vfs_process_new();
    t->deep[depth]++;
    model_use(m);
    bool ok = hash % 4 != 0 || skit_check_verify(STORE_SCENARIO_DIR, s.why) ||
              say(&s, "verify before recovery");
    struct level *cut = depth < DEPTH_MAX ? &level : NULL;
    ok = ok && (killed || hash % 8 == 1 ? open_twice(&s, &m, cut, &store)
                                        : open_and_check(&s, m, cut, &store));
    if (ok && hash % 8 == 2) {
        ok = skit_check_selection(STORE_SCENARIO_DIR, &s.ledger, s.why) || say(&s, "selection");
    }
    ok = ok && write_and_check(&s, store);
    if (ok) {
        ok = end_again(&s, store, &m, hash % 3 == 0);
        store = NULL;
    }
    ok = ok && open_and_check(&s, m, NULL, &store);
    if (store != NULL) {
        forget(m, store);
    }
    model_free(m);
    os_vfs_process_set(process);
    ensure(!ok || os_vfs_open_files() == files);
}

/* ---- cutting ---- */

static uint64_t name_hash(const struct test *t)
{
    uint64_t h = 0;
    for (const char *p = t->scenario->name; *p != '\0'; p++) {
        h = kit_mix(h ^ (unsigned char)*p);
    }
    return h;
}

/* One cut of a level's disk: looked at unless it was before. */
static void try_state(struct level *lv, struct model *after, uint64_t call,
                      const struct model_choice *choice)
{
    struct test *t = lv->t;
    bool killed = choice->how == KILLED;
    uint64_t hash = kit_mix(model_hash(after) ^ name_hash(t));
    t->path[lv->depth] = (struct cut){call, *choice};
    (void)seen_add(&t->images, hash);
    if (!seen_add(&t->seen, kit_mix(hash ^ skit_ledger_hash(lv->ledger) ^ killed)) && !t->repro) {
        model_free(after);
        return;
    }
    check_state(t, after, lv->ledger, lv->depth + 1, hash, killed);
}

static bool over(const struct test *t)
{
    return t->violations >= VIOLATIONS_MAX;
}

static void cut_here(struct level *lv, struct model *m, uint64_t call)
{
    struct test *t = lv->t;
    struct model *after;
    if (t->repro) {
        if (lv->depth < t->want_count && t->want[lv->depth].call == call) {
            const struct model_choice *choice = &t->want[lv->depth].choice;
            try_state(lv, choice->how == KILLED ? model_snapshot(m) : model_crash(m, choice), call,
                      choice);
            model_use(m);
        }
        return;
    }
    /* Recoveries are cut at few calls, with few subsets: they are many. */
    if (lv->depth > 0 && kit_chance(&lv->chance) % 96 != 0) {
        return;
    }
    struct model_crashes it;
    model_crashes_begin(&it, m, lv->depth == 0 ? t->scenario->exhaustive_max : 1,
                        lv->depth == 0 ? t->scenario->samples : 1,
                        kit_mix(t->scenario_seed ^ call << 20 ^ lv->depth));
    it.torn = lv->depth == 0 ? t->torn : MODEL_WHOLE;
    while (!over(t) && (after = model_crashes_next(&it)) != NULL) {
        try_state(lv, after, call, &it.choice);
    }
    struct model_choice killed = {.how = KILLED};
    if (!over(t) && (lv->depth == 0 || kit_chance(&lv->chance) % 4 == 0)) {
        try_state(lv, model_snapshot(m), call, &killed);
    }
    model_use(m);
}

static void cut_hook(void *ctx, struct model *m, const struct model_call *call)
{
    struct level *lv = ctx;
    /* Between two calls that change nothing the disk is the same. */
    if ((lv->changed || lv->t->repro) && !over(lv->t)) {
        model_set_hook(m, NULL, NULL);
        cut_here(lv, m, call->number);
        model_set_hook(m, cut_hook, lv);
    }
    lv->changed = store_call_changes(call);
    /* SQLite's chance is one for all processes that are played here: begun anew at every call, it
     * is the same whatever was tried in between. */
    sqlite3_randomness(0, NULL);
}

static void run_scenario(struct test *t, const struct store_scenario *s, uint64_t seed,
                         enum model_order order)
{
    struct store_run run;
    struct level lv = {.t = t, .ledger = &run.ledger, .changed = true};
    t->scenario = s;
    t->scenario_seed = seed;
    t->order = order;
    struct model *m = store_scenario_start(s, &run, seed, order);
    model_set_hook(m, cut_hook, &lv);
    s->run(&run);
    model_set_hook(m, NULL, NULL);
    if (!over(t)) {
        cut_here(&lv, m, model_calls(m) + 1);
    }
    if (run.ended || run.ledger.lie[0] != '\0') {
        violation(t, 0, "scenario", run.ended ? "it could not be opened" : run.ledger.lie);
    }
    model_use(m);
    model_free(m);
}

/* ---- arguments ---- */

static int usage(void)
{
    printf("usage: crash_store [--states N] [--seed S] [--minutes M] [--scenario NAME] "
           "[--repro LINE] [-v]\n");
    return 2;
}

static bool parse_cut(const char *text, struct cut *cut)
{
    int how;
    int torn;
    memset(cut, 0, sizeof *cut);
    if (sscanf(text, "%" SCNu64 ":%d:%" SCNx64 ":%" SCNx64 ":%d", &cut->call, &how,
               &cut->choice.mask, &cut->choice.seed, &torn) != 5 ||
        how < MODEL_CUT_NONE || how > KILLED || torn < MODEL_WHOLE || torn > MODEL_TORN_JUNK) {
        return false;
    }
    cut->choice.how = (unsigned)how;
    cut->choice.torn = (enum model_torn)torn;
    return true;
}

/* NAME,ORDER,SEED,CALL:HOW:MASK:SEED:TORN,... */
static bool parse_repro(struct test *t, char *line)
{
    const char *name = strtok(line, ",");
    const char *order = strtok(NULL, ",");
    const char *seed = strtok(NULL, ",");
    const char *text;
    if (seed == NULL) {
        return false;
    }
    t->scenario = store_scenario_find(name);
    t->order = strcmp(order, "ordered") == 0 ? MODEL_ORDERED : MODEL_REORDERED;
    t->scenario_seed = strtoull(seed, NULL, 10);
    while ((text = strtok(NULL, ",")) != NULL) {
        if (t->want_count == DEPTH_MAX || !parse_cut(text, &t->want[t->want_count])) {
            return false;
        }
        t->want_count++;
    }
    t->repro = true;
    return t->scenario != NULL;
}

static bool parse(struct test *t, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            t->verbose = true;
            continue;
        }
        char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value == NULL) {
            return false;
        }
        if (strcmp(argv[i], "--states") == 0) {
            t->states_wanted = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--seed") == 0) {
            t->seed = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--minutes") == 0) {
            t->minutes = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--scenario") == 0) {
            t->only = value;
        } else if (strcmp(argv[i], "--repro") != 0 || !parse_repro(t, value)) {
            return false;
        }
        i++;
    }
    return true;
}

/* The first round is finished whatever was found: each life is lived. */
static bool more_to_do(const struct test *t, uint64_t round, uint64_t started_ns)
{
    return !over(t) && (round == 0 || t->images.count < t->states_wanted) &&
           os_real.clock_mono_ns() - started_ns < t->minutes * UINT64_C(60000000000);
}

static void rounds(struct test *t)
{
    uint64_t started = os_real.clock_mono_ns();
    for (uint64_t round = 0; more_to_do(t, round, started); round++) {
        for (unsigned i = 0; i < store_scenario_count && more_to_do(t, round, started); i++) {
            const struct store_scenario *s = &store_scenarios[i];
            size_t before = t->images.count;
            uint64_t recoveries = t->recoveries;
            uint64_t from = os_real.clock_mono_ns();
            if (t->only != NULL && strcmp(t->only, s->name) != 0) {
                continue;
            }
            t->torn = round % 2 == 1 ? MODEL_TORN_MIX : MODEL_WHOLE;
            run_scenario(t, s, t->seed + round, MODEL_REORDERED);
            run_scenario(t, s, t->seed + round, MODEL_ORDERED);
            if (t->verbose) {
                printf("%-10s %7zu new states, %7" PRIu64 " recoveries, %.1f s\n", s->name,
                       t->images.count - before, t->recoveries - recoveries,
                       (double)(os_real.clock_mono_ns() - from) / 1e9);
                (void)fflush(stdout);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static struct test t = {.states_wanted = 20000, .seed = 1, .minutes = 4};
    if (!parse(&t, argc, argv)) {
        return usage();
    }
    if (!t.repro || !t.verbose) {
        log_set_level(LOG_ERROR + 1);
    }
    if (t.repro) {
        run_scenario(&t, t.scenario, t.scenario_seed, t.order);
        printf("crash: %u violations\n", t.violations);
        return t.violations > 0;
    }
    rounds(&t);
    printf("crash: store, cuts at depth 1: %" PRIu64 ", 2: %" PRIu64 ", 3: %" PRIu64 "\n",
           t.deep[1], t.deep[2], t.deep[3]);
    printf("crash: store, %zu distinct states, %" PRIu64 " recoveries, seed %" PRIu64
           ", %u violations\n",
           t.images.count, t.recoveries, t.seed, t.violations);
    bool enough = t.images.count >= t.states_wanted;
    if (t.violations == 0 && !enough) {
        printf("crash: %" PRIu64 " states were wanted\n", t.states_wanted);
    }
    seen_free(&t.images);
    seen_free(&t.seen);
    return t.violations > 0 || !enough;
}
