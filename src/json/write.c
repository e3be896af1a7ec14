/* write: JSON output that is made here and not copied from stored text. Callers check the buffer's
 * `failed` once, at the end. */
#include "json/write.h"

#include "json/scan.h"

bool utf8_valid(struct slice s, size_t *bad)
{
    const char *at = s.ptr;
    const char *end = s.ptr + s.len;
    while (at < end) {
        if ((unsigned char)*at < 0x80) {
            const char *plain = scan_plain(at, end);
            at = plain == at ? at + 1 : plain; /* an ASCII byte that is special to strings only */
            continue;
        }
        unsigned n = scan_utf8(at, end);
        if (n == 0) {
            if (bad != NULL) {
                *bad = (size_t)(at - s.ptr);
            }
            return false;
        }
        at += n;
    }
    return true;
}

void json_put_string(struct buf *b, struct slice s)
{
    const char *at = s.ptr;
    const char *end = s.ptr + s.len;
    buf_put_char(b, '"');
    while (at < end) {
        const char *special = scan_plain(at, end);
        buf_put(b, at, (size_t)(special - at));
        at = special;
        if (at == end) {
            break;
        }
        if ((unsigned char)*at < 0x80) {
            char escape[8];
            buf_put(b, escape, scan_put_escape(escape, (unsigned char)*at));
            at++;
            continue;
        }
        unsigned n = scan_utf8(at, end);
        if (n == 0) {
            buf_put(b, "\xEF\xBF\xBD", 3);
            at++;
            continue;
        }
        buf_put(b, at, n);
        at += n;
    }
    buf_put_char(b, '"');
}

void json_put_name(struct buf *b, const char *name)
{
    if (b->len != 0 && b->ptr[b->len - 1] != '{' && b->ptr[b->len - 1] != '[') {
        buf_put_char(b, ',');
    }
    json_put_string(b, slice_cstr(name));
    buf_put_char(b, ':');
}
