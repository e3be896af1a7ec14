/* canon: one pass over the input that checks and writes the canonical form together.
 *
 * The machine is a loop with an explicit stack of frames, one per open container. Values are
 * written to the output as they are read; an object remembers where its members stand in the output
 * and, if the names were not ascending, puts them in order when it closes (canon_sort.c). An inner
 * object is in order before the outer one closes and its length no longer changes, so the outer one
 * moves finished text.
 *
 * Invariants: offsets, never pointers, are kept across a growth of the output; scratch holds the
 * members of the open objects only; input and output are below 4 GiB, so offsets have 32 bits.
 * Power failure: nothing here is stored.
 * Answers: every fault of the document, ERR_JSON or ERR_JSON_DEPTH with offset and path;
 * ERR_NO_MEMORY. Nothing stops the server; `ensure` guards our own arithmetic only. */
#include "json/canon.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon_internal.h"
#include "json/scan.h"

#define INPUT_MAX (UINT32_C(512) << 20) /* times 5.3 stays below 4 GiB */
#define KEEP_MAX  (1u << 20)            /* scratch that is kept for the next document */

struct canon *canon_new(void)
{
    return calloc(1, sizeof(struct canon));
}

void canon_free(struct canon *c)
{
    if (c != NULL) {
        free(c->members);
        free(c->order);
        buf_free(&c->scratch);
        buf_free(&c->spill);
        free(c);
    }
}

static struct canon_cursor bad(struct canon *c, const char *at, const char *text)
{
    return canon_fail(c, ERR_JSON, at, text);
}

static struct canon_cursor bad_between(struct canon *c, const char *at, const char *text)
{
    c->fault_in_container = true;
    return canon_fail(c, ERR_JSON, at, text);
}

static inline uint32_t written(const struct canon *c, const char *op)
{
    return (uint32_t)(op - c->base);
}

/* A string of up to 16 plain bytes costs one look; everything else goes to canon_string_rest. */
static inline struct canon_cursor put_string(struct canon *c, struct canon_cursor k)
{
    k.at++;
    *k.op++ = '"';
#ifdef SCAN_BLOCK
    if (c->end - k.at >= SCAN_BLOCK) {
        __m128i x = scan_load(k.at);
        _mm_storeu_si128((void *)k.op, x);
        unsigned mask = scan_special_mask(x);
        unsigned n = mask == 0 ? SCAN_BLOCK : (unsigned)__builtin_ctz(mask);
        k.at += n;
        k.op += n;
        if (mask != 0 && *k.at == '"') {
            k.at++;
            *k.op++ = '"';
            return k;
        }
    }
#endif
    return canon_string_rest(c, k);
}

static bool grow_members(struct canon *c)
{
    size_t cap = c->member_cap == 0 ? 64 : c->member_cap * 2;
    struct canon_member *members = realloc(c->members, cap * sizeof *members);
    if (members == NULL) {
        return false;
    }
    c->members = members;
    c->member_cap = cap;
    return true;
}

/* Reading past a short name is safe, here and in canon_name_key: it stands in the output, which
 * always has CANON_SLACK bytes of room behind what is written. */
static inline bool name_is_odd(const char *name, size_t len)
{
#ifdef SCAN_BLOCK
    if (len < SCAN_BLOCK) {
        return (scan_special_mask(scan_load(name)) & ((1u << len) - 1)) != 0;
    }
#endif
    return scan_plain(name, name + len) != name + len;
}

