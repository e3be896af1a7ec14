/* Strings of JSON text that is already known to be valid: taken out of their quotes, unescaped,
 * compared; see read.h.
 *
 * All of them walk with `json_string_walk_next`, which gives either a run of the text itself or
 * what one escape stands for. Bytes that are no UTF-8, and on text that is not valid an escape that
 * means nothing, become U+FFFD; the walk always moves on and stays inside. */
#include "json/read.h"
#include "json/scan.h"
#include "json/string_walk.h"

bool json_string_raw(struct slice v, struct slice *inner)
{
    const char *end = v.ptr + v.len;
    const char *at = scan_space(v.ptr, end);
    if (at == end || *at != '"') {
        return false;
    }
    const char *start = ++at;
    for (;;) {
        at = scan_quote(at, end);
        if (at == end || end - at < 2) {
            /* Only a quote may be the last byte. */
            if (at == end || *at != '"') {
                return false;
            }
            break;
        }
        if (*at == '"') {
            break;
        }
        at += 2;
    }
    *inner = (struct slice){.ptr = start, .len = (size_t)(at - start)};
    return scan_space(at + 1, end) == end;
}

/* One \u escape, with its low half when it is a pair. */
static unsigned unicode_piece(struct json_string_walk *w)
{
    uint32_t cp;
    if (!scan_hex4(w->at + 2, w->end, &cp)) {
        w->at += 2;
        return scan_put_utf8(w->own, 0xFFFD);
    }
    w->at += 6;
    uint32_t low;
    if (cp >= 0xD800 && cp <= 0xDBFF && w->end - w->at >= 6 && w->at[0] == '\\' &&
        w->at[1] == 'u' && scan_hex4(w->at + 2, w->end, &low) && low >= 0xDC00 && low <= 0xDFFF) {
        w->at += 6;
        cp = 0x10000 + ((cp - 0xD800) << 10 | (low - 0xDC00));
    }
    if (cp >= 0xD800 && cp <= 0xDFFF) {
        cp = 0xFFFD;
    }
    return scan_put_utf8(w->own, cp);
}

static unsigned escape_piece(struct json_string_walk *w)
{
    if (w->end - w->at < 2) {
        w->at = w->end;
        return scan_put_utf8(w->own, 0xFFFD);
    }
    uint32_t cp = 0xFFFD;
    switch (w->at[1]) {
    case '"':
    case '\\':
    case '/':
        cp = (uint32_t)(unsigned char)w->at[1];
        break;
    case 'b':
        cp = '\b';
        break;
    case 'f':
        cp = '\f';
        break;
    case 'n':
        cp = '\n';
        break;
    case 'r':
        cp = '\r';
        break;
    case 't':
        cp = '\t';
        break;
    case 'u':
        return unicode_piece(w);
    default:
        break;
    }
    w->at += 2;
    return scan_put_utf8(w->own, cp);
}

bool json_string_walk_next(struct json_string_walk *w, struct slice *piece)
{
    const char *start = w->at;
    const char *at = start;
    unsigned n = 1;
    while (n != 0 && at < w->end) {
        at = scan_ascii(at, w->end);
        n = 0;
        while (at < w->end && (unsigned char)*at >= 0x80) {
            n = scan_utf8(at, w->end);
            at += n;
            if (n == 0) {
                break;
            }
        }
    }
    w->at = at;
    if (at != start) {
        *piece = (struct slice){.ptr = start, .len = (size_t)(at - start)};
        return true;
    }
    if (at == w->end) {
        return false;
    }
    unsigned len;
    if (*at == '\\') {
        len = escape_piece(w);
    } else {
        w->at += scan_ill_utf8(at, w->end);
        len = scan_put_utf8(w->own, 0xFFFD);
    }
    *piece = (struct slice){.ptr = w->own, .len = len};
    return true;
}

size_t json_string_len(struct slice inner)
{
    struct json_string_walk w = json_string_walk(inner);
    struct slice piece;
    size_t len = 0;
    while (json_string_walk_next(&w, &piece)) {
        len += piece.len;
    }
    return len;
}

void json_unescape(struct slice inner, struct buf *out)
{
    struct json_string_walk w = json_string_walk(inner);
    struct slice piece;
    while (json_string_walk_next(&w, &piece)) {
        buf_put_slice(out, piece);
    }
}

/* True when the unescaped text begins with plain; *all says whether it is nothing more. */
static bool begins_with(struct slice inner, struct slice plain, bool *all)
{
    struct json_string_walk w = json_string_walk(inner);
    struct slice piece;
    while (json_string_walk_next(&w, &piece)) {
        size_t n = piece.len < plain.len ? piece.len : plain.len;
        if (n != 0 && memcmp(piece.ptr, plain.ptr, n) != 0) {
            return false;
        }
        plain = slice_from(plain, n);
        if (n < piece.len) {
            *all = false;
            return true;
        }
    }
    *all = true;
    return plain.len == 0;
}

bool json_string_is(struct slice inner, struct slice plain)
{
    bool all = false;
    return begins_with(inner, plain, &all) && all;
}

bool json_string_starts(struct slice inner, struct slice prefix)
{
    bool all = false;
    return begins_with(inner, prefix, &all);
}
