"""Every reported fault of other upload servers (cases T01 to T43) by its number, and where every hole of the contract's original is.

A test bears the number of what it proves. Where a case asks for something that the contract excludes (deferred lengths), the
contract's answer is what is tested. Requests go over raw sockets and carry an Origin: every answer, whatever its status, is
checked for what it must have (artifact_raw).

  here       T01 T02 T04 T05 T07 T10 T11 T13 T14 T16 T17 T19 T20 T22 T23 T38 T40 T41 T43, holes 15 (with T40) and 21 (with T38)
  holes      1 2 3 4 5 14 16 17 22 23                              test_artifact_holes
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
  tus        T25 T37                                              test_artifact_tus, with every rule of tus and termination; tuspy's
                                                                  checksums: test_tus_clients
  canner     holes 1 2 14 17 21   as its Go client meets them     test_tus_clients: test_canner_...
             holes 9 13 23        nothing of them reaches a client that sends as it does
  elsewhere  T26 T28 T29 T31 T32 T34 T35   the Internet Archive   test_archive, against fake_archive.py; T28 also test_project_settings
             holes 10 14 19 20     local bytes go                 test_purge
  not yet    T08 (S3)
"""
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
from artifact_raw import door, own  # noqa: F401 (fixtures)
from artifact_raw import ALONE, MIB, UNKNOWN, UNTRACED, Cases, Raw, attached, b64, chunked, head_of, read_all, read_answer, tree, usual, words
from artifact_world import BODY, ENV, TUS, Artifacts, blake3
from conftest import ROOT, free_port
from test_full_disk import fill, small_disk  # noqa: F401 (a fixture)
from world import wait_ready


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
    rounds = 0
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
        if 400 in (won.status, lost.status):  # this process was not run for a second in mid-body: a takeover, and nobody has it all
            (won if won.status == 400 else lost).fits(400, "upload_interrupted")
            door.finish(file)
            continue
        assert won.fits(204).offset == file.size
        lost.fits(409, "mismatched_offset")
        assert "upload-offset" not in lost.headers or 0 <= lost.offset <= file.size
        file.hears(won)
        assert door.stored(file) == file.content
        rounds += 1
    assert rounds >= 6


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


def test_T07_a_thousand_small_uploads_at_once(own):
    """Proves: each that is answered with a receipt has its bytes, none is empty, and none is lost; what finds no place is told to come
    again, and has left nothing behind."""
    world = own()
    todo = [world.new(os.urandom(1 + n * 7 % 4000), f"small-{n}") for n in range(1000)]
    for _ in range(100):
        socks = []
        for file in todo:
            sock = world.dial()
            socks.append(sock)
            sock.sendall(head_of("POST", "/files/", [*BODY.items(), *file.creation().items(), ("Content-Length", file.size)]) + file.content)
        again = []
        for file, sock in zip(todo, socks):
            with sock:
                answer = Raw(read_answer(sock))
            if answer.status == 503:
                assert int(answer.headers["retry-after"]) > 0 and "location" not in answer.headers
                again.append(file)
                continue
            file.hears(answer.fits(201))
            assert file.receipt is not None
        if not again:
            break
        todo = again
    else:
        raise AssertionError(f"{len(todo)} find no place")
    for file in world.files:
        assert world.stored(file) == file.content
    names = os.listdir(world.data / "uploads")
    assert len([name for name in names if name.endswith(".info")]) == 1000


# ---- metadata ----

LISTS = {  # what is behind the project and the checksum; None: good, else the key that is named
    "T10 empty, with its blank": ("filename d29ybGQ=,filetype ", None), "T10 empty, without": ("filename d29ybGQ=,filetype", None),
    "T10 empty, in the middle": ("filetype ,filename d29ybGQ=", None), "T10 a key alone": ("is_confidential", None),
    "T11 blank behind the comma": ("a YQ==, b Yg==", None), "T11 tab": ("a YQ==,\tb Yg==", None), "T11 blanks around": ("a YQ== , b Yg==", None),
    "T11 two blanks": ("a  YQ==", None), "T11 comma at the end": ("a YQ==,", '""'), "T11 two commas": ("a YQ==,,b Yg==", '""'),
    "T11 a key twice": ("a YQ==,a Yg==", '"a"'), "T11 the project twice": ("project ZmlsZXM=", '"project"'),
    "T11 no base64": ("a $$$", '"a"'), "T11 no padding": ("a YQ", '"a"'), "T11 padding inside": ("a YQ==YQ==", '"a"'),
    "T11 of the other alphabet": ("a _-8=", '"a"'), "T11 bits left over": ("a YR==", None), "T11 two values": ("a YQ== Yg==", '"a"')}


