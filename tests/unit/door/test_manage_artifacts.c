/* test_manage_artifacts: projects that take artifacts, what is told of one artifact, and the status
 * of the door, over a real server with real files. */
#include <errno.h>
#include <sys/stat.h>

#include "store/artifact/delivery_index.h"
#include "store/artifact/request.h"
#include "tests/lib/faults.h"
#include "tests/unit/door/manage_kit.h"

#define P         "/api/v1/projects"
#define RETENTION 1800000u

static int setup(void **state)
{
    struct kit *k = calloc(1, sizeof *k);
    struct err e = {0};

    assert_non_null(k);
    kit_start(k);
    struct uploads_options options = {.data = k->dir, .issuer = "http://issuer.example/\"<"};
    assert_int_equal(uploads_open(&options, &k->manage.uploads, &e), 0);
    k->manage.upload_retention_ms = RETENTION;
    kit_run(k);
    *state = k;
    return 0;
}

static int teardown(void **state)
{
    struct kit *k = *state;

    uploads_close(k->manage.uploads);
    kit_stop(k);
    free(k);
    return 0;
}

/* The table of calls changes while the server has no thread. */
static int setup_faults(void **state)
{
    faults_install(NULL);
    return setup(state);
}

static int teardown_faults(void **state)
{
    int r;

    faults_reset();
    r = teardown(state);
    faults_uninstall();
    return r;
}

/* ---- projects ---- */

static void create(struct kit *k, const char *artifacts, unsigned status, const char *text)
{
    char body[6000];

    (void)snprintf(body, sizeof body, "{\"id\":\"files\",\"artifacts\":%s}", artifacts);
    expect(k, "", "POST " P, body, status, text);
}

static void create_at(struct kit *k, const char *directory, unsigned status, const char *text)
{
    char artifacts[5000];

    (void)snprintf(artifacts, sizeof artifacts, "{\"sink\":\"directory\",\"directory\":\"%s\"}",
                   directory);
    create(k, artifacts, status, text);
}

static void test_projects(void **state)
{
    struct kit *k = *state;
    char dir[] = "/tmp/tallyman-files-XXXXXX";
    char text[400];
    char token[KEY_TEXT_MAX + 1];

    assert_non_null(mkdtemp(dir));
    kit_project(k, "plain", token);
    expect(k, "", "GET " P "/plain", NULL, 200, "\"artifacts\":null");
    (void)snprintf(
        text, sizeof text,
        "\"artifacts\":{\"sink\":\"directory\",\"directory\":\"%s\",\"credentials_file\":null,"
        "\"identifier\":\"{{OBJECT_ID}}\",\"remote_name\":\"{{FILENAME}}\",\"metadata\":{},"
        "\"packager\":\"identity\",\"retention\":null,\"require_checksum\":true}",
        dir);
    create_at(k, dir, 201, text);
    expect(k, "", "GET " P, NULL, 200, text);
    expect(k, "", "GET " P "/files", NULL, 200, text);
    assert_true(control_takes_artifacts(store_control(k->store), 2));
    assert_false(control_takes_artifacts(store_control(k->store), 1));
    create_at(k, dir, 409, "\"error\":\"project_exists\"");
    assert_int_equal(rmdir(dir), 0);
}

