/* tus_job: what `put` and `resume` share: from one file, or one session, to a printed receipt. */
#ifndef MAIN_TUS_JOB_H
#define MAIN_TUS_JOB_H

#include "main/client.h"
#include "main/tus_client.h"

struct tus_job {
    struct client_target target;    /* of resume: its data and url override the session's */
    const char *session_given;      /* --session, or NULL */
    const char *project, *filename; /* of put; filename NULL: the file's own name */
    bool json;
    struct buf dir; /* where sessions are; empty: none are kept */
};

#define TUS_JOB_RETRY_S 600

/* Rows for the verbs' option tables. */
#define TUS_JOB_OPTIONS(j)                                                                \
    {.name = "data",                                                                      \
     .type = ARG_TEXT,                                                                    \
     .target = &(j).target.data,                                                          \
     .value = "DIR",                                                                      \
     .help = "data directory; the server is asked on DIR/tallyman.sock"},                 \
        {.name = "url",                                                                   \
         .type = ARG_TEXT,                                                                \
         .target = &(j).target.url,                                                       \
         .value = "URL",                                                                  \
         .help = "server to ask instead, as http://HOST:PORT; needs no token"},           \
        {.name = "session",                                                               \
         .type = ARG_TEXT,                                                                \
         .target = &(j).session_given,                                                    \
         .value = "DIR",                                                                  \
         .help = "where unfinished uploads are remembered (default ~/.local/state/...)"}, \
        {.name = "timeout",                                                               \
         .type = ARG_U64,                                                                 \
         .target = &(j).target.timeout_s,                                                 \
         .value = "SECONDS",                                                              \
         .min = 1,                                                                        \
         .max = 86400,                                                                    \
         .help = "give a try up after this long without a byte (default 60)"},            \
        {.name = "retry",                                                                 \
         .type = ARG_U64,                                                                 \
         .target = &(j).target.retry_s,                                                   \
         .value = "SECONDS",                                                              \
         .min = 0,                                                                        \
         .max = 86400,                                                                    \
         .help = "give up after this long without progress (default 600)"},               \
    {                                                                                     \
        .name = "json", .type = ARG_SWITCH, .target = &(j).json,                          \
        .help = "print {\"file\":..,\"receipt\":..} or {..,\"error\":..}, one a line"     \
    }

void tus_job_init(struct tus_job *j, const char *verb);
void tus_job_free(struct tus_job *j);

/* Sends the file and prints its receipt; goes on with an upload of the same file, project and name
 * that was begun before. False: the reason is on standard error. */
bool tus_job_put(struct tus_job *j, struct client *c, const char *file);
/* Goes on with the upload of a session. False: the reason is on standard error. */
bool tus_job_resume(struct tus_job *j, const char *session);

/* With --json: tells that the file was not tried because of a signal. */
void tus_job_skip(const struct tus_job *j, const char *file);
/* With --json: tells that there is no session for it. */
void tus_job_refuse(const struct tus_job *j, const char *operand, const char *why);

/* Makes a name absolute by the working directory; links stay as they are. False: it is too long. */
bool tus_job_absolute(const char *name, char out[TUS_PATH_MAX]);

#endif
