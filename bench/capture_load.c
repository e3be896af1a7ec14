/* capture_load: PostHog batches into Tallyman, N connections (driver.h).
 *
 * One request is POST /batch with 50 events of 500 bytes (capture.h), each with a uuid of its own
 * number. Plain requests are put together when they are sent: 25 KB are copied and 50 uuids
 * written, a few microseconds. Compressed ones (--gzip LEVEL, zlib's levels; Content-Encoding:
 * gzip) are made before the clock starts, by two threads, at most --prepared of them; when they run
 * out the measured time ends early and the line says how long it was.
 *
 * Without --rate the loop is closed. With --rate EVENTS it is open: requests are due at even
 * distances, whatever the answers do, and latency counts from when a request was due.
 *
 * Every answer is checked: 200, status Ok, 50 events accepted or known, none rejected; at the end
 * the accepted ones must be as many as the new numbers. (With --expect TEXT, for other servers: 200
 * and that text.) All that was sent is answered at the end, so with errors=0 the numbers from
 * --first on, acks_total times 50, are the acknowledged events. */
#include <getopt.h>
#include <pthread.h>
#include <zlib.h>

#include "base/slice.h"
#include "bench/capture.h"
#include "bench/driver.h"

#define BODY_MAX    (CAPTURE_BATCH * (CAPTURE_EVENT_LEN + 1u) + 256u)
#define REQUEST_MAX (BODY_MAX + 512u)
#define MAKERS      2u

struct request {
    char *ptr;
    size_t len;
};

struct capture_load {
    struct capture_ids ids;
    struct capture_forms *forms;
    const char *token;
    const char *expect;
    int level; /* -1: plain */
    uint64_t prepared_max;
    uint64_t batch_next; /* batches sent */
    uint64_t accepted;   /* as the answers say */
    char start[256];     /* of the body, up to the first event */
    size_t start_len;
    char head[512]; /* of a plain request, with the body's start */
    size_t head_len;
    char *body;               /* one buffer a connection */
    struct request *prepared; /* gzip */
    bool shown;
};

struct maker {
    pthread_t thread;
    struct capture_load *l;
    const struct driver *d;
    unsigned number;
};

/* The events of a batch, separated by commas, and the body's end; returns their length. */
static size_t put_events(const struct capture_load *l, uint64_t batch, char *out)
{
    char *at = out;
    uint64_t g = l->ids.first + batch * CAPTURE_BATCH;
    for (unsigned i = 0; i < CAPTURE_BATCH; i++, g++) {
        capture_event(l->forms, &l->ids, capture_resolve(&l->ids, g), at);
        at += CAPTURE_EVENT_LEN;
        *at++ = ',';
    }
    at[-1] = ']';
    *at++ = '}';
    return (size_t)(at - out);
}

static size_t put_head(const struct driver *d, size_t body_len, bool gzip, char *out)
{
    int n =
        snprintf(out, 512,
                 "POST /batch HTTP/1.1\r\nHost: %s:%u\r\nContent-Type: application/json\r\n"
                 "%sContent-Length: %zu\r\n\r\n",
                 d->host, (unsigned)d->port, gzip ? "Content-Encoding: gzip\r\n" : "", body_len);
    ensure(n > 0);
    ensure(n < 512);
    return (size_t)n;
}

static void build_plain(struct capture_load *l, const struct driver *d)
{
    size_t events_len = CAPTURE_BATCH * (CAPTURE_EVENT_LEN + 1u) + 1u;
    l->head_len = put_head(d, l->start_len + events_len, false, l->head);
    ensure(l->head_len + l->start_len <= sizeof l->head);
    memcpy(l->head + l->head_len, l->start, l->start_len);
    l->head_len += l->start_len;
    l->body = must_alloc((size_t)d->conns * BODY_MAX);
}

static void make_request(struct maker *m, z_stream *z, uint64_t batch, char *plain, char *packed)
{
    const struct capture_load *l = m->l;
    memcpy(plain, l->start, l->start_len);
    size_t plain_len = l->start_len + put_events(l, batch, plain + l->start_len);
    if (deflateReset(z) != Z_OK) {
        die("deflateReset");
    }
    z->next_in = (Bytef *)plain;
    z->avail_in = (uInt)plain_len;
    z->next_out = (Bytef *)packed;
    z->avail_out = REQUEST_MAX;
    if (deflate(z, Z_FINISH) != Z_STREAM_END) {
        die("a body grows when it is compressed");
    }
    size_t packed_len = REQUEST_MAX - z->avail_out;
    struct request *r = &m->l->prepared[batch];
    r->ptr = must_alloc(packed_len + 512);
    size_t head_len = put_head(m->d, packed_len, true, r->ptr);
    memcpy(r->ptr + head_len, packed, packed_len);
    r->len = head_len + packed_len;
}