static void test_bad_artifacts(void **state)
{
    static const struct {
        const char *artifacts, *text;
    } table[] = {
        {"null", "artifacts must be an object"},
        {"\"directory\"", "artifacts must be an object"},
        {"{}", "artifacts.sink: there are \\\"directory\\\" and \\\"internet_archive\\\""},
        {"{\"sink\":\"directory\"}", "artifacts.directory: the sink directory needs one"},
        {"{\"sink\":1,\"directory\":\"/tmp\"}", "artifacts.sink: it must be a string"},
        {"{\"sink\":\"directory\",\"directory\":[]}", "artifacts.directory: it must be a string"},
        {"{\"sink\":\"directory\",\"directory\":\"/tmp\",\"more\":1}",
         "artifacts.more: there is no such member; there are sink, directory, "},
        {"{\"sink\":\"s3\",\"directory\":\"/tmp\"}", "artifacts.sink: there are \\\"directory\\\""},
        {"{\"sink\":\"\",\"directory\":\"/tmp\"}", "artifacts.sink: it must not be empty"},
    };
    static char longest[4200];
    struct kit *k = *state;
    char path[200];

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        create(k, table[i].artifacts, 400, table[i].text);
    }
    create_at(k, "", 400, "artifacts.directory: it must not be empty");
    create_at(k, "tmp", 400, "artifacts.directory: it is an absolute path");
    create_at(k, "/tmp\\u0000x", 400, "UTF-8 without control characters");
    create_at(k, "/none/such", 400, "No such file or directory; make the directory first");
    create_at(k, "/etc/passwd", 400, "/etc/passwd: Not a directory");
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[4001] = '\0';
    create_at(k, longest, 400, "artifacts.directory: it has at most 4000 bytes");
    longest[4000] = '\0';
    create_at(k, longest, 400, "File name too long");
    /* The data directory, what is in it, and ways around. */
    create_at(k, k->dir, 400, "lies in the data directory");
    (void)snprintf(path, sizeof path, "%s/uploads/../uploads//", k->dir);
    create_at(k, path, 400, "lies in the data directory");
    (void)snprintf(path, sizeof path, "%s-link", k->dir);
    assert_int_equal(symlink(k->dir, path), 0);
    create_at(k, path, 400, "lies in the data directory");
    assert_int_equal(unlink(path), 0);
    expect(k, "", "GET " P, NULL, 200, "{\"projects\":[]}"); /* nothing of all this was stored */
}

/* So deep that its parents cannot be named: whether it lies in the data directory is not known. */
static void test_deep_directory(void **state)
{
    struct kit *k = *state;
    static char path[3900] = "/tmp/tallyman-deep-XXXXXX";
    size_t base;
    size_t n;

    assert_non_null(mkdtemp(path));
    base = n = strlen(path);
    while (n + 3 < sizeof path) {
        memcpy(path + n, "/d", 3);
        n += 2;
        assert_int_equal(mkdir(path, 0700), 0);
    }
    create_at(k, path, 400, "its parents: File name too long");
    for (; n >= base; n -= 2) {
        path[n] = '\0';
        assert_int_equal(rmdir(path), 0);
    }
    expect(k, "", "GET " P, NULL, 200, "{\"projects\":[]}");
}

/* ---- settings that change ---- */

static void change(struct kit *k, const char *artifacts, unsigned status, const char *text)
{
    char body[5200];

    (void)snprintf(body, sizeof body, "{\"artifacts\":%s}", artifacts);
    expect(k, "", "PATCH " P "/files", body, status, text);
}

