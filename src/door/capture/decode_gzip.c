/* decode_gzip: gzip (RFC 1952), zlib (RFC 1950) and raw deflate (RFC 1951) with bounded output.
 *
 * zlib's inflate does the deflate data; the wrapping is read here, because its own gzip mode cannot
 * tell a missing trailer from missing data, or a wrong length from a wrong checksum, and people
 * repair clients by these words (case C01).
 *
 * What counts as whole: one or more gzip members, each with its right CRC-32 and length (RFC 1952
 * section 2.2: members concatenate), then nothing, or zero bytes (padding, as gzip(1) takes it).
 * Anything else behind the last member is refused: it could be a member that lost its beginning,
 * and taking the rest for everything would lose events.
 *
 * Bombs (case C41): the output is never larger than
 *     min(bytes_max, max(RATIO_FREE_BYTES, RATIO_MAX * length of the input)),
 * and the buffer grows in steps with what is there, so a small body costs little memory whatever it
 * claims. deflate can reach 1032 to 1; batches of SDK events, where each has a UUID of its own,
 * stay below 100 to 1. Memory besides the output: zlib's state and window, about 40 KiB.
 *
 * Answers: ERR_INVALID_ENCODING (400), ERR_BODY_TOO_LARGE (413), ERR_NO_MEMORY. Nothing here stops
 * the server or aborts on input. */
#define ZLIB_CONST
#include <zlib.h>

#include "base/ensure.h"
#include "door/capture/decode_internal.h"

#define RATIO_FREE_BYTES (UINT64_C(4) << 20)
#define RATIO_MAX        400
#define STEP_BYTES       ((size_t)16 << 10) /* the output grows by at least this */
#define GZIP_HEAD_BYTES  10
#define GZIP_TAIL_BYTES  8
#define INPUT_STEP_MAX   ((size_t)1 << 30) /* zlib counts in unsigned int */

enum { FLAG_HCRC = 2, FLAG_EXTRA = 4, FLAG_NAME = 8, FLAG_COMMENT = 16, FLAG_RESERVED = 0xe0 };

struct inflater {
    z_stream z;
    const char *stage; /* "gzip" or "deflate", for messages */
    struct slice in;
    size_t at; /* next byte of in */
    struct buf *out;
    uint64_t bytes_max; /* as configured, for the message */
    uint64_t limit;     /* what is enforced */
};

bool decode_is_gzip(struct slice in)
{
    return slice_starts(in, SLICE("\x1f\x8b\x08"));
}

bool decode_is_latin1_gzip(struct slice in)
{
    return slice_starts(in, SLICE("\x1f\xc2\x8b\x08"));
}

static unsigned byte_at(const struct inflater *f, size_t i)
{
    ensure(i < f->in.len);
    return (unsigned char)f->in.ptr[i];
}

static uint32_t u32_little(const struct inflater *f, size_t i)
{
    return byte_at(f, i) | byte_at(f, i + 1) << 8 | byte_at(f, i + 2) << 16 |
           (uint32_t)byte_at(f, i + 3) << 24;
}

static size_t left(const struct inflater *f)
{
    return f->in.len - f->at;
}

static int too_large(const struct inflater *f, struct err *e)
{
    if (f->limit == f->bytes_max) {
        return err_set(e, ERR_BODY_TOO_LARGE,
                       "%s: the body is larger than %llu bytes when it is decompressed", f->stage,
                       (unsigned long long)f->limit);
    }
    return err_set(e, ERR_BODY_TOO_LARGE,
                   "%s: %zu bytes decompress to more than %llu, over %d times as much", f->stage,
                   f->in.len, (unsigned long long)f->limit, RATIO_MAX);
}

static int start(struct inflater *f, const char *stage, struct slice in, uint64_t bytes_max,
                 struct buf *out, struct err *e)
{
    ensure(out->len == 0);
    uint64_t ratio = in.len > UINT64_MAX / RATIO_MAX ? UINT64_MAX : in.len * RATIO_MAX;
    uint64_t bound = ratio > RATIO_FREE_BYTES ? ratio : RATIO_FREE_BYTES;
    *f = (struct inflater){
        .stage = stage,
        .in = in,
        .out = out,
        .bytes_max = bytes_max,
        .limit = bytes_max < bound ? bytes_max : bound,
    };
    static_assert(SIZE_MAX >= UINT64_MAX, "a limit is a size");
    out->limit = f->limit;
    /* Negative window bits: raw deflate. */
    int r = inflateInit2(&f->z, -MAX_WBITS);
    ensure(r == Z_OK || r == Z_MEM_ERROR);
    return r == Z_OK ? 0 : err_set(e, ERR_NO_MEMORY, "%s: no memory to decompress", stage);
}

