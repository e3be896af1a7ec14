/* An open-addressing table of pointers to entries. Entries are never removed: one that was undone
 * has no events and counts as absent until it gets some. Undo keeps, per entry touched in the span,
 * the state before its first change. Each source has one entry more, with an empty stream name and
 * never an event, that begins the list of its pairs. */
#include "journal/streams.h"

#include <stdlib.h>

#include "base/ensure.h"

struct entry {
    uint64_t hash;
    struct stream_state total;
    struct stream_state active; /* in the active generation */
    uint64_t span;              /* undo span in which it was last saved */
    struct entry *next;         /* another pair of the source; of a source's own entry the first */
    uint16_t source_len, stream_len;
    char text[];
};

struct saved {
    struct entry *e;
    struct stream_state total, active;
};

struct streams {
    struct entry **slots;
    size_t slot_count; /* a power of two */
    size_t used;
    size_t pairs; /* of used: those that are no source's own */
    uint64_t span;
    struct saved *saved;
    size_t saved_count, saved_cap;
    struct entry *last; /* the most recent one: batches stay in one stream mostly */
};

static struct slice entry_source(const struct entry *e)
{
    return slice_of(e->text, e->source_len);
}

static struct slice entry_stream(const struct entry *e)
{
    return slice_of(e->text + e->source_len, e->stream_len);
}

static bool entry_is(const struct entry *e, struct slice source, struct slice stream)
{
    return slice_eq(entry_source(e), source) && slice_eq(entry_stream(e), stream);
}

/* FNV-1a over both names with a zero between. Names come from authorised clients; the table is
 * bounded by what they have stored. */
static uint64_t pair_hash(struct slice source, struct slice stream)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < source.len; i++) {
        h = (h ^ (unsigned char)source.ptr[i]) * UINT64_C(1099511628211);
    }
    h *= UINT64_C(1099511628211);
    for (size_t i = 0; i < stream.len; i++) {
        h = (h ^ (unsigned char)stream.ptr[i]) * UINT64_C(1099511628211);
    }
    return h ^ h >> 29;
}

struct streams *streams_new(void)
{
    struct streams *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->slot_count = 256;
    s->span = 1;
    s->slots = calloc(s->slot_count, sizeof *s->slots);
    if (s->slots == NULL) {
        free(s);
        return NULL;
    }
    return s;
}

void streams_free(struct streams *s)
{
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->slot_count; i++) {
        free(s->slots[i]);
    }
    free(s->slots);
    free(s->saved);
    free(s);
}

static struct entry *find(const struct streams *s, uint64_t hash, struct slice source,
                          struct slice stream)
{
    size_t mask = s->slot_count - 1;
    for (size_t i = hash & mask; s->slots[i] != NULL; i = (i + 1) & mask) {
        struct entry *e = s->slots[i];
        if (e->hash == hash && entry_is(e, source, stream)) {
            return e;
        }
    }
    return NULL;
}

static void place(struct entry **slots, size_t slot_count, struct entry *e)
{
    size_t i = e->hash & (slot_count - 1);
    while (slots[i] != NULL) {
        i = (i + 1) & (slot_count - 1);
    }
    slots[i] = e;
}

static int grow(struct streams *s)
{
    size_t count = s->slot_count * 2;
    struct entry **slots = calloc(count, sizeof *slots);
    if (slots == NULL) {
        return ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < s->slot_count; i++) {
        if (s->slots[i] != NULL) {
            place(slots, count, s->slots[i]);
        }
    }
    free(s->slots);
    s->slots = slots;
    s->slot_count = count;
    return 0;
}

/* The entry of a pair, or with an empty stream that of a source. NULL without memory. */
static struct entry *lookup_or_make(struct streams *s, struct slice source, struct slice stream)
{
    uint64_t hash = pair_hash(source, stream);
    struct entry *e = find(s, hash, source, stream);
    if (e != NULL) {
        return e;
    }
    ensure(source.len <= UINT16_MAX);
    ensure(stream.len <= UINT16_MAX);
    if (s->used * 2 >= s->slot_count && grow(s) != 0) {
        return NULL;
    }
    e = calloc(1, sizeof *e + source.len + stream.len);
    if (e == NULL) {
        return NULL;
    }
    e->hash = hash;
    e->source_len = (uint16_t)source.len;
    e->stream_len = (uint16_t)stream.len;
    memcpy(e->text, source.ptr, source.len);
    memcpy(e->text + source.len, stream.ptr, stream.len);
    place(s->slots, s->slot_count, e);
    s->used++;
    return e;
}

