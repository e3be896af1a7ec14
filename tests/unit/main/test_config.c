/* config: every key from every origin, at and past its range; precedence; the file's comments,
 * lines and mistakes; secrets. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "main/config.h"
#include "json/canon.h"
#include "json/read.h"

static char dir[] = "/tmp/tallyman-test-config-XXXXXX";
static char file[80];

static void write_file(const char *path, const void *p, size_t n, unsigned mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    assert_int_equal(fchmod(fd, (mode_t)mode), 0);
    assert_int_equal(close(fd), 0);
}

static int load_text(struct config *c, const char *text, struct err *e)
{
    const char *flags[CONFIG_KEY_COUNT] = {0};
    write_file(file, text, strlen(text), 0600);
    *e = (struct err){0};
    return config_load(c, flags, file, e);
}

static int load_one(struct config *c, enum config_key k, enum config_origin from, const char *value,
                    struct err *e)
{
    const char *flags[CONFIG_KEY_COUNT] = {0};
    char text[6000];
    const char *path = NULL;
    *e = (struct err){0};
    if (from == CONFIG_FROM_FLAG) {
        flags[k] = value;
    } else if (from == CONFIG_FROM_ENV) {
        assert_int_equal(setenv(config_rows[k].env, value, 1), 0);
    } else {
        bool number = config_rows[k].type == CONFIG_UINT;
        (void)snprintf(text, sizeof text, number ? "{\"%s\":%s}" : "{\"%s\":\"%s\"}",
                       config_rows[k].name, value);
        write_file(file, text, strlen(text), 0600);
        path = file;
    }
    int r = config_load(c, flags, path, e);
    assert_int_equal(unsetenv(config_rows[k].env), 0);
    return r;
}

static bool is_number(enum config_key k)
{
    enum config_type t = config_rows[k].type;
    return t == CONFIG_BYTES || t == CONFIG_UINT || t == CONFIG_MS;
}

/* The value of key k as --print-config gives it. */
static struct slice printed(const struct config *c, enum config_key k, const char *from,
                            struct buf *text)
{
    struct slice row;
    struct slice value;
    struct slice inner;
    buf_clear(text);
    config_print(c, text);
    assert_true(json_member(buf_slice(text), slice_cstr(config_rows[k].name), &row));
    assert_true(json_member(row, SLICE("from"), &value));
    assert_true(json_string_raw(value, &inner));
    assert_true(slice_eq(inner, slice_cstr(from)));
    assert_true(json_member(row, SLICE("value"), &value));
    return value;
}

static void test_defaults(void **state)
{
    (void)state;
    const char *flags[CONFIG_KEY_COUNT] = {0};
    struct config c;
    struct err e = {0};
    assert_int_equal(config_load(&c, flags, NULL, &e), 0);
    assert_string_equal(c.data, "./data");
    assert_string_equal(c.listen, "127.0.0.1:8080");
    assert_string_equal(c.token_file, "");
    assert_int_equal(c.token.len, 0);
    assert_true(c.generation_bytes == 64u << 20);
    assert_true(c.group_bytes == 4u << 20);
    assert_true(c.body_budget_bytes == 256u << 20);
    assert_int_equal(c.replay_default_limit, 1000);
    assert_int_equal(c.replay_max_limit, 100000);
    assert_int_equal(c.idle_timeout_ms, 75000);
    assert_int_equal(c.log_level, LOG_INFO);
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        assert_int_equal(c.origin[i], CONFIG_FROM_DEFAULT);
    }
    config_free(&c);
}

/* The table itself: names that derive from each other. */
static void test_table(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        const struct config_row *row = &config_rows[i];
        char env[80] = "TALLYMAN_";
        size_t at = strlen(env);
        assert_int_equal(strlen(row->flag), strlen(row->name));
        for (size_t j = 0; row->name[j] != '\0'; j++) {
            char n = row->name[j];
            assert_int_equal(row->flag[j], n == '_' ? '-' : n);
            env[at++] = (char)(n >= 'a' && n <= 'z' ? n - 'a' + 'A' : n);
        }
        assert_string_equal(row->env, env);
        assert_true(strlen(row->help) > 10);
    }
}

