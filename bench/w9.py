#!/usr/bin/env python3
"""W9: restart after kill -9 at full load on a long journal (bench/README.md).

  bench/w9.py BUILD

GIB of journal are written through the server. Then, again and again: a load of large batches, kill
-9 in the middle of it, and a start that is timed until the newest acknowledged batch can be read
and until an append is acknowledged: with the page cache as the kill left it, with a cold one, and
without index/. Redis and PostgreSQL are killed and started with as many events. Settings:
scripts/bench.
"""

import http.client
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import history
import peers as p
import restart_peers as rp
import run as r

BATCH = 1000
CONNS = 16  # of the load that is cut
EVENT_BYTES = 730  # a stored event, about
PATIENCE_S = 3600
SLICE_BYTES = history.SLICE_S * 5 * 10**8  # one slice of the filling writes less
CASES = ("warm", "cold", "index_lost")


class Run(r.Run):
    def __init__(self, build):
        r.WORKLOADS["W9"] = {"batches": [BATCH], "conns": [CONNS], "main": "",
                             "peers": ["tallyman", "redis", "postgres"]}
        super().__init__(build, "W9")
        self.smoke = r.setting("SMOKE", 0, int) != 0
        smoke = self.smoke
        self.rounds = r.setting("ROUNDS", 1 if smoke else 3, int)
        self.seconds = r.setting("SECONDS", 0.5 if smoke else 2.0)
        self.gib = r.setting("GIB", 0.03 if smoke else 10.0)
        self.cases = r.setting("CASES", list(CASES), r.words(str))
        self.peer_s = r.setting("PEER_S", 1.0 if smoke else 90.0)
        self.cooled = "no"  # how the page cache was emptied
        self.lines = {}  # (peer, case): results

    def note(self, number, peer, case, result):
        self.lines.setdefault((peer, case), []).append(result)
        r.say(f"# W9 {peer} {case} round {number + 1}/{self.rounds} "
              + " ".join(f"{k}={v:.3f}" for k, v in result.items()))


def files_of(directory):
    return [path for path in pathlib.Path(directory).rglob("*") if path.is_file()]


def cool(run, directory):
    """Nothing below the directory is in the page cache afterwards."""
    os.sync()
    if os.geteuid() == 0 and not run.smoke:  # a smoke run leaves the machine's cache alone
        try:
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
            run.cooled = "drop_caches"
            return
        except OSError:
            pass
    for path in files_of(directory):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    run.cooled = "fadvise"


# ---- what a start is asked ----

