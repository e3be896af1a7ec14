/* Two steps: canon_json proves the whole body and gives its canonical form; then the envelope is
 * walked in that form, where members are sorted, unique, and strings have one spelling, so slices
 * of it go into hashes and lines as they are. */
#include "door/history/parse_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "base/timefmt.h"
#include "base/uuid.h"
#include "journal/chain.h"
#include "journal/lifecycle.h"
#include "json/canon.h"
#include "json/read.h"
#include "json/write.h"

#define NAME_MAX_BYTES     128
#define KEY_MAX_BYTES      1024
#define KIND_MAX_BYTES     128
#define BATCH_ID_MAX_BYTES 256
#define PAYLOAD_DEPTH_MAX  128
#define KEEP_BYTES         (256u << 10)

struct parse *parse_new(void)
{
    struct parse *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->canon = canon_new();
    if (p->canon == NULL) {
        free(p);
        return NULL;
    }
    return p;
}

void parse_free(struct parse *p)
{
    if (p == NULL) {
        return;
    }
    canon_free(p->canon);
    buf_free(&p->canonical);
    buf_free(&p->scratch);
    free(p->events);
    free(p);
}

void parse_trim(struct parse *p)
{
    if (p->canonical.cap > KEEP_BYTES) {
        buf_free(&p->canonical);
    }
    if (p->events_cap > 1024) {
        free(p->events);
        p->events = NULL;
        p->events_cap = 0;
    }
}

bool parse_valid_name(struct slice s)
{
    if (s.len == 0 || s.len > NAME_MAX_BYTES || s.ptr[0] == '.' || s.ptr[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
              c == '-')) {
            return false;
        }
    }
    return true;
}

/* ---- the envelope ---- */

struct envelope {
    struct slice batch_id, events, source, precondition, v; /* ptr NULL: absent */
};

/* Bytes of valid UTF-8 that fit into max without ending inside of a character. */
static size_t cut_length(struct slice s, size_t max)
{
    if (s.len <= max) {
        return s.len;
    }
    while (max > 0 && ((unsigned char)s.ptr[max] & 0xc0) == 0x80) {
        max--;
    }
    return max;
}

int parse_members(struct slice object, const char *const *names, struct slice *const *out,
                  size_t count, const char *where, struct err *e)
{
    struct json_iter it = json_iter_object(object);
    struct slice name;
    struct slice value;
    while (json_next_member(&it, &name, &value)) {
        size_t i = 0;
        while (i < count && !json_string_is(name, slice_cstr(names[i]))) {
            i++;
        }
        if (i == count) {
            return err_set(e, ERR_INVALID_REQUEST, "unknown member \"%.*s\" in %s",
                           (int)cut_length(name, 64), name.ptr, where);
        }
        *out[i] = value;
    }
    ensure(!it.bad);
    return 0;
}

int parse_need(struct slice v, enum json_type type, const char *what, const char *type_name,
               struct err *e)
{
    if (v.ptr == NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "%s is missing", what);
    }
    if (json_type_of(v) != type) {
        return err_set(e, ERR_INVALID_REQUEST, "%s must be %s", what, type_name);
    }
    return 0;
}

static int read_envelope(struct slice body, struct envelope *env, struct err *e)
{
    static const char *const names[] = {"batch_id", "events", "source", "stream_precondition", "v"};
    struct slice *const out[] = {&env->batch_id, &env->events, &env->source, &env->precondition,
                                 &env->v};
    *env = (struct envelope){0};
    if (json_type_of(body) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID_REQUEST, "the body must be a JSON object");
    }
    int r = parse_members(body, names, out, 5, "the batch", e);
    if (r == 0) {
        r = parse_need(env->batch_id, JSON_STRING, "batch_id", "a string", e);
    }
    if (r == 0) {
        r = parse_need(env->source, JSON_STRING, "source", "a string", e);
    }
    if (r == 0) {
        r = parse_need(env->events, JSON_ARRAY, "events", "an array", e);
    }
    if (r == 0 && env->v.ptr != NULL) {
        r = parse_need(env->v, JSON_NUMBER, "v", "a number", e);
    }
    if (r == 0 && env->precondition.ptr != NULL) {
        r = parse_need(env->precondition, JSON_OBJECT, "stream_precondition", "an object", e);
    }
    return r;
}

