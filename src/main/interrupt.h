/* interrupt: SIGINT, SIGTERM and SIGHUP for verbs that have something to put away before they end.
 *
 * The first signal is only remembered, a second one ends the process as it always does. */
#ifndef MAIN_INTERRUPT_H
#define MAIN_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

/* From now on signals are remembered. A signal that the parent had ignored (nohup) stays ignored.
 */
void interrupt_catch(void);
bool interrupt_came(void);
/* Sleeps ms milliseconds; returns early, and false, when a signal has come. */
bool interrupt_pause_ms(uint64_t ms);

#endif
