"""The client verbs of the command line: against a fake server for everything that goes wrong, and against the real one.

TALLYMAN names the binary under test.
"""
import json
import os
import pathlib
import pty
import resource
import select
import signal
import subprocess
import time

import pytest

from fake_server import Cut, Drip, Fake, Hang, Journal, Reply, Reset, error, event_id

TOP = pathlib.Path(__file__).resolve().parents[2]
TALLYMAN = os.environ.get("TALLYMAN", str(TOP / "build" / "tallyman"))
VERBS = ["serve", "append", "replay", "streams", "verify", "status", "version"]


def clean_environment(extra=None):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TALLYMAN") and not k.lower().endswith("_proxy")}
    return {**kept, **(extra or {})}


def run(*args, input=b"", env=None, cwd=None, timeout=60, **more):
    return subprocess.run([TALLYMAN, *map(str, args)], input=input, env=clean_environment(env), cwd=cwd,
                          capture_output=True, timeout=timeout, **more)


def event(n, **members):
    return {"stream": "s", "record_key": f"k{n}", "kind": "upserted", "payload": {"n": n}, **members}


def lines(events):
    return b"".join(json.dumps(e).encode() + b"\n" for e in events)


def append(fake, data, *options, **more):
    return run("append", "--source", "src", "--prefix", "p", *fake.options, *options, "-", input=data, **more)


def batches(fake):
    return [(r.json()["batch_id"], len(r.json()["events"])) for r in fake.requests]


# ---- the program itself ----


@pytest.mark.parametrize("verb", VERBS)
def test_help(verb):
    done = run(verb, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(f"usage: tallyman {verb}".encode())
    assert b"--help" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 140


def test_general_help_names_every_verb():
    for flag in ("--help", "-h", "help"):
        done = run(flag)
        assert done.returncode == 0
        for verb in VERBS:
            assert f"  {verb} ".encode() in done.stdout


@pytest.mark.parametrize("args, words", [
    ([], b"a verb is missing"),
    (["frobnicate"], b'there is no verb "frobnicate"'),
    (["append", "--nope", "-"], b"unknown option --nope"),
    (["append", "-"], b"--source is missing"),
    (["append", "--source", "a", "-"], b"--prefix is missing"),
    (["append", "--source", "A", "--prefix", "p", "-"], b"--source: must be"),
    (["append", "--source", "-a", "--prefix", "p", "-"], b"--source: must be"),
    (["append", "--source", "a" * 129, "--prefix", "p", "-"], b"--source: must be"),
    (["append", "--source", "a", "--prefix", "", "-"], b"--prefix: must be"),
    (["append", "--source", "a", "--prefix", "p" * 236, "-"], b"--prefix: must be"),
    (["append", "--source", "a", "--prefix", b"\xff", "-"], b"--prefix: must be"),
    (["append", "--source", "a", "--prefix", "groundhog/x", "-"], b"is reserved"),
    (["append", "--source", "a", "--prefix", "p"], b"FILE|- is missing"),
    (["append", "--source", "a", "--prefix", "p", "--batch-events", "0", "-"], b"--batch-events: must be from 1 to 10000"),
    (["append", "--source", "a", "--prefix", "p", "--batch-events", "10001", "-"], b"--batch-events: must be"),
    (["append", "--source", "a", "--prefix", "p", "--data", "d", "--url", "http://h", "-"], b"exclude each other"),
    (["replay", "--after", "7"], b"--after: must be the id of an event"),
    (["replay", "--limit", "0"], b"--limit: must be from 1"),
    (["replay", "--limit", "5", "--all"], b"exclude each other"),
    (["replay", "--last", "5", "--limit", "5"], b"--last excludes"),
    (["replay", "--last", "5", "--url", "http://127.0.0.1:1"], b"Unix socket only"),
    (["replay", "file"], b'unexpected argument "file"'),
    (["status", "--url", "h"], b"--url: must begin with http:// or https://"),
    (["project"], b"create ID | set ID | list | show ID is missing"), (["project", "make", "demo"], b"create ID, set ID, list, or show ID"),
    (["project", "create"], b"create ID, set ID, list, or show ID"), (["project", "list", "demo"], b"create ID, set ID, list, or show ID"),
    (["key", "list"], b"revoke PROJECT KEY is missing"), (["key", "revoke", "demo"], b"revoke PROJECT KEY"),
    (["key", "list", "demo", "1"], b"revoke PROJECT KEY"),
    (["query", "select 1"], b"--project: must be given"),
    (["query", "select 1", "--project", "demo", "--format", "xml"], b"--format: must be table, json, ndjson or csv"),
    (["rejected"], b"--project: must be given"),
    (["status", "--data", "d" * 120], b"longer than the 107 bytes"),
    (["streams", "--url", "h"], b"--url: must begin with http:// or https://"),
    (["replay", "--url", "h"], b"--url: must begin with http:// or https://"),
    (["append", "--source", "a", "--prefix", "p", "--url", "h", "-"], b"--url: must begin with http:// or https://"),
    (["serve", "--token-file", "/"], b"token file /: Is a directory"),
    (["serve", "--listen", "0.0.0.0:80"], b"that needs a token_file"),
    (["version", "--json=yes"], b"--json takes no value"),
    (["serve", "--workers", "0"], b"--workers: must be from 1 to 64"),
    (["serve", "--config", "/nonexistent.json"], b"/nonexistent.json"),
])
def test_usage_mistakes_are_exit_2(args, words):
    done = subprocess.run([TALLYMAN, *args], env=clean_environment(), capture_output=True, timeout=20)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1


def test_version():
    plain = run("version")
    told = json.loads(run("version", "--json").stdout)
    assert plain.stdout.decode() == f"tallyman {told['version']}+{told['revision']}\n"
    assert run("--version").stdout == plain.stdout == run("-V").stdout


def test_check_and_print_config(tmp_path):
    token = tmp_path / "token"
    token.write_text("hunter2hunter2\n")
    token.chmod(0o600)
    file = tmp_path / "t.json"
    file.write_text('{ // the office\n "token_file": "token", "workers": 3, "grace_ms": "5s" }\n')
    done = run("serve", "--config", file, "--check-config", cwd="/")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = run("serve", "--config", file, "--print-config", "--workers", "4", env={"TALLYMAN_LISTEN": "0.0.0.0:80"})
    told = json.loads(done.stdout)
    assert told["workers"] == {"value": 4, "from": "flag"}
    assert told["grace_ms"] == {"value": 5000, "from": "file"}
    assert told["listen"] == {"value": "0.0.0.0:80", "from": "env"}
    assert told["group_bytes"] == {"value": 4194304, "from": "default"}
    assert told["token_file"] == {"value": str(token), "from": "file"}
    assert b"hunter2" not in done.stdout + done.stderr
    file.write_text('{\n"wrokers": 3}')
    done = run("serve", "--config", file, "--check-config")
    assert done.returncode == 2
    assert f'{file}:2: key "wrokers": there is no such key'.encode() in done.stderr
    assert os.listdir(tmp_path) == ["token", "t.json"] or sorted(os.listdir(tmp_path)) == ["t.json", "token"]


# ---- append ----


def test_append_makes_batches(tmp_path):
    journal = Journal()
    with Fake(journal, tmp_path) as fake:
        done = append(fake, lines(event(i) for i in range(25)), "--batch-events", "10")
    assert done.returncode == 0, done.stderr
    assert batches(fake) == [("p@0", 10), ("p@10", 10), ("p@20", 5)]
    assert done.stdout.decode().splitlines() == [
        f"committed 10 events p@0 {event_id(0)}..{event_id(9)}",
        f"committed 10 events p@10 {event_id(10)}..{event_id(19)}",
        f"committed 5 events p@20 {event_id(20)}..{event_id(24)}"]
    assert b"25 events in 3 batches: 25 stored now, 0 were there already" in done.stderr
    assert journal.events == [event(i) for i in range(25)]
    first = fake.requests[0]
    assert (first.method, first.target) == ("POST", "/v1/events")
    assert first.headers["content-type"] == "application/json"
    assert "authorization" not in first.headers
    assert set(first.json()) == {"batch_id", "source", "events"}


def test_append_default_batch_and_array_and_file(tmp_path):
    events = [event(i, payload={"text": "[{\"\\", "ü": 1.50}) for i in range(2100)]
    file = tmp_path / "events.json"
    file.write_text(json.dumps(events, indent=3))
    with Fake(Journal(), tmp_path) as fake:
        done = run("append", "--source", "src", "--prefix", "x/1", *fake.options, file)
        assert done.returncode == 0, done.stderr
        assert batches(fake) == [("x/1@0", 1000), ("x/1@1000", 1000), ("x/1@2000", 100)]
        sent = fake.requests[0].body
        # The same events as lines are the same bytes.
        done = run("append", "--source", "src", "--prefix", "x/1", *fake.options, "-", input=lines(events))
        assert done.returncode == 0
        assert done.stdout.count(b"duplicate ") == 3
        assert fake.requests[3].body == sent


def test_append_json_receipts(tmp_path):
    with Fake(Journal(), tmp_path) as fake:
        done = append(fake, b"\n" + lines([event(0), event(1), event(2)]), "--json", "--batch-events", "2")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(t["status"], t["batch_id"], t["events"], t["first_line"], t["last_line"]) for t in told] == [
        ("committed", "p@0", 2, 2, 3), ("committed", "p@2", 1, 4, 4)]
    assert set(told[0]) == {"status", "source", "batch_id", "events", "first_event_id", "last_event_id", "batch_digest",
                            "first_line", "last_line"}
    assert done.stderr == b""


