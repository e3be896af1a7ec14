"""tallyman-engine as its callers meet it: ClickHouse's HTTP interface, durability, start and end."""
import gzip
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from engine_world import ENGINE, LIBCHDB, TABLE, Engine, row
from tracer import Attached

OWNER, PASSWORD = "owner", "correct horse battery"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    directory = tmp_path_factory.mktemp("engine")
    (directory / "secret").write_text(PASSWORD + "\n")
    one = Engine(directory / "engine", "--listen", "127.0.0.1:0", "--secret-file", str(directory / "secret")).start()
    one.port = int(re.search(r"\(port (\d+)\)", one.log).group(1))
    try:
        one.value("CREATE DATABASE t ENGINE = Atomic")
        one.value("CREATE TABLE t.a (n UInt32, s String, CONSTRAINT small CHECK n < 1000000) ENGINE = MergeTree ORDER BY n")
        yield one
    finally:
        one.stop()


@pytest.fixture
def fresh(tmp_path):
    made = Engine(tmp_path / "engine")
    yield made
    if made.process is not None:
        made.kill()


def refused(answer, status, code, text=None):
    assert answer.status == status, (answer.status, answer.body)
    assert answer.headers["x-clickhouse-exception-code"] == str(code)
    assert answer.body.startswith(b"Code: %d. DB::Exception: " % code), answer.body
    assert answer.body.endswith(b"\n")
    assert text is None or text in answer.body.decode(), answer.body
    return True


# ---- requests and answers ----

def test_ping_and_status(engine):
    assert engine.request("GET", "/ping").body == b"Ok.\n"
    assert engine.request("GET", "/").body == b"Ok.\n"
    assert engine.request("GET", "/status").json == {"state": "ready", "version": "26.7.3", "queries": "open", "reason": ""}
    assert engine.request("GET", "/nothing").status == 404
    assert engine.request("DELETE", "/").status == 405


def test_the_tables_are_made(engine):
    assert engine.value("SELECT count() FROM tallyman.events_v2") == "0\n"
    create = engine.value("SELECT create_table_query FROM system.tables WHERE name = 'events_v2' FORMAT TSVRaw")
    for part in ("ReplacingMergeTree(revision, is_deleted)", "PARTITION BY toYYYYMM(received_at)", "ORDER BY (project, uuid)",
                 "fsync_after_insert = 1", "fsync_part_directory = 1", "min_rows_to_fsync_after_merge = 1",
                 "min_compressed_bytes_to_fsync_after_merge = 1", "CHECK is_deleted <= 1"):
        assert part in create, create


def test_a_select_in_the_body_or_in_the_url(engine):
    assert engine.value("SELECT 1 + 1") == "2\n"
    assert engine.value("SELECT 1 + 1;\n") == "2\n"
    assert engine.value("SELECT 2 + 2", body="") == "4\n"
    assert engine.value("SELECT 3 +", body="3") == "6\n"
    assert engine.value("SELECT 4 + 4", method="GET") == "8\n"


def test_get_only_reads(engine):
    assert refused(engine.ask("INSERT INTO t.a VALUES (1, 'x')", method="GET"), 500, 164)
    assert refused(engine.ask("CREATE TABLE t.b (n UInt8) ENGINE = Memory", method="GET"), 500, 164)


def test_headers_of_an_answer(engine):
    answer = engine.ask("SELECT 1 AS n FORMAT JSONEachRow", query_id="my-id")
    assert answer.body == b'{"n":1}\n'
    assert answer.headers["x-clickhouse-query-id"] == "my-id"
    assert answer.headers["x-clickhouse-format"] == "JSONEachRow"
    assert answer.headers["x-clickhouse-timezone"] == "UTC"
    assert answer.headers["content-type"] == "application/x-ndjson; charset=UTF-8"
    assert json.loads(answer.headers["x-clickhouse-summary"])["result_rows"] == "1"
    other = engine.ask("SELECT 1")
    assert re.fullmatch("[0-9a-f]{32}", other.headers["x-clickhouse-query-id"])
    assert other.headers["x-clickhouse-format"] == "TabSeparated"


