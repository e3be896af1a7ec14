/* Names in the data directory, and the listing of pending/. */
#include "journal/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/slice.h"
#include "os/os.h"

static void join(char out[LAYOUT_PATH_MAX], const char *a, const char *b)
{
    int n = snprintf(out, LAYOUT_PATH_MAX, "%s/%s", a, b);
    ensure(n > 0 && n < LAYOUT_PATH_MAX);
}

int layout_make(struct layout *l, const char *dir, struct err *e)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') {
        n--;
    }
    if (n == 0 || n >= sizeof l->root) {
        return err_set(e, ERR_USAGE, "the data directory's name is empty or too long");
    }
    memset(l, 0, sizeof *l);
    memcpy(l->root, dir, n);
    join(l->lock, l->root, "lock");
    join(l->journal, l->root, "journal");
    join(l->manifest, l->journal, "manifest.jsonl");
    join(l->tail, l->journal, "tail.ndjson");
    join(l->spare, l->journal, "tail.next");
    join(l->pending, l->journal, "pending");
    join(l->segments, l->journal, "segments");
    join(l->index, l->root, "index");
    join(l->remnants, l->root, "remnants");
    return 0;
}

void layout_pending_path(const struct layout *l, const struct uuid *first, const struct uuid *last,
                         char out[LAYOUT_PATH_MAX])
{
    char a[UUID_TEXT_LEN];
    char b[UUID_TEXT_LEN];
    uuid_text(a, first);
    uuid_text(b, last);
    int n = snprintf(out, LAYOUT_PATH_MAX, "%s/%.36s_%.36s.ndjson", l->pending, a, b);
    ensure(n > 0 && n < LAYOUT_PATH_MAX);
}

void layout_segment_name(const struct layout_generation *g, char out[LAYOUT_SEGMENT_NAME])
{
    char a[UUID_TEXT_LEN + 1] = {0};
    char b[UUID_TEXT_LEN + 1] = {0};
    char hex[SHA256_HEX_LEN + 1] = {0};
    uuid_text(a, &g->first_id);
    uuid_text(b, &g->last_id);
    hex_encode(hex, g->sha256, SHA256_LEN);
    int n = snprintf(out, LAYOUT_SEGMENT_NAME, "%s_%s_%s.ndjson.zst", a, b, hex);
    ensure(n == LAYOUT_SEGMENT_NAME - 1);
}

void layout_generation_path(const struct layout *l, const struct layout_generation *g,
                            char out[LAYOUT_PATH_MAX])
{
    char name[LAYOUT_SEGMENT_NAME];
    if (!g->sealed) {
        layout_pending_path(l, &g->first_id, &g->last_id, out);
        return;
    }
    layout_segment_name(g, name);
    join(out, l->segments, name);
}

bool layout_segment_parse(struct slice name, struct layout_generation *g)
{
    const size_t hash_at = 2 * UUID_TEXT_LEN + 2;
    return name.len == LAYOUT_SEGMENT_NAME - 1 && name.ptr[UUID_TEXT_LEN] == '_' &&
           name.ptr[hash_at - 1] == '_' &&
           slice_eq(slice_from(name, hash_at + SHA256_HEX_LEN), SLICE(".ndjson.zst")) &&
           uuid7_parse(slice_of(name.ptr, UUID_TEXT_LEN), &g->first_id) &&
           uuid7_parse(slice_of(name.ptr + UUID_TEXT_LEN + 1, UUID_TEXT_LEN), &g->last_id) &&
           hex_decode(g->sha256, slice_of(name.ptr + hash_at, SHA256_HEX_LEN), SHA256_LEN);
}

struct listing {
    const struct layout *layout;
    struct layout_generation *rows;
    uint32_t count, cap;
    int code; /* ERR_ code of the entry that ended the listing */
    struct err *e;
};

static bool parse_name(const char *name, struct layout_generation *g)
{
    struct slice s = slice_cstr(name);
    return s.len == 2 * UUID_TEXT_LEN + 8 && s.ptr[UUID_TEXT_LEN] == '_' &&
           memcmp(s.ptr + 2 * UUID_TEXT_LEN + 1, ".ndjson", 7) == 0 &&
           uuid7_parse(slice_of(s.ptr, UUID_TEXT_LEN), &g->first_id) &&
           uuid7_parse(slice_of(s.ptr + UUID_TEXT_LEN + 1, UUID_TEXT_LEN), &g->last_id) &&
           uuid_cmp(&g->first_id, &g->last_id) <= 0;
}

static int list_one(void *ctx, const char *name)
{
    struct listing *ls = ctx;
    size_t n = strlen(name);
    if (n > 4 && strcmp(name + n - 4, ".tmp") == 0) {
        return 0;
    }
    struct layout_generation g = {0};
    if (!parse_name(name, &g)) {
        ls->code = err_set(ls->e, ERR_CORRUPT, "pending/%.100s is no generation's name", name);
        return 1;
    }
    char path[LAYOUT_PATH_MAX];
    layout_pending_path(ls->layout, &g.first_id, &g.last_id, path);
    struct os_stat st;
    int r = os_stat(path, &st);
    if (r == -ENOENT) {
        return 0; /* sealed, while it was listed beside a server */
    }
    if (r < 0) {
        ls->code = err_os(ls->e, r, "stat", "pending generation");
        return 1;
    }
    g.bytes = st.size;
    if (ls->count == ls->cap) {
        uint32_t cap = ls->cap == 0 ? 64 : ls->cap * 2;
        struct layout_generation *rows = realloc(ls->rows, cap * sizeof *rows);
        if (rows == NULL) {
            ls->code = err_set(ls->e, ERR_NO_MEMORY, "no memory to list generations");
            return 1;
        }
        ls->rows = rows;
        ls->cap = cap;
    }
    ls->rows[ls->count++] = g;
    return 0;
}

static int generation_cmp(const void *a, const void *b)
{
    const struct layout_generation *x = a;
    const struct layout_generation *y = b;
    return uuid_cmp(&x->first_id, &y->first_id);
}

/* ERR_CORRUPT: two of them have events in common. */
static int put_in_order(struct layout_generation *rows, uint32_t count, struct err *e)
{
    if (count > 1) {
        qsort(rows, count, sizeof *rows, generation_cmp);
    }
    for (uint32_t i = 1; i < count; i++) {
        if (uuid_cmp(&rows[i - 1].last_id, &rows[i].first_id) >= 0) {
            return err_set(e, ERR_CORRUPT, "two pending generations overlap");
        }
    }
    return 0;
}

int layout_list_pending(const struct layout *l, struct layout_generation **out, uint32_t *count,
                        struct err *e)
{
    struct listing ls = {.layout = l, .e = e};
    int r = os_list(l->pending, list_one, &ls);
    if (r < 0) {
        r = err_os(e, r, "list", "pending");
    } else if (r > 0) {
        r = ls.code;
    }
    if (r == 0) {
        r = put_in_order(ls.rows, ls.count, e);
    }
    if (r != 0) {
        free(ls.rows);
        return r;
    }
    *out = ls.rows;
    *count = ls.count;
    return 0;
}
