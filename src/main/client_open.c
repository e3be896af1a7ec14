/* Where the server is, who asks, and the small pieces around a request. The token lives in one
 * buffer of the client and, while a request runs, in libcurl's header list; both are overwritten.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "base/ensure.h"
#include "main/client_internal.h"
#include "main/config.h"
#include "main/token.h"
#include "main/version.h"

#define SOCKET_NAME "tallyman.sock"

bool client_add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer == NULL) {
        return false;
    }
    *list = longer;
    return true;
}

void client_free_headers(struct curl_slist *list)
{
    for (struct curl_slist *l = list; l != NULL; l = l->next) {
        explicit_bzero(l->data, strlen(l->data));
    }
    curl_slist_free_all(list);
}

void client_put_query(struct buf *out, const char *name, struct slice value)
{
    static const char hex[] = "0123456789ABCDEF";
    if (out->len > 0) {
        buf_put_char(out, '&');
    }
    buf_printf(out, "%s=", name);
    for (size_t i = 0; i < value.len; i++) {
        unsigned char b = (unsigned char)value.ptr[i];
        bool plain = (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') ||
                     b == '-' || b == '.' || b == '_' || b == '~';
        if (plain) {
            buf_put_char(out, (char)b);
        } else {
            buf_put_char(out, '%');
            buf_put_char(out, hex[b >> 4]);
            buf_put_char(out, hex[b & 15]);
        }
    }
}

/* Only what cannot hide a secret or change where the token goes: scheme, host, port, path. */
static int check_url(const char *url, struct err *e)
{
    const char *rest = NULL;
    if (strncasecmp(url, "http://", 7) == 0) {
        rest = url + 7;
    } else if (strncasecmp(url, "https://", 8) == 0) {
        rest = url + 8;
    } else {
        return err_set(e, ERR_USAGE, "--url: must begin with http:// or https://");
    }
    if (strchr(rest, '@') != NULL) {
        return err_set(e, ERR_USAGE,
                       "--url: must not hold a user name or a secret; use --token-file");
    }
    if (rest[0] == '\0' || rest[0] == '/' || strpbrk(rest, "?# \t\r\n\\") != NULL) {
        return err_set(e, ERR_USAGE, "--url: must be http://HOST:PORT, without a query");
    }
    return 0;
}

static int use_url(struct client *c, const char *url, struct err *e)
{
    int r = check_url(url, e);
    if (r != 0) {
        return r;
    }
    size_t len = strlen(url);
    while (url[len - 1] == '/') {
        len--;
    }
    c->base = strndup(url, len);
    c->where = strndup(url, len);
    return 0;
}

static int use_socket(struct client *c, const char *data, struct err *e)
{
    size_t size = strlen(data) + sizeof "/" SOCKET_NAME;
    size_t max = sizeof((struct sockaddr_un *)NULL)->sun_path;
    if (size > max) {
        return err_set(
            e, ERR_USAGE,
            "--data: %.100s/%s is longer than the %zu bytes a socket's path may have; use a "
            "shorter or relative path, or --url",
            data, SOCKET_NAME, max - 1);
    }
    c->base = strdup("http://localhost");
    c->socket_path = malloc(size);
    c->where = malloc(size);
    if (c->socket_path != NULL && c->where != NULL) {
        (void)snprintf(c->socket_path, size, "%s/%s", data, SOCKET_NAME);
        (void)snprintf(c->where, size, "%s/%s", data, SOCKET_NAME);
    }
    return 0;
}

static int use_token(struct client *c, const char *file, struct err *e)
{
    struct buf token;
    buf_init(&token, TOKEN_MAX);
    int r = 0;
    const char *env = getenv("TALLYMAN_TOKEN");
    if (file != NULL) {
        r = token_from_file(file, &token, e);
    } else if (env != NULL && env[0] != '\0') {
        if (token_valid(slice_cstr(env))) {
            buf_put_cstr(&token, env);
        } else {
            r = err_set(e, ERR_USAGE,
                        "TALLYMAN_TOKEN: the token must be 1 to %d visible ASCII characters",
                        TOKEN_MAX);
        }
    }
    if (r == 0 && token.len > 0 && buf_reserve(&c->authorization, token.len + 64)) {
        buf_put_cstr(&c->authorization, "Authorization: Bearer ");
        buf_put_slice(&c->authorization, buf_slice(&token));
        buf_put_char(&c->authorization, '\0');
    }
    if (r == 0 && (token.failed || c->authorization.failed)) {
        r = err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    token_forget(&token);
    return r;
}

int client_open(struct client **out, const struct client_target *target, struct err *e)
{
    ensure(target->timeout_s > 0);
    *out = NULL;
    if (target->url != NULL && target->data != NULL) {
        return err_set(e, ERR_USAGE, "--data and --url exclude each other");
    }
    if (target->url == NULL && target->token_file != NULL) {
        return err_set(e, ERR_USAGE,
                       "--token-file goes with --url; the Unix socket needs no token");
    }
    struct client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    c->verb = target->verb;
    c->timeout_s = target->timeout_s;
    c->retry_s = target->retry_s;
    (void)snprintf(c->agent, sizeof c->agent, "tallyman/%s", version_number());
    int r = 0;
    if (target->url != NULL) {
        r = use_url(c, target->url, e);
        r = r == 0 ? use_token(c, target->token_file, e) : r;
    } else {
        r = use_socket(c, target->data != NULL ? target->data : config_default_data(), e);
    }
    if (r == 0 && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
        c->curl = curl_easy_init();
    }
    bool whole = c->curl != NULL && c->base != NULL && c->where != NULL &&
                 (target->url != NULL || c->socket_path != NULL);
    if (r == 0 && !whole) {
        r = err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    if (r != 0) {
        client_close(c);
        return r;
    }
    *out = c;
    return 0;
}

void client_close(struct client *c)
{
    if (c == NULL) {
        return;
    }
    curl_easy_cleanup(c->curl);
    token_forget(&c->authorization);
    free(c->socket_path);
    free(c->base);
    free(c->where);
    free(c);
}

const char *client_where(const struct client *c)
{
    return c->where;
}
