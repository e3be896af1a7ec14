"""A long history and what can be asked of it: shared by W9 and W10.

The server is Tallyman with its engine and deliveries off. What bench/load was told is in files of
acknowledgements (acks.h).
"""

import os
import pathlib
import shutil
import struct
import subprocess
import time
import uuid

import peers as p

HEADER = struct.Struct("=8s24sIIQ16x")
RECORD = struct.Struct("=Q16s16s")
MAGIC = b"TMACKS1\0"
SPARE_BYTES = 3 << 30  # disk that stays free beside what a run needs
SLICE_S = 4
QUIET_S = 0.5
QUIET_CPU_S = 0.02
SETTLE_S = 600
CORES = (0, 1) if os.cpu_count() > 1 else (None, None)


class Acks:
    """The acknowledged batches of one load, by event id."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        magic, _, self.batch, _, count = HEADER.unpack_from(data)
        if magic != MAGIC or len(data) != HEADER.size + count * RECORD.size:
            raise p.BenchError(f"{path} holds no acknowledgements")
        rows = RECORD.iter_unpack(data[HEADER.size:])
        self.ids = sorted((first, last) for _, first, last in rows)

    def last(self):
        """(first, last) event id of the newest batch."""
        return tuple(str(uuid.UUID(bytes=one)) for one in self.ids[-1])


class Server(p.Tallyman):
    """One data directory, filled, killed and started as often as one likes."""

    def command(self):
        return [*super().command(), "--engine", "off", "--no-deliver"]

    def load_args(self, conns, batch, seconds, *more):
        return [self.s.programs / "load", "--port", self.port, "--conns", conns, "--batch", batch,
                "--prefix", f"b{time.monotonic_ns() % 10**12}", "--seconds", seconds, *more]

    def run(self, command, what):
        """A load that must not see one error."""
        result = p.run_load(self.s.load_core, command, 3600)
        if result["errors"] != 0:
            raise p.BenchError(f"{what}: {result['errors']:.0f} errors: {result['complaint']}")
        return result

    def append(self, conns, batch, seconds, warmup=0.0, acks=None):
        more = ["--acks", acks] if acks is not None else []
        result = self.run(self.load_args(conns, batch, seconds, "--warmup", warmup, *more),
                          "appends")
        self.events += int(result["acks_total"]) * batch
        return result

    def repeat(self, conns, seconds, acks):
        """Sends acknowledged batches again: each must get its first answer."""
        command = [self.s.programs / "load", "--port", self.port, "--conns", conns, "--repeat",
                   acks, "--seconds", seconds, "--warmup", 0]
        return self.run(command, "repeats")

    def repeat_all(self, acks):
        """Every one of them at least once."""
        count = len(Acks(acks).ids)
        seconds = 0.3
        while True:
            result = self.repeat(16, seconds, acks)
            if result["acks_total"] >= count:
                return count
            seconds = 1.2 * seconds * count / max(1.0, result["acks_total"])

    def fill(self, left, batch, room=lambda: None, acks=None, first_s=0.3):
        """Batches over as many connections as it takes to fill a group with them, until left()
        events are none. The acknowledgements of the first slice, of first_s seconds, go to acks."""
        conns = max(8, 400 // batch)
        per_s = 0
        while (events := left()) > 0:
            room()
            seconds = min(SLICE_S, max(0.05, events / per_s)) if per_s else first_s
            per_s = self.append(conns, batch, seconds, acks=acks)["events_per_s"]
            acks = None

    def settle(self):
        """Until closed generations are indexed and merged: while the server uses next to no CPU."""
        end = time.monotonic() + SETTLE_S
        before, since = p.cpu_seconds(self.process.pid), time.monotonic()
        while time.monotonic() - since < QUIET_S:
            if time.monotonic() > end:
                raise p.BenchError("the server does not come to rest")
            time.sleep(0.05)
            now = p.cpu_seconds(self.process.pid)
            if now - before > QUIET_CPU_S:
                before, since = now, time.monotonic()

    def memory(self):
        """Resident megabytes (10^6) now and at most."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        rows = dict(line.split(":", 1) for line in status.splitlines())
        return {key: int(rows[name].split()[0]) * 1024 / 1e6
                for key, name in (("rss_mb", "VmRSS"), ("rss_max_mb", "VmHWM"))}

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def kill(self):
        """kill -9, and nothing of it left."""
        process, self.process = self.process, None
        process.kill()
        process.wait()
        self.log.close()

    def verify_chain(self):
        done = subprocess.run([self.s.tallyman, "verify", "--chain", "--data", self.dir / "data"],
                              capture_output=True, text=True, timeout=3600)
        if done.returncode != 0:
            raise p.BenchError(f"verify --chain: {done.returncode} {done.stdout}{done.stderr}")


def disk_free(directory):
    return shutil.disk_usage(directory).free


def need_disk(directory, need):
    """Raises when what comes would leave less than SPARE_BYTES."""
    free = disk_free(directory)
    if free < need + SPARE_BYTES:
        raise p.BenchError(f"{need / 1e9:.1f} GB of disk are needed beside {SPARE_BYTES / 1e9:.1f} "
                           f"that stay free, {free / 1e9:.1f} GB are there")


def memory_available():
    with open("/proc/meminfo", encoding="utf-8") as f:
        rows = dict(line.split(":", 1) for line in f)
    return int(rows["MemAvailable"].split()[0]) * 1024
