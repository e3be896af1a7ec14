/* fuzz_settings: a project's settings of any JSON, and the packages they lead to.
 *
 * Input: the declared name of a file, a line end, the settings as the management API takes them.
 *
 * Broken is: a refusal without a text that names a member; settings that are not the same after
 * they were stored and read; settings that pass, and then give a package no place, a place that is
 * not its own, or one that the Archive's adapter would refuse; a plan that does not come back to
 * the byte; a package that is built twice and differs. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "sink/internet_archive_internal.h"
#include "store/artifact/delivery_plan.h"
#include "store/artifact/destination.h"
#include "store/artifact/settings.h"
#include "json/canon.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEX32 "0123456789abcdef0123456789abcdef"

static void refused(int r, const struct err *e)
{
    ensure(r == ERR_INVALID_PROJECT);
    ensure(e->code == r);
    ensure(strncmp(e->text, "artifacts", 9) == 0);
}

static void stored(const struct artifact_sink *to)
{
    static struct artifact_sink back;
    struct buf text = {0}, again = {0};
    struct err e = {0};
    int r;

    settings_put(&text, to);
    r = settings_read(slice_cstr(to->sink), slice_cstr(to->directory), buf_slice(&text), &back, &e);
    ensure(r == 0);
    settings_put(&again, &back);
    ensure(slice_eq(buf_slice(&text), buf_slice(&again)));
    buf_free(&text);
    buf_free(&again);
}

#define ALNUM "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* The Archive's rules once more, in other words than destination.c's. */
static void allowed_there(const char *identifier, const char *name)
{
    static const char *const tails[] = {"_meta.xml",        "_files.xml", "_meta.sqlite",
                                        "_archive.torrent", "_dc.xml",    "_reviews.xml",
                                        "_rules.conf"};
    size_t n = strlen(identifier);

    ensure(n >= 5 && n <= 100);
    ensure(strspn(identifier, ALNUM) > 0);
    ensure(strspn(identifier, ALNUM "._-") == n);
    ensure(strlen(name) > 0 && strlen(name) <= 200);
    ensure(strspn(name, ALNUM "._-/") == strlen(name));
    ensure(name[0] != '/' && name[strlen(name) - 1] != '/' && strstr(name, "//") == NULL);
    for (const char *at = name; at != NULL; at = strchr(at, '/')) {
        at += *at == '/' ? 1 : 0;
        ensure(strcspn(at, "/") != 1 || at[0] != '.');
        ensure(strcspn(at, "/") != 2 || memcmp(at, "..", 2) != 0);
    }
    ensure(name[0] != '_' && strncmp(name, "history/", 8) != 0);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        ensure(strncmp(name, identifier, n) != 0 || strcmp(name + n, tails[i]) != 0);
    }
}

static void accepted_there(const struct delivery_plan *p)
{
    struct buf headers = {0};
    struct err e = {0};
    int r;

    if (strcmp(p->to.sink, DESTINATION_ARCHIVE) != 0) {
        return;
    }
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        allowed_there(p->identifier, p->file[i].name);
    }
    r = archive_meta_headers(slice_cstr(p->metadata), &headers, &e);
    ensure(r == 0);
    ensure(headers.len <= 7168);
    buf_free(&headers);
}

static void packaged(const struct artifact_sink *to, struct slice filename)
{
    static struct delivery_plan plan, again;
    struct delivery_artifact a = {
        .object_id = HEX32, .project = "demo-1", .size_bytes = 7, .accepted_at = 1795996800};
    struct buf text = {0};
    struct err e = {0};
    int r;

    memcpy(a.filename, filename.ptr, filename.len);
    memset(a.checksum, '0', BLAKE3_HEX_LEN);
    r = delivery_plan_begin(&plan, &a, to, &e);
    ensure(r == 0);
    r = delivery_plan_begin(&again, &a, to, &e);
    ensure(r == 0);
    ensure(memcmp(&plan, &again, sizeof plan) == 0);
    plan.file[0].size = 7;
    memset(plan.file[0].digests.blake3, '0', BLAKE3_HEX_LEN);
    ensure(delivery_plan_fits(&plan, &a));
    delivery_plan_put(&text, &plan);
    ensure(text.len <= DELIVERY_TEXT_MAX);
    r = delivery_plan_parse(buf_slice(&text), &again, &e);
    ensure(r == 0);
    ensure(memcmp(&plan, &again, sizeof plan) == 0);
    accepted_there(&plan);
    buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct canon *canon;
    static struct buf json;
    static struct artifact_sink to;
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\n', size);
    struct slice filename;
    struct err e = {0};
    int r;

    if (end == NULL) {
        return 0;
    }
    if (canon == NULL) {
        canon = canon_new();
        ensure(canon != NULL);
    }
    filename = slice_of(data, (size_t)(end - data));
    if (filename.len > UPLOAD_FILENAME_MAX || memchr(filename.ptr, '\0', filename.len) != NULL) {
        return 0;
    }
    buf_clear(&json);
    if (canon_json(canon, slice_of(end + 1, size - filename.len - 1), &json, NULL) != 0) {
        return 0;
    }
    memset(&to, 0, sizeof to);
    to.retention_ms = -1;
    r = settings_apply(&to, buf_slice(&json), &e);
    if (r == 0) {
        r = settings_check(&to, SLICE("demo-1"), &e);
    }
    if (r < 0) {
        refused(r, &e);
        return 0;
    }
    stored(&to);
    packaged(&to, filename);
    return 0;
}
