/* The window and its cuts. A cut depends on the canonical events and the two limits only, never on
 * how the input came in pieces, so a repeated run makes the same ids with the same content and gets
 * the original receipts. Nothing here waits or sends. All conditions are answers. */
#include "main/batches.h"

#include <string.h>

#include "base/ensure.h"
#include "json/write.h"

void batches_init(struct batches *b, struct events *in)
{
    b->in = in;
    b->count = 0;
    b->index = 0;
    b->ended = false;
    buf_init(&b->text, 0); /* bounded by batches_cut */
}

void batches_free(struct batches *b)
{
    buf_free(&b->text);
}

/* One more event into the window; 1, 0 at the end. */
static int read_one(struct batches *b, struct err *e)
{
    ensure(b->count <= BATCHES_EVENTS_MAX);
    struct slice event;
    uint64_t line = 0;
    int r = b->ended ? 0 : events_next(b->in, &event, &line, e);
    if (r != 1) {
        b->ended = true;
        return r;
    }
    buf_put_slice(&b->text, event);
    if (b->text.failed) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    b->items[b->count++] = (struct batches_item){.len = event.len, .line = line};
    return 1;
}

int batches_cut(struct batches *b, size_t want, size_t bytes_max, size_t *count, struct err *e)
{
    ensure(want >= 1);
    ensure(want <= BATCHES_EVENTS_MAX);
    ensure(bytes_max <= BATCHES_BODY_MAX);
    size_t bytes = 0;
    size_t n = 0;
    *count = 0;
    while (n < want) {
        if (n == b->count) {
            int r = read_one(b, e);
            if (r < 0) {
                return r;
            }
            if (r == 0) {
                break;
            }
        }
        bytes += b->items[n].len + (n > 0 ? 1 : 0);
        if (bytes > bytes_max && n > 0) {
            break;
        }
        n++;
    }
    ensure(n <= b->count);
    *count = n;
    return 0;
}

void batches_consume(struct batches *b, size_t count)
{
    ensure(count <= b->count);
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += b->items[i].len;
    }
    ensure(bytes <= b->text.len);
    if (bytes < b->text.len) {
        memmove(b->text.ptr, b->text.ptr + bytes, b->text.len - bytes);
    }
    b->text.len -= bytes;
    memmove(b->items, b->items + count, (b->count - count) * sizeof *b->items);
    b->count -= count;
    b->index += count;
}

uint64_t batches_line(const struct batches *b, size_t i)
{
    ensure(i < b->count);
    return b->items[i].line;
}

void batches_id(const struct batches *b, const char *prefix, struct buf *out)
{
    buf_printf(out, "%s@%llu", prefix, (unsigned long long)b->index);
}

int batches_body(const struct batches *b, const char *source, const char *prefix, size_t count,
                 struct buf *out, struct err *e)
{
    ensure(count >= 1);
    ensure(count <= b->count);
    struct buf id;
    buf_init(&id, 0);
    batches_id(b, prefix, &id);
    buf_clear(out);
    buf_put_cstr(out, "{\"batch_id\":");
    json_put_string(out, buf_slice(&id));
    buf_put_cstr(out, ",\"events\":[");
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            buf_put_char(out, ',');
        }
        buf_put(out, b->text.ptr + at, b->items[i].len);
        at += b->items[i].len;
    }
    buf_put_cstr(out, "],\"source\":");
    json_put_string(out, slice_cstr(source));
    buf_put_char(out, '}');
    bool failed = out->failed || id.failed;
    buf_free(&id);
    if (failed) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    if (out->len > BATCHES_BODY_MAX) {
        ensure(count == 1); /* a cut of several events leaves room for the envelope */
        return err_set(e, ERR_BODY_TOO_LARGE,
                       "%.150s:%llu: the event is larger than the 32 MiB a request may have",
                       b->in->name, (unsigned long long)b->items[0].line);
    }
    return 0;
}
