#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [--full | --quick] [NAME…]: measures what docs/PERFORMANCE.md names, each figure in turn with a peer that does the same
# work, in one run, and writes build/bench.json and a table. Figures of one machine at one moment: nothing asserts
# them.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then echo "bench: needs root, for sandboxes are made by root" >&2; exit 77; fi
for variable in $(compgen -e | grep -E '^(QUAVON|VALKEY)_'); do unset "$variable"; done

scripts/install-deps.sh --bench
ninja -C build/release bench-programs >/dev/null
scripts/test-image.sh >/dev/null
bench/run.py "$@"
echo "bench: figures are in build/bench.json; bench/page.py puts them into docs/PERFORMANCE.md"
