/* jsonspeed: how many megabytes of JSON text a core turns into canonical form in a second, or
 * checks or mends it as the capture door does.
 *
 * Prints one line a document shape, `jsonspeed canon docs=1KB MB/s=... shape=event ns/doc=...`.
 * Each shape is made of DOCUMENTS different documents, so that branch predictors do not learn one
 * by heart. The best of ROUNDS rounds counts: other work on the machine can only slow a round down.
 * MB are 10^6 input bytes, time is CPU time.
 *
 * Environment: WORK (canon, which is the default, check, flaws or mend), SHAPE (only that shape),
 * DURATION (about so many seconds a shape, default 1). */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "json/canon.h"
#include "json/tolerant.h"
#include "json/write.h"

#define DOCUMENTS 256
#define ROUNDS    20

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 33;
}

static const char *pick(const char *const *list, size_t count)
{
    return list[next_random() % count];
}

static void put_words(struct buf *b, size_t bytes)
{
    static const char *const words[] = {"invoice", "paid by", "customer",   "retry", "of the",
                                        "import",  "with",    "\\\"ok\\\"", "shard", "eventually"};
    size_t end = b->len + bytes;
    while (b->len < end) {
        buf_put_cstr(b, pick(words, sizeof words / sizeof words[0]));
        buf_put_char(b, ' ');
    }
}

/* A record as a connector sends it, keys as a database has them. */
static void event(struct buf *b)
{
    buf_printf(b, "{\"stream\":\"customers\",\"record_key\":\"cus_%llu\",\"kind\":\"upserted\",",
               (unsigned long long)next_random());
    buf_printf(b, "\"occurred_at\":\"2026-11-%02uT09:%02u:%02u.%03uZ\",\"payload\":{",
               (unsigned)(1 + next_random() % 30), (unsigned)(next_random() % 60),
               (unsigned)(next_random() % 60), (unsigned)(next_random() % 1000));
    buf_printf(b, "\"id\":\"cus_%llu\",\"object\":\"customer\",\"email\":\"kim.%llu@example.com\",",
               (unsigned long long)next_random(), (unsigned long long)(next_random() % 100000));
    buf_printf(b, "\"balance\":%u.%02u,\"created\":%llu,\"livemode\":true,\"deleted\":null,",
               (unsigned)(next_random() % 10000), (unsigned)(next_random() % 100),
               (unsigned long long)(1700000000 + next_random() % 10000000));
    buf_put_cstr(b, "\"address\":{\"line1\":\"");
    put_words(b, 24);
    buf_printf(b, "\",\"city\":\"Rotterdam\",\"postal_code\":\"%u\",\"country\":\"NL\"},",
               (unsigned)(next_random() % 90000));
    buf_put_cstr(b, "\"description\":\"");
    put_words(b, 150);
    buf_put_cstr(b, "\",\"metadata\":{\"order\":[");
    for (int i = 0; i < 8; i++) {
        buf_printf(b, "%s%llu", i == 0 ? "" : ",", (unsigned long long)(next_random() % 100000));
    }
    buf_put_cstr(b, "],\"note\":\"");
    put_words(b, 100);
    buf_printf(b, "\",\"score\":0.%u},\"tags\":[\"a\",\"beta\",\"long-tag-name\"],\"sources\":[",
               (unsigned)(next_random() % 100000));
    for (int i = 0; i < 2; i++) {
        buf_printf(b, "%s{\"type\":\"card\",\"last4\":\"%04u\",\"exp_year\":%u,\"exp_month\":%u}",
                   i == 0 ? "" : ",", (unsigned)(next_random() % 10000),
                   (unsigned)(2026 + next_random() % 9), (unsigned)(1 + next_random() % 12));
    }
    buf_put_cstr(b, "]}}");
}

static void utf8(struct buf *b)
{
    static const char *const texts[] = {"Łódź, Żółć i gęś ",   "naïve café crème ",
                                        "注文が確定しました ", "Привет, мир ",
                                        "plain text ",         "😀 ok "};
    buf_put_cstr(b, "{\"titel\":\"Übersicht\",\"inhalt\":[");
    for (int i = 0; i < 12; i++) {
        buf_put_cstr(b, i == 0 ? "\"" : ",\"");
        for (int j = 0; j < 4; j++) {
            buf_put_cstr(b, pick(texts, sizeof texts / sizeof texts[0]));
        }
        buf_put_char(b, '"');
    }
    buf_put_cstr(b, "],\"名前\":\"é\",\"id\":1}");
}

static void numbers(struct buf *b)
{
    buf_put_cstr(b, "{\"points\":[");
    for (int i = 0; i < 40; i++) {
        buf_printf(b, "%s[%llu,%u.%02u,-%u.%u]", i == 0 ? "" : ",",
                   (unsigned long long)(next_random() % 100000000),
                   (unsigned)(next_random() % 1000), (unsigned)(next_random() % 100),
                   (unsigned)(next_random() % 90), (unsigned)(next_random() % 1000000));
    }
    buf_put_cstr(b, "]}");
}

/* Doubles printed in full by a program: every one takes the long way in and out. */
static void doubles(struct buf *b)
{
    buf_put_char(b, '[');
    for (int i = 0; i < 50; i++) {
        buf_printf(b, "%s%.17g", i == 0 ? "" : ",",
                   (double)next_random() / (double)(1 + next_random()) * 1e-3);
    }
    buf_put_char(b, ']');
}

