/* package_merge: the payload of a merged package: the bytes of its members, unchanged, end to end.
 *
 * Each member is read once, and the same pieces are hashed, judged (warc_zstd) and written. A
 * member is bad when its bytes are not its receipt's, or are proven not to be WARC-Zstd that may be
 * joined; then nothing more is written, but the rest is read, so that all bad ones are known after
 * one build. That is never concluded from a call that failed: EIO, EMFILE, ESTALE, no space and no
 * memory end the build, and its members stay together for the next.
 *
 * Before the first byte there must be room for all of them in the file system of packages/, and
 * what uploads are left, too (hole 22): no build fills the disk.
 *
 * Power failure: a temporary file, of any length, which the next start removes.
 *
 * Answers: all errors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/package_internal.h"
#include "store/artifact/warc_zstd.h"

#define SPARE_PART  20 /* of the file system, or: */
#define SPARE_BYTES (UINT64_C(10) << 30)
#define WAY_OUT_FORMAT \
    "tallyman park identity ID sends it alone, as it is; tallyman park retry ID tries it again"

struct merge {
    struct package_job *job;
    struct err *e;
    struct warc_zstd *zstd;
    int fd; /* of the temporary payload */
    char path[PACKAGE_PATH_BYTES];
    uint64_t at, done; /* written; read */
    struct package_hashes whole;
    struct sha256 sha256;
};

/* One member, while it is read. */
struct member {
    unsigned number;
    const struct delivery_artifact *artifact;
    char path[PACKAGE_PATH_BYTES];
    struct blake3 blake3;
    struct sha1 sha1;
    struct sha256 sha256;
    struct err format; /* code 0: as far as it was read it may be joined */
};

static int bad(struct merge *m, const struct member *x, const char *way_out, const char *text)
{
    return package_bad(m->job, x->number, way_out, text, m->e);
}

static int rotten(struct merge *m, const struct member *x, const char *how)
{
    char text[PACKAGE_WHY_MAX];

    (void)snprintf(text, sizeof text, "the local bytes differ from the receipt: %s", how);
    return bad(m, x, PACKAGE_WAY_OUT, text);
}

/* ---- one member ---- */

static int write_piece(struct merge *m, const void *p, size_t n)
{
    int r = os_pwrite_all(m->fd, p, n, m->at, NULL);

    if (r < 0) {
        return err_os(m->e, r, "write", m->path);
    }
    r = os_write_back(m->fd, m->at, n, false); /* lost pages are reported here, and only once */
    if (r == -EIO || r == -ENOSPC) {
        return err_os(m->e, r, "write", m->path);
    }
    package_hashes_add(&m->whole, p, n);
    sha256_add(&m->sha256, p, n);
    m->at += n;
    return 0;
}

static int take_piece(struct merge *m, struct member *x, const void *p, size_t n)
{
    int r = 0;

    blake3_add(&x->blake3, p, n);
    sha1_add(&x->sha1, p, n);
    sha256_add(&x->sha256, p, n);
    if (x->format.code == 0) {
        r = warc_zstd_take(m->zstd, p, n, &x->format);
        r = r == ERR_CORRUPT ? 0 : r;
    }
    if (r < 0) {
        return err_set(m->e, r, "%s", x->format.text);
    }
    return m->job->bad_count == 0 && x->format.code == 0 ? write_piece(m, p, n) : 0;
}

/* *whole: all bytes were read. */
static int read_pieces(struct merge *m, struct member *x, int fd, bool *whole)
{
    struct package_job *job = m->job;
    uint64_t size = x->artifact->size_bytes;

    *whole = false;
    for (uint64_t at = 0; at < size;) {
        size_t want = size - at < job->piece_bytes ? (size_t)(size - at) : job->piece_bytes;
        int64_t n;
        int r;
        if (atomic_load(job->stop)) {
            return PACKAGE_STOPPED;
        }
        n = os_pread_full(fd, job->piece, want, at);
        if (n < 0) {
            return err_os(m->e, (int)n, "read", x->path);
        }
        if ((size_t)n < want) {
            return rotten(m, x, "the file became shorter");
        }
        r = take_piece(m, x, job->piece, want);
        if (r < 0) {
            return r;
        }
        (void)os_drop_range(fd, at, want);
        at += want;
        m->done += want;
        job->progress(job->ctx, m->done);
    }
    *whole = true;
    return 0;
}

/* After its last byte. What rotted has no format. */
static int judge(struct merge *m, struct member *x, struct delivery_member_facts *facts)
{
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1] = "";
    int r = 0;

    blake3_end(&x->blake3, digest);
    hex_encode(hex, digest, BLAKE3_LEN);
    if (strcmp(hex, x->artifact->checksum) != 0) {
        return rotten(m, x, "BLAKE3 is another one");
    }
    if (x->format.code == 0) {
        r = warc_zstd_end(m->zstd, &facts->records, &x->format);
    }
    if (r < 0 && r != ERR_CORRUPT) {
        return err_set(m->e, r, "%s", x->format.text);
    }
    if (x->format.code != 0) {
        return bad(m, x, WAY_OUT_FORMAT, x->format.text);
    }
    sha1_end(&x->sha1, digest);
    hex_encode(facts->sha1, digest, SHA1_LEN);
    sha256_end(&x->sha256, digest);
    hex_encode(facts->sha256, digest, SHA256_LEN);
    return 0;
}

