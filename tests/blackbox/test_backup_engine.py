"""`tallyman backup` of the embedded engine's data, with the real engine: beside it, without it, and when it cannot be asked."""
import json
import sqlite3
import subprocess
import threading
import time
import uuid as uuids

from artifact_world import Artifacts
from capture_world import Capture, Far
from conftest import BINARY, tallyman

wait = Artifacts.wait


def backup(server, place, code=0):
    result = subprocess.run([BINARY, "backup", str(place), "--data", str(server.data), "--json"], capture_output=True, text=True,
                            timeout=120, stdin=subprocess.DEVNULL)
    assert result.returncode == code, (result.stdout, result.stderr)
    return json.loads(result.stdout), result.stderr


def rows(server):
    """uuid -> event id, as users see them."""
    return dict(line.split("\t") for line in Far(server).ask(
        "SELECT toString(uuid), toString(event_id) FROM tallyman.events_v2 FINAL FORMAT TSV").strip().splitlines())


def test_delivered_events_come_back_although_the_engine_merged_and_took_more_meanwhile(make_server, workdir):
    place = workdir / "backup"
    w = Capture(make_server(), workdir)
    for _ in range(3):
        w.put(20)
        w.wait_delivered()
    far = Far(w.server)
    stop = threading.Event()
    failed = []

    def load():
        try:
            while not stop.is_set():
                w.put(5)
                far.ask("OPTIMIZE TABLE tallyman.events_v2 FINAL")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        first, words = backup(w.server, place)
        told = {event.uuid: str(event.event_id) for event in list(w.ledger.events.values()) if event.acked}
        second, _ = backup(w.server, place)
    finally:
        stop.set()
        thread.join(60)
    assert not failed, failed
    assert first["engine"] == second["engine"] == "copied" and words == ""
    assert list((w.server.data / "engine" / "data" / "shadow").rglob("*.bin")) == [], "something stays frozen"
    w.server.stop()

    assert tallyman("restore", str(place), "--data", str(workdir / "restored"), "--verify").returncode == 0
    restored = make_server(name="restored")
    wait(lambda: json.loads(restored.cli("status", "--json").stdout)["engine"]["state"] == "running", what="the engine")
    seen = wait(lambda: answers(restored), what="the engine's answer")
    waiting = {uuid: str(event_id) for (_, uuid), event_id in receipts(restored).items()}
    for uuid, event_id in told.items():
        assert uuid in seen or uuid in waiting, f"{uuid} was acknowledged before, and is nowhere"
        assert seen.get(uuid, event_id) == event_id
    assert len(seen) >= 60, "what was delivered before is in the engine"
    restored.cli("sinks", "resume", check=0)
    wait(lambda: restored.metric("tallyman_queue_events") == 0, what="the rest's delivery")
    assert rows(restored).items() >= told.items()


def receipts(server):
    """Of events that still wait."""
    with sqlite3.connect(f"file:{server.data}/tallyman.sqlite?mode=ro", uri=True) as db:
        found = {("", str(uuids.UUID(bytes=raw))): id for raw, id in db.execute("SELECT uuid, id FROM events")}
    db.close()
    return found


def answers(server):
    try:
        return rows(server)
    except (OSError, AssertionError):
        time.sleep(0.05)
        return None


def test_an_engine_that_does_not_answer_is_left_out_loudly_and_copied_without_a_server(make_server, workdir):
    place = workdir / "backup"
    server = make_server()
    w = Capture(server, workdir)
    w.put(10)
    w.wait_delivered()
    assert server.stop() == 0
    server.env["TALLYMAN_ENGINE_LIBRARY"] = str(workdir / "none.so")
    server.start()
    report, words = backup(server, place, code=4)
    assert report["engine"] == "left_out" and "the engine's data is NOT in this backup" in words and "no server" not in words
    restored = tallyman("restore", str(place), "--data", str(workdir / "without"))
    assert restored.returncode == 0 and "are not in this backup" in restored.stderr
    assert server.stop() == 0
    report, words = backup(server, place)
    assert report["engine"] == "copied" and words == ""
    assert tallyman("restore", str(place), "--data", str(workdir / "restored"), "--verify").returncode == 0
    again = make_server(name="restored")
    seen = wait(lambda: answers(again), what="the engine's answer")
    assert len(seen) == 10
