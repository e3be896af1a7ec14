"""The verbs project, key, query, rejected and status --project, as a person at a terminal and a script use them: on the Unix socket and
over TCP with a service key; what they print, their errors and exit codes. And the queries behind them, on the embedded engine.
"""
import csv
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import uuid

import pytest

from capture_kit import Door, assert_sound, environment, serving, wait
from conftest import BINARY, ROOT, Server, tallyman
from fake_clickhouse import Error

ALL_SCOPES = ["artifacts:read", "artifacts:release", "events:edit", "events:read", "events:write", "projects:admin", "query:read"]


@pytest.fixture(scope="module")
def door():
    with serving() as it:
        yield it


@pytest.fixture(scope="module")
def engine():
    """A server with the embedded engine and small limits."""
    (ROOT / "build" / "tmp").mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="t-", dir=ROOT / "build" / "tmp"))
    server = Server(path / "data", "--query-rows-max", "5000", "--query-bytes-max", "256KiB", "--query-time-ms", "3s",
                    env=environment())
    try:
        server.start()
        yield Door(server)
        assert_sound(server)
    finally:
        if server.process is not None:
            server.kill()
        shutil.rmtree(path, ignore_errors=True)


def fresh():
    return f"c{uuid.uuid4().hex[:12]}"


@pytest.fixture
def project(door):
    return door.project(fresh())


def token_file(path, token):
    path.write_text(token + "\n")
    path.chmod(0o600)
    return str(path)


class Cli:
    """The verbs on one server, over the socket, or over TCP with a key."""

    def __init__(self, server, url_words=None):
        self.words = url_words or ("--data", str(server.data))

    def __call__(self, *args, want=0):
        result = tallyman(args[0], *self.words, *args[1:])
        assert result.returncode == want, (args, result.returncode, result.stdout, result.stderr)
        if want:
            assert result.stderr.startswith("tallyman ") and result.stderr.count("\n") == 1, result.stderr
        else:
            assert result.stderr == "", result.stderr
        return result.stdout if want == 0 else result.stderr


@pytest.fixture
def cli(door):
    return Cli(door.server)


def over_tcp(server, path, token):
    return Cli(server, ("--url", server.url, "--token-file", token_file(path, token)))


def columns(text):
    """A table as rows of cells: columns are at least two blanks apart."""
    head, *rows = text.splitlines()
    starts = [i for i, c in enumerate(head) if c != " " and (i == 0 or head[i - 2:i] == "  ")]
    return [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None])] for line in (head, *rows)]


# ---- projects and keys ----

def test_project_create_list_show(door, cli):
    """Proves: create prints the capture token, which works; list and show have it, as a table and as JSON; names are shown as they are."""
    name = fresh()
    out = cli("project", "create", name, "--name", 'Dé "mo" \\ 1')
    for bad in ("tab\t", "esc\x1b[31m", "c1\u009b1m", "line\n"):
        assert "invalid_project" in cli("project", "create", fresh(), "--name", bad, want=1), bad
    lines = dict(line.rsplit(" ", 1) for line in out.splitlines())
    assert set(lines) == {"project", "capture token"} and lines["project"] == name
    token = lines["capture token"]
    assert token.startswith("tmc_")
    assert door.post("/e/", {"api_key": token, "event": "e", "distinct_id": "d"}).status == 200
    made = json.loads(cli("project", "create", fresh(), "--json"))
    assert set(made) == {"id", "name", "created_at", "capture_token", "artifacts"} and made["name"] == made["id"]
    table = columns(cli("project", "list"))
    assert table[0] == ["PROJECT", "NAME", "CREATED", "CAPTURE TOKEN", "ARTIFACTS"]
    row = [row for row in table if row[0] == name][0]
    assert row[1] == 'Dé "mo" \\ 1' and row[3] == token, row
    listed = json.loads(cli("project", "list", "--json"))["projects"]
    assert [p["capture_token"] for p in listed if p["id"] == name] == [token]
    shown = cli("project", "show", name)
    assert token in shown and "delivery.pending" in shown and 'Dé "mo" \\ 1' in shown
    assert json.loads(cli("project", "show", name, "--json"))["keys"][0]["token"] == token


