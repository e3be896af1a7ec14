/* test_artifact_room: when places and threads run short: who gets one, who makes room, who is
 * answered all the same. Nothing here waits for time to pass: the registry's patience is set. */
#include "tests/unit/door/artifact_kit.h"

#define NEVER 3600000

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT ((struct slice){.ptr = text, .len = sizeof text - 1})

static bool one_writes(struct kit *k)
{
    struct artifact_status st;
    artifact_get_status(k->artifact, &st);
    return st.writers == 1;
}

static bool none_writes(struct kit *k)
{
    struct artifact_status st;
    artifact_get_status(k->artifact, &st);
    return st.writers == 0;
}

static void test_writers_are_bounded(void **state)
{
    struct artifact_options options = kit_options();
    char headers[2000];
    (void)state;
    options.uploads_max = 1;
    struct kit *k = kit_new_with(&options, NULL);
    registry_set_patience(&k->artifact->registry, NEVER, NEVER);
    kit_create(k, TEXT);
    int fd = kit_patch_begin(k, 0, TEXT.len);
    kit_await(k, one_writes);
    kit_create(k, TEXT); /* needs no writer */
    expect_offset(k, 0, false);
    assert_int_equal(kit_patch(k, 0, TEXT), 503);
    expect_tus(k, 503, "UPLOADS_BUSY");
    expect_header(k, "Retry-After", "1");
    assert_int_equal(kit_ask(k, "POST", "/files", kit_creation(headers, TEXT, UPLOAD_TYPE), TEXT),
                     503);
    expect_tus(k, 503, "UPLOADS_BUSY");
    (void)close(fd);
    kit_await(k, none_writes);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    kit_free(k);
}

static unsigned patch_for(struct kit *k, const char *client)
{
    char headers[500];
    char target[100];
    (void)snprintf(headers, sizeof headers, "%sUpload-Offset: 0\r\nX-Forwarded-For: %s\r\n",
                   TUS UPLOAD_TYPE, client);
    return kit_ask(k, "PATCH", kit_target(k, target), headers, TEXT);
}

/* Who comes through a proxy of ours has the places of his own address. */
static void test_places_behind_a_proxy(void **state)
{
    struct artifact_options options = kit_options();
    char headers[500];
    char target[100];
    struct err e = {0};
    (void)state;
    options.address_uploads_max = 1;
    assert_int_equal(http_networks_parse("127.0.0.1", &options.proxies, &e), 0);
    struct kit *k = kit_new_with(&options, NULL);
    registry_set_patience(&k->artifact->registry, NEVER, NEVER);
    kit_create(k, TEXT);
    (void)snprintf(headers, sizeof headers,
                   "%sUpload-Offset: 0\r\nX-Forwarded-For: 203.0.113.9, 192.0.2.7\r\n",
                   TUS UPLOAD_TYPE);
    int fd = kit_begin(k, "PATCH", kit_target(k, target), headers, TEXT.len);
    kit_await(k, one_writes);
    kit_create(k, TEXT);
    assert_int_equal(patch_for(k, "192.0.2.7"), 503);
    expect_tus(k, 503, "UPLOADS_BUSY");
    assert_int_equal(patch_for(k, "203.0.113.9"), 204);
    (void)close(fd);
    kit_await(k, none_writes);
    kit_create(k, TEXT);
    assert_int_equal(patch_for(k, "192.0.2.7"), 204);
    kit_free(k);
}

/* For some milliseconds: at nine bytes it is slow by then. */
static bool one_receives(struct kit *k)
{
    struct registry *g = &k->artifact->registry;
    const struct holder *h;
    bool receives = false;
    (void)pthread_mutex_lock(&g->lock);
    LIST_FOREACH(h, &g->holders, link)
    {
        receives = receives || (h->state == HOLDER_RECEIVING &&
                                os_clock_mono_ns() - h->receiving_since_ns > 5000000);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return receives;
}

/* One that gets next to nothing must not hold a place that others need: it goes when they come,
 * keeps what came, and is told so. */
static void test_a_slow_writer_makes_room(void **state)
{
    struct artifact_options options = kit_options();
    char slow[sizeof((struct kit *)NULL)->id];
    (void)state;
    options.uploads_max = 1;
    struct kit *k = kit_new_with(&options, NULL);
    registry_set_patience(&k->artifact->registry, NEVER, KIT_WAIT_MS);
    kit_create(k, TEXT);
    memcpy(slow, k->id, sizeof slow);
    int fd = kit_patch_begin(k, 0, TEXT.len);
    kit_send(fd, text, 9);
    kit_await(k, one_receives);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 503); /* not slow for long enough */
    registry_set_slow(&k->artifact->registry, 0);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    assert_true(kit_has_receipt(k));
    assert_int_equal(kit_receive(k, fd), 503);
    expect_tus(k, 503, "REQUEST_TIMEOUT");
    assert_int_equal(kit_offset(k), 9);
    memcpy(k->id, slow, sizeof slow);
    assert_true(kit_go_on(k, TEXT));
    /* A creation that brings bytes needs a place as well. */
    char headers[2000];
    kit_create(k, TEXT);
    fd = kit_patch_begin(k, 0, TEXT.len);
    kit_await(k, one_receives);
    assert_int_equal(kit_ask(k, "POST", "/files", kit_creation(headers, TEXT, UPLOAD_TYPE), TEXT),
                     201);
    assert_int_equal(kit_receive(k, fd), 503);
    kit_free(k);
}

