#!/usr/bin/env python3
"""sabotage-all [PART ...]: every sync, rename, unlink, truncation and error check of journal/ and store/, taken away one at a time.

mutants.py has the protections that somebody thought of; this one finds them in the code, so that none is forgotten:
  calls    os_fsync, os_fdatasync, os_sync_dir, os_rename, os_unlink, os_ftruncate and os_drop_cache are not made, and say 0
  checks   a comparison of a result (`r < 0`, `fd < 0`, `code != 0`, `rc != SQLITE_OK`) is never true; `r == 0` is always true
A copy of the tree is built once with all of them inside, asleep; MECHANICAL_MUTANT=NUMBER wakes one. So nothing is compiled for a
mutant. First every test program runs with none awake (the control) and notes which mutants it reaches, and of the checks those
whose result would have been another: only they can make a difference. Then, for each mutant, the programs that it can make a
difference to run, the quickest first, until one fails or hangs. What survives is either in tests/sabotage/equivalent.txt with the
reason why nothing is lost without it, or follows one of the RULES below, or a test is missing.

  N=60       a sample of that many (default: all)      SEED=1     which ones
  JOBS=2     mutants at a time                         LIST=1     what is known of each, and the summary; runs nothing
  AGAIN=1    also those whose verdict is in build/mechanical/verdicts (without it a run goes on where the last one ended)
  SECONDS=3  asks only test programs that take at most so long; who lives through them is counted as not run
  MINUTES=9  begins no mutant after that time: what is left is counted as not run
  PART ...   only mutants whose name holds one of these words, e.g. journal/rotate.c, or src/journal+os_ (both of them);
             -WORD leaves out those that hold it
Exit status 1 when fewer than 95 % of the mutants that are not equivalent are killed, or when equivalent.txt names one that is
no more.
"""
import collections
import concurrent.futures
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "mechanical"
BASE = PLACE / "base"
VERDICTS = PLACE / "verdicts"
NUMBERS = PLACE / "numbers"
PASSED = PLACE / "passed"
CONTROL = PLACE / "control.json"
EQUIVALENT = ROOT / "tests" / "sabotage" / "equivalent.txt"
FOLDERS = ("src/journal", "src/store", "src/store/artifact")
WANTED_PERCENT = 95

# Equivalent by construction: what is looked for in the line, and why it changes nothing that can be seen.
RULES = (
    (r"n < 0 \|\| \(size_t\)n >= sizeof", "snprintf fails with none of our formats; that it was cut is asked beside it"),
    (r"^ensure\(", "an ensure: it says what holds unless there is a bug, and is no handling of an error"),
)

CALLS = re.compile(r"\bos_(fsync|fdatasync|sync_dir|rename|unlink|ftruncate|drop_cache)\(")
RESULTS = "r|rc|fd|n|result|code|got|made|listed|renamed|undone|written|turn_code|[a-z]+->(?:fd|code|state_fd)"
CHECKS = re.compile(rf"(?<![\w>.])\*?(?:{RESULTS}) (<|!=|==) (0|SQLITE_OK)\b")
C_TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

# What may run for a mutant: program, words (NAME=VALUE is environment). Which of them do, and in which order, the control tells.
LAYERS = ("journal", "store", "sink", "door", "main")
CRASH = [
    ("crash/crash_faults", ["--step", "16"]),
    ("crash/crash_faults", ["--step", "5"]),
    ("crash/crash_journal", ["--states", "4000", "--minutes", "3"]),
    ("crash/crash_rot", ["--step", "499", "--whole", "20"]),
    ("crash/crash_store", ["--states", "1", "--minutes", "3"]),
    ("crash/crash_artifact", ["--states", "6000", "--minutes", "3"]),
]
# Syncs of directories that one file system needs and the model disk does not are seen in traces of the program only.
TRACES = ("order", "rotation", "queue order", "queue start", "artifact order")
WORST_SECONDS = 300

spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests" / "sabotage" / "mutants.py")
mutants = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutants)

running = set()
lock = threading.Lock()
stopping = threading.Event()


