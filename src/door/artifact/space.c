/* space: the gate in front of creations and appends (artifacts.md 4.2, step 2).
 *
 * It looks once, when a request begins; it is no reservation, and what is under way goes on. Equal
 * to the bound is fine. statfs tells what the kernel has in memory, so that the loop may ask. */
#include <stdio.h>

#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

#define DEFAULT_BYTES (UINT64_C(10) << 30)
#define DEFAULT_PART  20 /* of the file system: 5 % */

static int bound(const struct artifact *a, uint64_t *bytes)
{
    *bytes = a->options.min_free_bytes;
    if (*bytes != 0) {
        return 0;
    }
    int r = os_disk_size(a->options.data, bytes);
    if (r == 0) {
        *bytes /= DEFAULT_PART;
        *bytes = *bytes < DEFAULT_BYTES ? *bytes : DEFAULT_BYTES;
    }
    return r;
}

/* 0, ERR_LOW_SPACE, or the negative errno of statfs as ERR_IO. */
static int look(struct artifact *a, uint64_t *least, struct err *e)
{
    uint64_t bytes = 0;
    int r = bound(a, least);
    if (r == 0) {
        r = os_free_space(a->options.data, &bytes);
    }
    if (r != 0) {
        (void)err_os(e, r, "statfs", a->options.data);
        return ERR_IO;
    }
    bool low = bytes < *least;
    if (atomic_exchange(&a->low_space, low) != low) {
        log_line(low ? LOG_WARN : LOG_INFO, "artifact",
                 low ? "less than %llu bytes are free: uploads are refused"
                     : "at least %llu bytes are free: uploads are taken again",
                 (unsigned long long)*least);
    }
    return low ? ERR_LOW_SPACE : 0;
}

void space_look(struct artifact *a)
{
    struct err e = {0};
    uint64_t least;
    if (look(a, &least, &e) == ERR_IO) {
        log_line(LOG_WARN, "artifact", "free space: %s", e.text);
    }
}

int space_check(struct artifact *a, struct outcome *out)
{
    struct err e = {0};
    uint64_t least = 0;
    int r = look(a, &least, &e);
    if (r == 0) {
        return 0;
    }
    metric_add(METRIC_ARTIFACT_LOW_SPACE, 1);
    out->retry_after_s = LOW_SPACE_RETRY_S;
    if (r == ERR_IO) {
        log_line(LOG_ERROR, "artifact", "free space: %s", e.text);
        out->status = 503;
        outcome_fail(out, ERR_LOW_SPACE, "the free space of this server cannot be read");
        return ERR_LOW_SPACE;
    }
    out->status = a->options.low_space_status;
    outcome_fail(out, ERR_LOW_SPACE, "this server has too little free space for uploads now");
    return ERR_LOW_SPACE;
}
