/* test_artifact_clean: the door's housekeeping: what expires, what stays, acceptances that a crash
 * interrupted, one bad file that stops nothing. Rounds are asked for, not waited for. */
#include <errno.h>
#include <utime.h>

#include "tests/unit/door/artifact_kit.h"

#define NONE ((struct slice){0})

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT ((struct slice){.ptr = text, .len = sizeof text - 1})

/* Everything that is not accepted is stale at once. */
static struct kit *stale_new(void)
{
    struct artifact_options options = kit_options();
    options.retention_ms = 0;
    return kit_new_with(&options, NULL);
}

static void put(const struct kit *k, const char *suffix, struct slice bytes)
{
    char path[200];
    kit_path(k, "uploads", suffix, path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.ptr, 1, bytes.len, f), bytes.len);
    assert_int_equal(fclose(f), 0);
}

/* uploads/ holds files of this upload and nothing else. */
static void expect_alone(const struct kit *k)
{
    char command[200];
    (void)snprintf(command, sizeof command, "ls -A %s/uploads | grep -v ^%s", k->dir, k->id);
    FILE *f = popen(command, "r");
    char line[100] = "";
    assert_non_null(f);
    assert_null(fgets(line, sizeof line, f));
    (void)pclose(f);
    assert_string_equal(line, "");
}

static struct artifact_status status_of(const struct kit *k)
{
    struct artifact_status st;
    artifact_get_status(k->artifact, &st);
    return st;
}

static void expect_partials(const struct kit *k, const char *want)
{
    struct buf b = {0};
    buf_put_cstr(&b, "{\"a\":1");
    artifact_put_partials(k->artifact, &b);
    buf_put_char(&b, '\0');
    assert_string_equal(b.ptr + strlen("{\"a\":1,"), want);
    buf_free(&b);
}

static void test_what_is_in_time_stays_and_is_counted(void **state)
{
    struct kit *k = kit_new();
    (void)state;
    assert_false(status_of(k).scanned);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    kit_create(k, TEXT);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    cleaner_round(k->artifact);
    struct artifact_status st = status_of(k);
    assert_true(st.scanned);
    assert_int_equal(st.partial_uploads, 2);
    assert_int_equal(st.partial_bytes, 9);
    expect_partials(k, "\"partial_projects\":[{\"project\":\"demo-files\",\"uploads\":2,"
                       "\"received_bytes\":9,\"declared_bytes\":88,\"stale\":0,"
                       "\"stale_bytes\":0}],\"partial_left_out\":0");
    assert_int_equal(st.writers, 0);
    assert_false(st.low_space);
    expect_offset(k, TEXT.len, true);
    kit_free(k);
}

static void test_stale_uploads_go_and_accepted_ones_stay(void **state)
{
    struct kit *k = stale_new();
    uint64_t before = metric_get(METRIC_ARTIFACT_EXPIRED);
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    char accepted[sizeof k->id];
    memcpy(accepted, k->id, sizeof accepted);
    kit_create(k, TEXT); /* not begun */
    kit_create(k, TEXT); /* refused */
    assert_int_equal(kit_patch(k, 0, slice_of("The quick brown fox jumps over the lazy cat.", 44)),
                     422);
    kit_create(k, TEXT); /* torn: hole 4 */
    put(k, ".info", slice_of("{", 1));
    kit_create(k, TEXT); /* bytes alone: hole 5 */
    char path[200];
    kit_path(k, "uploads", ".info", path);
    assert_int_equal(unlink(path), 0);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    cleaner_round(k->artifact);
    assert_int_equal(kit_head(k), 404);
    assert_int_equal(kit_patch(k, 9, slice_from(TEXT, 9)), 404);
    assert_int_equal(kit_receipt(k), 404);
    assert_int_equal(metric_get(METRIC_ARTIFACT_EXPIRED), before + 5);
    assert_int_equal(status_of(k).partial_uploads, 0);
    memcpy(k->id, accepted, sizeof accepted);
    expect_offset(k, TEXT.len, true);
    expect_stored(k, TEXT);
    expect_alone(k);
    kit_free(k);
}

