"""Damaged requests over the wire: whatever is done to a valid request of any dialect in any encoding, the server answers it or closes
the connection, stays up, and what it took can be delivered. Best with a sanitized binary; the parsers have fuzzers of their own (tests/fuzz).

SEED, which is printed, and FUZZ_REQUESTS come from the environment. Request i of a seed is always the same.
"""
import base64
import copy
import gzip
import json
import os
import random
import re
import socket
import threading
import time
import uuid
import zlib

from capture_kit import Door, assert_sound, basic, quote, wait
from fake_clickhouse import FakeClickHouse

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
REQUESTS = int(os.environ.get("FUZZ_REQUESTS") or 2000)
BUDGET_S = 20
CLIENTS = 4

SINGLE = ["/e/", "/i/v0/e/", "/capture/", "/track/", "/engage/"]
BATCH = ["/batch/", "/i/v0/ai", "/i/v0/ai/batch"]
SEGMENT = ["/v1/batch", "/v1/import", "/v1/b"]
CALLS = ["track", "identify", "page", "screen", "group", "alias", "t", "i", "p", "s", "g", "a"]
ODD = [None, True, False, 0, -1, 1e308, 10 ** 30, "", " ", "\0", "\ud800", "\u2028\u0085", "x" * 300, [], {}, [[]], {"": ""}, "2026-13-45T99:99:99Z",
       "9999-12-31T23:59:59Z", "0000-00-00", "1", -2 ** 63, 2 ** 64, "ÿ", "null", "$identify", "$performance_event"]
BYTES = [b"\0", b"\xff", b"\"", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\r\n", b"%", b"&", b"=", b"+", b"\x1f\x8b\x08", b"\xc2\x8b", b"\\u0000",
         b"\\ud800", b"1e999", b"-", b"9" * 40, b" " * 100, b"[" * 600, b"{\"a\":" * 600, b"\xef\xbb\xbf", b"\xe2\x80\xa8"]


