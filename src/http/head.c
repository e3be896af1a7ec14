/* head: finding and checking a request head (RFC 9110, RFC 9112).
 *
 * libhttp-parser takes the head apart; Debian's build of it is lenient, so everything that two
 * implementations could read differently is refused here, before or after it:
 *
 *   - the end of the head is found by us, line by line: CR LF and nothing else ends a line, no line
 *     is folded, no control byte but TAB is anywhere (head_scan.c);
 *   - the method is read by us and the parser is always told "GET": its table of methods, and what
 *     it does for some of them (CONNECT, the ICE protocol of SOURCE), stay out of the way;
 *   - method, target and version must fill the request line exactly, with one space between;
 *   - field names are tokens, so no white space before a colon;
 *   - one Host (needed in 1.1), one Content-Length of digits that fits 63 bits, one
 * Transfer-Encoding that says `chunked`, never the last two together, none of the latter in 1.0.
 *
 * Upgrade is ignored. The parser never sees a byte of a body.
 *
 * Everything here is an answer to a client; nothing stops the server. */
#include "http/head.h"

#include <http_parser.h>

#include "base/ensure.h"

/* ---- libhttp-parser ---- */

struct take {
    struct http_head *h;
    unsigned cap;
    struct slice target;
};

static int take_target(http_parser *parser, const char *at, size_t n)
{
    struct take *t = parser->data;

    t->target = slice_of(at, n);
    return 0;
}

static int take_name(http_parser *parser, const char *at, size_t n)
{
    struct take *t = parser->data;

    ensure(t->h->field_count < t->cap); /* the scan has counted the lines */
    t->h->fields[t->h->field_count] = (struct http_field){.name = slice_of(at, n)};
    t->h->field_count++;
    return 0;
}

static int take_value(http_parser *parser, const char *at, size_t n)
{
    struct take *t = parser->data;

    ensure(t->h->field_count != 0);
    while (n != 0 && (at[n - 1] == ' ' || at[n - 1] == '\t')) {
        n--;
    }
    t->h->fields[t->h->field_count - 1].value = slice_of(at, n);
    return 0;
}

static int take_end(http_parser *parser)
{
    parser->upgrade = 0;
    return 0;
}

/* Lets the parser split everything behind the method. */
static int split(struct take *t, http_parser *parser, const char *p, size_t n)
{
    static const struct http_parser_settings settings = {
        .on_url = take_target,
        .on_header_field = take_name,
        .on_header_value = take_value,
        .on_headers_complete = take_end,
    };
    enum http_errno code;

    http_parser_init(parser, HTTP_REQUEST);
    parser->data = t;
    ensure(http_parser_execute(parser, &settings, "GET", 3) == 3);
    if (http_parser_execute(parser, &settings, p, n) == n && HTTP_PARSER_ERRNO(parser) == HPE_OK) {
        return 0;
    }
    code = HTTP_PARSER_ERRNO(parser);
    return code == HPE_INVALID_TRANSFER_ENCODING ? ERR_NOT_IMPLEMENTED : ERR_BAD_REQUEST;
}

/* ---- the request line ---- */

static bool host_is_clean(struct slice host)
{
    static const char also[] = "-._~%!$&'()*+,;=:[]";

    for (size_t i = 0; i < host.len; i++) {
        char c = host.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');

        if (!plain && (c == '\0' || strchr(also, c) == NULL)) {
            return false;
        }
    }
    return true;
}

static bool equal_fold_slices(struct slice a, struct slice b)
{
    if (a.len != b.len) {
        return false;
    }
    for (size_t i = 0; i < a.len; i++) {
        unsigned char x = (unsigned char)a.ptr[i];
        unsigned char y = (unsigned char)b.ptr[i];

        x = x >= 'A' && x <= 'Z' ? (unsigned char)(x + 32) : x;
        y = y >= 'A' && y <= 'Z' ? (unsigned char)(y + 32) : y;
        if (x != y) {
            return false;
        }
    }
    return true;
}

/* http://HOST/PATH is taken for PATH. HOST must be what Host says: with both there, a difference
 * is somebody's attempt to be read in two ways. */
