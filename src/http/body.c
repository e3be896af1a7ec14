/* body: the chunk decoder.
 *
 *   SIZE [;extension] CRLF  data CRLF  ...  0 [;extension] CRLF  *(trailer CRLF)  CRLF
 *
 * Strict on purpose, since every leniency here is one that a proxy in front may not share: a size
 * is 1 to 16 hexadecimal digits and nothing before or behind it but `;`; CR LF ends every line;
 * control bytes are refused in extensions and trailers; a trailer line is a token, a colon and
 * text.
 *
 * Everything here is an answer to a client; nothing stops the server. */
#include "http/body.h"

#include "base/ensure.h"
#include "http/head.h"

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

static bool is_text(char c)
{
    return ((unsigned char)c >= 0x20 && c != 0x7f) || c == '\t';
}

static int bad(struct http_chunks *d)
{
    d->state = HTTP_CHUNK_BAD;
    return ERR_BAD_REQUEST;
}

static int size_byte(struct http_chunks *d, char c)
{
    int digit = hex_value(c);

    if (digit >= 0) {
        if (d->digits == 16) {
            return bad(d);
        }
        d->left = d->left << 4 | (uint64_t)digit;
        d->digits++;
        d->state = HTTP_CHUNK_SIZE;
        return 0;
    }
    if (d->digits == 0 || (c != '\r' && c != ';')) {
        return bad(d);
    }
    d->state = c == ';' ? HTTP_CHUNK_EXTENSION : HTTP_CHUNK_SIZE_LF;
    return 0;
}

static int extension_byte(struct http_chunks *d, char c)
{
    if (c == '\r') {
        d->state = HTTP_CHUNK_SIZE_LF;
        return 0;
    }
    d->extension_bytes++;
    if (!is_text(c) || d->extension_bytes > HTTP_CHUNK_EXTENSION_BYTES_MAX) {
        return bad(d);
    }
    return 0;
}

/* The line of a size has ended. */
static int size_end(struct http_chunks *d, char c, uint64_t max)
{
    if (c != '\n') {
        return bad(d);
    }
    if (d->left == 0) {
        d->state = HTTP_CHUNK_TRAILER_FIRST;
        return 0;
    }
    ensure(d->total <= max);
    if (d->left > max - d->total) {
        d->state = HTTP_CHUNK_BAD;
        return ERR_BODY_TOO_LARGE;
    }
    d->total += d->left;
    d->state = HTTP_CHUNK_DATA;
    return 0;
}

static int trailer_byte(struct http_chunks *d, char c)
{
    bool token = http_is_token(slice_of(&c, 1));

    d->trailer_bytes++;
    if (d->trailer_bytes > HTTP_TRAILER_BYTES_MAX) {
        return bad(d);
    }
    if (d->state == HTTP_CHUNK_TRAILER_FIRST) {
        if (c == '\r') {
            d->state = HTTP_CHUNK_END_LF;
            return 0;
        }
        d->state = HTTP_CHUNK_TRAILER_NAME;
        return token ? 0 : bad(d);
    }
    if (d->state == HTTP_CHUNK_TRAILER_NAME) {
        if (c == ':') {
            d->state = HTTP_CHUNK_TRAILER_VALUE;
            return 0;
        }
        return token ? 0 : bad(d);
    }
    ensure(d->state == HTTP_CHUNK_TRAILER_VALUE);
    if (c == '\r') {
        d->state = HTTP_CHUNK_TRAILER_LF;
        return 0;
    }
    return is_text(c) ? 0 : bad(d);
}

static int expect_byte(struct http_chunks *d, char c, char wanted, enum http_chunk_state next)
{
    if (c != wanted) {
        return bad(d);
    }
    d->state = next;
    return 0;
}

/* Any byte that is not data. */
static int frame_byte(struct http_chunks *d, char c, uint64_t max)
{
    switch (d->state) {
    case HTTP_CHUNK_SIZE_FIRST:
        d->left = 0;
        d->digits = 0;
        return size_byte(d, c);
    case HTTP_CHUNK_SIZE:
        return size_byte(d, c);
    case HTTP_CHUNK_EXTENSION:
        return extension_byte(d, c);
    case HTTP_CHUNK_SIZE_LF:
        return size_end(d, c, max);
    case HTTP_CHUNK_DATA_CR:
        return expect_byte(d, c, '\r', HTTP_CHUNK_DATA_LF);
    case HTTP_CHUNK_DATA_LF:
        return expect_byte(d, c, '\n', HTTP_CHUNK_SIZE_FIRST);
    case HTTP_CHUNK_TRAILER_FIRST:
    case HTTP_CHUNK_TRAILER_NAME:
    case HTTP_CHUNK_TRAILER_VALUE:
        return trailer_byte(d, c);
    case HTTP_CHUNK_TRAILER_LF:
        return expect_byte(d, c, '\n', HTTP_CHUNK_TRAILER_FIRST);
    case HTTP_CHUNK_END_LF:
        return expect_byte(d, c, '\n', HTTP_CHUNK_DONE);
    case HTTP_CHUNK_DATA:
    case HTTP_CHUNK_DONE:
    case HTTP_CHUNK_BAD:
    default:
        ensure(false);
        return ERR_BAD_REQUEST;
    }
}

int http_chunks_step(struct http_chunks *d, uint64_t max, const char *p, size_t n, size_t *used,
                     struct slice *data)
{
    size_t i = 0;

    *used = 0;
    *data = slice_of(p, 0);
    if (d->state == HTTP_CHUNK_BAD) {
        return ERR_BAD_REQUEST;
    }
    while (i < n && d->state != HTTP_CHUNK_DATA && d->state != HTTP_CHUNK_DONE) {
        int got = frame_byte(d, p[i], max);

        i++;
        if (got != 0) {
            *used = i;
            return got;
        }
    }
    if (d->state == HTTP_CHUNK_DATA && i < n) {
        size_t take = n - i;

        if ((uint64_t)take > d->left) {
            take = (size_t)d->left;
        }
        *data = slice_of(p + i, take);
        i += take;
        d->left -= take;
        if (d->left == 0) {
            d->state = HTTP_CHUNK_DATA_CR;
        }
    }
    *used = i;
    return d->state == HTTP_CHUNK_DONE ? 1 : 0;
}
