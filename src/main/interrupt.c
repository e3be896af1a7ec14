/* Why a handler and not a signalfd: libcurl waits on its own, and is asked to stop by a callback
 * that looks at the flag about once a second. The pause is cut into short ones for the same reason.
 */
#include "main/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/ensure.h"
#include "main/pause.h"

#define STEP_MS 50

static atomic_bool came;

static void remember(int number)
{
    (void)number;
    atomic_store(&came, true);
}

void interrupt_catch(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    /* Without SA_RESTART nothing of ours would change: os/ repeats what EINTR cut. */
    const struct sigaction action = {.sa_handler = remember,
                                     .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        ensure(sigaction(numbers[i], NULL, &before) == 0);
        if (before.sa_handler != SIG_IGN) {
            ensure(sigaction(numbers[i], &action, NULL) == 0);
        }
    }
}

bool interrupt_came(void)
{
    return atomic_load(&came);
}

bool interrupt_pause_ms(uint64_t ms)
{
    while (ms > 0 && !interrupt_came()) {
        uint64_t step = ms < STEP_MS ? ms : STEP_MS;
        pause_ms(step);
        ms -= step;
    }
    return !interrupt_came();
}
