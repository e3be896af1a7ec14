/* spawner: a process that starts the server's children for it, so that the server itself may give
 * up the right to execute anything, and its children need not live in its sandbox.
 *
 * It is forked before the sandbox is laid on, knows the few commands that there can be, and is told
 * only which of them: whoever takes the server over cannot start anything else with it. The
 * children it starts are the server's own: the server waits for them, and its end closes their
 * pipe. The spawner ends with the server, however that ends. */
#ifndef MAIN_SPAWNER_H
#define MAIN_SPAWNER_H

#include "base/err.h"

#define SPAWNER_COMMANDS_MAX 4u
#define SPAWNER_ARGS_MAX     24u

struct spawner_command {
    char *path;
    char *argv[SPAWNER_ARGS_MAX];
};

struct spawner {
    struct spawner_command command[SPAWNER_COMMANDS_MAX];
    unsigned count;
    int fd; /* to the process; -1: there is none */
    int pid;
};

void spawner_init(struct spawner *s);
/* A command that may be asked for; it is copied. Before spawner_start. ERR_NO_MEMORY. */
int spawner_add(struct spawner *s, const char *path, char *const *argv, struct err *e) MUST_CHECK;
/* Forks. While the process has one thread. ERR_IO. */
int spawner_start(struct spawner *s, struct err *e) MUST_CHECK;
/* os_spawn by the process: starts the command that has this path and vector. -EPERM: there is none;
 * -ECHILD: the process has gone. ctx is a struct spawner. */
int spawner_spawn(void *ctx, const char *path, char *const *argv, int fd);
/* Ends the process and frees the commands. */
void spawner_stop(struct spawner *s);

#endif
