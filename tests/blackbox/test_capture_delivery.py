"""Delivery into the real engine when acknowledgements are lost, engines die, or there is none (cases C20 to C26).

What counts every time: an acknowledged event is one logical row, with the bytes, the id and the receipt time it was taken with;
and nothing is forgotten because the far side was away.
"""
import http.client
import os
import signal
import socket
import threading
import time

import pytest
from capture_world import TABLE, Capture, Far, is_alive, wait_gone
from conftest import free_port
from engine_world import ENGINE, LIBCHDB, Engine
from tracer import Attached

LIBRARY = os.environ.get("TALLYMAN_ENGINE_LIBRARY") or LIBCHDB
NO_MERGES = f"ALTER TABLE {TABLE} MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"


@pytest.fixture
def make_world(make_server, workdir):
    worlds = []

    def make(*args, names=("demo",), **kw):
        world = Capture(make_server(*args, **kw), workdir, *names)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.ledger.close()


class Proxy:
    """Between the sink and a ClickHouse: it passes requests on, and may keep an answer for itself."""

    def __init__(self, port):
        self.upstream = port
        self.drop_answers = 0  # of inserts: so many are carried out and not told
        self.dropped, self.inserts = 0, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept)]

    def __enter__(self):
        self.threads[0].start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()

    def accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self.serve, args=(conn,))
            self.threads.append(thread)
            thread.start()

    def serve(self, conn):
        with conn, conn.makefile("rb") as file:
            try:
                while self.exchange(conn, file):
                    pass
            except OSError:
                pass

    def exchange(self, conn, file):
        """One request. False: the connection ends."""
        first = file.readline().decode().split()
        if not first:
            return False
        headers = http.client.parse_headers(file)
        body = file.read(int(headers.get("Content-Length", "0")))
        up = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            up.request(first[0], first[1], body, {name: value for name, value in headers.items()
                                                  if name.lower().startswith(("x-", "content-type", "authorization"))})
            response = up.getresponse()
            data = response.read()
        finally:
            up.close()
        if "INSERT" in first[1]:
            self.inserts.append(body)
            if self.dropped < self.drop_answers:
                assert response.status == 200, data
                self.dropped += 1
                return False
        kept = "".join(f"{name}: {value}\r\n" for name, value in response.getheaders() if name.lower().startswith("x-"))
        conn.sendall(f"HTTP/1.1 {response.status} X\r\n{kept}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return True


@pytest.fixture
def engine(workdir):
    """An engine of nobody's, on a port."""
    assert os.path.exists(ENGINE), ENGINE
    (workdir / "secret").write_text("secret-of-the-owner\n")
    (workdir / "secret").chmod(0o600)
    port = free_port()
    made = Engine(workdir / "far", "--listen", f"127.0.0.1:{port}", "--secret-file", str(workdir / "secret"))
    made.port = port
    made.start()
    yield made
    if made.process is not None:
        assert made.stop() == 0, made.log[-2000:]


def outside(world, engine):
    """The world's far side is that engine."""
    world.far = Far(world.server)
    world.far.path = str(engine.data / "engine.sock")
    return world


def compare_rows(world, copies):
    """Each acknowledged event has so many physical rows, all the same, and is one logical row."""
    rows = world.far.rows()
    acked = world.ledger.acked()
    assert len(rows) == copies * len(acked), (len(rows), len(acked))
    seen = {}
    for row in rows:
        event = world.ledger.events[row["project"], row["uuid"]]
        assert seen.setdefault(event.key, row) == row, f"two different rows for {event.key}"
        assert int(row["event_id"]) == event.event_id and row["properties"] == event.sent[0]
    assert world.far.logical() == len(seen) == len(acked)
    return seen


# ---- acknowledgements that are lost ----

def test_a_lost_acknowledgement_makes_two_physical_rows_and_one_logical(make_world, workdir, engine):
    """Proves: an insert that was carried out and not told is sent again byte for byte: twice there as parts, once as an event."""
    engine.value(f"SYSTEM STOP MERGES {TABLE}")
    with Proxy(engine.port) as proxy:
        proxy.drop_answers = 1
        world = outside(make_world("--clickhouse-url", f"http://127.0.0.1:{proxy.port}", "--clickhouse-user", "owner",
                                   "--clickhouse-password-file", str(workdir / "secret")), engine)
        world.put(200, text="ünï \u2028 \"x\"")
        world.wait(lambda: proxy.dropped == 1, what="a lost answer")
        world.put(50)  # comes in while the first batch has no answer: no part of its repeat
        world.wait_delivered()
        assert world.server.stop() == 0
    assert len(proxy.inserts) == 3 and proxy.inserts[0] == proxy.inserts[1] != proxy.inserts[2]
    assert world.far.physical() == 2 * 200 + 50 and world.far.logical() == 250
    seen = {}
    for row in world.far.rows():
        assert seen.setdefault(row["uuid"], row) == row
    assert len(seen) == 250
    # However often it is merged.
    engine.value(f"SYSTEM START MERGES {TABLE}")
    engine.value(f"OPTIMIZE TABLE {TABLE} FINAL")
    assert world.far.physical() == world.far.logical() == 250
    compare_rows(world, 1)


def test_killed_between_insert_and_record(make_world):
    """Proves: the server dies when the engine has the rows and the queue does not know: they are sent again, and are one logical row
    each; what users see never counts them twice."""
    world = make_world()
    world.wait_connected()
    world.far.ask(NO_MERGES)
    engine = world.engine_pid()
    wal = world.server.data / "tallyman.sqlite-wal"
    os.kill(engine, signal.SIGSTOP)
    try:
        world.put(120, text="é")
        # From now on the first write into the WAL is that of the delivery's record.
        with Attached(world.server, str(world.server.data.parent / "trace"), "pwrite64:signal=SIGKILL:when=1", paths=[wal]):
            os.kill(engine, signal.SIGCONT)
            assert world.server.process.wait(30) == -9
    finally:
        os.kill(engine, signal.SIGCONT)
    world.server.process = None
    wait_gone(engine)
    assert world.verify()["queue"]["events"] == 120
    world.server.start()
    world.wait_connected()
    world.wait_delivered()
    compare_rows(world, 2)
    count = world.server.cli("query", "select count() from events", "--project", "demo", "--format", "csv", check=0).stdout
    assert "120" in count.split(), count
    world.far.ask(f"ALTER TABLE {TABLE} RESET SETTING max_bytes_to_merge_at_max_space_in_pool, max_bytes_to_merge_at_min_space_in_pool")
    world.far.ask(f"OPTIMIZE TABLE {TABLE} FINAL")
    compare_rows(world, 1)
    world.repeat(world.ledger.acked())


# ---- engines that die, or are not there ----

def test_a_killed_engine_is_an_outage_and_no_loss(make_world):
    """Proves: without its engine the server goes on taking events, says what is wrong to those whose events wait and to nobody else,
    starts the engine again, and delivers everything."""
    world = make_world(names=("demo", "other"))
    world.wait_connected()
    world.put(40)
    world.wait_delivered()
    world.far.ask(NO_MERGES)
    before = world.delivery()
    assert before["pending"] == 0 and "error" not in before and before["last_success"]
    for _ in range(2):
        engine = world.engine_pid()
        os.kill(engine, signal.SIGKILL)
        world.put(60)
        world.wait(lambda: "error" in world.delivery() or world.delivery()["pending"] == 0, what="a word about the outage")
        d, e = world.delivery(), world.delivery(world.projects["other"])
        if d["pending"]:  # it is delivered again within seconds
            assert d["pending"] == 60 and d["oldest_pending_received_at"] and d["enabled"]
        assert e["pending"] == 0 and "error" not in e
        world.wait_connected()
        world.wait_delivered()
        assert world.engine_pid() != engine
    status = world.status()
    assert status["engine"]["state"] == "running" and status["engine"]["restarts"] == 2
    assert "signal 9" in status["engine"]["detail"]
    assert "error" not in world.delivery()
    compare_rows(world, 1)
    world.check_rows()


def test_an_engine_that_hangs_delays_and_loses_nothing(make_world):
    """Proves: a stopped engine holds up deliveries, not intake; when it goes on, so do they."""
    world = make_world()
    world.wait_connected()
    engine = world.engine_pid()
    os.kill(engine, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        for _ in range(20):
            world.put(10)
        assert time.monotonic() - begun < 10
        time.sleep(0.5)
        assert world.delivery()["pending"] == 200
        assert world.server.get("/readyz").status == 200
    finally:
        os.kill(engine, signal.SIGCONT)
    world.wait_delivered()
    assert world.engine_pid() == engine
    world.check_rows()


def test_without_a_library_events_wait_until_it_arrives(make_world, workdir):
    """Proves: with no engine to be had events are taken and kept over restarts, status says so; and once the library is there,
    everything is delivered without a restart."""
    library = workdir / "libchdb.so"
    world = make_world("--engine-library", str(library))
    world.put(30)
    for kill in (False, True):
        status = world.status()
        assert status["engine"]["state"] == "absent" and "libchdb" in status["engine"]["detail"], status["engine"]
        assert not status["sink"]["connected"] and status["queue"]["pending"] == len(world.ledger.events)
        d = world.delivery()
        assert d["pending"] == len(world.ledger.events) and d["error"], d
        assert world.server.get("/readyz").status == 200
        assert world.engine_pid() is None
        world.server.kill() if kill else world.server.stop()
        world.server.start()
        world.put(30)
        time.sleep(1.2)  # the first tick
    library.symlink_to(LIBRARY)
    world.wait_delivered()
    assert world.status()["engine"]["state"] == "running"
    world.check_rows()


def test_a_library_that_is_none_is_told_and_stops_nobody(make_world, workdir):
    """Proves: an engine that cannot start is tried again ever more rarely, its end is named, and intake does not care."""
    library = workdir / "libchdb.so"
    library.write_bytes(b"not a library")
    world = make_world("--engine-library", str(library))
    world.put(10)
    world.wait(lambda: world.status()["engine"]["restarts"] >= 1, what="a second try")
    engine = world.status()["engine"]
    assert engine["state"] in ("restarting", "running") and "exit code 3" in engine["detail"], engine
    assert world.delivery()["pending"] == 10 and world.delivery()["error"]
    assert world.server.get("/readyz").status == 200
    begun = world.server.log.count("tallyman-engine: started")
    time.sleep(2)
    assert world.server.log.count("tallyman-engine: started") <= begun + 1
    assert world.server.stop() == 0


def test_engine_off_keeps_events(make_world):
    """Proves: with the engine switched off nothing is started and nothing is lost."""
    world = make_world("--engine", "off")
    world.put(10)
    assert world.status()["engine"]["state"] == "off" and world.engine_pid() is None
    d = world.delivery()
    assert d["pending"] == 10 and not d["enabled"] and d["error"]
    assert world.server.stop() == 0
    world.server.args = []
    world.server.start()
    world.wait_delivered()
    world.check_rows()


# ---- the engine's end ----

@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in-a-statement"])
def test_the_engine_ends_with_a_killed_server(make_world, busy):
    """Proves: kill -9 of the server leaves no engine behind, also when it is in the middle of a statement."""
    world = make_world()
    world.wait_connected()
    world.put(10)
    world.wait_delivered()
    engine = world.engine_pid()
    thread = None
    if busy:
        def ask():
            try:
                world.far.ask("SELECT sum(sleepEachRow(1)) FROM numbers(60) SETTINGS max_block_size = 1, "
                              "function_sleep_max_microseconds_per_block = 100000000", timeout=30)
            except (OSError, http.client.HTTPException):
                pass
        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.5)
    assert is_alive(engine)
    world.server.kill()
    try:
        wait_gone(engine, 10)
    finally:
        if is_alive(engine):
            os.kill(engine, signal.SIGKILL)  # nobody else would end it now
    if thread is not None:
        thread.join(30)
        assert not thread.is_alive()
    world.verify()
    world.server.start()
    world.wait_connected()
    world.check_rows()


def test_the_engine_ends_with_a_stopped_server(make_world):
    """Proves: a clean stop ends the engine first, and what it had taken is recorded."""
    world = make_world()
    world.wait_connected()
    engine = world.engine_pid()
    for _ in range(20):
        world.put(20)
    assert world.server.stop() == 0
    assert not is_alive(engine)
    left = world.verify()["queue"]["events"]
    world.server.start()
    world.wait_connected()
    delivered = 400 - left
    assert world.far.logical() >= delivered
    world.wait_delivered()
    world.check_rows()
