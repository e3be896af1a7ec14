"""A project's SQL sees its own rows and nothing else, whatever it is made of.

Another project's rows carry a mark in every text column, and so do a file beside the data and a file that is not there to
be read. The engine itself says which functions, table functions and tables it has; each is tried. Nothing of the mark may
come back, in an answer or in an error; nothing may be written; nobody outside may be called.
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import threading

import pytest
from engine_world import LIBCHDB, TABLE, Engine, row

MARK = "FOREIGNMARK"
MINE, FOREIGN = "mine", "zz-other"
THREADS = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    directory = tmp_path_factory.mktemp("isolation")
    engine = Engine(directory / "engine").start()
    try:
        assert b'"queries":"open"' in engine.request("GET", "/status").body, engine.log
        marked = {name: f"{MARK}-{name}" for name in
                  ("event", "distinct_id", "anonymous_id", "session_id", "source", "message_id", "library",
                   "library_version", "raw")}
        rows = [row(MINE, n) for n in range(1, 6)]
        rows += [row(FOREIGN, n, properties='{"secret":"%s"}' % MARK, context='{"x":"%s"}' % MARK, **marked)
                 for n in range(100, 150)]
        assert engine.insert(rows).status == 200
        with contextlib.closing(sqlite3.connect(engine.data / "marker.sqlite")) as db:
            db.execute("CREATE TABLE marks (mark TEXT)")
            db.execute("INSERT INTO marks VALUES (?)", (MARK,))
            db.commit()
        (engine.data / "marker.txt").write_text(f"{MARK} of a file\n")
        assert engine.value("SELECT count() FROM events", project=MINE, default_format="TabSeparated") == "5\n"
        assert engine.value("SELECT count() FROM events", project=FOREIGN, default_format="TabSeparated") == "50\n"
        yield engine
        assert engine.value(f"SELECT project, count() FROM {TABLE} GROUP BY 1 ORDER BY 1") == f"{MINE}\t5\n{FOREIGN}\t50\n"
        assert os.listdir(engine.data / "empty") == [], "something was written"
    finally:
        engine.stop()


@pytest.fixture(scope="module")
def outside():
    """A listener that nobody may call; its port."""
    calls = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.settimeout(0.1)
        stop = threading.Event()

        def watch():
            while not stop.is_set():
                try:
                    conn, peer = listener.accept()
                    calls.append(peer)
                    conn.close()
                except TimeoutError:
                    pass

        thread = threading.Thread(target=watch)
        thread.start()
        yield listener.getsockname()[1]
        stop.set()
        thread.join()
    assert not calls, f"the engine called out: {calls}"


def try_all(engine, statements, project=MINE, **kw):
    """Runs the statements as the project; returns (refused, answered). None may show the mark."""
    local = threading.local()

    def one(sql):
        try:
            if not hasattr(local, "conn"):
                local.conn = engine.connection()
            local.conn.request("POST", "/?default_format=TabSeparated", sql.encode(),
                               {"X-Tallyman-Project": project, "X-Tallyman-Time-Ms": "2000"})
            response = local.conn.getresponse()
            return sql, response.status, response.read()
        except OSError as error:
            raise AssertionError(f"{sql}: {error}\n{engine.log[-2000:]}")

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(one, statements))
    leaks = [(sql, body[:300]) for sql, _, body in results if MARK.encode() in body]
    assert not leaks, leaks
    assert engine.process.poll() is None, engine.log[-2000:]
    return [r for r in results if r[1] != 200], [r for r in results if r[1] == 200]


def names(engine, sql):
    return engine.value(sql + " FORMAT TabSeparatedRaw").splitlines()


def arguments_of_table_functions(world, outside):
    data = os.path.abspath(world.data)
    return [
        "", "'tallyman', 'events_v2'", "'tallyman', '.*'", "'tallyman', 'events_v2', 'x'", "tallyman.events_v2",
        "'tallyman.events_v2'", "'../marker.txt'", "'../marker.txt', 'LineAsString'", f"'{data}/marker.txt', 'RawBLOB'",
        f"'{data}/data/store/*/*/*/data.bin', 'RawBLOB'", "'../marker.txt', 'LineAsString', 'line String'",
        "SELECT * FROM tallyman.events_v2", "'SELECT * FROM tallyman.events_v2'", f"'http://127.0.0.1:{outside}/', 'CSV'",
        f"'127.0.0.1:{outside}', 'tallyman', 'events_v2', 'default', ''", "'default', tallyman.events_v2",
        f"'127.0.0.1:{outside}', tallyman.events_v2", "'EXPLAIN', '', (SELECT * FROM tallyman.events_v2)",
        "'cat ../marker.txt', 'LineAsString', 'line String'", "'x String DEFAULT file(''../marker.txt'')', 'a'",
        "JSONEachRow, 'x UInt8, y String DEFAULT file(''../marker.txt'')', '{\"x\":1}'", "q.events", "'q', 'events'",
        "'../marker.sqlite', 'marks'", "'../marker.sqlite', 'SELECT * FROM marks'", "3", "1, 3",
    ]


def test_every_table_function(world, outside):
    arguments = arguments_of_table_functions(world, outside)
    functions = names(world, "SELECT name FROM system.table_functions")
    assert len(functions) > 80
    refused, answered = try_all(world, [f"SELECT * FROM {f}({a})" for f in functions for a in arguments])
    assert {sql.split("(")[0].split()[-1] for sql, _, _ in answered} <= {
        "numbers", "numbers_mt", "zeros", "zeros_mt", "generateSeries", "generate_series", "primes"}
    assert len(answered) >= 8
    # As the right side of IN a table function needs no FROM.
    try_all(world, [f"SELECT 'x' IN {f}({a})" for f in functions for a in arguments[1:7] + arguments[-4:-2]])


def test_every_function(world, outside):
    functions = names(world, "SELECT name FROM system.functions WHERE NOT is_aggregate")
    assert len(functions) > 1000
    arguments = ["'../marker.txt'", "'tallyman.events_v2', 'raw', toUUID('0190aaaa-0000-7000-8000-000000000064')",
                 f"'http://127.0.0.1:{outside}/', '../marker.txt'"]
    statements = [f"SELECT `{f}`({a})" for f in functions for a in arguments]
    statements += [f"SELECT arrayMap(`{f}`, ['../marker.txt'])" for f in functions]
    statements += ["SELECT `%s`()" % f for f in functions]
    _, answered = try_all(world, statements)
    assert len(answered) > 500, "most of the functions that take a text must have answered"


def test_every_aggregate_function(world):
    functions = names(world, "SELECT name FROM system.functions WHERE is_aggregate")
    assert len(functions) > 100
    _, answered = try_all(world, [f"SELECT `{f}`(distinct_id) FROM events" for f in functions] +
                          [f"SELECT `{f}State`(raw) FROM (SELECT properties AS raw FROM q.events)" for f in functions])
    assert len(answered) > 50


def test_every_table(world):
    tables = names(world, "SELECT concat('`', database, '`.`', name, '`') FROM system.tables")
    databases = names(world, "SELECT name FROM system.databases")
    assert "`tallyman`.`events_v2`" in tables
    known = ["parts", "processes", "query_log", "tables", "columns", "merges", "mutations", "replicas", "events",
             "metrics", "settings", "server_settings", "users", "grants", "row_policies", "disks", "detached_parts",
             "parts_columns", "query_cache", "query_condition_cache", "stack_trace", "macros", "errors", "warnings"]
    tables += [f"{d}.{t}" for d in ("system", "information_schema", "INFORMATION_SCHEMA") for t in known]
    tables += [f"`{d}`.`{f}`" for d in databases for f in
               ("../marker.txt", "../users.xml", "../config.xml", str(world.data / "marker.txt"))]
    statements = [f"SELECT * FROM {t} LIMIT 1000" for t in set(tables)]
    statements += [f"SELECT 1 IN {t}" for t in set(tables)]
    refused, answered = try_all(world, statements)
    seen = {sql.split()[3] for sql, _, _ in answered if sql.startswith("SELECT *")}
    assert "`q`.`events`" in seen
    assert seen <= {"`q`.`events`", *(f"`system`.`{t}`" for t in (
        "one", "numbers", "numbers_mt", "zeros", "zeros_mt", "tables", "columns", "databases", "functions",
        "table_functions", "formats", "data_type_families")), "system.tables", "system.columns"}, seen
    for sql, _, body in answered:
        if "system" in sql:
            assert FOREIGN.encode() not in body, sql


# Where an expression can stand; @ is one. file() reads without asking for rights, so it must be found in all of them.
PLACES = """
SELECT @
SELECT 1 WHERE @ != ''
SELECT sum(event_id) OVER (PARTITION BY @) FROM events
SELECT sum(event_id) OVER (ORDER BY @) FROM events
SELECT sum(event_id) OVER w FROM events WINDOW w AS (PARTITION BY @)
SELECT 1 GROUP BY @
SELECT 1 HAVING @ != ''
SELECT 1 ORDER BY @
SELECT 1 AS x ORDER BY x WITH FILL FROM length(@) TO 10
SELECT 1 AS x ORDER BY x WITH FILL FROM 1 TO length(@)
SELECT 1 AS x ORDER BY x WITH FILL FROM 1 TO 10 STEP length(@)
SELECT 1 AS x ORDER BY x WITH FILL FROM 1 TO 10 STALENESS length(@)
SELECT 1 AS x, 'a' AS y ORDER BY x WITH FILL FROM 1 TO 10 INTERPOLATE (y AS @)
SELECT 1 LIMIT length(@)
SELECT 1 LIMIT 1 OFFSET length(@)
SELECT 1 LIMIT 1 BY @
SELECT DISTINCT ON (@) 1
SELECT 1 QUALIFY @ != ''
SELECT number FROM numbers(length(@))
SELECT * FROM (SELECT @)
WITH @ AS x SELECT x
WITH x AS (SELECT @) SELECT * FROM x
WITH x AS MATERIALIZED (SELECT @) SELECT * FROM x
WITH RECURSIVE x AS (SELECT @ AS y UNION ALL SELECT y FROM x WHERE 0) SELECT * FROM x
SELECT x FROM (SELECT 1 AS a) ARRAY JOIN [@] AS x
SELECT x FROM (SELECT 1 AS a) LEFT ARRAY JOIN [@] AS x
SELECT 1 FROM events a JOIN events b ON a.event_id = b.event_id AND @ != ''
SELECT (SELECT @)
SELECT EXISTS(SELECT @)
SELECT 'x' IN (SELECT @)
SELECT 'x' IN (@, 'y')
SELECT 1 = ANY (SELECT @)
SELECT CASE WHEN @ != '' THEN 1 END
SELECT CASE @ WHEN 'x' THEN 1 END
SELECT [@]
SELECT (@, 1)
SELECT map('a', @)
SELECT @::String
SELECT CAST(@ AS String)
SELECT CAST(@, 'String')
SELECT @ BETWEEN 'a' AND 'b'
SELECT arrayMap(x -> @, [1])
SELECT arrayMap(x -> concat(x, @), ['a'])
SELECT quantile(length(@))(event_id) FROM events
SELECT count() FILTER (WHERE @ != '') FROM events
SELECT countIf(@ != '') FROM events
SELECT INTERVAL length(@) DAY
SELECT EXTRACT(DAY FROM toDate(@))
SELECT DATE_ADD(DAY, length(@), today())
SELECT * REPLACE(@ AS x) FROM (SELECT 1 AS x)
SELECT * EXCEPT(x), @ FROM (SELECT 1 AS x)
SELECT COLUMNS('x') REPLACE(@ AS x) FROM (SELECT 1 AS x)
SELECT 1 UNION ALL SELECT @
SELECT 1 INTERSECT SELECT @
SELECT 1 EXCEPT SELECT @
(SELECT @)
SELECT tuple(@).1
SELECT [@][1]
SELECT - length(@)
SELECT NOT length(@)
SELECT @ LIKE '%a%'
SELECT @ IS NULL
SELECT length(@) ? 1 : 2
SELECT SUBSTRING(@ FROM 1 FOR 2)
SELECT TRIM(BOTH 'a' FROM @)
SELECT POSITION('a' IN @)
SELECT 1 GROUP BY GROUPING SETS ((@))
SELECT 1 GROUP BY ROLLUP(@)
SELECT 1 GROUP BY CUBE(@)
SELECT lagInFrame(@) OVER () FROM events
SELECT untuple((@, 1))
SELECT * FROM events FINAL WHERE @ != ''
SELECT format('{}', @)
SELECT @ || 'x'
SELECT /* file */ @ -- file
SELECT `file`('../marker.txt')
SELECT "file"('../marker.txt')
SELECT file /* here */ ('../marker.txt')
SELECT file($$../marker.txt$$)
""".strip().splitlines()


@pytest.mark.parametrize("place", PLACES)
def test_a_refused_function_in_every_place(world, place):
    sql = place.replace("@", "file('../marker.txt')")
    answer = world.ask(sql, project=MINE)
    assert answer.status == 403, (sql, answer.body[:300])
    assert b"not open to projects" in answer.body, (sql, answer.body[:300])


HOSTILE = """
SET ROLE ALL
SET ROLE DEFAULT
SET ROLE writer
SET log_comment = 'x'
/* SELECT */ SET ROLE ALL
SELECT 1; SET ROLE ALL
SELECT 1; SET ROLE ALL; SELECT count() FROM tallyman.events_v2
SELECT 1 PARALLEL WITH SET ROLE ALL
SELECT 1 PARALLEL WITH SELECT 2
(SELECT 1); SET ROLE ALL
WITH 1 AS x SELECT x; SET ROLE ALL
EXECUTE AS viewer SELECT * FROM tallyman.events_v2
EXECUTE AS viewer
SELECT 1 INTO OUTFILE 'x'
SELECT 1 INTO OUTFILE 'x' TRUNCATE FORMAT CSV
SELECT * FROM events INTO OUTFILE '../outfile.csv' FORMAT CSV
SELECT 1 FORMAT CSV
SELECT 1 SETTINGS max_threads = 1
SELECT * FROM (SELECT 1 SETTINGS log_comment = 'x')
SELECT * FROM events SETTINGS log_comment = 'x'
SELECT * FROM events SETTINGS additional_table_filters = {'q.events':'1'}
INSERT INTO q.events SELECT * FROM q.events
INSERT INTO tallyman.events_v2 (project) VALUES ('x')
WITH x AS (SELECT 1) INSERT INTO q.events SELECT * FROM x
CREATE TABLE q.x (a UInt8) ENGINE = Memory
CREATE TEMPORARY TABLE x (a UInt8)
CREATE FUNCTION x AS (a) -> file(a)
CREATE USER x
GRANT ALL ON *.* TO default
DROP VIEW q.events
DROP TABLE tallyman.events_v2
TRUNCATE TABLE tallyman.events_v2
ALTER TABLE tallyman.events_v2 DELETE WHERE 1
DELETE FROM tallyman.events_v2 WHERE 1
OPTIMIZE TABLE tallyman.events_v2 FINAL
RENAME TABLE q.events TO q.x
ATTACH TABLE x
DETACH VIEW q.events
EXCHANGE TABLES q.events AND q.x
KILL QUERY WHERE 1
SYSTEM STOP MERGES
SYSTEM SHUTDOWN
SYSTEM RELOAD CONFIG
BACKUP TABLE tallyman.events_v2 TO File('x')
RESTORE TABLE tallyman.events_v2 FROM File('x')
USE tallyman
SHOW TABLES FROM tallyman
SHOW CREATE TABLE tallyman.events_v2
SHOW CREATE VIEW q.events
SHOW GRANTS
SHOW PROCESSLIST
SHOW USERS
DESCRIBE TABLE tallyman.events_v2
DESCRIBE TABLE file('../marker.txt', 'LineAsString')
EXISTS TABLE tallyman.events_v2
CHECK TABLE tallyman.events_v2
EXPLAIN SELECT * FROM tallyman.events_v2
EXPLAIN AST SELECT 1
EXPLAIN ESTIMATE SELECT * FROM events
EXPLAIN PIPELINE SELECT 1
WATCH q.events
BEGIN TRANSACTION
COPY tallyman.events_v2 TO STDOUT
UNDROP TABLE x
MOVE USER default TO x
SNAPSHOT TABLE tallyman.events_v2 TO Disk('d', 'p')
1 + 1
exit
quit
\\q
;
VALUES (1)
FROM tallyman.events_v2
FROM events SELECT 1
TABLE events
SELECT * FROM tallyman.events_v2
SELECT * FROM viewer.events_v2
SELECT (SELECT any(raw) FROM tallyman.events_v2)
SELECT 1 IN (SELECT event_id FROM tallyman.events_v2)
SELECT 100 IN tallyman.events_v2
SELECT * FROM events UNION ALL SELECT * FROM tallyman.events_v2
SELECT * FROM events JOIN tallyman.events_v2 USING event_id
SELECT * FROM merge('tallyman', 'events_v2')
SELECT joinGet('tallyman.events_v2', 'raw', 1)
SELECT hasColumnInTable('tallyman', 'events_v2', 'raw')
SELECT * APPLY file FROM (SELECT '../marker.txt' AS x)
SELECT * APPLY(file) FROM (SELECT '../marker.txt' AS x)
SELECT * APPLY(x -> file(x)) FROM (SELECT '../marker.txt' AS x)
SELECT COLUMNS('x') APPLY file FROM (SELECT '../marker.txt' AS x)
SELECT t.* APPLY file FROM (SELECT '../marker.txt' AS x) AS t
SELECT arrayMap(file, ['../marker.txt'])
SELECT arrayMap("file", ['../marker.txt'])
SELECT arrayMap(`file`, ['../marker.txt'])
SELECT arrayMap("fi\\le", ['../marker.txt'])
SELECT arrayMap("fi\\x6ce", ['../marker.txt'])
SELECT "f\\ile"('../marker.txt')
SELECT arrayFilter(file, ['../marker.txt'])
SELECT arrayFold(file, ['../marker.txt'], '')
WITH file AS f SELECT arrayMap(f, ['../marker.txt'])
""".strip().splitlines()


def test_hostile_statements(world):
    refused, answered = try_all(world, HOSTILE + ["", " ", "--", "/*", "SELECT '", "SELECT `", "SELECT 1\x00; SET ROLE ALL",
                                                  "SELECT 1 -- \n; SET ROLE ALL", "SELECT $$ $$; SET ROLE ALL",
                                                  "SELECT '\\'; SET ROLE ALL --'; SET ROLE ALL", "(" * 5000 + "SELECT 1",
                                                  "SELECT " + "1+" * 60000 + "1", "\ufeffSET ROLE ALL",
                                                  "SELECT 1\u00a0; SET ROLE ALL"])
    assert [sql for sql, _, _ in answered] == []
    assert not (world.data / "outfile.csv").exists()


def test_parameters_stand_for_values_only(world):
    ask = lambda sql, **p: world.ask(sql, project=MINE, default_format="TabSeparated", **p)
    assert ask("SELECT count() FROM events WHERE event_id > {n:UInt64}", param_n="3").body == b"2\n"
    assert ask("SELECT {s:String}", param_s="'; SET ROLE ALL; --").body == b"\\'; SET ROLE ALL; --\n"
    for sql, params in (("SELECT arrayMap({f:Identifier}, ['../marker.txt'])", {"param_f": "file"}),
                        ("SELECT * FROM {t:Identifier}", {"param_t": "tallyman.events_v2"}),
                        ("SELECT * FROM {d:Identifier}.{t:Identifier}", {"param_d": "tallyman", "param_t": "events_v2"}),
                        ("SELECT {f:Identifier}('../marker.txt')", {"param_f": "file"})):
        answer = ask(sql, **params)
        assert answer.status in (400, 403, 404), (sql, answer.body[:300])
        assert MARK.encode() not in answer.body


def test_conditions_do_not_see_other_rows(world):
    """A condition that throws, or that cannot be computed, must not be tried on another project's rows."""
    throwing = [
        "SELECT count() FROM events WHERE throwIf(position(properties, 'secret') > 0) = 0",
        "SELECT count() FROM events WHERE throwIf(event_id >= 100) = 0",
        "SELECT count() FROM events WHERE throwIf(project != 'mine') = 0",
        "SELECT count() FROM events WHERE NOT ignore(throwIf(event_id >= 100))",
        "SELECT sum(throwIf(event_id >= 100)) = 0 ? 5 : 0 FROM events",
        "SELECT count() FROM events GROUP BY throwIf(event_id >= 100)",
        "SELECT count() FROM (SELECT * FROM events ORDER BY throwIf(event_id >= 100))",
        "SELECT count() FROM events HAVING throwIf(max(event_id) >= 100) = 0",
        "SELECT count() FROM events AS a JOIN events AS b ON a.uuid = b.uuid WHERE throwIf(b.event_id >= 100) = 0",
        "SELECT count() FROM events WHERE uuid != toUUID(if(event_id >= 100, 'x', '0190aaaa-0000-7000-8000-ffffffffffff'))",
        "SELECT count() FROM events WHERE intDiv(1, event_id < 100) = 1",
        "SELECT count() FROM events WHERE toUInt64(substring(distinct_id, 2)) < 100",
        "SELECT count() FROM events WHERE throwIf(distinct_id LIKE 'FOREIGN%') = 0 AND timestamp > '2000-01-01'",
        "SELECT count() FROM events WHERE distinct_id != '' AND throwIf(distinct_id LIKE 'FOREIGN%') = 0",
    ]
    _, answered = try_all(world, throwing)
    assert {(sql, body) for sql, _, body in answered} == {(sql, b"5\n") for sql in throwing}