def test_format_and_database_by_parameter_and_header(engine):
    assert engine.value("SELECT 'a', 1", default_format="CSV") == '"a",1\n'
    assert engine.value("SELECT 'a', 1", headers={"X-ClickHouse-Format": "CSV"}) == '"a",1\n'
    assert engine.value("SELECT 'a', 1 FORMAT TSV", default_format="CSV") == "a\t1\n"
    assert engine.value("SELECT currentDatabase()", database="t") == "t\n"
    assert engine.value("SELECT currentDatabase()", headers={"X-ClickHouse-Database": "t"}) == "t\n"
    assert refused(engine.ask("SELECT 1", database="no`ne"), 404, 81)


def test_parameters_and_settings(engine):
    assert engine.value("SELECT {n:UInt8} + 1, {s:String}", param_n="4", param_s="it's") == "5\tit\\'s\n"
    assert engine.value("SELECT getSetting('max_threads')", max_threads="3") == "3\n"
    assert engine.value("SELECT getSetting('async_insert')") == "false\n"
    assert refused(engine.ask("SELECT 1", no_such_setting="1"), 404, 115)
    assert refused(engine.ask("SELECT 1", **{"max_threads = 1, x": "1"}), 404, 115)
    assert engine.ask("SELECT 1", max_threads="x'y").status == 400
    assert refused(engine.ask("SELECT {n:UInt8}"), 400, 456)
    for name in ("session_id", "role", "user", "password"):
        assert refused(engine.ask("SELECT 1", **{name: "x"}), 501, 48)
    assert refused(engine.ask("SELECT 1", compress="1"), 501, 48)
    assert engine.value("SELECT 1", compress="0", wait_end_of_query="1", buffer_size="5") == "1\n"


def test_nothing_outlives_its_request(engine):
    engine.value("SET max_threads = 7")
    assert engine.value("SELECT getSetting('max_threads') = 7") == "0\n"
    engine.value("USE t")
    assert engine.value("SELECT currentDatabase()") == "default\n"


@pytest.mark.parametrize("sql, status, code", [
    ("SELEC 1", 400, 62), ("", 400, 62), (" ; ", 400, 62), ("SELECT nope", 404, 47), ("SELECT * FROM t.nope", 404, 60),
    ("SELECT * FROM nope.a", 404, 81), ("SELECT nope(1)", 404, 46), ("SELECT throwIf(1)", 500, 395),
    ("SELECT 1 FORMAT Nope", 404, 73), ("INSERT INTO t.a (nope) VALUES (1)", 404, 16),
    ("SELECT toUInt8('x')", 400, 6), ("CREATE USER x", 500, 514), ("SELECT sum(s) FROM t.a", 400, 43),
    ("INSERT INTO t.a VALUES (2000000, 'x')", 500, 469),
])
def test_errors_have_their_code_and_status(engine, sql, status, code):
    assert refused(engine.ask(sql), status, code)


def test_an_error_in_the_middle_of_an_answer_is_an_error(engine):
    assert refused(engine.ask("SELECT throwIf(number = 900000) FROM numbers(1000000)"), 500, 395)


def test_limits(engine):
    started = time.monotonic()
    assert refused(engine.ask("SELECT count() FROM numbers(1e13) WHERE sipHash64(number) = 1", max_execution_time="0.5"),
                   408, 159)
    assert time.monotonic() - started < 10
    assert refused(engine.ask("SELECT number FROM numbers(1000)", max_result_rows="10"), 500, 396)
    assert refused(engine.ask("SELECT groupArray(number) FROM numbers(1e9)", max_memory_usage="100000000"), 500, 241)
    assert engine.value("SELECT 1") == "1\n"


def test_a_large_answer_comes_whole(engine):
    body = engine.ask("SELECT number FROM numbers(3000000)").body
    assert len(body) == 22888890 and body.startswith(b"0\n1\n") and body.endswith(b"\n2999999\n")


