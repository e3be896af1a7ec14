/* modeldisk: a disk in memory whose power can be cut, with a virtual clock and seeded chance.
 *
 * It answers every call of OS_FILE_CALLS, and the clock and random calls, below one virtual root
 * ("/m" unless told otherwise). A run is a function of its options and its calls: same seed, same
 * run.
 *
 * WHAT SURVIVES A POWER CUT. Everything the program does lands in the page cache, where it reads
 * its own writes. What the disk holds changes by syncs only; until then each change is a pending
 * item: data   one sector of one pwrite (512 bytes, optional 4096). On a crash each is old or new
 * by itself, in any combination; a sector is never torn unless asked (model_torn). A sector written
 * twice has two items: the disk may hold either version or the old one. size   a change of a file's
 * length, by ftruncate or by a pwrite past the end. The sizes of one file land in order,
 * independent of data: a file may come back long with zeros for its new bytes, or short with its
 * new bytes lost. Bytes past the final size read as zeros if it grows again. entry  create, mkdir,
 * unlink, rename: one item each, so a rename is atomic, across directories too (as journalling file
 * systems do it, in one transaction). fdatasync and fsync of a file land its data and sizes, and
 * say nothing about its name. fsync of a directory lands the entries that touch that directory, and
 * those they depend on; a rename between two directories lands when either is synced. So a synced
 * file vanishes when its new name was not synced. Unsynced entries land as MODEL_REORDERED
 * (default) any subset in which no entry lands without an earlier one about the same name (a create
 * before the rename of what it made); MODEL_ORDERED    in each directory a prefix, as journals do.
 * The model promises no more than POSIX: no order between files, nor between data and names.
 *
 * A CRASH TEST either cuts the power at every call of one run, from a hook:
 *
 *     static void cut(void *ctx, struct model *m, const struct model_call *call)
 *     {
 *         struct model_crashes it;
 *         struct model *after;
 *
 *         model_crashes_begin(&it, m, 8, 64, seed ^ call->number);   all subsets of up to 8 items,
 * else 64 while ((after = model_crashes_next(&it)) != NULL) { model_use(after);              new
 * process: no descriptors, no locks, cold cache check_recovery(ctx);           open the journal,
 * compare with what was acknowledged model_free(after);
 *         }
 *         model_use(m);                      back to the run
 *     }
 *     model_set_hook(m, cut, ctx);
 *
 * or runs the scenario once for each k with model_die_at(m, k): from the k-th call on everything
 * fails with EIO and the disk stands still; the test unwinds, then crashes `m` as above. Crash
 * again during check_recovery (a hook on `after`) to go three deep. When a state fails, print
 * model_trace_print(), model_pending_print() and it.text, and keep the seed.
 *
 * A SYNC THAT FAILS (model_fault_arm with OS_CALL_fdatasync or fsync, FAULT_ERROR) does what Linux
 * does: the pending data is forgotten though the cache still shows it, the next sync succeeds, and
 * a crash or os_drop_cache brings the old bytes back. FAULT_ZERO on a sync is a lying disk, once or
 * sticky.
 *
 * Thread-safe (one lock over all models), but for model_use and a hook that uses other models:
 * those want the run to be alone. At most one model is in use at a time. Running out of memory and
 * misuse of this API abort. */
#ifndef TESTS_LIB_MODELDISK_H
#define TESTS_LIB_MODELDISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/lib/faults.h"

#define MODEL_NAME_SIZE \
    192 /* longest name of an entry, with its end; longer ones are ENAMETOOLONG */
#define MODEL_FD_BASE 0x100000 /* model descriptors count up from here and are never used twice */
#define MODEL_BLOCK   4096u    /* unit of the capacity accounting */

struct model;

enum model_order { MODEL_REORDERED, MODEL_ORDERED };

enum model_torn {
    MODEL_WHOLE,     /* a sector is old or new */
    MODEL_TORN_MIX,  /* or new up to some byte and old from there */
    MODEL_TORN_JUNK, /* or full of garbage */
};

struct model_options {
    const char *root;     /* NULL: "/m" */
    unsigned sector_size; /* 512 (also for 0) or 4096 */
    enum model_order order;
    uint64_t capacity_bytes; /* 0: no limit; past it writes are short, then ENOSPC */
    uint64_t seed;           /* for os_random, the order of listings, garbage */
    unsigned open_max;       /* 0: no limit; past it open is EMFILE */
    /* Calls outside the root and on other descriptors go to the kernel; otherwise such paths are
     * ENOENT, descriptors EBADF, socket calls ENOSYS. */
    bool kernel_for_others;
};

/* ---- life ---- */

struct model *model_new(const struct model_options *options); /* NULL: all defaults */
void model_free(struct model *m); /* when in use: the kernel's table comes back first */
void model_use(struct model *m);  /* installs it as the table of os/ */
struct model *model_in_use(void); /* NULL when none is */
/* The same disk with everything pending, without descriptors and hook; cheap (copy on write). */
struct model *model_snapshot(const struct model *m);

/* ---- time ---- */

/* Every reading of a clock moves both on by this much (default 1000 ns); the wall clock starts at
 * 1,800,000,000,000 ms. Both go on across crashes. */
void model_clock_step(struct model *m, uint64_t step_ns);
void model_clock_advance(struct model *m, uint64_t ns);
void model_clock_jump_real(struct model *m, int64_t ms); /* the wall clock alone */

