"""A ClickHouse for tests of delivery: just enough of its HTTP interface, strict where it matters, with faults on demand.

It holds the table tallyman.events_v2 in memory: physical rows in the order in which inserts committed them, and the logical
rows that FINAL would show. An insert is checked as the real one would with the settings it must carry, and those are
required: an insert without one of them fails the test (`complaints`).

`faults` is a list of functions fault(insert) -> None or a fault; the first answer that is not None is carried out. A fault
is one of the constants and classes below. Everything seen is kept in `inserts`. Use it as a context manager.
"""
import hashlib
import json
import re
import socket
import threading
import time
import urllib.parse

TABLE = "tallyman.events_v2"
SETTINGS = {"async_insert": "0", "wait_for_async_insert": "1", "wait_end_of_query": "1",
            "input_format_skip_unknown_fields": "0", "input_format_allow_errors_num": "0",
            "input_format_allow_errors_ratio": "0", "input_format_null_as_default": "0",
            "input_format_parallel_parsing": "0"}
SYNCS = ["fsync_after_insert", "fsync_part_directory", "min_rows_to_fsync_after_merge",
         "min_compressed_bytes_to_fsync_after_merge"]
NULLABLE = {"timestamp_sent", "sent_at", "corrected_at"}
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}(\d{3})?$")
STATUS = {60: 404, 81: 404, 469: 500, 321: 400, 252: 500, 241: 500, 202: 500, 159: 408, 209: 503, 319: 500,
          497: 403, 516: 403, 117: 400, 27: 400, 26: 400, 48: 501, 62: 400}


class Error(Exception):
    """Answered as ClickHouse answers an exception."""

    def __init__(self, code, text="something", status=None):
        super().__init__(text)
        self.code, self.text, self.status = code, text, status or STATUS.get(code, 500)


class Answer:
    """These bytes instead of the answer; committed says whether the rows are in the table all the same."""

    def __init__(self, data, committed=False, keep=False):
        self.data, self.committed, self.keep = data, committed, keep


class Hang:
    """No answer for so many seconds, then the connection ends."""

    def __init__(self, seconds, committed=False):
        self.seconds, self.committed = seconds, committed


