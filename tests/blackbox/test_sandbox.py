"""The sandbox: that the server and its processes are in it, that what it forbids fails in a real server, that nothing else does,
and that children live and die as they do without it. What it forbids in all: tests/unit/os/test_sandbox.c."""
import base64
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest
from artifact_world import PROJECT, TUS, command_line
from capture_world import children, is_alive
from conftest import BINARY, batch, event, verify
from tracer import Attached, parse, wrapper
from world import SANITIZED, wait_ready

ENV = {"TALLYMAN_ENGINE": "off", "TALLYMAN_DELIVERY_BACKOFF_MS": "100"}


def wait(condition, timeout=60, what="it"):
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.02)
    return value


def state(pid):
    fields = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return int(fields["NoNewPrivs"]), int(fields["Seccomp"])


def child(server, word):
    """The server's child whose command line has the word, or None."""
    for pid in children(server.process.pid):
        if is_alive(pid) and word in command_line(pid):
            return pid
    return None


def deliver_pid(server):
    return child(server, b"\0deliver\0")


def spawner_pid(server):
    return child(server, b"\0serve\0")


def status(server):
    return json.loads(server.cli("status", "--json", check=0).stdout)


@pytest.fixture
def ready(make_server):
    server = make_server(env=ENV)
    wait(lambda: "deliver: ready" in server.log, what="a delivery process")
    return server


def project(server, place):
    """With a directory for its artifacts."""
    place.mkdir()
    server.cli("project", "create", PROJECT, "--sink", "directory", "--directory", str(place), check=0)
    return place


