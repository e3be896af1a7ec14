/* directory: what arrives, what is refused, and that after any single fault of a system call the
 * next try delivers, with nothing half done and nothing of anybody else's touched. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "os/os.h"
#include "sink/directory.h"
#include "tests/lib/faults.h"

#define PACKAGE "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define FOLDER  "0123456789abcdef0123456789abcdef"
#define LARGE   (ARTIFACT_PIECE_BYTES + 17)

static char dir[64], place[100], large_path[120], small_path[120];
static unsigned char large[LARGE], piece[ARTIFACT_PIECE_BYTES];
static char large_md5[MD5_HEX_LEN + 1], small_md5[MD5_HEX_LEN + 1];
static const char small[] = "manifest\n";
static struct artifact_file files[2];
static unsigned stop_after; /* calls of stopping that say no; 0: it never says yes */
static struct artifact_verdict verdict;

static bool stopping(void *ctx)
{
    (void)ctx;
    return stop_after != 0 && --stop_after == 0;
}

static const struct artifact_job job = {.package_id = PACKAGE,
                                        .place = place,
                                        .identifier = FOLDER,
                                        .file = files,
                                        .file_count = 2,
                                        .piece = piece,
                                        .stopping = stopping};

/* A name in the folder; "" is the folder itself. */
static const char *there(const char *name)
{
    static char path[4][300];
    static unsigned turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/" FOLDER "%s%s", place, name[0] == '\0' ? "" : "/",
             name);
    return path[turn];
}

#define TEMP there(".tallyman-" PACKAGE ".part")

