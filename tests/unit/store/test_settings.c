/* settings: templates, the rules of destinations, and a project's settings as text and as a
 * whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "store/artifact/delivery_plan.h"
#include "store/artifact/destination.h"
#include "store/artifact/settings.h"

#define HEX32 "0123456789abcdef0123456789abcdef"
#define HEX64 HEX32 "fedcba9876543210fedcba9876543210"
#define NOW   INT64_C(1795996800) /* 2026-11-30 00:00:00 */

/* ---- templates ---- */

static struct template_values some_values(void)
{
    struct template_values v;

    v.value[TEMPLATE_PROJECT] = SLICE("demo");
    v.value[TEMPLATE_OBJECT_ID] = SLICE(HEX32);
    v.value[TEMPLATE_PACKAGE_ID] = SLICE(HEX64);
    v.value[TEMPLATE_PACKAGE_ID_SHORT] = slice_of(HEX64, TEMPLATE_SHORT_LEN);
    v.value[TEMPLATE_FILENAME] = SLICE("{{PROJECT}}.x");
    v.value[TEMPLATE_PACKAGE_FILENAME] = SLICE("{{PROJECT}}.x");
    v.value[TEMPLATE_DATE] = SLICE("20261130000000");
    return v;
}

static void check_expand(const char *text, const char *want)
{
    struct template_values v = some_values();
    struct buf b = {0};

    template_expand(slice_cstr(text), &v, &b);
    buf_put_char(&b, '\0');
    assert_string_equal(b.ptr, want);
    buf_free(&b);
}

static void test_expand(void **state)
{
    (void)state;
    check_expand("", "");
    check_expand("plain {x} }} { text", "plain {x} }} { text");
    check_expand("{{PROJECT}}-{{DATE}}", "demo-20261130000000");
    check_expand("{{OBJECT_ID}}", HEX32);
    check_expand("{{PACKAGE_ID}}/{{PACKAGE_ID_SHORT}}", HEX64 "/0123456789abcdef01234567");
    /* One pass: what was put in is not looked at. */
    check_expand("{{FILENAME}}{{PACKAGE_FILENAME}}", "{{PROJECT}}.x{{PROJECT}}.x");
    /* What is unknown stays. */
    check_expand("{{project}}{{PROJECT }}{{PROJECTS}}", "{{project}}{{PROJECT }}{{PROJECTS}}");
    check_expand("{{PROJECT", "{{PROJECT");
    check_expand("{{{PROJECT}}}", "{demo}");
    check_expand("{{{{PROJECT}}}}", "{{demo}}");
}

static void check_unknown(const char *text, const char *bad)
{
    struct slice found = {0};

    assert_true(template_known(slice_cstr(text), &found) == (bad == NULL));
    if (bad != NULL) {
        assert_true(slice_eq(found, slice_cstr(bad)));
    }
}

static void test_known(void **state)
{
    (void)state;
    check_unknown("", NULL);
    check_unknown("{x} }} {", NULL);
    check_unknown("a{{PROJECT}}{{DATE}}b", NULL);
    check_unknown("a{{DATES}}b", "{{DATES}}");
    check_unknown("{{PROJECT}}{{", "{{");
    check_unknown("{{x", "{{x");
    check_unknown("{{{PROJECT}}}", "{{{PROJECT}}");
    assert_int_equal(template_uses(SLICE("{{PROJECT}}{{DATE}}{{PACKAGE_ID_SHORT}}{{x}}")),
                     1 << TEMPLATE_PROJECT | 1 << TEMPLATE_DATE | 1 << TEMPLATE_PACKAGE_ID_SHORT);
    assert_int_equal(template_uses(SLICE("{{PACKAGE_ID}}")), 1 << TEMPLATE_PACKAGE_ID);
}

static void test_date(void **state)
{
    char out[TEMPLATE_DATE_LEN + 1];

    (void)state;
    assert_true(template_date(NOW + 86399, out));
    assert_string_equal(out, "20261130235959");
    assert_true(template_date(0, out));
    assert_string_equal(out, "19700101000000");
    assert_true(template_date(INT64_C(253402300799), out));
    assert_string_equal(out, "99991231235959");
    assert_false(template_date(INT64_C(253402300800), out));
    assert_false(template_date(-1, out));
    assert_false(template_date(INT64_MAX, out));
}

/* ---- destinations ---- */

static void check_identifier(const char *sink, const char *text, bool want)
{
    struct err e = {0};

    if ((destination_identifier(sink, slice_cstr(text), &e) == 0) != want) {
        fail_msg("%s: \"%s\": %s", sink, text, e.text);
    }
}

