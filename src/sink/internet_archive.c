/* internet_archive: the steps of a delivery to the Internet Archive.
 *
 * send:   plan checked, key file read, check_limit, a look at the item; then, the last of the job's
 *         files first (the manifest: it is small, makes the item, and brings out what is wrong with
 *         identifier, rights, collection or words before gigabytes have gone), each file that is
 *         not there already. Deriving is asked for with the last that is sent, and with that alone.
 * verify: a look: sizes, MD5 and SHA-1 of all files are told by the Archive, and are ours.
 *
 * An accepted PUT says that the bytes are staged; only the look says that they have arrived, and it
 * may say so after hours. Until then the answer is UNSEEN, asked for less and less often; after
 * three days a person is called. Nothing is sent again because it is not visible. What shows first
 * with a wrong size (it does) is waited for in the same way.
 *
 * Nothing is replaced: a file of our name with other content parks the package. Whose an item is
 * cannot be read from a key; the Archive decides it at the first PUT, and refuses what goes to
 * another account's item.
 *
 * If power fails, or the process is killed: a PUT that was interrupted left nothing, one that was
 * whole left the file, perhaps not visible yet. The runner knows of each such try
 * (job.maybe_files), and until the time of an answer has passed nothing that it may have brought is
 * sent again: the answer is UNSEEN, and the next call looks once more.
 *
 * Answers (verdicts): internet_archive_verdict.c for what the Archive says; PARKED for a plan or
 * local bytes that time does not mend; RETRY, held for all with these keys, for a key file that
 * cannot be used. */
#include "sink/internet_archive.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "sink/internet_archive_internal.h"
#include "store/artifact/destination.h"

/* ---- what needs no far side ---- */

static bool plan_is_possible(struct archive *a)
{
    const struct artifact_job *job = a->job;
    struct err e = {0};
    int r = destination_identifier(DESTINATION_ARCHIVE, slice_cstr(job->identifier), &e);

    for (unsigned i = 0; i < job->file_count; i++) {
        r = r == 0 ? destination_name(DESTINATION_ARCHIVE, slice_cstr(job->file[i].name), &e) : r;
        a->total_bytes += job->file[i].size;
    }
    if (r != 0) {
        return archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, ARCHIVE_WAY_OUT_PLAN,
                           "identifier or name: %s", e.text);
    }
    if (a->total_bytes > ARCHIVE_ITEM_BYTES) {
        return archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0,
                           "it fits into no item of the Archive: deliver it elsewhere",
                           "an item of the Archive holds at most 1 TiB");
    }
    r = archive_meta_headers(job->metadata, &a->meta, &e);
    if (r == ERR_USAGE || r == ERR_INVALID_PROJECT) {
        return archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0, ARCHIVE_WAY_OUT_PLAN,
                           "metadata: %s", e.text);
    }
    return r == 0 || archive_say(a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "", "%s", e.text);
}

static bool keys_are_there(struct archive *a)
{
    const char *path = a->job->credentials_file;
    bool open_to_others = false;
    struct err e = {0};

    if (path[0] == '\0') {
        return archive_say(a, ARTIFACT_PARKED, ARTIFACT_PLACE, 0,
                           "set the project's credentials_file; packages keep what they were "
                           "built with",
                           "the project names no key file");
    }
    if (archive_keys_read(path, &a->keys, &open_to_others, &e) != 0) {
        return archive_say(a, ARTIFACT_RETRY, ARTIFACT_KEYS, MINUTE_MS,
                           "put the access key and the secret into the key file, on a line each",
                           "%s", e.text);
    }
    if (open_to_others) {
        log_line(LOG_WARN, "deliver", "others may read the key file %s (chmod 600)", path);
    }
    buf_printf(&a->authorization, "LOW %s:%s", a->keys.access, a->keys.secret);
    return !a->authorization.failed ||
           archive_say(a, ARTIFACT_RETRY, ARTIFACT_THIS, 0, "", "no memory for the keys");
}

/* ---- what is there ---- */

static void warn_of_limits(const struct archive *a, uint64_t after)
{
    if (after > ARCHIVE_ITEM_SOFT || a->item.files >= ARCHIVE_ITEM_FILES) {
        log_line(LOG_WARN, "deliver",
                 "the item %s has %llu bytes and %llu files with this package; the Archive asks "
                 "for at most 100 GB and 10,000",
                 a->job->identifier, (unsigned long long)after,
                 (unsigned long long)a->item.files + a->job->file_count);
    }
}

static bool say_other(struct archive *a, const struct artifact_file *f)
{
    return archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0,
                       "look at both files; ours is still here and is sent nowhere",
                       "the item %s%s%s has another file named %s", a->job->identifier,
                       a->item.uploader[0] != '\0' ? " of " : "", a->item.uploader, f->name);
}

/* A file of our name that is not ours. While the item has tasks it may be one whose description is
 * not right yet, as it happens; it is not touched either way. */
static bool meet_other(struct archive *a, const struct artifact_file *f)
{
    (void)say_other(a, f);
    if (a->item.tasks > 0) {
        a->out->outcome = ARTIFACT_RETRY;
        a->out->wait_ms = 10 * MINUTE_MS;
    }
    return false;
}

/* The i-th file is not to be seen, and an earlier try may have brought it. */
static bool may_still_show(struct archive *a, unsigned i)
{
    const struct artifact_job *job = a->job;

    if ((job->maybe_files >> i & 1) == 0 || job->maybe_ago_ms >= job->endpoints->answer_ms) {
        return false;
    }
    (void)archive_say(
        a, ARTIFACT_UNSEEN, ARTIFACT_THIS, archive_ask_ms(job->endpoints, job->maybe_ago_ms), "",
        "an earlier try may have brought %s: it is looked for before it is sent again",
        job->file[i].name);
    return true;
}

