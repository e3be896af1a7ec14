#!/usr/bin/env python3
"""Do the instruments notice? bench/load (also with --repeat) and bench/verify against servers that are wrong on purpose.

  bench/selftest.py BUILD

A small event store in memory speaks enough of the protocol. Once it is right and all three must
agree; then it has one fault at a time, and the program that is there to find it must. At last
the server goes away in the middle of a load: what it acknowledged must be on file.
"""

import http.server
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import uuid

import history

# fault: which program must notice it, and a word of what it must say
FAULTS = {
    "lose": ("verify", "batch_id"),
    "lose the last": ("verify", "missing"),
    "twice": ("verify", "does not rise"),
    "extra": ("verify", "never acknowledged"),
    "swap events": ("verify", "record_key"),
    "change payload": ("verify", "payload"),
    "not canonical": ("verify", "payload"),
    "wrong receipt": ("verify", "event_id"),
    "cut page": ("verify", "cut off"),
    "error line": ("verify", "replay failed"),
    "status 503": ("load", "refused"),
    "duplicate": ("load", "refused"),
    "count": ("load", "refused"),
    "no ids": ("load", "refused"),
    "close": ("load", "closed by the server"),
    "forget": ("repeat", "refused"),
    "other ids": ("repeat", "refused"),
    "conflict": ("repeat", "refused"),
}
LOAD_FAULT_AT = 5  # the batch a fault of the load's kind hits


