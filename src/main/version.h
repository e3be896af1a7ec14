/* version: what this build is called. */
#ifndef MAIN_VERSION_H
#define MAIN_VERSION_H

const char *version_number(void);   /* "0.1.0" */
const char *version_revision(void); /* the commit it was built from, or "unknown" */

#endif
