/* fuzz_http: arbitrary bytes, arbitrarily cut, against the HTTP front.
 *
 * Input: one byte that picks the target, one byte n, n bytes that are the sizes of the pieces, then
 * what the client sends. Targets: the head parser, the chunk decoder, the query decoder, and the
 * whole server with one connection (over wire.h, no kernel). What must hold: the result does not
 * depend on the cuts; slices lie inside their memory; what a head may not hold is not in one that
 * passed; the server ends its turns, frees everything, and answers the same bytes. */
#include <stdio.h>

#include "http/body.h"
#include "http/conn.h"
#include "tests/http/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http_head_limits limits = {
    .head_bytes_max = 2048, .target_bytes_max = 512, .fields_max = 20};

struct cuts {
    const uint8_t *sizes;
    size_t count;
    size_t at;
};

static size_t next_cut(struct cuts *cuts, size_t left)
{
    size_t n = cuts->count == 0 ? left : cuts->sizes[cuts->at % cuts->count];

    cuts->at++;
    n = n == 0 ? 256 : n;
    return n < left ? n : left;
}

/* ---- heads ---- */

static bool inside(struct slice s, const char *p, size_t n)
{
    return s.len == 0 || (s.ptr >= p && s.ptr + s.len <= p + n);
}

static void check_head(const struct http_head *h, const char *p, size_t n)
{
    ensure(h->path.len != 0);
    ensure(h->path.ptr[0] == '/' || slice_eq(h->path, SLICE("*")));
    ensure(h->path.len == 1 || inside(h->path, p, n));
    ensure(inside(h->query, p, n));
    ensure(h->query.len == 0 || h->has_query);
    ensure(inside(h->method, p, n));
    ensure(http_is_token(h->method));
    ensure(!h->chunked || !h->has_length);
    ensure(!h->chunked || h->version_minor == 1);
    ensure(h->has_host || h->version_minor == 0);
    ensure(h->length < UINT64_C(1) << 62);
    for (unsigned i = 0; i < h->field_count; i++) {
        struct slice name = h->fields[i].name;
        struct slice value = h->fields[i].value;

        ensure(inside(name, p, n));
        ensure(inside(value, p, n));
        ensure(http_is_token(name));
        for (size_t k = 0; k < name.len; k++) {
            ensure(name.ptr[k] < 'A' || name.ptr[k] > 'Z');
        }
        ensure(value.len == 0 || (value.ptr[0] != ' ' && value.ptr[value.len - 1] != ' '));
        for (size_t k = 0; k < value.len; k++) {
            unsigned char c = (unsigned char)value.ptr[k];

            ensure(c == '\t' || (c >= 0x20 && c != 0x7f));
        }
    }
    for (size_t i = 0; i < h->path.len; i++) {
        ensure(h->path.ptr[i] > 0x20);
        ensure(h->path.ptr[i] < 0x7f);
    }
}

static int64_t scan_cut(const char *p, size_t n, struct cuts cuts)
{
    struct http_head_scan scan = {0};
    size_t have = 0;
    int64_t got = 0;

    while (got == 0 && have < n) {
        have += next_cut(&cuts, n - have);
        /* A copy of just these bytes, so that reading past them is seen. */
        char *copy = malloc(have);

        ensure(copy != NULL);
        memcpy(copy, p, have);
        got = http_head_scan(&scan, &limits, copy, have);
        free(copy);
    }
    return got;
}

static void fuzz_head(const char *p, size_t n, struct cuts cuts)
{
    struct http_head_scan scan = {0};
    struct http_field fields[20];
    struct http_head head;
    int64_t got = http_head_scan(&scan, &limits, p, n);
    char *copy;

    ensure(n == 0 || scan_cut(p, n, cuts) == got);
    if (got <= 0) {
        return;
    }
    ensure((size_t)got <= n);
    ensure((size_t)got <= limits.head_bytes_max);
    ensure(memcmp(p + got - 4, "\r\n\r\n", 4) == 0);
    copy = malloc((size_t)got);
    ensure(copy != NULL);
    memcpy(copy, p, (size_t)got);
    if (http_head_parse(&head, fields, 20, &limits, copy, (size_t)got) == 0) {
        check_head(&head, copy, (size_t)got);
        (void)http_host_is_loopback(head.host);
        (void)http_method_of(head.method);
    }
    free(copy);
}

/* ---- chunks ---- */

