/* The query of /v1/events (spec/history.md section 8): each name at most once, names and values
 * checked before anything is read. What is wrong is an answer, 400. */
#include "door/history/internal.h"

static int bad(struct err *e, const char *text)
{
    return err_set(e, ERR_INVALID_REPLAY_REQUEST, "%s", text);
}

/* X(name, bit) */
#define REPLAY_PARAMS(X) \
    X(source) X(stream) X(record_key) X(kind) X(after) X(limit) X(follow) X(last)

enum replay_param {
#define X(name) PARAM_##name,
    REPLAY_PARAMS(X)
#undef X
        PARAM_COUNT
};

static enum replay_param find_param(struct slice name)
{
    static const char *const names[] = {
#define X(name) #name,
        REPLAY_PARAMS(X)
#undef X
    };
    int i = 0;
    while (i < PARAM_COUNT && !slice_eq(name, slice_cstr(names[i]))) {
        i++;
    }
    return (enum replay_param)i;
}

static int set_filter(struct history_params *p, struct slice *out, struct slice value,
                      struct err *e)
{
    *out = history_json_string(&p->arena, value);
    return out->ptr == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for a filter") : 0;
}

static int set_param(const struct history *h, struct history_params *p, enum replay_param which,
                     struct slice v, struct err *e)
{
    switch (which) {
    case PARAM_source:
        return set_filter(p, &p->filter.source, v, e);
    case PARAM_stream:
        return set_filter(p, &p->filter.stream, v, e);
    case PARAM_kind:
        return set_filter(p, &p->filter.kind, v, e);
    case PARAM_record_key:
        if (v.len == 0 || v.len > 1024) {
            return bad(e, "record_key must have 1 to 1024 bytes");
        }
        return set_filter(p, &p->filter.record_key, v, e);
    case PARAM_after:
        p->has_after = uuid7_parse(v, &p->after);
        return p->has_after ? 0 : bad(e, "after must be a UUIDv7 in canonical form");
    case PARAM_limit:
        return history_parse_limit(v, h->options.replay_max_limit, &p->limit)
                   ? 0
                   : err_set(e, ERR_INVALID_REPLAY_REQUEST, "limit must be a number from 1 to %u",
                             h->options.replay_max_limit);
    case PARAM_follow:
        p->follow = slice_eq(v, SLICE("true"));
        return p->follow || slice_eq(v, SLICE("false")) ? 0
                                                        : bad(e, "follow must be true or false");
    case PARAM_last:
        return history_parse_limit(v, h->options.replay_max_limit, &p->last)
                   ? 0
                   : err_set(e, ERR_INVALID_REPLAY_REQUEST, "last must be a number from 1 to %u",
                             h->options.replay_max_limit);
    case PARAM_COUNT:
        break;
    }
    return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
}

static int read_all(const struct history *h, struct http_request *req, struct history_params *p,
                    unsigned *seen, struct err *e)
{
    struct http_pairs pairs = {http_query(req)};
    struct slice name;
    struct slice value;
    int r;
    while ((r = http_next_pair(&pairs, http_arena(req), &name, &value)) == 1) {
        enum replay_param which = find_param(name);
        if (which == PARAM_COUNT || (which == PARAM_last && !http_on_unix_socket(req))) {
            return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
        }
        if ((*seen & (1u << which)) != 0) {
            return err_set(e, ERR_INVALID_REQUEST, "a query parameter is given twice");
        }
        *seen |= 1u << which;
        r = set_param(h, p, which, value, e);
        if (r != 0) {
            return r;
        }
    }
    if (r < 0) {
        return err_set(
            e, r, r == ERR_NO_MEMORY ? "no memory for the query" : "the query string is malformed");
    }
    return 0;
}

int history_params_read(const struct history *h, struct http_request *req, struct history_params *p,
                        struct err *e)
{
    unsigned seen = 0;
    p->limit = h->options.replay_default_limit;
    int r = read_all(h, req, p, &seen, e);
    if (r != 0) {
        return r;
    }
    if (p->last != 0 && ((seen & (1u << PARAM_after)) != 0 || (seen & (1u << PARAM_limit)) != 0)) {
        return bad(e, "last goes with neither after nor limit");
    }
    if (p->last != 0 && p->follow) {
        return bad(e, "last does not go with follow");
    }
    if (p->last != 0) {
        p->limit = p->last;
    }
    return 0;
}

bool history_accepts(const struct http_request *req, struct slice type)
{
    struct slice v;
    return http_header(req, "accept", &v, NULL) && memmem(v.ptr, v.len, type.ptr, type.len) != NULL;
}
