/* test_model_calls: what a test can do to the calls of the model disk: count, fail, stop and watch
 * them. */
#include <pthread.h>

#include "tests/unit/os/model_fixture.h"

/* ---- faults, death, hooks, traces ---- */

static void faults_strike_the_call_they_name(void **state)
{
    const struct fault full = {.error = ENOSPC, .at = 2, .call = OS_CALL_pwrite, .path = "/b"};
    const struct fault half = {
        .kind = FAULT_SHORT, .at = 1, .sticky = true, .call = OS_CALL_pwrite};
    const struct fault none = {.kind = FAULT_ZERO, .at = 1, .call = OS_CALL_pread};
    const struct fault late = {
        .kind = FAULT_ERROR_AFTER, .error = EIO, .at = 1, .call = OS_CALL_rename};
    int a = make("/m/a", "");
    int b = make("/m/b", "");
    char bytes[8];

    (void)state;
    model_fault_arm(m, &full);
    assert_int_equal(os_pwrite(b, "12", 2, 0), 2);
    assert_int_equal(os_pwrite(a, "12", 2, 0), 2);
    assert_int_equal(os_pwrite(b, "34", 2, 0), -ENOSPC);
    assert_int_equal(os_pwrite(b, "56", 2, 0), 2);
    assert_int_equal(model_fault_fired(m), 1);
    has("/m/b", "56");
    model_fault_arm(m, &half);
    assert_int_equal(os_pwrite(a, "abcde", 5, 0), 3);
    assert_int_equal(os_pwrite_all(a, "abcde", 5, 0, NULL), 0);
    has("/m/a", "abcde");
    model_fault_arm(m, &none);
    assert_int_equal(os_pread(a, bytes, 8, 0), 0);
    assert_int_equal(os_pread(a, bytes, 8, 0), 5);
    model_fault_arm(m, &late);
    assert_int_equal(os_rename("/m/a", "/m/c"), -EIO);
    has("/m/c", "abcde"); /* it happened all the same */
    model_fault_arm(m, NULL);
    assert_int_equal(os_unlink("/m/c"), 0);
}

static void every_call_can_fail(void **state)
{
    int results[32];
    unsigned calls = each_call("/m", make("/m/file", "1"), results);

    (void)state;
    assert_int_equal(calls, OS_CALL_FILE_END - 1);
    for (unsigned n = 0; n < calls; n++) {
        assert_true(results[n] >= 0);
    }
    for (unsigned k = 0; k < calls; k++) {
        const struct fault fail = {.error = EDQUOT, .at = k + 1, .call = OS_CALL_ANY};

        use(NULL);
        results[k] = 0;
        {
            int fd = make("/m/file", "1");

            model_fault_arm(m, &fail);
            (void)each_call("/m", fd, results);
        }
        assert_int_equal(results[k], -EDQUOT);
        assert_int_equal(model_fault_fired(m), 1);
    }
}

static void death_freezes_the_disk(void **state)
{
    int results[32];
    unsigned calls = each_call("/m", make("/m/file", "1"), results);

    (void)state;
    for (unsigned k = 0; k <= calls; k++) {
        uint64_t hash_before = 0;
        int fd;

        use(NULL);
        fd = make("/m/file", "1");
        model_die_at(m, model_calls(m) + k + 1);
        (void)each_call("/m", fd, results);
        assert_int_equal(model_dead(m), k < calls);
        for (unsigned n = 0; n < calls; n++) {
            assert_int_equal(results[n] == -EIO, n >= k);
        }
        if (k == calls) {
            continue;
        }
        hash_before = model_hash(m);
        assert_int_equal(os_open("/m/after", O_RDWR | O_CREAT, 0600), -EIO);
        assert_int_equal(model_hash(m), hash_before);
    }
}

struct told {
    struct model *other;
    unsigned count;
    uint64_t last;
    enum os_call call;
    char path[32];
    jmp_buf *away;
};

