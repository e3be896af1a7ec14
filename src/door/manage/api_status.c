/* Status: of the instance from memory, but for the delivery of artifacts, which another process's
 * database tells on a worker; of a project's delivery from memory and, on a worker, from
 * the store.
 *
 * What a delivery object says is as old as the read behind it, and a query's is read before the
 * query is sent: when it says that nothing is pending, the query saw every event that had been
 * acknowledged by then. */
#include "door/manage/api.h"

#include "base/ensure.h"
#include "base/metrics.h"
#include "journal/seal.h"
#include "os/os.h"
#include "store/artifact/delivery.h"
#include "store/paused.h"
#include "json/write.h"

#define REPAIR                                                                             \
    "the destination refuses these events; they are kept and count as pending until they " \
    "are corrected or deleted"

/* ---- delivery of a project ---- */

/* What ails the destination as a whole names paths and URLs: that is for the administrator. */
void manage_delivery_begin(struct manage *m, const struct http_request *req, int64_t project,
                           struct manage_delivery *d)
{
    static const char fixed[] =
        "the destination does not take events at present; the instance's status says why";

    struct sink_status st = {0};

    *d = (struct manage_delivery){.project = project, .enabled = m->sink != NULL};
    if (m->sink == NULL) {
        static const char off[] = "delivery is off: there is no destination";

        static_assert(sizeof off <= sizeof d->error, "a text fits");
        memcpy(d->error, off, sizeof off);
        return;
    }
    sink_project_error(m->sink, project, d->error);
    sink_get_status(m->sink, &st);
    if (st.paused) {
        static const char paused[] = "deliveries are paused until tallyman sinks resume";

        static_assert(sizeof paused <= sizeof d->error, "a text fits");
        memcpy(d->error, paused, sizeof paused);
    } else if (d->error[0] == '\0') {
        static_assert(sizeof st.error <= sizeof d->error, "an error fits");
        static_assert(sizeof fixed <= sizeof d->error, "a text fits");
        if (http_on_unix_socket(req)) {
            memcpy(d->error, st.error, sizeof st.error);
        } else if (st.error[0] != '\0') {
            memcpy(d->error, fixed, sizeof fixed);
        }
    }
    d->error[sizeof d->error - 1] = '\0';
}

int manage_delivery_read(const char *data, struct manage_delivery *d, struct err *e)
{
    struct store_reader *reader = NULL;
    int r = store_reader_open(data, &reader, e);

    if (r == 0) {
        r = queue_project_status(reader, d->project, &d->status, e);
        store_reader_close(reader);
    }
    return r;
}

void manage_put_delivery(struct buf *b, const struct manage_delivery *d)
{
    const struct queue_project_status *st = &d->status;

    buf_put_char(b, '{');
    manage_put_flag(b, "enabled", d->enabled);
    manage_put_number(b, "pending", st->pending);
    manage_put_number(b, "pending_bytes", st->pending_bytes);
    manage_put_number(b, "quarantined", st->quarantined);
    manage_put_number(b, "pending_mutations", 0);
    manage_put_number(b, "rejected", st->rejected);
    if (st->oldest_pending_received_ms != 0) {
        manage_put_time(b, "oldest_pending_received_at", st->oldest_pending_received_ms);
    }
    if (st->last_success_ms != 0) {
        manage_put_time(b, "last_success", st->last_success_ms);
    }
    if (st->pending != 0 && d->error[0] != '\0') {
        manage_put_text(b, "error", slice_cstr(d->error));
    }
    if (st->quarantined != 0) {
        manage_put_text(b, "repair", SLICE(REPAIR));
    }
    buf_put_char(b, '}');
}

struct ask {
    struct manage *m;
    struct manage_delivery delivery;
    int code;
    struct err e;
};

static void ask_work(void *ctx)
{
    struct ask *a = ctx;

    a->code = manage_delivery_read(a->m->data, &a->delivery, &a->e);
}

static void ask_done(void *ctx, struct http_request *req)
{
    struct ask *a = ctx;
    const struct project *p;
    struct buf b = {0};

    if (a->code != 0) {
        manage_answer_err(req, &a->e);
        return;
    }
    p = control_project_by_id(store_control(a->m->store), a->delivery.project);
    ensure(p != NULL); /* projects stay */
    buf_put_char(&b, '{');
    manage_put_text(&b, "project", slice_cstr(p->name));
    json_put_name(&b, "delivery");
    manage_put_delivery(&b, &a->delivery);
    buf_put_char(&b, '}');
    manage_answer(req, 200, &b);
}

