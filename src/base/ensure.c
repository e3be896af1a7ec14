/* The end of a process that found itself wrong. No allocation, no lock: only a line and a core. */
#include "base/ensure.h"

#include <stdio.h>
#include <stdlib.h>

void ensure_failed(const char *what, const char *file, int line)
{
    (void)fprintf(stderr, "tallyman: bug: ensure(%s) failed at %s:%d\n", what, file, line);
    abort();
}
