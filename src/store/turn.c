/* The turn: one transaction over the jobs that wait.
 *
 *     BEGIN, then for each job: SAVEPOINT, run, its counters, RELEASE (or ROLLBACK TO), then the
 *     next event id, COMMIT (the sync), and only then each job's done.
 *
 * A job that fails is undone alone, and is told with the others after the commit: its answer may
 * rest on rows that this transaction makes. The whole turn is undone when SQLite has ended the
 * transaction by itself (sqlite3_get_autocommit after every job), when space or memory is out, when
 * the file fails, and when the commit fails; then every job that had run is told why and those that
 * had not are in the next turn.
 *
 * If power fails before COMMIT has returned, the transaction is on the disk whole or not at all,
 * and nobody was told of it; after it, it is on the disk.
 *
 * Stops (poisoned): a commit, a write or a checkpoint that fails for another reason than space or
 * memory, and a database found to be malformed. Answers: everything else. */
#include "base/ensure.h"
#include "base/metrics.h"
#include "os/os.h"
#include "store/internal.h"

#define SMALL_NS      UINT64_C(50000000) /* small jobs of one turn, about */
#define BACKGROUND_NS UINT64_C(5000000)
#define HELD_MS       2u /* without a wake-up call, a held turn waits so long */

void store_submit(struct store *s, struct store_job *job)
{
    ensure(job->run != NULL);
    ensure(job->done != NULL);
    job->code = 0;
    TAILQ_INSERT_TAIL(&s->waiting[job->weight], job, link);
}

static bool any_waits(const struct store *s)
{
    for (int i = 0; i <= STORE_BACKGROUND; i++) {
        if (!TAILQ_EMPTY(&s->waiting[i])) {
            return true;
        }
    }
    return false;
}

/* ---- endings ---- */

/* Undoes what is left of the transaction. */
static void roll_back(struct store *s)
{
    struct err e;

    if (sqlite3_get_autocommit(s->db) == 0 && db_run(s->st[ST_ROLLBACK], "undo a turn", &e) < 0 &&
        sqlite3_get_autocommit(s->db) == 0) {
        store_poison(s, e.text);
    }
    receipts_turn_undo(s);
    account_turn_begin(s);
    /* Nobody was told of the ids given meanwhile; and a turn of repeats then writes nothing. */
    s->next_id = s->next_id_stored;
}

static void tell(struct store *s, int turn_code, const struct err *turn_why)
{
    struct store_turn_state *t = &s->turn;
    size_t at = 0;

    while (!TAILQ_EMPTY(&t->ran)) {
        struct store_job *job = TAILQ_FIRST(&t->ran);
        int code = turn_code < 0 ? turn_code : job->code;
        const struct err *why = turn_code < 0 ? turn_why : &t->why[at];
        TAILQ_REMOVE(&t->ran, job, link);
        at++;
        job->code = code;
        if (code == STORE_AGAIN) {
            TAILQ_INSERT_TAIL(&s->waiting[job->weight], job, link);
        }
        /* The last that is done with it here: it may be gone, or submitted again. */
        job->done(job, code, why);
    }
    t->count = 0;
}

/* A turn that failed: whoever took part is told. */
static void fail_turn(struct store *s, struct err *why)
{
    roll_back(s);
    if (why->code == ERR_IO || why->code == ERR_CORRUPT) {
        store_poison(s, why->text);
    }
    if (s->poisoned) {
        err_set(why, ERR_STORE_POISONED, "%s", s->cause);
    } else if (why->code == ERR_NO_SPACE) {
        if (!s->no_space) {
            metric_set(METRIC_STORE_NO_SPACE, 1);
        }
        s->no_space = true;
        sqlite3_snprintf((int)sizeof s->cause, s->cause, "%s", why->text);
    }
    tell(s, why->code, why);
}

/* Answers everything that waits at this moment, without running it. */
static void fail_waiting(struct store *s, const struct err *why)
{
    TAILQ_INIT(&s->turn.ran);
    for (int i = 0; i <= STORE_BACKGROUND; i++) {
        TAILQ_CONCAT(&s->turn.ran, &s->waiting[i], link);
    }
    tell(s, why->code, why);
}

/* ---- a job ---- */

/* What undoes more than one job. */
static bool ends_turn(const struct store *s, int code)
{
    return sqlite3_get_autocommit(s->db) != 0 || code == ERR_NO_SPACE || code == ERR_NO_MEMORY ||
           code == ERR_IO || code == ERR_CORRUPT;
}

static int undo_job(struct store *s, struct err *e)
{
    int r = db_run(s->st[ST_ROLLBACK_TO], "undo a job", e);

    account_job_undo(s);
    receipts_job_undo(s);
    return r < 0 ? r : db_run(s->st[ST_RELEASE], "undo a job", e);
}

