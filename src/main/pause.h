/* pause: sleeping, on the monotonic clock. */
#ifndef MAIN_PAUSE_H
#define MAIN_PAUSE_H

#include <stdint.h>

/* Blocks for at least ms milliseconds; a signal does not shorten it. */
void pause_ms(uint64_t ms);

#endif
