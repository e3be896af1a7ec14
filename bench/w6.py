#!/usr/bin/env python3
"""W6: resuming (README.md): uploads that are cut at random bytes, over and over; the last answer to
an upload of many requests; appends beside a steady upload, and beside deliveries; memory with many
uploads open.

  bench/w6.py BUILD

A cut ends the connection in the middle of a PATCH, by a reset or an end, at a random byte; then
HEAD, on a new connection, tells where to go on. No offset may be below one that was told before.
SEED gives the cuts. Settings: scripts/bench.
"""

import http.client
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

import peers as p
import run as r
import upload_peers as up

MIB, GIB = 1 << 20, 1 << 30
CUT_BYTES = 8 * MIB  # a request brings up to so many before it is cut
WAIT_S = 60


class Run(r.Run):
    def __init__(self, build):
        r.WORKLOADS["W6"] = {"batches": [1], "conns": [1], "main": "tus",
                             "peers": ["tallyman", "tus"]}
        super().__init__(build, "W6")
        self.smoke = r.setting("SMOKE", 0, int) != 0
        smoke = self.smoke
        self.seconds = r.setting("SECONDS", 0.5 if smoke else 4.0)
        self.warmup = r.setting("WARMUP", 0 if smoke else 0.5)
        self.slice = 0.2 if smoke else 0.5
        self.cuts = r.setting("CUTS", 30 if smoke else 1000, int)
        self.sizes = [n * MIB for n in r.setting("MIB", [8, 64] if smoke else [64, 1024, 8192],
                                                 r.words(int))]
        self.open = r.setting("OPEN", 16 if smoke else 256, int)
        self.rate = r.setting("RATE_MB", 50 if smoke else 300, int)
        self.delivered = r.setting("DELIVERED", 3 if smoke else 6, int)
        self.seed = r.setting("SEED", int(time.time()), int)
        wanted = r.setting("PEERS", ["tallyman"] if smoke else ["tallyman", "tus"], r.words(str))
        self.peers = [name for name in up.PEERS if name in wanted]
        self.steps = r.setting("STEPS", ["cuts", "last", "appends", "deliveries", "memory"],
                               r.words(str))
        self.inputs = {}


def with_server(run, name, data, whole, work):
    """What work(server) gives, with a fresh server; its files are checked and removed."""
    peer = up.PEERS[name](p.Settings(run.build, run.data, None, None))
    try:
        peer.start()
        result = work(peer)
        code = peer.stop()
        if code not in (0, None):
            run.fault(f"{name} ended with {code}")
        peer.check_files(data.size, whole)
    finally:
        peer.stop()
        peer.remove()
    return result


def told(run, name, line, result):
    print(line, flush=True)
    run.results.append({"step": name, "line": line, "rounds": result})


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


# ---- cuts ----

def head(peer, path):
    """(status, offset or None)."""
    c = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=WAIT_S)
    c.request("HEAD", path, headers={"Tus-Resumable": "1.0.0"})
    answer = c.getresponse()
    answer.read()
    c.close()
    offset = answer.getheader("Upload-Offset")
    return answer.status, None if offset is None else int(offset)


class Conflict(Exception):
    """Another request has the upload still: HEAD again."""


def patch_head(peer, path, offset, size, expect=""):
    return (f"PATCH {path} HTTP/1.1\r\nHost: 127.0.0.1:{peer.port}\r\nTus-Resumable: 1.0.0\r\n"
            f"Upload-Offset: {offset}\r\nContent-Type: {up.OFFSETS}\r\n{expect}"
            f"Content-Length: {size}\r\n\r\n").encode()


def begin(s, peer, path, offset, size):
    """A PATCH up to the word to go on: then the offset was right, and the place is ours."""
    s.sendall(patch_head(peer, path, offset, size, "Expect: 100-continue\r\n"))
    text = read_head(s)
    status = text.split(" ")[1:2]
    if status in (["409"], ["423"]):
        raise Conflict
    if status != ["100"]:
        raise p.BenchError(f"{peer.name}: {text!r}")
    s.settimeout(None)


