/* artifact: the list of adapters. */
#include "sink/artifact.h"

#include <string.h>

#include "sink/directory.h"
#include "sink/internet_archive.h"

static const struct artifact_adapter *const adapters[] = {
#define X(name) &artifact_##name,
    ARTIFACT_ADAPTERS(X)
#undef X
};

const struct artifact_adapter *artifact_adapter(const char *name)
{
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
        if (strcmp(adapters[i]->name, name) == 0) {
            return adapters[i];
        }
    }
    return NULL;
}
