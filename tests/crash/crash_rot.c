/* Bit rot, byte by byte (RELIABILITY L8): a data directory of 1 MiB, closed cleanly, a sealed one,
 * and the tail that a killed server leaves. Every byte of every file has one bit turned, which one
 * chance says; then nothing wrong may be said:
 *   manifest    the journal is not opened, and verify refuses it or names it
 *   closed      verify ends at the batch that holds the byte, so it names the file and a place at
 *               or before the damage
 *   tail        as closed; and the journal opens read-only with what precedes that batch
 *   sealed      another directory: the segment, and the manifest that names it. It is refused, or
 *               what is served is right and what is missing is told; verify says so, too. With the
 *               plain file beside it, as a crash behind the seal's commit leaves both, nothing is
 *               missing: the segment is made again (now and then)
 *   index/      the same answers as without the flip: frontier, streams, receipts of batches sent
 *               again. An append may fail, never be taken for new.
 *   killed tail an earlier group: as tail. The last group: it is lost as a whole, as if torn. The
 *               zeros behind it: nothing is lost.
 *
 *   crash_rot [--seed S] [--step N] [--whole N] [--repro PATH:BYTE:BIT] [-v]
 *
 * THE SHORTCUT. verify reads 1 MiB, so it cannot be asked a million times. It is a walk over
 * batches whose state is (file, offset, last id, head). What precedes the batch that holds the byte
 * has not changed, so the walk comes there in the state in which it came there before the flip; so
 * only that batch is proven again, by the same scan_next, with that state and the whole rest of its
 * file behind it. If it is refused there, verify ends there. --whole N (1499) holds this against
 * the whole on every N-th byte: verify_journal must give the very file, place and fault that were
 * foretold; with the index, and without it, the journal is opened and read to its end.
 *
 * What is read of a closed generation is right to the byte, or the reading ends with an error where
 * the block of 64 KiB begins that is damaged. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "journal/bytes.h"
#include "journal/chain.h"
#include "journal/layout.h"
#include "journal/read.h"
#include "journal/scan.h"
#include "journal/segment.h"
#include "os/os.h"
#include "tests/lib/rot_check.h"

#define SIZE           (1u << 20)
#define SEALED_SIZE    (150u << 10) /* of data: one segment, one plain generation, a tail */
#define KILLED_SIZE    (40u << 10)  /* of data, in a tail of 64 KiB */
#define VIOLATIONS_MAX 5
#define RETRIES        8     /* batches sent again per flip of the index; now and then all */
#define FRESH          50000 /* number of a batch that nobody sent before */
#define BESIDE         32    /* of so many flips of a segment one with its plain file beside it */
/* ---- one flip ---- */

static void turn(struct rot_test *t, const struct rot_tree *tree)
{
    int r = model_rot(tree->m, t->now.file->path, t->now.at, (unsigned char)(1u << t->now.bit));
    ensure(r == 0);
}

/* The whole path, of a byte of a generation that is closed. */
static void whole(struct rot_test *t, const struct rot_tree *tree, const struct rot_batch *p,
                  enum verify_fault foretold)
{
    struct model *copy = rot_turn_to_copy(tree);
    t->wholes++;
    if (rot_verify_names(t, p, foretold) && t->now.file->kind == ROT_CLOSED &&
        rot_opens_and_reads(t, tree)) {
        rot_remove_index(tree);
        (void)rot_opens_damaged(t, tree, NULL, p->event);
    }
    rot_turn_back(tree, copy);
}

static void flip_generation(struct rot_test *t, const struct rot_tree *tree)
{
    const struct rot_file *f = t->now.file;
    const struct rot_batch *p = rot_batch_at(tree, f, t->now.at);
    enum verify_fault foretold;
    ensure(p != NULL);
    turn(t, tree);
    if (!rot_is_refused(f, p, &foretold)) {
        (void)rot_no(t, "a batch was taken for good", "verify would pass over the damage");
    } else if (f->kind == ROT_TAIL) {
        struct model *copy = rot_turn_to_copy(tree);
        (void)rot_opens_damaged(t, tree, &tree->batches[f->batch_from], p->event);
        rot_turn_back(tree, copy);
    }
    if (t->flips % t->whole == 0 || t->repro[0] != '\0') {
        whole(t, tree, p, foretold);
    }
    turn(t, tree);
}

static void flip_manifest(struct rot_test *t, const struct rot_tree *tree)
{
    struct verify_report rep;
    struct journal *j;
    struct err e = {0};
    turn(t, tree);
    struct model *copy = rot_turn_to_copy(tree);
    int r = verify_journal(ROT_DIR, NULL, NULL, &rep, &e);
    if (r == 0) {
        if (rep.ok || strcmp(rep.fault_file, "journal/manifest.jsonl") != 0) {
            (void)rot_no(t, "verify", "it says nothing of the manifest");
        }
        verify_report_free(&rep);
    }
    t->opens++;
    r = journal_open(ROT_DIR, &rot_options, &j, &e);
    if (r == 0) {
        (void)journal_close(j, &e);
        (void)rot_no(t, "open", "the manifest was taken for good");
    }
    t->refused += r != 0;
    rot_turn_back(tree, copy);
    turn(t, tree);
}

