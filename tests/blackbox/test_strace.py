"""Failing system calls under the release binary, by strace: what the client sees, what stays on the disk, what comes back.

Each test says in one sentence what it proves. Faults are injected into the running binary or into one that is started under
strace; nothing is rebuilt. `retval` makes a call a lie (success that was not done), `error` makes it fail without being done.
"""
import concurrent.futures
import http.client
import json
import os
import random
import re
import shutil
import time

import pytest
from conftest import batch, event, replay_all, verify
from ledger import NDJSON, Wire
from tracer import Attached, parse, wrapper
from world import SMALL, World, assert_not_done, wait_ready

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


@pytest.fixture
def world(make_server, workdir):
    made = World(make_server, workdir)
    yield made
    made.ledger.close()


def assert_poisoned(server, acknowledged):
    """It stays up, says so, takes nothing more, and shows what was acknowledged and no more."""
    assert server.get("/healthz").status == 200
    ready = server.get("/readyz")
    assert ready.status == 503 and ready.json["cause"] == "writer_poisoned"
    assert server.metric("tallyman_journal_poisoned") == 1
    answer = server.append(batch("after the poison"))
    assert answer.status == 503 and answer.json["error"] == "writer_poisoned"
    shown = replay_all(server)
    assert sum(len(sent.batch["events"]) for sent in acknowledged) == len(shown)
    assert [(e["source"], e["batch_id"]) for e in shown] == \
        [sent.key for sent in acknowledged for _ in sent.batch["events"]]


# ---- syncs that fail ----

@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EDQUOT", "EROFS"])
def test_R7_L47_when_every_sync_fails_no_answer_says_success(world, error):
    """Proves: with all syncs failing nothing is ever acknowledged, and the server says why instead of going on (beanstalkd)."""
    server = world.make()
    before = [world.new(), world.new(3)]
    for sent in before:
        world.append(sent)
    with world.attached(f"fdatasync:error={error}", f"fsync:error={error}") as fault:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            sent = [world.new() for _ in range(40)]
            answers = list(pool.map(lambda s: world.ledger.append(server, s), sent))
        for answer in answers:
            assert_not_done(answer)
        # Not even a repeat of what is durable, nor a conflict with it: the writer has stopped.
        assert_not_done(server.append(before[0].body))
        assert_not_done(server.append(json.dumps({**before[0].batch, "events": [event(99)]})))
        assert_poisoned(server, before)
    assert len(fault.calls("fdatasync")) == 1, "a sync was tried again after it had failed"
    assert_poisoned(server, before)
    world.restart()


@pytest.mark.parametrize("k", [1, 2, 12])
def test_L47_one_failed_sync_is_never_tried_again(world, k):
    """Proves: after the k-th sync alone fails, all before it stays, nothing after it is acknowledged, though syncs would work."""
    # Only the journal's: the queue beside it syncs files of its own when it is opened.
    server = world.make(injects=[f"fdatasync:error=EIO:when={k}"], paths=[world.workdir / "data" / "journal" / "tail.ndjson"])
    before = [world.new(2) for _ in range(k - 1)]
    for sent in before:
        world.append(sent)
    for _ in range(5):
        assert_not_done(world.append(want=503))
    assert_poisoned(server, before)
    assert server.stop() == 0
    syncs = parse(world.traced, "fdatasync")
    assert len(syncs) == k and len({call.fd for call in syncs}) == 1
    writes = [call for call in parse(world.traced, "pwrite64", "ftruncate", "fsync")
              if call.fd == syncs[0].fd and call.begin > syncs[-1].begin]
    assert writes == [], "the file was touched after its sync had failed"
    again, _ = world.restart()
    assert again == 5


def test_L47_a_failed_write_is_no_answer(world):
    """Proves: EIO from the write itself is neither success nor a definite refusal, and the retry after a restart settles it."""
    server = world.make()
    world.append()
    with world.attached("pwrite64:error=EIO", paths=[world.tail()]):
        assert_not_done(world.append(want=503))
    assert_not_done(world.append(want=503))
    assert server.get("/v1/events").json["snapshot"]["frontier_event_count"] == 1
    again, there = world.restart()
    assert (again, there) == (2, 0)


# ---- order of syncs and answers ----

