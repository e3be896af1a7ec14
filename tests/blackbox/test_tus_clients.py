"""tus clients that are not ours: Debian's tuspy, curl, and a driver that does as Canner's Go client (canner_client.py).

What each of them got a receipt for must be the server's receipt, in uploads/, and at the destination, byte for byte.
"""
import base64
import hashlib
import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest
from canner_client import CannerClient, HTTPError, TransportError, checksum_of
from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError, TusUploadFailed
from tusclient.fingerprint.fingerprint import Fingerprint
from tusclient.storage.filestorage import FileStorage

MIB = 1 << 20
FULL = ("--min-free-bytes", "1000000GiB")  # no disk has as much
ROOMY = ("--min-free-bytes", "1")
TYPE = "application/offset+octet-stream"


class Files:
    """A server with the project `files`, whose destination is a directory."""

    def __init__(self, make_server, workdir, *args):
        self.workdir = workdir
        self.server = make_server(*(args or ROOMY))
        self.directory = workdir / "arrived"
        self.directory.mkdir(exist_ok=True)
        self.server.cli("project", "create", "files", "--sink", "directory", "--directory", str(self.directory),
                        check=0)

    @property
    def url(self):
        return self.server.url

    def content(self, size):
        """A file of so many random bytes."""
        path = self.workdir / f"sent-{size}"
        path.write_bytes(os.urandom(size))
        return path

    def restart(self, *args):
        self.server.stop()
        self.server.args = list(args)
        self.server.start()

    def client(self, **kw):
        return CannerClient(kw.pop("base", self.url), **kw)

    def upload(self, path, **kw):
        """By the driver: (the driver, its receipt)."""
        client = self.client(**kw)
        with open(path, "rb") as content:
            receipt = client.upload(content, "files", path.name)
        client.close()
        return client, receipt

    def head(self, object_id):
        return self.server.request("HEAD", f"/files/{object_id}", headers={"Tus-Resumable": "1.0.0"})

    def create(self, length, checksum="blake3:" + "0" * 64):
        """An upload by plain HTTP: its id."""
        answer = self.server.request("POST", "/files/", headers={
            "Tus-Resumable": "1.0.0", "Upload-Length": str(length), "Upload-Metadata": metadata(checksum)})
        assert answer.status == 201, answer.body
        return answer.headers["location"].rsplit("/", 1)[1]

    def no_receipt(self, object_id, status=409, error="not_accepted"):
        answer = self.server.get(f"/api/v1/receipts/{object_id}")
        assert (answer.status, answer.json["error"]) == (status, error), answer.body

    def arrived(self, object_id, path, name=None, receipt=None):
        """The receipt's facts, the bytes here, and, soon, the bytes there (delivery has a low priority)."""
        sent = self.accepted(object_id, path, receipt)
        until("the file is verified at its destination", lambda: self.delivery(object_id) == "verified", 90)
        assert (self.directory / object_id / (name or path.name)).read_bytes() == sent

    def accepted(self, object_id, path, receipt=None):
        sent = path.read_bytes()
        with open(path, "rb") as content:
            checksum, size = checksum_of(content)
        answer = self.server.get(f"/api/v1/receipts/{object_id}")
        assert answer.status == 200, answer.body
        got = answer.json
        assert receipt is None or got == receipt
        assert abs(got.pop("accepted_at") - time.time()) < 600
        assert got == {"id": f"receipt:{object_id}", "issuer": self.url, "object_id": object_id, "checksum": checksum,
                       "size_bytes": size}
        assert (self.server.data / "uploads" / object_id).read_bytes() == sent
        return sent

    def delivery(self, object_id):
        return (self.server.get(f"/api/v1/artifacts/{object_id}").json["delivery"] or {}).get("state")


@pytest.fixture
def files(make_server, workdir):
    return Files(make_server, workdir)


def until(what, ask, seconds=30):
    end = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < end, f"after {seconds} s, still not: {what}"
        time.sleep(0.02)


def metadata(checksum, **more):
    pairs = {"project": "files", "checksum": checksum, **more}
    return ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in pairs.items())


def steps(client):
    return [f"{method} {status}" for method, status, _ in client.log]


