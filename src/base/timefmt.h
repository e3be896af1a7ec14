/* timefmt: the two spellings of time in the history contract (spec/history.md section 4), and the
 * calendar. */
#ifndef BASE_TIMEFMT_H
#define BASE_TIMEFMT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

#define TIMEFMT_MS_LEN 24                        /* YYYY-MM-DDTHH:MM:SS.dddZ */
#define TIMEFMT_MS_END UINT64_C(253402300800000) /* 10000-01-01 */

/* Writes 24 characters and a NUL. ms since 1970, up to the end of year 9999 (ensured). */
void timefmt_ms(char out[TIMEFMT_MS_LEN + 1], uint64_t ms);
/* Reads exactly that form back; false for anything else. */
bool timefmt_parse_ms(struct slice s, uint64_t *ms);
/* Days from 1970-01-01 to a date of the years 0 to 9999 (negative before it); false when the
 * calendar has no such date. */
bool timefmt_days(unsigned year, unsigned month, unsigned day, int64_t *days);
/* True for YYYY-MM-DDTHH:MM:SS[.d{1,9}]Z naming a real UTC calendar instant without leap second. */
bool timefmt_valid_occurred_at(struct slice s);

#endif
