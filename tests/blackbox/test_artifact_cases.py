"""Every reported fault of other upload servers (cases T01 to T43), and every hole of the contract's original, by its number.

A test bears the number of what it proves. Where a case asks for something that the contract excludes (deferred lengths, GET of an
upload), the contract's answer is what is tested. Requests go over raw sockets and carry an Origin, so every answer of this module,
whatever its status, is checked for what it must have: CORS, the exposed headers, no-store, the version.

  here       T01 T02 T04 T05 T10 T11 T13 T14 T16 T17 T19 T20 T22 T23 T38 T40 T41 T43, holes 1 2 3 4 5 14 15 16 17 21 22 23
  elsewhere  hole 1 also            a failure of each call          test_artifact_strace: test_a_failed_call_...
             hole 3 also            the second deliverer            test_deliver: test_a_receipt_that_comes_...
             T07 holes 10 13        verified, names                 test_deliver: test_T07_hole_10_13_...
             hole 6 18              one bad project, turns          test_deliver: test_hole_6_18_..., unit test_delivery_index: test_turns
             hole 7                 parked, with a way out          test_deliver: test_another_file_..., test_artifact_verify: test_parked
             hole 8                 I/O errors are tried again      test_deliver: test_hole_8_..., test_faults_of_a_disk_...
             hole 9                 the receipt's BLAKE3 is kept to test_deliver: test_hole_9_...
             hole 19 20             a lost index, strange receipts  test_deliver: test_hole_19_..., test_hole_20_...
             T20 T43 also           with curl, Node and Chromium    test_tus_clients, tests/clients/tus_*.mjs
             T23 also               every write without space       test_artifact_strace: test_no_space_keeps_...
  not ours   hole 11 (nothing is sealed away: the payload stays uploads/ID), hole 12 (no hard links are made)
  issue 6    T08 T25 T26 T28 T29 T31 T32 T34 T35 T37 (S3, checksum per request, Internet Archive, notifications), the reservations and
             the diagnosis of a buffering proxy that T23 and T20 ask for, and the parts of holes 7, 10, 19 and 22 that are about
             templates, purging and packages of several files
"""
import base64
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
import warnings

import pytest
from artifact_world import BODY, ENV, TUS, Artifacts, Reply, blake3
from conftest import ROOT, Server, free_port, tallyman
from test_full_disk import fill, run
from tracer import Attached
from world import SANITIZED

MIB = 1 << 20
UNKNOWN = "0123456789abcdef0123456789abcdef"
PAGE = "https://page.example"
EXPOSED = {"location", "upload-offset", "upload-length", "upload-metadata", "upload-expires", "tus-resumable", "tus-version", "tus-extension",
           "tus-max-size", "artifact-receipt", "retry-after"}
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


def b64(value):
    return base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()


def words(pairs):
    return ",".join(f"{k} {b64(v)}" for k, v in pairs.items())


def usual(**more):
    return words({"project": "files", "checksum": "blake3:" + "0" * 64, **more})


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


# ---- takeover and concurrency ----

def test_T01_a_lost_client_is_taken_over(door):
    """Proves: a connection that has died without a sign is ended for the first who asks after a second of its silence; HEAD is 200 all the
    time, tells every byte that came, and the next PATCH goes on from there."""
    file = door.make(os.urandom(10 * MIB + 4097))
    sent = 10 * MIB + 1
    before = door.received()
    with door.begin(file, 0, file.size) as dead:
        dead.sendall(file.content[:sent])
        silent = time.monotonic()
        door.wait(lambda: door.received() >= before + 10 * MIB, what="the bytes at the server")
        door.wait(lambda: door.head(file) == sent, 20, "the offset of what came")
        took_s = time.monotonic() - silent
        assert 0.5 < took_s < 10, f"taken over after {took_s:.2f} s"
        assert door.append(file, sent, file.content[sent:]).fits(204).offset == file.size
        answer = Raw(read_all(dead)).fits(400, "upload_interrupted")  # if it lives, it is told
        assert answer.offset == sent and "artifact-receipt" not in answer.headers
    door.receipt_is(file)
    assert door.stored(file) == file.content