static void test_change(void **state)
{
    struct kit *k = *state;
    char dir[] = "/tmp/tallyman-files-XXXXXX";
    char text[200];
    char token[KEY_TEXT_MAX + 1];
    const struct control *c;

    assert_non_null(mkdtemp(dir));
    kit_project(k, "files", token);
    expect(k, "", "PATCH " P "/none", "{\"artifacts\":{}}", 404, "there is no such project");
    expect(k, "", "PATCH " P "/files", "{}", 400, "artifacts is missing");
    expect(k, "", "PATCH " P "/files", "{\"artifacts\":null}", 400, "artifacts must be an object");
    expect(k, "", "PATCH " P "/files", "{\"name\":\"x\"}", 400, "unknown member");
    expect(k, "", "PATCH " P "/files?x=1", "{\"artifacts\":{}}", 400, "no query parameters");
    /* It took none; what is not whole is refused, and nothing of it stays. */
    change(k, "{\"retention\":\"1d\"}", 400, "artifacts.sink: there are");
    expect(k, "", "GET " P "/files", NULL, 200, "\"artifacts\":null");
    (void)snprintf(text, sizeof text, "{\"sink\":\"directory\",\"directory\":\"%s\"}", dir);
    change(k, text, 200, "\"identifier\":\"{{OBJECT_ID}}\"");
    c = store_control(k->store);
    assert_true(control_takes_artifacts(c, 1) && control_requires_checksum(c, 1));
    /* Members one by one; the others stay. */
    change(k, "{\"retention\":\"36h\",\"require_checksum\":false}", 200, "\"retention\":\"36h\"");
    assert_false(control_requires_checksum(store_control(k->store), 1));
    change(k, "{\"identifier\":\"{{PROJECT}}-{{OBJECT_ID}}\"}", 200,
           "\"identifier\":\"{{PROJECT}}-{{OBJECT_ID}}\",\"remote_name\":\"{{FILENAME}}\","
           "\"metadata\":{},\"packager\":\"identity\",\"retention\":\"36h\","
           "\"require_checksum\":false}");
    change(k, "{\"identifier\":\"all\"}", 400, "artifacts.identifier: it or remote_name must hold");
    change(k, "{\"metadata\":{\"title\":\"x\"}}", 400, "artifacts.metadata: the sink directory");
    change(k, "{\"directory\":\"/none/such\"}", 400, "No such file or directory");
    change(k, "{\"sink\":\"internet_archive\"}", 400, "artifacts.directory: the sink internet_");
    change(k,
           "{\"sink\":\"internet_archive\",\"directory\":null,\"credentials_file\":\"/none/keys\","
           "\"metadata\":{\"b\":\"{{DATE}}\",\"a\":[\"x\",\"y\"]},\"retention\":null}",
           200,
           "\"sink\":\"internet_archive\",\"directory\":null,\"credentials_file\":\"/none/keys\","
           "\"identifier\":\"{{PROJECT}}-{{OBJECT_ID}}\",\"remote_name\":\"{{FILENAME}}\","
           "\"metadata\":{\"a\":[\"x\",\"y\"],\"b\":[\"{{DATE}}\"]},\"packager\":\"identity\","
           "\"retention\":null,\"require_checksum\":false}");
    change(k, "{\"require_checksum\":null}", 200, "\"require_checksum\":true");
    assert_true(control_requires_checksum(store_control(k->store), 1));
    change(k, "{}", 200, "\"metadata\":{\"a\":");
    assert_int_equal(rmdir(dir), 0);
}

/* The key file may not be where the server and its backups can read it. */
static void test_credentials_outside(void **state)
{
    struct kit *k = *state;
    char text[400], link[200];
    const char *const inside[] = {"keys", "uploads/keys", "none/such/keys"};

    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        char path[200];
        (void)snprintf(path, sizeof path, "%s/%s", k->dir, inside[i]);
        (void)snprintf(text, sizeof text,
                       "{\"sink\":\"internet_archive\",\"identifier\":\"x-{{OBJECT_ID}}\","
                       "\"credentials_file\":\"%s\"}",
                       path);
        create(k, text, 400, "artifacts.credentials_file: /");
    }
    (void)snprintf(link, sizeof link, "%s-link", k->dir);
    (void)snprintf(text, sizeof text, "%s/inner", k->dir);
    assert_int_equal(mkdir(text, 0700), 0);
    assert_int_equal(symlink(text, link), 0);
    (void)snprintf(text, sizeof text,
                   "{\"sink\":\"internet_archive\",\"identifier\":\"x-{{OBJECT_ID}}\","
                   "\"credentials_file\":\"%s/keys\"}",
                   link);
    create(k, text, 400, "lies in the data directory");
    assert_int_equal(unlink(link), 0);
    /* Nor behind a name in there, which could be made to lead elsewhere. */
    (void)snprintf(link, sizeof link, "%s/out", k->dir);
    assert_int_equal(symlink("/tmp", link), 0);
    (void)snprintf(text, sizeof text,
                   "{\"sink\":\"internet_archive\",\"identifier\":\"x-{{OBJECT_ID}}\","
                   "\"credentials_file\":\"%s/keys\"}",
                   link);
    create(k, text, 400, "lies in the data directory");
    (void)snprintf(text, sizeof text,
                   "{\"sink\":\"internet_archive\",\"identifier\":\"x-{{OBJECT_ID}}\","
                   "\"credentials_file\":\"%s-keys\"}",
                   k->dir);
    create(k, text, 201, "-keys\"");
}

/* ---- artifacts ---- */