class Mutant:
    def __init__(self, file, function, text, number, start, end, instead):
        self.file, self.start, self.end, self.instead = file, start, end, instead
        self.is_call = text.startswith("os_")
        self.name = f"{file}:{function}: {text}" + (f" #{number}" if number > 1 else "")
        self.line = 0
        self.code = ""  # its line
        self.id = 0

    @property
    def folder(self):
        return str(pathlib.PurePath(self.file).parent)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def closing(code, at):
    """Position behind the parenthesis that closes the one before `at`."""
    depth = 1
    while depth:
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        at += 1
    return at


def functions(code):
    """Where each function begins, in order: (position, name)."""
    found = []
    for body in re.finditer(r"^\{", code, re.M):
        head = code[:body.start()].rstrip().rsplit("\n\n", 1)[-1].rsplit("}", 1)[-1]
        name = re.search(r"([a-z_][a-z0-9_]*)\(", head)
        if name:
            found.append((body.start(), name.group(1)))
    return found


def find(file):
    """All mutants of one file."""
    text = (ROOT / file).read_text()
    file_hash(file)
    code = C_TOKENS.sub(blank, text)
    heads = functions(code)
    places = [(m.start(), closing(code, m.end()), "0") for m in CALLS.finditer(code)]
    places += [(m.start(), m.end(), "1" if m.group(1) == "==" else "0") for m in CHECKS.finditer(code)]
    seen, out = {}, []
    for start, end, instead in sorted(places):
        inside = [name for at, name in heads if at < start]
        if not inside:
            continue
        words = " ".join(text[start:end].split())
        key = (inside[-1], words)
        seen[key] = seen.get(key, 0) + 1
        mutant = Mutant(file, inside[-1], words, seen[key], start, end, instead)
        mutant.line = text.count("\n", 0, start) + 1
        mutant.code = text.split("\n")[mutant.line - 1].strip()
        out.append(mutant)
    return out


def all_steps():
    units = sorted(p for layer in LAYERS for p in (ROOT / "tests" / "unit" / layer).glob("test_*.c"))
    return [*((str(p.relative_to(ROOT / "tests"))[:-2], ()) for p in units), *((p, tuple(words)) for p, words in CRASH),
            *(("tallyman", tuple(mutants.SUITES[suite][1])) for suite in TRACES)]


def number(found):
    """Numbers stay, so that a new mutant changes one file only."""
    known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for mutant in found:
        mutant.id = known.setdefault(mutant.name, len(known) + 1)
    PLACE.mkdir(parents=True, exist_ok=True)
    NUMBERS.write_text(json.dumps(known))
    if len(known) >= MOST:
        sys.exit(f"sabotage-all: remove {NUMBERS}: it has more names than fit")


def everything():
    return [m for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.c")) for m in find(f"{folder}/{file.name}")]


def read_equivalent():
    """name -> reason"""
    out = {}
    for line in EQUIVALENT.read_text().splitlines():
        if line and not line.startswith("//"):
            name, _, reason = line.partition(" | ")
            out[name.strip()] = reason.strip()
    return out


def by_rule(mutant):
    """The reason why nothing of this kind can be seen, or None."""
    return next((why for pattern, why in RULES if re.search(pattern, mutant.code)), None)


@functools.cache
def file_hash(file):
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]


def fingerprint(mutant):
    """Of its file as it was when it was read: a verdict holds for that."""
    return file_hash(mutant.file)


def killed_before(mutant, known):
    """A changed test does not unmake a kill; what survived is asked again, of the programs that changed."""
    mark, verdict, _ = known.get(mutant.name, ("", "", ""))
    return mark == fingerprint(mutant) and verdict == "killed"


def read_verdicts():
    out = {}
    if VERDICTS.exists():
        for line in VERDICTS.read_text().splitlines():
            mark, verdict, by, name = line.split("\t")
            out[name] = (mark, verdict, by)
    return out


# ---- building and running ----

