"""What W3 and W7 measure: Tallyman's capture door and queue, a plain SQLite queue, PostgreSQL.

A peer starts from a copy of a template: a database that already holds RECEIPTS receipts (W3) or
QUEUED events (W7). Templates are made once, by bench/capture_prefill and bench/pg_queue --fill, and
kept under TEMPLATES until what makes them changes. Events are numbers (capture.h): a load takes the
next ones, so that nothing but its repeats was ever sent before.
"""

import hashlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import subprocess
import time

import peers as p

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH = 50
# What a template depends on: who made it and in what shape.
TEMPLATE_SOURCES = ["bench/capture.h", "bench/payload.h", "bench/capture_prefill.c",
                    "bench/sqlite_queue.h", "bench/pg_queue.c", "src/store/schema.c"]
GROUP = 64  # batches in one transaction of the second SQLite peer
QUIET_S = 0.3
SETTLE_S = 60


def progress(text):
    os.write(2, f"# {text}\n".encode())


def template_key():
    digest = hashlib.sha256()
    for name in TEMPLATE_SOURCES:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()[:12]


def copy(source, target):
    subprocess.run(["cp", "-a", "--reflink=auto", source, target], check=True)


def template(settings, name, make):
    """The directory of a template; made by make(directory) when it is not there."""
    root = settings.templates / template_key()
    if settings.templates.exists():
        for old in settings.templates.iterdir():
            if old != root:
                shutil.rmtree(old)
    path = root / name
    if not path.exists():
        progress(f"making {name} once, in {root}")
        unfinished = root / f"{name}.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        make(unfinished)
        os.sync()
        unfinished.rename(path)
    return path


def prefill(settings, schema, directory, **what):
    command = [settings.programs / "capture_prefill", schema, directory]
    command += [f"{key}={value}" for key, value in what.items()]
    subprocess.run(command, check=True)


def settle(pid):
    """Waits until a server has done what it does after a start: filters, checkpoints, merges."""
    end = time.monotonic() + SETTLE_S
    quiet_since = time.monotonic()
    before = p.cpu_seconds(pid)
    while time.monotonic() - quiet_since < QUIET_S:
        if time.monotonic() > end:
            raise p.BenchError(f"process {pid} does not come to rest")
        time.sleep(0.05)
        now = p.cpu_seconds(pid)
        if now > before:
            before, quiet_since = now, time.monotonic()


def put_on_cores(pid, cores):
    """Moves a running server, all its threads, to some cores."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


class Settings(p.Settings):
    """What the peers of one run share."""

    def __init__(self, build, data, server_core, load_core):
        super().__init__(build, data, server_core, load_core)
        self.batch = BATCH
        self.templates = pathlib.Path(build).resolve() / "bench-templates"
        self.receipts = 0
        self.queued = 0
        self.quarantined = 0
        self.kind = "random"


class Numbered:
    """Which event numbers a peer's loads have used."""

    def begin_numbers(self, settings):
        self.next_event = settings.receipts
        self.loads = []

    def number_args(self):
        return ["--uuid", self.s.kind, "--prefilled", self.s.receipts, "--first", self.next_event]

    def used(self, result, conns):
        """Only what was acknowledged may be there, so an error ends the use of these numbers."""
        batches = int(result["acks_total"])
        self.loads.append((self.next_event, batches, conns))
        self.next_event += batches * BATCH + (10**9 if result["errors"] else 0)

    def verify_database(self, path):
        command = [self.s.programs / "capture_verify", path, "--uuid", self.s.kind,
                   "--prefilled", self.s.receipts]
        for first, batches, conns in self.loads:
            command += ["--load", f"{first}:{batches}:{conns}"]
        p.run_load(None, command, 600)


