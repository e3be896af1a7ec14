/* reply: reading HTTP/1 answers.
 *
 * Interim heads (1xx) are passed over, and a 100 is remembered; 101 was not asked for and is a
 * fault. Lines may end in LF alone. A body is as long as its chunks, its Content-Length, or the
 * connection; 204 and 304 have none. A head that gives two different lengths, or chunks behind
 * another coding, is a fault: where such a body ends is a guess.
 *
 * Memory that is missing makes the answer incomplete (the buffers say failed). */
#include "net/reply.h"

#include "base/ensure.h"

void reply_begin(struct reply *r, struct net_answer *answer, uint64_t body_max)
{
    *answer = (struct net_answer){0};
    buf_init(&answer->head, REPLY_HEAD_MAX);
    *r = (struct reply){.answer = answer, .body_max = body_max};
    buf_init(&r->line, REPLY_HEAD_MAX);
}

void reply_free(struct reply *r)
{
    buf_free(&r->line);
}

static struct slice trimmed(struct slice s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1]) != NULL) {
        s.len--;
    }
    return s;
}

static bool equals(struct slice s, const char *lower)
{
    return s.len == strlen(lower) && strncasecmp(s.ptr, lower, s.len) == 0;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool read_status(struct reply *r, struct slice line)
{
    unsigned v = 0;

    if (!slice_starts(line, SLICE("HTTP/1.")) || line.len < 12 || line.ptr[8] != ' ') {
        return false;
    }
    for (size_t i = 9; i < 12; i++) {
        if (line.ptr[i] < '0' || line.ptr[i] > '9') {
            return false;
        }
        v = v * 10 + (unsigned)(line.ptr[i] - '0');
    }
    r->status = v;
    return v >= 100 && v != 101 && (line.len == 12 || line.ptr[12] == ' ');
}

static bool read_length(struct reply *r, struct slice value)
{
    uint64_t v = 0;

    if (value.len == 0 || value.len > 18) {
        return false;
    }
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(value.ptr[i] - '0');
    }
    if (r->has_length && v != r->left) {
        return false;
    }
    r->has_length = true;
    r->left = v;
    return true;
}

static bool read_field(struct reply *r, struct slice line)
{
    struct buf *head = &r->answer->head;
    const char *colon = memchr(line.ptr, ':', line.len);
    struct slice name;
    struct slice value;

    if (colon == NULL) {
        return true; /* a folded or broken line says nothing that we ask for */
    }
    name = slice_of(line.ptr, (size_t)(colon - line.ptr));
    value = trimmed(slice_of(colon + 1, line.len - name.len - 1));
    if (equals(name, "content-length") && !read_length(r, value)) {
        return false;
    }
    if (equals(name, "transfer-encoding")) {
        if (!equals(value, "chunked")) {
            return false;
        }
        r->chunked = true;
    }
    for (size_t i = 0; i < name.len; i++) {
        buf_put_char(head, lower(name.ptr[i]));
    }
    buf_put_cstr(head, ": ");
    buf_put_slice(head, value);
    buf_put_char(head, '\n');
    return !head->failed;
}

static enum reply_state head_ended(struct reply *r)
{
    if (r->status < 200) {
        r->go_on = r->go_on || r->status == 100;
        buf_clear(&r->answer->head);
        r->chunked = false;
        r->has_length = false;
        return REPLY_AT_STATUS;
    }
    r->answer->status = r->status;
    if (r->status == 204 || r->status == 304) {
        return REPLY_AT_END;
    }
    if (r->chunked) {
        return REPLY_AT_CHUNK_SIZE;
    }
    return r->has_length && r->left == 0 ? REPLY_AT_END : REPLY_AT_BODY;
}

static enum reply_state chunk_size(struct reply *r, struct slice line)
{
    uint64_t v = 0;
    size_t i = 0;

