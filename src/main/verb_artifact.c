/* tallyman artifact: what a server knows of an uploaded file, one line a fact: accepted, delivered,
 * verified, with times and places. With --wait it asks until the file is verified at its
 * destination, until it is parked (a person must look), or until the time is over; the exit code is
 * 1 unless it is verified. */
#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/pause.h"
#include "main/verbs.h"
#include "os/os.h"
#include "json/read.h"

#define VERB       "artifact"
#define NAME_WIDTH 10
#define PAUSE_MS   250

struct artifact_verb {
    struct client_target target;
    const char *id;
    uint64_t wait_s; /* 0 with wait: for as long as it takes */
    bool wait, json;
};

static void print_name(const char *name)
{
    output_printf("%-*s ", NAME_WIDTH, name);
}

static bool object_member(struct slice object, const char *name, struct slice *out)
{
    return json_member(object, slice_cstr(name), out) && json_type_of(*out) == JSON_OBJECT;
}

static bool has(struct slice object, const char *name)
{
    struct slice value;
    return json_member(object, slice_cstr(name), &value) && json_type_of(value) != JSON_NULL;
}

static void print_accepted(struct slice artifact)
{
    struct slice accepted;
    struct slice upload;
    print_name("accepted");
    if (object_member(artifact, "accepted", &accepted)) {
        api_print_member(accepted, "at");
        output_put(SLICE("  "));
        api_print_member(accepted, "size_bytes");
        output_put(SLICE(" bytes, "));
        api_print_member(accepted, "checksum");
        output_put(SLICE("\n"));
        print_name("");
        api_print_member(accepted, "receipt_id");
        output_put(SLICE(" of "));
        api_print_member(accepted, "issuer");
        output_put(SLICE("\n"));
        return;
    }
    output_put(SLICE("no\n"));
    if (object_member(artifact, "upload", &upload)) {
        print_name("upload");
        api_print_member(upload, "offset");
        output_put(SLICE(" of "));
        api_print_member(upload, "length");
        output_put(SLICE(" bytes, kept until "));
        api_print_member(upload, "expires_at");
        output_put(SLICE("\n"));
    }
}

static void print_files(struct slice delivery)
{
    struct slice files;
    struct slice file;
    if (!json_member(delivery, SLICE("files"), &files) || json_type_of(files) != JSON_ARRAY) {
        return;
    }
    struct json_iter it = json_iter_array(files);
    while (json_next_element(&it, &file)) {
        print_name("");
        api_print_member(delivery, "sink");
        output_put(SLICE(": "));
        api_print_member(delivery, "identifier");
        output_put(SLICE("/"));
        api_print_member(file, "name");
        output_put(SLICE("  "));
        api_print_member(file, "size");
        output_put(SLICE(" bytes, md5 "));
        api_print_member(file, "md5");
        output_put(SLICE("\n"));
    }
}

/* How far a delivery has come that is not done. */
static void print_state(struct slice delivery)
{
    api_print_member(delivery, "state");
    output_put(SLICE(", attempts "));
    api_print_member(delivery, "attempts");
    if (has(delivery, "next_attempt_at")) {
        output_put(SLICE(", next at "));
        api_print_member(delivery, "next_attempt_at");
    }
    output_put(SLICE("\n"));
    static const char *const reasons[] = {"error", "way_out"};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (has(delivery, reasons[i])) {
            print_name("");
            api_print_member(delivery, reasons[i]);
            output_put(SLICE("\n"));
        }
    }
}

static void print_delivery(struct slice artifact)
{
    struct slice delivery;
    if (!object_member(artifact, "delivery", &delivery)) {
        print_name("delivered");
        output_put(SLICE("no\n"));
        if (has(artifact, "delivery_error")) {
            print_name("");
            api_print_member(artifact, "delivery_error");
            output_put(SLICE("\n"));
        }
        return;
    }
    print_name("delivered");
    if (has(delivery, "sent_at")) {
        api_print_member(delivery, "sent_at");
        output_put(SLICE("\n"));
    } else {
        print_state(delivery);
    }
    print_files(delivery);
    print_name("verified");
    if (has(delivery, "verified_at")) {
        api_print_member(delivery, "verified_at");
        output_put(SLICE("\n"));
    } else if (has(delivery, "sent_at")) {
        print_state(delivery);
    } else {
        output_put(SLICE("no\n"));
    }
}