def test_answers_do_not_count_other_rows(world):
    answer = world.ask("SELECT count() FROM events", project=MINE)
    summary = answer.headers["x-clickhouse-summary"]
    assert '"read_rows":"0","read_bytes":"0"' in summary
    assert "statistics" not in answer.json
    rows = world.value("SELECT event_id FROM events ORDER BY event_id LIMIT 1", project=MINE)
    assert "55" not in rows and "50" not in rows


def test_what_is_remembered_between_queries_is_not_shared(world):
    """Caches of conditions and of plans are keyed by text that is the same for every project."""
    for _ in range(3):
        for project, want in ((MINE, "5\n"), ("nobody", "0\n"), (FOREIGN, "50\n")):
            for sql in ("SELECT count() FROM events WHERE event_id > 0", "SELECT countIf(event_id > 0) FROM q.events"):
                assert world.value(sql, project=project, default_format="TabSeparated") == want


def test_projects_at_the_same_time(world):
    def ask(n):
        project, want = ((MINE, "5\n"), (FOREIGN, "50\n"), ("nobody", "0\n"))[n % 3]
        return world.value("SELECT uniqExact(event_id) FROM events", project=project,
                           default_format="TabSeparated") == want

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(300)))


@pytest.mark.parametrize("project", ["", "Mine", "mine'", "mine zz-other", "a" * 65, "*", "../x", "mine\\", "m%27", "SELF-TEST"])
def test_names_that_are_no_project(world, project):
    answer = world.ask("SELECT 1", project=project)
    assert answer.status == 400 and answer.headers["x-clickhouse-exception-code"] == "36", (project, answer.body)