static int open_member(struct merge *m, struct member *x, int *fd)
{
    struct os_stat st;
    int r;

    *fd = os_open(x->path, PACKAGE_OPEN_SOURCE, 0);
    if (*fd == -ENOENT) {
        return bad(m, x, PACKAGE_WAY_OUT, "the local file is missing");
    }
    if (*fd < 0) {
        return err_os(m->e, *fd, "open", x->path);
    }
    r = os_fstat(*fd, &st);
    if (r < 0) {
        r = err_os(m->e, r, "stat", x->path);
    } else if (st.size != x->artifact->size_bytes) {
        r = rotten(m, x, "the file has another size");
    } else {
        return 0;
    }
    (void)os_close(*fd);
    *fd = -1;
    return r;
}

static int merge_member(struct merge *m, unsigned i, struct delivery_member_facts *facts)
{
    struct member x = {.number = i, .artifact = &m->job->members->item[i]};
    char name[DELIVERY_SOURCE_MAX];
    bool whole;
    int fd;
    int r;

    (void)snprintf(name, sizeof name, "uploads/%s", x.artifact->object_id);
    package_path(x.path, m->job->data, name);
    r = open_member(m, &x, &fd);
    if (r != 0 || fd < 0) {
        return r;
    }
    blake3_start(&x.blake3);
    sha1_start(&x.sha1);
    sha256_start(&x.sha256);
    warc_zstd_start(m->zstd);
    r = read_pieces(m, &x, fd, &whole);
    (void)os_close(fd);
    return r == 0 && whole ? judge(m, &x, facts) : r;
}

/* ---- all ---- */

static int enough_room(struct merge *m)
{
    char path[PACKAGE_PATH_BYTES];
    uint64_t want = delivery_members_bytes(m->job->members);
    struct os_disk disk;
    uint64_t spare;

    package_path(path, m->job->data, DELIVERY_PACKAGES);
    if (os_disk(path, &disk) < 0) {
        return 0; /* the writes will say */
    }
    spare = disk.bytes / SPARE_PART < SPARE_BYTES ? disk.bytes / SPARE_PART : SPARE_BYTES;
    if (disk.free_bytes < spare || disk.free_bytes - spare < want) {
        return err_set(m->e, ERR_NO_SPACE,
                       "the package has %llu bytes, and %llu are free in %s, of which %llu stay",
                       (unsigned long long)want, (unsigned long long)disk.free_bytes, path,
                       (unsigned long long)spare);
    }
    return 0;
}

static int open_payload(struct merge *m, const char *package_id)
{
    char name[DELIVERY_SOURCE_MAX];

    package_name(name, PACKAGE_TEMP, package_id, DELIVERY_PAYLOAD_TAIL);
    package_path(m->path, m->job->data, name);
    m->fd = os_open(m->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0640);
    return m->fd < 0 ? err_os(m->e, m->fd, "create", m->path) : 0;
}

static int merge_all(struct merge *m, struct delivery_member_facts *facts)
{
    int r = 0;

    package_hashes_start(&m->whole);
    sha256_start(&m->sha256);
    for (unsigned i = 0; r == 0 && i < m->job->members->count; i++) {
        r = merge_member(m, i, &facts[i]);
    }
    if (r == 0 && m->job->bad_count > 0) {
        const struct package_bad *first = m->job->bad;
        return err_set(m->e, ERR_CORRUPT, "%u of %u artifacts cannot be in it; the first: %s",
                       m->job->bad_count, m->job->members->count, first->text);
    }
    if (r == 0) {
        ensure(m->at == delivery_members_bytes(m->job->members));
        r = os_fsync(m->fd);
        r = r < 0 ? err_os(m->e, r, "sync", m->path) : 0;
    }
    if (r == 0) {
        (void)os_drop_range(m->fd, 0, m->at);
    }
    return r;
}

int package_merge(struct package_job *job, const char *package_id,
                  struct delivery_member_facts *facts, struct delivery_digests *whole,
                  char sha256[SHA256_HEX_LEN + 1], struct err *e)
{
    struct merge m = {.job = job, .e = e, .fd = -1};
    uint8_t digest[SHA256_LEN];
    int r = enough_room(&m);

    if (r == 0) {
        r = warc_zstd_open(&m.zstd, e);
    }
    if (r == 0) {
        r = open_payload(&m, package_id);
    }
    if (r == 0) {
        r = merge_all(&m, facts);
    }
    if (m.fd >= 0) {
        (void)os_close(m.fd); /* it was synced, or it goes */
    }
    warc_zstd_close(m.zstd);
    if (r == 0) {
        package_hashes_end(&m.whole, whole);
        sha256_end(&m.sha256, digest);
        memset(sha256, 0, SHA256_HEX_LEN + 1);
        hex_encode(sha256, digest, SHA256_LEN);
    }
    return r;
}
