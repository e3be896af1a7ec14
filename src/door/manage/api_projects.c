/* Projects: list, make, show.
 *
 * A project is made by one small job of the store, in a transaction with its first capture key; the
 * answer leaves after that commit, from the memory copy that control_committed has brought up to
 * date. If the copy could not be read, the project is there all the same, and the answer says so.
 *
 * The directory of a project's artifacts must be there and outside the data directory. That is
 * looked up on a worker, because a dead mount may let it wait for long; what becomes of the
 * directory later is for the delivery to meet. */
#include "door/manage/api.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "os/os.h"
#include "json/write.h"

static const struct key *capture_key(const struct control *c, int64_t project)
{
    const struct key *k = NULL;
    size_t i = 0;

    do {
        k = control_key_at(c, project, i);
        i++;
    } while (k != NULL && (k->kind != KEY_CAPTURE || k->revoked_ms != 0));
    return k;
}

void manage_put_project(struct buf *b, const struct control *c, const struct project *p)
{
    const struct key *k = capture_key(c, p->id);

    manage_put_text(b, "id", slice_cstr(p->name));
    manage_put_text(b, "name", slice_cstr(p->title));
    manage_put_time(b, "created_at", p->created_ms);
    json_put_name(b, "capture_token");
    if (k == NULL) {
        buf_put_cstr(b, "null");
    } else {
        json_put_string(b, slice_cstr(k->text));
    }
    json_put_name(b, "artifacts");
    if (p->artifacts.sink.len == 0) {
        buf_put_cstr(b, "null");
    } else {
        buf_put_char(b, '{');
        manage_put_text(b, "sink", p->artifacts.sink);
        manage_put_text(b, "directory", p->artifacts.directory);
        buf_put_char(b, '}');
    }
}

/* ---- list ---- */

void manage_projects_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    (void)manage_may_instance(ctx, req, 0, &who);
}

void manage_projects_list(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct buf b = {0};

    if (!manage_may_instance(m, req, 0, &who)) {
        return;
    }
    bool all = who.key == NULL || (who.key->scopes & SCOPE_PROJECTS_ADMIN) != 0;
    if (m->store == NULL && m->store_cause != NULL) {
        (void)manage_no_store(m, req);
        return;
    }
    const struct control *c = m->store == NULL ? NULL : store_control(m->store);
    const struct project *p = c == NULL ? NULL : control_project_at(c, 0);
    buf_put_cstr(&b, "{\"projects\":[");
    for (size_t i = 1; p != NULL; i++) {
        if (all || p->id == who.key->project) {
            buf_put_cstr(&b, b.ptr != NULL && b.ptr[b.len - 1] == '[' ? "{" : ",{");
            manage_put_project(&b, c, p);
            buf_put_char(&b, '}');
        }
        p = control_project_at(c, i);
    }
    buf_put_cstr(&b, "]}");
    manage_answer(req, 200, &b);
}

/* ---- make ---- */

struct create {
    struct store_job job;
    struct manage *m;
    struct http_request *req;
    struct slice name, title;
    struct artifact_destination artifacts; /* sink empty: none */
    int code;                              /* of the look at its directory */
    struct err e;
};

static int create_run(struct store_job *job, struct store *s, struct err *e)
{
    struct create *c = (struct create *)job;

    return control_create_project(s, c->name, c->title,
                                  c->artifacts.sink.len > 0 ? &c->artifacts : NULL,
                                  (int64_t)os_clock_real_ms(), e);
}

static void create_done(struct store_job *job, int code, const struct err *e)
{
    struct create *c = (struct create *)job;
    struct control *control = store_control(c->m->store);
    struct err reading = {0};
    struct buf b = {0};

    if (code != 0) {
        manage_answer_job(c->req, code, e);
        return;
    }
    if (control_committed(c->m->store, &reading) != 0) {
        http_answer_error(c->req, ERR_INTERNAL_ERROR,
                          "the project was made; ask for it again in a second", (struct slice){0});
        return;
    }
    const struct project *p = control_project(control, c->name);
    ensure(p != NULL);
    buf_put_char(&b, '{');
    manage_put_project(&b, control, p);
    buf_put_char(&b, '}');
    manage_answer(c->req, 201, &b);
}

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

static int check_directory(const char *data, struct slice directory, struct err *e)
{
    char path[ARTIFACT_DIRECTORY_MAX + 1];
    struct os_stat st, home;
    int r;

    if (directory.len == 0 || directory.ptr[0] != '/' || directory.len >= sizeof path ||
        memchr(directory.ptr, '\0', directory.len) != NULL) {
        return 0; /* control_create_project names the rule */
    }
    memcpy(path, directory.ptr, directory.len);
    path[directory.len] = '\0';
    r = os_stat(path, &st);
    if (r == 0 && !S_ISDIR(st.mode)) {
        r = -ENOTDIR;
    }
    if (r != 0) {
        return err_set(e, ERR_INVALID_PROJECT, "artifacts: %.200s: %s%s", path, strerror(-r),
                       r == -ENOENT ? "; make the directory first" : "");
    }
    r = os_stat(data, &home);
    if (r != 0) {
        return err_os(e, r, "look at the data directory", data);
    }
    r = lies_in(&home, path);
    if (r < 0) {
        return err_set(e, ERR_INVALID_PROJECT, "artifacts: %.200s: its parents: %s", path,
                       strerror(-r));
    }
    return r == 0 ? 0
                  : err_set(e, ERR_INVALID_PROJECT,
                            "artifacts: %.200s lies in the data directory; it must be elsewhere",
                            path);
}

