/* A head that was kept elsewhere says what the journal was; the journal may only have grown since.
 *
 * The proof: the signature is the key's; a batch of the local journal ends at the head's count,
 * with the head's event id, and the chain over everything up to there is the head's. Chain heads
 * being hashes over all event hashes, nothing before that place was changed, removed or put in
 * between. For each receipt: a batch with its first and last id, its digest and its number of
 * events (and its source and batch_id, where the receipt names them) ends at or before that place.
 *
 * Violations are texts, like those of the other stores. What cannot be read as a head, a key or a
 * receipt is the caller's mistake and no violation: nothing was compared. */
#include "main/verify_head.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "main/output.h"
#include "os/os.h"
#include "json/read.h"
#include "json/write.h"

#define FILE_BYTES_MAX (UINT64_C(256) << 20)

struct verify_head_receipt {
    struct uuid first_id, last_id;
    uint64_t events;
    uint8_t digest[SHA256_LEN];
    uint8_t key[16];
    bool has_key; /* it names its source and batch_id */
    bool seen;    /* judged already */
};

/* ---- files ---- */

static int read_file(const char *path, struct buf *out, struct err *e)
{
    struct os_stat st = {0};
    int64_t n = -1;
    int fd = os_open(path, O_RDONLY, 0);

    if (fd < 0) {
        (void)err_os(e, fd, "open", path);
        e->code = ERR_USAGE;
        return ERR_USAGE;
    }
    if (os_fstat(fd, &st) == 0 && st.size <= FILE_BYTES_MAX &&
        buf_reserve(out, (size_t)st.size + 1)) {
        n = os_pread_full(fd, out->ptr, (size_t)st.size, 0);
    }
    (void)os_close(fd);
    if (n < 0) {
        return err_set(e, ERR_USAGE, "%.200s cannot be read, or is far too long", path);
    }
    out->len = (size_t)n;
    return 0;
}

static int load_head(struct verify_head *v, const char *path, struct err *e)
{
    struct buf text = {0};
    struct err why = {0};
    int r = read_file(path, &text, e);

    if (r == 0 && signed_head_read(buf_slice(&text), &v->head, &why) != 0) {
        r = err_set(e, ERR_USAGE, "%.200s is no signed head: %.100s", path, why.text);
    }
    buf_free(&text);
    return r;
}

static int load_key(struct verify_head *v, const char *path, uint8_t key[ED25519_PUBLIC_LEN],
                    struct err *e)
{
    struct buf text = {0};
    int r;

    v->key_given = path != NULL;
    if (path == NULL) {
        memcpy(key, v->head.public_key, ED25519_PUBLIC_LEN);
        return 0;
    }
    r = read_file(path, &text, e);
    if (r == 0 && !ed25519_public_from_pem(buf_slice(&text), key)) {
        r = err_set(e, ERR_USAGE, "%.200s holds no public Ed25519 key in PEM", path);
    }
    buf_free(&text);
    return r;
}

/* ---- receipts ---- */

static bool read_id(struct slice receipt, struct slice name, struct uuid *out)
{
    struct slice value;
    struct slice inner;

    return json_member(receipt, name, &value) && json_string_raw(value, &inner) &&
           uuid7_parse(inner, out);
}

static bool read_receipt(struct slice text, struct verify_head_receipt *r)
{
    struct slice value;
    struct slice inner;
    struct slice source;
    struct slice batch_id;

    *r = (struct verify_head_receipt){0};
    if (!read_id(text, SLICE("first_event_id"), &r->first_id) ||
        !read_id(text, SLICE("last_event_id"), &r->last_id) ||
        !json_member(text, SLICE("events"), &value) || !json_u64(value, &r->events) ||
        !json_member(text, SLICE("batch_digest"), &value) || !json_string_raw(value, &inner) ||
        !hex_decode(r->digest, inner, SHA256_LEN)) {
        return false;
    }
    r->has_key = json_member(text, SLICE("source"), &source) &&
                 json_member(text, SLICE("batch_id"), &batch_id);
    if (r->has_key) {
        journal_fingerprint(source, batch_id, r->key);
    }
    return true;
}

