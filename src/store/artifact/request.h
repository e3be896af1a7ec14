/* request: what people ask of the deliverer, as files in DATA/requests/.
 *
 * The deliverer owns delivery.sqlite, so whoever wants something of it leaves a small file there,
 * named OBJECT.KIND; it does what is asked and removes the file. That the file is there is what
 * counts, its content is for people. Asking twice is asking once. */
#ifndef STORE_ARTIFACT_REQUEST_H
#define STORE_ARTIFACT_REQUEST_H

#include <stdbool.h>

#include "base/err.h"
#include "base/slice.h"
#include "store/artifact/upload.h"

#define REQUESTS_FOLDER "requests"
#define REQUESTS_MAX    1000 /* that may wait; more are refused */

/* X(symbol, the end of the name) */
#define REQUEST_KINDS(X) \
    X(RETRY, "retry")    \
    X(IDENTITY, "identity") /* send it as it is, though its project merges */
enum request_kind {
#define X(sym, name) REQUEST_##sym,
    REQUEST_KINDS(X)
#undef X
        REQUEST_KIND_COUNT
};

struct request {
    char object_id[UPLOAD_ID_LEN + 1];
    enum request_kind kind;
};

/* Leaves the request, durably; makes the folder where it is missing. Blocks on the disk; any thread
 * of one process. ERR_OVERLOADED: REQUESTS_MAX wait already. ERR_IO, ERR_NO_SPACE. */
int request_put(const char *data, const struct request *r, struct err *e) MUST_CHECK;
/* What a name in the folder asks for; false: nothing. */
bool request_parse(const char *name, struct request *out);

#endif
