#!/usr/bin/env python3
"""W4: reading the history, and how far followers are behind the commit (bench/README.md).

  bench/w4.py BUILD

A history of EVENTS events is read whole: by replay and by a follower, from the page cache, and after
the files were dropped from it; beside it the same bytes by sendfile, PostgreSQL's COPY of as
many rows, and Redis' XRANGE in pages. Then, on a fresh server, FOLLOWERS wait at the end while RATE
appends a second arrive in an open loop. Settings: scripts/bench.
"""

import os
import socket
import statistics
import subprocess
import sys
import time

import peers as p
import run as r

PAGE = 1000


class Run(r.Run):
    def __init__(self, build):
        r.WORKLOADS["W4"] = {"batches": [1000], "conns": [16], "main": "",
                             "peers": ["tallyman", "sendfile", "postgres", "redis"]}
        super().__init__(build, "W4")
        smoke = r.setting("SMOKE", 0, int) != 0
        self.rounds = r.setting("ROUNDS", 1 if smoke else 5, int)
        self.seconds = r.setting("SECONDS", 1.0 if smoke else 5.0)
        self.events = r.setting("EVENTS", 20000 if smoke else 500000, int)
        self.followers = r.setting("FOLLOWERS", [1, 8] if smoke else [1, 8, 1000], r.words(int))
        self.rate = r.setting("RATE", 100.0 if smoke else 200.0)


class Server(p.Tallyman):
    def command(self):
        return [*super().command(), "--engine", "off", "--no-deliver",
                "--connections-max", "4096"]


def client(settings, mode, port, *more):
    command = [settings.programs / "follow_load", mode, "--port", port, *more]
    return p.run_load(settings.load_core, command, 600)


def fill(run, server):
    """At least that many events, in batches of 1000; how many there are."""
    while server.events < run.events:
        result = p.run_load(server.s.load_core,
                            [*server.load_command(4), "--seconds", 1, "--warmup", 0], 120)
        if result["errors"] != 0:
            raise p.BenchError(f"the history was not made: {result['complaint']}")
        server.events += int(result["acks_total"] * server.s.batch)
    return server.events


def drop_cache(server):
    """Out of the page cache with every file of the journal."""
    os.sync()
    for path in (server.dir / "data" / "journal").rglob("*.ndjson"):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Sendfile:
    """The journal's bytes by sendfile, on the server's core."""

    def __init__(self, settings, path):
        self.port = p.free_port()
        command = [settings.programs / "follow_load", "sendfile", "--port", self.port, "--file", path]
        self.process = subprocess.Popen(p.on_core(settings.server_core, command))
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > end:
                    raise p.BenchError("sendfile does not listen") from None
                time.sleep(0.02)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Rows(p.Postgres):
    """As many lines, one a row; read by COPY, whose text is what is counted."""

    name = "postgres"

    def psql(self, *words, **kw):
        command = ["psql", "-h", self.dir, "-U", "bench", "-d", "postgres", "-qAt", *words]
        return p.on_core(self.s.load_core, command), kw

    def fill(self, path):
        command, _ = self.psql("-c", "CREATE TABLE events (id bigserial PRIMARY KEY, line text)",
                               "-c", r"\copy events (line) FROM pstdin WITH (FORMAT csv, QUOTE e'\x01', DELIMITER e'\x02')")
        with open(path, "rb") as lines:
            subprocess.run(command, stdin=lines, check=True, capture_output=True)

    def read(self):
        command, _ = self.psql("-c", "COPY (SELECT line FROM events ORDER BY id) TO STDOUT")
        start = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as out:
            count = 0
            while chunk := out.stdout.read(1 << 20):
                count += len(chunk)
        if out.returncode != 0:
            raise p.BenchError(f"COPY: {out.returncode}")
        return count / (time.monotonic() - start) / 1e9