def test_append_nothing(tmp_path):
    with Fake(Journal(), tmp_path) as fake:
        for data in (b"", b"\n\n", b"[]"):
            done = append(fake, data)
            assert (done.returncode, done.stdout) == (0, b"")
    assert fake.requests == []


def test_append_grown_file(tmp_path):
    journal = Journal()
    with Fake(journal, tmp_path) as fake:
        append(fake, lines(event(i) for i in range(13)), "--batch-events", "10")
        fake.requests.clear()
        done = append(fake, lines(event(i) for i in range(28)), "--batch-events", "10")
        assert done.returncode == 0, done.stderr
        # The batch at 10 had 3 events, is asked with 10, told to be 3, sent again as 3, and passed.
        assert batches(fake) == [("p@0", 10), ("p@10", 10), ("p@10", 3), ("p@13", 10), ("p@23", 5)]
        assert [line.split()[:4] for line in done.stdout.decode().splitlines()] == [
            ["duplicate", "10", "events", "p@0"], ["duplicate", "3", "events", "p@10"],
            ["committed", "10", "events", "p@13"], ["committed", "5", "events", "p@23"]]
        assert b"28 events in 4 batches: 15 stored now, 13 were there already" in done.stderr
        # Again, unchanged: only receipts. And grown once more.
        again = append(fake, lines(event(i) for i in range(28)), "--batch-events", "10")
        assert again.returncode == 0
        assert again.stdout.decode().count("duplicate") == 4
        assert append(fake, lines(event(i) for i in range(30)), "--batch-events", "10").returncode == 0
    assert journal.events == [event(i) for i in range(30)]


@pytest.mark.parametrize("before, now", [(10, 4), (4, 10), (7, 1), (1, 7), (10000, 3)])
def test_append_with_another_batch_size(tmp_path, before, now):
    journal = Journal()
    with Fake(journal, tmp_path) as fake:
        append(fake, lines(event(i) for i in range(24)), "--batch-events", before)
        done = append(fake, lines(event(i) for i in range(31)), "--batch-events", now)
        assert done.returncode == 0, done.stderr
    assert journal.events == [event(i) for i in range(31)]


def test_append_changed_file(tmp_path):
    journal = Journal()
    with Fake(journal, tmp_path) as fake:
        append(fake, lines(event(i) for i in range(13)), "--batch-events", "10")
        fake.requests.clear()
        changed = [event(i) for i in range(40)]
        changed[11]["payload"] = "another"
        done = append(fake, lines(changed), "--batch-events", "10")
    assert done.returncode == 1
    assert batches(fake) == [("p@0", 10), ("p@10", 10), ("p@10", 3)]
    words = done.stderr.decode()
    assert "standard input:11-13" in words
    assert 'source "src", batch "p@10": the server holds 3 events' in words
    assert len(journal.events) == 13


