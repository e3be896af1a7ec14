/* test_front: the HTTP interface over a libchdb of the test's own.
 *
 * The test program is its own library: it exports the chdb_ calls (Makefile: -rdynamic), and they
 * do what the statement's text says. Every connection, result and stream that was made must be
 * gone at the end. What the real library does is asked by tests/blackbox/test_engine.py. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/engine_protocol.h"
#include "engine/front.h"
#include "tests/http/wire.h"

/* ---- the library ---- */

struct conn {
    void *handle;
    char project[80];
};

struct result {
    const char *error;
    char *data;
    size_t len;
    uint64_t written;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int open_conns, open_results, open_streams;
static bool no_connection;     /* connections fail */
static bool no_stream;         /* inserts give no stream */
static const char *stream_bad; /* inserts fail at their beginning with this */
static bool wrong_look;        /* a project's connection is not the project's */
static const char *tree;       /* what EXPLAIN AST prints */
static unsigned class_answer;  /* of chdb_classify_query_n */
static char ran[8192];         /* every statement, a line each */

static const char tree_good[] = "SelectWithUnionQuery (children 1)\n"
                                " ExpressionList (children 1)\n";

static void count(int *what, int n)
{
    (void)pthread_mutex_lock(&lock);
    *what += n;
    (void)pthread_mutex_unlock(&lock);
}

static void note(const char *sql, size_t n)
{
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(ran + strlen(ran), sizeof ran - strlen(ran), "%.*s\n", (int)(n < 800 ? n : 800),
                   sql);
    (void)pthread_mutex_unlock(&lock);
}

/* Exported: libchdb's interface. */
const char *chdb_version(void);
void chdb_set_signal_handlers_enabled(int enabled);
void **chdb_connect(int argc, char **argv);
void chdb_close_conn(void **handle);
void *chdb_query_with_params_n(void *conn, const char *sql, size_t sql_len, const char *format,
                               size_t format_len, const char *const *names, const size_t *name_lens,
                               const char *const *values, const size_t *value_lens, size_t n);
void *chdb_stream_insert_with_params_n(void *conn, const char *sql, size_t sql_len,
                                       const char *format, size_t format_len,
                                       const char *const *names, const size_t *name_lens,
                                       const char *const *values, const size_t *value_lens,
                                       size_t n);
int chdb_stream_append(void *stream, const void *data, size_t len);
void *chdb_stream_done(void *stream);
const char *chdb_stream_insert_error(void *stream);
void chdb_destroy_insert_stream(void *stream);
void chdb_destroy_query_result(void *result);
const char *chdb_result_error(void *result);
char *chdb_result_buffer(void *result);
size_t chdb_result_length(void *result);
double chdb_result_elapsed(void *result);
uint64_t chdb_result_rows_read(void *result);
uint64_t chdb_result_storage_rows_read(void *result);
uint64_t chdb_result_storage_bytes_read(void *result);
uint64_t chdb_result_rows_written(void *result);
uint64_t chdb_result_bytes_written(void *result);
int chdb_classify_query_n(void *conn, const char *sql, size_t sql_len, const char *database,
                          size_t database_len, uint32_t *out);

const char *chdb_version(void)
{
    return "26.7.3";
}

void chdb_set_signal_handlers_enabled(int enabled)
{
    assert_int_equal(enabled, 0);
}

void **chdb_connect(int argc, char **argv)
{
    struct conn *c;

    assert_int_equal(argc, 3);
    assert_null(argv[3]);
    if (no_connection) {
        return NULL;
    }
    c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->handle = c;
    count(&open_conns, 1);
    return &c->handle;
}

void chdb_close_conn(void **handle)
{
    count(&open_conns, -1);
    free(*handle);
}

static struct result *result_new(const char *error, const char *data, size_t len, uint64_t written)
{
    struct result *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->error = error;
    r->data = malloc(len + 1);
    assert_non_null(r->data);
    if (data != NULL) {
        memcpy(r->data, data, len);
    } else {
        memset(r->data, 'z', len);
    }
    r->len = len;
    r->written = written;
    count(&open_results, 1);
    return r;
}

static bool starts(const char *sql, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(sql, with, strlen(with)) == 0;
}

void *chdb_query_with_params_n(void *conn, const char *sql, size_t sql_len, const char *format,
                               size_t format_len, const char *const *names, const size_t *name_lens,
                               const char *const *values, const size_t *value_lens, size_t n)
{
    static const char set[] = "SET log_comment = '";
    struct conn *c = conn;
    char text[128];

    note(sql, sql_len);
    if (starts(sql, sql_len, set)) {
        const char *from = sql + sizeof set - 1;
        const char *end = memchr(from, '\'', sql_len - (sizeof set - 1));

        memcpy(c->project, from, (size_t)(end - from));
    }
    if (starts(sql, sql_len, "SELECT length(currentRoles())")) {
        int len = snprintf(text, sizeof text, "%d\t1\t%s\tq\n", wrong_look ? 1 : 0, c->project);

        return result_new(NULL, text, (size_t)len, 0);
    }
    if (starts(sql, sql_len, "EXPLAIN AST ")) {
        return result_new(NULL, tree, strlen(tree), 0);
    }
    if (starts(sql, sql_len, "SELECT nothing")) {
        return NULL;
    }
    if (starts(sql, sql_len, "SELECT nope")) {
        return result_new("Code: 47. DB::Exception: no nope. (UNKNOWN_IDENTIFIER)", "", 0, 0);
    }
    if (starts(sql, sql_len, "SELECT big")) {
        return result_new(NULL, NULL, 1000000, 0);
    }
    if (starts(sql, sql_len, "SELECT params")) {
        int len = 0;

        for (size_t i = 0; i < n; i++) {
            len += snprintf(text + len, sizeof text - (size_t)len, "%.*s=%.*s;", (int)name_lens[i],
                            names[i], (int)value_lens[i], values[i]);
        }
        return result_new(NULL, text, (size_t)len, 0);
    }
    assert_true(format_len != 0);
    return result_new(NULL, format, format_len, starts(sql, sql_len, "INSERT") ? 1 : 0);
}

void *chdb_stream_insert_with_params_n(void *conn, const char *sql, size_t sql_len,
                                       const char *format, size_t format_len,
                                       const char *const *names, const size_t *name_lens,
                                       const char *const *values, const size_t *value_lens,
                                       size_t n)
{
    (void)conn;
    (void)names;
    (void)name_lens;
    (void)values;
    (void)value_lens;
    (void)n;
    note(sql, sql_len);
    note(format, format_len);
    if (no_stream) {
        return NULL;
    }
    count(&open_streams, 1);
    return calloc(1, sizeof(uint64_t));
}

int chdb_stream_append(void *stream, const void *data, size_t len)
{
    uint64_t *lines = stream;

    for (size_t i = 0; i < len; i++) {
        *lines += ((const char *)data)[i] == '\n' ? 1 : 0;
    }
    return 0;
}

void *chdb_stream_done(void *stream)
{
    return result_new(NULL, "", 0, *(uint64_t *)stream);
}

const char *chdb_stream_insert_error(void *stream)
{
    assert_non_null(stream);
    return stream_bad;
}

void chdb_destroy_insert_stream(void *stream)
{
    count(&open_streams, -1);
    free(stream);
}

void chdb_destroy_query_result(void *result)
{
    struct result *r = result;

    count(&open_results, -1);
    free(r->data);
    free(r);
}

const char *chdb_result_error(void *result)
{
    return ((struct result *)result)->error;
}

char *chdb_result_buffer(void *result)
{
    return ((struct result *)result)->data;
}

size_t chdb_result_length(void *result)
{
    return ((struct result *)result)->len;
}

double chdb_result_elapsed(void *result)
{
    assert_non_null(result);
    return 0.5;
}

uint64_t chdb_result_rows_read(void *result)
{
    assert_non_null(result);
    return 11;
}

uint64_t chdb_result_storage_rows_read(void *result)
{
    assert_non_null(result);
    return 22;
}

uint64_t chdb_result_storage_bytes_read(void *result)
{
    assert_non_null(result);
    return 33;
}

uint64_t chdb_result_rows_written(void *result)
{
    return ((struct result *)result)->written;
}

uint64_t chdb_result_bytes_written(void *result)
{
    return ((struct result *)result)->written * 10;
}

int chdb_classify_query_n(void *conn, const char *sql, size_t sql_len, const char *database,
                          size_t database_len, uint32_t *out)
{
    (void)conn;
    (void)sql;
    (void)sql_len;
    assert_null(database);
    assert_int_equal(database_len, 0);
    assert_int_equal(out[0], 16);
    out[1] = 1;
    out[3] = class_answer;
    return class_answer == 99 ? 1 : 0;
}

/* ---- requests ---- */

static struct engine engine;
static struct front front;

static int setup(void **state)
{
    struct err e = {0};

    (void)state;
    if (library_load("", &e) != 0) {
        fail_msg("%s", e.text);
    }
    engine = (struct engine){.open = true, .table_dir = "/tmp"};
    front = (struct front){.engine = &engine, .secret = SLICE("a secret")};
    no_connection = no_stream = wrong_look = false;
    stream_bad = NULL;
    tree = tree_good;
    class_answer = 0;
    ran[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(open_conns, 0);
    assert_int_equal(open_results, 0);
    assert_int_equal(open_streams, 0);
    assert_int_equal(front.projects_running, 0);
    assert_int_equal(front.projects_waiting, 0);
    buf_free(&wire.out);
    return 0;
}

#define OWNER "X-ClickHouse-User: owner\r\nX-ClickHouse-Key: a secret\r\n"

/* Sends one request with its body and the end of the client's side; the answer is in wire.out. */
static struct slice send_one(const char *line, const char *headers, const char *body)
{
    struct http_route routes[FRONT_ROUTES];
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = FRONT_ROUTES,
                                 .handle_signals = true};
    struct buf in = {0};
    struct err e = {0};

    front_routes(&front, routes);
    config.limits.workers = 1;
    buf_free(&wire.out);
    wire = (struct wire){0};
    buf_printf(&in, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", line, headers);
    buf_printf(&in, "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    assert_false(in.failed);
    wire.in = in.ptr;
    wire.in_len = in.len;
    assert_int_equal(wire_run(&config, &e), 0);
    buf_free(&in);
    return buf_slice(&wire.out);
}

static void has(struct slice answer, const char *text)
{
    if (answer.len == 0 || memmem(answer.ptr, answer.len, text, strlen(text)) == NULL) {
        fail_msg("no %s in %.*s", text, (int)answer.len, answer.ptr);
    }
}

static void was_run(const char *text)
{
    if (strstr(ran, text) == NULL) {
        fail_msg("no %s in %s", text, ran);
    }
}

static void test_select(void **state)
{
    struct slice a =
        send_one("POST /?database=d%60b&max_threads=it%27s&query_id=x", OWNER, "SELECT 1");

    (void)state;
    has(a, "HTTP/1.1 200 OK");
    has(a, "X-ClickHouse-Query-Id: x\r\n");
    has(a, "X-ClickHouse-Format: TabSeparated\r\n");
    has(a, "\"read_rows\":\"22\",\"read_bytes\":\"33\"");
    has(a, "\"elapsed_ns\":\"500000000\"");
    has(a, "\r\n\r\nTabSeparated");
    was_run("USE `d\\`b`\n");
    was_run(", max_threads = 'it\\'s'\n");
    assert_null(strstr(ran, "readonly"));
    has(send_one("GET /?query=SELECT+1&default_format=CSV", OWNER, ""), "\r\n\r\nCSV");
    was_run("SET readonly = 2\n");
    has(send_one("POST /?query=SELECT+params&param_a=1&param_b=x+y", OWNER, ""), "a=1;b=x y;");
}

static void test_errors(void **state)
{
    (void)state;
    has(send_one("POST /", OWNER, "SELECT nope"), "HTTP/1.1 404 Not Found");
    has(buf_slice(&wire.out), "X-ClickHouse-Exception-Code: 47\r\n");
    has(buf_slice(&wire.out), "\r\n\r\nCode: 47. DB::Exception: no nope. (UNKNOWN_IDENTIFIER)\n");
    has(send_one("POST /", OWNER, "SELECT nothing"), "Exception-Code: 1002\r\n");
    has(send_one("POST /", OWNER, " ;; "), "Exception-Code: 62\r\n");
    has(send_one("POST /?%zz", OWNER, "SELECT 1"), "Exception-Code: 36\r\n");
    no_connection = true;
    has(send_one("POST /", OWNER, "SELECT 1"), "Exception-Code: 439\r\n");
    has(send_one("POST /", OWNER "X-Tallyman-Project: demo\r\n", "SELECT 1"),
        "Exception-Code: 439\r\n");
}

static void test_large(void **state)
{
    struct slice a = send_one("POST /", OWNER, "SELECT big");

    (void)state;
    has(a, "HTTP/1.1 200 OK");
    has(a, "Transfer-Encoding: chunked");
    has(a, "\r\n0\r\n\r\n");
    assert_true(a.len > 1000000);
}

static void test_inserts(void **state)
{
    (void)state;
    has(send_one("POST /?query=INSERT+INTO+t+FORMAT+CSV", OWNER, "1\n2\n3\n"),
        "\"written_rows\":\"3\"");
    was_run("INSERT INTO t \nCSV\n");
    has(send_one("POST /", OWNER, "INSERT INTO t FORMAT TSV\n1\n2\n"), "\"written_rows\":\"2\"");
    has(send_one("POST /", OWNER, "INSERT INTO t VALUES (1)"), "\"written_rows\":\"1\"");
    stream_bad = "Code: 60. DB::Exception: no t. (UNKNOWN_TABLE)";
    has(send_one("POST /?query=INSERT+INTO+t+FORMAT+CSV", OWNER, "1\n"), "Exception-Code: 60\r\n");
    no_stream = true;
    has(send_one("POST /?query=INSERT+INTO+t+FORMAT+CSV", OWNER, "1\n"), "Exception-Code: 1002");
}

static void test_an_insert_that_cannot_be_synced(void **state)
{
    (void)state;
    (void)snprintf(engine.table_dir, sizeof engine.table_dir, "/nowhere/at/all");
    has(send_one("POST /?query=INSERT+INTO+t+FORMAT+CSV", OWNER, "1\n"),
        "HTTP/1.1 500 Internal Server Error");
    has(buf_slice(&wire.out), "X-ClickHouse-Exception-Code: 204\r\n");
    has(send_one("POST /", OWNER, "SELECT 1"), "HTTP/1.1 200 OK");
}

#define PROJECT OWNER "X-Tallyman-Project: demo\r\n"

static void test_projects(void **state)
{
    struct slice a = send_one("POST /", PROJECT "X-Tallyman-Time-Ms: 1500\r\n", "SELECT 1;");

    (void)state;
    has(a, "\r\n\r\nJSON");
    has(a, "\"read_rows\":\"0\",\"read_bytes\":\"0\"");
    was_run("SET log_comment = 'demo', max_execution_time = '1.500', max_result_rows = '100000'");
    was_run("readonly = 1\nSET ROLE NONE\nUSE q\nSELECT length(currentRoles())");
    was_run("EXPLAIN AST SELECT 1\nSELECT 1\n");
    has(send_one("POST /", PROJECT "X-Tallyman-Bytes-Max: 1000\r\n", "SELECT big"),
        "Exception-Code: 396\r\n");
    has(send_one("POST /?max_threads=1", PROJECT, "SELECT 1"), "Exception-Code: 164\r\n");
    has(send_one("POST /", PROJECT PROJECT, "SELECT 1"), "HTTP/1.1 400 Bad Request");
    has(send_one("POST /", PROJECT, ""), "Exception-Code: 62\r\n");
}

/* Whatever stops a project's statement, it is not run. */
static void project_refused(const char *sql, const char *code)
{
    ran[0] = '\0';
    has(send_one("POST /", PROJECT, sql), code);
    assert_null(strstr(ran, "\nSELECT secret\n"));
}

static void test_projects_refused(void **state)
{
    (void)state;
    project_refused("SET ROLE ALL", "Exception-Code: 497\r\n");
    class_answer = 3;
    project_refused("SELECT secret", "Exception-Code: 497\r\n");
    class_answer = 99;
    project_refused("SELECT secret", "Exception-Code: 497\r\n");
    class_answer = 0;
    tree = "Set\n";
    project_refused("SELECT secret", "Exception-Code: 497\r\n");
    tree = tree_good;
    wrong_look = true;
    project_refused("SELECT secret", "Exception-Code: 344\r\n");
    wrong_look = false;
    engine.open = false;
    (void)snprintf(engine.closed_reason, sizeof engine.closed_reason, "it is \"open\"");
    project_refused("SELECT secret", "HTTP/1.1 503 Service Unavailable");
    has(buf_slice(&wire.out), "queries of projects are closed: it is \"open\"");
    assert_string_equal(ran, "");
}

static void test_passwords(void **state)
{
    (void)state;
    has(send_one("POST /", "", "SELECT 1"), "HTTP/1.1 401 Unauthorized");
    has(buf_slice(&wire.out), "WWW-Authenticate: Basic");
    has(send_one("POST /", "Authorization: Basic b3duZXI6YSBzZWNyZXQ=\r\n", "SELECT 1"),
        "HTTP/1.1 200 OK");
    has(send_one("POST /", "Authorization: Basic b3duZXI6YSBzZWNyZXR6\r\n", "SELECT 1"),
        "HTTP/1.1 403 Forbidden");
    has(send_one("POST /", "Authorization: Basic b3duZXI=\r\n", "SELECT 1"), "401 Unauthorized");
    has(send_one("POST /", "Authorization: Basic =\r\n", "SELECT 1"), "401 Unauthorized");
    has(send_one("POST /", "Authorization: Basic \xff\r\n", "SELECT 1"), "40");
    has(send_one("POST /", "X-ClickHouse-Key: a secret\r\n", "SELECT 1"), "401 Unauthorized");
    front.secret = (struct slice){0};
    has(send_one("POST /", "X-ClickHouse-User: owner\r\nX-ClickHouse-Key: \r\n", "SELECT 1"),
        "HTTP/1.1 403 Forbidden");
    assert_null(strstr(ran, "nope"));
}

static void test_encodings(void **state)
{
    (void)state;
    has(send_one("POST /", OWNER "Content-Encoding: br\r\n", "SELECT 1"), "Exception-Code: 48\r\n");
    has(send_one("POST /", OWNER "Content-Encoding: gzip\r\n", "SELECT 1"),
        "Exception-Code: 117\r\n");
    has(send_one("POST /", OWNER "Content-Encoding: identity\r\n", "SELECT 1"), "HTTP/1.1 200 OK");
}

static void test_other_paths(void **state)
{
    (void)state;
    has(send_one("GET /ping", "", ""), "\r\n\r\nOk.\n");
    has(send_one("GET /", OWNER, ""), "\r\n\r\nOk.\n");
    has(send_one("GET /status", OWNER, ""), "HTTP/1.1 404 Not Found");
    has(send_one("PUT /", OWNER, ""), "HTTP/1.1 405 Method Not Allowed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_select, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inserts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_insert_that_cannot_be_synced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_projects, setup, teardown),
        cmocka_unit_test_setup_teardown(test_projects_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_passwords, setup, teardown),
        cmocka_unit_test_setup_teardown(test_encodings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_paths, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
