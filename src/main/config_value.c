/* Values: from text to a checked field, and back to JSON. Every spelling is decimal digits with at
 * most one suffix; products are checked for overflow before the range is. Paths and addresses are
 * not looked up here: what needs the system is found by who uses it. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/args.h"
#include "main/config_internal.h"
#include "net/transfer.h"
#include "json/write.h"

struct suffix {
    const char *name;
    uint64_t factor;
};

static const struct suffix bytes_suffixes[] = {
    {"", 1}, {"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}, {NULL, 0}};
static const struct suffix ms_suffixes[] = {
    {"", 1}, {"ms", 1}, {"s", 1000}, {"min", 60000}, {NULL, 0}};
static const struct suffix no_suffixes[] = {{"", 1}, {NULL, 0}};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static const size_t offsets[CONFIG_KEY_COUNT] = {
#define X(sym, field, type, def, min, max, flag, env, help) offsetof(struct config, field),
    CONFIG_KEYS(X)
#undef X
};

static void *field_of(struct config *c, enum config_key k)
{
    ensure(k < CONFIG_KEY_COUNT);
    return (char *)c + offsets[k];
}

static const void *field_of_const(const struct config *c, enum config_key k)
{
    ensure(k < CONFIG_KEY_COUNT);
    return (const char *)c + offsets[k];
}

static bool parse_number(const char *text, const struct suffix *suffixes, uint64_t *out)
{
    char digits[24];
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n >= sizeof digits) {
        return false;
    }
    memcpy(digits, text, n);
    digits[n] = '\0';
    for (const struct suffix *s = suffixes; s->name != NULL; s++) {
        if (strcmp(text + n, s->name) == 0) {
            uint64_t v = 0;
            return args_u64(digits, &v) && !__builtin_mul_overflow(v, s->factor, out);
        }
    }
    return false;
}

bool config_bytes(const char *text, uint64_t *out)
{
    return parse_number(text, bytes_suffixes, out);
}

static int set_number(struct config *c, enum config_key k, const char *text, struct err *e)
{
    const struct config_row *row = &config_rows[k];
    bool bytes = row->type == CONFIG_BYTES;
    bool ms = row->type == CONFIG_MS;
    uint64_t v = 0;
    if (!parse_number(text, bytes ? bytes_suffixes : ms ? ms_suffixes : no_suffixes, &v)) {
        return err_set(e, ERR_USAGE, "\"%.40s\" is not %s", text,
                       bytes ? "a size (a number of bytes, or with KiB, MiB or GiB behind it)"
                       : ms
                           ? "a duration (a number of milliseconds, or with ms, s or min behind it)"
                           : "a whole number");
    }
    if (v < row->min || v > row->max) {
        return err_set(e, ERR_USAGE, "must be from %llu to %llu%s", (unsigned long long)row->min,
                       (unsigned long long)row->max,
                       bytes ? " bytes"
                       : ms  ? " milliseconds"
                             : "");
    }
    if (k == CONFIG_LOW_SPACE_STATUS && v != 429 && v != 503) {
        return err_set(e, ERR_USAGE, "must be 429 or 503");
    }
    *(uint64_t *)field_of(c, k) = v;
    return 0;
}

/* What http_listen_tcp takes: IPV4:PORT, localhost:PORT or [IPV6]:PORT. */
static bool address_valid(const char *text)
{
    char host[INET6_ADDRSTRLEN + 2];
    union {
        struct in_addr v4;
        struct in6_addr v6;
    } unused;
    const char *colon = strrchr(text, ':');
    uint64_t port = 0;
    size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    if (n == 0 || n >= sizeof host || !args_u64(colon + 1, &port) || port > 65535) {
        return false;
    }
    memcpy(host, text, n);
    host[n] = '\0';
    if (host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        return inet_pton(AF_INET6, host + 1, &unused.v6) == 1;
    }
    return strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &unused.v4) == 1;
}

/* HOST, HOST:PORT or [V6]:PORT of a URL; names are not looked up. */
static bool authority_valid(const char *text, size_t n)
{
    const char *end = text + n;
    const char *host_end = *text == '[' ? memchr(text, ']', n) : memchr(text, ':', n);
    if (*text == '[') {
        if (host_end == NULL || host_end == text + 1) {
            return false;
        }
        host_end++;
    } else if (host_end == NULL) {
        host_end = end;
    }
    if (host_end == text || memchr(text, '@', n) != NULL) {
        return false;
    }
    if (host_end == end) {
        return true;
    }
    char port[6];
    size_t digits = (size_t)(end - host_end) - 1;
    uint64_t v = 0;
    if (*host_end != ':' || digits == 0 || digits >= sizeof port) {
        return false;
    }
    memcpy(port, host_end + 1, digits);
    port[digits] = '\0';
    return args_u64(port, &v) && v <= 65535;
}

