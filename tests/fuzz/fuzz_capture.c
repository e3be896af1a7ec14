/* fuzz_capture: the four parsers of the capture door on any JSON that the tolerant check lets
 * through, however odd.
 *
 * The first byte says which parser, and with what head: 0 to 3 PostHog v0 (plain, /engage, a time
 * in the query), 4 and 5 v1, 6 to 12 Segment (a batch, the calls), 13 native.
 *
 * Broken is: a refusal without a message, or with one that is no UTF-8, or with a status that makes
 * SDKs send the same again for ever; an accepted event whose text is not a value of the body, whose
 * columns are no UTF-8 or hold a NUL, whose time is out of range, whose outcome and reason
 * contradict each other; more events than allowed; another result for the same bytes, with less
 * memory (other than "no memory") or in another envelope. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "door/capture/internal.h"
#include "json/read.h"
#include "json/tolerant.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_MS     INT64_C(1796040000000)
#define EVENTS_MAX 20u
/* 1900-01-01 and 2300-01-01 */
#define US_MIN INT64_C(-2208988800000000)
#define US_MAX INT64_C(10413792000000000)

static const struct {
    enum capture_dialect dialect;
    capture_parse_fn *parse;
    const char *call;
    int64_t head_sent_at_ms;
} ways[] = {
    {CAPTURE_POSTHOG, posthog_parse, "", 0},
    {CAPTURE_POSTHOG, posthog_parse, "engage", 0},
    {CAPTURE_POSTHOG, posthog_parse, "", NOW_MS + 86400000},
    {CAPTURE_POSTHOG, posthog_parse, "engage", NOW_MS - 60000},
    {CAPTURE_POSTHOG_V1, posthog_v1_parse, "", NOW_MS - 3600000},
    {CAPTURE_POSTHOG_V1, posthog_v1_parse, "", 0},
    {CAPTURE_SEGMENT, segment_parse, "", 0},
    {CAPTURE_SEGMENT, segment_parse, "track", 0},
    {CAPTURE_SEGMENT, segment_parse, "identify", 0},
    {CAPTURE_SEGMENT, segment_parse, "page", 0},
    {CAPTURE_SEGMENT, segment_parse, "screen", 0},
    {CAPTURE_SEGMENT, segment_parse, "group", 0},
    {CAPTURE_SEGMENT, segment_parse, "alias", 0},
    {CAPTURE_NATIVE, native_parse, "", 0},
};
#define WAYS (sizeof ways / sizeof ways[0])

static struct capture door = {.options = {.request_bytes_max = 1u << 20,
                                          .decoded_bytes_max = 1u << 20,
                                          .single_bytes_max = 1u << 20,
                                          .event_bytes_max = 1u << 16,
                                          .batch_events_max = EVENTS_MAX}};

static int parse(struct capture_batch *b, size_t way, struct slice json, size_t arena_max,
                 struct err *e)
{
    *b = (struct capture_batch){.c = &door,
                                .dialect = ways[way].dialect,
                                .call = slice_cstr(ways[way].call),
                                .received_ms = NOW_MS,
                                .head_sent_at_ms = ways[way].head_sent_at_ms,
                                .sdk = SLICE("sdk"),
                                .sdk_version = SLICE("\xFF")};
    arena_init(&b->arena, arena_max);
    *e = (struct err){0};
    return ways[way].parse(b, json, e);
}

static void end(struct capture_batch *b)
{
    arena_free(&b->arena);
    free(b->event);
}

static void check_column(struct slice s)
{
    ensure(s.len == 0 || utf8_valid(s, NULL));
    ensure(s.len == 0 || memchr(s.ptr, '\0', s.len) == NULL);
}

static size_t chars(struct slice s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80 ? 1 : 0;
    }
    return n;
}

static bool known_type(struct slice s)
{
    static const char *const types[] = {"capture", "track", "identify", "page",
                                        "screen",  "group", "alias",    "native"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (slice_eq(s, slice_cstr(types[i]))) {
            return true;
        }
    }
    return false;
}

static void check_stored(const struct capture_batch *b, const struct queue_event *q)
{
    ensure(known_type(q->type));
    ensure(q->timestamp_us >= US_MIN);
    ensure(q->timestamp_us < US_MAX);
    ensure(q->time_note.ptr != NULL || q->time_note.len == 0);
    if (b->dialect == CAPTURE_POSTHOG || b->dialect == CAPTURE_POSTHOG_V1) {
        ensure(q->event.len > 0);
        ensure(q->distinct_id.len > 0);
        ensure(chars(q->distinct_id) <= 200);
    }
    if (b->dialect == CAPTURE_POSTHOG_V1) {
        ensure(!uuid_is_zero(&q->uuid));
    }
    struct slice whole;
    ensure(q->envelope.len == 0 || json_tolerant_check(q->envelope, &whole, NULL) == 0);
}

