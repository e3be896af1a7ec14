/* test_model_random: the model disk under random calls. It must answer as the kernel does (the same
 * calls run on a temporary directory), land everything when everything is synced, and after a cut
 * hold only what was written since the last sync, or at it. Every run prints its seed; SEED=n runs
 * that one. Also prints how many cuts a second it makes. */
#include <time.h>

#include "tests/unit/os/model_fixture.h"

static uint64_t seed_first;

static uint64_t chance_state;

static unsigned chance(unsigned n)
{
    uint64_t x = chance_state += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ (x >> 31)) >> 33) % n;
}

static void seed_take(uint64_t seed)
{
    chance_state = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
}

/* ---- the same calls on the model and on the kernel ---- */

#define NAMES      8
#define OPEN_FILES 6

static const char *const names[NAMES] = {"a", "b", "d", "e", "d/a", "d/b", "e/a", "d/f"};
static char kernel_root[64];

struct both {
    char model[64];
    char kernel[128];
};

static struct both both_path(unsigned n)
{
    struct both b;

    (void)snprintf(b.model, sizeof b.model, "/m/%s", names[n]);
    (void)snprintf(b.kernel, sizeof b.kernel, "%s/%s", kernel_root, names[n]);
    return b;
}

struct open_both {
    int model;
    int kernel;
};

static void both_open(struct open_both *f)
{
    static const int flags[] = {
        O_RDWR,   O_RDWR | O_CREAT,       O_RDWR | O_CREAT | O_EXCL, O_RDWR | O_TRUNC,
        O_RDONLY, O_RDONLY | O_DIRECTORY, O_WRONLY | O_CREAT};
    struct both b = both_path(chance(NAMES));
    int flag = flags[chance(7)];

    if (f->model > 0) {
        assert_int_equal(os_close(f->model), os_real.close(f->kernel));
    }
    f->model = os_open(b.model, flag, 0600);
    f->kernel = os_real.open(b.kernel, flag, 0600);
    if (f->model < 0 || f->kernel < 0) {
        assert_int_equal(f->model, f->kernel);
    }
}

static void both_bytes(const struct open_both *f)
{
    static unsigned char bytes[3][12000];
    uint64_t offset = chance(20000);
    size_t n = chance(chance(2) ? 12000 : 600);
    struct os_stat a = {0};
    struct os_stat b = {0};

    if (f->model <= 0) {
        return;
    }
    switch (chance(4)) {
    case 0:
        memset(bytes[0], (int)chance(256), n);
        assert_int_equal(os_pwrite(f->model, bytes[0], n, offset),
                         os_real.pwrite(f->kernel, bytes[0], n, offset));
        break;
    case 1:
        assert_int_equal(os_ftruncate(f->model, offset), os_real.ftruncate(f->kernel, offset));
        break;
    case 2:
        memset(bytes[1], 0xee, n);
        memset(bytes[2], 0xee, n);
        assert_int_equal(os_pread(f->model, bytes[1], n, offset),
                         os_real.pread(f->kernel, bytes[2], n, offset));
        assert_memory_equal(bytes[1], bytes[2], n);
        break;
    default:
        assert_int_equal(os_fstat(f->model, &a), os_real.fstat(f->kernel, &b));
        assert_int_equal(a.mode & S_IFMT, b.mode & S_IFMT);
        if (S_ISREG(a.mode)) {
            assert_int_equal(a.size, b.size);
        }
        break;
    }
}

static void both_names(void)
{
    struct both a = both_path(chance(NAMES));
    struct both b = both_path(chance(NAMES));

    switch (chance(4)) {
    case 0:
        assert_int_equal(os_unlink(a.model), os_real.unlink(a.kernel));
        break;
    case 1:
        assert_int_equal(os_mkdir(a.model, 0700), os_real.mkdir(a.kernel, 0700));
        break;
    default:
        assert_int_equal(os_rename(a.model, b.model), os_real.rename(a.kernel, b.kernel));
        break;
    }
}

/* Some of the model's files lose their pending items to syncs on the way: that must not show. */
static void some_sync(const struct open_both *f)
{
    if (f->model > 0) {
        assert_int_equal(os_fsync(f->model), 0);
        assert_int_equal(os_drop_cache(f->model), 0);
    }
}

static int kernel_remove(void *ctx, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    if (os_real.unlink(path) == -EISDIR) {
        assert_int_equal(os_real.list(path, kernel_remove, path), 0);
        assert_int_equal(rmdir(path), 0);
    }
    return 0;
}

