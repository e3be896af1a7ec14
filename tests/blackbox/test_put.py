"""`tallyman put` and `tallyman resume`: against an artifact door in memory for everything that goes wrong, and against ours.

TALLYMAN names the binary under test.
"""
import base64
import json
import os
import pathlib
import re
import resource
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest

from fake_tus import Cut, FakeTus, Instead, Lost, Raw, Slow, Stall, Tweak, encode, text, without
from test_cli import TALLYMAN, clean_environment, on_terminal

SANITIZED = any(name in pathlib.Path(TALLYMAN).read_bytes() for name in (b"__asan_init", b"__tsan_init"))
SOON = [("Retry-After", "0")]
# BLAKE3 of "abc", from the test vectors that every implementation shares.
ABC = "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"


class Sender:
    """Runs the verbs with sessions in a directory of the test."""

    def __init__(self, path):
        self.path = path
        self.state = path / "state"
        self.sessions = self.state / "tallyman" / "uploads"
        self.env = {"XDG_STATE_HOME": str(self.state), "TALLYMAN_TOKEN": "secret-of-another-door"}

    def file(self, name="data.bin", content=b"abc"):
        file = self.path / name
        file.write_bytes(content)
        return file

    def command(self, verb, *args):
        return [TALLYMAN, verb, *map(str, args)], clean_environment(self.env)

    def run(self, verb, *args, timeout=60, **more):
        command, env = self.command(verb, *args)
        return subprocess.run(command, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout, **more)

    def put(self, fake, *args, **more):
        return self.run("put", "--project", "demo", *fake.options, *args, **more)

    def start(self, verb, *args):
        command, env = self.command(verb, *args)
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def left(self):
        return sorted(self.sessions.glob("*")) if self.sessions.exists() else []


@pytest.fixture
def sender(tmp_path):
    return Sender(tmp_path)


def until(condition, process=None, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)


def receipts(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_accepted(fake, done, sender, content=b"abc", uploads=1):
    """Exactly this was accepted once, its receipt printed, and nothing is left over."""
    assert done.returncode == 0, done.stderr
    assert [u.receipt for u in fake.accepted] == receipts(done)
    assert [bytes(u.data) for u in fake.accepted] == [content]
    assert len(fake.uploads) == uploads
    assert sender.left() == []


# ---- what is said on the wire ----


def test_one_file(sender, tmp_path):
    file = sender.file("a name.bin")
    with FakeTus(tmp_path) as fake:
        done = sender.put(fake, file)
    check_accepted(fake, done, sender)
    assert fake.log() == ["POST", "PATCH"]
    post, patch = fake.requests
    name = receipts(done)[0]["object_id"]
    assert post.target == "/files/" and post.headers["upload-length"] == "3" and post.headers["content-length"] == "0"
    assert post.headers["upload-metadata"] == ",".join(
        f"{k} {base64.b64encode(v).decode()}"
        for k, v in [("project", b"demo"), ("checksum", ABC.encode()), ("filename", b"a name.bin")])
    assert patch.target == f"/files/{name}" and patch.headers["upload-offset"] == "0"
    assert patch.headers["content-length"] == "3" and patch.body == b"abc"
    for request in fake.requests:
        assert request.headers["tus-resumable"] == "1.0.0"
        assert "authorization" not in request.headers
    assert f"tallyman artifact {name} --data {tmp_path}".encode() in done.stderr


def test_json_and_several_files(sender, tmp_path):
    good, other = sender.file("good"), sender.file("other", b"x" * 3_000_000)
    empty = sender.file("empty", b"")
    os.mkfifo(tmp_path / "pipe")
    with FakeTus() as fake:
        done = sender.put(fake, "--json", good, empty, tmp_path, tmp_path / "pipe", tmp_path / "missing", other)
    assert done.returncode == 1
    lines = receipts(done)
    assert [lines[0], lines[-1]] == [{"file": str(f), "receipt": u.receipt} for f, u in zip([good, other], fake.accepted, strict=True)]
    assert [line["file"] for line in lines[1:-1]] == [str(tmp_path / name).rstrip("/.") for name in ("empty", ".", "pipe", "missing")]
    assert {line["error"]["code"] for line in lines[1:-1]} == {"file"}
    assert fake.log() == ["POST", "PATCH"] * 2
    said = done.stderr.decode().splitlines()
    assert [s.split(": ", 1)[1] for s in said] == [
        f"{empty}: is empty; there is nothing to hand over", f"{tmp_path}: is no regular file",
        f"{tmp_path}/pipe: is no regular file", f"open {tmp_path}/missing: No such file or directory"]
    assert sender.left() == []


@pytest.mark.parametrize("options, name", [([], b"data.bin"), (["--filename", "n\u00fc/x"], "n\u00fc/x".encode()),
                                           (["--filename", ""], None)])
def test_filename(sender, tmp_path, options, name):
    with FakeTus(tmp_path) as fake:
        done = sender.put(fake, sender.file(), *options)
    check_accepted(fake, done, sender)
    assert fake.accepted[0].metadata.get("filename") == name


@pytest.mark.parametrize("args, words", [
    (["f"], b"--project: must be given"), (["--project", "", "f"], b"--project: must be given"),
    (["--project", "p"], b"FILE... is missing"), (["--project", "p", "--filename", "x", "f", "g"], b"--filename: goes with one"),
    (["--project", "p", "--filename", "x" * 1025, "f"], b"--filename: must be at most 1024 bytes"),
    (["--project", "p", "--data", "d", "--url", "http://h", "f"], b"exclude each other"),
    (["--project", "p", "--url", "h", "f"], b"--url: must begin with")])
def test_usage(sender, args, words):
    done = sender.run("put", *args)
    assert done.returncode == 2 and words in done.stderr and done.stdout == b""


@pytest.mark.parametrize("verb", ["put", "resume"])
def test_help(sender, verb):
    done = sender.run(verb, "--help")
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout.startswith(f"usage: tallyman {verb} [OPTIONS] ".encode())
    assert max(map(len, done.stdout.splitlines())) <= 90


def test_usage_of_resume(sender):
    done = sender.run("resume", "--data", "d", "--url", "http://h")
    assert done.returncode == 2 and b"exclude each other" in done.stderr


def test_json_tells_failures(sender, tmp_path):
    """A line a file, in their order, whatever became of it; a session where it can be gone on with."""
    good, refused, broken, absent = (sender.file(name=n) for n in ("good", "refused", "broken", "absent"))
    refused.write_bytes(b"other bytes")
    broken.write_bytes(BODY)
    absent.unlink()
    faults = [("PATCH", Tweak(lambda r: r)), ("PATCH", Instead(422, text("ERR_CHECKSUM_MISMATCH"))), ("PATCH", Instead(403, read=0))]
    with FakeTus(tmp_path, faults) as fake:
        done = sender.put(fake, good, refused, broken, absent, "--json")
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(f) for f in (good, refused, broken, absent)]
    assert list(lines[0]) == ["file", "receipt"] and lines[0]["receipt"]["object_id"]
    assert [list(line) for line in lines[1:]] == [["file", "error"]] * 3
    assert [line["error"]["code"] for line in lines[1:]] == ["refused", "failed", "file"]
    assert "ERR_CHECKSUM_MISMATCH" in lines[1]["error"]["message"] and list(lines[1]["error"]) == ["code", "message"]
    (left,) = sender.left()
    assert lines[2]["error"]["session"].endswith(os.path.basename(left)) and "403" in lines[2]["error"]["message"]
    assert "absent" in lines[3]["error"]["message"]


