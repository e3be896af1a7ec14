/* child: a process of ours that is kept running.
 *
 * One child: started, watched, started again with growing pauses when it ends, stopped with us. It
 * is driven by child_tick and never blocks (child_end apart). The child inherits one descriptor, 3:
 * the reading end of a pipe whose writing end only this process holds, so it sees our end whatever
 * ended us; it must exit then. Standard input is empty, both outputs go to our standard error, and
 * it has a process group of its own. Threads: the loop's only.
 *
 * For tallyman-engine (engine/engine_protocol.h) the vector is
 *
 *     {"tallyman-engine", "--data", "DATA/engine", "--library", LIBCHDB, "--parent-fd", "3", NULL}
 *
 * with path = the executable beside our own; its socket is DATA/engine/engine.sock, and it is ready
 * when GET /ping there answers 200. */
#ifndef MAIN_CHILD_H
#define MAIN_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#define CHILD_PARENT_FD    3
#define CHILD_PAUSE_MS_MIN 1000u
#define CHILD_PAUSE_MS_MAX 30000u
/* Having run that long, the next pause is the shortest again. Shorter than the engine lets a query
 * go on that does not end (FRONT_STUCK_MS): whoever asks such queries must not make pauses long. */
#define CHILD_HEALTHY_MS 15000u
#define CHILD_STOP_MS    7000u /* from SIGTERM to SIGKILL */
/* And from there until child_end waits no longer: in a read of a dead mount not even SIGKILL ends a
 * process. Its pipe is closed with us; it ends when the read does. */
#define CHILD_GIVE_UP_MS    5000u
#define CHILD_EXIT_TEXT_MAX 80u

/* X(symbol, name in status) */
#define CHILD_STATES(X)     \
    X(PAUSED, "restarting") \
    X(RUNNING, "running")   \
    X(STOPPING, "stopping") \
    X(STOPPED, "stopped")

enum child_state {
#define X(sym, name) CHILD_##sym,
    CHILD_STATES(X)
#undef X
};

/* Starts path with argv and fd, as os_spawn does, with what os_spawn returns. */
typedef int child_spawn_fn(void *ctx, const char *path, char *const *argv, int fd);

struct child {
    const char *path; /* borrowed, as the vector */
    char *const *argv;
    child_spawn_fn *spawn; /* NULL: os_spawn */
    void *spawn_ctx;
    enum child_state state;
    int pid;         /* of the running child, else 0 */
    int pipe_fd;     /* the writing end, or -1 */
    uint64_t due_ns; /* PAUSED: the next start; STOPPING: SIGKILL */
    uint64_t started_ns;
    uint64_t pause_ms; /* the next pause */
    uint64_t restarts; /* starts but the first */
    uint64_t starts;
    char last_exit[CHILD_EXIT_TEXT_MAX]; /* "exit code 3", "signal 9", ...; empty: none yet */
};

/* The first child_tick starts it. */
void child_init(struct child *c, const char *path, char *const *argv);
/* Who starts it instead of this process; before the first tick. */
void child_set_spawn(struct child *c, child_spawn_fn *spawn, void *ctx);
/* Does what is due: notices an end, starts, kills. About once a second. */
void child_tick(struct child *c);
/* Asks it to end; child_tick goes on to see to it. No start follows. */
void child_stop(struct child *c);
/* child_stop, then waits until it has ended: at most CHILD_STOP_MS and CHILD_GIVE_UP_MS. */
void child_end(struct child *c);
const char *child_state_name(enum child_state state);

#endif
