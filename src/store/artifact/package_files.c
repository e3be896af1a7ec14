/* package_files: the small steps of a build: names, digests, temporary files, their renames.
 *
 * Power failure: a name without PACKAGE_TEMP is that of a file which was whole and synced when it
 * got it; package_build.c says in which order the names are given.
 *
 * Answers: every failure, but of removing a temporary file: the next start tries that again. */
#include <errno.h>
#include <stdio.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/package_internal.h"
#include "store/artifact/upload_internal.h"

/* ---- digests ---- */

void package_hashes_start(struct package_hashes *h)
{
    blake3_start(&h->blake3);
    md5_start(&h->md5);
    sha1_start(&h->sha1);
}

void package_hashes_add(struct package_hashes *h, const void *p, size_t n)
{
    blake3_add(&h->blake3, p, n);
    md5_add(&h->md5, p, n);
    sha1_add(&h->sha1, p, n);
}

void package_hashes_end(struct package_hashes *h, struct delivery_digests *out)
{
    uint8_t digest[BLAKE3_LEN];

    memset(out, 0, sizeof *out);
    blake3_end(&h->blake3, digest);
    hex_encode(out->blake3, digest, BLAKE3_LEN);
    md5_end(&h->md5, digest);
    hex_encode(out->md5, digest, MD5_LEN);
    sha1_end(&h->sha1, digest);
    hex_encode(out->sha1, digest, SHA1_LEN);
}

void package_digests_of(struct slice text, struct delivery_digests *out)
{
    struct package_hashes h;

    package_hashes_start(&h);
    package_hashes_add(&h, text.ptr, text.len);
    package_hashes_end(&h, out);
}

/* ---- files ---- */

void package_path(char out[PACKAGE_PATH_BYTES], const char *data, const char *name)
{
    int n = snprintf(out, PACKAGE_PATH_BYTES, "%s/%s", data, name);

    ensure(n > 0);
    ensure(n < PACKAGE_PATH_BYTES);
}

void package_name(char out[DELIVERY_SOURCE_MAX], const char *prefix, const char *package_id,
                  const char *tail)
{
    int n =
        snprintf(out, DELIVERY_SOURCE_MAX, DELIVERY_PACKAGES "/%s%s%s", prefix, package_id, tail);

    ensure(n > 0);
    ensure(n < DELIVERY_SOURCE_MAX);
}

int package_text(const char *data, const char *name, size_t max, struct buf *out, struct err *e)
{
    char path[PACKAGE_PATH_BYTES];
    struct os_stat st;
    int64_t n = 0;
    int fd, r;

    buf_init(out, max + 1);
    package_path(path, data, name);
    fd = os_open(path, PACKAGE_OPEN_SOURCE, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "%s is not there", path);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    r = os_fstat(fd, &st);
    if (r < 0) {
        r = err_os(e, r, "stat", path);
    } else {
        size_t want = st.size < max ? (size_t)st.size + 1 : max + 1;
        r = buf_reserve(out, want) ? 0 : err_set(e, ERR_NO_MEMORY, "no memory to read %s", path);
        n = r == 0 ? os_pread_full(fd, out->ptr, want, 0) : 0;
        r = n < 0 ? err_os(e, (int)n, "read", path) : r;
    }
    (void)os_close(fd);
    out->len = r == 0 ? (size_t)n : 0;
    return r;
}

int package_write_temp(const char *data, const char *package_id, const char *tail,
                       struct slice text, struct err *e)
{
    char name[DELIVERY_SOURCE_MAX], path[PACKAGE_PATH_BYTES];
    int fd;
    int r;

    package_name(name, PACKAGE_TEMP, package_id, tail);
    package_path(path, data, name);
    fd = os_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        return err_os(e, fd, "create", path);
    }
    r = os_pwrite_all(fd, text.ptr, text.len, 0, NULL);
    if (r < 0) {
        r = err_os(e, r, "write", path);
    } else {
        r = os_fsync(fd);
        r = r < 0 ? err_os(e, r, "sync", path) : 0;
    }
    (void)os_close(fd);
    return r;
}

int package_rename_temp(const char *data, const char *package_id, const char *tail, struct err *e)
{
    char name[DELIVERY_SOURCE_MAX], from[PACKAGE_PATH_BYTES], to[PACKAGE_PATH_BYTES];
    int r;

    package_name(name, PACKAGE_TEMP, package_id, tail);
    package_path(from, data, name);
    package_name(name, "", package_id, tail);
    package_path(to, data, name);
    r = os_rename(from, to);
    return r < 0 ? err_os(e, r, "rename to", to) : 0;
}

int package_sync_folder(const char *data, struct err *e)
{
    char path[PACKAGE_PATH_BYTES];
    int r;

    package_path(path, data, DELIVERY_PACKAGES);
    r = os_sync_dir(path);
    return r < 0 ? err_os(e, r, "sync", path) : 0;
}

void package_remove(const char *data, const char *name, const atomic_bool *stop)
{
    char path[PACKAGE_PATH_BYTES];
    struct err ignored;
    int fd, r;

    package_path(path, data, name);
    fd = os_open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd == -ENOENT) {
        return;
    }
    r = fd < 0 ? 0 : upload_truncate_slowly(fd, stop, &ignored);
    if (fd >= 0) {
        (void)os_close(fd);
    }
    if (r != ERR_NOT_READY) {
        (void)os_unlink(path);
    }
}

void package_remove_temps(const struct package_job *job, const char *package_id)
{
    static const char *const tails[] = {DELIVERY_PAYLOAD_TAIL, DELIVERY_MANIFEST_TAIL,
                                        DELIVERY_PLAN_TAIL};
    char name[DELIVERY_SOURCE_MAX];

    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        package_name(name, PACKAGE_TEMP, package_id, tails[i]);
        package_remove(job->data, name, job->stop);
    }
}
