"""The run of scripts/power, inside its namespaces."""
import os
import pathlib
import pickle
import queue
import shutil
import subprocess
import threading
import time
import traceback

import check
import device
import eio
import images
import workload
from serving import BINARY

RECORDER = os.path.abspath(os.environ.get("RECORDER", device.ROOT / "build" / "power" / "recorder.so"))
WORKERS = 2
FAILURES_MAX = 5  # after so many the rest would say the same


def wants(chosen, *words):
    """--only names some of what there is; a kind that it does not name at all is wanted whole."""
    kinds = ({"cuts", "eio"}, set(device.SYSTEMS))
    return all(word in chosen.only or not kind & set(chosen.only) for word, kind in zip(words, kinds))


def run(chosen):
    passed = failed = 0
    print(f"power: SEED={chosen.seed} images={chosen.images}", flush=True)
    for kind in device.SYSTEMS:
        for what, function in (("cuts", cuts), ("eio", failing)):
            if wants(chosen, what, kind):
                good, bad = function(chosen, kind)
                passed += good
                failed += bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


# ---- power cuts ----

def cuts(chosen, kind):
    if chosen.record is not None:
        if not (chosen.record / kind).is_dir():
            return 0, 0
        return check_images(chosen, kind, chosen.record / kind)
    place = chosen.inside / kind
    place.mkdir()
    try:
        record(chosen, kind, place)
    except Exception:
        traceback.print_exc()
        print(f"FAILED {kind} workload SEED={chosen.seed}", flush=True)
        return 0, 1
    good, bad = check_images(chosen, kind, place)
    if bad:
        kept = device.ROOT / "build" / "power" / "failed"
        shutil.rmtree(kept / kind, ignore_errors=True)
        (kept / kind).mkdir(parents=True)
        for name in ("base", "log", "known"):
            subprocess.run(["cp", "--sparse=always", str(place / name), str(kept / kind / name)], check=True, timeout=device.STEP_S)
        print(f"one of them again: scripts/power --record {kept.relative_to(device.ROOT)} --only cuts --only {kind} --seed {chosen.seed} --image=N", flush=True)
    shutil.rmtree(place)
    return good, bad


def record(chosen, kind, place):
    begun = time.monotonic()
    device.make_image(kind, place / "base")
    disk = device.Device(kind, place / "base", place / "device", RECORDER, log=place / "log")
    try:
        work = workload.Work(disk, place, f"{chosen.seed}/{kind}", BINARY)
        try:
            known = work.run(chosen.seconds)
        finally:
            work.server.kill()
        disk.umount()
        known["flushes"] = disk.flushes()
    finally:
        disk.close()
    with open(place / "known", "wb") as file:
        pickle.dump(known, file)
    receipts = sum(u[3] is not None for u in known["uploads"])
    print(f"{kind} workload: {len(known['told'])} batches, {known['ends'][-1]} events, {known['refused']} refused, "
          f"{len(known['requests'])} capture requests, {len(known['uploads'])} uploads with {receipts} receipts, "
          f"{known['segments']} segments, {known['flushes']} flushes, {time.monotonic() - begun:.1f} s", flush=True)
    assert all(n >= 3 * least for n, least in zip((len(known["told"]), len(known["requests"]), receipts), workload.LEAST)), \
        "hardly anything happened"


def chosen_cuts(chosen, log):
    if chosen.image is not None:
        return [images.Cut(log, chosen.seed, chosen.image)]
    if chosen.images == "all":
        return [images.Cut(log, chosen.seed, -flush) for flush in range(1, len(log.flushes) + 1)]
    return [images.Cut(log, chosen.seed, number) for number in range(int(chosen.images))]


