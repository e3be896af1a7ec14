"""The capture door and the engine under strace: the order of syncs and answers, and what is told when calls on the queue fail.

(The journal's side is test_strace. A trace shows the pages that SQLite writes into the write-ahead log, so an event is found in it
by its uuid, and so is the answer that names it.)
"""
import concurrent.futures
import json
import os
import random
import re
import signal
import time

import pytest
from capture_world import TABLE, Capture, Queue, traced
from conftest import batch, event
from engine_world import Engine, row
from tracer import Attached, parse, wrapper

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
QUOTED = re.compile(r'\\"(' + UUID + r')\\"')
CALLS = "openat,pwrite64,fdatasync,fsync,sendmsg,sendto,write,writev,rename,unlink"


@pytest.fixture
def make_world(make_server, workdir):
    worlds = []

    def make(*args, trace=None, names=("demo",)):
        server = make_server("--engine", "off", *args, env=traced(), start=False)
        if trace is not None:
            server.wrapper = wrapper(trace, calls=CALLS, text=1000000)
        world = Capture(server.start(), workdir, *names)
        world.traces = 0
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.ledger.close()


def wal(world):
    return world.server.data / "tallyman.sqlite-wal"


def attached(world, *injects, paths=None):
    world.traces += 1
    return Attached(world.server, world.server.data.parent / f"trace.{world.traces}", *injects, paths=paths or [wal(world)], calls=CALLS)


def restart(world, stop="stop"):
    """Without faults; the ledger decides."""
    if world.server.process is not None:
        getattr(world.server, stop)()
    world.verify()
    world.server.wrapper = []
    world.server.start()
    settled = world.retry_unknown()
    world.repeat(world.ledger.acked())
    check_counters(world)
    world.verify()
    return settled


def check_counters(world):
    queue = Queue(world.server)
    assert queue.counters() == queue.counted()
    status = world.status()["queue"]
    assert (status["pending"], status["pending_bytes"], status["receipts"]) == queue.counted(), status


# ---- order ----

def check_order(trace):
    """Every answer that names an event left after a sync of the log that holds it had returned. (answers, events named, syncs)"""
    logs, writes, syncs, answers, named = set(), {}, [], 0, 0
    for call in parse(trace):
        if call.name == "openat" and "tallyman.sqlite-wal" in call.args and call.result is not None and call.result >= 0:
            logs.add(call.result)
        elif call.name == "pwrite64" and call.fd in logs:
            for uuid in QUOTED.findall(call.args):
                writes.setdefault(uuid, call)
        elif call.name in ("fdatasync", "fsync") and call.fd in logs:
            assert call.result == 0
            syncs.append(call)
        elif call.name in ("sendmsg", "sendto", "write", "writev") and "HTTP/1.1 200 OK" in call.args:
            told = [uuid for uuid in QUOTED.findall(call.args) if uuid in writes or "event_id" in call.args]
            answers += bool(told)
            for uuid in told:
                named += 1
                write = writes[uuid]
                assert any(s.fd == write.fd and s.begin > write.end and s.end < call.begin for s in syncs), \
                    f"the answer for {uuid} left before the sync of its bytes had returned"
    return answers, named, len(syncs)


def test_an_answer_leaves_after_its_sync_returned_one_at_a_time(make_world, workdir):
    """Proves: n acknowledged requests, one after the other, in each dialect, cost at least n syncs of the log, each of which returned
    before its answer left."""
    world = make_world(trace=workdir / "trace")
    demo = world.demo
    line = world.connection()
    order = []
    for make in (demo.v0, demo.batch, demo.v1, demo.segment_batch, lambda items: demo.native(items, unix=False)):
        for _ in range(6):
            request = make(world.items(1))
            status, body = world.send(request, line)
            assert status == 200, body
            order.append(request.events[0][0].uuid)
    line.close()
    world.repeat(world.ledger.acked())
    assert world.server.stop() == 0
    answers, named, syncs = check_order(workdir / "trace")
    assert answers >= 13 and named >= 12 + 30 and syncs >= 30
    # Those that name nothing: the n-th answer to an SDK left after the sync of the n-th event.
    calls = parse(workdir / "trace")
    logs = {c.result for c in calls if c.name == "openat" and "sqlite-wal" in c.args}
    sent = [c for c in calls if c.name in ("sendmsg", "sendto", "write", "writev") and "HTTP/1.1 200 OK" in c.args
            and re.search(r'\\"status\\":\\"Ok\\"|\\"success\\":true|\\"results\\"|\\"accepted\\":1', c.args)]
    assert len(sent) == len(order)
    for uuid, answer in zip(order, sent):
        write = next(c for c in calls if c.name == "pwrite64" and c.fd in logs and uuid in c.args)
        assert any(c.name == "fdatasync" and c.fd == write.fd and c.begin > write.end and c.end < answer.begin and c.result == 0
                   for c in calls), f"the answer for {uuid} left before the sync of its bytes had returned"


