/* text: JSON values as the text of columns.
 *
 * The event's own text is kept byte for byte elsewhere; columns are for queries, so they hold valid
 * UTF-8 without NUL, whatever the SDK sent (ARCHITECTURE section 4). What is already so is not
 * copied. All of this answers clients; nothing stops or aborts. */
#include "base/ensure.h"
#include "door/capture/internal.h"
#include "json/read.h"
#include "json/write.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Behind the first chars_max characters of valid UTF-8. */
static struct slice cut(struct slice s, size_t chars_max)
{
    size_t chars = 0;
    if (chars_max == 0 || s.len <= chars_max) {
        return s;
    }
    for (size_t i = 0; i < s.len; i++) {
        bool begins = ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
        if (begins && chars == chars_max) {
            s.len = i;
            break;
        }
        chars += begins ? 1 : 0;
    }
    return s;
}

/* What is sound of a text is found piece by piece. A look for NUL goes past bytes that are no
 * UTF-8, and the other way round, so the next NUL is remembered: a text that has many of either,
 * from somebody without a key, is looked at once and not once for each. */
struct seam {
    struct slice rest;
    const char *nul; /* the first one of rest, or its end */
};

static const char *find_nul(struct slice s)
{
    const char *at = s.len == 0 ? NULL : memchr(s.ptr, '\0', s.len);
    return at != NULL ? at : s.ptr + s.len;
}

/* The length of the part of rest that needs no mending. */
static size_t sound(const struct seam *m)
{
    size_t bad = (size_t)(m->nul - m->rest.ptr);
    (void)utf8_valid(slice_of(m->rest.ptr, bad), &bad);
    return bad;
}

/* Behind n bytes of rest. */
static void go_on(struct seam *m, size_t n)
{
    m->rest = slice_from(m->rest, n);
    if (m->nul < m->rest.ptr) {
        m->nul = find_nul(m->rest);
    }
}

/* false: no memory. */
static bool mend(struct arena *a, struct slice s, struct slice *out)
{
    if (s.len == 0) {
        *out = s;
        return true;
    }
    struct seam m = {s, find_nul(s)};
    size_t good = sound(&m);
    if (good == s.len) {
        *out = s;
        return true;
    }
    /* Each byte becomes three at most. */
    char *to = s.len > SIZE_MAX / 8 ? NULL : arena_alloc(a, s.len * 3);
    size_t n = 0;
    if (to == NULL) {
        return false;
    }
    while (m.rest.len > 0) {
        memcpy(to + n, m.rest.ptr, good);
        n += good;
        if (good < m.rest.len) {
            memcpy(to + n, REPLACEMENT, 3);
            n += 3;
            good++;
        }
        go_on(&m, good);
        good = sound(&m);
    }
    *out = slice_of(to, n);
    return true;
}

/* What json_unescape makes of the inside of a string; the inside itself when that is the same. */
static bool unescape(struct arena *a, struct slice inner, struct slice *out)
{
    *out = inner;
    if (inner.len == 0 || (memchr(inner.ptr, '\\', inner.len) == NULL && utf8_valid(inner, NULL))) {
        return true;
    }
    size_t len = json_string_len(inner);
    char *p = arena_alloc(a, len);
    if (p == NULL) {
        return false;
    }
    struct buf b = {.ptr = p, .cap = len, .limit = len};
    json_unescape(inner, &b);
    ensure(!b.failed);
    ensure(b.len == len);
    *out = slice_of(p, len);
    return true;
}

struct slice capture_trim(struct slice s)
{
    while (s.len > 0 && (unsigned char)*s.ptr <= ' ') {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && (unsigned char)s.ptr[s.len - 1] <= ' ') {
        s.len--;
    }
    return s;
}

bool capture_plain(struct capture_batch *b, struct slice text, size_t chars_max, struct slice *out)
{
    if (!mend(&b->arena, text, out)) {
        return false;
    }
    *out = cut(*out, chars_max);
    return true;
}

bool capture_text(struct capture_batch *b, struct slice value, size_t chars_max, struct slice *out)
{
    struct slice s = value;
    *out = (struct slice){0};
    if (value.len == 0 || json_type_of(value) == JSON_NULL) {
        return true;
    }
    if (json_string_raw(value, &s) && !unescape(&b->arena, s, &s)) {
        return false;
    }
    return capture_plain(b, s, chars_max, out);
}