/* `"name":` of a member, after `{` or a comma. */
static struct canon_cursor put_name(struct canon *c, struct canon_cursor k)
{
    k.at = scan_space(k.at, c->end);
    if (k.at == c->end || *k.at != '"') {
        return bad_between(c, k.at, "a member name in quotes is expected");
    }
    const char *quote = k.at;
    uint32_t name = written(c, k.op) + 1;
    k = put_string(c, k);
    if (k.op == NULL) {
        c->fault_in_container = true;
        return k;
    }
    size_t len = written(c, k.op) - 1 - name;
    if (c->member_count == c->member_cap && !grow_members(c)) {
        return canon_fail(c, ERR_NO_MEMORY, quote, "not enough memory");
    }
    struct canon_member *m = &c->members[c->member_count];
    struct canon_frame *f = &c->frames[c->depth - 1];
    *m = (struct canon_member){
        .key = canon_name_key(c->base + name, len),
        .in_offset = (uint32_t)(quote - c->in),
        .name = name,
        .name_len = (uint32_t)len | (name_is_odd(c->base + name, len) ? CANON_NAME_ODD : 0),
    };
    f->sorted =
        f->sorted && (c->member_count == f->first_member || canon_name_cmp(c->base, m - 1, m) < 0);
    c->member_count++;
    k.at = scan_space(k.at, c->end);
    if (k.at == c->end || *k.at != ':') {
        return bad(c, k.at, "a colon is expected behind a member name");
    }
    k.at++;
    *k.op++ = ':';
    return k;
}

/* Opens a container; an empty one is closed at once, so that afterwards the last byte written tells
 * whether a value comes next. */
static struct canon_cursor open_container(struct canon *c, struct canon_cursor k, bool object)
{
    if (c->depth == CANON_DEPTH_MAX) {
        return canon_fail(c, ERR_JSON_DEPTH, k.at, "containers are nested too deeply");
    }
    *k.op++ = *k.at++;
    struct canon_frame *f = &c->frames[c->depth++];
    c->deepest = c->depth > c->deepest ? c->depth : c->deepest;
    f->first_member = (uint32_t)c->member_count;
    f->index = 0;
    f->out = written(c, k.op);
    f->object = object;
    f->sorted = true;
    k.at = scan_space(k.at, c->end);
    if (k.at < c->end && *k.at == (object ? '}' : ']')) {
        *k.op++ = *k.at++;
        c->depth--;
        return k;
    }
    return object ? put_name(c, k) : k;
}

static struct canon_cursor put_word(struct canon *c, struct canon_cursor k, const char *word,
                                    size_t len)
{
    size_t left = (size_t)(c->end - k.at);
    size_t n = 0;
    while (n < len && n < left && k.at[n] == word[n]) {
        n++;
    }
    if (n < len) {
        return bad(c, k.at + n, "true, false or null is misspelled");
    }
    memcpy(k.op, word, len);
    k.at += len;
    k.op += len;
    return k;
}

/* A scalar, or the opening of a container. */
static inline struct canon_cursor put_value(struct canon *c, struct canon_cursor k)
{
    switch (*k.at) {
    case '"':
        return put_string(c, k);
    case '{':
        return open_container(c, k, true);
    case '[':
        return open_container(c, k, false);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return canon_number_text(c, k);
    case 't':
        return put_word(c, k, "true", 4);
    case 'f':
        return put_word(c, k, "false", 5);
    case 'n':
        return put_word(c, k, "null", 4);
    case 0:
        return bad(c, k.at, "a raw NUL byte is not JSON");
    default:
        return bad(c, k.at, "a value is expected");
    }
}

/* Behind a value: closes what ends here; after a comma, stands before the next value. At the end of
 * the document depth is 0. */
static inline struct canon_cursor after_value(struct canon *c, struct canon_cursor k)
{
    while (c->depth != 0) {
        struct canon_frame *f = &c->frames[c->depth - 1];
        k.at = scan_space(k.at, c->end);
        char next = k.at == c->end ? '\0' : *k.at;
        if (f->object) {
            c->members[c->member_count - 1].end = written(c, k.op);
        }
        if (next == ',') {
            *k.op++ = ',';
            k.at++;
            f->index++;
            return f->object ? put_name(c, k) : k;
        }
        if (next != (f->object ? '}' : ']')) {
            return bad_between(c, k.at,
                               f->object ? "a comma or a closing brace is expected"
                                         : "a comma or a closing bracket is expected");
        }
        if (f->object) {
            if (!f->sorted && canon_sort_members(c, k.op) != 0) {
                return (struct canon_cursor){.at = k.at, .op = NULL};
            }
            c->member_count = f->first_member;
        }
        *k.op++ = next;
        k.at++;
        c->depth--;
    }
    return k;
}

