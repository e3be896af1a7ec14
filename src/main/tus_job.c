/* The life of one file on its way: hash, find or make the upload, remember it, send, print, forget.
 *
 * The session is written before the first byte of content goes out and removed after the receipt
 * has left this process, so that at every moment in between a kill leaves what `put` of the same
 * file, or `resume`, goes on from. `put` wants the file to be accepted: if the server has forgotten
 * the upload (expired, or lost with its disk), it makes another, twice at most. `resume` wants that
 * one upload, and says so when it is gone. An upload whose bytes were refused (422) is forgotten:
 * they would be refused again. */
#include "main/tus_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/ensure.h"
#include "main/client_internal.h"
#include "main/config.h"
#include "main/interrupt.h"
#include "main/output.h"
#include "main/tus_client_internal.h"
#include "json/write.h"

#define TUS_CODE_STOPPED "stopped"
#define TUS_CODE_FILE    "file"    /* it cannot be read, or is not what it was */
#define TUS_CODE_SESSION "session" /* the session cannot be used now */

#define MADE_MAX 2 /* uploads made for one file in one run */

void tus_job_init(struct tus_job *j, const char *verb)
{
    *j = (struct tus_job){.target = {
                              .verb = verb,
                              .timeout_s = CLIENT_TIMEOUT_S,
                              .retry_s = TUS_JOB_RETRY_S,
                          }};
    buf_init(&j->dir, 0);
}

void tus_job_free(struct tus_job *j)
{
    buf_free(&j->dir);
}

bool tus_job_absolute(const char *name, char out[TUS_PATH_MAX])
{
    if (name[0] == '/') {
        return snprintf(out, TUS_PATH_MAX, "%s", name) < TUS_PATH_MAX;
    }
    char *here = realpath(".", NULL);
    bool ok = here != NULL && snprintf(out, TUS_PATH_MAX, "%s/%s", here, name) < TUS_PATH_MAX;
    free(here);
    return ok;
}

/* ---- the end ---- */

static bool print_receipt(const struct tus_job *j, const struct tus_upload *u)
{
    struct buf line;
    buf_init(&line, 0);
    if (j->json) {
        buf_put_cstr(&line, "{\"file\":");
        json_put_string(&line, slice_cstr(u->content->name));
        buf_put_cstr(&line, ",\"receipt\":");
        buf_put_slice(&line, buf_slice(&u->receipt));
        buf_put_char(&line, '}');
    } else {
        buf_put_slice(&line, buf_slice(&u->receipt));
    }
    buf_put_char(&line, '\n');
    bool ok = !line.failed;
    if (ok) {
        output_put(buf_slice(&line));
    }
    buf_free(&line);
    return ok && output_flush();
}

/* With --json standard output has a line for every file, also for one that has no receipt. */
static void tell_failure(const struct tus_job *j, const char *file, const char *code,
                         const char *message, const struct tus_upload *u,
                         const struct tus_kept *kept)
{
    struct buf line;
    if (!j->json) {
        return;
    }
    buf_init(&line, 0);
    buf_put_cstr(&line, "{\"file\":");
    json_put_string(&line, slice_cstr(file));
    buf_put_cstr(&line, ",\"error\":{\"code\":");
    json_put_string(&line, slice_cstr(code));
    buf_put_cstr(&line, ",\"message\":");
    json_put_string(&line, slice_cstr(message));
    if (kept != NULL && kept->fd >= 0) {
        buf_put_cstr(&line, ",\"session\":");
        json_put_string(&line, slice_cstr(kept->path));
    }
    if (kept != NULL && kept->fd >= 0 && u->expires[0] != '\0') {
        buf_put_cstr(&line, ",\"expires\":");
        json_put_string(&line, slice_cstr(u->expires));
    }
    buf_put_cstr(&line, "}}\n");
    if (!line.failed) {
        output_put(buf_slice(&line));
    }
    buf_free(&line);
    (void)output_flush(); /* a failure is told at the end, and this file has failed anyway */
}

void tus_job_skip(const struct tus_job *j, const char *file)
{
    tell_failure(j, file, TUS_CODE_STOPPED, "not tried: a signal came", NULL, NULL);
}

void tus_job_refuse(const struct tus_job *j, const char *operand, const char *why)
{
    tell_failure(j, operand, TUS_CODE_SESSION, why, NULL, NULL);
}

static void print_way_on(const struct tus_job *j, const struct tus_upload *u,
                         const struct tus_kept *kept)
{
    if (kept->fd < 0) {
        return;
    }
    output_error(j->target.verb, "go on with: tallyman resume %.1500s", kept->path);
    if (u->expires[0] != '\0') {
        output_error(j->target.verb, "the server keeps what it has until %s", u->expires);
    }
}

