/* config: the settings of the server process, from flags, environment, file and defaults, in this
 * order of precedence.
 *
 * None is needed. The file is JSON with // and block comments; an unknown, duplicate, mistyped or
 * out-of-range key is refused with `FILE:LINE: key "x": reason`. A relative path (`data`,
 * `token_file`, `clickhouse_password_file`, `engine_library`) in the file is relative to the file's
 * directory (spec/history.md section 12), elsewhere to the working directory. Everything is checked
 * before anything is touched. */
#ifndef MAIN_CONFIG_H
#define MAIN_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/slice.h"
#include "main/config_keys.h"

enum config_key {
#define X(sym, field, type, def, min, max, flag, env, help) CONFIG_##sym,
    CONFIG_KEYS(X)
#undef X
        CONFIG_KEY_COUNT
};

enum config_type { CONFIG_TEXT, CONFIG_BYTES, CONFIG_UINT, CONFIG_MS, CONFIG_LEVEL, CONFIG_FLAG };
enum config_origin { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_ENV, CONFIG_FROM_FLAG };

#define CONFIG_C_TEXT  char * /* owned, never NULL once loaded */
#define CONFIG_C_BYTES uint64_t
#define CONFIG_C_UINT  uint64_t
#define CONFIG_C_MS    uint64_t
#define CONFIG_C_LEVEL enum log_level
#define CONFIG_C_FLAG  bool

struct config {
#define X(sym, field, type, def, min, max, flag, env, help) CONFIG_C_##type field;
    CONFIG_KEYS(X)
#undef X
    enum config_origin origin[CONFIG_KEY_COUNT];
    struct buf token;               /* content of token_file; empty without one */
    struct buf clickhouse_password; /* content of clickhouse_password_file */
    char file[256]; /* --config FILE, cut to fit, for messages; "" when there is none */
};

/* What a row of the table says, for documentation tests and help. */
struct config_row {
    const char *name, *flag, *env, *fallback, *help;
    enum config_type type;
    uint64_t min, max;
};
extern const struct config_row config_rows[CONFIG_KEY_COUNT];

/* Fills *c, which config_free releases also after a failure. flags[k] is the text given by the flag
 * of key k or NULL, file a path or NULL. Reads the environment. ERR_USAGE for every mistake of the
 * operator (a file that cannot be read too; e->text is complete, without "tallyman: "),
 * ERR_NO_MEMORY. */
int config_load(struct config *c, const char *const flags[CONFIG_KEY_COUNT], const char *file,
                struct err *e) MUST_CHECK;
void config_free(struct config *c);

/* All of a verb that runs with the configuration: parses argv (flags of every key, --config,
 * --check-config, --print-config,
 * --help), prints mistakes and what was asked for. true: go on with *c loaded (config_free it);
 * false: return *exit_code. */
bool config_begin(struct config *c, const char *verb, const char *about, int argc, char **argv,
                  int *exit_code);

/* A size as a configuration has it: "4096", "512MiB"; false: none. */
bool config_bytes(const char *text, uint64_t *out);

/* Appends the effective values as one JSON object: {"data":{"value":"./data","from":"env"},...}.
 * The token's content is never in it. */
void config_print(const struct config *c, struct buf *out);

/* The data directory a client verb uses without --data: TALLYMAN_DATA, else the default of the
 * table. */
const char *config_default_data(void);

/* Replaces comments outside strings by spaces (line ends kept), in place; positions stay. ERR_JSON
 * with the offset of a block comment that does not end. */
int config_strip_comments(char *text, size_t len, struct err *e) MUST_CHECK;

#endif
