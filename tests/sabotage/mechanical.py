#!/usr/bin/env python3
"""sabotage-all [PART ...]: every sync, rename, unlink, truncation and error check of journal/ and store/, taken away one at a time.

mutants.py has the protections that somebody thought of; this one finds them in the code, so that none is forgotten:
  calls    os_fsync, os_fdatasync, os_sync_dir, os_rename, os_unlink, os_ftruncate and os_drop_cache are not made, and say 0
  checks   a comparison of a result (`r < 0`, `fd < 0`, `code != 0`, `rc != SQLITE_OK`) is never true; `r == 0` is always true
A mutant is one object, compiled apart and linked in front of the archives; so the tree itself is never touched. The tests that
fit its folder run, the cheapest first and that of its own module before all, until one fails or hangs. What survives is either
in tests/sabotage/equivalent.txt, with the reason why nothing is lost without it, or a test is missing.

  N=60       a sample of that many (default: all)      SEED=1     which ones
  JOBS=2     mutants at a time                         LIST=1     prints them, with what is known of each, and runs nothing
  AGAIN=1    also those whose verdict is in build/mechanical/verdicts (without it a run goes on where the last one ended)
  PART ...   only mutants whose name holds one of these words, e.g. journal/rotate.c, or src/journal+os_ (both of them)
Exit status 1 when fewer than 95 % of the mutants that are not equivalent are killed, or when equivalent.txt names one that is
no more.
"""
import concurrent.futures
import hashlib
import importlib.util
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "mechanical"
BASE = PLACE / "base"
VERDICTS = PLACE / "verdicts"
PASSED = PLACE / "passed"
EQUIVALENT = ROOT / "tests" / "sabotage" / "equivalent.txt"
FOLDERS = ("src/journal", "src/store", "src/store/artifact")
WANTED_PERCENT = 95

CALLS = re.compile(r"\bos_(fsync|fdatasync|sync_dir|rename|unlink|ftruncate|drop_cache)\(")
RESULTS = "r|rc|fd|n|result|code|got|made|listed|renamed|undone|written|turn_code|[a-z]+->(?:fd|code|state_fd)"
CHECKS = re.compile(rf"(?<![\w>.])(?:{RESULTS}) (<|!=|==) (0|SQLITE_OK)\b")
C_TOKENS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

# What runs for a folder, the cheapest first: program, arguments, seconds that it may take when it waits for a busy machine.
def units(layer, names):
    return [(f"unit/{layer}/test_{name}", [], 120) for name in names.split()]


JOURNAL = [
    *units("journal", "recover append rotate open scan read verify damage index index_runs index_summary index_filter streams line"
                      " chain index_threads faults index_memory index_faults segment bytes cut retire rebuild seal"),
    ("crash/crash_faults", ["--step", "16"], 120),
    ("crash/crash_journal", ["--states", "4000", "--minutes", "3"], 240),
    ("crash/crash_rot", ["--step", "499", "--whole", "20"], 120),
    ("crash/crash_faults", ["--step", "5"], 300),
]
STORE = [
    *units("store", "store db queue select receipts schema control delivery verify store_wal verify_flips model paused copy"),
    *units("sink", "runner"),
    ("unit/store/test_store_faults", [], 240),
]
# What the crash states of the queue can tell: 30 seconds of work, for the files that commit.
COMMITS = [("crash/crash_store", ["--states", "1", "--minutes", "3"], 300)]
COMMITTERS = ("store", "turn", "db", "queue_put", "account", "receipts", "receipts_merge", "checkpoint")
ARTIFACT = [
    *units("store", "upload upload_cache upload_open upload_scan delivery delivery_index artifact_verify upload_faults"),
    *units("door", "artifact artifact_clean artifact_faults"),
    *units("main", "deliver"),
    ("crash/crash_artifact", ["--states", "6000", "--minutes", "3"], 240),
]
# Syncs of directories that one file system needs and the model disk does not are seen in traces of the program only.
TRACES = {"src/journal": ["order", "rotation"], "src/store": ["queue order", "queue start"],
          "src/store/artifact": ["artifact order"]}
PLANS = {"src/journal": JOURNAL, "src/store": STORE, "src/store/artifact": ARTIFACT}

spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests" / "sabotage" / "mutants.py")
mutants = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mutants)

TESTS = ""
running = set()
lock = threading.Lock()
stopping = threading.Event()


class Mutant:
    def __init__(self, file, function, text, number, start, end, instead):
        self.file, self.start, self.end, self.instead = file, start, end, instead
        self.is_call = text.startswith("os_")
        self.name = f"{file}:{function}: {text}" + (f" #{number}" if number > 1 else "")
        self.line = 0

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
        out.append(mutant)
    return out


def steps(mutant):
    """The plan of its folder, that of its own module first, and traces last."""
    stem = pathlib.PurePath(mutant.file).stem
    plan = PLANS[mutant.folder] + (COMMITS if mutant.folder == "src/store" and stem in COMMITTERS else [])
    own = [step for step in plan if pathlib.PurePath(step[0]).name in (f"test_{stem}", f"test_{stem.split('_')[0]}")]
    return own + [step for step in plan if step not in own] + (traces(mutant.folder) if mutant.is_call else [])


