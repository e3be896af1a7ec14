"""Projects whose small files are joined in packages: what is chosen, what is shown of it, what comes back without delivery.sqlite, and
what becomes of files that cannot be joined. (The names of tests have the numbers of the holes of the contract's original.)"""
import json
import os
import struct
import subprocess

import pytest
from artifact_world import ENV, PROJECT, Artifacts
from conftest import BINARY

SIZE = 300  # of each file


def warc(i):
    """A WARC-Zstd file of one record in one frame, filled up with a frame to be skipped."""
    block = b"%d " % i * 300
    head = f"WARC/1.1\r\nWARC-Type: resource\r\nWARC-Record-ID: <urn:test:{i}>\r\nContent-Length: {len(block)}\r\n\r\n".encode()
    record = head + block + b"\r\n\r\n"
    frame = subprocess.run(["zstd", "-q", "-c", "--check", f"--stream-size={len(record)}"], input=record, capture_output=True, check=True).stdout
    return frame + struct.pack("<II", 0x184D2A50, SIZE - len(frame) - 8) + bytes(SIZE - len(frame) - 8)


@pytest.fixture
def world(make_server, workdir):
    return Artifacts(make_server(env=ENV), workdir)


def merging(world, target, trigger, wait, *more):
    world.server.cli("project", "set", PROJECT, "--packager", "mergewarc", "--package-target", str(target), "--package-trigger", str(trigger),
                     "--package-max-wait", wait, *more, check=0)


def accepted(world, contents):
    files = []
    for i, content in enumerate(contents):
        file = world.new(content, f"{i}.warc.zst")
        world.create(file)
        files.append(world.finish(file))
    return files


def package(world, file):
    return world.delivery(file).get("package", {})


def wait_all(world, files, state="verified"):
    world.wait(lambda: all(world.delivery(f).get("state") == state for f in files), 60, f"all {state}")


def packages(world):
    """Package -> its object ids in their order."""
    rows = world.rows("SELECT package_id, object_id FROM package_members ORDER BY package_id, ordinal")
    return {p: [o for q, o in rows if q == p] for p, _ in rows}


def places(world):
    return sorted(str(p.relative_to(world.place)) for p in world.place.rglob("*") if not p.is_dir())


def check_places(world, files):
    """Each file's bytes are where the artifact's view says."""
    for file in files:
        answer = world.server.get(f"/api/v1/artifacts/{file.id}").json["delivery"]
        in_it = answer["package"]
        payload = (world.place / answer["identifier"] / answer["files"][0]["name"]).read_bytes()
        assert payload[in_it["offset"]:in_it["offset"] + in_it["size"]] == file.content, file.id


def test_holes_18_19_20_chosen_shown_and_back_without_the_database(world):
    """Holes 18, 19 and 20: what waits says so; the trigger makes packages of the target's size in order; members, offsets and names are
    shown; without delivery.sqlite the same packages come back, nothing is sent under a second name, and nothing is an error."""
    contents = [warc(i) for i in range(7)]
    merging(world, 3 * SIZE, 6 * SIZE, "1h")
    files = accepted(world, contents[:2])
    waiting = world.wait(lambda: (p := package(world, files[1])).get("until") and p["artifacts"] == 2 and p, what="what waits")
    assert waiting["state"] == "waiting" and waiting["bytes"] == sum(f.size for f in files)
    assert waiting["trigger_bytes"] == 6 * SIZE and waiting["since"] < waiting["until"]
    status = world.wait(lambda: (world.server.get("/api/v1/status", unix=True).json["artifacts"].get("delivery") or {}).get("packaging"), what="it in status")
    assert status[0]["project"] == PROJECT and status[0]["artifacts"] == 2 and not status[0]["draining"]
    assert status[0]["bytes_to_trigger"] == 6 * SIZE - sum(f.size for f in files)
    assert places(world) == []
    files += accepted(world, contents[2:])
    world.wait(lambda: len(packages(world)) == 2 and package(world, files[6]).get("state"), what="two packages, and one that waits")
    sent = [f for f in files if package(world, f)["state"] != "waiting"]
    wait_all(world, sent)
    check_places(world, sent)
    before, there = packages(world), places(world)
    assert len(sent) == 6 and all(len(m) == 3 for m in before.values())
    when = {f.id: (json.loads(f.receipt)["accepted_at"], f.id) for f in files}
    assert all(members == sorted(members, key=when.get) for members in before.values())
    rows = [json.loads(line) for line in world.server.cli("deliveries", "--json", check=0).stdout.splitlines()]
    assert {r["package_id"]: [m["object_id"] for m in r["package"]["members"]] for r in rows} == before
    assert all(r["package"]["packager"] == "mergewarc" and r["package"]["member_count"] == 3 for r in rows)
    listed = world.server.cli("deliveries", check=0).stdout
    assert listed.count("  verified  900 bytes  3 files in one\n") == 2, listed
    shown = [json.loads(line) for line in world.server.cli("packages", check=0).stdout.splitlines()]
    assert [len(row["package"]["members"]) for row in shown if row["type"] == "package"] == [3, 3]
    manifests = [p for p in world.place.rglob("*.manifest.jsonl")]
    for path in manifests:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [x["type"] for x in lines] == ["tallyman-package"] + ["input"] * 3 + ["output"]
        assert [x["object_id"] for x in lines[1:4]] in before.values() and lines[4]["inputs"] == 3
        assert lines[2]["offset"] == lines[1]["size"] and all(x["records"] == 1 for x in lines[1:4])
    world.server.stop()
    for path in world.data.glob("delivery.sqlite*"):
        path.unlink()
    world.server.start()
    wait_all(world, sent)
    assert packages(world) == before and places(world) == there
    assert package(world, next(f for f in files if f not in sent))["state"] == "waiting"
    assert " error " not in world.server.log[world.server.log.rindex("deliver: ready"):], world.server.log
    check_places(world, sent)


