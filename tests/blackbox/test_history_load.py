"""The history door under load and misuse: order on one connection, groups that close, reads that race with appends and
rotation, reads that are cut, many at once, and what all of that leaves behind (memory, descriptors, free places)."""
import collections
import concurrent.futures
import json
import os
import random
import re
import select
import signal
import socket
import time

import pytest
from conftest import batch, event, replay_all, verify

NDJSON = {"Accept": "application/x-ndjson"}
REPLAYS_MAX = 56  # on TCP; eight more are kept for the Unix socket
SEED = int(os.environ.get("SEED", "20261130"))


# ---- a client that writes and reads bytes as it likes ----

def request_bytes(method, target, body=b"", headers=()):
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if method == "POST":
        lines += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def post(b):
    return request_bytes("POST", "/v1/events", b if isinstance(b, bytes) else json.dumps(b).encode())


class Wire:
    """One connection; answers are read one by one."""

    def __init__(self, server, timeout=30):
        self.sock = socket.create_connection((server.host, server.port), timeout)
        self.file = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.sock.close()

    def send(self, *requests):
        """Sends everything, while a server that answers meanwhile does not block us: answers stay in the socket."""
        self.sock.sendall(b"".join(requests))

    def head(self):
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline()) != b"\r\n":
            name, value = line.decode().rstrip("\r\n").split(": ", 1)
            assert name.lower() not in headers, "a header is sent twice"
            headers[name.lower()] = value
        return status, headers

    def answer(self, bodyless=False):
        """(status, headers, body)"""
        status, headers = self.head()
        if bodyless:
            return status, headers, b""
        if headers.get("transfer-encoding") != "chunked":
            return status, headers, self.file.read(int(headers["content-length"]))
        body = []
        while (size := int(self.file.readline(), 16)) > 0:
            body.append(self.file.read(size))
            assert self.file.read(2) == b"\r\n"
        assert self.file.read(2) == b"\r\n"
        return status, headers, b"".join(body)

    def json(self):
        status, _, body = self.answer()
        return status, json.loads(body)


KEPT_SOCKETS = 3  # TCP, the Unix socket, and the line to the process that starts children
KEPT_ONCE = re.compile(r"journal/tail\.(ndjson|next)|index/keys-[0-9-]+\.run")


def left_open(server):
    """{what: how often} of the descriptors that should go with the clients: connections, and files of the history that no
    part of the server keeps. The background keeps one of the tail, of the spare and of each sorted run of the index; how
    many runs there are changes for a while after the last append, so the number of all descriptors says nothing."""
    seen = collections.Counter()
    for number in os.listdir(f"/proc/{server.process.pid}/fd"):
        try:
            name = os.readlink(f"/proc/{server.process.pid}/fd/{number}")
        except FileNotFoundError:  # closed meanwhile
            continue
        seen["a socket" if name.startswith("socket:") else name.removeprefix(f"{server.data}/")] += 1
    left = {}
    for name, count in seen.items():
        kept = KEPT_SOCKETS if name == "a socket" else 1 if KEPT_ONCE.fullmatch(name) else 0
        if count > kept and name.startswith(("a socket", "journal/", "index/")):
            left[name] = count - kept
    return left


def memory(server, field="VmRSS"):
    """Bytes of memory the server holds (VmRSS) or has held at most (VmHWM)."""
    text = open(f"/proc/{server.process.pid}/status", encoding="ascii").read()
    return int(re.search(field + r":\s+(\d+)", text).group(1)) << 10


def forget_peak(server):
    with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="ascii") as f:
        f.write("5")


def until_none(what, left, seconds=60):
    """Waits until left() is empty or 0. The pauses grow: what the question itself has begun comes to its end between."""
    end, pause, asked = time.monotonic() + seconds, 0.01, 0
    while found := left():
        asked += 1
        assert time.monotonic() < end, f"{what}: after {seconds} s and {asked} looks still {found}"
        time.sleep(pause)
        pause = min(pause * 1.5, 1)


def sanitized(server):
    code = open(server.binary, "rb").read()
    return b"__asan_init" in code or b"__tsan_init" in code


# ---- order on one connection ----

def large(n, size=200_000):
    """An event whose body goes through a worker."""
    return {**event(n), "payload": {"n": n, "pad": "x" * size}}