def test_project_errors(cli, project):
    """Proves: every mistake has one line that says what is wrong; 2 for the command line, 1 for what the server says."""
    for name in ("Bad", "", "a b", "-x", "x" * 64, "ä", "a/b", "a%2fb", "a.b", "_x"):
        assert "invalid_project" in cli("project", "--", "create", name, want=1), name
    assert "project_exists" in cli("project", "create", project.name, want=1)
    assert "invalid_project" in cli("project", "create", fresh(), "--name", "x" * 201, want=1)
    for name in ("nowhere", "a b", "../status", "?x", "x/keys"):
        assert "not_found" in cli("project", "show", name, want=1), name
    for words in (["project", "create"], ["project", "list", "x"], ["project", "show"], ["project", "drop", "x"],
                  ["key", "create"], ["key", "revoke", project.name], ["key", "list", project.name, "1"], ["key", "mint", project.name],
                  ["query", "select 1"], ["rejected"], ["query", "--project", project.name],
                  ["query", "select 1", "--project", project.name, "--format", "xml"],
                  ["key", "create", project.name], ["key", "create", project.name, "--kind", "service"]):
        cli(*words, want=2)
    result = tallyman("project")
    assert result.returncode == 2 and result.stderr


def test_keys(door, project, cli):
    """Proves: keys of each kind are made, listed and revoked; a service key's text is printed once and never again; a revoked key is refused
    at once; the last capture key stays."""
    out = cli("key", "create", project.name, "--scopes", "query:read, events:read,events:write", "--name", "dash")
    service = out.splitlines()[1].rsplit(" ", 1)[1]
    assert service.startswith("tms_") and "only now" in out
    web = json.loads(cli("key", "create", project.name, "--kind", "segment", "--name", "web", "--json"))
    assert web["kind"] == "segment" and web["name"] == "web" and web["revoked_at"] is None
    capture = json.loads(cli("key", "create", project.name, "--kind", "capture", "--json"))
    assert capture["name"] == "default" and capture["token"].startswith("tmc_")
    assert service not in cli("key", "list", project.name) + cli("key", "list", project.name, "--json") + cli("project", "show", project.name)
    table = columns(cli("key", "list", project.name))
    assert table[0] == ["KEY", "KIND", "NAME", "SCOPES", "CREATED", "REVOKED", "TOKEN"]
    rows = {row[2]: row for row in table[2:]}
    assert rows["dash"][1] == "service" and set(rows["dash"][3].split(",")) == {"query:read", "events:read", "events:write"} and rows["dash"][6] == ""
    assert rows["web"][3] == "" and rows["web"][6] == web["token"]
    body = {"events": [{"event": "n"}]}
    bearer = {"Authorization": f"Bearer {service}"}
    assert door.post(project.api + "/events", body, bearer).status == 200
    assert cli("key", "revoke", project.name, rows["dash"][0]) == ""
    assert door.post(project.api + "/events", body, bearer).status == 401
    assert cli("key", "revoke", project.name, rows["dash"][0]) == ""
    row = [row for row in columns(cli("key", "list", project.name)) if row[2] == "dash"][0]
    assert row[5].endswith("Z")
    for key in ("999999", "x", "-0", "1e0", "", "1/../2"):
        assert "not_found" in cli("key", "revoke", "--", project.name, key, want=1), key
    cli("key", "revoke", project.name, capture["id"])
    last = json.loads(cli("key", "list", project.name, "--json"))["keys"][0]
    assert "invalid_key" in cli("key", "revoke", project.name, last["id"], want=1)
    other = door.project(fresh())
    assert "not_found" in cli("key", "revoke", other.name, web["id"], want=1)
    for words in (["--kind", "admin", "--scopes", "query:read"], ["--scopes", "everything"], ["--scopes", ""],
                  ["--kind", "capture", "--scopes", "query:read"], ["--kind", "segment", "--name", "a b"],
                  ["--kind", "segment", "--name", "x" * 65]):
        assert "invalid_key" in cli("key", "create", project.name, *words, want=1), words
    assert "not_found" in cli("key", "create", "nowhere", "--scopes", "query:read", want=1)