def test_T01_a_patch_takes_over_by_itself(door):
    """Proves: a client that does not ask with HEAD gets on, too: 409 with the offset, and Retry-After, while the other is live; then on."""
    file = door.make(os.urandom(70000))
    with door.begin(file, 0, file.size) as dead:
        dead.sendall(file.content[:30000])
        door.wait(lambda: door.append(file, 30000, file.content[30000:]).status == 204, 20, "the takeover")
    door.receipt_is(file)


def test_T02_fifty_restarts(door):
    """Proves: a client that aborts and restarts its PATCH 50 times, in whatever way connections end, never hears a 5xx or a 423, loses
    nothing that was told, and writes no byte twice."""
    file = door.make(os.urandom(2 * MIB))
    begun, aborts, live, offset = time.monotonic(), 0, 0, 0
    while aborts < 50:
        sock = door.begin(file, offset, file.size - offset)
        sock.sendall(file.content[offset:offset + 20000])
        if aborts % 3 == 0:  # a reset
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if aborts % 3 == 1:  # a half close: it is answered
            sock.shutdown(socket.SHUT_WR)
            assert Raw(read_all(sock)).status in (400, 409)
        sock.close()
        aborts += 1
        answer = door.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", offset)], file.content[offset:offset + 10])
        file.hears(answer)
        assert answer.status in (204, 409), answer.text
        live += answer.status == 409
        offset = door.head(file)
    assert time.monotonic() - begun < 30
    assert live > 0 and 0 < offset <= file.size
    door.finish(file)
    assert door.stored(file) == file.content


def test_T02_two_at_once(door):
    """Proves: of two PATCHes with one offset exactly one is taken; the other hears 409 and the offset."""
    for number in range(12):
        file = door.make(os.urandom(200000 + number))
        barrier = threading.Barrier(2)

        def send(_, file=file, barrier=barrier):
            with door.dial() as sock:
                barrier.wait(20)
                with contextlib.suppress(ConnectionError):
                    sock.sendall(head_of("PATCH", file.path, {**BODY, "Upload-Offset": 0, "Content-Length": file.size, "Connection": "close"})
                                 + file.content)
                return Raw(read_all(sock))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            won, lost = sorted(pool.map(send, range(2)), key=lambda a: a.status)
        assert (won.fits(204).offset, lost.fits(409, "mismatched_offset").status) == (file.size, 409)
        assert "upload-offset" not in lost.headers or 0 <= lost.offset <= file.size
        file.hears(won)
        assert door.stored(file) == file.content


# ---- offsets ----

OFFSETS = {"one less": ("4", 409), "one more": ("6", 409), "0": ("0", 409), "the length": ("10", 409), "2^31": ("2147483648", 409),
           "2^63-1": ("9223372036854775807", 409), "2^63": ("9223372036854775808", 400), "2^64+5": ("18446744073709551621", 400),
           "+5": ("+5", 400), "0x5": ("0x5", 400), "-1": ("-1", 400), "-0": ("-0", 400), "5.0": ("5.0", 400), "5e0": ("5e0", 400),
           "empty": ("", 400), "list": ("5,5", 400), "inner blank": ("5 5", 400), "20 digits": ("00000000000000000005", 400),
           "arabic": ("\xd9\xa5", 400), "missing": (None, 400), "05": ("05", 204), "blank behind": ("5 ", 204)}


@pytest.mark.parametrize("name", OFFSETS)
def test_T04_offsets(door, name):
    """Proves: another number is 409 and tells the offset, what is no number is 400, and neither writes; the client then goes on."""
    value, status = OFFSETS[name]
    file = door.make(os.urandom(10), sent=5)
    answer = door.say("PATCH", file.path, [*BODY.items(), *([("Upload-Offset", value)] if value is not None else [])], file.content[5:])
    answer.fits(status, {409: "mismatched_offset", 400: "invalid_offset"}.get(status))
    if status == 204:  # digits, and blanks around a header's value are none of it
        file.hears(answer)
    else:
        assert ("upload-offset" in answer.headers) == (status == 409)
        assert status == 400 or answer.offset == 5
        assert door.stored(file) == file.content[:5] and door.head(file) == 5
    assert door.finish(file).receipt is not None