@pytest.mark.parametrize("name", LISTS)
def test_T10_T11_metadata(door, name):
    """Proves: empty values and blanks around commas are fine, and HEAD gives the list back as it was sent; all else is 400 and names
    the key."""
    more, key = LISTS[name]
    sent = usual() + "," + more
    answer = door.post(door.creation(10, sent))
    if key is None:
        path = answer.fits(201).headers["location"]
        assert door.say("HEAD", path, TUS).fits(200).headers["upload-metadata"] == sent.replace("\t", " ").strip()
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
    cache would make of HEAD, has the same headers and no bytes, whatever becomes of the upload."""
    file = door.make(os.urandom(10))

    def both(path):
        head, get = (door.say(method, path, TUS) for method in ("HEAD", "GET"))
        own = ("upload-offset", "upload-length", "upload-metadata", "upload-expires", "artifact-receipt")
        assert head.status == get.status
        assert {k: v for k, v in head.headers.items() if k in own} == {k: v for k, v in get.headers.items() if k in own}
        return get

    for sent in (0, 4, 10):
        if sent:
            door.append(file, file.told, file.content[file.told:sent]).fits(204)
        answer = both(file.path).fits(200)
        assert (answer.offset, answer.headers["upload-length"], answer.body) == (sent, "10", b"")
    both(f"/files/{UNKNOWN}").fits(404, "upload_not_found")
    door.say("GET", file.path).fits(200)  # a cache does not know the version
    for path in ("/files", "/files/"):
        for method in ("GET", "HEAD"):
            door.say(method, path).fits(405)
    for path in ("receipts", "artifacts"):
        answer = door.say("GET", f"/api/v1/{path}/{file.id}").fits(200)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
        answer = door.say("GET", f"/api/v1/{path}/{UNKNOWN}").fits(404)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["access-control-allow-origin"] == "https://page.example"


FORWARDED = [[("X-Forwarded-Proto", "https")], [("Forwarded", "proto=https;host=b.example")], [("X-Forwarded-Host", "b.example, c.example")],
             [("X-Forwarded-Port", "8443")], [("X-Forwarded-Prefix", "/up")], [("X-Original-URL", "/admin")], []]


def test_T14_location(door, own, nginx):
    """Proves: a path, whatever proxies say of themselves; with public_url, below that; with a proxy that is listed, what that says
    (all that can be said: unit test test_location_behind_a_proxy)."""
    for headers in FORWARDED:
        answer = door.post(door.creation(10, None, *headers)).fits(201)
        assert re.fullmatch(r"/files/[0-9a-f]{32}", answer.headers["location"]), headers
    answer = door.say("POST", "/files", [*door.creation(10), ("X-Forwarded-Proto", "https")]).fits(201)  # no slash behind
    assert re.fullmatch(r"/files/[0-9a-f]{32}", answer.headers["location"])
    world = own(*ALONE, "--public-url", "https://up.example/door/")
    for headers in FORWARDED:
        answer = world.post(world.creation(10, None, *headers)).fits(201)
        assert re.fullmatch(r"https://up\.example/door/files/[0-9a-f]{32}", answer.headers["location"]), headers
    world.server.stop()
    world.server.args = [*ALONE, "--trusted-proxies", "10.0.0.0/8, 127.0.0.1"]
    world.server.start()
    with nginx(shipped_configuration(), world) as proxy:
        answer = proxy.say("POST", "/files/", world.creation(10, None, ("X-Forwarded-Proto", "gopher"), ("Forwarded", "proto=ftp;host=evil")))
        # head_of says Host: t; the scheme is the one that nginx was asked by
        assert re.fullmatch(r"http://t/files/[0-9a-f]{32}", answer.fits(201).headers["location"])


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
    world = own(*ALONE, "--upload-bytes-max", "1125899906842624", "--upload-share-project", "100")
    disk = os.statvfs(world.data)
    for length, want in LENGTHS.items():
        answer = world.post(world.creation(length))
        if want == 201 and answer.status == 429:  # (exact beyond any disk: unit test_artifact_promises)
            answer.fits(429, "low_space")
            assert int(length) > disk.f_bavail * disk.f_frsize / 4, length
            continue
        if want != 201:
            answer.fits(*want)
            continue
        path = answer.fits(201).headers["location"]
        assert world.say("HEAD", path, TUS).fits(200).headers["upload-length"] == length
        for offset in ("2147483648", "4294967296", "9223372036854775807"):
            assert world.say("PATCH", path, {**BODY, "Upload-Offset": offset}, b"x").fits(409).offset == 0
        for size in (int(length) + 1, 10 ** 18 - 1):
            with world.dial() as sock:
                sock.sendall(head_of("PATCH", path, {**BODY, "Upload-Offset": 0, "Content-Length": size}))
                assert Raw(read_answer(sock)).fits(413).headers["connection"] == "close"
        for size in ((1 << 63) - 1, 1 << 63, 1 << 64, (1 << 64) + 1):
            with world.dial() as sock:
                sock.sendall(head_of("PATCH", path, {**BODY, "Upload-Offset": 0, "Content-Length": size}))
                assert Raw(read_all(sock)).status == 400
        assert world.say("HEAD", path, TUS).offset == 0


def test_T19_offsets_beyond_32_bits(own):
    """Proves: an upload goes over 2^31, its offset stays exact, and so does its place in the file (its beginning is a hole in it, whose
    state is lost)."""
    world = own()
    at = (1 << 31) - 1
    path = world.post(world.creation((1 << 32) + 1)).fits(201).headers["location"]
    name = world.data / "uploads" / path.rsplit("/", 1)[1]
    world.server.stop()
    os.truncate(name, at)
    os.unlink(f"{name}.state")
    world.server.start()
    assert world.say("HEAD", path, TUS).fits(200).offset == at
    assert world.say("PATCH", path, {**BODY, "Upload-Offset": at}, b"over").fits(204).offset == at + 4
    assert world.say("PATCH", path, {**BODY, "Upload-Offset": at - (1 << 31) + 4}, b"x").fits(409).offset == at + 4
    assert world.say("PATCH", path, {**BODY, "Upload-Offset": at + 4}, b" it").fits(204).offset == at + 7
    with open(name, "rb") as stored:
        stored.seek(at - 1)
        assert stored.read() == b"\0over it"
    world.server.kill()
    world.server.start()
    assert world.say("HEAD", path, TUS).fits(200).offset == at + 7


# ---- proxies ----

def shipped_configuration():
    """The locations of examples/nginx.conf."""
    text = (ROOT / "examples" / "nginx.conf").read_text()
    blocks = re.findall(r"^    location \S+ \{\n.*?^    \}\n", text, re.M | re.S)
    assert len(blocks) == 3
    return "".join(blocks)


class Nginx:
    """nginx in front of a server, with the location block that is given."""

    def __init__(self, world, location):
        self.host, self.port = "127.0.0.1", free_port()
        self.folder = world.workdir / f"nginx-{self.port}"
        self.folder.mkdir()
        location, count = re.subn(r"http://127\.0\.0\.1:8080\b", world.server.url, location)
        assert count >= 1
        temp = "".join(f"{name}_temp_path {self.folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "conf").write_text(
            f"daemon off; master_process off; pid {self.folder}/pid; error_log stderr notice;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{temp}server {{\nlisten {self.host}:{self.port};\n{location}}}\n}}\n")

    def __enter__(self):
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(["/usr/sbin/nginx", "-p", self.folder, "-c", self.folder / "conf"], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        Artifacts.wait(self.answers, 20, "nginx")
        return self

    def answers(self):
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection((self.host, self.port), 5):
            return True

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)

    def say(self, method, path, headers, body=b""):
        with socket.create_connection((self.host, self.port), 30) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(head_of(method, path, [*headers, ("Connection", "close"), ("Content-Length", len(body))]) + body)
            return Raw(read_all(sock))


@pytest.fixture
def nginx(door):
    if not os.path.exists("/usr/sbin/nginx"):
        why = "NOT TESTED: the configuration for nginx: it is not installed"
        warnings.warn(why)
        pytest.skip(why)
    return lambda location, world=door: Nginx(world, location)


def test_T20_the_shipped_configuration(door, nginx):
    """Proves: behind nginx as examples/nginx.conf has it bytes pass while they come: a client that is killed at half goes on at half; a
    refusal of a large body arrives; Location is a path there, too; the receipt is to be had, and nothing looks like a proxy that holds
    requests back."""
    content = os.urandom(8 * MIB)
    half = len(content) // 2
    with nginx(shipped_configuration()) as proxy:
        file = door.new(content)
        answer = proxy.say("POST", "/files/", [*TUS.items(), *file.creation().items()])
        assert re.fullmatch(r"/files/[0-9a-f]{32}", answer.fits(201).headers["location"])
        answer.has_what_pages_need()
        file.hears(answer)
        before = door.received()
        with socket.create_connection((proxy.host, proxy.port), 30) as killed:
            killed.sendall(head_of("PATCH", file.path, {**BODY, "Upload-Offset": 0, "Content-Length": len(content)}) + content[:half])
            door.wait(lambda: door.received() == before + half, what="half of it at the server, before there is more")
            killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        door.wait(lambda: door.head(file) == half, 20, "the offset of what came")
        answer = proxy.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 0)], content).fits(409, "mismatched_offset")
        assert answer.offset == half
        answer = proxy.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", half)], content[half:]).fits(204)
        file.hears(answer)
        file.hears(proxy.say("HEAD", file.path, TUS.items()).fits(200))
        assert proxy.say("GET", f"/api/v1/receipts/{file.id}", []).fits(200).body == file.receipt + b"\n"
        assert json.loads(proxy.say("GET", f"/api/v1/artifacts/{file.id}", []).fits(200).body)["object_id"] == file.id
        paced = door.make(bytes(18 * MIB))
        bursts = door.server.metric("tallyman_artifact_proxy_bursts_total")
        with socket.create_connection((proxy.host, proxy.port), 30) as sock:
            sock.sendall(head_of("PATCH", paced.path, {**BODY, "Upload-Offset": 0, "Content-Length": paced.size}))
            for at in range(0, paced.size, 2 * MIB):  # no line is faster than the bound: 16 MiB in 25 ms
                sock.sendall(paced.content[at:at + 2 * MIB])
                door.wait(lambda before=before, at=at: door.received() >= before + len(content) + at, what="these bytes at the server")
                time.sleep(0.02)
            assert b"204" in sock.recv(64)
        assert door.server.metric("tallyman_artifact_proxy_bursts_total") == bursts
    assert door.stored(file) == content
    door.receipt_is(file)


def test_T20_a_proxy_that_holds_requests_back_is_noticed(door, nginx):
    """Proves: where nginx buffers, a number and a line in the log tell the operator; they do not without a proxy's traces."""
    name = "tallyman_artifact_proxy_bursts_total"
    location = shipped_configuration().replace("proxy_request_buffering off;", "client_body_buffer_size 1m;")
    file = door.finish(door.make(os.urandom(9) + bytes(17 * MIB)))
    with nginx(location) as proxy:
        for _ in range(20):  # a busy machine may let nginx wait in the middle
            file = door.make(os.urandom(9) + bytes(17 * MIB))
            file.hears(proxy.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 0)], file.content).fits(204))
            if door.server.metric(name) > 0:
                break
    assert door.server.metric(name) > 0
    assert f"upload {file.id[:8]}: 16 MiB came through a proxy in one burst" in door.server.log


