/* A query at the engine, on a thread of its own: what is asked, and what the answer means.
 *
 * The engine speaks ClickHouse's HTTP interface on its Unix socket; its project header makes it an
 * isolated query of that project, and nothing else is trusted to (engine/engine_protocol.h). Limits
 * are asked of the engine and held here again: time by the client's deadline, bytes while they
 * come, rows by counting.
 *
 * A result counts only when the status is 200, no exception is announced in the head or at the end
 * of the body, the body is whole, and it has the format that was asked for (clickhouse.md C8). */
#include <stdio.h>

#include "base/ensure.h"
#include "door/manage/api_query.h"
#include "engine/engine_protocol.h"
#include "net/net.h"
#include "os/os.h"
#include "json/tolerant.h"
#include "json/write.h"

#define GRACE_MS        1000u /* in which the engine ends a query by itself */
#define ERROR_BYTES_MAX (64u << 10)
#define MESSAGE_MAX     2000u
#define MARKER          "__exception__"
#define MARKER_WITHIN   (64u << 10)

static const char *const clickhouse_formats[] = {
#define X(sym, name, clickhouse, type) clickhouse,
    MANAGE_QUERY_FORMATS(X)
#undef X
};

void manage_query_fail(struct manage_query *q, int code, const char *text)
{
    q->code = code;
    buf_clear(&q->text);
    buf_put_cstr(&q->text, text);
    buf_put_char(&q->text, '\0');
}

/* ---- errors of ClickHouse ---- */

/* Codes of ClickHouse that say a limit was met: rows or time to read, memory, size of a result. */
static bool is_limit(int number)
{
    static const int limits[] = {158, 159, 160, 241, 307, 394, 396};

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (limits[i] == number) {
            return true;
        }
    }
    return false;
}

/* N of "Code: N. DB::Exception: ..."; 0 without one. */
static int number_in(struct slice text)
{
    int n = 0;
    struct slice s;

    if (!slice_starts(text, SLICE("Code: "))) {
        return 0;
    }
    s = slice_from(text, 6);
    for (size_t i = 0; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9' && n < 100000; i++) {
        n = n * 10 + (s.ptr[i] - '0');
    }
    return n;
}

/* The text without its end of line and without the version behind it, valid UTF-8, no NUL. */
static void put_message(struct buf *out, struct slice text)
{
    const char *version = text.len == 0 ? NULL : memmem(text.ptr, text.len, " (version ", 10);

    if (version != NULL) {
        text.len = (size_t)(version - text.ptr);
    }
    text.len = text.len < MESSAGE_MAX ? text.len : MESSAGE_MAX;
    while (text.len != 0 && (unsigned char)text.ptr[text.len - 1] <= ' ') {
        text.len--;
    }
    bool plain = utf8_valid(text, NULL);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        buf_put_char(out, c == 0 || (c >= 0x80 && !plain) ? '?' : (char)c);
    }
    buf_put_char(out, '\0');
}

void manage_query_refused(struct manage_query *q, unsigned status, int number, struct slice text)
{
    number = number != 0 ? number : number_in(text);
    q->clickhouse = number;
    if (is_limit(number)) {
        q->code = ERR_QUERY_LIMIT;
    } else if (number != 0 && status != 503 && status != 502) {
        q->code = ERR_INVALID_QUERY;
    } else {
        q->code = status >= 400 && status < 500 ? ERR_INVALID_QUERY : ERR_ENGINE_UNAVAILABLE;
    }
    buf_clear(&q->text);
    put_message(&q->text, text.len != 0 ? text : SLICE("the engine refused without a word"));
}

/* ---- results ---- */

/* Takes white space outside of strings out, in place. */
static void compact(struct buf *b)
{
    size_t n = 0;
    bool in_string = false;

    for (size_t i = 0; i < b->len; i++) {
        char c = b->ptr[i];

        if (in_string && c == '\\' && i + 1 < b->len) {
            b->ptr[n++] = c;
            i++;
            c = b->ptr[i];
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
            continue;
        }
        b->ptr[n++] = c;
    }
    b->len = n;
}

/* Lines outside of quotes: CSV doubles a quote inside a quoted value, which toggles twice. */
static uint64_t count_rows(const struct manage_query *q)
{
    uint64_t rows = 0;
    bool quoted = false;

    for (size_t i = 0; i < q->body.len; i++) {
        char c = q->body.ptr[i];

        quoted = q->format == MANAGE_QUERY_CSV && c == '"' ? !quoted : quoted;
        rows += c == '\n' && !quoted ? 1 : 0;
    }
    return rows - (q->format == MANAGE_QUERY_CSV && rows != 0 ? 1 : 0); /* the names */
}

