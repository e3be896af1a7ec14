/* rot_tree: a journal's directory on the model disk of which every byte's meaning is known: which
 * file, which batch, and in what state a walk over the batches comes to it. For tests that damage
 * it. */
#ifndef TESTS_LIB_ROT_TREE_H
#define TESTS_LIB_ROT_TREE_H

#include "journal/read.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/modeldisk.h"

#define ROT_DIR         "/m/data"
#define ROT_FILES_MAX   256
#define ROT_BATCHES_MAX 2000
#define ROT_EVENTS_MAX  8000

enum rot_kind { ROT_MANIFEST, ROT_CLOSED, ROT_SEGMENT, ROT_TAIL, ROT_INDEX };
/* How the directory was left. */
enum rot_end { ROT_STOPPED, ROT_SEALED, ROT_KILLED };

struct rot_file {
    char path[400];
    enum rot_kind kind;
    uint64_t size;
    uint32_t batch_from, batch_to;
};

/* A batch, and the state of a walk before it. */
struct rot_batch {
    struct kit_spec spec;
    struct uuid first_id, last_id; /* of its receipt */
    uint64_t offset, bytes;
    uint32_t event, events; /* place of its first one in the tree's */
    bool has_before;
    struct uuid before_id;
    uint8_t head[SHA256_LEN];
};

struct rot_tree {
    struct model *m;
    struct rot_file files[ROT_FILES_MAX];
    uint32_t file_count;
    struct rot_batch batches[ROT_BATCHES_MAX];
    uint32_t batch_count;
    struct slice events[ROT_EVENTS_MAX]; /* as sent to a reader */
    uint32_t event_count;
    struct buf streams; /* all rows, as rot_read_streams puts them */
    struct journal_frontier frontier;
};

extern const struct journal_options rot_options;

/* At least `bytes` of data in small generations, closed cleanly, all of them plain; or all but the
 * newest closed one sealed; or what a cut leaves: the tail with its zeros behind. The tree's disk
 * is in use afterwards. */
struct rot_tree *rot_tree_make(uint64_t seed, uint64_t bytes, enum rot_end end);
void rot_tree_free(struct rot_tree *tree);
/* The batch that holds a byte of a generation; NULL behind the last. */
const struct rot_batch *rot_batch_at(const struct rot_tree *tree, const struct rot_file *f,
                                     uint64_t at);
struct kit_spec rot_spec(uint64_t seed, uint32_t number);
/* Appends a batch; the journal's answer. */
int rot_send(struct journal *j, struct kit_spec spec, struct journal_result *result, struct err *e);
/* Reads behind `from` (NULL: from the start) to the end and holds it against the tree. Returns the
 * place behind the last event that was served; *r says how it ended, *wrong that the next one had
 * other bytes. */
uint64_t rot_read_all(const struct rot_tree *tree, struct journal *j, const struct rot_batch *from,
                      bool *wrong, int *r);
int rot_read_streams(struct journal *j, struct buf *out, struct err *e);

#endif
