/* artifact_kit: what the tests of the artifact door share.
 *
 * The whole door, a real store and the real HTTP front in a thread of its own, asked over TCP on
 * loopback. "demo-files" takes artifacts, "demo" takes none. */
#ifndef TESTS_UNIT_DOOR_ARTIFACT_KIT_H
#define TESTS_UNIT_DOOR_ARTIFACT_KIT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/blake3.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"
#include "tests/lib/faults.h"

#define KIT_ROUTES_MAX 8
#define KIT_WAIT_MS    30000 /* generous: the machine may be busy */
#define TUS            "Tus-Resumable: 1.0.0\r\n"
#define UPLOAD_TYPE    "Content-Type: application/offset+octet-stream\r\n"

struct kit {
    char dir[64];
    char delivered[80]; /* the destination of demo-files */
    unsigned port;
    struct store *store;
    struct artifact *artifact;
    struct http_server *server;
    struct http_route routes[KIT_ROUTES_MAX];
    pthread_t thread;
    bool stopped;
    struct buf answer; /* of the last request, whole */
    unsigned status;
    struct slice head, body;
    char id[UPLOAD_ID_LEN + 1]; /* of the last creation */
};

static inline struct artifact_options kit_options(void)
{
    return (struct artifact_options){.issuer = "http://127.0.0.1:8080",
                                     .public_url = "",
                                     .upload_bytes_max = UINT64_C(1) << 40,
                                     .min_free_bytes = 1,
                                     .low_space_status = 429,
                                     .retention_ms = 1800000,
                                     .uploads_max = 16,
                                     .address_uploads_max = 16,
                                     .project_percent = 100,
                                     .address_percent = 100};
}

struct kit_job {
    struct store_job job;
    struct kit *k;
    bool done;
};

static int kit_make(struct store_job *job, struct store *s, struct err *e)
{
    struct kit *k = ((struct kit_job *)job)->k;
    struct artifact_destination to = {.sink = SLICE(ARTIFACT_SINK_DIRECTORY),
                                      .directory = slice_cstr(k->delivered)};
    int r = control_create_project(s, SLICE("demo-files"), SLICE(""), &to, 1, e);
    return r != 0 ? r : control_create_project(s, SLICE("demo"), SLICE(""), NULL, 1, e);
}

static void kit_made(struct store_job *job, int code, const struct err *e)
{
    struct kit_job *j = (struct kit_job *)job;
    struct err more = {0};
    if (code != 0) {
        fail_msg("the store: %s", e->text);
    }
    assert_int_equal(control_committed(j->k->store, &more), 0);
    j->done = true;
}

static void *kit_serve(void *ctx)
{
    struct kit *k = ctx;
    struct err e = {0};
    return http_run(k->server, &e) == 0 ? NULL : ctx;
}

/* The door and its server, on what is in k->dir. */
static inline void kit_open(struct kit *k, const struct artifact_options *given,
                            const struct http_limits *limits)
{
    struct artifact_options options = *given;
    struct err e = {0};
    options.data = k->dir;
    assert_int_equal(artifact_new(&options, k->store, &k->artifact, &e), 0);
    assert_true(artifact_route_count() <= KIT_ROUTES_MAX);
    artifact_routes(k->artifact, k->routes);
    struct http_config hc = {.limits = limits != NULL ? *limits : http_limits_default,
                             .routes = k->routes,
                             .route_count = artifact_route_count()};
    k->server = http_new(&hc, &e);
    assert_non_null(k->server);
    assert_int_equal(http_listen_tcp(k->server, "127.0.0.1:0", &k->port, &e), 0);
    assert_int_equal(pthread_create(&k->thread, NULL, kit_serve, k), 0);
    k->stopped = false;
}

static inline struct kit *kit_new_with(const struct artifact_options *options,
                                       const struct http_limits *limits)
{
    struct kit *k = calloc(1, sizeof *k);
    struct kit_job j = {.job = {.run = kit_make, .done = kit_made}, .k = k};
    struct store_options so = store_options_default;
    struct err e = {0};
    so.threads = false;
    if (k == NULL) {
        fail();
        return NULL;
    }
    (void)snprintf(k->dir, sizeof k->dir, "/tmp/test_artifact.XXXXXX");
    assert_non_null(mkdtemp(k->dir));
    (void)snprintf(k->delivered, sizeof k->delivered, "%s.out", k->dir);
    assert_int_equal(mkdir(k->delivered, 0700), 0);
    assert_int_equal(store_open(k->dir, &so, &k->store, &e), 0);
    store_submit(k->store, &j.job);
    while (store_turn(k->store)) {
    }
    assert_true(j.done);
    kit_open(k, options, limits);
    return k;
}

