#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [TARGET|all] [SECONDS]: fuzzes a target of tests/fuzz (all of them by default, one after another) for SECONDS
# each (FUZZ_SECONDS, 60) with clang's libFuzzer, ASan and UBSan, and adds executions and hours of processor time to
# docs/FUZZING.md.
# fuzz.sh --minimise [TARGET|all]: into build/fuzz-minimal/TARGET the few inputs that reach code which nothing in the corpus does.
#
# Starts from tests/fuzz/corpus/TARGET and the shared vectors; what it finds new stays in build/fuzz-corpus/TARGET, a
# crash in build/fuzz-crashes/TARGET (replay it with build/asan/tests/fuzz/replay_TARGET FILE, then make it a file of
# the corpus). Exit status 0: no crash, no leak, no input that takes longer than 20 s.
set -eu
cd "$(dirname "$0")/.."
minimise=
if [ "${1:-}" = --minimise ]; then minimise=1; shift; fi
target=${1:-all}
seconds=${2:-${FUZZ_SECONDS:-60}}
vectors=${QUAVON_VECTORS:-../shared/vectors}

[ -f build/fuzz/build.ninja ] || CC=clang meson setup build/fuzz -Dfuzz=true -Db_sanitize=address,undefined \
  -Db_lundef=false -Dbuildtype=debugoptimized >/dev/null
names=$(sed -n "/^fuzz_targets = {/,/^}/s/^  '\([a-z_0-9]*\)':.*/\1/p" tests/fuzz/meson.build)
[ "$target" = all ] || names=$target

# The vectors that belong to a target, as tests/fuzz/meson.build lists them.
seeds_of() {
  sed -n "/^fuzz_seeds = {/,/^}/s/^  '$1': \[\(.*\)\],/\1/p" tests/fuzz/meson.build | tr -d "' " | tr ',' '\n'
}

failed=0
for name in $names; do
  [ -f "tests/fuzz/fuzz_$name.c" ] || { echo "fuzz: no target $name"; failed=1; continue; }
  ninja -C build/fuzz -j2 "tests/fuzz/fuzz_$name" >build/fuzz.log || { cat build/fuzz.log; exit 1; }
  found=build/fuzz-corpus/$name crashes=build/fuzz-crashes/$name
  mkdir -p "$found" "$crashes"
  folders=("$found")
  [ -d "tests/fuzz/corpus/$name" ] && folders+=("tests/fuzz/corpus/$name")
  for seed in $(seeds_of "$name"); do [ -d "$vectors/$seed" ] && folders+=("$vectors/$seed"); done
  options=()
  [ -f "tests/fuzz/$name.dict" ] && options+=("-dict=tests/fuzz/$name.dict")
  if [ -n "$minimise" ]; then
    minimal=build/fuzz-minimal/$name
    rm -rf "$minimal"
    mkdir -p "$minimal"
    # What is there already counts first, each file of each folder; edges alone, not how often: else there are hundreds.
    n=0
    for known in "${folders[@]:1}"; do
      while read -r -d '' file; do
        n=$((n + 1))
        cp "$file" "$minimal/known-$n"
      done < <(find "$known" -maxdepth 1 -type f -print0)
    done
    "build/fuzz/tests/fuzz/fuzz_$name" -set_cover_merge=1 -use_counters=0 -rss_limit_mb=2048 -max_len=4096 "$minimal" "$found" \
      >"build/fuzz-$name.log" 2>&1 || { failed=1; tail -n 20 "build/fuzz-$name.log"; }
    rm -f "$minimal"/known-*
    echo "$name: $(find "$found" -type f | wc -l) inputs, $(find "$minimal" -type f | wc -l) reach something new"
    continue
  fi
  echo "== fuzz $name, $seconds s"
  # What is added is processor time: on a busy machine the clock on the wall would count hours in which nothing ran.
  TIMEFORMAT='%3U %3S'
  {
    time UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 "build/fuzz/tests/fuzz/fuzz_$name" \
      -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="$crashes/" "${options[@]}" "${folders[@]}" >"build/fuzz-$name.log" 2>&1
  } 2>"build/fuzz-$name.time" || { failed=1; tail -n 40 "build/fuzz-$name.log"; }
  grep -aE '^(stat::number_of_executed_units|#.*DONE)' "build/fuzz-$name.log" || true
  ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz-$name.log" | tail -n 1)
  took=$(awk 'END { print $1 + $2 }' "build/fuzz-$name.time")
  scripts/fuzz_hours.py "$name" "${ran:-0}" "${took:-0}" "$(find "$crashes" -type f | wc -l)"
done
exit $failed