/* An upload of `size` bytes 'x' of which `written` come. */
static void upload(struct kit *k, uint64_t size, size_t written, const char *checksum,
                   const char *filename, char id[UPLOAD_ID_LEN + 1], struct receipt *receipt)
{
    static struct upload_info info;
    struct upload *u;
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    struct err e = {0};
    char *bytes = malloc((size_t)size);

    assert_non_null(bytes);
    memset(bytes, 'x', (size_t)size);
    memset(&info, 0, sizeof info);
    blake3_start(&h);
    blake3_add(&h, bytes, (size_t)size);
    blake3_end(&h, digest);
    hex_encode(info.checksum, digest, BLAKE3_LEN);
    if (checksum != NULL) {
        memcpy(info.checksum, checksum, BLAKE3_HEX_LEN);
    }
    info.size = size;
    (void)snprintf(info.project, sizeof info.project, "files");
    (void)snprintf(info.filename, sizeof info.filename, "%s", filename);
    assert_int_equal(upload_create(k->manage.uploads, &info, true, &e), 0);
    memcpy(id, info.id, sizeof info.id);
    assert_int_equal(upload_open_new(k->manage.uploads, &info, &u, &e), 0);
    assert_int_equal(upload_write(u, bytes, written, NULL, &e), 0);
    if (written < size) {
        assert_int_equal(upload_sync(u, &e), 0);
    } else {
        assert_int_equal(upload_accept(u, receipt, NULL, &e),
                         checksum != NULL ? ERR_CHECKSUM_MISMATCH : 0);
    }
    upload_close(u);
    free(bytes);
}

static void line_of(const char *id, char line[80])
{
    (void)snprintf(line, 80, "GET /api/v1/artifacts/%s", id);
}

static void test_nothing(void **state)
{
    static const char *const ids[] = {"00112233445566778899aabbccddeeff", "x",
                                      "00112233445566778899AABBCCDDEEFF", "..%2f"};
    struct kit *k = *state;
    char line[80];

    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        line_of(ids[i], line);
        expect(k, "-", line, NULL, 404, "\"error\":\"not_found\"");
    }
    expect(k, "-", "POST /api/v1/artifacts/x", "{}", 405, "Allow: GET, HEAD");
    struct uploads *us = k->manage.uploads;
    k->manage.uploads = NULL; /* a server without the door */
    line_of(ids[0], line);
    expect(k, "-", line, NULL, 404, "\"error\":\"not_found\"");
    k->manage.uploads = us;
}

static void test_partial(void **state)
{
    struct kit *k = *state;
    static struct receipt receipt;
    char id[UPLOAD_ID_LEN + 1];
    char line[80];
    char text[200];
    char path[200];

    upload(k, 100, 40, NULL, "", id, &receipt);
    line_of(id, line);
    (void)snprintf(text, sizeof text,
                   "{\"object_id\":\"%s\",\"accepted\":null,\"upload\":{\"offset\":40,"
                   "\"length\":100,\"expires_at\":\"20",
                   id);
    struct reply r = kit_ask(k, "-", line, NULL);
    expect_status(&r, 200);
    expect_in(&r, text);
    expect_in(&r, "\"project\":\"files\",\"filename\":null,\"delivery\":null,\"local\":"
                  "{\"present\":true,\"size_bytes\":40},\"release\":null,\"archive\":null}");
    reply_free(&r);
    /* Its state is lost: nothing is promised. */
    (void)snprintf(path, sizeof path, "%s/uploads/%s.state", k->dir, id);
    assert_int_equal(truncate(path, 100), 0);
    expect(k, "-", line, NULL, 200, "\"upload\":{\"offset\":0,\"length\":100,");
    assert_int_equal(unlink(path), 0);
    expect(k, "-", line, NULL, 200, "\"upload\":{\"offset\":0,\"length\":100,");
    /* Nor is there an upload that cannot be read. */
    (void)snprintf(path, sizeof path, "%s/uploads/%s.info", k->dir, id);
    assert_int_equal(truncate(path, 5), 0);
    expect(k, "-", line, NULL, 500, "\"error\":\"internal_error\"");
}

static void test_gone(void **state)
{
    struct kit *k = *state;
    static struct receipt receipt;
    char zeros[BLAKE3_HEX_LEN + 1];
    char id[UPLOAD_ID_LEN + 1];
    char line[80];

    memset(zeros, '0', sizeof zeros - 1);
    zeros[sizeof zeros - 1] = '\0';
    upload(k, 10, 10, zeros, "a", id, &receipt);
    line_of(id, line);
    expect(k, "-", line, NULL, 410, "\"error\":\"gone\"");
    expect(k, "-", line, NULL, 410, zeros); /* the reason names both digests */
}