/* What is to be sent, counted. False: it cannot be, or not yet. */
static bool find_missing(struct archive *a, unsigned *missing)
{
    uint64_t bytes = 0;

    *missing = 0;
    for (unsigned i = 0; i < a->job->file_count; i++) {
        const struct artifact_file *f = &a->job->file[i];
        switch (a->item.seen[i]) {
        case ARCHIVE_OTHER:
            return meet_other(a, f);
        case ARCHIVE_UNDESCRIBED:
            return archive_say(a, ARTIFACT_RETRY, ARTIFACT_THIS, 10 * MINUTE_MS, "",
                               "the Archive has %s, and has not said yet what is in it", f->name);
        case ARCHIVE_SAME:
            a->base_bytes += f->size;
            break;
        case ARCHIVE_ABSENT:
            if (may_still_show(a, i)) {
                return false;
            }
            *missing += 1;
            bytes += f->size;
            break;
        }
    }
    if (bytes > 0 && a->item.size_bytes + bytes > ARCHIVE_ITEM_BYTES) {
        return archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0,
                           "send it to another item: an identifier with the date or object in it",
                           "the item %s would have more than 1 TiB", a->job->identifier);
    }
    if (*missing > 0) {
        warn_of_limits(a, a->item.size_bytes + bytes);
    }
    return true;
}

/* ---- the adapter ---- */

static bool send_missing(struct archive *a)
{
    enum archive_seen seen[ARCHIVE_FILES_MAX];
    unsigned missing = 0;

    if (!find_missing(a, &missing)) {
        return false;
    }
    memcpy(seen, a->item.seen, sizeof seen); /* a later look may be for one file */
    for (unsigned i = a->job->file_count; i > 0; i--) {
        if (seen[i - 1] == ARCHIVE_SAME) {
            continue;
        }
        missing--;
        if (!archive_going_on(a) || !archive_put(a, i - 1, missing == 0)) {
            return false;
        }
        a->base_bytes += a->job->file[i - 1].size;
    }
    return true;
}

static void begin(struct archive *a, const struct artifact_job *job, struct artifact_verdict *out)
{
    ensure(job->endpoints != NULL);
    ensure(job->file_count > 0);
    ensure(job->file_count <= ARCHIVE_FILES_MAX);
    memset(out, 0, sizeof *out);
    *a = (struct archive){.job = job, .out = out};
}

static void end(struct archive *a)
{
    if (a->authorization.ptr != NULL) {
        explicit_bzero(a->authorization.ptr, a->authorization.len);
    }
    buf_free(&a->authorization);
    buf_free(&a->meta);
    explicit_bzero(&a->keys, sizeof a->keys);
}

static void archive_send(const struct artifact_job *job, struct artifact_verdict *out)
{
    struct archive a;

    begin(&a, job, out);
    if (plan_is_possible(&a) && keys_are_there(&a) && archive_may_send(&a) && archive_look(&a) &&
        send_missing(&a)) {
        out->outcome = a.put ? ARTIFACT_SENT : ARTIFACT_VERIFIED;
        out->scope = ARTIFACT_THIS;
        out->wait_ms = 0;
        out->text[0] = '\0';
        out->way_out[0] = '\0';
    }
    end(&a);
}

/* The i-th file has been accepted, and what the Archive tells of it is not, or not yet, ours. */
static void say_unseen(struct archive *a, unsigned i)
{
    const struct artifact_job *job = a->job;
    const char *name = job->file[i].name;
    bool other = a->item.seen[i] == ARCHIVE_OTHER;

    if (job->sent_ago_ms < ARCHIVE_UNSEEN_MS) {
        (void)archive_say(a, ARTIFACT_UNSEEN, ARTIFACT_THIS,
                          archive_ask_ms(job->endpoints, job->sent_ago_ms), "",
                          "%s is accepted and %s%s", name,
                          other ? "shows with another size or digest" : "not visible yet",
                          a->item.tasks > 0 ? "; the item has tasks that are pending" : "");
    } else if (other) {
        (void)say_other(a, &job->file[i]);
    } else {
        (void)archive_say(a, ARTIFACT_PARKED, ARTIFACT_THIS, 0,
                          "look at the item's history at archive.org (a red row is a task that "
                          "failed); then: tallyman park retry",
                          "%s was accepted %llu days ago and has not appeared in the item %s", name,
                          (unsigned long long)(job->sent_ago_ms / 86400000), job->identifier);
    }
}

static void judge_look(struct archive *a)
{
    for (unsigned i = 0; i < a->job->file_count; i++) {
        if (a->item.seen[i] != ARCHIVE_SAME) {
            say_unseen(a, i);
            return;
        }
    }
    a->out->outcome = ARTIFACT_VERIFIED;
}

static void archive_verify(const struct artifact_job *job, struct artifact_verdict *out)
{
    struct archive a;

    begin(&a, job, out);
    if (archive_look(&a)) {
        judge_look(&a);
    } else if (out->outcome == ARTIFACT_RETRY) {
        /* It was sent, and that it cannot be looked at now is no reason to send it again. */
        out->outcome = ARTIFACT_UNSEEN;
        out->scope = ARTIFACT_THIS;
        out->wait_ms = archive_ask_ms(job->endpoints, MINUTE_MS + job->sent_ago_ms);
    }
    end(&a);
}

const struct artifact_adapter artifact_internet_archive = {
    .name = "internet_archive", .send = archive_send, .verify = archive_verify};
