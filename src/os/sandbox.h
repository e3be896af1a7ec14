/* sandbox: a process gives up what it does not need, for good (docs/ARCHITECTURE.md, section 19).
 *
 * Two layers, each as far as the kernel has it. Landlock (since Linux 5.19): files may be read,
 * listed and written only below the places that a rule names, nothing is executed, TCP only to and
 * from the ports that a rule names. seccomp: calls that no part of Tallyman makes, and that break-
 * ins begin with, are answered EPERM. What is open already stays usable. Both hold for the calling
 * thread, and for the threads and processes it starts from then on: to be called before any thread
 * is made.
 *
 * A kernel without one of them, or one that refuses, is no failure: the process goes on, state says
 * what is missing, and one warning is logged. */
#ifndef OS_SANDBOX_H
#define OS_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SANDBOX_RULES_MAX 40u
#define SANDBOX_PORTS_MAX 4u
#define SANDBOX_PATH_MAX  1024

enum sandbox_right {
    SANDBOX_LIST = 1,  /* names in directories */
    SANDBOX_READ = 2,  /* with names */
    SANDBOX_WRITE = 4, /* make, change, rename and remove files, directories and Unix sockets */
    SANDBOX_LINK = 8,  /* make symbolic links */
    SANDBOX_EXECUTE = 16
};

struct sandbox_rule {
    const char *path; /* borrowed until sandbox_enter; NULL: none */
    unsigned rights;
    bool needed; /* without it nothing is laid on: the process could not work */
};

struct sandbox {
    const char *name; /* of the process, for the log */
    struct sandbox_rule rule[SANDBOX_RULES_MAX];
    size_t rules;
    uint16_t bind[SANDBOX_PORTS_MAX],
        connect[SANDBOX_PORTS_MAX]; /* TCP; 0 in bind: any free port */
    size_t binds, connects;
    bool connect_any; /* TCP to any port: connect says nothing */
    bool signals;     /* it sends signals to processes outside */
    bool inet;        /* it uses sockets of IPv4 and IPv6 */
};

struct sandbox_state {
    bool wanted;
    int landlock; /* version of the kernel's, as far as it is known here; 0: not in force */
    bool seccomp;
    char detail[160]; /* what is missing and why; "" */
};

/* Adds a rule. NULL and "" are left out. */
void sandbox_allow(struct sandbox *s, const char *path, unsigned rights);
/* The same for a place without which the process cannot work. */
void sandbox_need(struct sandbox *s, const char *path, unsigned rights);
/* The directory may be read in which a file really lies that is named through links, so that it may
 * be replaced there; not when that is the root. room keeps its path until sandbox_enter. */
void sandbox_allow_behind(struct sandbox *s, const char *path, char room[SANDBOX_PATH_MAX]);
/* What the C library, the resolver and OpenSSL read, and where cores go when they are asked for. */
void sandbox_allow_libraries(struct sandbox *s);
/* Lays it on and fills *state. */
void sandbox_enter(const struct sandbox *s, struct sandbox_state *state);

#endif
