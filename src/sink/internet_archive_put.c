/* internet_archive_put: one file to the Archive, by one PUT from its first byte: there is no way to
 * go on with a part.
 *
 * Content-MD5 (in hex, as all uploaders to the Archive send it) lets the Archive refuse bytes that
 * changed on the way; the ETag of its answer is the MD5 of what it got, and must be ours as well.
 * x-archive-keep-old-version is set: we looked, and nothing was under the name, but if somebody was
 * quicker, his file stays beside ours and is not lost.
 *
 * An answer that is lost after the last byte says nothing: often the file is there. The verdict
 * says so, the runner keeps it, and for as long as an answer would have been waited for later tries
 * only look for the file (internet_archive.c). So it is with an answer that a gateway gives in the
 * Archive's place.
 *
 * 417: something between does not know Expect; then the body goes without. */
#include <errno.h>
#include <stdio.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "os/os.h"
#include "sink/internet_archive_internal.h"

#define EXPECT_MS     2000
#define HEADERS_MAX   (ARCHIVE_VALUES_MAX + 12)
#define NUMBERS_BYTES 64
#define NOT_EXPECTED  417

#define WAY_OUT_LOCAL "put the original bytes back, then: tallyman park retry"

struct put {
    struct archive *a;
    const struct artifact_file *f;
    unsigned index;
    int fd;
    bool said; /* reading the local file has failed, and the verdict says so */
    struct net_header header[HEADERS_MAX];
    size_t headers;
};

/* ---- the local file ---- */

static bool open_local(struct put *p)
{
    const char *path = p->f->path;
    struct os_stat st = {0};
    struct err e = {0};
    int r;

    p->fd = os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (p->fd == -ENOENT || p->fd == -ELOOP || p->fd == -ENXIO) {
        return archive_say(p->a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, WAY_OUT_LOCAL,
                           "the local file is missing: %s", path);
    }
    r = p->fd < 0 ? p->fd : os_fstat(p->fd, &st);
    if (r < 0) {
        (void)err_os(&e, r, "open", path);
        return archive_say(p->a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "", "%s", e.text);
    }
    if ((st.mode & S_IFMT) != S_IFREG || st.size != p->f->size) {
        return archive_say(p->a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, WAY_OUT_LOCAL,
                           "the local bytes differ from the receipt: %s has another size", path);
    }
    return true;
}

static bool read_local(struct put *p, uint64_t at, struct slice *piece)
{
    uint64_t left = p->f->size - at;
    size_t want = left < ARTIFACT_PIECE_BYTES ? (size_t)left : ARTIFACT_PIECE_BYTES;
    int64_t n = os_pread_full(p->fd, p->a->job->piece, want, at);
    struct err e = {0};

    if (n < 0) {
        (void)err_os(&e, (int)n, "read", p->f->path);
        return archive_say(p->a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "", "%s", e.text);
    }
    if ((size_t)n < want) {
        return archive_say(p->a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, WAY_OUT_LOCAL,
                           "the local bytes differ from the receipt: %s became shorter",
                           p->f->path);
    }
    (void)os_drop_range(p->fd, at, (uint64_t)n);
    *piece = slice_of(p->a->job->piece, want);
    return true;
}

/* Whether the local bytes are still those of the plan. False: they are not, or nobody knows; the
 * verdict says which. */
static bool local_is_whole(struct put *p)
{
    struct md5 h;
    uint8_t digest[MD5_LEN];
    char hex[MD5_HEX_LEN];
    struct slice piece;

    md5_start(&h);
    for (uint64_t at = 0; at < p->f->size; at += piece.len) {
        if (!archive_going_on(p->a) || !read_local(p, at, &piece)) {
            return false;
        }
        md5_add(&h, piece.ptr, piece.len);
    }
    md5_end(&h, digest);
    hex_encode(hex, digest, sizeof digest);
    return memcmp(hex, p->f->md5, MD5_HEX_LEN) == 0 ||
           archive_say(p->a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, WAY_OUT_LOCAL,
                       "the local bytes differ from the receipt: %s", p->f->path);
}

