/* test_head_key: the key's file is made once and whole, whenever the power fails; what must not be
 * used is refused; each failed call is told. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "door/history/head_key.h"
#include "os/os.h"
#include "tests/lib/faults.h"
#include "tests/lib/modeldisk.h"

/* ---- power ---- */

struct cuts {
    bool known; /* the key was handed out: it must be there for good */
    uint8_t public[ED25519_PUBLIC_LEN];
    unsigned states, found;
};

static void judge(struct cuts *cuts)
{
    struct ed25519_key *key = NULL;
    struct err e = {0};
    uint8_t public[ED25519_PUBLIC_LEN];
    bool made = false;

    assert_int_equal(head_key_open("/m", &key, &made, &e), 0);
    ed25519_public(key, public);
    ed25519_free(key);
    cuts->states++;
    cuts->found += !made;
    if (cuts->known) {
        assert_false(made);
        assert_memory_equal(public, cuts->public, sizeof public);
    }
}

static void cut(void *ctx, struct model *m, const struct model_call *call)
{
    struct cuts *cuts = ctx;
    struct model_crashes it;
    struct model *after;

    model_crashes_begin(&it, m, 10, 64, call->number);
    it.torn = MODEL_TORN_JUNK;
    while ((after = model_crashes_next(&it)) != NULL) {
        model_use(after);
        judge(cuts);
        model_free(after);
    }
    model_use(m);
}

static void test_power_cuts(void **state)
{
    struct model *m = model_new(NULL);
    struct cuts cuts = {0};
    struct ed25519_key *key = NULL;
    struct err e = {0};
    bool made = false;

    (void)state;
    model_use(m);
    model_set_hook(m, cut, &cuts);
    assert_int_equal(head_key_open("/m", &key, &made, &e), 0);
    assert_true(made);
    ed25519_public(key, cuts.public);
    ed25519_free(key);
    cuts.known = true;
    model_set_hook(m, NULL, NULL);
    cut(&cuts, m, &(struct model_call){.number = 1});
    assert_true(cuts.states > 20);
    assert_true(cuts.found > 0);
    model_free(m);
}

/* ---- faults ---- */

/* Every call once fails, with the key there and without: told, and the next start has a key. */
static void test_failed_calls(void **state)
{
    (void)state;
    for (int there = 0; there < 2; there++) {
        uint64_t at = 1;
        bool fired = true;
        while (fired) {
            struct model *m = model_new(NULL);
            struct ed25519_key *key = NULL;
            struct err e = {0};
            bool made = false;
            model_use(m);
            if (there) {
                assert_int_equal(head_key_open("/m", &key, &made, &e), 0);
                ed25519_free(key);
            }
            faults_install(NULL);
            faults_arm(at++, EIO, false, FAULT_ERROR);
            int r = head_key_open("/m", &key, &made, &e);
            fired = faults_fired() > 0;
            faults_uninstall();
            if (r != 0) {
                assert_true(fired);
                assert_int_equal(r, ERR_IO);
                assert_null(key);
                assert_int_equal(head_key_open("/m", &key, &made, &e), 0);
            }
            ed25519_free(key);
            model_free(m);
        }
        assert_true(at > (there ? 4 : 8));
    }
}

/* ---- what is refused ---- */

static char dir[64];
static char path[128];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/head-key-test-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/" HEAD_KEY_FILE, dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static void refuse(const char *why)
{
    struct ed25519_key *key = NULL;
    struct err e = {0};
    bool made = false;

    assert_int_equal(head_key_open(dir, &key, &made, &e), ERR_REFUSED);
    assert_null(key);
    assert_false(made);
    assert_non_null(strstr(e.text, why));
    assert_null(strstr(e.text, "BEGIN"));
}

static void put(const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void test_a_made_key(void **state)
{
    struct ed25519_key *key = NULL;
    struct err e = {0};
    struct stat st;
    bool made = false;

    (void)state;
    assert_int_equal(head_key_open(dir, &key, &made, &e), 0);
    assert_true(made);
    ed25519_free(key);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(head_key_open(dir, &key, &made, &e), 0);
    assert_false(made);
    ed25519_free(key);
    for (mode_t mode = 1; mode <= 040; mode <<= 1) {
        assert_int_equal(chmod(path, 0600 | mode), 0);
        refuse("open to others");
    }
}

static void test_what_is_no_key(void **state)
{
    char long_text[5000];

    (void)state;
    put("");
    refuse("no Ed25519 key");
    put("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    refuse("no Ed25519 key");
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    put(long_text);
    refuse("no Ed25519 key");
}

static void test_what_is_no_file(void **state)
{
    struct ed25519_key *key = NULL;
    struct err e = {0};
    bool made = false;
    char real[160];
    char long_dir[5000];

    (void)state;
    (void)snprintf(real, sizeof real, "%s/elsewhere", dir);
    assert_int_equal(symlink("elsewhere", path), 0);
    refuse("symbolic link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse("no file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    refuse("no file");
    assert_int_equal(rmdir(path), 0);
    memset(long_dir, 'd', sizeof long_dir);
    long_dir[sizeof long_dir - 1] = '\0';
    assert_int_equal(head_key_open(long_dir, &key, &made, &e), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cuts),
        cmocka_unit_test(test_failed_calls),
        cmocka_unit_test_setup_teardown(test_a_made_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_file, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
