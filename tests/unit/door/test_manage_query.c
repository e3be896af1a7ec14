/* test_manage_query: queries against an engine that is played here: a small HTTP server on a Unix
 * socket that answers what the SQL text asks it to, well, badly, late or not at all. */
#include <time.h>

#include "tests/unit/door/manage_kit.h"

#define MANY 60

static struct {
    struct http_server *server;
    pthread_t thread;
    char socket[120];
    int result;
    char query[512];   /* of the last request */
    char project[100]; /* "" without the header */
    char limits[100];  /* time, rows, bytes */
    struct http_request *held[MANY];
    unsigned held_count;
    bool release;
} engine;

/* ---- the engine's part ---- */

static void answer_sql(struct http_request *req, unsigned status, const char *code,
                       const char *format, const char *body)
{
    if (code != NULL) {
        http_add_header(req, "X-ClickHouse-Exception-Code", slice_cstr(code));
    }
    if (format != NULL) {
        http_add_header(req, "X-ClickHouse-Format", slice_cstr(format));
    }
    http_answer(req, status, "text/plain", slice_cstr(body));
}

static int64_t read_half(void *ctx, char *p, size_t cap)
{
    bool *begun = ctx;

    (void)cap;
    if (*begun) {
        return ERR_IO;
    }
    *begun = true;
    memcpy(p, "{\"meta\":[", 9);
    return 9;
}

struct canned {
    const char *sql;
    unsigned status;
    const char *code;
    const char *format;
    const char *body;
};

#define EXCEPTION(n, text) "Code: " #n ". DB::Exception: " text " (version 26.7.2.1)\n"

static const struct canned canned[] = {
    {"one", 200, NULL, "JSON",
     "{\n\t\"meta\":\n\t[\n\t\t{\n\t\t\t\"name\": \"a b\\\" c\",\n\t\t\t\"type\": "
     "\"UInt8\"\n\t\t}\n\t],"
     "\n\n\t\"data\":\n\t[\n\t\t{\n\t\t\t\"a b\\\" c\": \"x \\\\\"\n\t\t}\n\t],\n\n\t\"rows\": "
     "1,\n\n"
     "\t\"statistics\":\n\t{\n\t\t\"elapsed\": 0.001\n\t}\n}\n"},
    {"lines", 200, NULL, "JSONEachRow", "{\"a\":1}\n{\"a\":2}\n"},
    {"csv", 200, NULL, NULL, "\"a\"\n\"1\n2\"\"\n3\"\n4\n5\n6\n7\n"},
    {"bytes", 200, NULL, NULL, "{\"a\":\"\xff\xc3\xa9\xe2\x82\"}\n"},
    {"six csv", 200, NULL, NULL, "\"a\"\n1\n2\n3\n4\n5\n6\n"},
    {"six lines", 200, NULL, NULL, "1\n2\n3\n4\n5\n6\n"},
    {"six rows", 200, NULL, "JSON", "{\"meta\":[],\"data\":[1,2,3,4,5,6],\"rows\":6}"},
    {"other format", 200, NULL, "Pretty", "{\"meta\":[],\"data\":[],\"rows\":0}"},
    {"no json", 200, NULL, NULL, "a\tb\n"},
    {"half json", 200, NULL, NULL, "{\"meta\":[],\"data\":[],\"rows\":0"},
    {"no rows", 200, NULL, NULL, "{\"meta\":[],\"data\":[]}"},
    {"syntax", 400, "62", NULL, EXCEPTION(62, "Syntax error: \"x\" (SYNTAX_ERROR)")},
    {"unknown", 404, NULL, NULL, EXCEPTION(60, "Table q.x does not exist.")},
    {"denied", 403, "497", NULL, EXCEPTION(497, "Not enough privileges.")},
    {"inner", 500, "49", NULL, EXCEPTION(49, "Logical error\xff.")},
    {"slow", 408, "159", NULL, EXCEPTION(159, "Timeout exceeded.")},
    {"memory", 500, "241", NULL, EXCEPTION(241, "Memory limit.")},
    {"rows", 500, "396", NULL, EXCEPTION(396, "Limit for result exceeded.")},
    {"lying", 200, "62", NULL, EXCEPTION(62, "Syntax error after 200.")},
    {"closed", 503, "344", NULL, EXCEPTION(344, "the self-test has not passed")},
    {"plain", 500, NULL, NULL, "no words of ClickHouse's \n\n"},
    {"silent", 500, NULL, NULL, ""},
};

