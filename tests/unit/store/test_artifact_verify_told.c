/* test_artifact_verify_told: while `verify` looks at the artifact door's files, every file call,
 * every call of SQLite and every allocation fails once (tests/lib/told.h). It then ends with that
 * error, or tells of what it could not read; it never says less without a word. */
#include "tests/unit/store/artifact_verify_kit.h"

#include "store/artifact/proof.h"
#include "tests/lib/faults.h"
#include "tests/lib/told.h"

static struct world world;
static char usual[sizeof world.told];

/* What it tells when nothing fails. */
static void look(void)
{
    assert_int_equal(verify(&world), 0);
    memcpy(usual, world.told, sizeof usual);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void end(void *ctx, int r)
{
    (void)ctx;
    (void)r;
}

static int run(void *ctx, struct err *e)
{
    struct world *w = ctx;
    w->e = (struct err){0};
    int r = verify(w);
    *e = w->e;
    if (r == 0 && strcmp(w->told, usual) != 0) {
        /* Told as a violation, which says that it is none of the file's own. */
        if (strstr(w->told, DELIVERY_FILE " cannot be asked") != NULL) {
            /* whatever it was that failed */
            return err_set(e, ERR_NO_MEMORY, "SQLite code 266: %.300s", w->told);
        }
        if (strstr(w->told, "its bytes cannot be read") != NULL ||
            strstr(w->told, "its payload cannot be read") != NULL) {
            return err_set(e, ERR_IO, "%.300s", w->told);
        }
    }
    return r;
}

/* The database's files are read by SQLite as well, which says what it could not. */
#define QUIET "close ", "drop_range ", "ROLLBACK", "/" DELIVERY_FILE

static void test_whole(void **state)
{
    const struct told_op op = {"verify", nothing, run, end, {QUIET}, true, 0, 0};
    (void)state;
    make_world(&world);
    look();
    told_sweep(&op, &world);
    free_world(&world);
}

static void test_leavings(void **state)
{
    const struct told_op op = {"verify leavings", nothing, run, end, {QUIET}, true, 0, 0};
    (void)state;
    make_world(&world);
    put(&world, "uploads/%K.state", "x");
    put(&world, "packages/%L.manifest.jsonl", "x");
    put(&world, "receipts/.receipt-%A", "x");
    put(&world, "uploads/0123456789abcdef0123456789abcdef", "x"); /* no .info */
    put(&world, "uploads/1123456789abcdef0123456789abcdef.info", "x");
    put(&world, "uploads/2123456789abcdef0123456789abcdef.info", "x");
    put(&world, "uploads/2123456789abcdef0123456789abcdef.state", "x");
    drop(&world, "uploads/%P.info");
    look();
    told_sweep(&op, &world);
    free_world(&world);
}

/* The far side has them: the database says so, and is asked. */
static void test_bytes_are_gone(void **state)
{
    const struct told_op op = {"verify gone bytes", nothing, run, end, {QUIET}, true, 0, 0};
    (void)state;
    make_world(&world);
    drop(&world, "uploads/%A");
    look();
    assert_string_equal(usual, "");
    told_sweep(&op, &world);
    free_world(&world);
}

/* Nobody knows of them: all that could is looked at again. */
static void test_bytes_are_lost(void **state)
{
    /* A receipt that may still be there counts as one. */
    const struct told_op op = {"verify lost bytes", nothing, run, end, {QUIET}, true, 1, 0};
    (void)state;
    make_world(&world);
    drop(&world, DELIVERY_FILE);
    drop(&world, "uploads/%B");
    look();
    assert_non_null(strstr(usual, "never verified at a destination"));
    told_sweep(&op, &world);
    free_world(&world);
}

/* ---- what only its moment shows ---- */

static struct os_table table;
static const struct os_table *below;
static bool taken, asked;
static int stat_result;

/* Its deliverer takes the bytes away while they are read. */
static int drop_and_take(int fd)
{
    char path[PATH_BYTES];
    struct stat dropped, kept;
    (void)snprintf(path, sizeof path, "%s/uploads/%s", world.dir, world.a);
    assert_int_equal(fstat(fd, &dropped), 0);
    if (stat(path, &kept) == 0 && dropped.st_ino == kept.st_ino) {
        assert_int_equal(truncate(path, 5), 0);
        assert_int_equal(unlink(path), 0);
        taken = true;
    }
    return below->drop_cache(fd);
}

static int stat_taken(const char *path, struct os_stat *st)
{
    if (!taken || asked || strstr(path, "/uploads/") == NULL) {
        return below->stat(path, st);
    }
    asked = true;
    return stat_result < 0 ? stat_result : below->stat(path, st);
}

static int verify_while_taken(int result)
{
    taken = asked = false;
    stat_result = result;
    below = os_current();
    table = *below;
    table.drop_cache = drop_and_take;
    table.stat = stat_taken;
    os_install(&table);
    int r = verify(&world);
    os_install(below);
    assert_true(taken && asked);
    return r;
}

static void test_bytes_go_meanwhile(void **state)
{
    (void)state;
    make_world(&world);
    assert_int_equal(verify_while_taken(0), 0);
    assert_string_equal(world.told, "");
    assert_int_equal(world.result.violations, 0);
    free_world(&world);
    /* And it cannot be asked whether they have gone. */
    make_world(&world);
    assert_int_equal(verify_while_taken(-EIO), ERR_IO);
    free_world(&world);
}

static void test_beside_no_database(void **state)
{
    (void)state;
    make_world(&world);
    drop(&world, DELIVERY_FILE);
    put(&world, DELIVERY_FILE "-wal", "x");
    faults_install(NULL);
    faults_count_only(OS_CALL_stat, DELIVERY_FILE "-wal");
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(verify(&world), ERR_IO);
    faults_uninstall();
    assert_int_equal(verify(&world), 0);
    assert_non_null(strstr(world.remnants, DELIVERY_FILE "-wal"));
    free_world(&world);
}

static void fail_once(enum os_call call, const char *path, uint64_t at)
{
    faults_install(NULL);
    faults_count_only(call, path);
    faults_arm(at, EIO, false, FAULT_ERROR);
}

static void test_whether_there_is_a_database(void **state)
{
    (void)state;
    make_world(&world);
    fail_once(OS_CALL_stat, DELIVERY_FILE, 1);
    assert_int_equal(verify(&world), ERR_IO);
    faults_uninstall();
    free_world(&world);
}

/* Bytes that could not be read are not counted as read. */
static void test_what_was_read_is_counted(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    make_world(&world);
    (void)snprintf(path, sizeof path, "uploads/%s", world.a);
    fail_once(OS_CALL_pread, path, 1);
    assert_int_equal(verify(&world), 0);
    faults_uninstall();
    assert_non_null(strstr(world.told, "its bytes cannot be read"));
    assert_int_equal(world.result.bytes, SIZE_B);
    free_world(&world);
}

/* A receipt of the first slice of the database's rows cannot be read: the next slice does not make
 * up for it. */
static void test_a_slice_of_rows_fails(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    make_world(&world);
    sql(&world, "INSERT INTO artifacts(object_id, project, filename, checksum, size_bytes,"
                " accepted_at) WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n"
                " WHERE i < 400) SELECT '~' || i, project, filename, checksum, size_bytes,"
                " accepted_at FROM artifacts, n WHERE object_id = '%A'");
    (void)snprintf(path, sizeof path, "receipts/%s.json", world.a);
    fail_once(OS_CALL_open, path, 3); /* behind the receipt itself and its package */
    assert_int_equal(verify(&world), ERR_IO);
    faults_uninstall();
    free_world(&world);
}

/* Told once, by who reads the sidecars; the database's row is not blamed for it. */
static void test_a_plan_without_end(void **state)
{
    static char text[DELIVERY_TEXT_MAX + 2];
    (void)state;
    make_world(&world);
    memset(text, 'x', DELIVERY_TEXT_MAX + 1);
    put(&world, "packages/%K.plan.json", text);
    expect(&world, "package %K: its plan: *", "");
    free_world(&world);
}

/* ---- merged packages ---- */

#define NAME_BYTES 200

/* What kind of thing is odd about it. */
enum odd {
    WHOLE,
    NO_MANIFEST,
    NO_PAYLOAD,
    SHORT,
    FLIPPED,
    OTHER_TIME,
    NO_RECEIPT,
    BAD_RECEIPT,
    PROVEN,
    OTHER_MANIFEST
};

static char merged_id[DELIVERY_PACKAGE_LEN + 1];

static struct delivery_artifact accepted(const struct world *w, const char *id, unsigned char seed)
{
    static struct receipt receipt;
    struct delivery_artifact out;
    char name[NAME_BYTES];
    struct err e = {0};
    size_t n;
    (void)snprintf(name, sizeof name, "receipts/%s.json", id);
    char *text = read_file(w, name, &n);
    assert_int_equal(receipt_parse(slice_of(text, n), &receipt, &e), 0);
    free(text);
    artifact_of(&receipt, seed, &out);
    return out;
}

static void put_merged(const struct world *w, const char *tail, const void *text, size_t n)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "packages/%s%s", merged_id, tail);
    write_file(w, name, text, n);
}

