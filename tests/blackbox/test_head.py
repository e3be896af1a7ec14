"""Signed heads: what /v1/head says and proves, `tallyman head`, `verify --head`, and examples/verify.py, which a stranger runs
over a copied journal. SEED gives the random test its numbers back."""
import ast
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import stat
import subprocess
import sys

import pytest
from conftest import ROOT, batch, event, tallyman, verify
from tracer import parse, wrapper

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
SCRIPT = ROOT / "examples" / "verify.py"
GENESIS = hashlib.sha256(b"groundhog/genesis/v1").hexdigest()
MEMBERS = ["chain_head", "frontier_event_count", "frontier_event_id", "key_id", "public_key", "signature", "signed_at", "type", "v"]
SMALL = ("--generation-bytes", "64KiB")


def head_of(server):
    answer = server.get("/v1/head")
    assert answer.status == 200, answer.body
    return answer.json


def signed_text(head):
    return json.dumps({n: v for n, v in head.items() if n != "signature"}, sort_keys=True, separators=(",", ":")).encode()


def openssl_agrees(head, pem, tmp):
    """As the protocol tells a stranger to check it."""
    (tmp / "key.pem").write_text(pem)
    (tmp / "text").write_bytes(signed_text(head))
    (tmp / "signature").write_bytes(bytes.fromhex(head["signature"]))
    return subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", tmp / "key.pem", "-rawin", "-in", tmp / "text",
                           "-sigfile", tmp / "signature"], capture_output=True).returncode == 0


def fill(server, batches=3, prefix="b", size=0):
    """Appends; the receipts."""
    receipts = []
    for n in range(batches):
        answer = server.append(batch(f"{prefix}{n}", *[{**event(i), "payload": {"n": i, "fill": "x" * size}} for i in range(1 + n % 3)]))
        assert answer.status == 200, answer.body
        receipts.append(answer.body.decode())
    return receipts


# ---- the answer ----

def test_a_head_follows_the_journal(server, workdir):
    empty = head_of(server)
    assert [empty["frontier_event_id"], empty["frontier_event_count"], empty["chain_head"]] == [None, 0, GENESIS]
    fill(server)
    answer = server.get("/v1/head")
    head = answer.json
    page = server.get("/v1/events?limit=1").json["snapshot"]
    assert {n: head[n] for n in page} == page
    assert list(head) == MEMBERS and (head["type"], head["v"]) == ("tallyman/head", 1)
    assert answer.body == json.dumps(head, separators=(",", ":")).encode(), "it is in canonical form already"
    assert head["key_id"] == hashlib.sha256(bytes.fromhex(head["public_key"])).hexdigest() == empty["key_id"]
    pem = server.cli("head", "--public-key", check=0).stdout
    assert openssl_agrees(head, pem, workdir) and openssl_agrees(empty, pem, workdir)
    assert not openssl_agrees({**head, "frontier_event_count": head["frontier_event_count"] + 1}, pem, workdir)


def test_the_answer_in_http(make_server, workdir):
    (workdir / "token").write_text("secret")
    server = make_server("--token-file", str(workdir / "token"))
    token = {"Authorization": "Bearer secret"}
    assert server.get("/v1/head").status == 401
    got = server.request("GET", "/v1/head", headers=token)
    only_head = server.request("HEAD", "/v1/head", headers=token)
    assert only_head.status == 200 and only_head.body == b""
    assert only_head.headers["content-length"] == str(len(got.body)) and got.headers["content-type"] == "application/json"
    assert server.get("/v1/head", unix=True).status == 200
    assert server.request("POST", "/v1/head", b"{}", token).status == 405
    bad = server.request("GET", "/v1/head?limit=1", headers=token)
    assert (bad.status, bad.json["error"]) == (400, "invalid_request")


def test_an_answered_append_is_in_the_head(server):
    for n in range(20):
        receipt = server.append(batch(f"b{n}")).json
        head = head_of(server)
        assert head["frontier_event_id"] == receipt["last_event_id"] and head["frontier_event_count"] == n + 1


