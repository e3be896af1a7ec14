/* metadata: Upload-Metadata, a comma list of `key base64value` (spec/tus.md section 2, cases T10
 * and T11).
 *
 * The whole list is checked, also the pairs that mean nothing to us: it is given back on HEAD as it
 * was sent. Used are project, checksum and filename. A filename is never a reason to refuse: one
 * that is too long, or no UTF-8, or has a NUL in it counts as none. Nothing here gets near a path.
 *
 * Everything is an answer to a client. Cost: keys are compared with each other, so their number is
 * bounded. */
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "door/artifact/head.h"
#include "json/write.h"

#define KEY_SHOWN_MAX 64

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct slice trim(struct slice s)
{
    while (s.len > 0 && is_blank(s.ptr[0])) {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && is_blank(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Characters in front of the padding; false when the form is wrong. */
static bool base64_check(struct slice text, size_t *characters)
{
    size_t n = text.len;
    if (n % 4 != 0) {
        return false;
    }
    while (n > 0 && text.len - n < 2 && text.ptr[n - 1] == '=') {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        if (base64_value(text.ptr[i]) < 0) {
            return false;
        }
    }
    *characters = n;
    return true;
}

/* Decodes n checked characters; the length, or SIZE_MAX when it is more than cap. */
static size_t base64_decode(const char *text, size_t n, char *out, size_t cap)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t len = 0;
    if (n / 4 * 3 + (n % 4 == 0 ? 0 : n % 4 - 1) > cap) {
        return SIZE_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        int v = base64_value(text[i]);
        ensure(v >= 0);
        bits = (bits << 6 | (uint32_t)v) & 0xFFFF;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[len++] = (char)(bits >> have & 0xFF);
        }
    }
    ensure(len <= cap);
    return len;
}

bool metadata_base64(struct slice text, char *out, size_t cap, size_t *len)
{
    size_t n = 0;
    if (!base64_check(text, &n)) {
        return false;
    }
    *len = base64_decode(text.ptr, n, out, cap);
    return *len != SIZE_MAX;
}

/* The text of a value of at most cap - 1 bytes, or an empty one. */
static void take_text(const char *text, size_t n, char *out, size_t cap)
{
    size_t len = base64_decode(text, n, out, cap - 1);
    if (len == SIZE_MAX || memchr(out, '\0', len) != NULL ||
        !utf8_valid(slice_of(out, len), NULL)) {
        len = 0;
    }
    out[len] = '\0';
}

static void take_checksum(const char *text, size_t n, char out[BLAKE3_HEX_LEN + 1])
{
    static const char prefix[] = "blake3:";
    char value[sizeof prefix + BLAKE3_HEX_LEN];
    take_text(text, n, value, sizeof value);
    out[0] = '\0';
    if (slice_starts(slice_cstr(value), slice_cstr(prefix)) && strlen(value) == sizeof value - 1) {
        memcpy(out, value + sizeof prefix - 1, BLAKE3_HEX_LEN + 1);
    }
}

static void take(struct slice key, const char *text, size_t n, struct metadata *out)
{
    if (slice_eq(key, SLICE("project"))) {
        out->has_project = true;
        take_text(text, n, out->project, sizeof out->project);
    } else if (slice_eq(key, SLICE("checksum"))) {
        out->has_checksum = true;
        take_checksum(text, n, out->checksum);
    } else if (slice_eq(key, SLICE("filename"))) {
        take_text(text, n, out->filename, sizeof out->filename);
    }
}

static int bad(struct err *e, struct slice key, const char *what)
{
    int n = (int)(key.len < KEY_SHOWN_MAX ? key.len : KEY_SHOWN_MAX);
    return err_set(e, ERR_INVALID_METADATA, "Upload-Metadata: the key \"%.*s\" %s", n, key.ptr,
                   what);
}

static int take_pair(struct slice pair, struct slice *key, struct metadata *out, struct err *e)
{
    size_t n = 0;
    *key = pair;
    while (n < pair.len && !is_blank(pair.ptr[n])) {
        if (pair.ptr[n] < 0x21 || pair.ptr[n] > 0x7e) {
            return err_set(e, ERR_INVALID_METADATA,
                           "Upload-Metadata: a key has a byte that is not visible ASCII");
        }
        n++;
    }
    key->len = n;
    if (n == 0) {
        return bad(e, *key, "is empty");
    }
    struct slice value = trim(slice_from(pair, n));
    if (!base64_check(value, &n)) {
        return bad(e, *key, "has a value that is not base64");
    }
    take(*key, value.ptr, n, out);
    return 0;
}

int metadata_parse(struct slice list, struct metadata *out, struct err *e)
{
    struct slice keys[METADATA_KEYS_MAX];
    unsigned count = 0;
    *out = (struct metadata){0};
    if (list.len > UPLOAD_METADATA_MAX) {
        return err_set(e, ERR_INVALID_METADATA, "Upload-Metadata is longer than %d bytes",
                       UPLOAD_METADATA_MAX);
    }
    struct slice rest = trim(list);
    bool more = rest.len > 0;
    while (more) {
        const char *comma = memchr(rest.ptr, ',', rest.len);
        size_t n = comma == NULL ? rest.len : (size_t)(comma - rest.ptr);
        if (count == METADATA_KEYS_MAX) {
            return err_set(e, ERR_INVALID_METADATA, "Upload-Metadata has more than %d keys",
                           METADATA_KEYS_MAX);
        }
        int r = take_pair(trim(slice_of(rest.ptr, n)), &keys[count], out, e);
        if (r != 0) {
            return r;
        }
        for (unsigned i = 0; i < count; i++) {
            if (slice_eq(keys[i], keys[count])) {
                return bad(e, keys[count], "is there more than once");
            }
        }
        count++;
        more = comma != NULL;
        rest = slice_from(rest, n + (more ? 1 : 0));
    }
    return 0;
}

int metadata_project(const struct metadata *m, struct err *e)
{
    if (!m->has_project) {
        return err_set(e, ERR_INVALID_PROJECT, "Upload-Metadata has no project");
    }
    for (const char *p = m->project; *p != '\0'; p++) {
        bool fit = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                   (*p >= '0' && *p <= '9') || strchr("._:-", *p) != NULL;
        if (!fit) {
            return err_set(e, ERR_INVALID_PROJECT, "this is no name of a project");
        }
    }
    return m->project[0] != '\0' ? 0
                                 : err_set(e, ERR_INVALID_PROJECT, "this is no name of a project");
}

int metadata_checksum(const struct metadata *m, struct err *e)
{
    bool fit = m->checksum[0] != '\0';
    for (const char *p = m->checksum; *p != '\0'; p++) {
        fit = fit && ((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f'));
    }
    if (!fit) {
        return err_set(e, ERR_INVALID_CHECKSUM,
                       m->has_checksum
                           ? "checksum must be blake3: and 64 lower-case hexadecimal digits"
                           : "Upload-Metadata has no checksum (blake3: and 64 digits)");
    }
    return 0;
}
