"""`tallyman deliver` on data directories as the artifact door leaves them: what arrives, what is refused, what a crash costs.

The uploads and receipts are files of the documented form (spec/artifacts.md sections 3 and 5), written here, so that every state
that a door or a disk may leave can be shown; tallyman.sqlite is a real server's. A test with `hole` in its name is about those numbers of section 12 there, one with T07 about
that case of the reported faults. SEED gives the random tests their numbers back.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest
from conftest import BINARY, Server, tallyman
from tracer import wrapper
from world import SANITIZED

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
BACKOFF_MS = "200"
READY = " info deliver: ready"
ACCEPTED_AT = 1795996800
PROJECTS = ("alpha", "beta", "gamma")


def wait(condition, process=None, timeout=60):
    """The first true value of condition()."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert process is None or process.poll() is None, f"deliver ended with {process.returncode}"
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    """tallyman.sqlite of a real server with PROJECTS, which have no destination yet."""
    data = tmp_path_factory.mktemp("control") / "data"
    server = Server(data, env={"TALLYMAN_ENGINE": "off"}).start()
    try:
        for name in PROJECTS:
            made = tallyman("project", "create", name, "--data", str(data))
            assert made.returncode == 0, made.stderr
    finally:
        server.stop()
    return data


class Artifact:
    """One accepted file."""

    def __init__(self, content, project, filename, id):
        self.content, self.project, self.filename, self.id = content, project, filename, id
        self.blake3 = None

    @property
    def package(self):
        fields = ("tallyman-package-v1", "identity", self.project, self.id, f"blake3:{self.blake3}", str(len(self.content)))
        return hashlib.sha256(b"".join(f.encode() + b"\0" for f in fields)).hexdigest()

    def checksums(self):
        return [f"blake3:{self.blake3}", "md5:" + hashlib.md5(self.content).hexdigest(),
                "sha1:" + hashlib.sha1(self.content).hexdigest()]

    @property
    def manifest(self):
        lines = [{"type": "tallyman-package", "version": 1, "packager": "identity", "format": "artifact"},
                 {"type": "input", "name": f"{self.id}/{self.filename or self.id}", "object_id": self.id,
                  "receipt_id": f"receipt:{self.id}", "offset": 0, "size": len(self.content),
                  "checksums": self.checksums(), "accepted_at": ACCEPTED_AT},
                 {"type": "output", "size": len(self.content), "checksums": self.checksums(), "inputs": 1}]
        return "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines).encode()


