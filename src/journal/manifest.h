/* manifest: journal/manifest.jsonl, which says what the journal is, and which of its generations
 * are sealed (docs/FORMAT.md). Records are canonical JSON, one a line; the line feed of a record is
 * its commit. */
#ifndef JOURNAL_MANIFEST_H
#define JOURNAL_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "journal/layout.h"

#define MANIFEST_RECORD_MAX 4096 /* with its line feed; ours have fewer than 800 bytes */

enum manifest_state {
    MANIFEST_MISSING,     /* no file */
    MANIFEST_UNCOMMITTED, /* its first record has no line feed yet */
    MANIFEST_GOOD
};

struct manifest {
    enum manifest_state state;
    uint64_t good_bytes, file_bytes;    /* a remnant may stand behind the good ones */
    struct layout_generation *segments; /* in log order */
    uint32_t count, cap;
};

/* ERR_CORRUPT for a malformed committed record, and for records that overlap; ERR_UNSUPPORTED for
 * formats and records of other versions; ERR_IO, ERR_NO_MEMORY. On failure there is nothing to
 * free. */
int manifest_read(const struct layout *l, struct manifest *m, struct err *e) MUST_CHECK;
void manifest_free(struct manifest *m);

/* What the last process wrote of the manifest is durable, or forgotten: after a sync of it that
 * failed the page cache shows what the device does not hold. */
int manifest_settle(const struct layout *l, struct err *e) MUST_CHECK;
/* Writes the first record: body, sync, line feed, sync, directory sync. Safe to repeat after a
 * crash at any step. */
int manifest_create(const struct layout *l, struct err *e) MUST_CHECK;
/* Appends the record of a segment behind the *at good bytes, and moves *at. When it fails and
 * *uncertain is set, nobody knows whether the record is there before the next start; else it is
 * not. Without memory nothing happened. */
int manifest_add_segment(const struct layout *l, const struct layout_generation *g,
                         const char *sealed_at, uint64_t *at, bool *uncertain,
                         struct err *e) MUST_CHECK;

/* The record of a segment, without line feed; for tests too. */
void manifest_put_segment(const struct layout_generation *g, struct slice sealed_at,
                          struct buf *out);
/* ERR_CORRUPT or ERR_UNSUPPORTED, without detail. */
int manifest_parse_segment(struct slice record, struct layout_generation *g) MUST_CHECK;

#endif