static inline struct kit *kit_new(void)
{
    struct artifact_options options = kit_options();
    return kit_new_with(&options, NULL);
}

/* The server ends as on a signal; its door is still there. */
static inline void kit_stop(struct kit *k)
{
    void *failed = NULL;
    if (!k->stopped) {
        http_stop(k->server);
        assert_int_equal(pthread_join(k->thread, &failed), 0);
        assert_null(failed);
        k->stopped = true;
    }
}

static inline void kit_close(struct kit *k)
{
    kit_stop(k);
    artifact_stop(k->artifact);
    artifact_detach(k->artifact);
    http_free(k->server);
    artifact_free(k->artifact);
}

static inline void kit_free(struct kit *k)
{
    char command[256];
    struct err e = {0};
    kit_close(k);
    assert_int_equal(store_close(k->store, &e), 0);
    (void)snprintf(command, sizeof command, "rm -rf '%s' '%s'", k->dir, k->delivered);
    assert_int_equal(system(command), 0);
    buf_free(&k->answer);
    free(k);
}

/* ---- asking ---- */

static inline int kit_connect(const struct kit *k)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)k->port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval limit = {.tv_sec = KIT_WAIT_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof in), 0);
    return fd;
}

static inline void kit_send(int fd, const void *p, size_t n)
{
    const char *at = p;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* an early refusal: the answer tells */
        }
        at += sent;
        n -= (size_t)sent;
    }
}

/* Reads to the end and takes the (one) answer apart. 0: there is none. */
static inline unsigned kit_receive_any(struct kit *k, int fd)
{
    char piece[16384];
    buf_clear(&k->answer);
    for (;;) {
        ssize_t got = recv(fd, piece, sizeof piece, 0);
        if (got <= 0) {
            break;
        }
        buf_put(&k->answer, piece, (size_t)got);
    }
    (void)close(fd);
    buf_put_char(&k->answer, '\0');
    k->answer.len--;
    struct slice all = buf_slice(&k->answer);
    const char *end = memmem(all.ptr, all.len, "\r\n\r\n", 4);
    k->status = 0;
    if (end == NULL || !slice_starts(all, SLICE("HTTP/1.1 "))) {
        return 0;
    }
    k->head = slice_of(all.ptr, (size_t)(end - all.ptr) + 2);
    k->body = slice_from(all, k->head.len + 2);
    k->status = (unsigned)strtoul(all.ptr + 9, NULL, 10);
    return k->status;
}

static inline unsigned kit_receive(struct kit *k, int fd)
{
    if (kit_receive_any(k, fd) == 0) {
        fail_msg("no answer: %.*s", (int)k->answer.len, k->answer.ptr);
    }
    return k->status;
}

/* The head of a request, and no more. length: of the body to come, SIZE_MAX: chunked. */
static inline int kit_begin(struct kit *k, const char *method, const char *target,
                            const char *headers, size_t length)
{
    char head[20000];
    char size[64] = "Transfer-Encoding: chunked\r\n";
    if (length != SIZE_MAX) {
        (void)snprintf(size, sizeof size, "Content-Length: %zu\r\n", length);
    }
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s\r\n", method,
                     target, size, headers);
    assert_true(n > 0 && (size_t)n < sizeof head);
    int fd = kit_connect(k);
    kit_send(fd, head, (size_t)n);
    return fd;
}

static inline unsigned kit_ask(struct kit *k, const char *method, const char *target,
                               const char *headers, struct slice body)
{
    int fd = kit_begin(k, method, target, headers, body.len);
    kit_send(fd, body.ptr, body.len);
    return kit_receive(k, fd);
}

/* The value of a header of the last answer; empty without it. */
static inline struct slice kit_header(const struct kit *k, const char *name)
{
    char line[64];
    int n = snprintf(line, sizeof line, "\r\n%s: ", name);
    const char *at = memmem(k->head.ptr, k->head.len, line, (size_t)n);
    if (at == NULL) {
        return (struct slice){.ptr = ""};
    }
    at += n;
    const char *end = memchr(at, '\r', k->head.len - (size_t)(at - k->head.ptr));
    return slice_of(at, (size_t)(end - at));
}

