#!/usr/bin/env python3
"""W5: uploads by tus: large files, eight at once, small files to a synced receipt (README.md).

  bench/w5.py BUILD

A round measures each step with each server, every second round backwards: one large file of each
size with curl and, with the same bytes once more, how long the answer takes after the last byte;
eight files at once; small files in one request or two, on one connection and on sixteen; single
history appends beside uploads that never end. Every measurement has a fresh server and an empty
directory. Settings: scripts/bench.
"""

import os
import statistics
import subprocess
import sys
import threading

import capture_peers as cp
import peers as p
import run as r
import upload_peers as up

MIB, GIB = 1 << 20, 1 << 30
FILE_BYTES = 65536
PARALLEL = 8
SPARE_BYTES = 1 * GIB
TUS_BYTES_MAX = GIB  # what does not sync is not worth more of the disk
HOWS = ["creation", "two"]  # a POST with the file; a POST, then a PATCH with it


def size_text(size):
    return f"{size // GIB}GiB" if size % GIB == 0 else f"{size // MIB}MiB"


class Run(r.Run):
    """Settings of W5; the defaults fit into ten minutes."""

    def __init__(self, build):
        r.WORKLOADS["W5"] = {"batches": [1], "conns": [1, 16], "main": "tus",
                             "peers": ["tallyman", "floor", "tus"]}
        super().__init__(build, "W5")
        self.smoke = r.setting("SMOKE", 0, int) != 0
        smoke = self.smoke
        self.rounds = r.setting("ROUNDS", 1 if smoke else 3, int)
        self.seconds = r.setting("SECONDS", 0.5 if smoke else 4.0)
        self.warmup = r.setting("WARMUP", 0 if smoke else 0.5)
        self.slice = 0.2 if smoke else 0.5
        self.files = r.setting("FILES", 200 if smoke else 0, int)  # a load; 0: as many as go
        self.conns = r.setting("CONNS", [1, 16], r.words(int))
        self.sizes = [n * MIB for n in r.setting("MIB", [64] if smoke else [64, 1024, 8192],
                                                 r.words(int))]
        self.each = r.setting("EACH_MIB", 8 if smoke else 256, int) * MIB
        default = ["tallyman", "floor"] if smoke else ["tallyman", "floor", "tus"]
        wanted = r.setting("PEERS", default, r.words(str))
        self.peers = [name for name in up.PEERS if name in wanted]
        self.steps = r.setting("STEPS", ["upload", "parallel", "files", "appends"], r.words(str))
        self.small = [(how, conns) for how in HOWS for conns in self.conns]
        if smoke:
            self.small = [("creation", 1), ("two", 16)]
        self.inputs = {}
        self.done = {}  # (step, peer): {round: result}


# ---- what is measured ----

def ended(run, peer, size, whole):
    code = peer.stop()
    if code not in (0, None):
        run.fault(f"{peer.name} ended with {code}")
    peer.check_files(size, whole)


def with_server(run, name, size, whole, work):
    """What work(server) gives: a fresh server at rest, when nothing of what came before is still
    being written. It is ended, its files are checked and removed."""
    peer = up.PEERS[name](p.Settings(run.build, run.data, None, None))
    try:
        peer.start()
        if not run.smoke:
            cp.settle(peer.process.pid)
        os.sync()
        result = work(peer)
        ended(run, peer, size, whole)
    finally:
        peer.stop()
        peer.remove()
    return result


def large(run, number, name, size):
    data = run.inputs[size]
    whole = number == 0 or size <= GIB
    data.warm()
    result = with_server(run, name, size, whole, lambda peer: peer.uploads(data, 1))
    data.warm()
    result["last_ms"] = with_server(run, name, size, False, lambda peer: peer.last_answer_ms(data))
    return result


def parallel(run, number, name, size):
    data = run.inputs[size]
    data.warm()
    return with_server(run, name, size, number == 0, lambda peer: peer.uploads(data, PARALLEL))


def small(run, number, name, step):
    how, conns = step

    def work(peer):
        peer.how, peer.files = how, run.files
        result = peer.load(conns, run.seconds, run.warmup)
        if result["errors"] != 0:
            run.fault(f"{name} {how} inflight={conns}: {result['errors']:.0f} errors: "
                      f"{result['complaint']}")
        if number == 0:
            per_ack = peer.syncs_per_ack(conns, run.slice)
            if per_ack is not None:
                result["syncs_per_ack"] = per_ack
        return result

    return with_server(run, name, FILE_BYTES, True, work)


