/* warc_zstd: frames outside, records inside.
 *
 * Format of a frame's head (RFC 8878 section 3.1.1.1): the magic number, one byte of descriptor
 * (bits 7-6 size of the content's size, 5 single segment, 3 reserved, 2 checksum, 1-0 dictionary
 * id), window, dictionary id, content size. The descriptor says all that is asked of a head, so
 * five bytes are looked at before the library sees them; sizes, checksums, reserved block types and
 * the window are the library's to judge. It is given a whole head at once, and nothing else with
 * it: version 1.5.4, once it has a part of a head, takes what follows for a whole frame if it looks
 * like one. Of a skippable frame eight bytes are looked at, and the
 * rest is passed over.
 *
 * Invariants: a byte is given to the decoder once; at each end of a frame the decoder is new; a
 * record that has ended is followed by nothing else in its frame.
 *
 * Power failure: nothing is kept. Answers: every deviation, sticky, with the byte where it shows;
 * no memory. Aborts: none on what is read. */
#include "store/artifact/warc_zstd.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/ensure.h"

#define PLAIN_BYTES     (128u << 10)
#define MAGIC           UINT32_C(0xfd2fb528)
#define MAGIC_SKIP      UINT32_C(0x184d2a50) /* and the 15 after it */
#define MAGIC_DICT      UINT32_C(0x184d2a5d) /* WARC-Zstd's dictionary */
#define MAGIC_BYTES     4
#define HEAD_BYTES      5  /* magic and descriptor */
#define HEAD_BYTES_MAX  18 /* of a frame */
#define SKIP_HEAD_BYTES 8  /* magic and length */

enum warc_zstd_part { AT_HEAD, IN_FRAME, IN_SKIP };

struct warc_zstd {
    enum warc_zstd_part part;
    uint64_t offset; /* of the file, bytes taken */
    uint64_t frames; /* begun, skippable ones included */
    uint64_t skip_left;
    unsigned char head[HEAD_BYTES_MAX];
    size_t head_len;
    bool record_ended; /* in this frame */
    struct err failure;
    struct warc_record record;
    ZSTD_DCtx *decoder;
    unsigned char plain[PLAIN_BYTES];
};

int warc_zstd_open(struct warc_zstd **out, struct err *e)
{
    struct warc_zstd *z = malloc(sizeof *z);

    *out = NULL;
    if (z == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to look at records");
    }
    z->decoder = ZSTD_createDCtx();
    if (z->decoder == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(z->decoder, ZSTD_d_windowLogMax,
                                                                  WARC_ZSTD_WINDOW_LOG))) {
        warc_zstd_close(z);
        return err_set(e, ERR_NO_MEMORY, "no memory to look at records");
    }
    warc_zstd_start(z);
    *out = z;
    return 0;
}

void warc_zstd_close(struct warc_zstd *z)
{
    if (z != NULL) {
        (void)ZSTD_freeDCtx(z->decoder);
        free(z);
    }
}

void warc_zstd_start(struct warc_zstd *z)
{
    z->part = AT_HEAD;
    z->offset = 0;
    z->frames = 0;
    z->head_len = 0;
    z->skip_left = 0;
    z->record_ended = false;
    z->failure = (struct err){0};
    warc_record_start(&z->record);
    (void)ZSTD_DCtx_reset(z->decoder, ZSTD_reset_session_only);
}

static int fail(struct warc_zstd *z, int code, const char *what)
{
    err_set(&z->failure, code, "byte %llu: %s", (unsigned long long)z->offset, what);
    z->failure.has_offset = true;
    z->failure.offset = z->offset;
    return code;
}

static int refuse(struct warc_zstd *z, const char *what)
{
    return fail(z, ERR_CORRUPT, what);
}

