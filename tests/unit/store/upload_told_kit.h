/* upload_told_kit: the world of test_upload_told: one upload on a disk in memory, what it may stand
 * like before an operation, and what must hold behind it.
 *
 * Everything is static; a test includes this once. */
#ifndef TESTS_UNIT_STORE_UPLOAD_TOLD_KIT_H
#define TESTS_UNIT_STORE_UPLOAD_TOLD_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"
#include "tests/lib/artifact_kit.h"
#include "tests/lib/artifact_kit_internal.h"

#define SIZE   3000
#define FIRST  1000
#define SECOND 2000

struct world {
    struct akit k;
    struct model *m;
    struct upload *u;
    unsigned seen;
};

static struct world world;

static inline struct akit_life *life(struct world *w)
{
    return &w->k.lives[0];
}

static inline struct slice id_of(struct world *w)
{
    return slice_cstr(life(w)->info.id);
}

static inline const char *path_of(struct world *w, const char *folder, const char *before,
                                  const char *after)
{
    static char path[4][160];
    static unsigned next;
    char *p = path[next++ % 4];
    (void)snprintf(p, sizeof path[0], AKIT_DIR "/%s/%s%s%s", folder, before, life(w)->info.id,
                   after);
    return p;
}

/* ---- requests ---- */

enum declared { RIGHT, WRONG, NOTHING };

static inline void declare(struct world *w, enum declared what)
{
    struct akit_life *l = life(w);
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    uint8_t digest[BLAKE3_LEN];
    struct blake3 h;
    memset(l, 0, sizeof *l);
    l->used = true;
    l->lies = what == WRONG;
    l->undeclared = what == NOTHING;
    l->content = 7;
    l->info.size = SIZE;
    (void)snprintf(l->info.project, sizeof l->info.project, "demo");
    (void)snprintf(l->info.filename, sizeof l->info.filename, "a.warc.gz");
    akit_content(l, bytes);
    blake3_start(&h);
    blake3_add(&h, bytes, SIZE);
    blake3_end(&h, digest);
    digest[0] = (uint8_t)(digest[0] ^ (l->lies ? 1 : 0));
    hex_encode(l->digest, digest, sizeof digest);
    l->digest[BLAKE3_HEX_LEN] = '\0';
    if (what != NOTHING) {
        memcpy(l->info.checksum, l->digest, sizeof l->digest);
    }
}

static inline int create(struct world *w, bool sync_now, struct err *e)
{
    int r = upload_create(w->k.us, &life(w)->info, sync_now, e);
    life(w)->used = r == 0;
    life(w)->told_id = r == 0 && sync_now;
    return r;
}

/* From where it stands to `upto`; what is answered is told. */
static inline int give(struct world *w, uint64_t upto, struct err *e)
{
    struct akit_life *l = life(w);
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    struct receipt receipt;
    uint64_t from = atomic_load(&w->u->synced);
    akit_content(l, bytes);
    int r = upload_write(w->u, bytes + from, (size_t)(upto - from), NULL, e);
    if (r == 0 && upto < SIZE) {
        r = upload_sync(w->u, e);
    } else if (r == 0) {
        r = upload_accept(w->u, &receipt, NULL, e);
        if (r == 0) {
            akit_tell_receipt(&w->k, l, &receipt);
        }
    }
    if (r == ERR_CHECKSUM_MISMATCH || r == ERR_GONE) {
        l->told_refused = true;
    } else if (r == 0 || l->told_id) {
        l->told_id = true;
        akit_tell_offset(&w->k, l, atomic_load(&w->u->synced));
    }
    return r == ERR_CHECKSUM_MISMATCH && l->lies ? 0 : r;
}

static inline int request(struct world *w, uint64_t upto, struct err *e)
{
    int r = upload_open(w->k.us, id_of(w), &w->u, e);
    life(w)->told_refused = r == ERR_GONE;
    return r == 0 ? give(w, upto, e) : r;
}

static inline void hang_up(struct world *w)
{
    upload_close(w->u);
    w->u = NULL;
}

/* ---- before ---- */

static inline int open_store(struct world *w, struct err *e)
{
    struct uploads_options options = {
        .data = AKIT_DIR, .issuer = AKIT_ISSUER, .trail_step_bytes = AKIT_STEP};
    return uploads_open(&options, &w->k.us, e);
}

static inline void begin_disk(void *ctx)
{
    struct world *w = ctx;
    memset(w, 0, sizeof *w);
    w->m = akit_disk(1, MODEL_REORDERED);
}

static inline void begin_store(void *ctx)
{
    struct world *w = ctx;
    struct err e = {0};
    begin_disk(w);
    assert_int_equal(open_store(w, &e), 0);
    declare(w, RIGHT);
    life(w)->used = false; /* not yet */
}

/* A second goes by between two looks at the clock: a receipt is written twice. */
static inline void begin_slow_clock(void *ctx)
{
    struct world *w = ctx;
    begin_store(w);
    model_clock_step(w->m, UINT64_C(1500000000));
}

static inline void must(struct world *w, uint64_t upto)
{
    struct err e = {0};
    assert_int_equal(request(w, upto, &e), 0);
    hang_up(w);
}

static inline void begin_as(struct world *w, enum declared what, uint64_t first, uint64_t second)
{
    struct err e = {0};
    begin_store(w);
    declare(w, what);
    assert_int_equal(create(w, true, &e), 0);
    if (first > 0) {
        must(w, first);
    }
    if (second > 0) {
        must(w, second);
    }
}