static void compare_trees(void)
{
    static unsigned char bytes[2][40000];

    for (unsigned n = 0; n < NAMES; n++) {
        struct both b = both_path(n);
        int64_t size = model_get(m, b.model, bytes[0], sizeof bytes[0]);
        int fd = os_real.open(b.kernel, O_RDONLY, 0);

        if (size < 0 && size != -EISDIR) {
            assert_int_equal(fd, size);
            continue;
        }
        assert_true(fd >= 0);
        if (size >= 0) {
            assert_int_equal(os_real.pread(fd, bytes[1], sizeof bytes[1], 0), size);
            assert_memory_equal(bytes[0], bytes[1], (size_t)size);
        }
        assert_int_equal(os_real.close(fd), 0);
    }
}

static void the_model_answers_as_the_kernel(void **state)
{
    (void)state;
    memcpy(kernel_root, "/tmp/test_random.XXXXXX", 24);
    assert_non_null(mkdtemp(kernel_root));
    for (uint64_t round = 0; round < 20; round++) {
        struct open_both files[OPEN_FILES] = {{0}};

        seed_take(seed_first + round);
        use(NULL);
        for (unsigned n = 0; n < 500; n++) {
            struct open_both *f = &files[chance(OPEN_FILES)];
            unsigned what = chance(10);

            if (what < 3) {
                both_open(f);
            } else if (what < 7) {
                both_bytes(f);
            } else if (what < 9) {
                both_names();
            } else {
                some_sync(f);
            }
        }
        compare_trees();
        for (unsigned n = 0; n < OPEN_FILES; n++) {
            if (files[n].kernel > 0) {
                assert_int_equal(os_real.close(files[n].kernel), 0);
            }
        }
        assert_int_equal(os_real.list(kernel_root, kernel_remove, kernel_root), 0);
    }
    assert_int_equal(rmdir(kernel_root), 0);
}

/* ---- what cuts may leave ---- */

static void one_random_call(int *fds)
{
    static unsigned char bytes[9000];
    int *fd = &fds[chance(OPEN_FILES)];
    struct both a = both_path(chance(NAMES));
    struct both b = both_path(chance(NAMES));

    memset(bytes, (int)chance(256), sizeof bytes);
    switch (chance(9)) {
    case 0:
    case 1:
        (void)os_close(*fd);
        *fd = os_open(a.model, O_RDWR | O_CREAT, 0600);
        break;
    case 2:
        (void)os_ftruncate(*fd, chance(12000));
        break;
    case 3:
        (void)os_rename(a.model, b.model);
        break;
    case 4:
        (void)os_unlink(a.model);
        break;
    case 5:
        (void)os_fdatasync(*fd);
        break;
    case 6:
        (void)os_sync_dir(chance(2) ? "/m" : "/m/d");
        break;
    case 7:
        (void)os_mkdir(chance(2) ? "/m/d" : "/m/e", 0700);
        break;
    default:
        (void)os_pwrite(*fd, bytes, 1 + chance(9000), chance(12000));
        break;
    }
}

static struct model *crash_as(const struct model *from, int how, uint64_t seed)
{
    struct model_choice choice = {.seed = seed};

    choice.how = how == 0 ? MODEL_CUT_NONE : how == 1 ? MODEL_CUT_ALL : MODEL_CUT_RANDOM;
    return model_crash(from, &choice);
}

static uint64_t crash_hash(int how, uint64_t seed)
{
    struct model *after = crash_as(m, how, seed);
    struct model *twice = crash_as(after, how, seed + 1);
    uint64_t hash = model_hash(after);

    assert_int_equal(model_pending(after), 0);
    assert_int_equal(model_hash(twice),
                     hash); /* nothing was pending: a second cut changes nothing */
    assert_int_equal(model_used_bytes(twice), model_used_bytes(after));
    model_free(after);
    model_free(twice);
    return hash;
}