class Relay:
    """Passes connections on to the server; with `lose`, ends the first one on which that begins an answer."""

    def __init__(self, server, lose=None):
        self.server, self.lose = server, lose
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets, self.threads, self.connections = [self.listener], [], 0
        self._run(self._accept)

    def _run(self, *call):
        thread = threading.Thread(target=call[0], args=call[1:])
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection((self.server.host, self.server.port))
            self.sockets += [near, far]
            self._run(self._pump, near, far, False)
            self._run(self._pump, far, near, True)

    def _pump(self, source, to, answers):
        try:
            while data := source.recv(1 << 16):
                if answers and self.lose and data.startswith(self.lose):
                    self.lose = None
                    break
                to.sendall(data)
        except OSError:
            pass
        self._end([source, to])

    @staticmethod
    def _end(sockets):
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended already

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end([self.listener])
        self.threads[0].join(10)
        self._end(self.sockets)
        for thread in self.threads:
            thread.join(10)
        for sock in self.sockets:
            sock.close()


# ---- tuspy: a new connection for every request, names of headers in lower case ----


def tuspy(files, path, base=None, **kw):
    with open(path, "rb") as content:
        checksum, _ = checksum_of(content)
    client = TusClient(f"{base or files.url}/files", headers={"Authorization": "Bearer x"})
    return client.uploader(str(path), metadata={"project": "files", "checksum": checksum, "filename": path.name}, **kw)


def last_receipt(uploader):
    header = uploader.request.response_headers["artifact-receipt"]
    return json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))


def id_of(url):
    return url.rsplit("/", 1)[1]


@pytest.mark.parametrize("chunk_size, requests", [(sys.maxsize, 2), (100_000, 5)], ids=["whole", "chunks"])
def test_tuspy_uploads(files, chunk_size, requests):
    path = files.content(300_001)
    with Relay(files.server) as relay:
        uploader = tuspy(files, path, base=relay.url, chunk_size=chunk_size)
        uploader.upload()
    assert (uploader.offset, relay.connections) == (300_001, requests)
    files.arrived(id_of(uploader.url), path, receipt=last_receipt(uploader))


def test_tuspy_resumes(files, workdir):
    path = files.content(300_000)
    storage = FileStorage(str(workdir / "urls.json"))
    kept = {"store_url": True, "url_storage": storage, "fingerprinter": Fingerprint()}
    first = tuspy(files, path, chunk_size=100_000, **kept)
    first.upload(stop_at=200_000)
    files.no_receipt(id_of(first.url))
    second = tuspy(files, path, chunk_size=70_000, **kept)
    assert (second.url, second.offset) == (first.url, 200_000)
    second.upload()
    storage.close()
    files.arrived(id_of(first.url), path, receipt=last_receipt(second))
    assert tuspy(files, path, url=first.url).offset == 300_000


def test_T25_tuspy_sends_checksums_of_its_requests(files, monkeypatch):
    """sha1 on every PATCH; what does not fit is 460 and does not count."""
    path = files.content(300_000)
    uploader = tuspy(files, path, chunk_size=100_000, upload_checksum=True)
    uploader.upload(stop_at=100_000)
    with monkeypatch.context() as patch:  # as if the line had changed a byte
        patch.setattr(uploader, "_BaseUploader__checksum_algorithm", lambda chunk: hashlib.sha1(chunk + b"x"))
        with pytest.raises(TusUploadFailed) as error:
            uploader.upload_chunk()
    assert error.value.status_code == 460 and b"ERR_UPLOAD_CHECKSUM_MISMATCH: " in error.value.response_content
    assert files.head(id_of(uploader.url)).headers["upload-offset"] == "100000"
    uploader.upload()
    files.arrived(id_of(uploader.url), path, receipt=last_receipt(uploader))


def test_tuspy_sees_refusals(files):
    path = files.content(1000)
    uploader = tuspy(files, path)
    uploader.metadata["project"] = "nowhere"
    with pytest.raises(TusCommunicationError) as error:
        uploader.upload()
    assert error.value.status_code == 400 and b"ERR_INVALID_PROJECT: " in error.value.response_content
    uploader.metadata.update(project="files", checksum="blake3:" + "0" * 64)
    with pytest.raises(TusUploadFailed) as error:
        uploader.upload()
    assert error.value.status_code == 422 and b"ERR_CHECKSUM_MISMATCH: " in error.value.response_content
    with pytest.raises(TusCommunicationError) as error:
        tuspy(files, path, url=uploader.url)
    assert error.value.status_code == 410


