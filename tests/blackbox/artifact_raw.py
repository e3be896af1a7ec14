"""The artifact door over raw sockets, where every answer is looked at for what it must have.

Requests carry an Origin: whatever an answer of /files says, it has CORS, the exposed headers, no-store and the version.
"""
import base64
import contextlib
import os
import re
import socket

import pytest
from artifact_world import BODY, ENV, TUS, Artifacts
from conftest import Server
from tracer import Attached
from world import SANITIZED

MIB = 1 << 20
UNKNOWN = "0123456789abcdef0123456789abcdef"
PAGE = "https://page.example"
EXPOSED = {"location", "upload-offset", "upload-length", "upload-metadata", "upload-expires", "tus-resumable", "tus-version", "tus-extension",
           "tus-max-size", "tus-checksum-algorithm", "artifact-receipt", "retry-after", "upload-defer-length", "upload-concat"}
# LeakSanitizer does not work under ptrace.
UNTRACED = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if SANITIZED else {}
ALONE = ("--no-deliver", "--min-free-bytes", "1")


class Raw:
    """One answer, from its bytes."""

    def __init__(self, text):
        self.text = text
        head, mark, self.body = text.partition(b"\r\n\r\n")
        assert mark, f"no whole answer: {text!r}"
        lines = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z -]+", lines[0])
        assert match, lines[0]
        self.status = int(match[1])
        self.pairs = [(k.lower(), v) for k, v in (line.split(": ", 1) for line in lines[1:])]
        self.headers = dict(self.pairs)

    def fits(self, status, code=None):
        assert self.status == status, self.text
        if code is not None:
            assert self.body.startswith(f"ERR_{code.upper()}: ".encode()) and self.body.endswith(b"\n"), self.text
        return self

    @property
    def offset(self):
        return int(self.headers["upload-offset"])

    def has_what_pages_need(self):
        """On every answer of /files to a page."""
        assert self.headers["access-control-allow-origin"] == PAGE, self.text
        assert {name.lower() for name in self.headers["access-control-expose-headers"].split(", ")} == EXPOSED, self.text
        assert "Origin" in [v for k, v in self.pairs if k == "vary"], self.text
        assert [v for k, v in self.pairs if k == "tus-resumable"] == ["1.0.0"], self.text
        assert [v for k, v in self.pairs if k == "cache-control"] == ["no-store"], self.text


def head_of(method, path, headers, version="1.1"):
    fields = [("Host", "t"), ("Origin", PAGE), *(headers.items() if isinstance(headers, dict) else headers)]
    return f"{method} {path} HTTP/{version}\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode("latin-1") for k, v in fields) + b"\r\n"


def read_all(sock):
    text = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            text += piece
    return text


def read_answer(sock):
    """The head of an answer, on a connection that stays."""
    text = b""
    while b"\r\n\r\n" not in text:
        piece = sock.recv(65536)
        assert piece, f"the connection ended: {text!r}"
        text += piece
    return text


class Cases(Artifacts):
    """The world of artifacts, asked over raw sockets."""

    def dial(self, timeout=30):
        return socket.create_connection((self.server.host, self.server.port), timeout)

    def say(self, method, path, headers=(), body=b"", sized=True):
        """One request on one connection, and its answer, checked."""
        fields = [*(headers.items() if isinstance(headers, dict) else headers), ("Connection", "close")]
        if sized and (body or method in ("POST", "PATCH")):
            fields.append(("Content-Length", len(body)))
        with self.dial() as sock:
            with contextlib.suppress(ConnectionError):  # an early refusal
                sock.sendall(head_of(method, path, fields) + body)
            answer = Raw(read_all(sock))
        if path.startswith("/files"):
            answer.has_what_pages_need()
        return answer

    def make(self, content, name=None, sent=0):
        """An upload that has its first `sent` bytes."""
        file = self.new(content, name)
        assert self.create(file, file.content[:sent] if sent else None).status == 201
        assert file.told == sent
        return file

    def post(self, headers, body=b""):
        return self.say("POST", "/files/", headers, body)

    def creation(self, length=10, metadata=None, *more, digest="0" * 64):
        """Headers of a creation; metadata: instead of the usual list."""
        if metadata is None:
            metadata = words({"project": "files", "checksum": f"blake3:{digest}"})
        return [*TUS.items(), *([("Upload-Length", length)] if length is not None else []), ("Upload-Metadata", metadata), *more]

    def append(self, file, offset, body, *more, path=None):
        answer = self.say("PATCH", path or file.path, [*BODY.items(), ("Upload-Offset", offset), *more], body)
        file.hears(answer)
        return answer

    def stored(self, file):
        return (self.data / "uploads" / file.id).read_bytes()

    def begin(self, file, offset, length, *more):
        """A PATCH whose body is to come."""
        sock = self.dial()
        sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", offset), ("Content-Length", length), *more]))
        return sock

    def received(self):
        return self.server.metric("tallyman_artifact_received_bytes_total")


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def b64(value):
    return base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()


def words(pairs):
    return ",".join(f"{k} {b64(v)}" for k, v in pairs.items())


def usual(**more):
    return words({"project": "files", "checksum": "blake3:" + "0" * 64, **more})


def chunked(*pieces):
    return b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in (*pieces, b""))


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """One server for all that leaves it as it was; without a deliverer."""
    path = tmp_path_factory.mktemp("cases")
    server = Server(path / "data", *ALONE, env={**ENV, **UNTRACED}).start()
    world = Cases(server, path)
    try:
        yield world
        assert server.stop() == 0
        world.check_disk()
        world.verify()
    finally:
        if server.process is not None:
            server.kill()
            print(server.log[-8000:])


@pytest.fixture
def own(make_server, workdir):
    """A server of the test's own: own(*flags)."""
    def make(*args, start=True, **kw):
        return Cases(make_server(*(args or ALONE), env={**ENV, **UNTRACED}, start=start, **kw), workdir)
    return make


def attached(world, *injects, paths=(), calls):
    world.traces = getattr(world, "traces", 0) + 1
    return Attached(world.server, world.workdir / f"trace.{world.traces}", *injects, paths=paths, calls=calls)
