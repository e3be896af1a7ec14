/* Projects and keys: names, tokens, scopes, revoking, what the memory copy knows and when. */
#include "tests/unit/store/store_kit.h"

#include <ctype.h>
#include <errno.h>

#include "os/os.h"

struct order {
    struct slice name, title;
    int64_t project, id;
    enum key_kind kind;
    unsigned scopes;
    const struct artifact_destination *artifacts;
    char text[KEY_TEXT_MAX + 1];
};

static int create_project(struct kit_job *j, struct store *s, struct err *e)
{
    const struct order *o = j->arg;
    return control_create_project(s, o->name, o->title, o->artifacts, KIT_NOW, e);
}

static int create_key(struct kit_job *j, struct store *s, struct err *e)
{
    struct order *o = j->arg;
    return control_create_key(s, o->project, o->kind, o->name, o->scopes, KIT_NOW + 1, &o->id,
                              o->text, e);
}

static int revoke_key(struct kit_job *j, struct store *s, struct err *e)
{
    const struct order *o = j->arg;
    return control_revoke_key(s, o->project, o->id, KIT_NOW + 2, e);
}

static int try_project(struct kit *k, struct slice name, struct slice title)
{
    struct order o = {.name = name, .title = title};
    int r = kit_do(k, create_project, &o);
    assert_true(r != 0 || control_committed(k->s, &k->e) == 0);
    return r;
}

static void test_project_names(void **state)
{
    static char longest[PROJECT_NAME_MAX + 2], title[PROJECT_TITLE_MAX + 2];
    struct kit k;
    memset(longest, 'n', sizeof longest);
    memset(title, 't', sizeof title);
    kit_start(&k);
    const struct slice bad[] = {
        SLICE(""),    SLICE("-a"),     SLICE("_a"),  SLICE("A"),
        SLICE("a b"), SLICE("a\0b"),   SLICE("ä"),   slice_of(longest, PROJECT_NAME_MAX + 1),
        SLICE("a/b"), SLICE("demo\n"), SLICE("a.b"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(try_project(&k, bad[i], SLICE("")), ERR_INVALID_PROJECT);
        assert_true(k.e.text[0] != '\0');
    }
    const struct slice bad_titles[] = {SLICE("a\nb"), SLICE("\x7f"),
                                       SLICE("\xff"), SLICE("\xc2\x85"),
                                       SLICE("a\0"),  slice_of(title, PROJECT_TITLE_MAX + 1)};
    for (size_t i = 0; i < sizeof bad_titles / sizeof *bad_titles; i++) {
        assert_int_equal(try_project(&k, SLICE("fine"), bad_titles[i]), ERR_INVALID_PROJECT);
    }
    assert_int_equal(try_project(&k, SLICE("alpha"), SLICE("")), ERR_PROJECT_EXISTS);
    assert_non_null(strstr(k.e.text, "alpha"));
    assert_int_equal(try_project(&k, SLICE("0-a_b"), SLICE("Zo\xc3\xab \xc2\xa0 \xe2\x82\xac")), 0);
    assert_int_equal(
        try_project(&k, slice_of(longest, PROJECT_NAME_MAX), slice_of(title, PROJECT_TITLE_MAX)),
        0);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM projects"), 4);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM project_counters"), 4);
    const struct control *c = store_control(k.s);
    const struct project *p = control_project(c, SLICE("0-a_b"));
    assert_non_null(p);
    assert_string_equal(p->title, "Zo\xc3\xab \xc2\xa0 \xe2\x82\xac");
    assert_int_equal(p->created_ms, KIT_NOW);
    assert_ptr_equal(control_project_by_id(c, p->id), p);
    assert_null(control_project_by_id(c, 99));
    assert_null(control_project(c, SLICE("nobody")));
    assert_null(control_project(c, SLICE("alph")));
    assert_string_equal(control_project_at(c, 0)->name, "alpha");
    assert_string_equal(control_project_at(c, 2)->name, "0-a_b");
    assert_null(control_project_at(c, 4));
    kit_end(&k);
    (void)state;
}

