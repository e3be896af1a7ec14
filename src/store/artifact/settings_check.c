/* settings: the rules of a project's settings as a whole.
 *
 * Templates are expanded with values at both ends of what they can be in this project: the longest
 * and the shortest file name, which may begin with anything a safe name begins with; project, ids
 * and time have one length each. What every expansion gives must be allowed by the sink, so that no
 * accepted file is met by a rule first when it is to be delivered. Only the file's name is not
 * known before, and where it would complete a name that the sink keeps for itself it gives way
 * (delivery_plan.c). With mergewarc, what a merged package is called is tried too: besides, an
 * artifact that cannot be in one is sent as it is when somebody asks for that.
 *
 * Unknown placeholders are refused here, though expanding leaves them as they are: a typo must not
 * reach a public archive, whose names are for ever. So is a place without the object or the package
 * id: two packages would meet there.
 *
 * Power failure: nothing is stored here. Answers only. */
#include <stdio.h>

#include "base/ensure.h"
#include "store/artifact/delivery_plan.h"
#include "store/artifact/destination.h"
#include "store/artifact/settings.h"
#include "json/read.h"

#define OBJECT_ID  "0123456789abcdef0123456789abcdef"
#define PACKAGE_ID OBJECT_ID OBJECT_ID
#define SAMPLES    2

static int say(struct err *e, const char *member, const char *what)
{
    return err_set(e, ERR_INVALID_PROJECT, "artifacts.%s: %.200s", member, what);
}

/* ---- what goes with which sink ---- */

/* Without "." and "..", empty parts and a slash at the end: so that its parents can be told from
 * its text. */
static bool clean_path(const char *path)
{
    const char *at = path;

    while (*at == '/') {
        const char *end = strchr(at + 1, '/');
        size_t n = end == NULL ? strlen(at + 1) : (size_t)(end - at - 1);
        if (n == 0 || (at[1] == '.' && (n == 1 || (n == 2 && at[2] == '.')))) {
            return false;
        }
        at += n + 1;
    }
    return *at == '\0' && at != path;
}

static int check_archive(const struct artifact_sink *to, struct err *e)
{
    if (to->directory[0] != '\0') {
        return say(e, "directory", "the sink internet_archive has none");
    }
    if (to->credentials_file[0] == '\0') {
        return say(e, "credentials_file",
                   "the sink internet_archive needs one: the path of a file"
                   " with the access key and the secret");
    }
    if (!clean_path(to->credentials_file)) {
        return say(e, "credentials_file", "it is an absolute path without \".\", \"..\" or \"//\"");
    }
    return to->identifier[0] == '\0' ? say(e, "identifier",
                                           "the sink internet_archive needs one, as \"{{PROJECT}}-"
                                           "{{PACKAGE_ID_SHORT}}\"")
                                     : 0;
}

static int check_directory(const struct artifact_sink *to, struct err *e)
{
    if (to->directory[0] == '\0') {
        return say(e, "directory", "the sink directory needs one");
    }
    if (to->directory[0] != '/') {
        return say(e, "directory", "it is an absolute path");
    }
    if (to->credentials_file[0] != '\0') {
        return say(e, "credentials_file", "the sink directory has none");
    }
    return to->metadata[0] != '\0' ? say(e, "metadata", "the sink directory keeps none") : 0;
}

static bool merges(const struct artifact_sink *to)
{
    return strcmp(to->packager, DELIVERY_MERGEWARC) == 0;
}

static int check_packager(const struct artifact_sink *to, struct err *e)
{
    const char *what =
        merges(to) ? "the packager mergewarc needs it" : "only the packager mergewarc has it";

    if (!merges(to) && to->packager[0] != '\0' && strcmp(to->packager, DELIVERY_PACKAGER) != 0) {
        return say(e, "packager", "there are \"identity\" and \"mergewarc\"");
    }
    if (merges(to) != (to->package_target > 0)) {
        return say(e, "package_target", what);
    }
    if (merges(to) != (to->package_trigger > 0)) {
        return say(e, "package_trigger", what);
    }
    if (merges(to) != (to->package_max_wait_ms > 0)) {
        return say(e, "package_max_wait", what);
    }
    return to->package_trigger < to->package_target
               ? say(e, "package_trigger", "it is at least package_target")
               : 0;
}

