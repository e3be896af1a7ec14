/* sandbox: which rights of the kernel's stand for ours, what libraries read, and laying both layers
 * on.
 *
 * Rights that a kernel does not know are left out of what is handled: an older kernel restricts
 * less, never more. Versions before 2 are not used: they would forbid every rename between
 * directories, on which the journal's rotation rests. All rules are added before anything is laid
 * on; one that cannot be added although it is needed means that Landlock is left off, because a
 * server that cannot reach its data is worse than one without a second wall.
 *
 * A core is written by the process itself, inside its rules. Who asks for cores (a limit other than
 * 0) and has the kernel write them into a directory gives the right to make files there. The root
 * is left out, where services begin unless told otherwise: the right holds for everything below. */
#include "os/sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "os/sandbox_internal.h"

/* Landlock's bits. */
#define FS_EXECUTE     (UINT64_C(1) << 0)
#define FS_WRITE_FILE  (UINT64_C(1) << 1)
#define FS_READ_FILE   (UINT64_C(1) << 2)
#define FS_READ_DIR    (UINT64_C(1) << 3)
#define FS_REMOVE_DIR  (UINT64_C(1) << 4)
#define FS_REMOVE_FILE (UINT64_C(1) << 5)
#define FS_MAKE_DIR    (UINT64_C(1) << 7)
#define FS_MAKE_REG    (UINT64_C(1) << 8)
#define FS_MAKE_SOCK   (UINT64_C(1) << 9)
#define FS_MAKE_SYM    (UINT64_C(1) << 12)
#define FS_VERSION_1   ((UINT64_C(1) << 13) - 1)
#define FS_REFER       (UINT64_C(1) << 13) /* version 2 */
#define FS_TRUNCATE    (UINT64_C(1) << 14) /* version 3 */
#define FS_IOCTL_DEV   (UINT64_C(1) << 15) /* version 5 */
#define NET_BIND       (UINT64_C(1) << 0)  /* version 4 */
#define NET_CONNECT    (UINT64_C(1) << 1)
#define SCOPE_ABSTRACT (UINT64_C(1) << 0) /* version 6 */
#define SCOPE_SIGNAL   (UINT64_C(1) << 1)

#define ABI_MIN   2
#define ABI_KNOWN 7

#define FS_WRITE                                                                                 \
    (FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG | FS_MAKE_SOCK | \
     FS_REFER | FS_TRUNCATE)

static void add(struct sandbox *s, const char *path, unsigned rights, bool needed)
{
    if (path == NULL || path[0] == '\0') {
        return;
    }
    ensure(s->rules < SANDBOX_RULES_MAX);
    s->rule[s->rules++] = (struct sandbox_rule){path, rights, needed};
}

void sandbox_allow(struct sandbox *s, const char *path, unsigned rights)
{
    add(s, path, rights, false);
}

void sandbox_need(struct sandbox *s, const char *path, unsigned rights)
{
    add(s, path, rights, true);
}

/* ---- what libraries read ---- */

/* The directory that the kernel writes cores to, in out; false: none of ours to allow. */
static bool core_directory(char *out, size_t size)
{
    char *slash;
    char *real;
    bool wanted;
    uint64_t limit = 0;
    int64_t n;
    int fd;

    if (os_core_limit(&limit) != 0 || limit == 0) {
        return false;
    }
    fd = os_open("/proc/sys/kernel/core_pattern", O_RDONLY, 0);
    if (fd < 0) {
        return false;
    }
    n = os_read(fd, out, size - 1);
    (void)os_close(fd);
    if (n <= 0 || out[0] == '|') { /* a program takes them: the kernel starts it */
        return false;
    }
    out[n] = '\0';
    slash = strrchr(out, '/');
    if (slash == NULL) {
        (void)snprintf(out, size, ".");
    } else {
        slash[slash == out ? 1 : 0] = '\0';
    }
    real = realpath(out, NULL);
    wanted = real != NULL && strcmp(real, "/") != 0 && strchr(out, '%') == NULL;
    free(real);
    return wanted;
}

void sandbox_allow_behind(struct sandbox *s, const char *path, char room[SANDBOX_PATH_MAX])
{
    char *real = realpath(path, NULL);
    char *slash = real == NULL ? NULL : strrchr(real, '/');

    if (slash != NULL && slash != real && slash - real < SANDBOX_PATH_MAX) {
        *slash = '\0';
        memcpy(room, real, (size_t)(slash - real) + 1);
        sandbox_allow(s, room, SANDBOX_READ);
    }
    free(real);
}