static int try_artifacts(struct kit *k, struct slice name, struct slice sink,
                         struct slice directory)
{
    const struct artifact_destination d = {.sink = sink, .directory = directory};
    struct order o = {.name = name, .title = SLICE(""), .artifacts = &d};
    int r = kit_do(k, create_project, &o);
    assert_true(r != 0 || control_committed(k->s, &k->e) == 0);
    return r;
}

static void test_artifacts(void **state)
{
    static char longest[ARTIFACT_DIRECTORY_MAX + 2];
    struct kit k;
    memset(longest, 'd', sizeof longest);
    longest[0] = '/';
    kit_start(&k);
    const struct slice bad[] = {SLICE(""),          SLICE("relative"),
                                SLICE("./x"),       SLICE("/a\0b"),
                                SLICE("/a\nb"),     SLICE("/\xff"),
                                SLICE("/\xc2\x85"), slice_of(longest, ARTIFACT_DIRECTORY_MAX + 1)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(try_artifacts(&k, SLICE("files"), SLICE("directory"), bad[i]),
                         ERR_INVALID_PROJECT);
        assert_non_null(strstr(k.e.text, "artifacts.directory: "));
    }
    const struct slice bad_sinks[] = {SLICE(""), SLICE("s3"), SLICE("directory\0"),
                                      SLICE("Directory")};
    for (size_t i = 0; i < sizeof bad_sinks / sizeof *bad_sinks; i++) {
        assert_int_equal(try_artifacts(&k, SLICE("files"), bad_sinks[i], SLICE("/srv")),
                         ERR_INVALID_PROJECT);
        assert_non_null(strstr(k.e.text, "artifacts.sink: "));
    }
    assert_int_equal(try_artifacts(&k, SLICE("no name"), SLICE("directory"), SLICE("/srv")),
                     ERR_INVALID_PROJECT);
    assert_null(strstr(k.e.text, "artifacts"));
    assert_null(control_project(store_control(k.s), SLICE("files"))); /* none of it stayed */
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM artifact_projects"), 0);
    assert_int_equal(try_artifacts(&k, SLICE("files"), SLICE("directory"), SLICE("/srv/\xc3\xbc")),
                     0);
    assert_int_equal(try_artifacts(&k, SLICE("deep"), SLICE("directory"),
                                   slice_of(longest, ARTIFACT_DIRECTORY_MAX)),
                     0);
    for (int again = 0; again < 2; again++) {
        const struct control *c = store_control(k.s);
        const struct project *p = control_project(c, SLICE("files"));
        assert_non_null(p);
        assert_true(slice_eq(p->artifacts.sink, SLICE("directory")));
        assert_true(slice_eq(p->artifacts.directory, SLICE("/srv/\xc3\xbc")));
        assert_true(control_takes_artifacts(c, p->id));
        assert_int_equal(control_project(c, SLICE("deep"))->artifacts.directory.len,
                         ARTIFACT_DIRECTORY_MAX);
        assert_false(control_takes_artifacts(c, control_project(c, SLICE("alpha"))->id));
        assert_int_equal(control_project(c, SLICE("alpha"))->artifacts.sink.len, 0);
        assert_false(control_takes_artifacts(c, 99));
        kit_reopen(&k);
    }
    kit_end(&k);
    (void)state;
}

struct change {
    int64_t project;
    struct slice changes;
};

static int run_change(struct kit_job *j, struct store *s, struct err *e)
{
    const struct change *c = j->arg;
    return control_set_artifacts(s, c->project, c->changes, e);
}

static int try_change(struct kit *k, int64_t project, const char *changes)
{
    struct change c = {project, slice_cstr(changes)};
    int r = kit_do(k, run_change, &c);
    assert_true(r != 0 || control_committed(k->s, &k->e) == 0);
    return r;
}

