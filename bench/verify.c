/* verify: after a benchmark, reads the whole history back and holds it against the
 * acknowledgements.
 *
 *   verify --port N --acks FILE
 *
 * Replays everything with GET /v1/events (NDJSON, pages of --limit events) and checks that
 *   - event ids rise strictly from line to line;
 *   - the events of a batch are one run, in the order they were sent: the key and the canonical
 * payload of event i are those bench/load put into it (payload.h), byte for byte;
 *   - every acknowledged batch is there exactly once, with the first and last id of its receipt;
 *   - nothing else is there: bench/load waits for every answer, so a batch without one was never
 * sent. Prints "verified batches=N events=N" and ends with 0, or says what is wrong and ends
 * with 1. */
#include <getopt.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/slice.h"
#include "bench/acks.h"
#include "bench/driver.h"
#include "bench/payload.h"

#define READ_BYTES ((size_t)4 << 20)
#define ID_LEN     36u

struct reader {
    int fd;
    char *in; /* raw bytes of the answer, [at, len) unread */
    size_t at;
    size_t len;
    bool chunked;
    uint64_t left; /* bytes of the body (Content-Length) or of this chunk */
    bool ended;
    char *line; /* decoded bytes up to the next LF */
    size_t line_len;
    size_t line_cap;
};

struct check {
    struct acks_header header;
    struct ack *ack; /* sorted by first id */
    uint64_t next;   /* the ack whose batch must come next */
    uint32_t index;  /* event of that batch that must come next */
    uint64_t events;
    char id_last[ID_LEN];
    char (*payload)[PAYLOAD_LEN + 1]; /* canonical, by payload number */
    size_t *payload_len;
};

static void fill(struct reader *r)
{
    if (r->at < r->len) {
        return;
    }
    r->at = 0;
    r->len = 0;
    ssize_t n = recv(r->fd, r->in, READ_BYTES, 0);
    if (n <= 0) {
        die("the server closed in the middle of an answer");
    }
    r->len = (size_t)n;
}

/* A header or chunk-size line without its CR LF. */
static void raw_line(struct reader *r, char *out, size_t size)
{
    size_t n = 0;
    for (;;) {
        fill(r);
        char c = r->in[r->at++];
        if (c == '\n') {
            break;
        }
        if (n == size - 1) {
            die("a header line too long");
        }
        out[n++] = c;
    }
    if (n > 0 && out[n - 1] == '\r') {
        n--;
    }
    out[n] = '\0';
}

static void start_answer(struct reader *r)
{
    char text[1024];
    raw_line(r, text, sizeof text);
    bool good = strncmp(text, "HTTP/1.1 200", 12) == 0;
    if (!good) {
        fprintf(stderr, "bench: %s\n", text);
    }
    bool known = false;
    r->chunked = false;
    r->ended = false;
    r->left = 0;
    for (raw_line(r, text, sizeof text); text[0] != '\0'; raw_line(r, text, sizeof text)) {
        if (strcasecmp(text, "transfer-encoding: chunked") == 0) {
            r->chunked = true;
            known = true;
        } else if (strncasecmp(text, "content-length: ", 16) == 0) {
            r->left = strtoull(text + 16, NULL, 10);
            known = true;
        }
    }
    if (!good || !known) {
        die("the answer to a replay is not one");
    }
}

/* Bytes of the body that can be taken now; 0 at its end. */
static size_t body_room(struct reader *r)
{
    if (r->left == 0 && r->chunked && !r->ended) {
        char text[64];
        raw_line(r, text, sizeof text);
        r->left = strtoull(text, NULL, 16);
        if (r->left == 0) {
            raw_line(r, text, sizeof text); /* no trailers are expected */
            r->ended = true;
        }
    }
    if (r->left == 0) {
        return 0;
    }
    fill(r);
    size_t have = r->len - r->at;
    return have < r->left ? have : (size_t)r->left;
}

static void take(struct reader *r, size_t n)
{
    ensure(n <= r->left);
    r->at += n;
    r->left -= n;
    if (r->left == 0 && r->chunked) {
        char text[8];
        raw_line(r, text, sizeof text);
        if (text[0] != '\0') {
            die("a chunk that does not end where it says");
        }
    }
}

