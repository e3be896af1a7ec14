/* ID.info: what was declared, in tusd's JSON form, so that a data directory of tusd or Canner can
 * be taken over and read by their tools; "Tallyman" is a member of our own that theirs lacks.
 *
 *   {"ID":..,"Size":..,"SizeIsDeferred":false,"Offset":0,"MetaData":{"checksum":"blake3:..",
 *    "filename":..,"project":..},"IsPartial":false,"IsFinal":false,"PartialUploads":null,
 *    "Storage":{"InfoPath":..,"Path":..,"Type":"filestore"},
 *    "Tallyman":{"created_at":"..Z","upload_metadata":".."}}
 *
 * "checksum" is missing where the client declared none (a project that does not require it).
 *
 * Storage.Path is written for tusd and never read: paths come from the id. The file is written once
 * and never again.
 *
 * An upload that comes whole with its creation has no ID.state until its first sync, which most
 * never see: making a file is dear (an ext4 that has just removed many looks past each of them).
 * For the same reason ID.state is left where it is after the acceptance, for whoever purges.
 *
 * Power failure in upload_create: any of the three names may be there or not, .info torn. Nobody
 * has heard of the id then; the cleaner removes what is left. After upload_create with sync_now all
 * three are durable; without it upload_sync or upload_accept makes them so before anything is told.
 *
 * Answers: every failure. What an .info holds is input: whatever is wrong with it is ERR_CORRUPT.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "base/timefmt.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"
#include "json/read.h"
#include "json/tolerant.h"
#include "json/write.h"

#define CHECKSUM_PREFIX "blake3:"

/* ---- writing ---- */

static void put_string_member(struct buf *b, const char *name, const char *value)
{
    json_put_name(b, name);
    json_put_string(b, slice_cstr(value));
}

void upload_info_format(const struct uploads *us, const struct upload_info *info, struct buf *out)
{
    char path[UPLOADS_PATH_MAX];
    char info_path[UPLOADS_PATH_MAX];
    char created[TIMEFMT_MS_LEN + 1];
    upload_path(us, path, info->id, "");
    upload_path(us, info_path, info->id, ".info");
    timefmt_ms(created, (uint64_t)info->created_ms);
    buf_put_char(out, '{');
    put_string_member(out, "ID", info->id);
    buf_printf(out, ",\"Size\":%llu,\"SizeIsDeferred\":false,\"Offset\":0,\"MetaData\":{",
               (unsigned long long)info->size);
    if (info->checksum[0] != '\0') {
        json_put_name(out, "checksum");
        buf_printf(out, "\"" CHECKSUM_PREFIX "%s\"", info->checksum);
    }
    if (info->filename[0] != '\0') {
        put_string_member(out, "filename", info->filename);
    }
    put_string_member(out, "project", info->project);
    buf_put_cstr(out, "},\"IsPartial\":false,\"IsFinal\":false,\"PartialUploads\":null,"
                      "\"Storage\":{");
    put_string_member(out, "InfoPath", info_path);
    put_string_member(out, "Path", path);
    put_string_member(out, "Type", "filestore");
    buf_put_cstr(out, "},\"Tallyman\":{");
    put_string_member(out, "created_at", created);
    put_string_member(out, "upload_metadata", info->metadata);
    buf_put_cstr(out, "}}");
}

/* A new file with these bytes, not synced. */
static int make_file(const char *path, struct slice bytes, bool begin_write)
{
    int fd = os_open(path, O_WRONLY | O_CREAT | O_EXCL, UPLOAD_FILE_MODE);
    if (fd < 0) {
        return fd;
    }
    int r = os_pwrite_all(fd, bytes.ptr, bytes.len, 0, NULL);
    if (begin_write) {
        /* So that the one journal commit that the first sync brings about covers it. A failure is
         * kept for the sync. */
        (void)os_write_back(fd, 0, bytes.len, false);
    }
    int closed = os_close(fd);
    return r != 0 ? r : closed;
}

