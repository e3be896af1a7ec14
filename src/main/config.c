/* The order of precedence, the checks that look at more than one key, and the options of `serve`
 * that are about the configuration itself. Nothing here touches the data directory: --check-config
 * is safe beside a running server. */
#include "main/config.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "http/forwarded.h"
#include "main/args.h"
#include "main/config_internal.h"
#include "main/output.h"
#include "main/token.h"
#include "json/write.h"

const struct config_row config_rows[CONFIG_KEY_COUNT] = {
#define X(sym, field, type, def, min, max, flag, env, help) \
    {#field, flag, env, def, help, CONFIG_##type, min, max},
    CONFIG_KEYS(X)
#undef X
};

#define SOCKET_PATH_MAX       107 /* sun_path without its NUL */
#define ENGINE_SOCKET_IN_DATA "/engine/engine.sock"

static const char *const origin_names[] = {"default", "file", "env", "flag"};

#define IS_TEXT                                             0
#define IS_BYTES                                            0
#define IS_UINT                                             0
#define IS_MS                                               0
#define IS_LEVEL                                            0
#define IS_FLAG                                             1
#define X(sym, field, type, def, min, max, flag, env, help) +IS_##type
enum {
    SWITCH_COUNT = CONFIG_KEYS(X), /* --no-NAME */
    OWN_COUNT = 3,                 /* --config and the like */
    OPTION_COUNT = (int)CONFIG_KEY_COUNT + SWITCH_COUNT + OWN_COUNT
};
#undef X

static_assert(OPTION_COUNT <= ARGS_OPTIONS_MAX, "every key needs a flag");

static int set_named(struct config *c, enum config_key k, const char *text, enum config_origin from,
                     struct err *e)
{
    struct err why = {0};
    int r = config_set(c, k, slice_cstr(text), from, &why);
    if (r != 0) {
        bool flag = from == CONFIG_FROM_FLAG;
        (void)err_set(e, r, "%s%s: %s", flag ? "--" : "",
                      flag ? config_rows[k].flag : config_rows[k].env, why.text);
    }
    return r;
}

/* listen has passed config_set; empty and localhost are no risk. */
static bool listens_beyond_loopback(const char *listen)
{
    char host[INET6_ADDRSTRLEN];
    const char *colon = strrchr(listen, ':');
    bool v6 = listen[0] == '[';
    size_t skip = v6 ? 1 : 0;
    size_t n = colon != NULL ? (size_t)(colon - listen) - 2 * skip : 0;
    if (n == 0) {
        return false;
    }
    ensure(n < sizeof host);
    memcpy(host, listen + skip, n);
    host[n] = '\0';
    struct in_addr a4;
    struct in6_addr a6;
    if (v6) {
        return inet_pton(AF_INET6, host, &a6) == 1 && !IN6_IS_ADDR_LOOPBACK(&a6);
    }
    return inet_pton(AF_INET, host, &a4) == 1 && ntohl(a4.s_addr) >> 24 != 127;
}

/* The URL holds no secret (it is shown in logs and errors), and a password needs its user. */
static int check_clickhouse(struct config *c, struct err *e)
{
    const char *url = c->clickhouse_url;
    const char *origin = origin_names[c->origin[CONFIG_CLICKHOUSE_URL]];
    if (url[0] != '\0' && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        return err_set(e, ERR_USAGE, "clickhouse_url (from %s) must begin with http:// or https://",
                       origin);
    }
    if (strpbrk(url, "@?# \t") != NULL) {
        return err_set(
            e, ERR_USAGE,
            "clickhouse_url (from %s) must be http://HOST:PORT, without a user, a secret "
            "or a query",
            origin);
    }
    if (url[0] == '\0' &&
        (c->clickhouse_user[0] != '\0' || c->clickhouse_password_file[0] != '\0')) {
        return err_set(e, ERR_USAGE,
                       "clickhouse_user and clickhouse_password_file need a clickhouse_url");
    }
    if (c->clickhouse_password_file[0] != '\0') {
        if (c->clickhouse_user[0] == '\0') {
            return err_set(e, ERR_USAGE, "clickhouse_password_file needs a clickhouse_user");
        }
        return token_from_file(c->clickhouse_password_file, &c->clickhouse_password, e);
    }
    return 0;
}

static int check_proxies(const struct config *c, struct err *e)
{
    struct http_networks networks;
    struct err why = {0};
    return http_networks_parse(c->trusted_proxies, &networks, &why) == 0
               ? 0
               : err_set(e, ERR_USAGE, "trusted_proxies (from %s): %s",
                         origin_names[c->origin[CONFIG_TRUSTED_PROXIES]], why.text);
}

static int check_together(struct config *c, struct err *e)
{
    if (c->replay_default_limit > c->replay_max_limit) {
        return err_set(e, ERR_USAGE,
                       "replay_default_limit (%llu, from %s) must not be above replay_max_limit "
                       "(%llu, from %s)",
                       (unsigned long long)c->replay_default_limit,
                       origin_names[c->origin[CONFIG_REPLAY_DEFAULT_LIMIT]],
                       (unsigned long long)c->replay_max_limit,
                       origin_names[c->origin[CONFIG_REPLAY_MAX_LIMIT]]);
    }
    if (c->engine && c->clickhouse_url[0] == '\0' &&
        strlen(c->data) + strlen(ENGINE_SOCKET_IN_DATA) > SOCKET_PATH_MAX) {
        return err_set(
            e, ERR_USAGE,
            "data (from %s): the engine's socket in it would have a path of more than %d "
            "bytes; choose a shorter one, or engine = off",
            origin_names[c->origin[CONFIG_DATA]], SOCKET_PATH_MAX);
    }
    int r = check_clickhouse(c, e);
    if (r == 0) {
        r = check_proxies(c, e);
    }
    if (r != 0) {
        return r;
    }
    if (c->token_file[0] != '\0') {
        return token_from_file(c->token_file, &c->token, e);
    }
    if (listens_beyond_loopback(c->listen)) {
        return err_set(
            e, ERR_USAGE,
            "listen (\"%.60s\", from %s) is not a loopback address; that needs a token_file",
            c->listen, origin_names[c->origin[CONFIG_LISTEN]]);
    }
    return 0;
}

int config_load(struct config *c, const char *const flags[CONFIG_KEY_COUNT], const char *file,
                struct err *e)
{
    *c = (struct config){0};
    buf_init(&c->token, TOKEN_MAX);
    buf_init(&c->clickhouse_password, TOKEN_MAX);
    int r = 0;
    for (unsigned i = 0; r == 0 && i < CONFIG_KEY_COUNT; i++) {
        r = config_set(c, (enum config_key)i, slice_cstr(config_rows[i].fallback),
                       CONFIG_FROM_DEFAULT, e);
        ensure(r == 0 || r == ERR_NO_MEMORY); /* the table's own defaults are in range */
    }
    if (r == 0 && file != NULL) {
        (void)snprintf(c->file, sizeof c->file, "%s", file);
        r = config_read_file(c, file, e);
    }
    for (unsigned i = 0; r == 0 && i < CONFIG_KEY_COUNT; i++) {
        const char *text = getenv(config_rows[i].env);
        r = text != NULL ? set_named(c, (enum config_key)i, text, CONFIG_FROM_ENV, e) : 0;
    }
    for (unsigned i = 0; r == 0 && i < CONFIG_KEY_COUNT; i++) {
        r = flags[i] != NULL ? set_named(c, (enum config_key)i, flags[i], CONFIG_FROM_FLAG, e) : 0;
    }
    return r == 0 ? check_together(c, e) : r;
}

void config_free(struct config *c)
{
#define FREE_TEXT(field) free(c->field);
#define FREE_BYTES(field)
#define FREE_UINT(field)
#define FREE_MS(field)
#define FREE_LEVEL(field)
#define FREE_FLAG(field)
#define X(sym, field, type, def, min, max, flag, env, help) FREE_##type(field)
    CONFIG_KEYS(X)
#undef X
    token_forget(&c->token);
    token_forget(&c->clickhouse_password);
    *c = (struct config){0};
}

void config_print(const struct config *c, struct buf *out)
{
    buf_put_char(out, '{');
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        buf_put_cstr(out, i == 0 ? "\n  " : ",\n  ");
        json_put_string(out, slice_cstr(config_rows[i].name));
        buf_put_cstr(out, ": {\"value\":");
        config_put_value(c, (enum config_key)i, out);
        buf_put_cstr(out, ",\"from\":");
        json_put_string(out, slice_cstr(origin_names[c->origin[i]]));
        buf_put_char(out, '}');
    }
    buf_put_cstr(out, "\n}\n");
}

