"""Retired sources and successor lineage (spec/history.md sections 6, 7 and 10): answers, races, restarts, and that no answer
leaves before the sync it rests on."""
import concurrent.futures
import hashlib
import json
import os
import pty
import socket
import subprocess
import threading
import time

import pytest
from conftest import BINARY, batch, event, replay_all, tallyman, verify
from tracer import Attached

JSON = {"Content-Type": "application/json"}


def retire(server, source, **kw):
    return server.request("POST", "/v1/sources/retire", json.dumps({"v": 1, "source": source}).encode(), JSON, **kw)


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def marker(predecessor, frontier, **change):
    e = {"stream": "groundhog.source_lineage", "record_key": predecessor, "kind": "source_succeeded",
         "payload": {"v": 1, "predecessor_source": predecessor, "predecessor_final_frontier": frontier}, **change}
    return {k: v for k, v in e.items() if v is not ...}


def successor(batch_id, predecessor, frontier, *more, source="new", **kw):
    return batch(batch_id, marker(predecessor, frontier), *more, source=source, **kw)


class Pipeline:
    """Requests of one connection, all sent before the first answer is read: decided in one group."""

    def __init__(self, server):
        self.sock = socket.create_connection((server.host, server.port), timeout=30)
        self.file = self.sock.makefile("rb")

    def post(self, *requests):
        wire = b""
        for path, body in requests:
            raw = json.dumps(body).encode()
            wire += (b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                     % (path.encode(), len(raw))) + raw
        self.sock.sendall(wire)

    def answer(self):
        status = int(self.file.readline().split()[1])
        length = 0
        while (line := self.file.readline().strip()):
            name, value = line.split(b":", 1)
            if name.lower() == b"content-length":
                length = int(value)
        return status, json.loads(self.file.read(length))

    def close(self):
        self.file.close()
        self.sock.close()


EVENTS, RETIRE = "/v1/events", "/v1/sources/retire"


# ---- retiring ----

def test_a_retirement_is_one_event_of_source_system(server):
    server.append(batch("a", event(1), event(2, stream="t")))
    last = server.append(batch("b", event(3), event(4, stream="u"), event(5))).json["last_event_id"]
    server.append(batch("c", event(1), source="other"))
    answer = retire(server, "test")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    told = answer.json
    assert told == {"v": 1, "status": "retired", "source": "test", "final_frontier": last,
                    "retirement_event_id": told["retirement_event_id"]}
    events = replay_all(server)
    e = events[-1]
    payload = {"v": 1, "source": "test", "final_frontier": last}
    assert {k: e[k] for k in e if k not in ("observed_at", "event_hash", "content_hash")} == {
        "event_id": told["retirement_event_id"], "source": "system", "stream": "groundhog.source_lifecycle",
        "record_key": "test", "kind": "source_retired", "payload": payload, "batch_id": f"groundhog/retire/test/{last}"}
    assert e["content_hash"] == sha(canonical(payload))
    head = hashlib.sha256(b"groundhog/genesis/v1").digest()
    for each in events:
        envelope = {k: v for k, v in each.items() if k not in ("payload", "event_hash")}
        assert each["event_hash"] == sha(canonical(envelope))
        head = hashlib.sha256(head + bytes.fromhex(each["event_hash"])).digest()
    assert server.get("/v1/events?limit=1").json["snapshot"]["chain_head"] == head.hex()
    rows = {(r["source"], r["stream"]): r for r in server.get("/v1/streams").json["streams"]}
    assert rows["system", "groundhog.source_lifecycle"] == {
        "source": "system", "stream": "groundhog.source_lifecycle", "event_count": 1,
        "frontier_event_id": told["retirement_event_id"]}
    assert rows["test", "s"]["event_count"] == 3  # its history is untouched
    line = [x for x in (server.data / "journal" / "tail.ndjson").read_bytes().rstrip(b"\0").splitlines()][-1]
    digest = {"v": 1, "source": "system", "events": [
        {"content_hash": e["content_hash"], "kind": e["kind"], "record_key": "test", "stream": e["stream"]}]}
    assert json.loads(line)["batch_digest"] == sha(canonical(digest))
    assert verify(server.data)["ok"]


