"""The servers that bench/run.py measures: how each is started, loaded, checked and stopped.

A peer lives in a directory of its own, listens on loopback (PostgreSQL on a Unix socket), is pinned
to the server's core and is stopped by its process id. Every load program prints one line of
key=value (meter.h).
"""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

SYNC_CALLS = "fsync,fdatasync,sync_file_range,msync,syncfs,sync"
START_S = 60
STOP_S = 120


class BenchError(Exception):
    """A benchmark that cannot be trusted: no figure is printed for it."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_core(core, command):
    """Pinned to one core (None: wherever the kernel likes), and gone when this process is gone."""
    pinned = ["setpriv", "--pdeathsig", "TERM", *map(str, command)]
    return pinned if core is None else ["taskset", "-c", str(core), *pinned]


def numbers(line):
    """The key=value pairs of a result line."""
    return {key: float(value) for key, value in re.findall(r"(\w+)=([0-9.]+)", line)}


def run_load(core, command, timeout_s):
    done = subprocess.run(on_core(core, command), capture_output=True, text=True, timeout=timeout_s)
    if done.returncode != 0:
        raise BenchError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")
    result = numbers(done.stdout)
    result["complaint"] = done.stderr.strip()
    return result


def disk_bytes(directory):
    """Blocks in use below a directory, as du counts them."""
    total = 0
    for path in pathlib.Path(directory).rglob("*"):
        total += path.lstat().st_blocks * 512
    return total


def cpu_seconds(pid):
    """User and system time of a process so far, with its children that have ended."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def sync_count(summary, calls=SYNC_CALLS):
    """Calls in the table that strace -c wrote."""
    wanted = calls.split(",")
    rows = [line.split() for line in summary.splitlines()]
    return sum(int(row[3]) for row in rows if len(row) >= 5 and row[-1] in wanted)


class Settings:
    """What all peers of one run share."""

    def __init__(self, build, data, server_core, load_core):
        self.programs = pathlib.Path(build) / "bench"
        self.tallyman = os.environ.get("TALLYMAN") or str(pathlib.Path(build) / "tallyman")
        self.data = pathlib.Path(data)
        self.server_core = server_core
        self.load_core = load_core
        self.batch = 1


