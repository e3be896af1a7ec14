/* fuzz_decode: decode_body on any bytes, and its gzip reader against zlib's own.
 *
 * The first bytes of an input are the head of the request: mode, limit, and which of the known
 * names stand in `compression`, Content-Type and Content-Encoding, and how many of the bytes are
 * the query's `data`. Broken is: a refusal without a text, with a text that is no UTF-8, or with a
 * status that clients repeat; an output beyond its limit, or empty; a gzip body that only one of
 * the two readers takes, or that they read differently; a body that does not come back when it is
 * compressed, put into base64 or into a form and decoded again. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/ensure.h"
#include "door/capture/decode.h"
#include "json/write.h"

#define HEAD_BYTES 6
#define LIMIT      65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const compressions[] = {"",     "gzip", "gzip-js", "base64", "lz64",
                                           "GZip", "b64",  "other",   "deflate"};
static const char *const encodings[] = {"",           "gzip",          "deflate", "identity",
                                        "x-gzip;q=1", "gzip, gzip",    "br",      "utf-8",
                                        "base64",     "gzip,,identity"};
static const char *const content_types[] = {"", "application/json", "text/plain",
                                            "application/x-www-form-urlencoded"};

#define PICK(list, n) slice_cstr((list)[(n) % (sizeof(list) / sizeof *(list))])

/* From memory of its exact size. */
static char *copy_of(struct slice s)
{
    char *p = malloc(s.len + 1);
    ensure(p != NULL);
    if (s.len > 0) {
        memcpy(p + 1, s.ptr, s.len);
    }
    return p;
}

static int decode(struct decode_request how, struct decoded *out)
{
    struct err e = {0};
    char *body = copy_of(how.body);
    char *query = copy_of(how.query_data);
    how.body = slice_of(body + 1, how.body.len);
    how.query_data = slice_of(query + 1, how.query_data.len);
    int r = decode_body(&how, out, &e);
    if (r == 0) {
        ensure(out->json.len > 0);
        ensure(out->json.len <= how.decoded_bytes_max);
        /* Borrowed text would be gone with the copies. */
        if (out->owned.ptr == NULL) {
            buf_put_slice(&out->owned, out->json);
            out->json = buf_slice(&out->owned);
        }
    } else {
        ensure(e.code == r);
        ensure(e.text[0] != '\0');
        ensure(utf8_valid(slice_cstr(e.text), NULL));
        ensure(err_status(r) >= 400);
        ensure(err_status(r) < 500);
        ensure(out->json.len == 0);
        ensure(out->owned.cap <= LIMIT * 4);
    }
    free(body);
    free(query);
    return r;
}

/* zlib's own reader of gzip, member by member as decode_gzip.c says it. False: not whole. */
static bool other_gzip(struct slice in, struct buf *out)
{
    z_stream z = {0};
    ensure(inflateInit2(&z, MAX_WBITS + 16) == Z_OK);
    z.next_in = (z_const Bytef *)(uintptr_t)in.ptr;
    z.avail_in = (uInt)in.len;
    bool good = true;
    for (;;) {
        unsigned char piece[4096];
        z.next_out = piece;
        z.avail_out = sizeof piece;
        int r = inflate(&z, Z_NO_FLUSH);
        buf_put(out, piece, sizeof piece - z.avail_out);
        if (r == Z_STREAM_END) {
            bool zeros = true;
            for (uInt i = 0; i < z.avail_in; i++) {
                zeros = zeros && z.next_in[i] == 0;
            }
            if (zeros) {
                break;
            }
            good = inflateReset(&z) == Z_OK;
        } else if (r != Z_OK || out->len > LIMIT) {
            good = false;
        }
        if (!good) {
            break;
        }
    }
    ensure(inflateEnd(&z) == Z_OK);
    return good;
}

static bool begins_gzip(struct slice s)
{
    return slice_starts(s, SLICE("\x1f\x8b\x08")) || slice_starts(s, SLICE("\x1f\xc2\x8b\x08"));
}

