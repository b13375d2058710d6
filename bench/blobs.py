# SPDX-License-Identifier: Apache-2.0
"""Bytes: canonical JSON, blobs, snapshots, and their way into a sandbox."""
import contextlib, json, pathlib, re, shutil, statistics, subprocess, time

from world import ROOT, Missing, figures, measured, output, program

TREES = ["/usr/include", "/usr/lib/python3", "/usr/lib/python3.11", "/usr/share/perl", "/usr/share/doc", "/usr/share/cmake-3.25"]
TREE_MIB = 200
FILE_KIB = 6  # of memory, what a small file in a tmpfs takes


def tree(world, mib=TREE_MIB):
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


def jcs(world, add):
    node, job = world.node(), ROOT / "bench/job.json"
    pairs = [(figures(output(program("pure"), "jcs", job, 0.3))["jcs_per_cpu_s"],
              figures(output("node", node / "jcs.mjs", job, 0.3))["jcs_per_cpu_s"]) for _ in range(world.rounds(5, 20))]
    add("jcs_ratio", *zip(*pairs))


def openssl_speed(name):
    """Bytes a second, of CPU time."""
    text = output("openssl", "speed", "-mr", "-evp", name, "-bytes", 1048576, "-seconds", 1)
    return float(re.search(r"^\+F:\d+:[^:]+:([0-9.]+)", text, re.M).group(1))


def unseal(world, add):
    """The reader takes tags and a SHA-256: the peer of both is OpenSSL's cipher and hash, one after the other on one core."""
    rows = []
    for _ in range(world.rounds(5, 10)):
        ours = figures(output(program("pure"), "unseal", 64, 0.3))
        cipher, digest = (openssl_speed(name) for name in ("aes-256-gcm", "sha256"))
        rows.append([rate / 1e9 for rate in (ours["unseal_bytes_per_s"], ours["tags_bytes_per_s"], cipher, 1 / (1 / cipher + 1 / digest))])
    ours, tags, cipher, both = zip(*rows)
    add("unseal_ratio", ours, cipher)
    add("unseal_ratio_both", ours, both)
    add("unseal_ratio_tags", tags, cipher)


def open_pipe(world, add):
    plain, rows = world.dir / "plain", []
    subprocess.run(["dd", "if=/dev/urandom", f"of={plain}", "bs=1M", "count=256"], check=True, stderr=subprocess.DEVNULL)
    for _ in range(world.rounds(5, 10)):
        ours = figures(output("sh", "-c", f"{{ {program('input')} 64 0.5 | cat >/dev/null; }} 2>&1"))
        start = time.monotonic()
        output("sh", "-c", f"cat {plain} | cat >/dev/null")
        rows.append((ours["pipe_bytes_per_s"] / 1e9, 256 * 1048576 / 1e9 / (time.monotonic() - start)))
    plain.unlink()
    add("open_pipe_ratio", *zip(*rows))


# ---- snapshots

def pipe(folder):
    return ("bash", "-c", f"set -o pipefail; tar -C {folder} --sort=name -cf - . | gzip -6 | "
            f"openssl enc -aes-256-ctr -K {'0' * 64} -iv {'0' * 32} | wc -c")


def snapshot(world, add):
    folder, rows, node = tree(world), [], world.node()
    for _ in range(world.rounds(2, 7)):
        ours = figures(output(program("pack"), folder))
        peer_bytes, peer_s, _ = measured(*pipe(folder))
        theirs = figures(output("node", node / "pack.mjs", folder))
        rows.append((ours["wall_ms"], peer_s * 1e3, theirs["wall_ms"], ours["gzip_bytes"] / 1e6, int(peer_bytes) / 1e6))
    ours, peer, theirs, size, peer_size = zip(*rows)
    add("snapshot_ratio", ours, peer)
    add("snapshot_ratio_node", ours, theirs)
    add("snapshot_ratio_bytes", size, peer_size)


@contextlib.contextmanager
def many_files(world, thousands):
    """In a tmpfs of its own: a disk takes minutes to make and to remove a million."""
    free_kib = int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    if free_kib < 2 * FILE_KIB * thousands * 1000:
        raise Missing(f"{thousands} thousand files need {2 * FILE_KIB * thousands // 1000} MB of memory")
    folder = world.dir / f"many{thousands}"
    folder.mkdir()
    output("mount", "-t", "tmpfs", "-o", "size=90%,nr_inodes=0", "quavon-bench", folder)
    try:
        output(program("pack"), "--make", folder, thousands)
        yield folder
    finally:
        output("umount", "--lazy", folder)  # of an ended pipe one process may not be gone yet
        folder.rmdir()


def growth(world, add):
    per_file = {}
    for thousands, rounds in ((10, world.rounds(3, 7)), (100, world.rounds(2, 5)), (1000, world.rounds(1, 3))):
        with many_files(world, thousands) as folder:
            rows = []
            for _ in range(rounds):
                ours = figures(output(program("pack"), folder))
                _, seconds, peer_kib = measured(*pipe(folder))
                rows.append((ours["wall_ms"] / thousands, seconds * 1e3 / thousands, ours["max_rss_kib"] / 1024, peer_kib / 1024))
        ours, peer, mib, peer_mib = zip(*rows)
        per_file[thousands] = (ours, peer)
        add(f"snapshot_growth_{thousands}k", ours, peer)
    add("snapshot_growth_mib", mib, peer_mib)
    medians = [[statistics.median(each[side]) for each in per_file.values()] for side in (0, 1)]
    add("snapshot_growth", *([max(series) / min(series)] for series in medians))


def unpack(world, add):
    """startedMs of the first step is what the entry took for all of it, its input's way included; the peer unpacks the same
    tree in the same sandbox, out of an archive that was in the snapshot too."""
    source, folder, rows = tree(world), world.dir / "packed", []
    folder.mkdir()
    output("sh", "-c", f"tar -C {source} -cf - . | gzip -1 >{folder}/t.tgz && cp -r {source} {folder}/tree")
    runner = world.runner(QUAVON_SANDBOX_CONCURRENCY=1)
    for _ in range(world.rounds(2, 5)):
        text = output(program("submit"), folder, 1, "workMiB=1024", "memoryMiB=1024", "--", "mkdir ../x && tar xzf t.tgz -C ../x",
                      env=world.environment("worker"))
        step = json.loads(text.split(" ", 2)[2])["steps"][0]
        rows.append((step["startedMs"], step["durationMs"]))
    world.stop(runner)
    shutil.rmtree(folder)
    add("unpack_ratio", *zip(*rows))
