/* The ClickHouse adapter against a far side that misbehaves: what counts as delivered, what every
 * other answer means, what is sent, and what the table must be. */
#include "base/events_schema.h"
#include "sink/clickhouse.h"
#include "tests/unit/net/peer_kit.h"

enum { INSERT, DATABASE, TABLE, CHECK, VIEW_DATABASE, VIEW, SELECT, OTHER };

struct far {
    struct peer peer;
    struct clickhouse *c;
    /* what inserts get */
    unsigned status;
    const char *head, *body;
    bool raw; /* head is the whole answer, then the connection is cut */
    bool hang;
    size_t cut;
    /* what prepare gets */
    const char *table; /* the row of system.tables, or "" */
    const char *denied;
    unsigned seen[OTHER + 1];
    char insert_head[4096];
    char last_body[256];
};

static int kind_of(const char *head)
{
    static const struct {
        const char *text;
        int kind;
    } kinds[] = {{"query=INSERT%20INTO", INSERT},
                 {"query=CREATE%20DATABASE%20IF%20NOT%20EXISTS%20tallyman", DATABASE},
                 {"query=CREATE%20TABLE%20IF%20NOT%20EXISTS%20tallyman.events_v2", TABLE},
                 {"query=SELECT%20engine", CHECK},
                 {"query=CREATE%20DATABASE%20IF%20NOT%20EXISTS%20q", VIEW_DATABASE},
                 {"query=CREATE%20VIEW%20IF%20NOT%20EXISTS%20q.events", VIEW},
                 {"query=SELECT%201", SELECT}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strstr(head, kinds[i].text) != NULL) {
            return kinds[i].kind;
        }
    }
    return OTHER;
}

static bool answer_insert(struct far *f, int fd)
{
    if (f->hang) {
        peer_hang(&f->peer, fd);
        return false;
    }
    if (f->raw) {
        peer_write(fd, f->head);
        return false;
    }
    peer_answer(fd, f->status, f->head, f->body);
    return true;
}

static bool answer(void *ctx, const struct peer_request *req, int fd)
{
    struct far *f = ctx;
    int kind = kind_of(req->head.ptr);
    f->seen[kind]++;
    if (kind == INSERT || kind == SELECT) {
        (void)snprintf(f->insert_head, sizeof f->insert_head, "%s", req->head.ptr);
        (void)snprintf(f->last_body, sizeof f->last_body, "%.*s", (int)req->body.len,
                       req->body.len == 0 ? "" : req->body.ptr);
        return answer_insert(f, fd);
    }
    if (f->denied != NULL && kind != CHECK) {
        peer_answer(fd, 403, f->denied, "Code: 497. DB::Exception: not enough privileges");
    } else if (kind == CHECK) {
        peer_answer(fd, 200, "", f->table);
    } else {
        peer_answer(fd, 200, "", "");
    }
    return true;
}

static size_t cut_at(void *ctx, unsigned index, size_t body_len)
{
    struct far *f = ctx;
    (void)index;
    return body_len == 0 ? SIZE_MAX : f->cut;
}

#define COLUMNS                                                                        \
    "[\"project\",\"uuid\",\"revision\",\"is_deleted\",\"event_id\",\"received_at\","  \
    "\"timestamp\",\"timestamp_sent\",\"sent_at\",\"time_note\",\"type\",\"event\","   \
    "\"distinct_id\",\"anonymous_id\",\"session_id\",\"source\",\"message_id\","       \
    "\"library\",\"library_version\",\"properties\",\"context\",\"raw\",\"original\"," \
    "\"corrected_at\"]"
#define FULL                                                                             \
    "ReplacingMergeTree(revision, is_deleted) PARTITION BY toYYYYMM(received_at) ORDER " \
    "BY (project, uuid) SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, "     \
    "min_rows_to_fsync_after_merge = 1, min_compressed_bytes_to_fsync_after_merge = 1, " \
    "old_parts_lifetime = 480, index_granularity = 8192"
#define ROW(engine, full, key, columns)                                              \
    "{\"engine\":\"" engine "\",\"engine_full\":\"" full "\",\"sorting_key\":\"" key \
    "\",\"columns\":" columns "}\n"

static void open_adapter(struct far *f, bool embedded)
{
    struct clickhouse_options options = {
        .url = f->peer.url, .user = "tally", .password = SLICE("s3cret!"), .embedded = embedded};
    struct err e = {0};
    assert_int_equal(clickhouse_new(&options, &f->c, &e), 0);
}

