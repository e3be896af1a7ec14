/* tallyman version: what this build is called. */
#include "main/args.h"
#include "main/output.h"
#include "main/verbs.h"
#include "main/version.h"

int verb_version(int argc, char **argv)
{
    bool json = false;
    int code = EXIT_DONE;
    const struct arg_option options[] = {
        {.name = "json", .type = ARG_SWITCH, .target = &json, .help = "print a JSON object"},
    };
    const struct arg_verb verb = {.name = "version",
                                  .operands = "",
                                  .about = "Prints version and revision of this build.\n",
                                  .options = options,
                                  .option_count = sizeof options / sizeof *options};
    struct args args;
    if (!args_begin(&verb, argc, argv, &args, &code)) {
        return code;
    }
    if (json) {
        output_printf("{\"version\":\"%s\",\"revision\":\"%s\"}\n", version_number(),
                      version_revision());
    } else {
        output_printf("tallyman %s+%s\n", version_number(), version_revision());
    }
    return output_close("version", code);
}
