#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/run.py [--full] [NAME...]: measures, each figure in turn with its peer in the same run, and writes build/bench.json
and a table. Nothing here asserts a speed. Without names: everything; --full: more rounds and larger inputs."""
import argparse, concurrent.futures, json, os, pathlib, platform, re, shutil, subprocess, sys, time

from table import Figures
from world import BUILD, IMAGES, ROOT, Engine, Missing, World, descendants, figures, memory_kib, output, program, reaped_cpu_ms

FIGURES = Figures()
LIMITS = ["memoryMiB=256", "workMiB=64", "pids=64"]
TREES = ["/usr/include", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/perl", "/usr/share/doc", "/usr/share/cmake-3.25"]


def tree(world, mib):
    """A source tree of about MIB MiB out of what the machine has."""
    folder = world.dir / f"tree{mib}"
    if folder.exists():
        return folder
    folder.mkdir()
    left, copy = mib << 20, 0
    while left > 0:
        before = left
        for top in TREES:
            for path in sorted(pathlib.Path(top).rglob("*")):
                if left <= 0:
                    return folder
                if path.is_symlink() or not path.is_file() or path.suffix in (".gz", ".pyc", ".so", ".a"):
                    continue
                size = path.stat().st_size
                if size > 4 << 20 or any(ord(c) < 32 for c in str(path)):
                    continue
                target = folder / f"{copy}" / str(path).lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copyfile(path, target)
                except (OSError, UnicodeError):
                    continue
                left -= size
        copy += 1
        if before == left:
            raise Missing("no files to make a source tree of")
    return folder


def small(world):
    folder = world.dir / "small"
    folder.mkdir(exist_ok=True)
    (folder / "hello").write_text("hello\n")
    return folder


def bare_input(world):
    """The gzip of the small snapshot, and a folder for the bundle."""
    made = world.dir / "small.tar.gz"
    if not made.exists():
        subprocess.run([BUILD / "src/cli/quavon", "snapshot", "--output", made, small(world)], check=True, stdout=subprocess.DEVNULL)
    return made


def bare(world, folder, count, *more):
    (world.dir / folder).mkdir(exist_ok=True)
    return [float(x) for x in output(program("bare"), shutil.which("runsc"), world.rootfs, bare_input(world), world.dir / folder,
                                     count, *more).split()]


def submit(world, count, **more):
    text = output(program("submit"), small(world), count, *LIMITS, env=world.environment("worker", **more))
    return [float(row.split()[0]) for row in text.splitlines()]


# ---- pure

def jcs(world, full):
    node, job = world.node(), ROOT / "bench/job.json"
    pairs = [(figures(output(program("pure"), "jcs", job, 0.5))["jcs_per_cpu_s"],
              figures(output("node", node / "jcs.mjs", job, 0.5))["jcs_per_cpu_s"]) for _ in range(20 if full else 7)]
    FIGURES.add("jcs_ratio", *zip(*pairs), unit="ops/CPU-s", goal=">= 8")


def unseal(world, full):
    rows = []
    for _ in range(10 if full else 5):
        ours = figures(output(program("pure"), "unseal", 64, 0.5))
        text = output("openssl", "speed", "-mr", "-evp", "aes-256-gcm", "-bytes", 1048576, "-seconds", 1)
        peer = float(re.search(r"^\+F:\d+:[^:]+:([0-9.]+)", text, re.M).group(1))
        rows.append((ours["unseal_bytes_per_s"] / 1e9, ours["tags_bytes_per_s"] / 1e9, peer / 1e9))
    ours, tags, peer = zip(*rows)
    FIGURES.add("unseal_ratio", ours, peer, unit="GB/s", goal=">= 0.85", note="size and SHA-256 of the whole blob included")
    FIGURES.add("unseal_tags_ratio", tags, peer, unit="GB/s", goal=">= 0.85", note="AES-256-GCM alone, as the peer")


def open_pipe(world, full):
    plain, rows = world.dir / "plain", []
    subprocess.run(["dd", "if=/dev/urandom", f"of={plain}", "bs=1M", "count=256"], check=True, stderr=subprocess.DEVNULL)
    for _ in range(10 if full else 5):
        done = subprocess.run(f"{program('pure')} pipe 64 1 | cat >/dev/null", shell=True, stderr=subprocess.PIPE, text=True, check=True)
        start = time.monotonic()
        subprocess.run(f"cat {plain} | cat >/dev/null", shell=True, check=True)
        rows.append((figures(done.stderr)["pipe_bytes_per_s"] / 1e9, 256 * 1048576 / 1e9 / (time.monotonic() - start)))
    plain.unlink()
    FIGURES.add("open_pipe_ratio", *zip(*rows), unit="GB/s", goal=">= 0.5")


# ---- queue

def queue(world, full):
    node, jobs = world.node(), 20000 if full else 4000
    for concurrency in (1, 16):
        rows = []
        for _ in range(5 if full else 3):
            row = []
            for worker in ([program("noop")], ["node", node / "noop.mjs"]):
                output("node", node / "fill.mjs", world.url("bench"), jobs)
                row.append(jobs / figures(output(*worker, world.url("bench"), concurrency, jobs))["cpu_s"])
            rows.append(row)
        FIGURES.add(f"queue_cpu_ratio_{concurrency}", *zip(*rows), unit="jobs/CPU-s", goal=">= 8")


def scale(world, full):
    node, rates = world.node(), {}
    for jobs in (10, 100, 1000, 10000) if full else (10, 100, 1000):
        rates[jobs] = []
        for _ in range(5):
            output("node", node / "fill.mjs", world.url("bench"), jobs)
            rates[jobs].append(figures(output(program("noop"), world.url("bench"), 2, jobs))["cpu_s"] * 1e6 / jobs)
        FIGURES.add(f"scale_queued_{jobs}", rates[jobs], unit="CPU us/job", goal="flat within 20 %")
    jobs = 20000 if full else 4000
    for workers in (1, 2, 4):
        rows = []
        for _ in range(3):
            output("node", node / "fill.mjs", world.url("bench"), jobs)
            children = [subprocess.Popen([program("noop"), world.url("bench"), "2", "0"], stdout=subprocess.PIPE, text=True)
                        for _ in range(workers)]
            rows.append(sum(figures(child.communicate()[0])["cpu_s"] for child in children) * 1e6 / jobs)
        FIGURES.add(f"scale_workers_{workers}", rows, unit="CPU us/job", goal="flat within 20 %")


# ---- snapshots

def snapshot(world, full):
    folder, rows, node = tree(world, 200), [], world.node()
    peer = f"set -o pipefail; tar -C {folder} --sort=name -cf - . | gzip -6 | openssl enc -aes-256-ctr -K {'0' * 64} -iv {'0' * 32} | wc -c"
    for _ in range(5 if full else 3):
        ours = figures(output(program("pack"), folder))
        start = time.monotonic()
        peer_bytes = int(output("bash", "-c", peer))
        peer_ms = (time.monotonic() - start) * 1000
        theirs = figures(output("node", node / "pack.mjs", folder))
        rows.append((ours["wall_ms"], peer_ms, theirs["wall_ms"], ours["gzip_bytes"] / peer_bytes))
    ours, peer, theirs, size = zip(*rows)
    FIGURES.add("snapshot_ratio", ours, peer, unit="ms", higher=False, goal=">= 5", note="tar | gzip -6 | openssl enc")
    FIGURES.add("snapshot_node_ratio", ours, theirs, unit="ms", higher=False, goal=">= 5", note="tar-stream, zlib, node:crypto")
    FIGURES.add("snapshot_bytes", size, unit="x peer's", goal="<= 1.12")


def growth(world, full):
    for thousands in (10, 100, 1000) if full else (10, 100):
        folder = world.dir / f"many{thousands}"
        for i in range(thousands):
            (folder / f"d{i:04}").mkdir(parents=True)
            for j in range(1000):
                (folder / f"d{i:04}" / f"f{j:03}").write_bytes(b"int x;\n" * 20)
        got = figures(output(program("pack"), folder))
        FIGURES.add(f"snapshot_growth_{thousands}k", [got["wall_ms"] / thousands], unit="ms/1000 files", goal="linear")
        FIGURES.add(f"snapshot_growth_{thousands}k_mib", [got["max_rss_kib"] / 1024], unit="MiB", goal="<= 64 at a million")
        shutil.rmtree(folder)


# ---- jobs

def cold(world, full):
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1)
    submit(world, 3), bare(world, "bare", 3)
    rows = [(submit(world, 1)[0], bare(world, "bare", 1)[0]) for _ in range(100 if full else 50)]
    FIGURES.add("job_cold_overhead_ms", *zip(*rows), unit="ms", minus=True, higher=False, goal="difference <= 20")
    idle = memory_kib(runner.pid, "Rss") / 1024
    FIGURES.add("rss_idle_mib", [idle], unit="MiB", goal="<= 10")
    world.stop(runner)


def warm(world, full):
    if "QUAVON_SANDBOX_WARM" not in (ROOT / "src/base/config.def").read_text():
        raise Missing("no warm sandboxes in this version")
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1, QUAVON_SANDBOX_WARM=1, QUAVON_SANDBOX_DEFAULT_MEMORY_MIB=256,
                          QUAVON_SANDBOX_DEFAULT_WORK_MIB=64, QUAVON_SANDBOX_DEFAULT_PIDS=64)
    rows = []
    for _ in range(60 if full else 30):
        time.sleep(1.5)
        rows.append((submit(world, 1)[0], bare(world, "bare", 1, "idle")[0]))
    FIGURES.add("job_warm_overhead_ms", *zip(*rows), unit="ms", minus=True, higher=False, goal="difference <= 8")
    world.stop(runner)


def side_by_side(calls):
    """Seconds until the last of them has ended."""
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(call) for call in calls]:
            future.result()
    return time.monotonic() - start


def rate(world, full):
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=2)
    n, rows = 30 if full else 12, []
    for _ in range(3):
        ours = 2 * n / side_by_side([lambda: submit(world, n)] * 2)
        peer = 2 * n / side_by_side([lambda i=i: bare(world, f"bare{i}", n) for i in range(2)])
        rows.append((ours, peer))
    FIGURES.add("job_rate", *zip(*rows), unit="jobs/s", goal=">= 0.9")
    world.stop(runner)


def job_memory(world, full):
    """The snapshot does not compress, so that it travels as 64 MiB."""
    folder = world.dir / "heavy"
    folder.mkdir()
    subprocess.run(["dd", "if=/dev/urandom", f"of={folder}/noise", "bs=1M", "count=63"], check=True, stderr=subprocess.DEVNULL)
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1)
    most = 0
    child = subprocess.Popen([BUILD / "src/cli/quavon", "run", "--all", "--repo", folder, "--quiet", "--", "sleep", "3"],
                             env=world.environment("worker"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None:
        try:
            most = max(most, sum(memory_kib(pid, "Pss") for pid in descendants(runner.pid)))
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.02)
    if child.returncode != 0:
        raise RuntimeError(f"the job ended with {child.returncode}")
    FIGURES.add("pss_job_mib", [most / 1024], unit="MiB", goal="<= 12")
    world.stop(runner)


def unpack(world, full):
    """startedMs of the first step is what the entry took for all of it, its input's way included; the peer unpacks the same
    tree in the same sandbox, out of an archive that was in the snapshot too."""
    source, folder, rows = tree(world, 200), world.dir / "packed", []
    folder.mkdir()
    subprocess.run(f"tar -C {source} -cf - . | gzip -1 >{folder}/t.tgz && cp -r {source} {folder}/tree", shell=True, check=True)
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1)
    for _ in range(5 if full else 3):
        text = output(program("submit"), folder, 1, "workMiB=1024", "memoryMiB=1024", "--", "mkdir ../x && tar xzf t.tgz -C ../x",
                      env=world.environment("worker"))
        step = json.loads(text.split(" ", 2)[2])["steps"][0]
        rows.append((step["startedMs"], step["durationMs"]))
    FIGURES.add("unpack_ratio", *zip(*rows), unit="ms", higher=False, goal=">= 1.5")
    world.stop(runner)


def node_runner(world, engine, concurrency):
    folder, lock = world.node(), json.loads((IMAGES / "images.lock.json").read_text())
    image = next(entry for entry in lock["images"] if entry["name"] == "base")
    env = dict(os.environ, QV_URL=world.url("bench"), QV_KEY_FILE=str(world.key), QV_IMAGE="base", QV_DIGEST=image["digest"],
               QV_RUNTIME="runsc-offline", QV_CONCURRENCY=str(concurrency), DOCKER_HOST=f"unix://{engine.socket}")
    log = f"node.{len(world.children)}.log"
    child = world.spawn("node", folder / "runner.mjs", env=env, log=log)
    for _ in range(300):
        if "ready" in (world.dir / log).read_text():
            return child
        time.sleep(0.1)
    raise RuntimeError((world.dir / log).read_text())


def sustained(world, pid, n):
    """Jobs a second of two workers, CPU ms a job of the runner's own processes, and the most memory of these."""
    most, stop = 0, False

    def look():
        nonlocal most
        while not stop:
            try:
                most = max(most, sum(memory_kib(p, "Pss") for p in [pid, *descendants(pid)]))
            except (FileNotFoundError, ProcessLookupError):
                pass
            time.sleep(0.05)

    before = reaped_cpu_ms(pid)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        watcher = pool.submit(look)
        seconds = side_by_side([lambda: submit(world, n)] * 2)
        stop = True
        watcher.result()
    return 2 * n / seconds, (reaped_cpu_ms(pid) - before) / (2 * n), most / 1024


