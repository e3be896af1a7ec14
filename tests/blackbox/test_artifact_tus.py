"""Every rule of tus 1.0 by its number in our account of the protocol (C1 to C7, H1 to H5, P1 to P8, O1, N1), what the text leaves
open, and the extensions `checksum` and `termination`, over raw sockets."""
import base64
import hashlib
import os
import re
import socket
import time

import pytest
from artifact_raw import door  # noqa: F401 (a fixture)
from artifact_raw import UNKNOWN, Raw, b64, chunked, head_of, read_all, usual
from artifact_world import BODY, TUS, blake3

TYPE = ("Content-Type", BODY["Content-Type"])
SUMS = {"sha1": hashlib.sha1, "md5": hashlib.md5, "sha256": hashlib.sha256, "blake3": None}


def checksum(algorithm, content):
    digest = bytes.fromhex(blake3(content)) if algorithm == "blake3" else SUMS[algorithm](content).digest()
    return ("Upload-Checksum", f"{algorithm} {base64.b64encode(digest).decode()}")


# ---- the core ----

def rule_C1_the_version_is_on_every_request_and_answer(door):
    file = door.make(os.urandom(10))
    for method, path, headers in (("POST", "/files/", door.creation()[1:]), ("PATCH", file.path, [TYPE, ("Upload-Offset", 0)]),
                                  ("DELETE", file.path, [])):
        door.say(method, path, headers).fits(412, "unsupported_version")
    for method, path in (("HEAD", file.path), ("GET", file.path), ("OPTIONS", file.path)):
        assert door.say(method, path).headers["tus-resumable"] == "1.0.0"  # say looks at all answers
    assert door.head(file) == 0


def rule_C2_another_version_is_412_with_ours_and_does_nothing(door):
    file = door.make(os.urandom(10))
    for version in ("0.2.2", "1.0", "2.0.0", "1.0.0 ", "", "1.0.0, 0.2.2"):
        for method, path, headers in (("POST", "/files/", door.creation()[1:]), ("PATCH", file.path, [TYPE, ("Upload-Offset", 0)]),
                                      ("HEAD", file.path, []), ("GET", file.path, []), ("DELETE", file.path, [])):
            answer = door.say(method, path, [("Tus-Resumable", version), *headers])
            if version == "1.0.0 ":  # blanks around a value are none of it
                assert answer.status in (200, 201, 204)
            else:
                assert answer.fits(412).headers["tus-version"] == "1.0.0"
        if version == "1.0.0 ":
            file = door.make(os.urandom(10))
    assert door.head(file) == 0


def rule_C3_C4_C5_what_is_there_is_told(door):
    answer = door.say("OPTIONS", "/files").fits(204)
    assert answer.headers["tus-version"] == "1.0.0"
    assert answer.headers["tus-extension"].split(",") == ["creation", "creation-with-upload", "expiration", "checksum", "termination"]
    assert answer.headers["tus-checksum-algorithm"].split(",") == list(SUMS)
    assert int(answer.headers["tus-max-size"]) > 0
    door.post(door.creation(int(answer.headers["tus-max-size"]) + 1)).fits(413, "max_size_exceeded")


def rule_C6_a_post_can_be_another_method(door):
    file = door.make(os.urandom(10))

    def post(method, *headers, body=b"", path=file.path):
        return door.say("POST", path, [*TUS.items(), ("X-HTTP-Method-Override", method), *headers], body)

    file.hears(post("PATCH", TYPE, ("Upload-Offset", 0), body=file.content[:4]).fits(204))
    for method in ("HEAD", "GET"):
        assert post(method).fits(200).offset == 4
    for method in ("PUT", "POST", "patch", "", "TRACE"):
        post(method).fits(405, "method_not_allowed")
    post("PATCH", ("X-HTTP-Method-Override", "PATCH"), TYPE, ("Upload-Offset", 4)).fits(400, "invalid_request")
    # Not on any other method: a page may not make a DELETE of what looks like a question.
    for method, headers in (("HEAD", TUS), ("GET", TUS), ("PATCH", {**BODY, "Upload-Offset": 4})):
        door.say(method, file.path, [*headers.items(), ("X-HTTP-Method-Override", "DELETE")])
    assert door.head(file) == 4
    post("DELETE").fits(204)
    door.say("HEAD", file.path, TUS).fits(404)
    door.files.remove(file)


def rule_C7_numbers_are_digits(door):
    for text in ("+5", "-5", "0x5", "5.0", "5e0", "", "5,5", "5 5", "9223372036854775808", "00000000000000000005", "\xb2"):
        door.post(door.creation(text)).fits(400, "invalid_upload_length")
    door.post(door.creation("5 ")).fits(201)


