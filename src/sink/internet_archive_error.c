/* internet_archive_error: reading what an error says. The Archive sends small XML (Code, Message,
 * Resource; the useful words are in Resource), at times HTML or nothing. This is no XML reader: it
 * finds three elements, takes their text up to the next tag, and knows the five names and numbers
 * of entities. What it cannot read stays "". Control characters and bytes of broken UTF-8 become
 * '?' and U+FFFD; runs of white space become one blank. */
#include <stdint.h>
#include <stdio.h>

#include "sink/internet_archive_internal.h"
#include "json/write.h"

#define ENTITY_MAX 10

static const struct {
    const char *name;
    char is;
} entities[] = {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};

static bool number(struct slice digits, unsigned base, uint32_t *out)
{
    uint32_t v = 0;

    for (size_t i = 0; i < digits.len; i++) {
        char c = digits.ptr[i];
        unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                            : 99;
        if (d >= base || v > 0x10ffff) {
            return false;
        }
        v = v * base + d;
    }
    *out = v;
    return digits.len > 0;
}

/* The character that `inner` (between & and ;) stands for; '?' for one that is no ASCII. */
static char entity(struct slice inner)
{
    uint32_t v = 0;

    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        if (slice_eq(inner, slice_cstr(entities[i].name))) {
            return entities[i].is;
        }
    }
    if (inner.len > 1 && inner.ptr[0] == '#') {
        bool hex = inner.ptr[1] == 'x' || inner.ptr[1] == 'X';
        if (number(slice_from(inner, hex ? 2 : 1), hex ? 16 : 10, &v) && v < 0x7f) {
            return (char)v;
        }
    }
    return '?';
}

/* Takes one character of the text; returns how many bytes it had. */
static size_t take(struct slice in, char *c)
{
    const char *end;

    *c = in.ptr[0];
    if (*c != '&') {
        return 1;
    }
    end = memchr(in.ptr, ';', in.len < ENTITY_MAX ? in.len : ENTITY_MAX);
    if (end == NULL) {
        return 1;
    }
    *c = entity(slice_of(in.ptr + 1, (size_t)(end - in.ptr) - 1));
    return (size_t)(end - in.ptr) + 1;
}

/* Cuts at the last whole character. */
static void mend_end(char *out, size_t *n)
{
    size_t bad = 0;

    if (!utf8_valid(slice_of(out, *n), &bad)) {
        *n = *n - bad < 4 ? bad : *n;
    }
    for (size_t i = 0; !utf8_valid(slice_of(out, *n), &bad) && i < *n; i++) {
        out[bad] = '?';
    }
}

static void copy_text(struct slice in, char *out, size_t size)
{
    size_t n = 0;

    while (in.len > 0 && in.ptr[0] != '<' && n + 1 < size) {
        char c;
        in = slice_from(in, take(in, &c));
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            if (n == 0 || out[n - 1] == ' ') {
                continue;
            }
            c = ' ';
        }
        out[n++] = (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
    }
    while (n > 0 && out[n - 1] == ' ') {
        n--;
    }
    mend_end(out, &n);
    out[n] = '\0';
}

static void element(struct slice body, const char *tag, char *out, size_t size)
{
    size_t n = strlen(tag);
    const char *at = body.len < n ? NULL : memmem(body.ptr, body.len, tag, n);

    out[0] = '\0';
    if (at != NULL) {
        copy_text(slice_from(body, (size_t)(at - body.ptr) + n), out, size);
    }
}

void archive_error_scan(struct slice body, struct archive_error *out)
{
    element(body, "<Code>", out->code, sizeof out->code);
    element(body, "<Message>", out->message, sizeof out->message);
    element(body, "<Resource>", out->resource, sizeof out->resource);
}
