/* output: standard output and standard error of the command line verbs.
 *
 * Standard output is buffered here (64 KiB) and written through os/. The first failed write is
 * remembered; later bytes are dropped, and output_close turns the failure into an exit code: no
 * verb can report success for output that nobody got. A reader that has gone (EPIPE) ends the verb
 * quietly with 141, as the signal would have. One thread. */
#ifndef MAIN_OUTPUT_H
#define MAIN_OUTPUT_H

#include <stdbool.h>

#include "base/slice.h"

enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_VIOLATION = 3,
    EXIT_LEFT_OUT = 4, /* done, without something that is there */
    EXIT_PIPE = 141
};

/* Makes sure that descriptors 0 to 2 exist, so that no file or socket opened later can be taken for
 * one of them. */
void output_guard_descriptors(void);

void output_put(struct slice s);
void output_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Writes what is buffered. false once any write has failed: the verb should stop. */
bool output_flush(void);
/* Flushes, reports a failure on standard error under the verb's name, and returns the exit code:
 * `code` when every byte went out, else EXIT_PIPE or EXIT_FAILED. */
int output_close(const char *verb, int code);

/* One line on standard error, `tallyman VERB: text`. Control characters become '?'; at most 2 KiB.
 * Standard output is flushed first, so that lines of both keep their order on a terminal. */
void output_error(const char *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Draws a line on the terminal at standard error in place of the one drawn before; an empty one
 * erases. The next output_error erases it first. */
void output_progress(struct slice line);

/* True when descriptor fd (1 or 2) is a terminal. */
bool output_is_terminal(int fd);

#endif