def rule_H1_H2_H4_H5_head_tells_offset_and_length(door):
    file = door.make(os.urandom(10))
    for sent in (0, 3, 10):
        if sent:
            door.append(file, file.told, file.content[file.told:sent]).fits(204)
        answer = door.say("HEAD", file.path, TUS).fits(200)
        assert (answer.headers["upload-offset"], answer.headers["upload-length"]) == (str(sent), "10")
        assert answer.headers["cache-control"] == "no-store"


def rule_H3_what_is_unknown_is_404_without_an_offset(door):
    for path in (f"/files/{UNKNOWN}", f"/files/{UNKNOWN}/", "/files/nothing"):
        assert "upload-offset" not in door.say("HEAD", path, TUS).fits(404).headers


def rule_P1_P4_P8_patches_append(door):
    file = door.make(os.urandom(100))
    for to in (1, 50, 99, 100):
        assert door.append(file, file.told, file.content[file.told:to]).fits(204).offset == to
    assert door.stored(file) == file.content and file.receipt is not None


def rule_P2_another_type_is_415(door):
    file = door.make(os.urandom(10))
    for type in ("application/octet-stream", "text/plain", ""):
        door.say("PATCH", file.path, [*TUS.items(), ("Content-Type", type), ("Upload-Offset", 0)], b"x").fits(415, "invalid_content_type")
    door.say("PATCH", file.path, [*TUS.items(), ("Upload-Offset", 0)], b"x").fits(415, "invalid_content_type")
    assert door.head(file) == 0


def rule_P3_another_offset_is_409_and_changes_nothing(door):
    file = door.make(os.urandom(10), sent=5)
    for offset in (0, 4, 6, 10, 11):
        assert door.append(file, offset, b"xxx").fits(409, "mismatched_offset").offset == 5
    assert door.stored(file) == file.content[:5]


def rule_P5_an_unknown_upload_is_404(door):
    door.say("PATCH", f"/files/{UNKNOWN}", {**BODY, "Upload-Offset": 0}, b"x").fits(404, "upload_not_found")


def rule_P6_P7_what_came_is_kept_when_the_line_breaks(door):
    file = door.make(os.urandom(100))
    with door.begin(file, 0, 100) as sock:
        sock.sendall(file.content[:60])
        sock.shutdown(socket.SHUT_WR)
        answer = Raw(read_all(sock)).fits(400, "upload_interrupted")
    file.hears(answer)
    assert answer.offset == 60 == door.head(file)


def rule_O1_options_need_no_version(door):
    for path in ("/files", "/files/", f"/files/{UNKNOWN}"):
        for version in ([], [("Tus-Resumable", "0.2.2")]):
            answer = door.say("OPTIONS", path, version).fits(204)
            assert answer.headers["tus-version"] == "1.0.0" and answer.body == b""
    for body in (b"x", b"x" * 100000):  # a body changes nothing
        door.say("OPTIONS", "/files", [], body).fits(204)


def rule_N1_http_1_0_and_every_spelling_of_the_url(door):
    file = door.make(os.urandom(10))
    with door.dial() as sock:
        sock.sendall(head_of("PATCH", file.path + "/", [*BODY.items(), ("Upload-Offset", 0), ("Content-Length", 10)], "1.0") + file.content)
        file.hears(Raw(read_all(sock)).fits(204))
    with door.dial() as sock:
        sock.sendall(head_of("HEAD", file.path, TUS, "1.0"))
        assert Raw(read_all(sock)).fits(200).offset == 10


# ---- what the text leaves open ----

def rule_S1_what_stands_twice_is_400(door):
    file = door.make(os.urandom(10))
    for name, value in (("Upload-Offset", 0), ("Content-Type", BODY["Content-Type"]), ("Tus-Resumable", "1.0.0"), checksum("md5", b"x")):
        headers = [*BODY.items(), ("Upload-Offset", 0), (name, value)]
        headers += [(name, value)] if name == "Upload-Checksum" else []
        answer = door.say("PATCH", file.path, headers, b"x").fits(400, "invalid_request")
        assert name.lower().encode() in answer.body
    door.post(door.creation(10, None, ("Upload-Length", 10))).fits(400, "invalid_request")
    assert door.head(file) == 0