static int absolute_form(struct http_head *h, struct slice *target)
{
    static const char scheme[] = "http://";
    size_t start = sizeof scheme - 1;
    size_t end = start;
    struct slice authority;

    if (target->len < start || !http_equal_fold(slice_of(target->ptr, start), scheme)) {
        return ERR_BAD_REQUEST;
    }
    while (end < target->len && target->ptr[end] != '/' && target->ptr[end] != '?') {
        end++;
    }
    authority = slice_of(target->ptr + start, end - start);
    if (authority.len == 0 || !h->has_host || !equal_fold_slices(authority, h->host)) {
        return ERR_BAD_REQUEST;
    }
    *target = slice_from(*target, end);
    return 0;
}

static int check_target(struct http_head *h, struct slice target,
                        const struct http_head_limits *limits)
{
    const char *mark;
    int got;

    if (target.len > limits->target_bytes_max) {
        return ERR_URI_TOO_LONG;
    }
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)target.ptr[i];

        if (c <= 0x20 || c >= 0x7f || c == '#') {
            return ERR_BAD_REQUEST;
        }
    }
    if (slice_eq(target, SLICE("*"))) {
        if (!slice_eq(h->method, SLICE("OPTIONS"))) {
            return ERR_BAD_REQUEST;
        }
    } else if (target.ptr[0] != '/') {
        got = absolute_form(h, &target);
        if (got != 0) {
            return got;
        }
    }
    mark = target.len == 0 ? NULL : memchr(target.ptr, '?', target.len);
    h->path = target;
    if (mark != NULL) {
        size_t path_len = (size_t)(mark - target.ptr);

        h->path.len = path_len;
        h->query = slice_from(target, path_len + 1);
        h->has_query = true;
    }
    if (h->path.len == 0) {
        h->path = SLICE("/");
    }
    return 0;
}

/* ---- the fields that matter here ---- */

static int take_length(struct http_head *h, struct slice value)
{
    uint64_t length = 0;

    /* 18 digits stay below 2^63: no sum of a length and a position can overflow. */
    if (h->has_length || value.len == 0 || value.len > 18) {
        return ERR_BAD_REQUEST;
    }
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9') {
            return ERR_BAD_REQUEST;
        }
        length = length * 10 + (uint64_t)(value.ptr[i] - '0');
    }
    h->has_length = true;
    h->length = length;
    return 0;
}

struct connection_wants {
    bool close;
    bool keep_alive;
};

static int take_connection(struct connection_wants *wants, struct slice value)
{
    size_t i = 0;

    while (i < value.len) {
        size_t start;
        size_t end;

        while (i < value.len &&
               (value.ptr[i] == ' ' || value.ptr[i] == '\t' || value.ptr[i] == ',')) {
            i++;
        }
        start = i;
        while (i < value.len && value.ptr[i] != ',') {
            i++;
        }
        end = i;
        while (end > start && (value.ptr[end - 1] == ' ' || value.ptr[end - 1] == '\t')) {
            end--;
        }
        if (end > start) {
            struct slice option = slice_of(value.ptr + start, end - start);

            if (!http_is_token(option)) {
                return ERR_BAD_REQUEST;
            }
            wants->close = wants->close || http_equal_fold(option, "close");
            wants->keep_alive = wants->keep_alive || http_equal_fold(option, "keep-alive");
        }
    }
    return 0;
}

struct framing {
    unsigned transfer_encodings;
    struct slice transfer_encoding;
    struct connection_wants wants;
};

static int take_field(struct http_head *h, struct framing *f, const struct http_field *field)
{
    switch (field->name.len) {
    case 4:
        if (slice_eq(field->name, SLICE("host"))) {
            if (h->has_host || !host_is_clean(field->value)) {
                return ERR_BAD_REQUEST;
            }
            h->has_host = true;
            h->host = field->value;
        }
        return 0;
    case 6:
        if (slice_eq(field->name, SLICE("expect"))) {
            bool first = h->expect == HTTP_EXPECT_NONE;

            h->expect = first && http_equal_fold(field->value, "100-continue")
                            ? HTTP_EXPECT_CONTINUE
                            : HTTP_EXPECT_OTHER;
        }
        return 0;
    case 10:
        if (slice_eq(field->name, SLICE("connection"))) {
            return take_connection(&f->wants, field->value);
        }
        return 0;
    case 14:
        if (slice_eq(field->name, SLICE("content-length"))) {
            return take_length(h, field->value);
        }
        return 0;
    case 17:
        if (slice_eq(field->name, SLICE("transfer-encoding"))) {
            f->transfer_encodings++;
            f->transfer_encoding = field->value;
        }
        return 0;
    default:
        return 0;
    }
}

