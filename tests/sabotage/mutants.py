"""Builds with one protection removed each, and the suite that has to notice (scripts/sabotage, RELIABILITY L10).

SUITES: name -> (make targets, command, what its output must hold when it is the suite that has found something).
A mutant: name, what is lost, the edits (file, old text, new text; the old text must be there exactly once), the suites that
may kill it, the most likely one first.
"""

PYTEST = ["PYTHON", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
SERVER = ["build/tallyman"]


def pytest(*words):
    return SERVER, [*PYTEST, *words], r"^(FAILED|ERROR) "


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
}

COMMIT = "src/journal/append.c"
ROTATE = "src/journal/rotate.c"
SPARE = "src/journal/spare.c"
OPEN = "src/journal/open.c"
RECOVER = "src/journal/recover.c"
SCAN = "src/journal/scan.c"
DOOR = "src/door/history/append.c"


def sync_dir(which, what):
    return f"    r = os_sync_dir(j->layout.{which});\n    if (r < 0) {{\n        return poisoned(j, r, \"sync\", \"{what}\", e);"


JOURNAL_DIR = sync_dir("journal", "the journal directory")
RENAME_SPARE = "    r = os_rename(j->layout.spare, j->layout.tail);\n"

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
]
