/* server: the loop.
 *
 * A turn: wait; read what is ready and hand requests out; take back what workers finished; tick,
 * once a second; the doors' `turn` (their commit); send what was answered; look at timeouts, five
 * times a second; bury the dead. Connections whose queue moved and that have input set aside are
 * run at the start of the next turn, which then does not wait.
 *
 * The end (http_stop, or SIGINT, SIGTERM and SIGHUP through a signalfd): listeners close, idle
 * connections are looked at once more and close (those that had an answer just now linger, as after
 * any end), open requests get grace_ms; a second signal ends the grace.
 * Then connections are cut, and the loop goes on only until every job has come back, since jobs
 * work on what doors own. The bodies that threads read (away.c) end at once, with the stop.
 *
 * Memory, at the default limits, worst case: connections_max times (the connection, 128 KiB of
 * input set aside, a queue of HTTP_QUEUE_BYTES_MAX and one more head) = 416 MiB, only when every
 * client pipelines without reading; body_budget_bytes of bodies; one answer or one piece of a
 * stream (HTTP_PIECE_BYTES) a connection: 256 MiB when all of them stream (a live stream's pieces
 * have HTTP_LIVE_PIECE_BYTES, and one that waits has none). threads_max threads with
 * HTTP_STAGE_BYTES each, and what their work takes. Spares: 512 requests with at most 64 KiB of
 * buffers. The usual idle connection costs 400 bytes.
 *
 * Power failure: nothing durable is here. Stops the server: only an epoll that fails. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "os/os.h"

#define EVENTS_PER_TURN     512
#define TICK_MS             1000u
#define QUIET_MS            1000u       /* without a request for so long: the answer has arrived */
#define SIGNAL_RECORD_BYTES 128         /* sizeof struct signalfd_siginfo */
#define HEAD_BYTES_CAP      (64u << 10) /* libhttp-parser itself refuses heads over 80 KiB */

const struct http_limits http_limits_default = {
    .connections_max = 1024,
    .head_bytes_max = 32u << 10,
    .target_bytes_max = 16u << 10,
    .fields_max = 100,
    .pipeline_max = 64,
    .body_budget_bytes = 256u << 20,
    .admission_wait_ms = 1000,
    .head_timeout_ms = 10000,
    .idle_timeout_ms = 75000,
    .body_stall_ms = 30000,
    .body_rate_min = 16384,
    .write_stall_ms = 60000,
    .grace_ms = 10000,
    .linger_bytes_max = 64u << 20,
    .workers = 2,
    .work_queue_max = 1024,
    .threads_max = 288,
};

/* ---- making and ending ---- */

static int watch_fd(struct http_server *s, int fd, enum http_watch *watch)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = watch};

    return os_epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

/* The work of threads holds files open, strangers' uploads for one: there are no more threads than
 * what connections leave them descriptors for, with half of the spare ones left alone. */
static void limit_threads(struct http_server *s, uint64_t limit, uint64_t spare)
{
    struct http_limits *l = &s->config.limits;
    uint64_t conns = (uint64_t)l->connections_max + HTTP_REFUSED_LINGER + HTTP_UNIX_EXTRA;
    uint64_t files = conns < limit - spare ? limit - conns : spare;
    uint64_t threads = (files - spare / 2) / HTTP_THREAD_FILES;

    if (threads < l->threads_max) {
        l->threads_max = threads != 0 ? (unsigned)threads : 1;
        log_line(LOG_WARN, "http",
                 "the limit of open files leaves room for %u requests with a thread of their own",
                 l->threads_max);
    }
}

/* Strangers must not be able to take the last descriptor: a journal that cannot open its next file
 * stops for good. A new descriptor is the lowest free one, so its number tells how many are left.
 */
static void limit_descriptors(struct http_server *s)
{
    uint64_t limit = 1024; /* what most processes begin with */
    uint64_t spare;
    int got = os_raise_nofile(&limit);

    if (got != 0) {
        log_line(LOG_WARN, "http", "cannot raise the limit of open files (errno %d)", -got);
    }
    spare = limit / 4 < HTTP_FILES_SPARE ? limit / 4 : HTTP_FILES_SPARE;
    limit_threads(s, limit, spare);
    limit -= spare;
    s->fd_max = limit < INT_MAX / 2 ? (int)limit : INT_MAX / 2;
    if ((unsigned)s->fd_max < s->config.limits.connections_max) {
        log_line(LOG_WARN, "http",
                 "the limit of open files leaves room for less than %d connections, not for %u",
                 s->fd_max, s->config.limits.connections_max);
    }
}

