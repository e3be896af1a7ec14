#!/usr/bin/env python3
"""Do W3's instruments notice? capture_verify against damaged databases, capture_load against
servers that are wrong on purpose.

  bench/capture_selftest.py BUILD

The database is the plain schema's with a second of sqlite_queue in it: right once, then with one
fault at a time. The server is right once, then answers wrongly once.
"""

import http.server
import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading

RECEIPTS = 5000
MIDDLE = "(SELECT id FROM events ORDER BY id LIMIT 1 OFFSET 40)"
# fault: what it does, and a word that capture_verify must say
DATABASE_FAULTS = {
    "an event is lost": (f"DELETE FROM events WHERE id = {MIDDLE}", "are missing"),
    "an event is twice": ("INSERT INTO events SELECT 9000000, project, uuid, received_ms, event,"
                          f" distinct_id, text FROM events WHERE id = {MIDDLE}", "one uuid"),
    "an event too many": ("INSERT INTO events SELECT 9000000, project, zeroblob(16), received_ms,"
                          f" event, distinct_id, text FROM events WHERE id = {MIDDLE}", "never"),
    "another text": (f"UPDATE events SET text = zeroblob(500) WHERE id = {MIDDLE}", "text"),
    "a receipt is lost": (f"DELETE FROM receipts WHERE event_id = {MIDDLE}", "are missing"),
    "a receipt of another": ("UPDATE receipts SET event_id = 1 WHERE event_id = " + MIDDLE,
                             "its receipt says"),
    "an old receipt is lost": ("DELETE FROM receipts WHERE event_id = 7", "receipts,"),
    "a counter is wrong": ("UPDATE counters SET events = events + 1", "counted"),
}
# fault: the answer to the fifth request, and a word that capture_load must say
OK = (200, {"status": "Ok"})
SERVER_FAULTS = {
    "status 503": ((503, {"status": "Ok"}), "refused"),
    "another answer": ((200, {"status": "No"}), "refused"),
    "one was rejected": ((200, {"status": "Ok", "accepted": 49, "duplicates": 0, "rejected": 1}),
                         "refused"),
    "one is not accounted for": ((200, {"status": "Ok", "accepted": 49, "duplicates": 0,
                                        "rejected": 0}), "refused"),
    "a new one called a repeat": ((200, {"status": "Ok", "accepted": 0, "duplicates": 50,
                                         "rejected": 0}), "accepted"),
}


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)


def judge_database(programs, scratch, sound, loaded, sql, word):
    """None when capture_verify did its duty, else what it said."""
    path = scratch / "judged.sqlite"
    shutil.copyfile(sound, path)
    if sql is not None:
        with sqlite3.connect(path) as db:
            changed = db.execute(sql).rowcount
        db.close()
        if changed != 1:
            return f"the fault changed {changed} rows"
    done = run(programs / "capture_verify", path, "--uuid", "random", "--prefilled", RECEIPTS,
               "--load", loaded)
    if sql is None:
        good = done.returncode == 0 and "verified" in done.stdout
    else:
        good = done.returncode == 1 and word in done.stderr
    return None if good else f"{done.returncode}: {done.stdout}{done.stderr}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Accepts every batch; what stands for an event twice is told from its uuid."""

    protocol_version = "HTTP/1.1"
    wrong = None

    def log_message(self, format, *args):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        uuids = re.findall(rb'"uuid":"([^"]*)"', body)
        known = self.server.known
        new = sum(1 for uuid in uuids if uuid not in known and not known.add(uuid))
        self.server.count += 1
        status, answer = OK
        if new != len(uuids):
            answer = {**answer, "accepted": new, "duplicates": len(uuids) - new, "rejected": 0}
        if self.server.count == 5 and self.wrong is not None:
            status, answer = self.wrong
        text = json.dumps(answer, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Server(http.server.HTTPServer):
    """One connection at a time; knows which uuids it has seen."""

    count = 0

    def __init__(self, wrong):
        super().__init__(("127.0.0.1", 0), type("WrongHandler", (Handler,), {"wrong": wrong}))
        self.known = set()


def judge_server(programs, wrong, word):
    """None when capture_load did its duty, else what it said."""
    with Server(wrong) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        done = run(programs / "capture_load", "--port", server.server_address[1], "--token", "t",
                   "--uuid", "random", "--prefilled", 0, "--first", 0, "--conns", 1,
                   "--seconds", 0.3, "--warmup", 0)
        server.shutdown()
    clean = done.returncode == 0 and " errors=0 " in done.stdout and done.stderr == ""
    good = clean if wrong is None else not clean and word in done.stderr
    return None if good else f"{done.returncode}: {done.stdout}{done.stderr}"


def sound_database(programs, scratch):
    """(its file, what was acknowledged)."""
    directory = scratch / "plain"
    directory.mkdir()
    made = run(programs / "capture_prefill", "plain", directory, f"receipts={RECEIPTS}",
               "uuid=random")
    loaded = run(programs / "sqlite_queue", "--dir", directory, "--uuid", "random", "--prefilled",
                 RECEIPTS, "--first", RECEIPTS, "--seconds", 0.3, "--warmup", 0)
    if made.returncode != 0 or loaded.returncode != 0:
        raise SystemExit(made.stderr + loaded.stderr)
    batches = re.search(r"acks_total=(\d+)", loaded.stdout).group(1)
    return directory / "queue.sqlite", f"{RECEIPTS}:{batches}:1"


def main():
    if len(sys.argv) != 2:
        print("usage: bench/capture_selftest.py BUILD", file=sys.stderr)
        return 2
    programs = pathlib.Path(sys.argv[1]) / "bench"
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        sound, loaded = sound_database(programs, scratch)
        for fault, (sql, word) in {"a sound database": (None, ""), **DATABASE_FAULTS}.items():
            cases.append((fault, judge_database(programs, scratch, sound, loaded, sql, word)))
        for fault, (wrong, word) in {"a right server": (None, ""), **SERVER_FAULTS}.items():
            cases.append((fault, judge_server(programs, wrong, word)))
    for fault, trouble in cases:
        print(f"{'FAILED' if trouble else 'ok':6} {fault}" + (f"\n{trouble}" if trouble else ""))
    failed = sum(1 for _, trouble in cases if trouble)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
