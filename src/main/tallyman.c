/* tallyman: the command line. Finds the verb and runs it; everything else is in the verbs' own
 * files. */
#include <stddef.h>
#include <string.h>

#include "main/output.h"
#include "main/verbs.h"

struct verb {
    const char *name;
    const char *help;
    int (*run)(int argc, char **argv);
};

static const struct verb verbs[] = {
#define X(name, help) {#name, help, verb_##name},
    VERBS(X)
#undef X
};

static void print_usage(void)
{
    output_printf(
        "usage: tallyman VERB [OPTIONS]\n\n"
        "A durable hand-off server: accept once, receipt after sync, deliver until the far "
        "side has it.\n\n");
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        output_printf("  %-8s  %s\n", verbs[i].name, verbs[i].help);
    }
    output_printf(
        "\n`tallyman VERB --help` prints the options of a verb.\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 violation found.\n");
}

int main(int argc, char **argv)
{
    output_guard_descriptors();
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        output_error("", "a verb is missing (see tallyman --help)");
        return EXIT_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_usage();
        return output_close("", EXIT_DONE);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        name = "version";
        argc = 2;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(name, verbs[i].name) == 0) {
            return verbs[i].run(argc - 1, argv + 1);
        }
    }
    output_error("", "there is no verb \"%.60s\" (see tallyman --help)", name);
    return EXIT_USAGE;
}
