"""The artifact door and its clients: a server that takes files and delivers them into a folder, and what its clients were told.

The oracle, for whatever happens to the server: an offset that was told never goes back, and the bytes below it are the client's;
a receipt that was told stays as it is; a receipt has its bytes; what is accepted arrives once, under its one name, as it is.
"""
import base64
import contextlib
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import threading
import time

from capture_world import is_alive
from conftest import tallyman

PROJECT = "files"
ENV = {"TALLYMAN_ENGINE": "off", "TALLYMAN_DELIVERY_BACKOFF_MS": "100"}
TUS = {"Tus-Resumable": "1.0.0"}
BODY = {**TUS, "Content-Type": "application/offset+octet-stream"}


def blake3(content):
    return subprocess.run(["b3sum", "--no-names"], input=content, capture_output=True, check=True).stdout.decode().strip()


def blake3_files(paths):
    """Of files, one program for all."""
    paths = [str(p) for p in paths]
    if not paths:
        return []
    sums = subprocess.run(["xargs", "-0", "b3sum", "--no-names"], input="\0".join(paths), capture_output=True, text=True,
                          check=True).stdout.split()
    assert len(sums) == len(paths)
    return sums


def command_line(pid):
    """Words with a NUL behind each; none of a process that has gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


class File:
    """One file of a client, and what was told of it."""

    def __init__(self, content, name):
        self.content, self.size, self.name = content, len(content), name
        self.blake3 = blake3(content)
        self.id = None       # None: its creation was not answered
        self.told = 0        # the highest offset
        self.receipt = None  # its bytes

    @property
    def path(self):
        return f"/files/{self.id}"

    @property
    def package(self):
        fields = ("tallyman-package-v1", "identity", PROJECT, self.id, f"blake3:{self.blake3}", str(self.size))
        return hashlib.sha256(b"".join(field.encode() + b"\0" for field in fields)).hexdigest()

    def creation(self):
        words = {"project": PROJECT, "checksum": f"blake3:{self.blake3}", "filename": self.name}
        return {"Upload-Length": str(self.size),
                "Upload-Metadata": ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in words.items())}

    def hears(self, answer):
        """Takes down what an answer says, whatever its status; it must not take back what was said before."""
        headers = answer.headers
        if "location" in headers:
            self.id = headers["location"].rsplit("/", 1)[1]
        if "upload-offset" in headers:
            offset = int(headers["upload-offset"])
            assert self.told <= offset <= self.size, f"{self.id}: {self.told} was told, and now {offset} of {self.size}"
            assert (offset == self.size) == ("artifact-receipt" in headers), f"{self.id}: the end, and no receipt: {headers}"
            self.told = offset
        if "artifact-receipt" in headers:
            text = headers["artifact-receipt"]
            self.hears_receipt(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    def hears_receipt(self, receipt):
        assert self.receipt in (None, receipt), f"the receipt was {self.receipt}, and is {receipt}"
        self.receipt = receipt
        self.told = self.size
        check_receipt(receipt, self.id, self.size, self.blake3)


def check_receipt(receipt, id, size, digest):
    value = json.loads(receipt)
    assert list(value) == ["id", "issuer", "object_id", "checksum", "size_bytes", "accepted_at"], receipt
    assert (value["id"], value["object_id"], value["checksum"], value["size_bytes"]) == \
        (f"receipt:{id}", id, f"blake3:{digest}", size), receipt


class Reply:
    """Status, headers and body of an answer on a connection that is kept."""

    def __init__(self, line, method, path, body=None, headers=None):
        line.request(method, path, body=body, headers=headers or {})
        response = line.getresponse()
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()


class Artifacts:
    """A server with a project of files, its destination, and the ledger of all its clients."""

    def __init__(self, server, workdir):
        self.server, self.data, self.workdir = server, server.data, workdir
        self.place = workdir / "place"
        self.place.mkdir()
        server.cli("project", "create", PROJECT, "--sink", "directory", "--directory", str(self.place), check=0)
        self.files = []
        self.lock = threading.Lock()
        self.proven = set()  # ids whose bytes were compared with their receipts

    def new(self, content, name=None):
        with self.lock:
            file = File(content, name or f"file {len(self.files)}.bin")
            self.files.append(file)
        return file

    # ---- requests ----

    def line(self, timeout=30):
        return self.server.connection(timeout=timeout)

    def ask(self, file, method, body=None, headers=None, line=None):
        """One request on the file's path (POST: its creation), taken down."""
        line = line or self.line()
        path = "/files/" if method == "POST" else file.path
        answer = Reply(line, method, path, body, headers)
        file.hears(answer)
        return answer

    def create(self, file, body=None, line=None):
        headers = {**TUS, **file.creation(), **(BODY if body is not None else {})}
        return self.ask(file, "POST", body, headers, line)

    def patch(self, file, offset, content, line=None):
        return self.ask(file, "PATCH", content, {**BODY, "Upload-Offset": str(offset)}, line)

    def head(self, file, line=None):
        """The offset, or None when the upload is gone."""
        answer = self.ask(file, "HEAD", headers=TUS, line=line)
        assert answer.status in (200, 410), (answer.status, file.id)
        if answer.status == 410:
            return None
        return int(answer.headers["upload-offset"])

    def finish(self, file, line=None):
        """Goes on from where it is; the receipt must come."""
        offset = self.head(file, line)
        assert offset is not None, f"{file.id} is gone"
        if offset < file.size:
            answer = self.patch(file, offset, file.content[offset:], line)
            assert answer.status == 204, (answer.status, answer.body)
        assert file.receipt is not None
        return file

    def receipt_is(self, file, line=None):
        answer = Reply(line or self.line(), "GET", f"/api/v1/receipts/{file.id}")
        assert answer.status == 200, (answer.status, answer.body)
        file.hears_receipt(answer.body.removesuffix(b"\n"))

    def no_receipt(self, file):
        """No file, and none is told without finishing anything."""
        assert not (self.data / "receipts" / f"{file.id}.json").exists(), "there is a receipt"

    # ---- delivery ----

    def deliver_pid(self):
        """The delivery process that this server runs now, or None."""
        for task in os.listdir(f"/proc/{self.server.process.pid}/task"):
            with open(f"/proc/{self.server.process.pid}/task/{task}/children", encoding="ascii") as file:
                for pid in map(int, file.read().split()):
                    if is_alive(pid) and b"\0deliver\0" in command_line(pid):
                        return pid
        return None

    def wait_deliver(self, timeout=60):
        """Until a delivery process has its signals and its watch; its id."""
        return self.wait(lambda: self.server.log.count("deliver: ready") > 0 and self.deliver_pid(), timeout, "a delivery process")

    def rows(self, sql, *args):
        """Of delivery.sqlite; [] while it cannot be read."""
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.data}/delivery.sqlite?mode=ro", uri=True)) as db:
                return db.execute(sql, args).fetchall()
        except sqlite3.OperationalError as error:
            assert any(word in str(error) for word in ("unable to open", "no such table", "locked", "readonly database")), error
            return []

    def delivery(self, file):
        """The member `delivery` of the artifact, {} while there is none."""
        answer = self.server.get(f"/api/v1/artifacts/{file.id}")
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json["delivery"] or {}

    def wait_verified(self, timeout=120):
        """Until all receipts are delivered and verified."""
        want = len(self.receipts())
        done = lambda: self.rows("SELECT count(*) FROM deliveries WHERE state = 'verified'") == [(want,)]
        self.wait(done, timeout, f"{want} verified deliveries")

    @staticmethod
    def wait(condition, timeout=60, what="it"):
        end = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < end, f"{what} did not come about in {timeout} s"
            time.sleep(0.01)

    # ---- the oracle ----

    def receipts(self):
        return [p for p in (self.data / "receipts").iterdir() if not p.name.startswith(".")]

    def check_disk(self):
        """What was told is in the files, as they lie; every receipt has its bytes. The number of receipts that nobody was told of."""
        for file in self.files:
            if file.id is None:
                continue
            path = self.data / "uploads" / file.id
            if file.receipt is not None:
                assert (self.data / "receipts" / f"{file.id}.json").read_bytes() == file.receipt
                assert path.stat().st_size == file.size
            elif file.told > 0:
                with open(path, "rb") as bytes_of_it:
                    assert bytes_of_it.read(file.told) == file.content[:file.told], f"{file.id}: bytes below {file.told} are others"
        by_digest = {file.blake3: file for file in self.files}
        fresh = [p for p in self.receipts() if p.stem not in self.proven]
        sums = blake3_files(self.data / "uploads" / p.stem for p in fresh)
        for path, digest in zip(fresh, sums):
            assert digest in by_digest, f"{path.stem}: a receipt, and its bytes are nobody's"
            file = by_digest[digest]
            assert file.id in (None, path.stem), "one creation was accepted twice"
            check_receipt(path.read_bytes(), path.stem, file.size, digest)
            self.proven.add(path.stem)
        return len(self.proven) - sum(file.receipt is not None for file in self.files)

    def check_partly_arrived(self):
        """A remote name never shows a part."""
        sizes = {p.stem: json.loads(p.read_bytes())["size_bytes"] for p in self.receipts()}
        for folder in self.place.iterdir():
            for path in folder.iterdir():
                if path.name.endswith(".manifest.jsonl"):
                    assert len([json.loads(text) for text in path.read_text().splitlines()]) == 3
                elif not path.name.startswith("."):
                    assert path.stat().st_size == sizes[folder.name], f"{path} is not whole"

    def check_arrived(self):
        """The server was stopped: each receipt's file is there under its one name, and nothing else is anywhere."""
        receipts = {p.stem: json.loads(p.read_bytes()) for p in self.receipts()}
        by_digest = {file.blake3: file for file in self.files}
        assert len({r["checksum"] for r in receipts.values()}) == len(receipts), "one file was accepted twice"
        want = {}
        for id, receipt in receipts.items():
            name = by_digest[receipt["checksum"].removeprefix("blake3:")].name.replace(" ", "_")
            want[f"{id}/{name}"] = receipt["checksum"].removeprefix("blake3:")
        there = sorted(p for p in self.place.rglob("*") if not p.is_dir())
        main = [p for p in there if not p.name.endswith(".manifest.jsonl")]
        assert dict(zip((str(p.relative_to(self.place)) for p in main), blake3_files(main))) == want
        assert {str(p.relative_to(self.place)).removesuffix(".manifest.jsonl") for p in there if p not in main} == want.keys()
        assert len(there) == 2 * len(receipts)
        assert self.rows("SELECT state, count(*) FROM deliveries GROUP BY state") == ([("verified", len(want))] if want else [])
        for folder in ("uploads", "uploads/.purge", "receipts", "packages", "proofs"):
            names = [p.name for p in (self.data / folder).iterdir() if p.name.startswith(".")]
            assert names == ([".purge"] if folder == "uploads" else []), "temporary files are left"

    def verify(self):
        result = tallyman("verify", "--json", "--data", str(self.data))
        assert result.returncode == 0, (result.stdout, result.stderr)
        report = json.loads(result.stdout)
        assert report["artifacts"]["ok"] and report["artifacts"]["violations"] == [], report["artifacts"]
        return report["artifacts"]


def content_of(rng, size):
    return rng.randbytes(size)


def any_size(rng):
    """Mostly small, some that take a few syncs and pieces, few of some MB."""
    kind = rng.random()
    if kind < 0.65:
        return rng.randint(1, 3000)
    if kind < 0.92:
        return rng.randint(3000, 200000)
    return rng.randint(1 << 20, 4 << 20)


def seeded(value):
    return random.Random(value)
