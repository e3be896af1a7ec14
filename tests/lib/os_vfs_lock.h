/* os_vfs_lock: what the connections of one played process share about one database: file locks and
 * the WAL index. Private to os_vfs.c and os_vfs_lock.c. */
#ifndef TESTS_LIB_OS_VFS_LOCK_H
#define TESTS_LIB_OS_VFS_LOCK_H

#include <stdbool.h>

struct vfs_node;

/* What one open database file holds of its node. */
struct vfs_locks {
    struct vfs_node *node;              /* NULL: a file without locks */
    int level;                          /* SQLITE_LOCK_NONE ... */
    bool mapped;                        /* it has the WAL index */
    unsigned shm_shared, shm_exclusive; /* bits: its locks on the WAL index */
};

/* The node of a path in a process, made when it is not there. Aborts without memory. */
struct vfs_node *vfs_node_get(unsigned process, const char *path);
/* Gives up everything held. */
void vfs_locks_drop(struct vfs_locks *l);

/* SQLite's methods; results are SQLite's. */
int vfs_lock(struct vfs_locks *l, int level);
int vfs_unlock(struct vfs_locks *l, int level);
bool vfs_reserved(const struct vfs_locks *l);
/* With attach_only there must be an index already. */
int vfs_shm_map(struct vfs_locks *l, int region, int size, bool extend, bool attach_only,
                void volatile **out);
int vfs_shm_lock(struct vfs_locks *l, int offset, int n, int flags);
void vfs_shm_barrier(void);
void vfs_shm_unmap(struct vfs_locks *l);

#endif
