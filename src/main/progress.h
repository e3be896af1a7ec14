/* progress: one line on standard error that is redrawn while long work runs. Only on a terminal,
 * only after half a second, at most ten times a second; erased at the end. */
#ifndef MAIN_PROGRESS_H
#define MAIN_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum progress_unit { PROGRESS_BYTES, PROGRESS_EVENTS };

struct progress {
    const char *label;
    enum progress_unit unit;
    uint64_t total; /* 0: not known */
    uint64_t base;  /* done before the start: not part of the rate */
    bool time_left; /* shown behind the rate */
    uint64_t start_ns, drawn_ns;
    bool enabled;
};

/* Enabled when standard error is a terminal and standard output is none (lines printed there show
 * progress by themselves). */
void progress_start(struct progress *p, const char *label, enum progress_unit unit, uint64_t total);
/* For work in bytes that prints nothing while it runs: enabled also when standard output is the
 * same terminal, and with the time that is left. base bytes are done already. */
void progress_start_silent(struct progress *p, const char *label, uint64_t total, uint64_t base);
void progress_update(struct progress *p, uint64_t done);
/* Erases the line. */
void progress_end(void);

/* The text of the line, without control sequences; at most size - 1 characters. elapsed_ms must not
 * be 0. */
void progress_text(const struct progress *p, uint64_t done, uint64_t elapsed_ms, char *out,
                   size_t size);

#endif
