"""The capture door on a file system that is really full (a small one of its own), and delivery going on there.

The far side is a ClickHouse in the test's memory: what is full is the disk of the queue.
"""
import time

import pytest
from capture_world import Capture, Queue
from conftest import batch
from fake_clickhouse import Error, FakeClickHouse
from test_full_disk import fill, small_disk  # noqa: F401 (a fixture)

SMALL = ("--generation-bytes", "1MiB")


@pytest.fixture
def far():
    with FakeClickHouse() as fake:
        yield fake


@pytest.fixture
def full(small_disk, make_server, workdir, far):  # noqa: F811
    """A server on the small disk, beside some ballast; its far side is down."""
    # More than half of the disk: what the log holds needs as much room again in the database.
    (small_disk / "ballast").write_bytes(b"\xff" * (14 << 20))
    down = [True]
    far.faults = [lambda _: Error(210) if down[0] else None]
    server = make_server(*SMALL, "--clickhouse-url", far.url, name=str(small_disk / "data"), start=False)
    server.log_path = workdir / "serve.log"
    world = Capture(server.start(), workdir)
    world.disk, world.down, world.sink = small_disk, down, far
    yield world
    world.ledger.close()


def put_until_refused(world, size):
    for i in range(4000):
        request = (world.demo.batch, world.demo.v1, world.demo.native)[i % 3](world.items(4, fill="f" * size))
        answer = world.server.request("POST", request.path, request.body, request.headers, unix=request.unix)
        world.ledger.sending(request)
        world.ledger.answered(request, answer.status, answer.body)
        if answer.status != 200:
            assert answer.status == 503 and int(answer.headers["retry-after"]) > 0, (answer.status, answer.body)
            return
    raise AssertionError("the disk does not get full")


def assert_full_but_alive(world):
    ready = world.server.get("/readyz")
    assert ready.status == 503 and ready.json["cause"] == "no_space", ready.body
    world.check_receipts()
    queue = Queue(world.server)
    assert queue.counters() == queue.counted()
    status = world.status()["queue"]
    assert (status["pending"], status["pending_bytes"], status["receipts"]) == queue.counted(), status
    assert not status["poisoned"]
    world.verify()
    world.repeat(world.ledger.acked()[:200])


def wait_ready(world, timeout=20):
    end = time.monotonic() + timeout
    while world.server.get("/readyz").status != 200:
        assert time.monotonic() < end, (world.server.get("/readyz").body, world.status())
        time.sleep(0.05)


def check_far(world):
    """Every acknowledged event is one logical row with its bytes."""
    rows = {(row["project"], row["uuid"]): row for row in world.sink.logical()}
    acked = world.ledger.acked()
    assert set(rows) == {event.key for event in acked}
    for event in acked:
        assert rows[event.key]["properties"] == event.sent[0] and rows[event.key]["event_id"] == event.event_id


def test_a_full_disk_refuses_and_keeps_everything(full):
    """Proves: when the disk of the queue is full events get 503 with nothing of them stored, those acknowledged stay, over restarts that
    are clean or not, and when there is space everything is taken and delivered."""
    put_until_refused(full, 4000)
    assert_full_but_alive(full)
    for _ in range(2):
        time.sleep(0.3)
        put_until_refused(full, 4000)
    assert_full_but_alive(full)
    for stop in ("stop", "kill", "kill"):
        getattr(full.server, stop)()
        fill(full.disk / "more ballast")
        full.verify()
        full.server.start()
        full.check_receipts()
        put_until_refused(full, 1000)
        assert_full_but_alive(full)
    (full.disk / "ballast").unlink()
    (full.disk / "more ballast").unlink()
    full.retry_unknown()
    full.put(1)
    wait_ready(full)
    full.down[0] = False
    full.wait_delivered()
    check_far(full)
    full.server.kill()
    full.verify()
    full.server.start()
    full.repeat(full.ledger.acked())
    assert full.server.append(batch("b")).status == 200


def test_deliveries_of_a_full_disk_wait_for_their_records(full):
    """Proves: on a disk that stays full what is delivered and cannot be recorded is not sent over and over, status says so, nothing is
    lost; and a little space lets the records, the deliveries and intake go on by themselves."""
    put_until_refused(full, 4000)
    fill(full.disk / "more ballast")
    assert_full_but_alive(full)
    full.down[0] = False
    full.wait(lambda: full.sink.rows, what="a delivery")
    time.sleep(3)
    inserts = len([insert for insert in full.sink.inserts if insert.committed])
    time.sleep(3)
    assert len([insert for insert in full.sink.inserts if insert.committed]) == inserts <= 8, inserts
    assert_full_but_alive(full)
    assert full.status()["queue"]["pending"] > 0
    assert "recorded" in full.delivery()["error"], full.delivery()
    (full.disk / "ballast").unlink()
    full.wait_delivered()
    full.retry_unknown()
    full.put(50)
    wait_ready(full)
    full.wait_delivered()
    check_far(full)
    full.verify()
