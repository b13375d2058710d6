#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quavon-egress-network with the kernel's nftables and a private engine, in network namespaces of their own: its table is
nobody else's, what was changed in it is mended, and a network that is there is looked at. And what the Compose installer
makes of it and removes."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import tap

ROOT = pathlib.Path(os.environ["QUAVON_SOURCE_ROOT"])
TOOL = ROOT / "deploy" / "docker" / "quavon-egress-network"
TABLE = "quavon_egress_quavon_2degress"
DEADLINE_S = 120


class Host:
    """Commands in the network namespace of a process."""

    def __init__(self, pid, **environment):
        self.prefix = ("nsenter", f"--target={pid}", "--net", "--")
        self.environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", **environment}

    def run(self, *words, status=0, **environment):
        done = subprocess.run([*self.prefix, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env={**self.environment, **environment})
        assert done.returncode == status, (words, done.returncode, done.stdout)
        return done.stdout


class Namespace:
    def __enter__(self):
        if os.geteuid() != 0 or shutil.which("nft") is None:
            raise tap.Skip("needs root and nft")
        self.holder = subprocess.Popen(["unshare", "--net", "--", "sh", "-c", "echo ready; exec sleep infinity"],
                                       stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "ready\n"
        return Host(self.holder.pid)

    def __exit__(self, *_):
        self.holder.kill()
        self.holder.wait()


class Engine:
    """A host with the keeper of a private engine (tests/support/dockerd.py). Nothing but the setting says where it is."""

    def __enter__(self):
        if os.geteuid() != 0 or not all(map(shutil.which, ("nft", "docker", "dockerd"))):
            raise tap.Skip("needs root, nft, docker and dockerd")
        folder = tempfile.mkdtemp(prefix="qv-docker-", dir="/tmp")
        self.keeper = subprocess.Popen([sys.executable, ROOT / "tests" / "support" / "dockerd.py", folder],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self.ask("start")
        assert answer == "ready", answer
        return Host(self.ask("pid"), QUAVON_SANDBOX_DOCKER_SOCKET=folder + "/docker.sock", DOCKER_HOST="unix:///nonexistent")

    def ask(self, command):
        self.keeper.stdin.write(command + "\n")
        self.keeper.stdin.flush()
        return self.keeper.stdout.readline().strip()

    def __exit__(self, *_):
        self.keeper.stdin.close()
        assert self.keeper.wait(timeout=300) == 0, "the private engine left something behind"


def table(host, name=TABLE):
    return host.run("nft", "--stateless", "list", "table", "inet", name)


def wait_for(what, condition):
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain: " + what)


def test_table_is_nobody_elses():
    """A network called filter does not touch Debian's table of that name; names that differ have tables that differ."""
    with Namespace() as host:
        host.run("nft", "add table inet filter; add chain inet filter input; add rule inet filter input tcp dport 22 accept")
        before = table(host, "filter")
        names = ("filter", "a-b", "a_b", "a.b", "a_2db", "quavon-egress")
        for name in names:
            host.run(TOOL, "rules", QUAVON_SANDBOX_EGRESS_NETWORK=name)
        made = host.run("nft", "list", "tables").split("\n")
        assert len([line for line in made if line.startswith("table inet quavon_egress_")]) == len(names), made
        assert f"table inet {TABLE}" in made and "table inet quavon_egress_filter" in made, made
        host.run("nft", "delete", "table", "inet", "quavon_egress_filter")
        assert table(host, "filter") == before


def sleeps(pid):
    """The keeper has loaded the rules and taken its picture of them: a change from here on is one that it must see."""
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            if pathlib.Path(f"/proc/{child}/comm").read_text() == "sleep\n":
                return True
        except OSError:
            continue
    return False


def test_keep():
    """Whatever is done to the table, the same rules are back."""
    with Namespace() as host:
        keeper = subprocess.Popen([*host.prefix, TOOL, "keep"], env=host.environment, stdin=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_for("the rules", lambda: TABLE in host.run("nft", "list", "tables") and sleeps(keeper.pid))
            loaded = table(host)
            for change in ("flush ruleset", f"flush chain inet {TABLE} forward", f"delete chain inet {TABLE} input",
                           f"insert rule inet {TABLE} input iifname quavon-egress tcp dport 22 accept"):
                host.run("nft", change)
                wait_for("the rules again after " + change,
                         lambda: TABLE in host.run("nft", "list", "tables") and table(host) == loaded and sleeps(keeper.pid))
        finally:
            os.killpg(keeper.pid, 9)
            keeper.wait()


def test_network_that_is_there():
    good = {"com.docker.network.bridge.name": "quavon-egress", "com.docker.network.bridge.enable_icc": "false",
            "com.docker.network.bridge.enable_ip_masquerade": "false"}
    with Engine() as host:
        def make(*words, **other):
            options = {**good, **{"com.docker.network.bridge." + name: value for name, value in other.items()}}
            host.run("docker", "network", "create", *words, *(f"--opt={name}={value}" for name, value in options.items()),
                     "quavon-egress", DOCKER_HOST="unix://" + host.environment["QUAVON_SANDBOX_DOCKER_SOCKET"])
        here, away = ("--subnet=10.89.213.0/24", "--gateway=10.89.213.1"), ("--subnet=10.89.214.0/24", "--gateway=10.89.214.1")
        assert "QUAVON_EGRESS_LISTEN=10.89.213.1:3128\n" in host.run(TOOL, "up")
        host.run(TOOL, "up")
        for words, other in ((here, {}), (("--internal", *away), {}), (("--internal", *here), {"name": "another"}),
                             (("--internal", *here), {"enable_icc": "true"}), (("--internal", *here), {"enable_ip_masquerade": "true"}),
                             (("--internal", "--subnet=10.89.213.0/24", "--gateway=10.89.213.2"), {})):
            host.run(TOOL, "down")
            make(*words, **other)
            said = host.run(TOOL, "up", status=1)
            assert "exists and is otherwise" in said and said.endswith("quavon-egress-network down, then up\n"), said
        host.run(TOOL, "down")
        make("--internal", *here)
        host.run(TOOL, "up")
        host.run(TOOL, "down")
        assert TABLE not in host.run("nft", "list", "tables")


# The installer's functions without its verbs; the unit goes to a folder of the test's.
COMPOSE = r"""
. <(sed '/^upgrade=/,$d' "$0")
dir=$1 keeper_folder=$1
systemd_runs() { [ -n "$systemd" ]; }
systemctl() { echo "systemctl $*"; [ "${2-}" != is-enabled ]; }
"""


def compose(host, folder, script):
    return host.run("bash", "-c", COMPOSE + script, ROOT / "deploy" / "compose" / "quavon", folder, QUAVON_COMPOSE_PROJECT="qvtest")


def settings_of(folder):
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def check_keeper(folder, said):
    path = folder / "qvtest-compose-egress-network.service"
    assert said.index(f"- {path}: a unit") < said.index("systemctl daemon-reload") < said.index("systemctl restart"), said
    text = path.read_text()
    for setting in ("NETWORK=quavon-egress", "PROXY=10.89.213.1:3128"):
        assert f'\nEnvironment="QUAVON_SANDBOX_EGRESS_{setting}"\n' in text, text
    assert '\nEnvironment="QUAVON_SANDBOX_DOCKER_SOCKET=/' in text and f'\nExecStart=/bin/sh "{TOOL}" keep\n' in text, text
    assert "\nCapabilityBoundingSet=CAP_NET_ADMIN CAP_DAC_READ_SEARCH\n" in text, text
    assert "Condition" not in text and "EnvironmentFile" not in text and "@sbindir" not in text, text
    if shutil.which("systemd-analyze") is not None:
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
        ours = [line for line in (done.stdout + done.stderr).splitlines() if path.name in line]
        assert done.returncode == 0 and not ours, (done.stdout, done.stderr)
    return path


def test_compose():
    with Engine() as host, tempfile.TemporaryDirectory(prefix="qv-test-") as name:
        folder = pathlib.Path(name)
        socket = host.environment.pop("QUAVON_SANDBOX_DOCKER_SOCKET")
        own = f"QUAVON_DOCKER_SOCKET={socket}\nQUAVON_SANDBOX_REGISTRIES=registry.example\n"
        (folder / ".env").write_text(own)
        said = compose(host, folder, "systemd='' prepare_registries")
        assert f"QUAVON_SANDBOX_DOCKER_SOCKET={socket} sh -c '{TOOL} up && exec {TOOL} keep'" in said, said
        path = check_keeper(folder, compose(host, folder, "systemd=yes prepare_registries"))
        made = settings_of(folder)
        assert made["QUAVON_EGRESS_NETWORK_MODE"] == "host" and made["QUAVON_EGRESS_LISTEN"] == "10.89.213.1:3128", made
        # While registries are listed nothing of it goes, and the services see it.
        look = "(hide_registries && env | grep ^QUAVON_EGRESS_NETWORK_MODE= || echo seen); remove_registries_unlisted"
        assert compose(host, folder, "systemd=yes; " + look) == "seen\n" and settings_of(folder) == made
        # What cannot be removed stays as a whole, its firewall and its keeper too.
        gone = (folder / ".env").read_text().replace("QUAVON_SANDBOX_REGISTRIES=registry.example\n", "")
        (folder / ".env").write_text(gone.replace(socket, "/nonexistent"))
        made = settings_of(folder)
        said = compose(host, folder, "systemd=yes; " + look)
        assert said.startswith("QUAVON_EGRESS_NETWORK_MODE=\n") and "could not be removed" in said and "systemctl start" in said, said
        assert settings_of(folder) == made and path.exists() and TABLE in host.run("nft", "list", "tables")
        (folder / ".env").write_text(gone)
        said = compose(host, folder, "systemd=yes; remove_registries")
        assert said.index(str(path)) < said.index("systemctl stop") < said.index("disable") < said.index("daemon-reload"), said
        assert (folder / ".env").read_text() == f"QUAVON_DOCKER_SOCKET={socket}\n" and not path.exists()
        assert "quavon" not in host.run("nft", "list", "tables")
        assert "quavon" not in host.run("docker", "network", "ls", DOCKER_HOST="unix://" + socket)


if __name__ == "__main__":
    tap.main(globals())
