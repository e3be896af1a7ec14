/* tallyman deliveries, packages and park: what became of accepted artifacts, page by page.
 *
 * deliveries lists one line an artifact, or JSON as the server has it. packages prints JSON lines,
 * first of all packages and then of their deliveries, for programs: members that are not known are
 * left out. Both read pages, so that memory is bounded; what happens meanwhile may show or not. A
 * page may be empty with more behind it. */
#include <stdio.h>
#include <string.h>

#include "main/api.h"
#include "main/args.h"
#include "main/deliveries.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"
#include "json/write.h"

#define PAGE_ROWS  "500"
#define CURSOR_MAX 200

static bool take_page(struct slice body, deliveries_row row, void *ctx, char after[CURSOR_MAX],
                      bool *more)
{
    struct slice rows;
    struct slice item;
    struct slice flag;
    struct slice next = api_text(body, "next_after");

    if (!json_member(body, SLICE("deliveries"), &rows) || next.len >= CURSOR_MAX) {
        return false;
    }
    struct json_iter it = json_iter_array(rows);
    while (json_next_element(&it, &item)) {
        row(ctx, item);
    }
    *more = json_member(body, SLICE("more"), &flag) && json_type_of(flag) == JSON_TRUE;
    if (*more && next.len == 0) {
        return false;
    }
    memcpy(after, next.ptr, next.len);
    after[next.len] = '\0';
    return !it.bad;
}

static bool get_page(const struct deliveries_list *l, deliveries_row row, void *ctx,
                     char after[CURSOR_MAX], bool *more, int *code)
{
    struct client_answer answer;
    struct buf query = {0};
    bool ok = false;

    client_put_query(&query, "limit", SLICE(PAGE_ROWS));
    if (l->project != NULL) {
        client_put_query(&query, "project", slice_cstr(l->project));
    }
    if (l->state != NULL) {
        client_put_query(&query, "state", slice_cstr(l->state));
    }
    if (after[0] != '\0') {
        client_put_query(&query, "after", slice_cstr(after));
    }
    buf_put_char(&query, '\0');
    if (query.failed) {
        output_error(l->target->verb, "out of memory");
    } else {
        const struct client_request req = {
            .path = "/api/v1/deliveries", .query = query.ptr, .repeatable = true};
        if (api_call(l->target, &req, &answer, code)) {
            ok = take_page(buf_slice(&answer.body), row, ctx, after, more);
            if (!ok) {
                output_error(l->target->verb, "the answer is not what this program understands");
            }
            client_answer_free(&answer);
        }
    }
    buf_free(&query);
    return ok;
}

int deliveries_each(const struct deliveries_list *l, deliveries_row row, void *ctx)
{
    char after[CURSOR_MAX] = "";
    bool more = true;
    int code = EXIT_FAILED;

    while (more) {
        if (!output_flush() || !get_page(l, row, ctx, after, &more, &code)) {
            return code;
        }
    }
    return EXIT_DONE;
}

/* ---- deliveries ---- */

static void print_json(void *ctx, struct slice item)
{
    (void)ctx;
    output_put(item);
    output_put(SLICE("\n"));
}

/* The file's name, or how many a package has. */
static void print_what(struct slice item)
{
    struct slice package, members;

    if (json_member(item, SLICE("package"), &package) &&
        json_member(package, SLICE("members"), &members)) {
        api_print_member(package, "member_count");
        output_put(SLICE(" files in one"));
    } else {
        api_print_member(item, "filename");
    }
}

void deliveries_print_row(void *ctx, struct slice item)
{
    static const char *const reasons[] = {"error", "way_out"};
    struct slice value;

    (void)ctx;
    api_print_member(item, "object_id");
    output_put(SLICE("  "));
    api_print_member(item, "project");
    output_put(SLICE("  "));
    api_print_member(item, "state");
    output_put(SLICE("  "));
    api_print_member(item, "size_bytes");
    output_put(SLICE(" bytes  "));
    print_what(item);
    if (json_member(item, SLICE("next_attempt_at"), &value)) {
        output_put(SLICE("  next at "));
        api_print_member(item, "next_attempt_at");
    }
    output_put(SLICE("\n"));
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (json_member(item, slice_cstr(reasons[i]), &value)) {
            output_put(SLICE("    "));
            api_print_member(item, reasons[i]);
            output_put(SLICE("\n"));
        }
    }
}

