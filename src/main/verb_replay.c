/* tallyman replay: the journal's events on standard output, one canonical JSON object a line.
 *
 * Pages are asked for as NDJSON and printed as they come; memory is bounded by one line. A page
 * ends in a record of its own: "page" with the cursor for the next one, or "error". When neither
 * comes, the answer was cut: only whole lines were printed, and the exit code is 1. The end is the
 * frontier that the first page saw, so a replay ends also while others append. Events must come in
 * rising order of their ids: a server (or a proxy) that mixes them up is noticed here and not in
 * the view somebody builds from them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/uuid.h"
#include "main/args.h"
#include "main/client.h"
#include "main/output.h"
#include "main/progress.h"
#include "main/verbs.h"
#include "json/read.h"

#define VERB "replay"
#define LINE_BYTES_MAX \
    (256u << 20)           /* a 32 MiB event can be over five times as long in canonical form */
#define PAGE_EVENTS 100000 /* what servers allow unless configured otherwise */

struct id {
    char text[UUID_TEXT_LEN + 1]; /* "" for none */
};

struct replay {
    const char *source, *stream, *kind, *record_key, *after;
    uint64_t limit, last;
    bool has_limit, has_last, all;
    struct client_target target;
    struct client *client;
    struct progress progress;
    struct buf partial; /* the beginning of a line whose end has not come yet */
    uint64_t printed;   /* events */
    struct id last_id;  /* of the last event received */
    struct id end;      /* frontier the first page saw */
    /* of the current page */
    bool ended; /* its last record has come */
    struct id next_after;
    struct id snapshot;
    struct err failure; /* why the sink stopped; code 0: it has not, or output failed */
};

/* Copies an event id member; "" when it is null or absent. false when it is anything else. */
static bool id_member(struct slice object, struct slice name, struct id *out)
{
    struct slice value;
    struct slice inner;
    struct uuid unused;
    out->text[0] = '\0';
    if (!json_member(object, name, &value) || json_type_of(value) == JSON_NULL) {
        return true;
    }
    if (!json_string_raw(value, &inner) || !uuid7_parse(inner, &unused)) {
        return false;
    }
    memcpy(out->text, inner.ptr, UUID_TEXT_LEN);
    out->text[UUID_TEXT_LEN] = '\0';
    return true;
}

static bool stop(struct replay *p, const char *why)
{
    (void)err_set(&p->failure, ERR_REFUSED, "%s: %s", client_where(p->client), why);
    return false;
}

/* The last record of a page. */
static bool take_end(struct replay *p, struct slice line)
{
    struct slice value;
    struct slice type;
    if (!json_member(line, SLICE("type"), &value) || !json_string_raw(value, &type)) {
        return stop(p, "a line of the answer is no event");
    }
    p->ended = true;
    if (slice_eq(type, SLICE("page"))) {
        if (!id_member(line, SLICE("next_after"), &p->next_after) ||
            !id_member(line, SLICE("snapshot_through_event_id"), &p->snapshot)) {
            return stop(p, "the page record holds a malformed event id");
        }
        return true;
    }
    if (!slice_eq(type, SLICE("error"))) {
        return stop(p, "a line of the answer is no event");
    }
    struct client_answer as_answer = {.status = 500};
    buf_put_slice(&as_answer.body, line);
    int r = client_refusal(p->client, &as_answer, &p->failure);
    client_answer_free(&as_answer);
    ensure(r != 0);
    return false;
}

/* One line of the answer, without its end. */
static bool take_line(struct replay *p, struct slice line)
{
    struct id id;
    while (line.len > 0 && *line.ptr == ' ') { /* sent while the server searched */
        line = slice_from(line, 1);
    }
    if (p->ended) {
        return stop(p, "the answer goes on behind its last record");
    }
    if (!id_member(line, SLICE("event_id"), &id)) {
        return stop(p, "a line of the answer holds a malformed event id");
    }
    if (id.text[0] == '\0') {
        return take_end(p, line);
    }
    if (strcmp(id.text, p->last_id.text) <= 0) {
        return stop(p, "the events of the answer are not in order");
    }
    bool wanted = !(p->has_limit && p->printed == p->limit) &&
                  (p->end.text[0] == '\0' || strcmp(id.text, p->end.text) <= 0);
    p->last_id = id;
    if (!wanted) {
        return true;
    }
    output_put(line);
    output_put(SLICE("\n"));
    p->printed++;
    if (p->printed % 256 == 0) {
        progress_update(&p->progress, p->printed);
    }
    return true;
}

