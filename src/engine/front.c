/* front: requests to queries, results to answers.
 *
 *   head   who asks (TCP: the owner's password), which parameters and headers
 *   body   handed to a worker, of which projects hold some only: decompressed, run, result kept
 *   loop   the answer: small ones at once, others piece by piece out of the result
 *
 * Everything of a request is one `struct exchange` in its arena; the result is the library's memory
 * and is freed when the answer has left or was dropped. Answers only: errors in ClickHouse's form.
 * Threads: `work` on a worker, everything else on the loop. */
#include "engine/front.h"

#include <stdio.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "engine/code.h"
#include "engine/engine_protocol.h"
#include "engine/inflate.h"
#include "engine/run.h"
#include "os/os.h"

#define DECODED_BYTES_MAX ((size_t)256 << 20)
#define AT_ONCE_BYTES     ((size_t)64 << 10)
#define SECRET_BYTES_MAX  256u

struct exchange {
    STAILQ_ENTRY(exchange) link;  /* while waiting */
    LIST_ENTRY(exchange) running; /* a project's, while it runs */
    uint64_t started_ms;          /* monotonic */
    struct http_request *req;
    struct front *front;
    struct query query;
    struct run_result result;
    struct buf decoded;
    bool gzip;
    size_t sent; /* of result.answer.data */
};

static const char text_type[] = "text/plain; charset=UTF-8";

/* ---- answers ---- */

static void answer_error(struct http_request *req, const struct query_error *e)
{
    struct slice text = slice_cstr(e->text);
    struct buf body = {0};
    char code[16];
    int n = snprintf(code, sizeof code, "%u", e->code);

    ensure(e->code != 0);
    if (slice_starts(text, SLICE("Code: "))) {
        buf_put_slice(&body, text);
    } else {
        buf_printf(&body, "Code: %s. DB::Exception: %s. (%s) (version %s)", code, e->text,
                   code_name(e->code), library_version());
    }
    if (body.len == 0 || body.ptr[body.len - 1] != '\n') {
        buf_put_char(&body, '\n');
    }
    http_add_header(req, "X-ClickHouse-Exception-Code", slice_of(code, (size_t)n));
    http_answer(req, code_status(e->code), text_type, buf_slice(&body));
    buf_free(&body);
}

/* query_id is echoed, or made. */
static void add_query_id(struct http_request *req, struct slice given)
{
    unsigned char id[16];
    char hex[32];

    if (given.len == 0 && os_random(id, sizeof id) == 0) {
        hex_encode(hex, id, sizeof id);
        given = slice_of(hex, sizeof hex);
    }
    http_add_header(req, "X-ClickHouse-Query-Id", given);
    http_add_header(req, "X-ClickHouse-Server-Display-Name", SLICE("tallyman-engine"));
    http_add_header(req, "X-ClickHouse-Timezone", SLICE("UTC"));
}

static void add_summary(struct http_request *req, const struct library_answer *a)
{
    char text[400];
    int n = snprintf(text, sizeof text,
                     "{\"read_rows\":\"%llu\",\"read_bytes\":\"%llu\",\"written_rows\":\"%llu\","
                     "\"written_bytes\":\"%llu\",\"total_rows_to_read\":\"0\","
                     "\"result_rows\":\"%llu\",\"result_bytes\":\"%zu\",\"elapsed_ns\":\"%llu\"}",
                     (unsigned long long)a->rows_read, (unsigned long long)a->bytes_read,
                     (unsigned long long)a->rows_written, (unsigned long long)a->bytes_written,
                     (unsigned long long)a->rows, a->data.len, (unsigned long long)a->elapsed_ns);

    http_add_header(req, "X-ClickHouse-Summary", slice_of(text, (size_t)n));
}

static void exchange_free(struct exchange *x)
{
    run_result_free(&x->result);
    buf_free(&x->decoded);
}

static int64_t piece_read(void *ctx, char *p, size_t cap)
{
    struct exchange *x = ctx;
    struct slice rest = slice_from(x->result.answer.data, x->sent);
    size_t n = rest.len < cap ? rest.len : cap;

    memcpy(p, rest.ptr, n);
    x->sent += n;
    return (int64_t)n;
}

