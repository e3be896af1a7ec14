/* delivery: delivery.sqlite, the operational index of what happens to accepted artifacts
 * (spec/artifacts.md: decisions, sections 6, 7 and 10; ARCHITECTURE section 1).
 *
 * Owned by the process `tallyman deliver` (kernel lock DATA/delivery.lock); others only read.
 * Rebuilt from receipts/ID.json, uploads/ID.info and the synced sidecars packages/PACKAGE.plan.json
 * and packages/PACKAGE.manifest.jsonl: losing it loses nothing. Identity packaging makes no second
 * file: the payload stays uploads/ID. */
#ifndef STORE_ARTIFACT_DELIVERY_H
#define STORE_ARTIFACT_DELIVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "store/artifact/settings.h"
#include "store/artifact/upload.h"

#define DELIVERY_FILE      "delivery.sqlite"
#define DELIVERY_LOCK      "delivery.lock"
#define DELIVERY_ERROR_MAX 1000
#define DELIVERY_NAME_MAX  1024
#define DELIVERY_FILES_MAX 2 /* of an identity package: the artifact and its manifest */

/* X(symbol, name): of one package at one sink. verified is the end; parked waits for a person. */
#define DELIVERY_STATES(X)      \
    X(PENDING, "pending")       \
    X(SENDING, "sending")       \
    X(SENT, "sent")             \
    X(VERIFIED, "verified")     \
    X(RETRY_WAIT, "retry_wait") \
    X(PARKED, "parked")

enum delivery_state {
#define X(sym, name) DELIVERY_##sym,
    DELIVERY_STATES(X)
#undef X
        DELIVERY_STATE_COUNT
};
const char *delivery_state_name(enum delivery_state s);
/* ERR_CORRUPT: there is no such state. */
int delivery_state_of(struct slice name, enum delivery_state *out, struct err *e) MUST_CHECK;

struct delivery_file {
    char name[DELIVERY_NAME_MAX]; /* the remote name, below the identifier */
    uint64_t size;
    char md5[33];
};

/* What is known of one artifact's way out: for GET /api/v1/artifacts/{id}. */
struct delivery_view {
    bool known; /* delivery.sqlite has the artifact; false: it has not been looked at yet */
    char object_id[UPLOAD_ID_LEN + 1];
    char checksum[BLAKE3_HEX_LEN + 1]; /* of the receipt; accepted_at too */
    uint64_t size_bytes;
    int64_t accepted_at;
    char package_state[16]; /* building, sealed, blocked; waiting: it is in none yet */
    char packager[16];      /* "" of waiting */
    unsigned members;       /* of the package */
    uint64_t package_bytes; /* of all members */
    uint64_t offset;        /* of the artifact in a merged package's payload */
    /* Of waiting: what of its project waits with it, for which trigger, or until when. */
    uint64_t waiting_artifacts, waiting_bytes, trigger_bytes;
    int64_t waiting_until; /* Unix seconds; 0: not known yet */
    /* Of pages, and merged packages: a JSON array, gone after the call; else empty. */
    struct slice member_list;
    unsigned build_attempts;
    int64_t next_build_at; /* of one that is building and has failed before; else 0 */
    char build_error[DELIVERY_ERROR_MAX];
    int64_t created_at, updated_at, sealed_at; /* of the package; 0: not yet */
    int64_t delivery_updated_at;               /* 0: there is no delivery yet */
    bool late;                                 /* sent, and should have been seen long ago */
    bool built; /* the package is sealed: hashes compared, sidecars synced */
    char package_id[65];
    char sink[32];
    char identifier[DELIVERY_NAME_MAX];
    enum delivery_state state;
    unsigned attempts;
    int64_t next_attempt_at; /* Unix seconds; 0: none */
    int64_t sent_at, verified_at;
    char project[UPLOAD_PROJECT_MAX + 1];
    char filename[UPLOAD_FILENAME_MAX + 1]; /* as declared; "": none */
    int64_t purge_at, purged_at; /* when local bytes are due to go, or went; 0: they are not */
    char purge_error[DELIVERY_ERROR_MAX];
    char error[DELIVERY_ERROR_MAX]; /* of the last try or build; "" */
    char way_out[200];              /* of PARKED: what a person can do */
    unsigned file_count;
    struct delivery_file file[DELIVERY_FILES_MAX];
};
/* One moment of delivery.sqlite, for any process and any thread. Opening blocks, at most a second.
 * ERR_IO, ERR_CORRUPT, ERR_STORE_BUSY, ERR_NO_MEMORY. While it is open the file's WAL grows: keep
 * it for a second at most. */