static int check_members(const struct artifact_sink *to, struct err *e)
{
    int r;

    if (strcmp(to->sink, DESTINATION_DIRECTORY) == 0) {
        r = check_directory(to, e);
    } else if (strcmp(to->sink, DESTINATION_ARCHIVE) == 0) {
        r = check_archive(to, e);
    } else {
        r = say(e, "sink", "there are \"directory\" and \"internet_archive\"");
    }
    return r == 0 ? check_packager(to, e) : r;
}

/* ---- templates ---- */

static int check_placeholders(const char *member, struct slice text, struct err *e)
{
    struct slice bad;

    if (template_known(text, &bad)) {
        return 0;
    }
    return err_set(
        e, ERR_INVALID_PROJECT,
        "artifacts.%.100s: %.*s is no placeholder; there are {{PROJECT}}, {{OBJECT_ID}}, "
        "{{PACKAGE_ID}}, {{PACKAGE_ID_SHORT}}, {{FILENAME}}, {{PACKAGE_FILENAME}} and "
        "{{DATE}}",
        member, bad.len > 40 ? 40 : (int)bad.len, bad.ptr);
}

static int check_metadata_placeholders(const char *metadata, struct err *e)
{
    struct json_iter it = json_iter_object(slice_cstr(metadata));
    struct slice key, list, value, inner;
    int r = 0;

    while (r == 0 && json_next_member(&it, &key, &list)) {
        struct json_iter values = json_iter_array(list);
        for (unsigned i = 0; r == 0 && json_next_element(&values, &value); i++) {
            char member[100];
            struct buf text = {0};
            ensure(json_string_raw(value, &inner));
            json_unescape(inner, &text);
            (void)snprintf(member, sizeof member, "metadata.%.*s[%u]",
                           key.len > 60 ? 60 : (int)key.len, key.ptr, i);
            r = text.failed ? err_set(e, ERR_NO_MEMORY, "no memory for metadata")
                            : check_placeholders(member, buf_slice(&text), e);
            buf_free(&text);
        }
    }
    ensure(r < 0 || !it.bad);
    return r;
}

static void sample(struct template_values *v, struct slice project, struct slice filename)
{
    v->value[TEMPLATE_PROJECT] = project;
    v->value[TEMPLATE_OBJECT_ID] = SLICE(OBJECT_ID);
    v->value[TEMPLATE_PACKAGE_ID] = SLICE(PACKAGE_ID);
    v->value[TEMPLATE_PACKAGE_ID_SHORT] = slice_of(PACKAGE_ID, TEMPLATE_SHORT_LEN);
    v->value[TEMPLATE_FILENAME] = filename;
    v->value[TEMPLATE_PACKAGE_FILENAME] = filename;
    v->value[TEMPLATE_DATE] = SLICE("20261130120000");
}

/* Of a merged package, whose id stands where the object's would. */
static void sample_merged(struct template_values *v, struct slice project,
                          char name[SETTINGS_MERGED_NAME_MAX])
{
    settings_merged_name(project, slice_of(PACKAGE_ID, TEMPLATE_SHORT_LEN), name);
    sample(v, project, slice_cstr(name));
    v->value[TEMPLATE_OBJECT_ID] = SLICE(PACKAGE_ID);
}