def rule_S2_a_patch_of_nothing(door):
    file = door.make(os.urandom(10), sent=4)
    assert door.append(file, 4, b"").fits(204).offset == 4
    with door.dial() as sock:
        sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 4), ("Transfer-Encoding", "chunked"),
                                                  ("Connection", "close")]) + b"0\r\n\r\n")
        assert Raw(read_all(sock)).fits(204).offset == 4


def rule_S3_past_the_end(door):
    file = door.make(os.urandom(10), sent=4)
    assert door.append(file, 4, b"x" * 7).fits(413, "upload_size_exceeded").offset == 4
    assert door.stored(file) == file.content[:4]
    with door.dial() as sock:
        sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 4), ("Transfer-Encoding", "chunked"),
                                                  ("Connection", "close")]) + chunked(file.content[4:] + b"x"))
        answer = Raw(read_all(sock)).fits(413, "upload_size_exceeded")  # what fitted is kept, and that is all of it
    file.hears(answer)
    assert file.receipt is not None and door.stored(file) == file.content


def rule_S4_two_lengths_of_a_body_are_none(door):
    file = door.make(os.urandom(10))
    for more in ([("Content-Length", 4), ("Transfer-Encoding", "chunked")], [("Content-Length", 4), ("Content-Length", 5)],
                 [("Transfer-Encoding", "gzip, chunked")], [("Transfer-Encoding", "identity")]):
        with door.dial() as sock:
            sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 0), *more]) + b"4\r\nabcd\r\n0\r\n\r\n")
            assert Raw(read_all(sock)).status in (400, 501)
    assert door.head(file) == 0


def rule_S5_bodies_where_none_belongs(door):
    file = door.make(os.urandom(10))
    for method in ("HEAD", "GET"):
        assert door.say(method, file.path, TUS, b"x" * 1000).fits(200).headers["connection"] == "close"
    door.say("DELETE", file.path, TUS, b"x" * 1000).fits(204)
    door.say("HEAD", file.path, TUS).fits(404)
    door.files.remove(file)


def rule_S6_a_body_of_a_creation_needs_its_type(door):
    door.post(door.creation(10, None, ("Content-Type", "text/plain")), b"x").fits(415, "invalid_content_type")
    door.post(door.creation(10), b"x").fits(415, "invalid_content_type")
    door.post(door.creation(10, None, TYPE), b"x" * 11).fits(413, "upload_size_exceeded")
    assert door.post(door.creation(10, None, TYPE), b"x" * 4).fits(201).offset == 4


def rule_S7_expiry_is_told(door):
    file = door.make(os.urandom(10), sent=2)
    date = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
    for answer in (door.post(door.creation()), door.append(file, 2, b""), door.say("HEAD", file.path, TUS), door.say("GET", file.path, TUS)):
        assert re.fullmatch(date, answer.headers["upload-expires"])
    assert "upload-expires" not in door.append(file, 2, file.content[2:]).fits(204).headers


def rule_S8_joined_uploads_and_unknown_lengths_are_refused(door):
    door.post(door.creation(10, None, ("Upload-Concat", "partial"))).fits(400, "concatenation_unsupported")
    door.post(door.creation(None, None, ("Upload-Defer-Length", "1"))).fits(400, "invalid_size")
    door.post(door.creation(0)).fits(400, "invalid_size")


RULES = {name: rule for name, rule in list(globals().items()) if name.startswith("rule_")}


@pytest.mark.parametrize("name", RULES)
def test_rule(door, name):
    RULES[name](door)


# ---- checksum ----

@pytest.mark.parametrize("algorithm", SUMS)
def test_T25_a_request_with_a_checksum_counts_as_a_whole(door, algorithm):
    """Proves: what does not fit is 460 and the offset is back at the request's start, in a PATCH as in a creation; what fits counts; the
    receipt comes only behind a fitting last request."""
    file = door.make(os.urandom(300_000))
    door.append(file, 0, file.content[:1000], checksum(algorithm, file.content[:1000])).fits(204)
    for wrong in (file.content[:2000], b""):
        answer = door.append(file, 1000, file.content[1000:3000], checksum(algorithm, wrong)).fits(460, "upload_checksum_mismatch")
        assert answer.offset == 1000 == door.head(file) and algorithm.encode() in answer.body
    answer = door.append(file, 1000, file.content[1000:], checksum(algorithm, file.content)).fits(460, "upload_checksum_mismatch")
    assert answer.offset == 1000 and "artifact-receipt" not in answer.headers
    door.no_receipt(file)
    assert door.stored(file) == file.content[:1000]
    assert door.append(file, 1000, file.content[1000:], checksum(algorithm, file.content[1000:])).fits(204).offset == file.size
    assert door.stored(file) == file.content and file.receipt is not None
    other = door.new(os.urandom(5000))
    headers = [*other.creation().items(), *BODY.items()]
    before = len(list((door.data / "uploads").iterdir()))
    answer = door.post([*headers, checksum(algorithm, b"x")], other.content).fits(460, "upload_checksum_mismatch")
    assert not {"location", "upload-offset", "upload-expires"} & set(answer.headers)  # all of it was there, and nothing is
    assert len(list((door.data / "uploads").iterdir())) == before
    answer = door.post([*headers, checksum(algorithm, b"x")], other.content[:100]).fits(460, "upload_checksum_mismatch")
    other.hears(answer)
    assert answer.offset == 0 == door.head(other)
    door.append(other, 0, other.content, checksum(algorithm, other.content)).fits(204)
    assert other.receipt is not None