def upload(server, content):
    digest = subprocess.run(["b3sum", "--no-names"], input=content, capture_output=True, check=True).stdout.decode().strip()
    fields = {"project": PROJECT, "filename": "a.bin", "checksum": f"blake3:{digest}"}
    metadata = ",".join(f"{n} {base64.b64encode(v.encode()).decode()}" for n, v in fields.items())
    made = server.request("POST", "/files/", headers={**TUS, "Upload-Length": str(len(content)), "Upload-Metadata": metadata})
    if made.status != 201:
        return made
    path = made.headers["location"]
    return server.request("PATCH", path, content, {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"})


# ---- in it ----

def test_all_processes_are_in_it(ready):
    said = status(ready)["sandbox"]
    assert said == {"wanted": True, "landlock": said["landlock"], "seccomp": True, "detail": ""} and said["landlock"] >= 2
    assert state(ready.process.pid) == (1, 2) and state(deliver_pid(ready)) == (1, 2)
    for task in os.listdir(f"/proc/{ready.process.pid}/task"):
        assert state(f"{ready.process.pid}/task/{task}") == (1, 2), "a thread was made before"
    assert state(spawner_pid(ready)) == (0, 0), "what it starts would inherit"
    for name in ("serve", "deliver"):
        assert f" info {name}: sandbox: Landlock version {said['landlock']}, seccomp" in ready.log


@pytest.mark.parametrize("how", [dict(args=("--no-sandbox",)), dict(env={**ENV, "TALLYMAN_SANDBOX": "off"})])
def test_switched_off(make_server, how):
    server = make_server(*how.get("args", ()), env=how.get("env", ENV))
    pid = wait(lambda: deliver_pid(server))
    wait(lambda: "deliver: ready" in server.log)
    assert state(server.process.pid) == (0, 0) and state(pid) == (0, 0) and spawner_pid(server) is None
    assert status(server)["sandbox"] == {"wanted": False, "landlock": 0, "seccomp": False, "detail": ""}
    assert " sandbox: " not in server.log


def test_a_kernel_without_it(make_server, workdir):
    """The server works all the same, and says what is missing."""
    injects = ("landlock_create_ruleset:error=EOPNOTSUPP", "seccomp:error=EINVAL")
    env = {**ENV, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if SANITIZED else ENV
    server = make_server(env=env, wrapper=wrapper(workdir / "trace", *injects, calls="landlock_create_ruleset,seccomp"))
    said = status(server)["sandbox"]
    assert (said["wanted"], said["landlock"], said["seccomp"]) == (True, 0, False)
    assert said["detail"] == "Landlock: Operation not supported; seccomp: Invalid argument"
    assert "warn serve: the sandbox is not whole: Landlock: Operation not supported" in server.log
    assert server.append(batch("b")).status == 200
    assert server.stop() == 0


# ---- what it forbids ----

def move_out(path, elsewhere):
    """Puts a link in a directory's place that leads out of the data directory."""
    os.rename(path, elsewhere)
    os.symlink(elsewhere, path)


def test_links_out_of_the_data_directory(make_server, workdir):
    """Whoever may write into it plants links: the server follows them nowhere. Without the sandbox it would."""
    for sandbox in (True, False):
        server = make_server(*([] if sandbox else ["--no-sandbox"]), "--generation-bytes", "64KiB", name=f"d{sandbox}", env=ENV)
        project(server, workdir / f"place-{sandbox}")
        assert upload(server, b"before").status == 204
        outside = workdir / f"outside-{sandbox}"
        outside.mkdir()
        for name in ("uploads", "receipts"):
            move_out(server.data / name, outside / name)
        before = sorted(p.name for p in (outside / "uploads").iterdir())
        answer = upload(server, b"behind a link")
        if sandbox:
            assert answer.status in (500, 503), (answer.status, answer.body)
            assert sorted(p.name for p in (outside / "uploads").iterdir()) == before
            assert server.append(batch("b")).status == 200, "the other doors go on"
            assert server.get("/readyz").status == 200
        else:
            assert answer.status == 204


def test_a_link_for_the_next_tail(make_server, workdir):
    """A rotation into a directory that leads out fails before anything is acknowledged, and the journal stays whole."""
    server = make_server("--generation-bytes", "64KiB", env=ENV)
    move_out(server.data / "journal" / "pending", workdir / "pending")
    answered = []
    for n in range(12):
        answer = server.append(batch(f"b{n}", {**event(), "payload": "x" * 9000}))
        answered.append(answer.status)
    assert answered[0] == 200 and answered[-1] == 503 and list((workdir / "pending").iterdir()) == []
    server.kill()
    assert verify(server.data)["events_checked"] >= answered.count(200)


def test_threads_that_began_early_are_in_it(make_server, workdir):
    """The index's thread begins with the journal: it writes nothing behind a link either, and says so."""
    server = make_server("--generation-bytes", "64KiB", env=ENV)
    (workdir / "index").mkdir()
    os.rename(server.data / "index", workdir / "was")
    os.symlink(workdir / "index", server.data / "index")
    for n in range(24):
        assert server.append(batch(f"b{n}", {**event(), "payload": "x" * 9000})).status == 200
    wait(lambda: "index: " in server.log, what="a line of the index")
    assert list((workdir / "index").iterdir()) == [] and server.append(batch("b")).status == 200
    assert server.stop() == 0


def test_clickhouse_of_ones_own_is_reached(make_server):
    """The one port that is named."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(60)
        make_server("--clickhouse-url", f"http://127.0.0.1:{listener.getsockname()[1]}", env=ENV)
        connection, _ = listener.accept()
        connection.close()


# ---- what goes on ----

def test_delivery_to_a_directory_that_is_named_later(ready, workdir):
    """The server and its children run already, and nobody has heard of the place."""
    content = os.urandom(100000)
    place = project(ready, workdir / "later")
    assert upload(ready, content).status == 204
    found = wait(lambda: list(place.rglob("a.bin")), what="the delivery")
    assert found[0].read_bytes() == content


def test_children_are_started_again(ready):
    for _ in range(2):
        pid = wait(lambda: deliver_pid(ready))
        seen = ready.log.count("deliver: ready")
        os.kill(pid, signal.SIGKILL)
        new = wait(lambda: (p := deliver_pid(ready)) and p != pid and p, what="another one")
        wait(lambda: ready.log.count("deliver: ready") > seen)
        assert state(new) == (1, 2)
    assert status(ready)["artifacts"]["deliver"]["state"] == "running"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_nobody_outlives_the_server(ready, end):
    pids = [deliver_pid(ready), spawner_pid(ready)]
    assert all(pids)
    assert getattr(ready, end)() in (0, None)
    wait(lambda: not any(map(is_alive, pids)), what="their end")


def test_a_spawner_that_was_killed(ready):
    """Children that run go on; one that ends is missed, status says so, and the doors stay open."""
    os.kill(spawner_pid(ready), signal.SIGKILL)
    assert is_alive(deliver_pid(ready))
    os.kill(deliver_pid(ready), signal.SIGKILL)
    deliver = wait(lambda: (d := status(ready)["artifacts"]["deliver"]) and "could not be started" in d["detail"] and d)
    assert deliver["state"] == "restarting"
    assert ready.append(batch("b")).status == 200
    assert ready.stop() == 0


def test_tracers_attach_from_outside(ready, workdir):
    with Attached(ready, workdir / "trace") as tracer:
        assert ready.append(batch("b")).status == 200
        wait(lambda: any(c.result == 0 for c in tracer.calls("fdatasync")), what="a sync in the trace")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's cores are as large as its address space")
def test_cores_are_written_as_before(make_server, workdir):
    """Where the operator asks for cores and the kernel puts them into the working directory."""
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    folder = workdir / "cores"
    folder.mkdir()
    server = make_server(env=ENV, wrapper=("sh", "-c", f'ulimit -c unlimited; cd {folder} && exec "$@"', "sh"))
    server.process.send_signal(signal.SIGABRT)
    assert server.process.wait(60) == -signal.SIGABRT
    server.process = None
    if "/" not in pattern and not pattern.startswith("|"):
        assert [p.name for p in folder.iterdir()], f"no core ({pattern})"


def test_a_relative_data_directory(make_server, workdir):
    """Rules are laid on directories, not names."""
    (workdir / "here").mkdir()
    server = make_server(env=ENV, start=False)
    server.data = workdir / "here" / "data"
    command = [BINARY, "serve", "--data", "data", "--listen", "", "--generation-bytes", "64KiB"]
    with open(server.log_path, "ab") as log:
        server.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=server.env,
                                          cwd=workdir / "here")
    wait(lambda: server.data.joinpath("tallyman.sock").exists())
    wait(lambda: server.get("/readyz", unix=True).status == 200)
    for n in range(12):
        assert server.append(batch(f"b{n}", {**event(), "payload": "x" * 9000}), unix=True).status == 200
    assert server.stop() == 0
    assert verify(server.data)["pending_checked"] > 0


def test_the_directory_above_is_synced(make_server, workdir):
    """The journal is made with the sandbox on: the sync of its parent must not be what is forbidden."""
    trace = workdir / "trace"
    server = make_server(env=ENV, wrapper=wrapper(trace, calls="openat,fsync"))
    server.stop()
    opened = [c for c in parse(trace, "openat") if c.args.startswith(f'AT_FDCWD, "{workdir}", ')]
    assert opened and opened[0].result >= 0
    assert any(c.fd == opened[0].result and c.result == 0 and c.begin > opened[0].end for c in parse(trace, "fsync"))