def test_an_answer_leaves_after_its_sync_returned_many_at_once(make_world, workdir):
    """Proves: when many requests share a commit, and some are repeats of what is in it, no answer leaves before its sync."""
    world = make_world(trace=workdir / "trace")
    shared = world.items(1)

    def client(_):
        line = world.connection()
        for _ in range(12):
            status, body = world.send(world.demo.native(world.items(3) + shared, unix=False), line)
            assert status == 200, body
            status, body = world.send(world.demo.v1(world.items(2) + shared), line)
            assert status == 200, body
        line.close()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(client, range(8)))
    world.check_receipts()
    assert world.server.stop() == 0
    answers, named, syncs = check_order(workdir / "trace")
    assert answers == 8 * 24 and named >= 8 * 12 * 7
    assert 0 < syncs < answers


def test_a_repeat_waits_for_the_sync_of_its_original(make_world):
    """Proves: of one event that several clients send at once none is told anything before the sync that makes it durable, and nobody is
    told of success when that sync fails."""
    world = make_world()
    # The first request holds the loop up in its commit; what comes meanwhile shares the next one, whose sync fails or takes its time.
    for fault, sync_s in ((["pwrite64:delay_exit=700000:when=1", "fdatasync:delay_exit=500000:when=2"], 0.5),
                          (["pwrite64:delay_exit=700000:when=1", "fdatasync:error=EIO:when=2"], 0)):
        items = world.items(2)
        first = world.demo.native(world.items(1), unix=False)
        with attached(world, *fault) as trace, concurrent.futures.ThreadPoolExecutor(7) as pool:
            begun = time.monotonic()
            holder = pool.submit(world.send, first)
            time.sleep(0.2)
            answers = list(pool.map(lambda _: world.send(world.demo.native(items, unix=False)), range(6)))
            took = time.monotonic() - begun
            assert holder.result()[0] == 200
        assert len(trace.calls("fdatasync")) == 2, "the requests did not share a commit"
        if sync_s:
            assert took >= 0.65 + sync_s
            assert [status for status, _ in answers] == [200] * 6
            told = [e for _, body in answers for e in json.loads(body)["events"]]
            assert sum(e["status"] == "accepted" for e in told) == 2
        else:
            assert [status for status, _ in answers] == [503] * 6
    restart(world)


def test_a_start_believes_only_the_device(make_world, workdir):
    """Proves: what the last process left in the page cache of database and log is synced, and the cache dropped, before any of it is
    read (a failed sync leaves bytes there that the disk does not hold)."""
    world = make_world()
    world.put(5)
    world.server.kill()
    world.server.wrapper = wrapper(workdir / "trace")
    world.server.start()
    world.repeat(world.ledger.acked())
    assert world.server.stop() == 0
    names, steps = {}, {}
    for call in parse(workdir / "trace", "openat", "fsync", "fadvise64", "pread64"):
        if call.name == "openat" and call.result is not None and call.result >= 0:
            names[call.result] = os.path.basename(re.search(r'"([^"]*)"', call.args)[1])
        elif call.name != "openat" and names.get(call.fd, "").startswith("tallyman.sqlite"):
            steps.setdefault(names[call.fd], []).append(call.name)
    for name in ("tallyman.sqlite", "tallyman.sqlite-wal"):
        assert steps[name][:3] == ["fsync", "fadvise64", "pread64"], (name, steps[name][:5])


def test_a_slow_sync_delays_every_answer(make_world):
    """Proves: no answer is quicker than the sync it needs; reads and the history's appends are not held up for good."""
    world = make_world()
    world.put(1)
    with attached(world, "fdatasync:delay_exit=1000000") as fault:
        begun = time.monotonic()
        world.put(3)
        assert time.monotonic() - begun >= 0.95
        assert len(fault.calls("fdatasync")) == 1
    assert world.server.append(batch("b1")).status == 200
    restart(world)


# ---- failures of the log ----

