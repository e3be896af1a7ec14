#!/usr/bin/env python3
"""mend_diff: our tolerant JSON against Python's json module.

    mend_diff.py CLI COUNT      runs CLI (mend_cli.c) over COUNT odd documents; SEED is taken from the environment, or
                                from the clock

Python decides what a document is: whether it is JSON at all (json with strict=False, on the text decoded with
errors="replace", NaN and Infinity refused), which flaws it has, and which value it means. From us it wants the same
verdict, the same flaws, and a mended text that is strict UTF-8 and strict JSON of that value, members in their order.
Prints `mend-diff: N documents, 0 differences, seed S` last; exit status 1 on any difference.
"""
import io
import json
import math
import os
import random
import re
import subprocess
import sys
import time

SURROGATE, NUL, CONTROL, UTF8, DUPLICATE, NUMBER = 1, 2, 4, 8, 16, 32
NAMES = {SURROGATE: "surrogate", NUL: "nul", CONTROL: "control", UTF8: "utf8", DUPLICATE: "duplicate",
         NUMBER: "number"}
SPACES = [b"", b"", b"", b" ", b"\n", b"\t", b"\r\n "]
PLAIN = [b"a", b"b", b"name", b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xe2\x82\xac", b"\\n", b"\\/", b"\\\\", b"\\\"",
         b"\\u0061", b"\\u00e9", b"\\ud83d\\ude00", b"plain text that is longer than a block", b"\x7f", b"/", b",", b"}"]
ODD = [b"\\ud800", b"\\uDBFF", b"\\udc00", b"\\u0000", b"\x00", b"\x01", b"\n", b"\t", b"\x1f", b"\xff", b"\x80",
       b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xf0\x9f", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe0\x80",
       b"\\ufffd", b"\xef\xbf\xbd"]
BREAKS = [b"\\x", b"\\u12", b"\"", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"01", b"1.", b"-", b"NaN", b"Infinity",
          b"tru", b"'", b"\xef\xbb\xbf", b"\x00", b"\x0b", b" ", b"e", b"+", b"."]


def number(r):
    kind = r.randrange(8)
    if kind == 0:
        return str(r.randrange(-1000, 1000))
    if kind == 1:
        return repr(r.uniform(-1, 1) * 10.0 ** r.randrange(-300, 300))
    if kind == 2:
        return str(2 ** 53 + r.randrange(-20, 20))
    if kind == 3:
        return str(r.randrange(-10 ** 40, 10 ** 40))
    if kind == 4:
        return r.choice(["1e999", "-1E+999", "1e308", "1.8e308", "1e309", "1e-999", "0e9999", "-0", "0.0", "1E5"])
    if kind == 5:
        return r.choice(["-", ""]) + "".join(r.choice("123456789") for _ in range(r.choice([15, 16, 22, 308, 309, 310])))
    if kind == 6:
        return "%d.%de%d" % (r.randrange(10), r.randrange(10 ** 12), r.randrange(-320, 320))
    return str(10 ** r.randrange(25) * r.randrange(1, 10))


def string(r, odd):
    pieces = [r.choice(ODD) if odd and r.random() < 0.3 else r.choice(PLAIN) for _ in range(r.randrange(4))]
    return b'"' + b"".join(pieces) + b'"'


def value(r, depth, odd):
    space = r.choice(SPACES)
    kind = r.randrange(3 if depth == 0 else 7)
    if kind == 0:
        text = number(r).encode()
    elif kind == 1:
        text = r.choice([b"true", b"false", b"null"])
    elif kind == 2:
        text = string(r, odd)
    elif kind <= 4:
        parts = [value(r, depth - 1, odd) for _ in range(r.randrange(5))]
        text = b"[" + b",".join(parts) + r.choice(SPACES) + b"]"
    else:
        parts = [r.choice(SPACES) + (string(r, odd) if r.random() < 0.7 else b'"k%d"' % r.randrange(6)) +
                 r.choice(SPACES) + b":" + value(r, depth - 1, odd)
                 for _ in range(r.choice([0, 1, 2, 3, 6]) if r.random() < 0.99 else 300)]
        text = b"{" + b",".join(parts) + r.choice(SPACES) + b"}"
    return space + text + r.choice(SPACES)


def document(r):
    text = value(r, r.randrange(5), r.random() < 0.6)
    if r.random() < 0.05:
        text = b"\xef\xbb\xbf" + text
    for _ in range(r.choice([0, 0, 0, 1, 1, 2])):
        at = r.randrange(len(text) + 1)
        if r.random() < 0.5:
            text = text[:at] + r.choice(BREAKS) + text[at:]
        else:
            text = text[:at] + text[at + r.randrange(3):]
    return text


class Number(str):
    """A literal, kept as it stands."""


def refuse(name):
    raise ValueError(name)


LONE = re.compile("[\ud800-\udfff]")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)


def replaced(text):
    # Python joins pairs of escapes itself, so what is left is alone.
    return LONE.sub("\ufffd", text)


def shortest(x):
    """An integral double as ECMAScript writes it below 1e21."""
    digits, _, exponent = repr(x).partition("e")
    if not exponent:
        return str(int(x))
    whole, _, fraction = digits.partition(".")
    return whole + fraction + "0" * (int(exponent) - len(fraction))