def test_the_verb(server, workdir):
    fill(server)
    text = server.cli("head", check=0).stdout
    head = json.loads(server.cli("head", "--json", check=0).stdout)
    assert head["chain_head"] in text and head["key_id"] in text and head["frontier_event_id"] in text
    assert re.search(r"^events +6$", text, re.M)
    server.stop()
    gone = server.cli("head", "--retry", "0")
    assert gone.returncode == 1 and gone.stdout == ""


# ---- the key ----

def test_the_key_stays(make_server, workdir):
    server = make_server()
    key = server.data / "head.key"
    before, id = key.read_bytes(), head_of(server)["key_id"]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and b"PRIVATE KEY" in before
    fill(server)
    server.stop()
    server.start()
    assert head_of(server)["key_id"] == id and key.read_bytes() == before
    assert "made anew" not in server.log and before.decode().split("\n")[1] not in server.log
    server.stop()
    key.unlink()
    server.start()
    assert head_of(server)["key_id"] != id and "heads that were signed before cannot be checked against it" in server.log


def open_to_others(key):
    key.chmod(0o640)


def a_link(key):
    key.rename(key.with_name("elsewhere.key"))
    key.symlink_to("elsewhere.key")


def another_kind(key):
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key], check=True,
                   capture_output=True)
    key.chmod(0o600)


def nonsense(key):
    key.write_text("no key")


@pytest.mark.parametrize("spoil, says", [(open_to_others, "open to others"), (a_link, "symbolic link"),
                                         (another_kind, "no Ed25519 key"), (nonsense, "no Ed25519 key")])
def test_a_key_that_must_not_be_used(make_server, spoil, says):
    """Nothing is signed, everything else goes on, and the file stays."""
    server = make_server()
    server.stop()
    key = server.data / "head.key"
    spoil(key)
    before = key.read_bytes()
    server.start()
    answer = server.get("/v1/head")
    assert (answer.status, answer.json["error"]) == (500, "internal_error") and "head.key" not in answer.body.decode()
    assert says in server.log and "heads are not signed" in server.log
    assert server.append(batch("b")).status == 200 and server.get("/readyz").status == 200
    refused = server.cli("head", "--retry", "0")
    assert refused.returncode == 1 and "log says why" in refused.stderr
    server.stop()
    assert key.read_bytes() == before


def test_the_key_is_durable_before_it_is_used(make_server, workdir):
    """Its bytes are synced before its name is given, and the name before anybody can connect."""
    trace = workdir / "trace"
    server = make_server(wrapper=wrapper(trace, calls="openat,pwrite64,fsync,rename,listen"))
    head_of(server)
    server.stop()
    calls = parse(trace)
    [made] = [c for c in calls if c.name == "openat" and "/head.key.tmp" in c.args and c.result is not None and c.result >= 0]
    mine = [c for c in calls if c.pid == made.pid and c.begin >= made.begin]
    steps = [made]
    for fits in (lambda c: c.name == "pwrite64" and c.fd == made.result,
                 lambda c: c.name == "fsync" and c.fd == made.result,
                 lambda c: c.name == "rename" and "/head.key.tmp" in c.args,
                 lambda c: c.name == "openat" and "O_DIRECTORY" in c.args and f'"{server.data}"' in c.args,
                 lambda c: c.name == "fsync" and c.fd == steps[-1].result,
                 lambda c: c.name == "listen"):
        found = next((c for c in mine if c.begin > steps[-1].begin and fits(c)), None)
        assert found is not None and found.result is not None and found.result >= 0, [s.name for s in steps]
        steps.append(found)
    assert not any(c.name == "pwrite64" and c.fd == made.result for c in mine if steps[2].begin < c.begin < steps[3].begin)


# ---- verify --head ----

class Kept:
    """A journal of several generations, a head from its middle, and files beside it."""

    def __init__(self, server, workdir):
        self.server, self.dir = server, workdir
        self.receipts = fill(server, 12, "a", 9000)
        self.head = head_of(server)
        self.later = fill(server, 12, "z", 9000)
        self.pem = server.cli("head", "--public-key", check=0).stdout
        self.put("head.json", json.dumps(self.head))
        self.put("key.pem", self.pem)
        self.put("receipts", "\n".join(self.receipts) + "\n")

    def put(self, name, text):
        (self.dir / name).write_text(text)
        return str(self.dir / name)

    def check(self, *args, data=None, json_out=True, key=True):
        command = ["verify", "--data", str(data or self.server.data), "--head", str(self.dir / "head.json")]
        command += ["--public-key", str(self.dir / "key.pem")] if key else []
        return tallyman(*command, *args, *(["--json"] if json_out else []))

    def violations(self, *args, **kw):
        result = self.check(*args, **kw)
        assert result.returncode == 3, (result.stdout, result.stderr)
        report = json.loads(result.stdout)
        assert report["ok"] is False and report["head"]["ok"] is False
        return report["head"]["violations"]


