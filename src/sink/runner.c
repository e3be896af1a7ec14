/* runner: the thread of a sink, and its state as others see it (sink.h).
 *
 * States of the queue's rows as the sink sees them:
 *
 *   ready       in the queue; any selection may take it
 *   frozen      in the one batch that is being tried
 *   delivered   proven; a record is on its way to the loop (at most RECORDS_MAX of them, so that
 *               the next batch is selected and sent meanwhile). Selections pass it over
 *   gone        recorded: the payload is deleted, the receipt stays
 *
 * Power failure or kill -9: only `gone` is remembered. Frozen and delivered rows are ready again
 * after a restart and are sent again, which the far side's replacing key makes harmless. The stored
 * position only decides where the next selection begins, so that a batch that fails at every start
 * does not hold up the others.
 *
 * Failures of the destination delay everything (1 s, 2 s, ... 30 s); refused rows only their
 * project. A poisoned store ends all delivery until a restart: what cannot be recorded would be
 * sent again and again. Nothing here aborts but bugs.
 *
 * Paused: looked at before each preparation and, again, before each send, because a selection may
 * have waited for events in between. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "os/os.h"
#include "sink/runner_internal.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

void sink_lock(struct sink *k)
{
    int r = pthread_mutex_lock(&k->lock);
    ensure(r == 0);
}

void sink_unlock(struct sink *k)
{
    int r = pthread_mutex_unlock(&k->lock);
    ensure(r == 0);
}

bool sink_stopping(struct sink *k)
{
    return atomic_load(&k->stop);
}

/* ---- waiting ---- */

static bool wait_is_over(struct sink *k, unsigned what)
{
    struct record *rec;
    if (sink_stopping(k) || ((what & WAIT_WAKE) != 0 && atomic_load(&k->woken)) ||
        ((what & WAIT_RETRY) != 0 && k->retry_now)) {
        return true;
    }
    if ((what & WAIT_RECORDS) != 0) {
        TAILQ_FOREACH(rec, &k->records, link)
        {
            if (rec->state == RECORD_DONE) {
                return true;
            }
        }
    }
    return false;
}

/* Nobody sleeps past the time at which a failed record is to be posted again. */
static uint64_t until_records(const struct sink *k, uint64_t until_ns)
{
    struct record *rec;
    TAILQ_FOREACH(rec, &k->records, link)
    {
        if (rec->state == RECORD_FAILED && rec->retry_ns < until_ns) {
            until_ns = rec->retry_ns;
        }
    }
    return until_ns;
}

void sink_wait_until(struct sink *k, uint64_t until_ns, unsigned what)
{
    int r = 0;
    sink_lock(k);
    while (r == 0 && !wait_is_over(k, what)) {
        uint64_t until = until_records(k, until_ns);
        struct timespec ts = {.tv_sec = (time_t)(until / NS_PER_S),
                              .tv_nsec = (long)(until % NS_PER_S)};
        r = pthread_cond_timedwait(&k->cond, &k->lock, &ts);
        ensure(r == 0 || r == ETIMEDOUT);
    }
    sink_unlock(k);
}

uint64_t sink_backoff_ns(const struct sink *k, unsigned failures)
{
    uint64_t ms = k->options.backoff_min_ms;
    for (unsigned i = 1; i < failures && ms < k->options.backoff_max_ms; i++) {
        ms *= 2;
    }
    return (ms < k->options.backoff_max_ms ? ms : k->options.backoff_max_ms) * NS_PER_MS;
}

/* ---- the destination's state ---- */

void sink_note_failure(struct sink *k, const struct sink_result *r)
{
    uint64_t wait_ns;
    bool news;
    k->failures++;
    wait_ns = sink_backoff_ns(k, k->failures);
    if (r->retry_ms * NS_PER_MS > wait_ns && r->retry_ms <= 2 * k->options.backoff_max_ms) {
        wait_ns = r->retry_ms * NS_PER_MS;
    }
    if (r->prepare) {
        k->prepared = false;
    }
    k->due_ns = os_clock_mono_ns() + wait_ns;
    sink_lock(k);
    news = strcmp(k->status.error, r->text) != 0;
    k->status.connected = false;
    k->status.failures++;
    (void)snprintf(k->status.error, sizeof k->status.error, "%s", r->text);
    k->retry_at_ns = k->due_ns;
    sink_unlock(k);
    metric_set(METRIC_SINK_CONNECTED, 0);
    metric_add(METRIC_SINK_FAILURES, 1);
    if (news) {
        log_line(LOG_WARN, k->adapter->name, "%s", r->text);
    }
}

void sink_wait_least(struct sink *k)
{
    k->due_ns = os_clock_mono_ns() + sink_backoff_ns(k, 1);
    sink_lock(k);
    k->retry_at_ns = k->due_ns;
    sink_unlock(k);
}

