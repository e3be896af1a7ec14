/* request: what is left for the deliverer stays left. On the model disk, with the power cut, the
 * process killed, and each call failing, at every call. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "os/os.h"
#include "store/artifact/request.h"
#include "tests/lib/modeldisk.h"

#define DATA   "/m"
#define FOLDER DATA "/" REQUESTS_FOLDER
#define HEX32  "0123456789abcdef0123456789abcdef"

static const struct request asked = {.object_id = HEX32, .kind = REQUEST_RETRY};

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR + 1);
    return 0;
}

static bool there(const char *path)
{
    struct os_stat st;
    return os_stat(path, &st) == 0;
}

static int put(struct err *e)
{
    return request_put(DATA, &asked, e);
}

/* ---- names ---- */

static void test_names(void **state)
{
    static const char *const none[] = {
        "",
        ".",
        HEX32,
        HEX32 ".",
        HEX32 ".retr",
        HEX32 ".retryy",
        HEX32 ".RETRY",
        HEX32 "-retry",
        "." HEX32 ".retry", /* a temporary one */
        "0123456789abcdef0123456789abcde.retry",
        "0123456789abcdef0123456789abcdeg.retry",
        "0123456789ABCDEF0123456789abcdef.retry",
        "../3456789abcdef0123456789abcdef.retry",
    };
    struct request got;

    (void)state;
    assert_true(request_parse(HEX32 ".retry", &got));
    assert_string_equal(got.object_id, HEX32);
    assert_int_equal(got.kind, REQUEST_RETRY);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        if (request_parse(none[i], &got)) {
            fail_msg("\"%s\" asks for something", none[i]);
        }
    }
}

/* ---- the folder ---- */

struct seen {
    unsigned requests, others;
};

static int see(void *ctx, const char *name)
{
    struct seen *s = ctx;
    struct request got;

    if (request_parse(name, &got)) {
        assert_string_equal(got.object_id, HEX32);
        s->requests++;
    } else {
        assert_string_equal(name, "." HEX32 ".retry");
        s->others++;
    }
    return 0;
}

/* The folder holds the request once, or not, and what a crash may leave of it. */
static unsigned requests_of(unsigned *others)
{
    struct seen s = {0};
    int r = os_list(FOLDER, see, &s);

    assert_true(r == 0 || r == -ENOENT);
    assert_in_range(s.requests, 0, 1);
    assert_in_range(s.others, 0, 1);
    *others = s.others;
    return s.requests;
}

static void test_twice_is_once(void **state)
{
    struct model *m = model_new(NULL);
    struct err e = {0};
    unsigned others;

    (void)state;
    model_use(m);
    assert_int_equal(put(&e), 0);
    assert_int_equal(put(&e), 0);
    assert_int_equal(requests_of(&others), 1);
    assert_int_equal(others, 0);
    /* Done and removed: the next one is a new one. */
    assert_int_equal(os_unlink(FOLDER "/" HEX32 ".retry"), 0);
    assert_int_equal(put(&e), 0);
    assert_int_equal(requests_of(&others), 1);
    model_free(m);
}

static void test_bound(void **state)
{
    struct model *m = model_new(NULL);
    struct request r = asked;
    struct err e = {0};
    char path[120];

    (void)state;
    model_use(m);
    assert_int_equal(os_mkdir(FOLDER, 0750), 0);
    for (unsigned i = 0; i < REQUESTS_MAX; i++) {
        (void)snprintf(r.object_id, sizeof r.object_id, "%032x", i);
        (void)snprintf(path, sizeof path, FOLDER "/%s.retry", r.object_id);
        int fd = os_open(path, O_WRONLY | O_CREAT, 0640);
        assert_true(fd >= 0);
        assert_int_equal(os_close(fd), 0);
    }
    assert_int_equal(put(&e), ERR_OVERLOADED);
    assert_false(there(FOLDER "/" HEX32 ".retry"));
    assert_false(there(FOLDER "/." HEX32 ".retry"));
    assert_int_equal(request_put(DATA, &r, &e), 0); /* it waits already */
    assert_int_equal(os_unlink(FOLDER "/00000000000000000000000000000000.retry"), 0);
    assert_int_equal(put(&e), 0);
    model_free(m);
}

static void test_path_too_long(void **state)
{
    static char data[5000];
    struct err e = {0};

    (void)state;
    memset(data, 'x', sizeof data - 1);
    assert_int_equal(request_put(data, &asked, &e), ERR_IO);
}

/* ---- power cuts, kills and faults ---- */

/* What was told to be left is there whatever of the rest is lost. */
static void assert_left_for_good(struct model *m)
{
    static const struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *after = model_crash(m, &none);

    char content[8] = "";
    assert_int_equal(model_get(after, FOLDER "/" HEX32 ".retry", content, sizeof content), 3);
    assert_memory_equal(content, "{}\n", 3);
    model_use(after);
    model_free(after);
    model_use(m);
}

static void ask_again(struct model *m)
{
    struct err e = {0};
    unsigned others;

    model_use(m);
    (void)requests_of(&others);
    assert_int_equal(put(&e), 0);
    assert_int_equal(requests_of(&others), 1);
    assert_left_for_good(m);
}

static unsigned cuts;

static void cut(void *ctx, struct model *m, const struct model_call *call)
{
    struct model_crashes it;
    struct model *after;

    (void)ctx;
    model_set_hook(m, NULL, NULL);
    model_crashes_begin(&it, m, 10, 64, call->number);
    while ((after = model_crashes_next(&it)) != NULL) {
        ask_again(after);
        model_free(after);
        cuts++;
    }
    after = model_snapshot(m); /* killed: nothing is lost yet, and nothing more is synced */
    ask_again(after);
    model_free(after);
    model_use(m);
    model_set_hook(m, cut, NULL);
}

static void test_cuts(void **state)
{
    struct model *m = model_new(NULL);
    struct err e = {0};

    (void)state;
    cuts = 0;
    model_use(m);
    model_set_hook(m, cut, NULL);
    assert_int_equal(put(&e), 0);
    model_set_hook(m, NULL, NULL);
    assert_left_for_good(m);
    assert_true(cuts > 20);
    model_free(m);
}

static void test_faults(void **state)
{
    static const struct fault kinds[] = {
        {.kind = FAULT_ERROR, .error = EIO},
        {.kind = FAULT_ERROR_AFTER, .error = EIO},
        {.kind = FAULT_ERROR, .error = ENOSPC},
        {.kind = FAULT_ERROR, .error = EIO, .sticky = true},
    };
    unsigned refused = 0;

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool fired = true;
        for (uint64_t at = 1; fired; at++) {
            struct model *m = model_new(NULL);
            struct fault fault = kinds[k];
            struct err e = {0};
            fault.at = at;
            model_use(m);
            model_fault_arm(m, &fault);
            int r = put(&e);
            fired = model_fault_fired(m) > 0;
            model_fault_arm(m, NULL);
            if (r == 0) {
                assert_left_for_good(m);
            } else {
                assert_true(fired);
                assert_true(r == ERR_IO || r == ERR_NO_SPACE);
                assert_true(e.text[0] != '\0');
                refused++;
            }
            ask_again(m);
            model_free(m);
        }
    }
    assert_true(refused > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_twice_is_once),
        cmocka_unit_test(test_bound), cmocka_unit_test(test_path_too_long),
        cmocka_unit_test(test_cuts),  cmocka_unit_test(test_faults),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
