"""What happens on the recorded disk, and what its clients were told, each answer with the flush that it rests on.

Clients of all three doors work at the same time while the server is killed once, stopped once and goes on; generations are small,
so that many rotations, key runs and summaries are among it. A client reads the device's flush counter when an answer is complete:
what the answer promised must be in every image with at least so many flushes.

The history as it is in the end is proven against all that was sent and told (ledger.py). It only ever grows, so what an image has
must be a beginning of it: at least to the last batch that was told by then, at most to its end, never a part of a batch.
"""
import base64
import hashlib
import http.client
import itertools
import json
import random
import sqlite3
import subprocess
import threading
import time
import uuid

from serving import JSON, TUS, Answer, Connection, Server, UnixWire
from ledger import History, Ledger, Sent, retry_unknown

HISTORY_CLIENTS = 3
CAPTURE_CLIENTS = 2
PAUSE_S = 0.03  # of a client, between two requests: how much there is decides how long the check of an image takes
PROJECT = "demo"
LEAST = (40, 15, 3)  # acknowledged batches, requests and files between two ends of the server
PHASE_S_MAX = 60
BODY = {**TUS, "Content-Type": "application/offset+octet-stream"}
GONE = (OSError, EOFError, http.client.HTTPException)


class Stamped(Ledger):
    """The flush at the first receipt of each batch."""

    def __init__(self, path, flushes):
        super().__init__(path)
        self.flushes, self.stamps = flushes, {}

    def answered(self, sent, status, answer):
        stamp = self.flushes()
        super().answered(sent, status, answer)
        if status == 200:
            self.stamps.setdefault(sent.key, stamp)


class Request:
    """One request of the capture door."""

    def __init__(self, events):
        self.events = events  # (uuid, text)
        self.ids = None
        self.stamp = None     # of the answer, None: unknown


class Upload:
    def __init__(self, content):
        self.content = content
        self.id = None
        self.told = []        # (stamp, offset)
        self.receipt = None   # (stamp, bytes)


