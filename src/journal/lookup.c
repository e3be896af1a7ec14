/* Resolving a batch key: the index gives places where a batch with this fingerprint may lie; the
 * stored line decides. Lines of the staged group are looked at in its buffer. */
#include "base/ensure.h"
#include "journal/internal.h"
#include "journal/line.h"

void journal_fingerprint(struct slice source, struct slice batch_id, uint8_t out[16])
{
    uint8_t full[SHA256_LEN];
    struct sha256 h;
    sha256_start(&h);
    sha256_add(&h, source.ptr, source.len);
    sha256_add(&h, "", 1);
    sha256_add(&h, batch_id.ptr, batch_id.len);
    sha256_end(&h, full);
    memcpy(out, full, 16);
}

struct lookup {
    struct journal *j;
    const struct journal_batch *batch;
    struct journal_result *result;
    struct err *e;
};

void journal_lookup_rest(struct journal *j)
{
    if (j->lookup_held != NULL) {
        bytes_stop(&j->lookup_bytes);
        journal_release(j, j->lookup_held, j->lookup_file);
        j->lookup_held = NULL;
    }
}

static int hold(struct journal *j, struct generation *g, struct err *e)
{
    j->lookup_used = true;
    if (j->lookup_held == g) {
        return 0;
    }
    journal_lookup_rest(j);
    int r = journal_hold(j, g, &j->lookup_file, e);
    if (r == 0) {
        bytes_start(&j->lookup_bytes, j->lookup_file);
        j->lookup_held = g;
    }
    return r;
}

/* Bytes [from, from + n) of a batch into j->lookup, from the staged group or from its file. */
static int fetch(struct journal *j, const struct index_key *key, uint64_t from, size_t n,
                 struct err *e)
{
    buf_clear(&j->lookup);
    if (!buf_reserve(&j->lookup, n)) {
        return err_set(e, ERR_NO_MEMORY, "no memory to read a batch");
    }
    uint64_t at = key->offset + from;
    struct generation *tail = journal_tail(j);
    if (key->generation == tail->ordinal && key->offset >= tail->bytes) {
        uint64_t in_group = at - tail->bytes;
        if (in_group > j->group.len || n > j->group.len - in_group) {
            return err_set(e, ERR_CORRUPT, "the index names a place behind the end of the journal");
        }
        buf_put(&j->lookup, j->group.ptr + in_group, n);
        return 0;
    }
    if (key->generation >= j->generation_count) {
        return err_set(e, ERR_CORRUPT, "the index names a generation that is not there");
    }
    struct generation *g = j->generations[key->generation];
    int r = hold(j, g, e);
    if (r != 0) {
        return r;
    }
    int64_t got = bytes_read(&j->lookup_bytes, j->lookup.ptr, n, at, e);
    if (got < 0) {
        return (int)got;
    }
    if ((size_t)got != n) {
        return err_set_at(e, ERR_CORRUPT, at, "a stored batch ends too early");
    }
    j->lookup.len = n;
    return 0;
}

/* The first or last line of a stored batch, by reading ever more of its beginning or end. */
static int fetch_line(struct journal *j, const struct index_key *key, bool last, struct line *l,
                      struct err *e)
{
    size_t n = 16384;
    for (;;) {
        if (n > key->bytes) {
            n = key->bytes;
        }
        int r = fetch(j, key, last ? key->bytes - n : 0, n, e);
        if (r != 0) {
            return r;
        }
        const char *p = j->lookup.ptr;
        const char *begin = p;
        const char *end = memchr(p, '\n', n);
        if (last) {
            const char *lf = n >= 2 ? memrchr(p, '\n', n - 1) : NULL;
            begin = lf != NULL ? lf + 1 : n == key->bytes ? p : NULL;
            end = p + n - 1;
        }
        if (begin != NULL && end != NULL) {
            if (*end == '\n' && line_parse(slice_of(begin, (size_t)(end - begin)), l)) {
                return 0;
            }
            return err_set_at(e, ERR_CORRUPT, key->offset,
                              "a stored batch that the index names is no batch");
        }
        if (n == key->bytes) {
            return err_set_at(e, ERR_CORRUPT, key->offset, "a stored batch without a line end");
        }
        n *= 4;
    }
}

static int visit_key(void *ctx, const struct index_key *key)
{
    struct lookup *lk = ctx;
    struct line l;
    int r = fetch_line(lk->j, key, false, &l, lk->e);
    if (r != 0) {
        return r;
    }
    if (!slice_eq(l.source, lk->batch->source) || !slice_eq(l.batch_id, lk->batch->batch_id)) {
        return 0;
    }
    struct journal_result *res = lk->result;
    bool ok = hex_decode(res->digest, l.batch_digest, SHA256_LEN);
    ensure(ok);
    res->events = l.batch_len;
    res->first_id = l.id;
    res->outcome = memcmp(res->digest, lk->batch->digest, SHA256_LEN) == 0 ? JOURNAL_DUPLICATE
                                                                           : JOURNAL_BATCH_CONFLICT;
    res->last_id = l.id;
    if (l.batch_len > 1 && res->outcome == JOURNAL_DUPLICATE) {
        r = fetch_line(lk->j, key, true, &l, lk->e);
        if (r != 0) {
            return r;
        }
        res->last_id = l.id;
    }
    return 1;
}

int journal_lookup(struct journal *j, const struct journal_batch *b, const uint8_t fingerprint[16],
                   struct journal_result *r, struct err *e)
{
    struct err local = {0};
    struct lookup lk = {.j = j, .batch = b, .result = r, .e = &local};
    int found = index_find(j->index, fingerprint, visit_key, &lk);
    if (found >= 0) {
        return found;
    }
    if (local.code == 0) {
        return err_set(e, found, "the index of batch keys cannot be read");
    }
    if (e != NULL) {
        *e = local;
    }
    return found;
}
