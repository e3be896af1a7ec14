/* What the tests of segment_parse and native_parse share: a batch as parse.c makes it, without a
 * request or a store. The body lives in memory of its exact size, so that a sanitizer sees a read
 * beside it. */
#ifndef TESTS_UNIT_DOOR_EVENTS_KIT_H
#define TESTS_UNIT_DOOR_EVENTS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "door/capture/identity.h"
#include "door/capture/internal.h"
#include "door/capture/times.h"
#include "json/tolerant.h"
#include "json/write.h"

#define NOW    "2026-11-30T12:00:00.000Z"
#define NOW_MS INT64_C(1796040000000)
#define MIB    ((uint64_t)1 << 20)

struct fixture {
    struct capture c;
    struct capture_batch b;
    capture_parse_fn *parse;
    enum capture_dialect dialect;
    char *body;
    struct err e;
};

static inline void forget(struct fixture *f)
{
    arena_free(&f->b.arena);
    free(f->b.event);
    free(f->body);
    f->b = (struct capture_batch){0};
    f->body = NULL;
}

static inline int setup_with(void **state, capture_parse_fn *parse, enum capture_dialect dialect)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    if (f == NULL) {
        return -1;
    }
    f->parse = parse;
    f->dialect = dialect;
    f->c.options = (struct capture_options){
        .decoded_bytes_max = 64 * MIB, .event_bytes_max = MIB, .batch_events_max = 50000};
    return 0;
}

static inline int teardown(void **state)
{
    forget(*state);
    free(*state);
    return 0;
}

static inline void check_column(struct slice s)
{
    assert_true(utf8_valid(s, NULL));
    assert_true(s.len == 0 || memchr(s.ptr, '\0', s.len) == NULL);
}

/* What holds for every event of a parsed batch. */
static inline void check_event(const struct fixture *f, const struct capture_event *ev)
{
    const struct queue_event *q = &ev->ev;
    assert_true(q->text.ptr >= f->body);
    assert_true(q->text.len > 0);
    if (ev->outcome == CAPTURE_REJECTED) {
        assert_non_null(ev->reason);
        assert_true(strlen(ev->reason) > 0);
        return;
    }
    assert_int_equal(ev->outcome, CAPTURE_STORED);
    assert_null(ev->reason);
    const struct slice columns[] = {q->time_note,    q->type,           q->event,  q->distinct_id,
                                    q->anonymous_id, q->session_id,     q->source, q->message_id,
                                    q->library,      q->library_version};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        check_column(columns[i]);
    }
    assert_true(q->type.len > 0);
    assert_true(q->sent_at_ms == 0 || q->has_sent_at);
}

/* Parses as parse.c does, and proves what holds for every body. */
static inline int give(struct fixture *f, const char *call, struct slice body)
{
    struct slice json = {0};
    forget(f);
    f->body = malloc(body.len + 1);
    assert_non_null(f->body);
    memcpy(f->body + 1, body.len == 0 ? "" : body.ptr, body.len);
    f->b.c = &f->c;
    f->b.dialect = f->dialect;
    f->b.call = slice_cstr(call);
    f->b.received_ms = NOW_MS;
    f->e = (struct err){0};
    arena_init(&f->b.arena, body.len * 4 + 65536);
    assert_int_equal(json_tolerant_check(slice_of(f->body + 1, body.len), &json, &f->e), 0);
    int r = f->parse(&f->b, json, &f->e);
    if (r != 0) {
        assert_int_equal(f->e.code, r);
        assert_true(f->e.text[0] != '\0');
        assert_true(utf8_valid(slice_cstr(f->e.text), NULL));
        return r;
    }
    assert_true(f->b.count > 0);
    for (size_t i = 0; i < f->b.count; i++) {
        check_event(f, &f->b.event[i]);
    }
    return 0;
}

static inline void expect_code(struct fixture *f, const char *call, struct slice body, int code,
                               const char *says)
{
    int r = give(f, call, body);
    if (r != code || (r != 0 && strstr(f->e.text, says) == NULL)) {
        fail_msg("%.*s: %s (%s), not %s (...%s...)", (int)body.len, body.ptr, err_name(r),
                 f->e.text, err_name(code), says);
    }
}

static inline void assert_text(struct slice s, const char *want)
{
    if (!slice_eq(s, slice_cstr(want))) {
        fail_msg("got \"%.*s\", not \"%s\"", (int)s.len, s.ptr == NULL ? "" : s.ptr, want);
    }
}

static inline int64_t us_of(const char *text)
{
    int64_t us = 0;
    assert_true(times_parse(slice_cstr(text), &us));
    return us;
}

#endif
