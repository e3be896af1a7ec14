"""Following the history (spec/history.md section 8 "Follow", cases L26, L28, L29, L50), as NDJSON and as server-sent events."""
import json
import os
import pathlib
import random
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import types

import pytest
from conftest import BINARY, ROOT, Server, batch, event, free_port, replay_all
from follower import Follower
from world import SANITIZED, SMALL, World

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
BOTH = pytest.mark.parametrize("sse", [False, True], ids=["ndjson", "sse"])
UNKNOWN = "ffffffff-ffff-7fff-bfff-ffffffffffff"


def wait(condition, timeout=30):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def append(server, name, *events, **more):
    answer = server.append(batch(name, *events, **more))
    assert answer.status == 200, answer.body
    return answer.json


@pytest.fixture(scope="module", autouse=True)
def silence():
    """A server on which little happens for as long as this module runs, with followers that wait for a sign of life."""
    base = ROOT / "build" / "tmp"
    base.mkdir(parents=True, exist_ok=True)
    place = tempfile.mkdtemp(prefix="t-", dir=base)
    quiet = Silence(Server(pathlib.Path(place) / "data", env={"TALLYMAN_ENGINE": "off"}).start())
    yield quiet
    quiet.thread.join(90)
    quiet.server.stop()
    shutil.rmtree(place, ignore_errors=True)


class Silence:
    def __init__(self, server):
        self.server = server
        self.first = append(server, "one", event(1), source="a")["last_event_id"]
        self.records, self.frames, self.unfiltered = (Follower(server, timeout=60, source="b"),
                                                      Follower(server, timeout=60, sse=True, source="b"),
                                                      Follower(server, timeout=60, sse=True))
        for f in (self.records, self.frames, self.unfiltered):
            f.until_caught_up()
        self.start = time.monotonic()
        self.second = append(server, "two", event(2), source="a")["last_event_id"]
        self.failure = None
        self.thread = threading.Thread(target=self.wait)
        self.thread.start()

    def wait(self):
        try:
            self.records.until(lambda f: len(f.records) == 3)
            self.moved_s = time.monotonic() - self.start
            self.frames.until(lambda f: f.cursor == self.second)
            self.unfiltered.until(lambda f: f.comments == 1)
            self.comment_s = time.monotonic() - self.start
        except BaseException as failure:
            self.failure = failure


# ---- the form ----

def test_headers_and_an_empty_history(server):
    f = Follower(server).until_caught_up()
    assert f.status == 200
    assert f.headers["content-type"] == "application/x-ndjson"
    assert f.headers["cache-control"] == "no-store"
    assert f.headers["connection"] == "close"
    assert f.headers["transfer-encoding"] == "chunked"
    genesis = server.get("/v1/events").json["snapshot"]
    assert f.records == [
        {"type": "events", "phase": "snapshot", "events": [], "next_after": None, "snapshot_through_event_id": None},
        {"type": "caught_up", "next_after": None, "snapshot_through_event_id": None, "snapshot": genesis}]
    sse = Follower(server, sse=True).until_caught_up()
    assert sse.headers["content-type"] == "text/event-stream"
    assert sse.headers["x-accel-buffering"] == "no"
    assert sse.headers["cache-control"] == "no-store"
    assert [frame.get("event") for frame in sse.frames] == ["caught_up"]
    receipt = append(server, "one", event(1), event(2))
    for one in (f, sse):
        one.until(lambda x: len(x.events) == 2)
        assert one.ids == [receipt["first_event_id"], receipt["last_event_id"]]
        assert one.cursor == receipt["last_event_id"]
    assert f.records[2]["next_after"] == f.records[2]["snapshot_through_event_id"] == receipt["last_event_id"]


