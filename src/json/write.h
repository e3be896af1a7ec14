/* write: the few pieces of JSON output that are not stored lines. Strings are escaped as RFC 8785
 * section 3.2.2.2 says (short escapes, other controls as lower-case \u00xx, everything else raw).
 */
#ifndef JSON_WRITE_H
#define JSON_WRITE_H

#include "base/buf.h"
#include "base/slice.h"

/* Appends s as a JSON string with quotes. s must be valid UTF-8; invalid bytes become U+FFFD. */
void json_put_string(struct buf *b, struct slice s);
/* Appends `"name":`, with a comma before it unless the last byte of b is '{' (or '['). */
void json_put_name(struct buf *b, const char *name);
/* True when s is valid UTF-8 (no overlong forms, no surrogates, at most U+10FFFF); *bad (may be
 * NULL) is the offset of the first invalid byte. */
bool utf8_valid(struct slice s, size_t *bad);

#endif
