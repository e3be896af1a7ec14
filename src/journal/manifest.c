/* The manifest.
 *
 * A record is written in two steps: its body, sync; its line feed, sync. Behind the first sync the
 * body is on the disk whole; nothing else is written with the line feed. So whichever bytes a crash
 * leaves, a record is either whole or has no line feed, and is then cut off at the next start.
 *
 * A failed write for want of space is undone by truncating, and nothing has happened. Every other
 * failure leaves it uncertain what the device holds: it is not tried again, and what depends on the
 * record not being there or being there must wait for the next start, which syncs the file, drops
 * its cache and reads.
 *
 * A record of a segment must be byte for byte what would be written for what it says. */
#include "journal/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/timefmt.h"
#include "os/os.h"
#include "json/read.h"

static const char format_record[] =
    "{\"format_id\":\"groundhog/log\",\"min_reader\":1,\"min_writer\":1,\"schema_version\":1,"
    "\"stability\":\"stable\",\"type\":\"format\"}";

#define SEGMENT_READER 2 /* min_reader and schema_version of our records */

/* ---- records ---- */

void manifest_put_segment(const struct layout_generation *g, struct slice sealed_at,
                          struct buf *out)
{
    char first[UUID_TEXT_LEN];
    char last[UUID_TEXT_LEN];
    char head[SHA256_HEX_LEN];
    char sha256[SHA256_HEX_LEN];
    char name[LAYOUT_SEGMENT_NAME];
    uuid_text(first, &g->first_id);
    uuid_text(last, &g->last_id);
    hex_encode(head, g->head, SHA256_LEN);
    hex_encode(sha256, g->sha256, SHA256_LEN);
    layout_segment_name(g, name);
    buf_printf(out,
               "{\"bytes\":%" PRIu64 ",\"events\":%" PRIu64 ",\"first_event_id\":\"%.36s\","
               "\"format\":\"ndjson+zstd\",\"head\":\"%.64s\",\"last_event_id\":\"%.36s\","
               "\"min_reader\":%d,\"path\":\"segments/%s\",\"schema_version\":%d,"
               "\"sealed_at\":\"%.*s\",\"sha256\":\"%.64s\",\"type\":\"segment\"}",
               g->bytes, g->events, first, head, last, SEGMENT_READER, name, SEGMENT_READER,
               (int)sealed_at.len, sealed_at.ptr, sha256);
}

static bool get_text(struct slice record, struct slice name, struct slice *inner)
{
    struct slice v;
    return json_member(record, name, &v) && json_string_raw(v, inner);
}

static bool get_number(struct slice record, struct slice name, uint64_t *out)
{
    struct slice v;
    return json_member(record, name, &v) && json_u64(v, out);
}

/* A record that only another version could have written. */
static bool of_another_version(struct slice record)
{
    struct slice type;
    struct slice format;
    uint64_t schema = 0;
    uint64_t reader = 0;
    struct slice replaces;
    if (!get_text(record, SLICE("type"), &type)) {
        return false;
    }
    return !slice_eq(type, SLICE("segment")) ||
           (get_number(record, SLICE("schema_version"), &schema) && schema != SEGMENT_READER) ||
           (get_number(record, SLICE("min_reader"), &reader) && reader > SEGMENT_READER) ||
           (get_text(record, SLICE("format"), &format) &&
            !slice_eq(format, SLICE("ndjson+zstd"))) ||
           json_member(record, SLICE("replaces"), &replaces);
}

int manifest_parse_segment(struct slice record, struct layout_generation *g)
{
    struct slice first;
    struct slice last;
    struct slice head;
    struct slice sha256;
    struct slice sealed_at;
    uint64_t ms;
    *g = (struct layout_generation){.sealed = true};
    bool ok =
        get_number(record, SLICE("bytes"), &g->bytes) &&
        get_number(record, SLICE("events"), &g->events) &&
        get_text(record, SLICE("first_event_id"), &first) && uuid7_parse(first, &g->first_id) &&
        get_text(record, SLICE("last_event_id"), &last) && uuid7_parse(last, &g->last_id) &&
        get_text(record, SLICE("head"), &head) && hex_decode(g->head, head, SHA256_LEN) &&
        get_text(record, SLICE("sha256"), &sha256) && hex_decode(g->sha256, sha256, SHA256_LEN) &&
        get_text(record, SLICE("sealed_at"), &sealed_at) && timefmt_parse_ms(sealed_at, &ms) &&
        uuid_cmp(&g->first_id, &g->last_id) <= 0 && g->events > 0 && g->bytes > 0;
    if (ok) {
        struct buf again;
        buf_init(&again, MANIFEST_RECORD_MAX);
        manifest_put_segment(g, sealed_at, &again);
        bool no_memory = again.failed; /* all of its parts are bounded: it fits */
        ok = !no_memory && slice_eq(buf_slice(&again), record);
        buf_free(&again);
        if (no_memory) {
            return ERR_NO_MEMORY;
        }
    }
    if (ok) {
        return 0;
    }
    return of_another_version(record) ? ERR_UNSUPPORTED : ERR_CORRUPT;
}

/* ---- reading ---- */

static int take_first(struct slice record, struct err *e)
{
    if (slice_eq(record, slice_cstr(format_record))) {
        return 0;
    }
    if (slice_starts(record, SLICE("{\"format_id\":\"groundhog/log\""))) {
        return err_set(e, ERR_UNSUPPORTED, "manifest.jsonl: a format this version does not know");
    }
    return err_set_at(e, ERR_CORRUPT, 0, "manifest.jsonl: the first record is not a format record");
}

