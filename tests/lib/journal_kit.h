/* journal_kit: what the tests of the journal share: batches made from numbers, a ledger of what was
 * promised, and the oracle of docs/CRASH.md that holds a journal against the ledger.
 *
 * A run appends batches through the kit and the kit writes down what the journal said. Wherever the
 * power is cut, the journal that is opened afterwards must agree with the ledger:
 *   - an acknowledged batch is there, once, byte for byte, at the ids of its receipt;
 *   - a batch in doubt (staged, or of a group whose commit failed) is absent or there as a whole;
 *   - a refused or undone batch is absent;
 *   - a retirement names the last event of its source before it, and none comes behind it;
 *   - ids rise, groups are consecutive, observed_at never falls, hashes and chain hold, and every
 *     head that was ever published is the head at its event.
 * Everything goes through os/os.h, so the same steps run on the kernel and on the model disk. */
#ifndef TESTS_LIB_JOURNAL_KIT_H
#define TESTS_LIB_JOURNAL_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include "journal/journal.h"
#include "journal/verify.h"

#define KIT_BATCHES_MAX   160
#define KIT_FRONTIERS_MAX 160
#define KIT_WHY           480

/* ---- batches ---- */

/* A batch that is a function of its three numbers. Its source is "src-N" with N = number % 2, its
 * batch_id "b-NUMBER", its events go to streams "st-0" to "st-2" in turn. */
struct kit_spec {
    uint32_t number, count, payload_bytes;
};

/* The retirement of "src-N" has number KIT_RETIREMENT + N, count 1 and no payload of its own. */
#define KIT_RETIREMENT (1u << 20)
#define KIT_SOURCES    2

struct kit_batch {
    struct kit_spec spec;
    struct journal_batch batch;
    struct journal_event *events;
    char *text; /* owns everything that events borrow */
    char source[16], batch_id[32];
};

void kit_batch_make(struct kit_batch *kb, struct kit_spec spec);
void kit_batch_free(struct kit_batch *kb);
/* Bytes of its lines in the file. */
uint64_t kit_batch_bytes(const struct kit_batch *kb);

/* ---- the ledger ---- */

enum kit_state {
    KIT_STAGED, /* in the open group */
    KIT_ACKED,  /* its commit returned 0 */
    KIT_DOUBT,  /* its commit failed, outcome unknown */
    KIT_ABSENT  /* undone: must not be there */
};

struct kit_entry {
    struct kit_spec spec;
    enum kit_state state;
    struct uuid first_id, last_id; /* of the receipt; of DOUBT: where it would be */
    struct uuid final_frontier;    /* of a retirement */
    bool seen;                     /* the oracle met it in the last walk */
};

struct kit_ledger {
    struct kit_entry entries[KIT_BATCHES_MAX];
    uint32_t count;
    struct journal_frontier frontiers[KIT_FRONTIERS_MAX]; /* as published */
    uint32_t frontier_count;
    char lie[KIT_WHY]; /* an answer that was wrong at once; empty: none */
};

struct kit_entry *kit_find(struct kit_ledger *l, uint32_t number);

/* Appends, committing first when the group is full. 0: staged, or answered as a duplicate (then
 * the receipt must be the ledger's). Negative: the journal's error, written down. */
int kit_append(struct journal *j, struct kit_ledger *l, struct kit_spec spec, struct err *e);
/* Retires source "src-N". 0: staged, or answered as done before (with the ledger's values), or the
 * source has no event. */
int kit_retire(struct journal *j, struct kit_ledger *l, uint32_t n, struct err *e);
/* Commits and moves STAGED on. */
int kit_commit(struct journal *j, struct kit_ledger *l, struct err *e);
/* Append and commit. */
int kit_put(struct journal *j, struct kit_ledger *l, struct kit_spec spec, struct err *e);
/* What the end of a process makes of staged batches. */
void kit_forget_group(struct kit_ledger *l);

/* ---- the oracle ---- */

/* Walks the whole journal. false: *why says what does not hold. Sets `seen`. With settle, after a
 * new open: batches staged or in doubt become ACKED or ABSENT, as they were found, and must stay.
 */
bool kit_check(struct journal *j, struct kit_ledger *l, bool settle, char why[KIT_WHY]);
/* Appends again what was acknowledged, in doubt or absent, the last `recent` of them; duplicates
 * must have their receipts. Commits. Only for journals that accept appends. */
bool kit_check_retries(struct journal *j, struct kit_ledger *l, uint32_t recent, char why[KIT_WHY]);
/* Runs verify_journal: must be ok, at the frontier given (NULL: any), and without remnants when
 * closed is set. */
bool kit_check_verify(const char *dir, const struct journal_frontier *frontier, bool closed,
                      char why[KIT_WHY]);

/* ---- chance ---- */

uint64_t kit_mix(uint64_t x);
uint64_t kit_chance(uint64_t *state);

#endif
