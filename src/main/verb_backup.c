/* tallyman backup: a copy of a data directory, beside the server that works on it or without one
 * (main/backup.h). Prints where it stands and what was copied. */
#include "main/args.h"
#include "main/backup.h"
#include "main/config.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/write.h"

#define VERB    "backup"
#define RETRY_S 30

static const char left_out[] =
    "the engine's data is NOT in this backup, and events that were delivered to the embedded "
    "engine are nowhere else (docs/OPERATING.md, section 5)";

static void put_member(struct buf *b, const char *name, uint64_t value)
{
    json_put_name(b, name);
    buf_put_u64(b, value);
}

static void print_json(const struct backup *k)
{
    const struct backup_about *a = &k->about;
    struct buf b = {0};
    char hex[SHA256_HEX_LEN];
    char id[UUID_TEXT_LEN];
    hex_encode(hex, a->head, SHA256_LEN);
    uuid_text(id, &a->last_id);
    buf_put_cstr(&b, "{\"backup\":");
    json_put_string(&b, slice_cstr(k->dir));
    put_member(&b, "number", a->number);
    json_put_name(&b, "tree");
    json_put_string(&b, slice_cstr(a->tree));
    json_put_name(&b, "made_at");
    json_put_string(&b, slice_cstr(a->made_at));
    buf_put_cstr(&b, ",\"position\":{\"frontier_event_id\":");
    if (a->empty) {
        buf_put_cstr(&b, "null");
    } else {
        json_put_string(&b, slice_of(id, sizeof id));
    }
    put_member(&b, "frontier_event_count", a->events);
    json_put_name(&b, "chain_head");
    json_put_string(&b, slice_of(hex, sizeof hex));
    buf_put_char(&b, '}');
    put_member(&b, "files", a->files);
    put_member(&b, "bytes", a->bytes);
    put_member(&b, "copied_files", k->copied_files);
    put_member(&b, "copied_bytes", k->copied_bytes);
    put_member(&b, "kept_files", k->kept_files);
    put_member(&b, "kept_bytes", k->kept_bytes);
    json_put_name(&b, "engine");
    json_put_string(&b, slice_cstr(a->engine));
    buf_put_cstr(&b, "}\n");
    output_put(buf_slice(&b));
    buf_free(&b);
}

static void print_lines(const struct backup *k)
{
    const struct backup_about *a = &k->about;
    char hex[SHA256_HEX_LEN];
    char id[UUID_TEXT_LEN];
    hex_encode(hex, a->head, SHA256_LEN);
    uuid_text(id, &a->last_id);
    output_printf("backup %llu of %s in %s/%s, verified\n", (unsigned long long)a->number, k->data,
                  k->dir, a->tree);
    output_printf("position: %llu events", (unsigned long long)a->events);
    if (!a->empty) {
        output_printf(", the last is %.36s", id);
    }
    output_printf(", chain head %.64s\n", hex);
    output_printf("files: %llu of %llu bytes; %llu of %llu bytes were copied, the rest was there\n",
                  (unsigned long long)a->files, (unsigned long long)a->bytes,
                  (unsigned long long)k->copied_files, (unsigned long long)k->copied_bytes);
}

static int run(const char *dir, const struct client_target *target, bool json)
{
    static struct backup b; /* paths: large */
    struct err e = {0};
    const char *data = target->data != NULL ? target->data : config_default_data();
    int code = EXIT_DONE;
    int r = backup_run(&b, data, dir, target, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        code = r == ERR_USAGE ? EXIT_USAGE : r == ERR_CORRUPT ? EXIT_VIOLATION : EXIT_FAILED;
    } else {
        if (json) {
            print_json(&b);
        } else {
            print_lines(&b);
        }
        if (strcmp(b.about.engine, "left_out") == 0) {
            output_error(VERB, "%s: %s", left_out, b.engine_error.text);
            code = EXIT_LEFT_OUT;
        }
    }
    backup_free(&b);
    return code;
}

int verb_backup(int argc, char **argv)
{
    bool json = false;
    struct client_target target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = RETRY_S};
    const struct arg_option options[] = {
        CLIENT_OPTION_DATA(target),
        {.name = "retry",
         .type = ARG_U64,
         .target = &target.retry_s,
         .value = "SECONDS",
         .max = 86400,
         .help = "wait this long for a server that does not answer (default 30)"},
        {.name = "json", .type = ARG_SWITCH, .target = &json, .help = "print one JSON object"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "DIR",
        .about = "Copies a data directory to DIR, beside a running server or without one, verifies "
                 "the copy,\nand commits it. Into the same DIR again: only what is new is copied. "
                 "Exit code 3: what was\ncopied, or the last backup, is damaged. 4: it is whole "
                 "but for the "
                 "engine's data,\nwhich are there and could not be copied.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    return args_begin(&verb, argc, argv, &args, &code)
               ? output_close(VERB, run(args.operand[0], &target, json))
               : code;
}
