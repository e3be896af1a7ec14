/* spare: the next tail, made ahead of need: zero-filled, synced, its directory entry synced
 * (ARCHITECTURE 2.1: a pre-zeroed file commits 1.5 to 4 times as fast as a growing one).
 *
 * With a thread the work is done in the background, else inside spare_request. One mutex, a leaf:
 * nothing is called under it but the condition variable. A failed attempt leaves no file behind, as
 * far as the disk allows. */
#ifndef JOURNAL_SPARE_H
#define JOURNAL_SPARE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "journal/layout.h"

enum spare_state { SPARE_IDLE, SPARE_WANTED, SPARE_READY, SPARE_FAILED };

struct spare {
    const struct layout *layout;
    uint64_t bytes;
    bool threaded;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum spare_state state;
    bool stop;
    int fd;
    struct err failure; /* of SPARE_FAILED */
};

/* Starts idle. No tail.next may exist. ERR_NO_MEMORY when the thread cannot be made. */
int spare_start(struct spare *sp, const struct layout *l, uint64_t bytes, bool threaded,
                struct err *e) MUST_CHECK;
/* Asks for a spare unless there is one or one is being made. */
void spare_request(struct spare *sp);
/* Waits for the outcome of the last request and takes the file over: its descriptor, positioned
 * nowhere. On failure the state is idle again: ERR_NO_SPACE, ERR_IO. */
int spare_take(struct spare *sp, int *fd, struct err *e) MUST_CHECK;
/* State without waiting; *failure (may be NULL) is filled when failed. */
enum spare_state spare_peek(struct spare *sp, struct err *failure);
/* Ends the thread; removes a spare that was not taken. */
void spare_stop(struct spare *sp);

/* Writes zeros over [from, to) in pieces. No sync. Negative errno. */
int spare_zero_fill(int fd, uint64_t from, uint64_t to);

#endif
