#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""selftest.py: the scripts that judge the others, given what they must see. TAP on stdout."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SCRIPTS = pathlib.Path(__file__).resolve().parent


def run(*argv, **environment):
    return subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def mirror(folder, kind, suite):
    return run(SCRIPTS / "debian-mirror.sh", kind, suite, QUAVON_TEST_APT_DIR=str(folder))


def apt_folder(work, lists, sources):
    folder = pathlib.Path(tempfile.mkdtemp(dir=work))
    (folder / "sources.list.d").mkdir()
    (folder / "sources.list").write_text(lists)
    (folder / "sources.list.d" / "x.sources").write_text(sources)
    return folder


def mirror_reads_lists(work):
    folder = apt_folder(work, "# deb http://a.example/no bookworm main\n"
                              "deb-src http://b.example/no bookworm main\n"
                              "deb http://c.example/no bookworm contrib\n"
                              "deb [arch=amd64 signed-by=/k.gpg] http://d.example/debian bookworm main contrib # x\n"
                              "deb http://e.example/sec bookworm-security main\n", "")
    assert mirror(folder, "deb", "bookworm").stdout == \
        "deb [arch=amd64 signed-by=/k.gpg] http://d.example/debian bookworm main\n"
    assert mirror(folder, "deb-src", "bookworm-backports").stdout == \
        "deb-src [arch=amd64 signed-by=/k.gpg] http://d.example/debian bookworm-backports main\n"
    assert mirror(folder, "deb", "bookworm-security").stdout == \
        "deb http://e.example/sec bookworm-security main\n"


def mirror_reads_deb822(work):
    folder = apt_folder(work, "", "Types: deb\nURIs: http://a.example/no\nSuites: bookworm\nComponents: main\n"
                                  "Enabled: no\n\n"
                                  "Types: deb-src\nURIs: http://b.example/no\nSuites: bookworm\nComponents: main\n\n"
                                  "# a comment\nTypes: deb deb-src\n# another\nURIs: http://c.example/debian\n"
                                  "Suites: bookworm\n bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n\n"
                                  "Types: deb\nURIs: http://d.example/sec\nSuites: bookworm-security\n"
                                  "Components: main\nSigned-By:\n -----BEGIN PGP\n .\n")
    assert mirror(folder, "deb", "bookworm-updates").stdout == \
        "deb [signed-by=/k.gpg] http://c.example/debian bookworm-updates main\n"
    assert mirror(folder, "deb", "bookworm-security").stdout == "deb http://d.example/sec bookworm-security main\n"


def mirror_says_when_there_is_none(work):
    folder = apt_folder(work, "deb http://a.example/debian trixie main\n", "")
    answer = mirror(folder, "deb", "bookworm")
    assert answer.returncode == 1 and answer.stdout == "" and "bookworm" in answer.stderr


def summary(work, **files):
    paths = []
    for name, content in files.items():
        path = pathlib.Path(work, name.replace("_", "."))
        path.write_text(content)
        paths.append(path)
    answer = run(SCRIPTS / "summary.py", *paths)
    return answer.returncode, answer.stdout.splitlines()[-1], answer.stdout


def meson_log(*tests):
    return "".join(json.dumps({"name": n, "result": r, "stdout": out, "duration": 1.0}) + "\n" for n, r, out in tests)


def summary_counts(work):
    code, last, text = summary(work, a_json=meson_log(
        ("x", "OK", "1..3\nok 1 /a\nok 2 /b # SKIP no root\n# noise\nok 3 /c\n"), ("y", "OK", "plain")), b_tap="1..1\nok 1 z\n")
    assert (code, last) == (0, "4 passed, 0 failed, 1 skipped"), (code, last)
    assert "no root" in text


def summary_sees_failures(work):
    for broken in (("x", "FAIL", "1..2\nok 1 /a\nnot ok 2 /b\n"), ("x", "ERROR", "1..2\nok 1 /a\n"),
                   ("x", "OK", "1..2\nok 1 /a\n"), ("x", "TIMEOUT", "1..1\nok 1 /a\n"), ("x", "FAIL", "")):
        code, last, _ = summary(work, a_json=meson_log(broken, ("y", "OK", "1..1\nok 1 /y\n")))
        assert code == 1 and ", 1 failed, 0 skipped" in last, (broken, last)
    code, last, _ = summary(work, a_tap="1..1\nnot ok 1 step\n", b_json=meson_log(("y", "OK", "")))
    assert (code, last) == (1, "1 passed, 1 failed, 0 skipped")


def summary_tells_why(work):
    long = "# " + "y" * 3000 + " the end"
    _, _, text = summary(work, a_json=meson_log(("x", "FAIL", f"1..3\nok 1 /a\nnot ok 2 /b\n# the reason\n{long}\nok 3 /c\n# later\n"),
                                                ("z", "ERROR", "1..2\nok 1 /a\nit crashed\n")))
    assert "| # the reason" in text and "y the end" in text and "| it crashed" in text and "later" not in text, text
    assert max(map(len, text.splitlines())) < 1300


def summary_refuses_nothing(work):
    code, last, _ = summary(work, a_json=meson_log(("x", "SKIP", "1..0 # SKIP no gVisor\n")))
    assert (code, last) == (1, "0 passed, 0 failed, 1 skipped"), last


def leftovers(work, plant, kind):
    note = pathlib.Path(work, "before.json")
    assert run(SCRIPTS / "leftovers.py", "before", note).returncode == 0
    remove = plant(work)
    try:
        answer = run(SCRIPTS / "leftovers.py", "after", note, QUAVON_TEST_WAIT_S="0")
    finally:
        remove()
    assert answer.returncode == 1 and f"no {kind} left" in answer.stdout
    assert any(line.startswith("not ok") and kind in line for line in answer.stdout.splitlines()), answer.stdout


def plant_process(work):
    program = pathlib.Path(work, "quavon-left")
    shutil.copy(shutil.which("sleep"), program)
    child = subprocess.Popen([program, "600"])

    def remove():
        child.kill()
        child.wait()
    return remove


def plant_file(_work):
    path = tempfile.mkdtemp(prefix="qv-left-", dir="/tmp")
    return lambda: os.rmdir(path)


def plant_cgroup(_work):
    tops = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"]
    top = next(t for t in tops if os.path.isdir(t))
    path = os.path.join(top, f"quavon-left-{os.getpid()}")
    os.mkdir(path)
    return lambda: os.rmdir(path)


def leftovers_are_found(work):
    leftovers(work, plant_process, "processes")
    leftovers(work, plant_file, "files")


def left_control_groups_are_found(work):
    if os.geteuid() != 0 or not os.access("/sys/fs/cgroup", os.W_OK):
        return "needs root and a control group hierarchy that can be written"
    leftovers(work, plant_cgroup, "control groups")
    return None


TESTS = [mirror_reads_lists, mirror_reads_deb822, mirror_says_when_there_is_none, summary_counts, summary_sees_failures, summary_tells_why,
         summary_refuses_nothing, leftovers_are_found, left_control_groups_are_found]


def main():
    print(f"1..{len(TESTS)}")
    failed = 0
    for i, test in enumerate(TESTS, 1):
        name = f"{i} {test.__name__.replace('_', ' ')}"
        with tempfile.TemporaryDirectory(prefix="quavon-selftest-", dir="/var/tmp") as work:
            try:
                skipped = test(work)
                print(f"ok {name}" + (f" # SKIP {skipped}" if skipped else ""))
            except AssertionError as problem:
                failed += 1
                print(f"not ok {name}")
                print("# " + str(problem).replace("\n", "\n# "))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
