/* fuzz_config: a configuration file of any bytes, up to the JSON it holds.
 *
 * Broken is: a byte that became anything but a space; a line end that is gone (line numbers in
 * messages would be wrong); a strict JSON text that was changed; a second pass that finds comments
 * where the first has removed them; a comment without end whose place is not in the text. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/config.h"
#include "json/canon.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of the exact size, so that a look beyond it is seen. */
static char *copy_of(const void *p, size_t n)
{
    char *copy = malloc(n > 0 ? n : 1);
    ensure(copy != NULL);
    if (n > 0) {
        memcpy(copy, p, n);
    }
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct canon *canon;
    static struct buf out;
    struct err e = {0};
    if (canon == NULL) {
        canon = canon_new();
        ensure(canon != NULL);
    }
    char *text = copy_of(data, size);
    buf_clear(&out);
    bool strict = canon_json(canon, slice_of(data, size), &out, NULL) == 0;
    int r = config_strip_comments(text, size, &e);
    if (r != 0) {
        ensure(r == ERR_JSON);
        ensure(e.code == r);
        ensure(e.has_offset);
        ensure(e.offset + 1 < size);
        ensure(data[e.offset] == '/');
        ensure(data[e.offset + 1] == '*');
        ensure(!strict);
        free(text);
        return 0;
    }
    for (size_t i = 0; i < size; i++) {
        ensure(text[i] == (char)data[i] || text[i] == ' ');
        ensure(text[i] == '\n' || data[i] != '\n');
    }
    ensure(!strict || size == 0 || memcmp(text, data, size) == 0);
    char *again = copy_of(text, size);
    r = config_strip_comments(again, size, &e);
    ensure(r == 0);
    ensure(size == 0 || memcmp(text, again, size) == 0);
    free(again);
    free(text);
    return 0;
}
