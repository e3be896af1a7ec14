/* What the cache shows and the device has not got, on the model disk: nothing of it is told, unless
 * a sync has made it true. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload.h"
#include "tests/lib/artifact_kit.h"

#define SIZE 9000u

static unsigned char bytes[SIZE];

struct world {
    struct model *m;
    struct uploads *us;
    struct upload_info info;
    struct err e;
    uint64_t peeked; /* what somebody beside the writer was told */
    bool peeking;
};

static void start(struct world *w)
{
    struct uploads_options options = {.data = AKIT_DIR, .issuer = AKIT_ISSUER};
    assert_int_equal(uploads_open(&options, &w->us, &w->e), 0);
}

/* An upload of which nothing is there. */
static int setup(void **state)
{
    static struct world w;
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    memset(&w, 0, sizeof w);
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 251 + 1);
    }
    w.m = akit_disk(1, MODEL_REORDERED);
    start(&w);
    w.info.size = SIZE;
    (void)snprintf(w.info.project, sizeof w.info.project, "demo");
    blake3_start(&h);
    blake3_add(&h, bytes, SIZE);
    blake3_end(&h, digest);
    hex_encode(w.info.checksum, digest, sizeof digest);
    assert_int_equal(upload_create(w.us, &w.info, true, &w.e), 0);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    uploads_close(w->us);
    model_free(w->m);
    return 0;
}

static void path_of(const struct world *w, const char *suffix, char path[128])
{
    (void)snprintf(path, 128, AKIT_DIR "/uploads/%s%s", w->info.id, suffix);
}

static struct upload *reopen(struct world *w)
{
    struct upload *u = NULL;
    if (upload_open(w->us, slice_cstr(w->info.id), &u, &w->e) != 0) {
        fail_msg("%s", w->e.text);
    }
    return u;
}

/* The power fails, and nothing that was not synced is on the disk. */
static void cut_power(struct world *w)
{
    struct model *after = model_crash(w->m, &(struct model_choice){.how = MODEL_CUT_NONE});
    uploads_close(w->us);
    model_free(w->m);
    model_use(after);
    w->m = after;
    start(w);
}

/* A process was killed with bytes that only the cache holds, and ID.state is lost: what the bytes
 * say is told only when they are on the disk. */
static void read_again(void **state, uint64_t length, uint64_t told)
{
    struct world *w = *state;
    char path[128];
    unsigned char stored[SIZE];
    struct upload *u = reopen(w);
    assert_int_equal(upload_write(u, bytes, length, NULL, &w->e), 0);
    upload_close(u);
    path_of(w, ".state", path);
    assert_int_equal(os_unlink(path), 0);
    u = reopen(w);
    assert_int_equal(atomic_load(&u->synced), length);
    upload_close(u);
    cut_power(w);
    u = reopen(w);
    assert_int_equal(atomic_load(&u->synced), told);
    upload_close(u);
    path_of(w, "", path);
    assert_int_equal(model_get(w->m, path, stored, sizeof stored), length);
    assert_memory_equal(stored, bytes, length);
}

static void bytes_that_were_read_again_are_durable(void **state)
{
    read_again(state, 5000, 5000);
}

static void a_whole_file_that_was_read_again_is_durable(void **state)
{
    read_again(state, SIZE, SIZE);
}

/* A save whose sync failed stands in the cache, and the next sync says that all is well. */
static void a_save_that_failed_is_not_told(void **state)
{
    struct world *w = *state;
    uint64_t offset;
    struct upload *u = reopen(w);
    assert_int_equal(upload_write(u, bytes, 3000, NULL, &w->e), 0);
    assert_int_equal(upload_sync(u, &w->e), 0);
    assert_int_equal(upload_write(u, bytes + 3000, 2000, NULL, &w->e), 0);
    model_fault_arm(
        w->m, &(struct fault){.error = EIO, .at = 1, .call = OS_CALL_fdatasync, .path = ".state"});
    assert_int_equal(upload_sync(u, &w->e), ERR_IO);
    model_fault_arm(w->m, NULL);
    assert_int_equal(atomic_load(&u->synced), 3000);
    assert_int_equal(upload_write(u, bytes + 5000, 1, NULL, &w->e), ERR_IO); /* unsettled */
    assert_int_equal(upload_synced_offset(w->us, slice_cstr(w->info.id), &offset, &w->e), 0);
    assert_int_equal(offset, 3000);
    upload_close(u);
    cut_power(w);
    assert_int_equal(upload_synced_offset(w->us, slice_cstr(w->info.id), &offset, &w->e), 0);
    assert_int_equal(offset, 3000);
}

/* Before the sync of a save: what is told must stand, though the writer has not synced it. */
static void peek_before_the_sync(void *ctx, struct model *m, const struct model_call *call)
{
    struct world *w = ctx;
    struct model *after;
    uint64_t offset;
    if (w->peeking || call->call != OS_CALL_fdatasync || strstr(call->path, ".state") == NULL) {
        return;
    }
    w->peeking = true;
    assert_int_equal(upload_synced_offset(w->us, slice_cstr(w->info.id), &w->peeked, &w->e), 0);
    after = model_crash(m, &(struct model_choice){.how = MODEL_CUT_NONE});
    model_use(after);
    assert_int_equal(upload_synced_offset(w->us, slice_cstr(w->info.id), &offset, &w->e), 0);
    assert_int_equal(offset, w->peeked);
    model_free(after);
    model_use(m);
}