def test_head_has_the_headers_and_follows_nothing(server):
    head = server.request("HEAD", "/v1/events?follow=true")
    assert head.status == 200 and head.body == b""
    assert head.headers["content-type"] == "application/x-ndjson"
    assert head.headers["cache-control"] == "no-store" and head.headers["connection"] == "close"
    assert "transfer-encoding" not in head.headers
    sse = server.request("HEAD", "/v1/events?follow=true", headers={"Accept": "text/event-stream"})
    assert sse.headers["content-type"] == "text/event-stream" and sse.headers["x-accel-buffering"] == "no"
    bad = server.request("HEAD", "/v1/events?follow=true&after=x")
    assert bad.status == 400 and bad.body == b""
    assert server.metric("tallyman_history_followers") == 0


def test_bad_queries_and_headers(server):
    for query, code in (("follow=maybe", "invalid_replay_request"), ("follow=true&after=1", "invalid_replay_request"),
                        ("follow=true&limit=0", "invalid_replay_request"), ("follow=true&follow=true", "invalid_request"),
                        ("follow=true&x=1", "invalid_request"), ("follow=true&last=1", "invalid_request")):
        answer = server.get(f"/v1/events?{query}")
        assert answer.status == 400 and answer.json["error"] == code, query
        assert answer.headers["content-type"] == "application/json"
    answer = server.get("/v1/events?follow=true&last=1", unix=True)
    assert answer.status == 400 and answer.json["error"] == "invalid_replay_request"
    for value in ("7", "last", UNKNOWN.upper(), UNKNOWN[:-1], UNKNOWN + ", " + UNKNOWN, ""):  # L50: named
        answer = server.get("/v1/events?follow=true", headers={"Accept": "text/event-stream", "Last-Event-ID": value})
        assert answer.status == 400 and answer.json["error"] == "invalid_replay_request", value
        assert "Last-Event-ID" in answer.json["message"]


def test_last_event_id_wins_over_after(server):
    first = append(server, "one", event(1))["last_event_id"]
    second = append(server, "two", event(2))["last_event_id"]
    f = Follower(server, sse=True, after=first, last_event_id=second).until_caught_up()
    assert f.ids == []
    assert Follower(server, after=first, last_event_id=second).until_caught_up().ids == [second]  # NDJSON has no such header


@BOTH
def test_filters_and_limit(server, sse):
    for n in range(10):
        append(server, f"a{n}", event(n, stream="x"), event(n, stream="y", kind="deleted"), source="a")
        append(server, f"b{n}", event(n, stream="x", key="k"), source="b")
    everything = replay_all(server)
    filters = [{"source": "b"}, {"stream": "y"}, {"kind": "deleted"}, {"record_key": "k"}, {"source": "a", "stream": "x"}, {},
               {"source": "none"}]
    followers = [(f, Follower(server, sse=sse, limit=3, **f).until_caught_up()) for f in filters]
    live = [append(server, "c", event(11, stream="x"), event(12, stream="y", kind="deleted"), source="a"),
            append(server, "d", event(13, stream="x", key="k"), source="b")]
    everything = replay_all(server)
    for filters, f in followers:
        want = [e for e in everything if all(e[name] == value for name, value in filters.items())]
        f.until(lambda x, n=len(want): len(x.events) == n)
        assert f.events == want
        assert all(len(r["events"]) <= 3 for r in f.records if r["type"] == "events")
    assert live[-1]["last_event_id"] == everything[-1]["event_id"]


@BOTH
def test_payloads_with_every_kind_of_line_end(server, sse):
    """L50: one line a frame, whatever is in the payload."""
    text = "a\nb\rc\r\nd\u2028e\u2029f\u0085g\x0b\x0c\"\\"
    append(server, "one", event(1, key="\n\r\n", kind="x\ny") | {"payload": {"t": text, "data: x\n\n": None}})
    f = Follower(server, sse=sse).until_caught_up()
    append(server, "two", event(1) | {"payload": text})
    f.until(lambda x: len(x.events) == 2)
    assert [e["payload"] for e in f.events] == [{"t": text, "data: x\n\n": None}, text]


# ---- cursors ----

