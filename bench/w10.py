#!/usr/bin/env python3
"""W10: what grows with the history (bench/README.md).

  bench/w10.py BUILD

One server is filled to 1 million events, to 10 million and so on up to EVENTS. At each size:
memory, descriptors, appends at 16 connections, the answer to old batches that are sent again, and
bytes on disk. At the last one the history is sealed beside appends, and all is measured once more.
With SEAL_AFTER the server seals beside the filling, too, and the filling waits for it: the disk then
holds segments, the index and a few plain generations. Settings: scripts/bench.
"""

import os
import statistics
import subprocess
import sys
import threading
import time

import history
import peers as p
import run as r

CONNS = 16
PLAIN_BYTES = 730  # on disk an event, what the last generation reserves excepted
SEALED_BYTES = 130
KEY_BYTES = 100  # of the index a batch, while its runs are merged
RESERVED_BYTES = 2 << 30
GENERATION_BYTES = 64 << 20
WAITING = 32  # closed generations that may wait for their seal
SEAL_S = 7200


class Run(r.Run):
    def __init__(self, build):
        r.WORKLOADS["W10"] = {"batches": [100], "conns": [CONNS], "main": "",
                              "peers": ["tallyman", "floor"]}
        super().__init__(build, "W10")
        self.smoke = smoke = r.setting("SMOKE", 0, int) != 0
        self.rounds = r.setting("ROUNDS", 1 if smoke else 3, int)
        self.seconds = r.setting("SECONDS", 0.4 if smoke else 4.0)
        self.warmup = r.setting("WARMUP", 0.1 if smoke else 1.0)
        self.batch = r.setting("BATCH", 100, int)
        most = r.setting("EVENTS", 200000 if smoke else 10**7, int)
        first = 60000 if smoke else 10**6
        self.points = [first * 10**n for n in range(10) if first * 10**n < most] + [most]
        self.seal_after = r.setting("SEAL_AFTER", 0, int)
        self.peak = 0  # bytes on disk, at most, as seen between the slices of the filling
        self.start = None  # of the first point, what the others are compared with


class Server(history.Server):
    def __init__(self, settings, seal_after):
        super().__init__(settings)
        self.seal_after = seal_after

    def command(self):
        return [*super().command(), "--seal-after-generations", self.seal_after]


def in_use(directory):
    """Bytes on disk beside a server that removes files."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total


def need_bytes(run):
    """What the last size takes on the disk."""
    events, batches = run.points[-1], run.points[-1] / run.batch
    waiting = min(PLAIN_BYTES * events, (run.seal_after + WAITING) * GENERATION_BYTES)
    history_bytes = SEALED_BYTES * events + waiting if run.seal_after else PLAIN_BYTES * events
    return 1.1 * (history_bytes + KEY_BYTES * batches) + RESERVED_BYTES


def make_room(run, server):
    """Between two slices of the filling: waits until sealing keeps up with it."""
    end = time.monotonic() + SEAL_S
    while True:
        run.peak = max(run.peak, in_use(server.dir))
        history.need_disk(run.data, RESERVED_BYTES)
        if run.seal_after == 0:
            return
        m = server.metrics()
        if m["tallyman_journal_seal_failures_total"] > 0:
            raise p.BenchError("a generation could not be sealed")
        plain = m["tallyman_journal_generations"] - 1 - m["tallyman_journal_segments"]
        if plain <= run.seal_after + WAITING:
            return
        if time.monotonic() > end:
            raise p.BenchError("sealing does not keep up")
        time.sleep(0.2)


def sizes(server):
    """Bytes in use on disk; without the next tail, which is zeros."""
    data = server.dir / "data"
    spare = data / "journal" / "tail.next"
    unused = spare.stat().st_blocks * 512 if spare.exists() else 0
    return {"history": p.disk_bytes(data / "journal") - unused,
            "index": p.disk_bytes(data / "index")}


def appends(run, server, number):
    """One load of single events on each of CONNS connections, and the bare server's beside it."""
    floor = p.Floor(server.s)
    steps = [server, floor] if number % 2 == 0 else [floor, server]
    done = {}
    for one in steps:
        if one is floor:
            floor.start()
        try:
            command = [*one.load_args(CONNS, 1, run.seconds, "--warmup", run.warmup)] \
                if one is server else [*floor.load_command(CONNS), "--seconds", run.seconds,
                                       "--warmup", run.warmup]
            done[one.name] = server.run(command, f"appends to {one.name}")
        finally:
            if one is floor:
                floor.stop()
                floor.remove()
    server.events += int(done["tallyman"]["acks_total"])
    return done


