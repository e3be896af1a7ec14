/* Time comes from the monotonic clock, so a stepped clock (case L55) cannot freeze or flood the
 * terminal. */
#include "main/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/ensure.h"
#include "main/output.h"
#include "os/os.h"

#define SHOW_AFTER_NS UINT64_C(500000000)
#define REDRAW_NS     UINT64_C(100000000)
#define BAR_WIDTH     24

void progress_start(struct progress *p, const char *label, enum progress_unit unit, uint64_t total)
{
    *p = (struct progress){.label = label,
                           .unit = unit,
                           .total = total,
                           .start_ns = os_clock_mono_ns(),
                           .enabled = output_is_terminal(STDERR_FILENO) &&
                                      !output_is_terminal(STDOUT_FILENO)};
}

void progress_start_silent(struct progress *p, const char *label, uint64_t total, uint64_t base)
{
    *p = (struct progress){.label = label,
                           .unit = PROGRESS_BYTES,
                           .total = total,
                           .base = base,
                           .time_left = true,
                           .start_ns = os_clock_mono_ns(),
                           .enabled = output_is_terminal(STDERR_FILENO)};
}

static void put_amount(enum progress_unit unit, double v, char *out, size_t size)
{
    static const char *const bytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    if (unit == PROGRESS_EVENTS) {
        (void)snprintf(out, size, "%.0f events", v);
        return;
    }
    size_t i = 0;
    while (v >= 1024 && i + 1 < sizeof bytes / sizeof *bytes) {
        v /= 1024;
        i++;
    }
    (void)snprintf(out, size, i == 0 ? "%.0f %s" : "%.1f %s", v, bytes[i]);
}

/* ", 1:05 left"; "" while nothing can be said. */
static void put_time_left(const struct progress *p, uint64_t done, uint64_t elapsed_ms, char *out,
                          size_t size)
{
    out[0] = '\0';
    if (!p->time_left || done <= p->base || done >= p->total) {
        return;
    }
    double left_s =
        (double)(p->total - done) * (double)elapsed_ms / 1000 / (double)(done - p->base);
    if (left_s >= 360000) {
        return; /* a hundred hours: it stands still */
    }
    unsigned s = (unsigned)left_s + 1;
    if (s >= 3600) {
        (void)snprintf(out, size, ", %u:%02u:%02u left", s / 3600, s / 60 % 60, s % 60);
    } else {
        (void)snprintf(out, size, ", %u:%02u left", s / 60, s % 60);
    }
}

void progress_text(const struct progress *p, uint64_t done, uint64_t elapsed_ms, char *out,
                   size_t size)
{
    char amount[40];
    char rate[40];
    char left[40];
    uint64_t moved = done > p->base ? done - p->base : 0;
    ensure(elapsed_ms > 0);
    put_amount(p->unit, (double)done, amount, sizeof amount);
    put_amount(p->unit, (double)moved * 1000 / (double)elapsed_ms, rate, sizeof rate);
    put_time_left(p, done, elapsed_ms, left, sizeof left);
    if (p->total == 0) {
        (void)snprintf(out, size, "%s %s, %s/s", p->label, amount, rate);
        return;
    }
    /* A file may grow while it is read. */
    double part = done >= p->total ? 1 : (double)done / (double)p->total;
    char bar[BAR_WIDTH + 1];
    for (int i = 0; i < BAR_WIDTH; i++) {
        bar[i] = i < (int)(part * BAR_WIDTH) ? '#' : '.';
    }
    bar[BAR_WIDTH] = '\0';
    (void)snprintf(out, size, "%s [%s] %3.0f%% %s, %s/s%s", p->label, bar, part * 100, amount, rate,
                   left);
}

void progress_update(struct progress *p, uint64_t done)
{
    if (!p->enabled) {
        return;
    }
    uint64_t now_ns = os_clock_mono_ns();
    if (now_ns - p->start_ns < SHOW_AFTER_NS || now_ns - p->drawn_ns < REDRAW_NS) {
        return;
    }
    char text[160];
    progress_text(p, done, (now_ns - p->start_ns) / 1000000, text, sizeof text);
    output_progress(slice_cstr(text));
    p->drawn_ns = now_ns;
}

void progress_end(void)
{
    output_progress(SLICE(""));
}
