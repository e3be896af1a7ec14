#!/usr/bin/python3
"""A fake Internet Archive: its S3 side, its metadata side, and any trouble a test asks for. For tests and by hand:

    with FakeArchive() as archive: ... archive.s3, archive.front (URLs), archive.faults, archive.items, archive.violations
    python3 fake_archive.py --port 0     prints its URLs as JSON and runs until it is told to end

What is asked of the S3 side: objects (PUT, GET, HEAD, DELETE), items (PUT, GET, HEAD), `?check_limit`, `?log`, multipart. Of
the front: /metadata/ID[/...], /download/ID/KEY, /services/check_identifier.php, and /_fake/... for tests in other processes
(GET state, requests, violations; POST faults, settings). Requests in absolute form are taken as a proxy would take them, so that
clients with the real hosts' names in their code can be pointed here.

Every request is kept, without secrets. What no client may do is kept in `violations` as (kind, words); answers are as if nothing
were wrong where the real one would not notice. A PUT is judged before its body where that can be: authorization, names, headers,
owner, spam, rations, sizes. Such a refusal answers in place of 100-continue, or at once when the client did not wait for it.

`faults` is a list that tests fill: the first fault that fits a request is used up by it (`times` says how often).
"""
import argparse
import fnmatch
import hashlib
import itertools
import json
import re
import signal
import socket
import struct
import sys
import threading
import time
import urllib.parse

from archive_items import (COLLECTION, DARK, ERRORS, HEADERS_MAX, IDENTIFIER, ITEM_BYTES_MAX, OWNER, REASONS, TOO_BIG, Account, File,
                           Item, Refused, Showing, check_key, decode_metadata, md5_matches)

PIECE = 1 << 16
HEAD_MAX = 1 << 18
LINGER_S = 2
WORDS = {100: "Continue", 200: "OK", 201: "Created", 204: "No Content", 206: "Partial Content", 307: "Temporary Redirect",
         400: "Bad Request", 403: "Forbidden", 404: "Not Found", 411: "Length Required", 500: "Internal Server Error",
         502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}
HTML = b"<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>\n"


class Fault:
    """What happens to the next request of kind `on` (PUT, GET, HEAD, DELETE, ITEM, LIMIT, METADATA, IDENTIFIER, DOWNLOAD, INITIATE,
    PART, COMPLETE; "*") whose item and key fit, after `skip` others did.

    code (with resource), or status and body: the answer. Without either the request goes its way.
    read     so many bytes of the body are taken first (None: all); 0 is an answer in place of 100-continue
    end      of the connection after an answer: "keep", "close" (what still comes is read), "drop" (it is not), "reset"
    store    a file is stored although the answer says otherwise
    lost     instead of an answer the connection ends as `end` says
    delay    seconds, or an Event, before the answer
    late     seconds before 100-continue; never: it is not sent at all
    stall    after so many bytes of the body nothing happens any more (until the archive ends)
    """

    def __init__(self, on="PUT", item="*", key="*", times=1, skip=0, code=None, resource="", status=None, body=None, headers=(),
                 read=None, end="close", store=False, lost=False, delay=0, late=0, never=False, stall=None):
        if code is not None:
            refused = Refused(code, resource, status)
            status, body = refused.status, refused.xml() if body is None else body
        self.on, self.item, self.key, self.times, self.skip = on, item, key, times, skip
        self.status, self.headers, self.body = status, list(headers), b"" if body is None else body
        if isinstance(self.body, str):
            self.body = self.body.encode()
        self.read, self.end, self.store, self.lost, self.delay = read, end, store, lost, delay
        self.late, self.never, self.stall = late, never, stall

    def fits(self, kind, item, key):
        return self.on in ("*", kind) and fnmatch.fnmatchcase(item, self.item) and fnmatch.fnmatchcase(key, self.key)


def slow_down(reason, item="", user="", **more):
    return Fault(code="SlowDown", resource=REASONS[reason].format(item=item, user=user), **{"read": 0, **more})


def bad_gateway(**more):
    return Fault(status=502, body=HTML, headers=[("Content-Type", "text/html")], **more)


def lost_answer(**more):
    """Stored, and never told."""
    return Fault(lost=True, store=True, **more)


