"""Sealed generations from outside: sealing beside appends and readers, kill -9 in the middle of it, what zstd makes of the
files, failing syncs, damage, and the verb.

ROUNDS (default 20; 6 with QUICK or a sanitized binary) and SEED, which is printed, come from the environment.
"""
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time

from conftest import ROOT, batch, event, replay_all, tallyman, verify
from follower import Follower
from ledger import GENESIS, History, Ledger, retry_unknown
from test_kill import Load, start_again
from tracer import Attached
from world import SANITIZED, SMALL, wait_ready

ROUNDS = int(os.environ.get("ROUNDS") or (6 if os.environ.get("QUICK") or SANITIZED else 20))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))


def journal(data):
    return data / "journal"


def segments(data):
    return sorted((journal(data) / "segments").iterdir())


def pending(data):
    return sorted((journal(data) / "pending").iterdir())


def seal(server, **query):
    words = "&".join(f"{name}={value}" for name, value in query.items())
    answer = server.request("POST", f"/api/v1/seal?{words}", unix=True)
    assert answer.status == 202, answer.body
    return answer.json


def sealing(server):
    return server.get("/api/v1/seal", unix=True).json


def wait_sealed(server):
    """Until nothing is to be sealed any more."""
    end = time.monotonic() + 60
    while True:
        status = sealing(server)
        if not status["active"] and (status["possible"] == 0 or status["failure"]):
            return status
        assert time.monotonic() < end, status
        if not status["active"]:
            seal(server)
        time.sleep(0.02)


def records(data):
    """The manifest's records; a reader of version 1 must refuse each but the first."""
    first, *rest = (journal(data) / "manifest.jsonl").read_bytes().splitlines()
    assert first == (b'{"format_id":"groundhog/log","min_reader":1,"min_writer":1,"schema_version":1,"stability":"stable",'
                     b'"type":"format"}')
    parsed = [json.loads(line) for line in rest]
    for line, record in zip(rest, parsed):
        assert line == json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
        assert record["type"] == "segment" and record["schema_version"] == 2 and record["min_reader"] == 2, record
        assert record["format"] == "ndjson+zstd"
        assert record["path"] == f"segments/{record['first_event_id']}_{record['last_event_id']}_{record['sha256']}.ndjson.zst"
    return parsed


def lines(data):
    """The history as text, by zstd alone."""
    text = b"".join(subprocess.run(["zstd", "-dcq", str(journal(data) / record["path"])], capture_output=True, check=True).stdout
                    for record in records(data))
    text += b"".join(path.read_bytes() for path in pending(data))
    return text + (journal(data) / "tail.ndjson").read_bytes().rstrip(b"\0")