static struct canon_cursor put_document(struct canon *c, struct canon_cursor k)
{
    do {
        k.at = scan_space(k.at, c->end);
        if (k.at == c->end) {
            return bad(c, k.at, "a value is expected");
        }
        bool opening = *k.at == '{' || *k.at == '[';
        k = put_value(c, k);
        if (k.op == NULL) {
            return k;
        }
        if (opening && k.op[-1] != '}' && k.op[-1] != ']') {
            continue; /* inside of it now, before its first value */
        }
        k = after_value(c, k);
    } while (k.op != NULL && c->depth != 0);
    if (k.op == NULL) {
        return k;
    }
    k.at = scan_space(k.at, c->end);
    if (k.at != c->end) {
        return bad(c, k.at,
                   *k.at == '\0' ? "a raw NUL byte follows the value"
                                 : "only white space may follow the value");
    }
    return k;
}

/* Words for what editors put before the text; NULL when there is nothing of the kind. */
static const char *byte_order_mark(struct slice in)
{
    if (slice_starts(in, SLICE("\xEF\xBB\xBF"))) {
        return "the text begins with a byte order mark; send UTF-8 without one";
    }
    if (slice_starts(in, SLICE("\xFF\xFE")) || slice_starts(in, SLICE("\xFE\xFF"))) {
        return "the text begins with a UTF-16 byte order mark; send UTF-8";
    }
    return NULL;
}

/* Large documents are rare: their scratch is not kept. */
static void trim(struct canon *c)
{
    if (c->member_cap * sizeof *c->members > KEEP_MAX) {
        free(c->members);
        c->members = NULL;
        c->member_cap = 0;
    }
    if (c->order_cap * sizeof *c->order > KEEP_MAX) {
        free(c->order);
        c->order = NULL;
        c->order_cap = 0;
    }
    if (c->scratch.cap > KEEP_MAX) {
        buf_free(&c->scratch);
    }
    if (c->spill.cap > KEEP_MAX) {
        buf_free(&c->spill);
    }
    buf_clear(&c->scratch);
    buf_clear(&c->spill);
}

static int run(struct canon *c, struct slice in)
{
    if (in.len > INPUT_MAX) {
        canon_fail(c, ERR_NO_MEMORY, in.ptr, "the document is too large");
        return c->code;
    }
    const char *mark = byte_order_mark(in);
    if (mark != NULL) {
        bad(c, in.ptr, mark);
        return c->code;
    }
    struct canon_cursor k = canon_room(c, (struct canon_cursor){.at = in.ptr, .op = NULL});
    if (k.op != NULL) {
        k = put_document(c, k);
    }
    if (k.op == NULL) {
        ensure(c->code != 0);
        return c->code;
    }
    size_t len = written(c, k.op);
    ensure(k.op <= c->room_end);
    if (c->target == c->out) {
        c->out->len = c->out_start + len;
        return 0;
    }
    buf_put(c->out, c->base, len);
    if (c->out->failed) {
        canon_fail(c, ERR_NO_MEMORY, c->end, "the canonical form is too large");
    }
    return c->code;
}

int canon_json(struct canon *c, struct slice in, struct buf *out, struct canon_error *e)
{
    static const char nothing[1];
    if (in.len == 0) {
        in.ptr = nothing;
    }
    c->in = in.ptr;
    c->end = in.ptr + in.len;
    c->base = NULL;
    c->out = out;
    c->target = out;
    c->out_start = out->len;
    c->out_failed = out->failed;
    c->base_offset = out->len;
    c->member_count = 0;
    c->depth = 0;
    c->deepest = 0;
    c->code = 0;
    c->fault_in_container = false;
    c->fault_is_name = false;
    int r = run(c, in);
    if (r != 0) {
        out->len = c->out_start;
        out->failed = c->out_failed;
        if (e != NULL) {
            canon_explain(c, e);
        }
    }
    trim(c);
    return r;
}

uint32_t canon_deepest(const struct canon *c)
{
    return c->deepest;
}