def test_a_client_that_goes_away(engine):
    conn = engine.connection()
    conn.request("POST", "/", b"SELECT number FROM numbers(3000000)")
    conn.close()
    conn = engine.connection()
    conn.request("POST", "/", b"SELECT number FROM numbers(3000000)")
    conn.sock.recv(100)
    conn.close()
    assert engine.value("SELECT 1") == "1\n"


# ---- inserts ----

def count(engine, s):
    return int(engine.value("SELECT count() FROM t.a WHERE s = {s:String}", param_s=s))


def test_every_way_to_insert(engine):
    rows = "".join('{"n":%d,"s":"%%s"}\n' % n for n in range(100))

    def summary(answer):
        assert answer.status == 200 and answer.body == b"", (answer.status, answer.body)
        return int(json.loads(answer.headers["x-clickhouse-summary"])["written_rows"])

    into = "INSERT INTO t.a FORMAT JSONEachRow"
    assert summary(engine.ask(into, body=rows.replace("%s", "url"))) == 100
    assert summary(engine.ask(into + "\n" + rows.replace("%s", "body"))) == 100
    assert summary(engine.ask("INSERT INTO t.a (s, n) SETTINGS max_threads = 1 FORMAT CSV", body='"csv",1\n"csv",2\n')) == 2
    assert summary(engine.ask("insert into t.a format JSONEachRow;", body=rows.replace("%s", "lower"))) == 100
    assert summary(engine.ask("INSERT INTO t.a VALUES (1, 'values'), (2, 'values')")) == 2
    assert summary(engine.ask("INSERT INTO t.a VALUES", body="(1, 'values2'), (2, 'values2')")) == 2
    assert summary(engine.ask("INSERT INTO t.a FORMAT Values", body="(1, 'values3')")) == 1
    assert summary(engine.ask("INSERT INTO t.a SELECT number, 'select' FROM numbers(5)")) == 5
    assert summary(engine.ask("INSERT INTO a FORMAT JSONEachRow", body=rows.replace("%s", "db"), database="t")) == 100
    for s, want in (("url", 100), ("body", 100), ("csv", 2), ("lower", 100), ("values", 2), ("values2", 2), ("values3", 1),
                    ("select", 5), ("db", 100)):
        assert count(engine, s) == want, s


def test_gzip_and_chunked_bodies(engine):
    rows = b"".join(b'{"n":%d,"s":"gzip"}\n' % n for n in range(1000))
    into = "INSERT INTO t.a FORMAT JSONEachRow"
    zipped = gzip.compress(rows)
    assert engine.ask(into, body=zipped, headers={"Content-Encoding": "gzip"}).status == 200
    assert count(engine, "gzip") == 1000
    assert engine.ask(into, body=zipped + gzip.compress(rows), headers={"Content-Encoding": "gzip"}).status == 200
    assert count(engine, "gzip") == 3000
    for bad in (zipped[:-9], zipped[:20], b"not gzip", zipped[:100] + b"\0" + zipped[101:], b""):
        answer = engine.ask(into, body=bad, headers={"Content-Encoding": "gzip"})
        assert refused(answer, 400, 117), bad[:20]
    assert refused(engine.ask(into, body=rows, headers={"Content-Encoding": "br"}), 501, 48)
    bomb = gzip.compress(b"\0" * (300 << 20), 1)
    assert refused(engine.ask(into, body=bomb, headers={"Content-Encoding": "gzip"}), 500, 241)
    conn = engine.connection()
    conn.request("POST", "/?query=INSERT+INTO+t.a+FORMAT+JSONEachRow",
                 iter([b'{"n":1,"s":"chunk', b'ed"}\n{"n":2,', b'"s":"chunked"}\n']), encode_chunked=True)
    assert conn.getresponse().status == 200
    assert count(engine, "chunked") == 2
    assert count(engine, "gzip") == 3000


