/* template: placeholders, replaced in one pass.
 *
 * Format: {{NAME}}, NAME as in TEMPLATE_NAMES, capitals, no blanks. Whatever else is between braces
 * is text. Invariant: a value is copied, never read for placeholders: a file called
 * "{{PACKAGE_ID}}" stays what it is.
 *
 * Power failure: nothing is stored here. Answers: no memory, by the buffer. */
#include "store/artifact/template.h"

#include "base/ensure.h"
#include "base/timefmt.h"

static const char *const names[TEMPLATE_COUNT] = {
#define X(sym, text) "{{" text "}}",
    TEMPLATE_NAMES(X)
#undef X
};

/* The placeholder that begins at the first byte, or TEMPLATE_COUNT; *len: its bytes. No name is the
 * beginning of another, because each ends in braces. */
static enum template_name placeholder(struct slice at, size_t *len)
{
    for (unsigned i = 0; i < TEMPLATE_COUNT; i++) {
        size_t n = strlen(names[i]);
        if (at.len >= n && memcmp(at.ptr, names[i], n) == 0) {
            *len = n;
            return (enum template_name)i;
        }
    }
    *len = 0;
    return TEMPLATE_COUNT;
}

void template_expand(struct slice text, const struct template_values *v, struct buf *out)
{
    size_t at = 0;

    while (at < text.len) {
        size_t n;
        enum template_name name = placeholder(slice_from(text, at), &n);
        if (name == TEMPLATE_COUNT) {
            buf_put_char(out, text.ptr[at]);
            at++;
        } else {
            buf_put_slice(out, v->value[name]);
            at += n;
        }
    }
}

unsigned template_uses(struct slice text)
{
    unsigned uses = 0;
    size_t at = 0;

    while (at < text.len) {
        size_t n;
        enum template_name name = placeholder(slice_from(text, at), &n);
        uses |= name == TEMPLATE_COUNT ? 0 : 1u << name;
        at += n > 0 ? n : 1;
    }
    return uses;
}

static bool braces(struct slice text, size_t at, char brace)
{
    return at + 1 < text.len && text.ptr[at] == brace && text.ptr[at + 1] == brace;
}

bool template_known(struct slice text, struct slice *bad)
{
    size_t at = 0;

    while (at < text.len) {
        size_t n, end = at;
        if (placeholder(slice_from(text, at), &n) == TEMPLATE_COUNT && braces(text, at, '{')) {
            while (end < text.len && !braces(text, end, '}')) {
                end++;
            }
            end = end < text.len ? end + 2 : end;
            *bad = slice_of(text.ptr + at, end - at);
            return false;
        }
        at += n > 0 ? n : 1;
    }
    return true;
}

bool template_date(int64_t seconds, char out[TEMPLATE_DATE_LEN + 1])
{
    char text[TIMEFMT_MS_LEN + 1];
    size_t n = 0;

    if (seconds < 0 || (uint64_t)seconds >= TIMEFMT_MS_END / 1000) {
        return false;
    }
    timefmt_ms(text, (uint64_t)seconds * 1000);
    for (size_t i = 0; n < TEMPLATE_DATE_LEN; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            out[n++] = text[i];
        }
    }
    out[n] = '\0';
    ensure(strlen(out) == TEMPLATE_DATE_LEN);
    return true;
}
