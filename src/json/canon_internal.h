/* canon_internal: what the parts of canon share.
 *
 * The machine writes straight into the output. Everything it remembers is an offset from `base`,
 * the first byte of this document's output, so that growing the output moves nothing. Room: before
 * anything is written, the output has space for one byte per unread input byte and CANON_SLACK
 * more. Only numbers can be longer in canonical form than in the input, so only they (canon_room)
 * check and grow. */
#ifndef JSON_CANON_INTERNAL_H
#define JSON_CANON_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "json/canon.h"

#define CANON_SLACK 64

/* Where the machine reads and writes; travels in two registers. op is NULL after a failure. */
struct canon_cursor {
    const char *at;
    char *op;
};

/* The name is not plain ASCII without escapes: `key` says nothing and bytes may not be in UTF-16
 * order. */
#define CANON_NAME_ODD UINT32_C(0x80000000)

struct canon_member {
    uint64_t key;       /* plain names: the first eight bytes (when sorting: behind what all have in
                           common), see canon_name_key */
    uint32_t in_offset; /* of the name's opening quote, in the input */
    uint32_t name;      /* of the name's first byte, in the output */
    uint32_t name_len;  /* and CANON_NAME_ODD */
    uint32_t end;       /* behind the value, in the output */
};

struct canon_frame {
    uint32_t first_member; /* in members, when an object */
    uint32_t index;        /* of the current element, when an array */
    uint32_t out;          /* behind the opening bracket, in the output */
    bool object;
    bool sorted; /* names so far are strictly ascending */
};

struct canon {
    const char *in, *end;
    char *base;         /* this document's first output byte */
    char *room_end;     /* end of the output's memory */
    struct buf *out;    /* the caller's */
    struct buf *target; /* out, or spill once out's limit is near */
    size_t out_start;   /* length of out when the document began */
    bool out_failed;    /* out->failed when the document began */
    size_t base_offset; /* of base in target: out_start, or 0 in spill */

    struct canon_member *members;
    size_t member_count, member_cap;
    struct canon_member *order; /* merge sort's other half */
    size_t order_cap;
    struct buf scratch; /* members on their way to other places */
    struct buf spill;

    int code; /* of the failure */
    const char *fault;
    const char *fault_text;
    bool fault_in_container; /* between its members: the path ends at the innermost container */
    bool fault_is_name;      /* `fault_name` ends the path */
    struct canon_member fault_name;

    uint32_t depth;
    uint32_t deepest; /* of the document so far */
    struct canon_frame frames[CANON_DEPTH_MAX];
};

/* Records a failure and returns the failed cursor. */
struct canon_cursor canon_fail(struct canon *c, int code, const char *at, const char *text);
/* Fills *e from the recorded failure and the open frames. */
void canon_explain(const struct canon *c, struct canon_error *e);

/* The rest of a string behind its opening quote or in its midst; ends behind the closing quote. */
struct canon_cursor canon_string_rest(struct canon *c, struct canon_cursor k);
/* A number, at its first byte. */
struct canon_cursor canon_number_text(struct canon *c, struct canon_cursor k);
/* Makes room as the head of this file says, for input from k.at on. */
struct canon_cursor canon_room(struct canon *c, struct canon_cursor k);

/* The first eight bytes as a number that compares as they do. May read seven bytes past a name in
 * the output. */
static inline uint64_t canon_name_key(const char *name, size_t len)
{
    uint64_t key;
    memcpy(&key, name, sizeof key);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    key = __builtin_bswap64(key);
#endif
    if (len >= 8) {
        return key;
    }
    return len == 0 ? 0 : key & ~UINT64_C(0) << (64 - 8 * len);
}

/* Order of two names by the UTF-16 code units of their unescaped forms; 0 when they are equal.
 * canon_name_cmp_text is asked when the keys do not tell. */
int canon_name_cmp_text(const char *base, const struct canon_member *a,
                        const struct canon_member *b);
static inline int canon_name_cmp(const char *base, const struct canon_member *a,
                                 const struct canon_member *b)
{
    if (((a->name_len | b->name_len) & CANON_NAME_ODD) == 0 && a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return canon_name_cmp_text(base, a, b);
}

/* Sorts the innermost object's members, moving their text in the output; `op` is behind the last
 * one. Refuses equal names. Returns 0, ERR_JSON or ERR_NO_MEMORY, recorded. */
int canon_sort_members(struct canon *c, const char *op);

#endif
