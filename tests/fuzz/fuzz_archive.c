/* fuzz_archive: what the Internet Archive's side may send, on any bytes.
 *
 * Input: the first byte picks what the rest is: 'e' an error, 'm' an answer about an item, 'r' a
 * whole HTTP answer, anything else a key file.
 *
 * Broken is: an error's text that is no UTF-8, or has a control character; an item in which a file
 * counts for ours though its digest stands nowhere in the answer; an HTTP answer that comes out
 * otherwise when it is read byte by byte, or is complete without a status; a key with a blank or a
 * colon; a step outside of the input. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "net/reply.h"
#include "os/os.h"
#include "sink/internet_archive_internal.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BODY_MAX 200

static void is_text(const char *text, size_t size)
{
    ensure(strlen(text) < size);
    ensure(utf8_valid(slice_cstr(text), NULL));
    for (const char *p = text; *p != '\0'; p++) {
        ensure((unsigned char)*p >= ' ');
        ensure(*p != 0x7f);
    }
}

static void error(struct slice in)
{
    struct archive_error said;

    archive_error_scan(in, &said);
    is_text(said.code, sizeof said.code);
    is_text(said.message, sizeof said.message);
    is_text(said.resource, sizeof said.resource);
}

static bool holds(struct slice in, const char *text)
{
    return memmem(in.ptr, in.len, text, strlen(text)) != NULL;
}

static void item(struct slice in)
{
    static const struct artifact_file files[2] = {
        {"a.bin", "", 5, "00112233445566778899aabbccddeeff",
         "00112233445566778899aabbccddeeff00112233"},
        {"a.bin.manifest.jsonl", "", 7, "ffeeddccbbaa99887766554433221100",
         "ffeeddccbbaa99887766554433221100ffeeddcc"}};
    const struct artifact_job job = {.file = files, .file_count = 2};
    struct archive_item it;
    struct err e = {0};
    int r = archive_item_read(in, &job, &it, &e);

    ensure(r == 0 || (r == ERR_JSON && e.text[0] != '\0'));
    is_text(it.uploader, sizeof it.uploader);
    for (unsigned i = 0; i < 2; i++) {
        /* Escapes could spell a digest; this input has none. */
        ensure(it.seen[i] != ARCHIVE_SAME || memchr(in.ptr, '\\', in.len) != NULL ||
               (holds(in, files[i].md5) && holds(in, files[i].sha1)));
    }
}

static enum reply_step read_answer(struct slice in, size_t piece, struct net_answer *a)
{
    struct reply r;
    enum reply_step step = REPLY_MORE;

    reply_begin(&r, a, BODY_MAX);
    while (in.len > 0 && step == REPLY_MORE) {
        size_t n = in.len < piece ? in.len : piece;
        step = reply_feed(&r, slice_of(in.ptr, n));
        in = slice_from(in, n);
    }
    step = step == REPLY_MORE ? reply_end(&r) : step;
    reply_free(&r);
    return step;
}

static void answer(struct slice in)
{
    struct net_answer whole;
    struct net_answer bytes;
    enum reply_step step = read_answer(in, in.len, &whole);

    ensure(step == read_answer(in, 1, &bytes));
    ensure(step != REPLY_MORE);
    ensure(whole.status == bytes.status);
    ensure(whole.complete == bytes.complete);
    ensure(whole.status != 0 || !whole.complete);
    ensure(whole.body.len <= BODY_MAX);
    ensure(slice_eq(buf_slice(&whole.head), buf_slice(&bytes.head)));
    ensure(slice_eq(buf_slice(&whole.body), buf_slice(&bytes.body)));
    net_answer_free(&whole);
    net_answer_free(&bytes);
}

static void is_key(const char *key)
{
    ensure(key[0] != '\0');
    ensure(strlen(key) <= ARCHIVE_KEY_MAX);
    ensure(strpbrk(key, ": \t\r\n") == NULL);
}

/* The key file is this input. */
static struct slice file;

static int file_open(const char *path, int flags, unsigned mode)
{
    (void)path;
    (void)flags;
    (void)mode;
    return 1000;
}

static int file_close(int fd)
{
    (void)fd;
    return 0;
}

static int file_stat(int fd, struct os_stat *st)
{
    (void)fd;
    *st = (struct os_stat){.size = file.len, .mode = 0100600};
    return 0;
}

static int64_t file_pread(int fd, void *p, size_t n, uint64_t offset)
{
    struct slice rest = slice_from(file, (size_t)offset);

    (void)fd;
    n = n < rest.len ? n : rest.len;
    if (n > 0) {
        memcpy(p, rest.ptr, n);
    }
    return (int64_t)n;
}

static void keys(struct slice in)
{
    struct os_table table = os_real;
    struct archive_keys k;
    bool open_to_others;
    struct err e = {0};

    file = in;
    table.open = file_open;
    table.close = file_close;
    table.fstat = file_stat;
    table.pread = file_pread;
    os_install(&table);
    if (archive_keys_read("keys", &k, &open_to_others, &e) == 0) {
        is_key(k.access);
        is_key(k.secret);
        ensure(!open_to_others);
    } else {
        ensure(e.code == ERR_USAGE);
    }
    os_install(NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice in;

    if (size < 2) {
        return 0;
    }
    in = slice_of(data + 1, size - 1);
    switch (data[0]) {
    case 'e':
        error(in);
        break;
    case 'm':
        item(in);
        break;
    case 'r':
        answer(in);
        break;
    default:
        keys(in);
        break;
    }
    return 0;
}
