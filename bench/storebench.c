/* storebench: how fast the queue accepts events.
 *
 *     storebench DIR [events=1000000] [batch=50] [bytes=500] [uuid=v7|random] [jobs=1] [deliver=0]
 *
 * Opens a store in DIR (which must be empty), puts events in jobs of `batch` events, `jobs` jobs
 * a turn, each turn with its sync; with deliver=1 each turn's events are taken out again one turn
 * later, as by a sink that keeps up. No parsing, no network. Prints events a second over the
 * whole run and over its last tenth, the slowest turn, and what the files hold. */
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bench/meter.h"
#include "os/os.h"
#include "store/control.h"
#include "store/queue.h"

#define BATCH_MAX 4096
#define JOBS_MAX  64

struct bench_job {
    struct store_job job;
    struct queue_receipt receipt[BATCH_MAX];
};

static struct {
    uint64_t events, batch, bytes, jobs, deliver;
    bool v7;
    uint64_t state, put;
    char *text;
    struct bench_job job[JOBS_MAX];
    int64_t out[JOBS_MAX * BATCH_MAX];
    size_t out_count;
} b = {.events = 1000000, .batch = 50, .bytes = 500, .jobs = 1, .v7 = true, .state = 1};

static uint64_t chance(void)
{
    uint64_t z = (b.state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static struct uuid make_uuid(void)
{
    struct uuid u;
    uint64_t half[2] = {chance(), chance()};
    memcpy(u.byte, half, sizeof half);
    if (b.v7) {
        uint64_t ms = UINT64_C(1795996800000) + b.put / 100;
        for (int i = 0; i < 6; i++) {
            u.byte[i] = (uint8_t)(ms >> (40 - 8 * i));
        }
        u.byte[6] = (uint8_t)(0x70 | (u.byte[6] & 15));
    }
    return u;
}

static int run(struct store_job *job, struct store *s, struct err *e)
{
    struct bench_job *j = (struct bench_job *)(void *)job;
    struct queue_event ev = {.project = 1,
                             .received_ms = 1795996800000 + (int64_t)(b.put / 100),
                             .timestamp_us = 1795996800000000 + (int64_t)b.put,
                             .has_timestamp_sent = true,
                             .timestamp_sent_us = 1795996800000000,
                             .type = SLICE("capture"),
                             .event = SLICE("page opened"),
                             .distinct_id = SLICE("0196f1d0-3c3c-7a4e-9a51-c3a1f0a5d0c1"),
                             .session_id = SLICE("0196f1d0-3c3c-7a4e-9a51-c3a1f0a5d0c2"),
                             .source = SLICE("default"),
                             .library = SLICE("web"),
                             .library_version = SLICE("1.200.0"),
                             .text = slice_of(b.text, b.bytes)};
    for (uint64_t i = 0; i < b.batch; i++) {
        ev.uuid = make_uuid();
        b.put++;
        int r = queue_put(s, &ev, &j->receipt[i], e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void done(struct store_job *job, int code, const struct err *e)
{
    struct bench_job *j = (struct bench_job *)(void *)job;
    if (code < 0) {
        die("put: %s", e->text);
    }
    for (uint64_t i = 0; b.deliver && i < b.batch; i++) {
        b.out[b.out_count++] = j->receipt[i].event_id;
    }
}

static int run_delivered(struct store_job *job, struct store *s, struct err *e)
{
    int r = 0;
    (void)job;
    for (size_t at = 0; r == 0 && at < b.out_count; at += QUEUE_SLICE) {
        size_t left = b.out_count - at;
        r = queue_delivered(s, b.out + at, left < QUEUE_SLICE ? left : QUEUE_SLICE, 1, e);
    }
    b.out_count = 0;
    return r;
}

static void done_other(struct store_job *job, int code, const struct err *e)
{
    (void)job;
    if (code < 0) {
        die("%s", e->text);
    }
}

static int run_project(struct store_job *job, struct store *s, struct err *e)
{
    (void)job;
    return control_create_project(s, SLICE("demo"), SLICE("Demo"), NULL, 1, e);
}

static void turn_until_empty(struct store *s)
{
    while (store_turn(s)) {
        continue;
    }
}

static void option(const char *arg)
{
    uint64_t *const to[] = {&b.events, &b.batch, &b.bytes, &b.jobs, &b.deliver};
    static const char *const names[] = {"events=", "batch=", "bytes=", "jobs=", "deliver="};
    for (size_t i = 0; i < 5; i++) {
        if (strncmp(arg, names[i], strlen(names[i])) == 0) {
            *to[i] = strtoull(arg + strlen(names[i]), NULL, 10);
            return;
        }
    }
    if (strcmp(arg, "uuid=v7") != 0 && strcmp(arg, "uuid=random") != 0) {
        die("unknown option %s", arg);
    }
    b.v7 = strcmp(arg, "uuid=v7") == 0;
}

static void measure(struct store *s)
{
    struct store_job delivery = {.run = run_delivered, .done = done_other};
    uint64_t start = os_clock_mono_ns(), late = 0, late_put = 0, slowest = 0, tick = start;

    while (b.put < b.events) {
        uint64_t begun = os_clock_mono_ns(), took;
        if (late == 0 && b.put >= b.events - b.events / 10) {
            late = begun;
            late_put = b.put;
        }
        if (b.out_count > 0) {
            store_submit(s, &delivery);
        }
        for (uint64_t i = 0; i < b.jobs; i++) {
            b.job[i].job = (struct store_job){.run = run, .done = done};
            store_submit(s, &b.job[i].job);
        }
        uint64_t until = b.put + b.jobs * b.batch;
        while (b.put < until) {
            store_turn(s);
        }
        took = os_clock_mono_ns() - begun;
        slowest = took > slowest ? took : slowest;
        if (begun - tick >= 1000000000u) {
            tick = begun;
            store_tick(s);
        }
    }
    uint64_t end = os_clock_mono_ns();
    struct rusage use;
    struct store_status st;
    getrusage(RUSAGE_SELF, &use);
    store_get_status(s, &st);
    printf("%s batch %llu x %llu jobs, %llu B: %.0f events/s, last tenth %.0f, slowest turn %.1f "
           "ms, %.1f s user, %.1f s system, %ld MiB, %llu receipts\n",
           b.v7 ? "v7" : "random", (unsigned long long)b.batch, (unsigned long long)b.jobs,
           (unsigned long long)b.bytes, (double)b.put * 1e9 / (double)(end - start),
           (double)(b.put - late_put) * 1e9 / (double)(end - late), (double)slowest / 1e6,
           (double)use.ru_utime.tv_sec + (double)use.ru_utime.tv_usec / 1e6,
           (double)use.ru_stime.tv_sec + (double)use.ru_stime.tv_usec / 1e6, use.ru_maxrss / 1024,
           (unsigned long long)st.receipts);
}

int main(int argc, char **argv)
{
    struct store_job project = {.run = run_project, .done = done_other};
    struct store *s;
    struct err e;

    for (int i = 2; i < argc; i++) {
        option(argv[i]);
    }
    if (argc < 2 || b.batch == 0 || b.batch > BATCH_MAX || b.jobs == 0 || b.jobs > JOBS_MAX) {
        die("usage: storebench DIR [events=N] [batch=N] [bytes=N] [jobs=N] [deliver=0|1] "
            "[uuid=v7|random]");
    }
    b.text = malloc(b.bytes + 1);
    if (b.text == NULL || store_open(argv[1], &store_options_default, &s, &e) < 0) {
        die("open: %s", b.text == NULL ? "out of memory" : e.text);
    }
    memset(b.text, 'x', b.bytes);
    store_submit(s, &project);
    turn_until_empty(s);
    measure(s);
    turn_until_empty(s);
    if (store_close(s, &e) < 0) {
        die("close: %s", e.text);
    }
    free(b.text);
    return 0;
}
