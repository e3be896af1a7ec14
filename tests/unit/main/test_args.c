/* args: every way to write an option, every mistake, and that a message never repeats a value it
 * should not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "main/args.h"

struct values {
    bool json, given, waits;
    const char *name;
    uint64_t count, wait;
};

static struct values v;

static const struct arg_option options[] = {
    {.name = "json", .type = ARG_SWITCH, .target = &v.json, .help = "switch"},
    {.name = "name", .type = ARG_TEXT, .target = &v.name, .value = "TEXT", .help = "text"},
    {.name = "count",
     .type = ARG_U64,
     .target = &v.count,
     .given = &v.given,
     .value = "N",
     .min = 2,
     .max = 500,
     .help = "number"},
    {.name = "wait",
     .type = ARG_U64_MAYBE,
     .target = &v.wait,
     .given = &v.waits,
     .value = "[N]",
     .min = 1,
     .max = 999999999,
     .help = "number, or none"},
};

static const struct arg_verb verb = {.name = "test",
                                     .operands = "FILE",
                                     .about = "",
                                     .options = options,
                                     .option_count = 4,
                                     .operands_min = 1,
                                     .operands_max = 2};

/* Splits the line at spaces; an empty word is written as '' there. */
static int parse(const char *line, struct args *args, struct err *e)
{
    static char words[400];
    char *argv[20] = {0};
    int argc = 0;
    char test[] = "test";
    argv[argc++] = test;
    assert_true(strlen(line) < sizeof words);
    strcpy(words, line);
    for (char *w = strtok(words, " "); w != NULL; w = strtok(NULL, " ")) {
        assert_true(argc < 20);
        argv[argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
    }
    v = (struct values){0};
    *e = (struct err){0};
    return args_parse(&verb, argc, argv, args, e);
}

static void test_forms(void **state)
{
    (void)state;
    struct args a;
    struct err e;
    assert_int_equal(parse("--name x --count=7 one --json two", &a, &e), 0);
    assert_string_equal(v.name, "x");
    assert_int_equal(v.count, 7);
    assert_true(v.given);
    assert_true(v.json);
    assert_int_equal(a.operand_count, 2);
    assert_string_equal(a.operand[0], "one");
    assert_string_equal(a.operand[1], "two");
    assert_int_equal(parse("--name= -", &a, &e), 0);
    assert_string_equal(v.name, "");
    assert_string_equal(a.operand[0], "-"); /* a lone dash is an operand */
    assert_int_equal(parse("--name --json f", &a, &e), 0);
    assert_string_equal(v.name, "--json"); /* a value is taken as it is */
    assert_false(v.json);
    assert_int_equal(parse("--name a=b=c f", &a, &e), 0);
    assert_string_equal(v.name, "a=b=c");
    assert_int_equal(parse("--name=a=b f", &a, &e), 0);
    assert_string_equal(v.name, "a=b");
    assert_int_equal(parse("-- --json -x", &a, &e), 0);
    assert_false(v.json);
    assert_string_equal(a.operand[0], "--json");
    assert_string_equal(a.operand[1], "-x");
    assert_int_equal(parse("f", &a, &e), 0);
    assert_null(v.name);
    assert_false(v.given);
    assert_false(a.help);
}

/* A value that may be left out. */
static void test_maybe(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        uint64_t wait;
        const char *operand;
    } rows[] = {
        {"f --wait", 0, "f"},
        {"--wait f", 0, "f"},
        {"--wait 30 f", 30, "f"},
        {"f --wait 30", 30, "f"},
        {"--wait=30 7", 30, "7"},
        {"--wait 999999999 f", 999999999, "f"},
        {"--wait 1234567890", 0, "1234567890"}, /* too long for one: an operand */
        {"--wait 30x", 0, "30x"},
        {"--wait --json f", 0, "f"},
        {"--wait -- 30", 0, "30"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct args a;
        struct err e;
        assert_int_equal(parse(rows[i].line, &a, &e), 0);
        assert_true(v.waits);
        assert_int_equal(v.wait, rows[i].wait);
        assert_int_equal(a.operand_count, 1);
        assert_string_equal(a.operand[0], rows[i].operand);
    }
    struct args a;
    struct err e;
    assert_int_equal(parse("f", &a, &e), 0);
    assert_false(v.waits);
    assert_int_equal(parse("--wait=x f", &a, &e), ERR_USAGE);
    assert_string_equal(e.text, "--wait: \"x\" is not a whole number");
    assert_int_equal(parse("--wait= f", &a, &e), ERR_USAGE);
    assert_int_equal(parse("--wait 0 f", &a, &e), ERR_USAGE);
    assert_string_equal(e.text, "--wait: must be from 1 to 999999999");
    assert_int_equal(parse("--wait --wait f", &a, &e), ERR_USAGE);
    assert_string_equal(e.text, "--wait is given twice");
}

static void test_help_wins(void **state)
{
    (void)state;
    struct args a;
    struct err e;
    assert_int_equal(parse("--nonsense --help", &a, &e), 0);
    assert_true(a.help);
    assert_int_equal(parse("-h", &a, &e), 0);
    assert_true(a.help);
    assert_int_equal(parse("-- --help", &a, &e), 0);
    assert_false(a.help);
    assert_string_equal(a.operand[0], "--help");
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } rows[] = {
        {"--nope f", "unknown option --nope (see tallyman test --help)"},
        {"--nope=secret f", "unknown option --nope (see tallyman test --help)"},
        {"--nam x f", "unknown option --nam (see tallyman test --help)"},
        {"--names x f", "unknown option --names (see tallyman test --help)"},
        {"-j f", "unknown option -j (see tallyman test --help)"},
        {"--json=1 f", "--json takes no value"},
        {"--json --json f", "--json is given twice"},
        {"--name a --name b f", "--name is given twice"},
        {"f --name", "--name needs a value (TEXT)"},
        {"--count '' f", "--count: \"\" is not a whole number"},
        {"--count 1x f", "--count: \"1x\" is not a whole number"},
        {"--count -1 f", "--count: \"-1\" is not a whole number"},
        {"--count +3 f", "--count: \"+3\" is not a whole number"},
        {"--count 18446744073709551616 f",
         "--count: \"18446744073709551616\" is not a whole number"},
        {"--count 1 f", "--count: must be from 2 to 500"},
        {"--count 501 f", "--count: must be from 2 to 500"},
        {"", "FILE is missing"},
        {"--json", "FILE is missing"},
        {"a b c", "unexpected argument \"c\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct args a;
        struct err e;
        assert_int_equal(parse(rows[i].line, &a, &e), ERR_USAGE);
        assert_int_equal(e.code, ERR_USAGE);
        assert_string_equal(e.text, rows[i].text);
    }
}

static void test_numbers(void **state)
{
    (void)state;
    uint64_t n = 1;
    assert_true(args_u64("18446744073709551615", &n));
    assert_true(n == UINT64_MAX);
    assert_true(args_u64("0", &n));
    assert_int_equal(n, 0);
    assert_true(args_u64("007", &n));
    assert_int_equal(n, 7);
    n = 5;
    assert_false(args_u64("18446744073709551616", &n));
    assert_false(args_u64("99999999999999999999999", &n));
    assert_false(args_u64("", &n));
    assert_false(args_u64(" 1", &n));
    assert_false(args_u64("0x1", &n));
    assert_int_equal(n, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),     cmocka_unit_test(test_maybe),
        cmocka_unit_test(test_help_wins), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests_name("args", tests, NULL, NULL);
}
