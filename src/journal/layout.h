/* layout: names in the data directory (spec/history.md section 11).
 *
 *   DIR/lock                          single-writer lock
 *   DIR/journal/manifest.jsonl        see manifest.h
 *   DIR/journal/tail.ndjson           the active generation
 *   DIR/journal/tail.next             the next one, all zeros; only while a server runs, or after
 *                                     it was killed
 *   DIR/journal/pending/F_L.ndjson    closed generations, F and L the ids of their first and last
 *                                     events
 *   DIR/journal/segments/F_L_H.ndjson.zst
 *                                     sealed generations, H the SHA-256 of the file
 *   DIR/index/                        see index.h
 *   DIR/remnants/                     bytes of torn groups, kept for people */
#ifndef JOURNAL_LAYOUT_H
#define JOURNAL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "base/uuid.h"

#define LAYOUT_PATH_MAX     1024
#define LAYOUT_SEGMENT_NAME (2 * UUID_TEXT_LEN + SHA256_HEX_LEN + 14) /* with its NUL */

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

/* A closed generation. */
struct layout_generation {
    struct uuid first_id, last_id;
    uint64_t bytes; /* plain ones */
    bool sealed;
    /* Of a sealed one, from the manifest: */
    uint64_t events;
    uint8_t sha256[SHA256_LEN]; /* of the file */
    uint8_t head[SHA256_LEN];   /* chain head at last_id */
};

void layout_segment_name(const struct layout_generation *g, char out[LAYOUT_SEGMENT_NAME]);
/* The ids and the hash in the name of a segment; false when it is none. */
bool layout_segment_parse(struct slice name, struct layout_generation *g);
/* Where its bytes are: in pending/, or in segments/ when it is sealed. */
void layout_generation_path(const struct layout *l, const struct layout_generation *g,
                            char out[LAYOUT_PATH_MAX]);

/* The generations in pending/ in log order; *out is the caller's to free(). ERR_CORRUPT for names
 * that are no generations' or that overlap, ERR_IO, ERR_NO_MEMORY. Files whose name ends in ".tmp"
 * are ignored. */
int layout_list_pending(const struct layout *l, struct layout_generation **out, uint32_t *count,
                        struct err *e) MUST_CHECK;

#endif
