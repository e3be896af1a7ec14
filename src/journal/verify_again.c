/* What verify has to know of the whole log at once: that no batch key occurs twice, and the stories
 * of sources. Memory is bounded for both; what does not fit goes through the log again, framing
 * only, a range of keys or sources each time. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "journal/internal.h"
#include "journal/verify_internal.h"

uint64_t verify_keys_max = VERIFY_KEYS_MAX;
uint32_t verify_sources_max = VERIFY_SOURCES_MAX;

/* ---- keys ---- */

int verify_add_key(struct verify *v, const struct scan_batch *b, struct err *e)
{
    struct key16 k;
    journal_fingerprint(b->source, b->batch_id, k.b);
    uint32_t first =
        (uint32_t)k.b[0] << 24 | (uint32_t)k.b[1] << 16 | (uint32_t)k.b[2] << 8 | k.b[3];
    if (first < v->key_low || first > v->key_high || v->key_count >= verify_keys_max) {
        return 0;
    }
    if (v->key_count == v->key_cap) {
        uint64_t cap = v->key_cap == 0 ? 4096 : v->key_cap * 2;
        struct key16 *keys = realloc(v->keys, cap * sizeof *keys);
        if (keys == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for batch keys");
        }
        v->keys = keys;
        v->key_cap = cap;
    }
    v->keys[v->key_count++] = k;
    return 0;
}

static int key_cmp(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct key16));
}

static void check_keys(struct verify *v)
{
    if (v->key_count > 1) {
        qsort(v->keys, v->key_count, sizeof *v->keys, key_cmp);
    }
    for (uint64_t i = 1; i < v->key_count; i++) {
        if (key_cmp(&v->keys[i - 1], &v->keys[i]) == 0) {
            verify_fail(v, VERIFY_IDEMPOTENCY, "journal", false, 0,
                        "one (source, batch_id) was committed twice");
        }
    }
    v->key_count = 0;
}

int verify_note_line(void *ctx, const struct line *l)
{
    struct verify *v = ctx;
    return verify_lifecycle_line(&v->lifecycle, l);
}

/* Reports what the rules of retirement and lineage have found in this file. */
void verify_check_lifecycle(struct verify *v, const char *name)
{
    char id[UUID_TEXT_LEN];
    char text[sizeof v->report->fault_text];
    if (v->lifecycle.flaw != NULL) {
        uuid_text(id, &v->lifecycle.flaw_id);
        (void)snprintf(text, sizeof text, "event %.*s: %s", UUID_TEXT_LEN, id, v->lifecycle.flaw);
        verify_fail(v, VERIFY_LIFECYCLE, name, false, 0, text);
    }
}

/* Keys or sources of what was proven, once more: framing only. */
static int walk_again(struct verify *v, bool keys, const struct bytes_file *file, uint64_t bytes,
                      const char *name, struct err *e)
{
    struct scan s;
    struct scan_batch b;
    int r;
    scan_start_file(&s, file, bytes, NULL, chain_genesis);
    s.framing_only = true;
    while ((r = scan_next(&s, &b, keys ? NULL : verify_note_line, v, e)) == 1) {
        r = keys ? verify_add_key(v, &b, e) : 0;
        if (r != 0) {
            break;
        }
    }
    scan_stop(&s);
    if (!keys) {
        verify_check_lifecycle(v, name);
    }
    return r;
}

/* What did not fit the first pass, keys or sources, one range of them a pass. */
static int again(struct verify *v, bool keys, struct err *e)
{
    const struct bytes_file tail = {.fd = v->tail_fd};
    for (uint32_t i = 0; i < v->closed_count; i++) {
        struct bytes_file *file;
        int r = verify_open_closed(v, &v->closed[i], &file, e);
        if (file == NULL) {
            return r;
        }
        r = walk_again(v, keys, file, v->closed[i].bytes, "journal", e);
        bytes_file_close(file);
        if (r != 0) {
            return r;
        }
    }
    return walk_again(v, keys, &tail, v->tail_end, "journal/tail.ndjson", e);
}

int verify_all_keys(struct verify *v, struct err *e)
{
    uint64_t batches = v->report->batches_checked;
    if (batches <= verify_keys_max) {
        check_keys(v);
        return 0;
    }
    /* Half full on average: fingerprints are uniform, so no range comes near the cap. */
    uint64_t passes = batches / (verify_keys_max / 2) + 1;
    for (uint64_t p = 0; p < passes && v->report->ok; p++) {
        v->key_count = 0;
        v->key_low = (uint32_t)((p << 32) / passes);
        v->key_high = (uint32_t)((((p + 1) << 32) / passes) - 1);
        int r = again(v, true, e);
        if (r != 0) {
            return r;
        }
        ensure(v->key_count < verify_keys_max);
        check_keys(v);
    }
    return 0;
}

/* More sources than fit: as many passes as make them fit. */
int verify_all_sources(struct verify *v, struct err *e)
{
    for (uint64_t passes = 2; v->lifecycle.overflow && v->report->ok; passes *= 2) {
        bool overflow = false;
        ensure(passes <= UINT32_MAX);
        for (uint64_t p = 0; p < passes && v->report->ok; p++) {
            verify_lifecycle_start(&v->lifecycle, (uint32_t)((p << 32) / passes),
                                   (uint32_t)((((p + 1) << 32) / passes) - 1));
            int r = again(v, false, e);
            if (r != 0) {
                return r;
            }
            overflow = overflow || v->lifecycle.overflow;
        }
        v->lifecycle.overflow = overflow;
    }
    return 0;
}
