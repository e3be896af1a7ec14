/* See the header. What is known of the tree is read from its files with scan.h, and held against
 * what the journal said when it took the batches. */
#include "tests/lib/rot_tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "journal/bytes.h"
#include "journal/chain.h"
#include "journal/line.h"
#include "journal/scan.h"
#include "journal/seal.h"
#include "os/os.h"

const struct journal_options rot_options = {.generation_bytes = 64u << 10, .group_bytes = 1u << 20};

struct kit_spec rot_spec(uint64_t seed, uint32_t number)
{
    uint64_t chance = kit_mix(seed ^ (uint64_t)number << 32);
    return (struct kit_spec){number, 1 + (uint32_t)(chance % 3),
                             40 + (uint32_t)((chance >> 8) % 1400)};
}

int rot_send(struct journal *j, struct kit_spec spec, struct journal_result *result, struct err *e)
{
    struct kit_batch kb;
    kit_batch_make(&kb, spec);
    int r = journal_append(j, &kb.batch, result, e);
    kit_batch_free(&kb);
    return r;
}

static void fill(struct rot_tree *tree, struct journal *j, uint64_t seed, uint64_t bytes)
{
    struct journal_status st = {0};
    while (st.bytes < bytes) {
        struct journal_result result;
        struct err e;
        ensure(tree->batch_count < ROT_BATCHES_MAX);
        struct rot_batch *b = &tree->batches[tree->batch_count];
        b->spec = rot_spec(seed, tree->batch_count);
        int r = rot_send(j, b->spec, &result, &e);
        ensure(r == 0);
        ensure(result.outcome == JOURNAL_COMMITTED);
        b->first_id = result.first_id;
        b->last_id = result.last_id;
        tree->batch_count++;
        r = journal_commit(j, &e);
        ensure(r == 0);
        journal_get_status(j, &st);
    }
}

static int note_name(void *ctx, const char *name)
{
    struct rot_tree *tree = ctx;
    ensure(tree->file_count + 1 < ROT_FILES_MAX);
    struct rot_file dir = tree->files[tree->file_count]; /* whose path is the directory's */
    struct rot_file *f = &tree->files[tree->file_count];
    struct os_stat st;
    int n = snprintf(f->path, sizeof f->path, "%.200s/%.180s", dir.path, name);
    ensure(n > 0 && (size_t)n < sizeof f->path);
    int r = os_stat(f->path, &st);
    ensure(r == 0);
    if (S_ISDIR(st.mode)) {
        *f = dir;
        return 0;
    }
    f->size = st.size;
    tree->files[++tree->file_count] = dir;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct rot_file *)a)->path, ((const struct rot_file *)b)->path);
}

static void note_folder(struct rot_tree *tree, const char *path, enum rot_kind kind)
{
    uint32_t from = tree->file_count;
    tree->files[from] = (struct rot_file){.kind = kind};
    (void)snprintf(tree->files[from].path, sizeof tree->files[from].path, "%s", path);
    int r = os_list(path, note_name, tree);
    ensure(r == 0 || r == -ENOENT); /* index/ comes with the first closed generation */
    qsort(&tree->files[from], tree->file_count - from, sizeof *tree->files, by_path);
}

static int note_event(void *ctx, const struct line *l)
{
    struct rot_tree *tree = ctx;
    struct buf text = {0};
    ensure(tree->event_count < ROT_EVENTS_MAX);
    line_put_event(&text, l);
    ensure(!text.failed);
    tree->events[tree->event_count++] = slice_of(text.ptr, text.len); /* the tree's from here */
    return 0;
}

/* All batches of one file, and the state before each. *state is carried on to the next file. */
static void note_batches(struct rot_tree *tree, struct rot_file *f, struct rot_batch *state,
                         uint32_t *next)
{
    struct scan s;
    struct scan_batch b;
    struct err e;
    struct bytes_file *file = NULL;
    int opened = bytes_file_open(f->path, 0, &file, &e);
    ensure(opened == 0);
    scan_start_file(&s, file, UINT64_MAX, state->has_before ? &state->before_id : NULL,
                    state->head);
    f->batch_from = *next;
    for (;;) {
        state->offset = s.offset;
        state->event = tree->event_count;
        int r = scan_next(&s, &b, note_event, tree, &e);
        if (r == 0) {
            break;
        }
        ensure(r == 1);
        ensure(*next < tree->batch_count);
        struct rot_batch *p = &tree->batches[(*next)++];
        ensure(uuid_cmp(&b.first_id, &p->first_id) == 0);
        ensure(uuid_cmp(&b.last_id, &p->last_id) == 0);
        state->spec = p->spec;
        state->first_id = b.first_id;
        state->last_id = b.last_id;
        state->bytes = b.bytes;
        state->events = b.events;
        *p = *state;
        state->has_before = true;
        state->before_id = s.last_id;
        memcpy(state->head, s.head, SHA256_LEN);
    }
    f->batch_to = *next;
    scan_stop(&s);
    bytes_file_close(file);
}

