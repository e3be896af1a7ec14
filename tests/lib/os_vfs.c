/* os_vfs: the methods of the VFS; see the header. After SQLite's os_unix.c (3.40), which says what
 * each error becomes. The store must cope with exactly these, also where they are unfortunate: a
 * directory whose sync fails is passed over, EDQUOT is an I/O error. */
#include "tests/lib/os_vfs.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "os/os.h"
#include "tests/lib/os_vfs_lock.h"

#define PATH_MAX_BYTES 512

struct vfs_file {
    struct sqlite3_file base;
    int fd;
    int last_error;
    bool psow;
    bool persist_wal;
    bool sync_directory;  /* a new journal's name is not durable yet */
    bool shm_attach_only; /* readonly_shm=1 in its URI */
    struct vfs_locks locks;
    char path[PATH_MAX_BYTES];
};

static struct sqlite3_vfs *unix_vfs;
static _Atomic unsigned process_now = 1;
static _Atomic unsigned process_last = 1;
static _Atomic unsigned open_files;
static _Atomic int last_error;
static _Atomic bool psow_claimed = true;

static struct vfs_file *file_of(struct sqlite3_file *f)
{
    return (struct vfs_file *)f;
}

static int failed(struct vfs_file *f, int64_t error, int code)
{
    f->last_error = (int)-error;
    last_error = (int)-error;
    return code;
}

/* ---- files ---- */

static int vfs_close(struct sqlite3_file *base)
{
    struct vfs_file *f = file_of(base);
    vfs_locks_drop(&f->locks);
    if (f->fd >= 0) {
        (void)os_close(f->fd); /* nothing hangs on it, and the unix VFS does not ask either */
        f->fd = -1;
        open_files--;
    }
    return SQLITE_OK;
}

static int vfs_read(struct sqlite3_file *base, void *to, int n, sqlite3_int64 offset)
{
    struct vfs_file *f = file_of(base);
    int64_t got = os_pread_full(f->fd, to, (size_t)n, (uint64_t)offset);
    if (got == n) {
        return SQLITE_OK;
    }
    if (got < 0) {
        bool corrupt = got == -ERANGE || got == -EIO || got == -ENXIO;
        return failed(f, got, corrupt ? SQLITE_IOERR_CORRUPTFS : SQLITE_IOERR_READ);
    }
    memset((char *)to + got, 0, (size_t)(n - got));
    return SQLITE_IOERR_SHORT_READ;
}

static int vfs_write(struct sqlite3_file *base, const void *from, int n, sqlite3_int64 offset)
{
    struct vfs_file *f = file_of(base);
    size_t done = 0;
    while (done < (size_t)n) {
        int64_t put =
            os_pwrite(f->fd, (const char *)from + done, (size_t)n - done, (uint64_t)offset + done);
        if (put <= 0) {
            bool full = put == 0 || put == -ENOSPC;
            return failed(f, put, full ? SQLITE_FULL : SQLITE_IOERR_WRITE);
        }
        done += (size_t)put;
    }
    return SQLITE_OK;
}

static int vfs_truncate(struct sqlite3_file *base, sqlite3_int64 size)
{
    struct vfs_file *f = file_of(base);
    int r = os_ftruncate(f->fd, (uint64_t)size);
    return r == 0 ? SQLITE_OK : failed(f, r, SQLITE_IOERR_TRUNCATE);
}

static void directory_of(const char *path, char out[PATH_MAX_BYTES])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash != NULL && slash != path ? (size_t)(slash - path) : 1;
    memcpy(out, path, n);
    out[n] = '\0';
}

static int vfs_sync(struct sqlite3_file *base, int flags)
{
    struct vfs_file *f = file_of(base);
    char directory[PATH_MAX_BYTES];
    (void)flags;
    int r = os_fdatasync(f->fd);
    if (r != 0) {
        return failed(f, r, SQLITE_IOERR_FSYNC);
    }
    if (f->sync_directory) {
        directory_of(f->path, directory);
        (void)os_sync_dir(directory); /* so the unix VFS */
        f->sync_directory = false;
    }
    return SQLITE_OK;
}

static int vfs_file_size(struct sqlite3_file *base, sqlite3_int64 *out)
{
    struct vfs_file *f = file_of(base);
    struct os_stat st;
    int r = os_fstat(f->fd, &st);
    if (r != 0) {
        return failed(f, r, SQLITE_IOERR_FSTAT);
    }
    *out = (sqlite3_int64)st.size;
    return SQLITE_OK;
}

static int vfs_file_lock(struct sqlite3_file *base, int level)
{
    return vfs_lock(&file_of(base)->locks, level);
}

static int vfs_file_unlock(struct sqlite3_file *base, int level)
{
    return vfs_unlock(&file_of(base)->locks, level);
}

