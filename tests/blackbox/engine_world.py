"""A real tallyman-engine on a temporary directory, for the engine's black-box tests.

ENGINE names the binary (default build/tallyman-engine), LIBCHDB the library (default: where scripts/engine puts it).
"""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.parse

from conftest import Answer, UnixConnection

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENGINE = os.environ.get("ENGINE", str(ROOT / "build" / "tallyman-engine"))
LIBCHDB = os.environ.get("LIBCHDB", str(ROOT / "build" / "engine" / "node_modules" / "@chdb" / "lib-linux-x64-gnu"
                                        / "libchdb.so"))
TABLE = "tallyman.events_v2"


class Engine:
    """One tallyman-engine. start() waits until it answers a ping."""

    def __init__(self, data, *args, wrapper=()):
        self.data = pathlib.Path(data)
        self.args = ["--nice", "0", *args]  # tests share the machine with other work
        self.wrapper = list(wrapper)
        self.log_path = self.data.parent / f"{self.data.name}.log"
        self.process = None

    @property
    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def command(self):
        return [*self.wrapper, ENGINE, "--data", str(self.data), "--library", LIBCHDB, *self.args]

    def start(self, timeout=60, pass_fds=(), wait=True):
        assert os.path.exists(LIBCHDB), f"{LIBCHDB} is missing: run scripts/engine, or name one with LIBCHDB"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            pass_fds=pass_fds)
        end = time.monotonic() + timeout
        while wait:
            if self.process.poll() is not None:
                raise AssertionError(f"the engine ended with {self.process.returncode}:\n{self.log}")
            try:
                if self.request("GET", "/ping").status == 200:
                    break
            except OSError:
                time.sleep(0.02)
            assert time.monotonic() < end, f"the engine did not answer in {timeout} s:\n{self.log}"
        return self

    def stop(self, timeout=30):
        """SIGTERM, and the exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise AssertionError(f"the engine did not stop:\n{self.log}")
        finally:
            self.process = None

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)
        self.process = None

    def connection(self, port=None, timeout=60):
        if port:
            return http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        # The path through /proc is short, however long the directory's is.
        directory = os.open(self.data, os.O_PATH)
        try:
            conn = UnixConnection(f"/proc/self/fd/{directory}/engine.sock", timeout)
            conn.connect()
            return conn
        finally:
            os.close(directory)

    def request(self, method, target, body=None, headers=None, port=None, timeout=60):
        conn = self.connection(port, timeout)
        try:
            conn.request(method, target, body=body, headers=headers or {})
            return Answer(conn.getresponse())
        finally:
            conn.close()

    def ask(self, sql, body=None, project=None, headers=None, port=None, method="POST", **params):
        """A statement (in the URL when there is a body besides), by the owner or as a project."""
        headers = dict(headers or {})
        if project is not None:
            headers["X-Tallyman-Project"] = project
        if body is not None or method == "GET":
            params["query"] = sql
            sql = body
        target = "/?" + urllib.parse.urlencode(params) if params else "/"
        if isinstance(sql, str):
            sql = sql.encode()
        return self.request(method, target, sql, headers, port)

    def value(self, sql, **kw):
        """The text of an answer that must succeed."""
        answer = self.ask(sql, **kw)
        assert answer.status == 200, (sql, answer.status, answer.body[:500])
        return answer.body.decode()

    def insert(self, rows, **kw):
        body = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        return self.ask(f"INSERT INTO {TABLE} FORMAT JSONEachRow", body=body, **kw)


def row(project, n, **kw):
    """A whole row of the events table; n makes it another one."""
    event = {
        "project": project, "uuid": f"0190aaaa-0000-7000-8000-{n:012x}", "revision": 0, "is_deleted": 0, "event_id": n,
        "received_at": "2026-11-30 12:00:00.000", "timestamp": "2026-11-30 11:59:59.123456", "timestamp_sent": None,
        "sent_at": None, "time_note": "", "type": "track", "event": "signed up", "distinct_id": f"u{n}",
        "anonymous_id": "", "session_id": "", "source": "default", "message_id": f"m{n}", "library": "posthog-js",
        "library_version": "1.0", "properties": "{\"n\":%d}" % n, "context": "{}", "raw": "{}", "original": "",
        "corrected_at": None,
    }
    event.update(kw)
    return event
