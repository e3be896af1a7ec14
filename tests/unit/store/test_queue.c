/* Putting, repeating, budgets, rejecting, delivering. */
#include "tests/unit/store/store_kit.h"

static void test_life(void **state)
{
    struct kit k;
    struct queue_receipt a, b, again;
    struct queue_project_status st;
    kit_start(&k);
    assert_int_equal(kit_put(&k, k.alpha, 1, "{\"a\":1}", &a), 0);
    assert_int_equal(kit_put(&k, k.beta, 1, "{\"b\":2}", &b), 0);
    assert_false(a.repeat);
    assert_false(b.repeat); /* identity is project and uuid */
    assert_true(b.event_id > a.event_id);
    assert_int_equal(kit_put(&k, k.alpha, 1, "{\"a\":\"other bytes\"}", &again), 0);
    assert_true(again.repeat);
    assert_int_equal(again.event_id, a.event_id);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events WHERE text = x'7b2261223a317d'"),
                     1);
    kit_check(&k);
    assert_int_equal(queue_project_status(k.reader, k.alpha, &st, &k.e), 0);
    assert_int_equal(st.pending, 1);
    assert_int_equal(st.pending_bytes, 7);
    assert_int_equal(st.oldest_pending_received_ms, KIT_NOW);
    assert_int_equal(st.last_success_ms, 0);
    kit_reopen(&k);
    assert_int_equal(kit_put(&k, k.alpha, 1, "x", &again), 0);
    assert_true(again.repeat);
    assert_int_equal(kit_deliver(&k, &a.event_id, 1), 0);
    assert_int_equal(kit_deliver(&k, &a.event_id, 1), 0); /* passed over */
    assert_int_equal(kit_put(&k, k.alpha, 1, "y", &again), 0);
    assert_true(again.repeat);
    assert_int_equal(again.event_id, a.event_id);
    assert_int_equal(queue_project_status(k.reader, k.alpha, &st, &k.e), 0);
    assert_int_equal(st.pending, 0);
    assert_int_equal(st.oldest_pending_received_ms, 0);
    assert_int_equal(st.last_success_ms, KIT_NOW + 5);
    assert_int_equal(queue_project_status(k.reader, k.beta, &st, &k.e), 0);
    assert_int_equal(st.last_success_ms, 0);
    assert_int_equal(queue_project_status(k.reader, 99, &st, &k.e), ERR_NOT_FOUND);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* Delivered ids that follow one another are removed together, whatever projects they are of; gaps
 * stay, and those that are gone already are passed over. */
static void test_delivered_runs(void **state)
{
    enum { EVENTS = 60 };
    struct kit k;
    struct kit_job j;
    struct queue_project_status st;
    int64_t ids[EVENTS];
    size_t n = 0;
    kit_start(&k);
    kit_job_init(&j, STORE_SMALL);
    for (size_t i = 0; i < EVENTS; i++) {
        j.ev[j.count++] = kit_event(i % 3 == 0 ? k.alpha : k.beta, i, &"0123456789"[i % 10]);
    }
    store_submit(k.s, &j.job);
    kit_turns(&k);
    assert_int_equal(j.code, 0);
    assert_int_equal(kit_deliver(&k, &j.receipt[5].event_id, 1), 0);
    for (size_t i = 0; i < EVENTS; i++) {
        if (i != 20 && i != 33) {
            ids[n++] = j.receipt[i].event_id;
        }
    }
    assert_int_equal(kit_deliver(&k, ids, n), 0);
    kit_check(&k);
    assert_int_equal(queue_project_status(k.reader, k.alpha, &st, &k.e), 0);
    assert_int_equal(st.pending, 1);
    assert_int_equal(st.pending_bytes, 7); /* of the 33rd */
    assert_int_equal(st.last_success_ms, KIT_NOW + 5);
    assert_int_equal(queue_project_status(k.reader, k.beta, &st, &k.e), 0);
    assert_int_equal(st.pending, 1);
    assert_int_equal(st.pending_bytes, 10);
    assert_int_equal(st.last_success_ms, KIT_NOW + 5);
    assert_int_equal(kit_number(&k, "SELECT sum(id) FROM delivery_ready"),
                     j.receipt[20].event_id + j.receipt[33].event_id);
    kit_end(&k);
    (void)state;
}