def traces(folder):
    return [("tallyman", mutants.SUITES[suite][1], 240) for suite in TRACES[folder]]


def all_steps():
    return [step for plan in [*PLANS.values(), COMMITS, *map(traces, TRACES)] for step in plan]


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


def fingerprint(mutant, tree=ROOT):
    """Of the file as it is: a verdict holds for that."""
    return hashlib.sha256((tree / mutant.file).read_bytes()).hexdigest()[:12]


def tests_fingerprint(tree=ROOT):
    """A changed test does not unmake a kill, but it may end a survivor."""
    names = sorted(p for folder in ("tests/unit", "tests/crash", "tests/lib", "tests/blackbox") for p in (tree / folder).rglob("*")
                   if p.suffix in (".c", ".h", ".py"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in names)).hexdigest()[:12]


def settled(mutant, known, tests):
    mark, verdict, _ = known.get(mutant.name, ("", "", ""))
    file, _, its_tests = mark.partition("+")
    return file == fingerprint(mutant) and (verdict == "killed" or its_tests == tests)


def read_verdicts():
    out = {}
    if VERDICTS.exists():
        for line in VERDICTS.read_text().splitlines():
            mark, verdict, by, name = line.split("\t")
            out[name] = (mark, verdict, by)
    return out


# ---- building and running ----

def environment(tallyman=None):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "V", "B", "CC",
                                                            "CFLAGS", "QUICK", "STEP")}
    env.update(SEED="1", STEP="31", PYTHONDONTWRITEBYTECODE="1")
    if tallyman is not None:
        env.update(TALLYMAN=str(tallyman), TALLYMAN_ENGINE="off")
    return env


def python():
    """The first python3 that has pytest: Debian's pytest belongs to Debian's Python."""
    for name in ("/usr/bin/python3", "python3", sys.executable):
        if subprocess.run([name, "-c", "import pytest"], capture_output=True).returncode == 0:
            return name
    sys.exit("sabotage-all: pytest is missing (python3-pytest)")


def command_of(binary, words):
    """A test program, or pytest with the program that it shall test."""
    return [PYTHON if word == "PYTHON" else word for word in words] if binary.name == "tallyman" else [str(binary), *words]


