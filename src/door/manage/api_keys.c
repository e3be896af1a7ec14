/* Keys of a project: list, make, revoke.
 *
 * Public keys (capture, segment) are shown whenever they are listed; a service key's text is in the
 * answer that makes it and nowhere else, because the store keeps only its hash. Making and revoking
 * are small jobs of the store, answered after their commit: a revoked key is refused from the
 * moment of that answer. */
#include "door/manage/api.h"

#include "base/ensure.h"
#include "os/os.h"
#include "json/write.h"

void manage_put_key(struct buf *b, const struct key *k, const char *text)
{
    const char *between = "";

    buf_put_char(b, '{');
    manage_put_id(b, "id", k->id);
    manage_put_text(b, "kind", slice_cstr(key_kind_name(k->kind)));
    manage_put_text(b, "name", slice_cstr(k->name));
    json_put_name(b, "scopes");
    buf_put_char(b, '[');
    for (enum scope_index i = 0; i < SCOPE_COUNT; i++) {
        if ((k->scopes & 1u << i) != 0) {
            buf_put_cstr(b, between);
            json_put_string(b, slice_cstr(scope_name(i)));
            between = ",";
        }
    }
    buf_put_char(b, ']');
    manage_put_time(b, "created_at", k->created_ms);
    manage_put_time(b, "revoked_at", k->revoked_ms);
    if (text != NULL || k->kind != KEY_SERVICE) {
        manage_put_text(b, "token", slice_cstr(text != NULL ? text : k->text));
    }
    buf_put_char(b, '}');
}

void manage_put_keys(struct buf *b, const struct control *c, int64_t project)
{
    const struct key *k = control_key_at(c, project, 0);

    buf_put_char(b, '[');
    for (size_t i = 1; k != NULL; i++) {
        manage_put_key(b, k, NULL);
        k = control_key_at(c, project, i);
        buf_put_cstr(b, k != NULL ? "," : "");
    }
    buf_put_char(b, ']');
}

static const struct key *key_by_id(const struct control *c, int64_t project, int64_t id)
{
    const struct key *k = control_key_at(c, project, 0);

    for (size_t i = 1; k != NULL && k->id != id; i++) {
        k = control_key_at(c, project, i);
    }
    return k;
}

void manage_keys_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    (void)manage_may_project(ctx, req, SCOPE_PROJECTS_ADMIN, &who);
}

void manage_keys_list(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct buf b = {0};

    if (!manage_may_project(m, req, SCOPE_PROJECTS_ADMIN, &who)) {
        return;
    }
    buf_put_cstr(&b, "{\"keys\":");
    manage_put_keys(&b, store_control(m->store), who.project->id);
    buf_put_char(&b, '}');
    manage_answer(req, 200, &b);
}

/* ---- make ---- */

struct key_job {
    struct store_job job;
    struct manage *m;
    struct http_request *req;
    int64_t project;
    enum key_kind kind;
    struct slice name;
    unsigned scopes;
    int64_t id;
    char text[KEY_TEXT_MAX + 1];
};

static int create_run(struct store_job *job, struct store *s, struct err *e)
{
    struct key_job *k = (struct key_job *)job;

    return control_create_key(s, k->project, k->kind, k->name, k->scopes,
                              (int64_t)os_clock_real_ms(), &k->id, k->text, e);
}

static void create_done(struct store_job *job, int code, const struct err *e)
{
    struct key_job *k = (struct key_job *)job;
    struct err reading = {0};
    struct buf b = {0};

    if (code != 0) {
        manage_answer_job(k->req, code, e);
        return;
    }
    if (control_committed(k->m->store, &reading) != 0) {
        http_answer_error(k->req, ERR_INTERNAL_ERROR,
                          "the key was made but cannot be shown; revoke it and make another",
                          (struct slice){0});
        return;
    }
    const struct key *made = key_by_id(store_control(k->m->store), k->project, k->id);
    ensure(made != NULL);
    manage_put_key(&b, made, k->text);
    manage_answer(k->req, 201, &b);
    explicit_bzero(k->text, sizeof k->text);
}

