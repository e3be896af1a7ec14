/* listen: addresses, listening sockets, and taking connections from them.
 *
 * A Unix socket is bound with mode 0600 from its first moment (umask around bind). A path is only
 * replaced when it is a socket that nobody answers; the lock on the data directory keeps a second
 * server out of the moment between looking and replacing. It is removed at the end only when it is
 * still the same inode.
 *
 * Answers: none. Errors of start are returned. Out of descriptors or memory while accepting:
 * listening is suspended and tried again by the tick, since a level-triggered listener would
 * otherwise spin. Past connections_max a client is told so (503), in a connection of its own for
 * the first HTTP_REFUSED_LINGER of them, so that it can read the answer; past that it is only
 * closed, and so is one whose descriptor is among those that connections leave to files. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "os/os.h"

#define BACKLOG          1024
#define ACCEPTS_PER_TURN 64

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un un;
};

/* ---- addresses ---- */

static bool parse_port(const char *text, uint16_t *port)
{
    unsigned value = 0;

    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        value = value * 10 + (unsigned)(*text - '0');
        if (value > 65535) {
            return false;
        }
    }
    *port = (uint16_t)value;
    return true;
}

static bool parse_address(const char *text, union address *a, unsigned *len, bool *loopback)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t host_len = colon == NULL ? 0 : (size_t)(colon - text);
    bool v6 = host_len >= 2 && text[0] == '[' && text[host_len - 1] == ']';
    uint16_t port;

    *a = (union address){0};
    if (v6) {
        text++;
        host_len -= 2;
    }
    if (host_len == 0 || host_len >= sizeof host || !parse_port(colon + 1, &port)) {
        return false;
    }
    memcpy(host, text, host_len);
    host[host_len] = '\0';
    if (v6) {
        a->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        *len = sizeof a->v6;
        *loopback = inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1 &&
                    IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
        return inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1;
    }
    a->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    *len = sizeof a->v4;
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &a->v4.sin_addr) !=
        1) {
        return false;
    }
    *loopback = ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return true;
}

/* ---- listeners ---- */

static int add_listener(struct http_server *s, int fd, bool unix_socket, const char *name,
                        struct err *e)
{
    struct http_listener *l;
    struct epoll_event ev = {.events = EPOLLIN};
    int got;

    if (s->listener_count == HTTP_LISTENERS_MAX) {
        return err_set(e, ERR_USAGE, "at most %u addresses can be listened on", HTTP_LISTENERS_MAX);
    }
    got = os_listen(fd, BACKLOG);
    if (got != 0) {
        return got == -EADDRINUSE
                   ? err_set(e, ERR_REFUSED, "%s is already in use by another program", name)
                   : err_os(e, got, "listen", name);
    }
    l = &s->listeners[s->listener_count];
    *l = (struct http_listener){.watch = HTTP_WATCH_LISTENER, .fd = fd, .unix_socket = unix_socket};
    ev.data.ptr = l;
    got = os_epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    if (got != 0) {
        return err_os(e, got, "epoll_ctl", name);
    }
    s->listener_count++;
    return 0;
}

static int set_options(int fd, int family)
{
    static const int on = 1;
    int got = os_setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);

    if (got == 0 && family == AF_INET6) {
        got = os_setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    }
    return got;
}