def test_nothing_overtakes_a_request_that_is_with_a_worker(server):
    rng = random.Random(SEED)
    sent, want = [], []
    for i in range(120):
        kind = rng.choice(["small", "small", "large", "bad large", "bad", "get", "streams", "again"])
        if kind == "small":
            sent.append(post(batch(f"b{i}", event(i))))
        elif kind == "large":
            sent.append(post(batch(f"b{i}", large(i, rng.randrange(70_000, 400_000)))))
        elif kind == "bad large":
            sent.append(post(json.dumps(batch(f"b{i}", large(i)))[:-1].encode()))
        elif kind == "bad":
            sent.append(post(batch(f"b{i}", {**event(i), "kind": ""})))
        elif kind == "get":
            sent.append(request_bytes("GET", "/v1/events?limit=1&kind=none"))
        elif kind == "streams":
            sent.append(request_bytes("GET", "/v1/streams?limit=1"))
        else:
            sent.append(post(batch("first", event(0))))
        want.append(kind)
    with Wire(server) as wire, concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit(wire.send, *sent)
        committed, first = [], None
        for i, kind in enumerate(want):
            status, body = wire.json()
            if kind in ("small", "large"):
                assert (status, body["status"]) == (200, "committed"), (SEED, i, body)
                committed.append(body["first_event_id"])
            elif kind == "bad large":
                assert (status, body["error"]) == (400, "invalid_request"), (SEED, i, body)
            elif kind == "bad":
                assert (status, body["error"]) == (400, "invalid_events"), (SEED, i, body)
            elif kind == "again":
                assert (status, body["status"]) == (200, "committed" if first is None else "duplicate"), (SEED, i)
                if first is None:
                    first = body["first_event_id"]
                    committed.append(first)
                assert body["first_event_id"] == first
            else:
                # A read sees at least what was answered before it on its connection.
                assert status == 200, (SEED, i, body)
                frontier = body["snapshot_through_event_id"]
                assert not committed or (frontier is not None and frontier >= committed[-1]), (SEED, i)
        done.result(10)
    assert committed == sorted(set(committed)), SEED
    assert [e["event_id"] for e in replay_all(server, 50)] == committed


def test_decisions_within_one_turn(server):
    """Duplicate, conflict and precondition against batches that are staged in the same turn and not yet committed."""
    none = {"stream_precondition": {"stream": "s", "expected_frontier": None}}
    for turn in range(20):
        source = f"src{turn}"
        with Wire(server) as wire:
            wire.send(post(batch("a", event(1), source=source, **none)),
                      post(batch("b", event(2), source=source, **none)),
                      post(batch("a", event(1), source=source, **none)),
                      post(batch("a", event(2), source=source)),
                      post(batch("b", event(3), source=source)),
                      post(batch("b", event(3), source=source, **none)))
            answers = [wire.json() for _ in range(6)]
        (_, first), (_, stale), (_, again), (_, conflict), (_, second), (_, third) = answers
        assert [status for status, _ in answers] == [200, 409, 200, 409, 200, 200]
        assert first["status"] == "committed"
        assert stale["error"] == "stream_frontier_conflict"
        assert stale["expected_frontier"] is None and stale["actual_frontier"] == first["last_event_id"]
        assert again == {**first, "status": "duplicate"}
        assert conflict["error"] == "batch_id_conflict"
        assert conflict["events"] == 1 and conflict["batch_digest"] == first["batch_digest"]
        assert second["status"] == "committed" and third == {**second, "status": "duplicate"}
    assert len(replay_all(server)) == 40


def test_groups_close_at_their_size(make_server):
    """16 MB in flight at once, of bodies that are small enough for the loop thread and of some that are not."""
    server = make_server("--generation-bytes", "1MiB")
    conns, each = 4, 60

    def run(c):
        with Wire(server) as wire, concurrent.futures.ThreadPoolExecutor(1) as pool:
            sizes = [3_000_000 if i == 7 else 62_000 for i in range(each)]
            done = pool.submit(wire.send, *[post(batch(f"{c}-{i}", large(i, n))) for i, n in enumerate(sizes)])
            answers = [wire.json() for _ in sizes]
            done.result(20)
            return answers

    with concurrent.futures.ThreadPoolExecutor(conns) as pool:
        results = list(pool.map(run, range(conns)))
    for answers in results:
        assert [(s, b["status"]) for s, b in answers] == [(200, "committed")] * each
        ids = [b["first_event_id"] for _, b in answers]
        assert ids == sorted(set(ids))
    *events, page = server.get("/v1/events?limit=100000", headers=NDJSON).lines
    assert [e["event_id"] for e in events] == sorted(b["first_event_id"] for r in results for _, b in r)
    assert server.metric("tallyman_journal_syncs_total") < conns * each
    assert verify(server.data)["ok"]


