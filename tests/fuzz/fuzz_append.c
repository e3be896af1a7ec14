/* fuzz_append: parse_batch on any bytes.
 *
 * Broken is: a refusal without a message, with a message that is no UTF-8, or with members that do
 * not fit into an error body; an accepted batch with a part that is not in canonical form, that
 * borrows from the request (its memory is freed), or whose text, put together anew in another order
 * of members, does not give the same batch; a smaller limit that changes more than the answer "does
 * not fit"; a failed body that leaves traces in the next one. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "door/history/parse.h"
#include "json/canon.h"
#include "json/read.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct canon *canon;

static void check_canonical(struct slice text, enum json_type type)
{
    static struct buf again;
    buf_clear(&again);
    int r = canon_json(canon, text, &again, NULL);
    ensure(r == 0);
    ensure(slice_eq(buf_slice(&again), text));
    ensure(type == JSON_BAD || json_type_of(text) == type);
}

static void check_refused(int r, const struct err *e, const struct buf *extra)
{
    static struct buf body, out;
    ensure(e->code == r);
    ensure(r == ERR_NO_MEMORY || (err_status(r) >= 400 && err_status(r) < 500));
    ensure(e->text[0] != '\0');
    ensure(utf8_valid(slice_cstr(e->text), NULL));
    ensure((extra->len > 0) == (r == ERR_INVALID_EVENTS));
    buf_clear(&body);
    buf_clear(&out);
    buf_put_char(&body, '{');
    buf_put_slice(&body, buf_slice(extra));
    buf_put_char(&body, '}');
    int valid = canon_json(canon, buf_slice(&body), &out, NULL);
    ensure(valid == 0);
}

static void put_event(struct buf *out, const struct journal_event *ev)
{
    uint8_t hash[SHA256_LEN];
    check_canonical(ev->stream, JSON_STRING);
    check_canonical(ev->record_key, JSON_STRING);
    check_canonical(ev->kind, JSON_STRING);
    check_canonical(ev->payload, JSON_BAD);
    ensure(parse_valid_name(slice_of(ev->stream.ptr + 1, ev->stream.len - 2)));
    sha256_once(ev->payload, hash);
    ensure(memcmp(hash, ev->content_hash, SHA256_LEN) == 0);
    buf_put_cstr(out, "{\"stream\" : ");
    buf_put_slice(out, ev->stream);
    buf_put_cstr(out, ",\"payload\" : ");
    buf_put_slice(out, ev->payload);
    buf_put_cstr(out, ",\"kind\" : ");
    buf_put_slice(out, ev->kind);
    if (ev->occurred_at.len > 0) {
        check_canonical(ev->occurred_at, JSON_STRING);
        buf_put_cstr(out, ",\"occurred_at\" : ");
        buf_put_slice(out, ev->occurred_at);
    }
    buf_put_cstr(out, ",\"record_key\" : ");
    buf_put_slice(out, ev->record_key);
    buf_put_cstr(out, "}");
}

/* A body that means the same, spelled otherwise. */
static void rebuild(const struct journal_batch *b, struct buf *out)
{
    check_canonical(b->source, JSON_STRING);
    check_canonical(b->batch_id, JSON_STRING);
    buf_clear(out);
    buf_put_cstr(out, "{\"source\" : ");
    buf_put_slice(out, b->source);
    if (b->has_precondition) {
        char id[UUID_TEXT_LEN];
        check_canonical(b->precondition_stream, JSON_STRING);
        uuid_text(id, &b->expected_frontier);
        buf_put_cstr(out, ", \"stream_precondition\" : {\"stream\" : ");
        buf_put_slice(out, b->precondition_stream);
        buf_put_cstr(out, ", \"expected_frontier\" : ");
        if (b->expect_none) {
            buf_put_cstr(out, "null}");
        } else {
            buf_put_char(out, '"');
            buf_put(out, id, sizeof id);
            buf_put_cstr(out, "\"}");
        }
    }
    buf_put_cstr(out, ", \"events\" : [");
    for (uint32_t i = 0; i < b->count; i++) {
        if (i > 0) {
            buf_put_char(out, ',');
        }
        put_event(out, &b->events[i]);
    }
    buf_put_cstr(out, "], \"batch_id\" : ");
    buf_put_slice(out, b->batch_id);
    buf_put_cstr(out, ", \"v\" : 1.0}\n");
    ensure(!out->failed);
}

static void check_same(const struct journal_batch *a, const struct journal_batch *b)
{
    ensure(memcmp(a->digest, b->digest, SHA256_LEN) == 0);
    ensure(slice_eq(a->source, b->source));
    ensure(slice_eq(a->batch_id, b->batch_id));
    ensure(a->count == b->count);
    ensure(a->has_precondition == b->has_precondition);
    ensure(a->expect_none == b->expect_none);
    ensure(uuid_cmp(&a->expected_frontier, &b->expected_frontier) == 0);
    ensure(slice_eq(a->precondition_stream, b->precondition_stream));
    for (uint32_t i = 0; i < a->count; i++) {
        ensure(slice_eq(a->events[i].payload, b->events[i].payload));
        ensure(slice_eq(a->events[i].record_key, b->events[i].record_key));
    }
}

/* From memory of its exact size, which is gone afterwards. */
static int parse_once(struct parse *p, const void *data, size_t size, size_t max,
                      struct journal_batch *batch, struct buf *extra, struct err *e)
{
    char *copy = malloc(size + 1);
    ensure(copy != NULL);
    if (size > 0) {
        memcpy(copy + 1, data, size);
    }
    *e = (struct err){0};
    int r = parse_batch(p, slice_of(copy + 1, size), max, batch, extra, e);
    memset(copy, 0xa5, size + 1);
    free(copy);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct parse *first, *second;
    static struct buf extra, body;
    struct journal_batch a;
    struct journal_batch b;
    struct err e;
    if (canon == NULL) {
        canon = canon_new();
        first = parse_new();
        second = parse_new();
    }
    ensure(canon != NULL);
    ensure(first != NULL);
    ensure(second != NULL);
    int r = parse_once(first, data, size, size * 6 + 64, &a, &extra, &e);
    if (r != 0) {
        ensure(r != ERR_NO_MEMORY);
        check_refused(r, &e, &extra);
        return 0;
    }
    ensure(extra.len == 0);
    rebuild(&a, &body);
    r = parse_once(second, body.ptr, body.len, 0, &b, &extra, &e);
    ensure(r == 0);
    check_same(&a, &b);
    r = parse_once(second, data, size, size / 2 + 1, &b, &extra, &e);
    if (r == 0) {
        check_same(&a, &b);
    } else {
        ensure(r == ERR_NO_MEMORY);
        check_refused(r, &e, &extra);
    }
    parse_trim(second);
    return 0;
}