void manage_project_status_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    (void)manage_may_project(ctx, req, SCOPE_EVENTS_READ | SCOPE_QUERY_READ, &who);
}

void manage_project_status(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct ask *a;

    if (!manage_may_project(m, req, SCOPE_EVENTS_READ | SCOPE_QUERY_READ, &who)) {
        return;
    }
    a = arena_calloc(http_arena(req), 1, sizeof *a);
    if (a == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    a->m = m;
    manage_delivery_begin(m, req, who.project->id, &a->delivery);
    if (!http_work(req, ask_work, ask_done, a)) {
        manage_overloaded(req, "too much work is waiting");
    }
}

/* ---- the instance ---- */

/* On the disk, of lines and segments. Behind damage there may be segments whose lines are not
 * counted any more. */
static uint64_t stored_bytes(const struct journal_status *st)
{
    uint64_t plain = st->bytes > st->sealed_bytes ? st->bytes - st->sealed_bytes : 0;

    return plain + st->stored_bytes;
}

/* One digit. */
static void put_bytes_per_event(struct buf *b, const struct journal_status *st)
{
    uint64_t stored = stored_bytes(st);
    uint64_t tenths = st->frontier.events > 0 ? stored * 10 / st->frontier.events : 0;

    json_put_name(b, "stored_bytes_per_event");
    buf_printf(b, "%llu.%llu", (unsigned long long)(tenths / 10),
               (unsigned long long)(tenths % 10));
}

static void put_seal_failure(struct buf *b, struct journal *j)
{
    struct journal_seal_status st;

    journal_get_seal_status(j, &st);
    manage_put_flag(b, "sealing", st.active);
    manage_put_flag(b, "sealing_stopped", st.stopped);
    manage_put_text(b, "seal_failure", slice_cstr(st.code != 0 ? st.cause : ""));
}

static void put_journal(struct buf *b, struct journal *j)
{
    struct journal_status st;
    char hex[SHA256_HEX_LEN];
    char id[UUID_TEXT_LEN];

    journal_get_status(j, &st);
    hex_encode(hex, st.frontier.head, SHA256_LEN);
    uuid_text(id, &st.frontier.last_id);
    json_put_name(b, "frontier");
    buf_put_char(b, '{');
    json_put_name(b, "event_id");
    if (st.frontier.empty) {
        buf_put_cstr(b, "null");
    } else {
        json_put_string(b, slice_of(id, sizeof id));
    }
    if (st.frontier.complete) {
        manage_put_number(b, "events", st.frontier.events);
        manage_put_text(b, "chain_head", slice_of(hex, sizeof hex));
    }
    buf_put_char(b, '}');
    json_put_name(b, "journal");
    buf_put_char(b, '{');
    manage_put_number(b, "bytes", st.bytes);
    manage_put_number(b, "generations", st.generations);
    manage_put_number(b, "segments", st.segments);
    manage_put_number(b, "sealed_bytes", st.sealed_bytes);
    manage_put_number(b, "segment_bytes", st.stored_bytes);
    manage_put_number(b, "stored_bytes", stored_bytes(&st));
    put_bytes_per_event(b, &st);
    put_seal_failure(b, j);
    manage_put_flag(b, "poisoned", st.poisoned);
    manage_put_flag(b, "damaged", st.damaged);
    manage_put_flag(b, "no_space", st.no_space);
    manage_put_text(b, "cause", slice_cstr(st.cause));
    manage_put_flag(b, "indexing", st.indexing);
    manage_put_flag(b, "index_full", st.index_full);
    manage_put_number(b, "generations_indexed", st.indexed);
    manage_put_number(b, "generations_to_index", st.index_total);
    manage_put_number(b, "clock_ahead_ms", st.clock_ahead_ms);
    manage_put_number(b, "syncs", metric_get(METRIC_JOURNAL_SYNCS));
    manage_put_number(b, "batches", metric_get(METRIC_JOURNAL_BATCHES));
    manage_put_number(b, "duplicates", metric_get(METRIC_JOURNAL_DUPLICATES));
    manage_put_number(b, "conflicts", metric_get(METRIC_JOURNAL_CONFLICTS));
    buf_put_char(b, '}');
}

static void put_queue(struct buf *b, const struct store *s)
{
    struct store_status st;

    store_get_status(s, &st);
    json_put_name(b, "queue");
    buf_put_char(b, '{');
    manage_put_number(b, "pending", st.pending_events);
    manage_put_number(b, "pending_bytes", st.pending_bytes);
    manage_put_number(b, "quarantined", st.quarantined);
    manage_put_number(b, "rejected", st.rejected);
    manage_put_number(b, "receipts", st.receipts);
    manage_put_number(b, "wal_bytes", st.wal_bytes);
    manage_put_flag(b, "poisoned", st.poisoned);
    manage_put_flag(b, "no_space", st.no_space);
    manage_put_text(b, "cause", slice_cstr(st.cause));
    buf_put_char(b, '}');
}

static void put_sink(struct buf *b, const struct manage *m)
{
    struct sink_status st = {0};

    json_put_name(b, "sink");
    if (m->sink == NULL) {
        buf_put_cstr(b, "null");
        return;
    }
    sink_get_status(m->sink, &st);
    buf_put_char(b, '{');
    manage_put_text(b, "name", slice_cstr(m->sink_name));
    manage_put_flag(b, "connected", st.connected);
    manage_put_number(b, "delivered", st.delivered);
    manage_put_number(b, "batches", st.batches);
    manage_put_number(b, "failures", st.failures);
    manage_put_number(b, "retry_in_ms", st.retry_in_ms);
    manage_put_text(b, "error", slice_cstr(st.error));
    buf_put_char(b, '}');
}

/* From the file, which the delivering process reads too. */
static void put_sinks(struct buf *b, const struct manage *m)
{
    struct paused p = {0};

    if (m->data != NULL) {
        paused_read(m->data, &p);
    }
    json_put_name(b, "sinks");
    paused_put_json(b, &p);
}

static void put_engine(struct buf *b, const struct manage *m)
{
    struct manage_engine st = {.state = "off"};

    if (m->engine_status != NULL) {
        m->engine_status(m->engine_ctx, &st);
    }
    json_put_name(b, "engine");
    buf_put_char(b, '{');
    manage_put_text(b, "state", slice_cstr(st.state));
    manage_put_number(b, "restarts", st.restarts);
    manage_put_text(b, "detail", slice_cstr(st.detail));
    buf_put_char(b, '}');
}

#define ACTIVITY_BYTES 65536u

struct instance {
    struct manage *m;
    bool read; /* the counts are there; else e says why not */
    struct delivery_counts counts;
    struct buf totals; /* likewise, on the heap; failed: see totals_e */
    int totals_code;
    struct err totals_e;
    struct buf activity; /* '{' and the members; in the arena, so it has a limit */
    struct err e;
};

static void put_delivery_counts(struct buf *b, const struct instance *i)
{
    json_put_name(b, "delivery");
    buf_put_char(b, '{');
    if (!i->read) {
        manage_put_text(b, "error", slice_cstr(i->e.text));
        buf_put_char(b, '}');
        return;
    }
    manage_put_number(b, "artifacts", i->counts.artifacts);
    for (int s = 0; s < DELIVERY_STATE_COUNT; s++) {
        manage_put_number(b, delivery_state_name((enum delivery_state)s), i->counts.by_state[s]);
    }
    manage_put_number(b, "late", i->counts.late);
    manage_put_text(b, "error", slice_cstr(i->counts.error));
    if (i->activity.failed) {
        manage_put_text(b, "activity_error", SLICE("too much is running to be told here"));
    } else {
        buf_put_char(b, ',');
        buf_put(b, i->activity.ptr + 1, i->activity.len - 1);
    }
    if (i->totals_code != 0 || i->totals.failed) {
        manage_put_text(b, "totals_error",
                        i->totals_code != 0 ? slice_cstr(i->totals_e.text) : SLICE("no memory"));
    } else if (i->totals.len > 1) {
        buf_put_char(b, ',');
        buf_put(b, i->totals.ptr + 1, i->totals.len - 1);
    }
    buf_put_char(b, '}');
}

static void put_artifacts(struct buf *b, const struct instance *i)
{
    struct manage_artifacts st = {0};

    i->m->artifact_status(i->m->artifact_ctx, &st);
    json_put_name(b, "artifacts");
    buf_put_char(b, '{');
    manage_put_number(b, "writers", st.writers);
    if (st.scanned) {
        manage_put_number(b, "partial_uploads", st.partial_uploads);
        manage_put_number(b, "partial_bytes", st.partial_bytes);
    } else {
        buf_put_cstr(b, ",\"partial_uploads\":null,\"partial_bytes\":null");
    }
    if (st.scanned && i->m->artifact_partials != NULL) {
        i->m->artifact_partials(i->m->artifact_ctx, b);
    }
    manage_put_time(b, "scanned_at", st.scanned ? st.scanned_ms : 0);
    manage_put_number(b, "reserved_bytes", st.reserved_bytes);
    manage_put_flag(b, "low_space", st.low_space);
    json_put_name(b, "deliver");
    buf_put_char(b, '{');
    manage_put_text(b, "state", slice_cstr(st.deliver_state));
    manage_put_number(b, "restarts", st.deliver_restarts);
    manage_put_text(b, "detail", slice_cstr(st.deliver_detail));
    buf_put_char(b, '}');
    put_delivery_counts(b, i);
    buf_put_char(b, '}');
}

static void put_sandbox(struct buf *b, const struct sandbox_state *st)
{
    json_put_name(b, "sandbox");
    buf_put_char(b, '{');
    manage_put_flag(b, "wanted", st->wanted);
    manage_put_number(b, "landlock", (uint64_t)st->landlock);
    manage_put_flag(b, "seccomp", st->seccomp);
    manage_put_text(b, "detail", slice_cstr(st->detail));
    buf_put_char(b, '}');
}

void manage_status_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    (void)manage_may_instance(ctx, req, SCOPE_PROJECTS_ADMIN, &who);
}

