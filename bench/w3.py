#!/usr/bin/env python3
"""W3: PostHog batches of 50 events of 500 bytes on 10 million receipts (bench/README.md).

  bench/w3.py BUILD

A round measures, for random and for version-7 UUIDs, each peer on a database of its own: Tallyman
at every width, plain and compressed, the plain SQLite schema with two sizes of transaction,
PostgreSQL at every width, and the floor. Every second round runs backwards. Settings are in
scripts/bench.
"""

import os
import subprocess
import sys

import capture_peers as cp
import peers as p
import run as r

WIDTHS = [1, 16, 64, 256]
LEVELS = {"gzip1": 1, "gzip": -1}  # -1: zlib's default, 6


class Run(r.Run):
    """Settings of W3; the defaults fit into six minutes."""

    def __init__(self, build):
        r.WORKLOADS["W3"] = {"batches": [cp.BATCH], "conns": WIDTHS, "main": "sqlite",
                             "peers": ["tallyman", "sqlite", "sqlite_group", "postgres", "floor"]}
        super().__init__(build, "W3")
        self.smoke = r.setting("SMOKE", 0, int) != 0
        smoke = self.smoke
        self.rounds = r.setting("ROUNDS", 1 if smoke else 2, int)
        self.seconds = r.setting("SECONDS", 0.4 if smoke else 2.0)
        self.warmup = r.setting("WARMUP", 0.1 if smoke else 0.3)
        self.slice = 0.2 if smoke else 0.5
        self.kinds = r.setting("UUIDS", ["random"] if smoke else ["random", "v7"], r.words(str))
        self.receipts = r.setting("RECEIPTS", 20000 if smoke else 10**7, int)
        self.packed_at = r.setting("GZIP", [64], r.words(int))
        self.unpinned = r.setting("UNPINNED", [] if smoke else [64], r.words(int))
        self.lines = {}  # (kind, width, body, pinned): rounds


CLASSES = {"tallyman": cp.Tallyman, "sqlite": cp.PlainSqlite, "sqlite_group": cp.GroupedSqlite,
           "postgres": cp.Postgres, "floor": cp.Floor}


def note(run, number, kind, width, body, pinned, name, result):
    """Files one result under its line, round by round."""
    rounds = run.lines.setdefault((kind, width, body, pinned), [])
    while len(rounds) <= number:
        rounds.append({})
    rounds[number][name] = result
    r.say(f"# W3 uuid={kind} conns={width} body={body}{'' if pinned else ' unpinned'} "
          f"round {number + 1}/{run.rounds} {name} {result['events_per_s']:.0f}/s "
          f"p99={result['p99_us']:.0f}us")


def loaded(run, peer, width):
    """One load on a running peer, its errors told."""
    result = peer.load(width, run.seconds, run.warmup)
    if result["errors"] != 0:
        run.fault(f"{peer.name} conns={width}: {result['errors']:.0f} errors: "
                  f"{result['complaint']}")
    return result


def settled(peer):
    if peer.process is not None and peer.name == "tallyman":
        cp.settle(peer.process.pid)


def unpinned_loads(run, number, peer, kind):
    for width in run.unpinned:
        cores = os.sched_getaffinity(0)
        cp.put_on_cores(peer.process.pid, cores)
        peer.s.load_core, pinned_core = None, peer.s.load_core
        settled(peer)
        note(run, number, kind, width, "plain", False, peer.name, loaded(run, peer, width))
        peer.s.load_core = pinned_core
        if peer.s.server_core is not None:
            cp.put_on_cores(peer.process.pid, {peer.s.server_core})


def server_loads(run, number, peer, kind, backwards):
    """Every width of a server, and what only Tallyman has: compressed bodies."""
    steps = [(width, "plain") for width in run.conns]
    if peer.name == "tallyman":
        steps += [(width, body) for width in run.packed_at for body in LEVELS]
    for width, body in reversed(steps) if backwards else steps:
        peer.gzip = LEVELS.get(body)
        settled(peer)
        result = loaded(run, peer, width)
        if number == 0 and peer.name != "floor":
            result["syncs_per_ack"] = peer.syncs_per_ack(width, run.slice)
        note(run, number, kind, width, body, True, peer.name, result)
    peer.gzip = None
    if peer.name in ("tallyman", "postgres") and kind == run.kinds[0]:
        unpinned_loads(run, number, peer, kind)


