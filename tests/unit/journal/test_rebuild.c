/* A start that lacks its index: reads are served while it is made, appends wait; damage, failures
 * and a close in the middle. On the kernel, with threads; a gate in front of every pread of the
 * other threads holds them where the test wants them. Then what summaries are good for: generations
 * that filters skip, checksums of blocks, and the bound on keys that cannot be written. */
#include "tests/unit/journal/journal_fixture.h"

#include <pthread.h>
#include <unistd.h>

#include "base/metrics.h"
#include "journal/internal.h"
#include "journal/inventory.h"
#include "journal/seal.h"
#include "journal/segment.h"
#include "journal/skip.h"

/* ---- the gate ---- */

static pthread_t test_thread;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_moved = PTHREAD_COND_INITIALIZER;
static bool gate_shut;
static bool gate_fails; /* reads of other threads fail */
static unsigned gate_waiting;
static bool index_writes_fail;
static char index_part[] = "/index/";

static int64_t gated_pread(int fd, void *p, size_t n, uint64_t offset)
{
    bool fails = false;
    if (!pthread_equal(pthread_self(), test_thread)) {
        pthread_mutex_lock(&gate_lock);
        gate_waiting++;
        pthread_cond_broadcast(&gate_moved);
        while (gate_shut) {
            pthread_cond_wait(&gate_moved, &gate_lock);
        }
        gate_waiting--;
        fails = gate_fails;
        pthread_mutex_unlock(&gate_lock);
    }
    return fails ? -EIO : os_real.pread(fd, p, n, offset);
}

static int gated_open(const char *path, int flags, unsigned mode)
{
    pthread_mutex_lock(&gate_lock);
    bool fails = index_writes_fail && (flags & O_CREAT) != 0 && strstr(path, index_part) != NULL;
    pthread_mutex_unlock(&gate_lock);
    return fails ? -EACCES : os_real.open(path, flags, mode);
}

static void gate(bool shut)
{
    pthread_mutex_lock(&gate_lock);
    gate_shut = shut;
    pthread_cond_broadcast(&gate_moved);
    pthread_mutex_unlock(&gate_lock);
}

/* Until another thread stands at the gate. */
static void gate_await(void)
{
    pthread_mutex_lock(&gate_lock);
    while (gate_waiting == 0) {
        pthread_cond_wait(&gate_moved, &gate_lock);
    }
    pthread_mutex_unlock(&gate_lock);
}

static void begin(struct fx *f)
{
    static struct os_table table;
    test_thread = pthread_self();
    gate_shut = false;
    gate_fails = false;
    index_writes_fail = false;
    table = os_real;
    table.pread = gated_pread;
    table.open = gated_open;
    os_install(&table);
    fx_start(f, true);
    f->options.threads = true;
    f->options.index_at_once = 1;
}

static void end(struct fx *f)
{
    gate(false);
    fx_end(f);
    os_install(&os_real);
}

/* ---- the directory ---- */

static void spoil(const char *path, uint64_t at)
{
    char c;
    int fd = os_open(path, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_real.pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(os_pwrite_all(fd, &c, 1, at, NULL), 0);
    assert_int_equal(os_close(fd), 0);
}

static void forget_index(struct fx *f)
{
    assert_int_equal(index_forget(f->layout.index, &f->e), 0);
}

/* Path and length of closed generation n. */
static uint64_t pending(struct fx *f, uint32_t n, char path[LAYOUT_PATH_MAX])
{
    struct layout_generation *rows;
    uint32_t count;
    assert_int_equal(layout_list_pending(&f->layout, &rows, &count, &f->e), 0);
    assert_true(n < count);
    layout_pending_path(&f->layout, &rows[n].first_id, &rows[n].last_id, path);
    uint64_t bytes = rows[n].bytes;
    free(rows);
    return bytes;
}

/* Some generations, the last not empty; closed, and the index gone. */
static void fill(struct fx *f, uint32_t batches)
{
    fx_open(f);
    for (uint32_t n = 1; n <= batches; n++) {
        fx_put(f, n, n % 4 + 1, n % 5 == 0 ? 9000 : 900 + n * 17);
    }
    assert_true(fx_status(f).generations >= 3);
}

static uint64_t count_events(struct fx *f)
{
    struct journal_reader *r;
    struct line l;
    uint64_t n = 0;
    int code;
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, NULL, NULL, &r, &f->e), 0);
    while ((code = journal_reader_next(r, &l, 0, &f->e)) == 1) {
        n++;
    }
    assert_int_equal(code, 0);
    journal_reader_close(r);
    return n;
}

