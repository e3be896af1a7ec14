"""What a start refuses, in which words, and that it leaves the place as it was; and what it mends."""
import fcntl
import json
import pathlib
import re
import signal
import socket

import pytest
from conftest import batch, event, replay_all, tallyman, verify
from ledger import NDJSON

SMALL = ("--generation-bytes", "64KiB")


def refused(server, code=1):
    """Starts; it must end by itself. The last line of its log."""
    server.log_path.unlink(missing_ok=True)
    server.start(wait=False)
    assert server.process.wait(20) == code, server.log
    server.process = None
    return server.log.strip().splitlines()[-1]


def contents(data):
    return {str(p.relative_to(data)): p.read_bytes() for p in sorted(data.rglob("*")) if p.is_file()}


@pytest.fixture
def stopped(make_server):
    """A server that has been stopped cleanly, with three closed generations and a tail."""
    server = make_server(*SMALL)
    for i in range(4):
        assert server.append(batch(f"b{i}", event(i, key="k" * 1000, payload={"x": "y" * 40000}))).status == 200
    assert server.stop() == 0
    return server


@pytest.mark.parametrize("place, words", [
    ("file", "Not a directory"), ("file/below", "Not a directory"), ("missing/below", "No such file or directory"),
    ("/proc/tallyman", "No such file or directory"), ("x" * 256, "make directory")])
def test_a_place_that_cannot_be_a_directory(make_server, workdir, place, words):
    (workdir / "file").write_text("mine")
    server = make_server(name=place, start=False)
    server.log_path = workdir / "log"
    line = refused(server)
    assert words in line and line.startswith("tallyman serve: "), line
    assert (workdir / "file").read_text() == "mine"


def test_a_socket_path_that_is_too_long_is_told_before_anything_is_promised(make_server):
    server = make_server(name="d" * 100, start=False)
    assert "the socket path must have" in refused(server, 2)
    # The engine's socket lies deeper.
    server = make_server("--engine", "on", name="d" * (90 - len(str(server.data.parent))), start=False)
    assert "the engine's socket in it would have a path of more than 107 bytes" in refused(server, 2)


