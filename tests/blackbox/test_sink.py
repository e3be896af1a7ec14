"""Delivery from a real server to a ClickHouse that misbehaves (spec/clickhouse.md C1 to C5; cases C17, C20, C22, C25, C26, C34,
C49, C55). What counts every time: each accepted event is one logical row, with its first payload, whatever went wrong."""
import json
import time
import uuid

import pytest

from fake_clickhouse import (BODY_200, CUT, DROP, DROP_AFTER_COMMIT, EXCEPTION_200, PROXY_503, TOO_LARGE, Error,
                             FakeClickHouse, Hang, first, script)


@pytest.fixture
def far():
    with FakeClickHouse() as fake:
        yield fake


class World:
    def __init__(self, server, far):
        self.server, self.far, self.sent = server, far, {}

    def project(self, name):
        answer = self.server.request("POST", "/api/v1/projects", json.dumps({"id": name}),
                                     {"Content-Type": "application/json"}, unix=True)
        assert answer.status == 201, answer.body
        self.sent.setdefault(name, {})
        return answer.json["capture_token"]

    def put(self, project, count, **properties):
        """Stores events and remembers what was acknowledged."""
        events = [{"event": "e", "distinct_id": "d", "uuid": str(uuid.uuid4()),
                   "properties": {"n": len(self.sent[project]) + i, **properties}} for i in range(count)]
        answer = self.server.request("POST", f"/api/v1/projects/{project}/events", json.dumps({"events": events}),
                                     {"Content-Type": "application/json"}, unix=True)
        assert answer.status == 200, answer.body
        assert answer.json["accepted"] == count
        for event in events:
            self.sent[project][event["uuid"]] = event["properties"]

    def delivery(self, project):
        return self.server.get(f"/api/v1/projects/{project}/status", unix=True).json["delivery"]

    def sink(self):
        return self.server.get("/api/v1/status", unix=True).json["sink"]

    def wait(self, condition, seconds=30, what="it"):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{what} did not happen; {self.sink()}"
            time.sleep(0.02)

    def drained(self, *projects, seconds=30):
        names = projects or list(self.sent)
        self.wait(lambda: all(self.delivery(p)["pending"] == 0 for p in names), seconds, "delivery")

    def check(self, *projects):
        """One logical row an event, with its payload."""
        for project in projects or list(self.sent):
            rows = self.far.logical(project)
            got = {row["uuid"]: json.loads(row["properties"]) for row in rows}
            assert got == self.sent[project]


@pytest.fixture
def world(make_server, far):
    w = World(make_server("--clickhouse-url", far.url), far)
    w.project("demo")
    return w


def test_delivers(world):
    world.put("demo", 500, text="ünï\u2028 \"quoted\"")
    world.drained()
    world.check()
    d = world.delivery("demo")
    assert "error" not in d and d["last_success"]
    sink = world.sink()
    assert sink["connected"] and sink["delivered"] == 500 and sink["failures"] == 0
    assert len(world.far.rows) == 500  # physical rows too
    assert any(s.startswith("CREATE VIEW") for s in world.far.statements)


@pytest.mark.parametrize("fault", [DROP, DROP_AFTER_COMMIT, EXCEPTION_200, BODY_200, CUT, PROXY_503,
                                   Error(241), Error(202), Error(252), Error(319), Error(159)],
                         ids=["drop", "drop-after-commit", "200-exception", "200-body", "cut", "503",
                              "241", "202", "252", "319", "159"])
def test_c20_unclear_answers_are_repeated_with_the_same_bytes(world, fault):
    far = world.far
    far.faults = [script(fault, fault)]
    world.put("demo", 200)
    world.wait(lambda: len(far.inserts) >= 1, what="a first try")
    world.put("demo", 50)  # not part of the frozen batch
    world.wait(lambda: world.delivery("demo").get("error"), what="an error in the status")
    world.drained()
    world.check()
    frozen = far.inserts[0]
    again = [i for i in far.inserts if i.hash == frozen.hash]
    assert len(again) == 3 and {len(i.rows) for i in again} == {len(frozen.rows)}
    assert "error" not in world.delivery("demo")


@pytest.mark.parametrize("part", [0.5, 0.99])
def test_c20_dropped_in_the_middle_of_the_body(world, part):
    world.far.cut_at = part
    world.put("demo", 300)
    world.drained()
    world.check()
    assert len(world.far.rows) == 300


def test_c17_unknown_table(make_server):
    with FakeClickHouse(tables=False) as far:
        world = World(make_server("--clickhouse-url", far.url), far)
        world.project("demo")
        world.put("demo", 100)
        world.wait(lambda: "error" in world.delivery("demo"), what="an error")
        assert world.delivery("demo")["pending"] == 100
        assert not far.rows
        far.tables = True
        world.drained(seconds=40)
        world.check()


def test_c17_a_table_that_goes_away(world):
    world.far.faults = [first(3, Error(60, "Table does not exist"))]
    world.put("demo", 100)
    world.wait(lambda: "unknown table" in world.sink()["error"], what="the reason in the status")
    world.drained()
    world.check()


