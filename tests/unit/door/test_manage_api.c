/* test_manage_api: who may ask what under /api/v1/, projects and keys, over a real server with a
 * real store. */
#include "tests/unit/door/manage_kit.h"

static int setup(void **state)
{
    struct kit *k = calloc(1, sizeof *k);

    assert_non_null(k);
    kit_start(k);
    kit_run(k);
    *state = k;
    return 0;
}

static int teardown(void **state)
{
    kit_stop(*state);
    free(*state);
    return 0;
}

#define P "/api/v1/projects"

static void test_projects(void **state)
{
    struct kit *k = *state;
    struct reply r = kit_ask(k, "", "GET " P, NULL);
    char token[KEY_TEXT_MAX + 1];
    char again[KEY_TEXT_MAX + 1];

    expect_status(&r, 200);
    assert_true(slice_eq(r.body, SLICE("{\"projects\":[]}")));
    reply_free(&r);
    r = kit_ask(k, "", "POST " P, "{\"name\":\"D\\u00e9mo \\\"1\\\"\",\"id\":\"demo\"}");
    expect_status(&r, 201);
    expect_in(&r, "{\"id\":\"demo\",\"name\":\"D\xc3\xa9mo \\\"1\\\"\",\"created_at\":\"20");
    reply_text(&r, "capture_token", token, sizeof token);
    assert_memory_equal(token, "tmc_", 4);
    reply_free(&r);
    expect(k, "", "POST " P, "{\"id\":\"demo\"}", 409, "\"error\":\"project_exists\"");
    kit_project(k, "other", again);
    assert_string_not_equal(token, again);
    r = kit_ask(k, "", "GET " P, NULL);
    expect_in(&r, "{\"projects\":[{\"id\":\"demo\",");
    expect_in(&r, "},{\"id\":\"other\",\"name\":\"other\",");
    reply_free(&r);
    r = kit_ask(k, "", "GET " P "/demo", NULL);
    expect_status(&r, 200);
    expect_in(&r, token);
    expect_in(&r, "\"keys\":[{\"id\":\"");
    expect_in(&r, "\"kind\":\"capture\",\"name\":\"default\",\"scopes\":[],\"created_at\":\"20");
    expect_in(&r, "\"revoked_at\":null,\"token\":\"tmc_");
    expect_in(&r, "\"delivery\":{\"enabled\":false,\"pending\":0,");
    expect_not_in(&r, again);
    reply_free(&r);
    expect(k, "", "GET " P "/nothing", NULL, 404, "\"error\":\"not_found\"");
    expect(k, "", "GET " P "/demo/", NULL, 404, "\"error\":\"not_found\"");
    expect(k, "", "DELETE " P "/demo", NULL, 405, "Allow: GET, HEAD, PATCH\r\n");
}

static void test_bad_bodies(void **state)
{
    static const struct {
        const char *body;
        unsigned status;
        const char *text;
    } table[] = {
        {"", 400, "the body is not acceptable JSON"},
        {"[]", 400, "the body must be a JSON object"},
        {"{", 400, "at byte 1"},
        {"{}", 400, "id is missing"},
        {"{\"id\":1}", 400, "id must be a string"},
        {"{\"id\":\"a\",\"id\":\"b\"}", 400, "the body is not acceptable JSON"},
        {"{\"id\":\"a\",\"extra\":1}", 400, "unknown member \\\"extra\\\""},
        {"{\"id\":\"a\",\"name\":null}", 400, "name must be a string"},
        {"{\"id\":\"\\ud800\"}", 400, "\"error\":\"invalid_request\""},
        {"{\"id\":\"\"}", 400, "\"error\":\"invalid_project\""},
        {"{\"id\":\"A\"}", 400, "\"error\":\"invalid_project\""},
        {"{\"id\":\"-a\"}", 400, "\"error\":\"invalid_project\""},
        {"{\"id\":\"a/b\"}", 400, "\"error\":\"invalid_project\""},
        {"{\"id\":\"a\",\"name\":\"x\\u0000y\"}", 400, "\"error\":\"invalid_project\""},
    };
    struct kit *k = *state;
    struct buf large = {0};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        expect(k, "", "POST " P, table[i].body, table[i].status, table[i].text);
    }
    buf_put_cstr(&large, "{\"id\":\"");
    for (size_t i = 0; i < 65536; i++) {
        buf_put_char(&large, 'a');
    }
    buf_put_cstr(&large, "\"}");
    buf_put_char(&large, '\0');
    expect(k, "", "POST " P, large.ptr, 413, "\"error\":\"body_too_large\"");
    buf_free(&large);
    expect(k, "", "POST " P "?a=b", "{\"id\":\"a\"}", 400, "takes no query parameters");
    expect(k, "", "GET " P, NULL, 200, "{\"projects\":[]}"); /* nothing of all this was stored */
}

