/* index_scan: taking stock of the index directory when it is opened.
 *
 * Of the names that are ours (keys-*, gen-*):
 *   ends in .tmp             an attempt that was cut short; removed unread
 *   malformed, or a run or   of generations that are not there (any more), or that this version
 *   summary that cannot be   would not have written; removed
 *   keys-F-T.run             opened and checked, largest first. Good: used, and every smaller run
 *                            inside it is removed. Bad: removed, and the smaller ones have their
 *                            chance.
 *   gen-N.sum                left; index_summary_load checks it when it is wanted
 * Other names are not touched.
 *
 * Power failure: only removals happen here, none of them synced and none relied on; the next
 * opening finds a file again or not and comes to the same view, or to one with fewer generations
 * known. A run that could not be read (EIO, too many open files) is left where it is: it may be
 * good, and says the same as the runs that will be written for its generations.
 *
 * Answers: no memory, a directory that cannot be listed. Everything else is told and survived. */
#include "journal/index_scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "journal/index_format.h"
#include "os/os.h"

struct index_found {
    uint32_t from, to;
};

static const struct slice run_prefix = {.ptr = "keys-", .len = 5};
static const struct slice sum_prefix = {.ptr = "gen-", .len = 4};

/* Collects our names, each with its NUL. */
static int index_scan_name(void *ctx, const char *name)
{
    struct buf *names = ctx;
    struct slice s = slice_cstr(name);

    if (slice_starts(s, run_prefix) || slice_starts(s, sum_prefix)) {
        buf_put(names, name, s.len + 1);
    }
    return names->failed ? -ENOMEM : 0;
}

/* Takes what is expected off the front of *s. */
static bool index_scan_take(struct slice *s, struct slice expected)
{
    if (!slice_starts(*s, expected)) {
        return false;
    }
    *s = slice_from(*s, expected.len);
    return true;
}

/* Takes eight decimal digits off the front of *s. */
static bool index_scan_ordinal(struct slice *s, uint32_t *ordinal)
{
    *ordinal = 0;
    if (s->len < 8) {
        return false;
    }
    for (unsigned i = 0; i < 8; i++) {
        if (s->ptr[i] < '0' || s->ptr[i] > '9') {
            return false;
        }
        *ordinal = *ordinal * 10 + (uint32_t)(s->ptr[i] - '0');
    }
    *s = slice_from(*s, 8);
    return true;
}

static bool index_scan_is_run(struct slice name, struct index_found *run)
{
    return index_scan_take(&name, run_prefix) && index_scan_ordinal(&name, &run->from) &&
           index_scan_take(&name, SLICE("-")) && index_scan_ordinal(&name, &run->to) &&
           slice_eq(name, SLICE(".run")) && index_run_fits(run->from, run->to);
}

static bool index_scan_is_summary(struct slice name, uint32_t *generation)
{
    return index_scan_take(&name, sum_prefix) && index_scan_ordinal(&name, generation) &&
           slice_eq(name, SLICE(".sum"));
}

/* Larger runs first, so that what they cover need not be read. */
static int index_scan_larger_first(const void *a, const void *b)
{
    const struct index_found *x = a;
    const struct index_found *y = b;
    uint32_t x_span = x->to - x->from;
    uint32_t y_span = y->to - y->from;

    if (x_span != y_span) {
        return x_span > y_span ? -1 : 1;
    }
    return x->from < y->from ? -1 : x->from > y->from;
}

static int index_scan_ascending(const void *a, const void *b)
{
    const struct index_run *const *x = a;
    const struct index_run *const *y = b;

    return (*x)->from < (*y)->from ? -1 : (*x)->from > (*y)->from;
}

/* Sorts the names: removes what cannot be used, notes the runs that may. */
static void index_scan_names(const char *dir, const struct buf *names, uint32_t count,
                             struct buf *found)
{
    for (size_t at = 0; at < names->len;) {
        struct slice name = slice_cstr(names->ptr + at);
        struct index_found run;
        uint32_t generation;

        if (index_scan_is_run(name, &run) && run.to < count) {
            buf_put(found, &run, sizeof run);
        } else if (!index_scan_is_summary(name, &generation) || generation >= count) {
            index_unlink(dir, name.ptr);
        }
        at += name.len + 1;
    }
}

