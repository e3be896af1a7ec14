/* test_thread_storm: clients that all send at once, bodies of any size, some cut short and some
 * ended by another thread: every answer must be the right one. The seed is printed, and taken back
 * from SEED. */
#include <sched.h>

#include "tests/unit/http/thread_kit.h"

#define STORM_CLIENTS 6
#define STORM_ROUNDS  40

static atomic_uint storm_wrong;
static unsigned storm_seed;

static int64_t storm_read(struct http_body *body)
{
    char p[3000];
    int64_t sum = 0;
    int64_t n = http_body_read(body, p, sizeof p);

    while (n > 0) {
        sum += n;
        n = http_body_read(body, p, sizeof p);
    }
    return n < 0 ? n : sum;
}

struct storm {
    pthread_mutex_t lock;
    struct http_body *body; /* while it may be ended */
    int64_t result;
};

static struct storm storms[STORM_CLIENTS];

static void storm_work(void *ctx, struct http_body *body)
{
    struct storm *s = ctx;

    (void)pthread_mutex_lock(&s->lock);
    s->body = body;
    (void)pthread_mutex_unlock(&s->lock);
    s->result = storm_read(body);
    (void)pthread_mutex_lock(&s->lock);
    s->body = NULL;
    (void)pthread_mutex_unlock(&s->lock);
}

static void storm_done(void *ctx, struct http_request *req)
{
    struct storm *s = ctx;
    struct buf b = {0};

    buf_put_i64(&b, s->result);
    http_answer(req, 200, "text/plain", buf_slice(&b));
    buf_free(&b);
}

static void on_storm(void *ctx, struct http_request *req)
{
    unsigned n = (unsigned)(http_path(req).ptr[1] - '0');

    (void)ctx;
    if (!http_thread(req, storm_work, storm_done, &storms[n])) {
        http_answer_error(req, ERR_OVERLOADED, "", (struct slice){0});
    }
}

/* Asks with bodies of any size, some of them cut short; another thread ends some. */
static void *storm_client(void *ctx)
{
    unsigned n = *(const unsigned *)ctx;
    unsigned random = storm_seed + n * 7919;
    static char zeros[100000];
    int fd = -1;

    for (unsigned round = 0; round < STORM_ROUNDS; round++) {
        struct buf b = {0};
        size_t size;
        size_t sent;
        unsigned status;

        random = random * 1664525 + 1013904223;
        size = (random >> 8) % sizeof zeros;
        sent = (random >> 4) % 5 == 0 ? size / 2 : size;
        if (fd < 0) {
            fd = connect_to();
        }
        buf_printf(&b, "PUT /%u HTTP/1.1\r\n" H "Content-Length: %zu\r\n\r\n", n, size);
        (void)send(fd, b.ptr, b.len, MSG_NOSIGNAL);
        (void)send(fd, zeros, sent, MSG_NOSIGNAL);
        if (sent < size) {
            (void)shutdown(fd, SHUT_WR);
        }
        status = take_answer(fd, &b);
        if (status == 200 && strtol(body_of(&b).ptr, NULL, 10) == (long)size && sent == size) {
            buf_free(&b);
            continue; /* and on with the connection */
        }
        if (status != 200 || strtol(body_of(&b).ptr, NULL, 10) >= 0) {
            atomic_fetch_add(&storm_wrong, 1);
        }
        buf_free(&b);
        (void)close(fd);
        fd = -1;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return NULL;
}

static atomic_bool storm_over;

static void *storm_ender(void *ctx)
{
    unsigned n = 0;

    (void)ctx;
    while (!atomic_load(&storm_over)) {
        struct storm *s = &storms[n++ % STORM_CLIENTS];

        (void)pthread_mutex_lock(&s->lock);
        if (s->body != NULL && n % 3 == 0) {
            http_body_end(s->body, ERR_UPLOADS_BUSY);
        }
        (void)pthread_mutex_unlock(&s->lock);
        (void)sched_yield();
    }
    return NULL;
}

static void test_storm(void **state)
{
    static const struct http_route any = {
        .path = "/*", .methods = HTTP_PUT, .on_request = on_storm, .takes_body = true};
    struct http_config config = config_of_kit();
    const char *seed = getenv("SEED");
    pthread_t clients[STORM_CLIENTS];
    unsigned numbers[STORM_CLIENTS];
    pthread_t ender;

    (void)state;
    storm_seed = seed != NULL ? (unsigned)strtoul(seed, NULL, 10) : (unsigned)time(NULL);
    print_message("SEED=%u\n", storm_seed);
    config.routes = &any;
    config.route_count = 1;
    start_server(&config);
    atomic_store(&storm_over, false);
    for (unsigned i = 0; i < STORM_CLIENTS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_mutex_init(&storms[i].lock, NULL), 0);
        assert_int_equal(pthread_create(&clients[i], NULL, storm_client, &numbers[i]), 0);
    }
    assert_int_equal(pthread_create(&ender, NULL, storm_ender, NULL), 0);
    for (unsigned i = 0; i < STORM_CLIENTS; i++) {
        assert_int_equal(pthread_join(clients[i], NULL), 0);
    }
    atomic_store(&storm_over, true);
    assert_int_equal(pthread_join(ender, NULL), 0);
    assert_int_equal(atomic_load(&storm_wrong), 0);
    stop_server();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storm),
    };
    int failed = cmocka_run_group_tests_name("tcp", tests, NULL, NULL);

    on_unix = true;
    return failed + cmocka_run_group_tests_name("unix", tests, NULL, NULL);
}
