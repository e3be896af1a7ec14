/* test_index_memory: the index when memory runs out. Every allocation of a scenario fails, once and
 * for good, in the manner of curl's torture tests: no crash, no leak, no key lost from sight, and
 * with memory back everything is made up for.
 *
 * malloc and its kin are replaced in this program, which sanitizers do as well: under them the test
 * is skipped. */
#include <errno.h>
#include <sys/resource.h>

#include "index_kit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

int main(void)
{
    printf("skipped: a sanitizer owns malloc\n");
    return 0;
}

#else

/* glibc's own, under the names it exports for this. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t count, size_t n);
extern void *__libc_realloc(void *p, size_t n);
extern void __libc_free(void *p);

static uint64_t allocations;    /* counted while armed */
static uint64_t failing;        /* this one fails; 0: none */
static bool failing_ever_after; /* and all later ones */
static bool armed;
static uint64_t failed;
static int64_t live;

static bool fails(void)
{
    if (!armed) {
        return false;
    }
    allocations++;
    if (failing != 0 && (allocations == failing || (failing_ever_after && allocations > failing))) {
        failed++;
        errno = ENOMEM;
        return true;
    }
    return false;
}

void *malloc(size_t n)
{
    void *p = fails() ? NULL : __libc_malloc(n);

    live += p != NULL;
    return p;
}

void *calloc(size_t count, size_t n)
{
    void *p = fails() ? NULL : __libc_calloc(count, n);

    live += p != NULL;
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = fails() ? NULL : __libc_realloc(old, n);

    live += p != NULL && old == NULL;
    return p;
}

void free(void *p)
{
    live -= p != NULL;
    __libc_free(p);
}

enum { GENERATIONS = 8, EARLIER = 7 };

static struct ikit kit;
static bool known[GENERATIONS];

/* Of the eighth generation: enough that the table grows. */
static int insert_last(struct index *ix)
{
    for (size_t i = 0; i < kit.key_count; i++) {
        if (kit.keys[i].generation == EARLIER) {
            int result = index_insert(ix, &kit.keys[i]);

            if (result != 0) {
                /* As it was: what went in comes out, and then all of it goes in. */
                assert_int_equal(result, ERR_NO_MEMORY);
                armed = false;
                while (i > 0) {
                    i--;
                    if (kit.keys[i].generation == EARLIER) {
                        index_remove(ix, &kit.keys[i]);
                    }
                }
                return result;
            }
        }
    }
    return 0;
}

static void load_summaries(void)
{
    for (uint32_t g = 0; g < EARLIER; g++) {
        struct index_summary s;
        struct err e;
        int result = index_summary_load(kit.dir, g, &kit.closed[g], &s, &e);

        if (result == 0) {
            index_summary_free(&s);
        } else {
            assert_int_equal(result, ERR_NO_MEMORY);
        }
    }
}

/* Opens, inserts, closes the eighth generation and so merges, with one allocation failing. */
static void scenario(void)
{
    struct err e = {.code = 0};
    struct index *ix;

    armed = true;
    load_summaries();
    ix = ikit_try_open(&kit, kit.dir, kit.closed, EARLIER, known, false, &e);
    if (ix == NULL) {
        armed = false;
        assert_int_equal(e.code, ERR_NO_MEMORY);
        return;
    }
    for (unsigned g = 0; g < EARLIER; g++) {
        assert_true(known[g]);
    }
    if (insert_last(ix) != 0) {
        assert_int_equal(insert_last(ix), 0);
    }
    if (ikit_close_result(&kit, ix, EARLIER, true) != 0) {
        armed = false;
        assert_int_equal(index_run_count(ix), EARLIER);
        ikit_check(&kit, ix); /* the table is as it was */
        assert_int_equal(ikit_close_result(&kit, ix, EARLIER, true), 0);
    }
    armed = false;
    ikit_check(&kit, ix);
    index_settle(ix);
    assert_int_equal(index_run_count(ix), 1);
    ikit_check(&kit, ix);
    index_close(ix);
}

/* The directory as it was before the scenario, made again from scratch. */
static void restore(void)
{
    struct index *ix;

    ikit_empty(kit.dir);
    kit.count = EARLIER;
    ix = ikit_open(&kit, known, false);
    assert_int_equal(ikit_rebuild(&kit, ix, known), EARLIER);
    index_close(ix);
    kit.count = GENERATIONS;
}

static void test_every_allocation(void **state)
{
    unsigned runs = 0;

    (void)state;
    ikit_start(&kit, 17);
    for (unsigned g = 0; g < GENERATIONS; g++) {
        for (unsigned i = 0; i < (g == EARLIER ? 150 : 5); i++) {
            struct index_key key = ikit_key(&kit, g * 1000 + i);

            ikit_remember(&kit, &key);
        }
        (void)ikit_seal(&kit);
    }
    for (unsigned ever_after = 0; ever_after < 2; ever_after++) {
        for (failing = 1;; failing++) {
            int64_t live_before;

            restore();
            live_before = live;
            allocations = 0;
            failed = 0;
            failing_ever_after = ever_after != 0;
            scenario();
            assert_int_equal(live, live_before);
            if (failed == 0) {
                break;
            }
            runs++;
        }
        assert_true(failing > 50);
    }
    printf("%u runs with a failed allocation\n", runs);
    failing = 0;
    ikit_end(&kit);
}

/* No room for the stack of a thread. */
static void test_no_thread(void **state)
{
    struct rlimit before;
    struct rlimit tight;
    struct err e = {.code = 0};
    struct index_generation none;
    struct ikit k;
    unsigned long long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");

    (void)state;
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%llu", &pages), 1);
    assert_int_equal(fclose(statm), 0);
    ikit_start(&k, 18);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)(pages * (unsigned long long)sysconf(_SC_PAGESIZE)) + (1u << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    assert_null(ikit_try_open(&k, k.dir, &none, 0, known, true, &e));
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(e.code, ERR_NO_MEMORY);
    ikit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_no_thread),
    };

    log_set_level(LOG_ERROR + 1);
    ikit_skip_syncs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
