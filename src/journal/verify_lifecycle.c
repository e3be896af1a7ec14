/* What must hold, line by line in log order:
 *   - an event of source system in the stream of retirements is a well-formed retirement of a
 *     source that has an event and is not retired, and names its last event before this one;
 *   - no event of a source follows its retirement;
 *   - an event in the stream of lineage is a well-formed marker, the first event of its source in
 *     the log, and names a source that is retired and that source's final frontier.
 *
 * Every rule is about one source, but that of the marker, which is about two: in a pass over a
 * range of fingerprints each of the two is asked when it is in the range, so all passes together
 * ask everything. A source is its fingerprint, 16 bytes of SHA-256, as with batch keys. */
#include "journal/verify_lifecycle.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "journal/lifecycle.h"

void verify_lifecycle_start(struct verify_lifecycle *vl, uint32_t low, uint32_t high)
{
    vl->low = low;
    vl->high = high;
    vl->max = vl->max == 0 ? VERIFY_SOURCES_MAX : vl->max;
    vl->overflow = false;
    vl->count = 0;
    if (vl->slots != NULL) {
        memset(vl->slots, 0, vl->slot_count * sizeof *vl->slots);
    }
}

void verify_lifecycle_free(struct verify_lifecycle *vl)
{
    free(vl->slots);
    *vl = (struct verify_lifecycle){0};
}

static uint32_t prefix(const uint8_t fp[16])
{
    return (uint32_t)fp[0] << 24 | (uint32_t)fp[1] << 16 | (uint32_t)fp[2] << 8 | fp[3];
}

static bool in_range(const struct verify_lifecycle *vl, const uint8_t fp[16])
{
    return prefix(fp) >= vl->low && prefix(fp) <= vl->high;
}

static void fingerprint(struct slice source, uint8_t out[16])
{
    uint8_t full[SHA256_LEN];
    sha256_once(source, full);
    memcpy(out, full, 16);
}

/* The slot of a source, or the free one where it would be. */
static struct verify_source *slot_of(const struct verify_lifecycle *vl, const uint8_t fp[16])
{
    uint32_t mask = vl->slot_count - 1;
    uint32_t i = ((uint32_t)fp[4] << 24 | (uint32_t)fp[5] << 16 | (uint32_t)fp[6] << 8 | fp[7]);
    for (i &= mask; vl->slots[i].used; i = (i + 1) & mask) {
        if (memcmp(vl->slots[i].fingerprint, fp, 16) == 0) {
            break;
        }
    }
    return &vl->slots[i];
}

static int grow(struct verify_lifecycle *vl)
{
    struct verify_lifecycle larger = {.slot_count = vl->slot_count == 0 ? 256 : vl->slot_count * 2};
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (larger.slots == NULL) {
        return ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < vl->slot_count; i++) {
        if (vl->slots[i].used) {
            *slot_of(&larger, vl->slots[i].fingerprint) = vl->slots[i];
        }
    }
    free(vl->slots);
    vl->slots = larger.slots;
    vl->slot_count = larger.slot_count;
    return 0;
}

/* NULL when the source has no event yet. */
static struct verify_source *known(const struct verify_lifecycle *vl, const uint8_t fp[16])
{
    struct verify_source *s = vl->slot_count > 0 ? slot_of(vl, fp) : NULL;
    return s != NULL && s->used ? s : NULL;
}

static void flaw(struct verify_lifecycle *vl, const struct line *l, const char *text)
{
    if (vl->flaw == NULL && text != NULL) {
        vl->flaw = text;
        vl->flaw_id = l->id;
    }
}

static void check_retirement(struct verify_lifecycle *vl, const struct line *l)
{
    uint8_t fp[16];
    struct uuid frontier;
    const char *text = lifecycle_retirement_flaw(l, &frontier);
    if (text != NULL) {
        flaw(vl, l, text);
        return;
    }
    fingerprint(line_inner(l->record_key), fp);
    if (!in_range(vl, fp)) {
        return;
    }
    struct verify_source *s = known(vl, fp);
    if (s == NULL) {
        flaw(vl, l, "the retirement of a source without events");
    } else if (s->retired) {
        flaw(vl, l, "a source was retired twice");
    } else if (uuid_cmp(&s->last_id, &frontier) != 0) {
        flaw(vl, l, "a retirement that does not name the source's last event");
    } else {
        s->retired = true;
        s->final_frontier = frontier;
    }
}

static void check_marker(struct verify_lifecycle *vl, const struct line *l, const uint8_t own[16])
{
    uint8_t fp[16];
    struct uuid frontier;
    const struct lifecycle_marker m = {.kind = l->kind,
                                       .occurred_at = l->occurred_at,
                                       .payload = l->payload,
                                       .record_key = l->record_key};
    const char *text = lifecycle_marker_flaw(l->source, &m, &frontier);
    if (text != NULL) {
        flaw(vl, l, text);
        return;
    }
    if (in_range(vl, own) && known(vl, own) != NULL) {
        flaw(vl, l, "a lineage marker that is not the first event of its source");
    }
    fingerprint(line_inner(l->record_key), fp);
    if (in_range(vl, fp)) {
        const struct verify_source *p = known(vl, fp);
        if (p == NULL || !p->retired || uuid_cmp(&p->final_frontier, &frontier) != 0) {
            flaw(vl, l, "a lineage marker whose predecessor was not retired there");
        }
    }
}

/* Batches are of one source, so most lines need no hash. */
static const uint8_t *fingerprint_of(struct verify_lifecycle *vl, struct slice source)
{
    if (!slice_eq(source, slice_of(vl->last_name, vl->last_len)) || vl->last_len == 0) {
        fingerprint(source, vl->last_fingerprint);
        vl->last_len = source.len <= sizeof vl->last_name ? (uint32_t)source.len : 0;
        memcpy(vl->last_name, source.ptr, vl->last_len);
    }
    return vl->last_fingerprint;
}

static int note_event(struct verify_lifecycle *vl, const struct line *l, const uint8_t fp[16])
{
    struct verify_source *s = known(vl, fp);
    if (s == NULL) {
        if (vl->count == vl->max) {
            vl->overflow = true;
            return 0;
        }
        if (vl->count * 2 >= vl->slot_count && grow(vl) != 0) {
            return ERR_NO_MEMORY;
        }
        s = slot_of(vl, fp);
        *s = (struct verify_source){.used = true};
        memcpy(s->fingerprint, fp, 16);
        vl->count++;
    }
    if (s->retired) {
        flaw(vl, l, "an event of a source behind its retirement");
    }
    s->last_id = l->id;
    return 0;
}

int verify_lifecycle_line(struct verify_lifecycle *vl, const struct line *l)
{
    if (vl->overflow || vl->flaw != NULL) {
        return 0;
    }
    struct slice source = line_inner(l->source);
    const uint8_t *fp = fingerprint_of(vl, source);
    if (lifecycle_is_retirement(l)) {
        check_retirement(vl, l);
    } else if (slice_eq(line_inner(l->stream), SLICE(LIFECYCLE_LINEAGE_STREAM))) {
        check_marker(vl, l, fp);
    }
    return in_range(vl, fp) ? note_event(vl, l, fp) : 0;
}
