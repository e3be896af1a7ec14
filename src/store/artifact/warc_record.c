/* warc_record: a state machine over bytes; the block is passed over in one step.
 *
 * Invariants: a record ends in one place only (the trailer's last byte); every error is sticky.
 * Content-Length is recognised while the name is read, by comparing with its bytes in lower case,
 * so that no line is ever held.
 *
 * Power failure: nothing is kept. Answers: every deviation, with its offset. Aborts: none. */
#include "store/artifact/warc_record.h"

#include <string.h>

#include "base/ensure.h"

static const char length_name[] = "content-length";
static const char trailer[] = "\r\n\r\n";
#define VERSION_BYTES 10 /* WARC/1.x CRLF */

void warc_record_start(struct warc_record *w)
{
    memset(w, 0, sizeof *w);
    w->part = WARC_VERSION;
}

bool warc_record_between(const struct warc_record *w)
{
    return w->part == WARC_VERSION && w->at == 0;
}

static int bad(struct warc_record *w, struct err *e, const char *what)
{
    w->part = WARC_BAD;
    err_set(e, ERR_CORRUPT, "record %llu: %s", (unsigned long long)w->records + 1, what);
    e->has_offset = true;
    e->offset = w->offset;
    return ERR_CORRUPT;
}

static bool blank(unsigned char c)
{
    return c == ' ' || c == '\t';
}

static int take_version(struct warc_record *w, unsigned char c, struct err *e)
{
    static const char version[VERSION_BYTES + 1] = "WARC/1.0\r\n";

    ensure(w->at < VERSION_BYTES);
    /* The one place where two versions differ. */
    if (w->at == 7 ? c != '0' && c != '1' : c != (unsigned char)version[w->at]) {
        return bad(w, e, "it does not begin with WARC/1.0 or WARC/1.1 and CRLF");
    }
    w->at++;
    if (w->at == VERSION_BYTES) {
        w->at = 0;
        w->part = WARC_LINE_START;
        w->header_bytes = 0;
        w->fields = 0;
        w->block_left = 0;
        w->length_known = false;
    }
    return 0;
}

static int begin_value(struct warc_record *w, struct err *e)
{
    bool is_length = w->length_name && w->name == sizeof length_name - 1;

    if (w->name == 0 || w->blank_name) {
        return bad(w, e, "a header's name is empty, or has a blank beside it");
    }
    if (is_length && w->length_known) {
        return bad(w, e, "there are two Content-Length");
    }
    w->part = WARC_VALUE;
    w->length_name = is_length;
    w->length_known = w->length_known || is_length;
    w->length_digits = false;
    w->length_over = false;
    w->fields++;
    return 0;
}

static int take_name(struct warc_record *w, unsigned char c, struct err *e)
{
    unsigned char lower = c >= 'A' && c <= 'Z' ? (unsigned char)(c + ('a' - 'A')) : c;

    if (c == ':') {
        return begin_value(w, e);
    }
    if (c == '\r' || c == '\n') {
        return bad(w, e, "a header line has no colon");
    }
    w->blank_name = blank(c);
    w->length_name = w->length_name && w->name < sizeof length_name - 1 &&
                     lower == (unsigned char)length_name[w->name];
    w->name++;
    return 0;
}

/* A byte of Content-Length's value: blanks, digits, blanks. */
static int take_length(struct warc_record *w, unsigned char c, struct err *e)
{
    if (blank(c)) {
        w->length_over = w->length_digits;
        return 0;
    }
    if (c < '0' || c > '9' || w->length_over) {
        return bad(w, e, "Content-Length is not one number");
    }
    unsigned digit = (unsigned)(c - '0');
    if (w->block_left > ((uint64_t)INT64_MAX - digit) / 10) {
        return bad(w, e, "Content-Length is 2^63 or more");
    }
    w->block_left = w->block_left * 10 + digit;
    w->length_digits = true;
    return 0;
}

