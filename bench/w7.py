#!/usr/bin/env python3
"""W7: draining the queue into the embedded engine, alone and beside intake (bench/README.md).

  bench/w7.py BUILD

First intake's peak with the engine off; a quarter of it is the rate of what follows, at which
requests are due at even distances (open loop). Then, each on a fresh copy of INTO queued events:
draining alone, the intake alone, both; and the two that drain again behind QUARANTINED events that
the destination has refused. Every second round runs backwards. Nothing is pinned: server, engine
and load share the machine as they would. Settings: scripts/bench.
"""

import contextlib
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

import capture_peers as cp
import peers as p
import run as r

WIDTH = 64
POLL_S = 0.1
DRAIN_S = 600  # no drain takes longer
SERIES_MAX = 30
MS_QUEUED = 1796040000000  # of the templates' first event (capture_prefill.c)
PER_MS = 100


class Run(r.Run):
    """Settings of W7; the defaults fit into five minutes once the templates are there."""

    def __init__(self, build):
        r.WORKLOADS["W7"] = {"batches": [cp.BATCH], "conns": [WIDTH], "main": "",
                             "peers": ["tallyman"]}
        super().__init__(build, "W7")
        self.smoke = r.setting("SMOKE", 0, int) != 0
        smoke = self.smoke
        self.rounds = r.setting("ROUNDS", 1 if smoke else 2, int)
        self.seconds = r.setting("SECONDS", 1.0 if smoke else 8.0)
        self.warmup = r.setting("WARMUP", 0.2 if smoke else 1.0)
        self.into = r.setting("INTO", 20000 if smoke else 10**6, int)
        self.quarantined = r.setting("QUARANTINED", 10000 if smoke else 10**6, int)
        self.kind = r.setting("UUIDS", "v7", str)
        self.rate = 0
        self.done = {}  # (mode, quarantined): results