def syncs_per_ack(run, server):
    """By the server's own count, over a load outside the measured ones."""
    before = server.metrics()["tallyman_journal_syncs_total"]
    result = server.append(CONNS, 1, min(1.0, run.seconds))
    after = server.metrics()["tallyman_journal_syncs_total"]
    per_ack = (after - before) / max(1, result["acks_total"])
    if per_ack * CONNS <= 0.95:
        run.fault(f"does not sync: {per_ack:.5f} syncs an answer")
    return per_ack


def measured(run, server, acks, what):
    """All figures at one size."""
    server.settle()
    os.sync()
    metrics = server.metrics()
    if int(metrics["tallyman_journal_events"]) != server.events:
        raise p.BenchError(f"the server counts {metrics['tallyman_journal_events']:.0f} events, "
                           f"{server.events} were acknowledged")
    size = sizes(server)
    facts = {"events": server.events, "batches": metrics["tallyman_journal_batches_total"],
             "generations": metrics["tallyman_journal_generations"],
             "segments": metrics["tallyman_journal_segments"],
             "journal_per_event": metrics["tallyman_journal_bytes"] / server.events,
             "disk_per_event": size["history"] / server.events,
             "index_per_batch": size["index"] / max(1.0, metrics["tallyman_journal_batches_total"]),
             "index_mb": metrics["tallyman_index_memory_bytes"] / 1e6,
             "disk_mb": in_use(server.dir) / 1e6, "disk_peak_mb": run.peak / 1e6,
             "descriptors": server.descriptors(), **server.memory(),
             "syncs": syncs_per_ack(run, server)}
    rounds = []
    for number in range(run.rounds):
        done = appends(run, server, number)
        # A batch that was sent before is looked up and answered without anything written.
        old = server.repeat(1, run.seconds, acks)
        rounds.append({"append": done["tallyman"], "floor": done["floor"], "old": old})
        r.say(f"# W10 {what} round {number + 1}/{run.rounds} append "
              f"{done['tallyman']['events_per_s']:.0f}/s p99={done['tallyman']['p99_us']:.0f}us "
              f"old p99={old['p99_us']:.0f}us")
    facts["rounds"] = rounds
    facts["descriptors_after"] = server.descriptors()
    return facts


def middle(rounds, part, key):
    return statistics.median(one[part][key] for one in rounds)


def figures(facts):
    rounds = facts["rounds"]
    return {"append_p50_us": middle(rounds, "append", "p50_us"),
            "append_p99_us": middle(rounds, "append", "p99_us"),
            "floor_p99_us": middle(rounds, "floor", "p99_us"),
            "old_p50_us": middle(rounds, "old", "p50_us"),
            "old_p99_us": middle(rounds, "old", "p99_us"),
            "rss_mb": facts["rss_mb"]}


def shares(rounds):
    return [one["append"]["events_per_s"] / one["floor"]["events_per_s"] for one in rounds
            if one["floor"]["events_per_s"] > 0]


