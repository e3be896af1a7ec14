/* os: the replaceable table of system calls, the wrappers around it, and a few composites.
 *
 * One plain pointer names the table in force. It is written by os_install() only, before other
 * threads start (tests install the model disk or a fault-injecting table; the daemon never installs
 * anything), so the wrappers may read it without atomics: a call costs one load and one indirect
 * jump beside the system call itself.
 *
 * Power failure: nothing here is durable by itself. os_pwrite_all() leaves any subset of its bytes
 * on the disk until the caller's os_fdatasync(); os_sync_dir() has made the directory's entries
 * durable when, and only when, it returned 0.
 *
 * Answers: every failure is returned as a negative errno; what it means (an answer, or poison) is
 * the caller's to say. Aborts: a table that reports more bytes than it was given is a bug, not an
 * input. */
#include "os/os.h"

#include <errno.h>
#include <sys/stat.h>

#include "base/ensure.h"

static const struct os_table *table_in_force = &os_real;

void os_install(const struct os_table *table)
{
    table_in_force = table != NULL ? table : &os_real;
}

const struct os_table *os_current(void)
{
    return table_in_force;
}

#define X(ret, name, params, args)        \
    ret os_##name params                  \
    {                                     \
        return table_in_force->name args; \
    }
OS_FILE_CALLS(X)
OS_OTHER_CALLS(X)
#undef X

int os_pwrite_all(int fd, const void *p, size_t n, uint64_t offset, size_t *written)
{
    const char *bytes = p;
    size_t done = 0;
    int result = 0;

    while (done < n) {
        int64_t put = os_pwrite(fd, bytes + done, n - done, offset + done);

        if (put <= 0) {
            /* A write that makes no progress and gives no reason would be tried for ever: it is an
             * error. */
            result = put < 0 ? (int)put : -EIO;
            break;
        }
        ensure((uint64_t)put <= n - done);
        done += (size_t)put;
    }
    if (written != NULL) {
        *written = done;
    }
    return result;
}

int64_t os_pread_full(int fd, void *p, size_t n, uint64_t offset)
{
    char *bytes = p;
    size_t done = 0;

    while (done < n) {
        int64_t got = os_pread(fd, bytes + done, n - done, offset + done);

        if (got < 0) {
            return got;
        }
        if (got == 0) {
            break;
        }
        ensure((uint64_t)got <= n - done);
        done += (size_t)got;
    }
    return (int64_t)done;
}

int os_sync_dir(const char *path)
{
    int fd = os_open(path, O_RDONLY | O_DIRECTORY, 0);
    int result;
    int closed;

    if (fd < 0) {
        return fd;
    }
    result = os_fsync(fd);
    closed = os_close(fd);
    return result != 0 ? result : closed;
}

int os_mkdir_exist_ok(const char *path, unsigned mode)
{
    struct os_stat st;
    int result = os_mkdir(path, mode);

    if (result != -EEXIST) {
        return result;
    }
    /* Something of that name is there: only a directory will do. */
    result = os_stat(path, &st);
    if (result != 0) {
        return result;
    }
    return S_ISDIR(st.mode) ? 0 : -ENOTDIR;
}