static inline void expect_header(const struct kit *k, const char *name, const char *want)
{
    struct slice got = kit_header(k, name);
    if (!slice_eq(got, slice_cstr(want))) {
        fail_msg("%s is \"%.*s\", not \"%s\": %.*s", name, (int)got.len, got.ptr, want,
                 (int)k->answer.len, k->answer.ptr);
    }
}

static inline void expect_has(struct slice s, const char *part)
{
    if (s.len == 0 || memmem(s.ptr, s.len, part, strlen(part)) == NULL) {
        fail_msg("no \"%s\" in \"%.*s\"", part, (int)s.len, s.ptr);
    }
}

/* What every answer on /files has (cases T13, T41), and the code of a refusal. */
static inline void expect_tus(const struct kit *k, unsigned status, const char *code)
{
    char begin[64];
    if (k->status != status) {
        fail_msg("%u, not %u: %.*s", k->status, status, (int)k->answer.len, k->answer.ptr);
    }
    expect_header(k, "Tus-Resumable", "1.0.0");
    expect_header(k, "Cache-Control", "no-store");
    if (code != NULL) {
        (void)snprintf(begin, sizeof begin, "ERR_%s: ", code);
        if (!slice_starts(k->body, slice_cstr(begin))) {
            fail_msg("no %s: %.*s", begin, (int)k->answer.len, k->answer.ptr);
        }
    }
}

/* ---- uploads ---- */

/* Bytes that repeat in no piece; freed by the caller. */
static inline char *kit_bytes(size_t n)
{
    char *p = malloc(n + 1);
    uint32_t x = 2463534242u;
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        p[i] = (char)x;
    }
    return p;
}

static inline void kit_digest(const void *p, size_t n, char out[BLAKE3_HEX_LEN + 1])
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    blake3_start(&h);
    blake3_add(&h, p, n);
    blake3_end(&h, digest);
    hex_encode(out, digest, sizeof digest);
    out[BLAKE3_HEX_LEN] = '\0';
}

static inline void kit_base64(struct slice in, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < in.len; i += 3) {
        size_t have = in.len - i < 3 ? in.len - i : 3;
        uint32_t bits = (uint32_t)(unsigned char)in.ptr[i] << 16;
        bits |= have > 1 ? (uint32_t)(unsigned char)in.ptr[i + 1] << 8 : 0;
        bits |= have > 2 ? (uint32_t)(unsigned char)in.ptr[i + 2] : 0;
        for (size_t c = 0; c < 4; c++) {
            *out++ = c <= have ? digits[bits >> (18 - 6 * c) & 63] : '=';
        }
    }
    *out = '\0';
}

/* The headers of a creation of these bytes in "demo-files", with more behind them. */
static inline const char *kit_creation(char out[2000], struct slice bytes, const char *more)
{
    char hex[BLAKE3_HEX_LEN + 1];
    char text[100];
    char sum[200];
    kit_digest(bytes.ptr, bytes.len, hex);
    (void)snprintf(text, sizeof text, "blake3:%s", hex);
    kit_base64(slice_cstr(text), sum);
    (void)snprintf(out, 2000,
                   TUS
                   "Upload-Length: %zu\r\nUpload-Metadata: project ZGVtby1maWxlcw==,checksum %s,"
                   "filename YS50eHQ=\r\n%s",
                   bytes.len, sum, more);
    return out;
}

/* Makes it; k->id. */
static inline void kit_create(struct kit *k, struct slice bytes)
{
    char headers[2000];
    assert_int_equal(
        kit_ask(k, "POST", "/files", kit_creation(headers, bytes, ""), (struct slice){0}), 201);
    struct slice location = kit_header(k, "Location");
    assert_int_equal(location.len, 7 + UPLOAD_ID_LEN);
    assert_true(slice_starts(location, SLICE("/files/")));
    memcpy(k->id, location.ptr + 7, UPLOAD_ID_LEN);
    k->id[UPLOAD_ID_LEN] = '\0';
}

