"""Entries of cases/history.md that need files, restarts or readers beside writers; the others are in test_history.py,
test_strace.py and the unit tests, by name."""
import concurrent.futures
import json
import os
import random
import threading

import pytest
from conftest import batch, event, replay_all, tallyman, verify
from world import wait_ready


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


def filled(make_server, batches=100, events=20):
    """A server with some generations of 64 KiB."""
    server = make_server("--generation-bytes", "64KiB")
    for i in range(batches):
        assert server.append(batch(f"b{i}", *[event(k) for k in range(events)])).status == 200
    return server


def index_files(server):
    return {path.name: path.read_bytes() for path in (server.data / "index").iterdir()}


def same_answers(server, whole, batches=100, events=20):
    """Everything is there once, and every batch is known."""
    wait_ready(server)
    assert replay_all(server) == whole
    for i in range(batches):
        assert server.append(batch(f"b{i}", *[event(k) for k in range(events)])).json["status"] == "duplicate"
    assert replay_all(server) == whole


def test_L10_an_index_of_yesterday_is_a_hint(make_server):
    """kill -9; then index files are missing, are those of an earlier state, or of another journal: the same answers, and nothing fails."""
    server = filled(make_server, 40)
    assert server.stop() == 0
    older = index_files(server)
    assert len(older) > 2
    server.start()
    for i in range(40, 100):
        server.append(batch(f"b{i}", *[event(k) for k in range(20)]))
    whole = replay_all(server)
    server.kill()
    other = make_server("--generation-bytes", "64KiB", name="other")
    for i in range(100):
        other.append(batch(f"x{i}", *[event(k) for k in range(20)]))
    assert other.stop() == 0
    foreign = index_files(other)
    for change in (older, foreign, {name: None for name in older}):
        for name, content in change.items():
            path = server.data / "index" / name
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
        server.start()
        same_answers(server, whole)
        server.kill()
    assert verify(server.data)["ok"]


def test_L11_what_recovery_decides_it_decides_once(make_server):
    """A cut tail: killed again at once, started again: the same events, and ids that go on above all that were ever told."""
    server = make_server()
    server.append(batch("one", event(1)))
    kept = replay_all(server)
    last = server.append(batch("two", event(2), event(3))).json["last_event_id"]
    server.kill()
    tail = server.data / "journal" / "tail.ndjson"
    raw = tail.read_bytes()
    end = len(raw.rstrip(b"\0"))
    tail.write_bytes(raw[:end - 30] + bytes(len(raw) - end + 30))   # the second group is torn
    for _ in range(3):
        server.start()
        assert replay_all(server) == kept
        server.kill()
    remnants = list((server.data / "remnants").iterdir())
    assert len(remnants) == 1
    server.start()
    assert server.append(batch("two", event(2), event(3))).json["status"] == "committed"
    assert replay_all(server)[0] == kept[0] and len(replay_all(server)) == 3
    assert replay_all(server)[-1]["event_id"] > kept[0]["event_id"]
    assert last > kept[0]["event_id"]
    server.kill()
    assert verify(server.data)["ok"]


def test_L11_a_tail_cut_to_nothing_takes_appends(make_server):
    server = filled(make_server)
    pending = list((server.data / "journal" / "pending").iterdir())
    assert len(pending) > 2
    server.kill()
    (server.data / "journal" / "tail.ndjson").write_bytes(b"")
    server.start()
    whole = replay_all(server)
    assert len(whole) == sum(len(p.read_bytes().splitlines()) for p in pending)
    receipt = server.append(batch("next", event(1))).json
    assert receipt["status"] == "committed" and receipt["first_event_id"] > whole[-1]["event_id"]
    assert server.stop() == 0
    assert verify(server.data)["ok"]


@pytest.mark.parametrize("length", ["0", "2147483647", "4294967295", "18446744073709551615", "99", "-1", "1e9"])
def test_L13_a_length_that_lies(make_server, length):
    """The count of a batch's lines, in a closed generation and in the tail: damage at the batch, told at once and without memory for it."""
    server = filled(make_server, 20)
    assert server.stop() == 0
    tail = server.data / "journal" / "tail.ndjson"
    closed = sorted((server.data / "journal" / "pending").iterdir())[1]
    for path in (tail, closed):
        good = path.read_bytes()
        lines = good.splitlines(keepends=True)
        place = sum(map(len, lines[:20]))                  # the second batch of the file
        bad = lines[20].replace(b'"batch_len":20,', f'"batch_len":{length},'.encode())
        assert bad != lines[20]
        path.write_bytes(b"".join(lines[:20]) + bad + b"".join(lines[21:]))
        report = verify(server.data)
        assert not report["ok"]
        assert report["failure"]["file"].endswith(path.name) and report["failure"]["offset"] == place
        if path == tail:
            server.start()
            assert server.get("/readyz").json["cause"] == "damaged"
            assert f"byte {place}" in server.get("/readyz").json["detail"]
            assert server.append(batch("new")).status == 503
            assert server.stop() == 0
        path.write_bytes(good)
    assert verify(server.data)["ok"]


def test_L46_damage_to_one_file_of_the_index_costs_that_one(make_server):
    """kill -9 and the first summary damaged: one generation is read again at the start, and the others are not."""
    server = filled(make_server, 200)
    whole = replay_all(server)
    assert server.stop() == 0
    generations = len(list((server.data / "journal" / "pending").iterdir()))
    assert generations > 8
    server.start()
    server.kill()
    rebuilt = server.log.count("rebuilding the index")
    first = sorted(path for path in (server.data / "index").iterdir() if path.suffix == ".sum")[0]
    raw = bytearray(first.read_bytes())
    raw[170] ^= 1  # in its front: the filter behind it is looked at when it is asked
    first.write_bytes(raw)
    server.start()
    same_answers(server, whole, 200)
    assert server.log.count("rebuilding the index") == rebuilt + 1
    server.kill()
    server.start()
    wait_ready(server)
    assert server.log.count("rebuilding the index") == rebuilt + 1


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


def test_a_flipped_bit_is_named_by_verify(make_server):
    """crash_rot turns every byte in process; here the program itself is asked, FLIPS times (40; the night: 2000), each on the same
    directory of 1 MiB with one bit of a file of the journal turned."""
    flips, seed = int(os.environ.get("FLIPS", "40")), int(os.environ.get("SEED", "1"))
    chance = random.Random(seed)
    server = filled(make_server, 140)
    assert server.stop() == 0
    journal = server.data / "journal"
    files = {path: path.read_bytes() for path in journal.rglob("*") if path.is_file()}
    assert sum(map(len, files.values())) > 1 << 20
    paths = sorted(path for path in files for _ in range(1 + len(files[path]) // 4096))
    for n in range(flips):
        path = chance.choice(paths)
        at, bit = chance.randrange(len(files[path])), chance.randrange(8)
        bad = bytearray(files[path])
        bad[at] ^= 1 << bit
        path.write_bytes(bad)
        result = tallyman("verify", "--json", "--data", str(server.data))
        path.write_bytes(files[path])
        where = f"SEED={seed}, flip {n}: {path.name} byte {at} bit {bit}"
        if path.name == "manifest.jsonl" and result.returncode in (1, 4):
            continue                                       # a format that it does not know: refused
        assert result.returncode == 3, where
        failure = json.loads(result.stdout)["failure"]
        assert failure["file"].endswith(path.name) and failure["offset"] <= at, where
    assert verify(server.data)["ok"]


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
