/* events: reads events out of a file or pipe, one at a time: NDJSON (one object a line, empty lines
 * skipped), or one JSON array of objects. Which of the two it is, the first byte that is no white
 * space says.
 *
 * Memory is bounded by one event, whatever the size of the input. An event is handed out in RFC
 * 8785 form, so that what is sent, and where batches are cut, depends on the content alone and not
 * on white space or member order. */
#ifndef MAIN_EVENTS_H
#define MAIN_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "json/canon.h"

#define EVENTS_EVENT_MAX (32u << 20) /* bytes of one event, as it stands and in canonical form */
#define EVENTS_CHUNK     65536

struct events {
    const char *name; /* of the file, for messages */
    int fd;
    bool own_fd;
    enum { EVENTS_UNKNOWN, EVENTS_LINES, EVENTS_ARRAY_FIRST, EVENTS_ARRAY_NEXT, EVENTS_END } state;
    uint64_t line;       /* of the next byte, from 1 */
    uint64_t read_bytes; /* from the file so far */
    uint64_t size_bytes; /* of a regular file, else 0 */
    struct canon *canon;
    struct buf raw;       /* the event as it stands */
    struct buf canonical; /* what events_next handed out */
    size_t at, len;       /* unread part of chunk */
    char chunk[EVENTS_CHUNK];
};

/* path "-" is standard input. The name is borrowed. ERR_IO (names the file), ERR_NO_MEMORY;
 * events_close also after a failure. */
int events_open(struct events *in, const char *path, struct err *e) MUST_CHECK;
void events_close(struct events *in);
/* Next event: 1 and *event (valid until the next call) with the line it begins on; 0 at the end;
 * ERR_IO, ERR_JSON (e->text is "FILE:LINE: reason"), ERR_NO_MEMORY. After an error no further call.
 * Blocks. */
int events_next(struct events *in, struct slice *event, uint64_t *line, struct err *e) MUST_CHECK;

#endif
