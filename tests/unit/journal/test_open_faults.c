/* test_open_faults: starts that meet a failing call or what no start can take: each is told for
 * what it is, and nothing is begun that a failed start should not have begun. What test_told sweeps
 * is not repeated here, but for the calls that it lets pass because another part may make them in
 * vain. At the end, failures while the index is made in the background. */
#include "tests/unit/journal/journal_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "journal/damage.h"
#include "journal/index.h"
#include "journal/manifest.h"
#include "journal/seal.h"
#include "journal/verify.h"
#include "tests/lib/faults.h"

#define BIG 20000 /* three of these fill a generation */

/* Three closed generations and a tail; so many of them sealed. */
static void start(struct fx *f, uint32_t plain)
{
    fx_start(f, false);
    fx_open(f);
    for (uint32_t n = 1; n <= 10; n++) {
        fx_put(f, n, 1, BIG);
    }
    if (plain < 3) {
        assert_int_equal(journal_seal(f->j, plain, NULL, NULL, &f->e), 0);
    }
    assert_int_equal(fx_status(f).segments, 3 - plain);
    assert_int_equal(fx_status(f).generations, 4);
    fx_close(f);
}

/* Opens with one call failing; it must fail, with that cause. */
static void open_failing(struct fx *f, enum os_call call, const char *path, uint64_t at, int error)
{
    faults_install(NULL);
    faults_count_only(call, path);
    faults_arm(at, error, false, FAULT_ERROR);
    int r = journal_open(f->dir, &f->options, &f->j, &f->e);
    assert_int_equal(faults_fired(), 1);
    faults_uninstall();
    if (r == 0) {
        fail_msg("%s of %s failed, and the journal is open", os_call_name(call), path);
    }
    f->j = NULL;
    assert_int_equal(f->e.os_errno, error);
}

static void open_well(struct fx *f)
{
    fx_open(f);
    fx_check_opened(f);
    fx_close(f);
    fx_end(f);
}

/* ---- the tail ---- */

/* A rotation that was cut between its renames: both directories are synced before the next one,
 * and again behind it. */
static void test_cut_rotation(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 3);
    struct fault cut = {
        .kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_rename, .path = "tail.next", .at = 1};
    fx_open(&f);
    model_fault_arm(f.m, &cut);
    assert_int_equal(journal_close_tail(f.j, &f.e), ERR_WRITER_POISONED);
    model_fault_arm(f.m, NULL);
    fx_kill(&f);
    assert_false(fx_exists(f.layout.tail));
    for (uint64_t at = 1;; at++) { /* every sync of a directory in front of the rename */
        char struck[160];
        faults_install(NULL);
        faults_count_only(OS_CALL_fsync, NULL);
        faults_arm(at, EIO, false, FAULT_ERROR);
        int r = journal_open(f.dir, &f.options, &f.j, &f.e);
        faults_struck(struck, sizeof struck);
        faults_uninstall();
        if (strcmp(struck, "fsync /m/data/journal/tail.ndjson") == 0) {
            break; /* it is there: the rename was made */
        }
        assert_true(r < 0);
        assert_int_equal(f.e.os_errno, EIO);
        assert_true(at > 3 || !fx_exists(f.layout.tail));
        assert_true(at < 5);
        f.j = NULL;
    }
    assert_true(fx_exists(f.layout.tail));
    if (f.j != NULL) {
        fx_close(&f);
    }
    open_well(&f);
}

static void test_cut_rotation_rename(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 3);
    struct fault cut = {
        .kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_rename, .path = "tail.next", .at = 1};
    fx_open(&f);
    model_fault_arm(f.m, &cut);
    assert_int_equal(journal_close_tail(f.j, &f.e), ERR_WRITER_POISONED);
    model_fault_arm(f.m, NULL);
    fx_kill(&f);
    open_failing(&f, OS_CALL_rename, "tail.next", 1, EIO);
    open_well(&f);
}

/* A spare tail of the last run would stand in the way. */
static void test_old_spare(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 3);
    open_failing(&f, OS_CALL_unlink, "tail.next", 1, EIO);
    open_well(&f);
}

/* The cause is that of the call. */
static void test_tail_unread(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 3);
    open_failing(&f, OS_CALL_pread, "tail.ndjson", 1, ENODEV);
    open_well(&f);
}

static void test_region_unread(void **state)
{
    struct fx f;
    struct err e = {0};
    char *p = NULL;
    (void)state;
    start(&f, 3);
    int fd = os_open(f.layout.tail, O_RDONLY, 0);
    assert_true(fd >= 0);
    faults_install(NULL);
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(damage_read(fd, 0, 100, &p, &e), ERR_IO);
    faults_uninstall();
    assert_int_equal(e.os_errno, EIO);
    assert_int_equal(os_close(fd), 0);
    open_well(&f);
}