static void test_ranges_from_every_origin(void **state)
{
    (void)state;
    static const enum config_origin origins[] = {CONFIG_FROM_FILE, CONFIG_FROM_ENV,
                                                 CONFIG_FROM_FLAG};
    static const char *const names[] = {"file", "env", "flag"};
    struct buf text = {0};
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        enum config_key k = (enum config_key)i;
        const struct config_row *row = &config_rows[k];
        for (size_t o = 0; is_number(k) && o < 3; o++) {
            uint64_t tries[4] = {row->min, row->max, row->min - 1, row->max + 1};
            for (size_t t = row->min == 0 ? 3 : 0, n = 0; n < 4; n++, t = (t + 1) % 4) {
                if (row->min == 0 && t == 2) {
                    continue; /* nothing is below 0 */
                }
                /* Keys that are compared with each other pass alone only where the other's default
                 * allows it. */
                bool pair_low = k == CONFIG_REPLAY_MAX_LIMIT && t == 0;
                bool pair_high = k == CONFIG_REPLAY_DEFAULT_LIMIT && t == 1;
                char value[30];
                struct config c;
                struct err e;
                (void)snprintf(value, sizeof value, "%llu", (unsigned long long)tries[t]);
                int r = load_one(&c, k, origins[o], value, &e);
                if (t >= 2) {
                    assert_int_equal(r, ERR_USAGE);
                    assert_non_null(strstr(e.text, "must be from "));
                    assert_non_null(strstr(e.text, o == 0   ? row->name
                                                   : o == 1 ? row->env
                                                            : row->flag));
                } else if (pair_low || pair_high) {
                    assert_int_equal(r, ERR_USAGE);
                    assert_non_null(strstr(e.text, "must not be above replay_max_limit"));
                } else {
                    assert_int_equal(r, 0);
                    assert_int_equal(c.origin[k], origins[o]);
                    uint64_t got = 0;
                    assert_true(json_u64(printed(&c, k, names[o], &text), &got));
                    assert_true(got == tries[t]);
                }
                config_free(&c);
            }
        }
    }
    buf_free(&text);
}

static void test_units(void **state)
{
    (void)state;
    static const struct {
        enum config_key k;
        const char *text;
        uint64_t value; /* 0: refused */
    } rows[] = {
        {CONFIG_GENERATION_BYTES, "64KiB", 65536},
        {CONFIG_GENERATION_BYTES, "1MiB", 1048576},
        {CONFIG_GENERATION_BYTES, "1GiB", UINT64_C(1073741824)},
        {CONFIG_GENERATION_BYTES, "100000", 100000},
        {CONFIG_GENERATION_BYTES, "64KB", 0},
        {CONFIG_GENERATION_BYTES, "64 KiB", 0},
        {CONFIG_GENERATION_BYTES, "64kib", 0},
        {CONFIG_GENERATION_BYTES, "KiB", 0},
        {CONFIG_GENERATION_BYTES, "1.5MiB", 0},
        {CONFIG_GENERATION_BYTES, "99999999999999999999GiB", 0},
        {CONFIG_GENERATION_BYTES, "18446744073709551615GiB", 0},
        {CONFIG_GENERATION_BYTES, "17179869185GiB", 0},
        {CONFIG_GENERATION_BYTES, "70000s", 0},
        {CONFIG_IDLE_TIMEOUT_MS, "30s", 30000},
        {CONFIG_IDLE_TIMEOUT_MS, "1500ms", 1500},
        {CONFIG_IDLE_TIMEOUT_MS, "2min", 120000},
        {CONFIG_IDLE_TIMEOUT_MS, "1h", 0},
        {CONFIG_IDLE_TIMEOUT_MS, "", 0},
        {CONFIG_IDLE_TIMEOUT_MS, "-5s", 0},
        {CONFIG_CONNECTIONS_MAX, "12", 12},
        {CONFIG_CONNECTIONS_MAX, "12s", 0},
        {CONFIG_CONNECTIONS_MAX, "1KiB", 0},
    };
    struct buf text = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config c;
        struct err e;
        uint64_t got = 0;
        int r = load_one(&c, rows[i].k, CONFIG_FROM_FLAG, rows[i].text, &e);
        assert_int_equal(r, rows[i].value == 0 ? ERR_USAGE : 0);
        if (r == 0) {
            assert_true(json_u64(printed(&c, rows[i].k, "flag", &text), &got));
            assert_true(got == rows[i].value);
        }
        config_free(&c);
    }
    buf_free(&text);
}