/* T28, at both bounds. */
static void test_identifiers(void **state)
{
    char longest[102];

    (void)state;
    memset(longest, 'n', sizeof longest);
    longest[101] = '\0';
    check_identifier(DESTINATION_ARCHIVE, longest, false);
    longest[100] = '\0';
    check_identifier(DESTINATION_ARCHIVE, longest, true);
    static const char *const good[] = {"abcde", "A1._-", "00000", "UPPER.case_1-2"};
    static const char *const bad[] = {"",         "abcd",   ".abcde", "-abcde",       "_abcde",
                                      "ab:cde",   "ab cde", "abcde ", "abcd\xc3\xa9", "abcde\n",
                                      "test/../x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        check_identifier(DESTINATION_ARCHIVE, good[i], true);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_identifier(DESTINATION_ARCHIVE, bad[i], false);
    }
    check_identifier(DESTINATION_DIRECTORY, "a", true);
    check_identifier(DESTINATION_DIRECTORY, "_a", true);
    check_identifier(DESTINATION_DIRECTORY, "", false);
    check_identifier(DESTINATION_DIRECTORY, ".", false);
    check_identifier(DESTINATION_DIRECTORY, "..", false);
    check_identifier(DESTINATION_DIRECTORY, "a/b", false);
    check_identifier(DESTINATION_DIRECTORY, "a b", false);
}

static void check_name(const char *sink, const char *text, bool want)
{
    struct err e = {0};

    if ((destination_name(sink, slice_cstr(text), &e) == 0) != want) {
        fail_msg("%s: \"%s\": %s", sink, text, e.text);
    }
}

/* T31. */
static void test_names(void **state)
{
    static const char *const good[] = {"a",           "a.b",          "a/b/c.warc",
                                       "meta.xml",    "a/x_meta.xml", "a/_b",
                                       "x/history/y", "historyx/y",   "x_meta.xml.gz"};
    static const char *const bad[] = {"",
                                      "/",
                                      "/a",
                                      "a/",
                                      "a//b",
                                      ".",
                                      "..",
                                      "a/..",
                                      "../a",
                                      "a/./b",
                                      "a%20b",
                                      "a+b",
                                      "a#b?c",
                                      "a b",
                                      "s\xc5\x82o\xc5\x84",
                                      "a\\b",
                                      "_meta.xml",
                                      "x_files.xml",
                                      "x_META.xml",
                                      "x_meta.sqlite",
                                      "x_archive.torrent",
                                      "x_dc.xml",
                                      "x_reviews.xml",
                                      "x_rules.conf",
                                      "__ia_thumb.jpg",
                                      "_x/y",
                                      "history/a",
                                      "history",
                                      "History/a",
                                      "a\xff",
                                      "a\n"};
    char longest[DESTINATION_NAME_MAX + 2];

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        check_name(DESTINATION_ARCHIVE, good[i], true);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check_name(DESTINATION_ARCHIVE, bad[i], false);
    }
    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    check_name(DESTINATION_ARCHIVE, longest, false);
    check_name(DESTINATION_DIRECTORY, longest, false);
    longest[DESTINATION_NAME_MAX] = '\0';
    check_name(DESTINATION_ARCHIVE, longest, true);
    check_name(DESTINATION_DIRECTORY, longest, true);
    check_name(DESTINATION_DIRECTORY, "x_meta.xml", true);
    check_name(DESTINATION_DIRECTORY, "a/b", false);
    check_name(DESTINATION_DIRECTORY, ".tallyman-x.part", false);
    assert_true(destination_reserved(DESTINATION_ARCHIVE, SLICE("x_meta.xml")));
    assert_false(destination_reserved(DESTINATION_DIRECTORY, SLICE("x_meta.xml")));
    assert_false(destination_reserved(DESTINATION_ARCHIVE, SLICE("")));
}

static void test_metadata_rules(void **state)
{
    static const char *const good[] = {"a", "mediatype", "collection", "a_b-c.d", "a__b", "a1"};
    static const char *const bad[] = {"",      "A",        "aB",   "1a",      "_a",  "-a",
                                      "a--b",  "a-_b",     "a_-b", "a b",     "a:b", "xml",
                                      "xml-a", "\xc3\xa9", "a\"",  "a\\u0062"};
    char longest[DESTINATION_KEY_MAX + 2];
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(destination_metadata_key(slice_cstr(good[i]), &e), 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(destination_metadata_key(slice_cstr(bad[i]), &e), ERR_INVALID_PROJECT);
    }
    memset(longest, 'k', sizeof longest);
    assert_int_equal(destination_metadata_key(slice_of(longest, DESTINATION_KEY_MAX), &e), 0);
    assert_true(destination_metadata_key(slice_of(longest, DESTINATION_KEY_MAX + 1), &e) < 0);
    assert_int_equal(destination_metadata_value(SLICE("a\tb\nc \xc3\xa9 \xf0\x9f\x98\x80"), &e), 0);
    static const struct slice values[] = {{"", 0},
                                          {"a\0b", 3},
                                          {"\r", 1},
                                          {"\x1f", 1},
                                          {"\x7f", 1},
                                          {"\xc2\x85", 2},
                                          {"\xff", 1},
                                          {"\xef\xbf\xbe", 3},
                                          {"\xef\xbf\xbf", 3},
                                          {"\xed\xa0\x80", 3}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(destination_metadata_value(values[i], &e), ERR_INVALID_PROJECT);
    }
    assert_int_equal(destination_header_bytes(SLICE("a_b"), SLICE("x y")),
                     strlen("x-archive-meta00-a--b: uri(x%20y)\r\n"));
}

