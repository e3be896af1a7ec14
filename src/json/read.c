/* read: walking over JSON text without building anything.
 *
 * Every walker moves a pointer between `at` and `end` and gives slices of the text. Containers are
 * skipped by counting brackets outside of strings, without looking which kind they are: that is
 * right for valid text, cannot leave the slice for any text, and needs no memory however deep the
 * text is. Answers: false or JSON_BAD. Nothing here stops the server or aborts. */
#include "json/read.h"

#include <string.h>

#include "base/ensure.h"
#include "json/scan.h"

enum json_type json_type_of(struct slice v)
{
    const char *end = v.ptr + v.len;
    const char *at = scan_space(v.ptr, end);
    if (at == end) {
        return JSON_BAD;
    }
    switch (*at) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
        return JSON_TRUE;
    case 'f':
        return JSON_FALSE;
    case 'n':
        return JSON_NULL;
    default:
        return *at == '-' || scan_is_digit(*at) ? JSON_NUMBER : JSON_BAD;
    }
}

/* From an opening quote to behind the closing one; NULL without one. */
static const char *skip_string(const char *at, const char *end)
{
    at++;
    for (;;) {
        at = scan_quote(at, end);
        if (at == end) {
            return NULL;
        }
        if (*at == '"') {
            return at + 1;
        }
        if (end - at < 2) {
            return NULL;
        }
        at += 2;
    }
}

/* From an opening bracket to behind the closing one; NULL without one. *deepest (may be NULL) is
 * the number of containers on the deepest path. */
static const char *skip_container(const char *at, const char *end, size_t *deepest)
{
    size_t depth = 0;
    size_t most = 0;
    do {
        if (at == end) {
            return NULL;
        }
        switch (*at) {
        case '"':
            at = skip_string(at, end);
            if (at == NULL) {
                return NULL;
            }
            continue;
        case '{':
        case '[':
            depth++;
            most = depth > most ? depth : most;
            break;
        case '}':
        case ']':
            depth--;
            break;
        default:
            break;
        }
        at++;
    } while (depth != 0);
    if (deepest != NULL) {
        *deepest = most;
    }
    return at;
}

static bool ends_scalar(char c)
{
    return c == ',' || c == ']' || c == '}' || c == ':' || c == '"' || c == '[' || c == '{' ||
           scan_is_space(c);
}

/* From the first byte of a value to behind it; NULL when there is none. */
static const char *skip_value(const char *at, const char *end)
{
    struct slice rest = {.ptr = at, .len = (size_t)(end - at)};
    switch (json_type_of(rest)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        return skip_container(at, end, NULL);
    case JSON_STRING:
        return skip_string(at, end);
    case JSON_NUMBER:
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
        while (at < end && !ends_scalar(*at)) {
            at++;
        }
        return at;
    case JSON_BAD:
    default:
        return NULL;
    }
}

static struct json_iter iter(struct slice v, bool object)
{
    struct json_iter it = {.end = v.ptr + v.len, .object = object, .first = true};
    it.at = scan_space(v.ptr, it.end);
    if (it.at == it.end || *it.at != (object ? '{' : '[')) {
        it.bad = true;
        it.at = it.end;
        return it;
    }
    it.at++;
    return it;
}

struct json_iter json_iter_object(struct slice v)
{
    return iter(v, true);
}

struct json_iter json_iter_array(struct slice v)
{
    return iter(v, false);
}

static bool stop(struct json_iter *it, bool bad)
{
    it->bad = it->bad || bad;
    it->at = it->end;
    return false;
}

/* Stands on the next member or element; false at the end of the container. Nothing but white space
 * may follow the closing bracket. Afterwards an iterator stands at its end, where it stays. */
