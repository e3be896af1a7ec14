/* What reaches standard error: log lines, and the last line of a process that found itself wrong.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/timefmt.h"

static FILE *capture;
static int saved_stderr;

static void begin(void)
{
    (void)fflush(stderr);
    capture = tmpfile();
    assert_non_null(capture);
    saved_stderr = dup(STDERR_FILENO);
    assert_true(saved_stderr >= 0);
    assert_int_equal(dup2(fileno(capture), STDERR_FILENO), STDERR_FILENO);
}

static void end(char *text, size_t size)
{
    (void)fflush(stderr);
    assert_int_equal(dup2(saved_stderr, STDERR_FILENO), STDERR_FILENO);
    (void)close(saved_stderr);
    rewind(capture);
    size_t n = fread(text, 1, size - 1, capture);
    text[n] = '\0';
    (void)fclose(capture);
}

static void test_line(void **state)
{
    (void)state;
    char text[4096];
    begin();
    log_line(LOG_WARN, "journal", "disk %s is %d%% full", "a", 91);
    end(text, sizeof text);
    uint64_t ms;
    assert_true(timefmt_parse_ms(slice_of(text, TIMEFMT_MS_LEN), &ms));
    assert_string_equal(text + TIMEFMT_MS_LEN, " warn journal: disk a is 91% full\n");
}

static void test_threshold(void **state)
{
    (void)state;
    char text[4096];
    begin();
    log_line(LOG_DEBUG, "m", "hidden");
    log_line(LOG_INFO, "m", "one");
    log_set_level(LOG_ERROR);
    log_line(LOG_WARN, "m", "hidden");
    log_line(LOG_ERROR, "m", "two");
    log_set_level(LOG_DEBUG);
    log_line(LOG_DEBUG, "m", "three");
    log_set_level(LOG_INFO);
    end(text, sizeof text);
    assert_null(strstr(text, "hidden"));
    assert_non_null(strstr(text, " info m: one\n"));
    assert_non_null(strstr(text, " error m: two\n"));
    assert_non_null(strstr(text, " debug m: three\n"));
}

/* A stranger's bytes make neither a line of their own nor one without end. */
static void test_strangers_bytes(void **state)
{
    (void)state;
    char text[4096];
    char longer[3000];
    memset(longer, 'y', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    begin();
    log_line(LOG_INFO, "m", "%s",
             "a\nforged\r\x1b[31m\x7f"
             "b");
    log_line(LOG_INFO, "m", "%s", longer);
    end(text, sizeof text);
    assert_non_null(strstr(text, " info m: a?forged??[31m?b\n"));
    size_t lines = 0;
    for (const char *p = text; *p != '\0'; p++) {
        lines += *p == '\n';
    }
    assert_int_equal(lines, 2);
    assert_int_equal(text[strlen(text) - 1], '\n');
    assert_true(strlen(text) < 1024 + 200);
}

static void test_ensure(void **state)
{
    (void)state;
    char text[4096];
    ensure(1 + 1 == 2);
    begin();
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGABRT, SIG_DFL);
        ensure(1 + 1 == 3);
        _exit(0);
    }
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    end(text, sizeof text);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "ensure(1 + 1 == 3) failed at "));
    assert_non_null(strstr(text, "test_log.c:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_threshold),
        cmocka_unit_test(test_strangers_bytes),
        cmocka_unit_test(test_ensure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
