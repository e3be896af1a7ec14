/* tolerant: the structure of JSON text checked, its content left alone; see tolerant.h.
 *
 * The grammar is RFC 8259 with two allowances inside strings: any byte but an unescaped quote may
 * stand there, and four hexadecimal digits may name half of a surrogate pair. One pass, one byte
 * of memory for each open container (its closing bracket), no recursion.
 *
 * Strings end at the first quote byte outside an escape, whatever encoding their bytes pretend to
 * be. The walkers of read.h see them the same way, so what passed here walks there.
 * Power failure: nothing here is stored.
 * Answers: every fault of the text, with its place. Nothing stops the server or aborts. */
#include "json/tolerant.h"

#include "json/scan.h"

struct check {
    const char *end;
    const char *bad;   /* where the fault is; with `expected` */
    const char *words; /* what was expected there */
    int code;          /* 0 until there is a fault */
    size_t depth;
    char closing[JSON_TOLERANT_DEPTH];
};

static const char *fault(struct check *c, const char *at, const char *words)
{
    c->code = ERR_INVALID_JSON;
    c->bad = at;
    c->words = words;
    return NULL;
}

/* scan_space for text that mostly has none. */
static inline const char *skip_space(const char *at, const char *end)
{
    return at < end && (unsigned char)*at > ' ' ? at : scan_space(at, end);
}

