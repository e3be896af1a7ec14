/* Retirements in the ledger and for the oracle; see journal_kit.h. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "journal/lifecycle.h"
#include "tests/lib/journal_kit_internal.h"

static_assert(KIT_RETIREMENT % KIT_SOURCES == 0, "the number of a retirement says its source");

static void make_retirement(struct kit_batch *kb, struct kit_spec spec, const struct uuid *frontier)
{
    struct buf text = {0};
    char source[32];
    char hex[SHA256_HEX_LEN];
    struct chain_digest d;
    struct buf scratch = {0};
    *kb = (struct kit_batch){.spec = spec};
    (void)snprintf(kb->source, sizeof kb->source, "\"system\"");
    (void)snprintf(source, sizeof source, "\"src-%u\"", spec.number - KIT_RETIREMENT);
    buf_put_cstr(&text, source);
    size_t payload = text.len;
    lifecycle_put_payload(&text, slice_cstr(source), frontier);
    size_t id = text.len;
    lifecycle_put_batch_id(&text, slice_cstr(source), frontier);
    kb->events = calloc(1, sizeof *kb->events);
    ensure(kb->events != NULL);
    ensure(!text.failed);
    kb->text = text.ptr;
    kb->batch.source = slice_cstr(kb->source);
    kb->batch.batch_id = slice_of(kb->text + id, text.len - id);
    kb->batch.events = kb->events;
    kb->batch.count = 1;
    struct journal_event *ev = kb->events;
    ev->stream = SLICE("\"groundhog.source_lifecycle\"");
    ev->record_key = slice_of(kb->text, payload);
    ev->kind = SLICE("\"source_retired\"");
    ev->payload = slice_of(kb->text + payload, id - payload);
    sha256_once(ev->payload, ev->content_hash);
    hex_encode(hex, ev->content_hash, SHA256_LEN);
    chain_digest_start(&d);
    bool ok = chain_digest_event(&d, &scratch, slice_of(hex, sizeof hex), ev->kind, ev->occurred_at,
                                 ev->record_key, ev->stream);
    ensure(ok);
    chain_digest_end(&d, kb->batch.source, kb->batch.digest);
    buf_free(&scratch);
}

struct kit_known *kit_known_retirement(const struct kit_entry *en)
{
    struct kit_known *k = calloc(1, sizeof *k);
    ensure(k != NULL);
    make_retirement(&k->kb, en->spec, &en->final_frontier);
    k->users = 1;
    return k;
}

bool kit_promised(const struct kit_entry *en)
{
    return en != NULL && (en->state == KIT_ACKED || en->state == KIT_STAGED);
}

struct kit_entry *kit_find_or_add(struct kit_ledger *l, struct kit_spec spec)
{
    struct kit_entry *en = kit_find(l, spec.number);
    if (en == NULL) {
        ensure(l->count < KIT_BATCHES_MAX);
        en = &l->entries[l->count++];
        *en = (struct kit_entry){.spec = spec, .state = KIT_ABSENT};
    }
    return en;
}

bool kit_note_retired(struct kit_ledger *l, uint32_t number, const struct journal_result *r)
{
    const struct kit_entry *end = kit_find(l, KIT_RETIREMENT + number % KIT_SOURCES);
    bool is_new = r->outcome == JOURNAL_COMMITTED;
    if (r->outcome != JOURNAL_SOURCE_RETIRED) {
        if (is_new && kit_promised(end)) {
            kit_lie(l, "batch %u was taken behind the retirement of its source", number);
        }
        return false;
    }
    if (end == NULL || end->state == KIT_ABSENT) {
        kit_lie(l, "batch %u was refused, and its source was not retired", number);
    } else if (uuid_cmp(&end->final_frontier, &r->final_frontier) != 0 ||
               uuid_cmp(&end->first_id, &r->retirement_event_id) != 0) {
        kit_lie(l, "batch %u was refused with another retirement than was told", number);
    }
    if (kit_promised(kit_find(l, number))) {
        kit_lie(l, "batch %u is there and was refused", number);
    }
    return true;
}

/* Writes the answer to a retirement down. */
static void note_retirement(struct kit_ledger *l, uint32_t n, const struct journal_result *r)
{
    struct kit_entry *en = kit_find_or_add(l, (struct kit_spec){KIT_RETIREMENT + n, 1, 0});
    if (r->outcome == JOURNAL_RETIRED && kit_promised(en)) {
        kit_lie(l, "source %u was retired a second time", n);
    } else if (r->outcome == JOURNAL_RETIRED) {
        en->state = KIT_STAGED;
        en->final_frontier = r->final_frontier;
        en->first_id = r->retirement_event_id;
        en->last_id = r->retirement_event_id;
    } else if (r->outcome == JOURNAL_SOURCE_UNKNOWN && kit_promised(en)) {
        kit_lie(l, "source %u was retired and is not known", n);
    } else if (r->outcome == JOURNAL_ALREADY_RETIRED && en->state == KIT_ABSENT) {
        kit_lie(l, "source %u is said to be retired and must not be", n);
    } else if (r->outcome == JOURNAL_ALREADY_RETIRED &&
               (uuid_cmp(&en->final_frontier, &r->final_frontier) != 0 ||
                uuid_cmp(&en->first_id, &r->retirement_event_id) != 0)) {
        kit_lie(l, "the retirement of source %u changed", n);
    }
}

int kit_retire(struct journal *j, struct kit_ledger *l, uint32_t n, struct err *e)
{
    char source[32];
    struct journal_result result;
    (void)snprintf(source, sizeof source, "\"src-%u\"", n);
    int r = journal_retire(j, slice_cstr(source), &result, e);
    if (r == ERR_GROUP_FULL) {
        r = kit_commit(j, l, e);
        if (r == 0) {
            r = journal_retire(j, slice_cstr(source), &result, e);
        }
    }
    if (r == 0) {
        note_retirement(l, n, &result);
    }
    return r;
}

bool kit_walk_source(struct kit_sources *s, const struct kit_entry *en, const struct line *l,
                     char why[KIT_WHY])
{
    uint32_t number = en->spec.number;
    uint32_t n = number % KIT_SOURCES;
    const char *what = NULL;
    if (s->retired[n]) {
        what = "is behind the retirement of its source";
    } else if (number < KIT_RETIREMENT) {
        s->last[n] = l->id;
    } else {
        s->retired[n] = true;
        what = uuid_cmp(&s->last[n], &en->final_frontier) == 0
                   ? NULL
                   : "is a retirement that does not name the last event of its source";
    }
    if (what != NULL) {
        (void)snprintf(why, KIT_WHY, "batch %u %s", number, what);
    }
    return what == NULL;
}
