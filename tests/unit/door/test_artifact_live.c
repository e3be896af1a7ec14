/* test_artifact_live: uploads that are being written: what others hear of them, takeover, clients
 * that go or stall, the server's end. Nothing here waits for time to pass: the registry's patience
 * is set so that a writer is silent at once, or never. */
#include <errno.h>

#include "tests/unit/door/artifact_kit.h"

#define NONE  ((struct slice){0})
#define NEVER 3600000

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT ((struct slice){.ptr = text, .len = sizeof text - 1})

/* More than one piece: when the first is stored, the counter says so. */
#define LARGE (UPLOAD_PIECE_BYTES * 2 + 77)
#define SENT  (UPLOAD_PIECE_BYTES + 10)

static uint64_t bytes_wanted;

static bool bytes_came(struct kit *k)
{
    (void)k;
    return metric_get(METRIC_ARTIFACT_BYTES) >= bytes_wanted;
}

static bool none_writes(struct kit *k)
{
    struct artifact_status st;
    artifact_get_status(k->artifact, &st);
    return st.writers == 0;
}

/* Makes a large upload, and a PATCH of which SENT bytes come: one piece is stored. */
static int begin_large(struct kit *k, char **bytes)
{
    *bytes = kit_bytes(LARGE);
    kit_create(k, slice_of(*bytes, LARGE));
    bytes_wanted = metric_get(METRIC_ARTIFACT_BYTES) + UPLOAD_PIECE_BYTES;
    int fd = kit_patch_begin(k, 0, LARGE);
    kit_send(fd, *bytes, SENT);
    kit_await(k, bytes_came);
    return fd;
}

static void test_a_live_writer_is_left_alone(void **state)
{
    struct kit *k = kit_new();
    char *bytes;
    (void)state;
    registry_set_patience(&k->artifact->registry, NEVER, NEVER);
    int fd = begin_large(k, &bytes);
    /* What is written is not synced yet, so nobody hears of it. */
    expect_offset(k, 0, false);
    expect_header(k, "Upload-Length", "2097229");
    assert_true(kit_header(k, "Upload-Metadata").len > 0);
    assert_int_equal(kit_patch(k, 0, slice_of("x", 1)), 409);
    expect_tus(k, 409, "MISMATCHED_OFFSET");
    expect_header(k, "Upload-Offset", "0");
    expect_header(k, "Retry-After", "1");
    assert_int_equal(kit_receipt(k), 409);
    kit_send(fd, bytes + SENT, LARGE - SENT);
    assert_int_equal(kit_receive(k, fd), 204);
    expect_offset(k, LARGE, true);
    expect_stored(k, slice_of(bytes, LARGE));
    free(bytes);
    kit_free(k);
}

/* Cases T01: a connection that died without a word. */
static void test_a_silent_writer_is_taken_over(void **state)
{
    struct kit *k = kit_new();
    uint64_t before = metric_get(METRIC_ARTIFACT_TAKEOVERS);
    char *bytes;
    (void)state;
    registry_set_patience(&k->artifact->registry, 1, NEVER);
    int fd = begin_large(k, &bytes);
    uint64_t end = os_clock_mono_ns() + KIT_WAIT_MS * UINT64_C(1000000);
    while (metric_get(METRIC_ARTIFACT_TAKEOVERS) == before) {
        assert_true(os_clock_mono_ns() < end);
        assert_int_equal(kit_head(k), 200); /* an answer at once, while it is live */
    }
    uint64_t at = kit_offset(k);
    assert_true(at >= UPLOAD_PIECE_BYTES);
    assert_true(at <= SENT);
    assert_int_equal(metric_get(METRIC_ARTIFACT_TAKEOVERS), before + 1);
    uint64_t resumed = metric_get(METRIC_ARTIFACT_RESUMED);
    assert_int_equal(kit_patch(k, at, slice_of(bytes + at, LARGE - at)), 204);
    assert_int_equal(metric_get(METRIC_ARTIFACT_RESUMED), resumed + 1);
    expect_offset(k, LARGE, true);
    expect_stored(k, slice_of(bytes, LARGE));
    /* The old one, if it lives, is told. */
    assert_int_equal(kit_receive(k, fd), 400);
    expect_tus(k, 400, "UPLOAD_INTERRUPTED");
    assert_true(kit_offset(k) == at);
    free(bytes);
    kit_free(k);
}

