/* test_cut: where a copy of a journal ends, beside a writer that appends, rotates and seals between
 * any two looks of it, and without one. */
#include "journal/cut.h"

#include "journal/chain.h"
#include "journal/scan.h"
#include "tests/unit/journal/journal_fixture.h"

#define BIG 12000 /* a few of these fill a generation */

/* What the server says, and what it does before it says it. */
struct server {
    struct fx *f;
    void (*before)(struct fx *f);
    int code;
};

static int frontier(void *ctx, struct uuid *last_id, bool *empty, struct err *e)
{
    struct server *s = ctx;
    struct journal_frontier fr;
    if (s->before != NULL) {
        s->before(s->f);
    }
    if (s->code != 0) {
        return err_set(e, s->code, "no answer");
    }
    journal_get_frontier(s->f->j, &fr);
    *empty = fr.empty;
    *last_id = fr.last_id;
    return 0;
}

/* Proves all that the cut has: order, hashes, chain; the events. */
static uint64_t walk(struct journal_cut *c)
{
    struct uuid last = {{0}};
    uint8_t head[SHA256_LEN];
    uint64_t events = 0;
    bool any = false;
    struct err e = {0};
    memcpy(head, chain_genesis, sizeof head);
    for (uint32_t i = 0; i <= cut_count(c); i++) {
        bool tail = i == cut_count(c);
        char path[LAYOUT_PATH_MAX];
        char full[LAYOUT_PATH_MAX * 2];
        struct os_stat st;
        struct scan s;
        struct scan_batch b;
        int fd = c->tail_fd;
        if (!tail) {
            assert_int_equal(cut_path(c, i, path, &e), 0);
            (void)snprintf(full, sizeof full, "%s/%s", c->layout.root, path);
            fd = os_open(full, O_RDONLY, 0);
            assert_true(fd >= 0);
        }
        assert_int_equal(os_fstat(fd, &st), 0);
        uint64_t limit = tail ? c->tail_bytes : st.size;
        scan_start(&s, fd, limit, any ? &last : NULL, head);
        while (scan_next(&s, &b, NULL, NULL, &e) == 1) {
            events += b.events;
            last = b.last_id;
            any = true;
        }
        assert_int_equal(s.offset, limit);
        memcpy(head, s.head, sizeof head);
        scan_stop(&s);
        if (!tail) {
            assert_int_equal(os_close(fd), 0);
        }
    }
    assert_true(c->empty == !any);
    assert_true(!any || uuid_cmp(&last, &c->last_id) == 0);
    return events;
}

static uint64_t events_of(struct fx *f)
{
    struct journal_frontier fr;
    journal_get_frontier(f->j, &fr);
    return fr.events;
}

static void test_an_empty_one(void **state)
{
    struct fx f;
    struct journal_cut c;
    (void)state;
    fx_start(&f, false);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), ERR_NOT_FOUND);
    fx_open(&f);
    struct server s = {.f = &f};
    assert_int_equal(cut_open(f.dir, frontier, &s, &c, &f.e), 0);
    assert_int_equal(walk(&c), 0);
    cut_close(&c);
    s.code = ERR_CONNECT;
    assert_int_equal(cut_open(f.dir, frontier, &s, &c, &f.e), ERR_CONNECT);
    fx_close(&f);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    assert_int_equal(walk(&c), 0);
    cut_close(&c);
    fx_end(&f);
}

static uint32_t number;

static void put_one(struct fx *f)
{
    fx_put(f, ++number, 2, 500);
}

/* Behind the inventory, before the answer: until a generation is closed. */
static void rotate(struct fx *f)
{
    struct journal_status before;
    struct journal_status now;
    journal_get_status(f->j, &before);
    do {
        fx_put(f, ++number, 1, BIG);
        journal_get_status(f->j, &now);
    } while (now.generations == before.generations);
    fx_put(f, ++number, 1, BIG);
}

static void stage_one(struct fx *f)
{
    fx_stage(f, ++number, 3, 700);
}

static void start(struct fx *f, uint32_t batches)
{
    number = 0;
    fx_start(f, false);
    fx_open(f);
    for (uint32_t i = 0; i < batches; i++) {
        fx_put(f, ++number, 2, BIG / 2);
    }
}

static void test_beside_a_writer(void **state)
{
    struct fx f;
    struct journal_cut c;
    (void)state;
    start(&f, 17);
    unsigned rotated = 0;
    struct server s = {.f = &f, .before = put_one};
    for (int i = 0; i < 30; i++) {
        uint64_t before = events_of(&f);
        assert_int_equal(cut_open(f.dir, frontier, &s, &c, &f.e), 0);
        uint64_t got = walk(&c);
        /* What was committed before the answer is in the held tail, but where it was closed. */
        assert_true(got == before || got == before + 2);
        assert_true(got == events_of(&f) || ++rotated < 5);
        cut_close(&c);
    }
    fx_close(&f);
    fx_end(&f);
}

