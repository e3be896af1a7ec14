/* Closing a generation and going on in the next file.
 *
 * Steps, and what a crash after each one leaves (recovery is in recover.c and open.c):
 *   1 trim the tail, sync it      tail.ndjson without padding, whole: opens as a closed tail
 *   2 rename it into pending/     one of the two names (a rename is atomic)
 *   3 sync pending/ and journal/  pending/F_L.ndjson, no tail.ndjson, but tail.next: the next open
 *                                 does the rest
 *   4 rename tail.next to tail    tail.next or tail.ndjson, all zeros either way
 *   5 sync journal/               done; only now may anything be acknowledged from the new tail
 *
 * A failure in 1 to 5 poisons: what the directory holds is not known. Before 1 nothing has
 * happened: a missing spare for want of space is an answer. */
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "journal/internal.h"
#include "os/os.h"

static int poisoned(struct journal *j, int result, const char *what, const char *path,
                    struct err *e)
{
    struct err local;
    (void)err_os(&local, result, what, path);
    journal_poison(j, local.text);
    return err_set(e, ERR_WRITER_POISONED, "%s", local.text);
}

/* Waits for the next file. Space is an answer, everything else poisons. */
static int take_spare(struct journal *j, int *fd, struct err *e)
{
    struct err failure = {0};
    int r = spare_take(&j->spare, fd, &failure);
    if (r == 0) {
        return 0;
    }
    if (r == ERR_NO_SPACE) {
        journal_set_no_space(j, true, "no space left for the next generation");
        return err_set(e, ERR_NO_SPACE, "no space left for the next generation");
    }
    journal_poison(j, failure.text);
    return err_set(e, ERR_WRITER_POISONED, "%s", failure.text);
}

static int swap_files(struct journal *j, struct generation *tail, struct err *e)
{
    char closed[LAYOUT_PATH_MAX];
    layout_pending_path(&j->layout, &tail->first_id, &tail->last_id, closed);
    int r = os_ftruncate(tail->fd, tail->bytes);
    if (r < 0) {
        return poisoned(j, r, "trim", "tail.ndjson", e);
    }
    r = os_fsync(tail->fd);
    if (r < 0) {
        return poisoned(j, r, "sync", "tail.ndjson", e);
    }
    r = os_rename(j->layout.tail, closed);
    if (r < 0) {
        return poisoned(j, r, "close", "tail.ndjson", e);
    }
    r = os_sync_dir(j->layout.pending);
    if (r < 0) {
        return poisoned(j, r, "sync", "pending", e);
    }
    r = os_sync_dir(j->layout.journal);
    if (r < 0) {
        return poisoned(j, r, "sync", "the journal directory", e);
    }
    r = os_rename(j->layout.spare, j->layout.tail);
    if (r < 0) {
        return poisoned(j, r, "rename", "tail.next", e);
    }
    r = os_sync_dir(j->layout.journal);
    if (r < 0) {
        return poisoned(j, r, "sync", "the journal directory", e);
    }
    return 0;
}

/* Hands the closed generation to the index. A failure costs a rebuild at the next start, nothing
 * else. */
static void summarize(struct journal *j, const struct generation *closed)
{
    struct index_summary s = {.generation = closed->ordinal,
                              .first_id = closed->first_id,
                              .last_id = closed->last_id,
                              .events = closed->events,
                              .batches = j->batches_in_tail,
                              .bytes = closed->bytes};
    memcpy(s.head, j->frontier.head, SHA256_LEN);
    struct err e = {0};
    int r = streams_generation(j->streams, true, &s.streams, &s.stream_count);
    if (r == 0) {
        r = index_close_generation(j->index, &s, true, &e);
        free(s.streams);
    }
    if (r != 0) {
        metric_add(METRIC_INDEX_FAILURES, 1);
        log_line(LOG_WARN, "journal", "a generation could not be summarized: %s", e.text);
    }
    j->batches_in_tail = 0;
}

int journal_rotate(struct journal *j, uint64_t need, struct err *e)
{
    struct generation *closed = journal_tail(j);
    ensure(j->group_events == 0);
    ensure(closed->events > 0);
    int fd = -1;
    int r = take_spare(j, &fd, e);
    if (r != 0) {
        return r;
    }
    r = swap_files(j, closed, e);
    if (r == 0 && journal_add_generation(j, fd) == NULL) {
        journal_poison(j, "out of memory in a rotation");
        r = err_set(e, ERR_WRITER_POISONED, "out of memory in a rotation");
    }
    if (r != 0) {
        (void)os_close(fd);
        return r;
    }
    pthread_mutex_lock(&j->lock);
    closed->tail = false;
    closed->named_last_id = closed->last_id;
    closed->fd = -1;
    pthread_mutex_unlock(&j->lock);
    journal_release(j, closed, closed->file); /* readers who hold it go on */
    j->tail_capacity = j->options.generation_bytes;
    metric_add(METRIC_JOURNAL_ROTATIONS, 1);
    metric_set(METRIC_JOURNAL_GENERATIONS, j->generation_count);
    summarize(j, closed);
    /* Without a thread the spare is made when it is taken. Made here, its sync of the directory
     * would hide from the crash tests that one of swap_files is missing. */
    if (j->options.threads) {
        spare_request(&j->spare);
    }
    return need + 1 > j->tail_capacity ? journal_grow_tail(j, need, e) : 0;
}

int journal_grow_tail(struct journal *j, uint64_t need, struct err *e)
{
    struct generation *tail = journal_tail(j);
    uint64_t want = tail->bytes + need + 1;
    if (want < j->options.generation_bytes) {
        want = j->options.generation_bytes;
    }
    ensure(want > j->tail_capacity);
    /* The zeros are durable before anything is written over them, so a crash can leave a longer or
     * shorter run of zeros behind the data and nothing else. */
    int r = spare_zero_fill(tail->fd, j->tail_capacity, want);
    if (r == 0) {
        r = os_fsync(tail->fd);
    }
    if (r == 0) {
        j->tail_capacity = want;
        return 0;
    }
    struct err local;
    int code = err_os(&local, r, "extend", "tail.ndjson");
    if (code == ERR_NO_SPACE) {
        /* What was got goes back, where that is possible: smaller batches need it. */
        (void)os_ftruncate(tail->fd, j->tail_capacity);
        journal_set_no_space(j, true, "no space left to extend tail.ndjson");
        return err_set(e, ERR_NO_SPACE, "no space left to extend tail.ndjson");
    }
    return poisoned(j, r, "extend", "tail.ndjson", e);
}
