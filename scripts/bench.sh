#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [RUNS]: what a job costs from its command line to its verified result, and what a snapshot costs. Figures
# of one machine at one moment, to compare with the same machine's: nothing asserts them. Where another
# program does the same work it is measured in turn with ours, and the ratio of the medians is given. Writes
# build/bench.json. The egress proxy's part is bench/egress.py.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-10}
quavon=$PWD/build/release/src/cli/quavon
if [ "$(id -u)" -ne 0 ]; then echo "bench: needs root" >&2; exit 77; fi
for variable in $(compgen -e | grep -E '^(QUAVON|VALKEY)_'); do unset "$variable"; done

scripts/install-deps.sh --bench
ninja -C build/release bench/egress_load >/dev/null
scripts/test-image.sh >/dev/null
export QUAVON_SANDBOX_IMAGES_FILE=$PWD/build/test-images/images.lock.json
work=$(mktemp -d /tmp/qv-bench.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# Trees: one file; ten thousand files of 2 KiB in a hundred folders.
mkdir "$work/small" "$work/large"
echo hello >"$work/small/file"
python3 - "$work/large" <<'END'
import pathlib, random, sys
random.seed(1)
words = [bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(500)]
for i in range(10000):
    folder = pathlib.Path(sys.argv[1], f"d{i % 100:02}")
    folder.mkdir(exist_ok=True)
    (folder / f"f{i:05}").write_bytes(b" ".join(random.choices(words, k=292)))
END

# Milliseconds of one run of a command.
once() {
  local from=${EPOCHREALTIME/./}
  "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  echo $(((${EPOCHREALTIME/./} - from) / 1000))
}

peer_snapshot() { tar -C "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | gzip -1n >"$work/peer.gz"; }

measure() { # name, peer (a function's words, or empty), command…
  local name=$1 peer=$2
  shift 2
  for ((i = 0; i < runs; i++)); do
    printf '%s\tours\t%s\n' "$name" "$(once "$@")" >>"$work/figures"
    if [ -n "$peer" ]; then
      # shellcheck disable=SC2086
      printf '%s\tpeer\t%s\n' "$name" "$(once $peer)" >>"$work/figures"
    fi
  done
  echo "bench: $name" >&2
}

measure snapshot_1_file "peer_snapshot $work/small" "$quavon" snapshot "$work/small"
measure snapshot_10000_files "peer_snapshot $work/large" "$quavon" snapshot "$work/large"
measure embedded_run_1_file "" "$quavon" run --all --repo "$work/small" -- true
measure embedded_run_10000_files "" "$quavon" run --all --repo "$work/large" -- true

python3 - "$work/figures" "$runs" <<'END' | tee build/bench.json
import json, statistics, sys
series = {}
for line in open(sys.argv[1]):
    name, side, ms = line.rstrip("\n").split("\t")
    series.setdefault(name, {}).setdefault(side, []).append(int(ms))
figures = {}
for name, sides in series.items():
    figures[name] = {side: {"min": min(v), "median": statistics.median(v), "max": max(v)} for side, v in sides.items()}
    if "peer" in sides:
        figures[name]["ratio"] = round(figures[name]["ours"]["median"] / max(figures[name]["peer"]["median"], 1), 2)
print(json.dumps({"unit": "ms", "runs": int(sys.argv[2]), "peer": "GNU tar, gzip -1", "figures": figures}, indent=1))
END

bench/egress.py