MOST = 8192
HEADER = """#ifndef MECHANICAL_H
#define MECHANICAL_H
extern int mechanical_awake;
extern volatile unsigned char *mechanical_hits;
static inline int mechanical_call(int id)
{
    mechanical_hits[id] = 1;
    return mechanical_awake == id;
}
static inline int mechanical_check(int id, int is, int instead)
{
    if (is != instead) {
        mechanical_hits[id] = 1;
    }
    return mechanical_awake == id ? instead : is;
}
#endif
"""
# Hits are in a file that all processes of a test share: what a child that is killed has reached counts.
RUNTIME = """#include "base/mechanical.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static unsigned char nobody[%d];
int mechanical_awake;
volatile unsigned char *mechanical_hits = nobody;
__attribute__((constructor)) static void mechanical_begin(void)
{
    const char *awake = getenv("MECHANICAL_MUTANT"), *path = getenv("MECHANICAL_HITS");
    mechanical_awake = awake != NULL ? atoi(awake) : 0;
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof nobody, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) {
        mechanical_hits = map;
    }
    if (fd >= 0) {
        close(fd);
    }
}
""" % MOST


def sabotaged(text, found):
    """The file with all its mutants asleep inside; lines stay where they are."""
    edits = []
    for m in found:
        before = f"(mechanical_call({m.id}) ? 0 : " if m.is_call else f"mechanical_check({m.id}, ("
        edits += [(m.start, 1, before), (m.end, 0, ")" if m.is_call else f") != 0, {m.instead})")]
    for at, _, words in sorted(edits, reverse=True):
        text = text[:at] + words + text[at:]
    return '#include "base/mechanical.h"\n#line 1\n' + text


def environment(program, words=(), mutant=0, hits=None):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "V", "B", "CC",
                                                            "CFLAGS", "QUICK", "STEP", "N", "JOBS", "LIST", "AGAIN")}
    env.update(SEED="1", STEP="31", PYTHONDONTWRITEBYTECODE="1", CMOCKA_TEST_ABORT="1")
    env.update(word.split("=", 1) for word in words if re.match(r"[A-Z]+=", word))
    if program == "tallyman":
        env.update(TALLYMAN=str(BASE / "build" / "tallyman"), TALLYMAN_ENGINE="off")
    if mutant:
        env["MECHANICAL_MUTANT"] = str(mutant)
    if hits:
        env["MECHANICAL_HITS"] = str(hits)
    return env


def python():
    """The first python3 that has pytest: Debian's pytest belongs to Debian's Python."""
    for name in ("/usr/bin/python3", "python3", sys.executable):
        if subprocess.run([name, "-c", "import pytest"], capture_output=True).returncode == 0:
            return name
    sys.exit("sabotage-all: pytest is missing (python3-pytest)")


def run(command, limit, log, cwd, env):
    """Exit status, or None when it was not done in time. A group of its own, so that nothing outlives it."""
    with open(log, "ab") as out:
        process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   start_new_session=True)
        with lock:
            running.add(process.pid)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            with lock:
                running.discard(process.pid)


def run_step(step, limit, log, mutant=0, hits=None):
    """A test program, or pytest with the program that it shall test."""
    program, words = step
    env = environment(program, words, mutant, hits)
    if program == "tallyman":
        return run([PYTHON if word == "PYTHON" else word for word in words], limit, log, BASE, env)
    place = pathlib.Path(tempfile.mkdtemp(dir=PLACE, prefix="run."))
    try:
        return run([str(BASE / "build" / program), *(w for w in words if not re.match(r"[A-Z]+=", w))], limit, log, place, env)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def write_changed(target, content, mode):
    """What is there and the same stays, so that it is not built again."""
    if not target.exists() or target.read_bytes() != content:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)


def prepare(found):
    """A copy of the tree with everything in it, built; the tree may change meanwhile."""
    wanted = {path.relative_to(ROOT) for name in ("src", "tests") for path in (ROOT / name).rglob("*")
              if path.is_file() and not {"node_modules", "corpus", "__pycache__"} & set(path.parts)}
    wanted.add(pathlib.Path("Makefile"))
    by_file = {}
    for mutant in found:
        by_file.setdefault(mutant.file, []).append(mutant)
    for path in wanted:
        content = (ROOT / path).read_bytes()
        if str(path) in by_file:
            content = sabotaged(content.decode(), by_file[str(path)]).encode()
        write_changed(BASE / path, content, (ROOT / path).stat().st_mode)
    for name, content in (("mechanical.h", HEADER), ("mechanical.c", RUNTIME)):
        write_changed(BASE / "src" / "base" / name, content.encode(), 0o644)
        wanted.add(pathlib.Path("src/base") / name)
    for name in ("src", "tests"):
        for path in list((BASE / name).rglob("*")):
            if path.is_file() and path.relative_to(BASE) not in wanted and "__pycache__" not in path.parts:
                path.unlink()
    log = PLACE / "base.log"
    log.unlink(missing_ok=True)
    targets = sorted({f"build/{program}" for program, _ in all_steps()})
    if run(["make", "-s", f"-j{JOBS}", "CFLAGS=-w", "B=build", *targets], 3000, log, BASE, environment("make")) != 0:
        sys.exit(f"sabotage-all: the tree does not build: {log.read_text()[-2000:]}")