static int setup(void **state)
{
    struct far *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->peer = (struct peer){.answer = answer, .cut_at = cut_at, .ctx = f};
    f->cut = SIZE_MAX;
    f->status = 200;
    f->head = "";
    f->body = "";
    f->table = ROW("ReplacingMergeTree", FULL, "project, uuid", COLUMNS);
    peer_start(&f->peer);
    open_adapter(f, false);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct far *f = *state;
    clickhouse_free(f->c);
    peer_stop(&f->peer);
    free(f);
    return 0;
}

static void peer_sync_if_up(struct far *f)
{
    if (!atomic_load(&f->peer.stop)) {
        peer_sync(&f->peer);
    }
}

static struct sink_result send_rows(struct far *f, size_t count)
{
    static const char rows[] = "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n";
    struct sink_result r = {.verdict = SINK_UNKNOWN};
    peer_sync_if_up(f);
    clickhouse_adapter.send(f->c, slice_of(rows, count * 8), count, NULL, &r);
    peer_sync_if_up(f);
    return r;
}

static struct sink_result judge(struct far *f, unsigned status, const char *head, const char *body)
{
    f->status = status;
    f->head = head;
    f->body = body;
    return send_rows(f, 3);
}

static void test_delivered(void **state)
{
    struct far *f = *state;
    static const char *const heads[] = {
        "",
        "X-ClickHouse-Summary: {\"read_rows\":\"3\",\"written_rows\":\"3\",\"written_bytes\":\"9\"}"
        "\r\n",
        /* rows of materialized views count too */
        "X-ClickHouse-Summary: {\"written_rows\":\"6\"}\r\n",
        "X-ClickHouse-Summary: {\"written_rows\":3}\r\n", "X-ClickHouse-Summary: {}\r\n",
        "X-ClickHouse-Summary: nonsense\r\n"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct sink_result r = judge(f, 200, heads[i], "");
        assert_int_equal(r.verdict, SINK_DELIVERED);
        assert_string_equal(r.text, "");
    }
    f->raw = true;
    f->head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n";
    assert_int_equal(send_rows(f, 3).verdict, SINK_DELIVERED);
}

static void test_the_request(void **state)
{
    struct far *f = *state;
    static const char *const settings[] = {"&async_insert=0",
                                           "&wait_for_async_insert=1",
                                           "&wait_end_of_query=1",
                                           "&input_format_skip_unknown_fields=0",
                                           "&input_format_allow_errors_num=0",
                                           "&input_format_allow_errors_ratio=0",
                                           "&input_format_null_as_default=0",
                                           "&input_format_parallel_parsing=0",
                                           "&date_time_input_format=basic"};
    assert_int_equal(judge(f, 200, "", "").verdict, SINK_DELIVERED);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        assert_non_null(strstr(f->insert_head, settings[i]));
    }
    assert_non_null(strstr(f->insert_head, "POST /?query=INSERT%20INTO%20tallyman.events_v2%20%28"
                                           "project%2Cuuid%2Crevision%2C"));
    assert_non_null(strstr(f->insert_head, "%2Craw%29%20FORMAT%20JSONEachRow&"));
    assert_non_null(strstr(f->insert_head, "\r\nX-ClickHouse-User: tally\r\n"));
    assert_non_null(strstr(f->insert_head, "\r\nX-ClickHouse-Key: s3cret!\r\n"));
    assert_non_null(strstr(f->insert_head, "\r\nContent-Length: 24\r\n"));
    char *line = strndup(f->insert_head, strcspn(f->insert_head, "\r"));
    assert_null(strstr(line, "s3cret")); /* never in the URL */
    assert_null(strstr(line, "tally&"));
    assert_null(strstr(line, "dedup"));
    free(line);
    assert_string_equal(f->last_body, "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n");
}

/* C26: the insert names every column that the encoder writes, and no other. */
static void test_c26_columns_match_the_encoder(void **state)
{
    struct far *f = *state;
    struct buf line = {0};
    struct err e = {0};
    struct queue_row row = {.id = 1, .project = SLICE("p")};
    char name[64];
    assert_int_equal(judge(f, 200, "", "").verdict, SINK_DELIVERED);
    assert_int_equal(clickhouse_encode_row(&row, &line, &e), 0);
    buf_put_char(&line, '\0');
    const char *at = strstr(f->insert_head, "%28") + 3;
    unsigned columns = 0;
    while (strncmp(at, "%20FORMAT", 9) != 0) {
        size_t n = strcspn(at, "%");
        (void)snprintf(name, sizeof name, "\"%.*s\":", (int)n, at);
        assert_non_null(strstr(line.ptr, name));
        columns++;
        at += n + 3;
    }
    assert_int_equal(columns, 22);
    buf_free(&line);
}

