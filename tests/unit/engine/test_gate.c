/* test_gate: what passes and what does not, from texts and from trees as the engine prints them.
 * What the engine really prints is asked by tests/blackbox/test_engine_isolation.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "engine/gate.h"

static void test_texts_that_pass(void **state)
{
    static const char *const table[] = {
        "SELECT 1",
        "select 1",
        "  /* x */ -- y\n SELECT 1",
        "WITH 1 AS x SELECT x",
        "(SELECT 1)",
        "SELECT \"a b\", `c`, 'it''s \\n'",
        "SELECT $$ x; y $$",
        "SELECT format('{}', 1)",
    };
    char reason[GATE_REASON_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!gate_text(slice_cstr(table[i]), reason)) {
            fail_msg("%s: %s", table[i], reason);
        }
    }
}

static void text_refused(struct slice sql, const char *why)
{
    char reason[GATE_REASON_BYTES];

    assert_false(gate_text(sql, reason));
    if (strstr(reason, why) == NULL) {
        fail_msg("%.*s: %s", (int)sql.len, sql.ptr, reason);
    }
}

static void test_texts_that_do_not(void **state)
{
    struct buf big = {0};

    (void)state;
    text_refused(SLICE(""), "only SELECT");
    text_refused(SLICE("-- SELECT"), "only SELECT");
    text_refused(SLICE("SET ROLE ALL"), "not SET");
    text_refused(SLICE("/* SELECT */ SET ROLE ALL"), "not SET");
    text_refused(SLICE("selects 1"), "only SELECT");
    text_refused(SLICE("'SELECT'"), "only SELECT");
    text_refused(SLICE("`SELECT` 1"), "only SELECT");
    text_refused(SLICE("FROM x SELECT 1"), "not FROM");
    text_refused(SLICE("1 + 1"), "only SELECT");
    text_refused(SLICE(";SELECT 1"), "only SELECT");
    text_refused(SLICE("\xef\xbb\xbfSELECT 1"), "only SELECT");
    text_refused(SLICE("SELECT 1 FORMAT CSV"), "FORMAT CSV");
    text_refused(SLICE("SELECT `a\\b`"), "backslash");
    text_refused(SLICE("SELECT \"a\nb\""), "control");
    text_refused(SLICE("SELECT 'a"), "open quote");
    text_refused(SLICE("SELECT 1\0; SET ROLE ALL"), "NUL");
    buf_put_cstr(&big, "SELECT ");
    while (big.len <= GATE_SQL_BYTES_MAX) {
        buf_put_cstr(&big, "1,");
    }
    text_refused(buf_slice(&big), "too long");
    buf_free(&big);
}

#define ROOT   "SelectWithUnionQuery (children 1)\n"
#define SELECT ROOT " ExpressionList (children 1)\n  SelectQuery (children 2)\n"

static void tree_passes(const char *tree)
{
    char reason[GATE_REASON_BYTES] = "";

    if (!gate_tree(slice_cstr(tree), reason)) {
        fail_msg("%s: %s", tree, reason);
    }
}

static void tree_refused(const char *tree, const char *why)
{
    char reason[GATE_REASON_BYTES] = "";

    assert_false(gate_tree(slice_cstr(tree), reason));
    if (strstr(reason, why) == NULL) {
        fail_msg("%s: %s, not %s", tree, reason, why);
    }
}

static void test_trees_that_pass(void **state)
{
    (void)state;
    tree_passes(SELECT "   ExpressionList (children 1)\n    Literal UInt64_1\n");
    tree_passes(SELECT "   Function count (alias n) (children 1)\n    Identifier file_name\n");
    tree_passes(SELECT "   Literal 'file'\n   Identifier a.b\n   QueryParameter n:UInt64\n");
    tree_passes(SELECT "   TableExpression (children 1)\n    Function numbers (children 1)\n");
    tree_passes(SELECT "   TableExpression (children 1)\n    TableIdentifier q.events\n");
    tree_passes(SELECT "   Function regexpExtract (children 1)\n   Function position");
}

static void test_trees_that_do_not(void **state)
{
    static const char one[] = "one SELECT";
    static const char function[] = "this function is not open";
    static const char table_function[] = "this table function is not open";

    (void)state;
    tree_refused("", "no tree");
    tree_refused("\n", one);
    tree_refused("SelectWithUnionQuery (children 2)\n", one);
    tree_refused("SelectWithUnionQuery\n", one);
    tree_refused(" " ROOT, one);
    tree_refused("Set\n", one);
    tree_refused("InsertQuery (children 1)\n", one);
    tree_refused(SELECT "   Set\n", "this kind of expression");
    tree_refused(SELECT "   ColumnsApplyTransformer\n", "ColumnsApplyTransformer");
    tree_refused(SELECT "   literal 1\n", "this kind of expression");
    tree_refused(SELECT "\n   Literal 1\n", "cannot be read");
    tree_refused(SELECT "   Function file (children 1)\n", function);
    tree_refused(SELECT "   Function FILE (alias x) (children 1)\n", function);
    tree_refused(SELECT "   Function dictGetString (children 1)\n", function);
    tree_refused(SELECT "   Function regionToName (children 1)\n", function);
    tree_refused(SELECT "   Function aiGenerate (children 1)\n", function);
    tree_refused(SELECT "   Function hostName (children 1)\n", function);
    tree_refused(SELECT "   Function displayName (children 1)\n", function);
    tree_refused(SELECT "   Function __getScalar (children 1)\n", function);
    tree_refused(SELECT "   Function sqlite (children 1)\n", table_function);
    tree_refused(SELECT "   Function remoteSecure (children 1)\n", table_function);
    tree_refused(SELECT "   Identifier file\n", "this name is a function's");
    tree_refused(SELECT "   Identifier file (alias f)\n", "this name is a function's");
    tree_refused(SELECT "   QueryParameter f:Identifier\n", "cannot stand for a name");
    tree_refused(SELECT "   TableExpression (children 1)\n    Function merge (children 1)\n",
                 table_function);
    tree_refused(SELECT "   TableExpression (children 1)\n    Function values (children 1)\n",
                 table_function);
    tree_refused(SELECT "   TableExpression (children 1)\n    Function sum (children 1)\n",
                 table_function);
}

static void test_depth(void **state)
{
    struct buf tree = {0};
    char reason[GATE_REASON_BYTES];

    (void)state;
    buf_put_cstr(&tree, ROOT);
    for (int i = 0; i < 2000; i++) {
        buf_put_char(&tree, ' ');
    }
    buf_put_cstr(&tree, "Literal 1\n");
    assert_false(gate_tree(buf_slice(&tree), reason));
    assert_non_null(strstr(reason, "cannot be read"));
    buf_free(&tree);
}

/* A reason is bounded and printable, whatever the name. */
static void test_reasons(void **state)
{
    struct buf sql = {0};
    char reason[GATE_REASON_BYTES];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        buf_put_cstr(&sql, "x");
    }
    assert_false(gate_text(buf_slice(&sql), reason));
    assert_true(strlen(reason) < GATE_REASON_BYTES);
    assert_false(gate_tree(SLICE(ROOT "Function\n file\x01\n"), reason));
    for (const char *p = reason; *p != '\0'; p++) {
        assert_true((unsigned char)*p >= 0x20);
    }
    buf_free(&sql);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_that_pass), cmocka_unit_test(test_texts_that_do_not),
        cmocka_unit_test(test_trees_that_pass), cmocka_unit_test(test_trees_that_do_not),
        cmocka_unit_test(test_depth),           cmocka_unit_test(test_reasons),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
