/* backup_list: writing and reading backup.json.
 *
 *     {"format":"tallyman/backup","version":1,"files":[
 *     {"path":"journal","mode":"700"},
 *     {"path":"journal/tail.ndjson","mode":"600","size":12,"sha256":"..."}
 *     ],"number":1,"tree":"tree-000001",...,"sha256":"..."}
 *
 * The lines are as they are written here; anything else is no list of ours. An entry without a size
 * is a directory. The reader believes nothing before the hash of the whole is right, and then still
 * refuses a path that leads out of the directory: a list is only as good as who could write it.
 *
 * Power failure: the list is written under another name and synced; the caller renames it, which is
 * the commit. Answers: all errors. */
#include "main/backup_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "json/read.h"
#include "json/write.h"

#define FLUSH_BYTES (64u << 10)
#define LINE_MAX    (16u << 10)               /* more than any line of ours; the last one too */
#define SEAL_LEN    (11 + SHA256_HEX_LEN + 3) /* ,"sha256":"..."} and a line feed */

static const char first_line[] = "{\"format\":\"tallyman/backup\",\"version\":1,\"files\":[";
static const char format_start[] = "{\"format\":\"tallyman/backup\",";

/* ---- writing ---- */

static void fail(struct backup_writer *w, int os_result)
{
    if (w->code == 0) {
        w->code = err_os(w->e, os_result, "write", BACKUP_LIST);
    }
}

static void flush(struct backup_writer *w)
{
    if (w->buf.failed) {
        fail(w, -ENOMEM);
    }
    if (w->code == 0 && w->buf.len > 0) {
        int r = os_pwrite_all(w->fd, w->buf.ptr, w->buf.len, w->at, NULL);
        if (r < 0) {
            fail(w, r);
        }
    }
    sha256_add(&w->hash, w->buf.ptr, w->buf.len);
    w->at += w->buf.len;
    buf_clear(&w->buf);
}