/* ---- durations ---- */

static void check_duration(const char *text, int64_t want_ms, const char *again)
{
    int64_t ms = -7;
    struct buf b = {0};

    assert_true(settings_duration(slice_cstr(text), &ms));
    assert_true(ms == want_ms);
    if (ms > 0) {
        settings_duration_put(&b, ms);
        buf_put_char(&b, '\0');
        assert_string_equal(b.ptr, again);
        buf_free(&b);
    }
}

static void test_durations(void **state)
{
    static const char *const bad[] = {"",
                                      "30",
                                      "1x",
                                      "-1s",
                                      ".s",
                                      "1",
                                      "1h30",
                                      "d",
                                      " 1s",
                                      "1s ",
                                      "1 s",
                                      "0x1s",
                                      "1e3s",
                                      "+",
                                      "++1s",
                                      "36501d",
                                      "36500d1ns",
                                      "99999999999999999999999d",
                                      "18446744073709551616ns",
                                      "1.d.",
                                      "1s1"};
    int64_t ms;

    (void)state;
    check_duration("30d", INT64_C(2592000000), "30d");
    check_duration("12h", 43200000, "12h");
    check_duration("90s", 90000, "90s");
    check_duration("90m", 5400000, "90m");
    check_duration("1h30m", 5400000, "90m");
    check_duration("1.5h", 5400000, "90m");
    check_duration("+1.5d12h", INT64_C(172800000), "2d");
    check_duration("250ms", 250, "250ms");
    check_duration("1.0000000001s", 1000, "1s");    /* below a nanosecond */
    check_duration("1.000000001s", 1001, "1001ms"); /* never shorter */
    check_duration(".5m", 30000, "30s");
    check_duration("1.s", 1000, "1s");
    check_duration("1us", 1, "1ms");
    check_duration("1\xc2\xb5s1\xce\xbcs1ns", 1, "1ms");
    check_duration("0s", 0, "");
    check_duration("36500d", INT64_C(3153600000000), "36500d");
    check_duration("0000000000000000000000001s", 1000, "1s");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (settings_duration(slice_cstr(bad[i]), &ms)) {
            fail_msg("\"%s\" is %lld ms", bad[i], (long long)ms);
        }
    }
}

/* ---- members ---- */

#define DIRECTORY "\"sink\":\"directory\",\"directory\":\"/srv/files\""
#define MERGING                                                                    \
    "\"packager\":\"mergewarc\",\"package_target\":1000,\"package_trigger\":6000," \
    "\"package_max_wait\":\"24h\""
#define ARCHIVE                                                                        \
    "\"sink\":\"internet_archive\",\"credentials_file\":\"/etc/keys\",\"identifier\":" \
    "\"{{PROJECT}}-{{PACKAGE_ID_SHORT}}\""

static int apply(struct artifact_sink *to, const char *json, struct err *e)
{
    memset(to, 0, sizeof *to);
    to->retention_ms = -1;
    return settings_apply(to, slice_cstr(json), e);
}

static int whole(const char *json, struct err *e)
{
    struct artifact_sink to;
    int r = apply(&to, json, e);

    return r == 0 ? settings_check(&to, SLICE("demo"), e) : r;
}

static void expect_good(const char *json)
{
    struct err e = {0};

    if (whole(json, &e) != 0) {
        fail_msg("%s: %s", json, e.text);
    }
}

static void expect_bad(const char *json, const char *want)
{
    struct err e = {0};
    int r = whole(json, &e);

    if (r != ERR_INVALID_PROJECT || strncmp(e.text, want, strlen(want)) != 0) {
        fail_msg("%s: %d, \"%s\", and not \"%s\"", json, r, e.text, want);
    }
}

