/* attempts: a ring of the ids that were refused last, each with its time.
 *
 * It is searched from one end to the other: by a refusal, and by the cleaner for an upload that it
 * is about to remove. Strangers can push others' ids out with made-up ones; those uploads then
 * expire as if nobody had asked for them, which is all. */
#include "door/artifact/attempts.h"

#include <string.h>

#include "base/ensure.h"
#include "os/os.h"

void attempts_init(struct attempts *t)
{
    int r = pthread_mutex_init(&t->lock, NULL);
    ensure(r == 0);
}

void attempts_destroy(struct attempts *t)
{
    int r = pthread_mutex_destroy(&t->lock);
    ensure(r == 0);
}

static void take_lock(struct attempts *t)
{
    int r = pthread_mutex_lock(&t->lock);
    ensure(r == 0);
}

static void give_lock(struct attempts *t)
{
    int r = pthread_mutex_unlock(&t->lock);
    ensure(r == 0);
}

/* Its slot, or ATTEMPTS_MAX. Under the lock. */
static unsigned find(const struct attempts *t, const char *id)
{
    unsigned i = 0;
    while (i < ATTEMPTS_MAX &&
           (t->slot[i].at_ms == 0 || memcmp(t->slot[i].id, id, UPLOAD_ID_LEN) != 0)) {
        i++;
    }
    return i;
}

void attempts_note(struct attempts *t, const char *id)
{
    take_lock(t);
    unsigned i = find(t, id);
    if (i == ATTEMPTS_MAX) {
        i = t->next;
        t->next = (t->next + 1) % ATTEMPTS_MAX;
        memcpy(t->slot[i].id, id, UPLOAD_ID_LEN);
    }
    t->slot[i].at_ms = (int64_t)os_clock_real_ms();
    give_lock(t);
}

int64_t attempts_last_ms(struct attempts *t, const char *id)
{
    take_lock(t);
    unsigned i = find(t, id);
    int64_t at_ms = i == ATTEMPTS_MAX ? 0 : t->slot[i].at_ms;
    give_lock(t);
    return at_ms;
}
