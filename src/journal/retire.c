/* Retiring a source, and what a retired source or a lineage marker means for a batch
 * (spec/history.md sections 6 and 7). Steps of the writer stage, decided like all of them against
 * everything committed and staged: append.c has done duplicate and conflict before, and does the
 * stream precondition behind.
 *
 * A retirement is an ordinary batch of one event, of source `system`, in the group like any other.
 * If power fails: as append.c says of a group. What memory knows of retirements is staged with the
 * group, kept when it is published, and taken back when it is dropped; after a start it is what the
 * log says, so a group that was in doubt is retired or not as its event is there or not.
 *
 * At a start, lines that are proven anyway (the tail, a generation without a summary) are looked at
 * as they pass; of closed generations with a summary only those are read that have the stream, and
 * of these the part from the first line to the last retirement.
 *
 * Answers: all outcomes. ERR_UNSUPPORTED at a start: the log holds, in the stream of retirements,
 * what cannot be one; it is proven, so it is no damage, but nobody can say which sources are
 * retired. */
#include "base/ensure.h"
#include "base/hash.h"
#include "journal/chain.h"
#include "journal/internal.h"
#include "journal/line.h"
#include "journal/read.h"

#define Q(text) SLICE("\"" text "\"")

/* ---- batches ---- */

static int check_marker(struct journal *j, const struct journal_batch *b, struct journal_result *r)
{
    struct uuid ignored;
    if (b->marker_flaw != NULL) {
        r->outcome = JOURNAL_LINEAGE_INVALID;
        return 1;
    }
    const struct lifecycle_entry *p = lifecycle_find(j->lifecycle, line_inner(b->predecessor));
    if (p != NULL && uuid_cmp(&p->final_frontier, &b->predecessor_frontier) == 0 &&
        !streams_source(j->streams, line_inner(b->source), &ignored)) {
        return 0;
    }
    r->outcome = JOURNAL_LINEAGE_CONFLICT;
    r->actual_none = p == NULL;
    if (p != NULL) {
        r->actual_frontier = p->final_frontier;
    }
    return 1;
}

int journal_check_lifecycle(struct journal *j, const struct journal_batch *b,
                            struct journal_result *r)
{
    const struct lifecycle_entry *own = lifecycle_find(j->lifecycle, line_inner(b->source));
    if (own != NULL) {
        r->outcome = JOURNAL_SOURCE_RETIRED;
        r->final_frontier = own->final_frontier;
        r->retirement_event_id = own->retirement_event_id;
        return 1;
    }
    return b->has_marker ? check_marker(j, b, r) : 0;
}

/* ---- retiring ---- */

/* The event and the batch; texts go into *text, which must not move afterwards. */
static bool make_batch(struct slice source, const struct uuid *frontier, struct buf *text,
                       struct buf *scratch, struct journal_event *ev, struct journal_batch *b)
{
    char hex[SHA256_HEX_LEN];
    struct chain_digest d;
    lifecycle_put_payload(text, source, frontier);
    size_t payload_len = text->len;
    lifecycle_put_batch_id(text, source, frontier);
    if (text->failed) {
        return false;
    }
    *ev = (struct journal_event){.stream = Q(LIFECYCLE_STREAM),
                                 .record_key = source,
                                 .kind = Q("source_retired"),
                                 .payload = slice_of(text->ptr, payload_len)};
    *b = (struct journal_batch){.source = Q(LIFECYCLE_SYSTEM),
                                .batch_id = slice_from(buf_slice(text), payload_len),
                                .events = ev,
                                .count = 1};
    sha256_once(ev->payload, ev->content_hash);
    hex_encode(hex, ev->content_hash, SHA256_LEN);
    chain_digest_start(&d);
    if (!chain_digest_event(&d, scratch, slice_of(hex, sizeof hex), ev->kind, ev->occurred_at,
                            ev->record_key, ev->stream)) {
        return false;
    }
    chain_digest_end(&d, b->source, b->digest);
    return true;
}

static int stage_retirement(struct journal *j, struct slice source, const struct journal_batch *b,
                            const struct uuid *frontier, struct journal_result *r, struct err *e)
{
    uint8_t fingerprint[16];
    journal_fingerprint(b->source, b->batch_id, fingerprint);
    int code = journal_lookup(j, b, fingerprint, r, e);
    if (code > 0) { /* only a log that another program wrote can hold it */
        return err_set(e, ERR_CORRUPT, "the batch_id of this retirement is taken by another batch");
    }
    if (code == 0) {
        code = lifecycle_reserve(j->lifecycle, line_inner(source));
        code = code != 0 ? err_set(e, code, "no memory for a retirement")
                         : journal_stage(j, b, fingerprint, r, e);
    }
    if (code != 0) {
        return code;
    }
    r->outcome = JOURNAL_RETIRED;
    r->final_frontier = *frontier;
    r->retirement_event_id = r->first_id;
    const struct lifecycle_entry entry = {*frontier, r->first_id};
    lifecycle_add(j->lifecycle, line_inner(source), &entry);
    return 0;
}

