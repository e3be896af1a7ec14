"""Builds with one protection removed each, and the suite that has to notice (scripts/sabotage, RELIABILITY L10).

SUITES: name -> (make targets, command, what its output must hold when it is the suite that has found something).
A mutant: name, what is lost, the edits (file, old text, new text; the old text must be there exactly once), the suites that
may kill it, the most likely one first.
"""

PYTEST = ["PYTHON", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
SERVER = ["build/tallyman"]
BOTH = [*SERVER, "build/tallyman-engine"]
NOTICED = r"^(FAILED|ERROR) "


def pytest(*words):
    return SERVER, [*PYTEST, *words], NOTICED


def engine(*words):
    """With the real engine; its library is not copied (scripts/sabotage)."""
    return BOTH, [*PYTEST, *words], NOTICED


def unit(path):
    return [f"build/unit/{path}"], [f"build/unit/{path}"], r"\[  FAILED  \]|ensure"


def crash(*words):
    return (["build/crash/crash_journal"], ["build/crash/crash_journal", "--minutes", "2", *words], r"^VIOLATION|ensure")


SUITES = {
    "crash": crash("--states", "6000"),
    "crash undo": crash("--scenario", "undo", "--states", "2500"),
    "crash groups": crash("--scenario", "groups", "--states", "2500"),
    "crash reopen": crash("--scenario", "reopen", "--states", "2500"),
    "crash rotation": crash("--scenario", "rotation", "--states", "3500"),
    "crash leftover": crash("--scenario", "leftover", "--states", "3500"),
    "faults": (["build/crash/crash_faults"], ["build/crash/crash_faults", "--step", "16"], r"^VIOLATION|ensure"),
    "scan": unit("journal/test_scan"),
    "recover": unit("journal/test_recover"),
    "append": unit("journal/test_append"),
    "os": unit("os/test_os"),
    "order": pytest("tests/blackbox/test_strace.py", "-k", "answer_leaves or refusals_of_the_writer"),
    "sync fails": pytest("tests/blackbox/test_strace.py", "-k", "(R7 or L47_one or failed_write) and not EDQUOT and not EROFS"),
    "no space": pytest("tests/blackbox/test_strace.py", "-k", "no_space"),
    "rotation": pytest("tests/blackbox/test_strace.py", "-k", "of_a_rotation or believes or (failure_in_the_rotation and pending)"),
    "lies": pytest("tests/blackbox/test_strace.py", "-k", "short_write or without_progress"),
    "history": pytest("tests/blackbox/test_history.py", "-k", "L05 or second_server or L52 or token"),
    "kill": pytest("tests/blackbox/test_kill.py"),
    # ---- the queue, delivery, the engine ----
    "crash artifact": (["build/crash/crash_artifact"], ["build/crash/crash_artifact", "--states", "6000"],
                       r"^VIOLATION|ensure"),
    "upload open": unit("store/test_upload_open"),
    "store": unit("store/test_store"),
    "queue": unit("store/test_queue"),
    "store faults": unit("store/test_store_faults"),
    "receipts": unit("store/test_receipts"),
    "capture": unit("door/test_capture"),
    "dialects": unit("door/test_capture_dialects"),
    "gzip": unit("door/test_decode_gzip"),
    "api status": unit("door/test_manage_status"),
    "cors": unit("http/test_routes_cors"),
    "verdict": unit("sink/test_clickhouse"),
    "runner": unit("sink/test_runner"),
    "encode": unit("sink/test_encode"),
    "queue order": pytest("tests/blackbox/test_capture_strace.py", "-k", "answer_leaves or a_repeat_waits"),
    "queue start": pytest("tests/blackbox/test_capture_strace.py", "-k", "only_the_device"),
    "queue space": pytest("tests/blackbox/test_capture_strace.py", "-k", "no_space_for_the_log"),
    "queue log": pytest("tests/blackbox/test_capture_strace.py", "-k", "failed_log or one_failed"),
    "delivery": pytest("tests/blackbox/test_sink.py", "-k", "test_delivers or same_bytes"),
    "engine ends": engine("tests/blackbox/test_capture_delivery.py", "-k", "ends_with_a_killed_server"),
    "lost answer": engine("tests/blackbox/test_capture_delivery.py", "-k", "lost_acknowledgement or between_insert"),
    "engine disk": engine("tests/blackbox/test_capture_strace.py", "-k", "insert_is_on_the_disk or merged_part"),
    "engine locks": engine("tests/blackbox/test_engine.py", "-k", "row_policy or unless_the_self_test or replace_by_revision"),
    "isolation": engine("tests/blackbox/test_engine_isolation.py", "-k", "at_the_same_time"),
}

COMMIT = "src/journal/append.c"
ROTATE = "src/journal/rotate.c"
SPARE = "src/journal/spare.c"
OPEN = "src/journal/open.c"
RECOVER = "src/journal/recover.c"
SCAN = "src/journal/scan.c"
DOOR = "src/door/history/append.c"
TURN = "src/store/turn.c"
PUT = "src/store/queue_put.c"
ACCOUNT = "src/store/account.c"
RECEIPTS = "src/store/receipts.c"
STORE = "src/store/store.c"
DB = "src/store/db.c"
HEAD = "src/door/capture/head.c"
VERDICT = "src/sink/clickhouse_verdict.c"
SINK = "src/sink/clickhouse.c"
SEND = "src/sink/runner_send.c"
ENCODE = "src/sink/clickhouse_encode.c"
SCHEMA = "src/base/events_schema.h"
BOOT = "src/engine/boot.c"


def sync_dir(which, what):
    return f"    r = os_sync_dir(j->layout.{which});\n    if (r < 0) {{\n        return poisoned(j, r, \"sync\", \"{what}\", e);"


JOURNAL_DIR = sync_dir("journal", "the journal directory")
RENAME_SPARE = "    r = os_rename(j->layout.spare, j->layout.tail);\n"
UPLOAD = "src/store/artifact/upload_"

MUTANTS = [
    # ---- the group commit ----
    ("no-fdatasync", "a group is acknowledged without a sync",
     [(COMMIT, "    r = os_fdatasync(tail->fd);\n    if (r < 0) {\n        return write_failed(j, r, \"sync\", e);",
       "    r = 0;\n    if (r < 0) {\n        return write_failed(j, r, \"sync\", e);")],
     ["crash", "order"]),
    ("answer-before-sync", "receipts are made and sent before the group is committed",
     [(DOOR, "    struct err e = {0};\n    release(h, journal_commit(h->journal, &e));",
       "    struct err e = {0};\n    (void)journal_commit(h->journal, &e);"),
      (DOOR, "    h->waiting[h->waiting_count++] = (struct waiting){req, result};\n",
       "    h->waiting[h->waiting_count++] = (struct waiting){req, result};\n    release(h, 0);\n    h->waiting_count = 1;\n"),
      (DOOR, "    for (size_t i = 0; i < h->waiting_count; i++) {",
       "    for (size_t i = h->waiting_count - 1; i < h->waiting_count; i++) {"),
      ("src/http/server.c", "    if (hooks->turn != NULL) {\n        hooks->turn(hooks->ctx);",
       "    flush_dirty(s);\n    if (hooks->turn != NULL) {\n        hooks->turn(hooks->ctx);")],
     ["order"]),
    ("answer-whatever-the-sync-said", "receipts are sent although the commit failed",
     [(DOOR, "release(h, journal_commit(h->journal, &e));",
       "(void)journal_commit(h->journal, &e);\n    release(h, 0);")],
     ["sync fails"]),
    ("conflict-before-sync", "a 409 is told although the sync it was decided under fails",
     [(DOOR, "    h->waiting[h->waiting_count++] = (struct waiting){req, result};\n",
       "    if (result.outcome == JOURNAL_BATCH_CONFLICT || result.outcome == JOURNAL_FRONTIER_CONFLICT) {\n"
       "        answer_conflict(h, req, &result);\n        return;\n    }\n"
       "    h->waiting[h->waiting_count++] = (struct waiting){req, result};\n")],
     ["order"]),
    ("duplicate-before-sync", "a duplicate of a batch in flight is told although the sync fails",
     [(DOOR, "    h->waiting[h->waiting_count++] = (struct waiting){req, result};\n",
       "    if (result.outcome == JOURNAL_DUPLICATE) {\n        answer_receipt(h, req, &result);\n        return;\n    }\n"
       "    h->waiting[h->waiting_count++] = (struct waiting){req, result};\n")],
     ["order"]),
    ("publish-before-sync", "readers see a group that is not durable",
     [(COMMIT, "    r = os_fdatasync(tail->fd);\n    if (r < 0) {\n        return write_failed(j, r, \"sync\", e);\n    }\n    publish(j);",
       "    publish(j);\n    r = os_fdatasync(tail->fd);\n    if (r < 0) {\n        return write_failed(j, r, \"sync\", e);\n    }")],
     ["sync fails", "faults"]),
    ("retry-the-sync", "a failed sync is tried again, and believed",
     [(COMMIT, "    r = os_fdatasync(tail->fd);\n    if (r < 0) {\n        return write_failed(j, r, \"sync\", e);",
       "    r = os_fdatasync(tail->fd);\n    if (r < 0) {\n        r = os_fdatasync(tail->fd);\n    }\n    if (r < 0) {\n"
       "        return write_failed(j, r, \"sync\", e);")],
     ["sync fails", "faults"]),
    ("failed-sync-does-not-poison", "after a failed sync the writer goes on",
     [(COMMIT, "    journal_poison(j, e != NULL ? e->text : what);\n    drop_group(j);\n    if (e != NULL) {\n"
       "        e->code = ERR_WRITER_POISONED;\n    }\n    return ERR_WRITER_POISONED;",
       "    drop_group(j);\n    return ERR_IO;")],
     ["sync fails", "faults"]),
    ("short-write-ignored", "what a short write left out is not written",
     [("src/os/os.c", "        done += (size_t)put;\n    }\n    if (written != NULL) {",
       "        done = n;\n    }\n    if (written != NULL) {")],
     ["faults", "lies"]),
    ("no-undo-of-a-full-disk", "what was written before the disk was full stays",
     [(COMMIT, "    if (written > 0) {\n        int r = spare_zero_fill", "    if (written > (1u << 30)) {\n        int r = spare_zero_fill")],
     ["crash undo", "faults"]),
    ("undo-not-synced", "the undo of a full disk is not made durable",
     [(COMMIT, "        int r = spare_zero_fill(fd, at, at + written);\n        if (r == 0) {\n            r = os_fdatasync(fd);\n        }",
       "        int r = spare_zero_fill(fd, at, at + written);")],
     ["crash undo", "faults"]),
    ("undone-keys-stay", "a batch that was turned away answers as a duplicate when it comes again",
     [(COMMIT, "        index_remove(j->index, &j->staged[i]);\n", "        (void)j->staged[i];\n")],
     ["no space", "faults"]),
    ("undone-streams-stay", "a stream's frontier names an event that was turned away",
     [(COMMIT, "    streams_undo(j->streams);\n    buf_clear(&j->group);", "    streams_keep(j->streams);\n    buf_clear(&j->group);")],
     ["no space"]),
    # ---- rotation ----
    ("no-sync-of-the-closed-tail", "a closed generation's trim is not synced before its rename",
     [(ROTATE, "    r = os_fsync(tail->fd);\n    if (r < 0) {\n        return poisoned(j, r, \"sync\", \"tail.ndjson\", e);",
       "    r = 0;\n    if (r < 0) {\n        return poisoned(j, r, \"sync\", \"tail.ndjson\", e);")],
     ["rotation", "crash rotation"]),
    ("no-sync-of-pending", "the closed generation's new name is not synced",
     [(ROTATE, sync_dir("pending", "pending"), sync_dir("pending", "pending").replace("os_sync_dir(j->layout.pending)", "0"))],
     ["rotation", "crash rotation"]),
    ("no-sync-of-the-journal-between-renames", "the tail's old name is not synced away before the next file takes it",
     [(ROTATE, JOURNAL_DIR + "\n    }\n" + RENAME_SPARE,
       JOURNAL_DIR.replace("os_sync_dir(j->layout.journal)", "0") + "\n    }\n" + RENAME_SPARE)],
     ["rotation", "crash rotation"]),
    ("no-directory-sync-in-the-rotation", "events are acknowledged in a file whose name is still that of a leftover",
     [(ROTATE, sync_dir("pending", "pending"), sync_dir("pending", "pending").replace("os_sync_dir(j->layout.pending)", "0")),
      (ROTATE, JOURNAL_DIR + "\n    }\n" + RENAME_SPARE,
       JOURNAL_DIR.replace("os_sync_dir(j->layout.journal)", "0") + "\n    }\n" + RENAME_SPARE),
      (ROTATE, JOURNAL_DIR + "\n    }\n    return 0;\n",
       JOURNAL_DIR.replace("os_sync_dir(j->layout.journal)", "0") + "\n    }\n    return 0;\n")],
     ["crash rotation"]),
    ("acknowledge-from-a-tail-without-a-name", "the new tail's name is not synced before it takes events",
     [(ROTATE, JOURNAL_DIR + "\n    }\n    return 0;\n",
       JOURNAL_DIR.replace("os_sync_dir(j->layout.journal)", "0") + "\n    }\n    return 0;\n")],
     ["rotation", "crash rotation"]),
    ("failed-rotation-does-not-poison", "a rotation that failed half way is tried again",
     [(ROTATE, "    journal_poison(j, local.text);\n    return err_set(e, ERR_WRITER_POISONED, \"%s\", local.text);\n}\n\n/* Waits",
       "    return err_set(e, ERR_IO, \"%s\", local.text);\n}\n\n/* Waits")],
     ["rotation", "faults"]),
    ("spare-not-zero-filled", "the next tail has no zeros to write into",
     [(SPARE, "        r = fill(fd, sp->bytes);\n", "        r = 0;\n")],
     ["crash"]),
    ("spare-not-synced", "the zeros of the next tail are not durable when groups are written over them",
     [(SPARE, "        what = \"sync\";\n        r = os_fsync(fd);\n", "        what = \"sync\";\n        r = 0;\n")],
     ["rotation"]),
    # ---- opening ----
    ("no-sync-at-open", "what the last process left in the page cache is believed",
     [(OPEN, "    int r = os_fsync(fd);\n    if (r == 0) {\n        r = os_sync_dir(j->layout.pending);",
       "    int r = 0;\n    if (r == 0) {\n        r = os_sync_dir(j->layout.pending);")],
     ["rotation"]),
    ("page-cache-believed", "the tail is read from the page cache, which a failed sync made a liar",
     [(OPEN, "        r = os_drop_cache(fd);\n    }\n    if (r < 0) {\n        (void)os_close(fd);\n        return err_os(e, r, \"sync\", \"tail.ndjson\");",
       "        r = 0;\n    }\n    if (r < 0) {\n        (void)os_close(fd);\n        return err_os(e, r, \"sync\", \"tail.ndjson\");")],
     ["faults"]),
    ("recovery-without-truncation", "a torn group stays behind the data",
     [(RECOVER, "    r = os_ftruncate(fd, bad);\n    if (r == 0) {\n        r = os_fsync(fd);\n    }\n", "    r = 0;\n"),
      (RECOVER, "        size = bad;\n", "        size = st.size;\n")],
     ["recover", "crash leftover"]),
    ("truncation-not-synced", "recovery appends behind a cut that is not durable",
     [(RECOVER, "    r = os_ftruncate(fd, bad);\n    if (r == 0) {\n        r = os_fsync(fd);\n    }\n", "    r = os_ftruncate(fd, bad);\n"),
      (RECOVER, "    int r = journal_grow_tail(j, want - tail->bytes - 1, &local);", "    j->tail_capacity = want;\n    int r = 0;")],
     ["crash"]),
    ("damage-taken-for-a-torn-group", "acknowledged events behind a damaged one are cut off",
     [("src/journal/damage.c", "            *damaged = judge(last, &b, &ev);", "            (void)judge(last, &b, &ev);")],
     ["recover", "lies"]),
    ("keys-forgotten-at-open", "batch keys of the tail are not known after a restart",
     [(RECOVER, "    return index_insert(j->index, &key);", "    (void)key;\n    return 0;")],
     ["history", "kill"]),
    ("no-lock", "two servers write one directory",
     [(OPEN, "    if (r == 0) {\n        j->lock_fd = fd;", "    if (r == 0 || r == -EWOULDBLOCK) {\n        j->lock_fd = fd;")],
     ["history"]),
    # ---- proof ----
    ("content-hash-not-compared", "a changed payload is served",
     [(SCAN, "    sha256_once(l->payload, got);\n    if (memcmp(want, got, SHA256_LEN) != 0) {",
       "    sha256_once(l->payload, got);\n    if (l->payload.len == SIZE_MAX) {")],
     ["scan"]),
    ("event-hash-not-compared", "a changed envelope is served",
     [(SCAN, "    ok = hex_decode(want, l->event_hash, SHA256_LEN);\n    ensure(ok);\n    if (memcmp(want, got, SHA256_LEN) != 0) {",
       "    ok = hex_decode(want, l->event_hash, SHA256_LEN);\n    ensure(ok);\n    if (l->payload.len == SIZE_MAX) {")],
     ["scan"]),
    ("batch-digest-not-compared", "a batch is accepted that is not the one that was committed",
     [(SCAN, "    if (memcmp(want, digest, SHA256_LEN) != 0) {", "    if (digest == NULL) {")],
     ["scan"]),
    ("order-not-checked", "events out of their order are accepted",
     [(SCAN, "        if (s->check_order && !follows) {", "        if (s->check_order && !follows && s->lines == NULL) {")],
     ["scan"]),
    ("half-a-batch-accepted", "a batch whose end is missing is taken for whole",
     [(SCAN, "        if (r == 0) {\n            return fault(s, e, SCAN_FAULT_FRAMING,\n"
       "                         i == 0 ? \"a line without an end\" : \"a batch that is not whole\");",
       "        if (r == 0 && i > 0) {\n            *bytes = at;\n            *count = i;\n            return 0;\n        }\n"
       "        if (r == 0) {\n            return fault(s, e, SCAN_FAULT_FRAMING, \"a line without an end\");")],
     ["scan", "crash"]),
    ("original-not-compared", "a key with other content answers as a duplicate",
     [("src/journal/lookup.c", "    res->outcome = memcmp(res->digest, lk->batch->digest, SHA256_LEN) == 0 ? JOURNAL_DUPLICATE",
       "    res->outcome = lk->batch != NULL ? JOURNAL_DUPLICATE")],
     ["append", "history"]),
    # ---- the queue's commit ----
    ("queue-answer-before-the-commit", "events are acknowledged before they are committed",
     [(TURN, "        r = commit(s, before, &why);\n", "        tell(s, 0, NULL);\n        r = commit(s, before, &why);\n")],
     ["store"]),
    ("queue-answer-whatever-the-commit-said", "events are acknowledged although the commit failed",
     [(TURN, "        fail_turn(s, &why);\n", "        roll_back(s);\n        tell(s, 0, NULL);\n")],
     ["store", "queue log"]),
    ("queue-repeats-before-the-commit", "a repeat of an event that is not committed yet is answered at once",
     [(TURN, "    int r, code;\n\n    *why = (struct err){0};\n",
       "    int r, code;\n    int64_t changes = sqlite3_total_changes64(s->db);\n\n    *why = (struct err){0};\n"),
      (TURN, "    r = code < 0 ? undo_job(s, turn_why) : db_run(s->st[ST_RELEASE], \"end a job\", turn_why);\n",
       "    r = code < 0 ? undo_job(s, turn_why) : db_run(s->st[ST_RELEASE], \"end a job\", turn_why);\n"
       "    if (r == 0 && code == 0 && sqlite3_total_changes64(s->db) == changes) {\n"
       "        TAILQ_REMOVE(&t->ran, job, link);\n        t->count--;\n        job->done(job, 0, NULL);\n    }\n")],
     ["queue order"]),
    ("queue-synchronous-normal", "commits of the queue are not synced",
     [(DB, "\"PRAGMA synchronous=FULL;", "\"PRAGMA synchronous=NORMAL;")],
     ["queue order"]),
    ("queue-synchronous-off", "nothing of the queue is synced",
     [(DB, "\"PRAGMA synchronous=FULL;", "\"PRAGMA synchronous=OFF;")],
     ["queue order"]),
    ("queue-autocommit-not-looked-at", "a transaction that SQLite has ended by itself is taken for whole",
     [(TURN, "    return sqlite3_get_autocommit(s->db) != 0 || code == ERR_NO_SPACE", "    return s->db == NULL || code == ERR_NO_SPACE"),
      (TURN, "    return r;\n}\n\n/* Runs the jobs that wait in a list now", "    return 0;\n}\n\n/* Runs the jobs that wait in a list now"),
      (TURN, "        r = db_run(s->st[ST_COMMIT], \"commit\", e);\n",
       "        r = sqlite3_get_autocommit(s->db) != 0 ? 0 : db_run(s->st[ST_COMMIT], \"commit\", e);\n")],
     ["store"]),
    ("queue-failed-job-is-kept", "what a refused request had written stays",
     [(TURN, "    r = code < 0 ? undo_job(s, turn_why) : db_run(", "    r = db_run(")],
     ["store"]),
    ("queue-poisoned-goes-on", "after a failed commit events are taken and acknowledged",
     [(TURN, "    if (s->poisoned) {\n        err_set(&why, ERR_STORE_POISONED, \"%s\", s->cause);\n        fail_waiting(s, &why);\n"
       "        return true;\n    }\n", "")],
     ["store", "queue log"]),
    ("queue-failed-sync-does-not-poison", "a sync that failed is tried again with the next commit",
     [(TURN, "    if (why->code == ERR_IO || why->code == ERR_CORRUPT) {\n        store_poison(s, why->text);\n    }\n    if (s->poisoned) {",
       "    if (s->poisoned) {")],
     ["store", "queue log"]),
    ("queue-failed-checkpoint-does-not-poison", "a database that could not be synced is believed",
     [(TURN, "    if (state == CHECKPOINT_FAILED) {\n        store_poison(s, why.text);\n    }\n", "")],
     ["store faults"]),
    ("queue-page-cache-believed", "the database is read from the page cache, which a failed sync made a liar",
     [(STORE, "        r = os_drop_cache(fd);\n", "        r = 0;\n")],
     ["queue start"]),
    ("queue-new-log-without-a-name", "the name of a new write-ahead log is not synced",
     [(STORE, "but passes over a failure. */\n        r = os_sync_dir(data);\n", "but passes over a failure. */\n        r = 0;\n")],
     ["store faults"]),
    ("queue-quota-is-a-broken-disk", "a quota that is used up stops the queue until a restart",
     [(DB, "    } else if (rc == SQLITE_IOERR_WRITE && over_quota(db)) {", "    } else if (rc == SQLITE_OK && over_quota(db)) {")],
     ["queue space"]),
    # ---- identity, counters, budgets ----
    ("queue-ids-used-again", "after a restart a delivered event's id is given to another",
     [(TURN, "    if (s->next_id != s->next_id_stored) {", "    if (s->next_id < s->next_id_stored) {")],
     ["queue"]),
    ("queue-receipts-not-stored", "after a restart a repeat is a new event",
     [(RECEIPTS, "    return db_run(st, \"store a receipt\", e);", "    return 0;")],
     ["receipts", "queue"]),
    ("queue-receipts-of-an-undone-request-stay", "a request that was refused answers as a repeat when it comes again",
     [(RECEIPTS, "    receipt_set_cut(&s->receipts.young, s->receipts.seed, s->receipts.mark_job);\n", "")],
     ["store", "queue"]),
    ("queue-receipts-of-an-undone-turn-stay", "events that a full disk turned away answer as repeats",
     [(RECEIPTS, "    receipt_set_cut(&s->receipts.young, s->receipts.seed, s->receipts.mark_turn);\n", "")],
     ["store"]),
    ("queue-last-payload-wins", "a repeat replaces what was accepted first",
     [(PUT, "    if (r != 0) {\n        out->repeat = r > 0;\n        return r < 0 ? r : 0;\n    }\n",
       "    if (r > 0) {\n        out->repeat = true;\n        db_bind_int(s->st[ST_EVENTS_REMOVE], 1, out->event_id);\n"
       "        db_bind_int(s->st[ST_EVENTS_REMOVE], 2, out->event_id);\n        r = db_run(s->st[ST_EVENTS_REMOVE], \"remove\", e);\n        if (r == 0) {\n"
       "            bind_event(s->st[ST_EVENT_ADD], ev, out->event_id);\n            r = db_run(s->st[ST_EVENT_ADD], \"again\", e);\n"
       "        }\n        return r;\n    }\n    if (r < 0) {\n        return r;\n    }\n")],
     ["queue", "capture"]),
    ("queue-counters-not-undone", "a refused request stays in the budget",
     [(ACCOUNT, "void account_job_undo(struct store *s)\n{\n", "void account_job_undo(struct store *s)\n{\n    sums_add(&s->account.turn, &s->account.job);\n")],
     ["store", "queue"]),
    ("queue-no-budget", "the queue takes events without end",
     [(PUT, "        r = account_room(s, p, bytes, e);\n", "        r = 0;\n")],
     ["queue"]),
    ("queue-budget-before-identity", "a full queue refuses a repeat of what it holds",
     [(PUT, "    r = receipts_find(s, ev->project, &ev->uuid, &out->event_id, e);\n    if (r != 0) {\n",
       "    r = account_project(s, ev->project, &p, e);\n    if (r == 0) {\n        r = account_room(s, p, bytes, e);\n    }\n"
       "    if (r == 0) {\n        r = receipts_find(s, ev->project, &ev->uuid, &out->event_id, e);\n    }\n    if (r != 0) {\n")],
     ["queue"]),
    # ---- the capture door ----
    ("capture-service-key-passes", "a service key opens the doors of the SDKs",
     [(HEAD, "    return k == NULL || k->kind == KEY_SERVICE ? NULL : k;", "    return k;")],
     ["capture", "dialects"]),
    ("capture-key-of-another-project", "a service key writes into any project",
     [(HEAD, "    if (named == NULL || of_key->id != named->id) {", "    if (named == NULL) {")],
     ["dialects"]),
    ("capture-scope-not-checked", "a key without events:write writes events",
     [(HEAD, "(k->scopes & SCOPE_EVENTS_WRITE) == 0", "k->scopes == 0")],
     ["dialects"]),
    ("capture-no-key-at-all", "events without a key of ours go to the first project",
     [("src/door/capture/finish.c", "    if (k == NULL) {\n        return err_set(e, ERR_UNAUTHORIZED, \"the key is not one of a project here\");\n    }\n"
       "    return keep_project(b, project, k, e);",
       "    static const struct key nobody = {.name = \"default\"};\n"
       "    return keep_project(b, k != NULL ? project : control_project_at(b->c->control, 0), k != NULL ? k : &nobody, e);")],
     ["capture"]),
    ("capture-gzip-bomb", "a small body may unpack to anything",
     [("src/door/capture/decode_gzip.c", "        .limit = bytes_max < bound ? bytes_max : bound,", "        .limit = (uint64_t)1 << 33,")],
     ["gzip"]),
    ("capture-no-cors-on-errors", "a browser takes every refusal for a broken network",
     [("src/http/answer.c", "    if (req->route != NULL && req->route->cors) {", "    if (req->route != NULL && req->route->cors && status < 400) {")],
     ["cors"]),
    ("status-tells-errors-of-others", "a project whose events are delivered sees the trouble of another one",
     [("src/door/manage/api_status.c", "    if (st->pending != 0 && d->error[0] != '\\0') {", "    if (d->error[0] != '\\0') {")],
     ["api status"]),
    # ---- delivery ----
    ("delivery-recorded-before-the-answer", "payloads are deleted before the far side has them",
     [(SEND, "    ensure(b->rows.count != 0);\n    struct record *rec = record_new(k, b->rows.row, b->rows.count);\n",
       "    ensure(b->rows.count != 0);\n    struct record *rec = record_new(k, b->rows.row, b->rows.count);\n"
       "    record_take(k, record_new(k, b->rows.row, b->rows.count), NULL);\n")],
     ["runner"]),
    ("delivery-200-with-an-exception", "an error behind a status 200 counts as delivered",
     [(VERDICT, "    if (code != 0) {\n        judge_code(a, code, r);", "    if (code != 0 && a->status != 200) {\n        judge_code(a, code, r);"),
      (VERDICT, "    } else if (a->body.len != 0) {\n", "    } else if (a->body.len != 0 && code == 0) {\n")],
     ["verdict"]),
    ("delivery-200-with-a-body", "a body where none belongs counts as delivered",
     [(VERDICT, "    } else if (a->body.len != 0) {\n", "    } else if (a->body.len != 0 && count == 0) {\n")],
     ["verdict"]),
    ("delivery-cut-answer", "an answer that was cut counts as delivered",
     [(VERDICT, "    set(r, a->sent ? SINK_UNKNOWN : SINK_RETRY, 0, a->sent ? 0 : PREPARE);\n",
       "    set(r, a->sent ? SINK_UNKNOWN : SINK_RETRY, 0, a->sent ? 0 : PREPARE);\n    if (a->status == 200) {\n"
       "        set(r, SINK_DELIVERED, 0, 0);\n        return;\n    }\n")],
     ["verdict"]),
    ("delivery-fewer-rows-written", "an insert that wrote fewer rows counts as delivered",
     [(VERDICT, "\"written_rows\", &written) && written < count) {", "\"written_rows\", &written) && written > (UINT64_MAX >> 1)) {")],
     ["verdict"]),
    ("delivery-cursor-drops-a-failed-batch", "a batch that failed is passed by for good",
     [(SEND, "    struct record *rec = record_new(k, NULL, 0);\n", "    struct record *rec = record_new(k, k->batch.rows.row, k->batch.rows.count);\n")],
     ["runner"]),
    ("delivery-retry-with-other-rows", "an insert with an unknown outcome is not repeated as it was",
     [(SEND, "    } else if (b->tries >= BATCH_TRIES_MAX && !r->prepare) {\n        let_go(k, r);", "    } else {\n        batch_thaw(k);")],
     ["runner", "delivery"]),
    ("delivery-without-waiting", "ClickHouse may answer before an insert is written",
     [(SINK, "    X(\"async_insert\", \"0\")                     \\\n    X(\"wait_for_async_insert\", \"1\")            \\\n", "")],
     ["verdict", "delivery"]),
    ("delivery-another-receipt-time", "a retry changes the receipt time, and with it the partition",
     [(ENCODE, "    put_time(out, us_of_ms(ev->received_ms), 3);\n", "    put_time(out, (int64_t)os_clock_real_ms() * 1000, 3);\n"),
      (ENCODE, "#include \"json/write.h\"\n", "#include \"json/write.h\"\n#include \"os/os.h\"\n")],
     ["encode"]),
    ("delivery-another-revision", "an original takes a revision of its own and hides corrections",
     [(ENCODE, "\"\\\",\\\"revision\\\":0,\\\"is_deleted\\\":0,", "\"\\\",\\\"revision\\\":1,\\\"is_deleted\\\":0,")],
     ["encode"]),
    # ---- the engine ----
    ("engine-repeats-are-two-events", "a row that was sent twice is two events",
     [(SCHEMA, "ENGINE = ReplacingMergeTree(revision, is_deleted) PARTITION", "ENGINE = MergeTree PARTITION")],
     ["lost answer"]),
    ("engine-insert-not-synced", "an insert is answered while its files are in the page cache",
     [(SCHEMA, "SETTINGS fsync_after_insert = 1,", "SETTINGS fsync_after_insert = 0,")],
     ["engine disk"]),
    ("engine-name-not-synced", "the name of an inserted part is not synced before the answer",
     [("src/engine/run.c", "        r = os_sync_dir(q->sync_dir);\n", "        r = 0;\n")],
     ["engine disk"]),
    ("engine-merge-not-synced", "a merged part replaces its sources before it is on the disk",
     [(SCHEMA, "\"min_rows_to_fsync_after_merge = 1, min_compressed_bytes_to_fsync_after_merge = 1, \"", "\"\"")],
     ["engine disk"]),
    ("engine-self-test-ignored", "queries of projects are open though isolation was not proven",
     [(BOOT, "    engine->open = false;\n    (void)snprintf", "    engine->open = true;\n    (void)snprintf")],
     ["engine locks"]),
    ("engine-no-row-policy", "the view is the only lock between projects",
     [("src/engine/files.c", "<filter>project = getSetting('log_comment')</filter>", "<filter>1</filter>")],
     ["engine locks"]),
    ("engine-no-isolation", "a project sees the events of all",
     [("src/engine/files.c", "<filter>project = getSetting('log_comment')</filter>", "<filter>1</filter>"),
      (BOOT, "    \"WHERE is_deleted = 0 AND project = getSetting('log_comment') COMMENT '\"", "    \"WHERE is_deleted = 0 COMMENT '\"")],
     ["isolation"]),
    ("engine-outlives-its-server", "kill -9 of the server leaves an engine that holds its files",
     [("src/engine/tallyman_engine.c", "    http_stop(p->server);\n    return end_later(NULL);", "    return NULL;")],
     ["engine ends"]),
    # ---- uploads and their receipts ----
    ("upload-no-fdatasync", "an offset is told before its bytes are synced",
     [(UPLOAD + "write.c", "    int r = os_fdatasync(u->fd);\n", "    int r = 0;\n")], ["crash artifact"]),
    ("upload-no-state-sync", "an offset is told before its state is synced",
     [(UPLOAD + "state.c", "    r = os_fdatasync(u->state_fd);\n", "    r = 0;\n")], ["crash artifact"]),
    ("upload-no-name-sync", "an id is told before its names are synced",
     [(UPLOAD + "info.c", "    r = os_sync_dir(us->uploads);\n", "    r = 0;\n")], ["crash artifact"]),
    ("upload-failed-state-stays", "a save that failed is left as it is when the bytes are cut",
     [(UPLOAD + "write.c", "    if (u->state_dirty) {", "    if (false) {")], ["crash artifact"]),
    ("upload-no-slot-checksum", "a torn slot of the saved state counts",
     [(UPLOAD + "state.c", "        get_le(slot + AT_CRC, 4) != crc32c(0, slot, AT_CRC) ||\n", "")],
     ["upload open", "crash artifact"]),
    ("upload-tail-stays", "unsynced bytes are not cut after a crash",
     [(UPLOAD + "open.c", "    return st.size > saved.offset ? cut_sync(u, saved.offset, e) : 0;", "    return 0;")],
     ["upload open"]),
    ("receipt-no-byte-sync", "a receipt before its bytes are synced",
     [(UPLOAD + "accept.c", "        r = os_fdatasync(p->bytes);", "        r = 0;")], ["crash artifact"]),
    ("receipt-no-file-sync", "a receipt is renamed into place before it is synced",
     [(UPLOAD + "accept.c", "        r = os_fdatasync(p->receipt);", "        r = 0;")], ["crash artifact"]),
    ("receipt-no-directory-sync", "a receipt is told before its name is synced",
     [(UPLOAD + "receipt.c", "        r = os_sync_dir(us->receipts);", "        r = 0;")], ["crash artifact"]),
    ("receipt-seen-too-early", "a stranger is told of a receipt that is not synced yet",
     [(UPLOAD + "receipt.c", "    if (upload_mark_has(us, name, UPLOAD_MARK_RECEIPT, NULL)) {", "    if (false) {")],
     ["crash artifact"]),
    ("receipt-doubtful-bytes-cut", "bytes are cut though the device may hold their receipt",
     [(UPLOAD + "accept.c", "    if (u->receipt_doubtful) {", "    if (false) {")], ["crash artifact"]),
    ("receipt-believed-at-start", "a start believes names that a killed process did not sync",
     [("src/store/artifact/upload.c", "            r = os_sync_dir(dirs[i]);", "            r = 0;")],
     ["crash artifact"]),
]
