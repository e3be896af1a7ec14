"""How a project's files are delivered: the settings as a person sets them with `tallyman project`, what they lead to at the
destination, also after the index of deliveries is lost, and what `verify` says of settings that were tampered with.
"""
import contextlib
import json
import re
import sqlite3
import time

import pytest

from conftest import tallyman
from test_artifact_verify import Door

ITEM = "{{PROJECT}}-{{PACKAGE_ID_SHORT}}"


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    it = Door(tmp_path_factory.mktemp("settings"))
    it.server.start()
    try:
        yield it
    finally:
        if it.server.process is not None:
            it.server.stop()


def shown(door, project):
    return json.loads(door.cli("project", "show", project, "--json"))["artifacts"]


def test_every_setting(door):
    keys = door.path / "keys"
    made = door.cli("project", "create", "news", "--credentials-file", "keys", "--identifier", ITEM,
                    "--remote-name", "{{DATE}}/{{FILENAME}}", "--metadata", "collection=opensource",
                    "--metadata", "title=a = b, {{PROJECT}}", "--metadata", "collection=test_collection", "--metadata", "creator=Łódź", "--retention", "36h",
                    "--packager", "identity", "--no-require-checksum")
    assert made.endswith(f"\nartifacts internet_archive: {ITEM}\n")
    want = {"sink": "internet_archive", "directory": None, "credentials_file": str(keys), "identifier": ITEM,
            "remote_name": "{{DATE}}/{{FILENAME}}", "packager": "identity", "retention": "36h", "require_checksum": False,
            "metadata": {"collection": ["opensource", "test_collection"], "creator": ["Łódź"], "title": ["a = b, {{PROJECT}}"]}}
    assert shown(door, "news") == want
    text = door.cli("project", "show", "news")
    assert re.search(rf"^artifacts +internet_archive: {re.escape(ITEM)}$", text, re.M)
    assert re.search(rf"^artifacts\.credentials_file +{re.escape(str(keys))}$", text, re.M)
    assert re.search(r"^artifacts\.require_checksum +false$", text, re.M)
    assert f"internet_archive: {ITEM}" in door.cli("project", "list")
    # One by one; what is not named stays, and an empty value goes back to the default.
    assert "artifacts.retention        5m\n" in door.cli("project", "set", "news", "--retention", "300s")
    door.cli("project", "set", "news", "--remote-name", "", "--metadata", "", "--require-checksum")
    assert shown(door, "news") == {**want, "retention": "5m", "remote_name": "{{FILENAME}}", "metadata": {}, "require_checksum": True}
    # To a folder and back; what only the other sink has goes by itself.
    door.cli("project", "set", "news", "--metadata", "title=x", "--retention=")
    door.cli("project", "set", "news", "--directory", "files", "--json")
    assert shown(door, "news") == {**want, "sink": "directory", "directory": str(door.files), "credentials_file": None, "retention": None,
                                   "remote_name": "{{FILENAME}}", "metadata": {}, "require_checksum": True}
    door.cli("project", "set", "news", "--sink", "internet_archive", "--credentials-file", str(keys))
    assert shown(door, "news")["directory"] is None
    # One that took no files.
    door.cli("project", "create", "plain")
    assert shown(door, "plain") is None
    door.cli("project", "set", "plain", "--directory", "files")
    assert shown(door, "plain")["identifier"] == "{{OBJECT_ID}}"
    log = door.server.log
    assert "project news: artifacts made by the administrator: credentials_file, directory, identifier, metadata, " in log
    assert "project news: artifacts changed by the administrator: retention" in log and "Łódź" not in log