int verb_deliveries(int argc, char **argv)
{
    struct client_target target = {
        .verb = "deliveries", .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S};
    struct deliveries_list l = {.target = &target};
    bool json = false;
    const struct arg_option options[] = {
        {.name = "project",
         .type = ARG_TEXT,
         .target = &l.project,
         .value = "ID",
         .help = "those of this project only"},
        {.name = "state",
         .type = ARG_TEXT,
         .target = &l.state,
         .value = "STATE",
         .help = "pending, sending, sent, verified, retry_wait or parked only"},
        CLIENT_OPTION_DATA(target),
        CLIENT_OPTIONS_URL(target),
        CLIENT_OPTION_TIMEOUT(target),
        CLIENT_OPTION_RETRY(target),
        {.name = "json",
         .type = ARG_SWITCH,
         .target = &json,
         .help = "print JSON, one artifact a line"},
    };
    const struct arg_verb verb = {
        .name = "deliveries",
        .operands = "",
        .about = "Lists accepted artifacts and how far each has come on its way to its "
                 "destination, in the order\nin which they were taken up; with --state verified "
                 "in the order in which they were verified.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;

    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    code = deliveries_each(&l, json ? print_json : deliveries_print_row, NULL);
    return output_close("deliveries", code);
}

/* ---- packages ---- */

/* Copies the members that are there, as they are. */
static void put_members(struct buf *b, struct slice from, const char *const names[], size_t count)
{
    struct slice value;

    for (size_t i = 0; i < count; i++) {
        if (json_member(from, slice_cstr(names[i]), &value)) {
            json_put_name(b, names[i]);
            buf_put_slice(b, value);
        }
    }
}

#define PUT_MEMBERS(b, from, names) put_members(b, from, names, sizeof(names) / sizeof *(names))

static void print_line(struct buf *b)
{
    output_put(b->failed ? SLICE("") : buf_slice(b));
    buf_free(b);
}

static void print_package(void *ctx, struct slice item)
{
    static const char *const first[] = {"package_id", "project"};
    static const char *const own[] = {
        "packager",       "manifest_filename", "state",       "member_count",
        "build_attempts", "next_build_at",     "build_error", "created_at",
        "updated_at",     "sealed_at",         "members"};
    static const char *const rest[] = {"filename",    "object_id",   "size_bytes", "checksum",
                                       "purge_after", "purge_error", "purged_at"};
    struct slice package;
    struct buf b = {0};
    bool *failed = ctx;

    if (!json_member(item, SLICE("package"), &package)) {
        *failed = true;
        return;
    }
    buf_put_cstr(&b, "{\"type\":\"package\",\"package\":{");
    PUT_MEMBERS(&b, item, first);
    PUT_MEMBERS(&b, package, own);
    PUT_MEMBERS(&b, item, rest);
    buf_put_cstr(&b, "}}\n");
    *failed = *failed || b.failed;
    print_line(&b);
}

/* identifier and files are what the destination knows it as. */
static void print_delivery(void *ctx, struct slice item)
{
    static const char *const members[] = {"package_id",      "state",      "attempts",
                                          "next_attempt_at", "way_out",    "late",
                                          "files",           "updated_at", "sent_at"};
    static const struct {
        const char *from, *name;
    } renamed[] = {{"sink", "sink_id"},
                   {"error", "last_error"},
                   {"identifier", "remote_id"},
                   {"verified_at", "delivered_at"}};
    struct slice value;
    struct buf b = {0};
    bool *failed = ctx;

    if (!json_member(item, SLICE("sink"), &value)) { /* not sealed: there is none yet */
        return;
    }
    buf_put_cstr(&b, "{\"type\":\"delivery\",\"delivery\":{");
    PUT_MEMBERS(&b, item, members);
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (json_member(item, slice_cstr(renamed[i].from), &value)) {
            json_put_name(&b, renamed[i].name);
            buf_put_slice(&b, value);
        }
    }
    buf_put_cstr(&b, "}}\n");
    *failed = *failed || b.failed;
    print_line(&b);
}

int verb_packages(int argc, char **argv)
{
    struct client_target target = {
        .verb = "packages", .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S};
    struct deliveries_list l = {.target = &target};
    bool failed = false;
    const struct arg_option options[] = {
        {.name = "project",
         .type = ARG_TEXT,
         .target = &l.project,
         .value = "ID",
         .help = "those of this project only"},
        CLIENT_OPTION_DATA(target),
        CLIENT_OPTIONS_URL(target),
        CLIENT_OPTION_TIMEOUT(target),
        CLIENT_OPTION_RETRY(target),
    };
    const struct arg_verb verb = {
        .name = "packages",
        .operands = "",
        .about = "Prints JSON lines: first {\"type\":\"package\",...} of all packages, then "
                 "{\"type\":\"delivery\",...}\nof all deliveries.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;
    int code = EXIT_USAGE;

    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    code = deliveries_each(&l, print_package, &failed);
    if (code == EXIT_DONE) {
        code = deliveries_each(&l, print_delivery, &failed);
    }
    if (code == EXIT_DONE && failed) {
        output_error("packages", "out of memory, or an answer that this program does not "
                                 "understand");
        code = EXIT_FAILED;
    }
    return output_close("packages", code);
}
