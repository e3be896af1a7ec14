/* The group commit.
 *
 * journal_append stages: it resolves a batch's identity against everything committed and everything
 * staged before it, gives ids, and adds the lines to one buffer. journal_commit makes the buffer
 * durable with one pwrite into zeros that are already on the disk and one fdatasync, and then
 * publishes.
 *
 * If power fails
 *   before the fdatasync has returned: any sectors of the group may be on the disk. Nobody was told
 * of it. Recovery keeps those leading batches of it that are whole and proven, and sets the rest
 * aside; after it: the group is on the disk, all of it. If the write fails for want of space, what
 * was written of it is overwritten with zeros and synced; then nothing has happened. Any other
 * failure of the write, and any failure of a sync, poisons the journal: the kernel may have dropped
 * the pages, so a second sync would lie (RELIABILITY R5). */
#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/timefmt.h"
#include "journal/chain.h"
#include "journal/event_id.h"
#include "journal/internal.h"
#include "journal/line.h"
#include "journal/scan.h"
#include "os/os.h"

#define CLOCK_WARN_MS    60000
#define GROUP_KEEP_BYTES (8u << 20) /* a larger buffer is given back after its commit */
#define SPACE_RETRY_NS   UINT64_C(1000000000)

/* ---- staging ---- */

static int begin_group(struct journal *j, struct err *e)
{
    uint64_t now = os_clock_real_ms();
    if (now >= TIMEFMT_MS_END) {
        now = 0; /* a clock beyond the year 9999 is no clock */
    }
    if (!j->any_group) {
        uint16_t tag;
        int r = os_random(&tag, sizeof tag);
        if (r < 0) {
            return err_os(e, r, "get random bytes", "for the journal's tag");
        }
        j->tag = tag & EVENT_ID_TAG_MAX;
        j->group_number = 0;
    } else {
        j->group_number = event_id_next_group(j->last_group);
    }
    uint64_t last = j->any_group ? j->last_ms : 0;
    last += j->any_group && j->group_number == 0 ? 1 : 0;
    if (last >= TIMEFMT_MS_END) {
        return err_set(e, ERR_UNSUPPORTED, "the ids leave no room for one behind them");
    }
    j->group_ms = now > last ? now : last;
    bool ahead = last > now + CLOCK_WARN_MS;
    if (ahead && !j->clock_warned) {
        log_line(LOG_WARN, "journal",
                 "the clock is %llu ms behind the last event; ids and observed_at stay there",
                 (unsigned long long)(last - now));
    }
    j->clock_warned = ahead;
    metric_set(METRIC_JOURNAL_CLOCK_AHEAD_MS, last > now ? last - now : 0);
    timefmt_ms(j->group_observed_at, j->group_ms);
    memcpy(j->group_head, j->frontier.head, SHA256_LEN);
    return 0;
}

static struct line stage_template(const struct journal *j, const struct journal_batch *b,
                                  const char digest_hex[SHA256_HEX_LEN])
{
    return (struct line){.batch_digest = slice_of(digest_hex, SHA256_HEX_LEN),
                         .batch_id = b->batch_id,
                         .batch_len = b->count,
                         .source = b->source,
                         .content_hash = slice_of(digest_hex, SHA256_HEX_LEN),
                         .event_hash = slice_of(digest_hex, SHA256_HEX_LEN),
                         .event_id = slice_of(digest_hex, UUID_TEXT_LEN),
                         .observed_at = slice_of(j->group_observed_at, TIMEFMT_MS_LEN)};
}

static void line_set_event(struct line *l, const struct journal_event *ev)
{
    l->kind = ev->kind;
    l->occurred_at = ev->occurred_at;
    l->payload = ev->payload;
    l->record_key = ev->record_key;
    l->stream = ev->stream;
}

static uint64_t batch_bytes(struct line *l, const struct journal_batch *b)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        line_set_event(l, &b->events[i]);
        n += line_length(l);
    }
    return n;
}

