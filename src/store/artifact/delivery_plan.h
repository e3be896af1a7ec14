/* delivery_plan: what one identity package is, as text: its id, the names at the destination, the
 * manifest and the plan (spec/artifacts.md sections 9 and 10).
 *
 * The plan is packages/PACKAGE.plan.json, and the same bytes are in delivery.sqlite. It says where
 * the package goes and is never computed again: a project's later destination changes nothing for a
 * package that is sealed. Manifest and plan depend on the receipt, the declared name and the
 * destination only, so building twice gives the same bytes. Pure: no file is touched here. */
#ifndef STORE_ARTIFACT_DELIVERY_PLAN_H
#define STORE_ARTIFACT_DELIVERY_PLAN_H

#include "base/hash.h"
#include "store/artifact/delivery.h"

#define DELIVERY_PACKAGES      "packages"
#define DELIVERY_PACKAGE_LEN   SHA256_HEX_LEN
#define DELIVERY_SOURCE_MAX    160
#define DELIVERY_FILENAME_MAX  120 /* of a remote name made of a declared one */
#define DELIVERY_MANIFEST_TAIL ".manifest.jsonl"
#define DELIVERY_PLAN_TAIL     ".plan.json"
#define DELIVERY_TEXT_MAX      65536 /* of a plan or a manifest */

/* What is known of an accepted artifact: from its receipt and its .info. */
struct delivery_artifact {
    char object_id[UPLOAD_ID_LEN + 1];
    char project[UPLOAD_PROJECT_MAX + 1];
    char filename[UPLOAD_FILENAME_MAX + 1]; /* as declared; "": none */
    char checksum[BLAKE3_HEX_LEN + 1];      /* of the receipt */
    uint64_t size_bytes;
    int64_t accepted_at;
};

struct delivery_digests {
    char blake3[BLAKE3_HEX_LEN + 1];
    char md5[MD5_HEX_LEN + 1];
    char sha1[SHA1_HEX_LEN + 1];
};

struct delivery_plan_file {
    char name[DELIVERY_NAME_MAX];     /* the remote name, below the identifier */
    char source[DELIVERY_SOURCE_MAX]; /* below the data directory */
    uint64_t size;
    struct delivery_digests digests;
};

struct delivery_plan {
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    char object_id[UPLOAD_ID_LEN + 1];
    char project[UPLOAD_PROJECT_MAX + 1];
    struct artifact_sink to;
    char identifier[DELIVERY_NAME_MAX];
    struct delivery_plan_file file[DELIVERY_FILES_MAX]; /* the artifact, its manifest */
};

/* SHA-256 over the NUL-terminated fields tallyman-package-v1, identity, project, object id,
 * checksum ("blake3:" and its digits), decimal size. */
void delivery_package_id(const struct delivery_artifact *a, char out[DELIVERY_PACKAGE_LEN + 1]);
/* The artifact's name at the destination: [A-Za-z0-9._-], at most DELIVERY_FILENAME_MAX bytes; the
 * object id when the declared name gives none. Never "" and never with a leading dot. */
void delivery_remote_name(const struct delivery_artifact *a, char out[DELIVERY_NAME_MAX]);
/* Fills everything but the files' sizes and digests. */
void delivery_plan_begin(struct delivery_plan *p, const struct delivery_artifact *a,
                         const struct artifact_sink *to);

/* Three lines: package, input, output. b->failed: no memory. */
void delivery_manifest_put(struct buf *b, const struct delivery_artifact *a,
                           const struct delivery_digests *d);
/* One line. */
void delivery_plan_put(struct buf *b, const struct delivery_plan *p);
/* Reads back what delivery_plan_put wrote: any other text, to the byte, is ERR_CORRUPT.
 * ERR_NO_MEMORY. */
int delivery_plan_parse(struct slice text, struct delivery_plan *out, struct err *e) MUST_CHECK;
/* True when the plan was made for this artifact. */
bool delivery_plan_fits(const struct delivery_plan *p, const struct delivery_artifact *a);

#endif
