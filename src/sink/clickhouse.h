/* clickhouse: the adapter that speaks ClickHouse's HTTP interface, to a server of the user's or to
 * the embedded engine (spec/clickhouse.md, sections C1 to C5; table and view of
 * spec/capture-delivery.md, decisions). */
#ifndef SINK_CLICKHOUSE_H
#define SINK_CLICKHOUSE_H

#include "sink/sink.h"

struct clickhouse_options {
    const char *url;         /* http://HOST:PORT; for the engine http://engine */
    const char *unix_socket; /* the engine's socket, or NULL */
    const char *user;        /* "" : none */
    struct slice password;   /* borrowed; empty: none */
    bool embedded;           /* the engine makes database, table and views itself */
};

struct clickhouse;
int clickhouse_new(const struct clickhouse_options *options, struct clickhouse **out,
                   struct err *e) MUST_CHECK;
void clickhouse_free(struct clickhouse *c);
extern const struct sink_adapter clickhouse_adapter; /* its ctx is a struct clickhouse */

/* One JSONEachRow line (with '\n') of events_v2 for a row of the queue, at revision 0. properties
 * and context are always valid JSON; raw is the untouched text only where something was mended. */
int clickhouse_encode_row(const struct queue_row *row, struct buf *out, struct err *e) MUST_CHECK;
/* The same for many. Any thread. ERR_NO_MEMORY. */
int clickhouse_encode_rows(const struct queue_row *row, size_t count, struct buf *out,
                           struct err *e) MUST_CHECK;

#endif
