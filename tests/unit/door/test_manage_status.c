/* test_manage_status: readiness, status of the instance and of projects, rejected events, over a
 * real server with a real store. */
#include <errno.h>
#include <sqlite3.h>

#include "tests/lib/faults.h"
#include "tests/lib/os_vfs.h"
#include "tests/unit/door/manage_kit.h"

static int setup(void **state)
{
    struct kit *k = calloc(1, sizeof *k);

    assert_non_null(k);
    kit_start(k);
    kit_run(k);
    *state = k;
    return 0;
}

static int teardown(void **state)
{
    kit_stop(*state);
    free(*state);
    return 0;
}

/* ---- what the doors would do ---- */

static int64_t project_of(struct store *s, const char *name)
{
    const struct project *p = control_project(store_control(s), slice_cstr(name));

    return p == NULL ? 0 : p->id;
}

static int64_t event_ids[8];

static int deliver(struct store *s, void *ctx, struct err *e)
{
    const unsigned *count = ctx;

    return queue_delivered(s, event_ids, *count, 1764493260000, e);
}

static int quarantine(struct store *s, void *ctx, struct err *e)
{
    char sql[200];

    (void)ctx;
    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO delivery_quarantine(event_id, project, code, quarantined_ms) "
                   "VALUES(%lld, %lld, 469, 1)",
                   (long long)event_ids[2], (long long)project_of(s, "demo"));
    return sqlite3_exec(store_db(s), sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : store_err(e, store_db(s), "quarantine");
}

static int put_events(struct store *s, void *ctx, struct err *e)
{
    const unsigned *count = ctx;
    int r = 0;

    for (unsigned i = 0; r == 0 && i < *count; i++) {
        struct queue_event ev = {.project = project_of(s, "demo"),
                                 .received_ms = 1764493200000 + i,
                                 .timestamp_us = 1764493200000000,
                                 .type = SLICE("capture"),
                                 .event = SLICE("e"),
                                 .distinct_id = SLICE("d"),
                                 .source = SLICE("default"),
                                 .text = SLICE("{\"event\":\"e\"}")};
        struct queue_receipt receipt;

        ev.uuid.byte[0] = (uint8_t)(i + 1);
        r = queue_put(s, &ev, &receipt, e);
        event_ids[i] = receipt.event_id;
    }
    return r;
}

static int put_rejected(struct store *s, void *ctx, struct err *e)
{
    struct queue_rejected r = *(const struct queue_rejected *)ctx;

    r.project = project_of(s, "demo");
    return queue_put_rejected(s, &r, e);
}

/* ---- tests ---- */

static void test_health(void **state)
{
    struct kit *k = *state;

    expect(k, "-", "GET /healthz", NULL, 200, "{\"status\":\"alive\"}");
    expect(k, "-", "GET /readyz", NULL, 200, "{\"status\":\"ready\"}");
    expect(k, "-", "GET /metrics", NULL, 200, "tallyman_http_requests_total ");
}

static void test_instance(void **state)
{
    struct kit *k = *state;
    struct reply r = kit_ask(k, "", "GET /api/v1/status", NULL);

    expect_status(&r, 200);
    expect_in(&r, "{\"version\":\"1.2.3\",\"revision\":\"abc\",\"uptime_ms\":");
    expect_in(&r, "\"frontier\":{\"event_id\":null,\"events\":0,\"chain_head\":\"");
    expect_in(&r, "\"journal\":{\"bytes\":0,\"generations\":1,\"segments\":0,");
    expect_in(&r, "\"queue\":{\"pending\":0,\"pending_bytes\":0,\"quarantined\":0,\"rejected\":0,"
                  "\"receipts\":0,\"wal_bytes\":");
    expect_in(&r, ",\"poisoned\":false,\"no_space\":false,\"cause\":\"\"}");
    expect_in(&r, "\"sink\":null,\"engine\":{\"state\":\"off\",\"restarts\":0,\"detail\":\"\"}");
    expect_in(&r, "\"http\":{\"connections\":");
    reply_free(&r);
    expect(k, "-", "GET /api/v1/status", NULL, 401, "WWW-Authenticate: Bearer\r\n");
}