static void test_texts_and_levels(void **state)
{
    (void)state;
    static const struct {
        enum config_key k;
        const char *text;
        bool ok;
    } rows[] = {
        {CONFIG_LISTEN, "", true},
        {CONFIG_LISTEN, "127.0.0.1:0", true},
        {CONFIG_LISTEN, "127.255.3.4:65535", true},
        {CONFIG_LISTEN, "[::1]:80", true},
        {CONFIG_LISTEN, "localhost:8080", true},
        {CONFIG_LISTEN, "[0000:0000:0000:0000:0000:0000:0000:0001]:80", true},
        {CONFIG_LISTEN, "example.org:8080", false},
        {CONFIG_LISTEN, "127.1:8080", false},
        {CONFIG_LISTEN, "1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:80", false},
        {CONFIG_LISTEN, "127.0.0.1", false},
        {CONFIG_LISTEN, ":8080", false},
        {CONFIG_LISTEN, "127.0.0.1:", false},
        {CONFIG_LISTEN, "127.0.0.1:65536", false},
        {CONFIG_LISTEN, "127.0.0.1:80x", false},
        {CONFIG_LISTEN, "::1:80", false},
        {CONFIG_LISTEN, "[::1:80", false},
        {CONFIG_LISTEN, "[]:80", false},
        {CONFIG_LISTEN, "[127.0.0.1]:80", false},
        /* reachable for others, and no token */
        {CONFIG_LISTEN, "0.0.0.0:80", false},
        {CONFIG_LISTEN, "192.168.1.1:80", false},
        {CONFIG_LISTEN, "[::]:80", false},
        {CONFIG_DATA, "", false},
        {CONFIG_DATA, "x", true},
        {CONFIG_LOG_LEVEL, "debug", true},
        {CONFIG_LOG_LEVEL, "error", true},
        {CONFIG_LOG_LEVEL, "WARN", false},
        {CONFIG_LOG_LEVEL, "", false},
        {CONFIG_TOKEN_FILE, "/nonexistent/token", false},
        {CONFIG_ENGINE, "on", true},
        {CONFIG_ENGINE, "off", true},
        {CONFIG_ENGINE, "ON", false},
        {CONFIG_ENGINE, "true", false},
        {CONFIG_ENGINE, "", false},
        {CONFIG_CLICKHOUSE_URL, "http://127.0.0.1:8123", true},
        {CONFIG_CLICKHOUSE_URL, "https://ch.example", true},
        {CONFIG_CLICKHOUSE_URL, "ch.example:8123", false},
        {CONFIG_CLICKHOUSE_URL, "http://user:secret@ch.example", false},
        {CONFIG_CLICKHOUSE_URL, "http://ch.example/?password=x", false},
        {CONFIG_LOW_SPACE_STATUS, "503", true},
        {CONFIG_LOW_SPACE_STATUS, "430", false},
        {CONFIG_LOW_SPACE_STATUS, "500", false},
        {CONFIG_DELIVER, "off", true},
        {CONFIG_ISSUER, "", true},
        {CONFIG_ISSUER, "http://h", true},
        {CONFIG_ISSUER, "https://files.example:8443/a/b?c=d", true},
        {CONFIG_ISSUER, "http://[::1]:80/", true},
        {CONFIG_ISSUER, "http://h#f", false},
        {CONFIG_ISSUER, "HTTP://h", false},
        {CONFIG_ISSUER, "ftp://h", false},
        {CONFIG_ISSUER, "h:80", false},
        {CONFIG_ISSUER, "http://", false},
        {CONFIG_ISSUER, "http:///path", false},
        {CONFIG_ISSUER, "http://:80", false},
        {CONFIG_ISSUER, "http://h:", false},
        {CONFIG_ISSUER, "http://h:65536", false},
        {CONFIG_ISSUER, "http://h:8x", false},
        {CONFIG_ISSUER, "http://h:123456", false},
        {CONFIG_ISSUER, "http://[::1", false},
        {CONFIG_ISSUER, "http://[]:1", false},
        {CONFIG_ISSUER, "http://[::1]x", false},
        {CONFIG_ISSUER, "http://user@h", false},
        {CONFIG_ISSUER, "http://h/a b", false},
        {CONFIG_ISSUER, "http://h/\"", false},
        {CONFIG_ISSUER, "http://h/\xc3\xbc", false},
        {CONFIG_ISSUER, "http://h/\r\nX: y", false},
        {CONFIG_PUBLIC_URL, "https://files.example/tallyman", true},
        {CONFIG_PUBLIC_URL, "https://files.example/?", false},
        {CONFIG_PUBLIC_URL, "https://files.example/#", false},
        {CONFIG_PUBLIC_URL, "/files", false},
        /* without a URL there is nobody to be */
        {CONFIG_CLICKHOUSE_USER, "me", false},
        {CONFIG_CLICKHOUSE_PASSWORD_FILE, "/nonexistent/password", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int o = 0; o < 2; o++) {
            struct config c;
            struct err e;
            int r = load_one(&c, rows[i].k, o == 0 ? CONFIG_FROM_ENV : CONFIG_FROM_FLAG,
                             rows[i].text, &e);
            assert_int_equal(r, rows[i].ok ? 0 : ERR_USAGE);
            config_free(&c);
        }
    }
    char longest[5000];
    memset(longest, 'd', sizeof longest);
    longest[4001] = '\0';
    struct config c;
    struct err e;
    assert_int_equal(load_one(&c, CONFIG_DATA, CONFIG_FROM_FLAG, longest, &e), ERR_USAGE);
    assert_string_equal(e.text, "--data: must not be longer than 4000 bytes");
    config_free(&c);
    /* The engine's socket lies in it, and a socket's path is short. */
    longest[4000] = '\0';
    assert_int_equal(load_one(&c, CONFIG_DATA, CONFIG_FROM_FLAG, longest, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "the engine's socket"));
    config_free(&c);
    longest[88] = '\0';
    assert_int_equal(load_one(&c, CONFIG_DATA, CONFIG_FROM_FLAG, longest, &e), 0);
    config_free(&c);
    longest[88] = 'd';
    assert_int_equal(setenv("TALLYMAN_ENGINE", "off", 1), 0);
    assert_int_equal(load_one(&c, CONFIG_DATA, CONFIG_FROM_FLAG, longest, &e), 0);
    assert_int_equal(unsetenv("TALLYMAN_ENGINE"), 0);
    config_free(&c);
}