static void engine_request(void *ctx, struct http_request *req)
{
    static const struct http_source half = {.read = read_half};
    static bool begun;
    struct slice sql = http_body(req);
    struct slice project = {0};

    (void)ctx;
    (void)snprintf(engine.query, sizeof engine.query, "%.*s", (int)http_query(req).len,
                   http_query(req).ptr);
    (void)http_header(req, "x-tallyman-project", &project, NULL);
    engine.limits[0] = '\0';
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"x-tallyman-time-ms", "x-tallyman-rows-max",
                                            "x-tallyman-bytes-max"};
        struct slice v = {0};
        size_t at = strlen(engine.limits);

        (void)http_header(req, names[i], &v, NULL);
        (void)snprintf(engine.limits + at, sizeof engine.limits - at, "%.*s,", (int)v.len,
                       v.len == 0 ? "" : v.ptr);
    }
    (void)snprintf(engine.project, sizeof engine.project, "%.*s", (int)project.len,
                   project.len == 0 ? "" : project.ptr);
    for (size_t i = 0; i < sizeof canned / sizeof *canned; i++) {
        if (slice_eq(sql, slice_cstr(canned[i].sql))) {
            answer_sql(req, canned[i].status, canned[i].code, canned[i].format, canned[i].body);
            return;
        }
    }
    if (slice_eq(sql, SLICE("late"))) {
        http_add_header(req, "X-ClickHouse-Exception-Tag", SLICE("abcdefghijklmnop"));
        http_answer(req, 200, "text/plain",
                    SLICE("{\"a\":1}\n\r\n__exception__\r\nabcdefghijklmnop\r\n" EXCEPTION(
                        395, "thrown.") "40 abcdefghijklmnop\r\n__exception__\r\n"));
    } else if (slice_eq(sql, SLICE("cut"))) {
        begun = false;
        http_answer_stream(req, 200, "text/plain", &half, &begun);
    } else if (slice_eq(sql, SLICE("large"))) {
        char body[5000];

        memset(body, 'x', sizeof body);
        http_answer(req, 200, "text/plain", slice_of(body, sizeof body));
    } else {
        ensure(engine.held_count < MANY); /* "wait": until it is told to go on */
        engine.held[engine.held_count] = req;
        engine.held_count++;
    }
}

static void release_held(void *ctx)
{
    (void)ctx;
    for (unsigned i = 0; i < engine.held_count; i++) {
        http_answer(engine.held[i], 200, "text/plain",
                    SLICE("{\"meta\":[],\"data\":[],\"rows\":0}"));
    }
    engine.held_count = 0;
}

static void engine_turn(void *ctx)
{
    if (engine.release) {
        release_held(ctx);
    }
}

static void set_release(void *ctx)
{
    (void)ctx;
    engine.release = true;
}

static void *engine_main(void *ctx)
{
    struct err e = {0};

    (void)ctx;
    engine.result = http_run(engine.server, &e);
    return NULL;
}

static void engine_start(const char *dir)
{
    static const struct http_route routes[] = {{.path = "/",
                                                .methods = HTTP_POST,
                                                .body_max_bytes = 1u << 20,
                                                .on_request = engine_request}};
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = 1,
                                 .hooks = {.turn = engine_turn}};
    struct err e = {0};

    memset(&engine, 0, sizeof engine);
    (void)snprintf(engine.socket, sizeof engine.socket, "%s/engine.sock", dir);
    config.limits.grace_ms = 0;
    engine.server = http_new(&config, &e);
    assert_non_null(engine.server);
    assert_int_equal(http_listen_unix(engine.server, engine.socket, &e), 0);
    assert_int_equal(pthread_create(&engine.thread, NULL, engine_main, NULL), 0);
}

