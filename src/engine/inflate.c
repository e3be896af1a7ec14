/* inflate: zlib in pieces of 256 KiB into a buffer that never passes its bound.
 *
 * Answers only: every malformed body is the client's. */
#include "engine/inflate.h"

#include <string.h>
#include <zlib.h>

#include "base/ensure.h"

#define PIECE (256u << 10)

/* Runs one member to its end. 1: ended; 0: more input wanted but there is none. */
static int inflate_member(z_stream *z, size_t bytes_max, struct buf *out)
{
    int state = Z_OK;

    while (state != Z_STREAM_END) {
        if (out->len >= bytes_max + 1) {
            return ERR_BODY_TOO_LARGE;
        }
        if (!buf_reserve(out, PIECE)) {
            return ERR_NO_MEMORY;
        }
        z->next_out = (unsigned char *)out->ptr + out->len;
        z->avail_out = PIECE;
        state = inflate(z, Z_NO_FLUSH);
        out->len += PIECE - z->avail_out;
        if (state == Z_BUF_ERROR || (state == Z_OK && z->avail_in == 0 && z->avail_out != 0)) {
            return 0;
        }
        if (state != Z_OK && state != Z_STREAM_END) {
            return state == Z_MEM_ERROR ? ERR_NO_MEMORY : ERR_INVALID_ENCODING;
        }
    }
    return 1;
}

int inflate_gzip(struct slice in, size_t bytes_max, struct buf *out)
{
    z_stream z = {0};
    int r = 0;

    ensure(in.len <= UINT32_MAX);
    if (inflateInit2(&z, 15 + 16) != Z_OK) {
        return ERR_NO_MEMORY;
    }
    /* zlib does not write through next_in; its type says so only with ZLIB_CONST. */
    memcpy(&z.next_in, &in.ptr, sizeof in.ptr);
    z.avail_in = (unsigned)in.len;
    do {
        r = inflate_member(&z, bytes_max, out);
        if (r == 1 && z.avail_in != 0 && inflateReset(&z) != Z_OK) {
            r = ERR_INVALID_ENCODING;
        }
    } while (r == 1 && z.avail_in != 0);
    (void)inflateEnd(&z);
    if (r == 1) {
        return out->len > bytes_max ? ERR_BODY_TOO_LARGE : 0;
    }
    return r == 0 ? ERR_INVALID_ENCODING : r;
}
