/* settings: metadata.
 *
 * Answers only. */
#include "store/artifact/settings.h"

#include "store/artifact/destination.h"
#include "json/read.h"
#include "json/write.h"

/* ---- metadata ---- */

bool settings_metadata_again(struct slice json, struct buf *out)
{
    struct json_iter it = json_iter_object(json);
    struct slice name, list, value, inner, before = {0};

    buf_put_char(out, '{');
    while (json_next_member(&it, &name, &list)) {
        struct json_iter values = json_iter_array(list);
        struct err ignored;
        /* A key that is allowed has no escapes: raw is text. */
        if (destination_metadata_key(name, &ignored) < 0 ||
            (before.ptr != NULL && slice_cmp(before, name) >= 0)) {
            return false;
        }
        before = name;
        buf_put_cstr(out, out->ptr != NULL && out->ptr[out->len - 1] == '{' ? "\"" : ",\"");
        buf_put_slice(out, name);
        buf_put_cstr(out, "\":[");
        for (bool first = true; json_next_element(&values, &value); first = false) {
            struct buf text = {0};
            if (!json_string_raw(value, &inner)) {
                return false;
            }
            json_unescape(inner, &text);
            buf_put_cstr(out, first ? "" : ",");
            json_put_string(out, buf_slice(&text));
            out->failed = out->failed || text.failed;
            buf_free(&text);
        }
        buf_put_char(out, ']');
        if (values.bad) {
            return false;
        }
    }
    buf_put_char(out, '}');
    return !it.bad && !out->failed;
}

/* One value: expanded into *text, checked, counted. */
static int expand_value(struct slice key, struct slice inner, const struct template_values *v,
                        struct buf *text, size_t *header_bytes, struct err *e)
{
    struct buf plain = {0};
    struct err why = {0};
    int r = 0;

    json_unescape(inner, &plain);
    template_expand(buf_slice(&plain), v, text);
    if (plain.failed || text->failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    } else if (destination_metadata_value(buf_slice(text), &why) < 0) {
        r = err_set(e, ERR_INVALID_PROJECT, "%.*s: %.200s", (int)key.len, key.ptr, why.text);
    }
    *header_bytes += destination_header_bytes(key, buf_slice(text));
    if (r == 0 && *header_bytes > DESTINATION_HEADERS_MAX - DESTINATION_HEADERS_OTHER) {
        r = err_set(e, ERR_INVALID_PROJECT, "as headers it takes more than %d bytes",
                    DESTINATION_HEADERS_MAX - DESTINATION_HEADERS_OTHER);
    }
    buf_free(&plain);
    return r;
}

static int expand_list(struct slice key, struct slice list, const struct template_values *v,
                       struct buf *out, size_t *header_bytes, struct err *e)
{
    struct json_iter values = json_iter_array(list);
    struct slice value, inner;
    int r = 0;

    for (bool first = true; r == 0 && json_next_element(&values, &value); first = false) {
        struct buf text = {0};
        if (!json_string_raw(value, &inner)) {
            return err_set(e, ERR_INVALID_PROJECT, "%.*s: it is a list of texts", (int)key.len,
                           key.ptr);
        }
        r = expand_value(key, inner, v, &text, header_bytes, e);
        if (r == 0) {
            buf_put_cstr(out, first ? "" : ",");
            json_put_string(out, buf_slice(&text));
        }
        buf_free(&text);
    }
    return r == 0 && values.bad
               ? err_set(e, ERR_INVALID_PROJECT, "%.*s: it is no list", (int)key.len, key.ptr)
               : r;
}

int settings_metadata_expand(struct slice metadata, const struct template_values *v,
                             struct buf *out, struct err *e)
{
    struct json_iter it = json_iter_object(metadata);
    struct slice key, list;
    size_t header_bytes = 0;
    int r = 0;

    buf_put_char(out, '{');
    for (bool first = true; r == 0 && json_next_member(&it, &key, &list); first = false) {
        r = destination_metadata_key(key, e);
        if (r == 0) {
            buf_put_cstr(out, first ? "\"" : ",\"");
            buf_put_slice(out, key);
            buf_put_cstr(out, "\":[");
            r = expand_list(key, list, v, out, &header_bytes, e);
            buf_put_char(out, ']');
        }
    }
    buf_put_char(out, '}');
    if (r == 0 && it.bad) {
        r = err_set(e, ERR_INVALID_PROJECT, "it is no JSON object");
    }
    if (r == 0 && out->failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    }
    return r;
}
