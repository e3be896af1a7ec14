/* tallyman append: a file of events becomes batches with ids PREFIX@FIRST_INDEX, one request at a
 * time, a receipt each.
 *
 * Running it again with the same file sends the same batches under the same ids, which the server
 * answers with the original receipts; so any interruption (here, there, between) is cured by
 * running it again. A file that has grown: the batch that was the last one, and short, now holds
 * more events than the server has under its id. The conflict says how many those were (E); exactly
 * E are sent again, which must give the original receipt, and the rest goes on under
 * PREFIX@(FIRST+E). If E events do not give the receipt, the content itself has changed, and
 * nothing more is sent. The same holds the other way round when --batch-events was larger before.
 *
 * Every failure is an answer: exit 1, with the lines of the file it is about. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/args.h"
#include "main/batches.h"
#include "main/client.h"
#include "main/output.h"
#include "main/progress.h"
#include "main/verbs.h"
#include "json/read.h"
#include "json/write.h"

#define VERB "append"
/* Room in a request for ids and member names, however they have to be escaped. */
#define ENVELOPE_MAX 4096
#define LINES_OF     "%.150s:%llu-%llu"

static_assert(BATCHES_CUT_BYTES + ENVELOPE_MAX <= BATCHES_BODY_MAX, "a cut batch fits a request");

struct append {
    const char *source, *prefix;
    uint64_t batch_events;
    bool json;
    struct client_target target;
    struct client *client;
    struct events in;
    struct batches batches;
    struct buf body;
    struct buf line; /* a receipt being printed */
    struct progress progress;
    uint64_t committed_events, duplicate_events, batch_count;
};

enum sent { SENT_RECEIPT, SENT_CONFLICT, SENT_FAILED };

static unsigned long long first_line(const struct append *a)
{
    return (unsigned long long)batches_line(&a->batches, 0);
}

static unsigned long long last_line(const struct append *a, size_t count)
{
    return (unsigned long long)batches_line(&a->batches, count - 1);
}

static bool text_of(struct slice object, struct slice name, struct slice *inner)
{
    struct slice value;
    return json_member(object, name, &value) && json_string_raw(value, inner);
}

static bool number_of(struct slice object, struct slice name, uint64_t *out)
{
    struct slice value;
    return json_member(object, name, &value) && json_u64(value, out);
}

/* Prints the receipt of the first count events; false when it is none, or not for these. */
static bool print_receipt(struct append *a, size_t count, struct slice receipt)
{
    struct slice status;
    struct slice first;
    struct slice last;
    struct slice digest;
    uint64_t events = 0;
    bool whole = text_of(receipt, SLICE("status"), &status) &&
                 text_of(receipt, SLICE("first_event_id"), &first) &&
                 text_of(receipt, SLICE("last_event_id"), &last) &&
                 text_of(receipt, SLICE("batch_digest"), &digest) &&
                 number_of(receipt, SLICE("events"), &events);
    bool committed = whole && slice_eq(status, SLICE("committed"));
    bool duplicate = whole && slice_eq(status, SLICE("duplicate"));
    if ((!committed && !duplicate) || events != count) {
        output_error(VERB, LINES_OF ": the answer of %s is no receipt for these events", a->in.name,
                     first_line(a), last_line(a, count), client_where(a->client));
        return false;
    }
    a->committed_events += committed ? count : 0;
    a->duplicate_events += duplicate ? count : 0;
    a->batch_count++;
    struct buf id;
    buf_init(&id, 0);
    batches_id(&a->batches, a->prefix, &id);
    buf_clear(&a->line);
    if (a->json) {
        buf_printf(&a->line, "{\"status\":\"%.*s\",\"source\":", (int)status.len, status.ptr);
        json_put_string(&a->line, slice_cstr(a->source));
        buf_put_cstr(&a->line, ",\"batch_id\":");
        json_put_string(&a->line, buf_slice(&id));
        buf_printf(&a->line, ",\"events\":%zu,\"first_event_id\":\"", count);
        buf_put_slice(&a->line, first);
        buf_put_cstr(&a->line, "\",\"last_event_id\":\"");
        buf_put_slice(&a->line, last);
        buf_put_cstr(&a->line, "\",\"batch_digest\":\"");
        buf_put_slice(&a->line, digest);
        buf_printf(&a->line, "\",\"first_line\":%llu,\"last_line\":%llu}\n", first_line(a),
                   last_line(a, count));
    } else {
        buf_printf(&a->line, "%.*s %zu events ", (int)status.len, status.ptr, count);
        buf_put_slice(&a->line, buf_slice(&id));
        buf_put_char(&a->line, ' ');
        buf_put_slice(&a->line, first);
        buf_put_cstr(&a->line, "..");
        buf_put_slice(&a->line, last);
        buf_put_char(&a->line, '\n');
    }
    output_put(buf_slice(&a->line));
    bool ok = !a->line.failed && !id.failed;
    buf_free(&id);
    return ok && output_flush(); /* a reader acts on a receipt now, not when the buffer is full */
}

