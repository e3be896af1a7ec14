/* sqlite_queue: the same events into a plain SQLite schema in this process (sqlite_queue.h): WAL,
 * synchronous FULL, one writer, no wire, no parsing.
 *
 *     sqlite_queue --dir DIR --uuid random|v7 --prefilled N --first EVENT [--group BATCHES] ...
 *
 * For each event: INSERT OR IGNORE of the receipt; when it was new, the event's row. Then the
 * counters. One transaction holds --group batches of 50: 1, or as many as 64 connections would
 * bring together. SQLite's cache gets the 64 MB that a server would give it. At the end the rows
 * must be as many as the new events among those committed (capture_verify looks at each). Prints
 * the line of meter.h; an acknowledgement there is a batch, a latency that of a transaction. */
#include <getopt.h>
#include <sqlite3.h>
#include <stdbool.h>

#include "bench/capture.h"
#include "bench/sqlite_queue.h"

#define CACHE_KB 65536

struct sqlite_queue {
    const char *dir;
    struct capture_ids ids;
    uint32_t group;
    double seconds;
    double warmup_s;
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *add_receipt, *add_event, *count;
    struct capture_forms *forms;
    int64_t next_id;
    uint64_t next; /* number of the next event */
    int64_t rows;  /* events stored */
};

static void check(const struct sqlite_queue *q, int rc, int want, const char *what)
{
    if (rc != want) {
        die("%s: %s", what, sqlite3_errmsg(q->db));
    }
}

static sqlite3_stmt *prepare(const struct sqlite_queue *q, const char *sql)
{
    sqlite3_stmt *s = NULL;
    check(q, sqlite3_prepare_v3(q->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL), SQLITE_OK,
          sql);
    return s;
}

static void step(const struct sqlite_queue *q, sqlite3_stmt *s)
{
    check(q, sqlite3_step(s), SQLITE_DONE, sqlite3_sql(s));
    check(q, sqlite3_reset(s), SQLITE_OK, sqlite3_sql(s));
}

static int64_t number(const struct sqlite_queue *q, const char *sql)
{
    sqlite3_stmt *s = prepare(q, sql);
    check(q, sqlite3_step(s), SQLITE_ROW, sql);
    int64_t n = sqlite3_column_int64(s, 0);
    check(q, sqlite3_finalize(s), SQLITE_OK, sql);
    return n;
}