/* ---- the request ---- */

static bool give_body(void *ctx, uint64_t at, struct slice *piece)
{
    struct put *p = ctx;

    p->said = !read_local(p, at, piece);
    return !p->said;
}

static bool is_stopping(void *ctx)
{
    const struct put *p = ctx;

    return p->a->job->stopping(p->a->job->ctx);
}

static void on_progress(void *ctx, uint64_t at)
{
    const struct put *p = ctx;
    const struct artifact_job *job = p->a->job;

    if (job->progress != NULL) {
        job->progress(job->ctx, p->a->base_bytes + at, p->f->name);
    }
}

static void add(struct put *p, const char *name, struct slice value)
{
    ensure(p->headers < HEADERS_MAX);
    p->header[p->headers++] = (struct net_header){name, value};
}

/* The lines of a->meta are "name: value\n"; each name gets its NUL here, in place. */
static bool add_metadata(struct put *p, char *text, size_t len)
{
    char *end = text + len;

    while (text < end) {
        char *line_end = memchr(text, '\n', (size_t)(end - text));
        char *colon = memchr(text, ':', (size_t)(line_end - text));
        if (p->headers == HEADERS_MAX) {
            return archive_say(p->a, ARTIFACT_PARKED, ARTIFACT_THIS, 0,
                               "use fewer metadata values in the project",
                               "more metadata values than headers can hold");
        }
        *colon = '\0';
        add(p, text, slice_of(colon + 2, (size_t)(line_end - colon) - 2));
        text = line_end + 1;
    }
    return true;
}

static bool send_it(struct put *p, struct buf *meta, bool derive, struct net_answer *answer,
                    uint64_t *sent, enum transfer_end *end, struct err *e)
{
    struct archive *a = p->a;
    char hint[NUMBERS_BYTES];
    struct buf url = {0};
    struct transfer t = {.method = "PUT",
                         .has_body = true,
                         .body_bytes = p->f->size,
                         .body = give_body,
                         .stall_ms = a->job->endpoints->stall_ms,
                         .expect_ms = EXPECT_MS,
                         .answer_ms = a->job->endpoints->answer_ms,
                         .answer_bytes_max = ARCHIVE_ERROR_BYTES,
                         .stopping = is_stopping,
                         .progress = on_progress,
                         .ctx = p};
    bool ok;

    (void)snprintf(hint, sizeof hint, "%llu", (unsigned long long)a->total_bytes);
    add(p, "Authorization", buf_slice(&a->authorization));
    add(p, "Content-MD5", slice_cstr(p->f->md5));
    add(p, "x-archive-auto-make-bucket", SLICE("1"));
    add(p, "x-archive-keep-old-version", SLICE("1"));
    add(p, "x-archive-queue-derive", derive ? SLICE("1") : SLICE("0"));
    add(p, "x-archive-size-hint", slice_cstr(hint));
    if (!add_metadata(p, meta->ptr, meta->len)) {
        return false;
    }
    buf_printf(&url, "%s/%s/%s", a->job->endpoints->archive_s3, a->job->identifier, p->f->name);
    buf_put_char(&url, '\0');
    for (;;) {
        t.header = p->header;
        t.header_count = p->headers;
        ok = archive_call(a, &t, &url, answer, sent, end, e);
        if (!ok || *end != TRANSFER_ANSWERED || answer->status != NOT_EXPECTED ||
            t.expect_ms == 0) {
            break;
        }
        net_answer_free(answer);
        t.expect_ms = 0;
    }
    buf_free(&url);
    return ok;
}

/* ---- the answer ---- */

/* The ETag without its quotes is our MD5; one that is not there proves nothing, and what is proof
 * comes later. */
