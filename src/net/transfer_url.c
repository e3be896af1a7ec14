/* transfer_url: what is to be known of a URL, by libcurl's own parser, so that what was judged is
 * what is connected to. */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "net/transfer.h"

struct parts {
    char *scheme, *host, *port;
};

static void parts_free(struct parts *p)
{
    curl_free(p->scheme);
    curl_free(p->host);
    curl_free(p->port);
}

static bool parts_of(const char *url, struct parts *p)
{
    CURLU *u = curl_url();
    char *user = NULL;
    bool ok = u != NULL && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &p->scheme, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_HOST, &p->host, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PORT, &p->port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_USER, &user, 0) != CURLUE_OK &&
              (strcmp(p->scheme, "http") == 0 || strcmp(p->scheme, "https") == 0);

    curl_free(user);
    curl_url_cleanup(u);
    return ok;
}

bool transfer_place(const char *url, char out[TRANSFER_PLACE_MAX])
{
    struct parts p = {0};
    bool ok = parts_of(url, &p);

    if (ok) {
        int n = snprintf(out, TRANSFER_PLACE_MAX, "%s://%s:%s", p.scheme, p.host, p.port);
        ok = n > 0 && n < TRANSFER_PLACE_MAX;
    }
    parts_free(&p);
    return ok;
}

bool transfer_is_https(const char *url)
{
    struct parts p = {0};
    bool is = parts_of(url, &p) && strcmp(p.scheme, "https") == 0;

    parts_free(&p);
    return is;
}

/* Four numbers and nothing else: "127.0.0.1.example.org" is a name that anybody may own. */
static bool is_loopback_address(const char *host)
{
    return strncmp(host, "127.", 4) == 0 && host[strspn(host, "0123456789.")] == '\0';
}

bool transfer_is_loopback(const char *url)
{
    struct parts p = {0};
    bool is = parts_of(url, &p) && (is_loopback_address(p.host) || strcmp(p.host, "[::1]") == 0 ||
                                    strcasecmp(p.host, "localhost") == 0);

    parts_free(&p);
    return is;
}

bool transfer_is_within(const char *url, const char *domain)
{
    struct parts p = {0};
    bool is = false;

    if (parts_of(url, &p)) {
        size_t host = strlen(p.host);
        size_t tail = strlen(domain);
        is = host >= tail && strcasecmp(p.host + host - tail, domain) == 0 &&
             (host == tail || p.host[host - tail - 1] == '.');
    }
    parts_free(&p);
    return is;
}

bool transfer_resolve(const char *url, struct slice location, struct buf *out)
{
    CURLU *u = curl_url();
    struct buf to = {0};
    char *text = NULL;
    bool ok;

    buf_put_slice(&to, location);
    buf_put_char(&to, '\0');
    ok = u != NULL && !to.failed && location.len > 0 && strlen(to.ptr) == location.len &&
         curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
         curl_url_set(u, CURLUPART_URL, to.ptr, 0) == CURLUE_OK &&
         curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK &&
         curl_url_get(u, CURLUPART_URL, &text, 0) == CURLUE_OK;
    if (ok) {
        buf_put(out, text, strlen(text) + 1);
        ok = !out->failed;
    }
    curl_free(text);
    curl_url_cleanup(u);
    buf_free(&to);
    return ok;
}