/* ---- calls: counting, hooks, faults ---- */

struct model_call {
    uint64_t number; /* from 1, file calls only */
    enum os_call call;
    const char *path; /* valid during the hook; "" when the descriptor is unknown */
    uint64_t offset;  /* pread, pwrite, ftruncate (the size) */
    uint64_t length;  /* pread, pwrite */
};

/* Runs before each file call, outside the lock; it may crash, snapshot, use other models and come
 * back, or longjmp away. NULL takes it off. */
typedef void model_hook(void *ctx, struct model *m, const struct model_call *call);
void model_set_hook(struct model *m, model_hook *hook, void *ctx);

uint64_t model_calls(const struct model *m); /* file calls so far */
/* The call_number-th file call and all later ones return -EIO and change nothing. 0: never. */
void model_die_at(struct model *m, uint64_t call_number);
bool model_dead(const struct model *m);

/* Arms one fault (copied; its path is borrowed); NULL disarms. On an fsync or fdatasync of a file
 * FAULT_ERROR loses the pending data as told above. */
void model_fault_arm(struct model *m, const struct fault *fault);
uint64_t model_fault_fired(const struct model *m);
/* Syncs return 0 and do nothing: to prove that a test notices. */
void model_lie(struct model *m, bool file_syncs, bool directory_syncs);
/* A failing sync of a file lands a seeded part of the data instead of none. */
void model_failed_sync_partial(struct model *m, bool partial);
/* The next pwrite lands `sectors` away from where it should, on the disk only: the cache is right.
 */
void model_misdirect_next(struct model *m, int64_t sectors);

/* ---- power cuts ---- */

enum model_item_kind { MODEL_ITEM_DATA, MODEL_ITEM_SIZE, MODEL_ITEM_ENTRY };

struct model_item {
    enum model_item_kind kind;
    enum os_call call; /* entry: OS_CALL_open (a create), mkdir, unlink or rename */
    const char *path;  /* of the file, or of the new entry */
    uint64_t offset;   /* data: where on disk; size: the new size */
    uint64_t length;   /* data: the sector size */
};

enum model_fate {
    MODEL_LOST,
    MODEL_LANDED,
    MODEL_TORN /* data only: as the choice's `torn` says */
};

/* Which pending items land. Inconsistent choices are made consistent: a size implies the file's
 * earlier sizes; an entry whose forerunner was lost is lost. */
struct model_choice {
    enum { MODEL_CUT_NONE, MODEL_CUT_ALL, MODEL_CUT_MASK, MODEL_CUT_RANDOM, MODEL_CUT_ASK } how;
    uint64_t mask;        /* MASK: bit i lands item i; items past 63 are lost */
    uint64_t seed;        /* RANDOM: also the share that lands; and the bytes of torn sectors */
    enum model_torn torn; /* RANDOM tears a part of the lost sectors, MASK all of them */
    enum model_fate (*ask)(void *ctx, size_t index, const struct model_item *item);
    void *ctx;
};

size_t model_pending(const struct model *m);
struct model_item model_pending_item(const struct model *m, size_t index);
void model_pending_print(const struct model *m, FILE *to);
/* The disk after the cut, as a new model: nothing pending, no descriptors, no locks, no hook, no
 * faults, call count 0. `m` is not changed. The caller frees it. */
struct model *model_crash(const struct model *m, const struct model_choice *choice);

/* All crashes worth trying: with at most exhaustive_max (<= 20) pending items every subset,
 * otherwise none, all, and `samples` seeded ones. With torn set, each subset once more with its
 * lost sectors torn. */
struct model_crashes {
    const struct model *m;
    uint64_t next, count;
    uint64_t seed;
    bool exhaustive;
    enum model_torn torn;
    struct model_choice choice; /* the one model_crashes_next has just made */
    char text[96];              /* the same in words, for a failing test */
};
void model_crashes_begin(struct model_crashes *it, const struct model *m, unsigned exhaustive_max,
                         unsigned samples, uint64_t seed);
struct model *model_crashes_next(struct model_crashes *it); /* NULL after the last; caller frees */

/* ---- looking and meddling ---- */

/* A hash of all names, sizes and bytes as the process sees them: equal for equal disks. After a
 * crash that is what the disk holds, so it counts distinct crash states. */
uint64_t model_hash(const struct model *m);
uint64_t model_used_bytes(const struct model *m); /* whole blocks, what the capacity counts */
/* Puts a file there with these bytes, synced with its directories (which it makes); replaces an old
 * one. Only while nothing is pending. */
void model_put(struct model *m, const char *path, const void *bytes, size_t n);
/* Reads a file as the process sees it, whatever the state of the model; -ENOENT, or the full size
 * (which may be more than n). */
int64_t model_get(const struct model *m, const char *path, void *bytes, size_t n);
/* XORs a byte in cache, disk image and pending data. -ENOENT, -EINVAL past the end. */
int model_rot(struct model *m, const char *path, uint64_t offset, unsigned char with);
/* Prints the last 256 calls, one a line. */
void model_trace_print(const struct model *m, FILE *to);
/* Writes the tree below the root into a real directory (which exists), to look at a failing state
 * with other tools. 0 or a negative errno. */
int model_export(const struct model *m, const char *directory);

#endif
