"""Block devices whose every request is recorded, or that fail, and file systems on them.

    recorder.c in nbdkit  ->  nbdfuse  ->  loop  ->  ext4 or XFS

Everything runs in a process namespace and two mount namespaces of its own (enter(), mounts_apart()): when its first process ends,
however it ends, the kernel ends all others and takes every mount away, and loop devices detach themselves with their last user.
Nothing can be left behind. The orderly way down is gone first all the same.

nbdkit, nbdfuse and the FUSE mount live in the outer mount namespace, the file systems on top and everybody who works on them in the
inner one. In one and the same, nbdfuse could be the last to leave when all are killed: it would have to unmount, with its own last
thread, a file system that waits for nbdfuse to write its pages, for ever.
"""
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP_S = 60  # the longest that any step may take on a busy machine
PROGRAMS = {"nbdkit": "nbdkit", "nbdfuse": "libnbd-bin", "fusermount3": "fuse3", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs", "xfs_repair": "xfsprogs", "e2fsck": "e2fsprogs",
            "unshare": "util-linux", "fallocate": "util-linux", "umount": "mount", "b3sum": "b3sum"}
MIB = 1 << 20
SYSTEMS = {
    "ext4": (64 * MIB, ["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
             "data=ordered"),
    # The smallest XFS that mkfs makes; it is sparse. All images have one UUID, and two may be mounted at a time.
    "xfs": (300 * MIB, ["mkfs.xfs", "-q", "-f"], "nouuid"),
}
CHECKS = {"ext4": ["e2fsck", "-fn"], "xfs": ["xfs_repair", "-n", "-f"]}

LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
LO_FLAGS_DIRECT_IO = 16
PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x00020000
MS_REC = 0x4000
MS_SLAVE = 1 << 19
MS_SHARED = 1 << 20


class CannotMount(Exception):
    pass


libc = ctypes.CDLL(None, use_errno=True)


def missing():
    """What this machine has not got, or None."""
    if os.geteuid() != 0:
        return "root"
    for path in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(path):
            return path
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{program} (package {package})"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs", "none", "/mnt"],
                           capture_output=True, text=True, timeout=STEP_S)
    if probe.returncode != 0:
        return f"right to mount: {probe.stderr.strip()}"
    known = pathlib.Path("/proc/filesystems").read_text().split()
    for kind in ("fuse", *SYSTEMS):
        if kind not in known and subprocess.run(["modprobe", kind], capture_output=True, timeout=STEP_S).returncode != 0:
            return f"{kind} in the kernel"
    try:
        with open("/dev/loop-control", "rb") as control:
            free = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
    except OSError as error:
        return f"loop device: {error}"
    return None if os.path.exists(f"/dev/loop{free}") else f"/dev/loop{free}"


def enter(command):
    """Runs the command in namespaces of its own and returns its exit status; whatever happens, nothing of it is left."""
    process = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
                                *command], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def stop(number, _frame):
        # The first process of a namespace gets the signal from here, as unshare keeps it to itself.
        for child in children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        signal.signal(number, signal.SIG_IGN)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()


outer_mounts = None


def mounts_apart():
    """Leaves the outer mount namespace, whose mounts are seen in here from now on, but not the other way round."""
    global outer_mounts
    outer_mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    for step in (lambda: libc.mount(None, b"/", None, MS_REC | MS_SHARED, None),
                 lambda: libc.unshare(CLONE_NEWNS),
                 lambda: libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None)):
        if step() != 0:
            raise OSError(ctypes.get_errno(), "a namespace for mounts")


def in_outer():
    """For a child that is about to become another program."""
    if libc.setns(outer_mounts, CLONE_NEWNS) != 0:
        os._exit(127)


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def children(pid):
    with contextlib.suppress(OSError):
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def wait_for(condition, what, limit_s=STEP_S):
    end = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not in {limit_s} s")
        time.sleep(0.002)


def make_image(kind, path):
    size, command, _ = SYSTEMS[kind]
    with open(path, "wb") as file:
        file.truncate(size)
    for words in (command, ["fallocate", "--dig-holes"]):
        subprocess.run([*words, str(path)], check=True, timeout=STEP_S, capture_output=True)


