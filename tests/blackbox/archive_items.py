"""What the fake Internet Archive keeps and knows: accounts, items, files that are staged before they show, headers that become
metadata, its rations, and the words of its refusals. fake_archive.py speaks HTTP for it.
"""
import base64
import binascii
import dataclasses
import hashlib
import re
import time
import urllib.parse

ITEM_BYTES_MAX = 1 << 40
HEADERS_MAX = 8192
IDENTIFIER = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{4,100}")
KEY_NAME = re.compile(r"(?!xml)[a-z][a-z0-9_.-]{0,255}")
META_HEADER = re.compile(r"x-(archive|amz)-(meta|filemeta)(\d*)-(.+)")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
RESERVED = ("{}_meta.xml", "{}_files.xml", "{}_meta.sqlite", "{}_archive.torrent", "{}_dc.xml", "{}_reviews.xml", "{}_rules.conf",
            "__ia_thumb.jpg")

# code -> status and message; the useful words are in Resource.
ERRORS = {
    "AccessDenied": (403, "Access Denied"),
    "AccountProblem": (403, "There is a problem with your account"),
    "BadDigest": (400, "The Content-MD5 you specified did not match what we received"),
    "BucketAlreadyExists": (409, "The requested bucket name is not available"),
    "BucketAlreadyOwnedByYou": (409, "Your previous request to create the named bucket succeeded and you already own it"),
    "IncompleteBody": (400, "You did not provide the number of bytes specified by the Content-Length HTTP header"),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (403, "The access key id you provided does not exist in our records"),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidBucketName": (400, "The specified bucket is not valid"),
    "KeyTooLong": (400, "Your key is too long"),
    "MetadataTooLarge": (400, "Your metadata headers exceed the maximum allowed metadata size"),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource"),
    "MissingContentLength": (411, "You must provide the Content-Length HTTP header"),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
    "NoSuchKey": (404, "The specified key does not exist"),
    "NoSuchUpload": (404, "The specified multipart upload does not exist"),
    "OperationAborted": (409, "A conflicting conditional operation is currently in progress against this resource"),
    "RequestTimeout": (400, "Your socket connection to the server was not read from or written to within the timeout period"),
    "ServiceUnavailable": (503, "Service is unable to handle request"),
    "SignatureDoesNotMatch": (403, "The request signature we calculated does not match the signature you provided"),
    "SlowDown": (503, "Please reduce your request rate."),
}

# What stands in Resource beside SlowDown.
REASONS = {
    "global": "total_tasks_queued exceeds global_limit",
    "account": "accesskey_tasks_queued exceeds rationed amount",
    "bucket": "bucket_tasks_queued exceeds rationed amount",
    "bucket_limit": "bucket_tasks_queued exceeds bucket_limit amount",
    "spam": "Your upload of {item} from username {user} appears to be spam. If you believe this is a mistake, contact"
            " info@archive.org and include this entire message in your email.",
    "simulated": "simulated error",
    "unknown": "the moon is in the wrong house",
}
OWNER = "You lack sufficient privileges to write to this item."
COLLECTION = "You lack sufficient privileges to write to those collections"
TOO_BIG = "the total of {total} bytes would exceed the limit of an item"
DARK = "item {item} is dark"


class Refused(Exception):
    """An error of theirs."""

    def __init__(self, code, resource="", status=None, message=None):
        super().__init__(code, resource)
        usual, words = ERRORS.get(code, (400, code))
        self.code, self.resource = code, resource
        self.status, self.message = status or usual, words if message is None else message

    def xml(self):
        def text(value):
            return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return (f"<?xml version='1.0' encoding='UTF-8'?>\n<Error><Code>{text(self.code)}</Code><Message>{text(self.message)}"
                f"</Message><Resource>{text(self.resource)}</Resource><RequestId>{id(self):032x}</RequestId></Error>\n").encode()


@dataclasses.dataclass
class Account:
    access: str
    secret: str
    name: str = ""
    collections: tuple = ("opensource", "test_collection")
    problem: str = ""       # in words: the account is locked
    ration: int = 150       # tasks
    others: int = 0         # tasks queued that are none of the test's

    @property
    def user(self):
        return self.name or f"{self.access.lower()}@example.org"


@dataclasses.dataclass
class Showing:
    """When a staged file shows in the metadata: after so many looks in vain, then so many at another size and digest, and after so
    many seconds."""
    looks: int = 0
    seconds: float = 0
    wrong_looks: int = 0
    never: bool = False


