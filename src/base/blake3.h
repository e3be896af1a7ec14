/* blake3: BLAKE3 of bytes that come in pieces (the official C and assembly, built from Debian's
 * package; 32-byte output, no key).
 *
 * The state is plain memory without pointers: it may be copied, kept in a file and gone on with by
 * the same build (store/artifact/upload.h keeps it beside synced offsets, with a checksum and the
 * library's version). Blocks: no. Threads: one owner at a time. */
#ifndef BASE_BLAKE3_H
#define BASE_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE3_LEN         32
#define BLAKE3_HEX_LEN     64
#define BLAKE3_STATE_BYTES 1912

struct blake3 {
    _Alignas(64) unsigned char state[BLAKE3_STATE_BYTES];
};

void blake3_start(struct blake3 *h);
void blake3_add(struct blake3 *h, const void *p, size_t n);
/* Does not change h: more may be added. */
void blake3_end(const struct blake3 *h, uint8_t out[BLAKE3_LEN]);
/* The library's version, "1.3.1"; a saved state is good for the same one only. */
const char *blake3_library(void);

#endif