/* An absolute http(s) URL, as it may stand in a header, in JSON and in a log. */
static int check_url(const char *text, bool bare, struct err *e)
{
    bool http = strncmp(text, "http://", 7) == 0;
    if (!http && strncmp(text, "https://", 8) != 0) {
        return err_set(e, ERR_USAGE, "must begin with http:// or https://");
    }
    for (const char *p = text; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~' || strchr("\"<>\\^`{|}", *p) != NULL) {
            return err_set(e, ERR_USAGE, "has a character that a URL cannot have");
        }
    }
    const char *host = text + (http ? 7 : 8);
    if (!authority_valid(host, strcspn(host, "/?#"))) {
        return err_set(e, ERR_USAGE,
                       "must be http://HOST, http://HOST:PORT or https://, without a user");
    }
    if (strchr(text, '#') != NULL || (bare && strchr(text, '?') != NULL)) {
        return err_set(e, ERR_USAGE, "must have no %s",
                       bare ? "query and no fragment" : "fragment");
    }
    return 0;
}

static int set_text(struct config *c, enum config_key k, const char *text, struct err *e)
{
    const struct config_row *row = &config_rows[k];
    size_t len = strlen(text);
    if (len < row->min) {
        return err_set(e, ERR_USAGE, "must not be empty");
    }
    if (len > row->max) {
        return err_set(e, ERR_USAGE, "must not be longer than %llu bytes",
                       (unsigned long long)row->max);
    }
    if (k == CONFIG_LISTEN && len > 0 && !address_valid(text)) {
        return err_set(e, ERR_USAGE,
                       "\"%.60s\" is not ADDRESS:PORT (an IPv4 address, localhost, or an IPv6 "
                       "address in brackets)",
                       text);
    }
    bool archive = k == CONFIG_ARCHIVE_S3_URL || k == CONFIG_ARCHIVE_METADATA_URL;
    bool bare = archive || k == CONFIG_PUBLIC_URL;
    if ((k == CONFIG_ISSUER || bare) && len > 0) {
        int r = check_url(text, bare, e);
        if (r != 0) {
            return r;
        }
    }
    if (archive && !transfer_is_https(text) && !transfer_is_loopback(text)) {
        return err_set(e, ERR_USAGE, "must begin with https:// (http:// to this machine only)");
    }
    while (bare && len > 0 && text[len - 1] == '/') {
        len--; /* paths that are put behind it begin with one */
    }
    char *copy = strndup(text, len);
    if (copy == NULL) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    char **field = field_of(c, k);
    free(*field);
    *field = copy;
    return 0;
}

static int set_level(struct config *c, enum config_key k, const char *text, struct err *e)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *(enum log_level *)field_of(c, k) = (enum log_level)i;
            return 0;
        }
    }
    return err_set(e, ERR_USAGE, "\"%.40s\" is not debug, info, warn or error", text);
}

static int set_flag(struct config *c, enum config_key k, const char *text, struct err *e)
{
    bool on = strcmp(text, "on") == 0;
    if (!on && strcmp(text, "off") != 0) {
        return err_set(e, ERR_USAGE, "\"%.40s\" is not on or off", text);
    }
    *(bool *)field_of(c, k) = on;
    return 0;
}

int config_set(struct config *c, enum config_key k, struct slice text, enum config_origin from,
               struct err *e)
{
    if (memchr(text.ptr, '\0', text.len) != NULL) {
        return err_set(e, ERR_USAGE, "must not contain a NUL character");
    }
    char *copy = strndup(text.ptr, text.len);
    if (copy == NULL) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    int r = 0;
    switch (config_rows[k].type) {
    case CONFIG_TEXT:
        r = set_text(c, k, copy, e);
        break;
    case CONFIG_LEVEL:
        r = set_level(c, k, copy, e);
        break;
    case CONFIG_FLAG:
        r = set_flag(c, k, copy, e);
        break;
    case CONFIG_BYTES:
    case CONFIG_UINT:
    case CONFIG_MS:
        r = set_number(c, k, copy, e);
        break;
    }
    free(copy);
    if (r == 0) {
        c->origin[k] = from;
    }
    return r;
}

void config_put_value(const struct config *c, enum config_key k, struct buf *out)
{
    const void *field = field_of_const(c, k);
    switch (config_rows[k].type) {
    case CONFIG_TEXT:
        json_put_string(out, slice_cstr(*(char *const *)field));
        break;
    case CONFIG_LEVEL:
        json_put_string(out, slice_cstr(level_names[*(const enum log_level *)field]));
        break;
    case CONFIG_FLAG:
        json_put_string(out, slice_cstr(*(const bool *)field ? "on" : "off"));
        break;
    case CONFIG_BYTES:
    case CONFIG_UINT:
    case CONFIG_MS:
        buf_put_u64(out, *(const uint64_t *)field);
        break;
    }
}