@pytest.mark.parametrize("location", ["/files/{id}", "{id}", "./{id}", "http://{host}/files/{id}", "HTTP://{host}/files/{id}#x",
                                      "//{host}/files/{id}"])
def test_location(sender, tmp_path, location):
    with FakeTus() as fake:
        fake.location = location.replace("{host}", fake.options[1].removeprefix("http://"))
        done = sender.put(fake, sender.file())
    check_accepted(fake, done, sender)


def test_location_of_a_public_address_over_the_socket(sender, tmp_path):
    with FakeTus(tmp_path, location="https://files.example.test/files/{id}") as fake:
        done = sender.put(fake, sender.file())
    check_accepted(fake, done, sender)


def test_base_with_a_path(sender):
    with FakeTus(location="/sub/files/{id}") as fake:
        done = sender.run("put", "--project", "demo", "--url", fake.options[1] + "/sub/", sender.file())
    check_accepted(fake, done, sender)
    assert [r.path.split("/")[1] for r in fake.requests] == ["sub", "sub"]


# ---- trouble that is got over ----

BODY = bytes(range(256)) * 8000  # more than libcurl sends without asking first
GONE = Instead(410, text("ERR_GONE", "it has expired"))
NO_RECEIPT = Tweak(lambda r: without(r, "artifact-receipt"))