void sink_note_success(struct sink *k, size_t rows)
{
    bool news;
    k->failures = 0;
    k->due_ns = 0;
    sink_lock(k);
    news = k->status.error[0] != '\0';
    k->status.connected = true;
    k->status.error[0] = '\0';
    k->retry_at_ns = 0;
    k->status.delivered += rows;
    k->status.batches += rows != 0 ? 1 : 0;
    sink_unlock(k);
    metric_set(METRIC_SINK_CONNECTED, 1);
    metric_add(METRIC_SINK_DELIVERED, rows);
    metric_add(METRIC_SINK_BATCHES, rows != 0 ? 1 : 0);
    if (news) {
        log_line(LOG_INFO, k->adapter->name, "the destination works again");
    }
}

static void prepare(struct sink *k)
{
    struct sink_result r = {.verdict = SINK_UNKNOWN};
    bool news;
    k->adapter->prepare(k->ctx, &k->stop, &r);
    if (sink_stopping(k)) {
        return;
    }
    if (r.verdict != SINK_DELIVERED) {
        sink_note_failure(k, &r);
        return;
    }
    k->prepared = true;
    sink_lock(k);
    news = strcmp(k->warning, r.text) != 0;
    memcpy(k->warning, r.text, sizeof k->warning);
    k->warning[sizeof k->warning - 1] = '\0';
    if (k->batch.tries == 0) { /* one that failed has yet to show that the trouble is over */
        k->status.connected = true;
        k->status.error[0] = '\0';
        k->retry_at_ns = 0;
    }
    sink_unlock(k);
    if (news && r.text[0] != '\0') {
        log_line(LOG_WARN, k->adapter->name, "%s", r.text);
    }
    if (k->batch.tries == 0) {
        metric_set(METRIC_SINK_CONNECTED, 1);
        k->failures = 0;
    }
}

/* ---- the thread ---- */

/* Nothing to send: sleep until there is, then let a few more gather. */
static void idle(struct sink *k)
{
    uint64_t now = os_clock_mono_ns();
    uint64_t until = now + IDLE_MS * NS_PER_MS;
    uint64_t solo = solo_next_ns(k);
    sink_wait_until(k, solo < until ? solo : until, WAIT_WAKE);
    if (atomic_load(&k->woken)) {
        sink_wait_until(k, os_clock_mono_ns() + k->options.gather_ms * NS_PER_MS, WAIT_PLAIN);
    }
}

/* A batch that was not full emptied the queue: the next begins when this one is recorded and some
 * time has passed, so that a trickle of events makes few inserts. After many full ones in a row the
 * records are waited for too: the selection then sees rows again that lie before those under
 * way. */
static bool gathered(struct sink *k)
{
    uint64_t next = k->selected_ns + k->options.gather_ms * NS_PER_MS;
    uint64_t now = os_clock_mono_ns();
    if (k->last_full && k->in_a_row < PIPELINE_MAX) {
        return true;
    }
    if (!records_reap(k)) {
        sink_wait_until(k, now + RECORD_RETRY_MS * NS_PER_MS, WAIT_RECORDS);
        return false;
    }
    if (!k->last_full && now < next) {
        sink_wait_until(k, next, WAIT_PLAIN);
        return false;
    }
    return true;
}

/* True: a batch is frozen and may be sent. */
static bool next_batch(struct sink *k)
{
    if (!gathered(k) || !records_wait_room(k)) {
        return false;
    }
    switch (batch_next(k)) {
    case BATCH_READY:
        return true;
    case BATCH_NONE:
        idle(k);
        break;
    case BATCH_WAIT:
        sink_wait_until(k, os_clock_mono_ns() + RECORD_RETRY_MS * NS_PER_MS, WAIT_RECORDS);
        break;
    case BATCH_ERROR:
        break; /* due_ns says when to try again */
    }
    return false;
}

static bool is_paused(struct sink *k)
{
    sink_lock(k);
    bool paused = k->paused;
    sink_unlock(k);
    return paused;
}

static void step(struct sink *k)
{
    bool poisoned;
    bool retry_now;
    uint64_t now = os_clock_mono_ns();
    (void)records_reap(k);
    sink_lock(k);
    poisoned = k->poisoned;
    retry_now = k->retry_now;
    k->retry_now = false;
    sink_unlock(k);
    if (retry_now) {
        k->due_ns = 0;
        k->failures = 0;
    }
    if (poisoned) {
        sink_wait_until(k, now + IDLE_MS * NS_PER_MS, WAIT_PLAIN);
    } else if (is_paused(k)) {
        sink_wait_until(k, now + IDLE_MS * NS_PER_MS, WAIT_RETRY | WAIT_RECORDS);
    } else if (now < k->due_ns) {
        sink_wait_until(k, k->due_ns, WAIT_RETRY | WAIT_RECORDS);
    } else if (!k->prepared) {
        prepare(k);
    } else if ((k->batch.frozen || next_batch(k)) && !is_paused(k)) {
        batch_send(k);
    }
}

