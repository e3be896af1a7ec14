/* pg_load: the same events into PostgreSQL, N connections of one thread, one statement in flight on
 * each.
 *
 * One transaction a batch, by a prepared statement with binary parameters (arrays for batches), the
 * form that costs the server least:
 *   --batch 1   INSERT ... ON CONFLICT DO NOTHING into events, unique (source, batch_id)
 *   --batch N   INSERT into batches ... ON CONFLICT DO NOTHING, and if it was new, all events of
 * the batch by INSERT ... SELECT FROM unnest, in the same statement The payload column is jsonb
 * (validated and normalised, as Tallyman does); --column text or json makes the server do less.
 * Nothing is hashed or chained. Every answer must report the full number of rows; at the end the
 * table must hold as many events as were acknowledged. With --first the tables stay as they are,
 * batches are numbered from there on, and rows are not counted. Durability is the server's
 * configuration, set and checked by scripts/bench. Prints the line of meter.h. */
#include <getopt.h>
#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench/meter.h"
#include "bench/payload.h"

#define CONNS_MAX  1024u
#define EVENTS_MAX 512
#define STALL_MS   20000
#define OID_JSON   114u
#define OID_TEXT   25u
#define OID_JSONB  3802u

struct blob {
    char *ptr;
    int len;
};

struct pg_conn {
    PGconn *pg;
    uint64_t sent_ns;
    char batch_id[32];
    bool waiting;
};

struct pg_load {
    const char *conninfo;
    const char *column; /* jsonb, json or text */
    uint32_t conns;
    uint32_t batch;
    double seconds;
    double warmup_s;
    bool go_on;        /* with the tables that are there */
    struct blob *keys; /* one per pooled batch: a key, or an array of keys */
    struct blob *payloads;
    struct pg_conn *conn;
    uint32_t waiting;
    uint64_t seq_next;
    uint64_t measure_from_ns;
    uint64_t measure_to_ns;
    struct result result;
    struct meter meter;
};

static PGconn *pg_open(const struct pg_load *l)
{
    PGconn *pg = PQconnectdb(l->conninfo);
    if (PQstatus(pg) != CONNECTION_OK) {
        die("%s", PQerrorMessage(pg));
    }
    return pg;
}

static void pg_do(PGconn *pg, const char *sql)
{
    PGresult *r = PQexec(pg, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        die("%s: %s", sql, PQerrorMessage(pg));
    }
    PQclear(r);
}

static void pg_setup(const struct pg_load *l)
{
    char sql[1024];
    PGconn *pg = pg_open(l);
    pg_do(pg, "SET client_min_messages = warning");
    pg_do(pg, "DROP TABLE IF EXISTS events, batches");
    int n = snprintf(sql, sizeof sql,
                     "CREATE TABLE events(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                     " source text NOT NULL, batch_id text NOT NULL, stream text NOT NULL,"
                     " record_key text NOT NULL, kind text NOT NULL, payload %s NOT NULL%s)",
                     l->column, l->batch == 1 ? ", UNIQUE(source, batch_id)" : "");
    ensure(n > 0);
    pg_do(pg, sql);
    pg_do(pg, "CREATE TABLE batches(source text NOT NULL, batch_id text NOT NULL,"
              " PRIMARY KEY(source, batch_id))");
    pg_do(pg, "CHECKPOINT");
    PQfinish(pg);
}

static void pg_prepare(const struct pg_load *l, PGconn *pg)
{
    static const char one[] =
        "INSERT INTO events(source, batch_id, stream, record_key, kind, payload)"
        " VALUES('bench', $1, 's', $2, 'upserted', $3) ON CONFLICT DO NOTHING";
    static const char many[] =
        "WITH b AS (INSERT INTO batches VALUES('bench', $1) ON CONFLICT DO NOTHING RETURNING 1)"
        " INSERT INTO events(source, batch_id, stream, record_key, kind, payload)"
        " SELECT 'bench', $1, 's', k, 'upserted', p FROM b, unnest($2::text[], $3::%s[]) AS t(k, "
        "p)";
    char sql[512];
    int n = l->batch == 1 ? snprintf(sql, sizeof sql, "%s", one)
                          : snprintf(sql, sizeof sql, many, l->column);
    ensure(n > 0);
    PGresult *r = PQprepare(pg, "append", sql, 0, NULL);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        die("%s", PQerrorMessage(pg));
    }
    PQclear(r);
    if (PQsetnonblocking(pg, 1) != 0) {
        die("%s", PQerrorMessage(pg));
    }
}

