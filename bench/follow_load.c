/* follow_load: reads the history as fast as it comes, and measures how far followers are behind the
 * commit (bench/w4.py).
 *
 *   follow_load replay --port P     pages of NDJSON to the end; body bytes a second
 *   follow_load follow --port P     one follower from the beginning until caught_up; the same
 *   follow_load raw --port P        asks once, reads to the end of the connection; the same
 *   follow_load sendfile --port P --file F   serves F by sendfile to whoever connects, until killed
 *   follow_load tail --port P --followers N --rate R --seconds S
 *
 * tail: one connection appends one event of 256 bytes R times a second, at even distances (an open
 * loop); N followers wait at the end. tail_us is from the append's answer to the event's arrival at
 * a follower, 0 when that came first; total_us is from the sending of the append. One thread reads
 * everything, so with many followers the last of them also wait for it. The history is empty
 * before; every follower must get every event once. */
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "bench/driver.h"
#include "bench/payload.h"

#define IN_BYTES    (1u << 20)
#define TARGET_MAX  256u
#define EVENT_MARK  "\"event_id\":\"" /* the other ids have a letter before event_id */
#define CAUGHT_MARK "\"type\":\"caught_up\""
#define CARRY       32u
#define QUIET_S     20

struct options {
    const char *file;
    uint16_t port;
    uint32_t followers;
    double rate, seconds;
};

struct reader {
    int fd;
    size_t carry_len;
    char carry[CARRY];
    uint32_t events;
    bool caught_up;
};

static char *in; /* CARRY bytes of room before what is received */

static void send_text(int fd, const char *text)
{
    size_t n = strlen(text);
    if (send(fd, text, n, MSG_NOSIGNAL) != (ssize_t)n) {
        die_errno("send");
    }
}

static void ask(int fd, const char *target, const char *accept)
{
    char text[TARGET_MAX + 200];
    (void)snprintf(text, sizeof text,
                   "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nConnection: close\r\n\r\n",
                   target, accept);
    send_text(fd, text);
}

static uint32_t count_of(const char *p, size_t n, const char *mark)
{
    uint32_t count = 0;
    size_t len = strlen(mark);
    const char *end = p + n;
    while ((p = memmem(p, (size_t)(end - p), mark, len)) != NULL) {
        count++;
        p += len;
    }
    return count;
}

/* Reads to the end of the connection. The last bytes are left behind in tail. */
static uint64_t drain(int fd, const char *until, char *tail, size_t tail_size)
{
    uint64_t bytes = 0;
    for (;;) {
        ssize_t n = recv(fd, in, IN_BYTES, 0);
        if (n < 0) {
            die_errno("recv");
        }
        if (n == 0) {
            return bytes;
        }
        bytes += (uint64_t)n;
        size_t keep = (size_t)n < tail_size - 1 ? (size_t)n : tail_size - 1;
        size_t old = strlen(tail);
        size_t stay = old + keep < tail_size ? old : tail_size - 1 - keep;
        memmove(tail, tail + old - stay, stay);
        memcpy(tail + stay, in + (size_t)n - keep, keep);
        tail[stay + keep] = '\0';
        if (until != NULL && strstr(tail, until) != NULL) {
            return bytes;
        }
    }
}

static void print_rate(uint64_t bytes, uint64_t start_ns)
{
    double s = (double)(now_ns() - start_ns) / 1e9;
    (void)printf("bytes=%" PRIu64 " seconds=%.3f gb_per_s=%.4f load_cpu_s=%.3f\n", bytes, s,
                 (double)bytes / s / 1e9, cpu_s());
}

static void run_replay(const struct options *o)
{
    char target[TARGET_MAX] = "/v1/events?limit=100000";
    char after[40] = "";
    uint64_t bytes = 0;
    uint64_t start = now_ns();
    for (;;) {
        char tail[2048] = "";
        int fd = driver_connect("127.0.0.1", o->port);
        ask(fd, target, "application/x-ndjson");
        bytes += drain(fd, NULL, tail, sizeof tail);
        (void)close(fd);
        const char *page = strstr(tail, "{\"type\":\"page\"");
        const char *next = page != NULL ? strstr(page, "\"next_after\":\"") : NULL;
        const char *end = page != NULL ? strstr(page, "\"snapshot_through_event_id\":\"") : NULL;
        if (next == NULL || end == NULL) {
            die("a page without its last record: %.200s", tail);
        }
        next += strlen("\"next_after\":\"");
        end += strlen("\"snapshot_through_event_id\":\"");
        if (strncmp(next, end, 36) == 0) {
            break;
        }
        (void)snprintf(after, sizeof after, "%.36s", next);
        (void)snprintf(target, sizeof target, "/v1/events?limit=100000&after=%s", after);
    }
    print_rate(bytes, start);
}

