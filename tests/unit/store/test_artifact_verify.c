/* artifact_verify: a small data directory with an artifact of each kind is good; then one thing is
 * wrong with it, and exactly that is told. */
#include "tests/unit/store/artifact_verify_kit.h"

#include <signal.h>
#include <sys/wait.h>

#include "store/artifact/purge.h"
#include "tests/lib/faults.h"

static void nothing_is_wrong(void **state)
{
    struct world *w = *state;
    expect(w, "", "");
    assert_false(w->result.absent);
    assert_false(w->result.live);
    assert_false(w->result.partial);
    assert_int_equal(w->result.receipts, 2);
    assert_int_equal(w->result.bytes, SIZE_A + SIZE_B);
    assert_int_equal(w->result.partial_uploads, 1);
    assert_int_equal(w->result.gone_uploads, 1);
    assert_int_equal(w->result.packages, 1);
    assert_int_equal(w->result.deliveries, 2);
    assert_int_equal(w->progress_done, SIZE_A + SIZE_B);
    assert_int_equal(w->progress_total, SIZE_A + SIZE_B);
}

static void nothing_is_there(void **state)
{
    struct world w = {.dir = "/tmp/tallyman-verify-XXXXXX"};
    assert_non_null(mkdtemp(w.dir));
    expect(&w, "", "");
    assert_true(w.result.absent);
    free_world(&w);
    (void)state;
}

static void bytes_are_not_the_receipts(void **state)
{
    struct world *w = *state;
    flip(w, "uploads/%A", UPLOAD_PIECE_BYTES + 7);
    expect(w, "receipt %A: its bytes have the BLAKE3 *", "");
    assert_non_null(strstr(w->told, w->checksum_a));
    cut(w, "uploads/%A", SIZE_A - 1);
    expect(w, "receipt %A: its file has 2097156 bytes, not 2097157", "");
    /* Verified at its destination: the bytes may go. */
    drop(w, "uploads/%A");
    expect(w, "", "");
    drop(w, "uploads/%B");
    expect(w, "receipt %B: its bytes are not here, and were never verified at a destination", "");
    assert_int_equal(w->result.violations, 1);
}

static void nobody_knows_of_the_bytes(void **state)
{
    struct world *w = *state;
    drop(w, "uploads/%A");
    drop(w, DELIVERY_FILE);
    expect(w, "receipt %A: its bytes are not here, and were never verified at a destination",
           DELIVERY_FILE "-wal\n" DELIVERY_FILE "-shm");
    drop(w, DELIVERY_FILE "-wal");
    drop(w, DELIVERY_FILE "-shm");
    put(w, DELIVERY_FILE,
        "no database, but a text that is longer than the head of one; it goes on "
        "for a while, to a hundred bytes");
    assert_int_equal(verify(w), 0);
    same_lines(w, w->told,
               "receipt %A: its bytes are not here, and " DELIVERY_FILE
               " cannot be asked\n" DELIVERY_FILE ": *");
}

static void receipts_are_none(void **state)
{
    struct world *w = *state;
    put(w, "receipts/%B.json", "{\"id\":");
    put(w, "receipts/nobody.json", "{}");
    expect(w, "receipt*\nreceipt*", "");
    assert_non_null(strstr(w->told, ": the receipt is no JSON object"));
    assert_non_null(strstr(w->told, "receipts/nobody.json: its name is no object id"));
    assert_int_equal(w->result.violations, 2);
}

static void a_receipt_has_another_name(void **state)
{
    struct world *w = *state;
    drop(w, "receipts/%B.json");
    move(w, "receipts/%A.json", "receipts/%B.json");
    expect(w,
           "receipt %B: it is the receipt of %A\n"
           "package %K: there is no receipt %A\n" DELIVERY_FILE ": artifact %A has no receipt",
           "");
}

static void an_info_is_damaged(void **state)
{
    struct world *w = *state;
    edit(w, "uploads/%A.info", "\"Size\":2097157", "\"Size\":2097158");
    expect(w, "receipt %A: its .info declares other bytes", "");
    edit(w, "uploads/%A.info", "\"Size\":2097158", "\"Size\":2097157");
    edit(w, "uploads/%A.info", "file 1.bin", "fine 1.bin");
    expect(w, "package %K: its manifest contradicts the receipt", "");
    put(w, "uploads/%A.info", "{");
    expect(w, "receipt %A: the upload's .info is no JSON object", "");
    drop(w, "uploads/%A.info");
    expect(w, "receipt %A: its .info is missing, so it cannot be delivered", "");
}