# ---- reads that race ----

def test_reads_race_with_appends_and_rotation(make_server):
    """Every page is a coherent piece of the one history that there is in the end."""
    server = make_server("--generation-bytes", "64KiB")
    ends = time.monotonic() + 4
    pages, receipts = [], []

    def write(w):
        n = 0
        while time.monotonic() < ends:
            events = [event(k, stream=f"s{w}", key=f"k{n % 3}") for k in range(1 + n % 40)]
            answer = server.append(batch(f"{w}-{n}", *events, source=f"src{w}"))
            assert answer.status == 200, answer.body
            receipts.append(answer.json)
            n += 1

    def read(r):
        rng = random.Random(SEED + r)
        after = None
        while time.monotonic() < ends:
            filters = rng.choice(["", "&source=src1", "&stream=s0", "&record_key=k2", "&source=none"])
            query = f"/v1/events?limit={rng.choice([1, 10, 1000])}{filters}" + (f"&after={after}" if after else "")
            answer = server.get(query, headers=rng.choice([{}, NDJSON]))
            assert answer.status == 200, answer.body
            if answer.headers["content-type"] == "application/json":
                page = answer.json
            else:
                *events, page = answer.lines
                page["events"] = events
            pages.append((after, filters, page))
            after = rng.choice([None, page["next_after"]])

    def streams(_):
        while time.monotonic() < ends:
            page = server.get("/v1/streams").json
            pages.append((None, "streams", page))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(write, w) for w in range(3)] + [pool.submit(read, r) for r in range(4)]
        jobs.append(pool.submit(streams, 0))
        for job in jobs:
            job.result(60)

    everything = replay_all(server)
    place = {e["event_id"]: i for i, e in enumerate(everything)}
    assert len(everything) == sum(r["events"] for r in receipts)
    assert len(list((server.data / "journal" / "pending").iterdir())) > 5
    kept = [("source", "src1"), ("stream", "s0"), ("record_key", "k2"), ("source", "none")]
    for after, filters, page in pages:
        through = page["snapshot_through_event_id"]
        seen = 0 if through is None else place[through] + 1
        if filters == "streams":
            counts = collections.Counter((e["source"], e["stream"]) for e in everything[:seen])
            assert {(r["source"], r["stream"]): r["event_count"] for r in page["streams"]} == dict(counts)
            continue
        assert page["snapshot"]["frontier_event_count"] == seen
        name, value = next(((n, v) for n, v in kept if filters == f"&{n}={v}"), (None, None))
        start = 0 if after is None else place[after] + 1
        matching = [e for e in everything[start:seen] if name is None or e[name] == value]
        got = page["events"]
        assert got == matching[:len(got)], (SEED, filters)
        if page["next_after"] == through:
            assert len(got) == len(matching) or (got and got[-1]["event_id"] == through)
        else:
            assert got and page["next_after"] == got[-1]["event_id"]
    assert len(pages) > 100
    assert verify(server.data)["ok"]


# ---- long reads ----

@pytest.fixture
def long_log(make_server):
    """40 events of 1 MiB a line."""
    server = make_server("--generation-bytes", "4MiB", "--grace-ms", "3s")
    for i in range(40):
        answer = server.append(batch(f"b{i}", large(i, 1 << 20)))
        assert answer.status == 200, answer.body
    return server


def test_lines_of_a_mebibyte_in_pages_and_in_one_piece(long_log):
    ids, after = [], ""
    while True:
        answer = long_log.get(f"/v1/events?limit=1000{after}")
        page = answer.json
        assert len(answer.body) < (8 << 20) + (2 << 20)
        ids += [e["event_id"] for e in page["events"]]
        if page["next_after"] == page["snapshot_through_event_id"]:
            break
        assert page["events"] and page["next_after"] == page["last_event_id"]
        after = f"&after={page['next_after']}"
    forget_peak(long_log)
    before = memory(long_log)
    *events, page = long_log.get("/v1/events", headers=NDJSON).lines
    assert [e["event_id"] for e in events] == ids
    assert [e["payload"]["n"] for e in events] == list(range(40))
    if not sanitized(long_log):
        # 40 MiB went through one piece and one line at a time.
        assert memory(long_log, "VmHWM") - before < 16 << 20