static int check_batch(const struct envelope *env, struct err *e)
{
    if (env->v.ptr != NULL && !slice_eq(env->v, SLICE("1"))) {
        return err_set(e, ERR_INVALID_BATCH, "v must be 1");
    }
    struct slice id = parse_inner(env->batch_id);
    if (id.len == 0 || json_string_len(id) > BATCH_ID_MAX_BYTES) {
        return err_set(e, ERR_INVALID_BATCH, "batch_id must have 1 to %d bytes",
                       BATCH_ID_MAX_BYTES);
    }
    if (json_string_starts(id, SLICE("groundhog/"))) {
        return err_set(e, ERR_INVALID_BATCH, "batch ids that begin with groundhog/ are reserved");
    }
    struct slice source = parse_inner(env->source);
    if (!parse_valid_name(source)) {
        return err_set(e, ERR_INVALID_BATCH,
                       "source must match [a-z0-9_][a-z0-9_.-]* and have at most %d bytes",
                       NAME_MAX_BYTES);
    }
    if (slice_eq(source, SLICE("system"))) {
        return err_set(e, ERR_INVALID_BATCH, "source system is reserved");
    }
    return 0;
}

static int read_precondition(const struct envelope *env, struct journal_batch *b, struct err *e)
{
    static const char *const names[] = {"expected_frontier", "stream"};
    struct slice expected = {0};
    struct slice stream = {0};
    struct slice *const out[] = {&expected, &stream};
    if (env->precondition.ptr == NULL) {
        return 0;
    }
    int r = parse_members(env->precondition, names, out, 2, "stream_precondition", e);
    if (r == 0) {
        r = parse_need(stream, JSON_STRING, "stream_precondition.stream", "a string", e);
    }
    if (r == 0 && expected.ptr == NULL) {
        r = err_set(e, ERR_INVALID_REQUEST, "stream_precondition.expected_frontier is missing");
    }
    if (r != 0) {
        return r;
    }
    b->has_precondition = true;
    b->precondition_stream = stream;
    b->expect_none = json_type_of(expected) == JSON_NULL;
    if (!b->expect_none && (json_type_of(expected) != JSON_STRING ||
                            !uuid7_parse(parse_inner(expected), &b->expected_frontier))) {
        return err_set(e, ERR_INVALID_BATCH,
                       "stream_precondition.expected_frontier must be a UUIDv7 or null");
    }
    return 0;
}

/* ---- events ---- */

struct event_errors {
    struct buf *out;
    uint32_t count;
    char first[200]; /* the first one, for the message */
};

static void event_error(struct event_errors *errs, uint32_t index, const char *message)
{
    if (errs->count == 0) {
        (void)snprintf(errs->first, sizeof errs->first, "event %u: %s", index, message);
    }
    if (errs->count < PARSE_ERRORS_MAX) {
        buf_put_cstr(errs->out, errs->count == 0 ? "\"errors\":[" : ",");
        buf_put_cstr(errs->out, "{\"index\":");
        buf_put_u64(errs->out, index);
        buf_put_cstr(errs->out, ",\"code\":\"invalid_event\",\"message\":");
        json_put_string(errs->out, slice_cstr(message));
        buf_put_char(errs->out, '}');
    }
    errs->count++;
}

/* The first rule that an event breaks, or NULL. deep: its payload may be too deep. */
static const char *check_event(const struct journal_event *ev, bool deep)
{
    if (ev->stream.ptr == NULL || ev->record_key.ptr == NULL || ev->kind.ptr == NULL ||
        ev->payload.ptr == NULL) {
        return ev->stream.ptr == NULL       ? "stream is missing"
               : ev->record_key.ptr == NULL ? "record_key is missing"
               : ev->kind.ptr == NULL       ? "kind is missing"
                                            : "payload is missing";
    }
    if (*ev->stream.ptr != '"' || !parse_valid_name(parse_inner(ev->stream))) {
        return "stream must be a string that matches [a-z0-9_][a-z0-9_.-]* with at most 128 bytes";
    }
    if (*ev->record_key.ptr != '"' || ev->record_key.len == 2 ||
        json_string_len(parse_inner(ev->record_key)) > KEY_MAX_BYTES) {
        return "record_key must be a string of 1 to 1024 bytes";
    }
    if (*ev->kind.ptr != '"' || ev->kind.len == 2 ||
        json_string_len(parse_inner(ev->kind)) > KIND_MAX_BYTES) {
        return "kind must be a string of 1 to 128 bytes";
    }
    if (ev->occurred_at.ptr != NULL &&
        (*ev->occurred_at.ptr != '"' || !timefmt_valid_occurred_at(parse_inner(ev->occurred_at)))) {
        return "occurred_at must be a real instant YYYY-MM-DDTHH:MM:SS[.1-9 digits]Z";
    }
    char c = *ev->payload.ptr;
    if (deep && (c == '{' || c == '[') && ev->payload.len > PAYLOAD_DEPTH_MAX &&
        json_depth(ev->payload) > PAYLOAD_DEPTH_MAX) {
        return "payload is nested deeper than 128 containers";
    }
    return NULL;
}

