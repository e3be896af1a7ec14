/* Making projects with their destinations, making and revoking keys; all inside a job's run.
 *
 * Invariants: every project has counters (without them nothing can be queued for it) and at least
 * one valid capture key. A key is stored by the SHA-256 of its text; only public kinds also in
 * clear.
 *
 * If power fails: a project, its destination, its counters and its first key are in one
 * transaction, and so is a change of a destination. Answers: names and settings that break a rule,
 * projects that exist, keys that do not. */
#include <stdlib.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/settings.h"
#include "store/control_memory.h"
#include "store/internal.h"
#include "json/write.h"

#define TOKEN_PREFIX 4u
#define TOKEN_RANDOM 40u /* of 62 letters and digits: 238 bits */

static_assert(TOKEN_PREFIX + TOKEN_RANDOM <= KEY_TEXT_MAX, "a token fits its field");

/* ---- rules for names ---- */

static bool all_of(struct slice s, const char *allowed)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\0' || strchr(allowed, s.ptr[i]) == NULL) {
            return false;
        }
    }
    return true;
}

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static int check_project(struct slice name, struct slice title, struct err *e)
{
    if (name.len == 0 || name.len > PROJECT_NAME_MAX) {
        return err_set(e, ERR_INVALID_PROJECT, "a project id has 1 to %d characters",
                       PROJECT_NAME_MAX);
    }
    if (!all_of(name, LOWER DIGITS "_-") || name.ptr[0] == '_' || name.ptr[0] == '-') {
        return err_set(e, ERR_INVALID_PROJECT,
                       "a project id is made of a-z, 0-9, _ and -, and begins with a letter or"
                       " digit");
    }
    if (title.len > PROJECT_TITLE_MAX) {
        return err_set(e, ERR_INVALID_PROJECT, "a project's name has at most %d bytes",
                       PROJECT_TITLE_MAX);
    }
    if (!settings_plain_text(title)) {
        return err_set(e, ERR_INVALID_PROJECT,
                       "a project's name is UTF-8 without control characters");
    }
    return 0;
}

static int check_destination(const struct artifact_destination *d, struct slice project,
                             struct err *e)
{
    struct artifact_sink to;
    int r = settings_read(d->sink, d->directory, d->settings.len > 0 ? d->settings : SLICE("{}"),
                          &to, e);

    return r == 0 ? settings_check(&to, project, e) : r;
}

static int check_key(enum key_kind kind, struct slice name, unsigned scopes, struct err *e)
{
    if (kind != KEY_CAPTURE && kind != KEY_SEGMENT && kind != KEY_SERVICE) {
        return err_set(e, ERR_INVALID_KEY, "a key's kind is capture, segment or service");
    }
    if (name.len == 0 || name.len > KEY_NAME_MAX || !all_of(name, LOWER UPPER DIGITS "_.-")) {
        return err_set(e, ERR_INVALID_KEY,
                       "a key's name has 1 to %d characters of A-Z, a-z, 0-9, _, . and -",
                       KEY_NAME_MAX);
    }
    if (kind == KEY_SERVICE && scopes == 0) {
        return err_set(e, ERR_INVALID_KEY, "a service key needs a scope");
    }
    if (kind != KEY_SERVICE && scopes != 0) {
        return err_set(e, ERR_INVALID_KEY, "only service keys have scopes");
    }
    if ((scopes >> SCOPE_COUNT) != 0) {
        return err_set(e, ERR_INVALID_KEY, "an unknown scope");
    }
    return 0;
}

/* ---- tokens ---- */

/* 62 characters without bias: bytes from 248 on are drawn again. */
static int make_token(enum key_kind kind, char text[KEY_TEXT_MAX + 1], struct err *e)
{
    static const char letters[] = DIGITS UPPER LOWER;
    size_t n = TOKEN_PREFIX;

    static_assert(sizeof letters == 63, "ten digits and two alphabets");
    memcpy(text, kind == KEY_SERVICE ? "tms_" : "tmc_", TOKEN_PREFIX);
    while (n < TOKEN_PREFIX + TOKEN_RANDOM) {
        uint8_t random[64];
        int r = os_random(random, sizeof random);
        if (r < 0) {
            return err_os(e, r, "get random bytes", "for a key");
        }
        for (size_t i = 0; i < sizeof random && n < TOKEN_PREFIX + TOKEN_RANDOM; i++) {
            if (random[i] < 62 * 4) {
                text[n++] = letters[random[i] % 62];
            }
        }
    }
    text[n] = '\0';
    return 0;
}

/* ---- statements that are rare and not kept ---- */

/* One number under one parameter; fallback without a row. */
static int number_of(struct store *s, const char *sql, int64_t a, int64_t b, int64_t fallback,
                     int64_t *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(s->db, sql, &st, e);

    *out = fallback;
    if (r == 0) {
        db_bind_int(st, 1, a);
        if (sqlite3_bind_parameter_count(st) > 1) {
            db_bind_int(st, 2, b);
        }
        r = db_step(st, "look up projects and keys", e);
        if (r > 0) {
            *out = sqlite3_column_int64(st, 0);
            r = 0;
        }
    }
    sqlite3_finalize(st);
    return r;
}