/* ---- the index ---- */

static bool sent_again(struct rot_test *t, const struct rot_tree *tree, struct journal *j,
                       uint32_t which)
{
    const struct rot_batch *b = &tree->batches[which];
    struct journal_result result;
    struct err e;
    int r = rot_send(j, b->spec, &result, &e);
    if (r != 0) {
        t->refused++;
        return true;
    }
    return (result.outcome == JOURNAL_DUPLICATE && uuid_cmp(&result.first_id, &b->first_id) == 0 &&
            uuid_cmp(&result.last_id, &b->last_id) == 0) ||
           rot_no(t, "append", "a batch that is there was not known");
}

static bool answers_as_before(struct rot_test *t, const struct rot_tree *tree, struct journal *j)
{
    struct journal_status st;
    struct buf rows = {0};
    struct err e = {0};
    journal_get_status(j, &st);
    bool ok = !st.poisoned && st.frontier.events == tree->frontier.events &&
              memcmp(st.frontier.head, tree->frontier.head, SHA256_LEN) == 0;
    ok = ok || rot_no(t, "open", "another frontier");
    int r = ok ? rot_read_streams(j, &rows, &e) : 0;
    ok = ok && (r != 0 || slice_eq(buf_slice(&rows), buf_slice(&tree->streams)) ||
                rot_no(t, "streams", "other rows"));
    t->refused += r != 0;
    buf_free(&rows);
    bool all = t->flips % (8 * RETRIES) == 0 || t->repro[0] != '\0';
    uint64_t chance = kit_mix(t->seed ^ t->flips);
    for (uint32_t i = 0; ok && i < (all ? tree->batch_count : RETRIES); i++) {
        ok = sent_again(t, tree, j, all ? i : (uint32_t)(kit_chance(&chance) % tree->batch_count));
    }
    struct journal_result result;
    r = ok ? rot_send(j, rot_spec(t->seed, FRESH), &result, &e) : 0;
    ok = ok && (r != 0 || result.outcome == JOURNAL_COMMITTED ||
                rot_no(t, "append", "a new batch was taken for an old one"));
    return ok;
}

/* A journal that takes appends and serves the first `whole` events, and no others. */
static void serves(struct rot_test *t, const struct rot_tree *tree, struct journal *j,
                   uint64_t whole)
{
    struct journal_result result;
    struct err e;
    bool wrong;
    int end;
    uint64_t served = rot_read_all(tree, j, NULL, &wrong, &end);
    if (wrong || end != 0 || served != whole) {
        (void)rot_no(t, "read", "more or less was served than what is there");
    } else if (rot_send(j, rot_spec(t->seed, FRESH + 1), &result, &e) == 0 &&
               result.outcome != JOURNAL_COMMITTED) {
        (void)rot_no(t, "append", "a new batch was taken for an old one");
    }
}

static void flip_index(struct rot_test *t, const struct rot_tree *tree)
{
    struct journal *j;
    struct err e = {0};
    turn(t, tree);
    struct model *copy = rot_turn_to_copy(tree);
    t->opens++;
    if (journal_open(ROT_DIR, &rot_options, &j, &e) != 0) {
        (void)rot_no(t, "open", e.text); /* whatever is in index/ can be made again */
    } else {
        if (answers_as_before(t, tree, j) && t->flips % t->whole == 0) {
            serves(t, tree, j, tree->event_count);
        }
        (void)journal_close(j, &e);
    }
    rot_turn_back(tree, copy);
    turn(t, tree);
}

/* ---- sealed generations ---- */

/* When a segment was sealed is for people: nothing is decided by it, and nothing covers it. */
static bool is_a_date(const struct rot_flip *f)
{
    static const char name[] = "\"sealed_at\":\"";
    char text[64] = {0};
    uint64_t from = f->at > 40 ? f->at - 40 : 0;
    struct bytes_file *file = NULL;
    struct bytes_reader r;
    struct err e;
    int opened = bytes_file_open(f->file->path, 0, &file, &e);
    ensure(opened == 0);
    bytes_start(&r, file);
    int64_t n = bytes_read(&r, text, (size_t)(f->at - from), from, &e);
    ensure(n == (int64_t)(f->at - from));
    bytes_stop(&r);
    bytes_file_close(file);
    const char *at = strstr(text, name);
    return at != NULL && strchr(at + sizeof name - 1, '"') == NULL;
}