REFUSED = ["crc32 AAAAAA==", "sha512 " + b64(bytes(64)), "SHA1 " + b64(bytes(20)), "sha1", "sha1 ", "", "sha1 x", "sha1 " + b64(bytes(19)),
           "sha1 " + b64(bytes(21)), "sha1 " + b64(bytes(20))[:-1], "md5 " + b64(bytes(20)), "sha1  " + b64(bytes(20)),
           "sha1 " + bytes(20).hex(), "blake3 " + bytes(32).hex()]


def test_T25_malformed_checksums(door):
    """Proves: an algorithm that is not served, and what is no digest of it, is 400 and stores nothing; so is one that is announced for the
    trailer, since it would not be looked at."""
    file = door.make(os.urandom(10))
    for value in REFUSED:
        door.append(file, 0, file.content, ("Upload-Checksum", value)).fits(400, "invalid_upload_checksum")
    door.post(door.creation(10, None, TYPE, ("Upload-Checksum", "crc32 AAAAAA==")), bytes(10)).fits(400, "invalid_upload_checksum")
    with door.dial() as sock:
        sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 0), ("Transfer-Encoding", "chunked"),
                                                  ("Trailer", "Upload-Checksum"), ("Connection", "close")])
                     + chunked(file.content).removesuffix(b"\r\n") + "{}: {}\r\n\r\n".format(*checksum("sha1", file.content)).encode())
        Raw(read_all(sock)).fits(400, "invalid_upload_checksum")
    assert "checksum-trailer" not in door.say("OPTIONS", "/files").headers["tus-extension"]
    assert door.head(file) == 0


