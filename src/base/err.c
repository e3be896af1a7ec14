/* Lookup in the one table, and the filling of details. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"

struct err_row {
    const char *name;
    unsigned status;
    bool retryable;
    int level;
};

static const struct err_row rows[ERR_INDEX_COUNT] = {
#define X(sym, name, status, retry, level) {name, status, retry, level},
    ERR_TABLE(X)
#undef X
};

static const struct err_row *err_row(int code)
{
    ensure(code < 0);
    ensure(code >= -(int)ERR_INDEX_COUNT);
    return &rows[-1 - code];
}

static int err_vset(struct err *e, int code, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

static int err_vset(struct err *e, int code, const char *fmt, va_list ap)
{
    ensure(code < 0);
    if (e != NULL) {
        *e = (struct err){.code = code};
        (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
    }
    return code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = err_vset(e, code, fmt, ap);
    va_end(ap);
    return r;
}

int err_set_at(struct err *e, int code, uint64_t offset, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = err_vset(e, code, fmt, ap);
    va_end(ap);
    if (e != NULL) {
        e->has_offset = true;
        e->offset = offset;
    }
    return r;
}

int err_os(struct err *e, int os_result, const char *what, const char *path)
{
    ensure(os_result < 0);
    int no = -os_result;
    int code = no == ENOSPC || no == EDQUOT ? ERR_NO_SPACE : no == ENOMEM ? ERR_NO_MEMORY : ERR_IO;
    (void)err_set(e, code, "%s %s: %s", what, path, strerror(no));
    if (e != NULL) {
        e->os_errno = no;
    }
    return code;
}

const char *err_name(int code)
{
    return code == 0 ? "ok" : err_row(code)->name;
}

unsigned err_status(int code)
{
    if (code == 0) {
        return 200;
    }
    unsigned status = err_row(code)->status;
    return status != 0 ? status : 500;
}

bool err_retryable(int code)
{
    return code != 0 && err_row(code)->retryable;
}

int err_level(int code)
{
    return code == 0 ? LOG_DEBUG : err_row(code)->level;
}
