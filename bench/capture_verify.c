/* capture_verify: is everything that was acknowledged in the database, once, as it was sent?
 *
 *     capture_verify FILE --uuid random|v7 --prefilled N --load FIRST:BATCHES:CONNS ...
 *
 * Each --load names what one load was acknowledged: BATCHES batches of 50 from event number FIRST
 * on. With capture.h that gives every new event's uuid and text. The database (Tallyman's or the
 * plain schema's; its server has ended) must hold
 *   - in `events`, exactly these events, each once, text byte for byte,
 *   - in `receipts` (or receipts_recent) each uuid with its event's id; none twice with another id,
 *   - as many receipts as were there before and as many as are new,
 *   - in the counters, these numbers.
 * Prints one line and ends with 0, or says what is wrong and ends with 1. */
#include <getopt.h>
#include <sqlite3.h>
#include <stdlib.h>

#include "bench/capture.h"

#define LOADS_MAX 64u
#define PROJECT   1

struct expected {
    uint8_t uuid[16];
    uint64_t number;
    int64_t event_id; /* 0: not seen */
    uint8_t load;
    bool receipt;
};

static struct {
    const char *path;
    sqlite3 *db;
    bool v7;
    uint64_t prefilled;
    struct capture_ids load[LOADS_MAX];
    uint64_t end[LOADS_MAX]; /* event numbers below are acknowledged */
    unsigned loads;
    struct expected *entry;
    uint64_t count;
    uint32_t *slot; /* position + 1 */
    uint64_t slots;
    struct capture_forms *forms;
    bool tallyman;
} v;

static uint64_t hash(const uint8_t uuid[16])
{
    uint64_t state;
    memcpy(&state, uuid + 8, sizeof state);
    uint64_t high;
    memcpy(&high, uuid, sizeof high);
    state ^= high;
    return payload_next(&state);
}

static struct expected *find(const uint8_t *uuid)
{
    for (uint64_t at = hash(uuid) % v.slots; v.slot[at] != 0; at = (at + 1) % v.slots) {
        struct expected *x = &v.entry[v.slot[at] - 1];
        if (memcmp(x->uuid, uuid, 16) == 0) {
            return x;
        }
    }
    return NULL;
}

static void expect(unsigned load, uint64_t number)
{
    struct expected *x = &v.entry[v.count];
    *x = (struct expected){.number = number, .load = (uint8_t)load};
    capture_uuid(&v.load[load], number, x->uuid);
    if (find(x->uuid) != NULL) {
        die("number %" PRIu64 " was sent by two loads", number);
    }
    uint64_t at = hash(x->uuid) % v.slots;
    while (v.slot[at] != 0) {
        at = (at + 1) % v.slots;
    }
    v.slot[at] = (uint32_t)++v.count;
}

static void build(void)
{
    uint64_t most = 1;
    for (unsigned i = 0; i < v.loads; i++) {
        most += v.end[i] - v.load[i].first;
    }
    if (most > UINT32_MAX / 2) {
        die("too many events to look at");
    }
    v.slots = most * 2;
    v.entry = must_alloc(most * sizeof *v.entry);
    v.slot = must_alloc(v.slots * sizeof *v.slot);
    for (unsigned i = 0; i < v.loads; i++) {
        for (uint64_t g = v.load[i].first; g < v.end[i]; g++) {
            if (capture_resolve(&v.load[i], g) == g) {
                expect(i, g);
            }
        }
    }
}

/* ---- the database ---- */

static sqlite3_stmt *prepare(const char *sql)
{
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(v.db, sql, -1, &s, NULL) != SQLITE_OK) {
        die("%s: %s", sql, sqlite3_errmsg(v.db));
    }
    return s;
}

static bool step(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        die("%s: %s", sqlite3_sql(s), sqlite3_errmsg(v.db));
    }
    return rc == SQLITE_ROW;
}

static int64_t number(const char *sql)
{
    sqlite3_stmt *s = prepare(sql);
    int64_t n = step(s) ? sqlite3_column_int64(s, 0) : 0;
    sqlite3_finalize(s);
    return n;
}

static const uint8_t *uuid_column(sqlite3_stmt *s, int column)
{
    const uint8_t *uuid = sqlite3_column_blob(s, column);
    if (uuid == NULL || sqlite3_column_bytes(s, column) != 16) {
        die("a uuid that is none");
    }
    return uuid;
}

static void check_events(void)
{
    sqlite3_stmt *s = prepare("SELECT id, project, uuid, text FROM events ORDER BY id");
    char text[CAPTURE_EVENT_LEN];
    uint64_t rows = 0;
    for (; step(s); rows++) {
        int64_t id = sqlite3_column_int64(s, 0);
        struct expected *x = find(uuid_column(s, 2));
        if (x == NULL || sqlite3_column_int64(s, 1) != PROJECT) {
            die("event %lld was never acknowledged", (long long)id);
        }
        if (x->event_id != 0) {
            die("events %lld and %lld have one uuid", (long long)x->event_id, (long long)id);
        }
        x->event_id = id;
        capture_event(v.forms, &v.load[x->load], x->number, text);
        if (sqlite3_column_bytes(s, 3) != (int)sizeof text ||
            memcmp(sqlite3_column_blob(s, 3), text, sizeof text) != 0) {
            die("event %lld: another text than was sent", (long long)id);
        }
    }
    sqlite3_finalize(s);
    if (rows != v.count) {
        die("%" PRIu64 " events are missing of %" PRIu64, v.count - rows, v.count);
    }
}

