/* settings: members from JSON and back.
 *
 * Invariants: a member at its default is empty in the struct and absent in the column; whatever is
 * put can be read back, and gives the same bytes when it is put again. A column that does not is
 * damage, or of a newer program, and is not guessed at.
 *
 * Power failure: nothing is stored here. Answers: members that are not known, or not what they may
 * be by themselves. */
#include "store/artifact/settings.h"

#include "store/artifact/delivery_plan.h"
#include "json/read.h"
#include "json/write.h"

#define RETENTION_RULE                                                                        \
    "it is a time of at least 1s and at most 36500d, as \"30d\", \"12h\" or \"1h30m\"; null " \
    "keeps "                                                                                  \
    "the files for good"

#define SETTINGS_BYTES_MAX ((UINT64_C(1) << 53) - 1) /* what every reader of JSON can count to */

bool settings_plain_text(struct slice s)
{
    size_t bad;

    if (!utf8_valid(s, &bad)) {
        return false;
    }
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        bool c1 = c == 0xc2 && i + 1 < s.len && (unsigned char)s.ptr[i + 1] < 0xa0;
        if (c < 0x20 || c == 0x7f || c1) {
            return false;
        }
    }
    return true;
}

static int say(struct err *e, const char *member, const char *what)
{
    return err_set(e, ERR_INVALID_PROJECT, "artifacts.%s: %s", member, what);
}

/* ---- one member each; a value that is null is given as JSON_NULL ---- */

/* A plain text of less than size bytes; null: "". */
static int take_text(struct slice value, const char *member, char *out, size_t size, struct err *e)
{
    struct buf text = {0};
    struct slice inner;
    int r = 0;

    out[0] = '\0';
    if (json_type_of(value) == JSON_NULL) {
        return 0;
    }
    if (!json_string_raw(value, &inner)) {
        return say(e, member, "it must be a string");
    }
    if (json_string_len(inner) >= size) {
        return err_set(e, ERR_INVALID_PROJECT, "artifacts.%s: it has at most %zu bytes", member,
                       size - 1);
    }
    json_unescape(inner, &text);
    if (text.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for a project's settings");
    } else if (text.len == 0) {
        r = say(e, member, "it must not be empty; null stands for the default");
    } else if (!settings_plain_text(buf_slice(&text))) {
        r = say(e, member, "it is UTF-8 without control characters");
    } else {
        memcpy(out, text.ptr, text.len);
        out[text.len] = '\0';
    }
    buf_free(&text);
    return r;
}

#define TEXT_MEMBER(name)                                                               \
    static int take_##name(struct artifact_sink *to, struct slice value, struct err *e) \
    {                                                                                   \
        return take_text(value, #name, to->name, sizeof to->name, e);                   \
    }
TEXT_MEMBER(sink)
TEXT_MEMBER(directory)
TEXT_MEMBER(credentials_file)
TEXT_MEMBER(identifier)
TEXT_MEMBER(remote_name)
#undef TEXT_MEMBER

static int take_packager(struct artifact_sink *to, struct slice value, struct err *e)
{
    int r = take_text(value, "packager", to->packager, sizeof to->packager, e);

    if (r == 0 && strcmp(to->packager, DELIVERY_PACKAGER) == 0) {
        memset(to->packager, 0, sizeof to->packager); /* the default */
    }
    return r;
}

static int take_metadata(struct artifact_sink *to, struct slice value, struct err *e)
{
    struct buf text;
    struct err why = {0};
    int r;

    to->metadata[0] = '\0';
    if (json_type_of(value) == JSON_NULL) {
        return 0;
    }
    buf_init(&text, DELIVERY_SETTING_MAX);
    r = settings_metadata_put(value, &text, &why);
    if (r == ERR_INVALID_PROJECT && json_type_of(value) != JSON_OBJECT) {
        r = say(e, "metadata", why.text);
    } else if (r < 0) {
        r = err_set(e, r, "artifacts.metadata.%.250s", why.text);
    } else if (text.no_memory) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for a project's settings");
    } else if (text.failed) {
        r = err_set(e, ERR_INVALID_PROJECT, "artifacts.metadata: it has at most %d bytes as JSON",
                    DELIVERY_SETTING_MAX);
    } else if (text.len > 2) { /* {} is the default */
        memcpy(to->metadata, text.ptr, text.len);
        to->metadata[text.len] = '\0';
    }
    buf_free(&text);
    return r;
}

