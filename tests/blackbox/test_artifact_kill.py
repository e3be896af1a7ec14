"""kill -9 of the server and of its delivery process while files come in and go out: nothing that was told is taken back.

A round: clients make files, send them in pieces or whole, break off in the middle of a body, go on with what earlier rounds left,
finish some, and ask for receipts again; accepted files are delivered all the time. Then the server is killed, or the delivery
process, or both, in either order, or the server while it stops. The files are judged as they lie; the server is started again, in
some rounds killed while it does so; every offset and receipt that was told is asked for. When the rounds of a directory are over
all uploads are finished, all that is accepted must arrive once, be verified and alone at its destination.

SIGKILL tests the programs, not durability: test_artifact_strace has the order of syncs and answers, tests/crash the power cuts.

ROUNDS (default 75; 6 with QUICK, 10 with a sanitized binary) and SEED, which is printed, come from the environment.
"""
import http.client
import itertools
import os
import random
import shutil
import signal
import socket
import threading
import time

import pytest
from artifact_world import ENV, Artifacts, any_size, content_of
from capture_world import is_alive, wait_gone
from conftest import ROOT
from world import SANITIZED

ROUNDS = int(os.environ.get("ROUNDS") or (6 if os.environ.get("QUICK") else 10 if SANITIZED else 75))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
CLIENTS = 4
ROUNDS_A_DIRECTORY = 25
PAUSE_S = 0.012  # of a client between two requests: what is taken has to be delivered, too
OPEN_MAX = 5     # uploads that a client leaves unfinished
GONE = (OSError, http.client.HTTPException)


class Stopping(Exception):
    """The server says that it stops."""