static void piece_close(void *ctx)
{
    exchange_free(ctx);
}

static void start_waiting(struct front *f);

static void done(void *ctx, struct http_request *req)
{
    static const struct http_source pieces = {.read = piece_read, .close = piece_close};
    struct exchange *x = ctx;
    const struct library_answer *a = &x->result.answer;

    if (x->query.project.len != 0) {
        ensure(x->front->projects_running > 0);
        x->front->projects_running--;
        LIST_REMOVE(x, running);
        start_waiting(x->front);
    }
    add_query_id(req, x->query.id);
    if (x->result.error.code != 0) {
        answer_error(req, &x->result.error);
        exchange_free(x);
        return;
    }
    add_summary(req, a);
    http_add_header(req, "X-ClickHouse-Format", x->result.format);
    if (a->data.len > AT_ONCE_BYTES) {
        http_answer_stream(req, 200, code_media_type(x->result.format), &pieces, x);
        return;
    }
    http_answer(req, 200, code_media_type(x->result.format), a->data);
    exchange_free(x);
}

/* ---- the worker ---- */

static void work(void *ctx)
{
    struct exchange *x = ctx;
    int r = 0;

    if (x->gzip) {
        r = inflate_gzip(x->query.body, DECODED_BYTES_MAX, &x->decoded);
        x->query.body = buf_slice(&x->decoded);
    }
    if (r != 0) {
        query_fail(&x->result.error,
                   r == ERR_INVALID_ENCODING ? CODE_INCORRECT_DATA : CODE_MEMORY_LIMIT,
                   r == ERR_INVALID_ENCODING ? "the body is not gzip, or not all of it"
                                             : "the body is too large once decompressed");
        return;
    }
    run_query(&x->query, &x->result);
}

/* ---- the owner on TCP ---- */

static bool base64_decode(struct slice in, char *out, size_t cap, size_t *len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned bits = 0;
    uint32_t held = 0;

    *len = 0;
    while (in.len != 0 && in.ptr[in.len - 1] == '=') {
        in.len--;
    }
    for (size_t i = 0; i < in.len; i++) {
        const char *at = memchr(digits, in.ptr[i], sizeof digits - 1);

        if (at == NULL) {
            return false;
        }
        held = (held << 6 | (uint32_t)(at - digits)) & 0xffffff;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            if (*len == cap) {
                return false;
            }
            out[(*len)++] = (char)(held >> bits & 0xff);
        }
    }
    return true;
}

/* User and password of the request; false when there are none. */
static bool credentials(const struct http_request *req, char plain[SECRET_BYTES_MAX],
                        struct slice *user, struct slice *key)
{
    struct slice value = {0};
    const char *colon;
    size_t len;

    if (http_header(req, "x-clickhouse-key", key, NULL)) {
        return http_header(req, "x-clickhouse-user", user, NULL);
    }
    if (!http_header(req, "authorization", &value, NULL) || value.len < 6 ||
        (!slice_starts(value, SLICE("Basic ")) && !slice_starts(value, SLICE("basic ")))) {
        return false;
    }
    if (!base64_decode(slice_from(value, 6), plain, SECRET_BYTES_MAX, &len)) {
        return false;
    }
    colon = len != 0 ? memchr(plain, ':', len) : NULL;
    if (colon == NULL) {
        return false;
    }
    *user = slice_of(plain, (size_t)(colon - plain));
    *key = slice_from(slice_of(plain, len), user->len + 1);
    return true;
}