static void engine_state(void *ctx, struct manage_engine *out)
{
    *out = *(const struct manage_engine *)ctx;
}

static void test_sink_and_engine(void **state)
{
    static struct manage_engine engine = {"stopped", 3, "no \"libchdb\""};
    struct kit *k = *state;

    k->manage.sink = KIT_SINK;
    k->manage.sink_name = "clickhouse";
    k->manage.engine_status = engine_state;
    k->manage.engine_ctx = &engine;
    kit_sink = (struct sink_status){.connected = true,
                                    .delivered = 7,
                                    .batches = 2,
                                    .failures = 1,
                                    .retry_in_ms = 900,
                                    .error = "Code: 241"};
    expect(k, "", "GET /api/v1/status", NULL, 200,
           "\"sink\":{\"name\":\"clickhouse\",\"connected\":true,\"delivered\":7,\"batches\":2,"
           "\"failures\":1,\"retry_in_ms\":900,\"error\":\"Code: 241\"},"
           "\"engine\":{\"state\":\"stopped\",\"restarts\":3,\"detail\":\"no \\\"libchdb\\\"\"}");
}

/* The file decides, and the sink is told; also where there is none. */
static void test_pause_and_resume(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    unsigned count = 1;

    kit_sink = (struct sink_status){0};
    expect(k, "", "GET /api/v1/sinks", NULL, 200, "{\"paused\":false}");
    expect(k, "", "POST /api/v1/sinks/pause", "{}", 200,
           "{\"paused\":true,\"reason\":\"paused by an administrator\",\"since\":\"20");
    expect(k, "", "POST /api/v1/sinks/resume", "{}", 200, "{\"paused\":false}");
    kit_project(k, "demo", token);
    assert_int_equal(kit_do(k, put_events, &count), 0);
    k->manage.sink = KIT_SINK;
    k->manage.sink_name = "clickhouse";
    expect(k, "", "POST /api/v1/sinks/pause", "{\"reason\":\"moving\"}", 200,
           "{\"paused\":true,\"reason\":\"moving\",\"since\":\"20");
    assert_true(kit_sink.paused);
    expect(k, "", "GET /api/v1/status", NULL, 200, "\"sinks\":{\"paused\":true,\"reason\":");
    expect(k, "", "GET /api/v1/projects/demo/status", NULL, 200, "deliveries are paused");
    expect(k, "", "POST /api/v1/sinks/resume", "{\"reason\":\"x\"}", 400, "reason");
    assert_true(kit_sink.paused);
    expect(k, "", "POST /api/v1/sinks/resume", "{}", 200, "{\"paused\":false}");
    assert_false(kit_sink.paused);
    expect(k, "", "POST /api/v1/sinks/pause?now=1", "{}", 400, "");
    expect(k, "-", "POST /api/v1/sinks/pause", "{}", 404, "not_found");
    expect(k, "-", "GET /api/v1/sinks", NULL, 404, "not_found");
    assert_false(kit_sink.paused);
}

/* What cannot be made durable is not done, and said. */
static void test_a_pause_that_fails(void **state)
{
    struct kit *k = *state;

    kit_sink = (struct sink_status){0};
    k->manage.sink = KIT_SINK;
    k->manage.sink_name = "clickhouse";
    faults_count_only(OS_CALL_rename, "paused");
    faults_arm(1, EIO, true, FAULT_ERROR);
    expect(k, "", "POST /api/v1/sinks/pause", "{}", 500, "internal_error");
    assert_false(kit_sink.paused);
    faults_reset();
    expect(k, "", "POST /api/v1/sinks/pause", "{}", 200, "{\"paused\":true");
    faults_count_only(OS_CALL_unlink, "paused");
    faults_arm(1, EIO, true, FAULT_ERROR);
    expect(k, "", "POST /api/v1/sinks/resume", "{}", 500, "internal_error");
    assert_true(kit_sink.paused);
    faults_reset();
}

