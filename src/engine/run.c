/* run: what happens between a request and its answer.
 *
 * Every request has a connection of its own (0.2 ms), so that nothing one of them sets outlives it.
 *
 *   owner     [USE database] [SET settings] [SET readonly = 2 for GET]  the statement
 *   project   SET log_comment = 'project', limits, readonly = 1; SET ROLE NONE; USE q;
 *             a look whether that took; the gate; the statement
 *
 * A new connection is ClickHouse's user `default`, whatever is asked for: libchdb knows no other.
 * Its rights of its own are SELECT on q.events, and the role `writer` gives it all. A project's
 * connection lays the role down, and no SELECT can take it up again: only SET ROLE could, a
 * statement, which the gate refuses three times over.
 *
 * Invariant: nothing is run on a project's connection before the look has shown no role, readonly
 * = 1 and this project's name.
 *
 * Power failure: ClickHouse writes a part under a temporary name, syncs its files and its
 * directory, renames it, and syncs the directory again; the directory that holds the new name it
 * does not sync, and a part whose name is lost is thrown away at the next start. So after a
 * statement that wrote rows the table's directory is synced here, and only then is it answered. (A
 * merged part's name has old_parts_lifetime to reach the disk by itself: until then the parts it
 * was made of are kept.)
 * Before the answer the outcome is unknown to the client, who sends the same rows again.
 *
 * Answers: every failure of a statement. Aborts: none. */
#include "engine/run.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/ensure.h"
#include "engine/code.h"
#include "engine/gate.h"
#include "engine/sql.h"
#include "os/os.h"

static char option_name[] = "tallyman-engine";
static char option_path[] = "--path=../data";
static char option_config[] = "--config-file=../config.xml";
char *const run_options[] = {option_name, option_path, option_config, NULL};

#define OWNER_RESULT_BYTES_MAX "268435456"
#define PROJECT_MEMORY_BYTES   "536870912"

/* Settings of a project's query beside its limits. The condition cache is off because it remembers
 * which granules matched a condition, and the view's condition is the same text for every project;
 * statistics are off because they count the rows read, other projects' too. */
static const char project_settings[] =
    "', result_overflow_mode = 'throw', timeout_overflow_mode = 'throw', max_threads = 2, "
    "max_memory_usage = " PROJECT_MEMORY_BYTES ", max_temporary_data_on_disk_size_for_query = "
    "1073741824, use_query_condition_cache = 0, use_query_cache = 0, implicit_select = 0, "
    "allow_introspection_functions = 0, allow_ddl = 0, log_queries = 0, "
    "output_format_write_statistics = 0, output_format_json_validate_utf8 = 1, readonly = 1";

/* Hands the library's own error over, or tells of a missing answer. */
static bool failed(const struct library_answer *a, struct query_error *e)
{
    if (a->error.len == 0) {
        return false;
    }
    query_fail(e, code_of(a->error), "%.*s", (int)a->error.len, a->error.ptr);
    return true;
}

static bool command(struct library_conn *c, const struct buf *sql, struct query_error *e)
{
    struct library_answer a;
    bool ok;

    if (sql->failed) {
        query_fail(e, CODE_MEMORY_LIMIT, "no memory for the statement");
        return false;
    }
    library_run(c, buf_slice(sql), SLICE("TSVRaw"), NULL, &a);
    ok = !failed(&a, e);
    library_answer_free(&a);
    return ok;
}

static bool command_text(struct library_conn *c, const char *sql, struct query_error *e)
{
    struct buf text = {0};
    bool ok;

    buf_put_cstr(&text, sql);
    ok = command(c, &text, e);
    buf_free(&text);
    return ok;
}

static bool open_conn(struct library_conn *c, struct query_error *e)
{
    struct err why = {0};

    if (library_open(c, run_options, &why) != 0) {
        query_fail(e, CODE_CANNOT_SCHEDULE_TASK, "%s", why.text);
        return false;
    }
    return true;
}

/* ---- a project's connection ---- */

