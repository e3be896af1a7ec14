/* tallyman verify: proves a data directory, journal, queue and artifacts, read-only, with or
 * without a server beside it (spec/history.md sections 11 and 12, store/verify.h,
 * store/artifact/verify.h). Prints one JSON report with --json, lines otherwise. Exit 0: no
 * violation; 3: a violation; 1: could not look. */
#include "base/hash.h"
#include "journal/verify.h"
#include "main/args.h"
#include "main/config.h"
#include "main/output.h"
#include "main/progress.h"
#include "main/verbs.h"
#include "main/verify_head.h"
#include "store/artifact/verify.h"
#include "store/verify.h"
#include "json/write.h"

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    p->total = total;
    progress_update(p, done);
}

static void put_failure(struct buf *b, const struct verify_report *r)
{
    if (r->ok) {
        buf_put_cstr(b, "null");
        return;
    }
    buf_put_cstr(b, "{\"code\":");
    json_put_string(b, slice_cstr(verify_fault_name(r->fault)));
    buf_put_cstr(b, ",\"file\":");
    json_put_string(b, slice_cstr(r->fault_file));
    buf_put_cstr(b, ",\"offset\":");
    if (r->fault_has_offset) {
        buf_put_u64(b, r->fault_offset);
    } else {
        buf_put_cstr(b, "null");
    }
    buf_put_cstr(b, ",\"message\":");
    json_put_string(b, slice_cstr(r->fault_text));
    buf_put_char(b, '}');
}

/* What store_verify found: texts, one after the other as JSON strings. */
struct queue_report {
    struct store_verify_result result;
    struct buf violations;
    bool json;
};

static void on_violation(void *ctx, const char *text)
{
    struct queue_report *q = ctx;
    if (q->json) {
        buf_put_cstr(&q->violations, q->violations.len > 0 ? "," : "");
        json_put_string(&q->violations, slice_cstr(text));
    } else {
        buf_printf(&q->violations, "violation: %s: %s\n", STORE_FILE, text);
    }
}

/* A database that cannot be read as one is a violation as well. */
static int check_queue(const char *data, struct queue_report *q, struct err *e)
{
    int r = store_verify(data, on_violation, q, &q->result, e);
    if (r == ERR_CORRUPT) {
        on_violation(q, e->text);
        q->result.violations++;
        r = 0;
    }
    return q->violations.failed ? err_set(e, ERR_NO_MEMORY, "out of memory") : r;
}

/* What artifact_verify found, the same way. */
struct artifact_report {
    struct artifact_verify_result result;
    struct buf violations, remnants;
    struct progress progress;
    bool json;
};

static void on_artifact_violation(void *ctx, const char *text)
{
    struct artifact_report *a = ctx;
    if (a->json) {
        buf_put_cstr(&a->violations, a->violations.len > 0 ? "," : "");
        json_put_string(&a->violations, slice_cstr(text));
    } else {
        buf_printf(&a->violations, "violation: artifacts: %s\n", text);
    }
}

static void on_artifact_remnant(void *ctx, const char *name)
{
    struct artifact_report *a = ctx;
    if (a->json) {
        buf_put_cstr(&a->remnants, a->remnants.len > 0 ? "," : "");
        json_put_string(&a->remnants, slice_cstr(name));
    } else {
        buf_printf(&a->remnants, "%s%s", a->remnants.len > 0 ? " " : "", name);
    }
}

static void on_artifact_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct artifact_report *a = ctx;
    on_progress(&a->progress, done, total);
}

static int check_artifacts(const char *data, struct artifact_report *a, struct err *e)
{
    const struct artifact_verify_hooks hooks = {on_artifact_violation, on_artifact_remnant,
                                                on_artifact_progress, a};
    progress_start(&a->progress, "verify artifacts", PROGRESS_BYTES, 0);
    int r = artifact_verify(data, &hooks, &a->result, e);
    progress_end();
    return a->violations.failed || a->remnants.failed ? err_set(e, ERR_NO_MEMORY, "out of memory")
                                                      : r;
}

