/* Single faults, exhaustively: each life of tests/lib/journal_scenarios.c once for every call it
 * makes to the disk and every way that call can fail, once or from there on.
 *
 *   crash_faults [--scenario NAME] [--seed S] [--step N] [--repro LINE] [-v]
 *
 * Whatever fails, no answer may be wrong, nothing may crash or leak (the suite runs this under ASan
 * too), reads go on, and when the fault is gone a new open finds everything that was acknowledged:
 * after a restart, and after a power cut that loses or keeps what was not synced. A sync that fails
 * loses its data as on Linux (tests/lib/modeldisk.h). --step N tries every N-th call only. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "tests/lib/journal_scenarios.h"

#define VIOLATIONS_MAX 5

struct way {
    const char *name;
    struct fault fault;
};

static const struct way ways[] = {
    {"EIO", {.kind = FAULT_ERROR, .error = EIO}},
    {"EIO-after", {.kind = FAULT_ERROR_AFTER, .error = EIO}},
    {"ENOSPC", {.kind = FAULT_ERROR, .error = ENOSPC}},
    {"EDQUOT", {.kind = FAULT_ERROR, .error = EDQUOT}},
    {"EMFILE", {.kind = FAULT_ERROR, .error = EMFILE}},
    {"ENOMEM", {.kind = FAULT_ERROR, .error = ENOMEM}},
    {"short", {.kind = FAULT_SHORT}},
};

struct test {
    const char *only;
    uint64_t seed, step;
    bool verbose;
    /* results */
    uint64_t runs, fired, opens;
    unsigned violations;
    /* now */
    const struct scenario *scenario;
    const struct way *way;
    uint64_t call;
    bool sticky;
};

static bool violation(struct test *t, const char *what, const char *why)
{
    t->violations++;
    printf("VIOLATION %s: %s\n  --repro %s,%" PRIu64 ",%s,%" PRIu64 ",%d\n", what, why,
           t->scenario->name, t->seed, t->way->name, t->call, t->sticky);
    if (t->verbose && model_in_use() != NULL) {
        model_trace_print(model_in_use(), stdout);
    }
    (void)fflush(stdout);
    return false;
}

static void make_room(struct journal *j)
{
    (void)os_unlink(SCENARIO_BALLAST);
    model_clock_advance(model_in_use(), UINT64_C(2000000000));
    journal_tick(j);
}

/* Opens and holds the journal against the ledger; *out NULL when it did not open. */
static bool open_and_check(struct test *t, struct kit_ledger *l, const char *what,
                           struct journal **out)
{
    struct err e = {0};
    struct journal_status st;
    char why[KIT_WHY];
    t->opens++;
    int r = journal_open(SCENARIO_DIR, &scenario_options, out, &e);
    if (r == ERR_NO_SPACE && l->frontier_count == 0) {
        /* A journal that was never made needs space; one with events must open without. */
        (void)os_unlink(SCENARIO_BALLAST);
        r = journal_open(SCENARIO_DIR, &scenario_options, out, &e);
    }
    if (r != 0) {
        *out = NULL;
        (void)snprintf(why, sizeof why, "open: %s: %s", err_name(r), e.text);
        return violation(t, what, why);
    }
    journal_get_status(*out, &st);
    if (st.poisoned) {
        (void)snprintf(why, sizeof why, "opened read-only: %s", st.cause);
        return violation(t, what, why);
    }
    return kit_check(*out, l, true, why) ? true : violation(t, what, why);
}

static bool append_and_check(struct test *t, struct kit_ledger *l, const char *what,
                             struct journal *j)
{
    char why[KIT_WHY];
    struct err e = {0};
    make_room(j);
    if (!kit_check_retries(j, l, KIT_BATCHES_MAX, why)) {
        return violation(t, what, why);
    }
    if (kit_put(j, l, (struct kit_spec){1000, 1, 100}, &e) != 0) {
        (void)snprintf(why, sizeof why, "append: %s", e.text);
        return violation(t, what, why);
    }
    return kit_check(j, l, false, why) ? true : violation(t, what, why);
}