static bool look(struct library_conn *c, const struct query *q, struct query_error *e)
{
    struct library_answer a;
    struct buf want = {0};
    bool ok;

    buf_printf(&want, "0\t1\t%.*s\tq\n", (int)q->project.len, q->project.ptr);
    library_run(c,
                SLICE("SELECT length(currentRoles()) + length(enabledRoles()), "
                      "getSetting('readonly'), getSetting('log_comment'), currentDatabase()"),
                SLICE("TSVRaw"), NULL, &a);
    ok = !failed(&a, e);
    if (ok && (want.failed || !slice_eq(a.data, buf_slice(&want)))) {
        query_fail(e, CODE_SUPPORT_IS_DISABLED, "the connection is not the project's alone");
        ok = false;
    }
    library_answer_free(&a);
    buf_free(&want);
    return ok;
}

bool run_open_project(struct library_conn *c, const struct query *q, struct query_error *e)
{
    struct buf set = {0};
    bool ok;

    ensure(q->project.len != 0);
    if (!open_conn(c, e)) {
        return false;
    }
    buf_put_cstr(&set, "SET log_comment = ");
    sql_put_string(&set, q->project);
    buf_printf(&set,
               ", max_execution_time = '%llu.%03llu', max_result_rows = '%llu', "
               "max_result_bytes = '%llu",
               (unsigned long long)(q->time_ms / 1000), (unsigned long long)(q->time_ms % 1000),
               (unsigned long long)q->rows_max, (unsigned long long)q->bytes_max);
    buf_put_cstr(&set, project_settings);
    ok = command(c, &set, e) && command_text(c, "SET ROLE NONE", e) &&
         command_text(c, "USE q", e) && look(c, q, e);
    buf_free(&set);
    if (!ok) {
        library_close(c);
    }
    return ok;
}

static bool gate_class(struct library_conn *c, struct slice sql, struct query_error *e)
{
    struct library_class class;

    if (!library_classify(c, sql, &class) || class.statements > 1 ||
        (class.statements == 1 && !class.read_only)) {
        query_fail(e, CODE_ACCESS_DENIED, "one reading statement is answered");
        return false;
    }
    return true; /* text that does not parse has no statement: EXPLAIN says where it is wrong */
}

bool run_gate(struct library_conn *c, struct slice sql, const struct library_params *params,
              struct query_error *e)
{
    char reason[GATE_REASON_BYTES];
    struct library_answer a;
    struct buf explain = {0};
    bool ok;

    if (!gate_text(sql, reason)) {
        query_fail(e, CODE_ACCESS_DENIED, "%s", reason);
        return false;
    }
    if (!gate_class(c, sql, e)) {
        return false;
    }
    buf_put_cstr(&explain, "EXPLAIN AST ");
    buf_put_slice(&explain, sql);
    if (explain.failed) {
        buf_free(&explain);
        query_fail(e, CODE_MEMORY_LIMIT, "no memory for the statement");
        return false;
    }
    library_run(c, buf_slice(&explain), SLICE("TSVRaw"), params, &a);
    ok = !failed(&a, e);
    if (ok && !gate_tree(a.data, reason)) {
        query_fail(e, CODE_ACCESS_DENIED, "%s", reason);
        ok = false;
    }
    library_answer_free(&a);
    buf_free(&explain);
    return ok;
}

/* The statement of a request: what is in the URL, then what is in the body. */
static bool join(const struct query *q, struct buf *sql, struct query_error *e)
{
    buf_put_slice(sql, q->sql);
    if (q->sql.len != 0 && q->body.len != 0) {
        buf_put_char(sql, '\n');
    }
    buf_put_slice(sql, q->body);
    if (sql->failed) {
        query_fail(e, CODE_MEMORY_LIMIT, "no memory for the statement");
    } else if (sql_trim(buf_slice(sql)).len == 0) {
        query_fail(e, CODE_SYNTAX_ERROR, "Syntax error: the statement is empty");
    } else {
        return true;
    }
    return false;
}