def number_flaw(literal):
    x = float(literal)
    if math.isinf(x):
        return True
    if re.search("[.eE]", literal) or len(literal.lstrip("-")) <= 15:
        return False
    return abs(x) >= 1e21 or shortest(x) != literal


def understand(raw):
    """The value, its members in order and the last of a name only, the flaws, and the numbers that become strings;
    ValueError when it is no JSON."""
    turned = []
    if raw.startswith(b"\xef\xbb\xbf"):
        raw = raw[3:]
    flaws = 0
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        flaws |= UTF8
        text = raw.decode("utf-8", errors="replace")

    def pairs(members):
        nonlocal flaws
        result = {}
        for name, v in members:
            name = replaced(name)
            if name in result:
                flaws |= DUPLICATE
                del result[name]
            result[name] = v
        return result

    def literal(text):
        nonlocal flaws
        if number_flaw(text):
            flaws |= NUMBER
        # What ClickHouse's JSON functions take for an integer has 64 bits; more become strings of their digits.
        beyond = not re.search("[.eE]", text) and not -2 ** 63 <= int(text) <= 2 ** 64 - 1
        if beyond or math.isinf(float(text)):
            turned.append(text)
            return text
        return Number(text)

    decoder = json.JSONDecoder(strict=False, object_pairs_hook=pairs, parse_int=literal, parse_float=literal,
                               parse_constant=refuse)
    result = decoder.decode(text)
    for token in TOKEN.findall(text):
        if re.search("[\x00-\x1f]", token):
            flaws |= CONTROL
        if LONE.search(json.loads(token, strict=False)):
            flaws |= SURROGATE
        if re.search(r"(?<!\\)(?:\\\\)*\\u0000", token):
            flaws |= NUL
    return plain(result), flaws, turned


def plain(v):
    """Lone surrogates replaced, members as a list of pairs so that their order counts, numbers told from strings."""
    if isinstance(v, Number):
        return ("number", str(v))
    if isinstance(v, str):
        return replaced(v)
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return ("object", [(name, plain(x)) for name, x in v.items()])
    return v


def strictly(mended):
    """What a strict reader gets of the mended text; repeated names are an error."""
    def pairs(members):
        names = [name for name, _ in members]
        if len(set(names)) != len(names):
            raise ValueError("a name is repeated")
        return dict(members)

    decoder = json.JSONDecoder(strict=True, object_pairs_hook=pairs, parse_int=Number, parse_float=Number,
                               parse_constant=refuse)
    text = mended.decode("utf-8", errors="strict")
    json.loads(text)
    result = decoder.decode(text)
    json.dumps(json.loads(text), allow_nan=False)
    for token in TOKEN.findall(text):
        if LONE.search(json.loads(token)):
            raise ValueError("a lone surrogate")
    return plain(result)


def judge(raw, answer, mended):
    """None, or what is different."""
    try:
        want, flaws, turned = understand(raw)
    except ValueError as error:
        return None if answer == "REFUSED" else f"Python refuses it ({error}), we do not"
    if answer == "REFUSED":
        return "Python takes it, we refuse it"
    if answer != flaws:
        return "flaws %s, want %s" % tuple(
            "+".join(n for bit, n in NAMES.items() if f & bit) or "none" for f in (answer, flaws))
    try:
        got = strictly(mended)
    except ValueError as error:
        return f"a strict reader refuses what we mended: {error}"
    if got != want:
        return f"another value: {got!r} for {want!r}"
    if flaws & ~(NUL | NUMBER) == 0 and not turned and b"e" not in raw.lower() and len(raw) < 300:
        bare = raw[3:] if raw.startswith(b"\xef\xbb\xbf") else raw
        if mended != bare.strip(b" \t\r\n"):
            return "bytes differ where nothing had to be mended"
    return None


def read_answer(stream):
    line = stream.readline().decode().strip()
    if line == "REFUSED":
        return line, b""
    flaws, size = line.split(" ")
    mended = stream.read(int(size))
    if stream.read(1) != b"\n":
        sys.exit("mend-diff: the answers are out of step")
    return int(flaws), mended


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    count = int(sys.argv[2])
    seed = int(os.environ.get("SEED") or time.time())
    r = random.Random(seed)
    documents = [document(r) for _ in range(count)]
    feed = b"".join(b"%d\n%s" % (len(d), d) for d in documents)
    out = subprocess.run([sys.argv[1]], input=feed, stdout=subprocess.PIPE, check=True).stdout
    stream = io.BytesIO(out)
    differences = refused = flawed = 0
    for index, raw in enumerate(documents):
        answer, mended = read_answer(stream)
        refused += answer == "REFUSED"
        flawed += answer not in ("REFUSED", 0)
        what = judge(raw, answer, mended)
        if what is not None:
            differences += 1
            if differences <= 5:
                print(f"document {index}: {what}\n in  {raw[:300]!r}\n out {mended[:300]!r}", file=sys.stderr)
    if stream.read(1):
        sys.exit("mend-diff: more answers than documents")
    # A generator that makes only one kind would compare nothing.
    if count >= 1000 and not (refused > count // 50 and flawed > count // 10 and count - refused - flawed > count // 10):
        sys.exit(f"mend-diff: {refused} refused and {flawed} flawed of {count} documents are no mixture, seed {seed}")
    print(f"mend-diff: {count} documents, {refused} refused, {flawed} flawed, {differences} differences, seed {seed}")
    sys.exit(differences != 0)


if __name__ == "__main__":
    main()
