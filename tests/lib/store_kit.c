/* Jobs and ledger; the oracle is in store_kit_check.c. */
#include "tests/lib/store_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/store_kit_internal.h"

#define TURNS_MAX 200

void skit_ledger_init(struct skit_ledger *l)
{
    memset(l, 0, sizeof *l);
    l->cursor = -1;
    l->cursor_doubt = -1;
}

uint64_t skit_ledger_hash(const struct skit_ledger *l)
{
    uint64_t h = l->rejected << 16 ^ (uint64_t)l->cursor ^ (uint64_t)l->key_state << 40;
    for (uint32_t i = 0; i < SKIT_EVENTS; i++) {
        h = kit_mix(h ^ (uint64_t)l->ev[i].put << 8 ^ (uint64_t)l->ev[i].delivered);
    }
    for (uint32_t i = 0; i < SKIT_PROJECTS; i++) {
        h = kit_mix(h ^ (uint64_t)l->project[i].state);
    }
    return h;
}

void skit_lie(struct skit_ledger *l, const char *what, uint32_t number, int64_t is, int64_t was)
{
    if (l->lie[0] == '\0') {
        (void)snprintf(l->lie, sizeof l->lie, "%s (event number %u: %lld, was %lld)", what, number,
                       (long long)is, (long long)was);
    }
}

/* ---- events ---- */

struct uuid skit_uuid(uint32_t number)
{
    struct uuid u;
    uint64_t mix = kit_mix(number);
    for (unsigned i = 0; i < 16; i++) {
        u.byte[i] = (uint8_t)(mix >> i % 8 * 8);
    }
    u.byte[15] = (uint8_t)number;
    return u;
}

size_t skit_text(uint32_t number, char out[SKIT_TEXT_MAX])
{
    size_t n = number >= SKIT_BIG ? 9000 + number * 7 : 40 + number * 37 % 700;
    int head = snprintf(out, SKIT_TEXT_MAX, "{\"event\":\"e%u\",\"pad\":\"", number);
    memset(out + head, 'a' + (int)(number % 26), n - (size_t)head - 2);
    memcpy(out + n - 2, "\"}", 2);
    return n;
}

uint32_t skit_project_of(uint32_t number)
{
    return number % 3 == 2 ? 1 : 0;
}

static int put_event(struct skit_job *j, uint32_t number, struct queue_receipt *out, struct err *e)
{
    char text[SKIT_TEXT_MAX];
    size_t n = skit_text(number, text);
    struct queue_event ev = {.project = j->ledger->project[skit_project_of(number)].id,
                             .uuid = skit_uuid(number),
                             .received_ms = INT64_C(1800000000000) + number,
                             .timestamp_us = INT64_C(1800000000000000) + number,
                             .time_note = SLICE(""),
                             .type = SLICE("capture"),
                             .event = SLICE("e"),
                             .distinct_id = SLICE("someone"),
                             .anonymous_id = SLICE(""),
                             .session_id = SLICE(""),
                             .source = SLICE("default"),
                             .message_id = SLICE(""),
                             .library = SLICE("kit"),
                             .library_version = SLICE("1"),
                             .envelope = number % 4 == 0 ? SLICE("{\"c\":1}") : SLICE(""),
                             .text = slice_of(text, n)};
    return queue_put(j->store, &ev, out, e);
}

/* ---- run ---- */

static int run_put(struct skit_job *j, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < j->count; i++) {
        r = put_event(j, j->from + i, &j->receipt[i], e);
    }
    for (uint32_t i = 0; r == 0 && i < j->rejected; i++) {
        struct queue_rejected bad = {.project = j->ledger->project[0].id,
                                     .received_ms = 1,
                                     .index = i,
                                     .door = SLICE("posthog"),
                                     .reason = SLICE("no event"),
                                     .text = SLICE("{\"bad\":1}")};
        r = queue_put_rejected(j->store, &bad, e);
    }
    return r == 0 && j->fail ? err_set(e, ERR_INVALID_EVENT, "on purpose") : r;
}

