/* Steps of making a spare and what a crash after each leaves:
 *   create tail.next   nothing, or an empty file: removed at the next open
 *   write zeros        a file with some zeros: removed
 *   sync file          the same
 *   sync directory     a whole spare: removed, or renamed when a rotation was cut (recover.c)
 * It never holds a byte other than zero before it is the tail. */
#include "journal/spare.h"

#include "base/ensure.h"
#include "os/os.h"

#define ZERO_PIECE (1u << 20)
#define SYNC_PIECE (2u << 20)

static const char zeros[ZERO_PIECE];

int spare_zero_fill(int fd, uint64_t from, uint64_t to)
{
    while (from < to) {
        uint64_t n = to - from < ZERO_PIECE ? to - from : ZERO_PIECE;
        int r = os_pwrite_all(fd, zeros, (size_t)n, from, NULL);
        if (r < 0) {
            return r;
        }
        from += n;
    }
    return 0;
}

/* In pieces that are synced one by one: one flush of the whole file would make the commits beside
 * it wait for tens of milliseconds. fsync, so that in a trace every fdatasync is a commit. */
static int fill(int fd, uint64_t bytes)
{
    int r = 0;
    for (uint64_t at = 0; at < bytes && r == 0; at += SYNC_PIECE) {
        uint64_t end = bytes - at < SYNC_PIECE ? bytes : at + SYNC_PIECE;
        r = spare_zero_fill(fd, at, end);
        if (r == 0 && end < bytes) {
            r = os_fsync(fd);
        }
    }
    return r;
}

static int make(struct spare *sp, int *fd_out, struct err *e)
{
    const char *what = "create";
    int fd = os_open(sp->layout->spare, O_RDWR | O_CREAT | O_EXCL, 0600);
    int r = fd < 0 ? fd : 0;
    if (r == 0) {
        what = "fill";
        r = fill(fd, sp->bytes);
    }
    if (r == 0) {
        what = "sync";
        r = os_fsync(fd);
    }
    if (r == 0) {
        what = "sync the directory of";
        r = os_sync_dir(sp->layout->journal);
    }
    if (r == 0) {
        *fd_out = fd;
        return 0;
    }
    if (fd >= 0) {
        (void)os_close(fd);
        (void)os_unlink(sp->layout->spare);
    }
    return err_os(e, r, what, "tail.next");
}

static void run_once(struct spare *sp)
{
    struct err failure = {0};
    int fd = -1;
    int r = make(sp, &fd, &failure);
    pthread_mutex_lock(&sp->mutex);
    ensure(sp->state == SPARE_WANTED);
    if (r == 0) {
        sp->fd = fd;
        sp->state = SPARE_READY;
    } else {
        sp->failure = failure;
        sp->state = SPARE_FAILED;
    }
    pthread_cond_broadcast(&sp->changed);
    pthread_mutex_unlock(&sp->mutex);
}

static void *spare_main(void *arg)
{
    struct spare *sp = arg;
    (void)pthread_setname_np(pthread_self(), "spare");
    for (;;) {
        pthread_mutex_lock(&sp->mutex);
        while (sp->state != SPARE_WANTED && !sp->stop) {
            pthread_cond_wait(&sp->changed, &sp->mutex);
        }
        bool stop = sp->stop;
        if (stop && sp->state == SPARE_WANTED) {
            sp->state = SPARE_IDLE;
        }
        pthread_mutex_unlock(&sp->mutex);
        if (stop) {
            return NULL;
        }
        run_once(sp);
    }
}

int spare_start(struct spare *sp, const struct layout *l, uint64_t bytes, bool threaded,
                struct err *e)
{
    *sp = (struct spare){.layout = l, .bytes = bytes, .threaded = threaded, .fd = -1};
    int r = pthread_mutex_init(&sp->mutex, NULL);
    ensure(r == 0);
    r = pthread_cond_init(&sp->changed, NULL);
    ensure(r == 0);
    if (threaded && pthread_create(&sp->thread, NULL, spare_main, sp) != 0) {
        return err_set(e, ERR_NO_MEMORY, "cannot start the thread that prepares tails");
    }
    return 0;
}

void spare_request(struct spare *sp)
{
    pthread_mutex_lock(&sp->mutex);
    bool begin = sp->state == SPARE_IDLE || sp->state == SPARE_FAILED;
    if (begin) {
        sp->state = SPARE_WANTED;
        pthread_cond_broadcast(&sp->changed);
    }
    pthread_mutex_unlock(&sp->mutex);
    if (begin && !sp->threaded) {
        run_once(sp);
    }
}

int spare_take(struct spare *sp, int *fd, struct err *e)
{
    spare_request(sp);
    pthread_mutex_lock(&sp->mutex);
    while (sp->state == SPARE_WANTED) {
        pthread_cond_wait(&sp->changed, &sp->mutex);
    }
    int r = 0;
    if (sp->state == SPARE_READY) {
        *fd = sp->fd;
        sp->fd = -1;
    } else {
        ensure(sp->state == SPARE_FAILED);
        r = sp->failure.code;
        if (e != NULL) {
            *e = sp->failure;
        }
    }
    sp->state = SPARE_IDLE;
    pthread_mutex_unlock(&sp->mutex);
    return r;
}

enum spare_state spare_peek(struct spare *sp, struct err *failure)
{
    pthread_mutex_lock(&sp->mutex);
    enum spare_state state = sp->state;
    if (failure != NULL && state == SPARE_FAILED) {
        *failure = sp->failure;
    }
    pthread_mutex_unlock(&sp->mutex);
    return state;
}

void spare_stop(struct spare *sp)
{
    if (sp->threaded) {
        pthread_mutex_lock(&sp->mutex);
        sp->stop = true;
        pthread_cond_broadcast(&sp->changed);
        pthread_mutex_unlock(&sp->mutex);
        int r = pthread_join(sp->thread, NULL);
        ensure(r == 0);
    }
    if (sp->fd >= 0) {
        (void)os_close(sp->fd);
        (void)os_unlink(sp->layout->spare);
        sp->fd = -1;
    }
    (void)pthread_cond_destroy(&sp->changed);
    (void)pthread_mutex_destroy(&sp->mutex);
}