/* it stands behind the opening bracket, and at its end when every member was one of an event. */
static const char *read_event(struct json_iter *it, struct journal_event *ev, bool deep)
{
    static const struct slice names[] = {
        {"kind", 4}, {"occurred_at", 11}, {"payload", 7}, {"record_key", 10}, {"stream", 6}};
    struct slice *const out[] = {&ev->kind, &ev->occurred_at, &ev->payload, &ev->record_key,
                                 &ev->stream};
    struct slice name;
    struct slice v;
    size_t i = 0;
    while (json_next_member(it, &name, &v)) {
        /* Members are sorted, and so are names. */
        while (i < 5 && !slice_eq(name, names[i])) {
            i++;
        }
        if (i == 5) {
            return "an event has only stream, record_key, kind, payload and occurred_at";
        }
        *out[i] = v;
    }
    ensure(!it->bad);
    return check_event(ev, deep);
}

/* The next element, and the first rule that it breaks or NULL. false: there is none. */
static bool next_event(struct json_iter *events, struct journal_event *ev, bool deep,
                       const char **message)
{
    struct json_iter object;
    struct slice other;
    *ev = (struct journal_event){0};
    if (!json_enter_object(events, &object)) {
        *message = "an event must be an object";
        return json_next_element(events, &other);
    }
    *message = read_event(&object, ev, deep);
    if (!object.ended) {
        return json_next_element(events, &other);
    }
    json_leave(events, &object);
    return true;
}

static int events_reserve(struct parse *p, uint32_t n)
{
    if (n <= p->events_cap) {
        return 0;
    }
    uint32_t cap = p->events_cap == 0 ? 16 : p->events_cap;
    while (cap < n) {
        cap *= 2;
    }
    struct journal_event *events = realloc(p->events, cap * sizeof *events);
    if (events == NULL) {
        return ERR_NO_MEMORY;
    }
    p->events = events;
    p->events_cap = cap;
    return 0;
}

/* Event `index` is a lineage marker. */
static void note_marker(struct journal_batch *b, struct slice source,
                        const struct journal_event *ev, uint32_t index)
{
    const struct lifecycle_marker m = {.kind = ev->kind,
                                       .occurred_at = ev->occurred_at,
                                       .payload = ev->payload,
                                       .record_key = ev->record_key};
    const char *flaw = index > 0 ? "a lineage marker is the first event of its batch, and the only "
                                   "one"
                                 : lifecycle_marker_flaw(source, &m, &b->predecessor_frontier);
    if (flaw == NULL && !parse_valid_name(parse_inner(ev->record_key))) {
        flaw = "the record_key of a lineage marker is a source";
    }
    if (b->marker_flaw == NULL) {
        b->marker_flaw = flaw;
        b->predecessor = ev->record_key;
    }
    b->has_marker = true;
}

static int read_events(struct parse *p, const struct envelope *env, struct journal_batch *b,
                       struct buf *extra, struct err *e)
{
    struct event_errors errs = {.out = extra};
    struct json_iter it = json_iter_array(env->events);
    struct journal_event next;
    const char *message;
    uint32_t n = 0;
    bool foreign = false;
    bool deep = canon_deepest(p->canon) > PAYLOAD_DEPTH_MAX;
    while (next_event(&it, &next, deep, &message)) {
        if (n == JOURNAL_BATCH_EVENTS_MAX) {
            buf_clear(extra);
            return err_set(e, ERR_BODY_TOO_LARGE, "a batch has at most %d events",
                           JOURNAL_BATCH_EVENTS_MAX);
        }
        if (events_reserve(p, n + 1) != 0) {
            return err_set(e, ERR_NO_MEMORY, "no memory for the events of a batch");
        }
        struct journal_event *ev = &p->events[n];
        *ev = next;
        if (message != NULL) {
            event_error(&errs, n, message);
        } else {
            if (slice_eq(ev->stream, SLICE("\"" LIFECYCLE_LINEAGE_STREAM "\""))) {
                note_marker(b, env->source, ev, n);
            }
            foreign =
                foreign || (b->has_precondition && !slice_eq(ev->stream, b->precondition_stream));
            sha256_once(ev->payload, ev->content_hash);
        }
        n++;
    }
    ensure(!it.bad);
    if (n == 0) {
        return err_set(e, ERR_INVALID_BATCH, "events must not be empty");
    }
    if (foreign) {
        buf_clear(extra);
        return err_set(e, ERR_INVALID_BATCH,
                       "every event must use the stream of stream_precondition");
    }
    if (errs.count > 0) {
        buf_put_char(extra, ']');
        return err_set(e, ERR_INVALID_EVENTS, "%u invalid event%s; %s", errs.count,
                       errs.count == 1 ? "" : "s", errs.first);
    }
    b->events = p->events;
    b->count = n;
    return 0;
}

