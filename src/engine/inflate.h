/* inflate: gzip bodies, bounded. */
#ifndef ENGINE_INFLATE_H
#define ENGINE_INFLATE_H

#include "base/buf.h"
#include "base/err.h"

/* Appends what in decompresses to (one or more gzip members). ERR_INVALID_ENCODING: not gzip, or
 * cut off; ERR_BODY_TOO_LARGE past bytes_max; ERR_NO_MEMORY. Blocks as long as that takes. */
int inflate_gzip(struct slice in, size_t bytes_max, struct buf *out) MUST_CHECK;

#endif