@pytest.fixture
def kept(make_server, workdir):
    return Kept(make_server(*SMALL), workdir)


def test_receipts_under_a_kept_head(kept):
    for stopped in (False, True):
        if stopped:
            kept.server.stop()
        result = kept.check("--receipt", str(kept.dir / "receipts"))
        assert result.returncode == 0, (result.stdout, result.stderr)
        report = json.loads(result.stdout)["head"]
        assert report == {"ok": True, "frontier_event_count": kept.head["frontier_event_count"], "chain_head": kept.head["chain_head"],
                          "signed_at": kept.head["signed_at"], "key_id": kept.head["key_id"], "key_given": True, "receipts": 12,
                          "receipts_ok": 12, "violations": []}
        text = kept.check("--receipt", str(kept.dir / "receipts"), json_out=False, key=False)
        assert text.returncode == 0 and "12 of 12 receipts are under it" in text.stdout and "the head's own" in text.stdout


def test_a_head_that_is_not_this_journals(kept):
    for n, says in [("frontier_event_count", "signature"), ("chain_head", "signature"), ("signed_at", "signature")]:
        other = {"frontier_event_count": kept.head[n] if n != "frontier_event_count" else 10 ** 6, "chain_head": "0" * 64,
                 "signed_at": "2020-01-01T00:00:00.000Z"}
        kept.put("head.json", json.dumps({**kept.head, n: other[n]}))
        assert says in kept.violations()[0]
    kept.put("head.json", json.dumps({**kept.head, "frontier_event_count": 10 ** 6}))
    assert "the head 1000000" in kept.violations()[1]
    kept.put("head.json", json.dumps({**kept.head, "frontier_event_count": kept.head["frontier_event_count"] - 1}))
    assert any("no batch" in v or "not the head's" in v for v in kept.violations())
    kept.put("head.json", json.dumps({**kept.head, "chain_head": "0" * 64}))
    assert "is not the head's" in kept.violations()[1]


def test_another_key(kept, make_server):
    other = make_server(name="other")
    other_head = head_of(other)
    kept.put("key.pem", other.cli("head", "--public-key", check=0).stdout)
    assert kept.violations() == ["the signature is not that of the given key"]
    # Of another journal, well signed: it is not in ours.
    fill(other, 2)
    other_head = head_of(other)
    kept.put("head.json", json.dumps(other_head))
    assert kept.violations() == [f"the journal's chain at event {other_head['frontier_event_count']} is not the head's"]


def test_a_journal_that_was_set_back(kept):
    """Somebody removed the end: the journal by itself is whole."""
    kept.server.stop()
    journal = kept.server.data / "journal"
    (journal / "tail.ndjson").write_bytes(b"")
    newest = sorted((journal / "pending").iterdir())
    for path in newest[1:]:
        path.unlink()
    assert verify(kept.server.data)["ok"]
    assert "the head" in kept.violations()[0]
    assert "names no batch of the journal" in " ".join(kept.violations("--receipt", str(kept.dir / "receipts")))


def test_receipts_that_are_not_covered(kept):
    def says(receipt):
        [text] = kept.violations("--receipt", kept.put("one", json.dumps(receipt)))
        return text
    good, later = json.loads(kept.receipts[3]), json.loads(kept.later[3])
    assert "behind the head" in says(later)
    assert "another digest" in says({**good, "batch_digest": json.loads(kept.receipts[4])["batch_digest"]})
    assert "another length" in says({**good, "events": good["events"] + 1})
    assert "another length" in says({**good, "last_event_id": later["last_event_id"]})
    assert "names no batch" in says({**good, "first_event_id": good["first_event_id"][:-1] + "9"})
    assert "another source or batch_id" in says({**good, "source": "test", "batch_id": "a4"})
    result = kept.check("--receipt", kept.put("one", json.dumps({**good, "source": "test", "batch_id": "a3"})),
                        "--receipt", kept.put("two", kept.receipts[0] + "\n\n" + kept.receipts[0]))
    assert result.returncode == 0 and json.loads(result.stdout)["head"]["receipts_ok"] == 3


