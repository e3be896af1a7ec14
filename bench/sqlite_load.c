/* sqlite_load: the same batches into SQLite in this process, one transaction a batch, WAL,
 * synchronous FULL.
 *
 * What SQLite is asked for is the storing part of Tallyman's job: a batch key that can be used
 * once, then its events in order. It validates no JSON, hashes nothing and needs no network: one
 * writer, no wire. At the end the number of stored events must be the number of committed ones.
 * Prints the line of meter.h. */
#include <getopt.h>
#include <sqlite3.h>
#include <stdbool.h>

#include "bench/meter.h"
#include "bench/payload.h"

struct sqlite_load {
    const char *dir;
    uint32_t batch;
    double seconds;
    double warmup_s;
    sqlite3 *db;
    sqlite3_stmt *begin;
    sqlite3_stmt *commit;
    sqlite3_stmt *add_batch;
    sqlite3_stmt *add_event;
    char (*payload)[PAYLOAD_LEN + 1];
    char (*key)[RECORD_KEY_LEN + 1];
};

static void check(const struct sqlite_load *l, int rc, int want, const char *what)
{
    if (rc != want) {
        die("%s: %s", what, sqlite3_errmsg(l->db));
    }
}

static sqlite3_stmt *prepare(const struct sqlite_load *l, const char *sql)
{
    sqlite3_stmt *s = NULL;
    check(l, sqlite3_prepare_v3(l->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s, NULL), SQLITE_OK,
          sql);
    return s;
}

static void step(const struct sqlite_load *l, sqlite3_stmt *s)
{
    check(l, sqlite3_step(s), SQLITE_DONE, sqlite3_sql(s));
    check(l, sqlite3_reset(s), SQLITE_OK, sqlite3_sql(s));
}

static void open_database(struct sqlite_load *l)
{
    static const char schema[] =
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "CREATE TABLE batches(source TEXT NOT NULL, batch_id TEXT NOT NULL, events INTEGER NOT "
        "NULL,"
        " PRIMARY KEY(source, batch_id)) WITHOUT ROWID;"
        "CREATE TABLE events(id INTEGER PRIMARY KEY, source TEXT NOT NULL, batch_id TEXT NOT NULL,"
        " stream TEXT NOT NULL, record_key TEXT NOT NULL, kind TEXT NOT NULL,"
        " payload TEXT NOT NULL);";
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/events.sqlite", l->dir);
    if (n < 0 || (size_t)n >= sizeof path) {
        die("a path too long");
    }
    check(l, sqlite3_open(path, &l->db), SQLITE_OK, path);
    check(l, sqlite3_exec(l->db, schema, NULL, NULL, NULL), SQLITE_OK, "schema");
    l->begin = prepare(l, "BEGIN IMMEDIATE");
    l->commit = prepare(l, "COMMIT");
    l->add_batch = prepare(l, "INSERT INTO batches VALUES('bench', ?1, ?2)");
    l->add_event = prepare(l, "INSERT INTO events(source, batch_id, stream, record_key, kind,"
                              " payload) VALUES('bench', ?1, 's', ?2, 'upserted', ?3)");
}

static void build_events(struct sqlite_load *l)
{
    uint32_t count = pool_count(l->batch) * l->batch;
    l->payload = must_alloc(count * sizeof *l->payload);
    l->key = must_alloc(count * sizeof *l->key);
    for (uint32_t i = 0; i < count; i++) {
        payload_raw(i, l->payload[i]);
        record_key(i, l->key[i]);
    }
}

static void commit_batch(const struct sqlite_load *l, uint64_t seq)
{
    char id[32];
    int id_len = snprintf(id, sizeof id, "load-%010" PRIu64, seq);
    step(l, l->begin);
    check(l, sqlite3_bind_text(l->add_batch, 1, id, id_len, SQLITE_STATIC), SQLITE_OK, "bind");
    check(l, sqlite3_bind_int64(l->add_batch, 2, l->batch), SQLITE_OK, "bind");
    step(l, l->add_batch);
    check(l, sqlite3_bind_text(l->add_event, 1, id, id_len, SQLITE_STATIC), SQLITE_OK, "bind");
    uint32_t pool = (uint32_t)(seq % pool_count(l->batch));
    for (uint32_t i = 0; i < l->batch; i++) {
        uint32_t number = payload_number(pool, l->batch, i);
        check(l, sqlite3_bind_text(l->add_event, 2, l->key[number], RECORD_KEY_LEN, SQLITE_STATIC),
              SQLITE_OK, "bind");
        check(l, sqlite3_bind_text(l->add_event, 3, l->payload[number], PAYLOAD_LEN, SQLITE_STATIC),
              SQLITE_OK, "bind");
        step(l, l->add_event);
    }
    step(l, l->commit);
}

static void check_count(const struct sqlite_load *l, uint64_t committed)
{
    sqlite3_stmt *s = prepare(l, "SELECT count(*) FROM events");
    check(l, sqlite3_step(s), SQLITE_ROW, "count");
    uint64_t stored = (uint64_t)sqlite3_column_int64(s, 0);
    if (stored != committed * l->batch) {
        die("%" PRIu64 " batches committed, but %" PRIu64 " events stored", committed, stored);
    }
    check(l, sqlite3_finalize(s), SQLITE_OK, "finalize");
}

static void parse(int argc, char **argv, struct sqlite_load *l)
{
    static const struct option options[] = {
        {"dir", required_argument, NULL, 'd'},
        {"batch", required_argument, NULL, 'b'},
        {"seconds", required_argument, NULL, 's'},
        {"warmup", required_argument, NULL, 'w'},
        {NULL, 0, NULL, 0},
    };
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        switch (o) {
        case 'd':
            l->dir = optarg;
            break;
        case 'b':
            l->batch = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            l->seconds = strtod(optarg, NULL);
            break;
        case 'w':
            l->warmup_s = strtod(optarg, NULL);
            break;
        default:
            exit(2);
        }
    }
    if (optind != argc || l->dir == NULL || l->batch == 0 || l->batch > 10000 ||
        !(l->seconds > 0)) {
        fprintf(stderr,
                "usage: sqlite_load --dir DIR [--batch EVENTS] [--seconds S] [--warmup S]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct sqlite_load l = {.batch = 100, .seconds = 8, .warmup_s = 2};
    static struct meter meter;
    parse(argc, argv, &l);
    open_database(&l);
    build_events(&l);
    struct result r = {.measured_s = l.seconds, .events_per_batch = l.batch};
    double cpu_before_s = cpu_s();
    uint64_t now = now_ns();
    uint64_t from = now + (uint64_t)(l.warmup_s * 1e9);
    uint64_t to = from + (uint64_t)(l.seconds * 1e9);
    while (now < to) {
        uint64_t start = now;
        commit_batch(&l, r.acks_total);
        r.acks_total++;
        now = now_ns();
        if (now >= from && now < to) {
            r.acks++;
            meter_add(&meter, now - start);
        }
    }
    r.cpu_used_s = cpu_s() - cpu_before_s;
    check_count(&l, r.acks_total);
    result_print(&r, &meter);
    sqlite3_finalize(l.begin);
    sqlite3_finalize(l.commit);
    sqlite3_finalize(l.add_batch);
    sqlite3_finalize(l.add_event);
    check(&l, sqlite3_close(l.db), SQLITE_OK, "close");
    return 0;
}