/* ---- the lists of generations ---- */

/* Events that are in a segment and in a plain file that it does not cover. */
static void test_overlap(void **state)
{
    struct fx f;
    struct layout_generation *rows;
    uint32_t count;
    char from[LAYOUT_PATH_MAX];
    char to[LAYOUT_PATH_MAX];
    struct verify_report report;
    (void)state;
    start(&f, 3);
    assert_int_equal(layout_list_pending(&f.layout, &rows, &count, &f.e), 0);
    assert_int_equal(count, 3);
    fx_open(&f);
    assert_int_equal(journal_seal(f.j, 1, NULL, NULL, &f.e), 0);
    fx_close(&f);
    layout_pending_path(&f.layout, &rows[2].first_id, &rows[2].last_id, from);
    layout_pending_path(&f.layout, &rows[1].last_id, &rows[2].last_id, to);
    free(rows);
    assert_int_equal(os_rename(from, to), 0);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    assert_non_null(strstr(f.e.text, "overlaps"));
    f.j = NULL;
    assert_int_equal(verify_journal(f.dir, NULL, NULL, &report, &f.e), 0);
    assert_false(report.ok);
    verify_report_free(&report);
    assert_int_equal(os_rename(to, from), 0);
    open_well(&f);
}

/* A manifest of the future is no damage, however much follows. */
static void test_future_manifest(void **state)
{
    static char text[17 * MANIFEST_RECORD_MAX];
    static const char begin[] = "{\"format_id\":\"groundhog/log\",\"version\":9}\n";
    struct fx f;
    (void)state;
    start(&f, 3);
    memset(text, 'x', sizeof text);
    memcpy(text, begin, sizeof begin - 1);
    fx_spill(f.layout.manifest, text, sizeof text);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_UNSUPPORTED);
    f.j = NULL;
    fx_end(&f);
}

/* The first record that is a segment's is looked at as the others are. */
static void test_first_record(void **state)
{
    struct fx f;
    size_t n;
    (void)state;
    start(&f, 2);
    char *text = fx_slurp(f.layout.manifest, &n);
    char *head = strstr(text, "\"head\":\"");
    assert_non_null(head);
    fx_patch(f.layout.manifest, (uint64_t)(head - text) + 8, "X", 1);
    free(text);
    assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_CORRUPT);
    f.j = NULL;
    fx_end(&f);
}

/* ---- closed generations and the index ---- */

static bool has_summary(const struct fx *f, uint32_t n)
{
    char path[LAYOUT_PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/gen-%08u.sum", f->layout.index, n);
    return fx_exists(path);
}

/* An index that cannot be forgotten is not taken for the one that was asked for. */
static void test_reindex(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 3);
    f.options.reindex = true;
    open_failing(&f, OS_CALL_list, "/index", 1, EIO);
    open_well(&f);
}

/* A segment that cannot be opened: the start fails, and has not begun to make the index. */
static void test_segment_unopened(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 1);
    assert_int_equal(index_forget(f.layout.index, &f.e), 0);
    open_failing(&f, OS_CALL_open, "/segments/", 2, EIO);
    assert_false(has_summary(&f, 0));
    open_well(&f);
}

static void test_generation_unread(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 3);
    assert_int_equal(index_forget(f.layout.index, &f.e), 0);
    open_failing(&f, OS_CALL_pread, "/pending/", 1, EIO);
    assert_int_equal(f.e.code, ERR_IO);
    open_well(&f);
}

/* What is damaged does not count as one that the index can be made of. */
static void test_segment_damaged(void **state)
{
    struct fx f;
    struct layout_generation g;
    char path[LAYOUT_PATH_MAX];
    struct manifest m;
    (void)state;
    start(&f, 1);
    assert_int_equal(manifest_read(&f.layout, &m, &f.e), 0);
    assert_int_equal(m.count, 2);
    g = m.segments[1];
    manifest_free(&m);
    layout_generation_path(&f.layout, &g, path);
    fx_patch(path, fx_size(path) - 1, "!", 1);
    fx_open(&f);
    fx_expect_read_only(&f, 3);
    assert_true(fx_status(&f).damaged);
    assert_int_equal(fx_status(&f).index_total, 1);
    fx_close(&f);
    fx_end(&f);
}

