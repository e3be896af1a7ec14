"""The capture door as docs/PROTOCOL.md section 14 describes it, from outside: every route, where keys may stand, CORS, sizes, methods,
receipts, rejected events, budgets, and what stays over restarts and under load.
"""
import base64
import json
import random
import re
import socket
import threading
import time
import uuid

import pytest

from capture_kit import JSON, Door, assert_sound, b64, basic, drain, packed, quote, rfc3339, serving, wait
from capture_world import derived
from conftest import verify
from fake_clickhouse import Error, FakeClickHouse
from world import SANITIZED

ORIGIN = {"Origin": "https://shop.example"}
POSTHOG_SINGLE = ["/e", "/i/v0/e", "/capture", "/track", "/engage"]
POSTHOG_BATCH = ["/batch", "/i/v0/ai", "/i/v0/ai/batch"]
V1 = "/i/v1/analytics/events"
SEGMENT_BATCH = ["/v1/batch", "/v1/import", "/v1/b", "/v1/batch/v1/batch"]
SEGMENT_CALLS = {"/v1/track": "track", "/v1/t": "track", "/v1/identify": "identify", "/v1/i": "identify", "/v1/page": "page",
                 "/v1/p": "page", "/v1/screen": "screen", "/v1/s": "screen", "/v1/group": "group", "/v1/g": "group",
                 "/v1/alias": "alias", "/v1/a": "alias"}
CALL = {"userId": "u", "event": "called", "name": "called", "groupId": "g", "previousId": "v"}
STATIC = ["/flags", "/decide", "/array/KEY/config", "/array/KEY/config.js", "/v1/projects/KEY/settings"]


@pytest.fixture(scope="module")
def door():
    with serving() as it:
        yield it


@pytest.fixture
def project(door):
    return door.project()


def v1_headers(token, **more):
    return {"Authorization": f"Bearer {token}", "PostHog-Sdk-Info": "posthog-node/5.70.0", "PostHog-Attempt": "1",
            "PostHog-Request-Id": str(uuid.uuid4()), "PostHog-Request-Timestamp": rfc3339(time.time()), **more}


def v1_body(*events):
    now = rfc3339(time.time())
    return {"created_at": now, "batch": [{"event": "v1", "distinct_id": "d", "timestamp": now, "uuid": str(uuid.uuid4()), **event}
                                         for event in events or ({},)]}


def assert_cors(answer, origin="https://shop.example"):
    assert answer.headers["access-control-allow-origin"] == origin, answer.headers
    assert answer.headers["access-control-allow-credentials"] == "true"
    assert answer.headers["access-control-expose-headers"] == "Retry-After"
    assert "origin" in answer.headers["vary"].lower()


def every_route(project):
    """(path, a good body, headers, the plain success) of each route that takes events."""
    event = {"event": "called", "distinct_id": "d"}
    ok, success = b'{"status":"Ok"}', b'{"success":true}'
    auth = {"Authorization": basic(project.token)}
    for path in POSTHOG_SINGLE:
        yield path, {"api_key": project.token, **event}, {}, ok
    for path in POSTHOG_SINGLE + POSTHOG_BATCH:
        yield path, {"api_key": project.token, "batch": [event]}, {}, ok
        yield path, [{**event, "token": project.token}], {}, ok
    yield V1, v1_body(), v1_headers(project.token), None
    for path in SEGMENT_BATCH:
        yield path, {"batch": [{**CALL, "type": "track"}]}, auth, success
    for path in SEGMENT_CALLS:
        yield path, CALL, auth, success


# ---- routes ----

def test_every_route_takes_events(project):
    """Proves: each route of the table, with and without a slash behind it, answers 200 in its dialect, with CORS headers, and stores."""
    sent = 0
    for path, body, headers, success in every_route(project):
        for slash in ("", "/"):
            if path == V1:
                body = v1_body()
            answer = project.door.post(path + slash, body, {**headers, **ORIGIN})
            assert answer.status == 200, (path, answer.body)
            assert answer.headers["content-type"] == "application/json"
            assert_cors(answer)
            if success:
                assert answer.body == success, (path, answer.body)
            else:
                assert answer.json == {"results": {body["batch"][0]["uuid"]: {"result": "ok"}}}
            sent += 1
    rows = project.rows()
    assert len(rows) == sent
    types = [row["type"] for row in rows]
    assert {"capture", "track", "identify", "page", "screen", "group", "alias"} <= set(types), set(types)
    assert {row["source"] for row in rows} == {"default"}


def test_no_redirects(door):
    """Proves: no route redirects, whatever is behind it."""
    for path in [*POSTHOG_SINGLE, *POSTHOG_BATCH, V1, *SEGMENT_BATCH, *STATIC]:
        for tail in ("", "/", "//", "/x", "/%2e"):
            status = door.server.request("POST", path + tail, b"", ORIGIN).status
            assert status < 300 or status >= 400, (path + tail, status)


