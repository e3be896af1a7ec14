/* test_store_faults: single faults under SQLite. What a failed write, sync, checkpoint or a full
 * disk means to those who wait, and then the lives of tests/lib/store_scenarios.c, once for every
 * call they make to the disk and every way that it can fail, once or from there on: no answer is
 * wrong, nothing crashes or leaks, and when the fault is gone a new open finds all that was told,
 * after a restart and after a power cut. A sync that fails loses its data, as on Linux.
 *
 *   STEP=N      every N-th call only (default 19; scripts/crash: 1)
 *   REPRO=NAME,WAY,STICKY,CALL   one run, loudly */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "os/os.h"
#include "tests/lib/os_vfs.h"
#include "tests/lib/store_scenarios.h"

#define EXTRA_EVENT 110

/* ---- one fault, looked at closely ---- */

struct life {
    struct store_run run;
    struct model *m;
};

static void life_begin(struct life *l)
{
    struct err e;
    l->m = store_scenario_start(store_scenario_find("singles"), &l->run, 1, MODEL_REORDERED);
    assert_int_equal(store_open(STORE_SCENARIO_DIR, &store_scenario_options, &l->run.s, &e), 0);
}

static void life_again(struct life *l)
{
    struct err e;
    int r = store_close(l->run.s, &e);
    (void)r; /* a poisoned one may not close well */
    (void)os_vfs_process_new();
    assert_int_equal(os_vfs_open_files(), 0);
    assert_int_equal(store_open(STORE_SCENARIO_DIR, &store_scenario_options, &l->run.s, &e), 0);
    if (!skit_check(l->run.s, &l->run.ledger, true, l->run.why)) {
        fail_msg("%s", l->run.why);
    }
}

static void life_end(struct life *l)
{
    struct err e;
    assert_int_equal(store_close(l->run.s, &e), 0);
    assert_int_equal(os_vfs_open_files(), 0);
    model_free(l->m);
}

static int put(struct life *l, uint32_t from)
{
    return skit_one(l->run.s, &l->run.ledger,
                    (struct skit_job){.kind = SKIT_PUT, .from = from, .count = 2});
}

static struct store_status status(const struct life *l)
{
    struct store_status st;
    store_get_status(l->run.s, &st);
    return st;
}

static void fail_next(struct life *l, enum os_call call, enum fault_kind kind, int error,
                      bool sticky)
{
    model_fault_arm(
        l->m,
        &(struct fault){.kind = kind, .error = error, .sticky = sticky, .at = 1, .call = call});
}

static void a_failed_sync_poisons(void **state)
{
    struct life l;
    (void)state;
    life_begin(&l);
    assert_int_equal(put(&l, 0), 0);
    fail_next(&l, OS_CALL_fdatasync, FAULT_ERROR, EIO, false);
    assert_int_equal(put(&l, 10), ERR_STORE_POISONED);
    assert_int_equal(model_fault_fired(l.m), 1);
    assert_true(status(&l).poisoned);
    assert_true(strlen(status(&l).cause) > 0);
    /* The next sync would succeed, and is not believed. */
    uint64_t calls = model_calls(l.m);
    assert_int_equal(put(&l, 20), ERR_STORE_POISONED);
    store_tick(l.run.s);
    assert_int_equal(put(&l, 0), ERR_STORE_POISONED);
    assert_int_equal(model_calls(l.m), calls);
    assert_non_null(control_project(store_control(l.run.s), SLICE("first")));
    life_again(&l);
    assert_int_equal(l.run.ledger.ev[0].put, SKIT_ACKED);
    assert_int_equal(l.run.ledger.ev[20].put, SKIT_NONE);
    assert_int_equal(put(&l, 20), 0);
    life_end(&l);
}

/* After the sync that failed the cache shows the commit and the disk has not got it (R6): a restart
 * that believed the cache would lose it, and all behind it, at the next loss of power. */
static void what_was_not_synced_is_not_believed(void **state)
{
    struct life l;
    struct err e;
    (void)state;
    life_begin(&l);
    assert_int_equal(put(&l, 0), 0);
    fail_next(&l, OS_CALL_fdatasync, FAULT_ERROR, EIO, false);
    assert_int_equal(put(&l, 10), ERR_STORE_POISONED);
    life_again(&l);
    assert_int_equal(put(&l, 20), 0);
    struct model *after = model_crash(l.m, &(struct model_choice){.how = MODEL_CUT_NONE});
    assert_int_equal(store_close(l.run.s, &e), 0);
    model_free(l.m);
    (void)os_vfs_process_new();
    model_use(after);
    l.m = after;
    assert_int_equal(store_open(STORE_SCENARIO_DIR, &store_scenario_options, &l.run.s, &e), 0);
    if (!skit_check(l.run.s, &l.run.ledger, true, l.run.why)) {
        fail_msg("%s", l.run.why);
    }
    life_end(&l);
}