int http_listen_tcp(struct http_server *s, const char *address, unsigned *port, struct err *e)
{
    union address a;
    union address bound = {0};
    unsigned len = 0;
    unsigned bound_len = sizeof bound;
    bool loopback = false;
    int result;
    int fd;

    if (!parse_address(address, &a, &len, &loopback)) {
        return err_set(
            e, ERR_USAGE,
            "cannot listen on \"%s\": expected ADDRESS:PORT with a numeric address, as in "
            "127.0.0.1:8080 or [::1]:8080",
            address);
    }
    if (!loopback && s->config.token.len == 0) {
        return err_set(e, ERR_USAGE,
                       "refusing to listen on %s without a token: only loopback addresses are "
                       "served to anybody who can reach them; set a token first",
                       address);
    }
    fd = os_socket(a.any.sa_family, SOCK_STREAM, 0);
    if (fd < 0) {
        return err_os(e, fd, "socket", address);
    }
    result = set_options(fd, a.any.sa_family);
    if (result != 0) {
        result = err_os(e, result, "setsockopt", address);
        goto out;
    }
    result = os_bind(fd, &a.any, len);
    if (result == -EADDRINUSE) {
        result = err_set(e, ERR_REFUSED, "%s is already in use by another program", address);
        goto out;
    }
    if (result != 0) {
        result = err_os(e, result, "bind", address);
        goto out;
    }
    result = os_getsockname(fd, &bound.any, &bound_len);
    if (result != 0) {
        result = err_os(e, result, "getsockname", address);
        goto out;
    }
    if (port != NULL) {
        *port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    }
    result = add_listener(s, fd, false, address, e);
out:
    if (result != 0) {
        (void)os_close(fd);
    }
    return result;
}

/* Makes way for a new socket, or says who is in the way. */
static int clear_path(const union address *a, const char *path, struct err *e)
{
    struct os_stat st;
    int got = os_stat(path, &st);
    int fd;

    if (got == -ENOENT) {
        return 0;
    }
    if (got != 0) {
        return err_os(e, got, "stat", path);
    }
    if (!S_ISSOCK(st.mode)) {
        return err_set(e, ERR_REFUSED, "%s exists and is not a socket; it was left alone", path);
    }
    fd = os_socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) {
        return err_os(e, fd, "socket", path);
    }
    got = os_connect(fd, &a->any, sizeof a->un);
    (void)os_close(fd);
    if (got != -ECONNREFUSED) {
        return err_set(e, ERR_REFUSED, "%s is already in use by a running server", path);
    }
    got = os_unlink(path);
    return got == 0 || got == -ENOENT ? 0 : err_os(e, got, "unlink", path);
}

int http_listen_unix(struct http_server *s, const char *path, struct err *e)
{
    union address a = {.un = {.sun_family = AF_UNIX}};
    size_t n = strlen(path);
    struct os_stat st;
    mode_t before;
    char *copy;
    int result;
    int fd;

    if (n == 0 || n >= sizeof a.un.sun_path) {
        return err_set(e, ERR_USAGE, "the socket path must have 1 to %zu bytes: %s",
                       sizeof a.un.sun_path - 1, path);
    }
    memcpy(a.un.sun_path, path, n + 1);
    result = clear_path(&a, path, e);
    if (result != 0) {
        return result;
    }
    copy = strdup(path);
    fd = copy == NULL ? -ENOMEM : os_socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) {
        free(copy);
        return err_os(e, fd, "socket", path);
    }
    before = umask(0177);
    result = os_bind(fd, &a.any, sizeof a.un);
    (void)umask(before);
    if (result == -EADDRINUSE) {
        result = err_set(e, ERR_REFUSED, "%s is already in use by a running server", path);
        goto out;
    }
    if (result != 0) {
        result = err_os(e, result, "bind", path);
        goto out;
    }
    result = os_stat(path, &st);
    if (result != 0) {
        result = err_os(e, result, "stat", path);
        goto out;
    }
    result = add_listener(s, fd, true, path, e);
    if (result == 0) {
        struct http_listener *l = &s->listeners[s->listener_count - 1];

        l->path = copy;
        l->inode = st.inode;
        l->device = st.device;
    }
out:
    if (result != 0) {
        free(copy);
        (void)os_close(fd);
    }
    return result;
}

void http_listeners_close(struct http_server *s)
{
    for (unsigned i = 0; i < s->listener_count; i++) {
        if (s->listeners[i].fd >= 0) {
            (void)os_close(s->listeners[i].fd);
            s->listeners[i].fd = -1;
        }
    }
}