static void partial_uploads_lost_bytes(void **state)
{
    struct world *w = *state;
    cut(w, "uploads/%P", 250); /* more than was synced is fine */
    expect(w, "", "");
    cut(w, "uploads/%P", 301);
    expect(w, "upload %P: its file has 301 bytes, more than the 300 declared", "");
    cut(w, "uploads/%P", 99);
    expect(w, "upload %P: its file has 99 bytes, but 100 were synced", "");
    drop(w, "uploads/%P");
    expect(w, "upload %P: its file is missing, and 100 bytes were synced", "");
    /* One slot is enough; without any nothing was promised that we know of. */
    flip(w, "uploads/%P.state", 4096 + 50);
    expect(w, "", "");
    flip(w, "uploads/%P.state", 50);
    expect(w, "upload %P: neither slot of its .state can be read", "");
    put(w, "uploads/%P.info", "");
    expect(w, "upload %P: its .info cannot be read", "");
    cut(w, "uploads/%P.state", 0); /* of a creation that was cut */
    expect(w, "", "uploads/%P.info");
    drop(w, "uploads/%P.info");
    expect(w, "", "uploads/%P.state");
}

static void names_that_a_crash_leaves(void **state)
{
    static const char *const names[] = {
        "receipts/.receipt-%B",        "receipts/notes.txt",         "uploads/.state-%P",
        "packages/.part-%K.plan.json", "packages/%L.manifest.jsonl", "uploads/%K",
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put(w, names[i], "x");
        expect(w, "", names[i]);
        drop(w, names[i]);
    }
    for (unsigned i = 0; i < 150; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "uploads/.left-%u", i);
        put(w, name, "");
    }
    assert_int_equal(verify(w), 0);
    assert_int_equal(w->result.remnants, 150);
    assert_int_equal(w->remnant_lines, 101);
    assert_non_null(strstr(w->remnants, "\n50 more"));
    assert_int_equal(w->result.violations, 0);
}

static void sidecars_are_damaged(void **state)
{
    struct world *w = *state;
    flip(w, "packages/%K.manifest.jsonl", 10);
    expect(w, "package %K: its manifest is not the one planned", "");
    flip(w, "packages/%K.manifest.jsonl", 10);
    expect(w, "", "");
    move(w, "packages/%K.manifest.jsonl", "packages/%L.manifest.jsonl");
    expect(w, DELIVERY_FILE ": package %K is sealed, but packages/%K.manifest.jsonl is missing",
           "packages/*\npackages/*");
    move(w, "packages/%L.manifest.jsonl", "packages/%K.manifest.jsonl");
    flip(w, "packages/%K.plan.json", 30);
    expect(w,
           "package %K: its plan*\n" DELIVERY_FILE
           ": package %K: its plan is not the one in its file",
           "");
    drop(w, "packages/%K.plan.json");
    expect(w, DELIVERY_FILE ": package %K is sealed, but packages/%K.plan.json is missing",
           "packages/%K.manifest.jsonl");
}

static void a_plan_is_anothers(void **state)
{
    struct world *w = *state;
    move(w, "packages/%K.plan.json", "packages/%L.plan.json");
    expect(w,
           "package %L: its plan is that of %K\n" DELIVERY_FILE
           ": package %K is sealed, but packages/%K.plan.json is missing",
           "packages/%K.manifest.jsonl");
}

/* The manifest says when it was accepted; the plan does not. */
static void a_manifest_contradicts(void **state)
{
    struct world *w = *state;
    char name[100];
    size_t n;
    put_names(w, "receipts/%A.json", name, sizeof name);
    char *json = read_file(w, name, &n);
    assert_int_equal(json[n - 1], '}');
    json[n - 2] = json[n - 2] == '1' ? '2' : '1';
    write_file(w, name, json, n);
    free(json);
    expect(w, "package %K: its manifest contradicts the receipt", "");
}

