"""Directories of the format's first program open here, and ours, cleanly closed, satisfy every rule that it asks for."""
import os
import random

import pytest
from conftest import batch, event, replay_all, tallyman, verify
from groundhog_dir import Broken, Ids, check, head_of, lines, make

SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))


def generations(chance, files):
    """Lists of batches, of 1 to 9 events, sources and streams mixed; the first of a file has at least two."""
    out, n = [], 0
    for _ in range(files):
        batches = []
        for i in range(chance.randrange(3, 8)):
            more = {"occurred_at": "2025-12-31T23:59:59.5Z"} if chance.random() < .3 else {}
            batches.append(batch(f"b{n}", *[event(k, stream=f"s{chance.randrange(3)}", payload={"n": k, "t": "ä\n\"€" * k}, **more)
                                            for k in range(chance.randrange(1 if i else 2, 10))], source=f"src{chance.randrange(3)}"))
            n += 1
        out.append(batches)
    return out


@pytest.fixture
def foreign(make_server, request):
    """A stopped server whose directory another program has written: (server, journal directory, events, batches)."""
    print(f"SEED={SEED}")
    chance = random.Random(f"{SEED} {request.node.name}")
    server = make_server(start=False)
    log = server.data / "journal"
    parts = generations(chance, 4)
    server.data.mkdir(mode=0o700)
    events = make(log, parts, chance)
    assert [e["event_id"] for e in check(log)] == [e["event_id"] for e in events]
    return server, log, events, [b for part in parts for b in part]


def stored(events):
    return [{k: v for k, v in e.items() if k not in ("batch_digest", "batch_len")} for e in events]


def test_it_opens_replays_and_takes_appends(foreign):
    server, log, events, batches = foreign
    report = verify(server.data)
    assert report["ok"] and report["events_checked"] == len(events) and report["chain_head"] == head_of(events), report
    assert report["remnants"] == [] and report["orphans"] == []
    server.start()
    assert replay_all(server) == stored(events)
    assert server.get("/v1/events?limit=1").json["snapshot"]["chain_head"] == head_of(events)
    for b in batches:
        assert server.append(b).json["status"] == "duplicate"
    receipt = server.append(batch("mine", event(1), event(2), source="src0")).json
    assert receipt["first_event_id"] > events[-1]["event_id"]
    told = server.request("POST", "/v1/sources/retire", b'{"source":"src0"}').json
    assert told["final_frontier"] == receipt["last_event_id"]
    for _ in range(2):
        assert server.stop() == 0
        assert verify(server.data)["ok"]
        assert stored(check(log)) == replay_all(server.start())
    assert server.append(batches[0]).json["status"] == "duplicate"


@pytest.mark.parametrize("cut", [1, 20, 400, -1, -2, -60])
def test_a_torn_last_batch_is_set_aside(foreign, cut):
    """The spec's rule: what is left of the batch that was being written is a remnant, and everything before it is there."""
    server, log, events, batches = foreign
    tail = log / "tail.ndjson"
    whole = tail.read_bytes()
    count = len(batches[-1]["events"])
    kept = b"".join(whole.splitlines(keepends=True)[:-count])
    torn = whole[:len(kept) + cut] if cut > 0 else whole[:cut]
    tail.write_bytes(torn)
    report = verify(server.data)
    assert report["ok"] and report["remnants"] == [f"journal/tail.ndjson@{len(kept)}"], report
    assert tail.read_bytes() == torn  # verify repairs nothing
    server.start()
    assert server.get("/readyz").status == 200
    assert replay_all(server) == stored(events[:-count])
    assert [p.read_bytes() for p in (server.data / "remnants").iterdir()] == [torn[len(kept):]]
    assert server.append(batches[-1]).json["status"] == "committed"
    assert server.stop() == 0
    assert verify(server.data)["ok"] and len(check(log)) == len(events)


def wrong_digest(raw):
    """The last batch whole, with another digest in all of its lines."""
    lines = raw.splitlines(keepends=True)
    digest = lines[-1][17:81]
    return raw.replace(digest, digest[::-1])