static int take_segment(struct manifest *m, struct slice record, struct err *e)
{
    struct layout_generation g;
    int r = manifest_parse_segment(record, &g);
    if (r == ERR_NO_MEMORY) {
        return err_set(e, r, "no memory for the manifest");
    }
    if (r == ERR_UNSUPPORTED) {
        return err_set_at(e, r, m->good_bytes,
                          "manifest.jsonl: the record at byte %" PRIu64 " needs a later version",
                          m->good_bytes);
    }
    if (r != 0 ||
        (m->count > 0 && uuid_cmp(&m->segments[m->count - 1].last_id, &g.first_id) >= 0)) {
        return err_set_at(e, ERR_CORRUPT, m->good_bytes,
                          "manifest.jsonl: the record at byte %" PRIu64
                          " is no record, or does not follow",
                          m->good_bytes);
    }
    if (m->count == m->cap) {
        uint32_t cap = m->cap == 0 ? 64 : m->cap * 2;
        struct layout_generation *rows = realloc(m->segments, cap * sizeof *rows);
        if (rows == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for the manifest");
        }
        m->segments = rows;
        m->cap = cap;
    }
    m->segments[m->count++] = g;
    return 0;
}

/* The records of `text`, which stands behind the good bytes; moves these on. */
static int take_records(struct manifest *m, struct slice text, struct err *e)
{
    while (text.len > 0) {
        const char *lf = memchr(text.ptr, '\n', text.len);
        if (lf == NULL) {
            return 0;
        }
        struct slice record = slice_of(text.ptr, (size_t)(lf - text.ptr));
        int r = m->good_bytes == 0 ? take_first(record, e) : take_segment(m, record, e);
        if (r != 0) {
            return r;
        }
        m->state = MANIFEST_GOOD;
        m->good_bytes += record.len + 1;
        text = slice_from(text, record.len + 1);
    }
    return 0;
}

static int read_all(int fd, struct manifest *m, struct err *e)
{
    static const size_t piece = 16 * MANIFEST_RECORD_MAX;
    char *text = malloc(piece);
    int r = text == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for the manifest") : 0;
    m->state = MANIFEST_UNCOMMITTED;
    while (r == 0) {
        uint64_t from = m->good_bytes;
        int64_t n = os_pread_full(fd, text, piece, from);
        if (n < 0) {
            r = err_os(e, (int)n, "read", "manifest.jsonl");
            break;
        }
        m->file_bytes = from + (uint64_t)n;
        r = take_records(m, slice_of(text, (size_t)n), e);
        if ((size_t)n < piece) {
            break;
        }
        if (r == 0 && m->good_bytes == from) {
            r = err_set_at(e, ERR_CORRUPT, from, "manifest.jsonl: a record without an end");
        }
    }
    free(text);
    return r;
}

int manifest_read(const struct layout *l, struct manifest *m, struct err *e)
{
    *m = (struct manifest){.state = MANIFEST_MISSING};
    int fd = os_open(l->manifest, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "manifest.jsonl");
    }
    int r = read_all(fd, m, e);
    (void)os_close(fd);
    if (r != 0) {
        manifest_free(m);
    }
    return r;
}

void manifest_free(struct manifest *m)
{
    free(m->segments);
    m->segments = NULL;
    m->count = 0;
    m->cap = 0;
}

/* ---- writing ---- */

int manifest_settle(const struct layout *l, struct err *e)
{
    int fd = os_open(l->manifest, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "manifest.jsonl");
    }
    int r = os_fsync(fd);
    if (r == 0) {
        r = os_drop_cache(fd);
    }
    (void)os_close(fd);
    return r < 0 ? err_os(e, r, "sync", "manifest.jsonl") : 0;
}

/* Body, sync, line feed, sync. *begun: something of it may be in the file. */
static int put_record(int fd, struct slice body, uint64_t at, bool *begun)
{
    *begun = true;
    int r = os_pwrite_all(fd, body.ptr, body.len, at, NULL);
    if (r == -ENOSPC || r == -EDQUOT) {
        /* Nothing was synced, so the cut needs no sync either: a crash leaves a body without line
         * feed, or a part of it. */
        *begun = os_ftruncate(fd, at) != 0;
        return r;
    }
    if (r == 0) {
        r = os_fsync(fd);
    }
    if (r == 0) {
        r = os_pwrite_all(fd, "\n", 1, at + body.len, NULL);
    }
    return r == 0 ? os_fsync(fd) : r;
}

int manifest_create(const struct layout *l, struct err *e)
{
    bool begun;
    int fd = os_open(l->manifest, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return err_os(e, fd, "create", "manifest.jsonl");
    }
    int r = os_ftruncate(fd, 0);
    if (r == 0) {
        r = put_record(fd, slice_cstr(format_record), 0, &begun);
    }
    if (r == 0) {
        r = os_sync_dir(l->journal);
    }
    (void)os_close(fd);
    return r < 0 ? err_os(e, r, "write", "manifest.jsonl") : 0;
}

int manifest_add_segment(const struct layout *l, const struct layout_generation *g,
                         const char *sealed_at, uint64_t *at, bool *uncertain, struct err *e)
{
    struct buf record;
    *uncertain = false;
    buf_init(&record, MANIFEST_RECORD_MAX);
    manifest_put_segment(g, slice_cstr(sealed_at), &record);
    if (record.failed) {
        buf_free(&record);
        return err_set(e, ERR_NO_MEMORY, "no memory for a record of the manifest");
    }
    int fd = os_open(l->manifest, O_RDWR, 0);
    int r = fd;
    if (fd >= 0) {
        r = put_record(fd, buf_slice(&record), *at, uncertain);
        (void)os_close(fd);
    }
    if (r == 0) {
        *uncertain = false;
        *at += record.len + 1;
    }
    buf_free(&record);
    return r < 0 ? err_os(e, r, "write", "manifest.jsonl") : 0;
}
