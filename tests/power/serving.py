"""A server of the release binary on a mounted disk, asked over its Unix socket."""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys

from device import ROOT, STEP_S, wait_for

sys.path.insert(0, str(ROOT / "tests" / "blackbox"))

from ledger import NDJSON, Wire  # noqa: E402

BINARY = os.path.abspath(os.environ.get("TALLYMAN", ROOT / "build" / "tallyman"))
FLAGS = ("--listen", "", "--generation-bytes", "64KiB", "--engine", "off", "--deliver", "off", "--min-free-bytes", "1",
         "--log-level", "warn", "--workers", "1")
JSON = {"Content-Type": "application/json"}
TUS = {"Tus-Resumable": "1.0.0"}


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout=STEP_S):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class UnixWire(Wire):
    """ledger.py's hand-made connection, over the socket."""

    def __init__(self, server):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(STEP_S)
        self.sock.connect(str(server.socket_path))
        self.host, self.rest = "localhost", b""


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)


class Server:
    def __init__(self, data, log_path, binary=BINARY):
        self.data, self.log_path, self.binary = pathlib.Path(data), pathlib.Path(log_path), binary
        self.process = None

    @property
    def socket_path(self):
        return self.data / "tallyman.sock"

    @property
    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self, ready=True):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([self.binary, "serve", "--data", str(self.data), *FLAGS], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        if ready:
            wait_for(self.is_ready, "readiness")
        return self

    def is_ready(self):
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log[-3000:]}"
        try:
            answer = self.request("GET", "/readyz", timeout=5)
        except OSError:
            return False
        assert answer.status == 200 or b"index: " in answer.body or b"starting" in answer.body, answer.body
        return answer.status == 200

    def request(self, method, path, body=None, headers=None, timeout=STEP_S):
        connection = Connection(self.socket_path, timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, headers=None, timeout=STEP_S):
        return self.request("GET", path, headers=headers, timeout=timeout)

    def append(self, body):
        return self.request("POST", "/v1/events", body, JSON)

    def history(self):
        """The bytes of all events."""
        parts, after = [], None
        while True:
            answer = self.get("/v1/events?limit=100000" + (f"&after={after}" if after else ""), NDJSON)
            assert answer.status == 200, answer.body
            at = answer.body.rstrip(b"\n").rfind(b"\n") + 1
            page = json.loads(answer.body[at:])
            assert page["type"] == "page", page
            parts.append(answer.body[:at])
            if page["next_after"] == page["snapshot_through_event_id"]:
                return b"".join(parts)
            after = page["next_after"]

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(STEP_S)
            self.process = None

    def stop(self):
        self.process.terminate()
        code = self.process.wait(STEP_S)
        self.process = None
        return code

    def cli(self, *words):
        return subprocess.run([self.binary, *words, "--data", str(self.data)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=STEP_S)

    def verify(self):
        result = self.cli("verify", "--chain", "--json")
        assert result.returncode in (0, 3), (result.returncode, result.stdout, result.stderr)
        report = json.loads(result.stdout)
        assert result.returncode == 0 and report["ok"], report
        return report
