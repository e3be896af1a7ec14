/* deliver: start, loop and end of the process.
 *
 * Start: lock, signals, index, temporary names of a crash, the watch on receipts/ (before the first
 * scan, so that no receipt comes between the two). Loop: what the watch named is added; a scan when
 * it is due (at the start, hourly, and often where there is no watch); then the one piece of work
 * whose project's turn it is; with nothing due it waits for a receipt, the next due time, or the
 * end. End: a signal or the parent's end makes deliver_stopping true for good; the work under way
 * gives up between two pieces, and its row is due again at the next start.
 *
 * The steps and their crash arguments: delivery_index.c (rows), deliver_build.c (sidecars), and the
 * adapters in sink/ (the destination).
 *
 * Answers: none. Failures of a package are rows. What ends the process: the lock is taken, the data
 * directory or the index cannot be used; the supervisor starts it again. */
#include "main/deliver_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/paused.h"

#define NS_PER_MS         UINT64_C(1000000)
#define SCAN_EVERY_MS     UINT64_C(3600000)
#define SCAN_UNWATCHED_MS UINT64_C(5000)
#define SCAN_SHARE        10u /* of millions of receipts: most of the time is for delivering them */
#define WAIT_MS_MAX       INT64_C(30000) /* clocks may be set: due times are looked at again */
#define PAUSED_MS         500            /* between two looks at DATA/paused */
#define DATA_PATH_MAX     4096

int64_t deliver_now_ms(void)
{
    return (int64_t)os_clock_real_ms();
}

uint64_t deliver_backoff_ms(uint64_t first_ms, unsigned n)
{
    uint64_t wait_ms = first_ms;

    for (unsigned i = 1; i < n && wait_ms < DELIVER_BACKOFF_MS_MAX; i++) {
        wait_ms *= 2;
    }
    return wait_ms < DELIVER_BACKOFF_MS_MAX ? wait_ms : DELIVER_BACKOFF_MS_MAX;
}

void deliver_path(const struct deliver *d, char out[DELIVER_PATH_BYTES], const char *name)
{
    int n = snprintf(out, DELIVER_PATH_BYTES, "%s/%s", d->options->data, name);

    ensure(n > 0);
    ensure(n < DELIVER_PATH_BYTES);
}

static size_t hex_run(const char *text)
{
    size_t n = 0;

    while ((text[n] >= '0' && text[n] <= '9') || (text[n] >= 'a' && text[n] <= 'f')) {
        n++;
    }
    return n;
}

void deliver_shown(char out[DELIVER_SHOWN_MAX], const char *text)
{
    static const char dots[] = "...";
    size_t n = 0;

    while (*text != '\0' && n + DELIVER_SHORT_ID + sizeof dots < DELIVER_SHOWN_MAX) {
        size_t hex = hex_run(text);
        if (hex >= UPLOAD_ID_LEN) {
            memcpy(out + n, text, DELIVER_SHORT_ID);
            memcpy(out + n + DELIVER_SHORT_ID, dots, sizeof dots - 1);
            n += DELIVER_SHORT_ID + sizeof dots - 1;
            text += hex;
        } else {
            out[n++] = (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text;
            text++;
        }
    }
    out[n] = '\0';
}

/* ---- the end ---- */

bool deliver_stopping(struct deliver *d)
{
    struct epoll_event event;

    /* The descriptors stay readable: asked once is enough. */
    if (!d->stop && os_epoll_wait(d->stop_ep, &event, 1, 0) > 0) {
        d->stop = true;
        log_line(LOG_INFO, "deliver", "stopping%s",
                 event.data.fd == d->options->parent_fd ? ": the parent has gone" : "");
    }
    return d->stop;
}

/* ---- start ---- */

static int watch_for(int ep, int fd, struct err *e)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    int r = os_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event);

    return r < 0 ? err_os(e, r, "epoll_ctl", "a descriptor of this process") : 0;
}

