/* What a server says, judged: URLs, waits, receipts. Nothing here asks the system for anything but
 * memory, and everything that is refused is an answer to the operator.
 *
 * A Location of another origin is refused because the file would go to somebody the operator has
 * not named. URLs are taken apart by libcurl, which also sends the requests: there is no second
 * opinion about what a URL means. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

#include "base/ensure.h"
#include "main/tus_client_internal.h"
#include "json/canon.h"
#include "json/read.h"

#define WAIT_FIRST_MS      1000
#define WAIT_FIRST_LOST_MS 100
#define WAIT_MAX_MS        30000

void tus_put_base64(struct buf *out, struct slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++) {
            v = v << 8 | (k < n ? (unsigned char)bytes.ptr[i + k] : 0u);
        }
        for (size_t k = 0; k < 4; k++) {
            buf_put_char(out, k <= n ? digits[v >> (18 - 6 * k) & 63] : '=');
        }
    }
}

static int base64_digit(char c)
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
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

bool tus_base64_decode(struct slice text, struct buf *out)
{
    size_t len = text.len;
    while (len > 0 && text.len - len < 2 && text.ptr[len - 1] == '=') {
        len--;
    }
    if (len % 4 == 1 || (len != text.len && text.len % 4 != 0)) {
        return false;
    }
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < len; i++) {
        int digit = base64_digit(text.ptr[i]);
        if (digit < 0) {
            return false;
        }
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            buf_put_char(out, (char)(unsigned char)(bits >> held & 0xff));
        }
    }
    return (bits & ((1u << held) - 1)) == 0 && !out->failed;
}

/* The text is curl_free's; NULL when the URL has no such part. */
static char *part_of(CURLU *u, CURLUPart part, unsigned flags)
{
    char *text = NULL;
    return curl_url_get(u, part, &text, flags) == CURLUE_OK ? text : NULL;
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *x = part_of(a, part, CURLU_DEFAULT_PORT);
    char *y = part_of(b, part, CURLU_DEFAULT_PORT);
    bool same = x != NULL && y != NULL && strcasecmp(x, y) == 0;
    curl_free(x);
    curl_free(y);
    return same;
}

static bool same_origin(CURLU *a, CURLU *b)
{
    return same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) &&
           same_part(a, b, CURLUPART_PORT);
}

static bool has_part(CURLU *u, CURLUPart part)
{
    char *text = part_of(u, part, 0);
    curl_free(text);
    return text != NULL;
}

bool tus_same_origin(const char *a, const char *b)
{
    CURLU *x = curl_url();
    CURLU *y = curl_url();
    bool same = x != NULL && y != NULL && curl_url_set(x, CURLUPART_URL, a, 0) == CURLUE_OK &&
                curl_url_set(y, CURLUPART_URL, b, 0) == CURLUE_OK && same_origin(x, y);
    curl_url_cleanup(x);
    curl_url_cleanup(y);
    return same;
}

static bool scheme_is_http(CURLU *u)
{
    char *scheme = part_of(u, CURLUPART_SCHEME, 0);
    bool http = scheme != NULL && (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    curl_free(scheme);
    return http;
}

int tus_resolve(const char *request_url, const char *location, bool socket, char out[TUS_URL_MAX],
                struct err *e)
{
    CURLU *base = curl_url();
    CURLU *u = curl_url();
    char *text = NULL;
    char id[TUS_ID_MAX];
    int r = ERR_REFUSED;
    if (base == NULL || u == NULL) {
        r = err_set(e, ERR_NO_MEMORY, "out of memory");
        goto out;
    }
    bool parsed = location[0] != '\0' &&
                  curl_url_set(base, CURLUPART_URL, request_url, 0) == CURLUE_OK &&
                  curl_url_set(u, CURLUPART_URL, request_url, 0) == CURLUE_OK &&
                  curl_url_set(u, CURLUPART_URL, location, 0) == CURLUE_OK && scheme_is_http(u) &&
                  !has_part(u, CURLUPART_USER) && !has_part(u, CURLUPART_PASSWORD) &&
                  curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK;
    text = parsed ? part_of(u, CURLUPART_URL, 0) : NULL;
    if (text == NULL || !tus_object_id(text, id)) {
        (void)err_set(e, r, "the Location \"%.120s\" is no URL of an upload", location);
        goto out;
    }
    if (!same_origin(base, u)) {
        if (!socket) {
            (void)err_set(e, r, "the Location \"%.120s\" leads to another server; nothing was sent",
                          location);
            goto out;
        }
        const char *last = strrchr(text, '/') + 1; /* there is one: it has an id behind it */
        const struct slice segment = slice_of(last, strcspn(last, "?"));
        int n = snprintf(out, TUS_URL_MAX, "%s%.*s", request_url, (int)segment.len, segment.ptr);
        r = n > 0 && n < TUS_URL_MAX ? 0 : err_set(e, r, "the Location is too long");
        goto out;
    }
    size_t len = strlen(text);
    if (len >= TUS_URL_MAX) {
        (void)err_set(e, r, "the Location is too long");
        goto out;
    }
    memcpy(out, text, len + 1);
    r = 0;
out:
    curl_free(text);
    curl_url_cleanup(base);
    curl_url_cleanup(u);
    return r;
}

bool tus_object_id(const char *url, char out[TUS_ID_MAX])
{
    CURLU *u = curl_url();
    char *path = u != NULL && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK
                     ? part_of(u, CURLUPART_PATH, 0)
                     : NULL;
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    int len = 0;
    char *id = slash != NULL ? curl_easy_unescape(NULL, slash + 1, 0, &len) : NULL;
    bool good =
        id != NULL && len > 0 && len < TUS_ID_MAX && strcmp(id, ".") != 0 && strcmp(id, "..") != 0;
    for (int i = 0; good && i < len; i++) {
        good = (unsigned char)id[i] > 0x20 && id[i] != '/' && id[i] != 0x7f;
    }
    if (good) {
        memcpy(out, id, (size_t)len);
        out[len] = '\0';
    }
    curl_free(id);
    curl_free(path);
    curl_url_cleanup(u);
    return good;
}

bool tus_client_number(struct slice value, uint64_t *out)
{
    uint64_t v = 0;
    if (value.len == 0 || value.len > 19) {
        return false;
    }
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(value.ptr[i] - '0'); /* 19 nines fit 64 bits */
    }
    *out = v;
    return v <= INT64_MAX;
}

