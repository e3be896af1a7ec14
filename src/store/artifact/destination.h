/* destination: what identifiers, remote names and metadata may look like at each sink, once their
 * templates are expanded (spec/internet-archive.md sections 4 and 5).
 *
 * The same rules are asked when a project is set, with values at both ends of what they can be, and
 * when a package is built. Pure. Errors are ERR_INVALID_PROJECT with the rule in words. */
#ifndef STORE_ARTIFACT_DESTINATION_H
#define STORE_ARTIFACT_DESTINATION_H

#include <stdbool.h>

#include "base/err.h"
#include "base/slice.h"

#define DESTINATION_DIRECTORY "directory"
#define DESTINATION_ARCHIVE   "internet_archive"

#define DESTINATION_IDENTIFIER_MIN 5 /* at the Archive */
#define DESTINATION_IDENTIFIER_MAX 100
#define DESTINATION_NAME_MAX       200
/* All headers of one request there; the fixed ones take less than DESTINATION_HEADERS_OTHER. */
#define DESTINATION_HEADERS_MAX   8192
#define DESTINATION_HEADERS_OTHER 1024
#define DESTINATION_KEY_MAX       256
#define DESTINATION_VALUES_MAX    99 /* of one key: headers count them with two digits */

/* The item, or the folder below the directory. */
int destination_identifier(const char *sink, struct slice identifier, struct err *e) MUST_CHECK;
/* A remote name below it: the payload's or the manifest's. */
int destination_name(const char *sink, struct slice name, struct err *e) MUST_CHECK;
/* A name that the sink keeps for itself, whatever the identifier. */
bool destination_reserved(const char *sink, struct slice name);

int destination_metadata_key(struct slice key, struct err *e) MUST_CHECK;
/* Any text that XML can hold: UTF-8, not empty, no control characters but tab and line feed. */
int destination_metadata_value(struct slice value, struct err *e) MUST_CHECK;
/* At most this long is the header line of one value, however the adapter encodes it. */
size_t destination_header_bytes(struct slice key, struct slice value);

#endif