class Server(cp.Tallyman):
    """The server with its engine, looked at through the Unix socket."""

    accepted = 0  # new events of the loads

    def look(self):
        """(queued and not set aside, rows delivered since the start)."""
        status = self.ask("GET", "/api/v1/status")
        queue, sink = status["queue"], status["sink"] or {"delivered": 0}
        return queue["pending"] - queue["quarantined"], sink["delivered"]

    def oldest_s(self, started_s):
        """Age of the oldest event that may be delivered, by the database (status counts those set
        aside too). The template's events count as received in the seconds before the start, at the
        distances they have."""
        path = self.dir / "data" / "tallyman.sqlite"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            row = db.execute("SELECT e.received_ms FROM delivery_ready r CROSS JOIN events e"
                             " ON e.id = r.id WHERE r.project = 1 ORDER BY r.id LIMIT 1").fetchone()
        if row is None:
            return 0.0
        then_ms = row[0]
        template_ms = then_ms - MS_QUEUED
        count = self.s.quarantined + self.s.queued
        if 0 <= template_ms <= count / PER_MS:
            return time.time() - started_s + (count / PER_MS - template_ms) / 1e3
        return max(0.0, time.time() - then_ms / 1e3)

    def cpu_s(self):
        """CPU seconds of the server and of its engine so far."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        children = " ".join((task / "children").read_text() for task in tasks).split()
        return p.cpu_seconds(self.process.pid), sum(map(p.cpu_seconds, children))

    def rows(self):
        """(rows, different uuids) that the engine has."""
        answer = self.ask("POST", "/api/v1/projects/bench/query",
                          {"sql": "SELECT count() AS c, uniqExact(uuid) AS u FROM events"})
        row = answer["data"][0]
        return int(row["c"]), int(row["u"])


class Watch(threading.Thread):
    """Depth of the queue over time, ten times a second; the age of the oldest once a second."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server = server
        self.started_s = time.time()
        self.samples = []  # (monotonic, queued, delivered)
        self.seconds = []  # (queued, age)
        self.end = threading.Event()
        self.trouble = None

    def run(self):
        try:
            next_s = time.monotonic()
            while not self.end.is_set():
                queued, delivered = self.server.look()
                now = time.monotonic()
                self.samples.append((now, queued, delivered))
                if now >= next_s:
                    next_s = now + 1
                    self.seconds.append((queued, self.server.oldest_s(self.started_s)))
                self.end.wait(POLL_S)
        except (OSError, p.BenchError, KeyError, sqlite3.Error) as error:
            self.trouble = error

    def finish(self):
        self.end.set()
        self.join()
        if self.trouble is not None:
            raise p.BenchError(f"status: {self.trouble}")

    def wait_for(self, reached):
        """Until reached(queued, delivered) of the newest sample."""
        end = time.monotonic() + DRAIN_S
        while not (self.samples and reached(*self.samples[-1][1:])):
            if self.trouble is not None or time.monotonic() > end:
                raise p.BenchError(f"the queue is not drained: {self.trouble or 'time is up'}, "
                                   f"{self.samples[-1:]}")
            time.sleep(0.02)

    def rate(self, until=None):
        """Rows delivered a second, from the last moment without any to the first with all."""
        first = max((s for s in self.samples if s[2] == 0), key=lambda s: s[0],
                    default=self.samples[0])
        after = [s for s in self.samples if s[0] > first[0] and (until is None or s[0] <= until)]
        most = max((s[2] for s in after), default=0)
        last = next((s for s in after if s[2] == most), first)
        return (last[2] - first[2]) / max(1e-9, last[0] - first[0])

    def series(self):
        """A figure a second; of a long run every second or third one, ..., and the last."""
        every = -(-len(self.seconds) // SERIES_MAX)
        shown = self.seconds[:-1:every] + self.seconds[-1:]
        return {"every_s": str(every),
                "depth_k": ",".join(f"{queued / 1e3:.0f}" for queued, _ in shown),
                "oldest_s": ",".join(f"{oldest:.0f}" for _, oldest in shown)}


def new_server(run, into, quarantined, engine):
    s = cp.Settings(run.build, run.data, None, None)
    s.kind, s.queued, s.quarantined = run.kind, into, quarantined
    server = Server(s)
    server.engine = engine
    server.start()
    # Numbers of the template's events were used when it was made.
    server.next_event = into + quarantined
    return server


def offered(run, server):
    """Intake at a quarter of the peak; its result."""
    server.rate = run.rate
    result = server.load(WIDTH, run.seconds, run.warmup)
    server.rate = 0
    server.accepted += int(result["accepted"])
    if result["errors"] != 0:
        run.fault(f"intake: {result['errors']:.0f} errors: {result['complaint']}")
    return result


def check(run, server, queued):
    """What was queued and what came in is in the engine, once, and nothing else."""
    want = queued + server.accepted
    rows, different = server.rows()
    if rows != want or different != want:
        run.fault(f"the engine has {rows} rows with {different} uuids, of {want} acknowledged")


def costs(before, cpu_s, delivered):
    """CPU a delivered row; with intake beside it, that of the intake too."""
    (server_s, engine_s), rows = before
    return {"cpu_us_server": (cpu_s[0] - server_s) * 1e6 / max(1, delivered - rows),
            "cpu_us_engine": (cpu_s[1] - engine_s) * 1e6 / max(1, delivered - rows)}


def drained(run, quarantined, intake):
    """One drain, with or without intake beside it."""
    server = new_server(run, run.into, quarantined, True)
    watch = Watch(server)
    result = {}
    try:
        watch.start()
        watch.wait_for(lambda queued, delivered: delivered > 0)
        before = server.cpu_s(), watch.samples[-1][2]
        until = None
        if intake:
            result = offered(run, server)
            until = time.monotonic()
        watch.wait_for(lambda queued, delivered: queued == 0)
        watch.finish()
        result.update(costs(before, server.cpu_s(), watch.samples[-1][2]))
        check(run, server, run.into)
        result["rows_per_s"] = watch.rate(until)
        result.update(watch.series())
    finally:
        watch.end.set()
        code = server.stop()
    if code != 0:
        run.fault(f"tallyman ended with {code}")
    whole = subprocess.run([server.s.tallyman, "verify", "--data", server.dir / "data"],
                           capture_output=True, text=True, timeout=600)
    if whole.returncode != 0:
        run.fault(f"tallyman verify: {whole.returncode} {whole.stdout}{whole.stderr}")
    server.remove()
    return result


def intake_alone(run, quarantined, _):
    """The same intake on the same queue with the engine off."""
    server = new_server(run, run.into, quarantined, False)
    try:
        cp.settle(server.process.pid)
        return offered(run, server)
    finally:
        server.stop()
        server.remove()


def peak(run):
    server = new_server(run, 0, 0, False)
    try:
        result = server.load(WIDTH, min(run.seconds, 3), min(run.warmup, 0.5))
    finally:
        server.stop()
        server.remove()
    return result["events_per_s"]


STEPS = [("alone", 0, drained, False), ("intake", 0, intake_alone, True),
         ("with_intake", 0, drained, True), ("alone", 1, drained, False),
         ("with_intake", 1, drained, True)]


def one_round(run, number):
    steps = [STEPS[1], STEPS[4]] if run.smoke else STEPS
    steps = steps if number % 2 == 0 else list(reversed(steps))
    for mode, aside, work, intake in steps:
        quarantined = run.quarantined if aside else 0
        try:
            result = work(run, quarantined, intake)
        except (p.BenchError, subprocess.SubprocessError, OSError) as error:
            run.fault(f"{mode} quarantined={quarantined}: {error}")
            continue
        run.done.setdefault((mode, aside), []).append((number, result))
        r.say(f"# W7 {mode} quarantined={quarantined} round {number + 1}/{run.rounds} "
              + " ".join(f"{k}={result[k]:.0f}" for k in ("rows_per_s", "events_per_s", "p99_us")
                         if k in result))


def values(run, mode, aside, key):
    return {n: result[key] for n, result in run.done.get((mode, aside), []) if key in result}


def over(above, below):
    return [above[n] / below[n] for n in above if n in below and below[n] > 0]


def middle(by_round, form=".0f"):
    return f"{statistics.median(by_round.values()):{form}}" if by_round else "?"


def print_lines(run):
    plain_p99 = values(run, "intake", 0, "p99_us")
    for mode, aside, _, intake in STEPS:
        if (mode, aside) not in run.done:
            continue
        words = ["W7", f"mode={mode}", f"into={run.into}",
                 f"quarantined={run.quarantined if aside else 0}"]
        rows = values(run, mode, aside, "rows_per_s")
        if rows:
            words.append(f"rows={middle(rows)}/s")
        if mode == "with_intake":
            alone = values(run, "alone", aside, "rows_per_s")
            words.append(f"ratio_alone={r.spread(over(rows, alone))}")
        if aside:
            without = values(run, mode, 0, "rows_per_s")
            words.append(f"ratio_unquarantined={r.spread(over(rows, without))}")
        if intake:
            offered_at = values(run, mode, aside, "events_per_s")
            p99 = values(run, mode, aside, "p99_us")
            words += [f"offered={run.rate:.0f}/s", f"intake={middle(offered_at)}/s"]
            words += [f"{key}={middle(values(run, mode, aside, key))}"
                      for key in ("unsent", "p50_us", "p99_us")]
            if mode != "intake":
                words.append(f"ratio_p99={r.spread(over(p99, plain_p99))}")
        if rows:
            costs_us = [f"{who}:{middle(values(run, mode, aside, f'cpu_us_{who}'), '.2f')}"
                        for who in ("server", "engine")]
            words.append(f"cpu_us_per_row={','.join(costs_us)}")
        last = run.done[mode, aside][-1][1]
        words += [f"{key}={last[key]}" for key in ("every_s", "depth_k", "oldest_s") if key in last]
        line = " ".join(words)
        print(line, flush=True)
        run.results.append({"mode": mode, "quarantined": bool(aside), "line": line,
                            "rounds": [result for _, result in run.done[mode, aside]]})


def measure_all(run):
    best = peak(run)
    run.rate = best / 4
    r.say(f"# W7 intake peak {best:.0f}/s, offered {run.rate:.0f}/s")
    for number in range(run.rounds):
        one_round(run, number)
    print_lines(run)


if __name__ == "__main__":
    sys.exit(r.main_of(Run, measure_all))
