/* api: who may ask, what a body may say, and how failures are answered.
 *
 * Authorisation is looked at twice, when the head is there (so that no body of a stranger is read)
 * and when the request is complete (the key may have been revoked meanwhile). A key is looked up by
 * the hash of its text, the same work for one that exists and one that does not; the project is
 * looked up in any case, and a service key learns nothing about projects that are not its own: 403
 * whether they exist or not.
 *
 * Bodies are strict I-JSON (json/canon.h): one object, only the members that the route has, each
 * once. Everything here is an answer; a failed store is answered and logged. */
#include "door/manage/api.h"

#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/timefmt.h"
#include "json/canon.h"
#include "json/write.h"

/* ---- who may ask ---- */

static bool refuse_key(struct http_request *req)
{
    http_add_header(req, "WWW-Authenticate", SLICE("Bearer"));
    http_answer_error(req, ERR_UNAUTHORIZED,
                      "this needs a service key: Authorization: Bearer tms_...", (struct slice){0});
    return false;
}

static bool refuse_scope(struct http_request *req)
{
    http_answer_error(req, ERR_FORBIDDEN, "the key may not do this here", (struct slice){0});
    return false;
}

static bool not_found(struct http_request *req, const char *message)
{
    http_answer_error(req, ERR_NOT_FOUND, message, (struct slice){0});
    return false;
}

bool manage_no_store(const struct manage *m, struct http_request *req)
{
    /* The cause names files, and on TCP there are no keys yet to know the caller by. */
    http_answer_error(req, ERR_NO_SPACE,
                      http_on_unix_socket(req) ? m->store_cause
                                               : "the server has no space left; nothing was stored",
                      (struct slice){0});
    return false;
}

/* The caller's key: NULL with true on the Unix socket; false when answered. */
static bool find_key(struct manage *m, struct http_request *req, const struct key **key)
{
    struct slice text = {0};
    const struct key *k;

    *key = NULL;
    if (http_on_unix_socket(req)) {
        return true;
    }
    if (m->store == NULL && m->store_cause != NULL) {
        return manage_no_store(m, req);
    }
    if (m->store == NULL || !http_bearer(req, &text)) {
        return refuse_key(req);
    }
    k = control_key(store_control(m->store), text, NULL);
    if (k == NULL || k->kind != KEY_SERVICE) {
        return refuse_key(req);
    }
    *key = k;
    return true;
}

bool manage_may_project(struct manage *m, struct http_request *req, unsigned scopes,
                        struct manage_caller *who)
{
    *who = (struct manage_caller){0};
    if (!find_key(m, req, &who->key)) {
        return false;
    }
    if (m->store == NULL && m->store_cause != NULL) {
        return manage_no_store(m, req);
    }
    if (m->store != NULL) {
        who->project = control_project(store_control(m->store), http_path_part(req, 0));
    }
    if (who->key != NULL && (who->project == NULL || who->project->id != who->key->project ||
                             (scopes != 0 && (who->key->scopes & scopes) == 0))) {
        return refuse_scope(req);
    }
    return who->project != NULL || not_found(req, "there is no such project");
}

bool manage_may_instance(struct manage *m, struct http_request *req, unsigned scopes,
                         struct manage_caller *who)
{
    *who = (struct manage_caller){0};
    if (!find_key(m, req, &who->key)) {
        return false;
    }
    if (who->key != NULL && scopes != 0 && (who->key->scopes & scopes) == 0) {
        return refuse_scope(req);
    }
    return true;
}

/* ---- bodies ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without regard to case and blanks around it. */
static bool says(struct slice s, const char *lower)
{
    size_t i = 0;

    while (s.len != 0 && is_blank(s.ptr[0])) {
        s = slice_from(s, 1);
    }
    while (s.len != 0 && is_blank(s.ptr[s.len - 1])) {
        s.len--;
    }
    for (; i < s.len && lower[i] != '\0'; i++) {
        char c = s.ptr[i];

        if (c >= 'A' && c <= 'Z') {
            c = (char)(c - 'A' + 'a');
        }
        if (c != lower[i]) {
            return false;
        }
    }
    return i == s.len && lower[i] == '\0';
}

/* application/json, with charset=utf-8 as the only parameter. */
static bool is_json_type(struct slice v)
{
    const char *semicolon = memchr(v.ptr, ';', v.len);
    size_t n = semicolon == NULL ? v.len : (size_t)(semicolon - v.ptr);

    return says(slice_of(v.ptr, n), "application/json") &&
           (semicolon == NULL || says(slice_from(v, n + 1), "charset=utf-8"));
}

