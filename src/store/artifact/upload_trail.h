/* upload_trail: the read-back that trails an upload of several requests (internal to the store).
 *
 * What a receipt says must have been read from the device. Of a large upload that would take long
 * at the end, so that its synced bytes are read and hashed while later ones come, or nobody sends.
 * A trail stands at an offset with the hash of all bytes below it as the device gave them back. It
 * lives in memory, from request to request; after a restart it begins anew.
 *
 * Threads: any; one lock, no other is taken under it. Reading is done by at most
 * uploads_options.trail_threads threads of the store's own, at a low priority. Memory: at most
 * TRAILS_MAX trails of 2 KiB, and a piece a thread. */
#ifndef STORE_ARTIFACT_UPLOAD_TRAIL_H
#define STORE_ARTIFACT_UPLOAD_TRAIL_H

#include "store/artifact/upload.h"

/* Below this nothing is read ahead of the end. Also the step: no page of the cache, however large
 * the kernel makes them, lies across such a boundary. */
#define TRAIL_STEP_BYTES (UINT64_C(2) << 20)
#define TRAILS_MAX       512

struct trails;

/* step_bytes: 0: TRAIL_STEP_BYTES. NULL: no memory. */
struct trails *trails_new(struct uploads *us, unsigned threads_max, uint64_t step_bytes);
void trails_free(struct trails *ts); /* ends the threads; NULL is fine */
/* The store's `stopping` has changed. */
void trails_wake(struct trails *ts);

/* The upload stands at synced: the bytes below it are durable and stay what they are, so that they
 * may be read. A trail that was beyond it begins anew. Never fails: what cannot be read now is left
 * to the acceptance. */
void trail_follow(struct trails *ts, const char *id, uint64_t synced);
/* Waits until no more than lag_bytes of what the trail may read are left, so that whoever sends
 * faster than the device reads does not wait for all of it at the end. Returns at once where nobody
 * reads: there is no trail, it failed, no thread could be had, the store stops. */
void trail_keep_near(struct trails *ts, const char *id, uint64_t lag_bytes);
/* How far the trail has come, at most to synced, with its hash; 0, and the hash of nothing, where
 * there is none. Waits for the step that is being read; nothing more is read until trail_follow is
 * called again. */
uint64_t trail_take(struct trails *ts, const char *id, uint64_t synced, struct blake3 *hash);
/* There is a receipt, or no upload any more. */
void trail_forget(struct trails *ts, const char *id);
/* Reads all that may be read, here; for those who have no threads (tests of the model disk). */
void trails_run(struct trails *ts);

#endif