@BOTH
def test_L29_a_cursor_at_or_past_the_end_gets_nothing_again(server, sse):
    ids = [append(server, f"b{n}", event(n))["last_event_id"] for n in range(18)]
    at_17 = Follower(server, sse=sse, after=ids[16]).until_caught_up()
    at_18 = Follower(server, sse=sse, after=ids[17]).until_caught_up()
    past = Follower(server, sse=sse, after=UNKNOWN).until_caught_up()
    assert at_17.ids == [ids[17]] and at_18.ids == [] and past.ids == []
    assert past.caught_up["next_after"] == UNKNOWN and past.caught_up["snapshot_through_event_id"] == ids[17]
    new = append(server, "new", event(99))["last_event_id"]
    at_17.until(lambda x: x.ids == [ids[17], new])
    at_18.until(lambda x: x.ids == [new])
    at_18.close()
    again = Follower(server, sse=sse, after=new).until_caught_up()
    assert again.ids == [] and past.ids == []


# ---- under load ----

class Load:
    """Appends until told to stop; the ids of what was acknowledged, in order, are in acked."""

    def __init__(self, server, events=5, size=200, threads=2, pause=0.0):
        self.server, self.events, self.size, self.pause = server, events, size, pause
        self.stop = threading.Event()
        self.ranges = []
        self.slowest_s = 0.0
        self.failures = []
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, index):
        conn = self.server.connection()
        try:
            for n in range(1000000):
                if self.stop.is_set():
                    break
                body = json.dumps(batch(f"load{index}-{n}", *[event(i) | {"payload": "x" * self.size} for i in range(self.events)],
                                        source=f"s{index}"))
                start = time.monotonic()
                conn.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
                answer = conn.getresponse()
                receipt = json.loads(answer.read())
                assert answer.status == 200, receipt
                self.slowest_s = max(self.slowest_s, time.monotonic() - start)
                self.ranges.append((receipt["first_event_id"], receipt["last_event_id"], receipt["events"]))
                time.sleep(self.pause)
        except BaseException as failure:  # told by the main thread
            self.failures.append(failure)
        conn.close()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        if self.failures:
            raise self.failures[0]
        return max(last for _, last, _ in self.ranges)


def test_L26_no_gap_and_no_double_from_the_files_to_the_ring(make_server):
    """Followers that begin, end and go on at any moment under load, over many rotations, see what a replay sees."""
    print(f"SEED={SEED}")
    rng = random.Random(SEED)
    server = make_server(*SMALL)
    append(server, "before", *[event(i) for i in range(1000)])
    load = Load(server, size=400)
    failures, done = [], []
    over = threading.Event()  # not load.stop: until its last answers are here, more is to come

    def run(index, seed):
        mine = random.Random(seed)
        events, cursor = [], None
        filters = [{}, {}, {"source": "s0"}, {"source": "s1"}, {"record_key": "k3"}][index % 5]
        try:
            while True:
                ended = over.is_set()
                f = Follower(server, sse=index % 2 == 1, limit=mine.choice([1, 7, 100, 100000]), unix=mine.random() < 0.5,
                             **filters, **({"after": cursor} if cursor else {}))
                if ended:
                    f.until_caught_up()
                else:
                    want = mine.randrange(400)
                    f.until(lambda x: len(x.events) >= want or over.is_set() and x.caught_up)
                assert all(a["event_id"] < b["event_id"] for a, b in zip(events[-1:], f.events))
                events += f.events
                cursor = f.cursor
                f.close()
                if ended:
                    done.append((filters, events))
                    return
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(i, rng.getrandbits(64))) for i in range(10)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    wait(lambda: len(load.ranges) > 200, 60)
    last = load.end()
    over.set()
    append(server, "wake", event(1), source="s0")  # whoever waits sees that it is over
    append(server, "wake", event(3), source="s1")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures, failures[0]
    everything = replay_all(server, limit=100000)
    assert len(everything) > 1500
    for filters, events in done:
        want = [e for e in everything if all(e[name] == value for name, value in filters.items())]
        assert events == want[:len(events)] and [e for e in want[len(events):] if e["event_id"] <= last] == []
    assert len(done) == 10
    assert server.metric("tallyman_history_follow_reads_total") > 10