def check_order(trace):
    """Every receipt in the trace left after the sync of the bytes that hold its events had returned. Receipts and syncs."""
    writes, syncs, receipts = {}, [], 0
    for call in sorted(parse(trace, "pwrite64", "fdatasync", "sendmsg", "sendto", "write", "writev"), key=lambda c: c.begin):
        if call.name == "pwrite64":
            assert call.result is not None
            for event_id in re.findall(r'\\"event_id\\":\\"(' + UUID + ")", call.args):
                writes[event_id] = call
        elif call.name == "fdatasync":
            assert call.result == 0
            syncs.append(call)
        else:
            for first, last in re.findall(r'\\"first_event_id\\":\\"(' + UUID + r')\\",\\"last_event_id\\":\\"(' + UUID + ")",
                                          call.args):
                receipts += 1
                for write in (writes[first], writes[last]):
                    done = [s for s in syncs if s.fd == write.fd and s.begin > write.end and s.end < call.begin]
                    assert done, f"the receipt for {first} left before the sync of its bytes had returned"
    return receipts, len(syncs)


def test_L08_an_answer_leaves_after_its_sync_returned_one_at_a_time(world):
    """Proves: n acknowledged appends, one after the other, cost at least n syncs, each of which returned before its answer left."""
    server = world.make(*SMALL, start=False)
    trace = world.trace()
    server.wrapper = wrapper(trace, text=1000000)
    server.start()
    n = 40
    for i in range(n):
        world.append(world.new(1 + i % 3))
    again = world.new()
    world.append(again)
    world.append(again)  # a duplicate: its original is long durable
    assert server.stop() == 0
    receipts, syncs = check_order(trace)
    assert receipts == n + 2
    assert syncs >= n + 1


def test_L08_an_answer_leaves_after_its_sync_returned_many_at_once(world):
    """Proves: with pipelining and many clients, groups share syncs, and still no receipt leaves before the sync of its bytes."""
    server = world.make(*SMALL, start=False)
    trace = world.trace()
    server.wrapper = wrapper(trace, text=1000000)
    server.start()
    shared = world.new()

    def client(i):
        wire = Wire(server)
        for _ in range(6):
            group = [world.new() for _ in range(8)] + [shared]
            for sent in group:
                world.ledger.sending(sent)
            wire.post(*[sent.body for sent in group])
            for sent in group:
                status, _, answer = wire.answer()
                assert status == 200
                world.ledger.answered(sent, status, answer)
        wire.close()
        return i

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(client, range(6))) == list(range(6))
    world.history.extend(server)
    world.history.settle()
    assert server.stop() == 0
    receipts, syncs = check_order(trace)
    assert receipts == 6 * 6 * 9
    assert 0 < syncs < receipts


def test_L08_refusals_of_the_writer_wait_for_the_sync_too(world):
    """Proves: duplicate, conflict and frontier conflict, decided against a batch in flight, are not told before its sync."""
    server = world.make()
    first = batch("first", event(1, stream="p"))
    bodies = [first, first, batch("first", event(2, stream="p")),
              batch("other", event(3, stream="p"), stream_precondition={"stream": "p", "expected_frontier": None})]
    with world.attached("fdatasync:delay_exit=700000"):
        wire = Wire(server)
        begun = time.monotonic()
        wire.post(*[json.dumps(b).encode() for b in bodies])
        answers = []
        for _ in bodies:
            answers.append(wire.answer())
            assert time.monotonic() - begun >= 0.65
        wire.close()
    assert [status for status, _, _ in answers] == [200, 200, 409, 409]
    assert [a.get("status", a.get("error")) for _, _, a in answers] == \
        ["committed", "duplicate", "batch_id_conflict", "stream_frontier_conflict"]
    # And if that sync fails, none of them may have been told.
    with world.attached("fdatasync:error=EIO"):
        wire = Wire(server)
        wire.post(*[json.dumps({**b, "batch_id": "x" + b["batch_id"],
                                **({"stream_precondition": {"stream": "p2", "expected_frontier": None},
                                    "events": [event(3, stream="p2")]} if "stream_precondition" in b else
                                   {"events": [event(b["events"][0]["payload"]["n"], stream="p2")]})}).encode()
                    for b in bodies])
        for _ in bodies:
            status, _, answer = wire.answer()
            assert status == 503 and answer["error"] == "writer_poisoned"
        wire.close()


