/* Why not stdio: a failed write must be noticed once, kept, and mapped to an exit code, and every
 * write goes through os/ so that tests can fail it. A full pipe or a slow terminal blocks; a
 * non-blocking standard output (inherited from a careless parent) gives EAGAIN, which is waited out
 * in small steps. Only isatty asks the system beside os/.
 *
 * Conditions: a failed write of standard output is an answer (exit code); of standard error,
 * nothing. */
#include "main/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ensure.h"
#include "main/pause.h"
#include "os/os.h"

#define STDOUT_BUFFER  65536
#define LINE_MAX_BYTES 2048

static struct {
    char bytes[STDOUT_BUFFER];
    size_t len;
    int failed;    /* errno of the first failed write, 0 so far none */
    bool progress; /* a line of output_progress is on the screen */
} standard;

void output_guard_descriptors(void)
{
    /* Each is opened the wrong way round: using a descriptor that the caller had closed stays an
     * error. */
    static const int flags[3] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < 3; fd++) {
        struct os_stat st;
        if (os_fstat(fd, &st) == -EBADF) {
            (void)os_open("/dev/null", flags[fd], 0); /* takes the lowest free number, fd */
        }
    }
}

/* 0 or a positive errno. */
static int write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        int64_t r = os_write(fd, p, n);
        if (r == -EAGAIN) {
            pause_ms(5);
            continue;
        }
        if (r <= 0) {
            return r < 0 ? (int)-r : EIO;
        }
        ensure((size_t)r <= n);
        p += r;
        n -= (size_t)r;
    }
    return 0;
}

bool output_flush(void)
{
    if (standard.failed == 0 && standard.len > 0) {
        standard.failed = write_all(STDOUT_FILENO, standard.bytes, standard.len);
    }
    standard.len = 0;
    return standard.failed == 0;
}

void output_put(struct slice s)
{
    if (standard.failed != 0 || s.len == 0) {
        return;
    }
    if (s.len > sizeof standard.bytes - standard.len && !output_flush()) {
        return;
    }
    if (s.len >= sizeof standard.bytes) {
        standard.failed = write_all(STDOUT_FILENO, s.ptr, s.len);
        return;
    }
    memcpy(standard.bytes + standard.len, s.ptr, s.len);
    standard.len += s.len;
    ensure(standard.len <= sizeof standard.bytes);
}

void output_printf(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        standard.failed = standard.failed != 0 ? standard.failed : ENOMEM;
        return;
    }
    output_put(slice_of(text, (size_t)n));
    free(text);
}

int output_close(const char *verb, int code)
{
    if (output_flush()) {
        return code;
    }
    if (standard.failed == EPIPE) {
        return EXIT_PIPE;
    }
    output_error(verb, "cannot write to standard output: %s", strerror(standard.failed));
    return code == EXIT_DONE ? EXIT_FAILED : code;
}

/* Failures on standard error are ignored: there is nobody left to tell. */
static void write_stderr(struct slice s)
{
    (void)write_all(STDERR_FILENO, s.ptr, s.len);
}

void output_progress(struct slice line)
{
    if (standard.progress) {
        write_stderr(SLICE("\r\033[K"));
    }
    write_stderr(line);
    standard.progress = line.len > 0;
}

void output_error(const char *verb, const char *fmt, ...)
{
    (void)output_flush();
    output_progress(SLICE(""));
    char line[LINE_MAX_BYTES];
    int n = snprintf(line, sizeof line, "tallyman%s%s: ", verb[0] != '\0' ? " " : "", verb);
    ensure(n > 0);
    size_t at = (size_t)n;
    ensure(at < sizeof line - 1);
    va_list ap;
    va_start(ap, fmt);
    n = vsnprintf(line + at, sizeof line - 1 - at, fmt, ap);
    va_end(ap);
    size_t len = strlen(line);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[len] = '\n';
    write_stderr(slice_of(line, len + 1));
}

bool output_is_terminal(int fd)
{
    return isatty(fd) == 1;
}
