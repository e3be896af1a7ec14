"""What the tests that hurt a server believe: a ledger of what was sent and what was answered, and an own copy of the history.

Ledger: every batch is written down before its bytes leave, every answer when it is complete. It is kept in memory and in a
file, for the search after a failure.

History: the log as the server has shown it, extended page by page and never replaced. Every new event is compared with what
the ledger says was sent, its hashes are computed again, and the chain is carried on. What was shown once is held for good:
`tallyman verify --chain` must come to the head that was computed here, and a replay from the start to the same bytes.

settle() is the oracle: acknowledged means present, once, whole, in order, at the place that the receipt names; refused means
absent; anything else is absent or whole.
"""
import hashlib
import json
import socket
import threading
import time

GENESIS = hashlib.sha256(b"groundhog/genesis/v1").digest()
RECEIPT = {"status", "batch_digest", "events", "first_event_id", "last_event_id"}
NDJSON = {"Accept": "application/x-ndjson"}


def canonical(value):
    """RFC 8785 for the values these tests use: no floats, names without surrogate pairs."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Wire:
    """A keep-alive connection by hand: requests can be sent ahead of their answers, and nothing is ever sent twice."""

    def __init__(self, server, timeout=30):
        self.sock = socket.create_connection((server.host, server.port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host = f"{server.host}:{server.port}"
        self.rest = b""

    def post(self, *bodies):
        """Sends appends without waiting for an answer."""
        self.sock.sendall(b"".join(
            f"POST /v1/events HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies))

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self.rest += data

    def answer(self):
        """The next answer: status, headers, body."""
        while b"\r\n\r\n" not in self.rest:
            self.more()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers["content-length"])
        while len(self.rest) < length:
            self.more()
        body, self.rest = self.rest[:length], self.rest[length:]
        return int(first.split()[1]), headers, json.loads(body)

    def close(self):
        self.sock.close()


class Sent:
    """One batch that left, or may have left, the test."""

    def __init__(self, batch):
        self.batch = batch
        self.body = json.dumps(batch).encode()
        self.key = (batch["source"], batch["batch_id"])
        self.first_sent = None  # monotonic time
        self.acked = None
        self.receipt = None
        self.committed_answers = 0
        self.refused = None  # (status, error code)
        self.turned_away = False  # 429: nothing was stored, may come again
        self.want = None  # (status, error code) of a batch that is meant to be refused

    @property
    def unknown(self):
        return self.first_sent is not None and self.receipt is None and self.refused is None


class Ledger:
    def __init__(self, path):
        self.lock = threading.Lock()
        self.file = open(path, "a", encoding="utf-8")
        self.by_key = {}
        self.refusals = []
        self.open = []  # sent and not yet settled by the oracle

    def close(self):
        self.file.close()

    def note(self, what, sent, **more):
        self.file.write(json.dumps({"t": round(time.monotonic(), 6), what: sent.key, **more}) + "\n")
        self.file.flush()

    def sending(self, sent, conflict=False):
        """To be called before the first byte leaves. A batch that is meant to conflict does not own its key."""
        with self.lock:
            sent.turned_away = False
            if sent.first_sent is None:
                sent.first_sent = time.monotonic()
                self.open.append(sent)
                if not conflict:
                    assert sent.key not in self.by_key, sent.key
                    self.by_key[sent.key] = sent
                self.note("sent", sent, batch=sent.batch)
            else:
                self.note("again", sent)

    def answered(self, sent, status, answer):
        """The complete answer to a batch. Anything that is neither a receipt nor a refusal leaves it unknown."""
        with self.lock:
            self.note("answer", sent, status=status, answer=answer)
            if status == 200:
                assert set(answer) == RECEIPT, answer
                assert sent.refused is None, (sent.key, sent.refused, answer)
                receipt = {name: value for name, value in answer.items() if name != "status"}
                assert sent.receipt in (None, receipt), (sent.key, sent.receipt, answer)
                sent.committed_answers += answer["status"] == "committed"
                assert sent.committed_answers <= 1, f"{sent.key} was committed twice"
                sent.receipt = receipt
                sent.acked = sent.acked or time.monotonic()
            elif status == 429:
                assert sent.receipt is None, (sent.key, status, answer)
                sent.turned_away = True
            elif status in (400, 409, 413):
                assert sent.receipt is None, (sent.key, status, answer)
                sent.refused = (status, answer["error"])
                self.refusals.append(sent)

    def append(self, server, sent, conflict=False):
        """One append by itself; the answer goes into the ledger and is returned."""
        self.sending(sent, conflict)
        answer = server.append(sent.body)
        self.answered(sent, answer.status, answer.json)
        return answer

    def unknown(self):
        return [sent for sent in self.open if sent.unknown]


class History:
    def __init__(self, ledger):
        self.ledger = ledger
        self.ids = []
        self.heads = [GENESIS]
        self.batches = {}  # key -> index of its first event
        self.run = None  # (key, count) of the batch whose events are coming
        self.bytes = hashlib.sha256()

    @property
    def head(self):
        return self.heads[-1].hex()

    def add(self, line):
        """The next event of the log."""
        e = json.loads(line)
        key = (e["source"], e["batch_id"])
        assert not self.ids or e["event_id"] > self.ids[-1], (self.ids[-1], e)
        if self.run is None or self.run[1] == len(self.run[2].batch["events"]):
            assert key not in self.batches, f"{key} is stored twice"
            assert key in self.ledger.by_key, f"{key} was never sent, or was refused"
            self.batches[key] = len(self.ids)
            self.run = [key, 0, self.ledger.by_key[key]]
        assert key == self.run[0], f"{self.run[0]} is interrupted by {key}"
        want = self.run[2].batch["events"][self.run[1]]
        got = {name: e[name] for name in ("stream", "record_key", "kind", "payload", "occurred_at") if name in e}
        assert got == want, (key, self.run[1])
        payload = canonical(want["payload"])
        assert b'"payload":' + payload in line, (key, line)
        assert e["content_hash"] == sha(payload)
        envelope = {name: e[name] for name in e if name not in ("payload", "event_hash")}
        assert e["event_hash"] == sha(canonical(envelope))
        self.run[1] += 1
        self.ids.append(e["event_id"])
        self.heads.append(hashlib.sha256(self.heads[-1] + bytes.fromhex(e["event_hash"])).digest())
        self.bytes.update(line)

    def extend(self, server):
        """Reads on from what is known, to the frontier; nothing may stand half there."""
        after = self.ids[-1] if self.ids else None
        while True:
            *events, page = pages(server, after)
            for line in events:
                self.add(line)
            page = json.loads(page)
            assert page["type"] == "page", page
            if page["next_after"] == page["snapshot_through_event_id"]:
                break
            after = page["next_after"]
        if self.run is not None:
            assert self.run[1] == len(self.run[2].batch["events"]), f"{self.run[0]} is not whole"
        self.ancestor(page["snapshot"])
        assert page["snapshot"]["frontier_event_count"] == len(self.ids)

    def ancestor(self, snapshot):
        """A head that was shown at any time lies on the present chain."""
        n = snapshot["frontier_event_count"]
        assert n <= len(self.ids), f"{n} events were shown, {len(self.ids)} are there"
        assert snapshot["frontier_event_id"] == (self.ids[n - 1] if n else None)
        assert snapshot["chain_head"] == self.heads[n].hex()

    def reread(self, server):
        """Everything from the start once more: the very same bytes."""
        again, after = hashlib.sha256(), None
        while True:
            *events, page = pages(server, after)
            for line in events:
                again.update(line)
            page = json.loads(page)
            if page["next_after"] == page["snapshot_through_event_id"]:
                break
            after = page["next_after"]
        assert again.digest() == self.bytes.digest()

    def settle(self):
        """The oracle, over everything that was not settled before. Unknown batches stay open until a retry tells."""
        still = []
        for sent in self.ledger.open:
            if sent.receipt is not None:
                assert sent.key in self.batches, f"{sent.key} was acknowledged and is not there"
                first = self.batches[sent.key]
                last = first + len(sent.batch["events"]) - 1
                assert sent.receipt["events"] == len(sent.batch["events"])
                assert sent.receipt["first_event_id"] == self.ids[first], sent.key
                assert sent.receipt["last_event_id"] == self.ids[last], sent.key
                assert sent.receipt["batch_digest"] == digest(sent.batch), sent.key
            elif sent.refused is not None:
                assert self.ledger.by_key.get(sent.key) is not sent or sent.key not in self.batches, \
                    f"{sent.key} was refused and is there"
            else:
                assert not sent.turned_away or sent.key not in self.batches, f"{sent.key} was turned away and is there"
                still.append(sent)
        self.order()
        self.ledger.open = still

    def order(self):
        """What was acknowledged before another batch was first sent stands before it."""
        placed = sorted((self.batches[s.key], s) for s in self.ledger.open if s.receipt is not None)
        newest = 0.0
        for _, sent in placed:
            assert sent.acked >= newest, f"{sent.key} stands behind a batch that was sent after its receipt"
            newest = max(newest, sent.first_sent)


def retry_unknown(server, ledger, history):
    """After a restart: sends every batch without an answer again, under the same key. Afterwards everything is there exactly
    once. Returns how many were sent again, and how many of them had been there."""
    again = there = 0
    history.extend(server)
    history.settle()
    for sent in ledger.unknown():
        stored = sent.key in history.batches and ledger.by_key[sent.key] is sent
        answer = ledger.append(server, sent, conflict=True)
        again += 1
        there += stored
        if sent.want is not None:
            assert (answer.status, answer.json["error"]) == sent.want, (sent.key, answer.json)
        else:
            assert answer.status == 200, (sent.key, answer.body)
            assert answer.json["status"] == ("duplicate" if stored else "committed"), (sent.key, answer.json)
    history.extend(server)
    history.settle()
    assert not ledger.open, [sent.key for sent in ledger.open]
    return again, there


def pages(server, after):
    answer = server.get("/v1/events?limit=10000" + (f"&after={after}" if after else ""), headers=NDJSON, timeout=60)
    assert answer.status == 200, answer.body
    return answer.body.splitlines(keepends=True)


def digest(batch):
    events = [{**{name: e[name] for name in ("kind", "occurred_at", "record_key", "stream") if name in e},
               "content_hash": sha(canonical(e["payload"]))} for e in batch["events"]]
    return sha(canonical({"events": events, "source": batch["source"], "v": 1}))
