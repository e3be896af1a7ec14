/* Fuzz target: the check whether a file may be joined with others, and, since checksums keep most
 * inputs from it, the one of plain records. The verdict must not depend on the pieces, and what is
 * refused stays refused. */
#include <stdint.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "store/artifact/warc_zstd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check(struct warc_zstd *z, const uint8_t *p, size_t n, size_t piece, struct err *e)
{
    uint64_t records = 0;
    int r = 0;

    warc_zstd_start(z);
    for (size_t at = 0; r == 0 && at < n; at += piece) {
        r = warc_zstd_take(z, p + at, piece < n - at ? piece : n - at, e);
    }
    r = r < 0 ? r : warc_zstd_end(z, &records, e);
    ensure(r < 0 || records > 0);
    return r;
}

static int records(const uint8_t *p, size_t n, size_t piece, struct warc_record *w, struct err *e)
{
    int r = 0;

    warc_record_start(w);
    for (size_t at = 0, taken; r == 0 && at < n; at += taken) {
        r = warc_record_take(w, p + at, piece < n - at ? piece : n - at, &taken, e);
        ensure(taken > 0 || r < 0);
    }
    return r;
}

static void plain(const uint8_t *p, size_t n)
{
    struct warc_record a, b;
    struct err one = {0}, other = {0};
    int whole = records(p, n, n + 1, &a, &one);

    ensure(whole == records(p, n, 5, &b, &other));
    ensure(a.records == b.records && a.offset == b.offset && one.offset == other.offset);
    ensure(warc_record_between(&a) == warc_record_between(&b));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct warc_zstd *z;
    struct err one = {0}, other = {0};

    if (z == NULL && warc_zstd_open(&z, &one) < 0) {
        abort();
    }
    plain(data, size);
    int whole = check(z, data, size, size + 1, &one);
    int pieces = check(z, data, size, 3, &other);
    ensure(whole == pieces);
    ensure(whole == 0 || one.offset <= size);
    ensure(whole == 0 || warc_zstd_take(z, "", 0, &other) == whole);
    return 0;
}
