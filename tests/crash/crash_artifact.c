/* Crash states of uploads, packages and purges, exhaustively (docs/CRASH.md): lives on the model
 * disk, the power cut at every call to the disk with every subset of what was pending (seeded ones
 * where there are too many), and the process killed there. Each disk that is left is held against
 * what had been told, opened, looked at, finished. While it is opened the power is cut again, up to
 * three times in all. At every call of the run a stranger asks for the receipts.
 *
 *   crash_artifact [--states N] [--step K] [--seed S] [--minutes M] [--scenario NAME] [-v]
 *
 * Rounds with seeds S, S + 1, ... go through all scenarios and both orders of directory entries,
 * until N distinct disks have been seen, the first round to its end. Then every K-th call of each
 * scenario fails, in every way, and the power is cut at the end. Last, three disks that lie (about
 * the syncs of files, about those of directories, about their order) must each be noticed. A
 * violation prints scenario, seed and cuts; the same arguments give it again. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "tests/lib/artifact_kit.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/seen_set.h"

#define DEPTH_MAX      3
#define VIOLATIONS_MAX 5
#define EXHAUSTIVE_MAX 6
#define SAMPLES        24
#define KILLED         MODEL_CUT_ASK /* no power cut: the process alone is gone, the cache is not */

struct test {
    uint64_t states_wanted, seed, minutes, step;
    const char *only;
    bool verbose;
    bool quiet; /* violations are wanted */
    const struct akit_scenario *scenario;
    uint64_t scenario_seed;
    enum model_order order;
    enum model_torn torn;
    char cuts[DEPTH_MAX][96];
    struct seen_set images; /* scenario and disk */
    struct seen_set seen;   /* the same and the ledger */
    uint64_t recoveries, faults, deep[DEPTH_MAX + 1];
    unsigned violations;
};

/* A disk that runs, at some depth: 0 is the scenario, 1 the start after the first cut, ... */
struct level {
    struct test *t;
    unsigned depth;
    struct akit *kit;
    uint64_t chance;
    bool changed;
};

static bool over(const struct test *t)
{
    return t->violations >= VIOLATIONS_MAX;
}

static void violation(struct test *t, unsigned depth, const struct akit *k)
{
    t->violations++;
    if (t->quiet) {
        return;
    }
    printf("VIOLATION %s\n  --scenario %s --seed %" PRIu64 " %s", k->lie, t->scenario->name,
           t->scenario_seed, t->order == MODEL_ORDERED ? "ordered" : "reordered");
    for (unsigned i = 0; i < depth; i++) {
        printf(", %s", t->cuts[i]);
    }
    printf("\n");
    if (t->verbose && model_in_use() != NULL) {
        model_trace_print(model_in_use(), stdout);
    }
    (void)fflush(stdout);
}

/* ---- one state ---- */

static void cut_hook(void *ctx, struct model *m, const struct model_call *call);

/* Opened again with everything unsynced lost: what the first start told must hold. */
static bool start_again(struct akit *k, struct model **m)
{
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *after = model_crash(*m, &none);
    akit_end(k); /* closes nothing on the disk */
    model_free(*m);
    *m = after;
    model_use(after);
    return akit_check_disk(after, k) && akit_check_start(k);
}