static void test_a_rotation_between_inventory_and_answer(void **state)
{
    struct fx f;
    struct journal_cut c;
    (void)state;
    start(&f, 9);
    struct server s = {.f = &f, .before = rotate};
    for (int i = 0; i < 5; i++) {
        uint64_t before = events_of(&f);
        assert_int_equal(cut_open(f.dir, frontier, &s, &c, &f.e), 0);
        uint64_t got = walk(&c);
        assert_true(got >= before);       /* all that was there before */
        assert_true(got < events_of(&f)); /* and nothing of the next file */
        cut_close(&c);
    }
    fx_close(&f);
    fx_end(&f);
}

/* Of a group that is being written some bytes may be seen. */
static void test_a_group_in_flight_is_left_out(void **state)
{
    struct fx f;
    struct journal_cut c;
    (void)state;
    start(&f, 3);
    stage_one(&f);
    uint64_t before = events_of(&f);
    struct server s = {.f = &f};
    assert_int_equal(cut_open(f.dir, frontier, &s, &c, &f.e), 0);
    uint64_t end = c.tail_bytes;
    cut_close(&c);
    int fd = os_open(f.layout.tail, O_RDWR, 0);
    assert_int_equal(os_pwrite_all(fd, "{\"batch_digest\":\"12", 19, end, NULL), 0);
    assert_int_equal(cut_open(f.dir, frontier, &s, &c, &f.e), 0);
    assert_int_equal(walk(&c), before);
    cut_close(&c);
    /* Before the frontier it is damage. */
    assert_int_equal(os_pwrite_all(fd, "#", 1, end / 2, NULL), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(cut_open(f.dir, frontier, &s, &c, &f.e), ERR_CORRUPT);
    assert_non_null(strstr(f.e.text, "tail.ndjson is damaged"));
    fx_end(&f);
}

static void test_without_a_server(void **state)
{
    struct fx f;
    struct journal_cut c;
    (void)state;
    start(&f, 14);
    uint64_t events = events_of(&f);
    fx_close(&f);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    assert_int_equal(walk(&c), events);
    cut_close(&c);
    /* As a kill leaves it: padding, and a torn group in it. */
    struct os_stat st;
    static const char zeros[3000];
    int fd = os_open(f.layout.tail, O_RDWR, 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(os_pwrite_all(fd, zeros, sizeof zeros, st.size, NULL), 0);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    assert_int_equal(walk(&c), events);
    cut_close(&c);
    assert_int_equal(os_pwrite_all(fd, "torn", 4, st.size + 100, NULL), 0);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    assert_int_equal(walk(&c), events);
    cut_close(&c);
    /* Damage: bytes of a group that was closed over. */
    assert_int_equal(os_pwrite_all(fd, "#", 1, st.size / 3, NULL), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), ERR_CORRUPT);
    assert_non_null(strstr(f.e.text, "tail.ndjson"));
    /* A rotation that was cut between its renames has no tail. */
    assert_int_equal(os_unlink(f.layout.tail), 0);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    assert_int_equal(c.tail_fd, -1);
    assert_int_equal(c.tail_bytes, 0);
    cut_close(&c);
    fx_end(&f);
}

/* ---- sealing ---- */

/* The n-th plain one becomes a segment: here with its plain bytes, since nobody reads it. */
static void seal(struct fx *f, uint32_t n, char path[LAYOUT_PATH_MAX])
{
    struct layout_generation *rows = NULL;
    uint32_t count = 0;
    char from[LAYOUT_PATH_MAX];
    char to[LAYOUT_PATH_MAX * 2];
    char record[1024];
    char first[UUID_TEXT_LEN];
    char last[UUID_TEXT_LEN];
    struct os_stat st;
    assert_int_equal(layout_list_pending(&f->layout, &rows, &count, &f->e), 0);
    assert_true(n < count);
    uuid_text(first, &rows[n].first_id);
    uuid_text(last, &rows[n].last_id);
    layout_pending_path(&f->layout, &rows[n].first_id, &rows[n].last_id, from);
    (void)snprintf(path, LAYOUT_PATH_MAX, "segments/%.36s_%.36s_00.ndjson.zst", first, last);
    (void)snprintf(to, sizeof to, "%s/%s", f->layout.journal, path);
    assert_int_equal(os_rename(from, to), 0);
    int len = snprintf(record, sizeof record,
                       "{\"first_event_id\":\"%.36s\",\"last_event_id\":\"%.36s\",\"path\":\"%s\","
                       "\"type\":\"segment\"}\n",
                       first, last, path);
    int fd = os_open(f->layout.manifest, O_RDWR, 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(os_pwrite_all(fd, record, (size_t)len, st.size, NULL), 0);
    assert_int_equal(os_close(fd), 0);
    free(rows);
}

static bool names(struct journal_cut *c, uint32_t i, const char *part)
{
    char path[LAYOUT_PATH_MAX];
    struct err e = {0};
    assert_int_equal(cut_path(c, i, path, &e), 0);
    return strstr(path, part) != NULL;
}

static void test_segments_are_taken_with_their_records(void **state)
{
    struct fx f;
    struct journal_cut c;
    char one[LAYOUT_PATH_MAX];
    char two[LAYOUT_PATH_MAX];
    (void)state;
    start(&f, 25);
    fx_close(&f);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    uint32_t count = cut_count(&c);
    uint64_t events = walk(&c);
    uint64_t bare = c.manifest_bytes;
    cut_close(&c);
    assert_true(count >= 4);
    seal(&f, 0, one);
    assert_int_equal(
        cut_open(f.dir, frontier, &(struct server){.f = &f, .code = ERR_CONNECT}, &c, &f.e),
        ERR_CONNECT);
    /* The tail was closed cleanly, so that nothing asks verify, which knows no segments here. */
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    assert_int_equal(cut_count(&c), count);
    /* From the newest on; the second one is sealed while the third is being copied. */
    for (uint32_t i = count; i > 2; i--) {
        assert_true(names(&c, i - 1, "journal/pending/"));
    }
    assert_int_equal(c.manifest_bytes, bare);
    assert_true(names(&c, 1, "journal/pending/"));
    seal(&f, 0, two); /* the first of the plain ones: the second in all */
    assert_int_equal(cut_again(&c, 1, &f.e), 0);
    assert_true(names(&c, 1, two));
    assert_int_equal(c.manifest_bytes, c.manifest.len);
    assert_true(names(&c, 0, one));
    assert_int_equal(walk(&c), events);
    /* What is sealed and gone all the same is lost. */
    assert_int_equal(cut_again(&c, 1, &f.e), ERR_CORRUPT);
    assert_int_equal(cut_again(&c, count - 1, &f.e), ERR_CORRUPT);
    cut_close(&c);
    fx_end(&f);
}

static void test_a_manifest_ends_at_the_newest_segment_that_is_copied(void **state)
{
    struct fx f;
    struct journal_cut c;
    char one[LAYOUT_PATH_MAX];
    char two[LAYOUT_PATH_MAX];
    (void)state;
    start(&f, 25);
    fx_close(&f);
    seal(&f, 0, one);
    assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), 0);
    uint64_t first = c.manifest.len;
    assert_true(names(&c, 1, "journal/pending/")); /* copied while it was plain */
    seal(&f, 0, two);
    assert_true(names(&c, 0, one));
    assert_int_equal(c.manifest_bytes, first); /* no record of the one that was copied plain */
    cut_close(&c);
    fx_end(&f);
}