static void run_follow(const struct options *o)
{
    char tail[512] = "";
    uint64_t start = now_ns();
    int fd = driver_connect("127.0.0.1", o->port);
    ask(fd, "/v1/events?follow=true&limit=100000", "application/x-ndjson");
    uint64_t bytes = drain(fd, CAUGHT_MARK, tail, sizeof tail);
    print_rate(bytes, start);
    (void)close(fd);
}

static void run_raw(const struct options *o)
{
    char tail[64] = "";
    uint64_t start = now_ns();
    int fd = driver_connect("127.0.0.1", o->port);
    send_text(fd, "GET / HTTP/1.0\r\n\r\n");
    print_rate(drain(fd, NULL, tail, sizeof tail), start);
    (void)close(fd);
}

/* The least that serving a file can cost. */
static void run_sendfile(const struct options *o)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(o->port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(s, (const struct sockaddr *)&at, sizeof at) != 0 || listen(s, 16) != 0) {
        die_errno("listen");
    }
    (void)signal(SIGPIPE, SIG_IGN);
    for (;;) {
        int fd = accept(s, NULL, NULL);
        int file = open(o->file, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : recv(fd, in, IN_BYTES, 0); /* who only looks asks nothing */
        if (fd < 0 || file < 0) {
            die_errno(o->file);
        }
        while (n > 0) {
            n = sendfile(fd, file, NULL, 1u << 20);
        }
        (void)close(file);
        (void)close(fd);
    }
}

/* ---- tail ---- */

struct tail {
    const struct options *o;
    struct reader *reader;
    int appender, epoll;
    uint32_t sent, answered, total;
    uint64_t *sent_ns, *answered_ns;
    struct meter behind, whole;
    uint64_t arrived;
    uint32_t **arrival_us; /* of each event at each follower, from the run's beginning */
    uint64_t start_ns;
};

static void append_next(struct tail *t)
{
    char payload[PAYLOAD_LEN + 1];
    char body[1024];
    char text[1400];
    payload_raw(t->sent % POOL_SINGLES, payload);
    payload[PAYLOAD_LEN] = '\0';
    int n =
        snprintf(body, sizeof body,
                 "{\"batch_id\":\"t%u-%" PRIu64 "\",\"source\":\"bench\",\"events\":[{\"stream\":"
                 "\"s\",\"record_key\":\"k\",\"kind\":\"upserted\",\"payload\":%s}]}",
                 t->sent, t->start_ns, payload);
    (void)snprintf(
        text, sizeof text,
        "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %d\r\n\r\n%s",
        n, body);
    t->sent_ns[t->sent] = now_ns();
    t->sent++;
    send_text(t->appender, text);
}

static void take_answer(struct tail *t)
{
    ssize_t n = recv(t->appender, in, IN_BYTES, 0);
    uint32_t got = n > 0 ? count_of(in, (size_t)n, "HTTP/1.1 200 OK\r\n") : 0;
    if (n <= 0 || (got == 0 && memmem(in, (size_t)n, "HTTP/1.1", 8) != NULL)) {
        die("an append was not taken");
    }
    for (uint32_t i = 0; i < got && t->answered < t->total; i++) {
        t->answered_ns[t->answered++] = now_ns();
    }
}

static void take_events(struct tail *t, struct reader *r)
{
    memcpy(in + CARRY - r->carry_len, r->carry, r->carry_len);
    ssize_t n = recv(r->fd, in + CARRY, IN_BYTES - CARRY, 0);
    if (n <= 0) {
        die("a follower was cut");
    }
    uint64_t now = now_ns();
    char *p = in + CARRY - r->carry_len;
    size_t len = (size_t)n + r->carry_len;
    r->caught_up = r->caught_up || count_of(p, len, CAUGHT_MARK) > 0;
    uint32_t got = count_of(p, len, EVENT_MARK);
    size_t mark = strlen(EVENT_MARK) - 1;
    r->carry_len = len < mark ? len : mark; /* too short for a whole mark: none is counted twice */
    if (!r->caught_up) {
        r->carry_len = len < CARRY - 1 ? len : CARRY - 1;
    }
    memcpy(r->carry, p + len - r->carry_len, r->carry_len);
    for (uint32_t i = 0; i < got; i++) {
        if (r->events == t->sent) {
            die("an event came twice");
        }
        t->arrival_us[r - t->reader][r->events++] = (uint32_t)((now - t->start_ns) / 1000);
        t->arrived++;
    }
}

static void watch(const struct tail *t, int fd, void *what)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = what};
    if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, fd, &ev) != 0) {
        die_errno("epoll_ctl");
    }
}