static void test_members(void **state)
{
    (void)state;
    expect_good("{" DIRECTORY "}");
    expect_good("{" ARCHIVE "}");
    expect_good("{" ARCHIVE ",\"packager\":\"identity\",\"retention\":\"30d\","
                "\"require_checksum\":false,\"metadata\":null,\"remote_name\":null}");
    expect_bad("[]", "artifacts: it must be an object");
    expect_bad("{}", "artifacts.sink: there are \"directory\" and \"internet_archive\"");
    expect_bad("{\"sink\":\"s3\"}", "artifacts.sink: there are ");
    expect_bad("{\"sink\":7}", "artifacts.sink: it must be a string");
    expect_bad("{\"sink\":\"\"}", "artifacts.sink: it must not be empty; null");
    expect_bad("{\"sink\":\"0123456789012345678901234567890123\"}",
               "artifacts.sink: it has at most");
    expect_bad("{" DIRECTORY ",\"min_free\":1}", "artifacts.min_free: there is no such member;");
    expect_bad("{" DIRECTORY ",\"Identifier\":\"x\"}", "artifacts.Identifier: there is no such");
    expect_bad("{" DIRECTORY ",\"identifier\":\"a\\nb\"}", "artifacts.identifier: it is UTF-8");
    expect_bad("{\"sink\":\"directory\"}", "artifacts.directory: the sink directory needs one");
    expect_bad("{\"sink\":\"directory\",\"directory\":\"x\"}", "artifacts.directory: it is an abs");
    expect_bad("{" DIRECTORY ",\"credentials_file\":\"/k\"}", "artifacts.credentials_file: the");
    expect_bad("{" DIRECTORY ",\"metadata\":{\"a\":\"b\"}}", "artifacts.metadata: the sink dir");
    expect_bad("{" ARCHIVE ",\"directory\":\"/srv\"}", "artifacts.directory: the sink internet_a");
    expect_bad("{\"sink\":\"internet_archive\"}", "artifacts.credentials_file: the sink inter");
    expect_bad("{\"sink\":\"internet_archive\",\"credentials_file\":\"/k\"}",
               "artifacts.identifier: the sink internet_archive needs one");
    static const char *const paths[] = {"k",     "/",   "//k", "/a/../k", "/a/./k",
                                        "/a//k", "/a/", "/.",  "/.."};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char json[200];
        snprintf(json, sizeof json, "{" ARCHIVE "}");
        snprintf(json, sizeof json, "{\"sink\":\"internet_archive\",\"credentials_file\":\"%s\"}",
                 paths[i]);
        expect_bad(json, "artifacts.credentials_file: it is an absolute path without");
    }
    expect_good("{" DIRECTORY "," MERGING "}");
    expect_bad("{" DIRECTORY ",\"packager\":\"mergewarc\"}",
               "artifacts.package_target: the packager mergewarc needs it");
    expect_bad("{" DIRECTORY ",\"packager\":\"mergewarc\",\"package_target\":5}",
               "artifacts.package_trigger: the packager mergewarc needs it");
    expect_bad("{" DIRECTORY ",\"packager\":\"mergewarc\",\"package_target\":5,"
               "\"package_trigger\":5}",
               "artifacts.package_max_wait: the packager mergewarc needs it");
    expect_bad("{" DIRECTORY "," MERGING ",\"package_target\":6001}",
               "artifacts.package_trigger: it is at least package_target");
    expect_bad("{" DIRECTORY ",\"package_target\":5}",
               "artifacts.package_target: only the packager mergewarc has it");
    expect_bad("{" DIRECTORY ",\"package_trigger\":5}",
               "artifacts.package_trigger: only the packager mergewarc has it");
    expect_bad("{" DIRECTORY ",\"package_max_wait\":\"1h\"}",
               "artifacts.package_max_wait: only the packager mergewarc has it");
    expect_bad("{" DIRECTORY ",\"packager\":\"zip\"}",
               "artifacts.packager: there are \"identity\"");
    expect_bad("{" DIRECTORY "," MERGING ",\"package_target\":0}",
               "artifacts.package_target: it is a number of bytes");
    expect_bad("{" DIRECTORY "," MERGING ",\"package_trigger\":\"1GiB\"}",
               "artifacts.package_trigger: it is a number of bytes");
    expect_bad("{" DIRECTORY "," MERGING ",\"package_max_wait\":\"999ms\"}",
               "artifacts.package_max_wait: it is a time");
    expect_bad("{" DIRECTORY "," MERGING ",\"package_max_wait\":3}",
               "artifacts.package_max_wait: it is a time");
    expect_bad("{" DIRECTORY ",\"packager\":\"zip\"}",
               "artifacts.packager: there are \"identity\"");
    expect_bad("{" DIRECTORY ",\"require_checksum\":\"no\"}",
               "artifacts.require_checksum: it must");
    expect_bad("{" DIRECTORY ",\"retention\":30}", "artifacts.retention: it is a time of at least");
    expect_bad("{" DIRECTORY ",\"retention\":\"999ms\"}", "artifacts.retention: ");
    expect_bad("{" DIRECTORY ",\"retention\":\"-1h\"}", "artifacts.retention: ");
    expect_bad("{" DIRECTORY ",\"retention\":\"0\"}", "artifacts.retention: ");
    expect_good("{" DIRECTORY ",\"retention\":\"1s\"}");
    /* Of two that are wrong the first is told. */
    expect_bad("{\"other\":1," DIRECTORY "}", "artifacts.other: there is no such member;");
    expect_bad("{\"sink\":\"directory\",\"packager\":\"zip\"}", "artifacts.directory: ");
    expect_bad("{\"sink\":\"directory\",\"packager\":\"mergewarc\"}", "artifacts.directory: ");
    expect_bad("{" DIRECTORY ",\"identifier\":\"{{NO}}\"}", "artifacts.identifier: {{NO}} is no");
    expect_bad("{" DIRECTORY ",\"identifier\":\"{{NO}}\",\"remote_name\":\"x\"}",
               "artifacts.identifier: {{NO}} is no");
}