def run(command, limit, log, cwd, tallyman=None):
    """Exit status, or None when it was not done in time. A group of its own, so that nothing outlives it."""
    with open(log, "ab") as out:
        process = subprocess.Popen(command, cwd=cwd, env=environment(tallyman), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
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


def programs():
    return sorted({step[0] for step in all_steps()})


def copy_changed(source, target):
    """Like cp -u: what is there and the same stays, so that it is not built again."""
    if not target.exists() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def prepare():
    """A copy of the tree, built, so that the tree may change meanwhile."""
    wanted = {path.relative_to(ROOT) for name in ("src", "tests") for path in (ROOT / name).rglob("*")
              if path.is_file() and not {"node_modules", "corpus", "__pycache__"} & set(path.parts)}
    wanted.add(pathlib.Path("Makefile"))
    for path in wanted:
        copy_changed(ROOT / path, BASE / path)
    for name in ("src", "tests"):
        for path in list((BASE / name).rglob("*")):
            if path.is_file() and path.relative_to(BASE) not in wanted:
                path.unlink()
    log = PLACE / "base.log"
    log.unlink(missing_ok=True)
    targets = [f"build/{name}" for name in programs()]
    if run(["make", "-s", f"-j{os.cpu_count() or 2}", "CFLAGS=-w", "B=build", *targets], 1200, log, BASE) != 0:
        sys.exit(f"sabotage-all: the tree does not build: {log.read_text()[-2000:]}")
    words = subprocess.run(["make", "-n", "-B", "VERBOSE=1", "CFLAGS=-w", "B=build", *targets], cwd=BASE, env=environment(),
                           capture_output=True, text=True).stdout
    commands = {}
    for line in words.splitlines():
        out = re.search(r" -o (build/\S+)", line)
        if out:
            commands[out.group(1)] = line.strip()
    return commands


def link(commands, program, place):
    """The program with the object of the mutant before the archives: the archives' own is then not taken."""
    target = f"build/{program}"
    words = commands[target].replace(f" -o {target} ", f" -o {place}/{pathlib.PurePath(program).name} {place}/mutant.o ", 1)
    return ["/bin/sh", "-c", words]


def judge(mutant, commands):
    """("killed", by whom) or ("SURVIVED", "") or ("ERROR", why)."""
    place = PLACE / hashlib.sha256(mutant.name.encode()).hexdigest()[:12]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    log = place / "log"
    text = (BASE / mutant.file).read_text()
    (place / "mutant.c").write_text(text[:mutant.start] + mutant.instead + text[mutant.end:])
    target = f"build/obj/{mutant.file[4:-2]}.o"
    compiling = commands[target].replace(f" -c {mutant.file} -o {target}", f" -c {place}/mutant.c -o {place}/mutant.o")
    compiling = compiling.replace(" -MMD -MP", "")
    if run(["/bin/sh", "-c", compiling], 300, log, BASE) != 0:
        return "ERROR", f"does not compile: {log}"
    linked = set()
    for program, words, limit in steps(mutant):
        binary = place / pathlib.PurePath(program).name
        if program not in linked and run(link(commands, program, place), 300, log, BASE) != 0:
            return "ERROR", f"does not link: {log}"
        linked.add(program)
        code = run(command_of(binary, words), limit, log, BASE if program == "tallyman" else place, binary)
        if stopping.is_set():
            raise KeyboardInterrupt
        if code != 0:
            shutil.rmtree(place, ignore_errors=True)
            name = next((n for n, suite in mutants.SUITES.items() if suite[1] is words), " ".join([binary.name, *words]))
            return "killed", name + (" (hangs)" if code is None else "")
    shutil.rmtree(place, ignore_errors=True)
    return "SURVIVED", ""


def control(wanted):
    """The tests that are used pass on the tree as it is; those of a program that have passed once are not asked again."""
    used = {(program, *words) for mutant in wanted for program, words, _ in steps(mutant)}
    passed = set(PASSED.read_text().splitlines()) if PASSED.exists() else set()
    for program, words, limit in all_steps():
        binary = BASE / "build" / program
        key = hashlib.sha256(binary.read_bytes()).hexdigest()[:16] + " " + " ".join([program, *words])
        if key in passed or (program, *words) not in used:
            continue
        if run(command_of(binary, words), limit, PLACE / "base.log", BASE, binary) != 0:
            sys.exit(f"sabotage-all: {program} {' '.join(words)} fails without any sabotage; see {PLACE / 'base.log'}")
        passed.add(key)
        PASSED.write_text("\n".join(sorted(passed)))


def one(mutant, commands):
    began = time.monotonic()
    if stopping.is_set():
        return mutant, "ERROR"
    verdict, by = judge(mutant, commands)
    with lock:
        with open(VERDICTS, "a") as out:
            out.write(f"{fingerprint(mutant, BASE)}+{TESTS}\t{verdict}\t{by}\t{mutant.name}\n")
        print(f"{verdict:<9} {mutant.file}:{mutant.line}: {mutant.name.split(':', 1)[1]}  [{by}] {time.monotonic() - began:.1f} s",
              flush=True)
    return mutant, verdict


def chosen(found, known, equivalent):
    """What is to be run: the sample, less what has a verdict."""
    count = int(os.environ.get("N", "0"))
    wanted = [m for m in found if m.name not in equivalent]
    if sys.argv[1:]:
        wanted = [m for m in wanted if any(all(p in m.name for p in word.split("+")) for word in sys.argv[1:])]
    random.Random(int(os.environ.get("SEED", "1"))).shuffle(wanted)
    wanted = wanted[:count] if count else wanted
    tests = tests_fingerprint()
    fresh = [m for m in wanted if os.environ.get("AGAIN") or not settled(m, known, tests)]
    return wanted, fresh


def tell(wanted, verdicts, equivalent, stale):
    killed = sum(1 for m in wanted if verdicts.get(m.name) == "killed")
    for m in wanted:
        if verdicts.get(m.name) != "killed":
            print(f"not killed: {m.file}:{m.line}: {m.name.split(':', 1)[1]}")
    for name in stale:
        print(f"tests/sabotage/equivalent.txt: no longer in the code: {name}")
    share = 100.0 * killed / len(wanted) if wanted else 100.0
    print(f"seed {os.environ.get('SEED', '1')}, {len(equivalent)} more are equivalent, {share:.1f} % of the others killed")
    print(f"killed {killed} of {len(wanted)}")
    return 0 if share >= WANTED_PERCENT and not stale else 1


def main():
    found = everything()
    equivalent = read_equivalent()
    stale = sorted(set(equivalent) - {m.name for m in found})
    known = read_verdicts()
    if os.environ.get("LIST"):
        for m in found:
            word = f"equivalent: {equivalent[m.name]}" if m.name in equivalent else " ".join(known.get(m.name, ("", "-", ""))[1:])
            print(f"{m.file}:{m.line}: {m.name.split(':', 1)[1]}  [{word}]")
        print(f"{len(found)} mutants")
        return 1 if stale else 0
    wanted, fresh = chosen(found, known, equivalent)
    print(f"{len(found)} mutants, {len(wanted)} wanted, {len(fresh)} to run; seed {os.environ.get('SEED', '1')}", flush=True)
    verdicts = {m.name: known[m.name][1] for m in wanted if m.name in known}
    if fresh:
        global TESTS
        commands = prepare()
        TESTS = tests_fingerprint(BASE)
        control(fresh)
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
            for mutant, verdict in pool.map(lambda m: one(m, commands), fresh):
                verdicts[mutant.name] = verdict
    return tell(wanted, verdicts, equivalent, stale)


def stop(*_):
    stopping.set()
    for pid in list(running):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(1)


PYTHON = python()
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
if __name__ == "__main__":
    sys.exit(main())