def test_append_changed_file_of_the_same_size(tmp_path):
    with Fake(Journal(), tmp_path) as fake:
        append(fake, lines([event(0), event(1)]))
        done = append(fake, lines([event(0), event(7)]))
        assert len(fake.requests) == 2
    assert done.returncode == 1
    assert b"standard input:1-2" in done.stderr
    assert b"the server holds 2 events" in done.stderr


def test_append_shrunk_file(tmp_path):
    with Fake(Journal(), tmp_path) as fake:
        append(fake, lines(event(i) for i in range(9)))
        done = append(fake, lines(event(i) for i in range(5)))
        assert batches(fake) == [("p@0", 9), ("p@0", 5)]  # 9 cannot be sent again
    assert done.returncode == 1
    assert b"the server holds 9 events" in done.stderr


@pytest.mark.parametrize("count", [None, 0, "3", 10001, -1])
def test_append_conflict_without_a_usable_count(tmp_path, count):
    members = {} if count is None else {"events": count}
    with Fake(lambda r: error(409, "batch_id_conflict", **members), tmp_path) as fake:
        done = append(fake, lines(event(i) for i in range(5)))
        assert len(fake.requests) == 1
    assert done.returncode == 1
    assert b"the server holds" in done.stderr


def test_append_cuts_by_bytes(tmp_path):
    big = [event(i, payload="x" * 5_000_000) for i in range(9)]
    with Fake(Journal(), tmp_path) as fake:
        done = append(fake, lines(big))
    assert done.returncode == 0, done.stderr
    assert batches(fake) == [("p@0", 5), ("p@5", 4)]
    assert all(len(r.body) <= 24 << 20 for r in fake.requests)


def test_append_memory_is_bounded(tmp_path):
    """Half a gigabyte through a program that may have 220 MiB."""
    line = lines([event(1, payload="y" * 100_000)])

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (220 << 20, 220 << 20))

    if "asan" in TALLYMAN:
        limit = None  # its shadow memory is larger than any limit

    def receipt(request):
        return Reply(200, {"status": "committed", "batch_digest": "0" * 64, "first_event_id": event_id(0),
                           "last_event_id": event_id(1), "events": request.body.count(b'"record_key"')})

    with Fake(receipt, tmp_path) as fake:
        process = subprocess.Popen([TALLYMAN, "append", "--source", "s", "--prefix", "p", *fake.options, "-"],
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=clean_environment(), preexec_fn=limit)
        for _ in range(5000 if limit else 500):
            process.stdin.write(line)
        process.stdin.close()
        words = process.stderr.read()
        process.stderr.close()
        assert process.wait(60) == 0, words
        for request in fake.requests:
            assert len(request.body) <= 24 << 20


def test_append_mistakes_in_the_file(tmp_path):
    with Fake(Journal(), tmp_path) as fake:
        done = append(fake, lines(event(i) for i in range(5)) + b'{"a":1,"a":2}\n', "--batch-events", "2")
        assert batches(fake) == [("p@0", 2), ("p@2", 2)]
        assert done.returncode == 1
        assert b"standard input:6: " in done.stderr
        assert b"nothing from line 5 on was sent" in done.stderr
        assert done.stdout.count(b"committed") == 2
        done = run("append", "--source", "s", "--prefix", "p", *fake.options, "/nonexistent/file")
        assert done.returncode == 1
        assert b"open /nonexistent/file: No such file or directory" in done.stderr
        done = run("append", "--source", "s", "--prefix", "p", *fake.options, tmp_path)
        assert done.returncode == 1
        assert b"Is a directory" in done.stderr


def test_append_mistake_behind_a_conflict(tmp_path):
    """The server holds 10 events under the id, the file has a mistake before it has 10."""
    with Fake(Journal(), tmp_path) as fake:
        append(fake, lines(event(i) for i in range(10)))
        done = append(fake, lines(event(i) for i in range(7)) + b"x\n", "--batch-events", "5")
    assert done.returncode == 1
    assert b"standard input:8: an event must be a JSON object" in done.stderr


@pytest.mark.parametrize("size", [(1 << 25) - 15, 1 << 25])
def test_append_event_too_large(tmp_path, size):
    with Fake(Journal(), tmp_path) as fake:
        done = append(fake, lines([event(0)]) + b'{"payload":"' + b"x" * size + b'"}\n', "--batch-events", "1")
        assert batches(fake) == [("p@0", 1)]
    assert done.returncode == 1
    assert b"standard input:2: the event is larger than the 32 MiB a request may have" in done.stderr


def test_append_bad_events_are_told_by_line(tmp_path):
    def refuse(request):
        return error(400, "invalid_events", errors=[
            {"index": 1, "code": "invalid_event", "message": "record_key is empty"},
            {"index": 3, "code": "invalid_event", "message": "kind is\x1b[31m missing"},
            {"index": 99, "code": "invalid_event", "message": "not one of these"}])

    with Fake(refuse, tmp_path) as fake:
        done = append(fake, b"\n\n" + lines(event(i) for i in range(4)))
        assert len(fake.requests) == 1
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "tallyman append: standard input:4: event 1: record_key is empty",
        "tallyman append: standard input:6: event 3: kind is?[31m missing",
        "tallyman append: standard input:3-6: the batch was refused; nothing of it is stored"]


@pytest.mark.parametrize("answer, words", [
    (error(400, "invalid_events", errors=[]), b"answered 400 invalid_events: the words of invalid_events"),
    (error(400, "invalid_events"), b"answered 400 invalid_events: the words of invalid_events"),
    (error(413, "body_too_large"), b"answered 413 body_too_large"),
    (error(409, "source_retired"), b"answered 409 source_retired"),
    (error(401, "unauthorized"), b"answered 401 unauthorized"),
    (error(503, "writer_poisoned"), b"answered 503 writer_poisoned"),
    (Reply(502, b"<html>"), b"answered 502"),
    (Reply(302, b"", [("Location", "http://127.0.0.1:1/")]), b"answered 302"),
    (Reply(200, b""), b"is no receipt for these events"),
    (Reply(200, b"<html>ok</html>"), b"is no receipt for these events"),
    (Reply(200, {"status": "committed", "batch_digest": "d", "first_event_id": "a", "last_event_id": "b", "events": 4}),
     b"is no receipt for these events"),
    (Reply(200, {"status": "queued", "batch_digest": "d", "first_event_id": "a", "last_event_id": "b", "events": 3}),
     b"is no receipt for these events"),
])
def test_append_refused(tmp_path, answer, words):
    with Fake(lambda r: answer, tmp_path) as fake:
        done = append(fake, lines(event(i) for i in range(3)))
        assert len(fake.requests) == 1
    assert done.returncode == 1
    assert words in done.stderr
    assert b"standard input:1-3: " in done.stderr
    assert done.stdout == b""


