/* directory: files into PLACE/IDENTIFIER/.
 *
 * For each file: what is there under its name is looked at first; then a copy to the temporary name
 * .tallyman-PACKAGE.part in the same folder, sync, rename; at the end one sync of the folder. A
 * verification opens each file by its name, drops its cached pages and reads it from the device.
 *
 * Invariants: a remote name never shows a part of a file, because the copy's size and MD5 were
 * ours, and its sync had returned, before the rename; what is there under a remote name is never
 * opened for writing, renamed onto or removed.
 *
 * If power fails, or the process is killed:
 *   after mkdir            the folder is there or not; its parent is synced by every send
 *   while copying          the temporary file is there; the next send removes it first
 *   after the rename       the file is there under its name with all its bytes, or still under the
 *                          temporary one; the next send finds out, and syncs file and folder
 *                          before it counts for delivered
 *   after the folder sync  it is there
 *
 * A sync of a file that fails costs its copy: it is made anew. A sync of a folder that fails is
 * asked again by the next send; file systems that lose a name that way take no more writes.
 *
 * Answers (verdicts): a fault of the destination, or of reading the local file, is RETRY: an absent
 * directory, no space, EIO, no permission. Local bytes that are missing or different, and another
 * file under a remote name, are PARKED: time does not mend them. */
#include "sink/directory.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/err.h"
#include "base/hash.h"
#include "os/os.h"

#define PATH_BYTES  6200
#define TEMP_BYTES  (64 + 32)
#define MODE_FOLDER 0755
#define MODE_FILE   0644
/* How far written pages may stay behind in the cache before they are waited for and dropped. */
#define BEHIND_BYTES (UINT64_C(8) << 20)
#define TELL_NS      UINT64_C(100000000)
#define OPEN_LOOK    (O_RDONLY | O_NOFOLLOW | O_NONBLOCK) /* a pipe there must not hold us up */

#define WAY_OUT_LOCAL "put the original bytes back and restart tallyman deliver"
#define WAY_OUT_NAME  "move the other file away and restart tallyman deliver"