static void print_hint(const struct tus_job *j, const struct tus_upload *u)
{
    const char *option = u->client->socket_path != NULL ? " --data " : " --url ";
    const char *place = j->target.url != NULL    ? j->target.url
                        : j->target.data != NULL ? j->target.data
                                                 : u->session.server;
    if (j->project != NULL && j->target.url == NULL && j->target.data == NULL) {
        option = ""; /* put to the data directory that is the default for the next verb too */
        place = "";
    }
    output_error(j->target.verb,
                 "%.200s: accepted; how it goes on: tallyman artifact %.255s%s%.900s",
                 u->content->name, u->session.object_id, option, place);
}

static const char *const codes[] = {[TUS_ACCEPTED] = "",
                                    [TUS_FAILED] = "failed",
                                    [TUS_GONE] = "gone",
                                    [TUS_REFUSED] = "refused",
                                    [TUS_STOPPED] = TUS_CODE_STOPPED};

static bool conclude(const struct tus_job *j, const struct tus_upload *u, struct tus_kept *kept,
                     enum tus_end end)
{
    const char *verb = j->target.verb;
    const char *name = u->content->name;
    bool done = false;
    if (end != TUS_ACCEPTED) {
        bool over = end == TUS_REFUSED || end == TUS_GONE;
        tell_failure(j, name, codes[end], u->err.text, u, over ? NULL : kept);
    }
    switch (end) {
    case TUS_ACCEPTED:
        done = print_receipt(j, u);
        if (done && !j->json) {
            print_hint(j, u);
        }
        if (done) {
            tus_session_remove(kept);
        }
        break;
    case TUS_REFUSED:
        output_error(verb, "%.200s: %s; the upload is over", name, u->err.text);
        tus_session_remove(kept);
        break;
    case TUS_GONE:
        output_error(verb,
                     "%.200s: the server does not have this upload any more (%s); put it again",
                     name, u->err.text);
        tus_session_remove(kept);
        break;
    case TUS_FAILED:
    case TUS_STOPPED:
        output_error(verb, "%.200s: %s", name, u->err.text);
        print_way_on(j, u, kept);
        break;
    }
    tus_session_leave(kept);
    return done;
}

/* ---- put ---- */

/* What an upload is for. The address on the server is not yet known. */
static bool describe_file(const struct tus_job *j, const struct client *c, const char *file,
                          const struct tus_content *content, struct tus_session *s)
{
    const char *slash = strrchr(file, '/');
    const char *name = j->filename != NULL ? j->filename : slash != NULL ? slash + 1 : file;
    const char *data = j->target.data != NULL ? j->target.data : config_default_data();
    *s = (struct tus_session){.size_bytes = content->size};
    bool ok = tus_job_absolute(file, s->file);
    if (c->socket_path != NULL) {
        ok = ok && tus_job_absolute(data, s->server);
    } else {
        ok = ok && snprintf(s->server, sizeof s->server, "%s", c->base) < (int)sizeof s->server;
    }
    ok = ok && snprintf(s->project, sizeof s->project, "%s", j->project) < (int)sizeof s->project;
    ok = ok && snprintf(s->filename, sizeof s->filename, "%s", name) < (int)sizeof s->filename;
    memcpy(s->checksum, content->checksum, sizeof s->checksum);
    return ok;
}

/* Looks for the session that an earlier run has left. ERR_NOT_FOUND: there is none. */
static int find_session(const struct tus_job *j, struct tus_session *s, struct tus_kept *kept,
                        struct err *e)
{
    char name[TUS_SESSION_NAME_LEN + 1];
    char path[TUS_PATH_MAX];
    struct tus_session found;
    *kept = (struct tus_kept){.fd = -1};
    if (j->dir.len == 0) {
        return ERR_NOT_FOUND;
    }
    tus_session_name(s, name);
    int n = snprintf(path, sizeof path, "%s/%s", j->dir.ptr, name);
    ensure(n > 0 && n < (int)sizeof path); /* tus_session_dir has left room */
    int r = tus_session_read(path, &found, kept, e);
    if (r == 0 && found.size_bytes != s->size_bytes) {
        tus_session_leave(kept);
        r = ERR_CORRUPT;
    }
    if (r == ERR_CORRUPT) {
        output_error(j->target.verb, "%.300s is damaged and is not used", path);
        return ERR_NOT_FOUND; /* the new one takes its place */
    }
    if (r == 0) {
        *s = found;
    }
    return r;
}

static enum tus_end make_upload(const struct tus_job *j, struct tus_upload *u,
                                struct tus_kept *kept)
{
    struct err e = {0};
    enum tus_end end = tus_create(u);
    if (end == TUS_ACCEPTED && j->dir.len > 0 &&
        tus_session_write(j->dir.ptr, &u->session, kept, &e) != 0) {
        output_error(j->target.verb, "%s; if this upload is interrupted it begins anew", e.text);
    }
    return end;
}

