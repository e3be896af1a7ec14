/* store_scenarios: short lives of a store on the model disk, for tests that cut the power or fail a
 * call somewhere in them. A scenario never gives up: what fails is written in the ledger and the
 * life goes on as a server's would (a poisoned store is closed and opened again). It is a function
 * of its seed. */
#ifndef TESTS_LIB_STORE_SCENARIOS_H
#define TESTS_LIB_STORE_SCENARIOS_H

#include "tests/lib/modeldisk.h"
#include "tests/lib/store_kit.h"

#define STORE_SCENARIO_DIR     "/m/data"
#define STORE_SCENARIO_BALLAST "/m/ballast" /* fills the disk; may be removed by the test */

struct store_run {
    struct store *s; /* NULL: not open */
    struct skit_ledger ledger;
    uint64_t chance;
    bool ended; /* it could not be opened */
    bool check; /* hold the store against the ledger after each open */
    char why[SKIT_WHY];
};

struct store_scenario {
    const char *name;
    void (*run)(struct store_run *run);
    bool made;               /* the database and both projects are there when it begins */
    uint64_t capacity_bytes; /* of the disk, 0: no limit */
    unsigned exhaustive_max; /* pending items up to which all subsets are tried */
    unsigned samples;        /* of the subsets of more */
};

extern const struct store_scenario store_scenarios[];
extern const unsigned store_scenario_count;
extern const struct store_options store_scenario_options;

/* A disk for the scenario, in use, and a process that begins. */
struct model *store_scenario_start(const struct store_scenario *s, struct store_run *run,
                                   uint64_t seed, enum model_order order);
const struct store_scenario *store_scenario_find(const char *name);
/* Whether a call changes the disk or what is pending. */
bool store_call_changes(const struct model_call *call);

#endif
