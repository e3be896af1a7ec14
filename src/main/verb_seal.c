/* tallyman seal: compresses closed generations, the tail with them.
 *
 * Where a server runs on the directory, it is asked on its socket and does it beside its work; this
 * program only tells how far that is, and ending it changes nothing. Where none runs, the journal
 * is opened here, under the lock. A line on standard error for each segment; exit code 1 when there
 * was nothing to seal. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "journal/journal.h"
#include "journal/layout.h"
#include "journal/seal.h"
#include "main/api.h"
#include "main/args.h"
#include "main/backup.h"
#include "main/client.h"
#include "main/config.h"
#include "main/output.h"
#include "main/pause.h"
#include "main/verbs.h"
#include "os/os.h"
#include "json/read.h"

#define VERB    "seal"
#define POLL_MS 200

struct seal_verb {
    struct client_target target;
    uint64_t keep;
    bool keep_tail;
    uint64_t sealed;
};

static void tell(struct slice name, struct slice events, struct slice head)
{
    output_error(VERB, "sealed segments/%.*s (%.*s events, head %.*s)", (int)name.len, name.ptr,
                 (int)events.len, events.ptr, (int)head.len, head.ptr);
}

/* ---- by the server ---- */

static bool number(struct slice object, const char *name, uint64_t *out)
{
    struct slice v;
    return json_member(object, slice_cstr(name), &v) && json_u64(v, out);
}

static bool is_set(struct slice object, const char *name)
{
    struct slice v;
    return json_member(object, slice_cstr(name), &v) && json_type_of(v) == JSON_TRUE;
}

/* Asks until there is nothing more to wait for. */
static int follow(struct seal_verb *v, uint64_t after)
{
    for (;;) {
        struct client_answer answer;
        struct slice rows;
        struct slice row;
        char query[40];
        int code = EXIT_FAILED;
        (void)snprintf(query, sizeof query, "after=%llu", (unsigned long long)after);
        const struct client_request req = {
            .path = "/api/v1/seal", .query = query, .repeatable = true};
        if (!api_call(&v->target, &req, &answer, &code)) {
            return code;
        }
        struct slice body = buf_slice(&answer.body);
        bool ok = json_member(body, SLICE("segments"), &rows);
        struct json_iter it = json_iter_array(ok ? rows : SLICE("[]"));
        while (ok && json_next_element(&it, &row)) {
            ok = number(row, "number", &after);
            tell(api_text(row, "name"), api_text(row, "events"), api_text(row, "head"));
            v->sealed++;
        }
        struct slice failure = api_text(body, "failure");
        bool active = is_set(body, "active");
        if (!ok) {
            output_error(VERB, "the answer is not what this program understands");
        } else if (!active && failure.len > 0) {
            output_error(VERB, "%.*s%s", (int)failure.len, failure.ptr,
                         is_set(body, "stopped") ? "; nothing more is sealed before a restart"
                                                 : "");
            ok = false;
        }
        client_answer_free(&answer);
        if (!ok || !active) {
            return ok ? EXIT_DONE : EXIT_FAILED;
        }
        pause_ms(POLL_MS);
    }
}

static int ask(struct seal_verb *v)
{
    struct client_answer answer;
    char query[60];
    uint64_t after = 0;
    int code = EXIT_FAILED;
    (void)snprintf(query, sizeof query, "keep=%llu&tail=%s", (unsigned long long)v->keep,
                   v->keep_tail ? "false" : "true");
    const struct client_request req = {
        .path = "/api/v1/seal", .query = query, .post = true, .repeatable = true};
    if (!api_call(&v->target, &req, &answer, &code)) {
        return code;
    }
    bool ok = number(buf_slice(&answer.body), "sealed", &after);
    client_answer_free(&answer);
    if (!ok) {
        output_error(VERB, "the answer is not what this program understands");
        return EXIT_FAILED;
    }
    return follow(v, after);
}

/* ---- without a server ---- */

static void on_sealed(void *ctx, const struct journal_sealed *s)
{
    struct seal_verb *v = ctx;
    char events[24];
    char hex[SHA256_HEX_LEN];
    (void)snprintf(events, sizeof events, "%llu", (unsigned long long)s->events);
    hex_encode(hex, s->head, SHA256_LEN);
    tell(slice_cstr(s->name), slice_cstr(events), slice_of(hex, sizeof hex));
    v->sealed++;
}

/* ERR_LOCKED: somebody else has the directory. */
static int seal_here(struct seal_verb *v, const char *data, struct err *e)
{
    const struct journal_options options = {0};
    struct journal *j = NULL;
    struct err closing = {0};
    int r = journal_open(data, &options, &j, e);
    if (r != 0) {
        return r;
    }
    if (!v->keep_tail) {
        r = journal_close_tail(j, e);
    }
    if (r == 0) {
        r = journal_seal(j, (uint32_t)v->keep, on_sealed, v, e);
    }
    int closed = journal_close(j, &closing);
    if (r == 0 && closed != 0) {
        *e = closing;
        r = closed;
    }
    return r;
}

/* Opening would make one. */
static int look_for_journal(const char *data, struct err *e)
{
    struct layout l;
    struct os_stat st;
    int r = restore_check(data, e);
    if (r == 0) {
        r = layout_make(&l, data, e);
    }
    if (r == 0 && os_stat(l.manifest, &st) != 0) {
        r = err_set(e, ERR_NOT_FOUND, "there is no journal in %s", data);
    }
    return r;
}

static int run(struct seal_verb *v)
{
    struct err e = {0};
    const char *data = v->target.data != NULL ? v->target.data : config_default_data();
    int code;
    log_set_level(LOG_WARN);
    int r = look_for_journal(data, &e);
    if (r == 0) {
        r = seal_here(v, data, &e);
    }
    if (r == ERR_LOCKED) {
        code = ask(v);
    } else {
        code = r == 0 ? EXIT_DONE : EXIT_FAILED;
        if (r != 0) {
            output_error(VERB, "%s", e.text);
        }
    }
    if (code == EXIT_DONE && v->sealed == 0) {
        output_error(VERB, "nothing to seal");
        code = EXIT_FAILED;
    }
    return code;
}

int verb_seal(int argc, char **argv)
{
    struct seal_verb v = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        CLIENT_OPTION_DATA(v.target),
        {.name = "keep",
         .type = ARG_U64,
         .target = &v.keep,
         .value = "N",
         .min = 0,
         .max = UINT32_MAX,
         .help = "leave the newest N closed generations as they are (default 0)"},
        {.name = "keep-tail",
         .type = ARG_SWITCH,
         .target = &v.keep_tail,
         .help = "do not close the active generation for it"},
        CLIENT_OPTION_TIMEOUT(v.target),
        CLIENT_OPTION_RETRY(v.target),
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "",
        .about = "Compresses the closed generations of the history, and the active one, which is "
                 "closed for it. A running\nserver is asked to do it beside its work. Exit code 1 "
                 "when there is nothing to seal.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    return output_close(VERB, run(&v));
}
