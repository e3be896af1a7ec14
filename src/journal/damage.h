/* damage: is what lies behind the last proven batch of a tail a torn group, or damage?
 * (ARCHITECTURE 2.2)
 *
 * Ours: every group is synced before the next one is written, so at most one group, the last, can
 * be torn, and a tail that was closed cleanly (no zero at its end) has none. Damage is proven when
 * behind the first invalid byte there is
 *   - a proven batch whose group is later than the next one, or of another journal's tag,
 *   - a proven batch of the next group with index 0 (the invalid bytes before it then belong to a
 * group that was complete),
 *   - proven batches of two different groups,
 *   - a proven batch of a group older than the last one before the invalid bytes.
 *
 * Another program's (spec/history.md section 11): its ids prove nothing, and its tails have no
 * zeros at their end. One batch is synced before the next, so what may be torn is the beginning of
 * one batch: lines of one frame, fewer than its batch_len, and of the next one a part. Everything
 * else is damage; so is a batch that is whole but for its batch_len or its last byte.
 *
 * Whose the invalid bytes are is said by the id of their first line, where it can be read; else
 * they are ours in a tail with zeros at its end, and in others of whom the log before was.
 *
 * Everything here reads only. Blocks. ERR_NOT_READY: the file became shorter meanwhile (a server
 * beside us trimmed it in a rotation): look again. */
#ifndef JOURNAL_DAMAGE_H
#define JOURNAL_DAMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "journal/origin.h"

/* *end: position behind the last byte that is not zero in [from, size); from when there is none. */
int damage_data_end(int fd, uint64_t from, uint64_t size, uint64_t *end, struct err *e) MUST_CHECK;
/* Bytes [from, to) of the file in memory of the caller's (free). At most 1 GiB, else ERR_CORRUPT.
 */
int damage_read(int fd, uint64_t from, uint64_t to, char **out, struct err *e) MUST_CHECK;
/* What is known of the tail before the invalid bytes. */
struct damage_past {
    const struct uuid *last; /* id of the last proven event, or NULL */
    enum origin origin;      /* whose that stretch is */
    bool closed;             /* the file does not end in a zero */
};
/* region: the file's bytes from `bad`, the first invalid one, to the end of the data. */
int damage_find(int fd, uint64_t bad, struct slice region, const struct damage_past *past,
                bool *damaged, struct err *e) MUST_CHECK;

#endif
