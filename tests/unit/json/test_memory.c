/* Canon when memory runs out, and how much it keeps. Each case runs in a child whose address space
 * is limited, so that a growth of a known size fails. The sanitizers reserve the address space
 * themselves: under them only what must succeed runs here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "json/canon.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define LIMITS_WORK false
#else
#define LIMITS_WORK true
#endif

#define MIB ((size_t)1 << 20)

/* Allows so many bytes more than the process has now. */
static bool limit_memory(size_t more)
{
    if (!LIMITS_WORK) {
        return true;
    }
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    bool ok = f != NULL && fscanf(f, "%lu", &pages) == 1;
    if (f != NULL) {
        (void)fclose(f);
    }
    rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    return ok && setrlimit(RLIMIT_AS, &limit) == 0;
}

struct memory_case {
    size_t members;   /* of one object, names descending */
    size_t text_size; /* of each member's value */
    size_t out_size;  /* of the output, had beforehand */
    size_t out_limit;
    size_t more; /* memory left when canon starts */
    const char *words;
};

/* An object as the case asks for. */
static void build(const struct memory_case *mc, struct buf *in)
{
    char *text = malloc(mc->text_size + 1);
    if (text == NULL) {
        in->failed = true;
        return;
    }
    memset(text, 'x', mc->text_size);
    buf_put_char(in, '{');
    for (size_t i = 0; i < mc->members; i++) {
        buf_printf(in, "%s\"%07zu\":\"", i == 0 ? "" : ",", 9999999 - i);
        buf_put(in, text, mc->text_size);
        buf_put_char(in, '"');
    }
    buf_put_char(in, '}');
    free(text);
}

/* 0: as expected. */
static int judge(const struct memory_case *mc, struct canon *c, struct slice in, struct buf *out)
{
    struct canon_error e;
    int r = canon_json(c, in, out, &e);
    if (mc->words == NULL) {
        return r == 0 && out->len == in.len ? 0 : 13;
    }
    if (r != ERR_NO_MEMORY || strstr(e.text, mc->words) == NULL || out->len != 0 || out->failed) {
        (void)fprintf(stderr, "got %d %s\n", r, e.text);
        return 14;
    }
    /* Afterwards it works on something smaller. */
    r = canon_json(c, SLICE("{\"b\":1,\"a\":2}"), out, &e);
    return r == 0 && slice_eq(buf_slice(out), SLICE("{\"a\":2,\"b\":1}")) ? 0 : 15;
}

/* In the child. */
static int run_case(const struct memory_case *mc)
{
    struct canon *c = canon_new();
    struct buf in = {0};
    struct buf out;
    buf_init(&out, mc->out_limit);
    build(mc, &in);
    int r = 11;
    if (c != NULL && !in.failed && buf_reserve(&out, mc->out_size)) {
        r = limit_memory(mc->more) ? judge(mc, c, buf_slice(&in), &out) : 12;
    }
    canon_free(c);
    buf_free(&in);
    buf_free(&out);
    return r;
}

static void check_case(const struct memory_case *mc)
{
    if (!LIMITS_WORK && mc->words != NULL) {
        skip();
    }
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        exit(run_case(mc)); /* not _exit: coverage is written at exit */
    }
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_output(void **state)
{
    (void)state;
    check_case(&(struct memory_case){
        .members = 2, .text_size = 20 * MIB, .more = 4 * MIB, .words = "not enough memory"});
}

/* Past the caller's limit, for the output that is held beside it. */
static void test_output_beside(void **state)
{
    (void)state;
    check_case(&(struct memory_case){.members = 2,
                                     .text_size = 20 * MIB,
                                     .out_limit = 30 * MIB,
                                     .more = 4 * MIB,
                                     .words = "not enough memory"});
}

static void test_members(void **state)
{
    (void)state;
    check_case(&(struct memory_case){.members = 1000000,
                                     .text_size = 1,
                                     .out_size = 32 * MIB,
                                     .more = 4 * MIB,
                                     .words = "not enough memory"});
}

static void test_order(void **state)
{
    (void)state;
    check_case(&(struct memory_case){.members = 1000000,
                                     .text_size = 1,
                                     .out_size = 32 * MIB,
                                     .more = 36 * MIB,
                                     .words = "not enough memory"});
}

static void test_scratch(void **state)
{
    (void)state;
    check_case(&(struct memory_case){.members = 3,
                                     .text_size = 10 * MIB,
                                     .out_size = 32 * MIB,
                                     .more = 4 * MIB,
                                     .words = "not enough memory"});
}

/* The longest member needs no scratch: two members of 10 MiB get along with 20 MiB, which two
 * in scratch (doubled to 32) would not. */
static void test_longest_moves_in_place(void **state)
{
    (void)state;
    check_case(&(struct memory_case){
        .members = 2, .text_size = 10 * MIB, .out_size = 32 * MIB, .more = 20 * MIB});
}

static void test_enough(void **state)
{
    (void)state;
    check_case(&(struct memory_case){
        .members = 1000000, .text_size = 1, .out_size = 32 * MIB, .more = 100 * MIB});
}

/* More than offsets of 32 bits allow for. None of it is looked at: it cannot be read. */
static void test_too_large(void **state)
{
    (void)state;
    size_t size = 512 * MIB + 1;
    void *text = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(text != MAP_FAILED);
    struct canon *c = canon_new();
    struct buf out = {0};
    struct canon_error e;
    assert_int_equal(canon_json(c, slice_of(text, size), &out, &e), ERR_NO_MEMORY);
    assert_non_null(strstr(e.text, "document is too large"));
    assert_null(out.ptr);
    canon_free(c);
    assert_int_equal(munmap(text, size), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output),  cmocka_unit_test(test_output_beside),
        cmocka_unit_test(test_members), cmocka_unit_test(test_order),
        cmocka_unit_test(test_scratch), cmocka_unit_test(test_longest_moves_in_place),
        cmocka_unit_test(test_enough),  cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
