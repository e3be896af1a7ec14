/* tallyman status: asks the server on the Unix socket of a data directory how it is, and prints
 * what it says; with --project, how the delivery of one project stands.
 *
 * Members are printed as they come, `journal.bytes` under each other, so that a newer server's
 * answer is shown whole. A server that answers but acknowledges nothing any more (poisoned) is a
 * failure, exit 1, as is one that does not answer. */
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "main/api.h"
#include "main/args.h"
#include "main/client.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"

#define VERB       "status"
#define NAME_WIDTH 30
#define TEXT_SHOWN 600

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s);
    size_t m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* " (1.5 GiB)" or " (2 h 5 min)" behind numbers whose name says their unit; else "". */
static void describe(const char *name, uint64_t v, char *out, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    out[0] = '\0';
    if (ends_with(name, "bytes") && v >= 1024) {
        double d = (double)v;
        size_t i = 0;
        while (d >= 1024) {
            d /= 1024;
            i++;
        }
        ensure(i < sizeof units / sizeof *units);
        (void)snprintf(out, size, " (%.1f %s)", d, units[i]);
    } else if (ends_with(name, "_ms") && v >= 60000) {
        unsigned long long min = (unsigned long long)(v / 60000);
        (void)snprintf(out, size, " (%llu d %llu h %llu min)", min / 1440, min / 60 % 24, min % 60);
    } else if (ends_with(name, "_ms") && v >= 1000) {
        (void)snprintf(out, size, " (%llu s)", (unsigned long long)(v / 1000));
    }
}

static void print_value(const char *name, struct slice value)
{
    struct slice inner;
    uint64_t number = 0;
    char described[60] = "";
    struct slice shown = json_string_raw(value, &inner) ? inner : value;
    if (json_u64(value, &number)) {
        describe(name, number, described, sizeof described);
    }
    output_printf("%-*s %.*s%s%s\n", NAME_WIDTH, name,
                  shown.len > TEXT_SHOWN ? TEXT_SHOWN : (int)shown.len, shown.ptr,
                  shown.len > TEXT_SHOWN ? "..." : "", described);
}

/* Members of the object and, two levels down, of the objects in it. */
static bool print_members(const char *prefix, unsigned depth, struct slice object)
{
    struct json_iter it = json_iter_object(object);
    struct slice name;
    struct slice value;
    while (json_next_member(&it, &name, &value)) {
        char path[120];
        (void)snprintf(path, sizeof path, "%s%s%.*s", prefix, prefix[0] != '\0' ? "." : "",
                       name.len > 50 ? 50 : (int)name.len, name.ptr);
        if (json_type_of(value) == JSON_OBJECT && depth < 2) {
            if (!print_members(path, depth + 1, value)) {
                return false;
            }
        } else {
            print_value(path, value);
        }
    }
    return !it.bad;
}

static bool flag_set(struct slice store, struct slice name)
{
    struct slice value;
    return json_member(store, name, &value) && json_type_of(value) == JSON_TRUE;
}

/* What an operator must act on in one store, on standard error. what: "journal" or "queue". */
static int judge_store(const struct client *client, struct slice status, const char *what)
{
    struct slice store;
    struct slice value;
    struct slice cause = SLICE("no cause given");
    struct slice inner;
    if (!json_member(status, slice_cstr(what), &store)) {
        return EXIT_DONE;
    }
    if (json_member(store, SLICE("cause"), &value) && json_string_raw(value, &inner) &&
        inner.len > 0) {
        cause = inner;
    }
    int shown = cause.len > TEXT_SHOWN ? TEXT_SHOWN : (int)cause.len;
    if (flag_set(store, SLICE("damaged"))) {
        output_error(VERB, "%s: the %s is damaged and takes no appends: %.*s", client_where(client),
                     what, shown, cause.ptr);
        return EXIT_FAILED;
    }
    if (flag_set(store, SLICE("poisoned"))) {
        output_error(VERB,
                     "%s: the %s: a write or sync failed and nothing is acknowledged until a "
                     "restart: %.*s",
                     client_where(client), what, shown, cause.ptr);
        return EXIT_FAILED;
    }
    if (flag_set(store, SLICE("no_space"))) {
        output_error(VERB, "%s: the %s is out of space, intake waits: %.*s", client_where(client),
                     what, shown, cause.ptr);
    }
    return EXIT_DONE;
}

