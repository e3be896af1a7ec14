/* proof: proofs/PACKAGE.json, what stays of a package when its local bytes go (spec/artifacts.md,
 * decisions: "Before any purge"; holes 10, 11 and 19).
 *
 * It says where the far side has the package, what was verified there and when, and for which
 * accepted artifacts that speaks. It is made before a byte goes, and never changed: the one answer
 * to "where is it?" that needs no database. Pure, but for proof_write and proof_read. */
#ifndef STORE_ARTIFACT_PROOF_H
#define STORE_ARTIFACT_PROOF_H

#include "store/artifact/delivery_plan.h"

#define PROOF_FOLDER   "proofs"
#define PROOF_TAIL     ".json"
#define PROOF_TEMP     ".part-"
#define PROOF_TEXT_MAX (DELIVERY_MERGED_TEXT_MAX + 2u * DELIVERY_TEXT_MAX)

struct proof {
    struct delivery_artifact artifact; /* project as in the plan; of a merged package the first */
    struct delivery_members members;   /* of a merged package; else none */
    int64_t sent_at, verified_at;      /* Unix seconds */
    struct delivery_plan plan;
};

/* The members of what it proves, from 0: of an identity package the artifact. */
unsigned proof_count(const struct proof *p);
const struct delivery_artifact *proof_member(const struct proof *p, unsigned i);
void proof_free(struct proof *p); /* what parsing or reading made; a zeroed one is fine */

/* One line. b->failed: no memory. */
void proof_put(struct buf *b, const struct proof *p);
/* Reads back what proof_put wrote: any other text, to the byte, is ERR_CORRUPT, and so is a plan
 * that does not belong to the artifact. ERR_NO_MEMORY. *out is to be freed, but after an error. */
int proof_parse(struct slice text, struct proof *out, struct err *e) MUST_CHECK;

/* PACKAGE.json -> the package's id; false: another name. */
bool proof_name(const char *name, char package_id[DELIVERY_PACKAGE_LEN + 1]);
/* Makes DATA/proofs/ where it is missing (0750), synced, and removes temporary names in it.
 * ERR_IO, ERR_NO_SPACE. */
int proof_folder(const char *data, struct err *e) MUST_CHECK;
/* Writes it, synced under its name; one that is there already with the same artifact and plan is
 * kept, synced again. ERR_CORRUPT: there is another one of that name. ERR_IO, ERR_NO_SPACE,
 * ERR_NO_MEMORY. */
int proof_write(const char *data, const struct proof *p, struct err *e) MUST_CHECK;
/* ERR_NOT_FOUND; ERR_CORRUPT: there is a file, and it is no proof of this package. ERR_IO,
 * ERR_NO_MEMORY. *out is to be freed, but after an error. */
int proof_read(const char *data, const char *package_id, struct proof *out,
               struct err *e) MUST_CHECK;

#endif