void http_listeners_free(struct http_server *s)
{
    http_listeners_close(s);
    for (unsigned i = 0; i < s->listener_count; i++) {
        struct http_listener *l = &s->listeners[i];
        struct os_stat st;

        if (l->path == NULL) {
            continue;
        }
        if (os_stat(l->path, &st) == 0 && st.inode == l->inode && st.device == l->device) {
            (void)os_unlink(l->path); /* a leftover is stale, and the next start replaces it */
        }
        free(l->path);
        l->path = NULL;
    }
    s->listener_count = 0;
}

/* ---- accepting ---- */

static void watch_listeners(struct http_server *s, bool on)
{
    s->accept_paused = !on;
    for (unsigned i = 0; i < s->listener_count; i++) {
        struct epoll_event ev = {.events = on ? EPOLLIN : 0u, .data.ptr = &s->listeners[i]};

        if (s->listeners[i].fd >= 0 &&
            os_epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listeners[i].fd, &ev) != 0) {
            s->accept_paused = true; /* tried again by the next tick */
        }
    }
}

void http_listeners_resume(struct http_server *s)
{
    if (s->accept_paused) {
        watch_listeners(s, true);
    }
}

/* One connection too many: told so where that costs little. */
static void turn_away(struct http_server *s, int fd, bool unix_socket, bool scarce)
{
    struct slice text = http_answer_too_many();
    struct iovec iov = {.iov_len = text.len};
    struct http_conn *c = NULL;
    struct http_request *req;

    metric_add(METRIC_HTTP_REFUSED, 1);
    if (!scarce && s->refused_count < HTTP_REFUSED_LINGER) {
        c = http_conn_new(s, fd, unix_socket);
    }
    if (c == NULL) {
        memcpy(&iov.iov_base, &text.ptr, sizeof iov.iov_base); /* sendv does not write there */
        (void)os_sendv(fd, &iov, 1);
        (void)os_close(fd);
        return;
    }
    c->refused = true;
    c->state = HTTP_CONN_DRAIN;
    s->refused_count++;
    req = http_request_new(c);
    if (req == NULL) {
        http_conn_close(c);
        return;
    }
    req->close = true;
    buf_put_slice(&req->out, text);
    http_answer_done(req);
}

static void take_connection(struct http_server *s, int fd, bool unix_socket)
{
    static const int on = 1;
    unsigned extra = unix_socket ? HTTP_UNIX_EXTRA : 0;
    unsigned max = s->config.limits.connections_max + extra;
    bool scarce = fd >= s->fd_max + (int)extra;

    metric_add(METRIC_HTTP_ACCEPTED, 1);
    if (!unix_socket) {
        /* Answers leave whole: waiting for more would only cost time. Works without it, too. */
        (void)os_setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (scarce || s->conn_count - s->refused_count >= max) {
        turn_away(s, fd, unix_socket, scarce);
        return;
    }
    if (http_conn_new(s, fd, unix_socket) == NULL) {
        metric_add(METRIC_HTTP_ACCEPT_ERRORS, 1);
        (void)os_close(fd);
    }
}

void http_listener_accept(struct http_server *s, struct http_listener *l)
{
    for (int i = 0; i < ACCEPTS_PER_TURN && l->fd >= 0; i++) {
        int fd = os_accept(l->fd);

        if (fd >= 0) {
            take_connection(s, fd, l->unix_socket);
            continue;
        }
        if (fd == -EAGAIN) {
            return;
        }
        if (fd == -ECONNABORTED || fd == -EPROTO || fd == -EPERM) {
            continue; /* that client's trouble, not ours */
        }
        metric_add(METRIC_HTTP_ACCEPT_ERRORS, 1);
        log_line(LOG_WARN, "http", "cannot accept connections (errno %d); trying again in a second",
                 -fd);
        watch_listeners(s, false);
        return;
    }
}
