/* settings: how a project's artifacts are delivered: struct artifact_sink as text, and its rules
 * (docs/FORMAT.md, artifact_projects; docs/PROTOCOL.md section 13).
 *
 * Column `settings` holds the members beside sink and directory that are not at their default, as
 * canonical JSON; "{}" is a project of an older program. The same members, all of them, are the
 * management API's. Pure: no file is touched. Errors are ERR_INVALID_PROJECT and begin with the
 * member, as `artifacts.metadata.title[0]: ...`; or ERR_NO_MEMORY. */
#ifndef STORE_ARTIFACT_SETTINGS_H
#define STORE_ARTIFACT_SETTINGS_H

#include "base/buf.h"
#include "store/artifact/delivery.h"
#include "store/artifact/template.h"

#define SETTINGS_IDENTIFIER  "{{OBJECT_ID}}"
#define SETTINGS_REMOTE_NAME "{{FILENAME}}"

/* ---- metadata: canonical JSON, name -> array of texts ---- */
/* Appends it with its templates expanded. ERR_INVALID_PROJECT: a value or all of them together are
 * not what the sink takes. */
int settings_metadata_expand(struct slice metadata, const struct template_values *v,
                             struct buf *out, struct err *e) MUST_CHECK;
/* Appends the canonical spelling of any such JSON; false: it is none, or out is full. */
bool settings_metadata_again(struct slice json, struct buf *out);

#endif