static void open_database(struct sqlite_queue *q)
{
    char path[4200];
    char pragmas[128];
    snprintf(path, sizeof path, "%s/%s", q->dir, PLAIN_FILE);
    check(q, sqlite3_open_v2(path, &q->db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK, path);
    snprintf(pragmas, sizeof pragmas, "PRAGMA synchronous=FULL; PRAGMA cache_size=-%d", CACHE_KB);
    check(q, sqlite3_exec(q->db, pragmas, NULL, NULL, NULL), SQLITE_OK, pragmas);
    q->begin = prepare(q, "BEGIN IMMEDIATE");
    q->commit = prepare(q, "COMMIT");
    q->add_receipt = prepare(q, "INSERT OR IGNORE INTO receipts VALUES(1, ?1, ?2)");
    q->add_event = prepare(q, "INSERT INTO events VALUES(?1, 1, ?2, ?3, ?4, ?5, ?6)");
    q->count = prepare(q, "UPDATE counters SET events = events + ?1, bytes = bytes + ?2,"
                          " receipts = receipts + ?1, next_event_id = ?3 WHERE project = 1");
    q->next_id = number(q, "SELECT next_event_id FROM counters WHERE project = 1");
    q->rows = number(q, "SELECT count(*) FROM events");
}

static void put_event(struct sqlite_queue *q)
{
    char text[CAPTURE_EVENT_LEN];
    uint8_t uuid[16];
    uint64_t g = capture_resolve(&q->ids, q->next++);
    capture_uuid(&q->ids, g, uuid);
    capture_event(q->forms, &q->ids, g, text);
    sqlite3_bind_blob(q->add_receipt, 1, uuid, sizeof uuid, SQLITE_STATIC);
    sqlite3_bind_int64(q->add_receipt, 2, q->next_id);
    step(q, q->add_receipt);
    if (sqlite3_changes(q->db) == 0) {
        return;
    }
    const char *id = text + CAPTURE_UUID_AT + CAPTURE_UUID_LEN + 17;
    sqlite3_bind_int64(q->add_event, 1, q->next_id);
    sqlite3_bind_blob(q->add_event, 2, uuid, sizeof uuid, SQLITE_STATIC);
    sqlite3_bind_int64(q->add_event, 3, (int64_t)CAPTURE_MS_FIRST);
    sqlite3_bind_text(q->add_event, 4, "page_view", 9, SQLITE_STATIC);
    sqlite3_bind_text(q->add_event, 5, id, 16, SQLITE_STATIC);
    sqlite3_bind_blob(q->add_event, 6, text, sizeof text, SQLITE_STATIC);
    step(q, q->add_event);
    q->next_id++;
    q->rows++;
}

static void commit_group(struct sqlite_queue *q)
{
    int64_t rows = q->rows;
    step(q, q->begin);
    for (uint32_t i = 0; i < q->group * CAPTURE_BATCH; i++) {
        put_event(q);
    }
    sqlite3_bind_int64(q->count, 1, q->rows - rows);
    sqlite3_bind_int64(q->count, 2, (q->rows - rows) * (int64_t)CAPTURE_EVENT_LEN);
    sqlite3_bind_int64(q->count, 3, q->next_id);
    step(q, q->count);
    step(q, q->commit);
}

static void measure(struct sqlite_queue *q, struct result *r, struct meter *m)
{
    uint64_t now = now_ns();
    uint64_t from = now + (uint64_t)(q->warmup_s * 1e9);
    uint64_t to = from + (uint64_t)(q->seconds * 1e9);
    double cpu_before_s = cpu_s();
    while (now < to) {
        uint64_t start = now;
        commit_group(q);
        r->acks_total += q->group;
        now = now_ns();
        if (now >= from && now < to) {
            r->acks += q->group;
            meter_add(m, now - start);
        }
    }
    r->cpu_used_s = cpu_s() - cpu_before_s;
}

static void check_count(const struct sqlite_queue *q, int64_t before)
{
    int64_t want = before + (int64_t)capture_distinct(&q->ids, q->next);
    int64_t have = number(q, "SELECT count(*) FROM events");
    if (have != want) {
        die("%lld new events committed, but %lld stored", (long long)want, (long long)have);
    }
}

static bool take(int o, struct sqlite_queue *q)
{
    switch (o) {
    case 'd':
        q->dir = optarg;
        return true;
    case 'u':
        return capture_kind(optarg, &q->ids.v7);
    case 'n':
        q->ids.prefilled = strtoull(optarg, NULL, 10);
        return true;
    case 'f':
        q->ids.first = strtoull(optarg, NULL, 10);
        return true;
    case 'g':
        q->group = (uint32_t)strtoul(optarg, NULL, 10);
        return q->group >= 1 && q->group <= 4096;
    case 's':
        q->seconds = strtod(optarg, NULL);
        return true;
    case 'w':
        q->warmup_s = strtod(optarg, NULL);
        return true;
    default:
        return false;
    }
}

static void parse(int argc, char **argv, struct sqlite_queue *q)
{
    static const struct option options[] = {
        {"dir", required_argument, NULL, 'd'},    {"uuid", required_argument, NULL, 'u'},
        {"first", required_argument, NULL, 'f'},  {"prefilled", required_argument, NULL, 'n'},
        {"group", required_argument, NULL, 'g'},  {"seconds", required_argument, NULL, 's'},
        {"warmup", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0},
    };
    bool good = true;
    for (int o = getopt_long(argc, argv, "", options, NULL); good && o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        good = take(o, q);
    }
    if (!good || optind != argc || q->dir == NULL || !(q->seconds > 0) ||
        q->ids.first < q->ids.prefilled) {
        fprintf(stderr, "usage: sqlite_queue --dir DIR --uuid random|v7 --prefilled N --first EVENT"
                        " [--group BATCHES] [--seconds S] [--warmup S]\n");
        exit(2);
    }
    q->ids.distance = capture_distance(q->group);
    q->next = q->ids.first;
}

int main(int argc, char **argv)
{
    static struct sqlite_queue q = {.group = 1, .seconds = 8, .warmup_s = 2};
    static struct meter meter;
    parse(argc, argv, &q);
    q.forms = capture_forms_new();
    open_database(&q);
    struct result r = {.measured_s = q.seconds, .events_per_batch = CAPTURE_BATCH};
    int64_t before = q.rows;
    measure(&q, &r, &meter);
    check_count(&q, before);
    result_print(&r, &meter);
    sqlite3_stmt *const all[] = {q.begin, q.commit, q.add_receipt, q.add_event, q.count};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sqlite3_finalize(all[i]);
    }
    check(&q, sqlite3_close(q.db), SQLITE_OK, "close");
    free(q.forms);
    return 0;
}
