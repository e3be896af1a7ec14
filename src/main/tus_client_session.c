/* Session files: what makes an upload survive the process that began it.
 *
 * One JSON object in a file DIR/HASH.json, where HASH is of what the upload is for (server, file,
 * project, filename, checksum): `put` of the same finds it without a search. The members are those
 * of Canner's Go client, and `server` and `file`; a file name that is not UTF-8 stands in
 * `file_base64` besides. It is written before the first byte of content is sent and removed when
 * the receipt is printed. While a process works on it, it holds a lock (flock) on the file: a
 * second one leaves it alone. The lock is taken on the temporary file, before the rename shows it.
 *
 * Power failure: before the rename's directory sync there may be no session; the upload on the
 * server then expires by itself, and `put` makes another. After it the session is whole. One that
 * is left over after its receipt only leads to the same receipt again.
 *
 * Everything here is an answer to the operator: also a session that is damaged, because anybody can
 * name any file to `resume`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/tus_client_internal.h"
#include "os/os.h"
#include "json/read.h"
#include "json/write.h"

#define SESSION_BYTES_MAX 65536
#define SUBDIRECTORY      "tallyman/uploads"

int tus_session_dir(struct buf *out, const char *given, bool make, struct err *e)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    size_t start = out->len;
    if (given != NULL && given[0] != '\0') {
        buf_put_cstr(out, given);
    } else if (state != NULL && state[0] == '/') { /* relative ones count as not set: XDG */
        buf_printf(out, "%s/" SUBDIRECTORY, state);
    } else if (home != NULL && home[0] == '/') {
        buf_printf(out, "%s/.local/state/" SUBDIRECTORY, home);
    } else {
        return err_set(e, ERR_USAGE, "there is no HOME to keep sessions in; use --session DIR");
    }
    buf_put_char(out, '\0');
    if (out->failed) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    char *path = out->ptr + start;
    if (strlen(path) + 64 > TUS_PATH_MAX) {
        return err_set(e, ERR_USAGE, "the name of the sessions' directory is too long");
    }
    for (char *slash = path; make && slash != NULL;) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
        int r = os_mkdir_exist_ok(path, 0700);
        if (slash != NULL) {
            *slash = '/';
        } else if (r < 0) {
            return err_os(e, r, "make directory", path); /* of a parent that fails it is the same */
        }
    }
    return 0;
}

void tus_session_name(const struct tus_session *s, char out[TUS_SESSION_NAME_LEN + 1])
{
    const char *const fields[] = {s->server, s->file, s->project, s->filename, s->checksum};
    struct sha256 h;
    uint8_t digest[SHA256_LEN];
    sha256_start(&h);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        sha256_add(&h, fields[i], strlen(fields[i]) + 1);
    }
    sha256_end(&h, digest);
    hex_encode(out, digest, 16);
    memcpy(out + 32, ".json", sizeof ".json");
}

static void put_text(struct buf *b, const char *name, const char *text)
{
    json_put_name(b, name);
    json_put_string(b, slice_cstr(text));
}

static void put_session(struct buf *b, const struct tus_session *s)
{
    buf_put_char(b, '{');
    put_text(b, "upload_url", s->upload_url);
    put_text(b, "object_id", s->object_id);
    put_text(b, "project", s->project);
    if (s->filename[0] != '\0') {
        put_text(b, "filename", s->filename);
    }
    put_text(b, "checksum", s->checksum);
    json_put_name(b, "size_bytes");
    buf_put_u64(b, s->size_bytes);
    put_text(b, "server", s->server);
    put_text(b, "file", s->file);
    if (!utf8_valid(slice_cstr(s->file), NULL)) {
        json_put_name(b, "file_base64");
        buf_put_char(b, '"');
        tus_put_base64(b, slice_cstr(s->file));
        buf_put_char(b, '"');
    }
    buf_put_cstr(b, "}\n");
}

