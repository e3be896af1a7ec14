/* One secret and its rules (spec/history.md section 3: 1 to 4096 visible ASCII bytes, no spaces).
 */
#include "main/token.h"

#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"

#define FILE_MAX_BYTES (TOKEN_MAX + 256) /* the token and some white space around it */

bool token_valid(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] <= 0x20 || s.ptr[i] >= 0x7f) {
            return false;
        }
    }
    return s.len >= 1 && s.len <= TOKEN_MAX;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct slice trim(struct slice s)
{
    while (s.len > 0 && is_space(s.ptr[0])) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && is_space(s.ptr[s.len - 1])) {
        s.len--;
    }
    return s;
}

/* Reads to the end (pipes too, as a shell's <(...) gives); more than FILE_MAX_BYTES is only known
 * to be too much. */
static int read_file(int fd, const char *path, char *text, size_t *len, struct err *e)
{
    *len = 0;
    while (*len <= FILE_MAX_BYTES) {
        int64_t n = os_read(fd, text + *len, FILE_MAX_BYTES + 1 - *len);
        if (n < 0) {
            (void)err_os(e, (int)n, "read token file", path);
            return ERR_USAGE;
        }
        if (n == 0) {
            break;
        }
        *len += (size_t)n;
    }
    return 0;
}

int token_from_file(const char *path, struct buf *out, struct err *e)
{
    ensure(out->len == 0);
    char text[FILE_MAX_BYTES + 1];
    size_t len = 0;
    int fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        (void)err_os(e, fd, "open token file", path);
        return ERR_USAGE;
    }
    struct os_stat st;
    if (os_fstat(fd, &st) == 0 && S_ISREG(st.mode) && (st.mode & 077) != 0) {
        log_line(LOG_WARN, "config", "token file %s can be read by others (mode %03o)", path,
                 st.mode & 0777u);
    }
    int r = read_file(fd, path, text, &len, e);
    (void)os_close(fd);
    if (r == 0) {
        struct slice token = trim(slice_of(text, len));
        if (len > FILE_MAX_BYTES || !token_valid(token)) {
            r = err_set(e, ERR_USAGE,
                        "token file %s: the token must be 1 to %d visible ASCII characters", path,
                        TOKEN_MAX);
        } else {
            buf_put_slice(out, token);
            r = out->failed ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
        }
    }
    explicit_bzero(text, sizeof text);
    return r;
}

void token_forget(struct buf *token)
{
    if (token->ptr != NULL) {
        explicit_bzero(token->ptr, token->cap);
    }
    buf_free(token);
}