def test_errors_can_be_read_by_pages(project):
    """Proves: on every route 400, 401, 405 and 415 have the dialect's form, and CORS headers."""
    door = project.door
    for path, body, headers, _ in every_route(project):
        form = "v1" if path == V1 else "segment" if path.startswith("/v1/") else "posthog"
        cases = [(405, door.server.request("PUT", path, headers=ORIGIN)),
                 (401, door.post(path, {"batch": [{"event": "e", "distinct_id": "d", "userId": "u", "type": "track"}], "event": "e",
                                        "distinct_id": "d", "api_key": "tmc_nobody", "writeKey": "tmc_nobody"},
                                 {**ORIGIN, **v1_headers("tmc_nobody"), "Authorization": "Bearer tmc_nobody" if form == "v1" else
                                  basic("tmc_nobody")})),
                 (400, door.post(path, b"{\"a\":", {**headers, **ORIGIN})),
                 (415, door.post(path, b"{}", {**headers, **ORIGIN, "Content-Encoding": "br"}))]
        for want, answer in cases:
            assert answer.status == want, (path, want, answer.status, answer.body)
            assert_cors(answer)
            if form == "posthog":
                assert answer.headers["content-type"].startswith("text/plain") and answer.body.endswith(b"\n")
            elif form == "segment":
                assert answer.json["success"] is False and answer.json["code"] and answer.json["message"]
            else:
                assert set(answer.json) == {"error", "error_description", "error_uri"}
            assert b"tmc_" not in answer.body
    assert project.empty()


def test_methods(project):
    """Proves: methods that a route does not have are 405 with Allow, HEAD stores nothing, OPTIONS is answered on each but the native."""
    door = project.door
    event = quote(json.dumps(project.event()))
    gets = [*POSTHOG_SINGLE, "/batch"]
    for path in [*POSTHOG_SINGLE, *POSTHOG_BATCH, V1, *SEGMENT_BATCH, *SEGMENT_CALLS]:
        for method in ("PUT", "DELETE", "PATCH", "HEAD", "TRACE"):
            answer = door.server.request(method, f"{path}?data={event}", headers=ORIGIN)
            assert answer.status == 405, (method, path, answer.status)
            assert answer.headers["allow"] == ("GET, POST, OPTIONS" if path in gets else "POST, OPTIONS"), (method, path)
        preflight = door.server.request("OPTIONS", path, headers={**ORIGIN, "Access-Control-Request-Headers": "content-type"})
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-methods"] == ("GET, POST, OPTIONS" if path in gets else "POST, OPTIONS")
        assert_cors(preflight)
    for path in [V1, *SEGMENT_BATCH, *SEGMENT_CALLS, "/i/v0/ai"]:
        assert door.server.get(path).status == 405
    for method in ("GET", "PUT", "OPTIONS", "HEAD", "DELETE"):
        answer = door.server.request(method, project.api + "/events", headers=ORIGIN)
        assert (answer.status, answer.headers["allow"]) == (405, "POST"), (method, answer.status)
        assert "access-control-allow-origin" not in answer.headers
    for path in ("/s/", "/static/array.js", "/e/x", "/batch/x", "/v1/x", "/api/projects/1/feature_flags"):
        assert door.server.request("POST", path, b"{}", ORIGIN).status in (401, 404, 405), path
    assert project.empty()


def test_get_and_beacons(project):
    """Proves: GET takes ?data= plain and base64; beacon=1 makes a success 204 without a body, and no error one."""
    door = project.door
    for path in (*POSTHOG_SINGLE, "/batch"):
        for data in (quote(json.dumps(project.event())), quote(b64(project.event()))):
            answer = door.server.get(f"{path}/?data={data}&_={int(time.time() * 1000)}", headers=ORIGIN)
            assert answer.status == 200, (path, answer.body)
            assert_cors(answer)
    for beacon, status in (("1", 204), ("0", 200), ("", 200)):
        answer = door.post(f"/e/?beacon={beacon}", project.event(), ORIGIN)
        assert answer.status == status and (status == 200 or answer.body == b"")
        assert_cors(answer)
    answer = door.post("/e/?beacon=1", {"api_key": "tmc_nobody", "event": "e", "distinct_id": "d"}, ORIGIN)
    assert answer.status == 401 and answer.body
    assert len(project.rows()) == 2 * 6 + 3


