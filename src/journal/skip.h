/* skip: which closed generations a filtered reading need not look at. */
#ifndef JOURNAL_SKIP_H
#define JOURNAL_SKIP_H

#include <stdbool.h>
#include <stdint.h>

#include "journal/read.h"

/* True: no event of generation n passes the filter; certain. False: read it. Costs nothing without
 * a filter, else one or two small reads. Any thread; blocks. */
bool journal_skips(struct journal *j, uint32_t n, const struct journal_filter *f);

#endif