def test_files_that_cannot_be_compared(kept):
    """Not a violation: nothing was compared."""
    def fails(*args, code=1, **kw):
        result = kept.check(*args, **kw)
        assert (result.returncode, result.stdout) == (code, ""), (result.stdout, result.stderr)
        return result.stderr
    assert "none" in fails("--receipt", str(kept.dir / "none"))
    assert "line 2 is no receipt" in fails("--receipt", kept.put("bad", kept.receipts[0] + "\n{}\n"))
    assert "holds no receipt" in fails("--receipt", kept.put("bad", ""))
    kept.put("key.pem", "no key")
    assert "no public Ed25519 key" in fails()
    kept.put("head.json", json.dumps({**kept.head, "more": 1}))
    assert "is no signed head" in fails(key=False)
    (kept.dir / "head.json").unlink()
    assert "head.json" in fails(key=False)
    alone = tallyman("verify", "--data", str(kept.server.data), "--receipt", str(kept.dir / "receipts"))
    assert alone.returncode == 2 and "--head" in alone.stderr


# ---- examples/verify.py ----

AWKWARD = [
    {"\u20ac": 1, "\U0001f600": 2, "\ufb33": 3, "\r": 4, "1": 5, "\u0080": 6, "\u00f6": 7},
    [1e21, 1e-7, 0.1, -0.0, 333333333.33333329, 4.5e-324, 1.7976931348623157e308, 9007199254740992, 12.50, 1e30, 2e-3],
    "a \\ \" \b\f\n\r\t \u0000\u001f\u007f\u2028\ud7ff/\u00e9\U0010ffff ,\"payload\": ,\"record_key\":\"x\" {\"batch_len\":7,",
    {"event_id": "01a22be8-6bc0-7000-8000-000027b20000", "batch_len": 3, "batch_digest": "x", "payload": {"payload": [{}]}},
    None, True, [], {}, "", 0, [[[[[[[[[[]]]]]]]]]],
]


def deep(n):
    value = 1
    for _ in range(n):
        value = [value]
    return value


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """A copied journal directory of several generations, closed cleanly, with a head from its middle."""
    from conftest import Server
    base = tmp_path_factory.mktemp("journal")
    server = Server(base / "data", *SMALL, env={"TALLYMAN_ENGINE": "off"}).start()
    try:
        for n, payload in enumerate([*AWKWARD, deep(120)]):
            events = [{"stream": "s", "record_key": "k\"\\\u2028\U0001f600", "kind": "kind \\\"", "payload": payload},
                      {**event(n), "occurred_at": "2026-11-30T09:00:00.5Z"}]
            answer = server.append(json.dumps(batch(f"awkward \u00e9\" {n}", *events), ensure_ascii=n % 2 == 0))
            assert answer.status == 200, answer.body
        fill(server, 8, "a", 9000)
        head = head_of(server)
        fill(server, 8, "z", 9000)
        for n in range(3):  # the tail has several, and ends with a batch of one
            fill(server, 1, f"last{n}")
        chain = verify(server.data)["chain_head"]
    finally:
        server.stop()
    shutil.copytree(server.data / "journal", base / "copy")
    (base / "head.json").write_text(json.dumps(head))
    return base, head, chain


def script(path, *args):
    return subprocess.run([sys.executable, SCRIPT, path, *args], capture_output=True, text=True, timeout=60)


@pytest.fixture
def copy(journal, workdir):
    shutil.copytree(journal[0] / "copy", workdir / "copy")
    return workdir / "copy"


def test_the_script_is_short_and_needs_nothing():
    lines = SCRIPT.read_text().splitlines()
    assert len(lines) <= 80 and max(map(len, lines)) <= 128
    imported = {name.name for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Import) for name in node.names}
    assert imported and imported <= sys.stdlib_module_names


