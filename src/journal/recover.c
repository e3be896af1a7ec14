/* Recovery of the tail (ARCHITECTURE 2.2).
 *
 * The tail is read from the device and proven batch by batch. Behind the last proven batch there
 * must be zeros only. Otherwise the bytes there are either the last group, torn by a crash, or
 * damage: damage.h says how they are told apart, also in a tail that another program wrote. With
 * damage nothing is changed on disk, and what is proven is served.
 * Otherwise the group was torn: its bytes are copied to remnants/, the tail is truncated behind the
 * last proven batch, synced, filled with zeros again, synced.
 *
 * If power fails in recovery itself: before the truncation is durable the next open finds the same
 * bytes and decides the same (the remnant's name is made of their place and hash, so it is written
 * once); after it the tail has less padding or none, which is whole, and is filled again. Damage
 * inside the last group of an unclean tail cannot be told from a torn group (docs/CRASH.md). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/timefmt.h"
#include "journal/damage.h"
#include "journal/event_id.h"
#include "journal/internal.h"
#include "journal/line.h"
#include "journal/scan.h"
#include "os/os.h"

void journal_key_of(const struct scan_batch *b, uint32_t ordinal, struct index_key *key)
{
    *key = (struct index_key){.generation = ordinal,
                              .offset = (uint32_t)b->offset,
                              .bytes = (uint32_t)b->bytes,
                              .events = b->events};
    journal_fingerprint(b->source, b->batch_id, key->fingerprint);
}

int journal_index_batch(struct journal *j, const struct scan_batch *b, uint32_t ordinal)
{
    struct index_key key;
    journal_key_of(b, ordinal, &key);
    return index_insert(j->index, &key);
}

int journal_count_line(void *ctx, const struct line *l)
{
    struct journal *j = ctx;
    int r = lifecycle_is_retirement(l) ? journal_note_retirement(j, l) : 0;
    return r != 0 ? r
                  : streams_add(j->streams, line_inner(l->source), line_inner(l->stream), &l->id);
}

int journal_count_tail(struct journal *j, struct scan *s, struct err *e)
{
    struct generation *tail = journal_tail(j);
    struct scan_batch b;
    int r;
    while ((r = scan_next(s, &b, journal_count_line, j, e)) == 1) {
        r = journal_index_batch(j, &b, tail->ordinal);
        if (r != 0) {
            return err_set(e, r, "no memory for batch keys");
        }
        streams_keep(j->streams);
        j->batches_in_tail++;
        if (atomic_load(&j->rebuild.stop)) {
            return err_set(e, ERR_NOT_READY, "the journal is closed");
        }
    }
    streams_undo(j->streams);
    return r;
}

/* Proves batches from the start until the data ends. While indexing only that: keys and streams
 * come behind those of the generations before. 0: at s->offset there is no more; ERR_CORRUPT: an
 * invalid one begins there. */
static int prove_all(struct journal *j, struct scan *s, struct err *e)
{
    struct generation *tail = journal_tail(j);
    bool indexing = atomic_load(&j->indexing);
    struct scan_batch b;
    int r;
    while ((r = scan_next(s, &b, indexing ? NULL : journal_count_line, j, e)) == 1) {
        if (b.offset + b.bytes > UINT32_MAX) {
            return err_set_at(e, ERR_UNSUPPORTED, b.offset, "tail.ndjson is larger than 4 GiB");
        }
        r = indexing ? 0 : journal_index_batch(j, &b, tail->ordinal);
        if (r != 0) {
            return err_set(e, r, "no memory for batch keys");
        }
        streams_keep(j->streams);
        if (tail->events == 0) {
            tail->first_id = b.first_id;
        }
        tail->last_id = b.last_id;
        tail->events += b.events;
        j->batches_in_tail += !indexing;
    }
    streams_undo(j->streams);
    return r;
}