static void status_done(void *ctx, struct http_request *req)
{
    struct instance *i = ctx;
    struct manage *m = i->m;
    struct buf b = {0};

    buf_put_char(&b, '{');
    manage_put_text(&b, "version", slice_cstr(m->version));
    manage_put_text(&b, "revision", slice_cstr(m->revision));
    manage_put_number(&b, "uptime_ms", (os_clock_mono_ns() - m->started_ns) / 1000000);
    put_journal(&b, m->journal);
    if (m->store != NULL) {
        put_queue(&b, m->store);
    } else if (m->store_cause != NULL) {
        json_put_name(&b, "queue");
        buf_put_char(&b, '{');
        manage_put_flag(&b, "no_space", true);
        manage_put_text(&b, "cause", slice_cstr(m->store_cause));
        buf_put_char(&b, '}');
    }
    put_sink(&b, m);
    put_engine(&b, m);
    put_sinks(&b, m);
    if (m->artifact_status != NULL) {
        put_artifacts(&b, i);
    }
    if (m->sandbox != NULL) {
        put_sandbox(&b, m->sandbox);
    }
    json_put_name(&b, "http");
    buf_put_char(&b, '{');
    manage_put_number(&b, "connections", metric_get(METRIC_HTTP_CONNECTIONS));
    manage_put_number(&b, "requests", metric_get(METRIC_HTTP_REQUESTS));
    manage_put_number(&b, "overloaded", metric_get(METRIC_HTTP_OVERLOADED));
    buf_put_cstr(&b, "}}");
    manage_answer(req, 200, &b);
    buf_free(&i->totals);
}

static void status_work(void *ctx)
{
    struct instance *i = ctx;

    buf_put_char(&i->activity, '{');
    i->read = delivery_counts_read(i->m->data, &i->counts, &i->e) == 0 &&
              delivery_activity_put(i->m->data, &i->activity, &i->e) == 0;
    if (i->read) {
        buf_put_char(&i->totals, '{');
        i->totals_code = delivery_totals_put(i->m->data, &i->totals, &i->totals_e);
    }
}

/* Under load the rest of it is told all the same: it is asked for then. */
void manage_status(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct instance *i = arena_calloc(http_arena(req), 1, sizeof *i);

    if (i != NULL) {
        i->activity = (struct buf){.ptr = arena_alloc(http_arena(req), ACTIVITY_BYTES),
                                   .cap = ACTIVITY_BYTES,
                                   .limit = ACTIVITY_BYTES};
    }
    if (i == NULL || i->activity.ptr == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    i->m = m;
    if (m->artifact_status == NULL) {
        status_done(i, req);
    } else if (!http_work(req, status_work, status_done, i)) {
        (void)err_set(&i->e, ERR_OVERLOADED, "not read: too much work is waiting");
        status_done(i, req);
    }
}
