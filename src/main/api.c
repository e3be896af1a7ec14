/* A call's failure has two exit codes: 2 for a wrong target (URL, token file), 1 for everything
 * that a server or the way to it says. */
#include "main/api.h"

#include <string.h>

#include "base/ensure.h"
#include "main/output.h"
#include "json/read.h"

#define CELL_MAX 60

bool api_call(const struct client_target *target, const struct client_request *req,
              struct client_answer *answer, int *code)
{
    struct err e = {0};
    struct client *client = NULL;
    *answer = (struct client_answer){0};
    int r = client_open(&client, target, &e);
    if (r == 0) {
        r = client_do(client, req, answer, &e);
    }
    bool stopped = r == ERR_REFUSED; /* by the sink, which has said why */
    if (r == 0 && (answer->status < 200 || answer->status > 299)) {
        r = client_refusal(client, answer, &e);
    }
    if (r != 0) {
        if (!stopped) {
            output_error(target->verb, "%s", e.text);
        }
        *code = r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
        client_answer_free(answer);
    }
    client_close(client);
    return r == 0;
}

void api_put_path(struct buf *out, const char *prefix, struct slice name)
{
    struct buf encoded;
    buf_init(&encoded, 0);
    client_put_query(&encoded, "", name);
    buf_put_cstr(out, prefix);
    if (encoded.len > 0) {
        buf_put(out, encoded.ptr + 1, encoded.len - 1); /* without the '=' */
    }
    out->failed = out->failed || encoded.failed;
    buf_free(&encoded);
}

struct slice api_text(struct slice object, const char *name)
{
    struct slice value;
    struct slice inner;
    if (!json_member(object, slice_cstr(name), &value) || json_type_of(value) == JSON_NULL) {
        return SLICE("");
    }
    return json_string_raw(value, &inner) ? inner : value;
}

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7f;
}

void api_put_shown(struct buf *out, struct slice value)
{
    struct slice inner;
    size_t start = out->len;
    if (!json_string_raw(value, &inner)) {
        buf_put_slice(out, value);
        return;
    }
    json_unescape(inner, out);
    for (size_t i = start; i < out->len; i++) {
        unsigned char c = (unsigned char)out->ptr[i];
        /* U+0080 to U+009F, two bytes in UTF-8, are control characters too. */
        bool c1 = c == 0xc2 && i + 1 < out->len && (unsigned char)out->ptr[i + 1] < 0xa0;
        if (c1) {
            out->ptr[i++] = '?';
        }
        if (c1 || is_control(c)) {
            out->ptr[i] = '?';
        }
    }
}

void api_print_member(struct slice object, const char *name)
{
    struct slice value;
    struct buf shown = {0};
    if (json_member(object, slice_cstr(name), &value) && json_type_of(value) != JSON_NULL) {
        api_put_shown(&shown, value);
    }
    output_put(shown.failed ? SLICE("(out of memory)") : buf_slice(&shown));
    buf_free(&shown);
}

void table_begin(struct table *t, size_t columns)
{
    ensure(columns <= TABLE_COLUMNS_MAX);
    *t = (struct table){.columns = columns};
    buf_init(&t->text, 0);
    buf_init(&t->length, 0);
}

void table_cell(struct table *t, struct slice text)
{
    uint32_t len = text.len > UINT32_MAX ? UINT32_MAX : (uint32_t)text.len;
    buf_put(&t->text, text.ptr, len);
    buf_put(&t->length, &len, sizeof len);
}

static void end_cell(struct table *t, size_t start)
{
    uint32_t len = (uint32_t)(t->text.len - start); /* an answer is far smaller than that */
    buf_put(&t->length, &len, sizeof len);
}

void table_cell_value(struct table *t, struct slice value)
{
    size_t start = t->text.len;
    api_put_shown(&t->text, value);
    end_cell(t, start);
}

void table_cell_member(struct table *t, struct slice object, const char *name)
{
    size_t start = t->text.len;
    struct slice value;
    struct slice item;
    if (json_member(object, slice_cstr(name), &value) && json_type_of(value) != JSON_NULL) {
        if (json_type_of(value) == JSON_ARRAY) {
            struct json_iter it = json_iter_array(value);
            while (json_next_element(&it, &item)) {
                if (t->text.len > start) {
                    buf_put_char(&t->text, ',');
                }
                api_put_shown(&t->text, item);
            }
        } else {
            api_put_shown(&t->text, value);
        }
    }
    end_cell(t, start);
}

/* Characters, not bytes: one for each byte that does not continue another. */
static size_t width_of(struct slice s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        n += ((unsigned char)s.ptr[i] & 0xc0) != 0x80;
    }
    return n;
}

/* The first n characters. */
static struct slice cut(struct slice s, size_t n)
{
    size_t i = 0;
    for (size_t seen = 0; i < s.len; i++) {
        seen += ((unsigned char)s.ptr[i] & 0xc0) != 0x80;
        if (seen > n) {
            break;
        }
    }
    return slice_of(s.ptr, i);
}

struct cells {
    const struct table *t;
    size_t at; /* of the next cell's text */
    size_t next;
};

static bool next_cell(struct cells *c, struct slice *text)
{
    uint32_t len = 0;
    if (c->next * sizeof len >= c->t->length.len) {
        return false;
    }
    memcpy(&len, c->t->length.ptr + c->next * sizeof len, sizeof len);
    *text = slice_of(c->t->text.ptr + c->at, len);
    c->at += len;
    c->next++;
    return true;
}

static void print_cell(struct slice text, size_t width, bool last)
{
    size_t have = width_of(text);
    if (have > CELL_MAX) {
        struct slice shown = cut(text, CELL_MAX - 3);
        output_put(shown);
        output_put(SLICE("..."));
        have = CELL_MAX;
    } else {
        output_put(text);
    }
    if (last) {
        output_put(SLICE("\n"));
    } else {
        output_printf("%*s", (int)(width - have + 2), "");
    }
}

bool table_end(struct table *t)
{
    size_t width[TABLE_COLUMNS_MAX] = {0};
    struct slice text;
    bool ok = !t->text.failed && !t->length.failed;
    struct cells c = {.t = t};
    while (ok && next_cell(&c, &text)) {
        size_t column = (c.next - 1) % t->columns;
        size_t w = width_of(text);
        w = w > CELL_MAX ? CELL_MAX : w;
        width[column] = w > width[column] ? w : width[column];
    }
    c = (struct cells){.t = t};
    while (ok && next_cell(&c, &text)) {
        size_t column = (c.next - 1) % t->columns;
        print_cell(text, width[column], column + 1 == t->columns);
    }
    buf_free(&t->text);
    buf_free(&t->length);
    return ok;
}
