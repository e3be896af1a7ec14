/* checksum: Upload-Checksum read, and the body hashed as it comes.
 *
 *   value = algorithm SP base64        algorithm: lower case, as Tus-Checksum-Algorithm lists it
 *
 * SHA-1 and MD5 are there because clients have them: they find what a line does to bytes, and prove
 * nothing against an adversary. Everything here is an answer to a client. */
#include "door/artifact/checksum.h"

#include <string.h>

#include "base/ensure.h"
#include "door/artifact/head.h"

static const struct {
    const char *name;
    size_t len;
} algorithms[] = {[CHECKSUM_NONE] = {"", 0},
#define X(sym, wire, bytes, prefix) [CHECKSUM_##sym] = {wire, bytes},
                  CHECKSUM_ALGORITHMS(X)
#undef X
};

#define ALGORITHM_COUNT (sizeof algorithms / sizeof algorithms[0])

static_assert(ALGORITHM_COUNT == 5, "checksum_names lists them all");

const char *checksum_names(void)
{
    return "sha1,md5,sha256,blake3";
}

const char *checksum_name(enum checksum_algorithm algorithm)
{
    ensure((size_t)algorithm < ALGORITHM_COUNT);
    return algorithms[algorithm].name;
}

static enum checksum_algorithm find(struct slice name)
{
    for (size_t i = 1; i < ALGORITHM_COUNT; i++) {
        if (slice_eq(name, slice_cstr(algorithms[i].name))) {
            return (enum checksum_algorithm)i;
        }
    }
    return CHECKSUM_NONE;
}

int checksum_parse(struct slice value, struct checksum *out, struct err *e)
{
    const char *space = value.len == 0 ? NULL : memchr(value.ptr, ' ', value.len);
    size_t n = space == NULL ? value.len : (size_t)(space - value.ptr);
    char digest[CHECKSUM_LEN_MAX];
    size_t len = 0;
    *out = (struct checksum){.algorithm = find(slice_of(value.ptr, n))};
    if (out->algorithm == CHECKSUM_NONE) {
        return err_set(e, ERR_INVALID_UPLOAD_CHECKSUM,
                       "Upload-Checksum: the algorithm must be one of %s", checksum_names());
    }
    struct slice text = slice_from(value, space == NULL ? n : n + 1);
    if (!metadata_base64(text, digest, sizeof digest, &len) ||
        len != algorithms[out->algorithm].len) {
        return err_set(e, ERR_INVALID_UPLOAD_CHECKSUM,
                       "Upload-Checksum: behind %s and a space must be its %zu bytes in base64",
                       checksum_name(out->algorithm), algorithms[out->algorithm].len);
    }
    memcpy(out->digest, digest, len);
    return 0;
}

void checksum_start(struct checksum_run *run, const struct checksum *declared)
{
    run->declared = *declared;
    switch (declared->algorithm) {
#define X(sym, wire, bytes, prefix)         \
    case CHECKSUM_##sym:                    \
        prefix##_start(&run->state.prefix); \
        break;
        CHECKSUM_ALGORITHMS(X)
#undef X
    case CHECKSUM_NONE:
        break;
    }
}

void checksum_add(struct checksum_run *run, const void *p, size_t n)
{
    switch (run->declared.algorithm) {
#define X(sym, wire, bytes, prefix)             \
    case CHECKSUM_##sym:                        \
        prefix##_add(&run->state.prefix, p, n); \
        break;
        CHECKSUM_ALGORITHMS(X)
#undef X
    case CHECKSUM_NONE:
        break;
    }
}

bool checksum_fits(struct checksum_run *run)
{
    uint8_t digest[CHECKSUM_LEN_MAX];
    switch (run->declared.algorithm) {
#define X(sym, wire, bytes, prefix)               \
    case CHECKSUM_##sym:                          \
        prefix##_end(&run->state.prefix, digest); \
        break;
        CHECKSUM_ALGORITHMS(X)
#undef X
    case CHECKSUM_NONE:
        return true;
    }
    return memcmp(digest, run->declared.digest, algorithms[run->declared.algorithm].len) == 0;
}