static int add_receipt(struct verify_head *v, const struct verify_head_receipt *r, struct err *e)
{
    if (v->receipt_count == v->receipt_cap) {
        uint64_t cap = v->receipt_cap == 0 ? 64 : v->receipt_cap * 2;
        void *all = realloc(v->receipts, cap * sizeof *v->receipts);
        if (all == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for receipts");
        }
        v->receipts = all;
        v->receipt_cap = cap;
    }
    v->receipts[v->receipt_count++] = *r;
    return 0;
}

/* Receipts, one a line, as appending answers them or `tallyman append --json` prints them. */
static int load_receipts(struct verify_head *v, const char *path, struct err *e)
{
    struct buf text = {0};
    uint64_t line = 0;
    int r = read_file(path, &text, e);
    struct slice rest = buf_slice(&text);

    while (r == 0 && rest.len > 0) {
        struct verify_head_receipt receipt;
        const char *end = memchr(rest.ptr, '\n', rest.len);
        struct slice one = end == NULL ? rest : slice_of(rest.ptr, (size_t)(end - rest.ptr));
        rest = slice_from(rest, one.len + 1);
        line++;
        if (one.len == 0) {
            continue;
        }
        if (!read_receipt(one, &receipt)) {
            r = err_set(e, ERR_USAGE, "%.200s: line %" PRIu64 " is no receipt of a batch", path,
                        line);
        } else if (v->receipt_count == VERIFY_HEAD_RECEIPTS_MAX) {
            r = err_set(e, ERR_USAGE, "at most %" PRIu64 " receipts are checked at a time",
                        VERIFY_HEAD_RECEIPTS_MAX);
        } else {
            r = add_receipt(v, &receipt, e);
        }
    }
    if (r == 0 && line == 0) {
        r = err_set(e, ERR_USAGE, "%.200s holds no receipt", path);
    }
    buf_free(&text);
    return r;
}

static int by_first_id(const void *a, const void *b)
{
    return uuid_cmp(&((const struct verify_head_receipt *)a)->first_id,
                    &((const struct verify_head_receipt *)b)->first_id);
}

int verify_head_load(struct verify_head *v, const char *head_file, const char *key_file,
                     const struct arg_texts *receipt_files, struct err *e)
{
    uint8_t key[ED25519_PUBLIC_LEN];
    int r = load_head(v, head_file, e);

    if (r == 0) {
        r = load_key(v, key_file, key, e);
    }
    for (unsigned i = 0; i < receipt_files->count && r == 0; i++) {
        r = load_receipts(v, receipt_files->item[i], e);
    }
    if (r != 0) {
        return r;
    }
    if (v->receipt_count > 1) {
        qsort(v->receipts, v->receipt_count, sizeof *v->receipts, by_first_id);
    }
    v->signature_ok = signed_head_check(&v->head, key);
    v->reached = v->head.events == 0;
    v->same = v->reached && memcmp(v->head.head, chain_genesis, SHA256_LEN) == 0;
    return 0;
}

/* ---- comparing ---- */

__attribute__((format(printf, 2, 3))) static void violate(struct verify_head *v, const char *fmt,
                                                          ...)
{
    char text[320];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    v->violation_count++;
    if (v->json) {
        buf_put_cstr(&v->violations, v->violations.len > 0 ? "," : "");
        json_put_string(&v->violations, slice_cstr(text));
    } else {
        buf_printf(&v->violations, "violation: head: %s\n", text);
    }
}

static void judge_receipt(struct verify_head *v, struct verify_head_receipt *r,
                          const struct verify_batch *b)
{
    char id[UUID_TEXT_LEN];
    const char *what = NULL;

    if (b->events_after > v->head.events) {
        what = "is behind the head and not covered by it";
    } else if (uuid_cmp(&b->last_id, &r->last_id) != 0 || b->events != r->events) {
        what = "has another length than the journal's batch";
    } else if (memcmp(b->digest, r->digest, SHA256_LEN) != 0) {
        what = "has another digest than the journal's batch";
    } else if (r->has_key && memcmp(b->key, r->key, sizeof r->key) != 0) {
        what = "names another source or batch_id than the journal";
    }
    r->seen = true;
    if (what == NULL) {
        v->found++;
        return;
    }
    uuid_text(id, &r->first_id);
    violate(v, "the receipt of %.36s %s", id, what);
}