/* Steps return true to go on; false: the verdict is in out. */
static bool say(struct artifact_verdict *out, enum artifact_outcome outcome, const char *way_out,
                const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static bool say(struct artifact_verdict *out, enum artifact_outcome outcome, const char *way_out,
                const char *fmt, ...)
{
    va_list ap;

    out->outcome = outcome;
    va_start(ap, fmt);
    (void)vsnprintf(out->text, sizeof out->text, fmt, ap);
    va_end(ap);
    (void)snprintf(out->way_out, sizeof out->way_out, "%s", way_out);
    return false;
}

static bool say_failed(struct artifact_verdict *out, int os_result, const char *what,
                       const char *path)
{
    struct err e = {0};

    ensure(os_result < 0);
    (void)err_os(&e, os_result, what, path);
    return say(out, ARTIFACT_RETRY, "", "%s", e.text);
}

static bool going_on(const struct artifact_job *job, struct artifact_verdict *out)
{
    return !job->stopping(job->ctx) || say(out, ARTIFACT_STOPPED, "", "the process ends");
}

struct paths {
    char folder[PATH_BYTES];
    char temp[PATH_BYTES + TEMP_BYTES];
    char file[PATH_BYTES + 1100];
};

static bool paths_begin(struct paths *p, const struct artifact_job *job,
                        struct artifact_verdict *out)
{
    int n = snprintf(p->folder, sizeof p->folder, "%s/%s", job->place, job->identifier);

    if (n < 0 || (size_t)n >= sizeof p->folder) {
        return say(out, ARTIFACT_PARKED, "give the project a shorter directory",
                   "the path of the destination is too long");
    }
    n = snprintf(p->temp, sizeof p->temp, "%s/.tallyman-%s.part", p->folder, job->package_id);
    ensure(n > 0);
    ensure((size_t)n < sizeof p->temp);
    return true;
}

static void path_of(struct paths *p, const struct artifact_file *f)
{
    int n = snprintf(p->file, sizeof p->file, "%s/%s", p->folder, f->name);

    ensure(n > 0);
    ensure((size_t)n < sizeof p->file);
}

/* ---- reading ---- */

/* MD5 of all f->size bytes of fd, in pieces, leaving nothing behind in the cache. *same: it is
 * f->md5, and the file ends there. */
static bool digest(const struct artifact_job *job, const struct artifact_file *f, int fd,
                   const char *path, bool *same, struct artifact_verdict *out)
{
    struct md5 h;
    uint8_t got[MD5_LEN];
    char hex[MD5_HEX_LEN];
    uint64_t at = 0;

    *same = false;
    md5_start(&h);
    for (;;) {
        int64_t n;
        if (!going_on(job, out)) {
            return false;
        }
        n = os_pread_full(fd, job->piece, ARTIFACT_PIECE_BYTES, at);
        if (n < 0) {
            return say_failed(out, (int)n, "read", path);
        }
        md5_add(&h, job->piece, (size_t)n);
        (void)os_drop_range(fd, at, (uint64_t)n);
        at += (uint64_t)n;
        if (n < (int64_t)ARTIFACT_PIECE_BYTES || at > f->size) {
            break;
        }
    }
    md5_end(&h, got);
    hex_encode(hex, got, sizeof got);
    *same = at == f->size && memcmp(hex, f->md5, MD5_HEX_LEN) == 0;
    return true;
}

enum found { FOUND_NOTHING, FOUND_OURS, FOUND_OTHER };

/* What is under the remote name, read from the device. */
static bool look(const struct artifact_job *job, const struct artifact_file *f, const char *path,
                 enum found *found, struct artifact_verdict *out)
{
    struct os_stat st;
    bool same = false;
    bool ok = true;
    int fd = os_open(path, OPEN_LOOK, 0);
    int r;

    *found = FOUND_OTHER;
    if (fd == -ENOENT) {
        *found = FOUND_NOTHING;
        return true;
    }
    if (fd == -ELOOP || fd == -ENXIO) {
        return true; /* a symbolic link; a socket */
    }
    if (fd < 0) {
        return say_failed(out, fd, "open", path);
    }
    r = os_fstat(fd, &st);
    if (r < 0) {
        ok = say_failed(out, r, "stat", path);
    } else if ((st.mode & S_IFMT) == S_IFREG && st.size == f->size) {
        /* Synced by us: a crash may have come between its rename and our knowing. */
        r = os_fsync(fd);
        if (r < 0) {
            ok = say_failed(out, r, "sync", path);
        } else {
            (void)os_drop_cache(fd);
            ok = digest(job, f, fd, path, &same, out);
        }
    }
    (void)os_close(fd);
    if (same) {
        *found = FOUND_OURS;
    }
    return ok;
}

static bool say_other(struct artifact_verdict *out, const char *path)
{
    return say(out, ARTIFACT_PARKED, WAY_OUT_NAME, "another file is at the destination: %s", path);
}

/* ---- copying ---- */

static bool open_source(const struct artifact_file *f, int *fd, struct artifact_verdict *out)
{
    struct os_stat st;
    int r;

    *fd = os_open(f->path, OPEN_LOOK, 0);
    if (*fd == -ENOENT || *fd == -ELOOP || *fd == -ENXIO) {
        return say(out, ARTIFACT_PARKED, WAY_OUT_LOCAL, "the local file is missing: %s", f->path);
    }
    if (*fd < 0) {
        return say_failed(out, *fd, "open", f->path);
    }
    r = os_fstat(*fd, &st);
    if (r == 0 && (st.mode & S_IFMT) == S_IFREG && st.size == f->size) {
        return true;
    }
    (void)os_close(*fd);
    *fd = -1;
    return r < 0 ? say_failed(out, r, "stat", f->path)
                 : say(out, ARTIFACT_PARKED, WAY_OUT_LOCAL,
                       "the local bytes differ from the receipt: %s has another size", f->path);
}

/* Says what is handed over to whoever looks, at most ten times a second and at a file's end. */
static void tell(const struct artifact_job *job, const struct artifact_file *f, uint64_t at,
                 uint64_t *told_ns)
{
    uint64_t now_ns, bytes = at;

    if (job->progress == NULL) {
        return;
    }
    now_ns = os_clock_mono_ns();
    if (at < f->size && *told_ns != 0 && now_ns < *told_ns + TELL_NS) {
        return;
    }
    *told_ns = now_ns;
    for (const struct artifact_file *before = job->file; before != f; before++) {
        bytes += before->size;
    }
    job->progress(job->ctx, bytes, f->name);
}

/* One piece written, the one BEHIND_BYTES before it on the disk and out of the cache: a copy must
 * not push the uploads' pages out, nor let dirty pages pile up for one long sync. */
static bool put_piece(const struct artifact_job *job, int fd, size_t n, uint64_t at,
                      const char *path, struct artifact_verdict *out)
{
    int r = os_pwrite_all(fd, job->piece, n, at, NULL);

    if (r < 0) {
        return say_failed(out, r, "write", path);
    }
    (void)os_write_back(fd, at, n, false);
    if (at >= BEHIND_BYTES) {
        (void)os_write_back(fd, at - BEHIND_BYTES, ARTIFACT_PIECE_BYTES, true);
        (void)os_drop_range(fd, at - BEHIND_BYTES, ARTIFACT_PIECE_BYTES);
    }
    out->bytes += n;
    return true;
}

static bool copy_bytes(const struct artifact_job *job, const struct artifact_file *f, int from,
                       int to, const char *path, struct artifact_verdict *out)
{
    struct md5 h;
    uint8_t got[MD5_LEN];
    char hex[MD5_HEX_LEN];
    uint64_t at = 0, told_ns = 0;

    md5_start(&h);
    while (at < f->size) {
        uint64_t left = f->size - at;
        size_t want = left < ARTIFACT_PIECE_BYTES ? (size_t)left : ARTIFACT_PIECE_BYTES;
        int64_t n;
        if (!going_on(job, out)) {
            return false;
        }
        n = os_pread_full(from, job->piece, want, at);
        if (n < 0) {
            return say_failed(out, (int)n, "read", f->path);
        }
        if ((size_t)n < want) {
            break; /* it became shorter: the digest says so */
        }
        md5_add(&h, job->piece, want);
        (void)os_drop_range(from, at, want);
        if (!put_piece(job, to, want, at, path, out)) {
            return false;
        }
        at += want;
        tell(job, f, at, &told_ns);
    }
    md5_end(&h, got);
    hex_encode(hex, got, sizeof got);
    if (at != f->size || memcmp(hex, f->md5, MD5_HEX_LEN) != 0) {
        return say(out, ARTIFACT_PARKED, WAY_OUT_LOCAL,
                   "the local bytes differ from the receipt: %s", f->path);
    }
    return true;
}

/* The whole copy under the temporary name, synced. */
static bool copy_temp(const struct artifact_job *job, const struct artifact_file *f, int from,
                      const char *path, struct artifact_verdict *out)
{
    int to = os_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, MODE_FILE);
    bool ok = true;
    int r;

    if (to < 0) {
        return say_failed(out, to, "create", path);
    }
    /* A hint, but that there is no room for all of it is known at once this way. */
    r = os_reserve(to, 0, f->size);
    if (r == -ENOSPC || r == -EDQUOT) {
        ok = say_failed(out, r, "reserve space for", path);
    }
    ok = ok && copy_bytes(job, f, from, to, path, out);
    if (ok) {
        r = os_fsync(to);
        ok = r == 0 || say_failed(out, r, "sync", path);
    }
    r = os_close(to);
    if (ok && r < 0) {
        ok = say_failed(out, r, "close", path); /* a network file system may tell only now */
    }
    return ok;
}

