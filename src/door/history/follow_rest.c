/* What is left of an event that does not fit into a piece, for as long as the client takes.
 *
 * A small rest is kept. Large ones are kept up to HELD_BYTES_MAX over all followers, so that any
 * number of clients that stop in the middle of an event of 32 MiB cannot take all memory. Beyond
 * that the text is let go: only how much of it is missing is remembered (text_left), with what
 * comes behind the text (in out), and the reader is put back in front of the event. The next piece
 * reads the stored line again, from its beginning: that costs time, and only here.
 *
 * When the line cannot be read again, the record cannot be ended well: the connection is cut. */
#include "base/ensure.h"
#include "base/log.h"
#include "door/history/follow_internal.h"

#define SMALL_REST     (64u << 10)
#define HELD_BYTES_MAX (64u << 20)

static void give_back(struct follower *f)
{
    atomic_fetch_sub(&f->h->followers.held_bytes, f->held);
    f->held = 0;
}

static bool may_hold(struct follower *f, uint64_t bytes)
{
    ensure(f->held == 0);
    if (bytes <= SMALL_REST) {
        return true;
    }
    if (atomic_fetch_add(&f->h->followers.held_bytes, bytes) + bytes > HELD_BYTES_MAX) {
        atomic_fetch_sub(&f->h->followers.held_bytes, bytes);
        return false;
    }
    f->held = bytes;
    return true;
}

/* out becomes first and then second, in no more memory than they need. false without memory: out is
 * as it was. first and second may be parts of it. */
static bool rewrite(struct follower *f, struct slice first, struct slice second)
{
    struct buf b;
    size_t n = first.len + second.len;
    buf_init(&b, n);
    if (n > 0) {
        buf_put_slice(&b, first);
        buf_put_slice(&b, second);
    }
    if (b.failed) {
        buf_free(&b);
        return false;
    }
    buf_free(&f->out);
    b.limit = 0;
    f->out = b;
    f->sent = 0;
    f->text_at = 0;
    f->text_end = 0;
    return true;
}

void follow_keep_rest(struct follower *f)
{
    struct slice left = slice_from(buf_slice(&f->out), f->sent);
    size_t text_end = f->text_end;
    size_t sent = f->sent;
    bool in_text = f->reader != NULL && sent >= f->text_at && sent < text_end;
    give_back(f);
    if (may_hold(f, left.len) || !in_text) {
        if (left.len == 0 || f->out.cap > 2 * left.len) {
            (void)rewrite(f, left, (struct slice){0}); /* without memory it stays where it is */
        }
        return;
    }
    if (rewrite(f, slice_from(buf_slice(&f->out), text_end), (struct slice){0})) {
        f->text_left = text_end - sent;
        journal_reader_again(f->reader);
    }
}

/* Bytes [from, from + n) of the text that line_put_event makes, without making it. */
static void copy_text(const struct line *l, size_t from, char *p, size_t n)
{
    const struct slice parts[] = {SLICE("{"), l->replay_head, l->replay_rest};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && n > 0; i++) {
        struct slice rest = slice_from(parts[i], from);
        size_t take = rest.len < n ? rest.len : n;
        memcpy(p, rest.ptr, take);
        p += take;
        n -= take;
        from -= from < parts[i].len ? from : parts[i].len;
    }
    ensure(n == 0);
}

int64_t follow_read_rest(struct follower *f, char *p, size_t cap)
{
    struct err e = {0};
    struct line l;
    int r = journal_reader_next(f->reader, &l, 0, &e);
    if (r == 1 && uuid_cmp(&l.id, &f->last_id) != 0) {
        r = err_set(&e, ERR_CORRUPT, "an event is not what it was");
    }
    size_t whole = r == 1 ? line_event_bytes(&l) : 0;
    if (r != 1 || whole < f->text_left) {
        log_line(LOG_ERROR, "history", "a follower was cut: %s", e.text);
        return r < 0 ? r : ERR_CORRUPT;
    }
    size_t n = f->text_left < cap ? (size_t)f->text_left : cap;
    copy_text(&l, whole - f->text_left, p, n);
    f->text_left -= n;
    if (f->text_left > 0) {
        journal_reader_again(f->reader);
    }
    journal_reader_rest(f->reader);
    return (int64_t)n;
}

void follow_free_rest(struct follower *f)
{
    give_back(f);
    buf_free(&f->out);
}
