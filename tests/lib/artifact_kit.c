/* Lives and ledger; the oracle is in artifact_kit_check.c. A request is what the door does with
 * one: open, compare, write, sync, accept when all is in, close. With faults any of it may fail;
 * then nothing is told, and the next request begins again. */
#include "tests/lib/artifact_kit.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "os/os.h"
#include "tests/lib/artifact_kit_internal.h"
#include "tests/lib/journal_kit.h"

/* ---- telling ---- */

bool akit_lie(struct akit *k, const char *what, const struct akit_life *l, const char *more)
{
    if (k->lie[0] == '\0') {
        (void)snprintf(k->lie, sizeof k->lie, "%s: upload %u (%.8s), size %llu, told %llu: %.200s",
                       what, (unsigned)(l - k->lives), l->info.id, (unsigned long long)l->info.size,
                       (unsigned long long)l->told_offset, more);
    }
    return false;
}

void akit_content(const struct akit_life *l, unsigned char *out)
{
    if (l->warc) {
        memset(out, 0, (size_t)l->info.size);
        (void)akit_warc(l, out, AKIT_SIZE_MAX);
        return;
    }
    for (uint64_t i = 0; i < l->info.size; i += 8) {
        uint64_t word = kit_mix(l->content + i) | 1; /* never zeros: a hole is noticed */
        memcpy(out + i, &word, l->info.size - i < 8 ? (size_t)(l->info.size - i) : 8);
    }
}

/* A client that asks hears the synced offset, but never the whole length without a receipt. */
void akit_tell_offset(struct akit *k, struct akit_life *l, uint64_t offset)
{
    if (offset < l->told_offset && l->receipt[0] == '\0') {
        char more[64];
        (void)snprintf(more, sizeof more, "%llu", (unsigned long long)offset);
        (void)akit_lie(k, "the offset went back", l, more);
    }
    if (offset < l->info.size && offset > l->told_offset) {
        l->told_offset = offset;
    }
}

void akit_tell_receipt(struct akit *k, struct akit_life *l, const struct receipt *r)
{
    if (l->receipt[0] != '\0' && strcmp(l->receipt, r->json) != 0) {
        (void)akit_lie(k, "the receipt changed", l, r->json);
    }
    if (l->lies) {
        (void)akit_lie(k, "a receipt for other bytes", l, r->json);
    }
    ensure(r->json_len < sizeof l->receipt);
    memcpy(l->receipt, r->json, r->json_len);
    l->receipt[r->json_len] = '\0';
    l->told_id = true;
}

void akit_ask(struct akit *k)
{
    for (unsigned i = 0; i < AKIT_LIVES && k->us != NULL; i++) {
        struct akit_life *l = &k->lives[i];
        struct receipt r;
        struct err e;
        if (l->used && receipt_load(k->us, slice_cstr(l->info.id), &r, &e) == 0) {
            akit_tell_receipt(k, l, &r);
        }
    }
}

/* ---- requests ---- */

static void declare_digest(struct akit_life *l)
{
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    uint8_t digest[BLAKE3_LEN];
    struct blake3 h;
    akit_content(l, bytes);
    blake3_start(&h);
    blake3_add(&h, bytes, (size_t)l->info.size);
    blake3_end(&h, digest);
    digest[0] = (uint8_t)(digest[0] ^ (l->lies ? 1 : 0));
    hex_encode(l->digest, digest, sizeof digest);
    memcpy(l->info.checksum, l->digest, sizeof l->digest);
}

static struct akit_life *declare(struct akit *k, unsigned i, uint64_t size, bool lies)
{
    struct akit_life *l = &k->lives[i];
    ensure(size > 0 && size <= AKIT_SIZE_MAX);
    memset(l, 0, sizeof *l);
    l->used = true;
    l->lies = lies;
    l->content = kit_chance(&k->chance);
    l->info.size = size;
    (void)snprintf(l->info.project, sizeof l->info.project, "demo-%u", i);
    (void)snprintf(l->info.filename, sizeof l->info.filename, "a \"file\" %u \xc3\xa4", i);
    (void)snprintf(l->info.metadata, sizeof l->info.metadata, "project ZGVtbw==");
    declare_digest(l);
    return l;
}