static void *make_requests(void *arg)
{
    struct maker *m = arg;
    char *plain = must_alloc(REQUEST_MAX);
    char *packed = must_alloc(REQUEST_MAX);
    z_stream z = {0};
    if (deflateInit2(&z, m->l->level, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        die("deflateInit2");
    }
    for (uint64_t i = m->number; i < m->l->prepared_max; i += MAKERS) {
        make_request(m, &z, i, plain, packed);
    }
    (void)deflateEnd(&z);
    free(plain);
    free(packed);
    return NULL;
}

static void build_packed(struct capture_load *l, const struct driver *d)
{
    struct maker m[MAKERS];
    l->prepared = must_alloc(l->prepared_max * sizeof *l->prepared);
    for (unsigned i = 0; i < MAKERS; i++) {
        m[i] = (struct maker){.l = l, .d = d, .number = i};
        if (pthread_create(&m[i].thread, NULL, make_requests, &m[i]) != 0) {
            die("pthread_create");
        }
    }
    for (unsigned i = 0; i < MAKERS; i++) {
        (void)pthread_join(m[i].thread, NULL);
    }
}

static void load_prepare(struct driver *d, struct driver_conn *c)
{
    struct capture_load *l = d->protocol;
    c->seq = l->batch_next++;
    if (l->level >= 0) {
        const struct request *r = &l->prepared[c->seq];
        c->iov[0] = (struct iovec){.iov_base = r->ptr, .iov_len = r->len};
        c->iov_count = 1;
        if (l->batch_next == l->prepared_max) {
            driver_end_now(d); /* this was the last one */
        }
        return;
    }
    char *body = l->body + (size_t)c->index * BODY_MAX;
    c->iov[0] = (struct iovec){.iov_base = l->head, .iov_len = l->head_len};
    c->iov[1] = (struct iovec){.iov_base = body, .iov_len = put_events(l, c->seq, body)};
    c->iov_count = 2;
}

/* A number of the answer's; a large one when it is not there. */
static uint64_t said(struct slice body, const char *name)
{
    const char *at = memmem(body.ptr, body.len, name, strlen(name));
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : UINT32_MAX;
}

static bool good_answer(struct capture_load *l, struct slice body)
{
    static const char ok[] = "{\"status\":\"Ok\"";
    if (l->expect != NULL) {
        return memmem(body.ptr, body.len, l->expect, strlen(l->expect)) != NULL;
    }
    if (body.len < sizeof ok || memcmp(body.ptr, ok, sizeof ok - 1) != 0) {
        return false;
    }
    if (body.len == sizeof ok && body.ptr[body.len - 1] == '}') {
        l->accepted += CAPTURE_BATCH; /* all new: no counts */
        return true;
    }
    uint64_t accepted = said(body, "\"accepted\":");
    if (accepted + said(body, "\"duplicates\":") != CAPTURE_BATCH ||
        said(body, "\"rejected\":") != 0) {
        return false;
    }
    l->accepted += accepted;
    return true;
}

static enum driver_verdict load_consume(struct driver *d, struct driver_conn *c)
{
    struct capture_load *l = d->protocol;
    const char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (end == NULL) {
        return DRIVER_MORE;
    }
    size_t head_len = (size_t)(end + 4 - c->in);
    const char *length = memmem(c->in, head_len, "ontent-Length: ", 15);
    if (length == NULL) {
        length = memmem(c->in, head_len, "ontent-length: ", 15);
    }
    if (length == NULL || c->in_len < 12) {
        return DRIVER_BROKEN;
    }
    size_t body_len = strtoul(length + 15, NULL, 10);
    if (body_len > sizeof c->in - head_len || head_len + body_len < c->in_len) {
        return DRIVER_BROKEN;
    }
    if (head_len + body_len > c->in_len) {
        return DRIVER_MORE;
    }
    if (memcmp(c->in, "HTTP/1.1 200", 12) == 0 && good_answer(l, slice_of(end + 4, body_len))) {
        return DRIVER_GOOD;
    }
    if (!l->shown) {
        l->shown = true;
        fprintf(stderr, "bench: refused: %.12s %.*s\n", c->in,
                (int)(body_len < 400 ? body_len : 400), end + 4);
    }
    return DRIVER_REFUSED;
}

__attribute__((noreturn)) static void usage(void)
{
    fprintf(stderr, "usage: capture_load --port N --token TEXT --uuid random|v7 --prefilled N "
                    "--first EVENT [--host IPV4] [--conns N] [--gzip LEVEL|-1 for the default] "
                    "[--prepared N] [--rate EVENTS] [--seconds S] [--warmup S] [--expect TEXT]\n");
    exit(2);
}

static bool take(int o, struct driver *d, struct capture_load *l)
{
    switch (o) {
    case 'p':
        d->port = (uint16_t)strtoul(optarg, NULL, 10);
        return true;
    case 'H':
        d->host = optarg;
        return true;
    case 'c':
        d->conns = (uint32_t)strtoul(optarg, NULL, 10);
        return true;
    case 't':
        l->token = optarg;
        return true;
    case 'u':
        return capture_kind(optarg, &l->ids.v7);
    case 'f':
        l->ids.first = strtoull(optarg, NULL, 10);
        return true;
    case 'n':
        l->ids.prefilled = strtoull(optarg, NULL, 10);
        return true;
    case 'g':
        l->level = (int)strtol(optarg, NULL, 10);
        l->level = l->level < 0 ? 6 : l->level; /* what zlib calls its default */
        return l->level <= 9;
    case 'P':
        l->prepared_max = strtoull(optarg, NULL, 10);
        return true;
    case 'r':
        d->rate = strtod(optarg, NULL) / CAPTURE_BATCH;
        return true;
    case 's':
        d->seconds = strtod(optarg, NULL);
        return true;
    case 'w':
        d->warmup_s = strtod(optarg, NULL);
        return true;
    case 'e':
        l->expect = optarg;
        return true;
    default:
        return false;
    }
}

static void parse(int argc, char **argv, struct driver *d, struct capture_load *l)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},      {"host", required_argument, NULL, 'H'},
        {"conns", required_argument, NULL, 'c'},     {"token", required_argument, NULL, 't'},
        {"uuid", required_argument, NULL, 'u'},      {"first", required_argument, NULL, 'f'},
        {"prefilled", required_argument, NULL, 'n'}, {"gzip", required_argument, NULL, 'g'},
        {"prepared", required_argument, NULL, 'P'},  {"rate", required_argument, NULL, 'r'},
        {"seconds", required_argument, NULL, 's'},   {"warmup", required_argument, NULL, 'w'},
        {"expect", required_argument, NULL, 'e'},    {NULL, 0, NULL, 0},
    };
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        if (!take(o, d, l)) {
            usage();
        }
    }
    if (optind != argc || d->port == 0 || d->conns == 0 || d->conns > DRIVER_CONNS_MAX ||
        !(d->seconds > 0) || d->rate < 0 || l->token == NULL || strlen(l->token) > 64 ||
        l->ids.first < l->ids.prefilled || l->prepared_max < d->conns) {
        usage();
    }
    l->ids.distance = capture_distance(d->conns);
}

