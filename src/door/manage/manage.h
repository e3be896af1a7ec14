/* manage: what operators and machines ask about the server (/healthz, /readyz, /metrics) and the
 * management API under /api/v1/: projects, keys, status, rejected events, queries.
 *
 * The Unix socket is the administrator. On TCP every request under /api/v1/ needs a service key
 * (`Authorization: Bearer tms_...`) with the scope that its route names: 401 without one, 403 for
 * what the key may not do, which includes projects that do not exist. The exception is what is
 * known of one artifact: whoever has its id may ask, pages too. Loop thread, but for reads of
 * the store (workers) and queries (threads of their own). */
#ifndef DOOR_MANAGE_MANAGE_H
#define DOOR_MANAGE_MANAGE_H

#include <stdatomic.h>

#include "http/http.h"
#include "journal/journal.h"
#include "os/sandbox.h"
#include "sink/sink.h"
#include "store/store.h"

#define MANAGE_ROUTES 24
/* Queries under way, each on a thread of its own, and those behind them; more are answered 429. Of
 * both a part is for the others when one project asks for everything. */
#define MANAGE_QUERIES_MAX              4u
#define MANAGE_QUERIES_PROJECT_MAX      3u
#define MANAGE_QUERIES_WAIT_MAX         32u
#define MANAGE_QUERIES_WAIT_PROJECT_MAX 24u

struct manage_engine {
    char state[24]; /* "off", "running", ... : the supervisor's words */
    uint64_t restarts;
    char detail[200]; /* why it is not running; "" */
};

/* The artifact door, as far as this process knows; what was delivered is in delivery.sqlite. */
struct manage_artifacts {
    unsigned writers;                        /* uploads that are receiving now */
    uint64_t partial_uploads, partial_bytes; /* as of the last look; meaningless before the first */
    uint64_t reserved_bytes;                 /* promised to uploads that are under way */
    int64_t scanned_ms;                      /* when that look ended */
    bool low_space;
    bool scanned; /* there was a look */
    char
        deliver_state[24]; /* of the process `tallyman deliver`: the supervisor's words, or "off" */
    uint64_t deliver_restarts;
    char deliver_detail[200];
};

struct manage_query_options {
    const char *engine_socket; /* of the embedded engine; NULL: there is none */
    bool outside;              /* a ClickHouse of the user's has the events */
    uint64_t time_ms, rows_max, bytes_max;
};

struct manage_query;
struct uploads;

/* Filled by serve, borrowed for the server's life; zero what is not there. */
struct manage {
    struct journal *journal;
    const char *version, *revision;
    uint64_t started_ns; /* monotonic */
    bool stopping;
    struct store *store;     /* NULL: no queue, and nothing under /api/v1/ but status */
    const char *store_cause; /* store NULL: why it could not be opened yet; else NULL */
    const char *data;        /* the data directory, for readers of the store */
    struct sink *sink;       /* NULL: nothing is delivered */
    const char *sink_name;   /* of its adapter */
    /* How the embedded engine is; NULL: there is none. */
    void (*engine_status)(void *ctx, struct manage_engine *out);
    void *engine_ctx;
    const struct sandbox_state *sandbox; /* of this process; NULL: none is known */
    /* How the artifact door is; NULL: there is none, and no artifact either. */
    void (*artifact_status)(void *ctx, struct manage_artifacts *out);
    /* What waits there, by project: members of an object that has some. NULL: it is not told. */
    void (*artifact_partials)(void *ctx, struct buf *out);
    void *artifact_ctx;
    struct uploads *uploads;      /* to ask about artifacts; NULL: there are none */
    uint64_t upload_retention_ms; /* of partial uploads */
    struct manage_query_options query;
    /* manage's own: queries under way and behind them, in order. */
    struct manage_query *running, *waiting;
    unsigned running_count, waiting_count;
    atomic_bool cancel;
};

/* Fills MANAGE_ROUTES routes. */
void manage_routes(struct manage *m, struct http_route *out);
/* The server is stopping: queries under way end soon, those behind them at once. */
void manage_stopping(struct manage *m);
/* Joins the threads of queries. After http_run, before http_free. */
void manage_end(struct manage *m);

#endif