static void engine_stop(void)
{
    http_stop(engine.server);
    assert_int_equal(pthread_join(engine.thread, NULL), 0);
    assert_int_equal(engine.result, 0);
    http_free(engine.server);
}

static void engine_state(void *ctx, struct manage_engine *out)
{
    (void)ctx;
    *out = (struct manage_engine){.state = "starting", .restarts = 2, .detail = "it was killed"};
}

static int setup(void **state)
{
    struct kit *k = calloc(1, sizeof *k);
    char token[KEY_TEXT_MAX + 1];

    assert_non_null(k);
    kit_start(k);
    engine_start(k->dir);
    k->manage.query.engine_socket = engine.socket;
    k->manage.engine_status = engine_state;
    k->manage.sink = KIT_SINK;
    k->manage.sink_name = "clickhouse";
    kit_run(k);
    kit_project(k, "demo", token);
    *state = k;
    return 0;
}

static int teardown(void **state)
{
    engine_stop();
    kit_stop(*state);
    free(*state);
    return 0;
}

#define QUERY "POST /api/v1/projects/demo/query"

/* ---- tests ---- */

static void test_formats(void **state)
{
    static const char whole[] =
        "{\"meta\":[{\"name\":\"a b\\\" c\",\"type\":\"UInt8\"}],\"data\":[{\"a b\\\" c\":\"x "
        "\\\\\"}],\"rows\":1,\"delivery\":{\"enabled\":true,\"pending\":0,\"pending_bytes\":0,"
        "\"quarantined\":0,\"pending_mutations\":0,\"rejected\":0}}";
    struct kit *k = *state;
    struct reply r = kit_ask(k, "", QUERY, "{\"sql\":\"one\"}");

    expect_status(&r, 200);
    expect_in(&r, "Content-Type: application/json\r\n");
    assert_string_equal(r.body.ptr, whole);
    reply_free(&r);
    assert_string_equal(engine.project, "demo");
    assert_string_equal(engine.query, "default_format=JSON");
    assert_string_equal(engine.limits, "2000,5,4096,");
    r = kit_ask(k, "", QUERY, "{\"sql\":\"lines\",\"format\":\"ndjson\"}");
    expect_status(&r, 200);
    expect_in(&r, "Content-Type: application/x-ndjson\r\n");
    expect_in(&r, "Tallyman-Delivery: {\"enabled\":true,\"pending\":0,");
    assert_string_equal(r.body.ptr, "{\"a\":1}\n{\"a\":2}\n");
    reply_free(&r);
    assert_string_equal(engine.query, "default_format=JSONEachRow");
    r = kit_ask(k, "", QUERY, "{\"sql\":\"csv\",\"format\":\"csv\"}");
    expect_status(&r, 200);
    expect_in(&r, "Content-Type: text/csv; charset=utf-8\r\n");
    assert_string_equal(r.body.ptr, "\"a\"\n\"1\n2\"\"\n3\"\n4\n5\n6\n7\n");
    reply_free(&r);
    assert_string_equal(engine.query, "default_format=CSVWithNames");
}