/* Room for the next piece of output. At the limit it is one byte outside of the buffer: what lands
 * there is too much. */
static int make_room(struct inflater *f, unsigned char *spill, struct err *e)
{
    uint64_t room = f->limit - f->out->len;
    if (room == 0) {
        f->z.next_out = spill;
        f->z.avail_out = 1;
        return 0;
    }
    size_t step = room < STEP_BYTES ? (size_t)room : STEP_BYTES;
    if (!buf_reserve(f->out, step)) {
        return err_set(e, ERR_NO_MEMORY, "%s: no memory for the decompressed body", f->stage);
    }
    size_t free_bytes = f->out->cap - f->out->len;
    free_bytes = free_bytes > room ? (size_t)room : free_bytes;
    free_bytes = free_bytes > INPUT_STEP_MAX ? INPUT_STEP_MAX : free_bytes;
    f->z.next_out = (unsigned char *)f->out->ptr + f->out->len;
    f->z.avail_out = (uInt)free_bytes;
    return 0;
}

/* What inflate's answer means when it is no progress. */
static int inflate_failed(const struct inflater *f, int r, struct err *e)
{
    if (r == Z_MEM_ERROR) {
        return err_set(e, ERR_NO_MEMORY, "%s: no memory to decompress", f->stage);
    }
    if (r == Z_DATA_ERROR) {
        return err_set_at(e, ERR_INVALID_ENCODING, f->at, "%s: %s at byte %zu", f->stage,
                          f->z.msg != NULL ? f->z.msg : "broken data", f->at);
    }
    /* No input is left, and room there was: Z_OK always means progress. */
    ensure(r == Z_BUF_ERROR);
    return err_set_at(e, ERR_INVALID_ENCODING, f->in.len,
                      "%s: the stream ends at byte %zu in the middle of its data", f->stage,
                      f->in.len);
}

/* From f->at to behind the last deflate block. */
static int inflate_blocks(struct inflater *f, struct err *e)
{
    unsigned char spill;
    int r = Z_OK;
    while (r != Z_STREAM_END) {
        int code = make_room(f, &spill, e);
        if (code != 0) {
            return code;
        }
        size_t give = left(f) < INPUT_STEP_MAX ? left(f) : INPUT_STEP_MAX;
        uInt room = f->z.avail_out;
        f->z.next_in = (const Bytef *)f->in.ptr + f->at;
        f->z.avail_in = (uInt)give;
        r = inflate(&f->z, Z_NO_FLUSH);
        size_t taken = give - f->z.avail_in;
        size_t made = room - f->z.avail_out;
        f->at += taken;
        if (made > 0 && f->out->len == f->limit) {
            return too_large(f, e);
        }
        f->out->len += made;
        if (r != Z_STREAM_END && r != Z_OK) {
            return inflate_failed(f, r, e);
        }
    }
    return 0;
}

/* ---- gzip ---- */

static int head_cut(const struct inflater *f, struct err *e)
{
    return err_set_at(e, ERR_INVALID_ENCODING, f->in.len,
                      "gzip: the stream ends at byte %zu in the middle of its header", f->in.len);
}

/* Over a text that ends in a NUL. */
static int skip_text(struct inflater *f, struct err *e)
{
    const char *nul = left(f) == 0 ? NULL : memchr(f->in.ptr + f->at, '\0', left(f));
    if (nul == NULL) {
        return head_cut(f, e);
    }
    f->at = (size_t)(nul - f->in.ptr) + 1;
    return 0;
}

static int skip_extra(struct inflater *f, struct err *e)
{
    if (left(f) < 2) {
        return head_cut(f, e);
    }
    size_t n = byte_at(f, f->at) | byte_at(f, f->at + 1) << 8;
    f->at += 2;
    if (left(f) < n) {
        return head_cut(f, e);
    }
    f->at += n;
    return 0;
}

