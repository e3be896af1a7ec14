/* tallyman put: hands files to the artifact door and prints a receipt for each.
 *
 * What happens to one file is in tus_job.c. The files are taken one after the other, and one that
 * fails does not keep the next from being tried; a signal ends it after the one it hits. Exit code
 * 0 says that there is a receipt on standard output for every file. */
#include <stdio.h>
#include <string.h>

#include "main/args.h"
#include "main/client.h"
#include "main/interrupt.h"
#include "main/output.h"
#include "main/tus_job.h"
#include "main/verbs.h"

#define VERB "put"

static bool check_names(const struct tus_job *j, const struct args *args)
{
    if (j->project == NULL || j->project[0] == '\0') {
        output_error(VERB, "--project: must be given");
    } else if (j->filename != NULL && args->operand_count > 1) {
        output_error(VERB, "--filename: goes with one FILE");
    } else if (j->filename != NULL && strlen(j->filename) > TUS_FILENAME_MAX) {
        output_error(VERB, "--filename: must be at most %d bytes", TUS_FILENAME_MAX);
    } else {
        return true;
    }
    return false;
}

static int run(struct tus_job *j, const struct args *args)
{
    struct err e = {0};
    struct client *c = NULL;
    int r = client_open(&c, &j->target, &e);
    if (r != 0) {
        output_error(VERB, "%s", e.text);
        return r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    int code = EXIT_DONE;
    if (tus_session_dir(&j->dir, j->session_given, true, &e) != 0) {
        buf_clear(&j->dir);
        if (j->session_given != NULL) {
            output_error(VERB, "--session: %s", e.text);
            client_close(c);
            return EXIT_FAILED;
        }
        output_error(VERB, "%s; an upload that is interrupted begins anew", e.text);
    }
    interrupt_catch();
    unsigned i = 0;
    for (; i < args->operand_count && !interrupt_came(); i++) {
        if (!tus_job_put(j, c, args->operand[i])) {
            code = EXIT_FAILED;
        }
    }
    for (; i < args->operand_count; i++) {
        tus_job_skip(j, args->operand[i]);
    }
    client_close(c);
    return interrupt_came() ? EXIT_FAILED : code;
}

int verb_put(int argc, char **argv)
{
    struct tus_job job;
    struct args args;
    int code = EXIT_USAGE;
    tus_job_init(&job, VERB);
    const struct arg_option options[] = {
        {.name = "project",
         .type = ARG_TEXT,
         .target = &job.project,
         .value = "ID",
         .help = "project whose destination the files go to (required)"},
        {.name = "filename",
         .type = ARG_TEXT,
         .target = &job.filename,
         .value = "NAME",
         .help = "name to hand over (default: the file's own; \"\" for none)"},
        TUS_JOB_OPTIONS(job),
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "FILE...",
        .about =
            "Hands files to the artifact door: each is hashed (BLAKE3), sent (tus 1.0.0), and its\n"
            "receipt printed when the server has the whole of it on disk and has checked it.\n"
            "Interruptions of the line and of the server are waited out; after one of this "
            "program\n"
            "the same command, or `tallyman resume`, goes on where the server stands.\n",
        .more =
            "Prints one receipt a line, in the order of the files. Exit code 0: every file is\n"
            "accepted; 1: one is not, the reason is on standard error, and with --json on\n"
            "standard output too: its code is failed or stopped (go on with `resume`), gone (put\n"
            "it again), refused (never), file or session (see the message).\n"
            "If the server has forgotten a begun upload, the file is sent anew from its start.\n"
            "Unfinished uploads are remembered in $XDG_STATE_HOME/tallyman/uploads, else in\n"
            "~/.local/state/tallyman/uploads.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = ARGS_OPERANDS_MAX};
    if (args_begin(&verb, argc, argv, &args, &code)) {
        code = check_names(&job, &args) ? output_close(VERB, run(&job, &args)) : EXIT_USAGE;
    }
    tus_job_free(&job);
    return code;
}