def test_again_is_already_retired_and_appends_are_refused(make_server):
    server = make_server()
    receipt = server.append(batch("a", event(1))).json
    told = retire(server, "test").json
    again = {**told, "status": "already_retired"}
    for _ in range(2):
        assert retire(server, "test").json == again
        refused = server.append(batch("b", event(2)))
        assert refused.status == 409
        assert {k: v for k, v in refused.json.items() if k != "message"} == {
            "error": "source_retired", "source": "test", "final_frontier": receipt["last_event_id"],
            "retirement_event_id": told["retirement_event_id"]}
        # A repeat and a conflict win over retirement; a stale precondition does not come to be asked.
        assert server.append(batch("a", event(1))).json == {**receipt, "status": "duplicate"}
        assert server.append(batch("a", event(9))).json["error"] == "batch_id_conflict"
        assert server.append(batch("p", event(2), stream_precondition={
            "stream": "s", "expected_frontier": None})).json["error"] == "source_retired"
        assert server.stop() == 0
        server.start()
    assert [e["source"] for e in replay_all(server)] == ["test", "system"]


def test_retirements_survive_rotation_kill_and_loss_of_the_index(make_server):
    """They are read again from the tail, from closed generations with a summary and without, and from sealed ones."""
    server = make_server("--generation-bytes", "64KiB")
    told = {}
    for i in range(4):
        for k in range(2):
            server.append(batch(f"{i}-{k}", event(1), source=f"old{i}-{k}"))
            told[f"old{i}-{k}"] = retire(server, f"old{i}-{k}").json
        for k in range(3):
            server.append(batch(f"fill{i}-{k}", *[event(n, payload="x" * 900) for n in range(40)], source="filler"))
    pending = list((server.data / "journal" / "pending").iterdir())
    assert len(pending) >= 4
    server.append(batch("one", event(1), source="single"))
    told["single"] = retire(server, "single").json

    def check():
        for source, answer in told.items():
            assert retire(server, source).json == {**answer, "status": "already_retired"}
            assert server.append(batch("late", event(1), source=source)).json["error"] == "source_retired"
        assert server.append(successor("s", "old0-0", told["old0-1"]["final_frontier"])).json[
            "actual_predecessor_frontier"] == told["old0-0"]["final_frontier"]

    check()
    server.kill()
    server.start()
    check()
    assert server.stop() == 0
    for path in (server.data / "index").iterdir():
        path.unlink()
    server.start()
    check()
    assert server.stop() == 0
    server.cli("seal", check=0)
    assert list((server.data / "journal" / "segments").iterdir())
    server.start()
    check()
    report = verify(server.data)
    assert report["ok"] and report["segments_checked"] > 0, report


@pytest.mark.parametrize("body, code", [
    (b"", "invalid_request"),
    (b"[]", "invalid_request"),
    (b'{"source":"a","source":"a"}', "invalid_request"),
    (b'{"v":1}', "invalid_request"),
    (b'{"source":1}', "invalid_request"),
    (b'{"source":"a","v":"1"}', "invalid_request"),
    (b'{"source":"a","x":1}', "invalid_request"),
    (b'{"source":"a","v":2}', "invalid_source_retirement"),
    (b'{"source":"system"}', "invalid_source_retirement"),
    (b'{"source":"s\\u0079stem"}', "invalid_source_retirement"),
    (b'{"source":""}', "invalid_source_retirement"),
    (b'{"source":"A"}', "invalid_source_retirement"),
    (b'{"source":"' + b"a" * 129 + b'"}', "invalid_source_retirement"),
    (b'{"source":"' + b"a" * 100000 + b'"}', "invalid_source_retirement"),
    (b'{"source":"a","y":' + b"[" * 200 + b"]" * 200 + b"}", "invalid_request"),
])
def test_refused_retirements(server, body, code):
    answer = server.request("POST", RETIRE, body, JSON)
    assert (answer.status, answer.json["error"]) == (400, code)
    assert answer.json["message"]
    assert replay_all(server) == []


def test_the_rules_of_the_route(server):
    server.append(batch("a", event(1), source="a"))
    good = b'{"source":"a"}'
    unknown = retire(server, "nobody")
    assert (unknown.status, unknown.json["error"], unknown.json["source"]) == (404, "source_not_found", "nobody")
    assert server.request("POST", RETIRE + "?x=1", good, {"Content-Type": "text/plain"}).json["error"] == "invalid_request"
    for headers in ({"Content-Type": "text/plain"}, {**JSON, "Content-Encoding": "identity"}):
        assert server.request("POST", RETIRE, good, headers).status == 415
    wrong = server.get(RETIRE)
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    big = b'{"source":"a","v":1' + b" " * (1 << 20) + b"}"
    assert server.request("POST", RETIRE, big, JSON).json["error"] == "body_too_large"
    assert server.request("POST", RETIRE, b"{}", {**JSON, "Origin": "http://evil.example"}).status == 401
    assert len(replay_all(server)) == 1
    # 1 MiB is taken, by way of a worker; v may be spelled as any number one.
    large = b'{"source":"a","v":1.0' + b" " * ((1 << 20) - 22) + b"}"
    assert len(large) == 1 << 20
    assert server.request("POST", RETIRE, large, JSON).json["status"] == "retired"
    assert server.request("POST", RETIRE, good).json["status"] == "already_retired"


