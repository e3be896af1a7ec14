"""The holes of the contract's original, each by its number (test_artifact_cases has the table of all of them)."""
import concurrent.futures
import contextlib
import os
import threading

import pytest
from artifact_raw import door, own  # noqa: F401 (fixtures)
from artifact_raw import ALONE, MIB, UNKNOWN, Raw, attached, chunked, head_of, read_all, tree
from artifact_world import BODY, TUS
from conftest import free_port, tallyman


def complete(world, file):
    """As an acceptance leaves it that was cut off behind the last sync of the bytes: all are there, and no receipt."""
    assert world.create(file).status == 201
    (world.data / "uploads" / file.id).write_bytes(file.content)


@pytest.mark.parametrize("way", ["PATCH at the end", "HEAD", "receipt"])
def test_hole_1_an_acceptance_that_was_cut_off_is_finished_by_whoever_asks(door, way):
    """Proves: the receipt comes, once, with the right digest, whoever asks."""
    file = door.new(os.urandom(70000))
    complete(door, file)
    door.no_receipt(file)
    if way == "HEAD":
        assert door.head(file) == file.size
    elif way == "receipt":
        door.receipt_is(file)
    else:
        assert door.append(file, file.size, b"").fits(204).offset == file.size
    assert file.receipt is not None
    door.receipt_is(file)
    assert door.stored(file) == file.content


def test_hole_1_a_start_finishes_what_was_cut_off(own):
    """Proves: a server that was killed behind the last byte (before each step of the acceptance) gives the receipt when it starts again,
    where all bytes were synced without being asked; else the upload goes on from what was told."""
    world = own()
    file = world.new(os.urandom(70000))
    complete(world, file)
    world.server.kill()
    world.server.start()
    world.wait(lambda: (world.data / "receipts" / f"{file.id}.json").exists(), what="the receipt, unasked")
    world.receipt_is(file)
    for call, where in (("rename", "receipts/.receipt-{}"), ("fsync", "receipts")):
        file = world.make(os.urandom(70000), sent=20000)
        with attached(world, f"{call}:signal=KILL:when=1", paths=[world.data / where.format(file.id)], calls="rename,fsync,fdatasync"):
            with pytest.raises((ConnectionError, AssertionError)):
                world.say("PATCH", file.path, {**BODY, "Upload-Offset": 20000}, file.content[20000:])
            assert world.server.process.wait(20) == -9
        world.server.start()
        world.wait(lambda file=file: (world.data / "receipts" / f"{file.id}.json").exists(), what="the receipt, unasked")
        world.receipt_is(file)
        assert world.stored(file) == file.content
    assert world.server.stop() == 0
    world.verify()


def test_hole_2_a_long_finish(door):
    """Proves: while an acceptance takes long HEAD is 200 and tells less than the length, the receipt is 409, and the request that brought
    the last byte gets its 204 and the receipt, however late."""
    file = door.make(os.urandom(70000))
    receipt = door.data / "receipts" / f"{file.id}.json"
    with attached(door, "fsync:delay_exit=8000000:when=1", paths=[door.data / "receipts"], calls="fsync"), \
            concurrent.futures.ThreadPoolExecutor(3) as pool:
        patch = pool.submit(door.say, "PATCH", file.path, {**BODY, "Upload-Offset": 0}, file.content)
        door.wait(receipt.exists, what="the rename")
        head = pool.submit(door.say, "HEAD", file.path, TUS)
        asked = pool.submit(door.say, "GET", f"/api/v1/receipts/{file.id}")
        assert head.result().fits(200).offset < file.size and "artifact-receipt" not in head.result().headers
        assert asked.result().status == 409
        file.hears(patch.result().fits(204))
    assert file.receipt is not None
    door.receipt_is(file)


def test_hole_3_locks_end_with_their_holder(own):
    """Proves: a second server on the same directory ends at once; one that was killed in the middle of a body leaves no lock: the next
    one starts and the upload goes on at once. No file tells who holds an upload."""
    world = own()
    file = world.make(os.urandom(50000), sent=100)
    with world.begin(file, 100, file.size - 100) as sock:
        sock.sendall(file.content[100:20000])
        world.wait(lambda: world.server.metric("tallyman_artifact_uploads_receiving") == 1, what="a writer")
        second = tallyman("serve", "--data", str(world.data), "--listen", f"127.0.0.1:{free_port()}", *ALONE, timeout=30)
        print(second.stderr)
        assert second.returncode == 1 and "another" in second.stderr, second.stderr
        assert not [p for p in os.listdir(world.data / "uploads") if p.endswith((".lock", ".stop"))]
        world.server.kill()
    world.server.start()
    offset = world.head(file)
    assert world.append(file, offset, file.content[offset:]).fits(204).offset == file.size
    world.receipt_is(file)


TORN = {"empty": b"", "half": None, "none of ours": b"{}", "NULs": bytes(600), "no text": b"\xff" * 100, "endless": b" " * (2 * MIB)}


