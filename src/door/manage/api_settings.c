/* Settings of a project's artifacts: given with a new project, or changed later.
 *
 * PATCH /api/v1/projects/P {"artifacts":{...}} changes the members that it names, by one small job
 * of the store, so that two at once are one after the other; the rules are asked of the whole, in
 * the same job (store/artifact/settings.h).
 *
 * Before the job, on a worker, because a dead mount may let it wait for long: a directory that was
 * named must be there and outside the data directory, and a key file must be outside of it too: the
 * server itself, and whoever gets its backups, may read what is in there. The key file is never
 * opened here; only `tallyman deliver` reads it, often as nobody else can. What becomes of either
 * later is for the delivery to meet. */
#include "door/manage/api.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "json/write.h"

/* ---- where a path is ---- */

#define TREE_PATH_MAX 4096

/* 1: path is `of` or lies in it, through links too; 0; or a negative errno. Goes up by "..", which
 * is what a directory's parents really are. */
static int lies_in(const struct os_stat *of, const char *path)
{
    char up[TREE_PATH_MAX];
    struct os_stat at, parent;
    size_t n = strlen(path);
    int r = os_stat(path, &at);

    ensure(n < sizeof up);
    memcpy(up, path, n);
    while (r == 0) {
        if (at.inode == of->inode && at.device == of->device) {
            return 1;
        }
        if (n + 4 > sizeof up) {
            return -ENAMETOOLONG;
        }
        memcpy(up + n, "/..", 4);
        n += 3;
        r = os_stat(up, &parent);
        if (r == 0 && parent.inode == at.inode && parent.device == at.device) {
            return 0; /* the root */
        }
        at = parent;
    }
    return r;
}

static int check_directory(const char *data, const char *path, struct err *e)
{
    struct os_stat st, home;
    int r;

    if (path[0] != '/') {
        return 0; /* settings_check names the rule, or there is none to check */
    }
    r = os_stat(path, &st);
    if (r == 0 && !S_ISDIR(st.mode)) {
        r = -ENOTDIR;
    }
    if (r != 0) {
        return err_set(e, ERR_INVALID_PROJECT, "artifacts.directory: %.200s: %s%s", path,
                       strerror(-r), r == -ENOENT ? "; make the directory first" : "");
    }
    r = os_stat(data, &home);
    if (r != 0) {
        return err_os(e, r, "look at the data directory", data);
    }
    r = lies_in(&home, path);
    if (r < 0) {
        return err_set(e, ERR_INVALID_PROJECT, "artifacts.directory: %.200s: its parents: %s", path,
                       strerror(-r));
    }
    return r == 0
               ? 0
               : err_set(
                     e, ERR_INVALID_PROJECT,
                     "artifacts.directory: %.200s lies in the data directory; it must be elsewhere",
                     path);
}

/* Each directory that the path names on its way, as far as this process can see; the last of them
 * by its real parents too, for a link to a place inside. */
static int check_credentials(const char *data, const char *path, struct err *e)
{
    char part[TREE_PATH_MAX];
    struct os_stat home, st;
    size_t n = strlen(path);
    bool inside = false, last = true;
    int r;

    if (path[0] != '/') {
        return 0;
    }
    ensure(n < sizeof part);
    r = os_stat(data, &home);
    if (r != 0) {
        return err_os(e, r, "look at the data directory", data);
    }
    memcpy(part, path, n + 1);
    for (char *slash = strrchr(part, '/'); slash != part && !inside; slash = strrchr(part, '/')) {
        *slash = '\0';
        if (os_stat(part, &st) == 0) {
            inside = (st.inode == home.inode && st.device == home.device) ||
                     (last && lies_in(&home, part) == 1);
            last = false;
        }
    }
    return inside ? err_set(e, ERR_INVALID_PROJECT,
                            "artifacts.credentials_file: %.200s lies in the data directory; it must"
                            " be elsewhere",
                            path)
                  : 0;
}

/* ---- reading, showing, telling ---- */

int manage_settings_read(struct manage *m, struct http_request *req,
                         const struct manage_caller *who, struct slice object,
                         struct manage_settings **out, struct err *e)
{
    struct manage_settings *s = arena_calloc(http_arena(req), 1, sizeof *s);

    if (s == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the request");
    }
    s->m = m;
    s->key = who->key != NULL ? who->key->id : 0;
    s->object = object;
    s->given.retention_ms = -1;
    *out = s;
    return settings_apply(&s->given, object, e);
}