def test_what_is_reserved(server):
    assert server.append(batch("b", event(1), source="system")).json["error"] == "invalid_batch"
    assert server.append(batch("groundhog/retire/x", event(1))).json["error"] == "invalid_batch"
    # The stream's name is not: under its own source a client may use it, and nothing is retired by that.
    assert server.append(batch("c", event(1, stream="groundhog.source_lifecycle", key="test"))).status == 200
    assert server.append(batch("d", event(2))).status == 200
    assert server.stop() == 0
    server.start()
    assert server.append(batch("e", event(3))).status == 200
    assert verify(server.data)["ok"]


# ---- lineage ----

def test_a_successor_names_where_its_predecessor_ended(make_server):
    server = make_server()
    server.append(batch("a", event(1), source="old"))
    told = retire(server, "old").json
    first = successor("s", "old", told["final_frontier"], event(1), event(2, stream="t"))
    receipt = server.append(first)
    assert (receipt.status, receipt.json["events"]) == (200, 3)
    assert server.append(first).json == {**receipt.json, "status": "duplicate"}
    assert server.append(batch("more", event(3), source="new")).status == 200
    # Two may succeed one; a successor may be retired and succeeded.
    assert server.append(successor("s", "old", told["final_frontier"], source="twin")).status == 200
    ended = retire(server, "new").json
    assert server.append(first).json["status"] == "duplicate"
    assert server.append(successor("s", "new", ended["final_frontier"], source="third")).status == 200
    # With a precondition, which is asked behind the marker.
    alone = successor("s", "old", told["final_frontier"], source="fourth",
                      stream_precondition={"stream": "groundhog.source_lineage", "expected_frontier": ended["final_frontier"]})
    assert server.append(alone).json["error"] == "stream_frontier_conflict"
    alone["stream_precondition"]["expected_frontier"] = None
    assert server.append(alone).status == 200
    assert server.stop() == 0
    assert verify(server.data)["ok"]


def test_conflicts_of_lineage(server):
    server.append(batch("a", event(1), source="old"))
    frontier = server.append(batch("b", event(2), source="old")).json["last_event_id"]
    earlier = replay_all(server)[0]["event_id"]

    def conflict(sent, actual, source="new"):
        answer = server.append(sent)
        assert answer.status == 409
        assert {k: v for k, v in answer.json.items() if k != "message"} == {
            "error": "source_lineage_conflict", "source": source, "predecessor_source": "old",
            "expected_predecessor_frontier": sent["events"][0]["payload"]["predecessor_final_frontier"],
            "actual_predecessor_frontier": actual}

    conflict(successor("s", "old", frontier), None)  # not retired
    server.append(batch("x", event(1), source="has"))
    conflict(successor("s", "old", frontier, source="has"), None, "has")
    retire(server, "old")
    conflict(successor("s", "old", earlier), frontier)  # at another frontier
    conflict(successor("s", "old", frontier, source="has"), frontier, "has")  # it has events already
    assert server.append(successor("s", "old", frontier)).status == 200  # the batch id was not used up
    conflict(successor("t", "old", frontier), frontier)
    # Retirement of the batch's own source is asked before its lineage, even a malformed one.
    retire(server, "has")
    assert server.append(successor("s", "old", frontier, source="has")).json["error"] == "source_retired"
    assert server.append(batch("s", marker("has", frontier), source="has")).json["error"] == "source_retired"
    assert len([e for e in replay_all(server) if e["kind"] == "source_succeeded"]) == 1


F = "01a3185c-5000-7000-8000-000012340000"


