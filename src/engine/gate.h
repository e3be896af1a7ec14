/* gate: which statements of a project reach the engine at all.
 *
 * Rights in the engine are the wall (boot.h); the gate stands before it, because the engine's wall
 * has two known doors: SET ROLE, and functions that reach files or hosts without asking for rights.
 * Three checks, each enough against SET ROLE: the statement's first word; the class that the
 * engine's parser gives it (library_classify); the tree that EXPLAIN AST prints of it. Blocks:
 * no. */
#ifndef ENGINE_GATE_H
#define ENGINE_GATE_H

#include <stdbool.h>

#include "base/slice.h"

#define GATE_SQL_BYTES_MAX 204800u /* below the engine's own max_query_size */
#define GATE_REASON_BYTES  200u

/* Of the text alone: begins with SELECT, WITH or '('; no odd names; not too long. */
bool gate_text(struct slice sql, char reason[GATE_REASON_BYTES]);
/* Of EXPLAIN AST's answer as TSVRaw: one SELECT without FORMAT, INTO or SETTINGS, made of known
 * kinds of nodes, without functions and table functions that reach beyond the rows. */
bool gate_tree(struct slice tree, char reason[GATE_REASON_BYTES]);

#endif
