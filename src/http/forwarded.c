/* forwarded: proxies that are believed, and what they say (spec/artifacts.md 4.1, cases T14).
 *
 *   Forwarded: for=..;proto=https;host="a.example:8443"     if it is there, it alone counts
 *   X-Forwarded-Proto: https    X-Forwarded-Host: a.example     (without the latter: Host)
 *
 * Each header may hold several values, one a hop. A proxy may pass on what a stranger has sent and
 * append its own, or put its own in front; so that it does not matter which, several values count
 * only when they agree. A value goes into answers: it is checked to be a scheme or an authority.
 *
 * Everything here is an answer: what is not believed is as if it were not there. */
#include "http/forwarded.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/ensure.h"
#include "http/conn.h"
#include "os/os.h"

#define HOST_BYTES_MAX 255

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* ---- addresses ---- */

static void map_v4(uint8_t out[16], const void *four)
{
    memcpy(out, mapped, sizeof mapped);
    memcpy(out + sizeof mapped, four, 4);
}

static struct slice trimmed(struct slice s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/* The next part before `mark`, trimmed; false at the end. */
static bool next_part(struct slice *rest, char mark, struct slice *part)
{
    if (rest->ptr == NULL) {
        return false;
    }
    const char *at = rest->len == 0 ? NULL : memchr(rest->ptr, mark, rest->len);
    size_t n = at == NULL ? rest->len : (size_t)(at - rest->ptr);
    *part = trimmed(slice_of(rest->ptr, n));
    *rest = at == NULL ? (struct slice){0} : slice_from(*rest, n + 1);
    return true;
}

static bool parse_bits(const char *text, unsigned max, unsigned *out)
{
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 3 || text[n] != '\0') {
        return false;
    }
    *out = (unsigned)strtoul(text, NULL, 10);
    return *out <= max;
}

static bool parse_network(struct slice s, struct http_network *out)
{
    char text[64];
    struct in_addr four;
    struct in6_addr six;
    unsigned bits = 0;
    if (s.len == 0 || s.len >= sizeof text || memchr(s.ptr, '\0', s.len) != NULL) {
        return false;
    }
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    char *slash = strchr(text, '/');
    if (slash != NULL) {
        *slash++ = '\0';
    }
    if (inet_pton(AF_INET, text, &four) == 1) {
        map_v4(out->address, &four);
        bool good = slash == NULL || parse_bits(slash, 32, &bits);
        out->bits = slash == NULL ? 128 : 96 + bits;
        return good;
    }
    if (inet_pton(AF_INET6, text, &six) != 1) {
        return false;
    }
    memcpy(out->address, &six, sizeof out->address);
    bool good = slash == NULL || parse_bits(slash, 128, &bits);
    out->bits = slash == NULL ? 128 : bits;
    /* ::ffff:10.0.0.0/8 would be every address of version 4, which nobody means who writes it. */
    return good && (out->bits >= 96 || memcmp(out->address, mapped, sizeof mapped) != 0);
}

int http_networks_parse(const char *list, struct http_networks *out, struct err *e)
{
    struct slice rest = trimmed(slice_cstr(list));
    struct slice part;
    *out = (struct http_networks){.count = 0};
    if (rest.len == 0) {
        return 0;
    }
    while (next_part(&rest, ',', &part)) {
        if (out->count == HTTP_NETWORKS_MAX) {
            return err_set(e, ERR_USAGE, "more than %d addresses", HTTP_NETWORKS_MAX);
        }
        if (!parse_network(part, &out->network[out->count])) {
            int n = (int)(part.len < 60 ? part.len : 60);
            return err_set(e, ERR_USAGE,
                           "\"%.*s\" is no address, or address/bits, as in 10.0.0.0/8", n,
                           part.len > 0 ? part.ptr : "");
        }
        out->count++;
    }
    return 0;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned rest = bits % 8;
    if (memcmp(a, b, bits / 8) != 0) {
        return false;
    }
    return rest == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - rest) == 0;
}

static bool peer_address(const struct http_request *req, uint8_t out[16])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage room;
    } a = {.any = {.sa_family = AF_UNSPEC}};
    unsigned len = sizeof a;
    if (req->unix_socket || req->conn == NULL || os_getpeername(req->conn->fd, &a.any, &len) != 0) {
        return false;
    }
    if (a.any.sa_family == AF_INET) {
        map_v4(out, &a.v4.sin_addr);
        return true;
    }
    memcpy(out, &a.v6.sin6_addr, 16);
    return a.any.sa_family == AF_INET6;
}

bool http_networks_have(const struct http_networks *networks, const uint8_t address[16])
{
    for (unsigned i = 0; i < networks->count; i++) {
        if (same_bits(address, networks->network[i].address, networks->network[i].bits)) {
            return true;
        }
    }
    return false;
}