def test_append_waits_when_the_server_is_busy(tmp_path):
    answers = [error(429, "overloaded", [("Retry-After", "2")]), error(503, "not_ready", [("retry-after", " 1 ")])]
    journal = Journal()
    with Fake(lambda r: answers.pop(0) if answers else journal(r), tmp_path) as fake:
        start = time.monotonic()
        done = append(fake, lines([event(0)]))
        took = time.monotonic() - start
    assert done.returncode == 0, done.stderr
    assert len(fake.requests) == 3
    assert 3 <= took < 10
    assert f"append: {tmp_path}/tallyman.sock is busy; trying again in 2 s".encode() in done.stderr
    assert len({r.body for r in fake.requests}) == 1


def test_append_does_not_wait_for_ever(tmp_path):
    with Fake(lambda r: error(429, "overloaded", [("Retry-After", "60")]), tmp_path) as fake:
        start = time.monotonic()
        done = append(fake, lines([event(0)]), "--retry", "3")
        assert time.monotonic() - start < 3  # 60 s cannot fit in
        assert done.returncode == 1
        assert b"answered 429 overloaded" in done.stderr
        assert len(fake.requests) == 1
    os.unlink(tmp_path / "tallyman.sock")
    with Fake(lambda r: error(429, "overloaded"), tmp_path) as fake:
        start = time.monotonic()
        done = append(fake, lines([event(0)]), "--retry", "1")
        assert time.monotonic() - start < 5
        assert done.returncode == 1
        assert 2 <= len(fake.requests) <= 6


@pytest.mark.parametrize("tcp", [False, True])
@pytest.mark.parametrize("how", [Reset, Cut, lambda: Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
                                 lambda: Cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"sta")])
