/* receipts/ID.json: that it is there is the acceptance.
 *
 *   {"id":"receipt:ID","issuer":"..","object_id":"ID","checksum":"blake3:HEX","size_bytes":N,
 *    "accepted_at":SECONDS}
 *
 * Compact, no newline, exactly these six keys in this order (HQ refuses any other), <, > and & in
 * the issuer as \u escapes. Written once, never changed.
 *
 * Power failure in receipt_commit: before the rename has reached the disk there is no receipt,
 * after it there is the whole one, because the temporary file was synced first. Either is right:
 * nobody has been told. Between the rename and the directory's sync the name can be seen by this
 * process and may yet be lost, so that receipt_load answers "not accepted" until the sync returned.
 *
 * The directory's sync fails: the name is taken back, but the device may have it all the same, now
 * or after a crash. The receipt is doubtful: the mark stays, the id is "not accepted" until the
 * next acceptance syncs or a start finds the file, and until then no byte of the upload may go.
 *
 * Answers: every failure. A file that is no receipt is ERR_CORRUPT, never "not accepted". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"
#include "json/read.h"
#include "json/tolerant.h"

#define ID_PREFIX       "receipt:"
#define CHECKSUM_PREFIX "blake3:"

/* ---- reading ---- */

static bool take_string(struct slice value, char *to, size_t size)
{
    struct slice inner;
    if (!json_string_raw(value, &inner) || json_string_len(inner) >= size) {
        return false;
    }
    /* In the caller's memory: being out of memory must not look like a damaged file. */
    struct buf text = {.ptr = to, .cap = size, .limit = size};
    json_unescape(inner, &text);
    ensure(text.ptr == to && !text.failed && text.len < size);
    to[text.len] = '\0';
    return memchr(to, '\0', text.len) == NULL;
}

/* A string value that begins with prefix; the rest. */
static bool take_after(struct slice value, struct slice prefix, char *to, size_t size)
{
    char text[128];
    ensure(prefix.len + size <= sizeof text);
    if (!take_string(value, text, prefix.len + size) || !slice_starts(slice_cstr(text), prefix)) {
        return false;
    }
    memcpy(to, text + prefix.len, strlen(text + prefix.len) + 1);
    return true;
}

static bool take_member(unsigned index, struct slice name, struct slice value, struct receipt *out,
                        char id[UPLOAD_ID_LEN + 1])
{
    static const char *const names[] = {"id",       "issuer",     "object_id",
                                        "checksum", "size_bytes", "accepted_at"};
    uint8_t digest[BLAKE3_LEN];
    uint64_t at;
    if (index >= sizeof names / sizeof *names || !slice_eq(name, slice_cstr(names[index]))) {
        return false;
    }
    switch (index) {
    case 0:
        return take_after(value, SLICE(ID_PREFIX), id, UPLOAD_ID_LEN + 1);
    case 1:
        return take_string(value, out->issuer, sizeof out->issuer);
    case 2:
        return take_string(value, out->object_id, sizeof out->object_id) &&
               upload_id_ok(slice_cstr(out->object_id)) && strcmp(out->object_id, id) == 0;
    case 3:
        return take_after(value, SLICE(CHECKSUM_PREFIX), out->checksum, sizeof out->checksum) &&
               hex_decode(digest, slice_cstr(out->checksum), BLAKE3_LEN);
    case 4:
        return json_u64(value, &out->size_bytes) && out->size_bytes >= 1 &&
               out->size_bytes <= INT64_MAX;
    default:
        if (!json_u64(value, &at) || at < 1 || at > INT64_MAX) {
            return false;
        }
        out->accepted_at = (int64_t)at;
        return true;
    }
}

int receipt_parse(struct slice json, struct receipt *out, struct err *e)
{
    struct slice object;
    struct slice name;
    struct slice value;
    char id[UPLOAD_ID_LEN + 1] = "";
    unsigned count = 0;
    bool ok = true;
    memset(out, 0, sizeof *out);
    if (json.len >= sizeof out->json || json_tolerant_check(json, &object, e) != 0 ||
        json_type_of(object) != JSON_OBJECT) {
        return err_set(e, ERR_CORRUPT, "the receipt is no JSON object");
    }
    struct json_iter it = json_iter_object(object);
    while (ok && json_next_member(&it, &name, &value)) {
        ok = take_member(count, name, value, out, id);
        count++;
    }
    if (!ok || it.bad || count != 6) {
        return err_set(e, ERR_CORRUPT, "the receipt does not hold the six members of one");
    }
    memcpy(out->json, json.ptr, json.len);
    out->json_len = json.len;
    return 0;
}