static bool put_content(const struct tus_job *j, struct tus_upload *u)
{
    struct err e = {0};
    struct tus_kept kept;
    int r = find_session(j, &u->session, &kept, &e);
    if (r != 0 && r != ERR_NOT_FOUND) {
        output_error(j->target.verb, "%.200s: %s", u->content->name, e.text);
        tell_failure(j, u->content->name, TUS_CODE_SESSION, e.text, NULL, NULL);
        return false;
    }
    bool known = r == 0;
    enum tus_end end = TUS_GONE;
    if (known && tus_session_place(&u->session, u->client, false, &u->err) != 0) {
        tus_session_remove(&kept);
        known = false;
    }
    for (unsigned made = 0; end == TUS_GONE && (known || made < MADE_MAX); known = false) {
        if (!known) {
            made++;
            end = make_upload(j, u, &kept);
            if (end != TUS_ACCEPTED) {
                break;
            }
        }
        end = tus_send(u);
        if (end == TUS_GONE && made < MADE_MAX) {
            output_error(
                j->target.verb,
                "%.200s: the server does not have the upload any more (%s); beginning anew",
                u->content->name, u->err.text);
            tus_session_remove(&kept);
        }
    }
    return conclude(j, u, &kept, end);
}

bool tus_job_put(struct tus_job *j, struct client *c, const char *file)
{
    struct err e = {0};
    struct tus_content content;
    struct tus_upload u = {.client = c, .content = &content};
    bool done = false;
    buf_init(&u.receipt, 0);
    if (tus_content_open(&content, file, &e) != 0) {
        output_error(j->target.verb, "%s", e.text);
        tell_failure(j, file, interrupt_came() ? TUS_CODE_STOPPED : TUS_CODE_FILE, e.text, NULL,
                     NULL);
    } else if (!describe_file(j, c, file, &content, &u.session)) {
        output_error(j->target.verb, "%.200s: a name or path is too long", file);
        tell_failure(j, file, TUS_CODE_FILE, "a name or path is too long", NULL, NULL);
    } else {
        done = put_content(j, &u);
    }
    tus_content_close(&content);
    buf_free(&u.receipt);
    return done;
}

/* ---- resume ---- */

/* The server that the session began with, or the one that the command line names instead. */
static int open_client(const struct tus_job *j, const struct tus_session *s, struct client **c,
                       struct err *e)
{
    struct client_target target = j->target;
    bool url =
        strncasecmp(s->server, "http://", 7) == 0 || strncasecmp(s->server, "https://", 8) == 0;
    if (target.data == NULL && target.url == NULL) {
        target.url = url ? s->server : NULL;
        target.data = url ? NULL : s->server;
    }
    return client_open(c, &target, e);
}

static bool resume_content(const struct tus_job *j, struct tus_upload *u, struct tus_kept *kept)
{
    const struct tus_session *s = &u->session;
    if (u->content->size != s->size_bytes || strcmp(u->content->checksum, s->checksum) != 0) {
        output_error(j->target.verb,
                     "%.200s: is not what it was when its upload began; put it again, and remove "
                     "%.500s",
                     s->file, kept->path);
        tell_failure(j, s->file, TUS_CODE_FILE, "it is not what it was when its upload began", NULL,
                     NULL);
        tus_session_leave(kept);
        return false;
    }
    return conclude(j, u, kept, tus_send(u));
}

bool tus_job_resume(struct tus_job *j, const char *session)
{
    struct err e = {0};
    struct tus_kept kept;
    struct tus_content content = {.fd = -1};
    struct tus_upload u = {.content = &content};
    bool moved = j->target.data != NULL || j->target.url != NULL;
    bool done = false;
    buf_init(&u.receipt, 0);
    int r = tus_session_read(session, &u.session, &kept, &e);
    r = r == 0 ? open_client(j, &u.session, &u.client, &e) : r;
    r = r == 0 ? tus_session_place(&u.session, u.client, moved, &e) : r;
    r = r == 0 ? tus_content_open(&content, u.session.file, &e) : r;
    if (r != 0) {
        bool known = u.session.file[0] != '\0';
        output_error(j->target.verb, "%s", e.text);
        tell_failure(j, known ? u.session.file : session,
                     known && u.client != NULL ? TUS_CODE_FILE : TUS_CODE_SESSION, e.text, NULL,
                     NULL);
        tus_session_leave(&kept);
    } else {
        done = resume_content(j, &u, &kept);
    }
    tus_content_close(&content);
    client_close(u.client);
    buf_free(&u.receipt);
    return done;
}
