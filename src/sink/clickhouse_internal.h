/* What the files of the ClickHouse adapter share. */
#ifndef SINK_CLICKHOUSE_INTERNAL_H
#define SINK_CLICKHOUSE_INTERNAL_H

#include "net/net.h"
#include "sink/clickhouse.h"

struct clickhouse {
    struct net *net;
    char *user;
    struct buf password;
    bool embedded;
    bool view_warned;
    struct buf insert; /* the query part of an insert's URL, NUL behind; made once */
};

/* ClickHouse's exception code of an answer, from its header or its text; 0: none, -1: a header that
 * is no number above 0. */
int clickhouse_code(const struct net_answer *a);
/* The verdict on an insert of count rows; outcome is what net_do returned. */
void clickhouse_judge(int outcome, const struct net_answer *a, const struct err *e, size_t count,
                      struct sink_result *r);
/* A POST with our credentials. query: as for net_do. */
int clickhouse_post(struct clickhouse *c, const char *query, struct slice body,
                    const atomic_bool *cancel, struct net_answer *a, struct err *e) MUST_CHECK;
/* Makes and checks database, table and view of a ClickHouse that is not ours. */
void clickhouse_check_table(struct clickhouse *c, const atomic_bool *cancel, struct sink_result *r);

#endif