static int sync_below(void *ctx, const char *name)
{
    char path[256];
    struct os_stat st;
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    fd = os_open(path, O_RDONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(os_close(fd), 0);
    return S_ISDIR(st.mode) ? os_list(path, sync_below, path) : 0;
}

static void sync_everything(int *fds)
{
    char root[] = "/m";

    for (unsigned n = 0; n < OPEN_FILES; n++) {
        (void)os_close(fds[n]);
        fds[n] = -1;
    }
    assert_int_equal(os_list(root, sync_below, root), 0);
    assert_int_equal(os_sync_dir(root), 0);
    assert_int_equal(model_pending(m), 0);
}

static void a_cut_that_lands_all_changes_nothing_and_syncs_hold(void **state)
{
    static const enum model_order orders[] = {MODEL_REORDERED, MODEL_ORDERED};

    (void)state;
    for (uint64_t round = 0; round < 40; round++) {
        const struct model_options options = {.order = orders[round % 2],
                                              .sector_size = round % 3 == 0 ? 4096 : 512};
        int fds[OPEN_FILES] = {-1, -1, -1, -1, -1, -1};

        seed_take(seed_first + round);
        use(&options);
        for (unsigned n = 0; n < 200; n++) {
            struct model *kept;

            one_random_call(fds);
            assert_int_equal(crash_hash(1, n), model_hash(m));
            assert_int_equal(crash_hash(2, n), crash_hash(2, n));
            (void)crash_hash(0, n);
            if (n % 16 == 0) {
                kept = model_snapshot(m);
                /* Less only where a file was held by a descriptor alone. */
                assert_true(model_pending(kept) <= model_pending(m));
                assert_int_equal(model_hash(kept), model_hash(m));
                model_free(kept);
            }
            if (n % 50 == 49) {
                sync_everything(fds);
                assert_int_equal(crash_hash(0, n), model_hash(m));
            }
        }
    }
}

#define SECTORS 24

/* Whole sectors are written, each with a number of its own: after a cut each sector holds a version
 * not older than its last sync and not newer than its last write. */
static void a_sector_is_never_older_than_its_sync(void **state)
{
    uint64_t old = 0;
    uint64_t new = 0;

    (void)state;
    for (uint64_t round = 0; round < 30; round++) {
        uint64_t sector[64] = {0};
        uint64_t synced[SECTORS] = {0};
        uint64_t written[SECTORS] = {0};
        uint64_t version = 0;
        int fd;

        seed_take(seed_first + round);
        use(NULL);
        model_put(m, "/m/f", (unsigned char[SECTORS * 512]){0}, SECTORS * 512);
        fd = os_open("/m/f", O_RDWR, 0);
        for (unsigned n = 0; n < 100; n++) {
            unsigned at = chance(SECTORS);
            struct model *after;

            if (chance(8) == 0) {
                assert_int_equal(os_fdatasync(fd), 0);
                memcpy(synced, written, sizeof synced);
                continue;
            }
            sector[0] = written[at] = ++version;
            assert_int_equal(os_pwrite(fd, sector, 512, at * 512), 512);
            after = crash_as(m, 2, n);
            {
                static uint64_t bytes[SECTORS * 64];

                assert_int_equal(model_get(after, "/m/f", bytes, sizeof bytes), sizeof bytes);
                for (unsigned k = 0; k < SECTORS; k++) {
                    assert_in_range(bytes[k * 64], synced[k], written[k]);
                    old += synced[k] != written[k] && bytes[k * 64] == synced[k];
                    new += synced[k] != written[k] && bytes[k * 64] == written[k];
                }
            }
            model_free(after);
        }
    }
    assert_true(old > 1000); /* both happen, or nothing was tested */
    assert_true(new > 1000);
}

/* ---- speed ---- */

/* A recovery of the small kind: opens, reads the tail, syncs, truncates, writes, syncs again. */
static void recover(void)
{
    static unsigned char bytes[65536];
    int fd = os_open("/m/tail", O_RDWR, 0);

    assert_true(fd >= 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_drop_cache(fd), 0);
    assert_int_equal(os_pread_full(fd, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(os_ftruncate(fd, 40000), 0);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_pwrite_all(fd, bytes, 20000, 40000, NULL), 0);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(os_close(fd), 0);
}

static void cuts_are_cheap(void **state)
{
    static unsigned char bytes[1 << 20];
    struct model_crashes it;
    struct model *after;
    struct model *run;
    uint64_t started_ns;
    uint64_t took_ns;
    int fd;

    (void)state;
    seed_take(seed_first);
    memset(bytes, 7, sizeof bytes);
    model_put(m, "/m/pending/one", bytes, sizeof bytes);
    model_put(m, "/m/tail", bytes, 65536);
    fd = os_open("/m/tail", O_RDWR, 0);
    for (unsigned n = 0; n < 40; n++) {
        memset(bytes, (int)n + 8, 700);
        assert_int_equal(os_pwrite(fd, bytes, 700, n * 700), 700);
    }
    run = m;
    started_ns = os_real.clock_mono_ns();
    model_crashes_begin(&it, m, 8, 3000, seed_first);
    while ((after = model_crashes_next(&it)) != NULL) {
        m = after;
        model_use(after);
        recover();
        (void)model_hash(after);
        model_free(after);
    }
    took_ns = os_real.clock_mono_ns() - started_ns;
    m = run;
    model_use(run);
    print_message("%.0f cuts with recovery and hash a second (%zu pending)\n",
                  (double)it.count * 1e9 / (double)took_ns, model_pending(m));
    assert_true(took_ns < 60000000000);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_model_answers_as_the_kernel),
        T(a_cut_that_lands_all_changes_nothing_and_syncs_hold),
        T(a_sector_is_never_older_than_its_sync),
        T(cuts_are_cheap),
    };
#undef T
    const char *given = getenv("SEED");

    seed_first = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
