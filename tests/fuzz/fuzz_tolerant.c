/* fuzz_tolerant: json_tolerant_check, json_flaws and json_mend on any bytes, and the walkers of
 * read.h on what passed.
 *
 * Broken is: disagreement with canon (which takes exactly the texts without flaws, \u0000 aside,
 * of the same depth); an error position outside of the input; a walker that calls passed text bad
 * or gives text that is no UTF-8; a mended text that has flaws JSON forbids, that changes when
 * mended again, or that canon refuses without a number being to blame; and whatever the sanitizers
 * find. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon.h"
#include "json/read.h"
#include "json/tolerant.h"
#include "json/write.h"

/* So many digits in a row that an integer of them may be one of those which json_mend puts into
 * quotes although a double has the same spelling (18446744073709552000), so it is no flaw. */
static bool has_long_number(struct slice text)
{
    size_t run = 0;
    for (size_t i = 0; i < text.len; i++) {
        run = text.ptr[i] >= '0' && text.ptr[i] <= '9' ? run + 1 : 0;
        if (run >= 19) {
            return true;
        }
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unescape(struct slice inner, struct buf *scratch)
{
    buf_clear(scratch);
    json_unescape(inner, scratch);
    ensure(utf8_valid(buf_slice(scratch), NULL));
    ensure(scratch->len == json_string_len(inner));
    ensure(json_string_is(inner, buf_slice(scratch)));
}

static void walk(struct slice v, int left, struct buf *scratch)
{
    struct slice name;
    struct slice value;
    struct json_iter it;
    enum json_type type = json_type_of(v);
    ensure(type != JSON_BAD);
    if (type == JSON_STRING) {
        bool whole = json_string_raw(v, &value);
        ensure(whole);
        unescape(value, scratch);
    } else if (type == JSON_OBJECT) {
        it = json_iter_object(v);
        while (json_next_member(&it, &name, &value)) {
            unescape(name, scratch);
            struct slice found;
            bool there = json_member(v, buf_slice(scratch), &found);
            ensure(there);
            if (left > 0) {
                walk(value, left - 1, scratch);
            }
        }
        ensure(!it.bad);
    } else if (type == JSON_ARRAY) {
        it = json_iter_array(v);
        while (json_next_element(&it, &value)) {
            if (left > 0) {
                walk(value, left - 1, scratch);
            }
        }
        ensure(!it.bad);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct canon *canon;
    static struct buf once, twice, form, scratch;
    if (canon == NULL) {
        canon = canon_new();
    }
    struct slice in = slice_of(data, size);
    struct slice value;
    struct err e = {0};
    unsigned flaws = 0;
    unsigned allowed = JSON_FLAW_NUL | JSON_FLAW_NUMBER;
    buf_clear(&once);
    buf_clear(&twice);
    buf_clear(&form);
    int r = json_tolerant_check(in, &value, &e);
    if (r != 0) {
        ensure(r == ERR_INVALID_JSON || r == ERR_JSON_DEPTH);
        ensure(e.has_offset);
        ensure(e.offset <= size);
        ensure(r == ERR_JSON_DEPTH || canon_json(canon, in, &form, NULL) != 0);
        ensure(json_flaws(in, &flaws, NULL) == r);
        ensure(json_mend(in, &once, NULL) == r);
        ensure(once.len == 0);
        return 0;
    }
    ensure(value.ptr >= in.ptr && value.ptr + value.len <= in.ptr + in.len);
    walk(value, 8, &scratch);
    r = json_flaws(value, &flaws, &e);
    ensure(r == 0);
    r = canon_json(canon, value, &form, NULL);
    ensure((r == 0) == ((flaws & ~(unsigned)JSON_FLAW_NUL) == 0));
    r = json_mend(value, &once, &e);
    ensure(r == 0);
    ensure(flaws != 0 || slice_eq(value, buf_slice(&once)) || has_long_number(value));
    r = json_flaws(buf_slice(&once), &flaws, &e);
    ensure(r == 0);
    ensure((flaws & ~allowed) == 0);
    r = json_mend(buf_slice(&once), &twice, &e);
    ensure(r == 0);
    ensure(slice_eq(buf_slice(&once), buf_slice(&twice)));
    buf_clear(&form);
    r = canon_json(canon, buf_slice(&once), &form, NULL);
    ensure(r == 0 || (flaws & JSON_FLAW_NUMBER) != 0);
    return 0;
}
