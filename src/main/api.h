/* api: one call of the management API, for the verbs that are little more than that, and the tables
 * they print. */
#ifndef MAIN_API_H
#define MAIN_API_H

#include "main/client.h"

/* Sends one request to the server of the target. True: a 2xx is in *answer (client_answer_free it).
 * False: the reason is on standard error and *code is the exit code. */
bool api_call(const struct client_target *target, const struct client_request *req,
              struct client_answer *answer, int *code);

/* Appends PREFIX and the name as one path segment, percent-encoded: "/api/v1/projects/" + "a b". */
void api_put_path(struct buf *out, const char *prefix, struct slice name);

/* The raw text of a string member, still escaped; "" when it is absent or null. Numbers and the
 * other scalars as they are written. */
struct slice api_text(struct slice object, const char *name);
/* Appends a value for people to read: of a string its text, with '?' for control characters, so
 * that a text cannot move a terminal's cursor; of anything else the JSON. */
void api_put_shown(struct buf *out, struct slice value);
/* The same for a member, nothing when it is absent or null; printed, not appended. */
void api_print_member(struct slice object, const char *name);

/* ---- a table on standard output ----
 * Columns are as wide as their widest cell, at most 60 characters; longer cells are cut with "...".
 * Held in memory as a whole: for answers, which are bounded. */
#define TABLE_COLUMNS_MAX 256

struct table {
    size_t columns;
    struct buf text;   /* all cells, one after the other */
    struct buf length; /* uint32_t of each */
    bool failed;
};
void table_begin(struct table *t, size_t columns);
void table_cell(struct table *t, struct slice text);
/* Cells as api_put_shown makes them. Of a member: empty when it is absent or null; an array's
 * elements with commas between them. */
void table_cell_value(struct table *t, struct slice value);
void table_cell_member(struct table *t, struct slice object, const char *name);
/* Prints and releases. False without memory. */
bool table_end(struct table *t);

#endif
