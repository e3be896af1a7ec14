"""The connector examples/dpkg-history: what it makes of a machine's files, and that it can be run again.

TALLYMAN names the binary under test.
"""
import gzip
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
CONNECTOR = TOP / "examples" / "dpkg-history"
TALLYMAN = os.environ.get("TALLYMAN", str(TOP / "build" / "tallyman"))

STATUS = b"""Package: curl
Status: install ok installed
Priority: optional
Section: web
Installed-Size: 500
Maintainer: A \xc3\x84 "quoted" \\ person <a@example.org>
Architecture: amd64
Version: 7.88.1-10
Depends: libc6 (>= 2.34),
 libcurl4
Description: command line tool
 Package: not a field
Conffiles:
 /etc/curlrc 0123

Package: plain
Status: deinstall ok config-files
Installed-Size: 007
Version: 1
Description: bad \xff byte
"""


class Machine:
    """The files of a machine that dpkg-history reads."""

    def __init__(self, root):
        self.root = root
        (root / "var/log").mkdir(parents=True)
        (root / "var/lib/dpkg").mkdir(parents=True)
        self.status(STATUS)

    def log(self, name, *lines, end=b"\n"):
        text = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + end
        path = self.root / "var/log" / name
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)

    def status(self, content):
        (self.root / "var/lib/dpkg/status").write_bytes(content)

    def run(self, *options, zone="UTC"):
        return subprocess.run([CONNECTOR, "--root", self.root, *options], capture_output=True, timeout=60,
                              env={**os.environ, "TZ": zone, "TALLYMAN": TALLYMAN})

    def events(self, zone="UTC"):
        run = self.run("--print", zone=zone)
        assert run.returncode == 0, run.stderr
        return [json.loads(line) for line in run.stdout.decode("utf-8", "strict").splitlines()]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "a machine")


def test_each_kind_of_log_line(machine):
    machine.log("dpkg.log",
                "2026-05-01 10:00:00 startup archives unpack",
                "2026-05-01 10:00:01 install curl:amd64 <none> 7.88.1-10",
                "2026-05-01 10:00:02 status half-installed curl:amd64 7.88.1-10",
                "2026-05-01 10:00:03 upgrade curl:amd64 7.88.1-10 7.88.1-11",
                "2026-05-01 10:00:04 conffile /etc/a b keep",
                "2026-05-01 10:00:05 nonsense",
                "no time at all")
    log = [e for e in machine.events() if e["stream"] == "log"]
    assert [(e["record_key"], e["kind"], e.get("occurred_at", "")[14:]) for e in log] == [
        ("dpkg", "startup", "00:00Z"), ("curl:amd64", "install", "00:01Z"), ("curl:amd64", "status", "00:02Z"),
        ("curl:amd64", "upgrade", "00:03Z"), ("/etc/a b", "conffile", "00:04Z"), ("dpkg", "unknown", "00:05Z"),
        ("dpkg", "unknown", "")]
    assert log[1]["payload"] == {"action": "install", "package": "curl", "architecture": "amd64",
                                 "version": "7.88.1-10"}
    assert log[2]["payload"]["state"] == "half-installed"
    assert log[3]["payload"]["version_before"] == "7.88.1-10"
    assert log[4]["payload"]["decision"] == "keep"
    assert log[6]["payload"] == {"line": "no time at all"}


def test_status_stanzas(machine):
    machine.log("dpkg.log", "2026-05-01 10:00:00 startup archives unpack")
    packages = [e for e in machine.events() if e["stream"] == "packages"]
    assert [e["record_key"] for e in packages] == ["curl:amd64", "plain"]
    assert {e["kind"] for e in packages} == {"upserted"}
    payload = packages[0]["payload"]
    assert payload["package"] == "curl" and payload["installed_size"] == 500
    assert payload["maintainer"] == 'A \u00c4 "quoted" \\ person <a@example.org>'
    assert payload["summary"] == "command line tool"
    assert packages[1]["payload"]["installed_size"] == "007"
    assert packages[1]["payload"]["summary"] == "bad \ufffd byte"