class Peer:
    """One server process from start to stop; subclasses say how."""

    name = ""
    process = None
    sync_calls = SYNC_CALLS
    events = 0  # acknowledged since the directory is new

    def __init__(self, settings):
        self.s = settings
        self.dir = settings.data / self.name
        self.port = 0

    def command(self):
        raise NotImplementedError

    def ready(self):
        """True as soon as the server answers."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def load_command(self, conns):
        raise NotImplementedError

    def start(self):
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        self.events = 0
        self.launch()

    def launch(self):
        self.port = free_port()
        self.log = open(self.s.data / f"{self.name}.log", "wb")
        command = on_core(self.s.server_core, self.command())
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise BenchError(f"{self.name} did not start, see {self.log.name}")
            time.sleep(0.02)

    def load(self, conns, seconds, warmup):
        command = [*self.load_command(conns), "--seconds", seconds, "--warmup", warmup]
        before = cpu_seconds(self.process.pid)
        result = run_load(self.s.load_core, command, seconds + warmup + 60)
        events = result["acks_total"] * self.s.batch
        result["cpu_us_per_event"] = (cpu_seconds(self.process.pid) - before) * 1e6 / max(1, events)
        self.events += events
        return result

    def syncs_per_ack(self, conns, seconds):
        """Sync calls by acknowledgement over a slice of load; None where strace may not attach."""
        out = self.s.data / f"{self.name}.strace"
        out.unlink(missing_ok=True)
        tracer = subprocess.Popen(
            ["strace", "-f", "-c", "-o", out, "-e", f"trace={self.sync_calls}",
             "-p", str(self.process.pid)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if "attached" not in tracer.stderr.readline():
            tracer.wait()
            return None
        try:
            result = self.load(conns, seconds, 0)
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=30)
        return sync_count(out.read_text(), self.sync_calls) / max(1, result["acks_total"])

    def facts(self, result):
        """What else there is to know while the server runs; raises when data is wrong."""
        return {}

    def facts_stopped(self):
        """The same after the server has ended."""
        return {"disk_per_event": disk_bytes(self.dir) / max(1, self.events)}

    def stop(self):
        if self.process is None:
            return 0
        process, self.process = self.process, None
        if process.poll() is None:
            process.terminate()
        try:
            code = process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BenchError(f"{self.name} did not end within {STOP_S} s of SIGTERM") from None
        finally:
            self.log.close()
        return code

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)


class Tallyman(Peer):
    name = "tallyman"

    def command(self):
        return [self.s.tallyman, "serve", "--data", self.dir / "data",
                "--listen", f"127.0.0.1:{self.port}"]

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return answer.read().decode()

    def ready(self):
        try:
            self.get("/readyz")
            return True
        except (OSError, urllib.error.URLError):
            return False

    def load_command(self, conns):
        return [self.s.programs / "load", "--port", self.port, "--conns", conns,
                "--batch", self.s.batch, "--prefix", f"b{time.monotonic_ns() % 10**12}",
                "--acks", self.s.data / "acks"]

    def metrics(self):
        lines = [line.split() for line in self.get("/metrics").splitlines() if line[:1] != "#"]
        return {row[0]: float(row[1]) for row in lines if len(row) == 2}

    def facts(self, result):
        m = self.metrics()
        events = m["tallyman_journal_events"]
        if events != result["acks_total"] * self.s.batch:
            raise BenchError(f"tallyman counts {events:.0f} events, "
                             f"{result['acks_total'] * self.s.batch:.0f} were acknowledged")
        command = [self.s.programs / "verify", "--port", self.port, "--acks", self.s.data / "acks"]
        run_load(self.s.load_core, command, 600)
        return {"bytes_per_event": m["tallyman_journal_bytes"] / max(1.0, events),
                "metric_syncs_per_ack": m["tallyman_journal_syncs_total"] / result["acks_total"]}

    def facts_stopped(self):
        done = subprocess.run([self.s.tallyman, "verify", "--chain", "--data", self.dir / "data"],
                              capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise BenchError(f"verify --chain: {done.returncode} {done.stdout}{done.stderr}")
        return super().facts_stopped()


class Floor(Peer):
    name = "floor"

    def command(self):
        return [self.s.programs / "floor", "serve", self.dir, self.port, self.s.batch]

    def load_command(self, conns):
        return [self.s.programs / "load", "--port", self.port, "--conns", conns,
                "--batch", self.s.batch]

    def facts_stopped(self):
        return {}


REDIS_CONFIG = """\
bind 127.0.0.1
port {port}
dir "{dir}"
daemonize no
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
auto-aof-rewrite-percentage 0
save ""
"""


class Redis(Peer):
    name = "redis"
    job = "plain"

    def command(self):
        config = self.s.data / f"{self.name}.conf"
        config.write_text(REDIS_CONFIG.format(port=self.port, dir=self.dir))
        return ["redis-server", config]

    def load_command(self, conns):
        return [self.s.programs / "redis_load", "--port", self.port, "--job", self.job,
                "--conns", conns]


class RedisSameJob(Redis):
    name = "redis_same_job"
    job = "same"


POSTGRES_CONFIG = """\
listen_addresses = ''
unix_socket_directories = '{dir}'
max_connections = 400
fsync = on
synchronous_commit = on
wal_sync_method = fdatasync
full_page_writes = on
commit_delay = 0
shared_buffers = 512MB
max_wal_size = 16GB
checkpoint_timeout = 1h
log_min_messages = error
"""


class Postgres(Peer):
    """One cluster for the whole run; every load starts with new tables and a checkpoint."""

    name = "postgres"

    def __init__(self, settings):
        super().__init__(settings)
        versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        if not versions:
            raise BenchError("PostgreSQL is not installed")
        self.bin = versions[-1]
        self.user = pwd.getpwuid(os.geteuid()).pw_name

    def as_user(self, command):
        """PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return command
        return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups",
                *command]

    def create(self):
        """The directory and its cluster, where the unprivileged user can reach them."""
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        if os.geteuid() == 0:
            self.user = "postgres"
            shutil.chown(self.dir, "postgres", "postgres")
        if subprocess.run(self.as_user(["test", "-w", self.dir]), check=False).returncode != 0:
            raise BenchError(f"user {self.user} cannot reach {self.dir}: set DATA to a directory "
                             "that everybody may pass through, on the same disk")
        subprocess.run(self.as_user([self.bin / "initdb", "-D", self.dir / "db", "-A", "trust",
                                     "-U", "bench", "-E", "UTF8", "--no-instructions"]),
                       check=True, capture_output=True)
        if len(str(self.dir)) > 80:
            raise BenchError(f"{self.dir} is too long a path for a socket")
        with open(self.dir / "db" / "postgresql.conf", "a", encoding="utf-8") as f:
            f.write(POSTGRES_CONFIG.format(dir=self.dir))

    def start(self):
        if not (self.dir / "db").exists():
            self.create()
        self.launch()

    def command(self):
        return self.as_user([self.bin / "postgres", "-D", self.dir / "db"])

    def ready(self):
        done = subprocess.run([self.bin / "pg_isready", "-h", self.dir, "-q"], check=False)
        return done.returncode == 0

    def load_command(self, conns):
        return [self.s.programs / "pg_load",
                "--conninfo", f"host={self.dir} user=bench dbname=postgres",
                "--column", os.environ.get("PG_COLUMN", "jsonb"),
                "--conns", conns, "--batch", self.s.batch]

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast shutdown: ends sessions, checkpoints
            self.process.wait(timeout=STOP_S)
        return super().stop()

    def facts_stopped(self):
        return {}

    def remove(self):
        """The cluster stays for the next round; run.py removes the whole data directory."""


