/* The only file that sees the defines of the Makefile, so that a new commit recompiles nothing
 * else. */
#include "main/version.h"

#ifndef TALLYMAN_VERSION
#error "TALLYMAN_VERSION comes from the Makefile"
#endif
#ifndef TALLYMAN_REVISION
#error "TALLYMAN_REVISION comes from the Makefile"
#endif

const char *version_number(void)
{
    return TALLYMAN_VERSION;
}

const char *version_revision(void)
{
    return TALLYMAN_REVISION;
}
