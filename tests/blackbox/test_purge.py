"""Local bytes go when their retention is over, and not before the far side has proven that it has them; what is known of them stays.

SEED, which is printed, gives the random test its numbers back; ROUNDS says how many there are (default 8).
"""
import contextlib
import datetime
import json
import os
import random
import signal
import sqlite3
import subprocess
import time

import pytest
from artifact_world import ENV, Artifacts, content_of
from capture_world import wait_gone
from conftest import BINARY, tallyman
from world import SANITIZED

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
ROUNDS = int(os.environ.get("ROUNDS") or (4 if SANITIZED else 8))


@pytest.fixture
def world(make_server, workdir):
    server = make_server(env=ENV)
    return Artifacts(server, workdir)


def retention(world, text):
    world.server.cli("project", "set", "files", "--retention", text, check=0)


def accepted(world, rng, sizes):
    files = []
    for size in sizes:
        file = world.new(content_of(rng, size))
        world.create(file)
        files.append(world.finish(file))
    return files


def show(world, file):
    answer = world.server.get(f"/api/v1/artifacts/{file.id}")
    assert answer.status == 200, (answer.status, answer.body)
    return answer.json


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def wait_purged(world, files):
    for file in files:
        world.wait(lambda: show(world, file)["local"].get("purged_at"), 120, f"the purge of {file.id}")


def is_purged(world, file):
    """What a person, a worker and verify see of it."""
    names = [p.name for p in (world.data / "uploads").iterdir() if p.name.startswith(file.id)]
    assert names == [], names
    shown = show(world, file)
    assert shown["accepted"]["size_bytes"] == file.size
    assert shown["local"]["present"] is False and shown["local"]["size_bytes"] == 0
    assert shown["project"] == "files" and shown["filename"] == file.name
    assert shown["delivery"]["state"] == "verified" and shown["delivery"]["identifier"] == file.id
    assert [f["size"] for f in shown["delivery"]["files"]][0] == file.size
    world.receipt_is(file)
    assert world.head(file) == file.size  # hole 14: from the receipt


def test_hole_10_14_bytes_go_after_the_proof_and_the_retention(world):
    rng = random.Random(1)
    kept = accepted(world, rng, (1000,))[0]  # no retention: for good
    world.wait_verified()
    retention(world, "1s")
    files = accepted(world, rng, (1, 70000, 3 << 20))
    wait_purged(world, files)
    for file in files:
        is_purged(world, file)
        shown = show(world, file)
        assert shown["local"]["purged_at"] >= shown["delivery"]["verified_at"]
    assert show(world, kept)["local"] == {"present": True, "size_bytes": 1000}
    proofs = {json.loads(p.read_bytes())["members"][0]["object_id"]: json.loads(p.read_bytes()) for p in (world.data / "proofs").iterdir()}
    assert proofs.keys() == {file.id for file in files}
    for file in files:
        proof = proofs[file.id]
        assert proof["plan"]["files"][0]["blake3"] == file.blake3 and proof["plan"]["identifier"] == file.id
        assert proof["members"][0]["checksum"] == f"blake3:{file.blake3}" and proof["members"][0]["size"] == file.size
        assert not list((world.data / "packages").glob(proof["package_id"] + "*"))
    assert list((world.data / "uploads/.purge").iterdir()) == []
    report = world.verify()
    assert (report["receipts"], report["proofs"], report["remnants"]) == (4, 3, [])


def test_unverified_bytes_stay_whatever_the_retention(world):
    retention(world, "1s")
    world.place.rename(world.workdir / "away")
    file = accepted(world, random.Random(2), (5000,))[0]
    world.wait(lambda: world.delivery(file).get("state") == "retry_wait", 60, "a try that failed")
    time.sleep(1.5)  # more than the retention: nothing is due
    assert (world.data / "uploads" / file.id).stat().st_size == file.size
    assert not (world.data / "proofs").exists() or list((world.data / "proofs").iterdir()) == []
    (world.workdir / "away").rename(world.place)
    world.server.cli("artifact", file.id, check=0)
    wait_purged(world, [file])
    is_purged(world, file)


def test_a_proof_says_what_the_receipt_says_now(world):
    """A receipt that was taken back, because it could not be synced, is given again with another time."""
    retention(world, "1s")
    world.place.rename(world.workdir / "away")
    file = accepted(world, random.Random(6), (5000,))[0]
    world.wait(lambda: world.delivery(file).get("state") == "retry_wait", 60, "a try that failed")
    world.server.stop()
    with contextlib.closing(sqlite3.connect(world.data / "delivery.sqlite")) as db, db:
        db.execute("UPDATE artifacts SET accepted_at = accepted_at - 7")
    (world.workdir / "away").rename(world.place)
    world.server.start()
    wait_purged(world, [file])
    assert world.verify()["proofs"] == 1


