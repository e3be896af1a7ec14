/* test_capture_static: flags, configuration and settings, as SDKs read them (spec/capture.md A7,
 * client-wire.md 3 and 4). */
#include "tests/unit/door/capture_kit.h"
#include "json/canon.h"

static struct kit *k;

static int setup(void **state)
{
    (void)state;
    k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kit_free(k);
    return 0;
}

static void get(const char *method, const char *target, const char *headers, unsigned status)
{
    (void)kit_ask(k, true, method, target, headers, (struct slice){0});
    if (k->status != status) {
        fail_msg("%s: %.*s", target, (int)k->answer.len, k->answer.ptr);
    }
}

static void assert_strict_json(struct slice text)
{
    struct canon *c = canon_new();
    struct buf out = {0};
    assert_non_null(c);
    if (canon_json(c, text, &out, NULL) != 0) {
        fail_msg("no JSON: %.*s", (int)text.len, text.ptr);
    }
    buf_free(&out);
    canon_free(c);
}

/* The value of a member, as it is written. */
static struct slice member(struct slice object, const char *name)
{
    struct slice v = {0};
    if (!json_member(object, slice_cstr(name), &v)) {
        fail_msg("no %s in %.*s", name, (int)object.len, object.ptr);
    }
    return v;
}

static void assert_member(struct slice object, const char *name, const char *want)
{
    assert_text(member(object, name), want);
}

static void assert_no_member(struct slice object, const char *name)
{
    struct slice v;
    assert_false(json_member(object, slice_cstr(name), &v));
}

static void assert_config(struct slice c)
{
    assert_member(c, "supportedCompression", "[\"gzip\",\"gzip-js\"]");
    assert_member(c, "hasFeatureFlags", "false");
    assert_member(c, "sessionRecording", "false");
    assert_member(c, "surveys", "false");
    assert_member(c, "heatmaps", "false");
    assert_member(c, "capturePerformance", "false");
    assert_member(c, "autocaptureExceptions", "false");
    assert_member(c, "autocapture_opt_out", "false");
    assert_member(c, "isAuthenticated", "false");
    assert_member(c, "toolbarParams", "{}");
    assert_member(c, "siteApps", "[]");
    assert_member(c, "elementsChainAsString", "true");
    assert_member(c, "defaultIdentifiedOnly", "true");
    assert_no_member(c, "analytics"); /* SDKs stay with their own path */
    assert_no_member(c, "quota_limited");
}

static void test_flags(void **state)
{
    (void)state;
    get("POST", "/flags/?v=2", "", 200);
    assert_strict_json(k->body);
    assert_member(k->body, "flags", "{}");
    assert_member(k->body, "errorsWhileComputingFlags", "false");
    assert_int_equal(member(k->body, "requestId").len, 38);
    uint64_t at = 0;
    assert_true(json_u64(member(k->body, "evaluatedAt"), &at));
    assert_true(at > (uint64_t)NOW_MS / 2);
    assert_no_member(k->body, "featureFlags");
    assert_no_member(k->body, "sessionRecording");
    assert_has(k->head, "Cache-Control: no-cache\r\n");
    assert_has(k->head, "Content-Type: application/json\r\n");
    get("POST", "/flags?only_evaluate_survey_feature_flags=true&v=2&config=true&_=1", "", 200);
    assert_member(k->body, "flags", "{}");
    assert_config(k->body);
    get("POST", "/flags/", "", 200);
    assert_member(k->body, "featureFlags", "{}");
    assert_member(k->body, "featureFlagPayloads", "{}");
    assert_no_member(k->body, "flags");
    /* GET does no harm, and what the body says is not looked at. */
    get("GET", "/flags/?v=2", "", 200);
    assert_member(k->body, "flags", "{}");
    assert_int_equal(kit_ask(k, true, "POST", "/flags/?v=2", "Content-Encoding: gzip\r\n",
                             SLICE("\x1f\x8b garbage")),
                     200);
}

