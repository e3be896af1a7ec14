/* Putting an object's members in order: by the UTF-16 code units of their unescaped names (RFC
 * 8785 3.2.3).
 *
 * Names stand in the output in canonical spelling, which differs from UTF-16 order in two ways: an
 * escape sorts as what it stands for and not as a backslash, and code points from U+10000
 * (surrogates in UTF-16) sort before U+E000 to U+FFFF. Everything else compares as bytes.
 *
 * Sorting is by insertion for few members and by merging for many, so n log n in the worst case.
 * Any two names that are neighbours in the end were compared on the way, so equal ones cannot be
 * missed. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon_internal.h"

#define INSERTION_MAX     16
#define COMMON_PREFIX_MIN 12 /* for fewer it costs more than it saves */

static inline uint32_t name_len(const struct canon_member *m)
{
    return m->name_len & ~CANON_NAME_ODD;
}

/* Index of the first difference of two byte strings, at most len. */
static size_t mismatch(const char *a, const char *b, size_t len)
{
    size_t i = 0;
    for (; len - i >= 8; i += 8) {
        uint64_t x;
        uint64_t y;
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        if (x != y) {
            break;
        }
    }
    while (i < len && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* Where to compare two names that differ first at byte i: one byte before when that begins an
 * escape (`\n` and `\r` differ in the letter). The digits of `\u00xx` compare as they are. */
static size_t unit_start(const char *name, size_t i)
{
    size_t run = 0; /* of backslashes in front of i; every second one ends an escape */
    while (run < i && name[i - run - 1] == '\\') {
        run++;
    }
    return i - run % 2;
}

/* Rank of the unit that begins at a byte: what an escape stands for, or the byte itself with the
 * lead bytes EE and EF (U+E000 to U+FFFF) moved behind those of four-byte sequences. */
static unsigned unit_rank(const char *at)
{
    unsigned char c = (unsigned char)at[0];
    if (c != '\\') {
        return c >= 0xEE && c <= 0xEF ? c + 0x10u : c;
    }
    switch (at[1]) {
    case 'b':
        return '\b';
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'f':
        return '\f';
    case 'r':
        return '\r';
    case 'u': { /* \u00xx */
        unsigned digit = (unsigned char)at[5];
        return (unsigned)(at[4] - '0') * 16 + (digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    default: /* a quote or a backslash */
        return (unsigned char)at[1];
    }
}

static int compare_odd(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t len = a_len < b_len ? a_len : b_len;
    size_t i = mismatch(a, b, len);
    if (i == len) {
        return a_len < b_len ? -1 : a_len > b_len;
    }
    i = unit_start(a, i);
    unsigned x = unit_rank(a + i);
    unsigned y = unit_rank(b + i);
    ensure(x != y);
    return x < y ? -1 : 1;
}

int canon_name_cmp_text(const char *base, const struct canon_member *a,
                        const struct canon_member *b)
{
    const char *x = base + a->name;
    const char *y = base + b->name;
    size_t x_len = name_len(a);
    size_t y_len = name_len(b);
    if (((a->name_len | b->name_len) & CANON_NAME_ODD) != 0) {
        return compare_odd(x, x_len, y, y_len);
    }
    size_t len = x_len < y_len ? x_len : y_len;
    int order = memcmp(x, y, len);
    return order != 0 ? order : x_len < y_len ? -1 : x_len > y_len;
}

/* Records that a name stands in its object already. Sorting compares in the order of the document:
 * the second of two equal names is the later one. */
static int duplicate(struct canon *c, const struct canon_member *later)
{
    c->fault_is_name = true;
    c->fault_name = *later;
    canon_fail(c, ERR_JSON, c->in + later->in_offset, "a member name occurs twice in one object");
    return ERR_JSON;
}

static int insertion_sort(struct canon *c, struct canon_member *m, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct canon_member moving = m[i];
        size_t to = i;
        for (; to > 0; to--) {
            int order = canon_name_cmp(c->base, &m[to - 1], &moving);
            if (order == 0) {
                return duplicate(c, &moving);
            }
            if (order < 0) {
                break;
            }
            m[to] = m[to - 1];
        }
        m[to] = moving;
    }
    return 0;
}

static int merge(struct canon *c, const struct canon_member *a, const struct canon_member *a_end,
                 const struct canon_member *b, const struct canon_member *b_end,
                 struct canon_member *to)
{
    while (a < a_end && b < b_end) {
        int order = canon_name_cmp(c->base, a, b);
        if (order == 0) {
            return duplicate(c, b);
        }
        *to++ = order < 0 ? *a++ : *b++;
    }
    while (a < a_end) {
        *to++ = *a++;
    }
    while (b < b_end) {
        *to++ = *b++;
    }
    return 0;
}

/* Bottom up: runs of INSERTION_MAX by insertion, then merged in ever longer pairs between m and
 * c->order. */
static int merge_sort(struct canon *c, struct canon_member *m, size_t count)
{
    if (c->order_cap < count) {
        struct canon_member *order = realloc(c->order, count * sizeof *order);
        if (order == NULL) {
            canon_fail(c, ERR_NO_MEMORY, c->in + m->in_offset, "not enough memory");
            return c->code;
        }
        c->order = order;
        c->order_cap = count;
    }
    for (size_t i = 0; i < count; i += INSERTION_MAX) {
        size_t n = count - i < INSERTION_MAX ? count - i : INSERTION_MAX;
        if (insertion_sort(c, m + i, n) != 0) {
            return c->code;
        }
    }
    struct canon_member *from = m;
    struct canon_member *to = c->order;
    for (size_t run = INSERTION_MAX; run < count; run *= 2) {
        for (size_t i = 0; i < count; i += 2 * run) {
            size_t mid = count - i < run ? count : i + run;
            size_t end = count - i < 2 * run ? count : i + 2 * run;
            if (merge(c, from + i, from + mid, from + mid, from + end, to + i) != 0) {
                return c->code;
            }
        }
        struct canon_member *swap = from;
        from = to;
        to = swap;
    }
    if (from != m) {
        memcpy(m, from, count * sizeof *m);
    }
    return 0;
}

/* Lets the keys begin behind what all names have in common, so that they tell more. Only plain
 * names: an odd one is never compared by key. */
static void skip_common_prefix(const char *base, struct canon_member *m, size_t count)
{
    const char *first = base + m[0].name;
    size_t common = name_len(&m[0]);
    for (size_t i = 1; i < count && common != 0; i++) {
        size_t len = name_len(&m[i]) < common ? name_len(&m[i]) : common;
        common = mismatch(first, base + m[i].name, len);
    }
    for (size_t i = 0; i < count && common != 0; i++) {
        m[i].key = canon_name_key(base + m[i].name + common, name_len(&m[i]) - common);
    }
}

static inline size_t member_start(const struct canon_member *m)
{
    return (size_t)m->name - 1; /* the opening quote */
}

static inline size_t member_size(const struct canon_member *m)
{
    return m->end - member_start(m);
}

/* Writes the members' text in their new order. The longest one is moved once, within the output;
 * the others wait in scratch meanwhile. */
static bool permute(struct canon *c, const struct canon_member *m, size_t count, size_t start,
                    const char *op)
{
    size_t longest = 0;
    size_t waiting = 0;
    for (size_t i = 0; i < count; i++) {
        waiting += member_size(&m[i]);
        longest = member_size(&m[i]) > member_size(&m[longest]) ? i : longest;
    }
    ensure(start + waiting + count - 1 == (size_t)(op - c->base));
    waiting -= member_size(&m[longest]);
    buf_clear(&c->scratch);
    if (!buf_reserve(&c->scratch, waiting)) {
        return false;
    }
    char *to = c->scratch.ptr;
    size_t longest_to = start;
    for (size_t i = 0; i < count; i++) {
        size_t size = member_size(&m[i]);
        longest_to += i < longest ? size + 1 : 0;
        if (i != longest) {
            memcpy(to, c->base + member_start(&m[i]), size);
            to += size;
        }
    }
    memmove(c->base + longest_to, c->base + member_start(&m[longest]), member_size(&m[longest]));
    const char *from = c->scratch.ptr;
    to = c->base + start;
    for (size_t i = 0; i < count; i++) {
        size_t size = member_size(&m[i]);
        if (i != longest) {
            memcpy(to, from, size);
            from += size;
        }
        to += size;
        if (i + 1 < count) {
            *to++ = ',';
        }
    }
    return true;
}

int canon_sort_members(struct canon *c, const char *op)
{
    const struct canon_frame *f = &c->frames[c->depth - 1];
    struct canon_member *m = c->members + f->first_member;
    size_t count = c->member_count - f->first_member;
    ensure(count >= 2);
    if (count >= COMMON_PREFIX_MIN) {
        skip_common_prefix(c->base, m, count);
    }
    int r = count <= INSERTION_MAX ? insertion_sort(c, m, count) : merge_sort(c, m, count);
    if (r != 0) {
        return r;
    }
    /* Members in front that are where they belong stay untouched. */
    size_t start = f->out;
    while (count > 0 && member_start(m) == start) {
        start += member_size(m) + 1;
        m++;
        count--;
    }
    ensure(count >= 2);
    if (!permute(c, m, count, start, op)) {
        canon_fail(c, ERR_NO_MEMORY, c->in + m->in_offset, "not enough memory");
        return c->code;
    }
    return 0;
}
