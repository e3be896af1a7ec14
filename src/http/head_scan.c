/* head_scan: where a request head ends. CR LF and nothing else ends a line, no line is folded, no
 * control byte but TAB is anywhere, and the limits hold: all of it whatever part of the head has
 * arrived. Text is looked through sixteen bytes at a time, everything else byte by byte.
 *
 * Everything here is an answer to a client; nothing stops the server. */
#include <stdint.h>
#include <string.h>

#include "base/ensure.h"
#include "http/head.h"

#define WIDE 16u

typedef unsigned char wide __attribute__((vector_size(WIDE)));

static bool is_text(unsigned char c)
{
    return (c >= 0x20 && c != 0x7f) || c == '\t';
}

/* Where the text that goes on at `at` ends, at most `stop`. */
static size_t skip_text(const char *p, size_t at, size_t stop)
{
    while (stop - at >= WIDE) {
        wide c;
        uint64_t half[2];

        memcpy(&c, p + at, sizeof c);
        c = (wide)((c < 0x20) & (c != '\t')) | (wide)(c == 0x7f);
        memcpy(half, &c, sizeof half);
        if ((half[0] | half[1]) != 0) {
            break;
        }
        at += WIDE;
    }
    while (at < stop && is_text((unsigned char)p[at])) {
        at++;
    }
    return at;
}

/* The limits do not have to be looked at in front of this byte. */
static size_t free_until(const struct http_head_scan *s, const struct http_head_limits *limits,
                         size_t n)
{
    size_t stop = n < limits->head_bytes_max - 1 ? n : limits->head_bytes_max - 1;
    size_t line_max = limits->target_bytes_max + HTTP_REQUEST_LINE_REST;

    return s->lines == 0 && line_max < stop ? line_max : stop;
}

int64_t http_head_scan(struct http_head_scan *s, const struct http_head_limits *limits,
                       const char *p, size_t n)
{
    size_t i = s->pos;

    ensure(i <= n);
    while (i < n) {
        /* The limits come first, byte by byte, so that the verdict does not depend on how much of
         * the head arrived at once. */
        if (i + 2 > limits->head_bytes_max) {
            return ERR_HEADERS_TOO_LARGE;
        }
        if (s->lines == 0 && i >= limits->target_bytes_max + HTTP_REQUEST_LINE_REST &&
            p[i] != '\r') {
            return ERR_URI_TOO_LONG;
        }
        if (is_text((unsigned char)p[i])) {
            bool folded = i == s->line_start && (p[i] == ' ' || p[i] == '\t');

            if (folded) {
                return ERR_BAD_REQUEST;
            }
            i++;
            if (i < free_until(s, limits, n)) {
                i = skip_text(p, i, free_until(s, limits, n));
            }
            continue;
        }
        if (p[i] != '\r') {
            return ERR_BAD_REQUEST;
        }
        if (i + 1 == n) {
            break;
        }
        if (p[i + 1] != '\n') {
            return ERR_BAD_REQUEST;
        }
        if (i == s->line_start) {
            return s->lines == 0 ? ERR_BAD_REQUEST : (int64_t)(i + 2);
        }
        s->lines++;
        if (s->lines > limits->fields_max + 1) {
            return ERR_HEADERS_TOO_LARGE;
        }
        i += 2;
        s->line_start = i;
    }
    s->pos = i;
    return 0;
}
