"""Projects that take files, and what the verbs artifact, receipt, status and verify say of them, on a real server with its deliverer.

One server serves them all; damage is done to copies of its data directory.
"""
import base64
import json
import os
import shutil
import subprocess
import time

import pytest
from conftest import BINARY, Server, tallyman
from world import SANITIZED

ID = "0123456789abcdef0123456789abcdef"


class Door:
    """A server, a project "files" that delivers into a folder, and an artifact that is verified there."""

    def __init__(self, path, *args):
        self.path = path
        self.files = path / "files"
        self.files.mkdir()
        self.server = Server(path / "data", *args, env={"TALLYMAN_ENGINE": "off"})

    def cli(self, verb, *args, want=0, **kw):
        result = tallyman(verb, "--data", str(self.server.data), *args, cwd=self.path, **kw)
        assert result.returncode == want, (verb, args, result.returncode, result.stdout, result.stderr)
        return result.stdout if want == 0 else result.stderr

    def put(self, content, name="report.txt", project="files"):
        file = self.path / name
        file.write_bytes(content)
        result = tallyman("put", str(file), "--project", project, "--data", str(self.server.data),
                          env={**os.environ, "XDG_STATE_HOME": str(self.path / "state")})
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def create(self, size, metadata=None, **headers):
        """An upload that is only begun: its path."""
        metadata = metadata or {"project": "files", "checksum": "blake3:" + "0" * 64, "filename": "part.bin"}
        words = ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in metadata.items())
        answer = self.server.request("POST", "/files/", headers={"Tus-Resumable": "1.0.0", "Upload-Length": str(size),
                                                                 "Upload-Metadata": words, **headers})
        assert answer.status == 201, (answer.status, answer.body)
        return answer.headers["location"]

    def patch(self, location, offset, content):
        return self.server.request("PATCH", location, body=content,
                                   headers={"Tus-Resumable": "1.0.0", "Upload-Offset": str(offset),
                                            "Content-Type": "application/offset+octet-stream"})


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    it = Door(tmp_path_factory.mktemp("door"))
    it.server.start()
    try:
        it.cli("project", "create", "files", "--directory", "files")
        it.receipt = it.put(b"all of it\n" * 1000)
        it.id = it.receipt["object_id"]
        it.cli("artifact", it.id, "--wait", "60")
        yield it
    finally:
        if it.server.process is not None:
            it.server.stop()


def lines(text):
    """The lines of `artifact`, each by its first word; further ones of a fact are joined to it."""
    found, name = {}, None
    for line in text.splitlines():
        name = line[:10].strip() or name
        found[name] = (found.get(name, "") + " " + line[11:]).strip()
    return found


# ---- projects ----

def test_projects(door):
    shown = json.loads(door.cli("project", "show", "files", "--json"))
    assert shown["artifacts"] == {"sink": "directory", "directory": str(door.files), "credentials_file": None, "metadata": {},
                                  "identifier": "{{OBJECT_ID}}", "remote_name": "{{FILENAME}}", "packager": "identity",
                                  "retention": None, "require_checksum": True}, "made absolute by the program"
    assert f"directory: {str(door.files)[:24]}" in door.cli("project", "list"), "it may be cut there"
    assert f"artifacts                           directory: {door.files}\n" in door.cli("project", "show", "files")
    door.cli("project", "create", "plain")
    assert json.loads(door.cli("project", "show", "plain", "--json"))["artifacts"] is None
    assert door.cli("project", "create", "dot", "--directory", "./files").endswith(f"\nartifacts directory: {door.path}/./files\n")
    made = json.loads(door.cli("project", "create", "more", "--sink", "directory", "--directory", str(door.files), "--json"))
    assert made["artifacts"]["directory"] == str(door.files)


@pytest.mark.parametrize("args, code, words", [
    (("create", "x", "--directory", "nowhere"), 1, "No such file or directory; make the directory first"),
    (("create", "x", "--directory", "data/uploads"), 1, "lies in the data directory"),
    (("create", "x", "--sink", "s3", "--directory", "files"), 1, 'artifacts.sink: there are "directory" and "internet_archive"'),
    (("create", "x", "--sink", "directory"), 2, "--sink and the other settings need --directory or --credentials-file"),
    (("create", "x", "--directory="), 2, "--directory: must not be empty"),
    (("list", "--directory", "files"), 2, "settings of its files go with create and set"),
])
def test_projects_that_are_refused(door, args, code, words):
    assert words in door.cli("project", *args, want=code)
    assert "not_found" in door.cli("project", "show", "x", want=1)


