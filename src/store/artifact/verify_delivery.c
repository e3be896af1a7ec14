/* delivery.sqlite against itself and the files.
 *
 * It is opened as the queue's database is (store/verify.c): through a VFS that changes nothing,
 * again when the deliverer came or went meanwhile. Rows are taken in slices, each a view of its
 * own, and files are looked at between two of them, so that no view waits for a disk.
 *
 * A row names files that were synced before it was written and that stay, so a row whose file is
 * missing is a violation whenever it is met.
 *
 * Power failure: nothing is written. Answers: all errors. */
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "os/os.h"
#include "store/artifact/delivery_schema.h"
#include "store/artifact/proof.h"
#include "store/artifact/verify_parts.h"
#include "store/verify_internal.h"

#define SLICE_ROWS 200

#define X(sym, name) ", '" name "'"
#define STATE_NAMES  "''" DELIVERY_STATES(X) /* none has the name '' */

static const char *const contradictions[] = {
    "SELECT 'artifact ' || object_id || ' is in no package' FROM artifacts a"
    " WHERE waiting = 0 AND NOT EXISTS"
    "(SELECT 1 FROM package_members m WHERE m.object_id = a.object_id)",
    "SELECT 'package ' || package_id || ': its member ' || object_id || ' is no artifact'"
    " FROM package_members m WHERE NOT EXISTS"
    "(SELECT 1 FROM artifacts a WHERE a.object_id = m.object_id)",
    "SELECT 'package ' || package_id || ': its member ' || m.object_id || ' is another one'"
    " FROM package_members m JOIN artifacts a ON a.object_id = m.object_id"
    " WHERE m.size_bytes <> a.size_bytes OR m.checksum <> a.checksum",
    "SELECT 'package ' || package_id || ' has ' || member_count || ' members, but ' || n || ' rows'"
    " FROM (SELECT p.package_id, p.member_count, (SELECT count(*) FROM package_members m"
    " WHERE m.package_id = p.package_id) AS n FROM packages p) WHERE member_count <> n",
    "SELECT 'members of package ' || package_id || ', which is none' FROM package_members m"
    " WHERE NOT EXISTS(SELECT 1 FROM packages p WHERE p.package_id = m.package_id)",
    "SELECT 'package ' || package_id || ': no such state: ' || state FROM packages"
    " WHERE state NOT IN ('building', 'sealed', 'blocked')",
    "SELECT 'delivery of package ' || package_id || ': no such state: ' || state FROM deliveries"
    " WHERE state NOT IN (" STATE_NAMES ")",
    "SELECT 'delivery of package ' || package_id || ': its state and its times contradict'"
    " FROM deliveries WHERE (state = 'verified') <> (verified_at IS NOT NULL)"
    " OR (state IN ('sent', 'verified') AND sent_at IS NULL)",
    "SELECT 'package ' || package_id || ' is sealed and goes nowhere' FROM packages p"
    " WHERE state = 'sealed' AND NOT EXISTS"
    "(SELECT 1 FROM deliveries d WHERE d.package_id = p.package_id)",
    "SELECT 'delivery of package ' || package_id || ', which is not sealed' FROM deliveries d"
    " WHERE NOT EXISTS(SELECT 1 FROM packages p WHERE p.package_id = d.package_id"
    " AND p.state = 'sealed')",
};

#undef X

static int make_schema(struct sqlite3 *db, struct err *e)
{
    return delivery_schema_forward(db, 0, e);
}

/* ---- rows and their files ---- */

struct rows {
    struct buf text; /* of a slice: columns, each with a NUL */
    int count;
};

/* The next slice: three columns of text, of which the first is the key. */
static int take_slice(struct verify_run *v, const char *sql, const char *after, struct rows *out)
{
    sqlite3_stmt *st = NULL;
    buf_clear(&out->text);
    out->count = 0;
    int rc = sqlite3_prepare_v2(v->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_text(st, 1, after, -1, SQLITE_STATIC);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_int(st, 2, SLICE_ROWS);
    }
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(st);
        for (int i = 0; rc == SQLITE_ROW && i < 3; i++) {
            const unsigned char *text = sqlite3_column_text(st, i);
            buf_put_cstr(&out->text, text != NULL ? (const char *)text : "");
            buf_put_char(&out->text, '\0');
        }
        out->count += rc == SQLITE_ROW;
    }
    int r = rc == SQLITE_DONE ? 0 : verify_failed(v, "read the rows");
    out->count = rc == SQLITE_DONE ? out->count : 0; /* where it would go on is not known */
    (void)sqlite3_finalize(st);
    return r == 0 && out->text.failed ? err_set(v->e, ERR_NO_MEMORY, "no memory for rows") : r;
}

