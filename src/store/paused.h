/* paused: DATA/paused, the durable word that nothing leaves for a destination (docs/OPERATING.md).
 *
 * While the file is there the sink sends nothing and `tallyman deliver` neither, whoever runs and
 * however often it is started; intake goes on. A file that cannot be read or understood pauses as
 * well. */
#ifndef STORE_PAUSED_H
#define STORE_PAUSED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

#define PAUSED_FILE       "paused"
#define PAUSED_REASON_MAX 300 /* bytes of a reason */

struct paused {
    bool on;
    char reason[PAUSED_REASON_MAX + 1];
    uint64_t since_ms; /* Unix time; 0: not known */
};

/* Any thread, any process; blocks. Fails closed: what cannot be read is on, and says so. */
void paused_read(const char *data, struct paused *out);
/* Durable when it returns: temporary file, sync, rename, sync of the directory. The reason is cut
 * to fit. *out (may be NULL) is what was written. ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY. */
int paused_write(const char *data, struct slice reason, struct paused *out,
                 struct err *e) MUST_CHECK;
/* Durable when it returns; 0 also when there was none. ERR_IO. */
int paused_remove(const char *data, struct err *e) MUST_CHECK;
/* Appends the JSON object {"paused":true,"reason":"...","since":"..."} or {"paused":false}. */
struct buf;
void paused_put_json(struct buf *b, const struct paused *p);

#endif