static void test_precedence(void **state)
{
    (void)state;
    const char *flags[CONFIG_KEY_COUNT] = {0};
    struct config c;
    struct err e = {0};
    struct buf text = {0};
    static const char body[] = "{\"workers\":3,\"grace_ms\":\"3s\",\"group_bytes\":1048576}";
    write_file(file, body, sizeof body - 1, 0600);
    assert_int_equal(setenv("TALLYMAN_WORKERS", "4", 1), 0);
    assert_int_equal(setenv("TALLYMAN_GRACE_MS", "4s", 1), 0);
    flags[CONFIG_WORKERS] = "5";
    assert_int_equal(config_load(&c, flags, file, &e), 0);
    assert_int_equal(unsetenv("TALLYMAN_WORKERS"), 0);
    assert_int_equal(unsetenv("TALLYMAN_GRACE_MS"), 0);
    assert_int_equal(c.workers, 5);
    assert_int_equal(c.grace_ms, 4000);
    assert_int_equal(c.group_bytes, 1048576);
    (void)printed(&c, CONFIG_WORKERS, "flag", &text);
    (void)printed(&c, CONFIG_GRACE_MS, "env", &text);
    (void)printed(&c, CONFIG_GROUP_BYTES, "file", &text);
    (void)printed(&c, CONFIG_DATA, "default", &text);
    config_free(&c);
    /* A mistake in a place that another overrides is a mistake all the same. */
    flags[CONFIG_WORKERS] = "5";
    assert_int_equal(setenv("TALLYMAN_WORKERS", "none", 1), 0);
    assert_int_equal(config_load(&c, flags, NULL, &e), ERR_USAGE);
    assert_int_equal(unsetenv("TALLYMAN_WORKERS"), 0);
    assert_string_equal(e.text, "TALLYMAN_WORKERS: \"none\" is not a whole number");
    config_free(&c);
    buf_free(&text);
}