# ---- one artifact ----

def test_artifact(door):
    text = lines(door.cli("artifact", door.id))
    assert text["artifact"] == door.id and text["file"] == "report.txt (project files)"
    assert f"10000 bytes, {door.receipt['checksum']}" in text["accepted"] and door.receipt["issuer"] in text["accepted"]
    assert f"directory: {door.id}/report.txt  10000 bytes, md5 " in text["delivered"]
    assert f"{door.id}/report.txt.manifest.jsonl" in text["delivered"]
    assert text["verified"].startswith("20") and text["local"] == "10000 bytes"
    assert (door.files / door.id / "report.txt").read_bytes() == b"all of it\n" * 1000
    told = json.loads(door.cli("artifact", door.id, "--json"))
    assert told["delivery"]["state"] == "verified" and told["release"] is None and told["archive"] is None
    over = tallyman("artifact", door.id, "--json", "--url", door.server.url)
    assert over.returncode == 0 and json.loads(over.stdout) == told, over.stderr


def test_receipt(door):
    assert json.loads(door.cli("receipt", door.id)) == door.receipt
    over = tallyman("receipt", door.id, "--url", door.server.url)
    assert (over.returncode, json.loads(over.stdout)) == (0, door.receipt)
    assert door.cli("receipt", ID, want=1) == f"tallyman receipt: there is no artifact {ID}\n"
    assert "404 not_found" in door.cli("artifact", ID, want=1)
    assert "ID is missing" in door.cli("receipt", want=2)


def test_partial_and_refused(door):
    location = door.create(10)
    id = location.rsplit("/", 1)[1]
    assert door.patch(location, 0, b"12345").status == 204
    text = lines(door.cli("artifact", id))
    assert text["accepted"] == "no" and text["upload"].startswith("5 of 10 bytes, kept until 20") and text["local"] == "5 bytes"
    assert door.cli("receipt", id, want=1) == f"tallyman receipt: {id} is not accepted: its upload is not complete\n"
    begun = time.monotonic()
    assert f"{id} is not verified at its destination" in door.cli("artifact", id, "--wait=1", want=1)
    assert time.monotonic() - begun >= 1
    report = json.loads(door.cli("verify", "--json"))
    assert report["artifacts"]["ok"] and report["artifacts"]["partial_uploads"] == 1
    assert door.patch(location, 5, b"67890").status == 422
    assert f"{id} is gone and will have no receipt: " in door.cli("receipt", id, want=1)
    assert "410 gone" in door.cli("artifact", id, want=1)


def test_status(door):
    text = dict(line.split(maxsplit=1) for line in door.cli("status").splitlines() if len(line.split()) > 1)
    assert text["artifacts.deliver.state"] == "running" and int(text["artifacts.delivery.verified"]) >= 1
    assert text["artifacts.writers"] == "0" and text["artifacts.low_space"] == "false"
    told = json.loads(door.cli("status", "--json"))["artifacts"]
    assert told["delivery"]["artifacts"] >= 1 and told["delivery"]["error"] == "" and told["deliver"]["restarts"] == 0


def test_parked(tmp_path):
    """Another file is where ours should go: parked, and nobody waits for what needs a person. And a server that delivers nothing."""
    door = Door(tmp_path, "--no-deliver")
    door.server.start()
    try:
        door.cli("project", "create", "files", "--directory", "files")
        id = door.put(b"mine\n", name="mine.txt")["object_id"]
        told = json.loads(door.cli("status", "--json"))["artifacts"]
        assert told["deliver"] == {"state": "off", "restarts": 0, "detail": "switched off (deliver = off)"}
        assert lines(door.cli("artifact", id))["delivered"] == "no"
        (door.files / id).mkdir()
        (door.files / id / "mine.txt").write_bytes(b"another's\n")
        door.server.stop()
        door.server.args = []
        door.server.start()
        assert f"{id} is not verified at its destination" in door.cli("artifact", id, "--wait", want=1)
        text = lines(door.cli("artifact", id))
        assert text["delivered"].startswith("parked, attempts 1") and text["verified"] == "no", text
        assert (door.files / id / "mine.txt").read_bytes() == b"another's\n"
        status = tallyman("status", "--json", "--data", str(door.server.data))
        assert status.returncode == 0 and json.loads(status.stdout)["artifacts"]["delivery"]["parked"] == 1
        assert "1 artifacts are parked and wait for a person" in status.stderr
    finally:
        if door.server.process is not None:
            door.server.stop()


