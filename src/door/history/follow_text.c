/* What followers are sent.
 *
 * NDJSON, a record a line (spec/history.md section 8, closed objects):
 *
 *   {"type":"events","phase":P,"events":[E,…],["last_event_id":ID,]"next_after":ID,
 *    "snapshot_through_event_id":ID}
 *   {"type":"caught_up","next_after":ID,"snapshot_through_event_id":ID,"snapshot":{…}}
 *   {"type":"end","reason":R,"last_event_id":ID,["detail":TEXT]}      (ids may be null)
 *
 * Server-sent events, a frame an event, data always in one line (JSON has no raw line feed), the id
 * behind the data so that nobody can note an id whose event was cut off:
 *
 *   data: E LF id: ID LF LF             an event
 *   id: ID LF LF                        events were passed over: the cursor moves, nothing is
 *                                       dispatched
 *   event: caught_up LF data: {…} LF LF and the same for end; without id
 *   : LF LF                             a comment against idle timeouts */
#include "base/ensure.h"
#include "door/history/follow_internal.h"
#include "os/os.h"

static void said(struct follower *f)
{
    f->said_ms = os_clock_mono_ns() / 1000000;
}

static void put_id(struct buf *b, const char *name, const struct uuid *id)
{
    history_put_id(b, name, uuid_is_zero(id), id);
}

static void put_sse_id(struct buf *b, const struct uuid *id)
{
    char text[UUID_TEXT_LEN];
    uuid_text(text, id);
    buf_put_cstr(b, "id: ");
    buf_put(b, text, sizeof text);
    buf_put_cstr(b, "\n\n");
}

static void open_record(struct follower *f, struct buf *b)
{
    buf_put_cstr(b, "{\"type\":\"events\",\"phase\":\"");
    buf_put_cstr(b, f->live ? "live" : "snapshot");
    buf_put_cstr(b, "\",\"events\":[");
    f->open = true;
    f->begun = true;
}

void follow_begin_event(struct follower *f, struct buf *b)
{
    if (f->sse) {
        buf_put_cstr(b, "data: ");
        f->open = true;
    } else if (!f->open) {
        open_record(f, b);
    } else {
        buf_put_char(b, ',');
    }
}

void follow_finish_event(struct follower *f, struct buf *b, size_t text_bytes,
                         const struct uuid *id)
{
    ensure(uuid_cmp(id, &f->cursor) > 0);
    ensure(f->open);
    if (f->sse) {
        buf_put_char(b, '\n');
        put_sse_id(b, id);
        f->told = *id;
    }
    f->in_record++;
    f->record_bytes += text_bytes;
    f->last_id = *id;
    f->cursor = *id;
    said(f);
}

void follow_close_record(struct follower *f, struct buf *b, const struct uuid *to,
                         const struct uuid *through)
{
    if (uuid_cmp(to, &f->cursor) > 0) {
        f->cursor = *to;
    }
    if (f->sse) {
        if (f->in_record == 0 && uuid_cmp(&f->cursor, &f->told) > 0) {
            put_sse_id(b, &f->cursor);
            f->told = f->cursor;
            said(f);
        }
    } else {
        if (!f->open) {
            open_record(f, b);
        }
        buf_put_cstr(b, "],");
        if (f->in_record > 0) {
            put_id(b, "last_event_id", &f->last_id);
            buf_put_char(b, ',');
        }
        put_id(b, "next_after", &f->cursor);
        buf_put_char(b, ',');
        put_id(b, "snapshot_through_event_id", through);
        buf_put_cstr(b, "}\n");
        f->told = f->cursor;
        said(f);
    }
    f->open = false;
    f->in_record = 0;
    f->record_bytes = 0;
}

static void begin_named(struct follower *f, struct buf *b, const char *name)
{
    ensure(!f->open);
    if (f->sse) {
        buf_put_cstr(b, "event: ");
        buf_put_cstr(b, name);
        buf_put_cstr(b, "\ndata: ");
    }
    buf_put_cstr(b, "{\"type\":\"");
    buf_put_cstr(b, name);
    buf_put_cstr(b, "\",");
}

static void end_named(struct follower *f, struct buf *b)
{
    buf_put_cstr(b, f->sse ? "}\n\n" : "}\n");
    said(f);
}

void follow_put_caught_up(struct follower *f, struct buf *b)
{
    ensure(!f->live);
    begin_named(f, b, "caught_up");
    put_id(b, "next_after", &f->cursor);
    buf_put_char(b, ',');
    put_id(b, "snapshot_through_event_id", &f->through.last_id);
    if (f->through.complete) { /* else the index is being made */
        buf_put_char(b, ',');
        history_put_snapshot(b, &f->through);
    }
    end_named(f, b);
    f->live = true;
}

void follow_put_end(struct follower *f, struct buf *b)
{
    begin_named(f, b, "end");
    buf_put_cstr(b, "\"reason\":\"");
    buf_put_cstr(b, f->reason);
    buf_put_cstr(b, "\",");
    put_id(b, "last_event_id", &f->last_id);
    if (strcmp(f->reason, "replay_failed") == 0) {
        buf_put_cstr(b, ",\"detail\":\"the history could not be read further\"");
    }
    end_named(f, b);
    f->ended = true;
}

void follow_put_comment(struct follower *f, struct buf *b)
{
    ensure(f->sse);
    buf_put_cstr(b, ":\n\n");
    said(f);
}