def test_flags_and_configuration(project):
    """Proves: flags, decide, config, config.js and settings are the honest empty answers, for any key, readable by pages, not cached."""
    door = project.door

    def get(path, method="GET", body=None):
        answer = door.server.request(method, path, body, ORIGIN)
        assert answer.status == 200 and answer.headers["cache-control"] == "no-cache", (path, answer.status)
        assert_cors(answer)
        return answer
    for slash in ("", "/"):
        body = json.dumps({"token": project.token, "distinct_id": "d"}).encode()
        flags = get(f"/flags{slash}?v=2&config=true", "POST", body).json
        assert flags["flags"] == {} and flags["errorsWhileComputingFlags"] is False and uuid.UUID(flags["requestId"])
        assert flags["supportedCompression"] == ["gzip", "gzip-js"] and flags["sessionRecording"] is False
        assert flags["autocapture_opt_out"] is False
        flags = get(f"/flags{slash}?v=1", "POST", b"").json
        assert flags["featureFlags"] == {} and "supportedCompression" not in flags
        assert get(f"/decide{slash}?v=4", "POST", body).json["flags"] == {}
        assert get(f"/decide{slash}?v=3").json["featureFlags"] == {}
        assert get(f"/decide{slash}").json["featureFlags"] == []
        config = get(f"/array/{project.token}/config{slash}").json
        assert config["token"] == project.token and config["hasFeatureFlags"] is False and config["surveys"] is False
        script = get(f"/array/{project.token}/config.js{slash}")
        assert script.headers["content-type"].startswith("application/javascript")
        assert f'_POSTHOG_REMOTE_CONFIG["{project.token}"]' in script.body.decode()
        settings = get(f"/v1/projects/{project.token}/settings{slash}").json["integrations"]["Segment.io"]
        assert settings["apiKey"] == project.token and settings["protocol"] == "http"
        assert settings["apiHost"] == f"{door.server.host}:{door.server.port}/v1"
    assert door.server.get("/v1/projects/k/settings", headers={"X-Forwarded-Proto": "https"}).json[
        "integrations"]["Segment.io"]["protocol"] == "https"
    for bad in ("a%22b", "a%3Cscript%3E", "x" * 65, "a%0ab"):
        for path in (f"/array/{bad}/config", f"/array/{bad}/config.js", f"/v1/projects/{bad}/settings"):
            assert door.server.get(path).status == 404, path
    assert door.server.get("/static/array.js").status == 404


# ---- keys ----

def test_keys_in_every_place(project):
    """Proves: the key is found wherever SDKs put it, blanks and all; any public key works on every dialect, and its name is the source."""
    door = project.door
    web, shop = project.key("segment", "web"), project.key("capture", "shop")
    event = {"event": "e", "distinct_id": "d"}
    for body in ({"api_key": web, **event}, {"token": web, **event}, {"$token": web, **event},
                 {**event, "properties": {"token": web}}, {"api_key": f"  {web} ", **event}, [{**event, "api_key": web}],
                 {"token": web, "batch": [event]}, {"batch": [{**event, "properties": {"token": web}}] * 2}):
        answer = door.post("/e/", body)
        assert answer.status == 200, (body, answer.body)
    for answer in (door.post("/v1/track", {**CALL, "writeKey": shop}), door.post("/v1/track", CALL, {"Authorization": basic(shop)}),
                   door.post("/v1/batch", {"batch": [{**CALL, "type": "track"}], "writeKey": shop}),
                   door.post("/v1/batch", {"batch": [{**CALL, "type": "track"}], "writeKey": web}, {"Authorization": basic(shop)}),
                   door.post("/v1/track", {**CALL, "writeKey": shop}, {"Authorization": "Bearer oauth-of-someone"}),
                   door.post(V1, v1_body(), v1_headers(shop))):
        assert answer.status == 200, answer.body
    sources = [row["source"] for row in project.rows()]
    assert sources.count("web") == 9 and sources.count("shop") == 6, sources


def test_keys_that_are_none(project):
    """Proves: no key, an unknown, a service key, a personal one, another shape, or two that differ are 401 or 400, and nothing is stored."""
    door = project.door
    other = door.project()
    service = project.key("service", "s", ["events:write"])
    event = {"event": "e", "distinct_id": "d"}
    for key in ("", None, "tmc_nobody", service, "phx_personal", "x" * 65, "käse", 7, {"a": 1}, project.token.upper(), project.token + "x",
                project.token[:-1]):
        answer = door.post("/e/", {**event, "api_key": key})
        assert answer.status in (400, 401), (key, answer.status, answer.body)
        assert str(key) not in answer.body.decode() or key in ("", 7)
        answer = door.post("/v1/track", {**CALL, "writeKey": key})
        assert answer.status in (400, 401), (key, answer.status, answer.body)
    assert door.post("/v1/track", CALL, {"Authorization": basic(service)}).status == 401
    assert door.post(V1, v1_body(), v1_headers(service)).status == 401
    assert door.post(V1, v1_body(), {**v1_headers("x"), "Authorization": "Token x"}).status == 401
    answer = door.post("/batch/", {"batch": [{**event, "api_key": project.token}, {**event, "api_key": other.token}]})
    assert answer.status in (400, 401), answer.body
    assert project.empty() and other.empty()