static void test_urls(void **state)
{
    (void)state;
    struct config c;
    struct err e;
    char text[600] = "http://";
    assert_int_equal(load_one(&c, CONFIG_PUBLIC_URL, CONFIG_FROM_ENV, "http://h/x//", &e), 0);
    assert_string_equal(c.public_url, "http://h/x");
    config_free(&c);
    assert_int_equal(load_one(&c, CONFIG_PUBLIC_URL, CONFIG_FROM_FILE, "http://h/", &e), 0);
    assert_string_equal(c.public_url, "http://h");
    config_free(&c);
    /* Keys go to the Archive's endpoints. */
    assert_int_equal(
        load_one(&c, CONFIG_ARCHIVE_S3_URL, CONFIG_FROM_FLAG, "http://127.0.0.1:9/x/", &e), 0);
    assert_string_equal(c.archive_s3_url, "http://127.0.0.1:9/x");
    config_free(&c);
    assert_int_equal(load_one(&c, CONFIG_ARCHIVE_METADATA_URL, CONFIG_FROM_ENV, "https://h", &e),
                     0);
    config_free(&c);
    assert_int_equal(
        load_one(&c, CONFIG_ARCHIVE_S3_URL, CONFIG_FROM_FLAG, "http://s3.us.archive.org", &e),
        ERR_USAGE);
    assert_non_null(strstr(e.text, "must begin with https:// (http:// to this machine only)"));
    config_free(&c);
    assert_int_equal(
        load_one(&c, CONFIG_ARCHIVE_METADATA_URL, CONFIG_FROM_FLAG, "http://127.0.0.1.x.org", &e),
        ERR_USAGE);
    config_free(&c);
    assert_int_equal(
        load_one(&c, CONFIG_ARCHIVE_METADATA_URL, CONFIG_FROM_FLAG, "https://h/?key=x", &e),
        ERR_USAGE);
    config_free(&c);
    /* An issuer is what the operator says, to the letter. */
    assert_int_equal(load_one(&c, CONFIG_ISSUER, CONFIG_FROM_FILE, "http://h/", &e), 0);
    assert_string_equal(c.issuer, "http://h/");
    config_free(&c);
    assert_int_equal(load_one(&c, CONFIG_ISSUER, CONFIG_FROM_FILE, "urn:x", &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "key \"issuer\": must begin with http:// or https://"));
    config_free(&c);
    memset(text + 7, 'h', 506);
    assert_int_equal(load_one(&c, CONFIG_ISSUER, CONFIG_FROM_FLAG, text, &e), ERR_USAGE);
    assert_string_equal(e.text, "--issuer: must not be longer than 512 bytes");
    config_free(&c);
    text[512] = '\0';
    assert_int_equal(load_one(&c, CONFIG_ISSUER, CONFIG_FROM_FLAG, text, &e), 0);
    config_free(&c);
}