/* A package of both artifacts, as a build that was not sealed yet leaves it. */
static void make_merged(struct world *w, enum odd odd)
{
    static struct delivery_plan plan;
    static const struct artifact_sink to = {.sink = "directory", .directory = "/srv/files"};
    struct delivery_artifact item[2];
    struct delivery_members m = {.count = 2, .item = item};
    struct delivery_member_facts facts[2];
    char sha256[SHA256_HEX_LEN + 1] = "", name[NAME_BYTES];
    struct buf text = {0}, payload = {0};
    struct err e = {0};
    make_world(w);
    item[0] = accepted(w, w->a, 1);
    item[1] = accepted(w, w->b, 2);
    item[1].accepted_at += odd == OTHER_TIME ? 1 : 0;
    memset(facts, 0, sizeof facts);
    memset(sha256, 'a', SHA256_HEX_LEN);
    for (unsigned i = 0; i < 2; i++) {
        size_t n;
        (void)snprintf(name, sizeof name, "uploads/%s", i == 0 ? w->a : w->b);
        char *bytes = read_file(w, name, &n);
        buf_put(&payload, bytes, n);
        free(bytes);
        facts[i].records = 1;
        memset(facts[i].sha256, 'b', SHA256_HEX_LEN);
        memset(facts[i].sha1, 'c', SHA1_HEX_LEN);
    }
    assert_int_equal(delivery_plan_begin_merged(&plan, &m, &to, &e), 0);
    memcpy(merged_id, plan.package_id, sizeof merged_id);
    plan.file[0].size = payload.len;
    digests_of(payload.ptr, payload.len, &plan.file[0].digests);
    delivery_manifest_put_merged(&text, &m, facts, &plan.file[0].digests, sha256);
    plan.file[1].size = text.len;
    digests_of(text.ptr, text.len, &plan.file[1].digests);
    text.ptr[text.len - 2] ^= odd == OTHER_MANIFEST;
    if (odd != NO_MANIFEST) {
        put_merged(w, DELIVERY_MANIFEST_TAIL, text.ptr, text.len);
    }
    buf_clear(&text);
    delivery_plan_put(&text, &plan);
    put_merged(w, DELIVERY_PLAN_TAIL, text.ptr, text.len);
    payload.ptr[UPLOAD_PIECE_BYTES] ^= odd == FLIPPED;
    if (odd != NO_PAYLOAD) {
        put_merged(w, DELIVERY_PAYLOAD_TAIL, payload.ptr, payload.len - (odd == SHORT ? 1 : 0));
    }
    if (odd == PROVEN) {
        static struct proof proof;
        proof = (struct proof){.artifact = item[0], .members = m, .plan = plan};
        proof.sent_at = proof.verified_at = 2000000000;
        assert_int_equal(proof_folder(w->dir, &e), 0);
        assert_int_equal(proof_write(w->dir, &proof, &e), 0);
    } else if (odd == NO_RECEIPT) {
        drop(w, "receipts/%B.json");
    } else if (odd == BAD_RECEIPT) {
        put(w, "receipts/%B.json", "{}");
    }
    buf_free(&text);
    buf_free(&payload);
}

