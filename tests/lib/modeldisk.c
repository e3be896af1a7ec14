/* modeldisk: how the model disk answers system calls; modeldisk.h says what they promise.
 *
 * Every file call goes through call_begin (count, death, trace, fault, hook) and call_end (trace,
 * lock). In between the lock is held and the call does what Linux does: to the cache at once, and
 * to the list of pending items where the disk is concerned: calls about names are in
 * modeldisk_names.c, about bytes in modeldisk_bytes.c. Calls on paths or descriptors that are not
 * the model's go to the kernel when the options say so.
 *
 * Answers: negative errnos as Linux gives them. Aborts: a hook that leaves another model in use. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "tests/lib/modeldisk_call.h"

static struct model *in_use;
static struct os_table table;

/* ---- the frame around each call ---- */

struct open_file *open_find(const struct model *m, int fd)
{
    for (size_t n = 0; n < m->open_count; n++) {
        if (m->opens[n].fd == fd) {
            return &m->opens[n];
        }
    }
    return NULL;
}

struct inode *open_inode(const struct model *m, int fd)
{
    const struct open_file *f = open_find(m, fd);

    return f != NULL ? inode_get(m, f->ino) : NULL;
}

static struct trace *trace_next(struct model *m, enum os_call call, const char *path,
                                uint64_t offset, uint64_t length)
{
    size_t n = strlen(path);
    struct trace *t;

    if (m->trace == NULL) {
        m->trace = model_alloc(MODEL_TRACE_COUNT * sizeof *m->trace);
    }
    t = &m->trace[m->trace_count++ % MODEL_TRACE_COUNT];
    t->number = m->calls;
    t->call = call;
    t->offset = offset;
    t->length = length;
    t->result = 0;
    /* Of a long path the end says more. */
    path += n < sizeof t->path ? 0 : n - sizeof t->path + 1;
    memcpy(t->path, path, strlen(path) + 1);
    return t;
}

static void hook_run(struct model *m, enum os_call call, const char *path, uint64_t offset,
                     uint64_t length)
{
    char copy[256];
    struct model_call told = {m->calls, call, copy, offset, length};
    model_hook *hook = m->hook;

    (void)snprintf(copy, sizeof copy, "%s", path);
    (void)pthread_mutex_unlock(&model_lock);
    hook(m->hook_ctx, m, &told);
    (void)pthread_mutex_lock(&model_lock);
    ensure(in_use == m);
}

/* Begins a call on a path, or with path NULL on a descriptor. 0: go on, with the lock held;
 * otherwise the result. */
int call_begin(struct call *c, enum os_call call, const char *path, int fd, uint64_t offset,
               uint64_t length)
{
    struct model *m;

    (void)pthread_mutex_lock(&model_lock);
    m = in_use;
    ensure(m != NULL);
    c->m = m;
    c->struck = false;
    if (path == NULL) {
        const struct inode *i = open_inode(m, fd);

        path = i != NULL ? i->path : "";
    }
    if (!m->dead) {
        m->calls++;
        c->trace = trace_next(m, call, path, offset, length);
        if (m->hook != NULL) {
            hook_run(m, call, path, offset, length);
        }
        m->dead = m->dead || (m->die_at != 0 && m->calls >= m->die_at);
    }
    if (m->dead) {
        (void)pthread_mutex_unlock(&model_lock);
        return -EIO;
    }
    c->struck = fault_hit(&m->fault, call, path);
    c->fault = m->fault;
    return 0;
}

int64_t call_end(struct call *c, int64_t result)
{
    if (c->struck && c->fault.kind == FAULT_ERROR_AFTER) {
        result = -c->fault.error;
    }
    c->trace->result = result;
    (void)pthread_mutex_unlock(&model_lock);
    return result;
}

/* Whether a fault replaces the call; *result is then what to return. */
bool call_replaced(const struct call *c, int64_t *result)
{
    if (!c->struck || (c->fault.kind != FAULT_ERROR && c->fault.kind != FAULT_ZERO)) {
        return false;
    }
    *result = c->fault.kind == FAULT_ERROR ? -c->fault.error : 0;
    return true;
}

size_t call_length(const struct call *c, size_t n)
{
    return c->struck && c->fault.kind == FAULT_SHORT ? n - n / 2 : n;
}

/* ---- whose path, whose descriptor ---- */