def test_T20_a_careless_configuration_loses_nothing(door, nginx):
    """Proves: with buffering, HTTP/1.0 and nginx's own limit of 1 MiB its 413 leaves the upload as it was, and smaller pieces arrive."""
    file = door.make(os.urandom(2 * MIB))
    with nginx("location / { proxy_pass http://127.0.0.1:8080; proxy_http_version 1.0; client_max_body_size 1m; }\n") as proxy:
        answer = proxy.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 0)], file.content)
        assert answer.status == 413 and "tus-resumable" not in answer.headers, "it is nginx's"
        for at in range(0, file.size, MIB // 2):
            assert int(proxy.say("HEAD", file.path, TUS.items()).fits(200).offset) == at
            file.hears(proxy.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", at)], file.content[at:at + MIB // 2]).fits(204))
    assert file.receipt is not None and door.stored(file) == file.content


# ---- content types ----

TYPES = {"application/offset+octet-stream; charset=utf-8": 204, "application/offset+octet-stream;x": 204, "Application/Offset+Octet-Stream": 204,
         "application/offset+octet-stream ;a=b": 204, "application/octet-stream": 415, "application/x-www-form-urlencoded": 415, "": 415,
         "application/offset+octet-streams": 415, "application/offset octet-stream": 415, "text/plain": 415, "*/*": 415, None: 415}


@pytest.mark.parametrize("type", TYPES, ids=repr)
def test_T22_content_types(door, type):
    """Proves: parameters and case do not matter; another type is 415 and leaves the upload as it was, also for a creation with bytes."""
    file = door.make(os.urandom(10), sent=2)
    headers = [("Tus-Resumable", "1.0.0"), *([("Content-Type", type)] if type is not None else [])]
    answer = door.say("PATCH", file.path, [*headers, ("Upload-Offset", 2)], file.content[2:6])
    creation = door.post([*headers, *file.creation().items()], file.content[:3])
    if TYPES[type] == 204:
        assert (answer.fits(204).offset, creation.fits(201).offset) == (6, 3)
    else:
        answer.fits(415, "invalid_content_type")
        assert "location" not in creation.fits(415, "invalid_content_type").headers
        assert door.stored(file) == file.content[:2]
    door.finish(file)


# ---- space ----

def no_room(answer):
    """The upload waits; or its acceptance found no room, and it goes on from the offset."""
    assert "artifact-receipt" not in answer.headers
    if answer.status == 500:
        answer.fits(500, "accept_failed")
    else:
        assert answer.status in (429, 503, 507) and int(answer.headers["retry-after"]) > 0, answer.text


def on_small_disk(small_disk, make_server, workdir):  # noqa: F811
    server = make_server(*ALONE, "--generation-bytes", "1MiB", "--upload-share-project", "100", env={**ENV, **UNTRACED},
                         name=str(small_disk / "data"), start=False)
    server.log_path = workdir / "serve.log"
    return Cases(server.start(), workdir)


def test_T23_ten_uploads_of_a_fifth_of_the_disk(small_disk, make_server, workdir):  # noqa: F811
    """Proves: room is promised when an upload is made: what does not fit beside the others is told so before a byte is sent, and what
    was begun ends, also after a restart in the middle; with space freed the others come in, to the last. The disk is never full."""
    world = on_small_disk(small_disk, make_server, workdir)
    disk = os.statvfs(small_disk)
    fifth = int(disk.f_bavail * disk.f_frsize * 0.2)
    todo = [world.new(os.urandom(fifth + i)) for i in range(10)]
    rounds = 0
    while todo:
        rounds += 1
        assert rounds < 10, "nothing gets on"
        under_way = []
        for file in todo:
            answer = world.create(file)
            if answer.status == 201:
                under_way.append(file)
            else:
                assert answer.status == 429 and answer.headers["retry-after"] == "60", (answer.status, answer.body)
        assert 1 <= len(under_way) <= 4, "more than there is"
        for file in under_way:
            assert world.append(file, 0, file.content[:fifth // 2]).fits(204).offset == fifth // 2
        if rounds == 1:
            world.server.kill()
            world.server.start()
            world.wait(lambda: world.server.metric("tallyman_artifact_reserved_bytes") >= fifth // 2 * len(under_way), what="the promises")
            late = world.create(world.new(os.urandom(fifth)))
            assert late.status == 429, late.status
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(world.finish, under_way))  # each of them: no 429, no 5xx
        for file in under_way:
            assert world.stored(file) == file.content
            todo.remove(file)
            world.files.remove(file)  # whoever frees space
            for folder, name in (("uploads", file.id), ("uploads", f"{file.id}.info"), ("uploads", f"{file.id}.state"),
                                 ("receipts", f"{file.id}.json")):
                with contextlib.suppress(FileNotFoundError):
                    (world.data / folder / name).unlink()
    world.files.clear()
    assert world.server.stop() == 0
    world.verify()


def test_T23_a_full_disk(small_disk, make_server, workdir):  # noqa: F811
    """Proves: where others take the room that uploads were promised, these are refused at an exact offset, with a time to wait; HEAD,
    receipts and what is accepted stay; when there is space all go on from where they were, to the last."""
    world = on_small_disk(small_disk, make_server, workdir)
    server = world.server
    disk = os.statvfs(small_disk)
    free = disk.f_bavail * disk.f_frsize
    files = [world.make(os.urandom(int(free * 0.15) + i)) for i in range(5)]
    with open(small_disk / "ballast", "wb") as ballast:
        ballast.write(b"\xff" * int(free * 0.6))
    refused = []

    def send(file):
        while True:
            answer = world.append(file, file.told, file.content[file.told:])
            if answer.status == 204:
                return
            no_room(answer)
            if "upload-offset" in answer.headers:
                refused.append(file)
                assert world.stored(file)[:answer.offset] == file.content[:answer.offset]
                return

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        list(pool.map(send, files))
    assert len(refused) >= 2, "all of them fitted"
    fill(small_disk / "more ballast")
    for _ in range(2):
        waiting = 0
        for file in files:
            told = file.told
            assert world.head(file) == told
            if file.receipt is not None:
                world.receipt_is(file)
            else:
                answer = world.append(file, told, file.content[told:])
                if answer.status == 204:
                    continue  # the one before it has just given back what was too little for itself
                no_room(answer)
                waiting += 1
                assert world.head(file) == file.told
        assert waiting >= 1, "all of them fitted"
        fill(small_disk / "more ballast")  # what was refused has given back what it had
        answer = world.post(world.creation(10))
        assert answer.status in (429, 503, 507) and "location" not in answer.headers, answer.text
        server.kill()
        fill(small_disk / "more ballast")
        server.start()
    (small_disk / "ballast").unlink()
    (small_disk / "more ballast").unlink()
    world.wait(lambda: world.post(world.creation(10)).status == 201, what="space")
    for file in files:
        world.finish(file)
        assert world.stored(file) == file.content
    assert server.stop() == 0
    world.check_disk()
    world.verify()


@pytest.mark.parametrize("small_disk", ["ext4"], indirect=True)
def test_T23_a_start_on_the_last_blocks(small_disk, make_server, workdir):
    """Proves: however little is free when a server starts (blocks of 1 KiB: a page of SQLite's index may get only a part of its own), it
    runs and answers, and takes uploads when there is space."""
    server = make_server(*ALONE, "--generation-bytes", "1MiB", env={**ENV, **UNTRACED}, name=str(small_disk / "data"), start=False)
    server.log_path = workdir / "serve.log"
    world = Cases(server.start(), workdir)
    file = world.finish(world.make(os.urandom(1000)))
    for kib in range(4, 15, 2):
        server.kill()
        (server.data / "tallyman.sqlite-shm").unlink()
        fill(small_disk / "ballast")
        with open(small_disk / "ballast", "rb+") as ballast:
            ballast.truncate((small_disk / "ballast").stat().st_size - (kib << 10))
            os.fsync(ballast.fileno())  # then its blocks can be used
        server.start()
        world.receipt_is(file)
    (small_disk / "ballast").unlink()
    wait_ready(server)
    world.wait(lambda: world.post(world.creation(10)).status == 201, what="space")
    world.finish(world.make(os.urandom(1000)))
    assert server.stop() == 0
    world.verify()


# ---- refusals ----

def test_T38_hole_21_other_bytes_are_refused_for_good(door):
    """Proves: a file that is not the declared one is 422 with both digests, has its own state ever after (410, with the reason), never
    an offset that equals the length, and keeps no bytes on the disk."""
    for sent in (0, 7):
        content, declared = os.urandom(3 * MIB), os.urandom(3 * MIB)
        file = door.new(declared)
        assert door.create(file).status == 201
        if sent:
            assert door.append(file, 0, content[:sent]).fits(204).offset == sent
        answer = door.say("PATCH", file.path, [*BODY.items(), ("Upload-Offset", sent)], content[sent:]).fits(422, "checksum_mismatch")
        assert file.blake3.encode() in answer.body and blake3(content).encode() in answer.body
        assert not {"upload-offset", "artifact-receipt"} & set(answer.headers)
        for method, headers in (("HEAD", TUS), ("PATCH", {**BODY, "Upload-Offset": 0}), ("PATCH", {**BODY, "Upload-Offset": file.size})):
            answer = door.say(method, file.path, headers).fits(410)
            assert not {"upload-offset", "artifact-receipt"} & set(answer.headers)
            assert method == "HEAD" or answer.body.startswith(b"ERR_GONE: ") and file.blake3.encode() in answer.body
        answer = door.say("GET", f"/api/v1/receipts/{file.id}").fits(410)
        assert json.loads(answer.body)["error"] == "gone" and file.blake3 in json.loads(answer.body)["message"]
        assert door.say("GET", f"/api/v1/artifacts/{file.id}").status == 410
        path = door.data / "uploads" / file.id
        assert not path.exists() or path.stat().st_blocks == 0
        door.no_receipt(file)
        door.files.remove(file)  # nothing is promised


# ---- paths ----

SPELLINGS = ["..", "%2e%2e", ".", "..%2f..%2fetc%2fpasswd", "../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%2Fsecret", "../secret",
             "%2e%2e/secret", "..%252fsecret", "%252e%252e%252fsecret", "..%c0%afsecret", "..%5csecret", "..\\secret", "..;/secret",
             "/etc/passwd", "%2fetc%2fpasswd", "file:%2f%2f%2fetc%2fpasswd", "ID%00", "ID%00.info", "ID.info", "ID.state", "ID.gone", "ID%2f",
             "ID%2e", "ID%20", "ID%0a", "ID%0d%0aX:%20y", "./ID", "x/../ID", "%2e/ID", "..%2fuploads%2fID", "ID/x", "ID/..",
             "ID%3f/../x", "ID0", "ID%30", "UPPER", "SHORT", "-", "*", "~root", "%", "%zz", "a" * 4000]


def spelled(text, id):
    return text.replace("ID", id).replace("UPPER", id.upper()).replace("SHORT", id[:-1])


PATH_CALLS = ("open,openat,openat2,creat,stat,lstat,newfstatat,statx,access,faccessat,faccessat2,readlink,readlinkat,unlink,unlinkat,rename,"
              "renameat,renameat2,mkdir,mkdirat,truncate,link,linkat,symlink,symlinkat")


def test_T40_hole_15_paths(door):
    """Proves: whatever stands where an id should be is answered 404 (what is no path at all, 400) and no file is looked at; what is
    like an id and unknown costs the same calls each time, none outside uploads/ and receipts/."""
    file = door.make(os.urandom(10))
    while not re.search("[a-f]", file.id):
        file = door.make(os.urandom(10))
    info = door.data / "uploads" / f"{file.id}.info"
    shutil.copy(info, door.data / "secret.info")
    (door.data / "secret").write_bytes(b"secret")
    before = tree(door.workdir)
    asked = [("HEAD", "/files/", TUS), ("PATCH", "/files/", {**BODY, "Upload-Offset": 0}), ("GET", "/api/v1/receipts/", {}),
             ("POST", "/files/", {**BODY, "Upload-Offset": 0, "X-HTTP-Method-Override": "PATCH"}), ("GET", "/api/v1/artifacts/", {})]
    with attached(door, calls=PATH_CALLS) as trace:
        for method, prefix, headers in asked:
            for text in SPELLINGS:
                path = prefix + spelled(text, file.id)
                with door.dial() as sock:
                    sock.sendall(head_of(method, path, [*headers.items(), ("Content-Length", 0), ("Connection", "close")]))
                    answer = Raw(read_all(sock))
                known = "/" not in path.removeprefix(prefix).removesuffix("/")  # else it is none of the paths that are open: 401
                assert answer.status in ((404, 400, 414) if known else (401, 400)), (path, answer.text)
                assert b"secret" not in answer.body and b"root:" not in answer.body and str(door.data).encode() not in answer.body
    quiet = [c for c in trace.calls() if str(door.data / "uploads") in c.args or "secret" in c.args or "receipts" in c.args or "etc" in c.args]
    assert quiet == [], [(c.name, c.args) for c in quiet]
    for raw in (b"\0", b"\xff", b"a b", b"\t"):  # what no request line can hold
        with door.dial() as sock:
            sock.sendall(b"HEAD /files/" + file.id.encode() + raw + b" HTTP/1.1\r\nHost: t\r\nTus-Resumable: 1.0.0\r\n\r\n")
            assert read_all(sock).split(b" ", 2)[1] in (b"400", b"404"), raw
    (door.data / "secret").unlink()
    (door.data / "secret.info").unlink()
    assert set(tree(door.workdir)) <= set(before) | {p for p in tree(door.workdir) if p.startswith("trace.")}
    assert door.head(file) == 0
    works = set()
    for id in (UNKNOWN, UNKNOWN[::-1], file.id[::-1]):
        for method, path, headers in (("HEAD", "/files/", TUS), ("PATCH", "/files/", {**BODY, "Upload-Offset": 0}), ("GET", "/api/v1/receipts/", {})):
            with attached(door, calls=PATH_CALLS) as trace:
                door.say(method, path + id, headers).fits(404)
            calls = [f"{c.name} {c.args}".replace(id, "ID") for c in trace.calls() if id in c.args]
            assert calls and all(f"{door.data}/uploads/ID" in text or f"{door.data}/receipts/ID" in text for text in calls), calls
            works.add((method, path, tuple(calls)))
    assert len(works) == 3, works


def test_T40_names_are_no_paths(door):
    """Proves: whatever a filename or another header says, files are made under ids only; joining uploads is refused before it is looked at."""
    names = ["../../x", "/etc/x", "C:\\x", ".", "..", "", "x\0y", "a/b", "\u202ex", "n" * 1024, "n" * 1025, "-rf", "%2e%2e%2fx", "a\nb"]
    before = set(tree(door.workdir))
    for name in names:
        file = door.new(os.urandom(10) + name.encode(), "x")
        metadata = words({"project": "files", "checksum": f"blake3:{file.blake3}", "filename": name})
        answer = door.post([*BODY.items(), ("Upload-Length", file.size), ("Upload-Metadata", metadata)], file.content).fits(201)
        file.hears(answer)
        assert file.receipt is not None and door.stored(file) == file.content
    ids = {file.id for file in door.files}
    for path in set(tree(door.workdir)) - before:
        match = re.fullmatch(r"data/(?:uploads/([0-9a-f]{32})(?:\.info|\.state)?|receipts/([0-9a-f]{32})\.json)", path)
        assert match and (match[1] or match[2]) in ids, path
    for value in ("final;../../x", f"final;/files/{UNKNOWN}", "partial", "final;/etc/passwd"):
        door.post(door.creation(10, None, ("Upload-Concat", value))).fits(400, "concatenation_unsupported")
    for project in ("../files", "files/../files", "", ".", "a" * 4000, "files\0"):
        door.post(door.creation(10, words({"project": project, "checksum": "blake3:" + "0" * 64}))).fits(400, "invalid_project")


# ---- pages ----

def test_T41_pages_read_every_answer(door):
    """Proves: answers of each status have the same CORS headers (`say` checks them), and OPTIONS is 204 for whatever is asked for."""
    file, seen = door.make(os.urandom(10)), set()

    def ask(status, *request, **kw):
        seen.add(door.say(*request, **kw).fits(status).status)

    ask(201, "POST", "/files/", door.creation(10))
    ask(200, "HEAD", file.path, TUS)
    ask(204, "PATCH", file.path, {**BODY, "Upload-Offset": 0}, file.content[:2])
    ask(400, "PATCH", file.path, {**BODY, "Upload-Offset": "x"})
    ask(404, "HEAD", f"/files/{UNKNOWN}", TUS)
    ask(404, "PATCH", "/files/nothing", {**BODY, "Upload-Offset": 0})
    ask(405, "PUT", file.path, TUS)
    ask(200, "GET", file.path, TUS)
    ask(400, "PATCH", file.path, {**BODY, "Upload-Offset": 2, "Upload-Checksum": "crc32 AAAAAA=="}, b"x")
    ask(460, "PATCH", file.path, {**BODY, "Upload-Offset": 2, "Upload-Checksum": f"md5 {b64(bytes(16))}"}, b"x")
    ask(405, "PATCH", "/files/", {**BODY, "Upload-Offset": 0})
    ask(409, "PATCH", file.path, {**BODY, "Upload-Offset": 0}, b"x")
    ask(412, "PATCH", file.path, {"Content-Type": BODY["Content-Type"], "Upload-Offset": 2}, b"x")
    ask(412, "POST", "/files/", [("Tus-Resumable", "0.2.2"), *door.creation(10)[1:]])
    ask(413, "PATCH", file.path, {**BODY, "Upload-Offset": 2}, bytes(20))
    ask(413, "POST", "/files/", door.creation(1 << 50))
    ask(415, "PATCH", file.path, {**TUS, "Upload-Offset": 2}, b"x")
    ask(417, "PATCH", file.path, {**BODY, "Upload-Offset": 2, "Expect": "foo"}, b"x")
    ask(422, "POST", "/files/", door.creation(10, None, ("Content-Type", BODY["Content-Type"])), bytes(10))
    assert door.head(file) == 2
    door.finish(file)
    other = door.new(os.urandom(10))
    door.create(other)
    assert door.say("PATCH", other.path, {**BODY, "Upload-Offset": 0}, bytes(10)).status == 422
    ask(410, "HEAD", other.path, TUS)
    ask(403, "DELETE", file.path, TUS)
    ask(410, "DELETE", other.path, TUS)
    door.files.remove(other)
    assert seen == {200, 201, 204, 400, 403, 404, 405, 409, 410, 412, 413, 415, 417, 422, 460}  # 429, 503: hole 17; 500: test_artifact_strace
    names = "tus-resumable, upload-offset, content-type, x-odd"
    for path in ("/files", "/files/", file.path, other.path, f"/files/{UNKNOWN}", f"/files/{UNKNOWN}/", "/files/nothing", "/files/..%2fx"):
        for asks in ([("Access-Control-Request-Method", "PATCH"), ("Access-Control-Request-Headers", names)], []):
            answer = door.say("OPTIONS", path, asks).fits(204)
            allowed = set(answer.headers["access-control-allow-methods"].split(", "))
            assert ({"GET", "HEAD", "PATCH", "POST", "DELETE"} if path.rstrip("/") != "/files" else {"POST"}) <= allowed, answer.text
            assert not asks or answer.headers["access-control-allow-headers"] == names
            assert answer.headers["tus-version"] == "1.0.0"
            assert answer.headers["tus-extension"] == "creation,creation-with-upload,expiration,checksum,termination"
            assert answer.headers["tus-checksum-algorithm"] == "sha1,md5,sha256,blake3"


# ---- Expect ----

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
WAITS = ("Expect", "100-continue")


def test_T43_the_interim_answer(door):
    """Proves: a body that is held back is asked for with these bytes and no others, once; a body that comes at once is taken with or
    without them; nobody who speaks HTTP/1.0 gets them."""
    file = door.make(os.urandom(100))
    with door.begin(file, 0, 40, WAITS, ("Connection", "close")) as sock:
        assert sock.recv(65536) == CONTINUE
        sock.sendall(file.content[:40])
        file.hears(Raw(read_all(sock)).fits(204))
    with door.dial() as sock:
        sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 40), ("Content-Length", 20), WAITS, ("Connection", "close")])
                     + file.content[40:60])
        file.hears(Raw(read_all(sock).removeprefix(CONTINUE)).fits(204))
    with door.dial() as sock:
        sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 60), ("Content-Length", 20), WAITS], "1.0"))
        sock.sendall(file.content[60:80])
        file.hears(Raw(read_all(sock)).fits(204))
    with door.dial() as sock:
        sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 80), ("Transfer-Encoding", "chunked"),
                                                  ("Expect", "100-Continue"), ("Connection", "close")]))
        assert sock.recv(65536) == CONTINUE
        sock.sendall(chunked(file.content[80:]))
        file.hears(Raw(read_all(sock)).fits(204))
    other = door.new(os.urandom(50))
    with door.dial() as sock:
        sock.sendall(head_of("POST", "/files/", [*BODY.items(), *other.creation().items(), ("Content-Length", 50), WAITS, ("Connection", "close")]))
        assert sock.recv(65536) == CONTINUE
        sock.sendall(other.content)
        other.hears(Raw(read_all(sock)).fits(201))
    assert file.receipt is not None and other.receipt is not None
    assert door.stored(file) == file.content and door.stored(other) == other.content


