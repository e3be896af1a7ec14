"""A device that fails while something is accepted, under the page cache of a real file system.

writes: each write of the device is answered EIO (nbdkit's error filter). flushes: writes are taken, flushes are answered EIO.

Behind a failed sync the kernel holds the new bytes in clean pages, shows them to everybody, and will drop them one day: the
device never had them. So: no success is told; the store is poisoned and says so; reads go on. When the device works again, a
new server on the same mount, whose page cache still lies, must see what it will see after the file system was unmounted and
mounted: what was not acknowledged is there whole or not at all, and never there now and gone later. What was acknowledged before
stays, and what was turned away can be sent again.

Where the file system itself has given up (read-only, or shut down), the new server cannot start on that mount; then the first look
is the one after mounting again, and the second one the one after that. The line of a case says so.
"""
import json
import mmap
import os
import pathlib

import device
from serving import JSON, TUS, Answer, Connection, Server
from workload import BODY, PROJECT, Upload, creation, queue_rows

BLOCK = 4096


class Trouble:
    """A server on a device that fails when it is told to."""

    def __init__(self, kind, place, recorder, binary):
        place.mkdir(parents=True)
        self.place = place
        self.triggers = {"writes": place / "fail-writes", "flushes": place / "fail-flushes"}
        device.make_image(kind, place / "base")
        self.disk = device.Device(kind, place / "base", place / "device", recorder, error=self.triggers["writes"],
                                  deaf=self.triggers["flushes"])
        self.server = Server(self.disk.point / "data", place / "serve.log", binary)
        self.notes = []

    def close(self):
        for trigger in self.triggers.values():
            trigger.unlink(missing_ok=True)
        self.server.kill()
        self.disk.close()

    def breaks(self, what):
        self.triggers[what].touch()

    def mends(self, what):
        self.triggers[what].unlink()

    def poisoned(self, store):
        ready = self.server.get("/readyz")
        assert ready.status == 503 and store in ready.body.decode(), ready.body
        assert self.server.get("/healthz").status == 200

    def start_again(self):
        """On the mount as it is; on a new one when the file system has given up."""
        self.server.kill()
        try:
            (self.disk.point / "alive").touch()
            (self.disk.point / "alive").unlink()
        except OSError as error:
            self.notes.append(f"the file system gave up ({os.strerror(error.errno)})")
            return self.mount_again()
        return self.server.start()

    def mount_again(self):
        self.server.kill()
        self.disk.umount()
        self.disk.mount()
        return self.server.start()

    def ends_well(self):
        self.server.verify()
        assert self.server.stop() == 0, self.server.log
        self.server.verify()
        return "; ".join(self.notes) or "done"


def lines(name, count, size):
    events = [{"stream": "s", "record_key": f"k{i}", "kind": "upserted", "payload": {"fill": "x" * size}} for i in range(count)]
    return json.dumps({"batch_id": name, "source": "eio", "events": events}).encode()