static void check_gzip(struct slice body)
{
    struct decode_request how = {.mode = DECODE_PLAIN,
                                 .body = body,
                                 .content_encoding = SLICE("gzip"),
                                 .decoded_bytes_max = LIMIT};
    struct decoded got;
    struct buf want = {0};
    if (body.len == 0 || slice_starts(body, SLICE("\x1f\xc2\x8b\x08"))) {
        return; /* a text, for which zlib has no reader */
    }
    int r = decode(how, &got);
    bool good = other_gzip(body, &want) && want.len > 0 && want.len <= LIMIT;
    if (good && begins_gzip(buf_slice(&want))) {
        good = slice_starts(buf_slice(&want), SLICE("\x1f\xc2")); /* twice compressed */
    }
    ensure((r == 0) == good);
    ensure(!good || slice_eq(got.json, buf_slice(&want)));
    buf_free(&want);
    decoded_free(&got);
}

/* ---- there and back ---- */

static void expect(struct decode_request how, struct slice want)
{
    struct decoded got;
    int r = decode(how, &got);
    ensure(r == 0);
    ensure(slice_eq(got.json, want));
    decoded_free(&got);
}

static void pack(struct slice text, int bits, struct buf *out)
{
    z_stream z = {0};
    ensure(deflateInit2(&z, 1, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    ensure(buf_reserve(out, deflateBound(&z, text.len) + 32));
    z.next_in = (z_const Bytef *)(uintptr_t)text.ptr;
    z.avail_in = (uInt)text.len;
    z.next_out = (Bytef *)out->ptr;
    z.avail_out = (uInt)out->cap;
    ensure(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->len = out->cap - z.avail_out;
    ensure(deflateEnd(&z) == Z_OK);
}

static void put_base64(struct slice s, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t i = 0; i < s.len; i += 3) {
        size_t n = s.len - i < 3 ? s.len - i : 3;
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++) {
            bits = bits << 8 | (k < n ? (unsigned char)s.ptr[i + k] : 0u);
        }
        for (size_t k = 0; k <= n; k++) {
            buf_put_char(out, digits[bits >> (18 - 6 * k) & 63]);
        }
    }
}

static void put_percent(struct slice s, struct buf *out)
{
    buf_put_cstr(out, "ip=1&data=");
    for (size_t i = 0; i < s.len; i++) {
        buf_printf(out, "%%%02x", (unsigned char)s.ptr[i]);
    }
}

/* `text` behind a bracket, which ends the looking for further layers. */
static void check_roundtrips(struct slice text)
{
    static const int wraps[] = {MAX_WBITS + 16, MAX_WBITS, -MAX_WBITS};
    struct buf json = {0};
    struct buf made = {0};
    buf_put_char(&json, '[');
    buf_put_slice(&json, text);
    for (size_t i = 0; i < 3; i++) {
        struct decode_request how = {.mode = DECODE_V1,
                                     .content_encoding = i == 0 ? SLICE("gzip") : SLICE("deflate"),
                                     .decoded_bytes_max = json.len};
        buf_clear(&made);
        pack(buf_slice(&json), wraps[i], &made);
        how.body = buf_slice(&made);
        expect(how, buf_slice(&json));
    }
    struct decode_request how = {.mode = DECODE_BASE64_TOO, .decoded_bytes_max = LIMIT * 4};
    buf_clear(&made);
    put_base64(buf_slice(&json), &made);
    how.body = buf_slice(&made);
    expect(how, buf_slice(&json));
    buf_clear(&made);
    put_percent(buf_slice(&json), &made);
    how.body = buf_slice(&made);
    expect(how, buf_slice(&json));
    buf_free(&json);
    buf_free(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD_BYTES || size > LIMIT / 2) {
        return 0;
    }
    struct slice rest = slice_of(data + HEAD_BYTES, size - HEAD_BYTES);
    size_t query = data[5] < 128 ? 0 : data[5] - 128u;
    query = query < rest.len ? query : rest.len;
    struct decode_request how = {
        .mode = (enum decode_mode)(data[0] % 5),
        .body = slice_from(rest, query),
        .query_data = slice_of(rest.ptr, query),
        .query_compression = PICK(compressions, data[1]),
        .content_encoding = PICK(encodings, data[2]),
        .content_type = PICK(content_types, data[3]),
        .decoded_bytes_max = (uint64_t)data[4] << 8 | 0xff,
    };
    struct decoded got;
    (void)decode(how, &got);
    decoded_free(&got);
    check_gzip(rest);
    check_roundtrips(rest);
    return 0;
}