static void a_failed_write_poisons(void **state)
{
    struct life l;
    (void)state;
    life_begin(&l);
    fail_next(&l, OS_CALL_pwrite, FAULT_ERROR, EIO, false);
    assert_int_equal(put(&l, 0), ERR_STORE_POISONED);
    assert_true(status(&l).poisoned);
    life_again(&l);
    assert_int_equal(put(&l, 0), 0);
    life_end(&l);
}

static void a_short_write_goes_on(void **state)
{
    struct life l;
    (void)state;
    life_begin(&l);
    fail_next(&l, OS_CALL_pwrite, FAULT_SHORT, 0, true);
    assert_int_equal(put(&l, 0), 0);
    assert_true(model_fault_fired(l.m) > 10);
    model_fault_arm(l.m, NULL);
    life_again(&l);
    assert_int_equal(l.run.ledger.ev[1].put, SKIT_ACKED);
    life_end(&l);
}

static void a_full_disk_passes(void **state)
{
    struct life l;
    (void)state;
    life_begin(&l);
    assert_int_equal(put(&l, 0), 0);
    fail_next(&l, OS_CALL_pwrite, FAULT_ERROR, ENOSPC, true);
    assert_int_equal(put(&l, 10), ERR_NO_SPACE);
    assert_int_equal(put(&l, 20), ERR_NO_SPACE);
    assert_true(status(&l).no_space);
    assert_false(status(&l).poisoned);
    assert_int_equal(status(&l).pending_events, 2);
    /* What is known needs no space. */
    assert_int_equal(put(&l, 0), 0);
    model_fault_arm(l.m, NULL);
    assert_int_equal(put(&l, 10), 0);
    assert_false(status(&l).no_space);
    assert_int_equal(status(&l).pending_events, 4);
    life_again(&l);
    assert_int_equal(l.run.ledger.ev[20].put, SKIT_NONE);
    life_end(&l);
}

/* A pass syncs the WAL, then the database. */
static void a_checkpoint_that_cannot_sync_poisons(void **state)
{
    (void)state;
    for (uint64_t at = 1; at <= 2; at++) {
        struct fault f = {.error = EIO, .at = at, .call = OS_CALL_fdatasync};
        struct life l;
        struct err e = {0};
        life_begin(&l);
        assert_int_equal(put(&l, 0), 0);
        model_fault_arm(l.m, &f);
        assert_int_equal(store_checkpoint(l.run.s, &e), ERR_IO);
        assert_int_equal(put(&l, 10), ERR_STORE_POISONED);
        assert_true(status(&l).poisoned);
        life_again(&l);
        assert_int_equal(put(&l, 10), 0);
        life_end(&l);
    }
}

static void a_checkpoint_without_space_waits(void **state)
{
    struct life l;
    struct err e = {0};
    (void)state;
    life_begin(&l);
    assert_int_equal(put(&l, 0), 0);
    fail_next(&l, OS_CALL_pwrite, FAULT_ERROR, ENOSPC, false);
    assert_int_equal(store_checkpoint(l.run.s, &e), ERR_NO_SPACE);
    assert_int_equal(model_fault_fired(l.m), 1);
    assert_int_equal(put(&l, 10), 0);
    assert_false(status(&l).poisoned);
    assert_int_equal(store_checkpoint(l.run.s, &e), 0);
    life_again(&l);
    life_end(&l);
}

