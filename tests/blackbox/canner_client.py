"""Speaks to the artifact door as Canner's Go client does, and as Go's net/http puts it on the wire.

The order of its requests, its retries and waits are those of the contract (spec/artifacts.md section 13). As Go's
transport it keeps its connection, looks for the answer while it sends, stops sending when one comes, and takes a failed
write for a lost connection even when an answer would have followed.

As a program: canner_client.py resume SESSION.json FILE goes on with an upload in a process of its own, and prints the
receipt.
"""
import base64
import email.utils
import http.client
import json
import re
import select
import socket
import subprocess
import sys
import time
import urllib.parse

PIECE_BYTES = 32 * 1024
ERROR_BODY_BYTES = 64 * 1024
RECEIPT_KEYS = ["id", "issuer", "object_id", "checksum", "size_bytes", "accepted_at"]


class TransportError(Exception):
    """No answer came."""


class HTTPError(Exception):
    """An answer that the client does not go on from."""

    def __init__(self, answer):
        self.status = answer.status
        self.body = answer.body[:ERROR_BODY_BYTES].decode(errors="replace").strip()
        self.retry_after = answer.headers.get("retry-after")
        super().__init__(f"{self.status}: {self.body}")


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()
        self.stays = not response.will_close


class Transport:
    """One connection, kept while the server keeps it."""

    def __init__(self, timeout):
        self.timeout = timeout
        self.sock = None

    def close(self):
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def _idle_is_dead(self):
        return self.sock is not None and select.select([self.sock], [], [], 0)[0]

    def request(self, method, url, headers, body=None, size=0):
        """body: a file at the place to send from; size: how much of it."""
        if self._idle_is_dead():
            self.close()
        reused = self.sock is not None
        try:
            return self._once(method, url, headers, body, size)
        except TransportError:
            if not reused or method not in ("GET", "HEAD"):
                raise
            return self._once(method, url, headers, body, size)

    def _once(self, method, url, headers, body, size):
        try:
            if self.sock is None:
                self.sock = socket.create_connection((url.hostname, url.port or 80), self.timeout)
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.sendall(self._head(method, url, headers, body, size))
            complete = self._send(body, size)
            response = http.client.HTTPResponse(self.sock, method=method)
            response.begin()
            answer = Answer(response)
            response.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise TransportError(f"{method} {url.path}: {error!r}") from error
        if not complete or not answer.stays:
            self.close()
        return answer

    @staticmethod
    def _head(method, url, headers, body, size):
        lines = [f"{method} {url.path} HTTP/1.1", f"Host: {url.netloc}", "User-Agent: Go-http-client/1.1"]
        if body is not None or method in ("POST", "PATCH"):
            lines.append(f"Content-Length: {size}")
        lines += [f"{name}: {headers[name]}" for name in sorted(headers)]
        if method != "HEAD":
            lines.append("Accept-Encoding: gzip")
        return "\r\n".join([*lines, "", ""]).encode()

    def _send(self, body, size):
        """Sends the body; False when an answer came before its end."""
        left = size
        while left > 0:
            piece = memoryview(body.read(min(left, PIECE_BYTES)))
            if not piece:
                raise OSError("the content is shorter than it was")
            left -= len(piece)
            while piece:
                readable, writable, _ = select.select([self.sock], [self.sock], [], self.timeout)
                if readable:
                    return False
                if not writable:
                    raise TimeoutError("the server takes nothing")
                piece = piece[self.sock.send(piece):]
        return True


def size_of(content):
    size = content.seek(0, 2)
    content.seek(0)
    return size