/* The disk after the fault is gone: opened, appended to, cut, opened again. Takes m. */
static void check_disk(struct test *t, struct model *m, const struct kit_ledger *ledger,
                       const char *what)
{
    struct kit_ledger l = *ledger;
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct journal *j = NULL;
    struct journal_frontier f;
    char why[KIT_WHY];
    struct err e;
    model_use(m);
    kit_forget_group(&l);
    bool ok = open_and_check(t, &l, what, &j) && append_and_check(t, &l, what, j);
    struct model *after = model_crash(m, &none);
    if (j != NULL) {
        (void)journal_close(j, &e);
        j = NULL;
    }
    model_free(m);
    model_use(after);
    ok = ok && open_and_check(t, &l, "after a cut behind it", &j);
    if (j != NULL) {
        journal_get_frontier(j, &f);
        int r = journal_close(j, &e);
        if (ok && r != 0) {
            ok = violation(t, what, e.text);
        }
        if (ok && !kit_check_verify(SCENARIO_DIR, &f, true, why)) {
            (void)violation(t, what, why);
        }
    }
    model_free(after);
}

/* One life with one fault. */
static void run_once(struct test *t, uint64_t seed)
{
    struct scenario_run run;
    struct err e;
    char why[KIT_WHY];
    struct fault fault = t->way->fault;
    struct model *m = scenario_start(t->scenario, &run, seed, MODEL_REORDERED);
    fault.at = t->call;
    fault.sticky = t->sticky;
    run.check = !t->sticky;
    model_fault_arm(m, &fault);
    t->scenario->run(&run);
    t->fired += model_fault_fired(m) > 0;
    model_fault_arm(m, NULL);
    t->runs++;
    if (run.ledger.lie[0] != '\0') {
        (void)violation(t, "while the fault was there", run.ledger.lie);
    }
    /* A life ends with its journal closed; one that is open is read once more. */
    if (run.j != NULL) {
        if (!kit_check(run.j, &run.ledger, false, why)) {
            (void)violation(t, "reading with the fault gone", why);
        }
        (void)journal_close(run.j, &e);
    }
    static const struct {
        const char *name;
        struct model_choice choice;
    } cuts[] = {{"power cut, nothing landed", {.how = MODEL_CUT_NONE}},
                {"power cut, all landed", {.how = MODEL_CUT_ALL}},
                {"power cut, some landed", {.how = MODEL_CUT_RANDOM, .seed = 1}},
                {"power cut, others landed", {.how = MODEL_CUT_RANDOM, .seed = 2}}};
    check_disk(t, model_snapshot(m), &run.ledger, "restart");
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts && t->violations < VIOLATIONS_MAX; i++) {
        struct model_choice choice = cuts[i].choice;
        choice.seed ^= t->call << 8;
        /* Nothing pending: all cuts are the restart. */
        if (model_pending(m) > 0) {
            check_disk(t, model_crash(m, &choice), &run.ledger, cuts[i].name);
        }
    }
    model_use(m);
    model_free(m);
}

/* The calls of a life without faults, in order. */
struct calls {
    enum os_call kind[2048];
    uint64_t count;
};

static void note_call(void *ctx, struct model *m, const struct model_call *call)
{
    struct calls *c = ctx;
    (void)m;
    ensure(c->count < sizeof c->kind / sizeof *c->kind);
    c->kind[c->count++] = call->call;
}

static void list_calls(const struct scenario *s, uint64_t seed, struct calls *calls)
{
    struct scenario_run run;
    struct model *m = scenario_start(s, &run, seed, MODEL_REORDERED);
    calls->count = 0;
    model_set_hook(m, note_call, calls);
    s->run(&run);
    model_free(m);
}

/* Whether a call of this kind can fail in this way at all. */
static bool can_fail(enum os_call call, const struct way *way)
{
    bool data = call == OS_CALL_pread || call == OS_CALL_pwrite;
    bool opens = call == OS_CALL_open || call == OS_CALL_list;
    bool reads = call == OS_CALL_pread || call == OS_CALL_fstat || call == OS_CALL_stat ||
                 call == OS_CALL_list || call == OS_CALL_drop_cache || call == OS_CALL_flock;
    if (way->fault.kind == FAULT_SHORT) {
        return data;
    }
    if (way->fault.error == EMFILE) {
        return opens;
    }
    return !(reads && (way->fault.error == ENOSPC || way->fault.error == EDQUOT));
}

