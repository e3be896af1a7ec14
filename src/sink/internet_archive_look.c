/* internet_archive_look: what the Archive knows of an item, and whether it takes uploads now.
 *
 * The metadata API answers an item that nobody made with {} and 200. It lags behind the uploads, by
 * minutes or hours, so that a file which is not in it is not known to be absent. Values are texts,
 * numbers or lists, as it comes. An answer that is larger than the bound cannot be read, and will
 * not become smaller: a person has to choose another item. Where there is an answer and it does not
 * tell what is in the item, that may be of this item alone, and holds the others only when several
 * items in a row give none; 429 and 503 are of all.
 *
 * check_limit names the access key in its URL: no text or log here has that URL. When it cannot be
 * asked, that is neither a yes nor an overload; it is asked again later. */
#include <stdio.h>

#include "sink/internet_archive_internal.h"
#include "json/read.h"
#include "json/tolerant.h"

#define LOOK_ANSWER_MS  60000
#define LIMIT_ANSWER_MS 12000
#define NUMBER_MAX      20

/* ---- reading ---- */

/* A number, also as a text. */
static bool number_of(struct slice v, uint64_t *out)
{
    struct slice inner;

    return json_string_raw(v, &inner)
               ? inner.len > 0 && inner.len <= NUMBER_MAX && json_type_of(inner) == JSON_NUMBER &&
                     json_u64(inner, out)
               : json_u64(v, out);
}

static uint64_t member_number(struct slice object, struct slice name)
{
    struct slice v;
    uint64_t n = 0;

    return json_member(object, name, &v) && number_of(v, &n) ? n : 0;
}

static bool member_is(struct slice object, struct slice name, const char *text)
{
    struct slice v;
    struct slice inner;

    return json_member(object, name, &v) && json_string_raw(v, &inner) &&
           json_string_is(inner, slice_cstr(text));
}

/* The text, or the first of a list of texts, with nothing in it that a log would choke on. */
static void copy_text(struct slice v, char *out, size_t size)
{
    struct slice inner;
    struct buf text = {0};
    size_t n;

    if (json_type_of(v) == JSON_ARRAY) {
        struct json_iter it = json_iter_array(v);
        if (!json_next_element(&it, &v)) {
            return;
        }
    }
    if (!json_string_raw(v, &inner)) {
        return;
    }
    json_unescape(inner, &text);
    n = text.len < size - 1 ? text.len : size - 1;
    for (size_t i = 0; i < n; i++) {
        out[i] = text.ptr[i] >= ' ' && text.ptr[i] < 0x7f ? text.ptr[i] : '?';
    }
    out[n] = '\0';
    buf_free(&text);
}

static bool is_true(struct slice v)
{
    uint64_t n = 0;

    return json_type_of(v) == JSON_TRUE || (number_of(v, &n) && n != 0);
}

static enum archive_seen compare_file(struct slice entry, const struct artifact_file *f)
{
    struct slice v;
    uint64_t size = 0;

    if (!json_member(entry, SLICE("size"), &v) || !number_of(v, &size) ||
        !json_member(entry, SLICE("md5"), &v) || !json_member(entry, SLICE("sha1"), &v)) {
        return ARCHIVE_UNDESCRIBED;
    }
    return size == f->size && member_is(entry, SLICE("md5"), f->md5) &&
                   member_is(entry, SLICE("sha1"), f->sha1)
               ? ARCHIVE_SAME
               : ARCHIVE_OTHER;
}

static void read_files(struct slice files, const struct artifact_job *job, struct archive_item *out)
{
    struct json_iter it = json_iter_array(files);
    struct slice entry;

    while (json_next_element(&it, &entry)) {
        out->files++;
        for (unsigned i = 0; i < job->file_count; i++) {
            if (member_is(entry, SLICE("name"), job->file[i].name)) {
                out->seen[i] = compare_file(entry, &job->file[i]);
            }
        }
    }
}

static unsigned count_tasks(struct slice v)
{
    struct json_iter it = json_iter_array(v);
    struct slice task;
    unsigned n = 0;

    if (json_type_of(v) != JSON_ARRAY) {
        return is_true(v) ? 1 : 0;
    }
    while (json_next_element(&it, &task)) {
        n++;
    }
    return n;
}

int archive_item_read(struct slice text, const struct artifact_job *job, struct archive_item *out,
                      struct err *e)
{
    struct slice all;
    struct slice v;
    int r = json_tolerant_check(text, &all, e);

    *out = (struct archive_item){0};
    if (r != 0 || json_type_of(all) != JSON_OBJECT) {
        return err_set(e, ERR_JSON, "the answer about the item is no JSON object");
    }
    if (json_member(all, SLICE("error"), &v)) {
        return err_set(e, ERR_JSON, "the answer about the item is an error");
    }
    if (json_member(all, SLICE("is_dark"), &v)) {
        out->dark = is_true(v);
    }
    if (json_member(all, SLICE("metadata"), &v) && json_type_of(v) == JSON_OBJECT) {
        struct slice uploader;
        out->exists = true;
        if (json_member(v, SLICE("uploader"), &uploader)) {
            copy_text(uploader, out->uploader, sizeof out->uploader);
        }
    }
    if (json_member(all, SLICE("files"), &v)) {
        out->exists = true;
        read_files(v, job, out);
    }
    if (json_member(all, SLICE("tasks"), &v)) {
        out->tasks = count_tasks(v);
    }
    out->size_bytes = member_number(all, SLICE("item_size"));
    out->exists = out->exists || out->dark;
    return 0;
}

