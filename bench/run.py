#!/usr/bin/env python3
"""Runs one workload against its peers, round by round; one line a result (bench/README.md).

  bench/run.py BUILD W1|W2

Settings come from the environment: ROUNDS, SECONDS, WARMUP, CONNS, BATCHES, PEERS, UNPINNED, SMOKE,
DATA (scripts/bench explains them).
"""

import datetime
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys

import peers as p

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKLOADS = {
    "W1": {"batches": [1], "conns": [1, 16, 64, 256], "main": "redis",
           "peers": ["tallyman", "redis", "redis_same_job", "postgres", "floor"]},
    "W2": {"batches": [100, 1000], "conns": [1, 16], "main": "postgres",
           "peers": ["tallyman", "postgres", "sqlite", "floor"]},
}


def setting(name, default, kind=float):
    text = os.environ.get(name, "").strip()
    return kind(text) if text else default


def words(kind):
    return lambda text: [kind(word) for word in text.replace(",", " ").split()]


class Run:
    """The settings of one run and what came out of it."""

    def __init__(self, build, workload):
        what = WORKLOADS[workload]
        smoke = setting("SMOKE", 0, int) != 0
        self.workload = workload
        self.build = build
        self.main = what["main"]
        self.rounds = setting("ROUNDS", 1 if smoke else 5, int)
        self.seconds = setting("SECONDS", 1.0 if smoke else 8.0)
        self.warmup = setting("WARMUP", 0.2 if smoke else 2.0)
        self.slice = 0.3 if smoke else 1.0
        self.conns = setting("CONNS", [64] if smoke else what["conns"], words(int))
        batches = what["batches"][:1] if smoke else what["batches"]
        self.batches = setting("BATCHES", batches, words(int))
        self.unpinned = setting("UNPINNED", [] if smoke else what["conns"][-2:-1], words(int))
        default = [name for name in what["peers"] if not (smoke and name == "postgres")]
        self.peers = setting("PEERS", default, words(str))
        data = setting("DATA", str(pathlib.Path(build) / "bench-data"), str)
        self.data = pathlib.Path(data).resolve()
        self.faults = []
        self.results = []

    def fault(self, text):
        self.faults.append(text)
        print(f"FAULT {text}", file=sys.stderr, flush=True)


def say(text):
    print(text, file=sys.stderr, flush=True)


def disk_floor(run):
    """1.1 of the protocol: what one synced write costs at this moment."""
    done = subprocess.run([pathlib.Path(run.build) / "bench" / "floor", "disk", run.data,
                           str(0.2 if run.seconds < 2 else 2)],
                          capture_output=True, text=True, check=True)
    return p.numbers(done.stdout)


def measure(run, peer, conns, with_syncs):
    """One peer, one round: fresh data, load, checks, sync slice, stop."""
    os.sync()
    peer.start()
    try:
        result = peer.load(conns, run.seconds, run.warmup)
        if result["errors"] != 0:
            run.fault(f"{peer.name} conns={conns}: {result['errors']:.0f} errors: "
                      f"{result['complaint']}")
        result.update(peer.facts(result))
        slice_acks = None
        if with_syncs:
            slice_acks = peer.syncs_per_ack(conns, run.slice)
    finally:
        code = peer.stop()
    if code not in (0, None):
        run.fault(f"{peer.name} ended with {code}")
    result.update(peer.facts_stopped())
    if slice_acks is not None:
        result["syncs_per_ack"] = slice_acks
    peer.remove()
    return result


def spread(values):
    """Median with its least and greatest value; '?' when nothing was measured."""
    if not values:
        return "?"
    middle = statistics.median(values)
    if len(values) == 1:
        return f"{middle:.2f}"
    return f"{middle:.2f}[{min(values):.2f}..{max(values):.2f}]"


def rate(rounds, name):
    values = [r[name]["events_per_s"] for r in rounds if name in r]
    return f"{statistics.median(values):.0f}/s" if values else None


def ratios(rounds, over, under):
    return [r[over]["events_per_s"] / r[under]["events_per_s"] for r in rounds
            if over in r and under in r and r[under]["events_per_s"] > 0]


def median_of(rounds, name, key):
    values = [r[name][key] for r in rounds if name in r and key in r[name]]
    return statistics.median(values) if values else None


def sync_words(run, rounds, conns):
    """Sync calls per acknowledgement of each peer. With one request in flight a connection, one
    sync can stand behind at most `conns` acknowledgements: fewer mean that some were not synced."""
    out = []
    for name in run.peers:
        per_ack = median_of(rounds, name, "syncs_per_ack")
        if per_ack is None:
            continue
        honest = per_ack * (1 if name == "sqlite" else conns) > 0.95
        out.append(f"{name}:{per_ack:.4f}" + ("" if honest else "(DOES-NOT-SYNC)"))
        if not honest:
            run.fault(f"{name} conns={conns}: does not sync: {per_ack:.5f} syncs an answer")
    return ",".join(out) if out else "?"


def cpu_words(run, rounds):
    costs = [(name, median_of(rounds, name, "cpu_us_per_event")) for name in run.peers]
    return ",".join(f"{name}:{cost:.2f}" for name, cost in costs if cost is not None)


