/* upload_load: small files to a tus server on N connections in a closed loop (driver.h).
 *
 * --how creation: one POST that brings the file; two: a POST without a body, then a PATCH with it.
 * One file is in flight a connection; its latency runs from the first byte of its first request to
 * the answer that says it is there. No two files have the same bytes: each begins with its number.
 *
 * Every answer is checked. --server tallyman: the receipt must be of this upload's id, size and
 * BLAKE3; floor: `Blake3` must be that of the bytes; tus: Upload-Offset must be the size, more it
 * does not tell. Anything else is an error, and the first one is shown. With --acks FILE a line
 * "ID BLAKE3 NUMBER" is written for each file that was acknowledged. --files N ends the load after
 * that many. The result line is that of meter.h; an event is a file. */
#include <getopt.h>

#include "base/blake3.h"
#include "base/hash.h"
#include "base/slice.h"
#include "bench/driver.h"

#define STAMP_LEN  16u
#define ID_MAX     64u
#define CHECKSUM   "blake3:"
#define HEADER_MAX 2048u

enum server { SERVER_TALLYMAN, SERVER_FLOOR, SERVER_TUS };

/* What a connection is sending. */
struct slot {
    bool patching; /* the second request of two */
    uint64_t number;
    char id[ID_MAX + 1];
    char hex[BLAKE3_HEX_LEN + 1];
};

struct ack {
    uint64_t number;
    char id[ID_MAX + 1];
    char hex[BLAKE3_HEX_LEN + 1];
};

struct uploads {
    enum server server;
    bool two;
    uint64_t files_max; /* 0: as many as time allows */
    size_t bytes;
    const char *project;
    const char *acks_path;
    unsigned char *base; /* of every file, behind its stamp */
    char project64[256];
    uint64_t next;
    struct slot *slot;
    struct ack *ack;
    size_t ack_count, ack_cap;
    bool shown;
};

/* ---- text ---- */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void base64(char *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)(unsigned char)text[i] << 16;
        bits |= have > 1 ? (uint32_t)(unsigned char)text[i + 1] << 8 : 0;
        bits |= have > 2 ? (uint32_t)(unsigned char)text[i + 2] : 0;
        for (size_t k = 0; k < 4; k++) {
            *out++ = k <= have ? digits64[bits >> (18 - 6 * k) & 63] : '=';
        }
    }
    *out = '\0';
}

/* base64url without padding; false when it is none or does not fit. */
static bool unbase64url(struct slice text, char *out, size_t size)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        const char *at = memchr(digits64, c == '-' ? '+' : c == '_' ? '/' : c, 64);
        if (at == NULL || c == '+' || c == '/' || n + 1 >= size) {
            return false;
        }
        bits = bits << 6 | (uint32_t)(at - digits64);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (char)(bits >> have & 0xff);
        }
    }
    out[n] = '\0';
    return strlen(out) == n;
}

/* The value of a header, or an empty slice. */
static struct slice header(struct slice head, const char *name)
{
    size_t n = strlen(name);
    const char *end = head.ptr + head.len;
    const char *line = head.ptr;
    while ((line = memmem(line, (size_t)(end - line), "\r\n", 2)) != NULL) {
        line += 2;
        if ((size_t)(end - line) > n && strncasecmp(line, name, n) == 0 && line[n] == ':') {
            const char *value = line + n + 1;
            const char *stop = memmem(value, (size_t)(end - value), "\r\n", 2);
            value += *value == ' ' ? 1 : 0;
            return (struct slice){.ptr = value, .len = (size_t)(stop - value)};
        }
    }
    return (struct slice){0};
}

/* ---- requests ---- */

static void stamp(char out[STAMP_LEN + 1], uint64_t number)
{
    snprintf(out, STAMP_LEN + 1, "%016" PRIx64, number);
}

