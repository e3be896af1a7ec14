/* The library's hasher is kept as opaque bytes, so that its header stays out of ours.
 *
 * Answers, stops, aborts: none; it cannot fail. Power failure: nothing is written here. */
#include "base/blake3.h"

#include <string.h>

/* The library's own header, found by the build: not ours, though of the same name. */
#include <blake3.h>

_Static_assert(sizeof(blake3_hasher) == BLAKE3_STATE_BYTES, "the saved state's size is a format");
_Static_assert(_Alignof(blake3_hasher) <= 64, "struct blake3 is aligned well enough");

static blake3_hasher *hasher(struct blake3 *h)
{
    return (blake3_hasher *)(void *)h->state;
}

void blake3_start(struct blake3 *h)
{
    blake3_hasher_init(hasher(h));
}

void blake3_add(struct blake3 *h, const void *p, size_t n)
{
    blake3_hasher_update(hasher(h), p, n);
}

void blake3_end(const struct blake3 *h, uint8_t out[BLAKE3_LEN])
{
    struct blake3 copy = *h;

    blake3_hasher_finalize(hasher(&copy), out, BLAKE3_LEN);
}

const char *blake3_library(void)
{
    return blake3_version();
}
