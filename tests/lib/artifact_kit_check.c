/* The oracle of the artifact door's crash tests.
 *
 * Of the disk alone: an offset that was told has its bytes there, and they are the right ones; a
 * receipt that is there has all of its bytes there, told or not; one that was told is unchanged.
 * Of a start: what was told is found again; nothing is reported that is not so; whatever was cut
 * can be finished, and only right bytes are accepted. */
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "os/os.h"
#include "tests/lib/artifact_kit_internal.h"
#include "tests/lib/journal_kit.h"

/* An id was drawn for it. */
static bool known(const struct akit_life *l)
{
    return l->used && l->info.id[0] != '\0';
}

static int64_t get_file(const struct model *m, const struct akit_life *l, const char *folder,
                        const char *suffix, void *bytes, size_t n)
{
    char path[128];
    (void)snprintf(path, sizeof path, AKIT_DIR "/%s/%s%s", folder, l->info.id, suffix);
    return model_get(m, path, bytes, n);
}

static bool prefix_right(const struct model *m, const struct akit_life *l, uint64_t length)
{
    unsigned char want[AKIT_SIZE_MAX + 8];
    unsigned char got[AKIT_SIZE_MAX + 8];
    int64_t size = get_file(m, l, "uploads", "", got, sizeof got);
    akit_content(l, want);
    return length == 0 || (size >= (int64_t)length && memcmp(want, got, (size_t)length) == 0);
}

/* proven: the far side has it, so that there may be no bytes; never some of them. */
static bool check_receipt(const struct model *m, struct akit *k, struct akit_life *l, bool proven)
{
    char json[RECEIPT_BYTES_MAX + 1] = "";
    struct receipt r;
    struct err e;
    int64_t size = get_file(m, l, "receipts", ".json", json, RECEIPT_BYTES_MAX);
    if (size < 0) {
        return l->receipt[0] == '\0' ? true : akit_lie(k, "a receipt was lost", l, l->receipt);
    }
    if (size >= RECEIPT_BYTES_MAX || receipt_parse(slice_of(json, (size_t)size), &r, &e) != 0) {
        return akit_lie(k, "a receipt is torn", l, json);
    }
    json[size] = '\0';
    if (l->receipt[0] != '\0' && strcmp(json, l->receipt) != 0) {
        return akit_lie(k, "a receipt was changed", l, json);
    }
    if (l->lies || strcmp(r.checksum, l->digest) != 0 || r.size_bytes != l->info.size ||
        strcmp(r.object_id, l->info.id) != 0 || strcmp(r.issuer, AKIT_ISSUER) != 0) {
        return akit_lie(k, "a receipt says something else", l, json);
    }
    if (proven && get_file(m, l, "uploads", "", NULL, 0) < 0) {
        return true;
    }
    if (!prefix_right(m, l, l->info.size) ||
        get_file(m, l, "uploads", "", NULL, 0) != (int64_t)l->info.size) {
        return akit_lie(k, "a receipt without its bytes", l, json);
    }
    return true;
}

bool akit_check_disk(const struct model *m, struct akit *k)
{
    for (unsigned i = 0; i < AKIT_LIVES; i++) {
        struct akit_life *l = &k->lives[i];
        if (!known(l)) {
            continue;
        }
        bool proven = akit_proven(m, k, l);
        if (k->lie[0] != '\0' || !check_receipt(m, k, l, proven) ||
            !akit_check_package(m, k, l, proven)) {
            return false;
        }
        if (proven) {
            continue;
        }
        /* The reason is durable before a byte of a wrong upload goes. */
        bool refused = l->lies && get_file(m, l, "uploads", ".gone", NULL, 0) > 0;
        if (!refused && !l->told_refused && !l->told_removed && !l->told_ended &&
            !prefix_right(m, l, l->told_offset)) {
            return akit_lie(k, "an offset without its bytes", l, "");
        }
    }
    return true;
}

/* ---- a start ---- */

static bool same_info(const struct upload_info *a, const struct upload_info *b)
{
    return a->size == b->size && a->created_ms == b->created_ms && strcmp(a->id, b->id) == 0 &&
           strcmp(a->project, b->project) == 0 && strcmp(a->checksum, b->checksum) == 0 &&
           strcmp(a->filename, b->filename) == 0 && strcmp(a->metadata, b->metadata) == 0;
}

/* An upload that was opened at its synced offset: those bytes are on the device, and right. */
static bool check_open(struct akit *k, struct akit_life *l, const struct upload *u)
{
    uint64_t synced = atomic_load(&u->synced);
    if (synced < l->told_offset) {
        return akit_lie(k, "after a start the offset is lower", l, "");
    }
    if (!l->told_id) {
        return true; /* nobody knew of it: its bytes are judged at the end */
    }
    if (!prefix_right(model_in_use(), l, synced)) {
        return akit_lie(k, "after a start an offset without its bytes", l, "");
    }
    akit_tell_offset(k, l, synced);
    return k->lie[0] == '\0';
}

static bool check_refused(struct akit *k, struct akit_life *l, int code, const char *text)
{
    if (code == ERR_GONE || code == ERR_CHECKSUM_MISMATCH) {
        bool may = l->lies || l->told_removed || l->told_ended || (k->faults && l->told_refused);
        return may || !l->told_id ? true : akit_lie(k, "refused after a start", l, text);
    }
    if (code == ERR_NOT_FOUND || (code == ERR_CORRUPT && !l->told_id)) {
        return !l->told_id ? true : akit_lie(k, "an upload was lost", l, text);
    }
    return akit_lie(k, "it does not open after a start", l, text);
}

