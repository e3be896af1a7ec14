/* backup: the proof of a copy: what `tallyman verify` does, on a directory that nobody works on.
 *
 * So it is complete, never cut short, and whatever is wrong is an error: a backup that does not
 * verify is not committed, and a restore that does not is not taken into service. */
#include <stdio.h>
#include <string.h>

#include "journal/verify.h"
#include "main/backup.h"
#include "main/progress.h"
#include "store/artifact/verify.h"
#include "store/verify.h"

/* The first violation, and how many. */
struct proof {
    struct progress progress;
    char first[200];
};

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct proof *p = ctx;
    p->progress.total = total;
    progress_update(&p->progress, done);
}

static void on_violation(void *ctx, const char *text)
{
    struct proof *p = ctx;
    if (p->first[0] == '\0') {
        (void)snprintf(p->first, sizeof p->first, "%s", text);
    }
}

static void on_remnant(void *ctx, const char *name)
{
    (void)ctx;
    (void)name;
}

static int prove_journal(const char *data, struct proof *p, struct backup_about *about,
                         struct err *e)
{
    struct verify_report report;
    progress_start(&p->progress, "verify", PROGRESS_BYTES, 0);
    int r = verify_journal(data, on_progress, p, &report, e);
    if (r != 0) {
        return r;
    }
    if (!report.ok) {
        r = err_set(e, ERR_CORRUPT, "%s: %.200s", report.fault_file, report.fault_text);
    }
    about->empty = report.empty;
    about->last_id = report.last_id;
    about->events = report.events_checked;
    memcpy(about->head, report.head, sizeof about->head);
    verify_report_free(&report);
    return r;
}

static int prove_queue(const char *data, struct proof *p, struct err *e)
{
    struct store_verify_result result;
    int r = store_verify(data, on_violation, p, &result, e);
    return r == 0 && result.violations > 0
               ? err_set(e, ERR_CORRUPT, "%s: %.200s", STORE_FILE, p->first)
               : r;
}

static int prove_artifacts(const char *data, struct proof *p, struct err *e)
{
    struct artifact_verify_result result;
    const struct artifact_verify_hooks hooks = {on_violation, on_remnant, on_progress, p};
    progress_start(&p->progress, "verify artifacts", PROGRESS_BYTES, 0);
    int r = artifact_verify(data, &hooks, &result, e);
    return r == 0 && result.violations > 0 ? err_set(e, ERR_CORRUPT, "artifacts: %.200s", p->first)
                                           : r;
}

int backup_prove(const char *data, struct backup_about *about, struct err *e)
{
    struct proof p = {0};
    int r = prove_journal(data, &p, about, e);
    if (r == 0) {
        r = prove_queue(data, &p, e);
    }
    if (r == 0) {
        r = prove_artifacts(data, &p, e);
    }
    progress_end();
    if (r != 0) {
        struct err why = *e;
        r = err_set(e, r, "the copy does not verify: %.260s", why.text);
    }
    return r;
}
