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
/* Overwrites the copies, one of which holds the token, and releases them. */
void client_free_headers(struct curl_slist *list);

#endif