class World:
    """A data directory, destinations, and the deliverer that is at work on it."""

    def __init__(self, workdir, control):
        self.data = workdir / "data"
        self.log_path = workdir / "deliver.log"
        self.workdir = workdir
        self.process = None
        self.artifacts = []
        for name in ("uploads", "receipts"):
            (self.data / name).mkdir(parents=True, mode=0o750)
        for file in control.glob("tallyman.sqlite*"):
            shutil.copy(file, self.data)

    def destination(self, project, make=True):
        place = self.workdir / f"place-{project}"
        if make:
            place.mkdir()
        self.point(project, place)
        return place

    def point(self, project, place):
        with contextlib.closing(sqlite3.connect(self.data / "tallyman.sqlite")) as db, db:
            db.execute("INSERT OR REPLACE INTO artifact_projects(project, sink, directory) SELECT id, 'directory', ? FROM projects WHERE name = ?",
                       (str(place), project))

    def accept(self, *contents, project="alpha", filename="a file.bin"):
        """Accepted files as the door leaves them, with their receipts; gives the artifacts."""
        made = []
        for content in contents:
            a = Artifact(content, project, filename, os.urandom(16).hex())
            (self.data / "uploads" / a.id).write_bytes(content)
            made.append(a)
        sums = subprocess.run(["b3sum", "--no-names", *(str(self.data / "uploads" / a.id) for a in made)],
                              capture_output=True, text=True, check=True).stdout.split()
        for a, blake3 in zip(made, sums):
            a.blake3 = blake3
            meta = {"checksum": f"blake3:{blake3}", "project": project, **({"filename": filename} if filename else {})}
            self.put(f"uploads/{a.id}.info", {
                "ID": a.id, "Size": len(a.content), "SizeIsDeferred": False, "Offset": 0, "MetaData": meta,
                "IsPartial": False, "IsFinal": False, "PartialUploads": None,
                "Storage": {"InfoPath": "", "Path": "", "Type": "filestore"}})
            self.put(f"receipts/{a.id}.json", {
                "id": f"receipt:{a.id}", "issuer": "http://127.0.0.1", "object_id": a.id, "checksum": f"blake3:{blake3}",
                "size_bytes": len(a.content), "accepted_at": ACCEPTED_AT})
        self.artifacts += made
        return made

    def put(self, name, value):
        temp = self.data / "uploads" / ".made-by-the-test"
        temp.write_text(json.dumps(value, separators=(",", ":")))
        temp.rename(self.data / name)

    def start(self, *args, injects=(), paths=(), calls="fsync,renameat2,pwrite64,pread64", **more):
        env = dict(os.environ, TALLYMAN_DELIVERY_BACKOFF_MS=BACKOFF_MS)
        command = [BINARY, "deliver", "--data", str(self.data), *args]
        if injects and "--concurrency" not in args:
            command += ["--concurrency", "1"]  # strace counts calls by thread
            command = wrapper(self.workdir / "trace", *injects, paths=paths, calls=calls) + command
            if SANITIZED:  # LeakSanitizer does not work under ptrace
                env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.ready = (self.log if self.log_path.exists() else "").count(READY)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, **more)
        return self.process

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def until_ready(self):
        wait(lambda: self.log.count(READY) > self.ready, self.process)

    def end(self, signal_number=signal.SIGTERM):
        """A signal to a process that can take it, and the exit code."""
        self.until_ready()
        self.process.send_signal(signal_number)
        code = self.process.wait(60)
        self.process = None
        return code

    def rows(self, sql, *args):
        """Of delivery.sqlite; [] while there is none, or no table in it, or a kill has cut the making of the tables (that journal is
        its owner's to roll back)."""
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.data}/delivery.sqlite?mode=ro", uri=True)) as db:
                return db.execute(sql, args).fetchall()
        except sqlite3.OperationalError as error:
            assert any(words in str(error) for words in ("unable to open", "no such table", "locked", "readonly database")), error
            return []

    def row(self, a):
        """State, attempts, error and way out of one delivery, or of the build before it."""
        rows = self.rows("SELECT d.state, d.attempts, d.last_error, d.way_out FROM deliveries d JOIN package_members m"
                         " USING(package_id) WHERE m.object_id = ?", a.id)
        rows = rows or self.rows("SELECT p.state, p.build_attempts, p.build_error, p.way_out FROM packages p"
                                 " JOIN package_members m USING(package_id) WHERE m.object_id = ?", a.id)
        return rows[0] if rows else ("unknown", 0, "", "")

    def until(self, a, *states):
        return wait(lambda: self.row(a)[0] in states and self.row(a), self.process)

    def all_verified(self):
        for a in self.artifacts:
            self.until(a, "verified")


@pytest.fixture
def world(workdir, control):
    made = World(workdir, control)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait(10)
    if made.log_path.exists():
        print(made.log[-6000:])


def tree(place):
    """Every file below a place: name to content."""
    return {str(p.relative_to(place)): p.read_bytes() for p in pathlib.Path(place).rglob("*") if p.is_file()}


def arrived(a, name):
    return {f"{a.id}/{name}": a.content, f"{a.id}/{name}.manifest.jsonl": a.manifest}