def test_T04_an_offset_twice(door):
    """Proves: 400, also when both say the same; and at the end of the upload a wrong offset is 409, the right one the receipt again."""
    file = door.make(os.urandom(10), sent=5)
    for second in ("5", "6"):
        answer = door.append(file, 5, file.content[5:], ("Upload-Offset", second)).fits(400, "invalid_request")
        assert b"upload-offset" in answer.body
    assert door.stored(file) == file.content[:5]
    door.finish(file)
    for offset in ("9", "11", "0"):
        assert door.append(file, offset, b"").fits(409, "mismatched_offset").offset == 10
    assert door.append(file, 10, b"").fits(204).offset == 10


def test_T05_the_offset_never_goes_down(own):
    """Proves: what was acknowledged is there after each restart, clean or killed, to the byte."""
    world = own()
    file = world.make(os.urandom(6 * (MIB + 4099)))
    step = MIB + 4099
    for at in range(0, file.size, step):
        assert world.append(file, at, file.content[at:at + step]).fits(204).offset == at + step
        if at // step % 2:
            world.server.stop()
        else:
            world.server.kill()
        assert world.stored(file)[:at + step] == file.content[:at + step]
        world.server.start()
        assert world.head(file) == at + step
    assert file.receipt is not None
    world.receipt_is(file)
    assert world.stored(file) == file.content


# ---- metadata ----

LISTS = {  # what is behind the project and the checksum; None: good, else the key that is named
    "T10 empty, with its blank": ("filename d29ybGQ=,filetype ", None), "T10 empty, without": ("filename d29ybGQ=,filetype", None),
    "T10 empty, in the middle": ("filetype ,filename d29ybGQ=", None), "T10 a key alone": ("is_confidential", None),
    "T11 blank behind the comma": ("a YQ==, b Yg==", None), "T11 tab": ("a YQ==,\tb Yg==", None), "T11 blanks around": ("a YQ== , b Yg==", None),
    "T11 two blanks": ("a  YQ==", None), "T11 comma at the end": ("a YQ==,", '""'), "T11 two commas": ("a YQ==,,b Yg==", '""'),
    "T11 a key twice": ("a YQ==,a Yg==", '"a"'), "T11 the project twice": ("project ZmlsZXM=", '"project"'),
    "T11 no base64": ("a $$$", '"a"'), "T11 no padding": ("a YQ", '"a"'), "T11 padding inside": ("a YQ==YQ==", '"a"'),
    "T11 of the other alphabet": ("a _-8=", '"a"'), "T11 bits left over": ("a YR==", '"a"'), "T11 two values": ("a YQ== Yg==", '"a"')}


@pytest.mark.parametrize("name", LISTS)
def test_T10_T11_metadata(door, name):
    """Proves: empty values and blanks around commas are fine, and HEAD gives the list back as it was sent; all else is 400 and names
    the key."""
    more, key = LISTS[name]
    sent = usual() + "," + more
    answer = door.post(door.creation(10, sent))
    if key is None:
        path = answer.fits(201).headers["location"]
        assert door.say("HEAD", path, TUS).fits(200).headers["upload-metadata"] == sent.strip()
    else:
        assert f"the key {key} ".encode() in answer.fits(400, "invalid_metadata").body


def test_T11_metadata_in_several_lines(door):
    """Proves: lines of the header are one list, a key in two of them is there twice; a folded line is no header."""
    answer = door.post(door.creation(10, usual(), ("Upload-Metadata", "a YQ=="), ("Upload-Metadata", "b Yg==, c"))).fits(201)
    assert door.say("HEAD", answer.headers["location"], TUS).fits(200).headers["upload-metadata"] == usual() + ",a YQ==,b Yg==, c"
    for twice in (usual(), "a YQ=="):
        answer = door.post(door.creation(10, usual(a="1"), ("Upload-Metadata", twice))).fits(400, "invalid_metadata")
        assert b"more than once" in answer.body
    with door.dial() as sock:
        sock.sendall(head_of("POST", "/files/", door.creation(10, usual() + ",\r\n a YQ==")))
        assert Raw(read_all(sock)).status == 400


# ---- answers ----

