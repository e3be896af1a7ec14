/* package_load: the merged packages that are on the disk, for an index that does not know them
 * (spec/artifacts.md, hole 19). */
#ifndef STORE_ARTIFACT_PACKAGE_LOAD_H
#define STORE_ARTIFACT_PACKAGE_LOAD_H

#include "store/artifact/delivery_plan.h"

/* PACKAGE.plan.json -> the package's id; false: another name. */
bool package_plan_name(const char *name, char package_id[DELIVERY_PACKAGE_LEN + 1]);
/* True when DATA/packages/ has a plan of the package: what it names may have been sent. True, too,
 * where that cannot be told now. */
bool package_planned(const char *data, const char *package_id);
/* The same of the identity package of the artifact. */
bool package_identity_planned(const char *data, const struct delivery_artifact *a);
/* The plan and the members of the package, whose manifest is the one that the plan names.
 * ERR_NOT_FOUND: there is no plan, or it is of an identity package. ERR_CORRUPT: plan or manifest
 * are damaged, or do not belong to each other. ERR_IO, ERR_NO_MEMORY. *members: to be freed, but
 * after an error. Blocks on the disk. */
int package_load(const char *data, const char *package_id, struct delivery_plan *plan,
                 struct delivery_members *members, struct err *e) MUST_CHECK;

#endif
