/* Ledger and oracle; see the header. The oracle computes heads and hashes itself from the
 * lines that a reader gives, with the formulas of chain.c, whose own proof is
 * tests/unit/journal/test_chain.c with vectors made by another program. */
#include "tests/lib/journal_kit_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "journal/event_id.h"
#include "journal/line.h"
#include "journal/read.h"
#include "journal/scan.h"

/* ---- the ledger ---- */

struct kit_entry *kit_find(struct kit_ledger *l, uint32_t number)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->entries[i].spec.number == number) {
            return &l->entries[i];
        }
    }
    return NULL;
}

void kit_lie(struct kit_ledger *l, const char *fmt, ...)
{
    va_list ap;
    if (l->lie[0] != '\0') {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(l->lie, sizeof l->lie, fmt, ap);
    va_end(ap);
}

static bool same_ids(const struct kit_entry *en, const struct journal_result *r)
{
    return uuid_cmp(&en->first_id, &r->first_id) == 0 && uuid_cmp(&en->last_id, &r->last_id) == 0;
}

/* Writes the answer to an append down. */
static void note_answer(struct kit_ledger *l, const struct kit_batch *kb,
                        const struct journal_result *r)
{
    bool known = kit_promised(kit_find(l, kb->spec.number));
    struct kit_entry *en = kit_find_or_add(l, kb->spec);
    if (kit_note_retired(l, kb->spec.number, r)) {
        return;
    }
    if (r->events != kb->spec.count || memcmp(r->digest, kb->batch.digest, SHA256_LEN) != 0) {
        kit_lie(l, "the receipt of batch %u has another digest or count", kb->spec.number);
    }
    if (r->outcome == JOURNAL_COMMITTED && known) {
        kit_lie(l, "batch %u was taken a second time", kb->spec.number);
    } else if (r->outcome == JOURNAL_COMMITTED) {
        en->state = KIT_STAGED;
        en->first_id = r->first_id;
        en->last_id = r->last_id;
    } else if (r->outcome != JOURNAL_DUPLICATE) {
        kit_lie(l, "batch %u is said to conflict", kb->spec.number);
    } else if (en->state == KIT_ABSENT) {
        kit_lie(l, "batch %u is said to be a duplicate and must be absent", kb->spec.number);
    } else if (!same_ids(en, r)) {
        kit_lie(l, "the receipt of batch %u changed", kb->spec.number);
    }
}

int kit_append(struct journal *j, struct kit_ledger *l, struct kit_spec spec, struct err *e)
{
    if (spec.number >= KIT_RETIREMENT) {
        return kit_retire(j, l, spec.number - KIT_RETIREMENT, e);
    }
    struct kit_known *k = kit_known_batch(spec);
    struct journal_result result;
    int r = journal_append(j, &k->kb.batch, &result, e);
    if (r == ERR_GROUP_FULL) {
        r = kit_commit(j, l, e);
        if (r == 0) {
            r = journal_append(j, &k->kb.batch, &result, e);
        }
    }
    if (r == 0) {
        note_answer(l, &k->kb, &result);
    }
    kit_known_done(k);
    return r;
}

int kit_commit(struct journal *j, struct kit_ledger *l, struct err *e)
{
    bool any = journal_pending(j);
    int r = journal_commit(j, e);
    for (uint32_t i = 0; i < l->count; i++) {
        struct kit_entry *en = &l->entries[i];
        if (en->state == KIT_STAGED) {
            en->state = r == 0 ? KIT_ACKED : r == ERR_NO_SPACE ? KIT_ABSENT : KIT_DOUBT;
        }
    }
    if (r == 0 && any) {
        ensure(l->frontier_count < KIT_FRONTIERS_MAX);
        journal_get_frontier(j, &l->frontiers[l->frontier_count++]);
    }
    return r;
}

int kit_put(struct journal *j, struct kit_ledger *l, struct kit_spec spec, struct err *e)
{
    int r = kit_append(j, l, spec, e);
    return r == 0 ? kit_commit(j, l, e) : r;
}

void kit_forget_group(struct kit_ledger *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->entries[i].state == KIT_STAGED) {
            l->entries[i].state = KIT_DOUBT;
        }
    }
}

/* ---- the oracle ---- */

struct walk {
    struct kit_ledger *ledger;
    bool settle;
    char *why;
    struct kit_entry *entry; /* whose lines are being met */
    struct kit_known *batch;
    uint32_t next; /* event of it */
    bool has_last;
    struct uuid last_id;
    char observed_at[24];
    uint8_t head[SHA256_LEN];
    uint64_t events;
    uint32_t frontiers_met;
    struct kit_sources sources;
    struct buf scratch;
};

