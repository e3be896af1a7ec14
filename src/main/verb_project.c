/* tallyman project: projects. `create ID` makes one and prints its capture token, with --directory
 * or --credentials-file one that takes artifacts too; `set ID` changes how those are delivered;
 * `list` shows all, `show ID` one with its keys and the state of its delivery. */
#include <string.h>

#include "main/api.h"
#include "main/args.h"
#include "main/output.h"
#include "main/project_settings.h"
#include "main/verbs.h"
#include "json/read.h"
#include "json/write.h"

#define VERB       "project"
#define NAME_WIDTH 35 /* delivery.oldest_pending_received_at */

struct project_verb {
    struct client_target target;
    const char *title;
    struct project_settings settings;
    bool json;
};

static void print_json(struct slice body)
{
    output_put(body);
    output_put(SLICE("\n"));
}

enum how { GET, POST, PATCH };

static bool call(const struct project_verb *p, struct buf *path, enum how how, struct slice body,
                 struct client_answer *answer, int *code)
{
    buf_put_char(path, '\0');
    if (path->failed) {
        output_error(VERB, "out of memory");
        *code = EXIT_FAILED;
        return false;
    }
    const struct client_request req = {
        .path = path->ptr,
        .post = how != GET,
        .patch = how == PATCH,
        .body = body,
        .repeatable = how != POST}; /* a change that was made is made again to the same end */
    return api_call(&p->target, &req, answer, code);
}

/* A line of it, where there is one. */
static void print_destination(const char *name, struct slice project)
{
    struct buf b = {0};
    project_settings_put_short(&b, project);
    if (b.len > 0) {
        output_printf("%s%.*s\n", name, (int)b.len, b.ptr);
    }
    buf_free(&b);
}

static int create(const struct project_verb *p, const char *id)
{
    struct client_answer answer;
    struct buf path = {0};
    struct buf body = {0};
    int code = EXIT_DONE;
    buf_put_cstr(&path, "/api/v1/projects");
    buf_put_cstr(&body, "{\"id\":");
    json_put_string(&body, slice_cstr(id));
    if (p->title != NULL) {
        buf_put_cstr(&body, ",\"name\":");
        json_put_string(&body, slice_cstr(p->title));
    }
    if (project_settings_given(&p->settings)) {
        buf_put_cstr(&body, ",\"artifacts\":");
        project_settings_put(&body, &p->settings);
    }
    buf_put_char(&body, '}');
    if (body.failed) {
        output_error(VERB, "out of memory");
        code = EXIT_FAILED;
    } else if (call(p, &path, POST, buf_slice(&body), &answer, &code)) {
        struct slice object = buf_slice(&answer.body);
        if (p->json) {
            print_json(object);
        } else {
            struct slice token = api_text(object, "capture_token");
            output_printf("project %s\ncapture token %.*s\n", id, (int)token.len, token.ptr);
            print_destination("artifacts ", object);
        }
        client_answer_free(&answer);
    }
    buf_free(&path);
    buf_free(&body);
    return code;
}

/* `set ID`: prints how its files are delivered from now on. */
static int change(const struct project_verb *p, const char *id)
{
    struct client_answer answer;
    struct buf path = {0};
    struct buf body = {0};
    int code = EXIT_DONE;
    api_put_path(&path, "/api/v1/projects/", slice_cstr(id));
    buf_put_cstr(&body, "{\"artifacts\":");
    project_settings_put(&body, &p->settings);
    buf_put_char(&body, '}');
    if (body.failed) {
        output_error(VERB, "out of memory");
        code = EXIT_FAILED;
    } else if (call(p, &path, PATCH, buf_slice(&body), &answer, &code)) {
        struct slice object = buf_slice(&answer.body);
        if (p->json) {
            print_json(object);
        } else {
            output_printf("project %s\n", id);
            print_destination("artifacts ", object);
            project_settings_print(object, 26); /* artifacts.credentials_file */
        }
        client_answer_free(&answer);
    }
    buf_free(&path);
    buf_free(&body);
    return code;
}

static bool list_table(struct slice body)
{
    struct slice rows;
    struct slice item;
    struct table t;
    if (!json_member(body, SLICE("projects"), &rows)) {
        return false;
    }
    table_begin(&t, 5);
    table_cell(&t, SLICE("PROJECT"));
    table_cell(&t, SLICE("NAME"));
    table_cell(&t, SLICE("CREATED"));
    table_cell(&t, SLICE("CAPTURE TOKEN"));
    table_cell(&t, SLICE("ARTIFACTS"));
    struct json_iter it = json_iter_array(rows);
    while (json_next_element(&it, &item)) {
        table_cell_member(&t, item, "id");
        table_cell_member(&t, item, "name");
        table_cell_member(&t, item, "created_at");
        table_cell_member(&t, item, "capture_token");
        struct buf destination = {0};
        project_settings_put_short(&destination, item);
        table_cell(&t, buf_slice(&destination));
        t.text.failed = t.text.failed || destination.failed;
        buf_free(&destination);
    }
    return table_end(&t) && !it.bad;
}

