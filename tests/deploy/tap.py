# SPDX-License-Identifier: Apache-2.0
"""Runs the functions test_* of a module and prints TAP."""

import sys
import traceback


class Skip(Exception):
    pass


def main(names):
    tests = [(name, function) for name, function in names.items() if name.startswith("test_")]
    print(f"1..{len(tests)}")
    failed = 0
    for number, (name, function) in enumerate(tests, 1):
        try:
            function()
            print(f"ok {number} {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} {name} # SKIP {reason}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} {name}")
            for line in traceback.format_exc().splitlines():
                print("# " + line, flush=True)
    sys.exit(failed != 0)