def test_L28_a_slow_follower_is_served_from_the_files_and_slows_nobody(make_server):
    """Its client takes nothing for longer than write_stall_ms during a burst, then everything, once."""
    server = make_server("--generation-bytes", "1MiB", "--write-stall-ms", "500")
    slow = [Follower(server, rcvbuf=4096, timeout=60), Follower(server, sse=True, rcvbuf=4096, timeout=60),
            Follower(server, unix=True, timeout=60)]
    quick = Follower(server, timeout=60).until_caught_up()
    for n in range(50):
        append(server, f"b{n}", *[event(i) | {"payload": f"{n} {i} " + "x" * 200} for i in range(500)])
        quick.until(lambda x, n=n: len(x.events) >= 500 * (n + 1))
    stall = time.monotonic() + 1.5
    while time.monotonic() < stall:  # the server's looks at its time-outs are 0.2 s apart
        append(server, f"c{stall - time.monotonic()}", event(1))
    everything = [e["event_id"] for e in replay_all(server, limit=100000)]
    assert server.metric("tallyman_history_followers") == 4
    for f in slow:
        f.until(lambda x: len(x.events) == len(everything))
        assert f.ids == everything
    last = append(server, "last", event(1))["last_event_id"]
    for f in [*slow, quick]:
        f.until(lambda x: x.ids[-1:] == [last])
        assert f.ids == [*everything, last] and f.end is None


def test_a_retirement_is_followed(server):
    append(server, "one", event(1), source="old")
    followers = [Follower(server, sse=sse, **more).until_caught_up() for sse in (False, True) for more in ({}, {"source": "system"})]
    answer = server.request("POST", "/v1/sources/retire", json.dumps({"source": "old"}), {"Content-Type": "application/json"})
    assert answer.status == 200, answer.body
    for f in followers:
        f.until(lambda x: x.ids[-1:] == [answer.json["retirement_event_id"]])
        assert f.events[-1]["kind"] == "source_retired"


def test_sealing_beside_followers_changes_nothing(make_server):
    """Followers in the middle of the files, at their end, and from the beginning, while generations become segments."""
    server = make_server(*SMALL)
    for n in range(40):
        append(server, f"b{n}", *[event(i) | {"payload": f"{n} {i} " + "x" * 300} for i in range(100)])
    middle = [Follower(server, sse=sse, rcvbuf=4096, timeout=60, limit=50) for sse in (False, True)]
    at_end = Follower(server, timeout=60).until_caught_up()
    for f in middle:
        f.until(lambda x: len(x.events) > 0)
    server.cli("seal", check=0)
    assert list((server.data / "journal" / "segments").iterdir())
    last = append(server, "after", event(1))["last_event_id"]
    everything = replay_all(server, limit=100000)
    for f in [*middle, at_end, Follower(server, timeout=60), Follower(server, sse=True, after=middle[0].ids[0], timeout=60)]:
        f.until(lambda x: x.ids[-1:] == [last])
        assert f.events == everything[len(everything) - len(f.events):]
        assert f.after or len(f.events) == len(everything)


