#!/usr/bin/env python3
"""Does W9 notice when a start does not bring back what was acknowledged?

  bench/restart_selftest.py BUILD

A server is killed at load and started again on what was left, whole or with something wrong; and
W9's single checks are asked about answers that must not pass.
"""

import os
import pathlib
import shutil
import sys
import tempfile

import history
import peers as p
import w9


class Small(w9.Run):
    def __init__(self, build, data):
        os.environ["SMOKE"] = "1"
        os.environ["DATA"] = str(data)
        super().__init__(build)
        self.seconds = 0.2


def cut_tail(server):
    """The second half of what the active generation holds is zeros."""
    tail = server.dir / "data" / "journal" / "tail.ndjson"
    used = len(tail.read_bytes().rstrip(b"\0"))
    with open(tail, "r+b") as f:
        f.seek(used // 2)
        f.write(b"\0" * (used - used // 2))


def older_directory(server, copy):
    """What was there before the load."""
    shutil.rmtree(server.dir / "data")
    shutil.copytree(copy, server.dir / "data")


def no_index(server):
    shutil.rmtree(server.dir / "data" / "index")


def restarted(run, harm):
    """None when the start counts, else why it does not."""
    server = history.Server(p.Settings(run.build, run.data, None, None))
    server.start()
    try:
        server.append(4, w9.BATCH, 0.2)
        server.stop()
        before = run.data / "before"
        shutil.copytree(server.dir / "data", before, ignore=shutil.ignore_patterns("*.sock"))
        server.launch()
        told, acks = w9.kill_at_load(run, server)
        if harm is older_directory:
            older_directory(server, before)
        elif harm is not None:
            harm(server)
        w9.timed_start(server, told.last())
        w9.check_events(server, server.events)
        server.repeat_all(acks)
    except p.BenchError as error:
        return str(error)
    finally:
        server.stop()
        server.remove()
        shutil.rmtree(run.data / "before", ignore_errors=True)
    return None


class Answers(w9.Probe):
    """A probe that got one answer."""

    def __init__(self, status, text):
        super().__init__(0, ("first", "last"))
        self.answer = status, text

    def ask(self, method, path, body=None):
        return self.answer


class Counts:
    """A server that counts so many events."""

    def __init__(self, events):
        self.events = events

    def metrics(self):
        return {"tallyman_journal_events": self.events}


def said(question):
    """What the question answered, or that it found a fault."""
    try:
        return question()
    except p.BenchError:
        return "fault"


def cases(run):
    """name, what came, what must come."""
    rest = b"x\n" * (w9.BATCH - 2)
    in_flight = w9.CONNS * w9.BATCH
    yield "restart", restarted(run, None) is None, True
    yield "restart without index", restarted(run, no_index) is None, True
    yield "tail cut", restarted(run, cut_tail) is not None, True
    yield "load lost", restarted(run, older_directory) is not None, True
    yield "read", said(Answers(200, rest + b"last\npage\n").read), True
    yield "read short", said(Answers(200, rest[2:] + b"last\npage\n").read), "fault"
    yield "read another", said(Answers(200, rest + b"other\npage\n").read), "fault"
    yield "read unknown", said(Answers(404, b"{}").read), "fault"
    yield "read not yet", said(Answers(503, b"{}").read), False
    yield "append", said(Answers(200, b'{"status":"committed"}').append), True
    yield "append not yet", said(Answers(429, b"{}").append), False
    yield "append duplicate", said(Answers(200, b'{"status":"duplicate"}').append), "fault"
    yield "append refused", said(Answers(409, b"{}").append), "fault"
    yield "one event lost", said(lambda: w9.check_events(Counts(1000), 1000)), "fault"
    yield "none lost", said(lambda: w9.check_events(Counts(1001), 1000)), None
    yield "in flight", said(lambda: w9.check_events(Counts(1001 + in_flight), 1000)), None
    yield "too many", said(lambda: w9.check_events(Counts(1002 + in_flight), 1000)), "fault"


def main():
    if len(sys.argv) != 2:
        print("usage: bench/restart_selftest.py BUILD", file=sys.stderr)
        return 2
    passed = failed = 0
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as scratch:
        for name, got, want in cases(Small(sys.argv[1], pathlib.Path(scratch))):
            good = got == want
            print(f"{'ok' if good else 'FAILED':6} {name}{'' if good else f': {got!r}'}")
            passed, failed = passed + good, failed + (not good)
    print(f"restart selftest: {passed} of {passed + failed} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