class Tallyman(p.Tallyman, Numbered):
    """The server with its engine off, on a copy of a template."""

    engine = False
    gzip = None  # or zlib's level, -1 for its default
    rate = 0

    def make_template(self, directory):
        prefill(self.s, "tallyman", directory, receipts=self.s.receipts, uuid=self.s.kind,
                quarantined=self.s.quarantined, queued=self.s.queued)

    def template(self):
        name = f"tallyman-{self.s.kind}-{self.s.receipts}-{self.s.quarantined}-{self.s.queued}"
        return template(self.s, name, self.make_template)

    def start(self):
        source = self.template()
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        copy(source, self.dir / "data")
        os.sync()
        self.events = 0
        self.begin_numbers(self.s)
        with sqlite3.connect(f"file:{source}/tallyman.sqlite?immutable=1", uri=True) as db:
            row = db.execute("SELECT text FROM keys WHERE kind = 'capture'").fetchone()
        self.token = row[0]
        self.launch()

    def command(self):
        return [*super().command(), "--engine", "on" if self.engine else "off",
                "--queue-events-max", "1000000000", "--queue-bytes-max", "1024GiB"]

    def load_command(self, conns):
        command = [self.s.programs / "capture_load", "--port", self.port, "--token", self.token,
                   "--conns", conns, *self.number_args()]
        if self.gzip is not None:
            command += [f"--gzip={self.gzip}", "--prepared", self.prepared]
        if self.rate:
            command += ["--rate", self.rate]
        return command

    def load(self, conns, seconds, warmup):
        self.prepared = int(min(20000, max(conns * 2, (seconds + warmup) * 4000)))
        result = super().load(conns, seconds, warmup)
        self.used(result, conns)
        return result

    def ask(self, method, path, body=None):
        """The Unix socket: the administrator's door."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(60)
        connection.sock.connect(str(self.dir / "data" / "tallyman.sock"))
        try:
            connection.request(method, path, body and json.dumps(body),
                               {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise p.BenchError(f"{method} {path}: {answer.status} {text[:300]}")
        return json.loads(text)

    def facts(self, result):
        pending = self.ask("GET", "/api/v1/status")["queue"]["pending"]
        return {"pending": pending}

    def verify(self, whole):
        """After the stop: every acknowledged event, once; with `whole` also tallyman verify."""
        self.verify_database(self.dir / "data" / "tallyman.sqlite")
        if whole:
            done = subprocess.run([self.s.tallyman, "verify", "--data", self.dir / "data"],
                                  capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                raise p.BenchError(f"tallyman verify: {done.returncode} {done.stdout}{done.stderr}")

    def facts_stopped(self):
        return {}


class PlainSqlite(p.Sqlite, Numbered):
    """The plain schema in the load program's own process, a batch a transaction."""

    name = "sqlite"
    group = 1

    def start(self):
        what = f"plain-{self.s.kind}-{self.s.receipts}"
        source = template(self.s, what, lambda to: prefill(
            self.s, "plain", to, receipts=self.s.receipts, uuid=self.s.kind))
        shutil.rmtree(self.dir, ignore_errors=True)
        copy(source, self.dir)
        os.sync()
        self.events = 0
        self.begin_numbers(self.s)

    def load_command(self, conns):
        return [self.s.programs / "sqlite_queue", "--dir", self.dir, "--group", self.group,
                *self.number_args()]

    def load(self, conns, seconds, warmup):
        result = super().load(conns, seconds, warmup)
        self.used(result, self.group)
        return result

    def syncs_per_ack(self, conns, seconds):
        out = self.s.data / "sqlite.strace"
        command = ["strace", "-f", "-c", "-o", out, "-e", f"trace={p.SYNC_CALLS}",
                   *self.load_command(conns), "--seconds", seconds, "--warmup", 0]
        result = p.run_load(self.s.server_core, command, seconds + 60)
        self.used(result, self.group)
        return p.sync_count(out.read_text()) / max(1, result["acks_total"])

    def verify(self, whole):
        self.verify_database(self.dir / "queue.sqlite")


class GroupedSqlite(PlainSqlite):
    """The same; a transaction holds what 64 connections bring."""

    name = "sqlite_group"
    group = GROUP


class Postgres(p.Postgres, Numbered):
    """One table with a unique key. The cluster, with its rows, is the template."""

    def conninfo(self):
        return f"host={self.dir} user=bench dbname=postgres"

    def make_template(self, directory):
        """initdb and the filling happen where the peer lives; what is stopped then is kept."""
        self.create()
        self.launch()
        try:
            command = [self.s.programs / "pg_queue", "--conninfo", self.conninfo(), "--fill",
                       "--uuid", self.s.kind, "--prefilled", self.s.receipts]
            subprocess.run(list(map(str, command)), check=True)
        finally:
            self.stop()
        copy(self.dir / "db", directory / "db")

    def start(self):
        source = template(self.s, f"postgres-{self.s.kind}-{self.s.receipts}", self.make_template)
        if not (self.dir / "of").exists() or (self.dir / "of").read_text() != str(source):
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir.mkdir(parents=True)
            if os.geteuid() == 0:
                shutil.chown(self.dir, "postgres", "postgres")
            copy(source / "db", self.dir / "db")
            conf = self.dir / "db" / "postgresql.conf"
            conf.write_text(conf.read_text() + f"\nunix_socket_directories = '{self.dir}'\n")
            (self.dir / "of").write_text(str(source))
            os.sync()
            self.begin_numbers(self.s)
        self.events = 0
        self.launch()

    def load_command(self, conns):
        return [self.s.programs / "pg_queue", "--conninfo", self.conninfo(), "--conns", conns,
                *self.number_args()]

    def load(self, conns, seconds, warmup):
        result = super().load(conns, seconds, warmup)
        self.used(result, conns)
        return result

    def verify(self, whole):
        """pg_queue counts before it prints anything."""


class Floor(p.Floor, Numbered):
    """One pwrite and one fdatasync for all requests of a loop turn, nothing else."""

    def start(self):
        super().start()
        self.begin_numbers(self.s)

    def load_command(self, conns):
        return [self.s.programs / "capture_load", "--port", self.port, "--token", "x",
                "--conns", conns, "--expect", "committed", *self.number_args()]

    def verify(self, whole):
        """Nothing is kept."""