/* What a change leaves out stays; what breaks a rule changes nothing. */
static void test_change(void **state)
{
    struct kit k;
    kit_start(&k);
    assert_int_equal(try_artifacts(&k, SLICE("files"), SLICE("directory"), SLICE("/srv")), 0);
    int64_t id = control_project(store_control(k.s), SLICE("files"))->id;
    assert_int_equal(try_change(&k, 99, "{}"), ERR_NOT_FOUND);
    assert_int_equal(try_change(&k, id, "{\"retention\":\"1d\",\"require_checksum\":false}"), 0);
    assert_int_equal(try_change(&k, id, "{\"identifier\":\"x-{{OBJECT_ID}}\"}"), 0);
    assert_int_equal(try_change(&k, id, "{\"identifier\":\"x\"}"), ERR_INVALID_PROJECT);
    assert_int_equal(try_change(&k, id, "{\"other\":\"x\"}"), ERR_INVALID_PROJECT);
    for (int again = 0; again < 2; again++) {
        const struct control *c = store_control(k.s);
        assert_true(slice_eq(control_project_by_id(c, id)->artifacts.settings,
                             SLICE("{\"identifier\":\"x-{{OBJECT_ID}}\",\"require_checksum\":false,"
                                   "\"retention\":\"1d\"}")));
        assert_false(control_requires_checksum(c, id));
        assert_true(control_requires_checksum(c, 99));
        kit_reopen(&k);
    }
    assert_int_equal(
        try_change(&k, id, "{\"identifier\":null,\"require_checksum\":null,\"retention\":null}"),
        0);
    assert_true(
        slice_eq(control_project_by_id(store_control(k.s), id)->artifacts.settings, SLICE("{}")));
    /* One that took none. */
    id = control_project(store_control(k.s), SLICE("alpha"))->id;
    assert_int_equal(try_change(&k, id, "{\"sink\":\"directory\"}"), ERR_INVALID_PROJECT);
    assert_false(control_takes_artifacts(store_control(k.s), id));
    assert_int_equal(try_change(&k, id, "{\"sink\":\"directory\",\"directory\":\"/d\"}"), 0);
    assert_true(control_takes_artifacts(store_control(k.s), id));
    /* Settings of a newer program stop nothing here, and are not written over. */
    assert_int_equal(db_exec(k.s->db,
                             "UPDATE artifact_projects SET settings ="
                             " '{\"require_checksum\":false,\"then\":1}'",
                             &k.e),
                     0);
    kit_reopen(&k);
    assert_true(control_takes_artifacts(store_control(k.s), id));
    assert_true(control_requires_checksum(store_control(k.s), id));
    assert_int_equal(try_change(&k, id, "{\"retention\":\"1d\"}"), ERR_INVALID_PROJECT);
    kit_end(&k);
    (void)state;
}

static void check_token(const char *text, const char *prefix)
{
    assert_int_equal(strlen(text), 44);
    assert_memory_equal(text, prefix, 4);
    for (size_t i = 4; i < 44; i++) {
        assert_true(isalnum((unsigned char)text[i]));
    }
}

static void test_keys(void **state)
{
    struct kit k;
    struct order capture = {.project = 1, .kind = KEY_CAPTURE, .name = SLICE("web")};
    struct order segment = {.project = 1, .kind = KEY_SEGMENT, .name = SLICE("Billing.v2_x-1")};
    struct order service = {.project = 2,
                            .kind = KEY_SERVICE,
                            .name = SLICE("ci"),
                            .scopes = SCOPE_QUERY_READ | SCOPE_PROJECTS_ADMIN};
    kit_start(&k);
    assert_int_equal(kit_do(&k, create_key, &capture), 0);
    assert_int_equal(kit_do(&k, create_key, &segment), 0);
    assert_int_equal(kit_do(&k, create_key, &service), 0);
    check_token(capture.text, "tmc_");
    check_token(segment.text, "tmc_");
    check_token(service.text, "tms_");
    assert_string_not_equal(capture.text, segment.text);
    const struct control *c = store_control(k.s);
    /* The loop knows a key only once it is told that the commit is done. */
    assert_null(control_key(c, slice_cstr(service.text), NULL));
    assert_int_equal(control_committed(k.s, &k.e), 0);
    for (int again = 0; again < 2; again++) {
        const struct project *p = NULL;
        const struct key *key = control_key(store_control(k.s), slice_cstr(service.text), &p);
        assert_non_null(key);
        assert_int_equal(key->id, service.id);
        assert_int_equal(key->kind, KEY_SERVICE);
        assert_int_equal(key->scopes, SCOPE_QUERY_READ | SCOPE_PROJECTS_ADMIN);
        assert_int_equal(key->created_ms, KIT_NOW + 1);
        assert_string_equal(key->text, ""); /* never in clear */
        assert_string_equal(key->name, "ci");
        assert_string_equal(p->name, "beta");
        key = control_key(store_control(k.s), slice_cstr(segment.text), NULL);
        assert_string_equal(key->text, segment.text);
        assert_string_equal(key->name, "Billing.v2_x-1");
        assert_int_equal(key->kind, KEY_SEGMENT);
        /* alpha: the one it was made with, web, billing. */
        assert_string_equal(control_key_at(store_control(k.s), 1, 0)->name, "default");
        check_token(control_key_at(store_control(k.s), 1, 0)->text, "tmc_");
        assert_string_equal(control_key_at(store_control(k.s), 1, 2)->name, "Billing.v2_x-1");
        assert_null(control_key_at(store_control(k.s), 1, 3));
        assert_string_equal(control_key_at(store_control(k.s), 2, 1)->name, "ci");
        assert_null(control_key_at(store_control(k.s), 2, 2));
        assert_null(control_key_at(store_control(k.s), 3, 0));
        kit_reopen(&k);
    }
    /* Nowhere in the files. */
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM keys WHERE kind = 'service' AND text IS"
                                    " NOT NULL"),
                     0);
    c = store_control(k.s);
    char other[KEY_TEXT_MAX + 2];
    memset(other, 'x', sizeof other);
    assert_null(control_key(c, slice_of(other, sizeof other), NULL));
    assert_null(control_key(c, SLICE(""), NULL));
    assert_null(control_key(c, slice_of(service.text, 43), NULL));
    kit_end(&k);
    (void)state;
}