/* Heads that only a raw request can have. */
static void test_heads(void **state)
{
    static const struct {
        const char *fields;
        unsigned status;
    } table[] = {
        {"Content-Type: application/x-www-form-urlencoded\r\n", 415},
        {"Content-Type: application/json\r\nContent-Type: application/json\r\n", 415},
        {"Content-Type: application/json; charset=latin1\r\n", 415},
        {"Content-Type: application/jsonp\r\n", 415},
        {"Content-Type: application/jso\r\n", 415},
        {"Content-Encoding: gzip\r\n", 415},
        {"Content-Type:  Application/JSON ; charset=UTF-8 \r\n", 201},
        {"", 409},
    };
    struct kit *k = *state;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[512];
        struct reply r;
        int fd = kit_connect(k, false);

        (void)snprintf(text, sizeof text,
                       "POST " P " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s"
                       "Content-Length: 10\r\n\r\n{\"id\":\"a\"}",
                       table[i].fields);
        assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
        r = kit_receive(fd);
        expect_status(&r, table[i].status);
        reply_free(&r);
    }
}

static void test_keys(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    char service[KEY_TEXT_MAX + 1];
    char id[24];
    char line[128];
    struct reply r;

    kit_project(k, "demo", token);
    r = kit_ask(k, "", "POST " P "/demo/keys", "{\"kind\":\"segment\",\"name\":\"web\"}");
    expect_status(&r, 201);
    expect_in(&r, "\"kind\":\"segment\",\"name\":\"web\",\"scopes\":[],");
    reply_text(&r, "token", token, sizeof token);
    reply_free(&r);
    expect(k, "", "POST " P "/demo/keys", "{\"kind\":\"capture\"}", 201, "\"name\":\"default\"");
    r = kit_ask(
        k, "", "POST " P "/demo/keys",
        "{\"kind\":\"service\",\"name\":\"s\",\"scopes\":[\"query:read\",\"events:read\"]}");
    expect_status(&r, 201);
    expect_in(&r, "\"scopes\":[\"events:read\",\"query:read\"]");
    reply_text(&r, "token", service, sizeof service);
    reply_text(&r, "id", id, sizeof id);
    assert_memory_equal(service, "tms_", 4);
    reply_free(&r);
    r = kit_ask(k, "", "GET " P "/demo/keys", NULL);
    expect_status(&r, 200);
    expect_in(&r, token);
    expect_in(&r, "\"kind\":\"service\"");
    expect_not_in(&r, service);
    expect_not_in(&r, "tms_");
    reply_free(&r);
    expect(k, service, "GET " P "/demo/status", NULL, 200, "\"project\":\"demo\"");
    (void)snprintf(line, sizeof line, "DELETE " P "/demo/keys/%s", id);
    expect(k, "", line, NULL, 204, "HTTP/1.1 204 No Content\r\n");
    expect(k, service, "GET " P "/demo/status", NULL, 401, "WWW-Authenticate: Bearer\r\n");
    expect(k, "", line, NULL, 204, ""); /* twice is fine */
    expect(k, "", "DELETE " P "/demo/keys/99", NULL, 404, "\"error\":\"not_found\"");
    expect(k, "", "DELETE " P "/demo/keys/0", NULL, 404, "there is no such key");
    expect(k, "", "DELETE " P "/demo/keys/x", NULL, 404, "there is no such key");
    expect(k, "", "DELETE " P "/none/keys/1", NULL, 404, "there is no such project");
    r = kit_ask(k, "", "GET " P "/demo/keys", NULL);
    expect_in(&r, "\"revoked_at\":\"20");
    reply_free(&r);
}