enum origin journal_origin(struct journal *j, uint32_t ordinal)
{
    pthread_mutex_lock(&j->lock);
    ensure(ordinal <= j->generation_count);
    if (ordinal < j->origin_generations) { /* those that are indexed behind the tail's proof */
        j->origin = ORIGIN_UNKNOWN;
        j->origin_generations = 0;
    }
    for (uint32_t i = j->origin_generations; i < ordinal; i++) {
        const struct generation *g = j->generations[i];
        const struct uuid *last = i > 0 ? &j->generations[i - 1]->last_id : NULL;
        j->origin = origin_behind(j->origin, last, &g->first_id, true);
        j->origin_generations = i + 1;
    }
    enum origin o = j->origin;
    pthread_mutex_unlock(&j->lock);
    return o;
}

/* Copies the torn bytes beside the journal. Its failure for want of space is no reason to refuse
 * work: the bytes were never promised. */
static int save_remnant(struct journal *j, uint64_t bad, struct slice region, struct err *e)
{
    uint8_t hash[SHA256_LEN];
    char hex[17] = {0};
    sha256_once(region, hash);
    hex_encode(hex, hash, 8);
    char path[LAYOUT_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/tail-at-%llu-%s.bin", j->layout.remnants,
                     (unsigned long long)bad, hex);
    ensure(n > 0 && (size_t)n < sizeof path);
    int r = os_mkdir_exist_ok(j->layout.remnants, 0700);
    if (r == 0) {
        r = os_sync_dir(j->layout.root);
    }
    int fd = r == 0 ? os_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) : r;
    if (fd >= 0) {
        r = os_pwrite_all(fd, region.ptr, region.len, 0, NULL);
        if (r == 0) {
            r = os_fsync(fd);
        }
        (void)os_close(fd);
        if (r == 0) {
            r = os_sync_dir(j->layout.remnants);
        }
    } else {
        r = fd;
    }
    if (r == 0) {
        log_line(LOG_WARN, "journal", "%zu bytes of a torn group were set aside in remnants/",
                 region.len);
        return 0;
    }
    int code = err_os(e, r, "write", "remnants");
    if (code == ERR_NO_SPACE) {
        (void)os_unlink(path); /* a part of them would be named like the whole */
        log_line(LOG_WARN, "journal",
                 "%zu bytes of a torn group could not be kept: the disk is full", region.len);
        return 0;
    }
    return code;
}

/* The bytes [bad, end) of the tail are invalid. Decides, and, unless that is for later, mends a
 * torn tail. */
static int mend(struct journal *j, int fd, bool only_decide, struct err *e)
{
    uint64_t bad = j->tail_found.bad;
    uint64_t end = j->tail_found.end;
    const char *why = j->tail_found.why;
    char *bytes = NULL;
    const struct damage_past past = {.last = j->frontier.empty ? NULL : &j->frontier.last_id,
                                     .origin = j->tail_found.origin,
                                     .closed = j->tail_found.closed};
    bool damaged = false;
    int r = damage_read(fd, bad, end, &bytes, e);
    if (r != 0) {
        return r;
    }
    struct slice region = slice_of(bytes, (size_t)(end - bad));
    r = damage_find(fd, bad, region, &past, &damaged, e);
    if (damaged) {
        r = err_set_at(e, ERR_CORRUPT, bad, "tail.ndjson is damaged at byte %llu: %s",
                       (unsigned long long)bad, why);
    }
    if (r == 0 && !only_decide) {
        r = save_remnant(j, bad, region, e);
    }
    free(bytes);
    if (r != 0 || only_decide) {
        return r;
    }
    log_line(LOG_WARN, "journal", "tail.ndjson: a torn group at byte %llu was cut off (%s)",
             (unsigned long long)bad, why);
    r = os_ftruncate(fd, bad);
    if (r == 0) {
        r = os_fsync(fd);
    }
    return r < 0 ? err_os(e, r, "truncate", "tail.ndjson") : 0;
}

