#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench.sh [RUNS]: what a job costs from its command line to its verified result, and what a snapshot costs. Figures
# of one machine at one moment, to compare with the same machine's: nothing asserts them. Writes build/bench.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-10}
quavon=$PWD/build/release/src/cli/quavon
if [ "$(id -u)" -ne 0 ]; then echo "bench: needs root" >&2; exit 77; fi
for variable in $(compgen -e | grep -E '^(QUAVON|VALKEY)_'); do unset "$variable"; done

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

measure() { # text, command…
  local text=$1 times=() from to
  shift
  for ((i = 0; i < runs; i++)); do
    from=${EPOCHREALTIME/./}
    "$@" >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
    to=${EPOCHREALTIME/./}
    times+=($(((to - from) / 1000)))
  done
  mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
  printf '%-58s %6d %6d %6d\n' "$text" "${times[0]}" "${times[$((runs / 2))]}" "${times[$((runs - 1))]}"
}

{
  printf 'ms, %d runs %43s %6s %6s\n' "$runs" least median most
  measure "quavon snapshot, 1 file" "$quavon" snapshot "$work/small"
  measure "quavon snapshot, 10,000 files, 20 MiB" "$quavon" snapshot "$work/large"
  measure "quavon run -- true, own Valkey and runner, 1 file" "$quavon" run --all --repo "$work/small" -- true
  measure "quavon run -- true, own Valkey and runner, 10,000 files" "$quavon" run --all --repo "$work/large" -- true
} | tee build/bench.txt