class File:
    def __init__(self, key, data, owner, source="original", filemeta=None):
        self.key, self.data, self.owner, self.source = key, bytes(data), owner, source
        self.filemeta = filemeta or {}
        self.size = len(self.data)
        self.md5 = hashlib.md5(self.data).hexdigest()
        self.sha1 = hashlib.sha1(self.data).hexdigest()
        self.crc32 = f"{binascii.crc32(self.data):08x}"
        self.mtime = int(time.time())
        self.derive = False
        self.size_hint = None
        self.keep_old = False
        self.looks = 0
        self.staged_at = time.monotonic()
        self.showing = Showing()

    def shows(self):
        s = self.showing
        return not s.never and self.looks >= s.looks + s.wrong_looks and time.monotonic() >= self.staged_at + s.seconds

    def shows_wrong(self):
        """Of a file that does not show yet."""
        return self.showing.wrong_looks > 0 and self.looks > self.showing.looks

    def entry(self, wrong=False):
        """As the metadata has it: all numbers are strings."""
        entry = {"name": self.key, "source": self.source, "mtime": str(self.mtime), "size": str(self.size), "md5": self.md5,
                 "crc32": self.crc32, "sha1": self.sha1, "format": "Unknown", **self.filemeta}
        if wrong:
            half = self.data[:self.size // 2]
            entry.update(size=str(len(half)), md5=hashlib.md5(half).hexdigest(), sha1=hashlib.sha1(half).hexdigest())
        return entry


class Item:
    def __init__(self, identifier, owner, metadata):
        self.identifier, self.owner = identifier, owner
        self.metadata = {"identifier": identifier, "mediatype": "data", "collection": "opensource", "title": identifier,
                         **metadata, "uploader": owner, "addeddate": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())}
        self.sent_metadata = dict(metadata)  # decoded, of the request that made the item
        self.created = int(time.time())
        self.files = {}      # what shows
        self.staged = []     # what does not yet, in order
        self.derived = []    # keys whose derive task ran
        self.log = []        # (key, words)
        self.dark = False
        self.others = 0      # tasks queued that are none of the test's
        self.bucket_ration = 150
        self.shown = False   # once something of it has
        self.ready = True    # False: made by a multipart upload, and not there yet

    @property
    def tasks(self):
        return len(self.staged)

    def all(self, key):
        """Every file under this name, staged ones last."""
        return ([self.files[key]] if key in self.files else []) + [f for f in self.staged if f.key == key]

    def newest(self, key):
        files = self.all(key)
        return files[-1] if files else None

    def size(self):
        return sum(f.size for f in self.files.values()) + sum(f.size for f in self.staged)

    def settle(self, look=False):
        """Runs the tasks that are due; `look`: somebody asks for the metadata."""
        for file in list(self.staged):
            if not file.shows():
                file.looks += look
                continue
            self.staged.remove(file)
            if file.keep_old and file.key in self.files:
                old, n = self.files[file.key], 1
                while f"history/files/{file.key}.~{n}~" in self.files:
                    n += 1
                old.key = f"history/files/{file.key}.~{n}~"
                self.files[old.key] = old
            self.files[file.key] = file
            self.log.append((file.key, "archive.php done"))
            if file.derive:
                self.derived.append(file.key)

    def remove(self, key, keep_old, cascade):
        file = self.files.pop(key, None)
        staged = [f for f in self.staged if f.key == key]
        self.staged = [f for f in self.staged if f.key != key]
        if file is None and not staged:
            return False
        if file is not None and keep_old:
            file.key = f"history/files/{key}.~1~"
            self.files[file.key] = file
        if cascade:
            for name, other in list(self.files.items()):
                if other.source == "derivative" and other.filemeta.get("original") == key:
                    del self.files[name]
        self.log.append((key, "deleted"))
        return True

    def document(self):
        """The answer of /metadata/ID."""
        if self.dark:
            return {"is_dark": True, "metadata": {"identifier": self.identifier}, "server": "ia1", "uniq": 1}
        entries = [f.entry() for f in self.files.values()]
        entries += [f.entry(wrong=True) for f in self.staged if f.shows_wrong()]
        self.shown = self.shown or bool(entries)
        if not self.shown:
            return {}
        meta = repr(sorted(self.metadata.items())).encode()
        name = f"{self.identifier}_meta.xml"
        entries.append({"name": name, "source": "metadata", "format": "Metadata", "size": str(len(meta)), "mtime": str(self.created),
                        "md5": hashlib.md5(meta).hexdigest(), "sha1": hashlib.sha1(meta).hexdigest(),
                        "crc32": f"{binascii.crc32(meta):08x}"})
        entries.append({"name": f"{self.identifier}_files.xml", "source": "metadata", "format": "Metadata",
                        "md5": hashlib.md5(name.encode()).hexdigest()})
        document = {"created": self.created, "d1": "ia1", "d2": "ia2", "dir": f"/1/items/{self.identifier}", "files": entries,
                    "files_count": len(entries), "item_last_updated": self.created,
                    "item_size": sum(int(e.get("size", 0)) for e in entries), "metadata": self.metadata, "server": "ia1",
                    "uniq": 1, "workable_servers": ["ia1", "ia2"]}
        if self.staged:
            document["pending_tasks"] = True
            document["tasks"] = [{"cmd": "archive.php", "args": {"key": f.key}} for f in self.staged]
        return document