static void test_bad_keys(void **state)
{
    static const struct {
        const char *body;
        const char *text;
    } table[] = {
        {"{\"name\":\"x\"}", "kind is missing"},
        {"{\"kind\":\"admin\",\"name\":\"x\"}", "kind must be capture, segment or service"},
        {"{\"kind\":\"segment\"}", "name is missing"},
        {"{\"kind\":\"service\",\"scopes\":[\"query:read\"]}", "name is missing"},
        {"{\"kind\":\"service\",\"name\":\"x\"}", "a service key needs scopes"},
        {"{\"kind\":\"service\",\"name\":\"x\",\"scopes\":[]}", "a service key needs scopes"},
        {"{\"kind\":\"service\",\"name\":\"x\",\"scopes\":[\"all\"]}", "\"error\":\"invalid_key\""},
        {"{\"kind\":\"service\",\"name\":\"x\",\"scopes\":[1]}", "scopes must hold strings"},
        {"{\"kind\":\"service\",\"name\":\"x\",\"scopes\":\"query:read\"}",
         "scopes must be an array"},
        {"{\"kind\":\"capture\",\"scopes\":[\"query:read\"]}", "only service keys have scopes"},
        {"{\"kind\":\"segment\",\"name\":\"a b\"}", "\"error\":\"invalid_key\""},
    };
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    char id[24] = "";
    char line[128];
    struct reply r;
    const char *at;

    kit_project(k, "demo", token);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        expect(k, "", "POST " P "/demo/keys", table[i].body, 400, table[i].text);
    }
    /* the last capture key stays */
    r = kit_ask(k, "", "GET " P "/demo/keys", NULL);
    at = strstr(r.text.ptr, "{\"id\":\"");
    assert_non_null(at);
    (void)snprintf(id, sizeof id, "%.*s", (int)strcspn(at + 7, "\""), at + 7);
    reply_free(&r);
    (void)snprintf(line, sizeof line, "DELETE " P "/demo/keys/%s", id);
    expect(k, "", line, NULL, 400, "\"error\":\"invalid_key\"");
}

/* ---- who may ---- */

struct row {
    const char *line;
    const char *body;
    unsigned reader, query, writer, admin; /* status with these scopes in the key of "demo" */
    unsigned other;                        /* the same path of "other", with all the scopes */
};

static void replace(char *out, size_t size, const char *line, const char *project)
{
    const char *at = strstr(line, "demo");

    if (at == NULL) {
        (void)snprintf(out, size, "%s", line);
    } else {
        (void)snprintf(out, size, "%.*s%s%s", (int)(at - line), line, project, at + 4);
    }
}

static void test_scopes(void **state)
{
#define KEY  "{\"kind\":\"segment\",\"name\":\"n\"}"
#define SQL  "{\"sql\":\"select 1\"}"
#define MAKE "{\"id\":\"demo\"}"
    static const struct row table[] = {
        {"GET " P, NULL, 200, 200, 200, 200, 200},
        {"POST " P, MAKE, 403, 403, 403, 409, 409},
        {"GET " P "/demo", NULL, 403, 403, 403, 200, 403},
        {"PATCH " P "/demo", "{\"artifacts\":{}}", 403, 403, 403, 400, 403},
        {"GET " P "/demo/keys", NULL, 403, 403, 403, 200, 403},
        {"POST " P "/demo/keys", KEY, 403, 403, 403, 201, 403},
        {"DELETE " P "/demo/keys/99", NULL, 403, 403, 403, 404, 403},
        {"GET " P "/demo/status", NULL, 200, 200, 403, 403, 403},
        {"GET " P "/demo/rejected", NULL, 200, 403, 403, 403, 403},
        {"POST " P "/demo/query", SQL, 403, 503, 403, 403, 403},
        {"GET /api/v1/status", NULL, 403, 403, 403, 200, 200},
    };
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    char id[24];
    char key[5][KEY_TEXT_MAX + 1];

    kit_project(k, "demo", token);
    kit_project(k, "other", token);
    kit_key(k, "demo", "\"events:read\"", key[0], id);
    kit_key(k, "demo", "\"query:read\"", key[1], id);
    kit_key(k, "demo", "\"events:write\"", key[2], id);
    kit_key(k, "demo", "\"projects:admin\"", key[3], id);
    kit_key(k, "demo", "\"projects:admin\",\"query:read\",\"events:read\",\"events:write\"", key[4],
            id);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct row *t = &table[i];
        const unsigned wanted[] = {t->reader, t->query, t->writer, t->admin};
        char line[128];

        for (size_t c = 0; c < 4; c++) {
            expect(k, key[c], t->line, t->body, wanted[c], "");
        }
        /* a project of others, and one that does not exist, look the same */
        replace(line, sizeof line, t->line, "other");
        expect(k, key[4], line, t->body, t->other, "");
        replace(line, sizeof line, t->line, "nothing");
        expect(k, key[4], line, t->body, t->other, "");
        /* no key, no such key, a public key */
        expect(k, "-", t->line, t->body, 401, "\"error\":\"unauthorized\"");
        expect(k, "tms_0123456789012345678901234567890123456789", t->line, t->body, 401, "Bearer");
        expect(k, token, t->line, t->body, 401, "\"error\":\"unauthorized\"");
    }
}