/* Of one project, so that they may be in one package. */
static struct akit_life *declare_warc(struct akit *k, unsigned i)
{
    struct akit_life *l = declare(k, i, 1, false);
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    l->warc = true;
    l->info.size = akit_warc(l, bytes, AKIT_SIZE_MAX);
    (void)snprintf(l->info.project, sizeof l->info.project, "demo");
    declare_digest(l);
    return l;
}

static struct akit_life *declare_nothing(struct akit *k, unsigned i, uint64_t size)
{
    struct akit_life *l = declare(k, i, size, false);
    l->undeclared = true;
    l->info.checksum[0] = '\0';
    return l;
}

/* Writes on to `upto`, syncs, accepts when that is all. */
void akit_go_on(struct akit *k, struct akit_life *l, struct upload *u, uint64_t upto)
{
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    uint64_t from = atomic_load(&u->synced);
    /* Of a creation that was cut nobody knows: its bytes may be anything. */
    bool unknown = !l->told_id && from > 0;
    struct receipt receipt;
    struct err e = {0};
    int r = 0;
    akit_content(l, bytes);
    for (uint64_t at = from; at < upto && r == 0;) {
        size_t n = (size_t)(upto - at < 3000 ? upto - at : 3000);
        r = upload_write(u, bytes + at, n, NULL, &e);
        at += n;
    }
    if (r == 0 && upto < l->info.size) {
        r = upload_sync(u, &e);
    } else if (r == 0) {
        r = upload_accept(u, &receipt, NULL, &e);
        if (r == 0) {
            akit_tell_receipt(k, l, &receipt);
        }
    }
    bool may_be_wrong = l->lies || unknown;
    if (r == ERR_CHECKSUM_MISMATCH && !may_be_wrong && !k->faults) {
        (void)akit_lie(k, "the right bytes were refused", l, e.text);
    }
    if (r == ERR_CHECKSUM_MISMATCH || r == ERR_GONE) {
        l->told_refused = true;
    } else if (r == 0 || l->told_id) {
        l->told_id = true;
        akit_tell_offset(k, l, atomic_load(&u->synced));
    }
    if (r != 0 && !k->faults && !(r == ERR_CHECKSUM_MISMATCH && may_be_wrong)) {
        (void)akit_lie(k, "a request failed", l, e.text);
    }
}

static void request(struct akit *k, unsigned i, uint64_t upto)
{
    struct akit_life *l = &k->lives[i];
    struct upload *u;
    struct err e = {0};
    if (k->us == NULL) {
        return; /* it did not come up again */
    }
    int r = upload_open(k->us, slice_cstr(l->info.id), &u, &e);
    if (r != 0) {
        l->told_refused |= r == ERR_GONE;
        if (!k->faults && !(r == ERR_GONE && l->lies)) {
            (void)akit_lie(k, "it could not be opened", l, e.text);
        }
        return;
    }
    akit_tell_offset(k, l, atomic_load(&u->synced));
    akit_go_on(k, l, u, upto);
    upload_close(u);
}

/* A request with a checksum of its own: it fits, and counts with its sync, or does not, and nothing
 * of it may be seen again. */
