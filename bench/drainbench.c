/* drainbench: how many queued rows a second leave through the sink runner.
 *
 * A store with ROWS events of about 700 bytes of one project, a loop that does nothing but commit,
 * the ClickHouse encoder, and a far side that takes every batch at once. So it measures selecting,
 * encoding and recording, each with its real syncs. Prints `drainbench rows=... rows/s=...
 * sent/s=... loop_us/row=... others_us/row=...`: until all is recorded, until all was taken, and
 * the CPU time of the loop's thread (recording) and of the others (sink, checkpoints), which holds
 * also on a busy machine.
 *
 * Environment: DATA (a folder on a real disk; it is made and removed), ROWS. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/ensure.h"
#include "os/os.h"
#include "sink/clickhouse.h"
#include "store/control.h"

#define PUT_ROWS 5000

static struct store *store;
static struct http_server *server;
static struct sink *sink;
static uint64_t rows_wanted, sent, started_ns, sent_ns, recorded_ns;

static int64_t project;

struct put {
    struct store_job job; /* first */
    uint64_t from;
};

static const char text[] =
    "{\"uuid\":\"0192f6d0-1c2b-7c3d-8e4f-000000000001\",\"event\":\"$pageview\",\"properties\":{"
    "\"$current_url\":\"https://shop.example.org/products/blue-widget?ref=17\",\"$host\":\"shop."
    "example.org\",\"$pathname\":\"/products/blue-widget\",\"$browser\":\"Chrome\",\"$browser_"
    "version\":119,\"$os\":\"Linux\",\"$screen_height\":1080,\"$screen_width\":1920,\"$lib\":"
    "\"web\","
    "\"$lib_version\":\"1.130.1\",\"distinct_id\":\"user-1234\",\"$device_id\":\"0192f6cf\",\"$"
    "session_"
    "id\":\"0192f6cf-aaaa\",\"$window_id\":\"0192f6cf-bbbb\",\"token\":\"tmc_abcdefghij\",\"cart\":"
    "{"
    "\"items\":[1,2,3],\"total\":19.99},\"plan\":\"premium\",\"note\":\"a few more words to make "
    "this "
    "as long as events are\"},\"timestamp\":\"2026-11-30T12:00:00.123Z\"}";

static int make_project(struct store_job *job, struct store *s, struct err *e)
{
    (void)job;
    return control_create_project(s, SLICE("bench"), SLICE("Bench"), NULL, 1, e);
}

static int put_rows(struct store_job *job, struct store *s, struct err *e)
{
    struct put *p = (struct put *)job;
    int r = 0;
    for (uint64_t i = p->from; r == 0 && i < p->from + PUT_ROWS; i++) {
        struct queue_receipt receipt;
        struct queue_event ev = {.project = project,
                                 .received_ms = 1796040000000 + (int64_t)(i / 100),
                                 .timestamp_us = 1796040000000000 + (int64_t)i,
                                 .type = SLICE("capture"),
                                 .event = SLICE("$pageview"),
                                 .distinct_id = SLICE("user-1234"),
                                 .source = SLICE("default"),
                                 .library = SLICE("web"),
                                 .library_version = SLICE("1.130.1"),
                                 .text = slice_of(text, sizeof text - 1)};
        for (int j = 0; j < 8; j++) {
            ev.uuid.byte[j] = (uint8_t)(i >> (56 - 8 * j));
        }
        ev.uuid.byte[15] = 1;
        r = queue_put(s, &ev, &receipt, e);
    }
    return r;
}

static void done(struct store_job *job, int code, const struct err *e)
{
    (void)job;
    (void)e;
    ensure(code == 0);
}

static void fill(void)
{
    struct err e = {0};
    struct store_job make = {.run = make_project, .done = done};
    store_submit(store, &make);
    (void)store_turn(store);
    int r = control_committed(store, &e);
    ensure(r == 0);
    const struct project *made = control_project(store_control(store), SLICE("bench"));
    ensure(made != NULL);
    project = made->id;
    for (uint64_t i = 0; i < rows_wanted; i += PUT_ROWS) {
        struct put p = {.job = {.run = put_rows, .done = done}, .from = i};
        store_submit(store, &p.job);
        while (store_turn(store)) {
        }
    }
}