static void test_delivery(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    unsigned count = 3;
    struct reply r;

    kit_project(k, "demo", token);
    kit_project(k, "other", token);
    k->manage.sink = KIT_SINK;
    k->manage.sink_name = "clickhouse";
    (void)snprintf(kit_sink.error, sizeof kit_sink.error, "nobody listens");
    /* nothing pending: nothing to say about errors */
    expect(k, "", "GET /api/v1/projects/demo/status", NULL, 200,
           "\r\n\r\n{\"project\":\"demo\",\"delivery\":{\"enabled\":true,\"pending\":0,"
           "\"pending_bytes\":0,\"quarantined\":0,\"pending_mutations\":0,\"rejected\":0}}");
    assert_int_equal(kit_do(k, put_events, &count), 0);
    r = kit_ask(k, "", "GET /api/v1/projects/demo/status", NULL);
    expect_in(&r, "\"pending\":3,\"pending_bytes\":");
    expect_in(&r, "\"oldest_pending_received_at\":\"2025-11-30T09:00:00.000Z\"");
    expect_in(&r, "\"error\":\"nobody listens\"");
    expect_not_in(&r, "last_success");
    expect_not_in(&r, "repair");
    reply_free(&r);
    (void)snprintf(kit_project_error, sizeof kit_project_error, "these rows are refused");
    expect(k, "", "GET /api/v1/projects/demo", NULL, 200, "\"error\":\"these rows are refused\"");
    expect(k, "", "GET /api/v1/projects/other/status", NULL, 200, "\"pending\":0");
    count = 2;
    assert_int_equal(kit_do(k, deliver, &count), 0);
    r = kit_ask(k, "", "GET /api/v1/projects/demo/status", NULL);
    expect_in(&r, "\"pending\":1,");
    expect_in(&r, "\"last_success\":\"2025-11-30T09:01:00.000Z\"");
    reply_free(&r);
    assert_int_equal(kit_do(k, quarantine, NULL), 0);
    r = kit_ask(k, "", "GET /api/v1/projects/demo/status", NULL);
    expect_in(&r, "\"pending\":1,");
    expect_in(&r, "\"quarantined\":1,");
    expect_in(&r, "\"repair\":\"the destination refuses these events");
    reply_free(&r);
    k->manage.sink = NULL;
    expect(k, "", "GET /api/v1/projects/demo/status", NULL, 200,
           "\"error\":\"delivery is off: there is no destination\"");
    expect(k, "", "GET /api/v1/status", NULL, 200, "\"queue\":{\"pending\":1,");
}

static void test_rejected(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    char next[24];
    char line[128];
    struct reply r;
    struct queue_rejected rejected = {.received_ms = 1764493200000,
                                      .index = 4,
                                      .door = SLICE("posthog"),
                                      .reason = SLICE("no \"event\""),
                                      .text = SLICE("{\"a\":\"\\ud800\"}")};

    kit_project(k, "demo", token);
    expect(k, "", "GET /api/v1/projects/demo/rejected", NULL, 200,
           "\r\n\r\n{\"rejected\":[],\"next_after_id\":null}");
    assert_int_equal(kit_do(k, put_rejected, &rejected), 0);
    rejected.text = SLICE("\xff\x00\xfe z");
    assert_int_equal(kit_do(k, put_rejected, &rejected), 0);
    rejected.text = SLICE("\xff");
    assert_int_equal(kit_do(k, put_rejected, &rejected), 0);
    rejected.text = SLICE("\xff\xff");
    assert_int_equal(kit_do(k, put_rejected, &rejected), 0);
    r = kit_ask(k, "", "GET /api/v1/projects/demo/rejected?limit=2", NULL);
    expect_status(&r, 200);
    expect_in(&r, "\"received_at\":\"2025-11-30T09:00:00.000Z\",\"index\":4,\"door\":\"posthog\","
                  "\"reason\":\"no \\\"event\\\"\",\"text\":\"{\\\"a\\\":\\\"\\\\ud800\\\"}\"},{");
    expect_in(&r, "\"text_base64\":\"/wD+IHo=\"}],\"next_after_id\":\"");
    reply_text(&r, "next_after_id", next, sizeof next);
    reply_free(&r);
    (void)snprintf(line, sizeof line, "GET /api/v1/projects/demo/rejected?after_id=%s", next);
    r = kit_ask(k, "", line, NULL);
    expect_in(&r, "\"text_base64\":\"/w==\"");
    expect_in(&r, "\"text_base64\":\"//8=\"}],\"next_after_id\":null}");
    expect_not_in(&r, "ud800");
    reply_free(&r);
    expect(k, "", "GET /api/v1/projects/demo/status", NULL, 200, "\"rejected\":4");
}

