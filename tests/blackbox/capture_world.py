"""What the tests that hurt the capture door believe: a ledger of events, senders in every dialect, and looks at what came of them.

Ledger: a request is written down before its bytes leave, its answer when it is complete; each line is synced. An event is known
by (project, uuid). Acknowledged means: one receipt with one id for ever, and in the end one logical row with the bytes of the
first payload. A request without an answer is unknown: all of it is there, or nothing, until the same bytes are sent again.

Looks: Queue reads tallyman.sqlite by SQLite's own library, read-only; Far asks the engine over its socket as the owner, physical
rows and logical ones; `tallyman query` is what users see.
"""
import base64
import gzip
import hashlib
import http.client
import json
import os
import sqlite3
import threading
import time
import uuid as uuids

from conftest import UnixConnection, verify
from world import SANITIZED

JSON = {"Content-Type": "application/json"}
TABLE = "tallyman.events_v2"
ROWS = f"SELECT project, uuid, event_id, revision, received_at, properties, raw, message_id FROM {TABLE}"
ENGINE_WAIT_S = 60
AWAY = (429, 503)  # may come again; whether anything was stored is told by a repeat


class ShortUnix(UnixConnection):
    """Over a socket whose path may be long: the one through /proc is short."""

    def connect(self):
        directory = os.open(os.path.dirname(self.path), os.O_PATH)
        try:
            whole, self.path = self.path, f"/proc/self/fd/{directory}/{os.path.basename(self.path)}"
            super().connect()
        finally:
            self.path = whole
            os.close(directory)