def test_a_match_behind_a_long_search(long_log):
    """Worker threads are given back while nothing matches; what is sent meanwhile is white space."""
    answer = long_log.get("/v1/events?record_key=k39")
    assert [e["payload"]["n"] for e in answer.json["events"]] == [39]
    answer = long_log.get("/v1/events?record_key=k39", headers=NDJSON)
    event_line, page = answer.lines
    assert event_line["record_key"] == "k39" and page["type"] == "page"
    assert answer.body.count(b"\n") == 2
    nothing = long_log.get("/v1/events?record_key=none").json
    assert nothing["events"] == [] and nothing["next_after"] == nothing["snapshot_through_event_id"]
    told = long_log.cli("replay", "--record-key", "k39", check=0)
    assert told.stdout.startswith("{") and json.loads(told.stdout)["record_key"] == "k39"
    # Searches whose clients have gone end soon: their places are free again.
    for _ in range(REPLAYS_MAX):
        with Wire(long_log) as wire:
            wire.send(request_bytes("GET", "/v1/events?record_key=none"))
    assert long_log.append(batch("beside", large(1))).status == 200
    until_none("places that replays hold", lambda: refused_replays(long_log))


def open_replays(server, count):
    """Replays that do not end, since nobody reads them and they do not fit into the kernel's buffers:
    [((status, headers), wire)]."""
    wires = []
    for _ in range(count):
        wire = Wire(server)
        wire.send(request_bytes("GET", "/v1/events", headers=["Accept: application/x-ndjson"]))
        wires.append(wire)
    return [(wire.head(), wire) for wire in wires]


def refused_replays(server):
    """How many of as many replays as there are places found none. A replay whose client has gone leaves its place when the
    piece that is being read is done: those of this call, too."""
    opened = open_replays(server, REPLAYS_MAX)
    for _, wire in opened:
        wire.close()
    return collections.Counter(head[0] for head, _ in opened if head[0] != 200)


def test_too_many_replays_at_once(long_log):
    opened = open_replays(long_log, REPLAYS_MAX + 16)
    refused = [head for head, _ in opened if head[0] != 200]
    assert len(refused) == 16
    assert {(status, headers["retry-after"]) for status, headers in refused} == {(429, "1")}
    for target in ("/v1/events?limit=1", "/v1/streams"):
        assert long_log.get(target).json["error"] == "overloaded"
    # What is wrong with a request is said before how full the server is.
    assert long_log.get("/v1/events?limit=0").json["error"] == "invalid_replay_request"
    assert long_log.get("/v1/streams?x=1").json["error"] == "invalid_request"
    assert long_log.append(batch("beside", event(1))).status == 200
    for _, wire in opened:
        wire.close()
    until_none("descriptors", lambda: left_open(long_log))
    until_none("places that replays hold", lambda: refused_replays(long_log))


def test_replays_cut_by_the_client(long_log):
    rng = random.Random(SEED)
    for i in range(150):
        wire = Wire(long_log)
        target = rng.choice(["/v1/events", "/v1/events?kind=none", "/v1/events?limit=7", "/v1/streams"])
        wire.send(request_bytes("GET", target, headers=["Accept: application/x-ndjson"] * (i % 2)))
        for _ in range(rng.randrange(4)):
            if not select.select([wire.sock], [], [], 0.01)[0] or not wire.sock.recv(100_000):
                break
        if i % 3 == 0:  # a reset instead of an end
            wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wire.close()
    until_none("descriptors", lambda: left_open(long_log))
    until_none("places that replays hold", lambda: refused_replays(long_log))