def test_the_script_agrees(journal, copy):
    base, head, chain = journal
    assert len(list((copy / "pending").iterdir())) >= 2
    for args in ((), ("--head", base / "head.json")):
        result = script(copy, *args)
        assert result.returncode == 0 and chain in result.stdout and "torn" not in result.stdout, result.stderr
    server = subprocess.run([sys.executable, SCRIPT, copy / "none"], capture_output=True, text=True)
    assert server.returncode != 0


def test_the_script_and_a_padded_tail(journal, copy):
    """As a server leaves it that was killed: zeros behind the lines, or a torn group."""
    tail = copy / "tail.ndjson"
    whole = tail.read_bytes()
    tail.write_bytes(whole + b"\0" * 5000)
    result = script(copy)
    assert result.returncode == 0 and journal[2] in result.stdout and "torn" not in result.stdout
    start = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    tail.write_bytes(whole[:start + 100] + b"\0" * 5000)
    result = script(copy)
    assert result.returncode == 0 and f"tail.ndjson, byte {start}: torn, 100 bytes" in result.stdout
    # Closed cleanly there is nothing torn: then it is damage.
    tail.write_bytes(whole[:start + 100])
    assert f"tail.ndjson, byte {start}," in script(copy).stderr
    # And in front of a later group it is damage, too.
    tail.write_bytes(whole[:100] + b"!" + whole[101:] + b"\0" * 5000)
    assert "tail.ndjson, byte 0," in script(copy).stderr


def tamper(name, find, put, where=0):
    """Replaces the where-th find (from the end when negative) in a file."""
    def change(copy):
        path = sorted((copy / "pending").iterdir())[0] if name == "pending" else copy / name
        data = path.read_bytes()
        places = [m.start() for m in re.finditer(find, data)]
        at = places[where]
        size = re.compile(find).match(data, at).end() - at
        path.write_bytes(data[:at] + put(data[at:at + size]) + data[at + size:])
        return path.name
    return change


def drop_lines(name, first, count):
    def change(copy):
        path = sorted((copy / "pending").iterdir())[0] if name == "pending" else copy / name
        lines = path.read_bytes().splitlines(keepends=True)
        del lines[first:first + count]
        path.write_bytes(b"".join(lines))
        return path.name
    return change


def swap_batches(copy):
    path = sorted((copy / "pending").iterdir())[0]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[2:4], *lines[:2], *lines[4:]]))
    return path.name


def repeat_batch(copy):
    """A whole batch again, with ids of its own and hashes that fit: only its key gives it away."""
    path = copy / "tail.ndjson"
    data = path.read_bytes()
    line = next(l for l in data.splitlines() if b'"batch_len":1,' in l)
    last = re.findall(rb'"event_id":"([^"]+)"', data)[-1].decode()
    new = f"{int(last.replace('-', ''), 16) + (1 << 30):032x}"
    new = "-".join((new[:8], new[8:12], new[12:16], new[16:20], new[20:])).encode()
    line = re.sub(rb'"event_id":"[^"]+"', b'"event_id":"' + new + b'"', line)
    payload = line[line.index(b',"payload":'):line.rindex(b',"record_key":"')]
    envelope = re.sub(rb'^\{"batch_digest":"[0-9a-f]{64}",', b"{", line.replace(payload, b""))
    envelope = re.sub(rb',"batch_len":1|,"event_hash":"[0-9a-f]{64}"', b"", envelope)
    line = re.sub(rb'"event_hash":"[0-9a-f]{64}"', b'"event_hash":"' + hashlib.sha256(envelope).hexdigest().encode() + b'"', line)
    path.write_bytes(data + line + b"\n")
    return path.name


def rename_generation(copy):
    path = sorted((copy / "pending").iterdir())[0]
    new = path.with_name(path.name.replace("-7", "-7", 1)[:35] + ("0" if path.name[35] != "0" else "1") + path.name[36:])
    path.rename(new)
    return new.name


def remove_generation(copy):
    sorted((copy / "pending").iterdir())[0].unlink()
    return ""


def no_tail(copy):
    (copy / "tail.ndjson").unlink()
    return "tail.ndjson"


