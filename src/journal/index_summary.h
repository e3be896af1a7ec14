/* index_summary: writing the summary of a closed generation (reading it is index_summary_load of
 * index.h). */
#ifndef JOURNAL_INDEX_SUMMARY_H
#define JOURNAL_INDEX_SUMMARY_H

#include "journal/index.h"
#include "journal/index_file.h"

void index_summary_name(char out[INDEX_NAME_MAX], uint32_t generation);

/* A deep copy with room for the block_crcs, freed with index_summary_free. ERR_NO_MEMORY. */
int index_summary_copy(struct index_summary *to, const struct index_summary *from) MUST_CHECK;

/* Reads the generation with o->read: fills s->block_crcs and filter (ERR_CORRUPT when
 * it is not s->bytes long), then writes the summary durably. s is from index_summary_copy. ERR_IO,
 * ERR_NO_SPACE, ERR_NO_MEMORY, what o->read answers. Blocks. */
int index_summary_write(const char *dir, struct index_summary *s, const struct index_options *o,
                        struct err *e) MUST_CHECK;

int index_stream_cmp(const struct index_stream *a, const struct index_stream *b);
/* First half of SHA-256(source NUL record_key), both canonical JSON strings with quotes. */
void index_record_fingerprint(struct slice source, struct slice record_key, uint8_t out[16]);

#endif