static void turn(struct tail *t, int wait_ms)
{
    struct epoll_event ev[256];
    int n = epoll_wait(t->epoll, ev, 256, wait_ms);
    for (int i = 0; i < n; i++) {
        if (ev[i].data.ptr == NULL) {
            take_answer(t);
        } else {
            take_events(t, ev[i].data.ptr);
        }
    }
}

static void open_tail(struct tail *t)
{
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->appender = driver_connect("127.0.0.1", t->o->port);
    watch(t, t->appender, NULL);
    for (uint32_t i = 0; i < t->o->followers; i++) {
        struct reader *r = &t->reader[i];
        r->fd = driver_connect("127.0.0.1", t->o->port);
        ask(r->fd, "/v1/events?follow=true", "application/x-ndjson");
        watch(t, r->fd, r);
        uint64_t end = now_ns() + QUIET_S * NS_PER_S;
        while (!r->caught_up && now_ns() < end) {
            turn(t, 100);
        }
        if (!r->caught_up) {
            die("a follower was not caught up");
        }
    }
}

static void print_tail(struct tail *t)
{
    for (uint32_t f = 0; f < t->o->followers; f++) {
        for (uint32_t i = 0; i < t->total; i++) {
            uint64_t at = t->start_ns + (uint64_t)t->arrival_us[f][i] * 1000;
            meter_add(&t->behind, at > t->answered_ns[i] ? at - t->answered_ns[i] : 0);
            meter_add(&t->whole, at > t->sent_ns[i] ? at - t->sent_ns[i] : 0);
        }
    }
    struct meter *answers = must_alloc(sizeof *answers);
    for (uint32_t i = 0; i < t->total; i++) {
        meter_add(answers, t->answered_ns[i] - t->sent_ns[i]);
    }
    (void)printf("followers=%u events=%u tail_p50_us=%.0f tail_p99_us=%.0f total_p50_us=%.0f "
                 "total_p99_us=%.0f append_p50_us=%.0f append_p99_us=%.0f load_cpu_s=%.3f\n",
                 t->o->followers, t->total, meter_quantile_us(&t->behind, 0.5),
                 meter_quantile_us(&t->behind, 0.99), meter_quantile_us(&t->whole, 0.5),
                 meter_quantile_us(&t->whole, 0.99), meter_quantile_us(answers, 0.5),
                 meter_quantile_us(answers, 0.99), cpu_s());
    free(answers);
}

static void run_tail(const struct options *o)
{
    struct tail *t = must_alloc(sizeof *t);
    t->o = o;
    t->total = (uint32_t)(o->rate * o->seconds);
    t->reader = must_alloc(o->followers * sizeof *t->reader);
    t->sent_ns = must_alloc(t->total * sizeof *t->sent_ns);
    t->answered_ns = must_alloc(t->total * sizeof *t->answered_ns);
    t->arrival_us = must_alloc(o->followers * sizeof *t->arrival_us);
    for (uint32_t i = 0; i < o->followers; i++) {
        t->arrival_us[i] = must_alloc(t->total * sizeof **t->arrival_us);
    }
    open_tail(t);
    t->start_ns = now_ns();
    uint64_t interval = (uint64_t)(1e9 / o->rate);
    uint64_t end = t->start_ns + (uint64_t)(o->seconds * 1e9) + QUIET_S * NS_PER_S;
    while (t->arrived < (uint64_t)t->total * o->followers || t->answered < t->total) {
        uint64_t now = now_ns();
        uint64_t due = t->start_ns + t->sent * interval;
        if (now > end) {
            die("%" PRIu64 " of %" PRIu64 " events arrived", t->arrived,
                (uint64_t)t->total * o->followers);
        }
        if (t->sent < t->total && now >= due) {
            append_next(t);
        } else {
            turn(t, t->sent < t->total && due - now < 2000000 ? 0 : 1);
        }
    }
    print_tail(t);
}

static const char *value_of(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    if (otherwise == NULL) {
        die("%s is missing", name);
    }
    return otherwise;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct options *o);
    } modes[] = {{"replay", run_replay},
                 {"follow", run_follow},
                 {"raw", run_raw},
                 {"sendfile", run_sendfile},
                 {"tail", run_tail}};
    struct options o = {.port = (uint16_t)strtoul(value_of(argc, argv, "--port", NULL), NULL, 10),
                        .file = value_of(argc, argv, "--file", ""),
                        .followers =
                            (uint32_t)strtoul(value_of(argc, argv, "--followers", "1"), NULL, 10),
                        .rate = strtod(value_of(argc, argv, "--rate", "200"), NULL),
                        .seconds = strtod(value_of(argc, argv, "--seconds", "5"), NULL)};
    in = must_alloc(IN_BYTES + CARRY);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run(&o);
            return 0;
        }
    }
    die("no such mode: %s", argv[1]);
}