def sqlite_load(run, number, peer, kind):
    """One measurement stands in every line: SQLite here has no connections and no bodies."""
    result = loaded(run, peer, 1)
    if number == 0:
        result["syncs_per_ack"] = peer.syncs_per_ack(1, run.slice)
    for width in run.conns:
        note(run, number, kind, width, "plain", True, peer.name, result)
    for width in run.packed_at:
        for body in LEVELS:
            note(run, number, kind, width, body, True, peer.name, result)


def measure(run, number, peer, kind, backwards):
    peer.s.kind = kind
    peer.start()
    try:
        if peer.name.startswith("sqlite"):
            sqlite_load(run, number, peer, kind)
        else:
            server_loads(run, number, peer, kind, backwards)
    finally:
        code = peer.stop()
    if code not in (0, None):
        run.fault(f"{peer.name} ended with {code}")
    peer.verify(number == run.rounds - 1)
    peer.remove()


def one_round(run, number, peers):
    backwards = number % 2 == 1
    steps = [(name, kind) for kind in run.kinds for name in run.peers
             if name != "floor" or kind == run.kinds[0]]
    for name, kind in reversed(steps) if backwards else steps:
        try:
            measure(run, number, peers[name, kind], kind, backwards)
        except (p.BenchError, subprocess.SubprocessError, OSError) as error:
            run.fault(f"{name} uuid={kind}: {error}")
            peers[name, kind].remove()


def sync_words(run, rounds, width):
    """As run.sync_words; one sync of a group of SQLite stands behind GROUP answers."""
    words = []
    for name in run.peers:
        per_ack = r.median_of(rounds, name, "syncs_per_ack")
        if per_ack is None:
            continue
        behind_one = {"sqlite": 1, "sqlite_group": cp.GROUP}.get(name, width)
        honest = per_ack * behind_one > 0.95
        words.append(f"{name}:{per_ack:.4f}" + ("" if honest else "(DOES-NOT-SYNC)"))
        if not honest:
            run.fault(f"{name} conns={width}: does not sync: {per_ack:.5f} syncs an answer")
    return ",".join(words) if words else "?"


def with_floor(run, kind, width, pinned, rounds):
    """The floor of the same round and width; it knows neither UUIDs nor compression."""
    floor = run.lines.get((run.kinds[0], width, "plain", pinned), [])
    return [{**this, **({"floor": other["floor"]} if "floor" in other else {})}
            for this, other in zip(rounds, floor)]


def line_of(run, kind, width, body, pinned, rounds):
    rounds = with_floor(run, kind, width, pinned, rounds)
    words = ["W3", f"uuid={kind}", f"conns={width}", f"body={body}", f"receipts={run.receipts}"]
    if not pinned:
        words.append("pin=none")
    words.append(f"tallyman={r.rate(rounds, 'tallyman') or '?'}")
    for name in ("sqlite", "sqlite_group", "postgres"):
        if r.rate(rounds, name) is not None:
            label = "ratio" if name == run.main else f"ratio_{name}"
            words += [f"{name}={r.rate(rounds, name)}",
                      f"{label}={r.spread(r.ratios(rounds, 'tallyman', name))}"]
    if pinned:
        words.append(f"floor_share={r.spread(r.ratios(rounds, 'tallyman', 'floor'))}")
        words.append(f"syncs={sync_words(run, rounds, width)}")
    words.append(f"cpu_us_per_event={r.cpu_words(run, rounds)}")
    for key in ("p50_us", "p99_us"):
        value = r.median_of(rounds, "tallyman", key)
        if value is not None:
            words.append(f"{key}={value:.0f}")
    return " ".join(words)


def print_lines(run):
    order = [(kind, width, body, pinned) for kind in run.kinds
             for body in ("plain", *LEVELS) for width in sorted({*run.conns, *run.packed_at})
             for pinned in (True, False)]
    for key in order:
        if key in run.lines and any("tallyman" in x for x in run.lines[key]):
            line = line_of(run, *key, run.lines[key])
            print(line, flush=True)
            run.results.append({"key": list(key), "line": line, "rounds": run.lines[key]})


def settings_of(run):
    two_cores = os.cpu_count() > 1
    s = cp.Settings(run.build, run.data, 0 if two_cores else None, 1 if two_cores else None)
    s.receipts = run.receipts
    return s


def measure_all(run):
    peers = {(name, uuids): CLASSES[name](settings_of(run))
             for name in run.peers for uuids in run.kinds}
    for (name, uuids), peer in peers.items():
        peer.dir = run.data / f"{name}-{uuids}"
    for number in range(run.rounds):
        one_round(run, number, peers)
    print_lines(run)


if __name__ == "__main__":
    sys.exit(r.main_of(Run, measure_all))
