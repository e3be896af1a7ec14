/* tallyman receipt: prints the receipt of an uploaded file, the JSON as the server keeps it, on one
 * line. Exit code 1 with the reason while there is none, and where there will be none. */
#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"

#define VERB "receipt"

/* Why there is no receipt, in our words; false: the server's will do. */
static bool explain(const struct client_answer *answer, const char *id)
{
    struct slice reason = api_text(buf_slice(&answer->body), "message");
    if (client_answer_is(answer, 404, "not_found")) {
        output_error(VERB, "there is no artifact %s", id);
    } else if (client_answer_is(answer, 409, "not_accepted")) {
        output_error(VERB, "%s is not accepted: its upload is not complete", id);
    } else if (client_answer_is(answer, 410, "gone")) {
        output_error(VERB, "%s is gone and will have no receipt: %.*s", id,
                     reason.len > 400 ? 400 : (int)reason.len, reason.ptr);
    } else {
        return false;
    }
    return true;
}

static int ask(const struct client_target *target, const char *id, const char *path)
{
    const struct client_request req = {.path = path, .repeatable = true};
    struct client_answer answer = {0};
    struct client *client = NULL;
    struct err e = {0};
    int r = client_open(&client, target, &e);
    bool said = false;
    if (r == 0) {
        r = client_do(client, &req, &answer, &e);
    }
    if (r == 0 && answer.status != 200) {
        said = explain(&answer, id);
        r = client_refusal(client, &answer, &e);
    }
    if (r == 0) {
        output_put(buf_slice(&answer.body)); /* it ends its line */
    } else if (!said) {
        output_error(VERB, "%s", e.text);
    }
    client_answer_free(&answer);
    client_close(client);
    return r == 0 ? EXIT_DONE : r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
}

int verb_receipt(int argc, char **argv)
{
    struct client_target target = {
        .verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S};
    const struct arg_option options[] = {
        CLIENT_OPTION_DATA(target),
        CLIENT_OPTIONS_URL(target),
        CLIENT_OPTION_TIMEOUT(target),
        CLIENT_OPTION_RETRY(target),
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "ID",
        .about = "Prints the receipt of an uploaded file: the proof that the server has all of it "
                 "and answers for it.\nExit code 1 while there is none.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    struct buf path = {0};
    api_put_path(&path, "/api/v1/receipts/", slice_cstr(args.operand[0]));
    buf_put_char(&path, '\0');
    if (path.failed) {
        output_error(VERB, "out of memory");
        code = EXIT_FAILED;
    } else {
        code = ask(&target, args.operand[0], path.ptr);
    }
    buf_free(&path);
    return output_close(VERB, code);
}