/* The plain bytes of a segment. */
static struct slice plain_of(const char *segment)
{
    static char lines[2 * SEALED_SIZE];
    struct bytes_file *file = NULL;
    struct bytes_reader r;
    struct err e;
    int opened = bytes_file_open(segment, 0, &file, &e);
    ensure(opened == 0);
    bytes_start(&r, file);
    int64_t n = bytes_read(&r, lines, sizeof lines, 0, &e);
    ensure(n > 0 && (uint64_t)n == file->segment->plain_bytes);
    bytes_stop(&r);
    bytes_file_close(file);
    return slice_of(lines, (size_t)n);
}

static void put_plain(const char *segment, struct slice lines)
{
    struct layout layout;
    struct layout_generation g;
    struct err e;
    char path[LAYOUT_PATH_MAX];
    bool named = layout_make(&layout, ROT_DIR, &e) == 0 &&
                 layout_segment_parse(slice_cstr(strrchr(segment, '/') + 1), &g);
    ensure(named);
    layout_pending_path(&layout, &g.first_id, &g.last_id, path);
    int fd = os_open(path, O_RDWR | O_CREAT, 0600);
    ensure(fd >= 0);
    int put = os_pwrite_all(fd, lines.ptr, lines.len, 0, NULL);
    ensure(put == 0);
    (void)os_close(fd);
}

static void flip_beside_plain(struct rot_test *t, const struct rot_tree *tree)
{
    struct journal *j;
    struct err e = {0};
    struct slice lines = plain_of(t->now.file->path);
    turn(t, tree);
    struct model *copy = rot_turn_to_copy(tree);
    put_plain(t->now.file->path, lines);
    t->opens++;
    if (journal_open(ROT_DIR, &rot_options, &j, &e) != 0) {
        (void)rot_no(t, "open, beside a plain file", e.text);
    } else {
        if (answers_as_before(t, tree, j)) {
            serves(t, tree, j, tree->event_count);
        }
        (void)journal_close(j, &e);
    }
    rot_turn_back(tree, copy);
    turn(t, tree);
}

/* verify hashes a segment whole before anything else, so it is asked now and then only; of the
 * manifest, which is small, always. */
static void flip_sealed(struct rot_test *t, const struct rot_tree *tree)
{
    turn(t, tree);
    struct model *copy = rot_turn_to_copy(tree);
    if (t->now.file->kind == ROT_MANIFEST || t->flips % 8 == 0 || t->repro[0] != '\0') {
        struct verify_report rep;
        struct err e = {0};
        int r = verify_journal(ROT_DIR, NULL, NULL, &rep, &e);
        bool date = t->now.file->kind == ROT_MANIFEST && is_a_date(&t->now);
        if (r == 0 && rep.ok && !date) {
            (void)rot_no(t, "verify", "it says nothing");
        }
        if (r == 0) {
            verify_report_free(&rep);
        }
    }
    rot_sealed_is_right(t, tree);
    rot_turn_back(tree, copy);
    turn(t, tree);
    if (t->now.file->kind == ROT_SEGMENT && t->flips % BESIDE == 0) {
        flip_beside_plain(t, tree);
    }
}

/* ---- the tail of a killed server ---- */

/* What verify says of it: damage at the batch, or a remnant of a torn group. */
static bool verify_tail(struct rot_test *t, const struct rot_batch *p, bool last)
{
    struct verify_report rep;
    struct err e = {0};
    int r = verify_journal(ROT_DIR, NULL, NULL, &rep, &e);
    if (r != 0) {
        return rot_no(t, "verify gave no report", e.text);
    }
    bool told = rep.ok ? last && rep.remnants.len > 0
                       : rep.fault_has_offset && rep.fault_offset <= t->now.at &&
                             (p == NULL || rep.fault_offset == p->offset);
    verify_report_free(&rep);
    return told || rot_no(t, "verify", "it says nothing, or names a place behind the damage");
}

static void opens_shorter(struct rot_test *t, const struct rot_tree *tree,
                          const struct rot_batch *p)
{
    struct journal *j;
    struct journal_status st;
    struct err e = {0};
    t->opens++;
    if (journal_open(ROT_DIR, &rot_options, &j, &e) != 0) {
        (void)rot_no(t, "open", e.text);
        return;
    }
    journal_get_status(j, &st);
    if (!st.damaged) {
        serves(t, tree, j, p == NULL ? tree->event_count : p->event);
    }
    (void)journal_close(j, &e);
    if (st.damaged) {
        /* An id that was changed may pass for one of another journal: refused, and told. */
        (void)rot_opens_damaged(t, tree, NULL, p == NULL ? tree->event_count : p->event);
    }
}