bool foreign_path(const char *path)
{
    const struct model *m = in_use;

    return m->kernel_for_others && (strncmp(path, m->root, m->root_length) != 0 ||
                                    (path[m->root_length] != '/' && path[m->root_length] != '\0'));
}

bool foreign_fd(int fd)
{
    return in_use->kernel_for_others && fd < MODEL_FD_BASE;
}

/* Takes the next part of the path at *at into name. False at the end. */
static bool path_part(const char **at, char *name, int *error)
{
    size_t n;

    *at += strspn(*at, "/");
    n = strcspn(*at, "/");
    if (n >= MODEL_NAME_SIZE) {
        *error = -ENAMETOOLONG;
        return false;
    }
    memcpy(name, *at, n);
    name[n] = '\0';
    *at += n;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        *error = -EINVAL; /* the model keeps no parents: nothing here needs them */
        return false;
    }
    return n > 0;
}

int path_find(const struct model *m, const char *path, struct inode **dir, char *name)
{
    struct inode *at = inode_get(m, MODEL_ROOT_INO);
    char next[MODEL_NAME_SIZE];
    int error = 0;

    name[0] = '\0';
    *dir = at;
    if (strncmp(path, m->root, m->root_length) != 0) {
        return -ENOENT;
    }
    path += m->root_length;
    if (path[0] != '/' && path[0] != '\0') {
        return -ENOENT;
    }
    while (path_part(&path, next, &error)) {
        if (name[0] != '\0') {
            const struct entry *e = entries_find(&at->now, name);

            if (e == NULL) {
                return -ENOENT;
            }
            at = inode_get(m, e->ino);
            ensure(at != NULL);
            if (!S_ISDIR(at->mode)) {
                return -ENOTDIR;
            }
        }
        *dir = at;
        memcpy(name, next, sizeof next);
    }
    return error;
}

struct inode *path_inode(const struct model *m, const char *path, int *error)
{
    char name[MODEL_NAME_SIZE];
    struct inode *dir;
    const struct entry *e;

    *error = path_find(m, path, &dir, name);
    if (*error != 0) {
        return NULL;
    }
    if (name[0] == '\0') {
        return dir;
    }
    e = entries_find(&dir->now, name);
    *error = e != NULL ? 0 : -ENOENT;
    return e != NULL ? inode_get(m, e->ino) : NULL;
}

/* ---- time, chance, and what the model does not have ---- */

static uint64_t model_clock(bool real)
{
    struct model *m;
    uint64_t now;

    (void)pthread_mutex_lock(&model_lock);
    m = in_use;
    m->real_ns += m->step_ns;
    m->mono_ns += m->step_ns;
    now = real ? m->real_ns / 1000000 : m->mono_ns;
    (void)pthread_mutex_unlock(&model_lock);
    return now;
}

static uint64_t model_clock_real_ms(void)
{
    return model_clock(true);
}

static uint64_t model_clock_mono_ns(void)
{
    return model_clock(false);
}

static int model_random(void *p, size_t n)
{
    unsigned char *to = p;

    (void)pthread_mutex_lock(&model_lock);
    for (size_t k = 0; k < n; k++) {
        to[k] = (unsigned char)(model_chance(&in_use->chance) >> 56);
    }
    (void)pthread_mutex_unlock(&model_lock);
    return 0;
}

#define X(ret, name, params, args)                                           \
    static ret other_##name params                                           \
    {                                                                        \
        return in_use->kernel_for_others ? os_real.name args : (ret)-ENOSYS; \
    }
OS_OTHER_CALLS(X)
#undef X

static void table_make(void)
{
    table = (struct os_table){
#define X(ret, name, params, args) .name = model_##name,
        OS_FILE_CALLS(X)
#undef X
#define X(ret, name, params, args) .name = other_##name,
            OS_OTHER_CALLS(X)
#undef X
    };
    table.clock_real_ms = model_clock_real_ms;
    table.clock_mono_ns = model_clock_mono_ns;
    table.random = model_random;
}

void model_use(struct model *m)
{
    static bool made;

    if (!made) {
        table_make();
        made = true;
    }
    (void)pthread_mutex_lock(&model_lock);
    in_use = m;
    (void)pthread_mutex_unlock(&model_lock);
    os_install(m != NULL ? &table : NULL);
}

struct model *model_in_use(void)
{
    return in_use;
}