/* Templates are asked with the longest and the shortest of what they can become. */
static void test_worst_case(void **state)
{
    struct artifact_sink to;
    struct err e = {0};

    (void)state;
#define ITEM(identifier, more)                                                                \
    "{\"sink\":\"internet_archive\",\"credentials_file\":\"/k\",\"identifier\":\"" identifier \
    "\"" more "}"
    expect_good(ITEM("{{OBJECT_ID}}", ""));
    expect_good(ITEM("x{{PACKAGE_ID}}", ""));
    expect_good(ITEM("demo-{{DATE}}", ",\"remote_name\":\"{{OBJECT_ID}}/{{FILENAME}}\""));
    expect_bad(ITEM("{{PROJECTS}}", ""), "artifacts.identifier: {{PROJECTS}} is no placeholder");
    expect_bad(ITEM("x{{OBJECT_ID}", ""), "artifacts.identifier: {{OBJECT_ID} is no placeholder");
    expect_bad(ITEM("{{PROJECT}}-{{DATE}}", ""), "artifacts.identifier: it or remote_name must");
    expect_bad(ITEM("{{PROJECT}}-{{FILENAME}}", ""), "artifacts.identifier: it or remote_name");
    /* 100 characters are the most: project (4), id (64), and 32 or 33 more. */
    expect_good(ITEM("{{PROJECT}}{{PACKAGE_ID}}" HEX32, ""));
    expect_bad(ITEM("{{PROJECT}}{{PACKAGE_ID}}" HEX32 "x", ""), "artifacts.identifier: \"demo0123");
    /* A file's name may be long, short, and begin with anything. */
    expect_bad(ITEM("{{PACKAGE_ID_SHORT}}-{{FILENAME}}", ""), "artifacts.identifier: \"0123");
    expect_bad(ITEM("{{FILENAME}}", ",\"remote_name\":\"{{OBJECT_ID}}\""),
               "artifacts.identifier: ");
    expect_bad(ITEM("-{{OBJECT_ID}}", ""), "artifacts.identifier: ");
    /* The whole of it, and not a byte of what lies behind. */
    expect_bad(ITEM("a:{{OBJECT_ID}}", ""),
               "artifacts.identifier: \"a:0123456789abcdef0123456789abcdef\""
               " is possible, but it is made of ");
    /* 200 bytes, the manifest's tail among them. */
    expect_good(ITEM("{{OBJECT_ID}}", ",\"remote_name\":\"" HEX64 "/{{FILENAME}}\""));
    expect_bad(ITEM("{{OBJECT_ID}}", ",\"remote_name\":\"" HEX64 "x/{{FILENAME}}\""),
               "artifacts.remote_name: \"");
    expect_bad(ITEM("{{OBJECT_ID}}", ",\"remote_name\":\"a//{{FILENAME}}\""),
               "artifacts.remote_name: \"a//nnn");
    expect_bad(ITEM("{{OBJECT_ID}}", ",\"remote_name\":\"{{FILENAME}}_meta.xml\""),
               "artifacts.remote_name: ");
    expect_bad(ITEM("{{OBJECT_ID}}", ",\"remote_name\":\"_{{FILENAME}}\""),
               "artifacts.remote_name: ");
    expect_bad(ITEM("{{OBJECT_ID}}", ",\"remote_name\":\"a b\""), "artifacts.remote_name: ");
    expect_bad("{" DIRECTORY ",\"identifier\":\"a\",\"remote_name\":\"{{OBJECT_ID}}/x\"}",
               "artifacts.remote_name: ");
    expect_bad("{" DIRECTORY ",\"identifier\":\".{{OBJECT_ID}}\"}", "artifacts.identifier: ");
    expect_good("{" DIRECTORY ",\"identifier\":\"{{PROJECT}}\",\"remote_name\":"
                "\"{{OBJECT_ID}}-{{FILENAME}}\"}");
    /* The project's own name counts. */
    assert_int_equal(apply(&to, ITEM("{{PROJECT}}-{{OBJECT_ID}}", ""), &e), 0);
    char project[68];
    memset(project, 'p', sizeof project);
    assert_int_equal(settings_check(&to, slice_of(project, 67), &e), 0);
    assert_int_equal(settings_check(&to, slice_of(project, 68), &e), ERR_INVALID_PROJECT);
    assert_int_equal(settings_check(&to, SLICE("a:b"), &e), ERR_INVALID_PROJECT);
    assert_int_equal(settings_check(&to, SLICE("-b"), &e), ERR_INVALID_PROJECT);
}

