/* journal_kit_internal: shared by journal_kit.c and journal_kit_batch.c only. */
#ifndef TESTS_LIB_JOURNAL_KIT_INTERNAL_H
#define TESTS_LIB_JOURNAL_KIT_INTERNAL_H

#include "tests/lib/journal_kit.h"

struct kit_known {
    struct kit_batch kb;
    unsigned users;
    bool in_slot;
};

/* The batch of these numbers, made once; to be given back. Any thread. */
struct kit_known *kit_known_batch(struct kit_spec spec);
void kit_known_done(struct kit_known *k);

#endif