int backup_writer_open(struct backup_writer *w, const char *temp, struct err *e)
{
    *w = (struct backup_writer){.e = e};
    w->fd = os_open(temp, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (w->fd < 0) {
        return err_os(e, w->fd, "make", temp);
    }
    sha256_start(&w->hash);
    buf_put_cstr(&w->buf, first_line);
    return 0;
}

static void put_hex(struct buf *b, const void *p, size_t n)
{
    char hex[SHA256_HEX_LEN];
    ensure(2 * n <= sizeof hex);
    hex_encode(hex, p, n);
    buf_put_char(b, '"');
    buf_put(b, hex, 2 * n);
    buf_put_char(b, '"');
}

void backup_writer_put(struct backup_writer *w, const struct backup_entry *entry)
{
    struct buf *b = &w->buf;
    buf_put_cstr(b, w->any ? ",\n" : "\n");
    w->any = true;
    buf_put_cstr(b, "{\"path\":");
    json_put_string(b, slice_cstr(entry->path));
    buf_printf(b, ",\"mode\":\"%o\"", entry->mode);
    if (!entry->directory) {
        buf_printf(b, ",\"size\":%llu,\"sha256\":", (unsigned long long)entry->size);
        put_hex(b, entry->sha256, SHA256_LEN);
    }
    buf_put_char(b, '}');
    if (b->len >= FLUSH_BYTES) {
        flush(w);
    }
}

static void put_text(struct buf *b, const char *name, const char *text)
{
    json_put_name(b, name);
    json_put_string(b, slice_cstr(text));
}

static void put_number(struct buf *b, const char *name, uint64_t n)
{
    json_put_name(b, name);
    buf_put_u64(b, n);
}

static void put_about(struct buf *b, const struct backup_about *a)
{
    char id[UUID_TEXT_LEN + 1] = "";
    put_number(b, "number", a->number);
    put_text(b, "tree", a->tree);
    put_text(b, "made_at", a->made_at);
    put_text(b, "made_by", a->version);
    json_put_name(b, "position");
    buf_put_cstr(b, "{\"frontier_event_id\":");
    if (a->empty) {
        buf_put_cstr(b, "null");
    } else {
        uuid_text(id, &a->last_id);
        json_put_string(b, slice_cstr(id));
    }
    put_number(b, "frontier_event_count", a->events);
    json_put_name(b, "chain_head");
    put_hex(b, a->head, SHA256_LEN);
    buf_put_char(b, '}');
    put_number(b, "file_count", a->files);
    put_number(b, "bytes", a->bytes);
    put_text(b, "engine", a->engine);
}

int backup_writer_sync(struct backup_writer *w, const struct backup_about *about, struct err *e)
{
    uint8_t digest[SHA256_LEN];
    buf_put_cstr(&w->buf, "\n]");
    put_about(&w->buf, about);
    flush(w);
    sha256_end(&w->hash, digest);
    sha256_start(&w->hash); /* flush goes on with it; nobody asks */
    buf_put_cstr(&w->buf, ",\"sha256\":");
    put_hex(&w->buf, digest, sizeof digest);
    buf_put_cstr(&w->buf, "}\n");
    flush(w);
    int r = w->code == 0 ? os_fsync(w->fd) : 0;
    if (r < 0) {
        fail(w, r);
    }
    if (w->code != 0 && e != w->e) {
        *e = *w->e;
    }
    return w->code;
}

void backup_writer_close(struct backup_writer *w)
{
    if (w->fd >= 0) {
        (void)os_close(w->fd);
    }
    w->fd = -1;
    buf_free(&w->buf);
}

/* ---- reading: the whole ---- */

static int changed(struct err *e, const char *what)
{
    return err_set(e, ERR_CORRUPT, "%s: %s: it was cut or changed", BACKUP_LIST, what);
}

/* Hashes all before the seal, which it compares. */
static int check_seal(int fd, uint64_t size, struct err *e)
{
    static const char start[] = ",\"sha256\":\"";
    char seal[SEAL_LEN];
    char piece[FLUSH_BYTES];
    uint8_t digest[SHA256_LEN];
    uint8_t named[SHA256_LEN];
    struct sha256 h;
    static_assert(sizeof start - 1 == 11, "as SEAL_LEN says");
    sha256_start(&h);
    for (uint64_t at = 0; at < size - SEAL_LEN;) {
        uint64_t left = size - SEAL_LEN - at;
        size_t n = left < sizeof piece ? (size_t)left : sizeof piece;
        int64_t got = os_pread_full(fd, piece, n, at);
        if (got < (int64_t)n) {
            return err_os(e, got < 0 ? (int)got : -EIO, "read", BACKUP_LIST);
        }
        sha256_add(&h, piece, n);
        at += n;
    }
    sha256_end(&h, digest);
    int64_t got = os_pread_full(fd, seal, sizeof seal, size - SEAL_LEN);
    if (got < (int64_t)sizeof seal) {
        return err_os(e, got < 0 ? (int)got : -EIO, "read", BACKUP_LIST);
    }
    if (memcmp(seal, start, 11) != 0 || memcmp(seal + SEAL_LEN - 3, "\"}\n", 3) != 0 ||
        !hex_decode(named, slice_of(seal + 11, SHA256_HEX_LEN), SHA256_LEN)) {
        return changed(e, "it does not end as one of ours");
    }
    return memcmp(named, digest, sizeof digest) == 0
               ? 0
               : changed(e, "its SHA-256 is not what it says");
}

static bool get_text(struct slice object, const char *name, char *out, size_t size)
{
    struct slice value;
    struct slice inner;
    struct buf b;
    buf_init(&b, size - 1);
    bool ok = json_member(object, slice_cstr(name), &value) && json_string_raw(value, &inner);
    if (ok) {
        json_unescape(inner, &b);
    }
    ok = ok && !b.failed && b.len < size && (b.len == 0 || memchr(b.ptr, '\0', b.len) == NULL);
    if (ok) {
        memcpy(out, b.len == 0 ? "" : b.ptr, b.len);
        out[b.len] = '\0';
    }
    buf_free(&b);
    return ok;
}

static bool get_number(struct slice object, const char *name, uint64_t *out)
{
    struct slice value;
    return json_member(object, slice_cstr(name), &value) && json_u64(value, out);
}

static bool get_hex(struct slice object, const char *name, uint8_t out[SHA256_LEN])
{
    struct slice value;
    struct slice inner;
    return json_member(object, slice_cstr(name), &value) && json_string_raw(value, &inner) &&
           inner.len == SHA256_HEX_LEN && hex_decode(out, inner, SHA256_LEN);
}

static bool get_position(struct slice object, struct backup_about *a)
{
    struct slice position;
    struct slice value;
    struct slice inner;
    if (!json_member(object, SLICE("position"), &position) ||
        json_type_of(position) != JSON_OBJECT ||
        !json_member(position, SLICE("frontier_event_id"), &value)) {
        return false;
    }
    a->empty = json_type_of(value) == JSON_NULL;
    return (a->empty || (json_string_raw(value, &inner) && uuid7_parse(inner, &a->last_id))) &&
           get_number(position, "frontier_event_count", &a->events) &&
           get_hex(position, "chain_head", a->head);
}

/* tree-NNNNNN and nothing else: it becomes a path. */
static bool tree_ok(const char *tree)
{
    size_t n = strlen(tree);
    return n > 5 && strncmp(tree, "tree-", 5) == 0 && strspn(tree + 5, "0123456789") == n - 5;
}

static bool get_about(struct slice object, struct backup_about *a)
{
    return get_number(object, "number", &a->number) &&
           get_text(object, "tree", a->tree, sizeof a->tree) && tree_ok(a->tree) &&
           get_text(object, "made_at", a->made_at, sizeof a->made_at) &&
           get_text(object, "made_by", a->version, sizeof a->version) && get_position(object, a) &&
           get_number(object, "file_count", &a->files) && get_number(object, "bytes", &a->bytes) &&
           get_text(object, "engine", a->engine, sizeof a->engine);
}

/* Finds the last line, and in it what the backup is. */
static int read_about(struct backup_reader *r, uint64_t size, struct backup_about *a, struct err *e)
{
    char text[LINE_MAX + 1];
    uint64_t n = size < LINE_MAX ? size : LINE_MAX;
    int64_t got = os_pread_full(r->fd, text + 1, (size_t)n, size - n);
    if (got < (int64_t)n) {
        return err_os(e, got < 0 ? (int)got : -EIO, "read", BACKUP_LIST);
    }
    const char *line = memrchr(text + 1, '\n', (size_t)n - 1); /* before the last line feed */
    if (line == NULL || (size_t)(text + 1 + n - line) < 4 || line[1] != ']' || line[2] != ',') {
        return changed(e, "its last line is missing");
    }
    size_t at = (size_t)(line - text);
    r->end = size - n + at - 1;
    text[at + 2] = '{';
    struct slice object = slice_of(text + at + 2, (size_t)n + 1 - (at + 2));
    return r->end >= r->at && get_about(object, a) ? 0
                                                   : changed(e, "its last line is not understood");
}

static int check_first(int fd, uint64_t size, struct err *e)
{
    char text[sizeof first_line] = "";
    int64_t got = os_pread_full(fd, text, sizeof text, 0);
    if (got < 0) {
        return err_os(e, (int)got, "read", BACKUP_LIST);
    }
    if (got < (int64_t)(sizeof format_start - 1) ||
        memcmp(text, format_start, sizeof format_start - 1) != 0) {
        return err_set(e, ERR_CORRUPT, "%s: it is no list of a backup", BACKUP_LIST);
    }
    if (got < (int64_t)sizeof first_line || size < sizeof first_line + SEAL_LEN) {
        return changed(e, "its end is missing");
    }
    if (memcmp(text, first_line, sizeof first_line - 1) != 0) {
        return err_set(e, ERR_UNSUPPORTED, "%s: it is of a later version", BACKUP_LIST);
    }
    return 0;
}

int backup_reader_open(struct backup_reader *r, const char *path, struct backup_about *about,
                       struct err *e)
{
    struct os_stat st;
    *r = (struct backup_reader){.at = sizeof first_line}; /* its line feed too */
    memset(about, 0, sizeof *about);
    r->fd = os_open(path, O_RDONLY, 0);
    if (r->fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "there is no %s", path);
    }
    if (r->fd < 0) {
        return err_os(e, r->fd, "open", path);
    }
    int code = os_fstat(r->fd, &st);
    code = code < 0 ? err_os(e, code, "stat", path) : check_first(r->fd, st.size, e);
    if (code == 0) {
        code = check_seal(r->fd, st.size, e);
    }
    if (code == 0) {
        code = read_about(r, st.size, about, e);
    }
    if (code != 0) {
        backup_reader_close(r);
    }
    return code;
}