static int make_names(struct uploads *us, const char *id, struct slice json, bool with_state,
                      struct err *e)
{
    static const char *const suffixes[] = {".info", "", ".state"};
    char path[UPLOADS_PATH_MAX];
    for (size_t i = 0; i < (with_state ? 3 : 2); i++) {
        struct slice bytes = i == 0 ? json : slice_of("", 0);
        upload_path(us, path, id, suffixes[i]);
        int r = make_file(path, bytes, i == 0);
        if (r < 0) {
            return err_os(e, r, "create", path);
        }
    }
    return 0;
}

static int sync_names(struct uploads *us, const char *id, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    upload_path(us, path, id, ".info");
    int fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    struct sync_job jobs[] = {{.fd = fd}, {.dir = us->uploads}};
    int r = sync_all(us->syncers, jobs, sizeof jobs / sizeof *jobs);
    (void)os_close(fd); /* its bytes were written through another, which was closed in order */
    return r < 0 ? err_os(e, r, "sync", jobs[0].result < 0 ? path : us->uploads) : 0;
}

/* Nobody has heard of the id: what was made may go, or stay for the cleaner. */
static void unmake_names(struct uploads *us, const char *id)
{
    static const char *const suffixes[] = {"", ".state", ".info"};
    char path[UPLOADS_PATH_MAX];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        upload_path(us, path, id, suffixes[i]);
        (void)os_unlink(path);
    }
}

int upload_create(struct uploads *us, struct upload_info *info, bool sync_now, struct err *e)
{
    uint8_t chance[UPLOAD_ID_LEN / 2];
    struct buf json;
    ensure(info->size >= 1 && info->size <= INT64_MAX);
    int r = os_random(chance, sizeof chance);
    if (r < 0) {
        return err_os(e, r, "random", "an id");
    }
    hex_encode(info->id, chance, sizeof chance);
    info->id[UPLOAD_ID_LEN] = '\0';
    if (info->created_ms <= 0) {
        info->created_ms = (int64_t)os_clock_real_ms();
    }
    buf_init(&json, UPLOAD_INFO_MAX);
    upload_info_format(us, info, &json);
    if (json.failed) {
        buf_free(&json);
        return err_set(e, ERR_NO_MEMORY, "no memory for a new upload");
    }
    r = make_names(us, info->id, buf_slice(&json), sync_now, e);
    buf_free(&json);
    if (r == 0 && sync_now) {
        r = sync_names(us, info->id, e);
    }
    if (r != 0) {
        unmake_names(us, info->id);
    }
    return r;
}

/* ---- reading ---- */