static void test_key_rules(void **state)
{
    static char longest[KEY_NAME_MAX + 1];
    struct kit k;
    struct order o;
    memset(longest, 'k', sizeof longest);
    kit_start(&k);
    const struct order bad[] = {
        {.project = 1, .kind = KEY_CAPTURE, .name = SLICE("")},
        {.project = 1, .kind = KEY_CAPTURE, .name = slice_of(longest, KEY_NAME_MAX + 1)},
        {.project = 1, .kind = KEY_SEGMENT, .name = SLICE("a b")},
        {.project = 1, .kind = KEY_SEGMENT, .name = SLICE("a\0")},
        {.project = 1, .kind = KEY_CAPTURE, .name = SLICE("a"), .scopes = SCOPE_EVENTS_READ},
        {.project = 1, .kind = KEY_SERVICE, .name = SLICE("a")},
        {.project = 1, .kind = KEY_SERVICE, .name = SLICE("a"), .scopes = 1u << SCOPE_COUNT},
        {.project = 1, .kind = (enum key_kind)7, .name = SLICE("a")},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o = bad[i];
        assert_int_equal(kit_do(&k, create_key, &o), ERR_INVALID_KEY);
        assert_string_equal(o.text, "");
    }
    o = (struct order){.project = 9, .kind = KEY_CAPTURE, .name = SLICE("a")};
    assert_int_equal(kit_do(&k, create_key, &o), ERR_NOT_FOUND);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM keys"), 2);
    o = (struct order){.project = 1, .kind = KEY_CAPTURE, .name = slice_of(longest, KEY_NAME_MAX)};
    assert_int_equal(kit_do(&k, create_key, &o), 0);
    assert_int_equal(kit_sql(&k, "INSERT INTO keys(project, kind, name, hash, scopes, created_ms)"
                                 " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                                 " WHERE i < 998) SELECT 1, 'segment', 'n', randomblob(32), '', 1"
                                 " FROM n"),
                     0);
    assert_int_equal(kit_do(&k, create_key, &o), ERR_INVALID_KEY);
    assert_non_null(strstr(k.e.text, "at most"));
    kit_end(&k);
    (void)state;
}

