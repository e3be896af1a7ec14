/* settings: metadata, canonical JSON: name -> array of texts.
 *
 * Invariants: names are sorted and each is there once; no list is empty; texts are escaped as
 * json/write does it, so that equal metadata is equal text. Errors name the value, as in
 * `title[0]: ...`.
 *
 * Power failure: nothing is stored here. Answers: what is no such object, texts that no header can
 * carry, and no memory. */
#include "store/artifact/settings.h"

#include "base/ensure.h"
#include "store/artifact/destination.h"
#include "json/read.h"
#include "json/write.h"

static int say(struct err *e, struct slice key, const char *what)
{
    int n = key.len > 60 ? 60 : (int)key.len;

    return err_set(e, ERR_INVALID_PROJECT, "%.*s: %s", n, key.ptr, what);
}

static int say_value(struct err *e, struct slice key, unsigned i, const char *what)
{
    int n = key.len > 60 ? 60 : (int)key.len;

    return err_set(e, ERR_INVALID_PROJECT, "%.*s[%u]: %.160s", n, key.ptr, i, what);
}

static void put_key(struct slice key, bool first, struct buf *out)
{
    buf_put_cstr(out, first ? "\"" : ",\"");
    buf_put_slice(out, key); /* it was checked: nothing in it is escaped */
    buf_put_cstr(out, "\":[");
}

/* ---- as it was given ---- */

static int put_text(struct slice key, unsigned i, struct slice value, struct buf *out,
                    struct err *e)
{
    struct buf text = {0};
    struct slice inner;
    struct err why = {0};
    int r = 0;

    if (!json_string_raw(value, &inner)) {
        return say_value(e, key, i, "it must be a string");
    }
    if (i == DESTINATION_VALUES_MAX) {
        return say(e, key, "it has at most 99 values");
    }
    json_unescape(inner, &text);
    if (text.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    } else if (destination_metadata_value(buf_slice(&text), &why) < 0) {
        r = say_value(e, key, i, why.text);
    } else {
        buf_put_cstr(out, i == 0 ? "" : ",");
        json_put_string(out, buf_slice(&text));
    }
    buf_free(&text);
    return r;
}

static int put_list(struct slice key, struct slice list, struct buf *out, struct err *e)
{
    struct json_iter it;
    struct slice value;
    unsigned i = 0;
    int r = 0;

    if (json_type_of(list) == JSON_STRING) {
        return put_text(key, 0, list, out, e);
    }
    it = json_iter_array(list);
    while (r == 0 && json_next_element(&it, &value)) {
        r = put_text(key, i, value, out, e);
        i++;
    }
    return it.bad || i == 0 ? say(e, key, "it must be a string, or an array of at least one") : r;
}

int settings_metadata_put(struct slice json, struct buf *out, struct err *e)
{
    struct json_iter it = json_iter_object(json);
    struct slice key, list, before = {0};
    struct err why = {0};
    int r = 0;

    buf_put_char(out, '{');
    while (r == 0 && json_next_member(&it, &key, &list)) {
        if (destination_metadata_key(key, &why) < 0) {
            r = say(e, key, why.text);
        } else if (before.ptr != NULL && slice_cmp(before, key) >= 0) {
            r = say(e, key, "its place is not here");
        } else {
            put_key(key, before.ptr == NULL, out);
            r = put_list(key, list, out, e);
            buf_put_char(out, ']');
            before = key;
        }
    }
    buf_put_char(out, '}');
    return it.bad ? err_set(e, ERR_INVALID_PROJECT, "it must be an object") : r;
}

/* ---- expanded ---- */

/* One value: expanded, checked, counted, appended. */
static int expand_value(struct slice key, unsigned i, struct slice inner,
                        const struct template_values *v, struct buf *out, size_t *header_bytes,
                        struct err *e)
{
    struct buf plain = {0}, text = {0};
    struct err why = {0};
    int r = 0;

    json_unescape(inner, &plain);
    template_expand(buf_slice(&plain), v, &text);
    *header_bytes += destination_header_bytes(key, buf_slice(&text));
    if (plain.failed || text.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    } else if (destination_metadata_value(buf_slice(&text), &why) < 0) {
        r = say_value(e, key, i, why.text);
    } else if (*header_bytes > DESTINATION_HEADERS_MAX - DESTINATION_HEADERS_OTHER) {
        r = say_value(e, key, i, "as headers, up to here, it takes more than 7168 bytes");
    } else {
        buf_put_cstr(out, i == 0 ? "" : ",");
        json_put_string(out, buf_slice(&text));
    }
    buf_free(&plain);
    buf_free(&text);
    return r;
}

static int expand_list(struct slice key, struct slice list, const struct template_values *v,
                       struct buf *out, size_t *header_bytes, struct err *e)
{
    struct json_iter it = json_iter_array(list);
    struct slice value, inner;
    unsigned i = 0;
    int r = 0;

    while (r == 0 && json_next_element(&it, &value)) {
        r = json_string_raw(value, &inner) && i < DESTINATION_VALUES_MAX
                ? expand_value(key, i, inner, v, out, header_bytes, e)
                : say_value(e, key, i, "it is not one of at most 99 texts");
        i++;
    }
    return it.bad || i == 0 ? say(e, key, "it is no list of texts") : r;
}

int settings_metadata_expand(struct slice metadata, const struct template_values *v,
                             struct buf *out, size_t *header_bytes, struct err *e)
{
    struct json_iter it = json_iter_object(metadata);
    struct slice key, list;
    struct err why = {0};
    size_t bytes = 0;
    int r = 0;

    static_assert(DESTINATION_HEADERS_MAX - DESTINATION_HEADERS_OTHER == 7168, "as the text says");
    buf_put_char(out, '{');
    for (bool first = true; r == 0 && json_next_member(&it, &key, &list); first = false) {
        if (destination_metadata_key(key, &why) < 0) {
            r = say(e, key, why.text);
        } else {
            put_key(key, first, out);
            r = expand_list(key, list, v, out, &bytes, e);
            buf_put_char(out, ']');
        }
    }
    buf_put_char(out, '}');
    if (it.bad) {
        r = err_set(e, ERR_INVALID_PROJECT, "it is no object");
    }
    if (out->failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for metadata");
    }
    if (header_bytes != NULL) {
        *header_bytes = bytes;
    }
    return r;
}
