"""The fake Internet Archive against clients that others wrote for the real one: rclone, Debian's `ia`, curl; and by hand, whatever they
never do. What the end-to-end tests believe of it is shown here."""
import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest
from archive_items import COLLECTION, OWNER, REASONS, Refused, Showing, decode_metadata
from conftest import ROOT
from fake_archive import Fault, FakeArchive, bad_gateway, cut, lost_answer, slow_down

ID = "test-item-1"
LOW = ("Authorization", "LOW ACCESSKEY:SECRETKEY")
MAKE = ("x-archive-auto-make-bucket", "1")


@pytest.fixture
def archive():
    with FakeArchive() as fake:
        yield fake


class Answered:
    def __init__(self, raw):
        """raw: all that came, interim answers included."""
        self.interim = raw.startswith(b"HTTP/1.1 100 ")
        if self.interim:
            raw = raw.partition(b"\r\n\r\n")[2]
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1]) if first else None
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    @property
    def json(self):
        return json.loads(self.body)


def connect(url):
    return socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), 20)


def head(method, target, headers):
    lines = [f"{method} {target} HTTP/1.1", "Host: t", "User-Agent: t"] + [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def ask(url, method, target, body=None, *headers, length=True):
    """One request on a connection of its own."""
    headers = [*headers, ("Connection", "close")]
    if body is not None and length:
        headers.append(("Content-Length", len(body)))
    with connect(url) as s:
        s.sendall(head(method, target, headers) + (body or b""))
        return Answered(read_all(s))


def read_all(s):
    data = b""
    while True:
        try:
            piece = s.recv(1 << 16)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def put(archive, key="a.bin", body=b"the bytes", *headers, item=ID, auth=LOW, make=MAKE):
    return ask(archive.s3, "PUT", f"/{item}/{key}", body, *filter(None, (auth, make)), *headers)


def code(answer):
    return answer.body.decode().partition("<Code>")[2].partition("<")[0]


def resource(answer):
    return answer.body.decode().partition("<Resource>")[2].partition("<")[0]


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def look(archive, item=ID):
    return ask(archive.front, "GET", f"/metadata/{item}").json


# ---- rclone ----

def rclone(archive, workdir, *words):
    settings = {"ACCESS_KEY_ID": "ACCESSKEY", "SECRET_ACCESS_KEY": "SECRETKEY", "ENDPOINT": archive.s3,
                "FRONT_ENDPOINT": archive.front, "DISABLE_CHECKSUM": "false"}
    env = {**os.environ, "HOME": str(workdir), "RCLONE_CONFIG": str(workdir / "none.conf"),
           **{f"RCLONE_INTERNETARCHIVE_{name}": value for name, value in settings.items()}}
    return subprocess.run(["rclone", *words], env=env, capture_output=True, text=True, timeout=60)


def test_rclone_copies_checks_overwrites_and_deletes(archive, workdir):
    source = workdir / "source"
    (source / "deep").mkdir(parents=True)
    files = {"a.txt": b"hello", "deep/słoń & ü.bin": os.urandom(700000), "empty": b""}
    for name, data in files.items():
        (source / name).write_bytes(data)
    there = f":internetarchive:{ID}"
    ours = ("--exclude", f"{ID}_*")
    # It tries again; with a body it would send what its reader has left of it.
    archive.faults.append(slow_down("global", key="empty"))
    copied = rclone(archive, workdir, "copy", str(source), there)
    assert copied.returncode == 0, copied.stderr
    assert {key: f.data for (_, key), f in archive.stored().items()} == files
    assert archive.items[ID].metadata["mediatype"] == "data"
    for words in (("check",), ("check", "--download")):
        checked = rclone(archive, workdir, *words, *ours, str(source), there)
        assert checked.returncode == 0 and "3 matching files" in checked.stderr, checked.stderr
    for kind in ("md5", "sha1"):
        sums = rclone(archive, workdir, f"{kind}sum", *ours, there).stdout.splitlines()
        assert sorted(sums) == sorted(f"{hashlib.new(kind, data).hexdigest()}  {name}" for name, data in files.items())
    archive.no_violations("mixed prefixes")  # x-amz- beside x-archive-: rclone's way
    (source / "a.txt").write_bytes(b"something else")
    assert rclone(archive, workdir, "check", *ours, str(source), there).returncode == 1
    assert rclone(archive, workdir, "copy", str(source), there).returncode == 0
    assert archive.stored()[ID, "a.txt"].data == b"something else"
    assert ("overwritten", f"{ID}/a.txt") in archive.violations
    assert rclone(archive, workdir, "deletefile", f"{there}/a.txt").returncode == 0
    assert (ID, "a.txt") not in archive.stored()
    assert all(r.status == 204 for r in archive.of_kind("DELETE"))


# ---- ia ----

def ia(archive, workdir, *words):
    """Debian's `ia`, whose hosts are fixed in its code: the fake is its proxy."""
    config = workdir / "ia.ini"
    config.write_text("[s3]\naccess = ACCESSKEY\nsecret = SECRETKEY\n[general]\nsecure = False\nscreenname = tester\n")
    proxy = archive.front
    env = {**os.environ, "HOME": str(workdir), "IA_CONFIG_FILE": str(config), "http_proxy": proxy, "HTTP_PROXY": proxy, "no_proxy": "",
           "NO_PROXY": "", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(["/usr/bin/ia", "--insecure", *words], env=env, cwd=workdir, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


MEANT = {
    "title": "naïve 日本 𝄞",
    "subject": ["first", "the second", "第三", "4"],
    "description": "two\nlines, a % sign, %41, a+b; <b>&amp;</b> \"quoted\"",
    "creator": "plain",
    "original_name": "with_under_scores",
    "language": ["eng", "pol"],
    "collection": "test_collection",
    "mediatype": "web",
}


def test_ia_means_what_the_fake_understands(archive, workdir):
    """Unicode, white space, repeated values and underscores of `ia upload` come out as they were meant, in the order meant."""
    (workdir / "fi le ü.bin").write_bytes(os.urandom(300000))
    (workdir / "empty").write_bytes(b"")
    archive.item("test_collection", mediatype="collection")  # `ia` asks whether it is there
    words = [f"--metadata={key}:{value}" for key, values in MEANT.items() for value in (values if isinstance(values, list) else [values])]
    done = ia(archive, workdir, "upload", ID, "fi le ü.bin", "empty", *words, "--verify", "--no-derive", "--size-hint=300000")
    assert done.returncode == 0, done.stderr
    meta = look(archive)["metadata"]
    assert {key: meta[key] for key in MEANT} == MEANT
    assert meta["scanner"].startswith("Internet Archive Python library")
    assert meta["uploader"] == "us@example.org"
    stored = archive.stored()
    assert stored[ID, "fi le ü.bin"].data == (workdir / "fi le ü.bin").read_bytes()
    assert stored[ID, "empty"].size == 0
    assert not stored[ID, "empty"].derive and stored[ID, "empty"].keep_old and stored[ID, "empty"].size_hint == 300000
    assert all(len(r.get("content-md5")) == 32 for r in archive.puts())  # hexadecimal, not the standard's base64
    assert all(r.get("authorization") == "LOW ACCESSKEY:***" for r in archive.puts())
    archive.no_violations()
    listed = ia(archive, workdir, "list", ID)
    assert set(listed.stdout.split("\n")) >= {"fi le ü.bin", "empty", f"{ID}_meta.xml", f"{ID}_files.xml"}, listed.stderr
    told = ia(archive, workdir, "metadata", ID)
    assert json.loads(told.stdout)["metadata"] == meta, told.stderr
    (workdir / "there").mkdir()
    fetched = ia(archive, workdir, "download", ID, "fi le ü.bin", "--checksum", "--destdir=there")
    assert fetched.returncode == 0, fetched.stderr
    assert (workdir / "there" / ID / "fi le ü.bin").read_bytes() == (workdir / "fi le ü.bin").read_bytes()


def test_ia_retries_what_is_rationed_deletes_what_arrived_and_stops_at_spam(archive, workdir):
    for name in "bcde":
        (workdir / f"{name}.bin").write_bytes(name.encode() * 1000)
    archive.faults.append(slow_down("account"))
    done = ia(archive, workdir, "upload", ID, "b.bin", "--retries", "2", "--sleep", "1", "--delete")
    assert done.returncode == 0, done.stderr
    assert [r.status for r in archive.puts(None)] == [503, 200]
    assert len(archive.of_kind("LIMIT")) == 2 and not (workdir / "b.bin").exists()
    # What shows is not sent again; the local file goes.
    (workdir / "b.bin").write_bytes(b"b" * 1000)
    assert "already exists" in ia(archive, workdir, "upload", ID, "b.bin", "--delete").stderr
    assert len(archive.puts()) == 1 and not (workdir / "b.bin").exists()
    archive.spam.add("spam-*")
    done = ia(archive, workdir, "upload", "spam-item", "c.bin", "--retries", "5", "--sleep", "1")
    assert done.returncode != 0 and "appears to be spam" in done.stderr, done.stderr
    assert len(archive.puts((503,))) == 2
    done = ia(archive, workdir, "delete", ID, "b.bin")
    assert done.returncode == 0 and (ID, "b.bin") not in archive.stored(), done.stderr
    archive.no_violations()


# ---- metadata in headers ----

def test_headers_become_metadata_as_the_rules_have_it():
    def decode(*headers):
        return decode_metadata(list(headers))[0]
    assert decode(("x-archive-meta-title", "plain")) == {"title": "plain"}
    assert decode(("x-archive-meta00-title", "a")) == {"title": "a"}
    assert decode(("x-archive-meta02-subject", "b"), ("x-archive-meta01-subject", "a")) == {"subject": ["a", "b"]}
    # Names are sorted as text: without leading zeros the tenth comes before the second.
    assert decode(*((f"x-archive-meta{n}-k", str(n)) for n in (1, 2, 10)))["k"] == ["1", "10", "2"]
    assert decode(("x-archive-meta-a--b", "c")) == {"a_b": "c"}
    assert decode(("x-archive-meta-t", "uri(%E6%97%A5%20%28x%29)")) == {"t": "日 (x)"}
    assert decode(("x-archive-meta-t", "uri(uri%28x%29)")) == {"t": "uri(x)"}
    assert decode(("x-archive-meta-t", "a uri(b)")) == {"t": "a uri(b)"}
    assert decode(("x-archive-filemeta-t", "f")) == {}
    assert decode_metadata([("x-archive-filemeta00-t", "f")])[1] == {"t": "f"}


@pytest.mark.parametrize("headers, kind", [
    ([("x-archive-meta-t", "a"), ("x-archive-meta-t", "b")], "duplicate index"),
    ([("x-archive-meta-t", "a"), ("x-archive-meta00-t", "b")], "duplicate index"),
    ([("x-archive-meta-t", "a"), ("x-amz-meta01-t", "b")], "mixed prefixes"),
    ([("x-archive-meta-a_b", "a")], "underscore"),
    ([("x-archive-meta-t", "ü".encode().decode("latin-1"))], "not ASCII"),
])
def test_headers_that_lose_values_are_violations(headers, kind):
    assert [k for k, _ in decode_metadata(headers)[2]] == [kind]


@pytest.mark.parametrize("name, value", [
    ("x-archive-meta-xmlthing", "a"), ("x-archive-meta-9a", "a"), ("x-archive-meta-a!", "a"), ("x-archive-meta-" + "a" * 257, "a"),
    ("x-archive-meta-t", ""), ("x-archive-meta-t", "uri(%FF)"), ("x-archive-meta-t", "uri(%4)"), ("x-archive-meta-t", "uri(%00)"),
    ("x-archive-meta-t", "\xff"),
])
def test_headers_that_are_refused(archive, name, value):
    answer = put(archive, "a.bin", b"x", (name, value))
    assert (answer.status, code(answer)) == (400, "InvalidArgument")
    assert archive.items == {}


# ---- objects ----

def test_a_put_makes_the_item_once_and_its_metadata_stays(archive):
    assert (put(archive, make=None).status, code(put(archive, make=None))) == (404, "NoSuchBucket")
    first = put(archive, "a.bin", b"the bytes", ("x-archive-meta-mediatype", "web"), ("x-archive-meta-title", "one"),
                ("x-archive-queue-derive", "0"))
    assert first.status == 200 and first.headers["etag"] == f'"{hashlib.md5(b"the bytes").hexdigest()}"'
    put(archive, "b.bin", b"more", ("x-archive-meta-title", "two"), ("x-archive-meta-mediatype", "data"))
    assert (look(archive)["metadata"]["title"], look(archive)["metadata"]["mediatype"]) == ("one", "web")
    put(archive, "c.bin", b"and more", ("x-archive-meta-title", "three"), ("x-archive-meta-mediatype", "data"),
        ("x-archive-ignore-preexisting-bucket", "1"))
    assert (look(archive)["metadata"]["title"], look(archive)["metadata"]["mediatype"]) == ("three", "web")
    assert archive.items[ID].derived == ["b.bin", "c.bin"]
    assert ask(archive.s3, "GET", f"/{ID}/a.bin").body == b"the bytes"
    gone = ask(archive.s3, "HEAD", f"/{ID}/none")
    assert (gone.status, gone.body) == (404, b"")
    assert b"<Key>b.bin</Key><Size>4</Size>" in ask(archive.s3, "GET", f"/{ID}").body
    assert ask(archive.s3, "PUT", f"/{ID}", b"", LOW).status == 409
    assert ask(archive.s3, "PUT", "/item-of-its-own", b"", LOW).status == 200
    assert b"item-of-its-own" in ask(archive.s3, "GET", "/", None, LOW).body
    assert ask(archive.s3, "GET", f"/{ID}/a.bin?log").body == b"a.bin\tstaged\na.bin\tarchive.php done\n"
    archive.no_violations()


def test_content_md5_in_hex_and_in_base64(archive):
    digest = hashlib.md5(b"x")
    assert put(archive, "a", b"x", ("Content-MD5", digest.hexdigest())).status == 200
    assert put(archive, "b", b"x", ("Content-MD5", base64.b64encode(digest.digest()).decode())).status == 200
    for wrong in (hashlib.md5(b"y").hexdigest(), base64.b64encode(hashlib.md5(b"y").digest()).decode()):
        answer = put(archive, "c", b"x", ("Content-MD5", wrong))
        assert (answer.status, code(answer)) == (400, "BadDigest")
    assert code(put(archive, "c", b"x", ("Content-MD5", "!"))) == "InvalidArgument"
    assert set(archive.stored()) == {(ID, "a"), (ID, "b")}


def test_old_versions_are_kept_when_asked_for(archive):
    put(archive, "a", b"old")
    put(archive, "a", b"new", ("x-archive-keep-old-version", "1"))
    names = {f["name"]: f["size"] for f in look(archive)["files"] if "size" in f}
    assert names["a"] == "3" and names["history/files/a.~1~"] == "3"
    assert archive.stored()[ID, "history/files/a.~1~"].data == b"old"
    assert archive.violations == [("overwritten", f"{ID}/a")]
    put(archive, "a", b"new")
    assert archive.violations[1:] == [("sent again", f"{ID}/a")]
    archive.showing = Showing(never=True)
    put(archive, "b", b"new")
    put(archive, "b", b"new")
    assert archive.violations[2:] == [("sent again while staged", f"{ID}/b")]


@pytest.mark.parametrize("item, words", [
    ("abcd", "InvalidBucketName"), ("abcde", None), ("a" * 101, None), ("a" * 102, "InvalidBucketName"), (".abcde", "InvalidBucketName"),
    ("abc:de", "InvalidBucketName"), ("abc%20de", "InvalidBucketName"), ("abcd%C3%A9", "InvalidBucketName"),
    ("abcde%0A", "InvalidBucketName"), ("A.b_c-9", None)])
def test_identifiers(archive, item, words):
    answer = put(archive, item=item)
    assert (answer.status, code(answer)) == ((200, "") if words is None else (400, words))


@pytest.mark.parametrize("key, words", [
    ("s%C5%82o%C5%84%20%26%20%C3%BC.mp4", None), ("a%2520b", None), ("a+b", None), ("a/b", None), ("..", "InvalidArgument"),
    ("a//b", "InvalidArgument"), (f"{ID}_meta.xml", "InvalidArgument"), (f"{ID}_files.xml", "InvalidArgument"),
    ("__ia_thumb.jpg", "InvalidArgument"), ("history/x", "InvalidArgument"), ("a" * 1025, "KeyTooLong")])
def test_names_of_files(archive, key, words):
    answer = put(archive, key)
    if words is None:
        assert answer.status == 200 and (ID, urllib.parse.unquote(key)) in archive.stored()
        archive.no_violations()
    else:
        assert (answer.status, code(answer)) == (400, words)
        assert archive.violations[0][0] == "bad name"


def test_sizes_are_strings_and_files_xml_has_none(archive):
    assert look(archive, "never-heard-of") == {}
    put(archive, "a", b"12345", ("x-archive-filemeta00-note", "uri(%C3%BC)"))
    document = look(archive)
    files = {f["name"]: f for f in document["files"]}
    assert files["a"]["size"] == "5" and files["a"]["note"] == "ü" and isinstance(files["a"]["mtime"], str)
    assert files["a"]["md5"] == hashlib.md5(b"12345").hexdigest() and files["a"]["sha1"] == hashlib.sha1(b"12345").hexdigest()
    assert "size" not in files[f"{ID}_files.xml"] and "sha1" not in files[f"{ID}_files.xml"]
    assert document["files_count"] == len(files) == 3
    assert ask(archive.front, "GET", f"/metadata/{ID}/files").json == {"result": document["files"]}
    assert ask(archive.front, "GET", f"/metadata/{ID}/metadata/uploader").json == {"result": "us@example.org"}
    check = "/services/check_identifier.php?output=json&identifier="
    assert ask(archive.front, "GET", check + ID).json["code"] == "not_available"
    assert ask(archive.front, "GET", check + "free-item").json["code"] == "available"


def test_a_file_shows_when_its_task_has_run(archive):
    def sizes():
        return [f["size"] for f in look(archive).get("files", []) if f["name"] == "a"]
    archive.showing = Showing(looks=2, wrong_looks=1)
    put(archive, "a", b"12345678")
    assert look(archive) == {} and ask(archive.s3, "GET", f"/{ID}/a").status == 404
    assert [sizes() for _ in range(3)] == [[], ["4"], ["8"]]
    archive.showing = lambda item, key: Showing(never=key == "never", seconds=3600 if key == "later" else 0)
    for key in ("never", "later", "now"):
        put(archive, key, b"x")
    document = look(archive)
    names = {f["name"] for f in document["files"]}
    assert "now" in names and not {"never", "later"} & names
    assert document["pending_tasks"] and [t["args"]["key"] for t in document["tasks"]] == ["never", "later"]
    archive.stored()[ID, "later"].staged_at -= 3601  # an hour has passed
    document = look(archive)
    assert "later" in {f["name"] for f in document["files"]} and [t["args"]["key"] for t in document["tasks"]] == ["never"]


# ---- who may, and how much ----

def test_the_authorization_is_looked_at(archive):
    archive.account("LOCKED", "S", problem="your account is locked")
    wrong = {None: "AccessDenied", "LOW NOBODY:x": "InvalidAccessKeyId", "LOW ACCESSKEY:x": "SignatureDoesNotMatch",
             "LOW LOCKED:S": "AccountProblem", "Basic eDp5": "AccessDenied", "LOW ACCESSKEY:": "AccessDenied"}
    for words, want in wrong.items():
        answer = put(archive, auth=words and ("Authorization", words))
        assert (answer.status, code(answer)) == (403, want), words
    assert archive.items == {}


def test_an_item_of_somebody_else_a_dark_one_and_one_that_is_full(archive):
    archive.item("their-item", "them@example.org", [("x", b"theirs")])
    for answer in (put(archive, item="their-item"), ask(archive.s3, "DELETE", "/their-item/x", None, LOW)):
        assert (answer.status, code(answer), resource(answer)) == (403, "AccessDenied", OWNER)
    assert look(archive, "their-item")["metadata"]["uploader"] == "them@example.org"
    archive.item("dark-item", "us@example.org").dark = True
    assert code(put(archive, item="dark-item")) == "AccessDenied" and look(archive, "dark-item")["is_dark"] is True
    archive.item_bytes_max = 20
    assert put(archive, "a", b"x" * 15).status == 200
    full = put(archive, "b", b"x" * 15)
    assert (full.status, code(full)) == (403, "AccessDenied") and "30 bytes" in resource(full)


@pytest.mark.parametrize("late", [False, True])
def test_rights_on_collections_may_be_looked_at_after_the_body(archive, late):
    archive.late_collections = late
    with connect(archive.s3) as s:
        s.sendall(head("PUT", f"/{ID}/a", [LOW, MAKE, ("Content-Length", 3), ("Expect", "100-continue"), ("Connection", "close"),
                                           ("x-archive-meta01-collection", "no-rights"), ("x-archive-meta02-collection", "opensource")]))
        first = s.recv(1 << 16)
        assert first.startswith(b"HTTP/1.1 100 Continue\r\n\r\n" if late else b"HTTP/1.1 403 ")
        if late:
            s.sendall(b"abc")
        answer = Answered(first + read_all(s))
    assert (answer.status, code(answer)) == (403, "AccessDenied")
    assert resource(answer) == COLLECTION
    assert archive.items == {}


def test_rations(archive):
    def limit():
        return ask(archive.s3, "GET", f"/?check_limit=1&accesskey=ACCESSKEY&bucket={ID}").json
    assert (limit()["over_limit"], limit()["detail"]["total_global_limit"]) == (0, 11999)
    archive.showing = Showing(never=True)
    assert put(archive, "a").status == 200
    assert limit()["detail"]["accesskey_tasks_queued"] == limit()["detail"]["bucket_tasks_queued"] == 1
    archive.items[ID].others = 149
    assert resource(put(archive, "b")) == REASONS["bucket"] == limit()["detail"]["limit_reason"]
    archive.items[ID].others = 0
    archive.accounts["ACCESSKEY"].others = 149
    assert resource(put(archive, "b")) == REASONS["account"] == limit()["detail"]["limit_reason"]
    archive.accounts["ACCESSKEY"].others = 0
    archive.others = archive.global_limit - 1
    refused = put(archive, "b")
    assert (refused.status, code(refused), resource(refused)) == (503, "SlowDown", REASONS["global"])
    assert b"Please reduce your request rate." in refused.body and limit()["over_limit"] == 1
    archive.others = 0
    assert put(archive, "b").status == 200
    archive.faults.append(Fault("LIMIT", status=200, body="<html>not JSON", read=0))
    assert ask(archive.s3, "GET", "/?check_limit=1").body == b"<html>not JSON"


# ---- the wire ----

def test_100_continue_comes_before_the_body_and_refusals_instead_of_it(archive):
    expect = ("Expect", "100-continue")
    with connect(archive.s3) as s:
        s.sendall(head("PUT", f"/{ID}/a", [LOW, MAKE, expect, ("Content-Length", 3)]))
        assert s.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"abc")
        assert s.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        # The same connection serves the next one.
        s.sendall(head("PUT", f"/{ID}/b", [LOW, ("Content-Length", 0), ("Connection", "close")]))
        assert Answered(read_all(s)).status == 200
    archive.spam.add("spam-*")
    with connect(archive.s3) as s:
        s.sendall(head("PUT", "/spam-item/a", [LOW, MAKE, expect, ("Content-Length", 1 << 40)]))
        answer = Answered(read_all(s))
    assert not answer.interim and answer.status == 503 and answer.headers["connection"] == "close"
    assert resource(answer) == REASONS["spam"].format(item="spam-item", user="us@example.org")
    assert [r.body_bytes for r in archive.puts(None)] == [3, 0, 0]
    assert [r.continued for r in archive.puts(None)] == [True, False, False]


@pytest.mark.parametrize("hops", [1, 3])
def test_redirects_are_followed_with_the_body(archive, workdir, hops):
    archive.redirect = hops
    (workdir / "body").write_bytes(b"x" * 200000)
    done = subprocess.run(["curl", "-sSf", "-L", "--location-trusted", "-T", str(workdir / "body"), "-H", "Expect: 100-continue",
                           "-H", ": ".join(LOW), "-H", ": ".join(MAKE), f"{archive.s3}/{ID}/a.bin"], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 0, done.stderr
    assert [r.status for r in archive.puts(None)] == [307] * hops + [200]
    assert [r.body_bytes for r in archive.puts(None)] == [0] * hops + [200000]
    archive.no_violations()


@pytest.mark.parametrize("fault, status, stored, read", [
    (Fault(code="InternalError"), 500, False, 900000),
    (Fault(code="InternalError", store=True), 500, True, 900000),
    (Fault(code="AccessDenied", resource="no", read=1000, end="reset"), 403, False, 1000),
    (Fault(code="InvalidArgument", read=1000, end="drop"), 400, False, 1000),
    (slow_down("unknown"), 503, False, 0),
    (bad_gateway(), 502, False, 900000),
    (lost_answer(), None, True, 900000),
    (lost_answer(end="reset"), None, True, 900000),
    (cut(5000), None, False, 5000),
    (cut(None), None, False, 900000),
    (Fault(delay=0.1), 200, True, 900000),
])
def test_faults_happen_once(archive, fault, status, stored, read):
    """A client that reads what there is when it cannot send on hears every refusal that was made."""
    archive.faults.append(fault)
    body = b"x" * 900000
    with connect(archive.s3) as s:
        try:
            s.sendall(head("PUT", f"/{ID}/a", [LOW, MAKE, ("Content-Length", len(body)), ("Connection", "close")]) + body)
        except (ConnectionResetError, BrokenPipeError):
            pass
        raw = read_all(s)
    assert (Answered(raw).status if raw else None) == status
    assert ((ID, "a") in archive.stored()) == stored
    assert archive.puts(None)[0].body_bytes == read and archive.puts(None)[0].status == status
    assert archive.faults == []
    assert put(archive, "b").status == 200


def test_a_late_100_continue_one_that_never_comes_and_a_stall(archive):
    archive.faults += [Fault(never=True), Fault(stall=2), Fault(late=0.2)]
    with connect(archive.s3) as waiting, connect(archive.s3) as stalled:
        waiting.sendall(head("PUT", f"/{ID}/a", [LOW, MAKE, ("Expect", "100-continue"), ("Content-Length", 1)]))
        waiting.settimeout(0.2)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        waiting.settimeout(20)
        waiting.sendall(b"x")
        assert waiting.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        stalled.sendall(head("PUT", f"/{ID}/b", [LOW, MAKE, ("Content-Length", 3)]) + b"xyz")
        stalled.settimeout(0.2)
        with pytest.raises(TimeoutError):
            stalled.recv(1)
        at = time.monotonic()
        waiting.sendall(head("PUT", f"/{ID}/c", [LOW, MAKE, ("Expect", "100-continue"), ("Content-Length", 1)]))
        assert waiting.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n" and time.monotonic() - at >= 0.2
    assert set(archive.stored()) == {(ID, "a")}


def test_an_answer_waits_for_the_test(archive):
    go = threading.Event()
    archive.faults.append(Fault(delay=go))
    with connect(archive.s3) as s:
        s.sendall(head("PUT", f"/{ID}/a", [LOW, MAKE, ("Content-Length", 1), ("Connection", "close")]) + b"x")
        until(lambda: (ID, "a") in archive.stored())
        assert archive.puts() == []
        go.set()
        assert Answered(read_all(s)).status == 200


def test_simulated_errors(archive):
    def simulate(words):
        return put(archive, "a", b"x", ("x-archive-simulate-error", words))
    answer = simulate("SlowDown")
    assert (answer.status, code(answer), resource(answer)) == (503, "SlowDown", "simulated error")
    assert (simulate("InternalError").status, simulate("NoSuchBucket").status, simulate("AccountProblem").status) == (500, 404, 403)
    codes = simulate("help").body.decode().split()
    assert "SlowDown" in codes and all(code(simulate(each)) == each for each in codes)
    assert archive.items == {}


def test_multipart(archive):
    archive.part_refusals = 1
    begun = ask(archive.s3, "POST", f"/{ID}/a?uploads=", b"", LOW, MAKE, ("x-archive-meta-title", "t"))
    name = begun.body.decode().partition("<UploadId>")[2].partition("<")[0]
    where = f"/{ID}/a?uploadId={name}"
    assert look(archive) == {}
    parts = {2: b"second", 1: b"first "}
    early = ask(archive.s3, "PUT", f"{where}&partNumber=1", b"first ", LOW)
    assert (early.status, code(early)) == (404, "NoSuchBucket")
    for n, data in parts.items():
        assert ask(archive.s3, "PUT", f"{where}&partNumber={n}", data, LOW).headers["etag"] == f'"{hashlib.md5(data).hexdigest()}"'
    assert ask(archive.s3, "GET", where, None, LOW).body.count(b"<Part>") == 2
    xml = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part><Part><PartNumber>2</PartNumber></Part></CompleteMultipartUpload>"
    archive.faults.append(Fault("COMPLETE", status=200, body=Refused("InternalError").xml()))
    assert b"<Error>" in ask(archive.s3, "POST", where, xml, LOW).body
    assert b"-2" in ask(archive.s3, "POST", where, xml, LOW).body
    assert archive.stored()[ID, "a"].data == b"first second" and look(archive)["metadata"]["title"] == "t"
    assert ask(archive.s3, "DELETE", where, None, LOW).status == 404


def test_what_no_client_may_do_is_told(archive):
    def kinds():
        found, archive.violations = [kind for kind, _ in archive.violations], []
        return found
    chunked = ask(archive.s3, "PUT", f"/{ID}/a", b"1\r\nx\r\n0\r\n\r\n", LOW, MAKE, ("Transfer-Encoding", "chunked"), length=False)
    assert (chunked.status, code(chunked), kinds()) == (411, "MissingContentLength", ["chunked", "no length"])
    assert (ask(archive.s3, "PUT", f"/{ID}/a", None, LOW, MAKE).status, kinds()) == (411, ["no length"])
    large = put(archive, "a", b"x", ("x-archive-meta-t", "a" * 8200))
    assert (code(large), kinds()) == ("MetadataTooLarge", ["headers"])
    ask(archive.s3, "GET", "/?check_limit=1&accesskey=ACCESSKEY&secret=SECRETKEY")
    ask(archive.s3, "GET", "/?check_limit=1&x=SECRET%4bEY")
    assert kinds() == ["secret in the URL"] * 2
    until(lambda: all(r.ended_at is not None for r in archive.requests))
    assert "SECRETKEY" not in json.dumps([r.dump() for r in archive.requests]) and all(not r.credentials for r in archive.requests)
    ask(archive.s3, "PUT", f"/{ID}/%zz", b"", LOW)
    assert kinds() == ["path"]
    with connect(archive.s3) as one, connect(archive.s3) as other:
        one.sendall(head("PUT", f"/{ID}/b", [LOW, MAKE, ("Content-Length", 2), ("Expect", "100-continue")]))
        assert one.recv(100).startswith(b"HTTP/1.1 100")
        other.sendall(head("PUT", f"/{ID}/b", [LOW, MAKE, ("Content-Length", 2), ("Expect", "100-continue")]))
        assert other.recv(100).startswith(b"HTTP/1.1 100")
        assert kinds() == ["two at once"]


def test_a_put_that_is_broken_off_leaves_nothing(archive):
    with connect(archive.s3) as s:
        s.sendall(head("PUT", f"/{ID}/a", [LOW, MAKE, ("Content-Length", 100)]) + b"x" * 99)
    until(lambda: archive.requests and archive.requests[0].ended_at is not None)
    assert archive.stored() == {} and archive.requests[0].status is None and archive.requests[0].body_bytes == 99


def test_as_a_program(workdir):
    with subprocess.Popen([sys.executable, str(ROOT / "tests/blackbox/fake_archive.py"), "--port", "0"], stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            urls = json.loads(process.stdout.readline())
            fault = json.dumps([{"code": "SlowDown", "read": 0, "item": "test-*"}]).encode()
            assert ask(urls["front"], "POST", "/_fake/faults", fault).status == 200
            settings = json.dumps({"showing": {"looks": 1}, "spam": ["spam-*"]}).encode()
            assert ask(urls["front"], "POST", "/_fake/settings", settings).status == 200
            statuses = [ask(urls["s3"], "PUT", f"/{ID}/a", b"x", LOW, MAKE).status for _ in range(2)]
            assert statuses == [503, 200]
            assert ask(urls["front"], "GET", "/_fake/state").json[ID]["staged"] == ["a"]
            assert [r["status"] for r in ask(urls["front"], "GET", "/_fake/requests").json] == [503, 200]
            assert ask(urls["front"], "GET", "/_fake/violations").json == []
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
