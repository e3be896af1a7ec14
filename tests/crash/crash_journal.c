/* Crash states, exhaustively (docs/CRASH.md): lives of a journal on the model disk, the power cut
 * at every call to the disk, with every subset of what was pending, or seeded ones where there are
 * too many, and the process killed there; each disk that is left is opened, held against what had
 * been acknowledged, appended to, and opened again. While it is opened the power is cut again, up
 * to three times in all.
 *
 *   crash_journal [--states N] [--seed S] [--minutes M] [--scenario NAME] [--repro LINE] [-v]
 *
 * Rounds with seeds S, S + 1, ... go through all scenarios and both orders of directory entries,
 * until N distinct disks have been seen or M minutes are over (then it fails); in every second
 * round sectors may also be torn inside. A violation prints a line that --repro takes back. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "tests/lib/journal_scenarios.h"
#include "tests/lib/seen_set.h"

#define DEPTH_MAX      3
#define VIOLATIONS_MAX 5
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
    const struct scenario *scenario;
    uint64_t scenario_seed;
    enum model_order order;
    enum model_torn torn; /* what becomes of lost sectors, beside staying old */
    struct cut path[DEPTH_MAX];
    /* results */
    struct seen_set images; /* scenario and disk */
    struct seen_set seen;   /* the same and the ledger: need not be looked at twice */
    uint64_t recoveries, cuts, deep[DEPTH_MAX + 1];
    unsigned violations;
};

/* A disk that runs, at some depth: 0 is the scenario, 1 the recovery after the first cut, ... */
struct level {
    struct test *t;
    unsigned depth;
    struct scenario_run *run;  /* depth 0 */
    struct kit_ledger *ledger; /* as of now */
    uint64_t chance;
    bool changed; /* since the last cut here */
};

/* ---- telling ---- */

static uint64_t ledger_hash(const struct kit_ledger *l)
{
    uint64_t h = l->frontier_count;
    for (uint32_t i = 0; i < l->count; i++) {
        h = kit_mix(h ^ ((uint64_t)l->entries[i].spec.number << 8 | l->entries[i].state));
    }
    return h;
}

static void print_line(const struct test *t, unsigned depth)
{
    printf("%s,%s,%" PRIu64, t->scenario->name, t->order == MODEL_ORDERED ? "ordered" : "reordered",
           t->scenario_seed);
    for (unsigned i = 0; i < depth; i++) {
        const struct model_choice *c = &t->path[i].choice;
        printf(",%" PRIu64 ":%d:%" PRIx64 ":%" PRIx64 ":%d", t->path[i].call, (int)c->how, c->mask,
               c->seed, (int)c->torn);
    }
    printf("\n");
}

static void violation(struct test *t, unsigned depth, const char *what, const char *why)
{
    t->violations++;
    printf("VIOLATION %s: %s\n  --repro ", what, why);
    print_line(t, depth);
    if (t->verbose && t->repro && model_in_use() != NULL) {
        model_trace_print(model_in_use(), stdout);
    }
    (void)fflush(stdout);
}

/* ---- one state ---- */

static void cut_hook(void *ctx, struct model *m, const struct model_call *call);

struct steps {
    struct test *t;
    struct kit_ledger ledger;
    unsigned depth;
    char why[KIT_WHY];
};

static bool say(struct steps *s, const char *what)
{
    violation(s->t, s->depth, what, s->why);
    return false;
}

static bool open_and_check(struct steps *s, struct model *m, struct level *level,
                           struct journal **out)
{
    struct err e = {0};
    struct journal_status st;
    if (level != NULL) {
        model_set_hook(m, cut_hook, level);
    }
    int r = journal_open(SCENARIO_DIR, &scenario_options, out, &e);
    model_set_hook(m, NULL, NULL);
    s->t->recoveries++;
    if (r != 0) {
        (void)snprintf(s->why, sizeof s->why, "%s: %s", err_name(r), e.text);
        *out = NULL;
        return say(s, "open");
    }
    journal_get_status(*out, &st);
    if (st.poisoned) {
        (void)snprintf(s->why, sizeof s->why, "%.200s", st.cause);
        return say(s, "opened read-only");
    }
    return kit_check(*out, &s->ledger, true, s->why) ? true : say(s, "after open");
}

