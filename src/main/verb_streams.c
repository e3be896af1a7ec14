/* tallyman streams: every (source, stream) of the journal and where it stands, at one frontier: the
 * first page names it and the later pages ask for it, so a list made while others append is still
 * one coherent picture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ensure.h"
#include "main/args.h"
#include "main/client.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"

#define VERB       "streams"
#define PAGE_ROWS  "1000" /* the contract's maximum */
#define CURSOR_MAX 260    /* source, '/', stream */

struct row {
    struct slice source, stream, last_id;
    uint64_t events;
};

struct streams {
    const char *source;
    bool json, table;
    bool header; /* the table's has been printed */
    struct client_target target;
    struct client *client;
    char after[CURSOR_MAX];
    char through[40];
};

static bool text_of(struct slice object, struct slice name, struct slice *inner)
{
    struct slice value;
    return json_member(object, name, &value) && json_string_raw(value, inner);
}

static bool read_row(struct slice object, struct row *row)
{
    struct slice count;
    return text_of(object, SLICE("source"), &row->source) &&
           text_of(object, SLICE("stream"), &row->stream) &&
           text_of(object, SLICE("frontier_event_id"), &row->last_id) && row->source.len <= 128 &&
           row->stream.len <= 128 && row->last_id.len <= 36 &&
           json_member(object, SLICE("event_count"), &count) && json_u64(count, &row->events);
}

/* Texts are printed as they are in the JSON, still escaped: a name cannot move the cursor of a
 * terminal. */
static void print_row(const struct streams *s, const struct row *row, int source_width,
                      int stream_width)
{
    if (s->json) {
        output_printf("{\"source\":\"%.*s\",\"stream\":\"%.*s\",\"event_count\":%llu,"
                      "\"frontier_event_id\":\"%.*s\"}\n",
                      (int)row->source.len, row->source.ptr, (int)row->stream.len, row->stream.ptr,
                      (unsigned long long)row->events, (int)row->last_id.len, row->last_id.ptr);
    } else if (s->table) {
        output_printf("%-*.*s  %-*.*s  %12llu  %.*s\n", source_width, (int)row->source.len,
                      row->source.ptr, stream_width, (int)row->stream.len, row->stream.ptr,
                      (unsigned long long)row->events, (int)row->last_id.len, row->last_id.ptr);
    } else {
        output_printf("%.*s\t%.*s\t%llu\t%.*s\n", (int)row->source.len, row->source.ptr,
                      (int)row->stream.len, row->stream.ptr, (unsigned long long)row->events,
                      (int)row->last_id.len, row->last_id.ptr);
    }
}

/* Prints the rows of a page; false when one is malformed. Two passes: the first measures the
 * columns. */
static bool print_rows(struct streams *s, struct slice rows)
{
    int source_width = 6;
    int stream_width = 6;
    struct slice item;
    struct row row;
    struct json_iter it = json_iter_array(rows);
    while (json_next_element(&it, &item)) {
        if (!read_row(item, &row)) {
            return false;
        }
        source_width = (int)row.source.len > source_width ? (int)row.source.len : source_width;
        stream_width = (int)row.stream.len > stream_width ? (int)row.stream.len : stream_width;
    }
    if (it.bad) {
        return false;
    }
    if (s->table && !s->header) {
        output_printf("%-*s  %-*s  %12s  %s\n", source_width, "SOURCE", stream_width, "STREAM",
                      "EVENTS", "LAST EVENT");
        s->header = true;
    }
    it = json_iter_array(rows);
    while (json_next_element(&it, &item)) {
        bool ok = read_row(item, &row);
        ensure(ok); /* the first pass has read it */
        print_row(s, &row, source_width, stream_width);
    }
    return true;
}

/* Copies a string member into out ("" for null); false when it is missing, of another type or too
 * long. */
