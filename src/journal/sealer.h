/* sealer: the state of sealing, inside the journal; see seal.h for what it does. */
#ifndef JOURNAL_SEALER_H
#define JOURNAL_SEALER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "journal/seal.h"

struct sealer {
    pthread_mutex_t work; /* held while one generation is being sealed: there is one at a time */
    pthread_mutex_t lock; /* a leaf; guards what follows */
    pthread_cond_t changed;
    pthread_t thread;
    bool running; /* the thread is there */
    atomic_bool stop;
    uint32_t target; /* generations with lower ordinals are to be sealed by the thread */
    bool stopped;    /* until a restart */
    bool told;       /* that it is stopped, and why */
    int code;
    char cause[256];
    uint64_t sealed;
    struct journal_sealed recent[SEAL_RECENT]; /* number n is at (n - 1) % SEAL_RECENT */
    atomic_bool close_tail;                    /* asked for; the loop thread does it */
    /* the loop thread's */
    uint32_t keep;     /* of what was asked with close_tail */
    uint64_t retry_ns; /* of what was asked by the setting; not before this monotonic time */
};

void sealer_init(struct sealer *s);
/* Ends the thread and whoever seals: soon, and what was begun is left. */
void sealer_stop(struct journal *j);
void sealer_free(struct sealer *s);
/* Once a second, and where a group begins: closes the tail when that was asked for, and asks for
 * what the setting wants. Loop thread, nothing staged. */
void sealer_tick(struct journal *j);
/* seal.c: tells of an attempt that failed. */
void sealer_note_failure(struct journal *j, int code, const struct err *e);
/* seal.c: one generation, unless it is one of the newest `keep` closed ones. 1: sealed, 0: there is
 * none; ERR_ as journal_seal. */
int journal_seal_next(struct journal *j, uint32_t keep, struct err *e) MUST_CHECK;

#endif