/* What a cut seal left and cannot be removed. */
static void test_left_by_a_seal(void **state)
{
    struct fx f;
    struct layout_generation *rows;
    uint32_t count;
    char first[UUID_TEXT_LEN];
    char last[UUID_TEXT_LEN];
    char path[LAYOUT_PATH_MAX + 80];
    (void)state;
    start(&f, 3);
    assert_int_equal(layout_list_pending(&f.layout, &rows, &count, &f.e), 0);
    uuid_text(first, &rows[0].first_id);
    uuid_text(last, &rows[0].last_id);
    free(rows);
    (void)snprintf(path, sizeof path, "%s/%.36s_%.36s.tmp", f.layout.segments, first, last);
    fx_spill(path, "a part", 6);
    open_failing(&f, OS_CALL_unlink, "/segments/", 1, EIO);
    assert_true(fx_exists(path));
    fx_open(&f);
    assert_false(fx_exists(path));
    fx_close(&f);
    fx_end(&f);
}

/* ---- beside readers ---- */

static pthread_t test_thread;
static atomic_int tail_fd;
static atomic_bool tail_fails; /* reads of it on other threads */
static atomic_bool remnants_fail;

static bool is_other(void)
{
    return !pthread_equal(pthread_self(), test_thread);
}

static int watching_open(const char *path, int flags, unsigned mode)
{
    if (atomic_load(&remnants_fail) && strstr(path, "/remnants/") != NULL) {
        return -EIO;
    }
    int fd = os_real.open(path, flags, mode);
    if (strstr(path, "/tail.ndjson") != NULL) {
        atomic_store(&tail_fd, fd);
    }
    return fd;
}

static int64_t watching_pread(int fd, void *p, size_t n, uint64_t offset)
{
    bool fails = is_other() && fd == atomic_load(&tail_fd) && atomic_load(&tail_fails);
    return fails ? -EIO : os_real.pread(fd, p, n, offset);
}

static void start_beside(struct fx *f)
{
    static struct os_table table;
    test_thread = pthread_self();
    atomic_store(&tail_fd, -1);
    atomic_store(&tail_fails, false);
    atomic_store(&remnants_fail, false);
    table = os_real;
    table.open = watching_open;
    table.pread = watching_pread;
    os_install(&table);
    fx_start(f, true);
    f->options.threads = true;
    f->options.index_at_once = 1;
    fx_open(f);
    for (uint32_t n = 1; n <= 10; n++) {
        fx_put(f, n, 1, BIG);
    }
    fx_close(f);
    assert_int_equal(index_forget(f->layout.index, &f->e), 0);
}

static void await_indexed(struct fx *f)
{
    for (unsigned i = 0; fx_status(f).indexing; i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
}

/* It stops, says why, and is no damage: a restart helps. */
static void expect_failed(struct fx *f)
{
    fx_open(f);
    await_indexed(f);
    assert_true(fx_status(f).poisoned);
    assert_false(fx_status(f).damaged);
    assert_true(strlen(fx_status(f).cause) > 0);
    fx_close(f);
}

static void end_beside(struct fx *f)
{
    fx_open(f);
    await_indexed(f);
    fx_check_opened(f);
    fx_close(f);
    fx_end(f);
    os_install(&os_real);
}

static void test_beside_tail(void **state)
{
    struct fx f;
    (void)state;
    start_beside(&f);
    atomic_store(&tail_fails, true);
    expect_failed(&f);
    atomic_store(&tail_fails, false);
    end_beside(&f);
}

/* A torn group that cannot be set aside is not cut off. */
static void test_beside_remnants(void **state)
{
    struct fx f;
    (void)state;
    start_beside(&f);
    uint64_t size = fx_size(f.layout.tail);
    fx_patch(f.layout.tail, size, "{\"batch\0\0\0", 10);
    atomic_store(&remnants_fail, true);
    expect_failed(&f);
    assert_int_equal(fx_size(f.layout.tail), size + 10);
    atomic_store(&remnants_fail, false);
    end_beside(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_rotation),      cmocka_unit_test(test_cut_rotation_rename),
        cmocka_unit_test(test_old_spare),         cmocka_unit_test(test_tail_unread),
        cmocka_unit_test(test_region_unread),     cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_future_manifest),   cmocka_unit_test(test_first_record),
        cmocka_unit_test(test_reindex),           cmocka_unit_test(test_segment_unopened),
        cmocka_unit_test(test_generation_unread), cmocka_unit_test(test_segment_damaged),
        cmocka_unit_test(test_left_by_a_seal),    cmocka_unit_test(test_beside_tail),
        cmocka_unit_test(test_beside_remnants),
    };
    return cmocka_run_group_tests_name("open_faults", tests, NULL, NULL);
}