@pytest.mark.parametrize("events", [
    [event(1), marker("old", F)],
    [marker("old", F), marker("old", F)],
    [marker("old", F), event(1), marker("older", F)],
    [marker("old", F, occurred_at="2026-01-01T00:00:00Z")],
    [marker("old", F, kind="upserted")],
    [marker("old", F, record_key="older")],
    [marker("new", F)],
    [marker("system", F)],
    [marker("Old", F)],
    [marker("old", F.upper())],
    [marker("old", "x")],
    [marker("old", None)],
    [marker("old", F, payload={"predecessor_source": "old", "predecessor_final_frontier": F})],
    [marker("old", F, payload={"v": 2, "predecessor_source": "old", "predecessor_final_frontier": F})],
    [marker("old", F, payload={"v": 1, "predecessor_source": "old", "predecessor_final_frontier": F, "x": 1})],
    [marker("old", F, payload=None)],
])
def test_malformed_markers(server, events):
    answer = server.append(batch("b", *events, source="new"))
    assert (answer.status, answer.json["error"]) == (400, "invalid_source_lineage")
    assert answer.json["message"]
    assert replay_all(server) == []


def test_a_bad_event_is_named_before_a_bad_marker(server):
    answer = server.append(batch("b", marker("old", F), event(1, key="x" * 1025), marker("old", F), source="new"))
    assert (answer.status, answer.json["error"]) == (400, "invalid_events")
    assert [e["index"] for e in answer.json["errors"]] == [1]


# ---- one group, and its sync ----

def test_within_one_group_all_is_decided_in_order_and_told_after_the_sync(server, workdir):
    server.append(batch("a", event(1), source="old"))
    with Attached(server, workdir / "trace", "fdatasync:delay_exit=700000"):
        pipe = Pipeline(server)
        begun = time.monotonic()
        pipe.post((EVENTS, batch("b", event(2), source="old")), (RETIRE, {"source": "old"}), (RETIRE, {"source": "old"}),
                  (EVENTS, batch("c", event(3), source="old")), (EVENTS, batch("b", event(2), source="old")),
                  (RETIRE, {"source": "nobody"}))
        answers = []
        for _ in range(6):
            answers.append(pipe.answer())
            assert time.monotonic() - begun >= 0.65
        pipe.close()
    assert [a.get("status", a.get("error")) for _, a in answers] == [
        "committed", "retired", "already_retired", "source_retired", "duplicate", "source_not_found"]
    final = answers[0][1]["last_event_id"]
    assert [a["final_frontier"] for _, a in answers[1:4]] == [final] * 3
    assert len({a["retirement_event_id"] for _, a in answers[1:4]}) == 1
    assert [e["batch_id"] for e in replay_all(server)] == ["a", "b", f"groundhog/retire/old/{final}"]


def test_if_the_sync_fails_nothing_was_told(make_server, workdir):
    """All of a lost group get 503; after a restart the log decides, and says the same to everybody."""
    server = make_server()
    server.append(batch("a", event(1), source="old"))
    with Attached(server, workdir / "trace", "fdatasync:error=EIO"):
        pipe = Pipeline(server)
        pipe.post((RETIRE, {"source": "old"}), (RETIRE, {"source": "old"}), (EVENTS, batch("c", event(3), source="old")))
        assert [(s, a["error"]) for s, a in (pipe.answer() for _ in range(3))] == [(503, "writer_poisoned")] * 3
        pipe.close()
    assert retire(server, "old").status == 503
    server.stop()
    server.start()
    there = [e for e in replay_all(server) if e["source"] == "system"]
    told = retire(server, "old").json
    assert told["status"] == ("already_retired" if there else "retired")
    assert told["retirement_event_id"] == replay_all(server)[-1]["event_id"]
    assert server.append(batch("d", event(3), source="old")).json["error"] == "source_retired"
    assert verify(server.data)["ok"]


def test_a_full_disk_undoes_a_staged_retirement(make_server, workdir):
    """A group whose write finds no space has not happened: the source takes events until it is retired anew."""
    server = make_server()
    server.append(batch("a", event(1), source="old"))
    with Attached(server, workdir / "trace", "pwrite64:error=ENOSPC", paths=[server.data / "journal" / "tail.ndjson"]):
        pipe = Pipeline(server)
        pipe.post((RETIRE, {"source": "old"}), (RETIRE, {"source": "old"}))
        assert [s for s, _ in (pipe.answer() for _ in range(2))] == [429, 429]
        pipe.close()
    end = time.monotonic() + 30
    while (answer := server.append(batch("b", event(2), source="old"))).status == 429 and time.monotonic() < end:
        time.sleep(0.05)
    assert answer.json["status"] == "committed"
    told = retire(server, "old").json
    assert (told["status"], told["final_frontier"]) == ("retired", answer.json["last_event_id"])
    assert verify(server.data)["ok"]