def test_hole_4_torn_descriptions_stop_nothing(own):
    """Proves: beside descriptions that are torn, in whatever way, other uploads go on, are accepted, and expire; the torn ones are 410
    and expire, too."""
    world = own()
    good, late, stale = world.make(os.urandom(1000), sent=100), world.new(os.urandom(1000)), world.make(os.urandom(1000), sent=100)
    complete(world, late)
    torn = []
    for text in TORN.values():
        torn.append(world.make(os.urandom(1000), sent=100))
        info = world.data / "uploads" / f"{torn[-1].id}.info"
        info.write_bytes(text if text is not None else info.read_bytes()[:-40])
    shut = world.make(os.urandom(1000), sent=100)  # a description that cannot even be read
    (world.data / "uploads" / f"{shut.id}.info").unlink()
    (world.data / "uploads" / f"{shut.id}.info").mkdir()
    world.server.kill()
    world.server.start()
    for file in torn:
        world.say("HEAD", file.path, TUS).fits(410)
        world.say("PATCH", file.path, {**BODY, "Upload-Offset": 100}, b"x").fits(410, "gone")
        world.say("GET", f"/api/v1/receipts/{file.id}").fits(410)
    world.finish(good)
    world.receipt_is(late)
    world.server.stop()
    world.server.args = [*ALONE, "--partial-upload-retention-ms", "1000"]
    world.server.start()
    world.wait(lambda: not [p for f in (stale, *torn) for p in os.listdir(world.data / "uploads") if p.startswith(f.id)], 30, "their end")
    world.say("HEAD", stale.path, TUS).fits(404)
    assert world.head(good) == world.head(late) == 1000
    assert world.server.get("/healthz").status == 200


def test_hole_5_hole_22_what_crashes_leave_is_removed_and_no_second_copy_is_made(own):
    """Proves: bytes, states and reasons without a description and all temporary names go at the next start, and nothing else does; a
    package takes some kB, not the file once more."""
    world = own("--min-free-bytes", "1")
    done = world.finish(world.make(os.urandom(3 * MIB)))
    world.wait_verified()
    part = world.make(os.urandom(1000), sent=10)
    stays = set(tree(world.data))
    assert world.server.stop() == 0
    ids = [f"{n:032x}" for n in range(1, 8)]
    uploads, receipts, packages = (world.data / name for name in ("uploads", "receipts", "packages"))
    leavings = [uploads / ids[0], uploads / f"{ids[1]}.state", uploads / f"{ids[2]}.gone", uploads / f".gone-{ids[3]}", uploads / f".state-{ids[4]}",
                receipts / f".receipt-{ids[5]}", packages / f".part-{done.package}.manifest.jsonl", packages / f".part-{'0' * 64}.plan.json"]
    for path in leavings:
        path.write_bytes(b"left" * 1000)
    kept = [uploads / "notes.txt", uploads / f"{ids[6]}.other", receipts / "notes.txt"]
    for path in kept:
        path.write_bytes(b"an operator's")
    world.server.start()
    world.wait(lambda: not any(path.exists() for path in leavings), 30, "the end of what was left")
    assert all(path.read_bytes() == b"an operator's" for path in kept)
    lines = [line for line in world.server.log.splitlines() if "none of ours" in line]  # reported once, not at each round
    assert [("2 names" in line, "1 names" in line) for line in lines] == [(True, False), (False, True)], lines
    assert {p for p in stays if not p.endswith((".sock", "-wal", "-shm"))} <= set(tree(world.data))
    assert sum(p.stat().st_size for p in packages.iterdir()) < 16384
    world.finish(part)
    world.receipt_is(done)
    for path in kept:
        path.unlink()
    world.wait_verified()
    assert world.server.stop() == 0
    world.check_arrived()


