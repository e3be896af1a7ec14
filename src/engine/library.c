/* library: libchdb through dlopen.
 *
 * libchdb is ClickHouse as a library (npm package @chdb/lib-linux-x64-gnu): 566 MB that the build
 * never links, so that everything but the engine runs without it. Its C interface is plain: opaque
 * pointers, explicit lengths, errors as text. Two of its habits matter here:
 *
 * - It installs handlers for crashes and for SIGINT. They are switched off before the first
 *   connection: this process's own end is decided by its loop, and a crash is the parent's to see.
 * - It owns every buffer it returns; the result object is destroyed when the answer has left.
 *
 * Answers: a failed statement is an answer with `error` set. Stops: a library that is not there, or
 * without one of the calls, is ERR_UNSUPPORTED. Power failure: nothing here writes. */
#include "engine/library.h"

#include <dlfcn.h>
#include <string.h>

#include "base/ensure.h"

struct library_analysis {
    uint32_t struct_size;
    uint32_t statement_count;
    uint32_t flags;
    uint32_t query_class;
};

#define CLASS_READ_ONLY 0u

/* X(result, name, parameters): the calls used of libchdb, as chdb_NAME. */
#define LIBRARY_CALLS(X)                                                                       \
    X(const char *, version, (void))                                                           \
    X(void, set_signal_handlers_enabled, (int enabled))                                        \
    X(void **, connect, (int argc, char **argv))                                               \
    X(void, close_conn, (void **conn))                                                         \
    X(void *, query_with_params_n,                                                             \
      (void *conn, const char *sql, size_t sql_len, const char *format, size_t format_len,     \
       const char *const *names, const size_t *name_lens, const char *const *values,           \
       const size_t *value_lens, size_t count))                                                \
    X(void *, stream_insert_with_params_n,                                                     \
      (void *conn, const char *sql, size_t sql_len, const char *format, size_t format_len,     \
       const char *const *names, const size_t *name_lens, const char *const *values,           \
       const size_t *value_lens, size_t count))                                                \
    X(int, stream_append, (void *stream, const void *data, size_t len))                        \
    X(void *, stream_done, (void *stream))                                                     \
    X(const char *, stream_insert_error, (void *stream))                                       \
    X(void, destroy_insert_stream, (void *stream))                                             \
    X(void, destroy_query_result, (void *result))                                              \
    X(const char *, result_error, (void *result))                                              \
    X(char *, result_buffer, (void *result))                                                   \
    X(size_t, result_length, (void *result))                                                   \
    X(double, result_elapsed, (void *result))                                                  \
    X(uint64_t, result_rows_read, (void *result))                                              \
    X(uint64_t, result_storage_rows_read, (void *result))                                      \
    X(uint64_t, result_storage_bytes_read, (void *result))                                     \
    X(uint64_t, result_rows_written, (void *result))                                           \
    X(uint64_t, result_bytes_written, (void *result))                                          \
    X(int, classify_query_n,                                                                   \
      (void *conn, const char *sql, size_t sql_len, const char *database, size_t database_len, \
       struct library_analysis *out))

static struct {
#define X(ret, name, params) ret(*name) params;
    LIBRARY_CALLS(X)
#undef X
} lib;

/* POSIX gives functions as object pointers; this is its own way to say so. */
static int find_call(void *handle, const char *name, void *into, struct err *e)
{
    void *found = dlsym(handle, name);

    if (found == NULL) {
        return err_set(e, ERR_UNSUPPORTED, "the library has no %s", name);
    }
    memcpy(into, &found, sizeof found);
    return 0;
}

int library_load(const char *path, struct err *e)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int r = 0;

    if (handle == NULL) {
        const char *why = dlerror();

        return err_set(e, ERR_UNSUPPORTED, "cannot load %s: %s", path,
                       why != NULL ? why : "no reason given");
    }
#define X(ret, name, params)                                        \
    if (r == 0) {                                                   \
        r = find_call(handle, "chdb_" #name, (void *)&lib.name, e); \
    }
    LIBRARY_CALLS(X)
#undef X
    if (r != 0) {
        (void)dlclose(handle);
        return r;
    }
    lib.set_signal_handlers_enabled(0);
    return 0;
}

const char *library_version(void)
{
    const char *version = lib.version();

    return version != NULL ? version : "";
}

int library_open(struct library_conn *c, char *const *options, struct err *e)
{
    char *argv[16];
    int argc = 0;

    while (options[argc] != NULL) {
        ensure(argc + 1 < (int)(sizeof argv / sizeof *argv));
        argv[argc] = options[argc];
        argc++;
    }
    argv[argc] = NULL;
    c->handle = lib.connect(argc, argv);
    if (c->handle == NULL || *c->handle == NULL) {
        c->handle = NULL;
        return err_set(e, ERR_IO, "the analytics engine would not open a connection");
    }
    return 0;
}

