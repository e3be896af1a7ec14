/* POST /api/v1/projects/{id}/query: SQL over the delivered events of one project.
 *
 * At most MANAGE_QUERIES_MAX are under way, each on a thread of its own, so that slow queries take
 * neither the loop's time nor the workers'; a few more wait behind them in order, and the rest is
 * 429. One project never has all of these places. A result is held whole (bounded by bytes_max)
 * before the first byte is sent, so that an error in the middle of it is a status and not half an
 * answer; it is then streamed from where it is.
 *
 * The thread comes back by http_post_job and is joined by the loop. manage_end joins what is left;
 * what those posted is then taken by http_free, when their clients have gone. Nothing here is
 * durable; everything is an answer. */
#include "door/manage/api_query.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "json/write.h"

static const struct {
    const char *name;
    const char *content_type;
} formats[] = {
#define X(sym, name, clickhouse, type) {name, type},
    MANAGE_QUERY_FORMATS(X)
#undef X
};

static void start(struct manage_query *q);

static void query_free(struct manage_query *q)
{
    buf_free(&q->sql);
    buf_free(&q->body);
    buf_free(&q->text);
    buf_free(&q->tail);
    free(q);
}

/* ---- answers ---- */

static int64_t read_pieces(void *ctx, char *p, size_t cap)
{
    struct manage_query *q = ctx;
    size_t n = 0;

    while (n < cap && q->piece_at < q->piece_count) {
        struct slice *s = &q->piece[q->piece_at];
        size_t take = s->len < cap - n ? s->len : cap - n;

        memcpy(p + n, s->ptr, take);
        *s = slice_from(*s, take);
        n += take;
        q->piece_at += s->len == 0 ? 1 : 0;
    }
    return (int64_t)n;
}

static void close_pieces(void *ctx)
{
    query_free(ctx);
}

/* The state of the engine behind a message, in brackets. */
static void add_engine_state(struct manage_query *q)
{
    struct manage *m = q->m;
    struct manage_engine st = {0};

    if (m->engine_status == NULL) {
        return;
    }
    m->engine_status(m->engine_ctx, &st);
    if (q->text.len != 0) {
        q->text.len--; /* its NUL */
    }
    buf_printf(&q->text, " (%s%s%s)", st.state, st.detail[0] != '\0' ? ": " : "", st.detail);
    buf_put_char(&q->text, '\0');
}

static void answer_failure(struct manage_query *q)
{
    struct buf extra = {0};

    if (q->code == ERR_ENGINE_UNAVAILABLE && !atomic_load(&q->m->cancel)) {
        add_engine_state(q);
    }
    if (q->clickhouse != 0) {
        buf_printf(&extra, "\"code\":%d", q->clickhouse);
    }
    if (err_status(q->code) < 500 || q->code == ERR_ENGINE_UNAVAILABLE) {
        bool lost = q->text.failed || q->text.len == 0 || extra.failed;

        http_answer_error(q->req, q->code, lost ? "the query failed" : q->text.ptr,
                          lost ? (struct slice){0} : buf_slice(&extra));
    } else {
        struct err e = {.code = q->code};

        (void)err_set(&e, q->code, "query: %.200s", q->text.len != 0 ? q->text.ptr : "");
        manage_answer_err(q->req, &e);
    }
    buf_free(&extra);
    query_free(q);
}

/* Header values are ASCII. */
static void add_delivery_header(struct manage_query *q)
{
    struct buf b = {0};

    manage_put_delivery(&b, &q->delivery);
    for (size_t i = 0; i < b.len; i++) {
        b.ptr[i] = (unsigned char)b.ptr[i] < 0x7f ? b.ptr[i] : '?';
    }
    if (!b.failed) {
        http_add_header(q->req, "Tallyman-Delivery", buf_slice(&b));
    }
    buf_free(&b);
}

static void answer(struct manage_query *q)
{
    static const struct http_source source = {.read = read_pieces, .close = close_pieces};

    if (q->code != 0) {
        answer_failure(q);
        return;
    }
    if (q->format != MANAGE_QUERY_JSON) {
        add_delivery_header(q);
    }
    http_answer_stream(q->req, 200, formats[q->format].content_type, &source, q);
}

/* ---- threads ---- */

static void take_out(struct manage_query **list, struct manage_query *q)
{
    while (*list != q) {
        ensure(*list != NULL);
        list = &(*list)->next;
    }
    *list = q->next;
    q->next = NULL;
}

static unsigned count_of(const struct manage_query *list, const char *project)
{
    unsigned n = 0;

    for (const struct manage_query *q = list; q != NULL; q = q->next) {
        n += strcmp(q->project, project) == 0 ? 1 : 0;
    }
    return n;
}

static bool may_start(const struct manage *m, const struct manage_query *q)
{
    return m->running_count < MANAGE_QUERIES_MAX &&
           count_of(m->running, q->project) < MANAGE_QUERIES_PROJECT_MAX;
}

/* In order, but for queries of a project that has its share under way. */
static void start_waiting(struct manage *m)
{
    struct manage_query *q = m->waiting;

    while (q != NULL) {
        struct manage_query *next = q->next;

        if (may_start(m, q)) {
            take_out(&m->waiting, q);
            m->waiting_count--;
            start(q);
        }
        q = next;
    }
}