def key_of(step):
    """A program as it is built and its words; of pytest's also the tests."""
    program, words = step
    content = (BASE / "build" / program).read_bytes()
    if program == "tallyman":
        content += b"".join(p.read_bytes() for p in sorted((BASE / "tests" / "blackbox").glob("*.py")))
    return hashlib.sha256(content).hexdigest()[:16] + " " + " ".join([program, *words])


def control(found):
    """What each test program takes with no mutant awake, and which mutants it can make a difference to: step -> facts."""
    known = json.loads(CONTROL.read_text()) if CONTROL.exists() else {}
    names = {m.id: m.name for m in found}
    out = {}
    for step in all_steps():
        key = key_of(step)
        if key not in known:
            hits = PLACE / "hits"
            hits.write_bytes(bytes(MOST))
            began = time.monotonic()
            code = run_step(step, WORST_SECONDS, PLACE / "base.log", 0, hits)
            reached = [names[i] for i, hit in enumerate(hits.read_bytes()) if hit and i in names]
            known[key] = {"passes": code == 0, "seconds": time.monotonic() - began, "reached": reached}
            CONTROL.write_text(json.dumps(known))
            print(f"control: {known[key]['seconds']:.1f} s, {len(reached)} mutants: {title(step)}"
                  + ("" if code == 0 else f" FAILS without any sabotage, and is not used: see {PLACE / 'base.log'}"), flush=True)
        if known[key]["passes"]:
            out[step] = dict(known[key], key=key, reached=set(known[key]["reached"]))
    CONTROL.write_text(json.dumps({f["key"]: dict(known[f["key"]]) for f in out.values()}))
    return out


def weigh(steps, known):
    """The first to be asked is the one that may be expected to kill for the fewest seconds, going by what it has killed so far."""
    kills = collections.Counter(by.removesuffix(" (hangs)") for _, verdict, by in known.values() if verdict == "killed")
    for step, facts in steps.items():
        facts["cost"] = facts["seconds"] * (1 + len(facts["reached"])) / (1 + kills[title(step)])


def title(step):
    program, words = step
    return next((n for n, suite in mutants.SUITES.items() if tuple(suite[1]) == words), " ".join([program, *words]))


def judge(mutant, steps, passed):
    """("killed", by whom), ("SURVIVED", "") or ("UNREACHED", ""): no test makes a difference between it and the code."""
    asked = sorted((s for s, facts in steps.items() if mutant.name in facts["reached"]), key=lambda s: steps[s]["cost"])
    quick = [s for s in asked if steps[s]["seconds"] <= LONGEST]
    log = PLACE / f"log.{mutant.id}"
    log.unlink(missing_ok=True)
    for step in quick:
        mark = f"{steps[step]['key']}\t{fingerprint(mutant)}\t{mutant.name}"
        if mark in passed:
            continue
        limit = min(20 + 10 * steps[step]["seconds"], WORST_SECONDS)
        code = run_step(step, limit, log, mutant.id)
        if stopping.is_set():
            raise KeyboardInterrupt
        if code != 0:
            log.unlink(missing_ok=True)
            return "killed", title(step) + (" (hangs)" if code is None else "")
        with lock, open(PASSED, "a") as out:
            out.write(mark + "\n")
    return ("not run" if len(quick) < len(asked) else "SURVIVED" if asked else "UNREACHED"), ""


def one(mutant, steps, passed, until):
    began = time.monotonic()
    if stopping.is_set() or began > until:
        return mutant, "not run"
    verdict, by = judge(mutant, steps, passed)
    with lock:
        if verdict != "not run":
            with open(VERDICTS, "a") as out:
                out.write(f"{fingerprint(mutant)}\t{verdict}\t{by}\t{mutant.name}\n")
        print(f"{verdict:<9} {mutant.file}:{mutant.line}: {mutant.name.split(':', 1)[1]}  [{by}] {time.monotonic() - began:.1f} s",
              flush=True)
    return mutant, verdict