def node(world, full):
    """Ours on runsc, ours on docker-runsc and the Node reference, each with the machine to itself, in turn."""
    engine, n, rows = Engine(world), 20 if full else 8, {"runsc": [], "docker": [], "node": []}
    docker = {"QUAVON_SANDBOX_BACKEND": "docker-runsc", "QUAVON_SANDBOX_DOCKER_SOCKET": engine.socket}
    for _ in range(5 if full else 3):
        for name in rows:
            world.cli("del", "quavon-sandbox:runners")
            runner = node_runner(world, engine, 2) if name == "node" else world.runner(
                QUAVON_SANDBOX_CONCURRENCY=2, **(docker if name == "docker" else {}))
            submit(world, 1)
            rows[name].append(sustained(world, runner.pid, n))
            world.stop(runner)
    engine.close(world)
    rate = {name: [row[0] for row in rows[name]] for name in rows}
    FIGURES.add("node_job_ratio", rate["runsc"], rate["node"], unit="jobs/s", goal=">= 2.5", note="runsc over docker run")
    FIGURES.add("node_job_ratio_docker", rate["docker"], rate["node"], unit="jobs/s", goal=">= 1.1", note="docker-runsc over docker run")
    FIGURES.add("node_cpu_ratio", *([row[1] for row in rows[name]] for name in ("docker", "node")), unit="CPU ms/job", higher=False,
                goal=">= 8", note="the client `docker run` is the Node runner's, its CPU too")
    FIGURES.add("node_rss_ratio", *([row[2] for row in rows[name]] for name in ("docker", "node")), unit="MiB", higher=False, goal=">= 5")