/* ---- and their delivery ---- */

/* Both rows of the package, sealed as pending. */
static void seal(struct delivery_index *ix, const struct receipt *receipt,
                 struct delivery_plan *plan)
{
    static const struct artifact_sink to = {.sink = "directory", .directory = "/srv/files"};
    static struct delivery_artifact a;
    struct err e = {0};

    memset(&a, 0, sizeof a);
    memcpy(a.object_id, receipt->object_id, sizeof a.object_id);
    memcpy(a.checksum, receipt->checksum, sizeof a.checksum);
    (void)snprintf(a.project, sizeof a.project, "files");
    (void)snprintf(a.filename, sizeof a.filename, "a b.txt");
    a.size_bytes = receipt->size_bytes;
    a.accepted_at = receipt->accepted_at;
    assert_int_equal(delivery_index_begin(ix, &e), 0);
    assert_int_equal(delivery_index_add(ix, &a, 1000, &e), 0);
    assert_int_equal(delivery_index_commit(ix, &e), 0);
    assert_int_equal(delivery_plan_begin(plan, &a, &to, &e), 0);
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        struct delivery_digests *d = &plan->file[i].digests;
        memset(d->blake3, 'b', BLAKE3_HEX_LEN);
        memset(d->md5, '0' + (int)i, MD5_HEX_LEN);
        memset(d->sha1, 'a', SHA1_HEX_LEN);
        plan->file[i].size = a.size_bytes + i;
    }
    memcpy(plan->file[0].digests.blake3, a.checksum, BLAKE3_HEX_LEN);
    assert_int_equal(delivery_index_seal(ix, plan, 2, 2000, &e), 0);
}