def test_T07_hole_10_13_delivered_and_verified(world):
    """Proves: bytes, manifest and plan are exact, nothing else is left anywhere, and the local files are not touched."""
    place = world.destination("alpha")
    files = [*world.accept(b"x", filename="../grüße an <alle>.txt"), *world.accept(os.urandom(3 * 2**20 + 5), filename=".hidden"),
             *world.accept(b"no name", filename=None), *world.accept(b"long", filename="n" * 200)]
    before = {p: (p.stat().st_mtime_ns, p.stat().st_ino, p.read_bytes()) for d in ("uploads", "receipts")
              for p in (world.data / d).iterdir()}
    world.start()
    world.all_verified()
    names = [files[0].id, files[1].id, files[2].id, "n" * 120]  # the first two begin with a dot
    want = {}
    for a, name in zip(files, names):
        want |= arrived(a, name)
        plan = (world.data / "packages" / f"{a.package}.plan.json").read_bytes()
        manifest_sums = hashlib.md5(a.manifest).hexdigest(), hashlib.sha1(a.manifest).hexdigest()
        parsed = json.loads(plan)
        blake3 = subprocess.run(["b3sum", "--no-names"], input=a.manifest, capture_output=True, check=True).stdout.decode().strip()
        assert parsed == {
            "version": 2, "package_id": a.package, "object_id": a.id, "project": "alpha", "packager": "identity",
            "sink": "directory", "directory": str(place), "credentials_file": "", "identifier": a.id, "metadata": {},
            "retention_ms": None, "files": [
                {"name": name, "source": f"uploads/{a.id}", "size": len(a.content), "md5": a.checksums()[1][4:],
                 "sha1": a.checksums()[2][5:], "blake3": a.blake3},
                {"name": name + ".manifest.jsonl", "source": f"packages/{a.package}.manifest.jsonl", "size": len(a.manifest),
                 "md5": manifest_sums[0], "sha1": manifest_sums[1], "blake3": blake3}]}
        assert plan == json.dumps(parsed, separators=(",", ":")).encode() + b"\n"
        assert (world.data / "packages" / f"{a.package}.manifest.jsonl").read_bytes() == a.manifest
    assert tree(place) == want
    assert len(list((world.data / "packages").iterdir())) == 2 * len(files)
    assert world.end() == 0
    for path, (mtime, inode, content) in before.items():
        assert (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes()) == (mtime, inode, content)
    for a in files:
        assert world.row(a)[1:] == (1, "", "")
        assert f"{a.id[:8]} is delivered and verified: {place}/{a.id[:8]}.../" in world.log
        assert a.id[:9] not in world.log, "ids are shortened in logs"
    # Names of the ordinary kind are kept, bytes outside the set become '_'.
    ordinary = world.accept(b"y", filename="Grüße (1).txt")[0]
    world.start()
    world.until(ordinary, "verified")
    assert tree(place / ordinary.id).keys() == {"Gr____e__1_.txt", "Gr____e__1_.txt.manifest.jsonl"}
    assert world.end() == 0


def test_a_receipt_that_comes_is_delivered_at_once_and_a_second_deliverer_is_refused(world):
    """Proves: a new receipt needs no scan, and the lock lets one process work on a data directory."""
    place = world.destination("alpha")
    world.start()
    world.until_ready()
    second = tallyman("deliver", "--data", str(world.data), timeout=30)
    assert second.returncode == 1 and "another tallyman deliver is at work" in second.stderr
    for i in range(3):
        a = world.accept(b"%d" % i)[0]
        world.until(a, "verified")
        assert tree(place / a.id).keys() == {"a_file.bin", "a_file.bin.manifest.jsonl"}
    assert world.end(signal.SIGINT) == 0
    # The lock ends with the process.
    world.start()
    assert world.end(signal.SIGHUP) == 0


def test_hole_6_18_an_absent_directory_is_waited_for_and_never_made_and_holds_nobody_up(world):
    """Proves: the mount that is not mounted is not filled, and other projects' files arrive meanwhile."""
    absent = world.destination("alpha", make=False)
    waiting = world.accept(*(b"w%d" % i for i in range(8)))
    homeless = world.accept(b"nowhere", project="gamma")[0]  # gamma has no destination
    place = world.destination("beta")
    world.start()
    passing = world.accept(*(b"p%d" % i for i in range(8)), project="beta")
    for a in passing:
        world.until(a, "verified")
    state, attempts, error, way_out = world.until(waiting[0], "retry_wait")
    assert attempts >= 1 and error == f"the directory {absent} is not there" and way_out == ""
    assert "the project gamma has no destination" in wait(lambda: world.row(homeless)[2], world.process)
    wait(lambda: sum(world.row(a)[1] for a in waiting) >= 3, world.process)
    assert not absent.exists()
    assert len(tree(place)) == 16
    absent.mkdir()
    for a in waiting:
        assert world.until(a, "verified")[2:] == ("", "")
    gamma = world.destination("gamma")
    world.until(homeless, "verified")
    assert len(tree(absent)) == 16 and len(tree(gamma)) == 2
    assert world.end() == 0


