#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""summary.py FILE...: counts what ran.

A FILE is a log of meson (.json, one object a line) or TAP (.tap). A TAP program counts by its cases, another
one as a case. Prints the skipped cases with their reasons, the failed ones, the slowest programs, and as the last
line `N passed, N failed, N skipped`. Exit 1 when one failed or none passed.
"""

import json
import pathlib
import re
import sys

CASE = re.compile(r"^(not )?ok\b\s*(\d+)?\s*-?\s*(.*)$")
SKIP = re.compile(r"#\s*skip\b[:\s]*(.*)$", re.IGNORECASE)
PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*skip\b[:\s]*(.*))?\s*$", re.IGNORECASE)
MESON_GOOD = ("OK", "EXPECTEDFAIL")


class Count:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.durations = []

    def tap(self, lane, program, text):
        """Counts the cases of TAP; returns how many there were and how many were planned."""
        seen, plan = 0, None
        for line in text.splitlines():
            planned = PLAN.match(line)
            if planned:
                plan = int(planned.group(1))
                if plan == 0:
                    self.skipped.append((lane, program, planned.group(2) or "no reason given"))
                continue
            case = CASE.match(line)
            if not case:
                continue
            seen += 1
            name = f"{program} {case.group(3)}".strip()
            skip = SKIP.search(case.group(3))
            if skip:
                name = f"{program} {case.group(3)[:skip.start()]}".strip()
                self.skipped.append((lane, name, skip.group(1) or "no reason given"))
            elif case.group(1):
                self.failed.append((lane, name, ""))
            else:
                self.passed += 1
        return seen, plan

    def meson(self, lane, test):
        name, result = test["name"], test["result"]
        self.durations.append((test.get("duration", 0.0), lane, name))
        failed_before = len(self.failed)
        output = test.get("stdout", "")
        seen, plan = self.tap(lane, name, output) if re.search(r"^1\.\.\d+", output, re.M) else (0, None)
        if result == "SKIP" and seen == 0 and plan is None:
            self.skipped.append((lane, name, (output.strip().splitlines() or ["no reason given"])[-1]))
        elif result not in MESON_GOOD and result != "SKIP":
            if len(self.failed) == failed_before:
                self.failed.append((lane, name, result.lower()))
        elif seen == 0 and plan is None:
            self.passed += 1
        elif plan is not None and seen != plan:
            self.failed.append((lane, name, f"{seen} of {plan} cases"))


def table(title, rows):
    if rows:
        print(f"\n{title}:")
        for row in rows:
            print("  " + "  ".join(part for part in row if part))


def main(paths):
    count = Count()
    for path in map(pathlib.Path, paths):
        lane = path.stem
        if path.suffix == ".tap":
            seen, plan = count.tap(lane, "", path.read_text(errors="replace"))
            if plan is not None and seen != plan:
                count.failed.append((lane, path.name, f"{seen} of {plan} cases"))
            continue
        for line in path.read_text(errors="replace").splitlines():
            count.meson(lane, json.loads(line))
    table("skipped", sorted(count.skipped))
    slow = sorted(count.durations, reverse=True)[:12]
    table("slowest", [(f"{seconds:7.1f} s", lane, name) for seconds, lane, name in slow])
    table("failed", sorted(count.failed))
    print(f"\n{count.passed} passed, {len(count.failed)} failed, {len(count.skipped)} skipped")
    return 1 if count.failed or count.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
