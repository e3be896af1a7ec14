/* client_internal: what client.c shares with client_open.c. */
#ifndef MAIN_CLIENT_INTERNAL_H
#define MAIN_CLIENT_INTERNAL_H

#include <curl/curl.h>

#include "main/client.h"

struct client {
    CURL *curl;
    const char *verb;
    char *socket_path; /* NULL with a URL */
    char *base;        /* "http://localhost", or the URL without a slash at its end */
    char *where;       /* for messages; the socket's path or the URL */
    char agent[64];
    struct buf
        authorization; /* "Authorization: Bearer TOKEN" with its NUL; empty without a token */
    uint64_t timeout_s, retry_s;
    bool answered; /* this client has had an answer: the server is there */
};

/* Adds a copy; false without memory (the list is as it was). */
bool client_add_header(struct curl_slist **list, const char *line);
/* Everything that is the same for all requests, on a handle that was reset: where, how long to
 * connect, no proxy, no redirect, whose error text. */
CURLcode client_set_common(struct client *c, char error[CURL_ERROR_SIZE], const char *url,
                           struct curl_slist *headers);

/* How a try failed. ABSENT: nobody listens, or no TLS session with who does; no request was sent.
 * LOST: reset, early end, silence. BROKEN: what came is no HTTP. */
enum client_failure { CLIENT_ABSENT, CLIENT_LOST, CLIENT_BROKEN };
enum client_failure client_failure_of(CURLcode r);
/* Fills *e with what people should read, ERR_CONNECT or ERR_IO; why is the reason. */
void client_failure_text(struct client *c, enum client_failure failure, const char *why,
                         struct err *e);

/* Overwrites the copies, one of which holds the token, and releases them. */
void client_free_headers(struct curl_slist *list);

#endif
