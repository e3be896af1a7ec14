/* tolerant: reading JSON that SDKs write, without losing or refusing any of it.
 *
 * Structure is strict (brackets, commas, quotes, nothing behind the value), content is not: lone
 * surrogate escapes, \u0000, raw control characters in strings, invalid UTF-8, numbers of any size
 * and repeated member names all pass, and the text stays as it came. A byte order mark before the
 * value is skipped. Depth is bounded (JSON_TOLERANT_DEPTH). Allocates nothing.
 *
 * After json_tolerant_check said 0, the walkers of json/read.h (json_iter_*, json_member,
 * json_string_raw, json_unescape) can be used on the value. */
#ifndef JSON_TOLERANT_H
#define JSON_TOLERANT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#define JSON_TOLERANT_DEPTH 512

/* What a value holds that a strict reader would refuse, or change. */
enum json_flaw {
    JSON_FLAW_SURROGATE = 1,  /* a lone surrogate escape */
    JSON_FLAW_NUL = 2,        /* \u0000 */
    JSON_FLAW_CONTROL = 4,    /* a raw control character in a string */
    JSON_FLAW_UTF8 = 8,       /* bytes that are no UTF-8 */
    JSON_FLAW_DUPLICATE = 16, /* a repeated member name in one object */
    JSON_FLAW_NUMBER = 32     /* beyond double, or an integer that a double cannot hold */
};

/* *value is the trimmed value in text. ERR_INVALID_JSON with the byte offset and what was expected
 * there; ERR_JSON_DEPTH. */
int json_tolerant_check(struct slice text, struct slice *value, struct err *e) MUST_CHECK;

/* Which flaws a checked value has. Duplicate names are looked for in every object (hash based, bounded
 * memory of its own; ERR_NO_MEMORY). */
int json_flaws(struct slice value, unsigned *flaws, struct err *e) MUST_CHECK;

/* Appends the value as JSON that every strict reader takes with the same meaning as far as there is
 * one: lone surrogates and invalid UTF-8 become U+FFFD, raw controls their escapes, of repeated
 * names the last stays (at the place of the last); NUL escapes and numbers stay as they are unless
 * they are no finite double in which case they become strings of the same digits. Text without
 * flaws comes out byte for byte. */
int json_mend(struct slice value, struct buf *out, struct err *e) MUST_CHECK;

#endif
