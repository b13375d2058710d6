#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A runsc with one protection taken away: the name of the copy says which. Everything but `run` goes to the real one as it is.

`banner` is no gVisor at all: the host's kernel, hardened with namespaces, without capabilities, that prints gVisor's words.
It takes the folder `root` beside itself as the image.
"""

import ctypes
import json
import os
import pathlib
import socket
import sys

REAL = "runsc"
KIND = pathlib.Path(sys.argv[0]).name
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
UID = 65532
libc = ctypes.CDLL(None, use_errno=True)


def must(status):
    if status != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def mount(source, target, kind, flags, data=""):
    must(libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, data.encode()))


def raise_memory():
    """Of the cgroups that this process is in, v1 or v2."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        path = path[max(path.find("/quavon/"), 0):]
        for name in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes", "memory.max"):
            base = "/sys/fs/cgroup/memory" if controllers == "memory" else "/sys/fs/cgroup"
            file = pathlib.Path(base + path) / name
            if controllers in ("memory", "") and file.exists():
                file.write_text(str(2 << 30))


def weaken(config, argv):
    process, linux, mounts = config["process"], config["linux"], config["mounts"]
    if KIND == "capability":
        for kind in process["capabilities"]:
            process["capabilities"][kind] = ["CAP_SYS_ADMIN"]
    elif KIND == "writable-root":
        config["root"]["readonly"] = False
        argv[argv.index("--overlay2=none")] = "--overlay2=root:memory"
    elif KIND == "host-network":
        argv[argv.index("--network=none")] = "--network=host"
        linux["namespaces"] = [n for n in linux["namespaces"] if n["type"] != "network"]
    elif KIND == "memory":
        raise_memory()
    elif KIND == "processes":
        process["rlimits"] = [limit for limit in process["rlimits"] if limit["type"] != "RLIMIT_NPROC"]
    elif KIND == "root-user":
        process["user"] = {"uid": 0, "gid": 0}
        for mnt in mounts:
            mnt["options"] = [o.replace(str(UID), "0") for o in mnt["options"]]
    elif KIND == "group":
        process["user"]["additionalGids"] = [0]
    elif KIND == "host-folder":
        mounts.append({"destination": "/mnt", "type": "bind", "source": "/etc", "options": ["bind", "ro"]})
    elif KIND == "big-work":
        work = next(m for m in mounts if m["destination"] == "/workspace")
        work["options"] = [o for o in work["options"] if not o.startswith("size=")]
    elif KIND == "environment":
        process["env"].append("VALKEY_URL=redis://nobody@127.0.0.1")
    elif KIND == "hostname":
        config["hostname"] = socket.gethostname()
    elif KIND == "open-files":
        for limit in process["rlimits"]:
            if limit["type"] == "RLIMIT_NOFILE":
                limit.update(hard=1 << 30, soft=1 << 30)
    else:
        raise SystemExit(f"weak_runsc: unknown kind {KIND}")


def banner():
    """Returns only in the process that is to become the entry."""
    root = pathlib.Path(sys.argv[0]).resolve().parent / "root"
    must(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET))
    child = os.fork()
    if child != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    mount(str(root), root, "none", MS_BIND)
    mount("none", root, "none", MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV)
    mount("tmpfs", root / "run", "tmpfs", 0, "size=1m")
    for name, size in (("workspace", 16), ("tmp", 256)):
        mount("tmpfs", root / name, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size}m,mode=0700,uid={UID},gid={UID}")
    mount("tmpfs", root / "dev", "tmpfs", 0, "size=1m")
    (root / "dev/shm").mkdir()
    mount("tmpfs", root / "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    (root / "dev/null").touch()
    mount("/dev/null", root / "dev/null", "none", MS_BIND)
    words = {"version": "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n",
             "cmdline": "BOOT_IMAGE=/vmlinuz-4.4.0-gvisor quiet\n",
             "sys/kernel/random/boot_id": "4b05bc09-c5f4-4f4c-9a63-bcadcc997a92\n", "uptime": "1.00 0.50\n"}
    for name, text in words.items():
        fake = root / "run" / name.replace("/", ".")
        fake.write_text(text)
        mount(str(fake), root / "proc" / name, "none", MS_BIND)
    mount("none", root / "run", "none", MS_REMOUNT | MS_RDONLY)
    socket.sethostname("sandbox")
    os.chroot(root)
    os.chdir("/")
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    libc.prctl(38, 1, 0, 0, 0)


def main():
    argv = [REAL, *sys.argv[1:]]
    if "run" not in argv:
        os.execvp(REAL, argv)
    bundle = pathlib.Path(next(a for a in argv if a.startswith("--bundle=")).partition("=")[2])
    file = bundle / "config.json"
    config = json.loads(file.read_text())
    if KIND == "banner":
        banner()
        os.execve(config["process"]["args"][0], config["process"]["args"],
                  dict(v.split("=", 1) for v in config["process"]["env"]))
    weaken(config, argv)
    file.write_text(json.dumps(config))
    os.execvp(REAL, argv)


main()
