/* template: texts with placeholders for where a package goes and what it is called there
 * (spec/artifacts.md section 10 and the decisions).
 *
 * Only what is the same after a rebuilt database may be named: project, object id, package id, the
 * declared file name made safe, the time of acceptance. Pure; no allocation but the buffer's. */
#ifndef STORE_ARTIFACT_TEMPLATE_H
#define STORE_ARTIFACT_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* X(symbol, the name between two braces each side) */
#define TEMPLATE_NAMES(X)                   \
    X(PROJECT, "PROJECT")                   \
    X(OBJECT_ID, "OBJECT_ID")               \
    X(PACKAGE_ID, "PACKAGE_ID")             \
    X(PACKAGE_ID_SHORT, "PACKAGE_ID_SHORT") \
    X(FILENAME, "FILENAME")                 \
    X(PACKAGE_FILENAME, "PACKAGE_FILENAME") \
    X(DATE, "DATE")

enum template_name {
#define X(sym, text) TEMPLATE_##sym,
    TEMPLATE_NAMES(X)
#undef X
        TEMPLATE_COUNT
};

#define TEMPLATE_SHORT_LEN 24 /* of a package id */
#define TEMPLATE_DATE_LEN  14 /* YYYYMMDDhhmmss */

struct template_values {
    struct slice value[TEMPLATE_COUNT];
};

/* Appends text with its placeholders replaced: one pass from left to right, what was put in is not
 * looked at again, an unknown placeholder stays as it is. */
void template_expand(struct slice text, const struct template_values *v, struct buf *out);
/* A bit (1 << template_name) for each placeholder in it. */
unsigned template_uses(struct slice text);
/* True when every "{{" in it begins a placeholder; else *bad is where it does not, up to and with
 * the next "}}". */
bool template_known(struct slice text, struct slice *bad);
/* Seconds of Unix time as YYYYMMDDhhmmss in UTC. False: before 1970 or after the year 9999. */
bool template_date(int64_t seconds, char out[TEMPLATE_DATE_LEN + 1]);

#endif