# ---- curl ----


class Curl:
    """One run: status, headers of the last answer, body, bytes sent, whether 100 Continue came, curl's exit code."""

    def __init__(self, workdir, url, *args, stdin=subprocess.DEVNULL):
        heads, body = workdir / "curl.heads", workdir / "curl.body"
        body.unlink(missing_ok=True)
        result = subprocess.run(
            ["curl", "-sS", "-m", "60", "-D", heads, "-o", body, "-w", "%{http_code} %{size_upload} %{time_total}",
             "-H", "Tus-Resumable: 1.0.0", *args, url], capture_output=True, text=True, stdin=stdin, timeout=90)
        code, sent, seconds = result.stdout.split()
        self.exit, self.error = result.returncode, result.stderr
        self.status, self.sent, self.seconds = int(code), int(sent), float(seconds)
        blocks = heads.read_text().replace("\r", "").strip().split("\n\n")
        self.continued = blocks[0].startswith("HTTP/1.1 100")
        self.headers = dict(line.lower().split(": ", 1) if ": " in line else (line[:-1].lower(), "")
                            for line in blocks[-1].split("\n")[1:])
        self.body = body.read_text() if body.exists() else ""


@pytest.fixture
def curl(files, workdir):
    def run(target, *args, **kw):
        return Curl(workdir, target if target.startswith("http") else files.url + target, *args, **kw)
    return run


def header(*pairs):
    return [x for pair in pairs for x in ("-H", pair)]


def patch(offset, file, *more):
    return ["-X", "PATCH", *header(f"Content-Type: {TYPE}", f"Upload-Offset: {offset}"), *more, "-T", str(file)]


def make(curl, path):
    with open(path, "rb") as content:
        checksum, size = checksum_of(content)
    answer = curl("/files", "-X", "POST",
                  *header(f"Upload-Length: {size}", f"Upload-Metadata: {metadata(checksum, filename=path.name)}"))
    assert answer.status == 201, answer.body
    return answer.headers["location"]


def test_curl_awaits_100_continue(files, curl):
    path = files.content(3 * MIB)
    target = make(curl, path)
    answer = curl(target, *patch(0, path))
    assert (answer.exit, answer.status, answer.continued) == (0, 204, True)
    assert answer.headers["upload-offset"] == str(3 * MIB) and answer.headers["artifact-receipt"]
    head = curl(target, "-I")
    assert (head.status, head.headers["upload-offset"]) == (200, str(3 * MIB))
    assert head.headers["cache-control"] == "no-store"
    files.arrived(id_of(target), path)


def test_curl_in_two_parts_and_chunked(files, curl, workdir):
    path = files.content(2 * MIB)
    target = make(curl, path)
    half = workdir / "half"
    half.write_bytes(path.read_bytes()[:MIB])
    first = curl(target, *patch(0, half, "-H", "Expect:"))
    assert (first.status, first.headers["upload-offset"], first.continued) == (204, str(MIB), False)
    assert "upload-expires" in first.headers and "artifact-receipt" not in first.headers
    assert curl(target, "-I").headers["upload-offset"] == str(MIB)
    with open(path, "rb") as rest:
        rest.seek(MIB)
        last = curl(target, *patch(MIB, "-"), stdin=rest)
    assert (last.status, last.headers["upload-offset"]) == (204, str(2 * MIB))
    files.arrived(id_of(target), path)


def test_curl_creates_with_the_bytes(files, curl):
    path = files.content(MIB + 1)
    with open(path, "rb") as content:
        checksum, size = checksum_of(content)
    made = ["-X", "POST", *header(f"Upload-Length: {size}", f"Upload-Metadata: {metadata(checksum)}",
                                  f"Content-Type: {TYPE}")]
    answer = curl("/files/", *made, "--data-binary", f"@{path}")
    assert (answer.status, answer.headers["upload-offset"]) == (201, str(size)), answer.body
    object_id = id_of(answer.headers["location"])
    files.arrived(object_id, path, name=object_id)
    with open(path, "rb") as content:
        again = curl("/files/", *made, "-T", "-", stdin=content)
    assert again.status == 201 and id_of(again.headers["location"]) != object_id


