/* faults: a table of system calls that fails on purpose.
 *
 * It wraps any table (the kernel's, or the model disk's) and lets every call through but the one
 * that a test has armed. Meant for exhaustive single-fault tests, in the manner of SQLite and curl:
 *
 *     faults_install(NULL);                   wrap the table in force
 *     run_scenario();                         once without a fault, to learn how many calls it
 * makes uint64_t calls = faults_count(); for (uint64_t k = 1; k <= calls; k++) { faults_reset();
 * count from 1 again, nothing armed faults_arm(k, EIO, false, FAULT_ERROR); run_scenario(); must
 * not crash, leak or lie assert_int_equal(faults_fired(), 1);
 *     }
 *     faults_uninstall();
 *
 * Counted are the file calls (OS_FILE_CALLS), in the order they are made; faults_count_only()
 * narrows that to one call and a part of a path, and widens it to calls on sockets. Calls on a
 * descriptor have the path that os_open was given. Clock readings cannot fail and are never
 * counted.
 *
 * A wrapped fdatasync that fails does not reach the table below: the pages stay dirty. For the
 * kernel's way of failing (pages marked clean, bytes lost) arm the fault in the model disk:
 * model_fault_arm().
 *
 * Thread-safe; a test that counts calls should still keep to one thread, or the k-th call is
 * another one each time. */
#ifndef TESTS_LIB_FAULTS_H
#define TESTS_LIB_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/os.h"

/* One constant for each system call: OS_CALL_open, OS_CALL_close, ... */
enum os_call {
    OS_CALL_ANY, /* in a filter: every file call */
#define X(ret, name, params, args) OS_CALL_##name,
    OS_FILE_CALLS(X) OS_CALL_FILE_END,
    OS_OTHER_CALLS(X)
#undef X
        OS_CALL_COUNT
};

const char *os_call_name(enum os_call call);

enum fault_kind {
    FAULT_ERROR,       /* the call is not made, the errno is returned */
    FAULT_ERROR_AFTER, /* the call is made, the errno is returned all the same: outcome unknown */
    FAULT_SHORT,       /* reads and writes: half of the bytes, rounded up; other calls: no fault */
    FAULT_ZERO,        /* the call is not made and returns 0: a full stop, or a sync that lies */
};

struct fault {
    enum fault_kind kind;
    int error;         /* positive errno, for the first two kinds */
    bool sticky;       /* every match from the at-th on, not just that one */
    uint64_t at;       /* fires at the at-th match, counted from 1; 0 is never */
    enum os_call call; /* what matches; OS_CALL_ANY is every file call */
    const char *path;  /* part of the path, borrowed; NULL matches all */
    uint64_t seen;     /* matches so far (fault_hit counts) */
    uint64_t fired;    /* faults so far */
};

/* Counts a call against a fault; true when the fault fires on it. path may be NULL. */
bool fault_hit(struct fault *fault, enum os_call call, const char *path);

/* Wraps `under` (NULL: the table in force) and installs the wrapper, nothing armed, count 0. */
void faults_install(const struct os_table *under);
/* Installs the wrapped table again. */
void faults_uninstall(void);

/* Disarms and counts from 1 again; the filter of faults_count_only stays. */
void faults_reset(void);
/* Counts only calls of this kind (OS_CALL_ANY: all file calls) whose path contains `path` (NULL:
 * all). */
void faults_count_only(enum os_call call, const char *path);
/* Arms the call_number-th counted call. One fault at a time; replaces the one armed before. */
void faults_arm(uint64_t call_number, int error, bool sticky, enum fault_kind kind);

uint64_t faults_count(void); /* counted calls since install or reset */
uint64_t faults_fired(void); /* how often the armed fault has struck */
/* fn is called at each counted call; NULL: no more. faults_install takes it off. */
void faults_watch(void (*fn)(void));
/* The last call that it struck and the file: "fsync /m/data/x"; "" when none. */
void faults_struck(char *out, size_t n);

#endif