def cut(read, end="reset", **more):
    """The connection ends in the body, without a word."""
    return Fault(lost=True, read=read, end=end, **more)


class Gone(Exception):
    """The connection has ended."""


class Wire:
    """One connection."""

    def __init__(self, sock):
        self.sock, self.buffer = sock, b""

    def fill(self):
        got = self.sock.recv(PIECE)
        self.buffer += got
        return len(got)

    def head(self):
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > HEAD_MAX or not self.fill():
                return None
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head.decode("latin-1")

    def read(self, n):
        """At most n bytes, b"" at the end."""
        if not self.buffer and not self.fill():
            return b""
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def send(self, data):
        self.sock.sendall(data)

    def end(self, how):
        """How many bytes came after the answer."""
        if how == "reset":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == "close":
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.settimeout(LINGER_S)
            stop = time.monotonic() + LINGER_S
            n = len(self.buffer)
            while time.monotonic() < stop:
                got = len(self.sock.recv(PIECE))
                n += got
                if not got:
                    break
            return n
        return 0


class Request:
    """One request as it came, its secrets struck out."""

    def __init__(self, head, connection):
        first, *lines = head.split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = []  # lower-case names, as they came
        for line in lines:
            name, _, value = line.partition(":")
            self.headers.append((name.lower(), value.strip(" \t")))
        self.connection, self.at, self.ended_at = connection, time.monotonic(), None
        self.head_bytes = len(head) + 4
        self.body_bytes = self.late_bytes = 0  # of the body, before and after the answer
        self.continued = False
        self.status = None  # of the answer, None: none
        self.kind = self.item = self.key = self.side = ""
        self.host = self.get("host") or ""
        self.query = {}
        self.credentials = ""  # as they came; forgotten when the request is over

    def get(self, name):
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def strike(self, secrets):
        for secret in secrets:
            self.target = self.target.replace(secret, "***")
            self.headers = [(name, value.replace(secret, "***")) for name, value in self.headers]

    def dump(self):
        members = ("method", "target", "headers", "kind", "item", "key", "side", "status", "body_bytes", "late_bytes", "head_bytes",
                   "continued", "connection")
        return {name: getattr(self, name) for name in members}

    def __repr__(self):
        return f"{self.method} {self.target} {self.body_bytes} -> {self.status}"