def test_strings_that_json_must_escape(machine):
    machine.log("dpkg.log", b'2026-05-01 10:00:00 conffile /etc/"a\\b\x01\x7f\xff\xed\xa0\x80\xf4\x90\x80\x80\xc3\xa9 keep')
    event = machine.events()[0]
    # A surrogate and a code point past the last are no UTF-8: each of their bytes is replaced.
    assert event["record_key"] == '/etc/"a\\b\x01\x7f\ufffd' + "\ufffd" * 3 + "\ufffd" * 4 + "\u00e9"


def test_a_key_too_long_is_not_cut(machine):
    machine.log("dpkg.log", "2026-05-01 10:00:00 conffile /" + "x" * 1100 + " keep")
    event = machine.events()[0]
    assert event["record_key"] == "dpkg" and event["payload"]["file"] == "/" + "x" * 1100


def test_rotations_are_read_oldest_first_and_days_put_together(machine):
    machine.log("dpkg.log.10.gz", "2026-01-31 01:00:00 status installed a:all 1")
    machine.log("dpkg.log.2.gz", "2026-02-28 01:00:00 status installed b:all 1")
    machine.log("dpkg.log.1", "2026-03-31 01:00:00 status installed c:all 1")
    machine.log("dpkg.log", "2026-03-31 02:00:00 status installed d:all 1", "2026-04-01 00:00:00 status installed e:all 1")
    machine.log("dpkg.log.bak", "2020-01-01 00:00:00 status installed z:all 1")
    keys = [e["record_key"] for e in machine.events() if e["stream"] == "log"]
    assert keys == ["a:all", "b:all", "c:all", "d:all", "e:all"]


def test_local_time_with_the_repeated_hour(machine):
    machine.log("dpkg.log",
                "2026-07-01 12:00:00 status installed a:all 1",
                "2026-10-25 02:30:00 status installed b:all 1",
                "2026-10-25 02:45:00 status installed c:all 1",
                "2026-10-25 02:10:00 status installed d:all 1",
                "2026-10-25 03:00:00 status installed e:all 1",
                "2026-12-01 12:00:00 status installed f:all 1")
    at = [e["occurred_at"] for e in machine.events(zone="Europe/Berlin") if e["stream"] == "log"]
    assert at == ["2026-07-01T10:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T00:45:00Z", "2026-10-25T01:10:00Z",
                  "2026-10-25T02:00:00Z", "2026-12-01T11:00:00Z"]


def test_a_time_that_never_was_has_no_occurred_at(machine):
    machine.log("dpkg.log", "2026-03-29 02:30:00 status installed a:all 1", "2026-02-30 02:30:00 status installed b:all 1")
    assert all("occurred_at" not in e for e in machine.events(zone="Europe/Berlin"))


def test_a_line_being_written_waits(machine):
    machine.log("dpkg.log", "2026-05-01 10:00:00 startup archives unpack", "2026-05-01 10:00:01 install cu", end=b"")
    assert [e["kind"] for e in machine.events() if e["stream"] == "log"] == ["startup"]


def test_what_cannot_be_read_is_said_and_the_rest_is_sent(machine):
    machine.log("dpkg.log", "2026-05-01 10:00:00 startup archives unpack")
    (machine.root / "var/log/dpkg.log.1.gz").write_bytes(b"no gzip at all")
    (machine.root / "var/lib/dpkg/status").unlink()
    run = machine.run("--print")
    assert run.returncode == 1
    assert b"dpkg.log.1.gz" in run.stderr and b"status" in run.stderr
    assert run.stdout.count(b"\n") == 1


def test_without_any_log(machine):
    run = machine.run("--print")
    assert run.returncode == 1 and b"no dpkg.log" in run.stderr


# ---- with the server ----