static void rows_contradict(void **state)
{
    static const struct {
        const char *sql, *told;
    } table[] = {
        {"UPDATE artifacts SET size_bytes = 7 WHERE object_id = '%B'",
         "package %L: its member %B is another one\nartifact %B contradicts its receipt"},
        {"UPDATE artifacts SET checksum = 'x' WHERE object_id = '%A'",
         "package %K: its member %A is another one\nartifact %A contradicts its receipt"},
        {"DELETE FROM artifacts WHERE object_id = '%B'",
         "package %L: its member %B is no artifact"},
        {"DELETE FROM package_members WHERE object_id = '%B'",
         "artifact %B is in no package\npackage %L has 1 members, but 0 rows"},
        {"DELETE FROM packages WHERE package_id = '%L'", "members of package %L, which is none"},
        {"DELETE FROM deliveries", "package %K is sealed and goes nowhere"},
        {"INSERT INTO deliveries(package_id, sink, project, state, next_attempt_ms, updated_at)"
         " VALUES('%L', 'directory', 'demo', 'pending', 1, 1)",
         "delivery of package %L, which is not sealed"},
        {"UPDATE artifacts SET object_id = 'odd' WHERE object_id = '%B'",
         "artifact odd is in no package\npackage %L: its member %B is no artifact\n"
         "artifact odd has no receipt"},
        {"UPDATE packages SET package_id = 'odd' WHERE package_id = '%K';"
         "UPDATE package_members SET package_id = 'odd' WHERE package_id = '%K';"
         "UPDATE deliveries SET package_id = 'odd' WHERE package_id = '%K'",
         "package odd: its id is none"},
        {"UPDATE packages SET plan = 'odd' WHERE package_id = '%K'",
         "package %K: its plan is not the one in its file"},
        {"PRAGMA ignore_check_constraints=ON; UPDATE deliveries SET state = 'lost'",
         "delivery of package %K: no such state: lost\n"
         "delivery of package %K: its state and its times contradict"},
        {"PRAGMA ignore_check_constraints=ON; UPDATE deliveries SET verified_at = NULL",
         "delivery of package %K: its state and its times contradict"},
        {"PRAGMA ignore_check_constraints=ON; UPDATE deliveries SET state = 'sent',"
         " verified_at = NULL, sent_at = NULL",
         "delivery of package %K: its state and its times contradict"},
        {"PRAGMA ignore_check_constraints=ON; UPDATE packages SET state = 'odd'"
         " WHERE package_id = '%L'",
         "package %L: no such state: odd"},
        {"DROP INDEX deliveries_due",
         "schema: index deliveries_due is missing or not as it should be"},
        {"CREATE TABLE zoo(x)", "schema: table zoo is not ours"},
        {"PRAGMA user_version=9", "schema version 9; this program knows 1 to 3"},
        {"PRAGMA application_id=9", "delivery.sqlite is another program's database"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct world w;
        char want[1000] = "";
        make_world(&w);
        sql(&w, table[i].sql);
        for (const char *line = table[i].told; *line != '\0';) {
            size_t n = strcspn(line, "\n");
            size_t at = strlen(want);
            (void)snprintf(want + at, sizeof want - at, "%s" DELIVERY_FILE ": %.*s",
                           at > 0 ? "\n" : "", (int)n, line);
            line += n + (line[n] == '\n');
        }
        expect(&w, want, "");
        free_world(&w);
    }
    (void)state;
}

/* A deliverer has the database open: it is read beside it, and nothing of it changes. */
static void beside_a_deliverer(void **state)
{
    struct world *w = *state;
    struct delivery_index *ix;
    struct delivery_artifact more = {
        .object_id = "00000000000000000000000000000000", .project = "demo", .size_bytes = 1};
    bool rebuilt;
    int fds[2];
    memset(more.checksum, '0', BLAKE3_HEX_LEN);
    drop(w, "uploads/%A");
    /* In a process of its own: see verify.h. */
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct err e = {0};
        char c = delivery_index_open(w->dir, &ix, &rebuilt, &e) == 0 &&
                         delivery_index_begin(ix, &e) == 0 &&
                         delivery_index_add(ix, &more, 1, &e) == 0 &&
                         delivery_index_commit(ix, &e) == 0
                     ? 'y'
                     : 'n';
        _exit(write(fds[1], &c, 1) == 1 && pause() ? 0 : 1);
    }
    char c;
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    expect(w, DELIVERY_FILE ": artifact 00000000000000000000000000000000 has no receipt", "");
    assert_true(w->result.live);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    /* And what it left in its log without it. */
    expect(w, DELIVERY_FILE ": artifact 00000000000000000000000000000000 has no receipt", "");
    assert_false(w->result.live);
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
}