static void test_decide(void **state)
{
    static const struct {
        const char *target, *name, *value;
    } rows[] = {
        {"/decide/", "featureFlags", "[]"},           {"/decide/?v=1", "featureFlags", "[]"},
        {"/decide/?v=2", "featureFlags", "{}"},       {"/decide/?v=3&ip=1", "featureFlags", "{}"},
        {"/decide?v=3", "featureFlagPayloads", "{}"}, {"/decide/?v=4", "flags", "{}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        get("POST", rows[i].target, "", 200);
        assert_strict_json(k->body);
        assert_member(k->body, rows[i].name, rows[i].value);
        assert_config(k->body);
    }
}

static void test_config(void **state)
{
    char target[200];
    (void)state;
    (void)snprintf(target, sizeof target, "/array/%s/config", k->token);
    get("GET", target, "Origin: https://a.example\r\n", 200);
    assert_strict_json(k->body);
    assert_config(k->body);
    assert_int_equal(member(k->body, "token").len, strlen(k->token) + 2);
    assert_has(k->head, "Access-Control-Allow-Origin: https://a.example\r\n");
    assert_has(k->head, "Cache-Control: no-cache\r\n");
    /* Of a key that is none, too: it is the events that are refused. */
    get("GET", "/array/phc_unknown/config?ip=1", "", 200);
    assert_member(k->body, "token", "\"phc_unknown\"");
}

static void test_config_js(void **state)
{
    static const char before[] =
        "(function(){window._POSTHOG_REMOTE_CONFIG=window._POSTHOG_REMOTE_CONFIG||{};"
        "window._POSTHOG_REMOTE_CONFIG[\"phc_a.b-c\"]={\"config\":";
    static const char behind[] = ",\"siteApps\":[]}})();\n";
    (void)state;
    get("GET", "/array/phc_a.b-c/config.js", "", 200);
    assert_has(k->head, "Content-Type: application/javascript; charset=utf-8\r\n");
    assert_true(slice_starts(k->body, slice_cstr(before)));
    assert_true(k->body.len > sizeof before + sizeof behind);
    struct slice rest = slice_from(k->body, sizeof before - 1);
    assert_text(slice_from(rest, rest.len - sizeof behind + 1), behind);
    rest.len -= sizeof behind - 1;
    assert_strict_json(rest);
    assert_config(rest);
}

/* Nothing that could become code, or another answer. */
static void test_odd_keys(void **state)
{
    static const char *const keys[] = {"a%22", "a'b",  "a\\b", "%3Cscript%3E", "a;b",
                                       "a(b)", "a%00", "a&b",  "a%0d%0a"};
    static const char *const forms[] = {"/array/%s/config", "/array/%s/config.js",
                                        "/v1/projects/%s/settings"};
    char target[300];
    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t j = 0; j < 3; j++) {
            size_t n = 0;
            for (const char *at = forms[j]; *at != '\0'; at++) {
                if (at[0] == '%' && at[1] == 's') {
                    n += (size_t)snprintf(target + n, sizeof target - n, "%s", keys[i]);
                    at++;
                } else {
                    target[n++] = *at;
                }
            }
            target[n] = '\0';
            get("GET", target, "", 404);
            assert_has_not(k->body, keys[i]);
        }
    }
    (void)snprintf(target, sizeof target, "/array/%065d/config", 1);
    get("GET", target, "", 404);
    get("GET", "/array//config", "", 404);
    get("GET", "/static/array.js", "", 404);
    get("GET", "/static/1.449.2/surveys.js", "Origin: https://a.example\r\n", 404);
    assert_has(k->head, "Access-Control-Allow-Origin: https://a.example\r\n");
    assert_has(k->head, "Content-Type: text/plain");
    get("POST", "/array/a/config", "", 405);
}

static void test_settings(void **state)
{
    (void)state;
    get("GET", "/v1/projects/wk_1/settings", "Origin: http://a.example\r\n", 200);
    assert_strict_json(k->body);
    struct slice io = member(member(k->body, "integrations"), "Segment.io");
    assert_member(io, "apiKey", "\"wk_1\"");
    assert_member(io, "apiHost", "\"localhost/v1\"");
    assert_member(io, "protocol", "\"http\"");
    assert_has(member(k->body, "plan"), "\"__default\"");
    assert_has(k->head, "Access-Control-Allow-Origin: http://a.example\r\n");
    /* A proxy in front speaks TLS. */
    get("GET", "/v1/projects/wk_1/settings", "X-Forwarded-Proto: https\r\n", 200);
    assert_has(k->body, "\"protocol\":\"https\"");
    get("GET", "/v1/projects/wk_1/settings",
        "X-Forwarded-Proto: http\r\nOrigin: https://a.example\r\n", 200);
    assert_has(k->body, "\"protocol\":\"http\"");
    /* This machine's own has none, whatever the page. */
    get("GET", "/v1/projects/wk_1/settings", "Origin: https://a.example\r\n", 200);
    assert_has(k->body, "\"protocol\":\"http\"");
}

/* Hosts, by hand: kit_ask sends its own. */
static void ask_host(const char *lines)
{
    char head[400];
    int fd = kit_connect(k, true);
    int n = snprintf(head, sizeof head,
                     "GET /v1/projects/wk/settings HTTP/1.%s\r\nConnection: close\r\n\r\n", lines);
    kit_send(fd, head, (size_t)n);
    (void)kit_receive(k, fd);
}

static void test_settings_hosts(void **state)
{
    (void)state;
    ask_host("1\r\nHost: tally.example:8443\r\nOrigin: https://shop.example");
    assert_int_equal(k->status, 200);
    assert_has(k->body, "\"apiHost\":\"tally.example:8443/v1\",\"protocol\":\"https\"");
    ask_host("1\r\nHost: [::1]:80\r\nOrigin: https://shop.example");
    assert_has(k->body, "\"apiHost\":\"[::1]:80/v1\",\"protocol\":\"http\"");
    ask_host("0"); /* none: the SDK stays with what its caller says */
    assert_int_equal(k->status, 200);
    assert_strict_json(k->body);
    assert_has_not(k->body, "apiHost");
    ask_host("1\r\nHost: a\"b");
    if (k->status == 200) {
        assert_strict_json(k->body);
        assert_has_not(k->body, "apiHost");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),          cmocka_unit_test(test_decide),
        cmocka_unit_test(test_config),         cmocka_unit_test(test_config_js),
        cmocka_unit_test(test_odd_keys),       cmocka_unit_test(test_settings),
        cmocka_unit_test(test_settings_hosts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