static double cpu_us(clockid_t clock)
{
    struct timespec ts;
    int r = clock_gettime(clock, &ts);
    ensure(r == 0);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void prepare(void *ctx, const atomic_bool *cancel, struct sink_result *r)
{
    (void)ctx;
    (void)cancel;
    *r = (struct sink_result){.verdict = SINK_DELIVERED};
}

static void take(void *ctx, struct slice body, size_t count, const atomic_bool *cancel,
                 struct sink_result *r)
{
    (void)ctx;
    (void)cancel;
    ensure(body.len != 0);
    *r = (struct sink_result){.verdict = SINK_DELIVERED};
    sent += count;
    if (sent == rows_wanted) {
        sent_ns = os_clock_mono_ns();
    }
}

static void on_turn(void *ctx)
{
    struct store_status st;
    (void)ctx;
    if (store_turn(store)) {
        http_again(server);
    }
    store_get_status(store, &st);
    if (st.pending_events == 0 && recorded_ns == 0) {
        recorded_ns = os_clock_mono_ns();
        http_stop(server);
    }
}

static void run(const char *data)
{
    struct err e = {0};
    struct sink_adapter adapter = clickhouse_adapter;
    struct sink_options o = {.data = data,
                             .batch_events_max = 10000,
                             .batch_bytes_soft = 16u << 20,
                             .backoff_min_ms = 1000,
                             .backoff_max_ms = 30000};
    struct http_config hc = {.limits = http_limits_default, .hooks = {.turn = on_turn}};
    adapter.prepare = prepare;
    adapter.send = take;
    server = http_new(&hc, &e);
    ensure(server != NULL);
    started_ns = os_clock_mono_ns();
    double loop_us = cpu_us(CLOCK_THREAD_CPUTIME_ID);
    double all_us = cpu_us(CLOCK_PROCESS_CPUTIME_ID);
    int r = sink_start(&o, &adapter, NULL, store, server, &sink, &e);
    ensure(r == 0);
    r = http_run(server, &e);
    ensure(r == 0);
    loop_us = cpu_us(CLOCK_THREAD_CPUTIME_ID) - loop_us;
    all_us = cpu_us(CLOCK_PROCESS_CPUTIME_ID) - all_us;
    sink_stop(sink);
    http_free(server);
    double all = (double)(recorded_ns - started_ns) / 1e9;
    double taken = (double)(sent_ns - started_ns) / 1e9;
    printf("drainbench rows=%llu rows/s=%.0f sent/s=%.0f loop_us/row=%.2f others_us/row=%.2f\n",
           (unsigned long long)rows_wanted, (double)rows_wanted / all, (double)rows_wanted / taken,
           loop_us / (double)rows_wanted, (all_us - loop_us) / (double)rows_wanted);
}

static int remove_one(void *ctx, const char *name)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    return os_unlink(path);
}

int main(void)
{
    const char *data = getenv("DATA");
    const char *rows = getenv("ROWS");
    char dir[4096];
    struct err e = {0};
    (void)snprintf(dir, sizeof dir, "%s", data == NULL ? "drainbench-data" : data);
    rows_wanted = rows == NULL ? 300000 : strtoull(rows, NULL, 10);
    rows_wanted = (rows_wanted + PUT_ROWS - 1) / PUT_ROWS * PUT_ROWS;
    int r = os_mkdir_exist_ok(dir, 0700);
    ensure(r == 0);
    r = store_open(dir, &store_options_default, &store, &e);
    ensure(r == 0);
    fill();
    run(dir);
    r = store_close(store, &e);
    ensure(r == 0);
    r = os_list(dir, remove_one, dir);
    ensure(r == 0);
    return rmdir(dir);
}