static uint32_t little(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool skippable(uint32_t magic)
{
    return (magic & ~UINT32_C(0xf)) == MAGIC_SKIP;
}

/* Bytes of the head that must be there before more can be said. */
static size_t head_wanted(const struct warc_zstd *z)
{
    static const unsigned size_bytes[4] = {0, 2, 4, 8};

    if (z->head_len < MAGIC_BYTES) {
        return MAGIC_BYTES;
    }
    if (skippable(little(z->head))) {
        return SKIP_HEAD_BYTES;
    }
    if (z->head_len < HEAD_BYTES) {
        return HEAD_BYTES;
    }
    unsigned d = z->head[MAGIC_BYTES];
    bool single = (d & 0x20) != 0;
    unsigned size = single && d >> 6 == 0 ? 1 : size_bytes[d >> 6];
    return HEAD_BYTES + (single ? 0u : 1u) + size; /* no dictionary's id: judge_descriptor */
}

static int judge_magic(struct warc_zstd *z)
{
    uint32_t magic = little(z->head);

    if (magic == MAGIC_DICT) {
        return refuse(z, "a dictionary frame: its records cannot stand beside others");
    }
    if (magic != MAGIC && !skippable(magic)) {
        return refuse(z, "no Zstandard frame begins here");
    }
    if (z->frames == 0 && magic != MAGIC) {
        return refuse(z, "the first frame is a skippable one");
    }
    return 0;
}

static int judge_descriptor(struct warc_zstd *z)
{
    unsigned d = z->head[MAGIC_BYTES];

    if ((d & 0x08) != 0) {
        return refuse(z, "a frame's reserved bit is set");
    }
    if ((d & 0x03) != 0) {
        return refuse(z, "a frame names a dictionary");
    }
    if ((d & 0x04) == 0) {
        return refuse(z, "a frame has no content checksum");
    }
    if ((d & 0xc0) == 0 && (d & 0x20) == 0) {
        return refuse(z, "a frame does not say how long its content is");
    }
    return 0;
}

/* What the decoder made of the input goes to the records. */
static int take_plain(struct warc_zstd *z, const unsigned char *p, size_t n)
{
    size_t at = 0;

    while (at < n) {
        struct err why = {0};
        size_t taken = 0;
        if (z->record_ended) {
            return refuse(z, "a frame holds bytes of two records");
        }
        int r = warc_record_take(&z->record, p + at, n - at, &taken, &why);
        if (r < 0) {
            return refuse(z, why.text);
        }
        at += taken;
        z->record_ended = warc_record_between(&z->record);
    }
    return 0;
}

static int judge_decoder(struct warc_zstd *z, size_t code)
{
    ZSTD_ErrorCode why = ZSTD_getErrorCode(code);

    if (why == ZSTD_error_memory_allocation) {
        return fail(z, ERR_NO_MEMORY, "no memory to decompress");
    }
    return refuse(z, why == ZSTD_error_frameParameter_windowTooLarge
                         ? "a frame wants a window of more than 8 MiB"
                         : ZSTD_getErrorName(code));
}

/* Decompresses up to n bytes; *used of them are done with. */
static int decode(struct warc_zstd *z, const unsigned char *p, size_t n, size_t *used)
{
    ZSTD_inBuffer in = {.src = p, .size = n};
    bool more = true; /* the decoder holds output that did not fit */
    int r = 0;

    while (r == 0 && z->part == IN_FRAME && (in.pos < in.size || more)) {
        ZSTD_outBuffer out = {.dst = z->plain, .size = sizeof z->plain};
        size_t before = in.pos;
        size_t left = ZSTD_decompressStream(z->decoder, &out, &in);
        z->offset += in.pos - before;
        if (ZSTD_isError(left)) {
            r = judge_decoder(z, left);
        } else {
            r = take_plain(z, z->plain, out.pos);
            more = out.pos == out.size;
            z->part = left == 0 ? AT_HEAD : IN_FRAME;
        }
    }
    *used = in.pos;
    return r;
}

/* The head is whole: what follows is a frame's or a skippable one's. */
static int begin(struct warc_zstd *z)
{
    size_t len = z->head_len, used = 0;

    z->head_len = 0;
    z->frames++;
    if (skippable(little(z->head))) {
        z->skip_left = little(z->head + MAGIC_BYTES);
        z->part = z->skip_left > 0 ? IN_SKIP : AT_HEAD;
        return 0;
    }
    z->record_ended = false;
    z->part = IN_FRAME;
    z->offset -= len; /* decode counts them again */
    int r = decode(z, z->head, len, &used);
    ensure(r < 0 || used == len); /* a head ends no frame */
    return r;
}

static int take_head(struct warc_zstd *z, const unsigned char *p, size_t n, size_t *used)
{
    size_t want = head_wanted(z);
    size_t step = want - z->head_len < n ? want - z->head_len : n;

    memcpy(z->head + z->head_len, p, step);
    z->head_len += step;
    z->offset += step;
    *used = step;
    if (z->head_len < want) {
        return 0;
    }
    if (want == MAGIC_BYTES) {
        return judge_magic(z);
    }
    if (want == HEAD_BYTES) {
        return judge_descriptor(z);
    }
    return begin(z);
}

static int step(struct warc_zstd *z, const unsigned char *p, size_t n, size_t *used)
{
    switch (z->part) {
    case AT_HEAD:
        return take_head(z, p, n, used);
    case IN_FRAME:
        return decode(z, p, n, used);
    case IN_SKIP:
        *used = z->skip_left < n ? (size_t)z->skip_left : n;
        z->skip_left -= *used;
        z->offset += *used;
        z->part = z->skip_left > 0 ? IN_SKIP : AT_HEAD;
        return 0;
    }
    return 0;
}

static int answer(const struct warc_zstd *z, struct err *e)
{
    *e = z->failure;
    return z->failure.code;
}

int warc_zstd_take(struct warc_zstd *z, const void *p, size_t n, struct err *e)
{
    const unsigned char *bytes = p;
    size_t at = 0;
    int r = z->failure.code;

    while (r == 0 && at < n) {
        size_t used = 0;
        r = step(z, bytes + at, n - at, &used);
        at += used;
    }
    return r == 0 ? 0 : answer(z, e);
}

int warc_zstd_end(struct warc_zstd *z, uint64_t *records, struct err *e)
{
    if (records != NULL) {
        *records = z->record.records;
    }
    if (z->failure.code == 0) {
        if (z->part != AT_HEAD || z->head_len > 0) {
            (void)refuse(z, "the file ends inside a frame");
        } else if (!warc_record_between(&z->record)) {
            (void)refuse(z, "the file ends inside a record");
        } else if (z->record.records == 0) {
            (void)refuse(z, "there is no record");
        }
    }
    return z->failure.code == 0 ? 0 : answer(z, e);
}