static int vfs_check_reserved(struct sqlite3_file *base, int *out)
{
    *out = vfs_reserved(&file_of(base)->locks);
    return SQLITE_OK;
}

static void flag_control(bool *flag, int *arg)
{
    if (*arg < 0) {
        *arg = *flag;
    } else {
        *flag = *arg != 0;
    }
}

static int vfs_control(struct sqlite3_file *base, int op, void *arg)
{
    struct vfs_file *f = file_of(base);
    switch (op) {
    case SQLITE_FCNTL_LOCKSTATE:
        *(int *)arg = f->locks.level;
        return SQLITE_OK;
    case SQLITE_FCNTL_LAST_ERRNO:
        *(int *)arg = f->last_error;
        return SQLITE_OK;
    case SQLITE_FCNTL_PERSIST_WAL:
        flag_control(&f->persist_wal, arg);
        return SQLITE_OK;
    case SQLITE_FCNTL_POWERSAFE_OVERWRITE:
        flag_control(&f->psow, arg);
        return SQLITE_OK;
    case SQLITE_FCNTL_HAS_MOVED:
        *(int *)arg = 0;
        return SQLITE_OK;
    case SQLITE_FCNTL_SIZE_HINT:
        return SQLITE_OK;
    case SQLITE_FCNTL_VFSNAME:
        *(char **)arg = sqlite3_mprintf("os");
        return SQLITE_OK;
    default:
        return SQLITE_NOTFOUND;
    }
}

static int vfs_sector_size(struct sqlite3_file *base)
{
    (void)base;
    return 4096;
}

static int vfs_characteristics(struct sqlite3_file *base)
{
    return file_of(base)->psow ? SQLITE_IOCAP_POWERSAFE_OVERWRITE : 0;
}

static int vfs_map(struct sqlite3_file *base, int region, int size, int extend, void volatile **out)
{
    struct vfs_file *f = file_of(base);
    return vfs_shm_map(&f->locks, region, size, extend != 0, f->shm_attach_only, out);
}

static int vfs_index_lock(struct sqlite3_file *base, int offset, int n, int flags)
{
    return vfs_shm_lock(&file_of(base)->locks, offset, n, flags);
}

static void vfs_barrier(struct sqlite3_file *base)
{
    (void)base;
    vfs_shm_barrier();
}

static int vfs_unmap(struct sqlite3_file *base, int delete)
{
    (void)delete;
    vfs_shm_unmap(&file_of(base)->locks);
    return SQLITE_OK;
}

static const struct sqlite3_io_methods methods = {
    .iVersion = 2, /* no xFetch: nothing is mapped */
    .xClose = vfs_close,
    .xRead = vfs_read,
    .xWrite = vfs_write,
    .xTruncate = vfs_truncate,
    .xSync = vfs_sync,
    .xFileSize = vfs_file_size,
    .xLock = vfs_file_lock,
    .xUnlock = vfs_file_unlock,
    .xCheckReservedLock = vfs_check_reserved,
    .xFileControl = vfs_control,
    .xSectorSize = vfs_sector_size,
    .xDeviceCharacteristics = vfs_characteristics,
    .xShmMap = vfs_map,
    .xShmLock = vfs_index_lock,
    .xShmBarrier = vfs_barrier,
    .xShmUnmap = vfs_unmap,
};

/* ---- names ---- */

/* Opens, with the unix VFS's second try: for reading alone. */
static int open_path(const char *name, int *flags)
{
    bool exclusive = (*flags & SQLITE_OPEN_EXCLUSIVE) != 0;
    bool create = (*flags & SQLITE_OPEN_CREATE) != 0;
    bool write = (*flags & SQLITE_OPEN_READWRITE) != 0;
    int fd = os_open(name,
                     (write ? O_RDWR : O_RDONLY) | (create ? O_CREAT : 0) |
                         (exclusive ? O_EXCL | O_NOFOLLOW : 0),
                     0644);
    if (fd < 0 && fd != -EISDIR && write) {
        last_error = -fd;
        fd = os_open(name, O_RDONLY, 0);
        *flags = (*flags & ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) | SQLITE_OPEN_READONLY;
    }
    return fd;
}