static void test_rejected_parameters(void **state)
{
    static const struct {
        const char *query;
        unsigned status;
        const char *text;
    } table[] = {
        {"limit=0", 400, "limit must be a number from 1 to 1000"},
        {"limit=1001", 400, "limit must be"},
        {"limit=1000&after_id=0", 200, ""},
        {"limit=01", 400, "limit must be"},
        {"limit=-1", 400, "limit must be"},
        {"limit=", 400, "limit must be"},
        {"limit=9999999999999999999", 400, "limit must be"},
        {"after_id=x", 400, "after_id must be"},
        {"after_id=1&after_id=1", 400, "given twice"},
        {"a=b", 400, "unknown query parameter"},
        {"limit=%zz", 400, "malformed"},
        {"", 200, ""},
    };
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];

    kit_project(k, "demo", token);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char line[128];

        (void)snprintf(line, sizeof line, "GET /api/v1/projects/demo/rejected?%s", table[i].query);
        expect(k, "", line, NULL, table[i].status, table[i].text);
    }
}

/* A page ends after 8 MiB of texts, and the next one goes on behind it. */
static void test_rejected_pages_are_bounded(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    char next[24];
    char line[128];
    size_t size = 3u << 20;
    char *text = malloc(size);
    struct queue_rejected rejected = {.received_ms = 1, .door = SLICE("d"), .reason = SLICE("r")};
    struct reply r;

    assert_non_null(text);
    memset(text, 't', size);
    rejected.text = slice_of(text, size);
    kit_project(k, "demo", token);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kit_do(k, put_rejected, &rejected), 0);
    }
    r = kit_ask(k, "", "GET /api/v1/projects/demo/rejected", NULL);
    assert_in_range(r.body.len, 3 * size, 3 * size + 4096);
    reply_text(&r, "next_after_id", next, sizeof next);
    reply_free(&r);
    (void)snprintf(line, sizeof line, "GET /api/v1/projects/demo/rejected?after_id=%s", next);
    r = kit_ask(k, "", line, NULL);
    assert_in_range(r.body.len, size, size + 4096);
    reply_free(&r);
    free(text);
}

/* The store's files are gone from under the readers: answered, not shown. */
static void test_a_store_that_cannot_be_read(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    struct reply r;

    kit_project(k, "demo", token);
    k->manage.data = "/nonexistent/tallyman";
    r = kit_ask(k, "", "GET /api/v1/projects/demo/status", NULL);
    expect_status(&r, 500);
    expect_in(&r, "{\"error\":\"internal_error\",\"message\":\"the store could not be");
    expect_not_in(&r, "nonexistent");
    reply_free(&r);
    expect(k, "", "GET /api/v1/projects/demo", NULL, 500, "internal_error");
    expect(k, "", "GET /api/v1/projects/demo/rejected", NULL, 500, "internal_error");
}

/* ---- a disk that fails ---- */

