/* tallyman key: the keys of a project. `create` prints a new key's text: for a service key the only
 * time that it is seen. */
#include <string.h>

#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/verbs.h"
#include "json/read.h"
#include "json/write.h"

#define VERB "key"

struct key_verb {
    struct client_target target;
    const char *kind, *name, *scopes;
    bool json;
};

/* `a,b c` as ["a","b","c"]. */
static void put_scopes(struct buf *out, const char *text)
{
    const char *between = "[";
    while (*text != '\0') {
        size_t n = strcspn(text, ", ");
        if (n > 0) {
            buf_put_cstr(out, between);
            json_put_string(out, slice_of(text, n));
            between = ",";
        }
        text += n;
        text += strspn(text, ", ");
    }
    buf_put_cstr(out, between[0] == '[' ? "[]" : "]");
}

static void put_body(const struct key_verb *k, struct buf *body)
{
    buf_put_cstr(body, "{\"kind\":");
    json_put_string(body, slice_cstr(k->kind));
    /* A public key's name becomes the source of its events: a capture key without one is the
     * server's "default". */
    if (k->name != NULL || strcmp(k->kind, "capture") != 0) {
        buf_put_cstr(body, ",\"name\":");
        json_put_string(body, slice_cstr(k->name != NULL ? k->name : k->kind));
    }
    if (k->scopes != NULL) {
        buf_put_cstr(body, ",\"scopes\":");
        put_scopes(body, k->scopes);
    }
    buf_put_char(body, '}');
}

static bool list_table(struct slice body)
{
    static const char *const heads[] = {"KEY",     "KIND",    "NAME", "SCOPES",
                                        "CREATED", "REVOKED", "TOKEN"};
    static const char *const names[] = {"id",         "kind",       "name", "scopes",
                                        "created_at", "revoked_at", "token"};
    struct slice rows;
    struct slice item;
    struct table t;
    if (!json_member(body, SLICE("keys"), &rows)) {
        return false;
    }
    table_begin(&t, 7);
    for (size_t i = 0; i < 7; i++) {
        table_cell(&t, slice_cstr(heads[i]));
    }
    struct json_iter it = json_iter_array(rows);
    while (json_next_element(&it, &item)) {
        for (size_t i = 0; i < 7; i++) {
            table_cell_member(&t, item, names[i]);
        }
    }
    return table_end(&t) && !it.bad;
}

static int show(const struct key_verb *k, const char *what, struct slice body)
{
    if (k->json && body.len > 0) {
        output_put(body);
        output_put(SLICE("\n"));
    } else if (strcmp(what, "list") == 0) {
        if (!list_table(body)) {
            output_error(VERB, "the answer is not what this program understands");
            return EXIT_FAILED;
        }
    } else if (strcmp(what, "create") == 0) {
        struct slice id = api_text(body, "id");
        struct slice token = api_text(body, "token");
        output_printf("key %.*s\n%s %.*s\n", (int)id.len, id.ptr,
                      strcmp(k->kind, "service") == 0 ? "token (shown only now)" : "token",
                      (int)token.len, token.ptr);
    }
    return EXIT_DONE;
}

static int run(const struct key_verb *k, const char *what, const char *project, const char *key)
{
    struct client_answer answer;
    struct buf path = {0};
    struct buf body = {0};
    int code = EXIT_DONE;
    bool create = strcmp(what, "create") == 0;
    api_put_path(&path, "/api/v1/projects/", slice_cstr(project));
    if (key != NULL) {
        api_put_path(&path, "/keys/", slice_cstr(key));
    } else {
        buf_put_cstr(&path, "/keys");
    }
    buf_put_char(&path, '\0');
    if (create) {
        put_body(k, &body);
    }
    if (path.failed || body.failed) {
        output_error(VERB, "out of memory");
        code = EXIT_FAILED;
    } else {
        const struct client_request req = {.path = path.ptr,
                                           .post = create,
                                           .remove = key != NULL,
                                           .body = buf_slice(&body),
                                           .repeatable = !create};
        if (api_call(&k->target, &req, &answer, &code)) {
            code = show(k, what, buf_slice(&answer.body));
            client_answer_free(&answer);
        }
    }
    buf_free(&path);
    buf_free(&body);
    return code;
}

int verb_key(int argc, char **argv)
{
    struct key_verb k = {
        .kind = "service",
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "kind",
         .type = ARG_TEXT,
         .target = &k.kind,
         .value = "KIND",
         .help = "capture, segment or service (default service)"},
        {.name = "name",
         .type = ARG_TEXT,
         .target = &k.name,
         .value = "NAME",
         .help = "its name; of a public key: the source of its events"},
        {.name = "scopes",
         .type = ARG_TEXT,
         .target = &k.scopes,
         .value = "LIST",
         .help = "what a service key may do, as query:read,events:write"},
        CLIENT_OPTION_DATA(k.target),
        CLIENT_OPTIONS_URL(k.target),
        CLIENT_OPTION_TIMEOUT(k.target),
        CLIENT_OPTION_RETRY(k.target),
        {.name = "json", .type = ARG_SWITCH, .target = &k.json, .help = "print the JSON answer"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "create PROJECT | list PROJECT | revoke PROJECT KEY",
        .about =
            "Creates, lists and revokes the keys of a project. Scopes: events:write events:read "
            "events:edit\nquery:read artifacts:read artifacts:release projects:admin.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 2,
        .operands_max = 3};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    const char *what = args.operand[0];
    bool revoke = strcmp(what, "revoke") == 0;
    bool known = revoke || strcmp(what, "create") == 0 || strcmp(what, "list") == 0;
    if (!known || args.operand_count != (revoke ? 3u : 2u)) {
        output_error(VERB,
                     "must be followed by: create PROJECT, list PROJECT, or revoke PROJECT KEY");
        return EXIT_USAGE;
    }
    if (strcmp(what, "create") == 0 && strcmp(k.kind, "service") == 0 && k.scopes == NULL) {
        output_error(VERB, "--scopes: a service key needs at least one, as query:read,events:read");
        return EXIT_USAGE;
    }
    return output_close(VERB, run(&k, what, args.operand[1], revoke ? args.operand[2] : NULL));
}