static void declare(const struct uploads *l, struct slot *s)
{
    char text[STAMP_LEN + 1];
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    stamp(text, s->number);
    blake3_start(&h);
    blake3_add(&h, text, STAMP_LEN);
    blake3_add(&h, l->base + STAMP_LEN, l->bytes - STAMP_LEN);
    blake3_end(&h, digest);
    hex_encode(s->hex, digest, sizeof digest);
    s->hex[BLAKE3_HEX_LEN] = '\0';
}

/* The body follows the head in the same write; its stamp stands behind the head. */
static void send_with(const struct uploads *l, struct driver_conn *c, const struct slot *s, int n,
                      bool body)
{
    ensure(n > 0);
    size_t len = (size_t)n;
    ensure(len + STAMP_LEN < sizeof c->head);
    c->iov_first = 0;
    c->iov_count = 1;
    if (body) {
        stamp(c->head + len, s->number);
        len += STAMP_LEN;
        c->iov[1] =
            (struct iovec){.iov_base = l->base + STAMP_LEN, .iov_len = l->bytes - STAMP_LEN};
        c->iov_count = 2;
    }
    c->iov[0] = (struct iovec){.iov_base = c->head, .iov_len = len};
}

static void prepare_post(struct driver *d, struct driver_conn *c)
{
    struct uploads *l = d->protocol;
    struct slot *s = &l->slot[c->index];
    char checksum[sizeof CHECKSUM + BLAKE3_HEX_LEN];
    char checksum64[(sizeof checksum + 2) / 3 * 4 + 1];
    *s = (struct slot){.number = l->next++};
    declare(l, s);
    snprintf(checksum, sizeof checksum, CHECKSUM "%s", s->hex);
    base64(checksum64, checksum, strlen(checksum));
    int n = snprintf(c->head, sizeof c->head,
                     "POST /files HTTP/1.1\r\nHost: %s:%u\r\nTus-Resumable: 1.0.0\r\n"
                     "Upload-Length: %zu\r\nUpload-Metadata: project %s,checksum %s\r\n"
                     "%sContent-Length: %zu\r\n\r\n",
                     d->host, (unsigned)d->port, l->bytes, l->project64, checksum64,
                     l->two ? "" : "Content-Type: application/offset+octet-stream\r\n",
                     l->two ? (size_t)0 : l->bytes);
    send_with(l, c, s, n, !l->two);
    c->seq = s->number;
    if (l->next == l->files_max) {
        driver_end_now(d);
    }
}