static void finished(void *ctx)
{
    struct manage_query *q = ctx;
    struct manage *m = q->m;

    if (!q->joined) {
        int r = pthread_join(q->thread, NULL);

        ensure(r == 0);
        take_out(&m->running, q);
        m->running_count--;
    }
    answer(q);
    start_waiting(m);
}

static void *thread_main(void *ctx)
{
    struct manage_query *q = ctx;
    struct http_server *server = q->server;

    manage_query_run(q);
    q->back = (struct http_job){.done = finished, .ctx = q};
    http_post_job(server, &q->back);
    return NULL;
}

static void start(struct manage_query *q)
{
    struct manage *m = q->m;

    if (pthread_create(&q->thread, NULL, thread_main, q) != 0) {
        manage_overloaded(q->req, "no thread for the query");
        query_free(q);
        return;
    }
    q->next = m->running;
    m->running = q;
    m->running_count++;
}

static void enter(struct manage_query *q)
{
    struct manage *m = q->m;
    struct manage_query **end = &m->waiting;

    if (may_start(m, q)) { /* nobody who waits may: finished has seen to that */
        start(q);
        return;
    }
    if (m->waiting_count == MANAGE_QUERIES_WAIT_MAX ||
        count_of(m->waiting, q->project) == MANAGE_QUERIES_WAIT_PROJECT_MAX) {
        manage_overloaded(q->req, "too many queries are under way");
        query_free(q);
        return;
    }
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = q;
    m->waiting_count++;
}

void manage_stopping(struct manage *m)
{
    m->stopping = true;
    atomic_store(&m->cancel, true);
    while (m->waiting != NULL) {
        struct manage_query *q = m->waiting;

        take_out(&m->waiting, q);
        m->waiting_count--;
        manage_query_fail(q, ERR_ENGINE_UNAVAILABLE, "the server is stopping");
        answer(q);
    }
}

void manage_end(struct manage *m)
{
    manage_stopping(m);
    while (m->running != NULL) {
        struct manage_query *q = m->running;
        int r = pthread_join(q->thread, NULL);

        ensure(r == 0);
        take_out(&m->running, q);
        m->running_count--;
        q->joined = true;
    }
}

/* ---- the request ---- */

void manage_query_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    if (manage_may_project(ctx, req, SCOPE_QUERY_READ, &who)) {
        (void)manage_json_head(req);
    }
}

/* The members of the body; the query itself is copied. */
static int read_query(struct manage_query *q, struct err *e)
{
    struct manage_member members[] = {{.name = "sql", .type = JSON_STRING, .required = true},
                                      {.name = "format", .type = JSON_STRING}};
    int r = manage_read_body(q->req, members, 2, e);

    if (r != 0) {
        return r;
    }
    if (members[0].value.len == 0) {
        return err_set(e, ERR_INVALID_QUERY, "sql is empty");
    }
    q->format = members[1].given ? MANAGE_QUERY_FORMAT_COUNT : MANAGE_QUERY_JSON;
    for (unsigned i = 0; members[1].given && i < MANAGE_QUERY_FORMAT_COUNT; i++) {
        if (slice_eq(members[1].value, slice_cstr(formats[i].name))) {
            q->format = (enum manage_query_format)i;
        }
    }
    if (q->format == MANAGE_QUERY_FORMAT_COUNT) {
        return err_set(e, ERR_INVALID_REQUEST, "format must be json, ndjson or csv");
    }
    buf_put_slice(&q->sql, members[0].value);
    return q->sql.failed ? err_set(e, ERR_NO_MEMORY, "no memory for the query") : 0;
}

/* Why no query can be answered here; NULL when one can. */
static const char *nowhere(const struct manage *m)
{
    if (m->query.outside) {
        return "events are delivered to a ClickHouse of yours: queries go to that ClickHouse "
               "itself";
    }
    return m->query.engine_socket == NULL ? "there is no analytics engine here" : NULL;
}

void manage_query_request(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct err e = {0};
    struct manage_query *q;
    const char *why;

    if (!manage_may_project(m, req, SCOPE_QUERY_READ, &who)) {
        return;
    }
    q = calloc(1, sizeof *q);
    if (q == NULL) {
        manage_overloaded(req, "no memory for the query");
        return;
    }
    q->m = m;
    q->req = req;
    q->server = http_server_of(req);
    if (read_query(q, &e) != 0) {
        manage_answer_err(req, &e);
        query_free(q);
        return;
    }
    why = atomic_load(&m->cancel) ? "the server is stopping" : nowhere(m);
    if (why != NULL) {
        manage_query_fail(q, ERR_ENGINE_UNAVAILABLE, why);
        answer(q);
        return;
    }
    static_assert(sizeof q->project == sizeof who.project->name, "a name fits");
    memcpy(q->project, who.project->name, sizeof q->project);
    ensure(q->project[0] != '\0'); /* without one the engine would answer as to its owner */
    manage_delivery_begin(m, req, who.project->id, &q->delivery);
    enter(q);
}