static void check_event(const struct capture_batch *b, struct slice json,
                        const struct capture_event *ev)
{
    const struct queue_event *q = &ev->ev;
    struct slice whole;
    ensure(q->text.ptr >= json.ptr);
    ensure(q->text.ptr + q->text.len <= json.ptr + json.len);
    ensure(json_tolerant_check(q->text, &whole, NULL) == 0);
    ensure(slice_eq(whole, q->text));
    check_column(q->event);
    check_column(q->distinct_id);
    check_column(q->anonymous_id);
    check_column(q->session_id);
    check_column(q->source);
    check_column(q->message_id);
    check_column(q->library);
    check_column(q->library_version);
    check_column(ev->given_uuid);
    ensure((ev->outcome == CAPTURE_STORED) == (ev->reason == NULL));
    if (ev->outcome == CAPTURE_STORED) {
        check_stored(b, q);
        return;
    }
    ensure(b->dialect != CAPTURE_NATIVE); /* strict: refused whole */
    ensure(ev->outcome == (b->dialect == CAPTURE_POSTHOG_V1 ? CAPTURE_DROPPED : CAPTURE_REJECTED));
    ensure(ev->reason[0] != '\0');
    ensure(utf8_valid(slice_cstr(ev->reason), NULL));
}

static void check_refused(int r, const struct err *e)
{
    ensure(e->code == r);
    ensure(e->text[0] != '\0');
    ensure(utf8_valid(slice_cstr(e->text), NULL));
    ensure(r == ERR_NO_MEMORY || (err_status(r) >= 400 && err_status(r) < 500));
    ensure(err_status(r) != 408);
    ensure(err_status(r) != 429);
}

static void check_same(const struct capture_event *a, const struct capture_event *b)
{
    ensure(a->outcome == b->outcome);
    ensure(slice_eq(a->ev.event, b->ev.event));
    ensure(slice_eq(a->ev.distinct_id, b->ev.distinct_id));
    ensure(slice_eq(a->ev.session_id, b->ev.session_id));
    ensure(slice_eq(a->ev.message_id, b->ev.message_id));
    ensure(slice_eq(a->ev.text, b->ev.text));
    ensure(uuid_cmp(&a->ev.uuid, &b->ev.uuid) == 0);
    ensure(a->ev.timestamp_us == b->ev.timestamp_us);
}

/* Less memory: the same, or no memory. */
static void check_memory(const struct capture_batch *b, size_t way, struct slice json, int r)
{
    struct capture_batch less;
    struct err e;
    int again = parse(&less, way, json, b->arena.used_bytes / 2 + 16, &e);
    if (again == ERR_NO_MEMORY) {
        check_refused(again, &e);
    } else {
        ensure(again == r);
        ensure(less.count == b->count);
        for (size_t i = 0; r == 0 && i < b->count; i++) {
            check_same(&b->event[i], &less.event[i]);
        }
    }
    end(&less);
}

/* PostHog: events that came alone or in an array are the same in a batch. */
static void check_shape(const struct capture_batch *b, size_t way, struct slice json)
{
    static struct buf body;
    struct capture_batch other;
    struct err e;
    struct slice value;
    struct slice batch;
    bool bare = b->single || json_type_of(json) == JSON_ARRAY;
    if (b->dialect != CAPTURE_POSTHOG || !bare || b->count == 0) {
        return;
    }
    buf_clear(&body);
    buf_put_cstr(&body, "{\"batch\":[");
    for (size_t i = 0; i < b->count; i++) {
        buf_put_cstr(&body, i == 0 ? "" : ",");
        buf_put_slice(&body, b->event[i].ev.text);
    }
    buf_put_cstr(&body, "],\"api_key\":");
    json_put_string(&body, b->token);
    buf_put_char(&body, '}');
    ensure(!body.failed);
    if (json_tolerant_check(buf_slice(&body), &value, NULL) != 0) {
        return; /* one level deeper than the deepest */
    }
    ensure(json_member(value, SLICE("batch"), &batch));
    int r = parse(&other, way, value, 0, &e);
    ensure(r == 0);
    ensure(other.count == b->count);
    ensure(slice_eq(other.token, b->token));
    for (size_t i = 0; i < b->count; i++) {
        check_same(&b->event[i], &other.event[i]);
    }
    end(&other);
}

static void check(size_t way, struct slice json)
{
    struct capture_batch b;
    struct err e;
    int r = parse(&b, way, json, 0, &e);
    ensure(b.count <= EVENTS_MAX);
    if (r != 0) {
        ensure(r != ERR_NO_MEMORY);
        check_refused(r, &e);
    } else {
        ensure(!b.single || b.count <= 1);
        for (size_t i = 0; i < b.count; i++) {
            check_event(&b, json, &b.event[i]);
            ensure(i == 0 || b.event[i].index > b.event[i - 1].index);
        }
        check_shape(&b, way, json);
    }
    check_memory(&b, way, json, r);
    end(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice json;
    if (size < 2) {
        return 0;
    }
    /* Memory of its exact size. */
    char *copy = malloc(size - 1);
    ensure(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    if (json_tolerant_check(slice_of(copy, size - 1), &json, NULL) == 0) {
        check(data[0] % WAYS, json);
    }
    free(copy);
    return 0;
}
