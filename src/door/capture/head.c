/* head: what the head of a capture request says, before and beside its body.
 *
 * Keys in headers: Segment's `Authorization: Basic base64(KEY:)`, the Bearer token of PostHog v1
 * and of the native route. They are looked up as soon as the head is there, so that a body of
 * somebody without a key is neither asked for nor decoded (cases C41). A Segment header that is no
 * Basic (OAuth) or cannot be read leaves the word to the body's writeKey (spec/capture.md B2).
 *
 * Everything here is an answer to a client. No token gets into an error text. */
#include <strings.h>

#include "door/capture/identity.h"
#include "door/capture/internal.h"
#include "door/capture/times.h"

/* Query times that mean a year up to 2020 are seconds, not milliseconds (spec/capture.md A2). */
#define QUERY_MS_MIN INT64_C(1609459200000)
#define QUERY_MS_MAX INT64_C(253402300799999)
#define BASIC_MAX    256 /* characters of base64 */

/* ---- keys ---- */

bool capture_is_key_text(struct slice text)
{
    if (text.len == 0 || text.len > KEY_TEXT_MAX) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '-' || c == '_' || c == '.';
        if (!plain) {
            return false;
        }
    }
    return true;
}

const struct key *capture_key(const struct capture *c, struct slice text, const struct project **p)
{
    const struct key *k =
        text.len == 0 || c->control == NULL ? NULL : control_key(c->control, text, p);
    return k == NULL || k->kind == KEY_SERVICE ? NULL : k;
}

/* What stands behind the scheme; false without exactly one such header. */
static bool credentials(const struct http_request *req, const char *scheme, struct slice *out)
{
    unsigned count = 0;
    size_t n = strlen(scheme);
    if (!http_header(req, "authorization", out, &count) || count != 1 || out->len <= n ||
        strncasecmp(out->ptr, scheme, n) != 0 || out->ptr[n] != ' ') {
        return false;
    }
    *out = slice_from(*out, n);
    while (out->len > 0 && *out->ptr == ' ') {
        *out = slice_from(*out, 1);
    }
    return out->len > 0;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

/* The user name of Basic credentials: all of the text when there is no colon. */
static bool basic_user(struct http_request *req, struct slice *user)
{
    struct slice in;
    uint32_t bits = 0;
    unsigned have = 0;
    size_t n = 0;
    if (!credentials(req, "basic", &in) || in.len > BASIC_MAX) {
        return false;
    }
    char *out = arena_alloc(http_arena(req), BASIC_MAX);
    if (out == NULL) {
        return false;
    }
    while (in.len > 0 && in.ptr[in.len - 1] == '=') {
        in.len--;
    }
    for (size_t i = 0; i < in.len; i++) {
        int v = base64_value(in.ptr[i]);
        if (v < 0) {
            return false;
        }
        bits = (bits << 6 | (uint32_t)v) & 0xFFFFFF;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (char)(bits >> have & 0xFF);
        }
    }
    const char *colon = memchr(out, ':', n);
    *user = slice_of(out, colon == NULL ? n : (size_t)(colon - out));
    return user->len > 0;
}

/* ---- the native route ---- */

/* The administrator on the Unix socket; else a service key of this project that may write. A
 * project that does not exist looks like one of somebody else. */
static int native_access(const struct capture *c, struct http_request *req,
                         const struct project **project, struct slice *source, struct err *e)
{
    const struct project *named = control_project(c->control, http_path_part(req, 0));
    const struct project *of_key = NULL;
    struct slice token;
    const struct key *k =
        credentials(req, "bearer", &token) ? control_key(c->control, token, &of_key) : NULL;
    *project = named;
    *source = SLICE("native");
    if (http_on_unix_socket(req)) {
        return named != NULL ? 0 : err_set(e, ERR_NOT_FOUND, "there is no such project");
    }
    if (k == NULL || k->kind != KEY_SERVICE) {
        return err_set(e, ERR_UNAUTHORIZED,
                       "a service key is needed: Authorization: Bearer tms_...");
    }
    if (named == NULL || of_key->id != named->id) {
        return err_set(e, ERR_FORBIDDEN, "this key is not for this project");
    }
    if ((k->scopes & SCOPE_EVENTS_WRITE) == 0) {
        return err_set(e, ERR_FORBIDDEN, "this key has no scope events:write");
    }
    *source = slice_cstr(k->name);
    return 0;
}

