/* deliveries: the pages of GET /api/v1/deliveries, for the verbs that list or use them. */
#ifndef MAIN_DELIVERIES_H
#define MAIN_DELIVERIES_H

#include "main/client.h"

struct deliveries_list {
    const struct client_target *target;
    const char *project, *state; /* NULL: all */
};

typedef void (*deliveries_row)(void *ctx, struct slice item);

/* Asks for page after page and hands each row on, once. The exit code; what went wrong is on
 * standard error. Standard output is flushed between pages: one that is gone ends it. */
int deliveries_each(const struct deliveries_list *l, deliveries_row row, void *ctx);
/* A line for people, and one each for what went wrong and what to do. */
void deliveries_print_row(void *ctx, struct slice item);

#endif
