/* parse_internal: what parse.c and parse_retire.c share. */
#ifndef DOOR_HISTORY_PARSE_INTERNAL_H
#define DOOR_HISTORY_PARSE_INTERNAL_H

#include "base/ensure.h"
#include "door/history/parse.h"
#include "json/canon.h"
#include "json/read.h"

struct parse {
    struct canon *canon;
    struct buf canonical;
    struct buf scratch;
    struct journal_event *events;
    uint32_t events_cap;
};

/* The text between the quotes of a canonical string. */
static inline struct slice parse_inner(struct slice string)
{
    ensure(string.len >= 2);
    return slice_of(string.ptr + 1, string.len - 2);
}

/* A closed object: every member must be one of names. ERR_INVALID_REQUEST names the stranger. */
int parse_members(struct slice object, const char *const *names, struct slice *const *out,
                  size_t count, const char *where, struct err *e) MUST_CHECK;
/* ERR_INVALID_REQUEST when v is missing (ptr NULL) or of another type. */
int parse_need(struct slice v, enum json_type type, const char *what, const char *type_name,
               struct err *e) MUST_CHECK;
/* A message that had to be cut to its field may end inside of a character of the client's. */
void parse_end_at_character(struct err *e);

#endif
