/* tallyman sinks: pauses and resumes all destinations, or shows whether they are paused. Asks the
 * running server; without one it makes or removes DATA/paused itself (store/paused.h), with the
 * directory's lock, so that no server starts in between. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "main/api.h"
#include "main/args.h"
#include "main/backup.h"
#include "main/config.h"
#include "main/output.h"
#include "main/verbs.h"
#include "os/os.h"
#include "store/paused.h"
#include "json/read.h"
#include "json/write.h"

#define VERB   "sinks"
#define REASON "paused by tallyman sinks pause"

enum sinks_what { SINKS_SHOW, SINKS_PAUSE, SINKS_RESUME };

struct sinks {
    struct client_target target;
    const char *data;
    enum sinks_what what;
    const char *reason;
    bool json;
};

static void print_state(const struct sinks *s, struct slice object)
{
    struct slice value;
    if (s->json) {
        output_put(object);
        output_put(SLICE("\n"));
        return;
    }
    if (!json_member(object, SLICE("paused"), &value) || json_type_of(value) != JSON_TRUE) {
        output_printf("not paused\n");
        return;
    }
    output_printf("paused since ");
    api_print_member(object, "since");
    output_printf(": ");
    api_print_member(object, "reason");
    output_printf("\n");
}

/* ---- with a server ---- */

static int ask(const struct sinks *s)
{
    static const char *const paths[] = {"/api/v1/sinks", "/api/v1/sinks/pause",
                                        "/api/v1/sinks/resume"};
    struct client_answer answer;
    struct buf body = {0};
    int code = EXIT_FAILED;
    buf_put_char(&body, '{');
    if (s->what == SINKS_PAUSE) {
        json_put_name(&body, "reason");
        json_put_string(&body, slice_cstr(s->reason));
    }
    buf_put_char(&body, '}');
    const struct client_request req = {.path = paths[s->what],
                                       .post = s->what != SINKS_SHOW,
                                       .body = buf_slice(&body),
                                       .repeatable = true};
    if (body.failed) {
        output_error(VERB, "out of memory");
    } else if (api_call(&s->target, &req, &answer, &code)) {
        code = EXIT_DONE;
        print_state(s, buf_slice(&answer.body));
        client_answer_free(&answer);
    }
    buf_free(&body);
    return code;
}

/* ---- without one ---- */

static int change(const struct sinks *s, struct err *e)
{
    switch (s->what) {
    case SINKS_PAUSE:
        return paused_write(s->data, slice_cstr(s->reason), NULL, e);
    case SINKS_RESUME:
        return paused_remove(s->data, e);
    case SINKS_SHOW:
        break;
    }
    return 0;
}

static int by_hand(const struct sinks *s)
{
    struct err e = {0};
    struct paused p;
    struct buf b = {0};
    if (change(s, &e) != 0) {
        output_error(VERB, "%s", e.text);
        return EXIT_FAILED;
    }
    paused_read(s->data, &p);
    paused_put_json(&b, &p);
    print_state(s, buf_slice(&b));
    buf_free(&b);
    return EXIT_DONE;
}

/* The lock: held when no server runs. -EWOULDBLOCK: one does. */
static int take_lock(const struct sinks *s, int *fd, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    int r = restore_check(s->data, e);
    if (r == 0) {
        r = backup_join(path, s->data, "lock", e);
    }
    if (r != 0) {
        return r;
    }
    *fd = os_open(path, O_RDWR | O_CREAT, 0600);
    if (*fd < 0) {
        return err_os(e, *fd, "open", path);
    }
    r = os_flock(*fd, LOCK_EX | LOCK_NB);
    if (r == -EWOULDBLOCK) {
        return ERR_LOCKED;
    }
    return r < 0 ? err_os(e, r, "lock", path) : 0;
}

static int run(const struct sinks *s)
{
    struct err e = {0};
    int fd = -1;
    int code = EXIT_FAILED;
    int r = take_lock(s, &fd, &e);
    if (r == 0) {
        code = by_hand(s);
    } else if (r != ERR_LOCKED) {
        output_error(VERB, "%s", e.text);
    }
    if (fd >= 0) {
        (void)os_close(fd);
    }
    return r == ERR_LOCKED ? ask(s) : code;
}

int verb_sinks(int argc, char **argv)
{
    static const char *const words[] = {"show", "pause", "resume"};
    struct sinks s = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "reason",
         .type = ARG_TEXT,
         .target = &s.reason,
         .value = "TEXT",
         .help = "with pause: why, for whoever looks later"},
        CLIENT_OPTION_DATA(s.target),
        CLIENT_OPTION_TIMEOUT(s.target),
        CLIENT_OPTION_RETRY(s.target),
        {.name = "json", .type = ARG_SWITCH, .target = &s.json, .help = "print the JSON answer"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "show | pause | resume",
        .about = "Pauses all deliveries, of events and of files, until they are resumed, also over "
                 "restarts.\nIntake goes on. What is being sent at that moment is finished. A "
                 "restored directory is paused.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    size_t i = 0;
    while (i < sizeof words / sizeof *words && strcmp(args.operand[0], words[i]) != 0) {
        i++;
    }
    if (i == sizeof words / sizeof *words) {
        output_error(VERB, "must be followed by: show, pause, or resume");
        return EXIT_USAGE;
    }
    s.what = (enum sinks_what)i;
    if (s.reason != NULL && s.what != SINKS_PAUSE) {
        output_error(VERB, "--reason goes with pause");
        return EXIT_USAGE;
    }
    s.reason = s.reason == NULL || s.reason[0] == '\0' ? REASON : s.reason;
    s.data = s.target.data != NULL ? s.target.data : config_default_data();
    return output_close(VERB, run(&s));
}
