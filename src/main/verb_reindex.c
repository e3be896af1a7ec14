/* tallyman reindex: forgets index/ and makes it again from the history, which is read and proven
 * whole on the way. For when a disk has damaged files there; a server does the same by itself with
 * what it misses. Needs the directory for itself: a server that runs keeps it (and needs no such
 * help: what it finds damaged it makes again by itself).
 *
 * Power failure: the index is derived; the next start makes what is missing then. Exit 0: done; 1:
 * it could not be done, or the history is damaged, with the place. */
#include <stdio.h>

#include "base/log.h"
#include "journal/journal.h"
#include "journal/layout.h"
#include "main/args.h"
#include "main/backup.h"
#include "main/config.h"
#include "main/output.h"
#include "main/progress.h"
#include "main/verbs.h"
#include "os/os.h"

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    p->total = total;
    progress_update(p, done);
}

static bool is_journal(const char *data)
{
    char path[LAYOUT_PATH_MAX];
    struct os_stat st;
    int n = snprintf(path, sizeof path, "%s/journal/manifest.jsonl", data);
    return n > 0 && (size_t)n < sizeof path && os_stat(path, &st) == 0;
}

static int run(const char *data)
{
    struct progress p;
    const struct journal_options options = {
        .reindex = true, .progress = on_progress, .progress_ctx = &p};
    struct journal_status st;
    struct journal *j;
    struct err e = {0};
    if (restore_check(data, &e) != 0) {
        output_error("reindex", "%s", e.text);
        return EXIT_FAILED;
    }
    if (!is_journal(data)) {
        output_error("reindex", "%s: no history there", data);
        return EXIT_FAILED;
    }
    log_set_level(LOG_WARN); /* a line for each generation is for servers */
    progress_start_silent(&p, "reindex", 0, 0);
    int r = journal_open(data, &options, &j, &e);
    progress_end();
    if (r == ERR_LOCKED) {
        output_error("reindex", "%s; stop the server first", e.text);
        return EXIT_FAILED;
    }
    if (r != 0) {
        output_error("reindex", "%s", e.text);
        return EXIT_FAILED;
    }
    journal_get_status(j, &st);
    r = journal_close(j, &e);
    if (st.poisoned || r != 0) {
        output_error("reindex", "%s", st.poisoned ? st.cause : e.text);
        return EXIT_FAILED;
    }
    output_printf("%u generations, %llu events indexed\n", st.generations,
                  (unsigned long long)st.frontier.events);
    return EXIT_DONE;
}

int verb_reindex(int argc, char **argv)
{
    const char *data = config_default_data();
    int code = EXIT_DONE;
    const struct arg_option options[] = {
        {.name = "data",
         .type = ARG_TEXT,
         .target = &data,
         .value = "DIR",
         .help = "the data directory"},
    };
    const struct arg_verb verb = {.name = "reindex",
                                  .operands = "",
                                  .about = "Forgets the index of the history and makes it again, "
                                           "proving the history on the way. The server must not "
                                           "run.\n",
                                  .options = options,
                                  .option_count = sizeof options / sizeof *options};
    struct args args;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    return output_close("reindex", run(data));
}