def print_line(run, state, facts, more=()):
    rounds = facts["rounds"]
    now = figures(facts)
    if run.start is None:
        run.start = now
    words = [f"W10 state={state} events={facts['events']} keys={facts['batches']:.0f}",
             f"generations={facts['generations']:.0f} segments={facts['segments']:.0f}",
             f"append={middle(rounds, 'append', 'events_per_s'):.0f}/s",
             f"floor_share={r.spread(shares(rounds))} syncs={facts['syncs']:.4f}"]
    words += [f"{key}={value:.0f}" for key, value in now.items()]
    words += [f"{key}={facts[key]:.0f}" for key in ("rss_max_mb", "index_mb", "disk_mb",
                                                    "disk_peak_mb")]
    words += [f"descriptors={facts['descriptors']}..{facts['descriptors_after']}"]
    words += [f"{key}={facts[key]:.0f}" for key in ("journal_per_event", "disk_per_event",
                                                    "index_per_batch")]
    words += [f"ratio_first_{key}={now[key] / run.start[key]:.2f}" for key in now
              if run.start[key] > 0]
    line = " ".join([*words, *more])
    print(line, flush=True)
    run.results.append({"state": state, "line": line, "facts": facts})


def sealed_beside_appends(run, server):
    """Asks the server to seal all of it, while appends go on: seconds, and what they met."""
    before = sizes(server)["history"]
    command = [server.s.tallyman, "seal", "--data", server.dir / "data"]
    start = time.monotonic()
    done = {}

    def work():
        done["seal"] = subprocess.run(p.on_core(server.s.load_core, command), capture_output=True,
                                      text=True, timeout=SEAL_S)
        done["took_s"] = time.monotonic() - start

    worker = threading.Thread(target=work)
    worker.start()
    beside = []
    try:
        while worker.is_alive() or not beside:
            beside.append(server.append(CONNS, 1, min(1.0, run.seconds)))
            if not worker.is_alive() and len(beside) > 1:
                beside.pop()  # the last one went on after the end
    finally:
        worker.join()
    if "took_s" not in done or done["seal"].returncode != 0:
        raise p.BenchError(f"seal: {done['seal'].stderr[-500:] if done else 'no end'}")
    p99 = [one["p99_us"] for one in beside]
    return {"seal_s": done["took_s"], "before": before, "beside": beside,
            "p50_us": statistics.median(one["p50_us"] for one in beside),
            "p99_us": statistics.median(p99), "p99_worst_us": max(p99),
            "per_s": statistics.median(one["events_per_s"] for one in beside)}


def seal(run, server, acks, plain):
    result = sealed_beside_appends(run, server)
    quiet = middle(plain["rounds"], "append", "p99_us")
    line = (f"W10 seal events={plain['events']} seal_s={result['seal_s']:.2f} "
            f"plain_mb_per_s={result['before'] / 1e6 / result['seal_s']:.0f} "
            f"append={result['per_s']:.0f}/s p50_us={result['p50_us']:.0f} "
            f"p99_us={result['p99_us']:.0f} p99_worst_us={result['p99_worst_us']:.0f} "
            f"ratio_p99={result['p99_us'] / quiet:.2f}")
    print(line, flush=True)
    run.results.append({"state": "seal", "line": line, "facts": result})
    sealed = measured(run, server, acks, "sealed")
    if sealed["segments"] <= plain["segments"]:
        run.fault("nothing was sealed")
    smaller = plain["disk_per_event"] / sealed["disk_per_event"]
    print_line(run, "sealed", sealed, [f"smaller={smaller:.2f}"])


def measure(run):
    settings = p.Settings(run.build, run.data, *history.CORES)
    history.need_disk(run.data, need_bytes(run))
    server = Server(settings, run.seal_after)
    server.start()
    acks = run.data / "acks"
    try:
        for number, point in enumerate(run.points):
            start, had = time.monotonic(), server.events
            server.fill(lambda: point - server.events, run.batch, lambda: make_room(run, server),
                        *((acks, 0.3 if run.smoke else 2.0) if number == 0 else ()))
            took_s = time.monotonic() - start
            filled = (server.events - had) / took_s
            plain = measured(run, server, acks, f"events={point}")
            print_line(run, "sealing" if run.seal_after else "plain", plain,
                       [f"filled={filled:.0f}/s", f"took_s={took_s:.0f}"])
        seal(run, server, acks, plain)
        server.repeat_all(acks)
    finally:
        code = server.stop()
    if code != 0:
        run.fault(f"tallyman ended with {code}")
    server.verify_chain()


if __name__ == "__main__":
    sys.exit(r.main_of(Run, measure))
