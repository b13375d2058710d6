#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""leftovers.py before FILE: notes what there is; leftovers.py after FILE: prints, as TAP, what has come since.

Processes, control groups, mounts, files outside the clone, services and apt's settings: what of these a run may
have made and must have removed. Things that are just ending get a minute.
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAIT_S = int(os.environ.get("QUAVON_TEST_WAIT_S", "60"))
PROGRAMS = ("runsc", "valkey-server", "quavon", "entry", "mmdebstrap", "mkfs.erofs", "node", "valgrind")
PATHS = ("/tmp/qv-*", "/tmp/quavon*", "/dev/shm/qv-*", "/dev/shm/quavon*", "/run/quavon*", "/var/lib/quavon*",
         "/var/run/quavon*", "/run/runsc/*", "/var/run/runsc/*", "/usr/sbin/policy-rc.d*", "/etc/apt/**/*", "/var/tmp/qv-*",
         os.path.expanduser("~/.npm"), os.path.expanduser("~/.gnupg"))


def ours(arguments):
    """Does a command line belong to something that the tests start?"""
    return os.path.basename(arguments[0]).startswith(PROGRAMS) or arguments[0].startswith(str(ROOT) + "/build/")


def processes():
    mine = set()
    pid = os.getpid()
    while pid > 0:
        mine.add(pid)
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    found = set()
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            arguments = pathlib.Path(folder, "cmdline").read_bytes().decode(errors="replace").split("\0")
            fields = pathlib.Path(folder, "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(os.path.basename(folder))
        if pid not in mine and fields[0] != "Z" and arguments[0] and ours(arguments):
            found.add(f"pid {pid} from {fields[19]}: {' '.join(arguments)[:120].strip()}")
    return found


def cgroups():
    found = set()
    for top, folders, _ in os.walk("/sys/fs/cgroup"):
        found.update(os.path.join(top, f) for f in folders if "quavon" in f or "/quavon" in top or "runsc" in f)
    return found


def mounts():
    points = (line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines())
    return {p for p in points if "quavon" in p or "/qv-" in p or p.startswith(str(ROOT) + "/")}


def files():
    return {p for pattern in PATHS for p in glob.glob(pattern, recursive=True)}


def services():
    try:
        run = subprocess.run(["systemctl", "list-units", "--type=service", "--state=running", "--plain", "--no-legend"],
                             capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return {line.split()[0] for line in run.stdout.splitlines() if line.strip()} & {"valkey-server.service",
                                                                                   "docker.service"}


KINDS = {"processes": processes, "control groups": cgroups, "mounts": mounts, "files": files, "services": services}


def look():
    return {kind: sorted(probe()) for kind, probe in KINDS.items()}


def after(noted):
    deadline = time.monotonic() + WAIT_S
    while True:
        now = look()
        new = {kind: sorted(set(now[kind]) - set(noted[kind])) for kind in KINDS}
        if not any(new.values()) or time.monotonic() > deadline:
            break
        time.sleep(1)
    print(f"1..{len(KINDS)}")
    for i, kind in enumerate(KINDS, 1):
        print(f"{'not ' if new[kind] else ''}ok {i} no {kind} left")
        for item in new[kind]:
            print(f"# {item}")
    return 1 if any(new.values()) else 0


def main(verb, path):
    if verb == "before":
        pathlib.Path(path).write_text(json.dumps(look()))
        return 0
    return after(json.loads(pathlib.Path(path).read_text()))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("before", "after"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
