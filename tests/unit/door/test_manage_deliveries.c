/* test_manage_deliveries: pages of deliveries and questions about many artifacts, over a real
 * server with real files: who may ask, what is refused, what is told. */
#include "store/artifact/delivery_index.h"
#include "store/artifact/upload.h"
#include "tests/unit/door/manage_kit.h"

#define LIST  "GET /api/v1/deliveries"
#define QUERY "POST /api/v1/artifacts/query"

static int setup(void **state)
{
    struct kit *k = calloc(1, sizeof *k);
    struct err e = {0};

    assert_non_null(k);
    kit_start(k);
    struct uploads_options options = {.data = k->dir, .issuer = "http://issuer.example"};
    assert_int_equal(uploads_open(&options, &k->manage.uploads, &e), 0);
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

/* Five bytes, accepted, in a package. */
static void accepted(struct kit *k, struct delivery_index *ix, int64_t now,
                     struct delivery_artifact *a)
{
    static struct upload_info info;
    static struct receipt receipt;
    struct upload *u;
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    struct err e = {0};

    memset(&info, 0, sizeof info);
    blake3_start(&h);
    blake3_add(&h, "hello", 5);
    blake3_end(&h, digest);
    hex_encode(info.checksum, digest, BLAKE3_LEN);
    info.size = 5;
    (void)snprintf(info.project, sizeof info.project, "files");
    (void)snprintf(info.filename, sizeof info.filename, "a \"b\"");
    assert_int_equal(upload_create(k->manage.uploads, &info, true, &e), 0);
    assert_int_equal(upload_open_new(k->manage.uploads, &info, &u, &e), 0);
    assert_int_equal(upload_write(u, "hello", 5, NULL, &e), 0);
    assert_int_equal(upload_accept(u, &receipt, NULL, &e), 0);
    upload_close(u);
    *a = (struct delivery_artifact){.size_bytes = 5, .accepted_at = receipt.accepted_at};
    memcpy(a->object_id, info.id, sizeof a->object_id);
    memcpy(a->checksum, receipt.checksum, sizeof a->checksum);
    (void)snprintf(a->project, sizeof a->project, "files");
    (void)snprintf(a->filename, sizeof a->filename, "%s", info.filename);
    assert_int_equal(delivery_index_begin(ix, &e), 0);
    assert_int_equal(delivery_index_add(ix, a, now * 1000, &e), 0);
    assert_int_equal(delivery_index_commit(ix, &e), 0);
}

static void verified(struct delivery_index *ix, const struct delivery_artifact *a, int64_t now)
{
    static const struct artifact_sink to = {
        .sink = "directory", .directory = "/srv/files", .retention_ms = 5000};
    static struct delivery_plan plan;
    struct err e = {0};

    assert_int_equal(delivery_plan_begin(&plan, a, &to, &e), 0);
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        struct delivery_digests *d = &plan.file[i].digests;
        memset(d->blake3, 'b', BLAKE3_HEX_LEN);
        memset(d->md5, '0' + (int)i, MD5_HEX_LEN);
        memset(d->sha1, 'a', SHA1_HEX_LEN);
        plan.file[i].size = a->size_bytes + i;
    }
    memcpy(plan.file[0].digests.blake3, a->checksum, BLAKE3_HEX_LEN);
    assert_int_equal(delivery_index_seal(ix, &plan, now, now * 1000, &e), 0);
    assert_int_equal(delivery_index_claim(ix, &plan, now, &e), 0);
    assert_int_equal(delivery_index_verified(ix, &plan, now, &e), 0);
}

static struct delivery_index *index_of(struct kit *k)
{
    struct delivery_index *ix;
    struct err e = {0};
    bool rebuilt;

    assert_int_equal(delivery_index_open(k->dir, &ix, &rebuilt, &e), 0);
    return ix;
}

static void test_list(void **state)
{
    struct kit *k = *state;
    struct delivery_artifact a, b;
    char text[300];

    expect(k, "", LIST, NULL, 200, "{\"deliveries\":[],\"next_after\":null,\"more\":false}");
    struct delivery_index *ix = index_of(k);
    accepted(k, ix, 100, &a);
    accepted(k, ix, 101, &b);
    verified(ix, &b, 200);
    delivery_index_close(ix);
    struct reply r = kit_ask(k, "", LIST "?limit=1", NULL);
    expect_status(&r, 200);
    (void)snprintf(text, sizeof text, "{\"deliveries\":[{\"object_id\":\"%s\",\"package_id\":\"",
                   a.object_id);
    expect_in(&r, text);
    expect_in(&r,
              "\"project\":\"files\",\"filename\":\"a \\\"b\\\"\",\"size_bytes\":5,\"checksum\":"
              "\"blake3:");
    expect_in(&r, "\"state\":\"pending\",\"attempts\":0,\"files\":[],\"package\":{\"packager\":"
                  "\"identity\",\"state\":\"building\",\"member_count\":1,\"build_attempts\":0,"
                  "\"created_at\":\"1970-01-01T00:01:40.000Z\",");
    expect_in(&r, "\"next_after\":\"p-100-");
    expect_in(&r, "\"more\":true}");
    reply_free(&r);
    r = kit_ask(k, "", LIST "?state=verified&project=files", NULL);
    expect_status(&r, 200);
    expect_in(&r, b.object_id);
    expect_not_in(&r, a.object_id);
    expect_in(&r, "\"sink\":\"directory\",\"identifier\":\"");
    expect_in(&r, "\"files\":[{\"name\":\"a__b_\",\"size\":5,\"md5\":\"0000");
    expect_in(&r, "\"verified_at\":\"1970-01-01T00:03:20.000Z\","
                  "\"purge_after\":\"1970-01-01T00:03:26.000Z\"");
    expect_in(&r, "\"manifest_filename\":\"a__b_.manifest.jsonl\"}");
    expect_in(&r, "\"next_after\":\"v-");
    expect_in(&r, "-1\",\"more\":false}");
    reply_free(&r);
    expect(k, "", LIST "?state=verified&after=v-0000000000000000-7", NULL, 200,
           "\"restarted\":true");
    expect(k, "", LIST "?project=none", NULL, 200, "{\"deliveries\":[],");
}

