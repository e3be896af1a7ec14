"""A small HTTP server for tests of the client: it answers what the test tells it to, also what no real server would.

`Fake(handler)` listens on a Unix socket (DIR/tallyman.sock) or on TCP. handler(request) gives a Reply, or one of the
misbehaviours Cut, Reset, Hang. Every request is kept in .requests. Use it as a context manager: leaving it ends its threads.
"""
import hashlib
import json
import os
import socket
import struct
import threading


class Request:
    def __init__(self, method, target, headers, body):
        self.method, self.target, self.headers, self.body = method, target, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def path(self):
        return self.target.split("?", 1)[0]

    @property
    def query(self):
        """Pairs as they stand, still encoded."""
        _, _, query = self.target.partition("?")
        return dict(pair.split("=", 1) for pair in query.split("&") if pair)


class Reply:
    def __init__(self, status=200, body=b"", headers=()):
        self.status, self.headers = status, list(headers)
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()

    def bytes(self):
        lines = [f"HTTP/1.1 {self.status} X", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


class Cut:
    """Sends these bytes, then closes."""

    def __init__(self, data=b""):
        self.data = data


class Drip:
    """A whole reply, in pieces with pauses between them."""

    def __init__(self, reply, pieces, pause):
        self.reply, self.pieces, self.pause = reply, pieces, pause


class Reset:
    """Closes with a reset where the transport has one."""


class Hang:
    """Says nothing until the server ends."""


def error(status, code, headers=(), **members):
    return Reply(status, {"error": code, "message": f"the words of {code}", **members}, headers)


def event_id(n):
    """A UUIDv7 that rises with n."""
    return f"01930000-0000-7000-8000-{n:012x}"


class Fake:
    def __init__(self, handler, directory=None):
        self.handler = handler
        self.requests = []
        self.ended = threading.Event()
        if directory is not None:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(os.path.join(directory, "tallyman.sock"))
            self.options = ["--data", str(directory)]
        else:
            self.listener = socket.socket()
            self.listener.bind(("127.0.0.1", 0))
            self.options = ["--url", "http://127.0.0.1:%d" % self.listener.getsockname()[1]]
        self.listener.listen(16)
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.connections = []

    def __enter__(self):
        self.threads[0].start()
        return self

    def __exit__(self, *unused):
        self.ended.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()

    def accept(self):
        while not self.ended.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            thread = threading.Thread(target=self.serve, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            try:
                while self.one(connection, stream):
                    pass
            except OSError:
                pass

    def one(self, connection, stream):
        if stream.peek(1)[:1] == b"\x16":  # somebody begins a TLS session
            connection.sendall(b"HTTP/1.1 400 X\r\n\r\n")
            return False
        first = stream.readline().decode()
        if not first.strip():
            return False
        method, target, _ = first.split(" ")
        headers = {}
        for line in iter(stream.readline, b"\r\n"):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("expect"):
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = stream.read(int(headers.get("content-length", 0)))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        answer = self.handler(request)
        if isinstance(answer, Hang):
            self.ended.wait(60)
            return False
        if isinstance(answer, Reset):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if isinstance(answer, Cut):
            connection.sendall(answer.data)
            return False
        if isinstance(answer, Drip):
            data = answer.reply.bytes()
            size = -(-len(data) // answer.pieces)
            for at in range(0, len(data), size):
                connection.sendall(data[at:at + size])
                self.ended.wait(answer.pause)
            return True
        connection.sendall(answer.bytes())
        return True


class Journal:
    """What `POST /v1/events` does, in memory: receipts, duplicates, conflicts."""

    def __init__(self):
        self.events = []
        self.batches = {}

    def __call__(self, request):
        body = request.json()
        key = body["source"], body["batch_id"]
        digest = hashlib.sha256(json.dumps(body["events"], sort_keys=True).encode()).hexdigest()
        if key in self.batches:
            receipt = self.batches[key]
            if receipt["batch_digest"] != digest:
                return error(409, "batch_id_conflict", source=key[0], batch_id=key[1], events=receipt["events"])
            return Reply(200, {**receipt, "status": "duplicate"})
        first = len(self.events)
        self.events += body["events"]
        self.batches[key] = {
            "status": "committed",
            "batch_digest": digest,
            "events": len(body["events"]),
            "first_event_id": event_id(first),
            "last_event_id": event_id(len(self.events) - 1),
        }
        return Reply(200, self.batches[key])
