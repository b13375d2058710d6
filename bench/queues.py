# SPDX-License-Identifier: Apache-2.0
"""The queue: our worker and bullmq's, doing nothing, on one server in turn."""
import contextlib, os, statistics, subprocess, time

from world import figures, group, output, program

ARRIVAL_MS = 2
WARM = 500
# Of a size that is queued: how often, so that what is counted of each is about as long; and the jobs before them each time.
ROUNDS = {10: 100, 100: 20, 1000: 4}
WARM_A_ROUND = 50


def workers(world):
    return [program("noop")], ["node", world.node() / "noop.mjs"]


def fill_command(world, jobs, pace_ms=0, rounds=1):
    return "node", world.node() / "fill.mjs", world.url("bench"), jobs, pace_ms, rounds


def fill(world, *args):
    output(*fill_command(world, *args))


def of_all_threads(pid, cpus):
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cpus)


@contextlib.contextmanager
def placed(world, together=False):
    """The server on a core of its own, the worker on another one, or TOGETHER; the list of words before the worker's command.
    A round trip to another core is two wake-ups across cores, which cost more than all the rest of a small job, and the kernel
    puts both on one core or on two as it likes: unplaced, a figure tells which of them it was."""
    cpus = sorted(os.sched_getaffinity(0))
    of_all_threads(world.server.pid, {cpus[-1]})
    try:
        yield ["taskset", "--cpu-list", cpus[-1 if together else 0]]
    finally:
        of_all_threads(world.server.pid, cpus)


def drained(world, command, concurrency, jobs):
    """JOBS wait; one worker takes them all."""
    fill(world, jobs + WARM)
    return figures(output(*command, world.url("bench"), concurrency, jobs, WARM, 1))


def drained_often(world, command, concurrency, jobs):
    """JOBS wait, again and again; one worker takes them all each time."""
    rounds = world.many(ROUNDS[jobs], 4 * ROUNDS[jobs])
    with group(*fill_command(world, jobs + WARM_A_ROUND, 0, rounds), stdout=subprocess.DEVNULL) as filler:
        told = figures(output(*command, world.url("bench"), concurrency, jobs, WARM_A_ROUND, rounds))
        if filler.wait(60) != 0:
            raise RuntimeError("jobs were not queued")
    return told


def shared(world, command, count, concurrency, jobs, pace_ms=0):
    """COUNT workers stand ready; then jobs come."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(group(*command, world.url("bench"), concurrency, 0, 0, 1, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                    for _ in range(count)]
        for child in children:
            child.stdout.readline()
        time.sleep(0.2)
        fill(world, jobs, pace_ms)
        while world.cli("eval", "return redis.call('llen', KEYS[1]) + redis.call('llen', KEYS[2])", "2", "bench:sandbox:wait",
                        "bench:sandbox:active").strip() != "0":
            time.sleep(0.02)
        told = [figures(child.communicate()[0]) for child in children]
    if sum(each["jobs"] for each in told) != jobs:
        raise RuntimeError(f"{command[0]}: {sum(each['jobs'] for each in told)} of {jobs} jobs")
    return (sum(each["cpu_s"] for each in told), *(max(each[name] for each in told) for name in ("wall_s", "wait_p99_ms")))


def queue(world, add):
    jobs = world.many(2000, 10000)
    for name, concurrency, together in (("queue_cpu_ratio", 1, False), ("queue_cpu_ratio_16", 16, False), ("queue_cpu_ratio_core", 1, True)):
        with placed(world, together) as place:
            rows = [[jobs / drained(world, [*place, *command], concurrency, jobs)["cpu_s"] for command in workers(world)]
                    for _ in range(world.rounds(4, 9))]
            add(name, *zip(*rows))


def flatness(rows):
    """Of several series, how much the worst median is above the best."""
    medians = [statistics.median(series) for series in rows]
    return [max(medians) / min(medians)]


def scale(world, add):
    told = {jobs: [] for jobs in ROUNDS}
    with placed(world) as place:
        for _ in range(world.rounds(3, 9)):
            for jobs, rows in told.items():
                rows.append([drained_often(world, [*place, *command], 2, jobs) for command in workers(world)])
    cost = {jobs: [[each[side]["cpu_s"] * 1e6 / each[side]["jobs"] for each in rows] for side in (0, 1)] for jobs, rows in told.items()}
    for jobs, rows in told.items():
        add(f"scale_{jobs}", *cost[jobs])
        add(f"scale_rate_{jobs}", *([each[side]["jobs"] / each[side]["wall_s"] for each in rows] for side in (0, 1)))
    add("scale", *(flatness([cost[jobs][side] for jobs in cost]) for side in (0, 1)))


def scale_runners(world, add):
    cost, jobs = {}, world.many(2000, 4000)
    for count in (1, 2, 4):
        told = [[shared(world, command, count, 2, jobs) for command in workers(world)] for _ in range(world.rounds(3, 5))]
        cost[count] = [[each[side][0] * 1e6 / jobs for each in told] for side in (0, 1)]
        add(f"scale_runners_{count}", *cost[count])
        add(f"scale_runners_rate_{count}", *([jobs / each[side][1] for each in told] for side in (0, 1)))
    add("scale_runners", *(flatness([cost[count][side] for count in cost]) for side in (0, 1)))
    arrivals = world.many(1000, 2000)
    waits = [[shared(world, command, 1, 2, arrivals, ARRIVAL_MS)[2] for command in workers(world)] for _ in range(world.rounds(1, 3))]
    add("scale_wait_p99_ms", *zip(*waits), note=f"{arrivals} jobs, {ARRIVAL_MS} ms apart")
