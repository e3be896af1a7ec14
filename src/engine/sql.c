/* sql: a lexer for ClickHouse's SQL, just wide enough.
 *
 *   '...'  "..."  `...`   a backslash takes the next byte with it; a doubled quote stands for one
 *   $tag$ ... $tag$       a string without escapes; tag is word bytes or nothing
 *   -- ...   # ...  #! ...  to the end of the line      slash-star ... star-slash  not nested
 *
 * Where this lexer and the engine's could differ, the front must not be the one that decides: see
 * gate.c. Answers only: no text makes it fail; unfinished tokens are SQL_BROKEN. */
#include "engine/sql.h"

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

static bool is_word_byte(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '$' || (unsigned char)c >= 0x80;
}

static void skip_line(struct slice *s)
{
    const char *end = memchr(s->ptr, '\n', s->len);

    *s = slice_from(*s, end != NULL ? (size_t)(end - s->ptr) + 1 : s->len);
}

/* False: a comment without an end. */
static bool skip_space(struct slice *s)
{
    while (s->len != 0) {
        if (is_space(s->ptr[0])) {
            *s = slice_from(*s, 1);
        } else if (slice_starts(*s, SLICE("--")) || s->ptr[0] == '#') {
            skip_line(s);
        } else if (slice_starts(*s, SLICE("/*"))) {
            const char *end = s->len > 3 ? memmem(s->ptr + 2, s->len - 2, "*/", 2) : NULL;

            if (end == NULL) {
                return false;
            }
            *s = slice_from(*s, (size_t)(end - s->ptr) + 2);
        } else {
            return true;
        }
    }
    return true;
}

/* Length of the quoted thing at s, 0 when it does not end. */
static size_t quoted_len(struct slice s)
{
    char quote = s.ptr[0];

    for (size_t i = 1; i < s.len; i++) {
        if (s.ptr[i] == '\\') {
            i++;
        } else if (s.ptr[i] == quote) {
            if (i + 1 < s.len && s.ptr[i + 1] == quote) {
                i++;
            } else {
                return i + 1;
            }
        }
    }
    return 0;
}

/* Length of the here-document at s, 0 when there is none (a '$' also begins words). */
static size_t heredoc_len(struct slice s)
{
    size_t tag = 1;
    const char *end;

    while (tag < s.len && s.ptr[tag] != '$' && is_word_byte(s.ptr[tag])) {
        tag++;
    }
    if (tag >= s.len || s.ptr[tag] != '$') {
        return 0;
    }
    tag++;
    end = memmem(s.ptr + tag, s.len - tag, s.ptr, tag);
    return end != NULL ? (size_t)(end - s.ptr) + tag : 0;
}

static struct sql_token take(struct sql_reader *r, enum sql_kind kind, size_t n)
{
    struct sql_token t = {.kind = kind, .text = slice_of(r->rest.ptr, n)};

    r->rest = slice_from(r->rest, n);
    return t;
}

struct sql_token sql_next(struct sql_reader *r)
{
    size_t n = 0;
    char c;

    if (!skip_space(&r->rest)) {
        return (struct sql_token){.kind = SQL_BROKEN, .text = r->rest};
    }
    if (r->rest.len == 0) {
        return (struct sql_token){.kind = SQL_END, .text = r->rest};
    }
    c = r->rest.ptr[0];
    if (c == '\'' || c == '"' || c == '`') {
        n = quoted_len(r->rest);
        if (n == 0) {
            return (struct sql_token){.kind = SQL_BROKEN, .text = r->rest};
        }
        return take(r, c == '\'' ? SQL_STRING : SQL_QUOTED, n);
    }
    if (c == '$') {
        n = heredoc_len(r->rest);
        if (n != 0) {
            return take(r, SQL_STRING, n);
        }
    }
    while (n < r->rest.len && is_word_byte(r->rest.ptr[n])) {
        n++;
    }
    return n != 0 ? take(r, SQL_WORD, n) : take(r, SQL_SIGN, 1);
}

bool sql_is_word(const struct sql_token *t, const char *upper)
{
    size_t i = 0;

    if (t->kind != SQL_WORD) {
        return false;
    }
    for (; i < t->text.len; i++) {
        char c = t->text.ptr[i];

        c = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
        if (upper[i] == '\0' || c != upper[i]) {
            return false;
        }
    }
    return upper[i] == '\0';
}

static bool is_odd(const struct sql_token *t)
{
    if (t->kind == SQL_BROKEN) {
        return true;
    }
    for (size_t i = 0; t->kind == SQL_QUOTED && i < t->text.len; i++) {
        if ((unsigned char)t->text.ptr[i] < 0x20 || t->text.ptr[i] == '\\') {
            return true;
        }
    }
    return false;
}

static bool is_sign(const struct sql_token *t, char c)
{
    return t->kind == SQL_SIGN && t->text.ptr[0] == c;
}

/* Behind FORMAT name: what the name is separated by belongs to neither. */
static struct slice rows_behind(struct slice rest)
{
    while (rest.len != 0 && (rest.ptr[0] == ' ' || rest.ptr[0] == '\t' || rest.ptr[0] == '\r')) {
        rest = slice_from(rest, 1);
    }
    if (rest.len != 0 && (rest.ptr[0] == ';' || rest.ptr[0] == '\n')) {
        rest = slice_from(rest, 1);
    }
    return rest;
}

void sql_shape(struct slice sql, struct sql_shape *out)
{
    struct sql_reader r = {.rest = sql};
    struct sql_token t = sql_next(&r);
    bool insert = sql_is_word(&t, "INSERT");
    bool own_rows = false; /* VALUES or SELECT: the rows are in the statement */
    unsigned depth = 0;

    *out = (struct sql_shape){.first = t.kind == SQL_END ? (struct slice){0} : t.text};
    for (; t.kind != SQL_END; t = sql_next(&r)) {
        out->odd_name = out->odd_name || is_odd(&t);
        if (t.kind == SQL_BROKEN) {
            return;
        }
        depth += is_sign(&t, '(') ? 1 : 0;
        depth -= is_sign(&t, ')') && depth != 0 ? 1 : 0;
        if (depth != 0) {
            continue;
        }
        own_rows = own_rows || sql_is_word(&t, "VALUES") || sql_is_word(&t, "SELECT") ||
                   sql_is_word(&t, "WITH");
        if (sql_is_word(&t, "FORMAT")) {
            struct slice before = slice_of(sql.ptr, (size_t)(t.text.ptr - sql.ptr));
            struct sql_reader ahead = r;
            struct sql_token name = sql_next(&ahead);

            if (name.kind == SQL_WORD) {
                out->format = name.text;
                if (insert && !own_rows) {
                    out->insert_rows = true;
                    out->head = before;
                    out->rows = rows_behind(ahead.rest);
                    return;
                }
            }
        }
    }
}

struct slice sql_trim(struct slice sql)
{
    while (sql.len != 0 && (is_space(sql.ptr[sql.len - 1]) || sql.ptr[sql.len - 1] == ';')) {
        sql.len--;
    }
    return sql;
}

static void put_quoted(struct buf *out, struct slice text, char quote)
{
    buf_put_char(out, quote);
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == quote || text.ptr[i] == '\\') {
            buf_put_char(out, '\\');
        }
        buf_put_char(out, text.ptr[i]);
    }
    buf_put_char(out, quote);
}

void sql_put_string(struct buf *out, struct slice text)
{
    put_quoted(out, text, '\'');
}

void sql_put_name(struct buf *out, struct slice text)
{
    put_quoted(out, text, '`');
}