def test_revoked_keys_stop_at_once(project):
    """Proves: from the 204 of its revocation on a key is refused on every dialect, while the project's other keys work, over a restart too."""
    door = project.door
    token = project.key("capture", "old")
    service = project.key("service", "s", ["events:write"])
    keys = {key["name"]: key["id"] for key in door.call("GET", project.api + "/keys").json["keys"]}
    event = {"event": "e", "distinct_id": "d"}
    native = {"Authorization": f"Bearer {service}"}
    assert door.post("/e/", {**event, "api_key": token}).status == 200
    assert door.post(project.api + "/events", {"events": [{"event": "n"}]}, native).status == 200
    for name in ("old", "s"):
        assert door.call("DELETE", f"{project.api}/keys/{keys[name]}").status == 204
        assert door.call("DELETE", f"{project.api}/keys/{keys[name]}").status == 204
    answer = door.call("DELETE", f"{project.api}/keys/{keys['default']}")
    assert answer.status == 400 and answer.json["error"] == "invalid_key"
    for _ in range(2):
        assert door.post("/e/", {**event, "api_key": token}).status == 401
        assert door.post("/v1/track", CALL, {"Authorization": basic(token)}).status == 401
        assert door.post(V1, v1_body(), v1_headers(token)).status == 401
        assert door.post(project.api + "/events", {"events": [{"event": "n"}]}, native).status == 401
        assert door.post("/e/", {**event, "api_key": project.token}).status == 200
        if _ == 0:
            assert door.server.stop() == 0
            door.server.start()
    assert len(project.rows()) == 4


# ---- the native route ----

def test_native_is_strict(project):
    """Proves: anything that the native route does not know refuses the request whole, naming the event and the member."""
    good = {"event": "fine"}
    cases = [({"event": ""}, "event"), ({}, "event"), ({"event": 7}, "event"), ({"event": "x" * 257}, "event"),
             ({"event": "e", "extra": 1}, "extra"), ({"event": "e", "distinct_id": ""}, "distinct_id"),
             ({"event": "e", "distinct_id": 5}, "distinct_id"), ({"event": "e", "uuid": "none"}, "uuid"),
             ({"event": "e", "timestamp": "2026-01-01"}, "timestamp"), ({"event": "e", "timestamp": "1899-12-31T23:59:59Z"}, "timestamp"),
             ({"event": "e", "timestamp": "2300-01-01T00:00:00Z"}, "timestamp"), ({"event": "e", "timestamp": 5}, "timestamp"),
             ({"event": "e", "properties": []}, "properties"), ({"event": "e", "properties": "{}"}, "properties"),
             ({"event": "e", "context": 1}, "context"), ({"event": "e", "type": "pageview"}, "type"),
             ({"event": "e", "message_id": "x" * 257}, "message_id"), ("text", ""), (7, ""), (None, ""), ([], "")]
    for event, name in cases:
        answer = project.native([good, event, good])
        assert answer.status == 400 and answer.json["error"] == "invalid_event", (event, answer.body)
        assert answer.json["index"] == 1 and name in answer.json["message"], (event, answer.body)
    raw = project.door.post(project.api + "/events", b'{"events":[{"event":"a","event":"b"}]}', unix=True)
    assert raw.status == 400 and raw.json["index"] == 0 and "event" in raw.json["message"], raw.body
    for body in (b"", b"[]", b"{}", b"null", b'{"events":[]}', b'{"events":{}}', b'{"events":[{"event":"a"}],"x":1}',
                 b'{"events":[{"event":"a"}],"source":""}', b'{"events":[{"event":"a"}],"source":7}', b'{"events":[{"event":"a"}],"events":[]}',
                 b'{"events":[{"event":"a"}]} x', b'{"events":[{"event":"a"},]}'):
        answer = project.door.post(project.api + "/events", body, unix=True)
        assert answer.status == 400 and "message" in answer.json, (body, answer.status, answer.body)
    for coding in ("br", "x", "gzip-js"):
        answer = project.door.post(project.api + "/events", {"events": [good]}, {"Content-Encoding": coding}, unix=True)
        assert answer.status == 415, (coding, answer.status)
    assert project.empty()


def test_native_who_may(project):
    """Proves: on TCP a service key of this project with events:write, and nothing else, may send; its name is the source, the Unix socket's is
    native, and a project that is not there looks like another's."""
    door, path = project.door, project.api + "/events"
    other = door.project()
    body = {"events": [{"event": "e"}]}
    writer = project.key("service", "billing", ["events:write"])
    for token, want in ((writer, 200), (project.key("service", "r", ["query:read", "events:read", "projects:admin"]), 403),
                        (other.key("service", "o", ["events:write"]), 403), (project.token, 401), ("tms_nobody", 401)):
        answer = door.post(path, body, {"Authorization": f"Bearer {token}"})
        assert answer.status == want, (token[:4], answer.status, answer.body)
    answer = door.post(path, body)
    assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
    answer = door.post("/api/v1/projects/nowhere/events", body, {"Authorization": f"Bearer {writer}"})
    assert answer.status == 403
    assert door.post("/api/v1/projects/nowhere/events", body, unix=True).status == 404
    assert project.native([{"event": "e"}]).status == 200
    assert project.native([{"event": "e"}], source="given").status == 200
    assert [row["source"] for row in project.rows()] == ["billing", "native", "given"]