static int take_retention(struct artifact_sink *to, struct slice value, struct err *e)
{
    struct slice inner;

    to->retention_ms = -1;
    if (json_type_of(value) == JSON_NULL) {
        return 0;
    }
    if (!json_string_raw(value, &inner) || memchr(inner.ptr, '\\', inner.len) != NULL ||
        !settings_duration(inner, &to->retention_ms) || to->retention_ms < 1000) {
        to->retention_ms = -1;
        return say(e, "retention", RETENTION_RULE);
    }
    return 0;
}

static int take_package_max_wait(struct artifact_sink *to, struct slice value, struct err *e)
{
    struct slice inner;

    to->package_max_wait_ms = 0;
    if (json_type_of(value) == JSON_NULL) {
        return 0;
    }
    if (!json_string_raw(value, &inner) || memchr(inner.ptr, '\\', inner.len) != NULL ||
        !settings_duration(inner, &to->package_max_wait_ms) || to->package_max_wait_ms < 1000) {
        to->package_max_wait_ms = 0;
        return say(e, "package_max_wait", "it is a time of at least 1s, as \"24h\" or \"90m\"");
    }
    return 0;
}

static int take_bytes(struct slice value, const char *member, uint64_t *out, struct err *e)
{
    *out = 0;
    if (json_type_of(value) == JSON_NULL) {
        return 0;
    }
    if (!json_u64(value, out) || *out < 1 || *out > SETTINGS_BYTES_MAX) {
        *out = 0;
        return say(e, member, "it is a number of bytes, at least 1 and at most 2^53 - 1");
    }
    return 0;
}

static int take_package_target(struct artifact_sink *to, struct slice value, struct err *e)
{
    return take_bytes(value, "package_target", &to->package_target, e);
}

static int take_package_trigger(struct artifact_sink *to, struct slice value, struct err *e)
{
    return take_bytes(value, "package_trigger", &to->package_trigger, e);
}

static int take_require_checksum(struct artifact_sink *to, struct slice value, struct err *e)
{
    enum json_type type = json_type_of(value);

    if (type != JSON_NULL && type != JSON_TRUE && type != JSON_FALSE) {
        return say(e, "require_checksum", "it must be true or false");
    }
    to->checksum_optional = type == JSON_FALSE;
    return 0;
}

struct member {
    const char *name;
    int (*take)(struct artifact_sink *to, struct slice value, struct err *e);
};

static const struct member members[] = {
#define X(name) {#name, take_##name},
    SETTINGS_MEMBERS(X)
#undef X
};

static int unknown(struct slice name, struct err *e)
{
    return err_set(e, ERR_INVALID_PROJECT,
                   "artifacts.%.*s: there is no such member; there are sink, directory, "
                   "credentials_file, identifier, metadata, package_max_wait, package_target, "
                   "package_trigger, packager, remote_name, require_checksum and retention",
                   name.len > 60 ? 60 : (int)name.len, name.ptr);
}

int settings_apply(struct artifact_sink *to, struct slice object, struct err *e)
{
    struct json_iter it = json_iter_object(object);
    struct slice name, value;
    int r = 0;

    while (r == 0 && json_next_member(&it, &name, &value)) {
        const struct member *m = NULL;
        for (size_t i = 0; i < sizeof members / sizeof *members && m == NULL; i++) {
            m = json_string_is(name, slice_cstr(members[i].name)) ? &members[i] : NULL;
        }
        r = m == NULL ? unknown(name, e) : m->take(to, value, e);
    }
    return it.bad ? err_set(e, ERR_INVALID_PROJECT, "artifacts: it must be an object") : r;
}

/* ---- and back ---- */

static void put_text(struct buf *b, const char *name, const char *value)
{
    json_put_name(b, name);
    json_put_string(b, slice_cstr(value));
}

static void put_given(struct buf *b, const char *name, const char *value)
{
    if (value[0] != '\0') {
        put_text(b, name, value);
    }
}

