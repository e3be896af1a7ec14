/* The inside of deliver, shared by its files. */
#ifndef MAIN_DELIVER_INTERNAL_H
#define MAIN_DELIVER_INTERNAL_H

#include <stdbool.h>

#include "main/deliver.h"
#include "sink/artifact.h"
#include "store/artifact/delivery_index.h"

#define DELIVER_PATH_BYTES 4400
#define DELIVER_SHORT_ID   8 /* of an object id, in logs */
#define DELIVER_SHOWN_MAX  1200

struct deliver {
    const struct deliver_options *options;
    int lock_fd;
    int signal_fd;
    int stop_ep; /* readable when a signal came or the parent has gone */
    int wait_ep; /* the same, or a new receipt */
    int watch_fd;
    bool stop;
    bool scan_now;
    bool paused; /* as of the last look; for the log */
    uint64_t scan_due_ns;
    struct uploads *uploads;
    struct delivery_index *index;
    char project[UPLOAD_PROJECT_MAX + 1]; /* that was served last */
    void *piece;                          /* ARTIFACT_PIECE_BYTES */
    struct delivery_work work;
    struct upload_info info; /* large; of one scan step */
};

/* True from the first sign of the end on. */
bool deliver_stopping(struct deliver *d);
int64_t deliver_now_ms(void);
/* DATA/NAME; the directory's length was checked at the start. */
void deliver_path(const struct deliver *d, char out[DELIVER_PATH_BYTES], const char *name);

/* A text for the log: whoever knows an object id may ask for the artifact, so that ids are
 * shortened wherever they are in it, and control characters (of names) become '?'. Cut where it is
 * too long. */
void deliver_shown(char out[DELIVER_SHOWN_MAX], const char *text);

/* deliver_scan.c */
/* Adds what is in receipts/ and not in the index. Stops early when the process is to end. */
int deliver_scan(struct deliver *d, struct err *e) MUST_CHECK;
/* Takes the events of the watch: adds receipts that were named, or asks for a scan. */
int deliver_watched(struct deliver *d, struct err *e) MUST_CHECK;

/* deliver_build.c: d->work, a build. Its failure is a row; an error here is the index's. */
int deliver_build(struct deliver *d, struct err *e) MUST_CHECK;
/* Removes temporary names that a crash left in packages/. */
int deliver_build_clean(struct deliver *d, struct err *e) MUST_CHECK;

/* deliver_send.c: d->work, to be sent or verified; as above. */
int deliver_send(struct deliver *d, struct err *e) MUST_CHECK;

#endif
