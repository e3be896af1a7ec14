/* The configuration file: JSON with comments. Comments become spaces, so that every position is
 * still the operator's; then the strict parser decides whether it is JSON at all (duplicate names
 * included), and only then are members looked at. Every mistake is an answer that names file, line
 * and key; the file is never written. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/config_internal.h"
#include "os/os.h"
#include "json/canon.h"
#include "json/read.h"

#define FILE_MAX_BYTES (1u << 20)

int config_strip_comments(char *text, size_t len, struct err *e)
{
    bool in_string = false;
    size_t i = 0;
    while (i < len) {
        if (in_string) {
            in_string = text[i] != '"';
            i += text[i] == '\\' && i + 1 < len ? 2 : 1;
        } else if (text[i] == '"') {
            in_string = true;
            i++;
        } else if (text[i] == '/' && i + 1 < len && text[i + 1] == '/') {
            while (i < len && text[i] != '\n') {
                text[i++] = ' ';
            }
        } else if (text[i] == '/' && i + 1 < len && text[i + 1] == '*') {
            size_t end = i + 2;
            while (end + 1 < len && !(text[end] == '*' && text[end + 1] == '/')) {
                end++;
            }
            if (end + 1 >= len) {
                return err_set_at(e, ERR_JSON, i, "a comment begins here and does not end");
            }
            for (; i < end + 2; i++) {
                text[i] = text[i] == '\n' ? '\n' : ' ';
            }
        } else {
            i++;
        }
    }
    return 0;
}

static unsigned line_of(struct slice text, size_t offset)
{
    unsigned line = 1;
    for (size_t i = 0; i < offset && i < text.len; i++) {
        line += text.ptr[i] == '\n';
    }
    return line;
}

static int load(const char *path, struct buf *text, struct err *e)
{
    int fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        (void)err_os(e, fd, "open configuration file", path);
        return ERR_USAGE;
    }
    int r = 0;
    for (;;) {
        if (!buf_reserve(text, 4096)) {
            r = err_set(e, ERR_USAGE, "%s: larger than %u bytes", path, FILE_MAX_BYTES);
            break;
        }
        int64_t n = os_read(fd, text->ptr + text->len, 4096);
        if (n < 0) {
            (void)err_os(e, (int)n, "read configuration file", path);
            r = ERR_USAGE;
        }
        if (n <= 0) {
            break;
        }
        text->len += (size_t)n;
    }
    (void)os_close(fd);
    return r;
}

/* JSON screen over the stripped text. */
static int screen(const char *path, struct slice text, struct err *e)
{
    struct canon *canon = canon_new();
    if (canon == NULL) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    struct buf out;
    struct canon_error at = {0};
    buf_init(&out, 0);
    int r = canon_json(canon, text, &out, &at);
    if (r == ERR_NO_MEMORY) {
        (void)err_set(e, ERR_NO_MEMORY, "out of memory");
    } else if (r != 0) {
        unsigned line = line_of(text, (size_t)at.offset);
        if (at.path[0] != '\0') {
            r = err_set(e, ERR_USAGE, "%.150s:%u: key \"%.40s\": %s", path, line, at.path, at.text);
        } else {
            r = err_set(e, ERR_USAGE, "%.150s:%u: %s", path, line, at.text);
        }
    }
    buf_free(&out);
    canon_free(canon);
    return r;
}

static bool find_key(struct slice name, enum config_key *k)
{
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        if (json_string_is(name, slice_cstr(config_rows[i].name))) {
            *k = (enum config_key)i;
            return true;
        }
    }
    return false;
}

