/* journal_kit_internal: shared by the files of journal_kit only. */
#ifndef TESTS_LIB_JOURNAL_KIT_INTERNAL_H
#define TESTS_LIB_JOURNAL_KIT_INTERNAL_H

#include "journal/line.h"
#include "tests/lib/journal_kit.h"

struct kit_known {
    struct kit_batch kb;
    unsigned users;
    bool in_slot;
};

/* The batch of these numbers, made once; to be given back. Any thread. */
struct kit_known *kit_known_batch(struct kit_spec spec);
/* The batch of a retirement, of which the frontier is a part; to be given back. */
struct kit_known *kit_known_retirement(const struct kit_entry *en);
void kit_known_done(struct kit_known *k);

/* Writes down an answer that was wrong; the first one stays. */
void kit_lie(struct kit_ledger *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct kit_entry *kit_find_or_add(struct kit_ledger *l, struct kit_spec spec);
/* ACKED or STAGED. */
bool kit_promised(const struct kit_entry *en);

/* Holds an answer to a batch against what is known of its source. True: it was refused, its source
 * being retired. */
bool kit_note_retired(struct kit_ledger *l, uint32_t number, const struct journal_result *r);

/* Sources as the oracle has met them. */
struct kit_sources {
    struct uuid last[KIT_SOURCES]; /* zero: no event */
    bool retired[KIT_SOURCES];
};
bool kit_walk_source(struct kit_sources *s, const struct kit_entry *en, const struct line *l,
                     char why[KIT_WHY]);

#endif
