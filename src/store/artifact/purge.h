/* purge: the local bytes of a package go, because a proof says that the far side has it
 * (spec/artifacts.md, decisions: stepwise purge; section 7.2).
 *
 *   uploads/ID, ID.info, ID.state, ID.gone      go
 *   packages/PACKAGE.plan.json, .manifest.jsonl  go; of a merged package .warc.zst before them
 *   receipts/ID.json, proofs/PACKAGE.json        stay
 *
 * Large files are moved to uploads/.purge/ first and freed in steps of 8 MiB with pauses: what is
 * removed at once holds up everybody's syncs. The one process `tallyman deliver` does this. */
#ifndef STORE_ARTIFACT_PURGE_H
#define STORE_ARTIFACT_PURGE_H

#include <stdatomic.h>

#include "store/artifact/proof.h"

#define PURGE_FOLDER "uploads/.purge"

/* Makes DATA/uploads/.purge/ where it is missing, synced. ERR_IO, ERR_NO_SPACE. */
int purge_folder(const char *data, struct err *e) MUST_CHECK;
/* Takes the package's local files away, if DATA/proofs/PACKAGE.json is there (looked at here once
 * more) and the receipt too: ERR_REFUSED without one of them; nothing is touched then. What is gone
 * already is fine. *freed (may be NULL): bytes that went. ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY,
 * ERR_CORRUPT (the proof); ERR_NOT_READY: *stop was set; all of them leave something that the next
 * call finishes. Blocks for as long as the bytes take. */
int purge_package(const char *data, const struct delivery_plan *plan, const atomic_bool *stop,
                  uint64_t *freed, struct err *e) MUST_CHECK;

#endif