def test_receipts_for_ever(make_server):
    """Proves: a repeat has the first one's id, whatever its bytes: while queued, when delivered, after a restart and after a kill; ids and
    uuids of message ids are those of the rule."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Error(241)]
        door = Door(make_server("--clickhouse-url", far.url), far)
        project = door.project()
        known = str(uuid.uuid4())
        events = [{"event": "a", "uuid": known, "properties": {"n": 1}}, {"event": "b", "message_id": "inv-17"},
                  {"event": "c", "message_id": str(uuid.uuid4()).upper()}, {"event": "d"}]
        receipt = project.native(events, source="billing").json
        assert receipt["accepted"] == 4 and receipt["duplicates"] == 0
        assert [e["index"] for e in receipt["events"]] == [0, 1, 2, 3] and {e["status"] for e in receipt["events"]} == {"accepted"}
        uuids = [e["uuid"] for e in receipt["events"]]
        assert uuids[:3] == [known, derived(project.name, "billing", "inv-17"), events[2]["message_id"].lower()]
        assert uuid.UUID(uuids[3]).version == 7

        def again():
            repeats = [{**event, "event": "other", "properties": {"n": 2}} for event in events[:3]]
            told = project.native(repeats, source="billing").json
            assert told["accepted"] == 0 and told["duplicates"] == 3
            assert [(e["event_id"], e["uuid"], e["status"]) for e in told["events"]] == [
                (e["event_id"], e["uuid"], "duplicate") for e in receipt["events"][:3]]
            twice = project.native([{"event": "z", "uuid": known}, {"event": "y", "uuid": known}]).json
            assert [e["event_id"] for e in twice["events"]] == [receipt["events"][0]["event_id"]] * 2
            # The same message id of another source is another event, once.
            return project.native([{"event": "b", "message_id": "inv-17"}], source="other").json["accepted"]
        assert again() == 1
        assert project.delivery()["pending"] == 5
        far.faults = []
        rows = project.rows()
        assert again() == 0
        assert door.server.stop() == 0
        door.server.start()
        assert again() == 0
        door.server.kill()
        door.server.start()
        assert again() == 0
        after = project.rows()
        assert after == rows and {row["event"] for row in rows} == {"a", "b", "c", "d"}
        assert [row for row in rows if row["uuid"] == known][0]["properties"] == '{"n": 1}'
        assert sorted(int(e["event_id"]) for e in receipt["events"]) == sorted(row["event_id"] for row in rows)[:4]
        assert_sound(door.server)


# ---- rejected ----

def test_rejected_list(project):
    """Proves: rejected events are listed in order, page by page, with index, door, reason, time and text, and nothing else is touched."""
    bad = [{"distinct_id": "d", "n": n} for n in range(25)]
    answer = project.batch([*bad[:5], {"event": "ok", "distinct_id": "d"}, *bad[5:]])
    assert answer.status == 200 and answer.json["rejected"] == 25 and answer.json["accepted"] == 1
    got, after = [], "0"
    while after is not None:
        page = project.door.call("GET", f"{project.api}/rejected?limit=10&after_id={after}").json
        assert len(page["rejected"]) <= 10
        got += page["rejected"]
        after = page["next_after_id"]
    assert [json.loads(g["text"])["n"] for g in got] == list(range(25))
    assert [g["index"] for g in got] == [*range(5), *range(6, 26)]
    assert {g["door"] for g in got} == {"posthog"} and len({g["id"] for g in got}) == 25
    for query in ("limit=0", "limit=1001", "limit=x", "after_id=x", "after_id=-1", "other=1"):
        answer = project.door.call("GET", f"{project.api}/rejected?{query}")
        assert answer.status == 400 and answer.json["error"] == "invalid_request", (query, answer.status)
    assert len(project.rows()) == 1 and project.delivery()["rejected"] == 25
    # More than is named in one answer.
    answer = project.batch([{"distinct_id": "d"}] * 150 + [{"event": "ok", "distinct_id": "d"}])
    assert answer.json["rejected"] == 150 and len(answer.json["errors"]) == 100
    assert project.delivery()["rejected"] == 175 and len(project.rejected()) == 175


# ---- sizes, types, connections ----

def announce(door, path, length, headers=""):
    """Only the head of a request, with a length."""
    return door.raw((f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n").encode())


def test_sizes(project):
    """Proves: each route's limit is told in a 413 before the body is read, CORS and all, and what is just within passes."""
    door = project.door
    origin = "Origin: https://shop.example\r\n"
    for path, most in (("/e/", None), ("/batch/", 20 << 20), ("/v1/batch", 20 << 20), ("/v1/track", 1 << 20)):
        most = most or next(n for n in (1 << 20, 20 << 20) if b" 413 " in announce(door, path, n + 1, origin))
        auth = f"Authorization: {basic(project.token)}\r\n"
        got = announce(door, path, most + 1, origin + auth)
        assert got.startswith(b"HTTP/1.1 413 ") and str(most).encode() in got and b"Access-Control-Allow-Origin: https://shop" in got, (path, got)
        assert b"\r\nConnection: close\r\n" in got
    chunked = ("POST /v1/track HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + "200000\r\n").encode()
    assert door.raw(chunked + b"x" * (1 << 20)).startswith(b"HTTP/1.1 413 ")
    for path, most in (("/batch/", 20 << 20), ("/v1/track", 1 << 20)):
        for _ in range(5):  # who sends all of it first can read the answer, too, or would send it again for ever
            answer = door.post(path, b" " * (most + (1 << 21)))
            assert answer.status == 413 and str(most).encode() in answer.body
    big = {"event": "big", "distinct_id": "d", "properties": {"fill": ""}}
    room = (1 << 20) - len(json.dumps(big))
    answer = project.batch([{**big, "properties": {"fill": "x" * room}}, {**big, "properties": {"fill": "x" * (room + 1)}}])
    assert answer.status == 200 and answer.json["accepted"] == 1 and answer.json["errors"][0]["index"] == 1, answer.body
    call = {**CALL, "properties": {"fill": ""}}
    room = (1 << 20) - len(json.dumps(call))
    assert project.segment("/v1/track", {**call, "properties": {"fill": "x" * room}}).status == 200
    assert len(project.rows()) == 2
    assert {len(row["properties"]) > 1_000_000 for row in project.rows()} == {True}


def test_the_largest_batch(project):
    """Proves: 50,000 events in one request are taken at once and all arrive, once; 50,001 are 413, which says so, and nothing is stored."""
    event = '{"event":"e","distinct_id":"d","properties":{"n":%d}}'
    body = '{"api_key":"%s","batch":[%s]}'
    over = (body % (project.token, ",".join([event % 1] * 50001))).encode()
    for path, data in (("/batch/", over), ("/batch/", packed(over))):
        answer = project.door.post(path, data, {"Content-Encoding": "gzip"} if data is not over else {})
        assert answer.status == 413 and b"50000" in answer.body, answer.body
    assert project.empty()
    exact = (body % (project.token, ",".join(event % n for n in range(50000)))).encode()
    answer = project.door.post("/batch/", packed(exact), {"Content-Encoding": "gzip"})
    assert (answer.status, answer.body) == (200, b'{"status":"Ok"}')
    rows = project.rows()
    assert sorted(json.loads(row["properties"])["n"] for row in rows) == list(range(50000))


def test_content_types_do_not_matter(project):
    """Proves: PostHog's and Segment's routes read JSON whatever Content-Type says; v1 needs its own."""
    types = ["application/json", "text/plain", "text/plain;charset=UTF-8", "application/octet-stream", "application/x-www-form-urlencoded",
             "multipart/form-data; boundary=x", "", "x", "application/json; charset=latin1"]
    for kind in types:
        assert project.door.post("/e/", project.event(), {"Content-Type": kind}).status == 200, kind
        assert project.door.post("/v1/track", {**CALL, "writeKey": project.token}, {"Content-Type": kind}).status == 200, kind
    answer = project.door.post(V1, v1_body(), v1_headers(project.token, **{"Content-Type": "text/plain"}))
    assert answer.status == 415 and "error_description" in answer.json
    assert len(project.rows()) == 2 * len(types)


def test_v1_headers(project):
    """Proves: v1 asks for each of its headers, refuses batches whose uuids cannot be told apart, drops single events with a reason."""
    door = project.door
    whole = v1_headers(project.token)
    for name in whole:
        answer = door.post(V1, v1_body(), {k: v for k, v in whole.items() if k != name})
        assert answer.status == (401 if name == "Authorization" else 400), (name, answer.body)
        assert set(answer.json) == {"error", "error_description", "error_uri"}
    same = str(uuid.uuid4())
    for body in (v1_body({"uuid": same}, {"uuid": same}), v1_body({"uuid": "x"}), v1_body({"uuid": None}), {**v1_body(), "created_at": "now"},
                 {"batch": []}, {"created_at": rfc3339(0)}, [], {**v1_body(), "batch": {}}):
        answer = door.post(V1, body, v1_headers(project.token))
        assert answer.status == 400, (body, answer.body)
    assert project.empty()
    body = v1_body({}, {"event": ""}, {"distinct_id": "x" * 201}, {"timestamp": "soon"}, {"properties": []}, {"options": 5}, {})
    answer = door.post(V1, packed(json.dumps(body).encode()), v1_headers(project.token, **{"Content-Encoding": "gzip"}))
    results = answer.json["results"]
    assert [results[e["uuid"]]["result"] for e in body["batch"]] == ["ok", "drop", "drop", "drop", "drop", "drop", "ok"]
    assert all(results[e["uuid"]].get("details") for e in body["batch"][1:6])
    assert len(project.rows()) == 2 and project.rejected() == []


def test_pipelined_and_kept_alive(project):
    """Proves: pipelined requests of all dialects are answered in order, an error that left no body behind does not end the connection, and one
    that did ends it."""
    door = project.door

    def request(path, value, headers="", length=None):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) if length is None else length}\r\n{headers}\r\n"
        return head.encode() + body
    auth = f"Authorization: {basic(project.token)}\r\n"
    wanted = []
    stream = b""
    for n in range(8):
        for path, value, headers, status in (("/e/", project.event(f"p{n}"), "", 200), ("/e/", b"{", "", 400),
                                             ("/v1/track", {**CALL, "event": f"s{n}"}, auth, 200), ("/e/", {"event": "e"}, "", 401),
                                             ("/batch/?beacon=1", {"api_key": project.token, "batch": [project.event(f"b{n}")]}, "", 204)):
            stream += request(path, value, headers)
            wanted.append(status)
    got = door.raw(stream)
    assert [int(s) for s in re.findall(rb"HTTP/1\.1 (\d\d\d) ", got)] == wanted
    assert len(project.rows()) == 24
    conn = door.server.connection()
    for n in range(3):
        for body, status in ((b"{", 400), (json.dumps(project.event("k")).encode(), 200)):
            conn.request("POST", "/e/", body)
            response = conn.getresponse()
            response.read()
            assert response.status == status
    conn.close()
    got = door.raw(request("/v1/track", project.event(), "Authorization: " + basic("tmc_nobody") + "\r\n") + request("/e/", project.event()))
    assert re.findall(rb"HTTP/1\.1 (\d\d\d) ", got) == [b"401"] and b"Connection: close" in got
    assert len(project.rows()) == 27