/* HEAD and receipts are answered when no thread is to be had: a 5xx would cost their client
 * everything. */
static void test_without_threads_only_questions_are_answered(void **state)
{
    struct http_limits limits = http_limits_default;
    struct artifact_options options = kit_options();
    (void)state;
    limits.threads_max = 1;
    struct kit *k = kit_new_with(&options, &limits);
    registry_set_patience(&k->artifact->registry, NEVER, NEVER);
    kit_create(k, TEXT);
    int fd = kit_patch_begin(k, 0, TEXT.len);
    kit_await(k, one_writes);
    expect_offset(k, 0, false);
    assert_int_equal(kit_patch(k, 0, TEXT), 503);
    expect_tus(k, 503, "UPLOADS_BUSY");
    assert_int_equal(kit_receipt(k), 409);
    expect_has(k->body, "\"error\":\"not_accepted\"");
    kit_send(fd, text, TEXT.len);
    assert_int_equal(kit_receive(k, fd), 204);
    kit_free(k);
}

static _Atomic unsigned thread_wants;

static bool threads_are_taken(struct kit *k)
{
    (void)k;
    return metric_get(METRIC_HTTP_THREADS) >= thread_wants;
}

/* Whoever asks about an upload that is opened for long waits on a thread. There is a share of them
 * for that: what is more is answered at once, uploads begin, and the pool, which all doors need,
 * is free. */
static void test_questions_have_a_share_of_the_threads(void **state)
{
    struct kit *k = kit_new();
    struct holder h = {.writer = false};
    int fds[ASKERS_MAX];
    char target[100];
    (void)state;
    registry_set_patience(&k->artifact->registry, 0, NEVER);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    memcpy(h.id, k->id, sizeof h.id);
    assert_int_equal(registry_try(&k->artifact->registry, &h), 0);
    thread_wants = ASKERS_MAX;
    for (size_t i = 0; i < ASKERS_MAX; i++) {
        fds[i] = kit_begin(k, "HEAD", kit_target(k, target), TUS, 0);
    }
    kit_await(k, threads_are_taken);
    for (int i = 0; i < 5; i++) { /* more than the pool has threads */
        expect_offset(k, 9, false);
        assert_int_equal(kit_receipt(k), 409);
    }
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    expect_offset(k, TEXT.len, true);
    assert_int_equal(kit_receipt(k), 200);
    registry_leave(&k->artifact->registry, &h);
    for (size_t i = 0; i < ASKERS_MAX; i++) {
        assert_int_equal(kit_receive(k, fds[i]), 200);
        assert_int_equal(kit_offset(k), 9);
    }
    kit_stop(k);
    assert_int_equal(k->artifact->askers, 0);
    kit_free(k);
}

static int count_name(void *ctx, const char *name)
{
    (void)name;
    ++*(unsigned *)ctx;
    return 0;
}

/* A creation that comes with its file and is refused: nobody knows the id, so that nothing of it
 * stays on the disk or in memory, however often that is done. */
static void test_refused_files_leave_nothing(void **state)
{
    struct kit *k = kit_new();
    char headers[2000];
    char other[sizeof text];
    char path[200];
    unsigned names = 0;
    (void)state;
    memcpy(other, text, sizeof text);
    other[5] ^= 1;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(kit_ask(k, "POST", "/files", kit_creation(headers, TEXT, UPLOAD_TYPE),
                                 slice_of(other, TEXT.len)),
                         422);
        assert_int_equal(kit_header(k, "Location").len, 0);
    }
    (void)snprintf(path, sizeof path, "%s/uploads", k->dir);
    assert_int_equal(os_list(path, count_name, &names), 0);
    assert_int_equal(names, 0);
    kit_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writers_are_bounded),
        cmocka_unit_test(test_places_behind_a_proxy),
        cmocka_unit_test(test_a_slow_writer_makes_room),
        cmocka_unit_test(test_without_threads_only_questions_are_answered),
        cmocka_unit_test(test_questions_have_a_share_of_the_threads),
        cmocka_unit_test(test_refused_files_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
