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

/* The length of the part of s that needs no mending. */
static size_t sound(struct slice s)
{
    size_t bad = s.len;
    if (s.len == 0) {
        return 0;
    }
    (void)utf8_valid(s, &bad);
    const char *nul = memchr(s.ptr, '\0', bad);
    return nul == NULL ? bad : (size_t)(nul - s.ptr);
}

/* false: no memory. */
static bool mend(struct arena *a, struct slice s, struct slice *out)
{
    size_t good = sound(s);
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
    while (s.len > 0) {
        memcpy(to + n, s.ptr, good);
        n += good;
        if (good < s.len) {
            memcpy(to + n, REPLACEMENT, 3);
            n += 3;
            good++;
        }
        s = slice_from(s, good);
        good = sound(s);
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
