"""`tallyman backup`, `restore` and `sinks`: a copy of everything, taken beside a server in use, and what comes back of it (L53).

What was acknowledged in any door before the command began is in the restored directory; what was acknowledged while it ran is there
whole or not at all; nothing leaves a restored directory before somebody says so; and no backup that was cut or changed is taken
for one.
"""
import copy
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import uuid as uuids

import pytest
from artifact_world import ENV, Artifacts, Reply, seeded
from capture_world import traced
from conftest import BINARY, batch, event, tallyman, verify
from fake_clickhouse import FakeClickHouse
from ledger import History, Ledger, Sent
from tracer import parse, wrapper

SMALL = ("--generation-bytes", "64KiB")
WATCH_S = 1.5  # how long it is watched that nothing leaves


def wait(condition, timeout=60, what="it"):
    return Artifacts.wait(condition, timeout, what)


def backup(server_or_data, place, code=0, under=(), **kw):
    """The JSON that the command prints."""
    data = getattr(server_or_data, "data", server_or_data)
    result = subprocess.run([*under, BINARY, "backup", str(place), "--data", str(data), "--json", *kw.pop("args", ())],
                            capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                            env={**os.environ, **(traced() if under else {})}, **kw)
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    return json.loads(result.stdout) if code in (0, 4) else result.stderr


def restore(place, data, *args, code=0):
    result = tallyman("restore", str(place), "--data", str(data), "--json", *args)
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    return json.loads(result.stdout) if code == 0 else result.stderr


def tree(place):
    """The committed one, which must be the only one."""
    listed = json.loads((place / "backup.json").read_text())
    assert sorted(p.name for p in place.iterdir()) == ["backup.json", "lock", listed["tree"]]
    return place / listed["tree"]


