# SPDX-License-Identifier: Apache-2.0
"""The figures: their names in build/bench.json, what each is, and its goal. run.py adds only what is here; the page and
the test read it too. check() holds a bench.json against it, and asserts nothing of speed.

A row has ours, peer and their ratio, each the median of n measurements, and spread, the quartiles of ours. The ratio says
how many times better ours is. `of` says what the goal is about: the ratio, ours, or the difference of the pairs."""
from collections import namedtuple

Figure = namedtuple("Figure", "unit better of goal what peer")
GROUPS = {}


def group(title, **figures):
    GROUPS[title] = {name: Figure(*fields) for name, fields in figures.items()}


group(
    "Jobs",
    job_cold_overhead_ms=("ms", "lower", "difference", "<= 20", "a trivial job from its add to the verified result, nothing warm",
                          "`runsc run` of the same bundle, entry and input, to the output's end marker"),
    job_warm_overhead_ms=("ms", "lower", "difference", "<= 8", "the same on a warm sandbox",
                          "the same bytes into an idle bare sandbox, to its end marker"),
    job_warm_ms=("ms", "lower", None, None, "the same on a warm sandbox, in full; the ratio is the gain", "ours, cold, in turn"),
    job_rate=("jobs/s", "higher", "ratio", ">= 0.9", "trivial jobs sustained, concurrency 2", "bare `runsc run`, two at a time"),
    docker_job_ms=("ms", "lower", "difference", "<= 0", "a trivial job on docker-runsc, add to verified result",
                   "`docker run` of the same image and input, until it has ended"),
    docker_job_marker_ms=("ms", "lower", None, None, "the same", "`docker run`, until the output's end marker"),
    rss_idle_mib=("MiB", "lower", "ours", "<= 10", "resident memory of an idle supervisor", "the Node runner, idle"),
    pss_job_mib=("MiB", "lower", "ours", "<= 12", "all our processes of a running job with a 64 MiB snapshot, shared pages divided",
                 "the Node runner and its `docker run`, the same job"),
)
group(
    "Runner beside Node's",
    node_job_ratio=("jobs/s", "higher", "ratio", ">= 2.5", "trivial jobs, concurrency 2, on runsc", "the Node runner on `docker run`"),
    node_job_ratio_docker=("jobs/s", "higher", "ratio", ">= 1.1", "the same on docker-runsc", "the Node runner on `docker run`"),
    node_cpu_ratio=("CPU ms/job", "lower", "ratio", ">= 8", "CPU of the runner's processes on docker-runsc",
                    "Node and its `docker run`"),
    node_cpu_ratio_bare=("CPU ms/job", "lower", None, None, "the same", "the Node process alone"),
    node_rss_ratio=("MiB", "lower", "ratio", ">= 5", "most memory of the runner's processes, shared pages divided", "Node and its `docker run`"),
)
group(
    "Queue",
    queue_cpu_ratio=("jobs/CPU-s", "higher", "ratio", ">= 8", "no-op jobs a CPU second of the worker, concurrency 1, the server on another core",
                     "bullmq's Worker"),
    queue_cpu_ratio_16=("jobs/CPU-s", "higher", "ratio", ">= 8", "the same, concurrency 16", "bullmq's Worker"),
    queue_cpu_ratio_core=("jobs/CPU-s", "higher", None, None, "the same, concurrency 1, worker and server on one core", "bullmq's Worker"),
    scale=("worst/best", "lower", "ours", "<= 1.2", "CPU a job at 10, 100, 1,000 queued", "bullmq's Worker"),
    scale_10=("CPU us/job", "lower", None, None, "10 queued", "bullmq's Worker"),
    scale_100=("CPU us/job", "lower", None, None, "100 queued", "bullmq's Worker"),
    scale_1000=("CPU us/job", "lower", None, None, "1,000 queued", "bullmq's Worker"),
    scale_rate_10=("jobs/s", "higher", None, None, "10 queued", "bullmq's Worker"),
    scale_rate_100=("jobs/s", "higher", None, None, "100 queued", "bullmq's Worker"),
    scale_rate_1000=("jobs/s", "higher", None, None, "1,000 queued", "bullmq's Worker"),
    scale_runners=("worst/best", "lower", "ours", "<= 1.2", "CPU a job with 1, 2, 4 workers on one queue", "bullmq's Worker"),
    scale_runners_1=("CPU us/job", "lower", None, None, "1 worker", "bullmq's Worker"),
    scale_runners_2=("CPU us/job", "lower", None, None, "2 workers", "bullmq's Worker"),
    scale_runners_4=("CPU us/job", "lower", None, None, "4 workers", "bullmq's Worker"),
    scale_runners_rate_1=("jobs/s", "higher", None, None, "1 worker", "bullmq's Worker"),
    scale_runners_rate_2=("jobs/s", "higher", None, None, "2 workers", "bullmq's Worker"),
    scale_runners_rate_4=("jobs/s", "higher", None, None, "4 workers", "bullmq's Worker"),
    scale_wait_p99_ms=("ms", "lower", None, None, "99 of 100 jobs that arrive one by one wait no longer", "bullmq's Worker"),
)
group(
    "Snapshots and blobs",
    snapshot_ratio=("ms", "lower", "ratio", ">= 5", "a 200 MB source tree packed, compressed, sealed", "`tar | gzip -6 | openssl enc`"),
    snapshot_ratio_node=("ms", "lower", "ratio", ">= 5", "the same", "tar-stream, zlib and node:crypto"),
    snapshot_ratio_bytes=("MB", "lower", "ratio", ">= 0.893", "bytes of it; the goal is at most 1.12 times the peer's", "`gzip -6`"),
    snapshot_growth=("worst/best", "lower", "ours", "<= 1.2", "time a file at 10, 100, 1,000 thousand files", "the pipe of `tar`"),
    snapshot_growth_10k=("us/file", "lower", None, None, "10 thousand files", "the pipe of `tar`"),
    snapshot_growth_100k=("us/file", "lower", None, None, "100 thousand files", "the pipe of `tar`"),
    snapshot_growth_1000k=("us/file", "lower", None, None, "a million files", "the pipe of `tar`"),
    snapshot_growth_mib=("MiB", "lower", "ours", "<= 64", "most memory at a million files", "the largest of the pipe's processes"),
    unseal_ratio=("GB/CPU-s", "higher", "ratio", ">= 0.85", "a blob unsealed into nothing: tags, size, SHA-256", "`openssl speed` of AES-256-GCM"),
    unseal_ratio_both=("GB/CPU-s", "higher", "ratio", ">= 0.85", "the same", "`openssl speed` of AES-256-GCM and of SHA-256, one after the other"),
    unseal_ratio_tags=("GB/CPU-s", "higher", "ratio", ">= 0.85", "the same without the SHA-256", "`openssl speed` of AES-256-GCM"),
    open_pipe_ratio=("GB/s", "higher", "ratio", ">= 0.5", "a blob unsealed through a pipe", "`cat` through it"),
    jcs_ratio=("ops/CPU-s", "higher", "ratio", ">= 8", "a parsed job canonicalised and its HMAC", "canonicalize and node:crypto"),
    unpack_ratio=("ms", "lower", "ratio", ">= 1.5", "a 200 MB snapshot unpacked in the sandbox", "`tar xz` in the same sandbox"),
)
group(
    "Egress proxy",
    egress_connects=("CONNECT/CPU-s", "higher", "ratio", ">= 1", "tunnels opened", "the better of tinyproxy and squid"),
    egress_stream_1=("GB/CPU-s", "higher", "ratio", ">= 1", "through one tunnel", "the better of tinyproxy and squid"),
    egress_stream_64=("GB/CPU-s", "higher", "ratio", ">= 1", "through 64 tunnels", "the better of tinyproxy and squid"),
    egress_stream_direct=("GB/s", "higher", "ratio", ">= 0.7", "through one tunnel, wall time", "a direct connection"),
    egress_stream_direct_64=("GB/s", "higher", "ratio", ">= 0.7", "through 64 tunnels, wall time", "64 direct connections"),
    egress_idle_kib=("KiB/tunnel", "lower", "ours", "<= 8", "memory of an idle tunnel", "the better of tinyproxy and squid"),
)