/* By name, and no more of them than there is room for. */
static void test_partials_are_bounded(void **state)
{
    static struct partials p;
    struct upload_seen seen = {.size = 10, .length = 3};
    char name[16];
    struct buf b = {0};
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < PARTIALS_MAX + 5; i++) {
            (void)snprintf(name, sizeof name, "p%03u", (i * 7) % (PARTIALS_MAX + 5));
            seen.project = name;
            partials_add(&p, &seen, round == 1);
        }
    }
    assert_int_equal(p.count, PARTIALS_MAX);
    assert_int_equal(p.left_out, 10);
    for (unsigned i = 0; i < p.count; i++) {
        assert_true(i == 0 || strcmp(p.row[i - 1].project, p.row[i].project) < 0);
        assert_int_equal(p.row[i].uploads, 1);
        assert_int_equal(p.row[i].received_bytes, 3);
        assert_int_equal(p.row[i].declared_bytes, 10);
        assert_int_equal(p.row[i].stale, 1);
        assert_int_equal(p.row[i].stale_bytes, 3);
    }
    buf_put_cstr(&b, "{\"a\":1");
    partials_put(&p, &b);
    assert_true(!b.failed && b.len < PARTIALS_MAX * 150);
    buf_free(&b);
}

/* An hour ago, as the files say; in seconds. */
static int64_t make_old(const struct kit *k)
{
    static const char *const suffixes[] = {"", ".info", ".state"};
    const struct timespec ago = {.tv_sec = (time_t)(os_clock_real_ms() / 1000) - 3600};
    const struct timespec times[2] = {ago, ago};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char path[200];
        kit_path(k, "uploads", suffixes[i], path);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    return ago.tv_sec;
}

/* Artifacts.md 8.1: who is told "later" keeps the upload while asking; time is over half an hour
 * after the last bytes or the last such answer. */
static void test_a_client_that_keeps_asking_keeps_its_upload(void **state)
{
    struct artifact_options options = kit_options();
    struct kit *k = kit_new_with(&options, NULL);
    char date[HTTP_DATE_LEN + 1];
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    (void)make_old(k);
    char second[sizeof k->id];
    memcpy(second, k->id, sizeof second);
    kit_create(k, TEXT);
    http_date_text(date, (make_old(k) + 1800) * 1000);
    assert_int_equal(kit_head(k), 200);
    expect_header(k, "Upload-Expires", date);
    /* Another server, on a full disk. */
    kit_close(k);
    options.min_free_bytes = UINT64_MAX;
    kit_open(k, &options, NULL);
    assert_int_equal(kit_patch(k, 0, TEXT), 429);
    assert_int_equal(kit_patch(k, 0, TEXT), 429);
    cleaner_round(k->artifact);
    expect_offset(k, 0, false);
    memcpy(k->id, second, sizeof second);
    assert_int_equal(kit_head(k), 404);
    kit_free(k);
}

/* What is told is what the cleaner goes by, also when a request brings nothing. */
static void test_an_append_of_nothing_puts_nothing_off(void **state)
{
    struct kit *k = kit_new();
    char date[HTTP_DATE_LEN + 1];
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    http_date_text(date, (make_old(k) + 1800) * 1000);
    assert_int_equal(kit_patch(k, 9, slice_of("", 0)), 204);
    expect_header(k, "Upload-Offset", "9");
    expect_header(k, "Upload-Expires", date);
    cleaner_round(k->artifact);
    assert_int_equal(kit_head(k), 404);
    kit_free(k);
}