/* Nothing of this is a delivery, though the status says 200. */
static void test_not_delivered(void **state)
{
    struct far *f = *state;
    struct sink_result r = judge(f, 200, "X-ClickHouse-Exception-Code: 252\r\n", "");
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    assert_int_equal(r.code, 252);
    r = judge(f, 200, "X-ClickHouse-Exception-Code: 469\r\n", "Code: 469. DB::Exception");
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    r = judge(f, 200, "X-ClickHouse-Exception-Code: 0\r\n", "");
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    r = judge(f, 200, "X-ClickHouse-Exception-Code: odd\r\n", "");
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    r = judge(f, 200, "", "Code: 241. DB::Exception: Memory limit exceeded");
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    assert_int_equal(r.code, 241);
    r = judge(f, 200, "", "\n");
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    r = judge(f, 200, "X-ClickHouse-Summary: {\"written_rows\":\"2\"}\r\n", "");
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    assert_non_null(strstr(r.text, "2 of 3"));
    r = judge(f, 204, "", "");
    assert_int_equal(r.verdict, SINK_RETRY);
    f->raw = true;
    static const char *const cut[] = {
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Len",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 400 Bad\r\n",
        "HTTP/1.1 500 X\r\nX-ClickHouse-Exception-Code: 469\r\nContent-Length: 90\r\n\r\nCode: 469",
        "nonsense\r\n\r\n",
        ""};
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
        f->head = cut[i];
        r = send_rows(f, 3);
        assert_int_equal(r.verdict, SINK_UNKNOWN);
        assert_true(r.text[0] != '\0');
    }
}

static void test_codes(void **state)
{
    static const struct {
        unsigned status;
        int code;
        enum sink_verdict verdict;
        bool prepare, smaller, slow;
    } cases[] = {{400, 321, SINK_REJECTED, false, false, false},
                 {500, 321, SINK_REJECTED, false, false, false},
                 {500, 469, SINK_REJECTED, false, false, false},
                 {400, 469, SINK_REJECTED, false, false, false},
                 {400, 25, SINK_REJECTED, false, false, false},
                 {400, 26, SINK_REJECTED, false, false, false},
                 {400, 27, SINK_REJECTED, false, false, false},
                 {500, 33, SINK_REJECTED, false, false, false},
                 {400, 117, SINK_REJECTED, false, false, false},
                 {400, 376, SINK_REJECTED, false, false, false},
                 /* the same codes through a proxy are never classified */
                 {503, 469, SINK_UNKNOWN, false, false, false},
                 {429, 469, SINK_RETRY, false, false, false},
                 {502, 321, SINK_UNKNOWN, false, false, false},
                 {404, 60, SINK_RETRY, true, false, false}, /* C17 */
                 {404, 81, SINK_RETRY, true, false, false},
                 {400, 16, SINK_RETRY, true, false, false},
                 {500, 252, SINK_RETRY, false, false, true}, /* C25 */
                 {500, 241, SINK_RETRY, false, true, false}, /* C55 */
                 {500, 202, SINK_RETRY, false, false, false},
                 {408, 159, SINK_UNKNOWN, false, false, false},
                 {503, 209, SINK_UNKNOWN, false, false, false},
                 {500, 210, SINK_UNKNOWN, false, false, false},
                 {503, 439, SINK_RETRY, false, false, false},
                 {500, 319, SINK_UNKNOWN, false, false, false},
                 {500, 243, SINK_RETRY, false, false, true},
                 {500, 242, SINK_RETRY, false, false, false},
                 {403, 516, SINK_RETRY, true, false, false},
                 {403, 497, SINK_RETRY, true, false, false},
                 {401, 194, SINK_RETRY, true, false, false},
                 {400, 53, SINK_RETRY, false, false, false},
                 {500, 99999, SINK_UNKNOWN, false, false, false},
                 {429, 0, SINK_RETRY, false, false, true},
                 {502, 0, SINK_UNKNOWN, false, false, false},
                 {503, 0, SINK_UNKNOWN, false, false, false},
                 {504, 0, SINK_UNKNOWN, false, false, false},
                 {413, 0, SINK_RETRY, false, true, false},
                 {401, 0, SINK_RETRY, true, false, false},
                 {403, 0, SINK_RETRY, true, false, false},
                 {404, 0, SINK_RETRY, true, false, false},
                 {302, 0, SINK_RETRY, false, false, false},
                 {500, 0, SINK_UNKNOWN, false, false, false},
                 {400, 0, SINK_RETRY, false, false, false}};
    struct far *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char head[80] = "";
        char body[80] = "";
        if (cases[i].code != 0) {
            (void)snprintf(body, sizeof body, "Code: %d. DB::Exception: value 'v4lue' is bad",
                           cases[i].code);
        }
        for (int in_header = 0; in_header < 2; in_header++) { /* in the text only, and in both */
            if (in_header != 0 && cases[i].code != 0) {
                (void)snprintf(head, sizeof head, "X-ClickHouse-Exception-Code: %d\r\n",
                               cases[i].code);
            }
            struct sink_result r = judge(f, cases[i].status, head, body);
            if (r.verdict != cases[i].verdict || r.prepare != cases[i].prepare ||
                r.smaller != cases[i].smaller || (r.retry_ms != 0) != cases[i].slow) {
                fail_msg("status %u code %d: verdict %d prepare %d smaller %d retry %llu: %s",
                         cases[i].status, cases[i].code, r.verdict, r.prepare, r.smaller,
                         (unsigned long long)r.retry_ms, r.text);
            }
            assert_int_equal(r.code, cases[i].code);
            assert_null(strstr(r.text, "v4lue")); /* the far side's text holds values of rows */
            assert_null(strstr(r.text, "s3cret"));
            assert_true(r.text[0] != '\0');
        }
    }
}

