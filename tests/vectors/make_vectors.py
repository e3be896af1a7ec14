#!/usr/bin/env python3
"""Known answers for the formulas of the journal, made without any code of Tallyman.

Prints tests/unit/journal/vectors.h. The canonical form is json.dumps with sorted keys, which is RFC
8785 for what is used here: ASCII member names, and numbers that are integers or short decimals.

    python3 tests/vectors/make_vectors.py >tests/unit/journal/vectors.h
"""
import hashlib
import json
import uuid


def jcs(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def event_id(ms, group, tag, index):
    bits = format(ms, "048b") + "0111" + format(group >> 32, "012b") + "10"
    bits += format(group & 0xFFFFFFFF, "032b") + format(tag, "014b") + format(index, "016b")
    return str(uuid.UUID(int=int(bits, 2)))


def observed(ms):
    days, rest = divmod(ms, 86400000)
    seconds, milli = divmod(rest, 1000)
    date = __import__("datetime").date(1970, 1, 1) + __import__("datetime").timedelta(days=days)
    return "%sT%02d:%02d:%02d.%03dZ" % (date, seconds // 3600, seconds // 60 % 60, seconds % 60, milli)


BATCHES = [
    # (source, batch_id, ms, group, tag, first index, events)
    ("source", "batch", 1800000000000, 0, 0x1234, 0, [
        ("stream", "key", "upserted", None, 1),
    ]),
    ("stripe", 'run "118" \\ a/b\n\u00e9\u007f\u2028', 1800000000001, 1, 0x1234, 0, [
        ("customers", "cus_1", "upserted", "2026-11-30T09:00:00Z",
         {"id": "cus_1", "email": "kim@example.com", "balance": 12.5}),
        ("customers", 'k"\\\t', "deleted", None, None),
        ("in.voices_2-x", "k", "upserted", "2026-11-30T09:00:00.5Z",
         {"a": [1, -2, 0.25, True, False, None, {"": {}}], "b": ',"record_key":"x","source":"'}),
    ]),
    ("stripe", "z" * 256, 1800000000001, 1, 0x1234, 3, [
        ("customers", "r" * 1024, "upserted", None, "x" * 300),
    ]),
    ("last", "end", 253402300799999, (1 << 44) - 1, 0x3FFF, 0xFFFF, [
        ("s", "\U0001F600", "upserted", "9999-12-31T23:59:59.999999999Z", "\u0001\u001f\b\f\r"),
    ]),
]


def rows():
    head = hashlib.sha256(b"groundhog/genesis/v1").digest()
    for source, batch_id, ms, group, tag, index, events in BATCHES:
        parts = []
        for stream, key, kind, occurred, payload in events:
            part = {"content_hash": sha(jcs(payload)), "kind": kind, "record_key": key,
                    "stream": stream}
            if occurred is not None:
                part["occurred_at"] = occurred
            parts.append(part)
        digest = sha(jcs({"events": parts, "source": source, "v": 1}))
        for i, (part, event) in enumerate(zip(parts, events)):
            ident = event_id(ms, group, tag, index + i)
            envelope = dict(part, batch_id=batch_id, event_id=ident, observed_at=observed(ms),
                            source=source)
            event_hash = sha(jcs(envelope))
            head = hashlib.sha256(head + bytes.fromhex(event_hash)).digest()
            committed = dict(envelope, event_hash=event_hash, payload=event[4])
            stored = dict(committed, batch_digest=digest, batch_len=len(events))
            yield [jcs(batch_id), jcs(source), jcs(event[0]), jcs(event[1]), jcs(event[2]),
                   "" if event[3] is None else jcs(event[3]), jcs(event[4]), part["content_hash"],
                   ident, observed(ms), event_hash, digest, head.hex(), jcs(stored),
                   jcs(committed)], [ms, group, tag, index + i, len(events), i]


def c_text(text):
    """A C string literal, cut into lines; octal escapes cannot swallow what follows."""
    out, line = [], ""
    for byte in text.encode("utf-8"):
        char = chr(byte)
        line += "\\" + char if char in '"\\' else char if 32 <= byte < 127 else "\\%03o" % byte
        if len(line) > 80:
            out.append(line)
            line = ""
    return "\n     ".join('"%s"' % part for part in out + [line])


def main():
    print("/* Made by tests/vectors/make_vectors.py; not edited by hand. */")
    print("#ifndef JOURNAL_VECTORS_H\n#define JOURNAL_VECTORS_H\n\n#include <stdint.h>\n")
    print("/* One event a row, in log order from the genesis head on. */\nstruct vector {")
    names = ("batch_id source stream record_key kind occurred_at payload content_hash event_id "
             "observed_at event_hash batch_digest head stored replayed").split()
    for name in names:
        print("    const char *%s;" % name)
    print("    uint64_t ms, group;\n    unsigned tag, index;\n    uint32_t batch_len, in_batch;\n};\n")
    print("static const struct vector vectors[] = {")
    for texts, numbers in rows():
        print("    {" + ",\n     ".join(c_text(t) for t in texts) + ",")
        print("     UINT64_C(%d), UINT64_C(%d), %d, %d, %d, %d}," % tuple(numbers))
    print("};\n\n#endif")


main()
