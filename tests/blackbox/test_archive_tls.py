"""The Internet Archive over TLS, from inside the delivery process's sandbox: names are resolved, the authority of CURL_CA_BUNDLE is
read, the keys go to nobody whose certificate does not hold. Behind the TLS is the fake Archive (fake_archive.py)."""
import base64
import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest
from artifact_world import BODY, TUS, blake3
from fake_archive import FakeArchive

ACCESS, SECRET = "TheAccessKey", "TheSecretOfIt"


def wait(condition, what, timeout=60):
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.02)
    return value


def certificate(folder, name):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert], check=True,
                   capture_output=True)
    return cert, key


def pump(source, to):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
    with contextlib.suppress(OSError):
        to.shutdown(socket.SHUT_WR)


class Tls:
    """A port that takes the TLS away; counts connections whose handshake was done."""

    def __init__(self, url, cert, key):
        host, port = url.removeprefix("http://").rsplit(":", 1)
        self.to, self.done = (host, int(port)), 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://localhost:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.serve, args=(self.listener.accept()[0],), daemon=True).start()

    def serve(self, raw):
        with contextlib.suppress(OSError), self.context.wrap_socket(raw, server_side=True) as near:
            self.done += 1
            with socket.create_connection(self.to) as far:
                back = threading.Thread(target=pump, args=(far, near), daemon=True)
                back.start()
                pump(near, far)
                back.join(60)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def archive():
    with FakeArchive() as fake:
        fake.account(ACCESS, SECRET, name="us@example.org")
        yield fake


def deliver_one(server, workdir, content):
    """The object id of an accepted file of a project that delivers to the Archive."""
    keys = workdir / "keys"
    keys.touch(mode=0o600)
    keys.write_text(f"{ACCESS}\n{SECRET}\n")
    settings = {"sink": "internet_archive", "credentials_file": str(keys), "identifier": "tls-{{OBJECT_ID}}"}
    made = server.request("POST", "/api/v1/projects", json.dumps({"id": "films", "artifacts": settings}),
                          {"Content-Type": "application/json"}, unix=True)
    assert made.status == 201, made.body
    fields = {"project": "films", "filename": "a.bin", "checksum": f"blake3:{blake3(content)}"}
    metadata = ",".join(f"{n} {base64.b64encode(v.encode()).decode()}" for n, v in fields.items())
    made = server.request("POST", "/files/", headers={**TUS, "Upload-Length": str(len(content)), "Upload-Metadata": metadata})
    assert made.status == 201, made.body
    path = made.headers["location"].removeprefix("https://films.example.org")
    assert server.request("PATCH", path, content, {**BODY, "Upload-Offset": "0"}).status == 204
    return path.rsplit("/", 1)[1]


def delivery(server, object_id):
    return server.get(f"/api/v1/artifacts/{object_id}", unix=True).json.get("delivery") or {}


def start(make_server, s3, front, bundle):
    return make_server("--min-free-bytes", "1", env={"TALLYMAN_ENGINE": "off", "TALLYMAN_DELIVERY_BACKOFF_MS": "100", "TALLYMAN_ARCHIVE_S3_URL": s3,
                            "TALLYMAN_ARCHIVE_METADATA_URL": front, "TALLYMAN_ARCHIVE_ANSWER_MS": "20000",
                            "TALLYMAN_PUBLIC_URL": "https://films.example.org", "CURL_CA_BUNDLE": str(bundle)})


def test_delivered_over_tls(make_server, workdir, archive):
    cert, key = certificate(workdir, "right")
    s3, front = Tls(archive.s3, cert, key), Tls(archive.front, cert, key)
    server = start(make_server, s3.url, front.url, cert)
    content = os.urandom(3 * 2**20 + 1)
    object_id = deliver_one(server, workdir, content)
    wait(lambda: delivery(server, object_id).get("state") == "verified", "its verification")
    assert archive.stored()[f"tls-{object_id}", "a.bin"].data == content
    assert "info deliver: sandbox: " in server.log
    agents = {r.get("user-agent") for r in archive.requests}
    assert len(agents) == 1 and agents.pop().endswith(" (+https://films.example.org)")
    assert SECRET not in server.log and ACCESS not in server.log
    assert server.stop() == 0
    s3.close()
    front.close()


def test_a_certificate_that_does_not_hold_gets_nothing(make_server, workdir, archive):
    """Proves: no request, and so no key, reaches a far side that somebody else signed for."""
    cert, key = certificate(workdir, "wrong")
    bundle, _ = certificate(workdir, "right")
    s3 = Tls(archive.s3, cert, key)
    server = start(make_server, s3.url, archive.front, bundle)
    object_id = deliver_one(server, workdir, b"content")
    wait(lambda: delivery(server, object_id).get("state") == "retry_wait", "its failure")
    assert "certificate" in delivery(server, object_id)["error"]
    assert archive.requests == []
    assert server.stop() == 0
    s3.close()
