/* Counters and their Prometheus text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/metrics.h"

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(metric_get(METRIC_HTTP_REQUESTS), 0);
    metric_add(METRIC_HTTP_REQUESTS, 5);
    metric_add(METRIC_HTTP_REQUESTS, 2);
    metric_sub(METRIC_HTTP_REQUESTS, 3);
    assert_int_equal(metric_get(METRIC_HTTP_REQUESTS), 4);
    metric_set(METRIC_HTTP_REQUESTS, UINT64_MAX);
    assert_true(metric_get(METRIC_HTTP_REQUESTS) == UINT64_MAX);
    metric_set(METRIC_HTTP_REQUESTS, 42);
}

/* Three lines a metric, in the form that Prometheus reads: HELP, TYPE, then name, space and number.
 */
static void test_text(void **state)
{
    (void)state;
    struct buf out = {0};
    metrics_text(&out);
    buf_put_char(&out, '\0');
    assert_false(out.failed);
    char *save = NULL;
    size_t metrics = 0;
    for (char *line = strtok_r(out.ptr, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char name[100];
        assert_memory_equal(line, "# HELP ", 7);
        size_t len = strspn(line + 7, "abcdefghijklmnopqrstuvwxyz0123456789_");
        assert_in_range(len, 1, sizeof name - 1);
        assert_int_equal(line[7 + len], ' ');
        assert_int_equal(line[strlen(line) - 1], '.');
        memcpy(name, line + 7, len);
        name[len] = '\0';
        assert_memory_equal(name, "tallyman_", 9);

        char want[200];
        line = strtok_r(NULL, "\n", &save);
        assert_non_null(line);
        bool counter = len > 6 && strcmp(name + len - 6, "_total") == 0;
        snprintf(want, sizeof want, "# TYPE %s %s", name, counter ? "counter" : "gauge");
        assert_string_equal(line, want);

        line = strtok_r(NULL, "\n", &save);
        assert_non_null(line);
        assert_memory_equal(line, name, len);
        assert_int_equal(line[len], ' ');
        char *end = NULL;
        unsigned long long value = strtoull(line + len + 1, &end, 10);
        assert_int_equal(*end, '\0');
        assert_int_equal(value, strcmp(name, "tallyman_http_requests_total") == 0 ? 42 : 0);
        metrics++;
    }
    assert_int_equal(metrics, METRIC_COUNT);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