/* Closed, and then no database any more. */
static void damage_index(const struct kit *k)
{
    static const char *const tails[] = {"-wal", "-shm", ""};
    static const char junk[] = "this is a text and no database, however long one looks at it";
    char path[200];

    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        (void)snprintf(path, sizeof path, "%s/" DELIVERY_FILE "%s", k->dir, tails[i]);
        assert_true(unlink(path) == 0 || errno == ENOENT);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(junk, sizeof junk, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static void test_accepted(void **state)
{
    struct kit *k = *state;
    static struct receipt receipt;
    static struct delivery_plan plan;
    struct delivery_index *ix;
    struct err e = {0};
    bool rebuilt;
    char id[UPLOAD_ID_LEN + 1];
    char line[80];
    char path[200];

    upload(k, 5, 5, NULL, "a b.txt", id, &receipt);
    line_of(id, line);
    struct reply r = kit_ask(k, "-", line, NULL);
    expect_status(&r, 200);
    expect_in(&r, "\"accepted\":{\"at\":\"20");
    expect_in(&r, ".000Z\",\"size_bytes\":5,\"checksum\":\"blake3:");
    expect_in(&r, "\"issuer\":\"http://issuer.example/\\\"<\",\"receipt_id\":\"receipt:");
    expect_in(&r, "},\"upload\":null,\"project\":\"files\",\"filename\":\"a b.txt\","
                  "\"delivery\":null,\"local\":{\"present\":true,\"size_bytes\":5},");
    reply_free(&r);
    assert_int_equal(delivery_index_open(k->dir, &ix, &rebuilt, &e), 0);
    expect(k, "-", line, NULL, 200, "\"delivery\":null,\"local\""); /* not looked at yet */
    seal(ix, &receipt, &plan);
    expect(k, "-", line, NULL, 200,
           "\"delivery\":{\"state\":\"pending\",\"sink\":\"directory\",\"identifier\":\"");
    assert_int_equal(delivery_index_claim(ix, &plan, 3, &e), 0);
    assert_int_equal(delivery_index_retry(ix, &plan, 4, 5000, "the disk is \"full\"", &e), 0);
    expect(k, "-", line, NULL, 200,
           "\"attempts\":1,\"next_attempt_at\":\"1970-01-01T00:00:05.000Z\","
           "\"error\":\"the disk is \\\"full\\\"\",\"files\":[{\"name\":\"a_b.txt\",\"size\":5,"
           "\"md5\":\"00000000000000000000000000000000\"},{\"name\":\"a_b.txt.manifest.jsonl\","
           "\"size\":6,\"md5\":\"11111111111111111111111111111111\"}],"
           "\"package\":{\"state\":\"sealed\",\"package_id\":\"");
    expect(k, "-", line, NULL, 200,
           ",\"packager\":\"identity\",\"members\":1,\"offset\":0,\"size\":5}},\"local\"");
    assert_int_equal(delivery_index_claim(ix, &plan, 6, &e), 0);
    assert_int_equal(delivery_index_park(ix, &plan, 7, "another file", "move it", &e), 0);
    expect(k, "-", line, NULL, 200, "\"error\":\"another file\",\"way_out\":\"move it\"");
    assert_int_equal(delivery_index_restart(ix, 8, &e), 0);
    assert_int_equal(delivery_index_claim(ix, &plan, 9, &e), 0);
    assert_int_equal(delivery_index_sent(ix, &plan, 10, &e), 0);
    assert_int_equal(delivery_index_verified(ix, &plan, 11, &e), 0);
    expect(k, "-", line, NULL, 200, "{\"state\":\"verified\"");
    expect(k, "-", line, NULL, 200,
           "\"sent_at\":\"1970-01-01T00:00:10.000Z\",\"verified_at\":\"1970-01-01T00:00:11.000Z\"");
    delivery_index_close(ix);
    /* What is gone here is told as gone, each by itself. */
    (void)snprintf(path, sizeof path, "%s/uploads/%s", k->dir, id);
    assert_int_equal(unlink(path), 0);
    expect(k, "-", line, NULL, 200, "\"local\":{\"present\":false,\"size_bytes\":0}");
    (void)snprintf(path, sizeof path, "%s/uploads/%s.info", k->dir, id);
    assert_int_equal(unlink(path), 0);
    expect(k, "-", line, NULL, 200,
           "\"project\":\"files\",\"filename\":\"a b.txt\",\"delivery\":{\"state\"");
    damage_index(k);
    r = kit_ask(k, "-", line, NULL);
    expect_status(&r, 200);
    expect_in(&r, "\"delivery\":null,\"delivery_error\":\"delivery.sqlite cannot be read now\"");
    reply_free(&r);
    (void)snprintf(path, sizeof path, "%s/receipts/%s.json", k->dir, id);
    assert_int_equal(truncate(path, 10), 0);
    expect(k, "-", line, NULL, 500, "\"error\":\"internal_error\"");
}

/* Pages may ask. */
static void test_cors(void **state)
{
    struct kit *k = *state;
    struct reply r;
    int fd = kit_connect(k, true);
    static const char text[] = "GET /api/v1/artifacts/x HTTP/1.1\r\nHost: files.example\r\n"
                               "Origin: https://page.example\r\nConnection: close\r\n\r\n";

    assert_int_equal(send(fd, text, sizeof text - 1, MSG_NOSIGNAL), sizeof text - 1);
    r = kit_receive(fd);
    expect_status(&r, 404);
    expect_in(&r, "Access-Control-Allow-Origin: https://page.example\r\n");
    reply_free(&r);
}

/* A disk that cannot be read fails the request, and the next one is as before. */
static void test_faults(void **state)
{
    static const char *const paths[] = {".info", ".state", ".json", "uploads/"};
    struct kit *k = *state;
    static struct receipt receipt;
    char id[UPLOAD_ID_LEN + 1];
    char line[80];

    upload(k, 100, 40, NULL, "", id, &receipt);
    line_of(id, line);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        faults_count_only(i == 3 ? OS_CALL_stat : OS_CALL_open, paths[i]);
        faults_reset();
        faults_arm(1, EIO, true, FAULT_ERROR);
        struct reply r = kit_ask(k, "-", line, NULL);
        uint64_t fired = faults_fired();
        faults_reset();
        assert_true(fired > 0);
        expect_status(&r, 500);
        reply_free(&r);
        expect(k, "-", line, NULL, 200, "\"offset\":40");
    }
}

/* ---- status ---- */

static void door_state(void *ctx, struct manage_artifacts *out)
{
    *out = *(const struct manage_artifacts *)ctx;
}

#define TOLD_AT INT64_C(1795996800) /* 2026-11-30 */

static void tell_activity(struct delivery_index *ix, const struct delivery_plan *plan)
{
    const struct delivery_running running = {.package_id = "p",
                                             .project = "demo",
                                             .task = DELIVERY_SEND,
                                             .sink = "s",
                                             .identifier = "i",
                                             .begun_at = TOLD_AT,
                                             .bytes = 7,
                                             .size_bytes = 9,
                                             .bytes_per_s = 3,
                                             .file = "<f>",
                                             .stuck = true};
    struct err e = {0};
    bool usable = false;

    delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, plan, (TOLD_AT + 60) * 1000, "no \"mount\"");
    assert_int_equal(delivery_index_show(ix, &running, 1, TOLD_AT + 5, &usable, &e), 0);
    assert_true(usable);
}