static bool etag_is_ours(const struct put *p, const struct net_answer *answer, struct slice *etag)
{
    if (!net_header(answer, "etag", etag)) {
        return true;
    }
    if (etag->len >= 2 && etag->ptr[0] == '"' && etag->ptr[etag->len - 1] == '"') {
        *etag = slice_of(etag->ptr + 1, etag->len - 2);
    }
    return etag->len == MD5_HEX_LEN && strncasecmp(etag->ptr, p->f->md5, MD5_HEX_LEN) == 0;
}

static bool accepted(struct put *p, const struct net_answer *answer, uint64_t sent)
{
    struct slice etag = SLICE("");

    if (sent < p->f->size) {
        return archive_say(p->a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "",
                           "the Archive answered %u before it had all bytes", answer->status);
    }
    if (!etag_is_ours(p, answer, &etag)) {
        return local_is_whole(p) &&
               archive_say(p->a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "",
                           "the bytes changed on the way: the Archive has %.*s of %s, whose MD5 "
                           "is %s",
                           (int)(etag.len < 64 ? etag.len : 64), etag.ptr, p->f->name, p->f->md5);
    }
    p->a->out->bytes += p->f->size;
    p->a->out->maybe_files |= UINT64_C(1) << p->index;
    p->a->put = true;
    return true;
}

static bool refused(struct put *p, const struct net_answer *answer)
{
    struct archive_error said;
    struct artifact_verdict verdict;

    archive_error_scan(buf_slice(&answer->body), &said);
    if (archive_judge(p->a, answer->status, &said)) {
        verdict = *p->a->out;
        if (local_is_whole(p)) {
            *p->a->out = verdict;
        }
    }
    return false;
}

/* All of it left, and nobody knows whether the Archive has it. */
static bool is_unknown(const struct put *p, enum transfer_end end, const struct net_answer *answer,
                       uint64_t sent)
{
    bool gateway = end == TRANSFER_ANSWERED && (answer->status == 502 || answer->status == 504);

    return sent == p->f->size && (end == TRANSFER_LOST || end == TRANSFER_STOPPED || gateway);
}

static bool judge_end(struct put *p, enum transfer_end end, const struct net_answer *answer,
                      uint64_t sent, const struct err *e)
{
    switch (end) {
    case TRANSFER_ANSWERED:
        return answer->status == 200 || answer->status == 201 ? accepted(p, answer, sent)
                                                              : refused(p, answer);
    case TRANSFER_LOST:
        return archive_say(p->a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "",
                           "%s; the file is looked for before it is sent again", e->text);
    case TRANSFER_SOURCE:
        ensure(p->said);
        return false;
    case TRANSFER_UNREACHED:
        return archive_say(p->a, ARTIFACT_RETRY, ARTIFACT_FAR_END, 0, "", "%s", e->text);
    case TRANSFER_CUT:
    case TRANSFER_NO_MEMORY:
        break;
    case TRANSFER_STOPPED:
        ensure(false);
    }
    return archive_say(p->a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "", "%s after %llu of %llu bytes",
                       e->text, (unsigned long long)sent, (unsigned long long)p->f->size);
}

bool archive_put(struct archive *a, unsigned index, bool derive)
{
    struct put p = {.a = a, .f = &a->job->file[index], .index = index, .fd = -1};
    struct net_answer answer = {0};
    enum transfer_end end = TRANSFER_STOPPED;
    struct buf meta = {0};
    struct err e = {0};
    uint64_t sent = 0;
    bool ok = open_local(&p);

    buf_put_slice(&meta, buf_slice(&a->meta));
    if (ok && meta.failed) {
        ok = archive_say(a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "", "no memory for headers");
    }
    if (ok) {
        ok = send_it(&p, &meta, derive, &answer, &sent, &end, &e);
        if (is_unknown(&p, end, &answer, sent)) {
            a->out->maybe_files |= UINT64_C(1) << index;
        }
    }
    ok = ok && judge_end(&p, end, &answer, sent, &e);
    net_answer_free(&answer);
    buf_free(&meta);
    if (p.fd >= 0) {
        (void)os_close(p.fd); /* read only */
    }
    return ok;
}