def test_a_slow_sync_makes_answers_wait_and_groups_grow(world):
    """Proves: while a sync takes 2 s nobody is answered, and all that arrives meanwhile shares the next sync."""
    server = world.make()
    world.append()
    groups = server.metric("tallyman_journal_groups_total")
    waiting = [Wire(server) for _ in range(6)]
    sent = [world.new() for _ in waiting]
    with world.attached("fdatasync:delay_exit=2000000") as fault:
        for s in sent:
            world.ledger.sending(s)
        begun = time.monotonic()
        waiting[0].post(sent[0].body)
        time.sleep(0.5)
        for wire, s in zip(waiting[1:], sent[1:]):
            wire.post(s.body)
        took = []
        for wire, s in zip(waiting, sent):
            status, _, answer = wire.answer()
            took.append(time.monotonic() - begun)
            world.ledger.answered(s, status, answer)
            assert status == 200
            wire.close()
    assert took[0] >= 1.9 and min(took[1:]) >= 3.8, took
    assert len(fault.calls("fdatasync")) == 2, [(call.time_s, call.outcome) for call in fault.calls("fdatasync")]
    assert server.metric("tallyman_journal_groups_total") == groups + 2
    world.restart()


# ---- short and lying writes ----

def test_a_short_write_is_completed(world):
    """Proves: when the kernel says it took fewer bytes, the rest is written behind them before the sync; and since strace's short
    write is a lie (those bytes never reached the file), that the missing bytes are seen: never a wrong event, never ok."""
    server = world.make()
    before = [world.new(), world.new()]
    for sent in before:
        world.append(sent)
    data_end = sum(server.metric(m) for m in ("tallyman_journal_bytes",))
    with world.attached("pwrite64:retval=100:when=1", paths=[world.tail()]) as fault:
        world.append(world.new(3))
    first, second = fault.calls("pwrite64")
    sync = fault.calls("fdatasync")[0]
    size, offset = (int(word) for word in first.args.rsplit(", ", 2)[-2:])
    assert offset == data_end and first.result == 100
    assert [int(word) for word in second.args.rsplit(", ", 2)[-2:]] == [size - 100, offset + 100]
    assert second.result == size - 100 and second.end < sync.begin
    # The disk lied: 100 bytes of the batch are zeros. A replay ends there: what is before it and an error, never an invention.
    *events, last = server.get("/v1/events?limit=1000", headers=NDJSON).lines
    assert [e["batch_id"] for e in events] == [s.batch["batch_id"] for s in before]
    assert last["type"] == "error" and last["error"] == "internal_error", last
    with pytest.raises(http.client.IncompleteRead):
        server.get("/v1/events?limit=1000")
    # With proven batches of later groups behind it, it is damage: found, located, and nothing is changed.
    server.append(batch("behind 1"))
    server.append(batch("behind 2"))
    report = verify(server.data)
    assert not report["ok"] and report["failure"]["code"] == "tail_invalid", report
    assert report["failure"]["offset"] == data_end
    server.kill()
    bytes_before = world.tail().read_bytes()
    server.start()
    assert world.tail().read_bytes() == bytes_before
    ready = server.get("/readyz")
    assert ready.status == 503 and f"byte {data_end}" in ready.json["detail"]
    assert [e["batch_id"] for e in replay_all(server)] == [s.batch["batch_id"] for s in before]
    assert_not_done(server.append(batch("more")))


def test_a_write_without_progress_is_an_error(world):
    """Proves: a write that takes nothing and gives no reason is not tried for ever; it stops the writer."""
    server = world.make()
    world.append()
    with world.attached("pwrite64:retval=0", paths=[world.tail()]):
        assert_not_done(world.append(want=503))
    assert server.get("/readyz").json["cause"] == "writer_poisoned"
    world.restart()


# ---- no space ----