static void run_project(struct query *q, struct run_result *out)
{
    struct library_params params = {q->param, q->param_count};
    struct library_conn c = {0};
    struct buf joined = {0};
    struct slice sql;

    if (!join(q, &joined, &out->error)) {
        buf_free(&joined);
        return;
    }
    sql = sql_trim(buf_slice(&joined));
    if (run_open_project(&c, q, &out->error)) {
        if (run_gate(&c, sql, &params, &out->error)) {
            library_run(&c, sql, q->format, &params, &out->answer);
            if (!failed(&out->answer, &out->error) && out->answer.data.len > q->bytes_max) {
                query_fail(&out->error, CODE_TOO_MANY_ROWS_OR_BYTES,
                           "Limit for result exceeded: the answer has %zu bytes, at most %llu",
                           out->answer.data.len, (unsigned long long)q->bytes_max);
            }
            out->answer.rows_read = 0; /* of all projects */
            out->answer.bytes_read = 0;
        }
        library_close(&c);
    }
    buf_free(&joined);
}

/* ---- the owner ---- */

static bool put_settings(struct library_conn *c, const struct query *q, struct query_error *e)
{
    struct buf set = {0};
    bool ok = true;

    if (q->database.len != 0) {
        buf_put_cstr(&set, "USE ");
        sql_put_name(&set, q->database);
        ok = command(c, &set, e);
        buf_clear(&set);
    }
    buf_put_cstr(&set, "SET max_result_bytes = " OWNER_RESULT_BYTES_MAX
                       ", result_overflow_mode = 'throw', async_insert = 0");
    for (size_t i = 0; i < q->setting_count; i++) {
        buf_put_cstr(&set, ", ");
        buf_put_slice(&set, q->setting[i].name);
        buf_put_cstr(&set, " = ");
        sql_put_string(&set, q->setting[i].value);
    }
    ok = ok && command(c, &set, e);
    buf_free(&set);
    return ok && (!q->reading || command_text(c, "SET readonly = 2", e));
}

static void run_statement(struct library_conn *c, struct query *q, struct run_result *out)
{
    struct library_params params = {q->param, q->param_count};
    struct slice head = q->sql.len != 0 ? q->sql : q->body;
    struct sql_shape shape;
    struct buf joined = {0};

    sql_shape(head, &shape);
    if (shape.insert_rows && (q->sql.len == 0 || sql_trim(shape.rows).len == 0)) {
        struct slice rows = q->sql.len != 0 ? q->body : shape.rows;

        library_insert(c, shape.head, shape.format, &params, rows, &out->answer);
        (void)failed(&out->answer, &out->error);
        return;
    }
    if (shape.format.len != 0) {
        out->format = shape.format;
    }
    if (join(q, &joined, &out->error)) {
        library_run(c, buf_slice(&joined), q->format, &params, &out->answer);
        (void)failed(&out->answer, &out->error);
    }
    buf_free(&joined);
}

static void sync_commit(const struct query *q, struct run_result *out)
{
    int r;

    if (out->error.code == 0 && out->answer.rows_written != 0 && q->sync_dir != NULL) {
        r = os_sync_dir(q->sync_dir);
        if (r != 0) {
            query_fail(&out->error, CODE_CANNOT_FSYNC,
                       "the table's directory could not be synced: whether the rows are kept is "
                       "not known");
        }
    }
}

static void run_owner(struct query *q, struct run_result *out)
{
    struct library_conn c = {0};

    if (!open_conn(&c, &out->error)) {
        return;
    }
    if (put_settings(&c, q, &out->error)) {
        run_statement(&c, q, out);
    }
    library_close(&c);
    sync_commit(q, out);
}

void run_query(struct query *q, struct run_result *out)
{
    *out = (struct run_result){0};
    if (q->format.len == 0) {
        q->format = SLICE("TabSeparated");
    }
    out->format = q->format;
    if (q->project.len != 0) {
        run_project(q, out);
    } else {
        run_owner(q, out);
    }
    if (out->error.code != 0) {
        library_answer_free(&out->answer);
    }
}

void run_result_free(struct run_result *out)
{
    library_answer_free(&out->answer);
}