def rss_bytes(server):
    with open(f"/proc/{server.process.pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def open_descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_large_events_are_not_held_for_clients_that_stop(make_server):
    """Followers that stop inside an event of 6 MB: 64 MiB are kept for them in all, what is beyond is read again."""
    count, size = 40, 6 << 20
    server = make_server()
    small = append(server, "small", event(1))["last_event_id"]
    large = append(server, "large", event(2) | {"payload": "0123456789abcdef" * (size // 16)}, event(3))
    before = rss_bytes(server)
    stuck = [Follower(server, sse=i % 2 == 1, unix=True, after=small, limit=1, timeout=60) for i in range(count)]
    for f in stuck:
        f.read()  # the head, and the beginning of the event
    reads = -1
    while reads != server.metric("tallyman_history_follow_reads_total") or reads < count:
        reads = server.metric("tallyman_history_follow_reads_total")
        time.sleep(0.05)
    held = rss_bytes(server) - before
    print(f"{held >> 20} MiB held for {count * size >> 20} MiB of events")
    if not SANITIZED:
        assert held < (64 << 20) + 2 * 4 * size  # two workers have the window and the text of one at a time
    want = [e for e in replay_all(server) if e["event_id"] > small]
    for f in [*stuck[:2], *stuck[-2:]]:  # the last ones were not held
        f.until(lambda x: x.cursor == large["last_event_id"])
        assert f.events == want
    more = append(server, "more", event(4))["last_event_id"]
    for f in stuck[-2:]:
        f.until(lambda x: x.cursor == more)
    for f in stuck:
        f.close()
    wait(lambda: server.metric("tallyman_history_followers") == 0)


class Crowd:
    """Many followers and one thread."""

    def __init__(self, server, count, **query):
        self.selector = selectors.DefaultSelector()
        self.followers = []
        for i in range(count):
            f = Follower(server, sse=i % 2 == 1, timeout=60, **query)
            f.sock.setblocking(False)
            self.selector.register(f.sock, selectors.EVENT_READ, f)
            self.followers.append(f)

    def until(self, condition, timeout=60):
        end = time.monotonic() + timeout
        left = {f for f in self.followers if not condition(f)}
        while left:
            assert time.monotonic() < end, f"{len(left)} followers wait in vain"
            for key, _ in self.selector.select(1):
                key.data.read()
                if key.data.closed:
                    self.selector.unregister(key.data.sock)
                if condition(key.data):
                    left.discard(key.data)

    def close(self):
        for f in self.followers:
            f.close()


def test_a_thousand_followers_cost_little(make_server):
    """Flat memory, no descriptor but the socket, everyone gets everything, appends go on, and all end at a stop."""
    count = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * count + 200)), hard))
    server = make_server("--connections-max", "1200")
    start = append(server, "before", *[event(i) for i in range(2000)])["last_event_id"]
    warm = Crowd(server, 50, after=start)
    warm.until(lambda f: f.caught_up is not None)
    before, files = rss_bytes(server), open_descriptors(server)
    crowd = Crowd(server, count, after=start)
    crowd.until(lambda f: f.caught_up is not None)
    wait(lambda: open_descriptors(server) <= files + count)  # fewer: something was open for a moment before
    each = (rss_bytes(server) - before) / count
    load = Load(server, events=1, threads=1, pause=0.02)
    time.sleep(1)
    last = load.end()
    for group in (warm, crowd):
        group.until(lambda f: f.ids[-1:] == [last])
    news = [e["event_id"] for e in replay_all(server, limit=100000)][2000:]
    assert all(f.ids == news for f in crowd.followers)
    after = (rss_bytes(server) - before) / count
    print(f"{each:.0f} bytes a follower, {after:.0f} after events, slowest append {load.slowest_s * 1000:.0f} ms")
    if not SANITIZED:
        assert each < 16384 and after < 32768
    refused = [server.get("/v1/events?follow=true")]
    assert refused[0].status == 429 and refused[0].headers["retry-after"] == "1"  # seven eighths of 1200 are taken
    assert server.get("/v1/events?limit=1").status == 200
    warm.close()
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    crowd.until(lambda f: f.closed)
    stopping.join(30)
    assert {f.end for f in crowd.followers} == {"shutdown"} and not any(f.cut for f in crowd.followers)


# ---- the end ----

@BOTH
def test_shutdown_ends_followers_also_stuck_ones(make_server, sse):
    server = make_server("--grace-ms", "1s")
    append(server, "a", *[event(i) | {"payload": "x" * 2000} for i in range(5000)])
    idle = Follower(server, sse=sse).until_caught_up()
    stuck = Follower(server, sse=sse, unix=True)
    stuck.until(lambda f: len(f.events) > 0)
    start = time.monotonic()
    process = server.process
    process.send_signal(signal.SIGTERM)
    idle.until_closed()
    assert idle.end == "shutdown" and not idle.cut
    assert process.wait(30) == 0
    assert time.monotonic() - start < 25
    server.process = None
    stuck.until_closed()
    # Mostly cut; where it had room for one more piece when the signal came, that was the end.
    assert stuck.cut or stuck.end == "shutdown"
    assert 0 < len(stuck.events) < 5000


