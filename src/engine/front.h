/* front: the HTTP interface (engine_protocol.h) on http/. */
#ifndef ENGINE_FRONT_H
#define ENGINE_FRONT_H

#include <sys/queue.h>

#include "engine/boot.h"
#include "http/http.h"

#define FRONT_ROUTES         3
#define FRONT_BODY_BYTES_MAX (64u << 20)

/* Threads that run statements, and how many of them projects may hold at once: the rest is the
 * deliveries'. */
#define FRONT_WORKERS      6
#define FRONT_PROJECTS_MAX 4
#define FRONT_PROJECT_MAX  3  /* one project alone */
#define FRONT_WAITING_MAX  16 /* queries of projects beyond those, in order */

/* How long past its limit of time a project's query may go on before it counts as one that does not
 * end. libchdb looks at the time between blocks only, and some functions take hours for one. */
#define FRONT_STUCK_MS 20000u

struct exchange;

struct front {
    const struct engine *engine;
    struct slice secret;       /* the owner's password on TCP; empty: there is no TCP */
    unsigned projects_running; /* queries of projects that were given to the workers */
    unsigned projects_waiting;
    STAILQ_HEAD(, exchange) waiting;
    LIST_HEAD(, exchange) running; /* those of projects */
};

/* Fills FRONT_ROUTES routes. f and engine outlive the server. */
void front_routes(struct front *f, struct http_route *routes);
/* True when a project's query does not end: its worker is lost for as long as the process lives.
 * Loop thread; now_ms is monotonic. */
bool front_stuck(const struct front *f, uint64_t now_ms);

#endif
