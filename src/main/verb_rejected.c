/* tallyman rejected: events of a project that came in a good batch and could not be taken, with the
 * reason and their text, page by page. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"

#define VERB       "rejected"
#define PAGE_ROWS  "500"
#define CURSOR_MAX 24

struct rejected_verb {
    struct client_target target;
    const char *project;
    bool json;
    char after[CURSOR_MAX];
    uint64_t rows;
};

/* Prints one page; 1: there may be more, 0: that was the last, -1: not understood. */
static int take_page(struct rejected_verb *v, struct slice body)
{
    struct slice rows;
    struct slice item;
    unsigned count = 0;
    if (!json_member(body, SLICE("rejected"), &rows)) {
        return -1;
    }
    struct json_iter it = json_iter_array(rows);
    while (json_next_element(&it, &item)) {
        struct slice id = api_text(item, "id");
        if (id.len == 0 || id.len >= sizeof v->after) {
            return -1;
        }
        memcpy(v->after, id.ptr, id.len);
        v->after[id.len] = '\0';
        count++;
        if (v->json) {
            output_put(item);
            output_put(SLICE("\n"));
            continue;
        }
        struct slice at = api_text(item, "received_at");
        struct slice door = api_text(item, "door");
        struct slice index = api_text(item, "index");
        output_printf("%.*s  %.*s  %.*s, event %.*s of its batch: ", (int)id.len, id.ptr,
                      (int)at.len, at.ptr, (int)door.len, door.ptr, (int)index.len, index.ptr);
        api_print_member(item, "reason");
        output_put(SLICE("\n    "));
        api_print_member(item, "text");
        output_put(SLICE("\n"));
    }
    v->rows += count;
    return it.bad ? -1 : count > 0 ? 1 : 0;
}

static int get_page(struct rejected_verb *v, int *code)
{
    struct client_answer answer;
    struct buf path = {0};
    struct buf query = {0};
    int more = -1;
    api_put_path(&path, "/api/v1/projects/", slice_cstr(v->project));
    buf_put_cstr(&path, "/rejected");
    buf_put_char(&path, '\0');
    client_put_query(&query, "limit", SLICE(PAGE_ROWS));
    if (v->after[0] != '\0') {
        client_put_query(&query, "after_id", slice_cstr(v->after));
    }
    buf_put_char(&query, '\0');
    if (path.failed || query.failed) {
        output_error(VERB, "out of memory");
    } else {
        const struct client_request req = {
            .path = path.ptr, .query = query.ptr, .repeatable = true};
        if (api_call(&v->target, &req, &answer, code)) {
            more = take_page(v, buf_slice(&answer.body));
            if (more < 0) {
                output_error(VERB, "the answer is not what this program understands");
            }
            client_answer_free(&answer);
        }
    }
    buf_free(&path);
    buf_free(&query);
    return more;
}

int verb_rejected(int argc, char **argv)
{
    struct rejected_verb v = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "project",
         .type = ARG_TEXT,
         .target = &v.project,
         .value = "ID",
         .help = "the project"},
        CLIENT_OPTION_DATA(v.target),
        CLIENT_OPTIONS_URL(v.target),
        CLIENT_OPTION_TIMEOUT(v.target),
        CLIENT_OPTION_RETRY(v.target),
        {.name = "json",
         .type = ARG_SWITCH,
         .target = &v.json,
         .help = "print JSON, one event a line"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "",
        .about = "Lists the events of a project that came in a batch and could not be taken: why, "
                 "and what they were.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    if (v.project == NULL) {
        output_error(VERB, "--project: must be given");
        return EXIT_USAGE;
    }
    code = EXIT_FAILED;
    int more = 1;
    while (more == 1 && output_flush()) {
        more = get_page(&v, &code);
    }
    return output_close(VERB, more == 0 ? EXIT_DONE : code);
}