/* The header's own checksum: the low half of the CRC-32 of all before it. */
static int check_head_crc(struct inflater *f, size_t head, struct err *e)
{
    if (left(f) < 2) {
        return head_cut(f, e);
    }
    uLong crc = crc32_z(0, (const Bytef *)f->in.ptr + head, f->at - head);
    unsigned said = byte_at(f, f->at) | byte_at(f, f->at + 1) << 8;
    if ((crc & 0xffff) != said) {
        return err_set_at(e, ERR_INVALID_ENCODING, f->at,
                          "gzip: the header's checksum at byte %zu is wrong", f->at);
    }
    f->at += 2;
    return 0;
}

static int read_head(struct inflater *f, struct err *e)
{
    size_t head = f->at;
    if (!decode_is_gzip(slice_from(f->in, head))) {
        bool cut = slice_starts(SLICE("\x1f\x8b\x08"), slice_from(f->in, head));
        return cut ? head_cut(f, e)
                   : err_set_at(e, ERR_INVALID_ENCODING, head,
                                "gzip: there is no gzip header at byte %zu", head);
    }
    if (left(f) < GZIP_HEAD_BYTES) {
        return head_cut(f, e);
    }
    unsigned flags = byte_at(f, head + 3);
    if ((flags & FLAG_RESERVED) != 0) {
        return err_set_at(e, ERR_INVALID_ENCODING, head + 3,
                          "gzip: unknown flags in the header at byte %zu", head + 3);
    }
    f->at += GZIP_HEAD_BYTES;
    int r = 0;
    if ((flags & FLAG_EXTRA) != 0) {
        r = skip_extra(f, e);
    }
    if (r == 0 && (flags & FLAG_NAME) != 0) {
        r = skip_text(f, e);
    }
    if (r == 0 && (flags & FLAG_COMMENT) != 0) {
        r = skip_text(f, e);
    }
    if (r == 0 && (flags & FLAG_HCRC) != 0) {
        r = check_head_crc(f, head, e);
    }
    return r;
}

/* The trailer of a member whose output begins at `from`. */
static int check_tail(struct inflater *f, size_t from, struct err *e)
{
    if (left(f) < GZIP_TAIL_BYTES) {
        return err_set_at(e, ERR_INVALID_ENCODING, f->in.len,
                          "gzip: the stream ends at byte %zu without its trailer", f->in.len);
    }
    size_t len = f->out->len - from;
    uLong crc = len == 0 ? 0 : crc32_z(0, (const Bytef *)f->out->ptr + from, len);
    if (u32_little(f, f->at) != (uint32_t)crc) {
        return err_set_at(e, ERR_INVALID_ENCODING, f->at,
                          "gzip: the checksum (CRC-32) at byte %zu does not fit the data", f->at);
    }
    if (u32_little(f, f->at + 4) != (uint32_t)len) {
        return err_set_at(e, ERR_INVALID_ENCODING, f->at + 4,
                          "gzip: the length at byte %zu does not fit the data", f->at + 4);
    }
    f->at += GZIP_TAIL_BYTES;
    return 0;
}

static int read_member(struct inflater *f, struct err *e)
{
    size_t from = f->out->len;
    int r = read_head(f, e);
    if (r == 0) {
        r = inflate_blocks(f, e);
    }
    return r == 0 ? check_tail(f, from, e) : r;
}

static bool only_zeros(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] != 0) {
            return false;
        }
    }
    return true;
}

int decode_gzip(struct slice in, uint64_t bytes_max, struct buf *out, struct err *e)
{
    struct inflater f;
    int r = start(&f, "gzip", in, bytes_max, out, e);
    if (r != 0) {
        return r;
    }
    r = read_member(&f, e);
    while (r == 0 && !only_zeros(slice_from(f.in, f.at))) {
        if (!slice_starts(slice_from(f.in, f.at), SLICE("\x1f"))) {
            r = err_set_at(e, ERR_INVALID_ENCODING, f.at,
                           "gzip: something that is no gzip follows at byte %zu", f.at);
            break;
        }
        int again = inflateReset(&f.z);
        ensure(again == Z_OK);
        r = read_member(&f, e);
    }
    (void)inflateEnd(&f.z);
    return r;
}

