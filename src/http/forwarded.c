/* forwarded: proxies that are believed, and what they say (spec/artifacts.md 4.1, cases T14).
 *
 *   Forwarded: for=..;proto=https;host="a.example:8443"     if it is there, it alone counts
 *   X-Forwarded-Proto: https    X-Forwarded-Host: a.example     (without the latter: Host)
 *
 * Each header may hold several values, one a hop. A proxy may pass on what a stranger has sent and
 * append its own, or put its own in front; so that it does not matter which, several values count
 * only when they agree. A value goes into answers: it is checked to be a scheme or an authority.
 *
 *   Forwarded: for=192.0.2.7, for="[2001:db8::1]:4711"    X-Forwarded-For: 192.0.2.7, 10.0.0.3
 *
 * Who the client is, every proxy appends: the last that is no proxy of ours is the one that one of
 * ours has seen; what stands before it a stranger may have written. Most proxies append to one of
 * the two headers and pass the other on as it came, so that here both must agree: nobody gets away
 * from his share by writing the other one himself.
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

#define HOST_BYTES_MAX   255
#define ADDRESS_TEXT_MAX 64

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

static bool as_text(struct slice s, char out[ADDRESS_TEXT_MAX])
{
    if (s.len == 0 || s.len >= ADDRESS_TEXT_MAX || memchr(s.ptr, '\0', s.len) != NULL) {
        return false;
    }
    memcpy(out, s.ptr, s.len);
    out[s.len] = '\0';
    return true;
}

/* *v4 may be NULL: whether it was written as one of version 4. */
static bool parse_address(const char *text, uint8_t out[16], bool *v4)
{
    struct in_addr four;
    bool is_v4 = inet_pton(AF_INET, text, &four) == 1;
    if (is_v4) {
        map_v4(out, &four);
    }
    if (v4 != NULL) {
        *v4 = is_v4;
    }
    return is_v4 || inet_pton(AF_INET6, text, out) == 1;
}

static bool parse_network(struct slice s, struct http_network *out)
{
    char text[ADDRESS_TEXT_MAX];
    unsigned bits = 0;
    bool v4;
    if (!as_text(s, text)) {
        return false;
    }
    char *slash = strchr(text, '/');
    if (slash != NULL) {
        *slash++ = '\0';
    }
    if (!parse_address(text, out->address, &v4)) {
        return false;
    }
    if (v4) {
        bool good = slash == NULL || parse_bits(slash, 32, &bits);
        out->bits = slash == NULL ? 128 : 96 + bits;
        return good;
    }
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

/* ---- the client ---- */

/* The last of a list that is none of our proxies, or the first where all are. */
struct hops {
    const struct http_networks *proxies;
    bool said, known; /* there is one; its address can be told */
    uint8_t address[16];
};

/* "192.0.2.7", "192.0.2.7:80", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80". */
static bool parse_hop(struct slice s, uint8_t out[16])
{
    char text[ADDRESS_TEXT_MAX];
    if (!as_text(s, text)) {
        return false;
    }
    bool bracket = text[0] == '[';
    char *end = strchr(text, bracket ? ']' : ':');
    const char *port = end;
    if (bracket) {
        if (end == NULL) {
            return false;
        }
        *end = '\0';
        port = end[1] != '\0' ? end + 1 : NULL;
    } else if (end != NULL && strchr(end + 1, ':') == NULL) {
        *end = '\0'; /* one colon alone: of a port */
    } else {
        port = NULL; /* more are an address's */
    }
    return (port == NULL || is_digits(slice_cstr(port + 1))) &&
           (!bracket || strchr(text, ':') != NULL) &&
           parse_address(text + (bracket ? 1 : 0), out, NULL);
}

static void hop(struct hops *h, struct slice text)
{
    uint8_t address[16];
    bool known = parse_hop(text, address);
    if (!(known && http_networks_have(h->proxies, address)) || !h->said) {
        h->known = known;
        memcpy(h->address, address, known ? sizeof address : 0);
    }
    h->said = true;
}

/* A proxy that appends an element without `for` names nobody: what stands before it is not his. */
static void read_for(struct slice line, struct hops *h)
{
    struct slice element;
    struct slice pair;
    while (next_part(&line, ',', &element)) {
        bool names = false;
        while (next_part(&element, ';', &pair)) {
            if (pair.len >= 4 && strncasecmp(pair.ptr, "for=", 4) == 0) {
                hop(h, unquoted(slice_from(pair, 4)));
                names = true;
            }
        }
        h->known = h->known && names;
    }
}

/* False: nobody is named. *known false: nobody who can be told. */
static bool forwarded_for(const struct http_request *req, const struct http_networks *proxies,
                          uint8_t out[16], bool *known)
{
    struct hops new = {.proxies = proxies};
    struct hops old = {.proxies = proxies};
    struct slice line;
    struct slice value;
    for (unsigned i = 0; http_header_at(req, "forwarded", i, &line); i++) {
        read_for(line, &new);
    }
    for (unsigned i = 0; http_header_at(req, "x-forwarded-for", i, &line); i++) {
        while (next_part(&line, ',', &value)) {
            hop(&old, value);
        }
    }
    const struct hops *h = new.said ? &new : &old;
    *known = h->known;
    if (new.said && old.said) {
        *known = new.known &&old.known &&memcmp(new.address, old.address, sizeof new.address) == 0;
    }
    memcpy(out, h->address, *known ? sizeof h->address : 0);
    return h->said;
}

static void address_text(uint8_t address[16], char out[HTTP_ADDRESS_MAX])
{
    static const uint8_t loopback[16] = {[15] = 1};
    if (memcmp(address, mapped, sizeof mapped) == 0) {
        if (address[12] != IN_LOOPBACKNET) {
            (void)inet_ntop(AF_INET, address + 12, out, HTTP_ADDRESS_MAX);
        }
    } else if (memcmp(address, loopback, sizeof loopback) != 0) {
        memset(address + 8, 0, 8);
        (void)inet_ntop(AF_INET6, address, out, HTTP_ADDRESS_MAX);
    }
}

void http_client_address(const struct http_request *req, const struct http_networks *proxies,
                         char out[HTTP_ADDRESS_MAX])
{
    uint8_t address[16];
    bool known = true;
    memset(out, 0, HTTP_ADDRESS_MAX);
    if (!peer_address(req, address) ||
        (http_networks_have(proxies, address) && !forwarded_for(req, proxies, address, &known))) {
        return;
    }
    if (known) {
        address_text(address, out);
    } else {
        out[0] = '?';
    }
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
