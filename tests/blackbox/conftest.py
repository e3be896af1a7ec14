"""Fixtures of the black-box suite: a real server on a temporary directory and a free loopback port.

TALLYMAN names the binary (default build/tallyman). Every server that a test starts is stopped, by its process id, when the
test ends; its log is shown when the test failed.
"""
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TALLYMAN", str(ROOT / "build" / "tallyman"))


class UnixConnection(http.client.HTTPConnection):
    """http.client over a Unix socket."""

    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    """Status, headers and body of one answer."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines()]


class Server:
    """One `tallyman serve`. start() waits until it is ready to be asked (or has ended)."""

    def __init__(self, data, *args, wrapper=(), env=None, port=0):
        self.data = pathlib.Path(data)
        self.binary = BINARY
        self.args = list(args)
        self.wrapper = list(wrapper)
        self.env = dict(os.environ, **(env or {}))
        self.port = port or free_port()
        self.host = "127.0.0.1"
        self.log_path = self.data.parent / f"serve-{self.data.name}.log"
        self.process = None

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    @property
    def socket_path(self):
        return str(self.data / "tallyman.sock")

    @property
    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def command(self):
        return [*self.wrapper, BINARY, "serve", "--data", str(self.data),
                "--listen", f"{self.host}:{self.port}", *self.args]

    def start(self, wait=True, timeout=20):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=self.env)
        if wait:
            self.wait_alive(timeout)
        return self

    def wait_alive(self, timeout=20):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log}")
            try:
                if self.request("GET", "/healthz", timeout=2).status == 200:
                    return
            except OSError:
                time.sleep(0.01)
        raise AssertionError(f"the server did not answer in {timeout} s:\n{self.log}")

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
            raise AssertionError(f"the server did not stop:\n{self.log}")
        finally:
            self.process = None

    def kill(self):
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)
        self.process = None

    def connection(self, unix=False, timeout=30):
        if unix:
            return UnixConnection(self.socket_path, timeout)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, target, body=None, headers=None, unix=False, timeout=30):
        conn = self.connection(unix, timeout)
        try:
            conn.request(method, target, body=body, headers=headers or {})
            return Answer(conn.getresponse())
        finally:
            conn.close()

    def get(self, target, **kw):
        return self.request("GET", target, **kw)

    def append(self, batch, unix=False, headers=None, timeout=30):
        """POST of a batch (dict) or raw body (bytes or str)."""
        body = batch if isinstance(batch, (bytes, str)) else json.dumps(batch)
        if isinstance(body, str):
            body = body.encode()
        return self.request("POST", "/v1/events", body,
                            {"Content-Type": "application/json", **(headers or {})}, unix, timeout)

    def metric(self, name):
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        raise KeyError(name)

    def cli(self, *args, check=None, **kw):
        """Runs a client verb on this server's data directory."""
        result = tallyman(*args, "--data", str(self.data), **kw)
        if check is not None:
            assert result.returncode == check, result.stderr
        return result


def tallyman(*args, timeout=120, **kw):
    kw.setdefault("stdin", subprocess.DEVNULL) if "input" not in kw else None
    return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=timeout, **kw)


def free_port():
    """A port that nobody listens on, below those that the kernel gives to connections: between here and the server's bind no
    client, of this process or of another, is given it."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def event(n=0, stream="s", key=None, **more):
    return {"stream": stream, "record_key": key or f"k{n}", "kind": "upserted",
            "payload": {"n": n}, **more}


def batch(batch_id, *events, source="test", **more):
    return {"batch_id": batch_id, "source": source, "events": list(events) or [event()], **more}


def replay_all(server, limit=1000, **filters):
    """Every event, page by page."""
    events, after = [], None
    while True:
        query = f"/v1/events?limit={limit}" + (f"&after={after}" if after else "")
        query += "".join(f"&{k}={v}" for k, v in filters.items())
        page = server.get(query).json
        events += page["events"]
        if page["next_after"] == page["snapshot_through_event_id"]:
            return events
        after = page["next_after"]


def verify(data):
    """Report of `tallyman verify --chain`, which must have been able to look."""
    result = tallyman("verify", "--chain", "--json", "--data", str(data))
    assert result.returncode in (0, 3), result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def workdir():
    """A temporary directory on the build's disk (a memory file system would hide what syncs cost)."""
    base = ROOT / "build" / "tmp"
    base.mkdir(parents=True, exist_ok=True)
    path = tempfile.mkdtemp(prefix="t-", dir=base)
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    setattr(item, "report_" + outcome.get_result().when, outcome.get_result())


# Suites of the journal and of the front: an engine beside each of their servers would only cost time and memory, and live a
# moment longer than a server that is killed.
WITHOUT_ENGINE = {"test_archive_tls", "test_artifact_kill", "test_artifact_strace", "test_artifact_tus", "test_artifact_verify",
                  "test_backup", "test_cli", "test_deliver_threads", "test_deliveries",
                  "test_disk_script", "test_dpkg_history", "test_follow", "test_full_disk", "test_groundhog", "test_head",
                  "test_history", "test_history_cases", "test_history_load", "test_http_front", "test_kill", "test_merge_index",
                  "test_merged_packages", "test_project_settings", "test_put", "test_purge",
                  "test_reindex", "test_retire", "test_seal", "test_start", "test_strace",
                  "test_tus_clients"}


@pytest.fixture
def make_server(workdir, request):
    """Factory: make_server(*flags, name=..., wrapper=...) -> started Server."""
    servers = []

    def make(*args, name="data", start=True, **kw):
        if request.module.__name__ in WITHOUT_ENGINE:
            kw["env"] = {"TALLYMAN_ENGINE": "off", **(kw.get("env") or {})}
        server = Server(workdir / name, *args, **kw)
        servers.append(server)
        return server.start() if start else server

    yield make
    failed = getattr(request.node, "report_call", None)
    for server in servers:
        if server.process is not None:
            server.process.kill()
            server.process.wait(10)
        if failed is not None and failed.failed:
            print(f"--- log of {server.data.name}\n{server.log[-8000:]}")


@pytest.fixture
def server(make_server):
    return make_server()
