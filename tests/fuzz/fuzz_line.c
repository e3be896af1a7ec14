/* fuzz_line: line_parse on any bytes (a stored line of a damaged disk).
 *
 * Broken is: a part outside of the text; an accepted line that line_put does not write again byte
 * for byte, or whose length line_length does not know; a replayed event that is not the line
 * without its two framing members. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "journal/line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct slice part, struct slice whole)
{
    ensure(part.len > 0);
    ensure(part.ptr >= whole.ptr);
    ensure(part.ptr + part.len <= whole.ptr + whole.len);
}

static void check_string(struct slice part, struct slice whole)
{
    check_inside(part, whole);
    ensure(part.len >= 2);
    ensure(part.ptr[0] == '"');
    ensure(part.ptr[part.len - 1] == '"');
}

static void check_parts(const struct line *l, struct slice text)
{
    check_inside(l->batch_digest, text);
    check_inside(l->content_hash, text);
    check_inside(l->event_hash, text);
    check_inside(l->event_id, text);
    check_inside(l->observed_at, text);
    check_inside(l->payload, text);
    check_inside(l->replay_head, text);
    check_inside(l->replay_rest, text);
    check_string(l->batch_id, text);
    check_string(l->kind, text);
    check_string(l->record_key, text);
    check_string(l->source, text);
    check_string(l->stream, text);
    if (l->occurred_at.len > 0) {
        check_string(l->occurred_at, text);
    }
}

/* `{"batch_digest":"…",` and `,"batch_len":N` cut out by hand. */
static void check_event(const struct line *l, struct slice text, const struct buf *event)
{
    char number[32];
    size_t digest = strlen("\"batch_digest\":\"\",") + 64;
    size_t id = strlen("\"batch_id\":") + l->batch_id.len;
    int n = snprintf(number, sizeof number, ",\"batch_len\":%u", l->batch_len);
    size_t behind = 1 + digest + id + (size_t)n;
    ensure(event->len == text.len - digest - (size_t)n);
    ensure(event->ptr[0] == '{');
    ensure(memcmp(event->ptr + 1, text.ptr + 1 + digest, id) == 0);
    ensure(memcmp(event->ptr + 1 + id, text.ptr + behind, text.len - behind) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct buf out, event;
    struct line l = {0};
    /* Memory of the exact size, so that a look beyond it is seen. */
    char *copy = malloc(size + 1);
    ensure(copy != NULL);
    if (size > 0) {
        memcpy(copy + 1, data, size);
    }
    struct slice text = slice_of(copy + 1, size);
    if (line_parse(text, &l)) {
        check_parts(&l, text);
        buf_clear(&out);
        line_put(&out, &l);
        ensure(out.len == size + 1);
        ensure(line_length(&l) == out.len);
        ensure(memcmp(out.ptr, text.ptr, size) == 0);
        ensure(out.ptr[size] == '\n');
        buf_clear(&event);
        line_put_event(&event, &l);
        check_event(&l, text, &event);
    }
    free(copy);
    return 0;
}