static void scope_text(unsigned scopes, char *out, size_t size)
{
    out[0] = '\0';
    for (unsigned i = 0; i < SCOPE_COUNT; i++) {
        if ((scopes >> i & 1) != 0) {
            size_t n = strlen(out);
            sqlite3_snprintf((int)(size - n), out + n, "%s%s", n == 0 ? "" : " ",
                             scope_name((enum scope_index)i));
        }
    }
}

static int insert_key(struct store *s, const struct key *k, int64_t *id, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    char scopes[256];
    uint8_t hash[SHA256_LEN];
    int r = db_prepare(s->db,
                       "INSERT INTO keys(project, kind, name, hash, text, scopes, created_ms)"
                       " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                       &st, e);

    if (r == 0) {
        sha256_once(slice_cstr(k->text), hash);
        scope_text(k->scopes, scopes, sizeof scopes);
        db_bind_int(st, 1, k->project);
        db_bind_text(st, 2, slice_cstr(key_kind_name(k->kind)));
        db_bind_text(st, 3, slice_cstr(k->name));
        db_bind_blob(st, 4, slice_of(hash, sizeof hash));
        if (k->kind != KEY_SERVICE) {
            db_bind_text(st, 5, slice_cstr(k->text));
        }
        db_bind_text(st, 6, slice_cstr(scopes));
        db_bind_int(st, 7, k->created_ms);
        r = db_run(st, "store a key", e);
    }
    if (r == 0) {
        *id = sqlite3_last_insert_rowid(s->db);
    }
    sqlite3_finalize(st);
    return r;
}

/* ---- the operations ---- */

int control_create_key(struct store *s, int64_t project, enum key_kind kind, struct slice name,
                       unsigned scopes, int64_t now_ms, int64_t *id, char text[KEY_TEXT_MAX + 1],
                       struct err *e)
{
    struct key k = {.project = project, .kind = kind, .scopes = scopes, .created_ms = now_ms};
    int64_t there, keys;
    int r = check_key(kind, name, scopes, e);

    ensure(s->in_job);
    if (r == 0) {
        r = number_of(s, "SELECT 1 FROM projects WHERE id = ?1", project, 0, 0, &there, e);
    }
    if (r == 0 && there == 0) {
        r = err_set(e, ERR_NOT_FOUND, "no such project");
    }
    if (r == 0) {
        r = number_of(s, "SELECT count(*) FROM keys WHERE project = ?1", project, 0, 0, &keys, e);
    }
    if (r == 0 && keys >= KEYS_PER_PROJECT_MAX) {
        r = err_set(e, ERR_INVALID_KEY, "a project has at most %d keys, revoked ones too",
                    KEYS_PER_PROJECT_MAX);
    }
    if (r == 0) {
        r = make_token(kind, k.text, e);
    }
    if (r < 0) {
        return r;
    }
    memcpy(k.name, name.ptr, name.len);
    r = insert_key(s, &k, id, e);
    if (r == 0) {
        memcpy(text, k.text, sizeof k.text);
    }
    return r;
}

static int project_exists(struct store *s, struct slice name, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(s->db, "SELECT 1 FROM projects WHERE name = ?1", &st, e);

    if (r == 0) {
        db_bind_text(st, 1, name);
        r = db_step(st, "look up a project", e);
        if (r > 0) {
            r = err_set(e, ERR_PROJECT_EXISTS, "there is a project '%.*s' already", (int)name.len,
                        name.ptr);
        }
    }
    sqlite3_finalize(st);
    return r;
}

static int insert_project(struct store *s, struct slice name, struct slice title, int64_t now_ms,
                          int64_t *id, struct err *e)
{
    struct sqlite3_stmt *st = NULL, *counters = NULL;
    int r = db_prepare(s->db, "INSERT INTO projects(name, title, created_ms) VALUES(?1, ?2, ?3)",
                       &st, e);

    if (r == 0) {
        db_bind_text(st, 1, name);
        db_bind_text(st, 2, title);
        db_bind_int(st, 3, now_ms);
        r = db_run(st, "store a project", e);
        *id = sqlite3_last_insert_rowid(s->db);
    }
    if (r == 0) {
        r = db_prepare(s->db, "INSERT INTO project_counters(project) VALUES(?1)", &counters, e);
    }
    if (r == 0) {
        db_bind_int(counters, 1, *id);
        r = db_run(counters, "store a project's counters", e);
    }
    sqlite3_finalize(counters);
    sqlite3_finalize(st);
    return r;
}

static int put_destination(struct store *s, int64_t project, const struct artifact_destination *d,
                           struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r =
        db_prepare(s->db,
                   "INSERT OR REPLACE INTO artifact_projects(project, sink, directory, settings)"
                   " VALUES(?1, ?2, ?3, ?4)",
                   &st, e);

    if (r == 0) {
        db_bind_int(st, 1, project);
        db_bind_text(st, 2, d->sink);
        db_bind_text(st, 3, d->directory);
        db_bind_text(st, 4, d->settings.len > 0 ? d->settings : SLICE("{}"));
        r = db_run(st, "store a project's destination", e);
    }
    sqlite3_finalize(st);
    return r;
}

int control_create_project(struct store *s, struct slice name, struct slice title,
                           const struct artifact_destination *artifacts, int64_t now_ms,
                           struct err *e)
{
    char text[KEY_TEXT_MAX + 1];
    int64_t id = 0, key, count;
    int r = check_project(name, title, e);

    ensure(s->in_job);
    if (r == 0 && artifacts != NULL) {
        r = check_destination(artifacts, name, e);
    }
    if (r == 0) {
        r = project_exists(s, name, e);
    }
    if (r == 0) {
        r = db_number(s->db, "SELECT count(*) FROM projects", 0, &count, e);
    }
    if (r == 0 && count >= PROJECTS_MAX) {
        r = err_set(e, ERR_INVALID_PROJECT, "there are %d projects, which is the most",
                    PROJECTS_MAX);
    }
    if (r == 0) {
        r = insert_project(s, name, title, now_ms, &id, e);
    }
    if (r == 0 && artifacts != NULL) {
        r = put_destination(s, id, artifacts, e);
    }
    return r < 0
               ? r
               : control_create_key(s, id, KEY_CAPTURE, SLICE("default"), 0, now_ms, &key, text, e);
}

/* As it is in the table now; a project without a row begins with defaults. */
static int get_destination(struct store *s, int64_t project, struct artifact_sink *to,
                           struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(s->db,
                       "SELECT sink, directory, settings FROM artifact_projects WHERE project = ?1",
                       &st, e);

    memset(to, 0, sizeof *to);
    to->retention_ms = -1;
    if (r == 0) {
        db_bind_int(st, 1, project);
        r = db_step(st, "look up a project's destination", e);
    }
    if (r > 0) {
        r = settings_read(db_column(st, 0), db_column(st, 1), db_column(st, 2), to, e);
    }
    sqlite3_finalize(st);
    return r;
}

/* The id's project's name; ERR_NOT_FOUND. */
static int project_name(struct store *s, int64_t project, char out[PROJECT_NAME_MAX + 1],
                        struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(s->db, "SELECT name FROM projects WHERE id = ?1", &st, e);

    if (r == 0) {
        db_bind_int(st, 1, project);
        r = db_step(st, "look up a project", e);
        if (r > 0) {
            struct slice name = db_column(st, 0);
            size_t n = name.len < PROJECT_NAME_MAX ? name.len : PROJECT_NAME_MAX;
            memcpy(out, name.ptr, n);
            out[n] = '\0';
            r = 0;
        } else if (r == 0) {
            r = err_set(e, ERR_NOT_FOUND, "there is no such project");
        }
    }
    sqlite3_finalize(st);
    return r;
}

int control_set_artifacts(struct store *s, int64_t project, struct slice changes, struct err *e)
{
    struct artifact_sink to;
    struct buf text;
    char name[PROJECT_NAME_MAX + 1];
    int r = project_name(s, project, name, e);

    ensure(s->in_job);
    if (r == 0) {
        r = get_destination(s, project, &to, e);
    }
    if (r == 0) {
        r = settings_apply(&to, changes, e);
    }
    if (r == 0) {
        r = settings_check(&to, slice_cstr(name), e);
    }
    if (r < 0) {
        return r;
    }
    buf_init(&text, SETTINGS_TEXT_MAX);
    settings_put(&text, &to);
    if (text.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for a project's settings");
    } else {
        const struct artifact_destination d = {.sink = slice_cstr(to.sink),
                                               .directory = slice_cstr(to.directory),
                                               .settings = buf_slice(&text)};
        r = put_destination(s, project, &d, e);
    }
    buf_free(&text);
    return r;
}

int control_revoke_key(struct store *s, int64_t project, int64_t key, int64_t now_ms, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int64_t state, others;
    int r = number_of(s,
                      "SELECT CASE WHEN revoked_ms IS NOT NULL THEN 1 WHEN kind = 'capture' THEN 2"
                      " ELSE 3 END FROM keys WHERE project = ?1 AND id = ?2",
                      project, key, 0, &state, e);

    ensure(s->in_job);
    if (r < 0 || state == 1) {
        return r;
    }
    if (state == 0) {
        return err_set(e, ERR_NOT_FOUND, "no such key");
    }
    r = number_of(s,
                  "SELECT count(*) FROM keys WHERE project = ?1 AND id <> ?2"
                  " AND kind = 'capture' AND revoked_ms IS NULL",
                  project, key, 0, &others, e);
    if (r == 0 && state == 2 && others == 0) {
        return err_set(e, ERR_INVALID_KEY,
                       "the last capture key of a project stays; make another one first");
    }
    if (r == 0) {
        r = db_prepare(s->db, "UPDATE keys SET revoked_ms = ?2 WHERE id = ?1", &st, e);
    }
    if (r == 0) {
        db_bind_int(st, 1, key);
        db_bind_int(st, 2, now_ms > 0 ? now_ms : 1);
        r = db_run(st, "revoke a key", e);
    }
    sqlite3_finalize(st);
    return r;
}
