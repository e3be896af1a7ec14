/* model_outcomes: the set of outcomes that power cuts leave, and its comparison with the set that
 * may be left: no outcome too many, and none too few, or a crash test would miss bugs. */
#ifndef TESTS_UNIT_OS_MODEL_OUTCOMES_H
#define TESTS_UNIT_OS_MODEL_OUTCOMES_H

#include "tests/unit/os/model_fixture.h"

#define OUTCOMES_MAX 64

struct outcomes {
    unsigned count;
    char text[OUTCOMES_MAX][96];
    uint64_t hash[OUTCOMES_MAX];
};

/* Describes a file in words: "-" where there is none, otherwise its size and the first byte of each
 * sector. */
static inline void describe(const struct model *after, const char *path, char *to, size_t n)
{
    unsigned char bytes[8192];
    int64_t size = model_get(after, path, bytes, sizeof bytes);
    size_t used;

    if (size < 0) {
        (void)snprintf(to, n, "-");
        return;
    }
    used = (size_t)snprintf(to, n, "%lld", (long long)size);
    for (int64_t at = 0; at < size && used + 2 < n; at += 512) {
        to[used++] = bytes[at] != 0 ? (char)bytes[at] : '0';
    }
    to[used] = '\0';
}

static inline bool outcomes_have(const struct outcomes *o, const char *text)
{
    for (unsigned n = 0; n < o->count; n++) {
        if (strcmp(o->text[n], text) == 0) {
            return true;
        }
    }
    return false;
}

/* Cuts the power in every way; the distinct outcomes for these two files (the second may be NULL).
 */
static inline struct outcomes outcomes(const char *a, const char *b)
{
    struct outcomes o = {0};
    struct model_crashes it;
    struct model *after;
    uint64_t hash_before = model_hash(m);
    size_t pending_before = model_pending(m);

    model_crashes_begin(&it, m, 16, 0, 1);
    assert_true(it.exhaustive);
    while ((after = model_crashes_next(&it)) != NULL) {
        char text[96];
        size_t used;

        describe(after, a, text, 40);
        used = strlen(text);
        if (b != NULL) {
            text[used++] = ' ';
            describe(after, b, text + used, 40);
        }
        if (!outcomes_have(&o, text)) {
            assert_true(o.count < OUTCOMES_MAX);
            memcpy(o.text[o.count], text, sizeof text);
            o.hash[o.count++] = model_hash(after);
        }
        model_free(after);
    }
    /* The run itself has not felt it. */
    assert_int_equal(model_hash(m), hash_before);
    assert_int_equal(model_pending(m), pending_before);
    return o;
}

/* The outcomes are exactly those expected, and each has a hash of its own. */
static inline void expect(const char *a, const char *b, unsigned count, const char *const *expected)
{
    struct outcomes o = outcomes(a, b);

    for (unsigned n = 0; n < count; n++) {
        if (!outcomes_have(&o, expected[n])) {
            fail_msg("missing outcome: %s", expected[n]);
        }
    }
    for (unsigned n = 0; n < o.count; n++) {
        bool known = false;

        for (unsigned k = 0; k < count; k++) {
            known = known || strcmp(o.text[n], expected[k]) == 0;
        }
        if (!known) {
            fail_msg("unexpected outcome: %s", o.text[n]);
        }
        for (unsigned k = 0; k < n; k++) {
            assert_true(o.hash[n] != o.hash[k]);
        }
    }
}

#define EXPECT(a, b, ...)                                                \
    do {                                                                 \
        static const char *const expected_[] = {__VA_ARGS__};            \
        expect(a, b, sizeof expected_ / sizeof expected_[0], expected_); \
    } while (0)

static inline void fill(int fd, char with, size_t n, uint64_t offset)
{
    char bytes[8192];

    assert_true(n <= sizeof bytes);
    memset(bytes, with, n);
    assert_int_equal(os_pwrite_all(fd, bytes, n, offset, NULL), 0);
}

/* A synced file of n times 'o'. */
static inline int old_file(const char *path, size_t n)
{
    int fd = make(path, "");

    fill(fd, 'o', n, 0);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(model_pending(m), 0);
    return fd;
}

#endif
