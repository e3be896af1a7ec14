"""A client that follows, in both forms, and believes nothing: records and frames are checked as they come.

Follower reads one connection: every event goes through take(), which refuses what is not behind the one before it. end is the
reason of the end record; cut is True when the connection ended without one.
"""
import json
import socket
import urllib.parse

RECORDS = {
    "events": {"type", "phase", "events", "last_event_id", "next_after", "snapshot_through_event_id"},
    "caught_up": {"type", "next_after", "snapshot_through_event_id", "snapshot"},
    "end": {"type", "reason", "last_event_id", "detail"},
}
OPTIONAL = {"last_event_id", "detail"}


class Follower:
    def __init__(self, server, sse=False, timeout=30, unix=False, last_event_id=None, rcvbuf=None, **query):
        self.sse = sse
        self.after = query.get("after") or ""
        self.cursor = query.get("after")  # where to go on
        self.events, self.records, self.frames = [], [], []
        self.comments = 0
        self.caught_up = None
        self.end = None
        self.cut = False
        self.closed = False
        self.buffer = b""
        self.text = b""  # of the body, from the first incomplete record on
        self.chunked = None
        target = "/v1/events?" + urllib.parse.urlencode({"follow": "true", **query})
        if unix:
            self.sock = socket.socket(socket.AF_UNIX)
            address = server.socket_path
        else:
            self.sock = socket.socket()
            address = (server.host, server.port)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(timeout)
        self.sock.connect(address)
        lines = [f"GET {target} HTTP/1.1", "Host: localhost"]
        lines += ["Accept: text/event-stream"] if sse else []
        lines += [f"Last-Event-ID: {last_event_id}"] if last_event_id else []
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.headers = None

    def close(self):
        self.sock.close()

    # ---- bytes ----

    def feed(self, data):
        """Bytes from the connection; b"" is its end."""
        if not data:
            self.closed = True
            self.cut = self.end is None or self.chunked is not True
            return
        self.buffer += data
        if self.headers is None:
            if b"\r\n\r\n" not in self.buffer:
                return
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            first, *lines = head.decode().split("\r\n")
            self.status = int(first.split()[1])
            self.headers = {n.lower(): v for n, v in (line.split(": ", 1) for line in lines)}
        while self.chunked is not True:
            size, found, rest = self.buffer.partition(b"\r\n")
            n = int(size, 16) if found else 0
            if not found or len(rest) < n + 2:
                break
            assert rest[n:n + 2] == b"\r\n"
            self.text += rest[:n]
            self.buffer = rest[n + 2:]
            if n == 0:
                self.chunked = True  # whole
        self.take_text()
        assert self.chunked is not True or (self.text == b"" and self.end is not None)

    def read(self):
        """Waits for bytes once."""
        try:
            self.feed(self.sock.recv(262144))
        except ConnectionResetError:
            self.feed(b"")

    def until(self, condition):
        while not condition(self):
            assert not self.closed, (self.end, self.cut, len(self.events))
            self.read()
        return self

    def until_closed(self):
        while not self.closed:
            self.read()
        return self

    def until_caught_up(self):
        return self.until(lambda f: f.caught_up is not None)

    # ---- what the bytes say ----

    def take_text(self):
        mark = b"\n\n" if self.sse else b"\n"
        *whole, self.text = self.text.split(mark)
        for piece in whole:
            assert self.end is None, piece
            if self.sse:
                self.take_frame(piece.decode())
            else:
                self.take_record(json.loads(piece))

    def take_frame(self, frame):
        fields = {}
        for line in frame.split("\n"):
            if line.startswith(":"):
                self.comments += 1
                continue
            name, value = line.split(": ", 1)
            assert name in ("data", "id", "event") and name not in fields, frame
            fields[name] = value
        if not fields:
            return
        self.frames.append(fields)
        if "event" in fields:
            assert "id" not in fields
            self.take_other(json.loads(fields["data"]), fields["event"])
            return
        if "data" in fields:
            e = json.loads(fields["data"])
            assert fields["id"] == e["event_id"]
            self.take(e)
        assert self.cursor is None or fields["id"] >= self.cursor
        self.cursor = fields["id"]

    def take_record(self, record):
        self.records.append(record)
        if record["type"] != "events":
            self.take_other(record, record["type"])
            return
        names = RECORDS["events"]
        assert set(record) <= names and names - set(record) <= OPTIONAL, record
        assert record["phase"] == ("snapshot" if self.caught_up is None else "live")
        for e in record["events"]:
            self.take(e)
        assert ("last_event_id" in record) == bool(record["events"])
        if record["events"]:
            assert record["last_event_id"] == record["events"][-1]["event_id"]
            assert record["next_after"] >= record["last_event_id"]
        if record["next_after"] is not None:
            assert self.cursor is None or record["next_after"] >= self.cursor
        self.cursor = record["next_after"]

    def take_other(self, record, name):
        assert record["type"] == name
        names = RECORDS[name]
        assert set(record) <= names and names - set(record) <= OPTIONAL - ({"last_event_id"} if name == "end" else set())
        if name == "caught_up":
            assert self.caught_up is None
            assert self.sse or self.records[0]["type"] == "events"
            self.caught_up = record
            return
        last = self.events[-1]["event_id"] if self.events else None
        assert record["last_event_id"] == last
        self.end = record["reason"]

    def take(self, e):
        assert e["event_id"] > (self.events[-1]["event_id"] if self.events else self.after), "doubled, or out of order"
        self.events.append(e)

    @property
    def ids(self):
        return [e["event_id"] for e in self.events]
