/* Projects and keys in memory, and their names.
 *
 * Invariants: a snapshot is never changed, only replaced, and only by what is committed; the one
 * before it lives until the next turn begins, because other answers of the same turn may point into
 * it. Only valid keys are in the hash table; its position of a key depends on the SHA-256 of the
 * text alone, and the text is never compared, so time tells nothing about tokens.
 *
 * If power fails: nothing here is durable. Answers: no memory, unreadable rows; the old snapshot
 * then stays in force and is read again at the next tick. A scope or kind that this program does
 * not know (written by a newer one) gives no rights. */
#include "store/control.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "store/artifact/settings.h"
#include "store/control_memory.h"
#include "store/internal.h"

static const char *const scope_names[SCOPE_COUNT] = {
#define X(sym, text) text,
    SCOPES(X)
#undef X
};

const char *scope_name(enum scope_index i)
{
    ensure(i < SCOPE_COUNT);
    return scope_names[i];
}

int scope_parse(struct slice text, unsigned *scopes, struct err *e)
{
    for (unsigned i = 0; i < SCOPE_COUNT; i++) {
        if (slice_eq(text, slice_cstr(scope_names[i]))) {
            *scopes |= 1u << i;
            return 0;
        }
    }
    return err_set(e, ERR_INVALID_KEY,
                   "unknown scope; there are events:write, events:read, "
                   "events:edit, query:read, artifacts:read, "
                   "artifacts:release and projects:admin");
}

const char *key_kind_name(enum key_kind k)
{
    static const char *const names[] = {"capture", "segment", "service"};

    ensure(k <= KEY_SERVICE);
    return names[k];
}

static bool kind_of(struct slice text, enum key_kind *out)
{
    for (int k = KEY_CAPTURE; k <= KEY_SERVICE; k++) {
        if (slice_eq(text, slice_cstr(key_kind_name((enum key_kind)k)))) {
            *out = (enum key_kind)k;
            return true;
        }
    }
    return false;
}

/* Names parted by spaces; unknown ones are passed over. */
static unsigned scopes_of(struct slice text)
{
    unsigned scopes = 0;

    while (text.len > 0) {
        const char *space = memchr(text.ptr, ' ', text.len);
        size_t n = space == NULL ? text.len : (size_t)(space - text.ptr);
        struct err ignored;
        if (n > 0 && scope_parse(slice_of(text.ptr, n), &scopes, &ignored) < 0) {
            log_line(LOG_WARN, "store", "a key has a scope that this version does not know");
        }
        text = slice_from(text, n + 1);
    }
    return scopes;
}

/* ---- reading a snapshot ---- */

static void free_snapshot(struct control_snapshot *c)
{
    for (size_t i = 0; i < c->project_count; i++) {
        free((char *)(uintptr_t)c->project[i].artifacts.sink.ptr); /* ours; slices are const */
    }
    free(c->project);
    free(c->key);
    free(c->slot);
    *c = (struct control_snapshot){0};
}

/* Room for one more of an array that doubles; false: no memory. */
static bool more_room(void **array, size_t count, size_t size)
{
    void *more;

    if (count != 0 && (count & (count - 1)) != 0) {
        return true;
    }
    more = realloc(*array, (count == 0 ? 1 : count * 2) * size);
    if (more == NULL) {
        return false;
    }
    *array = more;
    return true;
}

/* Rows were checked when they were written; one that does not fit is damage. */
static int take_text(char *to, size_t size, struct slice from, struct err *e)
{
    if (from.len >= size) {
        return err_set(e, ERR_CORRUPT, "%s: a name of %zu bytes in projects or keys", STORE_FILE,
                       from.len);
    }
    memcpy(to, from.ptr, from.len);
    to[from.len] = '\0';
    return 0;
}

/* All in one block; nothing for a project without a destination. Settings that cannot be read (of
 * a newer program; verify tells of damage) stop nothing: the project takes artifacts that declare
 * their checksum, and those wait for their delivery. */
