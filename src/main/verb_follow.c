/* tallyman follow: the journal's events on standard output as they are committed, one canonical
 * JSON object a line, for ever.
 *
 * Server-sent events are asked for (docs/PROTOCOL.md): their comments show that the connection
 * lives while nothing happens, and every frame brings the id to go on behind. Only whole frames are
 * printed, in rising order of their ids; anything else ends the verb, since a hole or a repeat
 * would go unnoticed in whatever is built from the output.
 *
 * A lost connection and the ends that say "come again" (shutdown, session_closed, buffer_exceeded,
 * writer_poisoned) are answered by asking again behind the last id, with growing pauses, until
 * retry_s have passed without anything new or a connection that lasted. replay_failed, refusals and
 * an answer that is no event stream end it at once: exit 1, with the id to go on behind. The first
 * connection must succeed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/uuid.h"
#include "main/args.h"
#include "main/client.h"
#include "main/output.h"
#include "main/pause.h"
#include "main/verbs.h"
#include "os/os.h"
#include "json/read.h"

#define VERB "follow"
#define LINE_BYTES_MAX \
    (256u << 20) /* a 32 MiB event can be over five times as long in canonical form */
#define PAUSE_FIRST_MS 100
#define PAUSE_MAX_MS   5000
#define LIVED_MS       10000 /* a connection that lasted so long was a good one */

enum ending {
    END_NONE,  /* the answer was cut */
    END_AGAIN, /* the server said so, and that one may come again */
    END_CAUGHT_UP,
    END_FAILED /* failure says why */
};

struct follow {
    const char *source, *stream, *kind, *record_key, *after;
    bool until_caught_up;
    struct client_target target;
    struct client *client;
    struct buf partial; /* the beginning of a line whose end has not come yet */
    /* of the frame that is arriving */
    struct buf data;
    bool has_data;
    char event[32];               /* "" for an event of the journal */
    char id[UUID_TEXT_LEN + 1];   /* "" for none */
    char last[UUID_TEXT_LEN + 1]; /* of the last whole frame */
    bool connected;               /* an answer has begun, now or before */
    bool moved;                   /* an id has come in this answer */
    uint64_t began_ns;            /* its first byte; 0: none */
    enum ending ending;
    struct err failure;
};

static bool fail(struct follow *f, const char *why)
{
    f->ending = END_FAILED;
    (void)err_set(&f->failure, ERR_REFUSED, "%s: %s", client_where(f->client), why);
    return false;
}

/* The server has ended it. */
static bool take_end(struct follow *f)
{
    struct slice value;
    struct slice reason;
    if (!json_member(buf_slice(&f->data), SLICE("reason"), &value) ||
        !json_string_raw(value, &reason) || reason.len > 100) {
        return fail(f, "the end gives no reason");
    }
    bool again = !slice_eq(reason, SLICE("replay_failed"));
    f->ending = again ? END_AGAIN : END_FAILED;
    (void)err_set(&f->failure, ERR_REFUSED, "%s: the server ended it: %.*s",
                  client_where(f->client), (int)reason.len, reason.ptr);
    return true;
}

static bool take_event(struct follow *f)
{
    if (f->id[0] == '\0') {
        return fail(f, "an event has no id");
    }
    output_put(buf_slice(&f->data));
    output_put(SLICE("\n"));
    return true;
}

static bool take_named(struct follow *f)
{
    if (strcmp(f->event, "end") == 0) {
        return take_end(f);
    }
    if (strcmp(f->event, "caught_up") == 0 && f->until_caught_up) {
        f->ending = END_CAUGHT_UP;
        return false;
    }
    return true; /* what a later server may say beside these */
}

/* The empty line behind a frame. */
static bool take_frame(struct follow *f)
{
    bool going = true;
    if (f->ending == END_AGAIN) {
        return fail(f, "the answer goes on behind its end");
    }
    if (f->id[0] != '\0' && strcmp(f->id, f->last) <= 0) {
        return fail(f, "the events are not in order");
    }
    if (f->has_data) {
        going = f->event[0] == '\0' ? take_event(f) : take_named(f);
    }
    if (f->id[0] != '\0' && f->ending != END_FAILED) {
        memcpy(f->last, f->id, sizeof f->last);
        f->moved = true;
    }
    buf_clear(&f->data);
    f->has_data = false;
    f->event[0] = '\0';
    f->id[0] = '\0';
    return going && f->ending != END_FAILED;
}