static void flip_killed(struct rot_test *t, const struct rot_tree *tree)
{
    const struct rot_batch *p = rot_batch_at(tree, t->now.file, t->now.at);
    bool last = p == NULL || p == &tree->batches[tree->batch_count - 1];
    turn(t, tree);
    struct model *copy = rot_turn_to_copy(tree);
    if (verify_tail(t, p, last)) {
        if (t->now.at + 1 == t->now.file->size) {
            /* A last byte that is not zero says "closed cleanly": then nothing may be torn. */
            (void)rot_opens_damaged(t, tree, NULL, tree->event_count);
        } else if (!last) {
            (void)rot_opens_damaged(t, tree, NULL, p->event);
        } else {
            opens_shorter(t, tree, p);
        }
    }
    rot_turn_back(tree, copy);
    turn(t, tree);
}

typedef void flip_fn(struct rot_test *t, const struct rot_tree *tree);
static void flip_file(struct rot_test *t, const struct rot_tree *tree, const struct rot_file *f,
                      flip_fn *fn)
{
    uint64_t name = 0;
    for (const char *p = f->path; *p != '\0'; p++) {
        name = kit_mix(name ^ (unsigned char)*p);
    }
    for (uint64_t at = 0; at < f->size && t->violations < VIOLATIONS_MAX; at += t->step) {
        bool wanted = t->repro[0] == '\0' || (strcmp(t->repro, f->path) == 0 && at == t->repro_at);
        t->now = (struct rot_flip){f, at, kit_mix(t->seed ^ name ^ at) & 7};
        if (wanted) {
            t->now.bit = t->repro[0] == '\0' ? t->now.bit : t->repro_bit;
            fn(t, tree);
            t->flips++;
        }
    }
}

/* What is done with the files of a tree; NULL: another tree has the same. */
static flip_fn *const flips[][ROT_INDEX + 1] = {
    [ROT_STOPPED] = {[ROT_MANIFEST] = flip_manifest,
                     [ROT_CLOSED] = flip_generation,
                     [ROT_TAIL] = flip_generation,
                     [ROT_INDEX] = flip_index},
    [ROT_SEALED] = {[ROT_MANIFEST] = flip_sealed, [ROT_SEGMENT] = flip_sealed},
    [ROT_KILLED] = {[ROT_TAIL] = flip_killed},
};

static void flip_all(struct rot_test *t, enum rot_end end, uint64_t bytes)
{
    static const char *const names[] = {"closed", "sealed", "killed"};
    struct rot_tree *tree = rot_tree_make(t->seed, bytes, end);
    for (uint32_t i = 0; i < tree->file_count; i++) {
        const struct rot_file *f = &tree->files[i];
        uint64_t from = os_real.clock_mono_ns();
        if (flips[end][f->kind] != NULL) {
            flip_file(t, tree, f, flips[end][f->kind]);
        }
        if (t->verbose) {
            printf("%8" PRIu64 " bytes %s, %.1f s\n", f->size, f->path + sizeof ROT_DIR,
                   (double)(os_real.clock_mono_ns() - from) / 1e9);
        }
    }
    printf("rot: %s: %u files, %u batches, %u events\n", names[end], tree->file_count,
           tree->batch_count, tree->event_count);
    rot_tree_free(tree);
}

/* ---- arguments ---- */

static bool parse_repro(struct rot_test *t, const char *text)
{
    return sscanf(text, "%255[^:]:%" SCNu64 ":%u", t->repro, &t->repro_at, &t->repro_bit) == 3 &&
           t->repro_bit < 8;
}

static bool parse(struct rot_test *t, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            t->verbose = true;
            continue;
        }
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value == NULL) {
            return false;
        }
        if (strcmp(argv[i], "--seed") == 0) {
            t->seed = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--step") == 0) {
            t->step = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--whole") == 0) {
            t->whole = strtoull(value, NULL, 0);
        } else if (strcmp(argv[i], "--repro") != 0 || !parse_repro(t, value)) {
            return false;
        }
        i++;
    }
    return t->step > 0 && t->whole > 0;
}

int main(int argc, char **argv)
{
    static struct rot_test t = {.seed = 1, .step = 1, .whole = 1499};
    if (!parse(&t, argc, argv)) {
        printf("usage: crash_rot [--seed S] [--step N] [--whole N] "
               "[--repro PATH:BYTE:BIT] [-v]\n");
        return 2;
    }
    log_set_level(LOG_ERROR + 1);
    flip_all(&t, ROT_STOPPED, SIZE);
    flip_all(&t, ROT_SEALED, SEALED_SIZE);
    flip_all(&t, ROT_KILLED, KILLED_SIZE);
    printf("rot: %" PRIu64 " flips, %" PRIu64 " of them held against the whole, %" PRIu64
           " opens, %" PRIu64 " refusals, seed %" PRIu64 ", %u violations\n",
           t.flips, t.wholes, t.opens, t.refused, t.seed, t.violations);
    return t.violations > 0 || t.flips == 0;
}