/* Another try is a file for the deliverer, which is there when it was answered. */
static void test_retry(void **state)
{
    static struct receipt receipt;
    struct kit *k = *state;
    char id[UPLOAD_ID_LEN + 1], partial[UPLOAD_ID_LEN + 1], line[120], path[200];
    char token[KEY_TEXT_MAX + 1], reader[KEY_TEXT_MAX + 1], admin[KEY_TEXT_MAX + 1], key[24];
    struct os_stat st;

    kit_project(k, "demo", token);
    kit_key(k, "demo", "\"query:read\"", reader, key);
    kit_key(k, "demo", "\"projects:admin\"", admin, key);
    upload(k, 5, 5, NULL, "a", id, &receipt);
    upload(k, 5, 3, NULL, "a", partial, NULL);
    snprintf(line, sizeof line, "POST /api/v1/artifacts/%s/retry", id);
    snprintf(path, sizeof path, "%s/requests/%s.retry", k->dir, id);
    expect(k, "-", line, "{}", 401, "");
    expect(k, reader, line, "{}", 403, "");
    expect(k, "", line, "{\"now\":1}", 400, "unknown member");
    assert_int_not_equal(os_stat(path, &st), 0);
    for (unsigned i = 0; i < 2; i++) {
        expect(k, i == 0 ? "" : admin, line, "{}", 202, "\"asked_for\":\"retry\"");
        assert_int_equal(os_stat(path, &st), 0);
    }
    snprintf(line, sizeof line, "POST /api/v1/artifacts/%s/retry", partial);
    expect(k, "", line, "{}", 409, "\"not_accepted\"");
    snprintf(line, sizeof line, "POST /api/v1/artifacts/%032d/retry", 0);
    expect(k, "", line, "{}", 404, "\"not_found\"");
    expect(k, "", "POST /api/v1/artifacts/..%2fpaused/retry", "{}", 404, "\"not_found\"");
    /* Bounded: so many wait already. */
    for (unsigned i = 0; i < REQUESTS_MAX; i++) {
        snprintf(path, sizeof path, "%s/requests/%032x.retry", k->dir, i);
        int fd = os_open(path, O_WRONLY | O_CREAT, 0600);
        assert_true(fd >= 0);
        (void)os_close(fd);
    }
    upload(k, 6, 6, NULL, "a", id, &receipt);
    snprintf(line, sizeof line, "POST /api/v1/artifacts/%s/retry", id);
    expect(k, "", line, "{}", 429, "too many requests wait");
}

static void door_partials(void *ctx, struct buf *out)
{
    assert_int_equal(((struct manage_artifacts *)ctx)->partial_uploads, 9);
    buf_put_cstr(out, ",\"x\":[]");
}