static bool no(char why[KIT_WHY], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool no(char why[KIT_WHY], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(why, KIT_WHY, fmt, ap);
    va_end(ap);
    return false;
}

static bool begin_batch(struct walk *w, const struct line *l)
{
    unsigned number;
    char id[96];
    ensure(l->batch_id.len < sizeof id);
    memcpy(id, l->batch_id.ptr, l->batch_id.len);
    id[l->batch_id.len] = '\0';
    if (sscanf(id, "\"groundhog/retire/src-%u/", &number) == 1) {
        number += KIT_RETIREMENT;
    } else if (sscanf(id, "\"b-%u\"", &number) != 1) {
        return no(w->why, "an unknown batch %s", id);
    }
    w->entry = kit_find(w->ledger, number);
    if (w->entry == NULL) {
        return no(w->why, "batch %u was never sent", number);
    }
    if (w->entry->seen) {
        return no(w->why, "batch %u is there twice", number);
    }
    if (w->entry->state == KIT_ABSENT) {
        return no(w->why, "batch %u must be absent and is there", number);
    }
    w->entry->seen = true;
    w->next = 0;
    w->batch =
        number >= KIT_RETIREMENT ? kit_known_retirement(w->entry) : kit_known_batch(w->entry->spec);
    return true;
}

/* Hashes, chain and order of one line, whose payload is the one that was sent. */
static bool walk_chain(struct walk *w, const struct line *l, const struct journal_event *sent)
{
    uint8_t want[SHA256_LEN];
    uint8_t got[SHA256_LEN];
    if (!hex_decode(want, l->content_hash, SHA256_LEN) ||
        memcmp(want, sent->content_hash, SHA256_LEN) != 0) {
        return no(w->why, "content hash of event %llu", (unsigned long long)w->events);
    }
    struct chain_event ev = {.batch_id = l->batch_id,
                             .kind = l->kind,
                             .occurred_at = l->occurred_at,
                             .record_key = l->record_key,
                             .source = l->source,
                             .stream = l->stream,
                             .content_hash = l->content_hash,
                             .event_id = l->event_id,
                             .observed_at = l->observed_at};
    bool ok = chain_event_hash(&ev, &w->scratch, got);
    ensure(ok);
    if (!hex_decode(want, l->event_hash, SHA256_LEN) || memcmp(want, got, SHA256_LEN) != 0) {
        return no(w->why, "event hash of event %llu", (unsigned long long)w->events);
    }
    chain_step(w->head, got);
    if (w->has_last && !origin_follows(ORIGIN_OWN, &w->last_id, &l->id)) {
        return no(w->why, "the id of event %llu does not follow", (unsigned long long)w->events);
    }
    if (w->events > 0 && memcmp(w->observed_at, l->observed_at.ptr, 24) > 0) {
        return no(w->why, "observed_at falls at event %llu", (unsigned long long)w->events);
    }
    memcpy(w->observed_at, l->observed_at.ptr, 24);
    w->has_last = true;
    w->last_id = l->id;
    w->events++;
    return true;
}

static bool walk_frontier(struct walk *w)
{
    for (uint32_t i = 0; i < w->ledger->frontier_count; i++) {
        const struct journal_frontier *f = &w->ledger->frontiers[i];
        if (uuid_cmp(&f->last_id, &w->last_id) != 0) {
            continue;
        }
        if (f->events != w->events || memcmp(f->head, w->head, SHA256_LEN) != 0) {
            return no(w->why, "published frontier %u has another head or count now", i);
        }
        w->frontiers_met++;
    }
    return true;
}

static bool walk_line(struct walk *w, const struct line *l)
{
    if (w->entry == NULL && !begin_batch(w, l)) {
        return false;
    }
    const struct kit_batch *kb = &w->batch->kb;
    const struct journal_event *ev = &kb->events[w->next];
    uint32_t number = kb->spec.number;
    uint8_t digest[SHA256_LEN];
    if (!slice_eq(l->batch_id, kb->batch.batch_id) || !slice_eq(l->source, kb->batch.source) ||
        l->batch_len != kb->spec.count || !hex_decode(digest, l->batch_digest, SHA256_LEN) ||
        memcmp(digest, kb->batch.digest, SHA256_LEN) != 0) {
        return no(w->why, "batch %u is not whole, or its framing differs", number);
    }
    if (!slice_eq(l->stream, ev->stream) || !slice_eq(l->record_key, ev->record_key) ||
        !slice_eq(l->kind, ev->kind) || !slice_eq(l->occurred_at, ev->occurred_at) ||
        !slice_eq(l->payload, ev->payload)) {
        return no(w->why, "event %u of batch %u has other bytes", w->next, number);
    }
    bool first = w->next == 0;
    bool last = w->next + 1 == kb->spec.count;
    if ((first && uuid_cmp(&l->id, &w->entry->first_id) != 0) ||
        (last && uuid_cmp(&l->id, &w->entry->last_id) != 0)) {
        return no(w->why, "batch %u is not at the ids of its receipt", number);
    }
    w->next++;
    if (!kit_walk_source(&w->sources, w->entry, l, w->why) || !walk_chain(w, l, ev)) {
        return false;
    }
    if (last) {
        kit_known_done(w->batch);
        w->entry = NULL;
        return walk_frontier(w);
    }
    return true;
}

/* What must hold at the end of a walk. */
static bool walk_end(struct walk *w, struct journal *j)
{
    struct journal_frontier f;
    if (w->entry != NULL) {
        return no(w->why, "the last batch is not whole");
    }
    journal_get_frontier(j, &f);
    if (f.events != w->events || f.empty != (w->events == 0) ||
        memcmp(f.head, w->head, SHA256_LEN) != 0 ||
        (w->has_last && uuid_cmp(&f.last_id, &w->last_id) != 0)) {
        return no(w->why, "the frontier is not that of the lines");
    }
    for (uint32_t i = 0; i < w->ledger->count; i++) {
        struct kit_entry *en = &w->ledger->entries[i];
        if (en->state == KIT_ACKED && !en->seen) {
            return no(w->why, "acknowledged batch %u is missing", en->spec.number);
        }
        if (w->settle && (en->state == KIT_DOUBT || en->state == KIT_STAGED)) {
            en->state = en->seen ? KIT_ACKED : KIT_ABSENT;
        }
    }
    if (w->frontiers_met != w->ledger->frontier_count) {
        return no(w->why, "a published frontier is not in the chain any more");
    }
    return true;
}

bool kit_check(struct journal *j, struct kit_ledger *l, bool settle, char why[KIT_WHY])
{
    struct walk w = {.ledger = l, .settle = settle, .why = why};
    struct journal_reader *reader;
    struct line line;
    struct err e = {0};
    memcpy(w.head, chain_genesis, SHA256_LEN);
    for (uint32_t i = 0; i < l->count; i++) {
        l->entries[i].seen = false;
    }
    if (l->lie[0] != '\0') {
        return no(why, "%s", l->lie);
    }
    if (journal_reader_open(j, NULL, NULL, NULL, NULL, &reader, &e) != 0) {
        return no(why, "no reader: %s", e.text);
    }
    int r;
    bool ok = true;
    while (ok && (r = journal_reader_next(reader, &line, 0, &e)) != 0) {
        ok = r == 1 ? walk_line(&w, &line) : no(why, "reading failed: %s", e.text);
    }
    journal_reader_close(reader);
    ok = ok && walk_end(&w, j);
    if (w.entry != NULL) {
        kit_known_done(w.batch);
    }
    buf_free(&w.scratch);
    return ok;
}

bool kit_check_retries(struct journal *j, struct kit_ledger *l, uint32_t recent, char why[KIT_WHY])
{
    uint32_t from = l->count > recent ? l->count - recent : 0;
    struct err e = {0};
    for (uint32_t i = from; i < l->count; i++) {
        int r = kit_append(j, l, l->entries[i].spec, &e);
        if (r != 0) {
            return no(why, "batch %u cannot be sent again: %s (%s)", l->entries[i].spec.number,
                      err_name(r), e.text);
        }
    }
    int r = kit_commit(j, l, &e);
    if (r != 0) {
        return no(why, "batches sent again cannot be committed: %s (%s)", err_name(r), e.text);
    }
    return l->lie[0] == '\0' ? true : no(why, "%s", l->lie);
}

bool kit_check_verify(const char *dir, const struct journal_frontier *frontier, bool closed,
                      char why[KIT_WHY])
{
    struct verify_report rep;
    struct err e = {0};
    int r = verify_journal(dir, NULL, NULL, &rep, &e);
    if (r != 0) {
        return no(why, "verify: %s (%s)", err_name(r), e.text);
    }
    bool ok = true;
    if (!rep.ok) {
        ok = no(why, "verify: %s in %s: %s", verify_fault_name(rep.fault), rep.fault_file,
                rep.fault_text);
    } else if (frontier != NULL &&
               (rep.events_checked != frontier->events || rep.empty != frontier->empty ||
                memcmp(rep.head, frontier->head, SHA256_LEN) != 0)) {
        ok = no(why, "verify sees another frontier");
    } else if (closed && (rep.remnants.len > 0 || rep.orphans.len > 0)) {
        ok = no(why, "verify sees remnants after a clean close: %.*s %.*s", (int)rep.remnants.len,
                rep.remnants.ptr, (int)rep.orphans.len, rep.orphans.ptr);
    }
    verify_report_free(&rep);
    return ok;
}
