/* The oracle: what is in the database, row by row, against the ledger. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "store/verify.h"
#include "tests/lib/store_kit_internal.h"

/* What was found of one event. */
struct found {
    int64_t payload, receipt; /* its id, 0: not there */
};

struct finding {
    struct found ev[SKIT_EVENTS];
    const struct skit_ledger *ledger;
    uint64_t payloads, bytes, receipts;
    char *why;
};

static bool fail(char why[SKIT_WHY], const char *what, uint32_t number, int64_t a, int64_t b)
{
    (void)snprintf(why, SKIT_WHY, "%s: event number %u, %lld, %lld", what, number, (long long)a,
                   (long long)b);
    return false;
}

/* Which event a row's uuid belongs to; SKIT_EVENTS: none of ours. */
static uint32_t number_of(const void *uuid, int n)
{
    uint32_t number = n == 16 ? ((const uint8_t *)uuid)[15] : SKIT_EVENTS;
    if (number >= SKIT_EVENTS) {
        return SKIT_EVENTS;
    }
    struct uuid u = skit_uuid(number);
    return memcmp(u.byte, uuid, sizeof u.byte) == 0 ? number : SKIT_EVENTS;
}

static bool same_text(uint32_t number, const void *text, int n)
{
    char wanted[SKIT_TEXT_MAX];
    size_t length = skit_text(number, wanted);
    return n == (int)length && memcmp(text, wanted, length) == 0;
}

static bool take_payload(struct finding *f, sqlite3_stmt *st)
{
    int64_t id = sqlite3_column_int64(st, 0);
    uint32_t n = number_of(sqlite3_column_blob(st, 2), sqlite3_column_bytes(st, 2));
    if (n == SKIT_EVENTS) {
        return fail(f->why, "a payload that nobody sent", 0, id, 0);
    }
    if (f->ev[n].payload != 0) {
        return fail(f->why, "a payload twice", n, id, f->ev[n].payload);
    }
    if (sqlite3_column_int64(st, 1) != f->ledger->project[skit_project_of(n)].id) {
        return fail(f->why, "a payload in another project", n, id, 0);
    }
    if (!same_text(n, sqlite3_column_blob(st, 3), sqlite3_column_bytes(st, 3))) {
        return fail(f->why, "a payload has other bytes", n, id, 0);
    }
    if (sqlite3_column_int64(st, 4) != INT64_C(1800000000000) + n) {
        return fail(f->why, "a payload has another time of receipt", n, id, 0);
    }
    f->ev[n].payload = id;
    f->payloads++;
    f->bytes += (uint64_t)sqlite3_column_int64(st, 5);
    return true;
}

static bool take_receipt(struct finding *f, sqlite3_stmt *st)
{
    int64_t id = sqlite3_column_int64(st, 0);
    uint32_t n = number_of(sqlite3_column_blob(st, 2), sqlite3_column_bytes(st, 2));
    if (n == SKIT_EVENTS) {
        return fail(f->why, "a receipt that nobody got", 0, id, 0);
    }
    if (f->ev[n].receipt != 0 && f->ev[n].receipt != id) {
        return fail(f->why, "two receipts", n, id, f->ev[n].receipt);
    }
    f->receipts += f->ev[n].receipt == 0;
    f->ev[n].receipt = id;
    return true;
}

static bool each_row(struct store *s, const char *sql, struct finding *f,
                     bool (*take)(struct finding *f, sqlite3_stmt *st))
{
    sqlite3_stmt *st = NULL;
    bool ok = true;
    int rc = sqlite3_prepare_v2(store_db(s), sql, -1, &st, NULL);
    while (ok && (rc == SQLITE_OK || rc == SQLITE_ROW)) {
        rc = sqlite3_step(st);
        ok = rc != SQLITE_ROW || take(f, st);
    }
    if (ok && rc != SQLITE_DONE) {
        ok = false;
        (void)snprintf(f->why, SKIT_WHY, "%s: %s", sql, sqlite3_errmsg(store_db(s)));
    }
    (void)sqlite3_finalize(st);
    return ok;
}

static bool number(struct store *s, const char *sql, int64_t *out, char why[SKIT_WHY])
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(store_db(s), sql, -1, &st, NULL);
    rc = rc == SQLITE_OK ? sqlite3_step(st) : rc;
    *out = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        (void)snprintf(why, SKIT_WHY, "%s: %s", sql, sqlite3_errmsg(store_db(s)));
    }
    (void)sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE;
}

/* ---- events ---- */

