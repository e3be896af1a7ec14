/* settings: how a project's artifacts are delivered: struct artifact_sink as text, and its rules
 * (docs/PROTOCOL.md section 13; docs/FORMAT.md, artifact_projects).
 *
 * The management API knows a project's settings as one JSON object with the members of
 * SETTINGS_MEMBERS. Column `settings` holds those of them that are not at their default, but for
 * sink and directory, which have columns of their own, as canonical JSON: "{}" is what a project of
 * an older program has. Pure: no file is touched. Errors are ERR_INVALID_PROJECT, and their text
 * begins with the member, as in `artifacts.metadata.title[0]: ...`; or ERR_NO_MEMORY. */
#ifndef STORE_ARTIFACT_SETTINGS_H
#define STORE_ARTIFACT_SETTINGS_H

#include "base/buf.h"
#include "base/err.h"
#include "store/artifact/template.h"

#define DELIVERY_CREDENTIALS_MAX 1000
#define DELIVERY_TEMPLATE_MAX    400
#define DELIVERY_SETTING_MAX     6144 /* of metadata, as canonical JSON */

/* Where a project's artifacts go and what they are called there (table artifact_projects of
 * tallyman.sqlite). Templates: template.h. In a zeroed struct every member but the first two stands
 * for its default. */
struct artifact_sink {
    char sink[32];                                       /* "directory", "internet_archive" */
    char directory[4001];                                /* of "directory"; else "" */
    char credentials_file[DELIVERY_CREDENTIALS_MAX + 1]; /* "": none; only its path is ours */
    char identifier[DELIVERY_TEMPLATE_MAX + 1];          /* "": {{OBJECT_ID}} */
    char remote_name[DELIVERY_TEMPLATE_MAX + 1];         /* "": {{FILENAME}} */
    /* Canonical JSON, name -> array of templates; "": {} */
    char metadata[DELIVERY_SETTING_MAX + 1];
    char packager[16]; /* "": "identity"; "mergewarc" */
    /* Of mergewarc, all three; else 0: bytes of a package, and that begin one; and how long the
     * oldest artifact waits for that at most. */
    uint64_t package_target, package_trigger;
    int64_t package_max_wait_ms;
    int64_t retention_ms;   /* of local bytes after verification; below 1: they are kept for good */
    bool checksum_optional; /* an upload may come without a checksum */
};
/* X(name): all members, in the order of canonical JSON but for the first two. */
#define SETTINGS_MEMBERS(X) \
    X(sink)                 \
    X(directory)            \
    X(credentials_file)     \
    X(identifier)           \
    X(metadata)             \
    X(package_max_wait)     \
    X(package_target)       \
    X(package_trigger)      \
    X(packager)             \
    X(remote_name)          \
    X(require_checksum)     \
    X(retention)

#define SETTINGS_IDENTIFIER  "{{OBJECT_ID}}"
#define SETTINGS_REMOTE_NAME "{{FILENAME}}"
#define SETTINGS_TEXT_MAX    (64u << 10) /* of the column; more is no text of ours */

/* Changes *to as the members of a JSON object say (strict JSON, names in canonical order): null is
 * the default, what is not there stays. Only what each member is by itself is checked; on an error
 * *to may be half changed. */
int settings_apply(struct artifact_sink *to, struct slice object, struct err *e) MUST_CHECK;
/* Everything else: what goes with which sink; templates with values at both ends of what they can
 * be in this project. What passes gives every later package an allowed place. */
int settings_check(const struct artifact_sink *to, struct slice project, struct err *e) MUST_CHECK;

/* The columns there and back. Reading believes only what putting would write. */
int settings_read(struct slice sink, struct slice directory, struct slice text,
                  struct artifact_sink *out, struct err *e) MUST_CHECK;
void settings_put(struct buf *b, const struct artifact_sink *to);
/* The object of the management API: all members, defaults too. */
void settings_put_all(struct buf *b, const struct artifact_sink *to);

/* ---- parts ---- */
/* UTF-8 without control characters, so that it can be shown. */
bool settings_plain_text(struct slice s);
/* "30d", "12h", "1h30m", "1.5h": decimal numbers, each with one of d, h, m, s, ms, us, ns, in whole
 * milliseconds, rounded up. False: none, or more than 100 years. */
bool settings_duration(struct slice text, int64_t *ms);
#define SETTINGS_DURATION_MAX 32
/* The name of a merged package's file, PROJECT-<24 digits>.warc.zst with a project of [A-Za-z0-9_-]
 * and dots that are not first. short_id: the first 24 digits of its id. */
#define SETTINGS_MERGED_NAME_MAX 200
void settings_merged_name(struct slice project, struct slice short_id,
                          char out[SETTINGS_MERGED_NAME_MAX]);
/* One number and the largest unit that it is whole in; ms > 0. */
void settings_duration_put(struct buf *b, int64_t ms);

/* Metadata is canonical JSON, name -> array of texts. The next appends it with its templates
 * expanded; *header_bytes (may be NULL) is the most that its headers can take. */
int settings_metadata_expand(struct slice metadata, const struct template_values *v,
                             struct buf *out, size_t *header_bytes, struct err *e) MUST_CHECK;
/* Appends the canonical spelling of such JSON, a single text instead of an array allowed. False
 * with *e: it is none; names in canonical order. */
int settings_metadata_put(struct slice json, struct buf *out, struct err *e) MUST_CHECK;

#endif
