/* room: what is promised of the disk to uploads that are under way (internal to door/artifact).
 *
 * An upload that was created is promised the room for its missing bytes, so that what began can
 * end; one that does not fit beside all others is told "later" before a byte of it is sent. It is
 * an account, nothing is allocated: declared minus what the file has blocks for. No project and no
 * client may be promised more than its share of what there is, or have more than that of the
 * promises, so that nobody takes all of it with a few requests. Who brings no byte for ROOM_IDLE_MS
 * loses the promise, and gets it again with the next one, if there is room.
 *
 * In memory: after a restart the cleaner's first round promises anew what still fits. Threads: any;
 * one lock, held while the file system is asked, so that two cannot be promised the same room; the
 * loop never takes it. Memory: at most ROOM_PROMISES_MAX promises, some 400 bytes each. */
#ifndef DOOR_ARTIFACT_ROOM_H
#define DOOR_ARTIFACT_ROOM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "store/artifact/upload.h"

#define ROOM_IDLE_MS      300000
#define ROOM_PROMISES_MAX 65536
#define ROOM_BUCKETS      4096
/* What an upload needs beside its bytes: its description, state and receipt, plan and manifest. */
#define ROOM_OTHER_BYTES UINT64_C(32768)
#define ROOM_INODES      8

struct room_promise;
struct room_share;
TAILQ_HEAD(room_list, room_promise);
LIST_HEAD(room_chain, room_promise);
LIST_HEAD(room_shares, room_share);

struct room {
    pthread_mutex_t lock;
    const char *data;                          /* the file system that is asked; borrowed */
    uint64_t min_free_bytes;                   /* 0: the default */
    unsigned project_percent, address_percent; /* shares */
    uint64_t idle_ms;                          /* ROOM_IDLE_MS */
    uint64_t promised;                         /* of all */
    unsigned count;
    struct room_list idle; /* nobody is on them; the one that is idle longest is the first */
    struct room_chain chain[ROOM_BUCKETS]; /* of those that have an id */
    struct room_shares shares[ROOM_BUCKETS];
};

/* For whom; an empty address: a client on this machine, or of before a restart. It has no share. */
struct room_owner {
    const char *project;
    const char *address;
};

void room_init(struct room *r, const char *data, uint64_t min_free_bytes, unsigned project_percent,
               unsigned address_percent);
void room_destroy(struct room *r);
/* Any time: other bounds, for tests. */
void room_set_idle(struct room *r, uint64_t idle_ms);
uint64_t room_promised(struct room *r);
unsigned room_count(struct room *r);

/* The space that is to stay free on a file system of this size. */
uint64_t room_least(uint64_t min_free_bytes, uint64_t disk_bytes);
/* The inodes that are to stay free on it. */
uint64_t room_least_inodes(uint64_t inodes);

/* Promises `bytes` to an upload that has no id yet; whoever holds *out tells how it goes on.
 * ERR_LOW_SPACE: e->text says what is short. ERR_IO: the file system cannot be asked. */
int room_take(struct room *r, const struct room_owner *owner, uint64_t bytes,
              struct room_promise **out, struct err *e) MUST_CHECK;
/* The same for a known upload, which may have its promise still. It has been within its shares
 * once: only the room counts, and how many promises the address has. */
int room_take_again(struct room *r, const char *id, const struct room_owner *owner, uint64_t bytes,
                    struct room_promise **out, struct err *e) MUST_CHECK;
/* The same for one that nobody is on, after a restart; one that has a promise keeps it. */
void room_restore(struct room *r, const char *id, const struct room_owner *owner, uint64_t bytes);
/* It has its id; before the holder leaves. */
void room_name(struct room *r, struct room_promise *p, const char *id);
/* So much is missing now. */
void room_set(struct room *r, struct room_promise *p, uint64_t bytes);
/* The holder goes; the promise stays for idle_ms. NULL is fine. */
void room_leave(struct room *r, struct room_promise *p, uint64_t bytes);
/* The upload has ended. NULL is fine. */
void room_drop(struct room *r, struct room_promise *p);
/* The same for whoever does not hold it; there may be none. */
void room_forget(struct room *r, const char *id);

#endif
