/* fuzz_query: http_next_pair on any bytes (the query string of a stranger).
 *
 * Broken is: a name or value that is longer than its spelling, is no UTF-8 or lacks
 * its NUL behind; pairs that do not come back when they are encoded and decoded again; an error
 * that is none of the two documented ones; an iterator that does not end. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "http/http.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(struct slice s, size_t size)
{
    ensure(s.len <= size);
    ensure(s.ptr[s.len] == '\0');
    ensure(utf8_valid(s, NULL));
}

static void put_encoded(struct buf *out, struct slice s)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') {
            buf_put_char(out, s.ptr[i]);
        } else {
            buf_put_char(out, '%');
            buf_put_char(out, digits[c >> 4]);
            buf_put_char(out, digits[c & 15]);
        }
    }
}

/* How it ended; what came before the end goes to pairs, plain and encoded. */
static int decode(struct slice query, struct arena *a, struct buf *plain, struct buf *encoded)
{
    struct http_pairs pairs = {.rest = query};
    struct slice name;
    struct slice value;
    size_t count = 0;
    int r;
    buf_clear(plain);
    buf_clear(encoded);
    while ((r = http_next_pair(&pairs, a, &name, &value)) == 1) {
        check_text(name, query.len);
        check_text(value, query.len);
        buf_put(plain, name.ptr, name.len + 1);
        buf_put(plain, value.ptr, value.len + 1);
        put_encoded(encoded, name);
        buf_put_char(encoded, '=');
        put_encoded(encoded, value);
        buf_put_char(encoded, '&');
        count++;
        ensure(count <= query.len);
    }
    ensure(r == 0 || r == ERR_INVALID_REQUEST || r == ERR_NO_MEMORY);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct buf plain, encoded, plain_again, encoded_again;
    struct arena arena;
    struct arena small;
    /* Memory of the exact size, so that a look beyond it is seen. */
    char *copy = malloc(size + 1);
    ensure(copy != NULL);
    if (size > 0) {
        memcpy(copy + 1, data, size);
    }
    struct slice query = slice_of(copy + 1, size);
    arena_init(&arena, 0);
    arena_init(&small, size / 2 + 1);
    int r = decode(query, &arena, &plain, &encoded);
    ensure(r != ERR_NO_MEMORY);
    int again = decode(buf_slice(&encoded), &arena, &plain_again, &encoded_again);
    ensure(again == 0);
    ensure(slice_eq(buf_slice(&plain), buf_slice(&plain_again)));
    ensure(slice_eq(buf_slice(&encoded), buf_slice(&encoded_again)));
    again = decode(query, &small, &plain_again, &encoded_again);
    ensure(again == r || again == ERR_NO_MEMORY);
    arena_free(&arena);
    arena_free(&small);
    free(copy);
    return 0;
}