static void test_status(void **state)
{
    static struct manage_artifacts door = {.writers = 2,
                                           .partial_uploads = 9,
                                           .reserved_bytes = 77,
                                           .scanned_ms = TOLD_AT * 1000,
                                           .low_space = true,
                                           .deliver_state = "running",
                                           .deliver_restarts = 3,
                                           .deliver_detail = "last end: \"signal 9\""};
    static struct receipt receipt;
    static struct delivery_plan plan;
    struct kit *k = *state;
    struct delivery_index *ix;
    struct err e = {0};
    bool rebuilt;
    char id[UPLOAD_ID_LEN + 1];

    struct reply r = kit_ask(k, "", "GET /api/v1/status", NULL);
    expect_not_in(&r, "\"artifacts\"");
    reply_free(&r);
    k->manage.artifact_status = door_state;
    k->manage.artifact_partials = door_partials;
    k->manage.artifact_ctx = &door;
    expect(k, "", "GET /api/v1/status", NULL, 200,
           "\"artifacts\":{\"writers\":2,\"partial_uploads\":null,\"partial_bytes\":null,"
           "\"scanned_at\":null,\"reserved_bytes\":77,\"low_space\":true,\"deliver\":{\"state\":"
           "\"running\",\"restarts\":3,"
           "\"detail\":\"last end: \\\"signal 9\\\"\"},\"delivery\":{\"artifacts\":0,\"pending\":0,"
           "\"sending\":0,\"sent\":0,\"verified\":0,\"retry_wait\":0,\"parked\":0,\"late\":0,"
           "\"error\":\"\",\"running\":[],\"holds\":[]}},"
           "\"http\":");
    door.scanned = true;
    door.partial_bytes = 99;
    upload(k, 5, 5, NULL, "a", id, &receipt);
    assert_int_equal(delivery_index_open(k->dir, &ix, &rebuilt, &e), 0);
    seal(ix, &receipt, &plan);
    assert_int_equal(delivery_index_claim(ix, &plan, 3, &e), 0);
    assert_int_equal(delivery_index_retry(ix, &plan, 4, 5000, "no such mount", &e), 0);
    expect(k, "", "GET /api/v1/status", NULL, 200,
           "\"partial_uploads\":9,\"partial_bytes\":99,\"x\":[],"
           "\"scanned_at\":\"2026-11-30T00:00:00.000Z\",");
    expect(k, "", "GET /api/v1/status", NULL, 200,
           "\"delivery\":{\"artifacts\":1,\"pending\":0,\"sending\":0,\"sent\":0,\"verified\":0,"
           "\"retry_wait\":1,\"parked\":0,\"late\":0,\"error\":\"no such mount\",");
    tell_activity(ix, &plan);
    expect(
        k, "", "GET /api/v1/status", NULL, 200,
        "\"running\":[{\"package_id\":\"p\",\"project\":\"demo\",\"task\":\"send\",\"sink\":\"s\","
        "\"identifier\":\"i\",\"begun_at\":\"2026-11-30T00:00:00.000Z\",\"bytes\":7,"
        "\"size_bytes\":9,\"bytes_per_s\":3,\"file\":\"<f>\",\"stuck\":true,"
        "\"updated_at\":\"2026-11-30T00:00:05.000Z\"}],\"holds\":[{\"scope\":\"project\","
        "\"sink\":\"\",\"key\":\"files\",\"until\":\"2026-11-30T00:01:00.000Z\","
        "\"text\":\"no \\\"mount\\\"\"}],\"packages\":{\"building\":0,\"waiting\":0,");
    expect(k, "", "GET /api/v1/status", NULL, 200,
           "\"projects\":[{\"project\":\"files\",\"retry_wait\":{\"count\":1,\"bytes\":5}}],"
           "\"projects_left_out\":0,\"packaging\":[]}},");
    delivery_index_close(ix);
    damage_index(k);
    r = kit_ask(k, "", "GET /api/v1/status", NULL);
    expect_status(&r, 200);
    expect_in(&r, "\"delivery\":{\"error\":\"");
    expect_not_in(&r, "\"retry_wait\"");
    reply_free(&r);
    expect(k, "-", "GET /api/v1/status", NULL, 401, "");
    k->manage.artifact_status = NULL;
}

#define test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_projects),
        test(test_bad_artifacts),
        test(test_deep_directory),
        test(test_change),
        test(test_credentials_outside),
        test(test_nothing),
        test(test_partial),
        test(test_gone),
        test(test_accepted),
        test(test_cors),
        cmocka_unit_test_setup_teardown(test_faults, setup_faults, teardown_faults),
        test(test_retry),
        test(test_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
