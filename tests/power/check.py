"""One image: mounted, recovered by the binary, compared with what clients had been told by then.

1. The file system replays its own journal.
2. Once the directory had been made, `tallyman verify` finds nothing wrong with it as it lies.
3. The server starts, and becomes ready.
4. History: a beginning of the final one, byte for byte, up to the end of a batch, and not before the last batch that was told. So
   acknowledged events are at the place of their receipts, no batch is half there, and what was refused is not.
5. Queue: every acknowledged event with its id and its bytes, each request whole or not at all, nothing else.
6. Uploads: offsets that were told hold, bytes below them are the client's, receipts that were told are there, byte for byte, with
   the whole file; any other receipt has its file.
7. One more batch is acknowledged, the server is killed, the file system unmounted and mounted again, so that no page cache can speak
   for the device: the second recovery finds all of that unchanged, and the batch. There may be a receipt more: an acceptance that the
   power cut is finished in the background after a start. The server stops cleanly, and verify is content.
"""
import json
import pathlib

from device import mount, umount
from serving import JSON, TUS, Answer, Connection, Server
from workload import queue_rows

NEW = {"batch_id": "after the cut", "source": "new", "events": [{"stream": "s0", "record_key": "k", "kind": "upserted", "payload": 1}]}


class Oracle:
    def __init__(self, known):
        self.known = known
        self.text = known["history"]
        self.lines = [0]
        while self.lines[-1] < len(self.text):
            self.lines.append(self.text.index(b"\n", self.lines[-1]) + 1)
        self.ends = {0, *known["ends"]}

    def at_least(self, flush):
        """The events that must be there."""
        return max((end for stamp, end in self.known["told"] if stamp <= flush), default=0)

    def history(self, text, flush):
        """Returns how many events are there."""
        count = text.count(b"\n")
        assert count < len(self.lines), "there are more events than there ever were"
        assert text == self.text[:self.lines[count]], self.difference(text)
        want = self.at_least(flush)
        assert count >= want, f"{want} events were acknowledged before flush {flush}, {count} are there"
        assert count in self.ends, f"the last batch of the {count} events is not whole"
        return count

    def difference(self, text):
        at = next((i for i, (a, b) in enumerate(zip(text, self.text)) if a != b), min(len(text), len(self.text)))
        return f"the history differs at byte {at}: {text[at:at + 100]}, and not {self.text[at:at + 100]}"

    def queue(self, rows, projects, flush):
        assert projects == 1 or flush < self.known["project"], "the project is gone"
        rest = dict(rows)
        for events, ids, stamp in self.known["requests"]:
            there = [rest.pop(name, None) for name, _ in events]
            if there.count(None) == len(there):
                assert stamp is None or stamp > flush, f"{events[0][0]} was acknowledged at flush {stamp} and is gone at {flush}"
                continue
            assert None not in there, f"half of a request is there: {events[0][0]}"
            assert [text for _, text in there] == [text for _, text in events], "other bytes"
            if ids is not None and (stamp is not None and stamp <= flush):
                assert [n for n, _ in there] == ids, (ids, there)
        assert not rest, f"nobody sent {list(rest)[:3]}"

    def uploads(self, server, flush):
        state, line = {}, Connection(server.socket_path)
        for content, name, told, receipt in self.known["uploads"]:
            offsets = [offset for stamp, offset in told if stamp <= flush]
            if name is None or not offsets:
                continue
            line.request("HEAD", f"/files/{name}", headers=TUS)
            answer = Answer(line.getresponse())
            assert answer.status == 200, f"{name} was there at flush {told[0][0]}, and answers {answer.status} at {flush}"
            offset = int(answer.headers["upload-offset"])
            assert max(offsets) <= offset <= len(content), f"{name}: {max(offsets)} was told, and now {offset}"
            path = server.data / "uploads" / name
            with open(path, "rb") as file:
                assert file.read(offset) == content[:offset], f"{name}: other bytes below {offset}"
            accepted = server.data / "receipts" / f"{name}.json"
            if receipt is not None and receipt[0] <= flush:
                assert accepted.read_bytes() == receipt[1], f"{name}: another receipt"
            assert not accepted.exists() or offset == len(content) == path.stat().st_size, f"{name}: a receipt without its file"
            state[name] = offset
        line.close()
        return state

    def recovered(self, server, flush):
        """Everything that the server has now; judged."""
        count = self.history(self.without_new(server.history()), flush)
        rows, projects = queue_rows(server.data)
        self.queue(rows, projects, flush)
        return {"events": count, "rows": rows, "projects": projects, "uploads": self.uploads(server, flush),
                "receipts": {p.name: p.read_bytes() for p in (server.data / "receipts").iterdir() if not p.name.startswith(".")}}

    @staticmethod
    def without_new(text):
        """Without the batch of step 7, which stands at the end."""
        if b'"batch_id":"after the cut"' in text[text[:-1].rfind(b"\n") + 1:]:
            return text[:text[:-1].rfind(b"\n") + 1]
        return text


def check(oracle, kind, fd, flush, place, binary):
    """Raises when the image in the file does not hold what was promised."""
    place = pathlib.Path(place)
    point = place / "disk"
    point.mkdir(parents=True, exist_ok=True)
    server = Server(point / "data", place / "serve.log", binary)
    mount(kind, fd, point)
    try:
        if flush >= oracle.known["ready"]:
            server.verify()
        server.start()
        first = oracle.recovered(server, flush)
        answer = server.append(json.dumps(NEW).encode())
        assert answer.status == 200 and answer.json["status"] == "committed", answer.body
        receipt = answer.json
        server.kill()
        umount(point)
        mount(kind, fd, point)
        server.start()
        second = oracle.recovered(server, flush)
        assert first["receipts"].items() <= second["receipts"].items(), "a receipt went, or changed"
        for what in ("events", "rows", "projects", "uploads"):
            assert first[what] == second[what], f"the second recovery changed {what}: {first[what]} {second[what]}"
        repeat = server.request("POST", "/v1/events", json.dumps(NEW).encode(), JSON).json
        assert repeat == {**receipt, "status": "duplicate"}, (receipt, repeat)
        assert server.stop() == 0, server.log[-3000:]
        server.verify()
        return first["events"] - oracle.at_least(flush)
    finally:
        server.kill()
        umount(point)
        server.log_path.unlink(missing_ok=True)