static void put_artifacts_json(struct buf *b, const struct artifact_report *a)
{
    const struct artifact_verify_result *r = &a->result;
    buf_put_cstr(b, r->violations == 0 ? ",\"artifacts\":{\"ok\":true"
                                       : ",\"artifacts\":{\"ok\":false");
    buf_put_cstr(b, r->partial ? ",\"partial\":true" : ",\"partial\":false");
    buf_printf(b,
               ",\"absent\":%s,\"receipts\":%llu,\"bytes\":%llu,\"partial_uploads\":%llu,"
               "\"gone_uploads\":%llu,\"packages\":%llu,\"proofs\":%llu,"
               "\"deliveries\":%llu,\"remnants\":[",
               r->absent ? "true" : "false", (unsigned long long)r->receipts,
               (unsigned long long)r->bytes, (unsigned long long)r->partial_uploads,
               (unsigned long long)r->gone_uploads, (unsigned long long)r->packages,
               (unsigned long long)r->proofs, (unsigned long long)r->deliveries);
    buf_put_slice(b, buf_slice(&a->remnants));
    buf_put_cstr(b, "],\"violations\":[");
    buf_put_slice(b, buf_slice(&a->violations));
    buf_put_cstr(b, "]}");
}

static void print_artifacts(const struct artifact_report *a)
{
    const struct artifact_verify_result *r = &a->result;
    if (r->absent && r->violations == 0) {
        return;
    }
    output_printf("artifacts: %llu with receipts, %llu bytes read; %llu partial uploads, %llu "
                  "refused ones; %llu packages, %llu proofs, %llu deliveries\n",
                  (unsigned long long)r->receipts, (unsigned long long)r->bytes,
                  (unsigned long long)r->partial_uploads, (unsigned long long)r->gone_uploads,
                  (unsigned long long)r->packages, (unsigned long long)r->proofs,
                  (unsigned long long)r->deliveries);
    if (a->remnants.len > 0) {
        output_printf("remnants: ");
        output_put(buf_slice(&a->remnants));
        output_put(SLICE("\n"));
    }
    if (r->partial) {
        output_printf("not all of delivery.sqlite was checked: `tallyman deliver` is running, and "
                      "its log must not be held up for long\n");
    }
    output_put(buf_slice(&a->violations));
}

static void put_queue_json(struct buf *b, const struct queue_report *q)
{
    const struct store_verify_result *r = &q->result;
    buf_put_cstr(b, r->violations == 0 ? ",\"queue\":{\"ok\":true" : ",\"queue\":{\"ok\":false");
    buf_put_cstr(b, r->partial ? ",\"partial\":true" : ",\"partial\":false");
    buf_printf(b,
               ",\"absent\":%s,\"projects\":%llu,\"keys\":%llu,\"events\":%llu,\"receipts\":%llu,"
               "\"quarantined\":%llu,\"rejected\":%llu,\"violations\":[",
               r->absent ? "true" : "false", (unsigned long long)r->projects,
               (unsigned long long)r->keys, (unsigned long long)r->events,
               (unsigned long long)r->receipts, (unsigned long long)r->quarantined,
               (unsigned long long)r->rejected);
    buf_put_slice(b, buf_slice(&q->violations));
    buf_put_cstr(b, "]}");
}

static void print_queue(const struct queue_report *q)
{
    const struct store_verify_result *r = &q->result;
    if (r->absent) {
        return;
    }
    output_printf("queue: %llu queued events, %llu receipts, %llu quarantined, %llu rejected, %llu "
                  "projects\n",
                  (unsigned long long)r->events, (unsigned long long)r->receipts,
                  (unsigned long long)r->quarantined, (unsigned long long)r->rejected,
                  (unsigned long long)r->projects);
    if (r->partial) {
        output_printf(
            "not all of the queue was checked: a server is running, and its log must not be "
            "held up for long\n");
    }
    output_put(buf_slice(&q->violations));
}