static void held_request(struct akit *k, unsigned i, uint64_t upto, bool fits)
{
    struct akit_life *l = &k->lives[i];
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    struct upload *u;
    struct err e = {0};
    if (k->us == NULL || upload_open(k->us, slice_cstr(l->info.id), &u, &e) != 0) {
        return;
    }
    uint64_t from = atomic_load(&u->synced);
    akit_content(l, bytes);
    for (uint64_t at = from; at < upto && !fits; at++) {
        bytes[at] ^= 0x80;
    }
    upload_hold(u);
    int r = from < upto ? upload_write(u, bytes + from, (size_t)(upto - from), NULL, &e) : 0;
    if (r == 0 && fits) {
        upload_release(u);
        r = upload_sync(u, &e);
    } else if (r == 0) {
        r = upload_discard(u, &e);
    }
    if (r == ERR_GONE) {
        l->told_refused = true;
    } else if (r == 0) {
        akit_tell_offset(k, l, atomic_load(&u->synced));
        if (!fits && atomic_load(&u->synced) != from) {
            (void)akit_lie(k, "a request that does not fit counts", l, "");
        }
    }
    if (r != 0 && !k->faults) {
        (void)akit_lie(k, "a held request failed", l, e.text);
    }
    upload_close(u);
}

static bool create_declared(struct akit *k, struct akit_life *l)
{
    struct err e = {0};
    int r = upload_create(k->us, &l->info, true, &e);
    l->used = r == 0;
    l->told_id = r == 0;
    return r == 0;
}

static bool create(struct akit *k, unsigned i, uint64_t size, bool lies)
{
    return create_declared(k, declare(k, i, size, lies));
}

/* Creation with upload: one request; the id is told with the answer. */
static void create_with_bytes(struct akit *k, struct akit_life *l, uint64_t upto)
{
    struct upload *u;
    struct err e = {0};
    int r = upload_create(k->us, &l->info, false, &e);
    l->used = r == 0;
    if (r == 0 && upload_open_new(k->us, &l->info, &u, &e) == 0) {
        akit_go_on(k, l, u, upto);
        upload_close(u);
    }
}

static void create_with(struct akit *k, unsigned i, uint64_t size, bool lies, uint64_t upto)
{
    create_with_bytes(k, declare(k, i, size, lies), upto);
}

static void restart(struct akit *k)
{
    unsigned count;
    struct err e = {0};
    struct uploads_options options = {.data = AKIT_DIR,
                                      .issuer = AKIT_ISSUER,
                                      .trail_step_bytes = AKIT_STEP,
                                      .at_once_bytes = AKIT_AT_ONCE};
    uploads_close(k->us);
    k->us = NULL; /* a stranger may ask meanwhile */
    for (int tries = 0; tries < 3; tries++) {
        if (uploads_open(&options, &k->us, &e) == 0) {
            (void)!uploads_clean(k->us, &count, &e);
            return;
        }
    }
}

static void trail(struct akit *k)
{
    if (k->us != NULL) {
        uploads_trail(k->us);
    }
}

static uint64_t some_size(struct akit *k)
{
    return 600 + kit_chance(&k->chance) % (AKIT_SIZE_MAX - 600);
}

/* ---- scenarios ---- */

static void run_whole(struct akit *k)
{
    create_with(k, 0, 900, false, 900);
    create_with(k, 1, some_size(k) % 3000 + 1, false, 1);
}

static void run_whole_wrong(struct akit *k)
{
    create_with(k, 0, 1400, true, 1400);
}

static void run_two(struct akit *k)
{
    if (create(k, 0, 1500, false)) {
        request(k, 0, 1500);
    }
}

static void run_parts(struct akit *k)
{
    uint64_t size = some_size(k);
    if (create(k, 0, size, false)) {
        request(k, 0, size / 3);
        request(k, 0, size / 2);
        request(k, 0, size - 1);
        request(k, 0, size);
    }
}

static void run_parts_wrong(struct akit *k)
{
    uint64_t size = some_size(k);
    if (create(k, 0, size, true)) {
        request(k, 0, size / 2);
        request(k, 0, size);
        request(k, 0, size);
    }
}

static void run_creation_cut(struct akit *k)
{
    create_with(k, 0, 5000, false, 700);
    if (k->lives[0].told_id) {
        request(k, 0, 2000);
        request(k, 0, 5000);
    }
}