static int open_descriptors(struct http_server *s, struct err *e)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    int got;

    limit_descriptors(s);
    s->epoll_fd = os_epoll_create();
    if (s->epoll_fd < 0) {
        return err_os(e, s->epoll_fd, "epoll_create", "http");
    }
    s->wake_fd = os_eventfd();
    if (s->wake_fd < 0) {
        return err_os(e, s->wake_fd, "eventfd", "http");
    }
    s->wake_watch = HTTP_WATCH_WAKE;
    got = watch_fd(s, s->wake_fd, &s->wake_watch);
    if (got == 0 && s->config.handle_signals) {
        s->signal_fd = os_signalfd(signals, sizeof signals / sizeof *signals);
        if (s->signal_fd < 0) {
            return err_os(e, s->signal_fd, "signalfd", "http");
        }
        s->signal_watch = HTTP_WATCH_SIGNAL;
        got = watch_fd(s, s->signal_fd, &s->signal_watch);
    }
    return got != 0 ? err_os(e, got, "epoll_ctl", "http") : 0;
}

static void start_clocks(struct http_server *s)
{
    s->now_ms = os_clock_mono_ns() / 1000000;
    s->tick_ms = s->now_ms + TICK_MS;
    s->sweep_ms = s->now_ms + HTTP_SWEEP_MS;
    http_date_update(s);
}

struct http_server *http_new(const struct http_config *config, struct err *e)
{
    static const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct http_server *s = calloc(1, sizeof *s);

    if (s == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory for the HTTP server");
        return NULL;
    }
    ensure(config->limits.workers != 0);
    ensure(config->limits.pipeline_max != 0);
    ensure(config->limits.connections_max != 0);
    s->config = *config;
    s->head_limits =
        (struct http_head_limits){.head_bytes_max = config->limits.head_bytes_max < HEAD_BYTES_CAP
                                                        ? config->limits.head_bytes_max
                                                        : HEAD_BYTES_CAP,
                                  .target_bytes_max = config->limits.target_bytes_max,
                                  .fields_max = config->limits.fields_max};
    s->epoll_fd = -1;
    s->wake_fd = -1;
    s->signal_fd = -1;
    TAILQ_INIT(&s->conns);
    TAILQ_INIT(&s->dirty);
    TAILQ_INIT(&s->runnable);
    TAILQ_INIT(&s->waiters);
    TAILQ_INIT(&s->dead_conns);
    TAILQ_INIT(&s->live);
    TAILQ_INIT(&s->orphans);
    TAILQ_INIT(&s->dead_requests);
    TAILQ_INIT(&s->spares);
    http_threads_init(s);
    /* sendv asks for no signal anyway; pipes of the process (logs) deserve the same. */
    (void)sigaction(SIGPIPE, &ignore, NULL);
    start_clocks(s);
    s->read_buffer = malloc(HTTP_READ_BYTES);
    if (s->read_buffer == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory for the HTTP server");
        http_free(s);
        return NULL;
    }
    if (http_patterns_make(s, e) != 0 || open_descriptors(s, e) != 0 ||
        http_pool_start(&s->pool, config->limits.workers, s->wake_fd, e) != 0) {
        http_free(s);
        return NULL;
    }
    return s;
}

static void bury(struct http_server *s)
{
    struct http_conn *c = TAILQ_FIRST(&s->dead_conns);

    while (c != NULL) {
        TAILQ_REMOVE(&s->dead_conns, c, link);
        buf_free(&c->in);
        free(c);
        c = TAILQ_FIRST(&s->dead_conns);
    }
    http_request_bury(s);
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        (void)os_close(fd);
    }
}