/* ---- asking ---- */

bool archive_look(struct archive *a)
{
    struct buf url = {0};
    struct net_answer answer = {0};
    struct err e = {0};
    bool ok;

    buf_printf(&url, "%s/metadata/%s", a->job->endpoints->archive_metadata, a->job->identifier);
    buf_put_char(&url, '\0');
    ok = archive_get(a, &url, LOOK_ANSWER_MS, ARCHIVE_LOOK_BYTES, ARTIFACT_DOUBT,
                     "the item cannot be looked at", &answer);
    if (ok && answer.status == 200 && !answer.complete && answer.body.len >= ARCHIVE_LOOK_BYTES) {
        ok = archive_say(a, ARTIFACT_PARKED, ARTIFACT_ITEM, 0,
                         "choose an identifier that gives fewer files to an item; packages keep "
                         "the one they were built with",
                         "the item %s has so many files that what is there cannot be read",
                         a->job->identifier);
    } else if (ok && (answer.status != 200 || !answer.complete)) {
        bool of_all = answer.status == 429 || answer.status == 503;
        ok = archive_say(a, ARTIFACT_RETRY, of_all ? ARTIFACT_FAR_END : ARTIFACT_DOUBT, MINUTE_MS,
                         "", "the item cannot be looked at: the Archive answers %u%s",
                         answer.status, answer.complete ? "" : ", cut short");
    } else if (ok && archive_item_read(buf_slice(&answer.body), a->job, &a->item, &e) != 0) {
        ok = archive_say(a, ARTIFACT_RETRY, ARTIFACT_DOUBT, MINUTE_MS, "",
                         "the item cannot be looked at: %s", e.text);
    } else if (ok && a->item.dark) {
        ok = archive_say(a, ARTIFACT_PARKED, ARTIFACT_ITEM, 0,
                         "ask info@archive.org why; or give the project another identifier",
                         "the Archive has taken the item %s out of sight (is_dark)",
                         a->job->identifier);
    }
    net_answer_free(&answer);
    buf_free(&url);
    return ok;
}

/* The reason that check_limit gives, or that its numbers give. */
static void ration_reason(struct slice all, struct archive_error *out)
{
    static const struct {
        struct slice queued, ration;
    } pairs[] = {{SLICE("total_tasks_queued"), SLICE("total_global_limit")},
                 {SLICE("accesskey_tasks_queued"), SLICE("accesskey_ration")},
                 {SLICE("bucket_tasks_queued"), SLICE("bucket_ration")}};
    struct slice detail = SLICE("{}");
    struct slice v;

    *out = (struct archive_error){.code = "SlowDown"};
    (void)json_member(all, SLICE("detail"), &detail);
    if (json_member(detail, SLICE("limit_reason"), &v)) {
        copy_text(v, out->resource, sizeof out->resource);
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        uint64_t queued = member_number(detail, pairs[i].queued);
        uint64_t ration = member_number(detail, pairs[i].ration);
        if (ration > 0 && queued >= ration) {
            size_t n = strlen(out->resource);
            (void)snprintf(out->resource + n, sizeof out->resource - n, "%s%.*s %llu of %llu",
                           n > 0 ? "; " : "", (int)pairs[i].queued.len, pairs[i].queued.ptr,
                           (unsigned long long)queued, (unsigned long long)ration);
            return;
        }
    }
}

static bool judge_limit(struct archive *a, const struct net_answer *answer)
{
    struct archive_error reason;
    struct slice all;
    struct slice v;
    uint64_t over = 0;

    if (answer->status != 200 || !answer->complete ||
        json_tolerant_check(buf_slice(&answer->body), &all, NULL) != 0 ||
        json_type_of(all) != JSON_OBJECT || !json_member(all, SLICE("over_limit"), &v) ||
        (json_type_of(v) != JSON_TRUE && json_type_of(v) != JSON_FALSE && !number_of(v, &over))) {
        return archive_say(a, ARTIFACT_RETRY, ARTIFACT_FAR_END, MINUTE_MS, "",
                           "it is not known whether the Archive takes uploads now (%u to "
                           "check_limit)",
                           answer->status);
    }
    if (!is_true(v)) {
        return true;
    }
    ration_reason(all, &reason);
    archive_judge_ration(a, &reason);
    return false;
}

bool archive_may_send(struct archive *a)
{
    struct buf url = {0};
    struct buf query = {0};
    struct net_answer answer = {0};
    bool ok;

    buf_put_cstr(&query, "check_limit=1");
    net_put_query(&query, "accesskey", slice_cstr(a->keys.access));
    net_put_query(&query, "bucket", slice_cstr(a->job->identifier));
    buf_printf(&url, "%s/?%.*s", a->job->endpoints->archive_s3, (int)query.len, query.ptr);
    buf_put_char(&url, '\0');
    ok = archive_get(a, &url, LIMIT_ANSWER_MS, ARCHIVE_ERROR_BYTES, ARTIFACT_FAR_END,
                     "it is not known whether the Archive takes uploads now", &answer) &&
         judge_limit(a, &answer);
    net_answer_free(&answer);
    buf_free(&query);
    buf_free(&url);
    return ok;
}
