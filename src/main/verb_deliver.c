/* tallyman deliver: brings accepted artifacts to their destinations (main/deliver.h). `serve`
 * starts and supervises one; it also runs alone, on a data directory whose server has --no-deliver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "main/args.h"
#include "main/backup.h"
#include "main/config.h"
#include "main/deliver.h"
#include "main/output.h"
#include "main/verbs.h"
#include "main/version.h"
#include "net/transfer.h"
#include "os/os.h"
#include "os/sandbox.h"

#define ENV_BACKOFF "TALLYMAN_DELIVERY_BACKOFF_MS"
#define AGENT_MAX   1200
#define PORT_DNS    53
#define PORT_HTTPS  443

/* What the command line says. */
static char agent[AGENT_MAX];
static const char *contact = "";
static uint64_t parent_fd = UINT64_MAX;
static uint64_t concurrency = DELIVER_CONCURRENCY;
static bool bare;
static struct deliver_options given = {.parent_fd = -1,
                                       .backoff_ms = DELIVER_BACKOFF_MS,
                                       .try_ms = DELIVER_TRY_MS,
                                       .stuck_ms = DELIVER_STUCK_MS,
                                       .grace_ms = DELIVER_GRACE_MS,
                                       .unseen_ms = DELIVER_UNSEEN_MS,
                                       .endpoints = {.archive_s3 = "https://s3.us.archive.org",
                                                     .archive_metadata = "https://archive.org",
                                                     .answer_ms = 1800000,
                                                     .stall_ms = 900000,
                                                     .user_agent = agent}};

/* For tests only: the pause after the first failure, in milliseconds. */
static bool backoff_read(uint64_t *out)
{
    const char *text = getenv(ENV_BACKOFF);

    return text == NULL || (args_u64(text, out) && *out > 0 && *out <= DELIVER_BACKOFF_MS_MAX);
}

/* Destinations are directories anywhere, named while this runs, so files stay writable; and the
 * Internet Archive, which sends us on to other hosts of its own, at the port of https. One that is
 * said to be on this machine (a stand-in) may send us to any port. What goes: starting programs,
 * other TCP, devices, pipes and links, and the calls that nothing here makes. */
static void confine(const struct artifact_endpoints *to)
{
    struct sandbox s = {.name = "deliver", .inet = true};
    struct sandbox_state state;

    sandbox_need(&s, "/", SANDBOX_READ | SANDBOX_WRITE);
    sandbox_allow_libraries(&s);
    s.connect_any =
        transfer_is_loopback(to->archive_s3) || transfer_is_loopback(to->archive_metadata);
    s.connect[s.connects++] = PORT_DNS; /* long answers of a resolver come by TCP */
    s.connect[s.connects++] = PORT_HTTPS;
    s.connect[s.connects++] = net_url_port(to->archive_s3);
    s.connect[s.connects++] = net_url_port(to->archive_metadata);
    sandbox_enter(&s, &state);
}

static int run(void)
{
    struct err e = {0};
    bool left_behind = false;
    int r;

    if (!backoff_read(&given.backoff_ms)) {
        output_error("deliver", "the value of %s is no number of milliseconds", ENV_BACKOFF);
        return EXIT_USAGE;
    }
    if (restore_check(given.data, &e) != 0) {
        output_error("deliver", "%s", e.text);
        return EXIT_FAILED;
    }
    if (os_set_nice(DELIVER_NICE) != 0) {
        log_line(LOG_WARN, "deliver", "the priority could not be lowered");
    }
    if (!bare) {
        confine(&given.endpoints);
    }
    r = deliver_run(&given, &left_behind, &e);
    if (r != 0) {
        output_error("deliver", "%s", e.text);
    }
    if (left_behind) {
        _exit(output_close("deliver", r != 0 ? EXIT_FAILED : EXIT_DONE)); /* see deliver.h */
    }
    return r != 0 ? EXIT_FAILED : EXIT_DONE;
}

/* "tallyman/0.1.0 (+https://example.org)"; a contact that no header can hold is left out. */
static void make_agent(void)
{
    bool fits = contact[0] != '\0' && strlen(contact) < AGENT_MAX - 64;

    for (const char *p = contact; *p != '\0'; p++) {
        fits = fits && *p > ' ' && *p <= '~';
    }
    (void)snprintf(agent, sizeof agent, "tallyman/%s%s%s%s", version_number(), fits ? " (+" : "",
                   fits ? contact : "", fits ? ")" : "");
}