static int setup_faults(void **state)
{
    os_vfs_register();
    faults_install(NULL);
    faults_count_only(OS_CALL_fdatasync, STORE_FILE "-wal");
    return setup(state);
}

static int teardown_faults(void **state)
{
    int r = teardown(state);

    faults_uninstall();
    os_vfs_unregister();
    return r;
}

static void arm(enum os_call call, int error, bool sticky)
{
    faults_count_only(call, STORE_FILE "-wal");
    faults_reset();
    faults_arm(1, error, sticky, FAULT_ERROR);
}

/* A failed sync of the queue: nothing is acknowledged any more, and everybody who asks is told. */
static void test_a_poisoned_store(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    char key[KEY_TEXT_MAX + 1];
    char id[24];
    char line[128];

    kit_project(k, "demo", token);
    kit_key(k, "demo", "\"events:read\"", key, id);
    arm(OS_CALL_fdatasync, EIO, false);
    expect(k, "", "POST /api/v1/projects", "{\"id\":\"a\"}", 503,
           "{\"error\":\"store_poisoned\",\"message\":\"the store takes no writes until a restart; "
           "the outcome is not known\"}");
    assert_int_equal(faults_fired(), 1);
    expect(
        k, "-", "GET /readyz", NULL, 503,
        "{\"status\":\"not_ready\",\"cause\":\"store_poisoned\",\"store\":\"queue\",\"detail\":\"");
    expect(k, "", "GET /api/v1/status", NULL, 200, "\"poisoned\":true,\"no_space\":false,");
    /* a sync that would work now is not tried */
    expect(k, "", "POST /api/v1/projects/demo/keys", "{\"kind\":\"capture\"}", 503,
           "store_poisoned");
    (void)snprintf(line, sizeof line, "DELETE /api/v1/projects/demo/keys/%s", id);
    expect(k, "", line, NULL, 503, "store_poisoned");
    assert_int_equal(faults_count(), 1);
    /* reads go on, and what was not acknowledged is not there */
    expect(k, "", "GET /api/v1/projects/a", NULL, 404, "not_found");
    expect(k, key, "GET /api/v1/projects/demo/status", NULL, 200, "\"pending\":0");
}

static void test_a_full_disk(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];

    kit_project(k, "demo", token);
    arm(OS_CALL_pwrite, ENOSPC, true);
    expect(k, "", "POST /api/v1/projects", "{\"id\":\"a\"}", 503, "Retry-After: 60\r\n");
    assert_true(faults_fired() != 0);
    expect(k, "", "POST /api/v1/projects/demo/keys", "{\"kind\":\"capture\"}", 503,
           "{\"error\":\"no_space\",\"message\":\"the server has no space left; nothing was "
           "stored\"}");
    expect(k, "-", "GET /readyz", NULL, 503, "\"cause\":\"no_space\",\"store\":\"queue\"");
    faults_reset();
    expect(k, "", "POST /api/v1/projects", "{\"id\":\"a\"}", 201, "\"id\":\"a\"");
    expect(k, "-", "GET /readyz", NULL, 200, "{\"status\":\"ready\"}");
}

static void test_stopping(void **state)
{
    struct kit *k = *state;

    k->manage.stopping = true;
    expect(k, "-", "GET /readyz", NULL, 503,
           "{\"status\":\"not_ready\",\"cause\":\"stopping\",\"detail\":\"\"}");
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_health),
        test(test_instance),
        test(test_sink_and_engine),
        test(test_pause_and_resume),
        test(test_delivery),
        test(test_rejected),
        test(test_rejected_parameters),
        test(test_rejected_pages_are_bounded),
        test(test_a_store_that_cannot_be_read),
        test(test_stopping),
        cmocka_unit_test_setup_teardown(test_a_poisoned_store, setup_faults, teardown_faults),
        cmocka_unit_test_setup_teardown(test_a_pause_that_fails, setup_faults, teardown_faults),
        cmocka_unit_test_setup_teardown(test_a_full_disk, setup_faults, teardown_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