static void await_indexed(struct fx *f)
{
    for (unsigned i = 0; fx_status(f).indexing; i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
}

/* ---- reads beside it ---- */

static int append_result(struct fx *f, uint32_t number)
{
    struct journal_result r;
    struct kit_batch kb;
    kit_batch_make(&kb, (struct kit_spec){number, 1, 100});
    int code = journal_append(f->j, &kb.batch, &r, &f->e);
    kit_batch_free(&kb);
    return code;
}

static void count_row(uint64_t *events, const struct index_stream *row)
{
    *events += row->events;
}

static int stream_row(void *ctx, const struct index_stream *row)
{
    count_row(ctx, row);
    return 0;
}

static void test_reads_beside_it(void **state)
{
    struct fx f;
    struct journal_frontier before;
    uint64_t in_streams = 0;
    begin(&f);
    fill(&f, 60);
    journal_get_frontier(f.j, &before);
    fx_close(&f);
    forget_index(&f);
    gate(true);
    fx_open(&f);
    gate_await();
    struct journal_status st = fx_status(&f);
    assert_true(st.indexing);
    assert_false(st.frontier.complete);
    assert_false(st.poisoned);
    assert_int_equal(st.indexed, 0);
    assert_int_equal(st.index_total, st.generations - 1);
    assert_int_equal(uuid_cmp(&st.frontier.last_id, &before.last_id), 0);
    assert_int_equal(st.frontier.events, 0);
    assert_int_equal(count_events(&f), before.events);
    assert_int_equal(journal_has_event(f.j, &before.last_id, &f.e), 1);
    assert_int_equal(
        journal_read_streams(f.j, &before.last_id, SLICE(""), stream_row, &in_streams, &f.e), 0);
    assert_int_equal(in_streams, before.events);
    assert_int_equal(append_result(&f, 1), ERR_NOT_READY); /* a duplicate waits too */
    assert_int_equal(append_result(&f, 999), ERR_NOT_READY);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    journal_tick(f.j);
    fx_verify(&f, false);
    gate(false);
    await_indexed(&f);
    st = fx_status(&f);
    assert_true(st.frontier.complete);
    assert_int_equal(st.indexed, st.index_total);
    assert_int_equal(st.frontier.events, before.events);
    assert_memory_equal(st.frontier.head, before.head, SHA256_LEN);
    fx_check_opened(&f);
    fx_close(&f);
    /* All is there now: complete at once, and nothing of closed generations is read. */
    gate(true);
    fx_open(&f);
    assert_false(fx_status(&f).indexing);
    assert_true(fx_status(&f).frontier.complete);
    gate(false);
    fx_check_opened(&f);
    fx_close(&f);
    fx_verify(&f, true);
    end(&f);
    (void)state;
}

/* One summary or one run is missing, or damaged: the generations behind it wait their turn. */
static void test_something_missing(void **state)
{
    static const char *const names[] = {"gen-00000001.sum", "keys-00000002-00000002.run"};
    for (unsigned i = 0; i < 4; i++) {
        char path[LAYOUT_PATH_MAX + 64];
        struct fx f;
        begin(&f);
        fill(&f, 40); /* too few generations for a merge, which would remove what is named here */
        assert_in_range(fx_status(&f).generations, 4, 7);
        fx_close(&f);
        (void)snprintf(path, sizeof path, "%s/%s", f.layout.index, names[i % 2]);
        if (i < 2) {
            assert_int_equal(os_unlink(path), 0);
        } else {
            spoil(path, 100);
        }
        fx_open(&f);
        await_indexed(&f);
        fx_check_opened(&f);
        fx_close(&f);
        fx_open(&f);
        assert_true(fx_status(&f).frontier.complete);
        fx_close(&f);
        end(&f);
    }
    (void)state;
}

/* Closed in the middle: the files of journal/ are as they were, and the next start goes on. */
static void test_closed_meanwhile(void **state)
{
    struct fx f;
    begin(&f);
    fill(&f, 60);
    fx_close(&f);
    forget_index(&f);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t size;
        struct os_stat st;
        gate(true);
        fx_open(&f);
        gate_await();
        assert_int_equal(os_stat(f.layout.tail, &st), 0);
        size = st.size;
        atomic_store(&f.j->rebuild.stop,
                     true); /* as journal_close does first, in front of the gate */
        gate(false);
        fx_close(&f);
        assert_int_equal(os_stat(f.layout.tail, &st), 0);
        assert_int_equal(st.size, size);
        assert_int_equal(os_stat(f.layout.spare, &st), -ENOENT);
        fx_verify(&f, true);
    }
    fx_open(&f);
    await_indexed(&f);
    fx_check_opened(&f);
    fx_close(&f);
    end(&f);
    (void)state;
}

