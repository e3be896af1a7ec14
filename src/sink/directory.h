/* directory: the adapter whose destination is a directory of this machine, usually a mount.
 *
 * job.place is the directory, which must exist: it is never made, so that the empty place of a
 * mount that is not mounted is not filled. Files are PLACE/IDENTIFIER/NAME. */
#ifndef SINK_DIRECTORY_H
#define SINK_DIRECTORY_H

#include "sink/artifact.h"

extern const struct artifact_adapter artifact_directory;

#endif