struct reports {
    struct verify_head *head; /* NULL: none is asked about */
    struct verify_report journal;
    struct queue_report queue;
    struct artifact_report artifacts;
};

static bool all_ok(const struct reports *all)
{
    return all->journal.ok && all->queue.result.violations == 0 &&
           all->artifacts.result.violations == 0 &&
           (all->head == NULL || all->head->violation_count == 0);
}

static void put_json(struct buf *b, const struct reports *all, bool chain)
{
    const struct verify_report *r = &all->journal;
    char hex[SHA256_HEX_LEN];
    char id[UUID_TEXT_LEN];
    hex_encode(hex, r->head, SHA256_LEN);
    uuid_text(id, &r->last_id);
    buf_put_cstr(b, all_ok(all) ? "{\"ok\":true" : "{\"ok\":false");
    buf_put_cstr(b, chain ? ",\"chain_checked\":true" : ",\"chain_checked\":false");
    buf_put_cstr(b, ",\"segments_checked\":");
    buf_put_u64(b, r->segments_checked);
    buf_put_cstr(b, ",\"pending_checked\":");
    buf_put_u64(b, r->pending_checked);
    buf_put_cstr(b, ",\"events_checked\":");
    buf_put_u64(b, r->events_checked);
    buf_put_cstr(b, ",\"orphans\":[");
    buf_put_slice(b, buf_slice(&r->orphans));
    buf_put_cstr(b, "],\"remnants\":[");
    buf_put_slice(b, buf_slice(&r->remnants));
    buf_put_cstr(b, "],\"failure\":");
    put_failure(b, r);
    buf_put_cstr(b, ",\"frontier_event_id\":");
    if (r->empty) {
        buf_put_cstr(b, "null");
    } else {
        json_put_string(b, slice_of(id, sizeof id));
    }
    buf_put_cstr(b, ",\"chain_head\":");
    json_put_string(b, slice_of(hex, sizeof hex));
    put_queue_json(b, &all->queue);
    put_artifacts_json(b, &all->artifacts);
    if (all->head != NULL) {
        verify_head_put_json(b, all->head);
    }
    buf_put_cstr(b, "}\n");
}

static void print_lines(const struct reports *all, bool chain)
{
    const struct verify_report *r = &all->journal;
    char hex[SHA256_HEX_LEN];
    hex_encode(hex, r->head, SHA256_LEN);
    output_printf("journal: %llu events in %llu batches, %u closed generations, %u of them sealed, "
                  "%llu bytes\n",
                  (unsigned long long)r->events_checked, (unsigned long long)r->batches_checked,
                  r->segments_checked + r->pending_checked, r->segments_checked,
                  (unsigned long long)r->bytes_checked);
    if (r->orphans.len > 0) {
        output_printf("orphans: %.*s\n", (int)r->orphans.len, r->orphans.ptr);
    }
    if (r->remnants.len > 0) {
        output_printf("remnants: %.*s\n", (int)r->remnants.len, r->remnants.ptr);
    }
    if (!r->ok) {
        output_printf("violation: %s in %s", verify_fault_name(r->fault), r->fault_file);
        if (r->fault_has_offset) {
            output_printf(" at byte %llu", (unsigned long long)r->fault_offset);
        }
        output_printf(": %s\n", r->fault_text);
    } else if (chain) {
        output_printf("chain head %.64s\n", hex);
    }
    if (all->head != NULL) {
        verify_head_print(all->head);
    }
    print_queue(&all->queue);
    print_artifacts(&all->artifacts);
    if (!all_ok(all)) {
        return;
    }
    output_printf("ok%s\n",
                  r->live ? " (a server is running; what is in flight was left out)" : "");
}