/* Before recovery verify must already find the disk in order, if there is a journal. */
static bool verify_raw(struct steps *s)
{
    struct verify_report rep;
    struct err e = {0};
    int r = verify_journal(SCENARIO_DIR, NULL, NULL, &rep, &e);
    if (r == ERR_NOT_FOUND && s->ledger.frontier_count == 0) {
        return true;
    }
    bool ok = r == 0 && rep.ok;
    if (r != 0) {
        (void)snprintf(s->why, sizeof s->why, "%s: %s", err_name(r), e.text);
    } else {
        (void)snprintf(s->why, sizeof s->why, "%.200s: %s", rep.fault_file, rep.fault_text);
        verify_report_free(&rep);
    }
    return ok ? true : say(s, "verify before recovery");
}

static bool append_and_check(struct steps *s, struct journal *j)
{
    struct err e = {0};
    /* A scenario may have left the disk full. */
    (void)os_unlink(SCENARIO_BALLAST);
    model_clock_advance(model_in_use(), UINT64_C(2000000000));
    journal_tick(j);
    if (!kit_check_retries(j, &s->ledger, KIT_BATCHES_MAX, s->why)) {
        return say(s, "sent again");
    }
    if (kit_put(j, &s->ledger, (struct kit_spec){1000 + s->depth, 1, 100}, &e) != 0) {
        (void)snprintf(s->why, sizeof s->why, "%s", e.text);
        return say(s, "append after recovery");
    }
    return kit_check(j, &s->ledger, false, s->why) ? true : say(s, "after appends");
}

/* The second end: a clean close, or another loss of power with everything unsynced lost. */
static bool end_again(struct steps *s, struct journal *j, struct model **m, bool clean)
{
    struct err e = {0};
    if (clean) {
        struct journal_frontier f;
        journal_get_frontier(j, &f);
        if (journal_close(j, &e) != 0) {
            (void)snprintf(s->why, sizeof s->why, "%s", e.text);
            return say(s, "close");
        }
        return kit_check_verify(SCENARIO_DIR, &f, true, s->why) ? true
                                                                : say(s, "after a clean close");
    }
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *after = model_crash(*m, &none);
    (void)journal_close(j, &e);
    model_free(*m);
    *m = after;
    model_use(after);
    return true;
}

/* Opened, then the power goes before anything else was written: what was found must be there again,
 * or an answer that was given meanwhile would have been wrong. */
static bool open_twice(struct steps *s, struct model **m, struct level *level, struct journal **j)
{
    if (!open_and_check(s, *m, level, j)) {
        return false;
    }
    struct journal *first = *j;
    *j = NULL;
    return end_again(s, first, m, false) && open_and_check(s, *m, NULL, j);
}

static void check_state(struct test *t, struct model *m, const struct kit_ledger *ledger,
                        unsigned depth, uint64_t hash, bool killed)
{
    struct steps s = {.t = t, .ledger = *ledger, .depth = depth};
    struct level level = {.t = t, .depth = depth, .ledger = &s.ledger, .chance = hash};
    struct journal *j = NULL;
    struct err e;
    kit_forget_group(&s.ledger);
    t->deep[depth]++;
    model_use(m);
    bool ok = hash % 4 != 0 || verify_raw(&s);
    struct level *cut = depth < DEPTH_MAX ? &level : NULL;
    ok = ok &&
         (killed || hash % 8 == 1 ? open_twice(&s, &m, cut, &j) : open_and_check(&s, m, cut, &j));
    ok = ok && append_and_check(&s, j);
    if (ok) {
        ok = end_again(&s, j, &m, hash % 3 == 0);
        j = NULL;
    }
    ok = ok && open_and_check(&s, m, NULL, &j);
    if (j != NULL) {
        (void)journal_close(j, &e);
    }
    model_free(m);
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
    if (!seen_add(&t->seen, kit_mix(hash ^ ledger_hash(lv->ledger) ^ killed)) && !t->repro) {
        model_free(after);
        return;
    }
    check_state(t, after, lv->ledger, lv->depth + 1, hash, killed);
}