class Store:
    """Committed lines and how to get them wrong."""

    def __init__(self, fault):
        self.fault = fault
        self.lock = threading.Lock()
        self.batches = []
        self.receipts = {}
        self.ids = itertools.count(1)

    def event_id(self):
        n = next(self.ids)
        return f"01935f00-0000-7000-8000-{n:012x}"

    def append(self, body):
        with self.lock:
            batch = json.loads(body)
            known = self.receipts.get(batch["batch_id"])
            if known is not None and self.fault != "forget":
                return self.repeated(known)
            lines = []
            for event in batch["events"]:
                lines.append({"batch_id": batch["batch_id"], "event_id": self.event_id(), **event})
            self.batches.append(lines)
            receipt = {"status": "committed", "batch_digest": "0" * 64, "events": len(lines),
                       "first_event_id": lines[0]["event_id"],
                       "last_event_id": lines[-1]["event_id"]}
            if len(self.batches) == LOAD_FAULT_AT:
                self.spoil_receipt(receipt)
            self.receipts[batch["batch_id"]] = receipt
            return receipt

    def repeated(self, known):
        """The answer to a batch that is there; the fault hits one of them."""
        receipt = {**known, "status": "duplicate"}
        if known is list(self.receipts.values())[len(self.receipts) // 2]:
            if self.fault == "other ids":
                receipt["first_event_id"] = self.event_id()
            if self.fault == "conflict":
                receipt["status"] = "conflict"
        return receipt

    def spoil_receipt(self, receipt):
        if self.fault == "duplicate":
            receipt["status"] = "duplicate"
        if self.fault == "count":
            receipt["events"] += 1
        if self.fault == "no ids":
            del receipt["first_event_id"]
        if self.fault == "wrong receipt":
            receipt["last_event_id"] = "01935f00-0000-7000-8000-ffffffffffff"

    def replay(self):
        """All lines; the fault hits the batch in the middle."""
        batches = [list(lines) for lines in self.batches]
        middle = len(batches) // 2
        if self.fault == "lose":
            del batches[middle]
        if self.fault == "lose the last":
            del batches[-1]
        if self.fault == "twice":
            batches.insert(middle, batches[middle])
        if self.fault == "extra":
            batches.append([{**batches[-1][0], "event_id": self.event_id()}])
        if self.fault == "swap events":
            one, two = batches[middle][:2]
            batches[middle][:2] = [{**two, "event_id": one["event_id"]},
                                   {**one, "event_id": two["event_id"]}]
        lines = [json.dumps(line, sort_keys=True, separators=(",", ":"))
                 for lines in batches for line in lines]
        if self.fault == "change payload":
            lines[middle] = lines[middle].replace("page_view", "page_vieW")
        if self.fault == "not canonical":
            lines[middle] = lines[middle].replace('.5,"returning"', '.50,"returning"')
        if self.fault == "error line":
            lines.insert(middle, '{"error":"internal_error","type":"error"}')
        return lines


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def log_message(self, format, *args):
        pass

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    gone_at = None  # batches after which nothing is answered any more

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.gone_at is not None and len(self.store.batches) >= self.gone_at:
            self.close_connection = True
            return
        receipt = self.store.append(body)
        hit = len(self.store.batches) == LOAD_FAULT_AT
        if hit and self.store.fault == "close":
            self.close_connection = True
        elif hit and self.store.fault == "status 503":
            self.answer(503, b'{"error":"writer_poisoned","message":"refused"}')
        else:
            self.answer(200, json.dumps(receipt, separators=(",", ":")).encode())

    def do_GET(self):
        """A chunked page; chunk borders fall where they like."""
        after = dict(p.split("=") for p in self.path.split("?")[1].split("&")).get("after", "")
        lines = [line for line in self.store.replay() if not after or self.behind(line, after)]
        page = lines[:70]
        if self.store.fault != "cut page" or not after:
            page.append('{"next_after":null,"type":"page"}')
        data = "".join(line + "\n" for line in page).encode()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(data), 1000):
            piece = data[at:at + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def behind(line, after):
        return json.loads(line).get("event_id", "~") > after


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A program that noticed a fault hangs up: no news. Anything else is a fault of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def run(build, fault, scratch):
    """The programs against one store: the results of load, verify and load --repeat."""
    handler = type("StoreHandler", (Handler,), {"store": Store(fault)})
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        port = str(server.server_address[1])
        acks = str(scratch / "acks")
        programs = pathlib.Path(build) / "bench"
        load = subprocess.run([programs / "load", "--port", port, "--conns", "3", "--batch", "4",
                               "--seconds", "0.2", "--warmup", "0", "--acks", acks],
                              capture_output=True, text=True, timeout=60)
        verify = subprocess.run([programs / "verify", "--port", port, "--acks", acks,
                                 "--limit", "70"], capture_output=True, text=True, timeout=60)
        repeat = subprocess.run([programs / "load", "--port", port, "--conns", "3", "--repeat",
                                 acks, "--seconds", "0.2", "--warmup", "0"],
                                capture_output=True, text=True, timeout=60)
        server.shutdown()
    return load, verify, repeat


def judge(build, fault, scratch):
    """None when the instruments did their duty, else what they did instead."""
    load, verify, repeat = run(build, fault, scratch)
    said = f"load {load.returncode}: {load.stdout}{load.stderr}verify {verify.returncode}: " \
           f"{verify.stdout}{verify.stderr}repeat {repeat.returncode}: {repeat.stdout}{repeat.stderr}"
    if load.returncode != 0:
        return said
    clean = " errors=0 " in load.stdout and load.stderr == ""
    repeats = repeat.returncode == 0 and " errors=0 " in repeat.stdout and repeat.stderr == ""
    verified = verify.returncode == 0 and "verified" in verify.stdout
    if fault is None:
        return None if clean and verified and repeats else said
    who, word = FAULTS[fault]
    if who == "repeat":
        return None if clean and verified and not repeats and word in repeat.stderr else said
    if who == "load":
        noticed = " errors=0 " not in load.stdout and word in load.stderr
        return None if noticed else said
    return None if clean and verify.returncode == 1 and word in verify.stderr else said


def cut(build, scratch):
    """kill -9 in the middle: None when the file holds what was answered and nothing else."""
    handler = type("StoreHandler", (Handler,), {"store": Store(None)})
    path = scratch / "cut"
    handler.gone_at = 20
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        load = subprocess.run([pathlib.Path(build) / "bench" / "load", "--port",
                               str(server.server_address[1]), "--conns", "3", "--batch", "4",
                               "--seconds", "20", "--warmup", "0", "--acks", path],
                              capture_output=True, text=True, timeout=60)
        server.shutdown()
    if load.returncode == 0 or not path.exists():
        return f"load {load.returncode}: {load.stdout}{load.stderr}"
    told = sorted((line[0]["event_id"], line[-1]["event_id"])
                  for line in handler.store.batches)
    have = [tuple(str(uuid.UUID(bytes=one)) for one in pair) for pair in history.Acks(path).ids]
    # Of the last answers some may not have been read when the connections broke.
    missing = [one for one in told if one not in have]
    wrong = [one for one in have if one not in told]
    return f"{len(missing)} missing, {len(wrong)} wrong" if wrong or len(missing) > 3 else None


def main():
    if len(sys.argv) != 2:
        print("usage: bench/selftest.py BUILD", file=sys.stderr)
        return 2
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for fault in [None, *FAULTS, "server gone"]:
            if fault == "server gone":
                trouble = cut(sys.argv[1], pathlib.Path(scratch))
            else:
                trouble = judge(sys.argv[1], fault, pathlib.Path(scratch))
            print(f"{'FAILED' if trouble else 'ok':6} {fault or 'no fault'}")
            if trouble:
                failed += 1
                print(trouble)
    print(f"bench selftest: {len(FAULTS) + 2 - failed} of {len(FAULTS) + 2} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
