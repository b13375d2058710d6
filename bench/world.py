# SPDX-License-Identifier: Apache-2.0
"""What a measurement needs around it: a private Valkey with the shipped ACL file, a runner, folders, peers of npm.
Everything started here ends with it, also where SIGTERM or Ctrl-C comes as an exception in the midst of it."""
import atexit, concurrent.futures, contextlib, hashlib, os, pathlib, re, secrets, shutil, signal, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("QUAVON_BUILD_ROOT") or ROOT / "build" / "release")
IMAGES = ROOT / "build" / "test-images"
PREFIX = "quavon-sandbox"
LIMITS = ["memoryMiB=256", "workMiB=64", "pids=64"]


class Missing(Exception):
    """A peer or a precondition is not on this machine."""


@contextlib.contextmanager
def group(*argv, **options):
    """A child in a process group of its own, which ends with the block: a peer is a pipe of several processes."""
    child = subprocess.Popen([str(a) for a in argv], start_new_session=True, text=True, **options)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def output(*argv, **options):
    with group(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as child:
        text, said = child.communicate()
    if child.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {child.returncode}: {said.strip()[-800:]}")
    return text


def measured(*argv):
    """Output, wall seconds, and the most memory of one of its children, in KiB. (ru_maxrss begins with the parent's.)"""
    start, most = time.monotonic(), 0
    with group(*argv, stdout=subprocess.PIPE) as child:
        ended = threading.Event()

        def look():
            nonlocal most
            while not ended.wait(0.05):
                for pid in children(child.pid):
                    most = max(most, memory_kib(pid, "VmHWM", "status"))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            text, _ = child.communicate()
            seconds = time.monotonic() - start
        finally:
            ended.set()
            watcher.join()
    if child.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {child.returncode}")
    return text, seconds, most


def figures(text):
    """The lines `name number` of a program."""
    return {name: float(number) for name, number in (line.split() for line in text.splitlines())}


def program(name):
    return BUILD / "bench" / f"bench-{name}"


class World:
    def __init__(self, level):
        """LEVEL 0: one round of everything; 1: the usual; 2: many."""
        self.level, self.began = level, time.monotonic()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="qv-bench.", dir="/tmp"))
        self.children, self.runs, self.docker = [], 0, None
        atexit.register(self.close)
        self.rootfs = os.path.realpath(IMAGES / "base.erofs")
        self.key = self.dir / "key"
        output(BUILD / "src/cli/quavon", "keygen", self.key)

    def rounds(self, usual, full):
        return (1, usual, full)[self.level]

    def many(self, usual, full):
        return (max(usual // 10, 2), usual, full)[self.level]

    def close(self):
        for child in reversed(self.children):
            if child.stdin is not None:  # the end of its input is the end of an engine's keeper
                child.stdin.close()
                child.wait()
            self.stop(child)
        shutil.rmtree(self.dir, ignore_errors=True)

    def spawn(self, *argv, env=None, log="log"):
        with open(self.dir / log, "ab") as out:
            child = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env)
        self.children.append(child)
        return child

    def stop(self, child, number=signal.SIGTERM):
        if child.poll() is None:
            child.send_signal(number)
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if child in self.children:
            self.children.remove(child)

    # ---- Valkey

    def valkey(self):
        self.password = secrets.token_hex(16)
        digest = hashlib.sha256(self.password.encode()).hexdigest()
        acl = (ROOT / "deploy/valkey/users.acl").read_text()
        acl = re.sub(r"%[A-Z]+_SHA256%", digest, acl) + f"user bench on #{digest} ~* &* +@all\n"
        (self.dir / "users.acl").write_text(acl)
        self.socket = self.dir / "valkey.sock"
        self.server = self.spawn("valkey-server", "--port", "0", "--unixsocket", self.socket, "--aclfile",
                                 self.dir / "users.acl", "--save", "", "--dir", self.dir, "--maxmemory-policy", "noeviction",
                                 log="valkey.log")
        for _ in range(600):
            if self.socket.exists():
                break
            time.sleep(0.05)
        time.sleep(0.2)

    def url(self, user):
        return f"unix://{user}:{self.password}@{self.socket}"

    def cli(self, *words):
        return output("valkey-cli", "-s", self.socket, "--user", "bench", "--pass", self.password, "--no-auth-warning", *words)

    # ---- runner

    def environment(self, user, **more):
        env = {k: v for k, v in os.environ.items() if not re.match("(QUAVON|VALKEY)_", k)}
        env.update(VALKEY_URL=self.url(user), QUAVON_SANDBOX_SIGNING_KEY_FILE=str(self.key), QUAVON_SANDBOX_BACKEND="runsc",
                   QUAVON_SANDBOX_STATE_DIR=str(self.dir / "s"), QUAVON_SANDBOX_IMAGES_FILE=str(IMAGES / "images.lock.json"),
                   QUAVON_LOG_FORMAT="text")
        env.update({k: str(v) for k, v in more.items()})
        return env

    def runner(self, **more):
        self.runs += 1
        log = f"runner.{self.runs}.log"
        runner = self.spawn(BUILD / "src/runner/quavon-sandbox-runner", env=self.environment("sandbox", **more), log=log)
        for _ in range(1800):
            if "smoke test passed" in self.log() and self.healthy():
                return runner
            if runner.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError("the runner does not start: " + self.log()[-2000:])

    def log(self):
        """Of the runner that was started last."""
        return (self.dir / f"runner.{self.runs}.log").read_text()

    def healthy(self):
        """A runner's health record says that its smoke test passed: workers then give it jobs."""
        return any('"passed":true' in self.cli("get", f"{PREFIX}:health:{runner}")
                   for runner in self.cli("zrange", f"{PREFIX}:runners", "0", "-1").split())

    def engine(self):
        """One for all that measure on Docker; it ends with the run."""
        if self.docker is None:
            self.docker = Engine(self)
        return self.docker

    # ---- peers of npm

    def node(self):
        folder = ROOT / "build" / "bench-node"
        done = subprocess.run(["sh", ROOT / "tests/interop/queue/npm.sh", ROOT / "bench/node", folder], stdout=subprocess.PIPE, text=True)
        if done.returncode == 77:
            raise Missing(done.stdout.strip())
        if done.returncode != 0:
            raise RuntimeError(done.stdout)
        return folder


class Engine:
    """A private Docker engine with the runtimes runsc and runsc-offline, and the base image loaded."""

    def __init__(self, world):
        if shutil.which("dockerd") is None or shutil.which("docker") is None:
            raise Missing("dockerd or docker is not installed")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="qv-docker-", dir="/tmp"))
        self.keeper = subprocess.Popen([sys.executable, ROOT / "tests/support/dockerd.py", self.dir], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        world.children.append(self.keeper)
        self.ask("start")
        self.socket = next(self.dir.rglob("docker.sock"))
        archive = world.dir / "base.tar"
        output(BUILD / "src/cli/quavon", "images", "export", f"--output={archive}", "base", env=world.environment("worker"))
        self.ask(f"load {archive}")
        archive.unlink()

    def ask(self, words):
        self.keeper.stdin.write(words + "\n")
        self.keeper.stdin.flush()
        answer = self.keeper.stdout.readline().strip()
        if answer == "" or answer.startswith("failed"):
            raise RuntimeError(f"docker engine: {words}: {answer}")


def small(world):
    folder = world.dir / "small"
    folder.mkdir(exist_ok=True)
    (folder / "hello").write_text("hello\n")
    return folder


def submit(world, count, limits=LIMITS):
    """COUNT trivial jobs, one after the other, each verified: ms from the add to the verified result."""
    text = output(program("submit"), small(world), count, *limits, env=world.environment("worker"))
    return [float(row.split()[0]) for row in text.splitlines()]


def stat_cpu_ms(pid, fields):
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(map(int, words[fields])) * 1000 / os.sysconf("SC_CLK_TCK")


def own_cpu_ms(pid):
    """User and system time of a process."""
    return stat_cpu_ms(pid, slice(11, 13))


def reaped_cpu_ms(pid):
    """The same of it, of its roles that live, and of all children that it has reaped."""
    return sum(stat_cpu_ms(process, slice(11, 15)) for process in (pid, *descendants(pid)))


def side_by_side(calls):
    """Seconds until the last of them has ended."""
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result()
    return time.monotonic() - start


def memory_kib(pid, what, file="smaps_rollup"):
    """Rss or Pss of a process, 0 of one that has gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(what + ":"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid, names=("quavon-role",)):
    """Of ours: the runner's roles, not what runsc starts."""
    found, todo = [], [pid]
    while todo:
        for child in children(todo.pop()):
            try:
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() in names:
                    found.append(child)
                    todo.append(child)
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found
