/* capture: the analytics door. PostHog v0 and v1, Segment, and the native API, into the queue
 * (spec/capture.md, spec/capture-delivery.md "Tallyman's decisions", spec/client-wire.md 1 to 5).
 *
 * A request: key checked where a header carries it, body decoded (decode.h), events read
 * (posthog.c, posthog_v1.c, segment.c, native.c) into a struct capture_batch, which becomes one
 * STORE job: its events are put under one savepoint; the answer leaves after the commit. */
#ifndef DOOR_CAPTURE_CAPTURE_H
#define DOOR_CAPTURE_CAPTURE_H

#include "http/http.h"
#include "store/control.h"
#include "store/queue.h"

struct capture;

struct capture_options {
    uint64_t request_bytes_max; /* 20 MiB: /batch and v1, as sent */
    uint64_t decoded_bytes_max; /* 64 MiB after decompression */
    uint64_t single_bytes_max;  /* 1 MiB: native and single-event routes, as sent (decoded too,
                                   but for PostHog's, where SDKs send batches as well) */
    uint64_t event_bytes_max;   /* 1 MiB an event */
    uint32_t batch_events_max;  /* 50,000 on /batch */
};

/* on_committed (may be NULL) is called on the loop thread after a commit that stored events. */
/* store NULL: it could not be opened yet; requests are answered as on a full disk until
 * capture_attach gives it. */
struct capture *capture_new(struct store *store, const struct capture_options *options,
                            void (*on_committed)(void *ctx), void *ctx);
void capture_attach(struct capture *c, struct store *store);
/* The loop has ended: what workers still bring is answered as by a store that is busy. */
void capture_detach(struct capture *c);
void capture_free(struct capture *c);

/* The routes, for the table of the server: how many, and the n-th one. */
size_t capture_route_count(void);
void capture_routes(struct capture *c, struct http_route *out);

#endif
