/* os_vfs: a SQLite VFS that does every file operation through os/os.h, so that injected faults
 * (faults.h) and the model disk (modeldisk.h) reach the database of src/store.
 *
 * It behaves as SQLite's own unix VFS does on Linux, with the build options of Debian: fdatasync
 * for every sync, the directory synced once behind the first sync of a new journal or WAL (and, as
 * there, without looking at the result), ENOSPC alone is "disk full", a short write goes on,
 * POWERSAFE_OVERWRITE is claimed unless os_vfs_psow says otherwise, no memory mapping. Files
 * without a name (sorters, statement journals) are not durable and stay with the unix VFS.
 *
 * Locks and the WAL index live in the memory of this process, which is all there is. A test that
 * cuts the power plays several processes, one after the other or one inside the other's call: it
 * says so by os_vfs_process_new, and a file belongs to the process that opened it. */
#ifndef TESTS_LIB_OS_VFS_H
#define TESTS_LIB_OS_VFS_H

#include <stdbool.h>

/* Registers the VFS "os" and makes it the default. Once is enough, more does no harm. */
void os_vfs_register(void);
/* Makes the unix VFS the default again; what is open stays open. */
void os_vfs_unregister(void);

/* A process that shares nothing with those before begins; it is also SQLite's chance that begins
 * anew, from os_random. Returns the number of the process that ran. */
unsigned os_vfs_process_new(void);
/* Back to a process that was interrupted. */
void os_vfs_process_set(unsigned process);

/* Whether new files claim that a write leaves the bytes beside it alone (default: yes). */
void os_vfs_psow(bool claim);
/* Files open now, of all processes: 0 when a test has closed everything. */
unsigned os_vfs_open_files(void);

#endif