/* The text of a JSON value in the form config_set reads, checked for its JSON type. */
static int value_text(enum config_key k, struct slice value, struct buf *out, struct err *e)
{
    enum config_type type = config_rows[k].type;
    enum json_type have = json_type_of(value);
    bool takes_number = type == CONFIG_BYTES || type == CONFIG_MS || type == CONFIG_UINT;
    bool takes_string = type != CONFIG_UINT;
    if (have == JSON_NUMBER && takes_number) {
        uint64_t unused = 0;
        if (!json_u64(value, &unused)) {
            return err_set(e, ERR_USAGE, "must be a whole number, not negative");
        }
        buf_put_slice(out, value);
    } else if (have == JSON_STRING && takes_string) {
        struct slice inner;
        bool ok = json_string_raw(value, &inner);
        ensure(ok); /* the text has passed the strict parser */
        json_unescape(inner, out);
    } else if (type == CONFIG_FLAG && (have == JSON_TRUE || have == JSON_FALSE)) {
        buf_put_cstr(out, have == JSON_TRUE ? "on" : "off");
    } else {
        return err_set(e, ERR_USAGE, "must be a %s",
                       type == CONFIG_FLAG ? "boolean, or \"on\" or \"off\""
                       : !takes_number     ? "string"
                       : takes_string      ? "number, or a string with a unit"
                                           : "number");
    }
    return out->failed ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
}

/* A relative path in the file is meant from where the file lies. */
static void resolve_path(enum config_key k, const char *file, struct buf *text)
{
    const char *slash = strrchr(file, '/');
    bool path = k == CONFIG_DATA || k == CONFIG_TOKEN_FILE ||
                k == CONFIG_CLICKHOUSE_PASSWORD_FILE || k == CONFIG_ENGINE_LIBRARY;
    if (!path || slash == NULL || text->len == 0 || text->ptr[0] == '/') {
        return;
    }
    size_t n = (size_t)(slash - file) + 1;
    if (buf_reserve(text, n)) {
        memmove(text->ptr + n, text->ptr, text->len);
        memcpy(text->ptr, file, n);
        text->len += n;
    }
}

static int set_member(struct config *c, const char *path, unsigned line, struct slice name,
                      struct slice value, struct err *e)
{
    int shown = name.len > 60 ? 60 : (int)name.len;
    enum config_key k;
    if (!find_key(name, &k)) {
        return err_set(e, ERR_USAGE, "%.150s:%u: key \"%.*s\": there is no such key", path, line,
                       shown, name.ptr);
    }
    struct buf text;
    struct err why = {0};
    buf_init(&text, 0);
    int r = value_text(k, value, &text, &why);
    if (r == 0) {
        resolve_path(k, path, &text);
        buf_put_char(&text, '\0');
        r = text.failed
                ? err_set(&why, ERR_NO_MEMORY, "out of memory")
                : config_set(c, k, slice_of(text.ptr, text.len - 1), CONFIG_FROM_FILE, &why);
    }
    if (r != 0) {
        (void)err_set(e, r, "%.150s:%u: key \"%.*s\": %.120s", path, line, shown, name.ptr,
                      why.text);
    }
    buf_free(&text);
    return r;
}

int config_read_file(struct config *c, const char *path, struct err *e)
{
    struct buf text;
    buf_init(&text, FILE_MAX_BYTES);
    int r = load(path, &text, e);
    if (r != 0) {
        buf_free(&text);
        return r;
    }
    struct slice all = buf_slice(&text);
    struct err why = {0};
    if (config_strip_comments(text.ptr, text.len, &why) != 0) {
        r = err_set(e, ERR_USAGE, "%.150s:%u: %s", path, line_of(all, (size_t)why.offset),
                    why.text);
    } else {
        r = screen(path, all, e);
    }
    if (r == 0 && json_type_of(all) != JSON_OBJECT) {
        r = err_set(e, ERR_USAGE, "%.150s:1: must be one JSON object", path);
    }
    if (r == 0) {
        struct json_iter it = json_iter_object(all);
        struct slice name;
        struct slice value;
        while (r == 0 && json_next_member(&it, &name, &value)) {
            r = set_member(c, path, line_of(all, (size_t)(name.ptr - all.ptr)), name, value, e);
        }
        ensure(r != 0 || !it.bad); /* the text has passed the strict parser */
    }
    buf_free(&text);
    return r;
}
