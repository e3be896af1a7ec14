/* redis_load: the same events into Redis, one command in flight on each of N connections
 * (driver.h).
 *
 *   --job plain   XADD events * payload <256 bytes>: an append and nothing else
 *   --job same    a Lua script, called by EVALSHA, that does the part of Tallyman's job Redis has
 * words for: refuse a batch id seen before (and give its receipt), chain the hash of every event to
 * the one before, append, remember the receipt. SHA-1 is the only hash Redis offers there;
 *                 Tallyman's three SHA-256 an event, its canonical JSON and its checks are left
 * out, in favour of Redis.
 *
 * RESP is spoken by hand: a request is a prepared string, an answer one line or one bulk string.
 * Every answer must be an entry id; at the end XLEN must be the number of answers. The durability
 * of the server is its configuration and is checked by scripts/bench. */
#include <getopt.h>

#include "base/slice.h"
#include "bench/driver.h"
#include "bench/payload.h"

#define SEQ_DIGITS 10u

struct redis_load {
    bool same_job;
    char script_sha[41];
    char head[256]; /* request up to and with the sequence (same) or up to the payload (plain) */
    size_t head_len;
    size_t seq_end; /* where the digits end; 0 for plain */
    struct slice tail[POOL_SINGLES];
    uint64_t seq_next;
    bool shown;
};

static const char same_job_script[] =
    "local seen = redis.call('HGET', KEYS[1], ARGV[1]) "
    "if seen then return seen end "
    "local head = redis.call('GET', KEYS[2]) or '' "
    "head = redis.sha1hex(head .. ARGV[1] .. ARGV[2] .. ARGV[3]) "
    "local id = redis.call('XADD', KEYS[3], '*', 'batch', ARGV[1], 'key', ARGV[2], "
    "'payload', ARGV[3], 'hash', head) "
    "redis.call('SET', KEYS[2], head) "
    "redis.call('HSET', KEYS[1], ARGV[1], id) "
    "return id";

/* One command on a blocking connection; its first reply line, and a bulk string's text behind it.
 */
static void redis_ask(int fd, const char *request, size_t len, char *reply, size_t size)
{
    if (send(fd, request, len, MSG_NOSIGNAL) != (ssize_t)len) {
        die_errno("send");
    }
    size_t have = 0;
    for (;;) {
        ssize_t n = recv(fd, reply + have, size - 1 - have, 0);
        if (n <= 0) {
            die("Redis closed the connection");
        }
        have += (size_t)n;
        reply[have] = '\0';
        const char *line = strstr(reply, "\r\n");
        if (line != NULL && (reply[0] != '$' || strstr(line + 2, "\r\n") != NULL)) {
            return;
        }
        if (have == size - 1) {
            die("a reply longer than expected");
        }
    }
}

static void redis_setup(struct redis_load *l, const struct driver *d)
{
    char text[2048];
    char reply[256];
    int fd = driver_connect(d->host, d->port);
    int n = snprintf(text, sizeof text, "*1\r\n$8\r\nFLUSHALL\r\n");
    redis_ask(fd, text, (size_t)n, reply, sizeof reply);
    if (reply[0] != '+') {
        die("FLUSHALL: %s", reply);
    }
    n = snprintf(text, sizeof text, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
                 sizeof same_job_script - 1, same_job_script);
    redis_ask(fd, text, (size_t)n, reply, sizeof reply);
    if (memcmp(reply, "$40\r\n", 5) != 0) {
        die("SCRIPT LOAD: %s", reply);
    }
    memcpy(l->script_sha, reply + 5, 40);
    close(fd);
}

static void redis_check(const struct driver *d)
{
    static const char ask[] = "*2\r\n$4\r\nXLEN\r\n$6\r\nevents\r\n";
    char reply[64];
    int fd = driver_connect(d->host, d->port);
    redis_ask(fd, ask, sizeof ask - 1, reply, sizeof reply);
    close(fd);
    if (reply[0] != ':' || strtoull(reply + 1, NULL, 10) != d->result.acks_total) {
        die("%" PRIu64 " acknowledged, but XLEN says %s", d->result.acks_total, reply);
    }
}