static int put_stream(void *ctx, const struct index_stream *row)
{
    char id[UUID_TEXT_LEN];
    uuid_text(id, &row->last_id);
    buf_put_slice(ctx, row->source);
    buf_put_slice(ctx, row->stream);
    buf_put(ctx, id, sizeof id);
    buf_put_u64(ctx, row->events);
    return 0;
}

int rot_read_streams(struct journal *j, struct buf *out, struct err *e)
{
    struct journal_frontier f;
    journal_get_frontier(j, &f);
    return journal_read_streams(j, &f.last_id, SLICE(""), put_stream, out, e);
}

static void note_all(struct rot_tree *tree)
{
    struct rot_batch state = {0};
    uint32_t next = 0;
    memcpy(state.head, chain_genesis, SHA256_LEN);
    note_folder(tree, ROT_DIR "/journal/segments", ROT_SEGMENT);
    note_folder(tree, ROT_DIR "/journal/pending", ROT_CLOSED);
    note_folder(tree, ROT_DIR "/journal", ROT_TAIL);
    note_folder(tree, ROT_DIR "/index", ROT_INDEX);
    for (uint32_t i = 0; i < tree->file_count; i++) {
        struct rot_file *f = &tree->files[i];
        if (strcmp(f->path, ROT_DIR "/journal/manifest.jsonl") == 0) {
            f->kind = ROT_MANIFEST;
        } else if (f->kind != ROT_INDEX) {
            note_batches(tree, f, &state, &next);
        }
    }
    ensure(next == tree->batch_count);
    ensure(tree->event_count == tree->frontier.events);
}

struct rot_tree *rot_tree_make(uint64_t seed, uint64_t bytes, enum rot_end end)
{
    struct rot_tree *tree = calloc(1, sizeof *tree);
    struct journal *j;
    struct err e = {0};
    ensure(tree != NULL);
    tree->m = model_new(&(struct model_options){.seed = seed});
    model_use(tree->m);
    int r = journal_open(ROT_DIR, &rot_options, &j, &e);
    ensure(r == 0);
    fill(tree, j, seed, bytes);
    r = end == ROT_SEALED ? journal_seal(j, 1, NULL, NULL, &e) : 0;
    ensure(r == 0);
    r = rot_read_streams(j, &tree->streams, &e);
    ensure(r == 0);
    journal_get_frontier(j, &tree->frontier);
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *after = end == ROT_KILLED ? model_crash(tree->m, &none) : NULL;
    r = journal_close(j, &e);
    ensure(r == 0);
    if (after != NULL) {
        model_free(tree->m);
        tree->m = after;
        model_use(after);
        r = os_unlink(ROT_DIR
                      "/journal/tail.next"); /* zeros of the next tail; a start does the same */
        ensure(r == 0);
        r = os_sync_dir(ROT_DIR "/journal");
        ensure(r == 0);
    }
    note_all(tree);
    return tree;
}

void rot_tree_free(struct rot_tree *tree)
{
    for (uint32_t i = 0; i < tree->event_count; i++) {
        free((void *)(uintptr_t)tree->events[i].ptr);
    }
    buf_free(&tree->streams);
    model_free(tree->m);
    free(tree);
}

const struct rot_batch *rot_batch_at(const struct rot_tree *tree, const struct rot_file *f,
                                     uint64_t at)
{
    for (uint32_t i = f->batch_from; i < f->batch_to; i++) {
        if (at < tree->batches[i].offset + tree->batches[i].bytes) {
            return &tree->batches[i];
        }
    }
    return NULL;
}

static bool is_event(const struct rot_tree *tree, uint64_t at, const struct buf *text)
{
    return at < tree->event_count && slice_eq(tree->events[at], buf_slice(text));
}

uint64_t rot_read_all(const struct rot_tree *tree, struct journal *j, const struct rot_batch *from,
                      bool *wrong, int *r)
{
    struct journal_reader *reader;
    struct line l;
    struct err e;
    struct buf text = {0};
    *wrong = false;
    uint64_t at = from != NULL ? from->event : 0;
    *r = journal_reader_open(j, from != NULL && from->has_before ? &from->before_id : NULL, NULL,
                             NULL, NULL, &reader, &e);
    if (*r != 0) {
        return 0;
    }
    while ((*r = journal_reader_next(reader, &l, 0, &e)) == 1) {
        buf_clear(&text);
        line_put_event(&text, &l);
        if (!is_event(tree, at, &text)) {
            *wrong = true;
            break;
        }
        at++;
    }
    journal_reader_close(reader);
    buf_free(&text);
    return at;
}