static void publish(struct journal *j, const struct scan *s)
{
    struct generation *tail = journal_tail(j);
    tail->bytes = s->offset;
    j->bytes += s->offset;
    if (tail->events > 0) {
        j->frontier.empty = false;
        j->frontier.last_id = tail->last_id;
        if (j->frontier.complete) {
            j->frontier.events += tail->events;
            memcpy(j->frontier.head, s->head, SHA256_LEN);
        }
    }
    if (!j->frontier.empty) {
        struct event_id_parts p = event_id_split(&j->frontier.last_id);
        j->any_group = true;
        j->tag = p.tag;
        j->last_group = p.group;
        j->last_ms = p.ms > s->observed_ms ? p.ms : s->observed_ms;
    }
}

/* Padding behind the data, durable before the first append. Without space the tail stays as it is:
 * appends will try again. */
static int pad(struct journal *j, uint64_t size, struct err *e)
{
    struct generation *tail = journal_tail(j);
    j->tail_capacity = size;
    if (size >= j->options.generation_bytes && size > tail->bytes) {
        return 0;
    }
    uint64_t want = j->options.generation_bytes;
    if (want <= tail->bytes) {
        return 0; /* full, and without padding: the first append rotates */
    }
    struct err local;
    int r = journal_grow_tail(j, want - tail->bytes - 1, &local);
    if (r != 0 && r != ERR_NO_SPACE) {
        return err_set(e, ERR_IO, "%s", local.text);
    }
    return 0;
}

int journal_recover_tail(struct journal *j, int fd, struct err *e)
{
    struct os_stat st;
    int r = os_fstat(fd, &st);
    if (r < 0) {
        return err_os(e, r, "stat", "tail.ndjson");
    }
    char last_byte = '\0';
    if (st.size > 0) {
        int64_t n = os_pread_full(fd, &last_byte, 1, st.size - 1);
        if (n != 1) {
            return err_os(e, n < 0 ? (int)n : -EIO, "read", "tail.ndjson");
        }
    }
    bool closed = st.size > 0 && last_byte != '\0';
    struct scan s;
    scan_start(&s, fd, st.size, j->frontier.empty ? NULL : &j->frontier.last_id, j->frontier.head);
    s.origin = journal_origin(j, journal_tail(j)->ordinal);
    struct err why = {0};
    r = prove_all(j, &s, &why);
    if (r != 0 && r != ERR_CORRUPT) {
        *e = why;
        journal_say_refused(r, s.offset, e);
        scan_stop(&s);
        return r;
    }
    publish(j, &s);
    j->tail_found.why = r == ERR_CORRUPT ? s.why : "bytes behind the end of the data";
    j->tail_found.bad = s.offset;
    j->tail_found.closed = closed;
    j->tail_found.size = st.size;
    j->tail_found.origin = s.origin;
    scan_stop(&s);
    r = damage_data_end(fd, j->tail_found.bad, st.size, &j->tail_found.end, e);
    if (r == 0 && j->tail_found.end > j->tail_found.bad) {
        r = mend(j, fd, true, e);
    }
    if (r != 0) {
        return r;
    }
    if (j->any_group && j->last_ms >= TIMEFMT_MS_END) {
        return err_set(e, ERR_UNSUPPORTED, "the last event id is of a time past the year 9999");
    }
    if (j->any_group && j->last_group == EVENT_ID_GROUP_MAX && j->last_ms + 1 >= TIMEFMT_MS_END) {
        return err_set(e, ERR_UNSUPPORTED, "the last event id leaves no room for one behind it");
    }
    return 0;
}

int journal_ready_tail(struct journal *j, struct err *e)
{
    uint64_t size = j->tail_found.size;
    if (j->tail_found.end > j->tail_found.bad) {
        int r = mend(j, journal_tail(j)->fd, false, e);
        if (r != 0) {
            return r;
        }
        size = j->tail_found.bad;
    }
    return pad(j, size, e);
}