class Uploading(threading.Thread):
    """Uploads of one file, one after another, until told to end."""

    def __init__(self, server, data):
        super().__init__(daemon=True)
        self.server, self.data = server, data
        self.end = threading.Event()
        self.rates = []
        self.trouble = None

    def run(self):
        try:
            while not self.end.is_set():
                self.rates.append(self.server.uploads(self.data, 1)["bytes_per_s"])
        except (OSError, p.BenchError, subprocess.SubprocessError) as error:
            self.trouble = error

    def finish(self):
        self.end.set()
        self.join()
        if self.trouble is not None:
            raise p.BenchError(f"uploading: {self.trouble}")
        return statistics.median(self.rates)


def appends(run, number, name, beside):
    """Single appends to Tallyman: alone, beside uploads to it, beside uploads to the floor on the
    same disk (which is what the disk and the cores take, whoever serves)."""
    data = run.inputs[min(run.sizes)]
    data.warm()
    if beside == "nothing":
        return with_server(run, name, data.size, False,
                           lambda peer: peer.append_load(run.seconds, run.warmup))

    def work(peer, target):
        uploading = Uploading(target, data)
        uploading.start()
        try:
            result = peer.append_load(run.seconds, run.warmup)
        finally:
            uploading.end.set()
        result["bytes_per_s"] = uploading.finish()
        return result

    if beside == "uploads":
        return with_server(run, name, data.size, False, lambda peer: work(peer, peer))
    return with_server(run, "floor", data.size, False, lambda target: with_server(
        run, name, data.size, False, lambda peer: work(peer, target)))


def steps_of(run):
    """(kind, what, work, peers)."""
    steps = [("upload", size, large, [name for name in run.peers
                                      if name != "tus" or size <= TUS_BYTES_MAX])
             for size in run.sizes if size in run.inputs]
    steps.append(("parallel", run.each, parallel, run.peers))
    steps += [("files", step, small, run.peers) for step in run.small]
    if "tallyman" in run.peers:
        besides = ["nothing", "uploads"] + (["floor"] if "floor" in run.peers else [])
        steps += [("appends", beside, appends, ["tallyman"]) for beside in besides]
    return [step for step in steps if step[0] in run.steps]


def one_round(run, number):
    todo = [(kind, what, work, name) for kind, what, work, names in steps_of(run) for name in names]
    for kind, what, work, name in todo if number % 2 == 0 else list(reversed(todo)):
        try:
            result = work(run, number, name, what)
        except (p.BenchError, subprocess.SubprocessError, OSError) as error:
            run.fault(f"{name} {kind} {what}: {error}")
            continue
        run.done.setdefault((kind, what, name), {})[number] = result
        r.say(f"# W5 {kind} {what} round {number + 1}/{run.rounds} {name} "
              + " ".join(f"{k}={result[k]:.3g}" for k in
                         ("bytes_per_s", "cpu_s_per_gib", "last_ms", "events_per_s", "p99_us")
                         if k in result))


# ---- lines ----

def values(run, kind, what, name, key):
    rounds = run.done.get((kind, what, name), {})
    return {n: result[key] for n, result in rounds.items() if key in result}


def over(above, below):
    return [above[n] / below[n] for n in above if n in below and below[n] > 0]


def by_peer(run, kind, what, key, form):
    words = []
    for name in run.peers:
        found = values(run, kind, what, name, key)
        if found:
            words.append(f"{name}:{statistics.median(found.values()):{form}}")
    return ",".join(words) or "?"


def rates(run, kind, what, key, form):
    """The rate of each, then Tallyman's share of the floor and how many times the peer it is."""
    words = []
    mine = values(run, kind, what, "tallyman", key)
    for name in run.peers:
        found = values(run, kind, what, name, key)
        if not found:
            continue
        words.append(f"{name}={form(statistics.median(found.values()))}")
        if name != "tallyman":
            label = {"floor": "floor_share", "tus": "ratio_tus"}[name]
            words.append(f"{label}={r.spread(over(mine, found))}")
    return words


def gigabytes(value):
    return f"{value / 1e9:.2f}GB/s"


def upload_line(run, kind, what):
    count = f"{PARALLEL}x" if kind == "parallel" else ""
    words = ["W5", f"upload={count}{size_text(what)}",
             *rates(run, kind, what, "bytes_per_s", gigabytes)]
    if kind == "upload" and what > GIB and GIB in run.sizes:
        for name in ("tallyman", "floor"):
            one = values(run, kind, GIB, name, "bytes_per_s")
            found = values(run, kind, what, name, "bytes_per_s")
            if found:
                words.append(f"{name}_of_1GiB={r.spread(over(found, one))}")
    words.append(f"cpu_s_per_gib={by_peer(run, kind, what, 'cpu_s_per_gib', '.2f')}")
    if kind == "upload":
        words.append(f"last_answer_ms={by_peer(run, kind, what, 'last_ms', '.1f')}")
    return words


