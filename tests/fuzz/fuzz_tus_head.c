/* fuzz_tus_head: the headers of a tus request and Upload-Metadata on any bytes.
 *
 * Input: lines. The first byte of a line picks a field (a letter from 'a' on), '!' a line of
 * Upload-Metadata, the rest is its value. The first line's first byte picks the method instead.
 *
 * Broken is: a refusal without a text, with a text that is no UTF-8, or with a code that is no 4xx;
 * a number that is not the digits it was read from, or past 63 bits; a length past the bound; a
 * body that is longer than the upload and passes; metadata whose texts are no UTF-8, or do not come
 * back from a list with blanks added around its commas; a project or checksum that passes in any
 * other form than the contract's; a step outside of the input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/ensure.h"
#include "base/hash.h"
#include "door/artifact/head.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX UINT64_C(1000000)

static bool refused(int r, const struct err *e)
{
    if (r == 0) {
        return false;
    }
    ensure(e->code == r);
    ensure(err_status(r) >= 400 && err_status(r) < 500);
    ensure(e->text[0] != '\0');
    ensure(utf8_valid(slice_cstr(e->text), NULL));
    return true;
}

static void check_number(struct slice s, uint64_t v)
{
    char text[32];
    ensure(v <= INT64_MAX);
    while (s.len > 1 && *s.ptr == '0') {
        s = slice_from(s, 1);
    }
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    ensure(slice_eq(s, slice_of(text, (size_t)n)));
}

/* A list that means the same. */
static void spread(struct slice list, struct buf *out)
{
    buf_clear(out);
    buf_put_cstr(out, "\t ");
    for (size_t i = 0; i < list.len; i++) {
        if (list.ptr[i] == ',') {
            buf_put_cstr(out, " \t, ");
        } else {
            buf_put_char(out, list.ptr[i]);
        }
    }
    buf_put_char(out, ' ');
    ensure(!out->failed);
}

static void check_metadata(struct slice list)
{
    static struct buf more;
    struct metadata m;
    struct metadata again;
    struct err e = {0};
    uint8_t digest[BLAKE3_LEN];
    if (refused(metadata_parse(list, &m, &e), &e)) {
        return;
    }
    ensure(list.len <= UPLOAD_METADATA_MAX);
    ensure(utf8_valid(slice_cstr(m.filename), NULL));
    if (!refused(metadata_project(&m, &e), &e)) {
        ensure(m.has_project);
        ensure(m.project[0] != '\0');
        ensure(strspn(m.project, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "._:-") == strlen(m.project));
    }
    if (!refused(metadata_checksum(&m, &e), &e)) {
        ensure(m.has_checksum);
        bool hex = hex_decode(digest, slice_cstr(m.checksum), BLAKE3_LEN);
        ensure(hex);
    }
    spread(list, &more);
    if (more.len <= UPLOAD_METADATA_MAX) {
        int r = metadata_parse(buf_slice(&more), &again, &e);
        ensure(r == 0);
        ensure(strcmp(m.project, again.project) == 0);
        ensure(strcmp(m.checksum, again.checksum) == 0);
        ensure(strcmp(m.filename, again.filename) == 0);
        ensure(m.has_project == again.has_project);
    }
}

static void check_checksum(const struct tus_head *h)
{
    struct checksum_run run;
    struct checksum sum;
    struct err e = {0};
    if (refused(tus_checksum(h, &sum, &e), &e)) {
        return;
    }
    ensure(h->field[TUS_CHECKSUM].count == (sum.algorithm != CHECKSUM_NONE ? 1 : 0));
    if (sum.algorithm != CHECKSUM_NONE) {
        struct slice value = h->field[TUS_CHECKSUM].value;
        struct slice name = slice_cstr(checksum_name(sum.algorithm));
        ensure(slice_starts(value, name));
        ensure(value.ptr[name.len] == ' ');
        checksum_start(&run, &sum);
        checksum_add(&run, value.ptr, value.len);
        (void)checksum_fits(&run);
    }
}

static void check_head(const struct tus_head *h)
{
    struct err e = {0};
    struct tus_creation c;
    enum http_method method;
    uint64_t offset = 0;
    if (!refused(tus_method(h, &method, &e), &e)) {
        ensure(method == h->method || h->method == HTTP_POST);
        if (!refused(tus_version(h, method, &e), &e)) {
            bool asks = method == HTTP_HEAD || method == HTTP_GET;
            ensure(asks || h->field[TUS_RESUMABLE].count == 1);
        }
    }
    if (!refused(tus_creation_size(h, BYTES_MAX, &c, &e), &e)) {
        ensure(c.length <= BYTES_MAX);
        ensure(h->field[TUS_CONCAT].count == 0);
        if (!refused(tus_creation_length(&c, &e), &e)) {
            ensure(c.length > 0);
            check_number(h->field[TUS_LENGTH].value, c.length);
        }
        if (!refused(tus_creation_body(h, &c, &e), &e)) {
            ensure(c.body_bytes <= c.length || c.body_bytes == UINT64_MAX);
        }
    }
    if (!refused(tus_append(h, &offset, &e), &e)) {
        ensure(h->field[TUS_TYPE].count == 1);
        check_number(h->field[TUS_OFFSET].value, offset);
    }
    check_checksum(h);
    check_metadata(h->metadata);
}

static void take_line(struct tus_head *h, struct buf *metadata, const char *line, size_t n)
{
    if (n == 0) {
        return;
    }
    if (line[0] == '!') {
        if (metadata->len > 0) {
            buf_put_char(metadata, ',');
        }
        buf_put(metadata, line + 1, n - 1);
        return;
    }
    size_t f = (size_t)((unsigned char)line[0] - 'a') % TUS_FIELD_COUNT;
    if (h->field[f].count == 0) {
        h->field[f].value = slice_of(line + 1, n - 1);
    }
    h->field[f].count++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum http_method methods[] = {HTTP_POST, HTTP_PATCH, HTTP_HEAD};
    struct buf metadata = {0};
    struct tus_head h = {.method = methods[size > 0 ? data[0] % 3 : 0]};
    char *copy = malloc(size + 1); /* of its exact size */
    ensure(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    for (size_t at = size > 0 ? 1 : 0; at < size;) {
        const char *end = memchr(copy + at, '\n', size - at);
        size_t n = end == NULL ? size - at : (size_t)(end - copy) - at;
        take_line(&h, &metadata, copy + at, n);
        at += n + 1;
    }
    char *list = malloc(metadata.len + 1);
    ensure(list != NULL);
    if (metadata.len > 0) {
        memcpy(list + 1, metadata.ptr, metadata.len);
    }
    h.metadata = slice_of(list + 1, metadata.len);
    check_head(&h);
    buf_free(&metadata);
    free(list);
    free(copy);
    return 0;
}
