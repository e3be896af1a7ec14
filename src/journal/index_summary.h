/* index_summary: writing the summary of a closed generation (reading it is index_summary_load of
 * index.h). */
#ifndef JOURNAL_INDEX_SUMMARY_H
#define JOURNAL_INDEX_SUMMARY_H

#include "journal/index.h"
#include "journal/index_file.h"

void index_summary_name(char out[INDEX_NAME_MAX], uint32_t generation);

/* A deep copy, freed with index_summary_free. ERR_NO_MEMORY. */
int index_summary_copy(struct index_summary *to, const struct index_summary *from) MUST_CHECK;

/* Hashes the generation's file at path into s->file_sha256 (ERR_CORRUPT when it is not s->bytes
 * long), then writes the summary durably. ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY. Blocks. */
int index_summary_write(const char *dir, struct index_summary *s, const char *path,
                        struct err *e) MUST_CHECK;

#endif
