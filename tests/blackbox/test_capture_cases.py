"""Faults that other capture servers and deliverers were reported for, tried on Tallyman: the names are those of the collection of
cases. Intake and delivery, over the wire, with a real server; the far side is a fake ClickHouse that misbehaves on demand (see
test_sink.py for all that is tried on deliveries), and the embedded engine where only the real one can show it.
"""
import hashlib
import json
import os
import random
import re
import signal
import socket
import sqlite3
import time
import uuid
import zlib

import pytest

from capture_kit import (JSON, Door, Project, assert_sound, b64, basic, drain, environment, packed, quote, rfc3339, seconds_of,
                         serving, wait)
from capture_world import Far, children, wait_gone
from conftest import tallyman, verify
from fake_clickhouse import DROP_AFTER_COMMIT, Answer, Error, FakeClickHouse, Hang, first, script
from world import SANITIZED

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))


@pytest.fixture(scope="module")
def door():
    with serving() as it:
        yield it


@pytest.fixture
def project(door):
    return door.project()


def delivering(make_server, far, *args):
    """A server of the test's own, that delivers to far."""
    return Door(make_server("--clickhouse-url", far.url, *args), far)


# ---- bodies ----

@pytest.mark.parametrize("fault, told", [
    (lambda z: z[:-8], r"gzip: the stream ends at byte \d+ without its trailer"),
    (lambda z: z[:-3], r"gzip: the stream ends at byte \d+ without its trailer"),
    (lambda z: z[:len(z) // 2], r"gzip: the stream ends at byte \d+"),
    (lambda z: z[10:], r"gzip: there is no gzip header at byte 0"),
    (lambda z: z[:5], r"gzip: .* byte \d+"),
    (lambda z: z[:-8] + b"\0\0\0\0" + z[-4:], r"gzip: the checksum \(CRC-32\) at byte \d+ does not fit the data"),
    (lambda z: z[:-4] + b"\1\0\0\0", r"gzip: the length at byte \d+ does not fit the data"),
    (lambda z: z[:40] + bytes([z[40] ^ 0xff]) + z[41:], r"gzip: .* byte \d+"),
    (lambda z: z + b"x", r"gzip: .* byte \d+"),
    (lambda z: b"", r"the body is empty"),
], ids=["trailer", "half-trailer", "half", "header", "half-header", "crc", "isize", "flip", "surplus", "empty"])
def test_c01_broken_gzip(project, fault, told):
    """Proves: a gzip body that is cut or broken is 400 with the stage and the byte, counted, and nothing of it is stored."""
    door = project.door
    refused = door.server.metric("tallyman_capture_refused_total")
    body = fault(packed(project.event(properties={"text": "some text that is long enough"})))
    for headers in ({"Content-Encoding": "gzip"}, {"Content-Encoding": "gzip", "Content-Type": "text/plain"}):
        answer = door.post("/e/?compression=gzip", body, headers)
        assert answer.status == 400 and re.fullmatch(told + "[^\n]*\n", answer.body.decode()), answer.body
    assert door.server.metric("tallyman_capture_refused_total") == refused + 2
    assert project.empty()


def test_c02_gzip_as_text(project):
    """Proves: gzip bytes that came as Latin-1 text in UTF-8 are read; a character above U+00FF in them is 400, and a gzip body that
    is none is, too."""
    door = project.door
    as_text = packed(project.event("old", properties={"text": "ünï"})).decode("latin-1").encode()
    assert as_text[:4] == b"\x1f\xc2\x8b\x08"
    for path in ("/e/?compression=gzip-js", "/batch/?compression=gzip-js&ver=1.3.0", "/e/"):
        assert door.post(path, as_text, {"Content-Type": "text/plain"}).status == 200
    rows = project.rows()
    assert [row["event"] for row in rows] == ["old"] * 3
    assert {json.loads(row["properties"])["text"] for row in rows} == {"ünï"}
    for broken in (as_text[:-2] + "Ā".encode(), as_text + b"\xc3", as_text[:20]):
        answer = door.post("/e/?compression=gzip-js", broken, {"Content-Type": "text/plain"})
        assert answer.status == 400 and b"gzip" in answer.body, answer.body
    assert len(project.rows()) == 3


def base64_with_everything(project):
    """An event whose base64 has '+', '/' and '=': the ways to damage them."""
    for n in range(100):
        value = project.event(properties={"text": "~~~???>>>" + "x" * n})
        text = b64(value)
        if "+" in text and "/" in text and text.endswith("="):
            return value, text
    raise AssertionError("no such text")


def test_c04_beacons(project):
    """Proves: a form with base64 is read in every way in which browsers have sent it; a preflight without a request is counted."""
    door = project.door
    value, text = base64_with_everything(project)
    ways = [quote(text), text, text.replace("+", "%2B"), text.replace("=", "%3D"), text.replace("+", " "), text.rstrip("="),
            text.replace("+", "-").replace("/", "_"), text.replace("+", "-").replace("/", "_").rstrip("=")]
    for way in ways:
        answer = door.post("/e/?compression=base64&beacon=1", b"data=" + way.encode(), FORM)
        assert (answer.status, answer.body) == (204, b""), (way, answer.body)
    answer = door.post("/e/?compression=base64&beacon=1", ("data=" + quote(text)).encode(), {"Content-Type": "text/plain"})
    assert answer.status == 204
    rows = project.rows()
    assert len(rows) == len(ways) + 1
    assert {row["properties"] for row in rows} == {json.dumps(value["properties"])}
    preflights = door.server.metric("tallyman_http_preflights_total")
    answer = door.server.request("OPTIONS", "/e/?beacon=1", headers={
        "Origin": "https://shop.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"})
    assert answer.status == 200
    assert door.server.metric("tallyman_http_preflights_total") == preflights + 1


def test_c05_every_form_of_every_sdk(project):
    """Proves: every form that a released SDK has sent is read without being announced; lz64 is refused by name."""
    door = project.door
    text = json.dumps(project.event())
    ways = [("/e/", text.encode(), JSON), ("/e/", text.encode(), FORM), ("/e/", text.encode(), {"Content-Type": "text/plain"}),
            ("/e/", b"data=" + quote(text).encode(), FORM), ("/e/", b"data=" + quote(b64(project.event())).encode(), FORM),
            ("/e/", b"data=" + quote(b64([project.event()])).encode() + b"&compression=base64", FORM),
            ("/e/", b64(project.event()).encode(), {"Content-Type": "text/plain"}),
            ("/capture/", packed(text.encode()), {"Content-Encoding": "gzip"}), ("/track/", packed(text.encode()), {}),
            ("/i/v0/e/", b"\xef\xbb\xbf" + text.encode(), JSON)]
    for n, (path, body, headers) in enumerate(ways):
        answer = door.post(path, body, headers)
        assert answer.status == 200, (n, answer.body)
    for path in ("/e/?data=" + quote(text), "/e/?ip=1&data=" + quote(b64(project.event())) + "&compression=base64"):
        assert door.server.get(path).status == 200
    assert len(project.rows()) == len(ways) + 2
    for path, body in (("/e/?compression=lz64", b"data=NobwRA"), ("/e/", b"data=NobwRA&compression=lz64")):
        answer = door.post(path, body, FORM)
        assert 400 <= answer.status < 500 and b"lz64" in answer.body, answer.body
    assert len(project.rows()) == len(ways) + 2


# ---- clocks ----

def test_c07_transit_is_no_skew(project):
    """Proves: a batch that was long on its way does not move its events: the device's order stays, and all three times are kept."""
    now = time.time()
    late = project.batch([{"event": "first", "distinct_id": "d", "timestamp": rfc3339(now - 33)}], sent_at=rfc3339(now - 32))
    soon = project.batch([{"event": "second", "distinct_id": "d", "timestamp": rfc3339(now - 23)}], sent_at=rfc3339(now - 22))
    assert (late.status, soon.status) == (200, 200)
    rows = {row["event"]: row for row in project.rows()}
    for name, ago in (("first", 33), ("second", 23)):
        row = rows[name]
        assert abs(seconds_of(row["timestamp"]) - (now - ago)) < 0.002 and row["timestamp"] == row["timestamp_sent"]
        assert abs(seconds_of(row["sent_at"]) - (now - ago + 1)) < 0.002
        assert abs(seconds_of(row["received_at"]) - now) < 30 and row["time_note"] == ""
    assert rows["first"]["timestamp"] < rows["second"]["timestamp"]


def test_c08_devices_in_the_future(project):
    """Proves: a clock that sent_at shows to be an hour fast is corrected by that hour; an event that is truly of the future is kept as
    sent, with a note; the time of receipt is there in each case."""
    now = time.time()
    hour = now + 3600
    for name, sent_at in (("skew", hour), ("alone", None), ("future", now)):
        more = {"sent_at": rfc3339(sent_at)} if sent_at else {}
        assert project.batch([{"event": name, "distinct_id": "d", "timestamp": rfc3339(hour)}], **more).status == 200
    rows = {row["event"]: row for row in project.rows()}
    assert abs(seconds_of(rows["skew"]["timestamp"]) - now) < 20 and rows["skew"]["time_note"] == "skew_corrected"
    for name in ("alone", "future"):
        assert abs(seconds_of(rows[name]["timestamp"]) - hour) < 0.002 and rows[name]["time_note"] == "future"
    for row in rows.values():
        assert abs(seconds_of(row["timestamp_sent"]) - hour) < 0.002 and abs(seconds_of(row["received_at"]) - now) < 30


@pytest.mark.parametrize("days, note", [(3, "skew_corrected"), (-3, "skew_corrected"), (399, "skew_corrected"),
                                        (-401, "skew_ignored"), (401, "skew_ignored")])
def test_c10_wrong_by_days(project, days, note):
    """Proves: a correction is bounded: a clock wrong by more than 400 days is noted and left alone, a smaller error is taken off; times
    inside of properties are never touched."""
    now = time.time()
    device = rfc3339(now + days * 86400)
    nested = {"$snapshot_data": [{"timestamp": (now + days * 86400) * 1000}]}
    answer = project.door.post("/e/", {**project.event(timestamp=device, properties=nested), "sent_at": device})
    assert answer.status == 200
    row = project.row()
    want = now if note == "skew_corrected" else now + days * 86400
    assert abs(seconds_of(row["timestamp"]) - want) < 20, row
    assert row["properties"] == json.dumps(nested)
    if note != "skew_ignored" or days < 0:
        assert row["time_note"] == note, row
    else:
        assert row["time_note"] in ("skew_ignored", "future"), row


@pytest.mark.parametrize("query, body", [
    ("", "1970-01-01T00:00:00Z"), ("", "9999-12-31T23:59:59Z"), ("", "0001-01-01T00:00:00Z"), ("", "soon"), ("", ""), ("", None),
    ("", 5), ("", {"a": 1}), ("?_=1709656610891", None), ("?_=1709656610", None), ("?_=x", None), ("?sent_at=99999999999999999999", None)])
def test_c10_sent_at_is_not_believed(project, query, body):
    """Proves: no sent_at, however odd, in the body or the query, refuses an event or moves it beyond the bound."""
    now = rfc3339(time.time())
    answer = project.door.post("/e/" + query, {**project.event(timestamp=now), "sent_at": body})
    assert answer.status == 200, answer.body
    row = project.row()
    assert row["timestamp"] == row["timestamp_sent"] == now.replace("T", " ")[:-1] + "000", row
    assert row["time_note"] in ("", "skew_ignored"), row


# ---- web pages ----

def test_c11_preflights_echo_what_is_asked(door):
    """Proves: header names of libraries to come are allowed, within bounds and only where they are names; credentials never go with
    '*', and Vary names what the answer depends on."""
    names = "baggage,traceparent,x-anything-new,request-id,b3,x-highlight-request"
    for path in ("/e/", "/batch", "/i/v1/analytics/events", "/v1/batch", "/flags/", "/array/k/config", "/v1/projects/k/settings"):
        answer = door.server.request("OPTIONS", path, headers={
            "Origin": "https://shop.example", "Access-Control-Request-Headers": names})
        assert answer.status == 200
        told = {name.strip() for name in answer.headers["access-control-allow-headers"].split(",")}
        assert told == set(names.split(",")), told
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        assert answer.headers["access-control-allow-credentials"] == "true"
    head = b"OPTIONS /e/ HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\nConnection: close\r\n"
    plain = door.raw(head + b"Access-Control-Request-Headers: x-a\r\n\r\n").decode()
    vary = ",".join(re.findall(r"^Vary: (.*)\r$", plain, re.M))
    assert "Origin" in vary and "Access-Control-Request-Headers" in vary
    for odd in (b"bad name, x-ok", b"x-ok, a(b)", b"x-ok,,<script>"):
        got = door.raw(head + b"Access-Control-Request-Headers: " + odd + b"\r\n\r\n").decode()
        assert got.startswith("HTTP/1.1 200 ")
        assert re.findall(r"^Access-Control-Allow-Headers: (.*)\r$", got, re.M) in (["x-ok"], []), got
    long = door.raw(head + b"Access-Control-Request-Headers: " + b"x" * 20000 + b"\r\n\r\n")
    assert long.startswith(b"HTTP/1.1 200 ") and len(long) < 2000
    for origin in (b"", b"Origin: null\r\n", b"Origin: https://a.example\r\n"):
        got = door.raw(b"OPTIONS /e/ HTTP/1.1\r\nHost: localhost\r\n" + origin + b"Connection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 ") and b"Access-Control-Allow-Origin: *" not in got


# ---- what a 200 says ----

def test_c13_one_bad_event(project):
    """Proves: the good events of a batch are stored, the bad ones are named with index and reason and kept, on each dialect's route; the
    native route stores nothing and names the first."""
    good = {"event": "ok", "distinct_id": "d"}
    answer = project.batch([good, {"event": "x"}, good, {"event": "", "distinct_id": "a"}, good])
    assert answer.status == 200
    assert answer.json == {"status": "Ok", "accepted": 3, "duplicates": 0, "rejected": 2, "errors": [
        {"index": 1, "reason": "distinct_id is missing"}, {"index": 3, "reason": answer.json["errors"][1]["reason"]}]}
    assert "event" in answer.json["errors"][1]["reason"] or "name" in answer.json["errors"][1]["reason"]
    call = {"type": "track", "event": "ok", "userId": "u"}
    answer = project.segment("/v1/batch", {"batch": [call, {"type": "track", "userId": "u"}, 7, call]})
    assert answer.status == 200 and answer.json["accepted"] == 2 and answer.json["success"] is True
    assert [e["index"] for e in answer.json["errors"]] == [1, 2]
    answer = project.native([{"event": "ok"}, {"event": ""}, {"event": "ok"}])
    assert answer.status == 400 and answer.json["error"] == "invalid_event" and answer.json["index"] == 1
    assert len(project.rows()) == 5
    kept = [(r["door"], r["index"], json.loads(r["text"])) for r in project.rejected()]
    assert kept == [("posthog", 1, {"event": "x"}), ("posthog", 3, {"event": "", "distinct_id": "a"}),
                    ("segment", 1, {"type": "track", "userId": "u"}), ("segment", 2, 7)]
    assert project.delivery()["rejected"] == 4


def test_c14_200_is_true(project):
    """Proves: what can be checked is checked before the 200: its counts are exact, and each accepted event arrives."""
    known = str(uuid.uuid4())
    events = [{"event": "nested", "properties": {"distinct_id": "n"}}, {"event": "top", "distinct_id": "t"},
              {"event": "long", "distinct_id": "x" * 400}, {"event": "bad uuid", "distinct_id": "d", "uuid": "not-a-uuid"},
              {"event": "bad time", "distinct_id": "d", "timestamp": "yesterday"}, {"event": "first", "distinct_id": "d", "uuid": known},
              {"event": "again", "distinct_id": "d", "uuid": known.upper()}, {"distinct_id": "d"}]
    bodies = [{"api_key": project.token, "batch": events}, {"token": project.token, "batch": events}]
    answers = [project.door.post("/batch/", body).json for body in bodies]
    counts = [(a["accepted"], a["duplicates"], a["rejected"]) for a in answers]
    assert counts == [(5, 1, 2), (4, 2, 2)], answers
    assert [e["index"] for e in answers[0]["errors"]] == [3, 7]
    rows = project.rows()
    assert sorted(row["event"] for row in rows) == sorted(["nested", "top", "long", "bad time"] * 2 + ["first"])
    by = {row["event"]: row for row in rows}
    assert by["nested"]["distinct_id"] == "n" and by["long"]["distinct_id"] == "x" * 200
    assert by["bad time"]["time_note"] == "unreadable" and by["first"]["uuid"] == known


def test_c16_first_payload_wins(project):
    """Proves: (project, uuid) is the identity before anything is queued: other times, names and properties under it change nothing and
    are told as duplicates, during delivery and after; another project has its own."""
    other = project.door.project()
    known = str(uuid.uuid4())
    now = time.time()
    first_one = {"event": "first", "distinct_id": "a", "uuid": known, "timestamp": rfc3339(now), "properties": {"n": 1}}
    assert project.batch([first_one], sent_at=rfc3339(now)).json == {"status": "Ok"}
    repeats = [{**first_one, "timestamp": rfc3339(now + 5)}, {**first_one, "properties": {"n": 2}},
               {**first_one, "event": "other", "distinct_id": "b"}]
    for _ in range(2):
        for repeat in repeats:
            answer = project.batch([repeat], sent_at=rfc3339(now + 5))
            assert answer.json == {"status": "Ok", "accepted": 0, "duplicates": 1, "rejected": 0}
        row = project.row()
        assert (row["event"], row["distinct_id"], row["properties"]) == ("first", "a", '{"n": 1}')
    assert other.batch([{**first_one, "properties": {"n": 3}}]).json == {"status": "Ok"}
    assert other.row()["properties"] == '{"n": 3}'
    assert sum(row["uuid"] == known for row in project.door.far.rows) == 2


# ---- deliveries ----

def test_c17_unknown_table_is_waited_for(make_server):
    """Proves: without its table nothing is skipped: the queue holds, the status names the cause, and all arrive once it is there."""
    with FakeClickHouse(tables=False) as far:
        door = delivering(make_server, far)
        project = door.project()
        assert project.native([{"event": "e", "message_id": f"m{n}"} for n in range(200)]).status == 200
        wait(lambda: project.delivery().get("error"), "an error")
        time.sleep(1)
        d = project.delivery()
        assert d["pending"] == 200 and not far.rows and "last_success" not in d
        far.tables = True
        assert len(project.rows()) == 200
        far.faults = [first(3, Error(60, "Table tallyman.events_v2 does not exist"))]
        assert project.native([{"event": "late"}]).status == 200
        wait(lambda: "unknown table" in door.status()["sink"]["error"], "the reason")
        assert project.delivery()["pending"] == 1
        assert len(project.rows()) == 201


def test_c19_a_refused_event_stops_nobody_else(make_server):
    """Proves: an event that ClickHouse refuses stays and is told of in its project's status, without the value; other projects go on."""
    with FakeClickHouse() as far:
        door = delivering(make_server, far)
        bad, good = door.project(), door.project()
        far.faults = [lambda i: Error(27, "Cannot parse abc-secret") if b"poison" in i.body else None]
        assert bad.native([{"event": "poison"}]).status == 200
        for n in range(10):
            assert good.native([{"event": "fine", "properties": {"n": n}}] * 10).status == 200
        assert len(good.rows()) == 100
        wait(lambda: bad.delivery().get("error"), "an error")
        d = bad.delivery()
        assert d["pending"] == 1 and "abc-secret" not in json.dumps(d) + door.server.log
        assert "error" not in good.delivery()
        assert good.native([{"event": "later"}]).status == 200
        assert len(good.rows()) == 101
        far.faults = []
        assert len(bad.rows()) == 1


def test_c20_lost_acknowledgement(make_server):
    """Proves: a batch whose answer was lost is sent again with the same bytes, and after kill -9 with the same rows: any number of
    physical ones, one logical one each."""
    with FakeClickHouse() as far:
        door = delivering(make_server, far)
        project = door.project()
        far.faults = [script(DROP_AFTER_COMMIT, DROP_AFTER_COMMIT)]
        assert project.native([{"event": "e", "properties": {"n": n}} for n in range(100)]).status == 200
        wait(lambda: len(far.inserts) >= 2, "a second try")
        assert far.inserts[0].hash == far.inserts[1].hash
        far.faults = [first(1000, DROP_AFTER_COMMIT)]
        assert project.native([{"event": "e", "properties": {"n": n}} for n in range(100, 200)]).status == 200
        seen = len(far.inserts)
        wait(lambda: len(far.inserts) > seen, "another try")
        door.server.kill()
        far.faults = []
        door.server.start()
        rows = project.rows()
        assert sorted(json.loads(row["properties"])["n"] for row in rows) == list(range(200))
        assert len(far.rows) > 200  # it did happen twice
        by_uuid = {}
        for row in far.rows:
            assert by_uuid.setdefault(row["uuid"], row) == row, "a repeated row differs"


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nxx", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nxx",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Len",
    b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"],
    ids=["surplus", "short", "two-answers", "cut-head", "no-http", "two-lengths"])
def test_c22_answers_out_of_step(make_server, answer):
    """Proves: an answer whose length does not fit never becomes that of another insert: each event ends as one logical row."""
    with FakeClickHouse() as far:
        door = delivering(make_server, far)
        project = door.project()
        far.faults = [script(Answer(answer, committed=False, keep=answer.endswith(b"xx") and b": 4" not in answer))]
        for n in range(5):
            assert project.native([{"event": "e", "properties": {"n": n}}]).status == 200
            time.sleep(0.05)
        rows = project.rows()
        assert sorted(json.loads(row["properties"])["n"] for row in rows) == list(range(5)), far.inserts


@pytest.mark.parametrize("surplus", [2, -2])
def test_c22_requests_out_of_step(project, surplus):
    """Proves: on the way in, bytes beyond Content-Length are the next request and answered as one, 400; a body that is short is waited
    for and never used."""
    body = json.dumps(project.event("whole")).encode()
    head = f"POST /e/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) - surplus}\r\n\r\n".encode()
    with socket.create_connection((project.door.server.host, project.door.server.port), 20) as sock:
        sock.sendall(head + body)
        if surplus > 0:
            sock.sendall(b"\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        got = drain(sock)
    answers = re.findall(rb"HTTP/1.1 (\d+) ", got)
    assert answers in ([b"400", b"400"], [b"400"]) if surplus > 0 else answers in ([], [b"400"]), got
    assert project.empty()


@pytest.fixture(scope="module")
def engine():
    """A server with the embedded engine."""
    import pathlib
    import shutil
    import tempfile

    from conftest import ROOT, Server
    path = pathlib.Path(tempfile.mkdtemp(prefix="t-", dir=ROOT / "build" / "tmp"))
    server = Server(path / "data", env=environment())
    try:
        server.start()
        yield Door(server)
        assert_sound(server)
    finally:
        if server.process is not None:
            server.kill()
        shutil.rmtree(path, ignore_errors=True)


def ask(project, sql):
    """Rows of a query when all is delivered."""
    wait(lambda: project.delivery()["pending"] == 0, "delivery")
    answer = project.door.call("POST", project.api + "/query", {"sql": sql})
    assert answer.status == 200, answer.body
    assert answer.json["delivery"]["pending"] == 0
    return answer.json["data"]


DATES = {"1960-01-01T00:00:00Z": "1960-01-01 00:00:00.000000", "1969-12-31T23:59:59Z": "1969-12-31 23:59:59.000000",
         "1900-01-01T00:00:00Z": "1900-01-01 00:00:00.000000", "1899-12-31T23:59:59Z": None,
         "2106-02-07T06:28:16Z": "2106-02-07 06:28:16.000000", "2200-01-01T00:00:00Z": "2200-01-01 00:00:00.000000",
         "2283-12-31T00:00:00Z": "2283-12-31 00:00:00.000000", "2299-12-31T23:59:59.999999Z": "2299-12-31 23:59:59.999999",
         "2300-01-01T00:00:00Z": None, "2999-12-31T00:00:00Z": None, "9999-12-31T00:00:00Z": None, "0001-01-01T00:00:00Z": None,
         "1969-07-20T20:17:40.123456Z": "1969-07-20 20:17:40.123456"}


def test_c23_dates_out_of_range(engine):
    """Proves: dates of 1900 to 2299 arrive in ClickHouse to the microsecond; others give way to the time of receipt, with a note, and the
    event's own text keeps them: nothing wraps, clamps, or turns into 1970."""
    project = engine.project()
    before = time.time()
    assert project.batch([{"event": date, "distinct_id": "d", "timestamp": date, "properties": {"date": date}} for date in DATES]).json == \
        {"status": "Ok"}
    rows = ask(project, "select event, toString(timestamp) as t, toString(received_at) as r, time_note as note from events")
    assert {row["event"] for row in rows} == set(DATES)
    for row in rows:
        want = DATES[row["event"]]
        if want is None:
            assert row["note"] == "out_of_range" and before - 1 < seconds_of(row["t"]) < time.time() + 1, row
            assert row["t"].startswith(row["r"]), row
        else:
            assert row["t"] == want and row["note"] in ("", "future"), row


def test_c25_few_parts(engine):
    """Proves: events of 120 months in one batch are one insert into one partition (the month of receipt), and a trickle of single events
    makes few parts."""
    project = engine.project()
    months = [f"{2016 + n // 12}-{n % 12 + 1:02d}-15T12:00:00Z" for n in range(120)]
    batches = engine.status()["sink"]["batches"]
    assert project.batch([{"event": "m", "distinct_id": "d", "timestamp": month} for month in months]).json == {"status": "Ok"}
    got = ask(project, "select count() as n, uniqExact(toYYYYMM(timestamp)) as m, uniqExact(toYYYYMM(received_at)) as r from events")
    assert got == [{"n": 120, "m": 120, "r": 1}]
    assert engine.status()["sink"]["batches"] == batches + 1
    started = time.monotonic()
    for n in range(40):
        assert project.native([{"event": "single"}]).status == 200
        time.sleep(0.02)
    assert ask(project, "select count() as n from events where event = 'single'") == [{"n": 40}]
    assert engine.status()["sink"]["batches"] - batches - 1 <= (time.monotonic() - started) / 0.15 + 3


ODD = ['null', '"007"', '-0', '"-0"', '-0.0', '9223372036854775808', '"9223372036854775808"', '-9223372036854775809',
       '18446744073709551616', '1e400', '1E-400', '0.1000000000000000055511151231257827', '123456789012345678901234567890', '-3', '[]', '{}', 'true',
       '"\\u0000"', '"\\ud800"']
MENDED = {'"\\ud800"': '"\ufffd"', **{text: f'"{text}"' for text in (
    '1e400', '-9223372036854775809', '18446744073709551616', '123456789012345678901234567890')}}


def test_c26_values_keep_their_text(engine):
    """Proves: nothing is inferred: nulls, leading zeros, minus zero, large numbers arrive byte for byte and can be asked for, and those
    that ClickHouse cannot read as text; an unknown member is no error, and null in a column is the empty text."""
    project = engine.project()
    for n, text in enumerate(ODD):
        body = '{"api_key":"%s","event":"e%d","distinct_id":"d","unknown":-3,"properties":{"a":%s,"b":1}}' % (project.token, n, text)
        answer = engine.post("/e/", body.encode())
        assert answer.status == 200, (text, answer.body)
    rows = {row["event"]: row for row in ask(
        project, "select event, properties, JSONExtractRaw(properties, 'b') as b from events")}
    for n, text in enumerate(ODD):
        # What ClickHouse's JSON functions cannot read is mended: they would take the whole event for invalid.
        assert rows[f"e{n}"]["properties"] == '{"a":%s,"b":1}' % MENDED.get(text, text)
        assert rows[f"e{n}"]["b"] == "1", text
    for name in ("properties", "timestamp", "uuid", "$set"):
        body = {**project.event("nulls"), name: None}
        answer = engine.post("/e/", body)
        assert answer.status == 200, (name, answer.body)
    assert ask(project, "select count() as n from events where event = 'nulls' and properties != ''")[0]["n"] == 4


# ---- the queue on disk ----

def copy(data, where):
    """The files of a server that has gone; its locks and sockets stay behind."""
    import shutil
    shutil.copytree(data, where, ignore=shutil.ignore_patterns("*.sock", "lock"))


def test_c28_cut_files_start(make_server, workdir):
    """Proves: after kill -9, and with the write-ahead log cut anywhere, the server starts with a prefix of what was accepted, says what
    the check says, stops within seconds when told so during the start, and does not take longer for a large backlog."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Hang(600)]
        door = delivering(make_server, far)
        project = door.project()
        for n in range(30):
            assert project.native([{"event": "e", "properties": {"n": n}}]).status == 200
        door.server.kill()
        assert verify(door.server.data)["ok"]
        size = os.path.getsize(door.server.data / "tallyman.sqlite-wal")
        rng = random.Random(SEED)
        print("SEED", SEED)
        for n, cut in enumerate(sorted({0, 17, size - 1, size - 4096, *(rng.randrange(size) for _ in range(3))})):
            copy(door.server.data, workdir / f"cut{n}")
            os.truncate(workdir / f"cut{n}" / "tallyman.sqlite-wal", cut)
            report = verify(workdir / f"cut{n}")
            server = make_server("--clickhouse-url", far.url, name=f"cut{n}", start=False)
            if not report["ok"]:
                continue  # told by the check; test_c29 compares it with the start
            server.start()
            db = sqlite3.connect(f"file:{server.data}/tallyman.sqlite?mode=ro", uri=True)
            ids = [row[0] for row in db.execute("SELECT id FROM events ORDER BY id")]
            db.close()
            assert ids == list(range(1, len(ids) + 1)) and len(ids) <= 30
            started = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started < 5
        # Told to stop while it starts.
        for delay in (0, 0.01, 0.03):
            server = make_server("--clickhouse-url", far.url, name="data", start=False)
            server.start(wait=False)
            time.sleep(delay)
            server.process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            assert server.process.wait(10) in (0, -signal.SIGTERM)
            assert time.monotonic() - started < 5
            server.process = None


def test_c28_a_backlog_is_not_read_at_start(make_server):
    """Proves: a start with 50,000 queued events is as quick as one with none, and needs no memory for them."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Error(241)]
        door = delivering(make_server, far)
        project = door.project()
        event = '{"event":"e","distinct_id":"d","properties":{"fill":"%s"}}' % ("x" * 200)
        body = ('{"api_key":"%s","batch":[%s]}' % (project.token, ",".join([event] * 25000))).encode()
        for _ in range(2):
            assert door.post("/batch/", body).status == 200
        door.server.kill()
        started = time.monotonic()
        door.server.start()
        assert time.monotonic() - started < (10 if SANITIZED else 3)
        assert project.delivery()["pending"] == 50000
        if not SANITIZED:
            status = open(f"/proc/{door.server.process.pid}/status", encoding="ascii").read()
            assert int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) < 150 << 10, status


def test_c29_check_and_start_agree(make_server, workdir):
    """Proves: what the check calls sound starts and serves, and damage that stops the start is found by the check, which changes no byte
    and works beside a running server."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Hang(600)]
        door = delivering(make_server, far)
        project = door.project()
        assert project.native([{"event": "e", "properties": {"n": n, "fill": "y" * 50}} for n in range(400)]).status == 200
        assert verify(door.server.data)["queue"]["ok"]
        assert door.server.stop() == 0
        name = "tallyman.sqlite"
        db = sqlite3.connect(door.server.data / name)
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0  # a page that is in the log hides the file's
        db.close()
        size = os.path.getsize(door.server.data / name)
        rng = random.Random(SEED)
        print("SEED", SEED)
        found = 0
        for n, at in enumerate([20, 100, *(rng.randrange(size) for _ in range(8))]):
            data = workdir / f"flip{n}"
            copy(door.server.data, data)
            with open(data / name, "r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 0x55]))
            before = hashlib.sha256((data / name).read_bytes()).hexdigest()
            result = tallyman("verify", "--json", "--data", str(data))
            assert hashlib.sha256((data / name).read_bytes()).hexdigest() == before
            assert result.returncode in (0, 3), result.stderr
            server = make_server("--clickhouse-url", far.url, name=f"flip{n}", start=False)
            if result.returncode == 3:
                found += 1
                assert not json.loads(result.stdout)["queue"]["ok"]
                continue
            server.start()
            assert server.get("/readyz").status == 200
            assert server.stop() == 0
        assert found >= 2


def test_c31_a_damaged_event_does_not_silence_the_rest(make_server):
    """Proves: when the text of one queued event is no JSON any more, those before and behind it are delivered, so is what is left of it,
    in raw, and that is counted and logged; the check names it beforehand."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Error(241)]
        door = delivering(make_server, far)
        project = door.project()
        assert project.native([{"event": "e", "properties": {"n": n}} for n in range(105)]).status == 200
        assert door.server.stop() == 0
        db = sqlite3.connect(door.server.data / "tallyman.sqlite")
        db.execute("UPDATE events SET text = x'7b22', envelope = x'ff00' WHERE id = 50")
        db.commit()
        db.close()
        assert not verify(door.server.data)["queue"]["ok"]
        far.faults = []
        door.server.start()
        rows = project.rows()
        assert len(rows) == 105
        for n, row in enumerate(rows):
            assert row["properties"] == ("{}" if n == 49 else '{"n": %d}' % n) and row["raw"] == ('{"' if n == 49 else ""), row
        assert door.server.metric("tallyman_sink_damaged_total") >= 1
        assert "event 50: its text in the queue is damaged" in door.server.log


def test_c32_a_bad_configuration_touches_nothing(make_server, workdir):
    """Proves: a start that fails for its configuration leaves every byte of the queue as it was; with the mistake gone all is delivered."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Error(241)]
        door = delivering(make_server, far)
        project = door.project()
        assert project.native([{"event": "e", "properties": {"n": n}} for n in range(50)]).status == 200
        beside = children(door.server.process.pid)
        door.server.kill()
        for pid in beside:  # the deliverer sees its parent's end and leaves
            wait_gone(pid)

        def state():
            return {p.name: (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest())
                    for p in sorted(door.server.data.rglob("*")) if p.is_file()}
        before = state()
        config = workdir / "config.json"
        for text in ('{"queue_events_max":10,"no_such_key":1}', '{"queue_events_max":"many"}', '{"clickhouse_url":"ftp://x"}',
                     '{"engine":"maybe"}', '{"capture_event_bytes_max":1}', '{'):
            config.write_text(text)
            result = tallyman("serve", "--data", str(door.server.data), "--config", str(config), "--listen", f"127.0.0.1:{door.server.port}")
            assert result.returncode == 2, (text, result.stderr)
            assert state() == before, text
        far.faults = []
        door.server.start()
        assert len(project.rows()) == 50


def test_c34_a_dead_destination_slows_nobody(make_server):
    """Proves: while the destination accepts connections and never answers, intake and status stay quick, and the stop is in time."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Hang(600)]
        door = delivering(make_server, far)
        project = door.project()
        took = []
        for n in range(200):
            started = time.monotonic()
            assert project.native([{"event": "e", "properties": {"n": n}}]).status == 200
            took.append(time.monotonic() - started)
        took.sort()
        assert took[190] < (1.0 if SANITIZED else 0.25), took[-10:]
        started = time.monotonic()
        assert project.delivery()["pending"] == 200
        assert time.monotonic() - started < 1
        started = time.monotonic()
        assert door.server.stop() == 0
        assert time.monotonic() - started < 5


# ---- bombs, encodings, sizes ----

def memory_kib(server):
    return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{server.process.pid}/status", encoding="ascii").read()).group(1))


def test_c41_gzip_bombs(make_server):
    """Proves: a bomb is 413 within bounded memory, on every route; where the path or the key in the head is wrong it is not unpacked at
    all; gzip in gzip is refused by name."""
    with FakeClickHouse() as far:
        door = delivering(make_server, far)
        project = door.project()
        bomb = packed(b'{"x":"' + b"0" * (128 << 20) + b'"}')
        assert len(bomb) < 140_000
        headers = {"Content-Encoding": "gzip"}
        for path in ("/nope", "/s/", "/v1/b/c"):
            assert door.post(path, bomb, headers).status in (401, 404)
        v1 = {"PostHog-Sdk-Info": "x/1", "PostHog-Attempt": "1", "PostHog-Request-Id": str(uuid.uuid4()),
              "PostHog-Request-Timestamp": rfc3339(time.time())}
        for path, auth in (("/v1/batch", basic("tmc_wrong")), ("/i/v1/analytics/events", "Bearer tmc_wrong"),
                           (project.api + "/events", "Bearer tms_wrong")):
            answer = door.post(path, bomb, {**headers, **v1, "Authorization": auth})
            assert answer.status == 401, (path, answer.body)
        if not SANITIZED:
            assert memory_kib(door.server) < 60 << 10
        for path in ("/e/", "/batch/", "/v1/batch", "/v1/track", "/i/v0/ai"):
            answer = door.post(path, bomb, headers)
            assert answer.status == 413 and b"bytes" in answer.body, (path, answer.status, answer.body)
        if not SANITIZED:
            assert memory_kib(door.server) < 160 << 10
        for twice in ("gzip, gzip", "gzip,gzip", "gzip, deflate", "deflate, gzip"):
            answer = door.post("/batch/", packed(bomb), {"Content-Encoding": twice})
            assert answer.status == 415 and b"more than one" in answer.body
        assert door.post("/batch/", packed(bomb), headers).status in (400, 413)
        assert project.empty()


def deflated(data, wrapped):
    packer = zlib.compressobj(6, zlib.DEFLATED, 15 if wrapped else -15)
    return packer.compress(data) + packer.flush()


def test_c43_encodings(project):
    """Proves: every coding that is supported is read, in any spelling, with one limit for all; the others are 415, which names them."""
    door = project.door
    plain = json.dumps(project.event()).encode()
    taken = [("gzip", packed(plain)), ("GZIP", packed(plain)), ("x-gzip", packed(plain)), ("deflate", deflated(plain, True)),
             ("deflate", deflated(plain, False)), ("identity", plain), ("", plain), ("gzip, identity", packed(plain)), ("gzip", plain)]
    stored = 0
    for coding, body in taken:
        answer = door.post("/e/", body, {"Content-Encoding": coding})
        if (coding, body) == ("gzip", plain):
            assert answer.status in (200, 400), answer.body  # said to be packed, and is not
        else:
            assert answer.status == 200, (coding, answer.body)
        stored += answer.status == 200
    assert len(project.rows()) == stored
    for coding in ("br", "zstd", "compress", "gzip, gzip", "gzip, br"):
        answer = door.post("/e/", packed(plain), {"Content-Encoding": coding})
        assert answer.status == 415 and b"gzip, deflate and identity" in answer.body, (coding, answer.status, answer.body)
    large = json.dumps({**project.event(), "writeKey": project.token, "userId": "u", "x": os.urandom(600_000).hex()}).encode()
    for path in ("/e/", "/v1/track"):
        for coding, body in (("gzip", packed(large)), ("deflate", deflated(large, True)), ("deflate", deflated(large, False))):
            answer = door.post(path, body, {"Content-Encoding": coding})
            assert answer.status == 413 and b"1048576" in answer.body, (path, coding, answer.body)
    assert len(project.rows()) == stored


def test_c47_sizes(project):
    """Proves: the limits that other servers had are none here; beyond ours is 413 that names the limit, or, for one event of a batch,
    a rejection with its index that costs the others nothing."""
    door = project.door
    big = {"event": "33 KB", "distinct_id": "d", "properties": {"fill": "x" * 33_000}}
    assert project.batch([big, {"event": "small", "distinct_id": "d"}]).json == {"status": "Ok"}
    call = {"type": "track", "event": "c", "userId": "u", "properties": {"fill": "y" * 200}}
    assert len(json.dumps({"batch": [call] * 2501})) > 535_982
    assert project.segment("/v1/batch", {"batch": [call] * 2501}).json == {"success": True}
    huge = {"event": "huge", "distinct_id": "d", "properties": {"fill": "x" * (1 << 20)}}
    answer = project.batch([{"event": "before", "distinct_id": "d"}, huge, {"event": "behind", "distinct_id": "d"}])
    assert answer.status == 200 and answer.json["accepted"] == 2
    assert answer.json["errors"][0]["index"] == 1 and "1048576" in answer.json["errors"][0]["reason"]
    for path, value in (("/e/", project.event(properties=huge["properties"])), (project.api + "/events", {"events": [huge]}),
                        ("/v1/track", {**call, "writeKey": project.token, "properties": huge["properties"]})):
        answer = door.post(path, value, unix=path.startswith("/api"))
        assert answer.status == 413 and b"1048576" in answer.body, (path, answer.body)
    assert len(project.rows()) == 2 + 2501 + 2


def test_c49_one_row_an_event(engine):
    """Proves: events that are equal but for their uuid stay two rows, through merges; the table's key has the uuid."""
    project = engine.project()
    same = {"event": "same", "distinct_id": "d", "timestamp": "2026-01-01T00:00:00Z", "properties": {"a": 1}}
    for _ in range(3):
        assert project.batch([{**same, "uuid": str(uuid.uuid4())}, {**same, "uuid": str(uuid.uuid4())}]).json == {"status": "Ok"}
        wait(lambda: project.delivery()["pending"] == 0, "delivery")
    far = Far(engine.server)
    far.ask("OPTIMIZE TABLE tallyman.events_v2 FINAL")
    assert ask(project, "select count() as n, uniqExact(uuid) as u from events") == [{"n": 6, "u": 6}]
    key = far.ask("SELECT sorting_key FROM system.tables WHERE database = 'tallyman' AND name = 'events_v2'")
    assert key.strip() == "project, uuid"


def test_c50_no_silent_filters(project):
    """Proves: no client is filtered by what it calls itself; each 200 is one row."""
    names = [None, "", "python-requests/2", "Googlebot/2.1 (+http://www.google.com/bot.html)", "curl/8", "HeadlessChrome", "a" * 4000]
    for name in names:
        body = json.dumps(project.event(properties={"$user_agent": name, "$raw_user_agent": "bot"})).encode()
        head = f"POST /e/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        head += "" if name is None else f"User-Agent: {name}\r\n"
        got = project.door.raw(head.encode() + b"\r\n" + body)
        assert got.startswith(b"HTTP/1.1 200 ") and got.endswith(b'{"status":"Ok"}'), got
    assert len(project.rows()) == len(names)


def test_c52_truncated_requests(project):
    """Proves: a body that ends early is never used; what can never be taken gets a final status."""
    door = project.door
    event = json.dumps(project.event()).encode()
    host = b"Host: localhost\r\n"
    body = event + b" " * (162_000 - len(event))
    requests = [b"POST /batch/ HTTP/1.1\r\n" + host + b"Content-Length: 200000\r\n\r\n" + body,
                b"POST /e/ HTTP/1.1\r\n" + host + b"Content-Length: %d\r\n\r\n" % (len(event) + 1) + event,
                b"POST /e/ HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(event) + event + b"\r\n",
                b"POST /e/ HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(event) + event + b"\r\n0\r\n",
                b"POST /v1/track HTTP/1.1\r\n" + host + b"Content-Length: 500\r\n\r\n" + event]
    for request in requests:
        with socket.create_connection((door.server.host, door.server.port), 20) as sock:
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
            got = drain(sock)
        assert got == b"" or got.startswith(b"HTTP/1.1 400 "), got[:300]
    answer = door.server.get("/e/?data=" + quote(json.dumps(project.event(properties={"x": "y" * 65536}))))
    assert answer.status == 414
    assert project.empty()


@pytest.mark.parametrize("query", ["a=%b", "a=%", "a=%zz", "a=%00", "data=%ff%fe", "data=%", "data=%zz", "data=%00", "data=",
                                   "data=e30%3D", "data=%7b"])
def test_c53_broken_queries(project, query):
    """Proves: a broken query string is 400, with a word on it, and nothing is stored; never a 200 for what nobody can read later."""
    for method in ("GET", "POST"):
        answer = project.door.server.request(method, "/e/?" + query)
        assert answer.status in (400, 401) and len(answer.body) > 10, (answer.status, answer.body)
        assert answer.headers["content-type"].startswith("text/plain")
    assert project.empty()


def test_c53_bad_events_are_kept_as_they_came(project):
    """Proves: rejected events are listed with reason, time, place and their exact bytes, in base64 where they are no text."""
    odd = b'{"event":"\xff\xfe","x":"\\u0000"}'
    body = b'{"api_key":"%s","batch":[{"event":"ok","distinct_id":"d"},%s,null]}' % (project.token.encode(), odd)
    answer = project.door.post("/batch/", body)
    assert answer.status in (200, 400), answer.body
    if answer.status == 200:
        kept = project.rejected()
        assert [k["index"] for k in kept] == [1, 2] and all(k["reason"] and k["received_at"].endswith("Z") for k in kept)
        import base64
        assert base64.b64decode(kept[0]["text_base64"]) == odd and kept[1]["text"] == "null"
        assert int(kept[0]["id"]) < int(kept[1]["id"])


def test_c55_memory_limit(make_server):
    """Proves: code 241, told as plain text, every third time and for what is large, is passed by waiting and by smaller batches: each
    event is one row."""
    with FakeClickHouse() as far:
        turn = [0]

        def moody(insert):
            turn[0] += 1
            large = len(insert.body) > 300_000 or (turn[0] % 3 == 0 and len(insert.rows) > 1)
            return Error(241, "Memory limit (total) exceeded") if large else None
        far.faults = [moody]
        door = delivering(make_server, far)
        project = door.project()
        for n in range(3):
            events = [{"event": "e", "properties": {"n": n * 400 + i, "fill": "x" * 300}} for i in range(400)]
            assert project.native(events).status == 200
        rows = project.rows()
        assert sorted(json.loads(row["properties"])["n"] for row in rows) == list(range(1200))
        assert any(not insert.committed for insert in far.inserts)