struct delivery_look;
int delivery_look_open(const char *data, struct delivery_look **out, struct err *e) MUST_CHECK;
void delivery_look_close(struct delivery_look *l); /* NULL is fine */
/* A database that is not there: known = false. */
int delivery_look_at(struct delivery_look *l, struct slice object_id, struct delivery_view *out,
                     struct err *e) MUST_CHECK;
/* All of it for one artifact. */
int delivery_view_read(const char *data, struct slice object_id, struct delivery_view *out,
                       struct err *e) MUST_CHECK;

/* ---- pages of packages and their deliveries ---- */
#define DELIVERY_CURSOR_MAX 100

struct delivery_query {
    const char *project; /* NULL: all */
    bool by_state;       /* only those in `state` */
    enum delivery_state state;
    struct slice after; /* a cursor that was given, or empty */
    unsigned limit;
};

struct delivery_page {
    char next[DELIVERY_CURSOR_MAX]; /* goes on behind this page, now or later; "": nothing yet */
    bool more;                      /* there is more now: the page may be short, even empty */
    bool restarted; /* the cursor is of a file that was made anew since: begun at the beginning */
};
/* In the order in which packages were made; of `verified` in the order in which they became that,
 * which is a feed: what is verified after a page was read lies behind its cursor. Reads for at most
 * about half a second. row returns false to end the page before this row; it gets all of
 * them in turn. ERR_INVALID_REQUEST: no cursor of ours; and those of opening. */
int delivery_page_read(const char *data, const struct delivery_query *q,
                       bool (*row)(void *ctx, const struct delivery_view *v), void *ctx,
                       struct delivery_page *out, struct err *e) MUST_CHECK;

struct delivery_counts {
    bool known; /* there is a database */
    uint64_t artifacts;
    uint64_t by_state[DELIVERY_STATE_COUNT]; /* packages not yet sealed count as pending */
    uint64_t late;                           /* of SENT: should have been seen there long ago */
    char error[DELIVERY_ERROR_MAX];          /* of the oldest that waits for a retry; "" */
};
/* As above, for status. */
int delivery_counts_read(const char *data, struct delivery_counts *out, struct err *e) MUST_CHECK;
/* Appends `"running":[...],"holds":[...]` as the deliverer last told it, about a second ago while
 * it is at work: both empty where nothing is known. As above. b->failed: no memory. */
int delivery_activity_put(const char *data, struct buf *b, struct err *e) MUST_CHECK;

/* Appends `"packages":{...},"oldest_pending_at":...,"purge":{...},"projects":[...],
 * "projects_left_out":N,"packaging":[...]`: sums over all there is, of at most 200 projects;
 * nothing where there is no database. Takes a second at most: ERR_ then, and *b holds a part.
 * Otherwise as above. */
int delivery_totals_put(const char *data, struct buf *b, struct err *e) MUST_CHECK;

/* Any process: reads it from DATA/tallyman.sqlite. ERR_NOT_FOUND: no such project, or it takes no
 * artifacts. */
int artifact_sink_read(const char *data, struct slice project, struct artifact_sink *out,
                       struct err *e) MUST_CHECK;

#endif