def docker_pairs(world, full):
    """A trivial job on docker-runsc, and `docker run` of the same image with the same bytes, in turn."""
    engine, lock = Engine(world), json.loads((IMAGES / "images.lock.json").read_text())
    digest = next(entry["digest"] for entry in lock["images"] if entry["name"] == "base")
    (world.dir / "base.lock.json").write_text(json.dumps({"v": 1, "images": [e for e in lock["images"] if e["digest"] == digest]}))
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1, QUAVON_SANDBOX_BACKEND="docker-runsc",
                          QUAVON_SANDBOX_DOCKER_SOCKET=engine.socket, QUAVON_SANDBOX_IMAGES_FILE=world.dir / "base.lock.json")

    def peer():
        text = output(program("bare"), "--docker", engine.socket, digest, "runsc-offline", bare_input(world), 1)
        return [float(x) for x in text.split()]

    for _ in range(3):
        submit(world, 1), peer()
    rows = [(submit(world, 1)[0], *peer()) for _ in range(120 if full else 60)]
    ours, marker, ended = zip(*rows)
    FIGURES.add("docker_job_ms", ours, ended, unit="ms", minus=True, higher=False, goal="difference <= 0",
                note="add to verified result, and docker run until it has ended")
    FIGURES.add("docker_job_marker_ms", ours, marker, unit="ms", minus=True, higher=False,
                note="the same, and docker run until the output's end marker")
    world.stop(runner)
    engine.close(world)


MEASURES = {"jcs": jcs, "unseal": unseal, "open_pipe": open_pipe, "queue": queue, "scale": scale, "snapshot": snapshot,
            "growth": growth, "cold": cold, "warm": warm, "rate": rate, "job_memory": job_memory,
            "unpack": unpack, "docker_pairs": docker_pairs, "node": node}


def versions():
    def first(*argv):
        try:
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return done.stdout.splitlines()[0]
        except (OSError, IndexError):
            return "absent"
    return {"kernel": platform.release(), "processors": len(os.sched_getaffinity(0)), "runsc": first("runsc", "--version"),
            "valkey": first("valkey-server", "--version"), "node": first("node", "--version"), "openssl": first("openssl", "version"),
            "tar": first("tar", "--version"), "gzip": first("gzip", "--version")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("names", nargs="*", choices=[*MEASURES, []])
    options = parser.parse_args()
    world = World()
    world.valkey()
    for name in options.names or MEASURES:
        try:
            MEASURES[name](world, options.full)
        except Missing as why:
            FIGURES.skip(name, str(why))
    FIGURES.write(ROOT / "build/bench.json", versions())
    print(FIGURES.table())


if __name__ == "__main__":
    sys.exit(main())
