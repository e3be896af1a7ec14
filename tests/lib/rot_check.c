/* See the header. */
#include "tests/lib/rot_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "journal/bytes.h"
#include "journal/read.h"
#include "journal/scan.h"
#include "os/os.h"

#define FRESH   50000 /* number of a batch that nobody sent before */
#define RETRIES 4     /* batches of the sealed generations that are sent again */

bool rot_no(struct rot_test *t, const char *what, const char *detail)
{
    t->violations++;
    printf("VIOLATION %s: %s\n  --seed %" PRIu64 " --repro %s:%" PRIu64 ":%u\n", what, detail,
           t->seed, t->now.file->path, t->now.at, t->now.bit);
    if (t->verbose && t->repro[0] != '\0' && model_in_use() != NULL) {
        model_trace_print(model_in_use(), stdout);
    }
    (void)fflush(stdout);
    return false;
}

static enum verify_fault name_fault(int r, enum scan_fault f, enum rot_kind kind)
{
    static const enum verify_fault faults[] = {[SCAN_FAULT_CONTENT] = VERIFY_CONTENT,
                                               [SCAN_FAULT_EVENT] = VERIFY_EVENT,
                                               [SCAN_FAULT_DIGEST] = VERIFY_BATCH,
                                               [SCAN_FAULT_ORDER] = VERIFY_ORDER};
    if (r == 0 || f == SCAN_FAULT_NONE || f == SCAN_FAULT_FRAMING) {
        return kind == ROT_CLOSED ? VERIFY_PENDING : VERIFY_TAIL;
    }
    return faults[f];
}

bool rot_is_refused(const struct rot_file *f, const struct rot_batch *p,
                    enum verify_fault *foretold)
{
    struct scan s;
    struct scan_batch b;
    struct err e;
    int fd = os_open(f->path, O_RDONLY, 0);
    ensure(fd >= 0);
    scan_start(&s, fd, f->size, p->has_before ? &p->before_id : NULL, p->head);
    s.origin = ORIGIN_OWN;
    s.offset = p->offset;
    int r = scan_next(&s, &b, NULL, NULL, &e);
    *foretold = name_fault(r, s.fault, f->kind);
    bool there = s.offset == p->offset;
    scan_stop(&s);
    (void)os_close(fd);
    return there && (r == 0 || r == ERR_CORRUPT);
}

bool rot_verify_names(struct rot_test *t, const struct rot_batch *p, enum verify_fault fault)
{
    struct verify_report rep;
    struct err e = {0};
    char text[600];
    int r = verify_journal(ROT_DIR, NULL, NULL, &rep, &e);
    if (r != 0) {
        return rot_no(t, "verify gave no report", e.text);
    }
    bool right = !rep.ok && rep.fault == fault && rep.fault_has_offset &&
                 rep.fault_offset == p->offset &&
                 strcmp(rep.fault_file, t->now.file->path + sizeof ROT_DIR) == 0;
    (void)snprintf(text, sizeof text, "%s in %s at %" PRIu64 ", and not %s at %" PRIu64,
                   verify_fault_name(rep.fault), rep.fault_file, rep.fault_offset,
                   verify_fault_name(fault), p->offset);
    verify_report_free(&rep);
    return right || rot_no(t, "verify says something else than its walk", text);
}

bool rot_opens_damaged(struct rot_test *t, const struct rot_tree *tree,
                       const struct rot_batch *from, uint64_t proven)
{
    struct journal *j;
    struct journal_status st;
    struct journal_result result;
    struct err e = {0};
    int end;
    t->opens++;
    if (journal_open(ROT_DIR, &rot_options, &j, &e) != 0) {
        return rot_no(t, "open", e.text);
    }
    journal_get_status(j, &st);
    bool ok = st.damaged && st.frontier.events == proven;
    ok = ok || rot_no(t, "open",
                      st.damaged ? "it serves more or less than what is proven"
                                 : "the damage was not noticed");
    bool wrong;
    uint64_t served = rot_read_all(tree, j, from, &wrong, &end);
    ok = ok && ((!wrong && end == 0 && served == proven) ||
                rot_no(t, "read", "not everything that precedes the damage was served"));
    ok = ok && (rot_send(j, rot_spec(t->seed, FRESH), &result, &e) == ERR_WRITER_POISONED ||
                rot_no(t, "append", "a damaged journal takes batches"));
    (void)journal_close(j, &e);
    return ok;
}

bool rot_opens_and_reads(struct rot_test *t, const struct rot_tree *tree)
{
    struct journal *j;
    struct err e = {0};
    int end;
    bool wrong;
    t->opens++;
    if (journal_open(ROT_DIR, &rot_options, &j, &e) != 0) {
        return rot_no(t, "open", e.text);
    }
    uint64_t served = rot_read_all(tree, j, NULL, &wrong, &end);
    (void)journal_close(j, &e);
    if (wrong) {
        return rot_no(t, "read", "an event with other bytes was served");
    }
    if (end != ERR_CORRUPT) {
        return rot_no(t, "read", "it did not end with an error at the damage");
    }
    /* A block is given out when its checksum holds, so it ends where the block begins. */
    uint64_t block = t->now.at - t->now.at % BYTES_CRC_BLOCK;
    return served >= rot_batch_at(tree, t->now.file, block)->event ||
           rot_no(t, "read", "it ended before the block that is damaged");
}

void rot_remove_index(const struct rot_tree *tree)
{
    for (uint32_t i = 0; i < tree->file_count; i++) {
        if (tree->files[i].kind == ROT_INDEX) {
            int r = os_unlink(tree->files[i].path);
            ensure(r == 0);
        }
    }
}

struct model *rot_turn_to_copy(const struct rot_tree *tree)
{
    struct model *copy = model_snapshot(tree->m);
    model_use(copy);
    return copy;
}

void rot_turn_back(const struct rot_tree *tree, struct model *copy)
{
    model_free(copy);
    model_use(tree->m);
}

/* Batches that a journal has are known, or the append fails. */
static bool knows(struct rot_test *t, const struct rot_tree *tree, struct journal *j)
{
    uint64_t chance = kit_mix(t->seed ^ t->flips);
    for (unsigned i = 0; i < RETRIES; i++) {
        const struct rot_batch *b = &tree->batches[kit_chance(&chance) % tree->batch_count];
        struct journal_result result;
        struct err e;
        int r = rot_send(j, b->spec, &result, &e);
        t->refused += r != 0;
        if (r == 0 &&
            (result.outcome != JOURNAL_DUPLICATE || uuid_cmp(&result.first_id, &b->first_id) != 0 ||
             uuid_cmp(&result.last_id, &b->last_id) != 0)) {
            return rot_no(t, "append", "a batch that is there was not known");
        }
    }
    return true;
}

void rot_sealed_is_right(struct rot_test *t, const struct rot_tree *tree)
{
    struct journal *j;
    struct journal_status st;
    struct err e = {0};
    bool wrong;
    int end;
    t->opens++;
    if (journal_open(ROT_DIR, &rot_options, &j, &e) != 0) {
        t->refused++;
        return;
    }
    journal_get_status(j, &st);
    uint64_t served = rot_read_all(tree, j, NULL, &wrong, &end);
    if (wrong) {
        (void)rot_no(t, "read", "an event with other bytes was served");
    } else if (!st.damaged && end != ERR_CORRUPT && (end != 0 || served != tree->event_count)) {
        (void)rot_no(t, "read", "events are missing, and nothing says so");
    } else if (!st.damaged) {
        (void)knows(t, tree, j);
    }
    (void)journal_close(j, &e);
}
