/* flaws: what tolerated JSON text holds that strict readers refuse or change; internal to json/,
 * for json_flaws and json_mend. */
#ifndef JSON_FLAWS_H
#define JSON_FLAWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "json/tolerant.h"

#define FLAWS_ROOM 192 /* entries of a list before it needs the heap */

/* Numbers in order of arrival. */
struct flaws_list {
    uint64_t *ptr;
    size_t len, cap;
    uint64_t room[FLAWS_ROOM];
};

struct flaws {
    struct slice value; /* checked and trimmed */
    unsigned found;     /* JSON_FLAW_ bits */
    bool too_large;     /* a number that needs quotes, see flaws_number */
    bool failed;        /* out of memory */
    /* Members of the open objects, the inner ones last: hash of the name, offset of its quote. */
    struct flaws_list names;
    /* Offsets (of the quotes of their names) of members that a later one of the same name
     * replaces; ascending after flaws_find. */
    struct flaws_list dropped;
};

/* Checks text and looks at everything in it. ERR_INVALID_JSON, ERR_JSON_DEPTH, ERR_NO_MEMORY.
 * flaws_free in any case. */
int flaws_find(struct flaws *f, struct slice text, struct err *e) MUST_CHECK;
void flaws_free(struct flaws *f);

/* flaws_names.c: the members from `first` on are one object's; notes those that are replaced and
 * takes all of them off the list. */
void flaws_close_object(struct flaws *f, size_t first);
/* The hash of a name after mending. */
uint32_t flaws_name_hash(struct slice name, bool plain);
void flaws_list_add(struct flaws *f, struct flaws_list *list, uint64_t value);
/* Sorts numbers, in place, without memory. */
void flaws_sort(struct flaws_list *list);

/* The literal at `at`: its JSON_FLAW_ bits, where it ends, and whether it is too large: beyond
 * double, or an integer below -2^63 or above 2^64 - 1. */
unsigned flaws_number(const char *at, const char *end, const char **behind, bool *too_large);
/* The \u escape at `at`: its JSON_FLAW_ bits, and where it (or the pair) ends. */
unsigned flaws_unicode(const char *at, const char *end, const char **behind);

#endif
