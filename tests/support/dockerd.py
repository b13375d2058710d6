#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dockerd.py FOLDER: the keeper of a private Docker engine for a test.

The engine and its containerd live in a network and a mount namespace of their own, with a small tmpfs over
/proc/sys/net (kernel 6.11 and newer: else this release of runsc refuses networking), below FOLDER with every
root, socket and state, and below a control group of their own. Nothing of the machine's own engine is touched.

Commands, a line each on standard input, each answered with one line:

    start                start engine and containerd where they do not run      ready | failed TEXT
    kill                 SIGKILL the engine                                      done
    kill-all             SIGKILL the engine, then containerd                     done
    stop                 SIGTERM, as a service's restart sends it                done
    pid                  the engine's process id                                 NUMBER (0: it does not run)
    containerd           containerd's                                            NUMBER
    image FOLDER [ARCH]  make an image of one layer of FOLDER and load it        sha256:… | failed TEXT
    load FILE            load an archive                                         done | failed TEXT

With a second argument `plain` the tmpfs over /proc/sys/net is left out: what this release of runsc refuses there is
refused. With `small` the engine's data root is a tmpfs of a few MiB, to be filled.

The end of standard input, however it comes about, is the end of everything: the engine is told to stop, then
every process of its mount namespace or its control groups is killed, by id, and namespaces, mounts, control
groups and FOLDER go. Reports what it could not remove on stderr, exit 1.
"""

import ctypes
import hashlib
import http.client
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36
READY_S = 120
STOP_S = 30
CLEAN_S = 120
CGROUPS = pathlib.Path("/sys/fs/cgroup")

# dockerd writes these; runsc takes their absence elsewhere for a namespace that is not the root's.
SETUP = r"""
set -e
[ "$1" = plain ] || {
mount -t tmpfs -o mode=755,size=1m tmpfs /proc/sys/net
mkdir -p /proc/sys/net/ipv4/conf/all /proc/sys/net/ipv4/conf/default /proc/sys/net/ipv4/conf/lo \
  /proc/sys/net/ipv6/conf/all /proc/sys/net/ipv6/conf/default
echo 1 >/proc/sys/net/ipv4/ip_forward
for name in all default lo; do echo 0 >/proc/sys/net/ipv4/conf/$name/route_localnet; done
for name in all default; do echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6; echo 0 >/proc/sys/net/ipv6/conf/$name/forwarding; done
}
[ "$1" != small ] || mount -t tmpfs -o size=48m tmpfs "$2"
ip link set lo up
exec sleep infinity
"""


class Keeper:
    def __init__(self, folder, mode):
        self.mode = mode
        self.folder = pathlib.Path(folder)
        self.group = "quavon-test-" + self.folder.name
        self.holder = self.containerd = self.engine = None
        self.namespace = self.namespace_fd = None

    def path(self, name):
        return str(self.folder / name)

    def write_settings(self):
        runsc = shutil.which("runsc") or "runsc"
        systrap = ["--platform=systrap"]
        runtimes = {
            "runsc": {"path": runsc, "runtimeArgs": systrap},
            "runsc-offline": {"path": runsc, "runtimeArgs": systrap + ["--network=none"]},
            # What a runner must refuse.
            "runsc-ptrace": {"path": runsc, "runtimeArgs": ["--platform=ptrace", "--network=none"]},
            "runsc-bare": {"path": runsc, "runtimeArgs": ["--network=none"]},
            "runsc-broken": {"path": "/bin/false", "runtimeArgs": systrap},
            # Names systrap as a runtime that is gVisor does, and is runc.
            "runsc-false": {"path": self.path("false-runsc")},
        }
        false_runsc = self.folder / "false-runsc"
        false_runsc.write_text('#!/bin/sh\nexec runc "$@"\n')
        false_runsc.chmod(0o755)
        runtimes["runsc-false"]["runtimeArgs"] = []
        (self.folder / "data").mkdir(mode=0o710)
        settings = {
            "data-root": self.path("data"), "exec-root": self.path("exec"), "pidfile": self.path("dockerd.pid"),
            "hosts": ["unix://" + self.path("docker.sock")], "containerd": self.path("containerd.sock"),
            "cgroup-parent": "/" + self.group, "bridge": "none", "storage-driver": "overlay2", "log-level": "warn",
            "exec-opts": ["native.cgroupdriver=cgroupfs"], "runtimes": runtimes, "shutdown-timeout": 5,
        }
        (self.folder / "daemon.json").write_text(json.dumps(settings))
        (self.folder / "containerd.toml").write_text(
            'version = 2\nroot = "{0}/containerd"\nstate = "{0}/containerd-state"\n'
            'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", '
            '"io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]\n'
            '[grpc]\naddress = "{0}/containerd.sock"\n'
            '[debug]\naddress = ""\nlevel = "warn"\n'.format(self.folder))

    def log(self, name):
        return open(self.folder / name, "ab")

    def run_inside(self, argv, log):
        return subprocess.Popen(["nsenter", f"--target={self.holder.pid}", "--mount", "--net", "--", *argv],
                                stdin=subprocess.DEVNULL, stdout=self.log(log), stderr=subprocess.STDOUT,
                                start_new_session=True)

    def hold_namespaces(self):
        self.holder = subprocess.Popen(["unshare", "--mount", "--net", "--propagation=private", "--", "sh", "-c", SETUP, "sh", self.mode,
                                        self.path("data")],
                                       stdin=subprocess.DEVNULL, stdout=self.log("holder.log"), stderr=subprocess.STDOUT,
                                       start_new_session=True)
        until = time.monotonic() + READY_S
        own = os.readlink("/proc/self/ns/mnt")
        while time.monotonic() < until:
            if self.holder.poll() is not None:
                return "the namespaces could not be made: " + self.tail("holder.log")
            try:
                name = pathlib.Path(f"/proc/{self.holder.pid}/comm").read_text().strip()
                self.namespace = os.readlink(f"/proc/{self.holder.pid}/ns/mnt")
            except OSError:
                name = ""
            if name == "sleep" and self.namespace != own:
                # Held open to the end: the number of a namespace that is gone is given to somebody else's.
                self.namespace_fd = os.open(f"/proc/{self.holder.pid}/ns/mnt", os.O_RDONLY)
                return None
            time.sleep(0.02)
        return "the namespaces took too long"

    def tail(self, name):
        try:
            return " ".join((self.folder / name).read_text(errors="replace")[-1500:].split())
        except OSError:
            return ""

    def wait_for(self, process, ready, log):
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if process.poll() is not None:
                return "ended with %d: %s" % (process.returncode, self.tail(log))
            if ready():
                return None
            time.sleep(0.05)
        return "not ready in time: " + self.tail(log)

    def answers(self):
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.settimeout(5)
                peer.connect(self.path("docker.sock"))
                peer.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b"200" in peer.recv(64)
        except OSError:
            return False

    def post(self, path, body):
        peer = http.client.HTTPConnection("localhost", timeout=READY_S)
        peer.sock = socket.socket(socket.AF_UNIX)
        peer.sock.settimeout(READY_S)
        peer.sock.connect(self.path("docker.sock"))
        peer.request("POST", path, body=body, headers={"Content-Type": "application/x-tar"})
        answer = peer.getresponse()
        text = answer.read().decode(errors="replace")
        peer.close()
        if answer.status != 200 or '"error"' in text:
            return "failed " + " ".join(text.split())
        return "done"

    def load(self, archive):
        with open(archive, "rb") as body:
            return self.post("/images/load", body)

    def image(self, folder, architecture):
        """An image of one layer, whose id is the SHA-256 of a config that is ours: no build, no registry."""
        def plain(info):
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            return info
        with tempfile.NamedTemporaryFile(dir=self.folder) as layer, tempfile.NamedTemporaryFile(dir=self.folder) as out:
            with tarfile.open(fileobj=layer, mode="w") as tar:
                for path in sorted(pathlib.Path(folder).rglob("*")):
                    tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=plain)
            layer.seek(0)
            digest = hashlib.sha256(layer.read()).hexdigest()
            config = json.dumps({"architecture": architecture, "os": "linux", "created": "2025-01-01T00:00:00Z",
                                 "config": {"Env": ["PATH=/usr/bin:/bin"]},
                                 "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]}}).encode()
            name = hashlib.sha256(config).hexdigest()
            manifest = json.dumps([{"Config": name + ".json", "RepoTags": None, "Layers": ["layer.tar"]}]).encode()
            with tarfile.open(fileobj=out, mode="w") as tar:
                for member, text in ((name + ".json", config), ("manifest.json", manifest)):
                    info = tarfile.TarInfo(member)
                    info.size = len(text)
                    tar.addfile(info, io.BytesIO(text))
                layer.seek(0)
                tar.addfile(tar.gettarinfo(arcname="layer.tar", fileobj=layer), layer)
            out.flush()
            answer = self.load(out.name)
        return "sha256:" + name if answer == "done" else answer

    def start(self):
        if self.holder is None:
            self.write_settings()
            problem = self.hold_namespaces()
            if problem is not None:
                return "failed " + problem
        if self.containerd is None or self.containerd.poll() is not None:
            pathlib.Path(self.path("containerd.sock")).unlink(missing_ok=True)
            self.containerd = self.run_inside(["containerd", "--config", self.path("containerd.toml")], "containerd.log")
            problem = self.wait_for(self.containerd, lambda: os.path.exists(self.path("containerd.sock")), "containerd.log")
            if problem is not None:
                return "failed containerd: " + problem
        if self.engine is None or self.engine.poll() is not None:
            pathlib.Path(self.path("dockerd.pid")).unlink(missing_ok=True)
            self.engine = self.run_inside(["dockerd", "--config-file", self.path("daemon.json")], "dockerd.log")
            problem = self.wait_for(self.engine, self.answers, "dockerd.log")
            if problem is not None:
                return "failed dockerd: " + problem
        return "ready"

    @staticmethod
    def kill(process):
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def end(self, process):
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill(process)

    def ours(self):
        """Every process of the mount namespace and of the control groups: shims, containers, what a start left."""
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if self.namespace is not None and os.readlink(entry / "ns/mnt") == self.namespace:
                    found.add(int(entry.name))
                elif f"/{self.group}/" in (entry / "cgroup").read_text():
                    found.add(int(entry.name))
                elif os.fsencode(str(self.folder) + "/") in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
        return found

    def groups(self):
        roots = [CGROUPS] + [p for p in CGROUPS.iterdir() if p.is_dir()]
        return [root / self.group for root in roots if (root / self.group).is_dir()]

    def remove_groups(self):
        for top in self.groups():
            for folder, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass
        return not self.groups()

    def stop(self):
        for process in (self.engine, self.containerd):
            self.end(process)
        self.kill(self.holder)
        until = time.monotonic() + CLEAN_S
        while time.monotonic() < until:
            left = self.ours() - {os.getppid()}
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0] > 0:
                    pass
            except ChildProcessError:
                pass
            if not left and self.remove_groups():
                break
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)
        problems = [f"process {pid}" for pid in self.ours() - {os.getppid()}] + [str(g) for g in self.groups()]
        if self.folder.exists():
            problems.append(str(self.folder))
        return problems


def machine():
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "unknown")


def main():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    keeper = Keeper(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
    try:
        for line in sys.stdin:
            command, *rest = line.split()
            answer = "done"
            if command == "start":
                answer = keeper.start()
            elif command == "kill":
                keeper.kill(keeper.engine)
            elif command == "kill-all":
                keeper.kill(keeper.engine)
                keeper.kill(keeper.containerd)
            elif command == "stop":
                keeper.end(keeper.engine)
            elif command in ("pid", "containerd"):
                process = keeper.engine if command == "pid" else keeper.containerd
                answer = str(process.pid if process is not None and process.poll() is None else 0)
            elif command == "image":
                answer = keeper.image(rest[0], rest[1] if len(rest) > 1 else machine())
            elif command == "load":
                answer = keeper.load(rest[0])
            print(answer, flush=True)
    finally:
        problems = keeper.stop()
    for problem in problems:
        print("dockerd.py: left:", problem, file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