/* ---- deflate ---- */

static int end_here(const struct inflater *f, struct err *e)
{
    if (left(f) == 0) {
        return 0;
    }
    return err_set_at(e, ERR_INVALID_ENCODING, f->at, "deflate: the stream ends before byte %zu",
                      f->at);
}

static int raw_deflate(struct slice in, uint64_t bytes_max, struct buf *out, struct err *e)
{
    struct inflater f;
    int r = start(&f, "deflate", in, bytes_max, out, e);
    if (r != 0) {
        return r;
    }
    r = inflate_blocks(&f, e);
    if (r == 0) {
        r = end_here(&f, e);
    }
    (void)inflateEnd(&f.z);
    return r;
}

/* The Adler-32 behind zlib-wrapped data, most significant byte first. */
static int check_adler(struct inflater *f, struct err *e)
{
    if (left(f) < 4) {
        return err_set_at(e, ERR_INVALID_ENCODING, f->in.len,
                          "deflate: the stream ends at byte %zu without its trailer", f->in.len);
    }
    uint32_t said = __builtin_bswap32(u32_little(f, f->at));
    uLong sum = adler32(0, NULL, 0);
    if (f->out->len > 0) {
        sum = adler32_z(sum, (const Bytef *)f->out->ptr, f->out->len);
    }
    if (said != (uint32_t)sum) {
        return err_set_at(e, ERR_INVALID_ENCODING, f->at,
                          "deflate: the checksum (Adler-32) at byte %zu does not fit the data",
                          f->at);
    }
    f->at += 4;
    return end_here(f, e);
}

static int zlib_deflate(struct slice in, uint64_t bytes_max, struct buf *out, struct err *e)
{
    struct inflater f;
    int r = start(&f, "deflate", in, bytes_max, out, e);
    if (r != 0) {
        return r;
    }
    f.at = 2;
    r = inflate_blocks(&f, e);
    if (r == 0) {
        r = check_adler(&f, e);
    }
    (void)inflateEnd(&f.z);
    return r;
}

/* A zlib header without a preset dictionary (RFC 1950 section 2.2). */
static bool is_zlib(struct slice in)
{
    if (in.len < 2) {
        return false;
    }
    unsigned cmf = (unsigned char)in.ptr[0];
    unsigned flg = (unsigned char)in.ptr[1];
    return (cmf & 0x0f) == 8 && cmf >> 4 <= 7 && (cmf << 8 | flg) % 31 == 0 && (flg & 0x20) == 0;
}

/* Raw data can look like a zlib header (1 in 500 or so): when it then makes no sense, it is tried
 * as raw, and the first refusal is what is said. */
int decode_deflate(struct slice in, uint64_t bytes_max, struct buf *out, struct err *e)
{
    if (!is_zlib(in)) {
        return raw_deflate(in, bytes_max, out, e);
    }
    int r = zlib_deflate(in, bytes_max, out, e);
    if (r != ERR_INVALID_ENCODING) {
        return r;
    }
    buf_clear(out);
    return raw_deflate(in, bytes_max, out, NULL) == 0 ? 0 : r;
}

/* ---- gzip-js ---- */

int decode_latin1(struct slice in, struct buf *out, struct err *e)
{
    if (!buf_reserve(out, in.len)) {
        return err_set(e, ERR_NO_MEMORY, "gzip-js: no memory for the body");
    }
    const unsigned char *p = (const unsigned char *)in.ptr;
    for (size_t i = 0; i < in.len; i++) {
        unsigned c = p[i];
        if (c >= 0x80) {
            /* C2 and C3 lead the code points 80 to FF; every other lead is beyond them. */
            if ((c != 0xc2 && c != 0xc3) || i + 1 == in.len || (p[i + 1] & 0xc0) != 0x80) {
                return err_set_at(e, ERR_INVALID_ENCODING, i,
                                  "gzip-js: byte %zu is no Latin-1 character in UTF-8", i);
            }
            c = (c & 3) << 6 | (p[i + 1] & 0x3fu);
            i++;
        }
        out->ptr[out->len] = (char)c;
        out->len++;
    }
    return 0;
}