static void test_lists_only_its_own(void **state)
{
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];
    char id[24];
    char reader[KEY_TEXT_MAX + 1];
    char admin[KEY_TEXT_MAX + 1];
    struct reply r;

    kit_project(k, "a", token);
    kit_project(k, "b", token);
    kit_key(k, "b", "\"events:read\"", reader, id);
    kit_key(k, "b", "\"projects:admin\"", admin, id);
    r = kit_ask(k, reader, "GET " P, NULL);
    expect_in(&r, "{\"projects\":[{\"id\":\"b\",");
    expect_not_in(&r, "\"id\":\"a\"");
    reply_free(&r);
    expect(k, admin, "GET " P, NULL, 200, "{\"projects\":[{\"id\":\"a\",");
}

/* Refused before the body is read: the connection ends, the body is no request. */
static void test_strangers_send_no_bodies(void **state)
{
    struct kit *k = *state;
    struct reply r = kit_ask(k, "-", "POST " P,
                             "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n{\"id\":\"x\"}");

    expect_status(&r, 401);
    expect_in(&r, "Connection: close\r\n");
    expect_not_in(&r, "alive");
    reply_free(&r);
    expect(k, "", "GET " P, NULL, 200, "{\"projects\":[]}");
}

/* The key is looked at again when the body is there: it may have been revoked meanwhile. */
static void test_a_key_revoked_in_between(void **state)
{
    static const char *const paths[] = {P, P "/demo/keys", P "/demo/query"};
    struct kit *k = *state;
    char token[KEY_TEXT_MAX + 1];

    kit_project(k, "demo", token);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char key[KEY_TEXT_MAX + 1];
        char id[24];
        char text[512];
        struct reply r;
        int fd = kit_connect(k, true);

        kit_key(k, "demo", "\"projects:admin\",\"query:read\"", key, id);
        (void)snprintf(text, sizeof text,
                       "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"
                       "Connection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
                       paths[i], key);
        assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
        assert_int_equal(recv(fd, text, 25, MSG_WAITALL), 25); /* the head was good */
        assert_memory_equal(text, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        (void)snprintf(text, sizeof text, "DELETE " P "/demo/keys/%s", id);
        expect(k, "", text, NULL, 204, "");
        assert_int_equal(send(fd, "{}", 2, MSG_NOSIGNAL), 2);
        r = kit_receive(fd);
        expect_status(&r, 401);
        reply_free(&r);
    }
}

/* A server without a queue has no projects, and says so. */
static void test_no_store(void **state)
{
    struct kit *k = *state;

    k->manage.store = NULL;
    expect(k, "", "GET " P, NULL, 200, "{\"projects\":[]}");
    expect(k, "", "POST " P, "{\"id\":\"a\"}", 404, "there is no queue here");
    expect(k, "", "GET " P "/a", NULL, 404, "there is no such project");
    expect(k, "tms_x", "GET " P, NULL, 401, "unauthorized");
    expect(k, "", "GET /readyz", NULL, 200, "ready");
    expect(k, "", "GET /api/v1/status", NULL, 200, "\"sink\":null");
    /* Why it could not be opened yet is for the administrator: it names files. */
    k->manage.store_cause = "/srv/data/x: no space";
    expect(k, "", "GET " P, NULL, 503, "/srv/data/x: no space");
    expect(k, "", "POST " P, "{\"id\":\"a\"}", 503, "/srv/data/x: no space");
    expect(k, "tms_x", "GET " P, NULL, 503, "\"the server has no space left; nothing was stored\"");
    expect(k, "tms_x", "GET " P "/a", NULL, 503, "\"the server has no space left;");
}

#define test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_projects),
        test(test_bad_bodies),
        test(test_heads),
        test(test_keys),
        test(test_bad_keys),
        test(test_scopes),
        test(test_lists_only_its_own),
        test(test_strangers_send_no_bodies),
        test(test_a_key_revoked_in_between),
        test(test_no_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