    for (; i < line.len && i < 16; i++) {
        char c = lower(line.ptr[i]);
        if (c >= '0' && c <= '9') {
            v = v * 16 + (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            v = v * 16 + (uint64_t)(c - 'a') + 10;
        } else {
            break;
        }
    }
    if (i == 0 || i == 16 || (i < line.len && line.ptr[i] != ';' && line.ptr[i] != ' ')) {
        return REPLY_AT_FAULT;
    }
    r->left = v;
    return v == 0 ? REPLY_AT_TRAILER : REPLY_AT_CHUNK;
}

static enum reply_state take_line(struct reply *r, struct slice line)
{
    switch (r->state) {
    case REPLY_AT_STATUS:
        return read_status(r, line) ? REPLY_AT_FIELD : REPLY_AT_FAULT;
    case REPLY_AT_FIELD:
        if (line.len == 0) {
            return head_ended(r);
        }
        return read_field(r, line) ? REPLY_AT_FIELD : REPLY_AT_FAULT;
    case REPLY_AT_CHUNK_SIZE:
        return chunk_size(r, line);
    case REPLY_AT_CHUNK_END:
        return line.len == 0 ? REPLY_AT_CHUNK_SIZE : REPLY_AT_FAULT;
    case REPLY_AT_TRAILER:
        return line.len == 0 ? REPLY_AT_END : REPLY_AT_TRAILER;
    case REPLY_AT_BODY:
    case REPLY_AT_CHUNK:
    case REPLY_AT_END:
    case REPLY_AT_FAULT:
        break;
    }
    ensure(false);
    return REPLY_AT_FAULT;
}

/* Takes bytes up to the end of a line. */
static size_t feed_line(struct reply *r, struct slice bytes)
{
    const char *end = memchr(bytes.ptr, '\n', bytes.len);
    size_t n = end == NULL ? bytes.len : (size_t)(end - bytes.ptr) + 1;
    struct slice line;

    buf_put(&r->line, bytes.ptr, n);
    r->head_bytes += n;
    if (r->line.failed || r->head_bytes > REPLY_HEAD_MAX) {
        r->state = REPLY_AT_FAULT;
        return n;
    }
    if (end != NULL) {
        line = slice_of(r->line.ptr, r->line.len - 1);
        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
        }
        r->state = take_line(r, line);
        buf_clear(&r->line);
    }
    return n;
}

static bool in_chunks(const struct reply *r)
{
    return r->state == REPLY_AT_CHUNK;
}

/* Takes bytes of the body; *full: there is no more room. */
static size_t feed_body(struct reply *r, struct slice bytes, bool *full)
{
    struct buf *body = &r->answer->body;
    bool measured = in_chunks(r) || r->has_length;
    size_t n = measured && r->left < bytes.len ? (size_t)r->left : bytes.len;
    size_t room = r->body_max - body->len < n ? (size_t)(r->body_max - body->len) : n;

    buf_put(body, bytes.ptr, room);
    if (room < n || body->failed) {
        *full = true;
        return n;
    }
    r->head_bytes = 0; /* chunk lines are bounded one by one */
    if (measured) {
        r->left -= n;
        if (r->left == 0) {
            r->state = in_chunks(r) ? REPLY_AT_CHUNK_END : REPLY_AT_END;
        }
    }
    return n;
}

enum reply_step reply_feed(struct reply *r, struct slice bytes)
{
    bool full = false;

    while (bytes.len > 0 && !full && r->state != REPLY_AT_END && r->state != REPLY_AT_FAULT) {
        size_t n = r->state == REPLY_AT_BODY || in_chunks(r) ? feed_body(r, bytes, &full)
                                                             : feed_line(r, bytes);
        ensure(n > 0);
        bytes = slice_from(bytes, n);
    }
    if (r->state == REPLY_AT_END) {
        r->answer->complete = !full;
        return REPLY_DONE;
    }
    if (r->state == REPLY_AT_FAULT) {
        return r->answer->status != 0 ? REPLY_DONE : REPLY_BAD;
    }
    return full ? REPLY_DONE : REPLY_MORE;
}

enum reply_step reply_end(struct reply *r)
{
    if (r->answer->status == 0) {
        return REPLY_BAD;
    }
    if (r->state == REPLY_AT_BODY && !r->has_length) {
        r->answer->complete = true;
    }
    return REPLY_DONE;
}