static int vfs_open(struct sqlite3_vfs *vfs, const char *name, struct sqlite3_file *base, int flags,
                    int *flags_out)
{
    struct vfs_file *f = file_of(base);
    (void)vfs;
    if (name == NULL) {
        return unix_vfs->xOpen(unix_vfs, name, base, flags, flags_out);
    }
    memset(f, 0, sizeof *f);
    if (strlen(name) >= sizeof f->path) {
        return SQLITE_CANTOPEN;
    }
    int journal = SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;
    bool create = (flags & SQLITE_OPEN_CREATE) != 0;
    f->fd = open_path(name, &flags);
    if (f->fd < 0) {
        return failed(f, f->fd, SQLITE_CANTOPEN);
    }
    open_files++;
    memcpy(f->path, name, strlen(name) + 1);
    f->psow = psow_claimed;
    f->sync_directory = create && (flags & journal) != 0;
    if ((flags & SQLITE_OPEN_MAIN_DB) != 0) {
        f->locks.node = vfs_node_get(process_now, name);
        f->shm_attach_only = sqlite3_uri_boolean(name, "readonly_shm", 0) != 0;
    }
    if (flags_out != NULL) {
        *flags_out = flags;
    }
    f->base.pMethods = &methods;
    return SQLITE_OK;
}

static int vfs_delete(struct sqlite3_vfs *vfs, const char *name, int sync_directory)
{
    char directory[PATH_MAX_BYTES];
    (void)vfs;
    int r = os_unlink(name);
    if (r != 0) {
        last_error = -r;
        return r == -ENOENT ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE;
    }
    if ((sync_directory & 1) != 0) {
        directory_of(name, directory);
        int fd = os_open(directory, O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0) {
            return SQLITE_OK; /* so the unix VFS: what cannot be opened is passed over */
        }
        r = os_fsync(fd);
        (void)os_close(fd);
        last_error = -r;
        return r == 0 ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
    }
    return SQLITE_OK;
}

static int vfs_access(struct sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    struct os_stat st;
    (void)vfs;
    int r = os_stat(name, &st);
    /* An empty file counts as none where it is asked for being there. */
    *out = r == 0 && (flags != SQLITE_ACCESS_EXISTS || !S_ISREG(st.mode) || st.size > 0);
    return SQLITE_OK;
}

static int vfs_full_name(struct sqlite3_vfs *vfs, const char *name, int n, char *out)
{
    (void)vfs;
    ensure(name[0] == '/');
    int length = snprintf(out, (size_t)n, "%s", name);
    return length < n ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int vfs_randomness(struct sqlite3_vfs *vfs, int n, char *out)
{
    (void)vfs;
    ensure(os_random(out, (size_t)n) == 0);
    return n;
}

static int vfs_sleep(struct sqlite3_vfs *vfs, int microseconds)
{
    (void)vfs;
    return microseconds; /* nobody else runs who could change anything meanwhile */
}

static int vfs_time_ms(struct sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    (void)vfs;
    /* Milliseconds since noon in Greenwich on November 24, 4714 B.C. */
    *out = (sqlite3_int64)os_clock_real_ms() + INT64_C(210866760000000);
    return SQLITE_OK;
}

static int vfs_time(struct sqlite3_vfs *vfs, double *out)
{
    sqlite3_int64 ms;
    int r = vfs_time_ms(vfs, &ms);
    *out = (double)ms / 86400000.0;
    return r;
}

static int vfs_last_error(struct sqlite3_vfs *vfs, int n, char *out)
{
    (void)vfs;
    (void)n;
    (void)out;
    return last_error;
}

/* ---- registering, processes ---- */

static struct sqlite3_vfs os_vfs = {
    .iVersion = 2,
    .mxPathname = PATH_MAX_BYTES - 16,
    .zName = "os",
    .xOpen = vfs_open,
    .xDelete = vfs_delete,
    .xAccess = vfs_access,
    .xFullPathname = vfs_full_name,
    .xRandomness = vfs_randomness,
    .xSleep = vfs_sleep,
    .xCurrentTime = vfs_time,
    .xGetLastError = vfs_last_error,
    .xCurrentTimeInt64 = vfs_time_ms,
};

void os_vfs_register(void)
{
    if (unix_vfs == NULL) {
        unix_vfs = sqlite3_vfs_find("unix");
        ensure(unix_vfs != NULL);
        os_vfs.szOsFile = (int)sizeof(struct vfs_file);
        if (unix_vfs->szOsFile > os_vfs.szOsFile) {
            os_vfs.szOsFile = unix_vfs->szOsFile;
        }
    }
    ensure(sqlite3_vfs_register(&os_vfs, 1) == SQLITE_OK);
}

void os_vfs_unregister(void)
{
    ensure(unix_vfs != NULL);
    ensure(sqlite3_vfs_register(unix_vfs, 1) == SQLITE_OK);
}

unsigned os_vfs_process_new(void)
{
    unsigned before = process_now;
    process_now = ++process_last;
    sqlite3_randomness(0, NULL);
    return before;
}

void os_vfs_process_set(unsigned process)
{
    process_now = process;
    sqlite3_randomness(0, NULL);
}

void os_vfs_psow(bool claim)
{
    psow_claimed = claim;
}

unsigned os_vfs_open_files(void)
{
    return open_files;
}