/* Hashes and writes one event's line; the group's head moves on. */
static int stage_event(struct journal *j, struct line *l, const struct journal_event *ev,
                       struct uuid *id)
{
    char content_hex[SHA256_HEX_LEN];
    char hash_hex[SHA256_HEX_LEN];
    char id_text[UUID_TEXT_LEN];
    uint8_t hash[SHA256_LEN];
    ensure(j->group_events <= EVENT_ID_INDEX_MAX);
    *id = event_id_make((struct event_id_parts){.ms = j->group_ms,
                                                .group = j->group_number,
                                                .tag = j->tag,
                                                .index = (uint16_t)j->group_events});
    uuid_text(id_text, id);
    hex_encode(content_hex, ev->content_hash, SHA256_LEN);
    line_set_event(l, ev);
    l->content_hash = slice_of(content_hex, SHA256_HEX_LEN);
    l->event_id = slice_of(id_text, UUID_TEXT_LEN);
    struct chain_event ce = line_envelope(l);
    if (!chain_event_hash(&ce, &j->scratch, hash)) {
        return ERR_NO_MEMORY;
    }
    hex_encode(hash_hex, hash, SHA256_LEN);
    l->event_hash = slice_of(hash_hex, SHA256_HEX_LEN);
    int r = streams_add(j->streams, line_inner(l->source), line_inner(l->stream), id);
    if (r != 0) {
        return r;
    }
    line_put(&j->group, l);
    chain_step(j->group_head, hash);
    j->group_events++;
    return j->group.failed ? ERR_NO_MEMORY : 0;
}

/* Takes back everything staged: the index, the streams, retirements, the buffer. */
static void drop_group(struct journal *j)
{
    for (uint32_t i = 0; i < j->staged_count; i++) {
        index_remove(j->index, &j->staged[i]);
    }
    streams_undo(j->streams);
    lifecycle_undo(j->lifecycle);
    buf_clear(&j->group);
    j->staged_count = 0;
    j->group_events = 0;
}

static int staged_reserve(struct journal *j)
{
    if (j->staged_count < j->staged_cap) {
        return 0;
    }
    uint32_t cap = j->staged_cap == 0 ? 256 : j->staged_cap * 2;
    struct index_key *staged = realloc(j->staged, cap * sizeof *staged);
    if (staged == NULL) {
        return ERR_NO_MEMORY;
    }
    j->staged = staged;
    j->staged_cap = cap;
    return 0;
}

static int stage(struct journal *j, const struct journal_batch *b, const uint8_t fingerprint[16],
                 struct line *l, uint64_t bytes, struct journal_result *r, struct err *e)
{
    struct generation *tail = journal_tail(j);
    ensure(tail->bytes + j->group.len + bytes < j->tail_capacity);
    struct index_key key = {.generation = tail->ordinal,
                            .offset = (uint32_t)(tail->bytes + j->group.len),
                            .bytes = (uint32_t)bytes,
                            .events = b->count};
    memcpy(key.fingerprint, fingerprint, 16);
    if (staged_reserve(j) != 0 || !buf_reserve(&j->group, bytes)) {
        j->group.failed = false; /* nothing was cut off: what is staged stays, and more may come */
        return err_set(e, ERR_NO_MEMORY, "no memory to stage a batch of %u events", b->count);
    }
    size_t start = j->group.len;
    for (uint32_t i = 0; i < b->count; i++) {
        struct uuid id;
        int code = stage_event(j, l, &b->events[i], &id);
        if (code != 0) {
            /* Out of memory half way: the streams of this batch cannot be taken back alone, so the
             * whole group goes. Nobody was told of it; its requests get an error and may come
             * again. */
            drop_group(j);
            journal_poison(j, "out of memory while a group was staged");
            return err_set(e, ERR_WRITER_POISONED, "out of memory while a group was staged");
        }
        if (i == 0) {
            r->first_id = id;
        }
        r->last_id = id;
    }
    ensure(j->group.len - start == bytes);
    if (index_insert(j->index, &key) != 0) {
        drop_group(j);
        journal_poison(j, "out of memory while a group was staged");
        return err_set(e, ERR_WRITER_POISONED, "out of memory while a group was staged");
    }
    j->staged[j->staged_count++] = key;
    j->group_last_id = r->last_id;
    r->outcome = JOURNAL_COMMITTED;
    r->events = b->count;
    memcpy(r->digest, b->digest, SHA256_LEN);
    return 0;
}

