/* identity: the UUID that an event is known by, for ever, within its project
 * (spec/capture-delivery.md "Times", spec/capture.md B3, cases C14, C16).
 *
 * Text forms: the canonical 36 characters in either case (all doors), and for PostHog the forms
 * that its own server takes too: 32 digits, braces, "urn:uuid:". Every version and variant is
 * taken; an id is only compared, never interpreted.
 *
 * None of this allocates or blocks; any thread. */
#ifndef DOOR_CAPTURE_IDENTITY_H
#define DOOR_CAPTURE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "base/uuid.h"

/* 8-4-4-4-12 hexadecimal digits of either case, nothing around them. The nil UUID is true as well:
 * uuid_is_zero tells, and no door may take it for an identity (all events of a broken client would
 * collapse into the first). */
bool identity_parse(struct slice text, struct uuid *out);
/* The same, and 32 digits without hyphens, {8-4-4-4-12}, and urn:uuid: before 8-4-4-4-12. */
bool identity_parse_loose(struct slice text, struct uuid *out);

/* UUIDv8 (RFC 9562 section 5.8) out of the first 128 bits of SHA-256(project NUL source NUL
 * message_id): the same three texts always give the same id. project and source hold no NUL. */
void identity_derive(struct slice project, struct slice source, struct slice message_id,
                     struct uuid *out);

/* UUIDv7 (RFC 9562 section 5.7): 48 bits of now_ms, 74 random bits. ERR_IO: the kernel gave no
 * random bytes. */
int identity_new(int64_t now_ms, struct uuid *out) MUST_CHECK;

#endif
