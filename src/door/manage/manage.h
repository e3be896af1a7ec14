/* manage: what operators and machines ask about the server: /healthz, /readyz, /metrics and, on the
 * Unix socket, /api/v1/status. Nothing here changes anything. Loop thread. */
#ifndef DOOR_MANAGE_MANAGE_H
#define DOOR_MANAGE_MANAGE_H

#include "http/http.h"
#include "journal/journal.h"

#define MANAGE_ROUTES 4

struct manage {
    struct journal *journal;
    const char *version, *revision;
    uint64_t started_ns; /* monotonic */
    bool stopping;
};

/* Fills MANAGE_ROUTES routes. m is borrowed for the server's life. */
void manage_routes(struct manage *m, struct http_route *out);

#endif