static int read_kind(struct slice text, enum key_kind *kind, struct err *e)
{
    for (enum key_kind k = KEY_CAPTURE; k <= KEY_SERVICE; k++) {
        if (slice_eq(text, slice_cstr(key_kind_name(k)))) {
            *kind = k;
            return 0;
        }
    }
    return err_set(e, ERR_INVALID_KEY, "kind must be capture, segment or service");
}

static int read_scopes(struct http_request *req, struct slice array, unsigned *scopes,
                       struct err *e)
{
    struct json_iter it = json_iter_array(array);
    struct slice value;
    struct slice inner;
    int r = 0;

    while (r == 0 && json_next_element(&it, &value)) {
        struct slice text = {0};

        if (!json_string_raw(value, &inner)) {
            return err_set(e, ERR_INVALID_REQUEST, "scopes must hold strings");
        }
        text = manage_text(http_arena(req), inner);
        if (text.ptr == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for the body");
        }
        r = scope_parse(text, scopes, e);
    }
    return r;
}

static int read_key(struct http_request *req, struct key_job *k, struct err *e)
{
    struct manage_member members[] = {{.name = "kind", .type = JSON_STRING, .required = true},
                                      {.name = "name", .type = JSON_STRING},
                                      {.name = "scopes", .type = JSON_ARRAY}};
    int r = manage_read_body(req, members, 3, e);

    if (r == 0) {
        r = read_kind(members[0].value, &k->kind, e);
    }
    if (r == 0 && members[2].given) {
        r = read_scopes(req, members[2].value, &k->scopes, e);
    }
    if (r != 0) {
        return r;
    }
    if (k->kind == KEY_SERVICE && k->scopes == 0) {
        return err_set(e, ERR_INVALID_KEY, "a service key needs scopes");
    }
    if (k->kind != KEY_SERVICE && members[2].given) {
        return err_set(e, ERR_INVALID_KEY, "only service keys have scopes");
    }
    if (k->kind != KEY_CAPTURE && !members[1].given) {
        return err_set(e, ERR_INVALID_KEY, "name is missing");
    }
    k->name = members[1].given ? members[1].value : SLICE("default");
    return 0;
}

void manage_keys_create_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    if (manage_may_project(ctx, req, SCOPE_PROJECTS_ADMIN, &who)) {
        (void)manage_json_head(req);
    }
}

void manage_keys_create(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct err e = {0};

    if (!manage_may_project(m, req, SCOPE_PROJECTS_ADMIN, &who)) {
        return;
    }
    struct key_job *k = arena_calloc(http_arena(req), 1, sizeof *k);
    if (k == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    *k = (struct key_job){.job = {.run = create_run, .done = create_done, .weight = STORE_SMALL},
                          .m = m,
                          .req = req,
                          .project = who.project->id};
    if (read_key(req, k, &e) != 0) {
        manage_answer_err(req, &e);
        return;
    }
    store_submit(m->store, &k->job);
}

/* ---- revoke ---- */

static int revoke_run(struct store_job *job, struct store *s, struct err *e)
{
    struct key_job *k = (struct key_job *)job;

    return control_revoke_key(s, k->project, k->id, (int64_t)os_clock_real_ms(), e);
}

static void revoke_done(struct store_job *job, int code, const struct err *e)
{
    struct key_job *k = (struct key_job *)job;
    struct err reading = {0};

    if (code != 0) {
        manage_answer_job(k->req, code, e);
    } else if (control_committed(k->m->store, &reading) != 0) {
        http_answer_error(k->req, ERR_INTERNAL_ERROR,
                          "the key is revoked, but may still be taken for a second",
                          (struct slice){0});
    } else {
        http_answer(k->req, 204, NULL, (struct slice){0});
    }
}

void manage_keys_revoke(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    uint64_t id = 0;

    if (!manage_may_project(m, req, SCOPE_PROJECTS_ADMIN, &who)) {
        return;
    }
    if (!manage_number(http_path_part(req, 1), &id)) {
        http_answer_error(req, ERR_NOT_FOUND, "there is no such key", (struct slice){0});
        return;
    }
    struct key_job *k = arena_calloc(http_arena(req), 1, sizeof *k);
    if (k == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    *k = (struct key_job){.job = {.run = revoke_run, .done = revoke_done, .weight = STORE_SMALL},
                          .m = m,
                          .req = req,
                          .project = who.project->id,
                          .id = (int64_t)id};
    store_submit(m->store, &k->job);
}