int main(int argc, char **argv)
{
    static struct capture_load l = {.level = -1, .prepared_max = 10000};
    static struct driver d = {.host = "127.0.0.1",
                              .conns = 64,
                              .seconds = 8,
                              .warmup_s = 2,
                              .prepare = load_prepare,
                              .consume = load_consume,
                              .protocol = &l};
    parse(argc, argv, &d, &l);
    d.events_per_batch = CAPTURE_BATCH;
    l.forms = capture_forms_new();
    int n = snprintf(l.start, sizeof l.start,
                     "{\"api_key\":\"%s\",\"sent_at\":\"2026-11-30T12:00:00.000Z\",\"batch\":[",
                     l.token);
    ensure(n > 0);
    l.start_len = (size_t)n;
    ensure(l.start_len < sizeof l.start);
    if (l.level < 0) {
        build_plain(&l, &d);
    } else {
        build_packed(&l, &d);
    }
    driver_run(&d);
    uint64_t want = capture_distinct(&l.ids, l.ids.first + l.batch_next * CAPTURE_BATCH);
    if (l.expect == NULL && d.result.errors == 0 && l.accepted != want) {
        die("%" PRIu64 " events were new, %" PRIu64 " answered as accepted", want, l.accepted);
    }
    printf("accepted=%" PRIu64 "\n", l.accepted);
    return 0;
}