def test_appends_whose_clients_have_gone(make_server):
    """Cut in the body: nothing is stored. Cut behind it: it runs to its end, and a repeat gets its receipt."""
    server = make_server()
    rng = random.Random(SEED)
    bodies = [json.dumps(batch(f"b{i}", large(i, rng.choice([10, 300_000, 2_000_000])))).encode() for i in range(80)]
    whole = set()

    def send(i):
        data = post(bodies[i])
        cut = rng.randrange(len(data)) if i % 2 else len(data)
        with Wire(server) as wire:
            wire.send(data[:cut])
            if i % 4 == 0:  # seen by the server before the client goes
                assert wire.answer()[0] == 200
                whole.add(i)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(len(bodies))))
    until_none("descriptors", lambda: left_open(server))
    until_none("bytes of bodies", lambda: server.metric("tallyman_http_body_bytes_in_flight"))
    stored = {e["payload"]["n"] for e in server.get("/v1/events", headers=NDJSON).lines[:-1]}
    assert whole <= stored <= {i for i in range(len(bodies)) if i % 2 == 0}
    statuses = [server.append(body).json["status"] for body in bodies]
    assert [s == "duplicate" for s in statuses] == [i in stored for i in range(len(bodies))]
    assert len(server.get("/v1/events", headers=NDJSON).lines) == len(bodies) + 1


def test_stop_during_long_replays(long_log):
    opened = open_replays(long_log, 20)
    reader = Wire(long_log)
    reader.send(request_bytes("GET", "/v1/events", headers=["Accept: application/x-ndjson"]))
    assert reader.head()[0] == 200
    started = time.monotonic()
    long_log.process.send_signal(signal.SIGTERM)
    # One is read to its end and is whole; the others are cut when the grace is over.
    body = []
    while (size := int(reader.file.readline(), 16)) > 0:
        body.append(reader.file.read(size))
        reader.file.read(2)
    *events, page = [json.loads(line) for line in b"".join(body).splitlines()]
    assert page["type"] == "page" and len(events) == 40
    reader.close()
    assert long_log.stop() == 0
    assert time.monotonic() - started < 10
    for _, wire in opened:
        rest = wire.file.read()
        assert not rest.endswith(b"0\r\n\r\n")  # nobody can take it for a whole answer
        wire.close()
    report = verify(long_log.data)
    assert report["ok"] and report["remnants"] == [] and report["orphans"] == []


# ---- small print ----

TARGETS = ["/v1/events", "/v1/events?limit=3", "/v1/events?limit=0", "/v1/events?x=1", "/v1/events?follow=maybe",
           "/v1/streams", "/v1/streams?limit=0", "/healthz", "/readyz", "/metrics", "/nowhere", "/"]


def test_head_is_get_without_the_body(server):
    for i in range(10):
        server.append(batch(f"b{i}", event(i)))
    for accept in ([], ["Accept: application/x-ndjson"], ["Accept:"]):
        with Wire(server) as wire:
            for target in TARGETS:
                wire.send(request_bytes("GET", target, headers=accept))
                status, headers, _ = wire.answer()
                wire.send(request_bytes("HEAD", target, headers=accept))
                head_status, head_headers, _ = wire.answer(bodyless=True)
                assert head_status == status, target
                for h in (headers, head_headers):
                    h.pop("date")
                assert "transfer-encoding" not in head_headers
                if target == "/metrics":  # its length moves with its numbers
                    headers.pop("content-length"), head_headers.pop("content-length")
                headers.pop("transfer-encoding", None)
                assert head_headers == headers, target
            # Nothing but heads was sent: the connection is still in step.
            wire.send(request_bytes("GET", "/healthz"))
            assert wire.json() == (200, {"status": "alive"})


@pytest.mark.parametrize("query, status, code", [
    ("", 200, None), ("&", 200, None), ("&&limit=5&", 200, None), ("limit=5&&source=a", 200, None),
    ("source=" + "a" * 15000, 200, None), ("record_key=" + "%61" * 1024, 200, None),
    ("record_key=" + "a" * 1025, 400, "invalid_replay_request"), ("kind=" + "%22%5c%01" * 300, 200, None),
    ("source=", 200, None), ("kind", 200, None), ("=", 400, "invalid_request"), ("=a", 400, "invalid_request"),
    ("limit=00005", 400, "invalid_replay_request"), ("limit=%35", 200, None),
    ("limit=+5", 400, "invalid_replay_request"),
    ("limit=5%00", 400, "invalid_replay_request"), ("LIMIT=5", 400, "invalid_request"), ("limit=99999", 200, None),
    ("limit=18446744073709551617", 400, "invalid_replay_request"),
    ("follow=false&follow=false", 400, "invalid_request"),
    ("after=", 400, "invalid_replay_request"),
    ("after=01900000-0000-7000-8000-000000000000%20", 400, "invalid_replay_request"),
    ("last=1", 400, "invalid_request"), ("source=%F0%9F%98%80&stream=%C3%BC", 200, None), ("%", 400, "invalid_request"),
    ("&".join(f"source{i}=x" for i in range(500)), 400, "invalid_request"), ("follow", 400, "invalid_replay_request"),
    ("limit=5;source=a", 400, "invalid_replay_request"),
])
def test_odd_queries(server, query, status, code):
    server.append(batch("b", event(1), event(2)))
    for method in ("GET", "HEAD"):
        with Wire(server) as wire:
            wire.send(request_bytes(method, "/v1/events?" + query), request_bytes("GET", "/healthz"))
            got, _, body = wire.answer(bodyless=method == "HEAD")
            assert got == status
            if method == "GET" and code is not None:
                assert json.loads(body)["error"] == code
            assert wire.json()[0] == 200