EARLY = {
    409: ("ERR_MISMATCHED_OFFSET", header(f"Content-Type: {TYPE}", "Upload-Offset: 7")),
    413: ("ERR_UPLOAD_SIZE_EXCEEDED", header(f"Content-Type: {TYPE}", "Upload-Offset: 0")),
    415: ("ERR_INVALID_CONTENT_TYPE", header("Content-Type: text/plain", "Upload-Offset: 0")),
}


def test_curl_sees_early_refusals_of_50_mb(files, curl, workdir):
    large = workdir / "large"
    large.touch()
    os.truncate(large, 50_000_000)
    object_id = files.create(1000)
    for status, (error, headers) in EARLY.items():
        for expects in (True, False):
            how = [] if expects else ["-H", "Expect:"]
            answer = curl(f"/files/{object_id}", "-X", "PATCH", *headers, *how, "-T", str(large))
            assert (answer.exit, answer.status) == (0, status), (answer.error, answer.headers)
            assert answer.body.startswith(error + ": "), answer.body
            assert answer.headers["tus-resumable"] == "1.0.0"
            assert not answer.continued and (answer.sent == 0 or not expects)
    too_large = header("Upload-Length: 4503599627370496", f"Content-Type: {TYPE}", "Expect:")
    answer = curl("/files", "-X", "POST", *too_large, "-T", str(large))
    assert (answer.exit, answer.status, answer.body.split(":")[0]) == (0, 413, "ERR_MAX_SIZE_EXCEEDED")
    assert files.head(object_id).headers["upload-offset"] == "0"
    files.no_receipt(object_id)


def test_curl_sees_413_in_the_middle_of_a_chunked_body(files, curl, workdir):
    path = files.content(2_000_000)
    target = make(curl, path)
    longer = workdir / "longer"
    longer.write_bytes(path.read_bytes())
    os.truncate(longer, 50_000_000)
    with open(longer, "rb") as content:
        answer = curl(target, *patch(0, "-"), stdin=content)
    assert (answer.exit, answer.status) == (0, 413), (answer.error, answer.headers)
    assert answer.body.startswith("ERR_UPLOAD_SIZE_EXCEEDED: ")
    head = files.head(id_of(target))  # what fits is kept, and it is all there
    assert (head.status, head.headers["upload-offset"]) == (200, "2000000")
    files.arrived(id_of(target), path)


# ---- as Canner's Go client ----


def test_canner_uploads(files):
    path = files.content(300_000)
    client, receipt = files.upload(path)
    assert client.log == [("POST", 201, None), ("HEAD", 200, None), ("PATCH", 204, "0")]
    assert client.waits == []
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_fetches_the_receipt_of_a_complete_upload(files):
    path = files.content(300_000)
    client = files.client()
    with open(path, "rb") as content:
        session = json.loads(json.dumps(client.create(content, "files")))
        receipt = client.resume(session, content)
        assert client.resume(session, content) == receipt
    assert steps(client)[-2:] == ["HEAD 200", "GET 200"]
    files.arrived(receipt["object_id"], path, name=receipt["object_id"], receipt=receipt)


class Hooked(io.FileIO):
    """A file that calls hook() once, when it is read beyond a place while it is sent."""

    armed = None

    def read(self, size=-1):
        if self.armed is not None and self.tell() >= self.armed[0]:
            hook, self.armed = self.armed[1], None
            hook()
        return super().read(size)


def interrupted(files, size, at, hook):
    """Uploads a file; hook() runs when so much of it is sent: (the driver, the receipt, the file)."""
    path = files.content(size)
    client = files.client(sleep=lambda seconds: time.sleep(min(seconds, 0.05)))  # the server is back when it waits
    with Hooked(path, "rb") as content:
        session = client.create(content, "files", path.name)
        content.armed = (at, lambda: hook(session))
        receipt = client.resume_unhashed(session, content)
    client.close()
    return client, receipt, path