void manage_settings_look(struct manage_settings *s)
{
    s->code = check_directory(s->m->data, s->given.directory, &s->e);
    if (s->code == 0) {
        s->code = check_credentials(s->m->data, s->given.credentials_file, &s->e);
    }
}

void manage_put_artifacts(struct buf *b, const struct artifact_destination *d)
{
    struct artifact_sink to;
    struct err why;

    if (d->sink.len == 0) {
        buf_put_cstr(b, "null");
    } else if (settings_read(d->sink, d->directory, d->settings, &to, &why) == 0) {
        settings_put_all(b, &to);
    } else { /* of a newer program, or damage, of which the log tells */
        buf_put_char(b, '{');
        manage_put_text(b, "sink", d->sink);
        manage_put_text(b, "directory", d->directory);
        manage_put_text(b, "unreadable", slice_cstr(why.text));
        buf_put_char(b, '}');
    }
}

/* Which members, not what they hold: a line of the log has to stay one. */
void manage_settings_log(const struct manage_settings *s, const struct project *p, const char *what)
{
    struct json_iter it = json_iter_object(s->object);
    struct slice name, value;
    struct buf names = {0};
    char by[40] = "the administrator";

    if (s->key != 0) {
        (void)snprintf(by, sizeof by, "key %lld", (long long)s->key);
    }
    while (json_next_member(&it, &name, &value)) {
        buf_put_cstr(&names, names.len > 0 ? ", " : "");
        buf_put_slice(&names, name); /* known ones: settings_apply has passed */
    }
    log_line(LOG_INFO, "manage", "project %s: artifacts %s by %s: %.*s", p->name, what, by,
             (int)names.len, names.len > 0 ? names.ptr : "");
    buf_free(&names);
}

/* ---- change ---- */

struct change {
    struct store_job job;
    struct manage_settings *settings;
    struct http_request *req;
    int64_t project;
};

static int change_run(struct store_job *job, struct store *s, struct err *e)
{
    struct change *c = (struct change *)job;

    return control_set_artifacts(s, c->project, c->settings->object, e);
}

static void change_done(struct store_job *job, int code, const struct err *e)
{
    struct change *c = (struct change *)job;
    struct store *store = c->settings->m->store;
    struct err reading = {0};
    struct buf b = {0};

    if (code != 0) {
        manage_answer_job(c->req, code, e);
        return;
    }
    if (control_committed(store, &reading) != 0) {
        http_answer_error(c->req, ERR_INTERNAL_ERROR,
                          "the project was changed; ask for it again in a second",
                          (struct slice){0});
        return;
    }
    const struct project *p = control_project_by_id(store_control(store), c->project);
    ensure(p != NULL);
    manage_settings_log(c->settings, p, "changed");
    buf_put_char(&b, '{');
    manage_put_project(&b, store_control(store), p);
    buf_put_char(&b, '}');
    manage_answer(c->req, 200, &b);
}

static void change_work(void *ctx)
{
    struct change *c = ctx;

    manage_settings_look(c->settings);
}

static void change_looked(void *ctx, struct http_request *req)
{
    struct change *c = ctx;

    if (c->settings->code != 0) {
        manage_answer_err(req, &c->settings->e);
        return;
    }
    store_submit(c->settings->m->store, &c->job);
}

void manage_project_change_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    if (manage_may_project(ctx, req, SCOPE_PROJECTS_ADMIN, &who)) {
        (void)manage_json_head(req);
    }
}

void manage_project_change(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct manage_settings *settings;
    struct err e = {0};
    struct manage_member members[] = {{.name = "artifacts", .type = JSON_OBJECT, .required = true}};

    if (!manage_may_project(m, req, SCOPE_PROJECTS_ADMIN, &who)) {
        return;
    }
    int r = manage_read_body(req, members, 1, &e);
    if (r == 0) {
        r = manage_settings_read(m, req, &who, members[0].value, &settings, &e);
    }
    if (r != 0) {
        manage_answer_err(req, &e);
        return;
    }
    struct change *c = arena_calloc(http_arena(req), 1, sizeof *c);
    if (c == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    *c = (struct change){.job = {.run = change_run, .done = change_done, .weight = STORE_SMALL},
                         .settings = settings,
                         .req = req,
                         .project = who.project->id};
    if (!http_work(req, change_work, change_looked, c)) {
        manage_overloaded(req, "too much work is waiting");
    }
}