/* Runs with every call on files of this folder failing in turn. Only what was just read may fail to
 * be closed; else the look ends with an error, or tells something. */
static void fail_calls(struct world *w, const char *folder)
{
    faults_count_only(OS_CALL_close, folder);
    faults_reset();
    assert_int_equal(verify(w), 0);
    uint64_t closes = faults_count();
    faults_count_only(OS_CALL_ANY, folder);
    faults_reset();
    assert_int_equal(verify(w), 0);
    uint64_t calls = faults_count();
    uint64_t harmless = 0;
    assert_true(calls > closes + 5);
    for (uint64_t i = 1; i <= calls; i++) {
        faults_reset();
        faults_arm(i, EIO, false, FAULT_ERROR);
        int r = verify(w);
        assert_int_equal(faults_fired(), 1);
        assert_true(r == ERR_IO || r == 0);
        harmless += r == 0 && w->result.violations == 0;
    }
    assert_int_equal(harmless, closes);
}

static void calls_fail(void **state)
{
    static const char *const folders[] = {"uploads", "receipts", "packages"};
    struct world *w = *state;
    faults_install(NULL);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        fail_calls(w, folders[i]);
    }
    faults_count_only(OS_CALL_pread, w->a);
    faults_reset();
    faults_arm(2, EIO, false, FAULT_ERROR);
    assert_int_equal(verify(w), 0);
    same_lines(w, w->told, "receipt %A: its bytes cannot be read: *");
    faults_count_only(OS_CALL_open, DELIVERY_FILE);
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    assert_int_equal(verify(w), ERR_IO);
    faults_uninstall();
}

/* ---- proofs ---- */

/* A proof for the delivered artifact, as the deliverer makes it. */
static void prove(struct world *w)
{
    static struct proof proof;
    struct receipt receipt;
    struct err e = {0};
    char name[200];
    size_t n;
    memset(&proof, 0, sizeof proof);
    snprintf(name, sizeof name, "receipts/%s.json", w->a);
    char *json = read_file(w, name, &n);
    assert_int_equal(receipt_parse(slice_of(json, n), &receipt, &e), 0);
    free(json);
    artifact_of(&receipt, 1, &proof.artifact);
    snprintf(name, sizeof name, "packages/%s.plan.json", w->package);
    char *plan = read_file(w, name, &n);
    assert_int_equal(delivery_plan_parse(slice_of(plan, n), &proof.plan, &e), 0);
    free(plan);
    proof.sent_at = 1002;
    proof.verified_at = 1003;
    assert_int_equal(proof_folder(w->dir, &e), 0);
    assert_int_equal(proof_write(w->dir, &proof, &e), 0);
}

static void proofs_speak(void **state)
{
    static struct delivery_plan plan;
    static atomic_bool stop;
    struct world *w = *state;
    struct err e = {0};
    char name[200];
    size_t n;
    prove(w);
    expect(w, "", "");
    assert_int_equal(w->result.proofs, 1);
    snprintf(name, sizeof name, "packages/%s.plan.json", w->package);
    char *text = read_file(w, name, &n);
    assert_int_equal(delivery_plan_parse(slice_of(text, n), &plan, &e), 0);
    free(text);
    assert_int_equal(purge_folder(w->dir, &e), 0);
    assert_int_equal(purge_package(w->dir, &plan, &stop, NULL, &e), 0);
    expect(w, "", "");
    assert_int_equal(w->result.bytes, SIZE_B);
    assert_int_equal(w->result.packages, 0);
    /* Without the database too. */
    drop(w, DELIVERY_FILE);
    drop(w, DELIVERY_FILE "-wal");
    drop(w, DELIVERY_FILE "-shm");
    expect(w, "", "");
    put(w, "uploads/.purge/%A", "what is left");
    expect(w, "", PURGE_FOLDER "/%A");
    drop(w, "uploads/.purge/%A");
    flip(w, "proofs/%K.json", 30);
    expect(w,
           "proof %K: *\n"
           "receipt %A: its bytes are not here, and were never verified at a destination",
           "");
    drop(w, "proofs/%K.json");
    expect(w, "receipt %A: its bytes are not here, and were never verified at a destination", "");
}

