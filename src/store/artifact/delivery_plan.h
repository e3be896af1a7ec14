/* delivery_plan: what a package is, as text: its id, the names at the destination, the manifest and
 * the plan (spec/artifacts.md sections 9 and 10). An identity package is one artifact as it came; a
 * merged one is the bytes of 1 to DELIVERY_MEMBERS_MAX artifacts, end to end.
 *
 * The plan is packages/PACKAGE.plan.json, and the same bytes are in delivery.sqlite. It says where
 * the package goes and is never computed again: later settings of the project change nothing for
 * what is sealed. Manifest and plan depend on the receipt, the declared name and the
 * project's settings only, so building twice gives the same bytes. Pure: no file is touched. */
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
/* Of expanded metadata: twice the headers' limit, for escapes. */
#define DELIVERY_METADATA_MAX 16384
#define DELIVERY_PACKAGER     "identity"
#define DELIVERY_MERGEWARC    "mergewarc"
#define DELIVERY_PAYLOAD_TAIL ".warc.zst" /* of a merged package */
#define DELIVERY_MEMBERS_MAX  1000
/* Of the manifest of a merged package, and of a proof: all members with the longest of names. */
#define DELIVERY_MERGED_TEXT_MAX (8u << 20)

/* What is known of an accepted artifact: from its receipt and its .info. */
struct delivery_artifact {
    char object_id[UPLOAD_ID_LEN + 1];
    char project[UPLOAD_PROJECT_MAX + 1];
    char filename[UPLOAD_FILENAME_MAX + 1]; /* as declared; "": none */
    char checksum[BLAKE3_HEX_LEN + 1];      /* of the receipt */
    uint64_t size_bytes;
    int64_t accepted_at;
};

/* The members of a merged package, in their order: the offset of each in the payload is the sum of
 * the sizes before it. None (count 0) of an identity package. Zeroed or owned. */
struct delivery_members {
    unsigned count;
    struct delivery_artifact *item;
};

struct delivery_digests {
    char blake3[BLAKE3_HEX_LEN + 1];
    char md5[MD5_HEX_LEN + 1];
    char sha1[SHA1_HEX_LEN + 1];
};

/* What a build finds out about one member of a merged package, for the manifest. */
struct delivery_member_facts {
    uint64_t records;
    char sha256[SHA256_HEX_LEN + 1];
    char sha1[SHA1_HEX_LEN + 1];
};

struct delivery_plan_file {
    char name[DELIVERY_NAME_MAX];     /* the remote name, below the identifier */
    char source[DELIVERY_SOURCE_MAX]; /* below the data directory */
    uint64_t size;
    struct delivery_digests digests;
};

/* The place, as the project had it when the package was built. */
struct delivery_place {
    char sink[32];
    char directory[4001];                                /* "": the sink needs none */
    char credentials_file[DELIVERY_CREDENTIALS_MAX + 1]; /* "": none */
};

struct delivery_plan {
    unsigned version; /* 1: of older programs, written again as it was; 2; 3: merged */
    unsigned members; /* of a merged package, 1 to DELIVERY_MEMBERS_MAX; else 0 */
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    char object_id[UPLOAD_ID_LEN + 1]; /* "" of a merged package */
    char project[UPLOAD_PROJECT_MAX + 1];
    char packager[16];
    struct delivery_place to;
    char identifier[DELIVERY_NAME_MAX];
    char metadata[DELIVERY_METADATA_MAX + 1]; /* canonical JSON, name -> array of texts; "{}" */
    int64_t retention_ms;                     /* after verification; -1: local bytes are kept */
    struct delivery_plan_file file[DELIVERY_FILES_MAX]; /* the payload, its manifest */
};

/* Room for so many, at most DELIVERY_MEMBERS_MAX; ERR_NO_MEMORY. */
int delivery_members_make(struct delivery_members *m, unsigned room, struct err *e) MUST_CHECK;
void delivery_members_free(struct delivery_members *m); /* none is fine; none are left */
uint64_t delivery_members_bytes(const struct delivery_members *m);

/* SHA-256 over the NUL-terminated fields tallyman-package-v1, identity, project, object id,
 * checksum ("blake3:" and its digits), decimal size. */
void delivery_package_id(const struct delivery_artifact *a, char out[DELIVERY_PACKAGE_LEN + 1]);
/* The same with mergewarc, the project of the first, and three fields of each member. */
void delivery_merged_id(const struct delivery_artifact *a, unsigned count,
                        char out[DELIVERY_PACKAGE_LEN + 1]);
/* What logs call the package: the object id of an identity package, else the package id. */
const char *delivery_plan_label(const struct delivery_plan *p);
/* The artifact's name at the destination: [A-Za-z0-9._-], at most DELIVERY_FILENAME_MAX bytes; the
 * object id when the declared name gives none. Never "" and never with a leading dot. */
void delivery_remote_name(const struct delivery_artifact *a, char out[DELIVERY_NAME_MAX]);
/* Fills everything but the files' sizes and digests: templates are expanded here and never again.
 * ERR_INVALID_PROJECT: the project's settings give no place that is allowed (e->text: which rule);
 * only a person can help. ERR_NO_MEMORY. */
int delivery_plan_begin(struct delivery_plan *p, const struct delivery_artifact *a,
                        const struct artifact_sink *to, struct err *e) MUST_CHECK;

/* The same of a merged package: {{OBJECT_ID}} is the package id there, {{FILENAME}} is PROJECT-<24
 * digits of it>.warc.zst, {{DATE}} is when the first member was accepted. The payload's source is
 * packages/PACKAGE.warc.zst. */
int delivery_plan_begin_merged(struct delivery_plan *p, const struct delivery_members *m,
                               const struct artifact_sink *to, struct err *e) MUST_CHECK;

/* Three lines: package, input, output. b->failed: no memory. */
void delivery_manifest_put(struct buf *b, const struct delivery_artifact *a,
                           const struct delivery_digests *d);
/* Of a merged package: package, an input a member, output. facts: one a member; payload: digests of
 * the whole, with its SHA-256 in hexadecimal digits. */
void delivery_manifest_put_merged(struct buf *b, const struct delivery_members *m,
                                  const struct delivery_member_facts *facts,
                                  const struct delivery_digests *payload, const char *sha256);
/* The members as the manifest of a merged package has them; their project is the plan's. Any other
 * text than what was put, to the byte, and members that do not give the plan's package id, are
 * ERR_CORRUPT. ERR_NO_MEMORY. *out: the caller's, to be freed. */
int delivery_manifest_parse(struct slice text, const struct delivery_plan *p,
                            struct delivery_members *out, struct err *e) MUST_CHECK;
/* One line, in the plan's own version. */
void delivery_plan_put(struct buf *b, const struct delivery_plan *p);
/* Reads back what delivery_plan_put wrote: any other text, to the byte, is ERR_CORRUPT.
 * ERR_NO_MEMORY. */
int delivery_plan_parse(struct slice text, struct delivery_plan *out, struct err *e) MUST_CHECK;
/* True when identifier or remote name hold the object or the package id (24 digits of it at least),
 * so that no two packages can meet at one name. */
bool delivery_plan_own(const struct delivery_plan *p);
/* True when the plan was made for this artifact, and sends it, and nothing else of ours, under
 * names that are its own. */
bool delivery_plan_fits(const struct delivery_plan *p, const struct delivery_artifact *a);
/* The same of a merged package. What its payload's BLAKE3 must be, only a build knows. */
bool delivery_plan_fits_merged(const struct delivery_plan *p, const struct delivery_members *m);

#endif
