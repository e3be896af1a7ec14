/* deliver: the whole process on one accepted file: with each single system call failing, and with
 * the end coming at each look for it, the next run delivers the file once and exactly. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"
#include "store/db.h"
#include "store/store.h"
#include "tests/lib/faults.h"
#include "tests/lib/no_threads.h"

#define SIZE      ((1u << 20) + 4321)
#define SKIP_MS   5
#define LOG_BYTES 65536
#define IDLE_MS   1500 /* while anything runs, no wait is longer */

static char dir[64], data[80], place[80];
static char id[UPLOAD_ID_LEN + 1];
static unsigned char content[SIZE];
static struct os_table hooked;
static unsigned stop_at; /* the look for the end that finds it, from 1; 0: none before idleness */
static atomic_uint looks;
static atomic_uint_least64_t skipped_ns; /* of the monotonic clock: waiting is not the matter */

/* Nothing more to do is the end; so is the stop_at-th look. */
static int hook_wait(int ep, struct epoll_event *event, int max, int timeout_ms)
{
    unsigned look = timeout_ms == 0 ? atomic_fetch_add(&looks, 1) + 1 : 0;

    if (timeout_ms > IDLE_MS || (stop_at != 0 && look == stop_at)) {
        (void)kill(getpid(), SIGTERM); /* blocked: it is read from the signal descriptor */
    }
    int wait_ms = timeout_ms > SKIP_MS ? SKIP_MS : timeout_ms;
    int n = os_real.epoll_wait(ep, event, max, wait_ms);
    if (n == 0) {
        atomic_fetch_add(&skipped_ns, (uint64_t)(timeout_ms - wait_ms) * 1000000);
    }
    return n;
}

static uint64_t hook_mono(void)
{
    return os_real.clock_mono_ns() + atomic_load(&skipped_ns);
}

static void command(const char *what, const char *a, const char *b)
{
    char text[400];
    int n = snprintf(text, sizeof text, "%s %s %s", what, a, b);

    assert_true(n > 0 && (size_t)n < sizeof text);
    assert_int_equal(system(text), 0);
}

static void make_control(void)
{
    char path[120], sql[400];
    struct sqlite3 *db;
    struct err e = {0};

    snprintf(path, sizeof path, "%s/%s", data, STORE_FILE);
    snprintf(sql, sizeof sql,
             "CREATE TABLE projects(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);"
             "CREATE TABLE artifact_projects(project INTEGER PRIMARY KEY, sink TEXT NOT NULL,"
             " directory TEXT NOT NULL); INSERT INTO projects VALUES(1, 'demo');"
             "INSERT INTO artifact_projects VALUES(1, 'directory', '%s')",
             place);
    assert_int_equal(db_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 100, &db, &e), 0);
    assert_int_equal(db_exec(db, sql, &e), 0);
    sqlite3_close(db);
}

/* A file that the artifact door has accepted. */
static void accept_one(void)
{
    struct uploads_options options = {.data = data, .issuer = "http://127.0.0.1:1"};
    struct upload_info info = {.size = SIZE, .project = "demo", .filename = "file.bin"};
    struct uploads *us = NULL;
    struct upload *u = NULL;
    struct receipt receipt;
    struct blake3 h;
    struct err e = {0};
    uint8_t digest[BLAKE3_LEN];

    for (size_t i = 0; i < sizeof content; i++) {
        content[i] = (unsigned char)(i * 2654435761u >> 11);
    }
    blake3_start(&h);
    blake3_add(&h, content, sizeof content);
    blake3_end(&h, digest);
    hex_encode(info.checksum, digest, sizeof digest);
    assert_int_equal(uploads_open(&options, &us, &e), 0);
    assert_int_equal(upload_create(us, &info, true, &e), 0);
    assert_int_equal(upload_open_new(us, &info, &u, &e), 0);
    assert_int_equal(upload_write(u, content, sizeof content, NULL, &e), 0);
    assert_int_equal(upload_accept(u, &receipt, NULL, &e), 0);
    upload_close(u);
    uploads_close(us);
    memcpy(id, info.id, sizeof id);
}