static inline const char *kit_target(const struct kit *k, char out[100])
{
    (void)snprintf(out, 100, "/files/%s", k->id);
    return out;
}

static inline int kit_patch_begin(struct kit *k, uint64_t offset, size_t length)
{
    char target[100];
    char headers[200];
    (void)snprintf(headers, sizeof headers, TUS UPLOAD_TYPE "Upload-Offset: %llu\r\n",
                   (unsigned long long)offset);
    return kit_begin(k, "PATCH", kit_target(k, target), headers, length);
}

static inline unsigned kit_patch(struct kit *k, uint64_t offset, struct slice bytes)
{
    int fd = kit_patch_begin(k, offset, bytes.len);
    kit_send(fd, bytes.ptr, bytes.len);
    return kit_receive(k, fd);
}

static inline unsigned kit_head(struct kit *k)
{
    char target[100];
    return kit_ask(k, "HEAD", kit_target(k, target), TUS, (struct slice){0});
}

static inline unsigned kit_receipt(struct kit *k)
{
    char target[100];
    (void)snprintf(target, sizeof target, "/api/v1/receipts/%s", k->id);
    return kit_ask(k, "GET", target, "", (struct slice){0});
}

/* HEAD says 200 and this offset, which is the length only with a receipt. */
static inline void expect_offset(struct kit *k, uint64_t offset, bool accepted)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)offset);
    assert_int_equal(kit_head(k), 200);
    expect_header(k, "Upload-Offset", text);
    assert_int_equal(kit_header(k, "Artifact-Receipt").len > 0, accepted);
    assert_int_equal(kit_header(k, "Upload-Expires").len > 0, !accepted);
}

static inline void kit_path(const struct kit *k, const char *folder, const char *suffix,
                            char out[200])
{
    (void)snprintf(out, 200, "%s/%s/%s%s", k->dir, folder, k->id, suffix);
}

static inline bool kit_exists(const struct kit *k, const char *folder, const char *suffix)
{
    char path[200];
    kit_path(k, folder, suffix, path);
    return access(path, F_OK) == 0;
}

/* What is stored is exactly this. */
static inline void expect_stored(const struct kit *k, struct slice bytes)
{
    char path[200];
    kit_path(k, "uploads", "", path);
    FILE *f = fopen(path, "rb");
    char *got = malloc(bytes.len + 2);
    assert_non_null(f);
    assert_non_null(got);
    assert_int_equal(fread(got, 1, bytes.len + 1, f), bytes.len);
    assert_memory_equal(got, bytes.ptr, bytes.len);
    (void)fclose(f);
    free(got);
}

/* Upload-Offset of the last answer. */
static inline uint64_t kit_offset(const struct kit *k)
{
    uint64_t v = 0;
    assert_true(tus_number(kit_header(k, "Upload-Offset"), &v));
    return v;
}

static inline bool kit_has_receipt(const struct kit *k)
{
    return kit_header(k, "Artifact-Receipt").len > 0;
}

/* As the clients do it: HEAD, PATCH of the rest, until there is a receipt. False: 404 or 410. */
static inline bool kit_go_on(struct kit *k, struct slice bytes)
{
    for (int i = 0; i < 5; i++) {
        unsigned status = kit_head(k);
        if (status == 404 || status == 410) {
            return false;
        }
        assert_int_equal(status, 200);
        if (kit_has_receipt(k)) {
            assert_true(kit_offset(k) == bytes.len);
            expect_stored(k, bytes);
            return true;
        }
        uint64_t at = kit_offset(k);
        assert_true(at < bytes.len);
        status = kit_patch(k, at, slice_from(bytes, (size_t)at));
        if (status != 204 && status != 409) {
            fail_msg("%.*s", (int)k->answer.len, k->answer.ptr);
        }
    }
    fail_msg("no receipt");
    return false;
}

/* Waits until `ready` says so. */
static inline void kit_await(struct kit *k, bool (*ready)(struct kit *k))
{
    uint64_t end = os_clock_mono_ns() + KIT_WAIT_MS * UINT64_C(1000000);
    while (!ready(k)) {
        if (os_clock_mono_ns() > end) {
            fail_msg("nothing came of it in %d ms", KIT_WAIT_MS);
        }
        const struct timespec shortly = {.tv_nsec = 2000000};
        (void)nanosleep(&shortly, NULL);
    }
}

#endif
