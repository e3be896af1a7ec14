/* store_kit_internal: what store_kit.c and store_kit_check.c share. */
#ifndef TESTS_LIB_STORE_KIT_INTERNAL_H
#define TESTS_LIB_STORE_KIT_INTERNAL_H

#include "tests/lib/store_kit.h"

#define SKIT_TEXT_MAX 12000

struct uuid skit_uuid(uint32_t number); /* ends in the number */
size_t skit_text(uint32_t number, char out[SKIT_TEXT_MAX]);
uint32_t skit_project_of(uint32_t number);
void skit_lie(struct skit_ledger *l, const char *what, uint32_t number, int64_t is, int64_t was);

#endif
