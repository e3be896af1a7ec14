"""The history door, as its contract says (spec/history.md sections 2 to 10), over real sockets."""
import concurrent.futures
import hashlib
import json
import re
import signal
import threading
import time
import urllib.parse

import pytest
from conftest import batch, event, replay_all, tallyman, verify

UUID7 = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


def canonical(value):
    """RFC 8785 for the values these tests use (no floats)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha(data):
    return hashlib.sha256(data).hexdigest()


# ---- receipts, formulas, chain ----

def test_receipt_is_closed_and_digest_is_the_known_answer(server):
    answer = server.append({"v": 1, "batch_id": "batch", "source": "source",
                            "events": [{"stream": "stream", "record_key": "key", "kind": "upserted",
                                        "payload": 1}]})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    receipt = answer.json
    assert set(receipt) == {"status", "batch_digest", "events", "first_event_id", "last_event_id"}
    assert receipt["status"] == "committed"
    assert receipt["batch_digest"] == "f2f766e2c9baa046927f9af5d77685f3e54be212175f40cbff12342d8e272ec4"
    assert receipt["events"] == 1
    assert receipt["first_event_id"] == receipt["last_event_id"]
    assert UUID7.match(receipt["first_event_id"])


def test_content_hash_is_the_known_answer(server):
    server.append(b'{"batch_id":"b","source":"stripe","events":[{"stream":"customers","record_key":"cus_1",'
                  b'"kind":"upserted","payload":{"id":"cus_1","email":"kim@example.com","balance":12.50}}]}')
    page = server.get("/v1/events")
    assert page.json["events"][0]["content_hash"] == \
        "1f3bd02b1d38c4cb9fe4002da9c9f5e43ca05930b54b7e872b4e55dbdfb6baf6"
    assert b'"payload":{"balance":12.5,"email":"kim@example.com","id":"cus_1"}' in page.body


def test_every_hash_and_the_chain_can_be_recomputed(server):
    server.append(batch("one", event(1), event(2, occurred_at="2024-02-29T23:59:59.5Z")))
    server.append(batch("two", event(3, stream="other")))
    page = server.get("/v1/events").json
    head = hashlib.sha256(b"groundhog/genesis/v1").digest()
    for e in page["events"]:
        assert e["content_hash"] == sha(canonical(e["payload"]))
        envelope = {k: e[k] for k in ("batch_id", "content_hash", "event_id", "kind", "observed_at",
                                      "occurred_at", "record_key", "source", "stream") if k in e}
        assert e["event_hash"] == sha(canonical(envelope))
        head = hashlib.sha256(head + bytes.fromhex(e["event_hash"])).digest()
    assert page["snapshot"]["chain_head"] == head.hex()
    assert page["snapshot"]["frontier_event_count"] == 3
    assert verify(server.data)["chain_head"] == head.hex()


def test_batch_digest_excludes_batch_id_and_precondition(server):
    a = server.append(batch("a", event(1))).json
    b = server.append(batch("b", event(1))).json
    frontier = server.get("/v1/events").json["snapshot_through_event_id"]
    c = server.append(batch("c", event(1),
                            stream_precondition={"stream": "s", "expected_frontier": frontier})).json
    assert a["batch_digest"] == b["batch_digest"] == c["batch_digest"]
    events = [{"content_hash": sha(canonical({"n": 1})), "kind": "upserted", "record_key": "k1", "stream": "s"}]
    assert a["batch_digest"] == sha(canonical({"events": events, "source": "test", "v": 1}))


def test_committed_event_is_closed_and_ids_rise(server):
    for i in range(20):
        server.append(batch(f"b{i}", event(i), event(i + 1)))
    events = replay_all(server)
    assert len(events) == 40
    for e in events:
        assert set(e) == {"event_id", "source", "stream", "record_key", "kind", "observed_at", "payload",
                          "content_hash", "batch_id", "event_hash"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", e["observed_at"])
    ids = [e["event_id"] for e in events]
    assert ids == sorted(set(ids))
    assert [e["observed_at"] for e in events] == sorted(e["observed_at"] for e in events)


def test_v_may_be_spelled_as_any_number_one(server):
    for i, v in enumerate(["1", "1.0", "1e0", "10e-1"]):
        body = '{"v":%s,"batch_id":"v%d","source":"s","events":[%s]}' % (v, i, json.dumps(event()))
        assert server.append(body).status == 200, v


# ---- idempotency ----

def test_L01_L04_L07_same_key_same_answer_other_content_conflict(server):
    first = server.append(batch("k", event(1), event(2))).json
    for _ in range(3):
        again = server.append(batch("k", event(1), event(2)))
        assert again.status == 200
        assert again.json == {**first, "status": "duplicate"}
    other = server.append(batch("k", event(1)))
    assert other.status == 409
    assert other.json["error"] == "batch_id_conflict"
    assert other.json["source"] == "test" and other.json["batch_id"] == "k" and other.json["events"] == 2
    assert other.json["batch_digest"] == first["batch_digest"]
    assert len(replay_all(server)) == 2


def test_L01_duplicate_wins_over_any_precondition(server):
    first = server.append(batch("k", event(1))).json
    for expected in (None, first["last_event_id"], "01900000-0000-7000-8000-000000000000"):
        answer = server.append(batch("k", event(1),
                                     stream_precondition={"stream": "s", "expected_frontier": expected}))
        assert answer.json == {**first, "status": "duplicate"}
    assert len(replay_all(server)) == 1


def test_L05_keys_survive_restart_and_loss_of_the_index(make_server):
    server = make_server("--generation-bytes", "64KiB")
    receipts = [server.append(batch(f"k{i}", event(i))).json for i in range(300)]
    for step in range(2):
        assert server.stop() == 0
        if step == 1:
            for path in (server.data / "index").iterdir():
                path.unlink()
        server.start()
        for i in (0, 1, 150, 299):
            assert server.append(batch(f"k{i}", event(i))).json == {**receipts[i], "status": "duplicate"}
            assert server.append(batch(f"k{i}", event(i + 1))).status == 409
    assert len(replay_all(server)) == 300


def test_L52_keys_of_every_length_and_equal_by_canonical_form(server):
    assert server.append(batch("", event())).json["error"] == "invalid_batch"
    for key in ("x", "x" * 256, "ü" * 128, " spaces in it ", "a\u0000b", "a\u0000c"):
        assert server.append(batch(key, event())).json["status"] == "committed", key
        assert server.append(batch(key, event())).json["status"] == "duplicate", key
    assert server.append(batch("x" * 257, event())).json["error"] == "invalid_batch"
    assert server.append(batch("ü" * 129, event())).json["error"] == "invalid_batch"
    one = b'{"batch_id":"ws","source":"t","events":[{"stream":"s","record_key":"k","kind":"u","payload":{"a":1,"b":[1.0]}}]}'
    two = (b' { "events" : [ { "payload" : { "b" : [ 1 ] , "a" : 1e0 } , "kind" : "\\u0075" , "record_key":"k",'
           b'"stream":"s" } ] , "source":"t", "batch_id" : "\\u0077s" }\n')
    assert server.append(one).json["status"] == "committed"
    assert server.append(two).json["status"] == "duplicate"


def test_L52_fifty_threads_one_new_key(server):
    start = threading.Barrier(50)

    def send(_):
        start.wait()
        return server.append(batch("race", event(1), event(2))).json

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(send, range(50)))
    assert sorted(a["status"] for a in answers) == ["committed"] + ["duplicate"] * 49
    assert len({(a["first_event_id"], a["last_event_id"], a["batch_digest"]) for a in answers}) == 1
    assert len(replay_all(server)) == 2


# ---- preconditions ----

def test_precondition_null_and_frontier(server):
    pre = {"stream": "s", "expected_frontier": None}
    first = server.append(batch("a", event(1), stream_precondition=pre)).json
    assert first["status"] == "committed"
    stale = server.append(batch("b", event(2), stream_precondition=pre))
    assert stale.status == 409
    assert stale.json["error"] == "stream_frontier_conflict"
    assert {k: stale.json[k] for k in ("source", "stream", "expected_frontier", "actual_frontier")} == {
        "source": "test", "stream": "s", "expected_frontier": None, "actual_frontier": first["last_event_id"]}
    # The refused id is not reserved: other content may use it.
    again = server.append(batch("b", event(3), stream_precondition={
        "stream": "s", "expected_frontier": first["last_event_id"]}))
    assert again.json["status"] == "committed"


def test_precondition_on_a_stream_without_events_reports_null(server):
    answer = server.append(batch("a", event(1), stream_precondition={
        "stream": "s", "expected_frontier": "01900000-0000-7000-8000-000000000000"}))
    assert answer.status == 409
    assert answer.json["actual_frontier"] is None


def test_L20_expectation_is_of_the_stream_not_of_the_log(server):
    server.append(batch("a", event(1, stream="a")))
    b = server.append(batch("b", event(1, stream="b"))).json
    server.append(batch("a2", event(2, stream="a")))
    ok = server.append(batch("b2", event(2, stream="b"), stream_precondition={
        "stream": "b", "expected_frontier": b["last_event_id"]}))
    assert ok.json["status"] == "committed"


def test_L17_many_streams_of_equal_name_length_in_one_batch(server):
    events = [event(i, stream=f"st{i}") for i in range(10)] * 2
    assert server.append(batch("a", *events)).status == 200
    rows = server.get("/v1/streams").json["streams"]
    assert [(r["stream"], r["event_count"]) for r in rows] == [(f"st{i}", 2) for i in range(10)]


def test_L19_one_of_a_hundred_racers_wins(server):
    first = server.append(batch("seed", event(0))).json["last_event_id"]
    start = threading.Barrier(100)

    def send(i):
        start.wait()
        return server.append(batch(f"r{i}", event(i), stream_precondition={
            "stream": "s", "expected_frontier": first}))

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(send, range(100)))
    winners = [a.json for a in answers if a.status == 200]
    assert len(winners) == 1
    losers = [a.json for a in answers if a.status == 409]
    assert len(losers) == 99
    assert {x["actual_frontier"] for x in losers} == {winners[0]["last_event_id"]}


# ---- validation ----

GOOD = event()


def bad_event(**change):
    e = {**GOOD, **change}
    return {k: v for k, v in e.items() if v is not ...}


@pytest.mark.parametrize("body, code", [
    (b"", "invalid_request"),
    (b"{", "invalid_request"),
    (b"[]", "invalid_request"),
    (b"null", "invalid_request"),
    (b"\xef\xbb\xbf{}", "invalid_request"),                       # L41: a BOM is refused
    (b'{"a":1}\x00{"evil":2}', "invalid_request"),                # L40
    (b'{"batch_id":"a\xff","source":"s","events":[]}', "invalid_request"),  # L37
    (b'{"batch_id":"a","batch_id":"b","source":"s","events":[]}', "invalid_request"),  # L56
    (b'{"batch_id":"a","\\u0062atch_id":"b","source":"s","events":[]}', "invalid_request"),
    ({"source": "s", "events": [GOOD]}, "invalid_request"),
    ({"batch_id": "b", "events": [GOOD]}, "invalid_request"),
    ({"batch_id": "b", "source": "s"}, "invalid_request"),
    ({"batch_id": 1, "source": "s", "events": [GOOD]}, "invalid_request"),
    ({"batch_id": "b", "source": None, "events": [GOOD]}, "invalid_request"),
    ({"batch_id": "b", "source": "s", "events": {}}, "invalid_request"),
    ({"batch_id": "b", "source": "s", "events": [GOOD], "extra": 1}, "invalid_request"),
    ({"batch_id": "b", "source": "s", "events": [GOOD], "v": "1"}, "invalid_request"),
    ({"batch_id": "b", "source": "s", "events": [GOOD], "stream_precondition": []}, "invalid_request"),
    ({"batch_id": "b", "source": "s", "events": [GOOD], "stream_precondition": {"stream": "s"}}, "invalid_request"),
    ({"batch_id": "b", "source": "s", "events": [GOOD],
      "stream_precondition": {"stream": "s", "expected_frontier": None, "x": 1}}, "invalid_request"),
    ({"batch_id": "b", "source": "s", "events": [GOOD], "v": 2}, "invalid_batch"),
    ({"batch_id": "b", "source": "s", "events": []}, "invalid_batch"),
    ({"batch_id": "b", "source": "S", "events": [GOOD]}, "invalid_batch"),
    ({"batch_id": "b", "source": "-s", "events": [GOOD]}, "invalid_batch"),
    ({"batch_id": "b", "source": "s" * 129, "events": [GOOD]}, "invalid_batch"),
    ({"batch_id": "b", "source": "system", "events": [GOOD]}, "invalid_batch"),
    ({"batch_id": "groundhog/x", "source": "s", "events": [GOOD]}, "invalid_batch"),
    ({"batch_id": "b", "source": "s", "events": [GOOD],
      "stream_precondition": {"stream": "s", "expected_frontier": "nope"}}, "invalid_batch"),
    ({"batch_id": "b", "source": "s", "events": [GOOD],
      "stream_precondition": {"stream": "s", "expected_frontier": 7}}, "invalid_batch"),
    ({"batch_id": "b", "source": "s", "events": [GOOD],
      "stream_precondition": {"stream": "t", "expected_frontier": None}}, "invalid_batch"),
    ({"batch_id": "b", "source": "s", "events": [{**GOOD, "stream": "groundhog.source_lineage"}]},
     "invalid_source_lineage"),
])
def test_refused_batches(server, body, code):
    answer = server.append(body)
    assert answer.status == 400, answer.body
    assert answer.json["error"] == code, answer.body
    assert answer.json["message"]
    assert server.get("/v1/events").json["events"] == []


@pytest.mark.parametrize("bad", [
    7, [], None, {},
    bad_event(stream=...), bad_event(record_key=...), bad_event(kind=...), bad_event(payload=...),
    bad_event(extra=1), bad_event(stream=""), bad_event(stream="A"), bad_event(stream="s" * 129),
    bad_event(stream=3), bad_event(record_key=""), bad_event(record_key="k" * 1025), bad_event(record_key=None),
    bad_event(kind=""), bad_event(kind="k" * 129), bad_event(kind=False),
    bad_event(occurred_at=None), bad_event(occurred_at=5),
    bad_event(occurred_at="2023-02-29T00:00:00Z"), bad_event(occurred_at="2024-01-01T00:00:00+00:00"),
    bad_event(occurred_at="2016-12-31T23:59:60Z"),                 # L43: leap seconds are refused
    bad_event(occurred_at="2018-02-14T00:28:07.Z"),                # L44: an empty fraction
    bad_event(occurred_at="2018-02-14T00:28:07.1234567890Z"),
    bad_event(occurred_at="2018-02-14t00:28:07z"), bad_event(occurred_at="2024-01-01T24:00:00Z"),
    bad_event(occurred_at="2020-01-01T00:00:00-00:30"),
])
def test_refused_events_name_their_index(server, bad):
    answer = server.append(batch("b", GOOD, bad, GOOD))
    assert answer.status == 400
    assert answer.json["error"] == "invalid_events"
    assert [e["index"] for e in answer.json["errors"]] == [1]
    assert answer.json["errors"][0]["code"] == "invalid_event"
    assert answer.json["errors"][0]["message"]
    assert server.get("/v1/events").json["events"] == []


def test_up_to_a_hundred_bad_events_are_named(server):
    answer = server.append(batch("b", *([{**GOOD, "kind": ""}] * 150)))
    assert [e["index"] for e in answer.json["errors"]] == list(range(100))
    assert "150" in answer.json["message"]


def test_names_and_keys_at_their_limits_are_taken(server):
    good = {"stream": "_" + "9.-" * 42 + "z", "record_key": "ü" * 512, "kind": "k" * 128, "payload": None,
            "occurred_at": "0001-01-01T00:00:00.123456789Z"}
    assert server.append(batch("b", good, source="0" * 128)).status == 200
    stored = server.get("/v1/events").json["events"][0]
    assert {k: stored[k] for k in good} == good


def nested(depth):
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth, status", [(0, 200), (127, 200), (128, 200), (129, 400), (1000, 400), (50000, 400)])
def test_payload_nesting(server, depth, status):
    payload = nested(depth) or "1"
    body = '{"batch_id":"b","source":"s","events":[{"stream":"s","record_key":"k","kind":"u","payload":%s}]}' % payload
    answer = server.append(body)
    assert answer.status == status
    if status == 400:
        assert answer.json["error"] == "invalid_events"
        assert answer.json["errors"][0]["index"] == 0


@pytest.mark.parametrize("literal, stored", [
    ("9007199254740991", "9007199254740991"), ("9007199254740992", "9007199254740992"),
    ("-9007199254740992", "-9007199254740992"), ("18446744073709552000", "18446744073709552000"),
    ("100000000000000000000", "100000000000000000000"), ("-0", "0"), ("1e30", "1e+30"), ("1E+2", "100"),
    ("333333333.33333329", "333333333.3333333"), ("18446744073709551617.0", "18446744073709552000"),
    ("4.50", "4.5"), ("2e-3", "0.002"), ("0.000001", "0.000001"), ("1e-7", "1e-7"), ("1e-400", "0"),
    ("5.6843418860808015e-14", "5.684341886080802e-14"), ("1e21", "1e+21"),
])
def test_L35_L38_numbers_taken(server, literal, stored):
    body = '{"batch_id":"b","source":"s","events":[{"stream":"s","record_key":"k","kind":"u","payload":%s}]}' % literal
    assert server.append(body).status == 200
    assert b'"payload":%s,' % stored.encode() in server.get("/v1/events").body


@pytest.mark.parametrize("literal", [
    "9007199254740993", "18446744073709551616", "18446744073709551617", "1" + "0" * 21, "1e999", "9" * 400, "01",
    "1.", ".5", "+1", "NaN", "Infinity", "0x1", "--1", "1491926160718000001",
])
def test_L35_L38_numbers_refused(server, literal):
    body = '{"batch_id":"b","source":"s","events":[{"stream":"s","record_key":"k","kind":"u","payload":%s}]}' % literal
    answer = server.append(body)
    assert answer.status == 400 and answer.json["error"] == "invalid_request"


def test_L34_L40_strings_come_back_as_canonical_form_says(server):
    body = (b'{"batch_id":"b","source":"s","events":[{"stream":"s","record_key":"a\\u0000b","kind":"u","payload":'
            b'{"":1,"a\\u007f\\u2028":2,"\\/":"\\/","\\ud83d\\ude00":1,"\\ufb33":2,"c":"\\b\\t\\n\\f\\r\\u001F\\u00e9"}}]}')
    assert server.append(body).status == 200
    want = '"payload":{"":1,"/":"/","a\x7f\u2028":2,"c":"\\b\\t\\n\\f\\r\\u001fé","\U0001f600":1,"\ufb33":2}'
    assert len(server.get("/v1/events?record_key=a%00b").json["events"]) == 1
    assert server.get("/v1/events?record_key=a%00c").json["events"] == []
    assert want.encode() in server.get("/v1/events").body


def test_error_of_the_screen_names_the_byte(server):
    answer = server.append(b'{"batch_id":"b","source":"s","events":[{"stream":"s","x":01}]}')
    assert "byte 58" in answer.json["message"]


def test_too_many_events_and_too_large_body(server):
    answer = server.append(batch("b", *[{"stream": "s", "record_key": "k", "kind": "u", "payload": 0}] * 10001))
    assert answer.status == 413 and answer.json["error"] == "body_too_large"
    ok = server.append(batch("b", *[{"stream": "s", "record_key": "k", "kind": "u", "payload": 0}] * 10000))
    assert ok.json["events"] == 10000
    conn = server.connection()
    conn.putrequest("POST", "/v1/events")
    conn.putheader("Content-Length", str((32 << 20) + 1))
    conn.endheaders()
    response = conn.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["error"] == "body_too_large"
    conn.close()


def test_a_body_of_32_mib_and_one_that_grows(server):
    pad = "x" * ((32 << 20) - 200)
    body = '{"batch_id":"b","source":"s","events":[{"stream":"s","record_key":"k","kind":"u","payload":"%s"}]}' % pad
    assert len(body) <= 32 << 20
    assert server.append(body).json["status"] == "committed"
    assert server.append(body).json["status"] == "duplicate"
    numbers = "[" + ",".join(["1e20"] * 1000000) + "]"  # canonical form: 21 bytes for each 4
    body = '{"batch_id":"c","source":"s","events":[{"stream":"s","record_key":"k","kind":"u","payload":%s}]}' % numbers
    assert server.append(body).json["status"] == "committed"
    server.stop()
    assert verify(server.data)["ok"]


# ---- transport rules ----

@pytest.mark.parametrize("headers, status", [
    ({"Content-Type": "application/json"}, 200),
    ({"Content-Type": "application/json; charset=utf-8"}, 200),
    ({"Content-Type": "Application/JSON;charset=UTF-8"}, 200),
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/json; charset=latin1"}, 415),
    ({"Content-Type": "application/json; version=1"}, 415),
    ({"Content-Type": "application/x-ndjson"}, 415),
    ({"Content-Type": ""}, 415),
    ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
    ({"Content-Type": "application/json", "Content-Encoding": "identity"}, 415),
])
def test_media_type(server, headers, status):
    answer = server.request("POST", "/v1/events", json.dumps(batch("b")), headers)
    assert answer.status == status
    if status == 415:
        assert answer.json["error"] == "unsupported_media_type"


def test_absent_media_type_is_taken_and_query_is_checked_first(server):
    conn = server.connection()
    body = json.dumps(batch("b")).encode()
    conn.putrequest("POST", "/v1/events")
    conn.putheader("Content-Length", str(len(body)))
    conn.endheaders(body)
    assert conn.getresponse().status == 200
    conn.close()
    answer = server.request("POST", "/v1/events?a=b", body, {"Content-Type": "text/plain"})
    assert answer.status == 400 and answer.json["error"] == "invalid_request"


def test_routing(server):
    assert server.get("/v1/nothing").json["error"] == "not_found"
    assert server.get("/v1/query").status == 404
    assert server.get("/v1/sources/retire").status == 405
    assert server.request("POST", "/v1/sources", "{}").status == 404
    answer = server.request("DELETE", "/v1/events")
    assert answer.status == 405 and answer.json["error"] == "method_not_allowed"
    assert sorted(m.strip() for m in answer.headers["allow"].split(",")) == ["GET", "HEAD", "POST"]
    answer = server.request("POST", "/v1/streams", "{}")
    assert answer.status == 405
    assert sorted(m.strip() for m in answer.headers["allow"].split(",")) == ["GET", "HEAD"]


def test_head_is_get_without_body(server):
    server.append(batch("b"))
    for target in ("/v1/events", "/v1/streams", "/v1/events?limit=0", "/v1/nothing"):
        head, get = server.request("HEAD", target), server.get(target)
        assert head.status == get.status and head.body == b""
        assert head.headers["content-type"] == get.headers["content-type"]
        assert "transfer-encoding" not in head.headers


def test_web_pages_and_foreign_hosts_are_refused_on_tcp(server):
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"},
                    {"Host": "evil.example:8080"}):
        for method, target in (("GET", "/v1/events"), ("POST", "/v1/events"), ("GET", "/v1/nothing"),
                               ("GET", "/metrics")):
            answer = server.request(method, target, headers=headers)
            assert answer.status == 401, (headers, target)
            assert answer.json == {"error": "unauthorized",
                                   "message": "The request does not have valid authorization."}
    assert server.get("/v1/events", headers={"Host": "localhost:1"}).status == 200
    assert server.get("/v1/events", headers={"Origin": "http://evil.example"}, unix=True).status == 200
    assert server.get("/healthz", headers={"Origin": "http://evil.example"}).status == 200


def test_token(make_server, workdir):
    path = workdir / "token"
    path.write_text("sesame-123\n")
    path.chmod(0o600)
    server = make_server("--token-file", str(path))
    bad = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer sesame-1234"},
           {"Authorization": "Basic sesame-123"}, {"Authorization": "sesame-123"}]
    bodies = set()
    for headers in bad:
        for target in ("/v1/events", "/v1/streams", "/nowhere", "/metrics", "/v1/events?bad=1"):
            answer = server.get(target, headers=headers)
            assert answer.status == 401
            bodies.add(answer.body)
    assert len(bodies) == 1
    good = {"Authorization": "Bearer sesame-123"}
    assert server.get("/v1/events", headers=good).status == 200
    assert server.get("/v1/events", headers={**good, "Origin": "http://a.example", "Host": "x.example"}).status == 200
    assert server.get("/nowhere", headers=good).status == 404
    assert server.get("/v1/events", unix=True).status == 200
    assert server.get("/readyz").status == 200
    assert "sesame" not in server.log


# ---- replay ----

@pytest.fixture
def filled(server):
    for i in range(10):
        server.append(batch(f"a{i}", *[event(10 * i + k, stream=f"s{k % 3}", kind="even" if k % 2 == 0 else "odd")
                                       for k in range(10)], source=f"src{i % 2}"))
    return server


def kind_of(e):
    return e["kind"]


def event_with_kind(e, kind):
    return {**e, "kind": kind}


def test_pages_cover_everything_once(filled):
    everything = filled.get("/v1/events?limit=1000").json
    assert len(everything["events"]) == 100
    for limit in (1, 7, 33, 100, 101):
        assert replay_all(filled, limit) == everything["events"]


def test_page_members(filled):
    page = filled.get("/v1/events?limit=3").json
    assert set(page) == {"events", "last_event_id", "next_after", "snapshot_through_event_id", "snapshot"}
    assert page["next_after"] == page["last_event_id"] == page["events"][-1]["event_id"]
    assert page["snapshot"]["frontier_event_id"] == page["snapshot_through_event_id"]
    assert page["snapshot"]["frontier_event_count"] == 100
    exact = filled.get("/v1/events?limit=100").json
    assert exact["next_after"] == exact["last_event_id"]


def test_empty_log(server):
    page = server.get("/v1/events").json
    assert page == {"events": [], "next_after": None, "snapshot_through_event_id": None,
                    "snapshot": {"frontier_event_id": None, "frontier_event_count": 0, "chain_head":
                                 "de84c29d7e74ec3e0ac6db8d29ad38be698cacc529bd530f004144e36f06e42b"}}
    after = "01900000-0000-7000-8000-000000000000"
    assert server.get(f"/v1/events?after={after}").json["next_after"] == after
    assert server.get("/v1/streams").json == {"v": 1, "streams": [], "next_after": None,
                                              "snapshot_through_event_id": None}


@pytest.mark.parametrize("query, keep", [
    ("source=src0", lambda e: e["source"] == "src0"),
    ("stream=s1", lambda e: e["stream"] == "s1"),
    ("kind=odd", lambda e: e["kind"] == "odd"),
    ("record_key=k42", lambda e: e["record_key"] == "k42"),
    ("source=src1&stream=s2&kind=even", lambda e: (e["source"], e["stream"], e["kind"]) == ("src1", "s2", "even")),
    ("source=nobody", lambda e: False),
    ("stream=Not%20a%20name", lambda e: False),
])
def test_filters(server, query, keep):
    for i in range(10):
        events = [{**event(10 * i + k, stream=f"s{k % 3}"), "kind": "odd" if k % 2 else "even"} for k in range(10)]
        server.append(batch(f"a{i}", *events, source=f"src{i % 2}"))
    everything = replay_all(server)
    want = [e for e in everything if keep(e)]
    page = server.get(f"/v1/events?limit=1000&{query}").json
    assert page["events"] == want
    assert page["next_after"] == page["snapshot_through_event_id"]
    ids, after = [], ""
    while True:  # in pages of two: foreign events are passed over
        page = server.get(f"/v1/events?limit=2&{query}{after}").json
        ids += [e["event_id"] for e in page["events"]]
        if page["next_after"] == page["snapshot_through_event_id"]:
            break
        after = f"&after={page['next_after']}"
    assert ids == [e["event_id"] for e in want]


def test_L29_cursors_at_and_past_the_end(filled):
    last = filled.get("/v1/events?limit=1000").json["events"][-1]["event_id"]
    assert filled.get(f"/v1/events?after={last}").json["events"] == []
    assert filled.get(f"/v1/events?after={last}").json["next_after"] == last
    for past in ("ffffffff-ffff-7fff-bfff-ffffffffffff",):
        page = filled.get(f"/v1/events?after={past}").json
        assert page["events"] == [] and page["next_after"] == past
    before = "00000000-0000-7000-8000-000000000000"
    assert len(filled.get(f"/v1/events?after={before}&limit=1000").json["events"]) == 100
    filled.append(batch("new"))
    assert len(filled.get(f"/v1/events?after={last}").json["events"]) == 1


@pytest.mark.parametrize("query, code", [
    ("limit=0", "invalid_replay_request"), ("limit=-1", "invalid_replay_request"), ("limit=x", "invalid_replay_request"),
    ("limit=100001", "invalid_replay_request"), ("limit=", "invalid_replay_request"), ("limit=1e3", "invalid_replay_request"),
    ("after=nope", "invalid_replay_request"), ("after=01900000-0000-4000-8000-000000000000", "invalid_replay_request"),
    ("after=01900000-0000-7000-8000-00000000000A", "invalid_replay_request"),
    ("record_key=", "invalid_replay_request"), ("follow=yes", "invalid_replay_request"),
    ("unknown=1", "invalid_request"), ("limit=1&limit=1", "invalid_request"), ("stream=%zz", "invalid_request"),
    ("stream=%f", "invalid_request"), ("last=5", "invalid_request"), ("stream=%ff", "invalid_request"),
])
def test_refused_replays(server, query, code):
    answer = server.get(f"/v1/events?{query}")
    assert answer.status == 400
    assert answer.json["error"] == code


def test_form_decoding(server):
    server.append(batch("b", event(key="a b&c=ü")))
    for spelled in ("a+b%26c%3D%c3%bc", urllib.parse.quote("a b&c=ü")):
        assert len(server.get(f"/v1/events?record_key={spelled}").json["events"]) == 1
    assert len(server.get("/v1/events?record%5fkey=a%20b%26c%3d%C3%BC&follow=false").json["events"]) == 1


def test_ndjson_replay(filled):
    answer = filled.get("/v1/events?limit=10", headers={"Accept": "application/x-ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    *events, page = answer.lines
    assert events == filled.get("/v1/events?limit=10").json["events"]
    assert page["type"] == "page"
    assert page["next_after"] == page["last_event_id"] == events[-1]["event_id"]


def test_last_on_the_unix_socket(filled):
    everything = replay_all(filled)
    headers = {"Accept": "application/x-ndjson"}
    for n in (1, 5, 99, 100, 101, 5000):
        *events, page = filled.get(f"/v1/events?last={n}", headers=headers, unix=True).lines
        assert events == everything[-n:]
    *events, page = filled.get("/v1/events?last=3&stream=s1", headers=headers, unix=True).lines
    assert events == [e for e in everything if e["stream"] == "s1"][-3:]


def test_replay_across_generations_and_last(make_server):
    server = make_server("--generation-bytes", "64KiB")
    for i in range(200):
        server.append(batch(f"b{i}", *[event(10 * i + k, stream=f"s{i % 4}") for k in range(10)]))
    assert len(list((server.data / "journal" / "pending").iterdir())) > 5
    everything = replay_all(server, 997)
    assert [e["payload"]["n"] for e in everything] == list(range(2000))
    for n in (1, 100, 1999):
        *events, _ = server.get(f"/v1/events?last={n}", headers={"Accept": "application/x-ndjson"}, unix=True).lines
        assert events == everything[-n:]
    for i in (0, 1, 999, 1998):
        page = server.get(f"/v1/events?limit=1&after={everything[i]['event_id']}").json
        assert page["events"] == [everything[i + 1]]


# ---- streams ----

def test_streams_pages_and_anchor(make_server):
    server = make_server("--generation-bytes", "64KiB")
    counts = {}
    for i in range(300):
        source, stream = f"src{i % 3}", ("a.b", "a-b", "a", "a_b")[i % 4]
        server.append(batch(f"b{i}", *[event(k, stream=stream) for k in range(5)], source=source))
        counts[(source, stream)] = counts.get((source, stream), 0) + 5
    anchor = server.get("/v1/events?limit=1").json["snapshot_through_event_id"]
    whole = server.get("/v1/streams?limit=1000").json
    assert whole["snapshot_through_event_id"] == anchor and whole["next_after"] is None
    assert [(r["source"], r["stream"], r["event_count"]) for r in whole["streams"]] == \
        [(s, t, n) for (s, t), n in sorted(counts.items())]
    server.append(batch("late", event(stream="zz"), source="src0"))
    rows, after = [], None
    while True:
        query = f"limit=5&through={anchor}" + (f"&after={urllib.parse.quote(after, safe='')}" if after else "")
        page = server.get(f"/v1/streams?{query}").json
        rows += page["streams"]
        after = page["next_after"]
        if after is None:
            break
    assert rows == whole["streams"]
    early = server.get("/v1/events?limit=7").json["events"][-1]["event_id"]
    page = server.get(f"/v1/streams?through={early}").json
    assert sum(r["event_count"] for r in page["streams"]) == 7
    only = server.get("/v1/streams?source=src1").json
    assert {r["source"] for r in only["streams"]} == {"src1"}


@pytest.mark.parametrize("query, code", [
    ("limit=0", "invalid_streams_request"), ("limit=1001", "invalid_streams_request"),
    ("source=UPPER", "invalid_streams_request"), ("source=", "invalid_streams_request"),
    ("after=a/b", "invalid_streams_request"), ("through=nope", "invalid_streams_request"),
    ("after=ab&through=01900000-0000-7000-8000-000000000000", "invalid_streams_request"),
    ("through=01900000-0000-7000-8000-000000000000", "stream_anchor_unavailable"),
    ("x=1", "invalid_request"), ("limit=1&limit=2", "invalid_request"),
])
def test_refused_streams(server, query, code):
    server.append(batch("b"))
    answer = server.get(f"/v1/streams?{query}")
    assert answer.status == 400 and answer.json["error"] == code


# ---- life ----

def test_status_health_metrics(server):
    server.append(batch("b", event(1), event(2)))
    server.append(batch("b", event(1), event(2)))
    assert server.get("/healthz").json == {"status": "alive"}
    assert server.get("/readyz").json == {"status": "ready"}
    status = server.get("/api/v1/status", unix=True).json
    assert status["frontier"]["events"] == 2 and status["journal"]["poisoned"] is False
    assert server.get("/api/v1/status").status == 401
    assert server.metric("tallyman_journal_events") == 2
    assert server.metric("tallyman_journal_duplicates_total") == 1
    text = server.get("/metrics").body.decode()
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) tallyman_\w+ .+|tallyman_\w+ \d+", line), line


def test_second_server_on_the_same_directory_is_told(server, make_server):
    second = make_server(start=False)
    second.log_path = server.data.parent / "second.log"
    second.start(wait=False)
    assert second.process.wait(20) == 1
    second.process = None
    assert "another process uses" in second.log
    assert server.append(batch("still")).status == 200


def test_taken_port_is_told(server, make_server):
    second = make_server(name="other", start=False, port=server.port)
    second.start(wait=False)
    assert second.process.wait(20) == 1
    second.process = None
    assert "already in use" in second.log


def test_without_a_token_only_loopback_is_listened_on(workdir):
    result = tallyman("serve", "--data", str(workdir / "d"), "--listen", "0.0.0.0:0", timeout=20)
    assert result.returncode == 2
    assert "token" in result.stderr


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_clean_stop_leaves_no_padding_and_no_spare(server, signal_number):
    server.append(batch("b"))
    server.process.send_signal(signal_number)
    assert server.process.wait(20) == 0
    server.process = None
    journal = server.data / "journal"
    assert sorted(p.name for p in journal.iterdir()) == ["manifest.jsonl", "pending", "segments", "tail.ndjson"]
    assert (journal / "tail.ndjson").read_bytes().endswith(b"}\n")
    assert not (server.data / "tallyman.sock").exists()
    report = verify(server.data)
    assert report["ok"] and report["orphans"] == [] and report["remnants"] == []


def test_verify_beside_a_running_server_under_load(make_server):
    server = make_server("--generation-bytes", "64KiB")
    stop = threading.Event()
    sent = []

    def load():
        conn = server.connection()
        while not stop.is_set():
            i = len(sent)
            conn.request("POST", "/v1/events", json.dumps(batch(f"b{i}", *[event(k) for k in range(20)])))
            response = conn.getresponse()
            response.read()
            assert response.status == 200
            sent.append(i)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit(load)
        reports = []
        end = time.monotonic() + 60
        while len(reports) < 15 or (len(sent) <= 50 and time.monotonic() < end):
            reports.append(verify(server.data))
        stop.set()
        done.result(30)
    assert all(r["ok"] for r in reports), reports
    assert [r["events_checked"] for r in reports] == sorted(r["events_checked"] for r in reports)
    assert len(sent) > 50