DROP = Answer(b"")  # the body was read, nothing happened, no answer
DROP_AFTER_COMMIT = Answer(b"", committed=True)
EXCEPTION_200 = Answer(b"HTTP/1.1 200 OK\r\nX-ClickHouse-Exception-Code: 241\r\nContent-Length: 0\r\n\r\n", keep=True)
BODY_200 = Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\nCode: 241. DB::Exception: Memory limit  \n", keep=True)
CUT = Answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", committed=True)
PROXY_503 = Answer(b"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy", keep=True)
TOO_LARGE = Answer(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n", keep=True)


class Insert:
    def __init__(self, body, rows):
        self.body, self.rows, self.at = body, rows, time.monotonic()
        self.hash = hashlib.sha256(body).hexdigest()
        self.committed = False

    @property
    def projects(self):
        return {row["project"] for row in self.rows}


class FakeClickHouse:
    def __init__(self, tables=True, port=0, user="", password=""):
        self.lock = threading.Lock()
        self.tables = tables            # False: CREATE TABLE is refused, nothing is there
        self.columns, self.engine = [], ""
        self.rows, self.inserts, self.statements, self.complaints = [], [], [], []
        self.faults = []
        self.cut_at = None              # read so many bytes of the next insert's body, then drop; once
        self.user, self.password = user, password
        self.threads, self.connections, self.ending = [], set(), False
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.acceptor = threading.Thread(target=self._accept)

    def __enter__(self):
        self.acceptor.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.acceptor.join(10)
        with self.lock:
            for conn in self.connections:
                try:
                    conn.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        for thread in self.threads:
            thread.join(10)
        assert not self.complaints, self.complaints[0]

    # ---- what tests ask ----

    def logical(self, project=None):
        """What FINAL shows: by key, the highest revision, of equals the last."""
        state = {}
        with self.lock:
            for row in self.rows:
                key = (row["project"], row["uuid"])
                if key not in state or row["revision"] >= state[key]["revision"]:
                    state[key] = row
        return [row for row in state.values()
                if not row["is_deleted"] and (project is None or row["project"] == project)]

    def count(self, project=None):
        return len(self.logical(project))

    # ---- HTTP ----

    def _accept(self):
        while not self.ending:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections.add(conn)
            thread = threading.Thread(target=self._serve, args=(conn,))
            self.threads.append(thread)
            thread.start()

    def _serve(self, conn):
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    more = conn.recv(65536)
                    if not more:
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
                length = int(headers.get("content-length", "0"))
                parts = [data]
                have = len(data)
                limit = None
                if length and self.cut_at is not None:
                    limit, self.cut_at = int(length * self.cut_at), None
                while have < (length if limit is None else limit):
                    more = conn.recv(1 << 20)
                    if not more:
                        return
                    parts.append(more)
                    have += len(more)
                if limit is not None:
                    return
                data = b"".join(parts)
                body, data = data[:length], data[length:]
                if not self._answer(conn, lines[0], headers, body):
                    return
        except OSError:
            pass
        finally:
            with self.lock:
                self.connections.discard(conn)
            conn.close()

    def _answer(self, conn, line, headers, body):
        method, target, _ = line.split(" ")
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query, keep_blank_values=True))
        try:
            if self.user and (headers.get("x-clickhouse-user"), headers.get("x-clickhouse-key")) != \
                    (self.user, self.password):
                raise Error(516, "Authentication failed", 403)
            if self.password and self.password in target:
                self.complaints.append("the password is in the URL")
            sql = query.get("query", "")
            if sql.startswith("INSERT INTO"):
                return self._insert(conn, sql, query, body)
            return self._send(conn, 200, self._statement(sql))
        except Error as e:
            return self._send(conn, e.status, f"Code: {e.code}. DB::Exception: {e.text}. (X)\n",
                              [("X-ClickHouse-Exception-Code", e.code)])

    def _send(self, conn, status, body="", headers=()):
        data = body.encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", *(f"{k}: {v}" for k, v in headers)]
        conn.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        return True

    # ---- statements ----

    def _statement(self, sql):
        with self.lock:
            self.statements.append(sql)
            if sql.startswith("CREATE TABLE IF NOT EXISTS " + TABLE):
                if not self.tables:
                    raise Error(497, "Not enough privileges")
                if not self.columns:
                    body = sql[sql.index("(") + 1:]
                    self.columns = re.findall(r"(?:^|, )(\w+) (?:LowCard|UU|UInt|Date|Null|String)", body)
                    self.engine = sql[sql.index("ENGINE = ") + 9:]
                return ""
            if sql.startswith("CREATE "):
                return ""
            if sql.startswith("SELECT engine, engine_full"):
                if not self.columns:
                    return ""
                key = re.search(r"ORDER BY \(?([\w, ]+)\)?", self.engine).group(1)
                return json.dumps({"engine": self.engine.split("(")[0], "engine_full": self.engine,
                                   "sorting_key": key, "columns": self.columns}) + "\n"
            if sql == "SELECT 1":
                return "1\n"
        raise Error(62, f"Syntax error: {sql[:40]}")

    # ---- inserts ----

    def _parse(self, sql, query, body):
        for name, value in SETTINGS.items():
            if query.get(name) != value:
                self.complaints.append(f"an insert with {name}={query.get(name)}")
        if not self.columns:
            raise Error(60, f"Table {TABLE} does not exist")
        match = re.fullmatch(r"INSERT INTO " + re.escape(TABLE) + r" \(([\w,]+)\) FORMAT JSONEachRow", sql)
        if not match:
            raise Error(62, "Syntax error")
        names = match.group(1).split(",")
        unknown = set(names) - set(self.columns)
        if unknown:
            raise Error(16, f"No such column {unknown}")
        rows = []
        for line in filter(None, body.decode("utf-8", "surrogateescape").split("\n")):  # U+2028 and such end no line
            row = json.loads(line)
            if set(row) - set(names):
                raise Error(117, "Unknown field")
            for name, value in row.items():
                if value is None and name not in NULLABLE:
                    raise Error(27, "null in a column that is not Nullable")
            for name in ("received_at", "timestamp"):
                if not TIME.match(row[name]):
                    raise Error(27, "cannot parse a time")
            for name in ("properties", "context"):
                if not isinstance(json.loads(row[name]), dict):
                    self.complaints.append(f"{name} is no JSON object")
            rows.append(row)
        months = {row["received_at"][:7] for row in rows}
        if len(months) > 1:
            self.complaints.append(f"one insert, several partitions: {months}")
        return rows

    def _insert(self, conn, sql, query, body):
        insert = Insert(body, self._parse(sql, query, body))
        with self.lock:
            self.inserts.append(insert)
            fault = next((f for f in (fault(insert) for fault in self.faults) if f is not None), None)
            if fault is None or getattr(fault, "committed", False):
                insert.committed = True
                self.rows += insert.rows
        if fault is None:
            summary = json.dumps({"read_rows": str(len(insert.rows)), "written_rows": str(len(insert.rows))})
            return self._send(conn, 200, "", [("X-ClickHouse-Summary", summary)])
        if isinstance(fault, Error):
            raise fault
        if isinstance(fault, Hang):
            end = time.monotonic() + fault.seconds
            while time.monotonic() < end and not self.ending:
                time.sleep(0.02)
            return False
        conn.sendall(fault.data)
        return fault.keep


def first(n, fault):
    """A fault for the next n inserts."""
    left = [n]

    def choose(_):
        left[0] -= 1
        return fault if left[0] >= 0 else None
    return choose


def script(*faults):
    """One after the other; then all is well. None: that one is well."""
    rest = list(faults)
    return lambda _: rest.pop(0) if rest else None
