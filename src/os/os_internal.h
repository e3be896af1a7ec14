/* os_internal: calls of the kernel's table that have files of their own. */
#ifndef OS_OS_INTERNAL_H
#define OS_OS_INTERNAL_H

#include "os/os.h"

/* os_process.c */
int real_pipe(int fds[2]);
int real_spawn(const char *path, char *const *argv, int fd);
int real_fork(void);
int real_socket_pair(int fds[2]);
int64_t real_send_fd(int to, const void *p, size_t n, int fd);
int64_t real_recv_fd(int from, void *p, size_t n, int *fd);
int real_spawn_sibling(const char *path, char *const *argv, int fd, int *pid);

/* os_landlock.c */
int real_core_limit(uint64_t *bytes);
int real_landlock_abi(void);
int real_landlock_create(uint64_t files, uint64_t net, uint64_t scopes);
int real_landlock_path(int rules, const char *path, uint64_t rights);
int real_landlock_port(int rules, uint64_t port, uint64_t rights);
int real_landlock_enter(int rules);
int real_seccomp(const struct sock_filter *code, unsigned count);

#endif