static inline void begin_created(void *ctx)
{
    begin_as(ctx, RIGHT, 0, 0);
}

static inline void begin_first(void *ctx)
{
    begin_as(ctx, RIGHT, FIRST, 0);
}

static inline void begin_second(void *ctx)
{
    begin_as(ctx, RIGHT, FIRST, SECOND);
}

static inline void begin_wrong(void *ctx)
{
    begin_as(ctx, WRONG, FIRST, 0);
}

static inline void begin_undeclared(void *ctx)
{
    begin_as(ctx, NOTHING, FIRST, 0);
}

static inline void begin_accepted(void *ctx)
{
    begin_as(ctx, RIGHT, FIRST, SIZE);
}

static inline void begin_refused(void *ctx)
{
    begin_as(ctx, WRONG, FIRST, SIZE);
}

/* Bytes of another program's, or of this one, killed before their sync: `n` are there. */
static inline void more_bytes(struct world *w, uint64_t n)
{
    unsigned char bytes[AKIT_SIZE_MAX + 8];
    int fd = os_open(path_of(w, "uploads", "", ""), O_WRONLY, 0);
    akit_content(life(w), bytes);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, bytes, (size_t)n, 0, NULL), 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_close(fd), 0);
}

static inline void begin_tail(void *ctx)
{
    begin_first(ctx);
    more_bytes(ctx, SECOND);
}

static inline void begin_complete(void *ctx)
{
    begin_first(ctx);
    more_bytes(ctx, SIZE);
}

static inline void take_state(struct world *w)
{
    assert_int_equal(os_unlink(path_of(w, "uploads", "", ".state")), 0);
    assert_int_equal(os_sync_dir(AKIT_DIR "/uploads"), 0);
    life(w)->state_taken = true;
}

static inline void begin_stateless(void *ctx)
{
    begin_second(ctx);
    take_state(ctx);
}

static inline void begin_stateless_complete(void *ctx)
{
    begin_first(ctx);
    more_bytes(ctx, SIZE);
    take_state(ctx);
}

static inline void begin_stateless_longer(void *ctx)
{
    begin_first(ctx);
    more_bytes(ctx, SIZE + 5);
    take_state(ctx);
}

/* The receipt's name was taken back, its folder's sync failed: nobody knows what the device has. */
static inline void begin_doubtful(void *ctx)
{
    struct world *w = ctx;
    struct err e = {0};
    struct fault fault = {.kind = FAULT_ERROR,
                          .error = EIO,
                          .at = 1,
                          .call = OS_CALL_fsync,
                          .path = AKIT_DIR "/receipts"};
    begin_undeclared(w);
    model_fault_arm(w->m, &fault);
    assert_int_equal(request(w, SIZE, &e), ERR_IO);
    model_fault_arm(w->m, NULL);
    hang_up(w);
}

/* Names that a crash leaves, and one upload that stays. */
static inline void begin_leavings(void *ctx)
{
    static const char *const names[] = {"uploads/.gone-", "uploads/.state-", "receipts/.receipt-",
                                        "uploads/"};
    struct world *w = ctx;
    char path[160];
    begin_first(w);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, AKIT_DIR "/%s%032zu", names[i], i);
        int fd = os_open(path, O_WRONLY | O_CREAT, 0600);
        assert_true(fd >= 0);
        assert_int_equal(os_close(fd), 0);
    }
}

/* ---- after ---- */

/* No name of ours that nobody asked for. */
static inline void no_temporary_names(struct world *w)
{
    assert_true(model_get(w->m, path_of(w, "uploads", ".gone-", ""), NULL, 0) < 0);
    assert_true(model_get(w->m, path_of(w, "uploads", ".state-", ""), NULL, 0) < 0);
    assert_true(model_get(w->m, path_of(w, "receipts", ".receipt-", ""), NULL, 0) < 0);
}

/* That disk holds what was told, is started with, and what is on it finished. */
static inline void hold(struct world *w, struct model *after, const char *what)
{
    static struct akit k;
    k = w->k;
    model_use(after);
    if (!akit_check_disk(after, &k) || !akit_check_start(&k) || !akit_finish(&k)) {
        fail_msg("%s: %s", what, k.lie);
    }
    akit_end(&k);
    model_free(after);
}

static inline void end(void *ctx, int r)
{
    struct world *w = ctx;
    struct model_choice none = {.how = MODEL_CUT_NONE};
    hang_up(w);
    /* A refusal that the disk did not take holds as long as the process. */
    w->k.faults = r != 0 || (w->k.us != NULL &&
                             upload_mark_has(w->k.us, life(w)->info.id, UPLOAD_MARK_GONE, NULL));
    uploads_close(w->k.us);
    w->k.us = NULL;
    assert_string_equal(w->k.lie, "");
    if (life(w)->info.id[0] != '\0') {
        no_temporary_names(w);
    }
    hold(w, model_crash(w->m, &none), "after a power cut");
    hold(w, model_snapshot(w->m), "killed");
    model_use(w->m);
    model_free(w->m);
}

/* Nothing of a creation that failed stays. */
static inline void end_created(void *ctx, int r)
{
    struct world *w = ctx;
    if (r != 0 && life(w)->info.id[0] != '\0') {
        assert_true(model_get(w->m, path_of(w, "uploads", "", ""), NULL, 0) < 0);
        assert_true(model_get(w->m, path_of(w, "uploads", "", ".info"), NULL, 0) < 0);
        assert_true(model_get(w->m, path_of(w, "uploads", "", ".state"), NULL, 0) < 0);
    }
    end(w, r);
}

#endif
