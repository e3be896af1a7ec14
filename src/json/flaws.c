/* The walk over tolerated text that finds what is wrong with its content; see flaws.h.
 *
 * The text is checked first, so this walk needs no grammar: outside of strings it stops at
 * brackets, quotes and numbers and steps over the rest. A string is a name exactly when a colon
 * follows it. A flaw is what json/canon.h refuses, so that text without flaws has a canonical form,
 * and \u0000, which canon takes and databases do not.
 *
 * Memory: eight bytes for each member of the objects that are open at a time, and for each replaced
 * member; the first FLAWS_ROOM are on the stack. Power failure: nothing here is stored.
 * Answers: faults of the text, ERR_NO_MEMORY. ensure guards the promise of the check before. */
#include "json/flaws.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon.h"
#include "json/number.h"
#include "json/scan.h"

/* Names and members are told by offsets of 32 bits. */
#define TEXT_MAX UINT32_MAX
/* Integers of so few digits are exact in a double, and fractions so short are finite. */
#define DIGITS_EXACT  15
#define DIGITS_FINITE 300

unsigned flaws_unicode(const char *at, const char *end, const char **behind)
{
    uint32_t cp = 0;
    bool hex = scan_hex4(at + 2, end, &cp);
    ensure(hex);
    *behind = at + 6;
    if (cp == 0) {
        return JSON_FLAW_NUL;
    }
    if (cp < 0xD800 || cp > 0xDFFF) {
        return 0;
    }
    uint32_t low = 0;
    bool pair = cp <= 0xDBFF && end - at >= 12 && at[6] == '\\' && at[7] == 'u' &&
                scan_hex4(at + 8, end, &low) && low >= 0xDC00 && low <= 0xDFFF;
    *behind += pair ? 6 : 0;
    return pair ? 0 : JSON_FLAW_SURROGATE;
}

/* From behind an opening quote to behind the closing one. *plain: the text between them is its own
 * mended and unescaped form. */
static const char *string_flaws(struct flaws *f, const char *at, const char *end, bool *plain)
{
    *plain = true;
    for (;;) {
        at = scan_plain(at, end);
        ensure(at < end);
        unsigned char c = (unsigned char)*at;
        if (c == '"') {
            return at + 1;
        }
        if (c == '\\') {
            *plain = false;
            if (at[1] == 'u') {
                f->found |= flaws_unicode(at, end, &at);
            } else {
                at += 2;
            }
        } else if (c < 0x20) {
            f->found |= JSON_FLAW_CONTROL;
            at++;
        } else {
            unsigned n = scan_utf8(at, end);
            if (n == 0) {
                *plain = false;
                f->found |= JSON_FLAW_UTF8;
                n = scan_ill_utf8(at, end);
            }
            at += n;
        }
    }
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && scan_is_digit(*at)) {
        at++;
    }
    return at;
}

/* Digits without leading zeros. */
static bool beyond_64_bits(const char *digits, size_t len, bool negative)
{
    struct slice bound = negative ? SLICE("9223372036854775808") : SLICE("18446744073709551615");
    return len != bound.len ? len > bound.len : memcmp(digits, bound.ptr, len) > 0;
}

unsigned flaws_number(const char *at, const char *end, const char **behind, bool *too_large)
{
    const char *digits = at + (*at == '-');
    const char *p = skip_digits(digits, end);
    bool integer = p == end || (*p != '.' && *p != 'e' && *p != 'E');
    *too_large = false;
    if (integer && p - digits <= DIGITS_EXACT) {
        *behind = p;
        return 0;
    }
    if (!integer && *p == '.') {
        p = skip_digits(p + 1, end);
        if (p - digits <= DIGITS_FINITE && (p == end || (*p != 'e' && *p != 'E'))) {
            *behind = p;
            return 0;
        }
    }
    struct number_literal n = number_scan(at, end);
    ensure(n.valid);
    *behind = n.end;
    double v = number_value(at, &n);
    if (isinf(v)) {
        *too_large = true;
        return JSON_FLAW_NUMBER;
    }
    if (!integer) {
        return 0;
    }
    *too_large = beyond_64_bits(digits, (size_t)(n.end - digits), *at == '-');
    /* As canon: the spelling of the double must be the same digits, or a reader that computes with
     * doubles writes another number than it read. */
    char text[CANON_NUMBER_MAX];
    struct slice spelling = {.ptr = text, .len = canon_number(v, text)};
    struct slice literal = {.ptr = at, .len = (size_t)(n.end - at)};
    return slice_eq(spelling, literal) ? 0 : JSON_FLAW_NUMBER;
}

