/* Projects: list, make, show.
 *
 * A project is made by one small job of the store, in a transaction with its first capture key; the
 * answer leaves after that commit, from the memory copy that control_committed has brought up to
 * date. If the copy could not be read, the project is there all the same, and the answer says so.
 * What it may say of its artifacts: api_settings.c. */
#include "door/manage/api.h"

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
    manage_put_artifacts(b, &p->artifacts);
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
    struct manage_settings *artifacts; /* NULL: none */
};

static int create_run(struct store_job *job, struct store *s, struct err *e)
{
    struct create *c = (struct create *)job;
    struct artifact_destination to = {0};
    struct buf text;
    int r;

    buf_init(&text, SETTINGS_TEXT_MAX);
    if (c->artifacts != NULL) {
        settings_put(&text, &c->artifacts->given);
        to = (struct artifact_destination){.sink = slice_cstr(c->artifacts->given.sink),
                                           .directory = slice_cstr(c->artifacts->given.directory),
                                           .settings = buf_slice(&text)};
    }
    r = text.failed
            ? err_set(e, ERR_NO_MEMORY, "no memory for a project's settings")
            : control_create_project(s, c->name, c->title, c->artifacts != NULL ? &to : NULL,
                                     (int64_t)os_clock_real_ms(), e);
    buf_free(&text);
    return r;
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
    if (c->artifacts != NULL) {
        manage_settings_log(c->artifacts, p, "made");
    }
    buf_put_char(&b, '{');
    manage_put_project(&b, control, p);
    buf_put_char(&b, '}');
    manage_answer(c->req, 201, &b);
}

static void create_work(void *ctx)
{
    struct create *c = ctx;

    manage_settings_look(c->artifacts);
}

static void create_looked(void *ctx, struct http_request *req)
{
    struct create *c = ctx;

    if (c->artifacts->code != 0) {
        manage_answer_err(req, &c->artifacts->e);
        return;
    }
    store_submit(c->m->store, &c->job);
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
    struct manage_settings *artifacts = NULL;

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
        r = manage_settings_read(m, req, &who, members[2].value, &artifacts, &e);
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