def assert_poisoned(world):
    """It stays up and says why; nothing of the queue is acknowledged any more, the history goes on."""
    server = world.server
    assert server.get("/healthz").status == 200
    ready = server.get("/readyz")
    assert ready.status == 503 and ready.json["cause"] == "store_poisoned" and ready.json["store"] == "queue", ready.body
    assert ready.json["detail"]
    queue = world.status()["queue"]
    assert queue["poisoned"] and queue["cause"]
    assert server.metric("tallyman_store_poisoned") == 1
    demo = world.demo
    for make in (demo.v0, demo.batch, demo.v1, demo.segment_batch, demo.native):
        status, body = world.send(make(world.items(1)))
        assert status in (429, 503) and b"Ok" not in body and b"success\":true" not in body, (status, body)
    # Not even a repeat of what is durable: what the answer rests on is not looked at any more.
    known = [e for e in world.ledger.acked()][:1]
    if known:
        status, body = world.send(demo.native([(known[0], "{}")]))
        assert status == 503, (status, body)
    world.count += 1
    assert server.append(batch(f"history {world.count}", event(world.count))).status == 200


@pytest.mark.parametrize("inject", ["fdatasync:error=EIO", "fdatasync:error=ENOSPC", "fdatasync:error=EDQUOT", "pwrite64:error=EIO",
                                    "pwrite64:error=EROFS"])
def test_a_failed_log_ends_acknowledgements(make_world, inject):
    """Proves: when a write or sync of the log fails nothing is acknowledged any more, also when calls work again, the sync is not tried
    again, and everything acknowledged before is there after a restart."""
    world = make_world()
    for _ in range(3):
        world.put(4)
    with attached(world, inject) as fault:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            requests = [world.demo.any(random.Random(i), world.items(2)) for i in range(12)]
            for status, body in pool.map(world.send, requests):
                assert status in (429, 503), (status, body)
        assert_poisoned(world)
    name = inject.split(":", 1)[0]
    assert len([c for c in fault.calls(name) if c.injected]) == 1, "the log was tried again after it had failed"
    assert_poisoned(world)
    restart(world)


@pytest.mark.parametrize("k", [1, 2, 9])
def test_one_failed_sync_of_the_log_is_not_tried_again(make_world, k):
    """Proves: after the k-th sync alone fails, all before it stays, nothing after it is acknowledged, though syncs would work."""
    world = make_world()
    with attached(world, f"fdatasync:error=EIO:when={k}") as fault:
        for _ in range(k - 1):
            world.put(2)
        for _ in range(4):
            world.put(1, want=503)
    syncs = fault.calls("fdatasync")
    assert len(syncs) == k and syncs[-1].injected
    assert [c for c in fault.calls("pwrite64") if c.begin > syncs[-1].begin] == [], "the log was written after its sync had failed"
    assert_poisoned(world)
    restart(world, stop="kill")


def test_a_failed_checkpoint_ends_acknowledgements(make_world):
    """Proves: when a sync of the database fails in a checkpoint, that is the end of acknowledging too: what the log held may be lost
    from the database."""
    world = make_world()
    world.put(1)
    answers = set()
    with attached(world, "fdatasync:error=EIO", paths=[world.server.data / "tallyman.sqlite"]) as fault:
        for _ in range(60):
            status, body = world.send(world.demo.batch(world.items(6, fill="x" * 200000)))
            answers.add(status)
            if status != 200:
                break
        assert answers == {200, 503}, answers
        assert any(c.injected for c in fault.calls("fdatasync"))
        assert_poisoned(world)
    restart(world)


# ---- no space ----

@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
def test_no_space_for_the_log_is_told_undone_and_passes(make_world, error):
    """Proves: out of space is a retryable refusal of the whole turn, nothing of it is stored or counted, earlier events stay, other
    routes go on, and intake comes back by itself."""
    world = make_world(names=("demo", "other"))
    for _ in range(3):
        world.put(5, world.projects["other"])
        world.put(5)
    before = Queue(world.server).counted()
    with attached(world, f"pwrite64:error={error}") as fault:
        requests = [world.demo.v0(world.items(1)), world.demo.batch(world.items(20, fill="y" * 3000)), world.demo.v1(world.items(2)),
                    world.demo.segment_batch(world.items(2)), world.demo.native(world.items(7))]
        for request in requests:
            answer = world.server.request("POST", request.path, request.body, request.headers, unix=request.unix)
            assert answer.status == (429 if request.path == "/v1/batch" else 503), (request.path, answer.status, answer.body)
            assert int(answer.headers["retry-after"]) > 0
            world.ledger.sending(request)
            world.ledger.answered(request, answer.status, answer.body)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for status, _ in pool.map(world.send, [world.demo.native(world.items(3)) for _ in range(8)]):
                assert status == 503
        ready = world.server.get("/readyz")
        assert ready.status == 503 and ready.json["cause"] == "no_space" and ready.json["store"] == "queue", ready.body
        assert world.server.metric("tallyman_store_no_space") == 1
        assert Queue(world.server).counted() == before
        check_counters(world)
        # A repeat needs no space: its original is durable.
        world.repeat(world.ledger.acked())
        assert world.server.append(batch("history")).status == 200
        world.verify()
    assert any(c.injected for c in fault.calls("pwrite64"))
    end = time.monotonic() + 15
    while world.server.get("/readyz").status != 200:
        assert time.monotonic() < end, world.server.get("/readyz").body
        time.sleep(0.05)
    world.put(3)
    again, there = world.retry_unknown()
    assert again == 13 and there == 0, "something of what was refused was stored"
    check_counters(world)
    assert world.server.metric("tallyman_store_no_space") == 0
    restart(world, stop="kill")