static int take_destination(struct artifact_destination *to, struct sqlite3_stmt *st, struct err *e)
{
    struct slice sink = db_column(st, 4), directory = db_column(st, 5), text = db_column(st, 6);
    struct artifact_sink read;
    struct err why = {0};
    char *block;

    if (sink.len == 0) {
        return 0;
    }
    block = malloc(sink.len + directory.len + text.len);
    if (block == NULL) {
        return err_set(e, ERR_NO_MEMORY, "read the projects: out of memory");
    }
    memcpy(block, sink.ptr, sink.len);
    to->sink = slice_of(block, sink.len);
    if (directory.len > 0) {
        memcpy(block + sink.len, directory.ptr, directory.len);
    }
    to->directory = slice_of(block + sink.len, directory.len);
    if (text.len > 0) {
        memcpy(block + sink.len + directory.len, text.ptr, text.len);
    }
    to->settings = slice_of(block + sink.len + directory.len, text.len);
    int r = settings_read(to->sink, to->directory, to->settings, &read, &why);
    if (r == ERR_NO_MEMORY) {
        free(block);
        *to = (struct artifact_destination){0};
        return err_set(e, r, "%s", why.text);
    }
    if (r < 0) {
        log_line(LOG_WARN, "store", "how project %lld delivers artifacts cannot be read: %s",
                 (long long)sqlite3_column_int64(st, 0), why.text);
        return 0;
    }
    to->checksum_optional = read.checksum_optional;
    return 0;
}

static int take_project(struct control_snapshot *c, struct sqlite3_stmt *st, struct err *e)
{
    void *array = c->project;
    struct project *p;
    int r;

    if (!more_room(&array, c->project_count, sizeof *p)) {
        return err_set(e, ERR_NO_MEMORY, "read the projects: out of memory");
    }
    c->project = array;
    p = &c->project[c->project_count];
    *p = (struct project){.id = sqlite3_column_int64(st, 0),
                          .created_ms = sqlite3_column_int64(st, 3)};
    r = take_text(p->name, sizeof p->name, db_column(st, 1), e);
    if (r == 0) {
        r = take_text(p->title, sizeof p->title, db_column(st, 2), e);
    }
    if (r == 0) {
        r = take_destination(&p->artifacts, st, e);
    }
    c->project_count += r == 0;
    return r;
}

static int take_key(struct control_snapshot *c, struct sqlite3_stmt *st, struct err *e)
{
    void *array = c->key;
    struct slice hash = db_column(st, 4);
    struct control_key_entry *k;
    int r;

    if (!more_room(&array, c->key_count, sizeof *k)) {
        return err_set(e, ERR_NO_MEMORY, "read the keys: out of memory");
    }
    c->key = array;
    k = &c->key[c->key_count];
    *k = (struct control_key_entry){.key = {.id = sqlite3_column_int64(st, 0),
                                            .project = sqlite3_column_int64(st, 1),
                                            .scopes = scopes_of(db_column(st, 6)),
                                            .created_ms = sqlite3_column_int64(st, 7),
                                            .revoked_ms = sqlite3_column_int64(st, 8)}};
    if (hash.len != SHA256_LEN || !kind_of(db_column(st, 2), &k->key.kind)) {
        return err_set(e, ERR_CORRUPT, "%s: key %lld has a kind or hash that cannot be read",
                       STORE_FILE, (long long)k->key.id);
    }
    memcpy(k->hash, hash.ptr, SHA256_LEN);
    r = take_text(k->key.name, sizeof k->key.name, db_column(st, 3), e);
    if (r == 0) {
        r = take_text(k->key.text, sizeof k->key.text, db_column(st, 5), e);
    }
    c->key_count += r == 0;
    return r;
}

static int take_all(struct sqlite3 *db, const char *sql, struct control_snapshot *c,
                    int (*take)(struct control_snapshot *, struct sqlite3_stmt *, struct err *),
                    struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(db, sql, &st, e);

    while (r == 0) {
        r = db_step(st, "read projects and keys", e);
        if (r <= 0) {
            break;
        }
        r = take(c, st, e);
    }
    sqlite3_finalize(st);
    return r;
}

static size_t slot_of(const struct control_snapshot *c, const uint8_t hash[SHA256_LEN])
{
    uint64_t h;

    memcpy(&h, hash, sizeof h);
    return (size_t)h & (c->slot_count - 1);
}

static int fill_slots(struct control_snapshot *c, struct err *e)
{
    c->slot_count = 16;
    while (c->slot_count < c->key_count * 2) {
        c->slot_count *= 2;
    }
    c->slot = calloc(c->slot_count, sizeof *c->slot);
    if (c->slot == NULL) {
        return err_set(e, ERR_NO_MEMORY, "read the keys: out of memory");
    }
    for (size_t i = 0; i < c->key_count; i++) {
        size_t at = slot_of(c, c->key[i].hash);
        if (c->key[i].key.revoked_ms != 0) {
            continue;
        }
        while (c->slot[at] != 0) {
            at = (at + 1) & (c->slot_count - 1);
        }
        c->slot[at] = (uint32_t)i + 1;
    }
    return 0;
}

