/* The file is PEM (PKCS#8), mode 0600. It is made once, at the first start, and never changed:
 *
 *   write head.key.tmp (new, 0600), sync, rename to head.key, sync the directory
 *
 * If power fails: before the rename there is at most head.key.tmp, which the next start removes and
 * makes anew; no head was signed with that key, since the server answers only behind the last step.
 * After the rename the file is whole, because its sync had returned; should the name itself be
 * lost, the next start finds none and makes another. Behind the last sync the key is there for
 * good.
 *
 * Refused, and the server then signs nothing: a file that others may read or write, a symbolic link
 * (it would lead out of the directory that we guard), anything that is no file, no PEM, or another
 * kind of key. A key is a secret; its text is wiped from memory behind every use. */
#include "door/history/head_key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "os/os.h"

#define KEY_BYTES_MAX 4096u
#define PATH_BYTES    4200

struct paths {
    char key[PATH_BYTES];
    char temp[PATH_BYTES];
};

static void forget(struct buf *secret)
{
    if (secret->ptr != NULL) {
        OPENSSL_cleanse(secret->ptr, secret->cap);
    }
    buf_free(secret);
}

static int read_key(int fd, struct ed25519_key **key, struct err *e)
{
    char text[KEY_BYTES_MAX];
    struct os_stat st;
    int r = os_fstat(fd, &st);
    int64_t n;

    if (r < 0) {
        return err_os(e, r, "stat", HEAD_KEY_FILE);
    }
    if (!S_ISREG(st.mode)) {
        return err_set(e, ERR_REFUSED, HEAD_KEY_FILE " is no file");
    }
    if ((st.mode & 077) != 0) {
        return err_set(e, ERR_REFUSED,
                       HEAD_KEY_FILE " is open to others (mode %04o): chmod 600, or remove it if "
                                     "they may have read it",
                       st.mode & 07777);
    }
    n = os_pread_full(fd, text, sizeof text, 0);
    if (n < 0) {
        return err_os(e, (int)n, "read", HEAD_KEY_FILE);
    }
    *key = (size_t)n < sizeof text ? ed25519_from_pem(slice_of(text, (size_t)n)) : NULL;
    OPENSSL_cleanse(text, sizeof text);
    return *key != NULL ? 0 : err_set(e, ERR_REFUSED, HEAD_KEY_FILE " holds no Ed25519 key in PEM");
}

/* The temporary file, whole and synced. */
static int write_temp(const struct paths *p, struct slice pem, struct err *e)
{
    int fd = os_open(p->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    int r;
    int closed;

    if (fd < 0) {
        return err_os(e, fd, "make", HEAD_KEY_FILE ".tmp");
    }
    r = os_pwrite_all(fd, pem.ptr, pem.len, 0, NULL);
    if (r == 0) {
        r = os_fsync(fd);
    }
    closed = os_close(fd);
    r = r != 0 ? r : closed;
    return r < 0 ? err_os(e, r, "write", HEAD_KEY_FILE ".tmp") : 0;
}

static int publish(const char *data, const struct paths *p, struct err *e)
{
    int r = os_rename(p->temp, p->key);

    if (r < 0) {
        return err_os(e, r, "rename", HEAD_KEY_FILE ".tmp");
    }
    r = os_sync_dir(data);
    return r < 0 ? err_os(e, r, "sync", "the data directory") : 0;
}

static int make_key(const char *data, const struct paths *p, struct ed25519_key **key,
                    struct err *e)
{
    struct buf pem = {0};
    int r = os_unlink(p->temp);

    if (r < 0 && r != -ENOENT) {
        return err_os(e, r, "remove", HEAD_KEY_FILE ".tmp");
    }
    *key = ed25519_new();
    /* Reserved in one piece, so that no copy of it stays behind in freed memory. */
    if (*key == NULL || !buf_reserve(&pem, KEY_BYTES_MAX) || !ed25519_put_pem(*key, &pem)) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for a key");
    } else {
        r = write_temp(p, buf_slice(&pem), e);
    }
    forget(&pem);
    if (r == 0) {
        r = publish(data, p, e);
    }
    if (r != 0) {
        ed25519_free(*key);
        *key = NULL;
    }
    return r;
}

int head_key_open(const char *data, struct ed25519_key **key, bool *made, struct err *e)
{
    struct paths p;
    int n = snprintf(p.temp, sizeof p.temp, "%s/" HEAD_KEY_FILE ".tmp", data);
    int fd;
    int r;

    ensure(n > 0);
    *key = NULL;
    *made = false;
    if ((size_t)n >= sizeof p.temp) {
        return err_set(e, ERR_USAGE, "the path of the data directory is too long");
    }
    (void)snprintf(p.key, sizeof p.key, "%s/" HEAD_KEY_FILE, data);
    /* O_NONBLOCK: a pipe there must not hold the start up. */
    fd = os_open(p.key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd == -ENOENT) {
        *made = true;
        return make_key(data, &p, key, e);
    }
    if (fd == -ELOOP) {
        return err_set(e, ERR_REFUSED, HEAD_KEY_FILE " is a symbolic link");
    }
    if (fd < 0) {
        return err_os(e, fd, "open", HEAD_KEY_FILE);
    }
    r = read_key(fd, key, e);
    (void)os_close(fd);
    return r;
}
