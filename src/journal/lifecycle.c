/* The table is a list of entries in the order of their retirement, and open addressing over it. So
 * the entries of a group that failed are the last ones, and taking them back is cutting the list
 * and filling the slots again: rare, and linear. Names are matched byte for byte; the hash is
 * keyless, as in streams.c: whoever may retire sources may also store them. */
#include "journal/lifecycle.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "journal/line.h"

#define P_FINAL       "{\"final_frontier\":\""
#define P_SOURCE      "\",\"source\":"
#define P_PREDECESSOR "{\"predecessor_final_frontier\":\""
#define P_OF          "\",\"predecessor_source\":"
#define P_END         ",\"v\":1}"
#define P_BATCH       "\"groundhog/retire/"

/* ---- forms ---- */

void lifecycle_put_payload(struct buf *out, struct slice source, const struct uuid *frontier)
{
    char text[UUID_TEXT_LEN];
    uuid_text(text, frontier);
    buf_put_cstr(out, P_FINAL);
    buf_put(out, text, sizeof text);
    buf_put_cstr(out, P_SOURCE);
    buf_put_slice(out, source);
    buf_put_cstr(out, P_END);
}

void lifecycle_put_batch_id(struct buf *out, struct slice source, const struct uuid *frontier)
{
    char text[UUID_TEXT_LEN];
    uuid_text(text, frontier);
    buf_put_cstr(out, P_BATCH);
    buf_put_slice(out, line_inner(source));
    buf_put_char(out, '/');
    buf_put(out, text, sizeof text);
    buf_put_char(out, '"');
}

static bool take(struct slice *s, struct slice head)
{
    if (s->len < head.len || memcmp(s->ptr, head.ptr, head.len) != 0) {
        return false;
    }
    *s = slice_from(*s, head.len);
    return true;
}

static bool take_id(struct slice *s, struct uuid *id)
{
    if (s->len < UUID_TEXT_LEN || !uuid7_parse(slice_of(s->ptr, UUID_TEXT_LEN), id)) {
        return false;
    }
    *s = slice_from(*s, UUID_TEXT_LEN);
    return true;
}

/* payload = head, a UUIDv7, middle, name, end; nothing else. */
static bool payload_is(struct slice payload, const char *head, const char *middle,
                       struct slice name, struct uuid *frontier)
{
    return take(&payload, slice_cstr(head)) && take_id(&payload, frontier) &&
           take(&payload, slice_cstr(middle)) && take(&payload, name) &&
           take(&payload, SLICE(P_END)) && payload.len == 0;
}

bool lifecycle_is_retirement(const struct line *l)
{
    return slice_eq(line_inner(l->source), SLICE(LIFECYCLE_SYSTEM)) &&
           slice_eq(line_inner(l->stream), SLICE(LIFECYCLE_STREAM));
}

const char *lifecycle_retirement_flaw(const struct line *l, struct uuid *frontier)
{
    struct uuid named;
    struct slice id = l->batch_id;
    if (!slice_eq(l->kind, SLICE("\"source_retired\"")) || l->occurred_at.len != 0 ||
        l->batch_len != 1 || slice_eq(line_inner(l->record_key), SLICE(LIFECYCLE_SYSTEM))) {
        return "an event in the stream of retirements that is none";
    }
    if (!payload_is(l->payload, P_FINAL, P_SOURCE, l->record_key, frontier)) {
        return "a retirement whose payload is not that of its record_key";
    }
    if (!take(&id, SLICE(P_BATCH)) || !take(&id, line_inner(l->record_key)) ||
        !take(&id, SLICE("/")) || !take_id(&id, &named) || uuid_cmp(&named, frontier) != 0 ||
        !slice_eq(id, SLICE("\""))) {
        return "a retirement under another batch_id than its own";
    }
    return NULL;
}

const char *lifecycle_marker_flaw(struct slice source, const struct lifecycle_marker *m,
                                  struct uuid *frontier)
{
    if (m->occurred_at.len != 0) {
        return "a lineage marker has no occurred_at";
    }
    if (!slice_eq(m->kind, SLICE("\"source_succeeded\""))) {
        return "the kind of a lineage marker is source_succeeded";
    }
    if (slice_eq(m->record_key, source)) {
        return "a source cannot succeed itself";
    }
    if (slice_eq(line_inner(m->record_key), SLICE(LIFECYCLE_SYSTEM))) {
        return "source system has no successor";
    }
    if (!payload_is(m->payload, P_PREDECESSOR, P_OF, m->record_key, frontier)) {
        return "the payload of a lineage marker is {\"v\":1,\"predecessor_source\":(its "
               "record_key),\"predecessor_final_frontier\":(a UUIDv7)}";
    }
    return NULL;
}

