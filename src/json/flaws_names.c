/* Repeated names in one object.
 *
 * Two names are the same when their mended, unescaped texts are: two lone surrogates both become
 * U+FFFD and collide. A name is known by its CRC-32C, and by its text where those are equal. The
 * checksum is no secret, so names of one checksum can be made to order; what bounds the work then
 * is the sort, n log n comparisons, which is also how objects of many members are done. Of up to
 * SMALL members a bitmap tells which may collide at all, nearly always none.
 *
 * Offsets of replaced members go to f->dropped. */
#include "base/ensure.h"
#include "base/hash.h"
#include "json/flaws.h"
#include "json/scan.h"
#include "json/string_walk.h"

#define SMALL    256
#define MAP_BITS 4096

uint32_t flaws_name_hash(struct slice name, bool plain)
{
    if (plain) {
        return crc32c(0, name.ptr, name.len);
    }
    struct json_string_walk w = json_string_walk(name);
    struct slice piece;
    uint32_t hash = 0;
    while (json_string_walk_next(&w, &piece)) {
        hash = crc32c(hash, piece.ptr, piece.len);
    }
    return hash;
}

static struct slice name_of(const struct flaws *f, uint64_t entry)
{
    const char *end = f->value.ptr + f->value.len;
    const char *start = f->value.ptr + (uint32_t)entry + 1;
    const char *at = scan_quote(start, end);
    while (*at == '\\') {
        at = scan_quote(at + 2, end);
    }
    return (struct slice){.ptr = start, .len = (size_t)(at - start)};
}

/* Order of two names' mended texts, bytewise. */
static int name_cmp(struct slice a, struct slice b)
{
    struct json_string_walk wa = json_string_walk(a);
    struct json_string_walk wb = json_string_walk(b);
    struct slice pa = {.ptr = NULL, .len = 0};
    struct slice pb = {.ptr = NULL, .len = 0};
    for (;;) {
        bool more_a = pa.len != 0 || json_string_walk_next(&wa, &pa);
        bool more_b = pb.len != 0 || json_string_walk_next(&wb, &pb);
        if (!more_a || !more_b) {
            return (int)more_a - (int)more_b;
        }
        size_t n = pa.len < pb.len ? pa.len : pb.len;
        int c = memcmp(pa.ptr, pb.ptr, n);
        if (c != 0) {
            return c;
        }
        pa = slice_from(pa, n);
        pb = slice_from(pb, n);
    }
}

static bool hash_same(uint64_t a, uint64_t b)
{
    return a >> 32 == b >> 32;
}

/* By hash, then name, then place; f NULL: plain numbers. */
static bool entry_less(const struct flaws *f, uint64_t a, uint64_t b)
{
    if (f != NULL && hash_same(a, b)) {
        int c = name_cmp(name_of(f, a), name_of(f, b));
        if (c != 0) {
            return c < 0;
        }
    }
    return a < b;
}

static void sift_down(const struct flaws *f, uint64_t *heap, size_t n, size_t i)
{
    uint64_t moved = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) {
            break;
        }
        if (child + 1 < n && entry_less(f, heap[child], heap[child + 1])) {
            child++;
        }
        if (!entry_less(f, moved, heap[child])) {
            break;
        }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

/* Heap sort: no memory, no recursion, n log n whatever the input. */
static void sort(const struct flaws *f, uint64_t *entries, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) {
        sift_down(f, entries, n, i);
    }
    for (size_t last = n; last-- > 1;) {
        uint64_t largest = entries[0];
        entries[0] = entries[last];
        entries[last] = largest;
        sift_down(f, entries, last, 0);
    }
}

void flaws_sort(struct flaws_list *list)
{
    sort(NULL, list->ptr, list->len);
}

static void drop(struct flaws *f, uint64_t entry)
{
    f->found |= JSON_FLAW_DUPLICATE;
    flaws_list_add(f, &f->dropped, (uint32_t)entry);
}

static void close_large(struct flaws *f, uint64_t *entries, size_t n)
{
    sort(f, entries, n);
    for (size_t i = 1; i < n; i++) {
        if (hash_same(entries[i - 1], entries[i]) &&
            name_cmp(name_of(f, entries[i - 1]), name_of(f, entries[i])) == 0) {
            drop(f, entries[i - 1]);
        }
    }
}

/* The nearest member before entries[i] with its hash; i itself without one. */
static size_t same_before(const uint64_t *entries, size_t i)
{
    for (size_t k = i; k-- > 0;) {
        if (hash_same(entries[k], entries[i])) {
            return k;
        }
    }
    return i;
}

/* False when two different names have one hash: then nothing was noted. */
static bool close_small(struct flaws *f, const uint64_t *entries, size_t n)
{
    uint64_t map[MAP_BITS / 64] = {0};
    size_t dropped = f->dropped.len;
    for (size_t i = 0; i < n; i++) {
        unsigned bit = (unsigned)(entries[i] >> 32) % MAP_BITS;
        uint64_t mask = UINT64_C(1) << bit % 64;
        bool seen = (map[bit / 64] & mask) != 0;
        map[bit / 64] |= mask;
        size_t k = seen ? same_before(entries, i) : i;
        if (k == i) {
            continue;
        }
        if (name_cmp(name_of(f, entries[k]), name_of(f, entries[i])) != 0) {
            f->dropped.len = dropped;
            return false;
        }
        drop(f, entries[k]);
    }
    return true;
}

void flaws_close_object(struct flaws *f, size_t first)
{
    ensure(first <= f->names.len);
    uint64_t *entries = f->names.ptr + first;
    size_t n = f->names.len - first;
    if (n > 1 && (n > SMALL || !close_small(f, entries, n))) {
        close_large(f, entries, n);
    }
    f->names.len = first;
}