# ---- races ----

def test_appends_and_retirement_have_one_serial_order(server):
    """Whoever was taken is below the final frontier, in order; whoever was refused is not there; all are told the same end."""
    for round_number in range(4):
        source = f"race{round_number}"
        server.append(batch("seed", event(0), source=source))
        start = threading.Barrier(24)

        def act(i):
            start.wait()
            return retire(server, source) if i % 6 == 5 else server.append(batch(f"r{i}", event(i), event(i), source=source))

        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(act, range(24)))
        appends = [a for i, a in enumerate(answers) if i % 6 != 5]
        retirements = [a.json for i, a in enumerate(answers) if i % 6 == 5]
        assert sorted(r.pop("status") for r in retirements) == ["already_retired"] * 3 + ["retired"]
        assert all(r == retirements[0] for r in retirements)
        final = retirements[0]["final_frontier"]
        taken = [a.json for a in appends if a.status == 200]
        refused = [a.json for a in appends if a.status != 200]
        assert {(r["error"], r["final_frontier"], r["retirement_event_id"]) for r in refused} <= {
            ("source_retired", final, retirements[0]["retirement_event_id"])}
        events = replay_all(server, source=source)
        assert len(events) == 1 + 2 * len(taken)
        assert events[-1]["event_id"] == final < retirements[0]["retirement_event_id"]
        assert {t["last_event_id"] for t in taken} <= {e["event_id"] for e in events}
    assert verify(server.data)["ok"]


def test_fifty_who_retire_and_fifty_who_succeed(server):
    final = server.append(batch("a", event(1), source="old")).json["last_event_id"]
    start = threading.Barrier(50)

    def end_it(_):
        start.wait()
        return retire(server, "old").json

    def succeed(i):
        start.wait()
        return server.append(successor(f"s{i}", "old", final))

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        told = list(pool.map(end_it, range(50)))
        sent = list(pool.map(succeed, range(50)))
    assert sorted(t["status"] for t in told) == ["already_retired"] * 49 + ["retired"]
    assert len({t["retirement_event_id"] for t in told}) == 1
    assert sorted(a.status for a in sent) == [200] + [409] * 49
    assert len(replay_all(server)) == 3


# ---- kill -9 ----

def test_killed_while_sources_are_retired(make_server):
    """What was answered is so after the start; what was not is retired or not, and then has one answer."""
    server = make_server("--generation-bytes", "64KiB")
    told, stop = {}, threading.Event()

    def work(w):
        n = 0
        while not stop.is_set():
            source = f"w{w}-{n}"
            n += 1
            try:
                server.append(batch("a", event(1, payload="x" * 700), source=source))
                answer = retire(server, source)
            except (OSError, ValueError):
                return
            except Exception as broken:  # http.client's own
                assert "http" in type(broken).__module__
                return
            if answer.status == 200:
                told[source] = answer.json

    threads = [threading.Thread(target=work, args=(w,)) for w in range(4)]
    for t in threads:
        t.start()
    end = time.monotonic() + 30
    while len(told) < 120 and time.monotonic() < end:
        time.sleep(0.01)
    server.kill()
    stop.set()
    for t in threads:
        t.join()
    assert len(told) >= 120
    server.start()
    events = replay_all(server)
    by_id = {e["event_id"]: e for e in events}
    for source, answer in told.items():
        e = by_id[answer["retirement_event_id"]]
        assert e["payload"] == {"v": 1, "source": source, "final_frontier": answer["final_frontier"]}
    for source in list(told)[-10:]:
        assert retire(server, source).json == {**told[source], "status": "already_retired"}
    assert server.stop() == 0
    assert verify(server.data)["ok"]


# ---- verify ----

def rewrite(server, change):
    """Rewrites the tail event by event with all hashes mended: only what the events say can be wrong."""
    path = server.data / "journal" / "tail.ndjson"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    out = b""
    for e in change(lines):
        e["content_hash"] = sha(canonical(e["payload"]))
        envelope = {k: v for k, v in e.items() if k not in ("payload", "event_hash", "batch_digest", "batch_len")}
        e["event_hash"] = sha(canonical(envelope))
        e["batch_len"] = 1
        commitment = {k: e[k] for k in ("content_hash", "kind", "occurred_at", "record_key", "stream") if k in e}
        e["batch_digest"] = sha(canonical({"v": 1, "source": e["source"], "events": [commitment]}))
        out += canonical(e) + b"\n"
    path.write_bytes(out)