/* Every row once; see gets the three texts. */
static int walk(struct verify_run *v, const char *sql,
                int (*see)(struct verify_run *v, const char *const column[3]))
{
    char after[DELIVERY_PACKAGE_LEN + 1] = "";
    struct rows rows;
    int r = 0;
    buf_init(&rows.text, SLICE_ROWS * (DELIVERY_TEXT_MAX + 1024));
    do {
        r = take_slice(v, sql, after, &rows);
        const char *at = rows.text.ptr;
        for (int i = 0; r == 0 && i < rows.count; i++) {
            const char *column[3];
            for (int c = 0; c < 3; c++) {
                column[c] = at;
                at += strlen(at) + 1;
            }
            (void)snprintf(after, sizeof after, "%s", column[0]);
            r = see(v, column);
        }
    } while (r == 0 && rows.count == SLICE_ROWS);
    buf_free(&rows.text);
    return r;
}

/* object id, checksum, size */
static int see_artifact(struct verify_run *v, const char *const column[3])
{
    struct artifact_run *a = v->check_ctx;
    char id[UPLOAD_ID_LEN + 1];
    char size[24];
    struct receipt receipt;
    struct err e = {0};
    int r = artifact_id_of(column[0], "", id) ? artifact_read_receipt(&a->us, id, &receipt, &e)
                                              : ERR_NOT_FOUND;
    a->out->deliveries++;
    if (r == ERR_NOT_FOUND) {
        verify_tell(v, VERIFY_KIND_DELIVERY, "artifact %.80s has no receipt", column[0]);
        return 0;
    }
    if (r != 0) {
        return r == ERR_CORRUPT ? 0 : err_set(v->e, r, "%s", e.text); /* the receipt was told */
    }
    (void)snprintf(size, sizeof size, "%llu", (unsigned long long)receipt.size_bytes);
    if (strcmp(column[1], receipt.checksum) != 0 || strcmp(column[2], size) != 0) {
        verify_tell(v, VERIFY_KIND_DELIVERY, "artifact %s contradicts its receipt", id);
    }
    return 0;
}

static bool has_proof(const struct artifact_run *a, const char *package_id)
{
    char path[UPLOADS_PATH_MAX + DELIVERY_PACKAGE_LEN + 40];
    struct os_stat st;
    (void)snprintf(path, sizeof path, "%s/%s" PROOF_TAIL, a->proofs, package_id);
    return os_stat(path, &st) == 0;
}

/* One file of a sealed package; one that was purged, or is being purged, has a proof. */
static void see_file(struct verify_run *v, const char *package_id, const char *tail, int r)
{
    if (r == ERR_NOT_FOUND && !has_proof(v->check_ctx, package_id)) {
        verify_tell(v, VERIFY_KIND_DELIVERY,
                    "package %s is sealed, but " DELIVERY_PACKAGES "/%s%s is missing", package_id,
                    package_id, tail);
    }
}

static int see_payload(struct verify_run *v, const char *package_id)
{
    struct artifact_run *a = v->check_ctx;
    char path[UPLOADS_PATH_MAX + DELIVERY_PACKAGE_LEN + 40];
    struct os_stat st;
    int r;
    (void)snprintf(path, sizeof path, "%s/%s" DELIVERY_PAYLOAD_TAIL, a->packages, package_id);
    r = os_stat(path, &st);
    see_file(v, package_id, DELIVERY_PAYLOAD_TAIL, r == -ENOENT ? ERR_NOT_FOUND : 0);
    return r == 0 || r == -ENOENT ? 0 : err_os(v->e, r, "stat", path);
}

/* sealed package id, plan, packager */
static int see_sealed(struct verify_run *v, const char *const column[3])
{
    static const char *const tails[] = {DELIVERY_PLAN_TAIL, DELIVERY_MANIFEST_TAIL};
    struct artifact_run *a = v->check_ctx;
    if (strlen(column[0]) != DELIVERY_PACKAGE_LEN ||
        strspn(column[0], "0123456789abcdef") != DELIVERY_PACKAGE_LEN) {
        verify_tell(v, VERIFY_KIND_DELIVERY, "package %.80s: its id is none", column[0]);
        return 0;
    }
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        struct buf text;
        struct err e = {0};
        int r = artifact_read_sidecar(a->packages, column[0], tails[i], &text, &e);
        if (r == ERR_NOT_FOUND) {
            see_file(v, column[0], tails[i], r);
            continue;
        }
        if (r != 0 && r != ERR_CORRUPT) {
            return err_set(v->e, r, "%s", e.text);
        }
        if (i == 0 && r == 0 && !slice_eq(buf_slice(&text), slice_cstr(column[1]))) {
            verify_tell(v, VERIFY_KIND_DELIVERY, "package %s: its plan is not the one in its file",
                        column[0]);
        }
        if (r == 0) {
            buf_free(&text);
        }
    }
    return strcmp(column[2], DELIVERY_MERGEWARC) == 0 ? see_payload(v, column[0]) : 0;
}