static int check_fields(struct http_head *h)
{
    struct framing f = {0};

    for (unsigned i = 0; i < h->field_count; i++) {
        struct http_field *field = &h->fields[i];
        int got;

        ensure(field->name.len != 0); /* lower_names has seen to it */
        got = take_field(h, &f, field);
        if (got != 0) {
            return got;
        }
    }
    if (!h->has_host && h->version_minor == 1) {
        return ERR_BAD_REQUEST;
    }
    if (f.transfer_encodings != 0) {
        if (f.transfer_encodings > 1 || h->has_length || h->version_minor == 0) {
            return ERR_BAD_REQUEST;
        }
        if (!http_equal_fold(f.transfer_encoding, "chunked")) {
            return ERR_NOT_IMPLEMENTED;
        }
        h->chunked = true;
    }
    if (h->version_minor == 0) {
        h->expect = HTTP_EXPECT_NONE; /* RFC 9110, 10.1.1: 1.0 has no interim answers */
    }
    h->keep_alive = !f.wants.close && (h->version_minor == 1 || f.wants.keep_alive);
    return 0;
}

/* Tabs around a value mean what spaces do, but not to the parser where it reads the value itself.
 */
static void plain_space(char *p, const char *end)
{
    char *last = p + (end - p);

    while (p < last && (*p == ' ' || *p == '\t')) {
        *p = ' ';
        p++;
    }
    while (last > p && (last[-1] == ' ' || last[-1] == '\t')) {
        last--;
        *last = ' ';
    }
}

/* Every line between the first and the last: a token, a colon, text. Lowers the token. */
static bool lower_names(char *p, size_t n, size_t start)
{
    size_t i = start;

    ensure(n >= 2);
    while (i < n - 2) {
        size_t name = i;
        const char *end;

        while (i < n && http_token_lower[(unsigned char)p[i]] != 0) {
            p[i] = http_token_lower[(unsigned char)p[i]];
            i++;
        }
        if (i == name || i == n || p[i] != ':') {
            return false;
        }
        end = memchr(p + i, '\r', n - i);
        ensure(end != NULL);
        plain_space(p + i + 1, end);
        i = (size_t)(end - p) + 2;
    }
    return true;
}

int http_head_parse(struct http_head *h, struct http_field *fields, unsigned fields_cap,
                    const struct http_head_limits *limits, char *p, size_t n)
{
    struct take t = {.h = h, .cap = fields_cap};
    http_parser parser;
    const char *line_end = memchr(p, '\r', n);
    size_t line;
    size_t method = 0;
    int got;

    *h = (struct http_head){.fields = fields};
    ensure(line_end != NULL);
    line = (size_t)(line_end - p);
    while (method < line && http_token_lower[(unsigned char)p[method]] != 0) {
        method++;
    }
    if (method == 0 || method > HTTP_METHOD_BYTES_MAX || method == line || p[method] != ' ') {
        return ERR_BAD_REQUEST;
    }
    h->method = slice_of(p, method);
    if (slice_eq(h->method, SLICE("CONNECT"))) {
        return ERR_NOT_IMPLEMENTED;
    }
    if (!lower_names(p, n, line + 2)) {
        return ERR_BAD_REQUEST;
    }
    got = split(&t, &parser, p + method, n - method);
    if (got != 0) {
        return got;
    }
    /* One space on each side of the target, and a version behind it: no more, no less. */
    if (t.target.len == 0 || method + 1 + t.target.len + 1 + HTTP_VERSION_BYTES != line) {
        return ERR_BAD_REQUEST;
    }
    if (parser.http_major != 1 || parser.http_minor > 1) {
        return ERR_VERSION_NOT_SUPPORTED;
    }
    h->version_minor = parser.http_minor;
    got = check_fields(h);
    return got != 0 ? got : check_target(h, t.target, limits);
}
