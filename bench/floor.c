/* floor: what this disk and loopback give at this moment, for everything else to be divided by.
 *
 *   floor disk DIR SECONDS   one pwrite + one fdatasync at a time, 4 KiB and 256 KiB, into a
 * zero-filled file; prints "disk_4k=N/s disk_256k=N/s" floor serve DIR PORT EVENTS the bare server:
 * parses requests far enough to find their end, writes all bodies of one loop turn with one pwrite
 * and one fdatasync into a zero-filled file, then answers each with the same fixed 200 that claims
 * EVENTS events; ends at SIGTERM or SIGINT
 *
 * The bare server does nothing that an event store has to do: no JSON, no hash, no key, no order.
 * It is not a server for anybody: it trusts its peer, ends at the first surprise, and its file
 * wraps around. */
#include <signal.h>

#include "bench/driver.h"

#define MIB              ((size_t)1 << 20)
#define DISK_FILE_BYTES  (64 * MIB)
#define GROUP_FILE_BYTES (256 * MIB)
#define GROUP_BYTES_MAX  (64 * MIB)
#define PEER_BYTES_MAX   (8 * MIB)
#define PEER_BYTES_FIRST 16384u
#define PEERS_MAX        4096u

struct peer {
    int fd;
    unsigned answers; /* owed after the sync */
    char *in;
    size_t in_len;
    size_t in_cap;
};

struct floor_server {
    int listen_fd;
    int epoll_fd;
    int file_fd;
    size_t file_at;
    char *group;
    size_t group_len;
    struct peer *owed[PEERS_MAX];
    unsigned owed_count;
};

static char floor_answer[512];
static size_t floor_answer_len;

static volatile sig_atomic_t floor_stop;

static void on_signal(int sig)
{
    (void)sig;
    floor_stop = 1;
}

static void build_answer(unsigned events)
{
    char body[320];
    int n = snprintf(body, sizeof body,
                     "{\"status\":\"committed\",\"batch_digest\":\"%064u\",\"events\":%u,"
                     "\"first_event_id\":\"00000000-0000-7000-8000-000000000000\","
                     "\"last_event_id\":\"00000000-0000-7000-8000-000000000000\"}",
                     0u, events);
    ensure(n > 0);
    n = snprintf(floor_answer, sizeof floor_answer,
                 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                 "Content-Length: %d\r\n\r\n%s",
                 n, body);
    ensure(n > 0);
    floor_answer_len = (size_t)n;
    ensure(floor_answer_len < sizeof floor_answer);
}

/* A file of zeros, synced, unlinked: it vanishes with the process. */
static int zero_file(const char *dir, size_t bytes)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/floor.XXXXXX", dir);
    if (n < 0 || (size_t)n >= sizeof path) {
        die("a path too long");
    }
    int fd = mkstemp(path);
    if (fd < 0) {
        die_errno(path);
    }
    if (unlink(path) != 0) {
        die_errno("unlink");
    }
    char *zeros = must_alloc(MIB);
    for (size_t at = 0; at < bytes; at += MIB) {
        if (pwrite(fd, zeros, MIB, (off_t)at) != (ssize_t)MIB) {
            die_errno("zero-filling");
        }
    }
    free(zeros);
    if (fsync(fd) != 0) {
        die_errno("fsync");
    }
    return fd;
}

static double disk_rate(int fd, size_t size, double seconds)
{
    char *data = must_alloc(size);
    memset(data, 'x', size);
    uint64_t start = now_ns();
    uint64_t end = start + (uint64_t)(seconds * 1e9);
    uint64_t now = start;
    uint64_t count = 0;
    size_t at = 0;
    while (now < end) {
        if (pwrite(fd, data, size, (off_t)at) != (ssize_t)size || fdatasync(fd) != 0) {
            die_errno("pwrite and fdatasync");
        }
        at = (at + size) % DISK_FILE_BYTES;
        count++;
        now = now_ns();
    }
    free(data);
    return (double)count / ((double)(now - start) / 1e9);
}

static int floor_disk(const char *dir, double seconds)
{
    int fd = zero_file(dir, DISK_FILE_BYTES);
    double small = disk_rate(fd, 4096, seconds);
    double large = disk_rate(fd, 256 * 1024, seconds);
    printf("disk_4k=%.0f disk_256k=%.0f\n", small, large);
    close(fd);
    return 0;
}

static void floor_accept(struct floor_server *s)
{
    for (;;) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN || errno == EINTR) {
                return;
            }
            die_errno("accept");
        }
        int on = 1;
        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
            die_errno("TCP_NODELAY");
        }
        struct peer *p = must_alloc(sizeof *p);
        p->fd = fd;
        p->in_cap = PEER_BYTES_FIRST;
        p->in = must_alloc(p->in_cap);
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = p};
        if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
            die_errno("epoll_ctl");
        }
    }
}

static void floor_close(struct peer *p)
{
    ensure(p->answers == 0);
    close(p->fd);
    free(p->in);
    free(p);
}

