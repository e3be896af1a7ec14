/* uuid: 16 bytes and their lower-case hyphenated text; the UUIDv7 of the history contract. */
#ifndef BASE_UUID_H
#define BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

#define UUID_TEXT_LEN 36

struct uuid {
    uint8_t byte[16];
};

static inline int uuid_cmp(const struct uuid *a, const struct uuid *b)
{
    return memcmp(a->byte, b->byte, 16);
}

static inline bool uuid_is_zero(const struct uuid *u)
{
    static const struct uuid zero;
    return memcmp(u->byte, zero.byte, 16) == 0;
}

/* 36 characters, no NUL. */
void uuid_text(char out[UUID_TEXT_LEN], const struct uuid *u);
/* Exactly the canonical text of a version 7, RFC variant UUID (spec/history.md section 4). */
bool uuid7_parse(struct slice s, struct uuid *u);

#endif