/* Gives the copy its name; -EEXIST when that is taken. Some file systems (FUSE, old NFS) cannot
 * refuse to replace: there, nothing was under the name a moment ago. */
static int name_it(const struct paths *p)
{
    int r = os_rename_new(p->temp, p->file);

    return r == -EINVAL || r == -ENOSYS ? os_rename(p->temp, p->file) : r;
}

static bool copy_file(const struct artifact_job *job, const struct artifact_file *f,
                      const struct paths *p, struct artifact_verdict *out)
{
    enum found found;
    int from = -1;
    bool ok = open_source(f, &from, out);
    int r;

    if (!ok) {
        return false;
    }
    ok = copy_temp(job, f, from, p->temp, out);
    (void)os_close(from);
    /* The copy took its time: nobody's file may have come there meanwhile. */
    ok = ok && look(job, f, p->file, &found, out);
    if (ok && found != FOUND_NOTHING) {
        ok = found == FOUND_OURS || say_other(out, p->file);
        (void)os_unlink(p->temp);
        return ok;
    }
    if (ok) {
        r = name_it(p);
        ok = r == 0 ||
             (r == -EEXIST ? say_other(out, p->file) : say_failed(out, r, "rename to", p->file));
    }
    if (!ok) {
        (void)os_unlink(p->temp); /* what cannot be removed now is removed by the next try */
    }
    return ok;
}