@pytest.mark.parametrize("args, code, words", [
    (("create", "x", "--retention", "1d"), 2, "--sink and the other settings need --directory or --credentials-file"),
    (("create", "x", "--sink", "internet_archive"), 2, "--sink internet_archive needs --credentials-file"),
    (("create", "x", "--directory", "files", "--credentials-file", "k"), 2, "go with different sinks"),
    (("create", "x", "--directory", "files", "--metadata", "title"), 2, "--metadata: must be NAME=TEXT"),
    (("create", "x", "--directory", "files", "--require-checksum", "--no-require-checksum"), 2, "one of them"),
    (("set", "x"), 2, "set needs what is to be changed"),
    (("set", "x", "--name", "y", "--retention", "1d"), 2, "--name goes with create"),
    (("set", "--retention", "1d"), 2, "must be followed by: create ID, set ID"),
    (("show", "x", "--retention", "1d"), 2, "go with create and set"),
    (("set", "x", "--retention", "1d"), 1, "there is no such project"),
    (("create", "x", "--credentials-file", "k"), 1, "artifacts.identifier: the sink internet_archive needs one"),
    (("create", "x", "--credentials-file", "data/k", "--identifier", ITEM), 1, "lies in the data directory"),
    (("create", "x", "--credentials-file", "k", "--identifier", "{{DATES}}"), 1, "artifacts.identifier: {{DATES}} is no placeholder"),
    (("create", "x", "--credentials-file", "k", "--identifier", ITEM, "--metadata", "title=ok", "--metadata", "title={{X}}"), 1,
     "artifacts.metadata.title[1]: {{X}} is no placeholder"),
    (("create", "x", "--directory", "files", "--packager", "mergewarc"), 1, "artifacts.package_target: the packager mergewarc needs it"),
    (("create", "x", "--directory", "files", "--identifier", "all"), 1, "or files would meet under one name"),
])
def test_refused(door, args, code, words):
    assert words in door.cli("project", *args, want=code)
    assert "not_found" in door.cli("project", "show", "x", want=1)


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_names_at_the_destination(door):
    """Settings hold for what is packaged from then on, and a lost index finds every package its own place again."""
    place = door.path / "place"
    place.mkdir()
    door.cli("project", "create", "named", "--directory", "place", "--identifier", "{{PROJECT}}-{{DATE}}",
             "--remote-name", "{{OBJECT_ID}}_{{FILENAME}}")
    one = door.put(b"one", name="ä one.txt", project="named")
    door.cli("artifact", one["object_id"], "--wait", "60")
    date = time.strftime("%Y%m%d%H%M%S", time.gmtime(one["accepted_at"]))
    first = f"named-{date}/{one['object_id']}____one.txt"
    assert names(place) == [first, first + ".manifest.jsonl"] and (place / first).read_bytes() == b"one"
    door.cli("project", "set", "named", "--identifier", "all-of-{{PROJECT}}", "--remote-name", "{{PACKAGE_ID_SHORT}}")
    two = door.put(b"two", project="named")
    door.cli("artifact", two["object_id"], "--wait", "60")
    plan = next(p for p in map(json.loads, (f.read_bytes() for f in (door.server.data / "packages").glob("*.plan.json")))
                if p["object_id"] == two["object_id"])
    second = f"all-of-named/{plan['package_id'][:24]}"
    assert names(place) == sorted([first, first + ".manifest.jsonl", second, second + ".manifest.jsonl"])
    assert (plan["version"], plan["identifier"], plan["metadata"], plan["retention_ms"]) == (2, "all-of-named", {}, None)
    before = names(place)
    door.server.stop()
    for path in door.server.data.glob("delivery.sqlite*"):
        path.unlink()
    door.server.start()
    for receipt in (one, two):
        door.cli("artifact", receipt["object_id"], "--wait", "60")
    assert names(place) == before, "each at its own place, and once"


def test_tampered(door):
    door.server.stop()
    try:
        with contextlib.closing(sqlite3.connect(door.server.data / "tallyman.sqlite")) as db, db:
            db.execute("""UPDATE artifact_projects SET settings = '{"identifier":"same"}' WHERE project = (SELECT id FROM projects
                          WHERE name = 'plain')""")
        result = tallyman("verify", "--data", str(door.server.data))
        assert result.returncode == 3 and "artifacts.identifier: it or remote_name must hold {{OBJECT_ID}}" in result.stdout, result
    finally:
        door.server.start()