void sandbox_allow_libraries(struct sandbox *s)
{
    static const char *const read[] = {"/etc",
                                       "/usr",
                                       "/lib",
                                       "/lib32",
                                       "/lib64",
                                       "/proc",
                                       "/sys",
                                       "/dev/random",
                                       "/dev/urandom",
                                       "/run/systemd/resolve",
                                       "/nix",
                                       "/gnu/store",
                                       "/run/resolvconf",
                                       "/run/NetworkManager",
                                       "/var/lib/ca-certificates"};
    static char core[256];
    static char resolver[SANDBOX_PATH_MAX];

    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        sandbox_allow(s, read[i], SANDBOX_READ);
    }
    sandbox_allow_behind(s, "/etc/resolv.conf", resolver); /* a link, to where differs */
    sandbox_allow(s, getenv("SSL_CERT_FILE"), SANDBOX_READ);
    sandbox_allow(s, getenv("SSL_CERT_DIR"), SANDBOX_READ);
    sandbox_allow(s, getenv("CURL_CA_BUNDLE"), SANDBOX_READ);
    sandbox_allow(s, "/dev/null", SANDBOX_READ | SANDBOX_WRITE);
    if (core_directory(core, sizeof core)) {
        sandbox_allow(s, core, SANDBOX_WRITE);
    }
#ifdef SANDBOX_SANITIZED
    sandbox_allow(s, "/usr", SANDBOX_EXECUTE); /* a sanitizer's symbolizer */
#endif
}

/* ---- laying it on ---- */

static uint64_t rights_of(unsigned rights)
{
    return ((rights & SANDBOX_LIST) != 0 ? FS_READ_DIR : 0) |
           ((rights & SANDBOX_READ) != 0 ? FS_READ_FILE | FS_READ_DIR : 0) |
           ((rights & SANDBOX_WRITE) != 0 ? FS_WRITE : 0) |
           ((rights & SANDBOX_LINK) != 0 ? FS_MAKE_SYM : 0) |
           ((rights & SANDBOX_EXECUTE) != 0 ? FS_EXECUTE : 0);
}

static void missing(struct sandbox_state *state, const char *what, int os_result)
{
    size_t n = strlen(state->detail);
    char reason[64];

    (void)snprintf(state->detail + n, sizeof state->detail - n, "%s%s: %s", n > 0 ? "; " : "", what,
                   strerror_r(-os_result, reason, sizeof reason));
}

static int add_rules(const struct sandbox *s, int rules, uint64_t files)
{
    int r = 0;

    for (size_t i = 0; i < s->rules && r == 0; i++) {
        const struct sandbox_rule *rule = &s->rule[i];
        r = os_landlock_path(rules, rule->path, rights_of(rule->rights) & files);
        r = rule->needed ? r : 0;
    }
    return r;
}

static int add_ports(const struct sandbox *s, int rules)
{
    int r = 0;

    for (size_t i = 0; i < s->binds && r == 0; i++) {
        r = os_landlock_port(rules, s->bind[i], NET_BIND);
    }
    for (size_t i = 0; i < s->connects && r == 0 && !s->connect_any; i++) {
        r = os_landlock_port(rules, s->connect[i], NET_CONNECT);
    }
    return r;
}

static void enter_landlock(const struct sandbox *s, struct sandbox_state *state)
{
    uint64_t files = FS_VERSION_1 | FS_REFER;
    uint64_t net = 0;
    uint64_t scopes = 0;
    int abi = os_landlock_abi();
    int rules;
    int r;

    if (abi < ABI_MIN) {
        missing(state, "Landlock", abi < 0 ? abi : -ENOSYS);
        return;
    }
    files |= abi >= 3 ? FS_TRUNCATE : 0;
    files |= abi >= 5 ? FS_IOCTL_DEV : 0;
    net |= abi >= 4 ? NET_BIND : 0;
    net |= abi >= 4 && !s->connect_any ? NET_CONNECT : 0;
    scopes |= abi >= 6 ? SCOPE_ABSTRACT : 0;
    scopes |= abi >= 6 && !s->signals ? SCOPE_SIGNAL : 0;
    rules = os_landlock_create(files, net, scopes);
    if (rules < 0) {
        missing(state, "Landlock", rules);
        return;
    }
    r = add_rules(s, rules, files);
    if (r == 0 && net != 0) {
        r = add_ports(s, rules);
    }
    if (r == 0) {
        r = os_landlock_enter(rules);
    }
    (void)os_close(rules);
    if (r != 0) {
        missing(state, "Landlock", r);
        return;
    }
    state->landlock = abi < ABI_KNOWN ? abi : ABI_KNOWN;
}

void sandbox_enter(const struct sandbox *s, struct sandbox_state *state)
{
    struct sock_filter code[SANDBOX_CODE_MAX];
    unsigned count = sandbox_filter(code, s->inet);
    int r;

    *state = (struct sandbox_state){.wanted = true};
    enter_landlock(s, state);
    r = count > 0 ? os_seccomp(code, count) : -ENOSYS;
    state->seccomp = r == 0;
    if (r != 0) {
        missing(state, "seccomp", r);
    }
    if (state->detail[0] != '\0') {
        log_line(LOG_WARN, s->name, "the sandbox is not whole: %s", state->detail);
    } else {
        log_line(LOG_INFO, s->name, "sandbox: Landlock version %d, seccomp", state->landlock);
    }
}
