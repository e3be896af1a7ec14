/* Names and manifest. A journal exists once its manifest's first LF is durable; until then
 * everything else in the directory is empty and may be made again. */
#include "journal/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/slice.h"
#include "os/os.h"

static const char manifest_first[] =
    "{\"format_id\":\"groundhog/log\",\"min_reader\":1,\"min_writer\":1,\"schema_version\":1,"
    "\"stability\":\"stable\",\"type\":\"format\"}";

#define MANIFEST_MAX (1u << 20)

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
    if (r == 0 && ls.count > 1) {
        qsort(ls.rows, ls.count, sizeof *ls.rows, generation_cmp);
        for (uint32_t i = 1; i < ls.count && r == 0; i++) {
            if (uuid_cmp(&ls.rows[i - 1].last_id, &ls.rows[i].first_id) >= 0) {
                r = err_set(e, ERR_CORRUPT, "two pending generations overlap");
            }
        }
    }
    if (r != 0) {
        free(ls.rows);
        return r;
    }
    *out = ls.rows;
    *count = ls.count;
    return 0;
}

/* The committed records behind the first one. Sealing is not built: any of them is from a later
 * version. */
static int check_records(struct slice text, uint64_t *good, struct err *e)
{
    size_t first = sizeof manifest_first - 1;
    const char *lf = memchr(text.ptr, '\n', text.len);
    ensure(lf != NULL);
    struct slice record = slice_of(text.ptr, (size_t)(lf - text.ptr));
    if (!slice_eq(record, slice_of(manifest_first, first))) {
        if (slice_starts(record, SLICE("{\"format_id\":\"groundhog/log\""))) {
            return err_set(e, ERR_UNSUPPORTED,
                           "manifest.jsonl: a format this version does not know");
        }
        return err_set_at(e, ERR_CORRUPT, 0,
                          "manifest.jsonl: the first record is not a format record");
    }
    *good = first + 1;
    if (memchr(text.ptr + *good, '\n', text.len - *good) != NULL) {
        return err_set_at(e, ERR_UNSUPPORTED, *good,
                          "manifest.jsonl: sealed segments need a later version");
    }
    return 0;
}

int layout_read_manifest(const struct layout *l, enum layout_manifest *state, uint64_t *good_bytes,
                         uint64_t *file_bytes, struct err *e)
{
    *good_bytes = 0;
    *file_bytes = 0;
    *state = LAYOUT_MANIFEST_MISSING;
    int fd = os_open(l->manifest, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "manifest.jsonl");
    }
    int r = 0;
    char *text = malloc(MANIFEST_MAX);
    int64_t n = text == NULL ? -ENOMEM : os_pread_full(fd, text, MANIFEST_MAX, 0);
    if (n < 0) {
        r = err_os(e, (int)n, "read", "manifest.jsonl");
    } else if (memchr(text, '\n', (size_t)n) == NULL) {
        *state = LAYOUT_MANIFEST_UNCOMMITTED;
        *file_bytes = (uint64_t)n;
    } else {
        *state = LAYOUT_MANIFEST_GOOD;
        *file_bytes = (uint64_t)n;
        r = check_records(slice_of(text, (size_t)n), good_bytes, e);
    }
    free(text);
    (void)os_close(fd);
    return r;
}

int layout_write_manifest(const struct layout *l, struct err *e)
{
    const size_t n = sizeof manifest_first - 1;
    int fd = os_open(l->manifest, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return err_os(e, fd, "create", "manifest.jsonl");
    }
    /* The body is durable before its LF, and nothing follows the LF: whichever byte of it a crash
     * leaves, the record is either whole or has no LF and is written again. */
    int r = os_ftruncate(fd, 0);
    if (r == 0) {
        r = os_pwrite_all(fd, manifest_first, n, 0, NULL);
    }
    if (r == 0) {
        r = os_fsync(fd);
    }
    if (r == 0) {
        r = os_pwrite_all(fd, "\n", 1, n, NULL);
    }
    if (r == 0) {
        r = os_fsync(fd);
    }
    if (r == 0) {
        r = os_sync_dir(l->journal);
    }
    (void)os_close(fd);
    return r < 0 ? err_os(e, r, "write", "manifest.jsonl") : 0;
}
