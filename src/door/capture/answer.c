/* answer: what the client is told, in the words of its protocol (spec/capture.md A4, A8, B5).
 *
 * The words say what is on disk: a plain {"status":"Ok"} means that every event of the request was
 * new and is stored; when some were known before or are bad, the answer counts them and names the
 * bad ones (cases C13, C14, C16, C50). SDKs read the status alone: further members cost nothing.
 *
 * Statuses are chosen by what clients do with them: 4xx loses the events for good, so it is only
 * for what can never be taken; everything that may pass is 503 on PostHog's routes and 429 on
 * Segment's (client-wire.md 1), with a Retry-After. */
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/capture/internal.h"
#include "os/os.h"
#include "json/write.h"

/* Bad events named in an answer. */
#define NAMED_MAX 100

/* How long to stay away, in seconds: posthog-python waits as long as that, and has three tries. */
#define WAIT_FULL "30"
#define WAIT_BUSY "2"

#define FULL_SAID_NS UINT64_C(60000000000)

static enum metric requests_of(enum capture_dialect d)
{
    switch (d) {
    case CAPTURE_POSTHOG_V1:
        return METRIC_CAPTURE_POSTHOG_V1_REQUESTS;
    case CAPTURE_SEGMENT:
        return METRIC_CAPTURE_SEGMENT_REQUESTS;
    case CAPTURE_NATIVE:
        return METRIC_CAPTURE_NATIVE_REQUESTS;
    case CAPTURE_POSTHOG:
    default:
        return METRIC_CAPTURE_POSTHOG_REQUESTS;
    }
}

/* ---- refusals ---- */

static const char *wait_of(int code)
{
    switch (code) {
    case ERR_QUEUE_FULL:
    case ERR_NO_SPACE:
    case ERR_STORE_POISONED:
        return WAIT_FULL;
    case ERR_STORE_BUSY:
    case ERR_OVERLOADED:
    case ERR_INTERNAL_ERROR:
        return WAIT_BUSY;
    default:
        return NULL;
    }
}

void capture_refuse(struct http_request *req, enum capture_dialect dialect, int code,
                    const char *text, struct slice extra)
{
    const char *wait = wait_of(code);
    bool bearer = dialect == CAPTURE_NATIVE || dialect == CAPTURE_POSTHOG_V1;
    metric_add(requests_of(dialect), 1);
    metric_add(METRIC_CAPTURE_REFUSED, 1);
    if (wait != NULL) {
        http_add_header(req, "Retry-After", slice_cstr(wait));
    }
    if (code == ERR_UNAUTHORIZED && bearer) {
        http_add_header(req, "WWW-Authenticate", SLICE("Bearer"));
    }
    http_answer_error(req, code, text, extra);
}

/* Which budget is spent: counted always, said once a minute, since a full queue refuses all day. */
static void note_full(const struct capture_batch *b, const char *why)
{
    uint64_t now_ns = os_clock_mono_ns();
    metric_add(METRIC_CAPTURE_QUEUE_FULL, 1);
    if (b->c->full_said_ns == 0 || now_ns - b->c->full_said_ns >= FULL_SAID_NS) {
        b->c->full_said_ns = now_ns;
        log_line(LOG_WARN, "capture", "events are refused: %s", why);
    }
}

/* What went wrong inside is for the log; the client hears what to do. */
static void refuse(const struct capture_batch *b, int code, const struct err *e)
{
    const char *text = e != NULL ? e->text : "";
    char index[32];
    struct buf extra = {.ptr = index, .cap = sizeof index, .limit = sizeof index};
    switch (code) {
    case ERR_QUEUE_FULL:
        note_full(b, text);
        text = "the queue is full; nothing was stored";
        break;
    case ERR_NO_SPACE:
        text = "the server has no space left; nothing was stored";
        break;
    case ERR_STORE_POISONED:
        text = "the outcome is not known; send the same again after a restart";
        break;
    case ERR_NO_MEMORY:
    case ERR_OVERLOADED:
        code = ERR_OVERLOADED;
        text = "too much is under way; nothing was stored";
        break;
    case ERR_STORE_BUSY:
        text = "too much is under way; nothing was stored";
        break;
    default:
        if (err_status(code) >= 500) {
            log_line(LOG_ERROR, "capture", "a request could not be stored: %s", text);
            code = ERR_INTERNAL_ERROR;
            text = "the events could not be stored";
        }
        break;
    }
    if (code == ERR_UNSUPPORTED_MEDIA_TYPE) {
        http_add_header(b->req, "Accept-Encoding", SLICE("gzip, deflate")); /* RFC 7694, C43 */
    }
    if (b->has_bad_index) {
        buf_printf(&extra, "\"index\":%u", b->bad_index);
    }
    capture_refuse(b->req, b->dialect, code, text, buf_slice(&extra));
}

/* ---- what was stored ---- */

struct tally {
    size_t accepted, duplicates, rejected;
};

static struct tally count(const struct capture_batch *b)
{
    struct tally t = {0};
    for (size_t i = 0; i < b->count; i++) {
        if (b->event[i].outcome != CAPTURE_STORED) {
            t.rejected++;
        } else if (b->event[i].receipt.repeat) {
            t.duplicates++;
        } else {
            t.accepted++;
        }
    }
    return t;
}