/* ---- the folder ---- */

/* No file of that name, and no link: whoever knows the object id, as its uploader does, could else
 * send the files to another place. That it is not there at all is for the caller to meet. */
static bool folder_is_one(const struct paths *p, struct artifact_verdict *out)
{
    int fd = os_open(p->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

    if (fd == -ENOTDIR || fd == -ELOOP) {
        return say_other(out, p->folder);
    }
    if (fd < 0) {
        return fd == -ENOENT || say_failed(out, fd, "open", p->folder);
    }
    (void)os_close(fd); /* read only */
    return true;
}

static bool place_there(const struct artifact_job *job, struct artifact_verdict *out)
{
    struct os_stat st;
    int r = os_stat(job->place, &st);

    if (r == 0 && (st.mode & S_IFMT) == S_IFDIR) {
        return true;
    }
    out->scope = ARTIFACT_PLACE;
    if (r < 0 && r != -ENOENT && r != -ENOTDIR) {
        return say_failed(out, r, "stat", job->place);
    }
    return say(out, ARTIFACT_RETRY, "", "the directory %s is not there", job->place);
}

static bool folder_made(const struct artifact_job *job, const struct paths *p,
                        struct artifact_verdict *out)
{
    int r;

    if (!place_there(job, out)) {
        return false;
    }
    r = os_mkdir(p->folder, MODE_FOLDER);
    if (r < 0 && r != -EEXIST) {
        out->scope = ARTIFACT_PLACE;
        return say_failed(out, r, "make", p->folder);
    }
    if (!folder_is_one(p, out)) {
        return false;
    }
    r = os_sync_dir(job->place);
    if (r < 0) {
        return say_failed(out, r, "sync", job->place);
    }
    r = os_unlink(p->temp); /* of a try that was interrupted */
    return r == 0 || r == -ENOENT || say_failed(out, r, "remove", p->temp);
}

/* ---- the adapter ---- */

static void directory_send(const struct artifact_job *job, struct artifact_verdict *out)
{
    struct paths p;
    bool copied = false;
    int r;

    memset(out, 0, sizeof *out);
    if (!paths_begin(&p, job, out) || !folder_made(job, &p, out)) {
        return;
    }
    for (unsigned i = 0; i < job->file_count; i++) {
        enum found found;
        path_of(&p, &job->file[i]);
        if (!look(job, &job->file[i], p.file, &found, out)) {
            return;
        }
        if (found == FOUND_OTHER) {
            (void)say_other(out, p.file);
            return;
        }
        if (found == FOUND_NOTHING) {
            if (!copy_file(job, &job->file[i], &p, out)) {
                return;
            }
            copied = true;
        }
    }
    r = os_sync_dir(p.folder);
    if (r < 0) {
        (void)say_failed(out, r, "sync", p.folder);
        return;
    }
    out->outcome = copied ? ARTIFACT_SENT : ARTIFACT_VERIFIED;
}

static void directory_verify(const struct artifact_job *job, struct artifact_verdict *out)
{
    struct paths p;

    memset(out, 0, sizeof *out);
    if (!paths_begin(&p, job, out) || !folder_is_one(&p, out)) {
        return;
    }
    for (unsigned i = 0; i < job->file_count; i++) {
        enum found found;
        path_of(&p, &job->file[i]);
        if (!look(job, &job->file[i], p.file, &found, out)) {
            return;
        }
        if (found == FOUND_NOTHING) {
            (void)say(out, ARTIFACT_RETRY, "", "it was sent and is not there any more: %s", p.file);
            return;
        }
        if (found == FOUND_OTHER) {
            (void)say_other(out, p.file);
            return;
        }
    }
    out->outcome = ARTIFACT_VERIFIED;
}

const struct artifact_adapter artifact_directory = {
    .name = "directory", .send = directory_send, .verify = directory_verify};