/* The server's list of bad events, each with its line; false when there is no such list in the
 * answer. */
static bool print_bad_events(const struct append *a, size_t count, struct slice body)
{
    struct slice errors;
    struct slice item;
    bool any = false;
    if (!json_member(body, SLICE("errors"), &errors) || json_type_of(errors) != JSON_ARRAY) {
        return false;
    }
    struct json_iter it = json_iter_array(errors);
    while (json_next_element(&it, &item)) {
        struct slice inner;
        uint64_t index = 0;
        if (!number_of(item, SLICE("index"), &index) || index >= count) {
            continue;
        }
        struct buf message;
        buf_init(&message, 0);
        if (text_of(item, SLICE("message"), &inner)) {
            json_unescape(inner, &message);
        }
        output_error(VERB, "%.150s:%llu: event %llu: %.*s", a->in.name,
                     (unsigned long long)batches_line(&a->batches, (size_t)index),
                     (unsigned long long)(a->batches.index + index), (int)message.len,
                     message.ptr != NULL ? message.ptr : "");
        buf_free(&message);
        any = true;
    }
    return any;
}

static void print_refusal(const struct append *a, size_t count, const struct client_answer *answer)
{
    struct err e = {0};
    if (client_answer_is(answer, 400, "invalid_events") &&
        print_bad_events(a, count, buf_slice(&answer->body))) {
        output_error(VERB, LINES_OF ": the batch was refused; nothing of it is stored", a->in.name,
                     first_line(a), last_line(a, count));
        return;
    }
    int r = client_refusal(a->client, answer, &e);
    ensure(r != 0);
    output_error(VERB, LINES_OF ": %s", a->in.name, first_line(a), last_line(a, count), e.text);
}

/* Sends the first count events. SENT_CONFLICT: *original is how many events the server holds under
 * this id, 0 when it does not say. */
static enum sent send_batch(struct append *a, size_t count, uint64_t *original)
{
    struct err e = {0};
    if (batches_body(&a->batches, a->source, a->prefix, count, &a->body, &e) != 0) {
        output_error(VERB, "%s", e.text);
        return SENT_FAILED;
    }
    const struct client_request req = {
        .path = "/v1/events", .post = true, .body = buf_slice(&a->body), .repeatable = true};
    struct client_answer answer;
    enum sent out = SENT_FAILED;
    int r = client_do(a->client, &req, &answer, &e);
    if (r != 0) {
        output_error(
            VERB, LINES_OF ": %s%s", a->in.name, first_line(a), last_line(a, count), e.text,
            r == ERR_IO ? "; whether this batch is stored is not known, run the same command again"
                        : "");
    } else if (answer.status == 200) {
        out = print_receipt(a, count, buf_slice(&answer.body)) ? SENT_RECEIPT : SENT_FAILED;
    } else if (client_answer_is(&answer, 409, "batch_id_conflict")) {
        *original = 0;
        (void)number_of(buf_slice(&answer.body), SLICE("events"), original);
        out = SENT_CONFLICT;
    } else {
        print_refusal(a, count, &answer);
    }
    client_answer_free(&answer);
    return out;
}

static void print_conflict(const struct append *a, size_t count, uint64_t original)
{
    struct buf id;
    buf_init(&id, 0);
    batches_id(&a->batches, a->prefix, &id);
    char holds[40] = "other events";
    if (original > 0) {
        (void)snprintf(holds, sizeof holds, "%llu event%s", (unsigned long long)original,
                       original == 1 ? "" : "s");
    }
    output_error(VERB,
                 LINES_OF
                 ": source \"%.128s\", batch \"%.*s\": the server holds %s under this id, and they "
                 "are not what the file has there now; a file may grow, not change. Nothing "
                 "more was sent",
                 a->in.name, first_line(a), last_line(a, count), a->source, (int)id.len,
                 id.ptr != NULL ? id.ptr : "", holds);
    buf_free(&id);
}

/* The server holds `original` events under this id, not count: sends exactly those, and sets *count
 * to what was settled. */
static bool settle_conflict(struct append *a, size_t *count, uint64_t original)
{
    struct err e = {0};
    size_t again = 0;
    if (original == 0 || original == *count || original > BATCHES_EVENTS_MAX) {
        print_conflict(a, *count, original);
        return false;
    }
    if (batches_cut(&a->batches, (size_t)original, BATCHES_BODY_MAX - ENVELOPE_MAX, &again, &e) !=
        0) {
        output_error(VERB, "%s", e.text);
        return false;
    }
    if (again < original) {
        print_conflict(a, again, original); /* the file ends before the server's batch does */
        return false;
    }
    enum sent sent = send_batch(a, again, &original);
    if (sent == SENT_CONFLICT) {
        print_conflict(a, again, original);
    }
    *count = again;
    return sent == SENT_RECEIPT;
}