class Sqlite(Peer):
    """No server: SQLite runs inside the load program, on the server's core."""

    name = "sqlite"

    def launch(self):
        pass

    def load_command(self, conns):
        return [self.s.programs / "sqlite_load", "--dir", self.dir, "--batch", self.s.batch]

    def load(self, conns, seconds, warmup):
        command = [*self.load_command(conns), "--seconds", seconds, "--warmup", warmup]
        result = run_load(self.s.server_core, command, seconds + warmup + 60)
        events = result["acks_total"] * self.s.batch
        result["cpu_us_per_event"] = result["load_cpu_s"] * 1e6 / max(1, events)
        self.events += events
        return result

    def syncs_per_ack(self, conns, seconds):
        self.start()
        out = self.s.data / "sqlite.strace"
        command = ["strace", "-f", "-c", "-o", out, "-e", f"trace={SYNC_CALLS}",
                   *self.load_command(conns), "--seconds", seconds, "--warmup", 0]
        result = run_load(self.s.server_core, command, seconds + 60)
        return sync_count(out.read_text()) / max(1, result["acks_total"])


PEERS = {peer.name: peer for peer in (Tallyman, Redis, RedisSameJob, Postgres, Sqlite, Floor)}


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return None


def versions():
    """What was measured, as each program calls itself."""
    def ask(*command):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.stdout.strip()
        except OSError:
            return None
    postgres = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return {"kernel": " ".join(os.uname()[i] for i in (0, 2, 4)),
            "redis": ask("redis-server", "--version"),
            "postgres": ask(str(postgres[-1]), "--version") if postgres else None,
            "cpu": processor(),
            "cores": os.cpu_count()}


def as_json(value):
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
