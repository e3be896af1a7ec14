/* clickhouse_table: the table of a ClickHouse that is not ours, made and checked.
 *
 * CREATE ... IF NOT EXISTS never alters what is there, and a user without the right to create is
 * fine where somebody else made the table. So what counts is the check behind it, one look at
 * system.tables and system.columns:
 *
 *   blocked   no such table; a column is missing; not a ReplacingMergeTree, or project and uuid are
 *             not both in its sorting key (different events would be merged into one, or repeats
 *             would stay)
 *   a warning one of the fsync settings is missing: a power cut may lose what was acknowledged
 *
 * The view for queries is made too; without it delivery goes on. */
#include <stdio.h>

#include "base/events_schema.h"
#include "base/log.h"
#include "sink/clickhouse_internal.h"
#include "json/read.h"

#define CREATE_DATABASE "CREATE DATABASE IF NOT EXISTS " EVENTS_DATABASE
#define CREATE_VIEWS    "CREATE DATABASE IF NOT EXISTS q"

/* Arrays of system.columns, so that one object tells everything. */
#define CHECK                                                                                 \
    "SELECT engine, engine_full, sorting_key, (SELECT groupArray(name) FROM system.columns "  \
    "WHERE database = '" EVENTS_DATABASE "' AND table = '" EVENTS_TABLE "') AS columns "      \
    "FROM system.tables WHERE database = '" EVENTS_DATABASE "' AND name = '" EVENTS_TABLE "'" \
    " FORMAT JSONEachRow"

#define TABLE_NAME EVENTS_DATABASE "." EVENTS_TABLE

static const char *const columns[] = {
#define X(name, type) name,
    EVENTS_COLUMNS(X)
#undef X
};

static const char *const syncs[] = {"fsync_after_insert", "fsync_part_directory",
                                    "min_rows_to_fsync_after_merge",
                                    "min_compressed_bytes_to_fsync_after_merge"};

/* Runs one statement. *a is to be freed in any case. */
static int ask(struct clickhouse *c, struct slice sql, const atomic_bool *cancel,
               struct net_answer *a, struct err *e)
{
    struct buf query = {0};
    net_put_query(&query, "query", sql);
    net_put_query(&query, "wait_end_of_query", SLICE("1"));
    buf_put_char(&query, '\0');
    if (query.failed) {
        buf_free(&query);
        *a = (struct net_answer){0};
        return err_set(e, ERR_NO_MEMORY, "no memory for a statement");
    }
    int r = clickhouse_post(c, query.ptr, (struct slice){0}, cancel, a, e);
    buf_free(&query);
    return r;
}

/* A statement without a result. False: *r says why. */
static bool run(struct clickhouse *c, struct slice sql, const atomic_bool *cancel,
                struct sink_result *r)
{
    struct net_answer a;
    struct err e = {0};
    int outcome = ask(c, sql, cancel, &a, &e);
    clickhouse_judge(outcome, &a, &e, 0, r);
    net_answer_free(&a);
    return r->verdict == SINK_DELIVERED;
}

static bool create_table(struct clickhouse *c, const atomic_bool *cancel, struct sink_result *r)
{
    static const char sql[] = "CREATE TABLE IF NOT EXISTS " TABLE_NAME " ("
#define X(name, type) name " " type ", "
        EVENTS_COLUMNS(X)
#undef X
            EVENTS_TABLE_TAIL;
    return run(c, slice_cstr(sql), cancel, r);
}

static void create_view(struct clickhouse *c, const atomic_bool *cancel)
{
    struct sink_result r;
    if (!run(c, SLICE(CREATE_VIEWS), cancel, &r) ||
        !run(c,
             SLICE("CREATE VIEW IF NOT EXISTS q.events AS SELECT " EVENTS_VIEW_COLUMNS
                   " FROM " TABLE_NAME " FINAL WHERE is_deleted = 0"),
             cancel, &r)) {
        if (!c->view_warned) {
            log_line(LOG_WARN, "clickhouse", "the view q.events was not made: %s", r.text);
        }
        c->view_warned = true;
    }
}

static void block(struct sink_result *r, const char *text, const char *what)
{
    *r = (struct sink_result){.verdict = SINK_RETRY, .prepare = true};
    (void)snprintf(r->text, sizeof r->text, "blocked: " TABLE_NAME " %s%s", text, what);
}

