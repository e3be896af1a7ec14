/* api_query: one query on its way to the engine and back (internal to door/manage). */
#ifndef DOOR_MANAGE_API_QUERY_H
#define DOOR_MANAGE_API_QUERY_H

#include <pthread.h>

#include "door/manage/api.h"
#include "http/pool.h"

/* X(symbol, name in the API, ClickHouse's name, content type) */
#define MANAGE_QUERY_FORMATS(X)                                \
    X(JSON, "json", "JSON", "application/json")                \
    X(NDJSON, "ndjson", "JSONEachRow", "application/x-ndjson") \
    X(CSV, "csv", "CSVWithNames", "text/csv; charset=utf-8")

enum manage_query_format {
#define X(sym, name, clickhouse, type) MANAGE_QUERY_##sym,
    MANAGE_QUERY_FORMATS(X)
#undef X
        MANAGE_QUERY_FORMAT_COUNT
};

#define MANAGE_QUERY_PIECES 7

struct manage_query {
    struct manage_query *next; /* of the running, or of those behind them */
    struct manage *m;
    struct http_request *req;   /* loop thread only */
    struct http_server *server; /* to come back to the loop */
    struct http_job back;
    pthread_t thread;
    bool joined;
    enum manage_query_format format;
    char project[PROJECT_NAME_MAX + 1];
    struct buf sql;
    struct manage_delivery delivery;
    struct buf body; /* of the engine's answer */
    bool too_long;
    int code;        /* 0, or the ERR_ of the answer */
    int clickhouse;  /* ClickHouse's own number; 0: none */
    struct buf text; /* why, for people; ends in a NUL when it is not empty */
    /* The answer: pieces of `body` and of `tail`, in order; at: how far it was sent. */
    struct slice piece[MANAGE_QUERY_PIECES];
    unsigned piece_count, piece_at;
    struct buf tail;
};

/* The query's own thread: reads the delivery state, asks the engine, and makes code, text and
 * pieces of what comes. Blocks, at most as long as a query may take and a second. */
void manage_query_run(struct manage_query *q);

/* Makes pieces of a whole body of the right format, or says why not. */
void manage_query_shape(struct manage_query *q);
/* What an error text of ClickHouse means: sets code, clickhouse and text. number 0: as the text
 * says. */
void manage_query_refused(struct manage_query *q, unsigned status, int number, struct slice text);
void manage_query_fail(struct manage_query *q, int code, const char *text);

#endif