def test_no_space_for_a_while_by_count(make_world):
    """Proves: whichever write of a commit finds no space, the commit is there whole or not at all, and the counters are right."""
    world = make_world()
    seen = set()
    for n in (1, 2, 3, 5, 8, 13, 21, 34):
        with attached(world, f"pwrite64:error=ENOSPC:when={n}..{n + 1}") as fault:
            for i in range(8):
                request = world.demo.native(world.items(1 + i % 3 * 4, fill="z" * (10 if i % 2 else 2500)))
                status, body = world.send(request)
                assert status in (200, 503), (status, body)
                seen.add(status)
                check_counters(world)
        assert any(c.injected for c in fault.calls("pwrite64")), n
        world.retry_unknown()
    assert seen == {200, 503}
    restart(world)


# ---- the engine ----

ENGINE_CALLS = "openat,mkdir,rename,renameat,renameat2,fsync,fdatasync,unlink,unlinkat,rmdir,sendmsg,sendto,write,writev,close"


@pytest.fixture
def traced_engine(workdir):
    made = Engine(workdir / "engine", wrapper=wrapper(workdir / "trace", calls=ENGINE_CALLS, text=2000))
    made.start()
    yield made
    if made.process is not None:
        made.stop()


def engine_steps(trace):
    """What happened to files, in the order in which calls returned: (what, name, call)."""
    names, steps = {}, []
    for call in sorted((c for c in parse(trace) if c.end is not None), key=lambda c: c.end):
        if call.name == "openat":
            if call.result is not None and call.result >= 0:
                names[call.result] = re.search(r'"([^"]*)"', call.args)[1]
        elif call.name in ("fsync", "fdatasync"):
            assert call.result == 0
            steps.append(("sync", names.get(call.fd, ""), call))
        elif call.name.startswith("rename"):
            old, new = re.findall(r'"([^"]*)"', call.args)
            steps.append(("rename", old, call))
            steps.append(("named", new, call))
            for fd, name in names.items():  # a descriptor that stays open follows its file
                if name.startswith(old):
                    names[fd] = new + name[len(old):]
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            steps.append(("remove", re.search(r'"([^"]*)"', call.args)[1], call))
        elif "HTTP/1.1 200" in call.args:
            steps.append(("answer", "", call))
    return steps


def written_files(trace, part):
    """Files that were made in a folder of that name."""
    return {match[1] for call in parse(trace, "openat") if "O_CREAT" in call.args and (match := re.search(
        r'"[^"]*/' + re.escape(part) + r'/([^"/]+)"', call.args))}


def table_of(engine):
    """The folder of the table's parts."""
    return os.path.normpath(os.path.join(engine.data, "empty", engine.value(
        "SELECT data_paths[1] FROM system.tables WHERE database = 'tallyman' AND name = 'events_v2' FORMAT TSVRaw").strip()))


def check_files(steps, trace, temporary):
    """All files of a part are synced before it gets its name. The rename's position among the steps."""
    renamed = next(i for i, (what, name, _) in enumerate(steps) if what == "rename" and f"/{temporary}" in name)
    begin = steps[renamed][2].begin
    synced = {name for what, name, call in steps[:renamed] if what == "sync" and call.end < begin}
    files = written_files(trace, temporary)
    assert {"checksums.txt", "columns.txt", "count.txt"} <= files and len(files) >= 10, files
    for file in files:
        assert any(name.endswith(f"/{temporary}/{file}") for name in synced), f"{temporary}/{file} is not synced before its rename"
    return renamed


