/* args: the command line of one verb, parsed from a table of options.
 *
 * Long options only: `--name VALUE`, `--name=VALUE`, `--name` for switches and for values that may
 * be left out; `-h` is `--help`; `--`
 * ends them. Options and operands mix freely. An option given twice, an unknown one, a missing or
 * malformed value is ERR_USAGE with a text that names the option (never the value of a secret:
 * secrets are not options). Allocates nothing. */
#ifndef MAIN_ARGS_H
#define MAIN_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum arg_type {
    ARG_SWITCH,   /* bool *target becomes true */
    ARG_TEXT,     /* const char **target borrows from argv */
    ARG_TEXTS,    /* struct arg_texts *target: the option may be given several times */
    ARG_U64,      /* uint64_t *target, decimal, min to max */
    ARG_U64_MAYBE /* the same, or no value; behind a space, one of at most 9 digits */
};

#define ARGS_TEXTS_MAX 256

struct arg_texts {
    unsigned count;
    const char *item[ARGS_TEXTS_MAX]; /* borrows from argv */
};

struct arg_option {
    const char *name; /* without the dashes */
    enum arg_type type;
    void *target;      /* left alone when the option is not given */
    const char *value; /* what the help calls the value, NULL for switches */
    const char *help;
    uint64_t min, max; /* of ARG_U64 and ARG_U64_MAYBE */
    bool *given;       /* may be NULL */
};

struct arg_verb {
    const char *name;     /* "append" */
    const char *operands; /* "FILE|-", "" for none */
    const char *about;    /* what it does, for the help; lines end in \n */
    const char *more;     /* printed behind the options; may be NULL */
    const struct arg_option *options;
    size_t option_count;
    unsigned operands_min, operands_max;
};

#define ARGS_OPERANDS_MAX 4096 /* a shell's FILE* */
#define ARGS_OPTIONS_MAX  64

struct args {
    bool help; /* --help was there; everything else is then unchecked and unset */
    unsigned operand_count;
    const char *operand[ARGS_OPERANDS_MAX];
};

/* argv[0] is the verb's name and is skipped. 0 or ERR_USAGE. */
int args_parse(const struct arg_verb *verb, int argc, char **argv, struct args *out,
               struct err *e) MUST_CHECK;
/* Prints usage, text and option table to standard output. */
void args_help(const struct arg_verb *verb);
/* What every verb begins with: parses; on a mistake prints it and gives exit code 2, for --help
 * prints the help and gives 0. true: go on. */
bool args_begin(const struct arg_verb *verb, int argc, char **argv, struct args *out,
                int *exit_code);

/* Decimal digits only, at most UINT64_MAX, no sign and no space. */
bool args_u64(const char *text, uint64_t *out);

#endif
