/* serve_head: the key that heads are signed with, in the life of the server. Loop thread only. */
#ifndef MAIN_SERVE_HEAD_H
#define MAIN_SERVE_HEAD_H

#include "base/ed25519.h"
#include "door/history/history.h"

struct serve_head {
    const char *data;
    struct journal *journal;
    struct ed25519_key *key; /* NULL: it cannot be used, and /v1/head says so */
    bool due;                /* there was no space to make it */
};

/* Reads or makes the key; what is wrong with it goes to the log and stops nobody's append. data and
 * journal are borrowed. */
void serve_head_open(struct serve_head *h, const char *data, struct journal *journal);
/* About once a second: makes the key when there is space again, and gives it to the door. */
void serve_head_tick(struct serve_head *h, struct history *history);
/* After the door. */
void serve_head_close(struct serve_head *h);

#endif