static int digest(struct parse *p, struct journal_batch *b, struct err *e)
{
    struct chain_digest d;
    char hex[SHA256_HEX_LEN];
    chain_digest_start(&d);
    for (uint32_t i = 0; i < b->count; i++) {
        const struct journal_event *ev = &b->events[i];
        hex_encode(hex, ev->content_hash, SHA256_LEN);
        if (!chain_digest_event(&d, &p->scratch, slice_of(hex, sizeof hex), ev->kind,
                                ev->occurred_at, ev->record_key, ev->stream)) {
            return err_set(e, ERR_NO_MEMORY, "no memory to hash a batch");
        }
    }
    chain_digest_end(&d, b->source, b->digest);
    return 0;
}

/* "events[17].payload…": an event's own fault. */
static bool payload_index(const char *path, uint32_t *index)
{
    if (strncmp(path, "events[", 7) != 0) {
        return false;
    }
    char *end;
    unsigned long n = strtoul(path + 7, &end, 10);
    *index = (uint32_t)n;
    return n < JOURNAL_BATCH_EVENTS_MAX && strncmp(end, "].payload", 9) == 0;
}

static int screen_failed(int code, const struct canon_error *ce, struct buf *extra, struct err *e)
{
    uint32_t index;
    if (code == ERR_NO_MEMORY) {
        return err_set(e, ERR_NO_MEMORY, "the canonical form does not fit");
    }
    if (code == ERR_JSON_DEPTH && payload_index(ce->path, &index)) {
        struct event_errors errs = {.out = extra};
        event_error(&errs, index, "payload is nested deeper than 128 containers");
        buf_put_char(extra, ']');
        return err_set(e, ERR_INVALID_EVENTS, "1 invalid event; %s", errs.first);
    }
    return err_set_at(e, ERR_INVALID_REQUEST, ce->offset,
                      "the body is not acceptable JSON: %s at byte %llu%s%s", ce->text,
                      (unsigned long long)ce->offset, ce->path[0] != '\0' ? ", in " : "", ce->path);
}

static int read_batch(struct parse *p, struct journal_batch *batch, struct buf *extra,
                      struct err *e)
{
    struct envelope env;
    int r = read_envelope(buf_slice(&p->canonical), &env, e);
    if (r == 0) {
        r = read_precondition(&env, batch, e);
    }
    if (r == 0) {
        r = check_batch(&env, e);
    }
    if (r == 0 && batch->has_precondition &&
        !parse_valid_name(parse_inner(batch->precondition_stream))) {
        r = err_set(e, ERR_INVALID_BATCH, "stream_precondition.stream is no stream name");
    }
    batch->source = env.source;
    batch->batch_id = env.batch_id;
    if (r == 0) {
        r = read_events(p, &env, batch, extra, e);
    }
    return r == 0 ? digest(p, batch, e) : r;
}

void parse_end_at_character(struct err *e)
{
    size_t bad;
    if (!utf8_valid(slice_cstr(e->text), &bad)) {
        e->text[bad] = '\0';
    }
}

int parse_batch(struct parse *p, struct slice body, size_t canonical_max_bytes,
                struct journal_batch *batch, struct buf *extra, struct err *e)
{
    struct canon_error ce;
    *batch = (struct journal_batch){0};
    buf_clear(extra);
    buf_clear(&p->canonical);
    p->canonical.limit = canonical_max_bytes;
    int r = canon_json(p->canon, body, &p->canonical, &ce);
    r = r != 0 ? screen_failed(r, &ce, extra, e) : read_batch(p, batch, extra, e);
    if (extra->failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to name the invalid events");
    }
    if (r != 0) {
        parse_end_at_character(e);
    }
    return r;
}