def test_the_same_over_tcp(door, project, workdir):
    """Proves: with --url and a service key in a file the verbs do what the key may do, and say what is missing where it may not."""
    admin = over_tcp(door.server, workdir / "admin", project.key("service", "admin", ["projects:admin"]))
    reader = over_tcp(door.server, workdir / "reader", project.key("service", "reader", ["events:read"]))
    other = door.project(fresh())
    assert {row[0] for row in columns(admin("project", "list"))[1:]} >= {project.name, other.name}
    assert [row[0] for row in columns(reader("project", "list"))[1:]] == [project.name]
    made = fresh()
    assert made in admin("project", "create", made)
    assert "forbidden" in reader("project", "create", fresh(), want=1)
    assert project.token in admin("project", "show", project.name)
    assert "forbidden" in admin("project", "show", other.name, want=1)
    assert "forbidden" in admin("project", "show", "nowhere", want=1)
    assert "forbidden" in reader("project", "show", project.name, want=1)
    token = admin("key", "create", project.name, "--scopes", "query:read", "--name", "new").splitlines()[1].rsplit(" ", 1)[1]
    assert "forbidden" in admin("key", "create", other.name, "--scopes", "query:read", want=1)
    assert "forbidden" in reader("key", "list", project.name, want=1)
    query = over_tcp(door.server, workdir / "query", token)
    assert project.batch([{"event": "ok", "distinct_id": "d"}, {"event": "bad"}]).status == 200
    project.rows()
    assert "distinct_id is missing" in reader("rejected", "--project", project.name)
    assert "forbidden" in query("rejected", "--project", project.name, want=1)
    for who in (reader, query):
        assert "delivery.rejected" in who("status", "--project", project.name)
        assert "forbidden" in who("status", "--project", other.name, want=1)
        assert "forbidden" in who("status", want=1)
    assert json.loads(admin("status", "--json"))["queue"]["pending"] >= 0
    assert "forbidden" in admin("status", "--project", project.name, want=1)
    assert "engine_unavailable" in query("query", "select 1", "--project", project.name, want=1)
    assert "forbidden" in reader("query", "select 1", "--project", project.name, want=1)
    keys = json.loads(admin("key", "list", project.name, "--json"))["keys"]
    new = [key["id"] for key in keys if key["name"] == "new"][0]
    admin("key", "revoke", project.name, new)
    assert "unauthorized" in query("status", "--project", project.name, want=1)
    nobody = over_tcp(door.server, workdir / "nobody", "tms_nobody")
    public = over_tcp(door.server, workdir / "public", project.token)
    bare = Cli(door.server, ("--url", door.server.url))
    for who in (nobody, public, bare):
        assert "unauthorized" in who("project", "list", want=1)
        assert "unauthorized" in who("status", want=1)
    missing = Cli(door.server, ("--url", door.server.url, "--token-file", str(workdir / "none")))
    missing("project", "list", want=2)
    open_to_all = workdir / "open"
    token_file(open_to_all, "tms_x")
    open_to_all.chmod(0o644)
    result = tallyman("project", "list", "--url", door.server.url, "--token-file", str(open_to_all))
    assert result.returncode in (1, 2) and "tms_x" not in result.stderr