const char *config_default_data(void)
{
    const char *env = getenv(config_rows[CONFIG_DATA].env);
    return env != NULL && env[0] != '\0' ? env : config_rows[CONFIG_DATA].fallback;
}

struct begin {
    const char *flags[CONFIG_KEY_COUNT];
    bool off[CONFIG_KEY_COUNT]; /* --no-NAME */
    const char *file;
    bool check, print;
    char help[CONFIG_KEY_COUNT][160];
    char off_name[SWITCH_COUNT][40], off_help[SWITCH_COUNT][60];
    struct arg_option options[OPTION_COUNT];
};

/* --no-NAME for every key that is on or off. */
static void fill_switches(struct begin *b)
{
    size_t n = 0;
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->type != CONFIG_FLAG) {
            continue;
        }
        ensure(n < SWITCH_COUNT);
        int name = snprintf(b->off_name[n], sizeof b->off_name[n], "no-%s", row->flag);
        int help = snprintf(b->off_help[n], sizeof b->off_help[n], "--%s off", row->flag);
        ensure(name > 0 && (size_t)name < sizeof b->off_name[n]);
        ensure(help > 0 && (size_t)help < sizeof b->off_help[n]);
        b->options[CONFIG_KEY_COUNT + n] = (struct arg_option){.name = b->off_name[n],
                                                               .type = ARG_SWITCH,
                                                               .target = &b->off[i],
                                                               .help = b->off_help[n]};
        n++;
    }
    ensure(n == SWITCH_COUNT);
}