static void test_malformed_records_are_refused(void **state)
{
    static const char *const bad[] = {
        "{\"type\":\"segment\"}\n",
        "{\"first_event_id\":\"x\",\"last_event_id\":\"y\",\"path\":\"segments/a\",\"type\":"
        "\"segment\"}\n",
        "{\"first_event_id\":\"01a22be8-6c13-7000-8000-000067b20000\",\"last_event_id\":"
        "\"01a22be8-6c13-7000-8000-000067b20000\",\"path\":\"segments/../x\",\"type\":\"segment\"}"
        "\n",
        "{\"first_event_id\":\"01a22be8-6c13-7000-8000-000067b20000\",\"last_event_id\":"
        "\"01a22be8-6c13-7000-8000-000067b20000\",\"path\":\"/etc/x\",\"type\":\"segment\"}\n"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fx f;
        struct journal_cut c;
        struct os_stat st;
        start(&f, 1);
        fx_close(&f);
        int fd = os_open(f.layout.manifest, O_RDWR, 0);
        assert_int_equal(os_fstat(fd, &st), 0);
        assert_int_equal(os_pwrite_all(fd, bad[i], strlen(bad[i]), st.size, NULL), 0);
        assert_int_equal(os_close(fd), 0);
        assert_int_equal(cut_open(f.dir, NULL, NULL, &c, &f.e), ERR_CORRUPT);
        assert_non_null(strstr(f.e.text, "manifest.jsonl"));
        fx_end(&f);
    }
}

/* Each call to the disk fails once: an error, or the right cut. */
static void test_every_failing_call(void **state)
{
    struct fx f;
    struct journal_cut c;
    bool fired = true;
    (void)state;
    start(&f, 14);
    uint64_t events = events_of(&f);
    struct server s = {.f = &f};
    for (uint64_t at = 1; fired; at++) {
        const struct fault fault = {.kind = FAULT_ERROR, .error = EIO, .at = at};
        model_fault_arm(f.m, &fault);
        int r = cut_open(f.dir, frontier, &s, &c, &f.e);
        fired = model_fault_fired(f.m) > 0;
        model_fault_arm(f.m, NULL);
        assert_true(r == 0 || r == ERR_IO);
        if (r == 0) {
            assert_int_equal(walk(&c), events);
            cut_close(&c);
        }
    }
    fx_close(&f);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_one),
        cmocka_unit_test(test_beside_a_writer),
        cmocka_unit_test(test_a_rotation_between_inventory_and_answer),
        cmocka_unit_test(test_a_group_in_flight_is_left_out),
        cmocka_unit_test(test_without_a_server),
        cmocka_unit_test(test_segments_are_taken_with_their_records),
        cmocka_unit_test(test_a_manifest_ends_at_the_newest_segment_that_is_copied),
        cmocka_unit_test(test_malformed_records_are_refused),
        cmocka_unit_test(test_every_failing_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
