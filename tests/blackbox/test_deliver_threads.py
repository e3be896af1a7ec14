"""`tallyman deliver` with several things under way: what hangs or takes too long, what people ask for, what is told of it.

Threads that hang are stopped from outside (ptrace), as a dead mount stops them: they neither go on nor look whether they should.
"""
import ctypes
import json
import os
import pathlib
import signal

from test_deliver import World, arrived, control, tree, wait, world  # noqa: F401 (fixtures)

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def deliverers(process):
    """Ids of the threads that call adapters."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
    return {int(task.name) for task in tasks if (task / "comm").read_text() == "deliver\n"}


def stop_thread(tid):
    """For good; whoever ends the process has to wait for it, see reap()."""
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        result = LIBC.ptrace(request, ctypes.c_long(tid), None, None)
        assert result == 0, os.strerror(ctypes.get_errno())
    assert os.WIFSTOPPED(os.waitpid(tid, WALL)[1])


def reap(tid):
    while True:
        status = os.waitpid(tid, WALL)[1]
        if os.WIFSIGNALED(status) or os.WIFEXITED(status):
            return


def temp_of(place, a):
    return place / a.id / f".tallyman-{a.package}.part"


def ask(world, name, content="{}\n"):
    folder = world.data / "requests"
    (folder / f".{name}").write_text(content)
    (folder / f".{name}").rename(folder / name)


def test_a_hung_destination_holds_up_its_own_project_only(world):
    """Proves: with a hung thread in every place, other projects' files arrive, packages are built, status says what hangs, the
    process ends in time, and the next one delivers all of it."""
    alpha, beta, gamma = (world.destination(project) for project in ("alpha", "beta", "gamma"))
    process = world.start("--concurrency", "2", "--stuck-ms", "400", "--grace-ms", "300")
    early = world.accept(b"early")[0]
    world.until(early, "verified")
    stopped = wait(lambda: len(both := deliverers(process)) == 2 and both, process)
    for tid in stopped:
        stop_thread(tid)
    try:
        hung_places(world, process, beta)
    finally:
        process.send_signal(signal.SIGTERM)
        for tid in stopped:
            reap(tid)
    assert process.wait(60) == 0
    world.process = None
    assert "is left behind" in world.log
    hung = world.artifacts[1:3]
    assert [world.row(a)[0] for a in hung] == ["sending"] * 2
    world.start()
    world.all_verified()
    assert world.end() == 0
    assert {**tree(alpha), **tree(gamma)} == {k: v for a in world.artifacts if a.project != "beta" for k, v in
                                              arrived(a, "a_file.bin").items()}
    assert world.rows("SELECT count(*) FROM running") == [(0,)]


def hung_places(world, process, beta):
    hung = world.accept(b"hangs") + world.accept(b"hangs too", project="gamma")
    for a in hung:
        assert world.until(a, "sending")[1] == 1
    wait(lambda: world.log.count("hangs since") == 2, process)
    passing = world.accept(*(b"%d" % i for i in range(6)), project="beta")
    behind = world.accept(b"behind")[0]
    for a in passing:
        world.until(a, "verified")
    world.until(behind, "pending")  # built, and it waits
    shown = wait(lambda: (rows := world.rows("SELECT project, task, sink, identifier, stuck FROM running ORDER BY project"))
                 and len(rows) == 2 and rows, world.process)
    assert shown == [("alpha", "send", "directory", hung[0].id, 1), ("gamma", "send", "directory", hung[1].id, 1)]
    assert world.row(behind)[:2] == ("pending", 0)
    assert tree(beta) == {k: v for a in passing for k, v in arrived(a, "a_file.bin").items()}


def test_a_try_that_takes_too_long(world):
    """Proves: a try ends after its time, as a failure with its text, and leaves nothing half done."""
    place = world.destination("alpha")
    a = world.accept(os.urandom(30 * 2**20))[0]
    world.start("--try-ms", "700", injects=["pwrite64:delay_enter=200000"], paths=[temp_of(place, a)])
    world.until(a, "retry_wait")
    assert world.row(a)[2] == "the try took longer than 0 s and was given up"
    assert tree(place) == {}
    assert world.end() == 0
    world.start()
    world.until(a, "verified")
    assert world.row(a)[1] >= 2 and tree(place) == arrived(a, "a_file.bin")
    assert world.end() == 0


def test_deliveries_off(world):
    """Proves: without places to deliver in, packages are built all the same, and wait."""
    place = world.destination("alpha")
    files = world.accept(b"a", b"b")
    world.start("--concurrency", "0")
    for a in files:
        world.until(a, "pending")
        assert (world.data / "packages" / f"{a.package}.plan.json").exists()
    assert world.end() == 0
    assert tree(place) == {}
    assert [world.row(a)[:2] for a in files] == [("pending", 0)] * 2


def test_what_people_ask_for(world):
    """Proves: what is parked is tried again when somebody asks, once, without a restart; what is no request goes away."""
    place = world.destination("alpha")
    a, other = world.accept(b"mine", b"free")
    (place / a.id).mkdir()
    (place / a.id / "a_file.bin").write_bytes(b"them")
    world.start()
    world.until(a, "parked")
    world.until(other, "verified")
    (place / a.id / "a_file.bin").rename(place / "moved away")
    ask(world, f"{a.id}.retry")
    wait(lambda: not any((world.data / "requests").iterdir()), world.process)
    assert world.row(a)[0] != "parked"  # what is asked for is removed when it is done
    assert world.until(a, "verified")[1] == 2
    for name in (f"{other.id}.retry", f"{'0' * 32}.retry", f"{a.id}.riddle", "README"):
        ask(world, name)
    wait(lambda: not any((world.data / "requests").iterdir()), world.process)
    assert f"{'0' * 8} was asked for, and is not known here" in world.log
    assert f"{a.id[:8]}....riddle asks for nothing" in world.log and "README asks for nothing" in world.log
    assert world.row(other)[:2] == ("verified", 1)
    # One that was left while nobody was there.
    (place / "moved away").unlink()
    b = world.accept(b"again")[0]
    (place / b.id).mkdir()
    (place / b.id / "a_file.bin").write_bytes(b"them")
    world.until(b, "parked")
    assert world.end() == 0
    ask(world, f"{b.id}.retry")
    world.start()
    wait(lambda: not any((world.data / "requests").iterdir()), world.process)
    assert world.row(b)[0] in ("parked", "sending", "retry_wait") and world.row(b)[1] >= 1
    assert world.end() == 0


def test_a_person_asks_the_server(make_server, workdir):
    """Proves: what waits for an hour goes at once when it is asked for, and status says meanwhile what is held and why."""
    place = workdir / "place"
    file = workdir / "file.txt"
    file.write_bytes(b"content")
    place.mkdir()
    server = make_server(env={"TALLYMAN_ENGINE": "off"})
    server.cli("project", "create", "demo", "--sink", "directory", "--directory", str(place), check=0)
    place.rmdir()
    id = json.loads(server.cli("put", str(file), "--project", "demo", check=0).stdout)["object_id"]

    def delivery():
        return server.get(f"/api/v1/artifacts/{id}").json["delivery"] or {}

    def held():
        return json.loads(server.cli("status", "--json", check=0).stdout)["artifacts"]["delivery"]

    wait(lambda: delivery().get("state") == "retry_wait")
    status = wait(lambda: (s := held()) and s["holds"] and s)
    assert [(h["scope"], h["key"], h["text"]) for h in status["holds"]] == \
        [("project", "demo", f"the directory {place} is not there")]
    assert status["running"] == [] and status["late"] == 0
    place.mkdir()
    answer = server.request("POST", f"/api/v1/artifacts/{id}/retry", body=b"{}", headers={"Content-Type": "application/json"}, unix=True)
    assert answer.status == 202 and answer.json == {"object_id": id, "asked_for": "retry"}
    wait(lambda: delivery().get("state") == "verified")
    assert delivery()["attempts"] == 2
    wait(lambda: held()["holds"] == [])
    assert list((server.data / "requests").iterdir()) == []