@pytest.mark.parametrize("scope", ALL_SCOPES)
def test_scopes(door, project, scope):
    """Proves: each scope opens exactly what the table says, and nothing of another project."""
    token = project.key("service", "s", [scope])
    other = door.project(fresh())
    bearer = {"Authorization": f"Bearer {token}"}

    def calls(name):
        api = f"/api/v1/projects/{name}"
        return {("events:read", "query:read"): [("GET", api + "/status", None)],
                ("events:read",): [("GET", api + "/rejected", None)],
                ("query:read",): [("POST", api + "/query", {"sql": "select 1"})],
                ("events:write",): [("POST", api + "/events", {"events": [{"event": "e"}]})],
                ("projects:admin",): [("GET", api, None), ("GET", api + "/keys", None),
                                      ("POST", api + "/keys", {"kind": "segment", "name": "k"}), ("DELETE", api + "/keys/999999", None)]}
    for scopes, requests in calls(project.name).items():
        for method, path, value in requests:
            answer = door.call(method, path, value, bearer, unix=False)
            want = {200, 201, 404, 503} if scope in scopes else {403}
            assert answer.status in want, (scope, method, path, answer.status, answer.body)
    for name in (other.name, "nowhere"):
        for requests in calls(name).values():
            for method, path, value in requests:
                answer = door.call(method, path, value, bearer, unix=False)
                assert answer.status == 403, (scope, method, path, answer.status)
    for method, path, value in (("GET", "/api/v1/status", None), ("POST", "/api/v1/projects", {"id": fresh()})):
        answer = door.call(method, path, value, bearer, unix=False)
        assert (answer.status in (200, 201)) == (scope == "projects:admin") and answer.status in (200, 201, 403)
    listed = door.call("GET", "/api/v1/projects", None, bearer, unix=False).json["projects"]
    assert scope == "projects:admin" or [p["id"] for p in listed] == [project.name]


def test_management_bodies(door, project):
    """Proves: bodies of the management routes are strict: what is unknown, twice, of another type or no JSON is 400 and changes nothing."""
    before = door.call("GET", "/api/v1/projects").body
    cases = [("/api/v1/projects", b) for b in (b"", b"{}", b"[]", b'{"id":1}', b'{"id":"x","x":1}', b'{"id":"x","id":"y"}', b'{"id":"x"',
                                               b'{"id":null}', b'{"id":"x","name":5}', b'{"id":"x","name":""}'[:-1] + b',"y":1}')]
    keys = project.api + "/keys"
    cases += [(keys, b) for b in (b"{}", b'{"kind":"service","name":"a","scopes":"query:read"}', b'{"kind":"service","name":"a","scopes":[1]}',
                                  b'{"kind":5}', b'{"kind":"segment","name":"a","token":"tmc_mine"}', b'{"kind":"segment","name":"a"} x')]
    cases += [(project.api + "/query", b) for b in (b"{}", b'{"sql":5}', b'{"sql":"select 1","format":"xml"}', b'{"sql":"select 1","x":1}')]
    for path, body in cases:
        answer = door.post(path, body, unix=True)
        assert answer.status in (400, 503) and answer.json["error"] and answer.json["message"], (path, body, answer.status, answer.body)
        assert answer.status == 400 or path.endswith("/query"), (path, body)
    large = json.dumps({"id": "x", "name": "y" * 70_000}).encode()
    assert door.post("/api/v1/projects", large, unix=True).status == 413
    assert door.post("/api/v1/projects", b"{}", {"Content-Type": "text/plain"}, unix=True).status == 415
    assert door.post("/api/v1/projects", b"{}", {"Content-Encoding": "gzip"}, unix=True).status == 415
    assert door.call("GET", "/api/v1/projects").body == before
    assert len(door.call("GET", keys).json["keys"]) == 1


def test_status_of_a_project(door, project, cli):
    """Proves: status --project shows its delivery, with the cause only while something waits, as lines and as JSON."""
    door.far.faults = [lambda i: Error(241) if project.name in i.projects else None]
    try:
        assert project.native([{"event": "e"}] * 3).status == 200
        wait(lambda: project.delivery().get("error"), "an error")
        shown = dict(line.split(None, 1) for line in cli("status", "--project", project.name).splitlines())
        assert shown["project"] == project.name and shown["delivery.pending"] == "3" and shown["delivery.error"]
        d = json.loads(cli("status", "--project", project.name, "--json"))["delivery"]
        assert d["pending"] == 3 and d["oldest_pending_received_at"].endswith("Z") and d["enabled"] is True
    finally:
        door.far.faults = []
    project.rows()
    d = json.loads(cli("status", "--project", project.name, "--json"))["delivery"]
    assert d["pending"] == 0 and "error" not in d and "oldest_pending_received_at" not in d and d["last_success"].endswith("Z")
    assert "not_found" in cli("status", "--project", "nowhere", want=1)