static bool copy_member(struct slice page, struct slice name, char *out, size_t size)
{
    struct slice value;
    struct slice inner;
    out[0] = '\0';
    if (!json_member(page, name, &value)) {
        return false;
    }
    if (json_type_of(value) == JSON_NULL) {
        return true;
    }
    if (!json_string_raw(value, &inner) || inner.len >= size) {
        return false;
    }
    memcpy(out, inner.ptr, inner.len);
    out[inner.len] = '\0';
    return true;
}

/* 1: more pages, 0: that was the last, -1: failed, and said so. */
static int take_page(struct streams *s, struct slice page)
{
    char after[CURSOR_MAX];
    char through[sizeof s->through];
    struct slice rows;
    if (!json_member(page, SLICE("streams"), &rows) || !print_rows(s, rows) ||
        !copy_member(page, SLICE("next_after"), after, sizeof after) ||
        !copy_member(page, SLICE("snapshot_through_event_id"), through, sizeof through)) {
        output_error(VERB, "%s: the answer is no list of streams", client_where(s->client));
        return -1;
    }
    if (after[0] != '\0' && (through[0] == '\0' || strcmp(after, s->after) == 0)) {
        output_error(VERB, "%s: the server does not move on", client_where(s->client));
        return -1;
    }
    if (s->after[0] == '\0') {
        memcpy(s->through, through, sizeof through);
    }
    memcpy(s->after, after, sizeof after);
    return after[0] != '\0' ? 1 : 0;
}

static int get_page(struct streams *s)
{
    struct err e = {0};
    struct buf query;
    struct client_answer answer = {0};
    int result = -1;
    buf_init(&query, 0);
    if (s->source != NULL) {
        client_put_query(&query, "source", slice_cstr(s->source));
    }
    client_put_query(&query, "limit", SLICE(PAGE_ROWS));
    if (s->after[0] != '\0') {
        client_put_query(&query, "after", slice_cstr(s->after));
        client_put_query(&query, "through", slice_cstr(s->through));
    }
    buf_put_char(&query, '\0');
    const struct client_request req = {
        .path = "/v1/streams", .query = query.ptr, .repeatable = true};
    int r = query.failed ? err_set(&e, ERR_NO_MEMORY, "out of memory")
                         : client_do(s->client, &req, &answer, &e);
    if (r == 0 && answer.status != 200) {
        r = client_refusal(s->client, &answer, &e);
    }
    if (r != 0) {
        output_error(VERB, "%s", e.text);
    } else {
        result = take_page(s, buf_slice(&answer.body));
    }
    client_answer_free(&answer);
    buf_free(&query);
    return result;
}

static int run(struct streams *s)
{
    struct err e = {0};
    int r = client_open(&s->client, &s->target, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        return r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    s->table = !s->json && output_is_terminal(STDOUT_FILENO);
    int more = 0;
    do {
        more = get_page(s);
    } while (more == 1 && output_flush());
    client_close(s->client);
    return output_close(VERB, more == 0 ? EXIT_DONE : EXIT_FAILED);
}

int verb_streams(int argc, char **argv)
{
    struct streams s = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "source",
         .type = ARG_TEXT,
         .target = &s.source,
         .value = "NAME",
         .help = "only streams of this source"},
        CLIENT_OPTION_DATA(s.target),
        CLIENT_OPTIONS_URL(s.target),
        CLIENT_OPTION_TIMEOUT(s.target),
        CLIENT_OPTION_RETRY(s.target),
        {.name = "json",
         .type = ARG_SWITCH,
         .target = &s.json,
         .help = "print JSON, one stream a line"},
    };
    const struct arg_verb verb = {.name = VERB,
                                  .operands = "",
                                  .about = "Lists every stream: source, stream, number of events, "
                                           "id of the last one. A table on a terminal,\n"
                                           "else separated by tabs.\n",
                                  .options = options,
                                  .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;
    return args_begin(&verb, argc, argv, &args, &code) ? run(&s) : code;
}
