/* The lives; see the header. */
#include "tests/lib/store_scenarios.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/os_vfs.h"

/* A WAL of some thirty pages holds the turns: the passes are the scenario's own. */
const struct store_options store_scenario_options = {.queue_events_max = 1000,
                                                     .queue_bytes_max = 64u << 20,
                                                     .project_events_max = 500,
                                                     .project_bytes_max = 32u << 20,
                                                     .wal_bytes_max = 160u << 10,
                                                     .threads = false};

static uint32_t between(struct store_run *run, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(kit_chance(&run->chance) % (high - low + 1));
}

static void begin(struct store_run *run)
{
    struct err e = {0};
    if (run->ended) {
        return;
    }
    if (store_open(STORE_SCENARIO_DIR, &store_scenario_options, &run->s, &e) != 0) {
        run->s = NULL;
        run->ended = true;
        return;
    }
    /* Twice: a read that fails once is no wrong answer. */
    if (run->check && !skit_check(run->s, &run->ledger, true, run->why) &&
        !skit_check(run->s, &run->ledger, true, run->why) && run->ledger.lie[0] == '\0') {
        memcpy(run->ledger.lie, run->why, sizeof run->why);
    }
}

static void end(struct store_run *run)
{
    struct err e;
    if (run->s != NULL) {
        int r = store_close(run->s, &e);
        (void)r; /* a close that fails is a crash: the next open shows */
        run->s = NULL;
        (void)os_vfs_process_new();
    }
}

/* What a server does about its store between two turns. */
static void react(struct store_run *run)
{
    struct store_status st;
    if (run->s == NULL) {
        return;
    }
    store_get_status(run->s, &st);
    if (st.poisoned) {
        end(run);
        begin(run);
    } else if (st.no_space) {
        model_clock_advance(model_in_use(), UINT64_C(2000000000));
        store_tick(run->s);
    }
}

static void turn(struct store_run *run, const struct skit_job *jobs, size_t count)
{
    if (run->s == NULL) {
        return;
    }
    struct skit_job *mine = calloc(count, sizeof *mine);
    ensure(mine != NULL);
    memcpy(mine, jobs, count * sizeof *mine);
    ensure(skit_turn(run->s, &run->ledger, mine, count));
    free(mine);
    react(run);
}

static void put(struct store_run *run, uint32_t from, uint32_t count)
{
    turn(run, &(struct skit_job){.kind = SKIT_PUT, .from = from, .count = count}, 1);
}

static void deliver(struct store_run *run, uint32_t from, uint32_t count)
{
    struct skit_job j = {.kind = SKIT_DELIVER, .from = from, .count = count};
    j.job.weight = STORE_BACKGROUND;
    turn(run, &j, 1);
}

static void merge(struct store_run *run)
{
    struct skit_job j = {.kind = SKIT_MERGE};
    j.job.weight = STORE_BACKGROUND;
    turn(run, &j, 1);
}

static void checkpoint(struct store_run *run)
{
    struct err e;
    if (run->s != NULL && store_checkpoint(run->s, &e) != 0) {
        /* A pass that failed ends the acknowledging at the next turn. */
        (void)store_turn(run->s);
    }
    react(run);
}

static void projects(struct store_run *run)
{
    turn(run, &(struct skit_job){.kind = SKIT_PROJECT, .from = 0}, 1);
    turn(run, &(struct skit_job){.kind = SKIT_PROJECT, .from = 1}, 1);
}

/* ---- the lives ---- */

static void run_first(struct store_run *run)
{
    begin(run);
    projects(run);
    end(run);
    begin(run);
    turn(run, &(struct skit_job){.kind = SKIT_KEY}, 1);
    put(run, 0, 2);
    end(run);
}

static void run_singles(struct store_run *run)
{
    begin(run);
    for (uint32_t n = 0; n < 12;) {
        uint32_t count = between(run, 1, 2);
        put(run, n, count);
        n += count;
    }
    end(run);
}

static void run_turns(struct store_run *run)
{
    begin(run);
    for (uint32_t t = 0; t < 4; t++) {
        uint32_t from = t * 20;
        const struct skit_job jobs[] = {
            {.kind = SKIT_PUT, .from = from, .count = between(run, 1, 4)},
            {.kind = SKIT_PUT, .from = from + 5, .count = 3, .fail = true},
            {.kind = SKIT_PUT, .from = from + 8, .count = 2, .rejected = between(run, 0, 2)},
            {.kind = SKIT_PUT, .from = from, .count = 1}, /* a repeat within the turn */
            {.kind = SKIT_PUT, .from = t > 0 ? from - 12 : 0, .count = 2},
            {.kind = SKIT_PUT, .from = from + 6, .count = 1}, /* of one that was undone */
            {.kind = SKIT_CURSOR, .from = t + 1},
        };
        turn(run, jobs, sizeof jobs / sizeof *jobs);
    }
    end(run);
}

