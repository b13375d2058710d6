#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Compose installer against a private Docker engine with Compose 2: what it says, makes, keeps and removes, that the
services become healthy and doctor is content, that jobs run through them, that those which wait during an upgrade run
in the image that they were signed for, and that registries come and go."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import stack_registries
import tap

ROOT = pathlib.Path(os.environ["QUAVON_SOURCE_ROOT"])
IMAGES = pathlib.Path(os.environ["QUAVON_TEST_IMAGES"])
INSTALLER = ROOT / "deploy" / "compose" / "quavon"
NETWORK = ROOT / "deploy" / "docker" / "quavon-egress-network"
# What an operator has in .env, and in a file beside it, for metrics where an exporter may go (docs/LOGGING.md). The stack is asked often
# whether it is healthy, as nobody wants to wait here.
OWN = "QUAVON_HEALTH_INTERVAL=1s\nQUAVON_METRICS_FILE=/var/lib/quavon-metrics/quavon.prom\n"
OVERRIDE = "services:\n  sandbox-runner:\n    volumes: [\"{}:/var/lib/quavon-metrics\"]\n"
SERVICE_BYTES_MAX = 128 << 20
SECRETS = ["sandbox_signing_key", "valkey_sandbox_password", "valkey_sandbox_url", "valkey_egress_password", "valkey_egress_url"]