static bool is_endpoint(const char *url)
{
    size_t n = strlen(url);

    return n > 0 && url[n - 1] != '/' && strpbrk(url, " ?#") == NULL &&
           (transfer_is_https(url) || transfer_is_loopback(url));
}

static const struct arg_option options[] = {
    {.name = "data",
     .type = ARG_TEXT,
     .target = &given.data,
     .value = "DIR",
     .help = "the data directory"},
    {.name = "parent-fd",
     .type = ARG_U64,
     .target = &parent_fd,
     .value = "N",
     .help = "end when this inherited descriptor does (set by serve)",
     .min = 3,
     .max = 1023},
    {.name = "concurrency",
     .type = ARG_U64,
     .target = &concurrency,
     .value = "N",
     .help = "files that are delivered at a time; 0: none are, packages are built",
     .max = DELIVER_CONCURRENCY_MAX},
    {.name = "try-ms",
     .type = ARG_U64,
     .target = &given.try_ms,
     .value = "N",
     .help = "longest time of one try",
     .min = 1,
     .max = DELIVER_TRY_MS * 365},
    {.name = "stuck-ms",
     .type = ARG_U64,
     .target = &given.stuck_ms,
     .value = "N",
     .help = "silence after which others need not wait for a try",
     .min = 1,
     .max = DELIVER_TRY_MS * 365},
    {.name = "grace-ms",
     .type = ARG_U64,
     .target = &given.grace_ms,
     .value = "N",
     .help = "at the end, how long tries under way are waited for",
     .max = 3600000},
    {.name = "unseen-ms",
     .type = ARG_U64,
     .target = &given.unseen_ms,
     .value = "N",
     .help = "sent and after so long still not visible there: an alarm",
     .min = 1,
     .max = DELIVER_TRY_MS * 365},
    {.name = "archive-s3-url",
     .type = ARG_TEXT,
     .target = &given.endpoints.archive_s3,
     .value = "URL",
     .help = "where files for the Internet Archive go; plain http to loopback only"},
    {.name = "archive-metadata-url",
     .type = ARG_TEXT,
     .target = &given.endpoints.archive_metadata,
     .value = "URL",
     .help = "where is asked what has arrived there"},
    {.name = "archive-answer-ms",
     .type = ARG_U64,
     .target = &given.endpoints.answer_ms,
     .value = "N",
     .help = "wait for the Archive's answer after the last byte",
     .min = 100,
     .max = 86400000},
    {.name = "archive-stall-ms",
     .type = ARG_U64,
     .target = &given.endpoints.stall_ms,
     .value = "N",
     .help = "silence after which an upload to the Archive is given up",
     .min = 100,
     .max = 86400000},
    {.name = "contact",
     .type = ARG_TEXT,
     .target = &contact,
     .value = "URL",
     .help = "where the Archive's people can reach us, for User-Agent"},
    {.name = "no-sandbox",
     .type = ARG_SWITCH,
     .target = &bare,
     .help = "keep the rights that are not needed (set by serve as its own setting says)"},
};

int verb_deliver(int argc, char **argv)
{
    int code = EXIT_DONE;
    const struct arg_verb verb = {
        .name = "deliver",
        .operands = "",
        .about = "Packages accepted artifacts and brings them to the destinations of their "
                 "projects,\nuntil SIGTERM. One process a data directory; serve starts one unless "
                 "told not to.\n",
        .options = options,
        .option_count = sizeof options / sizeof *options};
    struct args args;

    given.data = config_default_data();
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    if (!is_endpoint(given.endpoints.archive_s3) ||
        !is_endpoint(given.endpoints.archive_metadata)) {
        output_error("deliver", "the Archive's URLs must be https://HOST, or http:// to this "
                                "machine, without a query and a slash at the end");
        return EXIT_USAGE;
    }
    given.parent_fd = parent_fd == UINT64_MAX ? -1 : (int)parent_fd;
    given.concurrency = (unsigned)concurrency;
    make_agent();
    return output_close("deliver", run());
}
