/* checksum: the digest that one request declares of its own body, Upload-Checksum (tus, extension
 * `checksum`; internal to door/artifact). Not to be mixed up with the metadata key `checksum`,
 * which is of the whole file and decides the acceptance.
 *
 * Threads: a value belongs to one at a time. No memory, no failure but a malformed header. */
#ifndef DOOR_ARTIFACT_CHECKSUM_H
#define DOOR_ARTIFACT_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/blake3.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"

/* X(symbol, name on the wire, bytes of the digest, functions), as Tus-Checksum-Algorithm lists
 * them. */
#define CHECKSUM_ALGORITHMS(X)              \
    X(SHA1, "sha1", SHA1_LEN, sha1)         \
    X(MD5, "md5", MD5_LEN, md5)             \
    X(SHA256, "sha256", SHA256_LEN, sha256) \
    X(BLAKE3, "blake3", BLAKE3_LEN, blake3)

enum checksum_algorithm {
    CHECKSUM_NONE,
#define X(sym, name, len, prefix) CHECKSUM_##sym,
    CHECKSUM_ALGORITHMS(X)
#undef X
};

#define CHECKSUM_LEN_MAX 32

/* What a request says of its body. */
struct checksum {
    enum checksum_algorithm algorithm;
    uint8_t digest[CHECKSUM_LEN_MAX];
};

struct checksum_run {
    struct checksum declared;
    union {
        struct sha1 sha1;
        struct md5 md5;
        struct sha256 sha256;
        struct blake3 blake3;
    } state;
};

/* All names, with commas. */
const char *checksum_names(void);
/* "sha1 " and the digest in base64 with its padding. ERR_INVALID_UPLOAD_CHECKSUM: an algorithm that
 * is none of ours, or no digest of it. */
int checksum_parse(struct slice value, struct checksum *out, struct err *e) MUST_CHECK;
const char *checksum_name(enum checksum_algorithm algorithm);

void checksum_start(struct checksum_run *run, const struct checksum *declared);
void checksum_add(struct checksum_run *run, const void *p, size_t n);
/* Ends it: whether what came is what was declared. */
bool checksum_fits(struct checksum_run *run);

#endif