def test_expect_continue(project):
    """Proves: with Expect a body is asked for only when the key in the head is good."""
    door = project.door
    body = json.dumps(CALL).encode()
    for key, first in ((project.token, b"HTTP/1.1 100 "), ("tmc_nobody", b"HTTP/1.1 401 ")):
        with socket.create_connection((door.server.host, door.server.port), 10) as sock:
            sock.sendall(f"POST /v1/track HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n"
                         f"Authorization: {basic(key)}\r\nConnection: close\r\n\r\n".encode())
            got = sock.recv(65536)
            assert got.startswith(first), got
            if first.endswith(b"100 "):
                sock.sendall(body)
                assert drain(sock).startswith(b"HTTP/1.1 200 ")
    assert len(project.rows()) == 1


# ---- budgets ----

def test_budgets(make_server):
    """Proves: a project may hold half of the queue and the instance all of it; beyond that each dialect says so in the way in which its SDKs wait,
    nothing is stored of such a request, repeats are still known, and intake goes on when there is room."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Error(241)]
        door = Door(make_server("--clickhouse-url", far.url, "--queue-events-max", "20"), far)
        one, two, three = door.project(), door.project(), door.project()
        ids = [str(uuid.uuid4()) for _ in range(10)]
        events = [{"event": "e", "distinct_id": "d", "uuid": i} for i in ids]
        assert one.batch(events).json == {"status": "Ok"}

        def refused(project):
            fresh = {"event": "e", "distinct_id": "d"}
            for answer, want in ((project.batch([fresh]), 503), (door.post("/e/", project.event(), ORIGIN), 503),
                                 (door.post("/e/?beacon=1", project.event(), ORIGIN), 503),
                                 (door.post(V1, v1_body(), v1_headers(project.token)), 503),
                                 (project.segment("/v1/batch", {"batch": [{**CALL, "type": "track"}]}), 429),
                                 (project.segment("/v1/track", CALL), 429), (project.native([{"event": "e"}]), 503)):
                assert answer.status == want and answer.headers["retry-after"] == "30", (answer.status, answer.headers, answer.body)
            assert project.native([{"event": "e"}]).json["error"] == "queue_full"
            assert_cors(door.post("/e/", project.event(), ORIGIN))
        refused(one)
        assert one.batch(events).json["duplicates"] == 10  # what is known is told
        assert two.batch([{"event": "e", "distinct_id": "d"}] * 11).status == 503  # all or nothing
        assert two.batch([{"event": "e", "distinct_id": "d"}] * 10).json == {"status": "Ok"}
        refused(two)
        refused(three)
        assert [p.delivery()["pending"] for p in (one, two, three)] == [10, 10, 0]
        far.faults = []
        assert (len(one.rows()), len(two.rows())) == (10, 10)
        for project in (one, two, three):
            assert project.batch([{"event": "later", "distinct_id": "d"}]).json == {"status": "Ok"}
        assert len(three.rows()) == 1
        assert_sound(door.server)


# ---- restarts, crowds ----

def test_restart_keeps_everything(make_server):
    """Proves: projects, keys, scopes, rejected events, counters and the queue are the same after a stop and after a kill."""
    with FakeClickHouse() as far:
        far.faults = [lambda _: Error(241)]
        door = Door(make_server("--clickhouse-url", far.url), far)
        project = door.project()
        project.key("segment", "web")
        service = project.key("service", "s", ["events:read", "query:read"])
        gone = project.key("capture", "gone")
        key = [k["id"] for k in door.call("GET", project.api + "/keys").json["keys"] if k["name"] == "gone"][0]
        assert door.call("DELETE", f"{project.api}/keys/{key}").status == 204
        assert project.batch([{"event": "a", "distinct_id": "d"}, {"event": "b"}]).status == 200

        def state():
            shown = door.call("GET", project.api).json
            shown["delivery"].pop("error", None)
            return (shown, project.rejected(), door.receipts(),
                    door.server.get(project.api + "/status", headers={"Authorization": f"Bearer {service}"}).status,
                    door.post("/e/", {"api_key": gone, "event": "e", "distinct_id": "d"}).status)
        before = state()
        assert before[0]["delivery"]["pending"] == 1 and before[3:] == (200, 401) and len(before[1]) == 1
        assert "tms_" not in json.dumps(before[0])
        for end in ("stop", "kill"):
            getattr(door.server, end)()
            assert verify(door.server.data)["queue"]["ok"]
            door.server.start()
            assert state() == before
        far.faults = []
        assert len(project.rows()) == 1
        assert_sound(door.server)


def test_a_crowd_of_all_dialects(make_server):
    """Proves: 64 connections that mix all dialects, bad requests and repeats leave exactly what their answers said."""
    with FakeClickHouse() as far:
        door = Door(make_server("--clickhouse-url", far.url), far)
        projects = [door.project() for _ in range(4)]
        shared = [str(uuid.uuid4()) for _ in range(50)]
        rounds = 6 if SANITIZED else 12
        lock, failures = threading.Lock(), []
        told = {p.name: [0, 0, 0] for p in projects}  # accepted, duplicates, rejected

        def client(seed):
            rng = random.Random(seed)
            conn = door.server.connection(timeout=60)

            def ask(path, value, headers=None):
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                conn.request("POST", path, body, {**JSON, **(headers or {})})
                response = conn.getresponse()
                return response.status, response.read()
            try:
                for n in range(rounds):
                    p = projects[rng.randrange(4)]
                    event = {"event": f"c{seed}", "distinct_id": "d", "properties": {"n": n, "fill": "x" * rng.randrange(2000)}}
                    events = [{**event, "uuid": rng.choice(shared) if rng.random() < 0.3 else str(uuid.UUID(int=rng.getrandbits(128)))}
                              for _ in range(rng.randrange(1, 20))]
                    bad = [{"distinct_id": "d"}] * rng.randrange(3)
                    kind = rng.randrange(6)
                    if kind == 0:
                        got = ask("/batch/", {"api_key": p.token, "batch": events + bad})
                    elif kind == 1:
                        got = ask("/batch/", packed({"api_key": p.token, "batch": events + bad}), {"Content-Encoding": "gzip"})
                    elif kind == 2:
                        got = ask("/v1/batch", {"batch": [{"type": "track", "event": "s", "userId": "u", "messageId": e["uuid"]} for e in events] +
                                                [{"type": "nonsense"}] * len(bad)}, {"Authorization": basic(p.token)})
                    elif kind == 3:
                        batch = v1_body(*{e["uuid"]: {"uuid": e["uuid"], "event": "v"} for e in events}.values())
                        got = ask(V1, batch, v1_headers(p.token))
                        assert got[0] == 200, got
                        assert {r["result"] for r in json.loads(got[1])["results"].values()} == {"ok"}
                        continue
                    elif kind == 4:
                        assert ask("/e/", b"{\"half\":")[0] == 400
                        continue
                    else:
                        assert ask("/e/", {**event, "api_key": "tmc_nobody"})[0] == 401
                        continue
                    assert got[0] == 200, got
                    counts = json.loads(got[1])
                    with lock:
                        for i, name in enumerate(("accepted", "duplicates", "rejected")):
                            told[p.name][i] += counts.get(name, len(events) if name == "accepted" else 0)
            except BaseException as failure:
                failures.append(failure)
            finally:
                conn.close()
        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(64)]
        for thread in threads:
            thread.start()
        wait(lambda: verify(door.server.data)["queue"]["ok"] or not any(t.is_alive() for t in threads), "a look at the queue")
        for thread in threads:
            thread.join(120)
        assert not failures, failures[0]
        total = 0
        for p in projects:
            rows = p.rows()
            total += len(rows)
            assert len({row["uuid"] for row in rows}) == len(rows)
            v1_rows = sum(row["event"] == "v" for row in rows)
            # v1 does not tell repeats from new ones: its events are between none and all of the rest.
            assert told[p.name][0] + v1_rows == len(rows), (told[p.name], v1_rows, len(rows))
            assert p.delivery()["rejected"] == told[p.name][2]
        assert door.receipts() == total
        assert door.server.metric("tallyman_capture_events_total") == total
        assert_sound(door.server)
