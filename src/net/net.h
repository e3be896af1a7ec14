/* net: outgoing HTTP for the sinks and the query proxy, on libcurl. One client is used by one
 * thread.
 *
 * No redirects are followed, no proxies or netrc of the environment are used, answers are bounded,
 * and every wait has an end. Secrets travel in headers, never in URLs. Blocking. */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

struct net;

struct net_target {
    const char *url;         /* http:// or https://, without query */
    const char *unix_socket; /* path, or NULL */
};

struct net_header {
    const char *name;
    struct slice value;
};

struct net_request {
    const char *query; /* encoded, without '?'; NULL: none */
    bool post;
    struct slice body;
    const struct net_header *headers;
    size_t header_count;
    unsigned connect_ms, total_ms; /* 0: 5 s and 60 s */
    uint64_t answer_bytes_max;     /* 0: 1 MiB; a longer answer is ERR_REFUSED */
    /* Takes the body of a 200 as it comes instead; false ends the request (ERR_REFUSED). */
    bool (*sink)(void *ctx, struct slice bytes);
    void *sink_ctx;
    const atomic_bool *cancel; /* may be NULL; looked at about every 100 ms: ERR_REFUSED */
};

struct net_answer {
    unsigned status;
    bool complete;   /* the whole body came, framed as promised */
    bool sent;       /* the request may have reached the far side (false: certainly not) */
    struct buf head; /* header lines, lower-case names, "name: value\n" */
    struct buf body;
};

/* The TCP port of a URL, or of its scheme; 0: it has none that we know. */
uint16_t net_url_port(const char *url);
int net_open(struct net **out, const struct net_target *target, struct err *e) MUST_CHECK;
void net_close(struct net *n);
/* 0: a whole answer of any status. ERR_CONNECT: nothing was sent. ERR_IO: lost, silent or cut;
 * answer->status is what came (0: nothing). ERR_REFUSED: too long, or the sink or cancel ended it.
 * ERR_NO_MEMORY. e->text names the target without secrets. The answer is to be freed in any
 * case. */
int net_do(struct net *n, const struct net_request *req, struct net_answer *answer,
           struct err *e) MUST_CHECK;
void net_answer_free(struct net_answer *a);
/* First header of that (lower case) name. */
bool net_header(const struct net_answer *a, const char *name, struct slice *value);
/* Appends `&name=value`, percent-encoded (without '&' when out is empty). */
void net_put_query(struct buf *out, const char *name, struct slice value);

#endif