class Probe:
    """The two questions, each on a connection of its own."""

    numbers = itertools.count(1)

    def __init__(self, port, newest):
        self.port = port
        self.first, self.last = newest

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body
                               else {"Accept": "application/x-ndjson"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def read(self):
        """Is the rest of the newest acknowledged batch there, up to its last event?"""
        status, text = self.ask("GET", f"/v1/events?after={self.first}&limit={BATCH - 1}")
        if status in (429, 503):
            return False
        lines = text.splitlines()
        if status != 200 or len(lines) < BATCH - 1 or self.last.encode() not in lines[BATCH - 2]:
            raise p.BenchError(f"the newest acknowledged batch is not there: {text[:300]!r}")
        return True

    def append(self):
        event = {"stream": "s", "record_key": "probe", "kind": "upserted", "payload": {"n": 1}}
        batch_id = f"probe-{os.getpid()}-{next(self.numbers)}-{time.monotonic_ns()}"
        status, text = self.ask("POST", "/v1/events", json.dumps(
            {"batch_id": batch_id, "source": "probe", "events": [event]}))
        if status == 200 and json.loads(text)["status"] != "committed":
            raise p.BenchError(f"the probe got {text[:300]!r}")
        if status not in (200, 429, 503):
            raise p.BenchError(f"the probe got {status} {text[:300]!r}")
        return status == 200


def timed_start(server, newest):
    """Starts the server on what is there; seconds to both answers, each asked until it is given."""
    server.port = p.free_port()
    server.log = open(server.s.data / f"{server.name}.log", "ab")
    probe = Probe(server.port, newest)
    command = p.on_core(server.s.server_core, server.command())
    start = time.monotonic()
    server.process = subprocess.Popen(command, stdout=server.log, stderr=server.log,
                                      stdin=subprocess.DEVNULL)
    times = {}
    questions = {"first_read_s": probe.read, "first_ack_s": probe.append}
    while questions:
        for name, question in list(questions.items()):
            try:
                if question():
                    times[name] = time.monotonic() - start
                    del questions[name]
            except (OSError, http.client.HTTPException):
                pass  # it does not listen yet
        elapsed = time.monotonic() - start
        if server.process.poll() is not None or elapsed > PATIENCE_S:
            raise p.BenchError(f"the server did not come back, see {server.log.name}")
        if questions:
            time.sleep(min(0.02, max(0.0005, elapsed / 100)))
    return times


def kill_at_load(run, server):
    """kill -9 while large batches come on CONNS connections: what was acknowledged of them."""
    acks = run.data / "acks"
    acks.unlink(missing_ok=True)
    before = server.metrics()["tallyman_journal_events"]
    command = server.load_args(CONNS, BATCH, 3600, "--warmup", 0, "--acks", acks)
    load = subprocess.Popen(p.on_core(server.s.load_core, command), stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + run.seconds
        rp.wait_for("no load comes", lambda: time.monotonic() > end and
                    server.metrics()["tallyman_journal_events"] > before)
        if load.poll() is not None:
            raise p.BenchError("the load ended before the kill")
        server.kill()
        load.wait(timeout=60)
    finally:
        load.kill()
        load.wait()
    told = history.Acks(acks)
    if not told.ids:
        raise p.BenchError("nothing was acknowledged before the kill")
    server.events = int(before) + len(told.ids) * BATCH
    return told, acks


def check_events(server, told_events):
    """Everything acknowledged is counted; beyond it at most what was in flight. The probe is one."""
    have = int(server.metrics()["tallyman_journal_events"])
    if not told_events + 1 <= have <= told_events + CONNS * BATCH + 1:
        raise p.BenchError(f"{have} events after the start, {told_events} were acknowledged")
    server.events = have


def killed_and_started(run, server, case):
    told, acks = kill_at_load(run, server)
    result = {}
    if case == "index_lost":
        shutil.rmtree(server.dir / "data" / "index")
    if case == "cold":
        cool(run, server.dir)
    result.update(timed_start(server, told.last()))
    result.update(server.memory())
    result["syncs"] = server.metrics()["tallyman_journal_syncs_total"]
    if result["syncs"] < 1:
        raise p.BenchError("an append was acknowledged without a sync")
    check_events(server, server.events)
    result["repeats"] = server.repeat_all(acks)
    server.settle()
    return result


# ---- floors ----

def spawn_s(run, settings):
    """What starting a program costs: the median of five."""
    times = []
    for _ in range(5):
        start = time.monotonic()
        subprocess.run(p.on_core(settings.server_core, [settings.tallyman, "version"]), check=True,
                       capture_output=True)
        times.append(time.monotonic() - start)
    return statistics.median(times)


def read_cold(run, server):
    """GB (10^9) a second, the journal's files read from first to last after they were dropped."""
    cool(run, server.dir)
    total, start = 0, time.monotonic()
    for path in sorted(files_of(server.dir / "data" / "journal")):
        with open(path, "rb", buffering=0) as f:
            while piece := f.read(1 << 20):
                total += len(piece)
    return total / (time.monotonic() - start) / 1e9


def small(run, settings):
    """The same start on a few megabytes: what is there before size costs anything."""
    server = history.Server(settings)
    server.dir = run.data / "small"
    server.start()
    try:
        told, _ = kill_at_load(run, server)
        return timed_start(server, told.last())
    finally:
        server.stop()
        server.remove()


# ---- Tallyman ----

def payloads_of(server):
    """The payloads of the first pool of batches, for the peers."""
    _, text = Probe(server.port, (None, None)).ask("GET", f"/v1/events?limit={16 * BATCH}")
    rows = [json.loads(line) for line in text.splitlines()]
    return [json.dumps(row["payload"], separators=(",", ":")).encode() for row in rows
            if "payload" in row]


def journal_bytes(server):
    return server.metrics()["tallyman_journal_bytes"]


def fill(run, server):
    want = run.gib * (1 << 30)
    start = time.monotonic()
    server.fill(lambda: (want - journal_bytes(server)) / EVENT_BYTES, BATCH,
                lambda: history.need_disk(run.data, SLICE_BYTES))
    r.say(f"# W9 filled: {server.events} events, {journal_bytes(server) / 1e9:.2f} GB in "
          f"{time.monotonic() - start:.0f} s")
    server.settle()


def measure_tallyman(run, settings):
    """Returns what the peers need: payloads, events and the medians of the cases."""
    history.need_disk(run.data, run.gib * 1.1 * (1 << 30)
                      + run.rounds * len(run.cases) * run.seconds * 5e8)
    server = history.Server(settings)
    server.start()
    try:
        fill(run, server)
        payloads, events = payloads_of(server), server.events
        print(f"floor spawn_ms={spawn_s(run, settings) * 1e3:.1f} "
              + " ".join(f"small_{k}={v:.3f}" for k, v in small(run, settings).items())
              + f" read_cold={read_cold(run, server):.2f}GB/s", flush=True)
        for number in range(run.rounds):
            for case in run.cases if number % 2 == 0 else run.cases[::-1]:
                result = killed_and_started(run, server, case)
                result["journal_gib"] = journal_bytes(server) / (1 << 30)
                result["events"] = server.events
                run.note(number, "tallyman", case, result)
    finally:
        code = server.stop()
    if code != 0:
        run.fault(f"tallyman ended with {code}")
    server.verify_chain()
    server.remove()
    return payloads, events


# ---- peers ----

def measure_redis(run, settings, payloads, events):
    peer = rp.Redis(settings)
    want = rp.bounded("redis", events, run.data)
    peer.start()
    try:
        peer.fill(payloads, want, run.peer_s)
        for name in ("redis", "redis_rewritten"):
            if name == "redis_rewritten":
                peer.rewrite()
            for case in ("warm", "cold"):
                peer.kill_at_load(payloads, run.seconds)
                size = p.disk_bytes(peer.dir) / 1e9
                if case == "cold":
                    cool(run, peer.dir)
                count = peer.events
                run.note(0, name, case, {**peer.timed_start(), "events": count, "gb": size})
    finally:
        peer.stop()
    peer.remove()


def measure_postgres(run, settings, payloads, events):
    peer = rp.Postgres(settings)
    want = rp.bounded("postgres", events, run.data)
    peer.start()
    try:
        for case in ("warm", "cold"):
            first = case == "warm"
            # The second time only long enough to be in the middle of work.
            peer.kill_at_load(want if first else 0, run.peer_s if first else run.seconds, first)
            size = p.disk_bytes(peer.dir) / 1e9
            if case == "cold":
                cool(run, peer.dir)
            count = peer.events
            run.note(0, "postgres", case, {**peer.timed_start(), "events": count, "gb": size})
    finally:
        peer.stop()
    shutil.rmtree(peer.dir, ignore_errors=True)


# ---- lines ----

def middle(results, key, form):
    values = [result[key] for result in results]
    text = f"{statistics.median(values):{form}}"
    return text if len(values) == 1 else f"{text}[{min(values):{form}}..{max(values):{form}}]"


def print_lines(run, events):
    for (peer, case), results in run.lines.items():
        words = [f"W9 peer={peer} case={case} events={results[-1]['events']:.0f}"]
        if peer == "tallyman":
            words.append(f"journal_gib={results[-1]['journal_gib']:.2f}")
        else:
            words.append(f"of={events} gb={results[-1]['gb']:.2f}")
        words += [f"{key}={middle(results, key, '.3f')}" for key in ("first_read_s", "first_ack_s")]
        ours = run.lines.get(("tallyman", case))
        if peer == "tallyman":
            words += [f"{key}={middle(results, key, '.0f')}" for key in
                      ("rss_mb", "rss_max_mb", "syncs", "repeats")]
        elif ours:
            words += [f"ratio_{key[:-2]}={results[0][key] / statistics.median(o[key] for o in ours):.1f}"
                      for key in ("first_read_s", "first_ack_s")]
        if case == "cold":
            words.append(f"cooled={run.cooled}")
        line = " ".join(words)
        print(line, flush=True)
        run.results.append({"peer": peer, "case": case, "line": line, "rounds": results})


PEERS = {"redis": measure_redis, "postgres": measure_postgres}


def measure(run):
    settings = p.Settings(run.build, run.data, *history.CORES)
    events = 0
    try:
        payloads, events = measure_tallyman(run, settings)
        for name, work in PEERS.items():
            if name in run.peers:
                try:
                    work(run, settings, payloads, events)
                except (p.BenchError, subprocess.SubprocessError, OSError) as error:
                    run.fault(f"{name}: {error}")
    finally:
        print_lines(run, events)


if __name__ == "__main__":
    sys.exit(r.main_of(Run, measure))