def test_a_project_named_twice(world):
    conn = world.connection()
    conn.putrequest("POST", "/")
    conn.putheader("X-Tallyman-Project", MINE)
    conn.putheader("X-Tallyman-Project", FOREIGN)
    conn.putheader("Content-Length", "8")
    conn.endheaders(b"SELECT 1")
    assert conn.getresponse().status == 400


@pytest.mark.parametrize("params", [{"log_comment": "zz-other"}, {"readonly": "0"}, {"database": "tallyman"},
                                    {"max_threads": "1"}, {"default_format": "Pretty"}, {"role": "writer"},
                                    {"user": "owner"}, {"session_id": "x"}])
def test_a_project_sets_nothing(world, params):
    assert world.ask("SELECT 1", project=MINE, **params).status in (400, 404, 500, 501)


def test_a_project_asks_by_post(world):
    assert world.ask("SELECT 1", project=MINE, method="GET").status == 400


def test_the_engines_rights_hold_without_the_gate(world, outside):
    """Table functions, tables and statements past the gate: the engine itself refuses them. (What only the gate holds
    back is left out: SET ROLE, and file() as a function of values.)"""
    functions = names(world, "SELECT name FROM system.table_functions")
    statements = [f"SELECT * FROM {f}({a})" for f in functions for a in arguments_of_table_functions(world, outside)
                  if "DEFAULT file" not in a]
    statements += [sql for sql in HOSTILE if not any(word in sql for word in
                                                     ("SET ROLE", "OUTFILE", "file", "fi\\", "SHUTDOWN", "exit", "quit"))]
    statements += [f"SELECT * FROM system.{t}" for t in ("one", "tables", "columns", "databases")]
    directory = world.data
    assert os.listdir(directory / "empty") == [], "something was written through the gate"
    assert world.stop() == 0
    try:
        ended = subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name("engine_wall.py")), LIBCHDB],
                               cwd=directory / "empty", input=json.dumps(statements), capture_output=True, text=True,
                               timeout=80)
        assert ended.returncode == 0, ended.stderr[-2000:]
        answers = json.loads(ended.stdout[ended.stdout.rindex("\n") + 1:])
    finally:
        world.start()
    leaks = [(sql, text[:200]) for sql, (_, text) in zip(statements, answers) if MARK in text]
    assert not leaks, leaks
    assert len(answers) == len(statements)
    assert sum(1 for error, _ in answers if error) > len(answers) / 2
    assert any(not error for error, _ in answers)
