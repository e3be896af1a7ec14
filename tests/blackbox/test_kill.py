"""kill -9 under load, again and again on the same directory: nothing acknowledged is lost, nothing is stored twice.

A round: several connections append (single events, pipelined batches, large batches, repeats with the same key, one batch sent by
all of them at once, preconditions, and batches that must be refused); at a random instant the server is killed, in some rounds
while it stops cleanly; `tallyman verify --chain` judges the directory as it lies; the server is started again, in some rounds
killed up to three times while it does so; then the oracle of ledger.py is asked, every batch without an answer is sent again, and
the oracle is asked once more.

SIGKILL tests the program and not durability: the page cache survives it, so a server that never syncs would pass here. What a
power cut leaves is the business of tests/crash (a model disk), the order of syncs and answers that of test_strace.py.

ROUNDS (default 200; 6 with QUICK, 12 with a sanitized binary) and SEED, which is printed, come from the environment;
scripts/kill is for thousands. Two directories, each with its server and clients, are at work at a time: half of a round is waiting.
"""
import concurrent.futures
import http.client
import itertools
import os
import random
import shutil
import signal
import threading
import time

import pytest
from conftest import ROOT, event, verify
from ledger import History, Ledger, Sent, Wire, retry_unknown
from world import SANITIZED

ROUNDS = int(os.environ.get("ROUNDS") or (6 if os.environ.get("QUICK") else 12 if SANITIZED else 200))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
CLIENTS = 6
ROUNDS_A_DIRECTORY = 9
AT_ONCE = 2  # directories
DIRECTORIES = (ROUNDS + ROUNDS_A_DIRECTORY - 1) // ROUNDS_A_DIRECTORY
SIZES = ("64KiB", "256KiB", None, "64KiB", "1MiB", "100000")  # None: the default of 64 MiB
NEVER = "01900000-0000-7000-8000-000000000000"  # no event has this id
RESTART_MS_MAX = 10000  # a loaded machine; what is wanted is 1000, and the slowest is printed


