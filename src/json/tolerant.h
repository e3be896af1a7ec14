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
/* Text without flaws, JSON_FLAW_NUL aside, is exactly what json/canon.h accepts: an integer counts
 * as held when the double's own spelling has the same digits. */

/* *value is the trimmed value in text. ERR_INVALID_JSON with the byte offset and what was expected
 * there; ERR_JSON_DEPTH. */
int json_tolerant_check(struct slice text, struct slice *value, struct err *e) MUST_CHECK;

/* Which flaws a value has; it is checked once more, so that text from a damaged disk is an answer
 * (as json_tolerant_check) and no crash. Duplicate names are looked for in every object, by their
 * mended texts (hash based; memory of its own up to 16 bytes a member and as much a repeated one;
 * ERR_NO_MEMORY, also above 4 GiB of text). *flaws is 0 then. */
int json_flaws(struct slice value, unsigned *flaws, struct err *e) MUST_CHECK;

/* Appends the value as JSON that every strict reader takes with the same meaning as far as there is
 * one: lone surrogates and invalid UTF-8 become U+FFFD, raw controls their escapes, of repeated
 * names the last stays (at the place of the last); NUL escapes stay, and numbers unless they are no
 * finite double, or integers below -2^63 or above 2^64 - 1: ClickHouse's reader takes the whole
 * text for invalid then. Those become strings of the same digits. Other text comes out byte for
 * byte; white space stays. An ill-formed sequence of bytes is one U+FFFD (Unicode's maximal
 * subparts). Errors as json_flaws, and ERR_NO_MEMORY when out is full; out->len is then as it
 * was. */
int json_mend(struct slice value, struct buf *out, struct err *e) MUST_CHECK;

#endif