static void finish_jobs(struct http_server *s)
{
    struct http_job *job = http_pool_take(&s->pool);

    while (job != NULL) {
        struct http_job *next = job->next;

        s->jobs -= job->work != NULL ? 1 : 0;
        job->done(job->ctx);
        job = next;
    }
}

static void free_requests(struct http_request_list *list)
{
    struct http_request *req = TAILQ_FIRST(list);

    while (req != NULL) {
        TAILQ_REMOVE(list, req, link);
        http_request_free(req);
        req = TAILQ_FIRST(list);
    }
}

void http_free(struct http_server *s)
{
    http_listeners_free(s);
    while (!TAILQ_EMPTY(&s->conns)) {
        http_conn_close(TAILQ_FIRST(&s->conns));
    }
    http_threads_close(s);
    http_pool_stop(&s->pool);
    finish_jobs(s); /* their requests are orphans by now, and http_work says no */
    bury(s);
    free_requests(&s->orphans);
    free_requests(&s->spares);
    close_fd(s->signal_fd);
    close_fd(s->wake_fd);
    close_fd(s->epoll_fd);
    free(s->read_buffer);
    free(s->patterns);
    free(s);
}

/* ---- other threads ---- */

void http_stop(struct http_server *s)
{
    static const uint64_t one = 1;

    atomic_store(&s->stop_asked, true);
    (void)os_write(s->wake_fd, &one, sizeof one); /* fails only when the loop is awake already */
}

bool http_stopping(const struct http_server *s)
{
    return s->stopping || atomic_load(&s->stop_asked);
}

void http_again(struct http_server *s)
{
    s->again = true;
}

/* ---- the turn ---- */

static void begin_stop(struct http_server *s)
{
    struct http_conn *c = TAILQ_FIRST(&s->conns);

    s->stopping = true;
    s->grace_end_ms = s->now_ms + s->config.limits.grace_ms;
    http_listeners_close(s);
    if (s->config.hooks.stopping != NULL) {
        s->config.hooks.stopping(s->config.hooks.ctx);
    }
    while (c != NULL) {
        struct http_conn *next = TAILQ_NEXT(c, link);

        bool quiet = http_conn_idle(c) && s->now_ms - c->idle_since_ms >= QUIET_MS;

        if (http_conn_idle(c)) {
            http_conn_readable(c); /* a request may have arrived already */
        }
        if (quiet && !c->dead && http_conn_idle(c)) {
            http_conn_close(c); /* its last answer has long arrived: nothing to linger for */
            c = next;
            continue;
        }
        if (c->away) {
            http_away_stop(c);
        }
        http_conn_set_dirty(c); /* flush ends it where it is idle */
        c = next;
    }
}

static void read_signals(struct http_server *s)
{
    char record[SIGNAL_RECORD_BYTES];

    while (os_read(s->signal_fd, record, sizeof record) > 0) {
        if (s->stopping || atomic_load(&s->stop_asked)) {
            s->hurry = true;
        }
        atomic_store(&s->stop_asked, true);
    }
}

static void conn_event(struct http_conn *c, uint32_t events)
{
    if (c->dead) {
        return;
    }
    if ((events & EPOLLERR) != 0) {
        http_conn_close(c);
        return;
    }
    if ((events & EPOLLIN) != 0) {
        http_conn_readable(c);
    }
    /* Both sides have ended. Not to be masked, so it must not be left standing: what the client
     * sent before it went is still read, but nobody waits for a queue that blocks it. */
    if ((events & EPOLLHUP) != 0 && ((events & EPOLLIN) == 0 || c->paused || c->eof)) {
        http_conn_close(c);
        return;
    }
    if ((events & EPOLLOUT) != 0) {
        http_conn_set_dirty(c);
    }
}

static void dispatch(struct http_server *s, const struct epoll_event *ev)
{
    uint64_t count;

    switch (*(enum http_watch *)ev->data.ptr) {
    case HTTP_WATCH_LISTENER:
        if (!s->accept_paused && !s->stopping) {
            http_listener_accept(s, ev->data.ptr);
        }
        break;
    case HTTP_WATCH_CONN:
        conn_event(ev->data.ptr, ev->events);
        break;
    case HTTP_WATCH_WAKE:
        (void)os_read(s->wake_fd, &count, sizeof count); /* only to make it silent */
        break;
    case HTTP_WATCH_SIGNAL:
    default:
        read_signals(s);
        break;
    }
}