class Load:
    """The clients of one round. A client ends at the first sign that the server has gone."""

    def __init__(self, world, rng, open_files):
        self.world, self.open_files = world, open_files
        self.stop = threading.Event()
        self.failures = []
        self.threads = [threading.Thread(target=self.run, args=(i, random.Random(rng.getrandbits(64)))) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def run(self, index, rng):
        line = self.world.line(20)
        try:
            for _ in itertools.takewhile(lambda _: not self.stop.is_set(), itertools.count()):
                self.act(line, rng, self.open_files[index])
                time.sleep(rng.uniform(0, 2 * PAUSE_S))
        except (*GONE, Stopping):
            pass  # the server has gone
        except BaseException as failure:  # told by the main thread
            self.failures.append(failure)
        finally:
            line.close()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        if self.failures:
            raise self.failures[0]

    @staticmethod
    def want(answer, status):
        if answer.status == 503 and b"ERR_SERVER_SHUTDOWN" in answer.body:
            raise Stopping
        assert answer.status == status, (answer.status, answer.body)

    def act(self, line, rng, mine):
        world = self.world
        kind = rng.random()
        if kind < 0.12:
            accepted = [file for file in world.files[-200:] if file.receipt is not None]
            if accepted:
                file = rng.choice(accepted)
                world.receipt_is(file, line) if rng.random() < 0.5 else world.head(file, line)
        elif mine and (kind < 0.75 or len(mine) >= OPEN_MAX):
            self.go_on(line, rng, mine, rng.choice(mine))
        else:
            self.begin(line, rng, mine, world.new(content_of(rng, any_size(rng))))

    def begin(self, line, rng, mine, file):
        kind = rng.random()
        if kind < 0.4:  # all at once: an id is heard of with the receipt, or never
            self.want(self.world.create(file, file.content, line), 201)
            assert file.receipt is not None
            return
        part = file.content[:rng.randrange(file.size)] if kind < 0.6 else None
        answer = self.world.create(file, part, line)
        if file.id is not None:
            mine.append(file)
        self.want(answer, 201)
        assert part is None or file.told == len(part)

    def go_on(self, line, rng, mine, file):
        offset = file.told
        if rng.random() < 0.4:
            offset = self.world.head(file, line)
            assert offset is not None, f"{file.id} is gone"
        left = file.size - offset
        kind = rng.random()
        if kind < 0.2 and left > 1:
            self.break_off(file, offset, rng.randint(1, left - 1))
            self.world.head(file, line)
            return
        n = left if kind < 0.45 else rng.randint(1, left) if left > 0 else 0
        answer = self.world.patch(file, offset, file.content[offset:offset + n], line)
        if answer.status == 409:  # a request that was broken off had got further, or is about to end
            return
        self.want(answer, 204)
        assert file.told == offset + n
        if file.receipt is not None:
            mine.remove(file)

    def break_off(self, file, offset, n):
        """The connection ends after n bytes of the body."""
        with socket.create_connection((self.world.server.host, self.world.server.port), 20) as s:
            s.sendall((f"PATCH {file.path} HTTP/1.1\r\nHost: t\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: {offset}\r\n"
                       f"Content-Type: application/offset+octet-stream\r\nContent-Length: {file.size - offset}\r\n\r\n").encode()
                      + file.content[offset:offset + n])


def start_again(world, rng, report):
    """Starts, in one round of four after being killed while starting."""
    if rng.random() < 0.25:
        for _ in range(rng.randint(1, 2)):
            world.server.start(wait=False)
            time.sleep(rng.uniform(0, 0.08))
            world.server.kill()
            report["killed while starting"] += 1
    world.server.start()


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def strike(world, rng, report, victim):
    """Kills what the round is for. Returns whether the server is gone."""
    server = world.server
    deliver = world.deliver_pid()
    if victim == "deliver" and deliver is not None:
        end(deliver)
        report["deliver killed"] += 1
        return False
    if victim == "both" and deliver is not None:
        report["both killed"] += 1
        if rng.random() < 0.5:
            end(deliver)
            server.kill()
        else:
            server.kill()
            if is_alive(deliver):
                end(deliver)
        return True
    if victim == "stopping":
        server.process.send_signal(signal.SIGTERM)
        time.sleep(rng.uniform(0, 0.03))
        report["killed while stopping"] += 1
    report["server killed"] += 1
    server.kill()
    if deliver is not None and rng.random() < 0.7:
        wait_gone(deliver)  # else the next one may find it at work, and try again
    return True


def one_round(world, rng, open_files, victim, report):
    load = Load(world, rng, open_files)
    gone = False
    try:
        if victim in ("deliver", "both"):
            world.wait(world.deliver_pid, what="a delivery process")
        time.sleep(rng.uniform(0.02, 0.3))
        gone = strike(world, rng, report, victim)
        if not gone:
            time.sleep(rng.uniform(0.02, 0.15))  # intake goes on without the deliverer
            assert world.server.process.poll() is None
    finally:
        load.end()
    report["untold receipts"] = world.check_disk()
    world.check_partly_arrived()
    if gone:
        start_again(world, rng, report)
    line = world.line()
    for mine in open_files:
        for file in list(mine):
            offset = world.head(file, line)  # hears() compares it with what was told
            assert offset is not None, f"{file.id} is gone"
            if file.receipt is not None:
                mine.remove(file)
    accepted = [file for file in world.files if file.receipt is not None]
    for file in rng.sample(accepted, min(len(accepted), 15)):
        world.receipt_is(file, line)
    line.close()


def keep_evidence(workdir, number):
    kept = ROOT / "build" / f"artifact-kill-{SEED}-{number}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(workdir, kept, ignore=shutil.ignore_patterns("*.sock"), ignore_dangling_symlinks=True)
    print(f"the directory and the log are kept in {kept}")


# A deliverer that was killed is started again after a second, and by a new server at once: what needs one comes behind a new server.
VICTIMS = ("server", "both", "deliver", "stopping", "both", "server", "deliver", "server", "both", "deliver")


@pytest.mark.parametrize("number", range((ROUNDS + ROUNDS_A_DIRECTORY - 1) // ROUNDS_A_DIRECTORY))
def test_kill_of_server_and_deliverer_takes_nothing_back(number, make_server, workdir, capsys):
    """Proves: whatever is killed while files come in and go out, offsets and receipts that were told hold, receipts have their bytes,
    and each accepted file arrives once, whole, verified, with nothing beside it."""
    rounds = min(ROUNDS_A_DIRECTORY, ROUNDS - number * ROUNDS_A_DIRECTORY)
    rng = random.Random(SEED * 1000 + number)
    report = dict.fromkeys(("server killed", "deliver killed", "both killed", "killed while starting", "killed while stopping",
                            "untold receipts"), 0)
    world = Artifacts(make_server("--min-free-bytes", "1", env=ENV), workdir)
    open_files = [[] for _ in range(CLIENTS)]
    begun = time.monotonic()
    done = 0
    try:
        for done in range(rounds):
            one_round(world, rng, open_files, VICTIMS[done % len(VICTIMS)], report)
        rounds_s = time.monotonic() - begun
        for file in itertools.chain(*open_files):
            world.finish(file)
        world.wait_verified()
        for file in world.files:
            if file.receipt is not None:
                assert world.delivery(file)["state"] == "verified"
        assert world.server.stop() == 0
        world.check_disk()
        world.check_arrived()
        final = world.verify()
        assert final["receipts"] == len(world.receipts()), final
    except BaseException:
        print(f"SEED={SEED}, directory {number}, round {done} ({VICTIMS[done % len(VICTIMS)]})")
        keep_evidence(workdir, number)
        raise
    accepted = sum(file.receipt is not None for file in world.files)
    assert accepted >= rounds // 2, "hardly anything was accepted: hardly anything is proven"
    assert rounds < 10 or all(report[f"{what} killed"] > 0 for what in ("server", "deliver", "both")), report
    with capsys.disabled():
        print(f"\nartifact kill: SEED={SEED} directory={number} rounds={rounds} files={len(world.files)} accepted={accepted} "
              + " ".join(f"{name.replace(' ', '_')}={value}" for name, value in report.items())
              + f" {rounds_s:.0f} s, all {time.monotonic() - begun:.0f} s")