static void put_u32(struct blob *b, uint32_t v)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        b->ptr[b->len++] = (char)(v >> shift & 0xffu);
    }
}

static void put_bytes(struct blob *b, const char *p, size_t n)
{
    memcpy(b->ptr + b->len, p, n);
    b->len += (int)n;
}

/* Header of a one-dimensional binary array without NULLs. */
static void put_array(struct blob *b, uint32_t element_oid, uint32_t count)
{
    put_u32(b, 1);
    put_u32(b, 0);
    put_u32(b, element_oid);
    put_u32(b, count);
    put_u32(b, 1);
}

static void build_pool(struct pg_load *l)
{
    bool jsonb = strcmp(l->column, "jsonb") == 0;
    uint32_t oid = jsonb ? OID_JSONB : strcmp(l->column, "json") == 0 ? OID_JSON : OID_TEXT;
    uint32_t count = pool_count(l->batch);
    l->keys = must_alloc(count * sizeof *l->keys);
    l->payloads = must_alloc(count * sizeof *l->payloads);
    for (uint32_t pool = 0; pool < count; pool++) {
        struct blob *keys = &l->keys[pool];
        struct blob *payloads = &l->payloads[pool];
        keys->ptr = must_alloc(64 + (size_t)l->batch * (RECORD_KEY_LEN + 4));
        payloads->ptr = must_alloc(64 + (size_t)l->batch * (PAYLOAD_LEN + 5));
        if (l->batch > 1) {
            put_array(keys, OID_TEXT, l->batch);
            put_array(payloads, oid, l->batch);
        }
        for (uint32_t i = 0; i < l->batch; i++) {
            char key[RECORD_KEY_LEN + 1];
            char payload[PAYLOAD_LEN + 1];
            record_key(payload_number(pool, l->batch, i), key);
            payload_raw(payload_number(pool, l->batch, i), payload);
            if (l->batch > 1) {
                put_u32(keys, RECORD_KEY_LEN);
                put_u32(payloads, PAYLOAD_LEN + (jsonb ? 1 : 0));
            }
            put_bytes(keys, key, RECORD_KEY_LEN);
            put_bytes(payloads, "\1", jsonb ? 1 : 0); /* version of jsonb's binary form */
            put_bytes(payloads, payload, PAYLOAD_LEN);
        }
    }
}

static void pg_flush(struct pg_conn *c)
{
    if (PQflush(c->pg) < 0) {
        die("%s", PQerrorMessage(c->pg));
    }
}

static void pg_begin(struct pg_load *l, struct pg_conn *c)
{
    static const int binary[3] = {1, 1, 1};
    uint64_t seq = l->seq_next++;
    uint32_t pool = (uint32_t)(seq % pool_count(l->batch));
    int id_len = snprintf(c->batch_id, sizeof c->batch_id, "load-%010" PRIu64, seq);
    const char *values[3] = {c->batch_id, l->keys[pool].ptr, l->payloads[pool].ptr};
    const int lengths[3] = {id_len, l->keys[pool].len, l->payloads[pool].len};
    if (!PQsendQueryPrepared(c->pg, "append", 3, values, lengths, binary, 1)) {
        die("%s", PQerrorMessage(c->pg));
    }
    c->sent_ns = now_ns();
    c->waiting = true;
    l->waiting++;
    pg_flush(c);
}

/* Takes the answer when it is whole; the next request follows it. */
static void pg_answer(struct pg_load *l, struct pg_conn *c)
{
    if (!PQconsumeInput(c->pg)) {
        die("%s", PQerrorMessage(c->pg));
    }
    if (!c->waiting || PQisBusy(c->pg)) {
        return;
    }
    bool good = false;
    for (PGresult *r = PQgetResult(c->pg); r != NULL; r = PQgetResult(c->pg)) {
        good =
            PQresultStatus(r) == PGRES_COMMAND_OK && strtoul(PQcmdTuples(r), NULL, 10) == l->batch;
        if (!good && l->result.errors == 0) {
            fprintf(stderr, "bench: refused: %s (%s rows)\n", PQresultErrorMessage(r),
                    PQcmdTuples(r));
        }
        PQclear(r);
    }
    uint64_t now = now_ns();
    c->waiting = false;
    l->waiting--;
    if (!good) {
        l->result.errors++;
    } else {
        l->result.acks_total++;
        if (now >= l->measure_from_ns && now < l->measure_to_ns) {
            l->result.acks++;
            meter_add(&l->meter, now - c->sent_ns);
        }
    }
    if (now < l->measure_to_ns) {
        pg_begin(l, c);
    }
}

