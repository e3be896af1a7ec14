"""A server in trouble, and what is believed about it: the server, its ledger, its history, and traces of its calls."""
import os
import pathlib
import time

from conftest import BINARY, batch, event, verify
from ledger import History, Ledger, Sent, retry_unknown
from tracer import Attached, wrapper

SANITIZED = b"__asan_init" in pathlib.Path(BINARY).read_bytes()
SMALL = ("--generation-bytes", "64KiB")


class World:
    """A server that may be traced, with its ledger and the history that it has shown."""

    def __init__(self, make_server, workdir):
        self.make_server, self.workdir = make_server, workdir
        self.ledger = Ledger(workdir / "ledger.ndjson")
        self.history = History(self.ledger)
        self.server = None
        self.count = 0
        self.traces = 0

    def trace(self):
        self.traces += 1
        return self.workdir / f"trace.{self.traces}"

    def make(self, *args, start=True, injects=(), paths=(), name="data", **kw):
        """A server; with injects it is started under strace, and the trace is in self.traced. It has no deliverer, which would
        meet the faults too, and outlives a killed server for a moment in which it still writes."""
        if injects:
            self.traced = self.trace()
            kw["wrapper"] = wrapper(self.traced, *injects, paths=paths)
        # LeakSanitizer does not work under ptrace.
        env = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if SANITIZED else None
        self.server = self.make_server("--no-deliver", *args, start=start, name=name, env=env, **kw)
        return self.server

    def attached(self, *injects, paths=()):
        return Attached(self.server, self.trace(), *injects, paths=paths)

    def tail(self):
        return self.server.data / "journal" / "tail.ndjson"

    def new(self, events=1, size=20, stream="s", **more):
        self.count += 1
        return Sent(batch(f"b{self.count}", *[{**event(i, stream), "payload": {"n": self.count, "fill": "x" * size}}
                                              for i in range(events)], **more))

    def append(self, sent=None, want=200):
        sent = sent or self.new()
        answer = self.ledger.append(self.server, sent)
        assert answer.status == want, (answer.status, answer.body)
        if want != 200:
            assert "error" in answer.json and "first_event_id" not in answer.json
        return answer

    def restart(self, *args, stop="stop"):
        """Ends the server, judges the directory as it lies, starts it without faults, asks the oracle."""
        if self.server.process is not None:
            getattr(self.server, stop)()
        report = verify(self.server.data)
        assert report["ok"], report
        assert report["events_checked"] >= len(self.history.ids)
        self.server.wrapper = []
        self.server.start()
        settled = retry_unknown(self.server, self.ledger, self.history)
        live = verify(self.server.data)
        assert live["ok"] and live["chain_head"] == self.history.head
        return settled


def assert_not_done(answer):
    assert answer.status == 503 and answer.json["error"] == "writer_poisoned", answer.body
    assert "first_event_id" not in answer.json


def wait_ready(server, timeout=15):
    end = time.monotonic() + timeout
    while server.get("/readyz").status != 200:
        assert time.monotonic() < end, server.get("/readyz").body
        time.sleep(0.05)