def test_a_bad_row_leaves_nothing_of_its_insert(engine):
    rows = b"".join(b'{"n":%d,"s":"whole"}\n' % n for n in range(1000))
    into = "INSERT INTO t.a FORMAT JSONEachRow"
    assert refused(engine.ask(into, body=rows + b'{"n":2000000,"s":"whole"}\n'), 500, 469, "small")
    assert refused(engine.ask(into, body=rows + b'{"n":"x","s":"whole"}\n'), 400, 27)
    assert refused(engine.ask(into, body=rows + b'{"n":1,"s":"who'), 400, 26)
    assert refused(engine.ask(into, body=rows + b'{"n":1,"nope":1}\n', input_format_skip_unknown_fields="0"), 400, 117)
    assert refused(engine.ask("INSERT INTO t.nope FORMAT JSONEachRow", body=rows), 404, 60)
    assert refused(engine.ask("INSERT INTO t.a FORMAT Nope", body=rows), 404, 73)
    assert count(engine, "whole") == 0


def test_bodies_have_a_bound(engine):
    big = b'{"n":1,"s":"%s"}\n' % (b"x" * (65 << 20))
    try:
        assert engine.ask("INSERT INTO t.a FORMAT JSONEachRow", body=big).status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused while the client was still sending
    fits = b'{"n":1,"s":"%s"}\n' % (b"y" * (60 << 20))
    assert engine.ask("INSERT INTO t.a FORMAT JSONEachRow", body=fits).status == 200
    assert engine.value("SELECT count() FROM t.a WHERE length(s) > 1000000") == "1\n"


def test_events_replace_by_revision(engine):
    assert engine.insert([row("p", 1), row("p", 1), row("p", 2), row("p", 3, is_deleted=0)]).status == 200
    assert engine.insert([row("p", 2, revision=1, event="changed"), row("p", 3, revision=1, is_deleted=1)]).status == 200
    got = engine.value("SELECT event_id, revision, event FROM events ORDER BY event_id", project="p",
                       default_format="TabSeparated")
    assert got == "1\t0\tsigned up\n2\t1\tchanged\n"


def test_many_at_once(engine):
    failures = []

    def work(k):
        for i in range(10):
            body = b"".join(b'{"n":%d,"s":"many"}\n' % n for n in range(100))
            answer = engine.ask("INSERT INTO t.a FORMAT JSONEachRow", body=body)
            if answer.status != 200 or engine.ask("SELECT %d" % (k * 100 + i)).body != b"%d\n" % (k * 100 + i):
                failures.append((k, i, answer.body))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert count(engine, "many") == 8 * 10 * 100


def test_project_limits(engine):
    engine.insert([row("lim", n) for n in range(1000)])
    ask = lambda sql, **h: engine.ask(sql, project="lim", headers={k.replace("_", "-"): v for k, v in h.items()})
    assert ask("SELECT event_id FROM events").json["rows"] == 1000
    assert refused(ask("SELECT event_id FROM events", X_Tallyman_Rows_Max="999"), 500, 396)
    assert refused(ask("SELECT event_id, event FROM events", X_Tallyman_Bytes_Max="2000"), 500, 396)
    assert refused(ask("SELECT count() FROM numbers(1e13) WHERE sipHash64(number) = 1", X_Tallyman_Time_Ms="300"), 408, 159)
    for bad in ("0", "-1", "x", "1" * 16, "1.5"):
        assert refused(ask("SELECT 1", X_Tallyman_Rows_Max=bad), 400, 36)


def test_deliveries_have_workers_of_their_own(engine):
    """A project holds at most three workers; sixteen more queries of its wait, others are turned away; the owner's go on."""
    slow = "SELECT count() FROM numbers(1e13) WHERE sipHash64(number) = 1"
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(
        engine.ask(slow, project="p", headers={"X-Tallyman-Time-Ms": "1000"}).status)) for _ in range(28)]
    for t in threads:
        t.start()
    time.sleep(0.5)
    started = time.monotonic()
    assert engine.value("SELECT 1") == "1\n"
    assert time.monotonic() - started < 2
    assert answers == [503] * 9
    for t in threads:
        t.join()
    assert sorted(answers) == [408] * 19 + [503] * 9
    assert engine.ask("SELECT 1", project="p").status == 200