/* ---- the table ---- */

struct retired {
    uint64_t hash;
    struct lifecycle_entry entry;
    uint32_t name_len;
    char name[];
};

struct lifecycle {
    struct retired **list; /* in the order of retirement */
    size_t count, kept, cap;
    struct retired *spare; /* for the next one */
    struct retired **slots;
    size_t slot_count; /* a power of two, more than twice cap */
};

static uint64_t name_hash(struct slice name)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < name.len; i++) {
        h = (h ^ (unsigned char)name.ptr[i]) * UINT64_C(1099511628211);
    }
    return h ^ h >> 29;
}

static void place(struct lifecycle *lc, struct retired *r)
{
    size_t i = r->hash & (lc->slot_count - 1);
    while (lc->slots[i] != NULL) {
        i = (i + 1) & (lc->slot_count - 1);
    }
    lc->slots[i] = r;
}

static int grow(struct lifecycle *lc)
{
    size_t cap = lc->cap == 0 ? 16 : lc->cap * 2;
    struct retired **list = realloc(lc->list, cap * sizeof(struct retired *));
    if (list == NULL) {
        return ERR_NO_MEMORY;
    }
    lc->list = list;
    struct retired **slots = calloc(cap * 4, sizeof(struct retired *));
    if (slots == NULL) {
        return ERR_NO_MEMORY;
    }
    free(lc->slots);
    lc->slots = slots;
    lc->slot_count = cap * 4;
    lc->cap = cap;
    for (size_t i = 0; i < lc->count; i++) {
        place(lc, lc->list[i]);
    }
    return 0;
}

struct lifecycle *lifecycle_new(void)
{
    struct lifecycle *lc = calloc(1, sizeof *lc);
    if (lc == NULL || grow(lc) != 0) {
        lifecycle_free(lc);
        return NULL;
    }
    return lc;
}

void lifecycle_free(struct lifecycle *lc)
{
    if (lc == NULL) {
        return;
    }
    for (size_t i = 0; i < lc->count; i++) {
        free(lc->list[i]);
    }
    free(lc->list);
    free(lc->slots);
    free(lc->spare);
    free(lc);
}

const struct lifecycle_entry *lifecycle_find(const struct lifecycle *lc, struct slice source)
{
    uint64_t hash = name_hash(source);
    size_t mask = lc->slot_count - 1;
    for (size_t i = hash & mask; lc->slots[i] != NULL; i = (i + 1) & mask) {
        const struct retired *r = lc->slots[i];
        if (r->hash == hash && slice_eq(slice_of(r->name, r->name_len), source)) {
            return &r->entry;
        }
    }
    return NULL;
}

int lifecycle_reserve(struct lifecycle *lc, struct slice source)
{
    ensure(source.len <= UINT32_MAX);
    if (lc->count == lc->cap && grow(lc) != 0) {
        return ERR_NO_MEMORY;
    }
    struct retired *r = realloc(lc->spare, sizeof *r + source.len);
    if (r == NULL) {
        return ERR_NO_MEMORY;
    }
    lc->spare = r;
    r->name_len = (uint32_t)source.len;
    return 0;
}

void lifecycle_add(struct lifecycle *lc, struct slice source, const struct lifecycle_entry *entry)
{
    struct retired *r = lc->spare;
    ensure(r != NULL);
    ensure(r->name_len == source.len);
    ensure(lc->count < lc->cap);
    ensure(lifecycle_find(lc, source) == NULL);
    lc->spare = NULL;
    r->hash = name_hash(source);
    r->entry = *entry;
    memcpy(r->name, source.ptr, source.len);
    lc->list[lc->count++] = r;
    place(lc, r);
}

void lifecycle_keep(struct lifecycle *lc)
{
    lc->kept = lc->count;
}

void lifecycle_undo(struct lifecycle *lc)
{
    if (lc->count == lc->kept) {
        return;
    }
    while (lc->count > lc->kept) {
        free(lc->list[--lc->count]);
    }
    memset(lc->slots, 0, lc->slot_count * sizeof(struct retired *));
    for (size_t i = 0; i < lc->count; i++) {
        place(lc, lc->list[i]);
    }
}

uint64_t lifecycle_count(const struct lifecycle *lc)
{
    return lc->count;
}