def test_another_file_under_the_name_is_never_overwritten(world):
    """Proves: other content of the same or another size, a folder and a link park the delivery, and stay as they are."""
    place = world.destination("alpha")
    a, b, c, d, e = world.accept(b"mine", b"mine", b"mine", b"mine", b"free")
    for x in (a, b, c, d):
        (place / x.id).mkdir()
    (place / a.id / "a_file.bin").write_bytes(b"them")
    (place / b.id / "a_file.bin").write_bytes(b"others")
    (place / c.id / "a_file.bin").mkdir()
    (place / d.id / "a_file.bin").symlink_to(place / a.id / "a_file.bin")
    world.start()
    for x in (a, b, c, d):
        state, attempts, error, way_out = world.until(x, "parked")
        assert error == f"another file is at the destination: {place}/{x.id}/a_file.bin" and "move the other file" in way_out
        assert f"error deliver: {x.id[:8]} is parked" in world.log
    world.until(e, "verified")
    assert tree(place) == {**arrived(e, "a_file.bin"), f"{a.id}/a_file.bin": b"them", f"{b.id}/a_file.bin": b"others",
                           f"{d.id}/a_file.bin": b"them"}
    assert world.end() == 0
    (place / a.id / "a_file.bin").rename(place / "moved away")
    world.start()
    world.until(a, "verified")
    world.until(b, "parked")
    assert tree(place / a.id) == {k.split("/")[1]: v for k, v in arrived(a, "a_file.bin").items()}
    assert world.end() == 0


@pytest.mark.parametrize("how", ["removed", "damaged", "foreign"])
def test_hole_19_a_lost_index_is_made_anew(world, how):
    """Proves: sealed packages come back from their plans, what is there counts and is not copied again, nothing moves."""
    place = world.destination("alpha")
    files = world.accept(*(os.urandom(1000 + i) for i in range(5)))
    world.start()
    world.all_verified()
    assert world.end() == 0
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in place.rglob("*")}
    sealed = {p: p.stat().st_ino for p in (world.data / "packages").iterdir()}
    index = world.data / "delivery.sqlite"
    if how == "removed":
        index.unlink()  # the WAL stays behind
    else:
        with contextlib.closing(sqlite3.connect(index)) as db:
            assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        content = bytearray(index.read_bytes())
        assert len(content) > 2 * 4096
        if how == "damaged":
            content[4096:] = b"Z" * (len(content) - 4096)
        else:
            content[:16] = b"what is this ???"
        index.write_bytes(content)
    # What was sealed stays where its plan says; what comes now goes where the project says now.
    elsewhere = world.workdir / "elsewhere"
    elsewhere.mkdir()
    world.point("alpha", elsewhere)
    (world.data / "packages" / f"{files[0].package}.manifest.jsonl").unlink()
    world.start()
    world.until_ready()
    later = world.accept(b"later")[0]
    world.all_verified()
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in place.rglob("*")} == before
    assert tree(elsewhere) == arrived(later, "a_file.bin")
    for path, inode in sealed.items():
        assert files[0].package in path.name or path.stat().st_ino == inode, "an adopted package was built again"
    assert (world.data / "packages" / f"{files[0].package}.manifest.jsonl").read_bytes() == files[0].manifest
    assert world.log.count(READY + ", with a new delivery.sqlite") == 2
    assert (world.data / "delivery.sqlite.damaged").exists() == (how != "removed")
    assert world.end() == 0


def test_damage_that_only_reading_shows(world):
    """Proves: a row that makes no sense ends the process once; the next start has everything from receipts and plans again."""
    place = world.destination("alpha", make=False)
    a, b = world.accept(b"one", b"two")
    world.start()
    for x in (a, b):
        world.until(x, "retry_wait")
    assert world.end() == 0
    with contextlib.closing(sqlite3.connect(world.data / "delivery.sqlite")) as db, db:
        db.execute("UPDATE packages SET plan = replace(plan, 'alpha', 'alpho') WHERE package_id = ?", (a.package,))
        db.execute("UPDATE packages SET plan = 'x' WHERE package_id = ?", (b.package,))
    # A plan on the disk that is damaged as well is made anew, with the same bytes.
    plan = world.data / "packages" / f"{b.package}.plan.json"
    whole = plan.read_bytes()
    plan.write_bytes(whole[:100])
    process = world.start()
    assert process.wait(60) == 1
    assert "delivery.sqlite is damaged; it is put aside" in world.log and (world.data / "delivery.sqlite.damaged").exists()
    place.mkdir()
    world.start()
    world.all_verified()
    assert tree(place) == {**arrived(a, "a_file.bin"), **arrived(b, "a_file.bin")}
    assert plan.read_bytes() == whole and f"{b.id[:8]}: its plan is damaged" in world.log
    assert world.end() == 0


