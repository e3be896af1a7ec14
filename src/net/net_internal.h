/* What the files of net/ share. */
#ifndef NET_INTERNAL_H
#define NET_INTERNAL_H

#include <curl/curl.h>

#include "net/net.h"

struct net {
    CURLM *multi;
    CURL *easy;
    char *url;
    char *unix_socket;  /* NULL: TCP */
    bool plain;         /* no TLS: bytes behind an answer can be seen on the socket */
    curl_socket_t kept; /* of the connection that waits for the next request, or BAD */
    char name[128];     /* for error texts: the unix socket or scheme://host:port */
    char detail[CURL_ERROR_SIZE];
};

/* Starts libcurl, once a process; false: it does not start. Any thread. */
bool net_curl_ready(void);
/* ERR_USAGE: not a URL that we take. ERR_NO_MEMORY. */
int net_set_target(struct net *n, const struct net_target *target, struct err *e) MUST_CHECK;

#endif