/* Makes sure that the batch fits behind what is staged. */
static int make_room(struct journal *j, uint64_t bytes, uint32_t events, struct err *e)
{
    struct generation *tail = journal_tail(j);
    if (j->group_events > 0 && (j->group.len + bytes > j->options.group_bytes ||
                                j->group_events + events > JOURNAL_GROUP_EVENTS_MAX ||
                                tail->bytes + j->group.len + bytes + 1 > j->tail_capacity)) {
        return ERR_GROUP_FULL;
    }
    if (tail->bytes + j->group.len + bytes + 1 <= j->tail_capacity) {
        return 0;
    }
    if (os_clock_mono_ns() < j->retry_space_ns) {
        return err_set(e, ERR_NO_SPACE, "the disk is full");
    }
    int r = tail->events > 0 ? journal_rotate(j, bytes, e) : journal_grow_tail(j, bytes, e);
    if (r == ERR_NO_SPACE) {
        j->retry_space_ns = os_clock_mono_ns() + SPACE_RETRY_NS;
    }
    return r;
}

static int check_precondition(struct journal *j, const struct journal_batch *b,
                              struct journal_result *r)
{
    struct stream_state st = {0};
    bool any =
        streams_get(j->streams, line_inner(b->source), line_inner(b->precondition_stream), &st);
    bool met = b->expect_none ? !any : any && uuid_cmp(&st.last_id, &b->expected_frontier) == 0;
    if (met) {
        return 0;
    }
    r->outcome = JOURNAL_FRONTIER_CONFLICT;
    r->actual_none = !any;
    r->actual_frontier = st.last_id;
    return 1;
}

int journal_keys_ready(struct journal *j, struct err *e)
{
    if (atomic_load(&j->indexing)) {
        return err_set(e, ERR_NOT_READY, "the index is being made; send the same batch again");
    }
    if (index_full(j->index)) {
        return err_set(e, ERR_NOT_READY,
                       "the index cannot be written, and too many keys wait in memory");
    }
    return 0;
}

int journal_append(struct journal *j, const struct journal_batch *b, struct journal_result *r,
                   struct err *e)
{
    ensure(b->count >= 1);
    ensure(b->count <= JOURNAL_BATCH_EVENTS_MAX);
    *r = (struct journal_result){0};
    if (j->group_events == 0 && atomic_load(&j->sealer.close_tail)) {
        sealer_tick(j); /* without a pause between groups, this is the moment */
    }
    if (j->poisoned) {
        return err_set(e, ERR_WRITER_POISONED, "%s", j->cause);
    }
    int code = journal_keys_ready(j, e);
    if (code != 0) {
        return code;
    }
    uint8_t fingerprint[16];
    journal_fingerprint(b->source, b->batch_id, fingerprint);
    int found = journal_lookup(j, b, fingerprint, r, e);
    if (found < 0) {
        return found;
    }
    if (found > 0) {
        metric_add(r->outcome == JOURNAL_DUPLICATE ? METRIC_JOURNAL_DUPLICATES
                                                   : METRIC_JOURNAL_CONFLICTS,
                   1);
        return 0;
    }
    if (journal_check_lifecycle(j, b, r) != 0 ||
        (b->has_precondition && check_precondition(j, b, r) != 0)) {
        metric_add(METRIC_JOURNAL_CONFLICTS, 1);
        return 0;
    }
    return journal_stage(j, b, fingerprint, r, e);
}

int journal_stage(struct journal *j, const struct journal_batch *b, const uint8_t fingerprint[16],
                  struct journal_result *r, struct err *e)
{
    char digest_hex[SHA256_HEX_LEN];
    hex_encode(digest_hex, b->digest, SHA256_LEN);
    struct line l = stage_template(j, b, digest_hex);
    uint64_t bytes = batch_bytes(&l, b);
    if (bytes > SCAN_BATCH_BYTES_MAX) { /* recovery could not prove it */
        return err_set(e, ERR_BODY_TOO_LARGE, "the batch's lines are too large");
    }
    int code = make_room(j, bytes, b->count, e);
    if (code != 0) {
        return code;
    }
    if (j->group_events == 0) {
        code = begin_group(j, e);
        if (code != 0) {
            return code;
        }
    }
    return stage(j, b, fingerprint, &l, bytes, r, e);
}

