/* code: error numbers to statuses (spec/clickhouse.md C4), forms to media types. */
#include "engine/code.h"

#include "base/buf.h"

static const struct {
    unsigned short code;
    unsigned short status;
} statuses[] = {
    {194, 401}, /* required password */
    {192, 403}, /* unknown user */
    {193, 403}, /* wrong password */
    {291, 403}, /* database access denied */
    {497, 403}, /* access denied */
    {512, 403}, /* role not granted */
    {516, 403}, /* authentication failed */
    {2, 400},   {6, 400},   {25, 400},  {26, 400},  {27, 400},  {33, 400},  {36, 400},
    {38, 400},  {41, 400},  {42, 400},  {43, 400},  {44, 400},  {53, 400},  {62, 400},
    {69, 400},  {70, 400},  {72, 400},  {117, 400}, {130, 400}, {131, 400}, {167, 400},
    {168, 400}, {223, 400}, {321, 400}, {349, 400}, {376, 400}, {427, 400}, {456, 400},
    {457, 400}, {675, 400}, {676, 400}, {16, 404}, /* no such column */
    {46, 404},                                     /* unknown function */
    {47, 404},                                     /* unknown identifier */
    {50, 404},                                     /* unknown type */
    {56, 404},                                     /* unknown storage */
    {60, 404},                                     /* unknown table */
    {63, 404},                                     /* unknown aggregate function */
    {73, 404},                                     /* unknown format */
    {78, 404},                                     /* unknown type of query */
    {81, 404},                                     /* unknown database */
    {115, 404},                                    /* unknown setting */
    {336, 404},                                    /* unknown database engine */
    {511, 404},                                    /* unknown role */
    {159, 408},                                    /* timeout exceeded */
    {381, 411},                                    /* length required */
    {229, 413},                                    /* query too large */
    {48, 501},                                     /* not implemented */
    {76, 503},                                     /* cannot open file */
    {209, 503},                                    /* socket timeout */
    {344, 503}, /* support is disabled: here, isolation is not proven */
    {439, 503}, /* cannot schedule task */
};

unsigned code_status(unsigned code)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (statuses[i].code == code) {
            return statuses[i].status;
        }
    }
    return 500;
}

const char *code_name(unsigned code)
{
    switch (code) {
    case CODE_BAD_ARGUMENTS:
        return "BAD_ARGUMENTS";
    case CODE_NOT_IMPLEMENTED:
        return "NOT_IMPLEMENTED";
    case CODE_SYNTAX_ERROR:
        return "SYNTAX_ERROR";
    case CODE_UNKNOWN_FORMAT:
        return "UNKNOWN_FORMAT";
    case CODE_UNKNOWN_SETTING:
        return "UNKNOWN_SETTING";
    case CODE_INCORRECT_DATA:
        return "INCORRECT_DATA";
    case CODE_READONLY:
        return "READONLY";
    case CODE_CANNOT_FSYNC:
        return "CANNOT_FSYNC";
    case CODE_REQUIRED_PASSWORD:
        return "REQUIRED_PASSWORD";
    case CODE_MEMORY_LIMIT:
        return "MEMORY_LIMIT_EXCEEDED";
    case CODE_SUPPORT_IS_DISABLED:
        return "SUPPORT_IS_DISABLED";
    case CODE_TOO_MANY_ROWS_OR_BYTES:
        return "TOO_MANY_ROWS_OR_BYTES";
    case CODE_CANNOT_SCHEDULE_TASK:
        return "CANNOT_SCHEDULE_TASK";
    case CODE_ACCESS_DENIED:
        return "ACCESS_DENIED";
    case CODE_AUTHENTICATION_FAILED:
        return "AUTHENTICATION_FAILED";
    default:
        return "UNKNOWN_EXCEPTION";
    }
}

unsigned code_of(struct slice error)
{
    static const char prefix[] = "Code: ";
    unsigned code = 0;
    size_t i = sizeof prefix - 1;
    size_t start = i;

    if (!slice_starts(error, SLICE("Code: "))) {
        return CODE_UNKNOWN_EXCEPTION;
    }
    for (; i < error.len && i < start + 6 && error.ptr[i] >= '0' && error.ptr[i] <= '9'; i++) {
        code = code * 10 + (unsigned)(error.ptr[i] - '0');
    }
    return i > start && i < error.len && error.ptr[i] == '.' && code != 0 ? code
                                                                          : CODE_UNKNOWN_EXCEPTION;
}

static const struct {
    const char *prefix; /* of the form's name; the first that fits is taken */
    const char *media_type;
} media_types[] = {
    {"JSONEachRow", "application/x-ndjson; charset=UTF-8"},
    {"JSONCompactEachRow", "application/x-ndjson; charset=UTF-8"},
    {"JSONStringsEachRow", "application/x-ndjson; charset=UTF-8"},
    {"JSONCompactStringsEachRow", "application/x-ndjson; charset=UTF-8"},
    {"JSON", "application/json; charset=UTF-8"},
    {"CSV", "text/csv; charset=UTF-8; header=absent"},
    {"TabSeparated", "text/tab-separated-values; charset=UTF-8"},
    {"TSV", "text/tab-separated-values; charset=UTF-8"},
    {"Native", "application/octet-stream"},
    {"RowBinary", "application/octet-stream"},
    {"Parquet", "application/octet-stream"},
    {"Arrow", "application/octet-stream"},
};

const char *code_media_type(struct slice format)
{
    for (size_t i = 0; i < sizeof media_types / sizeof *media_types; i++) {
        if (slice_starts(format, slice_cstr(media_types[i].prefix))) {
            return media_types[i].media_type;
        }
    }
    return "text/plain; charset=UTF-8";
}