def test_T25_an_aborted_request_with_a_checksum(door):
    """Proves: cut at half, taken over, or one byte too long, nothing of it counts, and the next request begins where it began."""
    file = door.make(os.urandom(200_000), sent=1000)
    rest = file.content[1000:]
    fits = checksum("sha1", rest)
    for way in ("half", "all but one", "silent", "too long"):
        more = [("Transfer-Encoding", "chunked")] if way == "too long" else [("Content-Length", len(rest))]
        with door.dial() as sock:
            sock.sendall(head_of("PATCH", file.path, [*BODY.items(), ("Upload-Offset", 1000), fits, *more, ("Connection", "close")]))
            if way == "too long":
                sock.sendall(chunked(rest, b"x"))
                answer = Raw(read_all(sock)).fits(413, "upload_size_exceeded")
            else:
                sock.sendall(rest[:len(rest) // 2] if way != "all but one" else rest[:-1])
                if way == "silent":
                    begun = time.monotonic()
                    door.wait(lambda begun=begun: door.head(file) == 1000 and time.monotonic() - begun > 1.2, 20, "a second of silence")
                else:
                    sock.shutdown(socket.SHUT_WR)
                answer = Raw(read_all(sock)).fits(400, "upload_interrupted")
        assert answer.offset == 1000
        assert door.head(file) == 1000 and door.stored(file) == file.content[:1000]
    door.append(file, 1000, rest, fits).fits(204)
    assert door.stored(file) == file.content
    door.receipt_is(file)


# ---- the whole file's ----

def test_a_project_that_requires_no_checksum(door):
    """Proves: there an upload needs none, and its receipt has ours, whether it came whole, in parts, or over a restart; one that is declared
    counts as everywhere."""
    door.server.cli("project", "create", "loose", "--sink", "directory", "--directory", str(door.place), "--no-require-checksum", check=0)
    loose = f"project {b64('loose')}"
    for parts in (1, 3):
        file = door.new(os.urandom(300_000))
        answer = door.post([*TUS.items(), ("Upload-Length", file.size), ("Upload-Metadata", loose)]).fits(201)
        file.hears(answer)
        for n in range(parts):
            at, to = file.size * n // parts, file.size * (n + 1) // parts
            door.append(file, at, file.content[at:to]).fits(204)
        door.receipt_is(file)  # hears() compares its checksum with the file's
        assert file.receipt is not None
    file = door.new(os.urandom(1000))
    file.hears(door.post([*BODY.items(), ("Upload-Length", file.size), ("Upload-Metadata", loose)], file.content).fits(201))
    assert file.receipt is not None
    other = door.new(os.urandom(1000))
    wrong = f"{loose},checksum {b64('blake3:' + '0' * 64)}"
    door.post([*BODY.items(), ("Upload-Length", other.size), ("Upload-Metadata", wrong)], other.content).fits(422, "checksum_mismatch")
    door.post([*TUS.items(), ("Upload-Length", 10), ("Upload-Metadata", f"{loose},checksum {b64('md5:x')}")]).fits(400, "invalid_checksum")
    door.post(door.creation(10, usual().split(",")[0])).fits(400, "invalid_checksum")  # of a project that requires it
    door.files.remove(other)


# ---- termination ----

def test_termination(door):
    """Proves: DELETE needs the id and the version, nothing else; what is accepted stays; what is gone is 404 ever after."""
    file = door.make(os.urandom(100_000), sent=50_000)
    door.say("DELETE", file.path).fits(412, "unsupported_version")
    assert door.head(file) == 50_000
    answer = door.say("DELETE", file.path, TUS).fits(204)
    assert answer.body == b"" and not {"upload-offset", "location"} & set(answer.headers)
    for method, headers in (("HEAD", TUS), ("GET", TUS), ("PATCH", {**BODY, "Upload-Offset": 50_000}), ("DELETE", TUS)):
        door.say(method, file.path, headers).fits(404)
    assert not list((door.data / "uploads").glob(f"*{file.id}*"))
    door.files.remove(file)
    door.say("DELETE", f"/files/{UNKNOWN}", TUS).fits(404, "upload_not_found")
    door.say("DELETE", "/files/", TUS).fits(405)
    done = door.finish(door.make(os.urandom(10)))
    door.say("DELETE", done.path, TUS).fits(403, "upload_accepted")
    door.receipt_is(done)
    assert door.stored(done) == done.content


@pytest.mark.parametrize("way", ["closed", "reset", "alive", "alive and silent"])
def test_termination_of_an_upload_that_is_being_written(door, way):
    """Proves: as tus-js-client's abort(true) does it, the PATCH closed in the middle and DELETE at once on another connection: 204, and
    nothing is left; a writer that is still there hears that the upload is gone."""
    for _ in range(5):
        file = door.make(os.urandom(3_000_000))
        before = door.received()
        with door.begin(file, 0, file.size) as sock:
            sock.sendall(file.content[:2_000_000])
            if way == "alive and silent":
                door.wait(lambda before=before: door.received() > before, what="a byte at the server")
            if way == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if way in ("closed", "reset"):
                sock.close()
            door.say("DELETE", file.path, TUS).fits(204)
            if way.startswith("alive"):
                answer = Raw(read_all(sock)).fits(404, "upload_not_found")
                assert not {"upload-offset", "upload-expires"} & set(answer.headers)
        door.say("HEAD", file.path, TUS).fits(404)
        door.wait(lambda file=file: not list((door.data / "uploads").glob(f"*{file.id}*")), 20, "the end of its files")
        door.files.remove(file)


def test_T37_an_acceptance_happens_once(door):
    """Proves: however often its end is asked for, an upload has one receipt, and one acceptance is counted."""
    before = door.server.metric("tallyman_artifact_accepted_total")
    files = [door.finish(door.make(os.urandom(1000 + n))) for n in range(20)]
    for file in files:
        for _ in range(3):
            file.hears(door.append(file, file.size, b"").fits(204))
            file.hears(door.say("HEAD", file.path, TUS).fits(200))
        door.receipt_is(file)
    assert door.server.metric("tallyman_artifact_accepted_total") == before + len(files)


def test_a_question_is_no_upload(door):
    """Proves: usual() of another project, a missing checksum and the like make nothing (order of checks: unit tests)."""
    before = len(list((door.data / "uploads").iterdir()))
    door.post(door.creation(10, usual().split(",")[0])).fits(400, "invalid_checksum")
    door.post(door.creation(10, usual().split(",")[1])).fits(400, "invalid_project")
    assert len(list((door.data / "uploads").iterdir())) == before
