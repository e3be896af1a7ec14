/* tallyman restore: a new data directory of a backup, with every sink paused (main/backup.h). */
#include "main/args.h"
#include "main/backup.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/write.h"

#define VERB "restore"

static void print_json(const struct restore_result *t, const char *data, bool verified)
{
    struct buf b = {0};
    char hex[SHA256_HEX_LEN];
    hex_encode(hex, t->about.head, SHA256_LEN);
    buf_put_cstr(&b, "{\"data\":");
    json_put_string(&b, slice_cstr(data));
    buf_printf(&b,
               ",\"files\":%llu,\"bytes\":%llu,\"frontier_event_count\":%llu,\"chain_head\":"
               "\"%.64s\",\"verified\":%s,\"engine\":\"%s\"}\n",
               (unsigned long long)t->files, (unsigned long long)t->bytes,
               (unsigned long long)t->about.events, hex, verified ? "true" : "false",
               t->about.engine);
    output_put(buf_slice(&b));
    buf_free(&b);
}

static int run(const char *dir, const char *data, bool verify, bool json)
{
    struct restore_result result;
    struct err e = {0};
    int r = restore_run(dir, data, verify, &result, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        return r == ERR_USAGE ? EXIT_USAGE : r == ERR_CORRUPT ? EXIT_VIOLATION : EXIT_FAILED;
    }
    if (json) {
        print_json(&result, data, verify);
    } else {
        output_printf("restored %s%s: %llu files, %llu bytes, the backup of %s at %llu events\n",
                      data, verify ? ", verified" : "", (unsigned long long)result.files,
                      (unsigned long long)result.bytes, result.about.made_at,
                      (unsigned long long)result.about.events);
        output_printf("nothing is delivered until: tallyman sinks resume --data %s\n", data);
    }
    if (strcmp(result.about.engine, "left_out") == 0) {
        output_error(VERB, "events that were delivered to the embedded engine are not in this "
                           "backup");
    }
    return EXIT_DONE;
}

int verb_restore(int argc, char **argv)
{
    bool json = false;
    bool verify = false;
    const char *data = NULL;
    const struct arg_option options[] = {
        {.name = "data",
         .type = ARG_TEXT,
         .target = &data,
         .value = "DIR",
         .help = "the data directory to make; it must not exist, or be empty"},
        {.name = "verify",
         .type = ARG_SWITCH,
         .target = &verify,
         .help = "prove the new directory, as tallyman verify does, before it may be used"},
        {.name = "json", .type = ARG_SWITCH, .target = &json, .help = "print one JSON object"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "BACKUP",
        .about = "Makes a data directory of a backup, comparing every byte with the backup's list. "
                 "All sinks\nare paused until `tallyman sinks resume`. An interrupted restore may "
                 "be repeated. Exit code 3:\nthe backup is not whole, or was changed.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 1};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    if (data == NULL || data[0] == '\0') {
        output_error(VERB, "needs --data DIR");
        return EXIT_USAGE;
    }
    return output_close(VERB, run(args.operand[0], data, verify, json));
}
