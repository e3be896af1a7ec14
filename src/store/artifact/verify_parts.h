/* verify_parts: what the parts of artifact_verify share. Private to verify*.c. */
#ifndef STORE_ARTIFACT_VERIFY_PARTS_H
#define STORE_ARTIFACT_VERIFY_PARTS_H

#include <stddef.h>

#include "os/os.h"
#include "store/artifact/delivery_plan.h"
#include "store/artifact/upload_internal.h"
#include "store/artifact/verify.h"

/* X(symbol, what to call the violations that are too many to tell) */
#define ARTIFACT_KINDS(X)          \
    X(RECEIPT, "receipts")         \
    X(BYTES, "bytes of artifacts") \
    X(UPLOAD, "partial uploads")   \
    X(PACKAGE, "packages")         \
    X(PROOF, "proofs")

enum artifact_kind {
#define X(sym, name) ARTIFACT_KIND_##sym,
    ARTIFACT_KINDS(X)
#undef X
        ARTIFACT_KIND_COUNT
};

#define ARTIFACT_TOLD_MAX 100
#define ARTIFACT_ID_BYTES (UPLOAD_ID_LEN / 2)

struct artifact_ids {
    uint8_t (*id)[ARTIFACT_ID_BYTES]; /* in order */
    size_t count, room;
};

struct sqlite3;
struct artifact_run {
    const struct artifact_verify_hooks *hooks;
    struct artifact_verify_result *out;
    struct err *e;
    const char *data;
    struct uploads us; /* its two paths only */
    char packages[UPLOADS_PATH_MAX];
    char proofs[UPLOADS_PATH_MAX];
    struct artifact_ids proven; /* artifacts for which a proof speaks */
    unsigned proofs_again;      /* how often the folder was read once more */
    uint64_t total;             /* bytes to read */
    uint64_t kinds[ARTIFACT_KIND_COUNT];
    /* to ask what was verified; opened at the first question */
    struct sqlite3 *delivery;
    bool delivery_asked, delivery_unread;
};

void artifact_tell(struct artifact_run *a, enum artifact_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* dir "": the data directory itself. */
void artifact_remnant(struct artifact_run *a, const char *dir, const char *name);
/* Calls see for each name in the folder; a missing one has none. What see returns below 0 ends it.
 */
int artifact_list(struct artifact_run *a, const char *dir,
                  int (*see)(struct artifact_run *a, const char *name)) MUST_CHECK;
/* "ID" and a suffix; true copies the id. */
bool artifact_id_of(const char *name, const char *suffix, char id[UPLOAD_ID_LEN + 1]);
/* 1: there, with *st; 0: not there; ERR_IO. */
int artifact_stat(struct artifact_run *a, const char *path, struct os_stat *st) MUST_CHECK;
/* The receipt as its file has it. ERR_NOT_FOUND, ERR_CORRUPT (e says what is wrong), ERR_IO,
 * ERR_NO_MEMORY. Tells nothing. */
int artifact_read_receipt(const struct uploads *us, const char *id, struct receipt *out,
                          struct err *e) MUST_CHECK;
/* The same for ID.info. */
int artifact_read_info(const struct uploads *us, const char *id, struct upload_info *out,
                       struct err *e) MUST_CHECK;
/* Reads all of it from the device, a piece at a time, so that progress can be shown. ERR_IO,
 * ERR_NO_MEMORY. */
int artifact_hash(struct artifact_run *a, int fd, uint64_t size, char hex[BLAKE3_HEX_LEN + 1],
                  struct err *e) MUST_CHECK;
/* packages/PACKAGE and a tail, whole; buf_free it. */
int artifact_read_sidecar(const char *packages, const char *package_id, const char *tail,
                          struct buf *out, struct err *e) MUST_CHECK;

/* ---- the parts: 0 also with violations ---- */
/* First: receipts ask for what it finds. */
int artifact_check_proofs(struct artifact_run *a) MUST_CHECK;
int artifact_check_receipts(struct artifact_run *a) MUST_CHECK;
int artifact_check_uploads(struct artifact_run *a) MUST_CHECK;
int artifact_check_packages(struct artifact_run *a) MUST_CHECK;
int artifact_check_delivery(struct artifact_run *a) MUST_CHECK;
/* delivery.sqlite says that the artifact was verified at its destination. */
bool artifact_is_verified(struct artifact_run *a, const char *id);
/* verify_merged.c: a merged package by its plan: manifest, receipts, payload. */
int artifact_check_merged(struct artifact_run *a, const struct delivery_plan *plan,
                          const char *name) MUST_CHECK;
/* 1: a proof speaks for the artifact, 0, or ERR_. */
int artifact_has_proof(struct artifact_run *a, const char *id) MUST_CHECK;
void artifact_forget_proofs(struct artifact_run *a);

#endif