def test_canner_outlives_a_restart_in_mid_body(files):
    def hook(_session):
        files.server.stop()
        files.server.start()

    client, receipt, path = interrupted(files, 6_000_000, 3_000_000, hook)
    assert steps(client)[:2] == ["POST 201", "HEAD 200"] and steps(client)[-2:] == ["HEAD 200", "PATCH 204"]
    assert client.log[2] == ("PATCH", 503, "0")
    assert int(client.log[-1][2]) > 0, "what had come before the stop is kept"
    assert client.waits[0] >= 1, "it was told to wait"
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_outlives_a_kill_in_mid_body(files):
    def hook(session):
        def synced():
            return int(files.head(session["object_id"]).headers["upload-offset"])

        until("64 MiB are synced", lambda: synced() >= 64 * MIB, 60)
        files.server.kill()
        files.server.start()

    client, receipt, path = interrupted(files, 75 * MIB, 70 * MIB, hook)
    assert client.log[2] == ("PATCH", "lost", "0")
    assert int(client.log[-1][2]) >= 64 * MIB, "no synced byte is lost"
    files.accepted(receipt["object_id"], path, receipt=receipt)


def test_canner_hole_1_an_acceptance_that_failed(files):
    """The client ends with the 500; its session goes on later, sends what is left, and has the receipt."""
    path = files.content(300_000)
    client = files.client()
    with open(path, "rb") as content:
        session = client.create(content, "files", path.name)
        stone = files.server.data / "receipts" / f".receipt-{session['object_id']}"
        stone.mkdir()  # where the receipt is written
        with pytest.raises(HTTPError) as error:
            client.resume(session, content)
        assert (error.value.status, error.value.body.split(":")[0]) == (500, "ERR_ACCEPT_FAILED")
        assert int(files.head(session["object_id"]).headers["upload-offset"]) < 300_000, "it does not look complete"
        files.no_receipt(session["object_id"])
        stone.rmdir()
        receipt = client.resume(session, content)
    assert steps(client)[-2:] == ["HEAD 200", "PATCH 204"]
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_hole_14_its_bytes_are_gone(files):
    """Delivered, and removed here: a session that was kept finds its receipt and sends nothing."""
    path = files.content(300_000)
    client = files.client()
    with open(path, "rb") as content:
        session = client.create(content, "files", path.name)
        receipt = client.resume(session, content)
        files.arrived(receipt["object_id"], path, receipt=receipt)
        for part in ("", ".info", ".state"):
            (files.server.data / "uploads" / f"{receipt['object_id']}{part}").unlink()
        assert client.resume(session, content) == receipt
        files.restart(*ROOMY)
        assert client.resume(session, content) == receipt
    assert steps(client)[-4:] == ["HEAD 200", "GET 200"] * 2


def test_canner_loses_the_204(files):
    path = files.content(300_000)
    with Relay(files.server, b"HTTP/1.1 204 ") as relay:
        client, receipt = files.upload(path, base=relay.url)
    assert steps(client) == ["POST 201", "HEAD 200", "PATCH lost", "HEAD 200", "GET 200"]
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_loses_the_201(files):
    """Creating twice is ambiguous: it says so at once, and the file may be sent anew."""
    path = files.content(300_000)
    with Relay(files.server, b"HTTP/1.1 201 ") as relay:
        with pytest.raises(TransportError):
            files.upload(path, base=relay.url)
        client, receipt = files.upload(path, base=relay.url)
    assert steps(client) == ["POST 201", "HEAD 200", "PATCH 204"]
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_waits_while_space_is_low(make_server, workdir):
    files = Files(make_server, workdir, *FULL)
    path = files.content(300_000)
    client, receipt = files.upload(path, sleep=lambda _: files.restart(*ROOMY))
    assert steps(client) == ["POST 429", "POST 201", "HEAD 200", "PATCH 204"]
    assert client.waits == [60]
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_resumes_when_space_was_low(files):
    path = files.content(300_000)
    client = files.client(sleep=lambda _: files.restart(*ROOMY))
    with open(path, "rb") as content:
        session = client.create(content, "files", path.name)
        files.restart(*FULL)
        receipt = client.resume(session, content)
    assert steps(client) == ["POST 201", "HEAD 200", "PATCH 429", "HEAD 200", "PATCH 204"]
    assert client.waits == [60]
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_ends_on_another_checksum(files):
    path = files.content(300_000)
    client = files.client()
    with open(path, "rb") as content:
        session = client.create(content, "files", path.name)
    other = io.BytesIO(os.urandom(300_000))  # the file changes behind its hash
    with pytest.raises(HTTPError) as error:
        client.resume_unhashed(session, other)
    assert error.value.status == 422
    stored, _ = checksum_of(io.BytesIO(other.getvalue()))
    for digest in (session["checksum"], stored):
        assert digest.removeprefix("blake3:") in error.value.body
    with pytest.raises(HTTPError) as error:
        client.resume_unhashed(session, other)
    assert (error.value.status, steps(client)[-1]) == (410, "HEAD 410")
    files.no_receipt(session["object_id"], 410, "gone")