static void remove_folder(void)
{
    char command[400];

    snprintf(command, sizeof command, "rm -rf %s", there(""));
    assert_int_equal(system(command), 0);
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static bool holds(const char *path, const void *bytes, size_t n)
{
    static unsigned char got[LARGE + 1];
    FILE *f = fopen(path, "rb");
    size_t have;

    if (f == NULL) {
        return false;
    }
    have = fread(got, 1, sizeof got, f);
    (void)fclose(f);
    return have == n && memcmp(got, bytes, n) == 0;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void md5_of(const void *bytes, size_t n, char out[MD5_HEX_LEN + 1])
{
    struct md5 h;
    uint8_t digest[MD5_LEN];

    md5_start(&h);
    md5_add(&h, bytes, n);
    md5_end(&h, digest);
    hex_encode(out, digest, MD5_LEN);
    out[MD5_HEX_LEN] = '\0';
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/tallyman-directory-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(place, sizeof place, "%s/place", dir);
    snprintf(large_path, sizeof large_path, "%s/large", dir);
    snprintf(small_path, sizeof small_path, "%s/small", dir);
    for (size_t i = 0; i < sizeof large; i++) {
        large[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    write_file(large_path, large, sizeof large);
    write_file(small_path, small, sizeof small - 1);
    md5_of(large, sizeof large, large_md5);
    md5_of(small, sizeof small - 1, small_md5);
    files[0] = (struct artifact_file){"data.bin", large_path, sizeof large, large_md5, ""};
    files[1] = (struct artifact_file){"data.bin.manifest.jsonl", small_path, sizeof small - 1,
                                      small_md5, ""};
    stop_after = 0;
    return mkdir(place, 0700);
}

static int teardown(void **state)
{
    char command[200];

    (void)state;
    snprintf(command, sizeof command, "chmod -R u+rwx %s; rm -rf %s", dir, dir);
    return system(command);
}

static void send_is(enum artifact_outcome want)
{
    artifact_directory.send(&job, &verdict);
    if (verdict.outcome != want) {
        fail_msg("outcome %d, wanted %d: %s", (int)verdict.outcome, (int)want, verdict.text);
    }
}

static void verify_is(enum artifact_outcome want)
{
    artifact_directory.verify(&job, &verdict);
    if (verdict.outcome != want) {
        fail_msg("outcome %d, wanted %d: %s", (int)verdict.outcome, (int)want, verdict.text);
    }
}

static void delivered(void)
{
    assert_true(holds(there("data.bin"), large, sizeof large));
    assert_true(holds(there("data.bin.manifest.jsonl"), small, sizeof small - 1));
    assert_false(exists(TEMP));
}

static void test_names(void **state)
{
    (void)state;
    assert_ptr_equal(artifact_adapter("directory"), &artifact_directory);
    assert_non_null(artifact_adapter("internet_archive"));
    assert_null(artifact_adapter("s3"));
    assert_null(artifact_adapter(""));
}

static void test_sent_and_verified(void **state)
{
    struct stat st;

    (void)state;
    send_is(ARTIFACT_SENT);
    assert_int_equal(verdict.bytes, sizeof large + sizeof small - 1);
    delivered();
    assert_int_equal(stat(there("data.bin"), &st), 0);
    assert_int_equal(st.st_mode & 0133, 0); /* no more than 0644, whatever the umask */
    verify_is(ARTIFACT_VERIFIED);
    /* Again: found, proven, not copied. */
    send_is(ARTIFACT_VERIFIED);
    assert_int_equal(verdict.bytes, 0);
    /* One of the two is lost: only it is copied. */
    assert_int_equal(unlink(there("data.bin.manifest.jsonl")), 0);
    verify_is(ARTIFACT_RETRY);
    assert_non_null(strstr(verdict.text, "is not there any more"));
    send_is(ARTIFACT_SENT);
    assert_int_equal(verdict.bytes, sizeof small - 1);
    delivered();
}

static void test_place(void **state)
{
    (void)state;
    assert_int_equal(rmdir(place), 0);
    send_is(ARTIFACT_RETRY);
    assert_non_null(strstr(verdict.text, "is not there"));
    assert_int_equal(verdict.scope, ARTIFACT_PLACE);
    assert_false(exists(place));
    verify_is(ARTIFACT_RETRY);
    write_file(place, "x", 1);
    send_is(ARTIFACT_RETRY);
    assert_true(holds(place, "x", 1));
    assert_int_equal(unlink(place), 0);
    assert_int_equal(mkdir(place, 0700), 0);
    send_is(ARTIFACT_SENT);
    delivered();
}

static void test_place_too_long(void **state)
{
    static char path[7000];
    struct artifact_job other = job;

    (void)state;
    memset(path, 'x', sizeof path - 1);
    other.place = path;
    artifact_directory.send(&other, &verdict);
    assert_int_equal(verdict.outcome, ARTIFACT_PARKED);
    artifact_directory.verify(&other, &verdict);
    assert_int_equal(verdict.outcome, ARTIFACT_PARKED);
}

static void other_is_kept(const char *path, const char *bytes)
{
    send_is(ARTIFACT_PARKED);
    assert_non_null(strstr(verdict.text, "another file is at the destination"));
    assert_non_null(strstr(verdict.way_out, "move the other file away"));
    verify_is(ARTIFACT_PARKED);
    assert_true(bytes == NULL || holds(path, bytes, strlen(bytes)));
    assert_false(exists(TEMP));
}

static void test_other_files(void **state)
{
    char copy[sizeof small];

    (void)state;
    assert_int_equal(mkdir(there(""), 0700), 0);
    write_file(there("data.bin"), "shorter", 7);
    other_is_kept(there("data.bin"), "shorter");
    assert_int_equal(unlink(there("data.bin")), 0);
    assert_int_equal(mkfifo(there("data.bin"), 0600), 0); /* nobody writes: it must not wait */
    other_is_kept(there("data.bin"), NULL);
    assert_int_equal(unlink(there("data.bin")), 0);
    assert_int_equal(mkdir(there("data.bin"), 0700), 0);
    other_is_kept(there("data.bin"), NULL);
    assert_int_equal(rmdir(there("data.bin")), 0);
    assert_int_equal(symlink(large_path, there("data.bin")), 0); /* even to the right bytes */
    other_is_kept(there("data.bin"), NULL);
    assert_int_equal(unlink(there("data.bin")), 0);
    memcpy(copy, small, sizeof copy);
    copy[2] ^= 1; /* the right size */
    write_file(there("data.bin.manifest.jsonl"), copy, sizeof copy - 1);
    send_is(ARTIFACT_PARKED);
    assert_true(holds(there("data.bin.manifest.jsonl"), copy, sizeof copy - 1));
    assert_int_equal(unlink(there("data.bin.manifest.jsonl")), 0);
    send_is(ARTIFACT_SENT);
    delivered();
}

static void test_folder_is_a_file(void **state)
{
    (void)state;
    write_file(there(""), "x", 1);
    send_is(ARTIFACT_PARKED);
    assert_true(holds(there(""), "x", 1));
}

/* A link in the folder's place leads elsewhere, where nothing may be written or counted. */
static void test_folder_is_a_link(void **state)
{
    char elsewhere[100], name[130];

    (void)state;
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", dir);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    assert_int_equal(symlink(elsewhere, there("")), 0);
    other_is_kept(there(""), NULL);
    assert_int_equal(rmdir(elsewhere), 0); /* nothing is in it */
    other_is_kept(there(""), NULL);        /* it leads nowhere */
    assert_int_equal(unlink(there("")), 0);
    send_is(ARTIFACT_SENT);
    assert_int_equal(rename(there(""), elsewhere), 0);
    assert_int_equal(symlink(elsewhere, there("")), 0);
    verify_is(ARTIFACT_PARKED);
    snprintf(name, sizeof name, "%s/data.bin", elsewhere);
    assert_true(holds(name, large, LARGE));
}

static void test_local_bytes(void **state)
{
    (void)state;
    large[LARGE - 1] ^= 1;
    write_file(large_path, large, sizeof large);
    send_is(ARTIFACT_PARKED);
    assert_non_null(strstr(verdict.text, "the local bytes differ from the receipt"));
    assert_non_null(strstr(verdict.way_out, "put the original bytes back"));
    large[LARGE - 1] ^= 1;
    write_file(large_path, large, sizeof large - 1);
    send_is(ARTIFACT_PARKED);
    assert_int_equal(unlink(large_path), 0);
    send_is(ARTIFACT_PARKED);
    assert_non_null(strstr(verdict.text, "the local file is missing"));
    assert_int_equal(symlink(small_path, large_path), 0);
    send_is(ARTIFACT_PARKED);
    assert_int_equal(unlink(large_path), 0);
    assert_int_equal(mkdir(large_path, 0700), 0);
    send_is(ARTIFACT_PARKED);
    assert_int_equal(rmdir(large_path), 0);
    assert_false(exists(there("data.bin")));
    assert_false(exists(TEMP));
    write_file(large_path, large, sizeof large);
    send_is(ARTIFACT_SENT);
    delivered();
}

/* A try that was killed leaves its temporary file, whatever is in it. */
static void test_leftovers(void **state)
{
    (void)state;
    assert_int_equal(mkdir(there(""), 0700), 0);
    write_file(TEMP, "half of someth", 14);
    send_is(ARTIFACT_SENT);
    delivered();
    write_file(TEMP, "half", 4);
    send_is(ARTIFACT_VERIFIED);
    delivered();
}

/* Wherever it is told to stop, it does so, and the next try delivers. */
static void test_stopping(void **state)
{
    unsigned stops = 0;

    (void)state;
    for (unsigned k = 1;; k++) {
        remove_folder();
        stop_after = k;
        artifact_directory.send(&job, &verdict);
        if (stop_after != 0) {
            break; /* it needed fewer looks than k */
        }
        assert_int_equal(verdict.outcome, ARTIFACT_STOPPED);
        assert_false(exists(TEMP));
        assert_true(!exists(there("data.bin")) || holds(there("data.bin"), large, sizeof large));
        stops++;
        artifact_directory.send(&job, &verdict);
        assert_true(verdict.outcome == ARTIFACT_SENT || verdict.outcome == ARTIFACT_VERIFIED);
        delivered();
    }
    assert_int_equal(stops, 3); /* the pieces of both files */
    stop_after = 2;
    verify_is(ARTIFACT_STOPPED);
}

/* ---- progress ---- */

#define PIECES 24u
#define TELLS  64

static uint64_t clock_ns;
static unsigned tells;
static uint64_t told_bytes[TELLS], told_at_ns[TELLS];
static const char *told_file[TELLS];

static uint64_t slow_clock(void)
{
    clock_ns += UINT64_C(30000000); /* a piece takes so long */
    return clock_ns;
}

static void on_progress(void *ctx, uint64_t bytes, const char *file)
{
    (void)ctx;
    assert_true(tells < TELLS);
    told_bytes[tells] = bytes;
    told_at_ns[tells] = clock_ns;
    told_file[tells++] = file;
}

static void test_progress(void **state)
{
    static unsigned char zeros[4096];
    struct os_table table = os_real;
    struct artifact_job told = job;
    const uint64_t size = (uint64_t)PIECES * ARTIFACT_PIECE_BYTES;
    struct md5 h;
    uint8_t digest[MD5_LEN];

    (void)state;
    write_file(large_path, "", 0);
    assert_int_equal(truncate(large_path, (off_t)size), 0);
    md5_start(&h);
    for (uint64_t n = 0; n < size; n += sizeof zeros) {
        md5_add(&h, zeros, sizeof zeros);
    }
    md5_end(&h, digest);
    hex_encode(large_md5, digest, MD5_LEN);
    files[0].size = size;
    told.progress = on_progress;
    table.clock_mono_ns = slow_clock;
    tells = 0;
    os_install(&table);
    artifact_directory.send(&told, &verdict);
    os_install(NULL);
    assert_int_equal(verdict.outcome, ARTIFACT_SENT);
    assert_true(tells >= 5);
    assert_int_equal(told_bytes[0], ARTIFACT_PIECE_BYTES);
    for (unsigned i = 0; i < tells; i++) {
        bool last_of_all = i + 1 == tells, last_of_file = i + 2 >= tells;
        assert_string_equal(told_file[i], files[last_of_all ? 1 : 0].name);
        assert_true(i == 0 || told_bytes[i] > told_bytes[i - 1]);
        /* Ten times a second, and each file's end. */
        assert_true(i == 0 || last_of_file || told_at_ns[i] >= told_at_ns[i - 1] + 100000000);
    }
    assert_int_equal(told_bytes[tells - 2], size);
    assert_int_equal(told_bytes[tells - 1], size + sizeof small - 1);
    /* Nothing is handed over of what is there. */
    tells = 0;
    artifact_directory.send(&told, &verdict);
    assert_int_equal(verdict.outcome, ARTIFACT_VERIFIED);
    assert_int_equal(tells, 0);
}

/* ---- faults ---- */

static void check_after_fault(uint64_t k, int kind)
{
    /* No lie: what it calls delivered is there. Parked is nobody's fault here. */
    if (verdict.outcome == ARTIFACT_SENT || verdict.outcome == ARTIFACT_VERIFIED) {
        assert_true(holds(there("data.bin"), large, sizeof large));
        assert_true(holds(there("data.bin.manifest.jsonl"), small, sizeof small - 1));
    } else if (verdict.outcome != ARTIFACT_RETRY) {
        fail_msg("fault %llu of kind %d: outcome %d: %s", (unsigned long long)k, kind,
                 (int)verdict.outcome, verdict.text);
    } else {
        assert_true(verdict.text[0] != '\0');
    }
    assert_true(!exists(there("data.bin")) || holds(there("data.bin"), large, sizeof large));
}

static void faults_of(enum os_call call, int error, enum fault_kind kind)
{
    uint64_t calls;

    remove_folder();
    faults_install(NULL);
    faults_count_only(call, NULL);
    artifact_directory.send(&job, &verdict);
    artifact_directory.verify(&job, &verdict);
    calls = faults_count();
    assert_true(calls > 0);
    for (uint64_t k = 1; k <= calls; k++) {
        faults_uninstall();
        remove_folder();
        faults_install(NULL);
        faults_count_only(call, NULL);
        faults_arm(k, error, false, kind);
        artifact_directory.send(&job, &verdict);
        check_after_fault(k, (int)kind);
        if (verdict.outcome == ARTIFACT_SENT) {
            artifact_directory.verify(&job, &verdict);
            check_after_fault(k, (int)kind);
        }
        faults_reset();
        artifact_directory.send(&job, &verdict);
        assert_true(verdict.outcome == ARTIFACT_SENT || verdict.outcome == ARTIFACT_VERIFIED);
        delivered();
    }
    faults_uninstall();
}

static void test_each_file_call_fails(void **state)
{
    (void)state;
    faults_of(OS_CALL_ANY, EIO, FAULT_ERROR);
    /* Those that may have been done all the same, and those that may be done in part. */
    faults_of(OS_CALL_fsync, EIO, FAULT_ERROR_AFTER);
    faults_of(OS_CALL_mkdir, EIO, FAULT_ERROR_AFTER);
    faults_of(OS_CALL_close, EIO, FAULT_ERROR_AFTER);
    faults_of(OS_CALL_pread, EIO, FAULT_SHORT);
    faults_of(OS_CALL_pwrite, EIO, FAULT_SHORT);
}

static void test_each_rename_fails(void **state)
{
    (void)state;
    faults_of(OS_CALL_rename_new, EIO, FAULT_ERROR);
    faults_of(OS_CALL_rename_new, EIO, FAULT_ERROR_AFTER);
    faults_of(OS_CALL_rename_new, EINVAL, FAULT_ERROR); /* a file system that cannot refuse */
    faults_of(OS_CALL_rename_new, ENOSYS, FAULT_ERROR);
}

static void test_hints_fail(void **state)
{
    static const enum os_call hints[] = {OS_CALL_reserve, OS_CALL_write_back, OS_CALL_drop_range};

    (void)state;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        faults_install(NULL);
        faults_count_only(hints[i], NULL);
        faults_arm(1, EOPNOTSUPP, true, FAULT_ERROR);
        send_is(ARTIFACT_SENT); /* nothing depends on them */
        assert_true(faults_fired() > 0);
        faults_uninstall();
        delivered();
        remove_folder();
    }
    faults_install(NULL);
    faults_count_only(OS_CALL_reserve, NULL);
    faults_arm(1, ENOSPC, false, FAULT_ERROR);
    send_is(ARTIFACT_RETRY); /* but that all of it will not fit is worth knowing */
    assert_non_null(strstr(verdict.text, "No space left"));
    faults_uninstall();
    assert_false(exists(TEMP));
}

/* Somebody's file came under the name while ours was being copied. */
static const struct os_table *below;
static const char *racer;

static int racing_rename(const char *from, const char *to)
{
    write_file(to, racer, strlen(racer));
    return below->rename_new(from, to);
}

static void test_race(void **state)
{
    struct os_table table = os_real;

    (void)state;
    below = &os_real;
    racer = "theirs";
    table.rename_new = racing_rename;
    os_install(&table);
    artifact_directory.send(&job, &verdict);
    os_install(NULL);
    assert_int_equal(verdict.outcome, ARTIFACT_PARKED);
    assert_true(holds(there("data.bin"), "theirs", 6));
    assert_false(exists(TEMP));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_names),
        T(test_sent_and_verified),
        T(test_place),
        T(test_place_too_long),
        T(test_other_files),
        T(test_folder_is_a_file),
        T(test_folder_is_a_link),
        T(test_local_bytes),
        T(test_leftovers),
        T(test_stopping),
        T(test_progress),
        T(test_each_file_call_fails),
        T(test_each_rename_fails),
        T(test_hints_fail),
        T(test_race),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
