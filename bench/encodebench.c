/* encodebench: how many rows of the queue a core turns into insert lines in a second.
 *
 * Prints one line a shape, `encodebench shape=... rows/s=... text=... line=... MB/s=...`: `clean`
 * is an event of about 600 bytes as posthog-js sends it, `text` one that is half prose in another
 * script, `mended` one with a lone surrogate. text and line are bytes in and out of a row. The best
 * of ROUNDS rounds counts; time is CPU time. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "sink/clickhouse.h"

#define ROWS   2000
#define ROUNDS 10

static const char clean[] =
    "{\"uuid\":\"0192f6d0-1c2b-7c3d-8e4f-%012d\",\"event\":\"$pageview\",\"properties\":{"
    "\"$current_url\":\"https://shop.example.org/products/blue-widget?ref=%d\",\"$host\":\"shop."
    "example.org\",\"$pathname\":\"/products/blue-widget\",\"$browser\":\"Chrome\",\"$browser_"
    "version\":119,\"$os\":\"Linux\",\"$screen_height\":1080,\"$screen_width\":1920,\"$lib\":"
    "\"web\","
    "\"$lib_version\":\"1.130.1\",\"distinct_id\":\"user-%d\",\"$device_id\":\"0192f6cf\",\"$"
    "session_"
    "id\":\"0192f6cf-aaaa\",\"$window_id\":\"0192f6cf-bbbb\",\"token\":\"tmc_abcdefghij\",\"cart\":"
    "{"
    "\"items\":[1,2,3],\"total\":19.99},\"plan\":\"premium\"},\"timestamp\":\"2026-11-30T12:00:00."
    "123Z\",\"$set\":{\"email\":\"kim%d@example.org\"}}";
static const char prose[] =
    "{\"event\":\"note %d\",\"properties\":{\"a\":%d,\"body\":\"\xd0\x9d\xd0\xb0 \xd0\xbf\xd1\x80"
    "\xd0\xb8\xd1\x87\xd0\xb0\xd0\xbb\xd0\xb5 \xd1\x81\xd1\x87\xd0\xb8\xd1\x82\xd0\xb0\xd1\x8e"
    "\xd1\x82 \xd0\xb3\xd1\x80\xd1\x83\xd0\xb7 \xd0\xb8 \xd0\xbf\xd0\xbe\xd0\xb4\xd0\xbf\xd0\xb8"
    "\xd1\x81\xd1\x8b\xd0\xb2\xd0\xb0\xd1\x8e\xd1\x82 \xd1\x80\xd0\xb0\xd1\x81\xd0\xbf\xd0\xb8"
    "\xd1\x81\xd0\xba\xd0\xb8, \xd0\xb8 \xd1\x82\xd0\xb0\xd0\xba \xd0\xba\xd0\xb0\xd0\xb6\xd0\xb4"
    "\xd1\x8b\xd0\xb9 \xd0\xb4\xd0\xb5\xd0\xbd\xd1\x8c\",\"b\":%d,\"c\":%d}}";
static const char mended[] = "{\"event\":\"x%d\",\"properties\":{\"a\":\"\\ud800\",\"b\":%d,\"c\":"
                             "\"plain text of some length\",\"d\":[%d,%d]}}";

static struct queue_row rows[ROWS];

static void make_rows(const char *form)
{
    for (int i = 0; i < ROWS; i++) {
        struct buf text = {0};
        struct queue_row *row = &rows[i];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        buf_printf(&text, form, i, i, i, i);
#pragma GCC diagnostic pop
        ensure(!text.failed);
        free((void *)(uintptr_t)row->ev.text.ptr);
        *row = (struct queue_row){.id = i + 1, .project = SLICE("demo")};
        row->ev = (struct queue_event){.project = 1,
                                       .received_ms = 1793000000123 + i,
                                       .timestamp_us = 1793000000123456 + i,
                                       .has_timestamp_sent = true,
                                       .timestamp_sent_us = 1793000000123456 + i,
                                       .type = SLICE("capture"),
                                       .event = SLICE("$pageview"),
                                       .distinct_id = SLICE("user-1234"),
                                       .source = SLICE("default"),
                                       .library = SLICE("web"),
                                       .library_version = SLICE("1.130.1"),
                                       .text = buf_slice(&text)};
    }
}

static double seconds(void)
{
    struct timespec ts;
    int r = clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    ensure(r == 0);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void measure(const char *shape, const char *form)
{
    struct buf out = {0};
    struct err e = {0};
    double best = 1e9;
    make_rows(form);
    for (int i = 0; i < ROUNDS; i++) {
        buf_clear(&out);
        double start = seconds();
        int r = clickhouse_encode_rows(rows, ROWS, &out, &e);
        double took = seconds() - start;
        ensure(r == 0);
        best = took < best ? took : best;
    }
    printf("encodebench shape=%s rows/s=%.0f text=%zu line=%zu MB/s=%.0f\n", shape, ROWS / best,
           rows[0].ev.text.len, out.len / ROWS, (double)rows[0].ev.text.len * ROWS / best / 1e6);
    buf_free(&out);
}

int main(void)
{
    measure("clean", clean);
    measure("text", prose);
    measure("mended", mended);
    return 0;
}
