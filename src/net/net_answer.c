/* net_answer: looking at answers and writing queries; what needs no connection. */
#include "base/ensure.h"
#include "net/net.h"

void net_answer_free(struct net_answer *a)
{
    buf_free(&a->head);
    buf_free(&a->body);
    *a = (struct net_answer){0};
}

bool net_header(const struct net_answer *a, const char *name, struct slice *value)
{
    struct slice rest = buf_slice(&a->head);
    size_t n = strlen(name);
    while (rest.len != 0) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        ensure(end != NULL);
        struct slice line = slice_of(rest.ptr, (size_t)(end - rest.ptr));
        if (line.len > n + 1 && memcmp(line.ptr, name, n) == 0 && line.ptr[n] == ':') {
            *value = slice_from(line, n + 2);
            return true;
        }
        rest = slice_from(rest, line.len + 1);
    }
    return false;
}

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

static void put_encoded(struct buf *out, struct slice s)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (is_unreserved((char)c)) {
            buf_put_char(out, (char)c);
        } else {
            buf_put_char(out, '%');
            buf_put_char(out, hex[c >> 4]);
            buf_put_char(out, hex[c & 15]);
        }
    }
}

void net_put_query(struct buf *out, const char *name, struct slice value)
{
    if (out->len != 0) {
        buf_put_char(out, '&');
    }
    put_encoded(out, slice_cstr(name));
    buf_put_char(out, '=');
    put_encoded(out, value);
}