static bool send_patch(const struct driver *d, struct driver_conn *c)
{
    struct uploads *l = d->protocol;
    struct slot *s = &l->slot[c->index];
    int n = snprintf(c->head, sizeof c->head,
                     "PATCH /files/%s HTTP/1.1\r\nHost: %s:%u\r\nTus-Resumable: 1.0.0\r\n"
                     "Upload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     s->id, d->host, (unsigned)d->port, l->bytes);
    s->patching = true;
    c->in_len = 0;
    send_with(l, c, s, n, true);
    return driver_flush(c);
}

/* ---- answers ---- */

static bool take_id(struct slot *s, struct slice head)
{
    struct slice at = header(head, "Location");
    const char *path = at.len > 0 ? memmem(at.ptr, at.len, "/files/", 7) : NULL;
    if (path == NULL) {
        return false;
    }
    path += 7;
    size_t n = (size_t)(at.ptr + at.len - path);
    if (n == 0 || n > ID_MAX) {
        return false;
    }
    memcpy(s->id, path, n);
    s->id[n] = '\0';
    return true;
}

static bool has(const char *receipt, const char *name, const char *before, const char *value,
                const char *behind)
{
    char text[HEADER_MAX];
    snprintf(text, sizeof text, "\"%s\":%s%s%s", name, before, value, behind);
    return strstr(receipt, text) != NULL;
}

/* What was acknowledged is what was sent, as far as the server tells. */
static bool right(const struct uploads *l, const struct slot *s, struct slice head)
{
    char receipt[HEADER_MAX];
    char size[24];
    snprintf(size, sizeof size, "%zu", l->bytes);
    struct slice offset = header(head, "Upload-Offset");
    if (offset.len != strlen(size) || memcmp(offset.ptr, size, offset.len) != 0) {
        return false;
    }
    if (l->server == SERVER_TUS) {
        return true;
    }
    if (l->server == SERVER_FLOOR) {
        struct slice digest = header(head, "Blake3");
        return digest.len == BLAKE3_HEX_LEN && memcmp(digest.ptr, s->hex, digest.len) == 0;
    }
    struct slice text = header(head, "Artifact-Receipt");
    return text.len > 0 && unbase64url(text, receipt, sizeof receipt) &&
           has(receipt, "id", "\"receipt:", s->id, "\"") &&
           has(receipt, "object_id", "\"", s->id, "\"") &&
           has(receipt, "checksum", "\"" CHECKSUM, s->hex, "\"") &&
           has(receipt, "size_bytes", "", size, ",");
}

static void remember(struct uploads *l, const struct slot *s)
{
    if (l->acks_path == NULL) {
        return;
    }
    if (l->ack_count == l->ack_cap) {
        l->ack_cap = l->ack_cap == 0 ? 4096 : l->ack_cap * 2;
        struct ack *more = realloc(l->ack, l->ack_cap * sizeof *more);
        if (more == NULL) {
            die("no memory for acknowledgements");
        }
        l->ack = more;
    }
    struct ack *a = &l->ack[l->ack_count++];
    a->number = s->number;
    memcpy(a->id, s->id, sizeof a->id);
    memcpy(a->hex, s->hex, sizeof a->hex);
}

static enum driver_verdict refused(struct uploads *l, const struct driver_conn *c)
{
    if (!l->shown) {
        l->shown = true;
        fprintf(stderr, "bench: refused: %.*s\n", (int)(c->in_len < 1500 ? c->in_len : 1500),
                c->in);
    }
    return DRIVER_REFUSED;
}

/* One whole answer, more to come, or none: GOOD, MORE, BROKEN. */
static enum driver_verdict whole(const struct driver_conn *c, struct slice head)
{
    struct slice length = header(head, "Content-Length");
    size_t have = c->in_len - head.len;
    if (header(head, "Transfer-Encoding").len > 0) {
        bool ends = have >= 5 && memcmp(c->in + c->in_len - 5, "0\r\n\r\n", 5) == 0;
        return ends ? DRIVER_GOOD : DRIVER_MORE;
    }
    if (length.len == 0 && memcmp(c->in + 9, "204", 3) != 0) {
        return DRIVER_BROKEN;
    }
    size_t body = length.len > 0 ? strtoul(length.ptr, NULL, 10) : 0;
    if (body > sizeof c->in - head.len - 1 || body < have) {
        return DRIVER_BROKEN;
    }
    return body > have ? DRIVER_MORE : DRIVER_GOOD;
}

static enum driver_verdict consume(struct driver *d, struct driver_conn *c)
{
    struct uploads *l = d->protocol;
    struct slot *s = &l->slot[c->index];
    const char *end = memmem(c->in, c->in_len, "\r\n\r\n", 4);
    if (end == NULL) {
        return DRIVER_MORE;
    }
    struct slice head = {.ptr = c->in, .len = (size_t)(end + 4 - c->in)};
    enum driver_verdict v = head.len < 16 ? DRIVER_BROKEN : whole(c, head);
    if (v != DRIVER_GOOD) {
        return v;
    }
    const char *wanted = s->patching ? "HTTP/1.1 204" : "HTTP/1.1 201";
    if (memcmp(c->in, wanted, 12) != 0 || (!s->patching && !take_id(s, head))) {
        return refused(l, c);
    }
    if (l->two && !s->patching) {
        return send_patch(d, c) ? DRIVER_MORE : DRIVER_BROKEN;
    }
    if (!right(l, s, head)) {
        return refused(l, c);
    }
    remember(l, s);
    return DRIVER_GOOD;
}

/* ---- the program ---- */

static void write_acks(const struct uploads *l)
{
    FILE *f = fopen(l->acks_path, "w");
    if (f == NULL) {
        die_errno(l->acks_path);
    }
    for (size_t i = 0; i < l->ack_count; i++) {
        const struct ack *a = &l->ack[i];
        fprintf(f, "%s %s %" PRIu64 "\n", a->id, a->hex, a->number);
    }
    bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad) {
        die_errno(l->acks_path);
    }
}

