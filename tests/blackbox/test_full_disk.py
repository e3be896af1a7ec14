"""A file system that is really full, on a small one of its own: mounting needs root, and the tests say so where they cannot."""
import json
import subprocess
import time
import warnings

import pytest
from conftest import replay_all, verify
from world import World, wait_ready

DISK_MIB = 24
GENERATION = ("--generation-bytes", "1MiB")


def run(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60)
    except FileNotFoundError as missing:
        return subprocess.CompletedProcess(words, 127, "", str(missing))


@pytest.fixture(params=["ext4", "tmpfs"])
def small_disk(request, workdir):
    """Mount point of an empty file system of DISK_MIB."""
    point = workdir / "disk"
    point.mkdir()
    if request.param == "tmpfs":
        mounted = run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tallyman-test", str(point))
    else:
        image = workdir / "image"
        with open(image, "wb") as file:
            file.truncate(DISK_MIB << 20)
        mounted = run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        if mounted.returncode == 0:
            mounted = run("mount", "-o", "loop", str(image), str(point))
    if mounted.returncode != 0:
        why = f"NOT TESTED: a full {request.param}: {mounted.stderr.strip()}"
        warnings.warn(why)
        pytest.skip(why)
    yield point
    for _ in range(50):
        if run("umount", str(point)).returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"{point} cannot be unmounted")


@pytest.fixture
def full(small_disk, make_server, workdir):
    world = World(make_server, workdir)
    world.disk = small_disk
    yield world
    world.ledger.close()


def fill(path):
    """Writes a file until there is no space, to the last byte."""
    with open(path, "ab", buffering=0) as file:
        for piece in (1 << 20, 1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\xff" * piece) == piece:
                    pass
            except OSError:
                pass


def append_until_refused(world, size):
    for _ in range(4000):
        sent = world.new(4, size)
        answer = world.ledger.append(world.server, sent)
        if answer.status == 429:
            assert answer.headers["retry-after"] == "60" and answer.json["error"] == "overloaded"
            return sent
        assert answer.status == 200, answer.body
    raise AssertionError("the disk does not get full")


def assert_full_but_alive(world):
    """Nothing is lost, reads go on, the state is named."""
    ready = world.server.get("/readyz")
    assert ready.status == 503 and ready.json["cause"] == "no_space"
    world.history.extend(world.server)
    world.history.settle()
    assert len(replay_all(world.server)) == len(world.history.ids)
    assert verify(world.server.data)["ok"]


def test_L14_L16_L23_a_full_disk(full):
    """Proves: on a full disk appends get 429 and lose nothing, reads go on, a restart (clean or killed) needs no space, and intake comes
    back by itself when space does."""
    ballast = full.disk / "ballast"
    with open(ballast, "wb") as file:
        file.write(b"\xff" * (6 << 20))
    server = full.make(*GENERATION, name=str(full.disk / "data"), start=False)
    server.log_path = full.workdir / "serve.log"
    server.start()
    refused = [append_until_refused(full, 20000)]
    assert_full_but_alive(full)
    for _ in range(3):  # it stays so, whatever is tried
        time.sleep(0.5)
        refused.append(append_until_refused(full, 20000))
    assert_full_but_alive(full)

    for stop in ("stop", "kill", "kill"):
        getattr(server, stop)()
        fill(full.disk / "more ballast")
        report = verify(server.data)
        assert report["ok"] and report["events_checked"] == len(full.history.ids), report
        server.start()
        full.history.extend(server)
        full.history.settle()
        refused.append(append_until_refused(full, 2000))
        assert_full_but_alive(full)

    ballast.unlink()
    (full.disk / "more ballast").unlink()
    wait_ready(server)
    for sent in refused:
        assert full.append(sent).json["status"] == "committed"
    full.history.extend(server)
    full.history.settle()
    assert not full.ledger.open
    full.restart()
    full.history.reread(server)
    assert server.stop() == 0


def test_L14_a_first_start_on_a_full_disk(full):
    """Proves: a start that cannot even make its directory says so and exits 1, and succeeds on the same place when there is space."""
    fill(full.disk / "ballast")
    server = full.make(*GENERATION, name=str(full.disk / "data"), start=False)
    server.log_path = full.workdir / "serve.log"
    server.start(wait=False)
    for _ in range(200):
        if server.process.poll() is not None or "listening" in server.log:
            break
        time.sleep(0.05)
    if server.process.poll() is None:
        # It fits without data: then it must behave like any full server.
        assert full.append(want=429).headers["retry-after"] == "60"
        server.kill()
    else:
        assert server.process.wait(1) == 1
        assert "space" in server.log, server.log
        server.process = None
    (full.disk / "ballast").unlink()
    server.start()
    wait_ready(server)
    full.append()
    full.restart()


def wait_signed(server, timeout=30):
    end = time.monotonic() + timeout
    while server.get("/v1/head").status != 200:
        assert time.monotonic() < end, server.log
        time.sleep(0.05)


def test_a_queue_on_a_full_disk(full):
    """Proves: events are refused with a status that SDKs retry while the disk is full, none that was acknowledged is lost, a server
    that starts on a full disk reads its journal, and the queue is opened and takes events again when there is space."""
    ballast = full.disk / "ballast"
    with open(ballast, "wb") as file:
        file.write(b"\xff" * (6 << 20))
    server = full.make(*GENERATION, "--engine", "off", name=str(full.disk / "data"), start=False)
    server.log_path = full.workdir / "serve.log"
    server.start()
    made = server.request("POST", "/api/v1/projects", b'{"id":"demo"}', {"Content-Type": "application/json"}, unix=True)
    token = made.json["capture_token"]
    full.append()

    def capture(n):
        event = {"event": "e", "distinct_id": "d", "uuid": f"00000000-0000-4000-8000-{n:012}", "properties": {"fill": "x" * 20000}}
        return server.request("POST", "/batch/", json.dumps({"api_key": token, "batch": [event]}).encode())

    taken = 0
    for taken in range(4000):
        answer = capture(taken)
        if answer.status != 200:
            break
    assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1, answer.body
    ready = server.get("/readyz")
    assert ready.status == 503 and ready.json["cause"] == "no_space"

    for stop in ("stop", "kill"):
        getattr(server, stop)()
        (server.data / "head.key").unlink(missing_ok=True)  # nor is there space for another
        fill(full.disk / "more ballast")
        server.start()
        assert server.get("/v1/head").status == 500 and "heads are not signed" in server.log
        assert server.get("/v1/events?limit=1").json["snapshot"]["frontier_event_count"] == 1
        answer = capture(taken)
        assert answer.status == 503 and int(answer.headers["retry-after"]) >= 1, answer.body
        assert server.get("/readyz").status == 503

    ballast.unlink()
    (full.disk / "more ballast").unlink()
    wait_ready(server)
    for n in range(taken + 1):
        assert capture(n).status == 200
    wait_signed(server)
    status = server.request("GET", "/api/v1/projects/demo/status", unix=True).json["delivery"]
    assert status["pending"] == taken + 1
    assert server.stop() == 0
    assert verify(server.data)["ok"]