/* The next line of the body without its LF; false at the end of the body. */
static bool body_line(struct reader *r, struct slice *out)
{
    r->line_len = 0;
    for (;;) {
        size_t room = body_room(r);
        if (room == 0) {
            if (r->line_len > 0) {
                die("the last line has no end");
            }
            return false;
        }
        const char *from = r->in + r->at;
        const char *lf = memchr(from, '\n', room);
        size_t n = lf != NULL ? (size_t)(lf - from) : room;
        if (r->line_len + n > r->line_cap) {
            die("a line longer than %zu bytes", r->line_cap);
        }
        memcpy(r->line + r->line_len, from, n);
        r->line_len += n;
        take(r, lf != NULL ? n + 1 : n);
        if (lf != NULL) {
            *out = (struct slice){.ptr = r->line, .len = r->line_len};
            return true;
        }
    }
}

/* The text behind name up to the next quote; an empty slice when there is none. */
static struct slice text_member(struct slice line, const char *name)
{
    size_t n = strlen(name);
    const char *at = memmem(line.ptr, line.len, name, n);
    if (at == NULL) {
        return (struct slice){.ptr = line.ptr, .len = 0};
    }
    at += n;
    const char *end = memchr(at, '"', (size_t)(line.ptr + line.len - at));
    return (struct slice){.ptr = at, .len = end != NULL ? (size_t)(end - at) : 0};
}

static void id_text(const uint8_t id[16], char out[ID_LEN])
{
    static const uint8_t part[6] = {0, 4, 6, 8, 10, 16};
    char *at = out;
    for (unsigned i = 0; i < 5; i++) {
        hex_encode(at, id + part[i], (size_t)(part[i + 1] - part[i]));
        at += 2 * (part[i + 1] - part[i]);
        if (i < 4) {
            *at++ = '-';
        }
    }
    ensure(at == out + ID_LEN);
}

static void expect(const struct check *k, struct slice got, const char *want, size_t len,
                   const char *what)
{
    if (got.len != len || memcmp(got.ptr, want, len) != 0) {
        die("event %" PRIu64 ": %s is %.*s, not %.*s", k->events, what, (int)got.len, got.ptr,
            (int)len, want);
    }
}

/* The payload's text begins behind `"payload":`; its length is known. */
static void expect_payload(const struct check *k, struct slice line, uint32_t number)
{
    const char *at = memmem(line.ptr, line.len, "\"payload\":", 10);
    size_t len = k->payload_len[number];
    if (at == NULL || (size_t)(line.ptr + line.len - at) < 10 + len ||
        memcmp(at + 10, k->payload[number], len) != 0) {
        die("event %" PRIu64 ": the payload is not what was sent: %.*s", k->events, (int)line.len,
            line.ptr);
    }
}

static void check_event(struct check *k, struct slice line)
{
    struct slice id = text_member(line, "\"event_id\":\"");
    if (id.len != ID_LEN || (k->events > 0 && memcmp(id.ptr, k->id_last, ID_LEN) <= 0)) {
        die("event %" PRIu64 ": id %.*s does not rise", k->events, (int)id.len, id.ptr);
    }
    memcpy(k->id_last, id.ptr, ID_LEN);
    if (k->next == k->header.count) {
        die("event %" PRIu64 " was never acknowledged: %.*s", k->events, (int)line.len, line.ptr);
    }
    const struct ack *ack = &k->ack[k->next];
    char text[64];
    int n = snprintf(text, sizeof text, "%s-%010" PRIu64, k->header.prefix, ack->seq);
    expect(k, text_member(line, "\"batch_id\":\""), text, (size_t)n, "batch_id");
    if (k->index == 0) {
        id_text(ack->first_event_id, text);
        expect(k, id, text, ID_LEN, "first_event_id");
    }
    if (k->index == k->header.events_per_batch - 1) {
        id_text(ack->last_event_id, text);
        expect(k, id, text, ID_LEN, "last_event_id");
    }
    uint32_t pool = (uint32_t)(ack->seq % k->header.pool_count);
    uint32_t number = payload_number(pool, k->header.events_per_batch, k->index);
    record_key(number, text);
    expect(k, text_member(line, "\"record_key\":\""), text, RECORD_KEY_LEN, "record_key");
    expect_payload(k, line, number);
    k->events++;
    k->index++;
    if (k->index == k->header.events_per_batch) {
        k->index = 0;
        k->next++;
    }
}

