/* artifact: the artifact door (spec/artifacts.md, tus.md): tus 1.0 with creation,
 * creation-with-upload, expiration, checksum and termination on /files/, receipts on
 * /api/v1/receipts/{id}.
 *
 * Checks are made on the loop thread, where projects are known; everything that touches a disk runs
 * on a thread of its own (http_thread). A registry in memory knows the uploads that are being
 * written: it lets exactly one writer through, ends one that is silent when a newcomer asks, and
 * answers HEAD from the synced offset meanwhile. Threads: the loop's unless said otherwise. */
#ifndef DOOR_ARTIFACT_ARTIFACT_H
#define DOOR_ARTIFACT_ARTIFACT_H

#include "http/forwarded.h"
#include "http/http.h"
#include "store/artifact/upload.h"
#include "store/store.h"

struct artifact_options {
    const char *data;
    const char *issuer;     /* "": none is set and we listen beyond loopback: creations are 503 */
    const char *public_url; /* "": Location is a path only */
    struct http_networks proxies; /* who may say what stands before that path; zeroed: nobody */
    uint64_t upload_bytes_max;    /* Tus-Max-Size */
    uint64_t min_free_bytes;      /* 0: the smaller of 5 % of the file system and 10 GiB */
    unsigned low_space_status;    /* 429 or 503 */
    uint64_t retention_ms;        /* of partial uploads */
    unsigned uploads_max;         /* writers at a time, more are 503 */
    unsigned address_uploads_max; /* of one client address */
    /* How much of the free space may be promised to the uploads of one project, of one address. */
    unsigned project_percent, address_percent;
};

struct artifact;
/* store may be NULL (not open yet: creations are 503); attached and detached as the capture door's.
 * ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY. */
int artifact_new(const struct artifact_options *options, struct store *store, struct artifact **out,
                 struct err *e) MUST_CHECK;
void artifact_attach(struct artifact *a, struct store *store);
void artifact_detach(struct artifact *a);
size_t artifact_route_count(void);
void artifact_routes(struct artifact *a, struct http_route *out);
/* After the server is made: interrupted acceptances are finished, stale uploads and temporary files
 * removed, on a background thread (at start, then every min(retention / 2, 60 s)). */
int artifact_start(struct artifact *a, struct http_server *server, struct err *e) MUST_CHECK;
/* The server begins to stop: nobody waits for the reading of a whole file any more. What that
 * leaves unfinished the next start takes up. */
void artifact_stopping(struct artifact *a);
/* Ends the background thread. */
void artifact_stop(struct artifact *a);
void artifact_free(struct artifact *a); /* after http_free; NULL is fine */
/* For those who ask about uploads; as long as the door. */
struct uploads *artifact_uploads(struct artifact *a);

struct artifact_status {
    unsigned writers;                        /* uploads that are receiving now */
    uint64_t partial_uploads, partial_bytes; /* of the last round of the cleaner */
    uint64_t reserved_bytes;                 /* promised to uploads that are under way */
    int64_t scanned_ms;                      /* when that round ended; Unix time */
    bool low_space;
    bool scanned; /* a round has ended: the numbers above mean something */
};
void artifact_get_status(const struct artifact *a, struct artifact_status *out);
/* "partial_projects" and "partial_left_out", as of the last round, into a JSON object that has
 * members already. */
void artifact_put_partials(struct artifact *a, struct buf *b);

#endif