/* A torn group behind the tail's data is mended when all is proven, not before. */
static void test_torn_tail(void **state)
{
    struct fx f;
    struct os_stat st;
    int fd;
    begin(&f);
    fill(&f, 60);
    fx_close(&f);
    forget_index(&f);
    assert_int_equal(os_stat(f.layout.tail, &st), 0);
    fd = os_open(f.layout.tail, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, "{\"batch\0\0\0", 10, st.size, NULL), 0);
    assert_int_equal(os_close(fd), 0);
    gate(true);
    fx_open(&f);
    gate_await();
    assert_int_equal(os_stat(f.layout.remnants, &st), -ENOENT);
    gate(false);
    await_indexed(&f);
    assert_int_equal(os_stat(f.layout.remnants, &st), 0);
    fx_check_opened(&f);
    fx_close(&f);
    fx_verify(&f, true);
    end(&f);
    (void)state;
}

/* ---- damage and failures ---- */

static void test_damage(void **state)
{
    struct fx f;
    char path[LAYOUT_PATH_MAX];
    struct journal_reader *old;
    struct journal_reader *older;
    struct line l;
    struct os_stat tail;
    struct os_stat after;
    int code;
    begin(&f);
    fill(&f, 60);
    fx_close(&f);
    forget_index(&f);
    /* A hash digit: readers do not see it, the proof does. */
    spoil(path, pending(&f, 1, path) / 2);
    assert_int_equal(os_stat(f.layout.tail, &tail), 0);
    gate(true);
    fx_open(&f);
    gate_await();
    struct journal_frontier front = fx_status(&f).frontier;
    struct uuid near_end = front.last_id;
    near_end.byte[13] ^= 1;
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &old, &f.e), 0);
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &older, &f.e), 0);
    assert_int_equal(journal_reader_next(older, &l, 0, &f.e), 1);
    gate(false);
    await_indexed(&f);
    struct journal_status st = fx_status(&f);
    assert_true(st.poisoned && st.damaged);
    assert_non_null(strstr(st.cause, "closed generation 1 is damaged"));
    assert_true(st.frontier.complete);
    assert_true(uuid_cmp(&st.frontier.last_id, &front.last_id) < 0);
    assert_int_equal(st.generations, 2);
    fx_expect_read_only(&f, st.frontier.events);
    /* Who began before learns it: no gap, and no end that looks whole. */
    while ((code = journal_reader_next(old, &l, 0, &f.e)) == 1) {
        assert_true(uuid_cmp(&l.id, &st.frontier.last_id) <= 0);
    }
    assert_int_equal(code, ERR_CORRUPT);
    while ((code = journal_reader_next(older, &l, 0, &f.e)) == 1) {
    }
    assert_int_equal(code, ERR_CORRUPT);
    journal_reader_close(old);
    journal_reader_close(older);
    fx_close(&f);
    assert_int_equal(os_stat(f.layout.tail, &after), 0);
    assert_int_equal(after.size, tail.size);
    assert_int_equal(os_stat(f.layout.spare, &after), -ENOENT);
    end(&f);
    (void)state;
}