static bool show_one(struct slice body)
{
    static const char *const fields[] = {"id", "name", "created_at", "capture_token"};
    struct slice delivery;
    struct slice keys;
    struct slice name;
    struct slice value;
    struct slice item;
    struct table t;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        output_printf("%-*s ", NAME_WIDTH, fields[i]);
        api_print_member(body, fields[i]);
        output_put(SLICE("\n"));
    }
    struct buf destination = {0};
    project_settings_put_short(&destination, body);
    output_printf("%-*s %.*s\n", NAME_WIDTH, "artifacts", (int)destination.len,
                  destination.len > 0 ? destination.ptr : "");
    buf_free(&destination);
    project_settings_print(body, NAME_WIDTH);
    if (!json_member(body, SLICE("keys"), &keys)) {
        return false;
    }
    if (json_member(body, SLICE("delivery"), &delivery)) {
        struct json_iter it = json_iter_object(delivery);
        while (json_next_member(&it, &name, &value)) {
            struct slice inner;
            value = json_string_raw(value, &inner) ? inner : value;
            output_printf("delivery.%-*.*s %.*s\n", NAME_WIDTH - 9, (int)name.len, name.ptr,
                          (int)value.len, value.ptr);
        }
    }
    output_put(SLICE("\n"));
    table_begin(&t, 6);
    static const char *const heads[] = {"KEY", "KIND", "NAME", "SCOPES", "TOKEN", "REVOKED"};
    for (size_t i = 0; i < 6; i++) {
        table_cell(&t, slice_cstr(heads[i]));
    }
    struct json_iter it = json_iter_array(keys);
    while (json_next_element(&it, &item)) {
        table_cell_member(&t, item, "id");
        table_cell_member(&t, item, "kind");
        table_cell_member(&t, item, "name");
        table_cell_member(&t, item, "scopes");
        table_cell_member(&t, item, "token");
        table_cell_member(&t, item, "revoked_at");
    }
    return table_end(&t) && !it.bad;
}

/* `list` and `show ID`. */
static int get(const struct project_verb *p, const char *id)
{
    struct client_answer answer;
    struct buf path = {0};
    int code = EXIT_DONE;
    if (id == NULL) {
        buf_put_cstr(&path, "/api/v1/projects");
    } else {
        api_put_path(&path, "/api/v1/projects/", slice_cstr(id));
    }
    if (call(p, &path, GET, (struct slice){0}, &answer, &code)) {
        struct slice body = buf_slice(&answer.body);
        if (p->json) {
            print_json(body);
        } else if (!(id == NULL ? list_table(body) : show_one(body))) {
            output_error(VERB, "the answer is not what this program understands");
            code = EXIT_FAILED;
        }
        client_answer_free(&answer);
    }
    buf_free(&path);
    return code;
}

int verb_project(int argc, char **argv)
{
    struct project_verb p = {
        .target = {.verb = VERB, .timeout_s = CLIENT_TIMEOUT_S, .retry_s = CLIENT_RETRY_S}};
    const struct arg_option options[] = {
        {.name = "name",
         .type = ARG_TEXT,
         .target = &p.title,
         .value = "TEXT",
         .help = "with create: a name for people"},
        PROJECT_SETTINGS_OPTIONS(p.settings),
        CLIENT_OPTION_DATA(p.target),
        CLIENT_OPTIONS_URL(p.target),
        CLIENT_OPTION_TIMEOUT(p.target),
        CLIENT_OPTION_RETRY(p.target),
        {.name = "json", .type = ARG_SWITCH, .target = &p.json, .help = "print the JSON answer"},
    };
    const struct arg_verb verb = {
        .name = VERB,
        .operands = "create ID | set ID | list | show ID",
        .about =
            "Creates, changes, lists and shows projects. An ID is 1 to 63 lower-case letters,\n"
            "digits, '_' and '-'. Each project has a capture token, which SDKs send and anybody\n"
            "may see. One with a directory or a key file takes files, too; set changes how those\n"
            "are delivered, from the next one on: what is not given stays, and an empty value\n"
            "goes back to the default.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .operands_min = 1,
        .operands_max = 2};
    struct args args;
    int code = EXIT_USAGE;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    const char *what = args.operand[0];
    const char *id = args.operand_count > 1 ? args.operand[1] : NULL;
    bool creates = strcmp(what, "create") == 0, sets = strcmp(what, "set") == 0;
    bool given = project_settings_given(&p.settings);
    const char *mistake = project_settings_mistake(&p.settings, creates);
    if (given && !creates && !sets) {
        mistake = "settings of its files go with create and set";
    } else if (sets && !given) {
        mistake = "set needs what is to be changed: see --help";
    } else if (sets && p.title != NULL) {
        mistake = "--name goes with create";
    }
    if (mistake != NULL) {
        output_error(VERB, "%s", mistake);
        return EXIT_USAGE;
    }
    if (creates && id != NULL) {
        return output_close(VERB, create(&p, id));
    }
    if (sets && id != NULL) {
        return output_close(VERB, change(&p, id));
    }
    if ((strcmp(what, "list") == 0 && id == NULL) || (strcmp(what, "show") == 0 && id != NULL)) {
        return output_close(VERB, get(&p, id));
    }
    output_error(VERB, "must be followed by: create ID, set ID, list, or show ID");
    return EXIT_USAGE;
}
