/* Choosing a batch for a sink.
 *
 * The ready projects stand in a ring, by id. A selection begins at the cursor's project, behind the
 * cursor's event, and gives each project of the ring an equal share of the batch, lowest ids first;
 * what is left then goes to them in ring order. So a project with a large backlog cannot keep
 * others waiting. Only the first project is walked by the cursor: `next` is its last id here, or,
 * when nothing is behind that, the next project. So a front of events that the far side refuses is
 * passed by, project after project, whatever happens to them. Where the batch was full, or its
 * month another, before every project had given a row, `left_out` is the first that gave none: who
 * delivers the batch goes on there, so that more projects than a batch has room for take turns.
 *
 * All rows are of one receipt month (UTC), that of the first row: a project is left where its next
 * row is of another. Quarantined events are not in delivery_ready and cost nothing.
 *
 * Bounds: events_max rows, bytes_soft bytes (all of a row's texts count; one row may pass), a
 * second. One snapshot, given up at the end. Answers: all errors, with nothing selected. */
#include "base/ensure.h"
#include "os/os.h"
#include "store/queue.h"
#include "store/reader.h"

#define ROWS_MAX   65536u
#define READ_NS    UINT64_C(1000000000)
#define CLOCK_STEP 64u
#define DAY_MS     INT64_C(86400000)

/* What one project has given so far. */
struct visit {
    int64_t project;
    int64_t after, until; /* ids in (after, until] are still to be read */
    struct slice name;
    bool gave;        /* a row, or had none */
    bool ended;       /* no more rows */
    bool other_month; /* the next row is of another month */
};

struct choice {
    struct store_reader *reader;
    const struct queue_selection *sel;
    struct queue_rows *out;
    uint32_t events_max;
    uint64_t until_ns;
    int month; /* of the first row; -1: none yet */
    bool late; /* the second is over */
};

/* Months since 1970, UTC (H. Hinnant's days to civil date). */
static int month_of(int64_t ms)
{
    int64_t days = ms / DAY_MS - (ms % DAY_MS < 0 ? 1 : 0) + 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t doe = days - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;
    int64_t month = mp < 10 ? mp + 3 : mp - 9;
    int64_t year = yoe + era * 400 + (month <= 2 ? 1 : 0);
    int64_t n = (year - 1970) * 12 + month - 1;

    return n < 0 || n > 1000000 ? 0 : (int)n;
}

static bool skipped(const struct queue_selection *sel, int64_t project)
{
    size_t low = 0, high = sel->skip_count;

    if (sel->only != 0) {
        return project != sel->only;
    }
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (sel->skip[mid] == project) {
            return true;
        }
        if (sel->skip[mid] < project) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return false;
}

/* The id behind which the project's rows are wanted. */
static int64_t behind(const struct queue_selection *sel, int64_t project)
{
    size_t low = 0, high = sel->behind_count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (sel->behind[mid].project == project) {
            return sel->behind[mid].after_id;
        }
        if (sel->behind[mid].project < project) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return 0;
}

/* The first ready project above `above` that is not skipped. 1: *out. 0: none. */
static int next_project(struct choice *c, int64_t above, int64_t *out, struct err *e)
{
    struct sqlite3_stmt *st = c->reader->st[READ_NEXT_PROJECT];
    int r = 1;

    if (c->sel->only != 0) {
        above = above < c->sel->only ? c->sel->only - 1 : INT64_MAX;
    }
    while (r > 0) {
        db_bind_int(st, 1, above);
        r = db_step(st, "find ready projects", e);
        if (r > 0) {
            above = sqlite3_column_int64(st, 0);
            sqlite3_reset(st);
            if (c->sel->only != 0 && above != c->sel->only) {
                return 0;
            }
            if (!skipped(c->sel, above)) {
                *out = above;
                return 1;
            }
        }
    }
    return r;
}

/* ---- rows ---- */

static bool copy(struct choice *c, struct slice *to, int column)
{
    struct slice from = db_column(c->reader->st[READ_ROWS], column);
    char *p = arena_copy(&c->out->arena, from);

    *to = slice_of(p, from.len);
    c->out->bytes += from.len;
    return p != NULL;
}