def test_error_bodies_are_json_whatever_was_sent(server):
    """A list of bad events that was begun is not left in the answer of another code; long names are cut whole."""
    smile = "\U0001f600"
    cases = [
        (batch("b", {}, event(1), {}, stream_precondition={"stream": "t", "expected_frontier": None}), "invalid_batch"),
        (batch("b", *[{}] * 10001), "body_too_large"),
        ({**batch("b"), smile * 50: 1}, "invalid_request"),
        ({**batch("b"), "x" + smile * 50: 1}, "invalid_request"),
        ({smile * 60: {smile * 60: ["\\"]}, "\"": 1}, "invalid_request"),
        (batch("b", *[{"\x01\"\\": 1}] * 150), "invalid_events"),
    ]
    for value, code in cases:
        for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
            for pad in (0, 70_000):  # on the loop thread, and on a worker
                answer = server.append(text + " " * pad)
                assert answer.json["error"] == code, (answer.body[:300])
                assert answer.body.decode().isprintable()
    for text in ('{"%s":{"%s":9007199254740993}}' % ((smile * 20 + "x" * i,) * 2) for i in range(30)):
        assert server.append(text).json["error"] == "invalid_request"


def test_numbers_that_grow(server):
    """`1e20` becomes 21 digits: the second try of a worker has the room, and replay gives the canonical form."""
    body = '{"batch_id":"b%d","source":"s","events":[{"stream":"s","record_key":"k","kind":"u","payload":[0%s]}]}'
    for i, count in enumerate((10, 12_000, 14_000, 200_000)):
        text = body % (i, ",1e20" * count)
        first = server.append(text)
        assert first.status == 200, (count, first.body)
        assert server.append(text).json == {**first.json, "status": "duplicate"}
    payloads = [e["payload"] for e in replay_all(server)]
    assert [len(p) - 1 for p in payloads] == [10, 12_000, 14_000, 200_000]
    assert {v for p in payloads for v in p[1:]} == {10 ** 20}


# ---- what is left behind ----

def test_memory_and_descriptors_stay_flat(server):
    """Tens of thousands of requests of every kind leave nothing behind."""
    round_of = [post(batch("same", event(1), event(2))), post(batch("same", event(3))), post(b"{"),
                post(batch("bad", {})), request_bytes("GET", "/v1/events"), request_bytes("GET", "/v1/events?limit=0"),
                request_bytes("GET", "/v1/streams"), request_bytes("HEAD", "/v1/events"),
                request_bytes("GET", "/nowhere"),
                post(batch("same", event(1), event(2), stream_precondition={"stream": "s", "expected_frontier": None}))]
    heads = [b"HEAD" in r[:4] for r in round_of]

    def run(rounds):
        with Wire(server) as wire:
            for _ in range(rounds):
                wire.send(*round_of)
                for head in heads:
                    wire.answer(bodyless=head)

    def all_at_once(rounds):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(run, [rounds] * 4))

    all_at_once(200)
    before = memory(server)
    rounds, answered = int(os.environ.get("LOAD_ROUNDS", "1500")), server.metric("tallyman_http_requests_total")
    all_at_once(rounds)
    assert server.metric("tallyman_http_requests_total") - answered >= 4 * rounds * len(round_of)
    until_none("descriptors", lambda: left_open(server))
    if not sanitized(server):
        assert memory(server) - before < 2 << 20
    assert len(replay_all(server)) == 2