int receipt_peek(struct uploads *us, const char *id, struct receipt *out, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct buf json;
    receipt_path(us, path, id);
    int r = upload_read_file(path, RECEIPT_BYTES_MAX - 1, &json, NULL, e);
    if (r != 0) {
        return r == ERR_NOT_FOUND ? err_set(e, r, "the upload is not accepted") : r;
    }
    r = receipt_parse(buf_slice(&json), out, e);
    buf_free(&json);
    if (r == 0 && strcmp(out->object_id, id) != 0) {
        r = err_set(e, ERR_CORRUPT, "the receipt is another upload's");
    }
    return r;
}

int receipt_load(struct uploads *us, struct slice id, struct receipt *out, struct err *e)
{
    char name[UPLOAD_ID_LEN + 1];
    if (!upload_id_copy(name, id)) {
        return err_set(e, ERR_NOT_FOUND, "there is no such upload");
    }
    int r = receipt_peek(us, name, out, e);
    /* Looked at afterwards: a mark goes only when its receipt is synced, or was never there. */
    if (upload_mark_has(us, name, UPLOAD_MARK_RECEIPT, NULL)) {
        return err_set(e, ERR_NOT_FOUND, "the upload is not accepted");
    }
    return r;
}

/* ---- making ---- */

void receipt_make(const struct upload *u, struct receipt *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->object_id, u->info.id, sizeof out->object_id);
    ensure(u->digest[0] != '\0');
    memcpy(out->checksum, u->digest, sizeof out->checksum);
    memcpy(out->issuer, u->us->issuer, sizeof out->issuer);
    out->size_bytes = u->info.size;
    out->accepted_at = (int64_t)(os_clock_real_ms() / 1000);
    int n = snprintf(out->json, sizeof out->json,
                     "{\"id\":\"" ID_PREFIX "%s\",\"issuer\":%s,\"object_id\":\"%s\","
                     "\"checksum\":\"" CHECKSUM_PREFIX "%s\",\"size_bytes\":%llu,"
                     "\"accepted_at\":%lld}",
                     out->object_id, u->us->issuer_json, out->object_id, out->checksum,
                     (unsigned long long)out->size_bytes, (long long)out->accepted_at);
    ensure(n > 0 && (size_t)n < sizeof out->json);
    out->json_len = (size_t)n;
}

int receipt_temp_open(struct upload *u, const struct receipt *receipt, struct err *e)
{
    char temp[UPLOADS_PATH_MAX];
    receipt_temp_path(u->us, temp, u->info.id);
    int fd = os_open(temp, O_RDWR | O_CREAT | O_TRUNC, UPLOAD_FILE_MODE);
    if (fd < 0) {
        return err_os(e, fd, "create", temp);
    }
    int r = os_pwrite_all(fd, receipt->json, receipt->json_len, 0, NULL);
    if (r < 0) {
        (void)os_close(fd);
        (void)os_unlink(temp);
        return err_os(e, r, "write", temp);
    }
    return fd;
}

int receipt_commit(struct upload *u, struct err *e)
{
    struct uploads *us = u->us;
    char temp[UPLOADS_PATH_MAX];
    char path[UPLOADS_PATH_MAX];
    receipt_temp_path(us, temp, u->info.id);
    receipt_path(us, path, u->info.id);
    struct upload_mark *mark = u->receipt_mark;
    ensure(mark != NULL);
    u->receipt_mark = NULL;
    upload_mark_put(us, mark, UPLOAD_MARK_RECEIPT);
    int renamed = os_rename(temp, path);
    int r = renamed;
    if (r < 0) {
        (void)err_os(e, r, "rename", temp);
    } else {
        r = os_sync_dir(us->receipts);
        if (r == 0) {
            upload_mark_remove(us, u->info.id, UPLOAD_MARK_RECEIPT);
            return 0;
        }
        (void)err_os(e, r, "sync directory", us->receipts);
    }
    (void)os_unlink(temp);
    int undone = os_unlink(path);
    if (renamed < 0 && undone == -ENOENT) {
        upload_mark_remove(us, u->info.id, UPLOAD_MARK_RECEIPT);
    } else {
        /* A rename that reported a failure may have happened all the same. */
        u->receipt_doubtful = true;
    }
    return e->code;
}