/* Opens one run, or removes it. 1: *out is open. 0: not usable. ERR_NO_MEMORY. */
static int index_scan_open(const char *dir, const struct index_found *found,
                           const struct index_generation *closed, uint32_t count,
                           struct index_budget *budget, const bool *known, struct index_run **out,
                           struct err *e)
{
    char name[INDEX_NAME_MAX];
    int result;

    index_run_name(name, found->from, found->to);
    /* Spans nest, so whoever has the first generation has them all. */
    if (known[found->from]) {
        index_unlink(dir, name);
        return 0;
    }
    result = index_run_open(dir, found->from, found->to, closed, count, budget, out, e);
    if (result == 0) {
        return 1;
    }
    if (result == ERR_NO_MEMORY) {
        return result;
    }
    index_failed("use", name, e);
    if (result == ERR_CORRUPT) {
        index_unlink(dir, name);
    }
    return 0;
}

/* Opens all that can be used into runs, which has room. */
static int index_scan_runs(const char *dir, const struct index_found *found, size_t found_count,
                           const struct index_generation *closed, uint32_t count,
                           struct index_budget *budget, bool *known, struct index_run **runs,
                           uint32_t *run_count, struct err *e)
{
    for (size_t i = 0; i < found_count; i++) {
        struct index_run *run = NULL;
        int result = index_scan_open(dir, &found[i], closed, count, budget, known, &run, e);

        if (result < 0) {
            return result;
        }
        if (result > 0) {
            runs[*run_count] = run;
            *run_count += 1;
            for (uint32_t g = run->from; g <= run->to; g++) {
                known[g] = true;
            }
        }
    }
    return 0;
}

struct index_view *index_scan(const char *dir, const struct index_generation *closed,
                              uint32_t count, struct index_budget *budget, bool *known,
                              struct err *e)
{
    struct buf names = {0};
    struct buf found = {0};
    struct index_run **runs = NULL;
    struct index_found *sorted = NULL;
    struct index_view *view = NULL;
    uint32_t run_count = 0;
    size_t found_count;
    int result = os_list(dir, index_scan_name, &names);

    if (result != 0) {
        (void)err_os(e, result, "list", dir);
        goto out;
    }
    index_scan_names(dir, &names, count, &found);
    found_count = found.len / sizeof *sorted;
    sorted = calloc(found_count + 1, sizeof *sorted);
    runs = calloc(found_count + 1, sizeof(struct index_run *));
    if (found.failed || sorted == NULL || runs == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory to open %s", dir);
        goto out;
    }
    if (found_count > 0) {
        memcpy(sorted, found.ptr, found_count * sizeof *sorted);
    }
    qsort(sorted, found_count, sizeof *sorted, index_scan_larger_first);
    if (index_scan_runs(dir, sorted, found_count, closed, count, budget, known, runs, &run_count,
                        e) != 0) {
        goto out;
    }
    qsort(runs, run_count, sizeof(struct index_run *), index_scan_ascending);
    view = index_view_make(runs, run_count);
    if (view == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory to open %s", dir);
    }
out:
    for (uint32_t i = 0; i < run_count; i++) {
        index_run_release(runs[i]);
    }
    free(runs);
    free(sorted);
    buf_free(&found);
    buf_free(&names);
    return view;
}

int index_forget(const char *dir, struct err *e)
{
    struct buf names = {0};
    int result = os_list(dir, index_scan_name, &names);

    for (size_t at = 0; at < names.len; at += strlen(names.ptr + at) + 1) {
        index_unlink(dir, names.ptr + at);
    }
    buf_free(&names);
    return result == 0 || result == -ENOENT ? 0 : err_os(e, result, "list", dir);
}
