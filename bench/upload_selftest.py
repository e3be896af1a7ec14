#!/usr/bin/env python3
"""Do W5's instruments notice? bench/upload_load and the check of receipts, against a server that is
wrong on purpose.

  bench/upload_selftest.py BUILD

A small tus server accepts files and writes their receipts. Once it is right, for files in one
request and in two, and everything must agree; then it has one fault at a time, and the instrument
that is there to find it must. The server knows no BLAKE3: it believes what was declared. At last
the peers' stored files, with one changed, cut or lost.
"""

import base64
import http.server
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

import peers as p
import upload_peers as up

# fault: which instrument must notice it, and a word of what it must say
FAULTS = {
    "no receipt": ("load", "refused"),
    "receipt cut": ("load", "refused"),
    "receipt not base64url": ("load", "refused"),
    "another id": ("load", "refused"),
    "another object": ("load", "refused"),
    "another digest": ("load", "refused"),
    "another size": ("load", "refused"),
    "longer size": ("load", "refused"),
    "short offset": ("load", "refused"),
    "no location": ("load", "refused"),
    "status 500": ("load", "refused"),
    "status 200": ("load", "refused"),
    "close": ("load", "closed by the server"),
    "lose": ("check", "1 of 24 receipts are lost"),
    "extra": ("check", "1 are of nothing"),
    "same id": ("check", "acknowledged twice"),
    "change digest": ("check", "checksum"),
    "change size": ("check", "size_bytes"),
    "change object": ("check", "object_id"),
}
FAULT_AT = 5  # the file that a fault hits
FILES = 24
BYTES = 65536


