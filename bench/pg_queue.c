/* pg_queue: the same events into PostgreSQL, N connections of one thread, one batch in flight on
 * each; and the receipts that are there before.
 *
 * One transaction a batch, by one prepared statement with binary arrays:
 *   INSERT INTO events(project, uuid, payload) SELECT 1, u, p FROM unnest(...) AS t(u, p)
 *   ON CONFLICT (project, uuid) DO NOTHING
 * with payload jsonb and a unique key (project, uuid): one table is both queue and receipts, no
 * counters are kept. With --fill the table is made and filled with --prefilled rows of the payload
 * {} and the key is built behind them, by COPY: smaller rows than real ones, in the peer's favour.
 * At the end the new rows must be as many as the new events among those acknowledged. Durability is
 * the server's configuration, set and counted by the scripts. Prints the line of meter.h. */
#include <getopt.h>
#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench/capture.h"

#define CONNS_MAX  1024u
#define EVENTS_MAX 512
#define STALL_MS   20000
#define OID_UUID   2950u
#define OID_JSONB  3802u
#define COPY_BYTES (1u << 20)
#define UUIDS_MAX  (64u + CAPTURE_BATCH * 20u)
#define EVENTS_LEN (64u + CAPTURE_BATCH * (CAPTURE_EVENT_LEN + 5u))

struct pg_conn {
    PGconn *pg;
    uint64_t sent_ns;
    bool waiting;
    char uuids[UUIDS_MAX];
    char events[EVENTS_LEN];
};

struct pg_queue {
    const char *conninfo;
    struct capture_ids ids;
    struct capture_forms *forms;
    uint32_t conns;
    bool fill;
    double seconds;
    double warmup_s;
    struct pg_conn *conn;
    uint32_t waiting;
    uint64_t next; /* number of the next event */
    uint64_t measure_from_ns;
    uint64_t measure_to_ns;
    struct result result;
    struct meter meter;
};

static PGconn *pg_open(const struct pg_queue *q)
{
    PGconn *pg = PQconnectdb(q->conninfo);
    if (PQstatus(pg) != CONNECTION_OK) {
        die("%s", PQerrorMessage(pg));
    }
    return pg;
}

static void pg_do(PGconn *pg, const char *sql)
{
    PGresult *r = PQexec(pg, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_COPY_IN) {
        die("%s: %s", sql, PQerrorMessage(pg));
    }
    PQclear(r);
}

static char *put_u32(char *to, uint32_t n)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        *to++ = (char)(n >> shift & 0xffu);
    }
    return to;
}

static char *put_u16(char *to, uint32_t n)
{
    *to++ = (char)(n >> 8);
    *to++ = (char)n;
    return to;
}

/* ---- the table ---- */

static void pg_copy(PGconn *pg, const char *data, size_t len)
{
    if (PQputCopyData(pg, data, (int)len) != 1) {
        die("COPY: %s", PQerrorMessage(pg));
    }
}

static void pg_fill(const struct pg_queue *q)
{
    static const char head[19] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0";
    char *room = must_alloc(COPY_BYTES);
    char *at = room;
    PGconn *pg = pg_open(q);
    pg_do(pg, "CREATE TABLE events(id bigint GENERATED ALWAYS AS IDENTITY, project integer NOT "
              "NULL, uuid uuid NOT NULL, payload jsonb NOT NULL)");
    pg_do(pg, "COPY events(project, uuid, payload) FROM STDIN (FORMAT binary)");
    pg_copy(pg, head, sizeof head);
    for (uint64_t g = 0; g < q->ids.prefilled; g++) {
        uint8_t uuid[16];
        capture_uuid(&q->ids, g, uuid);
        at = put_u32(put_u32(put_u16(at, 3), 4), 1);
        at = put_u32(at, sizeof uuid);
        memcpy(at, uuid, sizeof uuid);
        at = put_u32(at + sizeof uuid, 3);
        memcpy(at, "\1{}", 3);
        at += 3;
        if ((size_t)(at - room) > COPY_BYTES - 64) {
            pg_copy(pg, room, (size_t)(at - room));
            at = room;
        }
    }
    at = put_u16(at, 0xffff);
    pg_copy(pg, room, (size_t)(at - room));
    if (PQputCopyEnd(pg, NULL) != 1) {
        die("COPY: %s", PQerrorMessage(pg));
    }
    PGresult *r = PQgetResult(pg);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        die("COPY: %s", PQerrorMessage(pg));
    }
    PQclear(r);
    ensure(PQgetResult(pg) == NULL);
    pg_do(pg, "ALTER TABLE events ADD UNIQUE (project, uuid)");
    pg_do(pg, "VACUUM (FREEZE, ANALYZE) events"); /* else the first load would pay for it */
    pg_do(pg, "CHECKPOINT");
    PQfinish(pg);
    free(room);
}

