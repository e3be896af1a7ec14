/* query: form-encoded pairs of a query string, decoded strictly.
 *
 * `+` is a space, `%XX` a byte. What a door could misread is refused: a `%` without two hexadecimal
 * digits, text that is not UTF-8 (overlong forms and surrogates included). A NUL is a character
 * like any other: a record key may hold one. Everything here is an answer to a client. */
#include "http/http.h"
#include "json/write.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

static int decode(struct arena *a, struct slice from, struct slice *to)
{
    char *p = arena_alloc(a, from.len + 1);
    size_t n = 0;

    if (p == NULL) {
        return ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < from.len; i++) {
        char c = from.ptr[i];

        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            int high = i + 2 < from.len ? hex_value(from.ptr[i + 1]) : -1;
            int low = i + 2 < from.len ? hex_value(from.ptr[i + 2]) : -1;

            if (high < 0 || low < 0) {
                return ERR_INVALID_REQUEST;
            }
            c = (char)(high * 16 + low);
            i += 2;
        }
        p[n] = c;
        n++;
    }
    p[n] = '\0';
    if (!utf8_valid(slice_of(p, n), NULL)) {
        return ERR_INVALID_REQUEST;
    }
    *to = slice_of(p, n);
    return 0;
}

int http_next_pair(struct http_pairs *p, struct arena *a, struct slice *name, struct slice *value)
{
    struct slice pair = {0};
    struct slice raw_value = {0};
    const char *end;
    const char *equals;
    int got;

    /* Empty pairs (`a=1&&b=2`) say nothing and are passed over. */
    while (pair.len == 0) {
        if (p->rest.len == 0) {
            return 0;
        }
        end = memchr(p->rest.ptr, '&', p->rest.len);
        pair = p->rest;
        if (end != NULL) {
            pair.len = (size_t)(end - p->rest.ptr);
        }
        p->rest = slice_from(p->rest, end != NULL ? pair.len + 1 : pair.len);
    }
    equals = memchr(pair.ptr, '=', pair.len);
    if (equals != NULL) {
        size_t name_len = (size_t)(equals - pair.ptr);

        raw_value = slice_from(pair, name_len + 1);
        pair.len = name_len;
    }
    got = decode(a, pair, name);
    if (got != 0) {
        return got;
    }
    got = decode(a, raw_value, value);
    return got != 0 ? got : 1;
}