static int by_first_id(const void *a, const void *b)
{
    const struct ack *x = a;
    const struct ack *y = b;
    return memcmp(x->first_event_id, y->first_event_id, sizeof x->first_event_id);
}

static void load_acks(struct check *k, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        die_errno(path);
    }
    if (fread(&k->header, sizeof k->header, 1, f) != 1 ||
        memcmp(k->header.magic, ACKS_MAGIC, sizeof ACKS_MAGIC) != 0 ||
        k->header.prefix[ACKS_PREFIX_MAX] != '\0' || k->header.events_per_batch == 0 ||
        k->header.pool_count == 0) {
        die("%s is no file of acknowledgements", path);
    }
    k->ack = must_alloc((size_t)(k->header.count + 1) * sizeof *k->ack);
    if (fread(k->ack, sizeof *k->ack, (size_t)k->header.count, f) != k->header.count ||
        fgetc(f) != EOF) {
        die("%s does not hold %" PRIu64 " records", path, k->header.count);
    }
    if (fclose(f) != 0) {
        die_errno(path);
    }
    qsort(k->ack, (size_t)k->header.count, sizeof *k->ack, by_first_id);
    uint32_t count = k->header.pool_count * k->header.events_per_batch;
    k->payload = must_alloc(count * sizeof *k->payload);
    k->payload_len = must_alloc(count * sizeof *k->payload_len);
    for (uint32_t i = 0; i < count; i++) {
        k->payload_len[i] = payload_canonical(i, k->payload[i]);
    }
}

/* One page; how many events it held. */
static uint64_t replay_page(struct reader *r, struct check *k, unsigned limit)
{
    char request[256];
    int n = snprintf(request, sizeof request,
                     "GET /v1/events?limit=%u%s%.*s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                     "Accept: application/x-ndjson\r\n\r\n",
                     limit, k->events > 0 ? "&after=" : "", k->events > 0 ? (int)ID_LEN : 0,
                     k->id_last);
    if (send(r->fd, request, (size_t)n, MSG_NOSIGNAL) != n) {
        die_errno("send");
    }
    start_answer(r);
    uint64_t before = k->events;
    bool whole = false;
    struct slice line;
    while (body_line(r, &line)) {
        if (whole) {
            die("a line behind the end of the page: %.*s", (int)line.len, line.ptr);
        }
        if (memmem(line.ptr, line.len, "\"type\":\"error\"", 14) != NULL) {
            die("replay failed: %.*s", (int)line.len, line.ptr);
        }
        whole = memmem(line.ptr, line.len, "\"type\":\"page\"", 13) != NULL;
        if (!whole) {
            check_event(k, line);
        }
    }
    if (!whole) {
        die("a page was cut off after %" PRIu64 " events", k->events);
    }
    return k->events - before;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},
        {"acks", required_argument, NULL, 'a'},
        {"limit", required_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    unsigned long port = 0;
    unsigned limit = 100000;
    const char *path = NULL;
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        port = o == 'p' ? strtoul(optarg, NULL, 10) : port;
        path = o == 'a' ? optarg : path;
        limit = o == 'l' ? (unsigned)strtoul(optarg, NULL, 10) : limit;
    }
    if (optind != argc || port == 0 || port > 65535 || path == NULL || limit == 0) {
        fputs("usage: verify --port N --acks FILE [--limit EVENTS]\n", stderr);
        return 2;
    }
    static struct check k;
    load_acks(&k, path);
    struct reader r = {.fd = driver_connect("127.0.0.1", (uint16_t)port),
                       .in = must_alloc(READ_BYTES),
                       .line = must_alloc(READ_BYTES),
                       .line_cap = READ_BYTES};
    while (replay_page(&r, &k, limit) > 0) {
    }
    if (k.next != k.header.count || k.index != 0) {
        die("%" PRIu64 " of %" PRIu64 " acknowledged batches are missing", k.header.count - k.next,
            k.header.count);
    }
    printf("verified batches=%" PRIu64 " events=%" PRIu64 "\n", k.next, k.events);
    close(r.fd);
    return 0;
}