static void test_lost(void **state)
{
    struct far *f = *state;
    f->cut = 12; /* half of the body */
    struct sink_result r = send_rows(f, 3);
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    f->cut = 24; /* the whole body, then no answer */
    r = send_rows(f, 3);
    assert_int_equal(r.verdict, SINK_UNKNOWN);
    assert_false(r.prepare);
    f->cut = SIZE_MAX;
    assert_int_equal(send_rows(f, 3).verdict, SINK_DELIVERED);
    peer_stop(&f->peer);
    /* A kept connection that ended is tried again on a new one: nothing was sent. */
    r = send_rows(f, 3);
    assert_int_equal(r.verdict, SINK_RETRY);
    assert_true(r.prepare);
    assert_non_null(strstr(r.text, "cannot connect"));
    peer_start(&f->peer);
    assert_int_equal(send_rows(f, 3).verdict, SINK_DELIVERED);
}

static void *cancel_soon(void *arg)
{
    usleep(150000);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

static void test_cancelled(void **state)
{
    struct far *f = *state;
    atomic_bool cancel = false;
    pthread_t thread;
    struct sink_result r = {.verdict = SINK_DELIVERED};
    f->hang = true;
    peer_sync(&f->peer);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
    clickhouse_adapter.send(f->c, SLICE("{}\n"), 1, &cancel, &r);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(r.verdict, SINK_UNKNOWN);
}

static struct sink_result prepare(struct far *f)
{
    struct sink_result r = {.verdict = SINK_UNKNOWN};
    peer_sync_if_up(f);
    clickhouse_adapter.prepare(f->c, NULL, &r);
    peer_sync_if_up(f);
    return r;
}

static void test_prepare(void **state)
{
    struct far *f = *state;
    struct sink_result r = prepare(f);
    assert_int_equal(r.verdict, SINK_DELIVERED);
    assert_string_equal(r.text, "");
    for (int kind = DATABASE; kind <= VIEW; kind++) {
        assert_int_equal(f->seen[kind], 1);
    }
    assert_int_equal(f->seen[OTHER], 0);
    assert_int_equal(f->seen[INSERT], 0);
}

static void test_prepare_of_the_engine(void **state)
{
    struct far *f = *state;
    clickhouse_free(f->c);
    open_adapter(f, true);
    f->body = "1\n";
    struct sink_result r = prepare(f);
    assert_int_equal(r.verdict, SINK_DELIVERED);
    assert_int_equal(f->seen[SELECT], 1);
    assert_int_equal(f->seen[DATABASE] + f->seen[TABLE] + f->seen[CHECK], 0);
    f->status = 500;
    f->head = "X-ClickHouse-Exception-Code: 202\r\n";
    assert_int_equal(prepare(f).verdict, SINK_RETRY);
}

/* C49: a table in which different events would be merged into one is refused. */
static void test_c49_sorting_key(void **state)
{
    static const char *const bad[] = {
        ROW("ReplacingMergeTree", FULL, "project", COLUMNS),
        ROW("ReplacingMergeTree", FULL, "project, event_uuid", COLUMNS),
        ROW("ReplacingMergeTree", FULL, "uuid", COLUMNS),
        ROW("ReplacingMergeTree", FULL, "", COLUMNS),
        ROW("MergeTree", FULL, "project, uuid", COLUMNS),
        ROW("Null", "", "", COLUMNS),
        ROW("ReplacingMergeTree", FULL, "project, uuid", "[\"project\",\"uuid\"]"),
        "{\"engine\":\"ReplacingMergeTree\"}\n"};
    struct far *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        f->table = bad[i];
        struct sink_result r = prepare(f);
        assert_int_equal(r.verdict, SINK_RETRY);
        assert_true(r.prepare);
        assert_non_null(strstr(r.text, "blocked: tallyman.events_v2"));
    }
    f->table = bad[0];
    assert_non_null(strstr(prepare(f).text, "lacks uuid"));
    f->table = bad[6];
    assert_non_null(strstr(prepare(f).text, "lacks the column revision"));
    static const char *const good[] = {
        ROW("ReplicatedReplacingMergeTree", FULL, "project, uuid", COLUMNS),
        ROW("SharedReplacingMergeTree", FULL, "project, event, uuid", COLUMNS)};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        f->table = good[i];
        assert_int_equal(prepare(f).verdict, SINK_DELIVERED);
    }
}