static int find_or_make(struct streams *s, struct slice source, struct slice stream,
                        struct entry **out)
{
    if (s->last != NULL && entry_is(s->last, source, stream)) {
        *out = s->last;
        return 0;
    }
    struct entry *e = find(s, pair_hash(source, stream), source, stream);
    if (e == NULL) {
        struct entry *own = lookup_or_make(s, source, (struct slice){.ptr = "", .len = 0});
        e = own != NULL ? lookup_or_make(s, source, stream) : NULL;
        if (e == NULL) {
            return ERR_NO_MEMORY;
        }
        if (e != own) { /* a line of another program's may have an empty name */
            e->next = own->next;
            own->next = e;
        }
        s->pairs++;
    }
    s->last = e;
    *out = e;
    return 0;
}

bool streams_source(const struct streams *s, struct slice source, struct uuid *last)
{
    struct slice none = {.ptr = "", .len = 0};
    const struct entry *e = find(s, pair_hash(source, none), source, none);
    bool any = false;
    for (e = e != NULL ? e->next : NULL; e != NULL; e = e->next) {
        if (e->total.events > 0 && (!any || uuid_cmp(&e->total.last_id, last) > 0)) {
            *last = e->total.last_id;
            any = true;
        }
    }
    return any;
}

bool streams_get(const struct streams *s, struct slice source, struct slice stream,
                 struct stream_state *out)
{
    const struct entry *e = find(s, pair_hash(source, stream), source, stream);
    if (e == NULL || e->total.events == 0) {
        return false;
    }
    *out = e->total;
    return true;
}

int streams_add(struct streams *s, struct slice source, struct slice stream, const struct uuid *id)
{
    struct entry *e;
    int r = find_or_make(s, source, stream, &e);
    if (r != 0) {
        return r;
    }
    if (e->span != s->span) {
        if (s->saved_count == s->saved_cap) {
            size_t cap = s->saved_cap == 0 ? 64 : s->saved_cap * 2;
            struct saved *saved = realloc(s->saved, cap * sizeof *saved);
            if (saved == NULL) {
                return ERR_NO_MEMORY;
            }
            s->saved = saved;
            s->saved_cap = cap;
        }
        s->saved[s->saved_count++] = (struct saved){e, e->total, e->active};
        e->span = s->span;
    }
    e->total.events++;
    e->total.last_id = *id;
    e->active.events++;
    e->active.last_id = *id;
    return 0;
}

void streams_keep(struct streams *s)
{
    s->saved_count = 0;
    s->span++;
}

void streams_undo(struct streams *s)
{
    while (s->saved_count > 0) {
        struct saved *u = &s->saved[--s->saved_count];
        u->e->total = u->total;
        u->e->active = u->active;
    }
    s->span++;
}

int streams_load(struct streams *s, const struct index_stream *row)
{
    struct entry *e;
    ensure(s->saved_count == 0);
    int r = find_or_make(s, row->source, row->stream, &e);
    if (r != 0) {
        return r;
    }
    e->total.events += row->events;
    e->total.last_id = row->last_id;
    return 0;
}

static int row_cmp(const void *pa, const void *pb)
{
    const struct index_stream *a = pa;
    const struct index_stream *b = pb;
    int c = slice_cmp(a->source, b->source);
    return c != 0 ? c : slice_cmp(a->stream, b->stream);
}

static int make_rows(struct streams *s, bool active, struct index_stream **rows, uint32_t *count)
{
    ensure(s->saved_count == 0);
    struct index_stream *out = calloc(s->used == 0 ? 1 : s->used, sizeof *out);
    if (out == NULL) {
        return ERR_NO_MEMORY;
    }
    uint32_t k = 0;
    for (size_t i = 0; i < s->slot_count; i++) {
        const struct entry *e = s->slots[i];
        const struct stream_state *st = e == NULL ? NULL : active ? &e->active : &e->total;
        if (st != NULL && st->events > 0) {
            out[k++] = (struct index_stream){.source = entry_source(e),
                                             .stream = entry_stream(e),
                                             .last_id = st->last_id,
                                             .events = st->events};
        }
    }
    ensure(k <= s->used);
    qsort(out, k, sizeof *out, row_cmp);
    *rows = out;
    *count = k;
    return 0;
}

int streams_generation(struct streams *s, bool reset, struct index_stream **rows, uint32_t *count)
{
    int r = make_rows(s, true, rows, count);
    for (size_t i = 0; i < s->slot_count && reset; i++) {
        if (s->slots[i] != NULL) {
            s->slots[i]->active = (struct stream_state){0};
        }
    }
    return r;
}

int streams_rows(struct streams *s, struct index_stream **rows, uint32_t *count)
{
    return make_rows(s, false, rows, count);
}

uint64_t streams_count(const struct streams *s)
{
    return s->pairs;
}