def test_wrong_usage(world):
    """Proves: what the operator got wrong is said, with its exit code, and changes nothing."""
    for args, env, code, text in (
            (("--data", str(world.workdir / "none")), {}, 1, "No such file or directory"),
            (("--data", str(world.data), "--parent-fd", "99"), {}, 1, "Bad file descriptor"),
            (("--data", str(world.data), "--parent-fd", "2"), {}, 2, "parent-fd"),
            (("--data", str(world.data)), {"TALLYMAN_DELIVERY_BACKOFF_MS": "soon"}, 2, "TALLYMAN_DELIVERY_BACKOFF_MS"),
            (("--data", str(world.data)), {"TALLYMAN_DELIVERY_BACKOFF_MS": "0"}, 2, "TALLYMAN_DELIVERY_BACKOFF_MS"),
            (("--date", "x"), {}, 2, "--date")):
        result = tallyman("deliver", *args, env=dict(os.environ, **env), timeout=30)
        assert result.returncode == code and text in result.stderr, result.stderr
        assert not (world.data / "delivery.sqlite").exists()


def test_kill_at_random_points(world):
    """Proves: after kill -9 anywhere, with and without the index, each file arrives whole, once, under its one name."""
    print(f"SEED={SEED}")
    dice = random.Random(SEED)
    place, other = world.destination("alpha"), world.destination("beta")
    want = {}
    rounds_with_work = 0

    def more(count, project, sizes):
        where = place if project == "alpha" else other
        for a in world.accept(*(dice.randbytes(dice.choice(sizes)) for _ in range(count)), project=project):
            want.update({f"{where.name}/{k}": v for k, v in arrived(a, "a_file.bin").items()})

    def folders():
        return sum(1 for p in (place, other) for _ in p.iterdir())

    for number in range(15):  # each with something to do, however much the one before has done
        more(3 if number else 24, "alpha", (1, 700, 5000, 2**20 + 1))
        more(1 if number else 12, "beta", range(1, 3000))
        process = world.start("--concurrency", dice.choice("14"))
        if number % 3 == 0:  # somewhere in the start, the scan, the first build
            time.sleep(dice.uniform(0.005, 0.06))
        else:  # somewhere after some more files have come
            goal = min(len(world.artifacts), folders() + dice.randrange(1, 5))
            wait(lambda: folders() >= goal, process)
            time.sleep(dice.uniform(0, 0.03))
        process.kill()
        process.wait(10)
        there = {f"{p.name}/{k}": v for p in (place, other) for k, v in tree(p).items() if "/.tallyman-" not in k}
        assert there.items() <= want.items(), "a remote name shows something that is not its file"
        rounds_with_work += 0 < len(there) < len(want)
        for a in world.artifacts:
            if world.row(a)[0] in ("sent", "verified"):
                assert f"place-{a.project}/{a.id}/a_file.bin" in there
        if dice.random() < 0.3:
            (world.data / "delivery.sqlite").unlink(missing_ok=True)
    assert rounds_with_work > 0, "every kill came before the first or after the last file"
    world.start()
    world.all_verified()
    assert world.end() == 0
    assert {f"{p.name}/{k}": v for p in (place, other) for k, v in tree(p).items()} == want
    assert all(not p.name.startswith(".") for p in (world.data / "packages").iterdir())