/* The event with white space, as people's scripts write it. */
static void pretty(struct buf *b)
{
    struct buf plain = {0};
    event(&plain);
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < plain.len; i++) {
        char c = plain.ptr[i];
        quoted = quoted != (c == '"' && (i == 0 || plain.ptr[i - 1] != '\\'));
        depth -= !quoted && (c == '}' || c == ']');
        buf_put_char(b, c);
        depth += !quoted && (c == '{' || c == '[');
        if (!quoted && (c == ',' || c == '{' || c == '[')) {
            buf_printf(b, "\n%*s", (int)(2 * depth), "");
        } else if (!quoted && c == ':') {
            buf_put_char(b, ' ');
        }
    }
    buf_free(&plain);
}

static void wide(struct buf *b)
{
    buf_put_char(b, '{');
    for (int i = 0; i < 60; i++) {
        buf_printf(b, "%s\"column_%02llu_%d\":%d", i == 0 ? "" : ",",
                   (unsigned long long)(next_random() % 100), i, i);
    }
    buf_put_char(b, '}');
}

static void sorted(struct buf *b)
{
    struct canon *c = canon_new();
    struct buf plain = {0};
    event(&plain);
    ensure(c != NULL);
    ensure(canon_json(c, buf_slice(&plain), b, NULL) == 0);
    canon_free(c);
    buf_free(&plain);
}

/* The body of an append of 500 events. */
static void batch(struct buf *b)
{
    buf_put_cstr(b, "{\"v\":1,\"batch_id\":\"b\",\"source\":\"s\",\"events\":[");
    for (int i = 0; i < 500; i++) {
        buf_put_cstr(b, i == 0 ? "" : ",");
        event(b);
    }
    buf_put_cstr(b, "]}");
}

static const struct shape {
    const char *name;
    const char *docs;
    void (*make)(struct buf *b);
    size_t count;
} shapes[] = {
    {"event", "1KB", event, DOCUMENTS},     {"sorted", "1KB", sorted, DOCUMENTS},
    {"pretty", "1KB", pretty, DOCUMENTS},   {"utf8", "1KB", utf8, DOCUMENTS},
    {"numbers", "1KB", numbers, DOCUMENTS}, {"doubles", "1KB", doubles, DOCUMENTS},
    {"wide", "1KB", wide, DOCUMENTS},       {"batch", "500KB", batch, 4},
};

/* CPU time: waiting for a core is not our speed. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int work_canon(struct canon *c, struct slice in, struct buf *out)
{
    return canon_json(c, in, out, NULL);
}

static int work_check(struct canon *c, struct slice in, struct buf *out)
{
    (void)c;
    (void)out;
    struct slice value;
    return json_tolerant_check(in, &value, NULL);
}

static int work_flaws(struct canon *c, struct slice in, struct buf *out)
{
    (void)c;
    (void)out;
    unsigned flaws;
    return json_flaws(in, &flaws, NULL);
}

static int work_mend(struct canon *c, struct slice in, struct buf *out)
{
    (void)c;
    return json_mend(in, out, NULL);
}

static const struct work {
    const char *name;
    int (*run)(struct canon *c, struct slice in, struct buf *out);
} works[] = {
    {"canon", work_canon}, {"check", work_check}, {"flaws", work_flaws}, {"mend", work_mend}};

static const struct work *work_named(const char *name)
{
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        if (strcmp(works[i].name, name) == 0) {
            return &works[i];
        }
    }
    return NULL;
}

static void measure(const struct work *work, const struct shape *shape, double seconds)
{
    struct buf docs = {0};
    size_t starts[DOCUMENTS + 1] = {0};
    for (size_t i = 0; i < shape->count; i++) {
        shape->make(&docs);
        starts[i + 1] = docs.len;
    }
    struct canon *c = canon_new();
    ensure(c != NULL);
    struct buf out = {0};
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = 0;
        double begin = now();
        double spent = 0;
        do {
            for (size_t i = 0; i < shape->count; i++) {
                struct slice in = slice_of(docs.ptr + starts[i], starts[i + 1] - starts[i]);
                buf_clear(&out);
                int r = work->run(c, in, &out);
                ensure(r == 0);
                bytes += in.len;
            }
            spent = now() - begin;
        } while (spent < seconds / ROUNDS);
        best = (double)bytes / spent > best ? (double)bytes / spent : best;
    }
    double size = (double)docs.len / (double)shape->count;
    printf("jsonspeed %s docs=%s MB/s=%.0f shape=%s ns/doc=%.0f bytes=%.0f\n", work->name,
           shape->docs, best / 1e6, shape->name, size / best * 1e9, size);
    canon_free(c);
    buf_free(&docs);
    buf_free(&out);
}

int main(void)
{
    const char *only = getenv("SHAPE");
    const char *length = getenv("DURATION");
    double seconds = length != NULL ? strtod(length, NULL) : 1;
    const char *which = getenv("WORK");
    const struct work *work = work_named(which != NULL ? which : "canon");
    if (work == NULL) {
        fprintf(stderr, "jsonspeed: WORK is canon, check, flaws or mend\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (only == NULL || strcmp(only, shapes[i].name) == 0) {
            measure(work, &shapes[i], seconds);
        }
    }
    return 0;
}
