# SPDX-License-Identifier: Apache-2.0
"""The queue: our worker and bullmq's, doing nothing, on one server in turn."""
import contextlib, statistics, subprocess, time

from world import figures, group, output, program

ARRIVAL_MS = 2


def workers(world):
    return [program("noop")], ["node", world.node() / "noop.mjs"]


def fill(world, jobs, *pace):
    output("node", world.node() / "fill.mjs", world.url("bench"), jobs, *pace)


def drained(world, command, concurrency, jobs, warm=0):
    """JOBS wait; one worker takes them all."""
    fill(world, jobs + warm)
    return figures(output(*command, world.url("bench"), concurrency, jobs, warm))


def shared(world, command, count, concurrency, jobs, *pace):
    """COUNT workers stand ready; then jobs come."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(group(*command, world.url("bench"), concurrency, 0, 0, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                    for _ in range(count)]
        for child in children:
            child.stdout.readline()
        time.sleep(0.2)
        fill(world, jobs, *pace)
        while world.cli("eval", "return redis.call('llen', KEYS[1]) + redis.call('llen', KEYS[2])", "2", "bench:sandbox:wait",
                        "bench:sandbox:active").strip() != "0":
            time.sleep(0.02)
        told = [figures(child.communicate()[0]) for child in children]
    if sum(each["jobs"] for each in told) != jobs:
        raise RuntimeError(f"{command[0]}: {sum(each['jobs'] for each in told)} of {jobs} jobs")
    return (sum(each["cpu_s"] for each in told), *(max(each[name] for each in told) for name in ("wall_s", "wait_p99_ms")))


def queue(world, add):
    jobs = world.many(2000, 10000)
    for name, concurrency in (("queue_cpu_ratio", 1), ("queue_cpu_ratio_16", 16)):
        rows = [[jobs / drained(world, command, concurrency, jobs, 500)["cpu_s"] for command in workers(world)]
                for _ in range(world.rounds(4, 9))]
        add(name, *zip(*rows))


def flatness(rows):
    """Of several series, how much the worst median is above the best."""
    medians = [statistics.median(series) for series in rows]
    return [max(medians) / min(medians)]


def scale(world, add):
    cost, rounds = {}, world.rounds(3, 15)
    for jobs in (10, 100, 1000):
        told = [[drained(world, command, 2, jobs, 500) for command in workers(world)] for _ in range(rounds)]
        cost[jobs] = [[each[side]["cpu_s"] * 1e6 / jobs for each in told] for side in (0, 1)]
        add(f"scale_{jobs}", *cost[jobs])
        add(f"scale_rate_{jobs}", *([jobs / each[side]["wall_s"] for each in told] for side in (0, 1)))
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