/* In the tail it is found before anything is served; the rest is counted all the same. */
static void test_damaged_tail(void **state)
{
    struct fx f;
    begin(&f);
    fill(&f, 60);
    struct journal_frontier before;
    journal_get_frontier(f.j, &before);
    fx_close(&f);
    forget_index(&f);
    spoil(f.layout.tail, 200);
    fx_open(&f);
    for (unsigned i = 0; !fx_status(&f).frontier.complete; i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
    struct journal_status st = fx_status(&f);
    assert_true(st.poisoned && st.damaged && !st.indexing);
    assert_true(st.frontier.events > 0 && st.frontier.events < before.events);
    fx_expect_read_only(&f, st.frontier.events);
    fx_close(&f);
    end(&f);
    (void)state;
}

/* A plain file stands beside the segment that covers it, and the segment has not its hash, of its
 * table only: it is made again. When the plain file is damaged too, nothing is removed, and what is
 * left is counted all the same. */
static void damaged_remnant(bool both)
{
    struct fx f;
    char path[LAYOUT_PATH_MAX];
    char sealed[LAYOUT_PATH_MAX];
    struct segment *s;
    struct inventory inv;
    size_t n;
    begin(&f);
    fill(&f, 60);
    (void)pending(&f, 0, path);
    char *plain = fx_slurp(path, &n);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    uint64_t events = fx_status(&f).frontier.events;
    fx_close(&f);
    fx_spill(path, plain, n);
    free(plain);
    assert_int_equal(inventory_take(&f.layout, &inv, &f.e), 0);
    layout_generation_path(&f.layout, &inv.closed[0], sealed);
    inventory_free(&inv);
    int fd = os_open(sealed, O_RDONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(segment_open(fd, &s, &f.e), 0);
    assert_int_equal(os_close(fd), 0);
    spoil(sealed, s->rows[0].at + 20);
    segment_free(s);
    if (both) {
        spoil(path, n / 2);
    }
    forget_index(&f);
    fx_open(&f);
    for (unsigned i = 0; atomic_load(&f.j->indexing); i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
    struct journal_status st = fx_status(&f);
    assert_true(st.frontier.complete);
    assert_int_equal(st.frontier.events, events);
    assert_int_equal(st.poisoned && st.damaged, both);
    assert_int_equal(fx_exists(path), both);
    if (both) {
        fx_expect_read_only(&f, events);
    } else {
        fx_put(&f, 61, 1, 10);
    }
    fx_close(&f);
    end(&f);
}

static void test_damaged_remnant(void **state)
{
    (void)state;
    damaged_remnant(false);
    damaged_remnant(true);
}

/* A generation that cannot be read: no appends in this process, reads go on, a restart heals. */
static void test_unreadable(void **state)
{
    struct fx f;
    struct journal_frontier before;
    begin(&f);
    fill(&f, 60);
    journal_get_frontier(f.j, &before);
    fx_close(&f);
    forget_index(&f);
    gate(true);
    gate_fails = true;
    fx_open(&f);
    gate(false);
    await_indexed(&f);
    for (unsigned i = 0; atomic_load(&f.j->indexing); i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
    struct journal_status st = fx_status(&f);
    assert_true(st.poisoned);
    assert_false(st.damaged);
    assert_false(st.frontier.complete);
    assert_int_equal(append_result(&f, 999), ERR_WRITER_POISONED);
    assert_int_equal(count_events(&f), before.events); /* what failed there is not left out here */
    fx_close(&f);
    gate_fails = false;
    fx_open(&f);
    await_indexed(&f);
    fx_check_opened(&f);
    fx_close(&f);
    end(&f);
    (void)state;
}

/* ---- keys that cannot be written ---- */

static void test_index_full(void **state)
{
    struct fx f;
    unsigned refused = 0;
    begin(&f);
    f.options.index_memory = 16384;
    fx_open(&f);
    pthread_mutex_lock(&gate_lock);
    index_writes_fail = true;
    pthread_mutex_unlock(&gate_lock);
    for (uint32_t n = 1; n < 150 && refused == 0; n++) {
        int r = kit_put(f.j, &f.ledger, (struct kit_spec){n, 1, 9000}, &f.e);
        refused += r == ERR_NOT_READY;
        assert_true(r == 0 || r == ERR_NOT_READY);
    }
    assert_int_equal(refused, 1);
    struct journal_status st = fx_status(&f);
    assert_true(st.index_full);
    assert_false(st.poisoned);
    assert_in_range(st.generations, 4, 8); /* tables of 2 KiB, 8 KiB of them */
    journal_tick(f.j);
    assert_int_equal(append_result(&f, 1), ERR_NOT_READY);
    pthread_mutex_lock(&gate_lock);
    index_writes_fail = false;
    pthread_mutex_unlock(&gate_lock);
    for (unsigned i = 0; fx_status(&f).index_full; i++) {
        assert_true(i < 60000);
        journal_tick(f.j);
        (void)usleep(1000);
    }
    fx_check_opened(&f);
    fx_close(&f);
    fx_open(&f);
    assert_true(fx_status(&f).frontier.complete);
    fx_check_opened(&f);
    fx_close(&f);
    end(&f);
    (void)state;
}

/* Nor do they pile up in memory while a lost index is made: it waits for room, can be closed
 * meanwhile, and goes on when there is some. */
static void test_rebuild_full(void **state)
{
    struct fx f;
    begin(&f);
    fill(&f, 150);
    fx_close(&f);
    forget_index(&f);
    f.options.index_memory = 16384;
    for (unsigned round = 0; round < 2; round++) {
        pthread_mutex_lock(&gate_lock);
        index_writes_fail = true;
        pthread_mutex_unlock(&gate_lock);
        fx_open(&f);
        uint64_t tries = metric_get(METRIC_INDEX_FAILURES);
        for (unsigned i = 0; metric_get(METRIC_INDEX_FAILURES) < tries + 100; i++) {
            assert_true(i < 60000);
            (void)usleep(1000);
        }
        struct journal_status st = fx_status(&f);
        assert_true(st.indexing && st.index_full);
        assert_in_range(st.indexed, 2, 8); /* tables of 2 KiB, 8 KiB of them */
        assert_true(st.index_total > 12);
        if (round == 0) {
            fx_close(&f);
        }
    }
    pthread_mutex_lock(&gate_lock);
    index_writes_fail = false;
    pthread_mutex_unlock(&gate_lock);
    await_indexed(&f);
    assert_true(fx_status(&f).frontier.complete);
    fx_check_opened(&f);
    fx_close(&f);
    end(&f);
    (void)state;
}

/* ---- what summaries are good for ---- */

/* The checksums are there and those of the bytes, after a close and after an open. */
static void check_blocks(struct fx *f)
{
    static uint8_t block[INDEX_SUMMARY_BLOCK_BYTES];
    char path[LAYOUT_PATH_MAX];
    for (uint32_t n = 0; n + 1 < f->j->generation_count; n++) {
        const struct generation *g = f->j->generations[n];
        uint64_t bytes = pending(f, n, path);
        assert_true(g->counted);
        assert_non_null(g->block_crcs);
        assert_int_equal(g->block_count, index_summary_blocks(bytes));
        int fd = os_open(path, O_RDONLY, 0);
        assert_true(fd >= 0);
        for (uint32_t i = 0; i < g->block_count; i++) {
            int64_t got = os_pread_full(fd, block, sizeof block, (uint64_t)i * sizeof block);
            assert_true(got > 0);
            assert_int_equal(g->block_crcs[i], crc32c(0, block, (size_t)got));
        }
        assert_int_equal(os_close(fd), 0);
    }
}

static void test_block_checksums(void **state)
{
    struct fx f;
    begin(&f);
    f.options.generation_bytes = 200 << 10;
    fill(&f, 140);
    index_settle(f.j->index);
    check_blocks(&f);
    fx_close(&f);
    fx_open(&f);
    check_blocks(&f);
    fx_close(&f);
    forget_index(&f);
    fx_open(&f);
    await_indexed(&f);
    check_blocks(&f);
    fx_close(&f);
    end(&f);
    (void)state;
}

/* Events that pass the filter, and how many generations were skipped for it. */
static uint64_t count_filtered(struct fx *f, const struct journal_filter *filter, uint64_t *skipped)
{
    struct journal_reader *r;
    struct line l;
    uint64_t n = 0;
    uint64_t last = 0;
    uint64_t before = metric_get(METRIC_JOURNAL_GENERATIONS_SKIPPED);
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, filter, NULL, &r, &f->e), 0);
    while (journal_reader_next(r, &l, 0, &f->e) == 1) {
        n++;
    }
    journal_reader_close(r);
    *skipped = metric_get(METRIC_JOURNAL_GENERATIONS_SKIPPED) - before;
    /* From the other end the same. */
    assert_int_equal(journal_reader_open(f->j, NULL, NULL, filter, NULL, &r, &f->e), 0);
    assert_int_equal(journal_reader_last(r, 1000000, &f->e), 0);
    while (journal_reader_next(r, &l, 0, &f->e) == 1) {
        last++;
    }
    journal_reader_close(r);
    assert_int_equal(last, n);
    return n;
}

static void test_skipping(void **state)
{
    struct fx f;
    char path[LAYOUT_PATH_MAX + 64];
    uint64_t skipped;
    begin(&f);
    f.options.generation_bytes = 64 << 10;
    fill(&f, 100);
    index_settle(f.j->index);
    uint32_t closed = fx_status(&f).generations - 1;
    struct journal_filter none = {.source = SLICE("\"nobody\"")};
    assert_int_equal(count_filtered(&f, &none, &skipped), 0);
    assert_int_equal(skipped, closed);
    none = (struct journal_filter){.source = SLICE("\"src-1\""), .stream = SLICE("\"st-9\"")};
    assert_int_equal(count_filtered(&f, &none, &skipped), 0);
    assert_int_equal(skipped, closed);
    /* Every record key that there is, is found; one that is not skips nearly everything. */
    struct journal_reader *r;
    struct line l;
    uint64_t events = 0;
    uint64_t skipped_all = 0;
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &r, &f.e), 0);
    while (journal_reader_next(r, &l, 0, &f.e) == 1) {
        char source[64];
        char key[256];
        (void)snprintf(source, sizeof source, "%.*s", (int)l.source.len, l.source.ptr);
        (void)snprintf(key, sizeof key, "%.*s", (int)l.record_key.len, l.record_key.ptr);
        struct journal_filter one = {.source = slice_cstr(source), .record_key = slice_cstr(key)};
        assert_true(count_filtered(&f, &one, &skipped) > 0);
        skipped_all += skipped;
        events++;
    }
    journal_reader_close(r);
    assert_true(events > 100);
    assert_true(skipped_all > events * (closed - 2)); /* most are in one generation each */
    none = (struct journal_filter){.source = SLICE("\"src-1\""), .record_key = SLICE("\"no\"")};
    assert_int_equal(count_filtered(&f, &none, &skipped), 0);
    assert_true(skipped >= closed - 1);
    /* A record key alone, and a kind, are known of lines only. */
    none.source = (struct slice){0};
    assert_int_equal(count_filtered(&f, &none, &skipped), 0);
    assert_int_equal(skipped, 0);
    /* A filter that does not hold denies nothing. */
    none.source = SLICE("\"src-1\"");
    for (uint32_t n = 0; n < closed; n++) {
        (void)snprintf(path, sizeof path, "%s/gen-%08u.sum", f.layout.index, n);
        struct os_stat st;
        assert_int_equal(os_stat(path, &st), 0);
        spoil(path, st.size - 1);
    }
    uint64_t failures = metric_get(METRIC_INDEX_FAILURES);
    assert_int_equal(count_filtered(&f, &none, &skipped), 0);
    assert_int_equal(skipped, 0);
    assert_int_equal(metric_get(METRIC_INDEX_FAILURES), failures + closed);
    /* They are gone, and the next start makes them again. */
    fx_close(&f);
    fx_open(&f);
    await_indexed(&f);
    assert_int_equal(count_filtered(&f, &none, &skipped), 0);
    assert_true(skipped >= closed - 1);
    fx_close(&f);
    end(&f);
    (void)state;
}