static int decode(const char *p, size_t n, struct cuts cuts, struct buf *out, size_t *end)
{
    struct http_chunks d = {0};
    size_t at = 0;
    int got = 0;

    while (got == 0 && at < n) {
        size_t have = next_cut(&cuts, n - at);
        size_t stop = at + have;

        while (got == 0 && at < stop) {
            size_t used;
            struct slice data;

            got = http_chunks_step(&d, 4096, p + at, stop - at, &used, &data);
            ensure(used <= stop - at);
            ensure(used != 0 || got != 0);
            ensure(inside(data, p + at, used));
            buf_put_slice(out, data);
            at += used;
        }
    }
    ensure(out->len <= 4096);
    *end = at;
    return got;
}

static void fuzz_chunks(const char *p, size_t n, struct cuts cuts)
{
    struct buf whole = {0};
    struct buf cut = {0};
    size_t whole_end;
    size_t cut_end;
    int got = decode(p, n, (struct cuts){0}, &whole, &whole_end);

    ensure(decode(p, n, cuts, &cut, &cut_end) == got);
    ensure(whole_end == cut_end);
    ensure(slice_eq(buf_slice(&whole), buf_slice(&cut)));
    buf_free(&whole);
    buf_free(&cut);
}

/* ---- queries ---- */

static void fuzz_query(const char *p, size_t n)
{
    struct http_pairs pairs = {.rest = slice_of(p, n)};
    struct arena arena = {0};
    struct slice name;
    struct slice value;
    size_t total = 0;

    while (http_next_pair(&pairs, &arena, &name, &value) == 1) {
        total += name.len + value.len;
        ensure(name.ptr[name.len] == '\0');
        ensure(value.ptr[value.len] == '\0');
    }
    ensure(total <= n);
    arena_free(&arena);
}

/* ---- the server ---- */

static struct http_request *held[64];
static size_t held_count;

static void on_echo(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer(req, 200, "text/plain", http_body(req));
}

static void on_held(void *ctx, struct http_request *req)
{
    (void)ctx;
    ensure(held_count < 64);
    held[held_count] = req;
    held_count++;
}

static void on_turn(void *ctx)
{
    for (size_t i = 0; i < held_count; i++) {
        on_echo(ctx, held[i]);
    }
    held_count = 0;
}

static void serve(const char *p, size_t n, struct cuts cuts, struct buf *out)
{
    static const struct http_route routes[] = {
        {.path = "/",
         .methods = HTTP_GET | HTTP_POST,
         .body_max_bytes = 1024,
         .on_request = on_echo},
        {.path = "/d", .methods = HTTP_POST, .body_max_bytes = 512, .on_request = on_held},
        {.path = "/p/*/x",
         .methods = HTTP_GET | HTTP_POST,
         .auth = HTTP_AUTH_OPEN,
         .shape = HTTP_SHAPE_SEGMENT,
         .body_max_bytes = 512,
         .on_request = on_echo,
         .slash_too = true,
         .cors = true},
    };
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = sizeof routes / sizeof routes[0],
                                 .hooks = {.turn = on_turn}};
    struct err e = {0};

    config.limits.workers = 1;
    config.limits.pipeline_max = 8;
    config.limits.head_bytes_max = 2048;
    wire = (struct wire){.in = p, .in_len = n, .ends = true};
    wire.cuts = cuts.sizes;
    wire.cut_count = cuts.count;
    wire.send_max = cuts.count;
    ensure(wire_run(&config, &e) == 0);
    ensure(wire.closed);
    *out = wire.out;
}

/* Takes out 100 Continue: whether it is sent depends on when the body comes. */
static void drop_interim(struct buf *b)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t n = sizeof interim - 1;
    char *at = b->len == 0 ? NULL : memmem(b->ptr, b->len, interim, n);

    while (at != NULL) {
        size_t behind = b->len - (size_t)(at - b->ptr) - n;

        memmove(at, at + n, behind);
        b->len -= n;
        at = memmem(b->ptr, b->len, interim, n);
    }
}

static void fuzz_server(const char *p, size_t n, struct cuts cuts)
{
    struct buf whole = {0};
    struct buf cut = {0};

    serve(p, n, (struct cuts){0}, &whole);
    serve(p, n, cuts, &cut);
    drop_interim(&whole);
    drop_interim(&cut);
    ensure(slice_eq(buf_slice(&whole), buf_slice(&cut)));
    buf_free(&whole);
    buf_free(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cuts cuts = {0};
    const char *p;
    size_t n;

    if (size < 2 || size < 2u + data[1]) {
        return 0;
    }
    cuts.sizes = data + 2;
    cuts.count = data[1];
    n = size - 2 - cuts.count;
    p = (const char *)data + 2 + cuts.count;
    switch (data[0] % 4) {
    case 0:
        fuzz_head(p, n, cuts);
        break;
    case 1:
        fuzz_chunks(p, n, cuts);
        break;
    case 2:
        fuzz_query(p, n);
        break;
    default:
        fuzz_server(p, n, cuts);
        break;
    }
    return 0;
}