def read_head(s):
    text = b""
    while b"\r\n\r\n" not in text:
        more = s.recv(65536)
        if not more:
            break
        text += more
    return text.decode("latin-1")


def cut_one(peer, path, data, offset, n, reset, begun):
    """Sends n bytes of the rest and ends the connection."""
    with socket.create_connection(("127.0.0.1", peer.port), timeout=WAIT_S) as s, \
            open(data.path, "rb") as f:
        begin(s, peer, path, offset, data.size - offset)
        begun()
        sent = 0
        while sent < n:
            sent += _sendfile(s, f, offset + sent, n - sent)
        if reset:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _sendfile(s, f, at, n):
    done = os.sendfile(s.fileno(), f.fileno(), at, n)
    if done == 0:
        raise p.BenchError("the input is shorter than it was")
    return done


def last_request(peer, path, data, offset, begun=lambda: None):
    """The rest, whole; milliseconds from its last byte to the answer."""
    with socket.create_connection(("127.0.0.1", peer.port), timeout=up.UPLOAD_S) as s, \
            open(data.path, "rb") as f:
        begin(s, peer, path, offset, data.size - offset)
        begun()
        at = offset
        while at < data.size:
            at += _sendfile(s, f, at, data.size - at)
        sent = time.monotonic()
        s.settimeout(up.UPLOAD_S)
        text = read_head(s)
        wait_s = time.monotonic() - sent
    if not text.startswith("HTTP/1.1 204"):
        raise p.BenchError(f"{peer.name}: {text!r}")
    peer.check_answer(path, data, up.headers_of(text))
    return wait_s * 1e3


