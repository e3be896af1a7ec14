/* The conversation: the server sends the number of a command with the descriptor that the child is
 * to have; the spawner starts it and answers with its process id and an error number, one of them 0
 * (both set: it began and could not be executed; the server reaps it). One request at a time, from
 * the loop. The answer comes when the child runs its program, as it does with os_spawn.
 *
 * The spawner has one thread, nothing open but its end of the conversation and the standard
 * descriptors, and no secrets but what the server had read by then. Stop signals stay blocked in
 * it: a terminal's Ctrl-C is the server's, and the spawner is needed until that has gone.
 *
 * Killed by somebody: children cannot be started again until the server is; status says why, and
 * nothing else stops. */
#include "main/spawner.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"

#define END_TRIES   500
#define END_STEP_MS 10

struct request {
    uint32_t command;
};

struct answer {
    int32_t pid;
    int32_t error; /* positive errno */
};

void spawner_init(struct spawner *s)
{
    *s = (struct spawner){.fd = -1};
}

int spawner_add(struct spawner *s, const char *path, char *const *argv, struct err *e)
{
    struct spawner_command *c = &s->command[s->count];
    bool ok;

    ensure(s->count < SPAWNER_COMMANDS_MAX);
    ensure(s->fd < 0);
    s->count++;
    c->path = strdup(path);
    ok = c->path != NULL;
    for (size_t i = 0; argv[i] != NULL; i++) {
        ensure(i + 1 < SPAWNER_ARGS_MAX);
        c->argv[i] = strdup(argv[i]);
        ok = ok && c->argv[i] != NULL;
    }
    return ok ? 0 : err_set(e, ERR_NO_MEMORY, "no memory for a command");
}

/* ---- the process ---- */

_Noreturn static void serve(const struct spawner *s, int fd)
{
    for (;;) {
        struct request q;
        struct answer a = {0};
        int given = -1;
        int pid = 0;
        int64_t n = os_recv_fd(fd, &q, sizeof q, &given);
        if (n <= 0) {
            _exit(0); /* the server has gone */
        }
        if (n != sizeof q || q.command >= s->count) {
            a.error = EPERM;
        } else {
            const struct spawner_command *c = &s->command[q.command];
            a.error = -os_spawn_sibling(c->path, c->argv, given, &pid);
            a.pid = pid;
        }
        if (given >= 0) {
            (void)os_close(given);
        }
        if (os_send_fd(fd, &a, sizeof a, -1) < 0) {
            _exit(0);
        }
    }
}

int spawner_start(struct spawner *s, struct err *e)
{
    int fds[2];
    int r = os_socket_pair(fds);

    if (r != 0) {
        return err_os(e, r, "socketpair", "the spawner");
    }
    r = os_fork();
    if (r == 0) {
        (void)os_close(fds[0]);
        serve(s, fds[1]);
    }
    (void)os_close(fds[1]);
    if (r < 0) {
        (void)os_close(fds[0]);
        return err_os(e, r, "fork", "the spawner");
    }
    s->fd = fds[0];
    s->pid = r;
    return 0;
}

/* ---- the server's side ---- */

static bool is_command(const struct spawner_command *c, const char *path, char *const *argv)
{
    size_t i = 0;

    if (strcmp(c->path, path) != 0) {
        return false;
    }
    while (argv[i] != NULL && c->argv[i] != NULL && strcmp(argv[i], c->argv[i]) == 0) {
        i++;
    }
    return argv[i] == NULL && c->argv[i] == NULL;
}

/* A child that ends by itself, or was killed. */
static void reap(int pid)
{
    int status;

    for (int i = 0; i < END_TRIES && os_wait_child(pid, &status) == 0; i++) {
        (void)os_poll(NULL, 0, END_STEP_MS);
    }
}

int spawner_spawn(void *ctx, const char *path, char *const *argv, int fd)
{
    struct spawner *s = ctx;
    struct request q = {0};
    struct answer a = {0};
    int none;

    while (q.command < s->count && !is_command(&s->command[q.command], path, argv)) {
        q.command++;
    }
    if (q.command == s->count) {
        return -EPERM;
    }
    if (s->fd < 0 || os_send_fd(s->fd, &q, sizeof q, fd) != sizeof q ||
        os_recv_fd(s->fd, &a, sizeof a, &none) != sizeof a) {
        return -ECHILD;
    }
    if (a.error != 0 && a.pid > 0) {
        reap(a.pid);
    }
    return a.error != 0 ? -a.error : a.pid;
}

void spawner_stop(struct spawner *s)
{
    if (s->fd >= 0) {
        (void)os_close(s->fd);
        reap(s->pid);
    }
    for (unsigned i = 0; i < s->count; i++) {
        free(s->command[i].path);
        for (size_t k = 0; k < SPAWNER_ARGS_MAX; k++) {
            free(s->command[i].argv[k]);
        }
    }
    spawner_init(s);
}