@pytest.mark.parametrize("change", [
    wrong_digest,
    lambda raw: raw.replace(b'"kind":"upserted"', b'"kind":"upsertee"', 1),
    lambda raw: raw[:-40] + b"X" + raw[-39:],
    lambda raw: raw + b"garbage",
    lambda raw: raw + b"\n",
    lambda raw: raw.split(b"\n", 1)[1],
    lambda raw: raw[:-1] + b"\r",
], ids=["digest", "hash", "last batch", "garbage", "blank", "first line gone", "line end"])
def test_what_is_malformed_is_corruption(foreign, change):
    """Nothing is repaired or accepted: what is proven is served, and nothing is taken."""
    server, log, events, _ = foreign
    tail = log / "tail.ndjson"
    changed = change(tail.read_bytes())
    assert changed != tail.read_bytes()
    tail.write_bytes(changed)
    with pytest.raises((Broken, ValueError, KeyError)):
        check(log)
    assert not verify(server.data)["ok"]
    server.start()
    ready = server.get("/readyz")
    assert ready.status == 503 and ready.json["cause"] == "damaged"
    served = replay_all(server)
    assert served == stored(events)[:len(served)]
    assert server.append(batch("new")).status == 503
    assert server.stop() == 0
    assert tail.read_bytes() == changed


def test_an_empty_one_and_a_lone_torn_first_batch(make_server):
    chance = random.Random(SEED)
    for name, keep in (("empty", 0), ("torn", 300)):
        server = make_server(name=name, start=False)
        server.data.mkdir(mode=0o700)
        make(server.data / "journal", [[batch("first", event(1), event(2))]], chance)
        tail = server.data / "journal" / "tail.ndjson"
        tail.write_bytes(tail.read_bytes()[:keep])
        assert verify(server.data)["ok"]
        server.start()
        assert replay_all(server) == []
        assert server.append(batch("first", event(1), event(2))).json["status"] == "committed"
        assert server.stop() == 0
        assert len(check(server.data / "journal")) == 2


def test_ours_closed_satisfies_every_rule_and_goes_back_and_forth(make_server):
    """Ours, with generations, a retirement and a successor; the other program goes on behind it, dies, and we go on again."""
    server = make_server("--generation-bytes", "64KiB")
    for i in range(40):
        server.append(batch(f"b{i}", *[event(k, payload={"t": "x" * 200, "i": i, "ö": None}) for k in range(1 + i % 30)]))
    final = server.append(batch("last", event(1), source="old")).json["last_event_id"]
    assert server.request("POST", "/v1/sources/retire", b'{"source":"old"}').json["final_frontier"] == final
    server.append(batch("s", {"stream": "groundhog.source_lineage", "record_key": "old", "kind": "source_succeeded", "payload": {
        "v": 1, "predecessor_source": "old", "predecessor_final_frontier": final}}, event(1), source="new"))
    whole = replay_all(server)
    assert server.stop() == 0
    log = server.data / "journal"
    assert len(list((log / "pending").iterdir())) >= 2
    events = check(log)
    assert stored(events) == whole
    assert verify(server.data)["chain_head"] == head_of(events)
    # Of a server that was killed it is not: that is what a clean close is for.
    server.start()
    server.append(batch("more", event(1)))
    server.kill()
    with pytest.raises(Broken):
        check(log)
    server.start()
    assert server.stop() == 0
    events = check(log)
    # The other program appends two batches, and dies in a third.
    ids = Ids(random.Random(SEED))
    ids.ms = now = int(events[-1]["event_id"].replace("-", "")[:12], 16)
    text = b"".join(lines(batch(f"g{i}", event(1), event(2), source="theirs"), ids, now + i)[0] for i in range(3))
    tail = log / "tail.ndjson"
    tail.write_bytes(tail.read_bytes() + text[:-100])
    report = verify(server.data)
    assert report["ok"] and len(report["remnants"]) == 1, report
    server.start()
    got = replay_all(server)
    assert [e["batch_id"] for e in got[len(events):]] == ["g0", "g0", "g1", "g1"]
    assert server.append(batch("end", event(1))).json["status"] == "committed"
    assert server.stop() == 0
    assert len(check(log)) == len(events) + 5
    assert tallyman("verify", "--data", str(server.data)).returncode == 0

