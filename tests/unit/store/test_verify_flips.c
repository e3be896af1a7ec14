/* test_verify_flips: case C29 of cases/capture.md: the check says that all is well, then the start
 * fails. Bytes of a good database, or of the WAL that a killed server left, are changed at random;
 * whatever verify says of it, it says it without a crash and without a change on disk, and where it
 * says that all is well the store opens, takes an event, and all is well afterwards.
 *
 *   SEED=N   takes a run back      FLIPS=N   so many changes (default 200) */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/db.h"
#include "store/queue.h"
#include "store/schema.h"
#include "store/verify.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/modeldisk.h"
#include "tests/lib/os_vfs.h"
#include "tests/unit/store/verify_fixture.h"

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

/* ---- a store on what is there ---- */

static int put_one(struct store_job *job, struct store *s, struct err *e)
{
    struct queue_receipt receipt;
    struct queue_event ev = {.project = 1,
                             .uuid = {{7}},
                             .received_ms = 1,
                             .time_note = SLICE(""),
                             .type = SLICE("native"),
                             .event = SLICE("x"),
                             .distinct_id = SLICE(""),
                             .anonymous_id = SLICE(""),
                             .session_id = SLICE(""),
                             .source = SLICE(""),
                             .message_id = SLICE(""),
                             .library = SLICE(""),
                             .library_version = SLICE(""),
                             .envelope = SLICE(""),
                             .text = SLICE("{}")};
    (void)job;
    return queue_put(s, &ev, &receipt, e);
}

static void told(struct store_job *job, int code, const struct err *e)
{
    (void)e;
    job->code = code;
}

/* The first step that failed, or NULL. */
static const char *use_store(const struct fixture *f, struct err *e)
{
    struct store *s;
    struct store_options options = store_options_default;
    struct store_job job = {.run = put_one, .done = told};
    options.threads = false;
    if (store_open(f->data, &options, &s, e) != 0) {
        return "open";
    }
    store_submit(s, &job);
    while (store_turn(s)) {
    }
    int r = store_close(s, e);
    return job.code != 0 ? "put" : r != 0 ? "close" : NULL;
}

/* ---- changes ---- */

struct images {
    unsigned char *db, *wal;
    size_t db_size, wal_size;
};

struct tally {
    unsigned told, corrupt, well, refused;
};

static void put_back(const struct fixture *f, const struct images *is)
{
    char path[FIXTURE_PATH];
    fixture_remove(f, "-shm");
    fixture_remove(f, "-journal");
    fixture_path(f, "", path);
    fixture_write(path, is->db, is->db_size);
    fixture_remove(f, "-wal");
    if (is->wal_size > 0) {
        fixture_path(f, "-wal", path);
        fixture_write(path, is->wal, is->wal_size);
    }
}

/* Anywhere, but mostly where something is: the pages of a small database are nearly empty. */
static size_t place(const unsigned char *bytes, size_t n, uint64_t *chance)
{
    size_t at = kit_chance(chance) % n;
    for (int i = 0; i < 200 && bytes[at] == 0; i++) {
        at = kit_chance(chance) % n;
    }
    return at;
}

static void one_change(struct fixture *f, const struct images *is, uint64_t *chance,
                       struct tally *tally)
{
    bool wal = is->wal_size > 0 && kit_chance(chance) % 3 == 0;
    unsigned char *bytes = wal ? is->wal : is->db;
    size_t at = place(bytes, wal ? is->wal_size : is->db_size, chance);
    unsigned char with = (unsigned char)(1u << kit_chance(chance) % 8);
    struct err e = {0};
    with = kit_chance(chance) % 4 == 0 ? (unsigned char)(with | 0x55u) : with;
    bytes[at] ^= with;
    put_back(f, is);
    bytes[at] ^= with;
    struct listing before = fixture_list(f);
    int r = fixture_verify(f);
    struct listing after = fixture_list(f);
    assert_memory_equal(&before, &after, sizeof before);
    if (r != 0 && r != ERR_CORRUPT) {
        fail_msg("byte %zu of the %s, xor %02x: %s", at, wal ? "WAL" : "database", with, f->e.text);
    }
    bool well = r == 0 && f->result.violations == 0;
    const char *failed = use_store(f, &e);
    tally->well += well;
    tally->corrupt += r != 0;
    tally->told += r == 0 && !well;
    tally->refused += failed != NULL;
    if (well && failed != NULL) {
        fail_msg("byte %zu of the %s, xor %02x: verify saw nothing, but %s: %s", at,
                 wal ? "WAL" : "database", with, failed, e.text);
    }
    if (well) {
        assert_int_equal(fixture_verify(f), 0);
        fixture_same_lines(f->told, "");
    }
}

static void changes(struct fixture *f, const struct images *is, const char *what)
{
    uint64_t seed = env_number("SEED", os_real.clock_mono_ns());
    uint64_t count = env_number("FLIPS", 200);
    struct tally tally = {0};
    print_message("%s: SEED=%" PRIu64 "\n", what, seed);
    for (uint64_t i = 0, chance = seed; i < count; i++) {
        one_change(f, is, &chance, &tally);
    }
    print_message("%s: %u told, %u no database, %u unnoticed; %u times no start or no event\n",
                  what, tally.told, tally.corrupt, tally.well, tally.refused);
    assert_true(tally.told > count / 20);
}

static void a_byte_of_the_database(void **state)
{
    struct fixture *f = *state;
    struct images is = {.db = f->good, .db_size = f->good_size};
    changes(f, &is, "database");
}

static void a_byte_of_what_a_kill_left(void **state)
{
    struct fixture *f = *state;
    struct images is;
    char path[FIXTURE_PATH];
    pid_t child = fixture_server(f, SERVER_ONE_EVENT);
    fixture_wait(f);
    fixture_kill(f, child);
    fixture_path(f, "", path);
    is.db = fixture_read(path, &is.db_size);
    fixture_path(f, "-wal", path);
    is.wal = fixture_read(path, &is.wal_size);
    assert_true(is.wal_size > 4096);
    changes(f, &is, "with a WAL");
    free(is.db);
    free(is.wal);
}

/* What verify cannot read, the store does not open, and leaves alone. */
static void no_start_on_what_is_no_database(void **state)
{
    struct fixture *f = *state;
    char junk[9000];
    char path[FIXTURE_PATH];
    struct err e = {0};
    memset(junk, 'j', sizeof junk);
    fixture_path(f, "", path);
    fixture_write(path, junk, sizeof junk);
    struct listing before = fixture_list(f);
    assert_int_equal(fixture_verify(f), ERR_CORRUPT);
    assert_string_equal(use_store(f, &e), "open");
    assert_int_equal(e.code, ERR_CORRUPT);
    struct listing after = fixture_list(f);
    assert_memory_equal(&before, &after, sizeof before);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(a_byte_of_the_database),
        T(a_byte_of_what_a_kill_left),
        T(no_start_on_what_is_no_database),
    };
#undef T
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