static void check_headers(unsigned count, const char *template, bool want)
{
    char json[7000];
    struct err e = {0};
    int n = snprintf(json, sizeof json, "{" ARCHIVE ",\"metadata\":{\"k\":[\"%s\"", template);

    for (unsigned i = 1; i < count; i++) {
        n += snprintf(json + n, sizeof json - (size_t)n, ",\"%s\"", template);
    }
    snprintf(json + n, sizeof json - (size_t)n, "]}}");
    if ((whole(json, &e) == 0) != want) {
        fail_msg("%u of %s: %s", count, template, e.text);
    }
}

static void test_metadata(void **state)
{
    char big[8000];
    int n;

    (void)state;
#define META(text) "{" ARCHIVE ",\"metadata\":" text "}"
    expect_good(META("{\"collection\":[\"a\"],\"mediatype\":\"web\",\"title\":[\"{{FILENAME}} of "
                     "{{PROJECT}}\",\"b\"]}"));
    expect_good(META("{}"));
    expect_bad(META("[]"), "artifacts.metadata: it must be an object");
    expect_bad(META("\"x\""), "artifacts.metadata: it must be an object");
    expect_bad(META("{\"a\":1}"), "artifacts.metadata.a: it must be a string, or an array");
    expect_bad(META("{\"a\":[]}"), "artifacts.metadata.a: it must be a string, or an array");
    expect_bad(META("{\"a\":null}"), "artifacts.metadata.a: ");
    expect_bad(META("{\"a\":[\"x\",1]}"), "artifacts.metadata.a[1]: it must be a string");
    expect_bad(META("{\"title\":[\"\"]}"), "artifacts.metadata.title[0]: it must not be empty");
    expect_bad(META("{\"title\":\"a\\u0000\"}"), "artifacts.metadata.title[0]: it has no control");
    expect_bad(META("{\"title\":[\"a\",\"{{DATES}}\"]}"),
               "artifacts.metadata.title[1]: {{DATES}} is no placeholder");
    expect_bad(META("{\"a--b\":\"x\"}"), "artifacts.metadata.a--b: a key with");
    expect_bad(META("{\"Title\":\"x\"}"), "artifacts.metadata.Title: a key is made of");
    expect_bad(META("{\"xmla\":\"x\"}"), "artifacts.metadata.xmla: ");
    expect_bad(META("{\"b\":\"x\",\"a\":\"x\"}"), "artifacts.metadata.a: its place");
    expect_bad(META("{\"a\":[1,\"x\"]}"), "artifacts.metadata.a[0]: it must be a string");
    expect_bad(META("{\"a\":1,\"b\":\"x\"}"), "artifacts.metadata.a: it must be");
    expect_bad(META("{\"a\":[\"{{NO}}\",\"x\"],\"b\":\"y\"}"),
               "artifacts.metadata.a[0]: {{NO}} is");
    /* 7,168 bytes of headers: with the longest file name 147 each, so that 48 fit. */
    check_headers(48, "{{FILENAME}}", true);
    check_headers(49, "{{FILENAME}}", false);
    check_headers(46, "\xc3\xa9{{FILENAME}}", true);
    check_headers(47, "\xc3\xa9{{FILENAME}}", false);
    check_headers(99, "x", true);
    check_headers(100, "x", false);
    n = snprintf(big, sizeof big, "{" ARCHIVE ",\"metadata\":{\"k\":\"");
    memset(big + n, 'x', 6200);
    (void)snprintf(big + n + 6200, sizeof big - (size_t)n - 6200, "\"}}");
    expect_bad(big, "artifacts.metadata: it has at most 6144 bytes as JSON");
}

/* As a damaged row may hold it: the first that is wrong is told. */
static void test_metadata_expanded(void **state)
{
    static const char *const bad[][2] = {
        {"{\"a\":[\"\",\"x\"],\"b\":[\"y\"]}", "a[0]: "},
        {"{\"a\":[7,\"x\"]}", "a[0]: it is not one"},
        {"{\"a\":[]}", "a: it is no list"},
        {"{\"a--a\":[\"x\"],\"b\":[\"y\"]}", "a--a: "},
        {"[]", "it is no object"},
    };
    const struct template_values v = some_values();

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct buf b = {0};
        struct err e = {0};
        assert_int_equal(settings_metadata_expand(slice_cstr(bad[i][0]), &v, &b, NULL, &e),
                         ERR_INVALID_PROJECT);
        if (strncmp(e.text, bad[i][1], strlen(bad[i][1])) != 0) {
            fail_msg("%s: \"%s\"", bad[i][0], e.text);
        }
        buf_free(&b);
    }
}

/* ---- there and back ---- */

static void check_text(const char *json, const char *want)
{
    struct artifact_sink to, back;
    struct buf b = {0};
    struct err e = {0};

    assert_int_equal(apply(&to, json, &e), 0);
    settings_put(&b, &to);
    assert_true(slice_eq(buf_slice(&b), slice_cstr(want)));
    assert_int_equal(
        settings_read(slice_cstr(to.sink), slice_cstr(to.directory), buf_slice(&b), &back, &e), 0);
    assert_memory_equal(&to, &back, sizeof to);
    buf_free(&b);
}