static void pg_run(struct pg_load *l)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) {
        die_errno("epoll_create1");
    }
    l->conn = must_alloc(l->conns * sizeof *l->conn);
    for (uint32_t i = 0; i < l->conns; i++) {
        l->conn[i].pg = pg_open(l);
        pg_prepare(l, l->conn[i].pg);
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &l->conn[i]};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, PQsocket(l->conn[i].pg), &ev) != 0) {
            die_errno("epoll_ctl");
        }
    }
    double cpu_before_s = cpu_s();
    l->measure_from_ns = now_ns() + (uint64_t)(l->warmup_s * 1e9);
    l->measure_to_ns = l->measure_from_ns + (uint64_t)(l->seconds * 1e9);
    for (uint32_t i = 0; i < l->conns; i++) {
        pg_begin(l, &l->conn[i]);
    }
    while (l->waiting > 0) {
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
            pg_answer(l, ev[i].data.ptr);
        }
    }
    l->result.measured_s = l->seconds;
    l->result.events_per_batch = l->batch;
    l->result.cpu_used_s = cpu_s() - cpu_before_s;
    for (uint32_t i = 0; i < l->conns; i++) {
        PQfinish(l->conn[i].pg);
    }
    close(epoll_fd);
}

static void pg_check(const struct pg_load *l)
{
    PGconn *pg = pg_open(l);
    PGresult *r = PQexec(pg, "SELECT count(*) FROM events");
    if (PQresultStatus(r) != PGRES_TUPLES_OK ||
        strtoull(PQgetvalue(r, 0, 0), NULL, 10) != l->result.acks_total * l->batch) {
        die("%" PRIu64 " batches acknowledged, but %s events stored", l->result.acks_total,
            PQresultStatus(r) == PGRES_TUPLES_OK ? PQgetvalue(r, 0, 0) : "unknown");
    }
    PQclear(r);
    PQfinish(pg);
}

static void parse(int argc, char **argv, struct pg_load *l)
{
    static const struct option options[] = {
        {"conninfo", required_argument, NULL, 'i'}, {"column", required_argument, NULL, 'o'},
        {"conns", required_argument, NULL, 'c'},    {"batch", required_argument, NULL, 'b'},
        {"seconds", required_argument, NULL, 's'},  {"warmup", required_argument, NULL, 'w'},
        {"first", required_argument, NULL, 'f'},    {NULL, 0, NULL, 0},
    };
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        switch (o) {
        case 'i':
            l->conninfo = optarg;
            break;
        case 'o':
            l->column = optarg;
            break;
        case 'c':
            l->conns = (uint32_t)strtoul(optarg, NULL, 10);
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
        case 'f':
            l->go_on = true;
            l->seq_next = strtoull(optarg, NULL, 10);
            break;
        default:
            exit(2);
        }
    }
    bool column = strcmp(l->column, "jsonb") == 0 || strcmp(l->column, "json") == 0 ||
                  strcmp(l->column, "text") == 0;
    if (optind != argc || l->conninfo == NULL || l->conns == 0 || l->conns > CONNS_MAX ||
        l->batch == 0 || l->batch > 10000 || !(l->seconds > 0) || !column) {
        fprintf(stderr, "usage: pg_load --conninfo TEXT [--column jsonb|json|text] [--conns N] "
                        "[--batch EVENTS] [--seconds S] [--warmup S] [--first BATCH]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct pg_load l = {
        .column = "jsonb", .conns = 64, .batch = 1, .seconds = 8, .warmup_s = 2};
    parse(argc, argv, &l);
    if (!l.go_on) {
        pg_setup(&l);
    }
    build_pool(&l);
    pg_run(&l);
    if (!l.go_on) {
        pg_check(&l);
    }
    result_print(&l.result, &l.meter);
    return 0;
}
