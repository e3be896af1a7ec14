/* string_walk: the text of a JSON string, unescaped piece by piece; internal to json/. */
#ifndef JSON_STRING_WALK_H
#define JSON_STRING_WALK_H

#include <stdbool.h>

#include "base/slice.h"

struct json_string_walk {
    const char *at, *end;
    char own[4]; /* UTF-8 of what does not stand in the text itself */
};

static inline struct json_string_walk json_string_walk(struct slice inner)
{
    return (struct json_string_walk){.at = inner.ptr, .end = inner.ptr + inner.len};
}

/* The next piece of the unescaped text, not empty; false at the end. The pieces joined are valid
 * UTF-8: lone surrogates, ill-formed bytes and unknown escapes give U+FFFD. A piece is valid until
 * the next call. */
bool json_string_walk_next(struct json_string_walk *w, struct slice *piece);

#endif