/* Strings of ClickHouse may be any bytes; answers are UTF-8. */
static void mend_utf8(struct manage_query *q)
{
    struct buf mended = {0};
    struct slice s = buf_slice(&q->body);
    size_t bad = 0;

    if (s.len == 0 || utf8_valid(s, &bad)) {
        return;
    }
    while (!utf8_valid(s, &bad)) {
        buf_put(&mended, s.ptr, bad);
        buf_put_slice(&mended, SLICE("\xef\xbf\xbd"));
        s = slice_from(s, bad + 1);
    }
    buf_put_slice(&mended, s);
    buf_free(&q->body);
    q->body = mended;
}

static void add_piece(struct manage_query *q, struct slice s)
{
    ensure(q->piece_count < MANAGE_QUERY_PIECES);
    if (s.len != 0) {
        q->piece[q->piece_count] = s;
        q->piece_count++;
    }
}

static void wrong_format(struct manage_query *q)
{
    manage_query_fail(
        q, ERR_INVALID_QUERY,
        "the result is not in the format that was asked for: leave FORMAT, SETTINGS and "
        "INTO OUTFILE out of the query");
}

static void too_many_rows(struct manage_query *q)
{
    char text[120];

    (void)snprintf(text, sizeof text, "the result has more than %llu rows: add a LIMIT",
                   (unsigned long long)q->m->query.rows_max);
    manage_query_fail(q, ERR_QUERY_LIMIT, text);
}

static void shape_json(struct manage_query *q)
{
    struct slice value = {0};
    struct slice meta;
    struct slice data;
    struct slice rows;
    uint64_t count = 0;
    struct err e = {0};

    if (json_tolerant_check(buf_slice(&q->body), &value, &e) != 0 ||
        json_type_of(value) != JSON_OBJECT) {
        wrong_format(q);
        return;
    }
    compact(&q->body);
    value = buf_slice(&q->body);
    if (!json_member(value, SLICE("meta"), &meta) || !json_member(value, SLICE("data"), &data) ||
        !json_member(value, SLICE("rows"), &rows) || !json_u64(rows, &count)) {
        wrong_format(q);
        return;
    }
    if (count > q->m->query.rows_max) {
        too_many_rows(q);
        return;
    }
    buf_put_cstr(&q->tail, ",\"delivery\":");
    manage_put_delivery(&q->tail, &q->delivery);
    buf_put_char(&q->tail, '}');
    add_piece(q, SLICE("{\"meta\":"));
    add_piece(q, meta);
    add_piece(q, SLICE(",\"data\":"));
    add_piece(q, data);
    add_piece(q, SLICE(",\"rows\":"));
    add_piece(q, rows);
    add_piece(q, buf_slice(&q->tail));
}

void manage_query_shape(struct manage_query *q)
{
    mend_utf8(q);
    if (q->body.failed) {
        manage_query_fail(q, ERR_NO_MEMORY, "no memory for the answer");
    } else if (q->format == MANAGE_QUERY_JSON) {
        shape_json(q);
    } else if (count_rows(q) > q->m->query.rows_max) {
        too_many_rows(q);
    } else {
        add_piece(q, buf_slice(&q->body));
    }
    if (q->code == 0 && q->tail.failed) {
        manage_query_fail(q, ERR_NO_MEMORY, "no memory for the answer");
    }
}

/* An exception behind the first rows: CR LF marker CR LF tag CR LF text ... (clickhouse.md C8). */
static bool late_exception(const struct manage_query *q, struct slice *text)
{
    size_t from = q->body.len > MARKER_WITHIN ? q->body.len - MARKER_WITHIN : 0;
    struct slice end = slice_from(buf_slice(&q->body), from);
    const char *at =
        end.len == 0 ? NULL : memmem(end.ptr, end.len, "\r\n" MARKER "\r\n", sizeof MARKER + 3);

    if (at == NULL) {
        return false;
    }
    *text = slice_from(end, (size_t)(at - end.ptr) + sizeof MARKER + 3);
    at = memmem(text->ptr, text->len, "Code: ", 6);
    *text = at == NULL ? *text : slice_from(*text, (size_t)(at - text->ptr));
    at = text->len == 0 ? NULL : memchr(text->ptr, '\n', text->len);
    text->len = at == NULL ? text->len : (size_t)(at - text->ptr);
    return true;
}