void settings_merged_name(struct slice project, struct slice short_id,
                          char out[SETTINGS_MERGED_NAME_MAX])
{
    int n = snprintf(out, SETTINGS_MERGED_NAME_MAX, "%.*s-%.*s" DELIVERY_PAYLOAD_TAIL,
                     (int)project.len, project.ptr, (int)short_id.len, short_id.ptr);

    ensure(n > 0);
    ensure(n < SETTINGS_MERGED_NAME_MAX);
    for (size_t i = 0; i < project.len; i++) {
        char c = out[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     c == '_' || c == '-' || (c == '.' && i > 0);
        out[i] = '_';
        if (plain) {
            out[i] = c;
        }
    }
}

typedef int rule_fn(const char *sink, struct slice name, struct err *e);

/* The template, expanded, with tail behind it. */
static int check_expanded(const struct artifact_sink *to, const char *member, struct slice text,
                          const char *tail, const struct template_values *v, rule_fn *rule,
                          struct err *e)
{
    struct buf b;
    struct err why = {0};
    int r;

    buf_init(&b, DELIVERY_NAME_MAX - 1);
    template_expand(text, v, &b);
    buf_put_cstr(&b, tail);
    if (b.no_memory) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to check a project's settings");
    } else if (b.failed) {
        r = say(e, member, "with the longest values it is too long");
    } else {
        r = rule(to->sink, buf_slice(&b), &why);
        if (r < 0) {
            r = err_set(e, ERR_INVALID_PROJECT, "artifacts.%s: \"%.*s%s\" is possible, but %.120s",
                        member, b.len > 100 ? 100 : (int)b.len, b.len > 0 ? b.ptr : "",
                        b.len > 100 ? "..." : "", why.text);
        }
    }
    buf_free(&b);
    return r;
}

static int check_sample(const struct artifact_sink *to, struct slice identifier,
                        struct slice remote_name, const struct template_values *v, struct err *e)
{
    struct buf metadata;
    struct err why = {0};
    int r = check_expanded(to, "identifier", identifier, "", v, destination_identifier, e);

    if (r == 0) {
        r = check_expanded(to, "remote_name", remote_name, "", v, destination_name, e);
    }
    if (r == 0) {
        r = check_expanded(to, "remote_name", remote_name, DELIVERY_MANIFEST_TAIL, v,
                           destination_name, e);
    }
    if (r < 0 || to->metadata[0] == '\0') {
        return r;
    }
    buf_init(&metadata, DELIVERY_METADATA_MAX);
    r = settings_metadata_expand(slice_cstr(to->metadata), v, &metadata, NULL, &why);
    buf_free(&metadata);
    return r < 0 ? err_set(e, r, "artifacts.metadata.%.250s", why.text) : 0;
}

int settings_check(const struct artifact_sink *to, struct slice project, struct err *e)
{
    const unsigned own =
        1u << TEMPLATE_OBJECT_ID | 1u << TEMPLATE_PACKAGE_ID | 1u << TEMPLATE_PACKAGE_ID_SHORT;
    struct slice identifier =
        slice_cstr(to->identifier[0] != '\0' ? to->identifier : SETTINGS_IDENTIFIER);
    struct slice remote_name =
        slice_cstr(to->remote_name[0] != '\0' ? to->remote_name : SETTINGS_REMOTE_NAME);
    char longest[DELIVERY_FILENAME_MAX], merged[SETTINGS_MERGED_NAME_MAX];
    struct template_values v;
    int r = check_members(to, e);

    if (r == 0) {
        r = check_placeholders("identifier", identifier, e);
    }
    if (r == 0) {
        r = check_placeholders("remote_name", remote_name, e);
    }
    if (r == 0) {
        r = check_metadata_placeholders(to->metadata[0] != '\0' ? to->metadata : "{}", e);
    }
    if (r == 0 && ((template_uses(identifier) | template_uses(remote_name)) & own) == 0) {
        r = say(e, "identifier",
                "it or remote_name must hold {{OBJECT_ID}}, {{PACKAGE_ID}} or "
                "{{PACKAGE_ID_SHORT}}, or files would meet under one name");
    }
    memset(longest, 'n', sizeof longest);
    for (unsigned i = 0; r == 0 && i < SAMPLES; i++) {
        sample(&v, project, i == 0 ? slice_of(longest, sizeof longest) : SLICE("-"));
        r = check_sample(to, identifier, remote_name, &v, e);
    }
    if (r == 0 && merges(to)) {
        sample_merged(&v, project, merged);
        r = check_sample(to, identifier, remote_name, &v, e);
    }
    return r;
}
