/* internet_archive_names: metadata as request headers.
 *
 *   one value        x-archive-meta-KEY: VALUE
 *   several          x-archive-meta01-KEY, meta02-KEY ...; their order is that of the numbers
 *   _ in a key       two hyphens
 *   a value that is not printable ASCII without blanks, or looks like "uri(":
 *                    uri(PERCENT-ENCODED UTF-8)
 *
 * The lines are sorted, as the Archive sorts them, and have one prefix, for the same reason. What a
 * key and a value may be: store/artifact/destination.h, as when the project was set. Pure. */
#include <stdio.h>
#include <stdlib.h>

#include "sink/internet_archive_internal.h"
#include "store/artifact/destination.h"
#include "json/read.h"

#define HEADERS_MAX (DESTINATION_HEADERS_MAX - DESTINATION_HEADERS_OTHER)

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static bool is_plain(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~') {
            return false;
        }
    }
    return !(s.len >= 4 && strncasecmp(s.ptr, "uri(", 4) == 0);
}

static void put_value(struct buf *out, struct slice s)
{
    static const char hex[] = "0123456789ABCDEF";

    if (is_plain(s)) {
        buf_put_slice(out, s);
        return;
    }
    buf_put_cstr(out, "uri(");
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (is_name_char((char)c) || c == '~' || c == '/') {
            buf_put_char(out, (char)c);
        } else {
            buf_put_char(out, '%');
            buf_put_char(out, hex[c >> 4]);
            buf_put_char(out, hex[c & 15]);
        }
    }
    buf_put_char(out, ')');
}

/* number 0: the only value. */
static void put_line(struct buf *out, unsigned number, struct slice key, struct slice value)
{
    buf_put_cstr(out, "x-archive-meta");
    if (number > 0) {
        buf_printf(out, "%02u", number);
    }
    buf_put_char(out, '-');
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] == '_') {
            buf_put_cstr(out, "--");
        } else {
            buf_put_char(out, key.ptr[i]);
        }
    }
    buf_put_cstr(out, ": ");
    put_value(out, value);
    buf_put_char(out, '\n');
}

/* The texts of a list, each ended by a NUL; those that say nothing are left out. */
static int read_values(struct slice array, struct buf *out, unsigned *count, struct err *e)
{
    struct json_iter it = json_iter_array(array);
    struct slice v;
    int r = 0;

    *count = 0;
    while (r == 0 && json_next_element(&it, &v)) {
        struct slice inner;
        size_t begin = out->len;
        if (!json_string_raw(v, &inner)) {
            it.bad = true;
            break;
        }
        json_unescape(inner, out);
        if (out->failed || out->len == begin) {
            continue;
        }
        r = destination_metadata_value(slice_of(out->ptr + begin, out->len - begin), e);
        buf_put_char(out, '\0');
        *count += 1;
    }
    if (r == 0 && it.bad) {
        r = err_set(e, ERR_USAGE, "metadata is an object of lists of texts");
    }
    return out->failed ? err_set(e, ERR_NO_MEMORY, "no memory for metadata") : r;
}

static int put_key(struct slice key, struct slice array, struct buf *out, struct err *e)
{
    struct buf values = {0};
    unsigned count = 0;
    int r = destination_metadata_key(key, e);

    if (r == 0) {
        r = read_values(array, &values, &count, e);
    }
    if (r == 0 && count > DESTINATION_VALUES_MAX) {
        r = err_set(e, ERR_USAGE, "a metadata key has at most %d values", DESTINATION_VALUES_MAX);
    }
    if (r == 0 && count > 0) {
        struct slice left = buf_slice(&values);
        for (unsigned i = 1; i <= count; i++) {
            struct slice value = slice_of(left.ptr, strlen(left.ptr));
            put_line(out, count == 1 ? 0 : i, key, value);
            left = slice_from(left, value.len + 1);
        }
    }
    buf_free(&values);
    return r;
}

static int compare(const void *a, const void *b)
{
    const struct slice *x = a;
    const struct slice *y = b;

    return slice_cmp(*x, *y);
}

static int sort_lines(struct slice text, struct buf *out, struct err *e)
{
    size_t count = 0;
    struct slice *line;

    for (size_t i = 0; i < text.len; i++) {
        count += text.ptr[i] == '\n' ? 1 : 0;
    }
    if (count == 0) {
        return 0;
    }
    line = calloc(count, sizeof *line);
    if (line == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    }
    for (size_t i = 0; i < count; i++) {
        const char *end = memchr(text.ptr, '\n', text.len);
        line[i] = slice_of(text.ptr, (size_t)(end - text.ptr) + 1);
        text = slice_from(text, line[i].len);
    }
    qsort(line, count, sizeof *line, compare);
    for (size_t i = 0; i < count; i++) {
        buf_put_slice(out, line[i]);
    }
    free(line);
    return out->failed ? err_set(e, ERR_NO_MEMORY, "no memory for metadata") : 0;
}

int archive_meta_headers(struct slice metadata, struct buf *out, struct err *e)
{
    struct json_iter it = json_iter_object(metadata);
    struct buf lines = {0};
    struct slice key;
    struct slice array;
    int r = 0;

    while (r == 0 && json_next_member(&it, &key, &array)) {
        r = put_key(key, array, &lines, e);
    }
    if (r == 0 && it.bad) {
        r = err_set(e, ERR_USAGE, "metadata is an object of lists of texts");
    }
    if (r == 0 && lines.len > HEADERS_MAX) {
        r = err_set(e, ERR_USAGE, "the metadata has %zu bytes as headers; %d are allowed",
                    lines.len, HEADERS_MAX);
    }
    if (r == 0 && lines.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    }
    if (r == 0) {
        r = sort_lines(buf_slice(&lines), out, e);
    }
    buf_free(&lines);
    return r;
}
