/* deliver_merge: the packages of projects that merge: those that are on the disk already, at the
 * start, and new ones of what waits.
 *
 * At the start, after the proofs and before the receipts: each PACKAGE.plan.json that the index
 * does not know is read. One of a merged package takes its members, and its build finds it made: so
 * what may have been sent is not packed again under another name, though delivery.sqlite is lost.
 * One that is damaged is logged, and its files stay; which members it had is not known any more.
 * One that cannot be read now ends the process: its members must not be packed again meanwhile.
 *
 * New ones: the project's settings are read for each choice, since they may have changed; what
 * cannot be read now is read again in CHOOSE_EVERY_NS. A project whose packager is identity again
 * gets its artifacts packed one by one.
 *
 * Power failure: transactions of the index; delivery_merge.c says what they leave. Answers: the
 * index's errors. */
#include <inttypes.h>

#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"
#include "store/artifact/package_load.h"

#define CHOOSE_EVERY_NS (UINT64_C(3) * 1000000000) /* settings may have changed */
#define WARN_EVERY_NS   (UINT64_C(600) * 1000000000)
#define CHOICES_MAX     16u /* of one project and turn: results come between */

/* ---- those that are there ---- */

struct plans {
    struct deliver *d;
    struct err *e;
    uint64_t added;
};

/* Read again, it would be no other. */
static bool is_damage(int r)
{
    return r == ERR_CORRUPT || r == ERR_REFUSED || r == ERR_UNSUPPORTED;
}

static int restore(struct plans *p, const char *package_id)
{
    static struct delivery_plan plan; /* large; this is the loop's thread, before any other */
    struct delivery_members members;
    struct err why = {0};
    char shown[DELIVER_SHOWN_MAX];
    int r = package_load(p->d->options->data, package_id, &plan, &members, &why);

    if (r == ERR_NOT_FOUND) {
        return 0; /* an identity package is added with its receipt */
    }
    if (r == 0) {
        r = delivery_index_restore(p->d->index, &plan, &members, deliver_now_ms(), p->e);
        delivery_members_free(&members);
        if (r != ERR_REFUSED) {
            p->added += r == 0;
            return r;
        }
        why = *p->e;
        p->e->code = 0; /* deliver_plans() */
    }
    deliver_shown(shown, why.text);
    if (!is_damage(r)) {
        return err_set(p->e, r, DELIVERY_PACKAGES "/%.*s... cannot be read: %s", DELIVER_SHORT_ID,
                       package_id, shown);
    }
    log_line(LOG_ERROR, "deliver", DELIVERY_PACKAGES "/%.*s... is not believed: %s",
             DELIVER_SHORT_ID, package_id, shown);
    return 0;
}

static int each_plan(void *ctx, const char *name)
{
    struct plans *p = ctx;
    char id[DELIVERY_PACKAGE_LEN + 1];
    bool known = false;
    int r;

    if (!package_plan_name(name, id)) {
        return 0;
    }
    r = delivery_index_has_package(p->d->index, id, &known, p->e);
    if (r == 0 && !known) {
        r = restore(p, id);
    }
    return r < 0 ? r : deliver_stopping(p->d) ? 1 : 0;
}

int deliver_plans(struct deliver *d, struct err *e)
{
    struct plans p = {.d = d, .e = e};
    char path[DELIVER_PATH_BYTES];
    int r = delivery_index_begin(d->index, e);

    if (r < 0) {
        return r;
    }
    deliver_path(d, path, DELIVERY_PACKAGES);
    e->code = 0; /* each_plan() sets it; where the listing itself fails it stays 0 */
    r = os_list(path, each_plan, &p);
    if (r < 0 && e->code == 0) {
        r = err_os(e, r, "list", path);
    }
    if (r >= 0) {
        r = delivery_index_commit(d->index, e);
    }
    if (r < 0) {
        delivery_index_undo(d->index);
    } else if (p.added > 0) {
        log_line(LOG_INFO, "deliver", "%" PRIu64 " merged packages are known from their plans",
                 p.added);
    }
    return r;
}

/* ---- new ones ---- */

int deliver_merge_rule(const struct deliver *d, const char *project,
                       struct delivery_merge_rule *out, struct err *e)
{
    struct artifact_sink to;
    int r = artifact_sink_read(d->options->data, slice_cstr(project), &to, e);

    *out = (struct delivery_merge_rule){0};
    if (r == 0 && strcmp(to.packager, DELIVERY_MERGEWARC) == 0) {
        out->target = to.package_target;
        out->trigger = to.package_trigger;
        out->max_wait_ms = to.package_max_wait_ms;
    }
    return r;
}

static void warn(struct deliver *d, const char *project, const struct err *why)
{
    uint64_t now_ns = os_clock_mono_ns();
    char shown[DELIVER_SHOWN_MAX];

    if (d->choose_warned_ns == 0 || now_ns - d->choose_warned_ns >= WARN_EVERY_NS) {
        d->choose_warned_ns = now_ns;
        deliver_shown(shown, why->text);
        log_line(LOG_WARN, "deliver", "project %s: what waits is not packaged now: %s", project,
                 shown);
    }
}

static int choose_of(struct deliver *d, const char *project, int64_t *due_ms, struct err *e)
{
    struct delivery_merge_rule rule;
    struct err why = {0};
    unsigned made = 1;
    int r = deliver_merge_rule(d, project, &rule, &why);

    *due_ms = INT64_MAX;
    if (r < 0) {
        warn(d, project, &why);
        return 0;
    }
    for (unsigned i = 0; r == 0 && made > 0 && i < CHOICES_MAX; i++) {
        r = delivery_index_choose(d->index, project, &rule, deliver_now_ms(), &made, due_ms, e);
        if (r == 0 && made > 0) {
            d->news = true;
            log_line(LOG_INFO, "deliver", "project %s: %u new packages are to be built", project,
                     made);
        }
    }
    return r;
}

int deliver_choose(struct deliver *d, struct err *e)
{
    char project[UPLOAD_PROJECT_MAX + 1] = "";
    uint64_t now_ns = os_clock_mono_ns();
    int64_t due_ms, first_ms = INT64_MAX;
    int r;

    if (!d->choose_now && now_ns < d->choose_due_ns && deliver_now_ms() < d->choose_due_ms) {
        return 0;
    }
    d->choose_now = false;
    d->choose_due_ns = UINT64_MAX;
    r = delivery_index_waiting(d->index, project, project, e);
    while (r == 0 && project[0] != '\0' && !deliver_stopping(d)) {
        d->choose_due_ns = now_ns + CHOOSE_EVERY_NS;
        r = choose_of(d, project, &due_ms, e);
        first_ms = due_ms < first_ms ? due_ms : first_ms;
        if (r == 0) {
            r = delivery_index_waiting(d->index, project, project, e);
        }
    }
    d->choose_due_ms = first_ms;
    return r;
}