def checksum_of(content):
    """BLAKE3 of all that there is, and how much that was."""
    hasher = subprocess.Popen(["b3sum", "--no-names"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    size = 0
    while piece := content.read(1 << 20):
        hasher.stdin.write(piece)
        size += len(piece)
    out, _ = hasher.communicate()
    assert hasher.returncode == 0
    content.seek(0)
    return f"blake3:{out.decode().strip()}", size


class CannerClient:
    """log: (method, status or "lost", Upload-Offset as sent or None) of each request. waits: the seconds of each wait.

    sleep(seconds) waits; before(method) is called before each request.
    """

    def __init__(self, base, retry_delay=0.05, sleep=time.sleep, before=lambda method: None, timeout=60):
        parts = urllib.parse.urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("the base must be absolute")
        self.base = urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/", "", ""))
        self.retry_delay = retry_delay
        self.sleep, self.before = sleep, before
        self.transport = Transport(timeout)
        self.log, self.waits = [], []

    def close(self):
        self.transport.close()

    # ---- what the package offers ----

    def create(self, content, project, filename=""):
        """A session: a dict of strings and the size, to be kept as JSON."""
        size = size_of(content)
        if size == 0:
            raise ValueError("the content is empty")
        checksum, hashed = checksum_of(content)
        if hashed != size or size_of(content) != size:
            raise ValueError("the content changes")
        fields = [("project", project), ("checksum", checksum)] + ([("filename", filename)] if filename else [])
        metadata = ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in fields)
        headers = {"Tus-Resumable": "1.0.0", "Upload-Length": str(size), "Upload-Metadata": metadata}
        while True:
            answer = self._request("POST", urllib.parse.urljoin(self.base, "files/"), headers)
            if answer.status not in (429, 503):
                break
            self._wait(answer)
        if answer.status != 201:
            raise HTTPError(answer)
        url = urllib.parse.urljoin(self.base, answer.headers["location"])
        session = {"upload_url": url, "object_id": self._object_id(url), "project": project, "filename": filename,
                   "checksum": checksum, "size_bytes": size}
        return {k: v for k, v in session.items() if v != ""}

    def upload(self, content, project, filename=""):
        return self.resume_unhashed(self.create(content, project, filename), content)

    def resume(self, session, content):
        if self._object_id(session["upload_url"]) != session["object_id"]:
            raise ValueError("the session's id is not its URL's")
        if session["size_bytes"] < 1 or not re.fullmatch("blake3:[0-9a-f]{64}", session["checksum"]):
            raise ValueError("this is no session")
        size = size_of(content)
        if (session["checksum"], session["size_bytes"]) != checksum_of(content) or size != session["size_bytes"]:
            raise ValueError("this is not the session's content")
        return self.resume_unhashed(session, content)

    def receipt(self, session):
        answer = self._request("GET", urllib.parse.urljoin(self.base, f"api/v1/receipts/{session['object_id']}"), {})
        if answer.status != 200:
            raise HTTPError(answer)
        return self._checked(session, answer.body)

    # ---- how it does it ----

    def resume_unhashed(self, session, content):
        """resume(), for a caller that has hashed the content already."""
        while True:
            offset = self._offset(session)
            if offset is None:
                continue
            if offset == session["size_bytes"]:
                return self.receipt(session)
            answer = self._append(session, content, offset)
            if answer is None:
                continue
            if answer.status == 204:
                return self._from_header(session, answer)
            if answer.status not in (409, 429, 503):
                raise HTTPError(answer)
            self._wait(answer)

    def _offset(self, session):
        """None: to be asked again, the wait is over."""
        try:
            answer = self._request("HEAD", session["upload_url"], {"Tus-Resumable": "1.0.0"})
        except TransportError:
            self._wait()
            return None
        if answer.status in (429, 503):
            self._wait(answer)
            return None
        if answer.status != 200:
            raise HTTPError(answer)
        if answer.headers["upload-length"] != str(session["size_bytes"]):
            raise ValueError("the upload has another length")
        offset = int(answer.headers["upload-offset"])
        if not 0 <= offset <= session["size_bytes"]:
            raise ValueError("the upload's offset is impossible")
        return offset

    def _append(self, session, content, offset):
        """All that is left. None: no answer came, the wait is over."""
        content.seek(offset)
        headers = {"Tus-Resumable": "1.0.0", "Upload-Offset": str(offset),
                   "Content-Type": "application/offset+octet-stream"}
        try:
            return self._request("PATCH", session["upload_url"], headers, content, session["size_bytes"] - offset)
        except TransportError:
            self._wait()
            return None

    def _from_header(self, session, answer):
        header = answer.headers.get("artifact-receipt")
        if header is None:
            return self.receipt(session)
        assert re.fullmatch("[A-Za-z0-9_-]+", header), "base64url without padding"
        return self._checked(session, base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))

    @staticmethod
    def _checked(session, text):
        receipt = json.loads(text)
        assert list(receipt) == RECEIPT_KEYS, receipt
        for key in ("object_id", "checksum", "size_bytes"):
            if receipt[key] != session[key]:
                raise ValueError(f"the receipt is for another {key}")
        return receipt

    def _object_id(self, url):
        parts, base = urllib.parse.urlsplit(url), urllib.parse.urlsplit(self.base)
        name = urllib.parse.unquote(parts.path.rsplit("/", 1)[-1])
        if (parts.scheme, parts.netloc) != (base.scheme, base.netloc) or not name or "/" in name:
            raise ValueError(f"{url} is not an upload of {self.base}")
        return name

    def _request(self, method, url, headers, body=None, size=0):
        self.before(method)
        offset = headers.get("Upload-Offset")
        try:
            answer = self.transport.request(method, urllib.parse.urlsplit(url), headers, body, size)
        except TransportError:
            self.log.append((method, "lost", offset))
            raise
        self.log.append((method, answer.status, offset))
        return answer

    def _wait(self, answer=None):
        delay = self.retry_delay or 1.0
        after = answer.headers.get("retry-after") if answer is not None else None
        if after is not None and after.isdigit():
            delay = float(after)
        elif after is not None:
            delay = max(email.utils.parsedate_to_datetime(after).timestamp() - time.time(), 0) or delay
        self.waits.append(delay)
        self.sleep(delay)


def main(verb, session_file, file):
    assert verb == "resume"
    with open(session_file, encoding="utf-8") as f:
        session = json.load(f)
    url = urllib.parse.urlsplit(session["upload_url"])
    client = CannerClient(f"{url.scheme}://{url.netloc}/")
    with open(file, "rb") as content:
        receipt = client.resume(session, content)
    client.close()
    print(json.dumps({"receipt": receipt, "log": client.log}))


if __name__ == "__main__":
    main(*sys.argv[1:])