static bool sink(void *ctx, struct slice bytes)
{
    struct replay *p = ctx;
    while (bytes.len > 0) {
        const char *lf = memchr(bytes.ptr, '\n', bytes.len);
        size_t n = lf != NULL ? (size_t)(lf - bytes.ptr) : bytes.len;
        struct slice line = slice_of(bytes.ptr, n);
        if (lf == NULL || p->partial.len > 0) {
            buf_put_slice(&p->partial, line);
            if (p->partial.failed) {
                return stop(p, "a line of the answer is longer than this program takes");
            }
            line = buf_slice(&p->partial);
        }
        if (lf == NULL) {
            return true;
        }
        if (!take_line(p, line)) {
            return false;
        }
        buf_clear(&p->partial);
        bytes = slice_from(bytes, n + 1);
    }
    return true;
}

static void put_filter(struct buf *query, const char *name, const char *value)
{
    if (value != NULL) {
        client_put_query(query, name, slice_cstr(value));
    }
}

static void put_number(struct buf *query, const char *name, uint64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    ensure(n > 0);
    client_put_query(query, name, slice_of(text, (size_t)n));
}

static void make_query(const struct replay *p, const char *after, uint64_t page_events,
                       struct buf *query)
{
    put_filter(query, "source", p->source);
    put_filter(query, "stream", p->stream);
    put_filter(query, "kind", p->kind);
    put_filter(query, "record_key", p->record_key);
    put_filter(query, "after", after[0] != '\0' ? after : NULL);
    if (p->has_last) {
        put_number(query, "last", p->last);
    } else if (page_events > 0) {
        put_number(query, "limit", page_events);
    }
    buf_put_char(query, '\0');
}

/* Where a reader whose answer broke off can go on. */
static void print_broken(const struct replay *p, const char *why)
{
    if (p->last_id.text[0] != '\0' && !p->has_last) {
        output_error(VERB, "%s; go on with --after %s", why, p->last_id.text);
    } else {
        output_error(VERB, "%s", why);
    }
}

enum page { PAGE_DONE, PAGE_LIMIT_REFUSED, PAGE_FAILED };

static enum page get_page(struct replay *p, const char *after, uint64_t page_events)
{
    struct err e = {0};
    struct buf query;
    struct client_answer answer = {0};
    enum page out = PAGE_FAILED;
    buf_init(&query, 0);
    make_query(p, after, page_events, &query);
    p->ended = false;
    buf_clear(&p->partial);
    if (query.failed) {
        output_error(VERB, "out of memory");
        return PAGE_FAILED;
    }
    const struct client_request req = {.path = "/v1/events",
                                       .query = query.ptr,
                                       .accept = "application/x-ndjson",
                                       .repeatable = true,
                                       .sink = sink,
                                       .sink_ctx = p};
    int r = client_do(p->client, &req, &answer, &e);
    if (r != 0) {
        if (p->failure.code != 0) {
            print_broken(p, p->failure.text);
        } else if (r != ERR_REFUSED) {
            print_broken(p, e.text);
        }
    } else if (answer.status != 200) {
        if (page_events > 0 && client_answer_is(&answer, 400, "invalid_replay_request")) {
            out = PAGE_LIMIT_REFUSED;
        } else {
            r = client_refusal(p->client, &answer, &e);
            ensure(r != 0);
            output_error(VERB, "%s", e.text);
        }
    } else if (!p->ended || p->partial.len > 0) {
        print_broken(p, "the answer was cut");
    } else {
        out = PAGE_DONE;
    }
    client_answer_free(&answer);
    buf_free(&query);
    return out;
}