def test_L53_the_lock_is_honoured_whoever_holds_it(stopped):
    before = contents(stopped.data)
    with open(stopped.data / "lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another process uses" in refused(stopped)
        assert contents(stopped.data) == before
    stopped.start()
    assert len(replay_all(stopped)) == 4


def test_a_lock_file_without_a_holder_is_no_lock(stopped):
    assert (stopped.data / "lock").exists()
    stopped.start()
    stopped.kill()
    stopped.start()
    assert stopped.append(batch("again")).status == 200


def manifest(data):
    return data / "journal" / "manifest.jsonl"


def first_pending(data):
    return sorted((data / "journal" / "pending").iterdir())[0]


def without_manifest(data):
    manifest(data).unlink()


def future_format(data):
    manifest(data).write_bytes(manifest(data).read_bytes().replace(b'"schema_version":1', b'"schema_version":2'))


def sealed(data):
    with open(manifest(data), "ab") as file:
        file.write(b'{"min_reader":1,"path":"segments/x.parquet","schema_version":1,"type":"segment"}\n')


def foreign_manifest(data):
    manifest(data).write_bytes(b'{"hello":"world"}\n')


def stray_name(data):
    (data / "journal" / "pending" / "notes.txt").write_text("?")


def without_tail(data):
    (data / "journal" / "tail.ndjson").unlink()


def overlapping(data):
    path = first_pending(data)
    first, last = path.name.removesuffix(".ndjson").split("_")
    (path.parent / f"{first}_{last[:-1]}1.ndjson").write_bytes(path.read_bytes())


@pytest.mark.parametrize("spoil, words", [
    (without_manifest, "manifest.jsonl is missing but there are events"), (future_format, "does not know"),
    (sealed, "a later version"), (foreign_manifest, "not a format record"), (stray_name, "no generation's name"),
    (without_tail, "tail.ndjson is missing"), (overlapping, "overlap")])
def test_L14_what_it_does_not_understand_it_does_not_touch(stopped, spoil, words):
    """Proves: a directory of which more than one history could be read is refused with exit 1 and stays as it is, byte for byte."""
    spoil(stopped.data)
    before = contents(stopped.data)
    assert words in refused(stopped)
    assert contents(stopped.data) == before


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_L25_a_damaged_closed_generation_that_is_read_at_the_start(stopped):
    """Proves: verify finds and names a flipped byte in a closed generation; a start that has to read it (its index is lost) serves what
    is proven before it, takes nothing more, and changes nothing."""
    second = sorted((stopped.data / "journal" / "pending").iterdir())[1]
    flip(second, second.stat().st_size // 2)
    for path in (stopped.data / "index").iterdir():
        path.unlink()
    report = verify(stopped.data)
    assert not report["ok"] and second.name in report["failure"]["file"], report
    assert report["failure"]["code"] == "content_hash_mismatch"
    before = contents(stopped.data / "journal")
    stopped.start()
    assert [e["batch_id"] for e in replay_all(stopped)] == ["b0"]
    ready = stopped.get("/readyz")
    assert ready.status == 503 and "damaged at byte 0" in ready.json["detail"]
    assert stopped.append(batch("more")).status == 503
    stopped.kill()
    assert contents(stopped.data / "journal") == before


def test_L25_damage_that_comes_while_the_server_runs(make_server, workdir):
    """Proves: a byte that rots in a closed generation is told to whoever reads it, ends no other reading, never makes a stored batch
    new, and is in no backup and no segment; what is new is taken."""
    server = make_server(*SMALL)
    events = [{**event(1), "payload": {"fill": "x" * 700}}] * 4
    for n in range(50):
        assert server.append(batch(f"b{n}", *events)).status == 200
    hurt = sorted((server.data / "journal" / "pending").iterdir())[1]
    id_there = json.loads(hurt.read_bytes().split(b"\n")[0])["batch_id"]
    with open(hurt, "r+b") as file:
        file.seek(hurt.read_bytes().index(b"xxxx") + 20)
        file.write(b"y")
    last = json.loads(server.get("/v1/events?limit=1000", headers=NDJSON).body.splitlines()[-1])
    assert (last["type"], last["error"]) == ("error", "internal_error")
    assert len(server.get(f"/v1/events?limit=1000&after={hurt.stem[37:]}").json["events"]) > 0
    followed = server.cli("follow", "--until-caught-up", "--retry", "0", check=1)
    assert "replay_failed; go on with --after" in followed.stderr
    assert len(server.cli("replay", "--last", "5", check=0).stdout.splitlines()) == 5
    for again in (batch(id_there, *events), batch(id_there, event(2))):
        answer = server.append(again)
        assert (answer.status, answer.json["error"]) == (500, "internal_error")
    assert server.metric("tallyman_journal_corrupt_reads_total") >= 4
    assert "generation 1 is damaged" in server.cli("seal", check=1).stderr and hurt.exists()
    backup = tallyman("backup", "--data", str(server.data), str(workdir / "backup"))
    assert backup.returncode == 3 and hurt.name in backup.stderr
    assert verify(server.data)["ok"] is False
    assert server.append(batch("new", event(3))).status == 200 and server.get("/readyz").status == 200


def test_an_uncommitted_last_manifest_record_is_cut(stopped):
    whole = manifest(stopped.data).read_bytes()
    with open(manifest(stopped.data), "ab") as file:
        file.write(b'{"type":"segm')
    stopped.start()
    assert manifest(stopped.data).read_bytes() == whole
    assert len(replay_all(stopped)) == 4


def test_a_first_start_that_was_cut_is_begun_again(make_server):
    """Proves: a directory without a committed manifest and without events is made anew."""
    server = make_server()
    assert server.stop() == 0
    manifest(server.data).write_bytes(manifest(server.data).read_bytes().rstrip(b"\n"))
    server.start()
    assert manifest(server.data).read_bytes().endswith(b"}\n")
    assert server.append(batch("b")).status == 200


def test_a_file_in_the_place_of_the_socket_is_left_alone(stopped):
    path = stopped.data / "tallyman.sock"
    path.write_text("mine")
    line = refused(stopped)
    assert "tallyman.sock" in line
    assert path.read_text() == "mine"


def test_a_socket_that_nobody_answers_is_replaced(stopped):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(stopped.socket_path)
    stopped.start()
    assert len(stopped.get("/v1/events", unix=True).json["events"]) == 4


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1", "127.0.0.1:70000", "127.0.0.1:", ":80", "[::1:80"])
def test_addresses_that_are_none(workdir, listen):
    done = tallyman("serve", "--data", str(workdir / "d"), "--listen", listen, timeout=20)
    assert done.returncode == 2, done.stderr
    assert listen in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_signals_stop_cleanly(make_server, number):
    server = make_server()
    server.append(batch("b"))
    server.process.send_signal(number)
    assert server.process.wait(20) == 0
    server.process = None
    report = verify(server.data)
    assert report["ok"] and report["remnants"] == [] and report["events_checked"] == 1


def test_readonly_checks_touch_nothing(workdir):
    done = tallyman("serve", "--data", str(workdir / "none"), "--check-config", timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert tallyman("serve", "--data", str(workdir / "none"), "--print-config", timeout=20).returncode == 0
    assert tallyman("verify", "--data", str(workdir / "none"), timeout=20).returncode == 1
    assert not (workdir / "none").exists()


def test_the_example_configuration_is_good():
    """And says what spec/artifacts.md wants it to: room for the largest file is left free."""
    example = pathlib.Path(__file__).parents[2] / "examples" / "tallyman.json"
    done = tallyman("serve", "--config", str(example), "--print-config", timeout=20)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\bmin_free_bytes\b.*(100GiB|107374182400)", done.stdout), done.stdout
    assert "https://tally.example" in done.stdout