class Maker:
    """Valid requests, then damaged ones."""

    def __init__(self, door):
        self.project = door.project()
        self.writer = self.project.key("service", "w", ["events:write"])
        self.admin = self.project.key("service", "a", ["projects:admin", "events:read", "query:read"])
        self.known = [str(uuid.UUID(int=n + 1)) for n in range(5)]

    def event(self, rng):
        event = {"event": rng.choice(["e", "$pageview", "$identify"]), "distinct_id": rng.choice(["d", 5, "ü"]),
                 "properties": {"a": rng.choice([1, "x", None, [1, {"b": 2}], "\u0000"]), "$session_id": "s", "$lib": "web", "$lib_version": "1"},
                 "timestamp": "2026-11-30T12:00:00.123Z", "offset": 5, "uuid": rng.choice(self.known + [str(uuid.UUID(int=rng.getrandbits(128)))])}
        for name in list(event):
            if name not in ("event", "distinct_id") and rng.random() < 0.4:
                del event[name]
        return event

    def call(self, rng):
        return {"type": rng.choice(CALLS[:6]), "userId": rng.choice(["u", 7]), "anonymousId": "a", "event": "e", "name": "n", "groupId": "g",
                "previousId": "v", "messageId": rng.choice(["m1", "m2", str(rng.random())]), "originalTimestamp": "2026-11-30T12:00:00Z",
                "sentAt": "2026-11-30T12:00:01Z", "context": {"library": {"name": "x", "version": "1"}, "sessionId": 5}, "properties": {"p": 1}}

    def valid(self, rng):
        """(path, headers, value, dialect)"""
        kind = rng.randrange(7)
        token = self.project.token
        if kind == 6:
            return self.beside(rng)
        if kind == 0:
            return rng.choice(SINGLE), {}, {"api_key": token, **self.event(rng)}, "posthog"
        if kind == 1:
            batch = [self.event(rng) for _ in range(rng.randrange(1, 6))]
            value = {"api_key": token, "batch": batch, "sent_at": "2026-11-30T12:00:01Z"} if rng.random() < 0.7 else \
                [{**e, "token": token} for e in batch]
            return rng.choice(BATCH + SINGLE), {}, value, "posthog"
        if kind == 2:
            headers = {"Authorization": f"Bearer {token}", "PostHog-Sdk-Info": "posthog-js/1.0", "PostHog-Attempt": "1",
                       "PostHog-Request-Id": str(uuid.UUID(int=rng.getrandbits(128))), "PostHog-Request-Timestamp": "2026-11-30T12:00:00Z"}
            batch = [{"event": "v1", "distinct_id": "d", "timestamp": "2026-11-30T12:00:00Z", "uuid": str(uuid.UUID(int=rng.getrandbits(128))),
                      "session_id": "s", "options": {"cookieless_mode": True}, "properties": {"a": 1}} for _ in range(rng.randrange(1, 4))]
            return "/i/v1/analytics/events", headers, {"created_at": "2026-11-30T12:00:00Z", "batch": batch}, "v1"
        if kind == 3:
            value = {"batch": [self.call(rng) for _ in range(rng.randrange(1, 6))], "context": {"ip": "1"}, "integrations": {}}
            return rng.choice(SEGMENT), {"Authorization": basic(token)}, value, "segment"
        if kind == 4:
            return "/v1/" + rng.choice(CALLS), {}, {**self.call(rng), "writeKey": token}, "segment"
        events = [{"event": "n", "message_id": rng.choice(["a", "b", str(rng.random())]), "type": "track", "timestamp": "2026-11-30T12:00:00Z",
                   "properties": {"a": 1}, "context": {}} for _ in range(rng.randrange(1, 4))]
        return self.project.api + "/events", {"Authorization": f"Bearer {self.writer}"}, {"source": "s", "events": events}, "native"

    def beside(self, rng):
        """Routes that take no events."""
        api = self.project.api
        path, value = rng.choice([
            ("/flags/?v=2&config=true", {"token": self.project.token, "distinct_id": "d"}), ("/decide/?v=3", {"api_key": self.project.token}),
            (f"/array/{self.project.token}/config", {}), (f"/array/{self.project.token}/config.js", {}), ("/static/x", {}),
            (f"/v1/projects/{self.project.token}/settings", {}), ("/api/v1/projects", {"id": f"f{rng.randrange(50)}", "name": "n"}),
            (api, {}), (api + "/keys", {"kind": rng.choice(["service", "segment"]), "name": "n", "scopes": ["query:read"]}),
            (api + "/status", {}), (api + "/rejected?limit=10&after_id=0", {}), (api + "/query", {"sql": "select 1", "format": "csv"}),
            ("/api/v1/status", {})])
        return path, {"Authorization": f"Bearer {self.admin}"}, value, "beside"

    def request(self, i):
        """Request i: its bytes, and whether its head was damaged."""
        rng = random.Random(f"{SEED}-{i}")
        path, headers, value, dialect = self.valid(rng)
        if rng.random() < 0.5:
            value = damage_value(rng, value)
        body = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        if rng.random() < 0.3:
            body = damage_bytes(rng, body)
        body, path = encode(rng, dialect, body, path, headers)
        if rng.random() < 0.3:
            body = damage_bytes(rng, body)
        weights = [50, 45, 5] if dialect == "beside" else [95, 4, 1]
        method = rng.choices(["POST", "GET", "PUT"], weights)[0]
        chunked = rng.random() < 0.15
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *(f"{k}: {v}" for k, v in headers.items())]
        lines.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        if chunked:
            cut = rng.randrange(len(body) + 1)
            body = b"".join(b"%x\r\n" % len(part) + part + b"\r\n" for part in (body[:cut], body[cut:]) if part) + b"0\r\n\r\n"
        damaged = dialect == "beside"
        if rng.random() < 0.15:
            damaged = True
            head = damage_bytes(rng, head)
        return head + body, damaged


def damage_value(rng, value):
    """Something in the tree is another thing, twice there, or gone."""
    for _ in range(rng.randrange(1, 4)):
        at = value
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(at[key], (dict, list)) and rng.random() < 0.7:
                at = at[key]
                continue
            what = rng.randrange(4)
            if what == 0:
                del at[key]
            elif what == 1 and isinstance(at, dict):
                at[rng.choice(["timestamp", "uuid", "event", "type", "properties", "context", "batch", "", "\ud800", "x" * 200])] = at[key]
            else:
                at[key] = copy.deepcopy(rng.choice(ODD))
            break
    return value


def damage_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(6)
        if what == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif what == 1:
            data[at:at] = rng.choice(BYTES)
        elif what == 2:
            del data[at:at + rng.choice([1, 1, 4, 50])]
        elif what == 3:
            del data[at:]
        elif what == 4:
            data[at:at] = data[at:at + rng.randrange(1, 100)]
        else:
            data[at:at + 1] = bytes([rng.randrange(256)])
    return bytes(data)


