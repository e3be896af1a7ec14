/* The values and their Prometheus text. */
#include "base/metrics.h"

_Atomic uint64_t metrics_value[METRIC_COUNT];

void metrics_text(struct buf *out)
{
    static const struct {
        const char *name, *type, *help;
    } rows[METRIC_COUNT] = {
#define X(sym, name, type, help) {name, type, help},
        METRICS_TABLE(X)
#undef X
    };
    for (int i = 0; i < METRIC_COUNT; i++) {
        buf_put_cstr(out, "# HELP ");
        buf_put_cstr(out, rows[i].name);
        buf_put_char(out, ' ');
        buf_put_cstr(out, rows[i].help);
        buf_put_cstr(out, "\n# TYPE ");
        buf_put_cstr(out, rows[i].name);
        buf_put_char(out, ' ');
        buf_put_cstr(out, rows[i].type);
        buf_put_char(out, '\n');
        buf_put_cstr(out, rows[i].name);
        buf_put_char(out, ' ');
        buf_put_u64(out, metric_get((enum metric)i));
        buf_put_char(out, '\n');
    }
}