def test_rejected(door, project, cli):
    """Proves: rejected lists all of them, more than a page, with reason and text; as JSON one a line; nothing for nothing."""
    assert cli("rejected", "--project", project.name) == ""
    assert project.batch([{"distinct_id": "d", "n": n} for n in range(1200)] + [{"event": "ok", "distinct_id": "d"}]).status == 200
    out = cli("rejected", "--project", project.name).splitlines()
    assert len(out) == 2400 and "posthog, event 0 of its batch: " in out[0]
    assert json.loads(out[1]) == {"distinct_id": "d", "n": 0} and json.loads(out[-1])["n"] == 1199
    lines = [json.loads(line) for line in cli("rejected", "--project", project.name, "--json").splitlines()]
    assert [line["index"] for line in lines] == list(range(1200))
    assert "not_found" in cli("rejected", "--project", "nowhere", want=1)


def test_no_secret_in_logs(make_server, workdir):
    """Proves: no token, of whatever kind, gets into the server's log, also when it is wrong or in a wrong place."""
    server = make_server("--log-level", "debug", "--engine", "off")
    door = Door(server)
    project = door.project(fresh())
    service = project.key("service", "s", ["query:read", "events:write"])
    wrong = "tms_" + "w" * 40
    cli = over_tcp(server, workdir / "token", service)
    cli("status", "--project", project.name)
    for token in (service, wrong, project.token):
        for path in (f"/api/v1/projects/{token}", f"/e/?api_key={token}", f"/v1/track?k={token}", f"/array/{token}/config", f"/x/{token}"):
            door.server.request("POST", path, json.dumps({"api_key": token, "event": "e"}).encode(),
                                {"Authorization": f"Bearer {token}", "Content-Type": token})
        door.raw(f"BROKEN {token} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    assert "engine_unavailable" in cli("query", "select 1", "--project", project.name, want=1)
    assert server.stop() == 0
    assert len(server.log) > 100
    for token in (service, wrong, project.token):
        assert token not in server.log
    for path in server.data.rglob("*"):
        if path.is_file():
            assert service.encode() not in path.read_bytes(), path  # only its hash is kept


# ---- queries ----

@pytest.fixture(scope="module")
def asked(engine):
    """A project with three events that are delivered."""
    project = engine.project(fresh())
    items = [{"event": "page", "distinct_id": "a", "properties": {"price": 1.5, "text": 'quoted "x", ünï\n'}},
             {"event": "page", "distinct_id": "b", "properties": {"price": None}}, {"event": "buy", "distinct_id": "a"}]
    for n, item in enumerate(items):
        assert project.native([{**item, "timestamp": f"2026-11-0{n + 1}T00:00:00Z"}]).status == 200
    wait(lambda: project.delivery()["pending"] == 0, "delivery")
    return project


SQL = "select event, distinct_id, JSONExtractString(properties, 'text') as text, nullIf(event, 'buy') as maybe from events order by timestamp"
ROWS = [("page", "a", 'quoted "x", ünï\n', "page"), ("page", "b", "", "page"), ("buy", "a", "", None)]


def test_query_formats(engine, asked, workdir):
    """Proves: the same rows come as a table, JSON, NDJSON and CSV, over the socket and over TCP; NULL can be told from empty text."""
    key = asked.key("service", "q", ["query:read"])
    for cli in (Cli(engine.server), over_tcp(engine.server, workdir / "key", key)):
        whole = json.loads(cli("query", SQL, "--project", asked.name, "--format", "json"))
        assert whole["rows"] == 3 and [m["name"] for m in whole["meta"]] == ["event", "distinct_id", "text", "maybe"]
        assert [tuple(row.values()) for row in whole["data"]] == ROWS
        assert whole["delivery"]["pending"] == 0
        for words in (["--format", "ndjson"], []):
            lines = cli("query", SQL, "--project", asked.name, *words).splitlines()
            assert [tuple(json.loads(line).values()) for line in lines] == ROWS
        rows = list(csv.reader(io.StringIO(cli("query", SQL, "--project", asked.name, "--format", "csv"))))
        assert rows[0] == ["event", "distinct_id", "text", "maybe"] and [tuple(r[:3]) for r in rows[1:]] == [r[:3] for r in ROWS]
        table = columns(cli("query", SQL, "--project", asked.name, "--format", "table"))
        assert table[0] == ["event", "distinct_id", "text", "maybe"]
        assert table[1] == ["page", "a", 'quoted "x", ünï?', "page"] and table[3] == ["buy", "a", "", "NULL"]
        assert cli("query", "select event from events where 0", "--project", asked.name, "--format", "ndjson") == ""
        assert columns(cli("query", "select event from events where 0", "--project", asked.name, "--format", "table")) == [["event"]]
        # Nothing that is printed for people moves their cursor.
        odd = "select concat('a', char(27), '[31m', char(194, 155), 'b', char(127)) as x"
        assert cli("query", odd, "--project", asked.name, "--format", "table").splitlines()[1] == "a?[31m??b?"
        everything = columns(cli("query", "select * from events order by timestamp", "--project", asked.name, "--format", "table"))
        assert len(everything) == 4 and "properties" in everything[0]


def test_query_over_http(engine, asked):
    """Proves: NDJSON and CSV carry the delivery in a header, JSON in a member, with the types' names."""
    for form, kind in (("ndjson", "application/x-ndjson"), ("csv", "text/csv")):
        answer = engine.call("POST", asked.api + "/query", {"sql": "select event from events order by timestamp", "format": form})
        assert answer.status == 200 and answer.headers["content-type"].startswith(kind), answer.headers
        assert json.loads(answer.headers["tallyman-delivery"])["pending"] == 0
    got = engine.call("POST", asked.api + "/query", {"sql": "select count() as n, max(timestamp) as t from events"}).json
    assert got["meta"][0] == {"name": "n", "type": "UInt64"} and got["meta"][1]["type"].startswith("DateTime64")
    assert got["data"][0]["n"] == 3 and got["delivery"]["enabled"] is True


@pytest.mark.parametrize("sql, told", [
    ("selekt 1", "selekt"), ("select nothing from events", "nothing"), ("select 1 from nowhere", "nowhere"), ("", ""), ("   ", ""),
    ("select 1; select 2", ""), ("select 1 format TSV", ""), ("select 1 settings max_threads = 1", ""), ("select 'x", ""),
    ("insert into events values (1)", ""), ("drop table tallyman.events_v2", ""), ("select 1 into outfile '/tmp/x'", "")])
def test_query_refused(engine, asked, sql, told):
    """Proves: what is no single read-only statement is 400 invalid_query with a reason, one line on the terminal and exit code 1."""
    answer = engine.call("POST", asked.api + "/query", {"sql": sql})
    assert answer.status == 400 and answer.json["error"] in ("invalid_query", "invalid_request"), (sql, answer.status, answer.body)
    assert told in answer.json["message"] and answer.json["message"]
    text = Cli(engine.server)("query", "--project", asked.name, "--", sql, want=1)
    assert "answered 400" in text and len(text) < 3000


@pytest.mark.parametrize("sql", ["select number from system.numbers limit 5001", "select repeat('x', 1000000) as x from events",
                                 "select count() from numbers(1000000000000)"], ids=["rows", "bytes", "time"])
def test_query_limits(engine, asked, sql):
    """Proves: beyond a limit is 422 and no half result; after it the engine answers as before."""
    for form in ("json", "ndjson", "csv"):
        answer = engine.call("POST", asked.api + "/query", {"sql": sql, "format": form})
        if answer.status == 400 and "system" in sql:  # system tables are not there for projects
            answer = engine.call("POST", asked.api + "/query", {"sql": "select number from numbers(5001)", "format": form})
        assert answer.status == 422 and answer.json["error"] == "query_limit", (form, answer.status, answer.body[:300])
        if "count()" in sql:
            break  # once is slow enough
    assert engine.call("POST", asked.api + "/query", {"sql": "select count() as n from events"}).json["data"] == [{"n": 3}]


def test_query_sees_one_project(engine, asked):
    """Proves: no statement of one project shows a row, a count or the name of another's events; the isolation suite tries far more."""
    other = engine.project(fresh())
    secret = "secret-" + uuid.uuid4().hex
    assert other.native([{"event": secret, "properties": {"s": secret}}]).status == 200
    wait(lambda: other.delivery()["pending"] == 0, "delivery")
    assert engine.call("POST", other.api + "/query", {"sql": "select event from events"}).json["data"] == [{"event": secret}]
    attempts = ["select * from events", "select * from q.events", "select * from tallyman.events_v2", "select * from tallyman.events_v2 final",
                "select * from events union all select * from q.events", f"select * from events where project = '{other.name}'",
                f"select * from events where 1 or project = '{other.name}'", "select * from merge('tallyman', '.*')",
                "select * from merge(REGEXP('.*'), '.*')", "select * from remote('localhost', tallyman.events_v2)",
                "select * from cluster('default', tallyman, events_v2)", "with events as (select * from tallyman.events_v2) select * from events",
                "select * from events settings log_comment = '%s'" % other.name, f"set log_comment = '{other.name}'",
                "select getSetting('log_comment')", "select * from system.query_log", "select query from system.processes",
                "select * from file('/etc/passwd', 'LineAsString')", "select * from url('http://127.0.0.1/', 'LineAsString')",
                "select * from executable('id', TSV, 'x String')", "select * from system.parts", "select * from system.tables",
                "select * from sqlite('%s/tallyman.sqlite', 'events')" % engine.server.data, "show tables from tallyman",
                f"select count() from events /* '{other.name}' */ where project != '{asked.name}'",
                "select * from loop('tallyman', 'events_v2') limit 10", "select * from mergeTreeIndex('tallyman', 'events_v2')",
                "explain select * from tallyman.events_v2", "select * from viewIfPermitted(select * from tallyman.events_v2 else null('x Int8'))"]
    for sql in attempts:
        for form in ("json", "csv"):
            answer = engine.call("POST", asked.api + "/query", {"sql": sql, "format": form})
            assert answer.status in (200, 400, 422), (sql, answer.status, answer.body[:300])
            assert secret.encode() not in answer.body, sql
            if "passwd" in sql:
                assert b"root:" not in answer.body
    got = engine.call("POST", asked.api + "/query", {"sql": f"select count() as n from events where project != '{asked.name}'"})
    assert got.json["data"] == [{"n": 0}]


def test_large_answers(make_server):
    """Proves: an answer up to the server's own limit is printed whole, as it comes; a reader that has enough ends the verb quietly."""
    server = make_server(env=environment())
    door = Door(server)
    project = door.project(fresh())
    wait(lambda: door.call("POST", project.api + "/query", {"sql": "select 1"}).status == 200, "the engine")
    cli = Cli(server)
    sql = "select number, repeat('x', 200) as x from numbers(100000)"
    for form, lines in (("ndjson", 100000), ("csv", 100001)):
        out = cli("query", sql, "--project", project.name, "--format", form)
        assert out.count("\n") == lines and len(out) > 17 << 20  # more than the client keeps in memory
    assert json.loads(cli("query", sql, "--project", project.name, "--format", "json"))["rows"] == 100000
    assert "larger than" in cli("query", sql, "--project", project.name, "--format", "table", want=1)
    with subprocess.Popen([BINARY, "query", "--data", str(server.data), "--project", project.name, sql], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b'{"number":')
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait(30) in (141, -signal.SIGPIPE)  # 141 to a shell


def test_engine_off(make_server):
    """Proves: without an engine events are taken and kept, and queries say why there are none."""
    server = make_server("--engine", "off")
    door = Door(server)
    project = door.project(fresh())
    assert project.native([{"event": "e"}]).status == 200
    cli = Cli(server)
    text = cli("query", "select 1", "--project", project.name, want=1)
    assert "503 engine_unavailable" in text and "off" in text
    d = json.loads(cli("status", "--project", project.name, "--json"))["delivery"]
    assert d["enabled"] is False and d["pending"] == 1
    answer = door.call("POST", project.api + "/query", {"sql": "select 1"})
    assert answer.status == 503 and answer.json["error"] == "engine_unavailable"
    assert_sound(server)
