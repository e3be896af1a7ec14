/* code: ClickHouse's error numbers and forms, as its HTTP interface shows them. */
#ifndef ENGINE_CODE_H
#define ENGINE_CODE_H

#include "base/slice.h"

/* Numbers this front gives itself. */
enum code {
    CODE_BAD_ARGUMENTS = 36,
    CODE_NOT_IMPLEMENTED = 48,
    CODE_SYNTAX_ERROR = 62,
    CODE_UNKNOWN_FORMAT = 73,
    CODE_UNKNOWN_SETTING = 115,
    CODE_INCORRECT_DATA = 117,
    CODE_READONLY = 164,
    CODE_REQUIRED_PASSWORD = 194,
    CODE_CANNOT_FSYNC = 204,
    CODE_MEMORY_LIMIT = 241,
    CODE_SUPPORT_IS_DISABLED = 344,
    CODE_TOO_MANY_ROWS_OR_BYTES = 396,
    CODE_CANNOT_SCHEDULE_TASK = 439,
    CODE_ACCESS_DENIED = 497,
    CODE_AUTHENTICATION_FAILED = 516,
    CODE_UNKNOWN_EXCEPTION = 1002
};

/* "BAD_ARGUMENTS" and so on; "UNKNOWN_EXCEPTION" for numbers that are not above. */
const char *code_name(unsigned code);
/* The number in "Code: N. DB::Exception: ...", 1002 when there is none. */
unsigned code_of(struct slice error);
/* HTTP status of an error number. */
unsigned code_status(unsigned code);
/* Media type of a form of answer. */
const char *code_media_type(struct slice format);

#endif
