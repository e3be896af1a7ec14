"""Packages of many WARC files: what zstd makes of them, where each artifact is in them, what a crash costs.

SEED, which is printed, gives the random tests their numbers back; ROUNDS says how often the deliverer is killed (default 6).
"""
import contextlib
import hashlib
import json
import os
import random
import subprocess

import pytest
from artifact_world import ENV, Artifacts
from conftest import BINARY, tallyman
from world import SANITIZED

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
ROUNDS = int(os.environ.get("ROUNDS") or (2 if SANITIZED else 6))


def record(rng):
    block = rng.randbytes(rng.randint(0, 4000)).hex().encode()
    return b"WARC/1.1\r\nWARC-Type: resource\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n" % (len(block), block)


def warc_files(rng, workdir, count):
    """Contents of so many files: one to three records each, each a frame that the command zstd made of it."""
    folder = workdir / f"records-{rng.getrandbits(32):x}"
    folder.mkdir()
    plain = [[record(rng) for _ in range(rng.randint(1, 3))] for _ in range(count)]
    for i, records in enumerate(plain):
        for j, text in enumerate(records):
            (folder / f"{i}-{j}").write_bytes(text)
    subprocess.run(["zstd", "-q", "--rm", *(str(p) for p in folder.iterdir())], check=True)
    return [(b"".join((folder / f"{i}-{j}.zst").read_bytes() for j in range(len(records))), b"".join(records), len(records))
            for i, records in enumerate(plain)]


class Warcs(Artifacts):
    """A project whose files go many at a time, to a place that is not there yet."""

    def __init__(self, server, workdir):
        super().__init__(server, workdir)
        self.place.rmdir()

    def fill(self, target, trigger, max_wait, retention=None):
        self.server.cli("project", "set", "files", "--packager", "mergewarc", "--package-target", str(target), "--package-trigger",
                        str(trigger), "--package-max-wait", max_wait, *(["--retention", retention] if retention else []), check=0)

    def accept(self, contents):
        line, made = self.line(), []
        for content in contents:
            file = self.new(content, f"a {len(self.files)}.warc.zst")
            self.create(file, content, line)
            assert file.receipt is not None
            made.append(file)
        return made

    def members(self):
        """package -> its members in order: object id, offset, size."""
        found = {}
        for package, *member in self.rows("SELECT package_id, object_id, offset_bytes, size_bytes FROM package_members"
                                          " ORDER BY package_id, ordinal"):
            found.setdefault(package, []).append(tuple(member))
        return found

    def payloads(self):
        """What lies at the destination under a name of a merged package: name -> bytes."""
        return {p.name: p.read_bytes() for p in self.place.rglob("files-*.warc.zst") if not p.name.startswith(".")}

    def states(self):
        return dict(self.rows("SELECT state, count(*) FROM packages GROUP BY state"))

    def wait_all_verified(self, files, timeout=60):
        want = {f.id for f in files}
        there = lambda: {row[0] for row in self.rows("SELECT m.object_id FROM package_members m JOIN deliveries d"
                                                     " ON d.package_id = m.package_id WHERE d.state = 'verified'")}
        self.wait(lambda: want <= there(), timeout, f"the verification of {len(want)} artifacts")


@pytest.fixture
def world(make_server, workdir):
    return Warcs(make_server(env=ENV), workdir)


def check_payload(world, payload, manifest, files):
    """zstd reads it, and every member of the manifest is there as it came."""
    lines = [json.loads(line) for line in manifest.splitlines()]
    head, inputs, output = lines[0], lines[1:-1], lines[-1]
    assert (head["type"], head["packager"], output["type"], output["inputs"]) == \
        ("tallyman-package", "mergewarc", "output", len(inputs))
    assert output["size"] == len(payload) and f"sha256:{hashlib.sha256(payload).hexdigest()}" in output["checksums"]
    plain = subprocess.run(["zstd", "-dcq"], input=payload, capture_output=True, check=True).stdout
    by_id = {file.id: file for file in files}
    text, at = b"", 0
    for line in inputs:
        file = by_id[line["object_id"]]
        assert (line["type"], line["offset"], line["size"]) == ("input", at, file.size)
        assert payload[at:at + file.size] == file.content
        assert line["records"] == file.records and f"sha1:{hashlib.sha1(file.content).hexdigest()}" in line["checksums"]
        at += file.size
        text += file.plain
    assert plain == text
    return [line["object_id"] for line in inputs]


def accept_warcs(world, rng, count):
    made = warc_files(rng, world.workdir, count)
    files = world.accept(content for content, _, _ in made)
    for file, (_, plain, records) in zip(files, made):
        file.plain, file.records = plain, records
    return files


def check_destination(world, files):
    """Each of the files is in one package there, and in no other. How many packages there are."""
    seen = []
    for path in world.place.rglob("files-*.warc.zst"):
        seen += check_payload(world, path.read_bytes(), (path.parent / (path.name + ".manifest.jsonl")).read_text(), files)
    assert sorted(seen) == sorted(file.id for file in files), "an artifact is missing at the destination, or there twice"
    return len(list(world.place.rglob("files-*.warc.zst")))


