"""kill -9 of server and engine under load: what was acknowledged is one logical row in the end, whatever was killed when.

A round: clients send events in every dialect (single ones, batches, repeats with other bytes, one identity sent by all of them at
once), small delivery batches make many inserts, and the engine's owner has it merge all the time. Then the server is killed, or
the engine, or both. `tallyman verify` judges the files as they lie; the server is started again, in some rounds killed while it
does so; the receipts in the database are compared with the ledger, every request without an answer is sent again, and identities
of earlier rounds are asked for their ids. When the rounds of a directory are over, all that is queued is delivered, and the
engine's rows are compared with the ledger, one by one.

SIGKILL tests the programs, not durability: see test_capture_strace for the order of syncs and answers, tests/crash for power cuts.

ROUNDS (default 50; 6 with QUICK, 12 with a sanitized binary) and SEED, which is printed, come from the environment.
"""
import http.client
import itertools
import os
import random
import shutil
import signal
import threading
import time

import pytest
from capture_world import Capture, is_alive, wait_gone
from conftest import ROOT
from world import SANITIZED

ROUNDS = int(os.environ.get("ROUNDS") or (6 if os.environ.get("QUICK") else 12 if SANITIZED else 50))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
CLIENTS = 4
ROUNDS_A_DIRECTORY = 10
PAUSE_S = 0.03  # of a client between two requests: what is taken has to be delivered, too
BATCH_ROWS = "60"
GONE = (OSError, http.client.HTTPException)


