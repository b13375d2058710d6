# SPDX-License-Identifier: Apache-2.0
"""Jobs: one at a time beside the bare sandbox, and as many as go."""
import json, shutil, subprocess, time

from node_peer import base_digest, docker_settings
from world import BUILD, IMAGES, output, program, side_by_side, submit, small

COLD_LIMITS = ["memoryMiB=255", "workMiB=64", "pids=64"]  # no warm sandbox has these


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


def cold(world, add):
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1)
    submit(world, 3), bare(world, "bare", 3)
    rows = [(submit(world, 1)[0], bare(world, "bare", 1)[0]) for _ in range(world.rounds(50, 100))]
    world.stop(runner)
    add("job_cold_overhead_ms", *zip(*rows))


def expect_warm(world, jobs):
    """A row that says warm and was not is worse than none."""
    served = world.log().count("sandbox was warm")
    if served != jobs:
        raise RuntimeError(f"{served} jobs had a warm sandbox, not {jobs}:\n" + world.log()[-2000:])


def wait_for_warm(world, jobs):
    """One of each image has started, another one after each job that took one, and what the start cost is over."""
    images = {image["name"] for image in json.loads((IMAGES / "images.lock.json").read_text())["images"]}
    for _ in range(600):
        if world.log().count("a warm sandbox waits") >= len(images) + jobs:
            break
        time.sleep(0.1)
    expect_warm(world, jobs)
    time.sleep(0.8)


def warm(world, add):
    """After each job a new sandbox is started; it stands for a moment before the next one comes. The log must say so."""
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1, QUAVON_SANDBOX_WARM=1, QUAVON_SANDBOX_DEFAULT_MEMORY_MIB=256,
                          QUAVON_SANDBOX_DEFAULT_WORK_MIB=64, QUAVON_SANDBOX_DEFAULT_PIDS=64, QUAVON_LOG_LEVEL="debug")
    rows = []
    for before in range(world.rounds(20, 60)):
        cold_ms = submit(world, 1, limits=COLD_LIMITS)[0]
        wait_for_warm(world, before)
        rows.append((submit(world, 1)[0], bare(world, "bare", 1, "idle")[0], cold_ms))
        expect_warm(world, before + 1)
    world.stop(runner)
    ours, peer, cold_ms = zip(*rows)
    add("job_warm_overhead_ms", ours, peer)
    add("job_warm_ms", ours, cold_ms)


def rate(world, add):
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=2)
    n, rows = world.many(12, 30), []
    for _ in range(3):
        ours = 2 * n / side_by_side([lambda: submit(world, n)] * 2)
        peer = 2 * n / side_by_side([lambda i=i: bare(world, f"bare{i}", n) for i in range(2)])
        rows.append((ours, peer))
    world.stop(runner)
    add("job_rate", *zip(*rows), note=f"{len(rows)} times {2 * n} jobs")


def docker_pairs(world, add):
    """A trivial job on docker-runsc, and `docker run` of the same image with the same bytes, in turn."""
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1, **docker_settings(world))

    def peer():
        text = output(program("bare"), "--docker", world.engine().socket, base_digest(), "runsc-offline", bare_input(world), 1)
        return [float(x) for x in text.split()]

    for _ in range(3):
        submit(world, 1), peer()
    rows = [(submit(world, 1)[0], *peer()) for _ in range(world.rounds(40, 100))]
    world.stop(runner)
    ours, marker, ended = zip(*rows)
    add("docker_job_ms", ours, ended)
    add("docker_job_marker_ms", ours, marker)