static void proofs_are_damaged(void **state)
{
    struct world *w = *state;
    char told[200];
    prove(w);
    put(w, "proofs/.part-%K.json", "");
    expect(w, "", "proofs/.part-%K.json");
    drop(w, "proofs/.part-%K.json");
    move(w, "proofs/%K.json", "proofs/%L.json");
    expect(w, "proof %L: it is the proof of another package", "");
    move(w, "proofs/%L.json", "proofs/%K.json");
    cut(w, "proofs/%K.json", 100);
    expect(w, "proof %K: it is no proof of this program", "");
    drop(w, "proofs/%K.json");
    prove(w);
    /* The proof says another time of acceptance than the receipt. */
    edit(w, "receipts/%A.json", "\"accepted_at\":1", "\"accepted_at\":2");
    verify(w);
    snprintf(told, sizeof told, "proof %s contradicts the receipt", w->package);
    assert_non_null(strstr(w->told, told));
    drop(w, "receipts/%A.json");
    verify(w);
    assert_non_null(strstr(w->told, ": there is no receipt "));
}

static void proofs_cannot_be_read(void **state)
{
    struct world *w = *state;
    prove(w);
    faults_install(NULL);
    faults_count_only(OS_CALL_close, "/proofs");
    assert_int_equal(verify(w), 0);
    uint64_t closes = faults_count();
    faults_count_only(OS_CALL_ANY, "/proofs");
    faults_reset();
    assert_int_equal(verify(w), 0);
    uint64_t calls = faults_count();
    uint64_t failed = 0;
    assert_true(calls >= closes + 3); /* list, open, read */
    for (uint64_t i = 1; i <= calls; i++) {
        faults_reset();
        faults_arm(i, EIO, false, FAULT_ERROR);
        failed += verify(w) == ERR_IO;
    }
    assert_int_equal(failed, calls - closes);
    /* Nor can the receipt that one speaks of. */
    faults_count_only(OS_CALL_open, "/receipts/");
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(verify(w), ERR_IO);
    faults_uninstall();
}

/* ---- a device that has other bytes than the cache shows ---- */

static struct os_table device;
static const struct os_table *below;
static const struct world *on_device;
static unsigned shown;

/* The bytes of the first receipt, as the device has them: the cache showed better ones. */
static int drop_and_show(int fd)
{
    char path[PATH_BYTES];
    struct stat dropped, kept;
    (void)snprintf(path, sizeof path, "%s/uploads/%s", on_device->dir, on_device->a);
    assert_int_equal(fstat(fd, &dropped), 0);
    assert_int_equal(stat(path, &kept), 0);
    if (dropped.st_ino == kept.st_ino && shown++ == 0) {
        flip(on_device, "uploads/%A", SIZE_A - 3);
    }
    return below->drop_cache(fd);
}

static void the_device_is_asked(void **state)
{
    struct world *w = *state;
    on_device = w;
    shown = 0;
    below = os_current();
    device = *below;
    device.drop_cache = drop_and_show;
    os_install(&device);
    expect(w, "receipt %A: its bytes have the BLAKE3 *", "");
    os_install(below);
    assert_int_equal(shown, 1);
}

#define WITH_WORLD(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(nothing_is_wrong),
        cmocka_unit_test(nothing_is_there),
        WITH_WORLD(bytes_are_not_the_receipts),
        WITH_WORLD(nobody_knows_of_the_bytes),
        WITH_WORLD(receipts_are_none),
        WITH_WORLD(a_receipt_has_another_name),
        WITH_WORLD(an_info_is_damaged),
        WITH_WORLD(partial_uploads_lost_bytes),
        WITH_WORLD(names_that_a_crash_leaves),
        WITH_WORLD(sidecars_are_damaged),
        WITH_WORLD(a_plan_is_anothers),
        WITH_WORLD(a_manifest_contradicts),
        cmocka_unit_test(rows_contradict),
        WITH_WORLD(beside_a_deliverer),
        WITH_WORLD(calls_fail),
        WITH_WORLD(proofs_speak),
        WITH_WORLD(proofs_are_damaged),
        WITH_WORLD(proofs_cannot_be_read),
        WITH_WORLD(the_device_is_asked),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests_name("artifact_verify", tests, NULL, NULL);
}