def result_line(run, rounds, batch, conns, pinned):
    line = [run.workload]
    if run.workload != "W1":
        line.append(f"batch={batch}")
    line.append(f"conns={conns}")
    if not pinned:
        line.append("pin=none")
    line.append(f"tallyman={rate(rounds, 'tallyman') or '?'}")
    for name in [run.main] + [n for n in run.peers if n not in ("tallyman", "floor", run.main)]:
        if rate(rounds, name) is None:
            continue
        label = "ratio" if name == run.main else f"ratio_{name}"
        line.append(f"{name}={rate(rounds, name)}")
        line.append(f"{label}={spread(ratios(rounds, 'tallyman', name))}")
    line.append(f"floor_share={spread(ratios(rounds, 'tallyman', 'floor'))}")
    if pinned:
        line.append(f"syncs={sync_words(run, rounds, conns)}")
    line.append(f"cpu_us_per_event={cpu_words(run, rounds)}")
    for key, form in (("bytes_per_event", ".0f"), ("disk_per_event", ".0f"), ("p50_us", ".0f"),
                      ("p99_us", ".0f")):
        value = median_of(rounds, "tallyman", key)
        if value is not None:
            line.append(f"{key}={value:{form}}")
    return " ".join(line)


def measure_width(run, batch, conns, pinned):
    """All rounds at one batch size and width; every second round runs backwards."""
    two_cores = os.cpu_count() > 1 and pinned
    settings = p.Settings(run.build, run.data, 0 if two_cores else None, 1 if two_cores else None)
    settings.batch = batch
    these = {name: p.PEERS[name](settings) for name in run.peers}
    rounds = []
    for number in range(run.rounds):
        order = run.peers if number % 2 == 0 else list(reversed(run.peers))
        done = {}
        for name in order:
            with_syncs = pinned and number == 0
            try:
                done[name] = measure(run, these[name], conns, with_syncs)
            except (p.BenchError, subprocess.SubprocessError, OSError) as error:
                run.fault(f"{name} conns={conns}: {error}")
                these[name].remove()
                continue
            say(f"# {run.workload} batch={batch} conns={conns} round {number + 1}/{run.rounds}"
                f"{'' if pinned else ' unpinned'} {name} {done[name]['events_per_s']:.0f}/s"
                f" p99={done[name]['p99_us']:.0f}us")
        rounds.append(done)
    line = result_line(run, rounds, batch, conns, pinned)
    print(line, flush=True)
    run.results.append({"batch": batch, "conns": conns, "pinned": pinned, "line": line,
                        "rounds": rounds})


def write_results(run, disk):
    when = datetime.datetime.now(datetime.timezone.utc)
    path = ROOT / "bench" / "results" / f"{run.workload}-{when:%Y-%m-%dT%H%M%SZ}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    revision = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True,
                              text=True, check=False).stdout.strip()
    path.write_text(p.as_json({
        "workload": run.workload, "when": when.isoformat(), "revision": revision or None,
        "rounds": run.rounds, "seconds": run.seconds, "warmup": run.warmup,
        "machine": p.versions(), "disk_floor": disk, "results": run.results, "faults": run.faults}))
    return path


def begin_data(run):
    """An empty data directory; the filesystem it is on, None when that is none to measure on."""
    shutil.rmtree(run.data, ignore_errors=True)
    run.data.mkdir(parents=True)
    kind = subprocess.run(["stat", "-f", "-c", "%T", run.data], capture_output=True, text=True,
                          check=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        print(f"bench: {run.data} is on {kind}: nothing there is durable", file=sys.stderr)
        return None
    return kind


def print_floor(run, kind):
    disk = disk_floor(run)
    print(f"floor disk_4k={disk['disk_4k']:.0f}/s disk_256k={disk['disk_256k']:.0f}/s "
          f"filesystem={kind}", flush=True)
    return disk


def protocol(run, measure):
    """What every workload does around its measuring; the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kind = begin_data(run)
    if kind is None:
        return 1
    try:
        disk = print_floor(run, kind)
        try:
            measure(run)
        except (p.BenchError, subprocess.SubprocessError, OSError) as error:
            run.fault(str(error))
        path = write_results(run, disk)
    finally:
        shutil.rmtree(run.data, ignore_errors=True)
    say(f"# written: {path}")
    return 1 if run.faults else 0


def main_of(make, measure):
    """Of a program that takes BUILD alone."""
    if len(sys.argv) != 2:
        print(f"usage: {sys.argv[0]} BUILD", file=sys.stderr)
        return 2
    return protocol(make(sys.argv[1]), measure)


def measure_widths(run):
    for batch in run.batches:
        for conns in run.conns:
            measure_width(run, batch, conns, pinned=True)
        for conns in run.unpinned:
            measure_width(run, batch, conns, pinned=False)


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in WORKLOADS:
        print(f"usage: bench/run.py BUILD {'|'.join(WORKLOADS)}", file=sys.stderr)
        return 2
    return protocol(Run(sys.argv[1], sys.argv[2]), measure_widths)


if __name__ == "__main__":
    sys.exit(main())