@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
def test_L14_no_space_in_the_commit_is_told_undone_and_passes(world, error):
    """Proves: out of space in the commit is a definite 429 with nothing stored, reads go on, and intake comes back by itself."""
    server = world.make()
    before = [world.new(2) for _ in range(3)]
    for sent in before:
        world.append(sent)
    refused = [world.new() for _ in range(6)]
    first_of_stream = world.new(stream="q")
    with world.attached(f"pwrite64:error={error}", paths=[world.tail()]):
        for sent in refused:
            answer = world.append(sent, want=429)
            assert answer.json["error"] == "overloaded" and answer.headers["retry-after"] == "60"
            time.sleep(0.25)  # past the pause in which the disk is not even tried
        world.append(first_of_stream, want=429)
        ready = server.get("/readyz")
        assert ready.status == 503 and ready.json["cause"] == "no_space"
        assert server.metric("tallyman_journal_no_space") == 1
        assert len(replay_all(server)) == 6
        assert verify(server.data)["ok"]
        world.history.extend(server)
        world.history.settle()
    wait_ready(server)
    # Nothing of it counts: neither its key nor that its stream has begun.
    late = world.new(stream="q", stream_precondition={"stream": "q", "expected_frontier": None})
    frontier = world.append(late).json["last_event_id"]
    world.append(world.new(stream="q", stream_precondition={"stream": "q", "expected_frontier": frontier}))
    for sent in [*refused, first_of_stream]:
        assert world.append(sent).json["status"] == "committed"
    assert server.metric("tallyman_journal_no_space") == 0
    assert "there is space again" in server.log
    world.restart()


def test_L14_no_space_for_a_while_by_count(world):
    """Proves: with a few writes failing for want of space and all others working, each batch is either a receipt or a 429."""
    server = world.make(injects=["pwrite64:error=ENOSPC:when=400..403"], *SMALL)
    seen = set()
    for _ in range(420):
        sent = world.new()
        answer = world.ledger.append(server, sent)
        assert answer.status in (200, 429), answer.body
        seen.add(answer.status)
        while answer.status == 429:
            wait_ready(server)
            answer = world.ledger.append(server, sent)
    assert seen == {200, 429}
    world.history.extend(server)
    world.history.settle()
    assert not world.ledger.open
    world.restart()


def test_L14_no_space_for_the_next_generation(world):
    """Proves: when the next file cannot be made for want of space, appends get 429 when the present one is full, and come back."""
    server = world.make(*SMALL)
    world.append()
    spare = server.data / "journal" / "tail.next"
    turned_away = None
    # The spare of the next rotation exists already, so two rotations are needed.
    with world.attached("pwrite64:error=ENOSPC", paths=[spare]):
        for _ in range(100):
            sent = world.new(4, 500)
            answer = world.ledger.append(server, sent)
            if answer.status == 429:
                turned_away = sent
                break
            assert answer.status == 200
        assert turned_away is not None
        assert answer.headers["retry-after"] == "60"
        assert server.get("/readyz").json["cause"] == "no_space"
        assert len(replay_all(server)) == server.metric("tallyman_journal_events")
        assert len(list((server.data / "journal" / "pending").iterdir())) == 1
        time.sleep(1.5)  # the tick tries again, and fails again
        assert server.get("/readyz").json["cause"] == "no_space"
    wait_ready(server)
    assert world.append(turned_away).json["status"] == "committed"
    world.restart(stop="kill")


# ---- rotation ----

def fill_until_it_fails(world, limit=150):
    for _ in range(limit):
        answer = world.ledger.append(world.server, world.new(4, 700))
        if answer.status != 200:
            assert_not_done(answer)
            return
    raise AssertionError("the fault was never met")


@pytest.mark.parametrize("path, inject", [
    ("journal/pending", "fsync:error=EIO"),
    ("journal", "fsync:error=EIO:when=1"),
    ("journal", "fsync:error=EIO:when=2"),
    ("journal", "fsync:error=EIO:when=3"),
    ("journal", "openat:error=EMFILE"),
    ("journal/pending", "openat:error=EIO"),
    ("journal/tail.ndjson", "fsync:error=EIO"),
    ("journal/tail.ndjson", "ftruncate:error=EIO"),
    ("journal/tail.ndjson", "rename:error=EIO:when=1"),
    ("journal/tail.ndjson", "rename:error=EIO:when=2"),
    ("journal/tail.ndjson", "rename:error=EACCES:when=2"),
    ("journal/tail.next", "fsync:error=EIO"),
    ("journal/tail.next", "pwrite64:error=EIO"),
    ("journal/tail.next", "openat:error=EACCES"),
])
def test_L47_a_failure_in_the_rotation_stops_the_writer(world, path, inject):
    """Proves: any failing step of closing a generation ends acknowledgements, loses none given, and a restart mends it."""
    server = world.make(*SMALL)
    world.append()
    with world.attached(inject, paths=[server.data / path]) as fault:
        fill_until_it_fails(world)
    assert any(call.injected for call in fault.calls())
    acknowledged = [sent for sent in world.ledger.open if sent.receipt is not None]
    assert_poisoned(server, acknowledged)
    world.restart()
    fill_some(world)


