/* test_paused: DATA/paused on the model disk: what a power cut at any call leaves is what was told
 * last, or, between two answers, one of the two; every failing call; and what cannot be read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "store/paused.h"
#include "tests/lib/faults.h"
#include "tests/lib/modeldisk.h"

#define DIR "/m/data"

/* What was told last, and what is under way. */
struct life {
    const char *told; /* the reason, NULL: not paused */
    const char *next;
    bool under_way;
    unsigned states;
};

static bool is(const struct paused *p, const char *reason)
{
    return reason == NULL ? !p->on : p->on && strcmp(p->reason, reason) == 0 && p->since_ms != 0;
}

static void cut(void *ctx, struct model *m, const struct model_call *call)
{
    struct life *l = ctx;
    struct model_crashes it;
    struct model *after;
    model_crashes_begin(&it, m, 8, 16, call->number);
    while ((after = model_crashes_next(&it)) != NULL) {
        struct paused p;
        model_use(after);
        paused_read(DIR, &p);
        if (!is(&p, l->told) && !(l->under_way && is(&p, l->next))) {
            fail_msg("cut at call %llu, %s: on %d, reason '%s'", (unsigned long long)call->number,
                     it.text, p.on, p.reason);
        }
        l->states++;
        model_free(after);
    }
    model_use(m);
}

static void change(struct life *l, const char *reason)
{
    struct err e = {0};
    struct paused p;
    l->next = reason;
    l->under_way = true;
    assert_int_equal(
        reason == NULL ? paused_remove(DIR, &e) : paused_write(DIR, slice_cstr(reason), &p, &e), 0);
    l->told = reason;
    l->under_way = false;
    paused_read(DIR, &p);
    assert_true(is(&p, reason));
}

static void test_every_power_cut(void **state)
{
    struct life l = {0};
    struct model *m = model_new(NULL);
    (void)state;
    model_use(m);
    assert_int_equal(os_mkdir(DIR, 0700), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    model_set_hook(m, cut, &l);
    change(&l, "first");
    change(&l, "a second one, which is longer than the first");
    change(&l, NULL);
    change(&l, NULL);
    change(&l, "third");
    change(&l, NULL);
    model_set_hook(m, NULL, NULL);
    assert_true(l.states > 100);
    model_free(m);
}

/* A failure is told, or had no effect on what was asked for. */
static void test_every_failing_call(void **state)
{
    (void)state;
    for (int removing = 0; removing < 2; removing++) {
        bool fired = true;
        for (uint64_t at = 1; fired; at++) {
            struct model *m = model_new(NULL);
            struct err e = {0};
            struct paused p;
            const struct fault fault = {.kind = FAULT_ERROR, .error = EIO, .at = at};
            model_use(m);
            assert_int_equal(os_mkdir(DIR, 0700), 0);
            if (removing) {
                assert_int_equal(paused_write(DIR, SLICE("x"), NULL, &e), 0);
            }
            model_fault_arm(m, &fault);
            int r = removing ? paused_remove(DIR, &e) : paused_write(DIR, SLICE("x"), NULL, &e);
            fired = model_fault_fired(m) > 0;
            model_fault_arm(m, NULL);
            assert_true(fired ? r == ERR_IO : r == 0);
            if (r != 0) {
                assert_true(strlen(e.text) > 0);
            } else {
                paused_read(DIR, &p);
                assert_true(p.on == !removing);
            }
            model_free(m);
        }
    }
}

static void put(struct model *m, const char *text, struct paused *p)
{
    model_put(m, DIR "/" PAUSED_FILE, text, strlen(text));
    paused_read(DIR, p);
    assert_true(p->on);
    assert_true(strlen(p->reason) > 0);
}

static void test_what_cannot_be_understood_pauses(void **state)
{
    struct model *m = model_new(NULL);
    struct paused p;
    struct buf b = {0};
    const struct fault fault = {
        .kind = FAULT_ERROR, .error = EIO, .at = 1, .sticky = true, .call = OS_CALL_open};
    (void)state;
    model_use(m);
    put(m, "", &p);
    put(m, "{\"reason\":", &p);
    put(m, "[]", &p);
    put(m, "{\"reason\":7,\"since\":\"yesterday\"}", &p);
    assert_int_equal(p.since_ms, 0);
    paused_put_json(&b, &p);
    assert_string_equal((buf_put_char(&b, '\0'), b.ptr),
                        "{\"paused\":true,\"reason\":\"the file paused gives no "
                        "reason\",\"since\":null}");
    put(m, "{\"reason\":\"a \\\"b\\\"\",\"since\":\"2026-11-30T20:12:19.664Z\"}\n", &p);
    assert_string_equal(p.reason, "a \"b\"");
    assert_true(p.since_ms > 0);
    model_fault_arm(m, &fault);
    paused_read(DIR, &p);
    assert_true(p.on);
    assert_string_equal(p.reason, "the file paused cannot be read");
    model_fault_arm(m, NULL);
    assert_int_equal(os_unlink(DIR "/" PAUSED_FILE), 0);
    paused_read(DIR, &p);
    assert_false(p.on);
    buf_free(&b);
    model_free(m);
}

/* Cut between two characters, never inside one. */
static void test_a_long_reason(void **state)
{
    char text[400];
    struct model *m = model_new(NULL);
    struct err e = {0};
    struct paused p;
    (void)state;
    model_use(m);
    assert_int_equal(os_mkdir(DIR, 0700), 0);
    memset(text, 'x', sizeof text);
    memcpy(text + PAUSED_REASON_MAX - 1, "\xc3\xa4", 2);
    assert_int_equal(paused_write(DIR, slice_of(text, sizeof text), &p, &e), 0);
    assert_int_equal(strlen(p.reason), PAUSED_REASON_MAX - 1);
    paused_read(DIR, &p);
    assert_int_equal(strlen(p.reason), PAUSED_REASON_MAX - 1);
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_power_cut),
                                       cmocka_unit_test(test_every_failing_call),
                                       cmocka_unit_test(test_what_cannot_be_understood_pauses),
                                       cmocka_unit_test(test_a_long_reason)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
