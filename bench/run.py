#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/run.py [--full | --quick] [NAME...]: measures, each figure in turn with its peer in the same run, and writes build/bench.json
and a table. Nothing here asserts a speed. Without names: everything. --full: more rounds; --quick: one of each, which
shows that it works and says nothing.

A measurement is a function that gets the world and `add`; the names that it adds are in names.py. With NAMEs, what
build/bench.json has of the others stays. It is written after each, so that a run that is ended keeps what it has."""
import argparse, datetime, json, os, pathlib, platform, signal, subprocess, sys, time

import blobs, egress_rows, jobs, names, node_peer, queues
from table import Figures, say, table
from world import ROOT, Missing, World

# What each adds is said here, so that what is skipped is named too.
MEASURES = {
    "jcs": (blobs.jcs, "jcs_ratio"),
    "unseal": (blobs.unseal, "unseal_ratio unseal_ratio_both unseal_ratio_tags"),
    "open_pipe": (blobs.open_pipe, "open_pipe_ratio"),
    "queue": (queues.queue, "queue_cpu_ratio queue_cpu_ratio_16 queue_cpu_ratio_core"),
    "scale": (queues.scale, "scale scale_10 scale_100 scale_1000 scale_rate_10 scale_rate_100 scale_rate_1000"),
    "scale_runners": (queues.scale_runners, "scale_runners scale_runners_1 scale_runners_2 scale_runners_4 scale_runners_rate_1 "
                      "scale_runners_rate_2 scale_runners_rate_4 scale_wait_p99_ms"),
    "snapshot": (blobs.snapshot, "snapshot_ratio snapshot_ratio_node snapshot_ratio_bytes"),
    "growth": (blobs.growth, "snapshot_growth snapshot_growth_10k snapshot_growth_100k snapshot_growth_1000k snapshot_growth_mib"),
    "unpack": (blobs.unpack, "unpack_ratio"),
    "cold": (jobs.cold, "job_cold_overhead_ms"),
    "warm": (jobs.warm, "job_warm_overhead_ms job_warm_ms"),
    "rate": (jobs.rate, "job_rate"),
    "docker_pairs": (jobs.docker_pairs, "docker_job_ms docker_job_marker_ms"),
    "node": (node_peer.node, "node_job_ratio node_job_ratio_docker node_cpu_ratio node_cpu_ratio_bare node_rss_ratio"),
    "memory": (node_peer.memory, "rss_idle_mib pss_job_mib"),
    "egress": (egress_rows.egress, "egress_connects egress_stream_1 egress_stream_64 egress_stream_direct egress_stream_direct_64 egress_idle_kib"),
}


def first_line(*argv):
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.stdout.splitlines()[0]
    except (OSError, IndexError):
        return "absent"


def versions():
    peers = json.loads((ROOT / "bench/node/package.json").read_text())["dependencies"]
    commands = {"runsc": "--version", "docker": "--version", "valkey-server": "--version", "node": "--version", "openssl": "version",
                "tar": "--version", "gzip": "--version", "squid": "--version", "tinyproxy": "-v"}
    kernel = ".".join(platform.release().split(".")[:2])  # the rest is a build's
    return {"kernel": kernel, **{name: first_line(name, word) for name, word in commands.items()}, **peers}


def measure(world, name, figures, about):
    function, adds = MEASURES[name]
    adds, start = adds.split(), time.monotonic()
    say(f"[{time.monotonic() - world.began:4.0f} s] {name}")

    def add(figure, *values, **more):
        if figure not in adds:
            raise RuntimeError(f"{name} does not say that it adds {figure}")
        figures.add(figure, *values, **more)

    try:
        function(world, add)
    except Missing as why:
        figures.skip(str(why), *adds)
    about["took"][name] = round(time.monotonic() - start, 1)


def earlier(path, chosen):
    """What an earlier run says of figures that are not measured now; each then tells of which run it is."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}, {}
    if not chosen or names.check(document, partial=True):
        return {}, {}
    now = {figure for name in chosen for figure in MEASURES[name][1].split()}
    run = {key: document["about"][key] for key in ("at", "rounds", "load")}
    return ({name: {"of": run, **row} for name, row in document.items() if name != "about" and name not in now},
            {name: why for name, why in document["about"]["skipped"].items() if name not in now})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/bench.json")
    parser.add_argument("names", nargs="*", choices=[*MEASURES, []])
    options = parser.parse_args()
    figures, about = Figures(), {"took": {}, "load": [round(os.getloadavg()[0], 2)]}
    figures.rows, figures.skipped = earlier(options.output, options.names)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through atexit: what was started ends with it
    world = World(2 if options.full else 0 if options.quick else 1)
    world.valkey()
    about.update(versions=versions(), rounds=("one", "usual", "many")[world.level], cores=len(os.sched_getaffinity(0)),
                 at=f"{datetime.datetime.now():%Y-%m-%d %H:%M}")
    for name in options.names or MEASURES:
        measure(world, name, figures, about)
        about["seconds"] = round(time.monotonic() - world.began, 1)
        figures.write(options.output, dict(about, load=[*about["load"], round(os.getloadavg()[0], 2)]))
    document = json.loads(options.output.read_text())
    print(table(document))
    faults = names.check(document, partial=bool(options.names))
    return "\n".join(faults) if faults else 0


if __name__ == "__main__":
    sys.exit(main())
