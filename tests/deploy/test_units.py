#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The systemd units: they verify, their exposure stays below a figure, and what they name exists."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import tap

ROOT = pathlib.Path(os.environ["QUAVON_SOURCE_ROOT"])
# What `systemd-analyze security` may say at most, in tenths: root's own work is what keeps the runner where it is.
EXPOSURE_MAX = {"quavon-sandbox-runner": 54, "quavon-sandbox-egress": 14, "quavon-egress-network": 20}


def unit(name):
    return (ROOT / "deploy" / "systemd" / (name + ".service.in")).read_text(encoding="utf-8")


def in_folder(check):
    if shutil.which("systemd-analyze") is None:
        raise tap.Skip("systemd-analyze is not installed")
    with tempfile.TemporaryDirectory(prefix="qv-test-") as folder:
        for name in EXPOSURE_MAX:
            text = unit(name).replace("@sbindir@", folder)
            program = pathlib.Path(folder, name)
            program.write_text("#!/bin/sh\n", encoding="utf-8")
            program.chmod(0o755)
            path = pathlib.Path(folder, name + ".service")
            path.write_text(text, encoding="utf-8")
            check(name, path)


def test_verify():
    def verify(name, path):
        run = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, check=False)
        ours = [line for line in (run.stdout + run.stderr).splitlines() if name in line]
        assert run.returncode == 0 and not ours, (name, run.stdout, run.stderr)
    in_folder(verify)


def test_exposure():
    def expose(name, path):
        run = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX[name]}", path],
                             capture_output=True, text=True, check=False)
        overall = re.search(r"Overall exposure level.*", run.stdout)
        assert overall, (run.stdout, run.stderr)
        assert run.returncode == 0, overall.group(0)
    in_folder(expose)


def test_exposure_can_fail():
    def expose(name, path):
        path.write_text("[Service]\nExecStart=/bin/true\n", encoding="utf-8")
        run = subprocess.run(["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX[name]}", path],
                             capture_output=True, text=True, check=False)
        assert run.returncode != 0
    in_folder(expose)


def test_runner_is_watched():
    text = unit("quavon-sandbox-runner")
    for line in ("Type=notify", "NotifyAccess=main", "KillMode=mixed", "OOMPolicy=continue"):
        assert line + "\n" in text, line
    assert re.search(r"^WatchdogSec=", text, re.M)
    # Nothing starts before somebody has configured it.
    for name in EXPOSURE_MAX:
        assert re.search(r"^ConditionPathExists=/etc/quavon/", unit(name), re.M)


if __name__ == "__main__":
    tap.main(globals())
