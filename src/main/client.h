/* client: HTTP to a Tallyman server, for the verbs that talk to one.
 *
 * Where: the Unix socket DIR/tallyman.sock, or a URL with a bearer token (from a file or
 * TALLYMAN_TOKEN; never in argv, a URL, a log or an error text). Proxies of the environment and
 * redirects are never followed: the token goes to the named server only.
 *
 * Waiting and repeating: a request fails when no byte has moved for timeout_s. 429, and 503 with
 * Retry-After, are waited out as Retry-After says; a lost connection is tried again with growing
 * pauses, for requests that say they may be repeated. All pauses and failed tries after the first
 * failure together are bounded by retry_s. Everything blocks; one thread. */
#ifndef MAIN_CLIENT_H
#define MAIN_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

struct client;

struct client_target {
    const char *verb;       /* for notes on standard error */
    const char *data;       /* --data, NULL: config_default_data() */
    const char *url;        /* --url, NULL: the Unix socket */
    const char *token_file; /* --token-file, NULL: TALLYMAN_TOKEN (with --url only) */
    uint64_t timeout_s, retry_s;
};

#define CLIENT_TIMEOUT_S 60
#define CLIENT_RETRY_S   120

/* Rows for a verb's option table. */
#define CLIENT_OPTION_DATA(t)                                                  \
    {                                                                          \
        .name = "data", .type = ARG_TEXT, .target = &(t).data, .value = "DIR", \
        .help = "data directory; the server is asked on DIR/tallyman.sock"     \
    }
#define CLIENT_OPTIONS_URL(t)                                                               \
    {.name = "url",                                                                         \
     .type = ARG_TEXT,                                                                      \
     .target = &(t).url,                                                                    \
     .value = "URL",                                                                        \
     .help = "server to ask instead, as http://HOST:PORT"},                                 \
    {                                                                                       \
        .name = "token-file", .type = ARG_TEXT, .target = &(t).token_file, .value = "FILE", \
        .help = "file with the token for --url (else TALLYMAN_TOKEN)"                       \
    }
#define CLIENT_OPTION_TIMEOUT(t)                                                          \
    {                                                                                     \
        .name = "timeout", .type = ARG_U64, .target = &(t).timeout_s, .value = "SECONDS", \
        .min = 1, .max = 86400,                                                           \
        .help = "give a try up after this long without a byte (default 60)"               \
    }
#define CLIENT_OPTION_RETRY(t)                                                                  \
    {                                                                                           \
        .name = "retry", .type = ARG_U64, .target = &(t).retry_s, .value = "SECONDS", .min = 0, \
        .max = 86400,                                                                           \
        .help = "try again for this long when the server is busy or gone (default 120)"         \
    }

/* Makes a client; connects to nothing yet. ERR_USAGE (URL, token, socket path, with the option's
 * name), ERR_NO_MEMORY. */
int client_open(struct client **out, const struct client_target *target, struct err *e) MUST_CHECK;
void client_close(struct client *c); /* NULL is fine */

struct client_request {
    const char *path;   /* "/v1/events" */
    const char *query;  /* encoded, without '?'; NULL or "": none */
    const char *accept; /* NULL: application/json */
    bool post;          /* with body, as application/json; else GET */
    bool remove;        /* DELETE */
    bool patch;         /* with post: PATCH */
    struct slice body;
    bool repeatable; /* may be sent again after a lost connection: the server knows repeats, or it
                        only reads */
    /* Takes the body of a 200 as it comes; false ends the request (ERR_REFUSED). NULL: it is kept
     * in answer->body. */
    bool (*sink)(void *ctx, struct slice bytes);
    void *sink_ctx;
};

struct client_answer {
    unsigned status;
    struct buf body; /* what no sink took, at most CLIENT_BODY_MAX; of the last try */
};
#define CLIENT_BODY_MAX (16u << 20)

/* Sends and waits. 0: a whole answer of any status is in *answer (client_answer_free it).
 * ERR_CONNECT: nobody listens there. ERR_IO: the connection was lost or silent, or the answer cut;
 * a request that changes something may have happened or not. ERR_REFUSED: the sink ended it.
 * ERR_NO_MEMORY. e->text is for people and names the server. */
int client_do(struct client *c, const struct client_request *req, struct client_answer *answer,
              struct err *e) MUST_CHECK;
void client_answer_free(struct client_answer *answer);

/* Turns an answer that is no 200 into an error: ERR_REFUSED, "SERVER answered 409
 * batch_id_conflict: message". */
int client_refusal(const struct client *c, const struct client_answer *answer,
                   struct err *e) MUST_CHECK;
/* True when the answer's body is a JSON error of that code. */
bool client_answer_is(const struct client_answer *answer, unsigned status, const char *code);
/* "data/tallyman.sock" or the URL; for messages. */
const char *client_where(const struct client *c);

/* Appends `&name=value` (without the '&' when out is empty), percent-encoded. */
void client_put_query(struct buf *out, const char *name, struct slice value);

/* Retry-After in seconds: decimal digits with optional white space around them; anything else (a
 * date) is `otherwise`. */
uint64_t client_retry_after_s(struct slice value, uint64_t otherwise);

#endif
