/* A line is formatted on the stack and handed to stdio whole, so lines of threads never mix.
 * Control characters are replaced: a stranger's bytes cannot forge a line. Wall time only labels
 * the line. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "base/timefmt.h"

static _Atomic int threshold = LOG_INFO;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_set_level(enum log_level level)
{
    atomic_store(&threshold, (int)level);
}

void log_line(enum log_level level, const char *module, const char *fmt, ...)
{
    if ((int)level < atomic_load(&threshold)) {
        return;
    }
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    char stamp[TIMEFMT_MS_LEN + 1];
    timefmt_ms(stamp, (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000);
    (void)fprintf(stderr, "%s %s %s: %s\n", stamp, level_names[level], module, text);
}