static void create_work(void *ctx)
{
    struct create *c = ctx;

    c->code = check_directory(c->m->data, c->artifacts.directory, &c->e);
}

static void create_looked(void *ctx, struct http_request *req)
{
    struct create *c = ctx;

    if (c->code != 0) {
        manage_answer_err(req, &c->e);
        return;
    }
    store_submit(c->m->store, &c->job);
}

static int read_destination(struct http_request *req, struct slice object,
                            struct artifact_destination *out, struct err *e)
{
    struct manage_member members[] = {{.name = "sink", .type = JSON_STRING, .required = true},
                                      {.name = "directory", .type = JSON_STRING, .required = true}};
    int r = manage_read_object(req, "artifacts", object, members, 2, e);

    if (r == 0 && members[0].value.len == 0) {
        r = err_set(e, ERR_INVALID_PROJECT,
                    "artifacts: the sink is \"" ARTIFACT_SINK_DIRECTORY "\"");
    }
    if (r == 0) {
        *out =
            (struct artifact_destination){.sink = members[0].value, .directory = members[1].value};
    }
    return r;
}

void manage_projects_create_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    if (manage_may_instance(ctx, req, SCOPE_PROJECTS_ADMIN, &who)) {
        (void)manage_json_head(req);
    }
}

void manage_projects_create(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct err e = {0};
    struct manage_member members[] = {{.name = "id", .type = JSON_STRING, .required = true},
                                      {.name = "name", .type = JSON_STRING},
                                      {.name = "artifacts", .type = JSON_OBJECT}};
    struct artifact_destination artifacts = {0};

    if (!manage_may_instance(m, req, SCOPE_PROJECTS_ADMIN, &who)) {
        return;
    }
    if (m->store == NULL) {
        if (m->store_cause != NULL) {
            (void)manage_no_store(m, req);
        } else {
            http_answer_error(req, ERR_NOT_FOUND, "there is no queue here", (struct slice){0});
        }
        return;
    }
    int r = manage_read_body(req, members, 3, &e);
    if (r == 0 && members[2].given) {
        r = read_destination(req, members[2].value, &artifacts, &e);
    }
    if (r != 0) {
        manage_answer_err(req, &e);
        return;
    }
    struct create *c = arena_calloc(http_arena(req), 1, sizeof *c);
    if (c == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    *c = (struct create){.job = {.run = create_run, .done = create_done, .weight = STORE_SMALL},
                         .m = m,
                         .req = req,
                         .name = members[0].value,
                         .title = members[1].given ? members[1].value : members[0].value,
                         .artifacts = artifacts};
    if (!members[2].given) {
        store_submit(m->store, &c->job);
    } else if (!http_work(req, create_work, create_looked, c)) {
        manage_overloaded(req, "too much work is waiting");
    }
}

/* ---- show ---- */

struct show {
    struct manage *m;
    struct manage_delivery delivery;
    int code;
    struct err e;
};

static void show_work(void *ctx)
{
    struct show *s = ctx;

    s->code = manage_delivery_read(s->m->data, &s->delivery, &s->e);
}

static void show_done(void *ctx, struct http_request *req)
{
    struct show *s = ctx;
    const struct control *c = store_control(s->m->store);
    const struct project *p = control_project_by_id(c, s->delivery.project);
    struct buf b = {0};

    if (s->code != 0) {
        manage_answer_err(req, &s->e);
        return;
    }
    ensure(p != NULL); /* projects stay */
    buf_put_char(&b, '{');
    manage_put_project(&b, c, p);
    json_put_name(&b, "keys");
    manage_put_keys(&b, c, p->id);
    json_put_name(&b, "delivery");
    manage_put_delivery(&b, &s->delivery);
    buf_put_char(&b, '}');
    manage_answer(req, 200, &b);
}

void manage_project_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    (void)manage_may_project(ctx, req, SCOPE_PROJECTS_ADMIN, &who);
}

void manage_project_show(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;

    if (!manage_may_project(m, req, SCOPE_PROJECTS_ADMIN, &who)) {
        return;
    }
    struct show *s = arena_calloc(http_arena(req), 1, sizeof *s);
    if (s == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    s->m = m;
    manage_delivery_begin(m, req, who.project->id, &s->delivery);
    if (!http_work(req, show_work, show_done, s)) {
        manage_overloaded(req, "too much work is waiting");
    }
}