/* Behind the escape at `at`. */
static const char *check_escape(struct check *c, const char *at)
{
    uint32_t unused;
    if (c->end - at < 2) {
        return fault(c, c->end, "a closing quote");
    }
    switch (at[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return at + 2;
    case 'u':
        if (!scan_hex4(at + 2, c->end, &unused)) {
            return fault(c, at, "\\u with four hexadecimal digits");
        }
        return at + 6;
    default:
        return fault(c, at, "one of the escapes of JSON");
    }
}

/* From behind an opening quote to behind the closing one. */
static const char *check_string_rest(struct check *c, const char *at)
{
    for (;;) {
        at = scan_quote(at, c->end);
        if (at == c->end) {
            return fault(c, at, "a closing quote");
        }
        if (*at == '"') {
            return at + 1;
        }
        at = check_escape(c, at);
        if (at == NULL) {
            return NULL;
        }
    }
}

/* The same; a string of up to 15 bytes without escapes costs one look. */
static inline const char *check_string(struct check *c, const char *at)
{
#ifdef SCAN_BLOCK
    if (c->end - at >= SCAN_BLOCK) {
        unsigned mask = scan_quote_mask(scan_load(at));
        if (mask == 0) {
            return check_string_rest(c, at + SCAN_BLOCK);
        }
        at += __builtin_ctz(mask);
        if (*at == '"') {
            return at + 1;
        }
    }
#endif
    return check_string_rest(c, at);
}

/* Behind one digit or more; NULL without any. */
static inline const char *check_digits(struct check *c, const char *at)
{
    if (at == c->end || !scan_is_digit(*at)) {
        return fault(c, at, "a digit");
    }
    do {
        at++;
    } while (at < c->end && scan_is_digit(*at));
    return at;
}

static const char *check_number(struct check *c, const char *at)
{
    at += *at == '-';
    bool zero = at < c->end && *at == '0';
    at = zero ? at + 1 : check_digits(c, at);
    if (at != NULL && at < c->end && *at == '.') {
        at = check_digits(c, at + 1);
    }
    if (at != NULL && at < c->end && (*at == 'e' || *at == 'E')) {
        at++;
        at += at < c->end && (*at == '+' || *at == '-');
        at = check_digits(c, at);
    }
    return at;
}

static const char *check_word(struct check *c, const char *at, struct slice word)
{
    struct slice rest = {.ptr = at, .len = (size_t)(c->end - at)};
    return slice_starts(rest, word) ? at + word.len : fault(c, at, "a value");
}

/* From a member's name to its value. */
static inline const char *check_name(struct check *c, const char *at)
{
    if (at == c->end || *at != '"') {
        return fault(c, at, "a member name in quotes");
    }
    at = check_string(c, at + 1);
    if (at == NULL) {
        return NULL;
    }
    at = skip_space(at, c->end);
    if (at == c->end || *at != ':') {
        return fault(c, at, "a colon");
    }
    return skip_space(at + 1, c->end);
}

static const char *check_scalar(struct check *c, const char *at)
{
    switch (*at) {
    case '"':
        return check_string(c, at + 1);
    case 't':
        return check_word(c, at, SLICE("true"));
    case 'f':
        return check_word(c, at, SLICE("false"));
    case 'n':
        return check_word(c, at, SLICE("null"));
    default:
        return *at == '-' || scan_is_digit(*at) ? check_number(c, at) : fault(c, at, "a value");
    }
}

/* From an opening bracket to the container's first value, or behind an empty one; *empty says
 * which. */
static inline const char *check_open(struct check *c, const char *at, bool *empty)
{
    char closing = *at == '{' ? '}' : ']';
    if (c->depth == JSON_TOLERANT_DEPTH) {
        (void)fault(c, at, NULL);
        c->code = ERR_JSON_DEPTH;
        return NULL;
    }
    at = skip_space(at + 1, c->end);
    *empty = at < c->end && *at == closing;
    if (*empty) {
        return at + 1;
    }
    c->closing[c->depth++] = closing;
    return closing == '}' ? check_name(c, at) : at;
}

/* From behind a value to the next one, closing what ends here; behind the document when depth is 0
 * then. */
static inline const char *check_behind(struct check *c, const char *at)
{
    while (c->depth != 0) {
        char closing = c->closing[c->depth - 1];
        at = skip_space(at, c->end);
        char next = at == c->end ? '\0' : *at;
        if (next == ',') {
            at = skip_space(at + 1, c->end);
            return closing == '}' ? check_name(c, at) : at;
        }
        if (next != closing) {
            return fault(c, at,
                         closing == '}' ? "a comma or a closing brace"
                                        : "a comma or a closing bracket");
        }
        at++;
        c->depth--;
    }
    return at;
}

/* From the first byte of the value to behind it. */
static const char *check_document(struct check *c, const char *at)
{
    do {
        if (at == c->end) {
            return fault(c, at, "a value");
        }
        if (*at == '{' || *at == '[') {
            bool empty = false;
            at = check_open(c, at, &empty);
            if (at != NULL && !empty) {
                continue;
            }
        } else {
            at = check_scalar(c, at);
        }
        if (at != NULL) {
            at = check_behind(c, at);
        }
    } while (at != NULL && c->depth != 0);
    return at;
}

int json_tolerant_check(struct slice text, struct slice *value, struct err *e)
{
    static const char nothing[1];
    const char *start = text.len == 0 ? nothing : text.ptr;
    struct check c;
    c.end = start + text.len;
    c.code = 0;
    c.depth = 0;
    const char *first = slice_starts(text, SLICE("\xEF\xBB\xBF")) ? start + 3 : start;
    first = scan_space(first, c.end);
    const char *behind = check_document(&c, first);
    if (behind != NULL) {
        const char *rest = scan_space(behind, c.end);
        if (rest != c.end) {
            (void)fault(&c, rest, "the end of the text");
        }
    }
    if (c.code != 0) {
        uint64_t offset = (uint64_t)(c.bad - start);
        if (c.code == ERR_JSON_DEPTH) {
            return err_set_at(e, c.code, offset,
                              "more than %d containers inside each other at byte %llu",
                              JSON_TOLERANT_DEPTH, (unsigned long long)offset);
        }
        return err_set_at(e, c.code, offset, "%s is expected at byte %llu", c.words,
                          (unsigned long long)offset);
    }
    *value = (struct slice){.ptr = first, .len = (size_t)(behind - first)};
    return 0;
}
