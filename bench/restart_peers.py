"""Redis and PostgreSQL for W9: filled, killed at full load and started again, timed.

A peer knows what it acknowledged, or what others could see of it, before it was killed; a start
counts only when all of that can be read.
"""

import pathlib
import socket
import subprocess
import threading
import time

import history
import peers as p

PIPELINE = 500
POOL = 16  # pipelines that are made before the clock starts
STREAM_MEMORY_BYTES = 420  # an event of 256 bytes in Redis' memory, with room
STREAM_DISK_BYTES = 340
ROW_DISK_BYTES = 1200  # PostgreSQL's table, indexes and log
PATIENCE_S = 600
GONE_S = 60


def wait_for(what, true):
    end = time.monotonic() + GONE_S
    while not true():
        if time.monotonic() > end:
            raise p.BenchError(f"{what}: not within {GONE_S} s")
        time.sleep(0.01)


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Timed:
    """What both have in common: a start from which seconds count."""

    def begin(self):
        """Starts the process again on what is there; does not wait for it."""
        self.port = p.free_port()
        self.log = open(self.s.data / f"{self.name}.log", "ab")
        command = p.on_core(self.s.server_core, self.command())
        start = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL)
        return start

    def until(self, start, done):
        """Seconds from the start to done()."""
        while True:
            try:
                if done():
                    return time.monotonic() - start
            except (OSError, p.BenchError):
                pass
            elapsed = time.monotonic() - start
            if self.process.poll() is not None or elapsed > PATIENCE_S:
                raise p.BenchError(f"{self.name} did not come back, see {self.log.name}")
            time.sleep(min(0.02, max(0.001, elapsed / 100)))

    def timed_start(self):
        start = self.begin()
        read_s = self.until(start, self.all_there)
        return {"first_read_s": read_s, "first_ack_s": self.until(start, self.takes_one)}