def test_refused_project_waits_alone(world):
    """469 for one project: the others pass at once, nothing is dropped, no error of one is seen by another."""
    far = world.far
    world.project("other")
    bad = [True]
    far.faults = [lambda i: Error(469, "Constraint c violated: secret-value") if bad[0] and "demo" in i.projects
                  else None]
    world.put("demo", 60)
    world.put("other", 60)
    world.drained("other")
    world.check("other")
    assert world.delivery("demo")["pending"] == 60
    world.wait(lambda: "error" in world.delivery("demo"), what="an error")
    assert "secret-value" not in json.dumps(world.delivery("demo")) + world.server.log
    assert "error" not in world.delivery("other")
    world.put("other", 300)
    world.drained("other")
    bad[0] = False
    world.drained()
    world.check()


def test_c34_a_dead_destination_slows_nobody(make_server):
    """Nothing answers, ever: intake goes on, and the server stops in time."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Hang(60)]
        world = World(make_server("--clickhouse-url", far.url), far)
        world.project("demo")
        world.put("demo", 10)
        world.wait(lambda: far.inserts, what="a try")
        started = time.monotonic()
        for _ in range(50):
            world.put("demo", 10)
        assert time.monotonic() - started < 10
        assert world.delivery("demo")["pending"] == 510
        started = time.monotonic()
        assert world.server.stop() == 0
        assert time.monotonic() - started < 5
        far.faults = []
        world.server.start()
        world.drained()
        world.check()


def test_c25_a_trickle_makes_few_inserts(world):
    started = time.monotonic()
    while time.monotonic() - started < 3:
        world.put("demo", 1)
    world.drained()
    took = time.monotonic() - started
    world.check()
    assert len(world.far.inserts) <= took / 0.15 + 3


def test_c55_smaller_batches_pass(world):
    world.far.faults = [lambda i: Error(241, "Memory limit") if len(i.body) > 200_000 else None]
    for _ in range(4):
        world.put("demo", 500)
    world.drained(seconds=60)
    world.check()


def test_413_smaller_requests_pass(world):
    world.far.faults = [lambda i: TOO_LARGE if len(i.body) > 100_000 else None]
    for _ in range(4):
        world.put("demo", 500)
    world.drained(seconds=60)
    world.check()


def test_c49_a_table_without_uuid_in_its_key_is_refused(make_server):
    with FakeClickHouse() as far:
        far._statement(  # somebody made it by hand
            "CREATE TABLE IF NOT EXISTS tallyman.events_v2 (" + ", ".join(
                f"{c} String" for c in "project uuid revision is_deleted event_id received_at timestamp timestamp_sent sent_at "
                "time_note type event distinct_id anonymous_id session_id source message_id library library_version "
                "properties context raw original corrected_at".split()) +
            ") ENGINE = ReplacingMergeTree(revision, is_deleted) ORDER BY (project, event)")
        world = World(make_server("--clickhouse-url", far.url), far)
        world.project("demo")
        world.put("demo", 10)
        world.wait(lambda: "uuid" in world.sink()["error"], what="the reason in the status")
        assert not far.inserts
        far.engine = far.engine.replace("(project, event)", "(project, uuid)")
        world.drained(seconds=40)
        world.check()
        assert "fsync_after_insert" in world.sink()["error"]  # a warning stays


@pytest.mark.parametrize("fault", [None, DROP_AFTER_COMMIT, DROP], ids=["well", "lost", "dropped"])
def test_killed_in_the_middle(world, fault):
    """kill -9 between insert and record, again and again: one logical row each."""
    far = world.far
    for _ in range(4):
        far.faults = [first(1, fault)] if fault else []
        seen = len(far.inserts)
        for _ in range(5):
            world.put("demo", 100)
        world.wait(lambda: len(far.inserts) > seen, what="an insert")
        world.server.kill()
        world.server.start()
    far.faults = []
    world.drained()
    world.check()
    assert far.count("demo") == 2000


def test_credentials_go_in_headers(make_server, workdir):
    secret = "s3cr3t-" + uuid.uuid4().hex
    path = workdir / "password"
    path.write_text(secret + "\n")
    path.chmod(0o600)
    with FakeClickHouse(user="tally", password=secret) as far:
        world = World(make_server("--clickhouse-url", far.url, "--clickhouse-user", "tally",
                                  "--clickhouse-password-file", str(path)), far)
        world.project("demo")
        world.put("demo", 10)
        world.drained()
        world.check()
        far.password = "changed"
        world.put("demo", 10)
        world.wait(lambda: "refused" in world.sink()["error"], what="the reason in the status")
        assert secret not in world.server.log + json.dumps(world.sink())
        far.password = secret
        world.drained()
        world.check()


def test_nobody_there_at_first(make_server):
    probe = FakeClickHouse()
    port = probe.port
    probe.listener.close()
    server = make_server("--clickhouse-url", f"http://127.0.0.1:{port}")
    world = World(server, None)
    world.project("demo")
    world.put("demo", 20)
    world.wait(lambda: "cannot connect" in world.sink()["error"], what="the reason in the status")
    with FakeClickHouse(port=port) as far:
        world.far = far
        world.drained()
        world.check()
