#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuzz_hours.py TARGET EXECUTIONS SECONDS FINDINGS: adds a run of a fuzz target to the table of docs/FUZZING.md."""

import fcntl
import pathlib
import re
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "FUZZING.md"
HEAD = "| target | executions | hours | findings open |\n| --- | --- | --- | --- |\n"
ROW = re.compile(r"\| `([a-z0-9_]+)` \| ([0-9]+) \| ([0-9.]+) \| ([0-9]+) \|\n")


def main():
    target, executions, seconds, findings = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    with PAGE.open() as page:
        fcntl.flock(page, fcntl.LOCK_EX)
        add(target, executions, seconds, findings)


def add(target, executions, seconds, findings):
    text = PAGE.read_text()
    before, table = text.split(HEAD)
    rows = {m[1]: (int(m[2]), float(m[3]), int(m[4])) for m in ROW.finditer(table)}
    ran, hours, _ = rows.get(target, (0, 0.0, 0))
    rows[target] = (ran + executions, hours + seconds / 3600, findings)
    PAGE.write_text(before + HEAD + "".join(f"| `{name}` | {n} | {h:.3f} | {found} |\n" for name, (n, h, found) in sorted(rows.items())))


main()