/* A whole answer of any status. */
static void judge(struct manage_query *q, const struct net_answer *a)
{
    struct slice number = {0};
    struct slice format = {0};
    struct slice text = {0};
    uint64_t n = 0;

    (void)(net_header(a, "x-clickhouse-exception-code", &number) && manage_number(number, &n));
    if (a->status != 200 || n != 0) {
        text = a->status == 200 ? buf_slice(&q->body) : buf_slice(&a->body);
        manage_query_refused(q, a->status, n < 100000 ? (int)n : 0, text);
    } else if (net_header(a, "x-clickhouse-exception-tag", &number) && late_exception(q, &text)) {
        manage_query_refused(q, 500, 0, text);
    } else if (net_header(a, "x-clickhouse-format", &format) &&
               !slice_eq(format, slice_cstr(clickhouse_formats[q->format]))) {
        wrong_format(q);
    } else {
        manage_query_shape(q);
    }
}

/* ---- asking ---- */

static bool take_bytes(void *ctx, struct slice bytes)
{
    struct manage_query *q = ctx;

    if (bytes.len > q->m->query.bytes_max - q->body.len) {
        q->too_long = true;
        return false;
    }
    buf_put_slice(&q->body, bytes);
    return !q->body.failed;
}

/* Decimal text of a limit, for a header. */
struct limit_text {
    char text[24];
};

static struct slice limit_text(struct limit_text *t, uint64_t v)
{
    int n = snprintf(t->text, sizeof t->text, "%llu", (unsigned long long)v);

    ensure(n > 0 && (size_t)n < sizeof t->text);
    return slice_of(t->text, (size_t)n);
}

/* No whole answer came. */
static void judge_loss(struct manage_query *q, int r, uint64_t ms, const struct err *e)
{
    char text[160];

    if (q->too_long) {
        (void)snprintf(text, sizeof text,
                       "the result is larger than %llu bytes: ask for fewer columns or rows",
                       (unsigned long long)q->m->query.bytes_max);
        manage_query_fail(q, ERR_QUERY_LIMIT, text);
    } else if (atomic_load(&q->m->cancel)) {
        manage_query_fail(q, ERR_ENGINE_UNAVAILABLE, "the server is stopping");
    } else if (r == ERR_NO_MEMORY || q->body.failed) {
        manage_query_fail(q, ERR_NO_MEMORY, "no memory for the result");
    } else if (r == ERR_IO && ms >= q->m->query.time_ms) {
        (void)snprintf(text, sizeof text, "the query took longer than %llu ms",
                       (unsigned long long)q->m->query.time_ms);
        manage_query_fail(q, ERR_QUERY_LIMIT, text);
    } else {
        (void)e; /* names the socket's path: not for the client */
        manage_query_fail(q, ERR_ENGINE_UNAVAILABLE,
                          r == ERR_CONNECT ? "the analytics engine does not answer"
                                           : "the analytics engine broke off");
    }
}

static void ask(struct manage_query *q, struct net *net)
{
    const struct manage_query_options *limits = &q->m->query;
    struct limit_text text[3];
    const struct net_header headers[] = {
        {ENGINE_PROJECT_HEADER, slice_cstr(q->project)},
        {ENGINE_TIME_HEADER, limit_text(&text[0], limits->time_ms)},
        {ENGINE_ROWS_HEADER, limit_text(&text[1], limits->rows_max)},
        {ENGINE_BYTES_HEADER, limit_text(&text[2], limits->bytes_max)},
        {"Content-Type", SLICE("text/plain; charset=utf-8")}};
    struct net_answer answer = {0};
    struct buf settings = {0};
    struct err e = {0};
    uint64_t start_ns = os_clock_mono_ns();

    net_put_query(&settings, "default_format", slice_cstr(clickhouse_formats[q->format]));
    buf_put_char(&settings, '\0');
    struct net_request req = {.query = settings.ptr,
                              .post = true,
                              .body = buf_slice(&q->sql),
                              .headers = headers,
                              .header_count = sizeof headers / sizeof *headers,
                              .total_ms = (unsigned)limits->time_ms + GRACE_MS,
                              .answer_bytes_max = ERROR_BYTES_MAX,
                              .sink = take_bytes,
                              .sink_ctx = q,
                              .cancel = &q->m->cancel};
    int r = settings.failed ? ERR_NO_MEMORY : net_do(net, &req, &answer, &e);
    if (r == 0) {
        judge(q, &answer);
    } else {
        judge_loss(q, r, (os_clock_mono_ns() - start_ns) / 1000000, &e);
    }
    net_answer_free(&answer);
    buf_free(&settings);
}

void manage_query_run(struct manage_query *q)
{
    const struct net_target target = {.url = "http://engine",
                                      .unix_socket = q->m->query.engine_socket};
    struct net *net = NULL;
    struct err e = {0};
    int r = manage_delivery_read(q->m->data, &q->delivery, &e);

    if (r == 0) {
        r = net_open(&net, &target, &e);
    }
    if (r != 0) {
        manage_query_fail(q, r, e.text);
        return;
    }
    ask(q, net);
    net_close(net);
}
