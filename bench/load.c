/* load: appends to Tallyman over HTTP as fast as N connections in a closed loop go (driver.h).
 *
 * One request is POST /v1/events with one batch of --batch events of 256-byte payloads (payload.h)
 * and a batch id that was never used before: PREFIX-SEQUENCE. Requests are built before the clock
 * starts; while it runs only the ten digits of the sequence change.
 *
 * Every answer is checked: status 200, "committed", the right number of events, both event ids.
 * Anything else is counted as an error and the first one is shown. With --acks FILE the
 * acknowledged batches and their ids are written there at the end, for bench/verify; also when the
 * server is gone in the middle, so that a run that was cut by kill -9 leaves what it was told.
 *
 * With --repeat FILE nothing new is sent but the batches of such a file, from all over it, each
 * once before the first one again. Every answer must be "duplicate" with the ids of the record.
 *
 * The result line is that of meter.h. */
#include <getopt.h>

#include "base/hash.h"
#include "base/slice.h"
#include "bench/acks.h"
#include "bench/driver.h"
#include "bench/payload.h"

#define SEQ_DIGITS 10u
#define ACK_CHUNK  65536u

struct ack_chunk {
    struct ack_chunk *next;
    uint32_t count;
    struct ack ack[ACK_CHUNK];
};

struct load {
    uint32_t batch;
    const char *prefix;
    const char *acks_path;   /* NULL: none */
    const char *repeat_path; /* NULL: new batches */
    char head[512];          /* request up to and with the sequence, "0000000000" */
    size_t head_len;
    struct slice *tail; /* rest of the request, one per pooled batch */
    uint32_t tail_count;
    uint64_t seq_next;
    struct ack *repeat; /* the records of repeat_path, in the order in which they are sent */
    uint64_t repeat_count;
    struct ack_chunk *acks_first;
    struct ack_chunk *acks_last;
    uint64_t acks_count;
    bool shown;
};

/* Of the whole program: what was acknowledged is written wherever it ends. */
static struct load load = {.batch = 1, .prefix = "load"};