def test_hole_6_7_a_bad_file_stops_no_other_and_is_sent_as_it_is_when_asked_for(world):
    """Holes 6, 7: what cannot be joined is parked alone, with its reason; the others go on without it; `park identity` sends it, and the
    project's other settings hold for it. Lost databases change nothing of that."""
    contents = [warc(0), b"no WARC at all", warc(2)]
    merging(world, 1 << 20, 1 << 20, "1s")
    files = accepted(world, contents)
    wait_all(world, [files[1]], "parked")
    wait_all(world, [files[0], files[2]])
    bad = world.delivery(files[1])
    assert bad["error"] and "park identity" in bad["way_out"] and bad["package"]["members"] == 1
    check_places(world, [files[0], files[2]])
    assert "packaged" not in world.server.cli("park", "identity", files[1].id, check=0).stderr
    wait_all(world, files)
    assert package(world, files[1])["packager"] == "identity"
    check_places(world, files)
    refused = world.server.cli("park", "identity", files[1].id, check=1)
    assert "identity packager already" in refused.stderr
    before, there = packages(world), places(world)
    world.server.stop()
    for path in world.data.glob("delivery.sqlite*"):
        path.unlink()
    world.server.start()
    wait_all(world, files)
    assert packages(world) == before and places(world) == there


def test_a_project_that_merges_no_more_sends_what_waits_one_by_one(world):
    merging(world, 1 << 20, 1 << 20, "1h")
    files = accepted(world, [warc(0), warc(1)])
    world.wait(lambda: package(world, files[1]).get("state") == "waiting", what="what waits")
    world.server.cli("project", "set", PROJECT, "--packager", "identity", check=0)
    more = accepted(world, [warc(2)])
    wait_all(world, files + more)
    assert {package(world, f)["packager"] for f in files + more} == {"identity"}
    check_places(world, files + more)


def test_a_member_without_its_receipt_keeps_no_other(world):
    """What is not accepted any more is parked alone; with its receipt back and asked for, it goes too."""
    merging(world, 1 << 20, 1 << 20, "1s")
    world.server.cli("sinks", "pause", "--reason", "look", check=0)
    files = accepted(world, [warc(i) for i in range(3)])
    world.wait(lambda: package(world, files[2]).get("state") == "waiting", what="what waits")
    path = world.data / "receipts" / f"{files[1].id}.json"
    receipt = path.read_bytes()
    path.unlink()
    world.server.cli("sinks", "resume", check=0)
    failed = lambda: world.rows("SELECT state, member_count, build_error FROM packages WHERE build_error <> ''")
    assert world.wait(failed, what="a build that fails") == [("blocked", 1, "its receipt is not there")]
    wait_all(world, [files[0], files[2]])
    check_places(world, [files[0], files[2]])
    path.write_bytes(receipt)
    world.server.cli("park", "retry", files[1].id, check=0)
    wait_all(world, files)
    check_places(world, files)


def test_hole_19_a_plan_that_cannot_be_read_now_is_not_packed_around(world):
    """Hole 19: without delivery.sqlite, a plan whose manifest gives an error of the disk ends the start, and is taken when it can be read."""
    merging(world, 1 << 20, 1 << 20, "1s")
    files = accepted(world, [warc(i) for i in range(3)])
    wait_all(world, files)
    before, there = packages(world), places(world)
    world.server.stop()
    for path in world.data.glob("delivery.sqlite*"):
        path.unlink()
    manifest, = (world.data / "packages").glob("*.manifest.jsonl")
    aside = world.data / "manifest"
    manifest.rename(aside)
    manifest.mkdir()  # reading it is an error that says nothing of what was there
    log = world.data / "deliver.log"
    with open(log, "wb") as out:
        process = subprocess.Popen([BINARY, "deliver", "--data", str(world.data)], stdout=out, stderr=out, env={**os.environ, **ENV})
    try:
        world.wait(lambda: process.poll() is not None or "deliver: ready" in log.read_text(), what="the end, or the start")
        assert process.returncode and "cannot be read" in log.read_text(), log.read_text()
    finally:
        process.kill()
        process.wait(30)
    assert packages(world) == {} and not list(world.data.glob("delivery.sqlite.damaged"))
    manifest.rmdir()
    aside.rename(manifest)
    world.server.start()
    wait_all(world, files)
    assert packages(world) == before and places(world) == there