def fill(server, first, count, size=900, each=4):
    for n in range(first, first + count):
        events = [{**event(n * each + i), "payload": {"n": n, "text": "lorem ipsum " * (size // 12)}} for i in range(each)]
        answer = server.append(batch(f"fill{n}", *events))
        assert answer.status == 200, answer.body


def test_seal_under_load(make_server, workdir):
    """Proves: while generations are sealed, appends and readers go on and see one history; it is the same to zstd, to verify,
    and after a restart; and it takes less space."""
    rng = random.Random(SEED)
    server = make_server(*SMALL)
    ledger = Ledger(workdir / "ledger.ndjson")
    history = History(ledger)
    load = Load(server, ledger, history, rng, "seal")
    sealed = []

    def press():
        while not load.stop.is_set():
            seal(server, tail=rng.choice(["true", "false"]))
            sealed.append(sealing(server)["sealed"])
            history.extend(server)
            time.sleep(0.02)

    presser = threading.Thread(target=load.run, args=(lambda *_: press(), 0, None))
    presser.start()
    try:
        time.sleep(2 if SANITIZED else 1.5)
    finally:
        load.end()
        presser.join(60)
    assert not load.failures, load.failures
    assert wait_sealed(server)["failure"] == ""
    assert sealed[-1] > 3, sealed
    history.extend(server)
    history.settle()
    history.reread(server)
    status = server.get("/api/v1/status", unix=True).json["journal"]
    files = sum(path.stat().st_size for path in segments(server.data))
    assert status["segments"] == len(segments(server.data)) == len(records(server.data)) == server.metric(
        "tallyman_journal_segments")
    assert status["segment_bytes"] == files < status["sealed_bytes"]
    assert status["stored_bytes"] == files + status["bytes"] - status["sealed_bytes"]
    assert abs(status["stored_bytes_per_event"] - status["stored_bytes"] / len(history.ids)) < 0.1
    live = verify(server.data)
    assert live["ok"] and live["segments_checked"] == len(segments(server.data)) and live["chain_head"] == history.head
    assert server.stop() == 0
    text = lines(server.data)
    assert len(text.splitlines()) == len(history.ids)
    report = verify(server.data)
    assert report["ok"] and report["chain_head"] == history.head and report["remnants"] == report["orphans"] == [], report
    # And to a stranger's program.
    result = subprocess.run([sys.executable, str(ROOT / "examples" / "verify.py"), str(journal(server.data))], capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0 and history.head in result.stdout, (result.stdout, result.stderr)
    server.start()
    retry_unknown(server, ledger, history)
    fill(server, 1, 2)
    ledger.close()


def one_round(server, ledger, history, rng, number, report):
    load = Load(server, ledger, history, rng, f"r{number}")
    stop = threading.Event()

    def press(*_):
        while not stop.is_set():
            seal(server)

    presser = threading.Thread(target=load.run, args=(press, 0, None))
    presser.start()
    try:
        time.sleep(rng.uniform(0.05, 0.3))
        server.kill()
    finally:
        stop.set()
        load.end()
        presser.join(60)
    committed = (journal(server.data) / "manifest.jsonl").read_bytes().count(b"\n") - 1
    report["in the middle"] += len(segments(server.data)) > committed
    judged = verify(server.data)
    assert judged["ok"] and judged["events_checked"] >= len(history.ids), judged
    start_again(server, rng, report)
    retry_unknown(server, ledger, history)
    for snapshot in load.snapshots:
        history.ancestor(snapshot)


def test_kill_during_sealing(make_server, workdir, capsys):
    """Proves: whenever the process is killed while it seals, everything acknowledged is there, once, and sealing goes on."""
    rng = random.Random(SEED + 1)
    server = make_server(*SMALL)
    ledger = Ledger(workdir / "ledger.ndjson")
    history = History(ledger)
    report = {"restart ms": [], "killed while starting": 0, "in the middle": 0}
    try:
        for number in range(ROUNDS):
            one_round(server, ledger, history, rng, number, report)
        history.settle()
        assert wait_sealed(server)["failure"] == ""
        history.reread(server)
        assert server.stop() == 0
        final = verify(server.data)
        assert final["ok"] and final["chain_head"] == history.head and final["remnants"] == final["orphans"] == [], final
        assert len(lines(server.data).splitlines()) == len(history.ids)
    except BaseException:
        print(f"SEED={SEED}, {report}")
        raise
    finally:
        ledger.close()
    slowest = max(report.pop("restart ms"))
    with capsys.disabled():
        print(f"\nseal: SEED={SEED} rounds={ROUNDS} events={len(history.ids)} segments={len(segments(server.data))} "
              + " ".join(f"{name.replace(' ', '_')}={value}" for name, value in report.items()) + f" restart_max={slowest:.0f} ms")
    assert history.heads[0] == GENESIS and len(segments(server.data)) > 0


def test_the_verb(make_server):
    """Proves: `tallyman seal` has a running server do it, does it itself where none runs, and says when there is nothing."""
    server = make_server(*SMALL)
    assert server.cli("seal", check=1).stderr == "tallyman seal: nothing to seal\n"
    fill(server, 0, 40)
    before = server.get("/v1/events?limit=1000").body
    plain = len(pending(server.data))
    assert plain > 1
    told = server.cli("seal", "--keep", "1", "--keep-tail", check=0).stderr.splitlines()
    assert len(told) == plain - 1 == len(segments(server.data)) and len(pending(server.data)) == 1
    assert told[0].startswith("tallyman seal: sealed segments/" + segments(server.data)[0].name + " (")
    told = server.cli("seal", check=0).stderr.splitlines()
    assert len(told) == 2 and pending(server.data) == []
    head = verify(server.data)["chain_head"]
    assert told[-1].endswith(f"head {head})")
    assert server.get("/v1/events?limit=1000").body == before
    assert server.get("/v1/events?limit=7").status == 200
    # Only on the Unix socket.
    assert server.request("POST", "/api/v1/seal").status == 404
    assert server.get("/api/v1/seal").status == 404
    assert server.request("POST", "/api/v1/seal?keep=x", unix=True).status == 400
    assert server.request("POST", "/api/v1/seal?tail=maybe", unix=True).status == 400
    assert server.request("POST", "/api/v1/seal?keep=1&keep=2", unix=True).status == 400
    assert server.get("/api/v1/seal?keep=1", unix=True).status == 400
    assert server.request("DELETE", "/api/v1/seal", unix=True).status == 405
    fill(server, 100, 3)
    assert server.stop() == 0
    told = server.cli("seal", check=0).stderr.splitlines()
    assert len(told) == 1 and len(segments(server.data)) == plain + 2
    assert server.cli("seal", check=1).stderr == "tallyman seal: nothing to seal\n"
    none = server.data.parent / "none"
    result = tallyman("seal", "--data", str(none))
    assert result.returncode == 1 and "there is no journal" in result.stderr and not none.exists()
    server.start()
    fill(server, 200, 1)
    assert len(server.get("/v1/events?limit=1000").json["events"]) == 4 * 44
    assert len(server.get("/v1/streams").json["streams"]) == 1


def test_what_is_sealed_before_the_answer_is_told(make_server, workdir):
    """Proves: generations that are sealed while the request that asks for it still closes the tail are reported like the others."""
    server = make_server(*SMALL)
    fill(server, 0, 40)
    plain = len(pending(server.data))
    journal = server.data / "journal"
    with Attached(server, workdir / "trace", "rename:delay_enter=700000", paths=[journal / "tail.ndjson"], calls="rename"):
        told = server.cli("seal", check=0).stderr.splitlines()
    assert len(told) == plain + 1 == len(segments(server.data))


def test_what_stands_in_segments_counts(make_server):
    """Proves: keys, retirements and stream frontiers that only sealed generations hold are honoured, also without an index."""
    server = make_server(*SMALL)
    first = server.append(batch("first", event(1, stream="a"), source="gone")).json
    retired = server.request("POST", "/v1/sources/retire", json.dumps({"source": "gone"}), {"Content-Type": "application/json"})
    assert retired.status == 200, retired.body
    fill(server, 0, 30)
    server.cli("seal", check=0)
    for without_index in (False, False, True):
        again = server.append(batch("first", event(1, stream="a"), source="gone"))
        assert again.json == {**first, "status": "duplicate"}
        refused = server.append(batch("second", event(2, stream="a"), source="gone"))
        assert (refused.status, refused.json["error"]) == (409, "source_retired")
        conflict = server.append(batch("fill3", event(77)))
        assert (conflict.status, conflict.json["error"]) == (409, "batch_id_conflict")
        stale = server.append(batch("stale", event(3), stream_precondition={"stream": "s", "expected_frontier": None}))
        assert (stale.status, stale.json["error"]) == (409, "stream_frontier_conflict")
        assert server.stop() == 0
        assert verify(server.data)["ok"]
        if without_index:
            for path in (server.data / "index").iterdir():
                path.unlink()
        server.start()
        wait_ready(server)


def test_followers_see_one_history(make_server):
    """Proves: a follower that is slow, one that is quick and one that begins behind it get every event once while generations are
    sealed under them."""
    server = make_server(*SMALL)
    fill(server, 0, 30)
    quick = Follower(server, timeout=60).until_caught_up()
    slow = Follower(server, sse=True, rcvbuf=4096, timeout=60)  # in the middle of its snapshot
    for n in range(4):
        seal(server)
        fill(server, 100 * (n + 1), 15)
        quick.until(lambda f, n=n: len(f.events) >= 4 * (30 + 15 * (n + 1)))
    assert wait_sealed(server)["failure"] == "" and pending(server.data) == []
    everything = [e["event_id"] for e in replay_all(server)]
    late = Follower(server, after=everything[17], timeout=60)
    for follower, ids in ((quick, everything), (slow, everything), (late, everything[18:])):
        follower.until(lambda f, ids=ids: len(f.events) >= len(ids))
        assert follower.ids == ids and follower.end is None
        follower.close()


def test_by_the_setting(make_server):
    """Proves: with seal_after_generations the newest closed generations stay plain and the others are sealed, unasked."""
    server = make_server(*SMALL, "--seal-after-generations", "2")
    fill(server, 0, 120)
    end = time.monotonic() + 60
    while len(pending(server.data)) > 2:
        assert time.monotonic() < end, sealing(server)
        time.sleep(0.05)
    assert len(segments(server.data)) > 2
    assert verify(server.data)["ok"]


def test_failed_syncs_touch_no_append(make_server, workdir):
    """Proves: when a sync fails while a generation is sealed, its plain file stays in force, appends go on, a restart cures it."""
    for number, where in enumerate(["manifest.jsonl", "segments"]):
        server = make_server(*SMALL, name=f"d{number}")
        fill(server, 0, 40)
        closed = len(pending(server.data))
        with Attached(server, workdir / f"trace{number}", "fsync:error=EIO:when=1+", paths=[journal(server.data) / where],
                      calls="fsync"):
            seal(server)
            end = time.monotonic() + 30
            while not sealing(server)["stopped"]:
                assert time.monotonic() < end, sealing(server)
                time.sleep(0.02)
            fill(server, 100, 2)
        status = sealing(server)
        assert "error" in status["failure"] and not status["active"] and status["sealed"] == 0
        assert len(pending(server.data)) == closed + 1
        assert server.metric("tallyman_journal_seal_failures_total") >= 1
        assert server.get("/readyz").status == 200
        result = server.cli("seal", check=1)
        assert "restart" in result.stderr
        fill(server, 200, 2)
        server.kill()
        assert verify(server.data)["ok"]
        server.start()
        assert server.cli("seal", check=0).stderr.count("sealed") >= closed
        fill(server, 300, 1)
        assert verify(server.data)["ok"] and len(server.get("/v1/events?limit=1000").json["events"]) == 4 * 45
        server.stop()


def test_damage_is_refused_and_told(make_server):
    """Proves: a damaged generation is not sealed and not removed; a damaged segment is never served, and verify names it."""
    server = make_server(*SMALL)
    fill(server, 0, 40)
    events = server.get("/v1/events?limit=1000").json["events"]
    victim = pending(server.data)[0]
    good = victim.read_bytes()
    at = len(good) // 2
    victim.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
    result = server.cli("seal", check=1)
    assert "damaged" in result.stderr and victim.exists() and segments(server.data) == []
    assert server.append(batch("still", event())).status == 200
    victim.write_bytes(good)
    server.cli("seal", check=0)
    segment = segments(server.data)[1]
    good = segment.read_bytes()
    first = sum(record["events"] for record in records(server.data)[:1])
    at = len(good) // 3
    segment.write_bytes(good[:at] + bytes([good[at] ^ 64]) + good[at + 1:])
    report = verify(server.data)
    assert report["failure"]["code"] == "file_hash_mismatch" and segment.name in json.dumps(report["failure"]), report
    assert server.get(f"/v1/events?limit={first}").json["events"] == events[:first]
    try:
        answer = server.get("/v1/events?limit=1000")
        assert answer.status == 500 or len(answer.json["events"]) <= first
    except (http.client.HTTPException, ValueError):
        pass  # cut where the damage begins
    assert server.metric("tallyman_journal_corrupt_reads_total") >= 1
    segment.write_bytes(good)
    assert server.get("/v1/events?limit=1000").json["events"][:160] == events[:160]
    assert verify(server.data)["ok"]
