/* deliver_scan: from receipts/ into the index.
 *
 * A receipt is an acceptance; its upload's .info says the project and the declared name. What is
 * known is left alone: artifacts never change. What cannot be taken (a name of another form, no
 * receipt of its id, no readable .info) is noted in the index, logged once, and tried again at each
 * scan; it is never fatal. A fault of the disk is neither noted nor final.
 *
 * A name in receipts/ is believed only after a sync of the folder by this process: the server
 * renames first and syncs then, and takes the name back when that fails. (A build looks at the
 * receipt once more.)
 *
 * A scan is transactions of SCAN_GROUP additions; results and new work come between them. Power
 * failure in between: what is missing is added by the next scan. Memory: one receipt and one .info.
 *
 * Answers: the index's errors. A directory that cannot be read is logged, and read again soon. */
#include <errno.h>
#include <stdio.h>
#include <sys/inotify.h>

#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"
#include "store/artifact/package_load.h"

#define SCAN_GROUP    500u
#define SCAN_AGAIN_NS (UINT64_C(60) * 1000000000)
#define TAIL          ".json"
#define TAIL_LEN      (sizeof TAIL - 1)

struct scan {
    struct deliver *d;
    struct err *e;
    uint64_t added;
    unsigned in_group;
    char project[UPLOAD_PROJECT_MAX + 1]; /* whose artifacts are merged or not, as of this scan */
    bool merges;
};

static int skip(struct scan *s, const char *name, const char *reason)
{
    char text[DELIVER_SHOWN_MAX], why[DELIVER_SHOWN_MAX];
    bool first = false;
    int r;

    deliver_shown(text, name);
    deliver_shown(why, reason); /* it may name a path with the id */
    r = delivery_index_skip(s->d->index, name, reason, deliver_now_ms() / 1000, &first, s->e);
    if (r == 0 && first) {
        log_line(LOG_WARN, "deliver", "receipts/%s is left out: %s", text, why);
    }
    return r;
}

/* ERR_IO and the like: the disk's fault of the moment, not the file's. */
static int later(struct scan *s, const char *name, const struct err *why)
{
    char text[DELIVER_SHOWN_MAX], reason[DELIVER_SHOWN_MAX];
    uint64_t again_ns = os_clock_mono_ns() + SCAN_AGAIN_NS;

    deliver_shown(text, name);
    deliver_shown(reason, why->text);
    log_line(LOG_WARN, "deliver", "receipts/%s cannot be read now: %s", text, reason);
    s->d->scan_due_ns = again_ns < s->d->scan_due_ns ? again_ns : s->d->scan_due_ns;
    return 0;
}

/* Into which kind of package. What an identity package was made of already stays that. */
static int ask_project(struct scan *s, const struct delivery_artifact *a, bool *merges,
                       struct err *why)
{
    struct delivery_merge_rule rule;
    int r = 0;

    if (strcmp(s->project, a->project) != 0) {
        r = deliver_merge_rule(s->d, a->project, &rule, why);
        if (r < 0 && r != ERR_NOT_FOUND) {
            return r;
        }
        memcpy(s->project, a->project, sizeof s->project);
        s->merges = r == 0 && rule.target > 0;
    }
    *merges = s->merges && !package_identity_planned(s->d->options->data, a);
    return 0;
}

static int add(struct scan *s, const char *name, const struct delivery_artifact *a)
{
    struct err why = {0};
    bool merges = false;

    if (ask_project(s, a, &merges, &why) < 0) {
        return later(s, name, &why);
    }
    s->added++;
    s->in_group++;
    if (!merges) {
        return delivery_index_add(s->d->index, a, deliver_now_ms(), s->e);
    }
    s->d->choose_now = true;
    return delivery_index_add_waiting(s->d->index, a, s->e);
}

static int take(struct scan *s, const char *name, struct slice id)
{
    struct upload_info *info = &s->d->info;
    struct delivery_artifact a;
    struct receipt receipt;
    struct err why = {0};
    int r = receipt_load(s->d->uploads, id, &receipt, &why);

    if (r == ERR_NOT_FOUND) {
        return 0; /* it was here a moment ago: whoever took it away knows */
    }
    if (r == 0) {
        r = upload_load(s->d->uploads, id, info, &why);
        if (r == ERR_NOT_FOUND) {
            return skip(s, name, "its upload's .info is missing, so its project is not known");
        }
    }
    if (r == ERR_CORRUPT) {
        return skip(s, name, why.text);
    }
    if (r < 0) {
        return later(s, name, &why);
    }
    if (receipt.size_bytes == 0 || receipt.size_bytes > INT64_MAX) {
        return skip(s, name, "its size is none");
    }
    memset(&a, 0, sizeof a);
    memcpy(a.object_id, receipt.object_id, sizeof a.object_id);
    memcpy(a.project, info->project, sizeof a.project);
    memcpy(a.filename, info->filename, sizeof a.filename);
    memcpy(a.checksum, receipt.checksum, sizeof a.checksum);
    a.size_bytes = receipt.size_bytes;
    a.accepted_at = receipt.accepted_at;
    return add(s, name, &a);
}

