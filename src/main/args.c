/* The parser behind args.h. One pass over argv; `--help` anywhere before `--` wins over mistakes
 * elsewhere, because who asks for help has usually just made one. */
#include "main/args.h"

#include <string.h>

#include "base/ensure.h"
#include "main/output.h"

bool args_u64(const char *text, uint64_t *out)
{
    uint64_t v = 0;
    if (*text == '\0') {
        return false;
    }
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9') {
            return false;
        }
        uint64_t digit = (uint64_t)(*p - '0');
        if (v > (UINT64_MAX - digit) / 10) {
            return false;
        }
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static size_t find_option(const struct arg_verb *verb, const char *name, size_t len)
{
    for (size_t i = 0; i < verb->option_count; i++) {
        const char *have = verb->options[i].name;
        if (strlen(have) == len && memcmp(have, name, len) == 0) {
            return i;
        }
    }
    return verb->option_count;
}

static int store_value(const struct arg_option *o, const char *value, struct err *e)
{
    switch (o->type) {
    case ARG_SWITCH:
        *(bool *)o->target = true;
        break;
    case ARG_TEXT:
        *(const char **)o->target = value;
        break;
    case ARG_TEXTS: {
        struct arg_texts *texts = o->target;
        if (texts->count == ARGS_TEXTS_MAX) {
            return err_set(e, ERR_USAGE, "--%s is given too often", o->name);
        }
        texts->item[texts->count++] = value;
        break;
    }
    case ARG_U64_MAYBE:
        if (value == NULL) {
            break;
        }
        __attribute__((fallthrough));
    case ARG_U64: {
        uint64_t v = 0;
        if (!args_u64(value, &v)) {
            return err_set(e, ERR_USAGE, "--%s: \"%.40s\" is not a whole number", o->name, value);
        }
        if (v < o->min || v > o->max) {
            return err_set(e, ERR_USAGE, "--%s: must be from %llu to %llu", o->name,
                           (unsigned long long)o->min, (unsigned long long)o->max);
        }
        *(uint64_t *)o->target = v;
        break;
    }
    }
    if (o->given != NULL) {
        *o->given = true;
    }
    return 0;
}

/* What may stand behind an ARG_U64_MAYBE and belong to it. */
static bool is_short_number(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= 9 && text[n] == '\0';
}

/* argv[*at] begins with "--". Leaves *at on the last argument it used. */
static int take_option(const struct arg_verb *verb, int argc, char **argv, int *at, bool *seen,
                       struct err *e)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t len = equals != NULL ? (size_t)(equals - name) : strlen(name);
    int shown = len > 60 ? 60 : (int)len;
    size_t i = find_option(verb, name, len);
    if (i == verb->option_count) {
        return err_set(e, ERR_USAGE, "unknown option --%.*s (see tallyman %s --help)", shown, name,
                       verb->name);
    }
    const struct arg_option *o = &verb->options[i];
    if (seen[i] && o->type != ARG_TEXTS) {
        return err_set(e, ERR_USAGE, "--%s is given twice", o->name);
    }
    seen[i] = true;
    const char *value = NULL;
    if (o->type == ARG_SWITCH) {
        if (equals != NULL) {
            return err_set(e, ERR_USAGE, "--%s takes no value", o->name);
        }
    } else if (equals != NULL) {
        value = equals + 1;
    } else if (o->type == ARG_U64_MAYBE) {
        if (*at + 1 < argc && is_short_number(argv[*at + 1])) {
            *at += 1;
            value = argv[*at];
        }
    } else if (*at + 1 < argc) {
        *at += 1;
        value = argv[*at];
    } else {
        return err_set(e, ERR_USAGE, "--%s needs a value (%s)", o->name, o->value);
    }
    return store_value(o, value, e);
}

int args_parse(const struct arg_verb *verb, int argc, char **argv, struct args *out, struct err *e)
{
    ensure(verb->option_count <= ARGS_OPTIONS_MAX);
    ensure(verb->operands_max <= ARGS_OPERANDS_MAX);
    bool seen[ARGS_OPTIONS_MAX] = {false};
    *out = (struct args){.help = asks_for_help(argc, argv)};
    if (out->help) {
        return 0;
    }
    bool options_end = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        if (!options_end && strcmp(a, "--") == 0) {
            options_end = true;
        } else if (!options_end && strncmp(a, "--", 2) == 0) {
            int r = take_option(verb, argc, argv, &i, seen, e);
            if (r != 0) {
                return r;
            }
        } else if (!options_end && a[0] == '-' && a[1] != '\0') {
            return err_set(e, ERR_USAGE, "unknown option %.60s (see tallyman %s --help)", a,
                           verb->name);
        } else if (out->operand_count == verb->operands_max) {
            return err_set(e, ERR_USAGE, "unexpected argument \"%.60s\"", a);
        } else {
            out->operand[out->operand_count++] = a;
        }
    }
    if (out->operand_count < verb->operands_min) {
        return err_set(e, ERR_USAGE, "%s is missing", verb->operands);
    }
    return 0;
}

void args_help(const struct arg_verb *verb)
{
    output_printf("usage: tallyman %s%s%s%s\n\n", verb->name,
                  verb->option_count > 0 ? " [OPTIONS]" : "", verb->operands[0] != '\0' ? " " : "",
                  verb->operands);
    output_put(slice_cstr(verb->about));
    output_put(SLICE("\n"));
    int width = 6; /* "--help" */
    for (size_t i = 0; i < verb->option_count; i++) {
        const struct arg_option *o = &verb->options[i];
        size_t w = 2 + strlen(o->name) + (o->value != NULL ? 1 + strlen(o->value) : 0);
        width = (int)w > width ? (int)w : width;
    }
    for (size_t i = 0; i < verb->option_count; i++) {
        const struct arg_option *o = &verb->options[i];
        int used = 2 + (int)strlen(o->name) + (o->value != NULL ? 1 + (int)strlen(o->value) : 0);
        output_printf("  --%s%s%s%*s  %s\n", o->name, o->value != NULL ? " " : "",
                      o->value != NULL ? o->value : "", width - used, "", o->help);
    }
    output_printf("  %-*s  %s\n", width, "--help", "print this text");
    if (verb->more != NULL) {
        output_put(SLICE("\n"));
        output_put(slice_cstr(verb->more));
    }
}

bool args_begin(const struct arg_verb *verb, int argc, char **argv, struct args *out,
                int *exit_code)
{
    struct err e = {0};
    if (args_parse(verb, argc, argv, out, &e) != 0) {
        output_error(verb->name, "%s", e.text);
        *exit_code = EXIT_USAGE;
        return false;
    }
    if (out->help) {
        args_help(verb);
        *exit_code = output_close(verb->name, EXIT_DONE);
        return false;
    }
    return true;
}