/* Takes whole requests out of the peer's buffer into the group. */
static void floor_parse(struct floor_server *s, struct peer *p)
{
    size_t at = 0;
    for (;;) {
        const char *head = p->in + at;
        const char *end = memmem(head, p->in_len - at, "\r\n\r\n", 4);
        if (end == NULL) {
            break;
        }
        const char *length = memmem(head, (size_t)(end - head), "\r\nContent-Length: ", 18);
        size_t body_len = length != NULL ? strtoul(length + 18, NULL, 10) : 0;
        size_t head_len = (size_t)(end + 4 - head);
        if (body_len > PEER_BYTES_MAX) {
            die("a body of %zu bytes", body_len);
        }
        if (p->in_len - at < head_len + body_len) {
            break;
        }
        if (body_len > GROUP_BYTES_MAX - s->group_len) {
            die("a group larger than %zu bytes", GROUP_BYTES_MAX);
        }
        memcpy(s->group + s->group_len, end + 4, body_len);
        s->group_len += body_len;
        at += head_len + body_len;
        if (p->answers == 0) {
            ensure(s->owed_count < PEERS_MAX);
            s->owed[s->owed_count++] = p;
        }
        p->answers++;
    }
    memmove(p->in, p->in + at, p->in_len - at);
    p->in_len -= at;
}

static void floor_read(struct floor_server *s, struct peer *p)
{
    if (p->in_len == p->in_cap) {
        p->in_cap *= 2;
        if (p->in_cap > 2 * PEER_BYTES_MAX) {
            die("a request larger than %zu bytes", PEER_BYTES_MAX);
        }
        char *in = realloc(p->in, p->in_cap);
        if (in == NULL) {
            die("no memory for a request");
        }
        p->in = in;
    }
    ssize_t n = recv(p->fd, p->in + p->in_len, p->in_cap - p->in_len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        floor_close(p);
        return;
    }
    p->in_len += (size_t)n;
    floor_parse(s, p);
}

static void floor_commit(struct floor_server *s)
{
    if (s->owed_count == 0) {
        return;
    }
    if (s->group_len > GROUP_FILE_BYTES - s->file_at) {
        s->file_at = 0;
    }
    if (pwrite(s->file_fd, s->group, s->group_len, (off_t)s->file_at) != (ssize_t)s->group_len ||
        fdatasync(s->file_fd) != 0) {
        die_errno("pwrite and fdatasync");
    }
    s->file_at += s->group_len;
    s->group_len = 0;
    for (unsigned i = 0; i < s->owed_count; i++) {
        struct peer *p = s->owed[i];
        while (p->answers > 0) {
            p->answers--;
            ssize_t n = send(p->fd, floor_answer, floor_answer_len, MSG_NOSIGNAL);
            if (n != (ssize_t)floor_answer_len && errno != EPIPE && errno != ECONNRESET) {
                die_errno("send");
            }
        }
    }
    s->owed_count = 0;
}

static void floor_listen(struct floor_server *s, uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    if (s->listen_fd < 0 ||
        setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(s->listen_fd, (const struct sockaddr *)&at, sizeof at) != 0 ||
        listen(s->listen_fd, PEERS_MAX) != 0) {
        die_errno("listen");
    }
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll_fd < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &ev) != 0) {
        die_errno("epoll");
    }
}

static int floor_serve(const char *dir, uint16_t port)
{
    static struct floor_server s;
    struct sigaction stop = {.sa_handler = on_signal};
    if (sigaction(SIGTERM, &stop, NULL) != 0 || sigaction(SIGINT, &stop, NULL) != 0) {
        die_errno("sigaction");
    }
    s.file_fd = zero_file(dir, GROUP_FILE_BYTES);
    s.group = must_alloc(GROUP_BYTES_MAX);
    floor_listen(&s, port);
    while (!floor_stop) {
        struct epoll_event ev[DRIVER_EVENTS_MAX];
        int n = epoll_wait(s.epoll_fd, ev, DRIVER_EVENTS_MAX, -1);
        if (n < 0 && errno != EINTR) {
            die_errno("epoll_wait");
        }
        for (int i = 0; i < n; i++) {
            if (ev[i].data.ptr == NULL) {
                floor_accept(&s);
            } else {
                floor_read(&s, ev[i].data.ptr);
            }
        }
        floor_commit(&s);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static_assert(DISK_FILE_BYTES % (256 * 1024) == 0, "pieces fill the file");
    if (argc == 4 && strcmp(argv[1], "disk") == 0 && strtod(argv[3], NULL) > 0) {
        return floor_disk(argv[2], strtod(argv[3], NULL));
    }
    if (argc == 5 && strcmp(argv[1], "serve") == 0) {
        build_answer((unsigned)strtoul(argv[4], NULL, 10));
        return floor_serve(argv[2], (uint16_t)strtoul(argv[3], NULL, 10));
    }
    fputs("usage: floor disk DIR SECONDS | floor serve DIR PORT EVENTS\n", stderr);
    return 2;
}
