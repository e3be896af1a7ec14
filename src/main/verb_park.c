/* tallyman park: artifacts whose delivery waits for a person: `list` says why and what can be done,
 * `retry` says that what stood in the way is gone, `identity` sends one as it is that cannot be in
 * a merged package.
 *
 * retry --all collects the ids that are parked at that moment, and asks for each. Asking is
 * repeatable: it is durable when it is answered, and asking twice is asking once. One that cannot
 * be asked for stops nothing else, and makes the exit code 1. */
#include <stdio.h>
#include <string.h>

#include "main/api.h"
#include "main/args.h"
#include "main/deliveries.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"

#define VERB    "park"
#define ID_LEN  32
#define IDS_MAX 1000000u /* 32 MB */

struct park_verb {
    struct client_target target;
    struct deliveries_list list;
    bool all, json;
    struct buf ids; /* of ID_LEN bytes each */
    bool failed;
};

static void print_json(void *ctx, struct slice item)
{
    (void)ctx;
    output_put(item);
    output_put(SLICE("\n"));
}

static void collect(void *ctx, struct slice item)
{
    struct park_verb *v = ctx;
    struct slice id = api_text(item, "object_id");

    if (id.len != ID_LEN || v->ids.len >= (size_t)IDS_MAX * ID_LEN) {
        v->failed = true;
        return;
    }
    buf_put_slice(&v->ids, id);
}

/* action: retry or identity. */
static bool ask_one(struct park_verb *v, const char *action, struct slice id, int *code)
{
    struct client_answer answer;
    struct buf path = {0};
    bool ok = false;

    api_put_path(&path, "/api/v1/artifacts/", id);
    buf_put_char(&path, '/');
    buf_put_cstr(&path, action);
    buf_put_char(&path, '\0');
    if (path.failed) {
        output_error(VERB, "out of memory");
    } else {
        const struct client_request req = {
            .path = path.ptr, .post = true, .body = SLICE("{}"), .repeatable = true};
        ok = api_call(&v->target, &req, &answer, code);
        if (ok) {
            output_printf("%.*s: %s is asked for\n", (int)id.len, id.ptr,
                          strcmp(action, "retry") == 0 ? "another try" : "an identity package");
            client_answer_free(&answer);
        }
    }
    buf_free(&path);
    return ok;
}

static int retry_all(struct park_verb *v)
{
    int code = deliveries_each(&v->list, collect, v);
    int result = code;

    if (code == EXIT_DONE && (v->failed || v->ids.failed)) {
        output_error(VERB, "too much is parked to be taken at once, or no memory; name the ids");
        return EXIT_FAILED;
    }
    for (size_t at = 0; code == EXIT_DONE && at < v->ids.len; at += ID_LEN) {
        int one = EXIT_FAILED;
        if (!ask_one(v, "retry", slice_of(v->ids.ptr + at, ID_LEN), &one)) {
            result = one;
        }
    }
    if (code == EXIT_DONE && v->ids.len == 0) {
        output_put(SLICE("nothing is parked\n"));
    }
    return result;
}

static int ask_named(struct park_verb *v, const struct args *args)
{
    int result = EXIT_DONE;

    for (unsigned i = 1; i < args->operand_count; i++) {
        int one = EXIT_FAILED;
        if (!ask_one(v, args->operand[0], slice_cstr(args->operand[i]), &one)) {
            result = one;
        }
    }
    return result;
}

static int run(struct park_verb *v, const struct args *args)
{
    const char *what = args->operand[0];
    unsigned ids = args->operand_count - 1;

    if (strcmp(what, "list") == 0 && ids == 0 && !v->all) {
        return deliveries_each(&v->list, v->json ? print_json : deliveries_print_row, NULL);
    }
    if (strcmp(what, "retry") == 0 && !v->json && v->all && ids == 0) {
        return retry_all(v);
    }
    if ((strcmp(what, "retry") == 0 || strcmp(what, "identity") == 0) && !v->json && !v->all &&
        ids > 0 && v->list.project == NULL) {
        return ask_named(v, args);
    }
    output_error(VERB, "give list, retry ID..., retry --all or identity ID...; --project goes with "
                       "list and --all, --json with list");
    return EXIT_USAGE;
}

int verb_park(int argc, char **argv)
{
    struct park_verb v = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S},
        .list = {.state = "parked"}};
    const struct arg_option options[] = {
        {.name = "project",
         .type = ARG_TEXT,
         .target = &v.list.project,
         .value = "ID",
         .help = "those of this project only"},
        {.name = "all", .type = ARG_SWITCH, .target = &v.all, .help = "retry: all that is parked"},
        CLIENT_OPTION_DATA(v.target),
        CLIENT_OPTIONS_URL(v.target),
        CLIENT_OPTION_TIMEOUT(v.target),
        CLIENT_OPTION_RETRY(v.target),
        {.name = "json",
         .type = ARG_SWITCH,
         .target = &v.json,
         .help = "list: print JSON, one artifact a line"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "list|retry|identity [ID...]",
        .about = "Artifacts whose delivery waits for a person. list says why, and what can be "
                 "done;\nretry asks for another try; identity sends one as it is that cannot be "
                 "joined with\nothers.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = ARGS_OPERANDS_MAX};
    struct args args;
    int code = EXIT_USAGE;

    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    v.list.target = &v.target;
    code = run(&v, &args);
    buf_free(&v.ids);
    return output_close(VERB, code);
}