static void build_requests(struct redis_load *l)
{
    int n;
    if (l->same_job) {
        n = snprintf(l->head, sizeof l->head,
                     "*9\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n3\r\n$8\r\nreceipts\r\n"
                     "$4\r\nhead\r\n$6\r\nevents\r\n$15\r\nload-0000000000",
                     l->script_sha);
        l->seq_end = (size_t)n;
    } else {
        n = snprintf(l->head, sizeof l->head,
                     "*5\r\n$4\r\nXADD\r\n$6\r\nevents\r\n$1\r\n*\r\n$7\r\npayload");
    }
    ensure(n > 0);
    l->head_len = (size_t)n;
    for (uint32_t i = 0; i < POOL_SINGLES; i++) {
        char payload[PAYLOAD_LEN + 1];
        char key[RECORD_KEY_LEN + 1];
        char *text = must_alloc(PAYLOAD_LEN + 64);
        payload_raw(i, payload);
        record_key(i, key);
        n = l->same_job
                ? snprintf(text, PAYLOAD_LEN + 64, "\r\n$8\r\n%s\r\n$256\r\n%s\r\n", key, payload)
                : snprintf(text, PAYLOAD_LEN + 64, "\r\n$256\r\n%s\r\n", payload);
        ensure(n > 0);
        l->tail[i] = (struct slice){.ptr = text, .len = (size_t)n};
    }
}

static void redis_prepare(struct driver *d, struct driver_conn *c)
{
    struct redis_load *l = d->protocol;
    static_assert(sizeof c->head >= sizeof l->head, "a head fits into a connection");
    if (c->iov_count == 0) {
        memcpy(c->head, l->head, l->head_len);
    }
    c->seq = l->seq_next++;
    uint64_t rest = c->seq;
    for (unsigned i = 1; l->same_job && i <= SEQ_DIGITS; i++) {
        c->head[l->seq_end - i] = (char)('0' + rest % 10u);
        rest /= 10u;
    }
    struct slice tail = l->tail[c->seq % POOL_SINGLES];
    c->iov[0] = (struct iovec){.iov_base = c->head, .iov_len = l->head_len};
    c->iov[1] = (struct iovec){.iov_base = (char *)(uintptr_t)tail.ptr, .iov_len = tail.len};
    c->iov_count = 2;
}

static enum driver_verdict redis_consume(struct driver *d, struct driver_conn *c)
{
    struct redis_load *l = d->protocol;
    const char *line = memmem(c->in, c->in_len, "\r\n", 2);
    if (line == NULL) {
        return DRIVER_MORE;
    }
    size_t line_len = (size_t)(line + 2 - c->in);
    if (c->in[0] == '$') {
        size_t whole = line_len + strtoul(c->in + 1, NULL, 10) + 2;
        if (c->in_len < whole) {
            return DRIVER_MORE;
        }
        bool id = memchr(c->in + line_len, '-', whole - line_len) != NULL;
        return c->in_len > whole ? DRIVER_BROKEN : id ? DRIVER_GOOD : DRIVER_REFUSED;
    }
    if (!l->shown) {
        l->shown = true;
        fprintf(stderr, "bench: refused: %.*s\n", (int)line_len - 2, c->in);
    }
    return c->in_len == line_len ? DRIVER_REFUSED : DRIVER_BROKEN;
}

static void parse(int argc, char **argv, struct driver *d, struct redis_load *l)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},    {"conns", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'}, {"warmup", required_argument, NULL, 'w'},
        {"job", required_argument, NULL, 'j'},     {NULL, 0, NULL, 0},
    };
    const char *job = "plain";
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        switch (o) {
        case 'p':
            d->port = (uint16_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            d->conns = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            d->seconds = strtod(optarg, NULL);
            break;
        case 'w':
            d->warmup_s = strtod(optarg, NULL);
            break;
        case 'j':
            job = optarg;
            break;
        default:
            exit(2);
        }
    }
    l->same_job = strcmp(job, "same") == 0;
    if (optind != argc || d->port == 0 || d->conns == 0 || d->conns > DRIVER_CONNS_MAX ||
        !(d->seconds > 0) || (!l->same_job && strcmp(job, "plain") != 0)) {
        fprintf(stderr, "usage: redis_load --port N [--job plain|same] [--conns N] "
                        "[--seconds S] [--warmup S]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct redis_load l;
    static struct driver d = {.host = "127.0.0.1",
                              .conns = 64,
                              .seconds = 8,
                              .warmup_s = 2,
                              .events_per_batch = 1,
                              .prepare = redis_prepare,
                              .consume = redis_consume,
                              .protocol = &l};
    parse(argc, argv, &d, &l);
    redis_setup(&l, &d);
    build_requests(&l);
    driver_run(&d);
    redis_check(&d);
    return 0;
}
