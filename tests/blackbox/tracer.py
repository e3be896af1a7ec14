"""strace around or onto a server: a trace of its system calls, and calls that fail, lie, dawdle or kill at a chosen count.

wrapper() is for Server(wrapper=...): with -D the server stays our own child, so its process id, its exit code and the signals
sent to it are real. Attached() hooks a running server for a while; leaving it takes the fault away. An inject expression counts
by thread: `when=3` is the third such call of each thread.
"""
import re
import subprocess
import time

LINE = re.compile(r"^(\d+) +([\d.]+) (.*)$")
RESULT = re.compile(r"(.*)\)\s+= (.*)$")
CALLS = ("openat,fadvise64,pread64,pwrite64,fdatasync,fsync,ftruncate,rename,unlink,mkdir,flock,sendmsg,sendto,write,writev,"
         "recvfrom,accept4")


def options(trace, injects, paths, calls, text):
    words = ["strace", "-f", "-ttt", "-v", "-s", str(text), "-o", str(trace), "-e", f"trace={calls}"]
    for path in paths:
        words += ["-P", str(path)]
    for inject in injects:
        words += ["-e", f"inject={inject}"]
    return words


def wrapper(trace, *injects, paths=(), calls=CALLS, text=32):
    """text: bytes of a buffer that the trace shows."""
    return [*options(trace, injects, paths, calls, text), "-D", "-qq"]


class Attached:
    """with Attached(server, trace, "fdatasync:error=EIO"): ... ; paths restrict trace and faults to calls on these files."""

    def __init__(self, server, trace, *injects, paths=(), calls=CALLS):
        self.trace = trace
        self.messages = str(trace) + ".messages"
        self.command = [*options(trace, injects, paths, calls, 32), "-p", str(server.process.pid)]

    def __enter__(self):
        with open(self.messages, "wb") as messages:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stderr=messages)
        end = time.monotonic() + 20
        while b"attached" not in open(self.messages, "rb").read():
            assert self.process.poll() is None and time.monotonic() < end, open(self.messages).read()
            time.sleep(0.005)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()  # what it held is then let go
            self.process.wait(10)
            raise

    def calls(self, *names):
        return parse(self.trace, *names)


class Call:
    """One system call. begin and end are line numbers of the trace: x.end < y.begin means that x had returned before y began."""

    def __init__(self, pid, time_s, name, args, begin):
        self.pid, self.time_s, self.name, self.args, self.begin = pid, time_s, name, args, begin
        self.end = None  # None: never returned
        self.result = None

    @property
    def fd(self):
        return int(re.match(r"\d+", self.args).group())

    @property
    def injected(self):
        return "(INJECTED)" in (self.outcome or "")

    outcome = None

    def close(self, text, line):
        match = RESULT.match(text)
        if not match:
            return
        self.args += match[1]
        self.outcome = outcome = match[2]
        self.end = line
        number = re.match(r"-?\d+", outcome)
        self.result = int(number.group()) if number else None


def parse(trace, *names):
    """Calls in the order in which they began."""
    calls, unfinished = [], {}
    with open(trace, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            match = LINE.match(line)
            if not match:
                continue
            pid, time_s, text = int(match[1]), float(match[2]), match[3]
            resumed = re.match(r"<\.\.\. (\w+) resumed>", text)
            if resumed:
                call = unfinished.pop(pid, None)
                if call is not None:
                    call.close(text[resumed.end():], number)
                continue
            begun = re.match(r"(\w+)\(", text)
            if not begun:
                continue
            call = Call(pid, time_s, begun[1], "", number)
            rest = text[begun.end():]
            if rest.endswith("<unfinished ...>"):
                call.args = rest[:-len("<unfinished ...>")]
                unfinished[pid] = call
            else:
                call.close(rest, number)
            calls.append(call)
    return [call for call in calls if not names or call.name in names]