class Reply:
    def __init__(self, status=200, body=b"", headers=(), kind="application/json", length=None):
        self.status, self.kind = status, kind
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.headers = list(headers)
        self.length = len(self.body) if length is None else length

    def bytes(self, close, bodiless=False):
        lines = [f"HTTP/1.1 {self.status} {WORDS.get(self.status, 'X')}"]
        if self.status != 204:
            lines.append(f"Content-Length: {self.length}")
        if self.body and not any(name.lower() == "content-type" for name, _ in self.headers):
            lines.append(f"Content-Type: {self.kind}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        if close:
            lines.append("Connection: close")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (b"" if bodiless else self.body)


def refusal(error):
    return Reply(error.status, error.xml(), kind="application/xml")


class FakeArchive:
    def __init__(self, port=0):
        self.lock = threading.RLock()
        self.ended = threading.Event()
        self.accounts = {"ACCESSKEY": Account("ACCESSKEY", "SECRETKEY", "us@example.org")}
        self.items, self.uploads = {}, {}
        self.requests, self.violations, self.faults = [], [], []
        self.under_way = set()           # (item, key) of PUTs whose body is being taken
        self.showing = Showing()         # of new files; or a function (item, key) -> Showing
        self.spam = set()                # patterns of identifiers whose uploads appear to be spam
        self.late_collections = True     # rights on a collection are looked at after the body
        self.redirect = 0                # how many hops a PUT is sent around before it is taken
        self.success = 200               # or 201
        self.global_limit, self.others = 11999, 5000
        self.limit_answer = None         # of check_limit, instead of the numbers
        self.object_bytes_max = ITEM_BYTES_MAX
        self.item_bytes_max = ITEM_BYTES_MAX
        self.part_refusals = 0           # parts that are told NoSuchBucket before a multipart upload's item exists
        self.serial = itertools.count(1)
        self.listeners = {"s3": self.listen(port), "s3b": self.listen(0), "front": self.listen(0)}
        self.threads, self.sockets = [], set()
        self.s3, self.s3b, self.front = (f"http://127.0.0.1:{l.getsockname()[1]}" for l in self.listeners.values())

    @staticmethod
    def listen(port):
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        return listener

    def __enter__(self):
        for side, listener in self.listeners.items():
            self.thread(self.accept, side, listener)
        return self

    def __exit__(self, *unused):
        self.ended.set()
        with self.lock:
            sockets = [*self.listeners.values(), *self.sockets]
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for listener in self.listeners.values():
            listener.close()
        for thread in list(self.threads):
            thread.join(10)
            assert not thread.is_alive(), "a thread of the fake archive hangs"

    def thread(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads = [t for t in self.threads if t.is_alive() or not t.ident] + [thread]
        thread.start()

    # ---- for tests ----

    def account(self, access, secret, **more):
        self.accounts[access] = Account(access, secret, **more)
        return self.accounts[access]

    def item(self, identifier, owner="them@example.org", files=(), **metadata):
        """Makes an item as if it had been there always; files: (key, bytes)."""
        item = Item(identifier, owner, metadata)
        item.shown = True
        for key, data in files:
            item.files[key] = File(key, data, owner)
        with self.lock:
            self.items[identifier] = item
        return item

    def of_kind(self, *kinds):
        with self.lock:
            return [r for r in self.requests if r.kind in kinds]

    def puts(self, status=(200, 201)):
        """PUTs of files that were answered so, in the order in which they came; status None: all."""
        return [r for r in self.of_kind("PUT") if status is None or r.status in status]

    def stored(self):
        """(item, key) -> the newest file, whether it shows or not."""
        with self.lock:
            return {(i.identifier, f.key): f for i in self.items.values() for f in [*i.files.values(), *i.staged]}

    def no_violations(self, *but):
        """Nothing that no client may do was done (but what is named)."""
        with self.lock:
            found = [v for v in self.violations if v[0] not in but]
        assert found == [], found

    def violate(self, kind, words):
        with self.lock:
            self.violations.append((kind, words))

    # ---- connections ----

    def accept(self, side, listener):
        while not self.ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.sockets.add(connection)
                self.thread(self.serve, side, connection, next(self.serial))

    def serve(self, side, connection, number):
        wire = Wire(connection)
        try:
            while not self.ended.is_set():
                head = wire.head()
                if head is None or not self.one(wire, Request(head, number), side):
                    return
        except (OSError, Gone):
            pass
        finally:
            with self.lock:
                self.sockets.discard(connection)
            connection.close()

    def one(self, wire, request, side):
        """Serves one request; whether another one may follow."""
        self.route(request, side)
        fault = None
        if request.side != "fake":
            with self.lock:
                self.requests.append(request)
            self.inspect(request)
            fault = self.take_fault(request)
        try:
            if request.side == "s3" and request.method in ("PUT", "POST"):
                return self.with_body(wire, request, fault)
            return self.without_body(wire, request, fault)
        finally:
            request.credentials = ""
            request.ended_at = time.monotonic()

    def route(self, request, side):
        """Says what is asked for: side, kind, item, key."""
        target = request.target
        absolute = re.match(r"https?://([^/?]*)", target)
        if absolute:
            request.host, target = absolute[1], target[absolute.end():] or "/"
            side = "s3" if ".s3.us.archive.org" in f".{request.host}" else "front"
        path, _, query = target.partition("?")
        request.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        parts = urllib.parse.unquote(path, errors="surrogateescape").lstrip("/")
        if side == "front":
            return self.route_front(request, parts)
        request.side = "s3"
        style = re.fullmatch(r"(.+)\.s3\.us\.archive\.org", request.host)
        request.item, _, request.key = (f"{style[1]}/{parts}" if style else parts).partition("/")
        q, method = request.query, request.method
        if not request.item:
            request.kind = "LIMIT" if "check_limit" in q else "ITEMS"
            request.item = q.get("bucket", "")
        elif not request.key:
            request.kind = "ITEM"
        elif method == "POST":
            request.kind = "INITIATE" if "uploads" in q else "COMPLETE"
        elif "uploadId" in q:
            request.kind = {"PUT": "PART", "DELETE": "ABORT"}.get(method, "PARTS")
        elif "log" in q:
            request.kind = "LOG"
        else:
            request.kind = method
        return None

    @staticmethod
    def route_front(request, parts):
        first, _, rest = parts.partition("/")
        request.side = "fake" if first == "_fake" else "front"
        request.kind = {"metadata": "METADATA", "download": "DOWNLOAD", "services": "IDENTIFIER", "_fake": "FAKE"}.get(first, "OTHER")
        request.item, _, request.key = rest.partition("/")
        if request.kind == "IDENTIFIER":
            request.item, request.key = request.query.get("identifier", ""), ""

    def inspect(self, request):
        """What no client may do, as far as a head shows it; strikes the secrets out."""
        secrets = [a.secret for a in self.accounts.values()]
        decoded = urllib.parse.unquote(request.target)
        if any(s in decoded or s in request.target for s in secrets):
            self.violate("secret in the URL", request.target.split("?")[0])
            request.target = "***"
        request.credentials = request.get("authorization") or ""
        request.strike(secrets)
        if re.search(r"[^!-~]", request.target) or re.search(r"%(?![0-9A-Fa-f]{2})", request.target):
            self.violate("path", f"{request.target} is not percent-encoded")
        if request.side == "s3" and request.get("transfer-encoding"):
            self.violate("chunked", repr(request))
        if request.side == "s3" and request.method in ("PUT", "POST") and request.get("content-length") is None:
            self.violate("no length", repr(request))
        if request.head_bytes > HEADERS_MAX:
            self.violate("headers", f"{request.head_bytes} bytes of headers")
        if request.kind == "PUT" and not request.get("user-agent"):
            self.violate("no user agent", repr(request))

    def take_fault(self, request):
        with self.lock:
            for fault in self.faults:
                if not fault.fits(request.kind, request.item, request.key):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        return None

    def wait(self, delay):
        """Seconds, or until an event is set."""
        if isinstance(delay, threading.Event):
            while not delay.wait(0.05) and not self.ended.is_set():
                pass
        elif delay:
            self.ended.wait(delay)
        if self.ended.is_set():
            raise Gone

    def answer(self, wire, request, reply, fault=None, close=False):
        """Sends it; whether the connection goes on."""
        if fault is not None:
            self.wait(fault.delay)
            if fault.lost:
                wire.end(fault.end)
                return False
            if fault.status is not None:
                reply = Reply(fault.status, fault.body, fault.headers, kind="application/xml")
        end = fault.end if fault is not None and fault.status is not None else "close" if close else "keep"
        if request.get("connection") == "close" and end == "keep":
            end = "close"
        request.status = reply.status
        wire.send(reply.bytes(end != "keep", request.method == "HEAD"))
        if end != "keep":
            request.late_bytes = wire.end(end)
        return end == "keep"

    # ---- without a body that is stored ----

    def without_body(self, wire, request, fault):
        length = int(request.get("content-length") or 0)
        body = self.read_body(wire, request, length, None) if length else b""
        if fault is not None and fault.stall is not None:
            self.wait(threading.Event())
        if fault is not None and (fault.status is not None or (fault.lost and not fault.store)):
            return self.answer(wire, request, None, fault)
        try:
            with self.lock:
                reply = getattr(self, "do_" + request.kind.lower(), self.do_other)(request, body)
        except Refused as error:
            reply = refusal(error)
        return self.answer(wire, request, reply, fault)

    def do_other(self, request, body):
        return Reply(404, b"<html>Not Found</html>", kind="text/html")

    def do_fake(self, request, body):
        """The tests' own door."""
        what = request.item
        if request.method == "POST" and what == "faults":
            self.faults += [Fault(**fault) for fault in json.loads(body)]
        elif request.method == "POST" and what == "settings":
            for name, value in json.loads(body).items():
                setattr(self, name, Showing(**value) if name == "showing" else set(value) if name == "spam" else value)
        elif what == "requests":
            return Reply(200, [r.dump() for r in self.requests])
        elif what == "violations":
            return Reply(200, self.violations)
        elif what == "state":
            return Reply(200, {i.identifier: {"metadata": i.metadata, "owner": i.owner, "shown": sorted(i.files),
                                              "staged": [f.key for f in i.staged]} for i in self.items.values()})
        else:
            return self.do_other(request, body)
        return Reply(200, {})

    # ---- the front ----

    def do_metadata(self, request, body):
        item = self.items.get(request.item)
        if request.method == "POST":
            return Reply(403, {"success": False, "error": "this fake does not change metadata"})
        if item is None or not item.ready:
            return Reply(200, {})
        item.settle(look=True)
        value = item.document()
        for part in filter(None, request.key.split("/")):
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                return Reply(200, {"error": f"Couldn't get '{part}'"})
        return Reply(200, {"result": value} if request.key else value)

    def do_identifier(self, request, body):
        if not IDENTIFIER.fullmatch(request.item):
            return Reply(200, {"type": "error", "code": "invalid", "identifier": request.item})
        code = "not_available" if request.item in self.items else "available"
        return Reply(200, {"type": "success", "code": code, "identifier": request.item})

    def do_download(self, request, body):
        item = self.items.get(request.item)
        if item is not None:
            item.settle()
        file = item.files.get(request.key) if item is not None else None
        if file is None:
            return self.do_other(request, body)
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", request.get("range") or "")
        if part and int(part[1]) < file.size:
            first, last = int(part[1]), min(int(part[2] or file.size), file.size - 1)
            where = f"bytes {first}-{last}/{file.size}"
            return Reply(206, file.data[first:last + 1], [("Content-Range", where)], kind="application/octet-stream")
        return Reply(200, file.data, kind="application/octet-stream")

    # ---- the S3 side ----

    def who(self, request, anonymous=False):
        """The account of a request."""
        words = request.credentials
        if not words and anonymous:
            return None
        match = re.fullmatch(r"LOW ([^:\s]+):(\S+)", words)
        if not match:
            raise Refused("AccessDenied", "no authorization of ours")
        account = self.accounts.get(match[1])
        if account is None:
            raise Refused("InvalidAccessKeyId", match[1])
        if account.secret != match[2]:
            raise Refused("SignatureDoesNotMatch", match[1])
        if account.problem:
            raise Refused("AccountProblem", account.problem)
        return account

    def tasks(self, account=None):
        """Queued in all, or for an account."""
        if account is None:
            return self.others + sum(i.tasks for i in self.items.values())
        return account.others + sum(f.owner == account.user for i in self.items.values() for f in i.staged)

    def ration(self, account, item):
        """Why nothing may be queued now; None: it may."""
        if self.tasks() >= self.global_limit:
            return "global"
        if account is not None and self.tasks(account) >= account.ration:
            return "account"
        if item is not None and item.tasks + item.others >= item.bucket_ration:
            return "bucket"
        return None

    def do_limit(self, request, body):
        if self.limit_answer is not None:
            return Reply(200, self.limit_answer)
        account = self.accounts.get(request.query.get("accesskey", ""))
        item = self.items.get(request.query.get("bucket", ""))
        for each in self.items.values():
            each.settle()
        reason = self.ration(account, item)
        detail = {"accesskey_ration": account.ration if account else 0, "accesskey_tasks_queued": self.tasks(account) if account else 0,
                  "bucket_ration": item.bucket_ration if item else 150,
                  "bucket_tasks_queued": item.tasks + item.others if item else 0, "total_global_limit": self.global_limit,
                  "total_tasks_queued": self.tasks(), "rationing_engaged": int(reason is not None), "rationing_level": 0,
                  "limit_reason": REASONS[reason] if reason else ""}
        return Reply(200, {"bucket": request.query.get("bucket"), "accesskey": request.query.get("accesskey"),
                           "over_limit": int(reason is not None), "detail": detail})

    def do_items(self, request, body):
        account = self.who(request)
        names = "".join(f"<Bucket><Name>{i.identifier}</Name></Bucket>" for i in self.items.values() if i.owner == account.user)
        return Reply(200, f"<ListAllMyBucketsResult><Buckets>{names}</Buckets></ListAllMyBucketsResult>".encode(), kind="application/xml")

    def find(self, request):
        """Item and file of a request for an object."""
        item = self.items.get(request.item)
        if item is None or not item.ready:
            raise Refused("NoSuchBucket", request.item)
        item.settle()
        if request.key and request.key not in item.files:
            raise Refused("NoSuchKey", request.key)
        return item, item.files.get(request.key)

    def do_get(self, request, body):
        _, file = self.find(request)
        return Reply(200, file.data, [("ETag", f'"{file.md5}"')], kind="application/octet-stream")

    def do_head(self, request, body):
        return self.do_get(request, body)

    def do_log(self, request, body):
        item = self.items.get(request.item)
        if item is None:
            raise Refused("NoSuchBucket", request.item)
        lines = [f"{key}\t{words}\n" for key, words in item.log if key == request.key]
        return Reply(200, "".join(lines).encode(), kind="text/plain")

    def do_item(self, request, body):
        if request.method == "DELETE":
            self.who(request)
            raise Refused("MethodNotAllowed", "an item cannot be deleted")
        item, _ = self.find(request)
        keys = "".join(f"<Contents><Key>{urllib.parse.quote(f.key)}</Key><Size>{f.size}</Size></Contents>" for f in item.files.values())
        return Reply(200, f"<ListBucketResult><Name>{item.identifier}</Name>{keys}</ListBucketResult>".encode(), kind="application/xml")

    def do_delete(self, request, body):
        account = self.who(request)
        item = self.items.get(request.item)
        if item is None:
            raise Refused("NoSuchBucket", request.item)
        if item.owner != account.user:
            raise Refused("AccessDenied", OWNER)
        keep, cascade = (request.get(f"x-archive-{word}") == "1" for word in ("keep-old-version", "cascade-delete"))
        if not item.remove(request.key, keep, cascade):
            raise Refused("NoSuchKey", request.key)
        return Reply(204)

    def do_parts(self, request, body):
        upload = self.upload_of(request)
        parts = "".join(f'<Part><PartNumber>{n}</PartNumber><ETag>"{hashlib.md5(d).hexdigest()}"</ETag><Size>{len(d)}</Size></Part>'
                        for n, d in sorted(upload["parts"].items()))
        return Reply(200, f"<ListPartsResult>{parts}</ListPartsResult>".encode(), kind="application/xml")

    def do_abort(self, request, body):
        self.upload_of(request)
        del self.uploads[request.query["uploadId"]]
        return Reply(204)

    def upload_of(self, request):
        self.who(request)
        upload = self.uploads.get(request.query.get("uploadId", ""))
        if upload is None or (upload["item"], upload["key"]) != (request.item, request.key):
            raise Refused("NoSuchUpload", request.query.get("uploadId", ""))
        return upload

    # ---- bodies ----

    def with_body(self, wire, request, fault):
        """A PUT or POST: judged, its body taken, judged again, stored, answered."""
        if request.get("transfer-encoding") or request.get("content-length") is None:
            return self.answer(wire, request, refusal(Refused("MissingContentLength", "chunked coding is not supported")), close=True)
        length = int(request.get("content-length"))
        if fault is not None and fault.read == 0 and not fault.store:
            return self.answer(wire, request, None, fault)
        try:
            with self.lock:
                plan = self.judge(request, length)
        except Refused as error:
            return self.answer(wire, request, refusal(error), close=True)
        if isinstance(plan, Reply):
            return self.answer(wire, request, plan, close=True)
        place = request.item, request.key
        with self.lock:
            twice = request.kind == "PUT" and place in self.under_way
            self.under_way.add(place)
        if twice:
            self.violate("two at once", repr(request))
        try:
            self.say_continue(wire, request, fault)
            body = self.read_body(wire, request, length, fault)
            if fault is not None and not fault.store and (fault.status is not None or fault.lost):
                return self.answer(wire, request, None, fault)
            try:
                with self.lock:
                    reply = self.finish(request, body, plan)
            except Refused as error:
                reply = refusal(error)
        finally:
            with self.lock:
                self.under_way.discard(place)
        return self.answer(wire, request, reply, fault)

    def say_continue(self, wire, request, fault):
        if (request.get("expect") or "").lower() != "100-continue":
            return
        if fault is not None and fault.never:
            return
        if fault is not None:
            self.wait(fault.late)
        wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.continued = True

    def read_body(self, wire, request, length, fault):
        """The body, or as much of it as the fault wants."""
        want = length if fault is None or fault.read is None else min(length, fault.read)
        stall = None if fault is None else fault.stall
        pieces = []
        while request.body_bytes < want:
            if stall is not None and request.body_bytes >= stall:
                self.stand_still(request)
            room = want - request.body_bytes
            piece = wire.read(room if stall is None else min(room, stall - request.body_bytes))
            if not piece:
                raise Gone
            request.body_bytes += len(piece)
            pieces.append(piece)
        if stall is not None:
            self.stand_still(request)
        return b"".join(pieces)

    def stand_still(self, request):
        """Until the end; whoever gives up meanwhile may begin anew."""
        with self.lock:
            self.under_way.discard((request.item, request.key))
        self.wait(threading.Event())

    def judge(self, request, length):
        """Everything that is known before the body. A Reply instead of taking it, or what finish() needs."""
        simulated = request.get("x-archive-simulate-error")
        if simulated == "help":
            return Reply(200, "".join(f"{code}\n" for code in ERRORS).encode(), kind="text/plain")
        if simulated:
            raise Refused(simulated, REASONS["simulated"])
        account = self.who(request)
        if not IDENTIFIER.fullmatch(request.item):
            raise Refused("InvalidBucketName", f"{request.item} does not match ^{IDENTIFIER.pattern}$")
        if request.kind in ("ITEM", "PART", "COMPLETE"):
            return {"account": account}
        try:
            check_key(request.item, request.key)
        except Refused as error:
            self.violate("bad name", error.resource)
            raise
        if request.head_bytes > HEADERS_MAX:
            raise Refused("MetadataTooLarge", f"{request.head_bytes} bytes of headers")
        hop = self.hop(request)
        if hop:
            return hop
        meta, filemeta, wrong = decode_metadata(request.headers)
        for kind, words in wrong:
            self.violate(kind, words)
        plan = {"account": account, "meta": meta, "filemeta": filemeta}
        self.judge_item(request, length, plan)
        return plan

    def hop(self, request):
        """307 to the other port while hops are left."""
        hops = int(request.query.get("hop", 0))
        if hops >= self.redirect:
            return None
        base = (self.s3b, self.s3)[hops % 2]
        path = request.target.partition("?")[0]
        where = f"{base}{path}?hop={hops + 1}"
        return Reply(307, refusal(Refused("TemporaryRedirect", where, 307)).body, [("Location", where)], kind="application/xml")

    def judge_item(self, request, length, plan):
        account, item = plan["account"], self.items.get(request.item)
        make = "1" in (request.get("x-archive-auto-make-bucket"), request.get("x-amz-auto-make-bucket"))
        if item is None and not make:
            raise Refused("NoSuchBucket", request.item)
        if item is not None:
            item.settle()
            if item.dark:
                raise Refused("AccessDenied", DARK.format(item=request.item))
            if item.owner != account.user:
                raise Refused("AccessDenied", OWNER)
        if any(fnmatch.fnmatchcase(request.item, pattern) for pattern in self.spam):
            raise Refused("SlowDown", REASONS["spam"].format(item=request.item, user=account.user))
        for each in self.items.values():
            each.settle()
        reason = self.ration(account, item)
        if reason:
            raise Refused("SlowDown", REASONS[reason])
        total = length + (item.size() if item else 0)
        if length > self.object_bytes_max or total > self.item_bytes_max:
            raise Refused("AccessDenied", TOO_BIG.format(total=total))
        plan["rights"] = []
        if item is None:
            asked = plan["meta"].get("collection", "opensource")
            asked = asked if isinstance(asked, list) else [asked]
            plan["rights"] = [c for c in asked if c not in account.collections]
        if plan["rights"] and not self.late_collections:
            raise Refused("AccessDenied", COLLECTION)

    def finish(self, request, body, plan):
        if request.kind == "ITEM":
            return self.make_item(request, plan["account"])
        if request.kind == "INITIATE":
            return self.initiate(request, plan)
        if request.kind == "PART":
            return self.take_part(request, body)
        if request.kind == "COMPLETE":
            return self.complete(request, body)
        if request.kind != "PUT":
            raise Refused("MethodNotAllowed", request.kind)
        return self.store(request, body, plan)

    def make_item(self, request, account):
        item = self.items.get(request.item)
        if item is not None:
            raise Refused("BucketAlreadyOwnedByYou" if item.owner == account.user else "BucketAlreadyExists", request.item)
        meta, _, wrong = decode_metadata(request.headers)
        self.violations += wrong
        self.items[request.item] = Item(request.item, account.user, meta)
        return Reply(self.success)

    def store(self, request, body, plan):
        """The body is whole: it becomes a staged file."""
        account = plan["account"]
        md5 = hashlib.md5(body).hexdigest()
        sent = request.get("content-md5")
        if sent is not None and not md5_matches(sent, md5):
            raise Refused("BadDigest", f"{sent} was announced, {md5} came")
        if plan["rights"]:
            raise Refused("AccessDenied", COLLECTION)
        item = self.items.get(request.item)
        if item is None:
            item = self.items[request.item] = Item(request.item, account.user, plan["meta"])
        elif request.get("x-archive-ignore-preexisting-bucket") == "1":
            fixed = ("mediatype", "collection", "identifier", "uploader")
            item.metadata.update({k: v for k, v in plan["meta"].items() if k not in fixed})
        file = File(request.key, body, account.user, filemeta=plan["filemeta"])
        file.derive = request.get("x-archive-queue-derive") != "0"
        hint = request.get("x-archive-size-hint")
        file.size_hint = int(hint) if hint is not None else None
        file.keep_old = request.get("x-archive-keep-old-version") == "1"
        file.showing = self.showing(request.item, request.key) if callable(self.showing) else self.showing
        old = item.newest(request.key)
        if old is not None:
            same = old.md5 == file.md5
            kind = "overwritten" if not same else "sent again" if request.key in item.files else "sent again while staged"
            self.violate(kind, f"{request.item}/{request.key}")
        item.staged.append(file)
        item.log.append((request.key, "staged"))
        item.settle()
        return Reply(self.success, b"", [("ETag", f'"{md5}"')])

    # ---- multipart, as far as their clients go ----

    def initiate(self, request, plan):
        name = f"upload-{next(self.serial)}"
        if request.item not in self.items:
            item = self.items[request.item] = Item(request.item, plan["account"].user, plan["meta"])
            item.ready = self.part_refusals == 0
        self.uploads[name] = {"item": request.item, "key": request.key, "plan": plan, "parts": {}, "headers": request.headers}
        return Reply(200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode(),
                     kind="application/xml")

    def take_part(self, request, body):
        upload = self.upload_of(request)
        if self.part_refusals > 0:
            self.part_refusals -= 1
            raise Refused("NoSuchBucket", request.item)
        self.items[request.item].ready = True
        upload["parts"][int(request.query["partNumber"])] = body
        return Reply(200, b"", [("ETag", f'"{hashlib.md5(body).hexdigest()}"')])

    def complete(self, request, body):
        upload = self.upload_of(request)
        numbers = [int(n) for n in re.findall(r"<PartNumber>\s*(\d+)\s*</PartNumber>", body.decode())]
        if not numbers or sorted(numbers) != numbers or any(n not in upload["parts"] for n in numbers):
            raise Refused("InvalidArgument", "parts are missing or out of order")
        whole = b"".join(upload["parts"][n] for n in numbers)
        request.headers = upload["headers"] + [h for h in request.headers if h[0] == "connection"]
        self.store(request, whole, upload["plan"])
        del self.uploads[request.query["uploadId"]]
        tag = hashlib.md5(b"".join(hashlib.md5(upload["parts"][n]).digest() for n in numbers)).hexdigest()
        return Reply(200, f'<CompleteMultipartUploadResult><ETag>"{tag}-{len(numbers)}"</ETag></CompleteMultipartUploadResult>'.encode(),
                     kind="application/xml")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="of the S3 side; 0: any that is free")
    port = parser.parse_args().port
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with FakeArchive(port) as archive:
        account = next(iter(archive.accounts.values()))
        print(json.dumps({"s3": archive.s3, "s3b": archive.s3b, "front": archive.front, "access": account.access,
                          "secret": account.secret}), flush=True)
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