def test_append_repeats_after_a_lost_connection(tmp_path, tcp, how):
    """The server has stored it, and the answer is lost: the repeat is a duplicate, nothing is doubled."""
    journal = Journal()
    lost = []

    def lose_first(request):
        answer = journal(request)
        if not lost:
            lost.append(1)
            return how()
        return answer

    with Fake(lose_first, None if tcp else tmp_path) as fake:
        done = append(fake, lines([event(0), event(1)]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"duplicate 2 events p@0")
    assert journal.events == [event(0), event(1)]


def test_append_lost_for_good(tmp_path):
    with Fake(lambda r: Reset(), tmp_path) as fake:
        done = append(fake, lines([event(0)]), "--retry", "4")
        assert 5 <= len(fake.requests) < 20
    assert done.returncode == 1
    assert b"; trying again in 1 s" in done.stderr
    assert b"whether this batch is stored is not known, run the same command again" in done.stderr


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 banana\r\n\r\n"])
def test_what_is_no_http_is_not_asked_again(tmp_path, data):
    with Fake(lambda r: Cut(data), tmp_path) as fake:
        done = append(fake, lines([event(0)]))
        assert len(fake.requests) == 1
    assert done.returncode == 1
    assert f"{tmp_path}/tallyman.sock: ".encode() in done.stderr


def test_tls_that_fails_is_told_at_once():
    with Fake(lambda r: Reply(200)) as fake:
        start = time.monotonic()
        done = run("replay", "--url", fake.options[1].replace("http:", "https:"))
        assert time.monotonic() - start < 5
    assert done.returncode == 1
    assert b"no server answers at https://127.0.0.1:" in done.stderr
    assert b"SSL" in done.stderr


def test_append_silent_server(tmp_path):
    with Fake(lambda r: Hang(), tmp_path) as fake:
        start = time.monotonic()
        done = append(fake, lines([event(0)]), "--timeout", "1", "--retry", "0")
        assert 1 <= time.monotonic() - start < 5
    assert done.returncode == 1
    assert b"tallyman.sock: no answer in time; " in done.stderr
    assert b"whether this batch is stored is not known" in done.stderr


def test_append_server_restarts_in_between(tmp_path):
    """Gone after the first batch, back a second later: the run goes on by itself."""
    journal = Journal()
    with Fake(journal, tmp_path) as fake:
        process = subprocess.Popen([TALLYMAN, "append", "--source", "s", "--prefix", "p", *fake.options,
                                    "--batch-events", "1", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=clean_environment())
        process.stdin.write(lines([event(0)]))
        process.stdin.flush()
        assert b"p@0" in process.stdout.readline()
    os.unlink(tmp_path / "tallyman.sock")
    process.stdin.write(lines([event(1)]))
    process.stdin.close()
    time.sleep(0.5)
    assert process.poll() is None
    with Fake(journal, tmp_path):
        assert b"p@1" in process.stdout.readline()
        assert process.wait(20) == 0
    process.stdout.close()
    process.stderr.close()


def test_no_server_is_told_at_once(tmp_path):
    for args in (["append", "--source", "s", "--prefix", "p", "--data", tmp_path, "-"], ["status", "--data", tmp_path],
                 ["replay", "--data", tmp_path], ["streams", "--data", tmp_path]):
        start = time.monotonic()
        done = run(*args, input=lines([event(0)]))
        assert done.returncode == 1
        assert time.monotonic() - start < 5
        assert f"no server answers at {tmp_path}/tallyman.sock (No such file or directory)".encode() in done.stderr
    done = run("replay", "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert b"no server answers at http://127.0.0.1:1" in done.stderr


def test_data_directory_of_environment(tmp_path):
    with Fake(Journal(), tmp_path):
        done = run("append", "--source", "s", "--prefix", "p", "-", input=lines([event(0)]),
                   env={"TALLYMAN_DATA": str(tmp_path)})
        assert done.returncode == 0
    (tmp_path / "data").mkdir()
    with Fake(Journal(), tmp_path / "data"):
        done = run("append", "--source", "s", "--prefix", "p", "-", input=lines([event(0)]), cwd=tmp_path)
        assert done.returncode == 0


# ---- the token ----


def test_token(tmp_path):
    secret = "s3cr3t-" + "x" * 30
    file = tmp_path / "token"
    file.write_text(secret + "\n")
    file.chmod(0o600)

    def guard(request):
        if request.headers.get("authorization") != "Bearer " + secret:
            return error(401, "unauthorized")
        return Journal()(request)

    with Fake(guard) as fake:
        assert append(fake, lines([event(0)]), "--token-file", file).returncode == 0
        assert append(fake, lines([event(0)]), env={"TALLYMAN_TOKEN": secret}).returncode == 0
        # The file wins; a wrong one is told without the token.
        done = append(fake, lines([event(0)]), "--token-file", file, env={"TALLYMAN_TOKEN": "other"})
        assert done.returncode == 0
        done = append(fake, lines([event(0)]), env={"TALLYMAN_TOKEN": "wrong-" + secret})
        assert done.returncode == 1
        assert b"answered 401 unauthorized" in done.stderr
        assert secret.encode() not in done.stderr + done.stdout
        assert append(fake, lines([event(0)])).returncode == 1
    done = append(fake, lines([event(0)]), "--token-file", file, "--retry", "0")  # nobody there any more
    assert done.returncode == 1
    assert secret.encode() not in done.stderr + done.stdout


def test_token_is_not_in_argv_while_running(tmp_path):
    secret = "s3cr3t-in-memory"
    with Fake(lambda r: Hang()) as fake:
        process = subprocess.Popen([TALLYMAN, "replay", *fake.options], env=clean_environment({"TALLYMAN_TOKEN": secret}),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not fake.requests:
            assert process.poll() is None
            time.sleep(0.01)
        assert secret.encode() not in pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.kill()
        process.communicate(timeout=10)


def test_token_follows_no_redirect_and_no_proxy():
    with Fake(lambda r: Reply(200)) as other:
        target = other.options[1]
        with Fake(lambda r: Reply(307, b"", [("Location", target + "/v1/events")])) as fake:
            done = append(fake, lines([event(0)]), env={"TALLYMAN_TOKEN": "t0ken", "http_proxy": target,
                                                        "all_proxy": target, "ALL_PROXY": target})
            assert done.returncode == 1
            assert len(fake.requests) == 1
        assert other.requests == []


def test_a_token_on_the_command_line_is_refused_and_not_repeated():
    for args in (["replay", "--token=hunter2"], ["replay", "--token", "hunter2"],
                 ["replay", "--url", "http://u:hunter2@127.0.0.1:1"]):
        done = run(*args)
        assert done.returncode == 2
        assert b"hunter2" not in done.stdout + done.stderr


# ---- replay ----


def stored(n):
    return {"batch_id": "b", "content_hash": "c", "event_hash": "e", "event_id": event_id(n), "kind": "k",
            "payload": {"type": "page", "n": n}, "source": "s", "stream": "t"}


def page(events, next_after, through, count=None):
    end = {"next_after": next_after, "snapshot_through_event_id": through, "type": "page"}
    return lines([stored(n) for n in events]) + lines([end])


class Log:
    """Finite replay over n events, at most `most` a page; the frontier can move between pages."""

    def __init__(self, n, most=100000, grow=0):
        self.n, self.most, self.grow = n, most, grow

    def __call__(self, request):
        query = request.query
        assert request.headers["accept"] == "application/x-ndjson"
        limit = int(query.get("limit", min(self.most, 1000)))
        if limit > self.most:
            return error(400, "invalid_replay_request")
        start = int(query["after"][-12:], 16) + 1 if "after" in query else 0
        numbers = range(start, min(start + limit, self.n))
        if "last" in query:
            numbers = range(max(0, self.n - int(query["last"])), self.n)
        through = event_id(self.n - 1) if self.n else None
        full = "last" not in query and len(numbers) == limit
        after = event_id(numbers[-1]) if full else through
        self.n += self.grow
        return Reply(200, page(numbers, after, through), [("Content-Type", "application/x-ndjson")])


def numbers_of(done):
    return [json.loads(line)["payload"]["n"] for line in done.stdout.splitlines()]


def test_replay_pages_to_the_end(tmp_path):
    for n, most in ((0, 5), (1, 5), (5, 5), (23, 5), (23, 1), (3000, 100000)):
        with Fake(Log(n, most), tmp_path) as fake:
            for options in ([], ["--all"]):
                done = run("replay", *fake.options, *options)
                assert (done.returncode, done.stderr) == (0, b"")
                assert done.stdout == lines(stored(i) for i in range(n))
        os.unlink(tmp_path / "tallyman.sock")


def test_replay_ends_where_the_first_page_saw_the_end(tmp_path):
    with Fake(Log(12, 5, grow=20), tmp_path) as fake:
        done = run("replay", *fake.options)
    assert done.returncode == 0
    assert numbers_of(done) == list(range(12))


@pytest.mark.parametrize("most", [3, 1000, 100000])
def test_replay_limit_after_last(tmp_path, most):
    with Fake(Log(50, most), tmp_path) as fake:
        for limit in (1, 2, 3, 7, 50, 60):
            done = run("replay", *fake.options, "--limit", limit)
            assert (done.returncode, numbers_of(done)) == (0, list(range(min(limit, 50))))
        done = run("replay", *fake.options, "--after", event_id(40), "--limit", "4")
        assert numbers_of(done) == [41, 42, 43, 44]
        done = run("replay", *fake.options, "--after", event_id(49))
        assert (done.returncode, done.stdout) == (0, b"")
        fake.requests.clear()
        done = run("replay", *fake.options, "--last", "4", "--kind", "k")
        assert numbers_of(done) == [46, 47, 48, 49]
        assert [r.query for r in fake.requests] == [{"kind": "k", "last": "4"}]


def test_replay_sends_filters_encoded(tmp_path):
    with Fake(Log(0), tmp_path) as fake:
        run("replay", *fake.options, "--source", "a", "--stream", "b", "--kind", "c d", "--record-key", "ü&x=1+2/%")
    assert fake.requests[0].query == {"source": "a", "stream": "b", "kind": "c%20d",
                                      "record_key": "%C3%BC%26x%3D1%2B2%2F%25", "limit": "100000"}


WHOLE = page([0, 1, 2], event_id(2), event_id(2))


@pytest.mark.parametrize("data, shown, words", [
    (lines([stored(0), stored(1)]), 2, f"the answer was cut; go on with --after {event_id(1)}"),
    (WHOLE[:-1], 3, "the answer was cut"),
    (WHOLE[:-40], 3, "the answer was cut"),
    (WHOLE[:len(lines([stored(0)])) + 30], 1, f"the answer was cut; go on with --after {event_id(0)}"),
    (b"", 0, "the answer was cut"),
    (lines([stored(0), {"type": "error", "error": "generation_corrupt", "message": "block 7"}]), 1,
     f"generation_corrupt: block 7; go on with --after {event_id(0)}"),
    (lines([stored(1), stored(0)]), 1, "not in order"),
    (lines([stored(1), stored(1)]), 1, "not in order"),
    (lines([stored(0), {"type": "new"}]), 1, "is no event"),
    (lines([stored(0), {"n": 1}]), 1, "is no event"),
    (lines([stored(0)]) + b"<html>\n", 1, "is no event"),
    (lines([{**stored(0), "event_id": "7"}]), 0, "malformed event id"),
    (lines([{"type": "page", "next_after": "x"}]), 0, "malformed event id"),
    (WHOLE + lines([stored(3)]), 3, "goes on behind its last record"),
    (WHOLE + b'{"batch_id"', 3, "the answer was cut"),
    (page([0], event_id(0), event_id(9)), 2, "does not move on"),
], ids=range(16))
def test_replay_answers_that_cannot_be_believed(tmp_path, data, shown, words):
    answers = [Reply(200, data)]
    if "move on" in words:
        answers.append(Reply(200, page([1], event_id(0), event_id(9))))
    with Fake(lambda r: answers.pop(0), tmp_path) as fake:
        done = run("replay", *fake.options)
        assert answers == []
    assert done.returncode == 1
    assert words in done.stderr.decode()
    assert done.stdout == lines(stored(i) for i in ([1] if "order" in words else range(shown)))


@pytest.mark.parametrize("encoding", [b"Content-Length: 100000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_replay_lost_connection(tmp_path, encoding):
    """Only whole lines are printed, nothing is asked twice, and the message says where to go on."""
    body = lines([stored(0), stored(1)]) + b'{"batch_id"'
    if b"chunked" in encoding:
        body = b"%x\r\n%s\r\n" % (len(body), body)
    with Fake(lambda r: Cut(b"HTTP/1.1 200 OK\r\n" + encoding + b"\r\n" + body), tmp_path) as fake:
        done = run("replay", *fake.options)
        assert len(fake.requests) == 1
    assert done.returncode == 1
    assert done.stdout == lines([stored(0), stored(1)])
    assert f"go on with --after {event_id(1)}".encode() in done.stderr


def test_replay_waits_for_a_slow_server(tmp_path):
    """Over two seconds as a whole, never silent for one."""
    with Fake(lambda r: Drip(Log(100)(r), 6, 0.4), tmp_path) as fake:
        done = run("replay", *fake.options, "--timeout", "1")
    assert (done.returncode, numbers_of(done)) == (0, list(range(100)))


def test_replay_waits_for_a_slow_reader(tmp_path):
    """A pager that stands still is not a silent server."""
    body = lines({**stored(n), "payload": "x" * 10_000} for n in range(500))
    end = lines([{"type": "page", "next_after": event_id(499), "snapshot_through_event_id": event_id(499)}])
    with Fake(lambda r: Reply(200, body + end), tmp_path) as fake:
        process = subprocess.Popen([TALLYMAN, "replay", *fake.options, "--timeout", "1"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=clean_environment())
        time.sleep(2.5)
        shown, words = process.communicate(timeout=20)
    assert (process.returncode, words) == (0, b"")
    assert shown == body


def test_replay_refused(tmp_path):
    with Fake(lambda r: error(400, "invalid_request"), tmp_path) as fake:
        done = run("replay", *fake.options, "--source", "x")
        assert len(fake.requests) == 1
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"answered 400 invalid_request" in done.stderr


def test_replay_repeats_before_the_first_byte(tmp_path):
    answers = [Reset(), error(429, "overloaded", [("Retry-After", "1")])]
    log = Log(3)
    with Fake(lambda r: answers.pop(0) if answers else log(r), tmp_path) as fake:
        done = run("replay", *fake.options)
    assert (done.returncode, numbers_of(done)) == (0, [0, 1, 2])


# ---- streams and status ----


def stream_rows(n):
    return [{"source": f"src{i // 3:02d}", "stream": f"st{i % 3}", "frontier_event_id": event_id(i), "event_count": i + 1}
            for i in range(n)]


def streams_handler(rows, most):
    def handle(request):
        names = [f"{r['source']}%2F{r['stream']}" for r in rows]
        start = 0
        if "after" in request.query:
            assert request.query["through"] == event_id(len(rows) - 1)
            start = names.index(request.query["after"]) + 1
        part = rows[start:start + most]
        more = start + most < len(rows)
        after = f"{part[-1]['source']}/{part[-1]['stream']}" if more else None
        through = event_id(len(rows) - 1) if rows else None
        return Reply(200, {"v": 1, "streams": part, "next_after": after, "snapshot_through_event_id": through})

    return handle


def test_streams(tmp_path):
    for n, most in ((0, 4), (1, 4), (10, 4), (8, 4)):
        rows = stream_rows(n)
        with Fake(streams_handler(rows, most), tmp_path) as fake:
            done = run("streams", *fake.options)
            assert (done.returncode, done.stderr) == (0, b"")
            assert done.stdout.decode() == "".join(
                f"{r['source']}\t{r['stream']}\t{r['event_count']}\t{r['frontier_event_id']}\n" for r in rows)
            done = run("streams", *fake.options, "--json")
            assert [json.loads(line) for line in done.stdout.splitlines()] == rows
        os.unlink(tmp_path / "tallyman.sock")


def test_streams_of_a_source(tmp_path):
    with Fake(streams_handler([], 4), tmp_path) as fake:
        assert run("streams", *fake.options, "--source", "a-b").returncode == 0
    assert fake.requests[0].path == "/v1/streams"
    assert fake.requests[0].query == {"source": "a-b", "limit": "1000"}


@pytest.mark.parametrize("answer, words", [
    (Reply(200, {"v": 1}), b"is no list of streams"),
    (Reply(200, {"streams": [{"source": "a"}], "next_after": None, "snapshot_through_event_id": None}),
     b"is no list of streams"),
    (Reply(200, {"streams": {}, "next_after": None, "snapshot_through_event_id": None}), b"is no list of streams"),
    (Reply(200, b'{"streams": [{"source":"a","stream":"b","event_count":1,"frontier_event_id":"c"} x]}'),
     b"is no list of streams"),
    (Reply(200, {"streams": [], "next_after": 5, "snapshot_through_event_id": None}), b"is no list of streams"),
    (Reply(200, {"streams": [], "next_after": "x" * 300, "snapshot_through_event_id": None}), b"is no list of streams"),
    (Reply(200, {"streams": [], "next_after": None}), b"is no list of streams"),
    (Reply(200, {"streams": [], "next_after": "a/b", "snapshot_through_event_id": None}), b"does not move on"),
    (error(400, "stream_anchor_unavailable"), b"answered 400 stream_anchor_unavailable"),
])
def test_streams_answers_that_cannot_be_believed(tmp_path, answer, words):
    with Fake(lambda r: answer, tmp_path) as fake:
        done = run("streams", *fake.options)
    assert done.returncode == 1
    assert words in done.stderr


STATUS = {"version": "0.1.0", "uptime_ms": 7_500_000,
          "frontier": {"event_id": event_id(6), "events": 7, "chain_head": "ab" * 32},
          "journal": {"bytes": 3 << 20, "generations": 2, "poisoned": False, "no_space": False, "cause": None}}


def test_status(tmp_path):
    with Fake(lambda r: Reply(200, STATUS), tmp_path) as fake:
        done = run("status", *fake.options)
        assert (done.returncode, done.stderr) == (0, b"")
        shown = dict(line.split(None, 1) for line in done.stdout.decode().splitlines())
        assert shown["server"] == f"{tmp_path}/tallyman.sock"
        assert shown["frontier.events"] == "7"
        assert shown["journal.bytes"] == "3145728 (3.0 MiB)"
        assert shown["uptime_ms"] == "7500000 (0 d 2 h 5 min)"
        assert shown["journal.poisoned"] == "false"
        done = run("status", *fake.options, "--json")
        assert json.loads(done.stdout) == STATUS
    assert {r.target for r in fake.requests} == {"/api/v1/status"}


def test_status_units(tmp_path):
    with Fake(lambda r: Reply(200, {"up_ms": 5999, "bytes": 1023, "wait_ms": 7, "note": "n" * 700}), tmp_path) as fake:
        shown = dict(line.split(None, 1) for line in run("status", *fake.options).stdout.decode().splitlines())
    assert (shown["up_ms"], shown["bytes"], shown["wait_ms"]) == ("5999 (5 s)", "1023", "7")
    assert shown["note"] == "n" * 600 + "..."


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_status_of_a_server_in_trouble(tmp_path, options):
    state = {**STATUS, "journal": {**STATUS["journal"], "poisoned": True, "cause": "fdatasync tail.ndjson: Input/output error"}}
    with Fake(lambda r: Reply(200, state), tmp_path) as fake:
        done = run("status", *fake.options, *options)
        assert done.returncode == 1
        assert b"poisoned" in done.stdout
        assert b"nothing is acknowledged until a restart: fdatasync tail.ndjson" in done.stderr
        state["journal"].update(poisoned=False, no_space=True, cause="12 MiB left")
        done = run("status", *fake.options, *options)
        assert done.returncode == 0
        assert b"out of space, intake waits: 12 MiB left" in done.stderr


@pytest.mark.parametrize("answer, words", [
    (Reply(200, b'{"journal":{"bytes":1,x}}'), b"is no status"),
    (Reply(200, b"[]"), b"is no status"), (Reply(200, b'{"a":'), b"is no status"), (error(404, "not_found"), b"answered 404"),
    (Reply(200, b"x" * (17 << 20)), b"larger than this program takes"),
])
def test_status_answers_that_cannot_be_believed(tmp_path, answer, words):
    with Fake(lambda r: answer, tmp_path) as fake:
        done = run("status", *fake.options)
    assert done.returncode == 1
    assert words in done.stderr


# ---- standard output that goes wrong; terminals ----


@pytest.mark.parametrize("verb", ["replay", "append", "streams", "status", "version"])
def test_full_output_is_noticed(tmp_path, verb):
    def handle(request):
        if request.method == "POST":
            return Journal()(request)
        if request.path == "/v1/events":
            return Log(3)(request)
        if request.path == "/v1/streams":
            return streams_handler(stream_rows(2), 4)(request)
        return Reply(200, STATUS)

    with Fake(handle, tmp_path) as fake:
        extra = {"append": ["--source", "s", "--prefix", "p", "-"]}.get(verb, [])
        with open("/dev/full", "wb") as full:
            done = subprocess.run([TALLYMAN, verb, *(fake.options if verb != "version" else []), *extra], stdout=full,
                                  stderr=subprocess.PIPE, input=lines([event(0)]), env=clean_environment(), timeout=30)
    assert done.returncode == 1
    assert b"cannot write to standard output: No space left on device" in done.stderr


@pytest.mark.parametrize("ignored", [False, True])
def test_a_reader_that_leaves_ends_it_quietly(tmp_path, ignored):
    with Fake(Log(3000), tmp_path) as fake:
        read, write = os.pipe()
        process = subprocess.Popen([TALLYMAN, "replay", *fake.options], stdout=write, stderr=subprocess.PIPE,
                                   env=clean_environment(), restore_signals=False,
                                   preexec_fn=lambda: signal.signal(signal.SIGPIPE,
                                                                    signal.SIG_IGN if ignored else signal.SIG_DFL))
        os.close(write)
        os.read(read, 10)
        os.close(read)
        _, words = process.communicate(timeout=20)
    assert process.returncode == (141 if ignored else -signal.SIGPIPE)
    assert words == b""


def test_closed_standard_descriptors(tmp_path):
    """What is opened later must not become standard output."""
    with Fake(Log(2), tmp_path) as fake:
        command = f'"$0" replay {" ".join(fake.options)} >&-'
        done = subprocess.run(["sh", "-c", command, TALLYMAN], env=clean_environment(), capture_output=True, timeout=20)
        assert done.returncode == 1
        assert b"cannot write to standard output: Bad file descriptor" in done.stderr
        assert len(fake.requests) == 1


def on_terminal(command, stdout_too=True, stdout=None):
    """Runs it with standard error (and output) on a terminal; returns its exit code and what the terminal showed."""
    master, slave = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave if stdout_too else stdout, stderr=slave,
                               env=clean_environment())
    os.close(slave)
    shown = b""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if select.select([master], [], [], 1)[0]:
            try:
                got = os.read(master, 65536)
            except OSError:
                break
            if not got:
                break
            shown += got
    os.close(master)
    return process.wait(10), shown


def test_streams_table_on_a_terminal(tmp_path):
    with Fake(streams_handler(stream_rows(2), 4), tmp_path) as fake:
        code, shown = on_terminal([TALLYMAN, "streams", *fake.options])
    assert code == 0
    assert shown.decode().split("\r\n")[:2] == [
        "SOURCE  STREAM        EVENTS  LAST EVENT", f"src00   st0                1  {event_id(0)}"]


def test_progress_on_a_terminal_only_when_long(tmp_path):
    file = tmp_path / "events"
    file.write_bytes(lines(event(i) for i in range(12)))
    command = [TALLYMAN, "append", "--source", "s", "--prefix", "p", "--batch-events", "1", "--data", tmp_path, file]
    journal = Journal()

    def slow(request):
        time.sleep(0.12)
        return journal(request)

    for handler, long in ((slow, True), (Journal(), False)):
        with Fake(handler, tmp_path), open(tmp_path / "out", "wb") as out:
            code, shown = on_terminal(command, stdout_too=False, stdout=out)
        os.unlink(tmp_path / "tallyman.sock")
        assert code == 0
        assert (b"appending [####" in shown) == long
        if long:  # erased before the closing words
            assert b"\r\x1b[Ktallyman append: 12 events" in shown
        assert (tmp_path / "out").read_bytes().count(b"committed") == 12


# ---- the real server ----


def test_real_append_and_replay(server, tmp_path):
    events = [event(i, stream=f"st{i % 2}") for i in range(2500)]
    options = ["--data", server.data]
    first = run("append", "--source", "cli", "--prefix", "real", *options, "-", input=lines(events[:1200]))
    assert first.returncode == 0, first.stderr
    grown = run("append", "--source", "cli", "--prefix", "real", *options, "-", input=lines(events))
    assert grown.returncode == 0, grown.stderr
    assert [line.split()[:4] for line in grown.stdout.decode().splitlines()] == [
        ["duplicate", "1000", "events", "real@0"], ["duplicate", "200", "events", "real@1000"],
        ["committed", "1000", "events", "real@1200"], ["committed", "300", "events", "real@2200"]]
    assert grown.stdout.splitlines()[0].split()[-1] == first.stdout.splitlines()[0].split()[-1]
    changed = run("append", "--source", "cli", "--prefix", "real", *options, "-", input=lines(events[1:]))
    assert changed.returncode == 1
    assert b"the server holds 1000 events" in changed.stderr

    everything = run("replay", "--source", "cli", *options)
    assert everything.returncode == 0, everything.stderr
    got = [json.loads(line) for line in everything.stdout.splitlines()]
    assert [g["payload"]["n"] for g in got] == list(range(2500))
    over_tcp = run("replay", "--source", "cli", "--url", server.url)
    assert over_tcp.stdout == everything.stdout
    limited = run("replay", "--source", "cli", "--stream", "st1", "--limit", "700", *options)
    assert limited.stdout.splitlines() == [line for line in everything.stdout.splitlines()
                                           if json.loads(line)["stream"] == "st1"][:700]
    behind = run("replay", "--source", "cli", "--after", got[2489]["event_id"], *options)
    assert behind.stdout.splitlines() == everything.stdout.splitlines()[2490:]
    last = run("replay", "--source", "cli", "--last", "3", *options)
    assert last.returncode == 0, last.stderr
    assert last.stdout.splitlines() == everything.stdout.splitlines()[-3:]
    one = run("replay", "--source", "cli", "--record-key", "k7", "--kind", "upserted", *options)
    assert [json.loads(line)["payload"]["n"] for line in one.stdout.splitlines()] == [7]


def test_real_streams_and_status(server):
    done = run("append", "--source", "rows", "--prefix", "p", "--url", server.url, "-",
               input=lines(event(i, stream=f"st{i % 3}") for i in range(9)))
    assert done.returncode == 0, done.stderr
    listed = run("streams", "--source", "rows", "--data", server.data)
    assert listed.returncode == 0, listed.stderr
    assert [line.split("\t")[:3] for line in listed.stdout.decode().splitlines()] == [
        ["rows", "st0", "3"], ["rows", "st1", "3"], ["rows", "st2", "3"]]
    told = json.loads(run("status", "--json", "--data", server.data).stdout)
    assert told["frontier"]["events"] >= 9
    assert told["journal"]["poisoned"] is False
    plain = run("status", "--data", server.data)
    assert plain.returncode == 0
    assert b"frontier.chain_head" in plain.stdout


def test_real_bad_events_are_told_by_line(server):
    bad = [event(0), event(1), event(2), event(3)]
    bad[1]["record_key"] = ""
    bad[3]["occurred_at"] = "2026-02-30T00:00:00Z"
    done = run("append", "--source", "bad", "--prefix", "p", "--data", server.data, "-", input=lines(bad))
    assert done.returncode == 1
    assert b"standard input:2: event 1: " in done.stderr
    assert b"standard input:4: event 3: " in done.stderr
    assert run("streams", "--source", "bad", "--data", server.data).stdout == b""
