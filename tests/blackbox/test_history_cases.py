"""Entries of cases/history.md that need files, restarts or readers beside writers; the others are in test_history.py,
test_strace.py and the unit tests, by name."""
import concurrent.futures
import json
import threading

from conftest import batch, event, replay_all, tallyman, verify


def test_L02_one_copy_whoever_sends_it_and_whenever(make_server):
    """The key is a guarantee without a window: one client twice, two clients at once, and after a restart."""
    server = make_server()
    first = server.append(batch("k", event(1))).json
    assert first["status"] == "committed"
    assert server.append(batch("k", event(1))).json == {**first, "status": "duplicate"}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: server.append(batch("two", event(2))).json, range(2)))
    assert sorted(a["status"] for a in both) == ["committed", "duplicate"]
    server.stop()
    server.start()
    assert server.append(batch("k", event(1))).json == {**first, "status": "duplicate"}
    server.kill()
    server.start()
    assert server.append(batch("two", event(2))).json["status"] == "duplicate"
    assert len(replay_all(server)) == 2


def test_L25_damage_in_an_early_generation_and_no_index(make_server):
    """The server starts, serves everything before the damage, names the place, and takes nothing; verify names it too."""
    server = make_server("--generation-bytes", "64KiB")
    for i in range(100):
        server.append(batch(f"b{i}", *[event(k) for k in range(20)]))
    whole = replay_all(server)
    assert server.stop() == 0
    pending = sorted((server.data / "journal" / "pending").iterdir())
    assert len(pending) > 5
    raw = bytearray(pending[2].read_bytes())
    place = len(raw) // 2
    raw[place] ^= 1
    pending[2].write_bytes(raw)
    for path in (server.data / "index").iterdir():
        path.unlink()
    report = verify(server.data)
    assert not report["ok"]
    assert report["failure"]["file"] == f"journal/pending/{pending[2].name}"
    start_of_batch = report["failure"]["offset"]
    assert start_of_batch <= place < start_of_batch + 30000
    server.start()
    ready = server.get("/readyz")
    assert ready.status == 503
    assert ready.json["cause"] == "damaged" and f"byte {start_of_batch}" in ready.json["detail"]
    served = replay_all(server)
    assert served == whole[:len(served)]
    before = sum(len(p.read_bytes().splitlines()) for p in pending[:2])
    assert before <= len(served) < before + len(raw.splitlines())
    assert server.append(batch("new")).status == 503
    assert server.stop() == 0
    assert bytes(raw) == pending[2].read_bytes()


def test_L32_a_reader_never_sees_a_later_event_before_an_earlier_one(make_server):
    """Readers that move on by the last id they saw find every event that the final log holds, in its order."""
    server = make_server("--generation-bytes", "64KiB")
    stop = threading.Event()

    def write(w):
        conn = server.connection()
        for i in range(150):
            conn.request("POST", "/v1/events", json.dumps(batch(f"w{w}-{i}", event(i), event(i + 1))))
            response = conn.getresponse()
            response.read()
            assert response.status == 200

    def read(_):
        conn = server.connection()
        seen, after = [], None
        while True:
            last_round = stop.is_set()
            conn.request("GET", "/v1/events?limit=50" + (f"&after={after}" if after else ""))
            page = json.loads(conn.getresponse().read())
            seen += [e["event_id"] for e in page["events"]]
            after = page["next_after"]
            if last_round and not page["events"]:
                return seen

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        readers = [pool.submit(read, r) for r in range(3)]
        for writer in [pool.submit(write, w) for w in range(5)]:
            writer.result(60)
        stop.set()
        seen = [r.result(60) for r in readers]
    everything = [e["event_id"] for e in replay_all(server)]
    assert len(everything) == 5 * 150 * 2
    for ids in seen:
        assert ids == everything


def test_verify_prints_lines_and_exit_codes(make_server, workdir):
    server = make_server()
    server.append(batch("b", event(1)))
    server.stop()
    good = tallyman("verify", "--chain", "--data", str(server.data))
    assert good.returncode == 0 and "chain head" in good.stdout and good.stdout.endswith("ok\n")
    tail = server.data / "journal" / "tail.ndjson"
    raw = bytearray(tail.read_bytes())
    raw[100] ^= 4
    tail.write_bytes(raw)
    bad = tallyman("verify", "--data", str(server.data))
    assert bad.returncode == 3 and "violation: " in bad.stdout and "tail.ndjson at byte 0" in bad.stdout
    nothing = tallyman("verify", "--data", str(workdir / "nowhere"))
    assert nothing.returncode == 1 and "no journal" in nothing.stderr
    assert tallyman("verify", "--nonsense").returncode == 2
