/* The first pass over a file: its size and BLAKE3, which the server asks for before the first byte.
 *
 * The second pass, when the bytes are sent, is not hashed again: the server does that, and refuses
 * (422) what changed between the two. Reading goes by pread, so that the descriptor has no position
 * that an interrupted upload could leave somewhere. Nothing is written. */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "main/interrupt.h"
#include "main/tus_client_internal.h"
#include "os/os.h"

static int check_file(const struct tus_content *c, const struct os_stat *st, struct err *e)
{
    if (!S_ISREG(st->mode)) {
        return err_set(e, ERR_USAGE, "%.200s: is no regular file", c->name);
    }
    if (st->size == 0) {
        return err_set(e, ERR_USAGE, "%.200s: is empty; there is nothing to hand over", c->name);
    }
    return 0;
}

static int read_all(const struct tus_content *c, struct blake3 *h, void *piece, struct err *e)
{
    struct progress progress;
    uint64_t at = 0;
    int r = 0;
    progress_start_silent(&progress, "hashing", c->size, 0);
    while (r == 0 && at < c->size) {
        uint64_t left = c->size - at;
        int64_t n =
            os_pread_full(c->fd, piece, left < TUS_BUFFER_BYTES ? left : TUS_BUFFER_BYTES, at);
        if (interrupt_came()) {
            r = err_set(e, ERR_REFUSED, "%.200s: stopped; nothing was sent", c->name);
        } else if (n < 0) {
            r = err_os(e, (int)n, "read", c->name);
        } else if (n == 0) {
            r = err_set(e, ERR_USAGE, "%.200s: became shorter while it was read", c->name);
        } else {
            blake3_add(h, piece, (size_t)n);
            at += (uint64_t)n;
            progress_update(&progress, at);
        }
    }
    progress_end();
    return r;
}

int tus_content_open(struct tus_content *c, const char *name, struct err *e)
{
    struct os_stat st;
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    *c = (struct tus_content){.fd = -1, .name = name};
    /* Non-blocking, so that a pipe without a writer is refused and not waited for. */
    int fd = os_open(name, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", name);
    }
    c->fd = fd;
    int r = os_fstat(fd, &st);
    r = r < 0 ? err_os(e, r, "stat", name) : check_file(c, &st, e);
    void *piece = r == 0 ? malloc(TUS_BUFFER_BYTES) : NULL;
    if (r == 0 && piece == NULL) {
        r = err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    if (r == 0) {
        c->size = st.size;
        c->mtime_ms = st.mtime_ms;
        blake3_start(&h);
        r = read_all(c, &h, piece, e);
    }
    free(piece);
    if (r != 0) {
        return r;
    }
    r = os_fstat(fd, &st);
    if (r < 0) {
        return err_os(e, r, "stat", name);
    }
    if (st.size != c->size || st.mtime_ms != c->mtime_ms) {
        return err_set(e, ERR_USAGE,
                       "%.200s: changed while it was read; hand it over when it is "
                       "finished",
                       name);
    }
    blake3_end(&h, digest);
    memcpy(c->checksum, TUS_CHECKSUM_PREFIX, sizeof TUS_CHECKSUM_PREFIX - 1);
    hex_encode(c->checksum + sizeof TUS_CHECKSUM_PREFIX - 1, digest, sizeof digest);
    ensure(c->checksum[TUS_CHECKSUM_LEN] == '\0');
    return 0;
}

void tus_content_close(struct tus_content *c)
{
    if (c->fd >= 0) {
        (void)os_close(c->fd); /* only read from */
    }
    c->fd = -1;
}