int tus_session_write(const char *dir, const struct tus_session *s, struct tus_kept *kept,
                      struct err *e)
{
    char name[TUS_SESSION_NAME_LEN + 1];
    char temp[TUS_PATH_MAX];
    uint32_t salt = 0;
    struct buf text;
    buf_init(&text, SESSION_BYTES_MAX);
    *kept = (struct tus_kept){.fd = -1};
    put_session(&text, s);
    if (text.failed) {
        buf_free(&text);
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    (void)os_random(&salt, sizeof salt); /* without: two at once, one of which is refused below */
    tus_session_name(s, name);
    int n = snprintf(temp, sizeof temp, "%s/.%08x.part", dir, salt);
    int m = snprintf(kept->path, sizeof kept->path, "%s/%s", dir, name);
    ensure(n > 0 && n < (int)sizeof temp); /* tus_session_dir has left room */
    ensure(m > 0 && m < (int)sizeof kept->path);
    int fd = os_open(temp, O_WRONLY | O_CREAT | O_EXCL, 0600);
    int r = fd;
    if (fd >= 0) {
        r = os_pwrite_all(fd, text.ptr, text.len, 0, NULL);
        r = r < 0 ? r : os_fsync(fd);
        r = r < 0 ? r : os_flock(fd, LOCK_EX | LOCK_NB);
        r = r < 0 ? r : os_rename(temp, kept->path);
        if (r < 0) {
            (void)os_unlink(temp);
        }
        r = r < 0 ? r : os_sync_dir(dir);
    }
    buf_free(&text);
    if (r >= 0) {
        kept->fd = fd;
        return 0;
    }
    if (fd >= 0) {
        (void)os_close(fd); /* the failure is known */
    }
    r = err_os(e, r, "write session", kept->path);
    kept->path[0] = '\0';
    return r;
}

/* Copies a string member; false when it is absent, no string, or does not fit. */
static bool take_text(struct slice object, struct slice name, char *out, size_t size)
{
    struct slice value;
    struct slice inner;
    struct buf text;
    buf_init(&text, size);
    bool ok = json_member(object, name, &value) && json_string_raw(value, &inner);
    if (ok) {
        json_unescape(inner, &text);
        buf_put_char(&text, '\0');
        ok = !text.failed && strlen(text.ptr) + 1 == text.len;
    }
    if (ok) {
        memcpy(out, text.ptr, text.len);
    }
    buf_free(&text);
    return ok;
}

static bool take_file(struct slice object, char *out, size_t size)
{
    char encoded[TUS_PATH_MAX * 4 / 3 + 8];
    struct buf text;
    if (!take_text(object, SLICE("file_base64"), encoded, sizeof encoded)) {
        return take_text(object, SLICE("file"), out, size);
    }
    buf_init(&text, size);
    bool ok = tus_base64_decode(slice_cstr(encoded), &text);
    buf_put_char(&text, '\0');
    ok = ok && !text.failed && strlen(text.ptr) + 1 == text.len;
    if (ok) {
        memcpy(out, text.ptr, text.len);
    }
    buf_free(&text);
    return ok;
}

static bool parse_session(struct slice object, struct tus_session *s)
{
    struct slice value;
    char id[TUS_ID_MAX];
    uint8_t digest[BLAKE3_LEN];
    *s = (struct tus_session){0};
    const struct slice prefix = SLICE(TUS_CHECKSUM_PREFIX);
    return json_type_of(object) == JSON_OBJECT &&
           take_text(object, SLICE("server"), s->server, sizeof s->server) &&
           s->server[0] != '\0' && take_file(object, s->file, sizeof s->file) &&
           s->file[0] == '/' &&
           take_text(object, SLICE("upload_url"), s->upload_url, sizeof s->upload_url) &&
           take_text(object, SLICE("object_id"), s->object_id, sizeof s->object_id) &&
           take_text(object, SLICE("project"), s->project, sizeof s->project) &&
           (!json_member(object, SLICE("filename"), &value) ||
            take_text(object, SLICE("filename"), s->filename, sizeof s->filename)) &&
           take_text(object, SLICE("checksum"), s->checksum, sizeof s->checksum) &&
           slice_starts(slice_cstr(s->checksum), prefix) &&
           hex_decode(digest, slice_from(slice_cstr(s->checksum), prefix.len), BLAKE3_LEN) &&
           json_member(object, SLICE("size_bytes"), &value) && json_u64(value, &s->size_bytes) &&
           s->size_bytes >= 1 && s->size_bytes <= INT64_MAX && tus_object_id(s->upload_url, id) &&
           strcmp(id, s->object_id) == 0;
}

static int read_session(int fd, const char *path, struct tus_session *s, struct err *e)
{
    char *text = malloc(SESSION_BYTES_MAX);
    if (text == NULL) {
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    int64_t n = os_pread_full(fd, text, SESSION_BYTES_MAX, 0);
    int r = 0;
    if (n < 0) {
        r = err_os(e, (int)n, "read", path);
    } else if (n == SESSION_BYTES_MAX || !parse_session(slice_of(text, (size_t)n), s)) {
        r = err_set(e, ERR_CORRUPT, "%.250s: is no session of an upload", path);
    }
    free(text);
    return r;
}

/* False also when the name has gone: another process has finished it, or written its own. */
static bool same_file(int fd, const char *path)
{
    struct os_stat here;
    struct os_stat there;
    return os_fstat(fd, &here) == 0 && os_stat(path, &there) == 0 && here.inode == there.inode &&
           here.device == there.device;
}

int tus_session_read(const char *path, struct tus_session *s, struct tus_kept *kept, struct err *e)
{
    *kept = (struct tus_kept){.fd = -1};
    int n = snprintf(kept->path, sizeof kept->path, "%s", path);
    int r = 0;
    int fd = os_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd == -ENOENT) {
        r = err_set(e, ERR_NOT_FOUND, "%.250s: there is no such file", path);
    } else if (fd < 0 || n >= (int)sizeof kept->path) {
        r = err_os(e, fd < 0 ? fd : -ENAMETOOLONG, "open", path);
    } else {
        r = os_flock(fd, LOCK_EX | LOCK_NB);
        if (r == -EWOULDBLOCK) {
            r = err_set(e, ERR_LOCKED, "%.230s: another tallyman is working on it", path);
        } else if (r < 0) {
            r = err_os(e, r, "lock", path);
        } else if (!same_file(fd, path)) {
            r = err_set(e, ERR_NOT_FOUND, "%.250s: has just been finished", path);
        } else {
            r = read_session(fd, path, s, e);
        }
    }
    kept->fd = fd >= 0 ? fd : -1;
    if (r != 0) {
        tus_session_leave(kept);
    }
    return r;
}

int tus_session_peek(const char *path, struct tus_session *s, struct err *e)
{
    int fd = os_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    int r = read_session(fd, path, s, e);
    (void)os_close(fd);
    return r;
}

void tus_session_remove(struct tus_kept *kept)
{
    if (kept->fd >= 0 && same_file(kept->fd, kept->path)) {
        (void)os_unlink(kept->path);
    }
    tus_session_leave(kept);
}

void tus_session_leave(struct tus_kept *kept)
{
    if (kept->fd >= 0) {
        (void)os_close(kept->fd); /* what was written is synced */
    }
    *kept = (struct tus_kept){.fd = -1};
}