RECOVERABLE = {
    "post 503": [("POST", Instead(503, text("ERR_UPLOADS_BUSY"), SOON))],
    "post 429, 500, 502": [("POST", Instead(s, b"", SOON)) for s in (429, 500, 502)],
    "post 504, 423": [("POST", Instead(s, b"", SOON)) for s in (504, 423)],
    "patch 503, 429": [("PATCH", Instead(s, text("ERR_X"), SOON)) for s in (503, 429)],
    "patch 409, 423": [("PATCH", Instead(s, text("ERR_X"), SOON)) for s in (409, 423)],
    "patch 500, 502, 504": [("PATCH", Instead(s, text("ERR_X"), SOON)) for s in (500, 502, 504)],
    "patch 408, 400": [("PATCH", Instead(408, b"", SOON)), ("PATCH", Instead(400, text("ERR_UPLOAD_INTERRUPTED"), SOON))],
    "an hour ago": [("PATCH", Instead(503, b"", [("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT")]))],
    "refused before the body": [("PATCH", Instead(503, text("ERR_X"), SOON, read=0))],
    "refused in the middle": [("PATCH", Instead(503, text("ERR_X"), SOON, read=300_000, keep=200_000))],
    "cut": [("PATCH", Cut(1_000_000)), ("PATCH", Cut(1)), ("PATCH", Cut(0))],
    "reset": [("PATCH", Cut(700_000, reset=True))],
    "last answer lost": [("PATCH", Lost())],
    "500 after the receipt was made": [("PATCH", Tweak(lambda r: Instead(500, text("ERR_ACCEPT_FAILED")).reply))],
    "404 after the receipt was made": [("PATCH", Tweak(lambda r: Instead(404, text("ERR_X")).reply))],
    "head 404 and 410 after it": [("PATCH", Lost()), ("HEAD", GONE)],
    "204 without receipt": [("PATCH", NO_RECEIPT)],
    "204 without anything": [("PATCH", Tweak(lambda r: without(r, "artifact-receipt", "upload-offset")))],
    "receipt 503": [("PATCH", NO_RECEIPT), ("GET", Instead(503, b"", SOON))],
    "receipt cut": [("PATCH", NO_RECEIPT), ("GET", Raw(b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"))],
    "expectation failed": [("PATCH", Instead(417, read=0))] * 2,
    "204 for a part": [("PATCH", Tweak(lambda r: Instead(204, b"", [("Upload-Offset", 5)]).reply))],
    "head in trouble": [("PATCH", Cut(1000)), *[("HEAD", Instead(s, b"", SOON)) for s in (503, 423)]],
    "head in more trouble": [("PATCH", Cut(1000)), ("HEAD", Instead(500, b"", SOON)), ("HEAD", Lost())],
    "head with the receipt": [("PATCH", Lost()), ("GET", Instead(404))],
}


@pytest.mark.parametrize("name", RECOVERABLE)
def test_recovers(sender, tmp_path, name):
    faults = RECOVERABLE[name]
    over_tcp = list(RECOVERABLE).index(name) % 2 == 0
    with FakeTus(None if over_tcp else tmp_path, faults) as fake:
        done = sender.put(fake, sender.file(content=BODY))
    check_accepted(fake, done, sender, BODY)
    assert fake.faults == [] or fake.faults == [("GET", faults[-1][1])]
    assert fake.log().count("POST") == 1 + sum(method == "POST" for method, _ in faults)


def test_complete_but_not_accepted(sender, tmp_path):
    """A door whose HEAD gives the whole length before there is a receipt: a PATCH of nothing finishes it."""
    with FakeTus(tmp_path, [("PATCH", Cut(len(BODY)))]) as fake:
        done = sender.put(fake, sender.file(content=BODY))
    check_accepted(fake, done, sender, BODY)
    assert fake.log() == ["POST", "PATCH", "HEAD", "GET", "PATCH"]
    assert fake.requests[-1].headers["upload-offset"] == str(len(BODY)) and fake.requests[-1].body == b""


def test_waits_as_asked(sender, tmp_path):
    at = []
    with FakeTus(tmp_path, [("POST", Instead(503, text("ERR_UPLOADS_BUSY"), [("Retry-After", "2")]))]) as fake:
        fake.before_body = lambda request: at.append(time.monotonic())
        done = sender.put(fake, sender.file())
    check_accepted(fake, done, sender)
    assert 2 <= at[1] - at[0]
    assert b"answered 503 to POST: ERR_UPLOADS_BUSY: the words; trying again in 2 s" in done.stderr


def test_silence(sender, tmp_path):
    with FakeTus(tmp_path, [("PATCH", Stall(1000))]) as fake:
        done = sender.put(fake, sender.file(content=BODY), "--timeout", 1)
    check_accepted(fake, done, sender, BODY)


def test_forgotten_upload_begins_anew(sender, tmp_path):
    with FakeTus(tmp_path, [("PATCH", Cut(1000)), ("HEAD", GONE)]) as fake:
        done = sender.put(fake, sender.file(content=BODY))
    check_accepted(fake, done, sender, BODY, uploads=2)
    assert b"does not have the upload any more" in done.stderr and b"beginning anew" in done.stderr


def test_a_lost_creation_is_repeated(sender, tmp_path):
    """An empty upload is left, which expires."""
    with FakeTus(tmp_path, [("POST", Lost()), ("POST", Lost())]) as fake:
        done = sender.put(fake, sender.file(content=BODY))
    check_accepted(fake, done, sender, BODY, uploads=3)
    assert fake.log() == ["POST", "POST", "POST", "PATCH"]


# ---- trouble that is told ----


def wrong(**members):
    """The receipt of a 204 with other members."""
    def change(reply):
        good = base64.urlsafe_b64decode(dict(reply.headers)["Artifact-Receipt"] + "==")
        reply = without(reply, "artifact-receipt")
        reply.headers.append(("Artifact-Receipt", encode({**json.loads(good), **members})))
        return reply
    return Tweak(change)


def bad_header(value):
    def change(reply):
        reply = without(reply, "artifact-receipt")
        reply.headers.append(("Artifact-Receipt", value))
        return reply
    return Tweak(change)


# faults, words on standard error, whether the session stays, requests
HOPELESS = {
    "400": ([("POST", Instead(400, text("ERR_INVALID_PROJECT")))], b"answered 400 to POST: ERR_INVALID_PROJECT: the words", 0, 1),
    "413": ([("POST", Instead(413, b""))], b"answered 413 to POST\n", 0, 1),
    "json": ([("POST", Instead(401, b'{"error":"unauthorized","message":"who?"}'))], b"answered 401 unauthorized: who?", 0, 1),
    "no issuer": ([("POST", Instead(503, text("ERR_NO_ISSUER")))], b"ERR_NO_ISSUER", 0, 1),
    "redirect": ([("POST", Instead(307, b"", [("Location", "/files/")]))], b"answered 307 to POST", 0, 1),
    "no location": ([("POST", Tweak(lambda r: without(r, "location")))], b"is no URL of an upload", 0, 1),
    "422": ([("PATCH", Instead(422, text("ERR_CHECKSUM_MISMATCH")))], b"ERR_CHECKSUM_MISMATCH", 0, 2),
    "413 in the middle": ([("PATCH", Instead(413, text("ERR_X"), read=70_000))], b"answered 413 to PATCH: ERR_X", 1, 2),
    "415": ([("PATCH", Instead(415, b"", read=0))], b"answered 415 to PATCH", 1, 2),
    "mismatch found out later": (
        [("PATCH", Lost()), ("HEAD", GONE), ("GET", Instead(410, b'{"error":"gone","message":"checksum mismatch: a is not b"}'))],
        b"gone: checksum mismatch: a is not b; the upload is over", 0, 4),
    "other object": ([("PATCH", wrong(object_id="f" * 32))], b"the receipt is for another object", 1, 2),
    "other bytes": ([("PATCH", wrong(checksum=ABC[:-1] + "0"))], b"the receipt is for other bytes", 1, 2),
    "other size": ([("PATCH", wrong(size_bytes=1))], b"the receipt is for another size", 1, 2),
    "size in words": ([("PATCH", wrong(size_bytes=str(len(BODY))))], b"the receipt is for another size", 1, 2),
    "no base64": ([("PATCH", bad_header("!!"))], b"Artifact-Receipt cannot be read", 1, 2),
    "no json": ([("PATCH", bad_header(encode(b'{"object_id":')))], b"is none", 1, 2),
    "no object": ([("PATCH", bad_header(encode(b"[]")))], b"is none", 1, 2),
    "other length": ([("PATCH", Cut(9)), ("HEAD", Tweak(lambda r: Instead(
        200, b"", [("Upload-Offset", 1), ("Upload-Length", 2)]).reply))], b"holds another upload", 1, 3),
    "no offset": ([("PATCH", Cut(9)), ("HEAD", Tweak(lambda r: without(r, "upload-offset")))], b"holds another upload", 1, 3),
    "head 403": ([("PATCH", Cut(9)), ("HEAD", Instead(403))], b"answered 403 to HEAD", 1, 3),
    "no http": ([("PATCH", Raw(b"SSH-2.0-x\r\n"))], b"HTTP", 1, 2),
    "receipt refused": ([("PATCH", NO_RECEIPT), ("GET", Instead(403))], b"answered 403 to GET", 1, 3),
}


@pytest.mark.parametrize("faults, words, kept, requests", HOPELESS.values(), ids=HOPELESS.keys())
def test_gives_up(sender, tmp_path, faults, words, kept, requests):
    with FakeTus(tmp_path, faults) as fake:
        done = sender.put(fake, sender.file(content=BODY))
    assert done.returncode == 1 and done.stdout == b""
    assert words in done.stderr, done.stderr
    assert len(fake.requests) == requests, fake.log()
    assert len(sender.left()) == kept
    assert (b"go on with: tallyman resume " + os.fsencode(sender.sessions) in done.stderr) == bool(kept)


@pytest.mark.parametrize("location", [
    "http://127.0.0.1:1/files/{id}", "https://{host}/files/{id}", "http://u:p@{host}/files/{id}", "ftp://{host}/files/{id}",
    "/files/", "/files/a%2fb", "/files/%00", "/files/{id}/"])
def test_bad_location(sender, location):
    """The bytes go only where the operator has sent them."""
    with FakeTus() as fake:
        fake.location = location.replace("{host}", fake.options[1].removeprefix("http://"))
        done = sender.put(fake, sender.file())
    assert done.returncode == 1 and fake.log() == ["POST"] and sender.left() == []
    assert b"leads to another server" in done.stderr or b"is no URL of an upload" in done.stderr


@pytest.mark.parametrize("faults, options, words", [
    ([("PATCH", Instead(503, text("ERR_X"), SOON))] * 9, ["--retry", 0], b"answered 503 to PATCH: ERR_X"),
    ([("PATCH", Instead(503, text("ERR_X"), [("Retry-After", "3600")]))], [], b"answered 503 to PATCH: ERR_X"),
    ([("POST", Instead(429, text("ERR_LOW_SPACE"), [("Retry-After", "Sat, 28 Nov 2093 10:00:00 GMT")]))], [], b"ERR_LOW_SPACE"),
    ([("PATCH", Cut(0))] * 99, ["--retry", 1], b"tallyman.sock")])
def test_patience_ends(sender, tmp_path, faults, options, words):
    with FakeTus(tmp_path, faults) as fake:
        done = sender.put(fake, sender.file(), *options)
    assert done.returncode == 1 and done.stdout == b"" and words in done.stderr
    assert len(sender.left()) == fake.log().count("POST") - (fake.log() == ["POST"])


def test_progress_renews_patience(sender, tmp_path):
    """Every cut brings a byte: much more time in all than --retry, and never given up."""
    start = time.monotonic()
    with FakeTus(tmp_path, [("PATCH", Cut(1))] * 36) as fake:
        done = sender.put(fake, sender.file(content=BODY), "--retry", 2)
    check_accepted(fake, done, sender, BODY)
    assert time.monotonic() - start > 2


def test_a_line_that_breaks_late_is_tried_again(sender, tmp_path):
    """The time in which bytes moved does not count against --retry."""
    start = time.monotonic()
    with FakeTus(tmp_path, [("PATCH", Cut(1 << 20, piece=1 << 15, pause=0.1))]) as fake:
        done = sender.put(fake, sender.file(content=bytes(4 << 20)), "--retry", 2)
    assert time.monotonic() - start > 3
    check_accepted(fake, done, sender, bytes(4 << 20))


def test_names_that_are_too_long(sender, tmp_path):
    done = sender.run("put", "--project", "p" * 300, "--data", tmp_path, sender.file())
    assert done.returncode == 1 and b"a name or path is too long" in done.stderr


def test_nobody_there(sender, tmp_path):
    done = sender.run("put", "--project", "p", "--data", tmp_path, sender.file())
    assert done.returncode == 1 and b"no server answers at" in done.stderr


def test_gone_twice(sender, tmp_path):
    with FakeTus(tmp_path, [("PATCH", GONE)] * 2 + [("GET", Instead(404))] * 2) as fake:
        done = sender.put(fake, sender.file())
    assert done.returncode == 1 and b"put it again" in done.stderr
    assert fake.log() == ["POST", "PATCH", "GET"] * 2 and sender.left() == []


def test_file_becomes_shorter(sender, tmp_path):
    file = sender.file(content=BODY)
    with FakeTus(tmp_path) as fake:
        fake.before_body = lambda request: request.method == "POST" and os.truncate(file, 1000)
        done = sender.put(fake, file)
    assert done.returncode == 1 and b"became shorter while it was sent" in done.stderr
    assert len(sender.left()) == 1


def test_no_room_for_sessions(sender, tmp_path):
    """Without sessions the file is sent all the same; a directory that was asked for must work."""
    sender.state.write_bytes(b"in the way")
    file = sender.file()
    with FakeTus(tmp_path) as fake:
        done = sender.put(fake, file)
        assert done.returncode == 0 and b"an upload that is interrupted begins anew" in done.stderr
        refused = sender.put(fake, file, "--session", sender.state / "x")
    assert refused.returncode == 1 and b"--session: make directory" in refused.stderr and fake.log() == ["POST", "PATCH"]
    assert len(receipts(done)) == 1


def test_session_that_cannot_be_written(sender, tmp_path):
    with FakeTus(tmp_path) as fake:
        fake.before_body = lambda request: request.method == "POST" and sender.sessions.rmdir()
        done = sender.put(fake, sender.file())
    assert done.returncode == 0 and b"if this upload is interrupted it begins anew" in done.stderr
    assert len(receipts(done)) == 1


def test_default_data_directory(sender, tmp_path):
    sender.env["TALLYMAN_DATA"] = str(tmp_path)
    with FakeTus(tmp_path) as fake:
        done = sender.run("put", "--project", "demo", sender.file())
    check_accepted(fake, done, sender)
    assert done.stderr.endswith(b"tallyman artifact " + receipts(done)[0]["object_id"].encode() + b"\n")


def test_resume_without_sessions(sender, tmp_path):
    file = sender.file()
    for args in ([], ["--session", tmp_path / "nowhere"]):
        done = sender.run("resume", *args)
        assert done.returncode == 0 and b"there is nothing to go on with in" in done.stderr
    assert b": there is no unfinished upload of it in" in sender.run("resume", file).stderr
    done = sender.run("resume", "--session", file)
    assert done.returncode == 1 and b"list" in done.stderr
    sender.env.update(XDG_STATE_HOME="", HOME="")
    done = sender.run("resume")
    assert done.returncode == 1 and b"there is no HOME to keep sessions in" in done.stderr


def test_receipt_that_cannot_be_printed(sender, tmp_path):
    """Nobody has the receipt: the session stays, and the next run prints it."""
    file = sender.file()
    with FakeTus(tmp_path) as fake:
        with open("/dev/full", "wb") as full:
            command, env = sender.command("put", "--project", "demo", *fake.options, file)
            done = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert done.returncode == 1 and b"cannot write to standard output" in done.stderr and len(sender.left()) == 1
        check_accepted(fake, sender.put(fake, file), sender)
    assert fake.log() == ["POST", "PATCH", "HEAD"]


# ---- going on later ----


def stalled(sender, fake, file, keep=400_000, verb="put", *args):
    """A put whose PATCH stands still with that much on the server."""
    args = args or ("--project", "demo", *fake.options, file)
    fake.faults = [("PATCH", Stall(keep))]
    have = sum(len(u.data) for u in fake.uploads.values())
    process = sender.start(verb, *args)
    until(lambda: sum(len(u.data) for u in fake.uploads.values()) == have + keep, process)
    return process


def test_session_of_a_killed_put(sender, tmp_path):
    file = sender.file(content=BODY)
    with FakeTus(tmp_path) as fake:
        process = stalled(sender, fake, file)
        session, = sender.left()
        assert stat.S_IMODE(session.stat().st_mode) == 0o600
        assert stat.S_IMODE(session.parent.stat().st_mode) == 0o700
        name, = fake.uploads
        seen = json.loads(session.read_bytes())
        assert seen == {"upload_url": f"http://localhost/files/{name}", "object_id": name, "project": "demo",
                        "filename": "data.bin", "checksum": fake.uploads[name].metadata["checksum"].decode(),
                        "size_bytes": len(BODY), "server": str(tmp_path), "file": str(file)}
        # While it runs, nobody else takes the upload over.
        for verb in (["put", "--project", "demo", *fake.options, file], ["resume"]):
            other = sender.run(*verb)
            assert other.returncode == 1 and b"another tallyman is working on it" in other.stderr
        process.kill()
        process.communicate()
        assert fake.log() == ["POST", "PATCH"]
        check_accepted(fake, sender.put(fake, file), sender, BODY)
    assert fake.log()[2:] == ["HEAD", "PATCH"]
    assert fake.requests[-1].headers["upload-offset"] == "400000"


@pytest.mark.parametrize("operand", ["all", "file", "relative", "session"])
@pytest.mark.parametrize("tcp", [False, True])
def test_resume(sender, tmp_path, operand, tcp):
    file = sender.file("n\udcff.bin" if operand == "file" else "data.bin", content=BODY)
    with FakeTus(None if tcp else tmp_path) as fake:
        process = stalled(sender, fake, file)
        process.kill()
        process.communicate()
        operands = {"all": [], "file": [file], "relative": [file.name], "session": sender.left()}[operand]
        done = sender.run("resume", *operands, cwd=tmp_path)
        check_accepted(fake, done, sender, BODY)
        assert fake.log() == ["POST", "PATCH", "HEAD", "PATCH"]
        again = sender.run("resume")
    assert again.returncode == 0 and b"there is nothing to go on with" in again.stderr
    where = f"--url {fake.options[1]}" if tcp else f"--data {tmp_path}"
    assert f"tallyman artifact {receipts(done)[0]['object_id']} {where}".encode() in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_the_session(sender, tmp_path, number):
    file = sender.file(content=BODY)
    with FakeTus(tmp_path) as fake:
        process = stalled(sender, fake, file)
        process.send_signal(number)
        out, said = process.communicate(timeout=20)
        assert process.returncode == 1 and out == b""
        session, = sender.left()
        assert f"go on with: tallyman resume {session}\n".encode() in said
        if number == signal.SIGINT:  # no answer had told it when the upload expires but the 201
            assert b"the server keeps what it has until Sat, 28 Nov 2093 10:00:00 GMT" in said
        check_accepted(fake, sender.run("resume", session), sender, BODY)


def test_json_tells_what_a_signal_left(sender, tmp_path):
    first, second = sender.file("first", BODY), sender.file("second")
    with FakeTus(tmp_path, [("PATCH", Stall(1000))]) as fake:
        process = sender.start("put", "--project", "demo", *fake.options, "--json", first, second)
        until(lambda: fake.log() == ["POST", "PATCH"], process)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 1 and [line["file"] for line in lines] == [str(first), str(second)]
    assert [line["error"]["code"] for line in lines] == ["stopped", "stopped"]
    assert lines[0]["error"]["session"] == str(sender.left()[0]) and "session" not in lines[1]["error"]


def test_json_of_resume(sender, tmp_path):
    """A line a session: what a signal stopped, what was not tried because of it, what there is nothing of."""
    files = [sender.file(name, BODY + name.encode()) for name in ("first", "second")]
    with FakeTus(tmp_path, [("PATCH", Instead(403, read=0))] * 2 + [("PATCH", Stall(1000))]) as fake:
        sender.put(fake, *files)
        assert len(sender.left()) == 2
        process = sender.start("resume", "--json")
        until(lambda: fake.log().count("PATCH") == 3, process)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        lines = [json.loads(line) for line in out.splitlines()]
        assert {line["file"] for line in lines} == set(map(str, files))
        assert [line["error"]["code"] for line in lines] == ["stopped", "stopped"] and process.returncode == 1
        done = sender.run("resume", "--json", tmp_path / "nothing", *files)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(line)[1] for line in lines] == ["error", "receipt", "receipt"] and lines[0]["error"]["code"] == "session"
    assert done.returncode == 1 and sender.left() == []


def test_signal_while_waiting(sender, tmp_path):
    with FakeTus(tmp_path, [("PATCH", Instead(503, b"", [("Retry-After", "500")]))]) as fake:
        process = sender.start("put", "--project", "demo", *fake.options, sender.file())
        process.stderr.readline()  # "trying again in 500 s"
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=20)
    assert process.returncode == 1 and out == b"" and b"go on with" in said


def test_only_the_same_is_gone_on_with(sender, tmp_path):
    file = sender.file(content=BODY)
    with FakeTus(tmp_path) as fake:
        process = stalled(sender, fake, file)
        process.kill()
        process.communicate()
        for args in (["--project", "other"], ["--project", "demo", "--filename", "x"]):
            assert sender.run("put", *args, *fake.options, file).returncode == 0
        assert fake.log().count("POST") == 3 and len(sender.left()) == 1
        file.write_bytes(BODY[:-1] + b"!")
        changed = sender.run("resume")
        assert changed.returncode == 1 and b"is not what it was when its upload began" in changed.stderr
        file.write_bytes(BODY + b"!")
        assert sender.run("resume", file).returncode == 1
        assert len(sender.left()) == 1
        file.unlink()
        missing = sender.run("resume")
        assert missing.returncode == 1 and b"No such file" in missing.stderr and len(sender.left()) == 1


def test_resume_of_a_forgotten_upload(sender, tmp_path):
    file = sender.file(content=BODY)
    with FakeTus(tmp_path) as fake:
        process = stalled(sender, fake, file)
        process.kill()
        process.communicate()
        fake.uploads.clear()
        done = sender.run("resume")
        assert done.returncode == 1 and b"put it again" in done.stderr and sender.left() == []
        assert fake.log().count("POST") == 1


def test_server_that_moved(sender, tmp_path):
    file = sender.file(content=BODY)
    with FakeTus() as fake:
        process = stalled(sender, fake, file)
        process.kill()
        process.communicate()
        uploads, ids = fake.uploads, fake.ids
    with FakeTus(tmp_path) as fake:
        fake.uploads, fake.ids = uploads, ids
        assert sender.run("resume").returncode == 1  # nobody listens at the old place
        check_accepted(fake, sender.run("resume", *fake.options), sender, BODY)


@pytest.mark.parametrize("change", [
    {"upload_url": "http://elsewhere.test/files/{id}"}, {"upload_url": None}, {"object_id": "x"}, {"size_bytes": 0},
    {"size_bytes": -1}, {"checksum": "blake3:00"}, {"checksum": "sha256:" + "0" * 64}, {"file": "relative"}, {"file": 7},
    {"server": None}, {"project": []}, {"filename": 1}, {"file_base64": "AA=="}, None])
def test_damaged_session(sender, tmp_path, change):
    file = sender.file(content=BODY)
    with FakeTus() as fake:
        process = stalled(sender, fake, file)
        process.kill()
        process.communicate()
        session, = sender.left()
        seen = json.loads(session.read_bytes())
        if change is None:
            session.write_bytes(b"{")
        else:
            name, value = next(iter(change.items()))
            seen[name] = value.replace("{id}", seen["object_id"]) if isinstance(value, str) else value
            session.write_text(json.dumps({k: v for k, v in seen.items() if v is not None}))
        before = len(fake.requests)
        done = sender.run("resume", session)
        assert done.returncode == 1 and len(fake.requests) == before
        assert b"is no session" in done.stderr or b"is not on http://127.0.0.1" in done.stderr or b"no session" in done.stderr


def test_resume_of_several(sender, tmp_path):
    files = [sender.file(name, name.encode() * 200_000) for name in ("one", "two", "three")]
    with FakeTus(tmp_path) as fake:
        for file in files:
            process = stalled(sender, fake, file)
            process.kill()
            process.communicate()
        assert len(sender.left()) == 3
        done = sender.run("resume", "--json")
        assert done.returncode == 0 and sender.left() == []
        assert sorted(r["file"] for r in receipts(done)) == sorted(map(str, files))
        assert len(fake.uploads) == len(fake.accepted) == 3


@pytest.mark.parametrize("name, value", [("size_bytes", 5), ("upload_url", "http://elsewhere.test/files/{id}")])
def test_session_of_something_else_does_not_stop_a_put(sender, tmp_path, name, value):
    file = sender.file(content=BODY)
    with FakeTus(tmp_path) as fake:
        process = stalled(sender, fake, file)
        process.kill()
        process.communicate()
        session, = sender.left()
        seen = json.loads(session.read_bytes())
        seen[name] = value.replace("{id}", seen["object_id"]) if isinstance(value, str) else value
        session.write_text(json.dumps(seen))
        check_accepted(fake, sender.put(fake, file), sender, BODY, uploads=2)


def test_damaged_session_does_not_stop_a_put(sender, tmp_path):
    file = sender.file(content=BODY)
    with FakeTus(tmp_path) as fake:
        process = stalled(sender, fake, file)
        process.kill()
        process.communicate()
        sender.left()[0].write_bytes(b"\0" * 300)
        done = sender.put(fake, file)
    assert b"is damaged and is not used" in done.stderr
    check_accepted(fake, done, sender, BODY, uploads=2)


# ---- size ----


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's shadow takes all of the address space")
def test_memory_is_bounded(sender, tmp_path):
    file = tmp_path / "large"
    with open(file, "wb") as f:
        f.truncate(200 << 20)
    limit = 120 << 20
    with FakeTus(tmp_path) as fake:
        done = sender.put(fake, file, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 0, done.stderr
    assert len(fake.accepted[0].data) == 200 << 20


def test_progress_with_the_time_left(sender, tmp_path):
    file = sender.file(content=bytes(3 << 20))
    command, env = sender.command("put", "--project", "demo", "--data", tmp_path, file)
    os.environ["XDG_STATE_HOME"] = env["XDG_STATE_HOME"]
    try:
        with FakeTus(tmp_path, [("PATCH", Slow(256 << 10, 0.12))]) as fake:
            code, shown = on_terminal(command)
    finally:
        del os.environ["XDG_STATE_HOME"]
    assert code == 0 and b"sending [####" in shown and re.search(rb"/s, \d+:\d\d left", shown)
    assert b"\r\x1b[K" + json.dumps(fake.accepted[0].receipt, separators=(",", ":")).encode() in shown


# ---- our own door ----


class Gate:
    """A TCP proxy that lets so many bytes of one connection through to the server, and then none until it is opened."""

    def __init__(self, port, most):
        self.port, self.most = port, most
        self.through = 0
        self.opened = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets, self.threads = [], [threading.Thread(target=self.accept)]

    def __enter__(self):
        self.threads[0].start()
        return self

    def __exit__(self, *unused):
        self.opened.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for s in self.sockets:
            self.end(s)
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()

    @staticmethod
    def end(s):
        """Wakes whoever waits on it, and closes it: a shutdown alone leaves a sender before a full buffer waiting."""
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        s.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                client.close()
                continue
            self.sockets += [client, server]
            for args in ((client, server, True), (server, client, False)):
                self.threads.append(threading.Thread(target=self.pump, args=args))
                self.threads[-1].start()

    def pump(self, source, target, counted):
        try:
            while True:
                data = source.recv(1 << 20)
                if not data:
                    break
                if counted and not self.opened.is_set():
                    if self.through + len(data) > self.most:
                        self.opened.wait()
                    self.through += len(data)
                target.sendall(data)
        except OSError:
            pass
        self.end(source)
        self.end(target)


@pytest.fixture
def door(make_server, workdir):
    server = make_server("--min-free-bytes", "1")
    (workdir / "far").mkdir()
    server.cli("project", "create", "demo", "--sink", "directory", "--directory", str(workdir / "far"), check=0)
    return server


def large_file(sender, size):
    file = sender.path / "large"
    with open(file, "wb") as f:
        for at in range(0, size, 1 << 20):
            f.write(at.to_bytes(8, "big") * (1 << 17))
        f.truncate(size)
    return file


def check_receipt(door, done, size):
    assert done.returncode == 0, done.stderr
    receipt, = receipts(done)
    answer = door.get(f"/api/v1/receipts/{receipt['object_id']}")
    assert answer.status == 200 and answer.body == done.stdout
    assert receipt["size_bytes"] == size
    return receipt


def test_real_door(door, sender):
    small, large = sender.file(), large_file(sender, (3 << 20) + 5)
    receipt = check_receipt(door, sender.run("put", "--project", "demo", "--data", door.data, small), 3)
    assert receipt["checksum"] == ABC and receipt["issuer"] == door.url
    check_receipt(door, sender.run("put", "--project", "demo", "--url", door.url, large), (3 << 20) + 5)
    both = sender.run("put", "--project", "demo", "--json", "--data", door.data, small, large)
    assert both.returncode == 0 and [r["file"] for r in receipts(both)] == [str(small), str(large)]
    unknown = sender.run("put", "--project", "nobody", "--data", door.data, small)
    assert unknown.returncode == 1 and b"answered 400 to POST: ERR_INVALID_PROJECT" in unknown.stderr
    assert sender.left() == []


def test_real_door_killed_in_the_middle(door, sender):
    """The server dies at two thirds and comes back: the same put goes on from a synced offset, and ends with a receipt."""
    size = 150 << 20
    file = large_file(sender, size)
    with Gate(door.port, 100 << 20) as gate:
        process = sender.start("put", "--project", "demo", "--url", gate.url, file)
        until(lambda: gate.through > 98 << 20, process)
        door.kill()
        gate.opened.set()
        gate.through = 0
        door.start()
        out, said = process.communicate(timeout=60)
    done = subprocess.CompletedProcess([], process.returncode, out, said)
    check_receipt(door, done, size)
    assert len(list((door.data / "receipts").glob("*.json"))) == 1
    assert sender.left() == []


def test_real_door_resumed(door, sender):
    """The put dies at two thirds: resume sends the last third only."""
    size = 150 << 20
    file = large_file(sender, size)
    with Gate(door.port, 100 << 20) as gate:
        process = sender.start("put", "--project", "demo", "--url", gate.url, file)
        until(lambda: gate.through > 98 << 20, process)
        process.kill()
        process.communicate()
    with Gate(door.port, 60 << 20) as gate:
        check_receipt(door, sender.run("resume", file, "--url", gate.url), size)
    assert sender.left() == []
