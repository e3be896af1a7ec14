/* head: the headers of tus requests, checked (spec/tus.md sections 1 to 4, artifacts.md 4.2).
 *
 * What the specification leaves open is settled strictly: "+5", " 5" and "5,5" are no numbers, a
 * repeated header is refused even where both say the same, since what comes after us may have read
 * the other one. Everything here is an answer to a client; nothing is stored. */
#include "door/artifact/head.h"

#include <string.h>
#include <strings.h>

#include "base/ensure.h"

#define NUMBER_DIGITS_MAX 19

const char *tus_field_name(enum tus_field f)
{
    static const char *const names[TUS_FIELD_COUNT] = {
#define X(sym, name) name,
        TUS_FIELDS(X)
#undef X
    };
    ensure(f < TUS_FIELD_COUNT);
    return names[f];
}

bool tus_number(struct slice s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.len == 0 || s.len > NUMBER_DIGITS_MAX) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(s.ptr[i] - '0'); /* 19 nines fit into 64 bits */
    }
    *out = v;
    return v <= INT64_MAX;
}

static bool has(const struct tus_head *h, enum tus_field f)
{
    return h->field[f].count > 0;
}

static int once(const struct tus_head *h, enum tus_field f, struct err *e)
{
    if (h->field[f].count > 1) {
        return err_set(e, ERR_INVALID_REQUEST, "the header %s is there more than once",
                       tus_field_name(f));
    }
    return 0;
}

static bool is_text(struct slice s, const char *text)
{
    return slice_eq(s, slice_cstr(text));
}

int tus_method(const struct tus_head *h, enum http_method *out, struct err *e)
{
    static const struct {
        const char *name;
        enum http_method method;
    } known[] = {{"GET", HTTP_GET},        {"HEAD", HTTP_HEAD},   {"POST", HTTP_POST},
                 {"PUT", HTTP_PUT},        {"PATCH", HTTP_PATCH}, {"DELETE", HTTP_DELETE},
                 {"OPTIONS", HTTP_OPTIONS}};
    *out = h->method;
    if (h->method != HTTP_POST || !has(h, TUS_OVERRIDE)) {
        return 0;
    }
    int r = once(h, TUS_OVERRIDE, e);
    if (r != 0) {
        return r;
    }
    *out = HTTP_OTHER;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (is_text(h->field[TUS_OVERRIDE].value, known[i].name)) {
            *out = known[i].method;
        }
    }
    return 0;
}

int tus_version(const struct tus_head *h, enum http_method method, struct err *e)
{
    if (!has(h, TUS_RESUMABLE)) {
        return method == HTTP_HEAD || method == HTTP_GET
                   ? 0
                   : err_set(e, ERR_UNSUPPORTED_VERSION,
                             "the header Tus-Resumable: " TUS_VERSION " is missing");
    }
    int r = once(h, TUS_RESUMABLE, e);
    if (r != 0) {
        return r;
    }
    if (!is_text(h->field[TUS_RESUMABLE].value, TUS_VERSION)) {
        return err_set(e, ERR_UNSUPPORTED_VERSION,
                       "this server speaks version " TUS_VERSION " of tus only");
    }
    return 0;
}

/* The front has refused lengths that are none, and both headers together. */
uint64_t tus_body_bytes(const struct tus_head *h)
{
    uint64_t n = 0;
    if (has(h, TUS_CODING)) {
        return UINT64_MAX;
    }
    if (has(h, TUS_CONTENT_LENGTH) && !tus_number(h->field[TUS_CONTENT_LENGTH].value, &n)) {
        return UINT64_MAX; /* longer than any upload may be */
    }
    return n;
}

static bool is_upload_type(const struct tus_head *h)
{
    static const char type[] = TUS_UPLOAD_TYPE;
    const size_t n = sizeof type - 1;
    struct slice s = h->field[TUS_TYPE].value;
    if (!has(h, TUS_TYPE) || s.len < n || strncasecmp(s.ptr, type, n) != 0) {
        return false;
    }
    s = slice_from(s, n);
    while (s.len > 0 && (*s.ptr == ' ' || *s.ptr == '\t')) {
        s = slice_from(s, 1);
    }
    return s.len == 0 || *s.ptr == ';'; /* parameters mean nothing here (cases T22) */
}

