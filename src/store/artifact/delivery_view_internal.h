/* The inside of what others read of packages: delivery_view.c, of one artifact, delivery_page.c. */
#ifndef STORE_ARTIFACT_DELIVERY_VIEW_INTERNAL_H
#define STORE_ARTIFACT_DELIVERY_VIEW_INTERNAL_H

#include "store/artifact/delivery.h"
#include "store/artifact/delivery_reader.h"

/* The last line: what only a newer schema has. */
#define VIEW_COLUMNS                                                                       \
    "p.package_id, p.state, p.plan, p.build_attempts, p.next_build_ms, p.build_error,"     \
    " p.way_out, d.sink, d.state, d.attempts, d.next_attempt_ms, d.last_error, d.way_out," \
    " ifnull(d.sent_at, 0), ifnull(d.verified_at, 0), a.project, a.filename, a.object_id," \
    " a.checksum, a.size_bytes, a.accepted_at, p.created_at, p.updated_at,"                \
    " ifnull(p.sealed_at, 0), ifnull(d.updated_at, 0), p.packager, p.member_count,"        \
    " p.size_bytes, m.offset_bytes,"
#define VIEW_COLUMNS_2    " p.purge_ms, ifnull(p.purged_at, 0), p.purge_error, ifnull(d.late, 0)"
#define VIEW_COLUMNS_NONE " 0, 0, '', 0"
/* p, m and a are there. */
#define VIEW_DELIVERY " LEFT JOIN deliveries d ON d.package_id = p.package_id"
enum view_column {
    VIEW_PACKAGE,
    VIEW_PACKAGE_STATE,
    VIEW_PLAN,
    VIEW_BUILD_ATTEMPTS,
    VIEW_BUILD_DUE,
    VIEW_BUILD_ERROR,
    VIEW_BUILD_WAY_OUT,
    VIEW_SINK,
    VIEW_STATE,
    VIEW_ATTEMPTS,
    VIEW_DUE,
    VIEW_ERROR,
    VIEW_WAY_OUT,
    VIEW_SENT,
    VIEW_VERIFIED,
    VIEW_PROJECT,
    VIEW_FILENAME,
    VIEW_OBJECT,
    VIEW_CHECKSUM,
    VIEW_SIZE,
    VIEW_ACCEPTED,
    VIEW_CREATED,
    VIEW_UPDATED,
    VIEW_SEALED,
    VIEW_DELIVERY_UPDATED,
    VIEW_PACKAGER,
    VIEW_MEMBERS,
    VIEW_PACKAGE_SIZE,
    VIEW_OFFSET,
    VIEW_PURGE,
    VIEW_PURGED,
    VIEW_PURGE_ERROR,
    VIEW_LATE,
    VIEW_PLACE /* of pages: in their order */
};

#define VIEW_TAKE(out, st, at) delivery_reader_take(out, sizeof(out), db_column(st, at))

/* A row of these columns. ERR_CORRUPT, ERR_NO_MEMORY. */
int delivery_view_take(struct sqlite3_stmt *st, struct delivery_view *out,
                       struct err *e) MUST_CHECK;

#endif
