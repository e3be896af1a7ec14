/* seen_set: a set of 64-bit hashes that grows, to count distinct states. Zero-initialise it. */
#ifndef TESTS_LIB_SEEN_SET_H
#define TESTS_LIB_SEEN_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seen_set {
    uint64_t *slots; /* 0: free */
    size_t count, cap;
};

/* False when it was there. Running out of memory aborts. */
bool seen_add(struct seen_set *s, uint64_t key);
void seen_free(struct seen_set *s);

#endif