static void print_purge(struct slice local)
{
    if (has(local, "purged_at")) {
        output_put(SLICE(", gone since "));
        api_print_member(local, "purged_at");
    } else if (has(local, "purge_after")) {
        output_put(SLICE(", kept until "));
        api_print_member(local, "purge_after");
    }
    if (has(local, "purge_error")) {
        output_put(SLICE("\n"));
        print_name("");
        api_print_member(local, "purge_error");
    }
}

static void print_lines(struct slice artifact)
{
    struct slice local;
    print_name("artifact");
    api_print_member(artifact, "object_id");
    output_put(SLICE("\n"));
    print_name("file");
    api_print_member(artifact, "filename");
    output_put(SLICE(" (project "));
    api_print_member(artifact, "project");
    output_put(SLICE(")\n"));
    print_accepted(artifact);
    print_delivery(artifact);
    if (object_member(artifact, "local", &local)) {
        bool present = slice_eq(api_text(local, "present"), SLICE("true"));
        print_name("local");
        if (present) {
            api_print_member(local, "size_bytes");
        }
        output_put(present ? SLICE(" bytes") : SLICE("no bytes"));
        print_purge(local);
        output_put(SLICE("\n"));
    }
}

/* Is it as far as it will get by itself? */
static bool settled(struct slice artifact, bool *verified)
{
    struct slice delivery;
    struct slice state = SLICE("");
    if (object_member(artifact, "delivery", &delivery)) {
        state = api_text(delivery, "state");
    }
    *verified = slice_eq(state, SLICE("verified"));
    return *verified || slice_eq(state, SLICE("parked"));
}

/* Asks until it need not ask again; the last answer is the caller's. False: *code says it. */
static bool ask(const struct artifact_verb *v, const struct client_request *req,
                struct client_answer *answer, bool *verified, int *code)
{
    uint64_t start = os_clock_mono_ns();
    for (;;) {
        if (!api_call(&v->target, req, answer, code)) {
            return false;
        }
        uint64_t waited_ms = (os_clock_mono_ns() - start) / 1000000;
        bool over = v->wait_s != 0 && waited_ms >= v->wait_s * 1000;
        if (settled(buf_slice(&answer->body), verified) || !v->wait || over) {
            return true;
        }
        client_answer_free(answer);
        pause_ms(PAUSE_MS);
    }
}

static int run(const struct artifact_verb *v)
{
    struct client_answer answer;
    struct buf path = {0};
    bool verified = false;
    int code = EXIT_FAILED;
    api_put_path(&path, "/api/v1/artifacts/", slice_cstr(v->id));
    buf_put_char(&path, '\0');
    const struct client_request req = {.path = path.ptr, .repeatable = true};
    if (path.failed) {
        output_error(VERB, "out of memory");
    } else if (ask(v, &req, &answer, &verified, &code)) {
        struct slice body = buf_slice(&answer.body);
        if (v->json) {
            output_put(body);
            output_put(SLICE("\n"));
        } else {
            print_lines(body);
        }
        code = !v->wait || verified ? EXIT_DONE : EXIT_FAILED;
        if (code != EXIT_DONE) {
            output_error(VERB, "%s is not verified at its destination", v->id);
        }
        client_answer_free(&answer);
    }
    buf_free(&path);
    return code;
}

int verb_artifact(int argc, char **argv)
{
    struct artifact_verb v = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "wait",
         .type = ARG_U64_MAYBE,
         .target = &v.wait_s,
         .value = "[SECONDS]",
         .min = 1,
         .max = 999999999,
         .given = &v.wait,
         .help = "wait until it is verified or parked; exit code 1 unless it is verified"},
        CLIENT_OPTION_DATA(v.target),
        CLIENT_OPTIONS_URL(v.target),
        CLIENT_OPTION_TIMEOUT(v.target),
        CLIENT_OPTION_RETRY(v.target),
        {.name = "json", .type = ARG_SWITCH, .target = &v.json, .help = "print the JSON answer"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "ID",
        .about = "Shows what is known of an uploaded file: accepted, delivered, verified, and what "
                 "is kept here.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    v.id = args.operand[0];
    return output_close(VERB, run(&v));
}
