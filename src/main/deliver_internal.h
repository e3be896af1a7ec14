/* The inside of deliver, shared by its files. */
#ifndef MAIN_DELIVER_INTERNAL_H
#define MAIN_DELIVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "main/deliver.h"
#include "sink/artifact.h"
#include "store/artifact/delivery_index.h"
#include "store/artifact/package_build.h"

#define DELIVER_PATH_BYTES 4400
#define DELIVER_SHORT_ID   8 /* of an object id, in logs */
#define DELIVER_SHOWN_MAX  1200
#define DELIVER_BUILDS     2u /* at a time, one of them at most a large one */
/* Those of builds come first. */
#define DELIVER_PURGES 1u /* at a time: its thread has memory that is not its slot's */
#define DELIVER_SLOTS_MAX \
    (DELIVER_BUILDS + DELIVER_PURGES + DELIVER_CONCURRENCY_MAX + DELIVER_STUCK_MAX)

struct deliver;
struct deliver_slot;

/* What is done with one kind of due work; a table in deliver_loop.c has a row for each. */
struct deliver_step {
    /* Before the thread: what must be on the disk by then. *run false: there is a result already.
     */
    int (*begin)(struct deliver_slot *s, bool *run, struct err *e);
    /* On a thread of its own. */
    void (*run)(struct deliver_slot *s);
    /* The result becomes a row, synced. *again: the work goes on, with s->work as it is now. */
    int (*done)(struct deliver_slot *s, bool *again, struct err *e);
};

/* A thread, and the piece of work that it has. The thread owns what it works with from its start to
 * `finished`; the loop reads only the atomics meanwhile, and what neither changes. */
struct deliver_slot {
    struct deliver *d;
    bool used;
    bool stuck;
    enum delivery_lane lane;
    const struct deliver_step *step;
    pthread_t thread;
    pthread_mutex_t lock; /* of go and quit */
    pthread_cond_t change;
    bool go, quit;
    /* Monotonic: of the work and of this step of it, and the end of its time. */
    uint64_t first_ns, begun_ns, give_up_ns;
    int64_t begun_at; /* Unix seconds */
    uint64_t shown_bytes, shown_ns, bytes_per_s;
    /* What the thread tells. */
    atomic_bool finished;
    atomic_bool gave_up; /* the time of the try was over */
    atomic_uint_least64_t alive_ns, bytes;
    atomic_uint file_at; /* which file is under way, from 1; 0: none */
    /* The thread's. */
    struct delivery_work work;
    void *piece; /* ARTIFACT_PIECE_BYTES */
    int result;  /* of a build: 0, ERR_, PACKAGE_STOPPED; of a purge: 0, ERR_ */
    struct err why;
    const char *way_out; /* of a build that only a person can mend; NULL: it is tried again */
    struct package_job build;
    const struct artifact_adapter *adapter;
    unsigned attempt; /* this one, from 1 */
    struct artifact_file file[DELIVERY_FILES_MAX];
    char path[DELIVERY_FILES_MAX][DELIVER_PATH_BYTES];
    struct artifact_job job;
    struct artifact_verdict verdict;
};

/* Items in a row that gave trouble that may be their own (ARTIFACT_DOUBT). */
struct deliver_doubt {
    unsigned items; /* up to DELIVER_DOUBTS: then it is not theirs */
    char last[DELIVERY_NAME_MAX];
};
#define DELIVER_DOUBTS 3u

struct deliver {
    const struct deliver_options *options;
    int lock_fd;
    int signal_fd;
    int stop_ep; /* readable when a signal came or the parent has gone */
    int wait_ep; /* the same, or a new receipt, a request, or work that is finished */
    int watch_fd;
    int request_fd;  /* watches requests/ */
    int finished_fd; /* an eventfd */
    atomic_bool stop;
    bool scan_now;
    bool paused; /* as of the last look; for the log */
    bool news;   /* the database does not say what is running now */
    uint64_t scan_due_ns;
    uint64_t show_due_ns;
    uint64_t show_warned_ns;
    uint64_t request_due_ns;
    uint64_t alarm_due_ns;
    int64_t work_due_ms; /* when there may be work, as of the last look */
    /* Packages of what waits: chosen now, or when either is over. */
    bool choose_now;
    uint64_t choose_due_ns, choose_warned_ns;
    int64_t choose_due_ms;
    struct uploads *uploads;
    struct delivery_index *index;
    struct deliver_doubt doubt;
    struct deliver_slot *slot[DELIVER_SLOTS_MAX]; /* NULL: never needed */
    struct upload_info info;                      /* large; of one scan step */
};