def chosen(found, known, explained):
    """What is to be run: the sample, less what has a verdict."""
    count = int(os.environ.get("N", "0"))
    parts = [p for p in sys.argv[1:] if not p.startswith("-")]
    without = [p[1:] for p in sys.argv[1:] if p.startswith("-")]
    wanted = [m for m in found if not any(w in m.name for w in without)
              and (not parts or any(all(p in m.name for p in part.split("+")) for part in parts))]
    random.Random(int(os.environ.get("SEED", "1"))).shuffle(wanted)
    wanted = wanted[:count] if count else wanted
    fresh = [m for m in wanted if m.name not in explained and (os.environ.get("AGAIN") or not killed_before(m, known))]
    return wanted, fresh


def tell(wanted, verdicts, explained, stale):
    for m in wanted:
        if m.name not in explained and verdicts.get(m.name) != "killed":
            print(f"{verdicts.get(m.name, 'not run'):<9} {m.file}:{m.line}: {m.name.split(':', 1)[1]}")
    for name in stale:
        print(f"tests/sabotage/equivalent.txt: no longer in the code: {name}")
    share, killed, asked = table(wanted, verdicts, explained)
    print(f"seed {os.environ.get('SEED', '1')}, {share:.1f} % of those that were run and change something are killed")
    print(f"killed {killed} of {asked}")
    return 0 if share >= WANTED_PERCENT and not stale else 1


def table(wanted, verdicts, explained):
    """The summary, by folder and in all; what is explained counts as neither killed nor not."""
    print(f"{'folder':<20} {'mutants':>7} {'killed':>7} {'explained':>9} {'survived':>8} {'not run':>7}")
    for folder in [*FOLDERS, "all"]:
        here = [m for m in wanted if folder in ("all", m.folder)]
        words = ["explained" if m.name in explained else verdicts.get(m.name, "not run") for m in here]
        killed, told, unrun = words.count("killed"), words.count("explained"), words.count("not run")
        print(f"{folder:<20} {len(here):>7} {killed:>7} {told:>9} {len(here) - killed - told - unrun:>8} {unrun:>7}")
    asked = len(wanted) - told - unrun
    share = 100.0 * killed / asked if asked else 0.0 if unrun else 100.0
    return share, killed, asked


def main():
    found = everything()
    equivalent = read_equivalent()
    stale = sorted(set(equivalent) - {m.name for m in found})
    explained = {m.name: why for m in found for why in [equivalent.get(m.name) or by_rule(m)] if why}
    known = read_verdicts()
    wanted, fresh = chosen(found, known, explained)
    if os.environ.get("LIST"):
        for m in wanted:
            word = f"equivalent: {explained[m.name]}" if m.name in explained else " ".join(known.get(m.name, ("", "-", ""))[1:])
            print(f"{m.file}:{m.line}: {m.name.split(':', 1)[1]}  [{word}]")
        table(wanted, {m.name: known[m.name][1] for m in wanted if known.get(m.name, ("",))[0] == fingerprint(m)}, explained)
        print(f"{len(wanted)} mutants")
        return 1 if stale else 0
    number(found)
    print(f"{len(found)} mutants, {len(wanted)} wanted, {len(fresh)} to run; seed {os.environ.get('SEED', '1')}", flush=True)
    verdicts = {m.name: "killed" for m in wanted if killed_before(m, known)}
    if fresh:
        os.nice(19)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        prepare(found)
        steps = control(found)
        weigh(steps, known)
        passed = set(PASSED.read_text().splitlines()) if PASSED.exists() else set()
        until = time.monotonic() + 60 * float(os.environ.get("MINUTES", "100000"))
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for mutant, verdict in pool.map(lambda m: one(m, steps, passed, until), fresh):
                verdicts[mutant.name] = verdict
    return tell(wanted, verdicts, explained, stale)


def stop(*_):
    stopping.set()
    for pid in list(running):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(1)


PYTHON = python()
JOBS = int(os.environ.get("JOBS", "2"))
LONGEST = float(os.environ.get("SECONDS", "100000"))
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
if __name__ == "__main__":
    sys.exit(main())
