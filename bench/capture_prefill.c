/* capture_prefill: a queue database as it is after years, in seconds.
 *
 *     capture_prefill tallyman|plain DIR [receipts=N] [uuid=random|v7] [quarantined=N] [queued=N]
 *
 * `tallyman`: opens DIR as the server does (so the schema is today's), makes the project `bench`,
 * puts `quarantined` events and sets them aside, then puts `queued` events, all by the store's own
 * jobs; then writes receipts of numbers below `receipts` (capture.h) by SQL, in runs of 250,000 in
 * key order, which is how the store itself moves them: so pages are as full as they would be.
 * `plain`: the schema of sqlite_queue.h with the same receipts in the same order.
 *
 * Not durable by itself: whoever copies the directory syncs the copy. */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/capture.h"
#include "bench/sqlite_queue.h"
#include "store/control.h"
#include "store/queue.h"

#define RUN       250000u
#define PUT_ROWS  5000u
#define PROJECT   1
#define FAR_CODE  27 /* "cannot parse input": why ClickHouse refuses a row */
#define MS_QUEUED INT64_C(1796040000000)

struct entry {
    uint8_t uuid[16];
    int64_t event_id;
};

static struct {
    struct capture_ids ids;
    uint64_t quarantined, queued;
    struct capture_forms *forms;
    struct store *store;
    uint64_t put; /* events put so far */
} b;

/* ---- receipts, by SQL ---- */

static void sql(sqlite3 *db, const char *text)
{
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) {
        die("%s: %s", text, sqlite3_errmsg(db));
    }
}

static void sql_number(sqlite3 *db, const char *text, int64_t number)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db, text, -1, &s, NULL) != SQLITE_OK ||
        sqlite3_bind_int64(s, 1, number) != SQLITE_OK || sqlite3_step(s) != SQLITE_DONE) {
        die("%s: %s", text, sqlite3_errmsg(db));
    }
    sqlite3_finalize(s);
}

static int compare(const void *a, const void *c)
{
    return memcmp(a, c, sizeof((struct entry *)0)->uuid);
}

static void add_run(sqlite3 *db, sqlite3_stmt *add, struct entry *run, uint64_t from, int64_t shift)
{
    uint64_t count = b.ids.prefilled - from < RUN ? b.ids.prefilled - from : RUN;
    for (uint64_t i = 0; i < count; i++) {
        capture_uuid(&b.ids, from + i, run[i].uuid);
        run[i].event_id = (int64_t)(from + i) + shift;
    }
    qsort(run, count, sizeof *run, compare);
    sql(db, "BEGIN");
    for (uint64_t i = 0; i < count; i++) {
        sqlite3_bind_int64(add, 1, PROJECT);
        sqlite3_bind_blob(add, 2, run[i].uuid, sizeof run[i].uuid, SQLITE_STATIC);
        sqlite3_bind_int64(add, 3, run[i].event_id);
        if (sqlite3_step(add) != SQLITE_DONE || sqlite3_reset(add) != SQLITE_OK) {
            die("a receipt: %s", sqlite3_errmsg(db));
        }
    }
    sql(db, "COMMIT");
}

/* Event ids of the receipts are 1 + shift and up; the counters and the next id follow. */
static void add_receipts(const char *path, const char *const after[2], int64_t shift)
{
    sqlite3 *db;
    sqlite3_stmt *add;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        die("%s: %s", path, sqlite3_errmsg(db));
    }
    sql(db, "PRAGMA journal_mode=DELETE; PRAGMA journal_mode=OFF;"
            "PRAGMA synchronous=OFF; PRAGMA cache_size=-2000000");
    if (sqlite3_prepare_v2(db, "INSERT INTO receipts(project, uuid, event_id) VALUES(?1, ?2, ?3)",
                           -1, &add, NULL) != SQLITE_OK) {
        die("receipts: %s", sqlite3_errmsg(db));
    }
    struct entry *run = must_alloc(RUN * sizeof *run);
    for (uint64_t from = 0; from < b.ids.prefilled; from += RUN) {
        add_run(db, add, run, from, 1 + shift);
    }
    free(run);
    sqlite3_finalize(add);
    sql_number(db, after[0], (int64_t)b.ids.prefilled);
    sql_number(db, after[1], (int64_t)b.ids.prefilled + shift + 1);
    sql(db, "PRAGMA journal_mode=WAL");
    if (sqlite3_close(db) != SQLITE_OK) {
        die("%s: %s", path, sqlite3_errmsg(db));
    }
}

static void set_aside(const char *path)
{
    sqlite3 *db;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        die("%s: %s", path, sqlite3_errmsg(db));
    }
    sql_number(db,
               "INSERT INTO delivery_quarantine(event_id, project, code, quarantined_ms)"
               " SELECT id, project, ?1, received_ms FROM events ORDER BY id",
               FAR_CODE);
    if (sqlite3_close(db) != SQLITE_OK) {
        die("%s: %s", path, sqlite3_errmsg(db));
    }
}

