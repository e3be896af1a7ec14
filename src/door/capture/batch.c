/* batch: the table of a request's events, which grows as they are parsed, up to the bound of the
 * configuration. Of memory, or past the bound: an answer, and nothing of the request is stored. */
#include <stdlib.h>

#include "door/capture/internal.h"

struct capture_event *capture_add(struct capture_batch *b, uint32_t index, struct err *e)
{
    if (b->count == b->c->options.batch_events_max) {
        (void)err_set(e, ERR_TOO_MANY_EVENTS, "more than %u events in one request",
                      b->c->options.batch_events_max);
        return NULL;
    }
    if (b->count == b->cap) {
        size_t cap = b->cap == 0 ? 1 : b->cap < 8 ? 16 : b->cap * 2;
        struct capture_event *event = realloc(b->event, cap * sizeof *event);
        if (event == NULL) {
            (void)err_set(e, ERR_NO_MEMORY, "no memory for the events of a request");
            return NULL;
        }
        b->event = event;
        b->cap = cap;
    }
    struct capture_event *ev = &b->event[b->count++];
    *ev = (struct capture_event){.index = index};
    return ev;
}

void capture_reject(struct capture_batch *b, struct capture_event *ev, const char *why)
{
    ev->outcome = b->dialect == CAPTURE_POSTHOG_V1 ? CAPTURE_DROPPED : CAPTURE_REJECTED;
    ev->reason = why;
}