static void test_missing_syncs_are_a_warning(void **state)
{
    static const struct {
        const char *row, *name;
    } cases[] = {
        {ROW("ReplacingMergeTree", "ReplacingMergeTree ORDER BY (project, uuid)", "project, uuid",
             COLUMNS),
         "fsync_after_insert"},
        {ROW("ReplacingMergeTree",
             "X SETTINGS fsync_after_insert = 0, fsync_part_directory = 1, "
             "min_rows_to_fsync_after_merge = 1, min_compressed_bytes_to_fsync_after_merge = 1",
             "project, uuid", COLUMNS),
         "fsync_after_insert"},
        {ROW("ReplacingMergeTree",
             "X SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, "
             "min_rows_to_fsync_after_merge = 1",
             "project, uuid", COLUMNS),
         "min_compressed_bytes_to_fsync_after_merge"}};
    struct far *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        f->table = cases[i].row;
        struct sink_result r = prepare(f);
        assert_int_equal(r.verdict, SINK_DELIVERED);
        assert_non_null(strstr(r.text, "warning: "));
        assert_non_null(strstr(r.text, cases[i].name));
    }
}

static void test_prepare_without_rights(void **state)
{
    struct far *f = *state;
    f->denied = "X-ClickHouse-Exception-Code: 497\r\n";
    /* Somebody else made the table: fine, and the view is not ours to insist on. */
    assert_int_equal(prepare(f).verdict, SINK_DELIVERED);
    f->table = "";
    struct sink_result r = prepare(f);
    assert_int_equal(r.verdict, SINK_RETRY);
    assert_int_equal(r.code, 497);
    assert_non_null(strstr(r.text, "lacks a right"));
}

static void test_prepare_with_nobody_there(void **state)
{
    struct far *f = *state;
    peer_stop(&f->peer);
    struct sink_result r = prepare(f);
    assert_int_equal(r.verdict, SINK_RETRY);
    assert_true(r.prepare);
    assert_non_null(strstr(r.text, "cannot connect"));
    assert_null(strstr(r.text, "s3cret"));
    peer_start(&f->peer);
    f->table = "";
    r = prepare(f); /* made, and yet not there: seen, not believed */
    assert_int_not_equal(r.verdict, SINK_DELIVERED);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_delivered),
                                       T(test_the_request),
                                       T(test_c26_columns_match_the_encoder),
                                       T(test_not_delivered),
                                       T(test_codes),
                                       T(test_lost),
                                       T(test_cancelled),
                                       T(test_prepare),
                                       T(test_prepare_of_the_engine),
                                       T(test_c49_sorting_key),
                                       T(test_missing_syncs_are_a_warning),
                                       T(test_prepare_without_rights),
                                       T(test_prepare_with_nobody_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