static int read_snapshot(struct sqlite3 *db, struct control_snapshot *out, struct err *e)
{
    struct control_snapshot c = {0};
    int r = take_all(db,
                     "SELECT id, name, title, created_ms, sink, directory, settings FROM projects"
                     " LEFT JOIN artifact_projects ON project = id ORDER BY id",
                     &c, take_project, e);

    if (r == 0) {
        r = take_all(db,
                     "SELECT id, project, kind, name, hash, text, scopes, created_ms, revoked_ms"
                     " FROM keys ORDER BY project, id",
                     &c, take_key, e);
    }
    if (r == 0) {
        r = fill_slots(&c, e);
    }
    if (r < 0) {
        free_snapshot(&c);
        return r;
    }
    *out = c;
    return 0;
}

/* ---- replacing it ---- */

int control_committed(struct store *s, struct err *e)
{
    struct control *c = s->control;
    struct control_snapshot fresh;
    int r = read_snapshot(s->db, &fresh, e);

    c->stale = r < 0;
    if (r < 0) {
        return r;
    }
    if (c->gone_count == CONTROL_GONE_MAX) {
        free_snapshot(&c->gone[--c->gone_count]);
    }
    c->gone[c->gone_count++] = c->now;
    c->now = fresh;
    return 0;
}

int control_open(struct store *s, struct err *e)
{
    s->control = calloc(1, sizeof *s->control);
    if (s->control == NULL) {
        return err_set(e, ERR_NO_MEMORY, "read the projects: out of memory");
    }
    return read_snapshot(s->db, &s->control->now, e);
}

void control_turn(struct control *c)
{
    while (c->gone_count > 0) {
        free_snapshot(&c->gone[--c->gone_count]);
    }
}

void control_close(struct control *c)
{
    if (c != NULL) {
        control_turn(c);
        free_snapshot(&c->now);
        free(c);
    }
}

void control_tick(struct store *s)
{
    struct err e;

    if (s->control != NULL && s->control->stale && control_committed(s, &e) < 0) {
        log_line((enum log_level)err_level(e.code), "store", "%s", e.text);
    }
}

/* ---- looking up ---- */

const struct project *control_project(const struct control *c, struct slice name)
{
    for (size_t i = 0; i < c->now.project_count; i++) {
        if (slice_eq(slice_cstr(c->now.project[i].name), name)) {
            return &c->now.project[i];
        }
    }
    return NULL;
}

const struct project *control_project_by_id(const struct control *c, int64_t id)
{
    size_t low = 0, high = c->now.project_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (c->now.project[mid].id == id) {
            return &c->now.project[mid];
        }
        if (c->now.project[mid].id < id) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

bool control_takes_artifacts(const struct control *c, int64_t project)
{
    const struct project *p = control_project_by_id(c, project);

    return p != NULL && p->artifacts.sink.len > 0;
}

bool control_requires_checksum(const struct control *c, int64_t project)
{
    const struct project *p = control_project_by_id(c, project);

    return p == NULL || !p->artifacts.checksum_optional;
}

const struct key *control_key(const struct control *c, struct slice text, const struct project **p)
{
    uint8_t hash[SHA256_LEN];
    size_t at;

    if (text.len == 0 || text.len > KEY_TEXT_MAX) {
        return NULL;
    }
    sha256_once(text, hash);
    at = slot_of(&c->now, hash);
    while (c->now.slot[at] != 0) {
        const struct control_key_entry *k = &c->now.key[c->now.slot[at] - 1];
        if (memcmp(k->hash, hash, SHA256_LEN) == 0) {
            if (p != NULL) {
                *p = control_project_by_id(c, k->key.project);
            }
            return &k->key;
        }
        at = (at + 1) & (c->now.slot_count - 1);
    }
    return NULL;
}

const struct project *control_project_at(const struct control *c, size_t i)
{
    return i < c->now.project_count ? &c->now.project[i] : NULL;
}

const struct key *control_key_at(const struct control *c, int64_t project, size_t i)
{
    size_t low = 0, high = c->now.key_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (c->now.key[mid].key.project < project) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (i >= c->now.key_count - low || c->now.key[low + i].key.project != project) {
        return NULL;
    }
    return &c->now.key[low + i].key;
}