static int run_project(struct skit_job *j, struct err *e)
{
    const char *name = j->from == 0 ? "first" : "second";
    return control_create_project(j->store, slice_cstr(name), SLICE("A title"), NULL, 1000, e);
}

static int run(struct store_job *job, struct store *s, struct err *e)
{
    struct skit_job *j = (struct skit_job *)job;
    bool more = false;
    int64_t id;
    int r = 0;
    ensure(s == j->store);
    switch (j->kind) {
    case SKIT_PUT:
        return run_put(j, e);
    case SKIT_DELIVER:
        return queue_delivered(s, j->ids, j->id_count, 5000, e);
    case SKIT_PROJECT:
        return run_project(j, e);
    case SKIT_KEY:
        return control_create_key(s, j->ledger->project[0].id, KEY_SERVICE, SLICE("ops"),
                                  SCOPE_QUERY_READ, 2000, &id, j->key, e);
    case SKIT_CURSOR:
        return queue_set_cursor(
            s, &(struct queue_cursor){.project = j->ledger->project[0].id, .after_id = j->from}, e);
    case SKIT_MERGE:
        r = queue_merge_receipts(s, &more, e);
        return r == 0 && more ? STORE_AGAIN : r;
    }
    return r;
}

/* ---- what is known: before, and when it is told ---- */

static void doubt(struct skit_job *j)
{
    struct skit_ledger *l = j->ledger;
    for (uint32_t i = 0; i < j->count && j->kind == SKIT_PUT && !j->fail; i++) {
        struct skit_event *ev = &l->ev[j->from + i];
        j->was_doubt[i] = ev->put == SKIT_NONE;
        if (j->was_doubt[i]) {
            *ev = (struct skit_event){.put = SKIT_DOUBT, .job = j->number};
        }
    }
    if (j->kind == SKIT_PUT && !j->fail) {
        l->rejected_doubt += j->rejected;
    }
    for (uint32_t i = 0; i < j->count && j->kind == SKIT_DELIVER; i++) {
        struct skit_event *ev = &l->ev[j->from + i];
        if (ev->put == SKIT_ACKED && ev->delivered == SKIT_NONE) {
            ev->delivered = SKIT_DOUBT;
            j->was_doubt[i] = true;
            j->ids[j->id_count++] = ev->id;
        }
    }
    if (j->kind == SKIT_PROJECT && l->project[j->from].state == SKIT_NONE) {
        l->project[j->from].state = SKIT_DOUBT;
    }
    if (j->kind == SKIT_CURSOR) {
        l->cursor_doubt = j->from;
    }
}

static void told_event(struct skit_job *j, uint32_t i)
{
    struct skit_ledger *l = j->ledger;
    struct skit_event *ev = &l->ev[j->from + i];
    int64_t id = j->receipt[i].event_id;
    if (ev->put == SKIT_ACKED) {
        if (!j->receipt[i].repeat || id != ev->id) {
            skit_lie(l, "a repeat got another answer", j->from + i, id, ev->id);
        }
        return;
    }
    if (j->receipt[i].repeat) {
        skit_lie(l, "told a repeat, but nothing was there", j->from + i, id, 0);
    } else if (id <= l->id_max) {
        skit_lie(l, "an id was used again", j->from + i, id, l->id_max);
    }
    l->id_max = id > l->id_max ? id : l->id_max;
    ev->put = SKIT_ACKED;
    ev->id = id;
    ev->job = j->number;
}

static void told_good(struct skit_job *j)
{
    struct skit_ledger *l = j->ledger;
    struct err e;
    switch (j->kind) {
    case SKIT_PUT:
        for (uint32_t i = 0; i < j->count; i++) {
            told_event(j, i);
        }
        l->rejected += j->rejected;
        l->rejected_doubt -= j->rejected;
        break;
    case SKIT_DELIVER:
        for (uint32_t i = 0; i < j->count; i++) {
            if (j->was_doubt[i]) {
                l->ev[j->from + i].delivered = SKIT_ACKED;
            }
        }
        break;
    case SKIT_PROJECT:
    case SKIT_KEY:
        /* The memory copy may fail to follow for want of a read; a tick tries again. */
        if (control_committed(j->store, &e) != 0) {
            store_tick(j->store);
        }
        if (j->kind == SKIT_PROJECT) {
            l->project[j->from].state = SKIT_ACKED;
        } else {
            l->key_state = SKIT_ACKED;
            memcpy(l->key, j->key, sizeof l->key);
        }
        break;
    case SKIT_CURSOR:
        l->cursor = j->from;
        l->cursor_doubt = -1;
        break;
    case SKIT_MERGE:
        break;
    }
}