/* --no-NAME, as serve takes it. */
static void test_switches(void **state)
{
    (void)state;
    struct config c;
    int code = -1;
    char *off[] = {(char[]){"serve"}, (char[]){"--no-deliver"}, (char[]){"--engine=on"}, NULL};
    assert_true(config_begin(&c, "serve", "", 3, off, &code));
    assert_false(c.deliver);
    assert_int_equal(c.origin[CONFIG_DELIVER], CONFIG_FROM_FLAG);
    assert_true(c.engine);
    config_free(&c);
    char *engine[] = {(char[]){"serve"}, (char[]){"--no-engine"}, NULL};
    assert_true(config_begin(&c, "serve", "", 2, engine, &code));
    assert_false(c.engine);
    assert_true(c.deliver);
    config_free(&c);
    char *both[] = {(char[]){"serve"}, (char[]){"--no-deliver"}, (char[]){"--deliver=on"}, NULL};
    assert_false(config_begin(&c, "serve", "", 3, both, &code));
    assert_int_equal(code, 2);
    char *unknown[] = {(char[]){"serve"}, (char[]){"--no-data"}, NULL};
    assert_false(config_begin(&c, "serve", "", 2, unknown, &code));
    assert_int_equal(code, 2);
}

/* A password needs a user, a user a URL; the password itself is never printed. */
static void test_clickhouse(void **state)
{
    (void)state;
    struct config c;
    struct err e;
    struct buf text = {0};
    char path[sizeof dir + 20];
    char body[sizeof dir + 300];
    (void)snprintf(path, sizeof path, "%s/password", dir);
    write_file(path, "hunter2\n", 8, 0600);
    assert_int_equal(load_text(&c,
                               "{\"clickhouse_url\":\"http://h:1\",\"clickhouse_user\":\"u\","
                               "\"clickhouse_password_file\":\"password\",\"engine\":false,"
                               "\"engine_library\":\"lib.so\"}",
                               &e),
                     0);
    assert_int_equal(c.clickhouse_password.len, 7);
    assert_memory_equal(c.clickhouse_password.ptr, "hunter2", 7);
    assert_false(c.engine);
    (void)snprintf(body, sizeof body, "%s/lib.so", dir);
    assert_string_equal(c.engine_library, body); /* beside the file */
    config_print(&c, &text);
    assert_false(text.failed);
    assert_null(memmem(text.ptr, text.len, "hunter2", 7));
    assert_non_null(memmem(text.ptr, text.len, "\"engine\": {\"value\":\"off\"", 24));
    buf_free(&text);
    config_free(&c);
    assert_int_equal(load_text(&c,
                               "{\"clickhouse_url\":\"http://h:1\","
                               "\"clickhouse_password_file\":\"password\"}",
                               &e),
                     ERR_USAGE);
    assert_string_equal(e.text, "clickhouse_password_file needs a clickhouse_user");
    config_free(&c);
    assert_int_equal(load_text(&c, "{\"engine\":1}", &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "must be a boolean, or \"on\" or \"off\""));
    config_free(&c);
}

static void test_file(void **state)
{
    (void)state;
    struct config c;
    struct err e;
    char expected[100];
    assert_int_equal(load_text(&c,
                               "// settings\n{ /* a \" in a comment */\n"
                               "  \"data\": \"a//b/*c*/\", // kept\n"
                               "  \"generation_bytes\": \"1MiB\", /* two\n lines */\n"
                               "  \"idle_timeout_ms\": 2000, \"log_level\": \"w\\u0061rn\",\n"
                               "  \"listen\": \"\"}\n//",
                               &e),
                     0);
    (void)snprintf(expected, sizeof expected, "%s/a//b/*c*/", dir);
    assert_string_equal(c.data, expected); /* beside the file */
    assert_true(c.generation_bytes == 1u << 20);
    assert_int_equal(c.idle_timeout_ms, 2000);
    assert_int_equal(c.log_level, LOG_WARN);
    assert_string_equal(c.listen, "");
    config_free(&c);
    assert_int_equal(load_text(&c, "{\"data\":\"/abs\"}", &e), 0);
    assert_string_equal(c.data, "/abs");
    config_free(&c);
    assert_int_equal(load_text(&c, "{}", &e), 0);
    config_free(&c);
}