void backup_reader_close(struct backup_reader *r)
{
    if (r->fd >= 0) {
        (void)os_close(r->fd);
    }
    r->fd = -1;
    buf_free(&r->window);
}

/* ---- reading: line by line ---- */

/* Relative, no empty part, no dots alone: it stays inside. */
static bool path_ok(const char *path)
{
    const char *at = path;
    for (;;) {
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.')) {
            return false;
        }
        if (at[n] == '\0') {
            return true;
        }
        at += n + 1;
    }
}

static bool get_mode(struct slice object, unsigned *out)
{
    char text[8];
    unsigned mode = 0;
    if (!get_text(object, "mode", text, sizeof text) || text[0] == '\0' || strlen(text) > 4) {
        return false;
    }
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '7') {
            return false;
        }
        mode = mode * 8 + (unsigned)(*p - '0');
    }
    *out = mode;
    return mode <= 0777;
}

static bool understand(struct slice line, struct backup_entry *out)
{
    struct slice value;
    memset(out, 0, sizeof *out);
    if (!get_text(line, "path", out->path, sizeof out->path) || !path_ok(out->path) ||
        !get_mode(line, &out->mode)) {
        return false;
    }
    out->directory = !json_member(line, SLICE("size"), &value);
    return out->directory || (json_u64(value, &out->size) && get_hex(line, "sha256", out->sha256));
}