/* 0: the turn goes on (job->code says how the job fared). Negative: the turn is over. */
static int run_job(struct store *s, struct store_job *job, struct err *turn_why)
{
    struct store_turn_state *t = &s->turn;
    struct err *why = &t->why[t->count];
    int r, code;

    *why = (struct err){0};
    TAILQ_REMOVE(&s->waiting[job->weight], job, link);
    TAILQ_INSERT_TAIL(&t->ran, job, link);
    t->count++;
    r = db_run(s->st[ST_SAVEPOINT], "begin a job", turn_why);
    if (r < 0) {
        return r;
    }
    account_job_begin(s);
    receipts_job_begin(s);
    s->in_job = true;
    code = job->run(job, s, why);
    ensure(code <= 0 || code == STORE_AGAIN);
    if (code >= 0 && sqlite3_get_autocommit(s->db) == 0) {
        r = account_job_keep(s, why);
        code = r < 0 ? r : code;
    }
    s->in_job = false;
    if (ends_turn(s, code)) {
        *turn_why = *why;
        if (code >= 0) {
            /* An error that the job did not pass on. */
            return err_set(turn_why, ERR_INTERNAL_ERROR, "a job lost its transaction");
        }
        turn_why->code = code;
        return code;
    }
    job->code = code;
    why->code = code < 0 ? code : 0;
    r = code < 0 ? undo_job(s, turn_why) : db_run(s->st[ST_RELEASE], "end a job", turn_why);
    return r;
}

/* Runs the jobs that wait in a list now, for about so long; at least one. */
static int run_list(struct store *s, enum store_weight weight, uint64_t ns, struct err *why)
{
    struct store_job *last = TAILQ_LAST(&s->waiting[weight], store_job_list);
    uint64_t until = os_clock_mono_ns() + ns;

    while (last != NULL && s->turn.count < TURN_JOBS_MAX) {
        struct store_job *job = TAILQ_FIRST(&s->waiting[weight]);
        int r = run_job(s, job, why);
        if (r < 0) {
            return r;
        }
        if (job == last || os_clock_mono_ns() >= until) {
            break;
        }
    }
    return 0;
}

/* ---- the transaction ---- */

static int commit(struct store *s, int64_t changes_before, struct err *e)
{
    int r = 0;

    if (s->next_id != s->next_id_stored) {
        db_bind_int(s->st[ST_NEXT_ID], 1, s->next_id);
        r = db_run(s->st[ST_NEXT_ID], "store the next event id", e);
    }
    if (r == 0) {
        r = db_run(s->st[ST_COMMIT], "commit", e);
    }
    if (r < 0) {
        return r;
    }
    s->next_id_stored = s->next_id;
    account_turn_keep(s);
    receipts_turn_keep(s);
    if (sqlite3_total_changes64(s->db) != changes_before) {
        metric_add(METRIC_STORE_COMMITS, 1);
        checkpoint_committed(s->checkpointer, s->wal_frames);
        s->no_space = false;
        s->cause[0] = '\0';
    }
    return 0;
}

/* Small ones or one large one, with slices beside them; a large one waits for at most one turn of
 * small ones. The slices go beside large ones too: where these never end, deliveries would not be
 * recorded. */
static int run_jobs(struct store *s, struct err *why)
{
    struct store_turn_state *t = &s->turn;
    bool small = !TAILQ_EMPTY(&s->waiting[STORE_SMALL]);
    bool large = !TAILQ_EMPTY(&s->waiting[STORE_LARGE]);
    int r = 0;

    if (receipts_hold(s)) {
        return run_list(s, STORE_BACKGROUND, BACKGROUND_NS, why);
    }
    if (large && (t->large_next || !small)) {
        t->large_next = false;
        r = run_list(s, STORE_LARGE, 0, why);
    } else {
        t->large_next = large;
        r = run_list(s, STORE_SMALL, SMALL_NS, why);
    }
    return r < 0 ? r : run_list(s, STORE_BACKGROUND, BACKGROUND_NS, why);
}

/* True: this turn does nothing. *again is then its result. */
static bool held(struct store *s, bool *again)
{
    struct err why = {0};
    enum checkpoint_state state = checkpoint_state(s->checkpointer, &why);

    *again = false;
    if (state == CHECKPOINT_FAILED) {
        store_poison(s, why.text);
    }
    if (s->poisoned) {
        err_set(&why, ERR_STORE_POISONED, "%s", s->cause);
        fail_waiting(s, &why);
        return true;
    }
    if (!any_waits(s)) {
        return true;
    }
    if (state == CHECKPOINT_NO_SPACE) {
        s->no_space = true;
        sqlite3_snprintf((int)sizeof s->cause, s->cause, "%s", why.text);
        fail_waiting(s, &why);
        return true;
    }
    if (state == CHECKPOINT_HOLD) {
        *again = s->options.wake == NULL;
        if (*again && s->options.threads) {
            checkpoint_wait(s->checkpointer, HELD_MS);
        }
        return true;
    }
    return false;
}

bool store_turn(struct store *s)
{
    struct err why = {0};
    int64_t before = sqlite3_total_changes64(s->db);
    bool again;
    int r;

    ensure(!s->in_job);
    control_turn(s->control);
    if (held(s, &again)) {
        return again;
    }
    TAILQ_INIT(&s->turn.ran);
    s->turn.count = 0;
    receipts_turn_begin(s);
    account_turn_begin(s);
    r = db_run(s->st[ST_BEGIN], "begin a turn", &why);
    if (r < 0) {
        /* Nobody has run: who waits is told, or would wait for ever. */
        roll_back(s);
        if (r == ERR_IO || r == ERR_CORRUPT) {
            store_poison(s, why.text);
            err_set(&why, ERR_STORE_POISONED, "%s", s->cause);
        }
        fail_waiting(s, &why);
        return false;
    }
    r = run_jobs(s, &why);
    if (r == 0) {
        r = commit(s, before, &why);
    }
    if (r < 0) {
        fail_turn(s, &why);
    } else {
        tell(s, 0, NULL);
        store_merge_if_due(s, false);
    }
    return any_waits(s);
}