static void test_file_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected; /* behind the file's name; a final '*' stands for anything */
    } rows[] = {
        {"{\n\"dada\": \"x\"}", ":2: key \"dada\": there is no such key"},
        {"{\n\n\"workers\": \"2\"}", ":3: key \"workers\": must be a number"},
        {"{\"workers\": 2.5}", ":1: key \"workers\": must be a whole number, not negative"},
        {"{\"workers\": -1}", ":1: key \"workers\": must be a whole number, not negative"},
        {"{\"workers\": 1e1}", ":1: key \"workers\": must be a whole number, not negative"},
        {"{\"workers\": null}", ":1: key \"workers\": must be a number"},
        {"{\"workers\": [1]}", ":1: key \"workers\": must be a number"},
        {"{\"data\": 5}", ":1: key \"data\": must be a string"},
        {"{\"data\": true}", ":1: key \"data\": must be a string"},
        {"{\"data\": \"a\\u0000b\"}", ":1: key \"data\": must not contain a NUL character"},
        {"{\"group_bytes\": {}}",
         ":1: key \"group_bytes\": must be a number, or a string with a unit"},
        {"{\"group_bytes\": 1}", ":1: key \"group_bytes\": must be from 65536 to 67108864 bytes"},
        {"/*\n*/{\n\"group_bytes\": \"x\"}", ":3: key \"group_bytes\": \"x\" is not a size*"},
        {"{\"workers\": 1,\n\n \"workers\": 1}", ":3: key \"workers\": *"},
        {"{\"workers\": 1,\n \"work\\u0065rs\": 1}", ":2: key \"workers\": *"},
        {"[]", ":1: must be one JSON object"},
        {"7", ":1: must be one JSON object"},
        {"{\"workers\": 1}\n{}", ":2: *"},
        {"{\"workers\": 1,}", ":1: *"},
        {"{\n'workers': 1}", ":2: *"},
        {"{} /* open\n", ":1: a comment begins here and does not end"},
        {"{}\n\n/*/", ":3: a comment begins here and does not end"},
        {"{\"data\": \"open // \n\"}", ":1: *"},
        {"", ":1: *"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config c;
        struct err e;
        char expected[300];
        (void)snprintf(expected, sizeof expected, "%s%s", file, rows[i].expected);
        assert_int_equal(load_text(&c, rows[i].text, &e), ERR_USAGE);
        config_free(&c);
        char *star = strchr(expected, '*');
        if (star != NULL) {
            *star = '\0';
            assert_true(strlen(e.text) > strlen(expected));
            e.text[strlen(expected)] = '\0';
        }
        assert_string_equal(e.text, expected);
    }
}

static void test_unreadable_file(void **state)
{
    (void)state;
    const char *flags[CONFIG_KEY_COUNT] = {0};
    struct config c;
    struct err e = {0};
    assert_int_equal(config_load(&c, flags, "/nonexistent/x.json", &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "/nonexistent/x.json"));
    config_free(&c);
    assert_int_equal(config_load(&c, flags, dir, &e), ERR_USAGE); /* a directory */
    assert_non_null(strstr(e.text, dir));
    config_free(&c);
    size_t n = (1u << 20) + 1;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, ' ', n);
    write_file(file, big, n, 0600);
    assert_int_equal(config_load(&c, flags, file, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "larger than 1048576 bytes"));
    config_free(&c);
    free(big);
}

static void test_comments_keep_positions(void **state)
{
    (void)state;
    char text[] = "a/*x\ny*/b//c\n\"//\\\"/*\"/";
    struct err e = {0};
    assert_int_equal(config_strip_comments(text, sizeof text - 1, &e), 0);
    assert_string_equal(text, "a   \n   b   \n\"//\\\"/*\"/");
    char slash[] = "\"a\\";
    assert_int_equal(config_strip_comments(slash, 3, &e), 0);
    char open_comment[] = "  /* *";
    assert_int_equal(config_strip_comments(open_comment, 6, &e), ERR_JSON);
    assert_int_equal(e.offset, 2);
}

