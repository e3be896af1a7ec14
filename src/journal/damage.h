/* damage: is what lies behind the last proven batch of a tail a torn group, or damage?
 * (ARCHITECTURE 2.2)
 *
 * Every group is synced before the next one is written, so at most one group, the last, can be
 * torn. Damage is proven when behind the first invalid byte there is
 *   - a proven batch whose group is later than the next one, or of another journal's tag,
 *   - a proven batch of the next group with index 0 (the invalid bytes before it then belong to a
 * group that was complete),
 *   - proven batches of two different groups,
 *   - a proven batch of a group older than the last one before the invalid bytes.
 * Everything here reads only. Blocks. ERR_NOT_READY: the file became shorter meanwhile (a server
 * beside us trimmed it in a rotation): look again. */
#ifndef JOURNAL_DAMAGE_H
#define JOURNAL_DAMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "base/uuid.h"

/* *end: position behind the last byte that is not zero in [from, size); from when there is none. */
int damage_data_end(int fd, uint64_t from, uint64_t size, uint64_t *end, struct err *e) MUST_CHECK;
/* Bytes [from, to) of the file in memory of the caller's (free). At most 1 GiB, else ERR_CORRUPT.
 */
int damage_read(int fd, uint64_t from, uint64_t to, char **out, struct err *e) MUST_CHECK;
/* region: the file's bytes from `bad`, the first invalid one, to the end of the data. last: id of
 * the last proven event, or NULL. */
int damage_find(int fd, uint64_t bad, struct slice region, const struct uuid *last, bool *damaged,
                struct err *e) MUST_CHECK;

#endif
