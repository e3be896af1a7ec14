/* package_internal: what the files of package_build share. Nobody else includes it. */
#ifndef STORE_ARTIFACT_PACKAGE_INTERNAL_H
#define STORE_ARTIFACT_PACKAGE_INTERNAL_H

#include "store/artifact/package_build.h"

#define PACKAGE_PATH_BYTES  4400
#define PACKAGE_OPEN_SOURCE (O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
#define PACKAGE_WAY_OUT     "put the original bytes back and restart tallyman deliver"

struct package_hashes {
    struct blake3 blake3;
    struct md5 md5;
    struct sha1 sha1;
};
void package_hashes_start(struct package_hashes *h);
void package_hashes_add(struct package_hashes *h, const void *p, size_t n);
void package_hashes_end(struct package_hashes *h, struct delivery_digests *out);
void package_digests_of(struct slice text, struct delivery_digests *out);

/* DATA/NAME */
void package_path(char out[PACKAGE_PATH_BYTES], const char *data, const char *name);
/* packages/PREFIX PACKAGE TAIL, below the data directory. */
void package_name(char out[DELIVERY_SOURCE_MAX], const char *prefix, const char *package_id,
                  const char *tail);
/* The whole file, which the caller frees; one that is longer than max comes a byte too long.
 * ERR_NOT_FOUND. */
int package_text(const char *data, const char *name, size_t max, struct buf *out,
                 struct err *e) MUST_CHECK;
/* The temporary file of a tail, whole and synced. */
int package_write_temp(const char *data, const char *package_id, const char *tail,
                       struct slice text, struct err *e) MUST_CHECK;
int package_rename_temp(const char *data, const char *package_id, const char *tail,
                        struct err *e) MUST_CHECK;
int package_sync_folder(const char *data, struct err *e) MUST_CHECK;
/* Of a file that may be large: freed step by step, then removed. What *stop leaves the next start
 * removes; so does what fails. */
void package_remove(const char *data, const char *name, const atomic_bool *stop);
/* All temporary names of a package. */
void package_remove_temps(const struct package_job *job, const char *package_id);

/* package_merge.c: writes the members to the temporary payload, synced, and fills facts (one a
 * member), the digests of the whole and its SHA-256. ERR_CORRUPT with job->bad_count > 0: members
 * that cannot be in it, all of them; else as package_build says. */
int package_merge(struct package_job *job, const char *package_id,
                  struct delivery_member_facts *facts, struct delivery_digests *whole,
                  char sha256[SHA256_HEX_LEN + 1], struct err *e) MUST_CHECK;

#endif
