/* gate: an allow-list of what a project's statement is made of.
 *
 * EXPLAIN AST prints a node a line, indented by its depth:
 *
 *     SelectWithUnionQuery (children 1)
 *      ExpressionList (children 1)
 *       SelectQuery (children 2)
 *        ExpressionList (children 1)
 *         Function count (alias n) (children 1)
 *
 * The kind is the first word, names follow it. A kind that is not in the table is refused, so what
 * a newer parser may add is closed until somebody looked at it; APPLY is missing on purpose, for
 * its function's name is not printed. A name could try to print lines of its own: names with
 * control bytes or backslashes are refused by gate_text, and an added line can only add refusals.
 *
 * Functions are refused by name where the engine gives them without asking for rights and they read
 * files, call hosts, or tell of the machine. The same names are refused as identifiers where they
 * reach data, for `arrayMap(file, ...)` takes a function by its name. Table functions are the other
 * way round: only those that make numbers are let through.
 *
 * Answers only: everything here says yes or no. */
#include "engine/gate.h"

#include "base/buf.h"
#include "engine/sql.h"

#define DEPTH_MAX 1000u /* the engine's own max_ast_depth */

static const char *const kinds[] = {
    "SelectWithUnionQuery",
    "SelectIntersectExceptQuery",
    "SelectQuery",
    "ExpressionList",
    "Literal",
    "Identifier",
    "TableIdentifier",
    "Function",
    "Subquery",
    "QueryParameter",
    "Asterisk",
    "QualifiedAsterisk",
    "ColumnsRegexpMatcher",
    "ColumnsListMatcher",
    "QualifiedColumnsRegexpMatcher",
    "QualifiedColumnsListMatcher",
    "ColumnsTransformerList",
    "ColumnsExceptTransformer",
    "ColumnsReplaceTransformer",
    "ColumnsReplaceTransformer::Replacement",
    "TablesInSelectQuery",
    "TablesInSelectQueryElement",
    "TableExpression",
    "TableJoin",
    "ArrayJoin",
    "OrderByElement",
    "InterpolateElement",
    "WithElement",
    "WindowDefinition",
    "WindowListElement",
    "SampleRatio",
};

/* Functions that reach files, hosts, models, or tables by name. */
static const char *const reaching[] = {
    "file",
    "aiclassify",
    "aigenerate",
    "aiembed",
    "aiextract",
    "aitranslate",
    "evalmlmethod",
    "catboostevaluate",
    "joinget",
    "joingetornull",
    "eval",
    "executable",
    "dictget",
    "naivebayesclassifier",
    "naivebayesclassifierwithprob",
    "naivebayesclassifierwithallprobs",
};

/* Beginnings of such functions' names. */
static const char *const reaching_families[] = {"dictget", "dicthas", "dictisin", "region"};

/* Beginnings of table functions' names that mean nothing else: where a function of values stands,
 * as in `x IN sqlite(...)`, they are refused as well. */
static const char *const tables_elsewhere[] = {
    "sqlite",      "mysql",
    "postgresql",  "mongodb",
    "redis",       "remote",
    "s3",          "hdfs",
    "jdbc",        "odbc",
    "azure",       "iceberg",
    "paimon",      "deltalake",
    "hudi",        "gcs",
    "oss",         "cosn",
    "ytsaurus",    "mergetree",
    "cluster",     "filesystem",
    "prometheus",  "arrowstream",
    "loop",        "viewifpermitted",
    "viewexplain", "filecluster",
    "python",
};

/* Functions that tell of the machine or its other users, or hold a thread. */
static const char *const telling[] = {
    "addresstoline",
    "addresstolinewithinlines",
    "addresstosymbol",
    "demangle",
    "tid",
    "logtrace",
    "getserversetting",
    "getmergetreesetting",
    "getserverport",
    "tcpport",
    "getmacro",
    "showcertificate",
    "filesystemavailable",
    "filesystemcapacity",
    "filesystemunreserved",
    "buildid",
    "serveruuid",
    "hostname",
    "displayname",
    "fqdn",
    "fullhostname",
    "getoskernelversion",
    "getclienthttpheader",
    "hascolumnintable",
    "generateserialid",
    "zookeepersessionuptime",
    "transactionid",
    "transactionlatestsnapshot",
    "transactionoldestsnapshot",
    "sleep",
    "sleepeachrow",
    "uptime",
    "globalvariable",
    "getmaxtablenamelengthfordatabase",
    "hasthreadfuzzer",
    "connectionid",
    "connection_id",
};