/* ---- PostHog v1 ---- */

static bool one_header(const struct http_request *req, const char *name, struct slice *v)
{
    unsigned count = 0;
    return http_header(req, name, v, &count) && count == 1 && v->len > 0;
}

static bool is_json_type(struct slice v)
{
    static const char type[] = "application/json";
    size_t n = sizeof type - 1;
    if (v.len < n || strncasecmp(v.ptr, type, n) != 0) {
        return false;
    }
    return v.len == n || v.ptr[n] == ';' || v.ptr[n] == ' ';
}

static bool is_attempt(struct slice v)
{
    for (size_t i = 0; i < v.len; i++) {
        if (v.ptr[i] < '0' || v.ptr[i] > '9') {
            return false;
        }
    }
    return v.len <= 9 && v.ptr[0] != '0';
}

struct v1_head {
    struct slice token, sdk, sdk_version;
    int64_t sent_at_us;
};

/* The headers that A8 asks for, but for User-Agent: nothing is refused for its sender's name
 * (cases C50). */
static int v1_head(const struct http_request *req, struct v1_head *out, struct err *e)
{
    struct slice v;
    struct uuid id;
    if (!credentials(req, "bearer", &out->token)) {
        return err_set(e, ERR_UNAUTHORIZED,
                       "Authorization: Bearer with the project's token is "
                       "needed");
    }
    if (!one_header(req, "content-type", &v) || !is_json_type(v)) {
        return err_set(e, ERR_UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
    }
    const char *slash = one_header(req, "posthog-sdk-info", &v) ? memchr(v.ptr, '/', v.len) : NULL;
    if (slash == NULL || slash == v.ptr || slash == v.ptr + v.len - 1) {
        return err_set(e, ERR_INVALID_REQUEST, "PostHog-Sdk-Info must be NAME/VERSION");
    }
    out->sdk = slice_of(v.ptr, (size_t)(slash - v.ptr));
    out->sdk_version = slice_from(v, out->sdk.len + 1);
    if (!one_header(req, "posthog-attempt", &v) || !is_attempt(v)) {
        return err_set(e, ERR_INVALID_REQUEST, "PostHog-Attempt must be a number from 1 on");
    }
    if (!one_header(req, "posthog-request-id", &v) || !identity_parse(v, &id)) {
        return err_set(e, ERR_INVALID_REQUEST, "PostHog-Request-Id must be a UUID");
    }
    if (!one_header(req, "posthog-request-timestamp", &v) ||
        !times_parse_strict(v, &out->sent_at_us)) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "PostHog-Request-Timestamp must be a time of RFC 3339");
    }
    return 0;
}

/* ---- on_head ---- */

static int check_public(const struct capture *c, struct slice token, struct err *e)
{
    return capture_key(c, token, NULL) != NULL
               ? 0
               : err_set(e, ERR_UNAUTHORIZED, "the key is not one of a project here");
}

static int check(const struct capture *c, struct http_request *req, enum capture_dialect dialect,
                 struct err *e)
{
    const struct project *project;
    struct slice s;
    struct v1_head v1;
    int r = 0;
    switch (dialect) {
    case CAPTURE_POSTHOG_V1:
        r = v1_head(req, &v1, e);
        return r != 0 ? r : check_public(c, v1.token, e);
    case CAPTURE_SEGMENT:
        return basic_user(req, &s) ? check_public(c, s, e) : 0;
    case CAPTURE_NATIVE:
        return native_access(c, req, &project, &s, e);
    case CAPTURE_POSTHOG:
    default:
        return 0;
    }
}

void capture_check_head(struct capture *c, struct http_request *req, enum capture_dialect dialect)
{
    struct err e = {0};
    int r = c->store == NULL
                ? err_set(&e, ERR_NO_SPACE, "the queue waits for space; nothing was stored")
                : check(c, req, dialect, &e);
    if (r != 0) {
        capture_refuse(req, dialect, r, e.text, (struct slice){0});
    }
}

/* ---- the whole head of a request ---- */

static bool parse_ms(struct slice s, int64_t *ms)
{
    int64_t v = 0;
    if (s.len == 0 || s.len > 18) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
        v = v * 10 + (s.ptr[i] - '0');
    }
    *ms = v;
    return v >= QUERY_MS_MIN && v <= QUERY_MS_MAX;
}