static int append_all(struct append *a)
{
    progress_start(&a->progress, "appending", PROGRESS_BYTES, a->in.size_bytes);
    for (;;) {
        struct err e = {0};
        size_t count = 0;
        uint64_t original = 0;
        if (batches_cut(&a->batches, (size_t)a->batch_events, BATCHES_CUT_BYTES, &count, &e) != 0) {
            if (a->batches.count > 0) {
                output_error(VERB, "%s; nothing from line %llu on was sent", e.text, first_line(a));
            } else {
                output_error(VERB, "%s", e.text);
            }
            return EXIT_FAILED;
        }
        if (count == 0) {
            return EXIT_DONE;
        }
        enum sent sent = send_batch(a, count, &original);
        if (sent == SENT_FAILED ||
            (sent == SENT_CONFLICT && !settle_conflict(a, &count, original))) {
            return EXIT_FAILED;
        }
        batches_consume(&a->batches, count);
        progress_update(&a->progress, a->in.read_bytes);
    }
}

static int run(struct append *a, const char *path)
{
    struct err e = {0};
    int r = client_open(&a->client, &a->target, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        return r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    int code = EXIT_FAILED;
    if (events_open(&a->in, path, &e) != 0) {
        output_error(VERB, "%s", e.text);
    } else {
        batches_init(&a->batches, &a->in);
        code = append_all(a);
        progress_end();
        batches_free(&a->batches);
        if (code == EXIT_DONE && !a->json) {
            output_error(
                VERB, "%llu events in %llu batches: %llu stored now, %llu were there already",
                (unsigned long long)(a->committed_events + a->duplicate_events),
                (unsigned long long)a->batch_count, (unsigned long long)a->committed_events,
                (unsigned long long)a->duplicate_events);
        }
    }
    events_close(&a->in);
    client_close(a->client);
    buf_free(&a->body);
    buf_free(&a->line);
    return code;
}

/* The rules of spec/history.md section 3 that would otherwise fail every batch. */
static bool check_names(const char *source, const char *prefix)
{
    size_t n = source != NULL ? strspn(source, "abcdefghijklmnopqrstuvwxyz0123456789_.-") : 0;
    if (source == NULL || prefix == NULL) {
        output_error(VERB, "--%s is missing", source == NULL ? "source" : "prefix");
    } else if (n == 0 || n > 128 || source[n] != '\0' || source[0] == '.' || source[0] == '-') {
        output_error(VERB, "--source: must be 1 to 128 of a-z 0-9 _ . -, not begin with . or -");
    } else if (prefix[0] == '\0' || strlen(prefix) > BATCHES_PREFIX_MAX ||
               !utf8_valid(slice_cstr(prefix), NULL)) {
        output_error(VERB, "--prefix: must be 1 to %d bytes of UTF-8", BATCHES_PREFIX_MAX);
    } else if (strncmp(prefix, "groundhog/", 10) == 0) {
        output_error(VERB, "--prefix: groundhog/ is reserved");
    } else {
        return true;
    }
    return false;
}

int verb_append(int argc, char **argv)
{
    struct append *a = calloc(1, sizeof *a);
    if (a == NULL) {
        output_error(VERB, "out of memory");
        return EXIT_FAILED;
    }
    a->batch_events = 1000;
    a->target = (struct client_target){
        .verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S};
    const struct arg_option options[] = {
        {.name = "source",
         .type = ARG_TEXT,
         .target = &a->source,
         .value = "NAME",
         .help = "source the events belong to (required)"},
        {.name = "prefix",
         .type = ARG_TEXT,
         .target = &a->prefix,
         .value = "TEXT",
         .help = "batch ids are TEXT@INDEX, the index of their first event (required)"},
        {.name = "batch-events",
         .type = ARG_U64,
         .target = &a->batch_events,
         .value = "N",
         .min = 1,
         .max = BATCHES_EVENTS_MAX,
         .help = "events of a batch (default 1000)"},
        CLIENT_OPTION_DATA(a->target),
        CLIENT_OPTIONS_URL(a->target),
        CLIENT_OPTION_TIMEOUT(a->target),
        CLIENT_OPTION_RETRY(a->target),
        {.name = "json",
         .type = ARG_SWITCH,
         .target = &a->json,
         .help = "print receipts as JSON, one a line"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "FILE|-",
        .about =
            "Sends the events of FILE (- is standard input): one JSON object a line, or one JSON "
            "array.\n"
            "Prints a receipt for each batch, when the server has it on disk. Running it again is "
            "safe:\n"
            "what is stored is recognised by its batch id, also when the file has grown since.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    if (args_begin(&verb, argc, argv, &args, &code)) {
        code = check_names(a->source, a->prefix) ? output_close(VERB, run(a, args.operand[0]))
                                                 : EXIT_USAGE;
    }
    free(a);
    return code;
}