def fill_some(world):
    for _ in range(60):
        world.append(world.new(4, 700))
    world.history.extend(world.server)
    world.history.settle()


def steps_of(calls, journal):
    """What a thread did to the journal's files, in words."""
    names, steps, trimmed = {}, [], None  # names: descriptor -> path, as this thread opened it
    for call in calls:
        if call.name == "openat" and call.result is not None and call.result >= 0:
            names[call.result] = re.search(r'"([^"]*)"', call.args)[1]
            if names[call.result].endswith(("tail.next", "tail.ndjson")):
                steps.append("open " + os.path.basename(names[call.result]))
        elif call.name == "rename":
            old, new = re.findall(r'"([^"]*)"', call.args)
            if old.startswith(journal):
                assert new.startswith(journal)
                steps.append("rename " + os.path.basename(old))
        elif call.name == "ftruncate":
            trimmed = call.fd
        elif call.name == "fsync" and call.fd == trimmed:
            steps.append("trimmed and synced")
            trimmed = None
        elif call.name == "fdatasync":
            steps.append("commit")
        elif call.name != "openat" and names.get(call.fd, "").startswith(journal):
            what = {"fsync": "sync", "pwrite64": "write", "pread64": "read", "fadvise64": "drop the cache of"}[call.name]
            step = f"{what} {os.path.basename(names[call.fd])}"
            if not steps or steps[-1] != step:
                steps.append(step)
    return steps


DISK_CALLS = ("openat", "rename", "fsync", "fdatasync", "ftruncate", "pwrite64", "pread64", "fadvise64")


def test_syncs_of_a_rotation_are_in_their_order(world):
    """Proves: the next tail is durable before it is taken, and nothing is acknowledged from it before the close of the old one and its
    own name are durable."""
    server = world.make(*SMALL, start=False)
    trace = world.trace()
    server.wrapper = wrapper(trace)
    server.start()
    fill_some(world)
    assert server.stop() == 0
    journal = str(server.data / "journal")
    loop = server_thread(trace)
    calls = parse(trace, *DISK_CALLS)
    steps = [step for step in steps_of([c for c in calls if c.pid == loop], journal) if not step.startswith(("write", "read"))]
    rotations = [i for i, step in enumerate(steps) if step == "rename tail.ndjson"]
    assert len(rotations) >= 2
    for i in rotations:
        assert steps[i - 1:i + 6] == ["trimmed and synced", "rename tail.ndjson", "sync pending", "sync journal",
                                      "rename tail.next", "sync journal", "commit"], steps[i - 2:i + 7]
    opened = next(c for c in calls if c.name == "openat" and "tail.next" in c.args)
    spares = steps_of([c for c in calls if c.pid == opened.pid], journal)
    made = [i for i, step in enumerate(spares) if step == "open tail.next"]
    assert len(made) >= len(rotations)
    for i in made:
        assert spares[i:i + 4] == ["open tail.next", "write tail.next", "sync tail.next", "sync journal"], spares[i:i + 5]


def test_a_start_believes_only_the_device(world):
    """Proves: what the last process left in the page cache is synced, and the cache dropped, before a byte of the tail is believed."""
    server = world.make(*SMALL)
    world.append()
    server.kill()
    _, trace = start_under(world, "fdatasync:error=EIO:when=60000")
    steps = steps_of(parse(trace, *DISK_CALLS), str(server.data / "journal"))
    believed = steps.index("drop the cache of manifest.jsonl")
    assert "read manifest.jsonl" not in steps[:believed], steps
    tail = [step for step in steps[steps.index("open tail.ndjson"):] if step != "read manifest.jsonl"]
    assert tail[:6] == ["open tail.ndjson", "sync tail.ndjson", "sync pending", "sync journal", "drop the cache of tail.ndjson",
                        "read tail.ndjson"], steps


def server_thread(trace):
    return parse(trace, "fdatasync")[0].pid


# ---- descriptors ----

