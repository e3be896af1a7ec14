"""What is listed of deliveries: the verbs deliveries, packages and park, the feed of what is verified, and questions about many."""
import json
import random

import pytest
from artifact_world import ENV, Artifacts, content_of


@pytest.fixture
def world(make_server, workdir):
    return Artifacts(make_server(env=ENV), workdir)


def accepted(world, sizes):
    rng = random.Random(7)
    files = []
    for size in sizes:
        file = world.new(content_of(rng, size))
        world.create(file)
        files.append(world.finish(file))
    return files


def lines(world, *words):
    return [json.loads(line) for line in world.server.cli(*words, check=0).stdout.splitlines()]


def feed(world, after):
    answer = world.server.get("/api/v1/deliveries?state=verified" + (f"&after={after}" if after else ""), unix=True)
    assert answer.status == 200, (answer.status, answer.body)
    return [row["object_id"] for row in answer.json["deliveries"]], answer.json["next_after"]


def test_lists_and_the_feed(world):
    files = accepted(world, (10, 2000, 30))
    ids = {file.id for file in files}
    told, after = [], None
    while len(told) < len(files):  # while they are delivered
        more, after = feed(world, after)
        told += more
    assert sorted(told) == sorted(ids), "each once"
    assert feed(world, after) == ([], after)
    rows = lines(world, "deliveries", "--json")
    assert {row["object_id"]: (row["state"], row["size_bytes"]) for row in rows} == {f.id: ("verified", f.size) for f in files}
    assert lines(world, "deliveries", "--json", "--state", "parked") == lines(world, "deliveries", "--json", "--project", "none") == []
    assert [row["object_id"] for row in lines(world, "deliveries", "--json", "--state", "verified")] == told
    text = world.server.cli("deliveries", "--project", "files", check=0).stdout
    assert all(f"{f.id}  files  verified  {f.size} bytes  {f.name}\n" in text for f in files), text
    both = lines(world, "packages")
    assert [row["type"] for row in both] == ["package"] * 3 + ["delivery"] * 3
    assert {row["package"]["package_id"] for row in both[:3]} == {f.package for f in files}
    assert {(row["delivery"]["package_id"], row["delivery"]["sink_id"], row["delivery"]["state"]) for row in both[3:]} == \
        {(f.package, "directory", "verified") for f in files}
    assert all(value is not None for row in both for value in row[row["type"]].values()), "nulls are left out"
    asked = world.server.request("POST", "/api/v1/artifacts/query", json.dumps({"object_ids": [files[2].id, "0" * 32, files[0].id]}).encode(),
                                 {"Content-Type": "application/json"}, True)
    assert asked.status == 200, asked.body
    rows = asked.json["artifacts"]
    assert rows[1]["error"] == "not_found" and asked.json["not_read"] == []
    for file, row in ((files[2], rows[0]), (files[0], rows[2])):
        assert row == world.server.get(f"/api/v1/artifacts/{file.id}").json


def test_parked_and_retried(world):
    world.place.chmod(0o755)
    world.server.cli("sinks", "pause", check=0)
    files = accepted(world, (10, 20))
    for file in files:  # another one's files under their names
        (world.place / file.id).mkdir()
        for name in ("file_0.bin", "file_1.bin"):
            (world.place / file.id / name).write_bytes(b"another")
    world.server.cli("sinks", "resume", check=0)
    parked = world.wait(lambda: (rows := lines(world, "park", "list", "--json")) and len(rows) == 2 and rows, 60, "two parked")
    assert {row["object_id"] for row in parked} == {f.id for f in files}
    assert all(row["error"] and row["way_out"] for row in parked)
    text = world.server.cli("park", "list", check=0).stdout
    assert f"{files[0].id}  files  parked" in text and parked[0]["way_out"] in text
    refused = world.server.cli("park", "identity", files[0].id, check=1)
    assert "identity packager already" in refused.stderr
    for words in ((), ("list", "x"), ("retry",), ("retry", files[0].id, "--all"), ("identity",), ("mend", files[0].id)):
        world.server.cli("park", *words, check=2)
    for file in files:
        for path in (world.place / file.id).iterdir():
            path.unlink()
    failed = world.server.cli("park", "retry", "0" * 32, files[0].id, check=1)  # one stops no other
    assert "not_found" in failed.stderr and files[0].id in failed.stdout
    world.wait(lambda: len(lines(world, "park", "list", "--json")) == 1, 60, "one mended")
    assert files[1].id in world.server.cli("park", "retry", "--all", "--project", "files", check=0).stdout
    world.wait_verified()
    assert lines(world, "park", "list", "--json") == []
    assert world.server.cli("park", "retry", "--all", check=0).stdout == "nothing is parked\n"
