/* deliver: start and end of the process.
 *
 * Start: lock, signals, index, temporary names of a crash, the watches on receipts/ and requests/
 * (before the first look, so that nothing comes between the two). Then turns (deliver_loop.c). End:
 * a signal or the parent's end makes deliver_stopping true for good; what is under way gives up
 * between two pieces, and its row is due again at the next start. A thread that does not come back
 * within the grace time is left behind (deliver_send.c says why that is no worse than a kill).
 *
 * The steps and their crash arguments: delivery_index.c (rows), package_build.c (files), and the
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
#include "store/artifact/request.h"

#define DATA_PATH_MAX 4096

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

uint64_t deliver_wait_ms(uint64_t first_ms, unsigned n, uint64_t asked_ms)
{
    uint64_t wait_ms = deliver_backoff_ms(first_ms, n);

    asked_ms = asked_ms < DELIVER_WAIT_MS_MAX ? asked_ms : DELIVER_WAIT_MS_MAX;
    return asked_ms > wait_ms ? asked_ms : wait_ms;
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
    if (!atomic_load(&d->stop) && os_epoll_wait(d->stop_ep, &event, 1, 0) > 0 &&
        !atomic_exchange(&d->stop, true)) {
        log_line(LOG_INFO, "deliver", "stopping%s",
                 event.data.fd == d->options->parent_fd ? ": the parent has gone" : "");
    }
    return atomic_load(&d->stop);
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
    d->finished_fd = os_eventfd();
    if (d->signal_fd < 0 || d->stop_ep < 0 || d->wait_ep < 0 || d->finished_fd < 0) {
        return err_set(e, ERR_IO, "no descriptors for signals and waiting");
    }
    r = watch_for(d->stop_ep, d->signal_fd, e);
    if (r == 0 && d->options->parent_fd >= 0) {
        r = watch_for(d->stop_ep, d->options->parent_fd, e);
    }
    if (r == 0) {
        r = watch_for(d->wait_ep, d->stop_ep, e);
    }
    return r == 0 ? watch_for(d->wait_ep, d->finished_fd, e) : r;
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

static int make_folders(struct deliver *d, struct err *e)
{
    static const char *const names[] = {DELIVERY_PACKAGES, REQUESTS_FOLDER};
    char path[DELIVER_PATH_BYTES];
    int r;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        deliver_path(d, path, names[i]);
        r = os_mkdir_exist_ok(path, 0750);
        if (r < 0) {
            return err_os(e, r, "make", path);
        }
    }
    r = os_sync_dir(d->options->data);
    return r < 0 ? err_os(e, r, "sync", d->options->data)
                 : package_build_clean(d->options->data, &d->stop, e);
}

/* -1: it cannot be watched, and is looked at every few seconds. */
static int start_watch(struct deliver *d, const char *name)
{
    char path[DELIVER_PATH_BYTES];
    struct err e = {0};
    int fd;

    deliver_path(d, path, name);
    fd = os_watch_dir(path);
    if (fd >= 0 && watch_for(d->wait_ep, fd, &e) == 0) {
        return fd;
    }
    log_line(LOG_WARN, "deliver", "%s cannot be watched: it is read every few seconds", path);
    if (fd >= 0) {
        (void)os_close(fd);
    }
    return -1;
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
        r = uploads_open(&folders, &d->uploads, e);
    }
    if (r == 0) {
        r = make_folders(d, e);
    }
    if (r == 0) {
        r = delivery_index_open(d->options->data, &d->index, &rebuilt, e);
    }
    if (r == 0) {
        r = delivery_index_restart(d->index, deliver_now_ms(), e);
    }
    if (r == 0) {
        r = deliver_proofs(d, e);
    }
    if (r == 0) {
        r = deliver_plans(d, e);
    }
    if (r == 0) {
        d->watch_fd = start_watch(d, "receipts");
        d->request_fd = start_watch(d, REQUESTS_FOLDER);
        log_line(LOG_INFO, "deliver", "ready%s", rebuilt ? ", with a new " DELIVERY_FILE : "");
    }
    return r;
}

/* left_behind: what its thread uses stays, and so does the lock. */
static void end(struct deliver *d, bool left_behind)
{
    const int fds[] = {d->watch_fd,  d->request_fd,  d->wait_ep, d->stop_ep,
                       d->signal_fd, d->finished_fd, d->lock_fd};

    delivery_index_close(d->index);
    if (left_behind) {
        return;
    }
    deliver_slots_free(d);
    uploads_close(d->uploads);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0) {
            (void)os_close(fds[i]);
        }
    }
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

int deliver_run(const struct deliver_options *options, bool *left_behind, struct err *e)
{
    static struct deliver d; /* large: names, slots */
    struct err why = {0};
    int r;

    ensure(options->backoff_ms > 0);
    ensure(options->concurrency <= DELIVER_CONCURRENCY_MAX);
    memset(&d, 0, sizeof d);
    *left_behind = false;
    d.options = options;
    d.choose_now = true;
    d.lock_fd = d.signal_fd = d.stop_ep = d.wait_ep = -1;
    d.watch_fd = d.request_fd = d.finished_fd = -1;
    if (strlen(options->data) >= DATA_PATH_MAX) {
        return err_set(e, ERR_USAGE, "the path of the data directory is too long");
    }
    r = start(&d, e);
    while (r == 0 && !deliver_stopping(&d)) {
        r = deliver_turn(&d, e);
    }
    if (d.index != NULL) {
        int last = deliver_finish(&d, r == 0, left_behind, r == 0 ? e : &why);
        r = r == 0 ? last : r;
    }
    end(&d, *left_behind);
    if (r == ERR_CORRUPT) {
        discard(options->data);
    }
    return r;
}
