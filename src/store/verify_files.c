/* verify_files: the database's files, read as files: what of them changes when a server comes,
 * works or goes, and what they say before SQLite is asked.
 *
 * A descriptor that is closed here takes the locks with it which this process has on the file, so
 * that nothing here is called while the database is open.
 *
 * Power failure: nothing is written. Answers: all errors. Stops, aborts: none. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "os/os.h"
#include "store/verify_internal.h"

static int look_at(const char *path, const char *suffix, struct os_stat *st, unsigned char *head,
                   size_t n, bool *there, struct err *e)
{
    char name[VERIFY_PATH_MAX];
    int length = snprintf(name, sizeof name, "%s%s", path, suffix);
    memset(st, 0, sizeof *st);
    *there = false;
    if (length < 0 || (size_t)length >= sizeof name) {
        return err_set(e, ERR_IO, "the path of %s%s is too long", path, suffix);
    }
    int fd = os_open(name, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", name);
    }
    int64_t r = os_fstat(fd, st);
    r = r == 0 ? os_pread_full(fd, head, n, 0) : r;
    (void)os_close(fd); /* read only */
    *there = r >= 0;
    return r < 0 ? err_os(e, (int)r, "read", name) : 0;
}

int verify_sign(const char *path, struct verify_signature *s, struct err *e)
{
    struct os_stat st;
    memset(s, 0, sizeof *s);
    int r = look_at(path, "", &st, s->db_head, sizeof s->db_head, &s->db, e);
    s->db_size = st.size;
    s->inode = st.inode;
    if (r == 0) {
        r = look_at(path, "-wal", &st, s->wal_head, sizeof s->wal_head, &s->wal, e);
        s->wal_size = st.size;
    }
    if (r == 0) {
        r = look_at(path, "-journal", &st, s->journal_head, sizeof s->journal_head, &s->journal, e);
        s->journal_size = st.size;
    }
    return r;
}

bool verify_files(struct verify_run *v, const struct verify_signature *s)
{
    static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    static const unsigned char none[4];
    if (s->db_size == 0) {
        if (s->wal_size > 0) {
            verify_tell(v, VERIFY_KIND_DAMAGE, "%s is %s, but there is a WAL beside it", v->name,
                        s->db ? "empty" : "missing");
        }
        v->result->absent = s->wal_size == 0;
        return true;
    }
    /* Who may write and who may read it: 1 rollback mode, 2 a write-ahead log. With anything else
     * SQLite reads it, as a database that nobody may write. */
    for (unsigned i = 18; i <= 19; i++) {
        if (s->db_head[i] < 1 || s->db_head[i] > 2) {
            verify_tell(v, VERIFY_KIND_DAMAGE, "byte %u of %s (its format) is %u, not 1 or 2", i,
                        v->name, s->db_head[i]);
        }
    }
    /* The database is made in rollback mode, as one transaction over an empty file. */
    if (s->journal_size < sizeof s->journal_head ||
        memcmp(s->journal_head, magic, sizeof magic) != 0) {
        return false;
    }
    if (memcmp(s->journal_head + 16, none, sizeof none) == 0) {
        v->result->absent = true;
        return true;
    }
    verify_tell(v, VERIFY_KIND_DAMAGE,
                "%s-journal is a rollback journal that must be played back; a start does that",
                v->name);
    return true;
}