class Store:
    """Accepted files, and how to get them wrong."""

    def __init__(self, fault, data):
        self.fault = fault
        self.folder = data / "receipts"
        self.folder.mkdir(parents=True)
        self.lock = threading.Lock()
        self.ids = itertools.count(1)
        self.accepted = 0
        self.done = []  # ids that were told
        self.doubled = False
        self.declared = {}

    def create(self, metadata):
        words = dict(pair.split(" ") for pair in metadata.split(","))
        with self.lock:
            object_id = f"{next(self.ids):032x}"
            if self.fault == "same id" and self.done and not self.doubled:
                # Of one that is over, or its own receipt would be wrong as well.
                object_id, self.doubled = self.done[0], True
            self.declared[object_id] = base64.b64decode(words["checksum"]).decode()
            return object_id

    def accept(self, object_id, size):
        """(the receipt that is told, whether the fault hits it)"""
        receipt = {"id": f"receipt:{object_id}", "issuer": "http://127.0.0.1",
                   "object_id": object_id, "checksum": self.declared[object_id],
                   "size_bytes": size, "accepted_at": 1}
        with self.lock:
            self.accepted += 1
            hit = self.accepted == FAULT_AT
            self.write(object_id, dict(receipt), hit)
            self.done.append(object_id)
        if hit:
            self.spoil(receipt)
        return receipt, hit

    def write(self, object_id, receipt, hit):
        if hit and self.fault == "lose":
            return
        if hit and self.fault == "change digest":
            receipt["checksum"] = "blake3:" + "0" * 64
        if hit and self.fault == "change size":
            receipt["size_bytes"] += 1
        if hit and self.fault == "change object":
            receipt["object_id"] = "0" * 32
        (self.folder / f"{object_id}.json").write_text(json.dumps(receipt))
        if hit and self.fault == "extra":
            (self.folder / f"{'f' * 32}.json").write_text(json.dumps(receipt))

    def spoil(self, receipt):
        if self.fault == "another id":
            receipt["id"] = "receipt:" + "0" * 32
        if self.fault == "another object":
            receipt["object_id"] = "0" * 32
        if self.fault == "another digest":
            receipt["checksum"] = receipt["checksum"][:-1] + "x"
        if self.fault == "another size":
            receipt["size_bytes"] -= 1
        if self.fault == "longer size":
            receipt["size_bytes"] *= 10


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def log_message(self, format, *args):
        pass

    def answer(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def take(self, object_id, status, headers):
        size = len(self.rfile.read(int(self.headers["Content-Length"])))
        receipt, hit = self.store.accept(object_id, size)
        text = base64.urlsafe_b64encode(json.dumps(receipt, separators=(",", ":")).encode())
        headers["Upload-Offset"] = str(size)
        headers["Artifact-Receipt"] = text.decode().rstrip("=")
        headers["Blake3"] = receipt["checksum"].removeprefix("blake3:")  # as the floor says it
        fault = self.store.fault if hit else None
        if fault == "close":
            self.close_connection = True
            return
        if fault == "no receipt":
            del headers["Artifact-Receipt"]
        if fault == "receipt cut":
            headers["Artifact-Receipt"] = headers["Artifact-Receipt"][:40]
        if fault == "receipt not base64url":
            headers["Artifact-Receipt"] = "+" + headers["Artifact-Receipt"]
        if fault == "short offset":
            headers["Upload-Offset"] = str(size - 1)
        if fault == "status 500":
            status = 500
        if fault == "status 200":
            status = 200
        if fault == "no location":
            headers.pop("Location", None)
        self.answer(status, headers)

    def do_POST(self):
        object_id = self.store.create(self.headers["Upload-Metadata"])
        headers = {"Location": f"/files/{object_id}"}
        if int(self.headers["Content-Length"]) > 0:
            self.take(object_id, 201, headers)
        else:
            self.answer(201, headers)

    def do_PATCH(self):
        self.take(self.path.rpartition("/")[2], 204, {})


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A program that noticed a fault hangs up: no news. Anything else is a fault of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def run(build, fault, how, scratch, kind="tallyman"):
    """(load's result, what the check said, None when nothing)."""
    data = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    handler = type("StoreHandler", (Handler,), {"store": Store(fault, data)})
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        load = subprocess.run(
            [pathlib.Path(build) / "bench" / "upload_load", "--port", str(server.server_address[1]),
             "--how", how, "--server", kind, "--conns", "3", "--files", str(FILES),
             "--seconds", "60", "--acks", data / "acks"], capture_output=True, text=True, timeout=120)
        server.shutdown()
    if load.returncode != 0:
        return load, None
    try:
        up.check_receipts(data, up.read_acks([data / "acks"]), BYTES)
    except p.BenchError as error:
        return load, str(error)
    return load, None


def judge(build, fault, how, scratch):
    """None when the instruments did their duty, else what they did instead."""
    load, checked = run(build, fault, how, scratch)
    said = f"load {load.returncode}: {load.stdout}{load.stderr}check: {checked}"
    if load.returncode != 0:
        return said
    clean = " errors=0 " in load.stdout and load.stderr == ""
    if fault is None:
        whole = f" acks_total={FILES} " in load.stdout
        return None if clean and whole and checked is None else said
    who, word = FAULTS[fault]
    if who == "load":
        noticed = " errors=1 " in load.stdout and word in load.stderr
        return None if noticed else said
    return None if clean and checked is not None and word in checked else said


def judge_floor(build, fault, scratch):
    """The same for the load's view of the floor's answers, which are a digest and no receipt."""
    load, _ = run(build, fault, "two", scratch, "floor")
    errors = " errors=0 " if fault is None else " errors=1 "
    good = load.returncode == 0 and errors in load.stdout
    return None if good else f"load {load.returncode}: {load.stdout}{load.stderr}"


def judge_stored(build, fault, scratch):
    """The same for the files of the floor and of the peer, which are read back."""
    settings = p.Settings(build, scratch, None, None)
    floor = up.Floor(settings)
    floor.dir = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    floor.acks_files, floor.acked = [], []
    for number in range(3):
        path = floor.dir / str(number)
        path.write_bytes(bytes([number]) * BYTES)
        floor.acked.append((path.name, floor.hash(path)))
    if fault == "stored: changed":
        (floor.dir / "1").write_bytes(b"\x01" * (BYTES - 1) + b"\x00")
    if fault == "stored: cut":
        (floor.dir / "1").write_bytes(b"\x01" * (BYTES - 1))
    if fault == "stored: lost":
        (floor.dir / "1").unlink()
    try:
        floor.check_files(BYTES, True)
    except (p.BenchError, OSError) as error:
        return None if fault is not None else str(error)
    return None if fault is None else "nothing was noticed"


def main():
    if len(sys.argv) != 2:
        print("usage: bench/upload_selftest.py BUILD", file=sys.stderr)
        return 2
    cases = [(None, "creation"), (None, "two"), ("no receipt", "two"), ("another object", "two"),
             ("close", "two"), ("lose", "two"), *((fault, "creation") for fault in FAULTS)]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        todo = [(f"{how}: {fault}", judge, (fault, how)) for fault, how in cases]
        todo += [(f"floor: {fault}", judge_floor, (fault,)) for fault in (None, "another digest")]
        todo += [(f"stored: {fault}", judge_stored, (fault and f"stored: {fault}",))
                 for fault in (None, "changed", "cut", "lost")]
        for what, judged, arguments in todo:
            trouble = judged(sys.argv[1], *arguments, scratch)
            print(f"{'FAILED' if trouble else 'ok':6} {what.replace('None', 'no fault')}")
            if trouble:
                failed += 1
                print(trouble)
    print(f"upload selftest: {len(todo) - failed} of {len(todo)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
