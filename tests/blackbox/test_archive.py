"""Artifacts to the Internet Archive, from the upload to what its metadata says: the server, `tallyman deliver` and the fake.

Cases and holes carry their numbers (test_artifact_cases and test_artifact_holes have those of the receiving side). One server and
one fake serve all tests but those that need settings or a death of their own; each test has its own project and account.
"""
import base64
import contextlib
import hashlib
import itertools
import json
import os
import random
import threading
import time

import pytest
from archive_items import COLLECTION, OWNER, REASONS, Showing
from archive_world import FLAGS, ArchiveWorld, env_of
from artifact_world import any_size, content_of
from capture_world import is_alive, wait_gone
from conftest import Server
from fake_archive import Fault, FakeArchive, bad_gateway, cut, lost_answer, slow_down
from test_artifact_kill import end
from test_merged_packages import check_payload, warc_files
from world import SANITIZED

MIB = 1 << 20
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
ROUNDS = int(os.environ.get("ROUNDS") or (6 if os.environ.get("QUICK") or SANITIZED else 15))
names = (f"p{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def all_far(tmp_path_factory):
    path = tmp_path_factory.mktemp("far")
    with FakeArchive() as archive:
        server = Server(path / "data", *FLAGS, env=env_of(archive)).start()
        world = ArchiveWorld(server, path, archive)
        try:
            yield world
            assert server.stop() == 0
            world.check_archive()
        finally:
            if server.process is not None:
                server.kill()
                print(server.log[-8000:])


@pytest.fixture
def far(all_far):
    """The shared world, its Archive as if nothing had been asked of it."""
    all_far.archive.faults.clear()
    all_far.archive.showing = Showing()
    first = len(all_far.files)
    yield all_far
    all_far.archive.no_violations()
    for file in all_far.files[first:]:
        if file.id is not None and all_far.delivery(file).get("state") == "retry_wait":
            all_far.retry(file)  # whatever it holds up is not the next test's


@pytest.fixture
def own(make_server, workdir):
    """own(**settings): a world of the test's own."""
    with contextlib.ExitStack() as stack:
        def make(**env):
            archive = stack.enter_context(FakeArchive())
            return ArchiveWorld(make_server(*FLAGS, env=env_of(archive, **env)), workdir, archive)
        yield make


# ---- the whole way ----

META = {
    "title": ["naïve 日本 𝄞 {{FILENAME}}"],
    "subject": ["first", "the second", "第三"] + [f"number {n}" for n in range(4, 12)],
    "description": ["a % sign, %41, a+b; <b>&amp;</b> \"quoted\" back\\slash"],
    "creator": ["uri(looks%20encoded)"],
    "original_name": ["with_under_scores"],
    "date": ["{{DATE}}"],
    "source": ["{{PROJECT}}/{{OBJECT_ID}}"],
    "mediatype": ["web"],
    "collection": ["test_collection"],
}


def test_an_artifact_becomes_an_item(far):
    """Proves: limits and the item are looked at first; the manifest goes first and makes the item; both carry their digests and wait for
    the Archive's leave; the last one asks for the derive; metadata arrives as it was written, field by field; it is verified."""
    project = far.project(next(names), metadata=META)
    file = far.accept(project, os.urandom(3 * MIB + 17), "a film (1999).bin")
    delivery = far.wait_state(file, "verified")
    manifest, payload = far.is_there(file)
    accepted_at = json.loads(file.receipt)["accepted_at"]
    values = {"{{FILENAME}}": file.remote, "{{DATE}}": time.strftime("%Y%m%d%H%M%S", time.gmtime(accepted_at)),
              "{{PROJECT}}": project.name, "{{OBJECT_ID}}": file.id}
    meant = {}
    for key, texts in META.items():
        for name, value in values.items():
            texts = [text.replace(name, value) for text in texts]
        meant[key] = texts[0] if len(texts) == 1 else texts
    assert far.archive.items[file.item].sent_metadata == meant
    assert far.puts(file, None) == ["manifest", "payload"]
    kinds = [r.kind for r in far.asked(file)]
    assert kinds.index("LIMIT") < kinds.index("PUT") and kinds.index("METADATA") < kinds.index("PUT") and kinds[-1] == "METADATA"
    first, last = (r for r in far.archive.puts() if r.item == file.item)
    for request, stored in ((first, manifest), (last, payload)):
        assert request.continued and request.get("expect") == "100-continue"
        digest = bytes.fromhex(stored.md5)
        assert request.get("content-md5") in (digest.hex(), base64.b64encode(digest).decode())
        assert request.get("x-archive-auto-make-bucket") == "1" and int(request.get("content-length")) == stored.size
        assert request.get("user-agent").lower().startswith("tallyman")
    assert (manifest.derive, payload.derive) == (False, True) and far.archive.items[file.item].derived == [file.remote]
    assert manifest.size_hint == manifest.size + payload.size
    assert (delivery["identifier"], delivery["sink"]) == (file.item, "internet_archive")
    assert delivery["verified_at"] >= delivery["sent_at"]
    told = {f["name"]: (f["size"], f["md5"]) for f in delivery["files"]}
    assert told == {f.key: (f.size, f.md5) for f in (manifest, payload)}
    assert file.name in manifest.data.decode()


def test_many_files_become_one_item(far):
    name = next(names)
    project = far.project(name, identifier=f"{name}-{{{{PACKAGE_ID_SHORT}}}}", packager="mergewarc", package_target=1 << 20,
                          package_trigger=1 << 20, package_max_wait="1s")
    files = []
    for content, plain, records in warc_files(random.Random(SEED), far.workdir, 5):
        file = far.accept(project, content, "a.warc.zst")
        file.plain, file.records = plain, records
        files.append(file)
    for file in files:
        far.wait_state(file, "verified")
    stored = {place: there.data for place, there in far.archive.stored().items() if place[0].startswith(f"{name}-")}
    payloads = [place for place in stored if place[1].endswith(".warc.zst")]
    assert len(stored) == 2 * len(payloads)
    members = [check_payload(far, stored[item, key], stored[item, f"{key}.manifest.jsonl"], files) for item, key in payloads]
    assert sorted(sum(members, [])) == sorted(file.id for file in files)


@pytest.mark.parametrize("size", [1, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 17 * MIB])
def test_T35_every_size_is_one_put(far, size):
    """Proves: there is no multipart upload, so none that is told 200 before its item exists, or of an error in its 200."""
    file = far.accept(far.project(next(names)), random.Random(size).randbytes(size))
    far.wait_state(file, "verified")
    far.is_there(file)
    assert far.puts(file, None) == ["manifest", "payload"]
    assert far.archive.of_kind("INITIATE", "PART", "COMPLETE") == []


def test_what_is_there_is_not_sent_again(far):
    """Proves: a payload that is there as it is here is skipped, and the derive is asked for with the manifest, which goes last then."""
    file = far.made(far.project(next(names)))
    far.archive.item(file.item, file.project.account.user, [(file.remote, file.content)])
    far.finish(file)
    far.wait_state(file, "verified")
    far.is_there(file)
    assert far.puts(file, None) == ["manifest"]
    assert [key for key in far.archive.items[file.item].derived] == [f"{file.remote}.manifest.jsonl"]


def test_what_is_there_with_other_bytes_is_not_replaced(far):
    """Proves: a file of our name with other content parks the delivery, and stays as it is."""
    file = far.made(far.project(next(names)))
    far.archive.item(file.item, file.project.account.user, [(file.remote, b"somebody's")])
    far.finish(file)
    delivery = far.wait_state(file, "parked")
    assert file.remote in delivery["error"] and delivery["way_out"]
    assert far.puts(file, None) == [] and far.archive.stored()[file.item, file.remote].data == b"somebody's"


@pytest.mark.parametrize("hops", [1, 3])
def test_redirects_are_followed_with_keys_and_body(far, hops):
    far.archive.redirect = hops
    try:
        file = far.accept(far.project(next(names)), os.urandom(MIB))
        far.wait_state(file, "verified")
    finally:
        far.archive.redirect = 0
    far.is_there(file)
    statuses = [r.status for r in far.archive.puts(None) if r.item == file.item]
    assert statuses == ([307] * hops + [200]) * 2
    assert all(r.body_bytes == 0 for r in far.archive.puts((307,)))


def test_a_redirect_to_somebody_else_gets_neither_keys_nor_body(far):
    with FakeArchive() as elsewhere:
        project = far.project(next(names))
        file = far.made(project)
        away = f"{elsewhere.s3.replace('127.0.0.1', 'localhost.example')}/{file.item}/x"
        far.archive.faults.append(Fault(status=307, headers=[("Location", away)], item=file.item, read=0))
        far.finish(file)
        delivery = far.wait_state(file, "retry_wait", "parked")
        assert "localhost.example" in delivery["error"], delivery
        assert elsewhere.requests == []
        far.retry(file)
        far.wait_state(file, "verified")


# ---- T26: 503 ----

@pytest.mark.parametrize("reason, scope", [("account", "keys"), ("bucket", "item"), ("bucket_limit", "item"), ("global", "all"),
                                           ("unknown", "all")])
def test_T26_rations_hold_what_they_should_and_nothing_else(far, reason, scope):
    """Proves: after a 503 for a ration nothing that it concerns is sent, what it does not concern goes on, and its words are shown."""
    shared = {"identifier": f"shared-{next(names)}", "remote_name": "{{OBJECT_ID}}-{{FILENAME}}"}
    project = far.project(next(names), **shared)
    neighbour = far.project(next(names), like=project)  # the same keys, other items
    stranger = far.project(next(names))
    far.archive.faults.append(slow_down(reason, item=shared["identifier"]))
    held = far.accept(project)
    delivery = far.wait_state(held, "retry_wait")
    assert REASONS[reason] in delivery["error"], delivery
    before = len(far.archive.requests)
    waits = [far.accept(project)] + [far.accept(p) for p in (neighbour, stranger)]
    goes_on = {"keys": waits[2:], "item": waits[1:], "all": []}[scope]
    for file in goes_on:
        far.wait_state(file, "verified")
    for file in waits:
        far.wait(lambda file=file: far.delivery(file).get("state"), what="a delivery")
        if file not in goes_on:
            assert far.delivery(file)["state"] == "pending", far.delivery(file)
            assert [r for r in far.archive.requests[before:] if r.kind == "PUT" and (r.item, r.key) in file.keys] == []
    far.retry(held)
    for file in [held, *waits]:
        far.wait_state(file, "verified")
        far.is_there(file)


def test_T26_a_ration_is_asked_for_before_anything_is_sent(far):
    project = far.project(next(names))
    project.account.others = project.account.ration
    file = far.accept(project)
    delivery = far.wait_state(file, "retry_wait")
    project.account.others = 0
    assert REASONS["account"] in delivery["error"], delivery
    assert far.puts(file, None) == []
    far.retry(file)
    far.wait_state(file, "verified")


@pytest.mark.parametrize("fault", [Fault("LIMIT", status=500, body="<html>oops"), Fault("LIMIT", status=200, body="<html>not JSON"),
                                   Fault("LIMIT", status=200, body="{}"), Fault("LIMIT", lost=True, end="reset")],
                         ids=["500", "not JSON", "no members", "reset"])
def test_T26_a_check_that_fails_is_neither_leave_nor_overload(far, fault):
    file = far.made(far.project(next(names)))
    fault.item = file.item
    far.archive.faults.append(fault)
    far.finish(file)
    delivery = far.wait_state(file, "retry_wait")
    assert far.puts(file, None) == [] and fault not in far.archive.faults
    assert not any(words in delivery["error"] for words in ("request rate", "overload", "exceeds", "busy", "SlowDown")), delivery
    far.retry(file)
    far.wait_state(file, "verified")


def test_T26_spam_is_parked_with_its_text(far):
    """Proves: what is taken for spam is not retried, its whole text is shown with whom to ask, and everything else goes on."""
    project = far.project(next(names))
    file = far.made(project)
    far.archive.spam.add(file.item)
    far.finish(file)
    delivery = far.wait_state(file, "parked")
    assert REASONS["spam"].format(item=file.item, user=project.account.user) in delivery["error"], delivery
    assert "info@archive.org" in delivery["way_out"], delivery
    for _ in range(3):
        far.wait_state(far.accept(project), "verified")
    assert far.puts(file, None) == ["manifest"] and far.delivery(file)["state"] == "parked"
    far.archive.spam.clear()
    far.retry(file)
    far.wait_state(file, "verified")


# ---- T28, T31: names ----

@pytest.mark.parametrize("identifier", ["abc:{{OBJECT_ID}}", ".{{OBJECT_ID}}", "-{{OBJECT_ID}}", "_{{OBJECT_ID}}", "a b{{OBJECT_ID}}",
                                        "é{{OBJECT_ID}}", "test/../{{OBJECT_ID}}", "{{OBJECT_ID}}\n", "a" * 70 + "{{OBJECT_ID}}",
                                        "{{PROJECT}}{{PACKAGE_ID}}" + "a" * 36, "fixed-item"])
def test_T28_identifiers_are_judged_when_they_are_set(far, identifier):
    """Proves: what the Archive would refuse, or what would put every file in one place, is refused before anything is uploaded."""
    answer = far.create_project(next(names), None, far.workdir / "none.keys", identifier=identifier)
    assert answer.status == 400 and answer.json["error"] == "invalid_project", answer.body
    assert "identifier" in answer.json["message"] or "remote_name" in answer.json["message"], answer.body


def test_T28_an_identifier_that_is_refused_there_is_shown_with_the_rule(far):
    project = far.project(next(names))
    file = far.made(project)
    words = f"Bucket {file.item}: special permission is needed"
    far.archive.faults.append(Fault(code="InvalidBucketName", resource=words, item=file.item, read=0))
    far.finish(file)
    delivery = far.wait_state(file, "parked")
    assert words in delivery["error"] and delivery["way_out"] and delivery["identifier"] == file.item
    assert far.puts(file, None) == ["manifest"]


NAMES = ["słońce & ünï.mp4", "a%20b", "a+b", "a#b?c", "..", "a//b", "_meta.xml", "x_files.xml", "n" * 230, "e\u0301.bin", "\u00e9.bin",
         "__ia_thumb.jpg", "history", ".hidden", "-dash", "con: name; x"]


def test_T31_every_name_of_a_file_arrives_under_one_that_is_allowed(far):
    """Proves: no declared name is a reason to refuse, none gives a name that the Archive keeps for itself, and the original is in the
    manifest."""
    project = far.project(next(names))
    files = [far.accept(project, name=name) for name in NAMES]
    for file in files:
        delivery = far.wait_state(file, "verified")
        payload, manifest = sorted((f["name"] for f in delivery["files"]), key=len)
        assert manifest == f"{payload}.manifest.jsonl"
        assert 1 <= len(payload) <= 120 and set(payload) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
        stored = far.archive.stored()
        assert stored[file.item, payload].data == file.content
        if "/" not in file.name and file.name != ".." and len(file.name) < 200:
            assert json.dumps(file.name, ensure_ascii=False)[1:-1] in stored[file.item, manifest].data.decode(), file.name


# ---- T29: what may be found out late ----

@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_T29_a_collection_without_rights_is_found_out_by_the_manifest(far, late):
    """Proves: the small file is told it, before or after its body; no byte of the payload is sent, nor a second file of the project."""
    project = far.project(next(names), metadata={"collection": ["not-ours"]})
    far.archive.late_collections = late
    file = far.accept(project, os.urandom(MIB))
    delivery = far.wait_state(file, "parked")
    assert COLLECTION in delivery["error"], delivery
    assert far.puts(file, None) == ["manifest"] and file.item not in far.archive.items
    other = far.accept(far.project(next(names)))
    far.wait_state(other, "verified")


def test_T29_an_item_of_somebody_else_is_left_alone(far):
    """Proves: the owner's refusal parks this delivery, and names the item; other items of the project go on."""
    project = far.project(next(names))
    file = far.made(project, os.urandom(MIB))
    far.archive.item(file.item, "them@example.org", [("theirs", b"theirs")])
    far.finish(file)
    delivery = far.wait_state(file, "parked")
    assert OWNER in delivery["error"] and file.item in delivery["error"] and "them@example.org" in delivery["error"], delivery
    assert "payload" not in far.puts(file, None)
    assert set(far.archive.items[file.item].files) == {"theirs"}
    far.wait_state(far.accept(project), "verified")


@pytest.mark.parametrize("trouble", ["wrong secret", "unknown", "locked", "no file", "three lines"])
def test_T29_wrong_keys_pause_all_that_is_sent_with_them(far, trouble):
    """Proves: one small request finds it out, everything with these keys waits, what has others goes on; mended, all goes on."""
    project = far.project(next(names))
    account, good = project.account, project.keys.read_text()
    change = {"wrong secret": lambda: project.keys.write_text(f"{account.access}\nWRONG\n"),
              "unknown": lambda: project.keys.write_text(f"NOBODY\n{account.secret}\n"),
              "locked": lambda: setattr(account, "problem", "the account is locked"),
              "no file": project.keys.unlink, "three lines": lambda: project.keys.write_text(good + "more\n")}
    change[trouble]()
    file = far.accept(project, os.urandom(MIB))
    delivery = far.wait_state(file, "retry_wait")
    assert account.secret not in json.dumps(delivery) and "WRONG" not in json.dumps(delivery)
    again = [far.accept(project), far.accept(far.project(next(names), like=project))]
    far.wait_state(far.accept(far.project(next(names))), "verified")
    assert [far.puts(f, None) for f in again] == [[], []] and "payload" not in far.puts(file, None)
    project.keys.touch(mode=0o600)
    project.keys.write_text(good)
    account.problem = ""
    far.retry(file)
    for each in [file, *again]:
        far.wait_state(each, "verified")
        far.is_there(each)


def test_T29_a_refusal_in_words_that_nobody_knows_ends(far):
    """Proves: it holds its project, not what else goes with the same keys; at the third time it is parked with the words, the project
    goes on, and whoever asks for it has it sent."""
    project = far.project(next(names))
    file = far.made(project)
    far.archive.faults.append(Fault(code="AccessDenied", resource="the stars are not right", item=file.item, read=0, times=3))
    far.finish(file)
    for _ in range(2):
        delivery = far.wait_state(file, "retry_wait")
        assert "the stars are not right" in delivery["error"], delivery
        far.wait_state(far.accept(far.project(next(names), like=project)), "verified")
        puts = len(far.puts(file, None))
        far.retry(file)
        far.wait(lambda puts=puts: len(far.puts(file, None)) > puts, what="the next try")
    delivery = far.wait_state(file, "parked")
    assert "the stars are not right" in delivery["error"] and delivery["way_out"], delivery
    assert far.rows("SELECT 1 FROM holds WHERE scope = 'credentials' AND key = ?", str(project.keys)) == []
    far.wait_state(far.accept(project), "verified")
    far.retry(file)
    far.wait_state(file, "verified")


def test_an_item_that_cannot_be_looked_at_holds_itself_and_several_hold_all(far):
    """Proves: a 500 to the look at one item is of this item, at the third item in a row it is of the Archive; 429 is at once."""
    files = [far.made(far.project(next(names))) for _ in range(4)]
    for file in files[:3]:
        far.archive.faults.append(Fault("METADATA", status=500, body="<html>oops", item=file.item))
    for n, file in enumerate(files[:2]):
        far.finish(file)
        far.wait_state(file, "retry_wait")
        far.wait(lambda n=n: len(far.holds(*files)) > n, what="a hold")
        assert [scope for scope, _ in far.holds(*files)] == ["item"] * (n + 1)
    far.wait_state(far.accept(far.project(next(names))), "verified")  # and that is the end of the row
    for file in files[:2]:
        far.archive.faults.append(Fault("METADATA", status=500, body="<html>oops", item=file.item))
        looks = far.looks(file)
        far.retry(file)
        far.wait(lambda file=file, looks=looks: far.looks(file) > looks, what="the next try")
        far.wait_state(file, "retry_wait")
    far.finish(files[2])
    assert "500" in far.wait_state(files[2], "retry_wait")["error"]
    far.wait(lambda: len(far.holds(*files)) == 3, what="the third hold")
    (_, text), = [hold for hold in far.holds(*files) if hold[0] == "far_end"]
    assert "500" in text
    far.finish(files[3])
    far.wait(lambda: far.delivery(files[3]).get("state"), what="a delivery")
    assert far.delivery(files[3])["state"] == "pending" and far.asked(files[3]) == []
    for file in files[:3]:
        far.retry(file)
    for file in files:
        far.wait_state(file, "verified")
    last = far.made(far.project(next(names)))
    far.archive.faults.append(Fault("METADATA", status=429, item=last.item))
    far.finish(last)
    far.wait_state(last, "retry_wait")
    far.wait(lambda: any(scope == "far_end" and "429" in text for scope, text in far.holds()), what="the hold")
    far.retry(last)
    far.wait_state(last, "verified")


# ---- T32: visible late ----

def test_T32_hole_10_what_is_accepted_and_not_visible_is_waited_for_and_holds_no_slot(far):
    """Proves: a 200 is `sent`, no more: the bytes stay here whatever the retention, nothing is sent again however often it is looked at,
    and more such files than there are slots keep nothing else waiting."""
    project = far.project(next(names), retention="1s")
    far.archive.showing = Showing(never=True)
    unseen = [far.accept(project) for _ in range(4)]
    for file in unseen:
        far.wait_state(file, "sent")
    far.archive.showing = Showing()
    seen = far.accept(far.project(next(names)))
    far.wait_state(seen, "verified")
    for file in unseen:
        looks = far.looks(file)
        far.wait(lambda: far.looks(file) >= looks + 2, what="further looks")
        delivery = far.delivery(file)
        assert delivery["state"] == "sent" and not delivery.get("verified_at"), delivery
        assert (far.data / "uploads" / file.id).read_bytes() == file.content
        assert far.puts(file, None) == ["manifest", "payload"]
    for staged in [f for file in unseen for f in far.archive.items[file.item].staged]:
        staged.showing = Showing()
    for file in unseen:
        far.wait_state(file, "verified")
        assert far.puts(file, None) == ["manifest", "payload"]


@pytest.mark.parametrize("showing", [Showing(looks=4), Showing(looks=1, wrong_looks=3)], ids=["late", "first with a wrong size"])
def test_T32_it_is_verified_when_it_shows_as_it_is(far, showing):
    far.archive.showing = showing
    file = far.accept(far.project(next(names)), os.urandom(MIB))
    far.wait_state(file, "verified")
    far.is_there(file)
    assert far.puts(file, None) == ["manifest", "payload"]
    assert far.looks(file) >= 5


def test_T32_looks_that_fail_send_nothing_again(far):
    """Proves: of a file that was sent, an answer that is no look is neither a refusal nor a reason to send it again."""
    project = far.project(next(names))
    files = [far.made(project) for _ in range(3)]
    faults = [bad_gateway(on="METADATA", skip=1), Fault("METADATA", status=200, body="<", skip=1), Fault("METADATA", lost=True, skip=1)]
    for file, fault in zip(files, faults):
        fault.item = file.item
        far.archive.faults.append(fault)
        far.finish(file)
    for file in files:
        far.wait_state(file, "verified")
        assert far.puts(file, None) == ["manifest", "payload"]
    assert far.archive.faults == []


# ---- T34: broken pipes and lost answers ----

def lost_by_reset(**more):
    return lost_answer(end="reset", **more)


def refused(code, **how):
    """A fault that is made later."""
    return lambda **more: Fault(code=code, **how, **more)


@pytest.mark.parametrize("which, fault, sent, showing", [
    ("manifest", lost_answer, 1, Showing()),
    ("payload", lost_answer, 1, Showing()),
    ("payload", lost_by_reset, 1, Showing()),
    ("manifest", lost_by_reset, 1, Showing(looks=3)),
    ("payload", lost_by_reset, 1, Showing(looks=2, wrong_looks=2)),
    ("manifest", refused("InternalError", store=True), 1, Showing()),
    ("payload", refused("InternalError", store=True), 1, Showing()),
    ("manifest", refused("RequestTimeout"), 2, Showing()),
    ("payload", refused("IncompleteBody"), 2, Showing()),
    ("payload", refused("BadDigest"), 2, Showing()),
    ("payload", refused("NoSuchBucket", read=0), 2, Showing()),
    ("manifest", refused("OperationAborted"), 2, Showing()),
], ids=["lost manifest", "lost", "lost with a reset", "lost manifest, and shown late", "lost, and shown late and wrong",
        "500 of what was stored, manifest", "500 of what was stored", "RequestTimeout", "IncompleteBody", "BadDigest", "NoSuchBucket",
        "OperationAborted"])
def test_T34_what_became_of_it_is_looked_at_before_it_is_sent_again(far, which, fault, sent, showing):
    """Proves: what was stored is not sent again although its answer was lost, what was not is; the derive is asked for in the end."""
    far.archive.showing = showing
    file = far.made(far.project(next(names)), os.urandom(300000), "some.bin")
    far.archive.faults.append(fault(item=file.item, key="*.jsonl" if which == "manifest" else "*.bin"))
    far.finish(file)
    far.sees_through(file)
    far.is_there(file)
    assert far.puts(file, None).count(which) == sent, far.asked(file)
    assert far.archive.items[file.item].derived == [file.remote]


@pytest.mark.parametrize("fault, state", [
    (lambda **more: Fault(code="InvalidArgument", resource="the words", read=MIB, end="reset", **more), "parked"),
    (lambda **more: Fault(code="InternalError", resource="the words", read=MIB, end="drop", **more), "verified"),
    (lambda **more: Fault(code="AccountProblem", resource="the words", read=MIB, end="reset", **more), "retry_wait"),
], ids=["parked", "again", "keys"])
def test_T34_a_broken_pipe_is_judged_by_the_answer_that_came_before_it(far, fault, state):
    """Proves: the refusal of a body that could not be sent to its end is read, and decides."""
    project = far.project(next(names))
    file = far.made(project, os.urandom(24 * MIB), "some.bin")
    far.archive.faults.append(fault(item=file.item, key="some.bin"))
    far.finish(file)
    delivery = far.wait_state(file, state)
    if state != "verified":
        assert "the words" in delivery["error"], delivery
        far.retry(file)
        far.wait_state(file, "verified")
    assert far.puts(file, None) == ["manifest", "payload", "payload"]


@pytest.mark.parametrize("status", [502, 503])
def test_T34_an_archive_that_is_not_well_is_waited_for(far, status):
    project = far.project(next(names))
    file = far.made(project)
    far.archive.faults.append(Fault(status=status, body="<html>not well</html>", read=0, item=file.item))
    far.finish(file)
    assert str(status) in far.wait_state(file, "retry_wait")["error"]
    far.retry(file)
    far.wait_state(file, "verified")


def test_T34_every_silence_and_every_cut_ends(own):
    """Proves: a 100-continue that comes late or never, a silence behind the last byte, one within the body, and connections that end
    without a word end by the settings; what was stored is not sent again, what was not is; none holds up the others."""
    far = own(TALLYMAN_ARCHIVE_ANSWER_MS="1500", TALLYMAN_ARCHIVE_STALL_MS="3000", TALLYMAN_DELIVERY_CONCURRENCY="8")
    project = far.project("silent")
    once, twice = ["manifest", "payload"], ["manifest", "payload", "payload"]
    cases = {"never": (Fault(never=True), 300000, once), "late": (Fault(late=2.5), 300000, once),
             "silent": (Fault(delay=threading.Event()), 300000, once), "stalled": (Fault(stall=MIB), 32 * MIB, twice),
             "cut": (cut(1000), 300000, twice), "cut late": (cut(None), 300000, twice), "cut large": (cut(MIB), 32 * MIB, twice)}
    files = []
    for name, (fault, size, _) in cases.items():
        file = far.made(project, random.Random(name).randbytes(size), f"{name}.bin")
        fault.item, fault.key = file.item, file.remote
        far.archive.faults.append(fault)
        files.append(file)
    for file in files:
        far.finish(file)
    for file in files:
        far.sees_through(file)
        far.is_there(file)
        assert far.puts(file, None) == cases[file.name.removesuffix(".bin")][2], far.asked(file)
    assert far.archive.faults == []
    assert far.server.stop() == 0
    far.check_archive()


# ---- holes ----

def test_hole_9_what_the_archive_has_is_compared(far):
    """Proves: a file that shows with another size and digest is not `verified`, however often it is looked at, and its bytes stay."""
    far.archive.showing = Showing(wrong_looks=1 << 30)
    file = far.accept(far.project(next(names), retention="1s"))
    far.wait_state(file, "sent", "parked")
    far.wait(lambda: far.looks(file) >= 4 or far.delivery(file)["state"] == "parked", what="further looks")
    assert far.delivery(file)["state"] in ("sent", "parked")
    assert (far.data / "uploads" / file.id).read_bytes() == file.content
    for staged in far.archive.items[file.item].staged:
        staged.showing = Showing()


def test_hole_9_an_etag_that_is_not_ours_is_not_sent(far):
    """Proves: a 200 with the digest of other bytes is not taken for ours."""
    project = far.project(next(names))
    file = far.made(project, name="some.bin")
    tag = hashlib.md5(b"others").hexdigest()
    far.archive.faults.append(Fault(item=file.item, key="some.bin", status=200, headers=[("ETag", f'"{tag}"')]))
    far.finish(file)
    delivery = far.wait_state(file, "retry_wait", "parked")
    assert tag in delivery["error"], delivery
    far.retry(file)
    far.wait_state(file, "verified")


def test_hole_9_bytes_that_changed_here_are_not_delivered(far):
    """Proves: what was damaged between the receipt and the sending is found out, alarmed about, and never becomes an item's file."""
    project = far.project(next(names))
    project.account.others = project.account.ration
    file = far.accept(project, os.urandom(300000))
    far.wait_state(file, "retry_wait")
    path = far.data / "uploads" / file.id
    with open(path, "r+b") as damaged:
        damaged.seek(150000)
        byte = damaged.read(1)
        damaged.seek(150000)
        damaged.write(bytes([byte[0] ^ 1]))
    project.account.others = 0
    far.retry(file)
    delivery = far.wait_state(file, "parked")
    assert delivery["error"] and delivery["way_out"]
    assert (file.item, file.remote) not in far.archive.stored()
    far.files.remove(file)  # the oracle would look for its bytes


def test_hole_11_hole_12_the_upload_is_the_only_copy_and_stays_until_it_is_verified(own):
    """Proves: sealing neither removes nor links nor copies the upload; it is there while it is sent, when the deliverer is killed in the
    middle, and as long as it does not show."""
    far = own(TALLYMAN_ARCHIVE_ANSWER_MS="20000")
    project = far.project("only", retention="1s")
    far.archive.showing = Showing(never=True)
    go = threading.Event()
    file = far.made(project, os.urandom(2 * MIB), "some.bin")
    far.archive.faults.append(Fault(item=file.item, key="some.bin", delay=go))
    far.finish(file)
    path = far.data / "uploads" / file.id

    def only_copy():
        assert path.read_bytes() == file.content and path.stat().st_nlink == 1
        others = [p for folder in ("uploads", "packages", "receipts") for p in (far.data / folder).rglob("*") if p != path]
        assert [p for p in others if p.stat().st_size > 10000] == [], "a second copy"

    far.wait(lambda: (file.item, "some.bin") in far.archive.stored(), what="the bytes at the Archive")
    assert far.delivery(file)["state"] == "sending"
    only_copy()
    pid = far.wait_deliver()
    end(pid)
    wait_gone(pid)
    only_copy()
    far.archive.items[file.item].staged[-1].showing = Showing()  # it shows now, the manifest does not
    go.set()
    looks = far.looks(file)
    far.wait(lambda: far.looks(file) >= looks + 2, what="further looks")
    only_copy()
    for staged in far.archive.items[file.item].staged:
        staged.showing = Showing()
    far.wait_state(file, "verified")
    assert far.server.stop() == 0
    far.check_archive()


# ---- kill -9 ----

@pytest.mark.parametrize("which", ["manifest", "payload"])
def test_a_kill_between_the_last_byte_and_its_answer_sends_nothing_twice(own, which):
    """Proves: what was taken by the Archive when the deliverer was killed, and does not show yet, is looked for by the next one until it
    shows; each name is put once."""
    far = own(TALLYMAN_ARCHIVE_ANSWER_MS="60000")
    far.archive.showing = Showing(never=True)
    go = threading.Event()
    file = far.made(far.project("lost"), os.urandom(300000), "some.bin")
    key = dict(zip(("manifest", "payload"), (key for _, key in file.keys)))[which]
    far.archive.faults.append(Fault(item=file.item, key=key, delay=go))
    far.finish(file)
    far.wait(lambda: (file.item, key) in far.archive.stored(), what="the bytes at the Archive")
    pid = far.wait_deliver()
    end(pid)
    wait_gone(pid)
    go.set()
    looks = far.looks(file)
    far.wait(lambda: far.looks(file) >= looks + 2, what="further looks")
    assert "may have brought" in far.wait_state(file, "retry_wait")["error"]
    far.archive.showing = Showing()
    for staged in far.archive.items[file.item].staged:
        staged.showing = Showing()
    if which == "payload":
        far.wait_state(file, "verified")
        far.is_there(file)
    else:  # whether the payload had begun nobody knows: it is waited for as well
        looks = far.looks(file)
        far.wait(lambda: far.looks(file) >= looks + 2, what="further looks")
    assert far.puts(file, None) == (["manifest", "payload"] if which == "payload" else ["manifest"])
    assert far.server.stop() == 0
    far.archive.no_violations()



def kill_round(world, rng, project, victim):
    for _ in range(rng.randint(1, 4)):
        world.accept(project, content_of(rng, any_size(rng)))
    deliver = world.wait(world.deliver_pid, what="a delivery process")
    time.sleep(rng.uniform(0, 0.25))
    if victim != "server" and is_alive(deliver):
        end(deliver)
    if victim != "deliver":
        world.server.kill()
        wait_gone(deliver)
        world.server.start()


def test_kill_of_server_and_deliverer_delivers_nothing_twice(own, capsys):
    """Proves: whatever is killed while files go out, none comes under two names, none is replaced, all are verified in the end."""
    rng = random.Random(SEED)
    # Long enough that all show before anything is sent again, whoever is killed meanwhile.
    world = own(TALLYMAN_DELIVERY_CONCURRENCY="4", TALLYMAN_ARCHIVE_ANSWER_MS="8000")
    world.archive.showing = lambda item, key: Showing(looks=rng.choice((0, 0, 0, 1, 3)))
    project = world.project("killed")
    # A deliverer that was killed is started again after a second, and by a new server at once.
    victims = ("server", "both", "both", "server", "deliver")
    begun = time.monotonic()
    try:
        for n in range(ROUNDS):
            kill_round(world, rng, project, victims[n % 5])
            if rng.random() < 0.4:
                world.archive.faults.append(rng.choice((lost_answer(), cut(1000), cut(None), Fault(code="InternalError"))))
        for file in world.files:
            world.wait_state(file, "verified", timeout=120)
            world.is_there(file)
        assert world.server.stop() == 0
        world.check_archive("two at once")  # the fake may notice a death late
        assert {place for file in world.files for place in file.keys} == set(world.archive.stored())
    except BaseException:
        print(f"SEED={SEED}")
        raise
    again = len([kind for kind, _ in world.archive.violations if kind.startswith("sent again")])
    with capsys.disabled():
        print(f"\narchive kill: SEED={SEED} rounds={ROUNDS} files={len(world.files)} PUTs={len(world.archive.puts(None))} "
              f"sent_again={again} {time.monotonic() - begun:.0f} s")