/* Cases T02: two writers of the same bytes, at once. */
static void test_exactly_one_of_two_writers_wins(void **state)
{
    struct kit *k = kit_new();
    (void)state;
    registry_set_patience(&k->artifact->registry, NEVER, NEVER);
    for (int i = 0; i < 20; i++) {
        unsigned status[2];
        int fd[2];
        kit_create(k, TEXT);
        for (int w = 0; w < 2; w++) {
            fd[w] = kit_patch_begin(k, 0, TEXT.len);
        }
        for (int w = 1; w >= 0; w--) {
            kit_send(fd[w], text, TEXT.len);
        }
        for (int w = 0; w < 2; w++) {
            status[w] = kit_receive(k, fd[w]);
            expect_tus(k, status[w], status[w] == 409 ? "MISMATCHED_OFFSET" : NULL);
        }
        assert_int_equal(status[0] + status[1], 204 + 409);
        expect_offset(k, TEXT.len, true);
        expect_stored(k, TEXT);
    }
    kit_free(k);
}

static bool five_are_there(struct kit *k)
{
    assert_int_equal(kit_head(k), 200);
    return slice_eq(kit_header(k, "Upload-Offset"), SLICE("5"));
}

static void test_what_came_before_the_client_went_is_kept(void **state)
{
    struct kit *k = kit_new();
    (void)state;
    registry_set_patience(&k->artifact->registry, NEVER, NEVER);
    kit_create(k, TEXT);
    int fd = kit_patch_begin(k, 0, TEXT.len);
    kit_send(fd, text, 5);
    (void)close(fd);
    kit_await(k, five_are_there);
    expect_stored(k, slice_of(text, 5));
    assert_int_equal(kit_patch(k, 5, slice_from(TEXT, 5)), 204);
    expect_offset(k, TEXT.len, true);
    kit_free(k);
}

/* The kit whose door is asked by the call below. */
static struct kit *cut_kit;
static _Atomic unsigned cuts, cuts_alone;

static int cut(int fd, uint64_t size)
{
    struct artifact_status st;
    artifact_get_status(cut_kit->artifact, &st);
    atomic_fetch_add(&cuts, 1);
    atomic_fetch_add(&cuts_alone, st.writers == 0 ? 1 : 0);
    return os_real.ftruncate(fd, size);
}

/* Blocks that were reserved ahead go back by a cut of the file. A successor may have written by
 * then, unless the writer still holds the upload: its bytes would go with the blocks. */
static void test_blocks_ahead_go_back_before_a_successor_comes(void **state)
{
    struct os_table table = os_real;
    char *bytes;
    (void)state;
    table.ftruncate = cut;
    os_install(&table);
    struct kit *k = cut_kit = kit_new();
    int fd = begin_large(k, &bytes);
    (void)close(fd);
    kit_await(k, none_writes);
    expect_offset(k, SENT, false);
    assert_true(cuts > 0);
    assert_int_equal(cuts_alone, 0);
    assert_true(kit_go_on(k, slice_of(bytes, LARGE)));
    free(bytes);
    kit_free(k);
    os_install(NULL);
}

static void test_a_client_that_stalls_hears_the_offset(void **state)
{
    struct http_limits limits = http_limits_default;
    struct artifact_options options = kit_options();
    char headers[2000];
    (void)state;
    limits.body_stall_ms = 200;
    struct kit *k = kit_new_with(&options, &limits);
    kit_create(k, TEXT);
    int fd = kit_patch_begin(k, 0, TEXT.len);
    kit_send(fd, text, 5);
    assert_int_equal(kit_receive(k, fd), 503); /* tus-js-client gives up on 408 */
    expect_tus(k, 503, "REQUEST_TIMEOUT");
    expect_header(k, "Upload-Offset", "5");
    assert_true(kit_header(k, "Retry-After").len > 0);
    expect_offset(k, 5, false);
    /* In a creation with the whole file: nobody hears of the upload, so it is not kept. */
    fd = kit_begin(k, "POST", "/files", kit_creation(headers, TEXT, UPLOAD_TYPE), TEXT.len);
    kit_send(fd, text, 5);
    assert_int_equal(kit_receive(k, fd), 503);
    expect_tus(k, 503, "REQUEST_TIMEOUT");
    assert_int_equal(kit_header(k, "Location").len, 0);
    assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
    char command[200];
    (void)snprintf(command, sizeof command, "test $(ls %s/uploads | grep -c info) -eq 1", k->dir);
    assert_int_equal(system(command), 0);
    /* In one with a part of it, Location comes with the refusal. */
    fd = kit_begin(k, "POST", "/files", kit_creation(headers, TEXT, UPLOAD_TYPE), 20);
    kit_send(fd, text, 5);
    assert_int_equal(kit_receive(k, fd), 503);
    memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
    expect_header(k, "Upload-Offset", "5");
    expect_offset(k, 5, false);
    kit_free(k);
}

