#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""summary.py FILE...: counts what ran.

A FILE is a log of meson (.json, one object a line) or TAP (.tap). A TAP program counts by its cases, another
one as a case. Prints the skipped cases with their reasons, the slowest programs, the failed cases, what these said last, and as
the last line `N passed, N failed, N skipped`. Exit 1 when one failed or none passed.
"""

import json
import pathlib
import re
import sys

CASE = re.compile(r"^(not )?ok\b\s*(\d+)?\s*-?\s*(.*)$")
SKIP = re.compile(r"#\s*skip\b[:\s]*(.*)$", re.IGNORECASE)
PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*skip\b[:\s]*(.*))?\s*$", re.IGNORECASE)
MESON_GOOD = ("OK", "EXPECTEDFAIL")
# What is repeated of failed programs: so many of them, so many lines of each, so much of a line's begin and end.
TOLD, LINES, HEAD, TAIL = 6, 14, 200, 1000


class Count:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.durations = []
        self.told = []

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
        if len(self.failed) > failed_before:
            self.told.append((lane, name, output, test.get("stderr", "")))

    @staticmethod
    def telling(text):
        """What stands behind the first case that failed up to the next, or else the last lines."""
        lines = text.rstrip().splitlines()
        first = next((i for i, line in enumerate(lines) if line.startswith("not ok")), None)
        if first is None:
            return lines[-LINES:]
        end = next((i for i in range(first + 1, len(lines)) if CASE.match(lines[i])), len(lines))
        return [lines[first]] + lines[first + 1:end][-LINES:]

    def tell(self):
        """What the failed programs said: who reads the end of a long log need not look for it."""
        for lane, name, output, errors in self.told[:TOLD]:
            print(f"\n{lane} {name} said:")
            for line in self.telling(output) + self.telling(errors):
                print("  | " + (line if len(line) <= HEAD + TAIL else f"{line[:HEAD]} … {line[-TAIL:]}"))


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
    count.tell()
    print(f"\n{count.passed} passed, {len(count.failed)} failed, {len(count.skipped)} skipped")
    return 1 if count.failed or count.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