class Stream(p.Redis):
    """As many entries of one stream; XRANGE in pages of PAGE over one connection, in RESP."""

    def fill(self, path):
        with socket.create_connection(("127.0.0.1", self.port)) as s, open(path, "rb") as lines:
            out, waiting, answers = [], 0, s.makefile("rb")
            for line in lines:
                out.append(b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nl\r\n$%d\r\n%s\r\n"
                           % (len(line) - 1, line[:-1]))
                waiting += 1
                if waiting == 500:
                    s.sendall(b"".join(out))
                    self.take(answers, waiting)
                    out, waiting = [], 0
            s.sendall(b"".join(out))
            self.take(answers, waiting)

    @staticmethod
    def take(answers, count):
        for _ in range(count):
            if answers.readline()[:1] != b"$":
                raise p.BenchError("redis did not take an entry")
            answers.readline()

    def read(self):
        start, count, last = time.monotonic(), 0, b"-"
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            while True:
                s.sendall(b"*6\r\n$6\r\nXRANGE\r\n$1\r\ns\r\n$%d\r\n%s\r\n$1\r\n+\r\n$5\r\nCOUNT\r\n$4\r\n%d\r\n"
                          % (len(last), last, PAGE))
                page = b""
                while not self.whole(page):
                    page += s.recv(1 << 20)
                count += len(page)
                if int(page[1:page.index(b"\r")]) < PAGE:
                    return count / (time.monotonic() - start) / 1e9
                before = page[:page.rfind(b"\r\n*2\r\n$1\r\nl\r\n")]
                last = b"(" + before.rpartition(b"\r\n")[2]

    @staticmethod
    def whole(page):
        """Enough of RESP: the last entry's last text is there."""
        if not page.endswith(b"\r\n"):
            return False
        if page == b"*0\r\n":
            return True
        n = int(page[1:page.index(b"\r")])
        return page.count(b"*2\r\n$1\r\nl\r\n$") == n and page.endswith(b"}\r\n")


def one_file(server, path):
    """The history as it is sent, a file for the peers."""
    with open(path, "wb") as out:
        subprocess.run([server.s.tallyman, "replay", "--data", server.dir / "data"], stdout=out,
                       stderr=subprocess.DEVNULL, check=True)
    return path


def measure_reading(run, settings):
    server = Server(settings)
    server.start()
    names = ["replay", "follow", "replay_cold", "sendfile"]
    rates = {}
    peers = []
    floor = None
    try:
        events = fill(run, server)
        path = one_file(server, run.data / "history.ndjson")
        floor = Sendfile(settings, path)
        for kind in (Rows, Stream):
            if kind.name not in run.peers:
                continue
            peer = kind(settings)
            peers.append(peer)
            peer.start()
            peer.fill(path)
        cpu = p.cpu_seconds(server.process.pid)
        for number in range(run.rounds):
            done = {}
            for name in names if number % 2 == 0 else names[::-1]:
                if name == "replay_cold":
                    drop_cache(server)
                mode, port = (("raw", floor.port) if name == "sendfile" else
                              (name.removesuffix("_cold"), server.port))
                result = client(settings, mode, port)
                if result["bytes"] < path.stat().st_size:
                    run.fault(f"{name}: {result['bytes']:.0f} of {path.stat().st_size} bytes")
                done[name] = result["gb_per_s"]
            for peer in peers:
                done[peer.name] = peer.read()
            for name, value in done.items():
                rates.setdefault(name, []).append(value)
            r.say(f"# W4 reading round {number + 1}/{run.rounds} {done}")
        used = p.cpu_seconds(server.process.pid) - cpu
    finally:
        for one in (floor, *peers, server):
            if one is not None:
                one.stop()
    gigabytes = path.stat().st_size * 3 * run.rounds / 1e9
    line = [f"W4 reading events={events} mb={path.stat().st_size / 1e6:.0f}"]
    line += [f"{name}={statistics.median(v):.3f}GB/s" for name, v in rates.items()]
    line += [f"ratio_{n}={r.spread([a / b for a, b in zip(rates['replay'], rates[n])])}"
             for n in ("sendfile", "postgres", "redis") if n in rates]
    line.append(f"cpu_s_per_gb={used / gigabytes:.2f}")
    finish(run, "reading", " ".join(line), rates)


def finish(run, what, line, rounds):
    print(line, flush=True)
    run.results.append({"what": what, "line": line, "rounds": rounds})


def measure_tail(run, settings, count):
    rounds = []
    for number in range(run.rounds):
        server = Server(settings)
        server.start()
        try:
            rounds.append(client(settings, "tail", server.port, "--followers", count,
                                 "--rate", run.rate, "--seconds", run.seconds))
        finally:
            server.stop()
        server.remove()
        r.say(f"# W4 followers={count} round {number + 1}/{run.rounds} {rounds[-1]}")
    words = [f"W4 followers={count} rate={run.rate:.0f}/s"]
    words += [f"{key}={r.spread([one[key] for one in rounds])}" for key in
              ("tail_p50_us", "tail_p99_us", "total_p50_us", "total_p99_us", "append_p50_us",
               "append_p99_us")]
    finish(run, f"followers={count}", " ".join(words), rounds)


def measure_all(run):
    two_cores = os.cpu_count() > 1
    settings = p.Settings(run.build, run.data, 0 if two_cores else None, 1 if two_cores else None)
    settings.batch = 1000
    measure_reading(run, settings)
    for count in run.followers:
        measure_tail(run, settings, count)


if __name__ == "__main__":
    sys.exit(r.main_of(Run, measure_all))
