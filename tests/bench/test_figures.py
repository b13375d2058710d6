#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The shape of bench.json: one quick round of what needs no sandbox, its document held against bench/names.py; documents that
are wrong; the page. Says nothing of speed."""
import contextlib
import copy
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path += [str(ROOT / "bench"), str(ROOT / "tests/deploy")]

import causes  # noqa: E402
import names  # noqa: E402
import page  # noqa: E402
import run  # noqa: E402
import table  # noqa: E402
import tap  # noqa: E402

ABOUT = {"versions": {"kernel": "1"}, "skipped": {}, "rounds": "usual", "cores": 2, "load": [0.1, 0.2], "at": "2026-01-01 00:00", "seconds": 1.5}


def whole():
    """A document of every figure, made by the code that makes the real one."""
    made = table.Figures(tell=False)
    for name in names.FIGURES:
        made.add(name, [3.0, 1.0, 2.0], [4.0, 4.5, 5.0])
    return {"about": copy.deepcopy(ABOUT), **made.rows}


def equal(got, want):
    assert got == want, f"{got!r}, and not {want!r}"


def test_measurements_add_what_the_table_names():
    added = [name for _, adds in run.MEASURES.values() for name in adds.split()]
    equal(sorted(added), sorted(names.FIGURES))


def test_goals_can_be_judged():
    for name, figure in names.FIGURES.items():
        assert figure.better in ("higher", "lower"), name
        if figure.goal is not None:
            assert re.fullmatch(r"(>=|<=) \d+(\.\d+)?", figure.goal) and figure.of in ("ratio", "ours", "difference"), name


def test_whole_document_has_no_fault():
    equal(names.check(whole()), [])


def test_ratio_says_how_many_times_better():
    document = whole()
    equal(document["jcs_ratio"]["ratio"], round(2 / 4.5, 3))
    equal(document["snapshot_ratio"]["ratio"], round(4.5 / 2, 3))
    equal(document["job_cold_overhead_ms"]["difference"], -3.0)
    equal((document["job_cold_overhead_ms"]["met"], document["jcs_ratio"]["met"]), (True, False))
    equal((document["jcs_ratio"]["n"], document["jcs_ratio"]["spread"]), (3, [1.5, 2.5]))


WRONG = {
    "name missing": lambda d: d.pop("jcs_ratio"),
    "name unknown": lambda d: d.update(other=d["jcs_ratio"]),
    "about missing": lambda d: d.pop("about"),
    "load missing": lambda d: d["about"].pop("load"),
    "no row": lambda d: d.update(jcs_ratio=1),
    "no peer": lambda d: d["jcs_ratio"].pop("peer"),
    "other unit": lambda d: d["jcs_ratio"].update(unit="ms"),
    "text": lambda d: d["jcs_ratio"].update(ours="1"),
    "no ratio": lambda d: d["jcs_ratio"].update(ratio=None),
    "no measurement": lambda d: d["jcs_ratio"].update(n=0),
    "spread upside down": lambda d: d["jcs_ratio"].update(spread=[2, 1]),
    "half a spread": lambda d: d["jcs_ratio"].update(spread=[1]),
    "no difference": lambda d: d["job_cold_overhead_ms"].pop("difference"),
}


def test_faults_are_seen():
    for what, change in WRONG.items():
        document = whole()
        change(document)
        assert len(names.check(document)) == 1, what


def test_what_is_skipped_has_a_reason():
    document = whole()
    del document["jcs_ratio"]
    document["about"]["skipped"]["jcs_ratio"] = "npm is not installed"
    equal(names.check(document), [])
    assert "not measured: npm is not installed" in table.table(document)


def test_unknown_figure_is_not_added():
    try:
        table.Figures().add("fast", [1.0], [2.0])
    except KeyError:
        return
    raise AssertionError("it was")


def test_table_has_every_figure():
    text = table.table(whole())
    for name in names.FIGURES:
        assert f"  {name} " in text, name


def test_missed_figures_have_their_cause():
    document = whole()
    for name in names.FIGURES:
        document[name]["met"] = True
    equal(page.missed(document)[-1], "Nothing.")
    looked_at = {name for which, _ in causes.CAUSES for name in which.split()}
    other = next(name for name, figure in names.FIGURES.items() if figure.goal is not None and name not in looked_at)
    for name in ("unpack_ratio", other):
        document[name]["met"] = False
    unpack, rest = (line for line in page.missed(document) if line.startswith("- "))
    assert unpack.startswith("- `unpack_ratio`: `tar xzf` is two processes"), unpack
    assert rest.startswith(f"- No cause is written down of `{other}`."), rest


def test_causes_are_of_goals():
    for name in (name for which, _ in causes.CAUSES for name in which.split()):
        assert names.FIGURES[name].goal is not None, name


def in_folder(check):
    with tempfile.TemporaryDirectory(prefix="qv-test-", dir="/tmp") as folder:
        check(pathlib.Path(folder))


def test_quick_run_keeps_earlier_figures():
    if shutil.which("valkey-server") is None or shutil.which("openssl") is None:
        raise tap.Skip("valkey-server and openssl are needed")

    def check(folder):
        output = folder / "bench.json"
        output.write_text(json.dumps({"about": ABOUT, "jcs_ratio": whole()["jcs_ratio"]}))
        done = subprocess.run([sys.executable, "-B", ROOT / "bench/run.py", "--quick", "--output", output, "unseal"], capture_output=True,
                              text=True, check=False)
        assert done.returncode == 0, done.stderr
        document = json.loads(output.read_text())
        equal(names.check(document, partial=True), [])
        equal(set(document), {"about", "jcs_ratio", "unseal_ratio", "unseal_ratio_both", "unseal_ratio_tags"})
        assert names.check(document) != []
        equal(document["jcs_ratio"]["of"], {key: ABOUT[key] for key in ("at", "rounds", "load")})
        assert "of" not in document["unseal_ratio"] and f"of {ABOUT['at']}" in done.stdout
        shown = page.figures(document)
        assert "| 3 †|" in shown and "†: of a run of 2026-01-01 00:00, `make bench`, load 0.1 before" in shown
        assert "unseal_ratio" in done.stdout and "openssl" in done.stdout
    in_folder(check)


# A run whose peer of snapshots does not end by itself: it tells its own process and the one at the pipe's head, and waits. What is in
# front of it is left out, and nothing is looked for at npm.
ENDLESS = """
import pathlib, sys
import blobs, run, world
told, blobs.tree = sys.argv.pop(1), lambda world: world.dir
blobs.pipe = lambda folder: ("bash", "-c", f"cd {folder}; (echo $$ $BASHPID >{told}.new; mv {told}.new {told}; exec sleep 3600) | cat")
blobs.output = lambda *argv, **options: "wall_ms 1" if argv[0] == world.program("pack") else world.output(*argv, **options)
world.World.node = lambda self: pathlib.Path("/")
sys.exit(run.main())
"""


def awaited(path):
    for _ in range(2400):
        if path.exists():
            return path.read_text().split()
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {path}")


def servers_of(pid):
    """A run's Valkey, and its folder, which stands in the server's title; some other child may go while this looks."""
    found = {}
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            title = pathlib.Path(f"/proc/{child}/cmdline").read_text()
            if title.startswith("valkey-server"):
                found[child] = re.search(r"/tmp/qv-bench\.[^/ ]+", title).group(0)
    return found


def gone(pid):
    """A process without a parent may stay a zombie, where nothing takes those."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def ended_run(argv, name, number, ready, status):
    """What runs in the midst of it, and its folder, are gone when it is."""
    with tempfile.TemporaryDirectory(prefix="qv-test-", dir="/tmp") as folder:
        told = pathlib.Path(folder) / "told"
        # A shell's background job ignores SIGINT, and so would all that it starts.
        child = subprocess.Popen([sys.executable, "-B", *(told if word is None else word for word in argv), "--output", f"{folder}/bench.json", name],
                                 cwd=ROOT / "bench", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        pids = []
        try:
            assert f"] {name}" in child.stderr.readline()
            pids = awaited(told) if ready else []
            servers = servers_of(child.pid)
            pids += servers
            child.send_signal(number)
            child.wait(120)
        finally:
            if child.poll() is None:  # it hangs, and so does what it started
                for pid in map(int, (child.pid, *pids)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                child.wait()
            child.stderr.close()
        equal(child.returncode, status)
        equal(len(servers), 1)
        for world in servers.values():
            assert not pathlib.Path(world).exists(), world
            assert world not in pathlib.Path("/proc/mounts").read_text(), world
        for _ in range(600):
            if all(map(gone, pids)):
                return
            time.sleep(0.05)
        raise AssertionError(f"{name}: {pids} go on")


def test_ended_run_leaves_nothing():
    if shutil.which("valkey-server") is None or shutil.which("openssl") is None:
        raise tap.Skip("valkey-server and openssl are needed")
    ended_run([ROOT / "bench/run.py"], "unseal", signal.SIGTERM, False, 143)


def test_run_ended_beside_a_peer_leaves_nothing():
    if shutil.which("valkey-server") is None or os.geteuid() != 0:
        raise tap.Skip("valkey-server and root are needed")
    for name in ("snapshot", "growth"):
        ended_run(["-c", ENDLESS, None], name, signal.SIGTERM, True, 143)
    ended_run(["-c", ENDLESS, None], "snapshot", signal.SIGINT, True, -signal.SIGINT)


def test_page_and_charts_come_from_the_document_alone():
    def check(folder):
        (folder / "docs").mkdir()
        shown = folder / "docs/PERFORMANCE.md"
        shown.write_text(f"before\n{page.BEGIN}\nstale figures\n{page.END}\nbehind\n")
        (folder / "bench.json").write_text(json.dumps(whole()))
        texts = []
        for _ in range(2):
            page.main(folder / "bench.json", folder)
            texts.append([path.read_text() for path in sorted((folder / "docs").rglob("*.*"))])
        equal(texts[0], texts[1])
        text = shown.read_text()
        assert text.startswith("before\n") and text.endswith(f"{page.END}\nbehind\n") and "stale" not in text
        for name in names.FIGURES:
            assert f"| `{name}` |" in text, name
        charts = re.findall(r"\]\((bench/[^)]+)\)", text)
        equal(len(charts), len(names.GROUPS))
        for target in charts:
            assert (folder / "docs" / target).read_text().startswith("<svg "), target
    in_folder(check)


def test_project_has_the_page():
    text = (ROOT / "docs/PERFORMANCE.md").read_text()
    equal((text.count(page.BEGIN), text.count(page.END)), (1, 1))
    for name in names.FIGURES:
        assert f"`{name}`" in text, name


if __name__ == "__main__":
    tap.main(globals())
