/* artifact: the narrow interface between the runner of deliveries (main/deliver) and the adapters
 * that know one kind of destination each.
 *
 * The runner decides what is due and keeps the states; an adapter is given one sealed package,
 * brings its files to one place under their remote names, and says in a verdict how that went. It
 * keeps no state between calls, so whatever a crash interrupts is simply asked again: finding what
 * is there already is the adapter's first step, always. It never replaces or removes anything at
 * the destination but its own temporary name, and opens local files for reading only.
 *
 * A call blocks for as long as the files take, on a thread of the runner; several calls may run at
 * once, each with a job, a piece and a verdict of its own, never two for one package. */
#ifndef SINK_ARTIFACT_H
#define SINK_ARTIFACT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

#define ARTIFACT_PIECE_BYTES (1u << 20)
#define ARTIFACT_TEXT_MAX    1000
#define ARTIFACT_WAY_OUT_MAX 200

/* X(name): adapters; each is a `struct artifact_adapter artifact_NAME` in a file of its own. */
#define ARTIFACT_ADAPTERS(X) X(directory) X(internet_archive)

struct artifact_file {
    const char *name; /* remote, below the identifier: one plain file name */
    const char *path; /* local */
    uint64_t size;
    const char *md5;  /* 32 lower-case hex digits, as the rest */
    const char *sha1; /* 40 */
};

/* Where adapters that speak HTTP find their far side, and how patient they are: settings of the
 * process, borrowed. Plain http only to loopback; whoever fills this has checked it. */
struct artifact_endpoints {
    const char *archive_s3;       /* "https://s3.us.archive.org" */
    const char *archive_metadata; /* "https://archive.org" */
    uint64_t answer_ms;           /* wait for the answer after the last byte of a body */
    uint64_t stall_ms;            /* without a byte moved: the connection is dead */
    const char *user_agent;       /* name, version and where we can be reached */
};

struct artifact_job {
    const char *package_id; /* 64 hex digits */
    const char *place;      /* of the sink: a directory; "" where endpoints say it */
    const char *identifier; /* the folder, item or prefix at that place */
    /* A JSON object, name -> array of strings, all templates expanded; "{}": none. */
    struct slice metadata;
    const char *credentials_file; /* opened by the adapter at each call, for reading; "": none */
    const struct artifact_endpoints *endpoints; /* NULL: the adapter is none of those */
    /* verify: how long ago the runner noted SENT; it decides how often is asked, and when somebody
     * has to look at it. send: 0. */
    uint64_t sent_ago_ms;
    unsigned attempt; /* send: which it is, from 1; those that ended as UNSEEN are not counted */
    /* send: files (bit i: the i-th) that earlier tries may have brought, and how long ago the last
     * of these was. For destinations that show late what they have. */
    uint64_t maybe_files, maybe_ago_ms;
    const struct artifact_file *file; /* the canary last: adapters that care send it first */
    unsigned file_count;
    void *piece; /* ARTIFACT_PIECE_BYTES for the adapter's use during the call */
    /* True when the process is to end: the adapter gives up between two pieces. */
    bool (*stopping)(void *ctx);
    /* May be NULL: bytes of the package that were handed over so far, and which file is under way.
     * Cheap; at most about ten times a second. */
    void (*progress)(void *ctx, uint64_t sent_bytes, const char *file);
    void *ctx;
};

enum artifact_outcome {
    ARTIFACT_SENT,     /* send: all files are there, durably as far as the destination can tell */
    ARTIFACT_VERIFIED, /* and their sizes and digests were read back from it and are ours */
    ARTIFACT_RETRY,    /* it may work later; text */
    ARTIFACT_PARKED,   /* only a person can help; text, way_out */
    ARTIFACT_UNSEEN,   /* accepted there (send: it may be, by an earlier try), not visible yet; ask
                          again in wait_ms. No try has failed, nothing is sent meanwhile; text says
                          what is waited for */
    ARTIFACT_STOPPED   /* given up because of stopping; nothing of ours is left half done */
};

/* What else cannot arrive for the same reason: with RETRY it is held for wait_ms as well. */
enum artifact_scope {
    ARTIFACT_THIS,   /* only this package */
    ARTIFACT_ITEM,   /* every package of this identifier */
    ARTIFACT_DOUBT,  /* the same; when several items in a row say so: every package of this sink */
    ARTIFACT_PLACE,  /* every package of the project: its place */
    ARTIFACT_KEYS,   /* every package sent with these credentials */
    ARTIFACT_FAR_END /* every package of this sink */
};

struct artifact_verdict {
    enum artifact_outcome outcome;
    uint64_t bytes;       /* that were brought to the destination by this call */
    uint64_t maybe_files; /* send: those that this call has brought, or may have; of SENT: any */
    enum artifact_scope scope; /* with RETRY and PARKED */
    /* RETRY: not before (the runner's own backoff may be longer); UNSEEN: ask again in; 0: the
     * runner decides. */
    uint64_t wait_ms;
    char text[ARTIFACT_TEXT_MAX];
    char way_out[ARTIFACT_WAY_OUT_MAX];
};

struct artifact_adapter {
    const char *name; /* as in artifact_projects.sink */
    /* SENT, or VERIFIED when all was there already and proven; RETRY, PARKED, UNSEEN, STOPPED. */
    void (*send)(const struct artifact_job *job, struct artifact_verdict *out);
    /* After SENT, at any later time: VERIFIED, RETRY (it is then sent again), PARKED, STOPPED. */
    void (*verify)(const struct artifact_job *job, struct artifact_verdict *out);
};

/* NULL: this program has no such adapter. */
const struct artifact_adapter *artifact_adapter(const char *name);

#endif