@pytest.mark.parametrize("error", ["EMFILE", "ENFILE", "ENOBUFS"])
def test_L14_out_of_descriptors_in_accept(world, error):
    """Proves: when accept fails for want of descriptors, open connections go on, the loop does not spin, and new ones come later."""
    server = world.make()
    world.append()
    wire = Wire(server)
    begun = time.monotonic()
    with world.attached(f"accept4:error={error}") as fault:
        late = Wire(server)  # the kernel completes the connection; nobody takes it
        late.post(json.dumps(batch("late")).encode())
        late.sock.settimeout(1.5)
        with pytest.raises(TimeoutError):
            late.answer()
        for i in range(5):
            wire.post(json.dumps(batch(f"open{i}")).encode())
            assert wire.answer()[0] == 200
        assert 1 <= len(fault.calls("accept4")) <= 4 + 2 * (time.monotonic() - begun)
    late.sock.settimeout(10)
    assert late.answer()[0] == 200
    assert server.metric("tallyman_http_accept_errors_total") >= 1
    late.close()
    wire.close()


# ---- reads ----

def test_a_read_that_fails_is_told_and_passes(world):
    """Proves: EIO from a closed generation is an error to its readers and never the end of the history, appends go on beside it, and
    when the fault has gone so has the error."""
    server = world.make(*SMALL)
    fill_some(world)
    closed = sorted((server.data / "journal" / "pending").iterdir())
    assert len(closed) >= 2
    with world.attached("pread64:error=EIO", paths=closed[:1]) as fault:
        last = json.loads(server.get("/v1/events?limit=1000", headers=NDJSON).body.splitlines()[-1])
        assert (last["type"], last["error"]) == ("error", "internal_error")
        with pytest.raises(http.client.IncompleteRead):
            server.get("/v1/events?limit=1000")
        behind = server.get(f"/v1/events?limit=1000&after={closed[0].stem[37:]}")
        assert behind.status == 200 and behind.json["events"], "what can be read is read"
        world.append()
    assert any(call.injected for call in fault.calls("pread64"))
    world.history.extend(server)
    world.history.settle()
    world.restart()


# ---- start ----