bool manage_json_head(struct http_request *req)
{
    struct slice v = {0};
    unsigned count = 0;

    if (http_query(req).len != 0) {
        http_answer_error(req, ERR_INVALID_REQUEST, "this route takes no query parameters",
                          (struct slice){0});
    } else if (http_header(req, "content-encoding", &v, NULL)) {
        http_answer_error(req, ERR_UNSUPPORTED_MEDIA_TYPE, "Content-Encoding is not accepted here",
                          (struct slice){0});
    } else if (http_header(req, "content-type", &v, &count) && (count > 1 || !is_json_type(v))) {
        http_answer_error(req, ERR_UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json",
                          (struct slice){0});
    }
    return !http_answered(req);
}

struct slice manage_text(struct arena *a, struct slice inner)
{
    struct buf b = {.ptr = arena_alloc(a, inner.len + 1), .cap = inner.len, .limit = inner.len};

    if (b.ptr == NULL) {
        return (struct slice){0};
    }
    json_unescape(inner, &b); /* never longer than its escaped form */
    ensure(!b.failed);
    return buf_slice(&b);
}

static const char *type_name(enum json_type t)
{
    return t == JSON_STRING ? "a string" : t == JSON_ARRAY ? "an array" : "an object";
}

static int read_member(struct http_request *req, const char *within, struct slice name,
                       struct slice value, struct manage_member *members, size_t count,
                       struct err *e)
{
    struct slice inner = {0};
    struct manage_member *m = NULL;

    for (size_t i = 0; i < count && m == NULL; i++) {
        m = json_string_is(name, slice_cstr(members[i].name)) ? &members[i] : NULL;
    }
    if (m == NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "%sunknown member \"%.*s\"", within,
                       name.len > 60 ? 60 : (int)name.len, name.ptr);
    }
    if (json_type_of(value) != m->type) {
        return err_set(e, ERR_INVALID_REQUEST, "%s%s must be %s", within, m->name,
                       type_name(m->type));
    }
    m->given = true;
    m->value = value;
    if (json_string_raw(value, &inner)) {
        m->value = manage_text(http_arena(req), inner);
        if (m->value.ptr == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for the body");
        }
    }
    return 0;
}

/* The canonical form of the body, in the arena: strict, and each name at most once. */
static int screen(struct http_request *req, struct slice *out, struct err *e)
{
    struct canon *c = canon_new();
    struct canon_error ce = {0};
    struct buf text = {0};
    int r = ERR_NO_MEMORY;

    if (c != NULL) {
        r = canon_json(c, http_body(req), &text, &ce);
        canon_free(c);
    }
    if (r == 0) {
        char *copy = arena_copy(http_arena(req), buf_slice(&text));

        *out = slice_of(copy, text.len);
        r = copy == NULL ? ERR_NO_MEMORY : 0;
    }
    buf_free(&text);
    if (r == ERR_NO_MEMORY) {
        return err_set(e, r, "no memory for the body");
    }
    return r == 0 ? 0
                  : err_set_at(e, ERR_INVALID_REQUEST, ce.offset,
                               "the body is not acceptable JSON: %s at byte %llu%s%.80s", ce.text,
                               (unsigned long long)ce.offset, ce.path[0] != '\0' ? ", in " : "",
                               ce.path);
}

static int read_members(struct http_request *req, const char *within, struct slice object,
                        struct manage_member *members, size_t count, struct err *e)
{
    struct json_iter it = json_iter_object(object);
    struct slice name;
    struct slice value;
    int r = 0;

    while (r == 0 && json_next_member(&it, &name, &value)) {
        r = read_member(req, within, name, value, members, count, e);
    }
    ensure(r != 0 || !it.bad);
    for (size_t i = 0; r == 0 && i < count; i++) {
        if (members[i].required && !members[i].given) {
            r = err_set(e, ERR_INVALID_REQUEST, "%s%s is missing", within, members[i].name);
        }
    }
    return r;
}

int manage_read_body(struct http_request *req, struct manage_member *members, size_t count,
                     struct err *e)
{
    struct slice body = {0};
    int r = screen(req, &body, e);

    if (r == 0 && json_type_of(body) != JSON_OBJECT) {
        r = err_set(e, ERR_INVALID_REQUEST, "the body must be a JSON object");
    }
    return r == 0 ? read_members(req, "", body, members, count, e) : r;
}