static bool check_life(struct akit *k, struct akit_life *l)
{
    struct upload_info info;
    struct upload *u;
    struct err e = {0};
    char reason[UPLOAD_REASON_MAX];
    int r = upload_load(k->us, slice_cstr(l->info.id), &info, &e);
    if (r == 0 && !same_info(&info, &l->info)) {
        return akit_lie(k, "the .info says something else", l, "");
    }
    if (r != 0) {
        return check_refused(k, l, r, e.text);
    }
    if (l->told_removed) {
        return akit_lie(k, "a removed upload came back", l, "");
    }
    bool gone = upload_gone(k->us, slice_cstr(l->info.id), reason);
    if (l->told_ended && !gone) {
        return akit_lie(k, "an upload that was ended came back", l, "");
    }
    if (l->told_refused && !k->faults && !gone) {
        return akit_lie(k, "a refusal was forgotten", l, "");
    }
    r = upload_open(k->us, slice_cstr(l->info.id), &u, &e);
    if (r != 0) {
        return check_refused(k, l, r, e.text);
    }
    if (l->told_refused) {
        /* It could not be written down: from now on it is what its files say. */
        l->told_refused = false;
        l->told_offset = 0;
    }
    bool ok = check_open(k, l, u);
    upload_close(u);
    return ok;
}

static int count_seen(void *ctx, const struct upload_seen *seen)
{
    ensure(upload_id_ok(slice_cstr(seen->id)));
    ensure(seen->kind == UPLOAD_BROKEN || seen->kind == UPLOAD_ACCEPTED || seen->activity_ms > 0);
    *(unsigned *)ctx += 1;
    return 0;
}

static bool no_temporary_names(const struct model *m, const struct akit_life *l)
{
    static const char *const forms[] = {"uploads/.gone-", "uploads/.state-", "receipts/.receipt-"};
    char path[128];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        (void)snprintf(path, sizeof path, AKIT_DIR "/%s%s", forms[i], l->info.id);
        if (model_get(m, path, NULL, 0) >= 0) {
            return false;
        }
    }
    return true;
}

bool akit_check_start(struct akit *k)
{
    struct uploads_options options = {.data = AKIT_DIR, .issuer = AKIT_ISSUER};
    unsigned count;
    unsigned seen = 0;
    struct err e = {0};
    if (uploads_open(&options, &k->us, &e) != 0 || uploads_clean(k->us, &count, &e) != 0 ||
        uploads_scan(k->us, count_seen, &seen, &e) != 0) {
        (void)snprintf(k->lie, sizeof k->lie, "the store does not start: %s", e.text);
        return false;
    }
    akit_ask(k);
    for (unsigned i = 0; i < AKIT_LIVES; i++) {
        struct akit_life *l = &k->lives[i];
        if (!known(l)) {
            continue;
        }
        if (l->packaged && !akit_package_folders(k)) {
            return akit_lie(k, "the deliverer does not start", l, "");
        }
        if (!no_temporary_names(model_in_use(), l) || !akit_no_package_temps(model_in_use(), l)) {
            return akit_lie(k, "a temporary name stayed", l, "");
        }
        /* Of one whose bytes go by a proof there are parts, which are nobody's answer. */
        if (!akit_proven(model_in_use(), k, l) && !check_life(k, l)) {
            return false;
        }
        akit_deliver(k, l);
    }
    return k->lie[0] == '\0';
}

/* ---- the end ---- */

static bool finish_life(struct akit *k, struct akit_life *l)
{
    struct upload *u;
    struct err e = {0};
    char reason[UPLOAD_REASON_MAX];
    bool known = l->told_id;
    int r = upload_open(k->us, slice_cstr(l->info.id), &u, &e);
    if (r != 0) {
        return check_refused(k, l, r, e.text);
    }
    akit_go_on(k, l, u, l->info.size);
    upload_close(u);
    if (!known && l->receipt[0] == '\0') {
        return k->lie[0] == '\0'; /* never told, its bytes were not all right: refused */
    }
    bool gone = upload_gone(k->us, slice_cstr(l->info.id), reason);
    if (l->lies ? !gone : l->receipt[0] == '\0' && !l->told_removed && !l->told_ended) {
        return akit_lie(k, "it cannot be finished", l, reason);
    }
    return k->lie[0] == '\0';
}

bool akit_finish(struct akit *k)
{
    k->faults = false;
    for (unsigned i = 0; i < AKIT_LIVES; i++) {
        struct akit_life *l = &k->lives[i];
        if (known(l) && !akit_proven(model_in_use(), k, l) && !finish_life(k, l)) {
            return false;
        }
        akit_deliver(k, l);
        if (l->packaged && l->receipt[0] != '\0' &&
            (i == 0 || !l[-1].mate || l[-1].receipt[0] != '\0') &&
            (l->purges ? !l->told_purged : l->plan[0] == '\0')) {
            return akit_lie(k, "it cannot be delivered", l, "");
        }
    }
    return akit_check_disk(model_in_use(), k);
}

void akit_end(struct akit *k)
{
    uploads_close(k->us);
    k->us = NULL;
}

uint64_t akit_hash(const struct akit *k)
{
    uint64_t h = 0;
    for (unsigned i = 0; i < AKIT_LIVES; i++) {
        const struct akit_life *l = &k->lives[i];
        h = kit_mix(h ^ l->told_offset ^ (uint64_t)l->told_id << 60 ^ (uint64_t)l->used << 61 ^
                    (uint64_t)l->told_refused << 62 ^ (uint64_t)l->told_removed << 63);
        h = kit_mix(h ^ (l->receipt[0] != '\0') ^ (uint64_t)(l->plan[0] != '\0') << 1 ^
                    (uint64_t)l->told_proven << 2 ^ (uint64_t)l->told_purged << 3 ^
                    (uint64_t)l->told_ended << 4);
    }
    return h;
}
