/* clickhouse_verdict: what an answer of ClickHouse means for a batch (spec/clickhouse.md C3, C4).
 *
 * Delivered is what is proven: status 200, no exception header, an empty body, whole by its
 * framing, and a summary that, where there is one, does not speak of fewer rows. (More rows are
 * fine: rows that materialized views made are counted too.) Everything else is one of:
 *
 *   rejected  these rows are refused: codes 321 and 469 and the parse family, with status 400 or
 *             500 and in no other case
 *   retry     certainly not taken
 *   unknown   may have been taken, wholly or not: the same bytes again
 *
 * Texts are ours and name code and status only: an error message of ClickHouse holds values of
 * rows. */
#include <stdio.h>

#include "base/ensure.h"
#include "sink/clickhouse_internal.h"
#include "json/read.h"

enum {
    PREPARE = 1, /* look at the table again before the next send */
    SMALLER = 2, /* fewer rows at a time may pass */
    SLOW = 4     /* wait longer than the first steps of the backoff */
};

#define SLOW_MS 5000

static const struct known {
    int code;
    enum sink_verdict verdict;
    unsigned flags;
    const char *text;
} known[] = {
    /* row faults */
    {321, SINK_REJECTED, 0, "rows refused: a value is out of range"},
    {469, SINK_REJECTED, 0, "rows refused: a constraint is violated"},
    {25, SINK_REJECTED, 0, "rows refused: a quoted text cannot be parsed"},
    {26, SINK_REJECTED, 0, "rows refused: a quoted text cannot be parsed"},
    {27, SINK_REJECTED, 0, "rows refused: input cannot be parsed"},
    {33, SINK_REJECTED, 0, "rows refused: not all data could be read"},
    {117, SINK_REJECTED, 0, "rows refused: a field is unknown or wrong"},
    {376, SINK_REJECTED, 0, "rows refused: a UUID cannot be parsed"},
    /* the table or the schema */
    {60, SINK_RETRY, PREPARE, "blocked: unknown table"},
    {81, SINK_RETRY, PREPARE, "blocked: unknown database"},
    {16, SINK_RETRY, PREPARE, "blocked: the table lacks a column"},
    {47, SINK_RETRY, PREPARE, "blocked: unknown identifier"},
    {62, SINK_RETRY, PREPARE, "blocked: the statement is not understood"},
    {115, SINK_RETRY, PREPARE, "blocked: a setting is unknown"},
    /* rights */
    {192, SINK_RETRY, PREPARE, "refused: unknown user"},
    {193, SINK_RETRY, PREPARE, "refused: wrong password"},
    {194, SINK_RETRY, PREPARE, "refused: a password is required"},
    {497, SINK_RETRY, PREPARE, "refused: the user lacks a right"},
    {516, SINK_RETRY, PREPARE, "refused: authentication failed"},
    {164, SINK_RETRY, PREPARE, "refused: the user may only read"},
    {242, SINK_RETRY, 0, "the table is read-only"},
    /* busy or full */
    {252, SINK_RETRY, SLOW, "too many parts: slowing down"},
    {243, SINK_RETRY, SLOW, "no space"},
    {241, SINK_RETRY, SMALLER, "memory limit reached"},
    {202, SINK_RETRY, 0, "too many queries at once"},
    {439, SINK_RETRY, 0, "no thread to be had"},
    {159, SINK_UNKNOWN, 0, "timed out"},
    {209, SINK_UNKNOWN, 0, "socket timed out"},
    {210, SINK_UNKNOWN, 0, "network error"},
    {319, SINK_UNKNOWN, 0, "outcome of the insert unknown"},
};

static const struct known *find_code(int code)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].code == code) {
            return &known[i];
        }
    }
    return NULL;
}

static bool read_int(struct slice s, int *out)
{
    int v = 0;
    size_t n = 0;
    while (n < s.len && n < 6 && s.ptr[n] >= '0' && s.ptr[n] <= '9') {
        v = v * 10 + (s.ptr[n] - '0');
        n++;
    }
    *out = v;
    return n != 0;
}

int clickhouse_code(const struct net_answer *a)
{
    struct slice v;
    int code;
    struct slice body = buf_slice(&a->body);
    if (net_header(a, "x-clickhouse-exception-code", &v)) {
        return read_int(v, &code) && code != 0 ? code : -1;
    }
    const char *at = body.len == 0 ? NULL : memmem(body.ptr, body.len, "Code: ", 6);
    if (at != NULL && read_int(slice_from(body, (size_t)(at - body.ptr) + 6), &code)) {
        return code;
    }
    return 0;
}