static char *put(char *to, const char *text)
{
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

/* The part of the body behind the batch id. */
static struct slice build_tail(const struct load *l, uint32_t pool)
{
    char *text = must_alloc((size_t)l->batch * (PAYLOAD_LEN + 128u) + 128u);
    char *at = put(text, "\",\"source\":\"bench\",\"events\":[");
    for (uint32_t i = 0; i < l->batch; i++) {
        uint32_t number = payload_number(pool, l->batch, i);
        char key[RECORD_KEY_LEN + 1];
        char payload[PAYLOAD_LEN + 1];
        record_key(number, key);
        payload_raw(number, payload);
        at = put(at, i == 0 ? "" : ",");
        at = put(at, "{\"stream\":\"s\",\"record_key\":\"");
        at = put(at, key);
        at = put(at, "\",\"kind\":\"upserted\",\"payload\":");
        at = put(at, payload);
        at = put(at, "}");
    }
    at = put(at, "]}");
    return (struct slice){.ptr = text, .len = (size_t)(at - text)};
}

static void build_requests(struct load *l, const struct driver *d)
{
    l->tail_count = pool_count(l->batch);
    l->tail = must_alloc(l->tail_count * sizeof *l->tail);
    for (uint32_t i = 0; i < l->tail_count; i++) {
        l->tail[i] = build_tail(l, i);
        ensure(l->tail[i].len == l->tail[0].len);
    }
    char start[128];
    int start_len = snprintf(start, sizeof start, "{\"batch_id\":\"%s-0000000000", l->prefix);
    ensure(start_len > 0);
    int n = snprintf(l->head, sizeof l->head,
                     "POST /v1/events HTTP/1.1\r\nHost: %s:%u\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     d->host, (unsigned)d->port, (size_t)start_len + l->tail[0].len, start);
    ensure(n > 0);
    l->head_len = (size_t)n;
    ensure(l->head_len < sizeof l->head);
}

static void load_prepare(struct driver *d, struct driver_conn *c)
{
    struct load *l = d->protocol;
    static_assert(sizeof c->head >= sizeof l->head, "a head fits into a connection");
    if (c->iov_count == 0) {
        memcpy(c->head, l->head, l->head_len);
    }
    uint64_t number = l->seq_next++;
    c->seq = number;
    if (l->repeat != NULL) {
        c->seq = number % l->repeat_count;
        number = l->repeat[c->seq].seq;
    }
    uint64_t rest = number;
    for (unsigned i = 1; i <= SEQ_DIGITS; i++) {
        c->head[l->head_len - i] = (char)('0' + rest % 10u);
        rest /= 10u;
    }
    struct slice tail = l->tail[number % l->tail_count];
    c->iov[0] = (struct iovec){.iov_base = c->head, .iov_len = l->head_len};
    c->iov[1] = (struct iovec){.iov_base = (char *)(uintptr_t)tail.ptr, .iov_len = tail.len};
    c->iov_count = 2;
}

/* The text behind name in the body, or NULL. */
static const char *member(struct slice body, const char *name)
{
    size_t n = strlen(name);
    const char *at = memmem(body.ptr, body.len, name, n);
    return at != NULL ? at + n : NULL;
}

/* 36 characters of a lower-case UUID at text to 16 bytes. */
static bool event_id(struct slice body, const char *text, uint8_t out[16])
{
    static const uint8_t start[6] = {0, 9, 14, 19, 24, 36};
    if (text == NULL || text + 37 > body.ptr + body.len || text[36] != '"') {
        return false;
    }
    size_t have = 0;
    for (unsigned part = 0; part < 5; part++) {
        size_t len = (size_t)(start[part + 1] - start[part]) - (part < 4 ? 1u : 0u);
        if (!hex_decode(out + have, (struct slice){text + start[part], len}, len / 2)) {
            return false;
        }
        have += len / 2;
    }
    return have == 16;
}

static void remember(struct load *l, const struct ack *ack)
{
    if (l->acks_path == NULL) {
        return;
    }
    if (l->acks_last == NULL || l->acks_last->count == ACK_CHUNK) {
        struct ack_chunk *chunk = malloc(sizeof *chunk);
        if (chunk == NULL) {
            die("no memory for acknowledgements");
        }
        chunk->next = NULL;
        chunk->count = 0;
        if (l->acks_last != NULL) {
            l->acks_last->next = chunk;
        } else {
            l->acks_first = chunk;
        }
        l->acks_last = chunk;
    }
    l->acks_last->ack[l->acks_last->count++] = *ack;
    l->acks_count++;
}

static bool receipt(const struct load *l, struct slice body, struct ack *ack)
{
    const char *status = member(body, "\"status\":\"");
    const char *events = member(body, "\"events\":");
    const char *want = l->repeat == NULL ? "committed\"" : "duplicate\"";
    if (status == NULL || events == NULL || memcmp(status, want, 10) != 0 ||
        strtoul(events, NULL, 10) != l->batch ||
        !event_id(body, member(body, "\"first_event_id\":\""), ack->first_event_id) ||
        !event_id(body, member(body, "\"last_event_id\":\""), ack->last_event_id)) {
        return false;
    }
    const struct ack *was = l->repeat == NULL ? ack : &l->repeat[ack->seq];
    return memcmp(ack->first_event_id, was->first_event_id, 16) == 0 &&
           memcmp(ack->last_event_id, was->last_event_id, 16) == 0;
}

static enum driver_verdict load_consume(struct driver *d, struct driver_conn *c)
{
    struct load *l = d->protocol;
    const char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (end == NULL) {
        return DRIVER_MORE;
    }
    struct slice head = {.ptr = c->in, .len = (size_t)(end + 4 - c->in)};
    const char *length = member(head, "\r\nContent-Length: ");
    if (length == NULL) {
        length = member(head, "\r\ncontent-length: ");
    }
    if (length == NULL || c->in_len < 12) {
        return DRIVER_BROKEN;
    }
    struct slice body = {.ptr = end + 4, .len = strtoul(length, NULL, 10)};
    if (body.len > sizeof c->in - head.len - 1 || head.len + body.len < c->in_len) {
        return DRIVER_BROKEN;
    }
    if (head.len + body.len > c->in_len) {
        return DRIVER_MORE;
    }
    c->in[c->in_len] = '\0';
    struct ack ack = {.seq = c->seq};
    if (memcmp(c->in, "HTTP/1.1 200", 12) == 0 && receipt(l, body, &ack)) {
        remember(l, &ack);
        return DRIVER_GOOD;
    }
    if (!l->shown) {
        l->shown = true;
        fprintf(stderr, "bench: refused: %.12s %.*s\n", c->in,
                (int)(body.len < 400 ? body.len : 400), body.ptr);
    }
    return DRIVER_REFUSED;
}

/* At exit, so it may not end the program by die(). */
static void write_acks(void)
{
    const struct load *l = &load;
    FILE *f = fopen(l->acks_path, "wb");
    struct acks_header h = {.magic = ACKS_MAGIC,
                            .events_per_batch = l->batch,
                            .pool_count = l->tail_count,
                            .count = l->acks_count};
    memcpy(h.prefix, l->prefix, strlen(l->prefix));
    bool good = f != NULL && fwrite(&h, sizeof h, 1, f) == 1;
    for (const struct ack_chunk *c = l->acks_first; good && c != NULL; c = c->next) {
        good = fwrite(c->ack, sizeof c->ack[0], c->count, f) == c->count;
    }
    if (f == NULL || fclose(f) != 0 || !good) {
        perror(l->acks_path);
        _exit(1);
    }
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The batches to repeat, from all over the file: neighbours in it are about 0.38 of it apart. */
static void read_repeat(struct load *l)
{
    static struct acks_header h;
    FILE *f = fopen(l->repeat_path, "rb");
    if (f == NULL) {
        die_errno(l->repeat_path);
    }
    if (fread(&h, sizeof h, 1, f) != 1 || memcmp(h.magic, ACKS_MAGIC, sizeof h.magic) != 0 ||
        h.count == 0 || h.events_per_batch == 0 || h.pool_count != pool_count(h.events_per_batch)) {
        die("%s holds no acknowledgements", l->repeat_path);
    }
    l->repeat = must_alloc(h.count * sizeof *l->repeat);
    uint64_t stride = h.count * 382 / 1000 + 1;
    while (common_divisor(stride, h.count) != 1) {
        stride++;
    }
    for (uint64_t i = 0, to = 0; i < h.count; i++, to = (to + stride) % h.count) {
        if (fread(&l->repeat[to], sizeof *l->repeat, 1, f) != 1) {
            die("%s is cut off", l->repeat_path);
        }
    }
    fclose(f);
    l->repeat_count = h.count;
    l->batch = h.events_per_batch;
    l->prefix = h.prefix;
}

static void parse(int argc, char **argv, struct driver *d, struct load *l)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},    {"host", required_argument, NULL, 'H'},
        {"conns", required_argument, NULL, 'c'},   {"batch", required_argument, NULL, 'b'},
        {"seconds", required_argument, NULL, 's'}, {"warmup", required_argument, NULL, 'w'},
        {"acks", required_argument, NULL, 'a'},    {"prefix", required_argument, NULL, 'x'},
        {"repeat", required_argument, NULL, 'r'},  {NULL, 0, NULL, 0},
    };
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        switch (o) {
        case 'p':
            d->port = (uint16_t)strtoul(optarg, NULL, 10);
            break;
        case 'H':
            d->host = optarg;
            break;
        case 'c':
            d->conns = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'b':
            l->batch = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            d->seconds = strtod(optarg, NULL);
            break;
        case 'w':
            d->warmup_s = strtod(optarg, NULL);
            break;
        case 'a':
            l->acks_path = optarg;
            break;
        case 'x':
            l->prefix = optarg;
            break;
        case 'r':
            l->repeat_path = optarg;
            break;
        default:
            exit(2);
        }
    }
    if (optind != argc || d->port == 0 || d->conns == 0 || d->conns > DRIVER_CONNS_MAX ||
        l->batch == 0 || l->batch > 10000 || !(d->seconds > 0) ||
        strlen(l->prefix) > ACKS_PREFIX_MAX || (l->acks_path != NULL && l->repeat_path != NULL)) {
        fprintf(stderr,
                "usage: load --port N [--host IPV4] [--conns N] [--batch EVENTS] "
                "[--seconds S] [--warmup S] [--prefix TEXT] [--acks FILE | --repeat FILE]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct driver d = {.host = "127.0.0.1",
                              .conns = 64,
                              .seconds = 8,
                              .warmup_s = 2,
                              .prepare = load_prepare,
                              .consume = load_consume,
                              .protocol = &load};
    parse(argc, argv, &d, &load);
    if (load.repeat_path != NULL) {
        read_repeat(&load);
    }
    d.events_per_batch = load.batch;
    build_requests(&load, &d);
    if (load.acks_path != NULL && atexit(write_acks) != 0) {
        die("no room for what is done at the end");
    }
    driver_run(&d);
    return 0;
}