static uint64_t pg_count(const struct pg_queue *q)
{
    PGconn *pg = pg_open(q);
    PGresult *r = PQexec(pg, "SELECT count(*) FROM events");
    if (PQresultStatus(r) != PGRES_TUPLES_OK) {
        die("count: %s", PQerrorMessage(pg));
    }
    uint64_t count = strtoull(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    PQfinish(pg);
    return count;
}

/* ---- the load ---- */

static void pg_prepare(PGconn *pg)
{
    PGresult *r = PQprepare(pg, "append",
                            "INSERT INTO events(project, uuid, payload) SELECT 1, u, p"
                            " FROM unnest($1::uuid[], $2::jsonb[]) AS t(u, p)"
                            " ON CONFLICT (project, uuid) DO NOTHING",
                            0, NULL);
    if (PQresultStatus(r) != PGRES_COMMAND_OK || PQsetnonblocking(pg, 1) != 0) {
        die("%s", PQerrorMessage(pg));
    }
    PQclear(r);
}

/* Header of a one-dimensional binary array without NULLs. */
static char *put_array(char *to, uint32_t element_oid)
{
    to = put_u32(put_u32(put_u32(to, 1), 0), element_oid);
    return put_u32(put_u32(to, CAPTURE_BATCH), 1);
}

static void pg_flush(struct pg_conn *c)
{
    if (PQflush(c->pg) < 0) {
        die("%s", PQerrorMessage(c->pg));
    }
}

static void pg_begin(struct pg_queue *q, struct pg_conn *c)
{
    static const int binary[2] = {1, 1};
    char *u = put_array(c->uuids, OID_UUID);
    char *p = put_array(c->events, OID_JSONB);
    for (unsigned i = 0; i < CAPTURE_BATCH; i++) {
        uint64_t g = capture_resolve(&q->ids, q->next++);
        u = put_u32(u, 16);
        capture_uuid(&q->ids, g, (uint8_t *)u);
        u += 16;
        p = put_u32(p, CAPTURE_EVENT_LEN + 1);
        *p++ = 1; /* version of jsonb's binary form */
        capture_event(q->forms, &q->ids, g, p);
        p += CAPTURE_EVENT_LEN;
    }
    const char *values[2] = {c->uuids, c->events};
    const int lengths[2] = {(int)(u - c->uuids), (int)(p - c->events)};
    if (!PQsendQueryPrepared(c->pg, "append", 2, values, lengths, binary, 1)) {
        die("%s", PQerrorMessage(c->pg));
    }
    c->sent_ns = now_ns();
    c->waiting = true;
    q->waiting++;
    pg_flush(c);
}

/* Takes the answer when it is whole; the next request follows it. */
static void pg_answer(struct pg_queue *q, struct pg_conn *c)
{
    if (!PQconsumeInput(c->pg)) {
        die("%s", PQerrorMessage(c->pg));
    }
    if (!c->waiting || PQisBusy(c->pg)) {
        return;
    }
    bool good = false;
    for (PGresult *r = PQgetResult(c->pg); r != NULL; r = PQgetResult(c->pg)) {
        good = PQresultStatus(r) == PGRES_COMMAND_OK;
        if (!good && q->result.errors == 0) {
            fprintf(stderr, "bench: refused: %s\n", PQresultErrorMessage(r));
        }
        PQclear(r);
    }
    uint64_t now = now_ns();
    c->waiting = false;
    q->waiting--;
    if (!good) {
        q->result.errors++;
    } else {
        q->result.acks_total++;
        if (now >= q->measure_from_ns && now < q->measure_to_ns) {
            q->result.acks++;
            meter_add(&q->meter, now - c->sent_ns);
        }
    }
    if (now < q->measure_to_ns) {
        pg_begin(q, c);
    }
}

static int pg_connect(struct pg_queue *q)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) {
        die_errno("epoll_create1");
    }
    q->conn = must_alloc(q->conns * sizeof *q->conn);
    for (uint32_t i = 0; i < q->conns; i++) {
        q->conn[i].pg = pg_open(q);
        pg_prepare(q->conn[i].pg);
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &q->conn[i]};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, PQsocket(q->conn[i].pg), &ev) != 0) {
            die_errno("epoll_ctl");
        }
    }
    return epoll_fd;
}