/* ---- on demand ---- */

static void note_progress(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *last = ctx;
    assert_true(done > *last);
    assert_true(done <= total);
    *last = done;
}

static void test_reindex(void **state)
{
    struct fx f;
    char path[LAYOUT_PATH_MAX + 64];
    struct os_stat st;
    uint64_t done = 0;
    begin(&f);
    fill(&f, 60);
    uint64_t bytes = fx_status(&f).bytes - journal_tail(f.j)->bytes;
    fx_close(&f);
    (void)snprintf(path, sizeof path, "%s/gen-00000001.sum", f.layout.index);
    spoil(path, 20);
    f.options.threads = false;
    f.options.reindex = true;
    f.options.progress = note_progress;
    f.options.progress_ctx = &done;
    fx_open(&f);
    assert_int_equal(done, bytes);
    fx_close(&f);
    f.options = (struct journal_options){.generation_bytes = FX_GENERATION, .threads = true};
    assert_int_equal(os_stat(path, &st), 0);
    fx_open(&f);
    assert_true(fx_status(&f).frontier.complete);
    fx_check_opened(&f);
    fx_close(&f);
    end(&f);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_beside_it),  cmocka_unit_test(test_something_missing),
        cmocka_unit_test(test_closed_meanwhile), cmocka_unit_test(test_torn_tail),
        cmocka_unit_test(test_damage),           cmocka_unit_test(test_damaged_tail),
        cmocka_unit_test(test_unreadable),       cmocka_unit_test(test_index_full),
        cmocka_unit_test(test_rebuild_full),     cmocka_unit_test(test_damaged_remnant),
        cmocka_unit_test(test_block_checksums),  cmocka_unit_test(test_skipping),
        cmocka_unit_test(test_reindex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