static bool advance(struct json_iter *it)
{
    it->at = scan_space(it->at, it->end);
    if (it->at == it->end) {
        return stop(it, true);
    }
    if (*it->at == (it->object ? '}' : ']')) {
        it->ended = true;
        if (it->inside) {
            it->at++;
            return false;
        }
        it->at = scan_space(it->at + 1, it->end);
        return stop(it, it->at != it->end);
    }
    if (!it->first) {
        if (*it->at != ',') {
            return stop(it, true);
        }
        it->at = scan_space(it->at + 1, it->end);
    }
    it->first = false;
    return it->at != it->end || stop(it, true);
}

bool json_next_element(struct json_iter *it, struct slice *value)
{
    if (it->bad || it->ended || !advance(it)) {
        return false;
    }
    const char *start = it->at;
    const char *behind = skip_value(start, it->end);
    if (behind == NULL) {
        return stop(it, true);
    }
    it->at = behind;
    *value = (struct slice){.ptr = start, .len = (size_t)(behind - start)};
    return true;
}

bool json_next_member(struct json_iter *it, struct slice *name, struct slice *value)
{
    if (it->bad || it->ended || !advance(it)) {
        return false;
    }
    const char *start = it->at;
    const char *behind = *start == '"' ? skip_string(start, it->end) : NULL;
    if (behind == NULL) {
        return stop(it, true);
    }
    struct slice found = {.ptr = start + 1, .len = (size_t)(behind - start) - 2};
    const char *colon = scan_space(behind, it->end);
    if (colon == it->end || *colon != ':') {
        return stop(it, true);
    }
    start = scan_space(colon + 1, it->end);
    behind = skip_value(start, it->end);
    if (behind == NULL) {
        return stop(it, true);
    }
    it->at = behind;
    *name = found;
    *value = (struct slice){.ptr = start, .len = (size_t)(behind - start)};
    return true;
}

bool json_enter_object(const struct json_iter *it, struct json_iter *object)
{
    struct json_iter look = *it;
    if (it->bad || it->ended || !advance(&look) || *look.at != '{') {
        return false;
    }
    *object = (struct json_iter){
        .at = look.at + 1, .end = look.end, .object = true, .first = true, .inside = true};
    return true;
}

void json_leave(struct json_iter *it, const struct json_iter *object)
{
    ensure(object->inside);
    ensure(object->ended);
    it->at = object->at;
    it->first = false;
}

bool json_member(struct slice object, struct slice name, struct slice *value)
{
    struct json_iter it = json_iter_object(object);
    struct slice found;
    struct slice v;
    while (json_next_member(&it, &found, &v)) {
        if (json_string_is(found, name)) {
            *value = v;
            return true;
        }
    }
    return false;
}

bool json_u64(struct slice v, uint64_t *out)
{
    const char *end = v.ptr + v.len;
    const char *at = scan_space(v.ptr, end);
    const char *digits = at;
    uint64_t n = 0;
    for (; at < end && scan_is_digit(*at); at++) {
        unsigned digit = (unsigned)(*at - '0');
        if (__builtin_mul_overflow(n, UINT64_C(10), &n) ||
            __builtin_add_overflow(n, (uint64_t)digit, &n)) {
            return false;
        }
    }
    bool leading_zero = at - digits > 1 && *digits == '0';
    if (at == digits || leading_zero || scan_space(at, end) != end) {
        return false;
    }
    *out = n;
    return true;
}

size_t json_depth(struct slice v)
{
    const char *end = v.ptr + v.len;
    const char *at = scan_space(v.ptr, end);
    size_t depth = 0;
    if (at < end && (*at == '{' || *at == '[')) {
        (void)skip_container(at, end, &depth);
    }
    return depth;
}

bool json_member_text(struct slice object, struct slice name, char *out, size_t size)
{
    struct slice value, inner;

    if (!json_member(object, name, &value) || !json_string_raw(value, &inner) ||
        json_string_len(inner) >= size) {
        return false;
    }
    /* In the caller's memory: being out of memory must not look like a damaged file. */
    struct buf text = {.ptr = out, .cap = size, .limit = size};
    json_unescape(inner, &text);
    ensure(text.ptr == out && !text.failed && text.len < size);
    out[text.len] = '\0';
    return memchr(out, '\0', text.len) == NULL;
}
