/* tallyman query: SQL over the delivered events of one project. A table on a terminal, else one
 * JSON object a row. JSON, NDJSON and CSV go through as the server makes them and as they come,
 * however much it is; what was printed before an answer broke off is followed by an error and exit
 * code 1. A table is made in memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"
#include "json/write.h"

#define VERB "query"

struct query_verb {
    struct client_target target;
    const char *project, *format;
};

static const char *const formats[] = {"table", "json", "ndjson", "csv"};

static bool format_known(const char *format)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(format, formats[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool print_table(struct slice body)
{
    struct slice meta;
    struct slice data;
    struct slice item;
    struct slice value;
    struct slice name;
    struct table t;
    size_t columns = 0;
    if (!json_member(body, SLICE("meta"), &meta) || !json_member(body, SLICE("data"), &data)) {
        return false;
    }
    struct json_iter it = json_iter_array(meta);
    while (json_next_element(&it, &item)) {
        columns++;
    }
    if (it.bad || columns == 0 || columns > TABLE_COLUMNS_MAX) {
        return false;
    }
    table_begin(&t, columns);
    it = json_iter_array(meta);
    while (json_next_element(&it, &item)) {
        table_cell_member(&t, item, "name");
    }
    bool ok = true;
    it = json_iter_array(data);
    while (json_next_element(&it, &item)) {
        size_t cells = 0;
        struct json_iter row = json_iter_object(item);
        while (json_next_member(&row, &name, &value)) {
            if (json_type_of(value) == JSON_NULL) {
                table_cell(&t, SLICE("NULL"));
            } else {
                table_cell_value(&t, value);
            }
            cells++;
        }
        ok = ok && cells == columns;
    }
    return table_end(&t) && ok && !it.bad;
}

/* What was written last, for the line's end behind it. */
struct passing {
    char last;
};

static bool pass(void *ctx, struct slice bytes)
{
    struct passing *p = ctx;
    if (bytes.len > 0) {
        p->last = bytes.ptr[bytes.len - 1];
        output_put(bytes);
    }
    return output_flush();
}

static int run(const struct query_verb *q, const char *sql)
{
    struct passing passing = {.last = '\n'};
    struct client_answer answer;
    struct buf path = {0};
    struct buf body = {0};
    int code = EXIT_DONE;
    bool table = strcmp(q->format, "table") == 0;
    api_put_path(&path, "/api/v1/projects/", slice_cstr(q->project));
    buf_put_cstr(&path, "/query");
    buf_put_char(&path, '\0');
    buf_put_cstr(&body, "{\"sql\":");
    json_put_string(&body, slice_cstr(sql));
    buf_put_cstr(&body, ",\"format\":");
    json_put_string(&body, slice_cstr(table ? "json" : q->format));
    buf_put_char(&body, '}');
    if (path.failed || body.failed) {
        output_error(VERB, "out of memory");
        code = EXIT_FAILED;
    } else {
        const struct client_request req = {.path = path.ptr,
                                           .post = true,
                                           .body = buf_slice(&body),
                                           .repeatable = true,
                                           .sink = table ? NULL : pass,
                                           .sink_ctx = &passing};
        if (api_call(&q->target, &req, &answer, &code)) {
            if (!table) {
                output_put(passing.last == '\n' ? SLICE("") : SLICE("\n"));
            } else if (!print_table(buf_slice(&answer.body))) {
                output_error(VERB, "the answer is not what this program understands");
                code = EXIT_FAILED;
            }
            client_answer_free(&answer);
        }
    }
    buf_free(&path);
    buf_free(&body);
    return code;
}

int verb_query(int argc, char **argv)
{
    struct query_verb q = {.target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = 0}};
    const struct arg_option options[] = {
        {.name = "project",
         .type = ARG_TEXT,
         .target = &q.project,
         .value = "ID",
         .help = "the project whose events are asked"},
        {.name = "format",
         .type = ARG_TEXT,
         .target = &q.format,
         .value = "FORMAT",
         .help = "table, json, ndjson or csv (default: table on a terminal, else ndjson)"},
        CLIENT_OPTION_DATA(q.target),
        CLIENT_OPTIONS_URL(q.target),
        CLIENT_OPTION_TIMEOUT(q.target),
        CLIENT_OPTION_RETRY(q.target),
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "SQL",
        .about =
            "Asks the delivered events of a project, one read-only statement over the view "
            "`events`:\n\n"
            "    tallyman query \"select event, count() from events group by event\" --project "
            "demo\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    if (q.project == NULL) {
        output_error(VERB, "--project: must be given");
        return EXIT_USAGE;
    }
    if (q.format == NULL) {
        q.format = output_is_terminal(STDOUT_FILENO) ? "table" : "ndjson";
    }
    if (!format_known(q.format)) {
        output_error(VERB, "--format: must be table, json, ndjson or csv");
        return EXIT_USAGE;
    }
    return output_close(VERB, run(&q, args.operand[0]));
}