def attach(fd, direct):
    """A loop device on an open file: the path, and a descriptor that keeps it until it is mounted."""
    info = bytearray(232)
    struct.pack_into("=I", info, 52, LO_FLAGS_AUTOCLEAR | (LO_FLAGS_DIRECT_IO if direct else 0))
    config = bytearray(struct.pack("=II", fd, 512) + bytes(info) + bytes(64))
    with open("/dev/loop-control", "rb") as control:
        end = time.monotonic() + STEP_S
        while True:
            path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, LOOP_CONFIGURE, config)
                return path, device
            except OSError as error:  # somebody else was quicker
                os.close(device)
                if error.errno != errno.EBUSY or time.monotonic() > end:
                    raise


def mount(kind, fd, point, direct=False):
    path, device = attach(fd, direct)
    try:
        if libc.mount(path.encode(), str(point).encode(), kind.encode(), 0, SYSTEMS[kind][2].encode()) != 0:
            number = ctypes.get_errno()
            raise CannotMount(f"{kind} cannot be mounted: {os.strerror(number)}")
    finally:
        os.close(device)


def umount(point):
    def once():
        if libc.umount2(str(point).encode(), 0) == 0:
            return True
        number = ctypes.get_errno()
        if number == errno.EINVAL:  # nothing is mounted there
            return True
        if number != errno.EBUSY:
            raise OSError(number, os.strerror(number), str(point))
        return False
    wait_for(once, f"unmounting {point}")


class Device:
    """A recording (log) or failing (error, deaf: files whose presence makes writes or flushes fail) device with a file system."""

    def __init__(self, kind, base, place, recorder, log=None, error=None, deaf=None):
        self.kind, self.place, self.processes = kind, pathlib.Path(place), []
        self.place.mkdir(parents=True, exist_ok=True)
        self.fuse, self.point = self.place / "fuse", self.place / "disk"
        self.fuse.mkdir()
        self.point.mkdir()
        self.counter_path = self.place / "flushes"
        self.socket = self.place / "nbd"
        words = [str(recorder), f"base={base}", f"counter={self.counter_path}"]
        words += [f"log={log}"] if log else []
        words += [f"deaf={deaf}"] if deaf else []
        words += ["error-pwrite=EIO", "error-pwrite-rate=100%", f"error-pwrite-file={error}"] if error else []
        try:
            self.run(["nbdkit", "-f", "-U", str(self.socket), *(["--filter=error"] if error else []), *words])
            wait_for(lambda: self.alive() and self.socket.exists(), "nbdkit")
            self.run(["nbdfuse", str(self.fuse), f"nbd+unix:///?socket={self.socket}"])
            wait_for(lambda: self.alive() and (self.fuse / "nbd").exists(), "nbdfuse")
            with open(self.counter_path, "rb") as file:
                self.counter = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
            self.mount()
        except BaseException:
            self.close()
            raise

    def run(self, command):
        with open(self.place / "log", "ab") as log:
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=in_outer))

    def alive(self):
        for process in self.processes:
            assert process.poll() is None, f"{process.args[0]} has ended:\n{(self.place / 'log').read_text()}"
        return True

    def flushes(self):
        return struct.unpack("=Q", self.counter[:8])[0]

    def mount(self):
        fd = os.open(self.fuse / "nbd", os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
        try:
            mount(self.kind, fd, self.point, direct=True)
        finally:
            os.close(fd)

    def umount(self):
        umount(self.point)

    def close(self):
        """In the order in which things stand on each other. Whatever fails, what is below is ended, too."""
        failure = None
        for step in (self.umount, self.umount_fuse, self.end):
            try:
                step()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def umount_fuse(self):
        """The loop device lets go of its file a moment after the file system has gone."""
        def once():
            if not os.path.ismount(self.fuse):
                return True
            subprocess.run(["umount", str(self.fuse)], preexec_fn=in_outer, capture_output=True, timeout=STEP_S)
            return False
        wait_for(once, f"unmounting {self.fuse}")

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(STEP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def stop_on_signals():
    """In the first process of a namespace, which the kernel spares signals that it has no handler for."""
    def stop(_number, _frame):
        raise KeyboardInterrupt
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    sys.dont_write_bytecode = True