def torn_directory(world):
    """A directory with closed generations, as a kill leaves it, with half a record behind the last batch (as L23 has it)."""
    server = world.make(*SMALL)
    for _ in range(45):
        world.append(world.new(3, 700))
    world.history.extend(server)
    world.history.settle()
    server.kill()
    tail = world.tail().read_bytes()
    lines = tail.rstrip(b"\0")
    cut = tail[:len(lines)].rsplit(b"\n", 2)[-2]  # the last line, without its LF
    half = cut[:len(cut) // 2]
    with open(world.tail(), "r+b") as file:
        file.seek(len(lines))
        file.write(half)
    kept = world.workdir / "as it lay"
    shutil.copytree(server.data, kept, ignore=shutil.ignore_patterns("*.sock"))
    return kept


def lay_again(world, kept):
    shutil.rmtree(world.server.data, ignore_errors=True)
    shutil.copytree(kept, world.server.data)


def start_under(world, *injects, paths=()):
    """Starts under faults until it has ended or can be asked. The exit code, or None; and the trace."""
    server = world.server
    trace = world.trace()
    server.log_path.write_text("")
    server.wrapper = wrapper(trace, *injects, paths=paths)
    server.start(wait=False)
    end = time.monotonic() + 20
    while server.process.poll() is None and time.monotonic() < end:
        try:
            if server.get("/healthz", timeout=2).status == 200:
                break
        except OSError:
            time.sleep(0.01)
    code = server.process.poll()
    if code is not None:
        server.process.wait(10)
        server.process = None
    return code, trace


def any_injected(trace):
    # A call that kills does not return.
    return any(call.injected for call in parse(trace))


@pytest.mark.parametrize("call, error", [
    ("fsync", "EIO"), ("pread64", "EIO"), ("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("ftruncate", "EIO"),
    ("openat", "EIO"), ("openat", "EMFILE"), ("openat", "ENOSPC"), ("unlink", "EIO"), ("mkdir", "EIO"), ("mkdir", "ENOSPC"),
    ("flock", "EIO"), ("fsync", "ENOSPC")])
def test_L23_a_failure_at_start_up_is_told_and_harms_nothing(world, call, error):
    """Proves: whichever call of a start fails (each in turn), the start either works or ends with exit 1 and a message, and the next
    start without faults has everything that was acknowledged."""
    kept = torn_directory(world)
    # What the loader does before our first call is no business of ours.
    _, trace = start_under(world, f"{call}:error={error}:when=60000")
    world.server.kill()
    lock = next(c for c in parse(trace, "openat") if str(world.server.data / "lock") in c.args)
    first = 1 + sum(c.begin < lock.begin for c in parse(trace, call) if c.pid == lock.pid)
    met = 0
    for n in range(first, first + 200):
        lay_again(world, kept)
        code, trace = start_under(world, f"{call}:error={error}:when={n}")
        if world.server.process is not None:
            world.server.kill()
        if not any_injected(trace):
            break
        met += 1
        if code is not None:
            assert code == 1, (n, code, world.server.log)
            assert "tallyman" in world.server.log, world.server.log
            assert "ensure" not in world.server.log
        if n < first + 3 or n % 3 == 0:
            world.restart(stop="kill")
            world.server.kill()
    else:
        raise AssertionError("there is no end of calls")
    assert met >= 1
    print(f"{call} {error}: {met} places")


def test_L16_L23_a_torn_tail_is_recovered_without_any_space(world):
    """Proves: opening existing data never needs new space: with every write of the start refused it starts, cuts the half record,
    shows everything acknowledged, and answers appends that do not fit with 429 until there is space."""
    torn_directory(world)
    code, _ = start_under(world, "pwrite64:error=ENOSPC")
    assert code is None, world.server.log
    world.history.extend(world.server)
    sent = world.new()
    answer = world.append(sent, want=429)
    assert answer.headers["retry-after"] == "60"
    world.server.kill()
    world.restart()
    assert sent.receipt is not None


# ---- killed at a chosen call ----

def kill_points(world, kept, calls, drive, step):
    """For each call and count: lays the directory, drives the server into the kill, judges, recovers, asks the oracle."""
    points = 0
    for call in calls:
        for n in range(1, 400, step):
            if kept is not None:
                lay_again(world, kept)
            killed = drive(call, n)
            if world.server.process is not None:
                world.server.kill()
            if not killed:
                break
            points += 1
            world.restart(stop="kill")
            world.server.kill()
    return points


def test_kill_at_each_call_of_recovery(world):
    """Proves: recovery may itself be killed at any of its changes and syncs; the next one comes to the same history."""
    kept = torn_directory(world)

    def drive(call, n):
        code, _ = start_under(world, f"{call}:signal=SIGKILL:when={n}")
        return code == -9

    points = kill_points(world, kept, ("pwrite64", "fsync", "ftruncate", "unlink", "mkdir"), drive, 1)
    assert points >= 10
    print(f"{points} points")


def test_kill_at_each_call_of_a_clean_stop(world):
    """Proves: a clean stop may be killed at any of its changes and syncs."""
    points = 0
    for call in ("ftruncate", "fsync", "unlink", "rename", "pwrite64", "close"):
        for n in range(1, 12):
            if world.server is None or world.server.process is None:
                if world.server is None:
                    world.make(*SMALL)
                else:
                    world.server.start()
            for _ in range(3):
                world.append()
            if call in ("fsync", "unlink"):
                wait_for_spare(world.server)
            with Attached(world.server, world.trace(), f"{call}:signal=SIGKILL:when={n}", calls="ftruncate,fsync,unlink,rename,"
                          "pwrite64,close"):
                world.server.process.terminate()
                code = world.server.process.wait(20)
            world.server.process = None
            assert code in (0, -9)
            if code == 0:
                break
            points += 1
            world.restart()
    assert points >= 5
    print(f"{points} points")


def wait_for_spare(server):
    end = time.monotonic() + 10
    while not (server.data / "journal" / "tail.next").exists() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("call, most", [("fsync", 60), ("rename", 16), ("ftruncate", 8), ("openat", 40), ("fdatasync", 60)])
def test_kill_at_each_call_of_appends_and_rotations(world, call, most):
    """Proves: while generations are closed under load, the process may be killed at any sync, rename, truncation or open."""
    rng = random.Random(SEED)
    print(f"SEED={SEED}")
    world.make(*SMALL)
    # strace counts the calls of each thread apart, and a rotation opens three directories on the loop's.
    step = {"fsync": 3, "openat": 4, "fdatasync": 13}.get(call, 1)
    points = 0
    for n in range(1, most, step):
        with world.attached(f"{call}:signal=SIGKILL:when={n}"):
            try:
                for _ in range(rng.randint(60, 90)):
                    world.ledger.append(world.server, world.new(rng.randint(1, 6), 700))
            except OSError:
                world.server.process.wait(20)  # strace must see the end, too
        code = world.server.process.poll()
        assert code in (None, -9), world.server.log[-2000:]
        points += code == -9
        world.restart(stop="kill")
    assert points >= 3
    print(f"{points} points")