static void test_revoke(void **state)
{
    struct kit k;
    kit_start(&k);
    struct order second = {.project = 1, .kind = KEY_CAPTURE, .name = SLICE("second")};
    const struct key *first = control_key_at(store_control(k.s), 1, 0);
    struct order o = {.project = 1, .id = first->id};
    char text[KEY_TEXT_MAX + 1];
    memcpy(text, first->text, sizeof text);
    assert_int_equal(kit_do(&k, revoke_key, &o), ERR_INVALID_KEY); /* the last one */
    assert_int_equal(kit_do(&k, create_key, &second), 0);
    o.project = 2;
    assert_int_equal(kit_do(&k, revoke_key, &o), ERR_NOT_FOUND); /* of another project */
    o.project = 1;
    assert_int_equal(kit_do(&k, revoke_key, &o), 0);
    assert_int_equal(kit_do(&k, revoke_key, &o), 0);
    assert_non_null(control_key(store_control(k.s), slice_cstr(text), NULL)); /* not yet told */
    assert_int_equal(control_committed(k.s, &k.e), 0);
    assert_null(control_key(store_control(k.s), slice_cstr(text), NULL));
    assert_int_equal(control_key_at(store_control(k.s), 1, 0)->revoked_ms, KIT_NOW + 2);
    o.id = second.id;
    assert_int_equal(kit_do(&k, revoke_key, &o), ERR_INVALID_KEY);
    o.id = 1000;
    assert_int_equal(kit_do(&k, revoke_key, &o), ERR_NOT_FOUND);
    /* Segment and service keys may all go. */
    struct order segment = {.project = 1, .kind = KEY_SEGMENT, .name = SLICE("s")};
    assert_int_equal(kit_do(&k, create_key, &segment), 0);
    assert_int_equal(kit_do(&k, revoke_key, &segment), 0);
    kit_reopen(&k);
    assert_null(control_key(store_control(k.s), slice_cstr(text), NULL));
    assert_null(control_key(store_control(k.s), slice_cstr(segment.text), NULL));
    assert_non_null(control_key(store_control(k.s), slice_cstr(second.text), NULL));
    kit_end(&k);
    (void)state;
}

struct denied_revoke {
    struct order order;
    struct kit_denial denial;
};

static int revoke_key_denied(struct kit_job *j, struct store *s, struct err *e)
{
    struct denied_revoke *d = j->arg;
    kit_deny(s, &d->denial);
    int r = control_revoke_key(s, d->order.project, d->order.id, KIT_NOW + 2, e);
    kit_deny(s, NULL);
    assert_true(d->denial.seen >= d->denial.at);
    return r;
}

/* What cannot be looked up is neither "no such key" nor "the last one", and what failed is not
 * told as done. */
static void test_a_revocation_that_fails(void **state)
{
    static const struct kit_denial ways[] = {
        {.action = SQLITE_SELECT, .at = 1}, /* what the key is */
        {.action = SQLITE_SELECT, .at = 2}, /* whether there are others */
        {.action = SQLITE_UPDATE, .table = "keys", .at = 1},
    };
    struct order orders[] = {{.project = 1, .kind = KEY_CAPTURE, .name = SLICE("second")},
                             {.project = 1, .kind = KEY_SEGMENT, .name = SLICE("s")}};
    struct kit k;
    kit_start(&k);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(kit_do(&k, create_key, &orders[i]), 0);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            struct denied_revoke d = {.order = orders[i], .denial = ways[w]};
            assert_int_equal(kit_do(&k, revoke_key_denied, &d), ERR_INTERNAL_ERROR);
            assert_int_equal(
                kit_number(&k, "SELECT count(*) FROM keys WHERE revoked_ms IS NOT NULL"), 0);
        }
    }
    kit_end(&k);
    (void)state;
}

/* Pointers stay good until the next turn, however often the copy is renewed. */
static void test_pointers_until_the_next_turn(void **state)
{
    struct kit k;
    kit_start(&k);
    const struct project *p = control_project(store_control(k.s), SLICE("alpha"));
    for (int i = 0; i < 5; i++) {
        assert_int_equal(control_committed(k.s, &k.e), 0);
        assert_string_equal(p->name, "alpha");
    }
    kit_turn(&k);
    assert_int_equal(store_control(k.s)->gone_count, 0);
    kit_end(&k);
    (void)state;
}