static int check_type(const struct tus_head *h, struct err *e)
{
    int r = once(h, TUS_TYPE, e);
    if (r == 0 && !is_upload_type(h)) {
        r = err_set(e, ERR_INVALID_CONTENT_TYPE, "the Content-Type must be " TUS_UPLOAD_TYPE);
    }
    return r;
}

static int deferred(const struct tus_head *h, struct err *e)
{
    int r = once(h, TUS_DEFER, e);
    if (r != 0) {
        return r;
    }
    if (has(h, TUS_LENGTH)) {
        return err_set(e, ERR_INVALID_UPLOAD_LENGTH,
                       "Upload-Length and Upload-Defer-Length exclude each other");
    }
    if (!is_text(h->field[TUS_DEFER].value, "1")) {
        return err_set(e, ERR_INVALID_UPLOAD_LENGTH, "Upload-Defer-Length can only be 1");
    }
    return 0;
}

int tus_creation_size(const struct tus_head *h, uint64_t bytes_max, struct tus_creation *out,
                      struct err *e)
{
    *out = (struct tus_creation){.body_bytes = tus_body_bytes(h)};
    if (has(h, TUS_CONCAT)) {
        return err_set(e, ERR_CONCATENATION_UNSUPPORTED, "uploads cannot be joined here");
    }
    if (has(h, TUS_DEFER)) {
        out->deferred = true;
        return deferred(h, e);
    }
    int r = once(h, TUS_LENGTH, e);
    if (r != 0) {
        return r;
    }
    if (!has(h, TUS_LENGTH) || !tus_number(h->field[TUS_LENGTH].value, &out->length)) {
        return err_set(e, ERR_INVALID_UPLOAD_LENGTH,
                       "Upload-Length must be there and a number of bytes: digits only");
    }
    if (out->length > bytes_max) {
        return err_set(e, ERR_MAX_SIZE_EXCEEDED, "an upload may be %llu bytes long at most",
                       (unsigned long long)bytes_max);
    }
    return 0;
}

int tus_creation_length(const struct tus_creation *c, struct err *e)
{
    if (c->deferred) {
        return err_set(e, ERR_INVALID_SIZE, "the length must be given when the upload is made");
    }
    if (c->length == 0) {
        return err_set(e, ERR_INVALID_SIZE, "an upload has one byte at least");
    }
    return 0;
}

int tus_creation_body(const struct tus_head *h, const struct tus_creation *c, struct err *e)
{
    if (c->body_bytes == 0) {
        return 0;
    }
    int r = check_type(h, e);
    if (r == 0 && c->body_bytes != UINT64_MAX && c->body_bytes > c->length) {
        r = err_set(e, ERR_UPLOAD_SIZE_EXCEEDED, "the body is longer than Upload-Length");
    }
    return r;
}

int tus_append(const struct tus_head *h, uint64_t *offset, struct err *e)
{
    int r = check_type(h, e);
    if (r == 0) {
        r = once(h, TUS_OFFSET, e);
    }
    if (r != 0) {
        return r;
    }
    if (!has(h, TUS_OFFSET) || !tus_number(h->field[TUS_OFFSET].value, offset)) {
        return err_set(e, ERR_INVALID_OFFSET,
                       "Upload-Offset must be there and a number of bytes: digits only");
    }
    return 0;
}

/* True when a list of header names has this one. */
static bool list_has(struct slice list, struct slice name)
{
    for (size_t i = 0; i + name.len <= list.len; i++) {
        bool begins = i == 0 || strchr(" \t,", list.ptr[i - 1]) != NULL;
        bool ends = i + name.len == list.len || strchr(" \t,", list.ptr[i + name.len]) != NULL;
        if (begins && ends && strncasecmp(list.ptr + i, name.ptr, name.len) == 0) {
            return true;
        }
    }
    return false;
}

int tus_checksum(const struct tus_head *h, struct checksum *out, struct err *e)
{
    *out = (struct checksum){.algorithm = CHECKSUM_NONE};
    int r = once(h, TUS_CHECKSUM, e);
    if (r != 0) {
        return r;
    }
    if (has(h, TUS_CHECKSUM)) {
        return checksum_parse(h->field[TUS_CHECKSUM].value, out, e);
    }
    if (has(h, TUS_TRAILER) && list_has(h->field[TUS_TRAILER].value, SLICE("upload-checksum"))) {
        /* Who sends it wants it looked at. */
        return err_set(e, ERR_INVALID_UPLOAD_CHECKSUM,
                       "Upload-Checksum must be a header: trailers are not read");
    }
    return 0;
}
