"""The servers that bench/w5.py measures, and how what they acknowledged is checked.

A server is started on an empty directory for each measurement, so that nothing but it has data
there. Uploads of one large file go through curl, small ones through bench/upload_load.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import socket
import struct
import subprocess
import time

import peers as p

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = "files"
OFFSETS = "application/offset+octet-stream"
UPLOAD_S = 600  # no upload takes longer
WARM_BYTES = 4 << 20


class Input:
    """A file to be sent: no holes, known BLAKE3."""

    def __init__(self, settings, size):
        self.size = size
        self.path = settings.data / f"input-{size}"
        done = subprocess.run([settings.programs / "upload_data", "make", self.path, str(size)],
                              capture_output=True, text=True, check=True)
        self.digest = done.stdout.strip()

    def warm(self):
        """Into the page cache: reading it is not what is measured."""
        piece = bytearray(WARM_BYTES)
        with open(self.path, "rb", buffering=0) as f:
            while f.readinto(piece):
                pass


def headers_of(text):
    """Names in lower case and values of the last head in what curl or a socket gave."""
    head = text.replace("\r\n", "\n").strip().split("\n\n")[-1]
    pairs = (line.partition(":") for line in head.split("\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def receipt_of(headers):
    text = headers.get("artifact-receipt", "")
    try:
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        raise p.BenchError(f"no receipt that can be read: {text!r}") from None


def receipt_fault(receipt, object_id, digest, size):
    """None when this receipt is of these bytes, else what is wrong."""
    want = {"id": f"receipt:{object_id}", "object_id": object_id, "checksum": f"blake3:{digest}",
            "size_bytes": size}
    wrong = {key: receipt.get(key) for key, value in want.items() if receipt.get(key) != value}
    return f"receipt {object_id}: {wrong}, not {want}" if wrong else None


def read_acks(paths):
    """(id, BLAKE3) of what upload_load wrote."""
    rows = []
    for path in paths:
        rows += [line.split()[:2] for line in path.read_text(encoding="ascii").splitlines()]
    return rows


def check_receipts(data, acks, size):
    """Each acknowledged id has its receipt on the disk, and no receipt is of anything else. `acks`
    are pairs (id, BLAKE3)."""
    known = {}
    for object_id, digest in acks:
        if object_id in known:
            raise p.BenchError(f"{object_id} was acknowledged twice")
        known[object_id] = digest
    folder = pathlib.Path(data) / "receipts"
    there = {path.stem for path in folder.glob("*.json")}
    lost, extra = known.keys() - there, there - known.keys()
    if lost or extra:
        raise p.BenchError(f"{len(lost)} of {len(known)} receipts are lost, {len(extra)} are of "
                           f"nothing that was acknowledged: {sorted(lost | extra)[:3]}")
    for object_id, digest in known.items():
        receipt = json.loads((folder / f"{object_id}.json").read_text(encoding="utf-8"))
        fault = receipt_fault(receipt, object_id, digest, size)
        if fault:
            raise p.BenchError(fault)


def bytes_below(folder):
    """Of all files that are there now: some may get other names meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def send_all(s, f, size):
    """A whole file by sendfile on a blocking socket: returns when its last byte is the kernel's.
    (socket.sendfile returns later: only when there is room for more.)"""
    s.settimeout(None)
    for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        s.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", UPLOAD_S, 0))
    at = 0
    while at < size:
        at += os.sendfile(s.fileno(), f.fileno(), at, size - at)