static void test_refused(void **state)
{
    static const struct {
        const char *query, *text;
    } table[] = {{"?limit=0", "limit must be"},       {"?limit=1001", "limit must be"},
                 {"?limit=x", "limit must be"},       {"?state=lost", "state: there are pending"},
                 {"?state=", "state: there are"},     {"?after=7", "no cursor of this list"},
                 {"?after=v-1", "no cursor"},         {"?x=1", "unknown query parameter"},
                 {"?limit=1&limit=2", "given twice"}, {"?limit=%zz", "malformed"}};
    struct kit *k = *state;
    char line[100], token[KEY_TEXT_MAX + 1], key[24];
    char plain[KEY_TEXT_MAX + 1], reader[KEY_TEXT_MAX + 1], admin[KEY_TEXT_MAX + 1];

    delivery_index_close(index_of(k));
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        (void)snprintf(line, sizeof line, LIST "%s", table[i].query);
        expect(k, "", line, NULL, 400, table[i].text);
    }
    kit_project(k, "demo", token);
    kit_key(k, "demo", "\"query:read\"", plain, key);
    kit_key(k, "demo", "\"artifacts:read\"", reader, key);
    kit_key(k, "demo", "\"projects:admin\"", admin, key);
    expect(k, "-", LIST, NULL, 401, "");
    expect(k, plain, LIST, NULL, 403, "");
    expect(k, reader, LIST, NULL, 200, "\"deliveries\":[]");
    expect(k, admin, LIST, NULL, 200, "\"deliveries\":[]");
    expect(k, "-", QUERY, "{\"object_ids\":[]}", 401, "");
    expect(k, plain, QUERY, "{\"object_ids\":[]}", 403, "");
    expect(k, reader, QUERY, "{\"object_ids\":[]}", 200, "{\"artifacts\":[],\"not_read\":[]}");
    expect(k, "", QUERY, "{}", 400, "object_ids is missing");
    expect(k, "", QUERY, "{\"object_ids\":\"x\"}", 400, "object_ids must be an array");
    expect(k, "", QUERY, "{\"object_ids\":[1]}", 400, "an array of strings");
    expect(k, "", QUERY, "{\"object_ids\":[],\"x\":1}", 400, "unknown member");
    static char many[8000] = "{\"object_ids\":[\"\"";
    for (unsigned i = 0; i < 999; i++) {
        strcat(many, ",\"\"");
    }
    size_t n = strlen(many);
    (void)snprintf(many + n, sizeof many - n, "]}");
    expect(k, "", QUERY, many, 200, "\"not_read\":[]}");
    (void)snprintf(many + n, sizeof many - n, ",\"\"]}");
    expect(k, "", QUERY, many, 400, "at most 1000");
}

static void test_query(void **state)
{
    struct kit *k = *state;
    struct delivery_artifact a, b;
    char body[300], text[300], path[200];
    struct delivery_index *ix = index_of(k);

    accepted(k, ix, 100, &a);
    accepted(k, ix, 101, &b);
    verified(ix, &b, 200);
    delivery_index_close(ix);
    (void)snprintf(body, sizeof body,
                   "{\"object_ids\":[\"%s\",\"00112233445566778899aabbccddeeff\",\"%s\",\"\\\"\"]}",
                   b.object_id, a.object_id);
    struct reply r = kit_ask(k, "", QUERY, body);
    expect_status(&r, 200);
    (void)snprintf(text, sizeof text, "{\"artifacts\":[{\"object_id\":\"%s\",\"accepted\":{",
                   b.object_id);
    expect_in(&r, text);
    expect_in(&r, "\"delivery\":{\"state\":\"verified\",");
    (void)snprintf(text, sizeof text,
                   "\"archive\":null},{\"object_id\":\"00112233445566778899aabbccddeeff\","
                   "\"error\":\"not_found\",\"message\":\"there is no such artifact\"},"
                   "{\"object_id\":\"%s\",\"accepted\":{",
                   a.object_id);
    expect_in(&r, text);
    expect_in(&r, "{\"object_id\":\"\\\"\",\"error\":\"not_found\",");
    expect_in(&r, "}],\"not_read\":[]}");
    reply_free(&r);
    /* One that cannot be read hides no other. */
    (void)snprintf(path, sizeof path, "%s/receipts/%s.json", k->dir, b.object_id);
    assert_int_equal(truncate(path, 10), 0);
    r = kit_ask(k, "", QUERY, body);
    expect_status(&r, 200);
    (void)snprintf(text, sizeof text, "{\"object_id\":\"%s\",\"error\":\"internal_error\",",
                   b.object_id);
    expect_in(&r, text);
    (void)snprintf(text, sizeof text, "{\"object_id\":\"%s\",\"accepted\":{", a.object_id);
    expect_in(&r, text);
    reply_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_query, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