def encode(rng, dialect, body, path, headers):
    if dialect == "beside":
        headers["Content-Type"] = "application/json"
        return body, damage_bytes(rng, path.encode()).decode("latin-1").replace(" ", "%20") if rng.random() < 0.3 else path
    ways = ["plain", "gzip"] + (["deflate", "raw-deflate"] if dialect != "native" else [])
    if dialect == "posthog":
        ways += ["gzip-js", "gzip-param", "base64", "form", "form-base64", "query", "query-base64", "text", "gzip-looks"]
    way = rng.choice(ways)
    headers["Content-Type"] = "application/json"
    if way == "gzip":
        headers["Content-Encoding"] = rng.choice(["gzip", "x-gzip", "GZIP", "br", "gzip, gzip"]) if rng.random() < 0.3 else "gzip"
        return gzip.compress(body, 1, mtime=0), path
    if way in ("deflate", "raw-deflate"):
        headers["Content-Encoding"] = "deflate"
        packer = zlib.compressobj(1, zlib.DEFLATED, 15 if way == "deflate" else -15)
        return packer.compress(body) + packer.flush(), path
    if way == "gzip-js":
        return gzip.compress(body, 1, mtime=0).decode("latin-1").encode(), path + "?compression=gzip-js"
    if way == "gzip-param":
        return gzip.compress(body, 1, mtime=0), path + "?compression=gzip&_=1796000000000&ver=1&beacon=1"
    if way == "gzip-looks":
        return gzip.compress(gzip.compress(body, 1, mtime=0), 1, mtime=0) if rng.random() < 0.2 else gzip.compress(body, 1, mtime=0), path
    text = base64.b64encode(body)
    if way == "base64":
        return text, path
    if way.startswith("form"):
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        data = quote(text.decode() if way == "form-base64" else body.decode("latin-1"))
        return b"data=" + data.encode() + rng.choice([b"", b"&compression=base64", b"&compression=lz64", b"&_=5"]), path
    if way.startswith("query"):
        data = quote(text.decode()) if way == "query-base64" else "".join(f"%{c:02x}" for c in body)
        return b"", path + "?data=" + data[:12000]
    if way == "text":
        headers["Content-Type"] = "text/plain"
    return body, path


def send(door, data):
    with socket.create_connection((door.server.host, door.server.port), 20) as sock:
        got = b""
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(65536):
                got += more
        except (ConnectionResetError, BrokenPipeError):
            pass  # what follows a refusal is not read for ever
        return got


def test_damaged_requests(make_server):
    """Proves: damaged requests to all routes, in all dialects and encodings, are never a 5xx that says that the server is at fault, never a crash, and what was
    taken of them can be delivered; afterwards the files are sound."""
    print("SEED", SEED)
    with FakeClickHouse() as far:
        door = Door(make_server("--clickhouse-url", far.url), far)
        maker = Maker(door)
        lock, failures, statuses, next_one = threading.Lock(), [], {}, [0]
        end = time.monotonic() + BUDGET_S

        def client():
            while not failures and time.monotonic() < end:
                with lock:
                    i = next_one[0]
                    next_one[0] += 1
                if i >= REQUESTS:
                    return
                try:
                    data, damaged = maker.request(i)
                    got = send(door, data)
                    found = [int(s) for s in re.findall(rb"HTTP/1\.1 (\d\d\d) ", got)]
                    for status in found:
                        # 501 and 505 speak of the head: a transfer coding, a version.
                        assert status < 500 or status == 503 or (damaged and status in (501, 505)), (i, status, got[:500], data[:500])
                    assert damaged or found or b"Content-Length" not in data, (i, "no answer", data[:500])
                    with lock:
                        for status in found:
                            statuses[status] = statuses.get(status, 0) + 1
                except BaseException as failure:
                    failures.append((i, failure))
        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BUDGET_S + 60)
        print(sorted(statuses.items()), "of", min(next_one[0], REQUESTS), "requests")
        assert not failures, failures[0]
        assert door.server.process.poll() is None, door.server.log[-3000:]
        # It was no test when nothing came through, or when nothing was refused.
        assert statuses.get(200, 0) > next_one[0] // 10 and statuses.get(400, 0) > next_one[0] // 20, statuses
        wait(lambda: maker.project.delivery()["pending"] == 0, "delivery of all that was taken")
        assert len(far.logical(maker.project.name)) == door.receipts()
        assert_sound(door.server)