FIGURES = {name: figure for figures in GROUPS.values() for name, figure in figures.items()}
ROW = ("ours", "peer", "ratio", "unit", "n", "spread")
ABOUT = {"versions": dict, "skipped": dict, "rounds": str, "cores": int, "load": list, "at": str, "seconds": (int, float)}


def met(name, row):
    """Whether the goal is met; None without one."""
    figure = FIGURES[name]
    if figure.goal is None:
        return None
    operator, number = figure.goal.split()
    value = row[figure.of]
    return value is not None and (value <= float(number) if operator == "<=" else value >= float(number))


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_row(name, row):
    if not isinstance(row, dict) or any(key not in row for key in ROW):
        return [f"{name}: a row has {', '.join(ROW)}"]
    figure, faults = FIGURES[name], []
    if row["unit"] != figure.unit:
        faults.append(f"{name}: unit {row['unit']}, and not {figure.unit}")
    if not all(is_number(row[key]) for key in ("ours", "peer", "ratio")):
        faults.append(f"{name}: ours, peer and ratio are numbers")
    if not (isinstance(row["n"], int) and row["n"] >= 1):
        faults.append(f"{name}: n counts measurements")
    if not (isinstance(row["spread"], list) and len(row["spread"]) == 2 and all(map(is_number, row["spread"])) and
            row["spread"][0] <= row["spread"][1]):
        faults.append(f"{name}: spread is two quartiles")
    if figure.of == "difference" and not is_number(row.get("difference")):
        faults.append(f"{name}: the goal is about a difference")
    return faults


def check(document, partial=False):
    """The faults of a bench.json. Whole: each name is there, or is skipped with a reason."""
    about = document.get("about")
    if not isinstance(about, dict) or any(not isinstance(about.get(key), kind) for key, kind in ABOUT.items()):
        return [f"about: has {', '.join(ABOUT)}"]
    faults, rows = [], {name: row for name, row in document.items() if name != "about"}
    for name, row in rows.items():
        faults += check_row(name, row) if name in FIGURES else [f"{name}: not in the table of names"]
    for name in FIGURES:
        if name not in rows and not partial and not about["skipped"].get(name):
            faults.append(f"{name}: neither measured nor skipped")
    return faults
