/* head_key: the Ed25519 key that signs heads, DATA/head.key. */
#ifndef DOOR_HISTORY_HEAD_KEY_H
#define DOOR_HISTORY_HEAD_KEY_H

#include <stdbool.h>

#include "base/ed25519.h"
#include "base/err.h"

#define HEAD_KEY_FILE "head.key"

/* Reads the key, or makes one when there is none (*made). The key is the caller's. ERR_REFUSED:
 * what is there must not or cannot be used, and the text says why; ERR_IO, ERR_NO_SPACE,
 * ERR_NO_MEMORY. Blocks; at the start only. */
int head_key_open(const char *data, struct ed25519_key **key, bool *made, struct err *e) MUST_CHECK;

#endif
