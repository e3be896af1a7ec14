/* read: walking over JSON text that is already known to be valid (canonical form, our own files,
 * checked input).
 *
 * Works on any valid JSON text, with or without white space. On invalid text it stays inside the
 * slice and answers JSON_BAD, false or a bad iterator somewhere, but it is no validator: that is
 * canon's work. Allocates nothing, but where that is said. */
#ifndef JSON_READ_H
#define JSON_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

enum json_type {
    JSON_BAD,
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

/* Iterates members of an object or elements of an array. */
struct json_iter {
    const char *at, *end;
    bool object, first, ended, bad;
    bool inside; /* made by json_enter: its end is not known yet */
};

/* Type of the value that begins in v (leading white space skipped). */
enum json_type json_type_of(struct slice v);

/* Starts on a container value (surrounding white space allowed); bad when v is none. */
struct json_iter json_iter_object(struct slice v);
struct json_iter json_iter_array(struct slice v);
/* Next member: name is the raw text between the quotes (still escaped), value the trimmed raw
 * value. False at the end or on bad text (then it->bad). */
bool json_next_member(struct json_iter *it, struct slice *name, struct slice *value);
bool json_next_element(struct json_iter *it, struct slice *value);

/* Begins on the next element when that is an object, without looking for its end: what is walked
 * anyway is not scanned twice. false when there is no element or another one. `it` stays where it
 * is: json_next_element would still give the element. */
bool json_enter_object(const struct json_iter *it, struct json_iter *object);
/* Goes on behind an object that was entered and walked to its end (object->ended). */
void json_leave(struct json_iter *it, const struct json_iter *object);

/* Looks a member up by its unescaped ASCII name; false when absent. First match wins. */
bool json_member(struct slice object, struct slice name, struct slice *value);

/* The text between the quotes of a string value, still escaped; false when v is no string. */
bool json_string_raw(struct slice v, struct slice *inner);
/* Length in UTF-8 bytes after unescaping. */
size_t json_string_len(struct slice inner);
/* Appends the unescaped text. It is valid UTF-8: lone surrogates and ill-formed bytes become U+FFFD
 * (neither occurs in canonical text). \u0000 gives a NUL byte. The length above and the comparisons
 * below see the same text. */
void json_unescape(struct slice inner, struct buf *out);
/* A string member as C string, unescaped: false when it is absent, no string, holds a NUL, or does
 * not fit into size bytes with its end; out may hold a part of it then. Allocates nothing. */
bool json_member_text(struct slice object, struct slice name, char *out, size_t size);
/* Compares the unescaped text with plain bytes, without allocating. */
bool json_string_is(struct slice inner, struct slice plain);
/* Compares an unescaped text with a plain prefix. */
bool json_string_starts(struct slice inner, struct slice prefix);

/* A number value that is a non-negative integer without fraction or exponent, at most UINT64_MAX.
 */
bool json_u64(struct slice v, uint64_t *out);

/* Depth of the value: scalar 0, container 1 + deepest member. Linear, bounded memory. */
size_t json_depth(struct slice v);

#endif
