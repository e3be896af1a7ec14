/* internet_archive_names: what may be the name of an item or of a file there, and metadata as
 * request headers.
 *
 * The rules for names are stricter than the Archive's, whose own are not all written down: names
 * outside of them were refused, or could not be removed again. Headers:
 *
 *   one value        x-archive-meta-KEY: VALUE
 *   several          x-archive-meta01-KEY, meta02-KEY ...; their order is that of the numbers
 *   _ in a key       two hyphens, so that a key which has "--", "-_" or "_-" cannot be told apart
 *   a value that is not printable ASCII without blanks, or looks like "uri(":
 *                    uri(PERCENT-ENCODED UTF-8)
 *
 * Characters that XML cannot hold become U+FFFD, empty values are left out. The lines are sorted,
 * as the Archive sorts them. Pure. */
#include <stdio.h>
#include <stdlib.h>

#include "sink/internet_archive_internal.h"
#include "json/read.h"

#define IDENTIFIER_MIN 5
#define IDENTIFIER_MAX 100
#define META_KEY_MAX   256

static const char *const reserved_tails[] = {"_meta.xml",        "_files.xml", "_meta.sqlite",
                                             "_archive.torrent", "_dc.xml",    "_reviews.xml",
                                             "_rules.conf"};

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_name_char(char c)
{
    return is_alnum(c) || c == '.' || c == '_' || c == '-';
}

const char *archive_identifier_fault(const char *identifier)
{
    size_t n = strlen(identifier);

    if (n < IDENTIFIER_MIN || n > IDENTIFIER_MAX) {
        return "an item's identifier has 5 to 100 characters";
    }
    if (!is_alnum(identifier[0])) {
        return "an item's identifier begins with a letter or digit";
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_name_char(identifier[i])) {
            return "an item's identifier has letters, digits, '.', '_' and '-' alone";
        }
    }
    return NULL;
}

static bool is_reserved(const char *identifier, const char *name)
{
    size_t n = strlen(identifier);

    if (strcmp(name, "__ia_thumb.jpg") == 0 || strncmp(name, "history/", 8) == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof reserved_tails / sizeof *reserved_tails; i++) {
        if (strncmp(name, identifier, n) == 0 && strcmp(name + n, reserved_tails[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool segments_are_plain(const char *name)
{
    for (const char *at = name; *at != '\0';) {
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.')) {
            return false;
        }
        at += n;
        if (*at == '/' && *++at == '\0') {
            return false;
        }
    }
    return true;
}

const char *archive_name_fault(const char *identifier, const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n > ARCHIVE_NAME_MAX) {
        return "a file's name there has 1 to 200 characters";
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_name_char(name[i]) && name[i] != '/') {
            return "a file's name there has letters, digits, '.', '_', '-' and '/' alone";
        }
    }
    if (!segments_are_plain(name)) {
        return "a file's name there has no empty part, and none that is '.' or '..'";
    }
    if (name[0] == '_' || is_reserved(identifier, name)) {
        return "the Archive keeps that name for its own files";
    }
    return NULL;
}

/* ---- metadata ---- */

static const char *key_fault(struct slice key)
{
    if (key.len == 0 || key.len > META_KEY_MAX || key.ptr[0] < 'a' || key.ptr[0] > 'z') {
        return "begins with a letter a to z and has at most 256 characters";
    }
    if (slice_starts(key, SLICE("xml"))) {
        return "does not begin with xml";
    }
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        if (!is_name_char(c) || (c >= 'A' && c <= 'Z')) {
            return "has a to z, 0 to 9, '_', '-' and '.' alone";
        }
        if (i > 0 && (c == '-' || c == '_') && (key.ptr[i - 1] == '-' || key.ptr[i - 1] == '_') &&
            !(c == '_' && key.ptr[i - 1] == '_')) {
            return "has no '--', '-_' or '_-'";
        }
    }
    return NULL;
}

/* The length of what must be U+FFFD for XML's sake at `at`; 0: nothing. */
static size_t illegal_len(struct slice at)
{
    unsigned char c = (unsigned char)at.ptr[0];

    if (c < ' ') {
        return c == '\t' || c == '\n' || c == '\r' ? 0 : 1;
    }
    return slice_starts(at, SLICE("\xef\xbf\xbe")) || slice_starts(at, SLICE("\xef\xbf\xbf")) ? 3
                                                                                              : 0;
}

static void make_legal(struct slice in, struct buf *out)
{
    while (in.len > 0) {
        size_t n = illegal_len(in);
        if (n > 0) {
            buf_put_cstr(out, "\xef\xbf\xbd");
        } else {
            buf_put_char(out, in.ptr[0]);
            n = 1;
        }
        in = slice_from(in, n);
    }
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

/* The values of a key that are not empty, made fit for XML; each ended by a NUL. */
static int read_values(struct slice array, struct buf *out, unsigned *count, struct err *e)
{
    struct json_iter it = json_iter_array(array);
    struct buf text = {0};
    struct slice v;
    int r = 0;

    *count = 0;
    while (json_next_element(&it, &v)) {
        struct slice inner;
        if (!json_string_raw(v, &inner)) {
            it.bad = true;
            break;
        }
        buf_clear(&text);
        json_unescape(inner, &text);
        if (text.len > 0) {
            make_legal(buf_slice(&text), out);
            buf_put_char(out, '\0');
            *count += 1;
        }
    }
    if (text.failed || out->failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    } else if (it.bad) {
        r = err_set(e, ERR_USAGE, "metadata is an object of lists of texts");
    }
    buf_free(&text);
    return r;
}

static int put_key(struct slice key, struct slice array, struct buf *out, struct err *e)
{
    struct buf values = {0};
    const char *fault = key_fault(key);
    unsigned count = 0;
    int r = 0;

    if (fault != NULL) {
        return err_set(e, ERR_USAGE, "a metadata key of the Archive %s: %.*s", fault,
                       (int)(key.len < 80 ? key.len : 80), key.ptr);
    }
    r = read_values(array, &values, &count, e);
    if (r == 0 && count > ARCHIVE_VALUES_MAX) {
        r = err_set(e, ERR_USAGE, "the metadata key %.*s has more than %u values", (int)key.len,
                    key.ptr, ARCHIVE_VALUES_MAX);
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
    if (r == 0 && lines.len > ARCHIVE_HEADERS_MAX) {
        r = err_set(e, ERR_USAGE, "the metadata has %zu bytes as headers; %u are allowed",
                    lines.len, ARCHIVE_HEADERS_MAX);
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
