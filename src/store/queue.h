/* queue: accepted events on their way to the sinks (spec/capture-delivery.md sections 2, 3, 7).
 *
 * Tables: events (payload and computed fields), receipts ((project, uuid) -> event id, for ever),
 * delivery_ready (kept by triggers: what may be sent; quarantined events are not in it),
 * delivery_quarantine, project_counters, rejected, delivery_cursor. Event ids rise and are never
 * used again.
 *
 * Identity is (project, uuid), resolved in the transaction that stores the event: a repeat gets the
 * original id and changes nothing, whatever its bytes. */
#ifndef STORE_QUEUE_H
#define STORE_QUEUE_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "store/store.h"

/* An event as the door hands it over. Texts are UTF-8 but for `text` and `envelope`, which are kept
 * byte for byte. Nothing is copied before queue_put returns. */
struct queue_event {
    int64_t project; /* row id of control.h */
    struct uuid uuid;
    int64_t received_ms;  /* Unix time of receipt */
    int64_t timestamp_us; /* computed event time, Unix microseconds, 1900 to 2299 */
    bool has_timestamp_sent, has_sent_at;
    int64_t timestamp_sent_us; /* as the client said, when it could be read */
    int64_t sent_at_ms;
    struct slice time_note; /* "" or why timestamp is not what was sent */
    struct slice type;      /* capture, track, identify, page, screen, group, alias, native */
    struct slice event;
    struct slice distinct_id, anonymous_id, session_id;
    struct slice source, message_id;
    struct slice library, library_version;
    struct slice envelope; /* "" or a JSON object with the batch's own context and integrations */
    struct slice text;     /* the event's JSON exactly as it came */
};

struct queue_receipt {
    int64_t event_id;
    bool repeat; /* was known: event_id is the first one's */
};

/* Inside a job's run. 0 with *out; ERR_QUEUE_FULL (budget of the instance or the project, by count
 * or bytes; e->text says which); ERR_NO_SPACE, ERR_IO, ERR_NO_MEMORY. A repeat is found before the
 * budget is looked at. */
int queue_put(struct store *s, const struct queue_event *ev, struct queue_receipt *out,
              struct err *e) MUST_CHECK;

/* A bad event of a batch that was otherwise taken. Kept (with its text) up to
 * QUEUE_REJECTED_MAX entries and QUEUE_REJECTED_BYTES_MAX a project, past that only counted. */
#define QUEUE_REJECTED_MAX       10000
#define QUEUE_REJECTED_BYTES_MAX (64u << 20)
struct queue_rejected {
    int64_t project;
    int64_t received_ms;
    uint32_t index;      /* position in its batch */
    struct slice door;   /* "posthog", "segment" */
    struct slice reason; /* for people */
    struct slice text;
};
int queue_put_rejected(struct store *s, const struct queue_rejected *r, struct err *e) MUST_CHECK;

/* ---- what the sink thread reads ---- */
struct queue_row {
    int64_t id;
    struct queue_event ev; /* slices live in the rows' arena */
    struct slice project;  /* its name, as in control.h */
};
struct queue_cursor {
    int64_t project; /* where the next selection begins */
    int64_t after_id;
};
struct queue_selection {
    struct queue_cursor from;
    uint32_t events_max;
    uint64_t bytes_soft; /* one larger event may pass */
    const int64_t *skip; /* projects that are left out now, ascending */
    size_t skip_count;
    int64_t only; /* only this project; 0: all */
    /* Projects, ascending, of which only ids behind these are wanted: their rows up to there are on
     * their way already. */
    const struct queue_cursor *behind;
    size_t behind_count;
};
struct queue_rows {
    struct arena arena; /* zeroed: init by queue_select, freed by queue_rows_free */
    struct queue_row *row;
    size_t count;
    uint64_t bytes;
    struct queue_cursor next; /* where to go on after these */
    /* Project 0, or the first project for which there was no room, or not in this month: where to
     * go on when these are delivered, so that everybody's turn comes. */
    struct queue_cursor left_out;
};
/* Rows of one receipt month, ready to be sent: projects in turn, each by id, beginning after
 * sel->from and wrapping around once. count 0: nothing is ready. Reads at most a second. */
int queue_select(struct store_reader *r, const struct queue_selection *sel, struct queue_rows *out,
                 struct err *e) MUST_CHECK;
void queue_rows_free(struct queue_rows *rows);

/* ---- inside a job's run ---- */
/* The far side has these events: payloads go, counters fall, the project's last success is now;
 * receipts stay. Ids that are not (or no longer) queued are passed over. One transaction's worth:
 * call with at most QUEUE_SLICE ids. */
#define QUEUE_SLICE 1000
int queue_delivered(struct store *s, const int64_t *ids, size_t n, int64_t now_ms,
                    struct err *e) MUST_CHECK;
int queue_set_cursor(struct store *s, const struct queue_cursor *c, struct err *e) MUST_CHECK;
int queue_get_cursor(struct store_reader *r, struct queue_cursor *out, struct err *e) MUST_CHECK;

/* A slice (at most 5 ms) of moving recent receipts into the large table in key order. *more: there
 * is more to do. */
int queue_merge_receipts(struct store *s, bool *more, struct err *e) MUST_CHECK;

/* ---- what status and the lists show (any reader) ---- */
struct queue_project_status {
    uint64_t pending, pending_bytes, quarantined, rejected, rejected_kept;
    int64_t oldest_pending_received_ms; /* 0: none pending */
    int64_t last_success_ms;            /* 0: never */
};
int queue_project_status(struct store_reader *r, int64_t project, struct queue_project_status *out,
                         struct err *e) MUST_CHECK;

struct queue_rejected_row {
    int64_t id;
    struct queue_rejected r;
};
/* Calls fn for at most limit entries with id > after, in order; a non-zero result of fn stops. */
int queue_list_rejected(struct store_reader *r, int64_t project, int64_t after, uint32_t limit,
                        int (*fn)(void *ctx, const struct queue_rejected_row *row), void *ctx,
                        struct err *e) MUST_CHECK;

#endif