static void tell(void *ctx, struct model *model, const struct model_call *call)
{
    struct told *told = ctx;
    char byte;

    assert_ptr_equal(model, m);
    told->count++;
    told->last = call->number;
    told->call = call->call;
    (void)snprintf(told->path, sizeof told->path, "%s", call->path);
    /* A hook may leave for another model and come back. */
    model_use(told->other);
    assert_int_equal(model_get(told->other, "/m/file", &byte, 1), -ENOENT);
    assert_int_equal(os_mkdir_exist_ok("/m/d", 0700), 0);
    model_use(model);
    if (told->away != NULL) {
        longjmp(*told->away, 1);
    }
}

static void hooks_see_each_call(void **state)
{
    struct told told = {.other = model_new(NULL)};
    jmp_buf away;
    int fd = make("/m/file", "1");

    (void)state;
    model_set_hook(m, tell, &told);
    assert_int_equal(os_pwrite(fd, "2", 1, 0), 1);
    assert_int_equal(told.count, 1);
    assert_int_equal(told.call, OS_CALL_pwrite);
    assert_string_equal(told.path, "/m/file");
    assert_int_equal(os_unlink("/m/none"), -ENOENT);
    assert_int_equal(told.count, 2);
    assert_int_equal(told.last, model_calls(m));
    assert_string_equal(told.path, "/m/none");
    told.away = &away;
    if (setjmp(away) == 0) {
        (void)os_unlink("/m/file");
        fail_msg("the hook came back");
    }
    model_set_hook(m, NULL, NULL);
    has("/m/file", "2"); /* the call was not made */
    assert_int_equal(os_close(fd), 0);
    model_free(told.other);
}

static void traces_tell_the_story(void **state)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    int fd = make("/m/file", "hello");

    (void)state;
    assert_int_equal(os_open("/m/none", O_RDONLY, 0), -ENOENT);
    model_trace_print(m, to);
    model_pending_print(m, to);
    assert_int_equal(fclose(to), 0);
    assert_non_null(strstr(text, "pwrite     /m/file +0 5 = 5\n"));
    assert_non_null(strstr(text, "open       /m/none +0 0 = -2\n"));
    assert_non_null(strstr(text, "pwrite    /m/file +0 512\n"));
    assert_non_null(strstr(text, "ftruncate /m/file +5 0\n"));
    free(text);
    for (unsigned k = 0; k < 1000; k++) {
        assert_int_equal(os_pwrite(fd, "x", 1, 0), 1);
    }
    to = open_memstream(&text, &n);
    model_trace_print(m, to);
    assert_int_equal(fclose(to), 0);
    assert_null(strstr(text, "open")); /* the last 256 only */
    free(text);
}

static void *write_and_sync(void *path)
{
    int fd = make(path, "");
    uint64_t k;

    for (k = 0; k < 500; k++) {
        assert_int_equal(os_pwrite(fd, &k, sizeof k, k * sizeof k), sizeof k);
        if (k % 10 == 9) {
            assert_int_equal(os_fdatasync(fd), 0);
        }
        (void)os_clock_mono_ns();
    }
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(os_close(fd), 0);
    return NULL;
}

static void threads_may_share_a_model(void **state)
{
    static char paths[4][8] = {"/m/a", "/m/b", "/m/c", "/m/d"};
    pthread_t threads[4];
    uint64_t bytes[500];

    (void)state;
    for (unsigned n = 0; n < 4; n++) {
        assert_int_equal(pthread_create(&threads[n], NULL, write_and_sync, paths[n]), 0);
    }
    for (unsigned n = 0; n < 4; n++) {
        assert_int_equal(pthread_join(threads[n], NULL), 0);
    }
    assert_int_equal(model_pending(m), 0);
    cut(false);
    for (unsigned n = 0; n < 4; n++) {
        assert_int_equal(model_get(m, paths[n], bytes, sizeof bytes), sizeof bytes);
        for (unsigned k = 0; k < 500; k++) {
            assert_int_equal(bytes[k], k);
        }
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(faults_strike_the_call_they_name),
        T(every_call_can_fail),
        T(death_freezes_the_disk),
        T(hooks_see_each_call),
        T(traces_tell_the_story),
        T(threads_may_share_a_model),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