static void put_duration(struct buf *b, const char *name, int64_t ms)
{
    json_put_name(b, name);
    buf_put_char(b, '"');
    settings_duration_put(b, ms);
    buf_put_char(b, '"');
}

static void put_bytes(struct buf *b, const char *name, uint64_t bytes)
{
    if (bytes > 0) {
        json_put_name(b, name);
        buf_put_u64(b, bytes);
    }
}

static void put_merging(struct buf *b, const struct artifact_sink *to)
{
    if (to->package_max_wait_ms > 0) {
        put_duration(b, "package_max_wait", to->package_max_wait_ms);
    }
    put_bytes(b, "package_target", to->package_target);
    put_bytes(b, "package_trigger", to->package_trigger);
}

void settings_put(struct buf *b, const struct artifact_sink *to)
{
    buf_put_char(b, '{');
    put_given(b, "credentials_file", to->credentials_file);
    put_given(b, "identifier", to->identifier);
    if (to->metadata[0] != '\0') {
        json_put_name(b, "metadata");
        buf_put_cstr(b, to->metadata);
    }
    put_merging(b, to);
    put_given(b, "packager", to->packager);
    put_given(b, "remote_name", to->remote_name);
    if (to->checksum_optional) {
        json_put_name(b, "require_checksum");
        buf_put_cstr(b, "false");
    }
    if (to->retention_ms > 0) {
        put_duration(b, "retention", to->retention_ms);
    }
    buf_put_char(b, '}');
}

static void put_or_null(struct buf *b, const char *name, const char *value)
{
    if (value[0] != '\0') {
        put_text(b, name, value);
    } else {
        json_put_name(b, name);
        buf_put_cstr(b, "null");
    }
}

void settings_put_all(struct buf *b, const struct artifact_sink *to)
{
    buf_put_char(b, '{');
    put_text(b, "sink", to->sink);
    put_or_null(b, "directory", to->directory);
    put_or_null(b, "credentials_file", to->credentials_file);
    put_text(b, "identifier", to->identifier[0] != '\0' ? to->identifier : SETTINGS_IDENTIFIER);
    put_text(b, "remote_name", to->remote_name[0] != '\0' ? to->remote_name : SETTINGS_REMOTE_NAME);
    json_put_name(b, "metadata");
    buf_put_cstr(b, to->metadata[0] != '\0' ? to->metadata : "{}");
    put_merging(b, to); /* what identity has none of is left out */
    put_text(b, "packager", to->packager[0] != '\0' ? to->packager : DELIVERY_PACKAGER);
    if (to->retention_ms > 0) {
        put_duration(b, "retention", to->retention_ms);
    } else {
        json_put_name(b, "retention");
        buf_put_cstr(b, "null");
    }
    json_put_name(b, "require_checksum");
    buf_put_cstr(b, to->checksum_optional ? "false}" : "true}");
}

static int copy_column(char *out, size_t size, struct slice text, const char *member, struct err *e)
{
    if (text.len >= size || !settings_plain_text(text)) {
        return err_set(e, ERR_INVALID_PROJECT,
                       "artifacts.%s: it has at most %zu bytes of UTF-8 without control characters",
                       member, size - 1);
    }
    memcpy(out, text.ptr == NULL ? "" : text.ptr, text.len);
    out[text.len] = '\0';
    return 0;
}

int settings_read(struct slice sink, struct slice directory, struct slice text,
                  struct artifact_sink *out, struct err *e)
{
    struct buf again;
    int r;

    memset(out, 0, sizeof *out);
    out->retention_ms = -1;
    r = copy_column(out->sink, sizeof out->sink, sink, "sink", e);
    if (r == 0) {
        r = copy_column(out->directory, sizeof out->directory, directory, "directory", e);
    }
    if (r == 0) {
        r = settings_apply(out, text, e);
    }
    if (r < 0) {
        return r;
    }
    buf_init(&again, SETTINGS_TEXT_MAX);
    settings_put(&again, out);
    if (again.no_memory) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to read a project's settings");
    } else if (!slice_eq(buf_slice(&again), text)) {
        r = err_set(e, ERR_INVALID_PROJECT, "artifacts: its settings are not as they are written");
    }
    buf_free(&again);
    return r;
}
