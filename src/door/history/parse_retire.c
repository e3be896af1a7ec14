/* The body of POST /v1/sources/retire: the closed object {"v":1,"source":S}, v optional. As with a
 * batch, the whole body passes the JSON screen first; what is no such object is invalid_request, a
 * value that is not allowed is invalid_source_retirement. */
#include "door/history/parse_internal.h"
#include "journal/lifecycle.h"

static int read_retirement(struct slice body, struct slice *source, struct err *e)
{
    static const char *const names[] = {"source", "v"};
    struct slice v = {0};
    struct slice *const out[] = {source, &v};
    if (json_type_of(body) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID_REQUEST, "the body must be a JSON object");
    }
    int r = parse_members(body, names, out, 2, "the retirement", e);
    if (r == 0) {
        r = parse_need(*source, JSON_STRING, "source", "a string", e);
    }
    if (r == 0 && v.ptr != NULL) {
        r = parse_need(v, JSON_NUMBER, "v", "a number", e);
    }
    if (r != 0) {
        return r;
    }
    if (v.ptr != NULL && !slice_eq(v, SLICE("1"))) {
        return err_set(e, ERR_INVALID_SOURCE_RETIREMENT, "v must be 1");
    }
    if (!parse_valid_name(parse_inner(*source))) {
        return err_set(e, ERR_INVALID_SOURCE_RETIREMENT,
                       "source must match [a-z0-9_][a-z0-9_.-]* and have at most 128 bytes");
    }
    if (slice_eq(parse_inner(*source), SLICE(LIFECYCLE_SYSTEM))) {
        return err_set(e, ERR_INVALID_SOURCE_RETIREMENT, "source system is reserved");
    }
    return 0;
}

int parse_retirement(struct parse *p, struct slice body, size_t canonical_max_bytes,
                     struct slice *source, struct err *e)
{
    struct canon_error ce;
    *source = (struct slice){0};
    buf_clear(&p->canonical);
    p->canonical.limit = canonical_max_bytes;
    int r = canon_json(p->canon, body, &p->canonical, &ce);
    if (r == ERR_NO_MEMORY) {
        return err_set(e, r, "no memory for the canonical form");
    }
    r = r != 0 ? err_set_at(e, ERR_INVALID_REQUEST, ce.offset,
                            "the body is not acceptable JSON: %s at byte %llu", ce.text,
                            (unsigned long long)ce.offset)
               : read_retirement(buf_slice(&p->canonical), source, e);
    if (r != 0) {
        parse_end_at_character(e);
    }
    return r;
}
