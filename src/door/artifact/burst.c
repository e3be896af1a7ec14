/* burst: a sign that a proxy holds back whole requests (cases T20).
 *
 * nginx, unless it is told otherwise, takes all of a request before it passes on a byte. What a
 * client had sent when its line broke is then lost, and it begins again where it was: a large file
 * over a bad line never arrives. We cannot see what a proxy does not pass on. But when it does, all
 * of it is there at once: of the first BURST_BYTES of a body next to nothing was waited for, which
 * no line between here and a client's home does. Looked at are requests that bear the traces of a
 * proxy, so that a client beside us on a fast network is not meant. It is a hint, and worded as
 * one: a proxy that is innocent may have a client as fast.
 *
 * Nothing is answered or refused because of it. The line in the log comes once in TELL_MS. */
#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

#define BURST_BYTES (UINT64_C(16) << 20)
#define BURST_NS    UINT64_C(25000000) /* 640 MiB a second, were it nothing but waiting */
#define TELL_MS     UINT64_C(600000)

static void tell(struct op *op)
{
    uint64_t now_ms = os_clock_mono_ns() / 1000000 + 1;
    uint64_t told_ms = atomic_load(&op->a->burst_told_ms);
    metric_add(METRIC_ARTIFACT_BURSTS, 1);
    if ((told_ms == 0 || now_ms - told_ms >= TELL_MS) &&
        atomic_compare_exchange_strong(&op->a->burst_told_ms, &told_ms, now_ms)) {
        log_line(LOG_WARN, "artifact",
                 "upload %.8s: %llu MiB came through a proxy in one burst; if it holds back whole "
                 "requests (nginx does unless proxy_request_buffering is off), clients whose line "
                 "breaks begin again where they were: see examples/nginx.conf",
                 op->holder.id, (unsigned long long)(BURST_BYTES >> 20));
    }
}

void burst_note(struct op *op, struct burst *b, uint64_t n, uint64_t waited_ns)
{
    if (b->bytes >= BURST_BYTES) {
        return;
    }
    b->bytes += n;
    b->waited_ns += waited_ns;
    if (b->bytes >= BURST_BYTES && b->waited_ns < BURST_NS) {
        tell(op);
    }
}
