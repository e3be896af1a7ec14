/* What the tests of decode_body share: bodies as clients make them (with zlib's own deflate, which
 * is the other side's code), and give(), which proves what holds for every body. A body lives in
 * memory of its exact size, so that a sanitizer sees a read beside it. */
#ifndef TESTS_UNIT_DOOR_DECODE_KIT_H
#define TESTS_UNIT_DOOR_DECODE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <zlib.h>

#include "door/capture/decode.h"
#include "json/write.h"

#define EVENT "{\"event\":\"x\",\"distinct_id\":\"\xc3\xbc\"}"
#define MIB   ((uint64_t)1 << 20)

enum wrap { RAW = -MAX_WBITS, ZLIB = MAX_WBITS, GZIP = MAX_WBITS + 16 };

/* A compressed copy of text; free its ptr. */
static inline struct slice pack(struct slice text, enum wrap wrap)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, (int)wrap, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t cap = deflateBound(&z, text.len) + 32;
    char *out = malloc(cap);
    assert_non_null(out);
    z.next_in = (z_const Bytef *)(uintptr_t)text.ptr;
    z.avail_in = (uInt)text.len;
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return slice_of(out, cap - z.avail_out);
}

/* Bytes that were taken for Latin-1 and sent as UTF-8: what gzip-js did (case C02). */
static inline struct slice as_latin1_text(struct slice s)
{
    char *out = malloc(s.len * 2 + 1);
    size_t n = 0;
    assert_non_null(out);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c >= 0x80) {
            out[n++] = (char)(0xc0 | c >> 6);
            c = (unsigned char)(0x80 | (c & 0x3f));
        }
        out[n++] = (char)c;
    }
    return slice_of(out, n);
}

#define STANDARD "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
#define URL_SAFE "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

/* base64 with this alphabet; pad NULL: none. */
static inline struct slice base64(struct slice s, const char *alphabet, const char *pad)
{
    struct buf b = {0};
    for (size_t i = 0; i < s.len; i += 3) {
        size_t n = s.len - i < 3 ? s.len - i : 3;
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++) {
            bits = bits << 8 | (k < n ? (unsigned char)s.ptr[i + k] : 0u);
        }
        for (size_t k = 0; k < 4; k++) {
            if (k <= n) {
                buf_put_char(&b, alphabet[bits >> (18 - 6 * k) & 63]);
            } else if (pad != NULL) {
                buf_put_cstr(&b, pad);
            }
        }
    }
    assert_false(b.failed);
    return buf_slice(&b);
}

/* head + text, with every byte that is no letter or digit percent-encoded when `encode`. */
static inline struct slice form(const char *head, struct slice text, bool encode)
{
    struct buf b = {0};
    buf_put_cstr(&b, head);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (encode && !plain) {
            buf_printf(&b, "%%%02X", c);
        } else {
            buf_put_char(&b, text.ptr[i]);
        }
    }
    assert_false(b.failed);
    return buf_slice(&b);
}

static inline void drop(struct slice s)
{
    free((void *)(uintptr_t)s.ptr);
}

struct fixture {
    struct decode_request how;
    char *body;
    struct decoded got;
    struct err e;
};

static inline void forget(struct fixture *f)
{
    decoded_free(&f->got);
    free(f->body);
    f->body = NULL;
}

static inline int setup(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return *state == NULL ? -1 : 0;
}

static inline int teardown(void **state)
{
    forget(*state);
    free(*state);
    return 0;
}

/* A request with nothing declared, to be filled by the test. */
static inline void fresh(struct fixture *f, enum decode_mode mode)
{
    f->how = (struct decode_request){.mode = mode, .decoded_bytes_max = MIB};
}

/* Decodes, and proves what holds for every body. */
static inline int give(struct fixture *f, struct slice body)
{
    forget(f);
    f->body = malloc(body.len + 1);
    assert_non_null(f->body);
    memcpy(f->body + 1, body.len == 0 ? "" : body.ptr, body.len);
    f->how.body = slice_of(f->body + 1, body.len);
    f->e = (struct err){0};
    int r = decode_body(&f->how, &f->got, &f->e);
    if (r == 0) {
        assert_true(f->got.json.len > 0);
        assert_true(f->got.json.len <= f->how.decoded_bytes_max);
        return 0;
    }
    assert_int_equal(f->e.code, r);
    assert_true(f->e.text[0] != '\0');
    assert_true(utf8_valid(slice_cstr(f->e.text), NULL));
    assert_int_equal(f->got.json.len, 0);
    /* Never a status that clients repeat (case C01, C52). */
    assert_true(r == ERR_NO_MEMORY || (err_status(r) >= 400 && err_status(r) < 500));
    return r;
}

static inline void expect_text(struct fixture *f, struct slice body, struct slice want)
{
    int r = give(f, body);
    if (r != 0) {
        fail_msg("%s: %s", err_name(r), f->e.text);
    }
    if (!slice_eq(f->got.json, want)) {
        fail_msg("got %.*s, not %.*s", (int)f->got.json.len, f->got.json.ptr, (int)want.len,
                 want.ptr);
    }
}

static inline void expect_event(struct fixture *f, struct slice body)
{
    expect_text(f, body, SLICE(EVENT));
}

static inline void expect_error(struct fixture *f, struct slice body, int code, const char *says)
{
    int r = give(f, body);
    if (r != code || strstr(f->e.text, says) == NULL) {
        fail_msg("%s (%s), not %s (...%s...)", err_name(r), f->e.text, err_name(code), says);
    }
}

#endif
