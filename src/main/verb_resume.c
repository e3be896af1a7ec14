/* tallyman resume: goes on with uploads that `put` has not finished.
 *
 * An operand is the file that was being sent, or a session's own file; without operands it is every
 * session there is. A file that is being sent at this moment by another process
 * is not touched, and counts as not accepted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/args.h"
#include "main/client.h"
#include "main/interrupt.h"
#include "main/output.h"
#include "main/tus_job.h"
#include "main/verbs.h"
#include "os/os.h"

#define VERB "resume"

struct names {
    struct buf text; /* each with its NUL */
    size_t count;
};

static int take_name(void *ctx, const char *name)
{
    struct names *n = ctx;
    size_t len = strlen(name);
    if (len == TUS_SESSION_NAME_LEN && strcmp(name + len - 5, ".json") == 0 && name[0] != '.') {
        buf_put(&n->text, name, len + 1);
        n->count++;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return memcmp(a, b, TUS_SESSION_NAME_LEN + 1);
}

/* All sessions of the directory. False: the reason is on standard error. */
static bool list_sessions(const struct tus_job *j, struct names *n)
{
    struct err e = {0};
    int r = os_list(j->dir.ptr, take_name, n);
    if (r < 0 && r != -ENOENT) {
        (void)err_os(&e, r, "list", j->dir.ptr);
    } else if (n->text.failed) {
        (void)err_set(&e, ERR_NO_MEMORY, "out of memory");
    } else {
        if (n->count > 0) {
            qsort(n->text.ptr, n->count, TUS_SESSION_NAME_LEN + 1, by_name);
        }
        return true;
    }
    output_error(VERB, "%s", e.text);
    return false;
}

static void path_of(const struct tus_job *j, const struct names *n, size_t i, char *out,
                    size_t size)
{
    int len =
        snprintf(out, size, "%s/%s", j->dir.ptr, n->text.ptr + i * (TUS_SESSION_NAME_LEN + 1));
    ensure(len > 0);
    ensure((size_t)len < size); /* tus_session_dir has left room */
}

static void skip_session(const struct tus_job *j, const char *path)
{
    struct tus_session session;
    struct err e = {0};
    tus_job_skip(j, tus_session_peek(path, &session, &e) == 0 ? session.file : path);
}

static int resume_all(struct tus_job *j, const struct names *n)
{
    int code = EXIT_DONE;
    for (size_t i = 0; i < n->count; i++) {
        char path[TUS_PATH_MAX];
        path_of(j, n, i, path, sizeof path);
        if (interrupt_came()) {
            skip_session(j, path);
        } else if (!tus_job_resume(j, path)) {
            code = EXIT_FAILED;
        }
    }
    if (n->count == 0) {
        output_error(VERB, "there is nothing to go on with in %.1500s", j->dir.ptr);
    }
    return code;
}

/* Every session of that file (it may go to more than one project); without one the operand is a
 * session itself. */
static bool resume_operand(struct tus_job *j, const struct names *n, const char *operand)
{
    char file[TUS_PATH_MAX];
    char path[TUS_PATH_MAX];
    bool found = false;
    bool done = true;
    struct tus_session session;
    struct err e = {0};
    bool absolute = tus_job_absolute(operand, file);
    for (size_t i = 0; absolute && i < n->count && !interrupt_came(); i++) {
        path_of(j, n, i, path, sizeof path);
        if (tus_session_peek(path, &session, &e) == 0 && strcmp(session.file, file) == 0) {
            found = true;
            done = tus_job_resume(j, path) && done;
        }
    }
    if (found) {
        return done;
    }
    if (tus_session_peek(operand, &session, &e) != 0) {
        output_error(VERB,
                     "%.300s: there is no unfinished upload of it in %.1000s, and it is no "
                     "session",
                     operand, j->dir.ptr);
        tus_job_refuse(j, operand, "there is no unfinished upload of it, and it is no session");
        return false;
    }
    return tus_job_resume(j, operand);
}

static int run(struct tus_job *j, const struct args *args)
{
    struct err e = {0};
    struct names names = {0};
    if (j->target.data != NULL && j->target.url != NULL) {
        output_error(VERB, "--data and --url exclude each other");
        return EXIT_USAGE;
    }
    if (tus_session_dir(&j->dir, j->session_given, false, &e) != 0) {
        output_error(VERB, "%s", e.text);
        return EXIT_FAILED;
    }
    buf_init(&names.text, 0);
    int code = EXIT_FAILED;
    if (list_sessions(j, &names)) {
        interrupt_catch();
        code = args->operand_count == 0 ? resume_all(j, &names) : EXIT_DONE;
        for (unsigned i = 0; i < args->operand_count; i++) {
            if (interrupt_came()) {
                tus_job_skip(j, args->operand[i]);
            } else if (!resume_operand(j, &names, args->operand[i])) {
                code = EXIT_FAILED;
            }
        }
    }
    buf_free(&names.text);
    return interrupt_came() ? EXIT_FAILED : code;
}

int verb_resume(int argc, char **argv)
{
    struct tus_job job;
    struct args args;
    int code = EXIT_USAGE;
    tus_job_init(&job, VERB);
    const struct arg_option options[] = {TUS_JOB_OPTIONS(job)};
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "[FILE|SESSION]...",
        .about =
            "Goes on with uploads that `tallyman put` began and could not finish: of the FILEs, "
            "of\n"
            "the SESSIONs (the files that put names when it stops), or without either of all that\n"
            "are remembered. A file is hashed again first, and not sent if it has changed.\n",
        .more =
            "Each goes to the server it began with, unless --data or --url names where that\n"
            "server is now. Prints one receipt a line. Exit code 0: all are accepted; 1: one is\n"
            "not, the reason is on standard error.\n"
            "An upload that the server has forgotten is dropped: put the file again.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_max = ARGS_OPERANDS_MAX};
    if (args_begin(&verb, argc, argv, &args, &code)) {
        code = output_close(VERB, run(&job, &args));
    }
    tus_job_free(&job);
    return code;
}
