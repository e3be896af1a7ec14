/* serve_delivery: where accepted events go. The embedded engine as a supervised child, or a
 * ClickHouse of the user's, and the sink that feeds it. Loop thread only.
 *
 * Nothing here can stop intake: without the engine's library, or while the destination is down,
 * events stay queued and status says why. */
#ifndef MAIN_SERVE_DELIVERY_H
#define MAIN_SERVE_DELIVERY_H

#include "door/manage/manage.h"
#include "main/child.h"
#include "main/config.h"
#include "main/spawner.h"
#include "sink/clickhouse.h"

#define DELIVERY_PATH_MAX 4300
#define DELIVERY_ARGS_MAX 10

struct delivery {
    const struct config *config;
    struct spawner *spawner; /* starts the engine; NULL: this process does */
    bool embedded;           /* the engine is ours to run */
    bool started;            /* child is in use */
    struct child child;
    uint64_t starts_seen;
    unsigned wakes_left; /* ticks in which the sink is told to try again */
    char program[DELIVERY_PATH_MAX];
    char library[DELIVERY_PATH_MAX];
    char data[DELIVERY_PATH_MAX]; /* of the engine */
    char socket[DELIVERY_PATH_MAX];
    char *argv[DELIVERY_ARGS_MAX];
    struct clickhouse *clickhouse;
    struct sink *sink; /* NULL: nothing is delivered (engine off and no clickhouse_url) */
};

/* Names the engine, with each place where its library may be, to the spawner. ERR_IO,
 * ERR_NO_MEMORY. */
int delivery_add_commands(const struct config *c, struct spawner *s, struct err *e) MUST_CHECK;
/* Starts what the settings ask for. c and spawner (may be NULL) are borrowed for the life of d.
 * ERR_NO_MEMORY, ERR_IO (a thread, the reader of the store). */
int delivery_start(struct delivery *d, const struct config *c, struct spawner *spawner,
                   struct store *store, struct http_server *server, struct err *e) MUST_CHECK;
/* About once a second. */
void delivery_tick(struct delivery *d);
/* For manage: how the engine is. ctx is a struct delivery. */
void delivery_engine_status(void *ctx, struct manage_engine *out);
/* The sink ends first (what it delivered is recorded), then the engine. After http_run. */
void delivery_stop(struct delivery *d);

#endif
