/* tallyman deliver: brings accepted artifacts to their destinations (main/deliver.h). `serve`
 * starts and supervises one; it also runs alone, on a data directory whose server has --no-deliver.
 */
#include <stdlib.h>

#include "base/log.h"
#include "main/args.h"
#include "main/backup.h"
#include "main/config.h"
#include "main/deliver.h"
#include "main/output.h"
#include "main/verbs.h"
#include "os/os.h"
#include "os/sandbox.h"

#define ENV_BACKOFF "TALLYMAN_DELIVERY_BACKOFF_MS"

/* For tests only: the pause after the first failure, in milliseconds. */
static bool backoff_read(uint64_t *out)
{
    const char *text = getenv(ENV_BACKOFF);

    return text == NULL || (args_u64(text, out) && *out > 0 && *out <= DELIVER_BACKOFF_MS_MAX);
}

/* Destinations are directories anywhere, named while this runs, so files stay writable. What goes:
 * starting programs, TCP, devices, pipes and links, and the calls that nothing here makes. */
static void confine(void)
{
    struct sandbox s = {.name = "deliver"};
    struct sandbox_state state;

    sandbox_need(&s, "/", SANDBOX_READ | SANDBOX_WRITE);
    sandbox_allow_libraries(&s);
    sandbox_enter(&s, &state);
}

static int run(const char *data, uint64_t parent_fd, bool bare)
{
    struct deliver_options options = {.data = data,
                                      .parent_fd = parent_fd == UINT64_MAX ? -1 : (int)parent_fd,
                                      .backoff_ms = DELIVER_BACKOFF_MS};
    struct err e = {0};

    if (!backoff_read(&options.backoff_ms)) {
        output_error("deliver", "the value of %s is no number of milliseconds", ENV_BACKOFF);
        return EXIT_USAGE;
    }
    if (restore_check(data, &e) != 0) {
        output_error("deliver", "%s", e.text);
        return EXIT_FAILED;
    }
    if (os_set_nice(DELIVER_NICE) != 0) {
        log_line(LOG_WARN, "deliver", "the priority could not be lowered");
    }
    if (!bare) {
        confine();
    }
    if (deliver_run(&options, &e) != 0) {
        output_error("deliver", "%s", e.text);
        return EXIT_FAILED;
    }
    return EXIT_DONE;
}

int verb_deliver(int argc, char **argv)
{
    const char *data = config_default_data();
    uint64_t parent_fd = UINT64_MAX;
    bool bare = false;
    int code = EXIT_DONE;
    const struct arg_option options[] = {
        {.name = "data",
         .type = ARG_TEXT,
         .target = &data,
         .value = "DIR",
         .help = "the data directory"},
        {.name = "parent-fd",
         .type = ARG_U64,
         .target = &parent_fd,
         .value = "N",
         .help = "end when this inherited descriptor does (set by serve)",
         .min = 3,
         .max = 1023},
        {.name = "no-sandbox",
         .type = ARG_SWITCH,
         .target = &bare,
         .help = "keep the rights that are not needed (set by serve as its own setting says)"},
    };
    const struct arg_verb verb = {
        .name = "deliver",
        .operands = "",
        .about = "Packages accepted artifacts and brings them to the destinations of their "
                 "projects,\nuntil SIGTERM. One process a data directory; serve starts one unless "
                 "told not to.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;

    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    return output_close("deliver", run(data, parent_fd, bare));
}