def test_hole_7_9_11_many_files_go_as_one(world, workdir):
    rng = random.Random(SEED)
    print(f"SEED={SEED}")
    world.fill(40000, 60000, "1s", "1s")
    files = accept_warcs(world, rng, 15)
    bad, = world.accept([b"no WARC at all"])
    files += accept_warcs(world, rng, 15)
    # All are packaged, and nothing can go: the uploads stay beside the payloads.
    good = {f.id for f in files}
    sealed = lambda: {row[0] for row in world.rows("SELECT m.object_id FROM package_members m JOIN packages p"
                                                   " ON p.package_id = m.package_id WHERE p.state = 'sealed'")}
    world.wait(lambda: good <= sealed(), 60, "30 packaged files")
    world.check_disk()
    packages = world.members()
    assert len(packages) > 2
    for package, members in packages.items():
        if members[0][0] == bad.id:
            continue
        payload = (world.data / "packages" / f"{package}.warc.zst").read_bytes()
        check_payload(world, payload, (world.data / "packages" / f"{package}.manifest.jsonl").read_text(), files)
    # The bad one is alone, with a reason and a way out.
    assert world.rows("SELECT state, member_count, instr(way_out, 'park identity') > 0 FROM packages p JOIN package_members m"
                      " ON m.package_id = p.package_id WHERE m.object_id = ?", bad.id) == [("blocked", 1, 1)]
    world.verify()
    saved = workdir / "backup"
    world.server.cli("backup", str(saved), check=0)
    world.server.cli("park", "identity", bad.id, check=0)
    world.place.mkdir()
    world.wait_all_verified(files + [bad])
    assert check_destination(world, files) == len(packages) - 1
    # They go after the retention, the uploads and the payloads; what is known of them stays.
    world.wait(lambda: world.rows("SELECT count(*) FROM packages WHERE purged_at IS NULL") == [(0,)], 60, "the purges")
    assert [p.name for p in (world.data / "packages").iterdir()] == []
    assert sorted(p.name for p in (world.data / "uploads").iterdir()) == [".purge"]
    proofs = [json.loads(p.read_bytes()) for p in (world.data / "proofs").iterdir()]
    told = {m["object_id"]: (p["package_id"], m["offset"], m["size"]) for p in proofs for m in p["members"]}
    assert told == {id: (package, at, size) for package, members in world.members().items() for id, at, size in members}
    world.verify()
    restored = workdir / "restored"
    done = tallyman("restore", str(saved), "--data", str(restored), "--verify")
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert len(list((restored / "packages").glob("*.warc.zst"))) == len(packages) - 1


def test_verify_sees_what_is_wrong_with_a_payload(world):
    world.fill(1 << 20, 1 << 20, "1s")
    files = accept_warcs(world, random.Random(SEED), 3)
    world.wait(lambda: world.states() == {"sealed": 1}, 60, "a package")
    world.server.stop()
    package, = world.members()
    path = world.data / "packages" / f"{package}.warc.zst"
    whole = path.read_bytes()
    for content, text in ((whole[:-1], f"its payload has {len(whole) - 1} bytes, not {len(whole)}"),
                          (whole[:50] + bytes([whole[50] ^ 1]) + whole[51:], "its payload is not the one planned"),
                          (None, f"is sealed, but packages/{path.name} is missing")):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        result = tallyman("verify", "--json", "--data", str(world.data))
        assert result.returncode != 0
        assert any(text in line for line in json.loads(result.stdout)["artifacts"]["violations"]), result.stdout
        path.write_bytes(whole)
    world.verify()
    assert len(files) == 3


@contextlib.contextmanager
def deliverer(world):
    """One that is killed at the end."""
    with open(world.workdir / "deliver.log", "ab") as log:
        process = subprocess.Popen([BINARY, "deliver", "--data", str(world.data)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env={**os.environ, **ENV})
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def test_kills_and_a_lost_index_leave_each_file_in_one_package(make_server, workdir):
    rng = random.Random(SEED)
    print(f"SEED={SEED}")
    world = Warcs(make_server("--no-deliver", env=ENV), workdir)
    world.fill(12000, 20000, "1s")
    world.place.mkdir()
    files, packages = [], world.data / "packages"
    steps = (".part-*.warc.zst", "*.warc.zst", "*.manifest.jsonl", "*.plan.json")
    for turn in range(ROUNDS):
        files += accept_warcs(world, rng, 8)
        with deliverer(world):
            before = {name: set(packages.glob(name)) for name in steps}
            seen = rng.choice(steps)
            world.wait(lambda: set(packages.glob(seen)) - before[seen] or set(packages.glob(steps[3])) - before[steps[3]], 60, seen)
        if turn % 2 == 1:
            for path in world.data.glob("delivery.sqlite*"):
                path.unlink()
    with deliverer(world):
        world.wait_all_verified(files)
    check_destination(world, files)
    world.verify()