def test_hole_9_local_bytes_that_are_not_the_receipts(world):
    """Proves: a rotten byte, a short file and a missing one are found before and after the build, parked, and way out works."""
    place = world.destination("alpha", make=False)
    content = os.urandom(2**20 + 77)
    early, short, gone, late, vanished = world.accept(content, content, content, content, content)
    uploads = world.data / "uploads"

    def rot(a):
        with open(uploads / a.id, "r+b") as file:
            file.seek(2**20 + 5)
            byte = file.read(1)[0]
            file.seek(2**20 + 5)
            file.write(bytes([byte ^ 0x10]))

    rot(early)
    os.truncate(uploads / short.id, 1000)
    (uploads / gone.id).unlink()
    world.start()
    for a in (early, short, gone):
        state, _, error, way_out = world.until(a, "blocked")
        assert error.startswith("the local file is missing" if a is gone else "the local bytes differ from the receipt")
        assert "put the original bytes back" in way_out and \
            f"error deliver: {a.id[:8]} is parked: {error.replace(a.id, a.id[:8] + '...')}" in world.log
    world.until(late, "retry_wait")  # built, and nowhere to go
    world.until(vanished, "retry_wait")
    rot(late)
    (uploads / vanished.id).unlink()
    place.mkdir()
    assert world.until(late, "parked")[2].startswith("the local bytes differ from the receipt")
    assert world.until(vanished, "parked")[2].startswith("the local file is missing")
    assert tree(place) == {}
    assert world.end() == 0
    rot(early)  # the same bit again: it is right now
    rot(late)
    world.start()
    for a in (early, late):
        world.until(a, "verified")
    assert tree(place) == {**arrived(early, "a_file.bin"), **arrived(late, "a_file.bin")}
    world.until(gone, "blocked")
    assert world.end() == 0


def test_hole_20_what_is_no_receipt_is_left_out_and_logged_once(world):
    """Proves: bad names, bad JSON and a lost .info stop nobody, are logged once for ever, and count once they are mended."""
    world.destination("alpha")
    good, torn, orphan = world.accept(b"good", b"torn", b"orphan")
    receipt = (world.data / "receipts" / f"{torn.id}.json").read_bytes()
    (world.data / "receipts" / f"{torn.id}.json").write_bytes(receipt[:40])
    (world.data / "uploads" / f"{orphan.id}.info").rename(world.workdir / "info")
    (world.data / "receipts" / "README\n.txt").write_text("hello")
    (world.data / "receipts" / f"{'A' * 32}.json").write_text("{}")
    (world.data / "receipts" / ".receipt-of-a-crash").write_text("{}")
    (world.data / "receipts" / f"{'0' * 32}.json").write_bytes(receipt)  # of another id
    (world.data / "receipts" / f"{'1' * 32}.json").write_bytes(receipt + b" " * 3000)
    (world.data / "receipts" / f"{'2' * 32}.json").write_bytes(receipt.replace(torn.id.encode(), b"2" * 32))
    (world.data / "uploads" / f"{'2' * 32}.info").mkdir()  # a fault of the disk, as it were
    for _ in range(2):
        world.start()
        world.until(good, "verified")
        wait(lambda: world.log.count("is left out") == 6 and "222....json cannot be read now" in world.log, world.process)
        assert world.end() == 0
    assert world.log.count("is left out") == 6
    assert not re.search("[0-9a-f]{32}", world.log), "a whole id"
    assert "README?.txt is left out: its name" in world.log and ".receipt-of-a-crash" not in world.log
    (world.data / "receipts" / f"{torn.id}.json").write_bytes(receipt)
    (world.workdir / "info").rename(world.data / "uploads" / f"{orphan.id}.info")
    world.start()
    world.all_verified()
    assert world.rows("SELECT count(*) FROM skipped") == [(4,)]
    assert world.end() == 0


@pytest.mark.parametrize("fault", ["fsync:error=EIO", "renameat2:error=EIO", "pwrite64:error=ENOSPC", "pread64:error=EIO"])
def test_faults_of_a_disk_are_tried_again(world, fault):
    """Proves: a failing sync, rename, write or read at the destination is text and a retry, and nothing half done stays."""
    place = world.destination("alpha")
    content = os.urandom(3000)
    a = world.accept(content)[0]
    folder = place / a.id
    temp = folder / f".tallyman-{a.package}.part"
    # What is read there is read by name, after the rename.
    world.start(injects=[f"{fault}:when=1..2"], paths=[folder / "a_file.bin" if fault.startswith("pread") else temp])
    state, attempts, error, _ = wait(lambda: world.row(a)[0] == "verified" and world.row(a), world.process)
    assert attempts == 3
    assert tree(place) == arrived(a, "a_file.bin")
    assert world.log.count("is not delivered: ") == 2
    text = "No space left on device" if "ENOSPC" in fault else "Input/output error"
    assert world.log.count(text) == 2
    assert world.end() == 0
    injected = [line for line in (world.workdir / "trace").read_text().splitlines() if "(INJECTED)" in line]
    assert len(injected) == 2