def test_T13_nothing_is_cached(door):
    """Proves: no-store on HEAD, GET and errors (`say` looks at every answer), the offset on each HEAD, also 0 and the end; GET, which a
    cache would make of HEAD, is the contract's 405."""
    file = door.make(os.urandom(10))
    for sent in (0, 4, 10):
        if sent:
            door.append(file, file.told, file.content[file.told:sent]).fits(204)
        answer = door.say("HEAD", file.path, TUS).fits(200)
        assert (answer.offset, answer.headers["upload-length"], answer.body) == (sent, "10", b"")
        answer = door.say("GET", file.path, TUS).fits(405)
        assert {"HEAD", "PATCH"} <= set(answer.headers["allow"].split(", "))
        assert "upload-offset" not in answer.headers
    for path in (f"/files/{UNKNOWN}", "/files", "/files/"):
        door.say("HEAD", path, TUS)
        door.say("GET", path).fits(405)
    answer = door.say("GET", f"/api/v1/receipts/{file.id}").fits(200)
    assert answer.headers["cache-control"] == "no-store"
    assert door.say("GET", f"/api/v1/receipts/{UNKNOWN}").fits(404).headers["cache-control"] == "no-store"


FORWARDED = [[("X-Forwarded-Proto", "https")], [("Forwarded", "proto=https;host=b.example")], [("X-Forwarded-Host", "b.example, c.example")],
             [("X-Forwarded-Port", "8443")], [("X-Forwarded-Prefix", "/up")], [("X-Original-URL", "/admin")], []]


def test_T14_location(door, own):
    """Proves: a path, whatever proxies say of themselves; with public_url, below that."""
    for headers in FORWARDED:
        answer = door.post(door.creation(10, None, *headers)).fits(201)
        assert re.fullmatch(r"/files/[0-9a-f]{32}", answer.headers["location"]), headers
    answer = door.say("POST", "/files", [*door.creation(10), ("X-Forwarded-Proto", "https")]).fits(201)  # no slash behind
    assert re.fullmatch(r"/files/[0-9a-f]{32}", answer.headers["location"])
    world = own(*ALONE, "--public-url", "https://up.example/door/")
    for headers in FORWARDED:
        answer = world.post(world.creation(10, None, *headers)).fits(201)
        assert re.fullmatch(r"https://up\.example/door/files/[0-9a-f]{32}", answer.headers["location"]), headers


def test_T16_a_deferred_length_is_refused(door):
    """Proves: the contract's 400, in each form; and a length that a PATCH brings changes nothing."""
    def post(*headers):
        return door.post(door.creation(None, None, *headers))
    post(("Upload-Defer-Length", "1")).fits(400, "invalid_size")
    for value in ("0", "2", "true", ""):
        post(("Upload-Defer-Length", value)).fits(400, "invalid_upload_length")
    post(("Upload-Defer-Length", "1"), ("Upload-Length", "10")).fits(400, "invalid_upload_length")
    post(("Upload-Length", "10"), ("Upload-Length", "11")).fits(400, "invalid_request")
    post().fits(400, "invalid_upload_length")
    file = door.make(os.urandom(10))
    assert door.append(file, 0, file.content[:5], ("Upload-Length", "5")).fits(204).offset == 5
    answer = door.say("HEAD", file.path, TUS)
    assert answer.headers["upload-length"] == "10" and "upload-defer-length" not in answer.headers
    door.finish(file)


def chunked(*pieces):
    return b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in (*pieces, b""))


def test_T17_no_way_past_the_end(door, own):
    """Proves: never a byte beyond the length or the maximum: declared, chunked, in two requests; the offset is told, the upload stays
    whole and can be finished."""
    file = door.make(os.urandom(100))
    answer = door.append(file, 0, file.content + bytes(100)).fits(413, "upload_size_exceeded")  # of a declared body nothing is kept
    assert answer.offset == 0 and door.stored(file) == b""
    assert door.append(file, 0, file.content[:60]).fits(204).offset == 60
    assert door.append(file, 60, bytes(60)).fits(413, "upload_size_exceeded").offset == 60
    assert door.stored(file) == file.content[:60]
    body = chunked(file.content[60:], b"x" * 160)
    answer = door.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 60), ("Transfer-Encoding", "chunked")], body, sized=False)
    answer.fits(413, "upload_size_exceeded")
    assert door.stored(file) == file.content
    file.hears(answer)
    world = own(*ALONE, "--upload-bytes-max", "100")
    assert world.say("OPTIONS", "/files/").fits(204).headers["tus-max-size"] == "100"
    for length in ("101", "200", "4294967396"):
        world.post(world.creation(length)).fits(413, "max_size_exceeded")
    answer = world.post(world.creation(50, None, ("Content-Type", BODY["Content-Type"])), bytes(60)).fits(413, "upload_size_exceeded")
    assert "location" not in answer.headers
    assert os.listdir(world.data / "uploads") == []
    world.finish(world.make(os.urandom(100)))


