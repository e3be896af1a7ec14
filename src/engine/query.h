/* query: one request of the HTTP interface, understood but not yet run.
 *
 * Slices borrow from the request or its arena. Blocks: no. */
#ifndef ENGINE_QUERY_H
#define ENGINE_QUERY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/library.h"

#define QUERY_SETTINGS_MAX 128
#define QUERY_PROJECT_MAX  64u

/* An error in ClickHouse's terms. */
struct query_error {
    unsigned code; /* enum code; 0: none */
    char text[2048];
};
void query_fail(struct query_error *e, unsigned code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

struct query {
    struct slice sql;  /* parameter query, or empty */
    struct slice body; /* the rest of the statement, or rows */
    struct slice format;
    struct slice database;
    struct slice id;                                /* query_id, or empty */
    bool reading;                                   /* GET */
    struct library_param param[LIBRARY_PARAMS_MAX]; /* names without "param_" */
    size_t param_count;
    struct library_param setting[QUERY_SETTINGS_MAX];
    size_t setting_count;

    const char *sync_dir; /* synced before an insert is answered (run.c); NULL: nothing */

    struct slice project; /* empty: the owner asks */
    uint64_t time_ms;     /* limits of a project's query */
    uint64_t rows_max;
    uint64_t bytes_max;
};

/* Takes the URL's parameters. false with *e: malformed, too many, or one that this front has not
 * got (session_id, compress, decompress, role). */
bool query_take_url(struct query *q, struct slice url_query, struct arena *a,
                    struct query_error *e);
/* Takes a project and its limits; text forms of the headers, empty ones being absent. Call after
 * query_take_url. false with *e: a name or number that is none, settings, an unknown format. */
struct query_limits {
    struct slice time_ms, rows_max, bytes_max;
};
bool query_take_project(struct query *q, struct slice project, const struct query_limits *limits,
                        struct query_error *e);

#endif
