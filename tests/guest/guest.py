#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""guest.py KERNEL BUILD_ROOT RESULTS: the tests of the backend `runsc` on control groups version 2, in a QEMU guest under
software emulation with Debian's own kernel. TAP on stdout; the guest's console is kept in RESULTS/guest.log.

The guest holds nothing but the programs that it runs and the libraries of this machine that they need; its root is a tmpfs.
A guest that dies, hangs or runs less than it was told to is a failed test, with the end of its console.
"""

import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

# Test program of tests/integration/sandbox, and what of it runs here. A start takes seconds in software.
TESTS = [
    ("run", ["echo-and-kill", "process-limit-inside", "host-process-limit", "out-of-memory", "usage"]),
    ("recovery", ["check", "kill9-while-running", "kill-while-stopped", "owner-is-killed", "planted-cgroup"]),
]
LONG_TESTS = [("run", None), ("recovery", None)]
TOOLS = ["sh", "cat", "cp", "install", "ls", "mkdir", "mkfs.erofs", "mount", "rm", "runsc", "sleep", "switch_root", "timeout"]
MEMORY_MIB = 3072
GUEST_SECONDS = 1500
LONG_GUEST_SECONDS = 5400
CONSOLE_LINES = 60

INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t devtmpfs none /dev
mount -t tmpfs -o size=900m,mode=0755 none /new
cp -a /etc /usr /build /run.sh /new/
for link in bin sbin lib lib64; do cp -a /$link /new/; done
mkdir -p /new/proc /new/sys /new/dev /new/tmp /new/root /new/run
exec switch_root /new /run.sh
"""

RUN = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 G_DEBUG=fatal-criticals
mount -t proc none /proc
mount -t sysfs none /sys
mount -t tmpfs -o mode=1777 none /tmp
mount -t cgroup2 none /sys/fs/cgroup
exec </dev/null
echo "GUEST controllers $(cat /sys/fs/cgroup/cgroup.controllers)"
export QUAVON_TEST_PROBE=/build/sandbox_probe
COMMANDS
echo "GUEST left $(ls /sys/fs/cgroup/quavon 2>/dev/null)"
echo GUEST end
# The console is slow, the reset is not.
sleep 3
echo b >/proc/sysrq-trigger
sleep 60
"""


def libraries(program):
    """The shared objects of a program, by the loader of this machine."""
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", out)


class Archive:
    """A cpio archive in the form that the kernel unpacks (newc)."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.seen = set()
        self.inode = 0

    def entry(self, name, mode, data=b"", device=(0, 0)):
        parent = os.path.dirname(name)
        if parent and parent not in self.seen:
            self.entry(parent, stat.S_IFDIR | 0o755)
        if name in self.seen:
            return
        self.seen.add(name)
        self.inode += 1
        fields = [self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name.encode()) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % value for value in fields) + name.encode() + b"\0"
        self.file.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))

    def add_file(self, source, name):
        self.entry(name, stat.S_IFREG | 0o755, pathlib.Path(source).read_bytes())

    def add_link(self, name, target):
        self.entry(name, stat.S_IFLNK | 0o777, target.encode())

    def add_program(self, source, name):
        self.add_file(source, name)
        for library in libraries(source):
            # /lib is a link to usr/lib here as there.
            self.add_file(library, "usr" + library if library.startswith("/lib") else library.lstrip("/"))

    def close(self):
        self.entry("TRAILER!!!", 0)
        self.file.close()