@pytest.fixture
def served(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = tmp_path / "data"
    with open(tmp_path / "server.log", "wb") as log:
        server = subprocess.Popen([TALLYMAN, "serve", "--data", data, "--listen", f"127.0.0.1:{port}"],
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 30
        while True:
            status = subprocess.run([TALLYMAN, "status", "--data", data], capture_output=True, timeout=30)
            if status.returncode == 0:
                break
            assert server.poll() is None and time.monotonic() < until, (tmp_path / "server.log").read_text()
            time.sleep(0.05)
        yield data
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            assert server.wait(30) == 0
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()


def receipts(run):
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def without_status(receipt):
    return {name: value for name, value in receipt.items() if name != "status"}


def test_run_again_everything_is_a_duplicate_with_its_first_receipt(machine, served):
    machine.log("dpkg.log.1", *[f"2026-05-01 10:00:{i % 60:02} status installed p{i}:all 1" for i in range(25)])
    machine.log("dpkg.log", "2026-05-02 10:00:00 startup archives unpack")
    options = ["--data", served, "--json", "--batch-events", "10"]
    first = receipts(machine.run(*options))
    assert [r["batch_id"] for r in first[:4]] == [
        "dpkg-log-2026-05-01@0", "dpkg-log-2026-05-01@10", "dpkg-log-2026-05-01@20", "dpkg-log-2026-05-02@0"]
    assert first[4]["batch_id"].startswith("dpkg-status-") and len(first) == 5
    assert {r["status"] for r in first} == {"committed"}
    again = receipts(machine.run(*options))
    assert {r["status"] for r in again} == {"duplicate"}
    assert list(map(without_status, again)) == list(map(without_status, first))


def test_only_what_is_new_is_added_though_the_log_has_grown_and_rotated(machine, served):
    lines = [f"2026-05-01 10:00:{i:02} status installed p{i}:all 1" for i in range(50)]
    options = ["--data", served, "--json", "--batch-events", "20"]
    machine.log("dpkg.log", *lines[:25])
    first = receipts(machine.run(*options))
    # The same day goes on in a new file, and a package has changed.
    machine.log("dpkg.log.1", *lines[:30])
    machine.log("dpkg.log", *lines[30:])
    machine.status(STATUS.replace(b"7.88.1-10", b"7.88.1-11"))
    second = receipts(machine.run(*options))
    day = [r for r in second if r["batch_id"].startswith("dpkg-log-2026-05-01@")]
    old = [r for r in day if r["status"] == "duplicate"]
    assert list(map(without_status, old)) == [without_status(r) for r in first if "log" in r["batch_id"]]
    assert sum(r["events"] for r in day) == 50
    assert [r["status"] for r in second if "status" in r["batch_id"]] == ["committed"]
    replay = subprocess.run([TALLYMAN, "replay", "--data", served], capture_output=True, timeout=60)
    events = [json.loads(line) for line in replay.stdout.splitlines()]
    keys = [e["record_key"] for e in events if e.get("stream") == "log"]
    assert keys == [f"p{i}:all" for i in range(50)]
    assert len([e for e in events if e.get("stream") == "packages"]) == 4


def test_the_oldest_day_may_have_lost_its_beginning(machine, served):
    lines = [f"2026-05-01 10:00:{i:02} status installed p{i}:all 1" for i in range(6)]
    options = ["--data", served, "--json"]
    machine.log("dpkg.log", *lines)
    receipts(machine.run(*options))
    machine.log("dpkg.log", *lines[3:], "2026-05-02 10:00:00 startup archives unpack")
    run = machine.run(*options)
    assert b"its beginning is no longer in the logs" in run.stderr
    assert [r["batch_id"] for r in receipts(run) if r["status"] == "committed"] == ["dpkg-log-2026-05-02@0"]


def test_a_changed_day_that_is_not_the_oldest_is_a_failure(machine, served):
    options = ["--data", served, "--json"]
    machine.log("dpkg.log", "2026-05-01 10:00:00 startup archives unpack", "2026-05-02 10:00:00 startup archives unpack")
    receipts(machine.run(*options))
    machine.log("dpkg.log", "2026-05-01 10:00:00 startup archives unpack", "2026-05-02 10:00:01 startup archives unpack")
    run = machine.run(*options)
    assert run.returncode == 1 and b"dpkg-log-2026-05-02 was not sent whole" in run.stderr


def test_without_a_server_it_fails_at_once(machine, tmp_path):
    machine.log("dpkg.log", *[f"2026-05-{day:02} 10:00:00 startup archives unpack" for day in range(1, 29)])
    begun = time.monotonic()
    run = machine.run("--data", tmp_path / "nothing")
    assert run.returncode == 1 and run.stderr.count(b"was not sent whole") == 1
    assert time.monotonic() - begun < 30
