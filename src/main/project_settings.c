/* project_settings: options to JSON, and JSON to lines.
 *
 * Rules are the server's, which names the member that breaks one; here is only what a server could
 * not know: where a relative path begins, and that --metadata needs a "=".
 *
 * A change of the sink takes along what the other sink alone has: it is reset, unless the same
 * command gives it. So does a change of the packager. */
#include "main/project_settings.h"

#include <stdlib.h>
#include <string.h>

#include "main/api.h"
#include "main/config.h"
#include "main/output.h"
#include "json/read.h"
#include "json/write.h"

bool project_settings_given(const struct project_settings *s)
{
    return s->sink != NULL || s->directory != NULL || s->credentials_file != NULL ||
           s->identifier != NULL || s->remote_name != NULL || s->retention != NULL ||
           s->packager != NULL || s->package_target != NULL || s->package_trigger != NULL ||
           s->package_max_wait != NULL || s->metadata.count > 0 || s->no_require_checksum ||
           s->require_checksum;
}

/* Of the first "=" of a NAME=TEXT; 0: there is none, or no name. */
static size_t name_length(const char *text)
{
    const char *equals = strchr(text, '=');

    return equals == NULL ? 0 : (size_t)(equals - text);
}

/* Not given and "", the default, are fine. */
static bool is_size(const char *text)
{
    uint64_t bytes;

    return text == NULL || text[0] == '\0' || config_bytes(text, &bytes);
}

const char *project_settings_mistake(const struct project_settings *s, bool create)
{
    bool archive = s->credentials_file != NULL || s->sink != NULL;

    if (s->directory != NULL && s->directory[0] == '\0') {
        return "--directory: must not be empty";
    }
    if (create && s->directory == NULL && s->credentials_file == NULL &&
        project_settings_given(s)) {
        return archive && s->sink != NULL && strcmp(s->sink, "internet_archive") == 0
                   ? "--sink internet_archive needs --credentials-file"
                   : "--sink and the other settings need --directory or --credentials-file";
    }
    if (s->directory != NULL && s->credentials_file != NULL) {
        return "--directory and --credentials-file go with different sinks";
    }
    if (s->no_require_checksum && s->require_checksum) {
        return "--require-checksum and --no-require-checksum: one of them";
    }
    if (!is_size(s->package_target) || !is_size(s->package_trigger)) {
        return "--package-target and --package-trigger: a number of bytes, or with KiB, MiB or "
               "GiB behind it";
    }
    for (unsigned i = 0; i < s->metadata.count; i++) {
        bool reset = s->metadata.count == 1 && s->metadata.item[0][0] == '\0';
        if (!reset && name_length(s->metadata.item[i]) == 0) {
            return "--metadata: must be NAME=TEXT";
        }
    }
    return NULL;
}

/* ---- to JSON ---- */

static void put_text(struct buf *b, const char *name, const char *value)
{
    if (value == NULL) {
        return;
    }
    json_put_name(b, name);
    if (value[0] == '\0') {
        buf_put_cstr(b, "null");
    } else {
        json_put_string(b, slice_cstr(value));
    }
}

/* As the server must know it. */
static void put_path(struct buf *b, const char *name, const char *value)
{
    char *here = value[0] == '/' ? NULL : realpath(".", NULL);
    struct buf path = {0};

    if (value[0] != '/') {
        b->failed = b->failed || here == NULL;
        buf_put_cstr(&path, here != NULL ? here : "");
        buf_put_char(&path, '/');
    }
    buf_put_cstr(&path, value);
    free(here);
    json_put_name(b, name);
    json_put_string(b, buf_slice(&path));
    b->failed = b->failed || path.failed;
    buf_free(&path);
}

static struct slice key_of(const struct project_settings *s, unsigned i)
{
    return slice_of(s->metadata.item[i], name_length(s->metadata.item[i]));
}

static void put_metadata(struct buf *b, const struct project_settings *s)
{
    json_put_name(b, "metadata");
    if (s->metadata.item[0][0] == '\0') {
        buf_put_cstr(b, "null");
        return;
    }
    buf_put_char(b, '{');
    for (unsigned i = 0; i < s->metadata.count; i++) {
        unsigned first = 0;
        while (!slice_eq(key_of(s, first), key_of(s, i))) {
            first++;
        }
        if (first < i) {
            continue; /* it is in the list of the first one */
        }
        buf_put_cstr(b, i == 0 ? "" : ",");
        json_put_string(b, key_of(s, i));
        buf_put_cstr(b, ":[");
        for (unsigned j = i; j < s->metadata.count; j++) {
            if (slice_eq(key_of(s, j), key_of(s, i))) {
                buf_put_cstr(b, j == i ? "" : ",");
                json_put_string(b, slice_cstr(s->metadata.item[j] + key_of(s, j).len + 1));
            }
        }
        buf_put_char(b, ']');
    }
    buf_put_char(b, '}');
}

