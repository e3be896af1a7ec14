/* canon: strict JSON in, RFC 8785 canonical form out, in one pass.
 *
 * Accepts exactly one JSON value under the I-JSON screen of spec/history.md section 2 (valid UTF-8,
 * no duplicate member names after unescaping, no lone surrogates, finite binary64 numbers, no
 * precision-losing integer literals) and writes its RFC 8785 form. Iterative: a deep document costs
 * heap, never stack. */
#ifndef JSON_CANON_H
#define JSON_CANON_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

/* Containers on a path of the whole document; past it ERR_JSON_DEPTH. */
#define CANON_DEPTH_MAX 1024
#define CANON_PATH_MAX  200

struct canon; /* scratch memory, reused between documents; one thread at a time */

struct canon_error {
    uint64_t offset; /* byte of the input where the fault was seen; its length at an early end */
    /* Where, as `events[17].payload.name` or `a["b c"]` (names in canonical spelling); "" for the
     * root; cut with "...". For a fault between members, the container; for a name that occurs
     * twice, its member. */
    char path[CANON_PATH_MAX];
    char text[160]; /* the rule that was broken, in words; never the client's bytes */
};

struct canon *canon_new(void); /* NULL without memory */
void canon_free(struct canon *c);

/* Appends the canonical form of `in` to `out`. Returns 0, ERR_JSON (screen), ERR_JSON_DEPTH (deeper
 * than CANON_DEPTH_MAX) or ERR_NO_MEMORY (also when out's limit is reached). On failure out is as
 * it was (its length), and *e (may be NULL) says where. The output can be up to about 5.3 times the
 * input ("1e20,"). */
int canon_json(struct canon *c, struct slice in, struct buf *out, struct canon_error *e) MUST_CHECK;
/* How many containers were open at once, at most, in the last document. */
uint32_t canon_deepest(const struct canon *c);

/* ECMAScript Number::toString of a finite double, as RFC 8785 section 3.2.2.3 asks. Returns the
 * length (at most 25); out is not NUL-terminated. */
#define CANON_NUMBER_MAX 32
size_t canon_number(double v, char out[CANON_NUMBER_MAX]);
/* The double nearest to a JSON number literal (already known to fit the grammar), ties to even, as
 * strtod. The result may be infinite. Independent of locale. */
double canon_parse_number(struct slice literal);

#endif
