"""A server whose projects deliver to the fake Internet Archive, and what must hold of both whatever happened."""
import base64
import hashlib
import json
import os
import re
import threading

from artifact_world import Artifacts, File

# Looks for what is visible come 20 ms apart at first, later a second: parts of the patience for answers.
ENV = {"TALLYMAN_ENGINE": "off", "TALLYMAN_DELIVERY_BACKOFF_MS": "100", "TALLYMAN_ARCHIVE_ANSWER_MS": "3000",
       "TALLYMAN_ARCHIVE_STALL_MS": "60000"}
FLAGS = ("--min-free-bytes", "1")


def env_of(archive, **more):
    return {**ENV, "TALLYMAN_ARCHIVE_S3_URL": archive.s3, "TALLYMAN_ARCHIVE_METADATA_URL": archive.front, **more}


class Project:
    """An account of the Archive, its key file, and a project that sends with it."""

    def __init__(self, world, name, account, keys, settings):
        self.world, self.name, self.account, self.keys, self.settings = world, name, account, keys, settings

    def item(self, file):
        return self.settings["identifier"].replace("{{OBJECT_ID}}", file.id)

    def show(self):
        return self.world.server.get(f"/api/v1/projects/{self.name}", unix=True).json["artifacts"]


class ArchiveFile(File):
    def __init__(self, content, name, project):
        super().__init__(content, name)
        self.project = project

    def creation(self):
        return {**super().creation(), "Upload-Metadata": super().creation()["Upload-Metadata"].replace(
            "project ZmlsZXM=", "project " + encoded(self.project.name))}

    @property
    def item(self):
        return self.project.item(self)

    @property
    def remote(self):
        """The name that the payload gets."""
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", self.name)
        return self.project.settings["remote_name"].replace("{{OBJECT_ID}}", self.id).replace("{{FILENAME}}", safe)

    @property
    def keys(self):
        """Both places of it."""
        return [(self.item, f"{self.remote}.manifest.jsonl"), (self.item, self.remote)]


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class ArchiveWorld(Artifacts):
    def __init__(self, server, workdir, archive):  # pylint: disable=super-init-not-called
        self.server, self.data, self.workdir, self.archive = server, server.data, workdir, archive
        self.files, self.lock, self.proven = [], threading.Lock(), set()
        self.projects = {}

    def create_project(self, name, account, keys, **settings):
        """The answer, whatever it is."""
        settings = {"sink": "internet_archive", "credentials_file": str(keys), "identifier": f"{name}-{{{{OBJECT_ID}}}}",
                    "remote_name": "{{FILENAME}}", **settings}
        body = json.dumps({"id": name, "artifacts": settings})
        answer = self.server.request("POST", "/api/v1/projects", body, {"Content-Type": "application/json"}, unix=True)
        if answer.status == 201:
            self.projects[name] = Project(self, name, account, keys, settings)
        return answer

    def project(self, name, like=None, **settings):
        """like: another project, whose keys it uses."""
        if like is not None:
            account, keys = like.account, like.keys
        else:
            account = self.archive.account(f"KEYOF{name.upper()}", hashlib.sha1(name.encode()).hexdigest(), name=f"{name}@example.org")
            keys = self.workdir / f"{name}.keys"
            keys.touch(mode=0o600)
            keys.write_text(f"{account.access}\n{account.secret}\n")
        answer = self.create_project(name, account, keys, **settings)
        assert answer.status == 201, answer.body
        return self.projects[name]

    def made(self, project, content=None, name=None):
        """A file that was created, and has no bytes yet."""
        with self.lock:
            n = len(self.files)
            file = ArchiveFile(content if content is not None else os.urandom(2000 + n), name or f"file {n}.bin", project)
            self.files.append(file)
        answer = self.create(file)
        assert answer.status == 201, (answer.status, answer.body)
        return file

    def accept(self, project, content=None, name=None):
        """A file with its receipt."""
        return self.finish(self.made(project, content, name))

    # ---- what becomes of it ----

    def wait_state(self, file, *states, timeout=60):
        """Until it is in one of these; the delivery."""
        def there():
            delivery = self.delivery(file)
            return delivery if delivery.get("state") in states else None
        try:
            return self.wait(there, timeout)
        except AssertionError:
            raise AssertionError(f"{file.item} is not {states}: {self.delivery(file)}; {self.archive.requests[-20:]}") from None

    def retry(self, file):
        """A person asks for it, now."""
        answer = self.server.request("POST", f"/api/v1/artifacts/{file.id}/retry", "{}", {"Content-Type": "application/json"}, unix=True)
        assert answer.status in (200, 202, 204), (answer.status, answer.body)

    def sees_through(self, file):
        """Until it is verified, asked for again whenever it waits for its next try."""
        while self.wait_state(file, "verified", "retry_wait")["state"] != "verified":
            self.retry(file)

    def puts(self, file, status=(200, 201)):
        """Names of what was put into its item, in order, relative to the payload's: "manifest", "payload" or the name."""
        names = {key: kind for kind, (_, key) in zip(("manifest", "payload"), file.keys)}
        return [names.get(r.key, r.key) for r in self.archive.puts(status) if r.item == file.item and r.key in names]

    def asked(self, file):
        """Everything that was asked about its item."""
        return [r for r in self.archive.requests if file.item in (r.item, r.query.get("bucket"))]

    def looks(self, file):
        """How often its item was looked at."""
        return len([r for r in self.asked(file) if r.kind == "METADATA"])

    def is_there(self, file):
        """Both files, as they are here."""
        stored = self.archive.stored()
        manifest, payload = (stored[place] for place in file.keys)
        assert payload.data == file.content
        lines = [json.loads(line) for line in manifest.data.splitlines()]
        assert [line["type"] for line in lines][1:] == ["input", "output"] and lines[1]["object_id"] == file.id, lines
        return manifest, payload

    def holds(self, *files):
        """The holds of these files' items, and of all, as the database tells: (scope, text)."""
        items = ("", *(file.item for file in files))
        return [(scope, text) for scope, key, text in self.rows("SELECT scope, key, text FROM holds") if key in items]

    # ---- the end ----

    def check_archive(self, *but):
        """Every receipt's file is there once, under its one name; no client's sin; no secret anywhere."""
        self.archive.no_violations(*but)
        by_digest = {}
        for place, stored in self.archive.stored().items():
            by_digest.setdefault(stored.md5, []).append(place)
        for file in self.files:
            places = by_digest.get(hashlib.md5(file.content).hexdigest(), [])
            same = sum(other.content == file.content for other in self.files)
            assert len(places) <= same, f"{file.item} is there twice: {places}"
        secrets = [project.account.secret.encode() for project in self.projects.values()]
        for path in [self.server.log_path, *self.data.rglob("*")]:
            if path.is_file() and path.parent.name != "uploads":
                content = path.read_bytes()
                assert not any(secret in content for secret in secrets), f"{path} holds a secret"
