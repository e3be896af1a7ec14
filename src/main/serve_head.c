/* The key is opened under the data directory's lock, behind the journal. Heads are proofs for
 * others: whatever is wrong with the key, both stores work. */
#include "main/serve_head.h"

#include "base/log.h"
#include "door/history/head_key.h"
#include "os/os.h"

#define SPACE_BYTES (1u << 20) /* free on the disk before the key is made late */

static void open_key(struct serve_head *h)
{
    struct journal_frontier f;
    struct err e = {0};
    bool made = false;
    int r = head_key_open(h->data, &h->key, &made, &e);

    h->due = r == ERR_NO_SPACE;
    if (r != 0) {
        log_line(LOG_ERROR, "serve", "heads are not signed: %s", e.text);
        return;
    }
    journal_get_frontier(h->journal, &f);
    if (made && !f.empty) {
        log_line(LOG_WARN, "serve",
                 HEAD_KEY_FILE " was missing and is made anew: heads that were signed before "
                               "cannot be checked against it");
    }
}

void serve_head_open(struct serve_head *h, const char *data, struct journal *journal)
{
    *h = (struct serve_head){.data = data, .journal = journal};
    open_key(h);
}

void serve_head_tick(struct serve_head *h, struct history *history)
{
    uint64_t bytes = 0;

    if (!h->due || os_free_space(h->data, &bytes) != 0 || bytes < SPACE_BYTES) {
        return;
    }
    open_key(h);
    if (h->key != NULL) {
        history_set_head_key(history, h->key);
    }
}

void serve_head_close(struct serve_head *h)
{
    ed25519_free(h->key);
    h->key = NULL;
}