def test_hole_14_an_accepted_upload_is_known_by_its_receipt(own):
    """Proves: when the bytes have gone HEAD still is 200 with offset = length and the receipt, PATCH at the end 204, and elsewhere 409
    with the offset: nobody sends it again."""
    world = own()
    file = world.finish(world.make(os.urandom(5000)))
    for gone in (f"{file.id}", f"{file.id}.state", f"{file.id}.info"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(world.data / "uploads" / gone)
        answer = world.say("HEAD", file.path, TUS).fits(200)
        file.hears(answer)
        assert (answer.offset, answer.headers["upload-length"]) == (5000, "5000") and "artifact-receipt" in answer.headers
        assert world.append(file, 5000, b"").fits(204).offset == 5000
        assert world.append(file, 0, file.content).fits(409, "mismatched_offset").offset == 5000
        world.receipt_is(file)
        world.server.kill()
        world.server.start()


@pytest.mark.parametrize("slash", ["", "/"], ids=["plain", "slash"])
@pytest.mark.parametrize("method", ["PATCH", "POST"])
def test_hole_16_every_spelling_of_an_append_counts(door, slash, method):
    """Proves: PATCH and its override, with and without a slash behind, are writers like any other: counted, and alone."""
    file = door.make(os.urandom(3000))
    override = [("X-HTTP-Method-Override", "PATCH")] if method == "POST" else []
    with door.dial() as sock:
        sock.sendall(head_of(method, file.path + slash, [*BODY.items(), ("Upload-Offset", 0), ("Content-Length", 3000), ("Connection", "close"),
                                                         *override]) + file.content[:1000])
        door.wait(lambda: door.server.metric("tallyman_artifact_uploads_receiving") == 1, what="a writer")
        stop = threading.Event()

        def trickle(at=1000):  # never silent for long
            while not stop.wait(0.02) and at < 2900:
                sock.sendall(file.content[at:at + 1])
                at += 1
            sock.sendall(file.content[at:])

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            for other, headers in (("PATCH", []), ("POST", [("X-HTTP-Method-Override", "PATCH")])):
                for tail in ("", "/"):
                    answer = door.say(other, file.path + tail, [*BODY.items(), ("Upload-Offset", 0), *headers], file.content)
                    assert answer.fits(409, "mismatched_offset").offset == 0 and int(answer.headers["retry-after"]) > 0
            assert door.say("HEAD", file.path + "/", TUS).fits(200).offset == 0
            answer = door.say("POST", file.path, [*TUS.items(), ("X-HTTP-Method-Override", "HEAD")]).fits(200)
            assert answer.headers["upload-length"] == "3000"
        finally:
            stop.set()
            thread.join()
        file.hears(Raw(read_all(sock)).fits(204))
    assert file.receipt is not None and door.stored(file) == file.content
    door.wait(lambda: door.server.metric("tallyman_artifact_uploads_receiving") == 0, what="no writer")


def test_hole_17_busy_answers_are_for_pages_too(own):
    """Proves: 429 and 503, for low space, too many writers and the end of the server, have CORS, Retry-After, and our version, not the
    one that was asked with; HEAD is none of theirs."""
    odd = ("Tus-Resumable", "9.9.9")
    world = own(*ALONE, "--uploads-max", "1")
    file, other = world.make(os.urandom(1000)), world.make(os.urandom(1000))
    with world.begin(file, 0, file.size) as sock:
        sock.sendall(file.content[:500])
        world.wait(lambda: world.server.metric("tallyman_artifact_uploads_receiving") == 1, what="a writer")
        answer = world.append(other, 0, other.content).fits(503, "uploads_busy")
        assert int(answer.headers["retry-after"]) >= 1
        answer = world.post([*BODY.items(), *other.creation().items()], other.content).fits(503, "uploads_busy")
        assert int(answer.headers["retry-after"]) >= 1 and "location" not in answer.headers
        assert world.say("HEAD", other.path, TUS).fits(200).offset == 0
        world.server.process.terminate()
        answer = Raw(read_all(sock)).fits(503, "server_shutdown")
        answer.has_what_pages_need()
        assert int(answer.headers["retry-after"]) >= 1 and answer.offset == 500
        file.hears(answer)
    world.server.stop()
    for status in ("429", "503"):
        world.server.args = ["--no-deliver", "--min-free-bytes", "1000000GiB", "--low-space-status", status]
        world.server.start()
        for method, path, headers in (("POST", "/files/", world.creation(10)), ("POST", "/files/", [odd]), ("PATCH", file.path, [odd]),
                                      ("PATCH", file.path, {**BODY, "Upload-Offset": 500}), ("PATCH", f"/files/{UNKNOWN}", TUS),
                                      ("POST", file.path + "/", {**BODY, "X-HTTP-Method-Override": "PATCH"})):
            answer = world.say(method, path, headers).fits(int(status), "low_space")
            assert answer.headers["retry-after"] == "60"
        assert world.say("HEAD", file.path, TUS).fits(200).offset == 500
        assert world.say("GET", f"/api/v1/receipts/{file.id}").status == 409
        world.server.stop()
    world.server.args = [*ALONE]
    world.server.start()
    world.say("PATCH", file.path, [odd]).fits(412, "unsupported_version")
    world.finish(file)
    world.finish(other)


def test_hole_23_one_byte_too_many_is_told_and_the_file_is_accepted(door):
    """Proves: a chunked body that goes on behind the end is 413; what fitted was all of the file, so it is accepted, and the receipt is
    there for whoever asks. The same for a creation."""
    for method in ("PATCH", "POST"):
        file = door.new(os.urandom(100000))
        if method == "PATCH":
            assert door.create(file).status == 201
            request = [*BODY.items(), ("Upload-Offset", 0)]
        else:
            request = [*BODY.items(), *file.creation().items()]
        answer = door.say(method, file.path if method == "PATCH" else "/files/", [*request, ("Transfer-Encoding", "chunked")],
                          chunked(file.content, b"!"), sized=False)
        file.hears(answer.fits(413, "upload_size_exceeded"))
        assert file.id is not None and file.receipt is not None, answer.text
        assert door.head(file) == file.size
        door.receipt_is(file)
        assert door.append(file, file.size, b"").fits(204).offset == file.size
        assert door.stored(file) == file.content
