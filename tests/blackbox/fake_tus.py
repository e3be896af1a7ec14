"""An artifact door in memory for tests of the client: tus 1.0.0 and receipts, and any trouble the test asks for.

`FakeTus(directory)` listens as Fake does. `faults` is a list of (method, fault): the first one of a request's method is taken
out and decides about that request. Digests are believed, not computed.
"""
import base64
import itertools
import json
import re
import socket
import struct

from fake_server import Fake, Reply, Request


class Instead:
    """The reply instead of what the door would do; reads `read` bytes of the body first (None: all), and stores `keep`."""

    def __init__(self, status, body=b"", headers=(), read=None, keep=0, close=False):
        self.reply = Reply(status, body, headers)
        self.read, self.keep, self.close = read, keep, close


class Cut:
    """Stores so much of the body, then the connection is closed; with a reset if asked for; with a pause after each piece."""

    def __init__(self, keep, reset=False, piece=1 << 20, pause=0):
        self.keep, self.reset, self.piece, self.pause = keep, reset, piece, pause


class Raw:
    """These bytes as the answer, and the end of the connection."""

    def __init__(self, data):
        self.data = data


class Lost:
    """Everything is done, and no answer arrives."""


class Tweak:
    """The door's own reply, changed by a function of the reply."""

    def __init__(self, change):
        self.change = change


class Stall:
    """Stores so much of the body, then nothing happens until the server ends or `go` is set."""

    def __init__(self, keep):
        self.keep = keep


class Slow:
    """Takes the body in pieces with pauses."""

    def __init__(self, piece, pause):
        self.piece, self.pause = piece, pause


def text(code, words="the words"):
    return f"{code}: {words}\n".encode()


class Upload:
    def __init__(self, length, metadata):
        self.length, self.metadata = length, metadata
        self.data = bytearray()
        self.receipt = None


class FakeTus(Fake):
    def __init__(self, directory=None, faults=(), location="/files/{id}"):
        super().__init__(None, directory)
        self.faults = list(faults)
        self.location = location
        self.uploads = {}
        self.ids = (f"{n:032x}" for n in itertools.count(0xabc))
        self.before_body = None
        self.expires = "Sat, 28 Nov 2093 10:00:00 GMT"

    # ---- what happened ----

    def log(self):
        return [r.method for r in self.requests]

    @property
    def accepted(self):
        return [u for u in self.uploads.values() if u.receipt]

    # ---- the wire ----

    def take_fault(self, method):
        for at, (wanted, fault) in enumerate(self.faults):
            if wanted == method:
                del self.faults[at]
                return fault
        return None

    def one(self, connection, stream):
        first = stream.readline().decode()
        if not first.strip():
            return False
        method, target, _ = first.split(" ")
        headers = {}
        for line in iter(stream.readline, b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        request = Request(method, target, headers, b"")
        self.requests.append(request)
        fault = self.take_fault(method)
        length = int(headers.get("content-length", 0))
        if isinstance(fault, Instead) and fault.read == 0:
            connection.sendall(fault.reply.bytes())
            return False
        if headers.get("expect"):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.before_body:
            self.before_body(request)
        if isinstance(fault, Instead) and fault.read is not None:
            length = fault.read
        if isinstance(fault, (Cut, Stall)):
            length = fault.keep
        body = bytearray()
        while len(body) < length:
            piece = fault.piece if isinstance(fault, (Slow, Cut)) else 1 << 20
            got = stream.read(min(piece, length - len(body)))
            if not got:
                break
            body += got
            if isinstance(fault, (Slow, Cut)):
                self.ended.wait(fault.pause)
        request.body = bytes(body)
        return self.answer(connection, request, fault)

    def answer(self, connection, request, fault):
        if isinstance(fault, Instead):
            self.store(request, request.body[:fault.keep])
            connection.sendall(fault.reply.bytes())
            return not fault.close and fault.read is None
        if isinstance(fault, (Cut, Stall)):
            self.store(request, request.body)
            if isinstance(fault, Stall):
                self.ended.wait(60)
            elif fault.reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        reply = self.handle(request)
        if isinstance(fault, Raw):
            connection.sendall(fault.data)
            return False
        if isinstance(fault, Lost):
            return False
        if isinstance(fault, Tweak):
            reply = fault.change(reply) or reply
        data = reply.bytes()
        if request.method == "HEAD":
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        connection.sendall(data)
        return True

    # ---- the door ----

    def store(self, request, body):
        upload = self.uploads.get(request.path.rsplit("/", 1)[1])
        if upload:
            upload.data += body

    def handle(self, request):
        if request.method == "POST":
            return self.create(request)
        name = request.path.rsplit("/", 1)[1]
        upload = self.uploads.get(name)
        if request.method == "GET":
            if not upload:
                return Reply(404, {"error": "not_found", "message": "there is no such object"})
            if not upload.receipt:
                return Reply(409, {"error": "not_accepted", "message": "the upload is not accepted"})
            return Reply(200, json.dumps(upload.receipt).encode() + b"\n")
        if request.headers.get("tus-resumable") != "1.0.0":
            return Reply(412)
        if not upload:
            return Reply(404, text("ERR_UPLOAD_NOT_FOUND"))
        if request.method == "HEAD":
            return Reply(200, b"", [("Upload-Offset", len(upload.data)), ("Upload-Length", upload.length),
                                    ("Upload-Expires", self.expires), *self.receipt_header(upload)])
        assert request.method == "PATCH"
        assert request.headers["content-type"] == "application/offset+octet-stream"
        if int(request.headers["upload-offset"]) != len(upload.data):
            return Reply(409, text("ERR_MISMATCHED_OFFSET"), [("Upload-Offset", len(upload.data))])
        upload.data += request.body
        if len(upload.data) == upload.length:
            self.settle(name, upload)
        return Reply(204, b"", [("Upload-Offset", len(upload.data)), ("Upload-Expires", self.expires),
                                *self.receipt_header(upload)])

    def create(self, request):
        assert re.fullmatch(r"/(\w+/)?files/", request.path), request.path
        assert request.headers["tus-resumable"] == "1.0.0"
        metadata = {}
        for pair in request.headers["upload-metadata"].split(","):
            key, _, value = pair.partition(" ")
            metadata[key] = base64.b64decode(value, validate=True)
        name = next(self.ids)
        self.uploads[name] = Upload(int(request.headers["upload-length"]), metadata)
        return Reply(201, b"", [("Location", self.location.format(id=name)), ("Upload-Expires", self.expires)])

    def settle(self, name, upload):
        upload.receipt = {"id": f"receipt:{name}", "issuer": "http://fake.test", "object_id": name,
                          "checksum": upload.metadata["checksum"].decode(), "size_bytes": upload.length,
                          "accepted_at": 1784764800}

    def receipt_header(self, upload):
        if not upload.receipt:
            return []
        return [("Artifact-Receipt", encode(upload.receipt))]


def encode(receipt):
    data = receipt if isinstance(receipt, bytes) else json.dumps(receipt, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def without(reply, *names):
    """The reply without these headers."""
    return Reply(reply.status, reply.body, [(k, v) for k, v in reply.headers if k.lower() not in names])