def test_a_follower_in_the_middle_of_its_snapshot_ends_well_at_a_stop(make_server):
    server = make_server()
    for n in range(4):
        append(server, f"a{n}", *[event(i) | {"payload": "x" * 2000} for i in range(5000)])
    f = Follower(server, rcvbuf=4096, timeout=60)
    f.until(lambda x: len(x.events) > 0)
    server.process.send_signal(signal.SIGTERM)
    f.until_closed()
    assert f.end == "shutdown" and not f.cut and f.caught_up is None
    assert 0 < len(f.events) < 20000 and f.cursor == f.ids[-1]
    assert server.stop() == 0


@BOTH
def test_a_poisoned_writer_ends_followers(make_server, workdir, sse):
    world = World(make_server, workdir)
    server = world.make()
    for _ in range(3):
        world.append()
    f = Follower(server, sse=sse).until_caught_up()
    with world.attached("fdatasync:error=EIO", paths=[world.tail()]):
        assert server.append(world.new().body).status == 503
    f.until_closed()
    assert f.end == "writer_poisoned" and not f.cut
    known = [e["event_id"] for e in replay_all(server)]
    assert f.ids == known  # nothing that was not acknowledged
    late = Follower(server, sse=sse).until_closed()
    assert late.ids == known and late.caught_up is not None and late.end == "writer_poisoned"
    server.stop()