static void put_flag(struct buf *b, const char *name, bool value)
{
    json_put_name(b, name);
    buf_put_cstr(b, value ? "true" : "false");
}

static void put_size(struct buf *b, const char *name, const char *value)
{
    uint64_t bytes = 0;

    if (value == NULL) {
        return;
    }
    json_put_name(b, name);
    if (config_bytes(value, &bytes)) {
        buf_put_u64(b, bytes);
    } else {
        buf_put_cstr(b, "null"); /* "": others were a mistake */
    }
}

/* A packager without packages to fill takes the rules for filling them along. */
static void put_packager(struct buf *b, const struct project_settings *s)
{
    bool reset = s->packager != NULL && strcmp(s->packager, "mergewarc") != 0;

    put_text(b, "package_max_wait",
             reset && s->package_max_wait == NULL ? "" : s->package_max_wait);
    put_size(b, "package_target", reset && s->package_target == NULL ? "" : s->package_target);
    put_size(b, "package_trigger", reset && s->package_trigger == NULL ? "" : s->package_trigger);
    put_text(b, "packager", s->packager);
}

void project_settings_put(struct buf *b, const struct project_settings *s)
{
    const char *sink = s->sink != NULL               ? s->sink
                       : s->directory != NULL        ? "directory"
                       : s->credentials_file != NULL ? "internet_archive"
                                                     : NULL;

    buf_put_char(b, '{');
    put_text(b, "sink", sink);
    if (s->directory != NULL) {
        put_path(b, "directory", s->directory);
    } else if (sink != NULL && strcmp(sink, "internet_archive") == 0) {
        put_text(b, "directory", "");
    }
    if (s->credentials_file != NULL && s->credentials_file[0] != '\0') {
        put_path(b, "credentials_file", s->credentials_file);
    } else if (s->credentials_file != NULL || (sink != NULL && strcmp(sink, "directory") == 0)) {
        put_text(b, "credentials_file", "");
    }
    if (s->metadata.count > 0) {
        put_metadata(b, s);
    } else if (sink != NULL && strcmp(sink, "directory") == 0) {
        put_text(b, "metadata", "");
    }
    put_text(b, "identifier", s->identifier);
    put_text(b, "remote_name", s->remote_name);
    put_text(b, "retention", s->retention);
    put_packager(b, s);
    if (s->no_require_checksum || s->require_checksum) {
        put_flag(b, "require_checksum", s->require_checksum);
    }
    buf_put_char(b, '}');
}

/* ---- for people ---- */

static bool artifacts_of(struct slice project, struct slice *out)
{
    return json_member(project, SLICE("artifacts"), out) && json_type_of(*out) == JSON_OBJECT;
}

void project_settings_put_short(struct buf *out, struct slice project)
{
    struct slice artifacts, sink, inner, where;

    if (!artifacts_of(project, &artifacts) || !json_member(artifacts, SLICE("sink"), &sink) ||
        !json_string_raw(sink, &inner)) {
        return;
    }
    if (json_member(artifacts,
                    json_string_is(inner, SLICE("directory")) ? SLICE("directory")
                                                              : SLICE("identifier"),
                    &where)) {
        api_put_shown(out, sink);
        buf_put_cstr(out, ": ");
        api_put_shown(out, where);
    }
}

void project_settings_print(struct slice project, int width)
{
    struct slice artifacts, name, value;
    struct json_iter it;

    if (!artifacts_of(project, &artifacts)) {
        return;
    }
    it = json_iter_object(artifacts);
    while (json_next_member(&it, &name, &value)) {
        struct buf shown = {0};
        if (json_type_of(value) == JSON_NULL || slice_eq(name, SLICE("sink")) ||
            slice_eq(name, SLICE("directory"))) {
            continue; /* in the short line */
        }
        api_put_shown(&shown, value);
        output_printf("artifacts.%-*.*s %.*s\n", width - (int)sizeof "artifacts." + 1,
                      (int)name.len, name.ptr, (int)shown.len, shown.len > 0 ? shown.ptr : "");
        buf_free(&shown);
    }
}