def on_device(path):
    """The file's bytes past the page cache. Pages that are clean are neither used nor dropped."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        size = os.fstat(fd).st_size
        buffer = mmap.mmap(-1, (size + BLOCK - 1) // BLOCK * BLOCK)
        got = 0
        while got < size:
            n = os.preadv(fd, [memoryview(buffer)[got:]], got)
            if n <= 0:
                break
            got += n
        return buffer[:got]
    finally:
        os.close(fd)


FITS = 1000  # a batch of twelve such events goes into the first generation; one of five times as large ones needs a rotation


def history(trouble, what, size=FITS):
    server = trouble.server.start()
    for i in range(8):
        answer = server.append(lines(f"before {i}", 3, 500))
        assert answer.status == 200, answer.body
    before = server.history()
    batch = lines("meanwhile", 12, size)
    trouble.breaks(what)
    for body in (batch, lines("later", 1, 10)):
        answer = server.append(body)
        assert answer.status == 503 and answer.json["error"] == "writer_poisoned", (answer.status, answer.body)
    trouble.poisoned("journal")
    tail = server.data / "journal" / "tail.ndjson"
    try:
        shown = b'"meanwhile"' in tail.read_bytes()
    except OSError:
        trouble.notes.append("nothing could be read any more")
        trouble.mends(what)
    else:
        assert server.history() == before, "readers see what is not durable"
        trouble.mends(what)
        held = b'"meanwhile"' in on_device(tail)
        trouble.notes.append(f"page cache {'with' if shown else 'without'} the batch, device {'with' if held else 'without'} it")
        assert size > FITS or what == "flushes" or (shown and not held), f"the trap was not set: {trouble.notes}"
    assert server.append(batch).status == 503, "poisoned is for ever"
    first = trouble.start_again().history()
    assert first[:len(before)] == before and first[len(before):].count(b"\n") in (0, 12), "the batch is half there"
    second = trouble.mount_again().history()
    assert first == second, f"{len(first)} bytes were there, and {len(second)} are there after the file system was mounted again"
    answer = trouble.server.append(batch)
    assert answer.status == 200, answer.body
    assert answer.json["status"] == ("committed" if first == before else "duplicate"), answer.body
    trouble.notes.append(f"after the restart it was {'not ' if first == before else ''}there")
    return trouble.ends_well()


def rotation(trouble, what):
    return history(trouble, what, 5 * FITS)


def capture_request(name, count, size):
    events = [{"event": "e", "distinct_id": "d", "message_id": f"{name} {i}", "properties": {"fill": "x" * size}} for i in range(count)]
    return json.dumps({"source": "eio", "events": events}).encode()


def make_project(trouble):
    value = {"id": PROJECT, "artifacts": {"sink": "directory", "directory": str(trouble.place)}}
    answer = trouble.server.request("POST", "/api/v1/projects", json.dumps(value), JSON)
    assert answer.status == 201, answer.body


def queue(trouble, what):
    server = trouble.server.start()
    make_project(trouble)
    send = lambda body: server.request("POST", f"/api/v1/projects/{PROJECT}/events", body, JSON)
    for i in range(8):
        assert send(capture_request(f"before {i}", 3, 500)).status == 200
    before = queue_rows(server.data)[0]
    batch = capture_request("meanwhile", 12, 3000)
    trouble.breaks(what)
    for body in (batch, capture_request("later", 1, 10)):
        answer = send(body)
        assert answer.status == 503 and answer.json["error"] == "store_poisoned", (answer.status, answer.body)
    trouble.poisoned("queue")
    trouble.mends(what)
    assert send(batch).status == 503, "poisoned is for ever"
    trouble.start_again()
    first = queue_rows(server.data)[0]
    assert first.items() >= before.items() and len(first) - len(before) in (0, 12), "the request is half there"
    trouble.mount_again()
    assert queue_rows(server.data)[0] == first, "the queue is another one after the file system was mounted again"
    answer = send(batch)
    assert answer.status == 200 and {e["status"] for e in answer.json["events"]} == {
        "accepted" if first == before else "duplicate"}, answer.body
    trouble.notes.append(f"after the restart the request was {'not ' if first == before else ''}there")
    return trouble.ends_well()


class File(Upload):
    def __init__(self, server, content):
        super().__init__(content)
        self.server = server

    def ask(self, method, body=None, **headers):
        line = Connection(self.server.socket_path)
        line.request(method, f"/files/{self.id}" if self.id else "/files/", body=body,
                     headers={**TUS, **(BODY if body is not None else {}), **{k.replace("_", "-"): v for k, v in headers.items()}})
        answer = Answer(line.getresponse())
        line.close()
        return answer

    def create(self, body=None):
        answer = self.ask("POST", body, **creation(self))
        if "location" in answer.headers:
            self.id = answer.headers["location"].rsplit("/", 1)[1]
        return answer

    def patch(self, offset, end):
        return self.ask("PATCH", self.content[offset:end], Upload_Offset=str(offset))

    def state(self):
        """Offset (None: gone) and receipt, as they are told; the bytes below the offset must be ours."""
        answer = self.ask("HEAD")
        assert answer.status in (200, 410), answer.status
        receipt = self.server.data / "receipts" / f"{self.id}.json"
        if answer.status == 410:
            assert not receipt.exists()
            return None, None
        offset = int(answer.headers["upload-offset"])
        content = (self.server.data / "uploads" / self.id).read_bytes()
        assert content[:offset] == self.content[:offset], f"other bytes below {offset}"
        assert receipt.exists() == (offset == len(self.content)), f"offset {offset}, and receipt: {receipt.exists()}"
        return offset, receipt.read_bytes() if receipt.exists() else None


def upload(trouble, what):
    """The last piece, whose answer would have brought the receipt."""
    server = trouble.server.start()
    make_project(trouble)
    done = File(server, os.urandom(30000))
    assert "artifact-receipt" in done.create(done.content).headers
    accepted = done.state()
    file = File(server, os.urandom(300000))
    assert file.create().status == 201
    assert file.patch(0, 100000).status == 204
    trouble.breaks(what)
    answer = file.patch(100000, 300000)
    assert answer.status >= 500 and "artifact-receipt" not in answer.headers, (answer.status, answer.headers)
    fresh = File(server, os.urandom(5000))
    answer = fresh.create(fresh.content)
    assert answer.status >= 400 and "artifact-receipt" not in answer.headers, (answer.status, answer.headers)
    trouble.mends(what)
    trouble.start_again()
    first = file.state()
    assert first[0] is None or first[0] >= 100000, first
    names = sorted(p.name for p in (server.data / "receipts").iterdir())
    trouble.mount_again()
    assert file.state() == first, "the upload is another one after the file system was mounted again"
    assert sorted(p.name for p in (server.data / "receipts").iterdir()) == names, "receipts came or went"
    assert done.state() == accepted
    trouble.notes.append("after the restart the upload " + (f"stood at {first[0]} of 300000" if first[0] is not None else "was gone"))
    if first[0] is not None and first[0] < len(file.content):
        assert "artifact-receipt" in file.patch(first[0], 300000).headers
        assert file.state()[0] == 300000
    return trouble.ends_well()


CASES = {f"{function.__name__}, failing {what}": (function, what)
         for function in (history, rotation, queue, upload) for what in ("writes", "flushes")}


def run(kind, case, place, recorder, binary):
    function, what = case
    trouble = Trouble(kind, pathlib.Path(place), recorder, binary)
    try:
        return function(trouble, what)
    except BaseException:
        print(trouble.server.log[-3000:])
        raise
    finally:
        trouble.close()