/* Undone for sure. */
static void told_undone(struct skit_job *j)
{
    struct skit_ledger *l = j->ledger;
    for (uint32_t i = 0; i < j->count && j->kind == SKIT_PUT; i++) {
        struct skit_event *ev = &l->ev[j->from + i];
        if (j->was_doubt[i] && ev->put == SKIT_DOUBT && ev->job == j->number) {
            ev->put = SKIT_NONE;
        }
    }
    if (j->kind == SKIT_PUT && !j->fail) {
        l->rejected_doubt -= j->rejected;
    }
    for (uint32_t i = 0; i < j->count && j->kind == SKIT_DELIVER; i++) {
        if (j->was_doubt[i]) {
            l->ev[j->from + i].delivered = SKIT_NONE;
        }
    }
    if (j->kind == SKIT_PROJECT && l->project[j->from].state == SKIT_DOUBT) {
        l->project[j->from].state = SKIT_NONE;
    }
    if (j->kind == SKIT_CURSOR) {
        l->cursor_doubt = -1;
    }
}

static void done(struct store_job *job, int code, const struct err *e)
{
    struct skit_job *j = (struct skit_job *)job;
    (void)e;
    if (code == STORE_AGAIN) {
        return; /* a slice; it is still queued */
    }
    if (j->ended) {
        skit_lie(j->ledger, "a job was told twice", j->from, code, j->code);
    }
    j->ended = true;
    j->code = code;
    if (code == 0) {
        if (j->fail) {
            skit_lie(j->ledger, "a job that failed was told 0", j->from, 0, 0);
        }
        told_good(j);
    } else if (code != ERR_STORE_POISONED) {
        told_undone(j);
    }
}

/* ---- turning ---- */

bool skit_turn(struct store *s, struct skit_ledger *l, struct skit_job *jobs, size_t count)
{
    bool more = true;
    for (size_t i = 0; i < count; i++) {
        struct skit_job *j = &jobs[i];
        j->store = s;
        j->ledger = l;
        j->job.run = run;
        j->job.done = done;
        j->number = ++l->jobs;
        ensure(j->from + j->count <= SKIT_EVENTS);
        doubt(j);
        store_submit(s, &j->job);
    }
    for (unsigned i = 1; more && i < TURNS_MAX; i++) {
        struct err e;
        more = store_turn(s);
        /* A long WAL holds the turns: without threads it is for the caller to move it. */
        if (more && i % 8 == 0 && store_checkpoint(s, &e) != 0) {
            continue;
        }
    }
    for (size_t i = 0; i < count; i++) {
        more = more || !jobs[i].ended;
    }
    for (uint32_t i = 0; i < SKIT_PROJECTS; i++) {
        const char *name = i == 0 ? "first" : "second";
        const struct project *p = control_project(store_control(s), slice_cstr(name));
        if (l->project[i].state == SKIT_ACKED && l->project[i].id == 0 && p != NULL) {
            l->project[i].id = p->id;
        }
    }
    return !more;
}

int skit_one(struct store *s, struct skit_ledger *l, struct skit_job job)
{
    struct skit_job *j = malloc(sizeof *j);
    ensure(j != NULL);
    *j = job;
    bool ended = skit_turn(s, l, j, 1);
    int code = j->code;
    if (!ended) {
        skit_lie(l, "a job did not end", job.from, job.kind, 0);
    } else {
        free(j); /* else the store still has it */
    }
    return code;
}