static bool take_line(struct follow *f, struct slice line)
{
    struct uuid unused;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
        line.len--;
    }
    if (line.len == 0) {
        return take_frame(f);
    }
    if (slice_starts(line, SLICE("data: "))) {
        if (f->has_data) {
            return fail(f, "an event has more than one line");
        }
        f->has_data = true;
        buf_put_slice(&f->data, slice_from(line, 6));
        return !f->data.failed || fail(f, "an event is larger than this program takes");
    }
    if (slice_starts(line, SLICE("id: "))) {
        struct slice id = slice_from(line, 4);
        if (!uuid7_parse(id, &unused)) {
            return fail(f, "an id is malformed");
        }
        memcpy(f->id, id.ptr, UUID_TEXT_LEN);
        f->id[UUID_TEXT_LEN] = '\0';
        return true;
    }
    if (slice_starts(line, SLICE("event: "))) {
        struct slice name = slice_from(line, 7);
        (void)snprintf(f->event, sizeof f->event, "%.*s",
                       (int)(name.len < sizeof f->event ? name.len : sizeof f->event), name.ptr);
        return true;
    }
    return *line.ptr == ':' || slice_starts(line, SLICE("retry:")) ||
           fail(f, "the answer is no event stream");
}

static bool sink(void *ctx, struct slice bytes)
{
    struct follow *f = ctx;
    f->connected = true;
    f->began_ns = f->began_ns != 0 ? f->began_ns : os_clock_mono_ns();
    while (bytes.len > 0) {
        const char *lf = memchr(bytes.ptr, '\n', bytes.len);
        size_t n = lf != NULL ? (size_t)(lf - bytes.ptr) : bytes.len;
        struct slice line = slice_of(bytes.ptr, n);
        if (lf == NULL || f->partial.len > 0) {
            buf_put_slice(&f->partial, line);
            if (f->partial.failed) {
                return fail(f, "a line of the answer is longer than this program takes");
            }
            line = buf_slice(&f->partial);
        }
        if (lf == NULL) {
            break;
        }
        if (!take_line(f, line)) {
            return false;
        }
        buf_clear(&f->partial);
        bytes = slice_from(bytes, n + 1);
    }
    if (!output_flush()) { /* whoever reads acts on an event now */
        f->ending = END_FAILED;
        return false;
    }
    return true;
}

static void put_filter(struct buf *query, const char *name, const char *value)
{
    if (value != NULL && value[0] != '\0') {
        client_put_query(query, name, slice_cstr(value));
    }
}

/* One connection, to its end. 0: ending says how it was; else an error that is told already. */
static int follow_once(struct follow *f)
{
    struct buf query = {0};
    struct client_answer answer = {0};
    struct err e = {0};
    client_put_query(&query, "follow", SLICE("true"));
    put_filter(&query, "source", f->source);
    put_filter(&query, "stream", f->stream);
    put_filter(&query, "kind", f->kind);
    put_filter(&query, "record_key", f->record_key);
    put_filter(&query, "after", f->last);
    buf_put_char(&query, '\0');
    if (query.failed) {
        output_error(VERB, "out of memory");
        return ERR_NO_MEMORY;
    }
    buf_clear(&f->partial);
    buf_clear(&f->data);
    f->has_data = false;
    f->event[0] = '\0';
    f->id[0] = '\0';
    f->moved = false;
    f->began_ns = 0;
    f->ending = END_NONE;
    const struct client_request req = {.path = "/v1/events",
                                       .query = query.ptr,
                                       .accept = "text/event-stream",
                                       .sink = sink,
                                       .sink_ctx = f};
    int r = client_do(f->client, &req, &answer, &e);
    buf_free(&query);
    if (r == 0 && answer.status != 200) {
        r = client_refusal(f->client, &answer, &e);
        ensure(r != 0);
        f->ending = END_FAILED;
        f->failure = e;
    } else if (f->ending == END_NONE) {
        f->failure = e;
        if (r == 0) {
            (void)err_set(&f->failure, ERR_IO, "%s: the answer was cut", client_where(f->client));
        }
        if (!f->connected || r == ERR_NO_MEMORY) {
            f->ending = END_FAILED;
        }
    }
    client_answer_free(&answer);
    return 0;
}