/* Commits what was added since the last commit, if receipts/ can be synced; else that comes back
 * with a scan, later. */
static int commit_group(struct scan *s)
{
    char path[DELIVER_PATH_BYTES];
    int r = 0;

    deliver_path(s->d, path, "receipts");
    if (s->in_group > 0) {
        r = os_sync_dir(path);
    }
    if (r < 0) {
        struct err why = {0};
        (void)err_os(&why, r, "sync", path);
        s->added -= s->in_group;
        s->in_group = 0;
        delivery_index_undo(s->d->index);
        return later(s, "", &why);
    }
    s->in_group = 0;
    return delivery_index_commit(s->d->index, s->e);
}

static int each(void *ctx, const char *name)
{
    struct scan *s = ctx;
    size_t len = strlen(name);
    char id[UPLOAD_ID_LEN + 1];
    bool known = false;
    int r;

    if (name[0] == '.') {
        return 0; /* temporary names of the server */
    }
    if (len != UPLOAD_ID_LEN + TAIL_LEN || strcmp(name + UPLOAD_ID_LEN, TAIL) != 0 ||
        !upload_id_ok(slice_of(name, UPLOAD_ID_LEN))) {
        return skip(s, name, "its name is none of a receipt");
    }
    memcpy(id, name, UPLOAD_ID_LEN);
    id[UPLOAD_ID_LEN] = '\0';
    r = delivery_index_has(s->d->index, id, &known, s->e);
    if (r == 0 && !known) {
        r = take(s, name, slice_cstr(id));
    }
    if (r == 0 && s->in_group == SCAN_GROUP) {
        r = commit_group(s);
        if (r == 0) {
            r = deliver_between(s->d, s->e);
        }
        if (r == 0) {
            r = delivery_index_begin(s->d->index, s->e);
        }
    }
    return r < 0 ? r : deliver_stopping(s->d) ? 1 : 0;
}

static int finish(struct scan *s, int r)
{
    if (r >= 0) {
        r = commit_group(s);
    }
    if (r < 0) {
        delivery_index_undo(s->d->index);
    } else if (s->added > 0) {
        log_line(LOG_INFO, "deliver", "%llu accepted artifacts are new",
                 (unsigned long long)s->added);
    }
    return r;
}

int deliver_scan(struct deliver *d, struct err *e)
{
    struct scan s = {.d = d, .e = e};
    char path[DELIVER_PATH_BYTES];
    int r = delivery_index_begin(d->index, e);

    if (r < 0) {
        return r;
    }
    deliver_path(d, path, "receipts");
    /* each() gives ERR_ codes, which are told from the directory's own errno by the text. */
    e->code = 0;
    r = os_list(path, each, &s);
    if (r < 0 && e->code == 0) {
        struct err why = {0};
        (void)err_os(&why, r, "list", path);
        r = later(&s, "", &why);
    }
    return finish(&s, r);
}

/* ---- the watch ---- */

int deliver_watched(struct deliver *d, struct err *e)
{
    _Alignas(struct inotify_event) char events[4096];
    struct scan s = {.d = d, .e = e};
    bool begun = false;
    int r = 0;

    while (r == 0) {
        int64_t n = os_read(d->watch_fd, events, sizeof events);
        if (n <= 0) {
            d->scan_now = d->scan_now || (n < 0 && n != -EAGAIN);
            break;
        }
        if (!begun) {
            begun = true;
            r = delivery_index_begin(d->index, e);
        }
        for (size_t at = 0; r == 0 && at < (size_t)n;) {
            struct inotify_event event;
            memcpy(&event, events + at, sizeof event);
            if ((event.mask & IN_MOVED_TO) == 0) {
                d->scan_now = true; /* an overflow: names were lost */
            } else if (event.len > 0) {
                r = each(&s, events + at + sizeof event);
            }
            at += sizeof event + event.len;
        }
    }
    if (!begun) {
        return r;
    }
    r = finish(&s, r);
    return r > 0 ? 0 : r;
}