static int deliver_uncounted(struct kit_job *j, struct store *s, struct err *e)
{
    struct kit_denial d = {.action = SQLITE_READ, .table = "project_counters", .at = 1};
    kit_deny(s, &d);
    int r = kit_deliver_job(j, s, e);
    kit_deny(s, NULL);
    assert_true(d.seen > 0);
    return r;
}

/* Nothing is removed that could not be counted. */
static void test_a_delivery_that_cannot_be_counted(void **state)
{
    struct kit k;
    struct queue_receipt a;
    kit_start(&k);
    assert_int_equal(kit_put(&k, k.alpha, 1, "{}", &a), 0);
    struct kit_delivery d = {&a.event_id, 1, KIT_NOW + 5};
    assert_int_equal(kit_do(&k, deliver_uncounted, &d), ERR_INTERNAL_ERROR);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 1);
    kit_check(&k);
    assert_int_equal(kit_deliver(&k, &a.event_id, 1), 0);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* Ids are never given twice, not even those of events that are gone. */
static void test_ids_are_not_used_again(void **state)
{
    struct kit k;
    struct queue_receipt a, b;
    kit_start(&k);
    assert_int_equal(kit_put(&k, k.alpha, 1, "x", &a), 0);
    assert_int_equal(kit_deliver(&k, &a.event_id, 1), 0);
    kit_reopen(&k);
    assert_int_equal(kit_put(&k, k.alpha, 2, "x", &b), 0);
    assert_true(b.event_id > a.event_id);
    kit_end(&k);
    (void)state;
}

/* Every field comes back as it went in, to the byte. */
static void test_fields(void **state)
{
    static const char text[] = "{\"s\":\"\\ud800\",\"n\":\"\0\",\"d\":1,\"d\":2}\xff\xfe";
    struct kit k;
    struct kit_job j;
    struct queue_rows rows;
    struct queue_selection sel = {.events_max = 10, .bytes_soft = 1000};
    kit_start(&k);
    kit_job_init(&j, STORE_SMALL);
    j.ev[0] = (struct queue_event){.project = k.beta,
                                   .uuid = kit_uuid(9),
                                   .received_ms = KIT_NOW + 1,
                                   .timestamp_us = -5,
                                   .has_timestamp_sent = true,
                                   .timestamp_sent_us = -7,
                                   .has_sent_at = true,
                                   .sent_at_ms = 0,
                                   .time_note = SLICE("note"),
                                   .type = SLICE("track"),
                                   .event = SLICE("e\0v"),
                                   .distinct_id = SLICE("d"),
                                   .anonymous_id = SLICE("a"),
                                   .session_id = SLICE("s"),
                                   .source = SLICE("src"),
                                   .message_id = SLICE("m"),
                                   .library = SLICE("l"),
                                   .library_version = SLICE("v"),
                                   .envelope = SLICE("{\"x\":1}"),
                                   .text = slice_of(text, sizeof text - 1)};
    j.ev[1] = kit_event(k.beta, 10, "");
    j.count = 2;
    store_submit(k.s, &j.job);
    kit_turns(&k);
    assert_int_equal(j.code, 0);
    assert_int_equal(queue_select(k.reader, &sel, &rows, &k.e), 0);
    assert_int_equal(rows.count, 2);
    const struct queue_event *in = &j.ev[0], *out = &rows.row[0].ev;
    assert_int_equal(rows.row[0].id, j.receipt[0].event_id);
    assert_true(slice_eq(rows.row[0].project, SLICE("beta")));
    assert_int_equal(out->project, k.beta);
    assert_int_equal(uuid_cmp(&out->uuid, &in->uuid), 0);
    assert_int_equal(out->received_ms, in->received_ms);
    assert_int_equal(out->timestamp_us, in->timestamp_us);
    assert_true(out->has_timestamp_sent);
    assert_int_equal(out->timestamp_sent_us, -7);
    assert_true(out->has_sent_at);
    assert_int_equal(out->sent_at_ms, 0);
    const struct slice was[] = {in->time_note,       in->type,         in->event,
                                in->distinct_id,     in->anonymous_id, in->session_id,
                                in->source,          in->message_id,   in->library,
                                in->library_version, in->envelope,     in->text};
    const struct slice is[] = {out->time_note,       out->type,         out->event,
                               out->distinct_id,     out->anonymous_id, out->session_id,
                               out->source,          out->message_id,   out->library,
                               out->library_version, out->envelope,     out->text};
    for (size_t i = 0; i < sizeof was / sizeof *was; i++) {
        assert_true(slice_eq(was[i], is[i]));
    }
    assert_false(rows.row[1].ev.has_timestamp_sent);
    assert_false(rows.row[1].ev.has_sent_at);
    assert_int_equal(rows.row[1].ev.text.len, 0);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events WHERE sent_at_ms IS NULL"), 1);
    queue_rows_free(&rows);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* A repeat within one request, within one turn, and of a request that was undone. */
static void test_repeats_in_flight(void **state)
{
    struct kit k;
    struct kit_job first, second, third;
    kit_start(&k);
    kit_job_init(&first, STORE_SMALL);
    first.ev[0] = kit_event(k.alpha, 1, "first");
    first.ev[1] = kit_event(k.alpha, 1, "second");
    first.count = 2;
    kit_job_init(&second, STORE_SMALL);
    second.ev[0] = kit_event(k.alpha, 1, "third");
    second.ev[1] = kit_event(k.alpha, 2, "undone");
    second.count = 2;
    second.fail_after = 2;
    kit_job_init(&third, STORE_SMALL);
    third.ev[0] = kit_event(k.alpha, 2, "kept");
    third.ev[1] = kit_event(k.alpha, 1, "fourth");
    third.count = 2;
    store_submit(k.s, &first.job);
    store_submit(k.s, &second.job);
    store_submit(k.s, &third.job);
    assert_false(kit_turn(&k));
    assert_int_equal(first.code, 0);
    assert_int_equal(second.code, ERR_FORBIDDEN);
    assert_string_equal(second.err.text, "failed on purpose");
    assert_int_equal(third.code, 0);
    assert_false(first.receipt[0].repeat);
    assert_true(first.receipt[1].repeat);
    assert_int_equal(first.receipt[1].event_id, first.receipt[0].event_id);
    assert_true(second.receipt[0].repeat);
    assert_false(second.receipt[1].repeat);
    assert_false(third.receipt[0].repeat); /* what was undone is unknown */
    assert_true(third.receipt[1].repeat);
    assert_int_equal(third.receipt[1].event_id, first.receipt[0].event_id);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 2);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events WHERE text IN"
                                    " (CAST('first' AS BLOB), CAST('kept' AS BLOB))"),
                     2);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

