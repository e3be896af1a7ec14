/* Random lives of a queue against a model that is nothing but arrays. SEED chooses the life. */
#include "tests/unit/store/store_kit.h"

#define UUIDS    600 /* few, so that repeats are common */
#define PROJECTS 2

struct model_event {
    int64_t id; /* 0: never accepted */
    bool queued, quarantined;
    uint32_t length;
};

struct model {
    struct model_event event[PROJECTS][UUIDS];
    uint64_t pending[PROJECTS], bytes[PROJECTS], rejected[PROJECTS];
    int64_t last_id;
};

struct life {
    struct kit k;
    struct model m;
    uint64_t rnd;
    char text[PROJECTS][UUIDS][48];
};

static uint64_t pick(struct life *l, uint64_t n)
{
    return kit_random(&l->rnd) % n;
}

/* What the store would answer to a job's events, given the model; true: the job is kept. */
static bool expect(struct life *l, struct model *m, const struct kit_job *j)
{
    for (size_t i = 0; i < j->count; i++) {
        size_t p = (size_t)j->ev[i].project - 1;
        uint64_t u = (uint64_t)j->ev[i].received_ms - 1; /* the number of its uuid */
        struct model_event *e = &m->event[p][u];
        if (j->fail_after == (int)i) {
            return false;
        }
        if (e->id != 0) {
            assert_true(j->receipt[i].repeat);
            assert_int_equal(j->receipt[i].event_id, e->id);
            continue;
        }
        uint64_t length = j->ev[i].text.len;
        if (m->pending[p] + 1 > l->k.options.project_events_max ||
            m->bytes[p] + length > l->k.options.project_bytes_max ||
            m->pending[0] + m->pending[1] + 1 > l->k.options.queue_events_max ||
            m->bytes[0] + m->bytes[1] + length > l->k.options.queue_bytes_max) {
            assert_int_equal(j->code, ERR_QUEUE_FULL);
            return false;
        }
        assert_false(j->receipt[i].repeat);
        assert_true(j->receipt[i].event_id > m->last_id);
        *e = (struct model_event){
            .id = j->receipt[i].event_id, .queued = true, .length = (uint32_t)length};
        m->last_id = e->id;
        m->pending[p]++;
        m->bytes[p] += length;
    }
    return j->fail_after != (int)j->count;
}

static void put_some(struct life *l)
{
    enum { JOBS = 6 };
    static struct kit_job jobs[JOBS];
    static char text[JOBS][KIT_EVENTS_MAX][64];
    size_t count = 1 + pick(l, JOBS);
    for (size_t n = 0; n < count; n++) {
        struct kit_job *j = &jobs[n];
        kit_job_init(j, pick(l, 8) == 0 ? STORE_LARGE : STORE_SMALL);
        j->count = 1 + pick(l, 8);
        for (size_t i = 0; i < j->count; i++) {
            uint64_t u = pick(l, UUIDS);
            snprintf(text[n][i], sizeof text[n][i], "%.*s", (int)pick(l, 40),
                     "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz");
            j->ev[i] = kit_event(1 + (int64_t)pick(l, PROJECTS), u, text[n][i]);
            j->ev[i].received_ms = (int64_t)u + 1;
        }
        j->fail_after = pick(l, 5) == 0 ? (int)pick(l, j->count + 1) : -1;
        store_submit(l->k.s, &j->job);
    }
    kit_turns(&l->k);
    /* In the order in which they ran. */
    for (unsigned done = 0; done < count; done++) {
        struct kit_job *j = NULL;
        for (size_t n = 0; n < count; n++) {
            assert_int_equal(jobs[n].told, 1);
            if (jobs[n].order == kit_order - (unsigned)count + 1 + done) {
                j = &jobs[n];
            }
        }
        assert_non_null(j);
        static struct model kept;
        kept = l->m;
        if (expect(l, &kept, j)) {
            assert_int_equal(j->code, 0);
            for (size_t i = 0; i < j->count; i++) {
                if (!j->receipt[i].repeat) {
                    memcpy(l->text[j->ev[i].project - 1][j->ev[i].received_ms - 1],
                           j->ev[i].text.ptr, j->ev[i].text.len);
                }
            }
            l->m = kept;
        } else {
            assert_true(j->code == ERR_FORBIDDEN || j->code == ERR_QUEUE_FULL);
        }
    }
}

static struct model_event *by_id(struct model *m, int64_t id, size_t *p, size_t *u)
{
    for (*p = 0; *p < PROJECTS; ++*p) {
        for (*u = 0; *u < UUIDS; ++*u) {
            if (m->event[*p][*u].id == id) {
                return &m->event[*p][*u];
            }
        }
    }
    return NULL;
}

static void deliver_some(struct life *l)
{
    int64_t ids[40];
    size_t count = 1 + pick(l, 40);
    for (size_t i = 0; i < count; i++) {
        size_t p, u;
        ids[i] = 1 + (int64_t)pick(l, (uint64_t)l->m.last_id + 5);
        struct model_event *e = by_id(&l->m, ids[i], &p, &u);
        if (e != NULL && e->queued) {
            e->queued = e->quarantined = false;
            l->m.pending[p]--;
            l->m.bytes[p] -= e->length;
        }
    }
    assert_int_equal(kit_deliver(&l->k, ids, count), 0);
}