class Redis(p.Redis, Timed):
    """XADD of the payloads the journal has, pipelined; appendfsync always from the moment before
    the kill on."""

    def ask(self, *words, timeout_s=5):
        request = b"*%d\r\n" % len(words)
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            request += b"$%d\r\n%s\r\n" % (len(word), word)
        with socket.create_connection(("127.0.0.1", self.port), timeout_s) as s:
            s.sendall(request)
            answer = s.recv(1 << 16)
        if not answer or answer[:1] == b"-":
            raise p.BenchError(f"redis: {answer!r}")
        return answer

    def all_there(self):
        return int(self.ask("XLEN", "events", timeout_s=PATIENCE_S)[1:]) >= self.events

    def takes_one(self):
        self.ask("XADD", "events", "*", "payload", "x", timeout_s=PATIENCE_S)
        self.events += 1
        return True

    def pipelines(self, payloads):
        one = [b"*5\r\n$4\r\nXADD\r\n$6\r\nevents\r\n$1\r\n*\r\n$7\r\npayload\r\n$%d\r\n%s\r\n"
               % (len(text), text) for text in payloads]
        texts = (one * (POOL * PIPELINE // len(one) + 1))[:POOL * PIPELINE]
        return [b"".join(texts[at:at + PIPELINE]) for at in range(0, len(texts), PIPELINE)]

    def fill(self, payloads, want, seconds):
        """Until there are as many, or time is up."""
        pool = self.pipelines(payloads)
        self.ask("CONFIG", "SET", "appendfsync", "no")
        end = time.monotonic() + seconds
        with socket.create_connection(("127.0.0.1", self.port), 60) as s:
            while self.events < want and time.monotonic() < end:
                self.send(s, pool[self.events // PIPELINE % POOL])

    def send(self, s, pipeline):
        s.sendall(pipeline)
        lines = 0
        while lines < 2 * PIPELINE:
            piece = s.recv(1 << 20)
            if not piece or piece[:1] == b"-" or b"\r\n-" in piece:
                raise p.BenchError(f"redis did not take an event: {piece[:200]!r}")
            lines += piece.count(b"\n")
        self.events += PIPELINE

    def kill_at_load(self, payloads, seconds):
        pool = self.pipelines(payloads)
        self.ask("CONFIG", "SET", "appendfsync", "always")
        before = self.events

        def load():
            try:
                with socket.create_connection(("127.0.0.1", self.port), 60) as s:
                    while True:
                        self.send(s, pool[self.events // PIPELINE % POOL])
            except (OSError, p.BenchError):
                pass  # killed
        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        time.sleep(seconds)
        wait_for("redis takes nothing", lambda: self.events > before)
        self.process.kill()
        self.process.wait()
        thread.join()
        self.log.close()

    def rewrite(self):
        """The log as Redis leaves it when it has rewritten it: a snapshot and what came since."""
        self.ask("BGREWRITEAOF")
        end = time.monotonic() + PATIENCE_S
        while True:
            info = self.ask("INFO", "persistence")
            if b"aof_rewrite_in_progress:0" in info and b"aof_rewrite_scheduled:0" in info:
                if b"aof_last_bgrewrite_status:ok" not in info:
                    raise p.BenchError("redis could not rewrite its log")
                return
            if time.monotonic() > end:
                raise p.BenchError("redis does not end its rewriting")
            time.sleep(0.05)


class Postgres(p.Postgres, Timed):
    """Rows by pg_load; checkpoints as PostgreSQL has them by default, which is in its favour."""

    next_batch = 0
    batch = 1000

    def create(self):
        super().create()
        with open(self.dir / "db" / "postgresql.conf", "a", encoding="utf-8") as f:
            f.write("max_wal_size = 1GB\ncheckpoint_timeout = 5min\n")

    def sql(self, text):
        done = subprocess.run(["psql", "-h", self.dir, "-U", "bench", "-d", "postgres", "-qAtXc",
                               text], capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            raise p.BenchError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def count(self):
        """Rows that others see, which are committed and synced; numbers have gaps only above."""
        return int(self.sql("SELECT count(*) FROM events"))

    def seen(self):
        return int(self.sql("SELECT coalesce(max(id), 0) FROM events"))

    def all_there(self):
        return self.seen() >= self.events

    def takes_one(self):
        self.sql("INSERT INTO events(source, batch_id, stream, record_key, kind, payload)"
                 f" VALUES('bench', 'probe-{time.monotonic_ns()}', 's', 'k', 'upserted', '{{}}')")
        return True

    def kill_at_load(self, want, seconds, fresh=False):
        """Loads until that many rows are seen or time is up, then kills the postmaster, by its id,
        in the middle of it."""
        command = [self.s.programs / "pg_load", "--conninfo",
                   f"host={self.dir} user=bench dbname=postgres", "--conns", 8, "--batch",
                   self.batch, "--seconds", seconds + 3600, "--warmup", 0]
        if not fresh:
            command += ["--first", self.next_batch]
        load = subprocess.Popen(p.on_core(self.s.load_core, command), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + seconds
            seen = -1
            while (seen < want and time.monotonic() < end) or seen <= self.events:
                if load.poll() is not None:
                    raise p.BenchError("pg_load ended early")
                if time.monotonic() > end + GONE_S:
                    raise p.BenchError("postgres takes nothing")
                time.sleep(0.05)
                try:
                    seen = self.seen()
                except p.BenchError:
                    seen = -1  # the table is being made
            self.events = seen
            self.kill()
        finally:
            load.kill()
            load.wait()
        # Numbers of batches that were in flight are not used again.
        self.next_batch += seen // self.batch + 10000

    def kill(self):
        """The postmaster by kill -9; its children end when they notice, the clock starts then."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        children = " ".join((task / "children").read_text() for task in tasks).split()
        self.process.kill()
        self.process.wait()
        wait_for("postgres' processes are still there",
                 lambda: not any(alive(pid) for pid in children))
        self.log.close()

    def timed_start(self):
        start = self.begin()
        times = {"first_read_s": self.until(start, self.all_there)}
        times["first_ack_s"] = self.until(start, self.takes_one)
        self.events = self.seen()
        return times


def bounded(name, want, data):
    """As many events as memory and disk take, and a word when these are fewer."""
    memory = history.memory_available() * 0.6 / STREAM_MEMORY_BYTES if name == "redis" else want
    disk_each = 2 * STREAM_DISK_BYTES if name == "redis" else ROW_DISK_BYTES
    disk = max(0, history.disk_free(data) - history.SPARE_BYTES) / disk_each
    return int(min(want, memory, disk))