static void test_token(void **state)
{
    (void)state;
    char path[100];
    char longest[5000];
    (void)snprintf(path, sizeof path, "%s/token", dir);
    memset(longest, 'k', sizeof longest);
    static const struct {
        const char *text;
        const char *token; /* NULL: refused */
    } rows[] = {
        {"s3cret", "s3cret"}, {" \t\r\ns3cret\r\n\n", "s3cret"},
        {"~!", "~!"},         {"", NULL},
        {"\n", NULL},         {"two words", NULL},
        {"a\tb", NULL},       {"\xc3\xbc", NULL},
        {"a\x7f", NULL},
    };
    struct config c;
    struct err e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_file(path, rows[i].text, strlen(rows[i].text), 0600);
        int r = load_one(&c, CONFIG_TOKEN_FILE, CONFIG_FROM_FLAG, path, &e);
        assert_int_equal(r, rows[i].token != NULL ? 0 : ERR_USAGE);
        if (r == 0) {
            struct buf text = {0};
            assert_true(slice_eq(buf_slice(&c.token), slice_cstr(rows[i].token)));
            config_print(&c, &text);
            buf_put_char(&text, '\0');
            assert_null(strstr(text.ptr, "s3cret"));
            buf_free(&text);
        } else {
            assert_non_null(strstr(e.text, path));
            assert_null(strstr(e.text, "words"));
        }
        config_free(&c);
    }
    for (size_t n = 4095; n <= 4097; n++) {
        write_file(path, longest, n, 0600);
        assert_int_equal(load_one(&c, CONFIG_TOKEN_FILE, CONFIG_FROM_FLAG, path, &e),
                         n <= 4096 ? 0 : ERR_USAGE);
        config_free(&c);
    }
    write_file(path, longest, sizeof longest, 0600);
    assert_int_equal(load_one(&c, CONFIG_TOKEN_FILE, CONFIG_FROM_FLAG, path, &e), ERR_USAGE);
    config_free(&c);
}

/* With a token, any address may be listened on; and a readable token file is only warned about. */
static void test_token_opens_addresses(void **state)
{
    (void)state;
    char path[100];
    (void)snprintf(path, sizeof path, "%s/token2", dir);
    write_file(path, "secret", 6, 0644);
    const char *flags[CONFIG_KEY_COUNT] = {0};
    struct config c;
    struct err e = {0};
    flags[CONFIG_LISTEN] = "0.0.0.0:8080";
    flags[CONFIG_TOKEN_FILE] = path;
    int saved = dup(2);
    char log_path[120];
    (void)snprintf(log_path, sizeof log_path, "%s/log", dir);
    int log = open(log_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0);
    assert_true(log >= 0);
    assert_int_equal(dup2(log, 2), 2);
    int r = config_load(&c, flags, NULL, &e);
    assert_int_equal(dup2(saved, 2), 2);
    char text[400] = "";
    ssize_t n = pread(log, text, sizeof text - 1, 0);
    (void)close(log);
    (void)close(saved);
    assert_int_equal(r, 0);
    assert_true(n > 0);
    assert_non_null(strstr(text, "can be read by others (mode 644)"));
    assert_null(strstr(text, "secret"));
    config_free(&c);
}

static void test_default_data(void **state)
{
    (void)state;
    assert_string_equal(config_default_data(), "./data");
    assert_int_equal(setenv("TALLYMAN_DATA", "/srv/t", 1), 0);
    assert_string_equal(config_default_data(), "/srv/t");
    assert_int_equal(setenv("TALLYMAN_DATA", "", 1), 0);
    assert_string_equal(config_default_data(), "./data");
    assert_int_equal(unsetenv("TALLYMAN_DATA"), 0);
}

static int setup(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        (void)unsetenv(config_rows[i].env);
    }
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(file, sizeof file, "%s/t.json", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"t.json", "token", "token2", "log", "password"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[120];
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_ranges_from_every_origin),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_texts_and_levels),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_clickhouse),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_mistakes),
        cmocka_unit_test(test_unreadable_file),
        cmocka_unit_test(test_comments_keep_positions),
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_token_opens_addresses),
        cmocka_unit_test(test_default_data),
    };
    return cmocka_run_group_tests_name("config", tests, setup, teardown);
}