static void quarantine_some(struct life *l)
{
    for (int i = 0; i < 5; i++) {
        size_t p = pick(l, PROJECTS), u = pick(l, UUIDS);
        struct model_event *e = &l->m.event[p][u];
        char sql[128];
        if (!e->queued) {
            continue;
        }
        snprintf(sql, sizeof sql,
                 e->quarantined ? "DELETE FROM delivery_quarantine WHERE event_id = %lld"
                                : "INSERT INTO delivery_quarantine VALUES(%lld, %d, 469, 5)",
                 (long long)e->id, (int)p + 1);
        e->quarantined = !e->quarantined;
        assert_int_equal(kit_sql(&l->k, sql), 0);
    }
}

static int reject_job(struct kit_job *j, struct store *s, struct err *e)
{
    return queue_put_rejected(s, j->arg, e);
}

static void reject_one(struct life *l)
{
    struct queue_rejected r = {.project = 1 + (int64_t)pick(l, PROJECTS), .text = SLICE("bad")};
    assert_int_equal(kit_do(&l->k, reject_job, &r), 0);
    l->m.rejected[r.project - 1]++;
}

/* All that is ready, and nothing else, with its first text. */
static void check_ready(struct life *l)
{
    struct queue_selection sel = {.events_max = 5000, .bytes_soft = 1 << 24};
    struct queue_rows rows;
    uint64_t ready = 0;
    assert_int_equal(queue_select(l->k.reader, &sel, &rows, &l->k.e), 0);
    for (size_t i = 0; i < rows.count; i++) {
        size_t p, u;
        struct model_event *e = by_id(&l->m, rows.row[i].id, &p, &u);
        struct uuid uuid = kit_uuid(u);
        assert_non_null(e);
        assert_true(e->queued);
        assert_false(e->quarantined);
        assert_int_equal(rows.row[i].ev.project, p + 1);
        assert_int_equal(uuid_cmp(&rows.row[i].ev.uuid, &uuid), 0);
        assert_int_equal(rows.row[i].ev.text.len, e->length);
        assert_memory_equal(rows.row[i].ev.text.ptr, l->text[p][u], e->length);
    }
    for (size_t p = 0; p < PROJECTS; p++) {
        for (size_t u = 0; u < UUIDS; u++) {
            ready += l->m.event[p][u].queued && !l->m.event[p][u].quarantined;
        }
    }
    assert_int_equal(rows.count, ready);
    queue_rows_free(&rows);
}

static void check_status(struct life *l)
{
    for (size_t p = 0; p < PROJECTS; p++) {
        struct queue_project_status st;
        uint64_t quarantined = 0;
        for (size_t u = 0; u < UUIDS; u++) {
            quarantined += l->m.event[p][u].quarantined;
        }
        assert_int_equal(queue_project_status(l->k.reader, (int64_t)p + 1, &st, &l->k.e), 0);
        assert_int_equal(st.pending, l->m.pending[p]);
        assert_int_equal(st.pending_bytes, l->m.bytes[p]);
        assert_int_equal(st.quarantined, quarantined);
        assert_int_equal(st.rejected, l->m.rejected[p]);
    }
}

static void live(struct life *l, unsigned steps)
{
    for (unsigned step = 0; step < steps; step++) {
        uint64_t what = pick(l, 100);
        if (what < 60) {
            put_some(l);
        } else if (what < 80) {
            deliver_some(l);
        } else if (what < 88) {
            quarantine_some(l);
        } else if (what < 92) {
            reject_one(l);
        } else if (what < 96) {
            assert_int_equal(store_checkpoint(l->k.s, &l->k.e), 0);
            store_tick(l->k.s);
        } else {
            kit_reopen(&l->k);
            l->k.s->receipts.run_min = 1 + (uint32_t)pick(l, 60);
        }
        if (step % 10 == 0) {
            check_ready(l);
            check_status(l);
            kit_check(&l->k);
        }
    }
}

static void test_lives(void **state)
{
    uint64_t seed = kit_seed();
    struct life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    for (int i = 0; i < 4; i++) {
        memset(l, 0, sizeof *l);
        l->rnd = seed + (uint64_t)i;
        kit_dir(&l->k);
        l->k.options.queue_events_max = 150 + pick(l, 1000);
        l->k.options.project_events_max = 100 + pick(l, 500);
        l->k.options.queue_bytes_max = 3000 + pick(l, 30000);
        l->k.options.project_bytes_max = 2000 + pick(l, 10000);
        l->k.options.threads = i % 2 == 1;
        kit_open(&l->k);
        assert_int_equal(kit_do(&l->k, kit_make_projects, NULL), 0);
        l->k.s->receipts.run_min = 20;
        live(l, 300);
        kit_end(&l->k);
    }
    free(l);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