def decode_value(text):
    """Of a header whose bytes were read as Latin-1. The value, and what is wrong with it in words."""
    wrong = ""
    try:
        text = text.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise Refused("InvalidArgument", "a metadata header is not UTF-8") from None
    if not text.isascii():
        wrong = "a metadata value that is not ASCII was sent as it is"
    quoted = re.fullmatch(r"uri\((.*)\)", text, re.DOTALL)
    if quoted:
        if not re.fullmatch(r"(?:[^%]|%[0-9a-fA-F]{2})*", quoted[1]):
            raise Refused("InvalidArgument", "a metadata value has a broken percent escape")
        try:
            text = urllib.parse.unquote(quoted[1], errors="strict")
        except UnicodeDecodeError:
            raise Refused("InvalidArgument", "a metadata value is not UTF-8") from None
    if NOT_XML.search(text):
        raise Refused("InvalidArgument", "a metadata value has characters that XML does not have")
    return text, wrong


def decode_metadata(headers):
    """Item metadata, file metadata and violations [(kind, words)] of a PUT's headers [(name, value)]. A key with one value has
    the value, with several a list, in the order of the sorted header names."""
    wrong = []
    prefixes = {name.split("-")[1] for name, _ in headers if name.startswith(("x-amz-", "x-archive-"))}
    if len(prefixes) > 1:
        wrong.append(("mixed prefixes", "x-amz- beside x-archive-"))
    slots = {}
    for name, value in sorted(headers, key=lambda pair: pair[0]):
        match = META_HEADER.fullmatch(name)
        if not match:
            continue
        _, kind, index, key = match.groups()
        if "_" in key:
            wrong.append(("underscore", f"{name}: the underscore of a key is two hyphens"))
            continue
        key = key.replace("--", "_")
        if not KEY_NAME.fullmatch(key):
            raise Refused("InvalidArgument", f"{key[:100]} is not a name of metadata")
        if value == "":
            raise Refused("InvalidArgument", f"the value of {key} is empty")
        value, words = decode_value(value)
        if words:
            wrong.append(("not ASCII", f"{name}: {words}"))
        slot = kind, key, int(index or 0)
        if slot in slots:
            wrong.append(("duplicate index", f"{name} names a value again"))
        slots[slot] = value
    found = {"meta": {}, "filemeta": {}}
    for (kind, key, _), value in slots.items():
        values = found[kind].setdefault(key, [])
        values.append(value)
    one = {kind: {k: v[0] if len(v) == 1 else v for k, v in keys.items()} for kind, keys in found.items()}
    return one["meta"], one["filemeta"], wrong


def check_key(identifier, key):
    """Refused when a file cannot have this name."""
    if len(key.encode("utf-8", "surrogateescape")) > 1024:
        raise Refused("KeyTooLong", key[:100])
    if any(key == name.format(identifier) for name in RESERVED) or key.startswith("history/"):
        raise Refused("InvalidArgument", f"{key} is a name of ours")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise Refused("InvalidArgument", f"{key} has a part that is empty or dots")


def md5_matches(sent, md5_hex):
    """Content-MD5 in hex, as their clients send it, or in base64, as the standard has it."""
    if re.fullmatch(r"[0-9a-fA-F]{32}", sent):
        return sent.lower() == md5_hex
    try:
        return base64.b64decode(sent, validate=True) == bytes.fromhex(md5_hex)
    except (binascii.Error, ValueError):
        raise Refused("InvalidArgument", "Content-MD5 is neither hex nor base64") from None