static void test_the_servers_end_keeps_what_came(void **state)
{
    struct artifact_options options = kit_options();
    struct kit *k = kit_new();
    char *bytes;
    (void)state;
    registry_set_patience(&k->artifact->registry, NEVER, NEVER);
    int fd = begin_large(k, &bytes);
    kit_stop(k);
    assert_int_equal(kit_receive(k, fd), 503);
    expect_tus(k, 503, "SERVER_SHUTDOWN");
    expect_header(k, "Retry-After", "5");
    uint64_t at = kit_offset(k);
    assert_true(at >= UPLOAD_PIECE_BYTES);
    kit_close(k);
    kit_open(k, &options, NULL);
    expect_offset(k, at, false);
    assert_int_equal(kit_patch(k, at, slice_of(bytes + at, LARGE - at)), 204);
    expect_offset(k, LARGE, true);
    expect_stored(k, slice_of(bytes, LARGE));
    free(bytes);
    kit_free(k);
}

/* All bytes are there while somebody tries to accept them: if that fails some are taken back, so
 * that they are not told before. */
static void test_what_an_acceptance_may_take_back_is_not_told(void **state)
{
    struct kit *k = kit_new();
    struct holder h = {.writer = false};
    struct upload *u = NULL;
    struct err e = {0};
    char path[200];
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    kit_path(k, "uploads", "", path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, TEXT.len, f), TEXT.len);
    assert_int_equal(fclose(f), 0);
    memcpy(h.id, k->id, sizeof h.id);
    assert_int_equal(registry_try(&k->artifact->registry, &h), 0);
    registry_set_patience(&k->artifact->registry, 0, 0);
    assert_int_equal(upload_open(k->artifact->uploads, slice_cstr(k->id), &u, &e), 0);
    assert_int_equal(u->synced, TEXT.len);
    registry_opened(&k->artifact->registry, &h, &u->info, upload_promised(u));
    expect_offset(k, 9, false);
    registry_leave(&k->artifact->registry, &h);
    upload_close(u);
    expect_offset(k, TEXT.len, true);
    kit_free(k);
}

