/* transfer: one HTTP/1.1 request whose body may be as long as a file, on a connection of its own.
 *
 * For far sides that refuse early: a write that fails is no verdict, the answer is read first.
 * Content-Length always, never chunks. No total time: a transfer may take days, but without a byte
 * moved for stall_ms it is dead. libcurl resolves, connects and speaks TLS; the HTTP is ours. No
 * redirect is followed, no proxy or netrc of the environment used (CURL_CA_BUNDLE is). Blocking;
 * any thread, no state is shared. */
#ifndef NET_TRANSFER_H
#define NET_TRANSFER_H

#include "net/net.h"

enum transfer_end {
    TRANSFER_ANSWERED,  /* status is there; answer->complete: and all of it */
    TRANSFER_UNREACHED, /* no connection: nothing was sent */
    TRANSFER_CUT,       /* lost or stalled before the last byte was sent, without an answer */
    TRANSFER_LOST,      /* all was sent and no answer came: nobody knows */
    TRANSFER_STOPPED,   /* stopping said so */
    TRANSFER_SOURCE,    /* body said no */
    TRANSFER_NO_MEMORY
};

struct transfer {
    const char *method;
    const char *url; /* http(s)://HOST[:PORT]/PATH[?QUERY], encoded; may hold a secret */
    const struct net_header *header; /* without Host, Content-Length and Expect */
    size_t header_count;
    bool has_body;
    uint64_t body_bytes;
    /* The bytes from `at` on, at least one, valid until the next call; false ends the transfer. */
    bool (*body)(void *ctx, uint64_t at, struct slice *piece);
    uint64_t connect_ms, stall_ms;
    uint64_t expect_ms;          /* wait so long for a 100 before the body; 0: do not ask for one */
    uint64_t answer_ms;          /* wait for the status after the last byte */
    uint64_t answer_bytes_max;   /* of the answer's body; what is longer is cut, not complete */
    bool (*stopping)(void *ctx); /* asked at least every 100 ms */
    void (*progress)(void *ctx, uint64_t at); /* about ten times a second; may be NULL */
    void *ctx;
};

/* The answer is to be freed in any case. e->text names scheme, host and port alone. *sent: bytes of
 * the body that left. */
enum transfer_end transfer_do(const struct transfer *t, struct net_answer *answer, uint64_t *sent,
                              struct err *e) MUST_CHECK;

#define TRANSFER_PLACE_MAX 300

/* Where a URL leads: "scheme://host:port", for texts and comparisons. False: no http(s) URL. */
bool transfer_place(const char *url, char out[TRANSFER_PLACE_MAX]);
/* A URL that is secured, or plain and of this machine itself (127.0.0.0/8, ::1, localhost). */
bool transfer_is_https(const char *url);
bool transfer_is_loopback(const char *url);
/* Its host is `domain` or below it. */
bool transfer_is_within(const char *url, const char *domain);
/* What a Location at `url` leads to, NUL behind; false: no URL, or no memory. */
bool transfer_resolve(const char *url, struct slice location, struct buf *out);

#endif