static void check_state(struct test *t, struct model *m, const struct akit *ledger, unsigned depth,
                        uint64_t hash)
{
    struct akit k = *ledger;
    struct level level = {.t = t, .depth = depth, .kit = &k, .chance = hash, .changed = true};
    k.us = NULL;
    t->deep[depth]++;
    t->recoveries++;
    model_use(m);
    bool ok = akit_check_disk(m, &k);
    if (ok) {
        if (depth < DEPTH_MAX) {
            model_set_hook(m, cut_hook, &level);
        }
        ok = akit_check_start(&k);
        model_set_hook(m, NULL, NULL);
    }
    ok = ok && (hash % 4 != 0 || start_again(&k, &m));
    ok = ok && akit_finish(&k);
    if (ok && hash % 4 == 1) {
        ok = start_again(&k, &m);
    }
    if (!ok) {
        violation(t, depth, &k);
    }
    akit_end(&k);
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

static void try_state(struct level *lv, struct model *after, uint64_t call, const char *what)
{
    struct test *t = lv->t;
    uint64_t hash = kit_mix(model_hash(after) ^ name_hash(t));
    (void)snprintf(t->cuts[lv->depth], sizeof t->cuts[0], "call %" PRIu64 " %.70s", call, what);
    (void)seen_add(&t->images, hash);
    if (!seen_add(&t->seen, kit_mix(hash ^ akit_hash(lv->kit) ^ (what[0] == 'k')))) {
        model_free(after);
        return;
    }
    check_state(t, after, lv->kit, lv->depth + 1, hash);
}

static void cut_here(struct level *lv, struct model *m, uint64_t call)
{
    struct test *t = lv->t;
    struct model_crashes it;
    struct model *after;
    bool first = lv->depth == 0;
    /* Starts are cut at few calls, with few subsets: they are many. */
    if (!first && kit_chance(&lv->chance) % 24 != 0) {
        return;
    }
    model_crashes_begin(&it, m, first ? EXHAUSTIVE_MAX : 1, first ? SAMPLES : 1,
                        kit_mix(t->scenario_seed ^ call << 20 ^ lv->depth));
    it.torn = first ? t->torn : MODEL_WHOLE;
    while (!over(t) && (after = model_crashes_next(&it)) != NULL) {
        try_state(lv, after, call, it.text);
    }
    if (!over(t) && (first || kit_chance(&lv->chance) % 4 == 0)) {
        try_state(lv, model_snapshot(m), call, "killed");
    }
    model_use(m);
}

static bool changes(enum os_call call)
{
    switch ((int)call) {
    case OS_CALL_pread:
    case OS_CALL_fstat:
    case OS_CALL_stat:
    case OS_CALL_list:
    case OS_CALL_close:
    case OS_CALL_drop_cache:
        return false;
    default:
        return true;
    }
}

static void cut_hook(void *ctx, struct model *m, const struct model_call *call)
{
    struct level *lv = ctx;
    const struct os_table *table = os_current();
    if (lv->changed && !over(lv->t)) {
        model_set_hook(m, NULL, NULL);
        if (lv->kit->us != NULL) {
            akit_ask(lv->kit);
        }
        cut_here(lv, m, call->number);
        os_install(table);
        model_set_hook(m, cut_hook, lv);
    }
    lv->changed = changes(call->call);
}

/* sabotage: a table over the disk's, or NULL. */
static void run_scenario(struct test *t, const struct akit_scenario *s, uint64_t seed,
                         enum model_order order, void (*sabotage)(struct model *m))
{
    static struct akit k;
    struct level lv = {.t = t, .kit = &k, .changed = true};
    t->scenario = s;
    t->scenario_seed = seed;
    t->order = order;
    struct model *m = akit_disk(seed, order);
    k.us = NULL;
    memset(&k, 0, sizeof k);
    if (sabotage != NULL) {
        sabotage(m);
    }
    model_set_hook(m, cut_hook, &lv);
    akit_run(&k, s, seed, false);
    model_set_hook(m, NULL, NULL);
    if (!over(t)) {
        cut_here(&lv, m, model_calls(m) + 1);
    }
    if (k.lie[0] != '\0') {
        violation(t, 0, &k);
    }
    model_use(m);
    model_free(m);
}

static bool wanted(const struct test *t, const struct akit_scenario *s)
{
    return t->only == NULL || strcmp(t->only, s->name) == 0;
}

static bool more_to_do(const struct test *t, uint64_t started_ns)
{
    return !over(t) && t->images.count < t->states_wanted &&
           os_real.clock_mono_ns() - started_ns < t->minutes * UINT64_C(60000000000);
}

static void crash_rounds(struct test *t)
{
    uint64_t started = os_real.clock_mono_ns();
    for (uint64_t round = 0; round == 0 || more_to_do(t, started); round++) {
        for (unsigned i = 0; i < AKIT_SCENARIOS && !over(t); i++) {
            const struct akit_scenario *s = &akit_scenarios[i];
            size_t before = t->images.count;
            if (!wanted(t, s) || (round > 0 && !more_to_do(t, started))) {
                continue;
            }
            t->torn = round % 2 == 1 ? MODEL_TORN_MIX : MODEL_WHOLE;
            run_scenario(t, s, t->seed + round, MODEL_REORDERED, NULL);
            run_scenario(t, s, t->seed + round, MODEL_ORDERED, NULL);
            if (t->verbose) {
                printf("%-14s %6zu new states\n", s->name, t->images.count - before);
                (void)fflush(stdout);
            }
        }
    }
}

/* ---- single faults ---- */

static const struct fault fault_kinds[] = {
    {.kind = FAULT_ERROR, .error = EIO},
    {.kind = FAULT_ERROR, .error = EIO, .sticky = true},
    {.kind = FAULT_ERROR_AFTER, .error = EIO},
    {.kind = FAULT_ERROR, .error = ENOSPC},
    {.kind = FAULT_ERROR, .error = ENOSPC, .sticky = true},
    {.kind = FAULT_ERROR, .error = EMFILE},
    {.kind = FAULT_SHORT},
};
#define FAULT_KINDS (sizeof fault_kinds / sizeof *fault_kinds)

static void ask_hook(void *ctx, struct model *m, const struct model_call *call)
{
    (void)call;
    model_set_hook(m, NULL, NULL);
    if (((struct akit *)ctx)->us != NULL && !model_dead(m)) {
        akit_ask(ctx);
    }
    model_set_hook(m, ask_hook, ctx);
}

/* One run with one fault; false when the run has fewer calls. */
static bool run_with_fault(struct test *t, const struct akit_scenario *s, uint64_t at,
                           const struct fault *kind)
{
    static struct akit k;
    struct fault fault = *kind;
    t->scenario = s;
    t->scenario_seed = t->seed;
    t->order = MODEL_REORDERED;
    struct model *m = akit_disk(t->seed, MODEL_REORDERED);
    memset(&k, 0, sizeof k);
    fault.at = at;
    model_fault_arm(m, &fault);
    /* With a lasting fault nobody asks: his calls would be the ones that fail. */
    akit_run(&k, s, t->seed, true);
    bool fired = model_fault_fired(m) > 0;
    model_fault_arm(m, NULL);
    (void)snprintf(t->cuts[0], sizeof t->cuts[0], "call %" PRIu64 " %s %d%s", at,
                   kind->kind == FAULT_SHORT ? "short" : "error", kind->error,
                   kind->sticky ? " for good" : "");
    if (k.lie[0] != '\0') {
        violation(t, 1, &k);
    }
    struct model_choice choices[] = {{.how = MODEL_CUT_NONE},
                                     {.how = MODEL_CUT_ALL},
                                     {.how = MODEL_CUT_RANDOM, .seed = kit_mix(at ^ t->seed)}};
    for (unsigned i = 0; fired && i < 3 && !over(t); i++) {
        check_state(t, model_crash(m, &choices[i]), &k, DEPTH_MAX, i);
    }
    if (fired && !over(t)) {
        check_state(t, model_snapshot(m), &k, DEPTH_MAX, 2);
    }
    model_free(m);
    return fired;
}

/* With a fault of one call, a stranger asks between all calls: his are not counted, the fault has
 * its path and number among the run's. */
static void run_asked(struct test *t, const struct akit_scenario *s)
{
    static struct akit k;
    struct model *m = akit_disk(t->seed, MODEL_ORDERED);
    memset(&k, 0, sizeof k);
    t->scenario = s;
    t->scenario_seed = t->seed;
    model_set_hook(m, ask_hook, &k);
    akit_run(&k, s, t->seed, false);
    model_set_hook(m, NULL, NULL);
    if (k.lie[0] != '\0') {
        violation(t, 0, &k);
    }
    model_free(m);
}

static void fault_rounds(struct test *t)
{
    for (unsigned i = 0; i < AKIT_SCENARIOS; i++) {
        const struct akit_scenario *s = &akit_scenarios[i];
        if (!wanted(t, s)) {
            continue;
        }
        run_asked(t, s);
        for (size_t kind = 0; kind < FAULT_KINDS; kind++) {
            uint64_t at = 1 + kind % t->step;
            while (!over(t) && run_with_fault(t, s, at, &fault_kinds[kind])) {
                t->faults++;
                at += t->step;
            }
        }
    }
}

/* ---- who tests the test ---- */

static void lie_about_files(struct model *m)
{
    model_lie(m, true, false);
}

static void lie_about_directories(struct model *m)
{
    model_lie(m, false, true);
}

/* The state is synced before the bytes it speaks of: their sync is put off until then. */
static struct os_table disordered;
static const struct os_table *ordered;
static int bytes_fd = -1, state_fd = -1, put_off_fd = -1;

static int disordered_open(const char *path, int flags, unsigned mode)
{
    int fd = ordered->open(path, flags, mode);
    if ((flags & O_ACCMODE) == O_RDWR && strstr(path, "/uploads/") != NULL) {
        *(strstr(path, ".state") != NULL ? &state_fd : &bytes_fd) = fd;
    }
    return fd;
}

static int disordered_fdatasync(int fd)
{
    if (fd == bytes_fd) {
        put_off_fd = fd;
        return 0;
    }
    int r = ordered->fdatasync(fd);
    if (fd == state_fd && put_off_fd >= 0) {
        (void)ordered->fdatasync(put_off_fd);
        put_off_fd = -1;
    }
    return r;
}

static void disorder(struct model *m)
{
    (void)m;
    ordered = os_current();
    disordered = *ordered;
    disordered.open = disordered_open;
    disordered.fdatasync = disordered_fdatasync;
    bytes_fd = -1;
    state_fd = -1;
    put_off_fd = -1;
    os_install(&disordered);
}

/* True when some scenario shows the lie. */
static bool noticed(const struct test *from, const char *name, void (*sabotage)(struct model *m))
{
    struct test t = {.seed = from->seed, .quiet = true};
    for (unsigned i = 0; i < AKIT_SCENARIOS && t.violations == 0; i++) {
        run_scenario(&t, &akit_scenarios[i], t.seed, MODEL_REORDERED, sabotage);
    }
    seen_free(&t.images);
    seen_free(&t.seen);
    if (t.violations == 0) {
        printf("crash: a disk that lies about %s was not noticed\n", name);
    }
    return t.violations > 0;
}

/* ---- arguments ---- */

static bool parse(struct test *t, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            t->verbose = true;
            continue;
        }
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value == NULL) {
            return false;
        }
        if (strcmp(argv[i], "--states") == 0) {
            t->states_wanted = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--step") == 0) {
            t->step = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--seed") == 0) {
            t->seed = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--minutes") == 0) {
            t->minutes = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--scenario") == 0) {
            t->only = value;
        } else {
            return false;
        }
        i++;
    }
    return t->step > 0;
}