static bool project_ok(const char *p)
{
    for (const char *at = p; *at != '\0'; at++) {
        bool letter = (*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z');
        if (!letter && !(*at >= '0' && *at <= '9') && strchr("._:-", *at) == NULL) {
            return false;
        }
    }
    return *p != '\0';
}

static bool is_true(struct slice object, struct slice name)
{
    struct slice value;
    return json_member(object, name, &value) && json_type_of(value) == JSON_TRUE;
}

/* "blake3:" and 64 lower-case digits; the digits. None at all is fine. */
static bool get_checksum(struct slice object, char out[BLAKE3_HEX_LEN + 1])
{
    char text[sizeof CHECKSUM_PREFIX + BLAKE3_HEX_LEN];
    uint8_t digest[BLAKE3_LEN];
    size_t prefix = sizeof CHECKSUM_PREFIX - 1;
    struct slice value;
    out[0] = '\0';
    if (!json_member(object, SLICE("checksum"), &value)) {
        return true;
    }
    if (!json_member_text(object, SLICE("checksum"), text, sizeof text) ||
        !slice_starts(slice_cstr(text), SLICE(CHECKSUM_PREFIX)) ||
        !hex_decode(digest, slice_cstr(text + prefix), BLAKE3_LEN)) {
        return false;
    }
    memcpy(out, text + prefix, BLAKE3_HEX_LEN + 1);
    return true;
}

static void get_own(struct slice object, struct upload_info *out)
{
    struct slice own;
    char created[TIMEFMT_MS_LEN + 1];
    uint64_t ms;
    if (!json_member(object, SLICE("Tallyman"), &own) || json_type_of(own) != JSON_OBJECT) {
        return; /* of tusd or Canner */
    }
    if (json_member_text(own, SLICE("created_at"), created, sizeof created) &&
        timefmt_parse_ms(slice_cstr(created), &ms)) {
        out->created_ms = (int64_t)ms;
    }
    if (!json_member_text(own, SLICE("upload_metadata"), out->metadata, sizeof out->metadata)) {
        out->metadata[0] = '\0';
    }
}

int upload_info_parse(struct slice json, struct upload_info *out, struct err *e)
{
    struct slice object;
    struct slice meta;
    struct slice size;
    unsigned flaws;
    memset(out, 0, sizeof *out);
    int r = json_tolerant_check(json, &object, e);
    r = r == 0 ? json_flaws(object, &flaws, e) : r;
    if (r == ERR_NO_MEMORY) {
        return r;
    }
    /* Zeros inside a string are what a torn write leaves. */
    if (r != 0 || (flaws & (JSON_FLAW_CONTROL | JSON_FLAW_UTF8)) != 0 ||
        json_type_of(object) != JSON_OBJECT) {
        return err_set(e, ERR_CORRUPT, "the upload's .info is no JSON object");
    }
    if (!json_member_text(object, SLICE("ID"), out->id, sizeof out->id) ||
        !upload_id_ok(slice_cstr(out->id))) {
        return err_set(e, ERR_CORRUPT, "the upload's .info has no id");
    }
    if (!json_member(object, SLICE("Size"), &size) || !json_u64(size, &out->size) ||
        out->size == 0 || out->size > INT64_MAX || is_true(object, SLICE("SizeIsDeferred"))) {
        return err_set(e, ERR_CORRUPT, "the upload's .info has no size");
    }
    if (is_true(object, SLICE("IsPartial")) || is_true(object, SLICE("IsFinal"))) {
        return err_set(e, ERR_CORRUPT, "the upload's .info is of a concatenation");
    }
    if (!json_member(object, SLICE("MetaData"), &meta) || json_type_of(meta) != JSON_OBJECT ||
        !json_member_text(meta, SLICE("project"), out->project, sizeof out->project) ||
        !project_ok(out->project)) {
        return err_set(e, ERR_CORRUPT, "the upload's .info has no project");
    }
    if (!get_checksum(meta, out->checksum)) {
        return err_set(e, ERR_CORRUPT, "the upload's .info has a checksum that is no BLAKE3");
    }
    /* A filename is never a reason to refuse: one that cannot be held is none. */
    if (!json_member_text(meta, SLICE("filename"), out->filename, sizeof out->filename)) {
        out->filename[0] = '\0';
    }
    get_own(object, out);
    return 0;
}

int upload_load(struct uploads *us, struct slice id, struct upload_info *out, struct err *e)
{
    char name[UPLOAD_ID_LEN + 1];
    char path[UPLOADS_PATH_MAX];
    struct buf json;
    uint64_t mtime_ms;
    if (!upload_id_copy(name, id)) {
        return err_set(e, ERR_NOT_FOUND, "there is no such upload");
    }
    upload_path(us, path, name, ".info");
    int r = upload_read_file(path, UPLOAD_INFO_MAX, &json, &mtime_ms, e);
    if (r != 0) {
        return r == ERR_NOT_FOUND ? err_set(e, r, "there is no such upload") : r;
    }
    r = upload_info_parse(buf_slice(&json), out, e);
    buf_free(&json);
    if (r < 0) {
        return r;
    }
    if (strcmp(out->id, name) != 0) {
        return err_set(e, ERR_CORRUPT, "the upload's .info is another one's");
    }
    if (out->created_ms == 0) {
        out->created_ms = (int64_t)mtime_ms;
    }
    return 0;
}