/* Rows that cannot be read leave the copy as it was, and are read again at a tick. */
static void test_unreadable(void **state)
{
    struct kit k;
    struct store *s;
    static char *const damage[] = {
        "UPDATE keys SET kind = 'odd' WHERE id = 1",
        "UPDATE keys SET kind = 'capture' WHERE id = 1",
        "UPDATE keys SET hash = x'00' WHERE id = 1",
        "UPDATE keys SET hash = zeroblob(32) WHERE id = 1",
        "UPDATE projects SET name = printf('%.*c', 64, 'x') WHERE id = 2",
        "UPDATE projects SET name = 'beta' WHERE id = 2",
        "UPDATE keys SET name = printf('%.*c', 65, 'x') WHERE id = 1",
        "UPDATE keys SET name = 'default' WHERE id = 1"};
    kit_start(&k);
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i += 2) {
        assert_int_equal(kit_sql(&k, damage[i]), 0);
        assert_int_equal(control_committed(k.s, &k.e), ERR_CORRUPT);
        assert_non_null(control_project(store_control(k.s), SLICE("beta")));
        store_tick(k.s);
        assert_true(store_control(k.s)->stale);
        kit_close(&k);
        assert_int_equal(store_open(k.dir, &k.options, &s, &k.e), ERR_CORRUPT);
        struct sqlite3 *db;
        char path[256];
        snprintf(path, sizeof path, "%s/" STORE_FILE, k.dir);
        assert_int_equal(db_open(path, SQLITE_OPEN_READWRITE, 100, &db, &k.e), 0);
        assert_int_equal(db_exec(db, damage[i + 1], &k.e), 0);
        sqlite3_close(db);
        kit_open(&k);
    }
    assert_int_equal(kit_sql(&k, damage[0]), 0);
    assert_int_equal(control_committed(k.s, &k.e), ERR_CORRUPT);
    assert_int_equal(kit_sql(&k, damage[1]), 0);
    store_tick(k.s);
    assert_false(store_control(k.s)->stale);
    /* A scope from the future gives no right and is no damage. */
    assert_int_equal(kit_sql(&k, "UPDATE keys SET scopes = 'events:read later:thing' WHERE id = 1"),
                     0);
    assert_int_equal(control_committed(k.s, &k.e), 0);
    assert_int_equal(control_key_at(store_control(k.s), 1, 0)->scopes, SCOPE_EVENTS_READ);
    kit_end(&k);
    (void)state;
}

static int no_random(void *p, size_t n)
{
    memset(p, 0, n);
    return -EIO;
}

/* A key that anybody could guess is none; nor does the store open without chance for its tables. */
static void test_no_random(void **state)
{
    struct order o = {.project = 1, .kind = KEY_CAPTURE, .name = SLICE("second")};
    const struct os_table *before = os_current();
    struct os_table table = *before;
    struct store *s;
    struct kit k;
    kit_start(&k);
    table.random = no_random;
    os_install(&table);
    assert_int_equal(kit_do(&k, create_key, &o), ERR_STORE_POISONED);
    assert_non_null(strstr(k.e.text, "random"));
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM keys WHERE name = 'second'"), 0);
    kit_close(&k);
    assert_int_equal(store_open(k.dir, &k.options, &s, &k.e), ERR_IO);
    os_install(before);
    kit_open(&k);
    kit_end(&k);
    (void)state;
}

static void test_names_of_scopes(void **state)
{
    struct err e;
    unsigned scopes = 0;
    for (unsigned i = 0; i < SCOPE_COUNT; i++) {
        assert_int_equal(scope_parse(slice_cstr(scope_name((enum scope_index)i)), &scopes, &e), 0);
        assert_int_equal(scopes, (1u << (i + 1)) - 1);
    }
    assert_int_equal(scope_parse(SLICE("events"), &scopes, &e), ERR_INVALID_KEY);
    assert_string_equal(key_kind_name(KEY_CAPTURE), "capture");
    assert_string_equal(key_kind_name(KEY_SEGMENT), "segment");
    assert_string_equal(key_kind_name(KEY_SERVICE), "service");
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_project_names),
        cmocka_unit_test(test_artifacts),
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_key_rules),
        cmocka_unit_test(test_revoke),
        cmocka_unit_test(test_pointers_until_the_next_turn),
        cmocka_unit_test(test_a_revocation_that_fails),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_no_random),
        cmocka_unit_test(test_names_of_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
