/* mend: tolerated text made into JSON that every strict reader takes; see tolerant.h.
 *
 * flaws.c has found what is wrong; text that needs nothing is copied in one piece. Otherwise the
 * text is walked once more and copied in runs, between which the mended bytes are put. A replaced
 * member goes with the comma behind it: a later member has its name, so there always is one.
 *
 * The output can be three times the input (ill-formed bytes: one becomes three; a control: six).
 * Power failure: nothing here is stored. Answers: as flaws_find; ERR_NO_MEMORY when out is full. */
#include "base/ensure.h"
#include "json/flaws.h"
#include "json/scan.h"

struct mend {
    const char *run; /* copied up to here */
    const char *end;
    struct buf *out;
};

/* Copies the run up to `at`, puts `instead` and goes on at `behind`. */
static void put_instead(struct mend *m, const char *at, struct slice instead, const char *behind)
{
    buf_put(m->out, m->run, (size_t)(at - m->run));
    buf_put_slice(m->out, instead);
    m->run = behind;
}

/* From behind an opening quote to behind the closing one. */
static const char *mend_string(struct mend *m, const char *at)
{
    char escape[8];
    const char *behind;
    for (;;) {
        at = scan_plain(at, m->end);
        ensure(at < m->end);
        unsigned char c = (unsigned char)*at;
        if (c == '"') {
            return at + 1;
        }
        if (c == '\\' && at[1] != 'u') {
            at += 2;
            continue;
        }
        if (c == '\\') {
            if ((flaws_unicode(at, m->end, &behind) & JSON_FLAW_SURROGATE) != 0) {
                put_instead(m, at, SLICE("\xEF\xBF\xBD"), behind);
            }
        } else if (c < 0x20) {
            behind = at + 1;
            put_instead(m, at, slice_of(escape, scan_put_escape(escape, c)), behind);
        } else {
            unsigned n = scan_utf8(at, m->end);
            behind = at + (n != 0 ? n : scan_ill_utf8(at, m->end));
            if (n == 0) {
                put_instead(m, at, SLICE("\xEF\xBF\xBD"), behind);
            }
        }
        at = behind;
    }
}

static const char *mend_number(struct mend *m, const char *at)
{
    const char *behind;
    bool too_large;
    (void)flaws_number(at, m->end, &behind, &too_large);
    if (too_large) {
        put_instead(m, at, SLICE("\""), at);
        put_instead(m, behind, SLICE("\""), behind);
    }
    return behind;
}

static const char *skip_string(const char *at, const char *end)
{
    at = scan_quote(at, end);
    while (at < end && *at == '\\') {
        at = scan_quote(at + 2, end);
    }
    ensure(at < end);
    return at + 1;
}

/* From a member's name to the next member's. */
static const char *skip_member(const char *at, const char *end)
{
    size_t depth = 0;
    while (depth != 0 || *at != ',') {
        if (*at == '"') {
            at = skip_string(at + 1, end);
        } else {
            depth += *at == '{' || *at == '[';
            depth -= *at == '}' || *at == ']';
            at++;
        }
        ensure(at < end);
    }
    return scan_space(at + 1, end);
}

/* Copies the value; where members in `dropped` (ascending) begin, goes on behind them. */
static void mend_value(struct mend *m, const char *start, const struct flaws_list *dropped)
{
    const char *at = start;
    size_t next = 0;
    while (at < m->end) {
        if (*at == '"') {
            /* Members inside of a dropped one are behind us. */
            while (next < dropped->len && dropped->ptr[next] < (uint64_t)(at - start)) {
                next++;
            }
            if (next < dropped->len && dropped->ptr[next] == (uint64_t)(at - start)) {
                const char *behind = skip_member(at, m->end);
                put_instead(m, at, SLICE(""), behind);
                at = behind;
            } else {
                at = mend_string(m, at + 1);
            }
        } else if (*at == '-' || scan_is_digit(*at)) {
            at = mend_number(m, at);
        } else {
            at++;
        }
    }
    put_instead(m, at, SLICE(""), at);
}

int json_mend(struct slice value, struct buf *out, struct err *e)
{
    struct flaws f;
    size_t start = out->len;
    int r = flaws_find(&f, value, e);
    if (r == 0) {
        unsigned harmful = ~(unsigned)(JSON_FLAW_NUL | JSON_FLAW_NUMBER);
        if ((f.found & harmful) == 0 && !f.too_large) {
            buf_put_slice(out, f.value);
        } else {
            struct mend m = {.run = f.value.ptr, .end = f.value.ptr + f.value.len, .out = out};
            mend_value(&m, f.value.ptr, &f.dropped);
        }
        if (out->failed) {
            out->len = start;
            r = err_set(e, ERR_NO_MEMORY, "the mended text does not fit");
        }
    }
    flaws_free(&f);
    return r;
}