def test_hole_19_20_the_index_is_lost_before_and_after_the_purge(world):
    rng = random.Random(3)
    retention(world, "1s")
    gone = accepted(world, rng, (4000, 200000))
    wait_purged(world, gone)
    retention(world, "1h")
    here = accepted(world, rng, (3000,))
    world.wait_verified()
    world.server.stop()
    arrived = {p: p.stat().st_mtime_ns for p in world.place.rglob("*")}
    for path in world.data.glob("delivery.sqlite*"):
        path.unlink()
    assert world.verify()["violations"] == []
    world.server.start()
    world.wait(lambda: world.rows("SELECT count(*) FROM deliveries WHERE state = 'verified'") == [(3,)], 60, "the rows")
    # The proofs are read before anything else: what they speak for is due to go, or gone.
    assert world.rows("SELECT count(*) FROM packages WHERE purge_ms < ?", (time.time() + 60) * 1000) == [(2,)]
    wait_purged(world, gone)
    for file in gone:
        is_purged(world, file)
    shown = show(world, here[0])
    assert shown["local"]["present"]
    assert seconds(shown["local"]["purge_after"]) - seconds(shown["delivery"]["verified_at"]) in (3600, 3601)
    # hole 20: nothing is logged for each of them again and again.
    assert world.server.log.count("is left out") == 0
    assert {p: p.stat().st_mtime_ns for p in world.place.rglob("*")} == arrived, "something was sent again"
    world.verify()


def test_kill_while_bytes_go(world, capsys):
    with capsys.disabled():
        print(f" SEED={SEED}", end="")
    rng = random.Random(SEED)
    retention(world, "1s")
    files = []
    for number in range(ROUNDS):
        files += accepted(world, rng, [rng.choice((10, 5000, 300000, 20 << 20)) for _ in range(3)])
        time.sleep(rng.uniform(0, 1.6))
        victims = rng.choice((("deliver",), ("server",), ("deliver", "server")))
        pid = world.deliver_pid()
        if "deliver" in victims and pid:
            os.kill(pid, signal.SIGKILL)
        if "server" in victims:
            world.server.kill()
            if pid:
                wait_gone(pid)
            # As they lie: each receipt has its bytes, or a proof.
            world.verify()
            if rng.random() < 0.3:
                for path in world.data.glob("delivery.sqlite*"):
                    path.unlink()
            world.server.start()
    wait_purged(world, files)
    for file in files:
        is_purged(world, file)
    world.server.stop()
    assert world.verify()["proofs"] == len(files)
    world.check_arrived()


def backup_held(world, place, name):
    """One that stands still just after it has made this name."""
    process = subprocess.Popen([BINARY, "backup", str(place), "--data", str(world.data)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(place.glob(f"*/{name}")):
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGSTOP)
    assert list(place.glob("*/proofs")) and not list(place.glob("*/proofs/*")), "it came too late"
    return process


def backup_goes_on(process, place):
    process.send_signal(signal.SIGCONT)
    out, why = process.communicate(timeout=60)
    assert process.returncode == 0, (out, why)
    (tree,) = [p for p in place.iterdir() if p.is_dir()]
    assert tallyman("verify", "--data", str(tree)).returncode == 0
    return tree


def test_bytes_that_go_while_a_backup_copies_them_have_their_proof_in_it(world, workdir):
    rng, place = random.Random(4), workdir / "backup"
    retention(world, "1s")
    world.place.rename(workdir / "away")
    file = accepted(world, rng, (96 << 20,))[0]
    process = backup_held(world, place, f"uploads/{file.id}")
    (workdir / "away").rename(world.place)
    wait_purged(world, [file])
    tree = backup_goes_on(process, place)
    assert not (tree / "uploads" / file.id).exists()
    assert (tree / "proofs" / f"{file.package}.json").exists() and (tree / "receipts" / f"{file.id}.json").exists()


def test_what_comes_and_goes_during_a_backup_has_its_receipt_beside_its_proof(world, workdir):
    rng, place = random.Random(5), workdir / "backup"
    retention(world, "1s")
    wait_purged(world, accepted(world, rng, (10,)))
    partial = world.new(content_of(rng, (96 << 20) + 1))
    world.create(partial)
    world.patch(partial, 0, partial.content[:-1])
    process = backup_held(world, place, f"uploads/{partial.id}.info")
    file = accepted(world, rng, (2000,))[0]
    wait_purged(world, [file])
    tree = backup_goes_on(process, place)
    assert (tree / "proofs" / f"{file.package}.json").exists() and (tree / "receipts" / f"{file.id}.json").exists()