static void test_bytes_that_are_no_text(void **state)
{
    struct reply r = kit_ask(*state, "", QUERY, "{\"sql\":\"bytes\",\"format\":\"ndjson\"}");

    expect_status(&r, 200);
    assert_string_equal(r.body.ptr, "{\"a\":\"\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"}\n");
    reply_free(&r);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *body;
        unsigned status;
        const char *text;
    } table[] = {
        {"{\"sql\":\"\"}", 400, "{\"error\":\"invalid_query\",\"message\":\"sql is empty\"}"},
        {"{}", 400, "sql is missing"},
        {"{\"sql\":\"one\",\"format\":\"xml\"}", 400, "format must be json, ndjson or csv"},
        {"{\"sql\":\"syntax\"}", 400,
         "{\"error\":\"invalid_query\",\"message\":\"Code: 62. DB::Exception: Syntax error: "
         "\\\"x\\\" (SYNTAX_ERROR)\",\"code\":62}"},
        {"{\"sql\":\"unknown\"}", 400, "Table q.x does not exist.\",\"code\":60}"},
        {"{\"sql\":\"denied\"}", 400, "\"code\":497}"},
        {"{\"sql\":\"inner\"}", 400, "Logical error?.\",\"code\":49}"},
        {"{\"sql\":\"lying\"}", 400, "Syntax error after 200.\",\"code\":62}"},
        {"{\"sql\":\"slow\"}", 422, "{\"error\":\"query_limit\",\"message\":\"Code: 159."},
        {"{\"sql\":\"memory\"}", 422, "\"code\":241}"},
        {"{\"sql\":\"rows\"}", 422, "\"code\":396}"},
        {"{\"sql\":\"large\"}", 422, "the result is larger than 4096 bytes"},
        {"{\"sql\":\"six rows\"}", 422, "the result has more than 5 rows"},
        {"{\"sql\":\"six csv\",\"format\":\"csv\"}", 422, "the result has more than 5 rows"},
        {"{\"sql\":\"six lines\",\"format\":\"ndjson\"}", 422, "the result has more than 5 rows"},
        {"{\"sql\":\"other format\"}", 400, "leave FORMAT"},
        {"{\"sql\":\"no json\"}", 400, "leave FORMAT"},
        {"{\"sql\":\"half json\"}", 400, "leave FORMAT"},
        {"{\"sql\":\"no rows\"}", 400, "leave FORMAT"},
        {"{\"sql\":\"late\",\"format\":\"ndjson\"}", 400, "Code: 395. DB::Exception: thrown."},
        {"{\"sql\":\"closed\"}", 503,
         "{\"error\":\"engine_unavailable\",\"message\":\"Code: 344. DB::Exception: the self-test "
         "has "
         "not passed (starting: it was killed)\",\"code\":344}"},
        {"{\"sql\":\"plain\"}", 503, "\"no words of ClickHouse's (starting: it was killed)\""},
        {"{\"sql\":\"silent\"}", 503, "refused without a word"},
        {"{\"sql\":\"cut\"}", 503, "the analytics engine broke off (starting: it was killed)"},
    };
    struct kit *k = *state;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        expect(k, "", QUERY, table[i].body, table[i].status, table[i].text);
    }
}

static void test_time(void **state)
{
    struct kit *k = *state;
    uint64_t start = os_clock_mono_ns();

    expect(k, "", QUERY, "{\"sql\":\"wait\"}", 422, "the query took longer than 2000 ms");
    assert_in_range((os_clock_mono_ns() - start) / 1000000, 2000, 6000);
}

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&t, NULL);
}

/* Sends n queries that wait until the engine is told to go on. */
static void send_many(struct kit *k, const char *line, int *fd, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fd[i] = kit_send(k, "", line, "{\"sql\":\"wait\"}");
    }
}

static void receive_many(int *fd, size_t n, unsigned *good, unsigned *refused)
{
    for (size_t i = 0; i < n; i++) {
        struct reply r = kit_receive(fd[i]);

        *good += r.status == 200 ? 1 : 0;
        *refused += r.status == 429 ? 1 : 0;
        if (r.status == 429) {
            expect_in(&r, "Retry-After: 1\r\n");
            expect_in(&r, "too many queries are under way");
        }
        reply_free(&r);
    }
}

/* Some are under way, some wait their turn, the rest is refused; none is lost, and one project does
 * not keep the others out. */
