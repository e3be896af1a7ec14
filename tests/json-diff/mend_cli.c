/* mend_cli: tolerated and mended texts for the differential test.
 *
 * Standard input: documents, each as its length in decimal digits, a line feed, and its bytes.
 * Standard output, one for each: `REFUSED`, or the flaws as a decimal number, a space, the length
 * of the mended text, a line feed, and its bytes; then a line feed. Each document lies in memory of
 * exactly its size. Exits 2 when the input is not of that form. */
#include <stdio.h>
#include <stdlib.h>

#include "json/tolerant.h"

static int failed(const char *what)
{
    fprintf(stderr, "mend_cli: %s\n", what);
    return 2;
}

static int answer(struct slice document, struct buf *out, struct buf *mended)
{
    struct slice value;
    unsigned flaws;
    struct err e = {0};
    buf_clear(out);
    buf_clear(mended);
    if (json_tolerant_check(document, &value, &e) != 0) {
        buf_put_cstr(out, "REFUSED\n");
    } else {
        if (json_flaws(value, &flaws, &e) != 0 || json_mend(value, mended, &e) != 0) {
            return failed(e.text);
        }
        buf_printf(out, "%u %zu\n", flaws, mended->len);
        buf_put_slice(out, buf_slice(mended));
        buf_put_char(out, '\n');
    }
    return fwrite(out->ptr, 1, out->len, stdout) == out->len ? 0 : failed("cannot write");
}

int main(void)
{
    struct buf out = {0};
    struct buf mended = {0};
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
            r = answer(slice_of(document, len), &out, &mended);
        }
        free(document);
    }
    if (r == 0 && (ferror(stdin) || fflush(stdout) != 0)) {
        r = failed("input or output failed");
    }
    buf_free(&out);
    buf_free(&mended);
    return r;
}