static int setup(void **state)
{
    (void)state;
    /* Thousands of syncs whose cost is not the matter here. */
    snprintf(dir, sizeof dir, "%s/tallyman-deliver-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(data, sizeof data, "%s/data", dir);
    snprintf(place, sizeof place, "%s/place", dir);
    command("mkdir", data, place);
    make_control();
    accept_one();
    hooked = os_real;
    hooked.epoll_wait = hook_wait;
    hooked.clock_mono_ns = hook_mono;
    os_install(&hooked);
    stop_at = 0;
    log_set_level(LOG_ERROR + 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    os_install(NULL);
    command("rm -rf", dir, "");
    return 0;
}

/* As after the acceptance. */
static void forget(void)
{
    char text[300];

    snprintf(text, sizeof text, "rm -rf %s/packages %s/delivery.* %s/*", data, data, place);
    command(text, "", "");
}

static int run_with(uint64_t try_ms, uint64_t unseen_ms)
{
    const struct deliver_options options = {.data = data,
                                            .parent_fd = -1,
                                            .concurrency = 2,
                                            .backoff_ms = 1,
                                            .try_ms = try_ms,
                                            .stuck_ms = DELIVER_STUCK_MS,
                                            .grace_ms = 60000,
                                            .unseen_ms = unseen_ms};
    const struct timespec now = {0};
    struct err e = {0};
    bool left_behind = true;
    sigset_t set;
    int r;

    looks = 0;
    r = deliver_run(&options, &left_behind, &e);
    assert_false(left_behind);
    assert_true(r == 0 || e.text[0] != '\0');
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigtimedwait(&set, NULL, &now); /* what the signal descriptor only showed */
    return r;
}

static int run(void)
{
    return run_with(DELIVER_TRY_MS, DELIVER_UNSEEN_MS);
}

/* The same, and what it logs. */
static int run_logged(uint64_t try_ms, uint64_t unseen_ms, char log[LOG_BYTES])
{
    FILE *f = tmpfile();
    int old = dup(2);
    int r;

    assert_non_null(f);
    assert_int_equal(dup2(fileno(f), 2), 2);
    log_set_level(LOG_WARN);
    r = run_with(try_ms, unseen_ms);
    log_set_level(LOG_ERROR + 1);
    assert_int_equal(dup2(old, 2), 2);
    assert_int_equal(close(old), 0);
    rewind(f);
    log[fread(log, 1, LOG_BYTES - 1, f)] = '\0';
    assert_int_equal(fclose(f), 0);
    return r;
}

static unsigned count_in(const char *log, const char *words)
{
    unsigned n = 0;

    for (const char *at = strstr(log, words); at != NULL; at = strstr(at + 1, words)) {
        n++;
    }
    return n;
}

static bool holds(const char *name, const void *bytes, size_t n)
{
    static unsigned char got[SIZE + 1];
    char path[250];
    FILE *f;
    size_t have;

    snprintf(path, sizeof path, "%s/%s/%s", place, id, name);
    f = fopen(path, "rb");
    if (f == NULL) {
        return false;
    }
    have = fread(got, 1, sizeof got, f);
    (void)fclose(f);
    return bytes == NULL ? have > 0 : have == n && memcmp(got, bytes, n) == 0;
}

static int count_name(void *ctx, const char *name)
{
    (void)name;
    ++*(unsigned *)ctx;
    return 0;
}

static unsigned names_in(const char *path)
{
    unsigned n = 0;

    (void)os_real.list(path, count_name, &n);
    return n;
}

/* Once, under its one name, whole, and nothing beside it. */
static void delivered(void)
{
    struct delivery_view v;
    struct err e = {0};
    char path[200];

    assert_int_equal(delivery_view_read(data, slice_cstr(id), &v, &e), 0);
    if (v.state != DELIVERY_VERIFIED) {
        fail_msg("it is %s: %s", delivery_state_name(v.state), v.error);
    }
    assert_true(holds("file.bin", content, SIZE));
    assert_true(holds("file.bin.manifest.jsonl", NULL, 0));
    assert_int_equal(names_in(place), 1);
    snprintf(path, sizeof path, "%s/%s", place, id);
    assert_int_equal(names_in(path), 2);
    snprintf(path, sizeof path, "%s/packages", data);
    assert_int_equal(names_in(path), 2);
}

static void test_delivers(void **state)
{
    (void)state;
    assert_int_equal(run(), 0);
    delivered();
    assert_int_equal(run(), 0);
    delivered();
}

static void each_fault(enum os_call call, enum fault_kind kind)
{
    uint64_t calls, done = 0;

    forget();
    faults_install(NULL);
    faults_count_only(call, NULL);
    assert_int_equal(run(), 0);
    calls = faults_count();
    assert_true(calls > 0);
    for (uint64_t k = 1; k <= calls; k++) {
        forget();
        faults_reset();
        faults_arm(k, EIO, false, kind);
        done += run() == 0 ? 1 : 0;
        assert_true(!holds("file.bin", NULL, 0) || holds("file.bin", content, SIZE));
        faults_reset();
        assert_int_equal(run(), 0);
        delivered();
    }
    faults_uninstall();
    print_message("%s: %llu calls, the process went on after %llu\n", os_call_name(call),
                  (unsigned long long)calls, (unsigned long long)done);
}

static void test_each_call_fails(void **state)
{
    (void)state;
    each_fault(OS_CALL_ANY, FAULT_ERROR);
    each_fault(OS_CALL_rename, FAULT_ERROR_AFTER);
    each_fault(OS_CALL_rename_new, FAULT_ERROR_AFTER);
    each_fault(OS_CALL_watch_dir, FAULT_ERROR);
}

static void test_the_end_at_each_look(void **state)
{
    unsigned ends = 0;

    (void)state;
    for (unsigned k = 1; k < 1000; k++) {
        char path[200];
        forget();
        stop_at = k;
        assert_int_equal(run(), 0);
        stop_at = 0;
        if (looks < k) {
            break;
        }
        ends++;
        snprintf(path, sizeof path, "%s/%s/file.bin", place, id);
        assert_true(access(path, F_OK) != 0 || holds("file.bin", content, SIZE));
        assert_int_equal(run(), 0);
        delivered();
    }
    assert_true(ends > 8); /* each piece is one, of build, copy and verification */
    print_message("ended at %u looks\n", ends);
}

/* Settings of an older or a newer program that give no allowed place stop that package, and
 * nothing else; once they are mended, a restart goes on. */
static void test_settings_park(void **state)
{
    struct delivery_view v;
    struct err e = {0};
    char path[120];
    struct sqlite3 *db;

    (void)state;
    snprintf(path, sizeof path, "%s/%s", data, STORE_FILE);
    if (db_open(path, SQLITE_OPEN_READWRITE, 100, &db, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(db_exec(db,
                             "ALTER TABLE artifact_projects ADD COLUMN settings TEXT NOT NULL"
                             " DEFAULT '{}'; UPDATE artifact_projects SET settings ="
                             " '{\"identifier\":\"same\"}'",
                             &e),
                     0);
    assert_int_equal(run(), 0);
    assert_int_equal(delivery_view_read(data, slice_cstr(id), &v, &e), 0);
    assert_int_equal(v.state, DELIVERY_PARKED);
    assert_non_null(strstr(v.error, "name neither object nor package id"));
    assert_non_null(strstr(v.way_out, "tallyman project set"));
    assert_int_equal(names_in(place), 0);
    assert_int_equal(db_exec(db, "UPDATE artifact_projects SET settings = '{}'", &e), 0);
    assert_int_equal(run(), 0);
    delivered();
    sqlite3_close(db);
}

/* ---- time, threads, folders ---- */

#define TRY_MS (UINT64_C(10) * 3600 * 1000)

static atomic_uint slow_reads; /* so many are to come */
static atomic_uint renames;

/* A look at what is at the destination takes longer than a try may. */
static int hook_open(const char *path, int flags, unsigned mode)
{
    size_t n = strlen(path);
    bool remote = strstr(path, "/place/") != NULL || path[0] != '/';

    if (remote && n >= 8 && strcmp(path + n - 8, "file.bin") == 0 &&
        (flags & O_ACCMODE) == O_RDONLY && atomic_load(&renames) > 0 &&
        atomic_load(&slow_reads) > 0) {
        atomic_fetch_sub(&slow_reads, 1);
        atomic_fetch_add(&skipped_ns, TRY_MS * 1000000);
    }
    return os_real.open(path, flags, mode);
}

static int hook_rename_new(const char *from, const char *to)
{
    atomic_fetch_add(&renames, 1);
    return os_real.rename_new(from, to);
}

/* What was sent stays sent when its verification takes too long, and is asked again: not sent
 * again. It is late, which is said once a day. */
static void test_a_verification_that_takes_too_long(void **state)
{
    static char log[LOG_BYTES];
    struct delivery_view v;
    struct err e = {0};

    (void)state;
    hooked.open = hook_open;
    hooked.rename_new = hook_rename_new;
    renames = 0;
    slow_reads = 4; /* at 10, 20, 30 and 40 h */
    assert_int_equal(run_logged(TRY_MS, 0, log), 0);
    assert_int_equal(slow_reads, 0);
    delivered();
    assert_int_equal(renames, 2); /* payload and manifest, once each */
    assert_int_equal(delivery_view_read(data, slice_cstr(id), &v, &e), 0);
    assert_int_equal(v.attempts, 1);
    assert_int_equal(count_in(log, "still not to be seen there: 1 packages"), 2);
    assert_int_equal(count_in(log, "was given up"), 2);
    assert_int_equal(count_in(log, "is not delivered"), 0);
}

/* Whichever thread cannot be had: that is said, and the next start has it. */
static void test_threads_that_cannot_be_had(void **state)
{
    static char log[LOG_BYTES];

    (void)state;
    for (unsigned k = 1; NO_THREADS && k <= 3; k++) {
        forget();
        threads_left = k - 1;
        threads_fail = true;
        assert_int_equal(run_logged(DELIVER_TRY_MS, DELIVER_UNSEEN_MS, log), 0);
        threads_fail = false;
        assert_true(count_in(log, "no memory for another thread") > 0);
        assert_true(k > 1 || !holds("file.bin", NULL, 0));
        assert_int_equal(run(), 0);
        delivered();
    }
}

/* Without the proofs nobody knows what is gone already: nothing is done before they can be read. */
static void test_proofs_that_cannot_be_listed(void **state)
{
    char path[120];

    (void)state;
    assert_int_equal(run(), 0);
    forget();
    snprintf(path, sizeof path, "%s/proofs", data);
    faults_install(NULL);
    faults_count_only(OS_CALL_list, path);
    faults_arm(1, EACCES, false, FAULT_ERROR);
    assert_int_equal(run(), ERR_IO);
    assert_int_equal(faults_fired(), 1);
    assert_int_equal(names_in(place), 0);
    faults_uninstall();
    assert_int_equal(run(), 0);
    delivered();
}

static void test_backoff(void **state)
{
    (void)state;
    assert_int_equal(deliver_backoff_ms(60000, 0), 60000);
    assert_int_equal(deliver_backoff_ms(60000, 1), 60000);
    assert_int_equal(deliver_backoff_ms(60000, 2), 120000);
    assert_int_equal(deliver_backoff_ms(60000, 6), 1920000);
    assert_int_equal(deliver_backoff_ms(60000, 7), 3600000);
    assert_int_equal(deliver_backoff_ms(60000, 4000000000u), 3600000);
    assert_int_equal(deliver_backoff_ms(1, 12), 2048);
    assert_int_equal(deliver_backoff_ms(1, 4000000000u), 3600000);
}

static void test_scans_leave_time(void **state)
{
    (void)state;
    assert_true(deliver_scan_due_ns(105, 100, 101) == 111);
    assert_true(deliver_scan_due_ns(105, 100, 100) == 105);
    assert_true(deliver_scan_due_ns(1000000, 100, 7000) == 1000000);
}

static void test_shown(void **state)
{
    static char longest[5000];
    char out[DELIVER_SHOWN_MAX];

    (void)state;
    deliver_shown(out, "open /x/0123456789abcdef0123456789abcdef/deadbeef: \x01\n\x7f\xc3\xa4");
    assert_string_equal(out, "open /x/01234567.../deadbeef: ???\xc3\xa4");
    deliver_shown(out, "");
    assert_string_equal(out, "");
    memset(longest, '\n', sizeof longest - 1);
    deliver_shown(out, longest);
    assert_true(strlen(out) < sizeof out);
    memset(longest, 'a', sizeof longest - 1); /* a run of digits that is longer than any id */
    deliver_shown(out, longest);
    assert_string_equal(out, "aaaaaaaa...");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_delivers),
        T(test_each_call_fails),
        T(test_the_end_at_each_look),
        T(test_settings_park),
        T(test_a_verification_that_takes_too_long),
        T(test_threads_that_cannot_be_had),
        T(test_proofs_that_cannot_be_listed),
        cmocka_unit_test(test_backoff),
        cmocka_unit_test(test_scans_leave_time),
        cmocka_unit_test(test_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