static void run_deliver(struct store_run *run)
{
    begin(run);
    put(run, 0, 8);
    put(run, 20, 6);
    deliver(run, 0, 5);
    put(run, 0, 7); /* repeats of delivered ones and of queued ones */
    {
        struct skit_job jobs[] = {{.kind = SKIT_DELIVER, .from = 5, .count = 20},
                                  {.kind = SKIT_PUT, .from = 40, .count = 3},
                                  {.kind = SKIT_CURSOR, .from = 7}};
        turn(run, jobs, 3);
    }
    end(run);
    begin(run);
    put(run, 20, 2);
    deliver(run, 20, 30);
    end(run);
}

static void run_merge(struct store_run *run)
{
    begin(run);
    put(run, 0, between(run, 5, 9));
    merge(run);
    put(run, 10, 4);
    put(run, 0, 3);
    deliver(run, 0, 12);
    merge(run);
    put(run, 10, 6);
    end(run);
    begin(run);
    put(run, 0, 16);
    merge(run);
    end(run);
}

static void run_checkpoint(struct store_run *run)
{
    begin(run);
    for (uint32_t t = 0; t < 4; t++) {
        put(run, t * 10, between(run, 2, 6));
        if (t % 2 == 1) {
            deliver(run, t * 10 - 10, 12);
        }
        checkpoint(run);
    }
    end(run);
    begin(run);
    put(run, 50, 2);
    end(run);
}

static void run_reopen(struct store_run *run)
{
    for (uint32_t t = 0; t < 3; t++) {
        begin(run);
        put(run, t * 10, between(run, 1, 3));
        put(run, t * 10 + 4, 2);
        end(run);
    }
}

static void run_large(struct store_run *run)
{
    begin(run);
    put(run, 0, 2);
    struct skit_job j = {.kind = SKIT_PUT, .from = SKIT_BIG, .count = 12};
    j.job.weight = STORE_LARGE;
    turn(run, &j, 1); /* more than the WAL's limit: later turns are held */
    put(run, 2, 2);
    deliver(run, SKIT_BIG, 12);
    put(run, 4, 2);
    end(run);
}

/* Leaves room for so many bytes. */
static void ballast(uint64_t room)
{
    static const char block[MODEL_BLOCK] = "ballast";
    uint64_t left = 0;
    int fd = os_open(STORE_SCENARIO_BALLAST, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return;
    }
    (void)os_ftruncate(fd, 0);
    for (uint64_t at = 0; os_free_space("/m", &left) == 0 && left > room; at += sizeof block) {
        if (os_pwrite(fd, block, sizeof block, at) != (int64_t)sizeof block) {
            break;
        }
    }
    (void)os_close(fd);
}

static void run_full(struct store_run *run)
{
    begin(run);
    put(run, 0, 4);
    ballast(between(run, 3, 14) * MODEL_BLOCK);
    for (uint32_t t = 0; t < 5; t++) {
        put(run, 10 + t * 5, 4);
    }
    deliver(run, 0, 4);
    checkpoint(run);
    ballast(0);
    put(run, 50, 2);
    end(run);
    begin(run); /* with a full disk, or not at all */
    run->ended = false;
    (void)os_unlink(STORE_SCENARIO_BALLAST);
    if (run->s == NULL) {
        begin(run);
    }
    react(run);
    put(run, 10, 25);
    end(run);
}

const struct store_scenario store_scenarios[] = {
    {"first", run_first, false, 0, 7, 12},      {"singles", run_singles, true, 0, 8, 24},
    {"turns", run_turns, true, 0, 7, 24},       {"deliver", run_deliver, true, 0, 8, 24},
    {"merge", run_merge, true, 0, 7, 24},       {"checkpoint", run_checkpoint, true, 0, 7, 16},
    {"reopen", run_reopen, true, 0, 7, 16},     {"large", run_large, true, 0, 6, 12},
    {"full", run_full, true, 768u << 10, 5, 6},
};
const unsigned store_scenario_count = sizeof store_scenarios / sizeof *store_scenarios;

const struct store_scenario *store_scenario_find(const char *name)
{
    for (unsigned i = 0; i < store_scenario_count; i++) {
        if (strcmp(store_scenarios[i].name, name) == 0) {
            return &store_scenarios[i];
        }
    }
    return NULL;
}

struct model *store_scenario_start(const struct store_scenario *s, struct store_run *run,
                                   uint64_t seed, enum model_order order)
{
    memset(run, 0, sizeof *run);
    run->chance = kit_mix(seed);
    skit_ledger_init(&run->ledger);
    struct model_options o = {
        .order = order, .seed = kit_chance(&run->chance), .capacity_bytes = s->capacity_bytes};
    struct model *m = model_new(&o);
    model_use(m);
    os_vfs_register();
    (void)os_vfs_process_new();
    ensure(os_mkdir(STORE_SCENARIO_DIR, 0700) == 0);
    ensure(os_sync_dir("/m") == 0);
    if (s->made) {
        begin(run);
        projects(run);
        end(run);
        ensure(run->ledger.project[1].state == SKIT_ACKED);
    }
    (void)os_vfs_process_new();
    return m;
}

bool store_call_changes(const struct model_call *call)
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