/* Runs what was runnable at the start; what becomes runnable by it waits for the next turn. */
static void run_runnable(struct http_server *s)
{
    struct http_conn *c;
    unsigned count = 0;

    TAILQ_FOREACH(c, &s->runnable, runnable_link)
    {
        count++;
    }
    for (; count != 0 && !TAILQ_EMPTY(&s->runnable); count--) {
        c = TAILQ_FIRST(&s->runnable);
        TAILQ_REMOVE(&s->runnable, c, runnable_link);
        c->runnable = false;
        http_conn_run(c);
    }
}

static void flush_dirty(struct http_server *s)
{
    struct http_conn *c = TAILQ_FIRST(&s->dirty);

    while (c != NULL) {
        TAILQ_REMOVE(&s->dirty, c, dirty_link);
        c->dirty = false;
        http_conn_flush(c);
        c = TAILQ_FIRST(&s->dirty);
    }
}

void http_flush(struct http_server *s)
{
    flush_dirty(s);
}

static void sweep(struct http_server *s)
{
    struct http_conn *c = TAILQ_FIRST(&s->conns);

    s->sweep_ms = s->now_ms + HTTP_SWEEP_MS;
    while (c != NULL) {
        struct http_conn *next = TAILQ_NEXT(c, link);

        http_conn_sweep(c);
        c = next;
    }
    http_threads_sweep(s);
}

static int wait_ms(const struct http_server *s)
{
    const struct http_conn *waiter = TAILQ_FIRST(&s->waiters);
    uint64_t until = s->conn_count != 0 && s->sweep_ms < s->tick_ms ? s->sweep_ms : s->tick_ms;

    if (s->again || !TAILQ_EMPTY(&s->runnable)) {
        return 0;
    }
    if (waiter != NULL && waiter->wait_start_ms + s->config.limits.admission_wait_ms < until) {
        until = waiter->wait_start_ms + s->config.limits.admission_wait_ms;
    }
    return until <= s->now_ms ? 0 : (int)(until - s->now_ms);
}

static int turn(struct http_server *s, struct err *e)
{
    struct epoll_event events[EVENTS_PER_TURN];
    const struct http_hooks *hooks = &s->config.hooks;
    int n = os_epoll_wait(s->epoll_fd, events, EVENTS_PER_TURN, wait_ms(s));

    if (n < 0) {
        return err_os(e, n, "epoll_wait", "http");
    }
    s->now_ms = os_clock_mono_ns() / 1000000;
    http_date_update(s);
    run_runnable(s);
    for (int i = 0; i < n; i++) {
        dispatch(s, &events[i]);
    }
    finish_jobs(s);
    if (s->now_ms >= s->tick_ms) {
        s->tick_ms = s->now_ms + TICK_MS;
        if (!s->stopping) {
            http_listeners_resume(s);
        }
        if (hooks->tick != NULL) {
            hooks->tick(hooks->ctx);
        }
    }
    if (atomic_load(&s->stop_asked) && !s->stopping) {
        begin_stop(s);
    }
    if (s->now_ms >= s->sweep_ms) {
        sweep(s);
    }
    if (!TAILQ_EMPTY(&s->waiters)) {
        http_admission_grant(s);
    }
    s->again = false; /* the hook does what there is, and says when there is more */
    if (hooks->turn != NULL) {
        hooks->turn(hooks->ctx);
    }
    flush_dirty(s);
    if (!TAILQ_EMPTY(&s->waiters)) {
        http_admission_grant(s); /* answers that left gave budget back */
    }
    bury(s);
    return 0;
}

int http_run(struct http_server *s, struct err *e)
{
    int result = 0;

    start_clocks(s);
    while (result == 0 && (!s->stopping || s->conn_count != 0 || s->jobs != 0)) {
        result = turn(s, e);
        if (s->stopping && (s->hurry || s->now_ms >= s->grace_end_ms)) {
            while (!TAILQ_EMPTY(&s->conns)) {
                http_conn_close(TAILQ_FIRST(&s->conns));
            }
        }
    }
    return result;
}