@pytest.fixture
def told_story(make_server):
    """old: two events, retired; new: succeeds it. One event a batch."""
    server = make_server()
    server.append(batch("a", event(1), source="old"))
    server.append(batch("b", event(2), source="old"))
    frontier = retire(server, "old").json["final_frontier"]
    server.append(successor("s", "old", frontier))
    assert server.stop() == 0
    return server


def swapped(lines, i, k):
    """Two events in each other's place; the ids stay in order."""
    ids = [e["event_id"] for e in lines]
    lines[i], lines[k] = lines[k], lines[i]
    for e, event_id in zip(lines, ids):
        e["event_id"] = event_id
    return lines


def edited(index, **change):
    def change_it(lines):
        lines[index].update(change)
        return lines
    return change_it


@pytest.mark.parametrize("change, text", [
    (lambda lines: swapped(lines, 1, 2), "does not name the source's last event"),
    (lambda lines: swapped(lines, 2, 3), "predecessor was not retired there"),
    (edited(1, source="stranger"), "does not name the source's last event"),
    (edited(3, source="old"), "succeed itself"),
    (edited(3, source="old", stream="s"), "behind its retirement"),
    (edited(2, kind="upserted"), "that is none"),
    (edited(2, record_key="new"), "payload is not that of its record_key"),
    (edited(2, batch_id="groundhog/retire/old/x"), "batch_id"),
    (edited(3, kind="upserted"), "source_succeeded"),
    (edited(0, source="new"), "first event of its source"),
    (edited(3, source="system", stream="groundhog.source_lifecycle"), "that is none"),
])
def test_verify_finds_what_only_the_story_tells(told_story, change, text):
    assert verify(told_story.data)["ok"]
    rewrite(told_story, change)
    for flags in ([], ["--chain"]):
        result = tallyman("verify", "--json", *flags, "--data", str(told_story.data))
        assert result.returncode == 3, result.stdout
        failure = json.loads(result.stdout)["failure"]
        assert failure["code"] == "lifecycle_invalid" and text in json.dumps(failure)


def test_a_start_refuses_a_retirement_that_is_none(told_story, workdir):
    rewrite(told_story, edited(2, kind="upserted"))
    before = (told_story.data / "journal" / "tail.ndjson").read_bytes()
    with pytest.raises(AssertionError, match="not the retirement of a source"):
        told_story.start()
    told_story.process = None
    assert (told_story.data / "journal" / "tail.ndjson").read_bytes() == before


# ---- the command line ----

def test_cli_retire(server):
    frontier = server.append(batch("a", event(1), source="old")).json["last_event_id"]
    asked = server.cli("retire", "old")
    assert asked.returncode == 2 and "--yes" in asked.stderr and asked.stdout == ""
    done = server.cli("retire", "old", "--yes", check=0)
    assert done.stdout.endswith("}\n")
    told = json.loads(done.stdout)
    assert (told["status"], told["final_frontier"]) == ("retired", frontier)
    assert json.loads(server.cli("retire", "--yes", "old", check=0).stdout) == {**told, "status": "already_retired"}
    missing = server.cli("retire", "nobody", "--yes")
    assert missing.returncode == 1 and "source_not_found" in missing.stderr and missing.stdout == ""
    assert server.cli("retire", "system", "--yes").returncode == 1
    assert server.cli("retire", "--yes").returncode == 2
    assert tallyman("retire", "x", "--yes", "--retry", "0", "--data", str(server.data.parent / "none")).returncode in (1, 2)


def on_terminal(server, source, typed):
    master, slave = pty.openpty()
    process = subprocess.Popen([BINARY, "retire", source, "--data", str(server.data)], stdin=slave, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    os.close(slave)
    os.write(master, typed)
    out, err = process.communicate(timeout=60)
    os.close(master)
    return process.returncode, out, err.decode()


def test_cli_retire_asks_on_a_terminal(server):
    server.append(batch("a", event(1), source="old"))
    for typed in (b"olf\n", b"\n", b"old " + b"x" * 300 + b"\n", b"\x04"):
        code, out, err = on_terminal(server, "old", typed)
        assert (code, out) == (2, b"") and "nothing was done" in err
    code, out, err = on_terminal(server, "old", b"old\n")
    assert code == 0 and json.loads(out)["status"] == "retired" and "Type its name" in err