static void make_base(struct uploads *l)
{
    uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
    l->base = must_alloc(l->bytes);
    for (size_t i = 0; i < l->bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        l->base[i] = (unsigned char)x;
    }
    ensure(strlen(l->project) * 4 / 3 + 4 < sizeof l->project64);
    base64(l->project64, l->project, strlen(l->project));
}

static bool take_option(int o, struct driver *d, struct uploads *l)
{
    switch (o) {
    case 'p':
        d->port = (uint16_t)strtoul(optarg, NULL, 10);
        return true;
    case 'c':
        d->conns = (uint32_t)strtoul(optarg, NULL, 10);
        return true;
    case 's':
        d->seconds = strtod(optarg, NULL);
        return true;
    case 'w':
        d->warmup_s = strtod(optarg, NULL);
        return true;
    case 'a':
        l->acks_path = optarg;
        return true;
    case 'n':
        l->files_max = strtoull(optarg, NULL, 10);
        return true;
    case 'b':
        l->bytes = strtoul(optarg, NULL, 10);
        return true;
    case 'r':
        l->project = optarg;
        return true;
    case 'h':
        l->two = strcmp(optarg, "two") == 0;
        return l->two || strcmp(optarg, "creation") == 0;
    case 'S':
        l->server = strcmp(optarg, "tus") == 0     ? SERVER_TUS
                    : strcmp(optarg, "floor") == 0 ? SERVER_FLOOR
                                                   : SERVER_TALLYMAN;
        return l->server != SERVER_TALLYMAN || strcmp(optarg, "tallyman") == 0;
    default:
        return false;
    }
}

static void parse(int argc, char **argv, struct driver *d, struct uploads *l)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},
        {"conns", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},
        {"warmup", required_argument, NULL, 'w'},
        {"acks", required_argument, NULL, 'a'},
        {"files", required_argument, NULL, 'n'},
        {"bytes", required_argument, NULL, 'b'},
        {"project", required_argument, NULL, 'r'},
        {"how", required_argument, NULL, 'h'},
        {"server", required_argument, NULL, 'S'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    for (int o = getopt_long(argc, argv, "", options, NULL); o != -1;
         o = getopt_long(argc, argv, "", options, NULL)) {
        good = take_option(o, d, l) && good;
    }
    if (!good || optind != argc || d->port == 0 || d->conns == 0 || d->conns > DRIVER_CONNS_MAX ||
        l->bytes <= STAMP_LEN || l->bytes > 64u << 20 || !(d->seconds > 0) ||
        strlen(l->project) > 128 || (l->files_max > 0 && d->warmup_s > 0)) {
        fprintf(stderr, "usage: upload_load --port N [--server tallyman|floor|tus]\n"
                        "    [--how creation|two] [--conns N] [--bytes N] [--project ID]\n"
                        "    [--seconds S] [--warmup S | --files N --warmup 0] [--acks FILE]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct uploads l = {.bytes = 65536, .project = "files"};
    static struct driver d = {.host = "127.0.0.1",
                              .conns = 1,
                              .seconds = 4,
                              .prepare = prepare_post,
                              .consume = consume,
                              .events_per_batch = 1,
                              .protocol = &l};
    parse(argc, argv, &d, &l);
    l.slot = must_alloc(d.conns * sizeof *l.slot);
    make_base(&l);
    driver_run(&d);
    if (l.acks_path != NULL) {
        write_acks(&l);
    }
    free(l.slot);
    free(l.base);
    free(l.ack);
    return 0;
}