/* A number of X-ClickHouse-Summary, which writes them as strings. False: not there. */
static bool summary_number(struct slice summary, const char *name, uint64_t *out)
{
    struct slice v;
    struct slice inner;
    if (json_type_of(summary) != JSON_OBJECT || !json_member(summary, slice_cstr(name), &v)) {
        return false;
    }
    return json_u64(json_string_raw(v, &inner) ? inner : v, out);
}

static void set(struct sink_result *r, enum sink_verdict verdict, int code, unsigned flags)
{
    r->verdict = verdict;
    r->code = code;
    r->prepare = (flags & PREPARE) != 0;
    r->smaller = (flags & SMALLER) != 0;
    r->retry_ms = (flags & SLOW) != 0 ? SLOW_MS : 0;
}

/* No whole answer came. */
static void judge_failure(int outcome, const struct net_answer *a, const struct err *e,
                          struct sink_result *r)
{
    set(r, a->sent ? SINK_UNKNOWN : SINK_RETRY, 0, a->sent ? 0 : PREPARE);
    if (!a->sent) {
        /* Without libcurl's "after 3 ms": the same trouble has the same text. */
        const char *after = strstr(e->text, " after ");
        int n = after == NULL ? 170 : (int)(after - e->text);
        (void)snprintf(r->text, sizeof r->text, "cannot connect: %.*s", n < 170 ? n : 170, e->text);
    } else if (outcome == ERR_REFUSED || outcome == ERR_NO_MEMORY) {
        (void)snprintf(r->text, sizeof r->text, "left without an answer: %.160s", e->text);
    } else {
        (void)snprintf(r->text, sizeof r->text, "no whole answer (status %u): %.150s", a->status,
                       e->text);
    }
}

static void judge_code(const struct net_answer *a, int code, struct sink_result *r)
{
    const struct known *k = find_code(code);
    bool clear = a->status == 400 || a->status == 500;
    if (a->status == 200) {
        set(r, SINK_UNKNOWN, code, 0);
        (void)snprintf(r->text, sizeof r->text, "status 200 with exception %d", code);
    } else if (k != NULL && (k->verdict != SINK_REJECTED || clear)) {
        set(r, k->verdict, code, k->flags);
        (void)snprintf(r->text, sizeof r->text, "%s (code %d, status %u)", k->text, code,
                       a->status);
    } else {
        set(r, a->status < 500 ? SINK_RETRY : SINK_UNKNOWN, code, 0);
        (void)snprintf(r->text, sizeof r->text, "refused (code %d, status %u)", code, a->status);
    }
}

/* An error that is not ClickHouse's own: a proxy's, or a server of another kind. */
static void judge_status(const struct net_answer *a, struct sink_result *r)
{
    const char *what = "unexpected answer";
    unsigned flags = 0;
    enum sink_verdict verdict = a->status >= 500 ? SINK_UNKNOWN : SINK_RETRY;
    switch (a->status) {
    case 401:
    case 403:
        what = "refused: authentication failed";
        flags = PREPARE;
        break;
    case 404:
        what = "blocked: not found";
        flags = PREPARE;
        break;
    case 413:
        what = "the request is too large for the far side";
        flags = SMALLER;
        break;
    case 429:
        what = "asked to slow down";
        flags = SLOW;
        break;
    case 503:
        what = "unavailable";
        break;
    default:
        if (a->status >= 300 && a->status < 400) {
            what = "redirects are not followed";
        }
        break;
    }
    set(r, verdict, 0, flags);
    (void)snprintf(r->text, sizeof r->text, "%s (status %u)", what, a->status);
}

void clickhouse_judge(int outcome, const struct net_answer *a, const struct err *e, size_t count,
                      struct sink_result *r)
{
    struct slice summary;
    uint64_t written = 0;
    *r = (struct sink_result){.verdict = SINK_UNKNOWN};
    if (outcome != 0) {
        judge_failure(outcome, a, e, r);
        return;
    }
    int code = clickhouse_code(a);
    if (code != 0) {
        judge_code(a, code, r);
    } else if (a->status != 200) {
        judge_status(a, r);
    } else if (a->body.len != 0) {
        set(r, SINK_UNKNOWN, 0, 0);
        (void)snprintf(r->text, sizeof r->text, "status 200 with a body where none belongs");
    } else if (!a->complete) {
        set(r, SINK_UNKNOWN, 0, 0);
        (void)snprintf(r->text, sizeof r->text, "the answer is cut");
    } else if (net_header(a, "x-clickhouse-summary", &summary) &&
               summary_number(summary, "written_rows", &written) && written < count) {
        set(r, SINK_UNKNOWN, 0, 0);
        (void)snprintf(r->text, sizeof r->text, "%llu of %zu rows written",
                       (unsigned long long)written, count);
    } else {
        ensure(a->status == 200);
        ensure(a->complete);
        set(r, SINK_DELIVERED, 0, 0);
    }
}