static bool changes(const struct model_call *call)
{
    switch ((int)call->call) {
    case OS_CALL_pread:
    case OS_CALL_fstat:
    case OS_CALL_stat:
    case OS_CALL_list:
    case OS_CALL_flock:
    case OS_CALL_close:
    case OS_CALL_drop_cache:
    case OS_CALL_free_space:
        return false;
    default:
        return true;
    }
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
    if (lv->depth > 0 && kit_chance(&lv->chance) % 48 != 0) {
        return;
    }
    struct model_crashes it;
    t->cuts++;
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
    if (lv->run != NULL && lv->t->scenario->on_call != NULL) {
        lv->t->scenario->on_call(lv->run, m, call);
    }
    /* Between two calls that change nothing the disk is the same. */
    if ((lv->changed || lv->t->repro) && !over(lv->t)) {
        model_set_hook(m, NULL, NULL);
        cut_here(lv, m, call->number);
        model_set_hook(m, cut_hook, lv);
    }
    lv->changed = changes(call);
}

static void run_scenario(struct test *t, const struct scenario *s, uint64_t seed,
                         enum model_order order)
{
    struct scenario_run run;
    struct level lv = {.t = t, .run = &run, .ledger = &run.ledger, .changed = true};
    char why[KIT_WHY];
    t->scenario = s;
    t->scenario_seed = seed;
    t->order = order;
    struct model *m = scenario_start(s, &run, seed, order);
    model_set_hook(m, cut_hook, &lv);
    s->run(&run);
    model_set_hook(m, NULL, NULL);
    if (!over(t)) {
        cut_here(&lv, m, model_calls(m) + 1);
    }
    if (run.ended || run.ledger.lie[0] != '\0') {
        (void)snprintf(why, sizeof why, "%.250s",
                       run.ended ? "it could not be opened" : run.ledger.lie);
        violation(t, 0, "scenario", why);
    }
    model_use(m);
    model_free(m);
}

/* ---- arguments ---- */

static int usage(void)
{
    printf("usage: crash_journal [--states N] [--seed S] [--minutes M] [--scenario NAME] "
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
    for (unsigned i = 0; i < scenario_count; i++) {
        if (strcmp(scenarios[i].name, name) == 0) {
            t->scenario = &scenarios[i];
        }
    }
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

static bool more_to_do(const struct test *t, uint64_t started_ns)
{
    return !over(t) && t->images.count < t->states_wanted &&
           os_real.clock_mono_ns() - started_ns < t->minutes * UINT64_C(60000000000);
}

static void rounds(struct test *t)
{
    uint64_t started = os_real.clock_mono_ns();
    for (uint64_t round = 0; more_to_do(t, started); round++) {
        for (unsigned i = 0; i < scenario_count && more_to_do(t, started); i++) {
            size_t before = t->images.count;
            uint64_t recoveries = t->recoveries;
            uint64_t from = os_real.clock_mono_ns();
            if (t->only != NULL && strcmp(t->only, scenarios[i].name) != 0) {
                continue;
            }
            t->torn = round % 2 == 1 ? MODEL_TORN_MIX : MODEL_WHOLE;
            run_scenario(t, &scenarios[i], t->seed + round, MODEL_REORDERED);
            run_scenario(t, &scenarios[i], t->seed + round, MODEL_ORDERED);
            if (t->verbose) {
                printf("%-9s %7zu new states, %7" PRIu64 " recoveries, %.1f s\n", scenarios[i].name,
                       t->images.count - before, t->recoveries - recoveries,
                       (double)(os_real.clock_mono_ns() - from) / 1e9);
                (void)fflush(stdout);
            }
        }
    }
}

int main(int argc, char **argv)
{
    static struct test t = {.states_wanted = 100000, .seed = 1, .minutes = 8};
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
    printf("crash: cuts at depth 1: %" PRIu64 ", 2: %" PRIu64 ", 3: %" PRIu64 "\n", t.deep[1],
           t.deep[2], t.deep[3]);
    printf("crash: %zu distinct states, %" PRIu64 " recoveries, seed %" PRIu64 ", %u violations\n",
           t.images.count, t.recoveries, t.seed, t.violations);
    bool enough = t.images.count >= t.states_wanted;
    if (t.violations == 0 && !enough) {
        printf("crash: %" PRIu64 " states were wanted\n", t.states_wanted);
    }
    seen_free(&t.images);
    seen_free(&t.seen);
    return t.violations > 0 || !enough;
}