/* Where a reader can go on. */
static void print_broken(const struct follow *f)
{
    if (f->failure.code == 0) {
        return; /* standard output has gone; output_close tells */
    }
    if (f->last[0] != '\0') {
        output_error(VERB, "%s; go on with --after %s", f->failure.text, f->last);
    } else {
        output_error(VERB, "%s", f->failure.text);
    }
}

static int follow_all(struct follow *f)
{
    uint64_t still_since_ns = os_clock_mono_ns();
    uint64_t pause = PAUSE_FIRST_MS;
    for (;;) {
        if (follow_once(f) != 0) {
            return EXIT_FAILED;
        }
        if (f->ending == END_CAUGHT_UP) {
            return EXIT_DONE;
        }
        uint64_t now_ns = os_clock_mono_ns();
        bool lived = f->began_ns != 0 && now_ns - f->began_ns >= LIVED_MS * UINT64_C(1000000);
        if (f->moved || lived) {
            still_since_ns = now_ns;
            pause = PAUSE_FIRST_MS;
        }
        uint64_t still_ms = (now_ns - still_since_ns) / 1000000;
        if (f->ending == END_FAILED || still_ms + pause > f->target.retry_s * 1000) {
            print_broken(f);
            return EXIT_FAILED;
        }
        if (pause >= PAUSE_MAX_MS) {
            output_error(VERB, "%s; trying again", f->failure.text);
        }
        pause_ms(pause);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
}

static int run(struct follow *f)
{
    struct err e = {0};
    struct uuid unused;
    if (f->after != NULL) {
        if (!uuid7_parse(slice_cstr(f->after), &unused)) {
            output_error(VERB, "--after: must be the id of an event");
            return EXIT_USAGE;
        }
        (void)snprintf(f->last, sizeof f->last, "%s", f->after);
    }
    int r = client_open(&f->client, &f->target, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        return r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    buf_init(&f->partial, LINE_BYTES_MAX);
    buf_init(&f->data, LINE_BYTES_MAX);
    int code = follow_all(f);
    buf_free(&f->partial);
    buf_free(&f->data);
    client_close(f->client);
    return output_close(VERB, code);
}

int verb_follow(int argc, char **argv)
{
    struct follow f = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "source",
         .type = ARG_TEXT,
         .target = &f.source,
         .value = "NAME",
         .help = "only events of this source"},
        {.name = "stream",
         .type = ARG_TEXT,
         .target = &f.stream,
         .value = "NAME",
         .help = "only events of this stream"},
        {.name = "kind",
         .type = ARG_TEXT,
         .target = &f.kind,
         .value = "KIND",
         .help = "only events of this kind"},
        {.name = "record-key",
         .type = ARG_TEXT,
         .target = &f.record_key,
         .value = "KEY",
         .help = "only events of this record"},
        {.name = "after",
         .type = ARG_TEXT,
         .target = &f.after,
         .value = "ID",
         .help = "only events behind this one"},
        {.name = "until-caught-up",
         .type = ARG_SWITCH,
         .target = &f.until_caught_up,
         .help = "stop where the journal stood at the start"},
        CLIENT_OPTION_DATA(f.target),
        CLIENT_OPTIONS_URL(f.target),
        CLIENT_OPTION_RETRY(f.target),
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "",
        .about = "Prints events as JSON, one a line, in the order of the journal, and goes on with "
                 "what is committed\nlater, across restarts of the server.\n"
                 "Filters must match exactly; several must match together.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;
    return args_begin(&verb, argc, argv, &args, &code) ? run(&f) : code;
}
