/* layout: names in the data directory, and the manifest (spec/history.md section 11, schema version
 * 1).
 *
 *   DIR/lock                          single-writer lock
 *   DIR/journal/manifest.jsonl        first record fixed; written last when a journal is made
 *   DIR/journal/tail.ndjson           the active generation
 *   DIR/journal/tail.next             the next one, all zeros; only while a server runs, or after
 *                                     it was killed
 *   DIR/journal/pending/F_L.ndjson    closed generations, F and L the ids of their first and last
 *                                     events
 *   DIR/journal/segments/             sealed generations (a later version)
 *   DIR/index/                        see index.h
 *   DIR/remnants/                     bytes of torn groups, kept for people */
#ifndef JOURNAL_LAYOUT_H
#define JOURNAL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/uuid.h"

#define LAYOUT_PATH_MAX 1024

struct layout {
    char root[LAYOUT_PATH_MAX / 2];
    char lock[LAYOUT_PATH_MAX];
    char journal[LAYOUT_PATH_MAX];
    char manifest[LAYOUT_PATH_MAX];
    char tail[LAYOUT_PATH_MAX];
    char spare[LAYOUT_PATH_MAX];
    char pending[LAYOUT_PATH_MAX];
    char segments[LAYOUT_PATH_MAX];
    char index[LAYOUT_PATH_MAX];
    char remnants[LAYOUT_PATH_MAX];
};

/* ERR_USAGE when dir is empty or too long. */
int layout_make(struct layout *l, const char *dir, struct err *e) MUST_CHECK;
/* Path of a closed generation. */
void layout_pending_path(const struct layout *l, const struct uuid *first, const struct uuid *last,
                         char out[LAYOUT_PATH_MAX]);

struct layout_generation {
    struct uuid first_id, last_id;
    uint64_t bytes;
};

/* The closed generations in log order; *out is the caller's to free(). ERR_CORRUPT for names that
 * are no generations' or that overlap, ERR_IO, ERR_NO_MEMORY. Files whose name ends in ".tmp" are
 * ignored. */
int layout_list_pending(const struct layout *l, struct layout_generation **out, uint32_t *count,
                        struct err *e) MUST_CHECK;

enum layout_manifest { LAYOUT_MANIFEST_MISSING, LAYOUT_MANIFEST_UNCOMMITTED, LAYOUT_MANIFEST_GOOD };

/* Reads the manifest. MISSING: no file; UNCOMMITTED: its first record has no LF yet. *good_bytes is
 * the length of committed records (a remnant may follow). ERR_CORRUPT for a malformed committed
 * record, ERR_UNSUPPORTED for formats or sealed segments this version does not know. */
int layout_read_manifest(const struct layout *l, enum layout_manifest *state, uint64_t *good_bytes,
                         uint64_t *file_bytes, struct err *e) MUST_CHECK;
/* Writes the first record: body, sync, LF, sync, directory sync. Safe to repeat after a crash at
 * any step. */
int layout_write_manifest(const struct layout *l, struct err *e) MUST_CHECK;

#endif