def test_a_failed_sync_of_the_folder_is_not_a_delivery(world):
    """Proves: the name must be durable: a folder that cannot be synced is a retry, and the retry syncs what it finds."""
    place = world.destination("alpha")
    a = world.accept(b"content")[0]
    world.start(injects=["fsync:error=EIO:when=1..2"], paths=[place / a.id])
    world.until(a, "verified")
    assert world.row(a)[1] == 3
    assert world.log.count(f"sync {place}/{a.id[:8]}...: Input/output error") == 2
    assert tree(place) == arrived(a, "a_file.bin")
    assert world.end() == 0


def test_hole_8_unreadable_source_is_tried_again(world):
    """Proves: EIO from the local file says nothing about its bytes: build and delivery are tried again, never parked."""
    place = world.destination("alpha")
    a = world.accept(b"content")[0]
    world.start(injects=["pread64:error=EIO:when=1..3"], paths=[world.data / "uploads" / a.id])
    world.until(a, "verified")
    assert world.log.count("is not packaged: ") == 3 and "is parked" not in world.log
    assert tree(place) == arrived(a, "a_file.bin")
    assert world.end() == 0


@pytest.mark.parametrize("end", ["SIGTERM", "parent"])
def test_the_end_cancels_a_copy(world, end):
    """Proves: SIGTERM or the parent's end stops a copy between two pieces, removes its temporary file, and exits 0 soon."""
    place = world.destination("alpha")
    a = world.accept(os.urandom(30 * 2**20))[0]
    temp = place / a.id / f".tallyman-{a.package}.part"
    ours, theirs = os.pipe()
    try:
        world.start("--parent-fd", str(ours), injects=["pwrite64:delay_enter=300000"], paths=[temp], pass_fds=[ours])
        os.close(ours)
        wait(temp.exists, world.process)
        if end == "SIGTERM":
            assert world.end() == 0
        else:
            os.close(theirs)
            theirs = None
            assert world.process.wait(60) == 0
            assert "the parent has gone" in world.log
            world.process = None
    finally:
        if theirs is not None:
            os.close(theirs)
    assert tree(place) == {}
    assert world.row(a)[:2] == ("retry_wait", 1)
    world.start()
    world.until(a, "verified")
    assert tree(place) == arrived(a, "a_file.bin")
    assert world.end() == 0


def test_a_server_and_its_deliverer(make_server, workdir):
    """Proves: what a real server accepts its deliverer brings, and the deliverer ends when the server is killed."""
    place = workdir / "place"
    place.mkdir()
    file = workdir / "my file.txt"
    file.write_bytes(os.urandom(200_000))
    server = make_server(env={"TALLYMAN_ENGINE": "off"})
    server.cli("project", "create", "demo", "--sink", "directory", "--directory", str(place), check=0)
    receipt = json.loads(server.cli("put", str(file), "--project", "demo", check=0).stdout)

    def delivery():
        return server.get(f"/api/v1/artifacts/{receipt['object_id']}").json["delivery"]

    wait(lambda: (delivery() or {}).get("state") == "verified")
    folder = place / receipt["object_id"]
    assert {p.name for p in folder.iterdir()} == {"my_file.txt", "my_file.txt.manifest.jsonl"}
    assert (folder / "my_file.txt").read_bytes() == file.read_bytes()
    lines = [json.loads(line) for line in (folder / "my_file.txt.manifest.jsonl").read_text().splitlines()]
    assert lines[1]["accepted_at"] == receipt["accepted_at"] and receipt["checksum"] in lines[1]["checksums"]
    assert [f["name"] for f in delivery()["files"]] == ["my_file.txt", "my_file.txt.manifest.jsonl"]
    server.kill()

    def alone():
        """A deliverer that is not refused: then the server's has gone."""
        with open(workdir / "alone.log", "wb") as log:
            process = subprocess.Popen([BINARY, "deliver", "--data", str(server.data)], stdin=subprocess.DEVNULL, stderr=log)
        try:
            wait(lambda: process.poll() is not None or READY in (workdir / "alone.log").read_text())
            return process.poll() is None
        finally:
            process.kill()
            process.wait(10)

    wait(alone)