def cuts(run, name, data):
    chance = random.Random(run.seed)
    most = min(CUT_BYTES, data.size // 4)
    seen = {"cuts": 0, "resent": 0, "lost": 0, "heads": {}, "wait_ms": [], "bytes": 0,
            "conflicts": 0}

    def resume(peer, path, acked, then):
        """then(offset), as soon as HEAD has told an offset and nobody else has the upload."""
        begun = time.monotonic()
        while True:
            offset = ask(peer, path, begun)
            seen["lost"] += max(0, acked - offset)
            acked = max(acked, offset)
            try:
                # From the cut to the word to go on; the request itself is not in it.
                return then(offset, lambda: seen["wait_ms"].append((time.monotonic() - begun) * 1e3))
            except Conflict:
                seen["conflicts"] += 1
                time.sleep(0.005)

    def ask(peer, path, begun):
        while True:
            status, offset = head(peer, path)
            seen["heads"][status] = seen["heads"].get(status, 0) + 1
            if status == 200 and offset is not None:
                return offset
            if time.monotonic() - begun > WAIT_S or status in (404, 410):
                raise p.BenchError(f"{name}: HEAD is {status} after a cut")
            time.sleep(0.005)

    def work(peer):
        while seen["cuts"] < run.cuts:
            path, acked, end = peer.create(data), 0, 0  # end: of what was sent before

            def go_on(offset, resumed, last=False):
                nonlocal acked, end
                n = data.size - offset
                if last:
                    last_request(peer, path, data, offset, resumed)
                else:
                    n = chance.randrange(1, most)
                    cut_one(peer, path, data, offset, n, chance.random() < 0.5, resumed)
                seen["bytes"] += n
                seen["resent"] += max(0, end - offset)
                acked, end = offset, offset + n

            while seen["cuts"] < run.cuts and data.size - end > most:
                resume(peer, path, acked, go_on)
                seen["cuts"] += 1
            resume(peer, path, acked, lambda offset, resumed: go_on(offset, resumed, True))

    with_server(run, name, data, True, work)
    if seen["lost"] != 0:
        run.fault(f"{name}: {seen['lost']} acknowledged bytes were lost (SEED={run.seed})")
    statuses = ",".join(f"{status}:{count}" for status, count in sorted(seen["heads"].items()))
    told(run, "cuts", f"W6 cuts={seen['cuts']} server={name} sent_mib={seen['bytes'] / MIB:.0f} "
         f"resent_mib={seen['resent'] / MIB:.1f} resent_share={seen['resent'] / seen['bytes']:.3f} "
         f"lost_bytes={seen['lost']} heads={statuses} conflicts={seen['conflicts']} "
         f"resume_p50_ms={percentile(seen['wait_ms'], 0.5):.1f} "
         f"resume_p99_ms={percentile(seen['wait_ms'], 0.99):.1f} seed={run.seed}", seen)


# ---- the last answer ----

def last(run):
    found = {}
    for size in run.sizes:
        if size not in run.inputs:
            continue
        data = run.inputs[size]
        step = min(64 * MIB, size // 2)

        def work(peer, data=data, step=step):
            path = peer.create(data)
            begun = time.monotonic()
            with open(data.path, "rb") as f:
                for offset in range(0, data.size - step, step):
                    time.sleep(max(0.0, offset / (run.rate * 1e6) - (time.monotonic() - begun)))
                    with socket.create_connection(("127.0.0.1", peer.port),
                                                  timeout=up.UPLOAD_S) as s:
                        s.sendall(patch_head(peer, path, offset, step))
                        s.settimeout(None)
                        at = offset
                        while at < offset + step:
                            at += _sendfile(s, f, at, offset + step - at)
                        s.settimeout(up.UPLOAD_S)
                        text = read_head(s)
                        if not text.startswith("HTTP/1.1 204"):
                            raise p.BenchError(f"tallyman: {text!r}")
            return last_request(peer, path, data, head(peer, path)[1])

        data.warm()
        found[size] = [with_server(run, "tallyman", data, False, work)
                       for _ in range(1 if run.smoke or size > GIB else 3)]
        middle = statistics.median(found[size])
        line = (f"W6 last_answer={size // MIB}MiB requests={size // step} at={run.rate}MB/s "
                f"tallyman_ms={middle:.1f}")
        if size != min(found):
            line += f" over_{min(found) // MIB}MiB_ms={middle - statistics.median(found[min(found)]):.1f}"
        told(run, "last", line, found[size])


# ---- beside ----

class Steady(threading.Thread):
    """Uploads one after another at no more than a rate."""

    def __init__(self, peer, data, rate):
        super().__init__(daemon=True)
        self.peer, self.data, self.rate = peer, data, rate
        self.end = threading.Event()
        self.bytes, self.trouble = 0, None

    def run(self):
        try:
            begun = time.monotonic()
            while not self.end.is_set():
                path = self.peer.create(self.data)
                with socket.create_connection(("127.0.0.1", self.peer.port), timeout=None) as s, \
                        open(self.data.path, "rb") as f:
                    s.sendall(patch_head(self.peer, path, 0, self.data.size))
                    at = 0
                    while at < self.data.size:
                        ahead = self.bytes / (self.rate * 1e6) - (time.monotonic() - begun)
                        if ahead > 0:
                            time.sleep(ahead)
                        n = _sendfile(s, f, at, min(MIB, self.data.size - at))
                        at += n
                        self.bytes += n
                    text = read_head(s)
                self.peer.check_answer(path, self.data, up.headers_of(text))
        except (OSError, p.BenchError, ValueError) as error:
            self.trouble = error


def appends(run):
    data = run.inputs[min(run.sizes)]
    alone = with_server(run, "tallyman", data, False,
                        lambda peer: peer.append_load(run.seconds, run.warmup))

    def work(peer):
        steady = Steady(peer, data, run.rate)
        steady.start()
        begun = time.monotonic()
        try:
            result = peer.append_load(run.seconds, run.warmup)
            result["mb_per_s"] = steady.bytes / 1e6 / (time.monotonic() - begun)
        finally:
            steady.end.set()
            steady.join()
        if steady.trouble is not None:
            raise p.BenchError(f"uploading: {steady.trouble}")
        return result

    beside = with_server(run, "tallyman", data, False, work)
    told(run, "appends", f"W6 appends_beside={run.rate}MB/s p99_alone_us={alone['p99_us']:.0f} "
         f"p99_us={beside['p99_us']:.0f} ratio_p99={beside['p99_us'] / alone['p99_us']:.2f} "
         f"uploading={beside['mb_per_s']:.0f}MB/s", [alone, beside])


def deliveries(run):
    """Appends while files that were accepted before are built and go to a directory: reading, three
    digests, a copy that is synced, and reading back, by the process that `serve` would have
    started, where it would be."""
    data = run.inputs[max(size for size in run.inputs if size <= GIB)]
    free, kept = up.free_bytes(run.data)
    if free < kept + 2 * run.delivered * data.size + GIB:
        print("W6 appends_beside=deliveries SKIPPED: the disk has too little room", flush=True)
        return
    alone = with_server(run, "tallyman", data, False,
                        lambda peer: peer.append_load(run.seconds, run.warmup))

    def work(peer):
        for _ in range(run.delivered):
            peer.uploads(data, 1)
        with peer.delivering() as arrived:
            arrived(1)  # it is at work
            before, begun = arrived(), time.monotonic()
            result = peer.append_load(run.seconds, run.warmup)
            after = arrived()
            result["mb_per_s"] = (after - before) / 1e6 / (time.monotonic() - begun)
        # Too few files would have been delivered before the appends had ended.
        result["all"] = after >= run.delivered * data.size
        return result

    beside = with_server(run, "tallyman", data, False, work)
    told(run, "deliveries", f"W6 appends_beside=deliveries files={run.delivered}x{data.size // MIB}MiB "
         f"p99_alone_us={alone['p99_us']:.0f} p99_us={beside['p99_us']:.0f} "
         f"ratio_p99={beside['p99_us'] / alone['p99_us']:.2f} "
         f"delivering={beside['mb_per_s']:.0f}MB/s"
         + (" ENDED-BEFORE-THE-APPENDS" if beside["all"] else ""), [alone, beside])


def rss_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise p.BenchError("no VmRSS")


def memory(run):
    """All open at once, each with 3 MiB and more to come; then again: it must not grow."""
    data = run.inputs[min(run.sizes)]

    def work(peer):
        found = [rss_mib(peer.process.pid)]
        for _ in range(2):
            socks = []
            for _ in range(run.open):
                path = peer.create(data)
                s = socket.create_connection(("127.0.0.1", peer.port), timeout=WAIT_S)
                s.sendall(patch_head(peer, path, 0, data.size))
                socks.append(s)
            with open(data.path, "rb") as f:
                piece = f.read(3 * MIB)
            for s in socks:
                s.sendall(piece)
            found.append(rss_mib(peer.process.pid))
            for s in socks:
                s.close()
        return found

    idle, first, second = with_server(run, "tallyman", data, False, work)
    told(run, "memory", f"W6 memory_uploads={run.open} idle_mib={idle:.0f} open_mib={first:.0f} "
         f"again_mib={second:.0f} each_mib={(first - idle) / run.open:.2f}", [idle, first, second])
    if second > first * 1.2 + 16:
        run.fault(f"memory grows: {first:.0f} MiB, then {second:.0f}")


# ---- the run ----

def make_inputs(run):
    for size in sorted(set(run.sizes)):
        free, kept = up.free_bytes(run.data)
        if free < kept + 2 * size + GIB or up.cached_bytes_possible() < size + GIB:
            print(f"W6 last_answer={size // MIB}MiB SKIPPED: it needs {(kept + 2 * size) / GIB:.0f} GiB "
                  "of disk and its size in memory", flush=True)
            continue
        run.inputs[size] = up.Input(p.Settings(run.build, run.data, None, None), size)
    if min(run.sizes) not in run.inputs:
        raise p.BenchError(f"{run.data}: no room for the least of the uploads")


def attempt(run, what, work, *args):
    try:
        work(run, *args)
    except (p.BenchError, OSError, subprocess.SubprocessError, http.client.HTTPException) as error:
        run.fault(f"{what}: {error}")


def measure_all(run):
    if "tus" in run.peers:
        up.install_tus(run.build)
    make_inputs(run)
    if "cuts" in run.steps:
        for name in run.peers:
            attempt(run, f"cuts {name}", cuts, name, run.inputs[min(run.sizes)])
    for what, work in (("last", last), ("appends", appends), ("deliveries", deliveries),
                       ("memory", memory)):
        if what in run.steps:
            attempt(run, what, work)


if __name__ == "__main__":
    sys.exit(r.main_of(Run, measure_all))