/* Opens a new store, its syncs of directories failing from the k-th on. Whether one did. */
static bool unsynced_names(uint64_t k)
{
    struct store *s;
    struct err e = {0};
    struct skit_ledger l;
    char why[SKIT_WHY];
    struct model *m = model_new(NULL);
    skit_ledger_init(&l);
    model_use(m);
    (void)os_vfs_process_new();
    assert_int_equal(os_mkdir(STORE_SCENARIO_DIR, 0700), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    model_fault_arm(
        m, &(struct fault){
               .kind = FAULT_ERROR, .error = EIO, .at = k, .sticky = true, .call = OS_CALL_fsync});
    int r = store_open(STORE_SCENARIO_DIR, &store_scenario_options, &s, &e);
    bool fired = model_fault_fired(m) > 0;
    if (r != 0) {
        assert_int_equal(r, ERR_IO);
        model_free(m);
        return fired;
    }
    /* It says that it can keep things. */
    assert_int_equal(skit_one(s, &l, (struct skit_job){.kind = SKIT_PROJECT}), 0);
    struct model *after = model_crash(m, &(struct model_choice){.how = MODEL_CUT_NONE});
    assert_int_equal(store_close(s, &e), 0);
    model_free(m);
    (void)os_vfs_process_new();
    model_use(after);
    assert_int_equal(store_open(STORE_SCENARIO_DIR, &store_scenario_options, &s, &e), 0);
    if (!skit_check(s, &l, true, why)) {
        fail_msg("from sync %" PRIu64 " on: %s", k, why);
    }
    assert_int_equal(store_close(s, &e), 0);
    model_free(after);
    return fired;
}

/* SQLite itself passes over a directory that cannot be synced; the store may not. */
static void a_name_that_cannot_be_synced(void **state)
{
    uint64_t k = 1;
    (void)state;
    while (unsynced_names(k)) {
        k++;
    }
    assert_true(k > 3);
}

/* ---- every call of every life ---- */

struct way {
    const char *name;
    struct fault fault;
};

static const struct way ways[] = {
    {"EIO", {.kind = FAULT_ERROR, .error = EIO}},
    {"EIO-after", {.kind = FAULT_ERROR_AFTER, .error = EIO}},
    {"ENOSPC", {.kind = FAULT_ERROR, .error = ENOSPC}},
    {"ENOMEM", {.kind = FAULT_ERROR, .error = ENOMEM}},
    {"short", {.kind = FAULT_SHORT}},
};

struct sweep {
    const struct store_scenario *scenario;
    const struct way *way;
    bool sticky;
    uint64_t call;
    uint64_t runs, fired, poisoned;
};

static void wrong(const struct sweep *w, const char *what, const char *why)
{
    fail_msg("%s: %s\n  REPRO=%s,%s,%d,%" PRIu64, what, why, w->scenario->name, w->way->name,
             w->sticky, w->call);
}

/* The disk with the fault gone. Takes m. */
static void check_disk(const struct sweep *w, struct model *m, const struct skit_ledger *ledger,
                       const char *what)
{
    struct skit_ledger l = *ledger;
    struct store *s = NULL;
    struct err e = {0};
    char why[SKIT_WHY];
    (void)os_vfs_process_new();
    model_use(m);
    if (store_open(STORE_SCENARIO_DIR, &store_scenario_options, &s, &e) == ERR_NO_SPACE) {
        (void)os_unlink(STORE_SCENARIO_BALLAST);
        (void)os_vfs_process_new();
        if (store_open(STORE_SCENARIO_DIR, &store_scenario_options, &s, &e) != 0) {
            wrong(w, what, e.text);
        }
    }
    if (s == NULL) {
        wrong(w, what, e.text);
    }
    if (!skit_check(s, &l, true, why)) {
        wrong(w, what, why);
    }
    (void)os_unlink(STORE_SCENARIO_BALLAST);
    for (uint32_t i = 0; i < SKIT_PROJECTS; i++) {
        if (l.project[i].state == SKIT_NONE) {
            (void)skit_one(s, &l, (struct skit_job){.kind = SKIT_PROJECT, .from = i});
        }
    }
    if (!skit_check_repeats(s, &l, why)) {
        wrong(w, what, why);
    }
    int code =
        skit_one(s, &l, (struct skit_job){.kind = SKIT_PUT, .from = EXTRA_EVENT, .count = 1});
    if (code != 0) {
        wrong(w, what, err_name(code));
    }
    if (!skit_check(s, &l, false, why) || !skit_check_selection(STORE_SCENARIO_DIR, &l, why)) {
        wrong(w, what, why);
    }
    if (store_close(s, &e) != 0) {
        wrong(w, what, e.text);
    }
    (void)os_vfs_process_new();
    if (!skit_check_verify(STORE_SCENARIO_DIR, why)) {
        wrong(w, what, why);
    }
    model_free(m);
}

static void run_once(struct sweep *w)
{
    static const struct {
        const char *name;
        struct model_choice choice;
    } cuts[] = {{"power cut, nothing landed", {.how = MODEL_CUT_NONE}},
                {"power cut, all landed", {.how = MODEL_CUT_ALL}},
                {"power cut, some landed", {.how = MODEL_CUT_RANDOM, .seed = 1}}};
    struct store_run run;
    struct fault fault = w->way->fault;
    struct model *m = store_scenario_start(w->scenario, &run, 1, MODEL_REORDERED);
    fault.at = w->call;
    fault.sticky = w->sticky;
    run.check = !w->sticky;
    model_fault_arm(m, &fault);
    w->scenario->run(&run);
    w->fired += model_fault_fired(m) > 0;
    w->runs++;
    model_fault_arm(m, NULL);
    if (run.ledger.lie[0] != '\0') {
        wrong(w, "while the fault was there", run.ledger.lie);
    }
    if (run.s != NULL) {
        wrong(w, "at the end", "the store is still open");
    }
    check_disk(w, model_snapshot(m), &run.ledger, "restart");
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts && model_pending(m) > 0; i++) {
        struct model_choice choice = cuts[i].choice;
        choice.seed ^= w->call << 8;
        check_disk(w, model_crash(m, &choice), &run.ledger, cuts[i].name);
    }
    model_use(m);
    model_free(m);
    assert_int_equal(os_vfs_open_files(), 0);
}

