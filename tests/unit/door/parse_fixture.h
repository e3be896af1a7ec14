/* What the tests of parse_batch share: one parse object for all bodies of a test, and give(), which
 * proves what holds for every body. A body lives in memory of its exact size that is scribbled over
 * and freed when parse_batch has returned, so a batch that borrows from it is seen (cases L17). */
#ifndef TESTS_UNIT_DOOR_PARSE_FIXTURE_H
#define TESTS_UNIT_DOOR_PARSE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "door/history/parse.h"
#include "json/canon.h"
#include "json/read.h"
#include "json/write.h"

#define EVENT      "{\"stream\":\"s\",\"record_key\":\"k\",\"kind\":\"u\",\"payload\":1}"
#define WITH(head) "{" head ",\"batch_id\":\"b\",\"source\":\"src\",\"events\":[" EVENT "]}"
#define OF(events) "{\"batch_id\":\"b\",\"source\":\"src\",\"events\":[" events "]}"
#define ID         "01900000-0000-7000-8000-000000000001"
#define PLENTY     ((size_t)8 << 20)

struct fixture {
    struct parse *p;
    struct journal_batch batch;
    struct buf extra, body;
    struct err e;
};

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->p = parse_new();
    *state = f;
    return f->p == NULL ? -1 : 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    parse_free(f->p);
    buf_free(&f->extra);
    buf_free(&f->body);
    free(f);
    return 0;
}

static inline bool is_object(struct slice inside)
{
    struct canon *c = canon_new();
    struct buf text = {0};
    struct buf out = {0};
    assert_non_null(c);
    buf_put_char(&text, '{');
    buf_put_slice(&text, inside);
    buf_put_char(&text, '}');
    int r = canon_json(c, buf_slice(&text), &out, NULL);
    buf_free(&text);
    buf_free(&out);
    canon_free(c);
    return r == 0;
}

/* Parses, and proves what holds for every body. */
static inline int give(struct fixture *f, struct slice body, size_t max)
{
    char *copy = malloc(body.len + 1); /* one more: malloc(0) may be NULL */
    assert_non_null(copy);
    char *start = copy + 1;
    memcpy(start, body.ptr, body.len);
    f->e = (struct err){0};
    buf_put_cstr(&f->extra, "left from before");
    int r = parse_batch(f->p, slice_of(start, body.len), max, &f->batch, &f->extra, &f->e);
    memset(copy, 0xa5, body.len + 1);
    free(copy);
    if (r == 0) {
        assert_int_equal(f->extra.len, 0);
        assert_true(f->batch.count > 0);
        return r;
    }
    assert_int_equal(f->e.code, r);
    assert_true(f->e.text[0] != '\0');
    assert_true(utf8_valid(slice_cstr(f->e.text), NULL));
    assert_int_equal(f->extra.len > 0, r == ERR_INVALID_EVENTS);
    assert_true(is_object(buf_slice(&f->extra)));
    return r;
}

static inline void assert_text(struct slice s, const char *want)
{
    if (!slice_eq(s, slice_cstr(want))) {
        fail_msg("got %.*s, not %s", (int)s.len, s.ptr, want);
    }
}

static inline void expect_good(struct fixture *f)
{
    assert_int_equal(give(f, SLICE(OF(EVENT)), PLENTY), 0);
    assert_text(f->batch.source, "\"src\"");
    assert_text(f->batch.batch_id, "\"b\"");
    assert_int_equal(f->batch.count, 1);
    assert_text(f->batch.events[0].payload, "1");
    assert_false(f->batch.has_precondition);
}

#endif