/* True from the first sign of the end on. Any thread. */
bool deliver_stopping(struct deliver *d);
int64_t deliver_now_ms(void);
/* DATA/NAME; the directory's length was checked at the start. */
void deliver_path(const struct deliver *d, char out[DELIVER_PATH_BYTES], const char *name);

/* A text for the log: whoever knows an object id may ask for the artifact, so that ids are
 * shortened wherever they are in it, and control characters (of names) become '?'. Cut where it is
 * too long. */
void deliver_shown(char out[DELIVER_SHOWN_MAX], const char *text);

/* deliver_loop.c */
/* One turn: new receipts, requests, results, new work, and a wait. */
int deliver_turn(struct deliver *d, struct err *e) MUST_CHECK;
/* Results and new work only: between two groups of a long scan. */
int deliver_between(struct deliver *d, struct err *e) MUST_CHECK;
/* Waits for what is under way, at most grace_ms; results become rows unless the index has failed.
 * *left_behind: not all came back. */
int deliver_finish(struct deliver *d, bool index_ok, bool *left_behind, struct err *e) MUST_CHECK;

/* deliver_slot.c */
/* One for a new piece of work, not used yet; NULL: the lane is full, or no memory or thread can be
 * had. */
struct deliver_slot *deliver_slot_free(struct deliver *d, enum delivery_lane lane);
/* Lets the thread of a slot begin with the work that is set. */
void deliver_slot_start(struct deliver_slot *s);
/* A slot whose work is finished; NULL: none. */
struct deliver_slot *deliver_slot_finished(struct deliver *d);
/* Signs of life, for adapters. */
bool deliver_slot_stopping(void *ctx);
void deliver_slot_progress(void *ctx, uint64_t bytes, const char *file);
/* Looks after threads that give no sign of life, and tells the database what is running. */
int deliver_slots_watch(struct deliver *d, struct err *e) MUST_CHECK;
/* Ends the threads; none has work. */
void deliver_slots_free(struct deliver *d);

/* deliver_scan.c */
/* Adds what is in receipts/ and not in the index. Stops early when the process is to end. */
int deliver_scan(struct deliver *d, struct err *e) MUST_CHECK;
/* Takes the events of the watch: adds receipts that were named, or asks for a scan. */
int deliver_watched(struct deliver *d, struct err *e) MUST_CHECK;

/* deliver_merge.c */
/* At the start: adds the merged packages that are on the disk and not in the index. */
int deliver_plans(struct deliver *d, struct err *e) MUST_CHECK;
/* Makes packages of what waits, where it is time for them. */
int deliver_choose(struct deliver *d, struct err *e) MUST_CHECK;
/* How the project's packages are filled. Errors are those of artifact_sink_read. */
int deliver_merge_rule(const struct deliver *d, const char *project,
                       struct delivery_merge_rule *out, struct err *e) MUST_CHECK;

/* deliver_request.c: does what the files in requests/ ask for, and removes them. */
int deliver_requests(struct deliver *d, struct err *e) MUST_CHECK;

/* deliver_build.c */
extern const struct deliver_step deliver_build_step;

/* deliver_send.c: to be sent or verified. */
extern const struct deliver_step deliver_send_step;

/* deliver_purge.c */
extern const struct deliver_step deliver_purge_step;
/* At the start: makes proofs/, and adds what the index does not know of them. */
int deliver_proofs(struct deliver *d, struct err *e) MUST_CHECK;

#endif