void library_close(struct library_conn *c)
{
    if (c->handle != NULL) {
        lib.close_conn(c->handle);
        c->handle = NULL;
    }
}

/* Parameters in the four arrays that the library wants. */
struct arrays {
    const char *name[LIBRARY_PARAMS_MAX];
    size_t name_len[LIBRARY_PARAMS_MAX];
    const char *value[LIBRARY_PARAMS_MAX];
    size_t value_len[LIBRARY_PARAMS_MAX];
    size_t count;
};

static void arrays_fill(struct arrays *a, const struct library_params *params)
{
    a->count = params != NULL ? params->count : 0;
    ensure(a->count <= LIBRARY_PARAMS_MAX);
    for (size_t i = 0; i < a->count; i++) {
        a->name[i] = params->item[i].name.ptr;
        a->name_len[i] = params->item[i].name.len;
        a->value[i] = params->item[i].value.len != 0 ? params->item[i].value.ptr : "";
        a->value_len[i] = params->item[i].value.len;
    }
}

static void own_error(struct library_answer *out, const char *text)
{
    size_t n = strnlen(text, sizeof out->own_error - 1);

    memcpy(out->own_error, text, n);
    out->error = slice_of(out->own_error, n);
}

static void answer_take(struct library_answer *out, void *result)
{
    const char *error;
    double elapsed;

    if (result == NULL) {
        own_error(out, "Code: 1002. DB::Exception: the engine gave no result. (UNKNOWN_EXCEPTION)");
        return;
    }
    out->result = result;
    error = lib.result_error(result);
    if (error != NULL && error[0] != '\0') {
        out->error = slice_cstr(error);
        return;
    }
    out->data = slice_of(lib.result_buffer(result), lib.result_length(result));
    out->rows = lib.result_rows_read(result);
    out->rows_read = lib.result_storage_rows_read(result);
    out->bytes_read = lib.result_storage_bytes_read(result);
    out->rows_written = lib.result_rows_written(result);
    out->bytes_written = lib.result_bytes_written(result);
    elapsed = lib.result_elapsed(result);
    out->elapsed_ns = elapsed > 0 && elapsed < 1e9 ? (uint64_t)(elapsed * 1e9) : 0;
}

void library_run(struct library_conn *c, struct slice sql, struct slice format,
                 const struct library_params *params, struct library_answer *out)
{
    struct arrays a;

    ensure(c->handle != NULL);
    arrays_fill(&a, params);
    *out = (struct library_answer){0};
    answer_take(out, lib.query_with_params_n(*c->handle, sql.ptr, sql.len, format.ptr, format.len,
                                             a.name, a.name_len, a.value, a.value_len, a.count));
}

void library_insert(struct library_conn *c, struct slice sql, struct slice format,
                    const struct library_params *params, struct slice rows,
                    struct library_answer *out)
{
    const char *error;
    struct arrays a;
    void *stream;

    ensure(c->handle != NULL);
    arrays_fill(&a, params);
    *out = (struct library_answer){0};
    stream = lib.stream_insert_with_params_n(*c->handle, sql.ptr, sql.len, format.ptr, format.len,
                                             a.name, a.name_len, a.value, a.value_len, a.count);
    if (stream == NULL) {
        own_error(out, "Code: 1002. DB::Exception: the engine opened no insert. "
                       "(UNKNOWN_EXCEPTION)");
        return;
    }
    error = lib.stream_insert_error(stream);
    if (error != NULL && error[0] != '\0') {
        own_error(out, error);
    } else {
        /* A refused piece makes the end fail as well, and that has the reason. */
        if (rows.len != 0) {
            (void)lib.stream_append(stream, rows.ptr, rows.len);
        }
        answer_take(out, lib.stream_done(stream));
    }
    lib.destroy_insert_stream(stream);
}

void library_answer_free(struct library_answer *a)
{
    if (a->result != NULL) {
        lib.destroy_query_result(a->result);
    }
    *a = (struct library_answer){0};
}

bool library_classify(struct library_conn *c, struct slice sql, struct library_class *out)
{
    struct library_analysis analysis = {.struct_size = sizeof analysis};

    ensure(c->handle != NULL);
    *out = (struct library_class){0};
    if (lib.classify_query_n(*c->handle, sql.ptr, sql.len, NULL, 0, &analysis) != 0) {
        return false;
    }
    out->statements = analysis.statement_count;
    out->read_only = analysis.query_class == CLASS_READ_ONLY;
    return true;
}