static const char *const table_functions[] = {
    "numbers", "numbers_mt", "zeros", "zeros_mt", "generateseries", "generate_series", "primes",
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static bool equal_fold(struct slice s, const char *lower, bool prefix)
{
    size_t i = 0;

    for (; i < s.len && lower[i] != '\0'; i++) {
        char c = s.ptr[i];

        if ((c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c) != lower[i]) {
            return false;
        }
    }
    return lower[i] == '\0' && (prefix || i == s.len);
}

static bool is_among(struct slice s, const char *const *list, size_t count, bool prefix)
{
    for (size_t i = 0; i < count; i++) {
        if (equal_fold(s, list[i], prefix)) {
            return true;
        }
    }
    return false;
}

static bool refuse(char reason[GATE_REASON_BYTES], const char *what, struct slice name)
{
    struct buf text = {.ptr = reason, .cap = GATE_REASON_BYTES, .limit = GATE_REASON_BYTES - 1};
    size_t n = name.len < 60 ? name.len : 60;

    buf_put_cstr(&text, what);
    for (size_t i = 0; i < n; i++) {
        buf_put_char(&text, (unsigned char)name.ptr[i] < 0x20 ? '?' : name.ptr[i]);
    }
    reason[text.len] = '\0';
    return false;
}

bool gate_text(struct slice sql, char reason[GATE_REASON_BYTES])
{
    struct sql_shape shape;
    struct sql_token first;

    if (sql.len > GATE_SQL_BYTES_MAX) {
        return refuse(reason, "the statement is too long", (struct slice){0});
    }
    if (sql.len != 0 && memchr(sql.ptr, '\0', sql.len) != NULL) {
        return refuse(reason, "the statement has a NUL byte in it", (struct slice){0});
    }
    sql_shape(sql, &shape);
    first = (struct sql_token){.kind = SQL_WORD, .text = shape.first};
    if (shape.odd_name) {
        return refuse(reason, "a name with a backslash or control character, or an open quote",
                      (struct slice){0});
    }
    if (!sql_is_word(&first, "SELECT") && !sql_is_word(&first, "WITH") &&
        !slice_eq(shape.first, SLICE("("))) {
        return refuse(reason, "only SELECT statements are answered, not ", shape.first);
    }
    if (shape.format.len != 0) {
        return refuse(reason,
                      "the form of the answer is asked for beside the statement, not by "
                      "FORMAT ",
                      shape.format);
    }
    return true;
}

/* One line of the tree. */
struct node {
    unsigned depth;
    struct slice kind;
    struct slice name;     /* behind the kind, up to " (" */
    struct slice children; /* "(children N)" at the end of the line, or empty */
};

static struct slice find(struct slice s, const char *what)
{
    const char *at = s.len != 0 ? memmem(s.ptr, s.len, what, strlen(what)) : NULL;

    return at != NULL ? slice_from(s, (size_t)(at - s.ptr)) : (struct slice){0};
}

static void node_read(struct slice line, struct node *n)
{
    struct slice tail;
    const char *end;

    *n = (struct node){0};
    while (n->depth < line.len && line.ptr[n->depth] == ' ') {
        n->depth++;
    }
    line = slice_from(line, n->depth);
    end = line.len != 0 ? memchr(line.ptr, ' ', line.len) : NULL;
    n->kind = slice_of(line.ptr, end != NULL ? (size_t)(end - line.ptr) : line.len);
    n->name = slice_from(line, n->kind.len + (end != NULL ? 1 : 0));
    tail = find(line, "(children ");
    n->children = tail;
    tail = n->name.len != 0 && n->name.ptr[0] == '(' ? n->name : find(n->name, " (");
    n->name.len -= tail.len;
}

static bool reaches(struct slice name)
{
    return is_among(name, reaching, COUNT(reaching), false) ||
           is_among(name, reaching_families, COUNT(reaching_families), true);
}

static bool function_passes(struct slice name, bool of_table, char reason[GATE_REASON_BYTES])
{
    if (of_table) {
        return is_among(name, table_functions, COUNT(table_functions), false) ||
               refuse(reason, "this table function is not open to projects: ", name);
    }
    if (is_among(name, tables_elsewhere, COUNT(tables_elsewhere), true)) {
        return refuse(reason, "this table function is not open to projects: ", name);
    }
    if (reaches(name) || is_among(name, telling, COUNT(telling), false) ||
        (name.len > 1 && name.ptr[0] == '_' && name.ptr[1] == '_')) {
        return refuse(reason, "this function is not open to projects: ", name);
    }
    return true;
}

static bool parameter_passes(struct slice name, char reason[GATE_REASON_BYTES])
{
    return find(name, ":Identifier").len == 0 ||
           refuse(reason, "a parameter cannot stand for a name: ", name);
}

static bool node_passes(const struct node *n, bool in_table, char reason[GATE_REASON_BYTES])
{
    bool known = false;

    for (size_t i = 0; i < COUNT(kinds) && !known; i++) {
        known = slice_eq(n->kind, slice_cstr(kinds[i]));
    }
    if (!known) {
        return refuse(reason, "this kind of expression is not open to projects: ", n->kind);
    }
    if (slice_eq(n->kind, SLICE("Function"))) {
        return function_passes(n->name, in_table, reason);
    }
    if (slice_eq(n->kind, SLICE("Identifier")) && reaches(n->name)) {
        return refuse(reason, "this name is a function's that is not open to projects: ", n->name);
    }
    if (slice_eq(n->kind, SLICE("QueryParameter"))) {
        return parameter_passes(n->name, reason);
    }
    return true;
}

bool gate_tree(struct slice tree, char reason[GATE_REASON_BYTES])
{
    unsigned table_depth = DEPTH_MAX; /* of the last TableExpression line, when it was the last */
    bool first = true;

    while (tree.len != 0) {
        const char *end = memchr(tree.ptr, '\n', tree.len);
        struct slice line = slice_of(tree.ptr, end != NULL ? (size_t)(end - tree.ptr) : tree.len);
        struct node n;

        tree = slice_from(tree, line.len + (end != NULL ? 1 : 0));
        node_read(line, &n);
        if (first && (n.depth != 0 || !slice_eq(n.kind, SLICE("SelectWithUnionQuery")) ||
                      !slice_eq(n.children, SLICE("(children 1)")))) {
            return refuse(reason,
                          "one SELECT, without INTO OUTFILE, FORMAT or SETTINGS, is answered",
                          (struct slice){0});
        }
        if ((line.len == 0 && tree.len != 0) || n.depth >= DEPTH_MAX) {
            return refuse(reason, "the statement's tree cannot be read", (struct slice){0});
        }
        if (line.len != 0 && !node_passes(&n, n.depth == table_depth + 1, reason)) {
            return false;
        }
        table_depth = slice_eq(n.kind, SLICE("TableExpression")) ? n.depth : DEPTH_MAX;
        first = false;
    }
    return !first || refuse(reason, "the statement has no tree", (struct slice){0});
}
