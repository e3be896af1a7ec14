"""The artifact door and its deliverer under strace: the order of syncs, answers and rows, and what is told when calls fail.

(Every call of every step fails on a model disk in tests/crash and tests/unit/store/test_upload_faults; here it is the real program
with its threads, the real kernel, and what clients hear. The journal's side is test_strace, the queue's test_capture_strace.)
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import time

import pytest
from artifact_world import BODY, ENV, PROJECT, TUS, Artifacts, Reply, blake3, check_receipt, seeded
from capture_world import traced
from conftest import BINARY, ROOT, Server
from tracer import Attached, parse, wrapper

CALLS = ("openat,pread64,fadvise64,pwrite64,fdatasync,fsync,ftruncate,rename,renameat2,unlink,sync_file_range,sendmsg,sendto,write,"
         "writev")
SYNCS = ("fdatasync", "fsync")
PATH = re.compile(r"\d+<([^>]*)>")
SIZE = 300000
MIB = 1 << 20


def content(number, size=SIZE):
    return seeded(number).randbytes(size)


# ---- a trace with paths ----

class Trace:
    """strace -y: the calls on a file are found by its path."""

    def __init__(self, path, data):
        self.calls = parse(path)
        self.data = str(data)

    def on(self, name, *calls):
        """Calls that succeeded on a descriptor of this file, in their order."""
        path = f"{self.data}/{name}" if not name.startswith("/") else name
        return [c for c in self.calls if c.name in calls and c.result is not None and c.result >= 0 and (m := PATH.match(c.args))
                and m[1] == path]

    def named(self, call, *words):
        """Calls that take paths, and succeeded."""
        return [c for c in self.calls if c.name == call and c.result is not None and c.result >= 0
                and all(word in c.args for word in words)]

    def answers(self):
        return [c for c in self.calls if c.name in ("sendmsg", "sendto", "write", "writev") and "HTTP/1.1 " in c.args
                and "Tus-Resumable" in c.args]

    def synced(self, name, after, before, what):
        """A sync of the file began after one call had returned and returned before another began."""
        found = [c for c in self.on(name, *SYNCS) if c.begin > after.end and c.end < before.begin]
        assert found, f"{what}: no sync of {name} in between"
        return found[-1]

    def last(self, name, before, *calls):
        """The last such call that began before another one."""
        found = [c for c in self.on(name, *calls) if c.begin < before.begin]
        assert found, f"nothing of {calls} was done with {name}"
        return found[-1]


def check_creation(trace, id, answer):
    """Description and names are durable before the id is told."""
    made = [trace.named("openat", f'/uploads/{id}{suffix}"', "O_CREAT")[0] for suffix in ("", ".info", ".state")]
    written = trace.last(f"uploads/{id}.info", answer, "pwrite64")
    trace.synced(f"uploads/{id}.info", written, answer, "a creation was answered")
    trace.synced("uploads", max(made, key=lambda c: c.end), answer, "a creation was answered")


def check_offset(trace, id, answer):
    """The bytes, then the state that speaks of them, then the answer."""
    written = trace.last(f"uploads/{id}", answer, "pwrite64")
    saved = trace.last(f"uploads/{id}.state", answer, "pwrite64")
    trace.synced(f"uploads/{id}", written, saved, "a state was saved")
    trace.synced(f"uploads/{id}.state", saved, answer, "an offset was told")


def check_receipt_order(trace, id, answer):
    """Everything a receipt speaks of, then the receipt, then its name, then the answer."""
    (renamed,) = trace.named("rename", f"/receipts/.receipt-{id}", f"/receipts/{id}.json")
    made = [trace.named("openat", f'/uploads/{id}{suffix}"', "O_CREAT")[0] for suffix in ("", ".info")]
    trace.synced(f"uploads/{id}", trace.last(f"uploads/{id}", renamed, "pwrite64", "ftruncate"), renamed, "a receipt was renamed")
    trace.synced(f"uploads/{id}.info", trace.last(f"uploads/{id}.info", renamed, "pwrite64"), renamed, "a receipt was renamed")
    trace.synced("uploads", max(made, key=lambda c: c.end), renamed, "a receipt was renamed")
    # Its temporary file bears the other name when the trace shows the descriptor.
    temp = f"receipts/.receipt-{id}"
    trace.synced(temp, trace.last(temp, renamed, "pwrite64"), renamed, "a receipt was renamed")
    trace.synced("receipts", renamed, answer, "a receipt was told")
    return renamed


# ---- worlds ----

@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """One server for all that leaves it as it was; without a deliverer."""
    (ROOT / "build" / "tmp").mkdir(parents=True, exist_ok=True)
    path = tmp_path_factory.mktemp("door")
    server = Server(path / "data", "--no-deliver", "--min-free-bytes", "1", env={**ENV, **(traced() or {})}).start()
    world = Artifacts(server, path)
    world.traces = 0
    yield world
    assert server.stop() == 0
    world.check_disk()
    world.verify()


def attached(world, *injects, paths=(), process=None):
    world.traces = getattr(world, "traces", 0) + 1
    holder = world.server if process is None else type("Holder", (), {"process": type("Process", (), {"pid": process})})
    return Attached(holder, world.workdir / f"trace.{world.traces}", *injects, paths=paths, calls=CALLS)


def injected(trace):
    return [c for c in trace.calls() if c.injected]


# ---- order ----

def test_what_is_told_is_durable_first(make_server, workdir):
    """Proves: 201, an offset and a receipt leave only after the syncs they rest on have returned, each in its order."""
    trace = workdir / "trace"
    server = make_server("--no-deliver", "--min-free-bytes", "1", env={**ENV, **(traced() or {})}, start=False)
    server.wrapper = [*wrapper(trace, calls=CALLS, text=2000), "-y"]
    world = Artifacts(server.start(), workdir)
    line = world.line()
    order = []

    def tell(answer, status, file):
        assert answer.status == status, (answer.status, answer.body)
        order.append((file, status, "artifact-receipt" in answer.headers, int(answer.headers.get("upload-offset", 0))))

    pieces = world.new(content(1))
    tell(world.create(pieces, line=line), 201, pieces)
    for begin, end in ((0, 1), (1, 100000), (100000, 250000), (250000, SIZE)):
        tell(world.patch(pieces, begin, pieces.content[begin:end], line), 204, pieces)
    whole = world.new(content(2))
    tell(world.create(whole, whole.content, line), 201, whole)
    part = world.new(content(3, 3 * MIB + 5))
    tell(world.create(part, part.content[:MIB + 1], line), 201, part)
    tell(world.patch(part, MIB + 1, part.content[MIB + 1:], line), 204, part)
    large = world.new(content(4, 5 * MIB))
    tell(world.create(large, line=line), 201, large)
    tell(world.patch(large, 0, large.content, line), 204, large)
    line.close()
    assert server.stop() == 0
    seen = Trace(trace, server.data)
    answers = seen.answers()
    assert len(answers) == len(order)
    for answer, (file, status, receipt, offset) in zip(answers, order):
        assert f"HTTP/1.1 {status} " in answer.args
        if receipt:
            check_receipt_order(seen, file.id, answer)
        elif status == 201:
            check_creation(seen, file.id, answer)
        if not receipt and offset > 0:
            check_offset(seen, file.id, answer)
    assert sum(receipt for _, _, receipt, _ in order) == 4 and sum(0 < n and not r for _, _, r, n in order) == 4
    # Bytes of several requests are read back from the device before they are believed.
    for file in (pieces, part):
        (renamed,) = seen.named("rename", f".receipt-{file.id}")
        written = seen.last(f"uploads/{file.id}", renamed, "pwrite64")
        dropped = [c for c in seen.on(f"uploads/{file.id}", "fadvise64") if c.begin > written.end]
        assert dropped, "the stored bytes are believed to be what the cache says"
        read = [c for c in seen.on(f"uploads/{file.id}", "pread64") if c.begin > dropped[0].end and c.end < renamed.begin]
        assert sum(c.result for c in read) >= file.size, "the stored bytes were not read back"
    world.check_disk()


def test_an_open_believes_only_the_device(make_server, workdir):
    """Proves: after a crash the saved state is synced and its cache dropped before it is read, and what is behind it is cut, and the
    cut synced, before a byte is added."""
    server = make_server("--no-deliver", "--min-free-bytes", "1", env={**ENV, **(traced() or {})})
    world = Artifacts(server, workdir)
    file = world.new(content(5))
    world.create(file)
    assert world.patch(file, 0, file.content[:1000]).status == 204
    server.kill()
    with open(server.data / "uploads" / file.id, "ab") as bytes_of_it:
        bytes_of_it.write(b"what a crash may leave")
    server.wrapper = [*wrapper(workdir / "trace", calls=CALLS), "-y"]
    server.start()
    assert world.patch(file, 1000, file.content[1000:2000]).status == 204
    world.finish(file)
    assert server.stop() == 0
    seen = Trace(workdir / "trace", server.data)
    # The bytes of a state that was looked at first (a cleaner, a HEAD) are not what an append goes by.
    state = [c.name for c in seen.on(f"uploads/{file.id}.state", "fsync", "fadvise64", "pread64", "pwrite64")]
    before = state[:state.index("pwrite64")]
    assert "fsync,fadvise64,pread64" in ",".join(before), before
    added = seen.on(f"uploads/{file.id}", "pwrite64")[0]
    cut = [c for c in seen.on(f"uploads/{file.id}", "ftruncate") if c.end < added.begin]
    assert cut and ", 1000" in cut[0].args, "what is behind the saved offset was not cut"
    seen.synced(f"uploads/{file.id}", cut[0], added, "bytes were added")
    world.check_disk()


def test_a_slow_sync_delays_the_answer(door):
    """Proves: no offset is told before the sync it rests on has returned, to nobody."""
    file = door.new(content(6))
    assert door.create(file).status == 201
    with attached(door, "fdatasync:delay_exit=2000000:when=1", paths=[door.data / "uploads" / file.id]) as trace, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        patch = pool.submit(Reply, door.line(), "PATCH", file.path, file.content[:1000], {**BODY, "Upload-Offset": "0"})
        door.wait(lambda: (door.data / "uploads" / file.id).stat().st_size == 1000, what="the bytes")
        head = Reply(door.line(), "HEAD", file.path, headers=TUS)
        head_s = time.monotonic() - begun
        answer = patch.result()
        took_s = time.monotonic() - begun
        assert len(trace.calls("fdatasync")) == 1
    assert answer.status == 204 and took_s >= 1.95
    file.hears(answer)
    assert head.status == 200
    assert head.headers["upload-offset"] == "0" or head_s >= 1.95, "HEAD told an offset that was not synced"
    door.finish(file)


# ---- failures ----

# What fails, the k-th time it is called by the request: piece "middle" of three, or the last, of 300 kB or of 3 MiB.
FAULTS = [("middle", "pwrite64", "uploads/{}", 1), ("middle", "fdatasync", "uploads/{}", 1), ("middle", "pwrite64", "uploads/{}.state", 1),
          ("middle", "fdatasync", "uploads/{}.state", 1), ("middle", "fsync", "uploads", 1), ("large", "sync_file_range", "uploads/{}", 1),
          ("large", "pwrite64", "uploads/{}", 2), ("last", "pwrite64", "uploads/{}", 1), ("last", "fdatasync", "uploads/{}", 1),
          ("last", "fdatasync", "uploads/{}", 2), ("last", "pread64", "uploads/{}", 1), ("last", "fdatasync", "uploads/{}.info", 1),
          ("last", "pwrite64", "receipts/.receipt-{}", 1), ("last", "fdatasync", "receipts/.receipt-{}", 1), ("last", "fsync", "uploads", 1),
          ("last", "rename", "receipts/.receipt-{}", 1), ("last", "fsync", "receipts", 1)]


KILLED = {("fdatasync", "uploads/{}"), ("fdatasync", "uploads/{}.state"), ("fsync", "receipts")}  # and once more with a kill behind it
CASES = [(*f, killed) for f in FAULTS for killed in (False, True) if not killed or f[1:3] in KILLED]


@pytest.mark.parametrize("piece, call, where, k, killed", CASES, ids=["-".join(map(str, f)).replace("/", ".") for f in CASES])
def test_a_failed_call_is_no_receipt_and_takes_its_bytes_along(door, piece, call, where, k, killed):
    """Proves: when any write, sync or rename of an append fails no receipt is told, nor one later for bytes that may be lost: the upload
    goes on from the offset that was told before, and its receipt has its bytes."""
    file = door.new(content(repr((piece, call, where, k, killed)), 3 * MIB if piece == "large" else SIZE))
    assert door.create(file).status == 201
    assert door.patch(file, 0, file.content[:100000]).status == 204
    end = 200000 if piece == "middle" else file.size
    path = door.data / "uploads" / file.id
    with attached(door, f"{call}:error=EIO:when={k}", paths=[door.data / where.format(file.id)]) as trace:
        answer = door.patch(file, 100000, file.content[100000:end])
        assert injected(trace), "nothing failed: nothing is proven"
    assert answer.status == 500, (answer.status, answer.body)
    assert "artifact-receipt" not in answer.headers and file.told == 100000
    doubtful = (call, where) == ("fsync", "receipts")  # the name may be durable: no byte may go
    unsaved = where == "uploads/{}.state"  # its bytes are synced, and the save may be durable: no byte may go
    assert path.stat().st_size == (file.size if doubtful else end if unsaved else 100000), "bytes that may be lost are still there to be believed"
    door.no_receipt(file)
    if killed:
        door.server.kill()
        door.server.start()
    offset = door.head(file)
    assert offset in ((100000, file.size) if doubtful else (100000, end) if unsaved and call != "pwrite64" else (100000,))
    door.finish(file)
    assert blake3(path.read_bytes()) == file.blake3
    door.receipt_is(file)


@pytest.mark.parametrize("end, status", [(2000, 410), (SIZE, 500)], ids=["middle", "last"])
def test_no_way_back_is_gone(door, end, status):
    """Proves: an upload whose failed sync cannot be rolled back has no future: no receipt, 410, also when calls work again; others go
    on."""
    file, other = door.new(content(f"gone {end}")), door.new(content(f"other {end}"))
    assert door.create(file).status == 201
    assert door.patch(file, 0, file.content[:1000]).status == 204
    with attached(door, "fdatasync:error=EIO", "fsync:error=EIO", "ftruncate:error=EIO", paths=[door.data / "uploads" / file.id]):
        answer = door.patch(file, 1000, file.content[1000:end])
        assert answer.status == status and "artifact-receipt" not in answer.headers, (answer.status, answer.body)
        assert door.create(other, other.content).status == 201
    assert door.head(file) is None
    assert door.patch(file, 1000, file.content[1000:]).status == 410
    assert door.server.get(f"/api/v1/receipts/{file.id}").status == 410
    door.no_receipt(file)
    door.files.remove(file)  # nothing is promised any more
    again = door.new(file.content)
    door.create(again)
    door.finish(again)


@pytest.mark.parametrize("fault, name", [("fsync:error=EIO:when=1", "uploads"), ("fdatasync:error=EIO:when=1", None)], ids=["names", "info"])
@pytest.mark.parametrize("whole", [False, True], ids=["empty", "whole"])
def test_a_creation_that_cannot_be_synced_is_told_to_nobody(door, fault, name, whole):
    """Proves: no Location, no receipt, and nothing is left."""
    before = set(os.listdir(door.data / "uploads"))
    file = door.new(content(repr((fault, whole))))
    with attached(door, fault, paths=[door.data / name] if name else []) as trace:
        answer = door.create(file, file.content if whole else None)
        assert injected(trace)
    assert answer.status == 500 and "location" not in answer.headers and file.id is None and file.receipt is None
    left = set(os.listdir(door.data / "uploads")) - before
    # The fault is counted by thread: where another one synced the names, the removal's own sync fails as well. What stays expires.
    assert not left or (whole and name and [pathlib.Path(n).suffix for n in left] == [".info"]), left
    assert door.create(file).status == 201
    door.finish(file)


def test_no_space_keeps_what_was_written(door):
    """Proves: ENOSPC is told with the exact offset and a time to wait, nothing is lost, and the upload goes on from there."""
    file = door.new(content(9, 4 * MIB))
    assert door.create(file).status == 201
    path = door.data / "uploads" / file.id
    with attached(door, "pwrite64:error=ENOSPC:when=3+", paths=[path]):
        answer = door.patch(file, 0, file.content)
        assert answer.status == 429 and answer.headers["retry-after"] == "60", (answer.status, answer.headers, answer.body)
        assert answer.headers["upload-offset"] == str(2 * MIB) and door.head(file) == 2 * MIB
        assert path.stat().st_size == 2 * MIB
        assert path.read_bytes() == file.content[:2 * MIB]
    door.finish(file)
    door.receipt_is(file)
    # The first state, a later one, the receipt: the offset stays, no byte below it is lost.
    for name, when, begin, end in (("uploads/{}.state", "", 0, 1000), ("uploads/{}.state", ":when=1", 1000, 2000),
                                   ("receipts/.receipt-{}", "", 1000, SIZE)):
        file = door.new(content(repr((name, begin))))
        assert door.create(file).status == 201
        if begin > 0:
            assert door.patch(file, 0, file.content[:begin]).status == 204
        with attached(door, f"pwrite64:error=ENOSPC{when}", paths=[door.data / name.format(file.id)]) as trace:
            answer = door.patch(file, begin, file.content[begin:end])
            assert injected(trace) and answer.status == 429 and file.told == begin, (answer.status, answer.body)
            assert answer.headers["retry-after"] == "60" and answer.headers["upload-offset"] == str(begin)
            assert door.head(file) == begin
        door.finish(file)


# ---- delivery ----

@pytest.fixture
def delivering(make_server, workdir):
    world = Artifacts(make_server("--min-free-bytes", "1", env={**ENV, **(traced() or {})}), workdir)
    world.wait_deliver()
    return world


def test_a_failing_destination_is_not_a_delivery(delivering):
    """Proves: EIO from the destination's write, sync, rename, or the syncs of its folders is text and a retry, never `verified`; it is
    verified later, by itself."""
    world = delivering
    for number, (fault, name) in enumerate([("fsync", "{}/.tallyman-{}.part"), ("renameat2", "{}/.tallyman-{}.part"), ("fsync", "{}"),
                                            ("pwrite64", "{}/.tallyman-{}.part"), ("fsync", "")]):
        file = world.new(content(f"delivery {number}"), "arrives.bin")
        assert world.create(file).status == 201
        # Twice and for as long as it is attached, also after the first retry.
        with attached(world, f"{fault}:error=EIO", paths=[str(world.place / name.format(file.id, file.package)).rstrip("/")],
                      process=world.wait_deliver()) as trace:
            world.finish(file)
            told = world.wait(lambda: (d := world.delivery(file)).get("attempts", 0) >= 2 and d["state"] != "sending" and d,
                              what="two tries")
            assert told["state"] == "retry_wait" and "Input/output error" in told["error"] and "verified_at" not in told, told
            assert injected(trace)
        told = world.wait(lambda: (d := world.delivery(file))["state"] == "verified" and d, what="the delivery")
        assert told["attempts"] >= 3 and sorted(os.listdir(world.place / file.id)) == ["arrives.bin", "arrives.bin.manifest.jsonl"]
    world.wait_verified()
    assert world.server.stop() == 0
    world.check_arrived()
    world.verify()


def test_verified_is_what_was_read_back(make_server, workdir):
    """Proves: plan and manifest are durable before the package is sealed; the copy is whole and synced before it has its name, its name
    before the row says `sent`; and `verified` is written after all of it was read from the device. Other bytes read there: parked."""
    server = make_server("--no-deliver", "--min-free-bytes", "1", env=ENV)
    world = Artifacts(server, workdir)
    file = world.new(content(10, 2 * MIB + 17), "arrives.bin")
    world.create(file, file.content)
    target, temp = f"{world.place}/{file.id}/arrives.bin", f"{world.place}/{file.id}/.tallyman-{file.package}.part"
    trace = workdir / "trace"

    def deliver(path, *injects, paths=()):
        command = [*wrapper(path, *injects, paths=paths, calls=CALLS, text=5000), "-y", BINARY, "deliver", "--data", str(server.data)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env={**os.environ, **ENV, **(traced() or {})})

    def end(process):
        process.terminate()
        assert process.wait(30) == 0

    process = deliver(trace)
    try:
        world.wait_verified()
        end(process)
        other = world.new(content(11), "other.bin")
        world.create(other, other.content)
        process = deliver(workdir / "trace.other", "pread64:retval=0", paths=[world.place / other.id / "other.bin"])
        told = world.wait(lambda: (d := world.delivery(other)).get("state") in ("parked", "verified") and d, what="the delivery")
        assert told["state"] == "parked" and "another file is at the destination" in told["error"], told
        end(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
    seen = Trace(trace, server.data)

    def row(state):
        """The first write of the row in this state, and the sync that makes it durable."""
        written = next(c for c in seen.on("delivery.sqlite-wal", "pwrite64") if f"{file.package}directory{PROJECT}{state}" in c.args)
        return written, next(c for c in seen.on("delivery.sqlite-wal", *SYNCS) if c.begin > written.end)

    # The package.
    sealed, _ = row("pending")
    for tail in ("manifest.jsonl", "plan.json"):
        part = f"packages/.part-{file.package}.{tail}"
        (renamed,) = seen.named("rename", f"/{part}\"", f"/packages/{file.package}.{tail}\"")
        seen.synced(part, seen.last(part, renamed, "pwrite64"), renamed, "a sidecar was renamed")
        seen.synced("packages", renamed, sealed, "a package was sealed")
    # The copy.
    claimed, claimed_synced = row("sending")
    sent, sent_synced = row("sent")
    renamed = seen.named("renameat2", f'"{temp}"', f'"{target}"')[0]
    written = seen.last(temp, renamed, "pwrite64")
    assert claimed_synced.end < written.begin
    seen.synced(temp, written, renamed, "a copy was renamed")
    seen.synced(f"{world.place}/{file.id}", renamed, sent, "a row says `sent`")
    # What was read back.
    verified, _ = row("verified")
    assert sent_synced.end < verified.begin
    for name, size in ((target, file.size), (f"{target}.manifest.jsonl", os.stat(f"{target}.manifest.jsonl").st_size)):
        dropped = [c for c in seen.on(name, "fadvise64") if c.begin > sent.end and c.end < verified.begin]
        assert dropped, f"{name}: the cache was not dropped"
        read = [c for c in seen.on(name, "pread64") if c.begin > dropped[0].end and c.end < verified.begin]
        assert sum(c.result for c in read) >= size, f"{name}: `verified`, and it was not read back"
    check_receipt((server.data / "receipts" / f"{file.id}.json").read_bytes(), file.id, file.size, file.blake3)


def test_what_must_not_be_delivered_is_parked(make_server, workdir):
    """Proves: rotten local bytes never arrive, another file under the name stays as it is, whatever its size, and a second deliverer
    is turned away."""
    server = make_server("--no-deliver", "--min-free-bytes", "1", env=ENV)
    world = Artifacts(server, workdir)
    rotten, same, longer, good = (world.new(content(f"parked {i}"), "arrives.bin") for i in range(4))
    for file in (rotten, same, longer, good):
        assert world.create(file, file.content).status == 201
    with open(server.data / "uploads" / rotten.id, "r+b") as bytes_of_it:
        bytes_of_it.seek(1000)
        bytes_of_it.write(bytes([rotten.content[1000] ^ 1]))
    others = {same: b"x" * SIZE, longer: b"x" * (SIZE + 1)}
    for file, other in others.items():
        (world.place / file.id).mkdir()
        (world.place / file.id / "arrives.bin").write_bytes(other)
    logs = [workdir / "first.log", workdir / "second.log"]
    processes = []
    try:
        for log in logs:
            with open(log, "wb") as out:
                processes.append(subprocess.Popen([BINARY, "deliver", "--data", str(server.data)], stdin=subprocess.DEVNULL, stdout=out,
                                                  stderr=out, env={**os.environ, **ENV}))
            world.wait(lambda: processes[-1].poll() is not None or b"deliver: ready" in log.read_bytes(), what="a start")
        assert processes[0].poll() is None and processes[1].wait(30) == 1, "two deliverers are at work"
        assert b"another tallyman deliver is at work" in logs[1].read_bytes()
        told = {file: world.wait(lambda: (d := world.delivery(file)).get("state") in ("parked", "verified") and d, what="an end")
                for file in (rotten, same, longer, good)}
        processes[0].terminate()
        assert processes[0].wait(30) == 0
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    assert [told[file]["state"] for file in (rotten, same, longer, good)] == ["parked", "parked", "parked", "verified"], told
    assert "the local bytes differ from the receipt" in told[rotten]["error"] and not (world.place / rotten.id).exists()
    for file, other in others.items():
        assert "another file is at the destination" in told[file]["error"]
        assert (world.place / file.id / "arrives.bin").read_bytes() == other and os.listdir(world.place / file.id) == ["arrives.bin"]
