/* engine_protocol: what tallyman-engine and its callers agree on.
 *
 * Process. `tallyman-engine --data DIR --library FILE [--socket PATH] [--parent-fd N] [--nice N]
 * [--memory-bytes N] [--listen HOST:PORT --secret-file FILE]`. It makes DIR (mode 0700) and what is
 * in it, and works in DIR/empty. The socket is DIR/engine.sock unless named (then it is bound by
 * its absolute path, which must fit a socket's 107 bytes). N of --parent-fd is the reading end of a
 * pipe whose writing end only the parent holds: its end of file ends the engine. SIGTERM and SIGINT
 * end it too. Ready is when GET /ping on the socket answers 200; the socket is bound only after the
 * engine is up, so a refused connection means "not yet". Exit codes: ENGINE_EXIT_*.
 *
 * Interface. The Unix socket (mode 0600) is the owner's: every request there has all rights, unless
 * it names a project. On TCP the owner says who he is (HTTP Basic, or X-ClickHouse-User and -Key;
 * user ENGINE_USER, the secret file's text as password).
 *
 *   GET  /ping     200 "Ok.\n"
 *   GET  /status   {"state":"ready","version":"26.7.3","queries":"open"|"closed","reason":"..."}:
 *                  what keeps project queries closed is in reason (fit for a status page)
 *   GET  /?query=  a reading statement (readonly = 2)
 *   POST /?query=  a statement; or the statement in the body; or INSERT ... FORMAT F in query and
 *                  the rows in the body. Content-Encoding: gzip is taken.
 *
 * URL parameters: query, database, default_format, query_id, param_NAME (for {NAME:Type}); every
 * other one is a setting of ClickHouse. Answers as ClickHouse's HTTP interface gives them:
 * X-ClickHouse-Query-Id, -Format, -Timezone, -Summary (written_rows and others, decimal strings);
 * an error has X-ClickHouse-Exception-Code, the status of spec/clickhouse.md C4 and the body
 * "Code: N. DB::Exception: ...". An answer begins only when the statement has ended, so a status
 * 200 is the whole truth.
 *
 * Project queries: POST with ENGINE_PROJECT_HEADER. One reading statement over `events` (also as
 * `q.events`), which holds that project's rows only; the form of the answer by default_format
 * (ENGINE_PROJECT_FORMATS), parameters param_NAME, no settings. Limits by the headers below, else
 * the defaults. Refused by the gate: 403, code 497. Past a limit: codes 158, 159, 241, 307, 396.
 * While isolation is not proven: 503, code 344. Four such queries run at once, three of them of one
 * project, and sixteen wait; more: 503, code 439. One that goes on long past its limit of time
 * cannot be ended alone: it ends the process (ENGINE_EXIT_STUCK). */
#ifndef ENGINE_ENGINE_PROTOCOL_H
#define ENGINE_ENGINE_PROTOCOL_H

#define ENGINE_USER "owner"

#define ENGINE_PROJECT_HEADER "x-tallyman-project" /* [a-z0-9_-]{1,64} */
#define ENGINE_TIME_HEADER    "x-tallyman-time-ms"
#define ENGINE_ROWS_HEADER    "x-tallyman-rows-max"
#define ENGINE_BYTES_HEADER   "x-tallyman-bytes-max"

#define ENGINE_TIME_MS_DEFAULT   10000u
#define ENGINE_ROWS_MAX_DEFAULT  100000u
#define ENGINE_BYTES_MAX_DEFAULT (32u << 20)

/* X(name): forms of an answer that a project may ask for. */
#define ENGINE_PROJECT_FORMATS(X) \
    X("JSON")                     \
    X("JSONCompact")              \
    X("JSONEachRow")              \
    X("CSV")                      \
    X("CSVWithNames")             \
    X("TabSeparated")             \
    X("TabSeparatedWithNames")

#define ENGINE_EXIT_USAGE   2 /* wrong options: a restart does not help */
#define ENGINE_EXIT_LIBRARY 3 /* the library is missing or not the right one */
#define ENGINE_EXIT_START   4 /* the data directory, or the engine in it, would not start */
#define ENGINE_EXIT_SERVE   5 /* the sockets, or the loop */
#define ENGINE_EXIT_STUCK   6 /* a project's query does not end: a restart helps */

#endif