static void test_text(void **state)
{
    struct artifact_sink to;
    struct err e = {0};
    struct buf b = {0};

    (void)state;
    check_text("{" DIRECTORY "}", "{}");
    check_text("{" DIRECTORY
               ",\"packager\":\"identity\",\"metadata\":{},\"require_checksum\":true}",
               "{}");
    check_text("{" ARCHIVE ",\"metadata\":{\"a\":\"x\\u0022\",\"b\":[\"y\",\"z\"]},\"remote_name\":"
               "\"r\",\"require_checksum\":false,\"retention\":\"1h30m\"}",
               "{\"credentials_file\":\"/etc/keys\",\"identifier\":\"{{PROJECT}}-"
               "{{PACKAGE_ID_SHORT}}\",\"metadata\":{\"a\":[\"x\\\"\"],\"b\":[\"y\",\"z\"]},"
               "\"remote_name\":\"r\",\"require_checksum\":false,\"retention\":\"90m\"}");
    static const char *const odd[] = {"",
                                      "{",
                                      "[]",
                                      "{ }",
                                      "{}{}",
                                      "{\"retention\":\"60s\"}",
                                      "{\"require_checksum\":true}",
                                      "{\"identifier\":null}",
                                      "{\"sink\":\"directory\"}",
                                      "{\"remote_name\":\"a\",\"identifier\":\"b\"}",
                                      "{\"identifier\":\"a\",\"identifier\":\"b\"}",
                                      "{\"later\":1}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(
            settings_read(SLICE("directory"), SLICE("/d"), slice_cstr(odd[i]), &to, &e),
            ERR_INVALID_PROJECT);
    }
    assert_int_equal(settings_read(SLICE("dir\nectory"), SLICE("/d"), SLICE("{}"), &to, &e),
                     ERR_INVALID_PROJECT);
    /* null puts a member back. */
    assert_int_equal(
        apply(&to, "{" ARCHIVE ",\"retention\":\"1h\",\"require_checksum\":false}", &e), 0);
    assert_int_equal(settings_apply(&to,
                                    SLICE("{\"retention\":null,\"require_checksum\":null,"
                                          "\"remote_name\":\"{{PACKAGE_FILENAME}}\"}"),
                                    &e),
                     0);
    settings_put_all(&b, &to);
    buf_put_char(&b, '\0');
    assert_string_equal(b.ptr,
                        "{\"sink\":\"internet_archive\",\"directory\":null,\"credentials_file\":"
                        "\"/etc/keys\",\"identifier\":\"{{PROJECT}}-{{PACKAGE_ID_SHORT}}\","
                        "\"remote_name\":\"{{PACKAGE_FILENAME}}\",\"metadata\":{},\"packager\":"
                        "\"identity\",\"retention\":null,\"require_checksum\":true}");
    buf_free(&b);
}

/* ---- what a plan makes of it ---- */

static struct delivery_artifact artifact(const char *filename)
{
    struct delivery_artifact a = {.object_id = HEX32,
                                  .project = "demo",
                                  .checksum = HEX64,
                                  .size_bytes = 1234,
                                  .accepted_at = NOW};
    snprintf(a.filename, sizeof a.filename, "%s", filename);
    return a;
}

static int plan(struct delivery_plan *p, const char *json, const char *filename, struct err *e)
{
    struct delivery_artifact a = artifact(filename);
    struct artifact_sink to;

    assert_int_equal(apply(&to, json, e), 0);
    return delivery_plan_begin(p, &a, &to, e);
}

#define SHORT "bd134c9ee9509662fcb8c6c3" /* of the package: test_delivery */

