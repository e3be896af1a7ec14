/* token: the bearer token, from a file or the environment; never from the command line, never in a
 * message. */
#ifndef MAIN_TOKEN_H
#define MAIN_TOKEN_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#define TOKEN_MAX 4096

/* Appends the token in `path` to the empty *out: white space around it is cut, the rest must be 1
 * to 4096 visible ASCII bytes. Logs a warning when group or others may read the file. ERR_USAGE
 * with a text that names the path and the rule, ERR_NO_MEMORY. */
int token_from_file(const char *path, struct buf *out, struct err *e) MUST_CHECK;
/* True for 1 to 4096 visible ASCII bytes. */
bool token_valid(struct slice s);
/* Overwrites and releases. */
void token_forget(struct buf *token);

#endif
