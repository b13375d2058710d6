# SPDX-License-Identifier: Apache-2.0
"""Ours beside the Node reference runner (bench/node/runner.mjs), each with the machine to itself, in turn. Whatever it
answers is verified by the client, as ours is."""
import contextlib, json, os, subprocess, threading, time

from world import BUILD, IMAGES, descendants, memory_kib, own_cpu_ms, reaped_cpu_ms, side_by_side, small, submit

PROCESSES = ("quavon-role", "docker")  # of a runner, beside its first: our roles; what Node starts


def base_digest():
    lock = json.loads((IMAGES / "images.lock.json").read_text())
    return next(entry["digest"] for entry in lock["images"] if entry["name"] == "base")


def only_base(world):
    """A lock file with the one image, so that an engine needs no other."""
    path = world.dir / "base.lock.json"
    if not path.exists():
        lock = json.loads((IMAGES / "images.lock.json").read_text())
        images = [entry for entry in lock["images"] if entry["digest"] == base_digest()]
        path.write_text(json.dumps({"v": 1, "images": images}))
    return path


def docker_settings(world):
    return {"QUAVON_SANDBOX_BACKEND": "docker-runsc", "QUAVON_SANDBOX_DOCKER_SOCKET": world.engine().socket,
            "QUAVON_SANDBOX_IMAGES_FILE": only_base(world)}


@contextlib.contextmanager
def running(world, kind, concurrency):
    """A runner of a kind: runsc, docker, node."""
    world.cli("del", "quavon-sandbox:runners")
    if kind == "node":
        child = start_node(world, concurrency)
    else:
        child = world.runner(QUAVON_SANDBOX_CONCURRENCY=concurrency, **(docker_settings(world) if kind == "docker" else {}))
    try:
        yield child.pid
    finally:
        world.stop(child)


def start_node(world, concurrency):
    world.runs += 1
    log = world.dir / f"node.{world.runs}.log"
    env = dict(os.environ, QV_URL=world.url("bench"), QV_KEY_FILE=str(world.key), QV_IMAGE="base", QV_DIGEST=base_digest(),
               QV_RUNTIME="runsc-offline", QV_CONCURRENCY=str(concurrency), DOCKER_HOST=f"unix://{world.engine().socket}")
    child = world.spawn("node", world.node() / "runner.mjs", env=env, log=log.name)
    for _ in range(300):
        if "ready" in log.read_text():
            return child
        if child.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("the Node runner does not start: " + log.read_text())


@contextlib.contextmanager
def most_memory(pid):
    """MiB, in a list: the most that all processes of a runner had at one moment."""
    ended, most = threading.Event(), [0]

    def look():
        while not ended.wait(0.03):
            most[0] = max(most[0], sum(memory_kib(p, "Pss") for p in (pid, *descendants(pid, PROCESSES))) / 1024)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


def same_answer(world):
    """What a job with a log, an artefact and a failing step gets, verified by the client, is the same from both runners."""
    answers = []
    for kind in ("docker", "node"):
        with running(world, kind, 1):
            out = world.dir / f"artefacts-{kind}"
            done = subprocess.run([BUILD / "src/cli/quavon", "run", "--all", "--repo", small(world), "--json", "--quiet", "--artefact=made",
                                   f"--output={out}", "--", "sh", "-c", "cat hello; cp hello made; exit 3"],
                                  env=world.environment("worker"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if not done.stdout.startswith("{"):
                raise RuntimeError(f"the runner {kind} gives no verified result: {done.stderr[-800:]}")
            result = json.loads(done.stdout)
            step = {name: value for name, value in result["steps"][0].items() if not name.endswith("Ms")}
            answers.append((done.returncode, done.stderr, result["status"], result["code"], step, result["artefacts"],
                            {path.name: path.read_bytes() for path in out.glob("*")}))
    if answers[0] != answers[1]:
        raise RuntimeError(f"the runners differ: {answers[0]} and {answers[1]}")


def sustained(world, pid, n):
    """Jobs a second of two workers, CPU ms a job of the runner's processes and of its first alone, the most memory."""
    all_before, own_before = reaped_cpu_ms(pid), own_cpu_ms(pid)
    with most_memory(pid) as most:
        seconds = side_by_side([lambda: submit(world, n)] * 2)
    return 2 * n / seconds, (reaped_cpu_ms(pid) - all_before) / (2 * n), (own_cpu_ms(pid) - own_before) / (2 * n), most[0]


def node(world, add):
    same_answer(world)
    rows, n = {"runsc": [], "docker": [], "node": []}, world.many(8, 16)
    for _ in range(world.rounds(3, 7)):
        for kind, series in rows.items():
            with running(world, kind, 2) as pid:
                submit(world, 2)
                series.append(sustained(world, pid, n))
    rate, cpu, own, mib = ({kind: column for kind, column in zip(rows, columns)}
                           for columns in zip(*([*zip(*series)] for series in rows.values())))
    jobs = f"{len(rows['node'])} times {2 * n} jobs"
    add("node_job_ratio", rate["runsc"], rate["node"], note=jobs)
    add("node_job_ratio_docker", rate["docker"], rate["node"], note=jobs)
    add("node_cpu_ratio", cpu["docker"], cpu["node"], note=jobs)
    add("node_cpu_ratio_bare", cpu["docker"], own["node"], note=jobs)
    add("node_rss_ratio", mib["docker"], mib["node"], note=jobs)


def memory(world, add):
    """The snapshot does not compress, so that it travels as 64 MiB."""
    folder, idle, busy = world.dir / "heavy", {"runsc": [], "node": []}, {"runsc": [], "node": []}
    folder.mkdir()
    subprocess.run(["dd", "if=/dev/urandom", f"of={folder}/noise", "bs=1M", "count=63"], check=True, stderr=subprocess.DEVNULL)
    for _ in range(world.rounds(2, 5)):
        for kind in idle:
            with running(world, kind, 1) as pid:
                time.sleep(1)
                idle[kind].append(memory_kib(pid, "Rss") / 1024)
                with most_memory(pid) as most:
                    subprocess.run([BUILD / "src/cli/quavon", "run", "--all", "--repo", folder, "--quiet", "--", "sleep", "1"],
                                   env=world.environment("worker"), stdout=subprocess.DEVNULL, check=True)
                busy[kind].append(most[0])
    add("rss_idle_mib", idle["runsc"], idle["node"])
    add("pss_job_mib", busy["runsc"], busy["node"])