static void test_plan(void **state)
{
    static struct delivery_plan p, again;
    struct delivery_artifact a = artifact("a b.warc");
    struct err e = {0};
    struct buf b = {0};

    (void)state;
    assert_int_equal(plan(&p,
                          "{" ARCHIVE
                          ",\"remote_name\":\"{{DATE}}/{{FILENAME}}\",\"retention\":\"1d\","
                          "\"metadata\":{\"title\":\"{{FILENAME}} \\u00e9 {{PACKAGE_ID_SHORT}}\"}}",
                          "a b.warc", &e),
                     0);
    assert_string_equal(p.identifier, "demo-" SHORT);
    assert_string_equal(p.file[0].name, "20261130000000/a_b.warc");
    assert_string_equal(p.file[1].name, "20261130000000/a_b.warc.manifest.jsonl");
    assert_string_equal(p.metadata, "{\"title\":[\"a_b.warc \xc3\xa9 " SHORT "\"]}");
    assert_string_equal(p.to.sink, "internet_archive");
    assert_string_equal(p.to.credentials_file, "/etc/keys");
    assert_true(p.retention_ms == 86400000);
    p.file[0].size = 1234;
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        memcpy(p.file[i].digests.blake3, HEX64, BLAKE3_HEX_LEN);
        memcpy(p.file[i].digests.md5, HEX32, MD5_HEX_LEN);
        memcpy(p.file[i].digests.sha1, HEX32 "01234567", SHA1_HEX_LEN);
    }
    delivery_plan_put(&b, &p);
    assert_int_equal(delivery_plan_parse(buf_slice(&b), &again, &e), 0);
    assert_memory_equal(&p, &again, sizeof p);
    assert_true(delivery_plan_fits(&p, &a));
    /* Names that are not its own, or lead elsewhere. */
    snprintf(p.identifier, sizeof p.identifier, "demo-other");
    assert_false(delivery_plan_fits(&p, &a));
    snprintf(p.identifier, sizeof p.identifier, "../demo-" SHORT);
    assert_false(delivery_plan_fits(&p, &a));
    p = again;
    snprintf(p.packager, sizeof p.packager, "other");
    assert_false(delivery_plan_fits(&p, &a));
    /* Metadata that is spelt otherwise is no plan of ours. */
    char *at = memmem(b.ptr, b.len, "\xc3\xa9", 2);
    assert_non_null(at);
    memcpy(at, "\\n", 2);
    assert_int_equal(delivery_plan_parse(buf_slice(&b), &again, &e), 0);
    memcpy(at, "\\/", 2);
    assert_int_equal(delivery_plan_parse(buf_slice(&b), &again, &e), ERR_CORRUPT);
    buf_free(&b);
}

/* A declared name is never a reason to refuse, and never completes a name of the Archive's own. */
static void test_names_that_give_way(void **state)
{
    static struct delivery_plan p;
    struct err e = {0};
    static const char *const names[] = {"x_meta.xml", "_a", "\xc3\xa9.txt", "__ia_thumb.jpg",
                                        "history"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(plan(&p, "{" ARCHIVE "}", names[i], &e), 0);
        assert_string_equal(p.file[0].name, HEX32);
    }
    assert_int_equal(plan(&p, "{" ARCHIVE ",\"remote_name\":\"a/{{FILENAME}}\"}", "x_meta.xml", &e),
                     0);
    assert_string_equal(p.file[0].name, "a/x_meta.xml");
    assert_int_equal(plan(&p, "{" DIRECTORY "}", "x_meta.xml", &e), 0);
    assert_string_equal(p.file[0].name, "x_meta.xml");
}

/* Settings that were not checked by this program. */
static void test_plan_refused(void **state)
{
    static struct delivery_plan p;
    struct artifact_sink to;
    struct err e = {0};
    struct delivery_artifact a = artifact("n.bin");

    (void)state;
    static const char *const bad[] = {
        "{" DIRECTORY ",\"identifier\":\"same\"}",
        "{" DIRECTORY ",\"identifier\":\"a/{{OBJECT_ID}}\"}",
        "{" DIRECTORY ",\"remote_name\":\"../{{OBJECT_ID}}\"}",
        "{" DIRECTORY ",\"identifier\":\"{{PROJECTS}}-{{OBJECT_ID}}\"}",
        "{\"sink\":\"internet_archive\",\"identifier\":\"{{PACKAGE_ID}}{{PACKAGE_ID}}\"}",
        "{\"sink\":\"internet_archive\",\"remote_name\":\"{{FILENAME}}_meta.xml\"}",
        "{" DIRECTORY ",\"packager\":\"zip\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(plan(&p, bad[i], "n.bin", &e), ERR_INVALID_PROJECT);
        assert_memory_equal(e.text, "the project's ", 14);
    }
    assert_int_equal(apply(&to, "{" ARCHIVE "}", &e), 0);
    snprintf(to.metadata, sizeof to.metadata, "{\"a\":[1]}");
    assert_int_equal(delivery_plan_begin(&p, &a, &to, &e), ERR_INVALID_PROJECT);
    snprintf(to.metadata, sizeof to.metadata, "{\"a\":[\"\"]}");
    assert_int_equal(delivery_plan_begin(&p, &a, &to, &e), ERR_INVALID_PROJECT);
    snprintf(to.metadata, sizeof to.metadata, "{\"A\":[\"x\"]}");
    assert_int_equal(delivery_plan_begin(&p, &a, &to, &e), ERR_INVALID_PROJECT);
    snprintf(to.metadata, sizeof to.metadata, "[");
    assert_int_equal(delivery_plan_begin(&p, &a, &to, &e), ERR_INVALID_PROJECT);
}

#define T(test) cmocka_unit_test(test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_expand),
        T(test_known),
        T(test_date),
        T(test_identifiers),
        T(test_names),
        T(test_metadata_rules),
        T(test_durations),
        T(test_members),
        T(test_worst_case),
        T(test_metadata),
        T(test_metadata_expanded),
        T(test_text),
        T(test_plan),
        T(test_names_that_give_way),
        T(test_plan_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
