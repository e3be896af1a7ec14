/* deliver: the process `tallyman deliver`: packages what was accepted and brings it to its
 * destination (ARCHITECTURE section 1; spec/artifacts.md sections 6 to 11).
 *
 * One thread, one thing at a time: a scan of receipts/, a build, a sending, a verification. It
 * touches neither receipts nor uploads, other than by reading. One process a data directory: a
 * kernel lock on DATA/delivery.lock, tried once. */
#ifndef MAIN_DELIVER_H
#define MAIN_DELIVER_H

#include <stdint.h>

#include "base/err.h"
#include "sink/artifact.h"

#define DELIVER_BACKOFF_MS     60000u   /* after the first failure; doubled with each further one */
#define DELIVER_BACKOFF_MS_MAX 3600000u /* at most */
#define DELIVER_NICE           10

struct deliver_options {
    const char *data;
    int parent_fd;       /* -1: none; else its end is the end of this process (main/child.h) */
    uint64_t backoff_ms; /* of the first failure; at least 1 */
    struct artifact_endpoints endpoints;
};

/* Runs until SIGTERM, SIGINT, SIGHUP or the parent's end: 0. ERR_LOCKED: another one is at work.
 * Other errors are of the data directory or of delivery.sqlite; a new start takes up everything. */
int deliver_run(const struct deliver_options *options, struct err *e) MUST_CHECK;

/* When the next scan of receipts/ is due, on the monotonic clock: as planned, but never so soon
 * that scans take up the time. */
uint64_t deliver_scan_due_ns(uint64_t due_ns, uint64_t begun_ns, uint64_t ended_ns);

/* After the n-th failure, n >= 1. */
uint64_t deliver_backoff_ms(uint64_t first_ms, unsigned n);

#endif