# ---- verify ----

@pytest.fixture(scope="module")
def good(door, tmp_path_factory):
    """A copy of the data directory of a server that was stopped in order."""
    door.server.stop()
    path = tmp_path_factory.mktemp("good") / "data"
    shutil.copytree(door.server.data, path, ignore=shutil.ignore_patterns("*.sock"))
    door.server.start()
    return path


@pytest.fixture
def copy(good, tmp_path):
    path = tmp_path / "data"
    shutil.copytree(good, path)
    return path


def report_of(data, code):
    result = tallyman("verify", "--json", "--data", str(data))
    assert result.returncode == code, (result.stdout, result.stderr)
    return json.loads(result.stdout)


def test_verify_beside_and_without_a_server(door, copy):
    beside = json.loads(door.cli("verify", "--json"))
    assert beside["ok"] and beside["artifacts"]["ok"] and beside["artifacts"]["receipts"] >= 1, beside
    text = door.cli("verify")
    assert [line.split(":")[0] for line in text.splitlines()[:3]] == ["journal", "queue", "artifacts"], text
    assert text.endswith("ok (a server is running; what is in flight was left out)\n")
    before = {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in copy.rglob("*")}
    without = report_of(copy, 0)
    assert without["ok"] and without["artifacts"]["packages"] == beside["artifacts"]["packages"]
    assert {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in copy.rglob("*")} == before, "verify changes nothing"


def flip(path, at=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage, words", [
    (lambda d, i: flip(d / "uploads" / i, 5000), "its bytes have the BLAKE3 "),
    (lambda d, i: os.truncate(d / "uploads" / i, 9999), "its file has 9999 bytes, not 10000"),
    (lambda d, i: ((d / "uploads" / i).unlink(), (d / "delivery.sqlite").unlink()), "were never verified at a destination"),
    (lambda d, i: flip(d / "receipts" / f"{i}.json"), "the receipt is no JSON object"),
    (lambda d, i: (d / "uploads" / f"{i}.info").unlink(), "its .info is missing"),
    (lambda d, i: [flip(p) for p in (d / "packages").glob("*.plan.json")], "its plan: it is no plan of this program"),
    (lambda d, i: [p.unlink() for p in (d / "packages").glob("*.manifest.jsonl")], ".manifest.jsonl is missing"),
    (lambda d, i: (d / "delivery.sqlite").write_bytes(b"no database" * 100), "delivery.sqlite: "),
], ids=["flipped", "cut", "lost", "receipt", "info", "plan", "manifest", "database"])
def test_verify_tells(door, copy, damage, words):
    damage(copy, door.id)
    report = report_of(copy, 3)
    assert not report["ok"] and not report["artifacts"]["ok"] and report["queue"]["ok"] and report["failure"] is None
    assert any(words in text for text in report["artifacts"]["violations"]), report["artifacts"]
    result = tallyman("verify", "--data", str(copy))
    assert result.returncode == 3 and "violation: artifacts: " in result.stdout and words in result.stdout
    assert not result.stdout.endswith("ok\n")


def test_verified_bytes_may_go_and_remnants_are_no_violation(door, copy):
    (copy / "uploads" / door.id).unlink()
    (copy / "receipts" / f".receipt-{ID}").write_text("{")
    (copy / "uploads" / f"{ID}.state").write_text("")
    report = report_of(copy, 0)
    assert sorted(report["artifacts"]["remnants"]) == [f"receipts/.receipt-{ID}", f"uploads/{ID}.state"]


def test_verify_reads_in_bounded_memory(door, copy):
    """An artifact of 512 MiB, of zeros, in an address space of half of that."""
    size = 512 << 20
    with open(copy / "uploads" / door.id, "wb") as file:
        file.truncate(size)
    receipt = json.loads((copy / "receipts" / f"{door.id}.json").read_text())
    receipt["size_bytes"] = size
    (copy / "receipts" / f"{door.id}.json").write_text(json.dumps(receipt, separators=(",", ":")))
    limit = "" if SANITIZED else "ulimit -v 262144; "  # KiB; sanitizers take terabytes
    result = subprocess.run(["sh", "-c", limit + 'exec "$@"', "sh", BINARY, "verify", "--json", "--data", str(copy)],
                            capture_output=True, text=True, timeout=120)
    assert result.returncode == 3, result.stderr
    report = json.loads(result.stdout)["artifacts"]
    assert report["bytes"] >= size and any("its bytes have the BLAKE3 " in text for text in report["violations"]), report
