/* project_settings: the options of `tallyman project` that say how a project's files are delivered,
 * as the "artifacts" object of the management API; and that object for people. */
#ifndef MAIN_PROJECT_SETTINGS_H
#define MAIN_PROJECT_SETTINGS_H

#include "base/buf.h"
#include "main/args.h"

struct project_settings {
    const char *sink, *directory, *credentials_file; /* NULL: not given */
    const char *identifier, *remote_name, *retention, *packager;
    const char *package_target, *package_trigger, *package_max_wait;
    struct arg_texts metadata; /* NAME=TEXT */
    bool no_require_checksum, require_checksum;
};

/* Rows for the verb's option table. */
#define PROJECT_SETTINGS_OPTIONS(s)                                                             \
    {.name = "sink",                                                                            \
     .type = ARG_TEXT,                                                                          \
     .target = &(s).sink,                                                                       \
     .value = "NAME",                                                                           \
     .help = "what delivers its files: directory or internet_archive"},                         \
        {.name = "directory",                                                                   \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).directory,                                                              \
         .value = "DIR",                                                                        \
         .help = "take files, and deliver them below DIR, which exists"},                       \
        {.name = "credentials-file",                                                            \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).credentials_file,                                                       \
         .value = "FILE",                                                                       \
         .help = "take files, and deliver them to the Internet Archive with the keys in FILE"}, \
        {.name = "identifier",                                                                  \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).identifier,                                                             \
         .value = "TEMPLATE",                                                                   \
         .help = "the folder or item: text with {{PROJECT}}, {{OBJECT_ID}}, "                   \
                 "{{PACKAGE_ID_SHORT}}, {{DATE}}, ..."},                                        \
        {.name = "remote-name",                                                                 \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).remote_name,                                                            \
         .value = "TEMPLATE",                                                                   \
         .help = "the file's name in it (default {{FILENAME}})"},                               \
        {.name = "metadata",                                                                    \
         .type = ARG_TEXTS,                                                                     \
         .target = &(s).metadata,                                                               \
         .value = "NAME=TEMPLATE",                                                              \
         .help = "metadata of the item; may be repeated, also for one name"},                   \
        {.name = "retention",                                                                   \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).retention,                                                              \
         .value = "TIME",                                                                       \
         .help = "keep local bytes so long after their delivery is verified, as 30d or 12h "    \
                 "(default: for good)"},                                                        \
        {.name = "packager",                                                                    \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).packager,                                                               \
         .value = "NAME",                                                                       \
         .help = "identity (the default): each file by itself; mergewarc: joins .warc.zst "     \
                 "files"},                                                                      \
        {.name = "package-target",                                                              \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).package_target,                                                         \
         .value = "SIZE",                                                                       \
         .help = "mergewarc: the size of a package, as 1GiB"},                                  \
        {.name = "package-trigger",                                                             \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).package_trigger,                                                        \
         .value = "SIZE",                                                                       \
         .help = "mergewarc: packages are made when so much waits, at least the target"},       \
        {.name = "package-max-wait",                                                            \
         .type = ARG_TEXT,                                                                      \
         .target = &(s).package_max_wait,                                                       \
         .value = "TIME",                                                                       \
         .help = "mergewarc: or when the oldest has waited so long, as 24h"},                   \
        {.name = "no-require-checksum",                                                         \
         .type = ARG_SWITCH,                                                                    \
         .target = &(s).no_require_checksum,                                                    \
         .help = "take uploads that declare no checksum, too"},                                 \
    {                                                                                           \
        .name = "require-checksum", .type = ARG_SWITCH, .target = &(s).require_checksum,        \
        .help = "with set: do not, which is the default"                                        \
    }

/* Any of them was given. */
bool project_settings_given(const struct project_settings *s);
/* What is wrong before a server is asked, or NULL. create: with a new project. */
const char *project_settings_mistake(const struct project_settings *s, bool create);
/* Appends the object: only what was given; an empty value is null, the default. */
void project_settings_put(struct buf *b, const struct project_settings *s);

/* Appends "directory: /srv/files" or "internet_archive: IDENTIFIER", or nothing for a project that
 * takes no artifacts. */
void project_settings_put_short(struct buf *out, struct slice project);
/* Prints the rest, one member a line, names as wide as width. */
void project_settings_print(struct slice project, int width);

#endif
