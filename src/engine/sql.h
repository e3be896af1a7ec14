/* sql: as much of SQL's outside as the engine's front must see.
 *
 * Which word a statement begins with, whether it is an INSERT whose rows follow, and what its
 * FORMAT clause says. Nothing is decided about rights here but in gate.h, which asks the engine's
 * own parser as well. Slices borrow from the text. Blocks: no. */
#ifndef ENGINE_SQL_H
#define ENGINE_SQL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"

enum sql_kind {
    SQL_END,
    SQL_WORD,   /* name, keyword or number: letters, digits, '_', '$', bytes of 128 and more */
    SQL_STRING, /* '...', or $tag$...$tag$ */
    SQL_QUOTED, /* "..." or `...`: a name */
    SQL_SIGN,   /* one other byte */
    SQL_BROKEN  /* a string, name or comment without an end */
};

struct sql_token {
    enum sql_kind kind;
    struct slice text; /* quotes included */
};

struct sql_reader {
    struct slice rest; /* behind the last token */
};

/* The next token; white space and comments are skipped. SQL_END and SQL_BROKEN stay. */
struct sql_token sql_next(struct sql_reader *r);
/* A word, whatever its case; `upper` in upper case. */
bool sql_is_word(const struct sql_token *t, const char *upper);

/* A statement taken apart. */
struct sql_shape {
    struct slice first;  /* its first word or sign, empty when there is none */
    bool insert_rows;    /* INSERT ... FORMAT name [rows] */
    struct slice head;   /* with insert_rows: what stands before FORMAT */
    struct slice rows;   /* with insert_rows: what stands behind the name and one line end */
    struct slice format; /* name behind the last FORMAT outside parentheses, or empty */
    bool odd_name; /* a quoted name with a backslash or control byte in it, or a broken token */
};
void sql_shape(struct slice sql, struct sql_shape *out);

/* sql without white space and semicolons at its end. */
struct slice sql_trim(struct slice sql);

/* Appends 'text' or `text` with what must be escaped escaped. */
void sql_put_string(struct buf *out, struct slice text);
void sql_put_name(struct buf *out, struct slice text);

#endif