static int start_waiting(struct deliver *d, struct err *e)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    int r = 0;

    d->signal_fd = os_signalfd(signals, sizeof signals / sizeof *signals);
    d->stop_ep = os_epoll_create();
    d->wait_ep = os_epoll_create();
    if (d->signal_fd < 0 || d->stop_ep < 0 || d->wait_ep < 0) {
        return err_set(e, ERR_IO, "no descriptors for signals and waiting");
    }
    r = watch_for(d->stop_ep, d->signal_fd, e);
    if (r == 0 && d->options->parent_fd >= 0) {
        r = watch_for(d->stop_ep, d->options->parent_fd, e);
    }
    return r == 0 ? watch_for(d->wait_ep, d->stop_ep, e) : r;
}

static int take_lock(struct deliver *d, struct err *e)
{
    char path[DELIVER_PATH_BYTES];
    int r;

    deliver_path(d, path, DELIVERY_LOCK);
    d->lock_fd = os_open(path, O_RDWR | O_CREAT, 0640);
    if (d->lock_fd < 0) {
        return err_os(e, d->lock_fd, "open", path);
    }
    r = os_flock(d->lock_fd, LOCK_EX | LOCK_NB);
    if (r == -EWOULDBLOCK) {
        return err_set(e, ERR_LOCKED, "another tallyman deliver is at work on %s",
                       d->options->data);
    }
    return r < 0 ? err_os(e, r, "lock", path) : 0;
}

static int make_packages(struct deliver *d, struct err *e)
{
    char path[DELIVER_PATH_BYTES];
    int r;

    deliver_path(d, path, DELIVERY_PACKAGES);
    r = os_mkdir_exist_ok(path, 0750);
    if (r < 0) {
        return err_os(e, r, "make", path);
    }
    r = os_sync_dir(d->options->data);
    return r < 0 ? err_os(e, r, "sync", d->options->data) : deliver_build_clean(d, e);
}

static void start_watch(struct deliver *d)
{
    char path[DELIVER_PATH_BYTES];
    struct err e = {0};

    deliver_path(d, path, "receipts");
    d->watch_fd = os_watch_dir(path);
    if (d->watch_fd < 0 || watch_for(d->wait_ep, d->watch_fd, &e) != 0) {
        log_line(LOG_WARN, "deliver", "%s cannot be watched: it is read every %" PRIu64 " s", path,
                 SCAN_UNWATCHED_MS / 1000);
        if (d->watch_fd >= 0) {
            (void)os_close(d->watch_fd);
        }
        d->watch_fd = -1;
    }
}

static int start(struct deliver *d, struct err *e)
{
    struct uploads_options folders = {.data = d->options->data, .issuer = ""};
    bool rebuilt = false;
    int r = take_lock(d, e);

    if (r == 0) {
        r = start_waiting(d, e);
    }
    if (r == 0) {
        d->piece = aligned_alloc(4096, ARTIFACT_PIECE_BYTES);
        r = d->piece == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for a piece of a file") : 0;
    }
    if (r == 0) {
        r = uploads_open(&folders, &d->uploads, e);
    }
    if (r == 0) {
        r = make_packages(d, e);
    }
    if (r == 0) {
        r = delivery_index_open(d->options->data, &d->index, &rebuilt, e);
    }
    if (r == 0) {
        r = delivery_index_restart(d->index, deliver_now_ms(), e);
    }
    if (r == 0) {
        start_watch(d);
        log_line(LOG_INFO, "deliver", "ready%s", rebuilt ? ", with a new " DELIVERY_FILE : "");
    }
    return r;
}

static void end(struct deliver *d)
{
    const int fds[] = {d->watch_fd, d->wait_ep, d->stop_ep, d->signal_fd, d->lock_fd};

    delivery_index_close(d->index);
    uploads_close(d->uploads);
    free(d->piece);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0) {
            (void)os_close(fds[i]);
        }
    }
}

/* ---- the loop ---- */

uint64_t deliver_scan_due_ns(uint64_t due_ns, uint64_t begun_ns, uint64_t ended_ns)
{
    uint64_t least_ns = ended_ns + (ended_ns - begun_ns) * SCAN_SHARE;

    return due_ns > least_ns ? due_ns : least_ns;
}