class Load:
    """The clients of one round. Each ends at the first sign that the server has gone."""

    def __init__(self, server, ledger, history, rng, tag):
        self.server, self.ledger, self.history, self.tag = server, ledger, history, tag
        self.snapshots = []
        self.stop = threading.Event()
        self.failures = []
        self.hot = [Sent(self.batch(f"hot{i}", [event(i, stream="hot"), event(i + 1, stream="hot")]))
                    for i in range(4)]
        self.threads = [threading.Thread(target=self.run, args=(self.client, i, random.Random(rng.getrandbits(64))))
                        for i in range(CLIENTS)]
        self.threads.append(threading.Thread(target=self.run, args=(self.watch, 0, None)))
        for thread in self.threads:
            thread.start()

    def batch(self, name, events, source="load", **more):
        return {"batch_id": f"{self.tag}/{name}", "source": source, "events": events, **more}

    def run(self, what, index, rng):
        try:
            what(index, rng)
        except (OSError, http.client.HTTPException):
            pass  # the server has gone
        except BaseException as failure:  # told by the main thread
            self.failures.append(failure)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        if self.failures:
            raise self.failures[0]

    def watch(self, _index, _rng):
        """Remembers heads that were shown."""
        while not self.stop.is_set():
            self.snapshots.append(self.server.get("/v1/events?limit=1", timeout=20).json["snapshot"])
            time.sleep(0.01)

    def client(self, index, rng):
        wire = Wire(self.server, 20)
        try:
            mine = []  # acknowledged batches of this client
            frontier = None
            for n in itertools.takewhile(lambda _: not self.stop.is_set(), itertools.count()):
                kind = rng.random()
                if kind < 0.45:
                    group = [Sent(self.batch(f"{index}.{n}", [self.event(rng, index, n)]))]
                elif kind < 0.60:
                    group = [Sent(self.batch(f"{index}.{n}.{i}", [self.event(rng, index, n)] * rng.randint(1, 3)))
                             for i in range(rng.randint(2, 8))]
                elif kind < 0.72:
                    group = [Sent(self.batch(f"{index}.{n}", [self.event(rng, index, n) for _ in range(rng.randint(2, 60))]))]
                elif kind < 0.74:
                    group = [Sent(self.batch(f"{index}.{n}", [self.event(rng, index, n) for _ in range(rng.randint(200, 900))]))]
                elif kind < 0.84:
                    self.precondition(wire, index, n, rng, frontier, mine)
                    frontier = mine[-1].receipt["last_event_id"]
                    continue
                elif kind < 0.90 and mine:
                    group = rng.sample(mine, min(len(mine), 3))
                elif kind < 0.94:
                    group = [rng.choice(self.hot)]
                elif kind < 0.97 and mine:
                    victim = rng.choice(mine)
                    other = Sent({"batch_id": victim.batch["batch_id"], "source": victim.batch["source"],
                                  "events": [self.event(rng, index, -n)]})
                    self.refused(wire, other, (409, "batch_id_conflict"), conflict=True)
                    continue
                else:
                    bad = {**self.event(rng, index, n), "occurred_at": "2023-02-30T00:00:00Z"}
                    self.refused(wire, Sent(self.batch(f"{index}.{n}", [self.event(rng, index, n), bad])),
                                 (400, "invalid_events"))
                    continue
                mine += [sent for sent in self.exchange(wire, group) if sent not in mine][:50]
        finally:
            wire.close()

    @staticmethod
    def event(rng, index, n):
        size = 10 if rng.random() < 0.8 else rng.randint(100, 6000)
        more = {"occurred_at": "2024-02-29T12:00:00.5Z"} if rng.random() < 0.3 else {}
        return {"stream": f"s{index % 3}", "record_key": f"k{rng.randrange(500)}", "kind": "upserted",
                "payload": {"n": n, "text": "é" * (size // 2), "by": [index, None, True, "\\\"\n"]}, **more}

    def exchange(self, wire, group):
        """Sends all, then reads all answers, which must be receipts."""
        for sent in group:
            self.ledger.sending(sent)
        wire.post(*[sent.body for sent in group])
        for sent in group:
            status, _, answer = wire.answer()
            self.ledger.answered(sent, status, answer)
            assert status == 200, (sent.key, status, answer)
        return group

    def refused(self, wire, sent, want, conflict=False):
        sent.want = want
        self.ledger.sending(sent, conflict)
        wire.post(sent.body)
        status, _, answer = wire.answer()
        self.ledger.answered(sent, status, answer)
        assert (status, answer["error"]) == want, (sent.key, status, answer)

    def precondition(self, wire, index, n, rng, frontier, mine):
        """On a stream of this client and round alone, whose frontier it therefore knows."""
        stream = f"p{index}.{self.tag.replace('/', '.')}"
        if rng.random() < 0.3:
            self.refused(wire, Sent(self.batch(f"{index}.{n}.no", [event(n, stream=stream)], stream_precondition={
                "stream": stream, "expected_frontier": NEVER})), (409, "stream_frontier_conflict"))
        mine += self.exchange(wire, [Sent(self.batch(f"{index}.{n}", [event(n, stream=stream)], stream_precondition={
            "stream": stream, "expected_frontier": frontier}))])


def start_again(server, rng, report):
    """Starts, in one round of three after being killed while starting; the time to readiness of the last start."""
    if rng.random() < 0.33:
        for _ in range(rng.randint(1, 3)):
            server.start(wait=False)
            time.sleep(rng.uniform(0, 0.06))
            server.kill()
            report["killed while starting"] += 1
    begun = time.monotonic()
    server.start(wait=False)
    while True:
        assert server.process.poll() is None, f"the server ended with {server.process.returncode}:\n{server.log[-4000:]}"
        assert time.monotonic() - begun < 30, "the server does not get ready"
        try:
            if server.get("/readyz", timeout=5).status == 200:
                break
        except OSError:
            time.sleep(0.002)
    report["restart ms"].append(1000 * (time.monotonic() - begun))


def end_of_round(server, rng, report):
    """SIGKILL at a random instant; in one round of five while the server stops cleanly."""
    time.sleep(rng.uniform(0.02, 0.6))
    if rng.random() < 0.2:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(rng.uniform(0, 0.03))
        report["killed while stopping"] += 1
    server.kill()


def judge_offline(data, history):
    """The directory as the kill left it: no violation, and nothing of what was shown before is gone."""
    report = verify(data)
    assert report["ok"], report
    assert report["events_checked"] >= len(history.ids), report


def one_round(server, ledger, history, rng, tag, report):
    load = Load(server, ledger, history, rng, tag)
    try:
        end_of_round(server, rng, report)
    finally:
        load.end()
    judge_offline(server.data, history)
    start_again(server, rng, report)
    again, there = retry_unknown(server, ledger, history)
    report["sent again"] += again
    report["were there"] += there
    for snapshot in load.snapshots:
        history.ancestor(snapshot)
    live = verify(server.data)
    assert live["ok"] and live["chain_head"] == history.head, live


def keep_evidence(workdir, number):
    kept = ROOT / "build" / f"kill-{SEED}-{number}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(workdir, kept, ignore=shutil.ignore_patterns("*.sock"))
    print(f"the directory, the ledger and the log are kept in {kept}")


class Directory:
    """A data directory, its server, and what is believed about them."""

    def __init__(self, number, make_server, workdir):
        self.number = number
        self.rounds = min(ROUNDS_A_DIRECTORY, ROUNDS - number * ROUNDS_A_DIRECTORY)
        self.size = SIZES[number % len(SIZES)]
        self.place = workdir / f"{number}"
        self.place.mkdir()
        self.server = make_server(*(["--generation-bytes", self.size] if self.size else []), name=f"{number}/data")

    def run(self):
        """All rounds; a line about them."""
        rng = random.Random(SEED * 1000 + self.number)
        report = {"restart ms": [], "sent again": 0, "were there": 0, "killed while starting": 0, "killed while stopping": 0}
        server, ledger = self.server, Ledger(self.place / "ledger.ndjson")
        history = History(ledger)
        done, begun = 0, time.monotonic()
        try:
            for done in range(self.rounds):
                one_round(server, ledger, history, rng, f"r{done}", report)
            history.reread(server)
            assert server.stop() == 0
            final = verify(server.data)
            assert final["ok"] and final["chain_head"] == history.head and final["remnants"] == [], final
            assert final["events_checked"] == len(history.ids)
        except BaseException:
            print(f"SEED={SEED}, directory {self.number}, round {done}, generations of {self.size or 'the default size'}")
            keep_evidence(self.place, self.number)
            raise
        finally:
            ledger.close()
        slowest = max(report.pop("restart ms"))
        assert slowest < RESTART_MS_MAX
        return (f"kill: SEED={SEED} directory={self.number} generation={self.size or '64MiB'} rounds={self.rounds} "
                f"batches={len(history.batches)} events={len(history.ids)} refused={len(ledger.refusals)} "
                + " ".join(f"{name.replace(' ', '_')}={value}" for name, value in report.items())
                + f" restart_max={slowest:.0f} ms {time.monotonic() - begun:.0f} s")


@pytest.mark.parametrize("first", range(0, DIRECTORIES, AT_ONCE))
def test_kill_under_load_loses_nothing_acknowledged(first, make_server, workdir, capsys):
    """Proves: whenever the process is killed, what was acknowledged is there, once, in order, and a retry settles the rest."""
    directories = [Directory(n, make_server, workdir) for n in range(first, min(first + AT_ONCE, DIRECTORIES))]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = [pool.submit(directory.run) for directory in directories]
    lines = [run.result() for run in runs]
    with capsys.disabled():
        print("\n" + "\n".join(lines))