static int take_row(struct choice *c, const struct visit *v, struct err *e)
{
    struct sqlite3_stmt *st = c->reader->st[READ_ROWS];
    struct queue_row *row = &c->out->row[c->out->count];
    struct queue_event *ev = &row->ev;
    struct slice uuid = db_column(st, 1);
    struct slice *const texts[] = {&ev->time_note,       &ev->type,         &ev->event,
                                   &ev->distinct_id,     &ev->anonymous_id, &ev->session_id,
                                   &ev->source,          &ev->message_id,   &ev->library,
                                   &ev->library_version, &ev->envelope,     &ev->text};

    *row = (struct queue_row){.id = sqlite3_column_int64(st, 0), .project = v->name};
    ev->project = v->project;
    if (uuid.len != sizeof ev->uuid.byte) {
        return err_set(e, ERR_CORRUPT, "event %lld has a uuid of %zu bytes", (long long)row->id,
                       uuid.len);
    }
    memcpy(ev->uuid.byte, uuid.ptr, sizeof ev->uuid.byte);
    ev->received_ms = sqlite3_column_int64(st, 2);
    ev->timestamp_us = sqlite3_column_int64(st, 3);
    ev->has_timestamp_sent = sqlite3_column_type(st, 4) != SQLITE_NULL;
    ev->timestamp_sent_us = sqlite3_column_int64(st, 4);
    ev->has_sent_at = sqlite3_column_type(st, 5) != SQLITE_NULL;
    ev->sent_at_ms = sqlite3_column_int64(st, 5);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!copy(c, texts[i], 6 + (int)i)) {
            return err_set(e, ERR_NO_MEMORY, "select a batch: out of memory");
        }
    }
    c->out->count++;
    return 0;
}

static bool full(struct choice *c)
{
    if (c->out->count % CLOCK_STEP == CLOCK_STEP - 1 && os_clock_mono_ns() >= c->until_ns) {
        c->late = true;
    }
    return c->late || c->out->count >= c->events_max || c->out->bytes >= c->sel->bytes_soft;
}

static int find_name(struct choice *c, struct visit *v, struct err *e)
{
    struct sqlite3_stmt *st = c->reader->st[READ_PROJECT_NAME];
    int r;

    db_bind_int(st, 1, v->project);
    r = db_step(st, "read a project's name", e);
    if (r <= 0) {
        return r < 0 ? r
                     : err_set(e, ERR_CORRUPT, "events of project %lld, which is not there",
                               (long long)v->project);
    }
    struct slice name = db_column(st, 0);
    char *p = arena_copy(&c->out->arena, name);
    v->name = slice_of(p, name.len);
    sqlite3_reset(st);
    return p == NULL ? err_set(e, ERR_NO_MEMORY, "select a batch: out of memory") : 0;
}

