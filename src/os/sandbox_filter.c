/* The filter of system calls: a list of what is refused, everything else passes. A list of what may
 * pass would be shorter in words and would break with each new version of the C library or of
 * libchdb; which files and ports may be touched is Landlock's part.
 *
 * Refused with EPERM, so that a program that tries finds out and goes on: looking into other
 * processes, mounting and other namespaces, modules and kernels, BPF, key rings, io_uring (whose
 * operations no filter sees), userfaultfd, profiling, clocks, names of the host, changing owners,
 * starting programs. clone3 gets ENOSYS, because its flags cannot be seen: the C library then uses
 * clone, whose flags are looked at. socket gets EAFNOSUPPORT but for Unix sockets, netlink (the
 * resolver asks for addresses) and, where it is needed, the internet's. ioctl may not type into
 * terminals. */
#include "os/sandbox_internal.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/ensure.h"

#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#endif

static const int refused[] = {
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_setns,
    SYS_unshare,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_bpf,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_userfaultfd,
    SYS_perf_event_open,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_fanotify_init,
    SYS_quotactl,
    SYS_acct,
    SYS_vhangup,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_chown
    SYS_chown,
    SYS_lchown,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
#endif
#ifndef SANDBOX_SANITIZED /* these look for leaks with ptrace, and start their symbolizer */
    SYS_ptrace,
    SYS_execve,
    SYS_execveat,
#endif
};

#define NEW_NAMESPACES                                                                            \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)

struct writer {
    struct sock_filter *code;
    unsigned n;
};

static void put(struct writer *w, uint16_t code, uint8_t yes, uint8_t no, uint32_t k)
{
    ensure(w->n < SANDBOX_CODE_MAX);
    w->code[w->n++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct writer *w, size_t offset)
{
    put(w, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

static void answer(struct writer *w, unsigned error)
{
    put(w, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error);
}

/* The lower half of an argument: all that an int is. */
static size_t argument(unsigned n)
{
    return offsetof(struct seccomp_data, args) + n * sizeof(uint64_t);
}

/* Refuses the loaded number. */
static void refuse(struct writer *w, int number, unsigned error)
{
    put(w, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)number);
    answer(w, error);
}

static void look_at_sockets(struct writer *w, bool inet)
{
    uint8_t families = inet ? 4 : 2;

    /* Not socket: over the load, the families, one refusal and one pass. */
    put(w, BPF_JMP | BPF_JEQ | BPF_K, 0, (uint8_t)(families + 3), SYS_socket);
    load(w, argument(0));
    put(w, BPF_JMP | BPF_JEQ | BPF_K, families, 0, AF_UNIX);
    put(w, BPF_JMP | BPF_JEQ | BPF_K, (uint8_t)(families - 1), 0, AF_NETLINK);
    if (inet) {
        put(w, BPF_JMP | BPF_JEQ | BPF_K, 2, 0, AF_INET);
        put(w, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, AF_INET6);
    }
    answer(w, EAFNOSUPPORT);
    put(w, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

unsigned sandbox_filter(struct sock_filter code[SANDBOX_CODE_MAX], bool inet)
{
    struct writer w = {.code = code};

#ifdef MACHINE
    load(&w, offsetof(struct seccomp_data, arch));
    put(&w, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, MACHINE);
    answer(&w, ENOSYS); /* calls of another machine's numbering */
    load(&w, offsetof(struct seccomp_data, nr));
#if defined(__x86_64__)
    put(&w, BPF_JMP | BPF_JGE | BPF_K, 0, 1, 0x40000000u); /* and of x32's */
    answer(&w, ENOSYS);
#endif
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        refuse(&w, refused[i], EPERM);
    }
    refuse(&w, SYS_clone3, ENOSYS);
    look_at_sockets(&w, inet);
    put(&w, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_clone);
    load(&w, argument(0));
    put(&w, BPF_JMP | BPF_JSET | BPF_K, 0, 1, NEW_NAMESPACES);
    answer(&w, EPERM);
    put(&w, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    put(&w, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, SYS_ioctl);
    load(&w, argument(1));
    put(&w, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, TIOCSTI);
    put(&w, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, TIOCLINUX);
    answer(&w, EPERM);
    put(&w, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
#else
    (void)w;
    (void)inet;
#endif
    return w.n;
}