def test_T43_refusals_come_before_the_body(door):
    """Proves: what the head alone decides is answered at once, without 100, and the connection ends; an expectation that is none of ours
    is 417; nothing is stored."""
    file = door.make(os.urandom(100), sent=10)
    done = door.finish(door.make(os.urandom(10)))

    def append(path, offset, length, type=BODY["Content-Type"], *, expect="100-continue"):
        return "PATCH", path, [*TUS.items(), ("Content-Type", type), ("Upload-Offset", offset), ("Content-Length", length), ("Expect", expect)]

    refusals = [(append(file.path, 9, 90), 409), (append(file.path, 10, 91), 413), (append(file.path, 10, 90, "text/plain"), 415),
                (append(file.path, "x", 90), 400), (append(f"/files/{UNKNOWN}", 0, 90), 404), (append("/files/..%2fx", 0, 90), 404),
                (append(done.path, 5, 90), 409), (append(file.path, 10, 90, expect="foo"), 417),
                (append(file.path, 10, 90, expect="100-continue, foo"), 417), (append("/files/", 0, 90), 405),
                (("POST", "/files/", door.creation(101, None, ("Content-Length", 102), ("Content-Type", BODY["Content-Type"]), WAITS)), 413),
                (("POST", "/files/", door.creation(10, usual(project2="x", a="$").replace("files", "f"), ("Content-Length", 10),
                                                   ("Content-Type", "text/plain"), WAITS)), 415),
                (("POST", "/files/", door.creation(10, "project eA==", ("Content-Length", 10), WAITS)), 400)]
    for request, status in refusals:
        with door.dial() as sock:
            sock.sendall(head_of(*request))
            answer = Raw(read_answer(sock))
            assert (answer.status, answer.headers["connection"]) == (status, "close"), answer.text
            assert not read_all(sock).startswith(b"HTTP")
            answer.has_what_pages_need()
    assert door.stored(file) == file.content[:10] and door.head(file) == 10
    door.finish(file)