def sync_words(run, what):
    """As run.sync_words; that @tus/server does not sync is known, and no fault."""
    words = []
    for name in run.peers:
        found = values(run, "files", what, name, "syncs_per_ack")
        if not found:
            continue
        per_ack = statistics.median(found.values())
        honest = per_ack * what[1] > 0.95
        words.append(f"{name}:{per_ack:.2f}" + ("" if honest else "(DOES-NOT-SYNC)"))
        if not honest and name != "tus":
            run.fault(f"{name} {what}: does not sync: {per_ack:.5f} syncs a receipt")
    return ",".join(words) or "?"


def files_line(run, what):
    how, conns = what
    words = ["W5", f"files={FILE_BYTES // 1024}KiB", f"how={how}", f"inflight={conns}",
             *rates(run, "files", what, "events_per_s", lambda v: f"{v:.0f}/s"),
             f"syncs={sync_words(run, what)}",
             f"cpu_us_per_file={by_peer(run, 'files', what, 'cpu_us_per_event', '.0f')}"]
    return words + [f"{key}={by_peer(run, 'files', what, key, '.0f')}"
                    for key in ("p50_us", "p99_us")]


def appends_line(run, beside):
    words = ["W5", f"appends_beside={beside}"]
    alone = values(run, "appends", "nothing", "tallyman", "p99_us")
    for key, unit in (("events_per_s", "/s"), ("p50_us", ""), ("p99_us", "")):
        found = values(run, "appends", beside, "tallyman", key)
        label = "tallyman" if key == "events_per_s" else key
        words.append(f"{label}={statistics.median(found.values()):.0f}{unit}")
    if beside != "nothing":
        words.append(f"ratio_p99={r.spread(over(found, alone))}")
        uploading = values(run, "appends", beside, "tallyman", "bytes_per_s")
        words.append(f"uploading={gigabytes(statistics.median(uploading.values()))}")
    return words


def print_lines(run):
    for kind, what, _, names in steps_of(run):
        if (kind, what, "tallyman") not in run.done:
            continue
        if kind == "files":
            words = files_line(run, what)
        elif kind == "appends":
            words = appends_line(run, what)
        else:
            words = upload_line(run, kind, what)
        line = " ".join(words)
        print(line, flush=True)
        run.results.append({"step": [kind, what], "line": line, "rounds": {
            name: list(run.done.get((kind, what, name), {}).values()) for name in names}})


# ---- the run ----

def make_inputs(run):
    """Files to send, of the sizes that fit on the disk and, with their copies, in memory."""
    settings = p.Settings(run.build, run.data, None, None)
    for size in sorted({*run.sizes, run.each}):
        free, kept = up.free_bytes(run.data)
        needed = kept + 2 * size + SPARE_BYTES
        memory = up.cached_bytes_possible()
        if free < needed or memory < size + SPARE_BYTES:
            print(f"W5 upload={size_text(size)} SKIPPED: it needs {needed / GIB:.0f} GiB of disk "
                  f"({free / GIB:.0f} are free) and {(size + SPARE_BYTES) / GIB:.0f} GiB of memory "
                  f"({memory / GIB:.0f} are free)", flush=True)
            continue
        run.inputs[size] = up.Input(settings, size)
    if run.each not in run.inputs or min(run.sizes) not in run.inputs:
        raise p.BenchError(f"{run.data}: no room for the least of the uploads")


def spread_directories(run):
    """Where the file system is ext4: every server's directory into a block group of its own, by its
    name. Without a journal, ext4 does not use an inode again for minutes after its deletion, and
    looks at each such one whenever a file is made in the same group: what one measurement (or
    anything else on the machine) has removed, the next one would pay for."""
    done = subprocess.run(["chattr", "+T", run.data], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        r.say(f"# W5 all servers' files lie in one block group: {done.stderr.strip()}")


def measure_all(run):
    if "tus" in run.peers:
        up.install_tus(run.build)
    spread_directories(run)
    make_inputs(run)
    for number in range(run.rounds):
        one_round(run, number)
    print_lines(run)


if __name__ == "__main__":
    sys.exit(r.main_of(Run, measure_all))