@BOTH
def test_a_file_that_cannot_be_read_ends_the_follower_behind_what_is_good(make_server, sse):
    server = make_server(*SMALL)
    for n in range(60):
        append(server, f"a{n}", *[event(i) | {"payload": "x" * 200} for i in range(20)])
    everything = [e["event_id"] for e in replay_all(server)]
    victim = sorted((server.data / "journal" / "pending").iterdir())[2]
    text = victim.read_bytes()
    middle = text.index(b"\n", len(text) // 2) + 1
    with open(victim, "r+b") as out:
        out.seek(middle)
        out.write(b"#")
    f = Follower(server, sse=sse).until_closed()
    assert f.end == "replay_failed" and not f.cut
    assert 0 < len(f.ids) < len(everything) and f.ids == everything[:len(f.ids)]
    assert server.append(batch("more", event(1))).status == 200


def test_a_client_that_has_gone_leaves_nothing(server):
    crowd = Crowd(server, 20)
    crowd.until(lambda f: f.caught_up is not None)
    assert server.metric("tallyman_history_followers") == 20
    crowd.close()
    wait(lambda: server.metric("tallyman_history_followers") == 0)


@BOTH
def test_kill_9_and_going_on(make_server, workdir, sse):
    """Acknowledged events arrive once each, over a server that is killed and started again."""
    server = make_server(*SMALL)
    seen, cursor = [], None
    acked = []
    for round_ in range(3):
        f = Follower(server, sse=sse, **({"after": cursor} if cursor else {})).until_caught_up()
        load = Load(server, threads=2, size=300)
        f.until(lambda x: len(x.events) > 200)
        server.kill()
        load.stop.set()
        for thread in load.threads:
            thread.join(30)
        acked += load.ranges
        f.until_closed()
        assert f.cut
        seen += f.ids
        cursor = f.cursor
        server.start()
        for one in load.threads:
            assert not one.is_alive()
    f = Follower(server, sse=sse, after=cursor).until_caught_up()
    seen += f.ids
    everything = [e["event_id"] for e in replay_all(server, limit=100000)]
    assert seen == everything
    assert {first for first, _, _ in acked} <= set(everything)


# ---- tallyman follow ----

def follow_cli(server, *args, **kw):
    return subprocess.Popen([BINARY, "follow", "--data", str(server.data), *args], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def test_cli_follows_across_a_restart(make_server):
    server = make_server()
    append(server, "one", event(1), event(2, stream="t"))
    done = server.cli("follow", "--until-caught-up", check=0)
    replayed = server.cli("replay", check=0)
    assert done.stdout == replayed.stdout and len(done.stdout.splitlines()) == 2
    filtered = server.cli("follow", "--until-caught-up", "--stream", "t", "--source", "test", "--kind", "upserted", "--record-key",
                          "k2", check=0)
    assert [json.loads(line)["stream"] for line in filtered.stdout.splitlines()] == ["t"]
    process = follow_cli(server)
    try:
        for _ in range(2):
            process.stdout.readline()
        for n, end in enumerate((server.stop, server.kill)):
            append(server, f"x{n}", event(10 + n))
            assert json.loads(process.stdout.readline())["payload"] == {"n": 10 + n}
            end()
            server.start()
        last = append(server, "y", event(20))["last_event_id"]
        assert json.loads(process.stdout.readline())["payload"] == {"n": 20}
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=30)
    after = server.cli("follow", "--until-caught-up", "--after", last, check=0)
    assert after.stdout == ""


def test_cli_says_where_to_go_on(make_server):
    server = make_server()
    last = append(server, "one", event(1))["last_event_id"]
    assert server.cli("follow", "--after", "7").returncode == 2
    process = follow_cli(server, "--retry", "0")
    assert json.loads(process.stdout.readline())["event_id"] == last
    server.stop()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"go on with --after {last}" in err.decode() and "shutdown" in err.decode()
    gone = server.cli("follow")
    assert gone.returncode == 1 and "no server answers" in gone.stderr


def test_what_was_passed_over_and_silence_are_told_in_time(silence):
    """A filtered follower's cursor moves, at most every 10 s; server-sent events have a comment every 15 s."""
    silence.thread.join(90)
    assert silence.failure is None and not silence.thread.is_alive()
    nd, sse = silence.records, silence.frames
    assert 9 < silence.moved_s < 40 and 14 < silence.comment_s < 60
    assert nd.records[0]["next_after"] == silence.first
    assert nd.records[2] == {"type": "events", "phase": "live", "events": [], "next_after": silence.second,
                             "snapshot_through_event_id": silence.second}
    assert sse.frames[-1] == {"id": silence.second} and sse.events == []
    assert silence.unfiltered.ids == [silence.first, silence.second]
    nd.close()
    again = Follower(silence.server, source="b", after=nd.cursor).until_caught_up()
    assert again.events == [] and again.cursor == silence.second


NGINX = """
daemon off; master_process off; pid {dir}/pid; error_log {dir}/log warn;
events {{ worker_connections 64; }}
http {{
    access_log off; client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
    uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://127.0.0.1:{to}; proxy_http_version 1.1; proxy_buffering on; proxy_buffers 8 1m;
                      proxy_busy_buffers_size 2m; proxy_buffer_size 1m; proxy_set_header Connection ""; proxy_read_timeout 20s; }}
    }}
}}
"""


def test_L50_events_pass_nginx_with_its_buffering_on(make_server, workdir):
    """Each event comes through at once; an end is an end, and a killed server is a cut that can be told from it."""
    server = make_server()
    append(server, "one", event(1))
    port = free_port()
    (workdir / "nginx.conf").write_text(NGINX.format(dir=workdir, port=port, to=server.port))
    nginx = subprocess.Popen([shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin"), "-c", str(workdir / "nginx.conf"),
                              "-e", str(workdir / "log")], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    proxy = types.SimpleNamespace(host="127.0.0.1", port=port)

    def listens():
        assert nginx.poll() is None, (workdir / "log").read_text()
        try:
            socket.create_connection((proxy.host, port), 5).close()
            return True
        except ConnectionRefusedError:
            return False

    try:
        wait(listens)
        f = Follower(proxy, sse=True).until_caught_up()
        for n in range(5):
            last = append(server, f"live{n}", event(10 + n))["last_event_id"]
            f.until(lambda x, last=last: x.cursor == last)
        server.stop()
        f.until(lambda x: x.chunked is True)  # nginx itself keeps the connection
        assert f.end == "shutdown"
        f.close()
        server.start()
        f = Follower(proxy, sse=True, last_event_id=f.cursor).until_caught_up()
        assert f.ids == []
        server.kill()
        f.until_closed()
        assert f.cut and f.end is None
    finally:
        nginx.terminate()
        nginx.wait(20)