static void saw_receipt(struct expected *x, int64_t id)
{
    if (x->event_id != id) {
        die("number %" PRIu64 ": its receipt says event %lld, it is %lld", x->number, (long long)id,
            (long long)x->event_id);
    }
    x->receipt = true;
}

static void check_receipts(void)
{
    sqlite3_stmt *find_one =
        prepare("SELECT event_id FROM receipts WHERE project = 1 AND uuid = ?1");
    uint64_t missing = 0;
    if (v.tallyman) {
        sqlite3_stmt *s = prepare("SELECT uuid, event_id FROM receipts_recent");
        while (step(s)) {
            struct expected *x = find(uuid_column(s, 0));
            if (x != NULL) {
                saw_receipt(x, sqlite3_column_int64(s, 1));
            }
        }
        sqlite3_finalize(s);
    }
    for (uint64_t i = 0; i < v.count; i++) {
        struct expected *x = &v.entry[i];
        sqlite3_bind_blob(find_one, 1, x->uuid, 16, SQLITE_STATIC);
        if (step(find_one)) {
            saw_receipt(x, sqlite3_column_int64(find_one, 0));
        }
        sqlite3_reset(find_one);
        missing += x->receipt ? 0u : 1u;
    }
    sqlite3_finalize(find_one);
    if (missing != 0) {
        die("%" PRIu64 " receipts are missing", missing);
    }
}

static void check_counts(void)
{
    int64_t all = v.tallyman
                      ? number("SELECT (SELECT count(*) FROM receipts) + (SELECT count(*) FROM"
                               " receipts_recent c WHERE NOT EXISTS(SELECT 1 FROM receipts r WHERE"
                               " r.project = c.project AND r.uuid = c.uuid))")
                      : number("SELECT count(*) FROM receipts");
    int64_t counted = number(v.tallyman ? "SELECT receipts FROM project_counters"
                                        : "SELECT receipts FROM counters");
    int64_t pending = number(v.tallyman ? "SELECT pending_events FROM project_counters"
                                        : "SELECT events FROM counters");
    int64_t want = (int64_t)(v.prefilled + v.count);
    if (all != want || counted != want || pending != (int64_t)v.count) {
        die("%lld receipts, %lld counted, of %lld; %lld events counted of %" PRIu64, (long long)all,
            (long long)counted, (long long)want, (long long)pending, v.count);
    }
}

/* ---- what was acknowledged ---- */

static bool add_load(const char *text)
{
    char *end;
    uint64_t first = strtoull(text, &end, 10);
    if (*end != ':' || v.loads == LOADS_MAX) {
        return false;
    }
    uint64_t batches = strtoull(end + 1, &end, 10);
    if (*end != ':') {
        return false;
    }
    uint32_t conns = (uint32_t)strtoul(end + 1, &end, 10);
    v.load[v.loads] = (struct capture_ids){.first = first, .distance = capture_distance(conns)};
    v.end[v.loads++] = first + batches * CAPTURE_BATCH;
    return *end == '\0';
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"uuid", required_argument, NULL, 'u'},
        {"prefilled", required_argument, NULL, 'n'},
        {"load", required_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    for (int o = getopt_long(argc, argv, "", options, NULL); good && o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        if (o == 'u') {
            good = capture_kind(optarg, &v.v7);
        } else if (o == 'n') {
            v.prefilled = strtoull(optarg, NULL, 10);
        } else {
            good = o == 'l' && add_load(optarg);
        }
    }
    if (!good || optind != argc - 1) {
        fprintf(stderr, "usage: capture_verify FILE --uuid random|v7 --prefilled N"
                        " --load FIRST:BATCHES:CONNS ...\n");
        exit(2);
    }
    v.path = argv[optind];
    for (unsigned i = 0; i < v.loads; i++) {
        v.load[i].v7 = v.v7;
        v.load[i].prefilled = v.prefilled;
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    v.forms = capture_forms_new();
    build();
    if (sqlite3_open_v2(v.path, &v.db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        die("%s: %s", v.path, sqlite3_errmsg(v.db));
    }
    v.tallyman = number("SELECT count(*) FROM sqlite_master WHERE name = 'receipts_recent'") != 0;
    check_events();
    check_receipts();
    check_counts();
    printf("verified events=%" PRIu64 " receipts=%" PRIu64 "\n", v.count, v.prefilled + v.count);
    sqlite3_close(v.db);
    free(v.entry);
    free(v.slot);
    free(v.forms);
    return 0;
}
