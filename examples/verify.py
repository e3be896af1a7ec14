#!/usr/bin/env python3
"""Verifies a copied Tallyman journal without Tallyman: verify.py JOURNAL [--head SAVED_HEAD.json] (formulas: docs/FORMAT.md).
Exit 0: all is proven. Exit 1: the place, and what is wrong. Uses the commands `zstd` (sealed segments), `openssl` (heads)."""
import hashlib, io, json, pathlib, re, shutil, subprocess, sys, tempfile
FORMAT = b'{"format_id":"groundhog/log","min_reader":1,"min_writer":1,"schema_version":1,"stability":"stable","type":"format"}'
NAMES = ("batch_digest batch_id batch_len content_hash event_hash event_id kind observed_at occurred_at payload record_key "
         "source stream").split()
sha = lambda data: hashlib.sha256(data if isinstance(data, bytes) else data.encode())
def need(ok, what):
    if not ok: raise ValueError(what)
group = lambda event_id: (i := int(event_id.replace("-", "") or "0", 16)) >> 32 & 0xFFF << 32 | i >> 30 & 0xFFFFFFFF
def members(line):  # name -> value of a stored line, spelled as there: what is parsed and written again may come out different
    need(line.endswith(b"}\n"), "a batch or a line is cut short")
    text, at, out, scan = line.decode(), 0, {}, json.JSONDecoder().raw_decode
    while text[at] == ("," if at else "{"):
        name, at = scan(text, at + 1)
        need(text[at] == ":" and name not in out, "a malformed line")
        start, (_, at) = at + 1, scan(text, at + 1)
        out[name] = text[start:at]
    need(text[at:] == "}\n" and list(out) == [n for n in NAMES if n in out or n != "occurred_at"], "no stored line")
    return out
def pick(event, *names): return "{" + ",".join(f'"{n}":{event[n]}' for n in names if n in event) + "}"
class Journal:
    head, last, count, keys, wanted, then = sha("groundhog/genesis/v1").digest(), "", 0, {}, None, None
    def batch(self, events):
        head, last = self.head, self.last
        for e in events:
            same = pick(e, *NAMES[:3], "observed_at", "source") == pick(events[0], *NAMES[:3], "observed_at", "source")
            need(same and e["batch_len"] == str(len(events)), "the lines are not one batch's")
            need(e["content_hash"] == f'"{sha(e["payload"]).hexdigest()}"', "content_hash is not its payload's")
            digest = sha(pick(e, "batch_id", "content_hash", *NAMES[5:9], "record_key", "source", "stream"))
            need(e["event_hash"] == f'"{digest.hexdigest()}"', "event_hash is not its event's")
            need(e["event_id"][1:-1] > last, "event ids do not rise")
            head, last = sha(head + digest.digest()).digest(), e["event_id"][1:-1]
        picked = ",".join(pick(e, "content_hash", "kind", "occurred_at", "record_key", "stream") for e in events)
        body = f'{{"events":[{picked}],"source":{events[0]["source"]},"v":1}}'
        need(events[0]["batch_digest"] == f'"{sha(body).hexdigest()}"', "batch_digest is not its batch's")
        key = sha(pick(events[0], "batch_id", "source")).digest()
        need(self.keys.setdefault(key, self.count) == self.count, "a (source, batch_id) was committed twice")
        self.head, self.last, self.count = head, last, self.count + len(events)
        self.then = [head.hex(), last] if self.count == self.wanted else self.then
    def file(self, name, data, tail=False):
        stream, first = io.BytesIO(data.rstrip(b"\0") if tail else data), None  # zeros behind a tail's lines are room
        while line := stream.readline():
            at = stream.tell() - len(line)
            try:
                events = [members(line)]
                events += [members(stream.readline()) for _ in range(int(events[0]["batch_len"]) - 1)]
                self.batch(events)
                first = first or events[0]["event_id"][1:-1]
            except (ValueError, LookupError, RecursionError) as e:
                rest = stream.getvalue()[at:]  # torn: a tail that was not closed, and nothing of a later group is there
                later = max(map(group, re.findall('"event_id":"([-0-9a-f]{36})"', rest.decode("latin-1"))), default=0)
                if not tail or len(data) == at + len(rest) or later > group(self.last) + bool(self.last):
                    sys.exit(f"{name}, byte {at}, event {self.count + 1}: {e}")
                return print(f"{name}, byte {at}: torn, {len(rest)} bytes of a group that was never finished")
        return [first, self.last]
def signature_ok(saved):
    text = json.dumps({n: v for n, v in saved.items() if n != "signature"}, sort_keys=True, separators=(",", ":"))
    with tempfile.TemporaryDirectory() as d:
        for n, part in zip("kts", ("302a300506032b6570032100" + saved["public_key"], text.encode().hex(), saved["signature"])):
            pathlib.Path(d, n).write_bytes(bytes.fromhex(part))
        check = "openssl pkeyutl -verify -pubin -keyform DER -inkey k -rawin -in t -sigfile s".split()
        return subprocess.run(check, cwd=d, capture_output=True).returncode == 0
if len(sys.argv) not in (2, 4) or sys.argv[2:3] not in ([], ["--head"]): sys.exit(__doc__)
root, saved = pathlib.Path(sys.argv[1]), json.load(open(sys.argv[3])) if sys.argv[2:3] == ["--head"] else None
journal, (first, *records) = Journal(), (root / "manifest.jsonl").read_bytes().split(b"\n")
if first != FORMAT or not records: sys.exit("manifest.jsonl, byte 0: no format that this program knows")
if saved and not shutil.which("openssl"): print("no openssl: the signature of the head is NOT checked", file=sys.stderr)
elif saved and not signature_ok(saved): sys.exit("the saved head: a wrong signature")
journal.wanted, journal.then = saved and saved["frontier_event_count"], [journal.head.hex(), None]
for r in map(json.loads, records[:-1]):
    data = subprocess.run(["zstd", "-dc"], input=(packed := (path := root / r["path"]).read_bytes()), capture_output=1).stdout
    found = [*journal.file(r["path"], data), journal.head.hex(), sha(packed).hexdigest()]
    if found != [r[n] for n in ("first_event_id", "last_event_id", "head", "sha256")]: sys.exit(f"{path}: not as sealed")
for path in [p for p in sorted((root / "pending").glob("*.ndjson")) if p.stem[37:] > journal.last]:
    if journal.file(path.name, path.read_bytes()) != path.stem.split("_"): sys.exit(f"{path.name}: other ids")
journal.file("tail.ndjson", (root / "tail.ndjson").read_bytes(), tail=True)
if saved and journal.then != [saved["chain_head"], saved["frontier_event_id"]]: sys.exit("not the saved head's journal")
print(f"{journal.count} events, last {journal.last or 'none'}, chain head {journal.head.hex()}")
