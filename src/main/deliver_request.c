/* deliver_request: what people ask for, as files in requests/ (store/artifact/request.h).
 *
 * A file is removed when what it asks for is a synced row. If power fails in between, or takes the
 * removal back, it is done once more: the package is due at once a second time, and a try that
 * finds everything there does nothing.
 *
 * Names that ask for nothing, and ids that the index does not have, are removed with a line in the
 * log, so that the folder stays small. Temporary names are the server's; one that is an hour old is
 * of a crash.
 *
 * Answers: the index's errors. A folder that cannot be read is a warning, and read again later. */
#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"
#include "store/artifact/request.h"

#include <stdio.h>

#define EVERY_NS           (UINT64_C(60) * 1000000000) /* in case an event was lost */
#define EVERY_UNWATCHED_NS (UINT64_C(5) * 1000000000)
#define TEMP_MS            UINT64_C(3600000)

struct asking {
    struct deliver *d;
    struct err *e;
    int r;
};

static void path_of(const struct deliver *d, char path[DELIVER_PATH_BYTES], const char *name)
{
    char below[300];
    int n = snprintf(below, sizeof below, REQUESTS_FOLDER "/%s", name);

    ensure(n > 0);
    ensure((size_t)n < sizeof below); /* a name has at most 255 bytes */
    deliver_path(d, path, below);
}

static void clean(const struct deliver *d, const char *name)
{
    char path[DELIVER_PATH_BYTES];
    struct os_stat st;

    path_of(d, path, name);
    if (os_stat(path, &st) == 0 && st.mtime_ms + TEMP_MS < os_clock_real_ms()) {
        (void)os_unlink(path);
    }
}

static int act(struct asking *a, const struct request *request)
{
    bool found = false;
    int r = 0;

    switch (request->kind) {
    case REQUEST_RETRY:
        r = delivery_index_ask(a->d->index, request->object_id, deliver_now_ms(), &found, a->e);
        break;
    case REQUEST_IDENTITY:
        r = delivery_index_identity(a->d->index, a->d->options->data, request->object_id,
                                    deliver_now_ms(), &found, a->e);
        break;
    case REQUEST_KIND_COUNT:
        break;
    }
    if (r == 0) {
        a->d->news = true;
        a->d->choose_now = true;
        if (request->kind == REQUEST_IDENTITY && !found) {
            log_line(LOG_WARN, "deliver",
                     "%.*s was asked for as an identity package, and is none that waits or is "
                     "parked by another packager",
                     DELIVER_SHORT_ID, request->object_id);
            return 0;
        }
        log_line(found ? LOG_INFO : LOG_WARN, "deliver",
                 found ? "%.*s is due now: somebody asked for it"
                       : "%.*s was asked for, and is not known here",
                 DELIVER_SHORT_ID, request->object_id);
    }
    return r;
}

static int each(void *ctx, const char *name)
{
    struct asking *a = ctx;
    struct request request;
    char path[DELIVER_PATH_BYTES], shown[DELIVER_SHOWN_MAX];

    if (name[0] == '.') {
        clean(a->d, name);
        return 0;
    }
    if (request_parse(name, &request)) {
        a->r = act(a, &request);
    } else {
        deliver_shown(shown, name);
        log_line(LOG_WARN, "deliver", REQUESTS_FOLDER "/%s asks for nothing that is known here",
                 shown);
    }
    if (a->r == 0) {
        path_of(a->d, path, name);
        (void)os_unlink(path); /* what stays is done once more */
    }
    return a->r < 0 ? 1 : 0;
}

/* True: something may have come. */
static bool events(struct deliver *d)
{
    _Alignas(8) char taken[4096];
    bool any = false;

    while (d->request_fd >= 0 && os_read(d->request_fd, taken, sizeof taken) > 0) {
        any = true;
    }
    return any;
}

int deliver_requests(struct deliver *d, struct err *e)
{
    struct asking a = {.d = d, .e = e};
    char path[DELIVER_PATH_BYTES];
    uint64_t now_ns = os_clock_mono_ns();
    int r;

    if (!events(d) && now_ns < d->request_due_ns) {
        return 0;
    }
    d->request_due_ns = now_ns + (d->request_fd >= 0 ? EVERY_NS : EVERY_UNWATCHED_NS);
    deliver_path(d, path, REQUESTS_FOLDER);
    r = os_list(path, each, &a);
    if (r < 0) {
        struct err why = {0};
        (void)err_os(&why, r, "list", path);
        log_line(LOG_WARN, "deliver", "%s", why.text);
    }
    return a.r;
}