int main(int argc, char **argv)
{
    static struct test t = {.states_wanted = 10000, .seed = 1, .minutes = 4, .step = 1};
    if (!parse(&t, argc, argv)) {
        printf("usage: crash_artifact [--states N] [--step K] [--seed S] [--minutes M] "
               "[--scenario NAME] [-v]\n");
        return 2;
    }
    log_set_level(LOG_ERROR + 1);
    crash_rounds(&t);
    fault_rounds(&t);
    bool honest = noticed(&t, "the syncs of files", lie_about_files);
    honest = noticed(&t, "the syncs of directories", lie_about_directories) && honest;
    honest = noticed(&t, "the order of bytes and state", disorder) && honest;
    printf("crash: artifacts: cuts at depth 1: %" PRIu64 ", 2: %" PRIu64 ", 3: %" PRIu64 "\n",
           t.deep[1], t.deep[2], t.deep[3]);
    printf("crash: artifacts: %zu distinct states, %" PRIu64 " single faults, %" PRIu64
           " starts, seed %" PRIu64 ", %u violations\n",
           t.images.count, t.faults, t.recoveries, t.seed, t.violations);
    bool enough = t.only != NULL || t.images.count >= t.states_wanted;
    if (t.violations == 0 && !enough) {
        printf("crash: %" PRIu64 " states were wanted\n", t.states_wanted);
    }
    seen_free(&t.images);
    seen_free(&t.seen);
    return t.violations > 0 || !enough || !honest;
}