/* One event as found. What may be either way is settled by the caller. */
static bool check_event(const struct skit_ledger *l, uint32_t n, const struct found *f,
                        char why[SKIT_WHY])
{
    const struct skit_event *ev = &l->ev[n];
    if (f->payload != 0 && f->payload != f->receipt) {
        return fail(why, "a payload without its receipt", n, f->payload, f->receipt);
    }
    if (ev->put == SKIT_NONE && f->receipt != 0) {
        return fail(why, "an event that was undone is there", n, f->receipt, 0);
    }
    if (ev->put == SKIT_DOUBT && (f->receipt != 0) != (f->payload != 0)) {
        return fail(why, "half of an event", n, f->receipt, f->payload);
    }
    if (ev->put == SKIT_DOUBT && f->receipt != 0 && f->receipt <= l->id_max) {
        return fail(why, "an id was used again", n, f->receipt, l->id_max);
    }
    if (ev->put != SKIT_ACKED) {
        return true;
    }
    if (f->receipt != ev->id) {
        return fail(why, "an acknowledged event has another receipt", n, f->receipt, ev->id);
    }
    if (ev->delivered == SKIT_NONE && f->payload == 0) {
        return fail(why, "an acknowledged event has no payload", n, ev->id, 0);
    }
    if (ev->delivered == SKIT_ACKED && f->payload != 0) {
        return fail(why, "a delivered event is queued", n, ev->id, 0);
    }
    return true;
}

/* The doubtful events of a job: all there or none. */
static bool check_jobs(const struct skit_ledger *l, const struct finding *f, char why[SKIT_WHY])
{
    for (uint32_t a = 0; a < SKIT_EVENTS; a++) {
        for (uint32_t b = a + 1; l->ev[a].put == SKIT_DOUBT && b < SKIT_EVENTS; b++) {
            if (l->ev[b].put == SKIT_DOUBT && l->ev[a].job == l->ev[b].job &&
                (f->ev[a].receipt != 0) != (f->ev[b].receipt != 0)) {
                return fail(why, "half of a job", a, b, l->ev[a].job);
            }
        }
    }
    return true;
}

static void settle_events(struct skit_ledger *l, const struct finding *f)
{
    for (uint32_t n = 0; n < SKIT_EVENTS; n++) {
        struct skit_event *ev = &l->ev[n];
        if (ev->put == SKIT_DOUBT) {
            ev->put = f->ev[n].receipt != 0 ? SKIT_ACKED : SKIT_NONE;
            ev->id = f->ev[n].receipt;
            l->id_max = ev->id > l->id_max ? ev->id : l->id_max;
        }
        if (ev->delivered == SKIT_DOUBT) {
            ev->delivered = f->ev[n].payload == 0 ? SKIT_ACKED : SKIT_NONE;
        }
    }
}

/* ---- the rest ---- */

static bool check_projects(struct store *s, struct skit_ledger *l, bool settle, char why[SKIT_WHY])
{
    static const char *const names[SKIT_PROJECTS] = {"first", "second"};
    for (uint32_t i = 0; i < SKIT_PROJECTS; i++) {
        struct skit_project *p = &l->project[i];
        const struct project *is = control_project(store_control(s), slice_cstr(names[i]));
        bool bad = p->state == SKIT_ACKED ? is == NULL || (p->id != 0 && is->id != p->id)
                                          : p->state == SKIT_NONE && is != NULL;
        if (bad) {
            return fail(why, "a project is not as it was told", i, is != NULL ? is->id : 0, p->id);
        }
        if (is != NULL && control_key_at(store_control(s), is->id, 0) == NULL) {
            return fail(why, "a project without its capture key", i, is->id, 0);
        }
        if (settle && is != NULL) {
            *p = (struct skit_project){SKIT_ACKED, is->id};
        } else if (settle) {
            p->state = SKIT_NONE;
        }
    }
    if (l->key_state == SKIT_ACKED &&
        control_key(store_control(s), slice_cstr(l->key), NULL) == NULL) {
        return fail(why, "a key is gone", 0, 0, 0);
    }
    return true;
}

static bool check_status(struct store *s, struct skit_ledger *l, bool settle,
                         const struct finding *f, char why[SKIT_WHY])
{
    struct store_status st;
    int64_t kept;
    int64_t cursor;
    store_get_status(s, &st);
    if (st.pending_events != f->payloads || st.pending_bytes != f->bytes ||
        st.receipts != f->receipts || st.quarantined != 0) {
        (void)snprintf(why, SKIT_WHY,
                       "status: %" PRIu64 " events of %" PRIu64 " bytes, %" PRIu64
                       " receipts; there are %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                       st.pending_events, st.pending_bytes, st.receipts, f->payloads, f->bytes,
                       f->receipts);
        return false;
    }
    if (!number(s, "SELECT count(*) FROM rejected", &kept, why) ||
        !number(s, "SELECT after_id FROM delivery_cursor", &cursor, why)) {
        return false;
    }
    if (st.rejected != (uint64_t)kept || st.rejected < l->rejected ||
        st.rejected > l->rejected + l->rejected_doubt) {
        return fail(why, "rejected events", 0, kept, (int64_t)l->rejected);
    }
    cursor = cursor == 0 ? -1 : cursor;
    if (cursor != l->cursor && (l->cursor_doubt < 0 || cursor != l->cursor_doubt)) {
        return fail(why, "the cursor", 0, cursor, l->cursor);
    }
    if (settle) {
        l->rejected = st.rejected;
        l->rejected_doubt = 0;
        l->cursor = cursor;
        l->cursor_doubt = -1;
    }
    return true;
}

