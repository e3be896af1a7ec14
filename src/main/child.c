/* child: the state machine of one supervised process.
 *
 *   state      event                         next      action
 *   PAUSED     due                           RUNNING   pipe, spawn
 *   PAUSED     spawn failed                  PAUSED    longer pause
 *   PAUSED     child_stop                    STOPPED
 *   RUNNING    it ended                      PAUSED    longer pause (the shortest after
 *                                                      CHILD_HEALTHY_MS)
 *   RUNNING    child_stop                    STOPPING  SIGTERM
 *   STOPPING   it ended                      STOPPED
 *   STOPPING   CHILD_STOP_MS later           STOPPING  SIGKILL, each second until it ended
 *
 * The pipe is made anew for each start and closed when the child was reaped, so that a child that
 * outlives us by a crash of ours is told by the kernel. A child that somebody else reaped counts as
 * ended. Answers and stops: none; a child that will not start is tried again for ever, and status
 * says so: it may be missing only until it is installed. */
#include "main/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"

#define NS_PER_MS     1000000u
#define END_STEP_MS   20
#define KILL_AGAIN_MS 1000

const char *child_state_name(enum child_state state)
{
    static const char *const names[] = {
#define X(sym, name) [CHILD_##sym] = (name),
        CHILD_STATES(X)
#undef X
    };

    return names[state];
}

void child_init(struct child *c, const char *path, char *const *argv)
{
    *c = (struct child){.path = path,
                        .argv = argv,
                        .state = CHILD_PAUSED,
                        .pipe_fd = -1,
                        .pause_ms = CHILD_PAUSE_MS_MIN};
}

void child_set_spawn(struct child *c, child_spawn_fn *spawn, void *ctx)
{
    ensure(c->starts == 0);
    c->spawn = spawn;
    c->spawn_ctx = ctx;
}

static const char *name_of(const struct child *c)
{
    return c->argv[0];
}

static void pause_begin(struct child *c, uint64_t now_ns)
{
    c->state = CHILD_PAUSED;
    c->due_ns = now_ns + c->pause_ms * NS_PER_MS;
    log_line(LOG_WARN, "child", "%s: %s; started again in %llu s", name_of(c), c->last_exit,
             (unsigned long long)(c->pause_ms / 1000));
    c->pause_ms =
        c->pause_ms * 2 < CHILD_PAUSE_MS_MAX ? c->pause_ms * 2 : (uint64_t)CHILD_PAUSE_MS_MAX;
}

static void start_failed(struct child *c, const char *what, int result, uint64_t now_ns)
{
    char reason[48];

    ensure(result < 0);
    /* The GNU strerror_r: it gives the text, in reason or elsewhere. */
    (void)snprintf(c->last_exit, sizeof c->last_exit, "%s: %s", what,
                   strerror_r(-result, reason, sizeof reason));
    pause_begin(c, now_ns);
}

static void start(struct child *c, uint64_t now_ns)
{
    int fds[2];
    int r = os_pipe(fds);

    ensure(c->pid == 0);
    ensure(c->pipe_fd < 0);
    if (r != 0) {
        start_failed(c, "no pipe", r, now_ns);
        return;
    }
    r = c->spawn != NULL ? c->spawn(c->spawn_ctx, c->path, c->argv, fds[0])
                         : os_spawn(c->path, c->argv, fds[0]);
    (void)os_close(fds[0]);
    if (r < 0) {
        (void)os_close(fds[1]);
        start_failed(c, "could not be started", r, now_ns);
        return;
    }
    ensure(r > 0);
    c->pid = r;
    c->pipe_fd = fds[1];
    c->started_ns = now_ns;
    c->state = CHILD_RUNNING;
    c->restarts += c->starts != 0 ? 1 : 0;
    c->starts++;
    log_line(LOG_INFO, "child", "%s: started, process %d", name_of(c), c->pid);
}

/* True when the child has ended (and is reaped). */
static bool ended(struct child *c)
{
    int status = 0;
    int r = os_wait_child(c->pid, &status);

    if (r == 0) {
        return false;
    }
    if (r < 0) {
        ensure(r == -ECHILD);
        (void)snprintf(c->last_exit, sizeof c->last_exit, "ended, reaped by somebody else");
    } else if (WIFSIGNALED(status)) {
        (void)snprintf(c->last_exit, sizeof c->last_exit, "signal %d", WTERMSIG(status));
    } else {
        (void)snprintf(c->last_exit, sizeof c->last_exit, "exit code %d", WEXITSTATUS(status));
    }
    (void)os_close(c->pipe_fd);
    c->pipe_fd = -1;
    c->pid = 0;
    return true;
}

static void tick_running(struct child *c, uint64_t now_ns)
{
    if (ended(c)) {
        if (now_ns - c->started_ns >= (uint64_t)CHILD_HEALTHY_MS * NS_PER_MS) {
            c->pause_ms = CHILD_PAUSE_MS_MIN;
        }
        pause_begin(c, now_ns);
    }
}

static void tick_stopping(struct child *c, uint64_t now_ns)
{
    if (ended(c)) {
        c->state = CHILD_STOPPED;
        log_line(LOG_INFO, "child", "%s: stopped, %s", name_of(c), c->last_exit);
    } else if (now_ns >= c->due_ns) {
        log_line(LOG_WARN, "child", "%s: does not stop, killed", name_of(c));
        (void)os_kill(c->pid, SIGKILL);
        c->due_ns = now_ns + (uint64_t)KILL_AGAIN_MS * NS_PER_MS;
    }
}

void child_tick(struct child *c)
{
    uint64_t now_ns = os_clock_mono_ns();

    switch (c->state) {
    case CHILD_PAUSED:
        if (now_ns >= c->due_ns) {
            start(c, now_ns);
        }
        break;
    case CHILD_RUNNING:
        tick_running(c, now_ns);
        break;
    case CHILD_STOPPING:
        tick_stopping(c, now_ns);
        break;
    case CHILD_STOPPED:
        break;
    }
}

void child_stop(struct child *c)
{
    if (c->state == CHILD_PAUSED) {
        c->state = CHILD_STOPPED;
    } else if (c->state == CHILD_RUNNING) {
        c->state = CHILD_STOPPING;
        c->due_ns = os_clock_mono_ns() + (uint64_t)CHILD_STOP_MS * NS_PER_MS;
        (void)os_kill(c->pid, SIGTERM); /* one that has just ended is a zombie of ours still */
    }
}

void child_end(struct child *c)
{
    struct epoll_event event;
    uint64_t give_up_ns =
        os_clock_mono_ns() + (uint64_t)(CHILD_STOP_MS + CHILD_GIVE_UP_MS) * NS_PER_MS;
    int ep;

    child_stop(c);
    ep = os_epoll_create();
    for (child_tick(c); c->state != CHILD_STOPPED; child_tick(c)) {
        if (os_clock_mono_ns() >= give_up_ns) {
            log_line(LOG_WARN, "child", "%s: does not end, left behind: process %d", name_of(c),
                     c->pid);
            break;
        }
        if (ep < 0) {
            c->due_ns = 0; /* no way to sleep: no patience */
        } else {
            (void)os_epoll_wait(ep, &event, 1, END_STEP_MS); /* nothing is in it: a sleep */
        }
    }
    if (ep >= 0) {
        (void)os_close(ep);
    }
}