static void put_rejected(const struct capture_batch *b, struct buf *out)
{
    size_t named = 0;
    buf_put_cstr(out, ",\"errors\":[");
    for (size_t i = 0; i < b->count && named < NAMED_MAX; i++) {
        const struct capture_event *ev = &b->event[i];
        if (ev->outcome == CAPTURE_STORED) {
            continue;
        }
        buf_put_cstr(out, named == 0 ? "{\"index\":" : ",{\"index\":");
        buf_put_u64(out, ev->index);
        buf_put_cstr(out, ",\"reason\":");
        json_put_string(out, slice_cstr(ev->reason));
        buf_put_char(out, '}');
        named++;
    }
    buf_put_char(out, ']');
}

/* {"status":"Ok"} or {"success":true}, and more only when not every event was new and good. */
static void put_counts(const struct capture_batch *b, const char *head, struct buf *out)
{
    struct tally t = count(b);
    buf_put_cstr(out, head);
    if (t.duplicates != 0 || t.rejected != 0) {
        buf_put_cstr(out, ",\"accepted\":");
        buf_put_u64(out, t.accepted);
        buf_put_cstr(out, ",\"duplicates\":");
        buf_put_u64(out, t.duplicates);
        buf_put_cstr(out, ",\"rejected\":");
        buf_put_u64(out, t.rejected);
    }
    if (t.rejected != 0) {
        put_rejected(b, out);
    }
    buf_put_char(out, '}');
}

/* A UUID that is left out counts as delivered, so every event of the request is here. */
static void put_results(const struct capture_batch *b, struct buf *out)
{
    buf_put_cstr(out, "{\"results\":{");
    for (size_t i = 0; i < b->count; i++) {
        const struct capture_event *ev = &b->event[i];
        buf_put_cstr(out, i == 0 ? "" : ",");
        json_put_string(out, ev->given_uuid);
        if (ev->outcome == CAPTURE_STORED) {
            buf_put_cstr(out, ":{\"result\":\"ok\"}");
        } else {
            buf_put_cstr(out, ":{\"result\":\"drop\",\"details\":");
            json_put_string(out, slice_cstr(ev->reason));
            buf_put_char(out, '}');
        }
    }
    buf_put_cstr(out, "}}");
}

static void put_receipts(const struct capture_batch *b, struct buf *out)
{
    struct tally t = count(b);
    buf_put_cstr(out, "{\"events\":[");
    for (size_t i = 0; i < b->count; i++) {
        const struct capture_event *ev = &b->event[i];
        char uuid[UUID_TEXT_LEN];
        ensure(ev->outcome == CAPTURE_STORED);
        uuid_text(uuid, &ev->ev.uuid);
        buf_printf(out,
                   "%s{\"index\":%u,\"status\":\"%s\",\"event_id\":\"%lld\",\"uuid\":\"%.*s\"}",
                   i == 0 ? "" : ",", ev->index, ev->receipt.repeat ? "duplicate" : "accepted",
                   (long long)ev->receipt.event_id, UUID_TEXT_LEN, uuid);
    }
    buf_put_cstr(out, "],\"accepted\":");
    buf_put_u64(out, t.accepted);
    buf_put_cstr(out, ",\"duplicates\":");
    buf_put_u64(out, t.duplicates);
    buf_put_char(out, '}');
}

static void put_success(const struct capture_batch *b, struct buf *out)
{
    switch (b->dialect) {
    case CAPTURE_POSTHOG_V1:
        put_results(b, out);
        return;
    case CAPTURE_SEGMENT:
        put_counts(b, "{\"success\":true", out);
        return;
    case CAPTURE_NATIVE:
        put_receipts(b, out);
        return;
    case CAPTURE_POSTHOG:
    default:
        put_counts(b, "{\"status\":\"Ok\"", out);
        return;
    }
}

static void answer_success(struct capture_batch *b)
{
    struct buf out = {0};
    metric_add(requests_of(b->dialect), 1);
    if (b->beacon) {
        http_answer(b->req, 204, NULL, (struct slice){0});
        return;
    }
    put_success(b, &out);
    if (out.failed) {
        /* All is stored; a client that asks again gets the same receipts. */
        http_add_header(b->req, "Retry-After", SLICE(WAIT_BUSY));
        http_answer_error(b->req, ERR_OVERLOADED, "no memory for the answer; send the same again",
                          (struct slice){0});
    } else {
        http_answer(b->req, 200, "application/json", buf_slice(&out));
    }
    buf_free(&out);
}

void capture_answer(struct capture_batch *b, int code, const struct err *e)
{
    ensure(code <= 0);
    if (code == 0) {
        answer_success(b);
    } else {
        refuse(b, code, e);
    }
    /* The batch is in the request's arena, which is there until the end of the turn. */
    decoded_free(&b->decoded);
    arena_free(&b->arena);
    free(b->event);
    b->event = NULL;
    b->count = 0;
    b->cap = 0;
}