class World:
    """A server with a client at each door, and what these were told."""

    def __init__(self, server, workdir):
        self.server = server
        self.ledger = Ledger(workdir / "ledger.ndjson")
        self.files = Artifacts(server, workdir)
        self.token = json.loads(server.cli("project", "create", "web", "--json", check=0).stdout)["capture_token"]
        self.acked, self.count = {}, 0
        self.stop = threading.Event()
        self.errors, self.threads = [], []

    def append(self, events=3, size=900):
        self.count += 1
        sent = Sent(batch(f"b{self.count}", *[{**event(i), "payload": {"n": self.count, "fill": "x" * size}} for i in range(events)]))
        answer = self.ledger.append(self.server, sent)
        assert answer.status == 200, answer.body

    def capture(self):
        n, items = len(self.acked), {}
        for i in range(5):
            items[str(uuids.uuid4())] = n + i
        body = {"api_key": self.token, "batch": [{"event": "e", "distinct_id": "d", "uuid": key, "properties": {"n": value}}
                                                 for key, value in items.items()]}
        answer = self.server.request("POST", "/batch/", json.dumps(body), {"Content-Type": "application/json"})
        assert answer.status == 200, answer.body
        self.acked.update(items)

    def upload(self, size=5000):
        file = self.files.new(seeded(len(self.files.files)).randbytes(size))
        assert self.files.create(file, file.content).status == 201
        return file

    def partial(self, size=3 << 20, first=1 << 20):
        """One of which a part was acknowledged."""
        file = self.files.new(seeded(size).randbytes(size))
        assert self.files.create(file).status == 201
        assert self.files.patch(file, 0, file.content[:first]).status in (204, 400)
        return file

    def grow(self, file):
        """The next piece; a new file when it is whole."""
        if file.told == file.size:
            return self.partial()
        assert self.files.patch(file, file.told, file.content[file.told:file.told + 100000]).status == 204
        return file

    def load(self):
        """Until calm()."""
        growing = [self.partial()]

        def grow():
            growing[0] = self.grow(growing[0])

        for work in (self.append, self.capture, self.upload, grow):
            self.threads.append(threading.Thread(target=self.repeat, args=(work,)))
            self.threads[-1].start()

    def repeat(self, work):
        try:
            while not self.stop.is_set():
                work()
        except BaseException as error:  # told by calm()
            self.errors.append(error)

    def calm(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.errors, self.errors

    def told(self):
        """What is acknowledged by now."""
        with self.ledger.lock:
            batches = [sent for sent in self.ledger.by_key.values() if sent.receipt is not None]
        return batches, dict(self.acked), [copy.copy(file) for file in list(self.files.files) if file.id is not None]


@pytest.fixture
def world(make_server, workdir):
    """Rotates and seals all the time."""
    w = World(make_server(*SMALL, "--seal-after-generations", "2", env=ENV), workdir)
    yield w
    w.stop.set()
    for thread in w.threads:
        thread.join(60)


def check_journal(world, server, batches, position):
    """Everything that was told is there, at its place, nothing is half there, and appends go on behind it."""
    history = History(world.ledger)
    history.extend(server)
    for sent in batches:
        first = history.batches[sent.key]
        assert history.ids[first] == sent.receipt["first_event_id"], sent.key
        assert history.ids[first + len(sent.batch["events"]) - 1] == sent.receipt["last_event_id"], sent.key
    assert position["frontier_event_count"] == len(history.ids)
    assert position["frontier_event_id"] == history.ids[-1]
    assert position["chain_head"] == history.head
    again = server.append(batches[-1].body)
    assert again.status == 200 and again.json["status"] == "duplicate", again.body
    new = server.append(batch("after the restore", event(1)))
    assert new.status == 200 and new.json["first_event_id"] > history.ids[-1], new.body


def check_queue(server, acked):
    with sqlite3.connect(f"file:{server.data}/tallyman.sqlite?mode=ro", uri=True) as db:
        rows = {str(uuids.UUID(bytes=raw)): json.loads(text)["properties"]["n"] for raw, text in db.execute("SELECT uuid, text FROM events")}
    db.close()
    assert {key: rows[key] for key in acked} == acked


def check_files(files, told):
    for file in told:
        if file.receipt is not None:
            files.receipt_is(file)
            assert (files.data / "uploads" / file.id).read_bytes() == file.content
        elif file.told > 0:
            assert files.head(file) >= file.told
            assert (files.data / "uploads" / file.id).read_bytes()[:file.told] == file.content[:file.told]
            files.finish(file)


def test_L53_a_backup_of_a_server_in_use_comes_back_whole_and_delivers_nothing_until_it_is_told(world, make_server, workdir):
    server, place = world.server, workdir / "backup"
    kept = world.partial()
    world.load()
    wait(lambda: list((server.data / "journal" / "segments").iterdir()) and len(world.acked) >= 20 and len(world.files.files) >= 6,
         what="some load")
    rotated, made = False, 0
    while not rotated or made < 2:  # one of them has a rotation in it, and the last one has a last one to build on
        before, told = server.metric("tallyman_journal_rotations_total"), world.told()
        report = backup(server, place)
        made += 1
        assert report["number"] == made and made < 100
        rotated = rotated or server.metric("tallyman_journal_rotations_total") > before
    world.calm()
    assert report["engine"] == "absent"
    assert list((tree(place) / "journal" / "segments").iterdir()) and list((tree(place) / "journal" / "pending").iterdir())
    assert report["kept_files"] > 0 and report["files"] == report["kept_files"] + report["copied_files"]
    assert server.get("/readyz").status == 200

    result = restore(place, workdir / "restored", "--verify")
    assert result["files"] == report["files"] and result["verified"]
    proof = verify(workdir / "restored")
    assert proof["ok"] and proof["chain_head"] == report["position"]["chain_head"]
    assert proof["orphans"] == proof["remnants"] == [] and proof["artifacts"]["remnants"] == []

    with FakeClickHouse() as far:
        restored = make_server(*SMALL, "--clickhouse-url", far.url, name="restored", env=ENV)
        batches, acked, files = told
        assert kept.id in [file.id for file in files]
        check_journal(world, restored, batches, report["position"])
        check_queue(restored, acked)
        there = Artifacts.__new__(Artifacts)
        there.__dict__.update(world.files.__dict__, server=restored, data=restored.data)
        check_files(there, files)

        wait(lambda: "deliver: paused: restored" in restored.log, what="the deliverer")
        new = there.new(b"of the restored server")
        there.create(new, new.content)
        known = there.rows("SELECT count(*) FROM deliveries WHERE state = 'verified'")
        end = time.monotonic() + WATCH_S
        while time.monotonic() < end:
            assert far.statements == [] and far.inserts == [], "something was sent"
            assert not (there.place / new.id).exists(), "something was delivered"
            assert there.rows("SELECT count(*) FROM deliveries WHERE state = 'verified'") in (known, [])
            time.sleep(0.02)
        status = json.loads(restored.cli("status", "--json", check=0).stdout)
        assert status["sinks"]["paused"] and "restored from the backup of" in status["sinks"]["reason"], status["sinks"]
        assert status["queue"]["pending"] >= len(acked)

        assert restored.stop() == 0
        restored.start()
        shown = json.loads(restored.cli("sinks", "show", "--json", check=0).stdout)
        assert shown["paused"] and shown == status["sinks"]
        resumed = json.loads(restored.cli("sinks", "resume", "--json", check=0).stdout)
        assert resumed == {"paused": False}
        wait(lambda: restored.metric("tallyman_queue_events") == 0, what="the queue's delivery")
        assert set(acked) <= {row["uuid"] for row in far.rows}
        wait(lambda: (there.place / new.id / new.name.replace(" ", "_")).exists(), what="the file's delivery")
        assert restored.stop() == 0
    final = verify(restored.data)
    assert final["ok"], final


# ---- sinks ----

def test_deliveries_pause_and_resume_while_the_server_runs(make_server, workdir):
    with FakeClickHouse() as far:
        w = World(make_server("--clickhouse-url", far.url, env=ENV), workdir)
        w.capture()
        wait(lambda: w.server.metric("tallyman_queue_events") == 0, what="a delivery")
        paused = json.loads(w.server.cli("sinks", "pause", "--reason", "moving \"house\"", "--json", check=0).stdout)
        assert paused["paused"] and paused["reason"] == 'moving "house"'
        inserts = len(far.inserts)
        w.capture()
        end = time.monotonic() + WATCH_S
        while time.monotonic() < end:
            assert len(far.inserts) == inserts, "something was sent"
            time.sleep(0.02)
        status = w.server.cli("status", "--project", "web", check=0)
        assert "deliveries are paused" in status.stdout
        again = json.loads(w.server.cli("sinks", "pause", "--json", check=0).stdout)
        assert again["reason"] == "paused by tallyman sinks pause"
        w.server.cli("sinks", "resume", check=0)
        w.server.cli("sinks", "resume", check=0)
        wait(lambda: w.server.metric("tallyman_queue_events") == 0, what="the delivery")
        # Nobody but the administrator, and only with a body that is understood.
        assert w.server.request("POST", "/api/v1/sinks/pause", "{}", {"Content-Type": "application/json"}).status == 404
        for body in ("[]", '{"reason":1}', '{"why":"x"}', "{"):
            answer = w.server.request("POST", "/api/v1/sinks/pause", body, {"Content-Type": "application/json"}, unix=True)
            assert answer.status == 400, (body, answer.body)
        assert w.server.request("GET", "/api/v1/sinks", unix=True).json == {"paused": False}


def test_pauses_at_once_are_all_taken(make_server):
    server, codes = make_server(env=ENV), []

    def pause():
        for _ in range(15):
            codes.append(server.cli("sinks", "pause", "--retry", "0").returncode)

    threads = [threading.Thread(target=pause) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 60
    assert json.loads((server.data / "paused").read_text())["reason"]


def test_sinks_without_a_server(make_server):
    server = make_server()
    server.stop()
    shown = json.loads(server.cli("sinks", "show", "--json", check=0).stdout)
    assert shown == {"paused": False}
    server.cli("sinks", "pause", "--reason", "x" * 1000, check=0)
    assert "x" * 300 + "\n" in server.cli("sinks", "show", check=0).stdout
    (server.data / "paused").write_bytes(b"\xff{")  # fails closed
    server.start()
    assert json.loads(server.cli("status", "--json", check=0).stdout)["sinks"]["paused"]
    server.cli("sinks", "resume", check=0)
    assert not (server.data / "paused").exists()
    server.stop()
    assert json.loads(server.cli("sinks", "show", "--json", check=0).stdout) == {"paused": False}
    assert tallyman("sinks", "pause", "--data", str(server.data / "none")).returncode == 1
    assert tallyman("sinks", "stop", "--data", str(server.data)).returncode == 2
    assert tallyman("sinks", "show", "--reason", "x", "--data", str(server.data)).returncode == 2


# ---- what is copied, and when ----

@pytest.fixture
def filled(make_server, workdir):
    """A server at rest with something in every store."""
    w = World(make_server(*SMALL, env=ENV), workdir)
    for _ in range(60):
        w.append()
    w.capture()
    w.upload()
    w.upload(200000)
    w.partial(first=500000)
    w.files.wait_verified()
    return w


def test_incremental_only_new_generations_and_files_are_copied(filled, workdir):
    place = workdir / "backup"
    first = backup(filled.server, place)
    assert first["kept_files"] == 0 and first["copied_bytes"] == first["bytes"]
    fixed = {p.relative_to(tree(place)): p.stat() for folder in ("journal/pending", "receipts", "packages")
             for p in (tree(place) / folder).iterdir()}
    receipts = [p.stem for p in (tree(place) / "receipts").iterdir()]
    fixed.update({pathlib.Path("uploads") / id: (tree(place) / "uploads" / id).stat() for id in receipts})
    assert len(receipts) == 2 and len(fixed) > 8
    for _ in range(30):
        filled.append()
    filled.upload(100000)
    second = backup(filled.server, place)
    for name, was in fixed.items():
        now = (tree(place) / name).stat()
        assert (now.st_ino, now.st_mtime_ns, now.st_size) == (was.st_ino, was.st_mtime_ns, was.st_size), name
    assert second["kept_files"] >= len(fixed) and second["copied_bytes"] < second["bytes"]
    assert second["position"]["frontier_event_count"] == first["position"]["frontier_event_count"] + 90
    # A copy that has rotted is not carried along.
    rotten = next(name for name in fixed if name.parent.name == "pending")
    with open(tree(place) / rotten, "r+b") as file:
        file.seek(1000)
        file.write(b"?")
    backup(filled.server, place)
    assert (tree(place) / rotten).read_bytes() == (filled.server.data / rotten).read_bytes()
    restore(place, workdir / "restored", "--verify")


def test_secrets_are_nobody_elses(filled, workdir):
    key = filled.server.data / "head.key"
    if not key.exists():
        key.write_text("a key\n")
        key.chmod(0o600)
    place = workdir / "backup"
    backup(filled.server, place)
    assert place.stat().st_mode & 0o777 == 0o700
    for path in (tree(place) / "head.key", tree(place) / "tallyman.sqlite", place / "backup.json"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    restore(place, workdir / "restored")
    assert (workdir / "restored" / "head.key").read_bytes() == key.read_bytes()
    assert (workdir / "restored").stat().st_mode & 0o777 == 0o700
    assert (workdir / "restored" / "head.key").stat().st_mode & 0o777 == 0o600
    for name in ("index", "lock", "tallyman.sock", "delivery.lock"):
        assert not (tree(place) / name).exists()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_without_a_server(filled, workdir, end):
    getattr(filled.server, end)()
    data, place = filled.server.data, workdir / "backup"
    before = verify(data)
    if end == "kill":  # a group that was being written when the power went
        tail = data / "journal" / "tail.ndjson"
        used = len(tail.read_bytes().rstrip(b"\0"))
        with open(tail, "r+b") as file:
            file.seek(used)
            file.write(b'{"batch_digest":"torn')
        # and a package of which there is the manifest only.
        (data / "packages" / ("f" * 64 + ".manifest.jsonl")).write_text("{}\n")
    report = backup(data, place)
    assert report["position"]["chain_head"] == before["chain_head"]
    restore(place, workdir / "restored", "--verify")
    packages = {p.name for p in (data / "packages").iterdir() if not p.name.startswith("ffff")}
    assert {p.name for p in (workdir / "restored" / "packages").iterdir()} == packages and len(packages) == 4
    filled.server.start()
    assert backup(data, place)["position"] == report["position"]


def test_damage_is_told_and_the_last_backup_stays(filled, workdir):
    place = workdir / "backup"
    backup(filled.server, place)
    was = (place / "backup.json").read_bytes()
    filled.server.stop()
    pending = sorted((filled.server.data / "journal" / "pending").iterdir())[0]
    sound = pending.read_bytes()
    pending.write_bytes(sound[:500] + b"#" + sound[501:])
    fresh = backup(filled.server.data, workdir / "fresh", code=3)
    assert "does not verify" in fresh and pending.name in fresh, fresh
    assert "fresh" in restore(workdir / "fresh", workdir / "none", code=1)
    pending.write_bytes(sound)
    tail = filled.server.data / "journal" / "tail.ndjson"
    with open(tail, "r+b") as file:
        file.seek(200)
        file.write(b"#")
    assert "tail.ndjson" in backup(filled.server.data, place, code=3)
    assert (place / "backup.json").read_bytes() == was
    restore(place, workdir / "restored", "--verify")


def test_a_backup_without_the_engines_data_never_replaces_one_with_it(filled, workdir):
    place, engine = workdir / "backup", filled.server.data / "engine" / "data"
    filled.server.stop()
    engine.mkdir(parents=True)
    (engine / "rows").write_text("delivered events\n")
    assert backup(filled.server, place)["engine"] == "copied"
    was = (place / "backup.json").read_bytes()
    filled.server.start()  # nobody can say what its files are while it runs: its engine is off
    assert "the last backup has it, and stays" in backup(filled.server, place, code=1)
    assert backup(filled.server, workdir / "other", code=4)["engine"] == "left_out"
    assert (place / "backup.json").read_bytes() == was
    assert (tree(place) / "engine" / "data" / "rows").read_text() == "delivered events\n"
    engine.rename(workdir / "moved")
    engine.symlink_to(workdir / "moved")  # what cannot be looked into is not absent
    assert "engine/data" in backup(filled.server, place, code=1)
    assert (place / "backup.json").read_bytes() == was
    engine.unlink()
    assert backup(filled.server, place)["engine"] == "absent"


# ---- interruptions and failures ----

CALLS = "openat,pwrite64,fsync,rename,unlink,link,rmdir,pread64,mkdir"
KILLS = ["openat:when=12", "pwrite64:when=1", "link:when=1", "fsync:when=1", "fsync:when=5", "fsync:when=14", "rename:when=1",
         "unlink:when=1", "rmdir:when=2"]


def under(trace, inject, paths=()):
    return wrapper(trace, inject, calls=CALLS, paths=paths)


def test_L53_a_killed_backup_leaves_the_last_one_and_is_taken_up_again(filled, workdir):
    place = workdir / "backup"
    last = backup(filled.server, place)
    committed = 0
    for i, kill in enumerate(KILLS):
        filled.append()
        name, when = kill.split(":")
        run = subprocess.run([*under(workdir / f"trace.{i}", f"{name}:signal=KILL:{when}"), BINARY, "backup", str(place),
                              "--data", str(filled.server.data)], capture_output=True, timeout=60, env={**os.environ, **traced()})
        assert run.returncode == -signal.SIGKILL, (kill, run)
        number = json.loads((place / "backup.json").read_text())["number"]
        assert number in (last["number"], last["number"] + 1), kill
        committed += number > last["number"]
        target = workdir / f"restored.{i}"
        restore(place, target, "--verify")
        last = backup(filled.server, place)
        assert last["number"] > number
        tree(place)  # nothing of the interrupted one is left
    assert 0 < committed < len(KILLS), "kills on both sides of the commit"


@pytest.mark.parametrize("inject, words", [
    ("pwrite64:error=ENOSPC:when=1+", "No space left"), ("pwrite64:error=ENOSPC:when=3+", "disk is full"), ("fsync:error=EIO:when=3", "Input/output error"),
    ("rename:error=EROFS:when=1", "Read-only file system"), ("mkdir:error=EACCES:when=2", "Permission denied"),
    ("pread64:error=EIO:when=20+", "")])
def test_a_failing_disk_is_told_and_the_last_backup_stays(filled, workdir, inject, words):
    place = workdir / "backup"
    backup(filled.server, place)
    filled.append()
    was = (place / "backup.json").read_bytes()
    result = subprocess.run([*under(workdir / "trace", inject), BINARY, "backup", str(place), "--data", str(filled.server.data)],
                            capture_output=True, text=True, timeout=60, env={**os.environ, **traced()})
    assert result.returncode in (1, 3) and words in result.stderr, (result.returncode, result.stderr)
    assert result.stdout == "" and result.stderr.startswith("tallyman backup: "), result
    assert (place / "backup.json").read_bytes() == was
    if "rename" not in inject:  # the disk is not left full
        tree(place)
    restore(place, workdir / "restored", "--verify")
    backup(filled.server, place)


def test_where_files_have_one_name_only_everything_is_copied(filled, workdir):
    place = workdir / "backup"
    backup(filled.server, place)
    report = backup(filled.server, place, under=under(workdir / "trace", "link:error=EPERM"))
    assert report["kept_files"] == 0 and report["copied_files"] == report["files"]
    restore(place, workdir / "restored", "--verify")


def opened(calls):
    """(path, call, 'fsync' or 'write') of every sync and write, by what its descriptor was opened for."""
    names = {}
    for call in calls:
        if call.name == "openat" and call.result is not None and call.result >= 0:
            names[call.result] = call.args.split('"')[1]
        elif call.name in ("fsync", "fdatasync", "pwrite64") and call.fd in names:
            yield names[call.fd], call


def test_every_file_and_directory_is_synced_before_the_list_is_renamed(filled, workdir):
    place, trace = workdir / "backup", workdir / "trace"
    backup(filled.server, place, under=wrapper(trace, calls=CALLS + ",fdatasync", text=300))
    calls = parse(trace)
    commit = [call for call in calls if call.name == "rename"]
    assert len(commit) == 1 and commit[0].args.count("backup.json") == 2
    whole = tree(place)
    check_synced(calls, [*whole.rglob("*"), whole, place, place / "backup.json.tmp"], commit[0])
    assert any(path == str(place) and call.name == "fsync" and call.begin > commit[0].end for path, call in opened(calls))


def check_synced(calls, wanted, commit):
    """Each of these was synced before the commit, and not written after that."""
    synced, written = {}, {}
    for path, call in opened(calls):
        if call.name == "pwrite64":
            written[path] = call.begin
        elif call.result == 0 and call.end < commit.begin:
            synced[path] = call.begin
    assert len(wanted) > 20
    for path in map(str, wanted):
        assert path in synced, f"{path} is not synced before the commit"
        assert written.get(path, -1) < synced[path], f"{path} is written behind its sync"


def test_every_file_and_directory_is_synced_before_a_restore_ends(filled, workdir):
    place, data, trace = workdir / "backup", workdir / "target", workdir / "trace"
    backup(filled.server, place)
    done = subprocess.run([*wrapper(trace, calls=CALLS + ",fdatasync", text=300), BINARY, "restore", str(place), "--data", str(data)],
                          capture_output=True, timeout=60, env={**os.environ, **traced()})
    assert done.returncode == 0, done
    calls = parse(trace)
    commit, = (call for call in calls if call.name == "unlink" and call.args.endswith('/restoring"'))
    paused, = (call for call in calls if call.name == "rename" and call.result == 0)
    check_synced(calls, [p for p in data.rglob("*") if p.name != "paused"] + [data, data / ".paused", data / "restoring"], commit)
    synced = [(path, call) for path, call in opened(calls) if call.name == "fsync" and call.result == 0]
    assert any(path == str(data) and paused.end < call.begin and call.end < commit.begin for path, call in synced)
    assert any(path == str(data) and call.begin > commit.end for path, call in synced)


# ---- refusals ----

def flip(path, at=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def swap(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


TAMPER = {
    "a changed byte": lambda t: (flip(t / "journal" / "tail.ndjson"), "journal/tail.ndjson"),
    "a changed database": lambda t: (flip(t / "tallyman.sqlite"), "tallyman.sqlite"),
    "a cut file": lambda t: (os.truncate(t / "journal" / "tail.ndjson", 100), "journal/tail.ndjson"),
    "a missing file": lambda t: ((t / "journal" / "manifest.jsonl").unlink(), "journal/manifest.jsonl"),
    "a missing folder": lambda t: (shutil.rmtree(t / "receipts"), "receipts"),
    "a changed list": lambda t: (flip(t.parent / "backup.json"), "backup.json"),
    "a list with a word that only its own hash covers": lambda t: (swap(t.parent / "backup.json", b'"mode":"600"', b'"mode":"640"'),
                                                                   "backup.json"),
    "a cut list": lambda t: (os.truncate(t.parent / "backup.json", 400), "backup.json"),
    "an empty list": lambda t: (os.truncate(t.parent / "backup.json", 0), "backup.json"),
    "no tree": lambda t: (shutil.rmtree(t), "journal"),
}


def test_L53_a_backup_that_was_changed_or_cut_is_refused_with_its_files_name(filled, workdir):
    place = workdir / "backup"
    backup(filled.server, place)
    for i, (what, change) in enumerate(TAMPER.items()):
        other = workdir / f"other.{i}"
        shutil.copytree(place, other)
        name = change(tree_of(other))[1]
        data = workdir / f"data.{i}"
        words = restore(other, data, code=3)
        assert name in words, (what, words)
        if data.exists():  # it was found while it was copied
            served = tallyman("serve", "--data", str(data), "--listen", "", timeout=30)
            assert served.returncode == 1 and "interrupted restore" in served.stderr, (what, served.stderr)
    upload = next(p for p in (tree_of(place) / "uploads").iterdir() if p.suffix == "" and p.stat().st_size == 200000)
    flip(upload)
    assert f"uploads/{upload.name}" in restore(place, workdir / "target", code=3)
    (place / "backup.json").unlink()
    assert "backup.json" in restore(place, workdir / "data.none", code=1)
    assert not (workdir / "data.none").exists()


def tree_of(place):
    return place / json.loads((place / "backup.json").read_text())["tree"]


def test_a_list_that_leads_out_of_the_directory_is_refused(filled, workdir):
    """Whoever can write the list can write its hash; the paths in it are looked at all the same."""
    import hashlib
    place = workdir / "backup"
    backup(filled.server, place)
    good = (place / "backup.json").read_bytes()
    for bad in (b"../../escape", b"/etc/escape", b"journal/../../escape", b"journal//x", b"."):
        changed = good.replace(b'"journal/tail.ndjson"', b'"' + bad + b'"')[:-78]
        (place / "backup.json").write_bytes(changed + b',"sha256":"' + hashlib.sha256(changed).hexdigest().encode() + b'"}\n')
        assert "backup.json" in restore(place, workdir / "target", code=3)
    later = good.replace(b'"version":1', b'"version":2')[:-78]
    (place / "backup.json").write_bytes(later + b',"sha256":"' + hashlib.sha256(later).hexdigest().encode() + b'"}\n')
    assert "later version" in restore(place, workdir / "target", code=1)
    assert not (workdir / "target").exists() and not (workdir / "escape").exists()


def test_L53_places_that_are_refused(filled, workdir):
    place, data = workdir / "backup", filled.server.data
    assert "must not lie in each other" in backup(filled.server, data / "backup", code=2)
    assert "must not lie in each other" in backup(filled.server, workdir, code=2)
    mine = workdir / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("x")
    assert "thesis.txt" in backup(filled.server, mine, code=2)
    assert sorted(p.name for p in mine.iterdir()) == ["thesis.txt"]
    assert backup(workdir / "nowhere", place, code=1)
    backup(filled.server, place)
    assert "not empty" in restore(place, data, code=2)
    assert "not empty" in restore(place, mine, code=2)
    assert "lies in the backup" in restore(place, place / "data", code=2)
    assert not (place / "data").exists()
    assert tallyman("restore", str(place)).returncode == 2
    (workdir / "empty").mkdir()
    restore(place, workdir / "empty")
    assert "not empty" in restore(place, workdir / "empty", code=2)
    (workdir / "disk" / "lost+found").mkdir(parents=True)  # a file system of its own
    restore(place, workdir / "disk", "--verify")
    assert filled.server.get("/readyz").status == 200


def test_L53_an_interrupted_restore_is_no_data_directory_and_is_repeated(filled, workdir):
    place, data = workdir / "backup", workdir / "target"
    backup(filled.server, place)
    for i, kill in enumerate(("fsync:signal=KILL:when=2", "fsync:signal=KILL:when=6", "rename:signal=KILL:when=1")):
        run = subprocess.run([*under(workdir / f"trace.{i}", kill), BINARY, "restore", str(place), "--data", str(data)],
                             capture_output=True, timeout=60, env={**os.environ, **traced()})
        assert run.returncode == -signal.SIGKILL, run
        for verb in (["serve", "--listen", ""], ["deliver"], ["sinks", "show"], ["backup", str(workdir / "no")], ["seal"], ["reindex"]):
            refused = tallyman(*verb, "--data", str(data), timeout=30)
            assert refused.returncode == 1 and "interrupted restore" in refused.stderr, (verb, refused)
    filled.append()
    backup(filled.server, workdir / "newer")
    assert "another backup" in restore(workdir / "newer", data, code=2)
    restore(place, data, "--verify")
    assert not (data / "restoring").exists() and (data / "paused").exists()


def test_two_at_a_time_are_not(filled, workdir):
    place = workdir / "backup"
    backup(filled.server, place)
    import fcntl
    with open(place / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another backup" in backup(filled.server, place, code=1)
    backup(filled.server, place)