flip = lambda text: bytes([text[0] ^ 1]) + text[1:]
digit = lambda text: text[:-1] + (b"1" if text[-1:] == b"0" else b"0")
TAMPERED = {
    "payload": tamper("pending", rb'"\\u20ac|"\xe2\x82\xac":1', lambda t: t[:-1] + b"2"),
    "payload spelled otherwise": tamper("pending", rb"1e\+21", lambda t: b"1e21"),
    "content_hash": tamper("pending", rb'"content_hash":"[0-9a-f]{64}', digit),
    "event_hash": tamper("pending", rb'"event_hash":"[0-9a-f]{64}', digit, 3),
    "event_id": tamper("pending", rb'"event_id":"[-0-9a-f]{36}', digit, 2),
    "kind": tamper("tail.ndjson", rb'"kind":"u', lambda t: t[:-1] + b"v"),
    "record_key": tamper("tail.ndjson", rb'"record_key":"k', lambda t: t[:-1] + b"l"),
    "source": tamper("tail.ndjson", rb'"source":"t', lambda t: t[:-1] + b"u"),
    "stream": tamper("tail.ndjson", rb'"stream":"s', lambda t: t[:-1] + b"t"),
    "occurred_at": tamper("pending", rb"00\.5Z", lambda t: b"00.6Z"),
    "occurred_at is gone": tamper("pending", rb'"occurred_at":"[^"]*",', lambda t: b""),
    "observed_at": tamper("tail.ndjson", rb'"observed_at":"2', lambda t: t[:-1] + b"3"),
    "batch_id": tamper("tail.ndjson", rb'"batch_id":"z', lambda t: t[:-1] + b"y"),
    "batch_digest": tamper("tail.ndjson", rb'"batch_digest":"[0-9a-f]{64}', digit),
    "batch_len": tamper("pending", rb'"batch_len":2', lambda t: b'"batch_len":1'),
    "batch_len of none": tamper("tail.ndjson", rb'"batch_len":1', lambda t: b'"batch_len":0'),
    "a member's name": tamper("pending", rb'"kind"', lambda t: b'"Kind"'),
    "a member more": tamper("pending", rb'"kind"', lambda t: b'"aaaa":1,"kind"'),
    "white space": tamper("pending", rb'"kind":', lambda t: t + b" "),
    "a line feed": tamper("pending", rb"\n", lambda t: b" ", 1),
    "bytes that are no text": tamper("pending", rb'"kind":"', lambda t: t + b"\xff"),
    "zeros inside": tamper("tail.ndjson", rb'\{"batch', lambda t: b"\0" * len(t), 1),
    "a line is gone": drop_lines("pending", 1, 1),
    "a batch is gone": drop_lines("pending", 0, 2),
    "batches changed places": swap_batches,
    "a batch again": repeat_batch,
    "another name of a generation": rename_generation,
    "a generation is gone": remove_generation,
    "no tail": no_tail,
    "the manifest": tamper("manifest.jsonl", b"groundhog", lambda t: b"Groundhog"),
    "a later format": tamper("manifest.jsonl", rb'"min_reader":1', lambda t: b'"min_reader":9'),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_the_script_finds(journal, copy, what):
    """Each change is found, at its place. What the chain alone shows needs a head from before."""
    name = TAMPERED[what](copy)
    result = script(copy)
    if what in ("a batch is gone", "a generation is gone"):
        result = script(copy, "--head", journal[0] / "head.json") if result.returncode == 0 else result
    assert result.returncode == 1 and name in result.stderr, (what, result.stdout, result.stderr)
    if what not in ("a generation is gone", "another name of a generation", "no tail"):
        assert "Traceback" not in result.stderr and "byte" in result.stderr or name.endswith(".ndjson"), result.stderr


def test_the_script_finds_any_flipped_byte(journal, copy):
    """Of the lines, at random places."""
    rng = random.Random(SEED)
    print("SEED", SEED)
    paths = [*sorted((copy / "pending").iterdir()), copy / "tail.ndjson"]
    for _ in range(12):
        path = rng.choice(paths)
        data = path.read_bytes()
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:])
        result = script(copy, "--head", journal[0] / "head.json")
        path.write_bytes(data)
        assert result.returncode == 1 and path.name in result.stderr, (path.name, at, result.stdout, result.stderr)