/* Takes at most so many rows and about so many bytes of the visit's rest. */
static int take(struct choice *c, struct visit *v, uint32_t rows, uint64_t bytes, struct err *e)
{
    struct sqlite3_stmt *st = c->reader->st[READ_ROWS];
    uint64_t bytes_until = c->out->bytes + bytes;
    uint32_t taken = 0;
    int r = v->name.len == 0 ? find_name(c, v, e) : 0;

    if (r < 0 || v->ended || v->other_month || full(c)) {
        return r;
    }
    db_bind_int(st, 1, v->project);
    db_bind_int(st, 2, v->after);
    db_bind_int(st, 3, v->until);
    db_bind_int(st, 4, rows);
    while (taken < rows && !full(c) && (taken == 0 || c->out->bytes < bytes_until)) {
        int month;
        r = db_step(st, "select a batch", e);
        if (r <= 0) {
            v->ended = r == 0 && taken < rows;
            v->gave = true;
            return r;
        }
        month = month_of(sqlite3_column_int64(st, 2));
        if (c->month >= 0 && month != c->month) {
            v->other_month = true;
            break;
        }
        c->month = month;
        v->after = sqlite3_column_int64(st, 0);
        r = take_row(c, v, e);
        if (r < 0) {
            break;
        }
        taken++;
        v->gave = true;
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

/* ---- the ring ---- */

/* Lists the ring from the cursor on, at most as many visits as there may be rows. */
static int list_ring(struct choice *c, struct visit **out, size_t *count, struct err *e)
{
    size_t cap = c->events_max + 1u;
    struct visit *ring = arena_calloc(&c->out->arena, cap, sizeof *ring);
    struct queue_cursor from = c->sel->from;
    int64_t project = from.project - 1;
    bool wrapped = false;
    size_t n = 0;

    if (ring == NULL) {
        return err_set(e, ERR_NO_MEMORY, "select a batch: out of memory");
    }
    while (n < cap) {
        int r = next_project(c, project, &project, e);
        if (r < 0) {
            return r;
        }
        if (r == 0 && (wrapped || from.project <= 0)) {
            break;
        }
        if (r == 0) {
            wrapped = true;
            project = 0;
            continue;
        }
        if (wrapped && project > from.project) {
            break;
        }
        ring[n] =
            (struct visit){.project = project,
                           .after = !wrapped && project == from.project ? from.after_id : 0,
                           .until = wrapped && project == from.project ? from.after_id : INT64_MAX};
        if (ring[n].after < behind(c->sel, project)) {
            ring[n].after = behind(c->sel, project);
        }
        n++;
    }
    *out = ring;
    *count = n;
    return 0;
}

static void set_left_out(struct choice *c, const struct visit *ring, size_t sharing)
{
    size_t i = 0;

    while (i < sharing && ring[i].gave) {
        i++;
    }
    if (i < sharing) {
        c->out->left_out =
            (struct queue_cursor){.project = ring[i].project, .after_id = ring[i].after};
    }
}

static void set_next(struct choice *c, const struct visit *ring, size_t count)
{
    size_t first = 0;

    /* The first that gave a row: those before it have nothing left behind the cursor. */
    while (first < count &&
           (c->out->count == 0 || ring[first].project != c->out->row[0].ev.project ||
            ring[first].after < c->out->row[0].id)) {
        first++;
    }
    if (first == count) {
        c->out->next = (struct queue_cursor){0};
    } else if (!ring[first].ended || count == 1) {
        c->out->next =
            (struct queue_cursor){.project = ring[first].project, .after_id = ring[first].after};
    } else {
        const struct visit *then = &ring[(first + 1) % count];
        c->out->next = (struct queue_cursor){.project = then->project, .after_id = then->after};
    }
}

static int choose(struct choice *c, struct err *e)
{
    struct visit *ring = NULL;
    size_t count = 0;
    size_t sharing;
    uint32_t share;
    int r = list_ring(c, &ring, &count, e);

    if (count == 0) {
        return r; /* nothing is ready, or it could not be listed */
    }
    /* What lies before the cursor comes last, and has no share: a front of events that the far side
     * refuses would otherwise be in every batch. */
    sharing = count > 1 && ring[count - 1].until != INT64_MAX ? count - 1 : count;
    share = sharing < c->events_max ? c->events_max / (uint32_t)sharing : 1;
    for (size_t i = 0; r == 0 && i < sharing && !full(c); i++) {
        r = take(c, &ring[i], share, c->sel->bytes_soft / sharing, e);
    }
    for (size_t i = 0; r == 0 && i < count && !full(c); i++) {
        r = take(c, &ring[i], c->events_max, c->sel->bytes_soft, e);
    }
    if (r == 0) {
        set_next(c, ring, count);
        set_left_out(c, ring, sharing);
    }
    return r;
}

int queue_select(struct store_reader *r, const struct queue_selection *sel, struct queue_rows *out,
                 struct err *e)
{
    struct choice c = {.reader = r,
                       .sel = sel,
                       .out = out,
                       .events_max = sel->events_max < ROWS_MAX ? sel->events_max : ROWS_MAX,
                       .until_ns = os_clock_mono_ns() + READ_NS,
                       .month = -1};
    int code;

    ensure(sel->events_max > 0);
    ensure(sel->bytes_soft > 0);
    *out = (struct queue_rows){0};
    arena_init(&out->arena, 0);
    out->row = arena_calloc(&out->arena, c.events_max, sizeof *out->row);
    if (out->row == NULL) {
        queue_rows_free(out);
        return err_set(e, ERR_NO_MEMORY, "select a batch: out of memory");
    }
    code = reader_begin(r, e);
    if (code == 0) {
        code = choose(&c, e);
        reader_end(r);
    }
    if (code < 0) {
        queue_rows_free(out);
    }
    return code;
}

void queue_rows_free(struct queue_rows *rows)
{
    arena_free(&rows->arena);
    *rows = (struct queue_rows){0};
}