static void fill_options(struct begin *b)
{
    static const char *const values[] = {
        [CONFIG_TEXT] = "TEXT", [CONFIG_BYTES] = "SIZE",  [CONFIG_UINT] = "N",
        [CONFIG_MS] = "TIME",   [CONFIG_LEVEL] = "LEVEL", [CONFIG_FLAG] = "on|off",
    };
    *b = (struct begin){0};
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        const struct config_row *row = &config_rows[i];
        int n = row->fallback[0] == '\0' ? snprintf(b->help[i], sizeof b->help[i], "%s", row->help)
                                         : snprintf(b->help[i], sizeof b->help[i],
                                                    "%s (default %s)", row->help, row->fallback);
        ensure(n > 0);
        ensure((size_t)n < sizeof b->help[i]);
        b->options[i] = (struct arg_option){.name = row->flag,
                                            .type = ARG_TEXT,
                                            .target = &b->flags[i],
                                            .value = values[row->type],
                                            .help = b->help[i]};
    }
    fill_switches(b);
    struct arg_option *own = &b->options[CONFIG_KEY_COUNT + SWITCH_COUNT];
    own[0] = (struct arg_option){.name = "config",
                                 .type = ARG_TEXT,
                                 .target = &b->file,
                                 .value = "FILE",
                                 .help = "read settings from FILE, JSON with comments"};
    own[1] = (struct arg_option){.name = "check-config",
                                 .type = ARG_SWITCH,
                                 .target = &b->check,
                                 .help = "check the settings and stop: exit code 0 or 2"};
    own[2] = (struct arg_option){.name = "print-config",
                                 .type = ARG_SWITCH,
                                 .target = &b->print,
                                 .help = "print the settings in force as JSON and stop"};
}

/* --no-NAME is --NAME off; both are a mistake. */
static int take_switches(struct begin *b, struct err *e)
{
    for (unsigned i = 0; i < CONFIG_KEY_COUNT; i++) {
        if (b->off[i] && b->flags[i] != NULL) {
            return err_set(e, ERR_USAGE, "--%s and --no-%s are both given", config_rows[i].flag,
                           config_rows[i].flag);
        }
        if (b->off[i]) {
            b->flags[i] = "off";
        }
    }
    return 0;
}

bool config_begin(struct config *c, const char *verb, const char *about, int argc, char **argv,
                  int *exit_code)
{
    struct begin b;
    fill_options(&b);
    const struct arg_verb table = {
        .name = verb,
        .operands = "",
        .about = about,
        .more = "Each --some-key is also some_key in the file and TALLYMAN_SOME_KEY in the "
                "environment.\n"
                "A flag wins over the environment, that over the file, that over the default.\n"
                "--no-NAME stands for --NAME off.\n",
        .options = b.options,
        .option_count = OPTION_COUNT,
    };
    struct args args;
    if (!args_begin(&table, argc, argv, &args, exit_code)) {
        return false;
    }
    struct err e = {0};
    *c = (struct config){0};
    int r = take_switches(&b, &e);
    if (r == 0) {
        r = config_load(c, b.flags, b.file, &e);
    }
    if (r != 0) {
        output_error(verb, "%s", e.text);
        config_free(c);
        *exit_code = r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
        return false;
    }
    if (!b.check && !b.print) {
        return true;
    }
    *exit_code = EXIT_DONE;
    if (b.print) {
        struct buf text;
        buf_init(&text, 0);
        config_print(c, &text);
        output_put(buf_slice(&text));
        *exit_code = text.failed ? EXIT_FAILED : EXIT_DONE;
        buf_free(&text);
    }
    *exit_code = output_close(verb, *exit_code);
    config_free(c);
    return false;
}
