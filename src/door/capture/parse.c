/* parse: from a request to a batch of parsed events, the same for every dialect.
 *
 *   head (query, Content-Encoding) -> decode.c -> json_tolerant_check -> the dialect's parser
 *   -> finish.c
 *
 * A small plain JSON body is parsed where it arrived. What is large, or may grow by being decoded,
 * goes to a worker, which sees the batch and nothing else. Memory: a compressed body reserves four
 * times its size beforehand; what decoding and parsing really took is reserved when they are done,
 * so that no more than one request a worker is ever unreserved, and that one is bounded by
 * decoded_bytes_max. Not to be had: 503 or 429, nothing stored.
 *
 * A body that ended early never gets here (the front: cases C52). */
#include "base/ensure.h"
#include "door/capture/internal.h"
#include "os/os.h"
#include "json/tolerant.h"

#define COMPRESSED_GROWTH 4
/* What parsing may allocate beside the table of events: columns are shorter than the text they come
 * from, but mending can make them three times as long. */
#define ARENA_SLACK  (64u << 10)
#define ARENA_GROWTH 4

static void decode_and_parse(void *ctx)
{
    struct capture_batch *b = ctx;
    struct slice json = {0};
    b->code = decode_body(&b->how, &b->decoded, &b->e);
    if (b->code == 0) {
        arena_init(&b->arena, b->decoded.json.len * ARENA_GROWTH + ARENA_SLACK);
        b->code = json_tolerant_check(b->decoded.json, &json, &b->e);
    }
    if (b->code == ERR_JSON_DEPTH) {
        b->code = ERR_INVALID_JSON;
    }
    if (b->code == 0) {
        b->code = b->parse(b, json, &b->e);
    }
}

static void parsed(void *ctx, struct http_request *req)
{
    struct capture_batch *b = ctx;
    uint64_t used = b->arena.used_bytes + b->decoded.owned.cap + b->cap * sizeof *b->event;
    ensure(b->req == req);
    if (used > b->reserved_bytes) {
        if (!http_reserve(req, used - b->reserved_bytes)) {
            b->code = err_set(&b->e, ERR_OVERLOADED, "too much is under way; nothing was stored");
        } else {
            b->reserved_bytes = used;
        }
    }
    if (b->code != 0) {
        capture_answer(b, b->code, &b->e);
    } else {
        capture_finish(b);
    }
}

/* JSON as it is, and little of it. */
static bool is_small_and_plain(const struct capture_batch *b)
{
    struct slice body = b->how.body;
    if (body.len > CAPTURE_INLINE_BYTES || b->how.query_data.len > 0 ||
        b->how.query_compression.len > 0 || b->how.content_encoding.len > 0) {
        return false;
    }
    while (body.len > 0 &&
           (*body.ptr == ' ' || *body.ptr == '\n' || *body.ptr == '\r' || *body.ptr == '\t')) {
        body = slice_from(body, 1);
    }
    return body.len == 0 || *body.ptr == '{' || *body.ptr == '[';
}

static void start_worker(struct capture_batch *b)
{
    uint64_t more = (uint64_t)b->how.body.len * COMPRESSED_GROWTH;
    if (more > b->how.decoded_bytes_max) {
        more = b->how.decoded_bytes_max;
    }
    bool room = http_reserve(b->req, more);
    b->reserved_bytes = room ? more : 0;
    if (!room || !http_work(b->req, decode_and_parse, parsed, b)) {
        (void)err_set(&b->e, ERR_OVERLOADED, "too much is under way; nothing was stored");
        capture_answer(b, ERR_OVERLOADED, &b->e);
    }
}

void capture_start(struct capture *c, struct http_request *req, const struct capture_kind *kind)
{
    struct capture_batch *b = arena_calloc(http_arena(req), 1, sizeof *b);
    if (b == NULL) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for this request now", (struct slice){0});
        return;
    }
    b->c = c;
    b->req = req;
    b->dialect = kind->dialect;
    b->call = slice_cstr(kind->call);
    b->parse = kind->parse;
    b->received_ms = (int64_t)os_clock_real_ms();
    b->how = (struct decode_request){.mode = kind->mode,
                                     .body = http_body(req),
                                     .decoded_bytes_max =
                                         kind->single && kind->dialect != CAPTURE_POSTHOG
                                             ? c->options.single_bytes_max
                                             : c->options.decoded_bytes_max};
    b->code = capture_read_head(b, &b->e);
    if (b->code != 0) {
        capture_answer(b, b->code, &b->e);
    } else if (is_small_and_plain(b)) {
        decode_and_parse(b);
        parsed(b, req);
    } else {
        start_worker(b);
    }
}
