/* registry: who holds which upload now (internal to door/artifact).
 *
 * One request at a time holds an upload: a writer that receives, or somebody who looks at it or
 * finishes it. The rest wait here, or learn what the holder has synced. Threads: any; one lock, no
 * other is taken under it but that of http_body_end. Waits at most REGISTRY_WAIT_MS. Memory: none
 * of its own, entries live with their requests. */
#ifndef DOOR_ARTIFACT_REGISTRY_H
#define DOOR_ARTIFACT_REGISTRY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "http/http.h"
#include "store/artifact/upload.h"

#define REGISTRY_SILENT_MS 1000 /* a writer that waited so long for a byte may be ended */
#define REGISTRY_WAIT_MS   5000 /* for a holder that is about to leave */
/* A writer whose body came at less than this, after that time, makes room when all places are
 * taken. */
#define REGISTRY_SLOW_MS   30000
#define REGISTRY_SLOW_RATE 16384 /* bytes a second */

enum holder_state {
    HOLDER_BUSY,     /* opens, looks, syncs, accepts or removes: leaves by itself */
    HOLDER_RECEIVING /* has the upload open and takes a body */
};

struct holder {
    LIST_ENTRY(holder) link;
    char id[UPLOAD_ID_LEN + 1]; /* "": an upload that is being made, nobody knows its id */
    bool writer;                /* one of writers_max */
    bool removes;               /* ends whoever writes, silent or not */
    const char *address;        /* of the client, while it is held; NULL or "": of this machine */
    struct http_body *body;     /* of a writer */
    /* From registry_opened on; borrowed until the holder leaves. */
    const struct upload_info *info;
    /* The synced offset as clients may hear it: never the whole length, which only a receipt
     * says, and never less than it was. */
    _Atomic uint64_t told;
    _Atomic uint64_t waits_since_ns; /* for a byte of the body; 0: it does not */
    _Atomic uint64_t received;       /* bytes of the body */
    /* under the registry's lock */
    enum holder_state state;
    uint64_t receiving_since_ns;
    bool ended;
    bool listed;
};

/* What a newcomer hears of the holder. */
struct holder_seen {
    bool open; /* info and told mean something */
    uint64_t told;
    struct upload_info info;
};

struct registry {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* a holder left, or has another state */
    LIST_HEAD(, holder) holders;
    atomic_uint writers; /* changed under the lock */
    unsigned writers_max, address_writers_max;
    uint64_t silent_ms, wait_ms; /* REGISTRY_SILENT_MS, REGISTRY_WAIT_MS */
    uint64_t slow_ms;            /* REGISTRY_SLOW_MS */
};

void registry_init(struct registry *g, unsigned writers_max, unsigned address_writers_max);
void registry_destroy(struct registry *g); /* empty */
/* Any time: other bounds, for tests. */
void registry_set_patience(struct registry *g, uint64_t silent_ms, uint64_t wait_ms);
void registry_set_slow(struct registry *g, uint64_t slow_ms);
unsigned registry_writers(const struct registry *g);

/* Makes h, filled but for its state, the holder of h->id. Ends a silent writer and waits for it,
 * waits for others that leave by themselves. 0. ERR_LOCKED: it is held and *seen (may be NULL) says
 * by whom. ERR_UPLOADS_BUSY: too many writers, of all or of this address, none of which is slow; a
 * slow one is ended and waited for. */
int registry_hold(struct registry *g, struct holder *h, struct holder_seen *seen) MUST_CHECK;
/* The same without waiting and without ending anybody; ERR_LOCKED at once. */
int registry_try(struct registry *g, struct holder *h) MUST_CHECK;
/* A writer that makes an upload: only the place is taken, the id follows. ERR_UPLOADS_BUSY. */
int registry_enter(struct registry *g, struct holder *h) MUST_CHECK;
void registry_name(struct registry *g, struct holder *h, const char *id);
/* The holder has opened it: newcomers may hear of info and told. promised: upload_promised. */
void registry_opened(struct registry *g, struct holder *h, const struct upload_info *info,
                     uint64_t promised);
void registry_set_state(struct registry *g, struct holder *h, enum holder_state state);
/* Fine for one that holds nothing. */
void registry_leave(struct registry *g, struct holder *h);

/* The holder's own: synced moved. */
void holder_tell(struct holder *h, uint64_t synced);

#endif
