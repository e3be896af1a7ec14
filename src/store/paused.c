/* paused: one small file, {"reason":"...","since":"2026-11-30T12:00:00.000Z"} and a line feed.
 *
 * Invariant: that the file is there is what counts; its content is for people. It is made whole
 * under DATA/.paused and renamed, so no crash leaves half of it under its name.
 *
 * Power failure: writing: before the last sync either state, after it paused. Removing: the same
 * the other way round; a pause that comes back is seen and taken away again, a resume that was told
 * stays. Answers: all errors; paused_read has none, it pauses. */
#include "store/paused.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/ensure.h"
#include "base/timefmt.h"
#include "os/os.h"
#include "json/read.h"
#include "json/write.h"

#define FILE_MAX  4096
#define PATHS_MAX 4400
#define TEMP_FILE ".paused"

static bool make_path(char out[PATHS_MAX], const char *data, const char *name)
{
    int n = snprintf(out, PATHS_MAX, "%s/%s", data, name);
    return n > 0 && n < PATHS_MAX;
}

static void set_reason(struct paused *p, struct slice reason)
{
    size_t n = reason.len < PAUSED_REASON_MAX ? reason.len : PAUSED_REASON_MAX;
    /* Never in the middle of a character. */
    while (n > 0 && n < reason.len && ((unsigned char)reason.ptr[n] & 0xc0) == 0x80) {
        n--;
    }
    memcpy(p->reason, reason.ptr, n);
    p->reason[n] = '\0';
}

static void understand(struct paused *p, struct slice text)
{
    struct slice value;
    struct slice inner;
    struct buf reason;
    buf_init(&reason, FILE_MAX);
    if (json_member(text, SLICE("reason"), &value) && json_string_raw(value, &inner)) {
        json_unescape(inner, &reason);
    }
    if (reason.failed || reason.len == 0) {
        set_reason(p, SLICE("the file " PAUSED_FILE " gives no reason"));
    } else {
        set_reason(p, buf_slice(&reason));
    }
    buf_free(&reason);
    if (json_member(text, SLICE("since"), &value) && json_string_raw(value, &inner)) {
        (void)timefmt_parse_ms(inner, &p->since_ms);
    }
}

void paused_read(const char *data, struct paused *out)
{
    char path[PATHS_MAX];
    char text[FILE_MAX];
    *out = (struct paused){.on = true};
    if (!make_path(path, data, PAUSED_FILE)) {
        set_reason(out, SLICE("the path of the file " PAUSED_FILE " is too long"));
        return;
    }
    int fd = os_open(path, O_RDONLY, 0);
    if (fd == -ENOENT) {
        out->on = false;
        return;
    }
    int64_t n = fd < 0 ? fd : os_pread_full(fd, text, sizeof text, 0);
    if (fd >= 0) {
        (void)os_close(fd);
    }
    if (n < 0) {
        set_reason(out, SLICE("the file " PAUSED_FILE " cannot be read"));
    } else {
        understand(out, slice_of(text, (size_t)n));
    }
}

static void put_members(struct buf *b, const struct paused *p)
{
    char since[TIMEFMT_MS_LEN + 1];
    timefmt_ms(since, p->since_ms < TIMEFMT_MS_END ? p->since_ms : 0);
    json_put_name(b, "reason");
    json_put_string(b, slice_cstr(p->reason));
    json_put_name(b, "since");
    if (p->since_ms == 0) {
        buf_put_cstr(b, "null");
    } else {
        json_put_string(b, slice_cstr(since));
    }
}

static int write_synced(const char *temp, struct slice bytes, struct err *e)
{
    int fd = os_open(temp, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return err_os(e, fd, "make", temp);
    }
    int r = os_pwrite_all(fd, bytes.ptr, bytes.len, 0, NULL);
    if (r == 0) {
        r = os_fsync(fd);
    }
    int closed = os_close(fd);
    r = r < 0 ? r : closed;
    return r < 0 ? err_os(e, r, "write", temp) : 0;
}

int paused_write(const char *data, struct slice reason, struct paused *out, struct err *e)
{
    char path[PATHS_MAX];
    char temp[PATHS_MAX];
    struct paused p = {.on = true, .since_ms = os_clock_real_ms()};
    struct buf b = {0};
    if (!make_path(path, data, PAUSED_FILE) || !make_path(temp, data, TEMP_FILE)) {
        return err_set(e, ERR_IO, "the path of the data directory is too long");
    }
    set_reason(&p, reason);
    buf_put_char(&b, '{');
    put_members(&b, &p);
    buf_put_cstr(&b, "}\n");
    int r = b.failed ? err_set(e, ERR_NO_MEMORY, "no memory for the file " PAUSED_FILE)
                     : write_synced(temp, buf_slice(&b), e);
    buf_free(&b);
    if (r != 0) {
        return r;
    }
    r = os_rename(temp, path);
    if (r == 0) {
        r = os_sync_dir(data);
    }
    if (r < 0) {
        return err_os(e, r, "put in place", path);
    }
    if (out != NULL) {
        *out = p;
    }
    return 0;
}

int paused_remove(const char *data, struct err *e)
{
    char path[PATHS_MAX];
    if (!make_path(path, data, PAUSED_FILE)) {
        return err_set(e, ERR_IO, "the path of the data directory is too long");
    }
    int r = os_unlink(path);
    if (r == -ENOENT) {
        r = 0;
    }
    if (r == 0) {
        r = os_sync_dir(data);
    }
    return r < 0 ? err_os(e, r, "remove", path) : 0;
}

void paused_put_json(struct buf *b, const struct paused *p)
{
    buf_put_cstr(b, p->on ? "{\"paused\":true" : "{\"paused\":false");
    if (p->on) {
        put_members(b, p);
    }
    buf_put_char(b, '}');
}