static void test_attempts_are_bounded(void **state)
{
    struct attempts *t = calloc(1, sizeof *t);
    char id[UPLOAD_ID_LEN + 1];
    (void)state;
    if (t == NULL) {
        fail();
        return;
    }
    attempts_init(t);
    for (int i = 0; i <= ATTEMPTS_MAX; i++) {
        (void)snprintf(id, sizeof id, "%032x", (unsigned)i);
        assert_int_equal(attempts_last_ms(t, id), 0);
        attempts_note(t, id);
        attempts_note(t, id);
        assert_true(attempts_last_ms(t, id) > 0);
    }
    (void)snprintf(id, sizeof id, "%032x", 0u); /* the oldest made room */
    assert_int_equal(attempts_last_ms(t, id), 0);
    (void)snprintf(id, sizeof id, "%032x", 1u);
    assert_true(attempts_last_ms(t, id) > 0);
    attempts_destroy(t);
    free(t);
}

static void test_what_somebody_holds_stays(void **state)
{
    struct kit *k = stale_new();
    struct registry *g = &k->artifact->registry;
    struct holder h = {.writer = false};
    (void)state;
    kit_create(k, TEXT);
    memcpy(h.id, k->id, sizeof h.id);
    assert_int_equal(registry_try(g, &h), 0);
    put(k, "", slice_of(text, 9));
    cleaner_round(k->artifact);
    expect_partials(k, "\"partial_projects\":[{\"project\":\"demo-files\",\"uploads\":0,"
                       "\"received_bytes\":0,\"declared_bytes\":0,\"stale\":1,"
                       "\"stale_bytes\":9}],\"partial_left_out\":0");
    assert_int_equal(status_of(k).partial_uploads, 0);
    put(k, "", TEXT); /* complete, and held */
    cleaner_round(k->artifact);
    registry_leave(g, &h);
    assert_false(kit_exists(k, "receipts", ".json"));
    cleaner_round(k->artifact);
    assert_true(kit_exists(k, "receipts", ".json"));
    kit_free(k);
}

/* By its files it is over; its client is sent away and comes again. */
static void test_what_is_attempted_counts_as_under_way(void **state)
{
    static const char *const suffixes[] = {"", ".info", ".state"};
    struct artifact_options options = kit_options();
    const struct utimbuf old = {.actime = 1, .modtime = 1};
    char path[200];
    (void)state;
    options.retention_ms = 3600000;
    struct kit *k = kit_new_with(&options, NULL);
    kit_create(k, TEXT);
    put(k, "", slice_of(text, 9));
    for (size_t i = 0; i < 3; i++) {
        kit_path(k, "uploads", suffixes[i], path);
        assert_int_equal(utime(path, &old), 0);
    }
    attempts_note(&k->artifact->attempts, k->id);
    cleaner_round(k->artifact);
    expect_partials(k, "\"partial_projects\":[{\"project\":\"demo-files\",\"uploads\":1,"
                       "\"received_bytes\":9,\"declared_bytes\":44,\"stale\":0,"
                       "\"stale_bytes\":0}],\"partial_left_out\":0");
    assert_int_equal(status_of(k).partial_uploads, 1);
    kit_free(k);
}

static bool has_receipt(struct kit *k)
{
    return kit_exists(k, "receipts", ".json");
}

static bool has_scanned(struct kit *k)
{
    return status_of(k).scanned;
}

/* Hole 1: nobody has to ask. */
static void test_a_start_finishes_acceptances_and_clears_up(void **state)
{
    struct artifact_options options = kit_options();
    struct kit *k = kit_new();
    struct err e = {0};
    char path[200];
    (void)state;
    kit_create(k, TEXT);
    put(k, "", TEXT);
    (void)snprintf(path, sizeof path, "%s/receipts/.receipt-%s", k->dir, k->id);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    kit_close(k);
    kit_open(k, &options, NULL);
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    kit_await(k, has_receipt);
    kit_await(k, has_scanned);
    expect_offset(k, TEXT.len, true);
    artifact_stop(k->artifact);
    artifact_stop(k->artifact);
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    kit_free(k);
}

/* Cleaning, in rounds, by the thread. */
static bool is_removed(struct kit *k)
{
    return !kit_exists(k, "uploads", ".info");
}

static void test_the_thread_goes_round(void **state)
{
    struct kit *k = stale_new();
    struct err e = {0};
    (void)state;
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    kit_await(k, has_scanned);
    kit_create(k, TEXT); /* the next round finds it */
    kit_await(k, is_removed);
    kit_free(k);
}