/* More of the file behind what is in the window. */
static int fill(struct backup_reader *r, struct err *e)
{
    size_t rest = r->window.len - r->used;
    if (rest > LINE_MAX) {
        return changed(e, "a line is too long");
    }
    if (!buf_reserve(&r->window, FLUSH_BYTES)) {
        return err_set(e, ERR_NO_MEMORY, "no memory to read %s", BACKUP_LIST);
    }
    if (rest > 0) {
        memmove(r->window.ptr, r->window.ptr + r->used, rest);
    }
    r->window.len = rest;
    r->used = 0;
    uint64_t n = r->end - r->at < FLUSH_BYTES ? r->end - r->at : FLUSH_BYTES;
    int64_t got = os_pread_full(r->fd, r->window.ptr + rest, (size_t)n, r->at);
    if (got < (int64_t)n) {
        return err_os(e, got < 0 ? (int)got : -EIO, "read", BACKUP_LIST);
    }
    r->window.len += (size_t)n;
    r->at += n;
    return 0;
}

int backup_reader_next(struct backup_reader *r, struct backup_entry *out, struct err *e)
{
    for (;;) {
        struct slice rest = r->window.len == 0
                                ? SLICE("")
                                : slice_of(r->window.ptr + r->used, r->window.len - r->used);
        const char *lf = rest.len == 0 ? NULL : memchr(rest.ptr, '\n', rest.len);
        if (lf == NULL && r->at < r->end) {
            int code = fill(r, e);
            if (code != 0) {
                return code;
            }
            continue;
        }
        if (rest.len == 0) {
            return 0;
        }
        size_t n = lf == NULL ? rest.len : (size_t)(lf - rest.ptr);
        r->used += lf == NULL ? n : n + 1;
        bool more = n > 0 && rest.ptr[n - 1] == ',';
        return understand(slice_of(rest.ptr, more ? n - 1 : n), out)
                   ? 1
                   : changed(e, "a line is not understood");
    }
}