static void run_side_by_side(struct akit *k)
{
    bool first = create(k, 0, 2500, false);
    create_with(k, 1, 1000, false, 1000);
    if (first) {
        request(k, 0, 1200);
    }
    create_with(k, 2, 800, false, 500);
    if (first) {
        request(k, 0, 2500);
    }
}

static void run_removed(struct akit *k)
{
    struct akit_life *l = &k->lives[0];
    struct err e = {0};
    if (create(k, 0, 3000, false)) {
        request(k, 0, 1000);
        l->told_id = false; /* from here on it may be there or not */
        l->told_offset = 0;
        l->told_removed = upload_remove(k->us, slice_cstr(l->info.id), &e) == 0;
    }
}

static void run_terminated(struct akit *k)
{
    struct akit_life *l = &k->lives[0];
    struct err e = {0};
    bool left = false;
    if (create(k, 0, 3000, false)) {
        request(k, 0, k->large ? AKIT_AT_ONCE + 400 : 1000);
        l->told_id = false; /* from here on it may be there or not */
        l->told_offset = 0;
        bool told = upload_terminate(k->us, slice_cstr(l->info.id), &left, &e) == 0;
        *(k->large ? &l->told_ended : &l->told_removed) = told;
        /* With faults the power fails here: nothing may hang on what the freeing syncs. */
        if (told && left && !k->faults) {
            (void)!upload_free_gone(k->us, slice_cstr(l->info.id), &e);
        }
    }
}

/* Its end is told before its bytes go. */
static void run_ended(struct akit *k)
{
    k->large = true;
    run_terminated(k);
}

static void run_held(struct akit *k)
{
    if (create(k, 0, 2500, false)) {
        held_request(k, 0, 900, false);
        held_request(k, 0, 1500, true);
        held_request(k, 0, 2500, false);
        request(k, 0, 2500);
    }
}

static void run_undeclared(struct akit *k)
{
    if (create_declared(k, declare_nothing(k, 0, 3000))) {
        request(k, 0, 1000);
        request(k, 0, 2000);
        request(k, 0, 3000);
    }
    create_with_bytes(k, declare_nothing(k, 1, 900), 900);
}

static void run_state_taken(struct akit *k)
{
    char path[128];
    struct akit_life *l = &k->lives[0];
    if (create(k, 0, 4000, false)) {
        request(k, 0, 1700);
        (void)snprintf(path, sizeof path, AKIT_DIR "/uploads/%s.state", l->info.id);
        l->state_taken = os_unlink(path) == 0 && os_sync_dir(AKIT_DIR "/uploads") == 0;
        request(k, 0, 2500);
        request(k, 0, 4000);
    }
}

static void run_restarts(struct akit *k)
{
    if (create(k, 0, 3500, false)) {
        request(k, 0, 900);
        restart(k);
        request(k, 0, 1900);
        restart(k);
        request(k, 0, 3500);
        restart(k);
        request(k, 0, 3500);
    }
}

/* What was synced is read back between the requests, and once in the middle of one; the trail of a
 * process that ended is lost. */
static void run_trailed(struct akit *k)
{
    if (create(k, 0, 5000, false)) {
        request(k, 0, 1300);
        trail(k);
        request(k, 0, 2900);
        trail(k);
        request(k, 0, 4100);
        restart(k);
        request(k, 0, 4700);
        trail(k);
        request(k, 0, 5000);
    }
}

/* The last piece is in, its acceptance is not: somebody asks again. */
static void run_unaccepted(struct akit *k)
{
    struct akit_life *l = &k->lives[0];
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    struct upload *u;
    struct err e = {0};
    if (!create(k, 0, 2200, false) || upload_open(k->us, slice_cstr(l->info.id), &u, &e) != 0) {
        return;
    }
    akit_content(l, bytes);
    if (upload_write(u, bytes, 1000, NULL, &e) == 0 && upload_sync(u, &e) == 0) {
        akit_tell_offset(k, l, atomic_load(&u->synced));
        if (upload_write(u, bytes + 1000, 1200, NULL, &e) == 0) {
            (void)!upload_sync(u, &e);
        }
    }
    upload_close(u);
    request(k, 0, 2200);
}