/* While the server was away nobody could send: old uploads get their whole time anew. */
static void test_a_start_gives_the_whole_time_anew(void **state)
{
    struct kit *k = kit_new();
    struct err e = {0};
    (void)state;
    kit_create(k, TEXT);
    (void)make_old(k);
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    kit_await(k, has_scanned);
    assert_true(kit_exists(k, "uploads", ".info"));
    artifact_stop(k->artifact);
    kit_free(k);
}

/* Complete, unaccepted, and the disk does not give it back: nobody waits for it for ever. */
static void test_what_cannot_be_read_expires(void **state)
{
    struct kit *k;
    (void)state;
    faults_install(NULL);
    k = kit_new();
    kit_create(k, TEXT);
    put(k, "", TEXT);
    faults_count_only(OS_CALL_pread, k->id);
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    /* Its description is read as well; a round that cannot tell what it is leaves it alone. */
    cleaner_round(k->artifact);
    (void)make_old(k);
    cleaner_round(k->artifact);
    assert_true(kit_exists(k, "uploads", ".info"));
    faults_count_only(OS_CALL_drop_cache, k->id); /* before the bytes are read */
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    cleaner_round(k->artifact);
    assert_int_equal(faults_fired(), 1);
    faults_reset();
    assert_int_equal(kit_head(k), 404);
    kit_create(k, TEXT); /* one that can be read is accepted, however old it is */
    put(k, "", TEXT);
    (void)make_old(k);
    cleaner_round(k->artifact);
    expect_offset(k, TEXT.len, true);
    kit_free(k);
    faults_uninstall();
}

/* Holes 4 and 5: what fails is one upload's, and the next round's. */
static void test_one_bad_file_stops_nothing(void **state)
{
    struct kit *k;
    struct artifact_options options = kit_options();
    static const enum os_call calls[] = {OS_CALL_unlink, OS_CALL_open, OS_CALL_stat};
    char bad[UPLOAD_ID_LEN + 1];
    (void)state;
    options.retention_ms = 0;
    faults_install(NULL);
    k = kit_new_with(&options, NULL);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        kit_create(k, TEXT);
        assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
        memcpy(bad, k->id, sizeof bad);
        kit_create(k, TEXT);
        faults_count_only(calls[i], bad);
        faults_reset();
        faults_arm(1, EIO, true, FAULT_ERROR);
        cleaner_round(k->artifact);
        assert_true(faults_fired() > 0);
        faults_reset();
        assert_false(kit_exists(k, "uploads", ".info"));
        memcpy(k->id, bad, sizeof bad);
        assert_true(kit_exists(k, "uploads", ".info"));
        cleaner_round(k->artifact);
        assert_false(kit_exists(k, "uploads", ".info"));
        assert_true(status_of(k).scanned);
    }
    /* An acceptance that fails is tried again; the folder cannot be listed. */
    kit_create(k, TEXT);
    put(k, "", TEXT);
    faults_count_only(OS_CALL_rename, ".receipt-");
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    uint64_t failures = metric_get(METRIC_ARTIFACT_FAILURES);
    cleaner_round(k->artifact);
    assert_int_equal(metric_get(METRIC_ARTIFACT_FAILURES), failures + 1);
    kit_create(k, TEXT);
    put(k, "", TEXT);
    faults_count_only(OS_CALL_open, k->id);
    faults_reset();
    faults_arm(3, EIO, true, FAULT_ERROR);
    cleaner_round(k->artifact);
    faults_count_only(OS_CALL_list, "uploads");
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    cleaner_round(k->artifact);
    assert_int_equal(faults_fired(), 2);
    faults_reset();
    cleaner_round(k->artifact);
    assert_true(kit_exists(k, "receipts", ".json"));
    kit_free(k);
    faults_uninstall();
}

static struct os_table slow;
static const struct os_table *fast;
static atomic_bool answered;
static atomic_uint steps, too_early;

