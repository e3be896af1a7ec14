/* The ring. Texts lie one behind the other in `bytes`; one that does not fit in what is left up to
 * the end begins anew at 0. Whatever a new text covers is let go first, oldest first, and `start`
 * moves on to it: so the ring never shows half an event, nor a gap.
 *
 * Nothing here is durable or an answer. A line that does not parse is a bug: it was made and
 * committed by this process. */
#include "door/history/recent.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/ensure.h"
#include "journal/line.h"

static_assert((RECENT_EVENTS & (RECENT_EVENTS - 1)) == 0, "numbers are taken modulo RECENT_EVENTS");
static_assert(RECENT_EVENT_MAX <= RECENT_BYTES / 16, "the ring holds several of the largest");

bool recent_start(struct recent *r, const struct uuid *through)
{
    if (r->bytes == NULL) {
        r->bytes = malloc(RECENT_BYTES);
        r->events = malloc(RECENT_EVENTS * sizeof *r->events);
        if (r->bytes == NULL || r->events == NULL) {
            recent_free(r);
            return false;
        }
    }
    r->first = r->end;
    r->write_at = 0;
    r->start = *through;
    r->through = *through;
    return true;
}

void recent_free(struct recent *r)
{
    free(r->bytes);
    free(r->events);
    r->bytes = NULL;
    r->events = NULL;
}

const struct recent_event *recent_at(const struct recent *r, uint64_t n)
{
    ensure(n >= r->first);
    ensure(n < r->end);
    return &r->events[n % RECENT_EVENTS];
}

struct slice recent_text(const struct recent *r, const struct recent_event *ev)
{
    return slice_of(r->bytes + ev->at, ev->len);
}

static void drop_oldest(struct recent *r)
{
    r->start = recent_at(r, r->first)->id;
    r->first++;
}

static bool oldest_in(const struct recent *r, uint32_t from, uint32_t to)
{
    return r->first < r->end && recent_at(r, r->first)->at >= from &&
           recent_at(r, r->first)->at < to;
}

/* Makes room for n bytes; the result is where they go. */
static uint32_t make_room(struct recent *r, uint32_t n)
{
    if (r->end - r->first == RECENT_EVENTS) {
        drop_oldest(r);
    }
    if (r->write_at + n > RECENT_BYTES) {
        while (oldest_in(r, r->write_at, RECENT_BYTES)) {
            drop_oldest(r);
        }
        r->write_at = 0;
    }
    while (oldest_in(r, r->write_at, r->write_at + n)) {
        drop_oldest(r);
    }
    return r->write_at;
}

/* A part of the stored line, as a place in the text that is sent: '{', replay_head, replay_rest. */
static struct recent_part part_of(const struct line *l, struct slice part)
{
    ensure(part.ptr >= l->replay_rest.ptr);
    ensure(part.ptr + part.len <= l->replay_rest.ptr + l->replay_rest.len);
    return (struct recent_part){
        .at = (uint32_t)(1 + l->replay_head.len + (size_t)(part.ptr - l->replay_rest.ptr)),
        .len = (uint32_t)part.len};
}

static void add_line(struct recent *r, const struct line *l)
{
    size_t n = line_event_bytes(l);
    ensure(uuid_cmp(&l->id, &r->through) > 0);
    r->through = l->id;
    if (n > RECENT_EVENT_MAX) {
        r->first = r->end;
        r->start = l->id;
        return;
    }
    uint32_t at = make_room(r, (uint32_t)n);
    struct buf text = {.ptr = r->bytes + at, .cap = n, .limit = n};
    line_put_event(&text, l);
    ensure(!text.failed);
    ensure(text.len == n);
    r->events[r->end % RECENT_EVENTS] =
        (struct recent_event){.id = l->id,
                              .at = at,
                              .len = (uint32_t)n,
                              .source = part_of(l, l->source),
                              .stream = part_of(l, l->stream),
                              .record_key = part_of(l, l->record_key),
                              .kind = part_of(l, l->kind)};
    r->end++;
    r->write_at = at + (uint32_t)n;
}

void recent_add(struct recent *r, struct slice lines)
{
    while (lines.len > 0) {
        const char *lf = memchr(lines.ptr, '\n', lines.len);
        ensure(lf != NULL);
        size_t n = (size_t)(lf - lines.ptr);
        struct line l;
        bool good = line_parse(slice_of(lines.ptr, n), &l);
        ensure(good);
        add_line(r, &l);
        lines = slice_from(lines, n + 1);
    }
}

uint64_t recent_find(const struct recent *r, const struct uuid *cursor)
{
    ensure(uuid_cmp(cursor, &r->start) >= 0);
    uint64_t lo = r->first;
    uint64_t hi = r->end;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (uuid_cmp(&recent_at(r, mid)->id, cursor) <= 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static bool part_is(struct slice text, struct recent_part part, struct slice want)
{
    return want.ptr == NULL ||
           (part.len == want.len && memcmp(text.ptr + part.at, want.ptr, want.len) == 0);
}

bool recent_matches(const struct recent *r, const struct recent_event *ev,
                    const struct journal_filter *f)
{
    struct slice text = recent_text(r, ev);
    return part_is(text, ev->source, f->source) && part_is(text, ev->stream, f->stream) &&
           part_is(text, ev->kind, f->kind) && part_is(text, ev->record_key, f->record_key);
}