/* ---- commit ---- */

static int write_failed(struct journal *j, int result, const char *what, struct err *e)
{
    (void)err_os(e, result, what, "tail.ndjson");
    journal_poison(j, e != NULL ? e->text : what);
    drop_group(j);
    if (e != NULL) {
        e->code = ERR_WRITER_POISONED;
    }
    return ERR_WRITER_POISONED;
}

/* A write that failed for want of space: zeros over what was written of it, and a sync, make it
 * undone. */
static int undo_write(struct journal *j, int fd, uint64_t at, size_t written, struct err *e)
{
    if (written > 0) {
        int r = spare_zero_fill(fd, at, at + written);
        if (r == 0) {
            r = os_fdatasync(fd);
        }
        if (r < 0) {
            return write_failed(j, r, "undo a write to", e);
        }
    }
    drop_group(j);
    journal_set_no_space(j, true, "no space left to write to tail.ndjson");
    j->retry_space_ns = os_clock_mono_ns() + SPACE_RETRY_NS;
    return err_set(e, ERR_NO_SPACE, "the disk is full");
}

static void publish(struct journal *j)
{
    struct generation *tail = journal_tail(j);
    pthread_mutex_lock(&j->lock);
    if (tail->events == 0) {
        struct event_id_parts p = event_id_split(&j->group_last_id);
        p.index = 0;
        tail->first_id = event_id_make(p);
    }
    tail->last_id = j->group_last_id;
    tail->bytes += j->group.len;
    tail->events += j->group_events;
    j->bytes += j->group.len;
    j->frontier.empty = false;
    j->frontier.last_id = j->group_last_id;
    j->frontier.events += j->group_events;
    memcpy(j->frontier.head, j->group_head, SHA256_LEN);
    pthread_mutex_unlock(&j->lock);
    if (j->on_committed != NULL) {
        j->on_committed(j->on_committed_ctx, buf_slice(&j->group));
    }
    streams_keep(j->streams);
    lifecycle_keep(j->lifecycle);
    j->batches_in_tail += j->staged_count;
    j->any_group = true;
    j->last_group = j->group_number;
    j->last_ms = j->group_ms;
    metric_add(METRIC_JOURNAL_BATCHES, j->staged_count);
    metric_add(METRIC_JOURNAL_GROUPS, 1);
    metric_add(METRIC_JOURNAL_SYNCS, 1);
    metric_set(METRIC_JOURNAL_EVENTS, j->frontier.events);
    metric_set(METRIC_JOURNAL_BYTES, j->bytes);
    j->staged_count = 0;
    j->group_events = 0;
    buf_clear(&j->group);
    if (j->group.cap > GROUP_KEEP_BYTES) {
        buf_free(&j->group);
    }
}

void journal_on_committed(struct journal *j, journal_committed_fn *fn, void *ctx)
{
    j->on_committed = fn;
    j->on_committed_ctx = ctx;
}

bool journal_pending(const struct journal *j)
{
    return j->group_events > 0;
}

int journal_commit(struct journal *j, struct err *e)
{
    if (j->poisoned) {
        drop_group(j);
        return err_set(e, ERR_WRITER_POISONED, "%s", j->cause);
    }
    if (j->group_events == 0) {
        return 0;
    }
    struct generation *tail = journal_tail(j);
    ensure(tail->fd >= 0);
    ensure(j->group.len > 0);
    ensure(tail->bytes + j->group.len < j->tail_capacity);
    size_t written = 0;
    int r = os_pwrite_all(tail->fd, j->group.ptr, j->group.len, tail->bytes, &written);
    if (r == -ENOSPC || r == -EDQUOT) {
        return undo_write(j, tail->fd, tail->bytes, written, e);
    }
    if (r < 0) {
        return write_failed(j, r, "write", e);
    }
    r = os_fdatasync(tail->fd);
    if (r < 0) {
        return write_failed(j, r, "sync", e);
    }
    publish(j);
    if (j->no_space) {
        journal_set_no_space(j, false, "");
    }
    return 0;
}