# ---- the owner on TCP ----

def test_tcp_wants_the_password(engine):
    import base64
    basic = lambda u, p: {"Authorization": "Basic " + base64.b64encode(f"{u}:{p}".encode()).decode()}
    key = lambda u, p: {"X-ClickHouse-User": u, "X-ClickHouse-Key": p}
    assert engine.request("GET", "/ping", port=engine.port).status == 200
    assert engine.request("GET", "/status", port=engine.port).status == 404
    for good in (basic(OWNER, PASSWORD), key(OWNER, PASSWORD)):
        assert engine.ask("SELECT 1", headers=good, port=engine.port).body == b"1\n"
        assert engine.ask("SELECT 1", headers=good, port=engine.port, project="p").status == 200
    for none in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic !"}, {"X-ClickHouse-Key": PASSWORD},
                 {"Authorization": "Basic " + "A" * 1000}):
        answer = engine.ask("SELECT 1", headers=none, port=engine.port)
        assert refused(answer, 401, 194) and "basic" in answer.headers["www-authenticate"].lower()
    for bad in (basic(OWNER, "x"), basic("default", PASSWORD), key(OWNER, ""), key("default", ""), basic(OWNER, PASSWORD + " "),
                basic("", "")):
        assert refused(engine.ask("SELECT 1", headers=bad, port=engine.port), 403, 516)
    assert PASSWORD not in engine.log


# ---- start, end, durability ----

