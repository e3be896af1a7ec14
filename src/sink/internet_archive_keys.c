/* internet_archive_keys: the key file. Two lines: the access key, the secret. Blanks around them
 * and CRs are not part of them, nor are empty lines at the end; anything else is refused, because a
 * key that is read wrongly looks like a revoked one, and stops everything that is sent with it.
 *
 * The keys never leave the process but in the Archive's requests: no text of ours has them. */
#include <errno.h>
#include <stdio.h>

#include "os/os.h"
#include "sink/internet_archive_internal.h"

#define FILE_BYTES_MAX 1024
#define OTHERS         077

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next line without its blanks. */
static struct slice next_line(struct slice *text)
{
    const char *end = text->len == 0 ? NULL : memchr(text->ptr, '\n', text->len);
    size_t n = end == NULL ? text->len : (size_t)(end - text->ptr);
    struct slice line = slice_of(text->ptr, n);

    *text = slice_from(*text, n + (end == NULL ? 0 : 1));
    while (line.len > 0 && is_blank(line.ptr[0])) {
        line = slice_from(line, 1);
    }
    while (line.len > 0 && is_blank(line.ptr[line.len - 1])) {
        line.len--;
    }
    return line;
}

/* One word of printable ASCII without a colon, which ends the access key in the header. */
static bool take_key(struct slice line, char out[ARCHIVE_KEY_MAX + 1])
{
    if (line.len == 0 || line.len > ARCHIVE_KEY_MAX) {
        return false;
    }
    for (size_t i = 0; i < line.len; i++) {
        if (line.ptr[i] <= ' ' || line.ptr[i] > '~' || line.ptr[i] == ':') {
            return false;
        }
    }
    memcpy(out, line.ptr, line.len);
    out[line.len] = '\0';
    return true;
}

static bool parse(struct slice text, struct archive_keys *out)
{
    bool ok = take_key(next_line(&text), out->access) && take_key(next_line(&text), out->secret);

    while (ok && text.len > 0) {
        ok = next_line(&text).len == 0;
    }
    return ok;
}

int archive_keys_read(const char *path, struct archive_keys *out, bool *open_to_others,
                      struct err *e)
{
    char text[FILE_BYTES_MAX + 1];
    struct os_stat st = {0};
    int64_t n;
    int r;
    int fd = os_open(path, O_RDONLY | O_NONBLOCK, 0);

    memset(out, 0, sizeof *out);
    *open_to_others = false;
    if (fd < 0) {
        r = err_os(e, fd, "open the key file", path);
        return fd == -ENOENT ? ERR_NOT_FOUND : r;
    }
    r = os_fstat(fd, &st);
    n = r < 0 ? r : os_pread_full(fd, text, sizeof text, 0);
    (void)os_close(fd);
    if (n < 0) {
        return err_os(e, (int)n, "read the key file", path);
    }
    *open_to_others = (st.mode & OTHERS) != 0;
    r = n <= FILE_BYTES_MAX && parse(slice_of(text, (size_t)n), out)
            ? 0
            : err_set(
                  e, ERR_USAGE,
                  "the key file %s must hold two lines, the access key and the secret, one word "
                  "each",
                  path);
    explicit_bzero(text, sizeof text);
    return r;
}
