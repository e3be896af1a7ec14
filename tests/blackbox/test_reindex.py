"""A start without the index of the history: reads at once, appends wait; killed in the middle, and again; tallyman reindex."""
import shutil
import time

import pytest
from conftest import batch, event, replay_all, tallyman
from tracer import wrapper
from world import wait_ready

BIG = {"text": "x" * 30000}
MIB = 24  # more than is indexed before the server listens


@pytest.fixture
def large(make_server):
    """A stopped server with MIB of history in small generations, and its ids; the index is gone."""
    server = make_server("--generation-bytes", "1MiB")
    ids = []
    for i in range(MIB):
        events = [{**event(), "record_key": f"r{i}", "payload": {**BIG, "n": f"{i}.{k}"}} for k in range(34)]
        answer = server.append(batch(f"b{i}", *events))
        assert answer.status == 200, answer.body
        ids.append(answer.json["last_event_id"])
    assert server.stop() == 0
    shutil.rmtree(server.data / "index")
    return server, ids


def until_indexing(server):
    """The first answers of a start: while the index is made, or when that was too fast to be seen."""
    ready = server.get("/readyz")
    return ready.status == 503 and ready.json["cause"] == "indexing", ready


def check_waiting(server, ids):
    """One look while appends wait; False when the index was complete before all could be asked."""
    seen, ready = until_indexing(server)
    page = server.get("/v1/events?limit=1&after=" + ids[-2])
    assert page.status == 200 and page.json["events"], page.body
    assert page.json["snapshot_through_event_id"] == ids[-1]
    answer = server.append(batch("b0", event(999)))
    if answer.status != 429:
        assert answer.status == 409, answer.body
        return False
    assert answer.json["error"] == "overloaded" and answer.headers["retry-after"] == "1"
    assert "generations" in answer.json["message"]
    if seen:
        assert " of " in ready.json["detail"] and ready.json["detail"].startswith("index: ")
    return seen


def test_a_generation_that_cannot_be_read_is_told(large, workdir):
    """Proves: when the index cannot be made /v1/head says so, with the cause, and not that it is being made; a restart heals."""
    server, ids = large
    first = sorted((server.data / "journal" / "pending").iterdir())[0]
    plain, server.wrapper = server.wrapper, wrapper(workdir / "trace", "pread64:error=EIO", paths=[first], calls="pread64,openat")
    server.start()
    end = time.monotonic() + 60
    while (answer := server.get("/v1/head")).status == 429:
        assert time.monotonic() < end, answer.body
        time.sleep(0.05)
    assert (answer.status, answer.json["error"]) == (503, "writer_poisoned"), answer.body
    assert "could not be made" in answer.json["message"] and "Input/output error" in answer.json["message"]
    assert server.append(batch("b0", event(1))).status == 503
    server.kill()
    server.wrapper = plain
    server.start()
    wait_ready(server, 60)
    assert server.get("/v1/head").json["frontier_event_id"] == ids[-1]


def test_reads_beside_it_killed_and_again(large):
    """Proves: with its index lost the server serves reads with the right frontier at once and answers 429 to appends; killed in the
    middle, again and again, it gets there; then every batch is known, and the index is not made a second time."""
    server, ids = large
    seen = 0
    for _ in range(3):
        server.start()
        seen += check_waiting(server, ids)
        server.kill()
    server.start()
    wait_ready(server, 60)
    assert seen > 0 or "it is made while reads are served" in server.log
    assert [e["event_id"] for e in replay_all(server)][-1] == ids[-1]
    for i in range(0, MIB, 5):
        answer = server.append(batch(f"b{i}", event(999)))
        assert answer.status == 409, answer.body
    page = server.get("/v1/events?limit=1").json
    assert page["snapshot"]["frontier_event_count"] == 34 * MIB
    count = server.log.count("rebuilding the index")
    assert server.stop() == 0
    server.start()
    assert server.get("/readyz").status == 200
    assert server.log.count("rebuilding the index") == count


def test_the_verb(large):
    """Proves: reindex makes the index of a stopped server's directory, needs the server to be stopped, and names damage."""
    server, ids = large
    done = tallyman("reindex", "--data", str(server.data))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert f"{34 * MIB} events indexed" in done.stdout
    server.start()
    assert server.get("/readyz").status == 200 and "rebuilding the index" not in server.log
    beside = tallyman("reindex", "--data", str(server.data))
    assert beside.returncode == 1 and "stop the server first" in beside.stderr
    assert server.append(batch("b0", event(999))).status == 409
    assert server.stop() == 0
    first = sorted((server.data / "journal" / "pending").iterdir())[0]
    raw = bytearray(first.read_bytes())
    raw[len(raw) // 2] ^= 1
    first.write_bytes(raw)
    damaged = tallyman("reindex", "--data", str(server.data))
    assert damaged.returncode == 1 and "closed generation 0 is damaged at byte" in damaged.stderr
    nothing = tallyman("reindex", "--data", str(server.data / "not there"))
    assert nothing.returncode == 1 and "no history there" in nothing.stderr