class Work:
    """A server and its clients. All that is known of them in the end is in result()."""

    def __init__(self, device, place, seed, binary):
        self.device, self.rng = device, random.Random(seed)
        self.server = Server(device.point / "data", place / "serve.log", binary)
        self.ledger = Stamped(place / "ledger.ndjson", device.flushes)
        self.history = History(self.ledger)
        self.requests, self.uploads = [], []
        self.failures, self.stopping = [], None
        self.count = itertools.count()
        self.lock = threading.Lock()

    # ---- clients ----

    def load(self, seconds):
        """All clients, for a while, and until there is enough of all, however slow the machine is; the caller ends the server under
        them."""
        self.stopping = threading.Event()
        clients = [self.append] * HISTORY_CLIENTS + [self.capture] * CAPTURE_CLIENTS + [self.upload]
        threads = [threading.Thread(target=self.client, args=(what, random.Random(self.rng.getrandbits(64)))) for what in clients]
        for thread in threads:
            thread.start()
        before, end = self.done(), time.monotonic() + PHASE_S_MAX
        self.stopping.wait(seconds)
        while not self.stopping.is_set() and time.monotonic() < end and any(
                now - then < least for now, then, least in zip(self.done(), before, LEAST)):
            time.sleep(0.05)
        return threads

    def done(self):
        """Batches, requests and files that have been acknowledged."""
        return len(self.ledger.stamps), sum(r.stamp is not None for r in self.requests), sum(f.receipt is not None for f in self.uploads)

    def join(self, threads):
        self.stopping.set()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a client hangs"
        if self.failures:
            raise self.failures[0]

    def client(self, what, rng):
        try:
            what(rng)
        except GONE:
            pass  # the server has gone
        except BaseException as failure:
            self.failures.append(failure)
            self.stopping.set()

    def event(self, rng, n):
        size = 20 if rng.random() < 0.7 else rng.randint(100, 3000)
        return {"stream": f"s{n % 3}", "record_key": f"k{rng.randrange(200)}", "kind": "upserted",
                "payload": {"n": n, "text": "é" * (size // 2)}}

    def append(self, rng):
        wire = UnixWire(self.server)
        mine = []
        try:
            while not self.stopping.is_set():
                group = [self.batch(rng) for _ in range(1 if rng.random() < 0.6 else rng.randint(2, 5))]
                if mine and rng.random() < 0.1:
                    group.append(rng.choice(mine))
                if rng.random() < 0.05:
                    group = [self.batch(rng, bad=True)]
                for sent in group:
                    self.ledger.sending(sent)
                wire.post(*[sent.body for sent in group])
                for sent in group:
                    status, _, answer = wire.answer()
                    if status == 503 and sent.key not in self.ledger.stamps:
                        return  # it stops
                    self.ledger.answered(sent, status, answer)
                    assert status == (400 if sent.want else 200), (sent.key, status, answer)
                mine += [sent for sent in group if not sent.want]
                time.sleep(rng.uniform(0, 2 * PAUSE_S))
        finally:
            wire.close()

    def batch(self, rng, bad=False):
        n = next(self.count)
        events = [self.event(rng, n) for _ in range(1 if rng.random() < 0.6 else rng.randint(2, 20))]
        if bad:
            events.append({**self.event(rng, n), "occurred_at": "2023-02-30T00:00:00Z"})
        sent = Sent({"batch_id": f"b{n}", "source": "load", "events": events})
        sent.want = (400, "invalid_events") if bad else None
        return sent

    def capture(self, rng):
        line = Connection(self.server.socket_path)
        try:
            while not self.stopping.is_set():
                made = []
                for _ in range(1 if rng.random() < 0.5 else rng.randint(2, 30)):
                    name = str(uuid.UUID(int=rng.getrandbits(128), version=4))
                    fill = "x" * (rng.randint(0, 800) if rng.random() < 0.2 else 10)
                    made.append((name, '{"event":"e","distinct_id":"d","uuid":"%s","properties":{"fill":"%s"}}' % (name, fill)))
                request = Request(made)
                self.requests.append(request)
                if not self.send(line, request):
                    return
                time.sleep(rng.uniform(0, 2 * PAUSE_S))
        finally:
            line.close()

    def send(self, line, request):
        """False: the server stops."""
        body = '{"source":"web","events":[%s]}' % ",".join(text for _, text in request.events)
        line.request("POST", f"/api/v1/projects/{PROJECT}/events", body.encode(), JSON)
        answer = Answer(line.getresponse())
        stamp = self.device.flushes()
        if answer.status == 503:
            return False
        assert answer.status == 200, (answer.status, answer.body)
        ids = [int(e["event_id"]) for e in answer.json["events"]]
        assert [e["uuid"] for e in answer.json["events"]] == [name for name, _ in request.events]
        assert request.ids in (None, ids)
        request.ids = ids
        request.stamp = stamp if request.stamp is None else request.stamp
        return True

    def upload(self, rng):
        line = Connection(self.server.socket_path)
        try:
            for file in [f for f in self.uploads if f.id is not None and f.receipt is None]:  # of before the last end
                answer = self.ask(line, file, "HEAD", None, TUS)
                assert answer.status == 200, (answer.status, answer.headers)
            while not self.stopping.is_set():
                mine = [f for f in self.uploads if f.id is not None and f.receipt is None]
                if mine and rng.random() < 0.75:
                    self.piece(line, rng, rng.choice(mine))
                else:
                    file = Upload(rng.randbytes(rng.randint(1, 4000) if rng.random() < 0.6 else rng.randint(4000, 150000)))
                    self.uploads.append(file)
                    whole = rng.random() < 0.4
                    self.ask(line, file, "POST", file.content if whole else None, {**creation(file), **(BODY if whole else TUS)})
                time.sleep(rng.uniform(0, 2 * PAUSE_S))
        finally:
            line.close()

    def piece(self, line, rng, file):
        offset = file.told[-1][1]
        left = len(file.content) - offset
        n = left if rng.random() < 0.3 else rng.randint(1, max(left, 1)) if left > 0 else 0
        answer = self.ask(line, file, "PATCH", file.content[offset:offset + n], {**BODY, "Upload-Offset": str(offset)})
        assert answer.status == 204, (answer.status, answer.body)

    def ask(self, line, file, method, body, headers):
        line.request(method, f"/files/{file.id}" if file.id else "/files/", body=body, headers=headers)
        answer = Answer(line.getresponse())
        stamp = self.device.flushes()
        if answer.status == 503:
            raise ConnectionError("it stops")
        assert answer.status in (200, 201, 204), (answer.status, answer.body)
        if "location" in answer.headers:
            file.id = answer.headers["location"].rsplit("/", 1)[1]
        offset = int(answer.headers.get("upload-offset", "0"))
        assert not file.told or offset >= file.told[-1][1]
        file.told.append((stamp, offset))
        text = answer.headers.get("artifact-receipt")
        if text is not None:
            assert file.receipt is None
            file.receipt = stamp, base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return answer

    # ---- the run ----

    def run(self, seconds):
        self.server.start()
        self.ready = self.device.flushes()
        answer = self.server.request("POST", "/api/v1/projects", json.dumps(
            {"id": PROJECT, "artifacts": {"sink": "directory", "directory": str(self.device.place)}}), JSON)
        assert answer.status == 201, answer.body
        self.project = self.device.flushes()
        for end in ("kill", "stop", "rest"):
            threads = self.load(seconds / 3)
            try:
                if end == "kill":
                    self.server.kill()
                elif end == "stop":
                    assert self.server.stop() == 0, self.server.log
            finally:
                self.join(threads)
            if end != "rest":
                self.server.start()
            self.settle()
            self.seal()
        return self.result()

    def settle(self):
        """Everything without an answer is sent again."""
        retry_unknown(self.server, self.ledger, self.history)
        line = Connection(self.server.socket_path)
        for request in self.requests:
            if request.stamp is None:
                assert self.send(line, request)
        line.close()

    def seal(self):
        """Where this version can: closed generations become segments, beside the rest."""
        if "\n  seal" in self.server.cli("help").stdout:
            result = self.server.cli("seal")
            assert result.returncode == 0, result.stderr

    def result(self):
        ends = {key: first + len(self.ledger.by_key[key].batch["events"]) for key, first in self.history.batches.items()}
        text = self.server.history()
        assert hashlib.sha256(text).digest() == self.history.bytes.digest()
        told = sorted((stamp, ends[key]) for key, stamp in self.ledger.stamps.items())
        known = {
            "history": text, "ends": sorted(ends.values()), "told": told, "refused": len(self.ledger.refusals),
            "requests": [(r.events, r.ids, r.stamp) for r in self.requests],
            "uploads": [(f.content, f.id, f.told, f.receipt) for f in self.uploads],
            "ready": self.ready, "project": self.project, "segments": len(list((self.server.data / "journal" / "segments").iterdir()))}
        assert self.server.stop() == 0, self.server.log
        self.ledger.close()
        return known


def creation(file):
    digest = subprocess.run(["b3sum", "--no-names"], input=file.content, capture_output=True, check=True, timeout=60).stdout.decode().strip()
    words = {"project": PROJECT, "checksum": f"blake3:{digest}", "filename": "a file"}
    return {"Upload-Length": str(len(file.content)),
            "Upload-Metadata": ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in words.items())}


def queue_rows(data):
    """{uuid: (id, text)} of the queue, and the number of projects; read by SQLite's own library."""
    db = sqlite3.connect(f"file:{data}/tallyman.sqlite?mode=ro", uri=True, timeout=60)
    try:
        rows = {str(uuid.UUID(bytes=name)): (n, bytes(text).decode()) for n, name, text in db.execute("SELECT id, uuid, text FROM events")}
        return rows, db.execute("SELECT count(*) FROM projects").fetchone()[0]
    finally:
        db.close()
