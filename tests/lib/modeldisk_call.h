/* modeldisk_call: the frame around each call of the model disk, for the files that implement them.
 */
#ifndef TESTS_LIB_MODELDISK_CALL_H
#define TESTS_LIB_MODELDISK_CALL_H

#include "tests/lib/modeldisk_state.h"

struct call {
    struct model *m;
    struct trace *trace;
    bool struck;
    struct fault fault;
};

/* Begins a call on a path, or with path NULL on a descriptor: counts it, traces it, runs the hook,
 * draws the fault. 0: go on, with the lock held; otherwise the result to return. */
int call_begin(struct call *c, enum os_call call, const char *path, int fd, uint64_t offset,
               uint64_t length);
/* Ends it: lets go of the lock, returns what the caller of the call gets to see. */
int64_t call_end(struct call *c, int64_t result);
/* Whether a fault replaces the call; *result is then what to end it with. */
bool call_replaced(const struct call *c, int64_t *result);
size_t call_length(const struct call *c, size_t n); /* n, or half of it */

struct open_file *open_find(const struct model *m, int fd);
struct inode *open_inode(const struct model *m, int fd);
bool foreign_path(const char *path); /* the kernel's */
bool foreign_fd(int fd);

#define X(ret, name, params, args) ret model_##name params;
OS_FILE_CALLS(X)
#undef X

#endif