static void pg_run(struct pg_queue *q)
{
    int epoll_fd = pg_connect(q);
    double cpu_before_s = cpu_s();
    q->measure_from_ns = now_ns() + (uint64_t)(q->warmup_s * 1e9);
    q->measure_to_ns = q->measure_from_ns + (uint64_t)(q->seconds * 1e9);
    for (uint32_t i = 0; i < q->conns; i++) {
        pg_begin(q, &q->conn[i]);
    }
    while (q->waiting > 0) {
        struct epoll_event ev[EVENTS_MAX];
        int n = epoll_wait(epoll_fd, ev, EVENTS_MAX, STALL_MS);
        if (n == 0) {
            die("no answer for %d ms", STALL_MS);
        }
        if (n < 0 && errno != EINTR) {
            die_errno("epoll_wait");
        }
        for (int i = 0; i < n; i++) {
            pg_flush(ev[i].data.ptr);
            pg_answer(q, ev[i].data.ptr);
        }
    }
    q->result.measured_s = q->seconds;
    q->result.events_per_batch = CAPTURE_BATCH;
    q->result.cpu_used_s = cpu_s() - cpu_before_s;
    for (uint32_t i = 0; i < q->conns; i++) {
        PQfinish(q->conn[i].pg);
    }
    close(epoll_fd);
}

static bool take(int o, struct pg_queue *q)
{
    switch (o) {
    case 'i':
        q->conninfo = optarg;
        return true;
    case 'F':
        q->fill = true;
        return true;
    case 'u':
        return capture_kind(optarg, &q->ids.v7);
    case 'n':
        q->ids.prefilled = strtoull(optarg, NULL, 10);
        return true;
    case 'f':
        q->ids.first = strtoull(optarg, NULL, 10);
        return true;
    case 'c':
        q->conns = (uint32_t)strtoul(optarg, NULL, 10);
        return q->conns >= 1 && q->conns <= CONNS_MAX;
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

static void parse(int argc, char **argv, struct pg_queue *q)
{
    static const struct option options[] = {
        {"conninfo", required_argument, NULL, 'i'},
        {"fill", no_argument, NULL, 'F'},
        {"uuid", required_argument, NULL, 'u'},
        {"prefilled", required_argument, NULL, 'n'},
        {"first", required_argument, NULL, 'f'},
        {"conns", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},
        {"warmup", required_argument, NULL, 'w'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    for (int o = getopt_long(argc, argv, "", options, NULL); good && o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        good = take(o, q);
    }
    if (!good || optind != argc || q->conninfo == NULL || !(q->seconds > 0) ||
        (!q->fill && q->ids.first < q->ids.prefilled)) {
        fprintf(stderr, "usage: pg_queue --conninfo TEXT --uuid random|v7 --prefilled N"
                        " (--fill | --first EVENT) [--conns N] [--seconds S] [--warmup S]\n");
        exit(2);
    }
    q->ids.distance = capture_distance(q->conns);
    q->next = q->ids.first;
}

int main(int argc, char **argv)
{
    static struct pg_queue q = {.conns = 64, .seconds = 8, .warmup_s = 2};
    parse(argc, argv, &q);
    if (q.fill) {
        pg_fill(&q);
        return 0;
    }
    q.forms = capture_forms_new();
    uint64_t before = pg_count(&q);
    pg_run(&q);
    uint64_t stored = pg_count(&q) - before;
    uint64_t want = capture_distinct(&q.ids, q.next);
    if (q.result.errors == 0 && stored != want) {
        die("%" PRIu64 " new events acknowledged, but %" PRIu64 " stored", want, stored);
    }
    result_print(&q.result, &q.meter);
    free(q.forms);
    return 0;
}
