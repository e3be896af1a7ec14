/* deliver: the process `tallyman deliver`: packages what was accepted and brings it to its
 * destination (ARCHITECTURE section 1; spec/artifacts.md sections 6 to 11).
 *
 * One thread owns the index and decides; whatever may take long (the one read of a build, an
 * adapter's call) runs on threads of their own, so that neither a large file nor a destination that
 * hangs keeps anything else waiting. It touches neither receipts nor uploads, other than by
 * reading. One process a data directory: a kernel lock on DATA/delivery.lock, tried once. */
#ifndef MAIN_DELIVER_H
#define MAIN_DELIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sink/artifact.h"

#define DELIVER_BACKOFF_MS      60000u /* after the first failure; doubled with each further one */
#define DELIVER_BACKOFF_MS_MAX  3600000u  /* at most */
#define DELIVER_WAIT_MS_MAX     21600000u /* that an adapter may ask for */
#define DELIVER_NICE            10
#define DELIVER_CONCURRENCY     2u
#define DELIVER_CONCURRENCY_MAX 64u
#define DELIVER_TRY_MS          UINT64_C(86400000)
#define DELIVER_STUCK_MS        UINT64_C(300000)
#define DELIVER_STUCK_MAX       8u /* tries whose threads are replaced while they hang */
/* Of the supervisor's patience (main/child.h) a part. */
#define DELIVER_GRACE_MS  UINT64_C(5000)
#define DELIVER_UNSEEN_MS (UINT64_C(7) * 86400000)

struct deliver_options {
    const char *data;
    int parent_fd;        /* -1: none; else its end is the end of this process (main/child.h) */
    unsigned concurrency; /* sendings and verifications at a time; 0: none, builds only */
    uint64_t backoff_ms;  /* of the first failure; at least 1 */
    uint64_t try_ms;      /* the longest that one try may take */
    uint64_t stuck_ms;    /* a thread without a sign of life for so long is replaced */
    uint64_t grace_ms;    /* at the end, for tries under way */
    uint64_t unseen_ms;   /* sent and still not visible after so long: an alarm */
    struct artifact_endpoints endpoints;
};

/* Runs until SIGTERM, SIGINT, SIGHUP or the parent's end: 0. ERR_LOCKED: another one is at work.
 * Other errors are of the data directory or of delivery.sqlite; a new start takes up everything.
 * *left_behind: a thread did not come back within the grace time. The process must then end by
 * _exit: the thread uses what was not freed. */
int deliver_run(const struct deliver_options *options, bool *left_behind, struct err *e) MUST_CHECK;

/* When the next scan of receipts/ is due, on the monotonic clock: as planned, but never so soon
 * that scans take up the time. */
uint64_t deliver_scan_due_ns(uint64_t due_ns, uint64_t begun_ns, uint64_t ended_ns);

/* After the n-th failure, n >= 1. */
uint64_t deliver_backoff_ms(uint64_t first_ms, unsigned n);
/* The same where an adapter asks for a wait of its own (0: it does not). */
uint64_t deliver_wait_ms(uint64_t first_ms, unsigned n, uint64_t asked_ms);

#endif
