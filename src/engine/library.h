/* library: libchdb, loaded at run time.
 *
 * The package has no header: the calls used are declared in library.c. Threads: load once before
 * anything else; a connection is used by one thread at a time, any number of them exist beside each
 * other. Blocking: opening, running and closing block; they are for worker threads. */
#ifndef ENGINE_LIBRARY_H
#define ENGINE_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

/* The version the isolation was proven with. */
#define LIBRARY_VERSION "26.7.3"

/* Loads the library and finds its calls, its signal handlers switched off. ERR_UNSUPPORTED with the
 * loader's reason or the name of the missing call. */
int library_load(const char *path, struct err *e) MUST_CHECK;
/* After library_load; lives as long as the process. */
const char *library_version(void);

struct library_conn {
    void **handle; /* NULL: closed */
};

/* options: an argument vector that ends in NULL, [0] being a program name. The first connection
 * starts the engine; all others must name the same path. ERR_IO: the engine would not start (it has
 * said why on standard error). */
int library_open(struct library_conn *c, char *const *options, struct err *e) MUST_CHECK;
void library_close(struct library_conn *c);

struct library_param {
    struct slice name;
    struct slice value;
};

struct library_params {
    const struct library_param *item;
    size_t count;
};

#define LIBRARY_PARAMS_MAX 256

/* What a statement gave. The slices live until library_answer_free. */
struct library_answer {
    void *result;
    struct slice error; /* "Code: N. DB::Exception: ..."; empty on success */
    struct slice data;
    uint64_t rows_read, bytes_read; /* from storage */
    uint64_t rows_written, bytes_written;
    uint64_t rows;       /* of the result */
    uint64_t elapsed_ns; /* as the engine measured it */
    char own_error[320]; /* errors found on this side of the library */
};

/* Runs one statement (or several, separated by ';'). */
void library_run(struct library_conn *c, struct slice sql, struct slice format,
                 const struct library_params *params, struct library_answer *out);
/* INSERT statement without its FORMAT clause, and the rows in that format. */
void library_insert(struct library_conn *c, struct slice sql, struct slice format,
                    const struct library_params *params, struct slice rows,
                    struct library_answer *out);
void library_answer_free(struct library_answer *a);

/* What the engine's parser sees. Returns false when it would not say. */
struct library_class {
    unsigned statements;
    bool read_only;
};
bool library_classify(struct library_conn *c, struct slice sql, struct library_class *out);

#endif
