/* canon_cli: canonical forms for the differential test.
 *
 * Standard input: documents, each as its length in decimal digits, a line feed, and its bytes.
 * Standard output: one line each, the canonical form (which holds no line feed) or `ERR OFFSET
 * TEXT`. Each document lies in memory of exactly its size. Exits 2 when the input is not of that
 * form. */
#include <stdio.h>
#include <stdlib.h>

#include "json/canon.h"

static int failed(const char *what)
{
    fprintf(stderr, "canon_cli: %s\n", what);
    return 2;
}

static int answer(struct canon *c, const char *document, size_t len, struct buf *out)
{
    struct canon_error e;
    buf_clear(out);
    int r = canon_json(c, slice_of(document, len), out, &e);
    if (r == ERR_NO_MEMORY) {
        return failed("no memory");
    }
    if (r != 0) {
        buf_printf(out, "ERR %llu %s", (unsigned long long)e.offset, e.text);
    }
    buf_put_char(out, '\n');
    return fwrite(out->ptr, 1, out->len, stdout) == out->len ? 0 : failed("cannot write");
}

int main(void)
{
    struct canon *c = canon_new();
    struct buf out = {0};
    if (c == NULL) {
        return failed("no memory");
    }
    int r = 0;
    char line[32];
    while (r == 0 && fgets(line, sizeof line, stdin) != NULL) {
        char *end = NULL;
        unsigned long len = strtoul(line, &end, 10);
        if (end == line || *end != '\n') {
            r = failed("a length is expected");
            break;
        }
        char *document = malloc(len == 0 ? 1 : len);
        if (document == NULL || fread(document, 1, len, stdin) != len) {
            r = failed("the input is cut");
        } else {
            r = answer(c, document, len, &out);
        }
        free(document);
    }
    if (r == 0 && (ferror(stdin) || fflush(stdout) != 0)) {
        r = failed("input or output failed");
    }
    buf_free(&out);
    canon_free(c);
    return r;
}
