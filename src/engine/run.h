/* run: a query against the library, on a connection of its own.
 *
 * Threads: run_query is for worker threads; it blocks as long as the statement takes. */
#ifndef ENGINE_RUN_H
#define ENGINE_RUN_H

#include "engine/library.h"
#include "engine/query.h"

/* The options every connection is opened with (the process works in its empty directory). */
extern char *const run_options[];

struct run_result {
    struct query_error error; /* code 0: answered */
    struct library_answer answer;
    struct slice format; /* of the answer; borrows from the query */
};

/* Runs q. Fills *out; run_result_free when its answer has left. */
void run_query(struct query *q, struct run_result *out);
void run_result_free(struct run_result *out);

/* For boot's self-test: a connection as a project's query has it, the gate not asked. false with
 * *e. The caller closes it. */
bool run_open_project(struct library_conn *c, const struct query *q, struct query_error *e);
/* Asks the gate about sql on such a connection. */
bool run_gate(struct library_conn *c, struct slice sql, const struct library_params *params,
              struct query_error *e);

#endif