class Server(p.Peer):
    """What the three have in common."""

    how = "creation"
    # Beginning or awaiting write-back is no sync.
    sync_calls = "fsync,fdatasync,msync,syncfs,sync"
    files = 0  # end a load after so many; 0: after its time

    def start(self):
        self.acks_files = []
        self.acked = []  # of large uploads
        # Where `data` asks for it (w5.py), ext4 chooses the block group by the name.
        self.dir = self.s.data / f"{self.name}-{time.monotonic_ns()}"
        super().start()

    # ---- small files ----

    def load_command(self, conns):
        self.acks_files.append(self.s.data / f"{self.name}-acks-{len(self.acks_files)}")
        return [self.s.programs / "upload_load", "--port", self.port, "--server", self.name,
                "--how", self.how, "--conns", conns, "--project", PROJECT,
                "--acks", self.acks_files[-1], *(["--files", self.files] if self.files else [])]

    # ---- large ones ----

    def create(self, data):
        """Makes an upload; its path."""
        metadata = {"project": PROJECT, "checksum": f"blake3:{data.digest}"}
        words = [f"{key} {base64.b64encode(value.encode()).decode()}"
                 for key, value in metadata.items()]
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        c.request("POST", "/files", headers={
            "Tus-Resumable": "1.0.0", "Upload-Length": str(data.size), "Content-Length": "0",
            "Upload-Metadata": ",".join(words)})
        answer = c.getresponse()
        text = answer.read()
        c.close()
        location = answer.getheader("Location") or ""
        if answer.status != 201 or "/files/" not in location:
            raise p.BenchError(f"{self.name}: creation: {answer.status} {text!r}")
        return location[location.index("/files/"):]

    def curl(self, path, data):
        """curl with one PATCH; what it will say is (seconds, status, bytes), then the head."""
        return subprocess.Popen(
            p.on_core(self.s.load_core, [
                "curl", "-sS", "-o", "/dev/null", "-D", "-", "-X", "PATCH", "-T", data.path,
                "-H", "Expect:", "-H", "Tus-Resumable: 1.0.0", "-H", "Upload-Offset: 0",
                "-H", f"Content-Type: {OFFSETS}", "--max-time", UPLOAD_S,
                "-w", "%{stderr}%{time_total} %{http_code} %{size_upload}",
                f"http://127.0.0.1:{self.port}{path}"]),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def finish(self, process, path, data):
        """Seconds that curl took; the answer is checked."""
        out, said = process.communicate(timeout=UPLOAD_S + 30)
        words = said.split()
        if process.returncode != 0 or words[-2:] != ["204", str(data.size)]:
            raise p.BenchError(f"{self.name}: curl ended with {process.returncode}: {said} {out}")
        self.check_answer(path, data, headers_of(out))
        return float(words[-3])

    def uploads(self, data, count):
        """Sends `count` copies at once; a result."""
        paths = [self.create(data) for _ in range(count)]
        cpu_s = p.cpu_seconds(self.process.pid)
        start = time.monotonic()
        running = [(self.curl(path, data), path) for path in paths]
        seconds = [self.finish(process, path, data) for process, path in running]
        wall_s = time.monotonic() - start if count > 1 else seconds[0]
        cpu_s = p.cpu_seconds(self.process.pid) - cpu_s
        total = data.size * count
        return {"bytes_per_s": total / wall_s, "cpu_s_per_gib": cpu_s / (total / 2**30)}

    def last_answer_ms(self, data):
        """Milliseconds from handing the last byte to the kernel until the answer is there."""
        path = self.create(data)
        with socket.create_connection(("127.0.0.1", self.port), timeout=UPLOAD_S) as s, \
                open(data.path, "rb") as f:
            s.sendall((f"PATCH {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
                       f"Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: {OFFSETS}\r\n"
                       f"Content-Length: {data.size}\r\n\r\n").encode())
            send_all(s, f, data.size)
            sent = time.monotonic()
            text = b""
            while b"\r\n\r\n" not in text:
                more = s.recv(65536)
                if not more:
                    raise p.BenchError(f"{self.name}: no answer: {text!r}")
                text += more
            wait_s = time.monotonic() - sent
        if not text.startswith(b"HTTP/1.1 204"):
            raise p.BenchError(f"{self.name}: {text!r}")
        self.check_answer(path, data, headers_of(text.decode()))
        return wait_s * 1e3

    def check_answer(self, path, data, headers):
        if headers.get("upload-offset") != str(data.size):
            raise p.BenchError(f"{self.name}: {headers}, not an offset of {data.size}")
        self.acked.append((path.rpartition("/")[2], data.digest))

    def check_files(self, size, whole):
        """After the end: what was acknowledged is there; `whole`: every byte of it."""

    def stored(self, object_id):
        return self.dir / object_id

    def check_stored(self, size, whole):
        for object_id, digest in self.acked + read_acks(self.acks_files):
            path = self.stored(object_id)
            if path.stat().st_size != size:
                raise p.BenchError(f"{self.name}: {path} has {path.stat().st_size} bytes")
            if whole and self.hash(path) != digest:
                raise p.BenchError(f"{self.name}: {path} holds other bytes than were sent")

    def hash(self, path):
        done = subprocess.run([self.s.programs / "upload_data", "hash", path], capture_output=True,
                              text=True, check=True)
        return done.stdout.strip()

    def facts_stopped(self):
        return {}


class Tallyman(Server, p.Tallyman):
    name = "tallyman"

    def command(self):
        return [*p.Tallyman.command(self), "--engine", "off", "--no-deliver"]

    def launch(self):
        super().launch()
        (self.dir / "arrived").mkdir()
        subprocess.run([self.s.tallyman, "project", "create", PROJECT, "--sink", "directory",
                        "--directory", self.dir / "arrived", "--data", self.dir / "data"],
                       check=True, capture_output=True, text=True)

    def facts(self, result):
        return {}

    @contextlib.contextmanager
    def delivering(self):
        """The deliverer runs, pinned as if the server had started it. Gives a function: how many
        bytes have arrived, as soon as it is so many."""
        folder = self.dir / "arrived"

        def arrived(least=0):
            end = time.monotonic() + UPLOAD_S
            while True:
                size = bytes_below(folder)
                if size >= least:
                    return size
                if process.poll() is not None or time.monotonic() > end:
                    raise p.BenchError(f"{self.name}: nothing is delivered, see {log.name}")
                time.sleep(0.01)

        with open(self.s.data / f"{self.name}-deliver.log", "wb") as log:
            process = subprocess.Popen(
                p.on_core(self.s.server_core, [self.s.tallyman, "deliver", "--data",
                                               self.dir / "data"]),
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            try:
                yield arrived
            finally:
                process.terminate()
                process.wait(timeout=p.STOP_S)

    def append_load(self, seconds, warmup):
        """Single history appends on one connection."""
        return p.run_load(self.s.load_core, [
            self.s.programs / "load", "--port", self.port, "--conns", 1, "--batch", 1,
            "--prefix", f"b{time.monotonic_ns() % 10**12}", "--seconds", seconds,
            "--warmup", warmup], seconds + warmup + 60)

    def check_answer(self, path, data, headers):
        object_id = path.rpartition("/")[2]
        fault = receipt_fault(receipt_of(headers), object_id, data.digest, data.size)
        if fault:
            raise p.BenchError(fault)
        super().check_answer(path, data, headers)

    def check_files(self, size, whole):
        acks = self.acked + read_acks(self.acks_files)
        check_receipts(self.dir / "data", acks, size)
        if not whole:
            return
        done = subprocess.run([self.s.tallyman, "verify", "--json", "--data", self.dir / "data"],
                              capture_output=True, text=True, timeout=UPLOAD_S)
        if done.returncode != 0:
            raise p.BenchError(f"verify: {done.returncode} {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)["artifacts"]
        if (found["receipts"], found["bytes"]) != (len(acks), len(acks) * size):
            raise p.BenchError(f"verify: {found}, not {len(acks)} artifacts of {size} bytes")


class Floor(Server):
    name = "floor"

    def command(self):
        return [self.s.programs / "upload_floor", self.dir, self.port]

    def check_answer(self, path, data, headers):
        if headers.get("blake3") != data.digest:
            raise p.BenchError(f"floor: {headers}, not {data.digest}")
        super().check_answer(path, data, headers)

    def check_files(self, size, whole):
        self.check_stored(size, whole)


class Tus(Server):
    """@tus/server with @tus/file-store; never syncs."""

    name = "tus"

    def __init__(self, settings):
        super().__init__(settings)
        self.home = settings.programs.parent / "bench-tus"

    def command(self):
        return [self.home.resolve() / "node_modules" / "node" / "bin" / "node",
                self.home.resolve() / "server.mjs", self.dir, self.port]

    def check_files(self, size, whole):
        self.check_stored(size, whole)


PEERS = {peer.name: peer for peer in (Tallyman, Floor, Tus)}


def install_tus(build):
    """Node.js and the server, through npm."""
    subprocess.run([ROOT / "scripts" / "npm-install", pathlib.Path(build).resolve() / "bench-tus",
                    "bench/tus"], check=True)


def free_bytes(path):
    """(free, what Tallyman wants to stay free)."""
    fs = os.statvfs(path)
    return fs.f_bavail * fs.f_frsize, min(fs.f_blocks * fs.f_frsize // 20, 10 << 30)


def cached_bytes_possible():
    """Memory that the page cache may have."""
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
