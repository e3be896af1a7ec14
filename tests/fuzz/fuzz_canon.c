/* fuzz_canon: canon_json on any bytes, and the walkers of read.h on the same bytes and on what
 * canon made of them.
 *
 * Broken is: a canonical form that is refused or changes when canonicalized again, or that the
 * walkers call bad; an error position outside of the input; a walker's result outside of its text;
 * and whatever the sanitizers find. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon.h"
#include "json/read.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool inside(struct slice part, struct slice whole)
{
    return part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len;
}

static void unescape(struct slice inner, struct buf *scratch)
{
    buf_clear(scratch);
    json_unescape(inner, scratch);
    ensure(scratch->len == json_string_len(inner));
    ensure(json_string_is(inner, buf_slice(scratch)));
    ensure(json_string_starts(inner, (struct slice){.ptr = scratch->ptr, .len = scratch->len / 2}));
}

/* The whole tree, one path at a time; `left` bounds the depth of our own recursion. */
static void walk(struct slice v, bool valid, int left, struct buf *scratch)
{
    struct json_iter it;
    struct slice name;
    struct slice value;
    uint64_t number;
    (void)json_u64(v, &number);
    (void)json_member(v, SLICE("a"), &value);
    size_t depth = json_depth(v);
    ensure(depth <= v.len);
    switch (json_type_of(v)) {
    case JSON_OBJECT:
        it = json_iter_object(v);
        while (json_next_member(&it, &name, &value)) {
            ensure(inside(name, v));
            ensure(inside(value, v));
            ensure(!valid || json_depth(value) < depth);
            unescape(name, scratch);
            if (left > 0) {
                walk(value, valid, left - 1, scratch);
            }
        }
        ensure(!valid || !it.bad);
        break;
    case JSON_ARRAY:
        it = json_iter_array(v);
        while (json_next_element(&it, &value)) {
            ensure(inside(value, v));
            ensure(!valid || json_depth(value) < depth);
            if (left > 0) {
                walk(value, valid, left - 1, scratch);
            }
        }
        ensure(!valid || !it.bad);
        break;
    case JSON_STRING:
        if (json_string_raw(v, &value)) {
            ensure(inside(value, v));
            unescape(value, scratch);
        } else {
            ensure(!valid);
        }
        break;
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
    case JSON_NUMBER:
        break;
    case JSON_BAD:
    default:
        ensure(!valid);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct canon *canon;
    static struct buf out, again, scratch;
    if (canon == NULL) {
        canon = canon_new();
    }
    struct slice in = slice_of(data, size);
    struct canon_error e;
    buf_clear(&out);
    buf_clear(&again);
    int r = canon_json(canon, in, &out, &e);
    walk(in, r == 0, 8, &scratch);
    if (r != 0) {
        ensure(out.len == 0);
        ensure(e.offset <= size);
        ensure(memchr(e.path, '\0', sizeof e.path) != NULL);
        ensure(utf8_valid(slice_cstr(e.path), NULL));
        ensure(e.text[0] != '\0');
        return 0;
    }
    ensure(utf8_valid(in, NULL));
    walk(buf_slice(&out), true, 8, &scratch);
    r = canon_json(canon, buf_slice(&out), &again, &e);
    ensure(r == 0);
    ensure(slice_eq(buf_slice(&out), buf_slice(&again)));
    return 0;
}