class Engine:
    """The keeper of a private engine (tests/support/dockerd.py)."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qv-docker-", dir="/tmp"))
        self.keeper = subprocess.Popen([sys.executable, ROOT / "tests" / "support" / "dockerd.py", self.folder],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self.ask("start")
        assert answer == "ready", answer
        self.environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DOCKER_HOST": f"unix://{self.folder}/docker.sock",
                            "QUAVON_DOCKER_CONFIG": str(self.folder / "daemon.json"), "QUAVON_COMPOSE_PROJECT": "qvtest",
                            "QUAVON_IMAGES": "base", "LC_ALL": "C.UTF-8",
                            # The stack is what is tried here, not Debian's packages.
                            "QUAVON_TEST_BASE_TAR": str(self.folder / "tiny.tar"), "QUAVON_TEST_TREES": str(IMAGES / "services")}
        self.make_tiny()

    def make_tiny(self):
        """In the place of the image base: a few programs with their libraries."""
        tree = self.folder / "tiny"
        for name in ("bin", "etc", "workspace", "tmp", "proc", "sys", "dev", "run", "opt"):
            (tree / name).mkdir(parents=True)
        (tree / "etc" / "passwd").write_text("sandbox:x:65532:65532::/workspace/home:/bin/sh\n")
        (tree / "etc" / "shadow").touch(0o600)
        for program in ("/bin/sh", "/bin/cat", "/bin/sleep", "/usr/bin/id", "/usr/bin/openssl", "/usr/bin/timeout"):
            shutil.copy(os.path.realpath(program), tree / "bin" / os.path.basename(program))
            for word in self.run("ldd", program).split():
                if word.startswith("/"):
                    target = tree / word.lstrip("/")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(os.path.realpath(word), target)
        self.pack_tiny()

    def pack_tiny(self):
        self.run("tar", "--create", "--file", self.folder / "tiny.tar", "--directory", self.folder / "tiny", ".")

    def ask(self, command):
        self.keeper.stdin.write(command + "\n")
        self.keeper.stdin.flush()
        return self.keeper.stdout.readline().strip()

    def close(self):
        self.keeper.stdin.close()
        assert self.keeper.wait(timeout=300) == 0, "the private engine left something behind"

    def run(self, *words, status=0, **options):
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, env=self.environment, **options)
        assert status is None or done.returncode == status, (words, done.returncode, done.stdout[-6000:])
        return done.stdout

    def docker(self, *words):
        return self.run("docker", *words)

    def services(self, *words):
        """The stack's own containers: one of a sandbox may be there a moment longer than its job's answer."""
        return self.docker("ps", "--filter", "label=com.docker.compose.project=qvtest", *words).splitlines()


def wait_for(what, condition):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError("waited in vain: " + what)


def runtimes(engine):
    return json.loads(engine.docker("info", "--format", "{{json .Runtimes}}"))


def drop_offline_runtime(engine):
    """As on a host where only `runsc install` was run."""
    path = engine.folder / "daemon.json"
    config = json.loads(path.read_text())
    config["runtimes"].pop("runsc-offline")
    path.write_text(json.dumps(config))
    pid = int((engine.folder / "dockerd.pid").read_text())
    os.kill(pid, 1)
    wait_for("the engine without runsc-offline", lambda: "runsc-offline" not in runtimes(engine))


def secrets_of(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_uid) for path in (folder / "secrets").iterdir()}


def settings_of(folder):
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def lock_of(folder):
    return json.loads((folder / "images" / "images.lock.json").read_text())["images"]


def check_dry_run(engine, folder):
    said = engine.run(INSTALLER, "install", "--sandbox", "--dry-run", "--dir", folder)
    for word in SECRETS + ["COMPOSE_PROFILES=sandbox", "QUAVON_DOCKER_GID=", "runsc-offline", "service image runner", "sandbox images"]:
        assert word in said, (word, said)
    assert not folder.exists() and "runsc-offline" not in runtimes(engine) and not engine.docker("ps", "--all", "--quiet")
    # With registries the network and its firewall are among the changes; without, and in a dry run, nothing of the host's is touched.
    assert "jobs with egress" not in said
    listed = engine.folder / "listed"
    listed.mkdir()
    (listed / ".env").write_text("QUAVON_SANDBOX_REGISTRIES=registry.example\n")
    assert "the Docker network of jobs with egress" in engine.run(INSTALLER, "install", "--sandbox", "--dry-run", "--dir", listed)
    assert "quavon-egress" not in engine.docker("network", "ls")
    said = engine.run(INSTALLER, "install", "--dir", folder, status=1)
    assert "--yes" in said and not folder.exists(), said


def the_operators_lines(engine, folder):
    """Written before the first install, and still there behind the last."""
    folder.mkdir(0o755)
    (folder / ".env").write_text(OWN)
    (folder / "compose.override.yaml").write_text(OVERRIDE.format(engine.folder / "metrics"))
    (engine.folder / "metrics").mkdir(0o755)
    shutil.chown(engine.folder / "metrics", 65532)


def check_install(engine, folder):
    the_operators_lines(engine, folder)
    said = engine.run(INSTALLER, "install", "--sandbox", "--yes", "--dir", folder)
    # The last word is doctor's.
    assert re.search(r"\nQD957 +ok ", said) and said.rstrip().endswith(" 0 failures"), said
    made = secrets_of(folder)
    assert set(SECRETS) <= set(made)
    assert all((mode, uid) == (0o400, 65532) for _, mode, uid in made.values()), said
    settings = settings_of(folder)
    assert settings["COMPOSE_PROFILES"] == "sandbox"
    assert settings["QUAVON_DOCKER_GID"] == str((engine.folder / "docker.sock").stat().st_gid)
    assert runtimes(engine)["runsc-offline"]["runtimeArgs"] == ["--platform=systrap", "--network=none"]
    known = engine.docker("images", "--no-trunc", "--quiet").split()
    assert [image["digest"] in known for image in lock_of(folder)] == [True]
    running = engine.services("--format", "{{.Names}} {{.Status}}")
    assert len(running) == 3 and all("(healthy)" in line for line in running), running
    for name in engine.services("--quiet"):
        config = json.loads(engine.docker("inspect", name))[0]
        assert config["Config"]["User"] == "65532:65532" and config["HostConfig"]["ReadonlyRootfs"]
        assert config["HostConfig"]["CapDrop"] == ["ALL"] and config["HostConfig"]["NetworkMode"] == "none"
        assert config["Image"] in settings.values()
        size = int(engine.docker("image", "inspect", "--format", "{{.Size}}", config["Image"]))
        assert size < SERVICE_BYTES_MAX, (config["Name"], size)
    metrics = engine.folder / "metrics" / "quavon.prom"
    wait_for("the runner's metrics", lambda: metrics.exists() and "quavon_smoke_passed 1" in metrics.read_text())


def quavon(engine, *words):
    """As the worker of the stack."""
    return engine.run(INSTALLER, *words)


def check_job(engine, folder):
    """What doctor said is so: a job of this host runs at once."""
    repository = engine.folder / "repo"
    repository.mkdir()
    (repository / "hello.txt").write_text("hello from the sandbox\n")
    engine.environment["QUAVON_COMPOSE_DIR"] = str(folder)
    said = quavon(engine, "run", "--quiet", "--repo", repository, "--memory", "256M", "--", "sh", "-c", "cat hello.txt; id -u")
    assert said == "hello from the sandbox\n65532\n", said


def check_again(engine, folder):
    """Another run changes nothing that is right, even with jobs that wait."""
    before, images, running = secrets_of(folder), lock_of(folder), engine.services("--quiet", "--no-trunc")
    said = engine.run(INSTALLER, "install", "--dir", folder, status=1)
    assert "--yes" in said, said
    said = engine.run(INSTALLER, "install", "--dry-run", "--dir", folder)
    for word in ("secret", "image", ".env", "runtime"):
        assert word not in said, said
    assert (secrets_of(folder), lock_of(folder), engine.services("--quiet", "--no-trunc")) == (before, images, running)


def check_upgrade(engine, folder):
    """Two jobs wait while the image becomes another one. They are named, and run in the one before; a new one in the new."""
    before, images, running = secrets_of(folder), lock_of(folder), engine.services("--quiet", "--no-trunc")
    words = ("run", "--repo", engine.folder / "repo", "--memory", "256M")
    script = ("--", "sh", "-c", "cat /release hello.txt || exit 3")
    quavon(engine, "pool", "pause")
    waiting = [quavon(engine, *words, "--detach", *script).split()[-1] for _ in range(2)]
    (engine.folder / "tiny" / "release").write_text("the next release\n")
    engine.pack_tiny()
    said = engine.run(INSTALLER, "install", "--yes", "--dir", folder)
    told = [line for line in said.splitlines() if "wait for the previous image" in line]
    assert len(told) == 1 and told[0].startswith("2 jobs wait for the previous image base (" + images[0]["digest"] + ")"), said
    assert all(job in told[0] for job in waiting), told
    assert said.rstrip().endswith(" 0 failures") and "new secret" not in said, said
    assert [image["digest"] for image in lock_of(folder)][1:] == [images[0]["digest"]], lock_of(folder)
    # The same programs are the same service images: nothing is started anew.
    assert (secrets_of(folder), engine.services("--quiet", "--no-trunc")) == (before, running)
    quavon(engine, "pool", "resume")
    for job in waiting:
        assert "No such file" in engine.run(INSTALLER, "wait", job, status=3)
    assert quavon(engine, *words, "--quiet", *script) == "the next release\nhello from the sandbox\n"


def check_rotation(engine, folder):
    """The runner sees the next key beside its own, and takes it at SIGHUP; a job runs before, between and after."""
    job = ("run", "--quiet", "--repo", engine.folder / "repo", "--memory", "256M", "--", "cat", "hello.txt")
    old = (folder / "secrets" / "sandbox_signing_key").read_bytes()
    for step in ("prepare", "reload", "switch", "reload"):
        if step == "reload":
            engine.docker("kill", "--signal", "HUP", "qvtest-sandbox-runner-1")
        else:
            quavon(engine, "keys", "rotate", step)
        assert quavon(engine, *job) == "hello from the sandbox\n", step
    assert (folder / "secrets" / "sandbox_signing_key").read_bytes() != old
    quavon(engine, "keys", "rotate", "finish", "--now")
    said = quavon(engine, "doctor")
    assert said.rstrip().endswith(" 0 failures"), said


def check_smoke_request(engine, folder):
    said = quavon(engine, "doctor", "--sandbox-smoke")
    assert re.search(r"\nQD957 +ok ", said) and said.rstrip().endswith(" 0 failures"), said


def check_registries(engine, folder):
    stack_registries.check(engine, folder, INSTALLER)


def check_uninstall(engine, folder):
    before = secrets_of(folder)
    stack_registries.list_again(engine, folder, NETWORK)
    engine.run(*stack_registries.inside(engine, INSTALLER, "uninstall", "--yes", "--dir", folder))
    assert stack_registries.what_is_there(engine, folder) == (False, False, [])
    stack_registries.unlist(folder)
    assert secrets_of(folder) == before
    # The sandbox of the last job answered may be a moment from being gone.
    wait_for("no container", lambda: not engine.docker("ps", "--all", "--quiet"))
    assert engine.docker("volume", "ls", "--quiet")
    engine.run(INSTALLER, "uninstall", "--purge", "--yes", "--dir", folder)
    assert not engine.docker("volume", "ls", "--quiet") and not engine.docker("images", "--quiet", "--no-trunc")
    wait_for("the engine without runsc-offline", lambda: "runsc-offline" not in runtimes(engine))
    left = sorted(path.name for path in folder.iterdir())
    # What the operator wrote stays the operator's.
    assert left == [".env", "compose.override.yaml"] and (folder / ".env").read_text() == OWN, left


CHECKS = (check_dry_run, check_install, check_job, check_again, check_upgrade, check_rotation, check_smoke_request, check_registries, check_uninstall)


def test_stack():
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise tap.Skip("needs root and an installed dockerd")
    engine = Engine()
    try:
        folder = engine.folder / "stack"
        drop_offline_runtime(engine)
        for check in CHECKS:
            begin = time.monotonic()
            check(engine, folder)
            print(f"# {check.__name__} holds ({time.monotonic() - begin:.0f} s)", flush=True)
    finally:
        engine.close()


if __name__ == "__main__":
    tap.main(globals())