def pack(path, build, tests, seconds):
    archive = Archive(path)
    for name in ("bin", "sbin", "lib", "lib64"):
        archive.add_link(name, f"usr/{name}")
    for name in ("dev", "new", "proc", "run", "sys", "tmp", "root", "etc"):
        archive.entry(name, stat.S_IFDIR | 0o755)
    archive.entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    for tool in TOOLS:
        source = shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin")
        if source is None:
            raise SystemExit(f"guest: {tool} is missing")
        archive.add_program(os.path.realpath(source), f"usr/bin/{tool}")
    folder = pathlib.Path(build) / "tests/integration/sandbox"
    archive.add_program(folder / "sandbox_probe", "build/sandbox_probe")
    commands = []
    for name, cases in tests:
        archive.add_program(folder / f"test_sandbox_{name}", f"build/{name}")
        options = "".join(f" -p /sandbox/{name}/runsc/{case}" for case in cases or [])
        commands.append(f"timeout {seconds} /build/{name} --tap{options}\necho GUEST status {name} $?")
    archive.entry("init", stat.S_IFREG | 0o755, INIT.encode())
    archive.entry("run.sh", stat.S_IFREG | 0o755, RUN.replace("COMMANDS", "\n".join(commands)).encode())
    archive.close()


def boot(kernel, initrd, log, seconds):
    """The console's text, whatever happened."""
    command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
               "-m", str(MEMORY_MIB), "-display", "none", "-no-reboot", "-nodefaults", "-serial", f"file:{log}",
               "-kernel", kernel, "-initrd", initrd,
               "-append", "console=ttyS0 quiet panic=-1 cgroup_no_v1=all mitigations=off random.trust_cpu=on"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as qemu:
        until = time.monotonic() + seconds
        def stop(*_):
            qemu.kill()
            raise SystemExit(1)
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            while qemu.poll() is None and time.monotonic() < until:
                time.sleep(0.5)
        finally:
            if qemu.poll() is None:
                qemu.kill()
    return pathlib.Path(log).read_text(encoding="utf-8", errors="replace").replace("\r", "")


def judge(console, tests):
    """(ok, name) for each fact that must be in the console."""
    seen = {}
    for verdict, name in re.findall(r"^(ok|not ok) \d+ (/\S+)$", console, re.M):
        seen[name] = seen.get(name, True) and verdict == "ok"
    controllers = re.search(r"^GUEST controllers (.*)$", console, re.M)
    yield controllers is not None and {"memory", "pids", "cpu"} <= set(controllers[1].split()), "guest: control groups version 2"
    for name, cases in tests:
        status = re.search(rf"^GUEST status {name} (\d+)$", console, re.M)
        yield status is not None and status[1] == "0", f"guest: program {name} ends well"
        if cases is None:
            cases = [case.rsplit("/", 1)[1] for case in seen if case.startswith(f"/sandbox/{name}/runsc/")]
            yield len(cases) > 5, f"guest: program {name} has run"
        for case in cases:
            yield seen.get(f"/sandbox/{name}/runsc/{case}", False), f"guest: /sandbox/{name}/runsc/{case}"
    left = re.search(r"^GUEST left *(.*)$", console, re.M)
    yield left is not None and left[1] == "", "guest: no sandbox is left"
    yield re.search(r"^GUEST end$", console, re.M) is not None, "guest: came to its end"


def main():
    kernel, build, results = sys.argv[1:4]
    if os.uname().machine != "x86_64":
        print("1..0 # SKIP the guest is an x86-64 one")
        return 0
    if not os.path.exists(kernel):
        print("1..1\nnot ok 1 guest: there is no kernel; scripts/guest-kernel.sh fetches one")
        return 1
    os.makedirs(results, exist_ok=True)
    long_run = os.environ.get("QUAVON_TEST_LONG") == "1"
    tests = LONG_TESTS if long_run else TESTS
    seconds = LONG_GUEST_SECONDS if long_run else GUEST_SECONDS
    log = os.path.join(results, "guest.log")
    with tempfile.TemporaryDirectory(prefix="qv-guest-") as folder:
        initrd = os.path.join(folder, "initrd")
        pack(initrd, build, tests, seconds)
        console = boot(kernel, initrd, log, seconds)
    verdicts = list(judge(console, tests))
    print(f"1..{len(verdicts)}")
    for i, (fine, name) in enumerate(verdicts, 1):
        print(f"{'ok' if fine else 'not ok'} {i} {name}")
    if all(fine for fine, _ in verdicts):
        return 0
    for line in console.splitlines()[-CONSOLE_LINES:]:
        print(f"# {line}")
    return 1


sys.exit(main())