/* What holds uploads or deliveries up; the server goes on all the same. */
static void judge_artifacts(const struct client *client, struct slice status)
{
    struct slice artifacts;
    struct slice delivery;
    struct slice value;
    uint64_t parked = 0;
    if (!json_member(status, SLICE("artifacts"), &artifacts) ||
        json_type_of(artifacts) != JSON_OBJECT) {
        return;
    }
    if (flag_set(artifacts, SLICE("low_space"))) {
        output_error(VERB, "%s: less than min_free_bytes is free, uploads wait",
                     client_where(client));
    }
    if (json_member(artifacts, SLICE("delivery"), &delivery) &&
        json_type_of(delivery) == JSON_OBJECT && json_member(delivery, SLICE("parked"), &value) &&
        json_u64(value, &parked) && parked > 0) {
        output_error(VERB, "%s: %llu artifacts are parked and wait for a person",
                     client_where(client), (unsigned long long)parked);
    }
}

static void judge_sinks(const struct client *client, struct slice status)
{
    struct slice sinks;
    if (json_member(status, SLICE("sinks"), &sinks) && flag_set(sinks, SLICE("paused"))) {
        output_error(VERB, "%s: all deliveries are paused, until tallyman sinks resume",
                     client_where(client));
    }
}

static int judge(const struct client *client, struct slice status)
{
    int journal = judge_store(client, status, "journal");
    int queue = judge_store(client, status, "queue");
    judge_artifacts(client, status);
    judge_sinks(client, status);
    return journal != EXIT_DONE ? journal : queue;
}

static int show(const struct client *client, struct slice status, bool json)
{
    if (json_type_of(status) != JSON_OBJECT) {
        output_error(VERB, "%s: the answer is no status", client_where(client));
        return EXIT_FAILED;
    }
    if (json) {
        output_put(status);
        output_put(SLICE("\n"));
    } else {
        output_printf("%-*s %.300s\n", NAME_WIDTH, "server", client_where(client));
        if (!print_members("", 0, status)) {
            output_error(VERB, "%s: the answer is no status", client_where(client));
            return EXIT_FAILED;
        }
    }
    return judge(client, status);
}

static int run(const struct client_target *target, const char *project, bool json)
{
    struct err e = {0};
    struct client *client = NULL;
    struct client_answer answer = {0};
    int code = EXIT_FAILED;
    int r = client_open(&client, target, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        return r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    struct buf path = {0};
    if (project != NULL) {
        api_put_path(&path, "/api/v1/projects/", slice_cstr(project));
        buf_put_cstr(&path, "/status");
    } else {
        buf_put_cstr(&path, "/api/v1/status");
    }
    buf_put_char(&path, '\0');
    const struct client_request req = {.path = path.ptr, .repeatable = true};
    r = path.failed ? err_set(&e, ERR_NO_MEMORY, "out of memory")
                    : client_do(client, &req, &answer, &e);
    buf_free(&path);
    if (r == 0 && answer.status != 200) {
        r = client_refusal(client, &answer, &e);
    }
    if (r != 0) {
        output_error(VERB, "%s", e.text);
    } else {
        code = show(client, buf_slice(&answer.body), json);
    }
    client_answer_free(&answer);
    client_close(client);
    return output_close(VERB, code);
}

int verb_status(int argc, char **argv)
{
    bool json = false;
    const char *project = NULL;
    struct client_target target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = 0};
    const struct arg_option options[] = {
        {.name = "project",
         .type = ARG_TEXT,
         .target = &project,
         .value = "ID",
         .help = "how the delivery of this project stands"},
        CLIENT_OPTION_DATA(target),
        CLIENT_OPTIONS_URL(target),
        CLIENT_OPTION_TIMEOUT(target),
        {.name = "json",
         .type = ARG_SWITCH,
         .target = &json,
         .help = "print the server's JSON object"},
    };
    const struct arg_verb verb = {.name = VERB,
                                  .operands = "",
                                  .about = "Prints how the server of a data directory is. Exit "
                                           "code 1 when it does not answer or has stopped\n"
                                           "acknowledging.\n",
                                  .options = options,
                                  .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;
    return args_begin(&verb, argc, argv, &args, &code) ? run(&target, project, json) : code;
}