@pytest.mark.parametrize("member", ["frontier_event_count", "chain_head", "frontier_event_id", "signature", "signed_at", "public_key"])
def test_the_script_and_another_head(journal, copy, workdir, member):
    base, head, _ = journal
    value = head[member] - 1 if member == "frontier_event_count" else ("1" if head[member][0] == "0" else "0") + head[member][1:]
    (workdir / "head.json").write_text(json.dumps({**head, member: value}))
    result = script(copy, "--head", workdir / "head.json")
    assert result.returncode == 1 and "head" in result.stderr
    # Without openssl the comparison alone: what it covers is found all the same.
    bare = subprocess.run([sys.executable, SCRIPT, copy, "--head", workdir / "head.json"], capture_output=True, text=True,
                          env={"PATH": str(workdir)})
    assert bare.returncode == (0 if member in ("signature", "signed_at", "public_key") else 1), bare.stderr
    assert "the signature of the head is NOT checked" in bare.stderr
    for words in ((f"--head={workdir}/head.json",), ("--head",), ("--heads", workdir / "head.json"), (workdir / "head.json",)):
        unread = script(copy, *words)
        assert unread.returncode == 1 and "--head SAVED_HEAD.json" in unread.stderr, (words, unread)


def test_the_script_and_a_sealed_segment(journal, copy, workdir):
    """The documented form, made here: any zstd file with the bytes of a generation, and its record in the manifest."""
    base, head, chain = journal
    path = sorted((copy / "pending").iterdir())[0]
    data = path.read_bytes()
    (copy / "segments").mkdir(exist_ok=True)
    first, last = path.stem.split("_")
    packed = subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout
    name = f"segments/{path.stem}_{hashlib.sha256(packed).hexdigest()}.ndjson.zst"
    (copy / name).write_bytes(packed)
    end = hashlib.sha256(b"groundhog/genesis/v1").digest()
    for event_hash in re.findall(rb'"event_hash":"([0-9a-f]{64})","event_id"', data):
        end = hashlib.sha256(end + bytes.fromhex(event_hash.decode())).digest()
    record = {"type": "segment", "schema_version": 2, "min_reader": 2, "path": name, "first_event_id": first, "last_event_id": last,
              "events": data.count(b"\n"), "bytes": len(data), "sha256": hashlib.sha256(packed).hexdigest(), "head": end.hex(),
              "sealed_at": "2026-11-30T10:00:00.000Z", "format": "ndjson+zstd"}
    manifest = (copy / "manifest.jsonl").read_bytes()

    def seal(**changes):
        text = json.dumps({**record, **changes}, sort_keys=True, separators=(",", ":")).encode()
        (copy / "manifest.jsonl").write_bytes(manifest + text + b"\n")
        return script(copy, "--head", base / "head.json")
    for covered in (True, False):  # the generation's file may be there still
        result = seal()
        assert result.returncode == 0 and chain in result.stdout, result.stderr
        if covered:
            path.unlink()
    for wrong in ({"head": "0" * 64}, {"sha256": "0" * 64}, {"last_event_id": first}):
        result = seal(**wrong)
        assert result.returncode == 1 and name in result.stderr
    seal()
    (copy / name).write_bytes(packed[:100] + bytes([packed[100] ^ 1]) + packed[101:])
    result = script(copy)
    assert result.returncode == 1 and path.stem in result.stderr


def test_the_script_and_what_the_server_seals(journal, workdir):
    """The real thing: blocks, tables behind them, and its record."""
    shutil.copytree(journal[0] / "data", workdir / "data")
    sealed = tallyman("seal", "--data", str(workdir / "data"))
    assert sealed.returncode == 0, sealed.stderr
    copy = workdir / "data" / "journal"
    [*_, segment] = sorted((copy / "segments").iterdir())
    result = script(copy, "--head", journal[0] / "head.json")
    assert result.returncode == 0 and journal[2] in result.stdout, result.stderr
    kept = tallyman("verify", "--data", str(workdir / "data"), "--head", str(journal[0] / "head.json"), "--json")
    assert kept.returncode == 0 and json.loads(kept.stdout)["head"]["ok"], kept.stdout
    data = segment.read_bytes()
    segment.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    result = script(copy)
    assert result.returncode == 1 and segment.name in result.stderr, result.stderr