def test_canner_ends_on_an_unknown_upload(files):
    client = files.client()
    session = {"upload_url": f"{files.url}/files/{'0' * 32}", "object_id": "0" * 32, "project": "files",
               "checksum": checksum_of(io.BytesIO(b"x"))[0], "size_bytes": 1}
    with pytest.raises(HTTPError) as error:
        client.resume(session, io.BytesIO(b"x"))
    assert (error.value.status, steps(client)) == (404, ["HEAD 404"])
    with pytest.raises(HTTPError) as error:
        client.upload(io.BytesIO(b"x"), "nowhere")
    assert (error.value.status, error.value.body.split(":")[0]) == (400, "ERR_INVALID_PROJECT")


def test_canner_resumes_in_another_process(files, workdir):
    path = files.content(2_000_000)
    kept = workdir / "session.json"

    def hook(session):
        kept.write_text(json.dumps(session))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(files, 2_000_000, 1_000_000, hook)
    session = json.loads(kept.read_text())
    program = pathlib.Path(__file__).with_name("canner_client.py")
    result = subprocess.run([sys.executable, program, "resume", kept, path], capture_output=True, text=True, timeout=90)
    assert result.returncode == 0, result.stderr
    done = json.loads(result.stdout)
    assert done["log"][0][:2] == ["HEAD", 200] and done["log"][-1][:2] == ["PATCH", 204]
    files.arrived(session["object_id"], path, receipt=done["receipt"])


class Occupant:
    """A PATCH that has been let in (100 Continue came) and then sends nothing."""

    def __init__(self, files):
        target = f"/files/{files.create(1000)}"
        self.sock = socket.create_connection((files.server.host, files.server.port), timeout=30)
        self.sock.sendall((f"PATCH {target} HTTP/1.1\r\nHost: {files.server.host}\r\nTus-Resumable: 1.0.0\r\n"
                           f"Upload-Offset: 0\r\nContent-Type: {TYPE}\r\nContent-Length: 1000\r\n"
                           "Expect: 100-continue\r\n\r\n").encode())
        assert self.sock.recv(1000).startswith(b"HTTP/1.1 100 ")

    def leave(self, *_):
        self.sock.close()


def test_canner_waits_while_all_writers_are_busy(make_server, workdir):
    files = Files(make_server, workdir, "--uploads-max", "1", *ROOMY)
    path = files.content(300_000)
    occupant = Occupant(files)
    client, receipt = files.upload(path, sleep=occupant.leave)
    seen = steps(client)
    assert seen[:4] == ["POST 201", "HEAD 200", "PATCH 503", "HEAD 200"] and seen[-1] == "PATCH 204"
    assert client.waits[0] >= 1, "Retry-After came with it"
    files.arrived(receipt["object_id"], path, receipt=receipt)


def test_canner_goes_on_behind_another_writer(files):
    path = files.content(300_000)
    client = files.client()
    with open(path, "rb") as content:
        session = client.create(content, "files", path.name)

    def before(method):
        """Somebody else is faster, once."""
        if method == "PATCH":
            client.before = lambda _: None
            answer = files.server.request(
                "PATCH", f"/files/{session['object_id']}", path.read_bytes()[:1000],
                {"Tus-Resumable": "1.0.0", "Upload-Offset": "0", "Content-Type": TYPE})
            assert (answer.status, answer.headers["upload-offset"]) == (204, "1000")

    client.before = before
    with open(path, "rb") as content:
        receipt = client.resume(session, content)
    assert client.log[1:] == [("HEAD", 200, None), ("PATCH", 409, "0"), ("HEAD", 200, None), ("PATCH", 204, "1000")]
    files.arrived(receipt["object_id"], path, receipt=receipt)
