/* forwarded: what a proxy in front of us says of the request that it passes on: the scheme and the
 * host that its client used, and who that was. Believed is a proxy that is listed, and nobody else:
 * anybody can write such headers.
 *
 * Threads: a list is read by any; the rest is the loop's. */
#ifndef HTTP_FORWARDED_H
#define HTTP_FORWARDED_H

#include "http/http.h"

#define HTTP_NETWORKS_MAX 32

struct http_network {
    uint8_t address[16]; /* of IPv4: mapped, ::ffff:a.b.c.d */
    unsigned bits;       /* of the 128 */
};

/* Zeroed: nobody. */
struct http_networks {
    unsigned count;
    struct http_network network[HTTP_NETWORKS_MAX];
};

/* "127.0.0.1, 10.0.0.0/8, fd00::/8": numeric addresses with or without a length of their prefix;
 * blanks around the commas are fine, an empty list is. ERR_USAGE names the part that is wrong. */
int http_networks_parse(const char *list, struct http_networks *out, struct err *e) MUST_CHECK;
/* address: 16 bytes, IPv4 mapped. */
bool http_networks_have(const struct http_networks *networks, const uint8_t address[16]);
/* Whether the far end of the request's connection is one of them. */
bool http_peer_is(const struct http_request *req, const struct http_networks *networks);

#define HTTP_ADDRESS_MAX 48
/* Who is counted as one client: the address of the connection's far end or, where that is one of
 * the networks, of the last in the proxies' list that is not; as text, with the network half of an
 * IPv6 one only. "": of this machine, a local socket's, or a proxy's that names nobody. "?": all of
 * whom it says nothing that counts: no address, or two headers that differ. */
void http_client_address(const struct http_request *req, const struct http_networks *proxies,
                         char out[HTTP_ADDRESS_MAX]);

#define HTTP_ORIGIN_MAX 300
/* "https://files.example:8443" as the headers say, without a default port; the caller has made sure
 * of who says so. False: they do not say a scheme, or anything that is no scheme or host, or
 * several of them say different things. */
bool http_forwarded_origin(const struct http_request *req, char out[HTTP_ORIGIN_MAX]);
/* Whether anybody in front of us has left a trace in the headers; proves nothing. */
bool http_was_forwarded(const struct http_request *req);

#endif