/* A holder that opens the upload, or removes it, for long. */
static void test_what_is_heard_of_other_holders(void **state)
{
    struct kit *k = kit_new();
    struct holder h = {.writer = false};
    struct registry *g = &k->artifact->registry;
    char path[200];
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 5)), 204);
    memcpy(h.id, k->id, sizeof h.id);
    registry_set_patience(g, NEVER, 1);
    assert_int_equal(registry_try(g, &h), 0);
    expect_offset(k, 5, false);
    expect_header(k, "Upload-Length", "44");
    assert_int_equal(kit_patch(k, 5, slice_of("x", 1)), 409);
    assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
    assert_int_equal(kit_receipt(k), 409);
    kit_path(k, "uploads", ".gone", path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(kit_head(k), 410);
    assert_int_equal(kit_receipt(k), 410);
    assert_int_equal(unlink(path), 0);
    kit_path(k, "uploads", ".info", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(kit_head(k), 404);
    assert_int_equal(kit_receipt(k), 404);
    registry_leave(g, &h);
    registry_leave(g, &h);
    /* Of an id that is held and has nothing. */
    memset(h.id, 'a', UPLOAD_ID_LEN);
    assert_int_equal(registry_try(g, &h), 0);
    memcpy(k->id, h.id, sizeof h.id);
    assert_int_equal(kit_head(k), 404);
    registry_leave(g, &h);
    kit_free(k);
}

static const struct os_table *below;
static pthread_mutex_t hung = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool hangs, is_hung;

static int hanging_unlink(const char *path)
{
    if (hangs && strstr(path, "/uploads/") != NULL) {
        is_hung = true;
        (void)pthread_mutex_lock(&hung);
        (void)pthread_mutex_unlock(&hung);
        return -EIO;
    }
    return below->unlink(path);
}

static bool hangs_now(struct kit *k)
{
    (void)k;
    return is_hung;
}

/* A removal may fail yet: nobody is told that there is no such upload before there is none. */
static void test_a_removal_under_way_is_none(void **state)
{
    struct os_table table = *os_current();
    char target[100];
    (void)state;
    below = os_current();
    table.unlink = hanging_unlink;
    os_install(&table);
    struct kit *k = kit_new();
    registry_set_patience(&k->artifact->registry, NEVER, 1);
    kit_create(k, TEXT);
    (void)pthread_mutex_lock(&hung);
    hangs = true;
    int fd = kit_begin(k, "DELETE", kit_target(k, target), TUS, 0);
    kit_await(k, hangs_now);
    expect_offset(k, 0, false);
    assert_int_equal(kit_patch(k, 0, TEXT), 409);
    assert_int_equal(kit_receipt(k), 409);
    (void)pthread_mutex_unlock(&hung);
    assert_int_equal(kit_receive(k, fd), 500);
    hangs = false;
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    kit_free(k);
    os_install(NULL);
}

/* Who waits for a holder gets on when it leaves. */
static void test_a_newcomer_waits_for_who_is_about_to_leave(void **state)
{
    struct kit *k = kit_new();
    struct holder h = {.writer = false};
    struct registry *g = &k->artifact->registry;
    (void)state;
    registry_set_patience(g, NEVER, NEVER);
    kit_create(k, TEXT);
    memcpy(h.id, k->id, sizeof h.id);
    assert_int_equal(registry_try(g, &h), 0);
    struct holder second = h;
    second.listed = false;
    assert_int_equal(registry_try(g, &second), ERR_LOCKED);
    int fd = kit_patch_begin(k, 0, TEXT.len);
    kit_send(fd, text, TEXT.len);
    registry_leave(g, &h);
    assert_int_equal(kit_receive(k, fd), 204);
    expect_offset(k, TEXT.len, true);
    kit_free(k);
}

/* 100 Continue only after the checks that need no body (cases T43). */
static void test_expectations(void **state)
{
    struct kit *k = kit_new();
    char target[100];
    (void)state;
    kit_create(k, TEXT);
    int fd = kit_begin(k, "PATCH", kit_target(k, target),
                       TUS UPLOAD_TYPE "Upload-Offset: 7\r\nExpect: 100-continue\r\n", TEXT.len);
    assert_int_equal(kit_receive(k, fd), 409);
    fd = kit_begin(k, "PATCH", kit_target(k, target),
                   TUS UPLOAD_TYPE "Upload-Offset: 0\r\nExpect: 100-continue\r\n", TEXT.len);
    char interim[26] = "";
    size_t have = 0;
    while (have < sizeof interim - 1) {
        ssize_t n = recv(fd, interim + have, sizeof interim - 1 - have, 0);
        assert_true(n > 0);
        have += (size_t)n;
    }
    assert_string_equal(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    kit_send(fd, text, TEXT.len);
    assert_int_equal(kit_receive(k, fd), 204);
    kit_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_live_writer_is_left_alone),
        cmocka_unit_test(test_a_silent_writer_is_taken_over),
        cmocka_unit_test(test_exactly_one_of_two_writers_wins),
        cmocka_unit_test(test_what_came_before_the_client_went_is_kept),
        cmocka_unit_test(test_blocks_ahead_go_back_before_a_successor_comes),
        cmocka_unit_test(test_a_client_that_stalls_hears_the_offset),
        cmocka_unit_test(test_the_servers_end_keeps_what_came),
        cmocka_unit_test(test_what_an_acceptance_may_take_back_is_not_told),
        cmocka_unit_test(test_what_is_heard_of_other_holders),
        cmocka_unit_test(test_a_removal_under_way_is_none),
        cmocka_unit_test(test_a_newcomer_waits_for_who_is_about_to_leave),
        cmocka_unit_test(test_expectations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