static void all_faults(struct test *t, const struct scenario *s)
{
    static struct calls calls;
    uint64_t runs = t->runs;
    uint64_t fired = t->fired;
    list_calls(s, t->seed, &calls);
    t->scenario = s;
    for (uint64_t call = 1; call <= calls.count; call += t->step) {
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            t->way = &ways[w];
            t->call = call;
            for (int sticky = 0; sticky < 2 && t->violations < VIOLATIONS_MAX; sticky++) {
                t->sticky = sticky == 1;
                if (can_fail(calls.kind[call - 1], t->way)) {
                    run_once(t, t->seed);
                }
            }
        }
    }
    printf("%-9s %4" PRIu64 " calls, %6" PRIu64 " runs, %6" PRIu64 " faults\n", s->name,
           calls.count, t->runs - runs, t->fired - fired);
    (void)fflush(stdout);
}

static const struct scenario *find_scenario(const char *name)
{
    for (unsigned i = 0; i < scenario_count; i++) {
        if (strcmp(scenarios[i].name, name) == 0) {
            return &scenarios[i];
        }
    }
    return NULL;
}

/* NAME,SEED,WAY,CALL,STICKY */
static int repro(struct test *t, char *line)
{
    const char *name = strtok(line, ",");
    const char *seed = strtok(NULL, ",");
    const char *way = strtok(NULL, ",");
    const char *call = strtok(NULL, ",");
    const char *sticky = strtok(NULL, ",");
    t->scenario = sticky == NULL ? NULL : find_scenario(name);
    for (size_t w = 0; w < sizeof ways / sizeof *ways && t->scenario != NULL; w++) {
        if (strcmp(ways[w].name, way) == 0) {
            t->way = &ways[w];
        }
    }
    if (t->way == NULL) {
        return 2;
    }
    t->seed = strtoull(seed, NULL, 10);
    t->call = strtoull(call, NULL, 10);
    t->sticky = *sticky == '1';
    run_once(t, t->seed);
    printf("faults: %u violations\n", t->violations);
    return t->violations > 0;
}

int main(int argc, char **argv)
{
    struct test t = {.seed = 1, .step = 1};
    char *line = NULL;
    log_set_level(LOG_ERROR + 1);
    for (int i = 1; i < argc; i++) {
        char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "-v") == 0) {
            t.verbose = true;
            continue;
        }
        if (value != NULL && strcmp(argv[i], "--scenario") == 0) {
            t.only = value;
        } else if (value != NULL && strcmp(argv[i], "--seed") == 0) {
            t.seed = strtoull(value, NULL, 0);
        } else if (value != NULL && strcmp(argv[i], "--step") == 0) {
            t.step = strtoull(value, NULL, 0);
        } else if (value != NULL && strcmp(argv[i], "--repro") == 0) {
            line = value;
        } else {
            printf("usage: crash_faults [--scenario NAME] [--seed S] [--step N] [--repro LINE] "
                   "[-v]\n");
            return 2;
        }
        i++;
    }
    if (line != NULL) {
        return repro(&t, line);
    }
    t.step = t.step == 0 ? 1 : t.step;
    for (unsigned i = 0; i < scenario_count && t.violations < VIOLATIONS_MAX; i++) {
        /* Those that bring their own faults are for crash_journal. */
        bool own = scenarios[i].on_call != NULL;
        if (t.only == NULL ? !own : strcmp(t.only, scenarios[i].name) == 0) {
            all_faults(&t, &scenarios[i]);
        }
    }
    printf("faults: %" PRIu64 " runs, %" PRIu64 " with the fault met, %" PRIu64
           " opens, seed %" PRIu64 ", %u violations\n",
           t.runs, t.fired, t.opens, t.seed, t.violations);
    return t.violations > 0;
}