class Load:
    """The clients of one round, and the owner who merges. A client ends at the first sign that the server has gone."""

    def __init__(self, world, rng, tag):
        self.world, self.tag = world, tag
        self.stop = threading.Event()
        self.failures, self.merges, self.torn_merges = [], 0, 0
        self.hot = [world.ledger.event(world.demo) for _ in range(4)]
        self.threads = [threading.Thread(target=self.run, args=(self.client, i, random.Random(rng.getrandbits(64))))
                        for i in range(CLIENTS)]
        self.threads.append(threading.Thread(target=self.run, args=(self.owner, 0, random.Random(rng.getrandbits(64)))))
        for thread in self.threads:
            thread.start()

    def run(self, what, index, rng):
        try:
            what(index, rng)
        except GONE:
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

    def owner(self, _index, rng):
        """Has parts merged, all the time; a merge is torn when the engine goes while it runs."""
        while not self.stop.is_set():
            try:
                self.world.far.ask("OPTIMIZE TABLE tallyman.events_v2" + rng.choice((" FINAL", "")))
                self.merges += 1
            except (ConnectionRefusedError, FileNotFoundError):
                pass  # there is no engine now
            except GONE:
                self.torn_merges += 1
            except AssertionError as refused:
                # One that ends gives up its merges and says so.
                assert "ABORTED" in str(refused) or "Code: 236" in str(refused), refused
            self.stop.wait(rng.uniform(0, 0.03))

    def client(self, index, rng):
        world = self.world
        lines = {unix: world.connection(unix, 20) for unix in (False, True)}
        mine = []
        try:
            for n in itertools.takewhile(lambda _: not self.stop.is_set(), itertools.count()):
                project = rng.choice(list(world.projects.values()))
                kind = rng.random()
                if kind < 0.45:
                    events = [self.event(project, index, n, 0, rng)]
                elif kind < 0.75:
                    events = [self.event(project, index, n, i, rng) for i in range(rng.randint(2, 12))]
                elif kind < 0.80:
                    events = [self.event(project, index, n, i, rng) for i in range(rng.randint(50, 150))]
                elif kind < 0.90 and mine:  # what this client knows to be stored, with other bytes
                    project, known = rng.choice(mine)
                    events = rng.sample(known, min(len(known), 5))
                else:
                    project, events = world.demo, [rng.choice(self.hot)]
                if len({bool(event.message_id) for event in events}) > 1:
                    events = events[:1]
                request = project.any(rng, [(event, self.payload(rng, index, n)) for event in events])
                status, body = world.send(request, lines[request.unix])
                assert status == 200, (request.path, status, body)
                mine = [*mine[-20:], (project, events)]
                time.sleep(rng.uniform(0, 2 * PAUSE_S))
        finally:
            for line in lines.values():
                line.close()

    def event(self, project, index, n, i, rng):
        message_id = f"{self.tag}/{index}.{n}.{i}" if i == 0 and n % 4 == 0 and rng.random() < 0.5 else ""
        return self.world.ledger.event(project, message_id=message_id)

    @staticmethod
    def payload(rng, index, n):
        size = 10 if rng.random() < 0.8 else rng.randint(100, 4000)
        return ('{"n":%d, "by":[%d,null,true,"\\"\\\\\\n"],"big":18446744073709551615,"f":1.50e+2,"text":"%s\\u00e9 %s"}'
                % (n, index, "é" * (size // 2), rng.getrandbits(64)))


def start_again(world, rng, report):
    """Starts, in one round of four after being killed while starting."""
    if rng.random() < 0.25:
        for _ in range(rng.randint(1, 2)):
            world.server.start(wait=False)
            time.sleep(rng.uniform(0, 0.08))
            world.server.kill()
            report["killed while starting"] += 1
    world.server.start()


def strike(world, rng, report, victim):
    """Kills what the round is for. Returns whether the server is gone."""
    engine = world.engine_pid()
    server = world.server
    if victim == "engine" and engine is not None:
        os.kill(engine, signal.SIGKILL)
        report["engine killed"] += 1
        return False
    if victim == "both" and engine is not None:
        report["both killed"] += 1
        if rng.random() < 0.5:
            os.kill(engine, signal.SIGKILL)
            server.kill()
        else:
            server.kill()
            if is_alive(engine):
                os.kill(engine, signal.SIGKILL)
        return True
    if victim == "stopping":
        server.process.send_signal(signal.SIGTERM)
        time.sleep(rng.uniform(0, 0.05))
        report["killed while stopping"] += 1
    report["server killed"] += 1
    server.kill()
    if engine is not None and rng.random() < 0.5:
        wait_gone(engine)
    return True


def one_round(world, rng, tag, victim, report):
    load = Load(world, rng, tag)
    try:
        if rng.random() < 0.8:
            world.wait_connected()
        time.sleep(rng.uniform(0.02, 0.6))
        gone = strike(world, rng, report, victim)
        if not gone:
            time.sleep(rng.uniform(0.02, 0.2))  # intake goes on without the engine
            assert world.server.process.poll() is None
    finally:
        load.end()
    report["merges"] += load.merges
    report["torn merges"] += load.torn_merges
    world.verify()
    if gone:
        start_again(world, rng, report)
    again, there = world.retry_unknown()
    report["sent again"] += again
    report["were there"] += there
    acked = world.ledger.acked()
    world.repeat(rng.sample(acked, min(len(acked), 200)))


def keep_evidence(workdir, number):
    kept = ROOT / "build" / f"capture-kill-{SEED}-{number}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(workdir, kept, ignore=shutil.ignore_patterns("*.sock"), ignore_dangling_symlinks=True)
    print(f"the directory, the ledger and the log are kept in {kept}")


# Engine-only kills are not in a row: each makes the supervisor wait longer.
VICTIMS = ("server", "engine", "both", "server", "stopping", "engine", "both", "server", "engine", "both")


@pytest.mark.parametrize("number", range((ROUNDS + ROUNDS_A_DIRECTORY - 1) // ROUNDS_A_DIRECTORY))
def test_kill_of_server_and_engine_loses_and_doubles_nothing(number, make_server, workdir, capsys):
    """Proves: whatever is killed in intake, insert or merge, each acknowledged event is one logical row with its first bytes and the id
    that was told, and a retry settles the rest."""
    rounds = min(ROUNDS_A_DIRECTORY, ROUNDS - number * ROUNDS_A_DIRECTORY)
    rng = random.Random(SEED * 1000 + number)
    report = dict.fromkeys(("server killed", "engine killed", "both killed", "killed while starting", "killed while stopping", "merges",
                            "torn merges", "sent again", "were there"), 0)
    server = make_server("--delivery-batch-events-max", BATCH_ROWS)
    world = Capture(server, workdir, "demo", "other")
    begun = time.monotonic()
    done = 0
    try:
        for done in range(rounds):
            one_round(world, rng, f"r{done}", VICTIMS[done], report)
        world.wait_connected()
        world.wait_delivered(120)
        seen = world.check_rows()
        world.repeat(world.ledger.acked())
        physical = world.far.physical()
        assert server.stop() == 0
        final = world.verify()
        assert final["queue"]["events"] == 0 and final["queue"]["receipts"] == len(seen), final
    except BaseException:
        print(f"SEED={SEED}, directory {number}, round {done} ({VICTIMS[done]})")
        keep_evidence(workdir, number)
        raise
    finally:
        world.ledger.close()
    assert report["merges"] > 0
    report["torn inserts"] = server.log.count("no whole answer")  # as far as the server lived to tell
    with capsys.disabled():
        print(f"\ncapture kill: SEED={SEED} directory={number} rounds={rounds} events={len(seen)} physical={physical} "
              + " ".join(f"{name.replace(' ', '_')}={value}" for name, value in report.items())
              + f" {time.monotonic() - begun:.0f} s")