/* A string, and what it is entered as when it is a name. */
static inline const char *string_or_name(struct flaws *f, const char *at, const char *end)
{
    bool plain;
    const char *behind = string_flaws(f, at + 1, end, &plain);
    const char *next = scan_space(behind, end);
    if (next < end && *next == ':') {
        struct slice name = {.ptr = at + 1, .len = (size_t)(behind - at) - 2};
        uint64_t hash = flaws_name_hash(name, plain);
        flaws_list_add(f, &f->names, hash << 32 | (uint64_t)(at - f->value.ptr));
    }
    return next;
}

static void walk(struct flaws *f)
{
    uint32_t first[JSON_TOLERANT_DEPTH]; /* of the open objects: where their members begin */
    size_t depth = 0;
    const char *at = f->value.ptr;
    const char *end = at + f->value.len;
    bool too_large;
    while (at < end && !f->failed) {
        switch (*at) {
        case '"':
            at = string_or_name(f, at, end);
            continue;
        case '{':
            ensure(depth < JSON_TOLERANT_DEPTH);
            first[depth++] = (uint32_t)f->names.len;
            break;
        case '}':
            ensure(depth > 0);
            flaws_close_object(f, first[--depth]);
            break;
        case '-':
        case '0':
        case '1':
        case '2':
        case '3':
        case '4':
        case '5':
        case '6':
        case '7':
        case '8':
        case '9':
            f->found |= flaws_number(at, end, &at, &too_large);
            f->too_large = f->too_large || too_large;
            continue;
        default:
            break;
        }
        at++;
    }
    ensure(f->failed || depth == 0);
}

static void list_init(struct flaws_list *list)
{
    list->ptr = list->room;
    list->len = 0;
    list->cap = FLAWS_ROOM;
}

static void list_free(struct flaws_list *list)
{
    if (list->ptr != list->room) {
        free(list->ptr);
    }
    list_init(list);
}

void flaws_list_add(struct flaws *f, struct flaws_list *list, uint64_t value)
{
    if (list->len == list->cap) {
        bool own = list->ptr != list->room;
        uint64_t *ptr = realloc(own ? list->ptr : NULL, 2 * list->cap * sizeof *ptr);
        if (ptr == NULL) {
            f->failed = true;
            return;
        }
        if (!own) {
            memcpy(ptr, list->room, sizeof list->room);
        }
        list->ptr = ptr;
        list->cap *= 2;
    }
    list->ptr[list->len++] = value;
}

int flaws_find(struct flaws *f, struct slice text, struct err *e)
{
    f->found = 0;
    f->too_large = false;
    f->failed = false;
    list_init(&f->names);
    list_init(&f->dropped);
    int r = json_tolerant_check(text, &f->value, e);
    if (r != 0) {
        return r;
    }
    if (f->value.len > TEXT_MAX) {
        return err_set(e, ERR_NO_MEMORY, "the text is larger than 4 GiB");
    }
    walk(f);
    if (f->failed) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the members of the text");
    }
    ensure(f->names.len == 0);
    flaws_sort(&f->dropped);
    return 0;
}

void flaws_free(struct flaws *f)
{
    list_free(&f->names);
    list_free(&f->dropped);
}

int json_flaws(struct slice value, unsigned *flaws, struct err *e)
{
    struct flaws f;
    int r = flaws_find(&f, value, e);
    *flaws = r == 0 ? f.found : 0;
    flaws_free(&f);
    return r;
}
