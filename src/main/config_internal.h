/* config_internal: what config.c shares with its file reader and its value parser. */
#ifndef MAIN_CONFIG_INTERNAL_H
#define MAIN_CONFIG_INTERNAL_H

#include "main/config.h"

/* Parses text as the value of key k, checks its range and stores it. On ERR_USAGE e->text is the
 * reason alone ("must be from 1 to 64"); the caller says where. ERR_NO_MEMORY. */
int config_set(struct config *c, enum config_key k, struct slice text, enum config_origin from,
               struct err *e) MUST_CHECK;
/* Appends the value as JSON. */
void config_put_value(const struct config *c, enum config_key k, struct buf *out);
/* Reads the file at path and sets every key in it. Errors are complete texts. */
int config_read_file(struct config *c, const char *path, struct err *e) MUST_CHECK;

#endif