/* A receipt that cannot be read is an error, though the next one can be. */
static void test_a_member_of_a_proof(void **state)
{
    char path[NAME_BYTES];
    (void)state;
    make_merged(&world, PROVEN);
    assert_int_equal(verify(&world), 0);
    assert_int_equal(world.result.proofs, 1);
    (void)snprintf(path, sizeof path, "receipts/%s.json", world.a);
    fail_once(OS_CALL_open, path, 1);
    assert_int_equal(verify(&world), ERR_IO);
    faults_uninstall();
    (void)snprintf(path, sizeof path, "proofs/%s.json", merged_id);
    fail_once(OS_CALL_open, path, 1);
    world.e = (struct err){0};
    assert_int_equal(verify(&world), ERR_IO);
    faults_uninstall();
    assert_non_null(strstr(world.e.text, path));
    free_world(&world);
}

static void test_merged(void **state)
{
    const struct told_op op = {"verify merged", nothing, run, end, {QUIET}, true, 0, 0};
    (void)state;
    make_merged(&world, WHOLE);
    look();
    assert_string_equal(usual, "");
    assert_int_equal(world.result.bytes, 2 * (SIZE_A + SIZE_B));
    told_sweep(&op, &world);
    free_world(&world);
}

static void test_odd_merged(void **state)
{
    static const struct {
        enum odd odd;
        const char *told;    /* part of it; NULL: nothing of the package */
        const char *remnant; /* tail; NULL: none */
    } cases[] = {
        {NO_MANIFEST, NULL, DELIVERY_PLAN_TAIL},
        {OTHER_MANIFEST, "its manifest is not the one of its plan", NULL},
        {NO_PAYLOAD, NULL, DELIVERY_PLAN_TAIL},
        {SHORT, "its payload has ", NULL},
        {FLIPPED, "its payload is not the one planned", NULL},
        {OTHER_TIME, "its manifest contradicts receipt ", NULL},
        {NO_RECEIPT, "there is no receipt ", NULL},
        {BAD_RECEIPT, NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char head[NAME_BYTES], name[NAME_BYTES];
        make_merged(&world, cases[i].odd);
        if (verify(&world) != 0) {
            fail_msg("%s", world.e.text);
        }
        (void)snprintf(head, sizeof head, "package %s: %s", merged_id,
                       cases[i].told != NULL ? cases[i].told : "");
        if ((strstr(world.told, head) != NULL) != (cases[i].told != NULL)) {
            fail_msg("%zu: %s", i, world.told);
        }
        (void)snprintf(name, sizeof name, "packages/%s%s", merged_id,
                       cases[i].remnant != NULL ? cases[i].remnant : "");
        if ((strstr(world.remnants, name) != NULL) != (cases[i].remnant != NULL)) {
            fail_msg("%zu: %s", i, world.remnants);
        }
        free_world(&world);
    }
}

/* A call that fails is told as what it is. */
static void test_merged_that_cannot_be_read(void **state)
{
    static const struct {
        enum os_call call;
        const char *tail;
        uint64_t at;
        int result;
        const char *told;
    } cases[] = {
        {OS_CALL_open, DELIVERY_PAYLOAD_TAIL, 1, ERR_IO, ""},
        {OS_CALL_pread, DELIVERY_PAYLOAD_TAIL, 1, 0, "its payload cannot be read"},
        {OS_CALL_fstat, DELIVERY_PAYLOAD_TAIL, 1, 0, "its payload cannot be read"},
        {OS_CALL_stat, DELIVERY_MANIFEST_TAIL, 1, ERR_IO, ""},
        {OS_CALL_open, DELIVERY_MANIFEST_TAIL, 1, ERR_IO, ""},
        {OS_CALL_open, DELIVERY_PLAN_TAIL, 2, ERR_IO, ""},
        {OS_CALL_pread, DELIVERY_PLAN_TAIL, 2, ERR_IO, ""},
        {OS_CALL_pread, DELIVERY_MANIFEST_TAIL, 1, ERR_IO, ""},
    };
    (void)state;
    make_merged(&world, WHOLE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[NAME_BYTES];
        (void)snprintf(path, sizeof path, "packages/%s%s", merged_id, cases[i].tail);
        fail_once(cases[i].call, path, cases[i].at);
        int r = verify(&world);
        faults_uninstall();
        if (r != cases[i].result || strstr(world.told, cases[i].told) == NULL) {
            fail_msg("%zu: %d %s", i, r, world.told);
        }
    }
    free_world(&world);
}

/* It may have gone with a purge. */
static void test_whether_a_manifest_has_gone(void **state)
{
    char path[NAME_BYTES];
    (void)state;
    make_merged(&world, OTHER_MANIFEST);
    (void)snprintf(path, sizeof path, "packages/%s" DELIVERY_MANIFEST_TAIL, merged_id);
    fail_once(OS_CALL_stat, path, 2);
    assert_int_equal(verify(&world), ERR_IO);
    faults_uninstall();
    free_world(&world);
}

/* The database says that it is sealed, with a payload of its own. */
static void test_a_sealed_payload_cannot_be_asked(void **state)
{
    (void)state;
    make_merged(&world, WHOLE);
    sql(&world, "UPDATE packages SET packager = 'mergewarc' WHERE package_id = '%K'");
    assert_int_equal(verify(&world), 0);
    assert_non_null(strstr(world.told, DELIVERY_PAYLOAD_TAIL " is missing"));
    char path[NAME_BYTES];
    (void)snprintf(path, sizeof path, "packages/%s" DELIVERY_PAYLOAD_TAIL, world.package);
    fail_once(OS_CALL_stat, path, 1);
    assert_int_equal(verify(&world), ERR_IO);
    faults_uninstall();
    free_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_leavings),
        cmocka_unit_test(test_bytes_are_gone),
        cmocka_unit_test(test_bytes_are_lost),
        cmocka_unit_test(test_bytes_go_meanwhile),
        cmocka_unit_test(test_beside_no_database),
        cmocka_unit_test(test_a_plan_without_end),
        cmocka_unit_test(test_whether_there_is_a_database),
        cmocka_unit_test(test_what_was_read_is_counted),
        cmocka_unit_test(test_a_slice_of_rows_fails),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_a_member_of_a_proof),
        cmocka_unit_test(test_odd_merged),
        cmocka_unit_test(test_merged_that_cannot_be_read),
        cmocka_unit_test(test_a_sealed_payload_cannot_be_asked),
        cmocka_unit_test(test_whether_a_manifest_has_gone),
    };
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests_name("artifact_verify_told", tests, NULL, NULL);
}