static bool may_ask(const struct front *f, struct http_request *req)
{
    char plain[SECRET_BYTES_MAX];
    struct query_error e = {0};
    struct slice user = {0};
    struct slice key = {0};

    if (http_on_unix_socket(req)) {
        return true;
    }
    if (!credentials(req, plain, &user, &key)) {
        query_fail(&e, CODE_REQUIRED_PASSWORD, "a user and a password are needed here");
        http_add_header(req, "WWW-Authenticate", SLICE("Basic realm=\"tallyman-engine\""));
    } else if (f->secret.len == 0 || !slice_eq(user, SLICE(ENGINE_USER)) ||
               !equal_constant_time(key, f->secret)) {
        query_fail(&e, CODE_AUTHENTICATION_FAILED,
                   "Authentication failed: the password is wrong, or there is no such user");
    }
    if (e.code != 0) {
        answer_error(req, &e);
    }
    return e.code == 0;
}

/* ---- requests ---- */

static bool take_encoding(struct http_request *req, struct exchange *x, struct query_error *e)
{
    struct slice encoding = {0};

    if (!http_header(req, "content-encoding", &encoding, NULL) || encoding.len == 0 ||
        slice_eq(encoding, SLICE("identity"))) {
        return true;
    }
    x->gzip = slice_eq(encoding, SLICE("gzip"));
    if (!x->gzip) {
        query_fail(e, CODE_NOT_IMPLEMENTED, "of the encodings of a body only gzip is taken");
    }
    return x->gzip;
}

/* Headers say what parameters can say too; parameters win. */
static bool take_headers(struct http_request *req, struct exchange *x, struct query_error *e)
{
    struct query_limits limits = {0};
    struct slice value = {0};
    unsigned count = 0;

    if (x->query.database.len == 0 && http_header(req, "x-clickhouse-database", &value, NULL)) {
        x->query.database = value;
    }
    if (x->query.format.len == 0 && http_header(req, "x-clickhouse-format", &value, NULL)) {
        x->query.format = value;
    }
    if (!take_encoding(req, x, e)) {
        return false;
    }
    if (!http_header(req, ENGINE_PROJECT_HEADER, &value, &count)) {
        return true;
    }
    if (count != 1) {
        query_fail(e, CODE_BAD_ARGUMENTS, "the project is named more than once");
        return false;
    }
    (void)http_header(req, ENGINE_TIME_HEADER, &limits.time_ms, NULL);
    (void)http_header(req, ENGINE_ROWS_HEADER, &limits.rows_max, NULL);
    (void)http_header(req, ENGINE_BYTES_HEADER, &limits.bytes_max, NULL);
    if (!query_take_project(&x->query, value, &limits, e)) {
        return false;
    }
    if (!x->front->engine->open) {
        query_fail(e, CODE_SUPPORT_IS_DISABLED, "queries of projects are closed: %s",
                   x->front->engine->closed_reason);
        return false;
    }
    return true;
}

static void on_head(void *ctx, struct http_request *req)
{
    struct front *f = ctx;
    struct exchange *x;
    struct query_error e = {0};

    if (!may_ask(f, req)) {
        return;
    }
    x = arena_calloc(http_arena(req), 1, sizeof *x);
    if (x == NULL) {
        http_answer_error(req, ERR_NO_MEMORY, "no memory for the request", (struct slice){0});
        return;
    }
    x->front = f;
    x->query.reading = http_method(req) != HTTP_POST;
    x->query.sync_dir = f->engine->table_dir;
    if (!query_take_url(&x->query, http_query(req), http_arena(req), &e) ||
        !take_headers(req, x, &e)) {
        add_query_id(req, (struct slice){0});
        answer_error(req, &e);
        return;
    }
    http_set_user(req, x);
}

static void answer_busy(struct http_request *req)
{
    struct query_error e = {0};

    query_fail(&e, CODE_CANNOT_SCHEDULE_TASK, "too many queries are waiting");
    http_add_header(req, "Retry-After", SLICE("1"));
    answer_error(req, &e);
}

static void start(struct exchange *x)
{
    if (!http_work(x->req, work, done, x)) {
        answer_busy(x->req);
    } else if (x->query.project.len != 0) {
        x->started_ms = os_clock_mono_ns() / 1000000;
        LIST_INSERT_HEAD(&x->front->running, x, running);
        x->front->projects_running++;
    }
}

