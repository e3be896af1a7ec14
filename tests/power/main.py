#!/usr/bin/env python3
"""power [OPTION ...]: power cuts and failing writes of a block device, under ext4 and XFS, on the release binary.

cuts: a workload of all three doors runs on a device that records every write and flush; images of what a power cut may leave are
made from that, mounted, recovered and checked (tests/power/check.py says for what). eio: writes and flushes of the device fail
while something is accepted (tests/power/eio.py).

  --images N     of each file system (100; 20 with QUICK=1); all: one at every flush, nothing beyond it
  --only WORD    cuts or eio, and ext4 or xfs; may be given more than once
  --seed N       of the workload and the images; SEED; by chance, and printed
  --record DIR   takes the recording in DIR (left by a failed run) instead of a new one; with --image N: that image alone
  --seconds S    length of the workload (2; 1 with QUICK=1)

TALLYMAN names the binary (build/tallyman), RECORDER the plugin (build/power/recorder.so). Needs root, /dev/fuse and loop devices;
where they are missing this says so and ends with 0. Nothing is left mounted, attached or running, however it ends.
"""
import argparse
import os
import pathlib
import random
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))

import device  # noqa: E402

WORDS = ("cuts", "eio", *device.SYSTEMS)


def options():
    quick = bool(os.environ.get("QUICK"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", default="20" if quick else "100")
    parser.add_argument("--only", action="append", choices=WORDS, default=[])
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32)))
    parser.add_argument("--record", type=pathlib.Path)
    parser.add_argument("--image", type=int)
    parser.add_argument("--seconds", type=float, default=1 if quick else 2)
    parser.add_argument("--lack", action="store_true", help="only say what is missing here, nothing when nothing is")
    parser.add_argument("--inside", type=pathlib.Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.images != "all" and not chosen.images.isdigit():
        parser.error("--images takes a number, or all")
    if chosen.image is not None and chosen.record is None:
        parser.error("--image needs --record")
    return chosen


def main():
    chosen = options()
    if chosen.inside is not None:
        import suite
        device.stop_on_signals()
        device.mounts_apart()
        try:
            return suite.run(chosen)
        except KeyboardInterrupt:
            print("power: stopped")
            return 130
    lack = device.missing()
    if chosen.lack:
        print(lack or "")
        return 0
    if lack is not None:
        print(f"skipped: no {lack}: NOTHING WAS TESTED about power cuts and failing disks\n0 passed, 0 failed")
        return 0
    place = tempfile.mkdtemp(prefix="tallyman-power-")
    try:
        return device.enter([sys.executable, *sys.argv, f"--seed={chosen.seed}", f"--inside={place}"])
    finally:
        # Mounts were in another namespace and are gone: here these are plain directories.
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
