/* upload_floor: the least that a server of durable uploads can do, for W5 to be divided by.
 *
 *   upload_floor DIR PORT   takes POST and PATCH from loopback into files of DIR; ends at SIGTERM
 *
 * A body is received into an aligned buffer of 1 MiB, written and hashed with BLAKE3. Where it is
 * longer than that, blocks are reserved 256 MiB ahead, write-back of each piece begins when it is
 * written, and the piece 8 MiB before is awaited and leaves the page cache. At the end one
 * fdatasync, then the answer, with the digest in `Blake3`. POST makes a file and syncs its name
 * (with a body, in one go); PATCH writes one from its beginning.
 *
 * It does nothing that a tus server has to do: no offsets, no metadata, no state, no receipt. It is
 * not a server for anybody: a thread a connection, and it trusts its peer and ends at the first
 * surprise. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/blake3.h"
#include "base/hash.h"
#include "bench/meter.h"
#include "os/os.h"

#define PIECE      ((size_t)1 << 20)
#define AHEAD      ((uint64_t)256 << 20)
#define TRAIL      ((uint64_t)8 << 20)
#define HEAD_BYTES 8192u
#define ALIGN      4096u

static const char *dir;
static _Atomic unsigned files_made;

struct client {
    int fd;
    char head[HEAD_BYTES + 1];
    size_t have, head_len; /* bytes in head; of the request's head */
    unsigned char *piece;
};

static void on_signal(int sig)
{
    (void)sig;
    _exit(0);
}

static void check(int r, const char *what)
{
    if (r < 0) {
        die("%s: %s", what, strerror(-r));
    }
}

static void send_text(const struct client *c, const char *text)
{
    size_t n = strlen(text);
    if (send(c->fd, text, n, MSG_NOSIGNAL) != (ssize_t)n) {
        die_errno("send");
    }
}

/* False at the end of the connection. */
static bool read_head(struct client *c)
{
    for (;;) {
        const char *end = memmem(c->head, c->have, "\r\n\r\n", 4);
        if (end != NULL) {
            c->head_len = (size_t)(end + 4 - c->head);
            c->head[c->head_len - 1] = '\0';
            return true;
        }
        if (c->have == HEAD_BYTES) {
            die("a head longer than %u bytes", HEAD_BYTES);
        }
        ssize_t n = recv(c->fd, c->head + c->have, HEAD_BYTES - c->have, 0);
        if (n <= 0) {
            return false;
        }
        c->have += (size_t)n;
    }
}

/* n bytes of the body: first those that came with the head. */
static void read_body(struct client *c, size_t n)
{
    size_t early = c->have - c->head_len;
    size_t at = early < n ? early : n;
    memcpy(c->piece, c->head + c->head_len, at);
    memmove(c->head + c->head_len, c->head + c->head_len + at, early - at);
    c->have -= at;
    while (at < n) {
        ssize_t got = recv(c->fd, c->piece + at, n - at, 0);
        if (got <= 0) {
            die("the connection ended before its body");
        }
        at += (size_t)got;
    }
}

static void early_write_back(int fd, uint64_t at, size_t n)
{
    check(os_write_back(fd, at, n, false), "write back");
    if (at >= TRAIL) {
        check(os_write_back(fd, at - TRAIL, PIECE, true), "await write-back");
        check(os_drop_range(fd, at - TRAIL, PIECE), "drop the cache");
    }
}

static void take_body(struct client *c, int fd, uint64_t size, char hex[BLAKE3_HEX_LEN + 1])
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    blake3_start(&h);
    for (uint64_t at = 0; at < size; at += PIECE) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        if (size > PIECE && at % AHEAD == 0) {
            check(os_reserve(fd, at, size - at < AHEAD ? size - at : AHEAD), "reserve");
        }
        read_body(c, n);
        check(os_pwrite_all(fd, c->piece, n, at, NULL), "write");
        blake3_add(&h, c->piece, n);
        if (size > PIECE) {
            early_write_back(fd, at, n);
        }
    }
    check(os_fdatasync(fd), "fdatasync");
    blake3_end(&h, digest);
    hex_encode(hex, digest, sizeof digest);
    hex[BLAKE3_HEX_LEN] = '\0';
}

static void serve_one(struct client *c)
{
    char path[4096];
    char answer[512];
    char hex[BLAKE3_HEX_LEN + 1] = "-";
    bool post = strncmp(c->head, "POST /files ", 12) == 0;
    unsigned number = post ? atomic_fetch_add(&files_made, 1) : 0;
    if (!post && sscanf(c->head, "PATCH /files/%u ", &number) != 1) {
        die("a request that is neither POST nor PATCH");
    }
    const char *length = strcasestr(c->head, "\r\nContent-Length: ");
    uint64_t size = length != NULL ? strtoull(length + 18, NULL, 10) : 0;
    int n = snprintf(path, sizeof path, "%s/%u", dir, number);
    ensure(n > 0);
    ensure((size_t)n < sizeof path);
    int fd = os_open(path, post ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    check(fd, path);
    if (strcasestr(c->head, "\r\nExpect: 100-continue\r\n") != NULL) {
        send_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
    }
    if (size > 0) {
        take_body(c, fd, size, hex);
    }
    if (post) {
        check(os_sync_dir(dir), "sync the directory");
    }
    check(os_close(fd), "close");
    n = snprintf(answer, sizeof answer,
                 "HTTP/1.1 %s\r\nLocation: /files/%u\r\nUpload-Offset: %" PRIu64
                 "\r\nBlake3: %s\r\n%s\r\n",
                 post ? "201 Created" : "204 No Content", number, size, hex,
                 post ? "Content-Length: 0\r\n" : "");
    ensure(n > 0);
    ensure((size_t)n < sizeof answer);
    send_text(c, answer);
}

static void *serve(void *arg)
{
    struct client *c = arg;
    c->piece = aligned_alloc(ALIGN, PIECE);
    if (c->piece == NULL) {
        die("no memory for a connection");
    }
    while (read_head(c)) {
        serve_one(c);
        memmove(c->head, c->head + c->head_len, c->have - c->head_len);
        c->have -= c->head_len;
    }
    close(c->fd);
    free(c->piece);
    free(c);
    return NULL;
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 128) != 0) {
        die_errno("listen");
    }
    return fd;
}

int main(int argc, char **argv)
{
    struct sigaction stop = {.sa_handler = on_signal};
    if (argc != 3) {
        fputs("usage: upload_floor DIR PORT\n", stderr);
        return 2;
    }
    dir = argv[1];
    if (sigaction(SIGTERM, &stop, NULL) != 0) {
        die_errno("sigaction");
    }
    int listen_fd = listen_on((uint16_t)strtoul(argv[2], NULL, 10));
    for (;;) {
        struct client *c = must_alloc(sizeof *c);
        pthread_t thread;
        int on = 1;
        c->fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (c->fd < 0 || setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
            die_errno("accept");
        }
        if (pthread_create(&thread, NULL, serve, c) != 0 || pthread_detach(thread) != 0) {
            die("no thread for a connection");
        }
    }
}
