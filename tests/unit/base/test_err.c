/* The error table and the filling of details. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/log.h"

static void test_table(void **state)
{
    (void)state;
    assert_string_equal(err_name(0), "ok");
    assert_int_equal(err_status(0), 200);
    assert_false(err_retryable(0));
    assert_int_equal(err_level(0), LOG_DEBUG);
    for (int a = 0; a < (int)ERR_INDEX_COUNT; a++) {
        int code = -1 - a;
        const char *name = err_name(code);
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
        assert_true(strlen(name) > 0);
        assert_in_range(err_status(code), 400, 599);
        assert_in_range(err_level(code), LOG_DEBUG, LOG_ERROR);
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(err_name(-1 - b), name);
        }
    }
}

/* Names and statuses that clients branch on (history contract, section 10). */
static void test_contract(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *name;
        unsigned status;
    } rows[] = {
        {ERR_INVALID_REQUEST, "invalid_request", 400},
        {ERR_INVALID_BATCH, "invalid_batch", 400},
        {ERR_INVALID_EVENTS, "invalid_events", 400},
        {ERR_INVALID_SOURCE_RETIREMENT, "invalid_source_retirement", 400},
        {ERR_INVALID_SOURCE_LINEAGE, "invalid_source_lineage", 400},
        {ERR_INVALID_REPLAY_REQUEST, "invalid_replay_request", 400},
        {ERR_INVALID_STREAMS_REQUEST, "invalid_streams_request", 400},
        {ERR_STREAM_ANCHOR_UNAVAILABLE, "stream_anchor_unavailable", 400},
        {ERR_UNAUTHORIZED, "unauthorized", 401},
        {ERR_NOT_FOUND, "not_found", 404},
        {ERR_SOURCE_NOT_FOUND, "source_not_found", 404},
        {ERR_METHOD_NOT_ALLOWED, "method_not_allowed", 405},
        {ERR_BATCH_ID_CONFLICT, "batch_id_conflict", 409},
        {ERR_SOURCE_RETIRED, "source_retired", 409},
        {ERR_SOURCE_LINEAGE_CONFLICT, "source_lineage_conflict", 409},
        {ERR_STREAM_FRONTIER_CONFLICT, "stream_frontier_conflict", 409},
        {ERR_BODY_TOO_LARGE, "body_too_large", 413},
        {ERR_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415},
        {ERR_OVERLOADED, "overloaded", 429},
        {ERR_INTERNAL_ERROR, "internal_error", 500},
        {ERR_WRITER_POISONED, "writer_poisoned", 503},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(err_name(rows[i].code), rows[i].name);
        assert_int_equal(err_status(rows[i].code), rows[i].status);
    }
    assert_true(err_retryable(ERR_OVERLOADED));
    assert_true(err_retryable(ERR_WRITER_POISONED));
    assert_false(err_retryable(ERR_BATCH_ID_CONFLICT));
    /* Codes that never leave the process count as our own fault if they do. */
    assert_int_equal(err_status(ERR_CORRUPT), 500);
}

static void test_set(void **state)
{
    (void)state;
    struct err e;
    memset(&e, 0xEE, sizeof e);
    assert_int_equal(err_set(&e, ERR_CORRUPT, "bad %s at %d", "thing", 7), ERR_CORRUPT);
    assert_int_equal(e.code, ERR_CORRUPT);
    assert_string_equal(e.text, "bad thing at 7");
    assert_int_equal(e.os_errno, 0);
    assert_false(e.has_offset);
    assert_int_equal(err_set_at(&e, ERR_JSON, UINT64_C(1) << 40, "here"), ERR_JSON);
    assert_true(e.has_offset);
    assert_true(e.offset == UINT64_C(1) << 40);
    assert_int_equal(err_set(NULL, ERR_IO, "%d", 1), ERR_IO);
    assert_int_equal(err_set_at(NULL, ERR_IO, 3, "%d", 1), ERR_IO);
    /* A long text is cut and still ends. */
    char text[1000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(err_set(&e, ERR_IO, "%s", text), ERR_IO);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
}

static void test_os(void **state)
{
    (void)state;
    struct err e;
    assert_int_equal(err_os(&e, -ENOSPC, "write", "tail"), ERR_NO_SPACE);
    assert_int_equal(e.code, ERR_NO_SPACE);
    assert_int_equal(e.os_errno, ENOSPC);
    assert_non_null(strstr(e.text, "write"));
    assert_non_null(strstr(e.text, "tail"));
    assert_non_null(strstr(e.text, strerror(ENOSPC)));
    assert_int_equal(err_os(&e, -EDQUOT, "write", "tail"), ERR_NO_SPACE);
    assert_int_equal(err_os(&e, -ENOMEM, "open", "x"), ERR_NO_MEMORY);
    assert_int_equal(err_os(&e, -EIO, "fdatasync", "tail"), ERR_IO);
    assert_int_equal(e.os_errno, EIO);
    assert_int_equal(err_os(NULL, -EIO, "fdatasync", "tail"), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_contract),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_os),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