static int look_for_receipts(struct deliver *d, struct err *e)
{
    uint64_t every_ms = d->watch_fd >= 0 ? SCAN_EVERY_MS : SCAN_UNWATCHED_MS;
    int r = d->watch_fd >= 0 ? deliver_watched(d, e) : 0;

    if (r == 0 && (d->scan_now || os_clock_mono_ns() >= d->scan_due_ns)) {
        uint64_t begun_ns = os_clock_mono_ns();
        d->scan_now = false;
        d->scan_due_ns = begun_ns + every_ms * NS_PER_MS;
        r = deliver_scan(d, e);
        d->scan_due_ns = deliver_scan_due_ns(d->scan_due_ns, begun_ns, os_clock_mono_ns());
    }
    return r;
}

static void wait_for_work(struct deliver *d)
{
    struct epoll_event event;
    int64_t now_ms = deliver_now_ms();
    uint64_t now_ns = os_clock_mono_ns();
    int64_t wait_ms = WAIT_MS_MAX;

    if (d->work.due_ms - now_ms < wait_ms) {
        wait_ms = d->work.due_ms > now_ms ? d->work.due_ms - now_ms : 0;
    }
    if (d->scan_due_ns < now_ns + (uint64_t)wait_ms * NS_PER_MS) {
        wait_ms =
            d->scan_due_ns > now_ns ? (int64_t)((d->scan_due_ns - now_ns) / NS_PER_MS) + 1 : 0;
    }
    ensure(wait_ms >= 0);
    ensure(wait_ms <= WAIT_MS_MAX + 1);
    (void)os_epoll_wait(d->wait_ep, &event, 1, (int)wait_ms);
}

/* Looked at before each piece of work: builds too, because they fix where a package goes. */
static bool is_paused(struct deliver *d)
{
    struct paused p;

    paused_read(d->options->data, &p);
    if (p.on != d->paused) {
        log_line(LOG_INFO, "deliver", p.on ? "paused: %s" : "resumed%s", p.on ? p.reason : "");
        d->paused = p.on;
    }
    return p.on;
}

static int one_turn(struct deliver *d, struct err *e)
{
    struct epoll_event event;
    int r = look_for_receipts(d, e);

    if (r < 0 || deliver_stopping(d)) {
        return r;
    }
    if (is_paused(d)) {
        (void)os_epoll_wait(d->stop_ep, &event, 1, PAUSED_MS);
        return 0;
    }
    r = delivery_index_next(d->index, deliver_now_ms(), d->project, &d->work, e);
    if (r < 0) {
        return r;
    }
    switch (d->work.task) {
    case DELIVERY_NOTHING:
        wait_for_work(d);
        return 0;
    case DELIVERY_BUILD:
        return deliver_build(d, e);
    case DELIVERY_SEND:
    case DELIVERY_VERIFY:
        return deliver_send(d, e);
    }
    return 0;
}

/* Damage that only reading showed: without this, each start would end at the same row. */
static void discard(const char *data)
{
    struct err e = {0};

    if (delivery_index_put_aside(data, &e) != 0) {
        log_line(LOG_ERROR, "deliver", "%s", e.text);
    } else {
        log_line(LOG_ERROR, "deliver",
                 "%s is damaged; it is put aside, and the next start makes it anew", DELIVERY_FILE);
    }
}

int deliver_run(const struct deliver_options *options, struct err *e)
{
    static struct deliver d; /* large: plans and names */
    int r;

    ensure(options->backoff_ms > 0);
    memset(&d, 0, sizeof d);
    d.options = options;
    d.lock_fd = d.signal_fd = d.stop_ep = d.wait_ep = d.watch_fd = -1;
    if (strlen(options->data) >= DATA_PATH_MAX) {
        return err_set(e, ERR_USAGE, "the path of the data directory is too long");
    }
    r = start(&d, e);
    while (r == 0 && !deliver_stopping(&d)) {
        r = one_turn(&d, e);
    }
    end(&d);
    if (r == ERR_CORRUPT) {
        discard(options->data);
    }
    return r;
}