bool skit_check(struct store *s, struct skit_ledger *l, bool settle, char why[SKIT_WHY])
{
    struct finding *f = calloc(1, sizeof *f);
    ensure(f != NULL);
    if (l->lie[0] != '\0') {
        memcpy(why, l->lie, SKIT_WHY);
        free(f);
        return false;
    }
    f->ledger = l;
    f->why = why;
    bool ok =
        check_projects(s, l, settle, why) &&
        each_row(s,
                 "SELECT id, project, uuid, text, received_ms, length(text) + length(envelope)"
                 " FROM events",
                 f, take_payload) &&
        each_row(s, "SELECT event_id, project, uuid FROM receipts", f, take_receipt) &&
        each_row(s, "SELECT event_id, project, uuid FROM receipts_recent", f, take_receipt);
    for (uint32_t n = 0; ok && n < SKIT_EVENTS; n++) {
        ok = check_event(l, n, &f->ev[n], why);
    }
    ok = ok && check_jobs(l, f, why) && check_status(s, l, settle, f, why);
    if (ok && settle) {
        settle_events(l, f);
    }
    free(f);
    return ok;
}

bool skit_check_repeats(struct store *s, struct skit_ledger *l, char why[SKIT_WHY])
{
    for (uint32_t n = 0; n < SKIT_EVENTS;) {
        uint32_t count = 0;
        while (n + count < SKIT_EVENTS && l->ev[n + count].put == SKIT_ACKED) {
            count++;
        }
        int code =
            count == 0
                ? 0
                : skit_one(s, l, (struct skit_job){.kind = SKIT_PUT, .from = n, .count = count});
        if (code != 0) {
            return fail(why, "a repeat was refused", n, code, count);
        }
        n += count + 1;
    }
    if (l->lie[0] != '\0') {
        memcpy(why, l->lie, SKIT_WHY);
        return false;
    }
    return true;
}

/* ---- through the sink's eyes ---- */

static bool check_row(const struct queue_row *row, const struct skit_ledger *l,
                      bool seen[SKIT_EVENTS], char why[SKIT_WHY])
{
    uint32_t n = number_of(row->ev.uuid.byte, 16);
    if (n == SKIT_EVENTS || l->ev[n].put != SKIT_ACKED || l->ev[n].delivered != SKIT_NONE ||
        l->ev[n].id != row->id) {
        return fail(why, "selected, but not queued", n, row->id, 0);
    }
    if (seen[n]) {
        return fail(why, "selected twice", n, row->id, 0);
    }
    seen[n] = true;
    return same_text(n, row->ev.text.ptr, (int)row->ev.text.len)
               ? true
               : fail(why, "selected with other bytes", n, row->id, 0);
}

static bool select_all(struct store_reader *r, const struct skit_ledger *l, bool seen[SKIT_EVENTS],
                       char why[SKIT_WHY])
{
    struct queue_selection sel = {.events_max = 2 * SKIT_EVENTS, .bytes_soft = UINT64_C(1) << 30};
    struct queue_rows rows;
    struct err e = {0};
    int code = queue_select(r, &sel, &rows, &e);
    bool ok = code == 0;
    if (!ok) {
        (void)snprintf(why, SKIT_WHY, "select: %s", e.text);
        return false;
    }
    for (size_t i = 0; ok && i < rows.count; i++) {
        ok = check_row(&rows.row[i], l, seen, why);
    }
    queue_rows_free(&rows);
    return ok;
}

bool skit_check_selection(const char *data, const struct skit_ledger *l, char why[SKIT_WHY])
{
    bool seen[SKIT_EVENTS] = {false};
    struct store_reader *r;
    struct err e = {0};
    if (store_reader_open(data, &r, &e) != 0) {
        (void)snprintf(why, SKIT_WHY, "open a reader: %s", e.text);
        return false;
    }
    bool ok = select_all(r, l, seen, why);
    store_reader_close(r);
    for (uint32_t n = 0; ok && n < SKIT_EVENTS; n++) {
        if (l->ev[n].put == SKIT_ACKED && l->ev[n].delivered == SKIT_NONE && !seen[n]) {
            ok = fail(why, "queued, but not selected", n, l->ev[n].id, 0);
        }
    }
    return ok;
}

static void first_violation(void *ctx, const char *text)
{
    char *why = ctx;
    if (why[0] == '\0') {
        (void)snprintf(why, SKIT_WHY, "verify: %s", text);
    }
}

bool skit_check_verify(const char *data, char why[SKIT_WHY])
{
    struct store_verify_result result;
    struct err e = {0};
    why[0] = '\0';
    int r = store_verify(data, first_violation, why, &result, &e);
    if (r != 0) {
        (void)snprintf(why, SKIT_WHY, "verify: %s", e.text);
    }
    return r == 0 && result.violations == 0;
}