def traced():
    """Environment of a server that strace may look at: LeakSanitizer does not work under ptrace."""
    return {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if SANITIZED else {}


def derived(project, source, message_id):
    """The uuid of a message id that is none: version 8, from SHA-256."""
    raw = bytearray(hashlib.sha256(b"\0".join(s.encode() for s in (project, source, message_id))).digest()[:16])
    raw[6] = 0x80 | (raw[6] & 0x0f)
    raw[8] = 0x80 | (raw[8] & 0x3f)
    return str(uuids.UUID(bytes=bytes(raw)))


class Event:
    """One identity, and every payload that was sent under it."""

    def __init__(self, project, uuid, message_id=""):
        self.project, self.uuid, self.message_id = project, uuid, message_id
        self.sent = []       # texts of properties, in the order in which they left
        self.may_be = None   # how many of them may be the first that was stored: those sent before the first acknowledgement
        self.acked = False
        self.event_id = None

    @property
    def key(self):
        return self.project, self.uuid

    def payloads(self):
        return self.sent[:self.may_be] if self.may_be else self.sent


class Request:
    def __init__(self, path, headers, body, events, unix=False):
        self.path, self.headers, self.body, self.events, self.unix = path, headers, body, events, unix
        self.state = "new"  # new, unknown, acked, away, refused
        self.answer = None

    def send(self, conn):
        conn.request("POST", self.path, body=self.body, headers=self.headers)
        response = conn.getresponse()
        return response.status, response.read()


class Project:
    """A project with a key of each kind."""

    def __init__(self, server, name):
        self.name = name
        api = f"/api/v1/projects/{name}/keys"
        self.token = post(server, "/api/v1/projects", {"id": name}, 201)["capture_token"]
        self.segment = post(server, api, {"kind": "segment", "name": "web"}, 201)["token"]
        self.service = post(server, api, {"kind": "service", "name": "billing", "scopes": ["events:write", "query:read"]}, 201)["token"]

    def v0(self, items):
        body = ('{"api_key":"%s","event":"e0","distinct_id":"d","uuid":"%s","properties":%s}'
                % (self.token, items[0][0].uuid, items[0][1]))
        return Request("/i/v0/e/", JSON, body.encode(), items)

    def batch(self, items, packed=False):
        body = ('{"api_key":"%s","batch":[%s]}' % (self.token, ",".join(
            '{"event":"eb","distinct_id":"d","uuid":"%s","properties":%s}' % (event.uuid, text) for event, text in items))).encode()
        headers = {**JSON, "Content-Encoding": "gzip"} if packed else JSON
        return Request("/batch/", headers, gzip.compress(body, 1) if packed else body, items)

    def v1(self, items):
        now = "2026-01-01T00:00:00.000Z"
        body = '{"created_at":"%s","batch":[%s]}' % (now, ",".join(
            '{"event":"e1","distinct_id":"d","uuid":"%s","timestamp":"%s","options":{},"properties":%s}' % (event.uuid, now, text)
            for event, text in items))
        return Request("/i/v1/analytics/events", {
            **JSON, "Authorization": "Bearer " + self.token, "PostHog-Sdk-Info": "posthog-node/5.70.0", "PostHog-Attempt": "1",
            "PostHog-Request-Id": str(uuids.uuid4()), "PostHog-Request-Timestamp": now}, body.encode(), items)

    def segment_batch(self, items):
        body = '{"batch":[%s]}' % ",".join(
            '{"type":"track","event":"es","userId":"u","messageId":"%s","properties":%s}' % (event.message_id or event.uuid, text)
            for event, text in items)
        basic = base64.b64encode(f"{self.segment}:".encode()).decode()
        return Request("/v1/batch", {**JSON, "Authorization": "Basic " + basic}, body.encode(), items)

    def native(self, items, unix=True):
        body = '{"source":"web","events":[%s]}' % ",".join(
            '{"event":"en","distinct_id":"d","uuid":"%s","properties":%s}' % (event.uuid, text) for event, text in items)
        headers = JSON if unix else {**JSON, "Authorization": "Bearer " + self.service}
        return Request(f"/api/v1/projects/{self.name}/events", headers, body.encode(), items, unix)

    def any(self, rng, items):
        """A request in a dialect by chance."""
        if any(event.message_id for event, _ in items):
            return self.segment_batch(items)
        return rng.choice((self.v0 if len(items) == 1 else self.batch, self.v1, self.segment_batch, self.native,
                           lambda i: self.native(i, unix=False), lambda i: self.batch(i, packed=True)))(items)


def post(server, path, value, want):
    answer = server.request("POST", path, json.dumps(value), JSON, unix=True)
    assert answer.status == want, (path, answer.status, answer.body)
    return answer.json


class Ledger:
    def __init__(self, path):
        self.lock = threading.Lock()
        self.file = open(path, "a", encoding="utf-8")
        self.events = {}    # (project, uuid) -> Event
        self.requests = []  # without a final answer

    def close(self):
        self.file.close()

    def note(self, **what):
        self.file.write(json.dumps({"t": round(time.monotonic(), 6), **what}) + "\n")
        self.file.flush()
        os.fdatasync(self.file.fileno())

    def event(self, project, uuid=None, message_id="", source="web"):
        """A new identity (that of a message id is told by the door's rule)."""
        event = Event(project.name, derived(project.name, source, message_id) if message_id else uuid or str(uuids.uuid4()), message_id)
        with self.lock:
            assert event.key not in self.events
            self.events[event.key] = event
        return event

    def sending(self, request):
        """To be called before the first byte leaves."""
        with self.lock:
            again = request.state != "new"
            if not again:
                self.requests.append(request)
                for event, text in request.events:
                    event.sent.append(text)
            request.state = "unknown"
            self.note(sent=[event.uuid for event, _ in request.events], path=request.path, again=again)

    def answered(self, request, status, body):
        with self.lock:
            self.note(answer=status, to=[event.uuid for event, _ in request.events], body=body.decode("utf-8", "replace")[:300])
            request.answer = body
            if status == 200:
                request.state = "acked"
                for event, _ in request.events:
                    if not event.acked:
                        event.acked = True
                        event.may_be = len(event.sent)
                self.check_success(request, json.loads(body))
            elif status in AWAY:
                request.state = "away"
            else:
                request.state = "refused"
            self.requests = [r for r in self.requests if r is not request or status in AWAY]

    def check_success(self, request, answer):
        """Every event of the request was taken (these tests send no bad ones), and ids stay what they were."""
        if request.path.startswith("/api/"):
            assert len(answer["events"]) == len(request.events), answer
            for (event, _), told in zip(request.events, answer["events"]):
                assert told["uuid"] == event.uuid, (told, event.uuid)
                self.learn(event, int(told["event_id"]))
        elif "results" in answer:
            assert answer["results"] == {event.uuid: {"result": "ok"} for event, _ in request.events}, answer
        else:
            assert answer.get("rejected", 0) == 0, answer

    @staticmethod
    def learn(event, event_id):
        assert event.event_id in (None, event_id), f"{event.key} was event {event.event_id}, and is {event_id} now"
        event.event_id = event_id

    def acked(self):
        return [event for event in self.events.values() if event.acked]


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


def program(pid):
    """The name of what the process runs, None once it has ended."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None


class Capture:
    """A server with projects, and what is believed about them."""

    def __init__(self, server, workdir, *names):
        self.server = server
        self.ledger = Ledger(workdir / "ledger.ndjson")
        self.projects = {name: Project(server, name) for name in names or ("demo",)}
        self.far = Far(server)
        self.count = 0

    @property
    def demo(self):
        return next(iter(self.projects.values()))

    # ---- sending ----

    def connection(self, unix=False, timeout=30):
        if unix:
            return ShortUnix(self.server.socket_path, timeout)
        return http.client.HTTPConnection(self.server.host, self.server.port, timeout=timeout)

    def items(self, n=1, project=None, **properties):
        """New events with payloads that tell them apart."""
        made = []
        for _ in range(n):
            self.count += 1
            made.append((self.ledger.event(project or self.demo), json.dumps({"n": self.count, **properties})))
        return made

    def send(self, request, conn=None):
        """One request; its answer goes into the ledger. (status, body)"""
        own = conn is None
        conn = conn or self.connection(request.unix)
        try:
            self.ledger.sending(request)
            status, body = request.send(conn)
            self.ledger.answered(request, status, body)
            return status, body
        finally:
            if own:
                conn.close()

    def put(self, n=1, project=None, want=200, **properties):
        """Sends n new events by the native route."""
        project = project or self.demo
        request = project.native(self.items(n, project, **properties))
        status, body = self.send(request)
        assert status == want, (status, body)
        return request

    # ---- state ----

    def status(self):
        return self.server.get("/api/v1/status", unix=True).json

    def delivery(self, project=None):
        return self.server.get(f"/api/v1/projects/{(project or self.demo).name}/status", unix=True).json["delivery"]

    def wait(self, condition, seconds=ENGINE_WAIT_S, what="it"):
        end = time.monotonic() + seconds
        while not condition():
            assert self.server.process.poll() is None, f"the server ended:\n{self.server.log[-3000:]}"
            assert time.monotonic() < end, f"{what} did not happen in {seconds} s: {self.status()}"
            time.sleep(0.02)

    def wait_connected(self):
        self.wait(lambda: self.status()["sink"]["connected"], what="delivery")

    def wait_delivered(self, seconds=ENGINE_WAIT_S):
        self.wait(lambda: self.status()["queue"]["pending"] == 0, seconds, "delivery of everything")

    def engine_pid(self):
        """The engine that this server runs now, or None."""
        engines = (pid for pid in children(self.server.process.pid) if is_alive(pid) and program(pid) == "tallyman-engine")
        return next(engines, None)

    # ---- the oracle ----

    def verify(self):
        report = verify(self.server.data)
        assert report["ok"] and report["queue"]["ok"], report
        return report

    def check_receipts(self):
        """Against the receipts in the file: acknowledged ones are there under the id that was told, unknown requests whole or not at
        all, and nothing else. Returns the ids by key."""
        ids = Queue(self.server).receipts()
        told = list(ids.values())
        assert len(told) == len(set(told)), "an id was given twice"
        for key, event in self.ledger.events.items():
            if event.acked:
                assert key in ids, f"{key} was acknowledged and is not there"
            if key in ids:
                assert event.sent, f"{key} was never sent"
                self.ledger.learn(event, ids[key])
        assert set(ids) <= set(self.ledger.events), set(ids) - set(self.ledger.events)
        for request in self.ledger.requests:
            there = {event.key in ids for event, _ in request.events if len(event.sent) == 1}
            assert len(there) <= 1, f"half of a request is there: {[event.uuid for event, _ in request.events]}"
        return ids

    def retry_unknown(self):
        """Sends the same bytes again; (requests sent again, how many of them had been there)."""
        ids = self.check_receipts()
        again = there = 0
        for request in list(self.ledger.requests):
            known = [event.key in ids for event, _ in request.events]
            status, body = self.send(request)
            assert status == 200, (status, body)
            if request.path.startswith("/api/"):
                told = [e["status"] == "duplicate" for e in json.loads(body)["events"]]
                # An event may be in two unknown requests: then the first of them has just stored it.
                assert all(t or not k for t, k in zip(told, known)), (told, known)
            again += 1
            there += all(known)
        assert not self.ledger.requests
        self.check_receipts()
        return again, there

    def repeat(self, events):
        """By the native route, with another payload: each is a duplicate and answers the id it had."""
        for project in self.projects.values():
            mine = [event for event in events if event.project == project.name]
            for i in range(0, len(mine), 500):
                request = project.native([(event, '{"repeat":true}') for event in mine[i:i + 500]])
                status, body = self.send(request)  # ids are compared there
                assert status == 200, (status, body)
                assert {e["status"] for e in json.loads(body)["events"]} <= {"duplicate"}, body[:500]

    def check_rows(self):
        """All is delivered: every acknowledged event is one logical row, every physical row of it the same in all that matters."""
        assert not self.ledger.requests
        seen = {}
        for row in self.far.rows():
            key = row["project"], row["uuid"]
            event = self.ledger.events.get(key)
            assert event is not None, f"{key} was never sent"
            assert row["revision"] == "0" and int(row["event_id"]) == event.event_id, (row, event.event_id)
            assert row["properties"] in event.payloads() and row["raw"] == "", (row, event.sent)
            assert seen.setdefault(key, row) == row, f"two different rows for {key}: {row} and {seen[key]}"
        acked = {event.key for event in self.ledger.acked()}
        assert set(seen) == acked, (len(acked - set(seen)), list(acked - set(seen))[:5], list(set(seen) - acked)[:5])
        assert self.far.logical() == len(acked)
        for name in self.projects:
            count = self.server.cli("query", "select count(), uniqExact(uuid) from events", "--project", name, "--format", "csv",
                                    check=0).stdout.split("\n")
            mine = sum(key[0] == name for key in acked)
            assert f"{mine},{mine}" in count, (name, mine, count)
        return seen


class Queue:
    """tallyman.sqlite as it is now, by SQLite's own library."""

    def __init__(self, server):
        self.path = server.data / "tallyman.sqlite"

    def ask(self, sql, *values):
        db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=20)
        try:
            return db.execute(sql, values).fetchall()
        finally:
            db.close()

    def receipts(self):
        """(project, uuid) -> event id, of the large table and the recent one."""
        return {(name, str(uuids.UUID(bytes=raw))): event_id for name, raw, event_id in self.ask(
            "SELECT p.name, r.uuid, r.event_id FROM (SELECT project, uuid, event_id FROM receipts"
            " UNION SELECT project, uuid, event_id FROM receipts_recent) r JOIN projects p ON p.id = r.project")}

    def pending(self):
        return self.ask("SELECT count(*) FROM events")[0][0]

    def counters(self):
        """Of all projects: pending events, their bytes, receipts."""
        return self.ask("SELECT sum(pending_events), sum(pending_bytes), sum(receipts) FROM project_counters")[0]

    def counted(self):
        """The same, counted anew."""
        events = self.ask("SELECT count(*), ifnull(sum(length(text) + length(envelope)), 0) FROM events")[0]
        return (*events, len(self.receipts()))


class Far:
    """The embedded engine, asked by its owner."""

    def __init__(self, server):
        self.path = str(server.data / "engine" / "engine.sock")

    def ask(self, sql, timeout=60):
        conn = ShortUnix(self.path, timeout)
        try:
            conn.request("POST", "/", body=sql.encode())
            response = conn.getresponse()
            body = response.read()
            assert response.status == 200, (sql, response.status, body[:500])
            return body.decode()
        finally:
            conn.close()

    def rows(self):
        """Physical rows; 64-bit numbers as strings."""
        return [json.loads(line) for line in self.ask(
            ROWS + " SETTINGS output_format_json_quote_64bit_integers = 1 FORMAT JSONEachRow").splitlines()]

    def physical(self):
        return int(self.ask(f"SELECT count() FROM {TABLE}"))

    def logical(self):
        return int(self.ask(f"SELECT count() FROM {TABLE} FINAL"))


def is_alive(pid):
    """There, and no zombie that only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_gone(pid, seconds=15):
    end = time.monotonic() + seconds
    while is_alive(pid):
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.005)