def synced_between(steps, folder, after, before):
    """Whether a folder of that name is synced after one call had returned and before another one began."""
    return any(what == "sync" and os.path.basename(name.rstrip("/")) == folder and call.begin > after.end
               and (before is None or call.end < before.begin) for what, name, call in steps)


def test_an_insert_is_on_the_disk_before_its_answer(traced_engine, workdir):
    """Proves: the files of a new part, its folder, and the folder that holds its name are synced before the insert is answered."""
    engine = traced_engine
    folder = table_of(engine)
    for i in range(3):
        assert engine.insert([row("demo", 10 * i + j) for j in range(5)]).status == 200
    assert engine.stop() == 0
    trace = workdir / "trace"
    steps = engine_steps(trace)
    parts = sorted({m[1] for what, name, _ in steps if what == "rename" and (m := re.search(r"/(tmp_insert_[^/]+)", name))})
    assert len(parts) == 3, parts
    for part in parts:
        renamed = check_files(steps, trace, part)
        rename = steps[renamed][2]
        answer = next(call for what, _, call in steps[renamed:] if what == "answer" and call.begin > rename.end)
        name = os.path.basename(steps[renamed + 1][1].rstrip("/"))
        assert synced_between(steps, name, rename, answer), f"the folder of {part} is not synced before the answer"
        assert synced_between(steps, os.path.basename(folder), rename, answer), f"the name of {part} is not synced before the answer"


def test_a_merged_part_is_on_the_disk_before_its_sources_go(traced_engine, workdir):
    """Proves: a merge syncs all files of the new part before it takes its name, and the folder before any source of it is removed."""
    engine = traced_engine
    engine.value(f"ALTER TABLE {TABLE} MODIFY SETTING old_parts_lifetime = 1, cleanup_delay_period = 1, max_cleanup_delay_period = 1, "
                 "cleanup_delay_period_random_add = 0, cleanup_thread_preferred_points_per_iteration = 0")
    engine.value(f"DETACH TABLE {TABLE}")  # the thread that removes parts begins anew
    engine.value(f"ATTACH TABLE {TABLE}")
    for i in range(4):
        assert engine.insert([row("demo", 10 * i + j) for j in range(5)]).status == 200
    engine.value(f"OPTIMIZE TABLE {TABLE} FINAL")
    trace = workdir / "trace"
    source = re.compile(r"/(?:delete_tmp_)?\d{6}_(\d+)_(\d+)_1(?:/|$)")
    gone = lambda: [i for i, (what, name, _) in enumerate(steps) if what == "remove" and source.search(name)]
    end = time.monotonic() + 40
    steps = []
    while not gone():
        assert time.monotonic() < end, "nothing was removed: nothing is proven"
        time.sleep(0.5)
        steps = engine_steps(trace)
    assert engine.stop() == 0
    steps = engine_steps(trace)
    merged = sorted({m[1] for what, name, _ in steps if what == "rename" and (m := re.search(r"/(tmp_merge_[^/]+)", name))})
    assert merged
    for part in merged:
        renamed = check_files(steps, trace, part)
        first, last = map(int, re.search(r"_(\d+)_(\d+)_\d+$", part).groups())
        sources = [i for i in gone() if first <= int(source.search(steps[i][1])[1]) <= last]
        assert sources and min(sources) > renamed, f"a source of {part} was removed before it had its name"
        name = os.path.basename(steps[renamed + 1][1].rstrip("/"))
        assert synced_between(steps, name, steps[renamed][2], steps[min(sources)][2]), f"the folder of {part} is not synced"


def test_the_servers_engine_takes_faults_of_its_disk_for_an_unknown_outcome(make_server, workdir):
    """Proves: when the engine cannot sync a part, the insert is not taken for delivered: the events stay queued and come again."""
    world = Capture(make_server(env=traced()), workdir)
    world.wait_connected()
    world.put(5)
    world.wait_delivered()
    engine = world.engine_pid()

    class Process:
        pid = engine

    class Holder:
        process = Process

    with Attached(Holder, workdir / "trace", "fsync:error=EIO", "fdatasync:error=EIO", calls=ENGINE_CALLS):
        world.put(30)
        world.wait(lambda: "error" in world.delivery(), what="an error of the engine")
        assert world.delivery()["pending"] == 30
    try:
        os.kill(engine, signal.SIGKILL)  # ClickHouse ends itself on some of these errors
    except ProcessLookupError:
        pass
    world.wait_delivered()
    world.check_rows()
    world.ledger.close()