bool http_peer_is(const struct http_request *req, const struct http_networks *networks)
{
    uint8_t address[16];
    return networks->count > 0 && peer_address(req, address) &&
           http_networks_have(networks, address);
}

/* ---- headers ---- */

/* One thing that several may say: the same, or nothing counts. */
struct said {
    struct slice value;
    unsigned count;
    bool differ;
};

static void say(struct said *s, struct slice value)
{
    s->differ =
        s->differ || (s->count > 0 && (value.len != s->value.len ||
                                       strncasecmp(value.ptr, s->value.ptr, value.len) != 0));
    s->value = value;
    s->count++;
}

static bool is_scheme(struct slice s)
{
    return (s.len == 4 && strncasecmp(s.ptr, "http", 4) == 0) ||
           (s.len == 5 && strncasecmp(s.ptr, "https", 5) == 0);
}

static bool is_digits(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
    }
    return s.len > 0 && s.len <= 5;
}

static bool is_of_v6(char c)
{
    return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= ':') || c == '.';
}

static bool is_of_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
}

/* A name or address, and perhaps a port; how much of it is in front of the port's colon. */
static bool is_authority(struct slice s, size_t *host)
{
    size_t n = 0;
    bool v6 = s.len > 0 && s.ptr[0] == '[';
    if (s.len == 0 || s.len > HOST_BYTES_MAX) {
        return false;
    }
    n = v6 ? 1 : 0;
    while (n < s.len && s.ptr[n] != (v6 ? ']' : ':')) {
        if (!(v6 ? is_of_v6(s.ptr[n]) : is_of_name(s.ptr[n]))) {
            return false;
        }
        n++;
    }
    if (v6 && (n <= 1 || n++ == s.len)) {
        return false;
    }
    *host = n;
    return n > 0 && (n == s.len || (s.ptr[n] == ':' && is_digits(slice_from(s, n + 1))));
}

/* Without the quotes that a parameter may have. */
static struct slice unquoted(struct slice s)
{
    return s.len >= 2 && s.ptr[0] == '"' && s.ptr[s.len - 1] == '"' ? slice_of(s.ptr + 1, s.len - 2)
                                                                    : s;
}

static void read_forwarded(struct slice line, struct said *scheme, struct said *host)
{
    struct slice element;
    struct slice pair;
    while (next_part(&line, ',', &element)) {
        while (next_part(&element, ';', &pair)) {
            if (pair.len > 6 && strncasecmp(pair.ptr, "proto=", 6) == 0) {
                say(scheme, unquoted(slice_from(pair, 6)));
            } else if (pair.len > 5 && strncasecmp(pair.ptr, "host=", 5) == 0) {
                say(host, unquoted(slice_from(pair, 5)));
            }
        }
    }
}

static void read_list(struct slice line, struct said *what)
{
    struct slice value;
    while (next_part(&line, ',', &value)) {
        say(what, value);
    }
}

bool http_forwarded_origin(const struct http_request *req, char out[HTTP_ORIGIN_MAX])
{
    struct said scheme = {.count = 0};
    struct said host = {.count = 0};
    struct slice line;
    size_t n = 0;
    unsigned forwarded = 0;
    for (; http_header_at(req, "forwarded", forwarded, &line); forwarded++) {
        read_forwarded(line, &scheme, &host);
    }
    for (unsigned i = 0; forwarded == 0 && http_header_at(req, "x-forwarded-proto", i, &line);
         i++) {
        read_list(line, &scheme);
    }
    for (unsigned i = 0; forwarded == 0 && http_header_at(req, "x-forwarded-host", i, &line); i++) {
        read_list(line, &host);
    }
    if (host.count == 0 && http_header(req, "host", &line, NULL)) {
        say(&host, line);
    }
    if (scheme.count == 0 || scheme.differ || host.differ || host.count == 0 ||
        !is_scheme(scheme.value) || !is_authority(host.value, &n)) {
        return false;
    }
    bool tls = scheme.value.len == 5;
    struct slice port = slice_from(host.value, n);
    bool usual = slice_eq(port, tls ? SLICE(":443") : SLICE(":80"));
    int len = snprintf(out, HTTP_ORIGIN_MAX, "http%s://%.*s", tls ? "s" : "",
                       (int)(usual ? n : host.value.len), host.value.ptr);
    ensure(len > 0 && len < HTTP_ORIGIN_MAX);
    return true;
}

bool http_was_forwarded(const struct http_request *req)
{
    static const char *const names[] = {"forwarded",        "x-forwarded-for", "x-forwarded-proto",
                                        "x-forwarded-host", "x-real-ip",       "via"};
    struct slice line;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (http_header(req, names[i], &line, NULL)) {
            return true;
        }
    }
    return false;
}
