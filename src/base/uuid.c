/* Text form of UUIDs. Byte order is text order, so ids compare as memory. */
#include "base/uuid.h"

#include "base/hash.h"

void uuid_text(char out[UUID_TEXT_LEN], const struct uuid *u)
{
    char digits[2 * sizeof u->byte];
    hex_encode(digits, u->byte, sizeof u->byte);
    memcpy(out, digits, 8);
    out[8] = '-';
    memcpy(out + 9, digits + 8, 4);
    out[13] = '-';
    memcpy(out + 14, digits + 12, 4);
    out[18] = '-';
    memcpy(out + 19, digits + 16, 4);
    out[23] = '-';
    memcpy(out + 24, digits + 20, 12);
}

bool uuid7_parse(struct slice s, struct uuid *u)
{
    if (s.len != UUID_TEXT_LEN || s.ptr[8] != '-' || s.ptr[13] != '-' || s.ptr[18] != '-' ||
        s.ptr[23] != '-') {
        return false;
    }
    char digits[2 * sizeof u->byte];
    memcpy(digits, s.ptr, 8);
    memcpy(digits + 8, s.ptr + 9, 4);
    memcpy(digits + 12, s.ptr + 14, 4);
    memcpy(digits + 16, s.ptr + 19, 4);
    memcpy(digits + 20, s.ptr + 24, 12);
    if (!hex_decode(u->byte, slice_of(digits, sizeof digits), sizeof u->byte)) {
        return false;
    }
    return (u->byte[6] >> 4) == 7 && (u->byte[8] >> 6) == 2;
}