static bool may_start(const struct front *f, const struct exchange *x)
{
    const struct exchange *other;
    unsigned own = 0;

    LIST_FOREACH(other, &f->running, running)
    {
        own += slice_eq(other->query.project, x->query.project) ? 1 : 0;
    }
    return f->projects_running < FRONT_PROJECTS_MAX && own < FRONT_PROJECT_MAX;
}

/* The first that may start; NULL: none. */
static struct exchange *next_waiting(const struct front *f)
{
    struct exchange *x;

    STAILQ_FOREACH(x, &f->waiting, link)
    {
        if (may_start(f, x)) {
            break;
        }
    }
    return x;
}

/* Gives the workers what waits, as far as projects may. */
static void start_waiting(struct front *f)
{
    struct exchange *x = next_waiting(f);

    while (x != NULL) {
        ensure(f->projects_waiting > 0);
        STAILQ_REMOVE(&f->waiting, x, exchange, link);
        f->projects_waiting--;
        start(x);
        x = next_waiting(f);
    }
}

bool front_stuck(const struct front *f, uint64_t now_ms)
{
    const struct exchange *x;

    LIST_FOREACH(x, &f->running, running)
    {
        if (now_ms - x->started_ms > x->query.time_ms + FRONT_STUCK_MS) {
            return true;
        }
    }
    return false;
}

static void on_request(void *ctx, struct http_request *req)
{
    struct exchange *x = http_user(req);
    struct front *f = ctx;

    ensure(x != NULL);
    x->req = req;
    x->query.body = http_body(req);
    if (x->query.reading && x->query.sql.len == 0) {
        http_answer(req, 200, text_type, SLICE("Ok.\n"));
    } else if (x->query.project.len == 0 || may_start(f, x)) {
        start(x);
    } else if (f->projects_waiting < FRONT_WAITING_MAX) {
        STAILQ_INSERT_TAIL(&f->waiting, x, link);
        f->projects_waiting++;
    } else {
        answer_busy(req);
    }
}

static void on_ping(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer(req, 200, text_type, SLICE("Ok.\n"));
}

static void put_json(struct buf *out, const char *text)
{
    buf_put_char(out, '"');
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            buf_put_char(out, '\\');
        }
        buf_put_char(out, (unsigned char)*p < 0x20 ? ' ' : *p);
    }
    buf_put_char(out, '"');
}

static void on_status(void *ctx, struct http_request *req)
{
    struct front *f = ctx;
    struct buf body = {0};

    buf_put_cstr(&body, "{\"state\":\"ready\",\"version\":");
    put_json(&body, library_version());
    buf_put_cstr(&body, ",\"queries\":");
    put_json(&body, f->engine->open ? "open" : "closed");
    buf_put_cstr(&body, ",\"reason\":");
    put_json(&body, f->engine->closed_reason);
    buf_put_char(&body, '}');
    http_answer(req, 200, "application/json", buf_slice(&body));
    buf_free(&body);
}

void front_routes(struct front *f, struct http_route *routes)
{
    STAILQ_INIT(&f->waiting);
    LIST_INIT(&f->running);
    routes[0] = (struct http_route){.path = "/",
                                    .methods = HTTP_GET | HTTP_POST,
                                    .auth = HTTP_AUTH_OPEN, /* may_ask decides */
                                    .shape = HTTP_SHAPE_TEXT,
                                    .body_max_bytes = FRONT_BODY_BYTES_MAX,
                                    .on_head = on_head,
                                    .on_request = on_request,
                                    .ctx = f};
    routes[1] = (struct http_route){.path = "/ping",
                                    .methods = HTTP_GET,
                                    .auth = HTTP_AUTH_OPEN,
                                    .shape = HTTP_SHAPE_TEXT,
                                    .on_request = on_ping,
                                    .ctx = f};
    routes[2] = (struct http_route){.path = "/status",
                                    .methods = HTTP_GET,
                                    .auth = HTTP_AUTH_LOCAL,
                                    .shape = HTTP_SHAPE_TEXT,
                                    .on_request = on_status,
                                    .ctx = f};
}
