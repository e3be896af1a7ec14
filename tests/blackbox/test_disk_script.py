"""examples/test-disk: that it looks, and that it notices a server that has lost what it gave receipts for."""
import json
import os
import shutil
import subprocess
import threading
import time

from conftest import BINARY, ROOT

SCRIPT = ROOT / "examples" / "test-disk"


def script(*words, **kw):
    return subprocess.run([str(SCRIPT), *map(str, words)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, "TALLYMAN": BINARY}, **kw)


def test_it_looks_at_a_disk(workdir):
    """Proves: a figure comes out, and nothing is left behind."""
    done = script("look", workdir, "--seconds", "0.3")
    assert done.returncode in (0, 1) and "a second" in done.stdout, (done.stdout, done.stderr)
    assert (done.returncode == 1) == ("warning:" in done.stdout)
    assert list(workdir.iterdir()) == []


def test_usage(workdir):
    for words in ((), ("look",), ("look", workdir, "x"), ("pull", workdir)):
        done = script(*words)
        assert done.returncode == 2 and "test-disk look DIR" in done.stderr


def test_receipts_that_hold_and_receipts_that_do_not(make_server, workdir):
    """Proves: a killed server has all that it gave receipts for; one that went back to an older directory is found out."""
    server = make_server()
    server.stop()
    shutil.copytree(server.data, workdir / "older", ignore=shutil.ignore_patterns("*.sock"))
    server.start()
    kept = workdir / "receipts-1"
    sending = threading.Thread(target=script, args=("send", kept, "--data", server.data))
    sending.start()
    end = time.monotonic() + 60
    while not kept.exists() or kept.read_text().count("\n") < 100:
        assert time.monotonic() < end, "hardly any receipts came"
        time.sleep(0.01)
    server.kill()
    sending.join(60)
    assert not sending.is_alive()
    server.start()
    done = script("check", kept, "--data", server.data)
    assert done.returncode == 0 and "kept its word" in done.stdout, (done.stdout, done.stderr)
    assert int(done.stdout.split(": ")[1].split()[0]) == len(kept.read_text().splitlines()) >= 100

    assert server.stop() == 0
    shutil.rmtree(server.data)
    shutil.copytree(workdir / "older", server.data)
    server.start()
    done = script("check", kept, "--data", server.data)
    assert done.returncode == 1 and "LOST" in done.stdout, (done.stdout, done.stderr)


def test_a_changed_receipt_is_noticed(server, workdir):
    kept = workdir / "receipts-2"
    done = script("send", kept, "--data", server.data, "--events", "20")
    assert done.returncode == 0 and "20 receipts" in done.stdout, (done.stdout, done.stderr)
    lines = kept.read_text().splitlines()
    lines[7] = json.dumps({**json.loads(lines[7]), "first_event_id": "01900000-0000-7000-8000-000000000000"})
    kept.write_text("\n".join(lines) + "\n")
    done = script("check", kept, "--data", server.data)
    assert done.returncode == 1 and "LOST: 1 of 20 receipts do not hold, the first is number 7" in done.stdout, done.stdout


def test_no_receipts_are_no_proof(server, workdir):
    """Proves: names of files make names of sources; where nothing was taken, nothing is said to hold."""
    kept = workdir / "Receipts of May.json"
    done = script("send", kept, "--data", server.data, "--events", "3")
    assert done.returncode == 0 and "3 receipts" in done.stdout, (done.stdout, done.stderr)
    done = script("check", kept, "--data", server.data)
    assert done.returncode == 0 and "3 receipts hold" in done.stdout, (done.stdout, done.stderr)
    none = workdir / "none"
    done = script("send", none, "--data", workdir / "nobody", "--events", "3")
    assert done.returncode == 1 and "no receipt" in done.stdout, (done.stdout, done.stderr)
    done = script("check", none, "--data", server.data)
    assert done.returncode == 1 and "no receipt" in done.stdout, (done.stdout, done.stderr)