void verify_head_batch(void *ctx, const struct verify_batch *b)
{
    struct verify_head *v = ctx;
    uint64_t low = 0;
    uint64_t high = v->receipt_count;

    if (b->events_after == v->head.events) {
        v->reached = true;
        v->same = memcmp(b->head_after, v->head.head, SHA256_LEN) == 0 &&
                  uuid_cmp(&b->last_id, &v->head.last_id) == 0;
    }
    while (low < high) { /* the first receipt of that first id */
        uint64_t middle = low + (high - low) / 2;
        if (uuid_cmp(&v->receipts[middle].first_id, &b->first_id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < v->receipt_count && uuid_cmp(&v->receipts[low].first_id, &b->first_id) == 0;
         low++) {
        judge_receipt(v, &v->receipts[low], b);
    }
}

int verify_head_judge(struct verify_head *v, const struct verify_report *report, struct err *e)
{
    char id[UUID_TEXT_LEN];

    if (!v->signature_ok) {
        violate(v, "the signature is not that of the %s",
                v->key_given ? "given key" : "head's key");
    }
    if (!v->reached && !report->ok) {
        violate(v, "the journal is not valid up to the head's event %" PRIu64, v->head.events);
    } else if (!v->reached && report->events_checked < v->head.events) {
        violate(v, "the journal has %" PRIu64 " events, the head %" PRIu64, report->events_checked,
                v->head.events);
    } else if (!v->reached) {
        violate(v, "no batch of the journal ends at the head's event %" PRIu64, v->head.events);
    } else if (!v->same) {
        violate(v, "the journal's chain at event %" PRIu64 " is not the head's", v->head.events);
    }
    for (uint64_t i = 0; i < v->receipt_count; i++) {
        if (!v->receipts[i].seen) {
            uuid_text(id, &v->receipts[i].first_id);
            violate(v, "the receipt of %.36s names no batch of the journal", id);
        }
    }
    return v->violations.failed ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
}

/* ---- the report ---- */

void verify_head_put_json(struct buf *b, const struct verify_head *v)
{
    char hex[SHA256_HEX_LEN];

    buf_put_cstr(b, v->violation_count == 0 ? ",\"head\":{\"ok\":true" : ",\"head\":{\"ok\":false");
    buf_put_cstr(b, ",\"frontier_event_count\":");
    buf_put_u64(b, v->head.events);
    hex_encode(hex, v->head.head, SHA256_LEN);
    buf_printf(b, ",\"chain_head\":\"%.64s\",\"signed_at\":\"%s\"", hex, v->head.signed_at);
    signed_head_key_id(v->head.public_key, hex);
    buf_printf(b,
               ",\"key_id\":\"%.64s\",\"key_given\":%s,\"receipts\":%" PRIu64
               ",\"receipts_ok\":%" PRIu64 ",\"violations\":[",
               hex, v->key_given ? "true" : "false", v->receipt_count, v->found);
    buf_put_slice(b, buf_slice(&v->violations));
    buf_put_cstr(b, "]}");
}

void verify_head_print(const struct verify_head *v)
{
    char hex[SHA256_HEX_LEN];

    signed_head_key_id(v->head.public_key, hex);
    output_printf("head: %" PRIu64 " events, signed %s by key %.16s...%s; %" PRIu64 " of %" PRIu64
                  " receipts are under it\n",
                  v->head.events, v->head.signed_at, hex,
                  v->key_given ? "" : " (the head's own: compare its id with one that you know)",
                  v->found, v->receipt_count);
    output_put(buf_slice(&v->violations));
}

void verify_head_free(struct verify_head *v)
{
    free(v->receipts);
    v->receipts = NULL;
    buf_free(&v->violations);
}