/* Journal, queue, artifacts; 0, or what kept us from looking. */
static int look(const char *data, struct reports *all, struct err *e)
{
    struct progress progress;
    progress_start(&progress, "verify", PROGRESS_BYTES, 0);
    int r = verify_journal_batches(data, on_progress, &progress,
                                   all->head != NULL ? verify_head_batch : NULL, all->head,
                                   &all->journal, e);
    progress_end();
    if (r != 0) {
        return r;
    }
    r = all->head != NULL ? verify_head_judge(all->head, &all->journal, e) : 0;
    if (r == 0) {
        r = check_queue(data, &all->queue, e);
    }
    if (r == 0) {
        r = check_artifacts(data, &all->artifacts, e);
    }
    if (r != 0) {
        verify_report_free(&all->journal);
    }
    return r;
}

static int run(const char *data, bool chain, bool json, struct verify_head *head)
{
    struct reports all = {.head = head, .queue = {.json = json}, .artifacts = {.json = json}};
    struct err e = {0};
    int code = EXIT_FAILED;
    if (look(data, &all, &e) != 0) {
        output_error("verify", "%s", e.text);
    } else {
        if (json) {
            struct buf b = {0};
            put_json(&b, &all, chain);
            output_put(buf_slice(&b));
            buf_free(&b);
        } else {
            print_lines(&all, chain);
        }
        code = all_ok(&all) ? EXIT_DONE : EXIT_VIOLATION;
        verify_report_free(&all.journal);
    }
    buf_free(&all.queue.violations);
    buf_free(&all.artifacts.violations);
    buf_free(&all.artifacts.remnants);
    return code;
}

/* What `verify --head` is asked about. */
struct head_options {
    const char *head, *key;
    struct arg_texts receipts;
};

static int run_with_head(const char *data, bool chain, bool json, const struct head_options *o)
{
    struct verify_head head = {.json = json};
    struct err e = {0};
    int code = EXIT_FAILED;
    if (o->head == NULL && (o->key != NULL || o->receipts.count > 0)) {
        output_error("verify", "--public-key and --receipt need --head");
        return EXIT_USAGE;
    }
    if (o->head == NULL) {
        return run(data, chain, json, NULL);
    }
    if (verify_head_load(&head, o->head, o->key, &o->receipts, &e) != 0) {
        output_error("verify", "%s", e.text);
    } else {
        code = run(data, chain, json, &head);
    }
    verify_head_free(&head);
    return code;
}

int verb_verify(int argc, char **argv)
{
    struct head_options head = {0};
    bool json = false;
    bool chain = false;
    const char *data = config_default_data();
    int code = EXIT_DONE;
    const struct arg_option options[] = {
        {.name = "data",
         .type = ARG_TEXT,
         .target = &data,
         .value = "DIR",
         .help = "the data directory"},
        {.name = "chain",
         .type = ARG_SWITCH,
         .target = &chain,
         .help = "also report the chain head over everything"},
        {.name = "head",
         .type = ARG_TEXT,
         .target = &head.head,
         .value = "FILE",
         .help = "also compare with this signed head, kept from `tallyman head --json`"},
        {.name = "public-key",
         .type = ARG_TEXT,
         .target = &head.key,
         .value = "FILE",
         .help = "the key that the head must be signed with, from `tallyman head --public-key`"},
        {.name = "receipt",
         .type = ARG_TEXTS,
         .target = &head.receipts,
         .value = "FILE",
         .help = "receipts, one a line, whose batches must be under the head; may be repeated"},
        {.name = "json", .type = ARG_SWITCH, .target = &json, .help = "print one JSON report"},
    };
    const struct arg_verb verb = {.name = "verify",
                                  .operands = "",
                                  .about = "Proves framing, order, hashes, digests and keys of the "
                                           "whole journal, receipts, counters and indexes of the "
                                           "queue,\nand receipts, bytes and deliveries of "
                                           "artifacts. Changes nothing. Exit code 3: a violation "
                                           "was found.\n",
                                  .options = options,
                                  .option_count = sizeof options / sizeof *options};
    struct args args;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    return output_close("verify", run_with_head(data, chain, json, &head));
}
