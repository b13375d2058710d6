#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test.sh [LANE...]: runs lanes (all of them by default) and prints one summary.
#
#   lint      the rules of the house, and the scripts that judge
#   asan      gcc with ASan and UBSan: every suite
#   release   optimised: every unit, and of the system suites what `shipped` names (the rest is in asan)
#   valgrind  the optimised build's unit suite under memcheck
#   demo      scripts/demo.sh, with the backend runsc and with docker-runsc
#   leftovers what a run has left on the machine; always last
#
# Nothing here stops at the first failure: a lane that cannot be built is a failed case. Results are in
# build/results; the last line is "N passed, N failed, N skipped", the exit status 0 when none failed and one passed.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
results=$root/build/results

# The caller's configuration must not reach the tests.
for variable in $(compgen -e | grep -E '^(QUAVON|VALKEY)_' | grep -v '^QUAVON_TEST_'); do unset "$variable"; done
unset TMPDIR G_MESSAGES_DEBUG
export LC_ALL=C.UTF-8

# What of the system suites the optimised build runs: what differs in it, what is measured in it, what is only there.
# The rest says the same in either build, and is asked once, in lane asan.
shipped=(
  runner/e2e             # every end of a job: capabilities given up, unpack under the whole filter of system calls
  runner/hostile_jobs    # what the filter and the optimiser make of hostile input
  runner/hostile_stream  # the long stream, and the figure of the supervisor's memory
  runner/live            # live chunks against their deadlines
  runner/pulse           # the service's watchdog
  runner/hostile_valkey  # the figure of a runner's memory before a Valkey that lies
  egress/life            # the figure of the proxy's memory
  egress/hostile         # the same before a Valkey that lies
  sandbox/run            # limits of memory, processes and disk
  sandbox/trouble-docker-runsc  # the figure of memory behind 200 MiB of output
  entry/namespaces       # the entry as it is shipped: optimised
  entry/gvisor
  client/install         # a program against the library as it is shipped
  images/existing        # two builds of everything, one digest
  images/build
  guest/cgroup2          # only there
  format/coverage        # a build of its own, of the release configuration
  deploy/units           # what is installed
  deploy/install
  deploy/deb
  deploy/compose
)

say() { printf '\n== %s (%s)\n' "$*" "$(date +%T)"; }

# One failed or passed case that no test program stands behind.
note() { # ok|"not ok", text
  printf '%s 0 %s\n' "$1" "$2" >>"$results/steps.tap"
}

step() { # text, command…
  local text=$1
  shift
  if "$@"; then note ok "$text"; else note "not ok" "$text"; return 1; fi
}

# For what reaches over the network: three attempts.
attempt() { # command…
  local i
  for i in 1 2 3; do
    if "$@"; then return 0; fi
    echo "attempt $i failed: $*" >&2
    sleep $((i * 20))
  done
  return 1
}

build() { # folder, meson options…
  local folder=build/$1
  shift
  if [ ! -f "$folder/build.ninja" ]; then meson setup "$folder" "$@" >"$results/setup.log" 2>&1 ||
    { tail -n 30 "$results/setup.log"; return 1; }; fi
  ninja -C "$folder" >"$results/build.log" 2>&1 || { grep -m 5 -A 12 FAILED "$results/build.log"; return 1; }
}

build_release() { build release --buildtype=release -Ddebug=true; }

# meson's own exit status only says that a test failed: the log says which.
run() { # folder, name of the log, processes, suites and options…
  local folder=build/$1 log=$2 processes=$3
  shift 3
  rm -f "$folder/meson-logs/$log"*.json
  meson test -C "$folder" --no-rebuild --logbase "$log" --num-processes "$processes" --print-errorlogs "$@"
  # With a wrapper, meson puts the wrapper's name behind.
  if cat "$folder/meson-logs/$log"*.json >"$results/$log.json" 2>/dev/null && [ -s "$results/$log.json" ]; then
    return
  fi
  note "not ok" "$log ran"
}

# The same for tests by name. meson passes over a name that it does not have, this does not.
run_named() { # folder, name of the log, processes, tests…
  local folder=$1 log=$2 processes=$3 name all
  shift 3
  all=" $(meson test -C "build/$folder" --no-rebuild --list 2>/dev/null | sed 's/.* \/ //' | tr '\n' ' ') "
  for name in "$@"; do
    if [ "${all#* "$name" }" = "$all" ]; then note "not ok" "there is a test $name"; fi
  done
  run "$folder" "$log" "$processes" "$@"
}

# What the system suites need beside the build.
prepare_systems() {
  build_release || return 1
  attempt scripts/test-image.sh base node services || return 1
  if [ "${QUAVON_TEST_LONG-}" = 1 ]; then attempt scripts/test-image.sh clients || return 1; fi
  attempt scripts/guest-kernel.sh
}

lane_lint() {
  scripts/lint.py >"$results/lint.tap"
  scripts/selftest.py >"$results/scripts.tap"
  cat "$results/lint.tap" "$results/scripts.tap"
}

lane_asan() {
  step "build with sanitizers" build asan -Db_sanitize=address,undefined -Db_lundef=false || return
  run asan asan-unit 2 --suite unit --suite fuzz
  step "image of the system tests" prepare_systems || return
  run asan asan-system 2 --suite interop --suite integration --suite fault
}

lane_release() {
  step "optimised build" build_release || return
  run release release-unit 2 --suite unit --suite fuzz
  step "image of the system tests" prepare_systems || return
  QUAVON_TEST_TWO_BUILDS=1 run_named release release-system 2 "${shipped[@]}"
}

lane_valgrind() {
  step "optimised build" build_release || return
  G_SLICE=always-malloc run release valgrind-unit 2 --suite unit --timeout-multiplier 10 --wrapper \
    "valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --suppressions=$root/scripts/valgrind.supp"
}

lane_demo() {
  step "optimised build" build_release || return
  step "demo" scripts/demo.sh
  step "demo, docker-runsc" scripts/demo.sh docker-runsc
}

lane_leftovers() {
  scripts/leftovers.py after "$results/before.json" >"$results/leftovers.tap"
  cat "$results/leftovers.tap"
  scripts/guest.sh after build/guest.before >"$results/guest.tap"
  cat "$results/guest.tap"
}

main() {
  lanes=("$@")
  if [ ${#lanes[@]} -eq 0 ]; then lanes=(lint asan release valgrind demo); fi
  for lane in "${lanes[@]}"; do
    case $lane in
    lint | asan | release | valgrind | demo) ;;
    *) echo "test.sh: no lane '$lane'" >&2; exit 2 ;;
    esac
  done

  rm -rf "$results"
  mkdir -p "$results"
  scripts/leftovers.py before "$results/before.json" || exit 1
  for lane in "${lanes[@]}" leftovers; do
    say "$lane"
    "lane_$lane"
  done
  say summary
  shopt -s nullglob
  exec scripts/summary.py "$results"/*.tap "$results"/[arv]*.json
}

# On one line, so that a change of this file while it runs changes nothing.
main "$@"; exit
