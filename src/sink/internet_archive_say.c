/* internet_archive_say: verdicts. */
#include <stdarg.h>
#include <stdio.h>

#include "sink/internet_archive_internal.h"

#define ASK_MS_MIN    20
#define ASK_FIRST     180 /* of answer_ms: 10 s of 30 min */
#define ASK_LAST      3   /* 10 min of 30 min */
#define ASK_OF_WAITED 2   /* the wait so far, halved: each question half as late again */

static void blot(char *text, const char *word)
{
    size_t n = strlen(word);
    char *at = text;

    if (n == 0) {
        return;
    }
    for (at = strstr(at, word); at != NULL; at = strstr(at + n, word)) {
        memset(at, '*', n);
    }
}

bool archive_say(struct archive *a, enum artifact_outcome outcome, enum artifact_scope scope,
                 uint64_t wait_ms, const char *way_out, const char *fmt, ...)
{
    struct artifact_verdict *out = a->out;
    va_list ap;

    out->outcome = outcome;
    out->scope = scope;
    out->wait_ms = wait_ms;
    va_start(ap, fmt);
    (void)vsnprintf(out->text, sizeof out->text, fmt, ap);
    va_end(ap);
    (void)snprintf(out->way_out, sizeof out->way_out, "%s", way_out);
    blot(out->text, a->keys.secret);
    blot(out->text, a->keys.access);
    return false;
}

bool archive_going_on(struct archive *a)
{
    return !a->job->stopping(a->job->ctx) ||
           archive_say(a, ARTIFACT_STOPPED, ARTIFACT_THIS, 0, "", "the process ends");
}

uint64_t archive_ask_ms(const struct artifact_endpoints *to, uint64_t waited_ms)
{
    uint64_t least_ms = to->answer_ms / ASK_FIRST;
    uint64_t most_ms = to->answer_ms / ASK_LAST;
    uint64_t ms = waited_ms / ASK_OF_WAITED;

    ms = ms > most_ms ? most_ms : ms;
    ms = ms < least_ms ? least_ms : ms;
    return ms < ASK_MS_MIN ? ASK_MS_MIN : ms;
}