bool tus_retry_after_ms(struct slice value, uint64_t now_ms, uint64_t *out)
{
    char text[40]; /* the longest spelling of a date has 33 */
    uint64_t seconds = client_retry_after_s(value, UINT64_MAX);
    if (seconds != UINT64_MAX) {
        *out = seconds * 1000; /* nine digits at most */
        return true;
    }
    if (value.len == 0 || value.len >= sizeof text) {
        return false;
    }
    memcpy(text, value.ptr, value.len);
    text[value.len] = '\0';
    /* libcurl's reader of dates takes plain numbers too, which were decided above. */
    bool number = text[strspn(text, " \t0123456789+-.")] == '\0';
    time_t at = number ? -1 : curl_getdate(text, NULL);
    if (at < 0 || (uint64_t)at * 1000 <= now_ms) {
        return false;
    }
    *out = (uint64_t)at * 1000 - now_ms;
    return true;
}

uint64_t tus_wait_ms(unsigned tries, bool lost, uint32_t random)
{
    uint64_t ms = lost ? WAIT_FIRST_LOST_MS : WAIT_FIRST_MS;
    for (unsigned i = 1; i < tries && ms < WAIT_MAX_MS; i++) {
        ms *= 2;
    }
    ms = ms > WAIT_MAX_MS ? WAIT_MAX_MS : ms;
    return ms / 2 + random % (ms / 2 + 1);
}

void tus_first_line(struct slice body, char *out, size_t size)
{
    size_t n = 0;
    ensure(size > 0);
    while (n < body.len && n + 1 < size && body.ptr[n] != '\n' && body.ptr[n] != '\r') {
        out[n] = (unsigned char)body.ptr[n] < 0x20 || body.ptr[n] == 0x7f ? '?' : body.ptr[n];
        n++;
    }
    out[n] = '\0';
}

static bool text_is(struct slice object, struct slice name, const char *expected)
{
    struct slice value;
    struct slice inner;
    return json_member(object, name, &value) && json_string_raw(value, &inner) &&
           json_string_is(inner, slice_cstr(expected));
}

static bool one_line(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] < 0x20) {
            return false;
        }
    }
    return true;
}

int tus_receipt_take(struct slice json, const struct tus_session *s, struct buf *out, struct err *e)
{
    struct canon *canon = canon_new();
    struct buf strict;
    struct slice value;
    uint64_t size = 0;
    buf_init(&strict, 0);
    while (json.len > 0 && strchr(" \t\r\n", json.ptr[json.len - 1]) != NULL) {
        json.len--;
    }
    int r = canon == NULL                ? ERR_NO_MEMORY
            : json.len > TUS_RECEIPT_MAX ? ERR_JSON
                                         : canon_json(canon, json, &strict, NULL);
    const struct slice receipt = buf_slice(&strict);
    if (r == ERR_NO_MEMORY) {
        (void)err_set(e, r, "out of memory");
    } else if (r != 0 || json_type_of(receipt) != JSON_OBJECT) {
        r = err_set(e, ERR_REFUSED, "what the server sent as the receipt is none");
    } else if (!text_is(receipt, SLICE("object_id"), s->object_id)) {
        r = err_set(e, ERR_REFUSED, "the receipt is for another object");
    } else if (!text_is(receipt, SLICE("checksum"), s->checksum)) {
        r = err_set(e, ERR_REFUSED, "the receipt is for other bytes: its checksum is not ours");
    } else if (!json_member(receipt, SLICE("size_bytes"), &value) || !json_u64(value, &size) ||
               size != s->size_bytes) {
        r = err_set(e, ERR_REFUSED, "the receipt is for another size");
    } else {
        /* As the server has it, unless that would be several lines. */
        buf_clear(out);
        buf_put_slice(out, one_line(json) ? json : receipt);
        r = out->failed ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
    }
    canon_free(canon);
    buf_free(&strict);
    return r;
}
