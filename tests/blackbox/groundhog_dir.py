"""Directories of the format's first program (spec/history.md sections 4 and 11, schema version 1), written and checked from
the contract alone: nothing here knows how Tallyman makes ids, or that it fills files with zeros ahead.

make(path, batches, ...) writes one; check(path) holds one against every rule of section 11 and returns its events.
"""
import hashlib
import json
import re
import time

MANIFEST = (b'{"format_id":"groundhog/log","min_reader":1,"min_writer":1,"schema_version":1,"stability":"stable",'
            b'"type":"format"}\n')
UUID7 = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
NAME = re.compile(r"^[a-z0-9_][a-z0-9_.-]{0,127}$")
OBSERVED = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
GENESIS = hashlib.sha256(b"groundhog/genesis/v1").digest()
MEMBERS = ["batch_digest", "batch_id", "batch_len", "content_hash", "event_hash", "event_id", "kind", "observed_at",
           "occurred_at", "payload", "record_key", "source", "stream"]


def jcs(value):
    """RFC 8785 for values without floats, with names in ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def digest_of(source, events):
    return sha(jcs({"v": 1, "source": source, "events": [
        {k: e[k] for k in ("content_hash", "kind", "occurred_at", "record_key", "stream") if k in e} for e in events]}))


def event_hash(e):
    return sha(jcs({k: e[k] for k in ("batch_id", "content_hash", "event_id", "kind", "observed_at", "occurred_at",
                                      "record_key", "source", "stream") if k in e}))


class Ids:
    """Ids as the published vectors have them: unrelated milliseconds, random bits, in a batch one more in the low byte."""

    def __init__(self, chance):
        self.chance = chance
        self.ms = 0x018f00000000

    def batch(self, count):
        self.ms += self.chance.randrange(1, 1 << 28)
        low = self.chance.getrandbits(62) & ~0xff
        base = self.ms << 80 | 7 << 76 | self.chance.getrandbits(12) << 64 | 2 << 62 | low
        for i in range(count):
            h = f"{base + i:032x}"
            yield f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def instant(ms):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03}Z"


def lines(batch, ids, ms):
    """The stored lines of a batch {batch_id, source, events}, observed at that millisecond."""
    events = []
    for event, event_id in zip(batch["events"], ids.batch(len(batch["events"]))):
        e = {**event, "batch_id": batch["batch_id"], "source": batch["source"], "event_id": event_id,
             "observed_at": instant(ms),
             "content_hash": sha(jcs(event["payload"]))}
        e["event_hash"] = event_hash(e)
        events.append(e)
    frame = {"batch_digest": digest_of(batch["source"], events), "batch_len": len(events)}
    return b"".join(jcs({**e, **frame}) + b"\n" for e in events), events


def make(log, generations, chance):
    """Writes the directory: all but the last list of batches become pending files, the last one the tail. Returns the events."""
    ids, events, ms = Ids(chance), [], 1700000000123
    for part in ("pending", "segments"):
        (log / part).mkdir(parents=True)
    (log / "manifest.jsonl").write_bytes(MANIFEST)
    for n, batches in enumerate(generations):
        raw, first = b"", len(events)
        for batch in batches:
            text, made = lines(batch, ids, ms)
            ms += chance.randrange(5000)
            raw += text
            events += made
        if n == len(generations) - 1:
            (log / "tail.ndjson").write_bytes(raw)
        else:
            (log / "pending" / f"{events[first]['event_id']}_{events[-1]['event_id']}.ndjson").write_bytes(raw)
    return events


class Broken(AssertionError):
    """A rule of section 11 does not hold."""


def need(condition, text):
    if not condition:
        raise Broken(text)


def check_line(raw):
    e = json.loads(raw)
    need(jcs(e) == raw, "a line is not canonical")
    need(list(e) == [m for m in MEMBERS if m in e], f"members or their order: {list(e)}")
    need(set(MEMBERS) - set(e) <= {"occurred_at"}, "a member is missing")
    need(UUID7.match(e["event_id"]), "an event_id is no UUIDv7")
    need(OBSERVED.match(e["observed_at"]), "observed_at")
    need(NAME.match(e["source"]) and NAME.match(e["stream"]), "a name")
    need(1 <= len(e["record_key"].encode()) <= 1024 and 1 <= len(e["kind"].encode()) <= 128, "record_key or kind")
    need(1 <= len(e["batch_id"].encode()) <= 256, "batch_id")
    need(e["content_hash"] == sha(jcs(e["payload"])), "a content_hash")
    need(e["event_hash"] == event_hash(e), "an event_hash")
    return e


def check_file(raw, name):
    """One generation: whole batches only."""
    need(raw == b"" or raw.endswith(b"\n"), f"{name} does not end with a line end")
    events = [check_line(line) for line in raw.split(b"\n")[:-1]]
    at = 0
    while at < len(events):
        first = events[at]
        need(1 <= first["batch_len"] <= 10000, "batch_len")
        batch = events[at:at + first["batch_len"]]
        need(len(batch) == first["batch_len"], f"{name}: the last batch is not whole")
        for member in ("source", "batch_id", "batch_len", "batch_digest", "observed_at"):
            need(len({e[member] for e in batch}) == 1, f"{name}: a batch with more than one {member}")
        need(digest_of(first["source"], batch) == first["batch_digest"], f"{name}: a batch_digest")
        at += len(batch)
    return events


def check(log):
    """Every rule of section 11 for a cleanly closed directory without segments, and the stories of section 7."""
    names = {p.name for p in log.iterdir()}
    need(names - {".lock"} == {"manifest.jsonl", "tail.ndjson", "pending", "segments"}, f"files: {names}")
    need((log / "manifest.jsonl").read_bytes() == MANIFEST, "the manifest is not its first record alone")
    need(not list((log / "segments").iterdir()), "a segment that no record names")
    events = []
    for path in sorted((log / "pending").iterdir()):
        got = check_file(path.read_bytes(), path.name)
        need(got, f"{path.name} is empty")
        need(path.name == f"{got[0]['event_id']}_{got[-1]['event_id']}.ndjson", f"{path.name} is not its range")
        events += got
    events += check_file((log / "tail.ndjson").read_bytes(), "tail.ndjson")
    ids = [e["event_id"] for e in events]
    need(all(a < b for a, b in zip(ids, ids[1:])), "ids do not rise strictly")
    need(all(a["observed_at"] <= b["observed_at"] for a, b in zip(events, events[1:])), "observed_at falls")
    seen, last, retired = set(), {}, {}
    for i, e in enumerate(events):
        key = (e["source"], e["batch_id"])
        begins = i == 0 or key != (events[i - 1]["source"], events[i - 1]["batch_id"])
        need(not begins or key not in seen, f"a batch twice: {key}")
        seen.add(key)
        if e["source"] == "system":
            p = e["payload"]
            need(e["stream"] == "groundhog.source_lifecycle" and e["kind"] == "source_retired" and e["batch_len"] == 1
                 and "occurred_at" not in e and set(p) == {"v", "source", "final_frontier"} and p["v"] == 1
                 and e["record_key"] == p["source"] and p["source"] not in retired
                 and p["final_frontier"] == last.get(p["source"])
                 and e["batch_id"] == f"groundhog/retire/{p['source']}/{p['final_frontier']}", "a retirement")
            retired[p["source"]] = p["final_frontier"]
        else:
            need(not e["batch_id"].startswith("groundhog/"), "a reserved batch_id")
            need(e["source"] not in retired, "an event behind a retirement")
        if e["stream"] == "groundhog.source_lineage":
            p = e["payload"]
            need(e["source"] not in last and set(p) == {"v", "predecessor_source", "predecessor_final_frontier"}
                 and e["record_key"] == p["predecessor_source"] and e["kind"] == "source_succeeded"
                 and retired.get(p["predecessor_source"]) == p["predecessor_final_frontier"], "a lineage marker")
        last[e["source"]] = e["event_id"]
    return events


def head_of(events):
    head = GENESIS
    for e in events:
        head = hashlib.sha256(head + bytes.fromhex(e["event_hash"])).digest()
    return head.hex()