int journal_retire(struct journal *j, struct slice source, struct journal_result *r, struct err *e)
{
    struct journal_event ev;
    struct journal_batch b;
    struct uuid frontier;
    struct buf text = {0};
    ensure(!slice_eq(source, Q(LIFECYCLE_SYSTEM)));
    *r = (struct journal_result){0};
    if (j->poisoned) {
        return err_set(e, ERR_WRITER_POISONED, "%s", j->cause);
    }
    int code = journal_keys_ready(j, e);
    if (code != 0) {
        return code;
    }
    const struct lifecycle_entry *known = lifecycle_find(j->lifecycle, line_inner(source));
    if (known != NULL) {
        r->outcome = JOURNAL_ALREADY_RETIRED;
        r->final_frontier = known->final_frontier;
        r->retirement_event_id = known->retirement_event_id;
        return 0;
    }
    if (!streams_source(j->streams, line_inner(source), &frontier)) {
        r->outcome = JOURNAL_SOURCE_UNKNOWN;
        return 0;
    }
    code = make_batch(source, &frontier, &text, &j->scratch, &ev, &b)
               ? stage_retirement(j, source, &b, &frontier, r, e)
               : err_set(e, ERR_NO_MEMORY, "no memory for a retirement");
    buf_free(&text);
    return code;
}

/* ---- at a start ---- */

int journal_note_retirement(struct journal *j, const struct line *l)
{
    struct lifecycle_entry entry = {.retirement_event_id = l->id};
    struct slice source = line_inner(l->record_key);
    if (lifecycle_retirement_flaw(l, &entry.final_frontier) != NULL ||
        lifecycle_find(j->lifecycle, source) != NULL) {
        return ERR_UNSUPPORTED;
    }
    int r = lifecycle_reserve(j->lifecycle, source);
    if (r == 0) {
        lifecycle_add(j->lifecycle, source, &entry);
        lifecycle_keep(j->lifecycle);
    }
    return r;
}

void journal_say_refused(int code, uint64_t offset, struct err *e)
{
    if (e->code == 0) {
        (void)err_set_at(e, code, offset, "%s (byte %llu of a generation)",
                         code == ERR_UNSUPPORTED
                             ? "not the retirement of a source, in the stream of retirements"
                             : "no memory for streams",
                         (unsigned long long)offset);
    }
}

/* The id before this one in byte order. */
static struct uuid before(struct uuid id)
{
    for (int i = 15; i >= 0 && id.byte[i]-- == 0; i--) {
    }
    return id;
}

static int read_retirements(struct journal *j, const struct generation *g,
                            const struct index_stream *row, struct err *e)
{
    static const struct journal_filter filter = {.source = {"\"" LIFECYCLE_SYSTEM "\"", 8},
                                                 .stream = {"\"" LIFECYCLE_STREAM "\"", 28}};
    struct journal_reader *reader;
    struct line l;
    uint64_t left = row->events;
    /* A single one is found by its id; else the lines from the generation's beginning are read. */
    struct uuid after = before(row->events == 1 ? row->last_id : g->first_id);
    int r = journal_reader_open(j, &after, &row->last_id, &filter, NULL, &reader, e);
    if (r != 0) {
        return r;
    }
    while (left > 0 && (r = journal_reader_next(reader, &l, 0, e)) == 1) {
        left--;
        r = journal_note_retirement(j, &l);
        if (r != 0) {
            journal_say_refused(r, 0, e);
            break;
        }
    }
    journal_reader_close(reader);
    if (r == 0 && left > 0) {
        r = err_set(e, ERR_CORRUPT,
                    "closed generation %u does not have the retirements of its "
                    "summary",
                    g->ordinal);
    }
    return r;
}

int journal_load_retirements(struct journal *j, const struct generation *g,
                             const struct index_summary *sum, struct err *e)
{
    for (uint32_t i = 0; i < sum->stream_count; i++) {
        const struct index_stream *row = &sum->streams[i];
        if (slice_eq(row->source, SLICE(LIFECYCLE_SYSTEM)) &&
            slice_eq(row->stream, SLICE(LIFECYCLE_STREAM))) {
            return read_retirements(j, g, row, e);
        }
    }
    return 0;
}
