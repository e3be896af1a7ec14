/* internet_archive: the adapter whose destination is an item of the Internet Archive, over its
 * S3-like interface (spec/internet-archive.md).
 *
 * job.identifier is the item, job.place is unused, job.endpoints says where the far side is. Files
 * are S3/IDENTIFIER/NAME, and METADATA/metadata/IDENTIFIER tells what is there. */
#ifndef SINK_INTERNET_ARCHIVE_H
#define SINK_INTERNET_ARCHIVE_H

#include "sink/artifact.h"

extern const struct artifact_adapter artifact_internet_archive;

#endif
