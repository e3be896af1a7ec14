/* query: URL parameters and headers to a struct query.
 *
 * Parameters of ClickHouse's interface that change how bytes travel, or that keep state between
 * requests, are refused rather than ignored: an answer that is not what was asked for is worse than
 * an error. What only tunes the server's buffering is dropped: this front never answers before the
 * statement has ended. Answers only. */
#include "engine/query.h"

#include <stdio.h>

#include "engine/code.h"
#include "engine/engine_protocol.h"
#include "http/http.h"

void query_fail(struct query_error *e, unsigned code, const char *fmt, ...)
{
    va_list args;

    e->code = code;
    va_start(args, fmt);
    (void)vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
}

/* Parameters without effect here. */
static const char *const dropped[] = {
    "wait_end_of_query",
    "buffer_size",
    "stacktrace",
    "close_session",
    "session_check",
    "client_protocol_version",
    "quota_key",
    "enable_http_compression",
    "http_wait_end_of_query",
    "send_progress_in_http_headers",
};

/* Parameters that would need what this front has not got. */
static const char *const refused[] = {
    "session_id", "session_timeout", "role", "user", "password", "query_cache_tag",
};

static bool is_among(struct slice s, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (slice_eq(s, slice_cstr(list[i]))) {
            return true;
        }
    }
    return false;
}

static bool is_setting_name(struct slice s)
{
    if (s.len == 0 || s.len > 120) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_')) {
            return false;
        }
    }
    return true;
}

static bool take_setting(struct query *q, struct slice name, struct slice value,
                         struct query_error *e)
{
    if (!is_setting_name(name)) {
        query_fail(e, CODE_UNKNOWN_SETTING, "a URL parameter is no setting's name");
        return false;
    }
    if (q->setting_count == QUERY_SETTINGS_MAX) {
        query_fail(e, CODE_BAD_ARGUMENTS, "more than %d settings", QUERY_SETTINGS_MAX);
        return false;
    }
    q->setting[q->setting_count++] = (struct library_param){name, value};
    return true;
}

static bool take_param(struct query *q, struct slice name, struct slice value,
                       struct query_error *e)
{
    if (q->param_count == LIBRARY_PARAMS_MAX) {
        query_fail(e, CODE_BAD_ARGUMENTS, "more than %d parameters", LIBRARY_PARAMS_MAX);
        return false;
    }
    q->param[q->param_count++] = (struct library_param){name, value};
    return true;
}

static bool take_pair(struct query *q, struct slice name, struct slice value, struct query_error *e)
{
    if (slice_eq(name, SLICE("query"))) {
        q->sql = value;
    } else if (slice_eq(name, SLICE("database"))) {
        q->database = value;
    } else if (slice_eq(name, SLICE("default_format"))) {
        q->format = value;
    } else if (slice_eq(name, SLICE("query_id"))) {
        q->id = value;
    } else if (slice_starts(name, SLICE("param_"))) {
        return take_param(q, slice_from(name, 6), value, e);
    } else if (slice_eq(name, SLICE("compress")) || slice_eq(name, SLICE("decompress"))) {
        if (!slice_eq(value, SLICE("0"))) {
            query_fail(e, CODE_NOT_IMPLEMENTED, "the native compression is not spoken here");
            return false;
        }
    } else if (is_among(name, refused, sizeof refused / sizeof *refused)) {
        query_fail(e, CODE_NOT_IMPLEMENTED, "the URL parameter %.*s is not taken here",
                   (int)name.len, name.ptr);
        return false;
    } else if (!is_among(name, dropped, sizeof dropped / sizeof *dropped)) {
        return take_setting(q, name, value, e);
    }
    return true;
}

bool query_take_url(struct query *q, struct slice url_query, struct arena *a, struct query_error *e)
{
    struct http_pairs pairs = {.rest = url_query};
    struct slice name;
    struct slice value;
    int r;

    for (;;) {
        r = http_next_pair(&pairs, a, &name, &value);
        if (r == 0) {
            return true;
        }
        if (r < 0) {
            query_fail(e, r == ERR_NO_MEMORY ? CODE_MEMORY_LIMIT : CODE_BAD_ARGUMENTS,
                       "the URL's parameters cannot be read");
            return false;
        }
        if (!take_pair(q, name, value, e)) {
            return false;
        }
    }
}

static bool is_project(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-')) {
            return false;
        }
    }
    return s.len != 0 && s.len <= QUERY_PROJECT_MAX;
}

/* Digits to a number of at least 1; an absent one is the default. */
static bool take_limit(struct slice text, uint64_t standard, uint64_t *out, struct query_error *e)
{
    uint64_t v = 0;

    if (text.len == 0) {
        *out = standard;
        return true;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || i >= 15) {
            v = 0;
            break;
        }
        v = v * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    if (v == 0) {
        query_fail(e, CODE_BAD_ARGUMENTS, "a limit of the query is no number");
        return false;
    }
    *out = v;
    return true;
}

bool query_take_project(struct query *q, struct slice project, const struct query_limits *limits,
                        struct query_error *e)
{
#define X(name) name,
    static const char *const formats[] = {ENGINE_PROJECT_FORMATS(X)};
#undef X

    if (!is_project(project)) {
        query_fail(e, CODE_BAD_ARGUMENTS, "the project's name is none");
        return false;
    }
    if (q->reading) {
        query_fail(e, CODE_BAD_ARGUMENTS, "a project's query is sent by POST");
        return false;
    }
    if (q->setting_count != 0 || q->database.len != 0) {
        query_fail(e, CODE_READONLY, "a project's query takes no settings and no database");
        return false;
    }
    if (q->format.len == 0) {
        q->format = SLICE("JSON");
    }
    if (!is_among(q->format, formats, sizeof formats / sizeof *formats)) {
        query_fail(e, CODE_UNKNOWN_FORMAT, "a project's query is not answered in this format");
        return false;
    }
    q->project = project;
    return take_limit(limits->time_ms, ENGINE_TIME_MS_DEFAULT, &q->time_ms, e) &&
           take_limit(limits->rows_max, ENGINE_ROWS_MAX_DEFAULT, &q->rows_max, e) &&
           take_limit(limits->bytes_max, ENGINE_BYTES_MAX_DEFAULT, &q->bytes_max, e);
}