/* The calls of a life without faults, in order. */
struct calls {
    enum os_call kind[4096];
    uint64_t count;
};

static void note_call(void *ctx, struct model *m, const struct model_call *call)
{
    struct calls *c = ctx;
    (void)m;
    assert_true(c->count < sizeof c->kind / sizeof *c->kind);
    c->kind[c->count++] = call->call;
}

/* Whether a call of this kind can fail in this way at all. */
static bool can_fail(enum os_call call, const struct way *way)
{
    bool data = call == OS_CALL_pread || call == OS_CALL_pwrite;
    bool grows = call == OS_CALL_pwrite || call == OS_CALL_open || call == OS_CALL_ftruncate ||
                 call == OS_CALL_fsync || call == OS_CALL_fdatasync;
    if (way->fault.kind == FAULT_SHORT) {
        return data;
    }
    if (way->fault.error == ENOMEM) {
        return call == OS_CALL_open || call == OS_CALL_fstat || call == OS_CALL_pread;
    }
    return way->fault.error != ENOSPC || grows;
}

static uint64_t step_of(void)
{
    const char *text = getenv("STEP");
    uint64_t step = text != NULL ? strtoull(text, NULL, 10) : 0;
    return step > 0 ? step : 19;
}

static void sweep_one(const struct store_scenario *s)
{
    static struct calls calls;
    struct sweep w = {.scenario = s};
    struct store_run run;
    struct model *m = store_scenario_start(s, &run, 1, MODEL_REORDERED);
    calls.count = 0;
    model_set_hook(m, note_call, &calls);
    s->run(&run);
    model_free(m);
    for (uint64_t call = 1; call <= calls.count; call += step_of()) {
        for (size_t i = 0; i < 2 * (sizeof ways / sizeof *ways); i++) {
            w.way = &ways[i / 2];
            w.sticky = i % 2 == 1;
            w.call = call;
            if (can_fail(calls.kind[call - 1], w.way)) {
                run_once(&w);
            }
        }
    }
    print_message("%-10s %4" PRIu64 " calls, %5" PRIu64 " runs, %5" PRIu64 " met the fault\n",
                  s->name, calls.count, w.runs, w.fired);
    assert_true(w.fired > 0);
}

static bool reproduced(void)
{
    static char line[200];
    struct sweep w = {0};
    const char *text = getenv("REPRO");
    if (text == NULL) {
        return false;
    }
    (void)snprintf(line, sizeof line, "%s", text);
    w.scenario = store_scenario_find(strtok(line, ","));
    const char *way = strtok(NULL, ",");
    const char *sticky = strtok(NULL, ",");
    const char *call = strtok(NULL, ",");
    assert_non_null(w.scenario);
    assert_non_null(call);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        w.way = strcmp(ways[i].name, way) == 0 ? &ways[i] : w.way;
    }
    assert_non_null(w.way);
    w.sticky = *sticky == '1';
    w.call = strtoull(call, NULL, 10);
    run_once(&w);
    return true;
}

static void every_call_of_every_life(void **state)
{
    (void)state;
    if (reproduced()) {
        return;
    }
    for (unsigned i = 0; i < store_scenario_count; i++) {
        sweep_one(&store_scenarios[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_sync_poisons),
        cmocka_unit_test(what_was_not_synced_is_not_believed),
        cmocka_unit_test(a_failed_write_poisons),
        cmocka_unit_test(a_short_write_goes_on),
        cmocka_unit_test(a_full_disk_passes),
        cmocka_unit_test(a_checkpoint_that_cannot_sync_poisons),
        cmocka_unit_test(a_checkpoint_without_space_waits),
        cmocka_unit_test(a_name_that_cannot_be_synced),
        cmocka_unit_test(every_call_of_every_life),
    };
    os_vfs_register();
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