class Images:
    """The images of one recording, checked by some threads."""

    def __init__(self, chosen, kind, place):
        with open(place / "known", "rb") as file:
            known = pickle.load(file)
        self.kind, self.place, self.base, self.scratch = kind, place, place / "base", chosen.inside / "images"
        self.log = images.Log(place / "log", known["flushes"])
        self.oracle = check.Oracle(known)
        self.cuts = sorted(chosen_cuts(chosen, self.log), key=lambda cut: (cut.flush, cut.place))
        self.todo = queue.SimpleQueue()
        for cut in self.cuts:
            self.todo.put(cut)
        self.failures, self.passed, self.more, self.hurt, self.stopping = [], 0, 0, 0, False
        self.lock = threading.Lock()

    def work(self, index):
        try:
            builder = images.Builder(self.log, self.base)
            fd = os.memfd_create("image")
            try:
                while not self.stopping:
                    try:
                        cut = self.todo.get_nowait()
                    except queue.Empty:
                        return
                    self.one(index, builder, fd, cut)
            finally:
                os.close(fd)
        except BaseException as failure:
            self.failed("the instrument", failure)
            self.stopping = True

    def one(self, index, builder, fd, cut):
        try:
            builder.make(cut, fd)
            more = check.check(self.oracle, self.kind, fd, cut.flush, self.scratch / f"{index}", BINARY)
        except Exception as failure:
            if cut.how == "sectors" and cut.unit == images.SECTOR and self.file_system_is_hurt(index, builder, fd, cut):
                cut.unit = images.BLOCK
                with self.lock:
                    self.hurt += 1
                self.one(index, builder, fd, cut)
            else:
                self.failed(cut, failure)
            return
        with self.lock:
            self.passed += 1
            self.more += more > 0

    def file_system_is_hurt(self, index, builder, fd, cut):
        """Whether the file system cannot be mounted, or its own check finds it damaged when it has replayed its journal."""
        builder.make(cut, fd)
        point = self.scratch / f"{index}" / "disk"
        try:
            device.mount(self.kind, fd, point)
        except device.CannotMount:
            return True
        device.umount(point)
        look = [*device.CHECKS[self.kind], f"/proc/{os.getpid()}/fd/{fd}"]
        return subprocess.run(look, stdin=subprocess.DEVNULL, capture_output=True, timeout=device.STEP_S).returncode != 0

    def failed(self, what, failure):
        with self.lock:
            self.failures.append(what)
            self.stopping = self.stopping or len(self.failures) >= FAILURES_MAX
            print(f"FAILED {self.kind} {what}\n" + "".join(traceback.format_exception(None, failure, failure.__traceback__))[-3000:],
                  flush=True)


def check_images(chosen, kind, place):
    begun = time.monotonic()
    run_of = Images(chosen, kind, pathlib.Path(place))
    threads = [threading.Thread(target=run_of.work, args=(i,)) for i in range(WORKERS)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # signals are heard between two looks
                thread.join(0.2)
    finally:
        run_of.stopping = True
        for thread in threads:
            thread.join()
    seconds = time.monotonic() - begun
    print(f"{kind} cuts: {run_of.passed} images good, {len(run_of.failures)} failed, {run_of.more} with events that nobody had been told "
          f"of, {run_of.hurt} that hurt the file system and were cut in blocks, {seconds:.1f} s, {run_of.passed / seconds:.1f} a second", flush=True)
    assert run_of.failures or run_of.passed == len(run_of.cuts)
    assert run_of.hurt <= 3 + len(run_of.cuts) // 20, "too many file systems were hurt"
    return run_of.passed, len(run_of.failures)


# ---- failing writes ----

def failing(chosen, kind):
    good = bad = 0
    for name, function in eio.CASES.items():
        begun = time.monotonic()
        place = chosen.inside / "eio"
        try:
            note = eio.run(kind, function, place, RECORDER, BINARY)
            good += 1
            print(f"{kind} {name}: {note}, {time.monotonic() - begun:.1f} s", flush=True)
        except Exception:
            bad += 1
            traceback.print_exc()
            print(f"FAILED {kind} {name}", flush=True)
        shutil.rmtree(place, ignore_errors=True)
    return good, bad