/* ---- events, by the store ---- */

static int run_project(struct store_job *job, struct store *s, struct err *e)
{
    (void)job;
    return control_create_project(s, SLICE("bench"), SLICE("Bench"), NULL, 1, e);
}

static int run_put(struct store_job *job, struct store *s, struct err *e)
{
    char text[CAPTURE_EVENT_LEN];
    struct queue_event ev = {.project = PROJECT,
                             .has_timestamp_sent = true,
                             .type = SLICE("capture"),
                             .event = SLICE("page_view"),
                             .source = SLICE("default"),
                             .library = SLICE("web"),
                             .library_version = SLICE("1.130.1"),
                             .text = slice_of(text, sizeof text)};
    int r = 0;
    (void)job;
    for (unsigned i = 0; r == 0 && i < PUT_ROWS; i++, b.put++) {
        struct queue_receipt receipt;
        uint64_t g = b.ids.prefilled + b.put;
        capture_event(b.forms, &b.ids, g, text);
        capture_uuid(&b.ids, g, ev.uuid.byte);
        ev.received_ms = MS_QUEUED + (int64_t)(b.put / CAPTURE_PER_MS);
        ev.timestamp_us = ev.received_ms * 1000;
        ev.timestamp_sent_us = ev.timestamp_us;
        ev.distinct_id = slice_of(text + CAPTURE_UUID_AT + CAPTURE_UUID_LEN + 17, 16);
        r = queue_put(s, &ev, &receipt, e);
        ensure(r < 0 || !receipt.repeat);
    }
    return r;
}

static void done(struct store_job *job, int code, const struct err *e)
{
    (void)job;
    if (code < 0) {
        die("put: %s", e->text);
    }
}

static void submit(int (*run)(struct store_job *, struct store *, struct err *))
{
    struct store_job job = {.run = run, .done = done};
    store_submit(b.store, &job);
    while (store_turn(b.store)) {
        continue;
    }
}

static void open_store(const char *dir)
{
    struct err e = {0};
    if (store_open(dir, &store_options_default, &b.store, &e) < 0) {
        die("open: %s", e.text);
    }
}

static void close_store(void)
{
    struct err e = {0};
    if (store_close(b.store, &e) < 0) {
        die("close: %s", e.text);
    }
}

static void put_events(uint64_t count)
{
    for (uint64_t until = b.put + count; b.put < until;) {
        submit(run_put);
    }
}

static void fill_tallyman(const char *dir)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, STORE_FILE);
    open_store(dir);
    submit(run_project);
    put_events(b.quarantined);
    if (b.quarantined > 0) {
        close_store();
        set_aside(path);
        open_store(dir);
    }
    put_events(b.queued);
    close_store();
    if (b.ids.prefilled > 0) {
        static const char *const after[2] = {
            "UPDATE project_counters SET receipts = receipts + ?1 WHERE project = 1",
            "UPDATE meta SET value = ?1 WHERE name = 'next_event_id'"};
        add_receipts(path, after, (int64_t)b.put);
    }
}

static void fill_plain(const char *dir)
{
    char path[4200];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/%s", dir, PLAIN_FILE);
    if (sqlite3_open(path, &db) != SQLITE_OK) {
        die("%s: %s", path, sqlite3_errmsg(db));
    }
    sql(db, plain_schema);
    if (sqlite3_close(db) != SQLITE_OK) {
        die("%s: %s", path, sqlite3_errmsg(db));
    }
    static const char *const after[2] = {
        "UPDATE counters SET receipts = ?1 WHERE project = 1",
        "UPDATE counters SET next_event_id = ?1 WHERE project = 1"};
    add_receipts(path, after, 0);
}

static bool option(const char *arg)
{
    uint64_t *const to[] = {&b.ids.prefilled, &b.quarantined, &b.queued};
    static const char *const names[] = {"receipts=", "quarantined=", "queued="};
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(arg, names[i], strlen(names[i])) == 0) {
            *to[i] = strtoull(arg + strlen(names[i]), NULL, 10);
            return *to[i] % PUT_ROWS == 0;
        }
    }
    return strncmp(arg, "uuid=", 5) == 0 && capture_kind(arg + 5, &b.ids.v7);
}

int main(int argc, char **argv)
{
    bool good = argc >= 3 && (strcmp(argv[1], "tallyman") == 0 || strcmp(argv[1], "plain") == 0);
    for (int i = 3; i < argc; i++) {
        good = good && option(argv[i]);
    }
    if (!good) {
        die("usage: capture_prefill tallyman|plain DIR [receipts=N] [uuid=random|v7] "
            "[quarantined=N] [queued=N], each N a multiple of %u",
            PUT_ROWS);
    }
    b.forms = capture_forms_new();
    if (strcmp(argv[1], "plain") == 0) {
        fill_plain(argv[2]);
    } else {
        fill_tallyman(argv[2]);
    }
    free(b.forms);
    return 0;
}