static void *thread_main(void *arg)
{
    struct sink *k = arg;
    (void)pthread_setname_np(pthread_self(), "sink");
    while (!sink_stopping(k)) {
        step(k);
    }
    return NULL;
}

/* ---- start and stop ---- */

static int start_thread(struct sink *k, struct err *e)
{
    sigset_t all;
    sigset_t before;
    int failed;
    (void)sigfillset(&all);
    int r = pthread_sigmask(SIG_SETMASK, &all, &before);
    ensure(r == 0);
    failed = pthread_create(&k->thread, NULL, thread_main, k);
    r = pthread_sigmask(SIG_SETMASK, &before, NULL);
    ensure(r == 0);
    return failed == 0 ? 0 : err_os(e, -failed, "pthread_create", "sink");
}

static void init_locks(struct sink *k)
{
    pthread_condattr_t attr;
    int r = pthread_condattr_init(&attr);
    ensure(r == 0);
    r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ensure(r == 0);
    r = pthread_cond_init(&k->cond, &attr);
    ensure(r == 0);
    (void)pthread_condattr_destroy(&attr);
    r = pthread_mutex_init(&k->lock, NULL);
    ensure(r == 0);
}

static void free_sink(struct sink *k)
{
    batch_thaw(k);
    buf_free(&k->batch.body);
    store_reader_close(k->reader);
    (void)pthread_cond_destroy(&k->cond);
    (void)pthread_mutex_destroy(&k->lock);
    free(k->solo);
    free(k->flight.last);
    free(k);
}

int sink_start(const struct sink_options *options, const struct sink_adapter *adapter, void *ctx,
               struct store *store, struct http_server *server, struct sink **out, struct err *e)
{
    ensure(options->batch_events_max != 0);
    ensure(options->backoff_min_ms != 0);
    struct sink *k = calloc(1, sizeof *k);
    if (k == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a sink");
    }
    k->options = *options;
    k->options.gather_ms = options->gather_ms == 0 ? GATHER_MS : options->gather_ms;
    k->adapter = adapter;
    k->ctx = ctx;
    k->store = store;
    k->server = server;
    k->limit = options->batch_events_max;
    k->limit_max = options->batch_events_max;
    k->last_full = true;
    k->paused = options->paused;
    TAILQ_INIT(&k->records);
    init_locks(k);
    int r = store_reader_open(options->data, &k->reader, e);
    if (r == 0) {
        r = queue_get_cursor(k->reader, &k->from, e);
    }
    if (r == 0) {
        r = start_thread(k, e);
    }
    if (r != 0) {
        free_sink(k);
        return r;
    }
    *out = k;
    return 0;
}

static void signal_thread(struct sink *k)
{
    sink_lock(k);
    int r = pthread_cond_signal(&k->cond);
    ensure(r == 0);
    sink_unlock(k);
}

void sink_stop(struct sink *k)
{
    if (k == NULL) {
        return;
    }
    atomic_store(&k->stop, true);
    signal_thread(k);
    int r = pthread_join(k->thread, NULL);
    ensure(r == 0);
    records_finish(k);
    free_sink(k);
}

void sink_wake(struct sink *k)
{
    if (!atomic_exchange(&k->woken, true)) {
        signal_thread(k);
    }
}

void sink_retry_now(struct sink *k)
{
    sink_lock(k);
    k->retry_now = true;
    sink_unlock(k);
    signal_thread(k);
}

void sink_pause(struct sink *k, bool paused)
{
    sink_lock(k);
    bool resumed = k->paused && !paused;
    k->paused = paused;
    sink_unlock(k);
    if (resumed) {
        sink_retry_now(k);
    }
}

/* ---- status ---- */

void sink_get_status(struct sink *k, struct sink_status *out)
{
    uint64_t now = os_clock_mono_ns();
    sink_lock(k);
    *out = k->status;
    out->paused = k->paused;
    out->retry_in_ms = k->retry_at_ns > now ? (k->retry_at_ns - now) / NS_PER_MS : 0;
    if (k->record_error[0] != '\0') {
        memcpy(out->error, k->record_error, sizeof out->error);
    } else if (out->error[0] == '\0') {
        memcpy(out->error, k->warning, sizeof out->error);
    }
    sink_unlock(k);
}

void sink_project_error(struct sink *k, int64_t project, char out[200])
{
    bool found;
    out[0] = '\0';
    sink_lock(k);
    size_t i = solo_find(k, project, &found);
    if (found) {
        memcpy(out, k->solo[i].error, sizeof k->solo[i].error);
    }
    sink_unlock(k);
}
