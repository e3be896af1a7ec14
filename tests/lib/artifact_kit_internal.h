/* artifact_kit_internal: what the two files of the kit share. */
#ifndef TESTS_LIB_ARTIFACT_KIT_INTERNAL_H
#define TESTS_LIB_ARTIFACT_KIT_INTERNAL_H

#include "tests/lib/artifact_kit.h"

/* Notes the first lie; false, so that a check can return it. */
bool akit_lie(struct akit *k, const char *what, const struct akit_life *l, const char *more);
/* The life's bytes; out has room for 8 more. */
void akit_content(const struct akit_life *l, unsigned char *out);
void akit_tell_offset(struct akit *k, struct akit_life *l, uint64_t offset);
void akit_tell_receipt(struct akit *k, struct akit_life *l, const struct receipt *r);
void akit_go_on(struct akit *k, struct akit_life *l, struct upload *u, uint64_t upto);

/* artifact_kit_package.c */
/* One WARC record in Zstandard frames, by the life's seed; how long that is. */
size_t akit_warc(const struct akit_life *l, unsigned char *out, size_t room);
/* Makes the folders of the deliverer, and removes temporary names. */
bool akit_package_folders(struct akit *k);
/* What the deliverer does with an accepted upload, if the scenario has one. */
void akit_deliver(struct akit *k, struct akit_life *l);
/* There is a proof of it on the disk: its bytes may go. Notes a lie of the proof. */
bool akit_proven(const struct model *m, struct akit *k, struct akit_life *l);
/* Behind akit_proven, whose result it takes. */
bool akit_check_package(const struct model *m, struct akit *k, struct akit_life *l, bool proven);
bool akit_no_package_temps(const struct model *m, const struct akit_life *l);

#endif