/* One request, its package; the next start finds it built. */
static void run_packaged(struct akit *k)
{
    struct akit_life *l = declare(k, 0, 2900, false);
    l->packaged = true;
    create_with_bytes(k, l, 2900);
    for (int i = 0; i < 2; i++) {
        if (akit_package_folders(k)) {
            akit_deliver(k, l);
        }
        restart(k);
    }
}

/* Two, of which one is delivered and goes; its neighbour stays. */
static void run_purged(struct akit *k)
{
    struct akit_life *l = declare(k, 0, 2900, false);
    l->packaged = true;
    l->purges = true;
    create_with_bytes(k, l, 2900);
    create_with(k, 1, 700, false, 700);
    if (akit_package_folders(k)) {
        akit_deliver(k, l);
    }
}

/* Two in one package, and a third that is in none. */
static struct akit_life *merge(struct akit *k)
{
    struct akit_life *l = declare_warc(k, 0);
    l->mate = true;
    create_with_bytes(k, l, l->info.size);
    l = declare_warc(k, 1);
    l->packaged = true;
    create_with_bytes(k, l, l->info.size);
    return l;
}

static void run_merged(struct akit *k)
{
    struct akit_life *l = merge(k);
    for (int i = 0; i < 2; i++) {
        if (akit_package_folders(k)) {
            akit_deliver(k, l);
        }
        restart(k);
    }
}

static void run_merged_purged(struct akit *k)
{
    struct akit_life *l = merge(k);
    l->purges = true;
    create_with(k, 2, 700, false, 700);
    if (akit_package_folders(k)) {
        akit_deliver(k, l);
    }
}

const struct akit_scenario akit_scenarios[AKIT_SCENARIOS] = {
    {"whole", run_whole},
    {"whole-wrong", run_whole_wrong},
    {"two", run_two},
    {"parts", run_parts},
    {"parts-wrong", run_parts_wrong},
    {"creation-cut", run_creation_cut},
    {"side-by-side", run_side_by_side},
    {"removed", run_removed},
    {"state-taken", run_state_taken},
    {"restarts", run_restarts},
    {"trailed", run_trailed},
    {"unaccepted", run_unaccepted},
    {"terminated", run_terminated},
    {"ended", run_ended},
    {"held", run_held},
    {"undeclared", run_undeclared},
    {"packaged", run_packaged},
    {"purged", run_purged},
    {"merged", run_merged},
    {"merged-purged", run_merged_purged},
};

struct model *akit_disk(uint64_t seed, enum model_order order)
{
    struct model_options options = {.root = AKIT_ROOT, .seed = seed, .order = order};
    struct model *m = model_new(&options);
    model_use(m);
    ensure(os_mkdir(AKIT_DIR, 0700) == 0);
    ensure(os_sync_dir(AKIT_ROOT) == 0);
    return m;
}

void akit_run(struct akit *k, const struct akit_scenario *s, uint64_t seed, bool faults)
{
    struct uploads_options options = {.data = AKIT_DIR,
                                      .issuer = AKIT_ISSUER,
                                      .trail_step_bytes = AKIT_STEP,
                                      .at_once_bytes = AKIT_AT_ONCE};
    struct err e = {0};
    memset(k, 0, sizeof *k);
    k->chance = seed;
    k->faults = faults;
    if (uploads_open(&options, &k->us, &e) == 0) {
        s->run(k);
    } else if (!faults) {
        (void)snprintf(k->lie, sizeof k->lie, "the store does not open: %s", e.text);
    }
    uploads_close(k->us);
    k->us = NULL;
}
