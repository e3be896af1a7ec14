/* journal_scenarios: short lives of a journal on the model disk, for tests that cut the power or
 * fail a call somewhere in them.
 *
 * A scenario never gives up: what fails is written in the ledger and the life goes on as a server's
 * would (a poisoned journal is closed and opened again). It is a function of its seed. */
#ifndef TESTS_LIB_JOURNAL_SCENARIOS_H
#define TESTS_LIB_JOURNAL_SCENARIOS_H

#include "tests/lib/journal_kit.h"
#include "tests/lib/modeldisk.h"

#define SCENARIO_DIR        "/m/data"
#define SCENARIO_BALLAST    "/m/ballast" /* fills the disk; may be removed by the test */
#define SCENARIO_GENERATION (64u << 10)

struct scenario_run {
    struct journal *j; /* NULL: not open */
    struct kit_ledger ledger;
    uint64_t chance;
    bool ended;      /* it could not be opened */
    bool check;      /* hold the journal against the ledger after each new open */
    unsigned script; /* private to the scenario's on_call */
};

struct scenario {
    const char *name;
    void (*run)(struct scenario_run *run);
    /* Makes the disk on which run begins, and the ledger of it; NULL: an empty disk. */
    struct model *(*prepare)(struct scenario_run *run, enum model_order order);
    /* Called before each call to the disk, by the test's own hook; NULL: nothing to do. */
    void (*on_call)(struct scenario_run *run, struct model *m, const struct model_call *call);
    unsigned exhaustive_max; /* pending items up to which all subsets are tried */
    unsigned samples;        /* of the subsets of more */
};

extern const struct scenario scenarios[];
extern const unsigned scenario_count;

/* A disk for the scenario, in use. */
struct model *scenario_start(const struct scenario *s, struct scenario_run *run, uint64_t seed,
                             enum model_order order);
extern const struct journal_options scenario_options;

#endif
