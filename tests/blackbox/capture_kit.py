"""What the tests of the capture door's behaviour share: a server with somewhere to deliver to, and projects that look at what came of
what they sent. A server is used by many tests, so each test makes its own project; serving() stops it in the end and judges it.
"""
import base64
import contextlib
import gzip
import itertools
import json
import os
import pathlib
import shutil
import socket
import tempfile
import time
import urllib.parse

from conftest import ROOT, Server, verify
from fake_clickhouse import FakeClickHouse

JSON = {"Content-Type": "application/json"}
WAIT_S = 60
COUNTER = itertools.count(1)


def environment():
    """The engine's library, for a binary that is not beside it."""
    library = ROOT / "build" / "engine" / "node_modules" / "@chdb" / "lib-linux-x64-gnu" / "libchdb.so"
    return {} if "TALLYMAN_ENGINE_LIBRARY" in os.environ else {"TALLYMAN_ENGINE_LIBRARY": str(library)}


@contextlib.contextmanager
def serving(*args, clean=True, **kw):
    """A Door of a server of its own, that delivers to a fake ClickHouse; afterwards it must stop cleanly and its files be sound."""
    base = ROOT / "build" / "tmp"
    base.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="t-", dir=base))
    try:
        with FakeClickHouse() as far:
            server = Server(path / "data", "--clickhouse-url", far.url, *args, **kw).start()
            try:
                yield Door(server, far)
                if clean:
                    assert_sound(server)
            finally:
                if server.process is not None:
                    server.kill()
    finally:
        shutil.rmtree(path, ignore_errors=True)


def assert_sound(server):
    """verify says so beside the server and without it; it ends by itself, and has nothing to complain of."""
    report = verify(server.data)
    assert report["ok"] and report["queue"]["ok"], report
    assert server.stop() == 0, server.log[-3000:]
    report = verify(server.data)
    assert report["ok"] and report["queue"]["ok"], report
    assert " error " not in server.log, server.log[-3000:]


def wait(condition, what, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not in {seconds} s"
        time.sleep(0.01)


class Door:
    def __init__(self, server, far=None):
        self.server, self.far = server, far

    def project(self, name=None):
        return Project(self, name or f"p{next(COUNTER)}")

    def call(self, method, path, value=None, headers=None, unix=True):
        """Management; JSON in, an Answer out."""
        body = None if value is None else json.dumps(value).encode()
        return self.server.request(method, path, body, {**(JSON if body else {}), **(headers or {})}, unix=unix)

    def post(self, path, body, headers=None, unix=False):
        """body: bytes as they are, anything else as JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return self.server.request("POST", path, body, {**JSON, **(headers or {})}, unix=unix)

    def status(self):
        return self.call("GET", "/api/v1/status").json

    def receipts(self):
        return self.status()["queue"]["receipts"]

    def raw(self, data, timeout=20):
        """Bytes by hand, until the server closes or is silent for a second; all that came."""
        with socket.create_connection((self.server.host, self.server.port), timeout) as sock:
            sock.sendall(data)
            sock.settimeout(1)
            return drain(sock)


def drain(sock):
    got = b""
    try:
        while True:
            more = sock.recv(65536)
            if not more:
                return got
            got += more
    except (TimeoutError, ConnectionResetError):
        return got


class Project:
    def __init__(self, door, name):
        self.door, self.name = door, name
        answer = door.call("POST", "/api/v1/projects", {"id": name})
        assert answer.status == 201, answer.body
        self.token = answer.json["capture_token"]

    @property
    def api(self):
        return f"/api/v1/projects/{self.name}"

    def key(self, kind, name=None, scopes=None):
        value = {"kind": kind, **({"name": name} if name else {}), **({"scopes": scopes} if scopes else {})}
        answer = self.door.call("POST", self.api + "/keys", value)
        assert answer.status == 201, answer.body
        return answer.json["token"]

    # ---- sending ----

    def event(self, name="e", **more):
        return {"api_key": self.token, "event": name, "distinct_id": "d", **more}

    def batch(self, events, headers=None, **more):
        """PostHog's /batch/."""
        return self.door.post("/batch/", {"api_key": self.token, "batch": events, **more}, headers)

    def native(self, events, **more):
        return self.door.post(self.api + "/events", {"events": events, **more}, unix=True)

    def segment(self, path, value, token=None):
        return self.door.post(path, value, {"Authorization": basic(token or self.token)})

    # ---- looking ----

    def delivery(self):
        return self.door.call("GET", self.api + "/status").json["delivery"]

    def rejected(self):
        return self.door.call("GET", self.api + "/rejected?limit=1000").json["rejected"]

    def rows(self):
        """All is delivered: the logical rows, oldest first."""
        wait(lambda: self.delivery()["pending"] == 0, "delivery")
        return sorted(self.door.far.logical(self.name), key=lambda row: row["event_id"])

    def row(self):
        rows = self.rows()
        assert len(rows) == 1, rows
        return rows[0]

    def empty(self):
        """Nothing was ever stored, nor kept as rejected."""
        d = self.delivery()
        return d["pending"] == 0 and d["rejected"] == 0 and "last_success" not in d and not self.rows()


def basic(token):
    return "Basic " + base64.b64encode(f"{token}:".encode()).decode()


def packed(value):
    return gzip.compress(value if isinstance(value, bytes) else json.dumps(value).encode(), 6, mtime=0)


def b64(value):
    return base64.b64encode(json.dumps(value).encode()).decode()


def quote(text):
    return urllib.parse.quote(text, safe="")


def rfc3339(seconds):
    whole, part = divmod(round(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{part:03d}Z"


def seconds_of(text):
    """Epoch seconds of a DateTime64 as ClickHouse gets it."""
    whole, _, part = text.partition(".")
    return time.mktime(time.strptime(whole + " UTC", "%Y-%m-%d %H:%M:%S %Z")) - time.timezone + float("0." + (part or "0"))
