/* tallyman retire: retires a source for good.
 *
 * Nothing takes it back, so it asks first: the name has to be typed on a terminal, or --yes given.
 * The request may be repeated after a lost answer: the server gives the same values again, with
 * status already_retired. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/verbs.h"
#include "os/os.h"
#include "json/write.h"

#define VERB      "retire"
#define TYPED_MAX 256 /* more than any name of a source */

/* One line from standard input, without its end; false when there is none. */
static bool read_line(char out[TYPED_MAX])
{
    size_t n = 0;
    for (;;) {
        int64_t got = os_read(STDIN_FILENO, out + n, 1);
        if (got == -EINTR) {
            continue;
        }
        if (got <= 0 || out[n] == '\n') {
            out[n] = '\0';
            return got > 0;
        }
        n += n + 1 < TYPED_MAX ? 1 : 0; /* what is too long is no name either */
    }
}

static bool confirmed(const char *source)
{
    char typed[TYPED_MAX];
    if (!output_is_terminal(STDIN_FILENO)) {
        output_error(VERB, "a source is retired for good: --yes says that it is meant");
        return false;
    }
    output_error(VERB, "%s will take no event any more, for good. Type its name to go on:", source);
    if (read_line(typed) && strcmp(typed, source) == 0) {
        return true;
    }
    output_error(VERB, "that is not its name; nothing was done");
    return false;
}

static int run(const struct client_target *target, const char *source)
{
    struct client_answer answer;
    struct buf body = {0};
    int code = EXIT_DONE;
    buf_put_cstr(&body, "{\"v\":1,\"source\":");
    json_put_string(&body, slice_cstr(source));
    buf_put_char(&body, '}');
    const struct client_request req = {
        .path = "/v1/sources/retire", .post = true, .body = buf_slice(&body), .repeatable = true};
    if (body.failed) {
        output_error(VERB, "out of memory");
        code = EXIT_FAILED;
    } else if (api_call(target, &req, &answer, &code)) {
        output_put(buf_slice(&answer.body));
        output_put(SLICE("\n"));
        client_answer_free(&answer);
    }
    buf_free(&body);
    return code;
}

int verb_retire(int argc, char **argv)
{
    struct client_target target = {
        .verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S};
    bool yes = false;
    const struct arg_option options[] = {
        {.name = "yes", .type = ARG_SWITCH, .target = &yes, .help = "do not ask"},
        CLIENT_OPTION_DATA(target),
        CLIENT_OPTIONS_URL(target),
        CLIENT_OPTION_TIMEOUT(target),
        CLIENT_OPTION_RETRY(target),
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "SOURCE",
        .about = "Retires a source of the history for good: it keeps its events and takes no more. "
                 "Prints\nthe JSON answer: where it ended, and the event that says so.\n",
        .more = "A new source may name it as its predecessor, in its first batch. Exit code 0 also "
                "when\nit was retired before; 1: it has no event, or the server refused.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    const char *source = args.operand[0];
    size_t bad;
    if (!utf8_valid(slice_cstr(source), &bad)) {
        output_error(VERB, "the name of the source is not UTF-8");
        return EXIT_USAGE;
    }
    if (!yes && !confirmed(source)) {
        return output_close(VERB, EXIT_USAGE);
    }
    return output_close(VERB, run(&target, source));
}