/* A step of freeing; the client must have its answer before. */
static int slow_ftruncate(int fd, uint64_t size)
{
    for (int i = 0; i < KIT_WAIT_MS && !atomic_load(&answered); i++) {
        (void)os_poll_in(-1, 1);
    }
    too_early += atomic_load(&answered) ? 0 : 1;
    steps++;
    return fast->ftruncate(fd, size);
}

static bool bytes_are_freed(struct kit *k)
{
    char path[200];
    struct os_stat st;
    kit_path(k, "uploads", "", path);
    return os_stat(path, &st) == -ENOENT;
}

static int count_other(void *ctx, const char *name)
{
    const struct kit *k = ctx;
    return memcmp(name, k->id, UPLOAD_ID_LEN) != 0;
}

static bool nothing_but_the_first(struct kit *k)
{
    char path[200];
    (void)snprintf(path, sizeof path, "%s/uploads", k->dir);
    return os_list(path, count_other, k) == 0;
}

/* What is refused and large is freed step by step, behind the answer; an id that was told stays
 * 410, one that was not leaves nothing. */
static void test_a_refusal_does_not_wait_for_its_bytes(void **state)
{
    const size_t size = UPLOAD_STEP_BYTES + UPLOAD_PIECE_BYTES;
    char *bytes = calloc(1, size);
    char headers[2000];
    struct err e = {0};
    (void)state;
    assert_non_null(bytes);
    fast = os_current();
    slow = *fast;
    slow.ftruncate = slow_ftruncate;
    os_install(&slow);
    struct kit *k = kit_new();
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    kit_create(k, slice_of(bytes, size));
    bytes[5] = 1;
    atomic_store(&answered, false);
    assert_int_equal(kit_patch(k, 0, slice_of(bytes, size)), 422);
    atomic_store(&answered, true);
    kit_await(k, bytes_are_freed);
    assert_int_equal(kit_head(k), 410);
    assert_int_equal(steps, 2);
    bytes[5] = 0;
    (void)kit_creation(headers, slice_of(bytes, size), UPLOAD_TYPE);
    bytes[5] = 1;
    atomic_store(&answered, false);
    assert_int_equal(kit_ask(k, "POST", "/files", headers, slice_of(bytes, size)), 422);
    atomic_store(&answered, true);
    kit_await(k, nothing_but_the_first);
    assert_int_equal(too_early, 0);
    kit_free(k);
    os_install(fast);
    free(bytes);
}

/* Leavings of a crash that cannot be removed do not keep the door from opening. */
static void test_a_start_on_a_failing_disk(void **state)
{
    struct kit *k;
    struct artifact_options options = kit_options();
    struct err e = {0};
    (void)state;
    faults_install(NULL);
    k = kit_new_with(&options, NULL);
    faults_count_only(OS_CALL_list, NULL);
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    kit_await(k, has_scanned);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    kit_free(k);
    faults_uninstall();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_in_time_stays_and_is_counted),
        cmocka_unit_test(test_partials_are_bounded),
        cmocka_unit_test(test_stale_uploads_go_and_accepted_ones_stay),
        cmocka_unit_test(test_a_client_that_keeps_asking_keeps_its_upload),
        cmocka_unit_test(test_an_append_of_nothing_puts_nothing_off),
        cmocka_unit_test(test_attempts_are_bounded),
        cmocka_unit_test(test_what_somebody_holds_stays),
        cmocka_unit_test(test_what_is_attempted_counts_as_under_way),
        cmocka_unit_test(test_a_start_finishes_acceptances_and_clears_up),
        cmocka_unit_test(test_the_thread_goes_round),
        cmocka_unit_test(test_a_start_gives_the_whole_time_anew),
        cmocka_unit_test(test_what_cannot_be_read_expires),
        cmocka_unit_test(test_one_bad_file_stops_nothing),
        cmocka_unit_test(test_a_refusal_does_not_wait_for_its_bytes),
        cmocka_unit_test(test_a_start_on_a_failing_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