int manage_read_object(struct http_request *req, const char *within, struct slice object,
                       struct manage_member *members, size_t count, struct err *e)
{
    char prefix[40];
    int n = snprintf(prefix, sizeof prefix, "%s: ", within);

    ensure(n > 0);
    ensure((size_t)n < sizeof prefix);
    return read_members(req, prefix, object, members, count, e);
}

bool manage_number(struct slice s, uint64_t *out)
{
    uint64_t v = 0;

    if (s.len == 0 || s.len > 18) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(s.ptr[i] - '0');
    }
    *out = v;
    return v != 0 && s.ptr[0] != '0';
}

int manage_read_params(struct http_request *req, manage_param_fn *set, void *ctx, struct err *e)
{
    struct http_pairs pairs = {http_query(req)};
    struct slice name;
    struct slice value;
    unsigned seen = 0;
    int r = http_next_pair(&pairs, http_arena(req), &name, &value);

    while (r == 1) {
        unsigned bit = 0;
        int code = set(ctx, http_arena(req), name, value, &bit, e);

        if (code != 0) {
            return code;
        }
        if ((seen & bit) != 0) {
            return err_set(e, ERR_INVALID_REQUEST, "a query parameter is given twice");
        }
        seen |= bit;
        r = http_next_pair(&pairs, http_arena(req), &name, &value);
    }
    return r == 0 ? 0
                  : err_set(e, r,
                            r == ERR_NO_MEMORY ? "no memory for the query"
                                               : "the query string is malformed");
}

/* ---- answers ---- */

void manage_answer(struct http_request *req, unsigned status, struct buf *b)
{
    if (b->failed) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "no memory for the answer", (struct slice){0});
    } else {
        http_answer(req, status, "application/json", buf_slice(b));
    }
    buf_free(b);
}

void manage_answer_err(struct http_request *req, const struct err *e)
{
    ensure(e->code < 0);
    switch (e->code) {
    case ERR_NO_SPACE:
        http_add_header(req, "Retry-After", SLICE("60"));
        http_answer_error(req, e->code, "the server has no space left; nothing was stored",
                          (struct slice){0});
        return;
    case ERR_STORE_POISONED:
        http_answer_error(req, e->code,
                          "the store takes no writes until a restart; the outcome is not known",
                          (struct slice){0});
        return;
    case ERR_NO_MEMORY:
        manage_overloaded(req, "no memory for the request; nothing was stored");
        return;
    case ERR_STORE_BUSY:
        http_answer_error(req, e->code, "the store is catching up; nothing was stored",
                          (struct slice){0});
        return;
    default:
        break;
    }
    if (err_status(e->code) < 500) {
        http_answer_error(req, e->code, e->text, (struct slice){0});
        return;
    }
    log_line(LOG_ERROR, "manage", "a request failed: %s (%s)", e->text, err_name(e->code));
    http_answer_error(req, ERR_INTERNAL_ERROR, "the store could not be read or written",
                      (struct slice){0});
}

void manage_answer_job(struct http_request *req, int code, const struct err *e)
{
    struct err own = {0};

    if (e != NULL) {
        own = *e;
    }
    own.code = code; /* the turn's, where the whole turn was undone */
    manage_answer_err(req, &own);
}

void manage_overloaded(struct http_request *req, const char *message)
{
    http_answer_error(req, ERR_OVERLOADED, message, (struct slice){0});
}

void manage_put_text(struct buf *b, const char *name, struct slice text)
{
    json_put_name(b, name);
    json_put_string(b, text);
}

void manage_put_number(struct buf *b, const char *name, uint64_t v)
{
    json_put_name(b, name);
    buf_put_u64(b, v);
}

void manage_put_flag(struct buf *b, const char *name, bool v)
{
    json_put_name(b, name);
    buf_put_cstr(b, v ? "true" : "false");
}

void manage_put_id(struct buf *b, const char *name, int64_t id)
{
    json_put_name(b, name);
    buf_put_char(b, '"');
    buf_put_i64(b, id);
    buf_put_char(b, '"');
}

void manage_put_time(struct buf *b, const char *name, int64_t ms)
{
    char text[TIMEFMT_MS_LEN + 1];

    json_put_name(b, name);
    if (ms <= 0 || (uint64_t)ms >= TIMEFMT_MS_END) { /* never, or a clock beyond the calendar */
        buf_put_cstr(b, "null");
        return;
    }
    timefmt_ms(text, (uint64_t)ms);
    buf_put_char(b, '"');
    buf_put_cstr(b, text);
    buf_put_char(b, '"');
}