# ---- large numbers ----

LENGTHS = {"0": (400, "invalid_size"), "2147483647": 201, "2147483648": 201, "4294967295": 201, "4294967296": 201, "1125899906842624": 201,
           "1125899906842625": (413, "max_size_exceeded"), "9007199254740993": (413, "max_size_exceeded"),
           "9223372036854775807": (413, "max_size_exceeded"), "9223372036854775808": (400, "invalid_upload_length"),
           "18446744073709551616": (400, "invalid_upload_length"), "99999999999999999999": (400, "invalid_upload_length"),
           "-1": (400, "invalid_upload_length"), "1e3": (400, "invalid_upload_length"), "0x10": (400, "invalid_upload_length"),
           "": (400, "invalid_upload_length"), "10,10": (400, "invalid_upload_length")}


def test_T19_lengths_beyond_32_bits(own):
    """Proves: lengths are exact, above the maximum 413, no number 400; no sum of an offset and a length overflows."""
    world = own(*ALONE, "--upload-bytes-max", "1125899906842624")
    for length, want in LENGTHS.items():
        answer = world.post(world.creation(length))
        if want != 201:
            answer.fits(*want)
            continue
        path = answer.fits(201).headers["location"]
        assert world.say("HEAD", path, TUS).fits(200).headers["upload-length"] == length
        for offset in ("2147483648", "4294967296", "9223372036854775807"):
            assert world.say("PATCH", path, {**BODY, "Upload-Offset": offset}, b"x").fits(409).offset == 0
        for size in (int(length) + 1, 1 << 62, (1 << 63) - 1):
            with world.dial() as sock:
                sock.sendall(head_of("PATCH", path, {**BODY, "Upload-Offset": 0, "Content-Length": size}))
                assert Raw(read_answer(sock)).fits(413).headers["connection"] == "close"
        for size in (1 << 63, 1 << 64, (1 << 64) + 1):
            with world.dial() as sock:
                sock.sendall(head_of("PATCH", path, {**BODY, "Upload-Offset": 0, "Content-Length": size}))
                assert Raw(read_all(sock)).status in (400, 413)
        assert world.say("HEAD", path, TUS).offset == 0


def test_T19_offsets_beyond_32_bits(own):
    """Proves: an upload goes over 2^31 and is accepted with its exact size (its beginning is a hole in the file, and its state is lost)."""
    world = own()
    size, at = (1 << 31) + 2, (1 << 31) - 1
    whole = world.workdir / "whole"
    with open(whole, "wb") as file:
        file.truncate(at)
        file.seek(at)
        file.write(b"end")
    digest = subprocess.run(["b3sum", "--no-names", whole], capture_output=True, text=True, check=True).stdout.strip()
    path = world.post(world.creation(size, None, digest=digest)).fits(201).headers["location"]
    id = path.rsplit("/", 1)[1]
    world.server.stop()
    os.truncate(world.data / "uploads" / id, at)
    os.unlink(world.data / "uploads" / f"{id}.state")
    world.server.start()
    assert world.say("HEAD", path, TUS).fits(200).offset == at
    assert world.say("PATCH", path, {**BODY, "Upload-Offset": at}, b"en").fits(204).offset == at + 2
    assert world.say("PATCH", path, {**BODY, "Upload-Offset": at + 1}, b"d").fits(409).offset == at + 2
    assert world.say("PATCH", path, {**BODY, "Upload-Offset": at + 2}, b"d").fits(204).offset == size
    receipt = json.loads(world.say("GET", f"/api/v1/receipts/{id}").fits(200).body)
    assert (receipt["size_bytes"], receipt["checksum"]) == (size, f"blake3:{digest}")