static void test_many(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    unsigned good = 0;
    unsigned refused = 0;
    int fd[MANY];
    int others[MANY];

    kit_project(k, "other", token);
    send_many(k, QUERY, fd, MANY);
    pause_ms(300);
    expect(k, "", "POST /api/v1/projects/other/query", "{\"sql\":\"one\"}", 200, "\"rows\":1");
    send_many(k, "POST /api/v1/projects/other/query", others, MANY);
    pause_ms(300);
    assert_true(http_post(engine.server, set_release, NULL));
    receive_many(fd, MANY, &good, &refused);
    assert_int_equal(good, MANAGE_QUERIES_PROJECT_MAX + MANAGE_QUERIES_WAIT_PROJECT_MAX);
    assert_int_equal(refused, MANY - good);
    good = 0;
    refused = 0;
    receive_many(others, MANY, &good, &refused);
    assert_int_equal(good, MANAGE_QUERIES_MAX - MANAGE_QUERIES_PROJECT_MAX +
                               MANAGE_QUERIES_WAIT_MAX - MANAGE_QUERIES_WAIT_PROJECT_MAX);
    assert_int_equal(refused, MANY - good);
    expect(k, "", QUERY, "{\"sql\":\"one\"}", 200, "\"rows\":1");
}

/* A client that goes does not take the query's place for ever. */
static void test_clients_that_go(void **state)
{
    struct kit *k = *state;

    for (unsigned i = 0; i < MANAGE_QUERIES_MAX; i++) {
        (void)close(kit_send(k, "", QUERY, "{\"sql\":\"wait\"}"));
    }
    pause_ms(200);
    assert_true(http_post(engine.server, set_release, NULL));
    expect(k, "", QUERY, "{\"sql\":\"one\"}", 200, "\"rows\":1");
}

/* The end of the server ends queries under way and those that wait, and answers them. */
static void test_stop(void **state)
{
    struct kit *k = *state;
    int fd[MANAGE_QUERIES_MAX + 3];
    uint64_t start;

    for (size_t i = 0; i < sizeof fd / sizeof *fd; i++) {
        fd[i] = kit_send(k, "", QUERY, "{\"sql\":\"wait\"}");
    }
    pause_ms(300);
    start = os_clock_mono_ns();
    http_stop(k->server);
    for (size_t i = 0; i < sizeof fd / sizeof *fd; i++) {
        struct reply r = kit_receive(fd[i]);

        expect_status(&r, 503);
        expect_in(&r, "{\"error\":\"engine_unavailable\",\"message\":\"the server is stopping\"}");
        reply_free(&r);
    }
    assert_in_range((os_clock_mono_ns() - start) / 1000000, 0, 1900);
}

/* The same when the clients have gone and the loop has nothing to wait for: the threads are joined,
 * and what they brought is freed. */
static void test_end_with_queries_under_way(void **state)
{
    struct kit *k = *state;

    for (unsigned i = 0; i < MANAGE_QUERIES_MAX + 3; i++) {
        (void)close(kit_send(k, "", QUERY, "{\"sql\":\"wait\"}"));
    }
    pause_ms(200);
}

static void test_a_store_that_cannot_be_read(void **state)
{
    struct kit *k = *state;

    k->manage.data = "/nonexistent/tallyman";
    expect(k, "", QUERY, "{\"sql\":\"one\"}", 500,
           "{\"error\":\"internal_error\",\"message\":\"the store could not be read");
}

static void test_no_engine(void **state)
{
    struct kit *k = *state;

    engine_stop();
    expect(k, "", QUERY, "{\"sql\":\"one\"}", 503,
           "the analytics engine does not answer (starting: it was killed)");
    k->manage.engine_status = NULL;
    expect(k, "", QUERY, "{\"sql\":\"one\"}", 503,
           "\"message\":\"the analytics engine does not answer\"");
    k->manage.query.engine_socket = NULL;
    expect(k, "", QUERY, "{\"sql\":\"one\"}", 503,
           "\"message\":\"there is no analytics engine here\"");
    k->manage.query.outside = true;
    expect(k, "", QUERY, "{\"sql\":\"one\"}", 503, "queries go to that ClickHouse itself");
    engine_start(k->dir);
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_formats),
        test(test_bytes_that_are_no_text),
        test(test_refusals),
        test(test_time),
        test(test_many),
        test(test_clients_that_go),
        test(test_stop),
        test(test_end_with_queries_under_way),
        test(test_a_store_that_cannot_be_read),
        test(test_no_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