static int replay_all(struct replay *p)
{
    struct id after = {""};
    uint64_t page_max = PAGE_EVENTS;
    if (p->after != NULL) {
        (void)snprintf(after.text, sizeof after.text, "%s", p->after);
        p->last_id = after;
    }
    for (bool first = true;; first = false) {
        uint64_t left = p->has_limit ? p->limit - p->printed : UINT64_MAX;
        enum page got = get_page(p, after.text, left < page_max ? left : page_max);
        if (got == PAGE_LIMIT_REFUSED) {
            page_max = 0; /* a server with a lower maximum: its default is always allowed */
            got = get_page(p, after.text, 0);
        }
        if (got != PAGE_DONE || !output_flush()) {
            return EXIT_FAILED;
        }
        p->end = first ? p->snapshot : p->end;
        bool at_end = p->end.text[0] == '\0' || p->next_after.text[0] == '\0' ||
                      strcmp(p->next_after.text, p->end.text) >= 0;
        if (at_end || p->has_last || (p->has_limit && p->printed == p->limit)) {
            return EXIT_DONE;
        }
        if (strcmp(p->next_after.text, after.text) <= 0) {
            print_broken(p, "the server does not move on");
            return EXIT_FAILED;
        }
        after = p->next_after;
    }
}

static bool check_options(struct replay *p)
{
    struct uuid unused;
    const char *wrong = NULL;
    if (p->after != NULL && !uuid7_parse(slice_cstr(p->after), &unused)) {
        wrong = "--after: must be the id of an event";
    } else if (p->has_limit && p->all) {
        wrong = "--limit and --all exclude each other";
    } else if (p->has_last && (p->has_limit || p->all || p->after != NULL)) {
        wrong = "--last excludes --limit, --all and --after";
    } else if (p->has_last && p->target.url != NULL) {
        wrong = "--last works on the Unix socket only, not with --url";
    }
    if (wrong != NULL) {
        output_error(VERB, "%s", wrong);
    }
    return wrong == NULL;
}

static int run(struct replay *p)
{
    struct err e = {0};
    if (!check_options(p)) {
        return EXIT_USAGE;
    }
    int r = client_open(&p->client, &p->target, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        return r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    buf_init(&p->partial, LINE_BYTES_MAX);
    progress_start(&p->progress, "replaying", PROGRESS_EVENTS, 0);
    int code = replay_all(p);
    progress_end();
    buf_free(&p->partial);
    client_close(p->client);
    return output_close(VERB, code);
}

int verb_replay(int argc, char **argv)
{
    struct replay p = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "source",
         .type = ARG_TEXT,
         .target = &p.source,
         .value = "NAME",
         .help = "only events of this source"},
        {.name = "stream",
         .type = ARG_TEXT,
         .target = &p.stream,
         .value = "NAME",
         .help = "only events of this stream"},
        {.name = "kind",
         .type = ARG_TEXT,
         .target = &p.kind,
         .value = "KIND",
         .help = "only events of this kind"},
        {.name = "record-key",
         .type = ARG_TEXT,
         .target = &p.record_key,
         .value = "KEY",
         .help = "only events of this record"},
        {.name = "after",
         .type = ARG_TEXT,
         .target = &p.after,
         .value = "ID",
         .help = "only events behind this one"},
        {.name = "limit",
         .type = ARG_U64,
         .target = &p.limit,
         .given = &p.has_limit,
         .value = "N",
         .min = 1,
         .max = UINT64_MAX,
         .help = "stop after N events"},
        {.name = "last",
         .type = ARG_U64,
         .target = &p.last,
         .given = &p.has_last,
         .value = "N",
         .min = 1,
         .max = UINT64_MAX,
         .help = "the last N events, in their order (Unix socket only)"},
        {.name = "all",
         .type = ARG_SWITCH,
         .target = &p.all,
         .help = "to the end of the journal (default)"},
        CLIENT_OPTION_DATA(p.target),
        CLIENT_OPTIONS_URL(p.target),
        CLIENT_OPTION_TIMEOUT(p.target),
        CLIENT_OPTION_RETRY(p.target),
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "",
        .about = "Prints events as JSON, one a line, in the order of the journal, up to where it "
                 "stands at the "
                 "start.\nFilters must match exactly; several must match together.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;
    return args_begin(&verb, argc, argv, &args, &code) ? run(&p) : code;
}