static void a_save_is_synced_by_who_tells_it(void **state)
{
    struct world *w = *state;
    struct upload *u = reopen(w);
    assert_int_equal(upload_write(u, bytes, 3000, NULL, &w->e), 0);
    assert_int_equal(upload_sync(u, &w->e), 0);
    assert_int_equal(upload_write(u, bytes + 3000, 2000, NULL, &w->e), 0);
    model_set_hook(w->m, peek_before_the_sync, w);
    assert_int_equal(upload_sync(u, &w->e), 0);
    model_set_hook(w->m, NULL, NULL);
    upload_close(u);
    assert_true(w->peeking);
}

/* All bytes stand in the cache, their write-back failed, and the next sync says that all is well:
 * the file does not prove itself. */
static void a_whole_file_in_the_cache_proves_nothing(void **state)
{
    struct world *w = *state;
    struct receipt receipt;
    char path[128];
    struct upload *u = reopen(w);
    assert_int_equal(upload_write(u, bytes, SIZE, NULL, &w->e), 0);
    upload_close(u);
    path_of(w, "", path);
    int fd = os_open(path, O_RDWR, 0);
    assert_true(fd >= 0);
    model_fault_arm(w->m, &(struct fault){.error = EIO, .at = 1, .call = OS_CALL_fdatasync});
    assert_int_equal(os_fdatasync(fd), -EIO);
    model_fault_arm(w->m, NULL);
    assert_int_equal(os_close(fd), 0);
    u = reopen(w);
    assert_false(u->complete_proven);
    assert_int_equal(atomic_load(&u->synced), 0);
    assert_int_equal(upload_write(u, bytes, SIZE, NULL, &w->e), 0);
    assert_int_equal(upload_accept(u, &receipt, NULL, &w->e), 0);
    upload_close(u);
}

/* A second passed while the parts were synced: the receipt that was written anew is the one that
 * the power cut leaves. */
static void a_receipt_written_anew_is_durable(void **state)
{
    struct world *w = *state;
    struct receipt told, stored;
    struct upload *u = reopen(w);
    assert_int_equal(upload_write(u, bytes, SIZE, NULL, &w->e), 0);
    model_clock_step(w->m, UINT64_C(1500000000));
    assert_int_equal(upload_accept(u, &told, NULL, &w->e), 0);
    model_clock_step(w->m, 1000);
    upload_close(u);
    cut_power(w);
    if (receipt_load(w->us, slice_cstr(w->info.id), &stored, &w->e) != 0) {
        fail_msg("%s", w->e.text);
    }
    assert_memory_equal(&stored, &told, sizeof stored);
}

/* Written elsewhere by the device, and right in the cache: what is read back is what was synced. */
static void a_bad_write_is_read_back(void **state)
{
    struct world *w = *state;
    struct receipt receipt;
    struct upload *u = reopen(w);
    assert_int_equal(upload_write(u, bytes, 4096, NULL, &w->e), 0);
    assert_int_equal(upload_sync(u, &w->e), 0);
    upload_close(u);
    u = reopen(w);
    model_misdirect_next(w->m, 1);
    assert_int_equal(upload_write(u, bytes + 4096, SIZE - 4096, NULL, &w->e), 0);
    assert_int_equal(upload_accept(u, &receipt, NULL, &w->e), ERR_CHECKSUM_MISMATCH);
    upload_close(u);
}

/* The first save landed, and its sync failed all the same: nothing that it speaks of was cut. */
static void a_save_that_landed_all_the_same_counts(void **state)
{
    struct world *w = *state;
    struct upload *u = reopen(w);
    assert_int_equal(upload_write(u, bytes, 3000, NULL, &w->e), 0);
    model_fault_arm(w->m, &(struct fault){.kind = FAULT_ERROR_AFTER,
                                          .error = EIO,
                                          .at = 1,
                                          .call = OS_CALL_fdatasync,
                                          .path = ".state"});
    assert_int_equal(upload_sync(u, &w->e), ERR_IO);
    assert_int_equal(model_fault_fired(w->m), 1);
    model_fault_arm(w->m, NULL);
    upload_close(u);
    cut_power(w);
    u = reopen(w);
    assert_int_equal(atomic_load(&u->synced), 3000);
    upload_close(u);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(bytes_that_were_read_again_are_durable),
        T(a_whole_file_that_was_read_again_is_durable),
        T(a_save_that_failed_is_not_told),
        T(a_save_is_synced_by_who_tells_it),
        T(a_whole_file_in_the_cache_proves_nothing),
        T(a_receipt_written_anew_is_durable),
        T(a_bad_write_is_read_back),
        T(a_save_that_landed_all_the_same_counts),
    };
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