static int take_value(struct warc_record *w, unsigned char c, struct err *e)
{
    if (c == '\n') {
        return bad(w, e, "a header line ends without CR");
    }
    if (c == '\r') {
        w->part = WARC_LINE_FEED;
        return 0;
    }
    return w->length_name ? take_length(w, c, e) : 0;
}

static int take_line_start(struct warc_record *w, unsigned char c, struct err *e)
{
    /* Whether the line before goes on is known only here; a number does not go on. */
    if (blank(c)) {
        if (w->fields == 0) {
            return bad(w, e, "its first header line begins with a blank");
        }
        w->part = WARC_VALUE;
        return w->length_name ? take_length(w, c, e) : 0;
    }
    if (w->fields > 0 && w->length_name && !w->length_digits) {
        return bad(w, e, "Content-Length is not one number");
    }
    w->line_bytes = 1;
    w->length_name = true; /* until a byte differs */
    w->blank_name = false;
    w->name = 0;
    if (c == '\r') {
        w->length_name = false;
        w->part = WARC_HEADERS_END;
        return 0;
    }
    w->part = WARC_NAME;
    return take_name(w, c, e);
}

static int take_headers_end(struct warc_record *w, unsigned char c, struct err *e)
{
    if (c != '\n') {
        return bad(w, e, "a CR stands alone");
    }
    if (!w->length_known) {
        return bad(w, e, "it has no Content-Length");
    }
    w->part = w->block_left > 0 ? WARC_BLOCK : WARC_TRAILER;
    w->at = 0;
    return 0;
}

static int take_trailer(struct warc_record *w, unsigned char c, struct err *e)
{
    ensure(w->at < sizeof trailer - 1);
    if (c != (unsigned char)trailer[w->at]) {
        return bad(w, e, "its block is not followed by CRLF CRLF");
    }
    w->at++;
    if (w->at == sizeof trailer - 1) {
        w->at = 0;
        w->part = WARC_VERSION;
        w->records++;
    }
    return 0;
}

static int take_byte(struct warc_record *w, unsigned char c, struct err *e)
{
    if (w->part == WARC_NAME || w->part == WARC_VALUE || w->part == WARC_LINE_FEED ||
        w->part == WARC_LINE_START) {
        w->line_bytes++;
        w->header_bytes++;
        if (w->line_bytes > WARC_LINE_MAX || w->header_bytes > WARC_HEADERS_MAX) {
            return bad(w, e, "its header lines are too long");
        }
    }
    switch (w->part) {
    case WARC_VERSION:
        return take_version(w, c, e);
    case WARC_LINE_START:
        return take_line_start(w, c, e);
    case WARC_NAME:
        return take_name(w, c, e);
    case WARC_VALUE:
        return take_value(w, c, e);
    case WARC_LINE_FEED:
        if (c != '\n') {
            return bad(w, e, "a CR stands alone");
        }
        w->part = WARC_LINE_START;
        return 0;
    case WARC_HEADERS_END:
        return take_headers_end(w, c, e);
    case WARC_TRAILER:
        return take_trailer(w, c, e);
    case WARC_BLOCK:
    case WARC_BAD:
        break;
    }
    return bad(w, e, "it was refused before");
}

int warc_record_take(struct warc_record *w, const void *p, size_t n, size_t *taken, struct err *e)
{
    const unsigned char *bytes = p;
    uint64_t records = w->records;
    size_t i = 0;
    int r = w->part == WARC_BAD ? bad(w, e, "it was refused before") : 0;

    while (r == 0 && i < n && w->records == records) {
        size_t step = 1;
        if (w->part == WARC_BLOCK) {
            step = w->block_left < n - i ? (size_t)w->block_left : n - i;
            w->block_left -= step;
            w->part = w->block_left > 0 ? WARC_BLOCK : WARC_TRAILER;
        } else {
            r = take_byte(w, bytes[i], e);
        }
        i += step;
        w->offset += step;
    }
    *taken = i;
    return r;
}
