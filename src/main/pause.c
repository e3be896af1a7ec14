/* An epoll set without members is the sleep that the os table already has. Wall-clock steps do not
 * matter (case L55). */
#include "main/pause.h"

#include "os/os.h"

void pause_ms(uint64_t ms)
{
    uint64_t end_ns = os_clock_mono_ns() + ms * 1000000;
    int ep = os_epoll_create();
    if (ep < 0) {
        return; /* no descriptor left: a retry that comes too soon is the smaller harm */
    }
    for (;;) {
        uint64_t now_ns = os_clock_mono_ns();
        if (now_ns >= end_ns) {
            break;
        }
        uint64_t left_ms = (end_ns - now_ns + 999999) / 1000000;
        struct epoll_event unused;
        if (os_epoll_wait(ep, &unused, 1, left_ms > 60000 ? 60000 : (int)left_ms) < 0) {
            break;
        }
    }
    (void)os_close(ep);
}