static void test_budget_of_events(void **state)
{
    struct kit k;
    struct queue_receipt a, b, r;
    kit_dir(&k);
    k.options.queue_events_max = 3;
    k.options.project_events_max = 2;
    kit_open(&k);
    assert_int_equal(kit_do(&k, kit_make_projects, NULL), 0);
    k.alpha = 1;
    k.beta = 2;
    assert_int_equal(kit_put(&k, k.alpha, 1, "x", &a), 0);
    assert_int_equal(kit_put(&k, k.alpha, 2, "x", &b), 0);
    assert_int_equal(kit_put(&k, k.alpha, 3, "x", &r), ERR_QUEUE_FULL);
    assert_non_null(strstr(k.e.text, "project"));
    assert_int_equal(kit_put(&k, k.alpha, 2, "x", &r), 0); /* a repeat needs no room */
    assert_true(r.repeat);
    assert_int_equal(kit_put(&k, k.beta, 1, "x", &r), 0);
    assert_int_equal(kit_put(&k, k.beta, 2, "x", &r), ERR_QUEUE_FULL);
    assert_null(strstr(k.e.text, "project"));
    kit_check(&k);
    /* Quarantine frees nothing; delivery does; and both survive a restart. */
    assert_int_equal(kit_sql(&k, "INSERT INTO delivery_quarantine SELECT id, project, 321, 5 FROM"
                                 " events WHERE project = 1"),
                     0);
    kit_reopen(&k);
    assert_int_equal(kit_put(&k, k.alpha, 3, "x", &r), ERR_QUEUE_FULL);
    assert_int_equal(kit_deliver(&k, &a.event_id, 1), 0);
    kit_check(&k);
    assert_int_equal(kit_put(&k, k.alpha, 3, "x", &r), 0);
    assert_int_equal(kit_put(&k, k.alpha, 4, "x", &r), ERR_QUEUE_FULL);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

static void test_budget_of_bytes(void **state)
{
    struct kit k;
    struct kit_job j;
    struct queue_receipt r;
    kit_dir(&k);
    k.options.queue_bytes_max = 25;
    k.options.project_bytes_max = 20;
    kit_open(&k);
    assert_int_equal(kit_do(&k, kit_make_projects, NULL), 0);
    assert_int_equal(kit_put(&k, 1, 1, "0123456789abcdefghijk", &r), ERR_QUEUE_FULL); /* 21 */
    assert_int_equal(kit_put(&k, 1, 1, "0123456789abcdefghij", &r), 0);
    assert_int_equal(kit_put(&k, 1, 2, "", &r), 0);
    assert_int_equal(kit_put(&k, 1, 3, "x", &r), ERR_QUEUE_FULL);
    /* Within a job: the second event does not fit, and takes the first with it. */
    kit_job_init(&j, STORE_SMALL);
    j.ev[0] = kit_event(2, 1, "123");
    j.ev[0].envelope = SLICE("{}");
    j.ev[1] = kit_event(2, 2, "1");
    j.count = 2;
    store_submit(k.s, &j.job);
    kit_turns(&k);
    assert_int_equal(j.code, ERR_QUEUE_FULL);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 2);
    j.count = 1;
    store_submit(k.s, &j.job);
    kit_turns(&k);
    assert_int_equal(j.code, 0);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

static void test_unknown_project(void **state)
{
    struct kit k;
    kit_start(&k);
    assert_int_equal(kit_put(&k, 77, 1, "x", NULL), ERR_NOT_FOUND);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* ---- rejected ---- */

static int reject_job(struct kit_job *j, struct store *s, struct err *e)
{
    const struct queue_rejected *r = j->arg;
    return queue_put_rejected(s, r, e);
}

struct listed {
    size_t count, stop_at;
    int64_t last;
    struct kit *k;
};

static int on_rejected(void *ctx, const struct queue_rejected_row *row)
{
    struct listed *l = ctx;
    assert_true(row->id > l->last);
    l->last = row->id;
    assert_int_equal(row->r.project, l->k->alpha);
    assert_int_equal(row->r.index, 7);
    assert_true(slice_eq(row->r.door, SLICE("posthog")));
    assert_true(slice_eq(row->r.reason, SLICE("no name")));
    assert_true(slice_eq(row->r.text, SLICE("{bad\0}")));
    l->count++;
    return l->count == l->stop_at;
}

static int reject_many(struct kit_job *j, struct store *s, struct err *e)
{
    for (int i = 0; i < QUEUE_REJECTED_MAX; i++) {
        int r = reject_job(j, s, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static void test_rejected(void **state)
{
    struct kit k;
    struct queue_project_status st;
    kit_start(&k);
    struct queue_rejected r = {.project = k.alpha,
                               .received_ms = KIT_NOW,
                               .index = 7,
                               .door = SLICE("posthog"),
                               .reason = SLICE("no name"),
                               .text = SLICE("{bad\0}")};
    assert_int_equal(kit_do(&k, reject_job, &r), 0);
    assert_int_equal(kit_do(&k, reject_job, &r), 0);
    assert_int_equal(kit_do(&k, reject_job, &r), 0);
    struct listed l = {.k = &k};
    assert_int_equal(queue_list_rejected(k.reader, k.alpha, 0, 2, on_rejected, &l, &k.e), 0);
    assert_int_equal(l.count, 2);
    assert_int_equal(queue_list_rejected(k.reader, k.alpha, l.last, 10, on_rejected, &l, &k.e), 0);
    assert_int_equal(l.count, 3);
    l = (struct listed){.k = &k, .stop_at = 1};
    assert_int_equal(queue_list_rejected(k.reader, k.alpha, 0, 10, on_rejected, &l, &k.e), 0);
    assert_int_equal(l.count, 1);
    assert_int_equal(queue_list_rejected(k.reader, k.beta, 0, 10, on_rejected, &l, &k.e), 0);
    assert_int_equal(l.count, 1);
    kit_check(&k);
    /* Past the limits they are counted only, those of this project. */
    assert_int_equal(kit_do(&k, reject_many, &r), 0);
    assert_int_equal(queue_project_status(k.reader, k.alpha, &st, &k.e), 0);
    assert_int_equal(st.rejected, QUEUE_REJECTED_MAX + 3);
    assert_int_equal(st.rejected_kept, QUEUE_REJECTED_MAX);
    char *big = calloc(1, QUEUE_REJECTED_BYTES_MAX);
    assert_non_null(big);
    r.project = k.beta;
    r.text = slice_of(big, QUEUE_REJECTED_BYTES_MAX);
    assert_int_equal(kit_do(&k, reject_job, &r), 0);
    assert_int_equal(store_checkpoint(k.s, &k.e), 0); /* the WAL is past its limit */
    r.text.len = 1;
    assert_int_equal(kit_do(&k, reject_job, &r), 0);
    assert_int_equal(queue_project_status(k.reader, k.beta, &st, &k.e), 0);
    assert_int_equal(st.rejected, 2);
    assert_int_equal(st.rejected_kept, 1);
    r.project = 55;
    assert_int_equal(kit_do(&k, reject_job, &r), ERR_NOT_FOUND);
    free(big);
    kit_check(&k);
    struct store_status all;
    store_get_status(k.s, &all);
    assert_int_equal(all.rejected, QUEUE_REJECTED_MAX + 5);
    kit_end(&k);
    (void)state;
}

/* ---- the cursor and quarantine ---- */

static int cursor_job(struct kit_job *j, struct store *s, struct err *e)
{
    return queue_set_cursor(s, j->arg, e);
}

static void test_cursor(void **state)
{
    struct kit k;
    struct queue_cursor c;
    kit_start(&k);
    assert_int_equal(queue_get_cursor(k.reader, &c, &k.e), 0);
    assert_int_equal(c.project, 0);
    assert_int_equal(c.after_id, 0);
    for (int64_t i = 1; i < 3; i++) {
        c = (struct queue_cursor){.project = i, .after_id = 40 + i};
        assert_int_equal(kit_do(&k, cursor_job, &c), 0);
        kit_reopen(&k);
        assert_int_equal(queue_get_cursor(k.reader, &c, &k.e), 0);
        assert_int_equal(c.project, i);
        assert_int_equal(c.after_id, 40 + i);
    }
    kit_end(&k);
    (void)state;
}

/* The triggers: what leaves and enters quarantine, and what is removed there. */
static void test_quarantine(void **state)
{
    struct kit k;
    struct queue_receipt r[3];
    struct queue_project_status st;
    struct store_status all;
    kit_start(&k);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(kit_put(&k, k.alpha, i, "abc", &r[i]), 0);
    }
    assert_int_equal(kit_sql(&k, "INSERT INTO delivery_quarantine SELECT id, project, 321, 5 FROM"
                                 " events ORDER BY id LIMIT 2"),
                     0);
    kit_check(&k);
    store_tick(k.s);
    store_get_status(k.s, &all);
    assert_int_equal(all.quarantined, 2);
    assert_int_equal(queue_project_status(k.reader, k.alpha, &st, &k.e), 0);
    assert_int_equal(st.pending, 3);
    assert_int_equal(st.quarantined, 2);
    assert_int_equal(st.oldest_pending_received_ms, KIT_NOW);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM delivery_ready"), 1);
    assert_int_equal(kit_sql(&k, "DELETE FROM delivery_quarantine WHERE event_id ="
                                 " (SELECT min(event_id) FROM delivery_quarantine)"),
                     0);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM delivery_ready"), 2);
    /* An event that is removed while in quarantine leaves no trace but its receipt. */
    assert_int_equal(kit_deliver(&k, &r[1].event_id, 1), 0);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM delivery_quarantine"), 0);
    assert_int_equal(queue_project_status(k.reader, k.alpha, &st, &k.e), 0);
    assert_int_equal(st.pending, 2);
    assert_int_equal(st.quarantined, 0);
    kit_end(&k);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_delivered_runs),
        cmocka_unit_test(test_a_delivery_that_cannot_be_counted),
        cmocka_unit_test(test_ids_are_not_used_again),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_repeats_in_flight),
        cmocka_unit_test(test_budget_of_events),
        cmocka_unit_test(test_budget_of_bytes),
        cmocka_unit_test(test_unknown_project),
        cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_cursor),
        cmocka_unit_test(test_quarantine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