/* Whether an array of strings has this one. */
static bool array_has(struct slice array, const char *name)
{
    struct json_iter it = json_iter_array(array);
    struct slice v;
    struct slice inner;
    while (json_next_element(&it, &v)) {
        if (json_string_raw(v, &inner) && json_string_is(inner, slice_cstr(name))) {
            return true;
        }
    }
    return false;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Where `word` stands in text, not as a part of a longer name; NULL: nowhere. */
static const char *find_word(struct slice text, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; n <= text.len && i <= text.len - n; i++) {
        if (memcmp(text.ptr + i, word, n) == 0 && (i == 0 || !is_word(text.ptr[i - 1])) &&
            (i + n == text.len || !is_word(text.ptr[i + n]))) {
            return text.ptr + i;
        }
    }
    return NULL;
}

/* `name = N` with N above 0 among the settings. */
static bool has_setting(struct slice engine, const char *name)
{
    const char *at = find_word(engine, name);
    const char *end = engine.ptr + engine.len;
    if (at == NULL) {
        return false;
    }
    at += strlen(name);
    while (at < end && (*at == ' ' || *at == '=' || *at == '\'')) {
        at++;
    }
    return at < end && *at >= '1' && *at <= '9';
}

static struct slice text_of(struct slice row, struct slice name)
{
    struct slice v;
    struct slice inner = {0};
    if (!json_member(row, name, &v) || !json_string_raw(v, &inner)) {
        return (struct slice){.ptr = "", .len = 0};
    }
    return inner;
}

/* row: the one line that CHECK gave. */
static void judge_table(struct slice row, struct sink_result *r)
{
    struct slice list;
    struct slice full = text_of(row, SLICE("engine_full"));
    struct slice key = text_of(row, SLICE("sorting_key"));
    struct slice engine = text_of(row, SLICE("engine"));
    if (!json_member(row, SLICE("columns"), &list)) {
        block(r, "cannot be looked at", "");
        return;
    }
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (!array_has(list, columns[i])) {
            block(r, "lacks the column ", columns[i]);
            return;
        }
    }
    if (engine.len == 0 || memmem(engine.ptr, engine.len, "ReplacingMergeTree", 18) == NULL) {
        block(r, "is no ReplacingMergeTree", "");
        return;
    }
    if (find_word(key, "uuid") == NULL || find_word(key, "project") == NULL) {
        block(r, "needs ORDER BY (project, uuid); its sorting key lacks ",
              find_word(key, "uuid") == NULL ? "uuid" : "project");
        return;
    }
    *r = (struct sink_result){.verdict = SINK_DELIVERED};
    for (size_t i = 0; i < sizeof syncs / sizeof syncs[0]; i++) {
        if (!has_setting(full, syncs[i])) {
            (void)snprintf(r->text, sizeof r->text,
                           "warning: " TABLE_NAME " lacks the setting %s: a power cut there may "
                           "lose delivered rows",
                           syncs[i]);
            return;
        }
    }
}

void clickhouse_check_table(struct clickhouse *c, const atomic_bool *cancel, struct sink_result *r)
{
    struct net_answer a;
    struct err e = {0};
    struct sink_result made = {0};
    bool reached = run(c, SLICE(CREATE_DATABASE), cancel, &made) || made.code != 0;
    /* Without the right to make the database, that of making the table may still be there. */
    bool created = reached && create_table(c, cancel, &made);
    if (!created && made.code == 0) {
        *r = made; /* nobody there: no need to ask more */
        r->prepare = true;
        return;
    }
    int outcome = ask(c, SLICE(CHECK), cancel, &a, &e);
    if (outcome == 0 && a.status == 200 && clickhouse_code(&a) == 0 && a.body.len != 0 &&
        json_type_of(buf_slice(&a.body)) == JSON_OBJECT) {
        judge_table(buf_slice(&a.body), r);
    } else if (outcome == 0 && a.status == 200 && a.body.len == 0 && !created) {
        *r = made; /* there is none, and this is why */
        r->verdict = SINK_RETRY;
    } else {
        clickhouse_judge(outcome, &a, &e, 0, r);
        if (r->verdict == SINK_DELIVERED) {
            block(r, "is not to be seen", "");
        }
    }
    net_answer_free(&a);
    r->prepare = true;
    if (r->verdict == SINK_DELIVERED) {
        create_view(c, cancel);
    }
}
