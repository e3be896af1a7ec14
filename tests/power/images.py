"""What a power cut may leave of a recorded device: images, made from the base and a log of recorder.c.

A cut is a place in the log. Everything before the last flush in front of it is on the disk; of each 512-byte sector written
since, the old or the new bytes are (the later of two writes may have come and the earlier not).

File systems do not survive every such cut themselves: ext4's superblock has its checksum in the second of its two sectors, and XFS
does not replay its log over a block whose first sector is newer than the log. There the unit of a cut is made a block of 4096 bytes,
which is what most drives write at once (suite.py).
"""
import mmap
import os
import random
import struct

CHUNK = 1 << 16
SECTOR = 512
BLOCK = 4096
HEADER = struct.Struct("=IIQ")
KINDS = {ord("W"): "W", ord("Z"): "Z", ord("F"): "F"}


class Log:
    """The records: (kind, length, offset, where its bytes are in the file), and where flushes stand among them."""

    def __init__(self, path, flushes=None):
        self.records, self.flushes = [], []
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        at, end = 0, len(self.bytes)
        while at < end:
            kind, length, offset = HEADER.unpack_from(self.bytes, at)
            at += HEADER.size
            kind = KINDS[kind]
            if kind == "F":
                self.flushes.append(len(self.records))
            self.records.append((kind, length, offset, at))
            at += length if kind == "W" else 0
        assert at == end, "the log is torn"
        assert flushes in (None, len(self.flushes)), f"{len(self.flushes)} flushes are recorded, {flushes} were counted"


class Cut:
    """Image number N of a seed: how many flushes it holds, and which of the writes since have come. Number -N is what flush N
    promises and nothing more."""

    def __init__(self, log, seed, number):
        self.number, self.unit = number, SECTOR
        if number < 0:
            self.flush, self.how, self.share, self.rng_seed = -number, "nothing", 0, 0
            self.place = log.flushes[self.flush - 1]
            return
        rng = random.Random(f"{seed}/{number}")
        # Half of them among all flushes alike, half where most is written.
        count = len(log.flushes)
        if rng.random() < 0.5:
            self.flush = rng.randrange(count + 1)
            first, last = self.interval(log, self.flush)
            self.place = last if rng.random() < 0.7 else rng.randint(first, last)
        else:
            self.place = rng.randrange(len(log.records))
            self.flush = sum(at < self.place for at in log.flushes)
        self.how = rng.choice(("nothing", "all", "sectors", "sectors", "sectors", "sectors", "requests", "requests"))
        self.share = rng.choice((0.03, 0.3, 0.5, 0.7, 0.97))
        self.rng_seed = rng.getrandbits(64)

    @staticmethod
    def interval(log, flush):
        """The places behind flush number N, up to the next one."""
        first = log.flushes[flush - 1] + 1 if flush > 0 else 0
        last = log.flushes[flush] if flush < len(log.flushes) else len(log.records)
        return first, last

    def __str__(self):
        return f"image {self.number}: flush {self.flush}, record {self.place}, of the rest {self.how} ({self.share}, {self.unit})"


class Builder:
    """Goes through a log once, forward; makes the images of cuts that are asked for in order."""

    def __init__(self, log, base):
        self.log, self.next = log, 0
        with open(base, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            self.disk = mmap.mmap(-1, self.size)
            self.chunks = set()
            at = 0
            while at < self.size:
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:  # no data behind it
                    break
                end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
                self.put(at, os.pread(file.fileno(), end - at, at))
                at = end

    def put(self, offset, data):
        self.disk[offset:offset + len(data)] = data
        self.chunks.update(range(offset // CHUNK, (offset + len(data) - 1) // CHUNK + 1))

    def data(self, record):
        kind, length, _, at = record
        return self.log.bytes[at:at + length] if kind == "W" else bytes(length)

    def durable(self, flush):
        """Brings the disk to what flush number N promises."""
        end = self.log.flushes[flush - 1] if flush > 0 else 0
        assert end >= self.next, "cuts must come in order"
        for record in self.log.records[self.next:end]:
            if record[0] != "F":
                self.put(record[2], self.data(record))
        self.next = max(self.next, end)

    def make(self, cut, fd):
        """Writes the image into the file."""
        self.durable(cut.flush)
        os.ftruncate(fd, 0)
        os.ftruncate(fd, self.size)
        with memoryview(self.disk) as view:
            for first, last in runs(sorted(self.chunks)):
                end = min(last * CHUNK, self.size)
                os.pwrite(fd, view[first * CHUNK:end], first * CHUNK)
        rng = random.Random(cut.rng_seed)
        for record in self.log.records[self.next:cut.place]:
            if record[0] != "F":
                self.beyond(cut, rng, fd, record)

    def beyond(self, cut, rng, fd, record):
        data, offset = self.data(record), record[2]
        if cut.how == "all" or (cut.how == "requests" and rng.random() < cut.share):
            os.pwrite(fd, data, offset)
        elif cut.how == "sectors":
            at = 0
            while at < len(data):
                n = cut.unit - (offset + at) % cut.unit
                if rng.random() < cut.share:
                    os.pwrite(fd, data[at:at + n], offset + at)
                at += n


def runs(numbers):
    """[3, 4, 5, 9] -> (3, 6), (9, 10)"""
    first = last = None
    for n in numbers:
        if last != n:
            if first is not None:
                yield first, last
            first = n
        last = n + 1
    if first is not None:
        yield first, last