/* ---- all of it ---- */

static int check(struct verify_run *v)
{
    struct artifact_run *a = v->check_ctx;
    bool known;
    int r = verify_head(v, DELIVERY_APPLICATION_ID, DELIVERY_SCHEMA, &known);
    if (r != 0 || !known) {
        return r;
    }
    r = verify_schema(v, make_schema);
    r = r == 0 ? verify_integrity(v) : r;
    /* With other tables the questions below would not mean what they say. */
    if (r != 0 || v->kinds[VERIFY_KIND_SCHEMA] > 0) {
        return r;
    }
    for (size_t i = 0; r == 0 && i < sizeof contradictions / sizeof *contradictions; i++) {
        verify_limit_begin(v);
        r = verify_tell_rows(v, contradictions[i], VERIFY_KIND_DELIVERY, NULL);
        verify_limit_end(v);
    }
    a->out->deliveries = 0; /* of this run */
    if (r == 0) {
        r = walk(v,
                 "SELECT object_id, checksum, size_bytes FROM artifacts WHERE object_id > ?1"
                 " ORDER BY object_id LIMIT ?2",
                 see_artifact);
    }
    if (r == 0) {
        r = walk(v,
                 "SELECT package_id, plan, packager FROM packages WHERE state = 'sealed'"
                 " AND package_id > ?1 ORDER BY package_id LIMIT ?2",
                 see_sealed);
    }
    return r;
}

static void on_found(void *ctx, const char *text)
{
    struct artifact_run *a = ctx;
    char named[700];
    (void)snprintf(named, sizeof named, DELIVERY_FILE ": %s", text);
    a->hooks->found(a->hooks->ctx, named);
}

/* Without the database, what lies beside it is nothing: a start removes it and makes all anew. */
static int check_beside(struct artifact_run *a)
{
    static const char *const tails[] = {"-wal", "-shm"};
    int r = 0;
    for (size_t i = 0; r >= 0 && i < sizeof tails / sizeof *tails; i++) {
        char path[UPLOADS_PATH_MAX];
        struct os_stat st;
        (void)snprintf(path, sizeof path, "%s/" DELIVERY_FILE "%s", a->data, tails[i]);
        r = artifact_stat(a, path, &st);
        if (r == 1) {
            artifact_remnant(a, "", path + strlen(a->data) + 1);
        }
    }
    return r < 0 ? r : 0;
}

int artifact_check_delivery(struct artifact_run *a)
{
    struct store_verify_result result;
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    (void)snprintf(path, sizeof path, "%s/" DELIVERY_FILE, a->data);
    int r = artifact_stat(a, path, &st);
    if (r <= 0) {
        return r < 0 ? r : check_beside(a);
    }
    r = verify_database(a->data, DELIVERY_FILE, check, a, on_found, a, &result, a->e);
    if (r == ERR_CORRUPT) { /* no database at all: a violation as any other */
        on_found(a, a->e->text);
        a->out->violations++;
        return 0;
    }
    if (r == 0) {
        a->out->violations += result.violations;
        a->out->live = result.live;
        a->out->partial = result.partial;
        a->out->absent = a->out->absent && result.absent;
    }
    return r;
}

/* ---- one question ---- */

static bool open_to_ask(struct artifact_run *a)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    struct err e = {0};
    (void)snprintf(path, sizeof path, "%s/" DELIVERY_FILE, a->data);
    a->delivery_asked = true;
    int r = os_stat(path, &st);
    if (r == 0 && verify_open_read_only(path, DELIVERY_FILE, &a->delivery, &e) != 0) {
        (void)sqlite3_close(a->delivery);
        a->delivery = NULL;
        r = -EIO;
    }
    a->delivery_unread = r != 0 && r != -ENOENT;
    return a->delivery != NULL;
}

bool artifact_is_verified(struct artifact_run *a, const char *id)
{
    sqlite3_stmt *st = NULL;
    if (a->delivery_asked ? a->delivery == NULL : !open_to_ask(a)) {
        return false;
    }
    int rc = sqlite3_prepare_v2(a->delivery,
                                "SELECT 1 FROM package_members m JOIN deliveries d"
                                " ON d.package_id = m.package_id"
                                " WHERE m.object_id = ?1 AND d.state = 'verified'",
                                -1, &st, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_text(st, 1, id, -1, SQLITE_STATIC);
    }
    rc = rc == SQLITE_OK ? sqlite3_step(st) : rc;
    (void)sqlite3_finalize(st);
    a->delivery_unread = rc != SQLITE_ROW && rc != SQLITE_DONE;
    return rc == SQLITE_ROW;
}
