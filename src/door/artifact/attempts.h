/* attempts: appends that were refused for want of room (internal to door/artifact).
 *
 * A client that keeps asking while the server says "later" must not lose its upload for it
 * (artifacts.md 8.1): such a refusal counts as activity. In memory only, the last ATTEMPTS_MAX ids:
 * what is forgotten, or lost with the process, expires by its files. Threads: any. */
#ifndef DOOR_ARTIFACT_ATTEMPTS_H
#define DOOR_ARTIFACT_ATTEMPTS_H

#include <pthread.h>
#include <stdint.h>

#include "store/artifact/upload.h"

#define ATTEMPTS_MAX 1024

struct attempts {
    pthread_mutex_t lock; /* no other is taken under it */
    unsigned next;        /* the one to be used anew */
    struct {
        char id[UPLOAD_ID_LEN];
        int64_t at_ms; /* Unix time; 0: none */
    } slot[ATTEMPTS_MAX];
};

void attempts_init(struct attempts *t); /* zeroed memory */
void attempts_destroy(struct attempts *t);
void attempts_note(struct attempts *t, const char *id);
/* When the last one was; 0: none that is known. */
int64_t attempts_last_ms(struct attempts *t, const char *id);

#endif
