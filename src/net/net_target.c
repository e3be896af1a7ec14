/* net_target: whom a client talks to. Secrets and queries do not belong in the URL: the one is
 * refused, so that it cannot end up in logs and error texts, the other is part of the request. */
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "net/net_internal.h"

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static bool curl_ready;

static void curl_start(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

bool net_curl_ready(void)
{
    int once = pthread_once(&curl_once, curl_start);
    ensure(once == 0);
    return curl_ready;
}

static int part_is_absent(CURLU *u, CURLUPart part)
{
    char *text = NULL;
    CURLUcode c = curl_url_get(u, part, &text, 0);
    curl_free(text);
    return c != CURLUE_OK;
}

/* Scheme, no credentials, no query: secrets belong in headers, queries in the request. */
static int check_url(struct net *n, const char *url, struct err *e)
{
    CURLU *u = curl_url();
    char *scheme = NULL;
    char *host = NULL;
    char *port = NULL;
    int r = 0;
    if (u == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a URL");
    }
    if (curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        r = err_set(e, ERR_USAGE, "the URL must be http://HOST:PORT or https://HOST:PORT");
    } else if (!part_is_absent(u, CURLUPART_USER) || !part_is_absent(u, CURLUPART_PASSWORD)) {
        r = err_set(e, ERR_USAGE, "the URL must not hold a user name or password");
    } else if (!part_is_absent(u, CURLUPART_QUERY) || !part_is_absent(u, CURLUPART_FRAGMENT)) {
        r = err_set(e, ERR_USAGE, "the URL must not hold a query or fragment");
    } else {
        (void)curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
        n->plain = strcmp(scheme, "http") == 0;
        (void)snprintf(n->name, sizeof n->name, "%s://%.80s:%.8s", scheme, host,
                       port == NULL ? "" : port);
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(u);
    return r;
}

static int copy(struct net *n, const struct net_target *target, struct err *e)
{
    n->url = strdup(target->url);
    if (target->unix_socket != NULL) {
        n->unix_socket = strdup(target->unix_socket);
        (void)snprintf(n->name, sizeof n->name, "%.120s", target->unix_socket);
    }
    if (n->url == NULL || (target->unix_socket != NULL && n->unix_socket == NULL)) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a target");
    }
    return 0;
}

int net_set_target(struct net *n, const struct net_target *target, struct err *e)
{
    int r = check_url(n, target->url, e);
    return r < 0 ? r : copy(n, target, e);
}

uint16_t net_url_port(const char *url)
{
    CURLU *u = curl_url();
    char *port = NULL;
    uint16_t n = 0;
    if (u != NULL && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK) {
        n = (uint16_t)strtoul(port, NULL, 10); /* curl takes no other than 0 to 65535 */
    }
    curl_free(port);
    curl_url_cleanup(u);
    return n;
}
