/* serve_artifacts: the artifact door inside the server, and the process `tallyman deliver` beside
 * it, started and watched like the engine. Loop thread only.
 *
 * Neither can stop the other doors: a delivery process that does not start is an outage that status
 * shows; accepted files wait for it. */
#ifndef MAIN_SERVE_ARTIFACTS_H
#define MAIN_SERVE_ARTIFACTS_H

#include "door/artifact/artifact.h"
#include "door/manage/manage.h"
#include "main/child.h"
#include "main/config.h"
#include "main/spawner.h"

#define ARTIFACTS_PATH_MAX   4300
#define ARTIFACTS_ISSUER_MAX 513
#define ARTIFACTS_ARGS_MAX   24
#define ARTIFACTS_NUMBER_MAX 24

struct artifacts {
    const struct config *config;
    struct artifact *door;
    struct spawner *spawner; /* starts the child; NULL: this process does */
    bool watching;           /* child is in use */
    struct child child;
    char issuer[ARTIFACTS_ISSUER_MAX];
    char program[ARTIFACTS_PATH_MAX];
    char answer_ms[ARTIFACTS_NUMBER_MAX], stall_ms[ARTIFACTS_NUMBER_MAX];
    char concurrency[ARTIFACTS_NUMBER_MAX], unseen_ms[ARTIFACTS_NUMBER_MAX];
    char *argv[ARTIFACTS_ARGS_MAX];
    unsigned args;
};

/* Opens the door's folders. c is borrowed for the life of a; store may be NULL and come later
 * (artifact_attach). ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY. */
int artifacts_open(struct artifacts *a, const struct config *c, struct store *store,
                   struct err *e) MUST_CHECK;
/* Names the delivery process to the spawner. ERR_IO, ERR_NO_MEMORY. */
int artifacts_add_command(const struct config *c, struct spawner *s, struct err *e) MUST_CHECK;
/* With the server made: the door's background work, and the delivery process unless `deliver` is
 * off. */
int artifacts_start(struct artifacts *a, struct http_server *server, struct err *e) MUST_CHECK;
/* The server begins to stop. */
void artifacts_stopping(struct artifacts *a);
/* About once a second. */
void artifacts_tick(struct artifacts *a);
/* For manage; ctx is a struct artifacts. */
void artifacts_status(void *ctx, struct manage_artifacts *out);
void artifacts_partials(void *ctx, struct buf *out);
/* After http_run: the process ends, the background work too. */
void artifacts_stop(struct artifacts *a);
/* After http_free. */
void artifacts_close(struct artifacts *a);

#endif