static void take_pair(struct capture_batch *b, struct slice name, struct slice value)
{
    int64_t ms;
    if (slice_eq(name, SLICE("data"))) {
        b->how.query_data = value;
    } else if (slice_eq(name, SLICE("compression"))) {
        b->how.query_compression = value;
    } else if (slice_eq(name, SLICE("beacon"))) {
        b->beacon = slice_eq(value, SLICE("1"));
    } else if ((slice_eq(name, SLICE("_")) || slice_eq(name, SLICE("sent_at"))) &&
               parse_ms(value, &ms)) {
        b->head_sent_at_ms = ms;
    }
}

/* Pair by pair, so that a broken one that says nothing to us costs no event (cases C53: a broken
 * `data` is refused). */
static int read_query(struct capture_batch *b, struct err *e)
{
    struct slice rest = http_query(b->req);
    while (rest.len > 0) {
        const char *end = memchr(rest.ptr, '&', rest.len);
        size_t len = end == NULL ? rest.len : (size_t)(end - rest.ptr);
        struct slice pair = slice_of(rest.ptr, len);
        struct http_pairs one = {.rest = pair};
        struct slice name;
        struct slice value;
        int r = http_next_pair(&one, http_arena(b->req), &name, &value);
        if (r == 1) {
            take_pair(b, name, value);
        } else if (r == ERR_NO_MEMORY) {
            return err_set(e, r, "no memory for the query string");
        } else if (r != 0 && slice_starts(pair, SLICE("data="))) {
            return err_set(e, ERR_INVALID_ENCODING,
                           "the query parameter data is not percent-encoded UTF-8");
        }
        rest = slice_from(rest, end == NULL ? len : len + 1);
    }
    return 0;
}

static int read_encoding(struct capture_batch *b, struct err *e)
{
    struct slice v = {0};
    unsigned lines = 0;
    if (http_header(b->req, "content-type", &v, NULL)) {
        b->how.content_type = v;
    }
    if (!http_header(b->req, "content-encoding", &v, &lines)) {
        return 0;
    }
    b->how.content_encoding = v;
    if (lines > 1) {
        /* Encodings one around the other are not supported, whatever the others are. */
        struct buf all = {0};
        buf_put_slice(&all, v);
        buf_put_cstr(&all, ", and others");
        const char *copy = all.failed ? NULL : arena_copy(http_arena(b->req), buf_slice(&all));
        b->how.content_encoding = slice_of(copy, copy == NULL ? 0 : all.len);
        buf_free(&all);
        return copy != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory for the head");
    }
    return 0;
}

/* For the use of a worker and of later turns, in which the key may be gone. */
static int keep_native(struct capture_batch *b, const struct project *project, struct slice source,
                       struct err *e)
{
    struct arena *a = http_arena(b->req);
    struct project *p = arena_alloc(a, sizeof *p);
    char *name = arena_copy(a, source);
    if (p == NULL || name == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for this request now");
    }
    *p = *project;
    b->project = p;
    b->source = slice_of(name, source.len);
    return 0;
}

static int read_key(struct capture_batch *b, struct err *e)
{
    const struct project *project = NULL;
    struct slice source;
    struct v1_head v1 = {0};
    int r = 0;
    switch (b->dialect) {
    case CAPTURE_POSTHOG_V1:
        r = v1_head(b->req, &v1, e);
        b->head_token = v1.token;
        b->sdk = v1.sdk;
        b->sdk_version = v1.sdk_version;
        b->head_sent_at_ms = v1.sent_at_us / 1000;
        return r;
    case CAPTURE_SEGMENT:
        if (!basic_user(b->req, &b->head_token)) {
            b->head_token = (struct slice){0};
        }
        return 0;
    case CAPTURE_NATIVE:
        r = native_access(b->c, b->req, &project, &source, e);
        return r != 0 ? r : keep_native(b, project, source, e);
    case CAPTURE_POSTHOG:
    default:
        return 0;
    }
}

int capture_read_head(struct capture_batch *b, struct err *e)
{
    int r = read_key(b, e);
    if (r == 0) {
        r = read_encoding(b, e);
    }
    if (r == 0 && b->dialect == CAPTURE_POSTHOG) {
        r = read_query(b, e);
    }
    return r;
}