def run_to_end(*args):
    return subprocess.run([ENGINE, *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_wrong_options(tmp_path):
    data = ["--data", str(tmp_path / "e"), "--library", LIBCHDB]
    short = tmp_path / "short"
    short.write_text("short\n")
    for args in ([], ["--data"], ["--data", "x"], ["--library", "x"], data + ["--what", "x"], data + ["--nice", "20"],
                 data + ["--memory-bytes", "1"], data + ["--listen", "127.0.0.1:0"], data + ["--parent-fd", "x"],
                 data + ["--listen", "127.0.0.1:0", "--secret-file", str(short)],
                 data + ["--listen", "127.0.0.1:0", "--secret-file", str(tmp_path / "none")]):
        assert run_to_end(*args).returncode == 2, args
    assert not (tmp_path / "e").exists()


def test_a_library_that_is_none(tmp_path):
    data = str(tmp_path / "e")
    ended = run_to_end("--data", data, "--library", str(tmp_path / "none.so"))
    assert ended.returncode == 3 and "cannot load" in ended.stderr
    ended = run_to_end("--data", data, "--library", "libz.so.1")
    assert ended.returncode == 3 and "the library has no chdb_" in ended.stderr
    assert os.listdir(data) == []  # made for the sandbox, which is entered before a library is loaded


def test_tcp_beyond_the_machine_is_refused(tmp_path):
    (tmp_path / "secret").write_text(PASSWORD)
    ended = run_to_end("--data", str(tmp_path / "e"), "--library", LIBCHDB, "--listen", "0.0.0.0:0", "--secret-file",
                       str(tmp_path / "secret"))
    assert ended.returncode == 5 and "loopback" in ended.stderr


def test_something_in_the_empty_directory(fresh):
    """A configuration file that lies where the engine works is not read, but removed; a directory stops the start."""
    (fresh.data / "empty").mkdir(parents=True)
    (fresh.data / "empty" / "config.xml").write_text("<clickhouse><max_server_memory_usage>1</max_server_memory_usage></clickhouse>")
    fresh.start()
    assert fresh.value("SELECT 1") == "1\n"
    assert os.listdir(fresh.data / "empty") == []
    fresh.stop()
    (fresh.data / "empty" / "x").mkdir()
    ended = run_to_end("--data", str(fresh.data), "--library", LIBCHDB)
    assert ended.returncode == 4 and "must be empty" in ended.stderr


def test_a_second_engine_on_the_same_data(fresh):
    fresh.start()
    fresh.value("SELECT 1")
    ended = run_to_end("--data", str(fresh.data), "--library", LIBCHDB)
    assert ended.returncode == 4
    assert fresh.value("SELECT 1") == "1\n"


def test_modes_of_what_it_makes(fresh):
    fresh.start()
    for name, mode in (("", 0o700), ("data", 0o700), ("empty", 0o700), ("config.xml", 0o600), ("users.xml", 0o600),
                       ("engine.sock", 0o600)):
        assert (fresh.data / name).stat().st_mode & 0o777 == mode, name


def test_it_is_nice_and_bounded(fresh):
    fresh.args = []
    fresh.start()
    fields = open(f"/proc/{fresh.process.pid}/stat").read().rsplit(")", 1)[1].split()
    assert fields[16] == "15"
    assert int(fields[17]) < 60, "threads"
    assert os.readlink(f"/proc/{fresh.process.pid}/cwd") == str(fresh.data / "empty")


def test_memory_has_a_bound(tmp_path):
    small = Engine(tmp_path / "engine", "--memory-bytes", str(512 << 20)).start()
    try:
        assert refused(small.ask("SELECT length(groupArray(number)) FROM numbers(1e9)"), 500, 241)
        assert small.value("SELECT 1") == "1\n"
    finally:
        small.stop()


def test_a_clean_restart_keeps_everything(fresh):
    fresh.start()
    assert fresh.insert([row("p", n) for n in range(500)]).status == 200
    assert fresh.stop() == 0
    fresh.start()
    assert fresh.value(f"SELECT count() FROM {TABLE}") == "500\n"
    assert fresh.value("SELECT count() FROM events", project="p", default_format="CSV") == "500\n"
    assert fresh.stop() == 0


def test_queries_are_closed_unless_the_self_test_passes(fresh):
    """Somebody with all rights has broken the view: project queries stop, deliveries go on, a repair opens them again."""
    fresh.start()
    fresh.value("CREATE OR REPLACE VIEW q.events DEFINER = viewer SQL SECURITY DEFINER AS SELECT 1 AS project "
                "COMMENT 'tallyman view 1'")
    fresh.stop()
    fresh.start()
    status = fresh.request("GET", "/status").json
    assert status["queries"] == "closed" and "SELECT count() FROM events" in status["reason"]
    assert refused(fresh.ask("SELECT 1", project="p"), 503, 344, "closed")
    assert fresh.insert([row("p", 1)]).status == 200
    assert "queries of projects are closed" in fresh.log
    fresh.value("DROP VIEW q.events")
    fresh.stop()
    fresh.start()
    assert fresh.request("GET", "/status").json["queries"] == "open"
    assert fresh.value("SELECT count() FROM events", project="p", default_format="CSV") == "1\n"


def test_the_row_policy_holds_without_the_view(fresh):
    """The view's condition and the policy of its definer are two locks: one is enough."""
    fresh.start()
    assert fresh.insert([row("p", 1), row("zz", 2)]).status == 200
    fresh.value("CREATE OR REPLACE VIEW q.events DEFINER = viewer SQL SECURITY DEFINER AS SELECT * FROM "
                "tallyman.events_v2 COMMENT 'tallyman view 1'")
    assert fresh.value("SELECT groupArray(event_id) FROM events", project="p", default_format="TabSeparated") == "[1]\n"


def test_kill_keeps_what_was_acknowledged(fresh):
    """kill -9 while two clients insert and merges run; acknowledged rows are there, each batch whole or not at all."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
    print("SEED", seed)
    acknowledged = set()
    sent = 0
    for turn in range(6):
        fresh.start()
        stop = threading.Event()
        lock = threading.Lock()

        def insert():
            nonlocal sent
            while not stop.is_set():
                with lock:
                    batch = sent
                    sent += 1
                try:
                    answer = fresh.insert([row("p", batch * 100 + i, source=f"b{batch}") for i in range(100)])
                    if answer.status == 200:
                        acknowledged.add(batch)
                except OSError:
                    return

        threads = [threading.Thread(target=insert) for _ in range(2)]
        for t in threads:
            t.start()
        time.sleep(0.2 + (seed * (turn + 7919) % 1000) / 2000)
        fresh.kill()
        stop.set()
        for t in threads:
            t.join()
    fresh.start()
    got = {line.split("\t")[0]: int(line.split("\t")[1]) for line in
           fresh.value(f"SELECT source, count() FROM {TABLE} GROUP BY source").splitlines()}
    assert len(acknowledged) > 10
    assert set(got.values()) == {100}, "a batch is there in part"
    assert {f"b{n}" for n in acknowledged} <= set(got), "an acknowledged batch is gone"


def test_an_insert_and_a_merge_are_synced_before_they_are_answered(fresh, tmp_path):
    """Each file of a new part, its directory, and the directory that holds its new name."""
    trace = tmp_path / "trace"
    fresh.wrapper = ["strace", "-D", "-qq", "-f", "-y", "-o", str(trace), "-e", "trace=fsync,fdatasync,rename,sendmsg,sendto"]
    fresh.start()
    table = os.path.realpath(fresh.data / "empty" / fresh.value(
        "SELECT data_paths[1] FROM system.tables WHERE name = 'events_v2' FORMAT TSVRaw").strip())

    def settled():
        """The trace's size when the tracer has written down what came before."""
        sizes = [trace.stat().st_size]
        while sizes[-5:] != [sizes[-1]] * 5:
            time.sleep(0.05)
            sizes.append(trace.stat().st_size)
        return sizes[-1]

    def traced(sql, **kw):
        before = settled()
        assert fresh.ask(sql, **kw).status == 200
        # The answer is here before the tracer has written down that it left.
        end = time.monotonic() + 60
        while True:
            lines = trace.read_text(errors="replace")[before:].splitlines()
            answer = next((i for i, line in enumerate(lines) if re.search(r"\bsend(msg|to)\(", line) and "HTTP/1.1 200" in line), None)
            if answer is not None:
                break
            assert time.monotonic() < end, "the trace does not show the answer"
            time.sleep(0.01)
        renamed = next(i for i, line in enumerate(lines) if "rename(" in line)
        assert renamed < answer
        return ([line for line in lines[:renamed] if "sync(" in line],
                [line for line in lines[renamed:answer] if "sync(" in line])

    rows = b"".join(json.dumps(row("p", n)).encode() + b"\n" for n in range(10))
    for k in range(2):
        before, after = traced(f"INSERT INTO {TABLE} FORMAT JSONEachRow", body=rows)
        for name in ("data.bin", "primary.cidx", "checksums.txt", "columns.txt", "count.txt"):
            assert any(f"/{name}>" in line for line in before), (name, before)
        assert any(re.search(rf"\bfsync\(\d+<{re.escape(table)}>", line) for line in after), after
    before, after = traced(f"OPTIMIZE TABLE {TABLE} FINAL")
    for name in ("data.bin", "primary.cidx", "checksums.txt"):
        assert any("tmp_merge" in line and f"/{name}>" in line for line in before), (name, before)
    assert any(re.search(r"_1_2_\d+>", line) for line in after), after


def test_an_insert_that_cannot_be_synced_is_not_acknowledged(fresh):
    """The first sync of the table's directory in each worker fails."""
    fresh.start()
    table = os.path.realpath(fresh.data / "empty" / fresh.value(
        "SELECT data_paths[1] FROM system.tables WHERE name = 'events_v2' FORMAT TSVRaw").strip())
    with Attached(fresh, fresh.data / "trace", "fsync:error=EIO:when=1", paths=[table], calls="fsync"):
        assert refused(fresh.insert([row("p", 1)]), 500, 204, "not known")
        for _ in range(20):
            answer = fresh.insert([row("p", 1)])
            if answer.status == 200:
                break
            assert refused(answer, 500, 204)
    assert answer.status == 200
    assert fresh.value("SELECT count() FROM events", project="p", default_format="CSV") == "1\n"


def test_a_start_that_cannot_sync_the_tables_names_takes_no_insert(fresh):
    """The directory that holds the table, made and then found at a second start, cannot be synced: there is no third chance."""
    fresh.start()
    table = os.path.realpath(fresh.data / "empty" / fresh.value(
        "SELECT data_paths[1] FROM system.tables WHERE name = 'events_v2' FORMAT TSVRaw").strip())
    fresh.stop()
    ended = subprocess.run(["strace", "-f", "-o", "/dev/null", "-P", table, "-e", "trace=fsync", "-e", "inject=fsync:error=EIO",
                            *fresh.command()], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 4 and "sync the directories of the engine's data" in ended.stderr, ended.stderr


def test_it_ends_with_its_parents_pipe(fresh):
    reading, writing = os.pipe()
    fresh.args += ["--parent-fd", str(reading)]
    fresh.start(pass_fds=[reading])
    os.close(reading)
    assert fresh.value("SELECT 1") == "1\n"
    os.close(writing)
    assert fresh.process.wait(15) == 0
    assert "the parent has gone" in fresh.log


def test_it_ends_when_its_parent_is_killed(fresh, tmp_path):
    """The parent is a Python that is killed; the engine's descriptor 3 comes from it alone."""
    script = ("import os, subprocess, sys, time\n"
              "r, w = os.pipe()\n"
              "p = subprocess.Popen(sys.argv[1:] + ['--parent-fd', str(r)], pass_fds=[r], stderr=subprocess.DEVNULL)\n"
              "print(p.pid, flush=True)\n"
              "time.sleep(600)\n")
    parent = subprocess.Popen([sys.executable, "-c", script, *fresh.command()], stdout=subprocess.PIPE, text=True)
    try:
        pid = int(parent.stdout.readline())
        end = time.monotonic() + 60
        while True:
            try:
                assert fresh.request("GET", "/ping").status == 200
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait(10)
    end = time.monotonic() + 15
    while os.path.exists(f"/proc/{pid}") and "Z" not in open(f"/proc/{pid}/stat").read().split()[2]:
        assert time.monotonic() < end, "the engine outlived its parent"
        time.sleep(0.05)


def test_it_ends_though_a_query_runs(fresh):
    fresh.start()
    asking = threading.Thread(target=lambda: ask_quietly(fresh), daemon=True)
    asking.start()
    time.sleep(0.5)
    fresh.process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    assert fresh.process.wait(20) == 0
    assert time.monotonic() - started < 10
    fresh.process = None


@pytest.mark.parametrize("many", [1, 3])
def test_a_query_that_does_not_end(fresh, many):
    """Some functions take hours for one block, and the time is looked at between blocks: no worker may be lost to that."""
    fresh.start()
    endless = "SELECT arraySum(arrayMap(x -> editDistance(repeat('ab', 30000), repeat(toString(x), 30000)), range(2000)))"
    limit = {"X-Tallyman-Time-Ms": "300"}
    for _ in range(many):
        threading.Thread(target=lambda: ask_quietly(fresh, endless, project="bad", headers=limit), daemon=True).start()
    time.sleep(0.5)
    assert fresh.ask("SELECT 1", project="good", headers=limit).status == 200  # one place is not for `bad`
    assert fresh.process.wait(60) == 6
    assert "does not end" in fresh.log
    fresh.start()
    assert fresh.ask("SELECT 1", project="good").status == 200


def ask_quietly(engine, sql="SELECT count() FROM numbers(1e13) WHERE sipHash64(number) = 1", **more):
    try:
        engine.ask(sql, **more)
    except (OSError, http.client.HTTPException):
        pass
