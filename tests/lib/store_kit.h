/* store_kit: what the crash and fault tests of the store share: jobs made from numbers, a ledger of
 * what their `done` was told, and the oracle that holds a store against the ledger.
 *
 *   - what was told 0 is there, whole and byte for byte, under the id of its receipt;
 *   - a job in doubt (not told, or told that the store is poisoned) is there as a whole or not at
 *     all; a job that was undone is not there;
 *   - a delivered event keeps its receipt and has no payload; never the other way round;
 *   - nothing else is there; counters and gauges are what they count; ids rise;
 *   - sent again, an event is answered with its first id.
 * Everything runs on the model disk through os_vfs. */
#ifndef TESTS_LIB_STORE_KIT_H
#define TESTS_LIB_STORE_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include "store/control.h"
#include "store/queue.h"
#include "store/store.h"

#define SKIT_EVENTS   160
#define SKIT_PROJECTS 2
#define SKIT_WHY      480
#define SKIT_BIG      120 /* events from this number on have large texts */

enum skit_state {
    SKIT_NONE, /* never sent, or surely undone */
    SKIT_DOUBT,
    SKIT_ACKED
};

struct skit_event {
    enum skit_state put, delivered;
    uint32_t job; /* that put it; all of its events share their fate */
    int64_t id;
};

struct skit_project {
    enum skit_state state;
    int64_t id;
};

struct skit_ledger {
    struct skit_event ev[SKIT_EVENTS];
    struct skit_project project[SKIT_PROJECTS];
    char key[KEY_TEXT_MAX + 1]; /* one service key */
    enum skit_state key_state;
    uint64_t rejected, rejected_doubt;
    int64_t cursor, cursor_doubt; /* -1: none */
    uint32_t jobs;
    int64_t id_max;     /* of all ids ever told */
    char lie[SKIT_WHY]; /* an answer that was wrong at once; empty: none */
};

void skit_ledger_init(struct skit_ledger *l);
uint64_t skit_ledger_hash(const struct skit_ledger *l);

/* ---- jobs ---- */

enum skit_kind { SKIT_PUT, SKIT_DELIVER, SKIT_PROJECT, SKIT_KEY, SKIT_CURSOR, SKIT_MERGE };

struct skit_job {
    struct store_job job; /* first */
    struct store *store;
    struct skit_ledger *ledger;
    enum skit_kind kind;
    uint32_t from, count; /* numbers of events; of PROJECT: which */
    uint32_t rejected;    /* PUT: so many bad events beside them */
    bool fail;            /* PUT: ends with an error after all its writes */
    uint32_t number;
    struct queue_receipt receipt[SKIT_EVENTS];
    bool was_doubt[SKIT_EVENTS]; /* doubtful since it was submitted */
    int64_t ids[SKIT_EVENTS];
    size_t id_count;
    char key[KEY_TEXT_MAX + 1];
    bool ended;
    int code;
};

/* Submits the jobs (their kind and numbers set) and turns until all have ended. Writes down what
 * they were told. False: one did not end. */
bool skit_turn(struct store *s, struct skit_ledger *l, struct skit_job *jobs, size_t count);
/* One job; its code. */
int skit_one(struct store *s, struct skit_ledger *l, struct skit_job job);

/* ---- the oracle ---- */

/* false: *why says what does not hold. settle, after a new open: what was in doubt becomes what it
 * was found to be, and must stay so. */
bool skit_check(struct store *s, struct skit_ledger *l, bool settle, char why[SKIT_WHY]);
/* Sends again all that was acknowledged. */
bool skit_check_repeats(struct store *s, struct skit_ledger *l, char why[SKIT_WHY]);
/* What a sink would read: exactly what is queued. */
bool skit_check_selection(const char *data, const struct skit_ledger *l, char why[SKIT_WHY]);
/* store_verify finds nothing. */
bool skit_check_verify(const char *data, char why[SKIT_WHY]);

#endif
