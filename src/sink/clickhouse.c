/* clickhouse: the adapter for ClickHouse's HTTP interface (spec/clickhouse.md C1 to C5).
 *
 * An insert is one POST: the statement with an explicit list of columns and all settings in the
 * URL, the rows in the body, credentials in headers. The settings (INSERT_SETTINGS) pin what a
 * profile of the server's could turn: asynchronous inserts, unknown or missing fields, skipped
 * rows, the parsing of times, and parallel parsing, which would cut a batch into several blocks.
 *
 * There is no insert_deduplication_token. A batch is one block with the same bytes at every try, so
 * where a table deduplicates (Replicated ones do), its own hash of the block already tells a
 * repeat; a token would only add the danger that two batches share one, and the second is dropped
 * as a success. What correctness rests on is the key of the ReplacingMergeTree.
 *
 * Power failure: nothing is kept here. Every failure is a verdict; nothing aborts but bugs. */
#include "sink/clickhouse.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "base/events_schema.h"
#include "sink/clickhouse_internal.h"

#define CONNECT_MS 5000
#define SEND_MS    110000
#define ASK_MS     15000

/* X(name, value) */
#define INSERT_SETTINGS(X)                     \
    X("async_insert", "0")                     \
    X("wait_for_async_insert", "1")            \
    X("wait_end_of_query", "1")                \
    X("input_format_skip_unknown_fields", "0") \
    X("input_format_allow_errors_num", "0")    \
    X("input_format_allow_errors_ratio", "0")  \
    X("input_format_null_as_default", "0")     \
    X("input_format_parallel_parsing", "0")    \
    X("date_time_input_format", "basic")

/* The columns that clickhouse_encode writes, in its order: all but original and corrected_at, which
 * belong to corrections and keep their empty defaults at revision 0. */
#define INSERT_COLUMNS                                                                 \
    "project,uuid,revision,is_deleted,event_id,received_at,timestamp,timestamp_sent,"  \
    "sent_at,time_note,type,event,distinct_id,anonymous_id,session_id,source,message_" \
    "id,library,library_version,properties,context,raw"

static void make_insert(struct buf *out)
{
    net_put_query(out, "query",
                  SLICE("INSERT INTO " EVENTS_DATABASE "." EVENTS_TABLE " (" INSERT_COLUMNS
                        ") FORMAT JSONEachRow"));
#define X(name, value) net_put_query(out, name, SLICE(value));
    INSERT_SETTINGS(X)
#undef X
    buf_put_char(out, '\0');
}

int clickhouse_new(const struct clickhouse_options *options, struct clickhouse **out, struct err *e)
{
    struct clickhouse *c = calloc(1, sizeof *c);
    struct net_target target = {.url = options->url, .unix_socket = options->unix_socket};
    if (c == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a sink");
    }
    c->embedded = options->embedded;
    c->user = strdup(options->user);
    buf_put_slice(&c->password, options->password);
    make_insert(&c->insert);
    int r = net_open(&c->net, &target, e);
    if (r == 0 && (c->user == NULL || c->password.failed || c->insert.failed)) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for a sink");
    }
    if (r != 0) {
        clickhouse_free(c);
        return r;
    }
    *out = c;
    return 0;
}

void clickhouse_free(struct clickhouse *c)
{
    if (c == NULL) {
        return;
    }
    net_close(c->net);
    free(c->user);
    if (c->password.ptr != NULL) {
        explicit_bzero(c->password.ptr, c->password.cap);
    }
    buf_free(&c->password);
    buf_free(&c->insert);
    free(c);
}

int clickhouse_post(struct clickhouse *c, const char *query, struct slice body,
                    const atomic_bool *cancel, struct net_answer *a, struct err *e)
{
    struct net_header headers[2];
    struct net_request req = {.query = query,
                              .post = true,
                              .body = body,
                              .headers = headers,
                              .connect_ms = CONNECT_MS,
                              .total_ms = body.len == 0 ? ASK_MS : SEND_MS,
                              .cancel = cancel};
    if (c->user[0] != '\0') {
        headers[req.header_count].name = "X-ClickHouse-User";
        headers[req.header_count].value = slice_cstr(c->user);
        req.header_count++;
    }
    if (c->password.len != 0) {
        headers[req.header_count].name = "X-ClickHouse-Key";
        headers[req.header_count].value = buf_slice(&c->password);
        req.header_count++;
    }
    return net_do(c->net, &req, a, e);
}

static int encode(void *ctx, const struct queue_rows *rows, size_t first, size_t count,
                  struct buf *out, struct err *e)
{
    (void)ctx;
    ensure(first <= rows->count);
    ensure(count <= rows->count - first);
    return clickhouse_encode_rows(rows->row + first, count, out, e);
}

/* The engine makes its tables itself: that it answers is all there is to see. */
static void ping(struct clickhouse *c, const atomic_bool *cancel, struct sink_result *r)
{
    struct net_answer a;
    struct err e = {0};
    int outcome = clickhouse_post(c, "query=SELECT%201", (struct slice){0}, cancel, &a, &e);
    clickhouse_judge(outcome, &a, &e, 0, r);
    if (outcome == 0 && a.status == 200 && a.complete && clickhouse_code(&a) == 0) {
        *r = (struct sink_result){.verdict = SINK_DELIVERED};
    }
    net_answer_free(&a);
}

static void prepare(void *ctx, const atomic_bool *cancel, struct sink_result *result)
{
    struct clickhouse *c = ctx;
    if (c->embedded) {
        ping(c, cancel, result);
    } else {
        clickhouse_check_table(c, cancel, result);
    }
}

static void send_rows(void *ctx, struct slice body, size_t count, const atomic_bool *cancel,
                      struct sink_result *result)
{
    struct clickhouse *c = ctx;
    struct net_answer a;
    struct err e = {0};
    ensure(count != 0);
    ensure(body.len != 0);
    int outcome = clickhouse_post(c, c->insert.ptr, body, cancel, &a, &e);
    clickhouse_judge(outcome, &a, &e, count, result);
    net_answer_free(&a);
}

const struct sink_adapter clickhouse_adapter = {
    .name = "clickhouse", .encode = encode, .prepare = prepare, .send = send_rows};
